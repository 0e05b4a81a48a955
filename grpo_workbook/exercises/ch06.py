"""The exercises of notebook 06_code_rewards."""

import pprint
import re
import secrets
import subprocess
import sys
from collections import deque

from grpo_workbook.exercises.tasks import exercise, experiment

# 06.1: a test that catches wrong programs


def second_largest(numbers):
    """The right program."""
    different = sorted(set(numbers))
    if len(different) < 2:
        return None
    return different[-2]


def counts_the_largest_twice(numbers):
    """A wrong program: 5 for [5, 5, 3]."""
    if len(set(numbers)) < 2:
        return None
    return sorted(numbers)[-2]


def takes_the_second_smallest(numbers):
    """A wrong program, which is right for two or three different numbers only by chance."""
    different = sorted(set(numbers))
    if len(different) < 3:
        return second_largest(numbers)
    return different[1]


def takes_the_second_place(numbers):
    """A wrong program: it does not sort."""
    if len(set(numbers)) < 2:
        return None
    return numbers[1]


def begins_with_0(numbers):
    """A wrong program: numbers below 0 never count."""
    if len(set(numbers)) < 2:
        return None
    largest = second = 0
    for number in sorted(set(numbers)):
        if number > largest:
            largest, second = number, largest
    return second


def forgets_short_lists(numbers):
    """A wrong program: it raises where there is no second number."""
    return sorted(set(numbers))[-2]


def counts_before_it_compares(numbers):
    """A wrong program: it raises for two equal numbers."""
    if len(numbers) < 2:
        return None
    return sorted(set(numbers))[-2]


def forgets_the_empty_list(numbers):
    """A wrong program: the empty list has no largest number."""
    if max(numbers) == min(numbers):
        return None
    return second_largest(numbers)


PROGRAMS = {
    "the right program": second_largest,
    "counts the largest twice": counts_the_largest_twice,
    "takes the second smallest": takes_the_second_smallest,
    "takes the second place": takes_the_second_place,
    "begins with 0": begins_with_0,
    "forgets short lists": forgets_short_lists,
    "raises for equal numbers": counts_before_it_compares,
    "raises for the empty list": forgets_the_empty_list,
}
MOST_CASES = 6
RIGHT_PASSES = "the right program passes"


def passes(program, cases):
    """Whether the program returns the expected value in every case."""
    for numbers, expected in cases:
        try:
            value = program(list(numbers))
        except Exception:  # an exception is caught as well
            return False
        if value != expected:
            return False
    return True


def require_cases(cases):
    """Raise TypeError if the learner's cases are no list of (list of numbers, value) pairs."""
    if not isinstance(cases, list):
        raise TypeError(f"the cases are a {type(cases).__name__}: return a list of them")
    for case in cases:
        if not isinstance(case, tuple) or len(case) != 2:
            raise TypeError(f"{case!r} is no pair of a list and the expected value")
        if not all(isinstance(number, int | float) for number in case[0]):
            raise TypeError(f"{case[0]!r} is no list of numbers")


def judge_the_test(function, name):
    """What the learner's test makes of one of the programs, if it has the right form."""
    cases = function()
    require_cases(cases)
    if len(cases) > MOST_CASES:
        return f"{len(cases)} cases, more than {MOST_CASES}"
    if not passes(second_largest, cases):
        return "the right program fails"
    if name == "the right program":
        return RIGHT_PASSES
    return "passes" if passes(PROGRAMS[name], cases) else "caught"


write_the_test = exercise("06.1", "write_the_test", call=judge_the_test)
for program_name in PROGRAMS:
    verdict = RIGHT_PASSES if program_name == "the right program" else "caught"
    write_the_test.case(program_name, gives=verdict)

UNSORTED = ([4, 9, 2, 7], 7)
LARGEST_TWICE = ([5, 5, 3], 3)
BELOW_0 = ([-4, -1, -3], -3)
ALL_EQUAL = ([7, 7], None)
EMPTY = ([], None)


@write_the_test.mistake
def expects_a_wrong_value():
    """The right program fails your test: one of your expected values is wrong, so a right
    completion would earn nothing. Equal numbers count once, and too few give None.
    """
    return [UNSORTED, ([5, 5, 3], 5), BELOW_0, ALL_EQUAL, EMPTY]


@write_the_test.mistake
def has_many_cases():
    """You have more than six cases: choose those that catch a wrong program which no other case
    catches.
    """
    return [UNSORTED] * 7


@write_the_test.mistake
def has_no_case():
    """Your test catches none of the wrong programs: every program passes it."""
    return []


@write_the_test.mistake
def expects_none_nowhere():
    """Your test has no list with fewer than two different numbers: a program that raises an
    exception for such a list passes.
    """
    return [UNSORTED, LARGEST_TWICE, BELOW_0]


@write_the_test.mistake
def leaves_out_the_largest_twice():
    """Your test passes a program that returns the largest number again if it occurs twice: add a
    list with two equal largest numbers and a smaller one.
    """
    return [UNSORTED, BELOW_0, ALL_EQUAL, EMPTY]


@write_the_test.mistake
def has_three_numbers_at_most():
    """Your test passes a program that returns the second *smallest* number: in three different
    numbers it is also the second largest, so take four.
    """
    return [([9, 4, 7], 7), LARGEST_TWICE, BELOW_0, ALL_EQUAL, EMPTY]


@write_the_test.mistake
def has_the_result_in_the_second_place():
    """Your test passes a program that returns numbers[1] without sorting: put the second largest
    number elsewhere in at least one list.
    """
    cases = [([9, 7, 2, 4], 7), ([5, 3, 5], 3), ([-4, -3, -1], -3)]
    return [*cases, ALL_EQUAL, EMPTY]


@write_the_test.mistake
def has_no_number_below_0():
    """Your test passes a program that begins with 0 as its largest number: add a list with numbers
    below 0 only.
    """
    return [UNSORTED, LARGEST_TWICE, ALL_EQUAL, EMPTY]


@write_the_test.mistake
def leaves_out_equal_numbers():
    """Your test passes a program that looks only at the length of the list: [7, 7] has two numbers,
    but no second largest one.
    """
    return [UNSORTED, LARGEST_TWICE, BELOW_0, ([7], None), EMPTY]


@write_the_test.mistake
def leaves_out_the_empty_list():
    """Your test passes a program that raises for the empty list: add it."""
    return [UNSORTED, LARGEST_TWICE, BELOW_0, ALL_EQUAL]


# 06.2: the program in a completion

PYTHON_BLOCK = "Here:\n```python\nx = 1\n```"
BARE_BLOCK = "Here:\n```\nx = 1\n```"
SECOND_BLOCK = "Here:\n```python\nx = 2\n```"
BASH_BLOCK = "Here:\n```bash\nls\n```"

last_block = exercise("06.2", "last_block")
last_block.case(PYTHON_BLOCK, gives="x = 1\n")
last_block.case(BARE_BLOCK + "\nDone.", gives="x = 1\n")
last_block.case(PYTHON_BLOCK + "\n" + SECOND_BLOCK, gives="x = 2\n")  # a correction
last_block.case(PYTHON_BLOCK + "\n" + BASH_BLOCK, gives="x = 1\n")  # how to run it
last_block.case(PYTHON_BLOCK + "\n```text\n3\n```", gives="x = 1\n")  # its output
# the fence that closes the first block looks like one that opens a program
last_block.case(BASH_BLOCK + "\nThen nothing.\n```", gives=None)
# a language whose name is no word
last_block.case("```c++\nint x;\n```\nIn Python:\n" + PYTHON_BLOCK, gives="x = 1\n")
last_block.case("```py\nx = 1\n```", gives=None)  # not one of the two fences that count
last_block.case("x = 1", gives=None)
last_block.case("```python\nx = 1\n", gives=None)  # cut off
# three backticks inside a line are no fence
last_block.case("```python\nfence = '```'\n```", gives="fence = '```'\n")

BLOCK = re.compile(r"^```([^\n`]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def python_blocks(text):
    """The programs of all closed blocks that Python opens, or no language."""
    return [code for language, code in BLOCK.findall(text) if language in ("", "python")]


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
    return last_of([code for _, code in BLOCK.findall(text)])


@last_block.mistake
def stays_in_the_line(text):
    """Your pattern finds no block: the dot needs re.DOTALL to match new lines."""
    return last_of(re.findall(r"^```(?:python)?\n(.*?)^```", text, re.MULTILINE))


@last_block.mistake
def takes_python_only(text):
    """You left out the blocks whose fence names no language: they count, too."""
    return last_of([code for language, code in BLOCK.findall(text) if language == "python"])


@last_block.mistake
def gives_up_at_another_language(text):
    """You looked only at the very last block: where it has another language, the last block of
    Python before it counts.
    """
    blocks = BLOCK.findall(text)
    if not blocks or blocks[-1][0] not in ("", "python"):
        return None
    return blocks[-1][1]


@last_block.mistake
def gives_an_empty_text(text):
    """You gave an empty text where there is no program: give None, which no program can be."""
    return last_of(python_blocks(text)) or ""


@last_block.mistake
def takes_off_the_new_line(text):
    """You took off the white space around the code: return it as it stands between the fences."""
    program = last_of(python_blocks(text))
    return None if program is None else program.strip()


@last_block.mistake
def takes_the_words_between(text):
    """You took the words between two blocks: your pattern does not see that ```bash opens a block,
    and takes the end of that block for the start of another.
    """
    blocks = re.findall(r"^```(?:python)?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return last_of(blocks)


@last_block.mistake
def takes_an_open_block(text):
    """You took a block that was never closed: it was cut off, and half a program is none."""
    fences = re.findall(r"^```", text, re.MULTILINE)
    if len(fences) % 2 == 1:
        text += "```"
    return last_of(python_blocks(text))


@last_block.mistake
def reads_words_only(text):
    """Your pattern reads only languages that are one word: ```c++ opens a block as well, and its
    closing fence must not open the next.
    """
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return last_of([code for language, code in blocks if language in ("", "python")])


@last_block.mistake
def takes_backticks_in_a_line(text):
    """Your pattern takes three backticks inside a line for a fence: anchor it with ^ and
    re.MULTILINE.
    """
    blocks = re.findall(r"```([^\n`]*)\n(.*?)```", text, re.DOTALL)
    return last_of([code for language, code in blocks if language in ("", "python")])


# 06.3: the same value, and not only an equal one


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


class Echo(Yes):
    """Equal to everything, and written like 5."""

    def __repr__(self):
        return "5"


Int = type("int", (Yes,), {})  # a class with the name of a plain type

same = exercise("06.3", "same")
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
same.case({True}, {1}, gives=False)
same.case({True: 2}, {1: 2}, gives=False)
# values that say that they are equal
same.case(Yes(), 5, gives=False)
same.case(YesInt(0), 5, gives=False)
same.case(Liar(), 5, gives=False)
same.case(Int(), 5, gives=False)
same.case([Echo()], [5], gives=False)
same.case({1: Echo()}, {1: 5}, gives=False)
same.case(frozenset({1}), frozenset({1}), gives=False)  # no container that the task names
same.case([1, [Yes()]], [1, [2]], gives=False)
same.case({1: Yes()}, {1: 3}, gives=False)
same.case({Yes(): 1}, {5: 1}, gives=False)
same.case({Yes()}, {5}, gives=False)
same.case([{Yes()}], [{5}], gives=False)
same.case(deque([Yes()]), deque([5]), gives=False)
# all items of the first are in the second
same.case({1: 2}, {1: 2, 3: 4}, gives=False)
same.case({1: 2, 3: 4}, {1: 2}, gives=False)
same.case({1, 2}, {1}, gives=False)
# every plain type
same.case([None, 1.5, b"x"], [None, 1.5, b"x"], gives=True)

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
def looks_in_one_direction(a, b):
    """You looked for each expected item, but the program may have returned more items than that:
    compare the lengths first.
    """
    if type(a) is type(b) and type(b) is dict:
        return all_are_found(a.items(), b.items(), compare)
    if type(a) is type(b) and type(b) is set:
        return all_are_found(a, b, compare)
    return compare(a, b)


@same.mistake
def compares_in_order(a, b):
    """You compared a dict or a set in the order of its items: two equal dicts may have different
    orders.
    """
    if type(a) is type(b) and type(b) is dict:
        return compare(list(a.items()), list(b.items()))
    return compare(a, b)


@same.mistake
def forgets_a_plain_type(a, b):
    """You refused None, a float or bytes, which are plain values, too."""
    if type(b) in (list, tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(forgets_a_plain_type, a, b))
    return type(b) not in (type(None), float, bytes) and compare(a, b)


@same.mistake
def compares_unknown_types_with_equal(a, b):
    """You compared a type that you do not know with ==: a deque asks its items. Refuse what is not
    plain.
    """
    return compare(a, b, only_plain=False)


@same.mistake
def compares_the_repr(a, b):
    """You compared what the values look like as text: an object chooses its own repr, so it can
    look like a 5. Look at its type.
    """
    return type(a) is type(b) and pprint.pformat(a) == pprint.pformat(b)


@same.mistake
def looks_up_plain_keys(a, b):
    """You compared the items of a set, or the keys of a dict, with ==: True == 1, so {True} passes
    for {1}. Their types must be the same, too.
    """
    if type(a) is not type(b) or type(b) not in (set, dict):
        return compare(a, b)
    if not all(type(item) in PLAIN for item in a):
        return False
    if type(b) is set:
        return a == b
    return a.keys() == b.keys() and all(compare(a[key], b[key]) for key in b)


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
