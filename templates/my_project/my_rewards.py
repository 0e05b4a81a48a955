"""Two reward functions: TRL hands over the completions and every column of the data, as lists.

A completion is `[{"role": "assistant", "content": text}]`. One number comes back for each, or None where the reward
does not apply. `**kwargs` takes what a function does not use. Do not catch everything and return 0: an error that is
hidden looks like a model that fails.
"""

import re


def right_number(completions, answer, **kwargs):
    """1 where the last number of the text is the answer, else 0."""
    values = []
    for completion, right in zip(completions, answer, strict=True):
        numbers = re.findall(r"-?\d+", completion[0]["content"])
        values.append(float(bool(numbers) and int(numbers[-1]) == int(right)))
    return values


def short_answer(completions, level, **kwargs):
    """From 0 to 1: few words. `level` is a column of data.jsonl; hard problems may be twice as long."""
    limits = (40 if hard == "hard" else 20 for hard in level)
    return [min(1.0, n / max(1, len(c[0]["content"].split()))) for c, n in zip(completions, limits, strict=True)]
