"""With real worker processes and the real math-verify."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from conftest import REPO, environment

from grpo_workbook.reward_lab.symbolic import SymbolicChecker, decide

BOMB = "9^{9^{9^{9}}}"


@pytest.fixture(scope="module")
def checker():
    with SymbolicChecker(workers=2, time_limit=5.0) as made:
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
    ("\\boxed{50\\%}", "50"),
    ("\\boxed{\\frac{1}{2}}", "0.5"),
    ("<answer>72 apples</answer>", "72"),
]
WRONG = [
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
]


def test_pairs_are_judged_in_order(checker):
    before = dict(checker.counts)
    outcomes = checker.check(RIGHT + WRONG)
    assert [
        (p, o.verdict, o.reason)
        for p, o in zip(RIGHT, outcomes, strict=False)
        if o.verdict != "right"
    ] == []
    told = zip(WRONG, outcomes[len(RIGHT) :], strict=True)
    assert [(p, o.verdict, o.reason) for p, o in told if o.verdict != "wrong"] == []
    assert checker.counts["right"] - before.get("right", 0) == len(RIGHT)
    assert checker.counts["wrong"] - before.get("wrong", 0) == len(WRONG)
    assert checker.counts["error"] == checker.counts["timeout"] == 0


def test_nothing_is_nothing(checker):
    assert checker.check([]) == []


def test_a_number_as_gold_needs_no_worker():
    with SymbolicChecker() as checker:
        assert [o.verdict for o in checker.check([("72", "72"), ("2+70", "72")])] == [
            "right",
            "wrong",
        ]
        assert checker.pids == []
    assert decide("x", "y") is None


def test_a_bomb_is_killed_and_the_others_are_judged():
    with SymbolicChecker(time_limit=3.0) as checker:
        checker.check([("x", "x")])  # the worker is up
        (pid,) = checker.pids
        started = time.monotonic()
        outcomes = checker.check([("x", "x"), (BOMB, "x^2"), ("x+x", "2x"), ("x", "2x")])
        assert [o.verdict for o in outcomes] == ["right", "timeout", "right", "wrong"]
        assert outcomes[1].reason == "killed after 3 s"
        assert time.monotonic() - started < 60
        assert checker.counts == {"right": 3, "timeout": 1, "wrong": 1}
        assert checker.pids != [pid]
        assert not _alive(pid)


def test_a_gold_that_cannot_be_read_is_an_error_and_not_a_wrong_answer(checker):
    outcome = checker.check([("x", "<answer>x</answer><answer>y</answer>")])[0]
    assert (outcome.verdict, outcome.judged) == ("error", False)
    assert "gold" in outcome.reason


def test_a_killed_worker_comes_back_and_no_job_is_lost_or_judged_twice():
    """While a batch runs, workers are killed from outside, again and again."""
    pairs = [(f"x+{i}+x", f"2x+{i if i % 3 else i + 1}") for i in range(60)]
    with SymbolicChecker(workers=2, time_limit=10.0) as checker:
        checker.check(pairs[:4])
        done = threading.Event()
        killed = []

        def assassin():
            while (
                not done.wait(0.7) and len(killed) < 2
            ):  # with the one below: fewer deaths than tries
                for pid in checker.pids[:1]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        killed.append(pid)

        for pid in checker.pids:  # one dies before it is asked
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
            break
        thread = threading.Thread(target=assassin)
        thread.start()
        outcomes = checker.check(pairs)
        done.set()
        thread.join()
        assert killed
        assert [o.verdict for o in outcomes] == ["right" if i % 3 else "wrong" for i in range(60)]
        assert sum(checker.counts.values()) == 64


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


def test_workers_end_with_the_block_and_with_the_process():
    with SymbolicChecker(workers=2) as checker:
        checker.check([("x", "y")] * 4)
        pids = checker.pids
        assert len(pids) == 2
    assert not any(map(_alive, pids))
    code = "from grpo_workbook.reward_lab.symbolic import SymbolicChecker as S; c = S(); c.check([('x', 'y')]); print(*c.pids)"
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPO,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert not _alive(int(result.stdout))


def test_a_worker_whose_parent_was_killed_ends():
    code = (
        "from grpo_workbook.reward_lab.symbolic import SymbolicChecker; c = SymbolicChecker(); c.check([('x', 'y')]);"
        "print(*c.pids, flush=True); import time; time.sleep(600)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], cwd=REPO, env=environment(), stdout=subprocess.PIPE
    )
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 30
    while _alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _alive(pid)


@pytest.mark.parametrize("bad", [{"workers": 0}, {"time_limit": 0}, {"time_limit": float("nan")}])
def test_bad_limits(bad):
    with pytest.raises(ValueError, match="give at least 1 worker"):
        SymbolicChecker(**bad)


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_words_between_two_terms_and_long_chains_are_several_answers():
    from grpo_workbook.reward_lab.symbolic import decide

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
