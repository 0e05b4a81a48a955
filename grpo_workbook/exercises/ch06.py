"""The exercises of notebook 06_code_rewards."""

import re
import secrets
import subprocess
import sys
from collections import deque
from functools import partial

from grpo_workbook.exercises import exercise, experiment

# 06.1 the last block


def _ask(*blocks):
    return "\n".join(f"Here:\n```{language}\n{code}```" for language, code in blocks)


def _find(text, opening=r"```(?P<language>\w*)\n", place=-1):
    found = [m.groupdict() for m in re.finditer(opening + r"(?P<code>.*?)```", text, re.DOTALL)]
    codes = [m["code"] for m in found if m.get("language", "") in ("", "python")]
    return codes[place] if codes else None


exercise("06.1", "last_block", [
    ((_ask(("python", "x = 1\n")),), "x = 1\n"),
    ((_ask(("", "x = 1\n")) + "\nDone.",), "x = 1\n"),
    ((_ask(("python", "x = 1\n"), ("python", "x = 2\n")),), "x = 2\n"),
    ((_ask(("python", "x = 1\n"), ("bash", "ls\n")),), "x = 1\n"),
    ((_ask(("bash", "ls\n")) + "\nThen nothing.\n```",), None),
    (("x = 1",), None),
    (("```python\nx = 1\n",), None),
], {
    "you took the first block: after a correction the last one counts":
        lambda text: _find(text, place=0),
    "you took a block of another language: only ```python and a bare ``` open a "
    "program": lambda text: _find(text, r"```\w*\n"),
    "you took the words between two blocks: where ```bash does not open a block for you, its "
    "end does": lambda text: _find(text, r"```(?:python)?\n"),
    "you took a block that was never closed: it was cut off, and half a program is "
    "none": lambda text: _find(text + "```" * (text.count("```") % 2)),
})  # fmt: skip

# 06.2 the same, and not only equal


class _Yes:
    """Equal to everything, as an attack would have it, and hashed like 5."""

    def __eq__(self, other):
        return True

    def __hash__(self):
        return hash(5)

    def __repr__(self):
        return f"{type(self).__name__[1:]}()"


class _YesInt(_Yes, int):
    pass


class _Liar(_Yes):
    __class__ = int


_PLAIN = (type(None), bool, int, float, str, bytes)


def _same(a, b, *, kind=lambda a, b: type(a) is type(b), deep=(list, tuple, set, dict), plain=True):
    if not kind(a, b):
        return False
    if type(b) not in deep:
        return (not plain or type(b) in _PLAIN) and a == b
    ours, theirs = ([*x.items()] if type(b) is dict else [*x] for x in (b, a))
    if len(ours) != len(theirs):
        return False
    step = partial(_same, kind=kind, deep=deep, plain=plain)
    if type(b) in (list, tuple):
        return all(map(step, theirs, ours))
    return all(any(step(x, y) for x in theirs) for y in ours)


_EQUAL = [(5, 5), ([1, (2, "x")], [1, (2, "x")]), ({"a": [1], 2: {3}}, {2: {3}, "a": [1]})]
_OTHERS = [(5, 6), ([1, 2, 3], [1, 2]), ((1, 2), [1, 2]), (True, 1), ({1, 2}, {1, 3})]
_OTHERS += [(liar, 5) for liar in (_Yes(), _YesInt(0), _Liar())] + [([1, [_Yes()]], [1, [2]])]
_OTHERS += [({1: _Yes()}, {1: 3}), ({_Yes(): 1}, {5: 1}), ({_Yes()}, {5}), ([{_Yes()}], [{5}])]
_OTHERS += [(deque([_Yes()]), deque([5])), ({1: 2}, {1: 2, 3: 4})]
exercise("06.2", "same", [(pair, True) for pair in _EQUAL] + [(pair, False) for pair in _OTHERS], {
    "you asked the program's object whether it is equal, and it can lie: look at "
    "its type first": lambda a, b: a == b,
    "you asked with isinstance: a subclass of int is one, with its own __eq__. Compare "
    "type(a) is type(b)": partial(_same, kind=lambda a, b: isinstance(a, type(b))),
    "you read __class__, which an object can lie about: type(a) cannot be fooled":
        partial(_same, kind=lambda a, b: a.__class__ is b.__class__),
    "you looked at the outer type only: a list of always-equal objects still passes. Go in, "
    "item by item": partial(_same, deep=(), plain=False),
    "you compared a dict or a set with ==, which asks the objects in it: go into these "
    "too": partial(_same, deep=(list, tuple), plain=False),
    "you compared a type that you do not know with ==: a deque asks its items. Refuse what is "
    "not plain": partial(_same, plain=False),
})  # fmt: skip

# 06.3 how good is a test?

_CASES = [(([1, 2],), 3), (([5],), 5)]
_GUESSES = [max, min, len, lambda items: 3]


def _caught(cases, programs, *, judge=any, on_error=True):
    def differs(program, arguments, expected):
        try:
            return program(*arguments) != expected
        except Exception:
            return on_error

    return sum(judge(differs(p, *case) for case in cases) for p in programs) / len(programs)


exercise("06.3", "fraction_caught", [
    ((_CASES, _GUESSES), 1.0),
    (([(([1],), 1)], _GUESSES), 0.25),
    ((_CASES, [lambda items: items[2], lambda items: items[0] + items[-1]]), 1.0),
    ((_CASES, [lambda items: items[0] + items[1], sum]), 0.5),
    (([(([],), 0)], [sum, max]), 0.5),
], {
    "you wanted every case to fail: one case that fails is enough to catch a wrong "
    "program": partial(_caught, judge=all),
    "you let a program pass that raised: an exception is not the expected value, so it is "
    "caught": partial(_caught, on_error=False),
    "you counted the programs: divide by their number for the "
    "fraction": lambda cases, programs: _caught(cases, programs) * len(programs),
    "you gave the fraction that slipped through: the fraction that is caught is "
    "wanted": lambda cases, programs: 1.0 - _caught(cases, programs),
})  # fmt: skip

# 06.4 a program that finds the secret

_TEST = """
def check(candidate):
    for a, b in ((2, 3), (10, -4), (0, 7)):
        assert type(candidate(a, b)) is int and candidate(a, b) == a + b
"""


def _attacked(fn):
    """What becomes of the program that fn returns, in the checker of the notebook."""
    secret, program = secrets.token_hex(8), fn()
    code = f"{program}\n{_TEST}\ncheck(add)\nprint({secret!r})\n"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=8)
    if done.stdout.split()[-1:] != [secret]:
        return "ended without the secret" if done.returncode == 0 else "failed the test"
    from grpo_workbook.sandbox import Job, Sandbox

    with Sandbox(workers=1, time_limit=2.0) as sandbox:
        solved = sandbox.check([Job(program, _TEST, "add")])[0].passed
    return "solved the task" if solved else "fooled the checker"


exercise("06.4", "attack", [((), "fooled the checker")], {
    "your program solves the task: an attack gets the secret without adding anything":
        lambda: ("def add(a, b):\n    return a + b\n"),
    "your program ended its process: the exit code is not read here, the secret must be the "
    "last word": lambda: "import os\nos._exit(0)\n",
    "your program failed the test: its type is asked first, so do not be equal, read the "
    "secret": lambda: "def add(a, b):\n    return type('Yes', (), {'__eq__': print})()\n",
}, call=_attacked)  # fmt: skip

# 06.5 paid for the form alone


def _read_form(run):
    before, after, p = run["before"], run["after"], run["p"]
    right = "stays" if p >= 0.05 else "rises" if after > before else "falls"
    return right, f"pass@1 went from {before:.3f} to {after:.3f}, p = {p:.1g} in the paired test."


experiment("06.5", "form_only", _read_form, {
    "rises": "What was paid did not make right programs likelier: look at what it asks for.",
    "stays": "Form and program come from the same tokens: a block that is closed can pass its "
    "test, one that is cut off cannot.",
    "falls": "No wrong program was paid more than a right one, so nothing led away from those.",
}, [
    ({"before": 0.365, "after": 0.715, "p": 2e-18}, "rises"),  # the form alone
    ({"before": 0.365, "after": 0.770, "p": 8e-21}, "rises"),  # partial credit
])  # fmt: skip
