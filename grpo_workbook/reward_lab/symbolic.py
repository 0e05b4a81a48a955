"""Compare LaTeX and symbolic answers with math-verify, in worker processes that can be killed, with a time limit.

Why not call math-verify directly? Its time limit uses a signal, which works in the main thread only: elsewhere it
raises ValueError, and code that swallows that has zeroed every reward of whole runs. An expression such as
9^{9^{9^{9}}} holds it for seconds. And it is generous: "1, 2, 3 or 72" and \\boxed{2+70} both pass against 72.

So here, in this order:
1. a gold answer that is a number is compared exactly, as `answers.is_correct` does; nothing is evaluated, and a list
   of numbers or an expression left undone is wrong;
2. a prediction that offers several answers ("or", a list where the gold is none) is wrong;
3. what is left goes to a worker. One that is late is killed and replaced: "timeout". One that dies is replaced and its
   pair tried again, three times in all: then it is an "error".

What stays open: where the task is to rewrite an expression, the question's own expression is equal to the answer, and
passes. Give such tasks another check. A decimal passes for an irrational number when 12 places agree.

A percentage is the number before the sign, as everywhere in this package: 50\\% is 50.
"""

import atexit
import contextlib
import json
import os
import re
import selectors
import subprocess
import sys
import threading
import time
import unicodedata
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_workbook.answers import MAX_ANSWER, extract_answer, read_answer
from grpo_workbook.errors import WorkbookError

SERVER = Path(__file__).with_name("symbolic_server.py")
START_LIMIT = 60.0  # seconds for a worker to import math-verify; about 1 when nothing else runs
MAX_TRIES = 3  # of a pair whose worker dies
_MARKS = ("<answer>", "</answer>", "\\boxed{", "####")
_NAMED = re.compile(r"\s*\\?[A-Za-z]\w*(?:_\{?\w+\}?)?(?:\([A-Za-z]\))?\s*=")
_OR = re.compile(r"\b(?:or|and|either|maybe|not)\b")
_TEXT = re.compile(r"\\(?:text|mathrm|textrm|mbox)\{[^{}]*[^\W\d_][^{}]*\}")
_OPEN_SIGNS = str.maketrans(
    {"\u2212": "-", "\u2013": "-", "\u00d7": "*", "\u00f7": "/", "\u00b7": "*"}
)
_SCIENTIFIC = re.compile(r"(?<![\w.])(\d{1,30}(?:\.\d{1,30})?)[eE]([-+]?\d{1,3})(?![\d.])")


@dataclass(frozen=True)
class Outcome:
    """What became of one pair. `verdict`: "right", "wrong", or where nothing could be said "timeout" or "error".

    `seconds` is what math-verify took, 0 where it was not asked.
    """

    verdict: str
    reason: str
    seconds: float = 0.0

    @property
    def judged(self) -> bool:
        """Whether anything could be said: right or wrong."""
        return self.verdict in ("right", "wrong")


class SymbolicChecker:
    """Judge (prediction, gold) pairs, each within `time_limit` seconds, in `workers` processes.

    Works in any thread and inside a process that holds torch: workers are started fresh, not forked. They start when
    first needed and end with `close`, with the `with` block, or with this process. `counts` holds the verdicts so far.
    On Linux and macOS; Windows cannot wait for pipes this way.
    """

    def __init__(self, workers: int = 1, time_limit: float = 2.0):
        if workers < 1 or not 0 < time_limit < 3600:
            raise WorkbookError(
                f"workers={workers}, time_limit={time_limit}: give at least 1 worker, less than 1 h"
            )
        self.time_limit = time_limit
        self.counts: Counter[str] = Counter()
        self._workers = [_Worker(time_limit) for _ in range(workers)]
        self._lock = threading.Lock()
        atexit.register(self.close)

    def __enter__(self) -> "SymbolicChecker":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """End the workers; the next check starts new ones."""
        for worker in self._workers:
            worker.kill()

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers that run now."""
        return [process.pid for worker in self._workers if (process := worker.process) is not None]

    def check(self, pairs: Sequence[tuple[str | None, str]]) -> list[Outcome]:
        """One Outcome per (prediction, gold), in order.

        A prediction is an answer, or a whole completion with it in answer tags, in \\boxed{} or behind ####.
        Raises RuntimeError when workers cannot be started at all.
        """
        with self._lock:
            outcomes: list[Outcome | None] = [
                decide(prediction, gold) for prediction, gold in pairs
            ]
            waiting = deque(
                (
                    i,
                    {
                        "id": i,
                        "prediction": _latex(_final(pairs[i][0])),
                        "gold": _latex(_final(pairs[i][1])),
                    },
                )
                for i, outcome in enumerate(outcomes)
                if outcome is None
            )
            if waiting:
                self._work(waiting, outcomes)
            self.counts.update(o.verdict for o in outcomes)
            return outcomes

    def _work(self, waiting: deque, outcomes: list[Outcome | None]) -> None:
        """Hand out the jobs, collect the answers, kill who is late; returns when every job has its outcome."""
        tries: Counter[int] = Counter()
        with selectors.DefaultSelector() as selector:
            busy: dict[_Worker, tuple[int, dict]] = {}
            try:
                while waiting or busy:
                    for worker in self._workers:
                        if waiting and worker not in busy:
                            job = waiting.popleft()
                            tries[job[0]] += 1
                            worker.start()
                            busy[worker] = job
                            selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
                            worker.send(job[1])
                    soonest = min(w.deadline for w in busy)
                    ready = {
                        key.data for key, _ in selector.select(max(0.0, soonest - time.monotonic()))
                    }
                    for worker in list(busy):
                        lines = worker.read() if worker in ready else []
                        late = time.monotonic() > worker.deadline
                        outcome = worker.judge(lines, late)
                        if outcome is None and not worker.dead:
                            continue
                        selector.unregister(worker.process.stdout)
                        job = busy.pop(worker)
                        if worker.dead:
                            worker.kill()
                        if outcome is not None:
                            outcomes[job[0]] = outcome
                        elif tries[job[0]] < MAX_TRIES:
                            waiting.appendleft(job)
                        else:
                            outcomes[job[0]] = Outcome(
                                "error", f"the worker died {MAX_TRIES} times on this pair"
                            )
            finally:
                for worker in (
                    busy
                ):  # an exception, such as Ctrl-C, came between: no stale answer may be read later
                    worker.kill()


class _Worker:
    """One process: started when needed, asked one pair at a time, killed when late."""

    def __init__(self, time_limit: float):
        self.time_limit = time_limit
        self.process: subprocess.Popen | None = None
        self.ready = self.dead = False
        self.deadline = self.sent = 0.0
        self.buffer = b""

    def start(self) -> None:
        if self.process is not None and self.process.poll() is None:
            return
        self.kill()
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(SERVER), str(self.time_limit)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C is for the trainer, which then closes us
        )
        self.ready = self.dead = False
        self.buffer = b""

    def send(self, job: dict) -> None:
        self.sent = time.monotonic()
        self.deadline = self.sent + (self.time_limit if self.ready else START_LIMIT)
        try:
            self.process.stdin.write(json.dumps(job).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:  # it has died since: read() will find its end
            pass

    def read(self) -> list[dict]:
        """The whole lines that have come; an end of the pipe marks the worker dead."""
        piece = os.read(self.process.stdout.fileno(), 1 << 16)
        self.dead = not piece
        *lines, self.buffer = (self.buffer + piece).split(b"\n")
        return [json.loads(line) for line in lines]

    def judge(self, lines: list[dict], late: bool) -> Outcome | None:
        """The outcome of the pair under way, or None when it goes on, or has to be tried again (then dead is set)."""
        for line in lines:
            if "ready" in line:
                if not line["ready"]:
                    self.dead = True
                    raise RuntimeError(
                        f"math-verify cannot be used ({line['reason']}): pip install math-verify"
                    )
                self.ready, self.sent = True, time.monotonic()
                self.deadline = self.sent + self.time_limit
                late = False
            else:
                return Outcome(
                    line["verdict"], line["reason"], round(time.monotonic() - self.sent, 4)
                )
        if late and not self.dead:
            self.dead = True
            if not self.ready:
                raise RuntimeError(f"a math-verify worker did not start within {START_LIMIT:.0f} s")
            return Outcome("timeout", f"killed after {self.time_limit:g} s", self.time_limit)
        return None

    def kill(self) -> None:
        process, self.process = self.process, None
        self.ready = False
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    pipe.close()


def decide(prediction: str | None, gold: str) -> Outcome | None:
    """The outcome where no algebra is needed, else None: the pair is for math-verify."""
    answer = None if prediction is None else _final(prediction)
    if answer is None:
        return Outcome("wrong", "no answer, or several different ones")
    if len(answer) > MAX_ANSWER:
        return Outcome("wrong", f"an answer of {len(answer)} characters")
    wanted = _final(gold)
    if wanted is None or len(wanted) > MAX_ANSWER:
        return Outcome("error", f"the gold answer cannot be read: {gold[:80]!r}")
    number, given = read_answer(wanted), read_answer(answer)
    if number is not None:
        if given is None:
            given = read_answer(re.sub(r"^[A-Za-z]\s*=", "", answer.strip(" $")))  # x = 5
        return (
            Outcome("right", "the same number")
            if given == number
            else Outcome("wrong", "not the same number")
        )
    if _offers(answer) > _offers(wanted):
        return Outcome("wrong", "several answers")
    return None


def _final(text: str) -> str | None:
    """The answer in a text with answer marks, else the text itself."""
    return extract_answer(text) if any(mark in text for mark in _MARKS) else text.strip()


def _offers(answer: str) -> int:
    """How many alternatives an answer names outside of brackets: connecting words, and list signs."""
    depth, equals, count = (
        0,
        0,
        len(_OR.findall(answer.lower())) + answer.count("\\lor") + answer.count("$$"),
    )
    for sign in answer:
        depth += (sign in "([{") - (sign in ")]}")
        count += sign in ",;" and depth <= 0
        equals += sign == "=" and depth <= 0
    parts = _TEXT.split(
        answer
    )  # words between two terms offer: "bzw."; behind the last they are a unit
    filled = [
        i for i, part in enumerate(parts) if re.search(r"\w", re.sub(r"^\s*\^\{?\d\}?", "", part))
    ]
    named = _NAMED.match(answer) is not None  # y = ...; but 3 = 2 names two values
    return count + (max(0, filled[-1] - filled[0]) if filled else 0) + max(0, equals - named)


def _latex(answer: str) -> str:
    """What math-verify does not know by itself: full-width forms, a unicode minus, 1e3. And no dollar signs."""
    answer = (
        unicodedata.normalize("NFKC", answer)
        if any("\uff01" <= c <= "\uff5e" for c in answer)
        else answer
    )
    answer = answer.translate(_OPEN_SIGNS).replace("$", " ").strip()
    return _SCIENTIFIC.sub(lambda m: f"{m[1]} \\cdot 10^{{{int(m[2])}}}", answer)
