"""Two reward functions: TRL passes the completions and every column of the data, as lists.

A completion is `[{"role": "assistant", "content": text}]`. Return one number for each, or None if
the reward does not apply. `**kwargs` takes the arguments that a function does not use. Do not catch
all errors and return 0: a hidden error looks like a model that fails.

`@reward` is optional: it says what a function judges, so that `diagnose` need not guess.
"""

import re

from grpo_workbook import reward


@reward("correctness", columns=("answer",), answers="number")
def right_number(completions, answer, **kwargs):
    """1 if the last number of the text is the answer, else 0."""
    values = []
    for completion, right in zip(completions, answer, strict=True):
        numbers = re.findall(r"-?\d+", completion[0]["content"])
        values.append(float(bool(numbers) and int(numbers[-1]) == int(right)))
    return values


@reward("length", columns=("level",))
def short_answer(completions, level, **kwargs):
    """0 to 1 for few words; hard problems (`level` in data.jsonl) may take twice as many."""
    limits = [40 if hard == "hard" else 20 for hard in level]
    lengths = [len(completion[0]["content"].split()) for completion in completions]
    return [min(1.0, most / max(1, n)) for n, most in zip(lengths, limits, strict=True)]
