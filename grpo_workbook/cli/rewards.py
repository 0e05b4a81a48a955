"""Rewards by name on the command line, and functions from the user's own files."""

import contextlib
import functools
import inspect
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from grpo_workbook.config import nearest
from grpo_workbook.errors import WorkbookError, visible
from grpo_workbook.rewards import contract, specs


def parse_rewards(spec: str, timeout: float = 600.0):
    """`rewards.parse_rewards` with those of the rooms and of files (see `load_reward`)."""
    from grpo_workbook.rewards.symbolic import get_symbolic_reward
    from grpo_workbook.sandbox import code_format_reward, unit_tests

    def tests(form: str = "binary"):
        if form not in ("binary", "partial"):
            raise WorkbookError(f"{form!r}: choose binary or partial")
        return unit_tests(partial=form == "partial")

    more = {"unit_tests": tests, "code_format": code_format_reward}
    more["symbolic"] = lambda: get_symbolic_reward()  # takes no argument
    return specs.parse_rewards(spec, more, functools.partial(load_reward, timeout=timeout))


class _Late(BaseException):
    """The time limit has passed; no Exception, which a reward may catch."""


@functools.cache  # so it is said once
def _timed() -> bool:
    if not hasattr(signal, "setitimer"):
        print("note: your own rewards have no time limit on this system", file=sys.stderr)
    return hasattr(signal, "setitimer")


@contextlib.contextmanager
def _limited(name: str, timeout: float, questions: Sequence):
    """End the block after `timeout` seconds or an os._exit with an error, and 3 s after a Ctrl-C.

    It works by a signal, which Windows lacks: a loop, a sleep or a wait for a server ends; one
    endless call into C code does not.
    """
    pid, leave, stopped = os.getpid(), os._exit, []
    stops = (signal.SIGINT, signal.SIGTERM)
    caught = [number for number in stops if callable(signal.getsignal(number))]

    def late(*_):
        raise KeyboardInterrupt if stopped else _Late

    def stop(number, frame):
        stopped.append(number)
        signal.setitimer(signal.ITIMER_REAL, 3, 1)
        before[number](number, frame)

    def exits(status):  # a child process may
        raise SystemExit(f"os._exit({status})") if os.getpid() == pid else leave(status)

    handlers = (dict.fromkeys(caught, stop) | {signal.SIGALRM: late}) if _timed() else {}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    if handlers:  # again each second: it may catch all
        signal.setitimer(signal.ITIMER_REAL, timeout, 1)
    os._exit = exits
    try:
        yield
    except _Late:
        asked = "; ".join(repr(visible(text)[:60]) for text in [*dict.fromkeys(questions)][:3])
        said = f"{name} ran for more than {timeout:g} s on the answers to {asked}"
        raise WorkbookError(f"{said}: correct it, or raise --reward-timeout") from None
    finally:
        os._exit = leave
        if handlers:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def beside(spec: str, folder: Path) -> str:
    """The spec from a file in `folder`, with the path added to reward files in that folder."""
    parts = [part.strip() for part in spec.split(",")]
    for i, (file, py, rest) in enumerate(part.partition(".py:") for part in parts):
        there = folder / Path(f"{file}.py").expanduser()
        if py and there.exists():
            if "," in str(there):
                raise WorkbookError(f"{there} has a comma, which ends a reward: rename the folder")
            parts[i] = f"{there}:{rest}"
    return ",".join(parts)


def file_hashes(functions: Sequence[Callable]) -> dict[str, str]:
    """{user's function: SHA-256 of its file}, because a run resumes only with the same ones."""
    own = [(f"{f.own.name}:{f.__name__}", f.own) for f in functions if hasattr(f, "own")]
    return {f"{n}:{i}": sha256(path.read_bytes()).hexdigest() for i, (n, path) in enumerate(own)}


def judge_for(answers: str, where: str | None = None) -> Callable[[str, str], bool | None] | None:
    """The judge for `evaluation.score` of such answers ("number" or "text"); numbers need none.

    `where`: FILE.py:REWARD judges instead. It gets the whole completion and `answer`.
    """
    from grpo_workbook.rewards.symbolic import SymbolicChecker

    if where:
        own = load_reward(where)

        def judge(text: str, answer: str) -> bool:
            return contract.call(own, [text], prompt=[[]], answer=[answer]) == [1.0]

        vars(judge)["whole"] = True  # see `evaluation.score`
        return judge
    return SymbolicChecker().judge if answers == "text" else None  # starts when called


def load_own(where: str) -> Any:
    """The function FILE.py:FUNCTION. This runs the file: give only one you trust."""
    file, _, name = where.strip().rpartition(":")
    path = Path(file or name).expanduser()
    if not path.is_file():
        raise WorkbookError(f"the file '{path}' does not exist: give FILE.py:FUNCTION")
    found = _content_of(path, path.stat().st_mtime_ns).items()
    known = {n: own for n, own in found if inspect.isfunction(own)}
    if name not in known:
        own = [n for n in known if known[n].__module__ == "<run_path>"]  # not imported
        near = nearest(name, own or known) if known else "there is no function in it: write one"
        raise WorkbookError(f"{path} has no function {name!r}: {near}")
    known[name].own = path
    return known[name]


def load_reward(where: str, timeout: float = 600.0) -> Callable:
    """The reward FILE.py:FUNCTION, which may take `timeout` seconds for a call."""
    function, name = load_own(where), where.rpartition(":")[2]

    @functools.wraps(function)  # also copies the marks of @reward, and `own`
    def own_reward(completions, **columns):
        step = getattr(columns.get("trainer_state"), "global_step", 0) + 1
        blamed = _blamed(function.own, f": {name} failed in step {step}")
        try:
            with _limited(name, timeout, map(str, columns.get("question", ()))), blamed:
                return contract.checked(function, completions, **columns)
        except BaseException as error:
            error.between_steps = True  # `resume.train` can save
            raise

    return own_reward


@functools.cache  # a file runs once for all its rewards, and again only after a change
def _content_of(path: Path, changed: int) -> dict[str, Any]:
    sys.path.append(str(path.resolve().parent))  # so that it can import its neighbours
    with _blamed(path, " cannot be run"):
        return runpy.run_path(str(path))


@contextlib.contextmanager
def _blamed(path: Path, what: str):
    """Turn an error from the user's file into a WorkbookError with the file's last line in it."""
    try:
        yield
    except WorkbookError:
        raise
    except (Exception, SystemExit) as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == path]
        fix = " (add **kwargs to its arguments)" if isinstance(error, TypeError) else ""
        place = f" (line {frames[-1].lineno})" if frames else fix  # a SyntaxError names its line
        said = f"{type(error).__name__}: {error}{place}"
        raise WorkbookError(f"{path}{what}: {said}") from error


def try_rewards(functions: Sequence[Callable], rows: Sequence[dict]) -> None:
    """Raise WorkbookError if a column is missing, or a user's function fails on made-up texts."""
    form = "<reasoning>\n1\n</reasoning>\n<answer>{}</answer>"
    texts = [text for row in rows for text in (form.format(row.get("answer")), "")]
    columns = {key: [row[key] for row in rows for _ in range(2)] for key in rows[0]}
    for function in functions:
        needed = getattr(function, "columns", ())
        contract.require_columns(contract.name_of(function), needed, columns)
        if hasattr(function, "own"):
            contract.call(function, texts, **columns)
