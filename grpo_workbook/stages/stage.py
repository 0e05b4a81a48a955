"""A stage of a run: its rewards, its rows, its steps, its learning rate; in Python or in YAML."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from grpo_workbook.config import nearest
from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.rewards import name_of


@dataclass(frozen=True)
class Stage:
    """One stage. None is the run's own value; a value that cannot be raises WorkbookError.

    `rewards` is a spec (see `parse_rewards`), or pairs (function, weight); `keep` a function that
    chooses rows. `pass_rate` (low, high) keeps the rows whose pass rate, as the stage begins, lies
    between: of `samples` completions those to which `success`, a reward or its name, gives more
    than 0.5. It looks at `measured` rows (None: twice as many as the stage can use), and trains
    from easy to hard if `ordered`. With a `beta` above 0 the KL penalty holds the policy to its
    `reference`: "start", the policy as this stage begins, or "base", the model without adapter.
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
        for field, (fine, wanted) in CHECKS.items():
            if not fine(value := getattr(self, field)):
                raise WorkbookError(f"stage {self.name!r}: {field} is {value!r}: give {wanted}")
        if self.pass_rate is None and (self.ordered or self.measured):
            raise WorkbookError(
                f"stage {self.name!r}: ordered and measured need pass_rate: [low, high]"
            )

    @classmethod
    def from_dict(cls, given: Mapping) -> "Stage":
        """A stage from plain values, as YAML has them. Unknown names are refused, never ignored."""
        if not isinstance(given, Mapping):
            raise WorkbookError(f"a stage is {given!r}: give a mapping with name, steps and more")
        known = [f.name for f in fields(cls) if f.name != "keep"]  # a function has no plain form
        for name in given:
            if name not in known:
                raise WorkbookError(f"a stage has no {name!r}: {nearest(name, known)}")
        if missing := [name for name in ("name", "steps") if name not in given]:
            raise WorkbookError(f"the stage {dict(given)} lacks {' and '.join(missing)}")
        values = dict(given)
        for name in ("learning_rate", "beta"):  # 1e-3 is a text in YAML 1.1
            if isinstance(value := values.get(name), str) and re.fullmatch(r"[\d.]+e-?\d+", value):
                values[name] = float(value)
        if isinstance(values.get("pass_rate"), list):
            values["pass_rate"] = tuple(values["pass_rate"])
        return cls(**values)

    def to_dict(self) -> dict:
        """What this stage is, in plain values: equal for equal stages. Functions go by name."""
        told = {f.name: getattr(self, f.name) for f in fields(self)}
        if self.rewards is not None and not isinstance(self.rewards, str):
            told["rewards"] = [[name_of(function), weight] for function, weight in self.rewards]
        if not isinstance(self.success, str):
            told["success"] = name_of(self.success)
        told["keep"] = None if self.keep is None else getattr(self.keep, "__name__", "a function")
        told["pass_rate"] = None if self.pass_rate is None else list(self.pass_rate)
        return told


def whole(value) -> bool:
    """Whether this is a whole number (True is none)."""
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value) -> bool:
    return whole(value) or (isinstance(value, float) and math.isfinite(value))


def bounds(value) -> bool:
    """Whether this is (low, high) with 0 <= low < high <= 1."""
    pair = isinstance(value, tuple) and len(value) == 2 and all(map(_number, value))
    return pair and 0 <= value[0] < value[1] <= 1


def _rewards(value) -> bool:
    pairs = isinstance(value, tuple) and all(isinstance(p, tuple) and len(p) == 2 for p in value)
    return len(value) > 0 and pairs and all(callable(f) and _number(w) for f, w in value)


LETTERS = "up to 40 small letters, digits, - and _: it names a folder"
CHECKS: dict[str, tuple[Callable, str]] = {
    "name": (lambda v: isinstance(v, str) and re.fullmatch(r"[a-z0-9][a-z0-9_-]{,39}", v), LETTERS),
    "steps": (lambda v: whole(v) and v > 0, "a whole number, at least 1"),
    "rewards": (
        lambda v: v is None or isinstance(v, str) or _rewards(v),
        "NAME:WEIGHT,... or pairs (function, weight)",
    ),
    "learning_rate": (lambda v: v is None or (_number(v) and v > 0), "a number above 0"),
    "beta": (lambda v: v is None or (_number(v) and v >= 0), "a number, at least 0"),
    "reference": (lambda v: v in ("start", "base"), "start or base"),
    "keep": (lambda v: v is None or callable(v), "a function of a row"),
    "pass_rate": (lambda v: v is None or bounds(v), "[low, high] with 0 <= low < high <= 1"),
    "success": (lambda v: isinstance(v, str) or callable(v), "a reward, or its name"),
    "samples": (lambda v: whole(v) and v > 1, "at least 2: one has no rate between 0 and 1"),
    "measured": (lambda v: v is None or (whole(v) and v > 0), "a whole number, at least 1"),
    "ordered": (lambda v: isinstance(v, bool), "true or false"),
}


def rounds(stage: Stage, number: int) -> tuple[Stage, ...]:
    """The stage several times, as name-1, name-2, ...: with a `beta` each has its own reference."""
    if not whole(number) or number < 1:
        raise WorkbookError(f"{number!r} rounds: give a whole number, at least 1")
    return tuple(replace(stage, name=f"{stage.name}-{i}") for i in range(1, number + 1))


def read_stages(path: Path | str) -> tuple[Stage, ...]:
    """The stages of a YAML file, a list of mappings. Raises WorkbookError with the file's name."""
    import yaml

    try:
        given = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        if not isinstance(given, list):
            raise WorkbookError("give a list: one mapping with name and steps for each stage")
        return check_stages([Stage.from_dict(stage) for stage in given])
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        what = "" if isinstance(error, WorkbookError) else "it cannot be read as YAML: "
        raise WorkbookError(f"{path}: {what}{first_line(error)}") from None


def check_stages(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """The stages as a tuple; WorkbookError when there is none, or two have one name."""
    names = [stage.name for stage in stages]
    if not names:
        raise WorkbookError("no stages: give at least one")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise WorkbookError(f"two stages are called {', '.join(twice)}: give each its own name")
    return tuple(stages)
