"""What a test reports as it runs, and which comparisons are believed. Standard library only.

source.py puts calls of `_workbook`, an `Assertions`, into the test's text.
"""

import contextlib
import sys
import types
from typing import Any

from source import OPERATORS

MAX_ITEMS, MAX_DEPTH = 50, 4  # of a container whose items are looked at
MAX_WORDS = 400  # characters of an error's text
COMPARISONS = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
CONTAINERS = (list, tuple, set, frozenset)
HEAP_TYPE = 1 << 9  # of type.__flags__: a class that was made while Python runs
# Functions to which an empty list is close to anything.
CLOSE = ("allclose", "isclose", "array_equiv", "assert_allclose", "assert_almost_equal")
CLOSE += ("assert_array_equal", "assert_array_almost_equal", "assert_array_less", "assert_equal")


class Doubt(AssertionError):
    """An object of the program says itself what it is equal to."""


def describe(error: BaseException) -> list[str]:
    """The class and the text of an error, and the name that it is about."""
    name, text = type(error).__name__, ""
    with contextlib.suppress(Exception):  # a number may be too long
        text = str(error)[:MAX_WORDS]
    owner = getattr(error, "obj", None)
    if isinstance(owner, types.ModuleType) and owner.__name__ != "solution":
        return ["ImportError", f"{name}: {text}", ""]  # a package has no such function
    if isinstance(error, AssertionError):
        name = "AssertionError"
    return [name, text, str(getattr(error, "name", ""))]


class Assertions:
    """What a test needs as `_workbook`."""

    errors: tuple = (Exception,)  # what an assertion raises; pytest's is no Exception

    def held(self, word: str) -> None:
        """An assertion holds."""
        raise NotImplementedError

    def lost(self, number: int, error: BaseException) -> None:
        """An assertion does not hold, or what it asks for raises an error."""
        raise NotImplementedError

    def compare(self, name: str, left, right):
        """`left` and `right` compared by the operator of this name."""
        _refuse_empty(left, getattr(right, "expected", right))
        return OPERATORS[name](left, right)

    def pair(self, name: str, left, right) -> tuple:
        """The first two arguments of a function that compares them."""
        if name in CLOSE and _size(left) * _size(right) == 0 and _size(left) != _size(right):
            raise AssertionError("an empty answer is close to no value")
        return left, right

    def alone(self, value):
        """One side of a chain of comparisons."""
        return value


def _refuse_empty(left, right) -> None:
    """NumPy takes an empty array for equal to any number."""
    kinds = {type(left).__name__, type(right).__name__}
    if "ndarray" in kinds and _size(left) * _size(right) == 0 and _size(left) != _size(right):
        raise AssertionError("an empty array is no right answer")


def _size(value) -> int:
    if type(value).__name__ == "ndarray":
        return min(value.size, 1)
    if isinstance(value, list | tuple):
        return min(len(value), 1)
    return 1


class DoubtfulAssertions(Assertions):
    """For a test that has the program's own objects: it doubts what they say of themselves.

    An object with the program's own `==` is compared only with objects of the same class and
    state. Else no one could tell it from one that is equal to everything.
    """

    def __init__(self, libraries: tuple[str, ...], may_be_any: bool):
        self.libraries = libraries
        self.may_be_any = may_be_any  # the test itself uses unittest.mock.ANY
        self.known: dict[type, bool] = {}

    def compare(self, name: str, left, right):
        """As of `Assertions`; raises Doubt."""
        if name in ("In", "NotIn"):
            self._check_member(left, right)
        elif name != "Sub":
            self._check(left, right)
        return super().compare(name, left, right)

    def pair(self, name: str, left, right) -> tuple:
        """As of `Assertions`; raises Doubt."""
        self._check(left, right)
        return super().pair(name, left, right)

    def alone(self, value):
        """As of `Assertions`; raises Doubt."""
        if self._compares_itself(value):
            raise Doubt(_says(value))
        return value

    def _check_member(self, member, container) -> None:
        if type(container) is dict:
            container = list(container)
        if type(container) not in CONTAINERS:
            return
        for item in list(container)[:MAX_ITEMS]:
            self._check(member, item)

    def _check(self, left, right, depth: int = 0) -> None:
        """Raise Doubt, or AssertionError, if an object decides by itself whether it is right."""
        if depth > MAX_DEPTH:
            return
        ours, theirs = self._compares_itself(left), self._compares_itself(right)
        if ours or theirs:
            for value in (left, right):
                self._refuse_equal_to_all(value)
            self._check_objects(left, right)
        elif type(left) in CONTAINERS or type(right) in CONTAINERS or type(left) is dict:
            self._check_items(left, right, depth)

    def _check_items(self, left, right, depth: int) -> None:
        lefts, rights = _items(left), _items(right)
        if len(lefts) == len(rights):
            for left_item, right_item in zip(lefts, rights, strict=True):
                self._check(left_item, right_item, depth + 1)
            return
        for item in lefts + rights:
            self._check(item, None, depth + 1)

    def _check_objects(self, left, right) -> None:
        if left is right:
            return
        # `tree.find(5) == None` is an honest question if the answer is no
        if left is None or right is None:
            if _is_equal(left, right):
                raise Doubt(_says(right if left is None else left))
            return
        related = isinstance(left, type(right)) or isinstance(right, type(left))
        for value, other in ((left, right), (right, left)):
            if self._compares_itself(value) and not (related and self._compares_itself(other)):
                raise Doubt(_says(value))
        states = _state(left), _state(right)
        same = any(states[0]) and states[0] == states[1]
        if _is_equal(left, right) and not same:
            raise Doubt(f"{_says(left)}, and others of another state are equal to it")

    def _refuse_equal_to_all(self, value) -> None:
        is_any = type(value).__name__ == "_ANY" and self.may_be_any
        if _is_equal(value, object()) and not is_any:
            raise AssertionError(f"a {type(value).__name__} is equal to everything")

    def _compares_itself(self, value) -> bool:
        cls = type(value)
        if cls not in self.known:
            self.known[cls] = any(self._is_own(cls, name) for name in COMPARISONS)
        return self.known[cls]

    def _is_own(self, cls: type, name: str) -> bool:
        """Whether the class has this method from the program, and not from a library."""
        for parent in type.__dict__["__mro__"].__get__(cls):
            method = type.__dict__["__dict__"].__get__(parent).get(name)
            if method is None:
                continue
            # Python's own types and most of C's were there before the program
            if not parent.__flags__ & HEAP_TYPE:
                return False
            if parent.__name__ == "_ANY":
                return not self.may_be_any
            code = getattr(method, "__code__", None)
            if code is None:  # of a package in C, if its module knows the class
                module = sys.modules.get(parent.__module__)
                return getattr(module, parent.__name__, None) is not parent
            return not code.co_filename.startswith(self.libraries)
        return False


def _says(value) -> str:
    return f"an object of the program, a {type(value).__name__}, decides what it is equal to"


def _items(value) -> list:
    """The first items of a container, in an order that does not depend on when they were put in."""
    if type(value) is dict:
        items = [part for pair in value.items() for part in pair]
    elif type(value) in CONTAINERS:
        items = list(value)
    else:
        return []
    return items[:MAX_ITEMS]


def _is_equal(left, right) -> bool:
    with contextlib.suppress(Exception):
        return bool(left == right)
    return False


def _state(value) -> tuple[dict, object]:
    """The attributes of an object, and its content if it is a container or a number."""
    attributes = dict(getattr(value, "__dict__", {}))
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            if hasattr(value, name):
                attributes[name] = getattr(value, name)
    for cls in (list, tuple, dict, set, frozenset, str, bytes, int, float):
        if isinstance(value, cls):
            make: Any = cls
            return attributes, make(value)
    return attributes, None
