"""Program and test in one process, a fork of server.py: as pytest, unittest or Python would run it.

Its report is only complete with tokens that pool.py has drawn for this run: one stands in the test
behind each assertion, and the first one ends it. Standard library only.
"""

import contextlib
import io
import os
import socket
import sys
import types

import candidate
import guard
import runner
import wire
from assertions import NoAnswer, Report

PLACES = ("/tmp", "/")  # where a test may write, or at least stay


def run(sock: socket.socket) -> None:
    """Load the program, run the test, send the report."""
    send = wire.send  # before a program can change a module
    send(sock, "ready")
    job = wire.receive(sock)
    _make_room()
    libraries = guard.library_places()
    report = Report(job, libraries)
    # both before the program runs: it could change what they see
    judges = (Report, guard.Snapshot)  # `object.__subclasses__()` has them
    snapshot = guard.Snapshot(job["modules"], judges)
    refuse_changes = snapshot.refuse_changes
    builtin_names = dict(vars(sys.modules["builtins"]))
    guard.watch(libraries)
    try:
        program, setup = _load(job)
        refuse_changes()
        module = _make_test(job, program, setup, builtin_names, report)
        exec(compile(job["text"], "<test>", "exec", dont_inherit=True), vars(module))
        sys.modules.pop(module.__name__, None)
        runner.run(module, job, report.fail)
        refuse_changes()
    except BaseException as error:
        report.fail(error)
    send(sock, [job["end"], report.tokens, report.failures])


def _make_room() -> None:
    """What a test may expect of its process."""
    os.getuid = os.geteuid  # pytest compares it with the owner of its folder
    for place in PLACES:
        with contextlib.suppress(OSError):
            os.chdir(place)
            break
    sys.stdin = io.StringIO()


def _load(job: dict) -> tuple[types.ModuleType, dict]:
    """The program's module, and what the setup defines."""
    program = types.ModuleType("solution")
    sys.modules["solution"] = sys.modules["__main__"] = program
    setup: dict = {}
    if job["setup"]:
        exec(compile(job["setup"], "<setup>", "exec", dont_inherit=True), vars(program))
        setup = dict(vars(program))
    try:
        candidate.load(program, job["program"])
    except ImportError:  # of what may not be installed here
        raise
    except BaseException as error:
        raise NoAnswer(*candidate.describe(error)) from None
    return program, setup


def _make_test(job: dict, program, setup: dict, builtin_names: dict, report) -> types.ModuleType:
    """The test's module, with the program's names and pristine built-in ones.

    Functions of the setup are trusted helpers: the program's own of that name do not replace them.
    """
    module = types.ModuleType("__test__")
    if "class " in job["text"]:
        # dataclasses look up the module of a class; the real one would lead a program to the report
        sys.modules["__test__"] = types.ModuleType("__test__")
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
    names["__builtins__"] = builtin_names
    if job["entry_point"]:
        names["candidate"] = eval(job["entry_point"], names)
    return module
