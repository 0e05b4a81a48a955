"""One tidy table from a GRPO run: its log, TRL's completions, or a folder of this workbook."""

import contextlib
import math
import re
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import sub
from pathlib import Path
from statistics import median

import pandas as pd

from grpo_workbook.diagnosis.readers import STEPS, read
from grpo_workbook.errors import WorkbookError, visible
from grpo_workbook.files import read_json, readable
from grpo_workbook.rewards import name_of

LOOSE = set(".ipynb .csv .tsv .json .jsonl .log .txt .out .db".split())  # may be logs in a folder
NOT_REWARDS = ["step", "prompt", "completion", "advantage"]  # of TRL's table of completions
COMPLETIONS_ALONE = "loss, gradient and KL: there is no log beside the completions"
NO_ROLES = (
    "which reward judges the answer and which the form; mark your functions with "
    "@grpo_workbook.reward(role='correctness'), and give them to HealthCallback or read_run"
)


@dataclass(frozen=True)
class RunLog:
    """A run's log as a table with a row for each step (its index) and a column for each metric."""

    table: pd.DataFrame
    settings: dict = field(default_factory=dict)  # num_generations, beta, reward_weights, ...
    broken: dict[str, int] = field(default_factory=dict)  # metric: its first NaN or infinite step
    error: tuple[int, str] | None = None  # step and text of the exception that ended the run
    notes: tuple[str, ...] = ()  # what is not known

    @property
    def functions(self) -> list[str]:
        """The names of the reward functions."""
        return [c[8:-5] for c in self.table if c.startswith("rewards/") and c.endswith("/mean")]

    @property
    def steps(self) -> list[int]:
        """The optimizer steps with a row of training."""
        told = self.table.filter(["reward", "completions/mean_length"])
        rows = told.dropna(how="all") if len(told.columns) else self.table
        return [step for step in rows.index if step > 0]

    @property
    def every(self) -> int:
        """The optimizer steps from one row to the next (logging_steps), 1 if there is one row."""
        return int(median(map(sub, self.steps[1:], self.steps))) if len(self.steps) > 1 else 1

    @property
    def roles(self) -> dict[str, str]:
        """What each reward function judges, as far as its attribute `role` is known."""
        return {name: role for name, role in self.settings.get("reward_roles", {}).items() if role}


def roles_of(functions: Sequence[Callable]) -> dict[str, str | None]:
    """{name in the log: its attribute `role`, which grpo_workbook.rewards.reward sets}."""
    return {name_of(f): getattr(f, "role", None) for f in functions}


def read_run(source, functions: Sequence[Callable] = (), settings: Mapping | None = None) -> RunLog:
    """The log of one run: see read_runs. WorkbookError if `source` holds several."""
    if isinstance(source, RunLog):
        return source
    runs = read_runs(source, functions, settings)
    kept = {name: run for name, run in runs.items() if isinstance(run, RunLog)}
    if len(kept) > 1:
        names = visible(", ".join(kept))[:200]
        raise WorkbookError(f"{readable(source)} holds {len(kept)} runs: choose one of {names}")
    return next(iter(kept.values()))


def read_runs(source, functions: Sequence[Callable] = (), settings: Mapping | None = None) -> dict:
    """The logs of all runs in a folder, a file or memory: {a run's name: its log}.

    `source`: a run's folder (this workbook's, TRL's, TensorBoard's, or one with several), a file
    (see readers), or `trainer.state.log_history`. `functions`: the rewards, for their roles.
    `settings`: what the source does not say, such as logging_steps or num_generations.

    A run that cannot be read has the WorkbookError as value; if there is no other it is raised.
    """
    runs: dict = {}
    known = dict(settings or {}) | ({"reward_roles": roles_of(functions)} if functions else {})
    found = _from_disk(Path(source), runs) if isinstance(source, str | Path) else read(source)
    for name, (entries, told, *notes) in found.items():
        try:
            given = {k: v for k, v in (told | known).items() if v is not None}
            runs[name] = _build(entries, given, notes)
        except WorkbookError as error:
            runs[name] = error
    if not any(isinstance(run, RunLog) for run in runs.values()):
        raise next(iter(runs.values()))
    return runs


def _from_disk(place: Path, failed: dict[str, WorkbookError]) -> dict[str, tuple]:
    """{run: (its entries, settings, notes)}; a log that cannot be read goes to `failed`."""
    if not place.exists():
        raise WorkbookError(f"{readable(place)} does not exist: give a run's folder or its log")
    found: dict[str, tuple] = {}
    for home, log in _logs(place) if place.is_dir() else [(place, place)]:
        label = str(home.relative_to(place)) if home != place else ""
        try:
            held = read(log) if log.suffix != ".parquet" else {}
        except WorkbookError as error:
            if home == place or home.is_dir():  # another file in a folder may be anything
                failed[label] = error
            continue
        more, about = _read_completions(home), _about(home)
        for name, (entries, told) in held.items():  # charts of one run may be in several files
            before, known = found.get(name or label, ([], {}))
            found[name or label] = [*before, *entries, *more], known | told | about
    if found or failed:
        return found
    if entries := _read_completions(place):
        return {"": (entries, _about(place), COMPLETIONS_ALONE)}
    what = "holds no log (trainer_state.json, TensorBoard's, a notebook, a text)"
    fix = "give a run's folder or a checkpoint (TRL's save_strategy says when to write it)"
    raise WorkbookError(f"{readable(place)} {what}: {fix}")


def _logs(folder: Path, depth: int = 3) -> Iterator[tuple[Path, Path]]:
    """(folder or file of a run, its log), for all runs in a folder and in those inside it."""
    own = folder / "log.json"
    states = [*folder.glob("trainer_state.json"), *folder.glob("checkpoint-*/trainer_state.json")]
    if own.is_file():
        yield folder, own
    elif states:
        yield folder, max(states, key=lambda path: path.stat().st_size)
    elif any(folder.glob("events.out.tfevents.*")):
        yield folder, folder
    else:
        for path in sorted(folder.iterdir()):
            if path.is_dir() and depth and not path.name.startswith("."):
                yield from _logs(path, depth - 1)
            elif path.suffix in LOOSE:
                yield path, path


def _about(home: Path) -> dict:
    """The settings, roles and weights in a run.json of this workbook."""
    # Loading the rewards for their roles would run a file of unknown origin.
    fix = "choose an older checkpoint, or copy it again"
    about = read_json(path, fix) if (path := home / "run.json").is_file() else {}
    return about.get("settings", {}) | about


def _build(history: list[dict], settings: dict, notes: list[str]) -> RunLog:
    if not history:
        why = "no step was logged before the end, or logging_steps is too large"
        raise WorkbookError(f"the log is empty: {why}")
    told = [key for key in STEPS if any(key in entry for entry in history)]
    key, each = [*told, "step"][0], settings.get("logging_steps")
    if not told and isinstance(each, int | float):
        history = [entry | {"step": each * n} for n, entry in enumerate(history, 1)]
        notes += [f"the steps: none is logged, so each row counts as {each:g} (logging_steps)"]
    rows, broken, error = {}, {}, None
    for entry in history:
        if key != "step" and key not in entry:
            continue  # a tracker's entry about something else
        try:
            step = int(float(str(entry.get(key)).partition("/")[0]))
        except (OverflowError, ValueError):
            said = f"an entry of the log has the step {entry.get(key)!r:.40}"
            raise WorkbookError(f"{said}: give trainer.state.log_history unchanged") from None
        if "error" in entry:
            error = (step, " ".join(str(entry[k]) for k in ("error", "where") if entry.get(k)))
            continue
        row = rows.setdefault(step, {})
        for name, value in entry.items():
            with contextlib.suppress(TypeError, ValueError, OverflowError):  # no number: no metric
                if not math.isfinite(value := float(value)):
                    broken.setdefault(name, step)
                    value = math.nan
                row.setdefault(name, value)  # the log wins over completions
    table = pd.DataFrame.from_dict(rows, orient="index").sort_index().rename_axis("step")
    of_grpo = [c for c in table if re.match("reward|frac_reward", c) and "chosen" not in c]
    if error is None and not of_grpo:
        kind = "is it of an SFT, DPO or PPO run? The diagnosis reads logs of TRL's GRPOTrainer"
        raise WorkbookError(f"the log has no reward: {kind}")
    run = RunLog(table, settings, broken, error)
    first, last = min(run.steps, default=0), max(run.steps, default=-1)
    if (lost := (last - first) // run.every + 1 - len(run.steps)) > 0:
        notes += [f"{lost} rows between the steps {first} and {last}: they are not in the log"]
    notes += [NO_ROLES] if run.functions and not run.roles else []
    return replace(run, notes=tuple(notes))


def _completions(place: Path) -> pd.DataFrame | None:
    """TRL's completions files, up to two folders deep, as one pandas table; None without any."""
    found = (sorted(place.glob(f"{at}completions_*.parquet")) for at in ("", "*/", "*/*/"))
    paths = [place] if place.suffix == ".parquet" else next(filter(None, found), [])
    try:
        table = pd.concat(map(pd.read_parquet, paths), ignore_index=True) if paths else None
    except (OSError, ValueError) as error:
        said = f"{readable(place)}: the completions cannot be read ({error})"
        raise WorkbookError(said) from None
    if table is None:
        return None
    if missing := sorted(set(NOT_REWARDS) - set(table.columns)):
        what = f"not a completions table of TRL: {', '.join(missing)} missing"
        raise WorkbookError(f"{readable(paths[0])} is {what}")
    for name in ("prompt", "completion"):  # a text, or a list of messages
        table[name] = [t if isinstance(t, str) else str(t[-1]["content"]) for t in table[name]]
    return table


def _read_completions(home: Path) -> list[dict]:
    """TRL's logged completions (log_completions=True) in a run's folder, as one entry per step."""
    if (table := _completions(home)) is None:
        return []
    paid = table.drop(columns=NOT_REWARDS[1:]).select_dtypes("number")
    entries = paid.groupby("step").agg(["mean", "std"])
    entries.columns = [f"rewards/{name}/{kind}" for name, kind in entries]
    for step, rows in table.groupby("step"):
        texts = rows["completion"].str.strip()
        entries.loc[step, "completions/empty_fraction"] = (texts == "").mean()
        unique = unique_fraction(rows["prompt"], texts)
        entries.loc[step, "completions/unique_fraction"] = unique
    return entries.reset_index().to_dict("records")


def unique_fraction(prompts: Sequence, texts: Sequence[str]) -> float:
    """The mean over groups of (different texts / completions); a group answers the same prompt."""
    groups = pd.Series(list(texts)).groupby(list(map(repr, prompts)))
    return float((groups.nunique() / groups.size()).mean())


# One completion of a group; its kind is "best", "typical" or "worst".
Sample = namedtuple("Sample", "kind prompt completion reward")


def samples(folder: str | Path, step: int, groups: int = 1) -> list[Sample]:
    """The best, a typical and the worst completion, by advantage, of the first groups of a step.

    `folder`: a folder with TRL's logged completions, up to two folders deep, or one of their files.
    `reward` is the plain sum of the rewards. Raises WorkbookError if the step was not logged.
    """
    if (table := _completions(Path(folder))) is None:
        fix = "train with GRPOConfig(log_completions=True)"
        raise WorkbookError(f"{readable(folder)} holds no completions: {fix}")
    rows, found = table[table["step"] == step], []
    if not len(rows):
        there = sorted(set(table["step"]))[:20]
        raise WorkbookError(f"step {step} has no logged completions: choose from {there}")
    paid = rows.drop(columns=NOT_REWARDS).sum(axis=1, numeric_only=True)
    for prompt, group in list(rows.groupby("prompt", sort=False))[:groups]:
        order = group["advantage"].sort_values(ascending=False).index
        chosen = ("best", order[0]), ("typical", order[len(order) // 2]), ("worst", order[-1])
        found += [Sample(k, prompt, group["completion"][at], float(paid[at])) for k, at in chosen]
    return found
