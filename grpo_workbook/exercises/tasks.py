"""The form of an exercise, which the chapters' modules `ch00.py` to `ch17.py` fill in.

A module has one section per exercise. `exercise` registers the function that the learner writes;
`.case` adds a call of it with the right result, and `.mistake` a function that makes a typical
mistake: its docstring is the message to the learner. `experiment` registers a prediction about a
run. `checking.py` judges answers with these.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

NOTEBOOKS = [  # chapter NN has the index NN
    "00_start_here",
    "01_grpo_from_scratch",
    "02_dataset_prep",
    "03_reward_design",
    "04_grpo_run",
    "05_monitoring",
    "06_code_rewards",
    "07_stages_and_curriculum",
    "08_evaluation",
    "09_merge_and_inference",
    "10_scale_out",
    "11_tools_and_environments",
    "12_which_algorithm",
    "13_learned_rewards",
    "14_judges_and_rubrics",
    "15_pictures",
    "16_thinking",
    "17_capstone",
]
EXERCISES: dict[str, Exercise | Experiment] = {}  # by number, filled by `load_all`
BY_SOLUTION = object()  # the expected result of a case is the solution's


@dataclass(frozen=True)
class Raises:
    """The expected result of a case: an exception of this type."""

    error: type[Exception]


@dataclass(frozen=True)
class Case:
    """One call of the learner's function, and the result that it should have."""

    arguments: tuple
    expected: object


def notebook_of(number: str) -> str:
    """The notebook of an exercise's number: "04_grpo_run" for "04.1"."""
    chapter = number[:2]
    for notebook in NOTEBOOKS:
        if notebook.startswith(chapter):
            return notebook
    raise ValueError(f"there is no chapter {chapter} for the exercise {number}")


def call_directly(function: Callable, *arguments: object) -> object:
    """How most exercises call the learner's function."""
    return function(*arguments)


def as_written(*arguments: object) -> tuple:
    """How most exercises prepare the arguments of a case: not at all."""
    return arguments


@dataclass
class Exercise:
    """A function that the learner writes. The fields are the parameters of `exercise`."""

    number: str
    name: str
    solution: Callable | None
    call: Callable
    prepare: Callable[..., tuple]
    tolerance: float
    cases: list[Case] = field(default_factory=list)
    mistakes: list[Callable] = field(default_factory=list)

    @property
    def notebook(self) -> str:
        """The notebook that has this exercise, such as "04_grpo_run"."""
        return notebook_of(self.number)

    def case(
        self,
        *arguments: object,
        gives: object = BY_SOLUTION,
        raises: type[Exception] | None = None,
    ) -> None:
        """Add a call: the arguments, and the right result or the exception that is right.

        With neither of the two, the right result is what the exercise's solution gives.
        """
        if raises is not None:
            self.cases.append(Case(arguments, Raises(raises)))
            return
        if gives is BY_SOLUTION and self.solution is None:
            raise ValueError(f"exercise {self.number} has no solution: write gives= in its case")
        self.cases.append(Case(arguments, gives))

    def mistake(self, function: Callable) -> Callable:
        """Add a typical mistake: a function that makes it. Its docstring is the message.

        A learner gets the message of the first mistake that gives the learner's own results in
        every case in which the mistake is wrong.
        """
        if not function.__doc__:
            raise ValueError(f"{function.__name__} has no docstring: it is what the learner reads")
        self.mistakes.append(function)
        return function


@dataclass
class Experiment:
    """A prediction, and the run that tests it. The fields are the parameters of `experiment`."""

    number: str
    name: str
    read: Callable[[Any], tuple[str, str]]
    wrong: dict[str, str]
    examples: list[tuple[Any, str]] = field(default_factory=list)

    @property
    def notebook(self) -> str:
        """The notebook that has this experiment, such as "04_grpo_run"."""
        return notebook_of(self.number)

    def example(self, measured: object, *, gives: str) -> None:
        """Add a recorded result of a run and the prediction that it proves right, for the tests."""
        self.examples.append((measured, gives))


def exercise(
    number: str,
    name: str,
    *,
    solution: Callable | None = None,
    call: Callable = call_directly,
    prepare: Callable[..., tuple] = as_written,
    tolerance: float = 1e-6,
) -> Exercise:
    """Register an exercise, and return it for its cases and mistakes.

    `number` is such as "04.1" and `name` the function that the learner writes. `solution` computes
    the expected results of the cases that name none. `call(function, *arguments)` calls the
    learner's function where `function(*arguments)` does not fit; the result that it returns is the
    one that is compared. `prepare(*arguments)` makes the arguments of a case, such as tensors from
    lists, when the exercise is judged. Numbers agree within the relative `tolerance`; tensors and
    arrays are compared as lists. Raises ValueError for a number that another exercise has.
    """
    task = Exercise(number, name, solution, call, prepare, tolerance)
    register(task)
    return task


def experiment(
    number: str,
    name: str,
    *,
    read: Callable[[Any], tuple[str, str]],
    wrong: dict[str, str],
) -> Experiment:
    """Register an experiment, and return it for its examples.

    `read` takes the result of the learner's run and returns the right prediction and the
    measurement as a sentence; it raises ValueError, with the fix, for a result that is none.
    `wrong` has for each prediction the sentence that explains why it fails, if it does. Raises
    ValueError for a number that another exercise has.
    """
    task = Experiment(number, name, read, wrong)
    register(task)
    return task


def register(task: Exercise | Experiment) -> None:
    """Add an exercise to EXERCISES."""
    if task.number in EXERCISES:
        other = EXERCISES[task.number].name
        if other != task.name:  # the same name: the module was loaded again
            raise ValueError(f"{other} and {task.name} have the number {task.number}: renumber one")
    EXERCISES[task.number] = task


def load_all() -> None:
    """Import every chapter's module, which registers its exercises."""
    for notebook in NOTEBOOKS:
        importlib.import_module(f"grpo_workbook.exercises.ch{notebook[:2]}")


def message_of(mistake: Callable) -> str:
    """The message of a mistake: its docstring, in one line."""
    return " ".join((mistake.__doc__ or "").split())


def direction(change: float, noise: float) -> str:
    """What an experiment measured: a change within plus or minus `noise` is none."""
    if change > noise:
        return "rises"
    if change < -noise:
        return "falls"
    return "stays"


def paired_direction(before: Sequence[bool], after: Sequence[bool]) -> tuple[str, str]:
    """What an experiment measured on the same problems, by a paired test, and its numbers."""
    from grpo_workbook.statistics import paired_p_value  # SciPy: only when it is needed

    right_before = sum(before)
    right_after = sum(after)
    p = paired_p_value(before, after)
    sentence = f"{right_before} and {right_after} of {len(before)} were right, p = {p:.2g}."
    change = direction(right_after - right_before, noise=0)
    if p >= 0.05:  # none is shown
        change = "stays"
    return change, sentence
