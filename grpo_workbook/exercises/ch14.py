"""The exercises of notebook 14_capstone."""

from collections import Counter

from grpo_workbook.exercises import exercise, experiment
from grpo_workbook.rewards import call, text_of

# 14.1 whole groups are held out


def _held(groups, heldout, backwards=True, enough=lambda n, more, least: n >= least):
    """`enough` takes the rows held out so far, those of the next group, and `heldout`."""
    order, chosen = list(dict.fromkeys(groups)), []
    for group in reversed(order) if backwards else order:
        rows = [i for i, g in enumerate(groups) if g == group]
        if enough(len(chosen), len(rows), heldout):
            break
        chosen += rows
    return sorted(chosen)


def _neighbours(groups, heldout):
    start = max(0, len(groups) - heldout)
    while start > 0 and groups[start - 1] == groups[start]:
        start -= 1
    return list(range(start, len(groups)))


exercise("14.1", "split_by_group", [
    ((list("aabbbcc"), 2), [5, 6]),
    ((list("aabbbcc"), 3), [2, 3, 4, 5, 6]),
    ((list("abcabca"), 2), [2, 5]),
    ((list("abcabca"), 3), [1, 2, 4, 5]),
    ((list("abacad"), 2), [3, 5]),
    ((list("xyz"), 1), [2]),
], {
    "you held out single rows: a group that stands on both sides leaks, so take all of it":
        lambda groups, heldout: list(range(len(groups) - heldout, len(groups))),
    "you took neighbours only: a group's rows may stand apart, so compare every row's name":
        _neighbours,
    "you stopped before `heldout` rows were reached: it is the least, so the last group that "
    "is needed comes in whole":
        lambda groups, n: _held(groups, n, enough=lambda n, more, least: n + more > least),
    "you counted groups: `heldout` is a number of rows": lambda groups, heldout: sorted(
        i for i, g in enumerate(groups) if g in [*dict.fromkeys(groups)][-heldout:]),
    "you began with the first group: the groups go from the last one backwards":
        lambda groups, heldout: _held(groups, heldout, backwards=False),
    "you took one group too many: stop as soon as `heldout` rows are held out":
        lambda groups, heldout: _held(groups, heldout, enough=lambda n, _, least: n > least),
})  # fmt: skip

# 14.2 a reward of one's own, attacked with its own rows


def _attacked(reward, rows, honest):
    """{what must hold of the reward on these rows: whether it does}."""
    texts, n = [honest(row) for row in rows], len(rows)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    prompt = [[{"role": "user", "content": row["question"]}] for row in rows]

    def earned(completions):
        return [v or 0.0 for v in call(reward, completions, prompt=prompt, **columns)]

    def beaten(cheats):
        pairs = zip(earned(cheats), full, cheats, texts, strict=True)
        return all(value < best for value, best, cheat, text in pairs if cheat != text)

    full, others = earned(texts), texts[1:] + texts[:1]
    spread = "\n".join(dict.fromkeys(str(row["answer"]) for row in rows))
    commonest = Counter(texts).most_common(1)[0][1]
    return {
        "at least eight rows": n >= 8,
        "every honest text earns": all(value > 0 for value in full),
        "every value is between -1 and 1": all(-1 <= value <= 1 for value in full),
        "no text is right in more than half of the rows": 2 * commonest <= n,
        "the honest text of another row earns less": beaten(others),
        "all answers in a list earn less": beaten([spread] * n),
        "two honest texts in a row earn less":
            beaten([f"{a}\n{b}" for a, b in zip(texts, others, strict=True)]),
        "the same text five times earns less": beaten([f"{text}\n" * 5 for text in texts]),
        "the question earns less": beaten([row["question"] for row in rows]),
        "nothing earns less": beaten([""] * n),
    }  # fmt: skip


def _task(value, size=9, answer=lambda i: f"item {i}"):
    """A project whose reward is `value(text, answer)` for each completion."""

    def reward(completions, answer, **columns):
        pairs = zip(map(text_of, completions), answer, strict=True)
        return [value(text.strip(), gold) for text, gold in pairs]

    rows = [{"question": f"Which is number {i}?", "answer": answer(i)} for i in range(1, size + 1)]
    return lambda: (reward, rows, lambda row: row["answer"])


_exact = _task(lambda text, gold: float(text == gold))
exercise("14.2", "my_project", lambda: [((), dict.fromkeys(_attacked(*_exact()), True))], {
    "your reward finds the answer anywhere in the text: a list of all answers earns as much, "
    "so read one marked place and nothing else": _task(lambda text, gold: float(gold in text)),
    "your reward looks at the end of the text alone: two answers, one after the other, earn "
    "as much as one": _task(lambda text, gold: float(text.endswith(gold))),
    "your reward pays the form: the honest text of another row has the same form and another "
    "answer, so compare with the row's `answer`":
        _task(lambda text, gold: float(text.startswith("item") and len(text) < 8)),
    "your reward pays every text alike: print what an empty completion earns":
        _task(lambda text, gold: 1.0),
    "your reward pays nothing for an honest text: with chat prompts a completion is a list "
    'with one message, and its text is in [0]["content"]': _task(lambda text, gold: 0.0),
    "your reward is not unit-scaled: keep it between -1 and 1, and put its size in the weight":
        _task(lambda text, gold: 5.0 * (text == gold)),
    "one text is right in more than half of your rows: a policy that always says it needs no "
    "skill, so balance the rows":
        _task(lambda text, gold: float(text == gold), answer=lambda i: ["yes", "no"][i == 1]),
    "you have fewer than eight rows: take them from your file, as different as they come":
        _task(lambda text, gold: float(text == gold), size=5),
}, call=lambda fn: _attacked(*fn()))  # fmt: skip

# 14.3 and 14.4 compare two evaluations of the same problems


def _paired(up, same, down):
    def read(measured):
        from grpo_workbook.statistics import paired_p_value  # SciPy: only when it is needed

        before, after = measured["before"], measured["after"]
        p, more = paired_p_value(before, after), sum(after) - sum(before)
        said = f"{sum(before)} and {sum(after)} of {len(before)} are strictly right, p = {p:.2g}."
        return same if p >= 0.05 else up if more > 0 else down, said

    return read


def _lists(stayed, better, worse, never):
    before = [True] * stayed + [False] * better + [True] * worse + [False] * never
    return {"before": before, "after": [True] * (stayed + better) + [False] * (worse + never)}


experiment("14.3", "first_draft", _paired("rise", "stay", "fall"), {
    "rise": "The draft pays for the number wherever it stands and for two opening tags, so a clean "
    "answer block earns no more than the text that the model wrote before.",
    "stay": "A hedge and a text behind the answer cost nothing under the draft, and with more "
    "steps they spread: read the completions.",
    "fall": "The draft does not pay for the strict form, but strict accuracy was low already, so "
    "few problems can get worse.",
}, [(_lists(6, 5, 12, 97), "stay")])  # fmt: skip
experiment("14.4", "few_rows", _paired("higher", "no difference", "lower"), {
    "lower": "The form is the same in every problem, so a few of them teach it, and the form is "
    "most of the gain here.",
    "no difference": "The few problems were learned by heart, or lack what the others have: see "
    "what the wrong answers have in common.",
    "higher": "Fewer problems hold nothing that all of them do not: suspect chance, or the seed.",
}, [(_lists(93, 5, 9, 13), "no difference")])  # fmt: skip
