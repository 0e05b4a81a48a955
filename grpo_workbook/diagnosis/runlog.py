"""A run's log as one tidy table, from wherever it is.

`read_runs` finds the logs in a folder, has each read by formats.py, and makes a RunLog of the
entries: a row for each optimizer step, a column for each metric.
"""

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from grpo_workbook.diagnosis.formats import STEPS, Log, is_evaluation, read_source
from grpo_workbook.errors import WorkbookError, visible
from grpo_workbook.files import read_object, readable
from grpo_workbook.rewards.contract import about, name_of

# the files that may be logs, in a folder with others
ENDINGS = (".ipynb", ".csv", ".tsv", ".json", ".jsonl", ".log", ".txt", ".out", ".db", ".html")
Source = str | Path | Mapping | list


@dataclass(frozen=True)
class RunLog:
    """A run's log as a table with a row for each step (its index) and a column for each metric."""

    table: pd.DataFrame
    settings: dict[str, Any] = field(default_factory=dict)  # beta, reward_weights, ...
    broken: dict[str, int] = field(default_factory=dict)  # metric: its first NaN or infinite step
    error: tuple[int, str] | None = None  # step and text of the exception that ended the run
    notes: tuple[str, ...] = ()  # what is not known

    def of(self, metric: str) -> pd.Series:
        """The metric's values by step; none if it was never logged."""
        if metric not in self.table:
            return pd.Series(dtype=float)
        values: Any = self.table[metric]
        return values.dropna()

    @property
    def functions(self) -> list[str]:
        """The names of the reward functions."""
        names = []
        for column in self.table:
            match = re.fullmatch("rewards/(.+)/mean", column)
            if match:
                names.append(match[1])
        return names


def roles_of(functions: Sequence[Callable]) -> dict[str, str | None]:
    """{name in the log: what the function judges} for reward functions.

    None if no `@reward(role=...)` says it.
    """
    return {name_of(function): about(function).role for function in functions}


def read_run(
    source: RunLog | Source,
    functions: Sequence[Callable] = (),
    settings: Mapping[str, Any] | None = None,
) -> RunLog:
    """The log of one run. WorkbookError if `source` holds several.

    source, functions, settings: as in `read_runs`; a RunLog is returned as it is.
    """
    if isinstance(source, RunLog):
        return source
    runs = read_runs(source, functions, settings)
    # a folder may hold logs of other trainers beside the one run
    readable_runs = {name: run for name, run in runs.items() if isinstance(run, RunLog)}
    if len(readable_runs) > 1:
        place = readable(source) if isinstance(source, str | Path) else "the log"
        names = visible(", ".join(readable_runs))[:200]
        count = len(readable_runs)
        raise WorkbookError(f"{place} holds {count} runs: choose one of {names}")
    return next(iter(readable_runs.values()))


def read_runs(
    source: Source,
    functions: Sequence[Callable] = (),
    settings: Mapping[str, Any] | None = None,
) -> dict[str, RunLog | WorkbookError]:
    """The logs of all runs in a folder, a file or memory: {a run's name: its log}.

    source: a run's folder (this workbook's, TRL's, TensorBoard's, or one with several), a file
    in any of the forms of formats.py, or `trainer.state.log_history`.
    functions: the rewards, for their roles.
    settings: what the source does not say, such as logging_steps or num_generations.

    A run that cannot be read has the WorkbookError as its value; if there is no other, it is
    raised, as is one for a place without any log.
    """
    extra = dict(settings or {})
    if functions:
        extra["reward_roles"] = roles_of(functions)
    if isinstance(source, str | Path):
        runs = read_place(Path(source), extra)
        if not runs:
            fix = "give a run's folder, a checkpoint (TRL's save_strategy) or a log file"
            raise WorkbookError(f"{readable(source)} holds no log: {fix}")
    else:
        runs = {name: tabulate(log, extra) for name, log in read_source(source).items()}
    errors = [run for run in runs.values() if isinstance(run, WorkbookError)]
    if len(errors) == len(runs):
        raise errors[0]
    return runs


def read_place(place: Path, settings: dict) -> dict[str, RunLog | WorkbookError]:
    """The runs in a file or a folder, by name."""
    runs: dict[str, RunLog | WorkbookError] = {}
    logs: dict[str, Log] = {}
    for home, path in find_logs(place):
        label = "" if home == place else str(home.relative_to(place))
        try:
            parts = read_source(path)
            about = read_about(home)
        except WorkbookError as error:
            if home == place or home.is_dir():  # another file in a folder may be anything
                runs[label] = error
            continue
        for name, part in parts.items():
            log = logs.setdefault(name or label, Log(settings=about))
            # a run's charts may be in several files, one for each metric
            log.entries = log.entries + part.entries
            log.settings = {**log.settings, **part.settings}
    for name, log in logs.items():
        runs[name] = tabulate(log, settings, readable(place) if place.is_file() else "")
    return runs


def find_logs(place: Path, depth: int = 3) -> Iterator[tuple[Path, Path]]:
    """(folder or file of a run, its log), for a file or all runs in a folder and those inside."""
    if not place.is_dir():
        yield place, place
        return
    # a checkpoint's state has the whole log up to it: the largest is the last
    states = [*place.glob("trainer_state.json"), *place.glob("checkpoint-*/trainer_state.json")]
    own = place / "log.json"
    if own.is_file():
        yield place, own
    elif states:
        yield place, max(states, key=lambda path: path.stat().st_size)
    elif any(place.glob("events.out.tfevents.*")):
        yield place, place
    else:
        for path in sorted(place.iterdir()):
            if path.is_dir() and depth > 0 and not path.name.startswith("."):
                yield from find_logs(path, depth - 1)
            elif path.is_file() and path.suffix in ENDINGS:
                yield path, path


def read_about(home: Path) -> dict:
    """The settings in the run.json beside a log of this workbook, if there is one.

    Its rewards are not loaded for their roles: that would run a file of unknown origin.
    """
    path = (home if home.is_dir() else home.parent) / "run.json"
    if not path.is_file():
        return {}
    about = read_object(path, "copy it again, or delete it")
    return {**about.get("settings", {}), **about}


def tabulate(log: Log, extra: dict, where: str = "") -> RunLog | WorkbookError:
    """The log as a RunLog, with `extra` settings; a WorkbookError if it is no log of GRPO."""
    settings = {}
    for name, value in {**log.settings, **extra}.items():
        if value not in (None, "None"):  # as trackers write it
            settings[name] = value
    try:
        return build(log.entries, settings)
    except WorkbookError as error:
        return WorkbookError(f"{where}: {error}" if where else str(error))


def build(entries: list[dict], settings: dict) -> RunLog:
    """A RunLog of the entries; each may have some of the metrics of a step."""
    if not entries:
        raise WorkbookError("the log is empty: no step was logged, or logging_steps is too large")
    notes: list[str] = []
    training = [entry for entry in entries if not is_evaluation(entry)]
    numbered = number_steps(training, settings, notes)
    logged: dict[int, dict[str, list[float]]] = {}
    broken: dict[str, int] = {}
    error = None
    for step, entry in last_try(numbered, notes):
        if "error" in entry:
            error = (step, f"{entry['error']} {entry.get('where') or ''}".strip())
            continue
        row = logged.setdefault(step, {})
        for name, value in numbers_of(entry).items():
            row.setdefault(name, []).append(value)
            if math.isnan(value):
                broken.setdefault(name, step)
    table = table_of(logged)
    # a run that an exception ended may not have come to its first reward
    if error is None:
        check_for_rewards(list(table))
    return RunLog(table, settings, broken, error, tuple(notes))


def table_of(logged: dict[int, dict[str, list[float]]]) -> pd.DataFrame:
    """The values of each step and metric as a table with one value for them."""
    rows = {}
    for step, row in logged.items():
        rows[step] = {name: combined(name, values) for name, values in row.items()}
    return pd.DataFrame.from_dict(rows, orient="index").sort_index().rename_axis("step")


def combined(name: str, values: list[float]) -> float:
    """One value of those that several entries have for a step, as the processes of a run log it."""
    numbers = [value for value in values if not math.isnan(value)]
    if not numbers:
        return math.nan
    if name.endswith(("/max", "max_length")):
        return max(numbers)
    if name.endswith(("/min", "min_length")):
        return min(numbers)
    return sum(numbers) / len(numbers)


def number_steps(entries: list[dict], settings: dict, notes: list[str]) -> list[tuple[int, dict]]:
    """The entries with their optimizer steps; what is not known of these is added to the notes."""
    for key in STEPS:
        numbered = []
        for entry in entries:
            if key in entry:  # one without a step is a tracker's, about something else
                numbered.append((step_number(entry[key]), entry))
        if numbered and key == "_step":
            notes.append("the optimizer steps: these are a tracker's own")
        if numbered:
            return numbered
    every = settings.get("logging_steps", 1)
    notes.append(f"the steps: none is logged, so each row counts as {every:g} (logging_steps)")
    return [(step_number(every * n), entry) for n, entry in enumerate(entries, start=1)]


def step_number(step: Any) -> int:
    """A step as a number: trackers and ms-swift write "5/150", people "20 (val)"."""
    try:
        return int(float(re.split(r"[/(]", str(step))[0]))
    except (OverflowError, ValueError):  # infinity, NaN or a text
        raise WorkbookError(f"a row has the step {step!r:.40}: give the log unchanged") from None


def last_try(numbered: list[tuple[int, dict]], notes: list[str]) -> list[tuple[int, dict]]:
    """The entries without those of a first try, which went on past the step of a later one.

    A run was resumed from a checkpoint, or begins again in the same log; a note says so.
    """
    kept: list[tuple[int, dict]] = []
    rewarded = set()  # the steps with a reward
    last = 0
    for step, entry in numbered:
        if "reward" in entry:
            if step < last and step in rewarded:
                notes.append(f"the first try of step {step} to {last}: they were logged again")
                kept = [(at, other) for at, other in kept if at < step]
                rewarded = {at for at in rewarded if at < step}
            rewarded.add(step)
            last = step
        kept.append((step, entry))
    return kept


def check_for_rewards(metrics: list[str]) -> None:
    """Raise WorkbookError for the log of another trainer."""
    for metric in metrics:
        # if no function applied there is frac_reward_zero_std alone; DPO has rewards/chosen
        if re.fullmatch("reward|frac_reward_zero_std|rewards/(?!chosen|rejected).+/mean", metric):
            return
    names = visible(", ".join(sorted(metrics, key=lambda metric: "reward" not in metric)))[:60]
    fix = "is it of an SFT, DPO or PPO run? Call the column of the total reward `reward`"
    raise WorkbookError(f"the log has no reward, only {names}: {fix}")


def numbers_of(entry: dict) -> dict[str, float]:
    """The entry's metrics: its values that are numbers, or texts of numbers; NaN for infinity."""
    numbers = {}
    for name, value in entry.items():
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            number = float(value)
            numbers[name] = number if math.isfinite(number) else math.nan
    return numbers
