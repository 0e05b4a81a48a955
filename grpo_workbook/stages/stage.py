"""A stage of a run, with its rewards, rows, steps and learning rate; in Python or YAML."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from grpo_workbook.config import nearest
from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.rewards import name_of


@dataclass(frozen=True)
class Stage:
    """One stage. None means the run's own value; invalid values raise WorkbookError.

    `rewards` is a spec (see `parse_rewards`), or pairs (function, weight); `keep` is a function
    that chooses rows. `pass_rate` (low, high) keeps the rows with a pass rate between the two at
    the start of the stage: the fraction of `samples` completions with a `success` reward (or its
    name) above 0.5, for `measured` rows (None: twice as many as the stage can use). `ordered`
    trains from easy to hard. With `beta` above 0 the KL penalty ties the policy to its `reference`:
    "start", the policy at the start of this stage, or "base", the model without adapter.
    """

    name: str
    steps: int
    rewards: "str | tuple | None" = None
    learning_rate: float | None = None
    beta: float | None = None
    reference: str = "start"
    keep: Callable[[dict], bool] | None = None
    pass_rate: tuple[float, float] | None = None
    success: "str | Callable" = "correctness"
    samples: int = 8
    measured: int | None = None
    ordered: bool = False

    def __post_init__(self):
        letters = isinstance(self.name, str) and re.fullmatch(r"[a-z0-9][a-z0-9_-]{,39}", self.name)
        kind, needed = isinstance(self.rewards, str | tuple | None), self.ordered or self.measured
        for field, fine, wanted in (
            ("name", letters, "up to 40 small letters, digits, - and _, for a folder's name"),
            ("rewards", kind, "NAME:WEIGHT,... or pairs (function, weight)"),
            ("reference", self.reference in ("start", "base"), "start or base"),
            ("pass_rate", _are_bounds(self.pass_rate), "[low, high] with 0 <= low < high <= 1"),
            ("samples", self.samples > 1, "at least 2: the rate of one is always 0 or 1"),
            ("measured", self.measured is None or self.measured > 0, "at least 1"),
            ("pass_rate", self.pass_rate or not needed, "bounds: ordered and measured need them"),
        ):
            if not fine:
                value = getattr(self, field)
                raise WorkbookError(f"stage {self.name!r}: {field} is {value!r}: give {wanted}")

    @classmethod
    def from_dict(cls, given: Mapping) -> "Stage":
        """A stage from plain values, such as YAML's. Unknown names raise WorkbookError."""
        if not isinstance(given, Mapping):
            raise WorkbookError(f"a stage is {given!r}: give a mapping with name, steps and others")
        known = [f.name for f in fields(cls) if f.name != "keep"]  # a function
        for name in given:
            if name not in known:
                raise WorkbookError(f"a stage has no {name!r}: {nearest(name, known)}")
        if missing := [name for name in ("name", "steps") if name not in given]:
            raise WorkbookError(f"the stage {dict(given)} lacks {' and '.join(missing)}")
        values = dict(given)
        for name, value in given.items():
            if name in ("learning_rate", "beta") and re.fullmatch(r"[\d.]+e-?\d+", str(value)):
                values[name] = float(value)  # 1e-3 is a text in YAML 1.1
            if name == "pass_rate" and isinstance(value, list):
                values[name] = tuple(value)
        return cls(**values)

    def to_dict(self) -> dict:
        """This stage in plain values, with functions by name; equal for equal stages."""
        told = vars(self) | {"pass_rate": self.pass_rate and list(self.pass_rate)}
        if isinstance(self.rewards, tuple):
            told["rewards"] = [[name_of(function), weight] for function, weight in self.rewards]
        functions = {name: told[name] for name in ("success", "keep") if callable(told[name])}
        return told | {name: name_of(function) for name, function in functions.items()}


def _are_bounds(value) -> bool:
    """Whether this is None, or (low, high) with 0 <= low < high <= 1."""
    pair = isinstance(value, tuple) and len(value) == 2
    return value is None or (pair and 0 <= value[0] < value[1] <= 1)


def read_stages(path: Path | str) -> tuple[Stage, ...]:
    """The stages of a YAML file, a list of mappings. Raises WorkbookError with the file's name."""
    import yaml

    try:
        given = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        if not isinstance(given, list) or not given:
            raise WorkbookError("give a list: one mapping with name and steps for each stage")
        return tuple(Stage.from_dict(stage) for stage in given)
    except (OSError, yaml.YAMLError, ValueError, TypeError) as error:
        what = "" if isinstance(error, WorkbookError) else "cannot be read as stages: "
        raise WorkbookError(f"{path}: {what}{first_line(error)}") from None
