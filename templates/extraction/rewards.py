"""Two reward functions: TRL passes the completions and every column of the data, as lists.

A completion is `[{"role": "assistant", "content": text}]`. Return one number for each, or None if
the reward does not apply. `**kwargs` takes the arguments that a function does not use. Do not catch
all errors and return 0: a hidden error looks like a model that fails.

`@reward` says what a function judges and which columns it needs.
"""

import json

from grpo_workbook import reward

# each field, and the kinds of value that it takes; null stands for what the text does not say
SCHEMA = {"name": (str,), "city": (str,), "item": (str,), "count": (int,), "day": (str, type(None))}
LONGEST = 20  # characters of a value: a copy of the whole text is none


@reward("correctness", columns=("answer",))
def right(completions, answer, **kwargs):
    """1 for exactly the JSON object of `answer`, else 0; the order of its keys is free."""
    given = [parsed(completion) for completion in completions]
    return [float(same(one, json.loads(a))) for one, a in zip(given, answer, strict=True)]


@reward("format")
def well_formed(completions, **kwargs):
    """1 for one JSON object that fits the schema, 0.5 for another, else 0."""
    given = [parsed(completion) for completion in completions]
    return [0.5 * isinstance(one, dict) + 0.5 * fits(one) for one in given]


def fits(given) -> bool:
    """Whether it has every field of the schema with a short value of its kind, and no other."""
    if not isinstance(given, dict) or set(given) != set(SCHEMA):
        return False
    short = all(len(str(value)) <= LONGEST for value in given.values())
    # type() and not isinstance(): in Python true is a number
    return short and all(type(given[name]) in kinds for name, kinds in SCHEMA.items())


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
