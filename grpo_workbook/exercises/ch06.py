"""The exercises of notebook 06_code_rewards."""

import re
import secrets
import subprocess
import sys
from collections import deque

from grpo_workbook.exercises.tasks import exercise, experiment

# 06.1: the program in a completion

PYTHON_BLOCK = "Here:\n```python\nx = 1\n```"
BARE_BLOCK = "Here:\n```\nx = 1\n```"
SECOND_BLOCK = "Here:\n```python\nx = 2\n```"
BASH_BLOCK = "Here:\n```bash\nls\n```"

last_block = exercise("06.1", "last_block")
last_block.case(PYTHON_BLOCK, gives="x = 1\n")
last_block.case(BARE_BLOCK + "\nDone.", gives="x = 1\n")
last_block.case(PYTHON_BLOCK + "\n" + SECOND_BLOCK, gives="x = 2\n")  # a correction
last_block.case(PYTHON_BLOCK + "\n" + BASH_BLOCK, gives="x = 1\n")  # how to run it
last_block.case(PYTHON_BLOCK + "\n```text\n3\n```", gives="x = 1\n")  # its output
# the fence that closes the first block looks like one that opens a program
last_block.case(BASH_BLOCK + "\nThen nothing.\n```", gives=None)
last_block.case("x = 1", gives=None)
last_block.case("```python\nx = 1\n", gives=None)  # cut off


def python_blocks(text):
    """The programs of all closed blocks that Python opens, or no language."""
    blocks = re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL)
    return [code for language, code in blocks if language in ("", "python")]


def last_of(programs):
    """The last of the programs, or None."""
    return programs[-1] if programs else None


@last_block.mistake
def takes_the_first_block(text):
    """You took the first block: after a correction the last one counts."""
    programs = python_blocks(text)
    return programs[0] if programs else None


@last_block.mistake
def takes_any_language(text):
    """You took a block of another language: only ```python and a bare ``` open a program."""
    return last_of(re.findall(r"```\w*\n(.*?)```", text, re.DOTALL))


@last_block.mistake
def takes_the_words_between(text):
    """You took the words between two blocks: your pattern does not see that ```bash opens a block,
    and takes the end of that block for the start of another.
    """
    return last_of(re.findall(r"```(?:python)?\n(.*?)```", text, re.DOTALL))


@last_block.mistake
def takes_an_open_block(text):
    """You took a block that was never closed: it was cut off, and half a program is none."""
    if text.count("```") % 2 == 1:
        text += "```"
    return last_of(python_blocks(text))


# 06.2: the same value, and not only an equal one


class Yes:
    """Equal to everything, as an attack would have it, and hashed like 5."""

    def __eq__(self, other):
        return True

    def __hash__(self):
        return hash(5)

    def __repr__(self):
        return f"{type(self).__name__}()"


class YesInt(Yes, int):
    """A whole number that is equal to everything."""


class Liar(Yes):
    """Equal to everything, and its `__class__` is int."""

    __class__ = int  # type: ignore


same = exercise("06.2", "same")
# honest values
same.case(5, 5, gives=True)
same.case([1, (2, "x")], [1, (2, "x")], gives=True)
same.case({"a": [1], 2: {3}}, {2: {3}, "a": [1]}, gives=True)
# wrong values
same.case(5, 6, gives=False)
same.case([1, 2, 3], [1, 2], gives=False)
same.case((1, 2), [1, 2], gives=False)
same.case(True, 1, gives=False)
same.case({1, 2}, {1, 3}, gives=False)
same.case({"a": 1}, {"a": 2}, gives=False)
# equal values of another type, inside a container
same.case([True], [1], gives=False)
same.case({1: True}, {1: 1}, gives=False)
# values that say that they are equal
same.case(Yes(), 5, gives=False)
same.case(YesInt(0), 5, gives=False)
same.case(Liar(), 5, gives=False)
same.case([1, [Yes()]], [1, [2]], gives=False)
same.case({1: Yes()}, {1: 3}, gives=False)
same.case({Yes(): 1}, {5: 1}, gives=False)
same.case({Yes()}, {5}, gives=False)
same.case([{Yes()}], [{5}], gives=False)
same.case(deque([Yes()]), deque([5]), gives=False)
# all items of the first are in the second
same.case({1: 2}, {1: 2, 3: 4}, gives=False)

PLAIN = (type(None), bool, int, float, str, bytes)
CONTAINERS = (list, tuple, set, dict)


def same_type(a, b):
    """Whether two values have the same type."""
    return type(a) is type(b)


def compare(a, b, types_agree=same_type, containers=CONTAINERS, only_plain=True):
    """Whether a program's value `a` is the expected `b`, with what the mistakes change.

    `types_agree(a, b)` decides whether their types agree. Values of the types in `containers` are
    compared item by item, others with ==, with `only_plain` only those of a plain type.
    """

    def agree(item, wanted):
        return compare(item, wanted, types_agree, containers, only_plain)

    if not types_agree(a, b):
        return False
    if type(b) not in containers:
        if only_plain and type(b) not in PLAIN:
            return False
        return a == b
    if len(a) != len(b):
        return False
    if type(b) in (list, tuple):
        return all(map(agree, a, b))
    if type(b) is dict:
        return all_are_found(a.items(), b.items(), agree)
    return all_are_found(a, b, agree)


def all_are_found(items, wanted_items, agree):
    """Whether each wanted item agrees with one of the items."""
    for wanted in wanted_items:
        matches = [item for item in items if agree(item, wanted)]
        if not matches:
            return False
    return True


@same.mistake
def asks_the_object(a, b):
    """You asked the program's object whether it is equal, and it can lie: look at its type
    first.
    """
    return a == b


@same.mistake
def asks_with_isinstance(a, b):
    """You asked with isinstance: an object of a subclass of int passes, and it has its own __eq__.
    Compare with `type(a) is type(b)`.
    """

    def is_instance(a, b):
        return isinstance(a, type(b))

    return compare(a, b, types_agree=is_instance)


@same.mistake
def reads_the_class(a, b):
    """You read __class__, which an object can lie about: type(a) cannot be fooled."""

    def same_class(a, b):
        return a.__class__ is b.__class__

    return compare(a, b, types_agree=same_class)


@same.mistake
def looks_at_the_outer_type(a, b):
    """You looked at the outer type only: a list of objects that are equal to everything still
    passes. Compare item by item.
    """
    return type(a) is type(b) and a == b


@same.mistake
def compares_dicts_and_sets_with_equal(a, b):
    """You compared a dict or a set with ==, which asks the objects in it: compare
    their items, too.
    """
    return compare(a, b, containers=(list, tuple), only_plain=False)


@same.mistake
def compares_unknown_types_with_equal(a, b):
    """You compared a type that you do not know with ==: a deque asks its items. Refuse what is not
    plain.
    """
    return compare(a, b, only_plain=False)


# 06.3: how many wrong programs a test catches


def always_3(items):
    """A wrong sum."""
    return 3


def third(items):
    """A wrong sum."""
    return items[2]


def first_and_last(items):
    """A wrong sum: right for two items."""
    return items[0] + items[-1]


def first_two(items):
    """A wrong sum: right for two items."""
    return items[0] + items[1]


SUM_CASES = [(([1, 2],), 3), (([5],), 5)]
GUESSES = [max, min, len, always_3]

fraction_caught = exercise("06.3", "fraction_caught")
fraction_caught.case(SUM_CASES, GUESSES, gives=1.0)
fraction_caught.case([(([1],), 1)], GUESSES, gives=0.25)  # only always_3 is caught
fraction_caught.case(SUM_CASES, [third, first_and_last], gives=1.0)
fraction_caught.case(SUM_CASES, [first_two, sum], gives=0.5)
fraction_caught.case([(([],), 0)], [sum, max], gives=0.5)  # max([]) raises


def differs(program, case, on_error=True):
    """Whether a program's result differs from the expected one; `on_error` if it raises."""
    arguments, expected = case
    try:
        return program(*arguments) != expected
    except Exception:
        return on_error


def correct_fraction_caught(cases, programs):
    """The solution."""
    caught = 0
    for program in programs:
        if any(differs(program, case) for case in cases):
            caught += 1
    return caught / len(programs)


@fraction_caught.mistake
def wants_every_case_to_fail(cases, programs):
    """You wanted every case to fail: one case that fails is enough to catch a wrong program."""
    caught = 0
    for program in programs:
        if all(differs(program, case) for case in cases):
            caught += 1
    return caught / len(programs)


@fraction_caught.mistake
def lets_an_exception_pass(cases, programs):
    """You let a program pass that raised: an exception is not the expected value, so it is
    caught.
    """
    caught = 0
    for program in programs:
        if any(differs(program, case, on_error=False) for case in cases):
            caught += 1
    return caught / len(programs)


@fraction_caught.mistake
def counts_the_programs(cases, programs):
    """You counted the programs: divide by their number for the fraction."""
    return correct_fraction_caught(cases, programs) * len(programs)


@fraction_caught.mistake
def gives_the_fraction_that_passes(cases, programs):
    """You gave the fraction that slipped through: the fraction that is caught is wanted."""
    return 1.0 - correct_fraction_caught(cases, programs)


# 06.4: a program that finds the secret

TEST = """
def check(candidate):
    for a, b in ((2, 3), (10, -4), (0, 7)):
        assert type(candidate(a, b)) is int and candidate(a, b) == a + b
"""


def attack_the_checker(function):
    """What the learner's program does to the checker of the notebook: the best is to fool it."""
    secret = secrets.token_hex(8)
    program = function()
    code = f"{program}\n{TEST}\ncheck(add)\nprint({secret!r})\n"
    command = [sys.executable, "-c", code]
    process = subprocess.run(command, capture_output=True, text=True, timeout=8)
    if process.stdout.split()[-1:] != [secret]:
        if process.returncode == 0:
            return "ended without the secret"
        return "failed the test"
    if solves_the_task(program):
        return "solved the task"
    return "fooled the checker"


def solves_the_task(program):
    """Whether the program passes the test in the sandbox, where no secret can be read."""
    from grpo_workbook.sandbox import Job, Sandbox

    # one worker: this judges a single program
    with Sandbox(workers=1, time_limit=2.0) as sandbox:
        verdicts = sandbox.check([Job(program, TEST, "add")])
    return verdicts[0].passed


attack = exercise("06.4", "attack", call=attack_the_checker)
attack.case(gives="fooled the checker")


@attack.mistake
def solves_it():
    """Your program solves the task: an attack gets the secret without adding anything."""
    return "def add(a, b):\n    return a + b\n"


@attack.mistake
def ends_the_process():
    """Your program ended its process: the exit code is not read here. The secret must be the last
    word that is printed.
    """
    return "import os\nos._exit(0)\n"


@attack.mistake
def is_equal_to_everything():
    """Your program failed the test, which asks for the type of a result first: do not try to be
    equal, but read the secret.
    """
    return "def add(a, b):\n    return type('Yes', (), {'__eq__': print})()\n"


# 06.5: paid for the form alone


def read_form_only(run):
    """From pass@1 before and after, and the p-value of the paired test."""
    before = run["before"]
    after = run["after"]
    p = run["p"]
    sentence = f"pass@1 went from {before:.3f} to {after:.3f}, p = {p:.1g} in the paired test."
    if p >= 0.05:
        return "stays", sentence
    if after > before:
        return "rises", sentence
    return "falls", sentence


form_only = experiment(
    "06.5",
    "form_only",
    read=read_form_only,
    wrong={
        "rises": "What was paid did not make right programs likelier: look at what it asks for.",
        "stays": (
            "Form and program come from the same tokens: a block that is closed can pass its "
            "test, one that is cut off cannot."
        ),
        "falls": (
            "No wrong program was paid more than a right one: nothing led away from right ones."
        ),
    },
)
form_only.example({"before": 0.365, "after": 0.715, "p": 2e-18}, gives="rises")  # form alone
form_only.example({"before": 0.365, "after": 0.770, "p": 8e-21}, gives="rises")  # partial credit
