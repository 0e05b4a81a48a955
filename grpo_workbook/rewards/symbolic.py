"""Symbolic answers, compared with math-verify in processes of their own.

math-verify has a time limit that works by a signal, in the main thread only: elsewhere it raises
ValueError, and code that swallowed the error has zeroed the rewards of whole runs. 9^{9^{9^{9}}}
takes it seconds, and "1, 2, 3 or 72" and \\boxed{2+70} both pass against 72. So `decide` compares a
reference that is a number exactly, as `is_correct` does, and calls a prediction wrong that offers
several answers ("or", or a list if the reference is none). All other pairs go to a worker process.
A late one is killed: "timeout". If one dies, its pair is an "error". `try_references` finds the
references that cannot be compared before training.

Not covered: tasks to rewrite an expression, because the question's own form equals the answer.
"""

import contextlib
import logging
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, NamedTuple
from unittest import mock

from pebble import ProcessExpired, ProcessFuture, ProcessPool

from grpo_workbook import compat
from grpo_workbook.errors import WorkbookError
from grpo_workbook.rewards.answers import MAX_ANSWER, TO_ASCII, read_answer
from grpo_workbook.rewards.contract import (
    Completion,
    RewardFunction,
    makes_reward,
    reward,
    text_of,
)
from grpo_workbook.rewards.statements import (
    MARK,
    NAME,
    boxed_values,
    count_alternatives,
    final_answer,
    stated_answer,
)

__all__ = ["Outcome", "SymbolicChecker", "decide", "get_symbolic_reward"]

START = 120.0  # seconds for a worker to import math-verify; about 1 on an idle machine
DIGITS = 12  # that must agree; with math-verify's 6 decimals, 1.414214 is the root of 2
AS_TEXT = "compared as text: it has no value as mathematics, where 12:00 is 12 / 0"
MAX_BOXES = 4  # of one prediction that are compared one by one
MEMORY = 2 << 30  # bytes of address space of a worker: stops a bomb before the machine is full
# In forms that math-verify knows: also no ×, ÷, · and $
_SIGNS = {**TO_ASCII, 0xD7: "*", 0xF7: "/", 0xB7: "*", 0x24: " "}
_SCIENTIFIC = re.compile(r"(?<![\w.])(\d{1,30}(?:\.\d{1,30})?)[eE]\+?(-?)0*(\d{1,3})(?![\d.])")
_WORDS = re.compile(r"\\(?:text(?:bf)?|mathrm|mbox)\{([^{}]*)\}")
_SPAWNING = threading.Lock()


class Outcome(NamedTuple):
    """The outcome for one pair: "right" or "wrong", or without a verdict "timeout" or "error"."""

    verdict: str
    reason: str

    @property
    def value(self) -> float | None:
        """The reward for this outcome: 1.0, 0.0, or None without a verdict."""
        return {"right": 1.0, "wrong": 0.0}.get(self.verdict)


class SymbolicChecker:
    """Compares predictions with references, each within `time_limit` seconds.

        with SymbolicChecker() as checker:
            checker.check([("(x+1)^2", "x^2+2x+1")])

    It works in any thread and beside torch: its `workers` are new processes, not forks, and end
    with the `with` block or this process. `counts` holds the verdicts so far.
    """

    def __init__(self, workers: int = 1, time_limit: float = 2.0):
        if workers < 1 or not 0 < time_limit < 3600:
            raise WorkbookError(f"{workers} workers, {time_limit} s: give at least 1, below 1 h")
        self.workers = workers
        self.time_limit = time_limit
        self.counts: Counter[str] = Counter()
        self._pool: ProcessPool | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> "SymbolicChecker":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers; the next check starts new ones."""
        pool = self._pool
        self._pool = None
        if pool is not None:
            pool.stop()
            pool.join()

    def check(self, pairs: Sequence[tuple]) -> list[Outcome]:
        """One Outcome per (prediction, reference) or (prediction, reference, question), in order.

        A prediction may be a completion, or None; without a mark its last statement ("so the sum
        is $2x$.") is the answer. Words of the question may be units.
        """
        outcomes = self._compare(pairs)
        for index, (prediction, *others) in enumerate(pairs):
            values = boxed_values(prediction)
            # Boxes that differ as text may be equal all the same: then each of them is right.
            if outcomes[index].verdict == "wrong" and 1 < len(values) <= MAX_BOXES:
                each = self._compare([(f"\\boxed{{{value}}}", *others) for value in values])
                if all(outcome.verdict == "right" for outcome in each):
                    outcomes[index] = Outcome("right", "each of its boxes is right")
        self.counts.update(outcome.verdict for outcome in outcomes)
        return outcomes

    def _compare(self, pairs: Sequence[tuple]) -> list[Outcome]:
        """`check` with one answer for each prediction; boxes that differ as text count as none."""
        # all are submitted before the first is waited for, so that the workers run side by side
        pending = []
        for pair in pairs:
            outcome = decide(*pair)
            if outcome is None:  # it needs algebra
                outcome = self._submit(pair)
            pending.append(outcome)
        outcomes = []
        for result in pending:
            outcomes.append(result if isinstance(result, Outcome) else self._wait_for(result))
        return outcomes

    def try_references(self, references: Sequence[str]) -> dict[int, Outcome]:
        """The references that no answer can be compared with, except as text: {index: Outcome}.

        Their verdict is "error" or "timeout", or "wrong" for one that is compared as text.
        """
        # Each text once: a data set has the same answers again and again. As in `check`, all are
        # submitted before the first is waited for.
        pending = {}
        for reference in dict.fromkeys(references):
            outcome = decide("<answer>0</answer>", reference)
            if outcome is None or outcome.reason == "several answers":
                outcome = self._schedule(try_reference, [final_answer(reference)])
            pending[reference] = outcome
        outcomes = {}
        for reference, result in pending.items():
            outcomes[reference] = result if isinstance(result, Outcome) else self._wait_for(result)
        bad = {}
        for index, reference in enumerate(references):
            outcome = outcomes[reference]
            if outcome.value is None or outcome.reason == AS_TEXT:
                bad[index] = outcome
        return bad

    def judge(self, answer: str, reference: str) -> bool | None:
        """Whether an answer equals the reference; None without a verdict (for `score`)."""
        outcome = self.check([(f"<answer>{answer}</answer>", reference)])[0]
        return {"right": True, "wrong": False}.get(outcome.verdict)

    def _submit(self, pair: tuple) -> ProcessFuture:
        """Give a pair to a worker."""
        answer = stated_answer(pair[0]) or ""
        reference = final_answer(pair[1]) or ""
        return self._schedule(compare_as_mathematics, [answer, reference])

    def _schedule(self, work: Callable, texts: list[str | None]) -> ProcessFuture:
        """Let a worker call `work` with these texts, in a new pool if there is none."""
        with self._lock:
            if self._pool is None or not self._pool.active:  # an idle worker was killed
                self.close()
                context: Any = SpawnContext()
                context.Process = _ProcessWithoutMain
                self._pool = ProcessPool(self.workers, initializer=_prepare_worker, context=context)
            return self._pool.schedule(work, texts, timeout=self.time_limit)

    def _wait_for(self, future: ProcessFuture) -> Outcome:
        """The outcome of a submitted pair."""
        try:
            verdict, reason = future.result(START + self.time_limit)
        except TimeoutError:
            if not future.done():
                raise RuntimeError("no math-verify worker started") from None
            return Outcome("timeout", f"killed after {self.time_limit:g} s")
        except (ProcessExpired, BrokenProcessPool):
            return Outcome("error", "the worker died on this pair")
        return Outcome(verdict, reason)


@makes_reward
def get_symbolic_reward(checker: SymbolicChecker | None = None) -> RewardFunction:
    """Make a reward: 1.0 if the marked answer equals the column `answer` mathematically, else 0.0.

    A completion gets None if its row has no reference, or if the checker finds no verdict. Raises
    WorkbookError, when it is called, if more than half of a batch has no verdict. A checker of your
    own may have more workers or another time limit.
    """
    judge = checker or SymbolicChecker()

    @reward(role="correctness", columns=("answer",), answers="text")
    def symbolic_correctness_reward(
        completions: Sequence[Completion],
        answer: Sequence[str | None],
        prompts: Sequence[Any] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        prompts = prompts or [""] * len(completions)
        pairs = []
        for completion, reference, prompt in zip(completions, answer, prompts, strict=True):
            if reference is not None:
                text = text_of(completion)
                pairs.append((text if MARK.search(text) else None, reference, prompt))
        outcomes = judge.check(pairs)
        _require_verdicts(outcomes)
        remaining = iter(outcomes)  # one for each row with a reference
        rewards = []
        for reference in answer:
            rewards.append(None if reference is None else next(remaining).value)
        return rewards

    return symbolic_correctness_reward


def _require_verdicts(outcomes: list[Outcome]) -> None:
    """Raise WorkbookError if more than half of the outcomes are no verdict."""
    failures = [outcome for outcome in outcomes if outcome.value is None]
    if len(failures) > len(outcomes) / 2:
        raise WorkbookError(
            f"{len(failures)} of {len(outcomes)} completions could not be judged "
            f"({failures[0].reason}): fix the reference answers, or give a checker with a longer "
            "time_limit"
        )


def decide(prediction: str | None, reference: str, question: object = "") -> Outcome | None:
    """The outcome of a pair if no algebra is needed, else None: it goes to math-verify."""
    answer = stated_answer(prediction)
    gold = final_answer(reference)
    if not answer or len(answer) > MAX_ANSWER:
        return Outcome("wrong", "no answer, several different answers, or a very long one")
    if gold is None or len(gold) > MAX_ANSWER:
        return Outcome("error", f"the gold answer cannot be read: {reference[:80]!r}")
    number = read_answer(gold, question=gold)
    if number is not None:
        words = f"{question} {gold}"
        value = read_answer(answer, question=words)
        if value is None:  # "x = 5"
            value = read_answer(NAME.sub("", answer.strip(" $"), count=1), question=words)
        return Outcome("right" if value == number else "wrong", "compared as numbers")
    gold_values = re.sub(r"^[$\s]*\{(.*)\}[$\s]*$", r"\1", gold)  # {1, 2} is LaTeX's group
    if count_alternatives(answer) > count_alternatives(gold_values):
        return Outcome("wrong", "several answers")
    return None


class _ProcessWithoutMain(SpawnProcess):
    """A new process that does not run the user's script again, which might train."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        # Python looks into __main__ for what the child has to run first.
        with _SPAWNING, mock.patch.multiple("__main__", create=True, __spec__=None, __file__=None):
            return SpawnProcess._Popen(process_obj)


def _prepare_worker() -> None:
    """Runs first in each worker: imports math-verify, and limits the memory."""
    logging.disable(logging.CRITICAL)  # math-verify warns that its own time limit is off
    # This imports, and fills sympy's caches outside of any time limit.
    compare_as_mathematics("x+x", "2x")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # pebble's handler would wait for a bomb's end
    with contextlib.suppress(ImportError, ValueError, OSError):  # not on every system
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def compare_as_mathematics(answer: str, reference: str) -> tuple[str, str]:
    """The verdict of math-verify and its reason, as in `Outcome`; this runs in a worker."""
    try:
        return _verdict(_in_latex(answer), _in_latex(reference))
    except Exception as error:
        return "error", f"{type(error).__name__}: {str(error)[:200]}"


def try_reference(reference: str) -> tuple[str, str]:
    """The verdict on a reference that answers are to be compared with; this runs in a worker."""
    try:
        gold = _parse(_in_latex(reference))
    except Exception as error:
        return "error", f"{type(error).__name__}: {str(error)[:200]}"
    if not gold:
        return "error", "the gold answer cannot be read"
    if not _has_value(gold):
        return "wrong", AS_TEXT
    return "right", "it can be read"


def _verdict(answer: str, reference: str) -> tuple[str, str]:
    """The verdict of math-verify on two texts, and its reason."""
    from math_verify import verify

    if answer == reference or _WORDS.sub(r"\1", answer) == _WORDS.sub(r"\1", reference):
        return "right", "identical"
    gold = _parse(reference)
    if not gold:
        return "error", "the gold answer cannot be read"
    if not _has_value(gold):
        return "wrong", AS_TEXT
    prediction = _parse(answer)
    if not _has_value(prediction):  # math-verify raises ValueError for it
        return "wrong", "the answer has no value, as 1/0"
    with compat.relative_precision(DIGITS):
        # math-verify expects the gold answer first
        equal = verify(gold, prediction, DIGITS, timeout_seconds=None, raise_on_error=True)
    if equal:
        return "right", "equal"
    return "wrong", "not equal" if prediction else "unreadable"


def _has_value(expressions: list) -> bool:
    """Whether none of the expressions that `_parse` has found divides by zero."""
    from math_verify.grader import Basic, nan, safe_sympy_doit, zoo

    for expression in expressions:
        if not isinstance(expression, Basic):  # the text itself
            continue
        # As it is written (1/0), and after its evaluation (\tan(\pi/2)).
        if expression.has(nan, zoo) or safe_sympy_doit(expression).has(nan, zoo):
            return False
    return True


def _in_latex(text: str) -> str:
    """A text in forms that math-verify knows: no full-width forms, unicode minus, 1e3 or $."""
    return _SCIENTIFIC.sub(r"\1 \\cdot 10^{\2\3}", text.translate(_SIGNS)).strip()


def _parse(text: str) -> list:
    """A text as sympy's expressions; empty if math-verify cannot read it."""
    from math_verify import parse
    from math_verify.parser import LatexExtractionConfig

    return parse(
        f"\\boxed{{{text}}}",
        extraction_config=[LatexExtractionConfig(boxed_match_priority=0)],
        parsing_timeout=None,  # pyright: ignore[reportArgumentType]  (no signal)
        raise_on_error=True,
    )
