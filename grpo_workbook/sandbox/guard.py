"""Keeps a program from its test where both are in one process. Standard library only.

An audit hook refuses what gives a program the test's frames, code or objects, and a snapshot shows
what it has changed in what judges. A program that knows both can get around them: see
docs/measurements.md for what is known to pass.
"""

import sys
import types
from collections.abc import Sequence

# Events that give a program frames or code that are not its own.
FRAMES = frozenset(
    """sys._getframe sys._current_frames sys._current_exceptions sys.settrace sys.setprofile
    sys.addaudithook sys.monitoring.register_callback gc.get_objects gc.get_referrers
    gc.get_referents code.__new__ function.__new__ marshal.loads""".split()
)
READ_ATTRIBUTE, WRITE_ATTRIBUTE = "object.__getattr__", "object.__setattr__"
# What leads from an object to a frame, or from a function to its code.
READ_REFUSED = frozenset(("tb_frame", "f_code", "gi_frame", "cr_frame", "ag_frame", "__code__"))
# What changes a function and leaves it the same object, so that no snapshot shows the change.
WRITE_REFUSED = frozenset(("__code__", "__defaults__", "__kwdefaults__"))
# Modules of libraries that hand such things on to whoever calls them.
HANDS_ON = frozenset(
    "inspect traceback dis threading bdb pdb trace profile _pytest._code.code".split()
)
# Modules that judge, beside those that the test imports.
JUDGING = """builtins operator math json unittest unittest.case unittest.async_case unittest.mock
pytest _pytest.python_api _pytest.raises _pytest.recwarn _pytest.outcomes numpy.testing
numpy.testing._private.utils numpy._core.numeric numpy.core.numeric""".split()


def watch(libraries: tuple[str, ...]) -> None:
    """Refuse such events, with a PermissionError, to a program from now on.

    `libraries` says how the file names of all other code begin.
    """
    # a program may change modules, but no variables in here
    get_frame, starts_with, refused = sys._getframe, str.startswith, FRAMES
    no_reading, no_writing, hands_on = READ_REFUSED, WRITE_REFUSED, HANDS_ON
    get, is_in, make_error = dict.get, frozenset.__contains__, PermissionError
    inside = []  # while the hook itself reads frames

    def hook(event: str, arguments: tuple) -> None:
        if event == READ_ATTRIBUTE:
            if not is_in(no_reading, arguments[1]):
                return
        elif event == WRITE_ATTRIBUTE:
            if not is_in(no_writing, arguments[1]):
                return
        elif event == "compile":
            # under the name of a file of a library, its code would be trusted here
            name = arguments[1]
            if type(name) is not str or not starts_with(name, libraries):
                return
        elif not is_in(refused, event) and not starts_with(event, "ctypes."):
            return
        if inside:
            return
        inside.append(event)
        try:
            frame = get_frame(1)
            is_first = True
            # The file name decides, for a program may give its module any `__name__`.
            while frame is not None and starts_with(frame.f_code.co_filename, libraries):
                module = get(frame.f_globals, "__name__") or ""
                # logging needs its own `currentframe`, which any other may call, too
                if not (is_in(hands_on, module) or (is_first and module == "logging")):
                    return
                if event == READ_ATTRIBUTE and arguments[1] == "__code__":
                    return  # for `inspect.signature`
                frame = frame.f_back
                is_first = False
            if frame is None:
                return
        finally:
            inside.clear()
        raise make_error(f"{event} is not for programs here")

    sys.addaudithook(hook)


class Snapshot:
    """Modules that judge, their functions and classes, and the methods of these, as they are now.

    Parameters
    ----------
    names
        The modules that the test imports. Those that are not loaded are left out.
    classes
        Classes that are in no module.
    """

    def __init__(self, names: Sequence[str], classes: Sequence[type]):
        self.modules: dict[str, tuple[types.ModuleType, type]] = {}
        self.functions: dict[str, tuple[types.ModuleType, dict]] = {}
        self.methods: dict[str, tuple[type, dict]] = {}
        for cls in classes:
            self.methods[cls.__name__] = cls, _callables(cls)
        for name in [*JUDGING, *names]:
            module = sys.modules.get(name)
            if module is None:
                continue
            functions = _callables(module)
            self.modules[name] = module, type(module)
            self.functions[name] = module, functions
            for key, value in functions.items():
                if isinstance(value, type) and value.__module__ == name:
                    self.methods[f"{name}.{key}"] = value, _callables(value)

    def refuse_changes(self) -> None:
        """PermissionError if a name now stands for something else, or a class has a new method."""
        for name, (module, cls) in self.modules.items():
            if sys.modules.get(name) is not module or type(module) is not cls:
                raise PermissionError(f"the program replaces the module {name}")
        for place, (owner, functions) in [*self.functions.items(), *self.methods.items()]:
            present = vars(owner)
            for name, function in functions.items():
                if present.get(name) is not function:
                    raise PermissionError(f"the program changes {place}.{name}")
        # a new `__getattribute__` stands before all others, a new method before an inherited one
        for place, (cls, functions) in self.methods.items():
            for name in _callables(cls).keys() - functions.keys():
                raise PermissionError(f"the program adds {place}.{name}")


def _callables(owner) -> dict:
    kinds = classmethod | staticmethod
    named = vars(owner).items()
    return {name: value for name, value in named if callable(value) or isinstance(value, kinds)}
