"""A run's log as one tidy table: a reader for each form, chosen by content; none executes it."""

import contextlib
import csv
import html
import json
import math
import re
import sqlite3
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from grpo_workbook.errors import WorkbookError, visible
from grpo_workbook.files import read_json, readable
from grpo_workbook.rewards.contract import about, name_of

DATA = tomllib.loads(Path(__file__).with_name("findings.toml").read_text(encoding="utf-8"))
Runs = dict[str, tuple[list[dict], dict]]  # name, "" if the log has none -> entries, settings
LARGEST = 300 * 2**20  # bytes of a file
NO_LOG, AGAIN = "is not a log: it is", "choose an older checkpoint, or copy it again"
KEYS = "log_history", "log", "logs", "history", "data"  # what has the entries in a JSON file
STEPS = "global_step", "global_step/max_steps", "step", "_step"  # trackers count their own steps
RENAMED = {name: ours for ours, names in DATA["renamed"].items() for name in names}
# tqdm's "10/250 [", and metrics as printed: {'loss': np.float64(0.1)}, also without the first brace
PRINTED = re.compile(r"""\b(\d{1,9})/(\d{1,9}) \[|(?:\{\s*|^(?='loss))['"][^{}]{5,20000}\}""", re.M)
HEAD, ROW, SIGN = re.compile(r"(?i)step\b"), re.compile(r'[\s|"]*\d'), str.maketrans("−", "-", "*%")
NUMBER = r"-?(?:\d[\d.]*(?:e[-+]?\d+)?|nan|inf(?:inity)?)\b(?:/\d+)?"
PAIR = re.compile(rf"""['"]([^'"]+)['"]: *(?:[\w.]+\()?['"]?({NUMBER})""", re.I)
BARE = re.compile(rf"([a-z][\w/]*)(?: ?[=:] ?| (?=\d+[/\]]))({NUMBER})", re.I)  # step=1, Step 1/9
SETTING = re.compile(r"\b(\w+) *= *(-?\d[\d.]*(?:e-?\d+)?) *(?=[,)\n]|$)")  # GRPOConfig(beta=0.04)
LOOSE = set(".ipynb .csv .tsv .json .jsonl .log .txt .out .db .html".split())  # in a folder
NOT_REWARDS = ["step", "prompt", "completion", "advantage"]  # of TRL's table of completions


@dataclass(frozen=True)
class RunLog:
    """A run's log as a table with a row for each step (its index) and a column for each metric."""

    table: pd.DataFrame
    settings: dict = field(default_factory=dict)  # num_generations, beta, reward_weights, ...
    broken: dict[str, int] = field(default_factory=dict)  # metric: its first NaN or infinite step
    error: tuple[int, str] | None = None  # step and text of the exception that ended the run
    notes: tuple[str, ...] = ()  # what is not known

    def of(self, metric: str) -> pd.Series:
        """The metric's values by step; none if it was never logged."""
        return self.table[metric].dropna() if metric in self.table else pd.Series(dtype=float)

    @property
    def functions(self) -> list[str]:
        """The names of the reward functions."""
        return [m[1] for c in self.table if (m := re.fullmatch("rewards/(.+)/mean", c))]


def roles_of(functions: Sequence[Callable]) -> dict[str, str | None]:
    """{name in the log: its role, which grpo_workbook.rewards.reward sets}."""
    return {name_of(f): about(f).role for f in functions}


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
    in any of the forms below, or `trainer.state.log_history`. `functions`: the rewards, for their
    roles. `settings`: what the source does not say, such as logging_steps or num_generations.

    A run that cannot be read has the WorkbookError as value; if there is no other it is raised.
    """
    place = Path(source) if isinstance(source, str | Path) else None
    where = f"{readable(place)}: " if place and place.is_file() else ""
    known = dict(settings or {}) | ({"reward_roles": roles_of(functions)} if functions else {})
    runs, found = {}, {}
    for home, log in _logs(place) if place else [(None, source)]:
        label = str(home.relative_to(place)) if home != place else ""
        try:
            held, about = _read(log), _about(home) if place else {}
        except WorkbookError as error:
            if home == place or home.is_dir():  # another file in a folder may be anything
                runs[label] = error
            continue
        for name, (entries, told) in held.items():  # charts of one run may be in several files
            before, said = found.get(name or label, ([], about))
            found[name or label] = [*before, *entries], said | told
    for name, (entries, told) in found.items():
        try:
            given = {k: v for k, v in (told | known).items() if v not in (None, "None")}
            runs[name] = _build(entries, given)
        except WorkbookError as error:
            runs[name] = WorkbookError(f"{where}{error}")
    if not runs:
        said = "holds no log: give a run's folder, a checkpoint (TRL's save_strategy) or a log file"
        raise WorkbookError(f"{readable(place)} {said}")
    if not any(isinstance(run, RunLog) for run in runs.values()):
        raise next(iter(runs.values()))
    return runs


def _logs(place: Path, depth: int = 3) -> Iterator[tuple[Path, Path]]:
    """(folder or file of a run, its log), for a file or all runs in a folder and those inside."""
    states = [*place.glob("trainer_state.json"), *place.glob("checkpoint-*/trainer_state.json")]
    events = [place] if any(place.glob("events.out.tfevents.*")) else []
    if logs := [*place.glob("log.json")] or states or events:
        yield place, max(logs, key=lambda path: path.stat().st_size)
    elif not place.is_dir():
        yield place, place
    else:
        for path in sorted(place.iterdir()):
            searched = path.is_dir() and depth > 0 and not path.name.startswith(".")
            if searched or (path.suffix in LOOSE and path.is_file()):  # a pipe would wait
                yield from _logs(path, depth - 1)


def _about(home: Path) -> dict:
    """What the run.json beside a log of this workbook says; its settings are on the same level."""
    # loading the rewards for their roles would run a file of unknown origin
    path = (home if home.is_dir() else home.parent) / "run.json"
    own = read_json(path, AGAIN) if path.is_file() else {}
    return (own.get("settings") or {}) | own


def _number(step) -> float:
    """A step as a number: trackers and ms-swift write "5/150", people "20 (val)"."""
    try:
        int(number := float(re.split(r"[/(]", str(step))[0]))  # refuses NaN and infinity
        return number
    except (OverflowError, ValueError):
        raise WorkbookError(f"a row has the step {step!r:.40}: give the log unchanged") from None


def _build(history: list[dict], settings: dict) -> RunLog:
    if not history:
        raise WorkbookError("the log is empty: no step was logged, or logging_steps is too large")
    rows, broken, error, notes, last = {}, {}, None, [], 0
    key = next((k for k in STEPS if any(k in entry for entry in history)), "")
    if key:  # the others are a tracker's entries about something else
        history = [entry for entry in history if key in entry]
        notes += ["the optimizer steps: these are a tracker's own"] if key == "_step" else []
    else:
        key, each = "step", _number(settings.get("logging_steps", 1))
        history = [entry | {"step": each * n} for n, entry in enumerate(history, 1)]
        notes += [f"the steps: none is logged, so each row counts as {each:g} (logging_steps)"]
    for entry in history:
        step = int(_number(entry[key]))
        if "error" in entry:
            error = (step, " ".join(str(entry[k]) for k in ("error", "where") if entry.get(k)))
            continue
        if "reward" in entry and step < last and "reward" in rows.get(step, ()):
            # a run was resumed, or begins again: its first try went on past this step
            notes.append(f"the first try of step {step} to {last}: they were logged again")
            rows = {at: row for at, row in rows.items() if at < step}
            broken = {name: at for name, at in broken.items() if at < step}
        last = step if "reward" in entry else last
        row = rows.setdefault(step, {})
        for name, value in entry.items():
            with contextlib.suppress(TypeError, ValueError, OverflowError):  # no number: no metric
                if not math.isfinite(value := float(value)):
                    broken.setdefault(name, step)
                    value = math.nan
                row[name] = value
    table = pd.DataFrame.from_dict(rows, orient="index").sort_index().rename_axis("step")
    # `chosen` is of DPO; without a `reward`, frac_reward_zero_std is left if no function applied
    if not error and not any(re.match("(frac_)?reward(?!s/chosen)", c) for c in table):
        kind = "is it of an SFT, DPO or PPO run? Give a whole log of TRL's GRPOTrainer"
        raise WorkbookError(f"the log has no reward, only {visible(', '.join(table))[:60]}: {kind}")
    return RunLog(table, settings, broken, error, tuple(notes))


def samples(folder: str | Path, step: int, groups: int = 1) -> list:
    """The best, a typical and the worst completion, by advantage, of the first groups of a step.

    `folder`: a run's folder with TRL's logged completions in it, or one of their files. Tuples of
    kind, prompt, completion and reward, the plain sum of the rewards. Raises WorkbookError if the
    step was not logged.
    """
    place, found, fields = Path(folder), [], ["kind", "prompt", "completion", "reward"]
    paths = [place] if place.is_file() else sorted(place.rglob("completions_*.parquet"))
    if not paths:
        raise WorkbookError(f"{readable(folder)} has no completions: set log_completions=True")
    try:
        table = pd.concat(map(pd.read_parquet, paths), ignore_index=True)
        paid = table.drop(columns=NOT_REWARDS).sum(axis=1, numeric_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise WorkbookError(f"{readable(paths[0])} is not TRL's completions: {error}") from None
    for name in ("prompt", "completion"):  # a text, or a list of messages
        table[name] = [t if isinstance(t, str) else str(t[-1]["content"]) for t in table[name]]
    rows = table.assign(reward=paid)[table["step"] == step]
    if rows.empty:
        there = sorted(set(table["step"]))[:20]
        raise WorkbookError(f"step {step} has no logged completions: choose from {there}")
    for _, group in list(rows.groupby("prompt", sort=False))[:groups]:
        chosen = group.sort_values("advantage", ascending=False).iloc[[0, len(group) // 2, -1]]
        told = chosen.assign(kind=["best", "typical", "worst"])[fields]
        found += told.itertuples(index=False, name="Sample")
    return found


def _read(source) -> Runs:
    """The runs in a file, a folder of TensorBoard, or a log history in memory."""
    name = readable(source) if isinstance(source, Path) else "the log history"
    try:
        return _file(source) if isinstance(source, Path) else _json(source)
    except OSError as error:
        raise WorkbookError(f"{name} cannot be read ({error.strerror})") from None
    except Exception as error:  # a reader may raise anything for a file of another program
        what = error if isinstance(error, WorkbookError) else f"{NO_LOG} another program's"
        raise WorkbookError(f"{name} {what}") from None


def _file(path: Path) -> Runs:
    if path.is_dir():
        return _tensorboard(path)
    with path.open("rb") as file:
        raw = file.read(LARGEST + 1)
    if b"brain.Event" in raw[:64]:
        return _tensorboard(path)
    if raw.startswith(b"SQLite format 3"):
        return _trackio(path)
    if b"\0" in raw[:1000]:
        raise WorkbookError(f"{NO_LOG} binary: give a text in UTF-8, or a tracker's export as CSV")
    if len(raw) > LARGEST:
        raise WorkbookError(f"has over {LARGEST >> 20} MiB: cut out the part with the log")
    text = raw.decode("utf-8-sig", errors="replace")
    try:
        return _json(json.loads(text))
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()) > 0 or error.msg.startswith("Unterminated"):
            raise WorkbookError(f"is JSON that ends in the middle: {AGAIN}") from None
    with contextlib.suppress(json.JSONDecodeError):  # JSON lines
        if rows := [json.loads(line) for line in text.splitlines() if line.strip()]:
            return _json(rows)
    return _tables([text]) or _printed(text) or _pairs(text) or _csv(text)


def _json(value) -> Runs:
    """A notebook, a trainer_state, entries, columns of metrics, or these two under one of KEYS."""
    settings: dict = {}
    if isinstance(value, Mapping):
        if "cells" in value:
            return _notebook(value["cells"])
        settings = {k: value[k] for k in ("max_steps", "logging_steps") if k in value}
        settings |= value.get("settings") or {}
        value = next((value[key] for key in KEYS if key in value), value)
    if isinstance(value, Mapping):  # by column, as pandas writes a table
        value = pd.DataFrame(value, dtype=object).to_dict("records")
    return _by_run(value, settings)


def _by_run(rows: list[dict], settings: dict) -> Runs:
    """The entries of each run in a table, with TRL's names and without what is missing."""
    # trackers have the run's name in a column, W&B's charts in those of the metrics: "NAME - loss"
    runs: Runs = {}
    for row in rows:
        own, parts = str(row.get("run_name") or row.get("run") or ""), {}
        if isinstance(told := row.get("metrics"), str):  # JSON in a column of trackio's table
            row = row | json.loads(told)
        for key, value in row.items():
            run, _, metric = str(key).rpartition(" - ")
            if value is not None and value != "" and not metric.endswith(("__MIN", "__MAX")):
                parts.setdefault(run or own, {})[metric_name(metric)] = value
        shared = parts.pop(own, {})
        if parts and "step" in shared:  # a chart's
            shared["_step"] = shared.pop("step")
        for run, part in (parts or {own: {}}).items():
            runs.setdefault(run, ([], settings))[0].append(shared | part)
    known = {*STEPS, "reward", "error"}
    if rows and not any(known & {*entry} for entries, _ in runs.values() for entry in entries):
        names = visible(", ".join(map(str, rows[0])))[:60]
        raise WorkbookError(f"{NO_LOG} a table without steps and rewards: {names}")
    return runs or {"": ([], settings)}


def metric_name(name: str) -> str:
    """TRL's present name of a metric that a tracker, Unsloth or TRL before 0.17 calls otherwise."""
    name = name.strip().replace(" / ", "/").removeprefix("train/")
    return re.sub("^rewards/(?!invalid_frac)[^/]+$", r"\g<0>/mean", RENAMED.get(name.lower(), name))


def _csv(text: str) -> Runs:
    """A table with commas, semicolons, tabs or Markdown's bars between its cells."""
    lines = [line for line in text.translate(SIGN).splitlines() if line.strip("|-+=: ")] or [""]
    heads = (n for n, row in enumerate(lines[1:]) if ROW.match(row) and HEAD.search(lines[n]))
    lines = lines[next(heads, 0) :]  # there may be other text above
    sign = max(",;\t|", key=lines[0].count)
    if sign == ";":  # 0,5 is a half where columns are parted so
        lines = [line.replace(",", ".") for line in lines]
    rows = csv.DictReader(lines, delimiter=sign)
    rows = [row for row in rows if None not in [*row, *row.values()]]  # too many or few cells: text
    if not rows or len(rows[0]) < 2:
        raise WorkbookError(f"{NO_LOG} a text without metrics: {lines[0].expandtabs(1)[:60]!r}")
    return _by_run(rows, {})


def _tables(texts: list[str]) -> Runs:
    """The HTML tables with steps and rewards, as transformers and Unsloth show them in training."""
    kept = []
    for table in "".join(texts).split("<table")[1:]:
        head, *rows = [
            [html.unescape(cell) for cell in re.findall(r"<t[hd]\b[^<>]*>([^<]*)", row)]
            for row in table.partition("</table")[0].split("<tr")[1:]
        ] or [[]]
        names = [metric_name(cell) for cell in head]
        if {"step", "reward"} <= {*names} and rows:  # there may be one of SFT beside them
            kept.append(([dict(zip(names, row, strict=False)) for row in rows], {}))
    return {f"table {n}" if len(kept) > 1 else "": run for n, run in enumerate(kept, 1)}


def _printed(text: str) -> Runs:
    """Printed metrics; their steps are their own, or those of the progress bar before each."""
    entries, bars = [], [{}]  # before each entry, {a bar's length: where it was}
    for found in PRINTED.finditer(text):
        if found[1]:
            bars[-1][found[2]] = int(found[1])
            continue
        pairs = PAIR.findall(found[0].replace("\n", ""))  # a terminal may have cut long lines
        entry = {metric_name(key): value for key, value in pairs}
        if entry.keys() & {"reward", "loss"} and "train_runtime" not in entry:  # that is a summary
            entries.append(entry)
            bars.append({})
    if not entries or any(key in entry for entry in entries for key in STEPS):
        return {"": (entries, {})} if entries else {}
    # the bar of the training always moves on: those of generation or a data set do not
    seen, planned = pd.DataFrame(bars[: len(entries)]).fillna(0), {}
    ends = pd.Series([float(e.get("epoch", 0)) for e in entries]).diff() < 0  # another run begins
    for _, part in seen.groupby(ends.cumsum()):
        moving = [bar for bar in part if part[bar].is_monotonic_increasing and part[bar].is_unique]
        for n in part.index if moving else ():
            entries[n]["step"], planned = part[moving[0]][n], {"max_steps": int(moving[0])}
    return {"": (entries, planned)}


def _pairs(text: str) -> Runs:
    """Lines such as `step=1 reward=0.5` or `Step 10/500 | loss: 0.1 | reward: 0.5`."""
    entries = [{metric_name(k): x for k, x in BARE.findall(line)} for line in text.splitlines()]
    entries = [e for e in entries if {"step", "reward"} <= {*e}]
    return {"": (entries, {})} if entries else {}


def _notebook(cells: list[dict]) -> Runs:
    """The training tables in a notebook's stored outputs, or the metrics printed there.

    The settings are the numbers in its last GRPOConfig(...): names of variables are not looked up.
    """
    code = "\n".join("".join(cell.get("source", "")) for cell in cells)
    config = re.sub("#.*", "", code).rpartition("GRPOConfig(")[2] if "GRPOConfig(" in code else ""
    settings = {name: float(number) for name, number in SETTING.findall(config)}
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    shown = ["".join(output.get("data", {}).get("text/html", "")) for output in outputs]
    printed = "".join("".join(output.get("text", "")) for output in outputs)
    if runs := _tables(shown) or _printed(printed):
        return {name: (entries, told | settings) for name, (entries, told) in runs.items()}
    raise WorkbookError(f"{NO_LOG} a notebook without rewards in its outputs: give a checkpoint")


def _tensorboard(place: Path) -> Runs:
    """TensorBoard's scalars, and the settings that transformers writes beside them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = EventAccumulator(str(place), {"scalars": 0, "tensors": 0}).Reload()
    tags, settings = log.Tags(), {}
    each = ((e.wall_time, e.step, t, e.value) for t in tags["scalars"] for e in log.Scalars(t))
    entries = [{"step": at, metric_name(tag): value} for _, at, tag, value in sorted(each)]
    if (told := "args/text_summary") in tags["tensors"]:
        settings = json.loads(log.Tensors(told)[-1].tensor_proto.string_val[0])
    return {"": (entries, settings)}


def _trackio(path: Path) -> Runs:
    """The runs of a project that trackio keeps in ~/.cache/huggingface/trackio/PROJECT.db."""
    with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
        db.row_factory = sqlite3.Row
        rows = [dict(row) for row in db.execute("SELECT run_name, step, metrics FROM metrics")]
        configs = {row["run_name"]: row["config"] for row in db.execute("SELECT * FROM configs")}
    runs = _by_run(rows, {}).items()
    return {run: (entries, json.loads(configs.get(run, "{}"))) for run, (entries, _) in runs}
