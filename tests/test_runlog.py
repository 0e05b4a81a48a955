"""Logs in every form in which people have them: the same run is read from each."""

import contextlib
import gzip
import html as html_of_tags
import io
import json
import os
import pickle
import pprint
import re
import sqlite3
import threading

import nbformat
import numpy as np
import pandas as pd
import pytest
from conftest import REPO, SHARED, assert_names, cli, raises_naming

from grpo_workbook.cli import main
from grpo_workbook.cli.diagnose import read_setting
from grpo_workbook.diagnosis import diagnose
from grpo_workbook.diagnosis.runlog import RunLog, read_run, read_runs
from grpo_workbook.errors import WorkbookError

REAL = SHARED / "data" / "real_logs"
LOGS = REPO / "tests" / "diagnosis_logs"
OWN = read_run(LOGS / "healthy_0.json")
KEPT = OWN.table.loc[1:].dropna(axis="columns")  # 30 steps of the course's main run
EVERY = 5
ENTRIES = [{"step": EVERY * step} | dict(row) for step, row in KEPT.drop(columns="step").iterrows()]
REWARDS = [round(e["reward"], 4) for e in ENTRIES]


def without(entry, *names):
    return {k: v for k, v in entry.items() if k not in names}


def with_numpy(entry):
    """As code that logs NumPy's numbers prints it."""
    numbers = {name: np.float64(value) for name, value in entry.items()}
    return f"INFO: {numbers!r}"


def with_equals(entry):
    values = [f"{name}={value:.6f}" for name, value in without(entry, "step").items()]
    return " ".join(["INFO -", f"step={entry['step']}", *values])


def between_bars(entry):
    values = [f"{name}: {value:.5f}" for name, value in without(entry, "step").items()]
    return " | ".join([f"GRPO step {entry['step']}/150", *values])


def verl(entry):
    """An entry under the names of verl."""
    renamed = {
        "training/global_step": entry["step"],
        "critic/rewards/mean": entry["reward"],
        "actor/entropy": entry["entropy"],
        "response_length/mean": entry["completions/mean_length"],
    }
    rewards = {name: value for name, value in entry.items() if name.startswith("rewards/")}
    return {**renamed, **rewards}


def levelled(entry):
    """The entry with a level reward."""
    means = [name for name in entry if name.endswith("/mean")]
    return {**entry, "reward": 0.5, **dict.fromkeys(means, 0.5)}


def tracked(entry, own):
    """As transformers' callbacks of W&B and trackio log it: a prefix, and steps of their own."""
    renamed = {f"train/{k}": v for k, v in without(entry, "step").items()}
    return {"_step": own, "_runtime": 2.5 * own, **renamed, "train/global_step": entry["step"]}


def trained(shown, loss_only=False):
    """The table that a training in a notebook leaves, as transformers writes it."""
    from transformers.utils.notebook import text_to_html_table

    names = {k: k.replace("/", " / ") for k in shown[0] if k != "step"} | {"loss": "Training Loss"}
    names = {"loss": "Training Loss"} if loss_only else names
    rows = [[e["step"], *(f"{e[k]:.6f}" for k in names)] for e in shown]
    bar = "<progress value='150' max='150'></progress> [150/150 1:02:03, Epoch 0/1]"
    return f"<div>{bar}</div>{text_to_html_table([['Step', *names.values()], *rows])}"


CONFIG = """%%time
max_seq_length = 1024
max_prompt_length = 256
args = trl.GRPOConfig(
    num_generations = 4,  # per prompt
    max_completion_length = max_seq_length - max_prompt_length,
    logging_steps = 5, beta = 0.04, output_dir = f"outputs/{max_seq_length}", bf16 = is_bf16(),
)"""


def notebook(*outputs, code=CONFIG):
    cells = [nbformat.v4.new_code_cell(code), nbformat.v4.new_code_cell("trainer.train()")]
    cells[1].outputs = list(outputs)
    return nbformat.writes(
        nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(), *cells])
    )


def html(text):
    return nbformat.v4.new_output("display_data", {"text/html": text, "text/plain": "<HTML>"})


def stdout(text):
    return nbformat.v4.new_output("stream", name="stdout", text=text)


def printed(with_bars):
    """What TRL prints in a terminal: transformers' own callbacks, with and without their bar."""
    from tqdm import tqdm
    from transformers import TrainerControl, TrainerState, TrainingArguments
    from transformers.trainer_callback import PrinterCallback, ProgressCallback

    callback, kept = (ProgressCallback if with_bars else PrinterCallback)(), io.StringIO()
    args, control = TrainingArguments(use_cpu=True), TrainerControl()
    state = TrainerState(max_steps=150)
    with contextlib.redirect_stdout(kept), contextlib.redirect_stderr(kept):
        callback.on_train_begin(args, state, control)
        if with_bars:  # a step of a model takes longer than the bar waits
            callback.training_bar.mininterval, callback.training_bar.miniters = 0, 1
        logged = {e["step"]: e for e in ENTRIES}
        for state.global_step in range(1, 151):
            if with_bars:
                list(tqdm(range(4), desc="Processed prompts"))
            callback.on_step_end(args, state, control)
            if entry := logged.get(state.global_step):
                logs = without(entry, "step") | {"epoch": entry["step"] / 150}
                callback.on_log(args, state, control, logs=logs)
        callback.on_log(args, state, control, logs={"train_runtime": 9.1, "train_loss": 0.1})
    return kept.getvalue()


def chart(*names):
    """W&B's export of a chart: the runs side by side."""
    frame = pd.DataFrame({"train/global_step": [e["step"] for e in ENTRIES]})
    for name in names:
        for metric in ("reward", "kl"):
            values = [e.get(metric, 0.1) for e in ENTRIES]
            frame[f"{name} - train/{metric}"] = values
            frame[f"{name} - train/{metric}__MIN"] = frame[f"{name} - train/{metric}__MAX"] = -99
        frame[f"{name} - _step"] = range(len(frame))
    return frame.to_csv(index=False)


def pasted(table):
    """A table as it is copied out of a browser: tabs between the cells, the bar's text above."""
    flat, ends = table.replace("\n", ""), {"tr": "\n", "th": "\t", "td": "\t", "div": "\n"}
    rows = re.sub("</(tr|th|td|div)>|(?=<table)", lambda tag: ends.get(tag[1], "\n"), flat)
    text = html_of_tags.unescape(re.sub("<[^>]*>", "", rows))
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def lines(entries):
    return "".join(f"{json.dumps(entry)}\n" for entry in entries)


def markdown():
    rows = [[*ENTRIES[0]], ["---:"] * len(ENTRIES[0]), *(e.values() for e in ENTRIES)]
    return "".join(f"| {' | '.join(map(str, row))} |\n" for row in rows)


HISTORY = [tracked(e, n) for n, e in enumerate(ENTRIES)]
TEXTS = {
    "trainer_state.json": lambda: json.dumps({"log_history": ENTRIES, "max_steps": 150}),
    "entries.json": lambda: json.dumps(ENTRIES),
    "columns.json": lambda: pd.DataFrame(ENTRIES).to_json(),
    "lists.json": lambda: json.dumps(pd.DataFrame(ENTRIES).to_dict("list")),
    "entries.jsonl": lambda: lines(ENTRIES),
    "still_written.jsonl": lambda: lines(ENTRIES) + '{"step": 155, "rew',
    "wandb.csv": lambda: pd.DataFrame(HISTORY).to_csv(),
    "wandb_table.csv": lambda: pd.DataFrame(
        h | {"completions": {"_type": "table-file", "ncols": 4}} for h in HISTORY
    ).to_csv(),
    "wandb.json": lambda: json.dumps(HISTORY),
    "wandb_history.jsonl": lambda: lines([*HISTORY, {"_step": 99, "gpu": 0.5}]),
    "chart.csv": lambda: chart("run-1"),
    "german.csv": lambda: pd.DataFrame(ENTRIES).to_csv(sep=";", index=False),
    "excel.csv": lambda: pd.DataFrame(ENTRIES).to_csv(sep=";", decimal=",", index=False),
    "data.json": lambda: json.dumps({"data": HISTORY}),
    "markdown.md": lambda: markdown(),
    "asked.md": lambda: (
        f"# My run\n\nThe reward, at each step, is level:\n\n{markdown()}\nWhat is wrong with it?\n"
    ),
    "pasted.txt": lambda: pasted(trained(ENTRIES)),
    "logs.json": lambda: json.dumps({"config": "my.yaml", "logs": ENTRIES}),
    "unsloth.ipynb": lambda: notebook(html(trained(ENTRIES))),
    "two_stages.ipynb": lambda: notebook(html(trained(ENTRIES, True)), html(trained(ENTRIES))),
    "stdout.ipynb": lambda: notebook(*[stdout(f"{e}\n") for e in ENTRIES]),
    "notebook.md": lambda: f"# My run\n\n{trained(ENTRIES)}\n",
    "terminal.log": lambda: printed(with_bars=True),
    "steps.log": lambda: "\n".join(map(str, ENTRIES)),
    "numpy.log": lambda: "\n".join(map(with_numpy, ENTRIES)),
    "pprint.log": lambda: "\n".join(pprint.pformat(e) for e in ENTRIES),
    "equals.log": lambda: "\n".join(map(with_equals, ENTRIES)),
    "bars.log": lambda: "\n".join(["Found 100 rows: 3 GPUs", *map(between_bars, ENTRIES)]),
    "other_names.csv": lambda: (
        pd.DataFrame(ENTRIES)
        .rename(
            columns={"reward": "mean_reward", "reward_std": "std_reward", "learning_rate": "lr"}
        )
        .to_csv(index=False)
    ),
    "verl.jsonl": lambda: lines(map(verl, ENTRIES)),
    "swift.log": lambda: "\n".join(
        str(without(e, "step") | {"global_step/max_steps": f"{e['step']}/150", "elapsed": "6m 58s"})
        for e in ENTRIES
    ),
}


def save(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def events(folder):
    """What TRL leaves for TensorBoard, written by the callback of transformers itself."""
    from torch.utils.tensorboard import SummaryWriter
    from transformers import TrainerControl, TrainerState
    from transformers.integrations import TensorBoardCallback
    from trl import GRPOConfig

    callback = TensorBoardCallback(SummaryWriter(str(folder)))
    args, state, control = (
        GRPOConfig(use_cpu=True, bf16=False, beta=0.04),
        TrainerState(),
        TrainerControl(),
    )
    callback.on_train_begin(args, state, control)
    for entry in ENTRIES:
        state.global_step = entry["step"]
        callback.on_log(args, state, control, logs=without(entry, "step"))
    callback.on_train_end(args, state, control)
    return folder


def database(path, *names):
    """The tables of trackio 0.43."""
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY, run_id TEXT, timestamp TEXT,"
            " run_name TEXT, step INTEGER, metrics TEXT)"
        )
        base.execute("CREATE TABLE configs (id INTEGER PRIMARY KEY, run_name TEXT, config TEXT)")
        for name in names:
            for own, entry in enumerate(ENTRIES):
                text = json.dumps(without(tracked(entry, own), "_step", "_runtime"))
                base.execute(
                    "INSERT INTO metrics VALUES (NULL, ?, '2026-11-22T20:02:33', ?, ?, ?)",
                    (f"{name}-id", name, own, text),
                )
            text = json.dumps({"num_generations": 4, "beta": 0.04})
            base.execute("INSERT INTO configs VALUES (NULL, ?, ?)", (name, text))
        base.commit()
    return path


def is_the_run(run):
    """All steps, rewards and functions of ENTRIES, in optimizer steps; a table may be rounded."""
    rewards = run.table["reward"].dropna()
    assert list(rewards.index) == [e["step"] for e in ENTRIES]
    assert list(rewards) == pytest.approx(REWARDS, abs=1e-3)


@pytest.mark.parametrize("name", TEXTS)
def test_the_same_run_is_read_from_every_form(tmp_path, name):
    run = read_run(save(tmp_path / name, TEXTS[name]()))
    is_the_run(run)
    if name != "chart.csv":  # a chart has a metric or two
        assert sorted(run.functions) == sorted(OWN.functions)
        assert {f.name for f in diagnose(run)} <= {"healthy", "too_short", "saturated"}


# What other trainers print for a step, and what of it is read beside the reward.
OTHER_TRAINERS = {
    "prime-rl": (
        lambda s, r: (
            f"02:33:28 SUCCESS Step {s} | Time: 73.77s | Reward: {r:.4f} | Throughput: 2408.9 "
            f"tokens/s | Async Level: 1\n02:33:29    INFO Starting orchestrator step {s + 1}"
        ),
        {},
    ),
    "Megatron-SWIFT": (
        lambda s, r: (
            f"[2025-11-25 07:19:01] iteration {s:8}/    2174 | elapsed time per iteration (ms): "
            f"215613.0 | learning rate: 4.5E-05 | reward: {r:.6E} | grad norm: 0.016 | number of "
            "skipped iterations:   0 |"
        ),
        {"learning_rate": 4.5e-5, "grad_norm": 0.016},
    ),
    "minimind": (
        lambda s, r: (
            f"Epoch:[1/1]({s}/9751), Reward: {r:.4f}, KL_ref: 0.0100, Adv Std: 0.5, Actor Loss: "
            "0.2000, Avg Response Len: 100.00, Learning Rate: 0.00000300"
        ),
        {"kl": 0.01, "loss": 0.2, "completions/mean_length": 100, "learning_rate": 3e-6},
    ),
    "NeMo-RL": (
        lambda s, r: (
            f"\x1b[1m===== Step {s}/1000 =====\x1b[0m\n📊 Training Results:\n  • Loss: 0.0123\n"
            f"  • Avg Reward: {r:.4f}\n  • Mean Generation Length: 512.3"
        ),
        {"loss": 0.0123, "completions/mean_length": 512.3},
    ),
    "AReaL": (
        lambda s, r: (
            f"Epoch 1/10 Step {s % 7}/117 Train step {s}/1170 done.\n"
            f"│ ppo_actor/task_reward/avg │ {r:.4e} │ ppo_actor/update/grad_norm │ 1.2000e-01 │"
        ),
        {"grad_norm": 0.12},
    ),
    "slime": (
        lambda s, r: (
            f"rollout {s}: {{'rollout/raw_reward': {r}, 'rollout/rewards': 0.0, "
            f"'rollout/response_lengths': 98.0, 'rollout/step': {s}}}\n"
            f"step {s}: {{'train/loss': 0.1, 'train/grad_norm': 0.2, 'train/step': {s}}}"
        ),
        {"completions/mean_length": 98, "loss": 0.1, "grad_norm": 0.2},
    ),
    "Tinker": (
        lambda s, r: json.dumps({"step": s, "env/all/reward/total": r, "optim/lr": 1e-5}),
        {"learning_rate": 1e-5},
    ),
    "verl": (
        lambda s, r: f"(pid=1) step:{s} - actor/grad_norm:0.005 - critic/rewards/mean:{r:.4f}",
        {"grad_norm": 0.005},
    ),
    "a table of one's own": (lambda s, r: f'{{"step": {s}, "reward_avg": {r}}}', {}),
}  # fmt: skip


@pytest.mark.parametrize("trainer", OTHER_TRAINERS)
def test_what_other_trainers_print_is_read(tmp_path, trainer):
    form, others = OTHER_TRAINERS[trainer]
    text = "\n".join(form(e["step"], e["reward"]) for e in ENTRIES)
    run = read_run(save(tmp_path / "train.log", text))
    is_the_run(run)
    for metric, value in others.items():
        assert run.table[metric].unique() == pytest.approx([value]), metric


def test_evaluations_without_prefixes_are_no_steps(tmp_path):
    """Unsloth logs the metrics of an evaluation under the names of training."""
    with_evaluations = []
    for number, entry in enumerate(ENTRIES):
        with_evaluations.append(entry)
        if number % 5 == 4:
            evaluation = {"eval_loss": 1e-8, "eval_runtime": 62.4, "reward": 9.0, "epoch": 0.1}
            with_evaluations.append(evaluation | {"step": entry["step"]})
    is_the_run(read_run(with_evaluations))
    printed = [without(entry, "step") for entry in with_evaluations]
    path = save(tmp_path / "train.log", "\n".join(map(str, printed)))
    is_the_run(read_run(path, settings={"logging_steps": EVERY}))


def test_several_rows_of_one_step_are_one_with_their_mean():
    """As the processes of a run log it, each for its own completions."""
    rows = []
    for step in range(1, 13):
        for process in (0, 1):
            rows.append(
                {
                    "step": step,
                    "reward": step + process,
                    "completions/max_length": 100 + process,
                    "completions/min_length": 10 + process,
                    "loss": 0.5 if process else None,
                }
            )
    table = read_run(rows).table
    assert list(table["reward"]) == [step + 0.5 for step in range(1, 13)]
    lengths = table[["completions/max_length", "completions/min_length", "loss"]]
    assert set(map(tuple, lengths.to_numpy())) == {(101, 10, 0.5)}


def test_a_column_that_only_begins_with_reward_is_named(tmp_path):
    rows = [{"step": s, "loss": 0.1, "reward_average": 0.1 * s} for s in range(1, 500)]
    with raises_naming(WorkbookError, "reward_average", "`reward`"):
        read_run(save(tmp_path / "a.jsonl", lines(rows)))
    rows = [{"step": 1, "rewards/chosen": 0.1, "rewards/rejected": 0.2}]
    with pytest.raises(WorkbookError, match="DPO"):
        read_run(rows)


def test_a_metric_with_trls_name_counts_before_another_name_for_it():
    entries = [{"step": s, "reward": 0.1 * s, "reward_avg": 9.0} for s in range(1, 9)]
    assert read_run(entries).table["reward"].max() < 1


def test_tensorboard_from_its_folder_its_file_and_an_output_folder_without_checkpoints(tmp_path):
    folder = events(tmp_path / "out" / "runs" / "Nov22_host")
    (file,) = folder.iterdir()
    for place in (folder, file, tmp_path / "out"):
        run = read_run(place)
        is_the_run(run)
        assert run.settings["num_generations"] == 8  # TRL's default, from args/text_summary
        assert run.settings["beta"] == 0.04


@pytest.mark.parametrize("form", ["entries.jsonl", "steps.log", "terminal.log"])
def test_of_two_runs_in_one_log_the_later_one_counts_and_that_is_said(tmp_path, form):
    run = read_run(save(tmp_path / form, TEXTS[form]() + "\n" + TEXTS[form]()))
    is_the_run(run)
    assert any("the first try of step 5 to 150" in note for note in run.notes)


def test_a_resumed_run_counts_once_and_the_rows_that_it_repeats_are_the_later_ones(tmp_path):
    first = [e | {"reward": 9.0, "old": 1.0} if e["step"] > 60 else e for e in ENTRIES[:16]]
    again = [e for e in ENTRIES if e["step"] > 60]
    is_the_run(run := read_run([*first, *again]))
    assert any("the first try of step 65 to 80" in note for note in run.notes)
    assert "old" not in run.table
    is_the_run(run := read_run(save(tmp_path / "a.jsonl", lines([*ENTRIES[::-1]]))))
    assert run.notes == ()  # the newest first is one run


def test_a_chart_by_a_trackers_own_counter_says_so(tmp_path):
    text = chart("a").replace("train/global_step", "Step", 1)
    run = read_run(save(tmp_path / "chart.csv", text))
    assert any("a tracker's own" in note for note in run.notes)


def test_a_metric_alone_is_refused_by_its_columns_and_an_empty_list_by_its_name(tmp_path):
    text = "Time,Step,Value\n1.0,1,0.5\n2.0,2,0.5\n"
    with raises_naming(WorkbookError, "metric.csv", "Value"):
        read_run(save(tmp_path / "metric.csv", text))
    for text in ("[]", '{"log_history": [], "epoch": 0.1}'):
        with raises_naming(WorkbookError, "a.json"):
            read_run(save(tmp_path / "a.json", text))


def test_trackios_database_has_a_run_for_each_name(tmp_path):
    is_the_run(read_run(database(tmp_path / "alone.db", "only")))
    runs = read_runs(path := database(tmp_path / "two.db", "first", "second"))
    assert list(runs) == ["first", "second"]
    for run in runs.values():
        is_the_run(run)
        assert run.settings["num_generations"] == 4
    with raises_naming(WorkbookError, "first, second"):
        read_run(path)


def test_a_chart_of_several_runs_and_a_metric_per_file(tmp_path):
    runs = read_runs(save(tmp_path / "chart.csv", chart("a - 1", "b")))
    assert list(runs) == ["a - 1", "b"]
    for run in runs.values():
        is_the_run(run)
        assert run.table["reward"].min() > -99
    (parts := tmp_path / "charts").mkdir()
    for metric in ("reward", "kl"):
        table = pd.read_csv(tmp_path / "chart.csv")
        kept = [c for c in table if c.endswith(("global_step", metric))]
        table[kept].to_csv(parts / f"{metric}.csv", index=False)
    runs = read_runs(parts)
    assert [{"reward", "kl"} <= set(run.table) for run in runs.values()] == [True, True]


def test_settings_come_from_the_code_of_the_notebook(tmp_path):
    run = read_run(save(tmp_path / "a.ipynb", notebook(html(trained(ENTRIES)))))
    assert run.settings == {"num_generations": 4, "beta": 0.04, "logging_steps": 5}
    bad = save(tmp_path / "b.ipynb", notebook(html(trained(ENTRIES)), code="GRPOConfig(("))
    assert read_run(bad).settings == {}


def test_old_names_are_one_function_each():
    """TRL before 0.17 and Unsloth of 2025 log `rewards/x` and `completion_length`."""
    old = [
        {"step": s, "reward": 0.1 * s, "rewards/f": 0.1 * s, "completion_length": 30.0}
        | {"rewards/invalid_fraction": 0.0}
        for s in range(1, 25)
    ]
    run = read_run(old)
    assert run.functions == ["f"]
    assert list(run.table["completions/mean_length"]) == [30.0] * 24


def test_a_metric_that_was_nan_is_told_from_one_that_was_not_logged(tmp_path):
    entries = [dict(e) for e in ENTRIES]
    del entries[3]["kl" if "kl" in entries[3] else "grad_norm"]
    entries[7]["loss"] = float("nan")
    entries[9]["grad_norm"] = float("inf")
    entries[11]["entropy"] = -float("inf")
    broken = {"loss": 40, "grad_norm": 50, "entropy": 60}
    texts = {
        "a.log": "\n".join(map(str, entries)),
        "b.jsonl": lines(entries),
        "c.json": json.dumps(entries),
        "d.csv": pd.DataFrame([{k: str(v) for k, v in e.items()} for e in entries]).to_csv(),
        "e.json": re.sub(r"-?Infinity|NaN", r'"\g<0>"', json.dumps(entries)),
    }  # fmt: skip
    for name, text in texts.items():
        assert read_run(save(tmp_path / name, text)).broken == broken, name


def test_steps_that_were_not_logged_come_from_logging_steps_or_are_said_to_be_unknown(tmp_path):
    text = printed(with_bars=False)
    path = save(tmp_path / "train.log", text)
    run = read_run(path)
    assert list(run.table.index) == list(range(1, 31))
    assert any("none is logged" in note for note in run.notes)
    for place in (path, save(tmp_path / "train.ipynb", notebook(stdout(text)))):
        is_the_run(read_run(place, settings={"logging_steps": 5}))


PASTED = {
    "markdown": "| Step | Reward |\n|---|---|\n| 5 (val) | −0.5 |\n| **10** | **+70%** |",
    "no first brace": "'loss': 0, 'reward': -0.5, 'step': 5}\n'loss': 0, 'reward': 70, 'step': 10}",
    "own names": "update,reward_mean\n1,-0.5\n2,70.0\n",
    "a list": '[{"reward": -0.5}, {"reward": 70}]',
}  # fmt: skip


@pytest.mark.parametrize("form", PASTED)
def test_what_people_paste_is_read(tmp_path, form):
    """Bold cells, percent, a printed minus, capitals, a lost brace, and rows without a step."""
    run = read_run(save(tmp_path / "a.txt", PASTED[form]))
    steps = "Step" in PASTED[form] or "step" in PASTED[form]
    assert dict(run.table["reward"]) == ({5: -0.5, 10: 70.0} if steps else {1: -0.5, 2: 70.0})
    assert steps or "none is logged" in run.notes[0]


def test_a_bar_tells_the_planned_steps_and_the_summary_at_the_end_is_no_row(tmp_path):
    ending = " 150/150 [1:02]\n{'train_runtime': 9.5, 'loss': 9.0, 'reward': 9.0, 'epoch': 1.0}\n"
    run = read_run(save(tmp_path / "train.log", printed(with_bars=True) + ending))
    is_the_run(run)
    assert run.settings["max_steps"] == 150


def test_long_lines_that_a_terminal_has_cut_are_read_whole(tmp_path):
    text = "\n".join(
        line[i : i + 60] for line in map(str, ENTRIES) for i in range(0, len(line), 60)
    )
    run = read_run(save(tmp_path / "copied.txt", text))
    is_the_run(run)
    assert sorted(run.functions) == sorted(OWN.functions)


class Opened:
    """Unpickling it writes a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


def others(folder):
    """Make files that are no log: the name of each, and what its message must name."""
    import torch

    torch.save({"a": 1}, folder / "optimizer.pt")
    (folder / "training_args.bin").write_bytes(pickle.dumps(Opened(folder / "was opened")))
    with contextlib.closing(sqlite3.connect(folder / "other.db")) as base:
        base.execute("CREATE TABLE experiments (id INTEGER)")
        base.commit()
    files = {
        "plot.png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
        "paper.pdf": b"%PDF-1.7\n%\xb5\xb5\0\0",
        "log.gz": gzip.compress(b"{}"),
        "weights.safetensors": b"\x10\x00\x00\x00\x00\x00\x00\x00{}",
        "run.wandb": b":W&B\xe1\xbe\x00",
        "script.py": b"import trl\n\nprint('reward')\n",
        "nothing.log": b"",
        "readme.md": "Ein Lauf, über Nacht.\n".encode("cp1252"),
        "config.json": b'{"vocab_size": 1000, "architectures": ["Qwen3"]}',
        "vocab.json": b'["a", "b"]',
        "number.json": b"3",
        "deep.json": b"[" * 200_000,
        "data.jsonl": b'{"prompt": "2+2?", "answer": "4"}\n' * 3,
        "people.csv": b"name,age\nAda,36\nAlan,41\n",
        "empty.ipynb": notebook().encode(),
        "sft.ipynb": notebook(html(trained(ENTRIES, loss_only=True))).encode(),
        "odd.ipynb": b'{"cells": [1, 2]}',
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return {
        "optimizer.pt": "binary",
        "training_args.bin": "binary",
        "other.db": "another program's",
        "plot.png": "binary",
        "paper.pdf": "binary",
        "log.gz": "binary",
        "weights.safetensors": "binary",
        "run.wandb": "CSV",
        "script.py": "'import trl'",
        "nothing.log": "without metrics",
        "readme.md": "without metrics",
        "config.json": "vocab_size, architectures",
        "vocab.json": "another program's",
        "number.json": "another program's",
        "deep.json": "another program's",
        "data.jsonl": "prompt, answer",
        "people.csv": "name, age",
        "empty.ipynb": "notebook",
        "sft.ipynb": "notebook",
        "odd.ipynb": "another program's",
    }


def test_what_is_no_log_is_called_what_it_is(tmp_path):
    for name, named in others(tmp_path).items():
        with raises_naming(WorkbookError, name, named):
            read_run(tmp_path / name)
    with raises_naming(WorkbookError, tmp_path.name):
        read_run(tmp_path)
    assert not (tmp_path / "was opened").exists()


def test_refusals_fit_a_terminal_of_80_columns(tmp_path, capsys):
    for name, named in others(tmp_path).items():
        assert main(["diagnose", str(tmp_path / name)]) == 2
        message = capsys.readouterr().err
        assert message.startswith("error: ")
        assert max(map(len, message.splitlines())) <= 80
        assert_names(message, named)


def test_a_pipe_is_read(tmp_path):
    """As in `zcat log.gz | grpo-workbook diagnose /dev/stdin`."""
    os.mkfifo(pipe := tmp_path / "train.log")
    writer = threading.Thread(target=pipe.write_bytes, args=[lines(ENTRIES).encode()])
    writer.start()
    is_the_run(read_run(pipe))
    writer.join()


def test_of_a_log_that_was_cut_the_rows_are_read_that_are_there(tmp_path):
    """A checkpoint is cut if the run was killed while it was written."""
    text = TEXTS["trainer_state.json"]()
    run = read_run(save(tmp_path / "trainer_state.json", text[: len(text) // 2]))
    assert list(run.table.index) == [e["step"] for e in ENTRIES][: len(run.table)]
    assert 10 <= len(run.table) < 30


@pytest.mark.parametrize("metrics", [{"loss": 2.0}, {"loss": 0.6, "rewards/chosen": 0.1}])
def test_logs_of_other_trainers_are_refused_in_every_form(tmp_path, metrics):
    entries = [{"step": s} | metrics for s in range(1, 9)]
    for name, text in (("a.log", "\n".join(map(str, entries))), ("b.jsonl", lines(entries))):
        with raises_naming(WorkbookError, name, "loss"):
            read_run(save(tmp_path / name, text))


@pytest.fixture
def outputs(tmp_path):
    """An outputs folder as people have it: checkpoints, a notebook, text, and much else."""
    for name, last in (("first/checkpoint-75", 15), ("first/checkpoint-150", 30), ("b/", 30)):
        (tmp_path / name).mkdir(parents=True)
        state = {"log_history": ENTRIES[:last], "global_step": 5 * last}
        save(tmp_path / name / "trainer_state.json", json.dumps(state))
    save(tmp_path / "run.ipynb", notebook(html(trained(ENTRIES))))
    (tmp_path / "sft").mkdir()
    save(tmp_path / "sft" / "trainer_state.json", '{"log_history": [{"step": 1, "loss": 2.0}]}')
    (tmp_path / "flat").mkdir()
    save(tmp_path / "flat" / "log.jsonl", lines(map(levelled, ENTRIES)))
    others(tmp_path)
    return tmp_path


def test_a_folder_of_several_runs_gives_a_table_of_all(outputs, capsys):
    runs = read_runs(outputs)
    assert sorted(runs) == ["b", "first", "flat/log.jsonl", "run.ipynb", "sft"]
    for name in ("b", "first", "run.ipynb"):
        is_the_run(runs[name])
    assert isinstance(runs["sft"], WorkbookError)
    with raises_naming(WorkbookError, "b, first"):
        read_run(outputs)
    main(["diagnose", str(outputs)])
    output = capsys.readouterr().out
    assert max(map(len, output.splitlines())) <= 80
    assert [line.split()[:2] for line in output.splitlines()[1:3]] == [
        ["b", "5-150"],
        ["first", "5-150"],
    ]
    assert "the log has no reward" in " ".join(output.split())
    main(["diagnose", str(outputs), "--figure", str(outputs / "all.png")])
    assert (outputs / "all.png").read_bytes()[:4] == b"\x89PNG"
    capsys.readouterr()
    assert main(["diagnose", str(outputs), "--run", "first"]) == 0
    assert "30 rows, steps 5-150" in " ".join(capsys.readouterr().out.split())
    assert main(["diagnose", str(outputs), "--run", "sft"]) == 2
    assert "no reward" in capsys.readouterr().err
    assert main(["diagnose", str(outputs), "--run", "third"]) == 2
    assert "third" in capsys.readouterr().err


def test_the_command_line_reads_text_and_takes_what_the_log_does_not_say(tmp_path, capsys):
    path = save(tmp_path / "train.log", printed(with_bars=False))
    assert read_setting("logging_steps=5") == ("logging_steps", 5)
    assert read_setting("loss_type=grpo") == ("loss_type", "grpo")
    main(["diagnose", str(path), "--set", "logging_steps=5", "--set", "loss_type=grpo"])
    output = capsys.readouterr().out
    assert "30 rows, steps 5-150" in " ".join(output.split())
    assert max(map(len, output.splitlines())) <= 80
    assert main(["diagnose", str(path), "--set", "logging_steps"]) == 2
    assert main(["diagnose", str(path), "--set", "reward_roles={f: correctness}"]) == 2
    assert "--set reward_roles={f: correctness}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "setting",
    [
        "reward_roles=5",
        "reward_weights=2",
        "beta=low",
        "num_generations=[8]",
        "max_steps=null",
        "logging_steps=five",
    ],
)
def test_a_setting_that_no_rule_can_use_is_refused_with_an_example(tmp_path, capsys, setting):
    path = save(tmp_path / "log.jsonl", lines(ENTRIES))
    assert main(["diagnose", str(path), "--set", setting]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert f"--set {setting}" in message
    assert f"{setting.partition('=')[0]}=" in message.partition("give ")[2]


def test_settings_that_the_rules_can_use_are_taken():
    for name, value in (
        ("reward_weights", [1.0, 2.0]),
        ("reward_weights", {"f": 1.0}),
        ("reward_roles", {"f": "correctness"}),
        ("beta", 0),
        ("num_generations", 8),
        ("loss_type", "grpo"),
    ):
        assert read_setting(f"{name}={json.dumps(value)}") == (name, value)


@pytest.mark.slow
def test_the_help_has_an_example_of_each_form():
    output = cli("diagnose", "--help").stdout
    assert max(map(len, output.splitlines())) <= 80
    for form in (
        "checkpoint",
        ".ipynb",
        "TensorBoard",
        ".csv",
        ".jsonl",
        "trackio",
        ".log",
        "outputs ",
    ):
        assert form in output


def test_every_shared_log_of_a_real_run_is_read_with_its_steps():
    if not REAL.is_dir():
        pytest.skip("the logs of other people's runs are not on this machine (../shared)")
    labels = json.loads((REAL / "labels.json").read_text())
    runs = read_runs(REAL)
    assert sorted(runs) == sorted(labels)
    for name, run in runs.items():
        assert isinstance(run, RunLog), run
        state = json.loads((REAL / name / "trainer_state.json").read_text())
        steps = [e["step"] for e in state["log_history"]]
        assert list(run.table.index) == steps, name
        assert len(run.table) == labels[name]["rows"]
        assert run.table["reward"].notna().all()
        parts = {key.split("/")[1] for e in state["log_history"] for key in e if "rewards/" in key}
        assert set(run.functions) == parts
