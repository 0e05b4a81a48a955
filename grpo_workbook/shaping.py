"""Rewards for how a completion is written: length, repetition, unwanted phrases, worked steps. And one to watch with.

They shape a policy that already gets answers right; alone, each can be earned without any answer. So keep their weights
small beside correctness. Each is made by a factory, unit-scaled, and reads at most WINDOW characters of a text.

Length is counted in tokens where the trainer hands over `completion_ids` (TRL does), else in words.
"""

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache

from grpo_workbook.answers import TAGS
from grpo_workbook.errors import WorkbookError, visible
from grpo_workbook.rewards import Completion, RewardFunction, text_of

WINDOW = 20_000  # characters

UNWANTED = (
    "as an ai",
    "as a language model",
    "i cannot",
    "i apologize",
    "sure!",
    "certainly!",
    "great question",
    "let me know if",
    "i hope this helps",
    "the answer could be",
)

_NUMBER = r"\d{1,12}+(?:\.\d{1,6}+)?+"  # possessive: nothing is read twice
_EQUATION = re.compile(  # begins with a digit, so that the search can skip to one; the look behind it comes after
    r"(\d(?<![\d.+*/=x×-]\d)\d{0,11}+(?:\.\d{1,6}+)?+"
    rf"(?:\s{{0,3}}+[-+*/x×]\s{{0,3}}+{_NUMBER}){{1,6}}+)\s{{0,3}}+=\s{{0,3}}+(-?{_NUMBER})(?!\d|\.\d)",
    re.ASCII,
)


def _lengths(completions: Sequence[Completion], columns: dict, limit: int) -> list[int]:
    """Tokens, or words up to limit + 1 where there are no token ids."""
    ids = columns.get("completion_ids")
    if ids is not None:
        return [len(i) for i in ids]
    return [min(len(text_of(c).split(None, limit + 1)), limit + 1) for c in completions]


def length(target: int) -> RewardFunction:
    """A reward: 1.0 at the target length, falling evenly to 0.0 at nothing and at twice the target."""
    if target < 1:
        raise WorkbookError(f"a target length of {target}: give at least 1 token")

    def length_reward(completions, **columns):
        """1.0 at the target length, falling evenly to 0.0 at nothing and at twice the target."""
        return [
            max(0.0, 1.0 - abs(n - target) / target)
            for n in _lengths(completions, columns, 2 * target)
        ]

    return length_reward


def overlong(max_length: int, cache: int | None = None) -> RewardFunction:
    """A penalty, -1 to 0: DAPO's soft overlong punishment (arXiv 2503.14476, equation 13).

    0 up to max_length - cache, falling evenly to -1 at max_length, -1 beyond. `cache` is a fifth of max_length unless
    given. Give max_length as max_completion_length or less: longer completions never come.
    """
    cache = max(1, max_length // 5) if cache is None else cache
    if not 0 < cache <= max_length:
        raise WorkbookError(
            f"a cache of {cache} in a length of {max_length}: give 1 to {max_length}"
        )

    def overlong_reward(completions, **columns):
        """0 up to the soft limit, falling evenly to -1 at the hard limit."""
        free = max_length - cache
        return [
            max(-1.0, min(0.0, (free - n) / cache))
            for n in _lengths(completions, columns, max_length)
        ]

    return overlong_reward


def repetition(n: int = 4) -> RewardFunction:
    """A penalty, -1 to 0: minus the share of n-grams of words that stood before in the text. Reads the text's end."""
    if n < 1:
        raise WorkbookError(f"n-grams of {n} words: give at least 1")

    def penalty(text: str) -> float:
        words = text[-WINDOW:].lower().split()
        total = len(words) - n + 1
        return (
            len(set(zip(*(words[i:] for i in range(n)), strict=False))) / total - 1.0
            if total > 0
            else 0.0
        )

    def repetition_reward(completions, **columns):
        """Minus the share of repeated n-grams of words: -1 to 0."""
        return [penalty(text_of(c)) for c in completions]

    return repetition_reward


def style(unwanted: Sequence[str] = UNWANTED, cost: float = 0.5) -> RewardFunction:
    """A penalty, -1 to 0: minus `cost` for each different unwanted phrase, at most 1. Case does not count."""
    phrases = [p.lower() for p in unwanted if p]
    if not phrases or not 0 < cost <= 1:
        raise WorkbookError(
            f"{len(phrases)} phrases at a cost of {cost}: give at least 1, and a cost of 0 to 1"
        )

    def penalty(text: str) -> float:
        text = text[:WINDOW].lower()
        return max(-1.0, -cost * sum(p in text for p in phrases))

    def style_reward(completions, **columns):
        """Minus the cost of each different unwanted phrase: -1 to 0."""
        return [penalty(text_of(c)) + 0.0 for c in completions]

    return style_reward


def reasoning_steps(target: int = 2) -> RewardFunction:
    """A reward: the share of `target` different true equations in the reasoning block, at most 1.0.

    An equation is arithmetic with + - * / on the left and a number on the right ("6*7=42"); it is worked out here,
    exactly. Connecting words ("first", "therefore") earn nothing, nor does a false equation, the same one again in
    other writing (2+3=5, 3 + 2 = 5.0), or one in which nothing happens (5+0=5, 1*1=1).
    """
    if target < 1:
        raise WorkbookError(f"a target of {target} steps: give at least 1")

    def share(text: str) -> float:
        _, opened, rest = text.partition(TAGS[0])
        inside, closed, _ = rest.partition(TAGS[1])
        if not (opened and closed):
            return 0.0
        true: set[tuple] = set()
        # each writing once: a text may repeat one line a hundred times
        for written in dict.fromkeys(
            match.group(1, 2) for match in _EQUATION.finditer(inside[:WINDOW])
        ):
            if key := _worked_out(*written):
                true.add(key)
                if len(true) == target:  # more earn no more
                    break
        return len(true) / target

    def reasoning_steps_reward(completions, **columns):
        """The share of the target number of different true equations in the reasoning block: 0 to 1."""
        return [share(text_of(c)) for c in completions]

    return reasoning_steps_reward


@lru_cache(maxsize=1024)  # the completions of a group repeat each other's steps
def _worked_out(expression: str, result: str) -> tuple:
    """What tells a true equation from others; empty for a false one, and where nothing is worked out."""
    key = _key(expression)
    return key if key and _value(expression) == Fraction(result) else ()


def _key(expression: str) -> tuple:
    """The same for the same sum in another order or writing; empty where nothing is worked out: only 0 and 1, or one
    number with +0, *1 and the like.
    """
    signs, terms = "+", []
    for part in re.findall(rf"{_NUMBER}|[-+*/x×]", expression):
        if part in "+-*/x×":
            signs = "*" if part in "x×" else part
            continue
        if signs in "+-":
            terms.append([signs])
        terms[-1].append(("/" if signs == "/" else "*", Fraction(part)))
    kept = []
    for sign, *factors in terms:
        if all(number for _, number in factors):  # a term with a factor 0 adds nothing
            kept.append((sign, *sorted(f for f in factors if f[1] != 1)))
    numbers = [number for _, *factors in kept for _, number in factors]
    return tuple(sorted(kept)) if len(numbers) > 1 or (numbers and len(kept) > 1) else ()


def _value(expression: str) -> Fraction | None:
    """Arithmetic with * and / before + and -, from left to right; None where it divides by zero."""
    parts = re.findall(rf"{_NUMBER}|[-+*/x×]", expression)
    terms = [Fraction(parts[0])]
    for sign, number in zip(parts[1::2], map(Fraction, parts[2::2]), strict=True):
        if sign in "+-":
            terms.append(number if sign == "+" else -number)
        elif sign == "/" and number == 0:
            return None
        else:
            terms[-1] = terms[-1] / number if sign == "/" else terms[-1] * number
    return sum(terms)


def debug(every: int = 10, say: Callable[[str], None] = print) -> RewardFunction:
    """No reward: 0.0 for all, and at the first and every further `every`-th call it prints the batch's first sample,
    control characters shown and not obeyed.

    Give it the weight 0, or any: it never changes a reward. (None would mean "does not apply" to TRL, and put a NaN
    into the log.)
    """
    if every < 1:
        raise WorkbookError(f"a sample every {every} calls: give at least 1")
    calls = 0

    def debug_reward(completions, prompts=None, answer=None, **columns):
        """0.0 for every completion; prints a sample now and then."""
        nonlocal calls
        if calls % every == 0 and len(completions):
            asked = prompts[0] if prompts else ""
            asked = (
                asked
                if isinstance(asked, str)
                else text_of([asked[-1] | {"role": "assistant"}])
                if asked
                else ""
            )
            right = answer[0] if answer else "not given"
            say(
                visible(
                    f"--- call {calls + 1}: {asked[:300]}\n{text_of(completions[0])[:1000]}\n--- right: {right}"
                )
            )
        calls += 1
        return [0.0] * len(completions)

    return debug_reward
