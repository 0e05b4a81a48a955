"""One tidy table from a GRPO run: its log, TRL's completions, or a folder of this workbook."""

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
AGAIN = "choose an older checkpoint, or copy it again"
NO_LOG = "loss, gradient and KL: there is no log beside the completions"
NO_ROLES = (
    "which reward judges the answer and which the form; mark your functions with "
    "@grpo_workbook.reward(role='correctness'), and give them to HealthCallback or read_run"
)


@dataclass(frozen=True)
class RunLog:
    """A run's log. `table` has a row for each step (its index) and a column for each metric.

    `settings` holds the known settings (num_generations, beta, reward_weights, reward_roles, ...),
    `broken` the first step at which a metric was NaN or infinite, `error` the step and text of the
    exception that ended the run, and `notes` what could not be read.
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
        """What each reward function judges, as far as its attribute `role` is known."""
        return {name: role for name, role in self.settings.get("reward_roles", {}).items() if role}


def roles_of(functions: Sequence[Callable]) -> dict[str, str | None]:
    """{name in the log: its attribute `role`, which grpo_workbook.rewards.reward sets}."""
    return {name_of(f): getattr(f, "role", None) for f in functions}


def read_run(source, functions: Sequence[Callable] = ()) -> RunLog:
    """The log of a run, from a folder, a file or memory.

    `source`: a folder (a run of this workbook, a TRL output_dir, a checkpoint), a
    trainer_state.json, a log.json, a completions parquet, or `trainer.state.log_history` (a list of
    dicts). `functions`: the rewards, for their roles, if the source does not name them. `notes` say
    what is missing. Raises WorkbookError for a missing, damaged or another trainer's log.
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
    """The log if there is one, TRL's completions files, and the content of run.json."""
    if not place.exists():
        raise WorkbookError(f"{readable(place)} does not exist: give a run's folder or its log")
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
        fix = "give a run's folder or a checkpoint (TRL's save_strategy decides when it writes one)"
        raise WorkbookError(f"{readable(place)} {what}: {fix}")
    # Roles and weights come from run.json: loading the rewards would run a file of unknown origin.
    return logs, parquets, read_json(run, AGAIN) if run.is_file() else {}


def _history(source) -> tuple[list[dict], dict]:
    """The entries of a log, from its file or from memory, and the settings beside them."""
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
        raise WorkbookError(f"{name} is not a log: it must be {what}")
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
            raise WorkbookError(f"{said}: give trainer.state.log_history unchanged") from None
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
                name = RENAMED.get(name, name)
                if name.count("/") == 1 and name.startswith("rewards/") and "invalid" not in name:
                    name += "/mean"  # as TRL before 0.17 and Unsloth of 2025 call it
                row.setdefault(name, value)  # the log wins over completions
    table = pd.DataFrame.from_dict(rows, orient="index").sort_index().rename_axis("step")
    if error is None and not any(c.startswith("reward") for c in table.columns):
        kind = "is it of an SFT, DPO or PPO run? The diagnosis reads logs of TRL's GRPOTrainer"
        raise WorkbookError(f"the log has no reward: {kind}")
    steps = (table["reward"].dropna() if "reward" in table else table[table.index > 0]).index
    if len(steps) and (gaps := steps[-1] - steps[0] + 1 - len(steps)):
        between = f"{gaps} of the steps {steps[0]} to {steps[-1]} are not in the log"
        notes += (f"{between} (logging_steps is more than 1)",)
    run = RunLog(table, settings, broken, error, notes)
    return replace(run, notes=(*notes, NO_ROLES)) if run.functions and not run.roles else run


def _completions(paths: Sequence[Path]) -> Any:
    """TRL's completions files as one pandas table; WorkbookError if a column is missing."""
    import pandas as pd

    try:
        table = pd.concat([pd.read_parquet(p) for p in paths], ignore_index=True)
    except (OSError, ValueError) as error:
        said = f"{readable(paths[0].parent)}: the completions cannot be read ({error})"
        raise WorkbookError(said) from None
    if missing := sorted(set(NOT_REWARDS) - set(table.columns)):
        what = f"not a completions table of TRL: {', '.join(missing)} missing"
        raise WorkbookError(f"{readable(paths[0])} is {what}")
    return table.assign(**{name: table[name].map(_plain) for name in ("prompt", "completion")})


def _plain(value) -> str:
    """The text of a prompt or completion in TRL's log: a text, or a list of messages."""
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
    """One completion of a group, "best", "typical" or "worst", with its reward."""

    kind: str
    prompt: str
    completion: str
    reward: float


def samples(folder: str | Path, step: int, groups: int = 1) -> list[Sample]:
    """The best, a typical and the worst completion of the first groups of a step.

    `folder`: a folder with TRL's logged completions at any depth, or one of their files. They are
    ordered by advantage, which includes the weights of the rewards; `reward` is the plain sum of
    the reward columns. Raises WorkbookError if the step was not logged (log_completions=True).
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
        raise WorkbookError(f"step {step} has no logged completions: choose from {there}")
    rewards = rows.drop(columns=NOT_REWARDS).select_dtypes("number").sum(axis=1)
    found = []
    for prompt in rows["prompt"].unique()[:groups]:
        group = rows[rows["prompt"] == prompt].sort_values("advantage", ascending=False)
        for kind, place in (("best", 0), ("typical", len(group) // 2), ("worst", -1)):
            row = group.iloc[place]
            found.append(Sample(kind, prompt, row["completion"], float(rewards[row.name])))
    return found
