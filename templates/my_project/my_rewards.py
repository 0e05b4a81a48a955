"""Two reward functions: TRL hands over the completions and every column of the data, as lists.

A completion is `[{"role": "assistant", "content": text}]`. One number comes back for each, or None
where the reward does not apply. `**kwargs` takes what a function does not use. Do not catch
everything and return 0: an error that is hidden looks like a model that fails.

`@reward` is no must: it says what a function judges, so that `diagnose` need not guess.
"""

import re

from grpo_workbook import reward


@reward("correctness", columns=("answer",), answers="number")
def right_number(completions, answer, **kwargs):
    """1 where the last number of the text is the answer, else 0."""
    values = []
    for completion, right in zip(completions, answer, strict=True):
        numbers = re.findall(r"-?\d+", completion[0]["content"])
        values.append(float(bool(numbers) and int(numbers[-1]) == int(right)))
    return values


@reward("length", columns=("level",))
def short_answer(completions, level, **kwargs):
    """From 0 to 1: few words. `level` is a column of data.jsonl; hard ones may be twice as long."""
    limits = [40 if hard == "hard" else 20 for hard in level]
    lengths = [len(completion[0]["content"].split()) for completion in completions]
    return [min(1.0, most / max(1, n)) for n, most in zip(lengths, limits, strict=True)]
