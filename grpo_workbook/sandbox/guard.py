"""Keeps a program from its test where both are in one process. Standard library only.

An audit hook refuses what gives a program the test's frames, code or objects, and a snapshot shows
what it has changed in the modules that judge. A program that knows both can get around them: see
docs/measurements.md for what is known to pass.
"""

import sys

# What gives a program frames or code that are not its own.
FRAMES = frozenset(
    """sys._getframe sys._current_frames sys._current_exceptions sys.settrace sys.setprofile
    sys.addaudithook sys.monitoring.register_callback gc.get_objects gc.get_referrers
    gc.get_referents code.__new__ function.__new__""".split()
)
READ_ATTRIBUTE = "object.__getattr__"
ATTRIBUTES = frozenset(("tb_frame", "f_code", "gi_frame", "cr_frame", "ag_frame", "__code__"))
# Modules of Python that hand such things on to whoever calls them.
HANDS_ON = frozenset(("inspect", "traceback", "dis", "threading"))
# Modules that judge, beside those that the test imports.
JUDGING = """builtins operator math json unittest unittest.case unittest.mock pytest
_pytest.python_api _pytest.raises _pytest.recwarn _pytest.outcomes numpy.testing""".split()


def watch(libraries: tuple[str, ...]) -> None:
    """Refuse such events to code that is not from files in `libraries`, from now on."""
    # a program may change modules, but no variables in here
    get_frame, starts_with, refused = sys._getframe, str.startswith, FRAMES
    attributes, hands_on, is_in = ATTRIBUTES, HANDS_ON, frozenset.__contains__
    get, make_error = dict.get, PermissionError
    inside = []  # while the hook itself reads frames

    def hook(event: str, arguments: tuple) -> None:
        if event == READ_ATTRIBUTE:
            if not is_in(attributes, arguments[1]):
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
            while frame is not None and is_in(hands_on, get(frame.f_globals, "__name__") or ""):
                if event == READ_ATTRIBUTE and arguments[1] == "__code__":
                    return  # for `inspect.signature`
                frame = frame.f_back
            if frame is None or starts_with(frame.f_code.co_filename, libraries):
                return
        finally:
            inside.clear()
        raise make_error(f"{event} is not for programs here")

    sys.addaudithook(hook)


class Snapshot:
    """The functions and classes of modules, and the methods of these classes, as they are now."""

    def __init__(self, names: list[str]):
        self.places: dict[str, tuple[object, dict]] = {}
        for name in [*JUDGING, *names]:
            module = sys.modules.get(name)
            if module is None:
                continue
            functions = _callables(module)
            self.places[name] = module, functions
            for key, value in functions.items():
                if isinstance(value, type) and value.__module__ == name:
                    self.places[f"{name}.{key}"] = value, _callables(value)

    def refuse_changes(self) -> None:
        """PermissionError if a name now stands for something else."""
        for place, (owner, functions) in self.places.items():
            present = vars(owner)
            for name, function in functions.items():
                if present.get(name) is not function:
                    raise PermissionError(f"the program changes {place}.{name}")


def _callables(owner) -> dict:
    kinds = classmethod | staticmethod
    named = vars(owner).items()
    return {name: value for name, value in named if callable(value) or isinstance(value, kinds)}
