"""Test rewards before training: a table of scores, and attacks.

    functions, weights = parse_rewards("correctness:2,strict_format:0.5")
    score_rewards(functions, completions, rows, group_size=8, weights=weights).table()

`attacks()` are completions that try to earn a reward without the work; their texts are in
attacks.toml. None is an honest right answer: a policy that learns to write one has learned the
reward, not the task. Run them against every reward before you train with it.
"""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from grpo_workbook.errors import WorkbookError
from grpo_workbook.rewards.contract import call, name_of


class Attack(NamedTuple):
    """One completion, of up to a million characters; `kind` is its family."""

    kind: str
    name: str
    text: str


def honest(right: str = "42", work: str = "6*7=42\n42+0=42") -> str:
    """The well-formed right answer of an honest model, to compare attacks with."""
    return f"<reasoning>\n{work}\n</reasoning>\n<answer>{right}</answer>"


def attacks(right="42", wrong="41", prompt="What is 6 times 7?") -> list[Attack]:
    """All attacks for one question; the right and the wrong answer are whole numbers."""
    values = {"RIGHT": right, "WRONG": wrong, "PROMPT": prompt, "RUBOUT": "\x08" * len(wrong)}
    values |= {"DOUBLE": str(2 * int(right)), "LESS": str(int(right) - 2)}
    values |= {"FIRST": right[0], "REST": right[1:], "BACKWARDS": right[::-1]}
    values["ARABIC"] = "".join(chr(0x660 + int(digit)) for digit in right)
    file, found = Path(__file__).with_name("attacks.toml"), []
    for kind, texts in tomllib.loads(file.read_text(encoding="utf-8")).items():
        for name, text in texts.items():
            if not isinstance(text, str):
                answer, *work = text
                text = honest(answer, *work or ["some thoughts"])
            text = re.sub(r"@([A-Z]+)@", lambda m: values[m[1]], text)
            text = re.sub(r"\[\[(.*?)\*(\d+)\]\]", lambda m: m[1] * int(m[2]), text, flags=re.S)
            found.append(Attack(kind, name, text))
    return found


@dataclass(frozen=True)
class Scored:
    """The rewards of sample completions: per function, and as "total", a list per group."""

    groups: dict[str, list[list[float | None]]]
    weights: dict[str, float]

    def table(self) -> Any:
        """A DataFrame with a row per function and for the total; `none` counts completions where
        it did not apply, `equal` is the rate of groups with equal rewards: these give no gradient.
        """
        import pandas as pd

        frame = pd.DataFrame({n: [*chain(*g)] for n, g in self.groups.items()}, dtype=float)
        equal = [fmean(len(set(g)) == 1 for g in groups) for groups in self.groups.values()]
        table = pd.DataFrame({"weight": pd.Series(self.weights).reindex(frame.columns)})
        table = table.assign(none=frame.isna().sum(), mean=frame.mean(), std=frame.std(ddof=0))
        table = table.assign(min=frame.min(), max=frame.max(), equal=equal)
        return table.rename(index=lambda name: name.removesuffix("_reward"))


def score_rewards(
    functions: Sequence, completions: Sequence, rows: Sequence, *, group_size: int, weights=None
) -> Scored:
    """Every reward for every completion, group by group, as GRPO would see them.
    `rows` are rows of the dataset, one per group or per completion; rewards get their columns.
    """
    n, names = len(completions), [name_of(f) for f in functions]
    weights = [1.0] * len(names) if weights is None else list(weights)
    if group_size < 2 or n == 0 or n % group_size:
        raise WorkbookError(f"{n} completions do not form groups of {group_size} (at least 2)")
    if len(rows) * group_size == n:
        rows = [row for row in rows for _ in range(group_size)]
    if len(rows) != n or len(weights) != len(names) or len(set(names)) != len(names):
        said = f"{n} completions, {len(rows)} rows, {len(weights)} weights, rewards {names}"
        fix = "give one row per group or completion, one weight per reward, and each name once"
        raise WorkbookError(f"{said}: {fix}")
    columns = {key: [row[key] for row in rows] for key in rows[0] if key != "completion"}
    values = {name_of(f): call(f, completions, **columns) for f in functions}
    # TRL's weighted sum, where None counts as 0: GRPO compares these
    paid = [[w * (v or 0.0) for v in values[name]] for w, name in zip(weights, names, strict=True)]
    values["total"] = [*map(sum, zip(*paid, strict=True))]
    starts = range(0, n, group_size)
    groups = {name: [v[i : i + group_size] for i in starts] for name, v in values.items()}
    return Scored(groups, dict(zip(names, weights, strict=True)))
