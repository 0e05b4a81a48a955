"""Symbolic answers, compared with math-verify.

`SymbolicChecker` compares LaTeX and symbolic answers with math-verify, in worker processes with a
time limit: math-verify's own uses a signal, which works only in the main thread; elsewhere it
raises ValueError, and code that swallowed the error has zeroed the rewards of whole runs.
9^{9^{9^{9}}} takes it seconds, and "1, 2, 3 or 72" and \\boxed{2+70} both pass against 72. So a
gold answer that is a number is compared exactly, as in `is_correct`, and a prediction with several
answers ("or", or a list if the gold is not one) is wrong. All other pairs go to a worker. A late
one is killed: "timeout". If one dies, its pair is tried again, and in the end it is an "error".
Not covered: tasks to rewrite an expression, because the question's own form equals the answer.
"""

import contextlib
import logging
import re
import signal
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from itertools import pairwise
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, NamedTuple
from unittest import mock

from pebble import ProcessExpired, ProcessPool

from grpo_workbook.errors import WorkbookError
from grpo_workbook.rewards.answers import (
    BOX,
    CHANGES,
    MAX_ANSWER,
    PLAIN,
    extract_answer,
    read_answer,
)
from grpo_workbook.rewards.contract import reward, text_of

__all__ = ["Outcome", "SymbolicChecker", "get_symbolic_reward"]

START = 120.0  # seconds for a worker to import math-verify; about 1 on an idle machine
MAX_TRIES = 4  # attempts at a pair if the worker dies
DIGITS = 12  # decimals that must agree; with math-verify's 6, 1.414214 is the root of 2
_alarm = getattr(signal, "alarm", lambda seconds: 0)  # Windows has none
MEMORY = 2 << 30  # bytes of address space of a worker: stops a bomb before the machine is full
_MARK = re.compile(r"</?answer>|\\boxed\{|####")
_NAMED = re.compile(
    r"\s*(?:\\?[A-Za-z]\w*(?:_\{?\w+\}?)?(?:\(\w\))?|\([a-z, ]+\))\s*(?:=|\\approx(?![a-z]))"
)
_OR = re.compile(r"\b(?:or|either|maybe|not)\b|\\lor|\$\$|\\pm|\xb1")
_AND = re.compile(r",?\s*(?:\\text\{\s*and\s*\}|\band\b)")
_GAP = re.compile(r"(?:[\s$,;.()\[\]\\]|\\text\{ ?and ?\}|and|or|\\q?quad)*(?:[A-Za-z]\w*\s*=\s*)?")
# The last statement of prose: "is", words, then a formula or a number, and no number behind it.
_STATED = re.compile(
    r"(?si).*(?:\b(?:answer|is|are|that|thus|therefore)|it's|[a-z]:)\s(?P<words>[a-z ,]{0,60}?)"
    r"(?P<value>\$\$[^$]+\$\$|\$[^$\n]+\$|\\\[.+?\\\]|\\\([^\n]+?\\\)"
    r"|(?<![a-z])-?[$€]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:/\d+)?(?:m[²³])?(?![\w/]|[.,:]\d))"
    r"(?P<unit>(?>(?:[^\W\d]|[\s,²³%€°])*))(?:[.<][^\d$\\]*)?\Z"
)
_ROOTS = re.compile(r"([A-Za-z])\s*=([^=]+?)(?:[,;]|\\text\{ *or *\}|\bor\b)\s*\1\s*=([^=]+)\Z")
_WORDS = re.compile(r"\\(?:text(?:bf)?|mathrm|mbox)\{([^{}]*)\}")
_TEXT = re.compile(r"\\(?:text|mathrm|textrm|mbox)\{[^{}]*[^\W\d_][^{}]*\}")
_SIGNS = PLAIN | {0xD7: "*", 0xF7: "/", 0xB7: "*", 0x24: " "}
_SCIENTIFIC = re.compile(r"(?<![\w.])(\d{1,30}(?:\.\d{1,30})?)[eE]\+?(-?)0*(\d{1,3})(?![\d.])")
_SPAWNING = threading.Lock()


class Outcome(NamedTuple):
    """The outcome for one pair: "right" or "wrong", or without a verdict "timeout" or "error"."""

    verdict: str
    reason: str

    @property
    def value(self) -> float | None:
        """The reward for this outcome."""
        return {"right": 1.0, "wrong": 0.0}.get(self.verdict)


class SymbolicChecker(contextlib.AbstractContextManager):
    """Judge (prediction, gold) pairs, each within `time_limit` seconds, in `workers` processes.
    It works in any thread and beside torch: workers are new processes, not forks, and end with the
    `with` block or this process. `counts` holds the verdicts so far.
    """

    def __init__(self, workers: int = 1, time_limit: float = 2.0):
        if workers < 1 or not 0 < time_limit < 3600:
            raise WorkbookError(f"{workers} workers, {time_limit} s: give at least 1, below 1 h")
        self.workers, self.time_limit = workers, time_limit
        self.counts: Counter[str] = Counter()
        self._pool, self._lock = None, threading.Lock()

    def __exit__(self, *_) -> None:
        """End the workers; the next check starts new ones."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.stop()
            pool.join()

    def check(self, pairs: Sequence[tuple]) -> list[Outcome]:
        """One Outcome per (prediction, gold) or (prediction, gold, question), in order.

        A prediction may be a completion, or None; without a mark its last statement ("so the sum
        is $2x$.") is the answer. Words of the question may be units.
        """
        outcomes = {i: decide(*pair) for i, pair in enumerate(pairs)}
        for _ in range(MAX_TRIES):
            asked = {i: self._ask(pairs[i]) for i, outcome in outcomes.items() if outcome is None}
            for i, future in asked.items():
                try:
                    outcomes[i] = Outcome(*future.result(START + self.time_limit))
                except TimeoutError:
                    if not future.done():
                        raise RuntimeError("no math-verify worker started") from None
                    outcomes[i] = Outcome("timeout", f"killed after {self.time_limit:g} s")
                except (ProcessExpired, BrokenProcessPool):
                    continue  # try again
        died = Outcome("error", f"the worker died {MAX_TRIES} times on this pair")
        told = [outcome or died for outcome in outcomes.values()]
        self.counts.update(outcome.verdict for outcome in told)
        return told

    def judge(self, given: str, gold: str) -> bool | None:
        """For `evaluation.score`: None without a verdict."""
        asked = [(f"<answer>{given}</answer>", gold)]
        return {"right": True, "wrong": False}.get(self.check(asked)[0].verdict)

    def _ask(self, pair):
        with self._lock:
            if self._pool is None or not self._pool.active:  # an idle worker was killed
                self.__exit__()
                fresh: Any = SpawnContext()
                fresh.Process = _Fresh
                self._pool = ProcessPool(self.workers, initializer=_begin, context=fresh)
            asked = [_given(pair[0]) or "", _final(pair[1]) or "", self.time_limit]
            return self._pool.schedule(compare, asked, timeout=self.time_limit)


def get_symbolic_reward(checker: SymbolicChecker | None = None):
    """A reward: 1.0 if the final answer equals the reference mathematically, else 0.0; None without
    a reference or a verdict. WorkbookError if more than half of a batch has no verdict.
    """
    checker = checker or SymbolicChecker()

    @reward(role="correctness", columns=("answer",), answers="text")
    def symbolic_correctness_reward(completions, answer, prompts=None, **columns):
        said = [text if _MARK.search(text) else None for text in map(text_of, completions)]
        rows = list(zip(said, answer, prompts or [""] * len(said), strict=True))
        asked = [row for row in rows if row[1] is not None]
        outcomes = checker.check(asked)
        failed = [o for o in outcomes if o.value is None]
        if len(failed) > len(outcomes) / 2:
            said = f"{len(failed)} of {len(asked)} completions could not be judged"
            fix = "fix the reference answers, or give a checker with a longer time_limit"
            raise WorkbookError(f"{said} ({failed[0].reason}): {fix}")
        values = iter([o.value for o in outcomes])
        return [None if gold is None else next(values) for gold in answer]

    return symbolic_correctness_reward


def decide(prediction: str | None, gold: str, question: object = "") -> Outcome | None:
    """The outcome if no algebra is needed, else None: the pair goes to math-verify."""
    answer, wanted = _given(prediction), _final(gold)
    if not answer or len(answer) > MAX_ANSWER:
        return Outcome("wrong", "no answer, several different answers, or a very long one")
    if wanted is None or len(wanted) > MAX_ANSWER:
        return Outcome("error", f"the gold answer cannot be read: {gold[:80]!r}")
    if (number := read_answer(wanted, question=wanted)) is not None:
        asked, value = f"{question} {wanted}", _NAMED.sub("", answer.strip(" $"), count=1)  # x = 5
        given = read_answer(answer, question=asked) or read_answer(value, question=asked)
        return Outcome("right" if given == number else "wrong", "compared as numbers")
    listed = re.sub(r"^[$\s]*\{(.*)\}[$\s]*$", r"\1", wanted)  # {1, 2} is LaTeX's group
    return Outcome("wrong", "several answers") if _offers(answer) > _offers(listed) else None


def _final(text: str) -> str | None:
    """The answer of a text with a mark; a list, if only signs and "and" stand between the boxes."""
    text = end if _MARK.search(end := text.rpartition("</think>")[2]) else text
    if not _MARK.search(text):
        return text.strip()
    boxes = [] if "<answer>" in text or text.count("\\boxed{") > 64 else [*BOX.finditer(text)]
    if boxes and all(_GAP.fullmatch(text[a.end() : b.start()]) for a, b in pairwise(boxes)):
        return ", ".join(dict.fromkeys(box[1].strip() for box in boxes))
    found = extract_answer(text)
    return found if found is None else _final(found)


def _given(prediction: str | None) -> str | None:
    """The answer of a prediction: what is marked, what its last sentence states, or all of it."""
    if prediction is None or _MARK.search(prediction):
        return prediction and _ROOTS.sub(r"\2,\3", _final(prediction) or "")
    if found := _STATED.match(prediction[-2_000:]):
        unit = re.sub(r"\A\s*is (?:our|the) (?:answer|solution)", "", found["unit"])
        words = re.findall(r"\w+", f"{found['words']} {unit}".lower())
        if not any(CHANGES.fullmatch(w) or not w.rstrip("²³").isascii() for w in words):
            return found["value"]
    return prediction.strip()


def _offers(answer: str) -> int:
    """The number of alternatives in an answer, outside brackets: by "or", list signs and such."""
    answer = _AND.sub(",", re.sub(r"[<>!]=", "<", answer.strip(" $").lower()))
    depth, equals, parts = 0, 0, [""]
    for sign in answer:
        depth += (sign in "([{") - (sign in ")]}")
        equals += sign == "=" and depth <= 0
        if sign in ",;" and depth <= 0:
            parts.append("")
        elif not sign.isspace():
            parts[-1] += sign
    count = len(_OR.findall(answer)) + len(set(parts) - {""})
    # words between two terms offer a choice ("bzw."); words after the last term are a unit
    parts = [re.sub(r"^\s*\^\{?\d\}?", "", part) for part in _TEXT.split(answer)]
    filled = [i for i, part in enumerate(parts) if re.search(r"\w", part)] or [0]
    named = _NAMED.match(answer) is not None  # y = ...; but 3 = 2 names two values
    return count + filled[-1] - filled[0] + max(0, equals - named)


class _Fresh(SpawnProcess):
    """A new process that does not run the user's script again, which might train."""

    @staticmethod
    def _Popen(process_obj):
        nowhere = {"__spec__": None, "__file__": None}
        with _SPAWNING, mock.patch.multiple("__main__", create=True, **nowhere):
            return SpawnProcess._Popen(process_obj)


def _begin() -> None:
    """Start a worker. math-verify warns that its own time limit is off: ours replaces it."""
    logging.disable(logging.CRITICAL)
    compare("x+x", "2x", START)  # imports, and fills sympy's caches outside of any time limit
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # pebble's handler would wait for a bomb's end
    with contextlib.suppress(ImportError, ValueError, OSError):  # not on every system
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def compare(prediction: str, gold: str, time_limit: float) -> tuple[str, str]:
    """(verdict, reason) from math-verify, which expects the gold answer first."""
    from math_verify import parse, verify
    from math_verify.parser import LatexExtractionConfig

    how: Any = {"parsing_timeout": None, "raise_on_error": True}
    how["extraction_config"] = [LatexExtractionConfig(boxed_match_priority=0)]
    # if the parent is gone: the kernel ends this process, even within one long multiplication
    _alarm(int(2 * time_limit + 5))
    try:
        # in forms that math-verify knows: no full-width forms, unicode minus, 1e3 or $
        prediction, gold = (
            _SCIENTIFIC.sub(r"\1 \\cdot 10^{\2\3}", text.translate(_SIGNS)).strip()
            for text in (prediction, gold)
        )
        if prediction == gold or _WORDS.sub(r"\1", prediction) == _WORDS.sub(r"\1", gold):
            return "right", "identical"
        if not (wanted := parse(f"\\boxed{{{gold}}}", **how)):
            return "error", "the gold answer cannot be read"
        given = parse(f"\\boxed{{{prediction}}}", **how)
        right = verify(wanted, given, DIGITS, timeout_seconds=None, raise_on_error=True)
        return ("right", "equal") if right else ("wrong", "not equal" if given else "unreadable")
    except Exception as error:
        return "error", f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        _alarm(0)
