"""The exercise checks: `check("04.1", fn)` says not attempted, names the mistake, or records the solution.

An exercise is its number, its function's name, cases, and the typical mistakes with the sentence that names each.
Modules chNN define them.
"""

from __future__ import annotations

import copy
import importlib
import math
import pkgutil
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grpo_workbook.exercises.limits import TimeUp, within
from grpo_workbook.exercises.progress import record, solved

EXERCISES: dict[str, Exercise] = {}
TIME_LIMIT = 10.0  # seconds for all cases of one check


@dataclass(frozen=True)
class Raises:
    """The expected outcome of a case: an exception of this type."""

    kind: type[Exception]


@dataclass(frozen=True)
class Exercise:
    """What a right answer does, and what typical wrong ones would do.

    `cases` are (arguments, expected) pairs, or a function that makes them (so that a module needs no torch to be
    imported); expected may be `Raises(ValueError)`. `mistakes` are (function, sentence) pairs: an answer that gives
    what that function gives, on the cases where it errs, is told the sentence. `call` says how the function is called
    with a case's arguments, when plain `fn(*arguments)` will not do. Numbers agree within `tolerance`, relative;
    tensors and arrays are compared as lists.
    """

    number: str
    name: str
    notebook: str
    cases: Sequence[tuple[tuple, object]] | Callable[[], Sequence[tuple[tuple, object]]]
    mistakes: Sequence[tuple[Callable, str]] = ()
    call: Callable = lambda fn, *arguments: fn(*arguments)
    tolerance: float = 1e-6

    def all_cases(self) -> list[tuple[tuple, object]]:
        """The cases, made if a function makes them."""
        return list(self.cases() if callable(self.cases) else self.cases)


@dataclass(frozen=True)
class Result:
    """What came of a check. status: "solved", "not attempted" or "wrong"; the message says why."""

    number: str
    status: str
    message: str

    def __str__(self) -> str:
        heading = "Not yet" if self.status == "wrong" else self.status.capitalize()
        return f"{heading}: {self.message}"


@dataclass(frozen=True)
class Failure:
    """A case that ended in an exception: which, and where in the learner's function."""

    error: BaseException
    line: str = ""


def exercise(number: str, name: str, notebook: str, cases, mistakes=(), **more) -> Exercise:
    """Register an exercise: its number ("04.1"), the name of the function to write, and what `Exercise` takes.

    Raises ValueError for a number that another exercise has.
    """
    if number in EXERCISES and EXERCISES[number].name != name:
        raise ValueError(
            f"two exercises have the number {number}: {EXERCISES[number].name} and {name}: renumber one"
        )
    EXERCISES[number] = Exercise(number, name, notebook, cases, mistakes, **more)
    return EXERCISES[number]


def check(number: str, fn: Callable) -> Result:
    """Judge the learner's function, print the result, and record a solution in the learner's progress.

    Never raises what the function raises: that is shown, with the arguments that caused it. An endless loop is stopped
    after TIME_LIMIT seconds.
    """
    result = judge(number, fn)
    print(result)
    if result.status == "solved" and (trouble := record(result.number)):
        print(f"It could not be recorded: {trouble}")
    return result


def judge(number: str, fn: Callable) -> Result:
    """Judge without printing or recording. Raises ValueError for a number that no exercise has."""
    load_all()
    if number not in EXERCISES:
        raise ValueError(
            f"no exercise has the number {number!r}: choose from {', '.join(sorted(EXERCISES))}"
        )
    task = EXERCISES[number]
    if not callable(fn):
        return Result(
            number,
            "wrong",
            f"{task.name} is {_short(fn)}: give the function itself, without calling it",
        )
    cases, deadline, outcomes = task.all_cases(), time.monotonic() + TIME_LIMIT, []
    for arguments, _ in cases:
        got = _outcome(task, fn, arguments, max(0.1, deadline - time.monotonic()))
        if isinstance(got, Failure) and isinstance(got.error, NotImplementedError):
            return Result(number, "not attempted", f"write {task.name}, then run the cell again")
        if isinstance(got, Failure) and isinstance(got.error, TimeUp):
            call = _call(task.name, arguments)
            return Result(
                number,
                "wrong",
                f"{call} was stopped after {TIME_LIMIT:g} s: does a loop never end?",
            )
        outcomes.append(got)
    try:  # looking at a result runs the learner's code too: its ==, its repr
        return within(TIME_LIMIT, _verdict, task, cases, outcomes)
    except TimeUp:
        kinds = ", ".join(sorted({type(got).__name__ for got in outcomes}))
        text = f"{task.name} gave something ({kinds}) that could not be compared and shown within {TIME_LIMIT:g} s"
        return Result(number, "wrong", text)


def _verdict(task: Exercise, cases, outcomes) -> Result:
    wrong = [
        i
        for i, (_, expected) in enumerate(cases)
        if not _same(outcomes[i], expected, task.tolerance)
    ]
    if not wrong:
        return Result(task.number, "solved", f"{task.name} is right on {len(cases)} cases")
    arguments, expected = cases[wrong[0]]
    named = _name_mistake(task, cases, outcomes)
    return Result(
        task.number, "wrong", named or _describe(task.name, arguments, outcomes[wrong[0]], expected)
    )


def _outcome(task: Exercise, fn: Callable, arguments: tuple, seconds: float = TIME_LIMIT):
    """What the function returns for copies of the arguments, or the Failure that it ended in; only Ctrl-C goes on."""
    try:
        return within(seconds, task.call, fn, *copy.deepcopy(arguments))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        code = getattr(fn, "__code__", None)
        frames = [
            f
            for f in traceback.extract_tb(error.__traceback__)
            if code and f.filename == code.co_filename
        ]
        return Failure(error, frames[-1].line or "" if frames else "")


def _same(got, expected, tolerance: float) -> bool:
    """Whether they agree; a result that cannot even be compared does not."""
    try:
        return _equal(got, expected, tolerance)
    except (KeyboardInterrupt, TimeUp):
        raise
    except (
        BaseException
    ):  # a tensor without data, 10**400 against a float, a learner's class with a broken ==
        return False


def _equal(got, expected, tolerance: float) -> bool:
    if isinstance(expected, Raises):
        return (
            isinstance(got, Failure)
            and isinstance(got.error, expected.kind)
            and not isinstance(got.error, NotImplementedError)
        )
    if isinstance(got, Failure):
        return False
    got, expected = (
        x.tolist() if hasattr(x, "tolist") else x for x in (got, expected)
    )  # tensors, NumPy's numbers
    if isinstance(expected, float) and isinstance(got, int | float) and not isinstance(got, bool):
        return (math.isnan(got) and math.isnan(expected)) or math.isclose(
            got, expected, rel_tol=tolerance, abs_tol=tolerance / 1000
        )
    if isinstance(expected, list | tuple):
        return (
            isinstance(got, list | tuple)
            and len(got) == len(expected)
            and all(_equal(g, e, tolerance) for g, e in zip(got, expected, strict=True))
        )
    if isinstance(expected, dict):
        return (
            isinstance(got, dict)
            and got.keys() == expected.keys()
            and all(_equal(got[k], e, tolerance) for k, e in expected.items())
        )
    return type(got) is type(expected) and got == expected


def _name_mistake(task: Exercise, cases, outcomes) -> str | None:
    """The sentence of the mistake that gives just what the learner's function gave, wherever that mistake errs."""
    for wrong, sentence in task.mistakes:
        theirs = [_outcome(task, wrong, arguments) for arguments, _ in cases]
        errs = [
            i
            for i, (_, expected) in enumerate(cases)
            if not _same(theirs[i], expected, task.tolerance)
        ]
        if errs and all(_alike(outcomes[i], theirs[i], task.tolerance) for i in errs):
            return sentence
    return None


def _alike(a, b, tolerance: float) -> bool:
    if isinstance(b, Failure):
        return isinstance(a, Failure) and type(a.error) is type(b.error)
    return _same(a, b, tolerance)


def _describe(name: str, arguments: tuple, got, expected) -> str:
    wanted = (
        f"raise {expected.kind.__name__}"
        if isinstance(expected, Raises)
        else f"give {_short(expected)}"
    )
    if isinstance(expected, dict) and isinstance(got, dict):  # what differs first, and no more
        key = next(
            (k for k in expected if not (k in got and _same(got[k], expected[k], 1e-5))), None
        )
        if key is not None:
            return f"{_call(name, arguments)}: {key} should be {_short(expected[key])}, but is {_short(got.get(key))}"
    did = f"gave {_short(got)}"
    if isinstance(got, float) and isinstance(expected, int):
        did += " as a float: it should be a whole number (//)"
    if isinstance(got, Failure):
        did = f"raised {type(got.error).__name__}: {_short(got.error, plain=True)}"
        did += f"\n    in your line: {got.line}" if got.line else ""
    return f"{_call(name, arguments)} should {wanted}, but {did}"


def _call(name: str, arguments: tuple) -> str:
    return f"{name}({', '.join(_short(a) for a in arguments)})"


def _short(value, plain: bool = False) -> str:
    try:
        text = f"{value:.6g}" if isinstance(value, float) else str(value) if plain else repr(value)
    except (KeyboardInterrupt, TimeUp):
        raise
    except BaseException as error:  # a learner's class may fail to say what it is
        text = f"<a {type(value).__name__} whose {'str' if plain else 'repr'} raises {type(error).__name__}>"
    return text if len(text) <= 200 else text[:200] + "..."


def load_all() -> None:
    """Import every chapter's exercises."""
    for module in pkgutil.iter_modules(__path__):
        if module.name.startswith("ch"):
            importlib.import_module(f"{__name__}.{module.name}")


def show_progress() -> int:
    """Print every exercise by notebook, solved or open."""
    load_all()
    done = solved()
    tasks = sorted(EXERCISES.values(), key=lambda task: (task.notebook, task.number))
    for notebook in sorted({task.notebook for task in tasks}):
        mine = [task for task in tasks if task.notebook == notebook]
        print(f"{notebook}  {sum(task.number in done for task in mine)} of {len(mine)}")
        for task in mine:
            mark, day = ("x" if task.number in done else " "), done.get(task.number, "")
            print(f"  [{mark}] {task.number}  {task.name:<32} {day}".rstrip())
    print(f"\n{len(done.keys() & EXERCISES.keys())} of {len(EXERCISES)} solved")
    return 0
