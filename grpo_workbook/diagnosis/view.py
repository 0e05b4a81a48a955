"""A run as the rules look at it: its windows, its trends, and whether its reward was learned.

The rules (rules.py) ask the same questions about a run: did the reward rise, is it high, is the
log long enough to tell? A View answers each of them once. The statistics are at the end.
"""

import math
import re
from functools import cached_property
from typing import Any, NamedTuple

from grpo_workbook.diagnosis.findings import CATALOGUE, DATA, Evidence, Finding, advice, bounds
from grpo_workbook.diagnosis.runlog import RunLog

UNIQUE = "completions/unique_fraction"
EMPTY = "completions/empty_fraction"
CUT_OFF = "completions/clipped_ratio"
LENGTH = "completions/mean_length"
ZERO_VARIANCE = "frac_reward_zero_std"
MOVED = "adapter/change"
MEMORY = "memory/fraction"
GENERATING = "time/generation_fraction"
INVALID = "rewards/invalid_fraction"
RATIO = "sampling/importance_sampling_ratio/mean"
DIFFERENCE = "sampling/sampling_logp_difference/mean"
UNCLOSED = "thoughts/unclosed"  # the fraction of completions
STRICT, LENIENT = "heldout/strict", "heldout/lenient"
CALLS = "tools/call_frequency"  # calls per completion
FAILED = "tools/failure_frequency"
CALLING = "tools/calling"  # the fraction of completions that call
LOST = "tools/lost_results"  # the fraction that end in a call
RESULTS = "tools/result_frequency"
LATE = "tools/out_of_turns"
DOWN = "tools/broken"
Series = Any  # a pandas Series by step: a type checker understands little of pandas' own types
TOOLS = [CALLS, FAILED, CALLING, LOST, RESULTS, LATE, DOWN]


class Fall(NamedTuple):
    """The deepest fall of a series from one of its windows to a later one."""

    step: int  # at the end of its best window
    lost: float  # the fraction of the best window's height above the lowest value
    certain: bool  # it is more than chance, and was not regained


class View:
    """A run in windows: `first` and `last` are means over its first and last quarter.

    A metric that was never logged is an empty series with NaN as its means, and every comparison
    with NaN is False. So a rule tests for the fault (`if not x >= limit: return None`).
    `live`: the run goes on, and a flat reward is judged only after half of its planned steps.
    """

    def __init__(self, run: RunLog, live: bool = False):
        self.run = run
        self.live = live
        self.settings = run.settings
        self.table: Any = run.table

    def of(self, metric: str) -> Series:
        """The metric's values by step; none if it was never logged."""
        return self.run.of(metric)

    def first(self, metric: str) -> float:
        """The mean of the first window."""
        return float(self.of(metric).head(self.width).mean())

    def last(self, metric: str) -> float:
        """The mean of the last window."""
        return float(self.of(metric).tail(self.width).mean())

    @cached_property
    def reward(self) -> Series:
        """The total reward by step."""
        return self.of("reward")

    # ---- is the log long enough?

    @cached_property
    def rows(self) -> int:
        """The number of rows with a reward; all rows of a log that has no total reward."""
        if "reward" in self.table:
            return len(self.reward)
        return len(self.table)

    @property
    def enough(self) -> bool:
        """There are rows for one window."""
        return self.rows >= bounds.first_steps

    @property
    def enough_for_two(self) -> bool:
        """There are rows for two windows, so that the last can be compared with the first."""
        return self.rows >= 2 * bounds.first_steps

    @property
    def width(self) -> int:
        """Rows in a window."""
        return int(max(bounds.first_steps, self.rows * bounds.window))

    @cached_property
    def patience(self) -> float:
        """Optimizer steps after which a level reward is called flat."""
        planned = self.settings.get("max_steps", 0)
        if not planned > 0:
            return bounds.flat_after
        if self.live:
            return planned / 2
        if self.table.index.max() < planned:
            return min(planned / 2, bounds.flat_open)
        return min(planned / 2, bounds.flat_most)

    @cached_property
    def judgeable(self) -> bool:
        """There are rows and steps enough to call a level reward flat."""
        steps = self.table.index
        # a row may be the mean of several steps
        covered = (steps.max() - steps.min()) * len(steps) / max(1, len(steps) - 1)
        return self.rows >= bounds.points and covered >= max(bounds.flat_least, self.patience)

    # ---- what do the reward functions judge?

    @cached_property
    def weights(self) -> dict[str, float]:
        """{reward function: its weight}; 1 for each where the settings do not name all of them."""
        names = self.run.functions
        weights = self.settings.get("reward_weights")
        if isinstance(weights, list | tuple) and len(weights) == len(names):  # as in a GRPOConfig
            weights = dict(zip(names, weights, strict=True))
        if not isinstance(weights, dict) or not set(names) <= set(weights):
            return dict.fromkeys(names, 1.0)
        return {name: float(weights[name]) for name in names}

    @cached_property
    def roles(self) -> dict[str, str]:
        """{reward function: what it judges}, by the settings, else guessed from its name."""
        declared = self.settings.get("reward_roles") or {}
        roles = {name: role for name, role in declared.items() if role}
        if roles:
            return roles
        # the last role that fits counts: a correct format is a format
        for role, words in DATA["roles"].items():
            for name in self.weights:
                if re.search(words, name):
                    roles[name] = role
        return roles

    def judging(self, role: str) -> dict[str, float]:
        """{metric of a function's mean: its weight} for a role ("correctness", "format")."""
        names = [name for name in self.weights if self.roles.get(name) == role]
        return {mean_of(name): self.weights[name] for name in names}

    def level(self, metric: str, value: Any) -> Any:
        """Where a value (or series) is between the least (or 0) and the most (or 1) ever paid."""
        # penalties go below 0, and some rewards above 1
        paid = self.of(metric)
        low = min([0.0, *paid])
        high = max([1.0, *paid])
        return (value - low) / (high - low)

    def is_constant(self, metric: str) -> bool:
        """A function has paid exactly the same in all of some steps, and to all completions."""
        paid = self.of(metric)
        spread = self.of(metric.removesuffix("/mean") + "/std")
        if len(spread) > 0 and spread.max() > 1e-6:
            return False
        return len(paid) >= bounds.points and paid.min() == paid.max()

    def pays_always(self, metric: str) -> bool:
        """A function has paid exactly the same, more than 0, in all of some steps."""
        return self.is_constant(metric) and self.last(metric) > 0

    def is_dead(self, metric: str) -> bool:
        """A function has paid exactly the same, 0 or a penalty, in all of many steps."""
        return self.judgeable and self.is_constant(metric) and self.last(metric) <= 0

    # ---- did the reward rise?

    @cached_property
    def possible(self) -> float:
        """The highest reward that can be earned if each function pays at most 1."""
        return sum(weight for weight in self.weights.values() if weight > 0)

    @cached_property
    def highest(self) -> float:
        """The highest reward that can be earned, or that was."""
        return max([self.possible, *self.reward])

    @cached_property
    def gain(self) -> float:
        """The last window's reward minus the first's."""
        return self.last("reward") - self.first("reward")

    @cached_property
    def trend(self) -> float:
        """The t value of a straight line through the reward."""
        return last_of(self.t_values("reward"))

    @cached_property
    def fall(self) -> Fall:
        """The reward's deepest fall."""
        return deepest_fall(self.reward)

    @cached_property
    def heldout_rose(self) -> bool:
        """Accuracy on held-out problems is clearly higher than it was before training."""
        for metric in (STRICT, LENIENT):
            accuracy = self.of(metric)
            if len(accuracy) > 1 and accuracy.iloc[-1] > accuracy.iloc[0] + bounds.better:
                return True
        return False

    @cached_property
    def rose(self) -> bool:
        """The reward or held-out accuracy rose beyond chance, and the reward did not fall again."""
        if self.fall.certain:
            return False
        if self.heldout_rose or self.trend >= bounds.sure:
            return True
        # from its lowest window: a slow start hides a rise from the line
        return deepest_fall(-self.reward).certain

    @cached_property
    def high(self) -> bool:
        """The reward is near the highest possible."""
        # on a scale that is not known any level run is near the highest that it has seen
        scale_is_known = self.rose or self.highest <= self.possible * 1.001
        high = self.last("reward") >= bounds.high_reward * self.highest > 0
        return scale_is_known and high

    @property
    def learned(self) -> bool:
        """The reward rose, or is high."""
        return self.rose or self.high

    @property
    def flat(self) -> bool:
        """The log is long enough, and the reward neither rose nor fell nor is high."""
        return self.judgeable and not self.learned and not self.fall.certain

    # ---- what else do several rules read?

    @cached_property
    def gradient(self) -> float:
        """The usual gradient norm of the last window."""
        return self.of("grad_norm").tail(self.width).median()

    @cached_property
    def calls(self) -> Any:
        """What became of the calls: a table of TOOLS, of the steps in which the model called.

        Steps without a call say nothing of calls: a model whose calls always fail stops calling.
        """
        frequency = self.of(CALLS)
        return self.table.reindex(frequency.index[frequency > 0], columns=TOOLS).fillna(0.0)

    def t_values(self, metric: str) -> Series:
        """t values of straight lines through the first 10, 11, ... and all values of a metric.

        t = r * sqrt((n - 2) / (1 - r^2)) for the correlation r of n values with their number. Steps
        that are like those before them count for less: n - 2 is multiplied by (1 - a) / (1 + a),
        where a is the autocorrelation of what the line leaves.
        """
        values = self.of(metric).reset_index(drop=True)
        least = 2 * bounds.first_steps
        n = values.index.to_series() + 1.0
        r = values.expanding(least).corr(n).round(12).fillna(0.0)  # a constant has none
        rest = values - last_of(r) * values.std() / n.std() * n
        a = min(0.5, max(0.0, rest.autocorr()))
        t = r * ((n - 2) / (1 - r * r) * (1 - a) / (1 + a)) ** 0.5
        return t.iloc[least - 1 :]

    # ---- findings

    @cached_property
    def known_settings(self) -> dict:
        """The run's settings, and those that its metrics show (NaN: they do not)."""
        rate = self.of("learning_rate").max()
        limit = self.of("completions/max_length").max()
        return {"learning_rate": rate, "max_completion_length": limit, **self.settings}

    @cached_property
    def last_step(self) -> int:
        """The last step of the log, or the one in which an exception ended the run."""
        steps = [0, *self.table.index]
        if self.run.error is not None:
            steps.append(self.run.error[0])
        return int(max(steps))

    def finding(
        self,
        name: str,
        step: int,
        evidence: list[tuple[str, Any, str]],
        *,
        until: int | None = None,
        severity: str | None = None,
        note: str = "",
    ) -> Finding:
        """The finding `name` of the CATALOGUE, from `step` on.

        evidence: (metric, its value, the healthy values as text).
        until: the last step at which it showed, if that is not the log's.
        severity: if it is not the catalogue's.
        note: what this run adds to the meaning.
        """
        entry = CATALOGUE[name]
        rows = []
        for metric, value, healthy in evidence:
            number = value if isinstance(value, str) else float(value)
            rows.append(Evidence(metric, number, healthy))
        return Finding(
            name,
            severity or entry.severity,
            int(step),
            tuple(rows),
            f"{entry.means} {note}".strip(),
            advice(name, self.known_settings),
            self.last_step if until is None else int(until),
        )


def mean_of(function: str) -> str:
    """The metric of a reward function's mean."""
    return f"rewards/{function}/mean"


def last_of(values: Series) -> float:
    """The last value, 0 if there is none."""
    return float(values.tail(1).sum())


def since(holds: Series) -> int:
    """The first step from which it holds to the log's end, with one exception in five steps.

    holds: a boolean by step. If it does not hold now, the last step.
    """
    first = holds.index[-1]
    exceptions = 0
    for count, step in enumerate(reversed(holds.index), start=1):
        if holds[step]:
            first = step
            continue
        exceptions += 1
        if exceptions > max(1, count // 5):
            break
    return int(first)


def deepest_fall(values: Series) -> Fall:
    """The deepest fall between two windows of a tenth of the values (at least 5).

    It is more than chance if it is several standard errors of a window's mean, which come from the
    differences between neighbours, so that a trend does not count as noise.
    """
    size = int(max(bounds.first_steps, len(values) / 10))
    if len(values) < 2 * size:
        return Fall(0, 0.0, False)
    means = values.rolling(size).mean().dropna()
    falls = means.cummax() - means
    depth = falls.max()
    best = means.loc[: falls.idxmax()].idxmax()
    lost = depth / max(means.max() - values.min(), 1e-9)
    # the difference of two neighbours has twice the variance of one value, and the difference of
    # two windows twice that of one window's mean
    error = math.sqrt(values.diff().pow(2).mean() / size)
    remains = falls.iloc[-1] >= depth * bounds.not_regained
    certain = remains and lost >= bounds.lost and depth >= bounds.fall * error
    return Fall(best, lost, bool(certain))
