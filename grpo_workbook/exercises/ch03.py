"""The exercises of notebook 03_reward_design."""

import re

from grpo_workbook.exercises import Raises, exercise

NOTEBOOK = "03_reward_design"


def _told(*said):
    """The mistakes, from a wrong function and its sentence in turn."""
    return list(zip(said[::2], said[1::2], strict=True))


def _chat(*texts):
    return [[{"role": "assistant", "content": text}] for text in texts]


def _each(same):
    """A reward: 1.0 where `same` says so of a completion and its answer."""

    def reward(completions, answer, **columns):
        return [float(same(c, a, answer)) for c, a in zip(completions, answer, strict=True)]

    return reward


_exact = _each(lambda c, a, _: c[0]["content"].strip() == a)


exercise(
    "03.1",
    "exact_reward",
    NOTEBOOK,
    [
        ((_chat("42", "41"), ["42", "42"]), [1.0, 0.0]),
        ((_chat(" 5\n", "6", "it is 6"), ["5", "6", "6"]), [1.0, 1.0, 0.0]),
        ((_chat("7", "8"), ["8", "8"]), [0.0, 1.0]),
    ],
    _told(
        _each(lambda c, a, _: str(c).strip() == a),
        'you compared the list of messages: the text is in [0]["content"]',
        _each(lambda c, a, _: a in c[0]["content"]),
        "you looked for the answer anywhere in the text: a list of all numbers earns, too",
        lambda completions, answer: _exact(completions, answer),
        "TRL passes more than you take, such as prompts: let **columns swallow the rest",
        lambda completions, answer, **_: sum(_exact(completions, answer)) / len(answer),
        "you gave one number for the batch: TRL wants a list, a float for each completion",
        _each(lambda c, a, answer: c[0]["content"].strip() == answer[0]),
        "you compared all with answer[0]: a column has one entry for each completion",
        _each(lambda c, a, _: c[0]["content"] == a),
        "you left the white space on: strip the text before you compare",
    ),
    call=lambda fn, c, a: fn(completions=c, answer=a, prompts=["?"] * len(a), trainer_state=None),
)


def _split(text):
    return text.split("<answer>")[-1].split("</answer>")[0].strip()


def _agreed(choose):
    """An answer reader: `choose` takes the contents of all pairs and the text."""
    pairs = re.compile("<answer>(.*?)</answer>", re.DOTALL)
    return lambda text: choose([inside.strip() for inside in pairs.findall(text)], text)


exercise(
    "03.2",
    "agreed_answer",
    NOTEBOOK,
    [
        (("<answer>42</answer>",), "42"),
        (("<reasoning>6*7</reasoning>\n<answer> 42 </answer>\n",), "42"),
        (("<answer>42</answer> so <answer>42</answer>",), "42"),
        (("<answer>41</answer><answer>42</answer>",), None),
        (("42",), None),
        (("<answer>42",), None),
        (("<answer>\n42\n</answer>",), "42"),
        (("</answer>42<answer>",), None),
    ],
    _told(
        _agreed(lambda found, _: found[0] if found else None),
        "you took the first of several different answers: that is a hedge, so give None",
        _agreed(lambda found, _: found[-1] if found else None),
        "you took the last of several different answers: that is a hedge, so give None",
        _agreed(lambda found, text: found[0] if len({*found}) == 1 and "\n4" not in text else None),
        "you missed an answer on a line of its own: the dot needs re.DOTALL for new lines",
        _agreed(lambda found, _: found[0] if len(found) == 1 else None),
        "you refused an answer that is said twice: two equal ones are one answer",
        _agreed(lambda found, text: _split(text) if len({*found}) < 2 else None),
        "you took text outside of a pair: split() gives all of it where a tag is missing",
    ),
)


def _penalty(of_one):
    return lambda lengths, most, cache: [of_one(n, most, cache) for n in lengths]


exercise(
    "03.3",
    "soft_overlong",
    NOTEBOOK,
    [
        (([0, 80, 90, 95, 100, 110, 4000], 100, 20), [0.0, 0.0, -0.5, -0.75, -1.0, -1.0, -1.0]),
        (([60, 100, 128], 128, 64), [0.0, -0.5625, -1.0]),
        (([], 100, 20), []),
    ],
    _told(
        _penalty(lambda n, most, cache: min(0.0, (most - cache - n) / cache)),
        "your penalty has no floor: far below -1, at 4000 tokens, it drowns other rewards",
        _penalty(lambda n, most, cache: max(0.0, min(1.0, (n - most + cache) / cache))),
        "your sign is turned round: this pays for length, and a penalty is 0 or less",
        _penalty(lambda n, most, cache: -1.0 if n > most else 0.0),
        "you made a step: between max_length - cache and max_length it shall fall evenly",
        _penalty(lambda n, most, cache: max(-1.0, min(0.0, (most - n) / cache))),
        "you begin at max_length: the fall begins at max_length - cache and ends at max_length",
    ),
)


def _totals(of_one):
    """`of_one` takes the (weight, value) pairs of a completion, and those of them that apply."""

    def totals(values, weights):
        rows = [[*zip(weights, row, strict=True)] for row in zip(*values, strict=True)]
        return [of_one(row, [(w, v) for w, v in row if v is not None]) for row in rows]

    return totals


def _sum(pairs):
    return sum(w * (v or 0.0) for w, v in pairs)


exercise(
    "03.4",
    "weighted_total",
    NOTEBOOK,
    [
        (([[1.0, 0.0], [1.0, 1.0]], [2.0, 0.5]), [2.5, 0.5]),
        (([[1.0, None, 0.0], [0.5, 1.0, None]], [2.0, 1.0]), [2.5, 1.0, 0.0]),
        (([[-1.0, -0.5]], [0.4]), [-0.4, -0.2]),
        (([[1.0], [1.0], [1.0]], [1.0, 0.0, 3.0]), [4.0]),
        (([[1.0, None], [0.5, None]], [2.0, 1.0]), [2.5, None]),
    ],
    _told(
        _totals(lambda row, given: _sum(row) / sum(w for w, _ in row)),
        "you divided by the sum of the weights: TRL adds, so weights set the scale as well",
        _totals(lambda _, given: _sum(given) / sum(w for w, _ in given) if given else None),
        "you divided by the weights that apply: TRL adds, so weights set the scale as well",
        _totals(lambda row, given: sum(v for _, v in given) if given else None),
        "you left the weights out: each function's value counts its weight",
        _totals(lambda row, given: _sum(given)),
        "you gave 0 where no function applies: 0 is compared with the group, None is not",
        _totals(lambda row, given: _sum(row) if len(given) == len(row) else None),
        "one None made the total None: leave that function out of the sum, keep the others",
        lambda values, weights: [_sum((w, v) for v in c) for w, c in zip(weights, values)],  # noqa: B905
        "you added along the batch: values has one list for each function, not completion",
    ),
)


def _rate(of_groups, checked=True):
    def rate(rewards, group_size):
        if checked and (not rewards or len(rewards) % group_size):
            raise ValueError
        groups = [rewards[i : i + group_size] for i in range(0, len(rewards), group_size)]
        return of_groups(groups, [rewards[i :: len(groups)] for i in range(len(groups))])

    return rate


def _equal(groups):
    return sum(len(set(group)) == 1 for group in groups)


exercise(
    "03.5",
    "zero_variance_rate",
    NOTEBOOK,
    [
        (([1.0, 1.0, 0.0, 1.0], 2), 0.5),
        (([3.0, 3.0, 3.0, 0.0, 0.0, 0.0, 3.0, 0.0, 3.0], 3), 2 / 3),
        (([0.0, 1.0, 0.0, 1.0], 2), 0.0),
        (([2.5] * 8, 4), 1.0),
        (([1.0, 1.0, 1.0], 2), Raises(ValueError)),
    ],
    _told(
        _rate(lambda groups, _: sum(not any(g) for g in groups) / len(groups)),
        "you counted the groups that earned nothing: all right, advantages are 0 as well",
        _rate(lambda groups, strided: _equal(strided) / len(groups)),
        "you took every n-th reward as a group: a prompt's completions stand side by side",
        _rate(lambda groups, _: float(_equal(groups))),
        "you counted the groups: divide by the number of groups for the rate",
        _rate(lambda groups, _: _equal(groups) / len(groups), checked=False),
        "you let a broken group through: raise ValueError unless all groups are whole",
    ),
)


def _fade(after_batch, late=False):
    """`after_batch` gives the rate after a batch from the rate before, the batch's, and memory."""

    def weights_of(rates, at_zero, at_one, memory):
        rate, weights = 0.0, []
        for of_batch in rates:
            after = after_batch(rate, of_batch, memory)
            weights.append(at_zero + (at_one - at_zero) * (after if late else rate))
            rate = after
        return weights

    return weights_of


exercise(
    "03.6",
    "adaptive_weights",
    NOTEBOOK,
    [
        (([1.0, 1.0, 1.0], 1.0, 0.0, 0.5), [1.0, 0.5, 0.25]),
        (([0.0, 0.5, 1.0, 0.0], 1.0, 0.2, 0.75), [1.0, 1.0, 0.9, 0.725]),
        (([0.5, 0.5], 0.0, 1.0, 0.9), [0.0, 0.05]),
        (([], 1.0, 0.0, 0.9), []),
    ],
    _told(
        _fade(lambda rate, new, memory: memory * rate + (1 - memory) * new, late=True),
        "you weighed a batch by its own success: its weight comes from those before it",
        _fade(lambda rate, new, memory: (1 - memory) * rate + memory * new),
        "you swapped memory and 1 - memory: memory is the part of the old rate that is kept",
        _fade(lambda rate, new, memory: new),
        "you forgot the memory: the rate is a running mean, not the last batch's alone",
    ),
)
