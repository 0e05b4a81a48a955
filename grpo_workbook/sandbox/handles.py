"""The program's objects, as the test sees them: each question goes over the wire.

An object must not answer where the test expects a value: `assert abs(f(2) - 5) < 1e-6` holds for
any object whose operators say so. So only an object that the test itself has *made*, by calling a
class of the program, answers everything. Any other is never equal to a value, has no arithmetic
with values, and what it says to a method that plain values have (`startswith`) must be an object
again. And of a made one `==` is believed only if it also says no (see Judge.equals). Standard
library only.
"""

import functools

import wire

_ASKED = ("__name__", "__qualname__", "__doc__", "__annotations__")


class Thing:
    """What the judge knows of an object: its number in the candidate, its classes, its rights."""

    def __init__(self, judge, place: int, what: str, module="", names=(), fields=()):
        self.judge, self.place, self.what, self.module = judge, place, what, module
        self.names, self.fields = list(names), fields  # of a dataclass
        # wanted: a class that the test names; narrow: its answer must be an object
        self.made = self.wanted = self.narrow = False
        self.items: list | None = None  # of one that the test has not made, all at once
        self.recipe: tuple | None = None  # of one that the test has made: the class, the arguments


class Handle:
    """An object of the program. What the test does with it is done in the candidate."""

    __slots__ = ("_thing",)

    def __init__(self, thing: Thing):
        object.__setattr__(self, "_thing", thing)

    def __mro_entries__(self, bases):
        self._thing.judge.stop("rejected", "the test derives a class from the program's", "test")

    def __reduce_ex__(self, _):
        self._thing.judge.stop("rejected", "the test copies an object of the program", "test")

    def __getattr__(self, name: str):
        if name.startswith("__") and name.endswith("__") and name not in _ASKED:
            raise AttributeError(name)
        mine = self._thing
        result = mine.judge.ask("getattr", self, name)
        mine.items = None
        if not (mine.made or mine.wanted or name in _ASKED) and mine.judge.is_plain_name(name):
            if isinstance(result, Handle):
                result._thing.narrow = True
            elif name not in mine.fields:
                mine.judge.refuse(mine)
        return result

    def __eq__(self, other):
        return self._equals(other, self._thing.judge.equals)

    def __ne__(self, other):
        return not self._equals(other, functools.partial(self._thing.judge.ask, "eq"))

    def _equals(self, other, ask) -> bool:
        mine, theirs = self._thing, getattr(other, "_thing", None)
        if isinstance(other, Handle):
            is_made = mine.recipe or theirs.recipe  # then: are perhaps all that are made one?
            return (mine.place == theirs.place and not is_made) or ask(self, other) is True
        if mine.made:
            return ask(self, other) is True
        kind = type(other)
        crosses = kind in wire.PLAIN or kind.__module__ in ("__test__", "builtins")
        if mine.names[:1] == [kind.__name__] and not crosses:
            words = f"a value of type {mine.module}.{kind.__name__} cannot be compared"
            mine.judge.stop("rejected", words, "test")
        return False

    def __bool__(self):
        return _exact(self, "bool", bool) if self._thing.made else True

    def __instancecheck__(self, value):
        return isinstance(value, Handle) and _exact(value, "isinstance", bool, self)

    def __subclasscheck__(self, value):
        return isinstance(value, Handle) and _exact(value, "issubclass", bool, self)


class _Special(Handle):
    """What the test's object can do only if the program's can: see `handle`."""

    __slots__ = ()

    def __call__(self, *arguments, **named):
        mine = self._thing
        if mine.wanted:
            made = mine.judge.ask("new", self, *arguments, **named)
            return mine.judge.own(made, recipe=(self, arguments, named))
        result = mine.judge.ask("call", self, *arguments, **named)
        if mine.narrow and not isinstance(result, Handle) and result is not None:
            mine.judge.refuse(mine)
        return result

    def __len__(self):
        return _exact(self, "len", int) if self._thing.made else len(_items(self))

    def __iter__(self):
        return iter(self._thing.judge.ask("iter", self) if self._thing.made else _items(self))

    def __contains__(self, item):
        return _exact(self, "contains", bool, item) if self._thing.made else item in _items(self)

    def __getitem__(self, key):
        if not self._thing.made and type(key) in (int, slice):
            return _items(self)[key]
        return self._thing.judge.ask("getitem", self, key)

    def __next__(self):
        try:
            return self._thing.judge.ask("next", self)
        except RuntimeError:
            if self._thing.judge.ended:
                raise StopIteration from None
            raise

    def __enter__(self):
        enter = self._thing.judge.ask("getattr", self, "__enter__")
        return _same(self, self._thing.judge.ask("call", enter))

    def __exit__(self, *_):
        leave = self._thing.judge.ask("getattr", self, "__exit__")
        return self._thing.judge.ask("call", leave, None, None, None) is True


def _same(handle: Handle, result):
    """The result; if it is the object that was asked, then with the test's rights to it."""
    is_same = isinstance(result, Handle) and result._thing.place == handle._thing.place
    return handle if is_same else result


def _exact(handle: Handle, operation: str, kind: type, *more):
    """The answer, of exactly this type."""
    answer = handle._thing.judge.ask(operation, handle, *more)
    if type(answer) is not kind:
        raise TypeError(f"the program answers {operation}() with a {type(answer).__name__}")
    return answer


def _items(handle: Handle) -> list:
    """All items at once, so that a program cannot show other items at a second look."""
    if handle._thing.items is None:
        handle._thing.items = _exact(handle, "list", list)
    return handle._thing.items


def _operator(name: str, swapped: bool = False):
    """An operator: of objects that the test has made, or at least with an object as its result."""

    def operate(self, *other):
        mine, objects = self._thing, all(isinstance(x, Handle) for x in other)
        if not mine.made and (not objects or name in _TO_VALUES):
            mine.judge.refuse(mine)
        free = mine.made and objects and all(x._thing.made for x in other)
        result = mine.judge.ask(name, *((*other, self) if swapped else (self, *other)))
        if not isinstance(result, Handle):
            return result if free or name in _ANSWERS else mine.judge.refuse(mine)
        same = _same(self, result) if mine.made else result  # changed in place
        return mine.judge.own(result) if free and same is result else same

    return operate


def _asked(name: str, kind: type | None = None):
    def ask(self, *more):
        return _exact(self, name, kind, *more) if kind else self._thing.judge.ask(name, self, *more)

    return ask


_TO_VALUES = ("abs", "int", "float", "complex", "index", "round")
_ANSWERS = ("lt", "le", "gt", "ge", *_TO_VALUES)
for _name in _ANSWERS[:4]:
    setattr(Handle, f"__{_name}__", _operator(_name))
for _name, _kind in {"hash": int, "str": str, "repr": str, "format": str}.items():
    setattr(Handle, f"__{_name}__", _asked(_name, _kind))
for _name in ("setattr", "delattr"):
    setattr(Handle, f"__{_name}__", _asked(_name))
Handle.__doc__ = property(lambda self: self._thing.judge.ask("getattr", self, "__doc__"))
for _name in ("setitem", "delitem"):
    setattr(_Special, f"__{_name}__", _asked(_name))
for _name in (*_TO_VALUES, "neg", "pos", "invert"):
    setattr(_Special, f"__{_name}__", _operator(_name))
for _name in "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split():
    _plain = _name + "_" * (_name in ("and", "or"))  # as in the module `operator`
    setattr(_Special, f"__{_name}__", _operator(_plain))
    setattr(_Special, f"__r{_name}__", _operator(_plain, swapped=True))
    setattr(_Special, f"__i{_name}__", _operator("i" + _name))
SPECIAL = {name: method for name, method in vars(_Special).items() if callable(method)}


@functools.cache
def _class_with(names: frozenset) -> type:
    own = {"__slots__": (), "__doc__": vars(Handle)["__doc__"]}
    return type("Handle", (Handle,), own | {x: SPECIAL[x] for x in names})


def handle(thing: Thing, names=()) -> Handle:
    """The object, with those special methods that its class in the program has.

    So `callable(f(1))` and `isinstance(f(1), Iterable)` hold for what is that, not for any object.
    """
    return _class_with(frozenset(SPECIAL).intersection(names))(thing)
