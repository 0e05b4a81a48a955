"""GRPO of models that think: budgets, limits and a price of length, for chapter 16.

    python benchmarks/thinking.py --table             # the stored runs
    python benchmarks/thinking.py                     # the missing ones: a minute of a core each
    python benchmarks/thinking.py --methods thinker "limit 36" --seeds 0 1

data/tiny-thinker mostly leaves its thought out, and data/tiny-rambler thinks longer than it has to
(data/build_tiny_thinker.py makes both). A run is a line of benchmarks/thinking_runs.jsonl. It is
made again when its Method, the model's weights, the sums or the versions of the libraries have
changed. After any other change, as of the learning rate, delete its line.
"""

import argparse
import json
import os
import re
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean

from stored_runs import StoredRuns, circumstances, digest, installed_versions, use_one_core

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO)]
os.environ.setdefault("HF_HUB_OFFLINE", "1")

DATA = REPO / "data"
HELDOUT = 240  # sums that are answered greedily; the first half is sampled
PER = 100  # tokens, of which the price is


@dataclass(frozen=True)
class Method:
    """The settings of a run, and what is measured at its end."""

    model: str  # a folder of data/
    steps: int  # 0: the model as it is
    limit: int  # max_completion_length
    mask: bool = False  # mask_truncated_completions
    price: float = 0.0  # what 100 tokens cost of the reward
    all_pay: bool = False  # wrong answers pay the price, too
    scale: str = "group"  # scale_rewards
    room: int = 64  # max_new_tokens of the measurement
    samples: int = 2
    budgets: tuple[int, ...] = ()  # thinking budgets to measure with
    seeds: tuple[int, ...] = (0,)


THINKER = {"model": "tiny-thinker", "room": 64}
RAMBLER = {"model": "tiny-rambler", "room": 128, "limit": 112, "steps": 60, "scale": "batch"}
SHORT = (0, 8, 16, 24, 28, 32, 36, 40, 48)
LONG = (0, 10, 20, 30, 40, 50, 60, 80)
METHODS = {
    "thinker, base": Method(**THINKER, steps=0, limit=64, samples=16, budgets=SHORT),
    "thinker": Method(**THINKER, steps=40, limit=64, samples=16, budgets=SHORT, seeds=(0, 1, 2)),
    "limit 20": Method(**THINKER, steps=40, limit=20, seeds=(0, 1, 2)),
    "limit 36": Method(**THINKER, steps=40, limit=36, seeds=(0, 1, 2, 3, 4)),
    "limit 36, mask": Method(**THINKER, steps=40, limit=36, mask=True, seeds=(0, 1, 2, 3, 4)),
    "thinker, price 1.25": Method(**THINKER, steps=40, limit=64, price=1.25),
    "thinker, all pay": Method(**THINKER, steps=40, limit=64, price=1.25, all_pay=True),
    "rambler, base": Method("tiny-rambler", 0, 112, room=128, budgets=LONG),
    "price 0": Method(**RAMBLER, seeds=(0, 1, 2)),
    "price 0.5": Method(**RAMBLER, price=0.5, seeds=(0, 1, 2)),
    "price 1": Method(**RAMBLER, price=1.0, seeds=(0, 1, 2)),
    "price 2": Method(**RAMBLER, price=2.0, seeds=(0, 1, 2)),
    "price 3": Method(**RAMBLER, price=3.0, seeds=(0, 1, 2)),
    "price 4": Method(**RAMBLER, price=4.0, seeds=(0, 1, 2)),
}
STORED = StoredRuns(REPO / "benchmarks" / "thinking_runs.jsonl", METHODS)


def files_of(method: Method) -> dict[str, Path]:
    """The training and the held-out sums of a method's model."""
    start = "mixed_" if method.model == "tiny-rambler" else ""
    folder = DATA / "step_tasks"
    return {part: folder / f"{start}{part}.jsonl" for part in ("train", "heldout")}


def key_of(method: Method) -> str:
    """A hash of what a run is known by beside its seed: Method, libraries, model and sums."""
    settings = asdict(method)
    del settings["seeds"]
    # A list, in this order: another form would give the stored runs other keys.
    parts = [json.dumps([settings, HELDOUT, PER, installed_versions()]).encode()]
    parts.append((DATA / method.model / "model.safetensors").read_bytes())
    for path in files_of(method).values():
        parts.append(path.read_bytes())
    return digest(*parts)


def right_and_short(price: float, all_pay: bool):
    """A reward: 1 for a right answer, less the price of its tokens.

    A wrong answer gets 0, or less if all pay for their tokens.
    """
    from grpo_workbook import correctness_reward

    def priced_reward(completions, completion_ids, **columns) -> list[float]:
        rewards = []
        rights = correctness_reward(completions=completions, **columns)
        for right, tokens in zip(rights, completion_ids, strict=True):
            cost = price * len(tokens) / PER
            if all_pay:
                rewards.append(right - cost)
            else:
                rewards.append(right * max(0.0, 1 - cost))
        return rewards

    return priced_reward


def measure(model, tokenizer, method: Method, seed: int) -> dict:
    """Rates and lengths on the held-out sums: greedy, sampled, without thoughts, by budget."""
    from grpo_workbook import correctness_reward, evaluate, load_problems, to_dataset
    from grpo_workbook.evaluation import passed

    rows = to_dataset(load_problems(files_of(method)["heldout"]).select(range(HELDOUT)), None)
    half = rows.select(range(HELDOUT // 2))
    on, off = {"enable_thinking": True}, {"enable_thinking": False}
    common = {"rewards": [correctness_reward], "batch_size": 120}
    room = {**common, "max_new_tokens": method.room}
    greedy = evaluate(model, tokenizer, rows, chat_template_kwargs=on, **room)
    several = {"sample": True, "samples": method.samples, "seed": seed}
    sampled = evaluate(model, tokenizer, half, chat_template_kwargs=on, **several, **room)
    silent = evaluate(model, tokenizer, rows, chat_template_kwargs=off, **room)
    result = {
        "greedy": greedy.rate,
        "greedy tokens": mean(greedy.tokens),
        "sampled": sampled.rate,
        "sampled tokens": mean(sampled.tokens),
        "sampled thought": mean(sampled.thoughts),
        f"pass@{method.samples}": mean(passed(sampled.strict, method.samples)),
        "without thoughts": silent.rate,
    }
    if method.limit != method.room:
        limit = {**common, "max_new_tokens": method.limit}
        short = evaluate(model, tokenizer, half, chat_template_kwargs=on, **several, **limit)
        greedy_short = evaluate(model, tokenizer, rows, chat_template_kwargs=on, **limit)
        result["sampled at the limit"] = short.rate
        result["greedy at the limit"] = greedy_short.rate
    result = {key: round(value, 4) for key, value in result.items()}
    result["by digits"] = by_digits(half, sampled, silent)
    result["budgets"] = []
    for budget in method.budgets:
        scores = evaluate(
            model, tokenizer, rows, chat_template_kwargs=on, thinking_budget=budget, **room
        )
        result["budgets"].append([budget, scores.rate, round(mean(scores.tokens), 2)])
    return result


def first_number(question: str) -> str:
    """The digits of the first number in a question. Both numbers of a sum have equally many."""
    match = re.search(r"\d+", question)
    if match is None:
        raise ValueError(f"no number stands in {question!r}")
    return match[0]


def by_digits(rows, sampled, silent) -> dict[str, list[float]]:
    """{digits of the numbers: [right, thought tokens, both sampled; right without thoughts]}."""
    places: dict[int, list[int]] = {}
    for place, question in enumerate(rows["question"]):
        places.setdefault(len(first_number(question)), []).append(place)
    table = {}
    for digits, chosen in sorted(places.items()):
        right, thoughts = [], []
        for place in chosen:
            tries = slice(place * sampled.samples, (place + 1) * sampled.samples)
            right.extend(sampled.strict[tries])
            thoughts.extend(sampled.thoughts[tries])
        silent_right = [silent.strict[place] for place in chosen]
        rates = (mean(right), mean(thoughts), mean(silent_right))
        table[str(digits)] = [round(rate, 4) for rate in rates]
    return table


def train(model, tokenizer, method: Method, profile) -> list[dict]:
    """GRPO with thoughts; reward, mean length, cut-off and unclosed fraction of each step."""
    from transformers import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    from grpo_workbook import Float32Adapters, load_problems, to_dataset
    from grpo_workbook.diagnosis import watch

    train_set = to_dataset(load_problems(files_of(method)["train"]), None)
    args = GRPOConfig(output_dir=str(REPO / "build" / "thinking"), **profile.grpo)
    trainer = GRPOTrainer(
        model,
        watch([right_and_short(method.price, method.all_pay)]),
        args,
        train_set,
        processing_class=tokenizer,
        callbacks=[Float32Adapters(model)],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    names = ("reward", "completions/mean_length", "completions/clipped_ratio", "thoughts/unclosed")
    log = []
    for entry in trainer.state.log_history:
        if "reward" in entry:
            log.append([round(entry.get(name, 0.0), 4) for name in names])
    return log


def run(name: str, seed: int) -> dict:
    """Train and measure one run; its line."""
    from grpo_workbook import choose_profile, load_policy

    method = METHODS[name]
    changes = {
        "max_steps": method.steps,
        "per_device_train_batch_size": 64,
        "learning_rate": 1e-3,
        "max_completion_length": method.limit,
        "mask_truncated_completions": method.mask,
        "scale_rewards": method.scale,
        "save_strategy": "no",
    }
    profile = choose_profile(
        "smoke", model=DATA / method.model, seed=seed, thinking=True, grpo=changes
    )
    model, tokenizer = load_policy(profile)
    row = circumstances("thinking.py", name, seed, key_of(method))
    if method.steps > 0:
        started = time.process_time()
        row["log"] = train(model, tokenizer, method, profile)
        row["processor seconds"] = round(time.process_time() - started)
    row["end"] = measure(model, tokenizer, method, seed)
    return row


def show_table() -> None:
    """Print the stored runs, a line for each."""
    columns = ("greedy", "sampled", "sampled tokens", "sampled at the limit", "without thoughts")
    print("| method | seed | " + " | ".join(columns) + " | processor seconds |")
    print("| --- " * (len(columns) + 3) + "|")
    for row in STORED.rows():
        values = " | ".join(str(row["end"].get(name, "")) for name in columns)
        seconds = row.get("processor seconds", "")
        print(f"| {row['method']} | {row['seed']} | {values} | {seconds} |")


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
    for name in args.methods:
        for seed in args.seeds or METHODS[name].seeds:
            if not STORED.has(name, seed, key_of(METHODS[name])):
                row = run(name, seed)
                print(f"{name}, seed {seed}: {row['end']}", flush=True)
                STORED.add(row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
