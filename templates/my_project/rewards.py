"""Two reward functions in TRL's contract.

TRL calls a reward with the completions and every column of the data, as lists. A completion is
`[{"role": "assistant", "content": text}]`. A reward returns one number for each completion, or None
where it does not apply. `**kwargs` takes the columns that a function does not use. `@reward` says
what a function judges and which columns it needs.

Do not catch all errors and return 0: a hidden error looks like a model that fails.
"""

import json

from grpo_workbook import reward

LABELS = ("billing", "delivery", "defect", "account")


@reward("correctness", columns=("answer",))
def right(completions, answer, **kwargs):
    """1 for exactly the JSON object of `answer`, else 0; the order of its keys is free."""
    rewards = []
    for completion, reference in zip(completions, answer, strict=True):
        same = as_text(parse(completion)) == as_text(json.loads(reference))
        rewards.append(1.0 if same else 0.0)
    return rewards


@reward("format")
def well_formed(completions, **kwargs):
    """1 for one JSON object with a label and true or false, 0.5 for another object, else 0."""
    rewards = []
    for completion in completions:
        value = parse(completion)
        if not isinstance(value, dict):
            rewards.append(0.0)
        elif not fits_labels(value):
            rewards.append(0.5)
        else:
            rewards.append(1.0)
    return rewards


def fits_labels(value: dict) -> bool:
    """Whether the object has a known label, true or false, and nothing else."""
    if set(value) != {"label", "urgent"}:
        return False
    return value["label"] in LABELS and isinstance(value["urgent"], bool)


def parse(completion):
    """The completion as JSON; None if there is anything else in it, or a key twice."""
    try:
        return json.loads(completion[0]["content"], object_pairs_hook=without_repeats)
    except (ValueError, RecursionError):
        return None


def without_repeats(pairs: list) -> dict:
    """A JSON object as a dict; ValueError for a key that comes twice (Python takes the last)."""
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key twice")
    return value


def as_text(value) -> str:
    """A JSON value as text, to compare: in Python 1 == True == 1.0, as JSON they differ."""
    return json.dumps(value, sort_keys=True)
