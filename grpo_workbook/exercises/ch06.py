"""The exercises of notebook 06_code_rewards."""

import re

from grpo_workbook.exercises import Raises, exercise

NOTEBOOK = "06_code_rewards"


def _blocks(text):
    return [
        code
        for language, code in re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL)
        if language in ("", "python")
    ]


def _ask(*blocks):
    return "\n".join(f"Here:\n```{language}\n{code}```" for language, code in blocks)


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
    [
        (
            lambda text: (_blocks(text) or [None])[0],
            "you took the first block: who corrects himself means the last one",
        ),
        (
            lambda text: (re.findall(r"```\w*\n(.*?)```", text, re.DOTALL) or [None])[-1],
            "you took a block of another language: only ```python and a bare ``` open a program",
        ),
        (
            lambda text: (re.findall(r"```(?:python)?\n(.*?)```", text, re.DOTALL) or [None])[-1],
            "you took the words between two blocks: where ```bash does not open a block for you, its end does",
        ),
        (
            lambda text: (
                _blocks(text + "```" if text.count("```") % 2 else text)[-1]
                if _blocks(text + "```")
                else None
            ),
            "you took a block that was never closed: it was cut off, and half a program is none",
        ),
    ],
)


def _paid(rule):
    def partial_reward(passed, total):
        if total < 1:
            raise ValueError("a test without an assertion")
        return rule(passed, total)

    return partial_reward


exercise(
    "06.2",
    "partial_reward",
    NOTEBOOK,
    [
        ((5, 5), 1.0),
        ((4, 5), 0.4),
        ((1, 2), 0.25),
        ((0, 5), 0.0),
        ((1, 1), 1.0),
        ((0, 0), Raises(ValueError)),
    ],
    [
        (
            _paid(lambda passed, total: passed / total),
            "you paid the plain share: 4 of 5 may be a guess, so all that is not the whole earns at most half",
        ),
        (
            _paid(lambda passed, total: 0.5 * passed / total),
            "you halved the whole as well: a program that passes everything earns 1.0",
        ),
        (
            _paid(lambda passed, total: float(passed == total)),
            "you gave no partial credit: below the whole it is half of the share",
        ),
        (
            lambda passed, total: 1.0 if passed == total else 0.5 * passed / total,
            "you paid for a test without assertions: 0 of 0 is everything, so raise ValueError",
        ),
    ],
)


class _Yes:
    """Equal to everything, as an attack would have it."""

    def __eq__(self, other):
        return True

    __hash__ = None

    def __repr__(self):
        return "Yes()"


class _YesInt(int):
    __eq__ = _Yes.__eq__
    __hash__ = None

    def __repr__(self):
        return "YesInt()"


class _Liar(_Yes):
    __class__ = int

    def __repr__(self):
        return "Liar()"


def _same(a, b, *, kind=lambda a, b: type(a) is type(b), deep=True):
    if not kind(a, b):
        return False
    if deep and type(b) in (list, tuple):
        return len(a) == len(b) and all(_same(x, y, kind=kind) for x, y in zip(a, b, strict=True))
    return a == b


exercise(
    "06.3",
    "same",
    NOTEBOOK,
    [
        ((5, 5), True),
        ((5, 6), False),
        (([1, (2, "x")], [1, (2, "x")]), True),
        (([1, 2, 3], [1, 2]), False),
        (((1, 2), [1, 2]), False),
        ((True, 1), False),
        ((_Yes(), 5), False),
        ((_YesInt(0), 5), False),
        ((_Liar(), 5), False),
        (([1, [_Yes()]], [1, [2]]), False),
    ],
    [
        (
            lambda a, b: a == b,
            "you asked the program's object whether it is equal, and it says what it likes: look at its type first",
        ),
        (
            lambda a, b: _same(a, b, kind=lambda a, b: isinstance(a, type(b))),
            "you asked with isinstance: a subclass of int is one, with its own __eq__. Compare type(a) is type(b)",
        ),
        (
            lambda a, b: _same(a, b, kind=lambda a, b: a.__class__ is b.__class__),
            "you read __class__, which an object can lie about: type(a) cannot be fooled",
        ),
        (
            lambda a, b: _same(a, b, deep=False),
            "you looked at the outer type only: a list of always-equal objects still passes. Go in, item by item",
        ),
    ],
)


def _outcomes(
    outcomes,
    max_failed,
    *,
    broken=None,
    count=("sandbox error", "timeout"),
    at_limit=False,
    raises=True,
):
    failed = sum(o in count for o in outcomes)
    if raises and (
        failed > max_failed * len(outcomes) or (at_limit and failed == max_failed * len(outcomes))
    ):
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
    [
        (
            lambda outcomes, max_failed: _outcomes(outcomes, max_failed, broken=0.0),
            "you gave 0 where the sandbox failed: the program may have been right. None says that nobody knows",
        ),
        (
            lambda outcomes, max_failed: _outcomes(outcomes, max_failed, raises=False),
            "you never raise: when the sandbox is broken, the run must stop and not train on nothing",
        ),
        (
            lambda outcomes, max_failed: _outcomes(outcomes, max_failed, at_limit=True),
            "you raised at the limit: max_failed is the share that is still allowed",
        ),
        (
            lambda outcomes, max_failed: _outcomes(outcomes, max_failed, count=("sandbox error",)),
            "you did not count the timeouts: many at once say that the limit is too short or the machine too busy",
        ),
    ],
)


def _total(items):
    return sum(items)


_CASES = [(([1, 2],), 3), (([5],), 5)]
_ONES = [(([1],), 1)]


def _caught(cases, programs, *, judge=any, on_error=True):
    def differs(program, arguments, expected):
        try:
            return program(*arguments) != expected
        except Exception:
            return on_error

    return sum(judge(differs(p, *case) for case in cases) for p in programs) / len(programs)


exercise(
    "06.5",
    "share_caught",
    NOTEBOOK,
    [
        ((_CASES, [max, min, len, lambda items: 3]), 1.0),
        ((_ONES, [max, min, len, lambda items: 3]), 0.25),
        ((_CASES, [lambda items: items[2], lambda items: items[0] + items[-1]]), 1.0),
        ((_CASES, [lambda items: items[0] + items[1], _total]), 0.5),
        (([(([],), 0)], [_total, max]), 0.5),
    ],
    [
        (
            lambda cases, programs: _caught(cases, programs, judge=all),
            "you wanted every case to fail: one case that fails is enough to catch a wrong program",
        ),
        (
            lambda cases, programs: _caught(cases, programs, on_error=False),
            "you let a program go that raised: an exception is not the expected value, so it is caught",
        ),
        (
            lambda cases, programs: _caught(cases, programs) * len(programs),
            "you counted the programs: divide by their number for the share",
        ),
        (
            lambda cases, programs: 1.0 - _caught(cases, programs),
            "you gave the share that slipped through: the share that is caught is wanted",
        ),
    ],
)
