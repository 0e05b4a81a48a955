"""Read a run's log in the form in which it was kept: a reader for each, chosen by the content.

Nothing is unpickled or executed: a log is data, and may come from anywhere.
"""

import contextlib
import csv
import functools
import html
import io
import json
import re
import sqlite3
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from grpo_workbook.errors import WorkbookError, visible
from grpo_workbook.files import readable

Runs = dict[str, tuple[list[dict], dict]]  # name, "" if the log has none -> entries, settings
LARGEST, MOST_ROWS = 300 * 2**20, 1_000_000  # bytes of a file, rows of a tracker
NO_LOG = "is not a log: it is"
BINARY = {
    b"\x89PNG": "a PNG image", b"%PDF": "a PDF", b"\x1f\x8b": "a gzip archive", b"PAR1": "parquet",
    b"PK": "a zip archive, or what torch.save wrote", b"\x80": "a pickle, which is never opened",
    b":W&B": "W&B's own format: export wandb.Api().run(NAME).history() with to_csv", b"": "binary",
}  # fmt: skip
STEPS = "global_step", "global_step/max_steps", "step", "_step"  # trackers count their own steps
RENAMED = {"Step": "step", "Training Loss": "loss", "completion_length": "completions/mean_length"}
# tqdm's "10/250 [", and metrics as Python, pprint or json print them: {'loss': np.float64(0.1)}
PRINTED = re.compile(r"\b(\d{1,9})/(\d{1,9}) \[|\{\s*['\"][^{}]{5,20000}\}")
NUMBER = r"-?(?:\d[\d.]*(?:e[-+]?\d+)?|nan|inf(?:inity)?)\b(?:/\d+)?"
PAIR = re.compile(rf"""['"]([^'"]+)['"]: *(?:[\w.]+\()?['"]?({NUMBER})""", re.I)
SETTING = re.compile(r"\b(\w+) *= *(-?\d[\d.]*(?:e-?\d+)?) *(?=[,)\n]|$)")  # GRPOConfig(beta=0.04)


def read(source) -> Runs:
    """The runs in a file, a folder of TensorBoard, or a log history in memory.

    Raises WorkbookError if it is no log; the message says what it is.
    """
    name = readable(source) if isinstance(source, Path) else "the log history"
    try:
        return _file(source) if isinstance(source, Path) else _json(source)
    except OSError as error:
        raise WorkbookError(f"{name} cannot be read ({error.strerror})") from None
    except (ValueError, AttributeError, TypeError, LookupError, RecursionError, csv.Error) as error:
        what = error if isinstance(error, WorkbookError) else f"{NO_LOG} another program's"
        raise WorkbookError(f"{name} {what}") from None


def _file(path: Path) -> Runs:
    if path.is_dir():
        return _tensorboard(path)
    if not path.is_file():  # a named pipe would wait for ever
        raise WorkbookError(f"{NO_LOG} a pipe or a device: save its content to a file")
    with path.open("rb") as file:
        raw = file.read(LARGEST + 1)
    if b"brain.Event" in raw[:64]:
        return _tensorboard(path)
    if raw.startswith(b"SQLite format 3"):
        return _trackio(path)
    wide = raw.startswith((b"\xff\xfe", b"\xfe\xff"))  # PowerShell's `> log.txt`
    kind = next(sign for sign in BINARY if raw.startswith(sign))
    if kind or (b"\0" in raw[:1000] and not wide):
        raise WorkbookError(f"{NO_LOG} {BINARY[kind]}")
    if len(raw) > LARGEST:
        raise WorkbookError(f"has over {LARGEST >> 20} MiB: cut out the part with the log")
    text = raw.decode("utf-16" if wide else "utf-8-sig", errors="replace")
    try:
        return _json(json.loads(text))
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()) > 0 or error.msg.startswith("Unterminated"):
            fix = "choose an older checkpoint, or copy it again"
            raise WorkbookError(f"is JSON that ends in the middle: {fix}") from None
    with contextlib.suppress(json.JSONDecodeError):  # JSON lines
        if rows := [json.loads(line) for line in text.splitlines() if line.strip()]:
            return _json(rows)
    return _tables([(text, {})]) or _printed(text, {}) or _csv(text)


def _json(value) -> Runs:
    """A notebook, a trainer_state, a list of entries, or columns of metrics."""
    settings = {}
    if isinstance(value, Mapping):
        if "cells" in value:
            return _notebook(value["cells"])
        settings = {k: value[k] for k in ("max_steps", "logging_steps") if k in value}
        settings |= value.get("settings") or value.get("config") or {}
        value = next((value[k] for k in ("log_history", "log", "history") if k in value), value)
    if isinstance(value, Mapping):  # by column, as pandas and benchmarks/diagnosis.py keep it
        if not all(isinstance(column, Mapping | list) for column in value.values()):
            raise WorkbookError(f"{NO_LOG} JSON with {visible(', '.join(value))[:60]}")
        value = pd.DataFrame(value, dtype=object).to_dict("records")
    if not isinstance(value, list) or not all(isinstance(e, Mapping) for e in value):
        raise WorkbookError(f"{NO_LOG} JSON without steps: {json.dumps(value)[:60]}")
    return _by_run(value, settings)


def _by_run(rows: list[dict], settings: dict) -> Runs:
    """The entries of each run in a table, with TRL's names and without what is missing.

    Trackers have the run's name in a column, W&B's charts in those of the metrics: "NAME - loss".
    """
    runs: Runs = {}
    for row in rows:
        own, parts = str(row.get("run_name") or row.get("run") or ""), {}
        for key, value in row.items():
            run, _, metric = str(key).rpartition(" - ")
            if value is not None and value != "" and not metric.endswith(("__MIN", "__MAX")):
                parts.setdefault(run or own, {})[metric_name(metric)] = value
        shared = parts.pop(own, {})
        for run, part in (parts or {own: {}}).items():
            runs.setdefault(run, ([], settings))[0].append(shared | part)
    known = {*STEPS, "reward", "error"}
    if rows and not any(known & {*entry} for entries, _ in runs.values() for entry in entries):
        names = visible(", ".join(map(str, rows[0])))[:60]
        raise WorkbookError(f"{NO_LOG} a table without steps and rewards: {names}")
    return runs or {"": ([], settings)}


@functools.lru_cache(10_000)
def metric_name(name: str) -> str:
    """TRL's present name of a metric that a tracker, Unsloth or TRL before 0.17 calls otherwise."""
    name = name.strip().replace(" / ", "/").removeprefix("train/")
    name = RENAMED.get(name, name)
    is_function = re.fullmatch(r"rewards/(?!invalid_fraction)[^/]+", name)
    return f"{name}/mean" if is_function else name


def _csv(text: str) -> Runs:
    head = text.strip().partition("\n")[0]
    rows = list(csv.DictReader(io.StringIO(text.strip()), delimiter=max(",;\t", key=head.count)))
    if not rows or len(rows[0]) < 2:
        raise WorkbookError(f"{NO_LOG} a text without printed metrics: {head[:60]!r}")
    return _by_run(rows, {})


def _tables(shown: list[tuple[str, dict]]) -> Runs:
    """The HTML tables with steps and rewards, as transformers and Unsloth show them in training."""
    kept = []
    for text, settings in shown:
        for table in text.split("<table")[1:]:
            head, *rows = [
                [html.unescape(cell) for cell in re.findall(r"<t[hd]\b[^<>]*>([^<]*)", row)]
                for row in table.partition("</table")[0].split("<tr")[1:]
            ] or [[]]
            names = [metric_name(cell) for cell in head]
            if {"step", "reward"} <= {*names} and rows:  # there may be one of SFT beside them
                kept.append(([dict(zip(names, row, strict=False)) for row in rows], settings))
    return {f"table {n}" if len(kept) > 1 else "": run for n, run in enumerate(kept, 1)}


def _printed(text: str, settings: dict) -> Runs:
    """Printed metrics; their steps are their own, or those of the progress bar before each."""
    entries, bars = [], [{}]
    for found in PRINTED.finditer(text):
        if found[1]:
            bars[-1][found[2]] = int(found[1])
            continue
        pairs = PAIR.findall(found[0].replace("\n", ""))  # a terminal may have cut long lines
        entry = {metric_name(key): value for key, value in pairs}
        if "reward" in entry or "loss" in entry:
            entries.append(entry)
            bars.append({})
    if not entries or any(key in entry for entry in entries for key in STEPS):
        return {"": (entries, settings)} if entries else {}
    # the bar of the training always moves on: those of generation or a data set do not
    seen = pd.DataFrame(bars[: len(entries)]).fillna(0)
    moving = [bar for bar in seen if seen[bar].is_monotonic_increasing and seen[bar].is_unique]
    for total in moving[:1]:
        entries = [e | {"step": step} for e, step in zip(entries, seen[total], strict=True)]
    return {"": (entries, {"logging_steps": 1} | settings)}


def _notebook(cells: list[dict]) -> Runs:
    """The training tables in a notebook's stored outputs, or the metrics printed there."""
    shown, printed, settings = [], "", {}
    for cell in cells:
        code = re.sub("#.*", "", "".join(cell.get("source", ""))).partition("GRPOConfig(")[2]
        if code:  # its numbers; names of variables are not looked up
            settings = {name: float(number) for name, number in SETTING.findall(code)}
        for output in cell.get("outputs", ()):
            shown.append(("".join(output.get("data", {}).get("text/html", "")), settings))
            printed += "".join(output.get("text", ""))
    if runs := _tables(shown) or _printed(printed, settings):
        return runs
    loss = any("Training Loss" in text for text, _ in shown)
    why = "a table of the loss alone" if loss else "no metrics in its stored outputs"
    raise WorkbookError(f"{NO_LOG} a notebook with {why}: give a checkpoint of the run")


def _tensorboard(place: Path) -> Runs:
    """TensorBoard's scalars, and the settings that transformers writes beside them."""
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        raise WorkbookError("is TensorBoard's: pip install tensorboard, which reads it") from None
    log = EventAccumulator(str(place), {"scalars": MOST_ROWS, "tensors": 10}).Reload()
    tags, entries, settings = log.Tags(), [], {}
    for tag in tags["scalars"]:
        entries += [{"step": e.step, metric_name(tag): e.value} for e in log.Scalars(tag)]
    if (told := "args/text_summary") in tags["tensors"]:
        settings = json.loads(log.Tensors(told)[-1].tensor_proto.string_val[0])
    return {"": (entries, settings)}


def _trackio(path: Path) -> Runs:
    """The runs of a project that trackio keeps in ~/.cache/huggingface/trackio/PROJECT.db."""
    with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
        try:
            rows = db.execute(f"SELECT run_name, step, metrics FROM metrics LIMIT {MOST_ROWS}")
            entries = [{"run": run, "step": step} | json.loads(told) for run, step, told in rows]
            configs = dict(db.execute("SELECT run_name, config FROM configs").fetchall())
        except sqlite3.Error as error:
            raise WorkbookError(f"{NO_LOG} another program's database ({error})") from None
    runs = _by_run(entries, {}).items()
    return {run: (entries, json.loads(configs.get(run, "{}"))) for run, (entries, _) in runs}
