"""generate as a user calls it, and the answers behind it: whole, in batches, piece by piece."""

import io
import json
import subprocess
import sys

import pytest
from conftest import REPO, cli, environment

from grpo_workbook.cli.ask import _from_input, answer, conversation, stream
from grpo_workbook.errors import WorkbookError
from grpo_workbook.generation import sampling

QUESTION = "Ada has 7 pens and buys 5 more. How many pens does Ada have now?"
GREEDY = {"max_new_tokens": 48, "how": sampling(0)}


@pytest.mark.parametrize("family", ["qwen", "gemma"])
def test_pieces_are_the_answer(tiny, family):
    model, tokenizer = tiny[family]
    whole = answer(model, tokenizer, [QUESTION, "What is 2+3?"], **GREEDY)
    pieces = list(stream(model, tokenizer, QUESTION, **GREEDY))
    assert len(pieces) > 3
    assert "".join(pieces) == whole[0]
    assert "12" in whole[0]


def test_sampling_is_seeded_and_leaves_the_random_state_alone(tiny):
    import torch

    model, tokenizer = tiny["qwen"]
    how = {"max_new_tokens": 24, "how": sampling(1.0)}
    before = torch.get_rng_state()
    first, again, other = (
        answer(model, tokenizer, [QUESTION] * 4, seed=seed, **how) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other
    assert len(set(first)) > 1
    assert torch.equal(torch.get_rng_state(), before)


def test_closing_the_stream_stops_the_model(tiny):
    """Left after one piece of a very long answer: the model must not go on in the background."""
    import threading

    import torch

    model, tokenizer = tiny["qwen"]
    running = threading.active_count()
    pieces = stream(
        model, tokenizer, QUESTION, max_new_tokens=900, how={**sampling(5.0), "min_new_tokens": 900}
    )
    next(pieces)
    assert torch.is_grad_enabled()  # between two pieces the reader's own work goes on as ever
    pieces.close()
    assert threading.active_count() == running


def test_an_error_in_the_model_is_raised_where_the_answer_is_read(tiny):
    model, tokenizer = tiny["qwen"]
    with pytest.raises(ValueError, match="temperature"):
        list(
            stream(
                model,
                tokenizer,
                QUESTION,
                max_new_tokens=8,
                how={"do_sample": True, "temperature": -1.0},
            )
        )


def test_a_template_without_system_role_gets_it_in_the_users_turn(tiny):
    import copy

    tokenizer = copy.deepcopy(tiny["qwen"][1])
    tokenizer.chat_template = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('none') }}{% endif %}"
        + tokenizer.chat_template
    )
    assert [m["role"] for m in conversation(tokenizer, QUESTION, "Be brief.")] == ["user"]
    assert [m["role"] for m in conversation(tiny["qwen"][1], QUESTION, "Be brief.")] == [
        "system",
        "user",
    ]


def test_one_question_and_several_samples():
    result = cli("generate", "qwen", QUESTION)
    assert result.returncode == 0, result.stderr
    assert "7+5=12" in result.stdout
    result = cli("generate", "qwen", QUESTION, "--samples", "3", "--seed", "1")
    assert result.stdout.count("--- ") == 3


def test_a_pipe_of_questions_gives_a_line_of_json_each():
    command = [sys.executable, "-m", "grpo_workbook", "generate", "gemma", "--jsonl"]
    result = subprocess.run(
        command,
        input=f"{QUESTION}\n\nWhat is 2+3?\n",
        cwd=REPO,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [f["question"] for f in found] == [QUESTION, "What is 2+3?"]
    assert all(len(f["answers"]) == 1 and f["answers"][0] for f in found)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere/at/all", "?"], "unknown model"),
        (["qwen", "?", "--adapter", "data/word_problems"], "holds no adapter"),
        (["qwen", "?", "--samples", "0"], "--samples is 0"),
        (["qwen", "?", "--samples", "4", "--temperature", "0"], "all the same"),
        (["qwen", "?", "--top-p", "1.5"], "--top-p is 1.5"),
        (["qwen", "?", "--temperature", "nan"], "--temperature is nan"),
    ],
)
def test_bad_input_is_named_before_anything_is_loaded(arguments, words):
    result = cli("generate", *arguments)
    assert result.returncode == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_questions_that_are_no_text_are_said(monkeypatch):
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO(b"What is 2+3?\r\n\xff\n"), encoding="utf-8")
    )
    with pytest.raises(WorkbookError, match=r"the questions are no utf-8 \(.*save them as UTF-8"):
        list(_from_input())
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO(b"What is 2+3?\r\n\r\nAnd 4?"), encoding="utf-8")
    )
    assert list(_from_input()) == ["What is 2+3?", "And 4?"]
