"""GRPO on pictures: which part of a model that sees learns, and whether it needs the pictures.

    python benchmarks/vision.py --table             # the stored runs
    python benchmarks/vision.py                     # the missing ones: two minutes of a core each
    python benchmarks/vision.py --methods base both --seeds 0 1

data/tiny-vision reads charts on white paper; each run trains it for 40 steps on charts on grey
paper (chapter 15 explains the runs). A run is a line of benchmarks/vision_runs.jsonl. It is made
again when its settings, the model, the charts or the versions of the libraries have changed.
"""

import argparse
import hashlib
import json
import os
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path
from statistics import mean

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO)]
os.environ.setdefault("HF_HUB_OFFLINE", "1")

MODEL = REPO / "data" / "tiny-vision"
STORED = REPO / "benchmarks" / "vision_runs.jsonl"
STEPS = 40
HELDOUT, HELDOUT_SEED = 200, 99  # charts that are measured
TRAINING = 2000  # charts to draw from
LIBRARIES = ("torch", "transformers", "trl", "peft", "bitsandbytes", "unsloth")
# method -> (where the adapters are, the pictures of the training, what the reward pays for, bits of
# the base, seeds)
METHODS = {
    "base": (None, "real", "sum", 4, [0]),
    "vision": ("vision", "real", "sum", 4, [0, 1, 2]),
    "language": ("language", "real", "sum", 4, [0, 1, 2]),
    "both": ("both", "real", "sum", 4, [0, 1, 2]),
    "vision, list paid": ("vision", "real", "list and sum", 4, [0, 1, 2]),
    "vision, blank pictures": ("vision", "blank", "sum", 4, [0]),
    "vision, shuffled pictures": ("vision", "shuffled", "sum", 4, [0]),
    "vision, 32-bit base": ("vision", "real", "sum", 32, [0]),
}


def digest(*parts: bytes) -> str:
    """Twelve digits of a SHA-256."""
    checksum = hashlib.sha256()
    for part in parts:
        checksum.update(part)
    return checksum.hexdigest()[:12]


def circumstances(method: str, seed: int) -> dict:
    """What a run is made of: its settings, a hash of all that it depends on, the machine."""
    from grpo_workbook.exercises.charts import make_charts, picture

    settings = METHODS[method][:4]
    versions = {name: version(name) for name in LIBRARIES}
    parts = [json.dumps([settings, STEPS, versions]).encode()]
    parts.append((MODEL / "model.safetensors").read_bytes())
    for chart in make_charts(HELDOUT, seed=HELDOUT_SEED, heldout=True):
        parts.append(picture(chart, "grey").tobytes())
    return {
        "method": method,
        "seed": seed,
        "command": f'python benchmarks/vision.py --methods "{method}" --seeds {seed}',
        "key": digest(*parts),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, one used",
        **versions,
    }


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
    settings = {"batch_size": 100, "max_new_tokens": 48}
    greedy = evaluate(model, processor, grey, **settings)
    sampled = evaluate(model, processor, grey, sample=True, seed=seed, **settings)
    result = {
        "greedy": greedy.rate,
        "sampled": sampled.rate,
        "white": evaluate(model, processor, white, **settings).rate,
        "blank": evaluate(model, processor, controls["blank"], **settings).rate,
        "shuffled": evaluate(model, processor, controls["shuffled"], **settings).rate,
        **reading_rates(charts, greedy.completions),
    }
    right_with_wrong_list = 0
    for chart, completion, is_right in zip(charts, greedy.completions, greedy.strict, strict=True):
        if is_right and reading_rates([chart], [completion])["lists"] == 0:
            right_with_wrong_list += 1
    result["right sum, wrong list"] = right_with_wrong_list / len(charts)
    return {name: round(rate, 4) for name, rate in result.items()}


def train(model, processor, pictures: str, paid: str, seed: int) -> list[float]:
    """40 steps of GRPO; the mean reward of each."""
    import torch
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    from grpo_workbook import Float32Adapters, correctness_reward
    from grpo_workbook.compat import picture_tokens
    from grpo_workbook.exercises.charts import PAPERS, list_reward, make_charts, rows
    from grpo_workbook.pictures import check_pictures, picture_controls

    charts = make_charts(TRAINING, seed=1000 + seed, heldout=False)
    train_set = Dataset.from_list(rows(charts, "grey"))
    if pictures != "real":
        train_set = picture_controls(train_set, colour=PAPERS["grey"])[pictures]
    functions = [correctness_reward]
    if paid == "list and sum":
        functions.append(list_reward)
    check_pictures(train_set, processor)
    args = GRPOConfig(
        output_dir=str(REPO / "build" / "vision"),
        max_steps=STEPS,
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
        bf16=False,
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
    return [round(entry["reward"], 4) for entry in trainer.state.log_history if "reward" in entry]


def run(method: str, seed: int) -> dict:
    """Train and measure one run; its line."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import set_seed

    from grpo_workbook import load_model
    from grpo_workbook.pictures import LAYERS

    part, pictures, paid, bits, _ = METHODS[method]
    set_seed(seed)
    model, processor = load_model(str(MODEL), load_in_4bit=bits == 4, pictures=True)
    row = circumstances(method, seed)
    if part is None:
        row["end"] = measure(model, processor, seed)
        return row
    adapters = LoraConfig(r=16, lora_alpha=32, target_modules=LAYERS[part])
    model = get_peft_model(model, adapters)
    started = time.monotonic()
    row["rewards"] = train(model, processor, pictures, paid, seed)
    row["seconds"] = round(time.monotonic() - started)
    row["end"] = measure(model, processor, seed)
    weights = []
    for name, weight in model.named_parameters():
        if "lora_" in name:
            weights.append(weight.detach().to("cpu", torch.float32).numpy().tobytes())
    row["adapter"] = digest(*weights)
    return row


def wanted(methods: list[str], seeds: list[int] | None) -> list[tuple[str, int]]:
    """The runs that were asked for, seed by seed, so that what time allows is balanced.

    Args:
        methods: names in METHODS.
        seeds: those of each method; None takes the method's own.
    """
    runs = []
    for seed in seeds or [0, 1, 2]:
        for method in methods:
            if seeds is not None or seed in METHODS[method][4]:
                runs.append((method, seed))
    return runs


def stored_runs() -> list[dict]:
    """The lines of benchmarks/vision_runs.jsonl."""
    if not STORED.is_file():
        return []
    lines = STORED.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def is_stored(method: str, seed: int) -> bool:
    """Whether there is a run with the same settings, model, charts and libraries."""
    key = circumstances(method, seed)["key"]
    return (method, seed, key) in [(r["method"], r["seed"], r["key"]) for r in stored_runs()]


def store(row: dict) -> None:
    """Add a run, in the place of an older one with its method and seed."""
    name = (row["method"], row["seed"])
    others = [other for other in stored_runs() if (other["method"], other["seed"]) != name]
    order = list(METHODS)
    lines = sorted([*others, row], key=lambda line: (order.index(line["method"]), line["seed"]))
    text = "".join(json.dumps(line) + "\n" for line in lines)
    STORED.write_text(text, encoding="utf-8")


def show_table() -> None:
    """Print the stored runs: one line for each, and the mean of each method."""
    columns = ("greedy", "sampled", "white", "blank", "shuffled", "colours", "heights")
    print("| method | seed | " + " | ".join(columns) + " | seconds |")
    print("| --- " * (len(columns) + 3) + "|")
    for method in METHODS:
        lines = [row for row in stored_runs() if row["method"] == method]
        for row in lines:
            rates = " | ".join(f"{100 * row['end'][name]:.1f}" for name in columns)
            print(f"| {method} | {row['seed']} | {rates} | {row.get('seconds', '')} |")
        if len(lines) > 1:
            means = [mean(row["end"][name] for row in lines) for name in columns]
            print(f"| {method} | mean | " + " | ".join(f"{100 * x:.1f}" for x in means) + " | |")


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
    from grpo_workbook import quiet

    quiet()  # before Unsloth
    import torch
    import unsloth  # noqa: F401  before TRL: it replaces TRL's Triton kernel on a CPU

    torch.set_num_threads(1)
    for method, seed in wanted(args.methods, args.seeds):
        if not is_stored(method, seed):
            row = run(method, seed)
            print(f"{method}, seed {seed}: {row['end']}, {row.get('seconds')} s", flush=True)
            store(row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
