"""Keeps a program from its test where both are in one process. Standard library only.

An audit hook refuses what gives a program the test's frames, code or objects, and a snapshot shows
what it has changed in what judges. A program that knows both can get around them: see
docs/measurements.md for what is known to pass.
"""

import os
import sys
import sysconfig
import types
from collections.abc import Callable, Sequence

# Events that give a program frames or code that are not its own.
FRAMES = frozenset(
    """sys._getframe sys._current_frames sys._current_exceptions sys.settrace sys.setprofile
    sys.addaudithook sys.monitoring.register_callback gc.get_objects gc.get_referrers
    gc.get_referents code.__new__ function.__new__ marshal.loads""".split()
)
# What leads from an object to a frame, or from a function to its code.
READ_REFUSED = frozenset(("tb_frame", "f_code", "gi_frame", "cr_frame", "ag_frame", "__code__"))
# What changes a function and leaves it the same object, so that no snapshot shows the change.
WRITE_REFUSED = frozenset(("__code__", "__defaults__", "__kwdefaults__"))
# Modules of libraries that hand such things on to whoever calls them.
HANDS_ON = frozenset(
    """inspect traceback dis threading bdb pdb trace profile contextlib concurrent.futures.thread
    _pytest._code.code""".split()
)
# Modules that judge, beside those that the test imports. The last two are the sandbox's own: their
# classes are in `object.__subclasses__()`, which a program can call.
JUDGING = """builtins operator math json unittest unittest.case unittest.async_case unittest.mock
pytest _pytest.python_api _pytest.raises _pytest.recwarn _pytest.outcomes numpy.testing
numpy.testing._private.utils numpy._core.numeric numpy.core.numeric assertions guard""".split()


def library_places() -> tuple[str, ...]:
    """How the file names of code begin that is neither the program's nor the test's."""
    paths = sysconfig.get_paths()
    folders = {paths["stdlib"], paths["platstdlib"], os.path.dirname(os.__file__)}
    folders.add(os.path.dirname(os.path.abspath(__file__)))
    folders.update(path for path in sys.path if os.path.isabs(path))
    return (*sorted(folders), "<frozen", "<test>", "<setup>")


def _make_filter(libraries: tuple[str, ...]) -> Callable[[str, tuple], bool]:
    """A function that says whether an event, with its arguments, is one to refuse to a program."""
    # a program may change modules, but no variables in here
    starts_with, is_in = str.startswith, frozenset.__contains__
    refused, no_reading, no_writing = FRAMES, READ_REFUSED, WRITE_REFUSED

    def is_dangerous(event: str, arguments: tuple) -> bool:
        if event == "object.__getattr__":
            return is_in(no_reading, arguments[1])
        if event == "object.__setattr__":
            return is_in(no_writing, arguments[1])
        if event == "compile":
            # under the name of a file of a library, its code would be trusted here
            name = arguments[1]
            return type(name) is str and starts_with(name, libraries)
        return is_in(refused, event) or starts_with(event, "ctypes.")

    return is_dangerous


def watch(libraries: tuple[str, ...]) -> None:
    """Refuse dangerous events, with a PermissionError, to a program from now on.

    `libraries` says how the file names of all other code begin.
    """
    # as above: no names of this module, which a program may change
    get_frame, starts_with, hands_on = sys._getframe, str.startswith, HANDS_ON
    get, is_in, make_error = dict.get, frozenset.__contains__, PermissionError
    is_dangerous = _make_filter(libraries)
    inside = []  # while the hook itself reads frames

    def hook(event: str, arguments: tuple) -> None:
        if inside or not is_dangerous(event, arguments):
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
                if event == "object.__getattr__" and arguments[1] == "__code__":
                    return  # for `inspect.signature`
                frame = frame.f_back
                is_first = False
        finally:
            inside.clear()
        raise make_error(f"{event} is not for programs here")

    sys.addaudithook(hook)


class Snapshot:
    """Modules that judge, their functions and classes, and the methods of these, as they are now.

    Args:
        names: the modules that the test imports. Those that are not loaded are left out.
        classes: classes that are in no module.
    """

    def __init__(self, names: Sequence[str], classes: Sequence[type]):
        self.modules: dict[str, tuple[types.ModuleType, type]] = {}
        self.places: dict[str, tuple[object, dict]] = {}
        for cls in classes:
            self.places[cls.__name__] = cls, _callables(cls)
        for name in [*JUDGING, *names]:
            module = sys.modules.get(name)
            if module is None:
                continue
            functions = _callables(module)
            self.modules[name] = module, type(module)
            self.places[name] = module, functions
            for key, value in functions.items():
                if isinstance(value, type) and value.__module__ == name:
                    self.places[f"{name}.{key}"] = value, _callables(value)

    def refuse_changes(self) -> None:
        """PermissionError if a name now stands for something else, or a class has a new method."""
        for name, (module, cls) in self.modules.items():
            if sys.modules.get(name) is not module or type(module) is not cls:
                raise PermissionError(f"the program replaces the module {name}")
        for place, (owner, functions) in self.places.items():
            present = _callables(owner)
            for name, function in functions.items():
                if present.get(name) is not function:
                    raise PermissionError(f"the program changes {place}.{name}")
            # a new `__getattribute__` stands before all methods, others before inherited ones
            if not isinstance(owner, type) or owner.__module__ not in JUDGING:
                continue  # some packages complete their classes later
            if len(present) > len(functions):
                new = min(present.keys() - functions.keys())
                raise PermissionError(f"the program adds {place}.{new}")


def _callables(owner) -> dict:
    kinds = classmethod | staticmethod
    named = vars(owner).items()
    return {name: value for name, value in named if callable(value) or isinstance(value, kinds)}
