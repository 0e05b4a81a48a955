"""Readers for the forms in which people have a log: each gives the entries and settings of runs.

`read_source` chooses the reader by the content, never by the file's name, and executes nothing. All
names of metrics become TRL's present ones (`metric_name`). runlog.py makes a table of the entries.
"""

import contextlib
import csv
import html
import json
import re
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from grpo_workbook.diagnosis.findings import DATA
from grpo_workbook.errors import WorkbookError, visible
from grpo_workbook.files import readable

# what holds the entries in a JSON file
JSON_KEYS = ("log_history", "log", "logs", "history", "data")
# where an entry has its optimizer step; a tracker's `_step` counts its own calls
STEPS = ("global_step", "global_step/max_steps", "step", "_step")
RENAMED = DATA["renamed"]  # {another name in small letters: TRL's present one}

NUMBER = r"-?(?:\d[\d.]*(?:e[-+]?\d+)?|nan|inf(?:inity)?)\b(?:/\d+)?"
# tqdm's "10/250 ["
BAR = r"\b(?P<position>\d{1,9})/(?P<length>\d{1,9}) \["
# metrics as printed, {'loss': np.float64(0.1)}, also where the first brace was lost
PRINTED = re.compile(rf"""{BAR}|(?:\{{\s*|^(?='loss))['"][^{{}}]{{5,20000}}\}}""", re.M)
PAIR = re.compile(rf"""['"]([^'"]+)['"]: *(?:[\w.]+\()?['"]?({NUMBER})""", re.I)
# the step that a line is about
STEP = re.compile(DATA["lines"]["step"], re.I)
# reward=0.5, Reward: 0.5, "│ reward │ 0.5 │"; names of several words are those that are renamed
WORDS = "|".join(re.escape(name) for name in RENAMED if " " in name)
BARE_PAIR = re.compile(rf"({WORDS}|[a-z][\w/]*)(?: ?[=:] ?| *│ *)({NUMBER})", re.I)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # of a terminal
# GRPOConfig(beta=0.04)
ARGUMENT = re.compile(r"\b(\w+) *= *(-?\d[\d.]*(?:e-?\d+)?) *(?=[,)\n]|$)")
# a minus sign as printed in books; bold cells and percent
SIGNS = str.maketrans("−", "-", "*%")


@dataclass
class Log:
    """What a source tells of one run: the entries with their metrics, and the settings."""

    entries: list[dict[str, Any]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)


Logs = dict[str, Log]  # by the run's name, "" if the source has none


def read_source(source: Path | Mapping | list) -> Logs:
    """The runs in a file, a folder of TensorBoard, or a log history in memory.

    WorkbookError if it is not a log, with what it is.
    """
    name = readable(source) if isinstance(source, Path) else "the log history"
    try:
        return read_file(source) if isinstance(source, Path) else read_json(source)
    except OSError as error:
        raise WorkbookError(f"{name} cannot be read ({error.strerror})") from None
    except WorkbookError as error:
        raise WorkbookError(f"{name} {error}") from None
    except Exception:  # a reader may raise anything for a file of another program
        raise WorkbookError(f"{name} is not a log: it is another program's") from None


def read_file(path: Path) -> Logs:
    """The runs in a file of any form, or in a folder of TensorBoard."""
    if path.is_dir():
        return read_tensorboard(path)
    raw = path.read_bytes()
    if b"brain.Event" in raw[:64]:
        return read_tensorboard(path)
    if raw.startswith(b"SQLite format 3"):
        return read_trackio(path)
    if b"\0" in raw[:1000]:
        fix = "give a text in UTF-8, or a tracker's export as CSV"
        raise WorkbookError(f"is not a log: it is binary: {fix}")
    text = COLOUR.sub("", raw.decode("utf-8-sig", errors="replace"))
    with contextlib.suppress(json.JSONDecodeError):
        return read_json(json.loads(text))
    with contextlib.suppress(json.JSONDecodeError):
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        if rows:
            return read_json(rows)
    for read in (read_html, read_printed, read_pairs):
        logs = read(text)
        if logs:
            return logs
    return read_csv(text)


def metric_name(name: str) -> str:
    """TRL's present name of a metric that a tracker, Unsloth or TRL before 0.17 calls otherwise."""
    name = name.strip().replace(" / ", "/").removeprefix("train/")
    name = RENAMED.get(name.lower(), name)
    if re.fullmatch("rewards/(?!invalid_frac)[^/]+", name):
        return f"{name}/mean"
    return name


# ---- JSON


def read_json(value: Any) -> Logs:
    """The runs in a notebook, a trainer_state, a list of entries, or a table by columns."""
    settings = {}
    if isinstance(value, Mapping):
        if "cells" in value:
            return read_notebook(value["cells"])
        for name in ("max_steps", "logging_steps"):
            if name in value:
                settings[name] = value[name]
        settings.update(value.get("settings") or {})
        for key in JSON_KEYS:
            if key in value:
                value = value[key]
                break
    if isinstance(value, Mapping):  # by columns, as pandas writes a table
        value = pd.DataFrame(value, dtype=object).to_dict("records")
    return by_run(value, settings)


def by_run(rows: list[dict], settings: dict) -> Logs:
    """The entries of each run in a table, with TRL's names and without empty cells.

    Trackers put the run's name in a column; W&B's charts put it in the metrics: "NAME - reward".
    """
    logs: Logs = {}
    metrics = set()
    for row in rows:
        parts = split_columns(row)
        shared = parts.pop("", {})
        if not parts:
            parts = {str(row.get("run_name") or row.get("run") or ""): {}}
        elif "step" in shared:  # a chart's: W&B counts its own steps
            shared["_step"] = shared.pop("step")
        for run, own in parts.items():
            entry = {**shared, **own}
            logs.setdefault(run, Log(settings=settings)).entries.append(entry)
            metrics.update(entry)
    if rows and metrics.isdisjoint({*STEPS, "reward", "error"}):
        columns = visible(", ".join(map(str, rows[0])))[:60]
        raise WorkbookError(f"is not a log: it is a table without steps and rewards: {columns}")
    return logs or {"": Log(settings=settings)}


def split_columns(row: dict) -> dict[str, dict]:
    """{run: its metrics} of a row of a chart; the columns of no run are under ""."""
    parts = {}
    for column, value in row.items():
        run, _, metric = str(column).rpartition(" - ")
        # a chart has a metric's least and greatest value in a bin beside its mean
        if value is None or value == "" or metric.endswith(("__MIN", "__MAX")):
            continue
        name = metric_name(metric)
        part = parts.setdefault(run, {})
        if name == metric or name not in part:  # TRL's own name counts before another one for it
            part[name] = value
    return parts


def is_evaluation(entry: Mapping) -> bool:
    """Whether an entry is about an evaluation, whose metrics Unsloth logs without a prefix."""
    return "loss" not in entry and any(name.startswith(("eval_", "eval/")) for name in entry)


# ---- texts


def read_csv(text: str) -> Logs:
    """The runs in a table with commas, semicolons, tabs or Markdown's bars between its cells."""
    lines = table_lines(text)
    head = lines[0] if lines else ""
    separator = max(",;\t|", key=head.count)
    if separator == ";":  # 0,5 is a half where columns are parted so
        lines = [line.replace(",", ".") for line in lines]
    rows = []
    for row in csv.DictReader(lines, delimiter=separator):
        if None not in row and None not in row.values():  # else it has too many or few cells
            rows.append(row)
    if not rows or len(rows[0]) < 2:
        start = head.expandtabs(1)[:60]
        raise WorkbookError(f"is not a log: it is a text without metrics: {start!r}")
    return by_run(rows, {})


def table_lines(text: str) -> list[str]:
    """The lines from a table's head on, without rules of dashes; there may be text above it."""
    lines = [line for line in text.translate(SIGNS).splitlines() if line.strip("|-+=: ")]
    for number, (line, following) in enumerate(pairwise(lines)):
        if re.search(r"(?i)step\b", line) and re.match(r'[\s|"]*\d', following):
            return lines[number:]
    return lines


def read_html(text: str) -> Logs:
    """The tables with steps and rewards that transformers and Unsloth show in training."""
    logs = []
    for table in text.split("<table")[1:]:
        rows = []
        for row in table.partition("</table")[0].split("<tr")[1:]:
            cells = re.findall(r"<t[hd]\b[^<>]*>([^<]*)", row)
            rows.append(list(map(html.unescape, cells)))
        if len(rows) < 2:
            continue
        names = [metric_name(cell) for cell in rows[0]]
        if "step" in names and "reward" in names:  # there may be one of SFT beside them
            entries = [dict(zip(names, cells, strict=False)) for cells in rows[1:]]
            logs.append(Log(entries))
    if len(logs) == 1:
        return {"": logs[0]}
    return {f"table {number}": log for number, log in enumerate(logs, start=1)}


def read_printed(text: str) -> Logs:
    """Printed metrics; their steps are their own, or those of the progress bar before each."""
    entries = []
    bars = []  # for each entry {a bar's length: where the bar was when the entry was printed}
    positions = {}
    for match in PRINTED.finditer(text):
        if match["length"]:
            positions[match["length"]] = int(match["position"])
            continue
        pairs = PAIR.findall(match[0].replace("\n", ""))  # a terminal may have cut long lines
        entry = {metric_name(key): value for key, value in pairs}
        if "train_runtime" in entry or not {"reward", "loss"} & entry.keys():
            continue  # the summary at the end, or something else
        if is_evaluation(entry):
            continue
        entries.append(entry)
        bars.append(positions)
        positions = {}
    if not entries:
        return {}
    log = Log(entries)
    if not any(entry.keys() & set(STEPS) for entry in entries):
        add_steps(log, bars)
    return {"": log}


def add_steps(log: Log, bars: list[dict[str, int]]) -> None:
    """Give the entries the steps of the training's progress bar, if there is one.

    Between two entries that bar always moves; those of generation or of a data set do not.
    """
    lengths = {}
    for bar in bars:
        lengths.update(bar)
    for length in lengths:
        steps = [bar.get(length, 0) for bar in bars]
        if any(step == following for step, following in pairwise(steps)):
            continue
        for entry, step in zip(log.entries, steps, strict=True):
            entry["step"] = step
        log.settings["max_steps"] = int(length)
        return


def read_pairs(text: str) -> Logs:
    """Lines such as `Step 10/500 | loss: 0.1 | reward: 0.5`, or such metrics below their step."""
    entries: list[dict[str, str]] = []
    for line in text.splitlines():
        steps = STEP.findall(line)
        if steps:
            entries.append({"step": steps[-1]})  # the first may be that of an epoch
        if not entries:
            continue
        for key, value in BARE_PAIR.findall(line):
            entries[-1].setdefault(metric_name(key), value)
    entries = [entry for entry in entries if "reward" in entry]
    return {"": Log(entries)} if entries else {}


def read_notebook(cells: list[dict]) -> Logs:
    """The training tables in a notebook's stored outputs, or the metrics printed there.

    The settings are the numbers in its last GRPOConfig(...); names of variables are not looked up.
    """
    tables = printed = code = ""
    for cell in cells:
        # nbformat allows a text, or a list of its lines: join makes one text of both
        code += "".join(cell.get("source", "")) + "\n"
        for output in cell.get("outputs", ()):
            tables += "".join(output.get("data", {}).get("text/html", ""))
            printed += "".join(output.get("text", ""))
    logs = read_html(tables) or read_printed(printed)
    if not logs:
        fix = "give a checkpoint"
        raise WorkbookError(f"is not a log: it is a notebook without rewards in its outputs: {fix}")
    _, call, arguments = code.rpartition("GRPOConfig(")
    if call:
        numbers = ARGUMENT.findall(re.sub("#.*", "", arguments))
        for log in logs.values():
            log.settings.update({name: float(number) for name, number in numbers})
    return logs


# ---- trackers


def read_tensorboard(place: Path) -> Logs:
    """TensorBoard's scalars, and the settings that transformers writes beside them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    # 0 keeps every value; by default a long log is thinned out to 10,000 scalars
    events = EventAccumulator(str(place), {"scalars": 0, "tensors": 0}).Reload()
    tags = events.Tags()
    scalars = []
    for tag in tags["scalars"]:
        for event in events.Scalars(tag):
            scalars.append((event.wall_time, event.step, metric_name(tag), event.value))
    log = Log()
    for _, step, metric, value in sorted(scalars):  # a resumed run wrote some steps again, later
        log.entries.append({"step": step, metric: value})
    if "args/text_summary" in tags["tensors"]:
        summary = events.Tensors("args/text_summary")[-1].tensor_proto.string_val[0]
        log.settings = json.loads(summary)
    return {"": log}


def read_trackio(path: Path) -> Logs:
    """The runs of a project that trackio keeps in ~/.cache/huggingface/trackio/PROJECT.db."""
    uri = f"{path.resolve().as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as database:
        metrics = database.execute("SELECT run_name, step, metrics FROM metrics").fetchall()
        configs = database.execute("SELECT run_name, config FROM configs").fetchall()
    rows = []
    for run, step, values in metrics:
        rows.append({"run_name": run, "step": step, **json.loads(values)})
    logs = by_run(rows, {})
    for run, config in configs:
        if run in logs:
            logs[run].settings = json.loads(config)
    return logs
