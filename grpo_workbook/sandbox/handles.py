"""The program's objects, as the test sees them: each question goes over the wire.

An object must not answer where the test expects a value: `assert abs(f(2) - 5) < 1e-6` holds for
any object whose operators say so. So only an object that the test itself has *made*, by calling a
class of the program, answers everything. Any other is never equal to a value, has no arithmetic
with values, and what it says to a method that plain values have (`startswith`) must be an object
again. Standard library only.
"""

_ASKED = ("__name__", "__qualname__", "__doc__")
_NOTHING = (None, NotImplemented)


class Thing:
    """What the judge knows of an object: its number in the candidate, its classes, its rights."""

    def __init__(self, judge, place: int, what: str, module: str, names: list[str], fields: dict):
        self.judge, self.place, self.what, self.module = judge, place, what, module
        self.names, self.fields = names, fields
        self.made = self.narrow = False  # narrow: its answer must be an object
        self.items: list | None = None  # of one that the test has not made, all at once


class Handle:
    """An object of the program. What the test does with it is done in the candidate."""

    __slots__ = ("_thing",)

    def __init__(self, thing: Thing):
        object.__setattr__(self, "_thing", thing)

    def __mro_entries__(self, bases):
        self._thing.judge.untestable("the test derives a class from a class of the program")

    def __reduce_ex__(self, _):
        self._thing.judge.untestable("the test copies an object of the program")

    def __getattr__(self, name: str):
        if name.startswith("__") and name.endswith("__") and name not in _ASKED:
            raise AttributeError(name)
        mine = self._thing
        if name in mine.fields and not mine.made:
            return mine.fields[name]
        result = mine.judge.ask("getattr", self, name)
        mine.items = None
        if not mine.made and name not in _ASKED and mine.judge.is_plain_name(name):
            if type(result) is not Handle:
                mine.judge.refuse(mine)
            result._thing.narrow = True
        return result

    def __setattr__(self, name: str, value) -> None:
        self._thing.judge.ask("setattr", self, name, value)

    def __delattr__(self, name: str) -> None:
        self._thing.judge.ask("delattr", self, name)

    def __call__(self, *arguments, **named):
        mine = self._thing
        mine.fields = {} if mine.what != "class" else mine.fields
        if mine.what == "class" and mine.made:
            return mine.judge.own(mine.judge.ask("new", self, *arguments, **named))
        result = mine.judge.ask("call", self, *arguments, **named)
        if mine.narrow and type(result) is not Handle and result not in _NOTHING:
            mine.judge.refuse(mine)
        return result

    def __eq__(self, other):
        mine = self._thing
        if type(other) is Handle:
            if mine.place == other._thing.place:
                return True
            return mine.judge.ask("eq", self, other) is True
        if mine.made and mine.what != "class":
            return mine.judge.ask("eq", self, other) is True
        if mine.names[:1] == [type(other).__name__] and type(other).__module__ != "__test__":
            mine.judge.untestable(
                f"a value of type {mine.module}.{mine.names[0]} cannot be compared"
            )
        return False

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return _exact(self, "hash", int)

    def __str__(self):
        return _exact(self, "str", str)

    def __repr__(self):
        return _exact(self, "repr", str)

    def __format__(self, how: str):
        return _exact(self, "format", str, how)

    def __bool__(self):
        return _exact(self, "bool", bool) if self._thing.made else True

    def __instancecheck__(self, value):
        return type(value) is Handle and _exact(value, "isinstance", bool, self)

    def __subclasscheck__(self, value):
        return type(value) is Handle and _exact(value, "issubclass", bool, self)

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
        entered = self._thing.judge.ask("call", self._thing.judge.ask("getattr", self, "__enter__"))
        same = type(entered) is Handle and entered._thing.place == self._thing.place
        return self if same else entered

    def __exit__(self, *_):
        leave = self._thing.judge.ask("getattr", self, "__exit__")
        return self._thing.judge.ask("call", leave, None, None, None) is True


def _exact(handle: Handle, operation: str, kind: type, *more):
    """The answer, of exactly this type."""
    answer = handle._thing.judge.ask(operation, handle, *more)
    if type(answer) is not kind:
        raise TypeError(f"the program answers {operation}() with a {type(answer).__name__}")
    return answer


def _items(handle: Handle) -> list:
    """All items at once, so that a program cannot show other items at a second look."""
    mine = handle._thing
    if mine.items is None:
        mine.items = mine.judge.ask("list", handle)
        if type(mine.items) is not list:
            raise TypeError(f"the program lists a {type(mine.items).__name__}")
    return mine.items


def _one(operation: str, is_object: bool = False):
    def ask(self, *more):
        mine = self._thing
        if not (mine.made or is_object):
            mine.judge.refuse(mine)
        result = mine.judge.ask(operation, self, *more)
        if type(result) is Handle and mine.made:
            return mine.judge.own(result)
        return result if mine.made or type(result) is Handle else mine.judge.refuse(mine)

    return ask


def _two(operation: str, swapped: bool = False):
    def ask(self, other):
        mine, both = self._thing, type(other) is Handle
        if not (both or mine.made):
            mine.judge.refuse(mine)
        free = both and mine.made and other._thing.made
        result = mine.judge.ask(operation, *((other, self) if swapped else (self, other)))
        if type(result) is Handle:
            if mine.made and result._thing.place == mine.place:
                return self  # changed in place
            return mine.judge.own(result) if free else result
        return result if free or operation in _ORDER else mine.judge.refuse(mine)

    return ask


_ORDER = ("lt", "le", "gt", "ge")
_ARITHMETIC = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
_SAME_NAME = {"and": "and_", "or": "or_"}
for _name in _ARITHMETIC:
    setattr(Handle, f"__{_name}__", _two(_SAME_NAME.get(_name, _name)))
    setattr(Handle, f"__r{_name}__", _two(_SAME_NAME.get(_name, _name), swapped=True))
    setattr(Handle, f"__i{_name}__", _two("i" + _name))
for _name in _ORDER:
    setattr(Handle, f"__{_name}__", _two(_name))
for _name in "neg pos invert".split():
    setattr(Handle, f"__{_name}__", _one(_name, is_object=True))
for _name in "abs int float complex index round".split():
    setattr(Handle, f"__{_name}__", _one(_name))
for _name in "setitem delitem".split():
    setattr(
        Handle,
        f"__{_name}__",
        lambda self, *more, _name=_name: self._thing.judge.ask(_name, self, *more),
    )
Handle.__reversed__ = lambda self: iter([*self][::-1])
Handle.__doc__ = property(lambda self: self._thing.judge.ask("getattr", self, "__doc__"))  # type: ignore
