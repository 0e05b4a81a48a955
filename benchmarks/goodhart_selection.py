"""What a reward model sees among many completions of one prompt: `selection` of goodhart.py.

Two measurements of the same pool, which the base wrote: how often the reward model orders two
completions of a prompt as the rule does, and how good the best of n completions is by the rule.
"""

import json
import math
import random
from pathlib import Path
from statistics import mean

from goodhart_training import PROMPTS, judged, reward_model, whole
from race_training import Racer, Settings

from grpo_workbook.data import load_tokenizer

PAIRS = 200  # at most, of one kind and problem
SIZES = (1, 2, 4, 8, 16, 32, 64)  # n of "best of n"
RIGHT, WRONG_NUMBER = 1.0, 1 / 3  # gold of completions that have the whole form


def many_completions(task: dict, seed: int, folder: Path) -> list[list[dict]]:
    """The pool, a list of completions for each problem; kept in `folder`.

    `task["pool"]` has the number of problems and that of completions for each. No reward model has
    learned from these problems.
    """
    problems, each = task["pool"]
    path = folder / f"many-{seed}-{problems}x{each}.json"
    if not path.is_file():
        racer = Racer(task, Settings(group=each), seed, 0)
        racer.next_rows(PROMPTS)  # those of the pairs from which the reward models learn
        pool = []
        for _ in range(0, problems, 4):
            rows = racer.next_rows(4)
            batch = racer.sample(rows)
            gold = racer.score(rows, batch)
            for number, row in enumerate(rows):
                group = []
                for i in range(number * each, (number + 1) * each):
                    value = gold[i] / sum(racer.weights)
                    completion = {"prompt": row["prompt"], "text": batch["texts"][i], "gold": value}
                    group.append(completion)
                pool.append(group)
        whole(path, lambda new: new.write_text(json.dumps(pool)))
    return json.loads(path.read_text(encoding="utf-8"))


def has_gold(completion: dict, value: float) -> bool:
    """Whether a completion earned this gold, to rounding."""
    return abs(completion["gold"] - value) < 1e-6


def order_rate(better: list[dict], worse: list[dict], rng: random.Random) -> float | None:
    """How often the better of two completions has the higher reward; None: there is no pair."""
    pairs = []
    for first in better:
        for second in worse:
            pairs.append(first["proxy"] > second["proxy"])
    if not pairs:
        return None
    return mean(rng.sample(pairs, min(PAIRS, len(pairs))))


def any_rate(group: list[dict], rng: random.Random) -> float | None:
    """The same over pairs of one problem whose gold differs in any way."""
    outcomes = []
    for _ in range(PAIRS):
        first, second = rng.sample(group, 2)
        if first["gold"] != second["gold"]:
            outcomes.append((first["proxy"] > second["proxy"]) == (first["gold"] > second["gold"]))
    if not outcomes:
        return None
    return mean(outcomes)


def best_of(group: list[dict], n: int, measure: str) -> float:
    """The mean `measure` of the completion with the highest reward among n, over all choices of n.

    Of N completions in the order of their rewards, number i (from 1) is the best of n in
    C(i - 1, n - 1) of the C(N, n) choices.
    """
    ordered = sorted(group, key=lambda completion: completion["proxy"])
    choices = math.comb(len(ordered), n)
    total = 0.0
    for below, completion in enumerate(ordered):
        total += math.comb(below, n - 1) / choices * completion[measure]
    return total


def selection(task: dict, seed: int, flips: float, folder: Path) -> dict:
    """Both measurements of one reward model.

    `accuracy` and `alike` are means over problems of the rate of pairs in the right order: of any
    two completions of a problem, and of those where both have the whole form and one number is
    right. `best`: for each n the mean gold, rate right and mean proxy of the best of n.
    """
    model = reward_model(task, seed, flips, 0, folder)
    tokenizer = load_tokenizer(task["model"])
    groups = many_completions(task, seed, folder)
    for group in groups:
        prompts = [completion["prompt"] for completion in group]
        texts = [completion["text"] for completion in group]
        rewards = judged(model, tokenizer, prompts, texts).tolist()
        for completion, reward in zip(group, rewards, strict=True):
            completion["proxy"] = reward
            completion["right"] = float(has_gold(completion, RIGHT))

    rng = random.Random(seed)
    any_rates, alike_rates = [], []
    for group in groups:
        any_rates.append(any_rate(group, rng))
        right = [completion for completion in group if has_gold(completion, RIGHT)]
        wrong = [completion for completion in group if has_gold(completion, WRONG_NUMBER)]
        alike_rates.append(order_rate(right, wrong, rng))
    any_rates = [rate for rate in any_rates if rate is not None]
    alike_rates = [rate for rate in alike_rates if rate is not None]

    best = []
    for n in SIZES:
        row = {"n": n}
        for measure in ("gold", "right", "proxy"):
            row[measure] = round(mean(best_of(group, n, measure) for group in groups), 4)
        best.append(row)
    end = {
        "accuracy": round(mean(any_rates), 4),
        "alike": round(mean(alike_rates), 4),
        "alike_problems": len(alike_rates),
    }
    return {
        "end": end,
        "best": best,
        "alike_by_problem": [round(rate, 3) for rate in alike_rates],
        "completions": sum(len(group) for group in groups),
    }
