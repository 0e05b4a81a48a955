"""The usual correctness rewards of GRPO notebooks and ours: their errors and their cost.

    python benchmarks/rewards.py                # the tables
    python benchmarks/rewards.py --wrong        # and every case that one of them judges wrongly

The cases are in reward_cases.jsonl: a completion, its reference answer, whether a careful person
would call the final answer right. Some are unfair to us, and stay. Ratios compare rows of one call.
"""

import argparse
import json
import re
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from grpo_workbook import correctness_reward, parse_rewards
from grpo_workbook.rewards import attacks

CASES = [
    json.loads(line)
    for line in Path(__file__).with_name("reward_cases.jsonl").open(encoding="utf-8")
]
TEXT_REWARDS = "correctness,strict_format,incremental_format,overlong=120"
BATCH = 512


# ------------------------------------------------------------------ what notebooks do, in our words


def exact_match(completions, answer, **columns):
    """The text between the last opening tag and the next closing one, compared as text."""
    rewards = []
    for text, reference in zip(completions, answer, strict=True):
        inside = text.split("<answer>")[-1].split("</answer>")[0].strip()
        rewards.append(2.0 if inside == reference else 0.0)
    return rewards


def first_tag(completions, answer, **columns):
    """The first answer block's first number, as a float."""
    rewards = []
    for text, reference in zip(completions, answer, strict=True):
        numbers = tagged_numbers(text) or [None]
        rewards.append(2.0 if numbers[0] == number_in(reference) else 0.0)
    return rewards


def any_tag(completions, answer, **columns):
    """Right if any answer block holds the number."""
    rewards = []
    for text, reference in zip(completions, answer, strict=True):
        rewards.append(2.0 if number_in(reference) in tagged_numbers(text) else 0.0)
    return rewards


def one_percent(completions, answer, **columns):
    """Right within 1 %."""
    rewards = []
    for text, reference in zip(completions, answer, strict=True):
        numbers = tagged_numbers(text) or [None]
        wanted = number_in(reference)
        near = numbers[0] is not None and abs(numbers[0] - wanted) <= 0.01 * abs(wanted)
        rewards.append(2.0 if near else 0.0)
    return rewards


def trailing_penalty(completions, **columns):
    """A format reward that takes away 0.001 for each character behind the last tag, without end."""
    return [0.5 - 0.001 * len(text.split("</answer>")[-1]) for text in completions]


def tagged_numbers(text: str) -> list[float | None]:
    """The first number in each answer block."""
    return [number_in(inside) for inside in re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)]


def number_in(text: str) -> float | None:
    """The first number of a text."""
    match = re.search(r"-?\d[\d,]*\.?\d*", text)
    if match is None:
        return None
    try:
        return float(match[0].replace(",", ""))
    except ValueError:
        return None


NOTEBOOKS = {
    "exact text in the last tag": exact_match,
    "first number in the first tag": first_tag,
    "any tag": any_tag,
    "within 1 %": one_percent,
}


# ------------------------------------------------------------------ measured


def seconds(function, *, repeat: int = 5, **columns) -> float:
    """The best of several calls, in processor time, which other work disturbs less."""
    best = float("inf")
    for _ in range(repeat):
        started = time.process_time()
        function(**columns)
        best = min(best, time.process_time() - started)
    return best


def table(title: str, *columns: str) -> Table:
    """An empty table; the columns but the first are numbers."""
    empty = Table(title=title, title_justify="left")
    empty.add_column(columns[0])
    for name in columns[1:]:
        empty.add_column(name, justify="right")
    return empty


def batch_of_cases() -> dict[str, list[str]]:
    """The cases again and again, as the columns of a batch."""
    cases = [CASES[i % len(CASES)] for i in range(BATCH)]
    return {
        "completions": [case["completion"] for case in cases],
        "answer": [case["gold"] for case in cases],
    }


def misjudged(function) -> list[dict]:
    """The cases that a reward judges wrongly."""
    completions = [case["completion"] for case in CASES]
    values = function(completions=completions, answer=[case["gold"] for case in CASES])
    errors = []
    for case, value in zip(CASES, values, strict=True):
        if (value > 0) != case["right"]:
            errors.append(case)
    return errors


def show_errors(console: Console, list_cases: bool) -> None:
    """The errors of each correctness reward, and its cost beside ours."""
    rewards = {"ours: correctness": correctness_reward, **NOTEBOOKS}
    batch = batch_of_cases()
    errors = {name: misjudged(function) for name, function in rewards.items()}
    times = {name: seconds(function, **batch) for name, function in rewards.items()}
    right = sum(case["right"] for case in CASES)
    shown = table(
        f"{len(CASES)} cases, {right} right",
        "reward",
        "wrong called right",
        "right called wrong",
        "µs each",
        "time x",
    )
    for name in rewards:
        right_called_wrong = sum(case["right"] for case in errors[name])
        shown.add_row(
            name,
            str(len(errors[name]) - right_called_wrong),
            str(right_called_wrong),
            f"{1e6 * times[name] / BATCH:.1f}",
            f"{times[name] / times['ours: correctness']:.2f}",
        )
    console.print(shown)
    longest = "<answer>42</answer>" + " so" * 1700
    console.print(
        f"A right answer with 5,100 characters behind it: the unbounded penalty gives "
        f"{trailing_penalty([longest])[0]:.1f}; our incremental form is never below 0.\n"
    )
    if not list_cases:
        return
    for name, cases in errors.items():
        console.print(f"{name}:")
        for case in cases:
            called = "wrong" if case["right"] else "right"
            end = case["completion"][-60:]
            console.print(f"  called {called}: {end!r} (gold {case['gold']})", markup=False)


def show_cost(console: Console) -> None:
    """The time of each reward for a batch, for long completions, and for the slowest attack."""
    batch = batch_of_cases()
    sentence = "So 12 + 30 = 42, and then I look at the next of the boxes again.\n"
    longer = []
    for text in batch["completions"]:
        longer.append(text.replace("<reasoning>\n", "<reasoning>\n" + sentence * 32, 1))
    mean = sum(map(len, batch["completions"])) / BATCH
    longer_mean = sum(map(len, longer)) / BATCH
    hostile = attacks()
    title = f"{BATCH} completions of {mean:.0f} and of {longer_mean:.0f} characters; "
    title += f"the slowest of {len(hostile)} attacks"
    shown = table(title, "reward", "ms", "ms, long", "slowest ms", "attack")
    total = total_longer = 0.0
    for function in parse_rewards(TEXT_REWARDS)[0]:
        time_batch = seconds(function, **batch)
        time_longer = seconds(function, completions=longer, answer=batch["answer"])
        total += time_batch
        total_longer += time_longer
        times = {}
        for attack in hostile:
            name = f"{attack.family}: {attack.name}"
            times[name] = seconds(function, repeat=3, completions=[attack.text], answer=["42"])
        slowest = max(times, key=lambda name: times[name])
        shown.add_row(
            function.__name__,
            f"{1e3 * time_batch:.1f}",
            f"{1e3 * time_longer:.1f}",
            f"{1e3 * times[slowest]:.1f}",
            slowest,
        )
    shown.add_section()
    shown.add_row("all", f"{1e3 * total:.1f}", f"{1e3 * total_longer:.1f}", "", "")
    console.print(shown)


def main() -> None:
    parser = argparse.ArgumentParser(description="Usual correctness rewards beside ours.")
    parser.add_argument(
        "--wrong", action="store_true", help="list the cases that are judged wrongly"
    )
    args = parser.parse_args()
    console = Console(width=100, highlight=False)
    show_errors(console, list_cases=args.wrong)
    show_cost(console)


if __name__ == "__main__":
    main()
