"""The exercises of notebook 03_reward_design."""

import re

from grpo_workbook.exercises import exercise, experiment
from grpo_workbook.rewards import call, text_of


def _told(*said):
    """The mistakes, from a wrong function and its sentence in turn."""
    return list(zip(said[::2], said[1::2], strict=True))


def _split(text):
    return text.split("<answer>")[-1].split("</answer>")[0].strip()


def _agreed(choose):
    """An answer reader: `choose` takes the contents of all pairs and the text."""
    pairs = re.compile("<answer>(.*?)</answer>", re.DOTALL)
    return lambda text: choose([inside.strip() for inside in pairs.findall(text)], text)


exercise("03.1", "agreed_answer", [
    (("<answer>42</answer>",), "42"),
    (("<reasoning>6*7</reasoning>\n<answer> 42 </answer>\n",), "42"),
    (("<answer>42</answer> so <answer>42</answer>",), "42"),
    (("<answer>41</answer><answer>42</answer>",), None),
    (("42",), None),
    (("<answer>42",), None),
    (("<answer>\n42\n</answer>",), "42"),
    (("</answer>42<answer>",), None),
], {
    "you took the first of several different answers: that is a hedge, so give None":
        _agreed(lambda found, _: found[0] if found else None),
    "you took the last of several different answers: that is a hedge, so give None":
        _agreed(lambda found, _: found[-1] if found else None),
    "you missed an answer on a line of its own: the dot needs re.DOTALL for new lines":
        _agreed(lambda found, text: found[0] if len({*found}) == 1 and "\n4" not in text else None),
    "you refused an answer that appears twice: two equal answers count as one":
        _agreed(lambda found, _: found[0] if len(found) == 1 else None),
    "you took text outside of a pair: split() gives all of it where a tag is missing":
        _agreed(lambda found, text: _split(text) if len({*found}) < 2 else None),
})  # fmt: skip


def _totals(of_one):
    """`of_one` takes the (weight, value) pairs of a completion, and those of them that apply."""

    def totals(values, weights):
        rows = [[*zip(weights, row, strict=True)] for row in zip(*values, strict=True)]
        return [of_one(row, [(w, v) for w, v in row if v is not None]) for row in rows]

    return totals


def _sum(pairs):
    return sum(w * (v or 0.0) for w, v in pairs)


exercise("03.2", "weighted_total", [
    (([[1.0, 0.0], [1.0, 1.0]], [2.0, 0.5]), [2.5, 0.5]),
    (([[1.0, None, 0.0], [0.5, 1.0, None]], [2.0, 1.0]), [2.5, 1.0, 0.0]),
    (([[-1.0, -0.5]], [0.4]), [-0.4, -0.2]),
    (([[1.0], [1.0], [1.0]], [1.0, 0.0, 3.0]), [4.0]),
    (([[1.0, None], [0.5, None]], [2.0, 1.0]), [2.5, None]),
], _told(
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
))  # fmt: skip


def _chat(*texts):
    return [[{"role": "assistant", "content": text}] for text in texts]


def _each(same):
    """A reward: 1.0 where `same` says so of a text, its last line, and its answer."""

    def reward(completions, answer, **columns):
        texts = [text_of(c).strip() for c in completions]
        return [float(same(t, t.split("\n")[-1], a)) for t, a in zip(texts, answer, strict=True)]

    return reward


_right = _each(lambda text, last, a: last == f"#### {a}" and text.count("####") == 1)


exercise("03.3", "last_line_reward", [
    ((_chat("6*7=42\n#### 42", "#### 41", "#### 42\n"), ["42"] * 3), [1.0, 0.0, 1.0]),
    ((_chat("#### 7", "42", "#### 8"), ["7", "42", "9"]), [1.0, 0.0, 0.0]),
    ((_chat("#### 142", "#### 41 or 42", "so #### 42"), ["42"] * 3), [0.0, 0.0, 0.0]),
    ((_chat("#### 42\nIt is 42.", "#### 41\n#### 42", ""), ["42"] * 3), [0.0, 0.0, 0.0]),
], _told(
    lambda completions, answer, **_: [0.0] * len(answer),
    'you compared the list of messages: the text is in [0]["content"]',
    _each(lambda text, last, a: a in text),
    "you looked for the answer anywhere in the text: a list of all numbers earns, too",
    lambda completions, answer: _right(completions, answer),
    "TRL passes more than you take, such as prompts: let **columns accept the rest",
    lambda completions, answer, **_: sum(_right(completions, answer)) / len(answer),
    "you gave one number for the batch: TRL wants a list, a float for each completion",
    _each(lambda text, last, a: text.endswith(a)),
    "you compared the end of the text: 142 ends in 42, so compare the whole last line",
    _each(lambda text, last, a: last == f"#### {a}"),
    "you rewarded a hedge, #### 41 above #### 42: the mark may occur only once in the text",
    _each(lambda text, last, a: f"#### {a}" in text.split("\n")),
    "you rewarded the line at any place: the program downstream reads only the last line",
), call=lambda fn, c, a: (
    fn(completions=c, answer=a, prompts=["?"] * len(a), trainer_state=None)
))  # fmt: skip


def _moved(of, said):
    """Read two rates, each (rate, of how many); "stays" is within two standard errors."""

    def read(run):
        (p, n), (q, m) = of(run)
        if not (0 <= p <= 1 and 0 <= q <= 1 and n >= 1 and m >= 1):
            raise ValueError(f"{said} should be two rates from 0 to 1, but are {p} and {q}")
        bound = 2 * (p * (1 - p) / n + q * (1 - q) / m) ** 0.5
        word = "rises" if q - p > bound else "falls" if p - q > bound else "stays"
        return word, f"{said} went from {p:.0%} to {q:.0%} (up to {bound:.0%} can be chance)."

    return read


def _of_formed(run):  # three steps of 64 completions
    pairs = zip(run["has_form"], run["is_right"], strict=True)
    return [(right / max(form, 1e-9), 192 * form) for form, right in pairs]


experiment("03.4", "form_alone",
    _moved(_of_formed, "The fraction that is right of those in the form"), {
    "rises": "Nothing pays for a right number, only for the form around it.",
    "stays": "The sum was never paid for, so nothing keeps the work that made it right.",
    "falls": "What a reward ignores can drift either way: read what it did pay for.",
}, [({"has_form": [0.0625, 0.4479], "is_right": [0.0417, 0.0781]}, "falls")])  # fmt: skip
experiment("03.5", "no_scaling",
    _moved(lambda run: [(rate, 192) for rate in run["says_answer_is"]], "The rate of the phrase"), {
    "rises": "A larger reward in the batch holds a small one back, if its values differ there.",
    "stays": "The gradient is small, but AdamW divides it by its own recent size.",
    "falls": "The phrase is paid, if only with 0.1, and nothing is paid for leaving it out.",
}, [({"says_answer_is": [0.2865, 0.8646]}, "rises")])  # fmt: skip


def _examined(reward, row, honest, cheats):
    """The checks of a reward for the learner's own task, by name."""
    texts = [honest, *cheats, "", "x 1 \n" * 20_000]
    columns = {name: [value] * len(texts) for name, value in row.items()}
    values = call(reward, texts, prompt=[_chat("?")[0]] * len(texts), **columns)
    given = [v for v in values if v is not None]
    return {
        "five different cheats": len({*cheats} - {honest}) >= 5,
        "the honest completion earns": (values[0] or 0.0) > 0,
        "every value is between -1 and 1": all(-1 <= v <= 1 for v in given),
        "every other completion earns less": all(v < given[0] for v in given[1:]),
    }


def _task(value, cheats=("1", "2", "3", "4", "5")):
    """A task where "42" is wanted, with a reward of `value(text)` for each completion."""
    return lambda: (lambda completions, **_: value(completions), {}, "42", list(cheats))


exercise("03.6", "my_task", lambda: [
    ((), dict.fromkeys(_examined(*_task(lambda c: [1.0] + [0.0] * (len(c) - 1))()), True))
], {
    "a cheat earns as much as the honest completion: print what each of them earns":
        _task(lambda c: [1.0] * len(c)),
    "your reward is not unit-scaled: keep it between -1 and 1, and put its size in the weight":
        _task(lambda c: [float(len(text_of(x)) == 2) * 10 for x in c]),
    "these are fewer than five different cheats: think of hedges, copies, length, empty parts":
        _task(lambda c: [float(text_of(x) == "42") for x in c], cheats=("1", "2")),
    "your honest completion earns nothing: a completion is a list with a chat message":
        _task(lambda c: [0.0] * len(c)),
    "your reward broke the contract: it gives a list, one finite float or None per completion":
        _task(lambda c: 1.0),
}, call=lambda fn: _examined(*fn()))  # fmt: skip
