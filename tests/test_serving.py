"""A real server on loopback: asked over HTTP, stopped again."""

import socket
from importlib.util import find_spec

import psutil
import pytest

from grpo_workbook.cli.ask import answer, conversation
from grpo_workbook.cli.serving import serve
from grpo_workbook.config import DATA
from grpo_workbook.errors import WorkbookError
from grpo_workbook.generation import sampling

QUESTION = "Ada has 7 pens and buys 5 more. How many pens does Ada have now?"


def test_the_server_gives_the_models_own_answers_and_ends_with_the_block(tiny):
    model, tokenizer = tiny["qwen"]
    expected = answer(model, tokenizer, [QUESTION], max_new_tokens=48, how=sampling(0))[0]
    with serve(str(DATA / "tiny-qwen3"), dtype="float32") as server:
        found = server.ask(conversation(tokenizer, QUESTION), max_tokens=48, temperature=0)
        assert found == expected
        listening = [
            c
            for c in psutil.Process(server.pid).net_connections()
            if c.status == psutil.CONN_LISTEN
        ]
        assert {c.laddr.ip for c in listening} == {"127.0.0.1"}
        with pytest.raises(RuntimeError, match="the server answered [45]"):
            server.ask([{"role": "user"}], max_tokens="many")
    assert not psutil.pid_exists(server.pid)


def test_a_port_in_use_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(WorkbookError, match=f"port {port} cannot be had"),
            serve("qwen", port=port),
        ):
            pass


def test_a_model_that_is_not_there_and_one_that_cannot_be_loaded(tmp_path):
    with pytest.raises(WorkbookError, match="unknown model"), serve(str(tmp_path / "none")):
        pass
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    with (
        pytest.raises(RuntimeError, match="the end of its log"),
        serve(str(tmp_path), start_limit=90),
    ):
        pass


def test_an_engine_that_is_not_there():
    with pytest.raises(WorkbookError, match="unknown engine 'tgi': choose from transformers, vllm"):
        serve("qwen", engine="tgi").__enter__()
    if find_spec("vllm") is None:
        with pytest.raises(WorkbookError, match="vllm is not installed: pip install vllm"):
            serve("qwen", engine="vllm").__enter__()
