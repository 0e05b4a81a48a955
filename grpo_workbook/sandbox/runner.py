"""Runs the functions and classes of a test as pytest and unittest do, without a file."""

import os
import sys
import types
from collections.abc import Callable

# Of pytest's own plugins these would write files, print, or change how errors are caught.
NO_PLUGINS = """cacheprovider terminal faulthandler doctest junitxml pastebin nose stepwise
debugging setuponly setupplan threadexception unraisableexception logging""".split()


def run_coroutine(coroutine):
    """What a coroutine returns."""
    import asyncio  # not above: each fork of the server costs what it has in memory

    return asyncio.run(coroutine)


class Skipped(Exception):
    """A test was skipped, and so has judged nothing."""


def call_all(module: types.ModuleType, functions: list[str], fail: Callable) -> None:
    """Call these functions of a test; one that has a parameter gets the candidate.

    `fail` is called with the error of each that raises one.
    """
    for name in functions:
        function = getattr(module, name)
        parameters = function.__code__.co_argcount - len(function.__defaults__ or ())
        arguments = []
        if parameters > 0:
            arguments.append(getattr(module, "candidate", None))
        try:
            result = function(*arguments)
            if isinstance(result, types.CoroutineType):
                run_coroutine(result)
        except BaseException as error:
            fail(error)


def run(module: types.ModuleType, job: dict, fail: Callable) -> None:
    """Run the test functions and classes of the module; `fail` is called with each error."""
    if "pytest" in job["modules"]:
        others = [name for name in job["functions"] if not name.startswith("test")]
        call_all(module, others, fail)
        _run_pytest(module, job["text"], fail)
        return
    call_all(module, job["functions"], fail)
    unittest = sys.modules.get("unittest")
    if unittest is None:
        return
    # the words of a difference take hours for long lists, and nobody reads them
    unittest.case.difflib = types.SimpleNamespace(ndiff=lambda *_: ())
    for member in list(vars(module).values()):
        is_own = isinstance(member, type) and member.__module__ == module.__name__
        if is_own and issubclass(member, unittest.TestCase):
            _run_unittest(unittest, member, fail)


def _run_unittest(unittest, case_class: type, fail: Callable) -> None:
    result = unittest.TestResult()

    def failed(*details) -> None:
        if details[-1] is not None:  # None: a subtest passed
            fail(details[-1][1])

    result.addError = result.addFailure = result.addSubTest = failed
    unittest.defaultTestLoader.loadTestsFromTestCase(case_class).run(result)
    for _ in result.unexpectedSuccesses:
        fail(AssertionError("a test that should fail has passed"))
    for test, why in result.skipped:
        method = getattr(test, test._testMethodName)
        if not (hasattr(case_class, "__unittest_skip__") or hasattr(method, "__unittest_skip__")):
            fail(Skipped(why))  # it is not marked: what the program did made the test skip itself


def _run_pytest(module: types.ModuleType, text: str, fail: Callable) -> None:
    """Run pytest on a module that has no file."""
    import pytest

    candidate = getattr(module, "candidate", None)
    if candidate is not None:
        vars(module)["candidate"] = pytest.fixture(name="candidate")(lambda: candidate)
    keeps_logging = "caplog" in text
    options = ["-s", "-c", os.devnull, "--rootdir", os.getcwd(), "--noconftest"]
    for name in NO_PLUGINS:
        if not (keeps_logging and name == "logging"):
            options.extend(["-p", f"no:{name}"])
    code = pytest.main(options, plugins=[_make_plugin(module, fail)])
    if code not in (0, 1, 5):  # passed, failed, nothing to run
        fail(ImportError(f"pytest ended with {code!r}"))


def _make_plugin(module: types.ModuleType, fail: Callable):
    """A plugin of pytest that collects the tests of `module`, and nothing from files.

    It also runs coroutines, and gives `fail` the error of each test that does not pass.
    """
    import inspect
    from pathlib import Path

    import pytest

    class Module(pytest.Module):
        def _getobj(self):
            return module

    class Plugin:
        def pytest_collection(self, session):
            collector = Module.from_parent(session, path=Path(os.getcwd(), "test_it.py"))
            session.items = list(session.genitems(collector))
            session.testscollected = len(session.items)
            return True

        @pytest.hookimpl(tryfirst=True)
        def pytest_pyfunc_call(self, pyfuncitem):
            function = pyfuncitem.obj
            if not inspect.iscoroutinefunction(function):
                return None
            names = inspect.signature(function).parameters
            run_coroutine(function(**{name: pyfuncitem.funcargs[name] for name in names}))
            return True

        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_makereport(self, item, call):
            report = yield
            if report.failed:
                error = AssertionError(str(report.longrepr)[-300:])
                fail(call.excinfo.value if call.excinfo else error)
            return report

        def pytest_collectreport(self, report):
            if report.failed:
                fail(ImportError(str(report.longrepr)[-300:]))

    return Plugin()
