"""The exercise checks: `check(fn)` says not attempted, names the mistake, or records the solution.

An exercise is its name, cases, and the typical mistakes with the sentence that names each. Modules chNN define them;
`check` finds the exercise by the function's name.
"""

from __future__ import annotations

import copy
import importlib
import json
import math
import os
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

EXERCISES: dict[str, Exercise] = {}


@dataclass(frozen=True)
class Raises:
    """The expected outcome of a case: an exception of this type."""

    kind: type[Exception]


@dataclass(frozen=True)
class Exercise:
    """What a right answer does, and what typical wrong ones would do.

    `cases` are (arguments, expected) pairs; expected may be `Raises(ValueError)`. `mistakes` are (function, sentence)
    pairs: an answer that gives what that function gives, on the cases where it errs, is told the sentence.
    """

    name: str
    notebook: str
    cases: Sequence[tuple[tuple, object]]
    mistakes: Sequence[tuple[Callable, str]] = ()


@dataclass(frozen=True)
class Result:
    """status: "solved", "not attempted" or "wrong"."""

    name: str
    status: str
    message: str

    def __str__(self) -> str:
        heading = "Not yet" if self.status == "wrong" else self.status.capitalize()
        return f"{heading}: {self.message}"


def exercise(name: str, notebook: str, cases, mistakes=()) -> Exercise:
    """Register an exercise under the name of the function that the learner writes."""
    EXERCISES[name] = Exercise(name, notebook, cases, mistakes)
    return EXERCISES[name]


def check(fn: Callable) -> Result:
    """Judge the learner's function, print one line, and record a solution in the learner's progress."""
    result = judge(fn)
    print(result)
    if result.status == "solved":
        record(result.name)
    return result


def judge(fn: Callable) -> Result:
    """Judge without printing or recording."""
    _load_all()
    if fn.__name__ not in EXERCISES:
        raise ValueError(f"no exercise is called {fn.__name__!r}: keep the stub's name ({', '.join(EXERCISES)})")
    task = EXERCISES[fn.__name__]
    for arguments, expected in task.cases:
        got = _outcome(fn, arguments)
        if isinstance(got, NotImplementedError):
            return Result(task.name, "not attempted", f"write {task.name}, then run the cell again")
        if not _same(got, expected):
            return Result(task.name, "wrong", _name_mistake(task, fn) or _describe(task.name, arguments, got, expected))
    return Result(task.name, "solved", f"{task.name} is right on {len(task.cases)} cases")


def _outcome(fn: Callable, arguments: tuple):
    """What the function returns for copies of the arguments, or the exception that it raised."""
    try:
        return fn(*copy.deepcopy(arguments))
    except Exception as error:
        return error


def _same(got, expected) -> bool:
    if isinstance(expected, Raises):
        return isinstance(got, expected.kind) and not isinstance(got, NotImplementedError)
    if isinstance(got, Exception):
        return False
    if isinstance(expected, float) and isinstance(got, int | float) and not isinstance(got, bool):
        return math.isclose(got, expected, rel_tol=1e-6, abs_tol=1e-9)
    if isinstance(expected, list | tuple):
        return (
            isinstance(got, list | tuple)
            and len(got) == len(expected)
            and all(_same(g, e) for g, e in zip(got, expected, strict=True))
        )
    return type(got) is type(expected) and got == expected


def _name_mistake(task: Exercise, fn: Callable) -> str | None:
    """The sentence of the mistake that gives just what fn gives, wherever that mistake errs."""
    for wrong, sentence in task.mistakes:
        errs = [(a, _outcome(wrong, a)) for a, expected in task.cases if not _same(_outcome(wrong, a), expected)]
        if errs and all(_alike(_outcome(fn, a), outcome) for a, outcome in errs):
            return sentence
    return None


def _alike(a, b) -> bool:
    return type(a) is type(b) if isinstance(b, Exception) else _same(a, b)


def _describe(name: str, arguments: tuple, got, expected) -> str:
    call = f"{name}({', '.join(_short(a) for a in arguments)})"
    wanted = f"raise {expected.kind.__name__}" if isinstance(expected, Raises) else f"give {_short(expected)}"
    did = f"raised {type(got).__name__}: {got}" if isinstance(got, Exception) else f"gave {_short(got)}"
    return f"{call} should {wanted}, but {did}"


def _short(value) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= 200 else text[:200] + "..."


def _load_all() -> None:
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


def progress_file() -> Path:
    """Where solutions are recorded: GRPO_WORKBOOK_PROGRESS, else a file in the home folder."""
    return Path(os.environ.get("GRPO_WORKBOOK_PROGRESS") or Path.home() / ".grpo_workbook" / "progress.json")


def solved() -> set[str]:
    """The names of the solved exercises. A damaged file counts as none, and is kept aside."""
    path = progress_file()
    if not path.is_file():
        return set()
    try:
        return set(json.loads(path.read_text(encoding="utf-8"))["solved"])
    except (ValueError, KeyError, TypeError):
        os.replace(path, path.with_suffix(".damaged"))
        print(f"{path} could not be read; it was kept as {path.with_suffix('.damaged').name}")
        return set()


def record(name: str) -> None:
    """Add a solved exercise to the learner's progress."""
    path = progress_file()
    names = solved() | {name}
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f".{os.getpid()}.new")
    new.write_text(json.dumps({"solved": sorted(names)}, indent=2) + "\n", encoding="utf-8")
    os.replace(new, path)


def show_progress() -> int:
    """Print every exercise by notebook, solved or open."""
    _load_all()
    done = solved()
    for notebook in sorted({e.notebook for e in EXERCISES.values()}):
        print(notebook)
        for task in EXERCISES.values():
            if task.notebook == notebook:
                print(f"  [{'x' if task.name in done else ' '}] {task.name}")
    print(f"\n{len(done & EXERCISES.keys())} of {len(EXERCISES)} solved")
    return 0
