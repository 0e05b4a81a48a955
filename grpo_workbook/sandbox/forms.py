"""A test's functions and classes, run as pytest and unittest run them. Standard library only."""

import asyncio
import inspect
import os
import re
import sys
import types
import unittest


def _parameters(function) -> list[dict]:
    """The arguments of each case of pytest's `parametrize`."""
    cases: list[dict] = [{}]
    for mark in getattr(function, "pytestmark", []):
        if mark.name == "parametrize":
            names, rows = [*mark.args, *mark.kwargs.values()][:2]
            names = re.findall(r"\w+", names) if isinstance(names, str) else [*names]
            marks = [{m.name for m in getattr(x, "marks", ())} for x in rows]
            rows = [x for x, m in zip(rows, marks, strict=True) if not m & {"skip", "xfail"}]
            rows = [x.values if hasattr(x, "marks") else x if len(names) > 1 else [x] for x in rows]
            cases = [c | dict(zip(names, row, strict=True)) for c in cases for row in rows]
    return cases


def _holds(mark) -> bool:
    """Whether the condition of `skipif` or `xfail` is true; a text is Python."""
    found = mark.args[0] if mark.args else mark.kwargs.get("condition", True)
    return bool(eval(found, {"sys": sys, "os": os}) if isinstance(found, str) else found)


def _marker(fixture):
    """What a pytest fixture says of itself; None for anything else."""
    is_one = hasattr(type(fixture), "_get_wrapped_function")
    return fixture._fixture_function_marker if is_one else None


class Forms:
    """Runs what is in `names`, the test's module; `fail_one` counts what it raises."""

    names: dict
    raised_one: bool  # whether the program has raised an error

    def run_function(self, function, *owner) -> None:
        """Call a test function: `check` and the parameter `candidate` get the candidate."""
        marks = getattr(function, "pytestmark", [])
        if any(m.name == "skip" or (m.name in ("skipif", "xfail") and _holds(m)) for m in marks):
            return
        open_fixtures: list = []
        there = [*self.names.items(), *vars(type(owner[0]) if owner else object).items()]
        autouse = [n for n, x in there if getattr(_marker(x), "autouse", False)]
        for name in [*autouse, *(x for m in marks if m.name == "usefixtures" for x in m.args)]:
            self._fixture(name, open_fixtures, *owner)
        code = getattr(function, "__code__", None)
        needs = code.co_argcount - len(function.__defaults__ or ()) if code else 0
        takes = code.co_varnames[len(owner) : needs] if code else ()
        for case in _parameters(function):
            left = [x for x in takes if x not in case]
            if left == ["candidate"] or (len(left) == 1 and function.__name__ == "check"):
                case[left.pop()] = self.names["candidate"]
            case |= {name: self._fixture(name, open_fixtures, *owner) for name in left}
            result = function(*owner, **case)
            if isinstance(result, types.CoroutineType):
                asyncio.run(result)
        for fixture in reversed(open_fixtures):
            next(fixture, None)

    def _fixture(self, name: str, opened: list, *owner):
        """The value of a fixture of the test's own; its generator goes to `opened`."""
        fixture = getattr(owner[0], name, None) if owner else None
        fixture = fixture if _marker(fixture) else self.names.get(name)
        if not _marker(fixture):
            raise ImportError(f"a test function needs {name!r}")
        wrapped = fixture._get_wrapped_function()
        needs = inspect.signature(wrapped).parameters
        made = wrapped(**{x: self._fixture(x, opened, *owner) for x in needs})
        if not isinstance(made, types.GeneratorType):
            return made
        opened.append(made)
        return next(made)

    def run_class(self, kind: type) -> None:
        """Run a unittest.TestCase, or a class of test functions as pytest does."""
        if issubclass(kind, unittest.TestCase):
            result = unittest.TestResult()
            result.addError = result.addFailure = result.addSubTest = self._from_unittest
            unittest.defaultTestLoader.loadTestsFromTestCase(kind).run(result)
            for _ in result.unexpectedSuccesses:
                self.fail_one(AssertionError("a test that should fail has passed"))
            for _, why in result.skipped if self.raised_one else ():
                self.fail_one(unittest.SkipTest(why), outside=True)
        elif kind.__name__.startswith("Test"):
            for inner in [x for x in vars(kind).values() if isinstance(x, type)]:
                self.run_class(inner)
            for name in [x for x in dir(kind) if x.startswith("test")]:
                one = kind()
                steps = f"setup_class setup_method {name} teardown_method teardown_class"
                for step in steps.split():
                    if step == name:
                        self.run_function(getattr(kind, name), one)
                    elif part := getattr(one, step, None):  # it may take the method
                        part(*[None] * (part.__code__.co_argcount - 1))

    def _from_unittest(self, *found) -> None:
        if found[-1] is not None:  # None: a subtest passed
            self.fail_one(found[-1][1], outside=True)
