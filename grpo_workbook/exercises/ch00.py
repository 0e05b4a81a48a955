"""The exercises of notebook 00_start_here."""

from itertools import product

from grpo_workbook.exercises import exercise, experiment


def _teaches(rewards):
    return max(rewards) > min(rewards)


exercise("00.1", "teaches", [
    (([1.0, 1.0, 0.0, 0.0],), True), (([0.0, 0.0, 0.0, 0.0],), False),
    (([3.0, 3.0, 3.0],), False), (([-1.0, -1.0, 1.0, 1.0],), True), (([0.25, 0.5],), True),
    (([-1.0, -0.5],), True), (([-0.5, -0.5],), False),
], {
    "it is the other way round: equal rewards are what teaches nothing":
        lambda rewards: not _teaches(rewards),
    "you asked whether any answer earned something: a group that is all right teaches "
    "nothing either": lambda rewards: any(r > 0 for r in rewards),
    "you looked at the sum: advantages are differences from the mean, and the sum says nothing "
    "about those": lambda rewards: sum(rewards) != 0,
    "you asked for all rewards to differ: one that differs from the rest is enough":
        lambda rewards: len(set(rewards)) == len(rewards),
})  # fmt: skip


def _form_alone(measured):
    before, after = measured["strict"]
    same = (2 / measured["n"]) ** 0.5  # at most two standard errors of a difference of two rates
    rose = after - before
    said = f"Strictly right: {before:.0%} before, {after:.0%} after; {measured['lenient']:.0%} "
    said += f"of the numbers are right in any form. A change of less than {same:.0%} can be chance."
    return "rises" if rose > same else "falls" if rose < -same else "stays", said


experiment("00.2", "form_alone", _form_alone, {
    "rises": "A reward helps only with what it looks at, and only if some answers earn it.",
    "stays": "The number was right in most answers before; what failed was the form.",
    "falls": "No answer is punished for its number: the arithmetic is left as it was.",
}, [({"strict": (0.2125, 0.75), "lenient": 0.75, "n": 160}, "rises")])  # fmt: skip

_FACTS = {
    "three different answers of each kind": lambda reward, good, bad: (
        len({*good}) >= 3 and len({*bad}) >= 3
    ),
    "rewards from 0 to 1": lambda reward, good, bad: all(
        0 <= reward(text) <= 1 for text in (*good, *bad)
    ),
    "the same reward for the same text": lambda reward, good, bad: all(
        reward(text) == reward(text) for text in (*good, *bad) for _ in range(5)
    ),
    "each good answer earns more than each bad one": lambda reward, good, bad: all(
        reward(a) > reward(b) for a, b in product(good, bad)
    ),
    "a good answer earns more than an empty one": lambda reward, good, bad: all(
        reward(text) > reward("") for text in good
    ),
}
_ABC, _ABX = ("aa", "ab", "ac"), ("", "ax", "x")
exercise("00.3", "my_task", [((fact,), True) for fact in _FACTS], {
    "your reward makes no difference: a good, a bad and an empty answer earn the same":
        lambda: (lambda text: 1.0, _ABC, _ABX),
    "a bad answer earns as much as a good one: GRPO would learn to write it, so make the "
    "reward stricter": lambda: (lambda text: float("a" in text), _ABC, _ABX),
    "there are too few answers: give three different good ones and three different bad ones":
        lambda: (lambda text: float("a" in text), _ABC, ("", "x")),
    "a reward lies outside of 0 to 1: scale it, so that weights say what counts how much":
        lambda: (lambda text: 5.0 * ("a" in text), _ABC, ("", "x", "y")),
}, call=lambda fn, fact: _FACTS[fact](*fn()))  # fmt: skip
