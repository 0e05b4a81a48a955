"""The exercises of notebook 03_reward_design."""

from grpo_workbook.exercises import Raises, exercise

NOTEBOOK = "03_reward_design"


def _chat(*texts):
    return [[{"role": "assistant", "content": text}] for text in texts]


def _as_trl_calls(fn, completions, answer):
    """With keywords, and with what else TRL hands over."""
    return fn(
        completions=completions, answer=answer, prompts=["?"] * len(answer), trainer_state=None
    )


def _one_number(completions, answer, **columns):
    return float(
        sum(c[0]["content"].strip() == a for c, a in zip(completions, answer, strict=True))
        / len(answer)
    )


def _anywhere(completions, answer, **columns):
    return [1.0 if a in c[0]["content"] else 0.0 for c, a in zip(completions, answer, strict=True)]


def _takes_no_more_columns(completions, answer):
    return [
        1.0 if c[0]["content"].strip() == a else 0.0
        for c, a in zip(completions, answer, strict=True)
    ]


def _first_answer_for_all(completions, answer, **columns):
    return [1.0 if c[0]["content"].strip() == answer[0] else 0.0 for c in completions]


exercise(
    "03.1",
    "exact_reward",
    NOTEBOOK,
    [
        ((_chat("42", "41"), ["42", "42"]), [1.0, 0.0]),
        ((_chat(" 5\n", "6", "it is 6"), ["5", "6", "6"]), [1.0, 1.0, 0.0]),
        ((_chat("7", "8"), ["8", "8"]), [0.0, 1.0]),
    ],
    [
        (
            lambda completions, answer, **columns: [
                1.0 if str(c).strip() == a else 0.0
                for c, a in zip(completions, answer, strict=True)
            ],
            "you compared the whole completion: with chat prompts it is a list of messages, and the text is in "
            '[0]["content"]',
        ),
        (
            _anywhere,
            "you looked for the answer anywhere in the text: then `it is 6` earns, and so does a list of numbers",
        ),
        (
            _takes_no_more_columns,
            "TRL passes more than you take, such as prompts: let **columns swallow the rest",
        ),
        (
            _one_number,
            "you gave one number for the batch: TRL wants a list with one float for each completion",
        ),
        (
            _first_answer_for_all,
            "you compared all with answer[0]: a column has one entry for each completion",
        ),
        (
            lambda completions, answer, **columns: [
                1.0 if c[0]["content"] == a else 0.0
                for c, a in zip(completions, answer, strict=True)
            ],
            "you left the white space on: strip the text before you compare",
        ),
    ],
    call=_as_trl_calls,
)


def _pairs(text):
    return [
        p.rpartition("<answer>")[2].strip() for p in text.split("</answer>")[:-1] if "<answer>" in p
    ]


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
    [
        (
            lambda text: _pairs(text)[0] if _pairs(text) else None,
            "you took the first of several different answers: who hedges has not answered, so give None",
        ),
        (
            lambda text: _pairs(text)[-1] if _pairs(text) else None,
            "you took the last of several different answers: who hedges has not answered, so give None",
        ),
        (
            lambda text: (
                _pairs(text)[0] if len(set(_pairs(text))) == 1 and "\n4" not in text else None
            ),
            "you missed an answer that stands on a line of its own: the dot needs re.DOTALL to match new lines",
        ),
        (
            lambda text: _pairs(text)[0] if len(_pairs(text)) == 1 else None,
            "you refused an answer that is said twice: two equal ones are one answer",
        ),
        (
            lambda text: (
                text.split("<answer>")[-1].split("</answer>")[0].strip()
                if len(set(_pairs(text))) < 2
                else None
            ),
            "you took text that no complete pair of tags encloses: split() gives the whole text where a tag is missing",
        ),
    ],
)

_LENGTHS = [0, 80, 90, 95, 100, 110, 4000]

exercise(
    "03.3",
    "soft_overlong",
    NOTEBOOK,
    [
        ((_LENGTHS, 100, 20), [0.0, 0.0, -0.5, -0.75, -1.0, -1.0, -1.0]),
        (([60, 100, 128], 128, 64), [0.0, -0.5625, -1.0]),
        (([], 100, 20), []),
    ],
    [
        (
            lambda lengths, max_length, cache: [
                min(0.0, (max_length - cache - n) / cache) for n in lengths
            ],
            "your penalty has no floor: at 4000 tokens it is far below -1 and drowns every other reward",
        ),
        (
            lambda lengths, max_length, cache: [
                max(0.0, min(1.0, (n - max_length + cache) / cache)) for n in lengths
            ],
            "your sign is turned round: this pays for length, and a penalty is 0 or less",
        ),
        (
            lambda lengths, max_length, cache: [-1.0 if n > max_length else 0.0 for n in lengths],
            "you made a step: between max_length - cache and max_length it shall fall evenly",
        ),
        (
            lambda lengths, max_length, cache: [
                max(-1.0, min(0.0, (max_length - n) / cache)) for n in lengths
            ],
            "you begin at max_length: the fall begins at max_length - cache and ends at max_length",
        ),
    ],
)


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
    [
        (
            lambda values, weights: [
                sum(w * (v or 0.0) for w, v in zip(weights, row, strict=True)) / sum(weights)
                for row in zip(*values, strict=True)
            ],
            "you divided by the sum of the weights: TRL adds, so weights set the scale as well",
        ),
        (
            lambda values, weights: [
                None
                if not (
                    given := [(w, v) for w, v in zip(weights, row, strict=True) if v is not None]
                )
                else sum(w * v for w, v in given) / (sum(w for w, _ in given) or 1)
                for row in zip(*values, strict=True)
            ],
            "you divided by the weights that apply: TRL adds, so weights set the scale as well",
        ),
        (
            lambda values, weights: [
                None if not (given := [v for v in row if v is not None]) else sum(given)
                for row in zip(*values, strict=True)
            ],
            "you left the weights out: each function's value counts its weight",
        ),
        (
            lambda values, weights: [
                sum(w * v for w, v in zip(weights, row, strict=True) if v is not None)
                for row in zip(*values, strict=True)
            ],
            "you gave 0 where no function applies: 0 is compared with the group, None is left out of it",
        ),
        (
            lambda values, weights: [
                None if None in row else sum(w * v for w, v in zip(weights, row, strict=True))
                for row in zip(*values, strict=True)
            ],
            "one None made the whole total None: leave that function out of the sum, and keep the others",
        ),
        (
            lambda values, weights: [
                sum(w * (v or 0.0) for v in column)
                for w, column in zip(weights, values, strict=True)
            ],
            "you added along the batch: values has one list for each function, and a total belongs to a completion",
        ),
    ],
)


def _no_whole_groups(rewards, group_size):
    groups = [rewards[i : i + group_size] for i in range(0, len(rewards), group_size)]
    return sum(len(set(g)) == 1 for g in groups) / len(groups)


def _checked(share):
    def wrong(rewards, group_size):
        if not rewards or len(rewards) % group_size:
            raise ValueError
        groups = [rewards[i : i + group_size] for i in range(0, len(rewards), group_size)]
        return share(rewards, groups)

    return wrong


exercise(
    "03.5",
    "silent_share",
    NOTEBOOK,
    [
        (([1.0, 1.0, 0.0, 1.0], 2), 0.5),
        (([3.0, 3.0, 3.0, 0.0, 0.0, 0.0, 3.0, 0.0, 3.0], 3), 2 / 3),
        (([0.0, 1.0, 0.0, 1.0], 2), 0.0),
        (([2.5] * 8, 4), 1.0),
        (([1.0, 1.0, 1.0], 2), Raises(ValueError)),
    ],
    [
        (
            _checked(lambda rewards, groups: sum(not any(g) for g in groups) / len(groups)),
            "you counted the groups that earned nothing: a group that is all right is as silent, for its advantages "
            "are 0 too",
        ),
        (
            _checked(
                lambda rewards, groups: (
                    sum(len(set(rewards[i :: len(groups)])) == 1 for i in range(len(groups)))
                    / len(groups)
                )
            ),
            "you took every n-th reward as a group: TRL puts the completions of one prompt next to each other",
        ),
        (
            _checked(lambda rewards, groups: float(sum(len(set(g)) == 1 for g in groups))),
            "you counted the silent groups: divide by the number of groups for the share",
        ),
        (
            _no_whole_groups,
            "you let a broken group through: raise ValueError when the groups do not come out whole",
        ),
    ],
)


def _fade(shares, at_zero, at_one, memory, *, late=False, swapped=False, raw=False):
    rate, weights = 0.0, []
    keep = 1 - memory if swapped else memory
    for share in shares:
        after = share if raw else keep * rate + (1 - keep) * share
        weights.append(at_zero + (at_one - at_zero) * (after if late else rate))
        rate = after
    return weights


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
    [
        (
            lambda *a: _fade(*a, late=True),
            "you weighed a batch by its own success: the weight of a batch comes from the batches before it",
        ),
        (
            lambda *a: _fade(*a, swapped=True),
            "you swapped memory and 1 - memory: memory is the part of the old rate that is kept",
        ),
        (
            lambda *a: _fade(*a, raw=True),
            "you forgot the memory: the rate is a running mean, not the share of the last batch alone",
        ),
    ],
)
