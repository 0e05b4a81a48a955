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
    found = [c.split("<answer>")[-1].split("</answer>")[0].strip() for c in completions]
    return [2.0 if f == a else 0.0 for f, a in zip(found, answer, strict=True)]


def first_tag(completions, answer, **columns):
    """The first answer block's first number, as a float."""
    return [
        2.0 if _float(_first(r"<answer>(.*?)</answer>", c)) == _float(a) else 0.0
        for c, a in _zip(completions, answer)
    ]


def any_tag(completions, answer, **columns):
    """Right if any answer block holds the number."""
    return [
        2.0
        if any(_float(t) == _float(a) for t in re.findall(r"<answer>(.*?)</answer>", c, re.DOTALL))
        else 0.0
        for c, a in _zip(completions, answer)
    ]


def one_percent(completions, answer, **columns):
    """Right within 1 %."""
    numbers = [
        (_float(_first(r"<answer>(.*?)</answer>", c)), _float(a))
        for c, a in _zip(completions, answer)
    ]
    return [2.0 if n is not None and abs(n - a) <= 0.01 * abs(a) else 0.0 for n, a in numbers]


def trailing_penalty(completions, **columns):
    """A format reward that takes away 0.001 for each character behind the last tag, without end."""
    return [0.5 - 0.001 * len(c.split("</answer>")[-1]) for c in completions]


def _zip(completions, answer):
    return zip(completions, answer, strict=True)


def _first(pattern, text):
    match = re.search(pattern, text, re.DOTALL)
    return match[1] if match else ""


def _float(text):
    match = re.search(r"-?\d[\d,]*\.?\d*", text)
    try:
        return float(match[0].replace(",", "")) if match else None
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
    made = Table(title=title, title_justify="left")
    for i, name in enumerate(columns):
        made.add_column(name, justify="left" if i == 0 else "right")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description="Usual correctness rewards beside ours.")
    parser.add_argument(
        "--wrong", action="store_true", help="list the cases that are judged wrongly"
    )
    args = parser.parse_args()
    console = Console(width=100, highlight=False)
    texts, golds = [c["completion"] for c in CASES], [c["gold"] for c in CASES]
    spread = [CASES[i % len(CASES)] for i in range(BATCH)]
    batch = {
        "completions": [c["completion"] for c in spread],
        "answer": [c["gold"] for c in spread],
    }

    right = sum(c["right"] for c in CASES)
    shown = table(
        f"{len(CASES)} cases, {right} right",
        "reward",
        "wrong called right",
        "right called wrong",
        "µs each",
        "time x",
    )
    errors, ours = {}, None
    for name, function in {"ours: correctness": correctness_reward, **NOTEBOOKS}.items():
        given = [value > 0 for value in function(completions=texts, answer=golds)]
        errors[name] = [c for c, g in zip(CASES, given, strict=True) if g != c["right"]]
        false_right = sum(not c["right"] for c in errors[name])
        took = seconds(function, **batch)
        ours = ours or took
        shown.add_row(
            name,
            str(false_right),
            str(len(errors[name]) - false_right),
            f"{1e6 * took / BATCH:.1f}",
            f"{took / ours:.2f}",
        )
    console.print(shown)
    longest = "<answer>42</answer>" + " so" * 1700
    console.print(
        f"A right answer with 5,100 characters behind it: the unbounded penalty gives "
        f"{trailing_penalty([longest])[0]:.1f}; our incremental form is never below 0.\n"
    )
    if args.wrong:
        for name, cases in errors.items():
            console.print(f"{name}:")
            for case in cases:
                called = "wrong" if case["right"] else "right"
                console.print(
                    f"  called {called}: {case['completion'][-60:]!r} (gold {case['gold']})",
                    markup=False,
                )

    functions = {f.__name__: f for f in parse_rewards(TEXT_REWARDS)[0]}
    collection = attacks()
    lengthened = (
        "<reasoning>\n" + "So 12 + 30 = 42, and then I look at the next of the boxes again.\n" * 32
    )
    long = {
        **batch,
        "completions": [c.replace("<reasoning>\n", lengthened, 1) for c in batch["completions"]],
    }
    mean = [sum(map(len, b["completions"])) / BATCH for b in (batch, long)]
    hostile = {(a.family, a.name): a.text for a in collection}
    title = f"{BATCH} completions of {mean[0]:.0f} and of {mean[1]:.0f} characters; "
    title += f"the slowest of {len(hostile)} attacks"
    shown = table(title, "reward", "ms", "ms, long", "slowest ms", "attack")
    total = total_long = 0.0
    for name, function in functions.items():
        took = seconds(function, **batch)
        took_long = seconds(function, **long)
        total, total_long = total + took, total_long + took_long
        slowest, which = max(
            (seconds(function, repeat=3, completions=[t], answer=["42"]), k)
            for k, t in hostile.items()
        )
        shown.add_row(
            name,
            f"{1e3 * took:.1f}",
            f"{1e3 * took_long:.1f}",
            f"{1e3 * slowest:.1f}",
            ": ".join(which),
        )
    shown.add_section()
    shown.add_row("all", f"{1e3 * total:.1f}", f"{1e3 * total_long:.1f}", "", "")
    console.print(shown)


if __name__ == "__main__":
    main()
