"""The exercises of notebook 06_code_rewards."""

import re
from functools import partial

from grpo_workbook.exercises import Raises, exercise

NOTEBOOK = "06_code_rewards"

# 06.1 the last block


def _ask(*blocks):
    return "\n".join(f"Here:\n```{language}\n{code}```" for language, code in blocks)


def _find(text, opening=r"```(?P<language>\w*)\n", place=-1):
    found = [m.groupdict() for m in re.finditer(opening + r"(?P<code>.*?)```", text, re.DOTALL)]
    codes = [m["code"] for m in found if m.get("language", "") in ("", "python")]
    return codes[place] if codes else None


exercise(
    "06.1",
    "last_block",
    NOTEBOOK,
    [
        ((_ask(("python", "x = 1\n")),), "x = 1\n"),
        ((_ask(("", "x = 1\n")) + "\nDone.",), "x = 1\n"),
        ((_ask(("python", "x = 1\n"), ("python", "x = 2\n")),), "x = 2\n"),
        ((_ask(("python", "x = 1\n"), ("bash", "ls\n")),), "x = 1\n"),
        ((_ask(("bash", "ls\n")) + "\nThen nothing.\n```",), None),
        (("x = 1",), None),
        (("```python\nx = 1\n",), None),
    ],
    {
        "you took the first block: who corrects himself means the last one": lambda text: _find(
            text, place=0
        ),
        "you took a block of another language: only ```python and a bare ``` open a "
        "program": lambda text: _find(text, r"```\w*\n"),
        "you took the words between two blocks: where ```bash does not open a block for you, its "
        "end does": lambda text: _find(text, r"```(?:python)?\n"),
        "you took a block that was never closed: it was cut off, and half a program is "
        "none": lambda text: _find(text + "```" * (text.count("```") % 2)),
    },
)

# 06.2 partial credit


def _paid(rule):
    def partial_reward(passed, total):
        if total < 1:
            raise ValueError("a test without an assertion")
        return rule(passed, total)

    return partial_reward


_CREDIT = {(5, 5): 1.0, (4, 5): 0.4, (1, 2): 0.25, (0, 5): 0.0, (1, 1): 1.0}
exercise(
    "06.2",
    "partial_reward",
    NOTEBOOK,
    [*_CREDIT.items(), ((0, 0), Raises(ValueError))],
    {
        "you paid the plain fraction: 4 of 5 may be a guess, so all that is not the whole earns "
        "at most half": _paid(lambda passed, total: passed / total),
        "you halved the whole as well: a program that passes everything earns 1.0": _paid(
            lambda passed, total: 0.5 * passed / total
        ),
        "you gave no partial credit: below the whole it is half of the fraction": _paid(
            lambda passed, total: float(passed == total)
        ),
        "you paid for a test without assertions: 0 of 0 is everything, so raise "
        "ValueError": lambda passed, total: 1.0 if passed == total else 0.5 * passed / total,
    },
)

# 06.3 the same, and not only equal


class _Yes:
    """Equal to everything, as an attack would have it."""

    def __eq__(self, other):
        return True

    __hash__ = None

    def __repr__(self):
        return f"{type(self).__name__[1:]}()"


class _YesInt(_Yes, int):
    pass


class _Liar(_Yes):
    __class__ = int


def _same(a, b, *, kind=lambda a, b: type(a) is type(b), deep=True):
    if not kind(a, b):
        return False
    if deep and type(b) in (list, tuple):
        return len(a) == len(b) and all(_same(x, y, kind=kind) for x, y in zip(a, b, strict=True))
    return a == b


_EQUAL = [(5, 5), ([1, (2, "x")], [1, (2, "x")])]
_OTHERS = [(5, 6), ([1, 2, 3], [1, 2]), ((1, 2), [1, 2]), (True, 1), ([1, [_Yes()]], [1, [2]])]
_OTHERS += [(liar, 5) for liar in (_Yes(), _YesInt(0), _Liar())]
exercise(
    "06.3",
    "same",
    NOTEBOOK,
    [(pair, True) for pair in _EQUAL] + [(pair, False) for pair in _OTHERS],
    {
        "you asked the program's object whether it is equal, and it says what it likes: look at "
        "its type first": lambda a, b: a == b,
        "you asked with isinstance: a subclass of int is one, with its own __eq__. Compare "
        "type(a) is type(b)": partial(_same, kind=lambda a, b: isinstance(a, type(b))),
        "you read __class__, which an object can lie about: type(a) cannot be fooled": partial(
            _same, kind=lambda a, b: a.__class__ is b.__class__
        ),
        "you looked at the outer type only: a list of always-equal objects still passes. Go in, "
        "item by item": partial(_same, deep=False),
    },
)

# 06.4 rewards of outcomes


def _pay(outcomes, max_failed, *, broken=None, count=("sandbox error", "timeout"), slack=0.0):
    failed = sum(o in count for o in outcomes)
    if failed > max_failed * len(outcomes) + slack:
        raise RuntimeError(f"{failed} of {len(outcomes)}")
    return [1.0 if o == "passed" else broken if o == "sandbox error" else 0.0 for o in outcomes]


exercise(
    "06.4",
    "outcome_rewards",
    NOTEBOOK,
    [
        ((["passed", "failed", "error", "passed"], 0.5), [1.0, 0.0, 0.0, 1.0]),
        ((["passed", "sandbox error", "timeout", "failed"], 0.5), [1.0, None, 0.0, 0.0]),
        ((["rejected", "out of memory", "passed"], 0.0), [0.0, 0.0, 1.0]),
        ((["sandbox error", "sandbox error", "passed"], 0.5), Raises(RuntimeError)),
        ((["timeout", "sandbox error", "timeout", "passed"], 0.5), Raises(RuntimeError)),
    ],
    {
        "you gave 0 where the sandbox failed: the program may have been right. None says that "
        "nobody knows": partial(_pay, broken=0.0),
        "you never raise: when the sandbox is broken, the run must stop and not train on "
        "nothing": partial(_pay, slack=99),
        "you raised at the limit: max_failed is the fraction that is still allowed": partial(
            _pay, slack=-1e-9
        ),
        "you did not count the timeouts: many at once say that the limit is too short or the "
        "machine too "
        "busy": lambda outcomes, max_failed: _pay(outcomes, max_failed, count=("sandbox error",)),
    },
)

# 06.5 how good is a test?

_CASES = [(([1, 2],), 3), (([5],), 5)]
_GUESSES = [max, min, len, lambda items: 3]


def _caught(cases, programs, *, judge=any, on_error=True):
    def differs(program, arguments, expected):
        try:
            return program(*arguments) != expected
        except Exception:
            return on_error

    return sum(judge(differs(p, *case) for case in cases) for p in programs) / len(programs)


exercise(
    "06.5",
    "fraction_caught",
    NOTEBOOK,
    [
        ((_CASES, _GUESSES), 1.0),
        (([(([1],), 1)], _GUESSES), 0.25),
        ((_CASES, [lambda items: items[2], lambda items: items[0] + items[-1]]), 1.0),
        ((_CASES, [lambda items: items[0] + items[1], sum]), 0.5),
        (([(([],), 0)], [sum, max]), 0.5),
    ],
    {
        "you wanted every case to fail: one case that fails is enough to catch a wrong "
        "program": partial(_caught, judge=all),
        "you let a program go that raised: an exception is not the expected value, so it is "
        "caught": partial(_caught, on_error=False),
        "you counted the programs: divide by their number for the "
        "fraction": lambda cases, programs: _caught(cases, programs) * len(programs),
        "you gave the fraction that slipped through: the fraction that is caught is "
        "wanted": lambda cases, programs: 1.0 - _caught(cases, programs),
    },
)
