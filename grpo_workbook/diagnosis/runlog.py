"""One tidy table from whatever a GRPO run has left: log history, trainer_state.json, logged completions, our folder."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import readable

if TYPE_CHECKING:
    import pandas

RENAMED = {"completion_length": "completions/mean_length"}  # Unsloth's name on a GPU, and TRL's
OTHERS = {"mean_token_accuracy": "SFT", "objective/rlhf_reward": "PPO", "rewards/margins": "DPO"}
NUMBERS = (
    "num_generations",
    "beta",
    "max_completion_length",
    "max_steps",
)  # settings that the rules compute with


@dataclass(frozen=True)
class RunLog:
    """A run's log. `table` has one row for each step (its index) and a column for each metric; NaN: not logged.

    `settings` holds what is known of the configuration (num_generations, beta, learning_rate, reward_weights, ...),
    `broken` the first step at which a metric was NaN or infinite, `error` the step and text of what ended the run, and
    `notes` what could not be read.
    """

    table: "pandas.DataFrame"
    settings: dict = field(default_factory=dict)
    broken: dict[str, int] = field(default_factory=dict)
    error: tuple[int, str] | None = None
    notes: tuple[str, ...] = ()

    @property
    def functions(self) -> list[str]:
        """The names of the reward functions."""
        return [
            c[8:-5] for c in self.table.columns if c.startswith("rewards/") and c.endswith("/mean")
        ]

    def upto(self, step: int) -> "RunLog":
        """The same run as it was known after this step."""
        broken = {name: at for name, at in self.broken.items() if at <= step}
        error = self.error if self.error and self.error[0] <= step else None
        return RunLog(
            self.table[self.table.index <= step], self.settings, broken, error, self.notes
        )


def read_run(source) -> RunLog:
    """The log of a run, from a folder, a file, or what is in memory already.

    `source`: a folder (a run of this workbook, a TRL output_dir, a checkpoint), a trainer_state.json, a log.json, a
    completions parquet, or a log history (`trainer.state.log_history`: a list of dicts).
    Raises WorkbookError when there is no log, when a file is broken, when the log is another trainer's, and when two
    logs are mixed. What is only missing is said in `notes`.
    """
    if isinstance(source, RunLog):
        return source
    if isinstance(source, str | Path):
        path = Path(source)
        if path.is_dir():
            return _read_folder(path)
        if not path.is_file():
            raise WorkbookError(f"{readable(path)} does not exist: name a run's folder or its log")
        if path.suffix == ".parquet":
            return _build(
                _read_completions([path]),
                {},
                ("no log beside the completions: no loss, gradient or KL",),
            )
        return _from_json(_load(path), readable(path))
    return _from_json(source, "the log history")


def _read_folder(folder: Path) -> RunLog:
    states = [
        p for p in folder.rglob("trainer_state.json") if len(p.relative_to(folder).parts) <= 3
    ]
    own = folder / "log.json"
    parquets = sorted(
        p for p in folder.rglob("completions_*.parquet") if len(p.relative_to(folder).parts) <= 3
    )
    if not states and not own.is_file() and not parquets:
        raise WorkbookError(
            f"{readable(folder)} holds no log (log.json, trainer_state.json or completions/*.parquet): name the folder "
            "of a run, or its checkpoint; TRL writes the state with each checkpoint (save_strategy)"
        )
    settings = _settings_of(folder)
    notes: list[str] = []
    history: list[dict] = []
    if own.is_file():
        history = _history(_load(own), readable(own))[0]
    elif states:
        history, more = _history(_load(max(states, key=_steps_done)), "trainer_state.json")
        settings = more | settings
    else:
        notes.append("only the completions were logged: no loss, gradient or KL")
    if parquets:
        history = [*history, *_read_completions(parquets)]
    return _build(history, settings, tuple(notes))


def _steps_done(state: Path) -> int:
    name = state.parent.name.rpartition("-")[2]
    return int(name) if name.isdecimal() else 10**12  # the folder's own state is its last


def _settings_of(folder: Path) -> dict:
    """What run.json of this workbook says of the configuration, by TRL's names."""
    known: dict = {}
    if (folder / "run.json").is_file() and isinstance(there := _load(folder / "run.json"), Mapping):
        known = _mapping(there.get("settings"))
        known["max_completion_length"] = known.get("max_completion_length")
        known["max_steps"] = known.get("steps")
        # as written then: to make the functions again would run a file of the user's, in a run from elsewhere too
        known["reward_weights"] = there.get("reward_weights")
    return {k: v for k, v in known.items() if v is not None}


def _usable(name: str, value) -> bool:
    """Whether a setting is of the kind that the rules compute with; others were written by something else."""
    if name == "reward_weights":
        values = value.values() if isinstance(value, Mapping) else value
        return isinstance(value, Mapping | list | tuple) and all(map(_is_number, values))
    return name not in NUMBERS or _is_number(value)


def _is_number(value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _load(path: Path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise WorkbookError(
            f"{readable(path)} cannot be read as JSON ({error}): it was cut off while it was written; name an older "
            "checkpoint, or copy it again"
        ) from None


def _from_json(value, name: str) -> RunLog:
    history, settings = _history(value, name)
    return _build(history, settings)


def _history(value, name: str) -> tuple[list[dict], dict]:
    settings: dict = {}
    if isinstance(value, Mapping):
        settings = _mapping(value.get("settings"))
        settings |= {"max_steps": value["max_steps"]} if value.get("max_steps") else {}
        value = value.get("log_history", value.get("log"))
        if isinstance(value, Mapping):  # by column, as benchmarks/diagnosis.py keeps it
            keys = list(value)
            try:
                rows = list(zip(*value.values(), strict=True))
            except (TypeError, ValueError):
                raise WorkbookError(
                    f"{name} is no log: its columns are not lists of one length"
                ) from None
            value = [
                {k: v for k, v in zip(keys, row, strict=True) if v is not None} for row in rows
            ]
    if (
        not isinstance(value, Sequence)
        or isinstance(value, str)
        or not all(isinstance(e, Mapping) for e in value)
    ):
        raise WorkbookError(
            f"{name} is no log: a list of steps, or a trainer_state.json with its log_history, is needed"
        )
    return [dict(e) for e in value], settings


def _mapping(value) -> dict:
    return dict(value) if isinstance(value, Mapping) else {}


def _read_completions(paths: Sequence[Path]) -> list[dict]:
    """TRL's logged completions (log_completions=True) as one entry per step."""
    import pandas as pd

    table = _completions(paths)
    rewards = [c for c in table.columns if c not in ("step", "prompt", "completion", "advantage")]
    rewards = [c for c in rewards if pd.api.types.is_numeric_dtype(table[c])]
    entries = []
    for step, rows in table.groupby("step"):
        texts = [str(t).strip() for t in rows["completion"]]
        entry = {
            "step": int(step),
            "completions/unique_share": unique_share(list(rows["prompt"]), texts),
            "completions/empty_share": sum(not t for t in texts) / len(texts),
        }
        for name in rewards:
            entry[f"rewards/{name}/mean"], entry[f"rewards/{name}/std"] = (
                rows[name].mean(),
                rows[name].std(),
            )
        entries.append(entry)
    return entries


def _completions(paths: Sequence[Path], *more: str) -> "pandas.DataFrame":
    """TRL's completions files as one table; WorkbookError where it lacks a column of TRL's that is wanted."""
    import pandas as pd

    try:
        table = pd.concat([pd.read_parquet(p) for p in paths], ignore_index=True)
    except (OSError, ValueError) as error:
        raise WorkbookError(
            f"{readable(paths[0].parent)}: the completions cannot be read ({error})"
        ) from None
    missing = {"step", "prompt", "completion", *more} - set(table.columns)
    if missing:
        raise WorkbookError(
            f"{readable(paths[0])} is no completions table of TRL: {', '.join(sorted(missing))} missing"
        )
    return table


def unique_share(prompts: Sequence, texts: Sequence[str]) -> float:
    """The mean over groups of (different texts / completions), 0 to 1; a group is what answers the same prompt."""
    groups: dict[str, list[str]] = {}
    for prompt, text in zip(prompts, texts, strict=True):
        groups.setdefault(repr(prompt), []).append(text)
    return sum(len(set(g)) / len(g) for g in groups.values()) / len(groups)


def _build(history: list[dict], settings: dict, notes: tuple[str, ...] = ()) -> RunLog:
    import pandas as pd

    settings = {name: value for name, value in settings.items() if _usable(name, value)}
    if not history:
        raise WorkbookError(
            "the log is empty: no step was logged before the run ended, or logging_steps is too large"
        )
    rows: dict[int, dict] = {}
    broken: dict[str, int] = {}
    error = None
    for place, entry in enumerate(history):
        if "step" not in entry:
            raise WorkbookError(
                f"entry {place} of the log has no step: give trainer.state.log_history as it is"
            )
        try:
            step = int(entry["step"])
        except (TypeError, ValueError, OverflowError):
            raise WorkbookError(
                f"entry {place} of the log has the step {entry['step']!r:.40}: it must be a whole number"
            ) from None
        if "error" in entry:
            error = (step, " ".join(str(entry[k]) for k in ("error", "where") if entry.get(k)))
            continue
        row = rows.setdefault(step, {})
        for key, value in entry.items():
            key = RENAMED.get(key, key)
            value = float(value) if value in ("nan", "inf", "-inf") else value
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if not math.isfinite(value):
                broken.setdefault(key, step)
                value = math.nan
            if key == "reward" and key in row and abs(row[key] - value) > 1e-6:
                raise WorkbookError(
                    f"step {step} is there twice with different rewards ({row[key]:g} and {value:g}): two "
                    "runs are mixed; give each its own output_dir"
                )
            row.setdefault(key, value) if "rewards/" in key else row.update({key: value})
    table = pd.DataFrame.from_dict(rows, orient="index").sort_index()
    table.index.name = "step"
    if not any(c.startswith("reward") for c in table.columns) and error is None:
        other = [trainer for key, trainer in OTHERS.items() if key in table.columns]
        kind = f"it looks like {other[0]}'s" if other else "an SFT run, or another trainer's"
        raise WorkbookError(
            f"the log has no reward ({kind}): the diagnosis reads the log of TRL's GRPOTrainer"
        )
    steps = (
        [s for s in table.index if s > 0]
        if "reward" not in table
        else list(table["reward"].dropna().index)
    )
    if len(steps) > 1 and (gaps := len(range(steps[0], steps[-1] + 1)) - len(steps)):
        notes = (
            *notes,
            f"{gaps} of the steps {steps[0]} to {steps[-1]} are not in the log (logging_steps is more than 1)",
        )
    return RunLog(table, settings, broken, error, notes)


@dataclass(frozen=True)
class Sample:
    """One completion of a group: which it is ("best", "typical", "worst"), what it answered, what it earned."""

    kind: str
    prompt: str
    completion: str
    reward: float


def samples(folder: str | Path, step: int, groups: int = 1) -> list[Sample]:
    """The best, a typical and the worst completion of the first groups of a step, from TRL's logged completions.

    `folder`: where they lie, however deep, or one of their parquet files. They are ordered by advantage, which counts
    all rewards with their weights; `reward` is the plain sum of the reward columns. Needs log_completions=True; raises
    WorkbookError when the step was not logged.
    """
    paths = (
        [Path(folder)]
        if Path(folder).is_file()
        else sorted(Path(folder).rglob("completions_*.parquet"))
    )
    paths = [p for p in paths if p.suffix == ".parquet"]
    if not paths:
        raise WorkbookError(
            f"{readable(folder)} holds no completions: train with GRPOConfig(log_completions=True)"
        )
    table = _completions(paths, "advantage")
    rows = table[table["step"] == step]
    if not len(rows):
        raise WorkbookError(
            f"step {step} has no logged completions: there are {sorted(set(table['step']))[:20]}"
        )
    numbers = rows.drop(columns=["step", "advantage"]).select_dtypes("number").sum(axis=1)
    found = []
    for prompt in list(dict.fromkeys(map(_plain, rows["prompt"])))[:groups]:
        group = rows[[_plain(p) == prompt for p in rows["prompt"]]].sort_values(
            "advantage", ascending=False
        )
        for kind, place in (("best", 0), ("typical", len(group) // 2), ("worst", -1)):
            row = group.iloc[place]
            found.append(Sample(kind, prompt, _plain(row["completion"]), float(numbers[row.name])))
    return found


def _plain(value) -> str:
    """The text of a prompt or completion as TRL logs it: a text, or a list of messages."""
    if isinstance(value, str):
        return value
    return str(list(value)[-1].get("content", "")) if len(value) else ""
