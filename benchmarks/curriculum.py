"""Stages, and a filter by pass rates, in two cases in which they can help, for chapter 07.

    python benchmarks/curriculum.py --table      # the stored runs
    python benchmarks/curriculum.py              # the missing ones: a minute of a core each
    python benchmarks/curriculum.py --methods chosen --seeds 0 1

**Filter.** tiny-form trains for 16 steps on a pool of 16 word problems and 112 sums that it never
solves, or on the 16 problems alone, as a filter chooses them. To find these takes 8 completions of
each of the 128 problems, as many as 16 steps; so the whole pool is also trained for 32, and for 16
before 16 on the chosen problems. The reward is 1 for a strictly right answer.

**Stages.** The asked form is one that tiny-form has in less than 1 % of its answers. Its parts are
the reasoning without its end tag (in 7 % of the answers), the number in its tags (66 %), and a
sentence with the number (22 %). Four ways take 24 steps on all word problems: a reward for the
right number in this form alone; that reward after 8 steps that pay for the parts; and the parts and
a right number in any form, paid for together, without or with the strict reward beside them.

A run is a line of benchmarks/curriculum_runs.jsonl, with its rates on the same held-out problems.
"""

import argparse
import json
import random
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

from stored_runs import StoredRuns, circumstances, digest, installed_versions, use_one_core

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO)]

MODEL = REPO / "data" / "tiny-form"
PROBLEMS, SUMS = 16, 112  # in the pool
STEPS = 16  # of 64 completions: one epoch of the pool
HELDOUT = 240
LONG = "whole pool, 32 steps"
THEN = "whole pool, then chosen"
FILTERED = ("base", "whole pool", LONG, "chosen", THEN)
PARTS_AND_NUMBER = "parts and number"
WHOLE_TOO = "parts, number and whole"
STAGED = ("base, other form", "strict alone", "parts first", PARTS_AND_NUMBER, WHOLE_TOO)
METHODS = (*FILTERED, *STAGED)
FORM_STEPS, ALL_STEPS = 8, 24  # of the four ways
OTHER_FORM = re.compile(
    r"\s*<reasoning>\n(?:(?!<).)+\n<answer>(\d+)</answer>\nSo the answer is (\d+)\.\s*", re.DOTALL
)
STORED = StoredRuns(REPO / "benchmarks" / "curriculum_runs.jsonl", METHODS)


def key_of(method: str) -> str:
    """A hash of what a run is known by beside its seed: settings, libraries, model and problems."""
    from grpo_workbook import data

    if method in FILTERED:
        settings = [method, PROBLEMS, SUMS, STEPS, HELDOUT, installed_versions()]
    else:
        form = OTHER_FORM.pattern
        settings = [method, form, FORM_STEPS, ALL_STEPS, HELDOUT, installed_versions()]
    parts = [json.dumps(settings).encode(), (MODEL / "model.safetensors").read_bytes()]
    for part in ("train", "heldout"):
        parts.append(Path(data.WORD_PROBLEMS[part]).read_bytes())
    return digest(*parts)


def make_pool(seed: int):
    """The problems of a seed, first the ones that the model solves now and then."""
    from grpo_workbook import data, load_problems, to_dataset

    train_set = to_dataset(load_problems(data.WORD_PROBLEMS["train"]))
    rows = []
    for row in train_set.shuffle(seed=seed).select(range(PROBLEMS)):
        rows.append({"question": row["question"], "answer": row["answer"]})
    generator = random.Random(seed)
    for _ in range(SUMS):
        a = generator.randint(100, 999)
        b = generator.randint(100, 999)
        sentence = f"A box holds {a} red books and {b} blue books."
        question = f"{sentence} How many books are in the box?"
        rows.append({"question": question, "answer": str(a + b)})
    return to_dataset(load_problems(rows))


def strictly_right(completions, **columns) -> list[float]:
    """1 if the right number stands in the requested form, else 0."""
    from grpo_workbook import correctness_reward, strict_format_reward

    rights = correctness_reward(completions=completions, **columns)
    forms = strict_format_reward(completions=completions, **columns)
    rewards = []
    for right, form in zip(rights, forms, strict=True):
        rewards.append(min(right, form))
    return rewards


def parts_of_form(completions, **columns) -> list[float]:
    """The fraction of the other form's three parts that a completion has."""
    rewards = []
    for completion in completions:
        text = text_of(completion)
        is_unclosed = text.lstrip().startswith("<reasoning>") and "</reasoning>" not in text
        has_answer = len(re.findall(r"<answer>\d+</answer>", text)) == 1
        has_sentence = re.search(r"\nSo the answer is \d+\.\s*$", text) is not None
        rewards.append((is_unclosed + has_answer + has_sentence) / 3)
    return rewards


def right_in_other_form(completions, answer, **columns) -> list[float]:
    """1 for the right number in the other form."""
    rewards = []
    for completion, gold in zip(completions, answer, strict=True):
        match = OTHER_FORM.fullmatch(text_of(completion))
        rewards.append(float(match is not None and match[1] == gold))
    return rewards


def right_in_any_form(completions, answer, **columns) -> list[float]:
    """1 if the last number of the completion is the right one."""
    rewards = []
    for completion, gold in zip(completions, answer, strict=True):
        numbers = re.findall(r"\d+", text_of(completion))
        rewards.append(float(bool(numbers) and numbers[-1] == gold))
    return rewards


def text_of(completion) -> str:
    """The text of a completion, which TRL passes as a list with one message."""
    return completion[0]["content"]


def train(model, tokenizer, problems, profile, rewards) -> list[list[float]]:
    """GRPO on the problems; the reward and the fraction of zero-variance groups of each step."""
    from transformers import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    from grpo_workbook import Float32Adapters

    args = GRPOConfig(output_dir=str(REPO / "build" / "filter"), **profile.grpo)
    trainer = GRPOTrainer(
        model,
        rewards,
        args,
        problems,
        processing_class=tokenizer,
        callbacks=[Float32Adapters(model)],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    log = []
    for entry in trainer.state.log_history:
        if "reward" in entry:
            log.append([round(entry["reward"], 4), entry["frac_reward_zero_std"]])
    return log


def answer_heldout(model, tokenizer, seed: int) -> tuple[list[str], dict]:
    """The held-out answers, and the model's scores on these problems, sampled and greedy."""
    from grpo_workbook import data, evaluate, load_problems, to_dataset

    rows = load_problems(data.WORD_PROBLEMS["heldout"]).select(range(HELDOUT))
    heldout = to_dataset(rows)
    room = {"batch_size": 120, "max_new_tokens": 64}
    scores = {}
    scores["sampled"] = evaluate(model, tokenizer, heldout, sample=True, seed=seed, **room)
    scores["greedy"] = evaluate(model, tokenizer, heldout, **room)
    return list(heldout["answer"]), scores


def measure(model, tokenizer, seed: int) -> dict[str, float]:
    """Strict and lenient rates on the held-out problems, sampled and greedy."""
    _, scores_by_decoding = answer_heldout(model, tokenizer, seed)
    rates = {}
    for name, scores in scores_by_decoding.items():
        rates[name] = round(scores.rate, 4)
        rates[f"{name} lenient"] = round(sum(scores.lenient) / HELDOUT, 4)
    return rates


def measure_other_form(model, tokenizer, seed: int) -> tuple[dict[str, float], list[str]]:
    """Right numbers in the other form, and that form alone; and two greedy completions."""
    answers, scores_by_decoding = answer_heldout(model, tokenizer, seed)
    rates = {}
    for name, scores in scores_by_decoding.items():
        completions = [[{"content": text}] for text in scores.completions]
        right = right_in_other_form(completions, answers)
        rates[name] = round(sum(right) / HELDOUT, 4)
        well_formed = [OTHER_FORM.fullmatch(text) is not None for text in scores.completions]
        rates[f"{name} form"] = round(sum(well_formed) / HELDOUT, 4)
    return rates, scores_by_decoding["greedy"].completions[:2]


def for_trainer(profile, steps: int, seed: int):
    """The profile of one trainer. A second one needs its own seed: else it repeats problems."""
    changes = {"max_steps": steps, "seed": seed, "data_seed": seed}
    return replace(profile, grpo={**profile.grpo, **changes})


def train_staged(method: str, model, tokenizer, profile) -> list[list[float]]:
    """One of the four ways to the other form."""
    from grpo_workbook import data, load_problems, to_dataset

    problems = to_dataset(load_problems(data.WORD_PROBLEMS["train"]))
    every_step = for_trainer(profile, ALL_STEPS, profile.seed)
    if method == "strict alone":
        return train(model, tokenizer, problems, every_step, [right_in_other_form])
    if method in (PARTS_AND_NUMBER, WHOLE_TOO):
        both = [right_in_any_form, parts_of_form]
        if method == WHOLE_TOO:
            both.append(right_in_other_form)
        return train(model, tokenizer, problems, every_step, both)
    first = for_trainer(profile, FORM_STEPS, profile.seed)
    log = train(model, tokenizer, problems, first, [parts_of_form])
    second = for_trainer(profile, ALL_STEPS - FORM_STEPS, profile.seed + 1000)
    return log + train(model, tokenizer, problems, second, [right_in_other_form])


def run(method: str, seed: int) -> dict:
    """Train and measure one run; its line."""
    from grpo_workbook import choose_profile, load_policy

    steps = 2 * STEPS if method == LONG else STEPS
    changes = {
        "max_steps": steps,
        "learning_rate": 1e-3,
        "per_device_train_batch_size": 64,
        "save_strategy": "no",
    }
    profile = choose_profile("smoke", model=MODEL, seed=seed, grpo=changes)
    model, tokenizer = load_policy(profile)
    row = circumstances("curriculum.py", method, seed, key_of(method))
    started = time.process_time()
    if method in ("strict alone", "parts first", PARTS_AND_NUMBER, WHOLE_TOO):
        row["log"] = train_staged(method, model, tokenizer, profile)
    elif method != "base" and method in FILTERED:
        pool = make_pool(seed)
        solvable = pool.select(range(PROBLEMS))
        if method == "chosen":
            pool = solvable
        row["log"] = train(model, tokenizer, pool, profile, [strictly_right])
        if method == THEN:  # the same policy goes on
            second = for_trainer(profile, STEPS, seed + 1000)
            row["log"] += train(model, tokenizer, solvable, second, [strictly_right])
    if "log" in row:
        row["processor seconds"] = round(time.process_time() - started)
    if method in FILTERED:
        row["end"] = measure(model, tokenizer, seed)
    else:
        row["end"], row["examples"] = measure_other_form(model, tokenizer, seed)
    return row


def show_table() -> None:
    """Print the stored runs, a line for each."""
    print("| method | seed | sampled % | greedy % | zero-variance groups % |")
    print("| --- | --- | --- | --- | --- |")
    for row in STORED.rows():
        idle = ""
        if "log" in row:
            fractions = [fraction for _, fraction in row["log"]]
            idle = f"{100 * sum(fractions) / len(fractions):.0f}"
        end = row["end"]
        rates = f"{100 * end['sampled']:.1f} | {100 * end['greedy']:.1f}"
        print(f"| {row['method']} | {row['seed']} | {rates} | {idle} |")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", action="store_true", help="print the stored runs, run nothing")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    args = parser.parse_args()
    if args.table:
        show_table()
        return 0
    use_one_core()
    for seed in args.seeds:
        for method in args.methods:
            if not STORED.has(method, seed, key_of(method)):
                row = run(method, seed)
                print(f"{method}, seed {seed}: {row['end']}", flush=True)
                STORED.add(row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
