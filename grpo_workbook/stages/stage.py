"""A stage of a run: its rewards, its rows, its steps, its learning rate. What trains them is stages.py.

    STAGES = (
        Stage("format", steps=20, rewards="strict_format,incremental_format"),
        Stage("correct", steps=60, rewards="correctness:2,strict_format:0.5", pass_rate=(0.1, 0.9)),
    )

or the same as a YAML file, a list of mappings with these names (`read_stages`).
"""

import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from grpo_workbook.cli.yaml_file import read_yaml_file
from grpo_workbook.errors import WorkbookError

REFERENCES = ("start", "base")


@dataclass(frozen=True)
class Stage:
    """One stage. What is None is taken from the run's settings; a value that cannot be raises WorkbookError.

    `rewards` is a spec (see rubric.parse_rewards), or pairs (function, weight). `keep` chooses rows by a function of
    the row. `pass_rate` (low, high) keeps the rows that the policy, as the stage begins, gets right in a share above
    low and below high of `samples` completions; right is what `success`, a reward by name, gives more than 0.5. It
    looks at `measured` rows (None: twice as many as the stage can use), and trains from easy to hard if `ordered`.

    With a `beta` above 0 the KL penalty holds the policy to a reference: "start", the policy as this stage begins
    (refreshed at each stage), or "base", the model without its adapter.
    """

    name: str
    steps: int
    rewards: "str | tuple | None" = None
    learning_rate: float | None = None
    beta: float | None = None
    reference: str = "start"
    keep: Callable[[dict], bool] | None = None
    pass_rate: tuple[float, float] | None = None
    success: str = "correctness"
    samples: int = 8
    measured: int | None = None
    ordered: bool = False

    def __post_init__(self):
        where = f"stage {self.name!r}"
        if not isinstance(self.name, str) or not re.fullmatch(
            r"[a-z0-9][a-z0-9_-]{0,39}", self.name
        ):
            raise WorkbookError(
                f"{where}: a name is up to 40 small letters, digits, - and _, for it names a folder"
            )
        for name, value in (("steps", self.steps), ("measured", self.measured)):
            if not (_whole(value) and value > 0) and not (name == "measured" and value is None):
                raise WorkbookError(
                    f"{where}: {name} is {value!r}: give a whole number, at least 1"
                )
        if not _whole(self.samples) or self.samples < 2:
            raise WorkbookError(
                f"{where}: samples is {self.samples!r}: give at least 2, or no share lies between"
            )
        if self.learning_rate is not None and not (
            _finite(self.learning_rate) and self.learning_rate > 0
        ):
            raise WorkbookError(
                f"{where}: learning_rate is {self.learning_rate!r}: give a number more than 0"
            )
        if self.beta is not None and not (_finite(self.beta) and self.beta >= 0):
            raise WorkbookError(f"{where}: beta is {self.beta!r}: give a number, at least 0")
        if self.reference not in REFERENCES:
            raise WorkbookError(
                f"{where}: reference is {self.reference!r}: choose from {', '.join(REFERENCES)}"
            )
        if self.keep is not None and not callable(self.keep):
            raise WorkbookError(f"{where}: keep is {self.keep!r}: give a function of a row")
        if self.pass_rate is not None:
            check_bounds(self.pass_rate, where)
        if not isinstance(self.success, str):
            raise WorkbookError(f"{where}: success is {self.success!r}: give a reward by its name")
        if not isinstance(self.ordered, bool):
            raise WorkbookError(f"{where}: ordered is {self.ordered!r}: give true or false")
        for name in ("measured", "ordered"):
            if getattr(self, name) and self.pass_rate is None:
                raise WorkbookError(
                    f"{where}: {name} is given without pass_rate: give pass_rate: [low, high] too"
                )

    @classmethod
    def from_dict(cls, given: Mapping) -> "Stage":
        """A stage from plain values, as YAML or JSON has them. Names that a Stage lacks are refused, never ignored."""
        if not isinstance(given, Mapping):
            raise WorkbookError(
                f"a stage is {given!r}: give a mapping with name, steps and what else differs"
            )
        known = [f.name for f in fields(cls) if f.name != "keep"]  # a function has no plain form
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(str(name), known, 1)
                mend = f"did you mean {near[0]}?" if near else f"choose from {', '.join(known)}"
                raise WorkbookError(f"a stage has no {name!r}: {mend}")
        if missing := [name for name in ("name", "steps") if name not in given]:
            raise WorkbookError(f"the stage {dict(given)} lacks {' and '.join(missing)}")
        if not isinstance(given.get("rewards"), str | None):
            raise WorkbookError(
                f"stage {given['name']!r}: rewards is {given['rewards']!r}: give name:weight,..."
            )
        values = dict(given)
        if isinstance(values.get("pass_rate"), list):
            values["pass_rate"] = tuple(values["pass_rate"])
        return cls(**values)

    def to_dict(self) -> dict:
        """What this stage is, in plain values: two stages with the same are the same. Functions go by their names."""
        told = {f.name: getattr(self, f.name) for f in fields(self)}
        if self.rewards is not None and not isinstance(self.rewards, str):
            told["rewards"] = [[function.__name__, weight] for function, weight in self.rewards]
        told["keep"] = None if self.keep is None else getattr(self.keep, "__name__", "a function")
        told["pass_rate"] = None if self.pass_rate is None else list(self.pass_rate)
        return told


def rounds(stage: Stage, number: int) -> tuple[Stage, ...]:
    """The same stage several times, as name-1, name-2, ...; with a `beta` each round has its own start as reference."""
    from dataclasses import replace

    if not _whole(number) or number < 1:
        raise WorkbookError(f"{number!r} rounds: give a whole number, at least 1")
    return tuple(replace(stage, name=f"{stage.name}-{i}") for i in range(1, number + 1))


def read_stages(path: Path | str) -> tuple[Stage, ...]:
    """The stages of a YAML file: a list of mappings. Raises WorkbookError with the file's name."""
    given = read_yaml_file(path, "the file of stages")
    try:
        if not isinstance(given, list):
            raise WorkbookError("give a list: one mapping with name and steps for each stage")
        return check_stages([Stage.from_dict(stage) for stage in given])
    except WorkbookError as error:
        raise WorkbookError(f"{path}: {error}") from None


def check_stages(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """The stages as a tuple; WorkbookError when there is none, or two have one name."""
    names = [stage.name for stage in stages]
    if not names:
        raise WorkbookError("no stages: give at least one")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise WorkbookError(f"two stages are called {', '.join(twice)}: give each its own name")
    return tuple(stages)


def check_bounds(bounds, where: str = "the curriculum") -> None:
    """Raise WorkbookError unless these are two shares, low before high."""
    fine = isinstance(bounds, tuple | list) and len(bounds) == 2 and all(map(_finite, bounds))
    if not fine or not 0 <= bounds[0] < bounds[1] <= 1:
        raise WorkbookError(
            f"{where}: pass_rate is {bounds!r}: give [low, high] with 0 <= low < high <= 1"
        )


def _whole(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _finite(value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
