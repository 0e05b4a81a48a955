"""Test rewards before training: a table of scores, and attacks.

    functions, weights = parse_rewards("correctness:2,strict_format:0.5")
    score_rewards(functions, completions, rows, group_size=8, weights=weights).table()

`attacks()` are completions that try to earn a reward without the work; their texts are in
attacks.toml. None is an honest right answer: a policy that learns to write one has learned the
reward, not the task. Run them against every reward before you train with it.
"""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from grpo_workbook.errors import WorkbookError
from grpo_workbook.rewards.contract import Completion, call, name_of

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Attack", "Scored", "attacks", "honest", "score_rewards"]


_ARABIC = str.maketrans(
    "0123456789", "\u0660\u0661\u0662\u0663\u0664\u0665\u0666\u0667\u0668\u0669"
)
_REPEATED = re.compile(r"(?s)\[\[(.*?)\*(\d+)\]\]")  # [[text*3]]


class Attack(NamedTuple):
    """One completion, of up to a million characters, with its family and its name in that."""

    family: str
    name: str
    text: str


def honest(right: str = "42", work: str = "6*7=42\n42+0=42") -> str:
    """The well-formed right answer of an honest model, with its work: to compare attacks with."""
    return f"<reasoning>\n{work}\n</reasoning>\n<answer>{right}</answer>"


def attacks(
    right: str = "42", wrong: str = "41", prompt: str = "What is 6 times 7?"
) -> list[Attack]:
    """All attacks for the question `prompt`, whose right and wrong answer are whole numbers."""
    # what stands for @NAME@ in the texts
    values = {
        "RIGHT": right,
        "WRONG": wrong,
        "PROMPT": prompt,
        "RUBOUT": "\x08" * len(wrong),
        "DOUBLE": str(2 * int(right)),
        "LESS": str(int(right) - 2),
        "FIRST": right[0],
        "REST": right[1:],
        "BACKWARDS": right[::-1],
        "ARABIC": right.translate(_ARABIC),
    }
    file = Path(__file__).with_name("attacks.toml")
    families = tomllib.loads(file.read_text(encoding="utf-8"))
    collection = []
    for family, templates in families.items():
        for name, template in templates.items():
            collection.append(Attack(family, name, _fill(template, values)))
    return collection


def _fill(template: str | list[str], values: Mapping[str, str]) -> str:
    """The text of an attack: @NAME@ is a value, and [[text*3]] is the text three times.

    A list is an answer, and perhaps the work before it, in the course's form.
    """
    if isinstance(template, list):
        work = template[1] if len(template) > 1 else "some thoughts"
        template = honest(template[0], work)
    for name, value in values.items():
        template = template.replace(f"@{name}@", value)
    return _REPEATED.sub(_repeat, template)


def _repeat(match: re.Match) -> str:
    return match[1] * int(match[2])


@dataclass(frozen=True)
class Scored:
    """The rewards of sample completions: for each function, and for "total", a list per group."""

    groups: dict[str, list[list[float | None]]]
    weights: dict[str, float]

    def table(self) -> "DataFrame":
        """A row for each function and for the total.

        `none` counts the completions where a reward did not apply, and `equal` is the fraction of
        groups whose rewards are all equal: these give no gradient.
        """
        import pandas as pd  # loaded here, because it takes half a second

        rows = {}
        for name, groups in self.groups.items():
            values = pd.Series(list(chain(*groups)), dtype=float)
            # GRPO learns from differences within a group alone
            equal_groups = [group for group in groups if len(set(group)) == 1]
            rows[name.removesuffix("_reward")] = {
                "weight": self.weights.get(name, float("nan")),
                "none": values.isna().sum(),
                "mean": values.mean(),
                "std": values.std(ddof=0),
                "min": values.min(),
                "max": values.max(),
                "equal": len(equal_groups) / len(groups),
            }
        return pd.DataFrame.from_dict(rows, orient="index").astype({"none": int})


def score_rewards(
    functions: Sequence[Callable],
    completions: Sequence[Completion],
    rows: Sequence[Mapping[str, Any]],
    *,
    group_size: int,
    weights: Sequence[float] | None = None,
    tokenizer: Any = None,
) -> Scored:
    """Every reward for every completion, group by group, as GRPO would see them.

    Args:
        functions: the rewards.
        completions: texts or chats, one group after the other.
        rows: rows of the dataset, one for each group or for each completion; the rewards get their
            columns.
        group_size: completions of a group, at least 2.
        weights: of the rewards in their sum; 1 if they are left out.
        tokenizer: makes `completion_ids` for a reward that reads them.

    Raises:
        WorkbookError: if the completions do not fill their groups, if there is another number of
            rows or weights than is needed, and for a reward that breaks the contract.
    """
    count = len(completions)
    if group_size < 2 or count == 0 or count % group_size != 0:
        raise WorkbookError(f"{count} completions do not form groups of {group_size} (at least 2)")
    names = [name_of(function) for function in functions]
    if weights is None:
        weights = [1.0] * len(names)
    columns = _columns(rows, count, group_size)
    if len(weights) != len(names) or len(set(names)) != len(names):
        raise WorkbookError(
            f"{len(weights)} weights for the rewards {names}: give one weight per reward, and each "
            "name once"
        )
    values = {}
    total = [0.0] * count  # the sum that GRPO compares
    for function, name, weight in zip(functions, names, weights, strict=True):
        values[name] = call(function, completions, tokenizer=tokenizer, **columns)
        for index, value in enumerate(values[name]):
            total[index] += weight * (value or 0.0)  # None counts as 0, as in TRL's sum
    values["total"] = total
    groups = {}
    for name, rewards in values.items():
        groups[name] = _in_groups(rewards, group_size)
    return Scored(groups, dict(zip(names, weights, strict=True)))


def _columns(
    rows: Sequence[Mapping[str, Any]], count: int, group_size: int
) -> dict[str, list[Any]]:
    """The columns of the rows, with an entry for each of `count` completions."""
    if len(rows) * group_size == count:  # a row for each group
        rows = [rows[index // group_size] for index in range(count)]
    if len(rows) != count:
        raise WorkbookError(
            f"{count} completions, {len(rows)} rows: give one row per group or per completion"
        )
    columns = {}
    for name in rows[0]:
        if name != "completion":  # a column of samples, which would hide the completions
            columns[name] = [row[name] for row in rows]
    return columns


def _in_groups(values: list, group_size: int) -> list[list]:
    """The values in lists of `group_size`."""
    groups = []
    for start in range(0, len(values), group_size):
        groups.append(values[start : start + group_size])
    return groups
