"""What a test reports as it runs, and which comparisons are believed. Standard library only.

rewriting.py puts calls of `_workbook`, a `Report`, into the test's text.
"""

import contextlib
import operator
import sys
import types
from typing import Any

from candidate import text_of

MAX_ITEMS, MAX_DEPTH = 50, 4  # of a container whose items are looked at
# Methods by which an object decides what it is equal or close to: `math.isclose` asks for a float,
# `assertAlmostEqual` and `pytest.approx` for a difference, NumPy for its own two.
COMPARISONS = """__eq__ __ne__ __lt__ __le__ __gt__ __ge__ __float__ __sub__ __rsub__ __round__
__array_function__ __array_ufunc__""".split()
# Classes of libraries that are equal to anything, or to any number, and the word that a test has
# where it uses one itself.
EQUAL_TO_MUCH = {"_ANY": "ANY", "ApproxScalar": "approx", "ApproxDecimal": "approx"}
CONTAINERS = (list, tuple, set, frozenset)
HEAP_TYPE = 1 << 9  # of type.__flags__: a class that was made while Python runs
# Functions to which an empty list is close to anything.
CLOSE = ("allclose", "isclose", "array_equiv", "assert_allclose", "assert_almost_equal")
CLOSE += ("assert_array_equal", "assert_array_almost_equal", "assert_array_less", "assert_equal")
OPERATORS = {
    "Eq": operator.eq,
    "NotEq": operator.ne,
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
    "In": lambda member, container: member in container,
    "NotIn": lambda member, container: member not in container,
}
# Errors that say nothing of the program.
CANNOT_RUN = ("Skipped", "ImportError", "ModuleNotFoundError", "FixtureLookupError", "NameError")
# What an error says where a wall is its cause: the system, tempfile, sqlite3.
REFUSALS = ("not permitted", "Permission denied", "temporary directory", "open database file")


class NoAnswer(Exception):
    """There is no value to judge: the outcome of the test, and whose fault that is."""

    def __init__(self, outcome: str, reason: str, fault: str = "program"):
        super().__init__(reason)
        self.outcome, self.fault = outcome, fault


class Report:
    """What a test has reported so far; the test knows it as `_workbook`.

    It doubts what objects of the program say of themselves. One with the program's own `==` is
    compared only with objects of the same class and state: else no one could tell it from one that
    is equal to everything.

    - `libraries`: how the file names of code begin that is neither the program's nor the test's
    - `tokens`: of the assertions that hold, in the order in which they were reached
    - `failures`: [number of the assertion or 0, outcome, reason, fault] of each failure
    - `errors`: the exceptions by which an assertion fails
    """

    def __init__(self, job: dict, libraries: tuple[str, ...]):
        self.libraries = libraries
        self.refused: list[str] = []  # classes whose objects are not the test's own
        for name, word in EQUAL_TO_MUCH.items():
            if word not in job["text"]:
                self.refused.append(name)
        # not the whole job, for a program may find this object
        self.asked = ["solution", *job["asked"]]
        self.may_meet_walls = job["may_meet_walls"]
        self.tokens: list[str] = []
        self.failures: list[list] = []
        self.counted: BaseException | None = None  # the last error that cost an assertion
        self.errors: tuple = (Exception,)
        pytest = sys.modules.get("pytest")
        if pytest is not None:  # that of `pytest.fail` is no Exception
            self.errors = (Exception, pytest.fail.Exception)

    def held(self, token: str) -> None:
        """An assertion holds: its token goes into the report."""
        self.tokens.append(token)

    def lost(self, number: int, error: BaseException) -> None:
        """An assertion does not hold, or (number 0) something else has failed."""
        self.counted = error
        self.failures.append([number, *self._explain(error)])

    def fail(self, error: BaseException) -> None:
        """Note an error outside of all assertions."""
        if error is not self.counted:
            self.lost(0, error)

    def _explain(self, error: BaseException) -> list[str]:
        """The outcome, the reason and the fault."""
        if isinstance(error, NoAnswer):
            return [error.outcome, str(error), error.fault]
        name, text = type(error).__name__, text_of(error)
        reason = f"{name}: {text}"
        if self.may_meet_walls and any(refusal in text for refusal in REFUSALS):
            return ["rejected", f"the walls do not let it run: {reason}", "test"]
        if isinstance(error, AssertionError) or name == "Failed":
            return ["failed", text or "an assertion does not hold", "program"]
        if isinstance(error, MemoryError):
            return ["out of memory", reason, "program"]
        if not _cannot_run(error):
            return ["error", reason, "program"]
        if getattr(error, "name", "") in self.asked:
            return ["rejected", f"the program does not define it: {reason}", "program"]
        return ["rejected", f"the test cannot run here: {reason}", "test"]

    def compare(self, name: str, left, right):
        """`left` and `right` compared by the operator of this name; NoAnswer if in doubt."""
        if name == "Sub":
            return self._difference(left, right)
        if name in ("In", "NotIn"):
            members = right
            if type(right) is dict:
                members = list(right)
            for item in _items(members):
                self._check(left, item)
        else:
            self._check(left, right)
        _refuse_empty(left, getattr(right, "expected", right))
        return OPERATORS[name](left, right)

    def _difference(self, left, right):
        """`left - right`; NoAnswer where it may be the answer's own choice.

        In `abs(f(x) - 3) < 1e-6` an object could subtract anything to 0, but no honest one that is
        like a date, for its difference is a date again.
        """
        _refuse_empty(left, right)
        difference = left - right
        for value, other in ((left, right), (right, left)):
            if self._compares_itself(value) and not self._compares_itself(other):
                is_like_it = type(difference) is type(value)
                if not is_like_it or self._is_own(type(value), "__abs__"):
                    raise _doubt(value)
        return difference

    def pair(self, name: str, left, right) -> tuple:
        """The first two arguments of a function that compares them; NoAnswer if in doubt."""
        self._check(left, right)
        if name in CLOSE and _is_empty(left) != _is_empty(right):
            raise AssertionError("an empty answer is close to no value")
        return left, right

    def alone(self, value):
        """One side of a chain of comparisons, as it is; NoAnswer if in doubt."""
        if self._compares_itself(value):
            raise _doubt(value)
        return value

    def copy(self, value, depth: int = 0):
        """A copy of a container: an argument that the program cannot fit to its answer."""
        if depth > MAX_DEPTH:
            return value
        if type(value) is dict:
            return {key: self.copy(item, depth + 1) for key, item in value.items()}
        if type(value) in CONTAINERS:
            return type(value)(self.copy(item, depth + 1) for item in value)
        return value

    def _check(self, left, right, depth: int = 0) -> None:
        """Raise NoAnswer, or AssertionError, if an object decides by itself whether it is right."""
        if depth > MAX_DEPTH:
            return
        if type(left).__name__ in EQUAL_TO_MUCH and type(right).__name__ in EQUAL_TO_MUCH:
            raise _doubt(left)  # one is the test's own, and so the other is the program's
        if self._compares_itself(left) or self._compares_itself(right):
            for value in (left, right):
                if _is_equal(value, object()):
                    raise AssertionError(f"a {type(value).__name__} is equal to everything")
            self._check_objects(left, right)
        for left_item, right_item in zip(_items(left), _items(right), strict=False):
            self._check(left_item, right_item, depth + 1)

    def _check_objects(self, left, right) -> None:
        """As `_check`, for two values of which at least one has the program's own comparison."""
        if left is right:
            return
        both = self._compares_itself(left) and self._compares_itself(right)
        related = isinstance(left, type(right)) or isinstance(right, type(left))
        if left is None or right is None:
            # `tree.find(5) == None` is an honest question if the answer is no
            is_doubtful = _is_equal(left, right)
        elif both and related:
            # the state first: `==` could make one the copy of the other
            has_same_state = _same_state(left, right)
            is_doubtful = _is_equal(left, right) and not has_same_state
        else:
            is_doubtful = True
        if is_doubtful:
            raise _doubt(left if self._compares_itself(left) else right)

    def _compares_itself(self, value) -> bool:
        """Whether its class has a comparison from the program, and not from a library."""
        return any(self._is_own(type(value), name) for name in COMPARISONS)

    def _is_own(self, cls: type, name: str) -> bool:
        for parent in type.__dict__["__mro__"].__get__(cls):
            method = type.__dict__["__dict__"].__get__(parent).get(name)
            if method is None:
                continue
            # Python's own types and most of C's were there before the program
            if not parent.__flags__ & HEAP_TYPE:
                return False
            if parent.__name__ in EQUAL_TO_MUCH:
                return parent.__name__ in self.refused
            code = getattr(method, "__code__", None)
            if code is None:  # of a package in C, if its module knows the class
                module = sys.modules.get(parent.__module__)
                return getattr(module, parent.__name__, None) is not parent
            return not code.co_filename.startswith(self.libraries)
        return False


def _cannot_run(error: BaseException) -> bool:
    """Whether after this error nobody knows if the program is right."""
    if type(error).__name__ in CANNOT_RUN:
        return True
    owner = getattr(error, "obj", None)  # a package that has no such function
    return isinstance(owner, types.ModuleType) and owner.__name__ != "solution"


def _refuse_empty(left, right) -> None:
    """NumPy takes an empty array for equal to any number."""
    kinds = {type(left).__name__, type(right).__name__}
    if "ndarray" in kinds and _is_empty(left) != _is_empty(right):
        raise AssertionError("an empty array is no right answer")


def _is_empty(value) -> bool:
    if type(value).__name__ == "ndarray":
        return value.size == 0
    return isinstance(value, list | tuple) and not value


def _doubt(value) -> NoAnswer:
    name = type(value).__name__
    reason = f"an object of the program, a {name}, decides what it is equal to"
    return NoAnswer("rejected", reason, "test")


def _items(value) -> list:
    """The first items of a container; of a dict its keys and values."""
    if type(value) is dict:
        value = [*value.keys(), *value.values()]
    if type(value) not in CONTAINERS:
        return []
    return list(value)[:MAX_ITEMS]


def _is_equal(left, right) -> bool:
    with contextlib.suppress(Exception):
        return bool(left == right)
    return False


def _same_state(left, right) -> bool:
    """Whether both have the same attributes and content, and any at all."""
    state = _state(left)
    return any(state) and state == _state(right)


def _state(value) -> tuple:
    """The attributes of an object, and its content if it is a container or a number."""
    attributes = object.__getstate__(value)  # which no class of the program can replace
    for cls in (list, tuple, dict, set, frozenset, str, bytes, int, float):
        if isinstance(value, cls):
            make: Any = cls
            return attributes, make(value)
    return attributes, None
