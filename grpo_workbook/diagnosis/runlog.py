"""One tidy table from what a GRPO run has left: its log, TRL's completions, a folder of ours."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import read_json, readable
from grpo_workbook.rewards import name_of

RENAMED = {"completion_length": "completions/mean_length"}  # Unsloth's name on a GPU, and TRL's
NOT_REWARDS = ["step", "prompt", "completion", "advantage"]  # of TRL's table of completions
AGAIN = "name an older checkpoint, or copy it again"
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

    table: Any  # a pandas DataFrame
    settings: dict = field(default_factory=dict)
    broken: dict[str, int] = field(default_factory=dict)
    error: tuple[int, str] | None = None
    notes: tuple[str, ...] = ()

    @property
    def functions(self) -> list[str]:
        """The names of the reward functions."""
        return [c[8:-5] for c in self.table if c.startswith("rewards/") and c.endswith("/mean")]

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
    dicts). `functions`: the rewards, for their roles, where the source does not say them. What is
    missing is said in `notes`. Raises WorkbookError for no log, a broken one or another trainer's.
    """
    if isinstance(source, RunLog):
        return source
    logs, parquets, about = [source], [], {}
    if isinstance(source, str | Path):
        logs, parquets, about = _find(Path(source))
    history, settings = _history(logs[0]) if logs else ([], {})
    settings |= about.get("settings", {}) | about
    if functions:
        settings["reward_roles"] = roles_of(functions)
    completions = _read_completions(parquets) if parquets else []
    return _build([*history, *completions], settings, () if logs else (NO_LOG,))


def _find(place: Path) -> tuple[list[Path], list[Path], dict]:
    """The log if there is one, TRL's files of completions, and what run.json says."""
    if not place.exists():
        raise WorkbookError(f"{readable(place)} does not exist: name a run's folder or its log")
    if place.is_file():
        return ([], [place], {}) if place.suffix == ".parquet" else ([place], [], {})
    states, parquets = (
        [path for path in sorted(place.rglob(name)) if len(path.relative_to(place).parts) <= 3]
        for name in ("trainer_state.json", "completions_*.parquet")
    )
    own, run = place / "log.json", place / "run.json"
    logs = [own] if own.is_file() else sorted(states, key=lambda p: -p.stat().st_size)[:1]
    if not logs and not parquets:
        what = "holds no log (log.json, trainer_state.json or completions/*.parquet)"
        fix = "name a run's folder or a checkpoint, which TRL writes as save_strategy says"
        raise WorkbookError(f"{readable(place)} {what}: {fix}")
    # Roles and weights as told there: to make the rewards again would run a file, maybe anyone's.
    return logs, parquets, read_json(run, AGAIN) if run.is_file() else {}


def _history(source) -> tuple[list[dict], dict]:
    """The entries of a log, from its file or as they are, and the settings that stand beside."""
    name, value, settings = "the log history", source, {}
    if isinstance(source, Path):
        name, value = readable(source), read_json(source, AGAIN)
    if isinstance(value, Mapping):
        settings = dict(value.get("settings", {}))
        value = value.get("log_history", value.get("log"))
        if isinstance(value, Mapping):  # by column, as benchmarks/diagnosis.py keeps it
            rows = zip(*value.values(), strict=True)
            value = [{k: v for k, v in zip(value, r, strict=True) if v is not None} for r in rows]
    if not isinstance(value, list) or not all(isinstance(e, Mapping) for e in value):
        what = "a list of steps, or a trainer_state.json with its log_history"
        raise WorkbookError(f"{name} is no log: it must be {what}")
    if not value:
        why = "no step was logged before the end, or logging_steps is too large"
        raise WorkbookError(f"the log is empty: {why}")
    return value, settings


def _build(history: list[dict], settings: dict, notes: tuple[str, ...]) -> RunLog:
    import pandas as pd

    rows, broken, error = {}, {}, None
    for place, entry in enumerate(history):
        try:
            step = int(entry["step"])
        except (KeyError, TypeError, ValueError):
            said = f"entry {place} of the log has the step {entry.get('step')!r:.40}"
            raise WorkbookError(f"{said}: give trainer.state.log_history as it is") from None
        if "error" in entry:
            error = (step, " ".join(entry[k] for k in ("error", "where") if entry.get(k)))
            continue
        row = rows.setdefault(step, {})
        for name, value in entry.items():
            value = float(value) if value in ("nan", "inf", "-inf") else value
            if isinstance(value, int | float):
                if not math.isfinite(value):
                    broken.setdefault(name, step)
                    value = math.nan
                row.setdefault(RENAMED.get(name, name), value)  # the log stands before completions
    table = pd.DataFrame.from_dict(rows, orient="index").sort_index().rename_axis("step")
    if error is None and not any(c.startswith("reward") for c in table.columns):
        kind = "is it an SFT, DPO or PPO run's? The diagnosis reads the log of TRL's GRPOTrainer"
        raise WorkbookError(f"the log has no reward: {kind}")
    steps = (table["reward"].dropna() if "reward" in table else table[table.index > 0]).index
    if len(steps) and (gaps := steps[-1] - steps[0] + 1 - len(steps)):
        between = f"{gaps} of the steps {steps[0]} to {steps[-1]} are not in the log"
        notes += (f"{between} (logging_steps is more than 1)",)
    run = RunLog(table, settings, broken, error, notes)
    return replace(run, notes=(*notes, NO_ROLES)) if run.functions and not run.roles else run


def _completions(paths: Sequence[Path]) -> Any:
    """TRL's completions files as one pandas table; WorkbookError where a column is missing."""
    import pandas as pd

    try:
        table = pd.concat([pd.read_parquet(p) for p in paths], ignore_index=True)
    except (OSError, ValueError) as error:
        said = f"{readable(paths[0].parent)}: the completions cannot be read ({error})"
        raise WorkbookError(said) from None
    if missing := sorted(set(NOT_REWARDS) - set(table.columns)):
        what = f"no completions table of TRL: {', '.join(missing)} missing"
        raise WorkbookError(f"{readable(paths[0])} is {what}")
    return table.assign(**{name: table[name].map(_plain) for name in ("prompt", "completion")})


def _plain(value) -> str:
    """The text of a prompt or completion as TRL logs it: a text, or a list of messages."""
    return value if isinstance(value, str) else str(value[-1].get("content", ""))


def _read_completions(paths: Sequence[Path]) -> list[dict]:
    """TRL's logged completions (log_completions=True) as one entry per step."""
    entries = []
    for step, rows in _completions(paths).groupby("step"):
        texts = [text.strip() for text in rows["completion"]]
        rewards = rows.drop(columns=NOT_REWARDS).select_dtypes("number")
        entry = {"step": step, "completions/empty_fraction": texts.count("") / len(texts)}
        entry["completions/unique_fraction"] = unique_fraction(rows["prompt"], texts)
        entry |= {f"rewards/{name}/mean": values.mean() for name, values in rewards.items()}
        entry |= {f"rewards/{name}/std": values.std() for name, values in rewards.items()}
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
    paths = [place] if place.suffix == ".parquet" else sorted(place.rglob("completions_*.parquet"))
    if not paths:
        fix = "train with GRPOConfig(log_completions=True)"
        raise WorkbookError(f"{readable(folder)} holds no completions: {fix}")
    table = _completions(paths)
    rows = table[table["step"] == step]
    if not len(rows):
        there = sorted(set(table["step"]))[:20]
        raise WorkbookError(f"step {step} has no logged completions: there are {there}")
    rewards = rows.drop(columns=NOT_REWARDS).select_dtypes("number").sum(axis=1)
    found = []
    for prompt in rows["prompt"].unique()[:groups]:
        group = rows[rows["prompt"] == prompt].sort_values("advantage", ascending=False)
        for kind, place in (("best", 0), ("typical", len(group) // 2), ("worst", -1)):
            row = group.iloc[place]
            found.append(Sample(kind, prompt, row["completion"], float(rewards[row.name])))
    return found
