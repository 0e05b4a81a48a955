"""One tidy table from what a GRPO run has left: its log, TRL's completions, a folder of ours."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import readable
from grpo_workbook.rewards import name_of

if TYPE_CHECKING:
    import pandas

RENAMED = {"completion_length": "completions/mean_length"}  # Unsloth's name on a GPU, and TRL's
OTHERS = {"mean_token_accuracy": "SFT", "objective/rlhf_reward": "PPO", "rewards/margins": "DPO"}
NOT_REWARDS = ["step", "prompt", "completion", "advantage"]  # of TRL's table of completions
NO_LOG = "no log beside the completions: no loss, gradient or KL"
NO_ROLES = (
    "which reward judges the answer and which the form; mark your functions with "
    "@grpo_workbook.reward(role='correctness'), and give them to HealthCallback or read_run"
)


@dataclass(frozen=True)
class RunLog:
    """A run's log. `table` has a row for each step (its index), a column for each metric.

    `settings` holds what is known of the configuration (num_generations, beta, reward_weights,
    reward_roles, ...), `broken` the first step at which a metric was NaN or infinite, `error` the
    step and text of what ended the run, and `notes` what could not be read.
    """

    table: "pandas.DataFrame"
    settings: dict = field(default_factory=dict)
    broken: dict[str, int] = field(default_factory=dict)
    error: tuple[int, str] | None = None
    notes: tuple[str, ...] = ()

    @property
    def functions(self) -> list[str]:
        """The names of the reward functions."""
        columns = [c for c in self.table.columns if c.startswith("rewards/")]
        return [c[8:-5] for c in columns if c.endswith("/mean")]

    @property
    def roles(self) -> dict[str, str]:
        """What each reward function judges, as far as its attribute `role` said so."""
        return {name: role for name, role in self.settings.get("reward_roles", {}).items() if role}


def roles_of(functions: Sequence[Callable]) -> dict[str, str | None]:
    """Name in the log -> the attribute `role`, which grpo_workbook.rewards.reward sets."""
    return {name_of(f): getattr(f, "role", None) for f in functions}


def read_run(source, functions: Sequence[Callable] = ()) -> RunLog:
    """The log of a run, from a folder, a file, or what is in memory already.

    `source`: a folder (a run of this workbook, a TRL output_dir, a checkpoint), a
    trainer_state.json, a log.json, a completions parquet, or `trainer.state.log_history` (a list of
    dicts). `functions`: the rewards, for their roles, where the source does not say them. Raises
    WorkbookError when there is no log, when a file is broken, when the log is another trainer's,
    and when two logs are mixed. What is only missing is said in `notes`.
    """
    if isinstance(source, RunLog):
        return source
    notes: tuple[str, ...] = ()
    if not isinstance(source, str | Path):
        history, settings = _history(source, "the log history")
    elif (path := Path(source)).is_dir():
        history, settings, notes = _read_folder(path)
    elif not path.is_file():
        raise WorkbookError(f"{readable(path)} does not exist: name a run's folder or its log")
    elif path.suffix == ".parquet":
        history, settings, notes = _read_completions([path]), {}, (NO_LOG,)
    else:
        history, settings = _history(_load(path), readable(path))
    if functions:
        settings["reward_roles"] = roles_of(functions)
    return _build(history, settings, notes)


def _read_folder(folder: Path) -> tuple[list[dict], dict, tuple[str, ...]]:
    def inside(pattern: str) -> list[Path]:
        found = sorted(folder.rglob(pattern))
        return [p for p in found if len(p.relative_to(folder).parts) <= 3]

    states, parquets = inside("trainer_state.json"), inside("completions_*.parquet")
    own, run = folder / "log.json", folder / "run.json"
    # Weights and roles are as written then: to make the functions again would run a file of the
    # user's, in a run from elsewhere too.
    there = _load(run) if run.is_file() else {}
    settings = {**there.get("settings", {}), **there}
    history, notes = [], ()
    if own.is_file() or states:
        log = own if own.is_file() else max(states, key=lambda p: p.stat().st_size)  # the longest
        history, more = _history(_load(log), readable(log))
        settings = more | settings
    elif parquets:
        notes = (NO_LOG,)
    else:
        raise WorkbookError(
            f"{readable(folder)} holds no log (log.json, trainer_state.json or "
            "completions/*.parquet): name the folder of a run, or its checkpoint; TRL writes the "
            "state with each checkpoint (save_strategy)"
        )
    return [*history, *(_read_completions(parquets) if parquets else [])], settings, notes


def _load(path: Path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise WorkbookError(
            f"{readable(path)} cannot be read as JSON ({error}): it was cut off while it was "
            "written; name an older checkpoint, or copy it again"
        ) from None


def _history(value, name: str) -> tuple[list[dict], dict]:
    settings: dict = {}
    if isinstance(value, Mapping):
        settings = dict(value.get("settings", {}))
        value = value.get("log_history", value.get("log"))
        if isinstance(value, Mapping):  # by column, as benchmarks/diagnosis.py keeps it
            rows = zip(*value.values(), strict=True)
            value = [{k: v for k, v in zip(value, r, strict=True) if v is not None} for r in rows]
    if not isinstance(value, list) or not all(isinstance(e, Mapping) for e in value):
        raise WorkbookError(
            f"{name} is no log: it must be a list of steps, or a trainer_state.json with its "
            "log_history"
        )
    if not value:
        raise WorkbookError(
            "the log is empty: no step was logged before the end, or logging_steps is too large"
        )
    return [dict(e) for e in value], settings


def _build(history: list[dict], settings: dict, notes: tuple[str, ...]) -> RunLog:
    import pandas as pd

    rows: dict[int, dict] = {}
    broken: dict[str, int] = {}
    error = None
    for place, entry in enumerate(history):
        try:
            step = int(entry["step"])
        except (KeyError, TypeError, ValueError):
            raise WorkbookError(
                f"entry {place} of the log has the step {entry.get('step')!r:.40}: give "
                "trainer.state.log_history as it is"
            ) from None
        if "error" in entry:
            error = (step, " ".join(str(entry[k]) for k in ("error", "where") if entry.get(k)))
        else:
            _add(rows.setdefault(step, {}), entry, step, broken)
    table = pd.DataFrame.from_dict(rows, orient="index").sort_index()
    table.index.name = "step"
    if error is None and not any(c.startswith("reward") for c in table.columns):
        other = [f"{name}'s" for key, name in OTHERS.items() if key in table.columns]
        kind = other[0] if other else "an SFT run's, or another trainer's"
        raise WorkbookError(
            f"the log has no reward (it looks like {kind}): the diagnosis reads the log of TRL's "
            "GRPOTrainer"
        )
    steps = (table["reward"].dropna() if "reward" in table else table[table.index > 0]).index
    if len(steps) and (gaps := steps[-1] - steps[0] + 1 - len(steps)):
        between = f"{gaps} of the steps {steps[0]} to {steps[-1]} are not in the log"
        notes = (*notes, f"{between} (logging_steps is more than 1)")
    run = RunLog(table, settings, broken, error, notes)
    return replace(run, notes=(*notes, NO_ROLES)) if run.functions and not run.roles else run


def _add(row: dict, entry: dict, step: int, broken: dict[str, int]) -> None:
    """Take the numbers of one entry of the log into the row of its step."""
    for key, value in entry.items():
        key = RENAMED.get(key, key)
        value = float(value) if value in ("nan", "inf", "-inf") else value
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if not math.isfinite(value):
            broken.setdefault(key, step)
            value = math.nan
        if key == "reward" and abs(row.get(key, value) - value) > 1e-6:
            raise WorkbookError(
                f"step {step} is there twice with different rewards ({row[key]:g} and "
                f"{value:g}): two runs are mixed; give each its own output_dir"
            )
        if "rewards/" not in key or key not in row:
            row[key] = value


def _completions(paths: Sequence[Path], *more: str) -> "pandas.DataFrame":
    """TRL's completions files as one table; WorkbookError where a column is missing."""
    import pandas as pd

    try:
        table = pd.concat([pd.read_parquet(p) for p in paths], ignore_index=True)
    except (OSError, ValueError) as error:
        place = readable(paths[0].parent)
        raise WorkbookError(f"{place}: the completions cannot be read ({error})") from None
    if missing := {"step", "prompt", "completion", *more} - set(table.columns):
        what = f"no completions table of TRL: {', '.join(sorted(missing))} missing"
        raise WorkbookError(f"{readable(paths[0])} is {what}")
    return table


def _read_completions(paths: Sequence[Path]) -> list[dict]:
    """TRL's logged completions (log_completions=True) as one entry per step."""
    entries = []
    for step, rows in _completions(paths).groupby("step"):
        texts = [_plain(c).strip() for c in rows["completion"]]
        entry = {"step": step, "completions/empty_share": sum(not t for t in texts) / len(texts)}
        entry["completions/unique_share"] = unique_fraction(list(rows["prompt"]), texts)
        rewards = rows.drop(columns=NOT_REWARDS, errors="ignore").select_dtypes("number")
        for name, values in rewards.items():
            entry[f"rewards/{name}/mean"] = float(values.mean())
            entry[f"rewards/{name}/std"] = float(values.std())
        entries.append(entry)
    return entries


def unique_fraction(prompts: Sequence, texts: Sequence[str]) -> float:
    """The mean over groups of (different texts / completions); a group answers the same prompt."""
    groups: dict[str, list[str]] = {}
    for prompt, text in zip(prompts, texts, strict=True):
        groups.setdefault(repr(prompt), []).append(text)
    return sum(len(set(g)) / len(g) for g in groups.values()) / len(groups)


class Sample(NamedTuple):
    """One completion of a group: "best", "typical" or "worst", and what it earned."""

    kind: str
    prompt: str
    completion: str
    reward: float


def samples(folder: str | Path, step: int, groups: int = 1) -> list[Sample]:
    """The best, a typical and the worst completion of the first groups of a step.

    `folder`: where TRL's logged completions lie, however deep, or one of their files. They are
    ordered by advantage, which counts all rewards with their weights; `reward` is the plain sum of
    the reward columns. Raises WorkbookError when the step was not logged (log_completions=True).
    """
    place = Path(folder)
    paths = [place] if place.is_file() else sorted(place.rglob("completions_*.parquet"))
    paths = [p for p in paths if p.suffix == ".parquet"]
    if not paths:
        raise WorkbookError(
            f"{readable(folder)} holds no completions: train with GRPOConfig(log_completions=True)"
        )
    table = _completions(paths, "advantage")
    rows = table[table["step"] == step]
    if not len(rows):
        there = sorted(set(table["step"]))[:20]
        raise WorkbookError(f"step {step} has no logged completions: there are {there}")
    prompts = rows["prompt"].map(_plain)
    rewards = rows.drop(columns=NOT_REWARDS).select_dtypes("number").sum(axis=1)
    found = []
    for prompt in list(dict.fromkeys(prompts))[:groups]:
        group = rows[prompts == prompt].sort_values("advantage", ascending=False)
        for kind, at in (("best", 0), ("typical", len(group) // 2), ("worst", -1)):
            row = group.iloc[at]
            earned = float(rewards[row.name])
            found.append(Sample(kind, prompt, _plain(row["completion"]), earned))
    return found


def _plain(value) -> str:
    """The text of a prompt or completion as TRL logs it: a text, or a list of messages."""
    if isinstance(value, str):
        return value
    return str(list(value)[-1].get("content", "")) if len(value) else ""
