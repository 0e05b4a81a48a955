"""Two reward functions: TRL passes the completions and every column of the data, as lists.

A completion is `[{"role": "assistant", "content": text}]`. Return one number for each, or None if
the reward does not apply. `**kwargs` takes the arguments that a function does not use. Do not catch
all errors and return 0: a hidden error looks like a model that fails.

`@reward` says what a function judges and which columns it needs.
"""

import json

from grpo_workbook import reward

SCHEMA = {"name": str, "city": str, "item": str, "count": int}
LONGEST = 20  # characters of a value: a copy of the whole sentence is none


@reward("correctness", columns=("answer",))
def right(completions, answer, **kwargs):
    """1 for exactly the JSON object of `answer`, else 0; the order of its keys is free."""
    given = [parsed(completion) for completion in completions]
    return [float(same(one, json.loads(a))) for one, a in zip(given, answer, strict=True)]


@reward("format")
def well_formed(completions, **kwargs):
    """1 for one JSON object with the right keys and kinds of values, 0.5 for another, else 0."""
    given = [parsed(completion) for completion in completions]
    return [0.5 * isinstance(one, dict) + 0.5 * fits(one) for one in given]


def fits(given) -> bool:
    """Whether it has every field of the schema with a value of its kind, and no other field."""
    if not isinstance(given, dict) or set(given) != set(SCHEMA):
        return False
    short = all(len(str(value)) <= LONGEST for value in given.values())
    return short and all(type(given[name]) is kind for name, kind in SCHEMA.items())


def parsed(completion):
    """The completion as JSON; None if there is anything else in it, or a key twice."""
    try:
        return json.loads(completion[0]["content"], object_pairs_hook=once)
    except (ValueError, RecursionError):
        return None


def once(pairs: list) -> dict:
    """A JSON object, whose keys differ: of two equal ones Python would take the last."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


def same(given, answer) -> bool:
    """Whether both are the same JSON: in Python 1 == True == 1.0, here they differ."""
    return json.dumps(given, sort_keys=True) == json.dumps(answer, sort_keys=True)
