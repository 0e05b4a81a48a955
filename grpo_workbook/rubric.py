"""Rewards by name, with their weights, and what they say about sample completions before any training.

    functions, weights = parse_rewards("correctness:2,strict_format:0.5,overlong=200:0.3")
    score(functions, completions, rows, weights=weights).show()

`functions` and `weights` are TRL's `reward_funcs` and `reward_weights`.
"""

import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from grpo_workbook import rewards, shaping
from grpo_workbook.config import RunConfig
from grpo_workbook.errors import WorkbookError
from grpo_workbook.reward_files import OWN, load_reward
from grpo_workbook.rewards import Completion, RewardFunction

DEFAULT_REWARDS = RunConfig.rewards


@dataclass(frozen=True)
class Entry:
    """A reward that can be had by name. `low` and `high` are the range of one completion's reward."""

    make: Callable[..., RewardFunction]  # from the argument behind "=", if there is one
    description: str
    low: float = 0.0
    high: float = 1.0
    argument: str = ""  # what stands behind "="; with "!" it must be given


def _whole(text: str) -> int:
    if not text.strip().isdecimal() or len(text) > 9:
        raise WorkbookError(f"{text!r} is not a whole number")
    return int(text)


def _schema_file(text: str) -> RewardFunction:
    try:
        return rewards.json_schema(json.loads(Path(text).read_text(encoding="utf-8")))
    except RecursionError:
        raise WorkbookError(f"the schema {text!r} is nested too deeply") from None
    except (OSError, ValueError) as error:
        raise WorkbookError(f"the schema {text!r} cannot be used: {error}") from None


def _symbolic() -> RewardFunction:
    from grpo_workbook.reward_lab.symbolic import SymbolicChecker

    return rewards.symbolic_correctness(SymbolicChecker())


def _unit_tests(form: str = "binary") -> RewardFunction:
    from grpo_workbook.sandbox.rewards import unit_tests
    from grpo_workbook.sandbox.sandbox import Sandbox

    if form not in ("binary", "partial"):
        raise WorkbookError(f"{form!r}: choose binary or partial")
    return unit_tests(Sandbox(), partial=form == "partial")


def _code_format() -> RewardFunction:
    from grpo_workbook.sandbox.rewards import code_format_reward

    return code_format_reward


REGISTRY: dict[str, Entry] = {
    "correctness": Entry(
        lambda: rewards.correctness_reward, "the only answer block holds exactly the right number"
    ),
    "symbolic": Entry(
        _symbolic,
        "the final answer equals the right one as mathematics (LaTeX, through math-verify)",
    ),
    "integer_answer": Entry(
        lambda: rewards.integer_answer_reward, "the only answer block holds a whole number"
    ),
    "json_schema": Entry(
        _schema_file, "the answer is JSON that follows a schema", argument="FILE!"
    ),
    "strict_format": Entry(
        lambda: rewards.strict_format_reward, "reasoning block, answer block, nothing else"
    ),
    "soft_format": Entry(
        lambda: rewards.soft_format_reward, "both blocks in order, whatever stands around"
    ),
    "incremental_format": Entry(
        lambda: rewards.incremental_format_reward, "a quarter for each tag in place"
    ),
    "reasoning_steps": Entry(
        lambda n="2": shaping.reasoning_steps(_whole(n)),
        "true equations in the reasoning",
        argument="STEPS",
    ),
    "length": Entry(
        lambda n: shaping.length(_whole(n)), "near a target length", argument="TOKENS!"
    ),
    "overlong": Entry(
        lambda n: shaping.overlong(_whole(n)),
        "penalty near and beyond a length (DAPO)",
        -1.0,
        0.0,
        argument="TOKENS!",
    ),
    "repetition": Entry(
        lambda n="4": shaping.repetition(_whole(n)),
        "penalty for repeated n-grams",
        -1.0,
        0.0,
        argument="N",
    ),
    "style": Entry(lambda: shaping.style(), "penalty for unwanted phrases", -1.0, 0.0),
    "unit_tests": Entry(
        _unit_tests, "the program passes its task's test, in the sandbox", argument="binary|partial"
    ),
    "code_format": Entry(_code_format, "one fenced block of Python that compiles"),
    "debug": Entry(
        lambda n="10": shaping.debug(_whole(n)),
        "counts nothing, prints a sample",
        0.0,
        0.0,
        argument="CALLS",
    ),
}


def parse_rewards(spec: str) -> tuple[list[RewardFunction], list[float]]:
    """(functions, weights) of "name[=argument][:weight],...": TRL's reward_funcs and reward_weights.

    FILE.py:FUNCTION[:weight] is a function of one's own (reward_files.py). A weight is 1 if left out, and 0 for a
    reward that shall only be logged.
    Raises WorkbookError for an unknown name (it lists the known ones), one that is there twice, an argument too many or
    too few, a weight that is no number, not finite or negative (penalties are negative already), all weights 0.
    """
    functions, weights, seen = [], [], set()
    for part in (p.strip() for p in spec.split(",")):
        if found := OWN.fullmatch(part):
            functions.append(load_reward(found["file"], found["name"].strip()))
            weights.append(
                1.0 if found["weight"] is None else _weight(found["name"], found["weight"])
            )
            seen.add(part)
            continue
        call, colon, weight = part.partition(":")
        name, equals, argument = (x.strip() for x in call.partition("="))
        if not name:
            raise WorkbookError(
                f"a reward is missing in {spec!r}: give name[:weight], with one comma between two"
            )
        if name not in REGISTRY:
            own = (
                ", or FILE.py:FUNCTION for your own, its path without a comma"
                if ".py" in spec
                else ""
            )
            raise WorkbookError(f"unknown reward {name!r}: choose from {', '.join(REGISTRY)}{own}")
        if name in seen:
            raise WorkbookError(
                f"the reward {name!r} is there twice: give it once, with one weight"
            )
        seen.add(name)
        entry = REGISTRY[name]
        if entry.argument.endswith("!") and not argument:
            raise WorkbookError(
                f"the reward {name!r} needs an argument: {name}={entry.argument[:-1]}"
            )
        if equals and not entry.argument:
            raise WorkbookError(f"the reward {name!r} takes no argument: leave out ={argument}")
        try:
            functions.append(entry.make(argument) if argument else entry.make())
        except WorkbookError as error:
            raise WorkbookError(f"{name}={argument}: {error}") from None
        weights.append(_weight(name, weight) if colon else 1.0)
    if set(seen) == {"debug"}:
        raise WorkbookError(
            f"{spec!r} holds no reward but debug, which is always 0: add one to learn from"
        )
    if not any(weights):
        raise WorkbookError(
            f"every weight in {spec!r} is 0, so nothing would be learned: give one more than 0"
        )
    names = [rewards.name_of(f) for f in functions]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise WorkbookError(
            f"two rewards in {spec!r} have the name {twice!r} in the log: rename your function"
        )
    return functions, weights


def _weight(name: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        raise WorkbookError(f"the weight {text!r} of {name!r} is not a number") from None
    if not math.isfinite(weight) or weight < 0:
        raise WorkbookError(
            f"the weight {text.strip()} of {name!r}: give a number from 0 up (penalties are negative already)"
        )
    return weight


# ------------------------------------------------------------------ what they say, before training


@dataclass(frozen=True)
class Scored:
    """The rewards of sample completions: `groups` holds for each function its groups, each a list of rewards."""

    groups: dict[str, list[list[float | None]]]
    weights: dict[str, float]
    completions: list[str] = field(repr=False, default_factory=list)

    @cached_property
    def totals(self) -> list[list[float]]:
        """What GRPO compares in each group: TRL's weighted sum, where None counts as 0."""
        tables = zip(*(self.groups[name] for name in self.weights), strict=True)
        return [
            [
                sum(w * (v or 0.0) for w, v in zip(self.weights.values(), values, strict=True))
                for values in zip(*group, strict=True)
            ]
            for group in tables
        ]

    def rows(self) -> list[dict]:
        """One row for each function and one for the total: weight, n, none, mean, std, min, max, equal_groups.

        `equal_groups` is the share of groups in which all rewards are equal: alone it gives no gradient there.
        `none` counts completions to which it did not apply; they are left out of the other numbers.
        """
        table = {**self.groups, "total": self.totals}
        return [
            {"reward": name, "weight": self.weights.get(name), **_row(groups)}
            for name, groups in table.items()
        ]

    def to_dict(self) -> dict:
        """Everything, as plain lists and numbers."""
        return {"rows": self.rows(), "groups": {**self.groups, "total": self.totals}}

    def show(self) -> None:
        """Print the rows as a table of at most 80 columns."""
        from rich.console import Console
        from rich.table import Table

        columns = ("weight", "none", "mean", "std", "min", "max", "equal")
        table = Table(
            title=f"{len(self.totals)} groups of {len(self.totals[0])}", title_justify="left"
        )
        table.caption, table.caption_justify = (
            "equal: groups whose rewards are all equal, so without gradient",
            "left",
        )
        table.add_column("reward")
        for name in columns:
            table.add_column(name, justify="right")
        for row in self.rows():
            if row["reward"] == "total":
                table.add_section()
            cells = ["" if row["weight"] is None else f"{row['weight']:g}", str(row["none"])]
            cells += [
                "-" if row[k] is None else f"{row[k]:.2f}" for k in ("mean", "std", "min", "max")
            ]
            table.add_row(
                row["reward"].removesuffix("_reward"), *cells, f"{row['equal_groups']:.0%}"
            )
        Console(width=80, highlight=False).print(table)

    def figure(self):
        """(figure, text alternative): for each function the rewards within each group."""
        from grpo_workbook import figures

        return figures.reward_distributions({**self.groups, "total": self.totals})


def _row(groups: list[list[float | None]]) -> dict:
    given = [v for group in groups for v in group if v is not None]
    return {
        "n": sum(map(len, groups)),
        "none": sum(v is None for group in groups for v in group),
        "mean": statistics.fmean(given) if given else None,
        "std": statistics.pstdev(given) if given else None,
        "min": min(given, default=None),
        "max": max(given, default=None),
        "equal_groups": sum(len(set(group)) == 1 for group in groups) / len(groups),
    }


def score(
    functions: Sequence[RewardFunction],
    completions: Sequence[Completion],
    rows: Sequence[dict],
    *,
    group_size: int,
    weights: Sequence[float] | None = None,
) -> Scored:
    """Every reward for every completion, group by group: what GRPO would see, before any training.

    `rows` are the dataset's rows: one for each group, or one for each completion; their columns are passed on as TRL
    does. Raises WorkbookError when the numbers do not fit, or a function breaks the contract (it is named).
    """
    n = len(completions)
    if not functions:
        raise WorkbookError("no reward functions: give at least 1")
    if not isinstance(group_size, int) or group_size < 2 or n == 0 or n % group_size:
        raise WorkbookError(
            f"{n} completions cannot be cut into groups of {group_size}: give whole groups of 2 or more"
        )
    rows = (
        [row for row in rows for _ in range(group_size)]
        if len(rows) * group_size == n
        else list(rows)
    )
    if len(rows) != n:
        raise WorkbookError(
            f"{len(rows)} rows for {n} completions: give one for each group, or one for each completion"
        )
    weights = [1.0] * len(functions) if weights is None else [float(w) for w in weights]
    names = [rewards.name_of(f) for f in functions]
    if len(weights) != len(names) or len(set(names)) != len(names):
        raise WorkbookError(
            f"{len(weights)} weights for the rewards {', '.join(names)}: one each, and no name twice"
        )
    odd = next(
        (
            i
            for i, row in enumerate(rows)
            if not isinstance(row, dict) or row.keys() != rows[0].keys()
        ),
        None,
    )
    if odd is not None:
        raise WorkbookError(f"row {odd} has not the columns of row 0: {str(rows[odd])[:80]}")
    columns = {
        key: [row[key] for row in rows]
        for key in rows[0]
        if key not in ("completion", "completion_ids")
    }
    columns["prompts"] = columns.pop("prompt", [""] * n)
    groups = {}
    for name, function in zip(names, functions, strict=True):
        values = rewards.plain_values(name, function(completions=list(completions), **columns), n)
        groups[name] = [list(values[i : i + group_size]) for i in range(0, n, group_size)]
    texts = [rewards.text_of(c) for c in completions]
    return Scored(groups, dict(zip(names, weights, strict=True)), texts)
