"""The program's objects, as the test sees them: each question goes over the wire.

An object must not answer where the test expects a value: `assert abs(f(2) - 5) < 1e-6` holds for
any object whose operators say so. So most is answered only by `kin`, objects of a class that the
test names, and what came out of an operator with a value of the test is *told* and answers with no
value any more. Any other object is never equal to a value, and what it says to a method that plain
values have (`startswith`) must be an object again. `==` of kin is believed only if it also says no
(see Judge.equals). Each object has one Handle, for `is`. Standard library only.
"""

import builtins
import functools
import operator
import types

import wire

_ASKED = ("__name__", "__qualname__", "__doc__", "__annotations__", "__enter__", "__exit__")
_ASKED += ("__aenter__", "__aexit__")


class Thing(types.SimpleNamespace):
    """What the judge knows of an object: its number in the candidate, its classes, its rights."""

    module, names, fields = "", (), ()  # the names of its classes, and of a dataclass's fields
    # wanted: a class that the test names; kin: of such a class; narrow: must answer an object
    wanted = kin = told = narrow = False
    seen = 0  # how often the program has sent it
    base: type | None = None  # the plain type that the class of a `kin` derives from
    items: list | None = None  # of one that the test has not made, all at once
    recipe: tuple | None = None  # of one that the test has made: the class, the arguments


class Handle:
    """An object of the program. What the test does with it is done in the candidate."""

    __slots__ = ("_thing",)

    def __init__(self, thing: Thing):
        object.__setattr__(self, "_thing", thing)

    @property
    def __class__(self):  # for `isinstance(b, dict)`
        return self._thing.base or type(self)

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
        mutable = type(result) in wire.MUTABLE or type(result).__name__ == "ndarray"
        if mutable and name in mine.judge.test.changed:
            mine.judge.foreign = [f"the test changes a copy of the program's {name}"]
        if mine.wanted and isinstance(result, Handle):
            mine.judge.members.add(result._thing.place)
        if not (mine.wanted or name in _ASKED) and mine.judge.is_plain_name(name):
            if name.startswith(("is", "starts", "ends")):  # any object is true
                mine.judge.refuse(mine)
            if mine.kin or mine.recipe:
                return result
            if isinstance(result, Handle):
                result._thing.narrow = True
            elif name not in mine.fields:
                mine.judge.refuse(mine)
        return result

    def __eq__(self, other):
        return self._equals(other, self._thing.judge.equals)

    def __ne__(self, other):
        judge = self._thing.judge
        equal = self.__eq__(other)  # first, for "eq" alone shows which value it is
        if not equal and self._equals(other, functools.partial(judge.ask, "eq")):
            judge.stop("rejected", "the program's == holds for other values too")
        return not equal

    def _equals(self, other, ask) -> bool:
        mine, theirs = self._thing, (other._thing if isinstance(other, Handle) else None)
        if theirs and mine.place == theirs.place and not (mine.recipe or theirs.recipe):
            return True  # not if the test made it: `__new__` may give the same object each time
        if theirs or (mine.kin and mine.judge.test.shows):
            return ask(self, other) is True
        kind = type(other)
        crosses = kind in wire.PLAIN or kind.__module__ in ("__test__", "builtins")
        if mine.names[:1] == [kind.__name__] and not crosses:
            mine.judge.stop("rejected", f"a {kind.__name__} cannot be compared", "test")
        return False

    def __bool__(self):
        if self._thing.told:
            self._thing.judge.refuse(self._thing)
        return _exact(self, "bool", bool)

    def __instancecheck__(self, value):
        return isinstance(value, Handle) and _exact(value, "isinstance", bool, self)

    def __subclasscheck__(self, value):
        return isinstance(value, Handle) and _exact(value, "issubclass", bool, self)


class _Special:
    """What the test's object can do only if the program's can: see `handle`."""

    def __call__(self, *arguments, **named):
        mine = self._thing
        if mine.wanted:
            made = mine.judge.ask("new", self, *arguments, **named)
            if not isinstance(made, Handle | dict):  # a TypedDict makes one
                mine.judge.stop("rejected", "the program's class makes a plain value")
            return mine.judge.made(made, (self, arguments, named))
        result = mine.judge.ask("call", self, *arguments, **named)
        if mine.narrow and not isinstance(result, Handle | types.CoroutineType | None):
            mine.judge.refuse(mine)
        return result

    def __next__(self):
        try:
            return self._thing.judge.ask("next", self)
        except RuntimeError:
            if self._thing.judge.ended:
                raise StopIteration from None
            raise

    def __enter__(self):
        return self.__getattr__("__enter__")()

    def __exit__(self, *error):
        self._thing.judge.lost(error[1])
        return self.__getattr__("__exit__")(*_known(*error)) is True

    def __aiter__(self):
        return self._thing.judge.ask("aiter", self)

    async def __anext__(self):
        try:
            return self._thing.judge.ask("anext", self)
        except RuntimeError:
            if self._thing.judge.ended:
                raise StopAsyncIteration from None
            raise

    async def __aenter__(self):
        return await self.__getattr__("__aenter__")()

    async def __aexit__(self, *error):
        self._thing.judge.lost(error[1])
        return await self.__getattr__("__aexit__")(*_known(*error)) is True


def _known(kind, error, _) -> tuple:
    """What ends a with block, as an error of Python's own."""
    if kind is None:
        return (None, None, None)
    kind = next(c for c in kind.__mro__ if vars(builtins).get(c.__name__) is c)
    return (kind, error if type(error) is kind else kind(*error.args), None)


def _iterator(handle: Handle, operation: str):
    found = handle._thing.judge.ask(operation, handle)
    return found if isinstance(found, Handle) else iter(found)  # it may be its own


def _exact(handle: Handle, operation: str, kind: type, *more):
    """The answer, of exactly this type; any of `object`."""
    answer = handle._thing.judge.ask(operation, handle, *more)
    if kind not in (object, type(answer)):
        raise TypeError(f"the program answers {operation}() with a {type(answer).__name__}")
    return answer


def _asked(name: str, kind: type = object):
    return lambda self, *more: _exact(self, name, kind, *more)


def _of_items(name: str, asked, here):
    """A question about its items: `here`, of all at once, so that they cannot be others later."""

    def ask(self, *more):
        mine = self._thing
        if name == "contains" and mine.kin and not mine.recipe:
            mine.judge.refuse(mine)  # it could say yes to any; the test's own may be asked
        if mine.kin or (name == "getitem" and type(more[0]) not in (int, slice)):
            return asked(self, *more)
        if mine.items is None:
            mine.items = _exact(self, "list", list)
        return here(mine.items, *more)

    return ask


def _operator(name: str, swapped: bool = False):
    """An operator: it answers with a value only where no value of the test could tell which."""

    def operate(self, *other):
        others = [x for x in other if name != "round"]  # the digits say nothing of its value
        mine, objects = self._thing, all(isinstance(x, Handle) for x in others)
        told = not objects or mine.told or any(x._thing.told for x in others)
        known = mine.kin and objects and all(x._thing.kin for x in others)
        if (name in _TO_VALUES and not known) or not (objects or mine.kin):
            mine.judge.refuse(mine)
        result = mine.judge.ask(name, *((*other, self) if swapped else (self, *other)))
        if isinstance(result, Handle):
            result._thing.told |= told
        elif told or (name not in _ANSWERS and not known):
            mine.judge.refuse(mine)
        return result

    return operate


_TO_VALUES = ("abs", "int", "float", "complex", "index", "round")
_ANSWERS = ("lt", "le", "gt", "ge", *_TO_VALUES)
_FOR_ALL = {name: _operator(name) for name in _ANSWERS[:4]}
_FOR_ALL |= {name: _asked(name, str) for name in ("str", "repr", "format")}
_FOR_ALL |= {name: _asked(name) for name in ("setattr", "delattr", "dir")}
_FOR_ALL["hash"] = _asked("hash", int)
for _name, _method in _FOR_ALL.items():
    setattr(Handle, f"__{_name}__", _method)
Handle.__doc__ = property(lambda self: self._thing.judge.ask("getattr", self, "__doc__"))
_SOME = {name: _operator(name) for name in (*_TO_VALUES, "neg", "pos", "invert")}
_SOME |= {name: _asked(name) for name in ("setitem", "delitem")}
_SOME["len"] = _of_items("len", _asked("len", int), len)
_SOME["iter"] = _of_items("iter", lambda self: _iterator(self, "iter"), iter)
_SOME["contains"] = _of_items("contains", _asked("contains", bool), operator.contains)
_SOME["getitem"] = _of_items("getitem", _asked("getitem"), operator.getitem)
_SOME["reversed"] = lambda self: _iterator(self, "reversed")
for _name in "add sub mul truediv floordiv divmod mod pow matmul and or xor lshift rshift".split():
    _SOME |= {_name: _operator(f"__{_name}__"), f"i{_name}": _operator(f"i{_name}")}
    _SOME[f"r{_name}"] = _operator(f"__{_name}__", swapped=True)
SPECIAL = {name: method for name, method in vars(_Special).items() if callable(method)}
SPECIAL |= {f"__{name}__": method for name, method in _SOME.items()}


@functools.lru_cache(maxsize=256)
def _class_with(names: frozenset) -> type:
    own = {"__slots__": (), "__doc__": vars(Handle)["__doc__"]}
    return type("Handle", (Handle,), own | {x: SPECIAL[x] for x in names})


def handle(thing: Thing, names=()) -> Handle:
    """The object, with those special methods that its class in the program has.

    So `callable(f(1))` and `isinstance(f(1), Iterable)` hold for what is that, not for any object.
    """
    return _class_with(frozenset(SPECIAL).intersection(names))(thing)
