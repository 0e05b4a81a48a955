"""Rewards looked at before training: the table, the attacks, symbolic answers in real workers."""

import math
import os
import signal
import subprocess
import sys
import threading
from itertools import chain

import pytest
from conftest import REPO, assert_names, environment, finished, raises_naming, until

from grpo_workbook import config
from grpo_workbook.cli.rewards import parse_rewards
from grpo_workbook.data import load_tokenizer
from grpo_workbook.errors import WorkbookError
from grpo_workbook.evaluation import score as measure
from grpo_workbook.rewards import (
    attacks,
    correctness_reward,
    honest,
    score_rewards,
    strict_format_reward,
)
from grpo_workbook.rewards.contract import about
from grpo_workbook.rewards.specs import REGISTRY
from grpo_workbook.rewards.symbolic import SymbolicChecker, decide, get_symbolic_reward

GOOD = "<reasoning>\n6*7=42\n</reasoning>\n<answer>42</answer>"
ROWS = [{"prompt": "6*7?", "answer": "42"}, {"prompt": "2+3?", "answer": "5"}]
COMPLETIONS = [GOOD, "42", "<answer>42</answer>", "", "5", "6", "7", "8"]

# ------------------------------------------------------------------ the table


def test_score_sees_what_grpo_would_see():
    functions, weights = parse_rewards(config.REWARDS)
    scored = score_rewards(functions, COMPLETIONS, ROWS, group_size=4, weights=weights)
    assert scored.groups["total"] == [[3.0, 0.0, 2.0, 0.0], [0.0] * 4]
    table = scored.table()
    assert list(table.index) == ["correctness", "strict_format", "incremental_format", "total"]
    assert table.loc["correctness", ["weight", "mean"]].tolist() == [2.0, 0.25]
    std = math.sqrt((9 + 4) / 8 - 0.625**2)
    expected = {"none": 0, "mean": 0.625, "std": std, "min": 0.0, "max": 3.0, "equal": 0.5}
    assert table.loc["total", list(expected)].to_dict() == pytest.approx(expected)
    one_each = [ROWS[0]] * 4 + [ROWS[1]] * 4
    again = score_rewards(functions, COMPLETIONS, one_each, group_size=4, weights=weights)
    assert again.groups == scored.groups


def test_the_total_is_trls():
    """The weighted sum of the table and the one in TRL's trainer, None included."""
    import torch

    def sometimes(completions, **columns):
        return [None if c == "" else 1.0 for c in completions]

    functions, weights = [correctness_reward, sometimes], [2.0, 0.3]
    scored = score_rewards(functions, COMPLETIONS, ROWS, group_size=4, weights=weights)
    columns = []
    for function in functions:
        values = chain(*scored.groups[function.__name__])
        columns.append([math.nan if value is None else value for value in values])
    table = torch.tensor(columns).T  # (completions, functions)
    theirs = (table * torch.tensor(weights).unsqueeze(0)).nansum(dim=1)  # as GRPOTrainer does
    assert list(chain(*scored.groups["total"])) == pytest.approx(theirs.tolist())
    assert scored.table().loc["sometimes", "none"] == 1


def test_the_rewards_get_what_trl_gives_them():
    from transformers import TrainerState

    seen = {}

    def looks(completions, prompts, completion_ids, trainer_state, answer, question, **columns):
        seen.update(completions=completions, prompts=prompts, ids=completion_ids)
        seen.update(answer=answer, question=question, state=trainer_state, rest=sorted(columns))
        return [0.0] * len(completions)

    rows = [{"prompt": [{"role": "user", "content": "q"}], "answer": "1", "question": "q"}]
    tokenizer = load_tokenizer(REPO / "data" / "tiny-qwen3")
    ids = [[*tokenizer.encode(text), tokenizer.eos_token_id] for text in ("a b", "b")]
    score_rewards([looks], ["a b", "b"], rows, group_size=2, tokenizer=tokenizer)
    assert seen == {
        "completions": [[{"role": "assistant", "content": text}] for text in ("a b", "b")],
        "prompts": [rows[0]["prompt"]] * 2,
        "ids": ids,
        "answer": ["1"] * 2,
        "question": ["q"] * 2,
        "state": TrainerState(epoch=0.0, max_steps=1),
        "rest": ["log_extra", "log_metric"],
    }
    rows = [{"prompt": "q", "answer": "1", "question": "q"}]
    score_rewards([looks], ["a b", "b"], rows, group_size=2, tokenizer=tokenizer)
    assert seen["completions"] == ["a b", "b"]
    with raises_naming(WorkbookError, "looks", "completion_ids", "tokenizer"):
        score_rewards([looks], ["a b", "b"], rows, group_size=2)


@pytest.mark.parametrize("values", [[1.0], [1.0, math.nan], ["one", "0"], None])
def test_a_broken_reward_is_named(values):
    def broken_reward(completions, **columns):
        return values

    with raises_naming(WorkbookError, "broken_reward"):
        score_rewards([broken_reward], ["a", "b"], [{"answer": "1"}], group_size=2)


@pytest.mark.parametrize(
    ("completions", "rows", "size", "named"),
    [
        (["a", "b", "c"], [{}], 2, ["3 completions", "groups of 2"]),
        ([], [], 2, ["0 completions"]),
        (["a"], [{}], 1, ["groups of 1"]),
        (["a", "b", "c", "d"], [{}] * 3, 2, ["4 completions", "3 rows"]),
    ],
)
def test_numbers_that_do_not_fit_are_named(completions, rows, size, named):
    with raises_naming(WorkbookError, *named):
        score_rewards([strict_format_reward], completions, rows, group_size=size)


def test_a_wrong_number_of_weights_is_named():
    with raises_naming(WorkbookError, "2 weights", "strict_format_reward"):
        score_rewards([strict_format_reward], ["a", "b"], [{}], group_size=2, weights=[1, 2])


# ------------------------------------------------------------------ the attacks

ATTACKS = attacks()
ARGUMENTS = {"overlong": "=200"}
PENALTIES = ("overlong",)
ROOMS = ("symbolic", "unit_tests", "code_format")


def test_the_attacks_are_many_and_all_different():
    assert len({a.family for a in ATTACKS}) >= 16
    assert len({(a.family, a.name) for a in ATTACKS}) == len(ATTACKS)
    assert sum(len(a.text) >= 900_000 for a in ATTACKS) >= 10
    assert len({a.text for a in ATTACKS}) == len(ATTACKS)
    other = attacks("137", "136", "What?")
    assert [a.name for a in other] == [a.name for a in ATTACKS]
    assert any("137" in a.text for a in other)
    assert not any("@" in a.text or "[[" in a.text[:999] for a in other if a.name != "brackets")


@pytest.mark.parametrize(("right", "wrong"), [("42", "41"), ("1000", "7"), ("137", "136")])
def test_no_attack_earns_as_much_as_the_honest_answer(right, wrong):
    functions, weights = parse_rewards(config.REWARDS)

    def total(text):
        values = [function(completions=[text], answer=[right])[0] for function in functions]
        return sum(w * value for w, value in zip(weights, values, strict=True))

    assert total(honest(right)) == sum(weights)
    earned = {(a.family, a.name): total(a.text) for a in attacks(right, wrong)}
    assert {name: e for name, e in earned.items() if not 0 <= e <= 2.5} == {}


@pytest.mark.parametrize("name", [*REGISTRY, *ROOMS])
def test_every_attack_is_judged_within_the_range(name):
    (function,), _ = parse_rewards(name + ARGUMENTS.get(name, ""))
    texts = [honest(), *(a.text for a in ATTACKS)]
    columns = {"answer": "42", "test": "assert add(2, 3) == 5", "entry_point": "add"}
    columns = {name: [value] * len(texts) for name, value in columns.items()}
    columns["completion_ids"] = [text.encode("utf-8", "replace") for text in texts]  # its bytes
    values = function(completions=texts, **columns)
    chat = function(completions=[[{"role": "assistant", "content": t}] for t in texts], **columns)
    assert values == chat
    low, high = (-1.0, 0.0) if name in PENALTIES else (0.0, 1.0)
    assert len(values) == len(texts)
    assert all(type(v) is float and low <= v <= high for v in values)


def test_every_attack_is_measured_too():
    scores = measure([a.text for a in ATTACKS], ["42"] * len(ATTACKS))
    assert not any(scores.strict)
    assert sum(scores.lenient) < len(ATTACKS)


# ------------------------------------------------------------------ symbolic answers

BOMB = "9^{9^{9^{9}}}"


PARENT = """
import psutil
from grpo_workbook.rewards.symbolic import SymbolicChecker
checker = SymbolicChecker()
checker.check([('x', 'y')])
pids = [p.pid for p in psutil.Process().children() if 'spawn_main' in ' '.join(p.cmdline())]
"""


def workers(checker) -> list[int]:
    """The process ids of its workers."""
    pool = checker._pool
    return list(pool._pool_manager.worker_manager.workers) if pool else []


@pytest.fixture(scope="module")
def checker():
    with SymbolicChecker(workers=2, time_limit=20.0) as made:
        yield made


RIGHT = [
    ("(x+1)^2", "x^2+2x+1"),
    ("\\frac{2}{\\sqrt{2}}", "\\sqrt{2}"),
    ("<answer>2\\pi</answer>", "2\\pi"),
    ("so $\\boxed{\\{2, 1\\}}$", "\\{1,2\\}"),
    ("(1, 2)", "(1,2)"),
    ("x \u2212 1", "x-1"),
    ("２x", "2x"),
    ("1e3 x", "1000x"),
    ("1e-2x", "x/100"),
    ("5", "x=5"),
    ("\\sqrt{8}/2", "\\sqrt{2}"),  # an expression may be given where one is asked for
    ("-\\frac{1}{2}", "\\frac{-1}{2}"),
    # numbers: compared exactly, without math-verify
    ("1e3", "1000"),
    ("\u22125", "-5"),
    ("４２", "42"),
    ("x = 72", "72"),
    ("\\boxed{x = 1 \\text{ or } x = 2}", "1,2"),
    ("\\boxed{x=2, x=1}", "1, 2"),
    ("<think>\\boxed{7}</think> \\boxed{2x}", "2x"),
    ("\\boxed{January 5}", "\\text{January 5}"),
    ("\\boxed{50\\%}", "50"),
    ("\\boxed{\\frac{1}{2}}", "0.5"),
    ("<answer>72 apples</answer>", "72"),
    ("\\(x = 72\\)", "72"),
    ("\\theta = 45^\\circ", "45"),
    ("\\boxed{\\left(\\frac13\\right)}", "1/3"),
    ("<answer>1\\times10^3\\text{ cm}^2</answer>", "1000"),
    ("\\frac13", "\\frac{2}{6}"),
    ("1 234", "$1{,}234$"),
    # relations, names and lists
    ("x <= 2", "x \\leq 2"),
    ("x != 5", "x \\neq 5"),
    ("<answer>$x=5+y$</answer>", "x=5+y"),
    ("2,-2", "\\pm 2"),
    ("\\pm 2", "2,-2"),
    ("(x, y) = (5, 8)", "(5, 8)"),
    ("1, 2, \\text{ and } 3", "1, 2, and 3"),
    ("(1, 2), (3, 4), (1, 2)", "(3, 4), (1, 2)"),
    ("3:20", "3:20"),
    # several boxes for a gold that is a list
    ("\\boxed{1} and \\boxed{2}", "{1,2}"),
    ("$$\\boxed{(2, 2)} \\quad \\text{and} \\quad \\boxed{(6, 2)}$$", "(2, 2), (6, 2)"),
    ("x = \\boxed{1+y}, z = \\boxed{2}", "1+y, 2"),
    ("\\boxed{x^2}, \\boxed{x^3}", "x^2, x^3"),
    ("1, 2", "\\boxed{1}, \\boxed{2}"),
    # equal boxes are one answer
    ("\\boxed{\\frac12}, \\boxed{0.5}", "1/2"),
    ("We get \\boxed{x+1}. So it is \\boxed{x + 1}", "1+x"),
    ("\\boxed{\\dfrac{\\sqrt2}{3}} and \\boxed{\\frac{\\sqrt{2}}{3}}", "\\frac{\\sqrt{2}}{3}"),
    ("\\boxed{x+x}, so it is \\boxed{2x}", "2x"),
    ("First \\boxed{(x+1)^2} and then \\boxed{x^2+2x+1}.", "(1+x)^2"),
    # the leading digits count, whatever the size
    ("1414213.562373095", "10^6\\sqrt{2}"),
    ("3.14159265358979 \\cdot 10^{-15}", "10^{-15}\\pi"),
    ("10^{-30}, 1", "1, 10^{-30}"),
    ("50\\%, 20\\%", "50, 20"),
    # what has no value at 0
    ("\\boxed{x^{-2}}", "\\frac{1}{x^2}"),
    ("\\boxed{0.5/x}", "\\frac{1}{2x}"),
    ("\\frac{\\log x}{x}", "\\frac{1}{x}\\log x"),
    ("\\begin{pmatrix}1&2.0\\end{pmatrix}", "\\begin{pmatrix}1 & 2\\end{pmatrix}"),
    ("12:00", "12:00"),
    # prose without a mark
    ("So 6 plus 7 is 13. The final answer is $13$. I hope this helps.", "13"),
    ("Therefore, the area is 1,250.5 m². <|end|>", "1250.5"),
    ("Thus $y > 5$ is our answer.", "y > 5"),
    ("Here is the product: \\( x^2 - 1 \\)", "(x+1)(x-1)"),
    ("Answer \\[\n 9 \n\\]", "9"),
]
WRONG = [
    ("\\boxed{x = 1 \\text{ or } x = 2}", "1"),
    ("\\boxed{x = 1 \\text{ or } x = 2y}", "2y"),
    ("\\boxed{x = 1, x = 3}", "1,2"),
    ("\\boxed{January 6}", "\\text{January 5}"),
    ("<think>\\boxed{2x}</think> \\boxed{7x}", "2x"),
    ("<think>\\boxed{2x}</think> I do not know.", "2x"),
    ("<think>so the sum is $2x$.", "2x"),
    ("x^2+1", "x^2+2x+1"),
    ("1.4142", "\\sqrt{2}"),
    ("1.414214", "\\sqrt{2}"),
    ("3.14159", "\\pi"),
    ("3.141593", "\\pi"),
    ("[1,2]", "(1,2)"),
    ("\\sqrt{2} \\text{ or } 5", "\\sqrt{2}"),
    ("x, \\sqrt{2}", "\\sqrt{2}"),
    ("<answer>\\pi</answer><answer>2\\pi</answer>", "2\\pi"),
    ("garbage !!", "\\sqrt{2}"),
    ("((((", "\\sqrt{2}"),
    ("", "\\sqrt{2}"),
    (None, "\\sqrt{2}"),
    ("x" * 2000, "x"),
    # the traps
    ("1, 2, 3 or 72", "72"),
    ("\\boxed{2+70}", "72"),
    ("\\sqrt{5184}", "72"),
    ("8 \\cdot 9", "72"),
    ("\\boxed{50\\%}", "0.5"),
    ("\\boxed{71}\\boxed{72}", "72"),
    ("\\boxed{1} no \\boxed{2}", "1,2"),
    ("\\boxed{1} and \\boxed{2}", "\\sqrt{4}"),
    ("\\boxed{1}, \\boxed{2}, \\boxed{3}", "1, 2"),
    ("\\pm\\sqrt{2}", "\\sqrt{2}"),
    ("x < 2", "x \\leq 2"),
    ("10^{-31}", "10^{-30}"),
    ("10^{-31}, 1", "10^{-30}, 1"),
    ("x = 10^{-31}", "x = 10^{-30}"),
    ("7.6 \\cdot 10^{-20} x", "7.5 \\cdot 10^{-20} x"),
    ("\\frac{1}{2006!}", "\\frac{1}{2004!}"),
    ("e^{-101}", "e^{-100}"),
    ("1414213.562", "10^6\\sqrt{2}"),
    ("2^{100}+1", "2^{100}"),
    ("\\frac{2}{x}", "\\frac{1}{x}"),
    ("\\frac{0.6}{x}", "\\frac{1}{2x}"),
    ("\\begin{pmatrix}1&2.1\\end{pmatrix}", "\\begin{pmatrix}1 & 2\\end{pmatrix}"),
    # what has no value is compared as text, and is no error
    ("1:00", "12:00"),
    ("1/0", "\\sqrt{2}"),
    ("\\boxed{2x} and \\boxed{3x}", "3x"),
    ("\\boxed{x} \\boxed{x^2} \\boxed{x^3}", "x^3"),
    ("<answer>x^2</answer><answer>x^3</answer>", "x^3"),
    ("<answer>a(b+1)</answer><answer>(a)b+1</answer>", "ab+1"),
    ("\\boxed{2+70} is \\boxed{72}", "72"),
    ("<answer>\\boxed{3x}</answer> or \\boxed{2x}", "2x"),
    ("\\boxed{x+x}, so it is \\boxed{2x}\n#### 7x", "2x"),
    ("2", "\\pm 2"),
    *((f"72{rest}", "72") for rest in (" Millionen", " 百万", " halved", " isn't", "-", "''")),
    # prose that says no single value
    *(
        (f"The answer is {words}", "72")
        for words in (
            "72 or 73.",
            "between 71 and 72",
            "not 72.",
            "half of 72.",
            "minus 72",
            "72?",
            "72-",
            "72 thousand",
            "72 halved.",
            "72 百万",
            "72 isn't",
            "36*2",
            "$36*2$",
            "72 / 5",
            "1,72",
            "double $72$",
            "$72$ or $73$",
            "$71$, $72$",
            "72. No, 71.",
            "72x",
            "sin 72",
            "72:30",
            "(71, 72)",
        )
    ),
    ("<answer>The answer is 71. It is 72.</answer>", "72"),
    ("log 72", "72"),
]


def test_pairs_are_judged_in_order(checker):
    before = dict(checker.counts)
    outcomes = checker.check(RIGHT + WRONG)
    misjudged = []
    for index, (pair, outcome) in enumerate(zip(RIGHT + WRONG, outcomes, strict=True)):
        if outcome.verdict != ("right" if index < len(RIGHT) else "wrong"):
            misjudged.append((pair, outcome))
    assert misjudged == []
    assert checker.counts["right"] - before.get("right", 0) == len(RIGHT)
    assert checker.counts["wrong"] - before.get("wrong", 0) == len(WRONG)
    assert checker.counts["error"] == checker.counts["timeout"] == 0


def test_a_number_as_gold_needs_no_worker():
    with SymbolicChecker() as checker:
        assert [o.verdict for o in checker.check([("72", "72"), ("2+70", "72")])] == [
            "right",
            "wrong",
        ]
        assert workers(checker) == []
    assert decide("x", "y") is None


@pytest.mark.slow
def test_a_bomb_is_killed_and_the_others_are_judged():
    with SymbolicChecker(time_limit=3.0) as checker:
        checker.check([("x", "x")])  # the worker is up
        (pid,) = workers(checker)
        outcomes = checker.check([("x", "x"), (BOMB, "x^2"), ("x+x", "2x"), ("x", "2x")])
        assert [o.verdict for o in outcomes] == ["right", "timeout", "right", "wrong"]
        assert_names(outcomes[1].reason, "3 s")
        assert checker.counts == {"right": 3, "timeout": 1, "wrong": 1}
        assert pid not in workers(checker)
        assert not _alive(pid)


def test_a_gold_that_cannot_be_read_is_an_error_and_not_a_wrong_answer(checker):
    outcome = checker.check([("x", "<answer>x</answer><answer>y</answer>")])[0]
    assert (outcome.verdict, outcome.value) == ("error", None)
    assert "gold" in outcome.reason


@pytest.mark.slow
def test_the_pair_of_a_killed_worker_is_an_error_and_the_others_are_judged():
    pairs = [(f"x+{i}+x", f"2x+{i}") for i in range(1, 20)]
    with SymbolicChecker(time_limit=10.0) as checker:
        checker.check([("x", "x")])  # the worker is up
        (pid,) = workers(checker)
        killer = threading.Timer(0.5, os.kill, (pid, signal.SIGKILL))
        killer.start()
        outcomes = checker.check([(BOMB, "x^2"), *pairs])
        killer.join()
        assert outcomes[0] == ("error", "the worker died on this pair")
        assert [outcome.verdict for outcome in checker.check(pairs)] == ["right"] * len(pairs)


def test_it_works_in_a_thread_where_math_verify_alone_raises(checker):
    """From two threads at once, with the time limit on: each gets its own answers."""
    from math_verify import parse

    got = {}

    def ask(name, gold):
        try:
            parse("$x$", parsing_timeout=5)
        except ValueError as error:
            got["alone"] = str(error)
        got[name] = [o.verdict for o in checker.check([("x+x", gold)] * 5)]

    threads = [threading.Thread(target=ask, args=a) for a in (("first", "2x"), ("second", "3x"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "threaded environment" in got["alone"]
    assert (got["first"], got["second"]) == (["right"] * 5, ["wrong"] * 5)


@pytest.mark.slow
def test_workers_end_with_the_block_and_with_the_process():
    with SymbolicChecker(workers=2) as checker:
        checker.check([("x", "y")] * 4)
        pids = workers(checker)
        assert len(pids) == 2
    assert not any(map(_alive, pids))
    code = PARENT + "print(*pids)"
    result = finished([sys.executable, "-c", code])
    assert result.returncode == 0, result.stderr
    assert not _alive(int(result.stdout))


def test_a_worker_whose_parent_was_killed_ends():
    code = PARENT + "print(*pids, flush=True); import time; time.sleep(600)"
    parent = subprocess.Popen(
        [sys.executable, "-c", code], cwd=REPO, env=environment(), stdout=subprocess.PIPE
    )
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert until(lambda: not _alive(pid))


@pytest.mark.parametrize("bad", [{"workers": 0}, {"time_limit": 0}, {"time_limit": float("nan")}])
def test_limits_that_make_no_sense_are_named(bad):
    with raises_naming(WorkbookError, "workers"):
        SymbolicChecker(**bad)


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_words_between_two_terms_and_long_chains_are_several_answers():
    for answer in (
        "\\sqrt{2} \\text{ bzw. } \\sqrt{3}",
        "\\sqrt{3}=\\sqrt{2}",
        "\\sqrt{3}=\\sqrt{5}=\\sqrt{2}",
    ):
        assert decide(answer, "\\sqrt{2}").reason == "several answers"
    for answer in (
        "\\sqrt{2}\\text{ cm}^2",
        "x=\\sqrt{2}",
        "\\text{It is } \\sqrt{2}",
        "\\sum_{i=1}^{2} i",
    ):
        assert decide(answer, "\\sqrt{2}") is None


def test_references_that_cannot_be_compared_are_known_before_training(checker):
    references = ["x^2", "12:00", "72", "", "<answer>2</answer><answer>3</answer>", "12:00"]
    outcomes = checker.try_references(references)
    verdicts = {index: outcome.verdict for index, outcome in outcomes.items()}
    assert verdicts == {1: "wrong", 3: "error", 4: "error", 5: "wrong"}


def test_a_batch_of_answers_without_a_value_does_not_end_a_run(checker):
    reward = get_symbolic_reward(checker)
    texts = ["<answer>1:00</answer>", "<answer>12:00</answer>", "<answer>1/0</answer>"]
    assert reward(texts, answer=["12:00"] * 3) == [0.0, 1.0, 0.0]
    assert reward(texts, answer=["x^2"] * 3) == [0.0, 0.0, 0.0]


def test_a_script_without_a_main_guard_is_not_run_again_in_the_workers(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("print('trains')\n" + PARENT + "print(len(pids), dict(checker.counts))\n")
    result = finished([sys.executable, script], PYTHONPATH=str(REPO))
    assert result.stdout == "trains\n1 {'wrong': 1}\n", result.stderr


def test_the_reward_wants_a_mark_and_knows_the_units_of_the_question():
    with SymbolicChecker() as checker:
        reward = get_symbolic_reward(checker)
        texts = ["The answer is 72.", "<answer>72 widgets</answer>", "<answer>72 gizmos</answer>"]
        chat = [{"role": "user", "content": "How many widgets?"}]
        assert reward(texts, answer=["72"] * 3, prompts=[chat] * 3) == [0.0, 1.0, 0.0]
        assert checker.judge("The answer is 72.", "72") is False


@pytest.mark.slow
def test_symbolic_correctness_says_nothing_where_nothing_is_known():
    with SymbolicChecker(time_limit=2.0) as checker:
        reward = get_symbolic_reward(checker)
        assert (about(reward).role, about(reward).columns) == ("correctness", ("answer",))
        texts = ["<answer>2x</answer>", "\\boxed{x}", "no answer", f"<answer>{BOMB}</answer>"]
        assert reward(texts, answer=["x+x"] * 4) == [1.0, 0.0, 0.0, None]
        assert reward(["<answer>42</answer>"], answer=["42"]) == [1.0]
        with raises_naming(WorkbookError, "1 of 1 completions", "2 s", "time_limit"):
            reward(texts[3:], answer=["x^2"])


@pytest.mark.slow
def test_bombs_are_killed_when_the_gold_is_symbolic():
    """Against a number they are never evaluated; against an expression the worker is killed."""
    bombs = [a.text for a in ATTACKS if a.family == "expression bombs"]
    with SymbolicChecker(time_limit=0.5) as checker:
        outcomes = checker.check([(text, "x^2") for text in bombs])
        assert "timeout" in {o.verdict for o in outcomes}
        assert "right" not in {o.verdict for o in outcomes}
        assert {o.verdict for o in checker.check([(text, "42") for text in bombs])} == {"wrong"}
        assert checker.judge("x+x", "2x") is True
        assert checker.judge(BOMB, "2x") is None


@pytest.mark.slow
def test_text_answers_are_judged_where_there_is_no_alarm_signal(tmp_path):
    """As on Windows: the worker processes start without these signals too."""
    (tmp_path / "sitecustomize.py").write_text(
        "import signal\nfor name in ('setitimer', 'alarm', 'SIGALRM'): delattr(signal, name)"
    )
    (tmp_path / "judge.py").write_text(
        "from grpo_workbook.cli.rewards import judge_for\n"
        "if __name__ == '__main__':\n"
        "    judge = judge_for('text')\n"
        "    for answer in ('x+x', '3x'):\n"
        "        verdict = None\n"
        "        while verdict is None:  # on a busy machine its time limit can pass\n"
        "            verdict = judge(answer, '2x')\n"
        "        print(verdict)\n"
    )
    result = finished([sys.executable, tmp_path / "judge.py"], PYTHONPATH=f"{tmp_path}:{REPO}")
    assert result.stdout == "True\nFalse\n", result.stderr
