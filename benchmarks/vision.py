"""GRPO on pictures: which part of a model that sees learns, and whether it needs the pictures.

    python benchmarks/vision.py --table             # the stored runs
    python benchmarks/vision.py                     # the missing ones: two minutes of a core each
    python benchmarks/vision.py --methods base both --seeds 0 1

data/tiny-vision reads charts on white paper; each run trains it for 40 steps on charts on grey
paper (chapter 15 explains the runs). METHODS says what a run changes, `train` and `measure` are the
two halves of a run, and a run is stored as a line of benchmarks/vision_runs.jsonl. It is made again
when its Method, the number of steps, the model's weights, the held-out charts or the versions of
the libraries have changed. After any other change, as of the learning rate, delete its line.
"""

import argparse
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from stored_runs import StoredRuns, circumstances, digest, installed_versions, use_one_core

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO)]
os.environ.setdefault("HF_HUB_OFFLINE", "1")

MODEL = REPO / "data" / "tiny-vision"
STEPS = 40
HELDOUT, HELDOUT_SEED = 200, 99  # charts that are measured
TRAINING = 2000  # charts to draw from


@dataclass(frozen=True)
class Method:
    """What the runs of a method change; the rest of the settings is the same for all."""

    adapters_in: str | None  # a name in pictures.LAYERS; None measures the base without training
    pictures: str = "real"  # of the training: "real", "blank", "shuffled" or "half white"
    reward: str = "sum"  # what is paid for: "sum", or "list and sum" for the list of the bars, too
    bits: int = 4  # of the base's language layers: 4 or 32
    seeds: tuple[int, ...] = (0, 1, 2)


METHODS = {
    "base": Method(None, seeds=(0,)),
    "vision": Method("vision"),
    "language": Method("language"),
    "both": Method("both"),
    "vision, list paid": Method("vision", reward="list and sum"),
    "vision, blank pictures": Method("vision", pictures="blank"),
    "vision, shuffled pictures": Method("vision", pictures="shuffled"),
    "vision, half white": Method("vision", pictures="half white"),
    "vision, 32-bit base": Method("vision", bits=32, seeds=(0,)),
}
STORED = StoredRuns(REPO / "benchmarks" / "vision_runs.jsonl", METHODS)


def key_of(method: Method) -> str:
    """A hash of what a run is known by beside its seed: Method, libraries, model and charts."""
    from grpo_workbook.exercises.charts import make_charts, picture

    # A list, in this order: another form would give the stored runs other keys.
    settings = [method.adapters_in, method.pictures, method.reward, method.bits]
    parts = [json.dumps([settings, STEPS, installed_versions()]).encode()]
    parts.append((MODEL / "model.safetensors").read_bytes())
    for chart in make_charts(HELDOUT, seed=HELDOUT_SEED, heldout=True):
        parts.append(picture(chart, "grey").tobytes())
    return digest(*parts)


def read_charts(model, processor, charts) -> Any:
    """The Scores of greedy answers to the questions of these rows."""
    from grpo_workbook import evaluate

    return evaluate(model, processor, charts, batch_size=100, max_new_tokens=48)


def measure(model, processor, seed: int) -> dict:
    """Rates on the held-out charts: grey paper, white paper, and the two controls."""
    from datasets import Dataset

    from grpo_workbook import evaluate
    from grpo_workbook.exercises.charts import PAPERS, make_charts, reading_rates, rows
    from grpo_workbook.pictures import picture_controls

    charts = make_charts(HELDOUT, seed=HELDOUT_SEED, heldout=True)
    grey = Dataset.from_list(rows(charts, "grey"))
    white = Dataset.from_list(rows(charts, "white"))
    controls = picture_controls(grey, colour=PAPERS["grey"])
    greedy = read_charts(model, processor, grey)
    sampled = evaluate(
        model, processor, grey, batch_size=100, max_new_tokens=48, sample=True, seed=seed
    )
    result = {
        "greedy": greedy.rate,
        "sampled": sampled.rate,
        "white": read_charts(model, processor, white).rate,
        "blank": read_charts(model, processor, controls["blank"]).rate,
        "shuffled": read_charts(model, processor, controls["shuffled"]).rate,
        **reading_rates(charts, greedy.completions),
    }
    right_with_wrong_list = 0
    for chart, completion, is_right in zip(charts, greedy.completions, greedy.strict, strict=True):
        if is_right and reading_rates([chart], [completion])["lists"] == 0:
            right_with_wrong_list += 1
    result["right sum, wrong list"] = right_with_wrong_list / len(charts)
    return {name: round(rate, 4) for name, rate in result.items()}


def training_rows(pictures: str, seed: int):
    """The charts of a training on grey paper, with pictures as a method names them."""
    from datasets import Dataset

    from grpo_workbook.exercises.charts import PAPERS, make_charts, rows
    from grpo_workbook.pictures import picture_controls

    charts = make_charts(TRAINING, seed=1000 + seed, heldout=False)
    if pictures == "half white":
        half = TRAINING // 2  # the trainer shuffles the rows
        return Dataset.from_list(rows(charts[:half], "grey") + rows(charts[half:], "white"))
    grey = Dataset.from_list(rows(charts, "grey"))
    if pictures == "real":
        return grey
    controls = picture_controls(grey, colour=PAPERS["grey"])
    return controls[pictures]


def train(model, processor, method: Method, seed: int, steps: int = STEPS) -> list[float]:
    """GRPO on charts; the mean reward of each step."""
    import torch
    from transformers import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    from grpo_workbook import Float32Adapters, correctness_reward
    from grpo_workbook.compat import picture_tokens
    from grpo_workbook.exercises.charts import list_reward
    from grpo_workbook.pictures import check_pictures

    train_set = training_rows(method.pictures, seed)
    check_pictures(train_set, processor)
    functions = [correctness_reward]
    if method.reward == "list and sum":
        functions.append(list_reward)
    args = GRPOConfig(
        output_dir=str(REPO / "build" / "vision"),
        max_steps=steps,
        per_device_train_batch_size=64,
        num_generations=8,
        max_completion_length=48,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        learning_rate=5e-4,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=5,
        weight_decay=0.0,
        adam_beta2=0.99,
        max_grad_norm=0.2,
        beta=0.0,
        loss_type="dapo",
        scale_rewards="group",
        generation_kwargs={"suppress_tokens": picture_tokens(processor)},
        gradient_checkpointing=False,
        bf16=torch.cuda.is_available(),  # as on the GPUs of `gpu.py`, which have it
        use_cpu=not torch.cuda.is_available(),
        optim="adamw_torch",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=seed,
    )
    trainer = GRPOTrainer(
        model,
        functions,
        args,
        train_set,
        processing_class=processor,
        callbacks=[Float32Adapters(model)],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    rewards = []
    for entry in trainer.state.log_history:
        if "reward" in entry:  # the last entry has the times of the whole run
            rewards.append(round(entry["reward"], 4))
    return rewards


def load_policy(method: Method) -> tuple[Any, Any]:
    """The model that a method trains, with its adapters, and its processor."""
    from peft import LoraConfig, get_peft_model

    from grpo_workbook import load_model
    from grpo_workbook.pictures import LAYERS

    model, processor = load_model(str(MODEL), load_in_4bit=method.bits == 4, pictures=True)
    if method.adapters_in is None:
        return model, processor
    adapters = LoraConfig(r=16, lora_alpha=32, target_modules=LAYERS[method.adapters_in])
    return get_peft_model(model, adapters), processor


def run(name: str, seed: int) -> dict:
    """Train and measure one run; the line that is stored of it."""
    from transformers import set_seed

    method = METHODS[name]
    set_seed(seed)
    model, processor = load_policy(method)
    row = circumstances("vision.py", name, seed, key_of(method))
    if method.adapters_in is None:
        row["end"] = measure(model, processor, seed)
        return row
    started = time.monotonic()
    row["rewards"] = train(model, processor, method, seed)
    row["seconds"] = round(time.monotonic() - started)
    row["end"] = measure(model, processor, seed)
    row["adapter"] = adapter_hash(model)
    return row


def adapter_hash(model) -> str:
    """A hash of the trained weights: two runs with the same seed have the same."""
    import torch

    weights = []
    for name, weight in model.named_parameters():
        if "lora_" in name:
            weight = weight.detach().to("cpu", torch.float32)
            weights.append(weight.numpy().tobytes())
    return digest(*weights)


def wanted(methods: list[str], seeds: list[int] | None) -> list[tuple[str, int]]:
    """The runs that were asked for, seed by seed, so that what time allows is balanced.

    Args:
        methods: names in METHODS.
        seeds: those of each method; None takes the method's own.
    """
    runs = []
    for method in methods:
        for seed in seeds or METHODS[method].seeds:
            runs.append((method, seed))
    runs.sort(key=lambda run: run[1])  # the methods of a seed keep their order
    return runs


def show_table() -> None:
    """Print the stored runs in percent: one line for each, and the mean of each method."""
    columns = ("greedy", "sampled", "white", "blank", "shuffled", "colours", "heights")
    print("| method | seed | " + " | ".join(columns) + " | seconds |")
    print("| --- " * (len(columns) + 3) + "|")
    for method in METHODS:
        runs = [row for row in STORED.rows() if row["method"] == method]
        for row in runs:
            rates = [row["end"][column] for column in columns]
            print(f"| {method} | {row['seed']} | {percentages(rates)} | {row.get('seconds', '')} |")
        if len(runs) > 1:
            means = []
            for column in columns:
                means.append(mean(row["end"][column] for row in runs))
            print(f"| {method} | mean | {percentages(means)} | |")


def percentages(rates: list[float]) -> str:
    """Rates from 0 to 1 as the cells of a table."""
    return " | ".join(f"{100 * rate:.1f}" for rate in rates)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", action="store_true", help="print the stored runs, run nothing")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, nargs="+", help="default: those of each method")
    args = parser.parse_args()
    if args.table:
        show_table()
        return 0
    use_one_core()
    for method, seed in wanted(args.methods, args.seeds):
        if not STORED.has(method, seed, key_of(METHODS[method])):
            row = run(method, seed)
            print(f"{method}, seed {seed}: {row['end']}, {row.get('seconds')} s", flush=True)
            STORED.add(row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
