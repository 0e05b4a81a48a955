"""Judge the learner's answers: `check` a function, `predict` the result of a run.

A function is called with every case of its exercise. If a result is wrong, the message is that of
the typical mistake with the same wrong results, or else shows the first case that differs.
"""

import copy
import math
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_workbook.exercises.progress import record
from grpo_workbook.exercises.tasks import (
    BY_SOLUTION,
    EXERCISES,
    Case,
    Exercise,
    Experiment,
    Raises,
    load_all,
    message_of,
)

LONGEST = 200  # characters of a value in a message


@dataclass(frozen=True)
class Result:
    """The result of a check. `status` is "solved", "not attempted" or "wrong"."""

    number: str
    status: str
    message: str

    def __str__(self) -> str:
        heading = self.status.capitalize()
        if self.status == "wrong":
            heading = "Not yet"
        return f"{heading}: {self.message}"


@dataclass(frozen=True)
class Failure:
    """The outcome of a case that ended in an exception, and its line in the learner's function."""

    error: BaseException
    line: str


def check(number: str, fn: Callable) -> Result:
    """Judge the learner's function, print the result, and record a solution as progress.

    An exception of the function is not raised but shown, with the arguments that caused it.
    Jupyter's interrupt stops a function that does not end. Raises ValueError for a number that no
    exercise has.
    """
    result = judge(number, fn)
    show(result)
    return result


def predict(number: str, prediction: object, run: Callable[[], object]) -> Result:
    """Judge a prediction by the run that tests it, print the result, and record a right one.

    `prediction` is one of the experiment's words; while it is `...` nothing runs. Exceptions of the
    run are not caught.
    """
    task = find_task(number)
    if not isinstance(task, Experiment):
        raise ValueError(f"{number} asks for a function and no prediction: use check")
    choices = ", ".join(map(repr, task.wrong))
    if prediction is ...:
        message = f"set the prediction to one of {choices}, then run the cell again"
        result = Result(number, "not attempted", message)
    elif prediction not in task.wrong:
        message = f"the prediction is {prediction!r}: choose from {choices}"
        result = Result(number, "wrong", message)
    else:
        result = judge_prediction(task, str(prediction), run())
    show(result)
    return result


def show(result: Result) -> None:
    """Print a result, and record it if it is a solution."""
    print(result)
    if result.status == "solved":
        trouble = record(result.number)
        if trouble is not None:
            print(f"It could not be recorded: {trouble}")


def find_task(number: str) -> Exercise | Experiment:
    """The exercise with this number; raises ValueError if there is none."""
    load_all()
    if number not in EXERCISES:
        known = ", ".join(sorted(EXERCISES))
        raise ValueError(f"no exercise has the number {number!r}: choose from {known}")
    return EXERCISES[number]


def judge_prediction(task: Experiment, prediction: str, measured: object) -> Result:
    """Compare a prediction with the measurement, without printing or recording."""
    try:
        right, measurement = task.read(measured)
    except (ValueError, LookupError, TypeError) as error:
        message = f"the result of the run could not be read ({type(error).__name__}: {error})"
        return Result(task.number, "wrong", message)
    if prediction == right:
        return Result(task.number, "solved", f"{right!r} it is. {measurement}")
    message = f"not {prediction!r}. {measurement} {task.wrong[prediction]}"
    return Result(task.number, "wrong", message)


def judge(number: str, fn: Callable) -> Result:
    """Judge the learner's function without printing or recording.

    Raises ValueError for a number that no exercise has.
    """
    task = find_task(number)
    if not isinstance(task, Exercise):
        raise ValueError(f"{number} asks for a prediction and no function: use predict")
    if not callable(fn):
        message = f"{task.name} is {short(fn)}: give the function itself, without calling it"
        return Result(number, "wrong", message)
    cases = [prepared(task, case) for case in task.cases]
    outcomes = []
    for case in cases:
        outcome = outcome_of(task, fn, case)
        if isinstance(outcome, Failure) and isinstance(outcome.error, NotImplementedError):
            message = f"write {task.name}, then run the cell again"
            return Result(number, "not attempted", message)
        outcomes.append(outcome)
    for case, outcome in zip(cases, outcomes, strict=True):
        if not agrees(outcome, case.expected, task.tolerance):
            message = name_mistake(task, cases, outcomes)
            if message is None:
                message = describe(task, case, outcome)
            return Result(number, "wrong", message)
    return Result(number, "solved", f"{task.name} is right on {len(cases)} cases")


def prepared(task: Exercise, case: Case) -> Case:
    """The case with its final arguments and its expected result."""
    case = Case(task.prepare(*case.arguments), case.expected)
    if case.expected is BY_SOLUTION and task.solution is not None:
        return Case(case.arguments, outcome_of(task, task.solution, case))
    return case


def outcome_of(task: Exercise, fn: Callable, case: Case) -> object:
    """What the function gives for copies of the case's arguments, or its Failure."""
    try:
        return task.call(fn, *copy.deepcopy(case.arguments))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also SystemExit: a learner's exit() ends no notebook
        return Failure(error, line_in(fn, error))


def line_in(fn: Callable, error: BaseException) -> str:
    """The last line of the function's own file that the exception passed, or an empty text."""
    code = getattr(fn, "__code__", None)  # a class or a built-in function has none
    if code is None:
        return ""
    line = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == code.co_filename:
            line = frame.line or ""
    return line


def name_mistake(task: Exercise, cases: list[Case], outcomes: list) -> str | None:
    """The message of the first mistake with the learner's results wherever the mistake is wrong."""
    for mistake in task.mistakes:
        wrong_cases = 0
        same = True
        for case, outcome in zip(cases, outcomes, strict=True):
            wrong = outcome_of(task, mistake, case)
            if agrees(wrong, case.expected, task.tolerance):
                continue
            wrong_cases += 1
            same = same and alike(outcome, wrong, task.tolerance)
        if same and wrong_cases > 0:
            return message_of(mistake)
    return None


def alike(outcome: object, wrong: object, tolerance: float) -> bool:
    """Whether the learner's outcome is the mistake's: the same result, or the same exception."""
    if isinstance(wrong, Failure):
        return isinstance(outcome, Failure) and type(outcome.error) is type(wrong.error)
    return agrees(outcome, wrong, tolerance)


def agrees(outcome: object, expected: object, tolerance: float) -> bool:
    """Whether an outcome is as expected; one that cannot be compared is not."""
    if isinstance(outcome, Failure):
        if isinstance(outcome.error, NotImplementedError) or not isinstance(expected, Raises):
            return False
        return isinstance(outcome.error, expected.error)
    try:
        return equal(outcome, expected, tolerance)
    except Exception:  # such as a tensor without data, 10**400 as a float, a broken ==
        return False


def equal(value: Any, expected: Any, tolerance: float) -> bool:
    """Whether two values are equal; numbers within the tolerance, tensors and arrays as lists."""
    value = as_python(value)
    expected = as_python(expected)
    if isinstance(expected, float):
        return close(value, expected, tolerance)
    if isinstance(expected, list | tuple):
        return isinstance(value, list | tuple) and equal_items(value, expected, tolerance)
    if isinstance(expected, dict):
        if not isinstance(value, dict) or value.keys() != expected.keys():
            return False
        return all(equal(value[key], wanted, tolerance) for key, wanted in expected.items())
    return type(value) is type(expected) and value == expected


def equal_items(values: Sequence, expected: Sequence, tolerance: float) -> bool:
    """Whether two lists have as many items, and equal ones."""
    if len(values) != len(expected):
        return False
    pairs = zip(values, expected, strict=True)
    return all(equal(value, wanted, tolerance) for value, wanted in pairs)


def as_python(value: Any) -> Any:
    """The numbers of a tensor, an array or a NumPy number; other values as they are."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return value


def close(value: Any, expected: float, tolerance: float) -> bool:
    """Whether a number is near enough; a whole number may stand for a float, True may not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if math.isnan(expected):
        return math.isnan(value)
    return math.isclose(value, expected, rel_tol=tolerance, abs_tol=tolerance / 1000)


def describe(task: Exercise, case: Case, outcome: object) -> str:
    """The call of a case, its expected result and what the learner's function did instead."""
    call = f"{task.name}({', '.join(map(short, case.arguments))})"
    expected = case.expected
    if isinstance(expected, dict) and isinstance(outcome, dict):
        for key, value in expected.items():  # name only the first key that differs
            if key not in outcome or not agrees(outcome[key], value, 1e-5):
                return f"{call}: {key} should be {short(value)}, but is {short(outcome.get(key))}"
    wanted = f"give {short(expected)}"
    if isinstance(expected, Raises):
        wanted = f"raise {expected.error.__name__}"
    message = f"{call} should {wanted}, but {deed(outcome)}"
    if isinstance(outcome, float) and isinstance(expected, int):
        message += " as a float: it should be a whole number (//)"
    return message


def deed(outcome: object) -> str:
    """What the learner's function did: "gave 7", or "raised ..." with the line."""
    if not isinstance(outcome, Failure):
        return f"gave {short(outcome)}"
    error = outcome.error
    text = f"raised {type(error).__name__}: {error_text(error)}"
    if outcome.line:
        text += f"\n    in your line: {outcome.line}"
    return text


def short(value: object) -> str:
    """A value as text for a message."""
    try:
        if isinstance(value, float):
            return f"{value:.6g}"
        return cut(repr(value))
    except Exception as error:  # the repr of a learner's class may fail
        return f"<a {type(value).__name__} whose repr raises {type(error).__name__}>"


def error_text(error: BaseException) -> str:
    """The text of a learner's exception."""
    try:
        return cut(str(error))
    except Exception:  # a class of the learner's may have no text
        return "<no text>"


def cut(text: str) -> str:
    """A text of at most LONGEST characters."""
    if len(text) <= LONGEST:
        return text
    return text[:LONGEST] + "..."
