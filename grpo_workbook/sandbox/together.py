"""Program and test in one process, a fork of server.py: as pytest, unittest or Python would run it.

Its report is only complete with words that judge.py has drawn for this run: one stands in the test
behind each assertion, and the last one ends it. Standard library only.
"""

import contextlib
import io
import os
import socket
import sys
import sysconfig
import types

import candidate
import guard
import runner
import wire
from assertions import Doubt, DoubtfulAssertions, describe

PLACES = ("/tmp", "/")  # where a test may write, or at least stay


def run(sock: socket.socket) -> None:
    """Load the program, run the test, send the report."""
    send = wire.send  # before a program can change a module
    send(sock, ["ready"])
    job = wire.receive(sock)
    for name in job["imports"]:
        with contextlib.suppress(Exception):
            __import__(name)
    _make_room()
    libraries = _libraries()
    report = Report(libraries, job)
    # both before the program runs: it could change what they see
    modules = guard.Snapshot(job["imports"])
    builtin_names = dict(vars(sys.modules["builtins"]))
    if "hook" not in job["without"]:
        guard.watch(libraries)
    try:
        program, setup = _load(job)
        report.refuse_changes(modules)
        module = _make_test(job, program, setup, builtin_names, report)
        exec(compile(job["test"], "<test>", "exec", dont_inherit=True), vars(module))
        sys.modules.pop(module.__name__, None)
        for name in job["imported"]:  # in datasets, programs use what their test imports
            vars(program).setdefault(name, vars(module).get(name))
        runner.run(module, job["functions"], job["needs_pytest"], report.fail)
        report.refuse_changes(modules)
    except BaseException as error:
        report.fail(error)
    send(sock, [job["end"], report.doubt, report.words, report.errors_seen])


def _make_room() -> None:
    """What a test may expect of its process."""
    os.getuid = os.geteuid  # pytest compares it with the owner of its folder
    for place in PLACES:
        with contextlib.suppress(OSError):
            os.chdir(place)
            break
    sys.stdin = io.StringIO()
    sys.dont_write_bytecode = True


def _libraries() -> tuple[str, ...]:
    """How the file names of code begin that is neither the program's nor the test's."""
    paths = sysconfig.get_paths()
    folders = {paths["stdlib"], paths["platstdlib"], os.path.dirname(os.__file__)}
    folders.add(os.path.dirname(os.path.abspath(__file__)))
    folders.update(path for path in sys.path if os.path.isabs(path))
    return (*sorted(folders), "<frozen", "<test>", "<setup>")


def _load(job: dict) -> tuple[types.ModuleType, dict]:
    """The program's module, and what the setup defines."""
    program = types.ModuleType("solution")
    sys.modules["solution"] = sys.modules["__main__"] = program
    setup: dict = {}
    if job["setup"]:
        exec(compile(job["setup"], "<setup>", "exec", dont_inherit=True), vars(program))
        setup = dict(vars(program))
    candidate.load(program, job["program"])
    return program, setup


def _make_test(job: dict, program, setup: dict, builtin_names: dict, report) -> types.ModuleType:
    """The test's module, with the program's names and pristine built-in ones.

    Functions of the setup are trusted helpers: the program's own of that name do not replace them.
    """
    module = types.ModuleType("__test__")
    if job["has_classes"]:  # dataclasses look there, while the test is loaded
        sys.modules["__test__"] = module
    names = vars(module)
    for name, value in vars(program).items():
        if not (name.startswith("__") and name.endswith("__")):
            names[name] = value
    root = job["entry_point"].split(".")[0].split("(")[0]
    for name, value in setup.items():
        if isinstance(value, types.FunctionType) and name != root:
            names[name] = value
    names["_workbook"] = report
    names["__file__"] = "/tmp/test_it.py"
    names["__source__"] = job["test"]
    if "snapshot" not in job["without"]:
        names["__builtins__"] = builtin_names
    if job["entry_point"]:
        names["candidate"] = eval(job["entry_point"], names)
    return module


class Report(DoubtfulAssertions):
    """What the test has said so far."""

    def __init__(self, libraries: tuple[str, ...], job: dict):
        super().__init__(libraries, "ANY" in job["test"])
        self.without = job["without"]  # defences that benchmarks/code_rewards.py leaves out
        self.words: list[str] = []
        self.errors_seen: list[list] = []
        self.doubt = ""
        self.counted: BaseException | None = None  # the last error that cost an assertion
        pytest = sys.modules.get("pytest")
        if pytest is not None:
            self.errors = (Exception, pytest.fail.Exception)

    def _check(self, left, right, depth: int = 0) -> None:
        if "doubt" not in self.without:
            super()._check(left, right, depth)

    def held(self, word: str) -> None:
        """An assertion holds: its word goes into the report."""
        self.words.append(word)

    def lost(self, number: int, error: BaseException) -> None:
        """An assertion does not hold, or (number 0) something else has failed."""
        self.counted = error
        if isinstance(error, Doubt):
            self.doubt = str(error)
        self.errors_seen.append([number, *describe(error)])

    def fail(self, error: BaseException | None) -> None:
        """Note an error outside of all assertions."""
        if error is not None and error is not self.counted:
            self.lost(0, error)

    def refuse_changes(self, modules: guard.Snapshot) -> None:
        """A program may not change what judges it."""
        changed = modules.changed()
        if changed and "snapshot" not in self.without:
            raise PermissionError(f"the program changes {changed}")
