"""A language model as judge: a real endpoint, endpoints that fail, hostile completions, kappa."""

import asyncio
import http.server
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import REPO, raises_naming, slow, until

from grpo_workbook import WorkbookError
from grpo_workbook.rewards import attacks, call
from grpo_workbook.rewards.judges import (
    PREFER,
    RUBRIC,
    Criterion,
    Judge,
    agreement,
    get_judge_reward,
    get_rubric_reward,
)

ROW = {"prompt": "What is 6 times 7?", "completion": "<answer>42</answer>"}


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@pytest.fixture
def endpoint():
    """OpenAI's API over HTTP; `replies` makes the answer to a message: a text, or a status."""
    servers = []

    def made(replies) -> tuple[str, list[dict]]:
        seen: list[dict] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                seen.append(request)
                reply = replies(request["messages"][0]["content"], len(seen))
                status, text = (reply, "") if isinstance(reply, int) else (200, reply)
                message = {"role": "assistant", "content": text}
                body = {"id": "1", "object": "chat.completion", "created": 0, "model": "m"}
                body |= {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
                body |= {"usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}}
                if status != 200:
                    body = {"error": {"message": "no model of this name"}}
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/v1", seen

    yield made
    for server in servers:
        server.shutdown()
        server.server_close()


def ask(judge: Judge, *rows: dict) -> list:
    return asyncio.run(judge.ask(rows))


def fenced(text: str) -> str:
    """The completion in a judge's message."""
    return re.search(r"(=+[0-9a-f]{8})\n(.*)\n\1", text, re.DOTALL)[2]


def numbered(n: int) -> list[dict]:
    return [ROW | {"completion": str(i)} for i in range(n)]


def test_equal_questions_are_asked_once_and_remembered_in_a_file(endpoint, tmp_path):
    url, seen = endpoint(lambda text, n: "no" if fenced(text) == "3" else "Let me see.\n**Yes.**")
    judge = Judge(url, "m", cache=tmp_path / "replies.jsonl")
    assert ask(judge, *numbered(4), *numbered(2)) == [1, 1, 1, 0, 1, 1]
    assert len(seen) == 4
    assert (judge.counts["asked"], judge.counts["cached"]) == (4, 2)
    assert judge.tokens == [40, 8]
    with (tmp_path / "replies.jsonl").open("a") as file:
        file.write('{"a killed wri')
    again = Judge(url, "m", cache=tmp_path / "replies.jsonl")
    assert ask(again, *numbered(4)) == [1, 1, 1, 0]
    assert (len(seen), again.tokens) == (4, [0, 0])
    assert ask(Judge(url, "another", cache=tmp_path / "replies.jsonl"), *numbered(1)) == [1]
    assert len(seen) == 5


def test_a_busy_server_is_asked_again(endpoint):
    url, seen = endpoint(lambda text, n: 503 if n < 3 else "yes")
    assert ask(Judge(url, "m"), ROW) == [1.0]
    assert len(seen) == 3


def test_what_gives_no_verdict_is_none_and_counted(endpoint):
    prose = "Yes and no: it depends on what is meant."
    url, _ = endpoint(lambda text, n: {"0": prose, "1": 500, "2": ""}.get(fenced(text), "no"))
    judge = Judge(url, "m", retries=0)
    assert ask(judge, *numbered(8)) == [*[None] * 3, *[0] * 5]
    names = ("unreadable", "server error", "verdicts")
    assert [judge.counts[name] for name in names] == [2, 1, 5]


@pytest.mark.parametrize(
    ("replies", "reason"),
    [
        (lambda text, n: "I like it.", "unreadable: 'i like it.'"),
        (lambda text, n: 500, "server error: 500"),
        (lambda text, n: 404, "no model of this name"),
        (lambda text, n: time.sleep(3) or "yes", "timeout: .*0.2 s"),
    ],
)
def test_a_batch_without_verdicts_stops_the_run(endpoint, replies, reason):
    url, _ = endpoint(replies)
    with pytest.raises(WorkbookError, match=reason):
        ask(Judge(url, "m", retries=0, timeout=0.2), *numbered(3))


def test_a_dead_endpoint_is_named():
    url = f"http://127.0.0.1:{free_port()}/v1"
    with raises_naming(WorkbookError, "2 of 2", url):
        ask(Judge(url, "m", retries=0), *numbered(2))


def test_a_judge_that_likes_the_first_answer_decides_nothing(endpoint):
    url, _ = endpoint(lambda text, n: "A")
    judge = Judge(url, "m", PREFER, {"A": 1.0, "B": 0.0})
    assert asyncio.run(judge.compare([("6*7?", "42", "41"), ("1+1?", "3", "2")])) == [0.5, 0.5]
    assert judge.counts["position decided"] == 2
    url, _ = endpoint(lambda text, n: "AB"[text.index("\n42\n") > text.index("\n41\n")])
    fair = Judge(url, "m", PREFER, {"A": 1.0, "B": 0.0})
    assert asyncio.run(fair.compare([("6*7?", "42", "41"), ("6*7?", "41", "42")])) == [1.0, 0.0]
    assert fair.counts["position decided"] == 0


def test_a_missing_field_names_those_that_are_there():
    with raises_naming(WorkbookError, "'reference'", "prompt", "completion"):
        ask(Judge("http://127.0.0.1:1/v1", "m", "{prompt} {completion} {reference}"), ROW)


# ---------------------------------------------------------------- rubrics

POLITE = Criterion("polite", "Is the reply polite?", weight=1.0)
SOLVES = Criterion("solves", "Does it solve the problem?", weight=3.0)


def grade(text: str, n: int) -> str:
    """Polite is what says please; what says refund solves the problem; a shrug is no verdict."""
    reply = fenced(text)
    if "polite?" in text:
        return "yes" if "please" in reply else "no"
    if reply == "shrug":
        return "That depends."
    return "yes" if "refund" in reply else "no"


def test_a_rubric_pays_the_weighted_mean_of_its_criteria(endpoint):
    url, seen = endpoint(grade)
    judge = Judge(url, "m", RUBRIC)
    rubric = get_rubric_reward(judge, [POLITE, SOLVES])
    replies = ["please, a refund", "please", "refund", "no"]
    prompts = [[{"role": "user", "content": "The lamp is broken."}]] * 4
    assert call(rubric, replies, prompt=prompts) == [1.0, 0.25, 0.75, 0.0]
    assert len(seen) == 8
    assert all("The lamp is broken." in request["messages"][0]["content"] for request in seen)


def test_a_rubric_logs_each_criterion_and_leaves_out_what_was_not_judged(endpoint):
    url, _ = endpoint(grade)
    rubric = get_rubric_reward(Judge(url, "m", RUBRIC), [POLITE, SOLVES])
    metrics, table = {}, {}
    replies = ["please, a refund", "shrug", "please", "refund"]
    with pytest.warns(UserWarning, match="1 of 4"):
        rewards = asyncio.run(
            rubric(replies, ["?"] * 4, log_metric=metrics.__setitem__, log_extra=table.__setitem__)
        )
    assert rewards == [1.0, None, 0.25, 0.75]
    assert metrics == {"rubric/polite": 0.5, "rubric/solves": pytest.approx(2 / 3)}
    assert table == {"polite": [1, 0, 1, 0], "solves": [1, None, 0, 1]}


@pytest.mark.parametrize(
    ("template", "criteria", "named"),
    [
        ("{completion}", [POLITE], "{completion}"),
        (RUBRIC, [], "Criterion"),
        (RUBRIC, [POLITE, POLITE], "'polite'"),
        (RUBRIC, [Criterion("short", "Is it short?", weight=0.0)], "0.0"),
    ],
)
def test_a_rubric_that_cannot_be_meant_is_refused(template, criteria, named):
    with raises_naming(WorkbookError, named):
        get_rubric_reward(Judge("http://127.0.0.1:1/v1", "m", template), criteria)


# ---------------------------------------------------------------- hostile completions


TALKING = {a.name: a.text for a in attacks() if a.family == "talking to a judge"}


@pytest.mark.parametrize("name", TALKING)
def test_a_completion_opens_no_turn(name):
    from transformers import AutoTokenizer

    judge = Judge("", "m")
    for folder in ("tiny-qwen3", "tiny-gemma3", "tiny-tools"):
        tokenizer = AutoTokenizer.from_pretrained(REPO / "data" / folder)

        def special(text, tokenizer=tokenizer):
            chat = [{"role": "user", "content": judge.text(ROW | {"completion": text})}]
            ids = tokenizer.apply_chat_template(chat, tokenize=True, return_dict=True)["input_ids"]
            return sum(i in tokenizer.all_special_ids for i in ids)

        assert special(TALKING[name]) == special("41")


def test_a_completion_cannot_know_its_fence():
    judge, fences = Judge("", "m"), set()
    for _ in range(20):
        text = judge.text(ROW | {"completion": TALKING["the end of a fence"]})
        fence = re.search("between lines of (=+[0-9a-f]{8})", text)[1]
        assert text.count(fence) == 3
        assert text.split(fence)[2].strip() == TALKING["the end of a fence"]
        fences.add(fence)
    assert len(fences) == 20


def test_with_a_seed_a_measurement_can_be_repeated():
    first, again, other = (Judge("", "m", fence_seed=seed) for seed in (0, 0, 1))
    assert first.text(ROW) == first.text(ROW) == again.text(ROW) != other.text(ROW)
    fences = {re.search("=+[0-9a-f]{8}", first.text(row))[0] for row in numbered(20)}
    assert len(fences) == 20  # a fence seen in one message does not fit the next one


@pytest.fixture(scope="module")
@slow
def served(tmp_path_factory):
    """`transformers serve` with tiny-qwen3: its address, and the model's name."""
    model, port = str(REPO / "data" / "tiny-qwen3"), free_port()
    command = [str(Path(sys.executable).with_name("transformers")), "serve", model]
    command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    path = tmp_path_factory.mktemp("serve") / "log.txt"
    with path.open("w") as log:
        env = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        server = subprocess.Popen(command, stdout=log, stderr=log, env=env)

    def up() -> bool:
        assert server.poll() is None, path.read_text()[-2000:]
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", port)) == 0

    assert until(up), path.read_text()[-2000:]
    yield f"http://127.0.0.1:{port}/v1", model
    server.terminate()
    server.wait(timeout=60)


SUM = "Carla has 22 buttons and buys 7 more. How many buttons does Carla have now?"


def test_a_real_endpoint_judges_what_the_model_says(served, tiny):
    from grpo_workbook import generate

    text = generate(*tiny["qwen"], [[{"role": "user", "content": SUM}]], max_new_tokens=64)[0]
    word = re.sub(r"[\s*.]+", "", text.strip().splitlines()[-1].lower())
    judge = Judge(*served, "{prompt}", {word: 1.0}, max_tokens=64)
    prompts = [[{"role": "user", "content": SUM}]] * 2
    assert asyncio.run(get_judge_reward(judge)(["x", "y"], prompts)) == [1.0, 1.0]
    assert judge.counts["asked"] == 1
    assert min(judge.tokens) > 0


def test_a_real_model_that_answers_with_prose_is_no_judge(served):
    judge = Judge(*served, "{prompt}", max_tokens=64)
    with raises_naming(WorkbookError, "1 of 1", "unreadable"):
        ask(judge, {"prompt": SUM})
    with raises_naming(WorkbookError, served[0]):
        ask(Judge(served[0], "another-model", "{prompt}"), {"prompt": SUM})


@pytest.mark.trains
def test_trl_awaits_the_judge_and_names_it(endpoint, tmp_path):
    """In a process of its own, because Unsloth patches TRL."""
    url, seen = endpoint(lambda text, n: "yes" if "<answer>" in text else "no")
    script = f"""
import unsloth
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer
from grpo_workbook.rewards.judges import *
folder = {str(REPO / "data" / "tiny-qwen3")!r}
judge = Judge({url!r}, "m")
rubric = get_rubric_reward(Judge({url!r}, "m", RUBRIC), [Criterion("tagged", "Are there tags?")])
rows = Dataset.from_list([{{"prompt": [{{"role": "user", "content": {SUM!r}}}]}}] * 4)
args = GRPOConfig({str(tmp_path)!r}, max_steps=1, per_device_train_batch_size=8, use_cpu=True,
    bf16=False, num_generations=8, max_completion_length=32, report_to="none", logging_steps=1,
    save_strategy="no", gradient_checkpointing=False)
model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
trainer = GRPOTrainer(model, [get_judge_reward(judge), rubric], args, rows,
    processing_class=AutoTokenizer.from_pretrained(folder))
trainer.train()
log = trainer.state.log_history[0]
print("MEAN", log["rewards/judge_reward/mean"], judge.counts["verdicts"])
assert log["rubric/tagged"] == log["rewards/rubric_reward/mean"]
"""
    from conftest import finished

    result = finished([sys.executable, "-c", script], cwd=tmp_path, PYTHONPATH=str(REPO))
    match = re.search(r"MEAN (\S+) (\d+)", result.stdout)
    assert match, result.stderr[-3000:]
    assert int(match[2]) == 8
    graded = [r["messages"][0]["content"] for r in seen]
    right = sum("<answer>" in text and "Are there tags?" not in text for text in graded)
    assert float(match[1]) > 0 if right else float(match[1]) == 0


# ---------------------------------------------------------------- agreement


def test_kappa_is_the_textbooks():
    """Cohen's own kind of table: 20 yes-yes, 5 yes-no, 10 no-yes, 15 no-no: kappa 0.4."""
    verdicts = [1] * 25 + [0] * 25
    labels = [1] * 20 + [0] * 5 + [1] * 10 + [0] * 15
    measured = agreement(verdicts, labels)
    assert measured.kappa == pytest.approx(0.4)
    assert measured.equal == pytest.approx(0.7)
    # the large-sample interval (Fleiss, Cohen and Everitt 1969): 0.4 -/+ 1.96 * 0.127
    assert (measured.low, measured.high) == pytest.approx((0.15, 0.65), abs=0.03)
    assert agreement([None, *verdicts], [1, *labels]) == measured


def test_a_judge_that_always_says_yes_agrees_by_chance_alone():
    measured = agreement([1.0] * 50, [1.0] * 40 + [0.0] * 10)
    assert (measured.kappa, measured.equal) == (pytest.approx(0, abs=1e-9), 0.8)
    with raises_naming(WorkbookError, "2 rows"):
        agreement([None, None], [1, 0])


def test_no_attack_text_breaks_a_request(endpoint):
    """Every attack of the lab arrives as one user message, in its fence, as valid JSON."""
    url, seen = endpoint(lambda text, n: "no")
    judge = Judge(url, "m")
    texts = [a.text for a in attacks() if a.text.isprintable() or "\n" in a.text]
    assert ask(judge, *[ROW | {"completion": text} for text in texts]) == [0.0] * len(texts)
    assert all(len(request["messages"]) == 1 for request in seen)
