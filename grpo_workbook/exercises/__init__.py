"""The exercise checks: `check("04.1", fn)` says not attempted, names the mistake, or records the
solution; `predict("04.4", prediction, run)` compares a prediction with a run.

An exercise has a number, its function's name, cases, and the typical mistakes, each with a sentence
that names it. The modules chNN define them.
"""

from __future__ import annotations

import copy
import importlib
import math
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_workbook.exercises.limits import TimeUp, within
from grpo_workbook.exercises.progress import record, solved

EXERCISES: dict[str, Exercise | Experiment] = {}
NOTEBOOKS = """00_start_here 01_grpo_from_scratch 02_dataset_prep 03_reward_design 04_grpo_run
    05_monitoring 06_code_rewards 07_stages_and_curriculum 08_evaluation 09_merge_and_inference
    10_scale_out 11_tools_and_environments 12_which_algorithm 13_learned_rewards
    14_capstone""".split()  # chapter NN is number NN here
TIME_LIMIT = 10.0  # seconds for all cases of one check


@dataclass(frozen=True)
class Raises:
    """The expected outcome of a case: an exception of this type."""

    kind: type[Exception]


@dataclass(frozen=True)
class Exercise:
    """The results of a right answer, and of typical mistakes.

    `cases` are (arguments, expected) pairs, or a function that makes them (so that importing the
    module needs no torch); expected may be `Raises(ValueError)`. `mistakes` are (function,
    sentence) pairs: if an answer gives the same as that function wherever the answer is wrong, the
    learner gets the sentence. `call` calls the function with a case's arguments, if
    `fn(*arguments)` does not fit. Numbers agree within the relative `tolerance`; tensors and arrays
    are compared as lists.
    """

    number: str
    name: str
    notebook: str
    cases: Sequence[tuple[tuple, object]] | Callable[[], Sequence[tuple[tuple, object]]]
    mistakes: Sequence[tuple[Callable, str]] = ()
    call: Callable = lambda fn, *arguments: fn(*arguments)
    tolerance: float = 1e-6


@dataclass(frozen=True)
class Experiment:
    """A prediction, and the run that tests it.

    `read` takes the result of the learner's run and returns (the right choice, the measurement as a
    sentence); it raises ValueError, with the fix, for another result. `wrong` has a sentence for
    each choice: why that prediction fails, if it does. `examples` are recorded (result of a run,
    right choice) pairs for the tests.
    """

    number: str
    name: str
    notebook: str
    read: Callable[[Any], tuple[str, str]]
    wrong: dict[str, str]
    examples: Sequence[tuple[Any, str]]


@dataclass(frozen=True)
class Result:
    """The result of a check. status: "solved", "not attempted" or "wrong"; the message says why."""

    number: str
    status: str
    message: str

    def __str__(self) -> str:
        heading = "Not yet" if self.status == "wrong" else self.status.capitalize()
        return f"{heading}: {self.message}"


@dataclass(frozen=True)
class Failure:
    """A case that ended in an exception: the error, and its line in the learner's function."""

    error: BaseException
    line: str = ""


def exercise(number: str, name: str, cases, mistakes=(), **more) -> Exercise:
    """Register an exercise: its number ("04.1"), the function to write, and fields of `Exercise`.

    `mistakes` may be {sentence: function}. Raises ValueError for a number that is taken.
    """
    if isinstance(mistakes, dict):
        mistakes = [(wrong, sentence) for sentence, wrong in mistakes.items()]
    if number in EXERCISES and EXERCISES[number].name != name:
        names = f"{EXERCISES[number].name} and {name}"
        raise ValueError(f"two exercises have the number {number}: {names}: renumber one")
    notebook = NOTEBOOKS[int(number[:2])]
    EXERCISES[number] = Exercise(number, name, notebook, cases, mistakes, **more)
    return EXERCISES[number]


def experiment(number: str, name: str, read, wrong, examples) -> Experiment:
    """Register an experiment: see `Experiment`."""
    notebook = NOTEBOOKS[int(number[:2])]
    EXERCISES[number] = Experiment(number, name, notebook, read, wrong, examples)
    return EXERCISES[number]


def predict(number: str, prediction: object, run: Callable[[], object]) -> Result:
    """Judge a prediction by the run that tests it, print the result, and record a right one.

    `prediction` is one of the exercise's words; while it is `...` nothing runs. Exceptions of the
    run are not caught.
    """
    load_all()
    task = EXERCISES[number]
    choices = ", ".join(map(repr, task.wrong))
    if prediction is ...:
        said = f"set the prediction to one of {choices}, then run the cell again"
        result = Result(number, "not attempted", said)
    elif prediction not in task.wrong:
        result = Result(number, "wrong", f"the prediction is {prediction!r}: choose from {choices}")
    else:
        result = judge_prediction(task, str(prediction), run())
    print(result)
    if result.status == "solved" and (trouble := record(number)):
        print(f"It could not be recorded: {trouble}")
    return result


def judge_prediction(task: Experiment, prediction: str, measured: object) -> Result:
    """Compare a prediction with the measurement, without printing or recording."""
    try:
        right, said = task.read(measured)
    except (ValueError, LookupError, TypeError) as error:
        said = f"the result of the run could not be read ({type(error).__name__}: {error})"
        return Result(task.number, "wrong", said)
    if prediction == right:
        return Result(task.number, "solved", f"{right!r} it is. {said}")
    return Result(task.number, "wrong", f"not {prediction!r}. {said} {task.wrong[prediction]}")


def check(number: str, fn: Callable) -> Result:
    """Judge the learner's function, print the result, and record a solution in the progress file.

    An exception of the function is not raised but shown, with the arguments that caused it. An
    endless loop is stopped after TIME_LIMIT seconds.
    """
    result = judge(number, fn)
    print(result)
    if result.status == "solved" and (trouble := record(result.number)):
        print(f"It could not be recorded: {trouble}")
    return result


def judge(number: str, fn: Callable) -> Result:
    """Judge without printing or recording. Raises ValueError for an unknown number."""
    load_all()
    if number not in EXERCISES:
        known = ", ".join(sorted(EXERCISES))
        raise ValueError(f"no exercise has the number {number!r}: choose from {known}")
    task = EXERCISES[number]
    if not callable(fn):
        said = f"{task.name} is {_short(fn)}: give the function itself, without calling it"
        return Result(number, "wrong", said)
    cases = list(task.cases() if callable(task.cases) else task.cases)
    deadline, outcomes = time.monotonic() + TIME_LIMIT, []
    for arguments, _ in cases:
        got = _outcome(task, fn, arguments, max(0.1, deadline - time.monotonic()))
        if isinstance(got, Failure) and isinstance(got.error, NotImplementedError):
            return Result(number, "not attempted", f"write {task.name}, then run the cell again")
        if isinstance(got, Failure) and isinstance(got.error, TimeUp):
            stopped = f"{_call(task.name, arguments)} was stopped after {TIME_LIMIT:g} s"
            return Result(number, "wrong", f"{stopped}: does a loop never end?")
        outcomes.append(got)
    try:  # comparing and showing a result also runs the learner's code: its ==, its repr
        return within(TIME_LIMIT, _verdict, task, cases, outcomes)
    except TimeUp:
        kinds = ", ".join(sorted({type(got).__name__ for got in outcomes}))
        late = f"that could not be compared and shown within {TIME_LIMIT:g} s"
        return Result(number, "wrong", f"{task.name} gave something ({kinds}) {late}")


def _verdict(task: Exercise, cases, outcomes) -> Result:
    right = [_same(got, e, task.tolerance) for got, (_, e) in zip(outcomes, cases, strict=True)]
    if all(right):
        return Result(task.number, "solved", f"{task.name} is right on {len(cases)} cases")
    first = right.index(False)
    described = _describe(task.name, cases[first][0], outcomes[first], cases[first][1])
    return Result(task.number, "wrong", _name_mistake(task, cases, outcomes) or described)


def _outcome(task: Exercise, fn: Callable, arguments: tuple, seconds: float = TIME_LIMIT):
    """The function's result for copies of the arguments, or its Failure."""
    try:
        return within(seconds, task.call, fn, *copy.deepcopy(arguments))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        file = getattr(getattr(fn, "__code__", None), "co_filename", None)
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
        return Failure(error, frames[-1].line or "" if frames else "")


def _same(got, expected, tolerance: float) -> bool:
    """Whether they agree; a result that cannot be compared does not."""
    try:
        return _equal(got, expected, tolerance)
    except (KeyboardInterrupt, TimeUp):
        raise
    # a tensor without data, 10**400 against a float, a class with a broken ==
    except BaseException:
        return False


def _equal(got, expected, tolerance: float) -> bool:
    if isinstance(got, Failure):
        kind = expected.kind if isinstance(expected, Raises) else ()
        return isinstance(got.error, kind) and not isinstance(got.error, NotImplementedError)
    # tensors, arrays and NumPy's numbers
    got, expected = (x.tolist() if hasattr(x, "tolist") else x for x in (got, expected))
    if isinstance(expected, float) and isinstance(got, int | float) and not isinstance(got, bool):
        close = math.isclose(got, expected, rel_tol=tolerance, abs_tol=tolerance / 1000)
        return close or (math.isnan(got) and math.isnan(expected))
    if isinstance(expected, list | tuple):
        if not isinstance(got, list | tuple) or len(got) != len(expected):
            return False
        return all(_equal(g, e, tolerance) for g, e in zip(got, expected, strict=True))
    if isinstance(expected, dict):
        if not isinstance(got, dict) or got.keys() != expected.keys():
            return False
        return all(_equal(got[k], e, tolerance) for k, e in expected.items())
    return type(got) is type(expected) and got == expected


def _name_mistake(task: Exercise, cases, outcomes) -> str | None:
    """The sentence of the mistake with the same results wherever the learner's function errs."""
    for wrong, sentence in task.mistakes:
        theirs = [_outcome(task, wrong, arguments) for arguments, _ in cases]
        errs = [i for i, (_, e) in enumerate(cases) if not _same(theirs[i], e, task.tolerance)]
        if errs and all(_alike(outcomes[i], theirs[i], task.tolerance) for i in errs):
            return sentence
    return None


def _alike(a, b, tolerance: float) -> bool:
    if isinstance(b, Failure):
        return isinstance(a, Failure) and type(a.error) is type(b.error)
    return _same(a, b, tolerance)


def _describe(name: str, arguments: tuple, got, expected) -> str:
    call = _call(name, arguments)
    if isinstance(expected, dict) and isinstance(got, dict):  # only the first difference
        for key, value in expected.items():
            if key not in got or not _same(got[key], value, 1e-5):
                found = _short(got.get(key))
                return f"{call}: {key} should be {_short(value)}, but is {found}"
    wanted = f"give {_short(expected)}"
    if isinstance(expected, Raises):
        wanted = f"raise {expected.kind.__name__}"
    did = f"gave {_short(got)}"
    if isinstance(got, float) and isinstance(expected, int):
        did += " as a float: it should be a whole number (//)"
    if isinstance(got, Failure):
        did = f"raised {type(got.error).__name__}: {_short(got.error, plain=True)}"
        did += f"\n    in your line: {got.line}" if got.line else ""
    return f"{call} should {wanted}, but {did}"


def _call(name: str, arguments: tuple) -> str:
    return f"{name}({', '.join(_short(a) for a in arguments)})"


def _short(value, plain: bool = False) -> str:
    try:
        text = f"{value:.6g}" if isinstance(value, float) else str(value) if plain else repr(value)
    except (KeyboardInterrupt, TimeUp):
        raise
    except BaseException as error:  # the repr of a learner's class may fail
        way = "str" if plain else "repr"
        text = f"<a {type(value).__name__} whose {way} raises {type(error).__name__}>"
    return text if len(text) <= 200 else text[:200] + "..."


def __getattr__(name: str):  # from modules that import this one
    if name not in (homes := {"CLINIC": "ch05", "course_map": "course"}):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{homes[name]}"), name)


def load_all() -> None:
    """Import every chapter's exercises."""
    for notebook in NOTEBOOKS:
        importlib.import_module(f"{__name__}.ch{notebook[:2]}")


def show_progress() -> int:
    """Print every exercise by notebook, solved or open."""
    load_all()
    done = solved()
    for notebook in NOTEBOOKS:
        mine = [task for _, task in sorted(EXERCISES.items()) if task.notebook == notebook]
        print(f"{notebook}  {sum(task.number in done for task in mine)} of {len(mine)}")
        for task in mine:
            mark, day = ("x" if task.number in done else " "), done.get(task.number, "")
            print(f"  [{mark}] {task.number}  {task.name:<32} {day}".rstrip())
    print(f"\n{len(done.keys() & EXERCISES.keys())} of {len(EXERCISES)} solved")
    return 0
