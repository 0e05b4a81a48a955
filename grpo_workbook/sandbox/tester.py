"""Runs a test by value, in a fork of server.py: it asks another process for the program's answers.

Only plain values cross, and the expected ones never leave this process. It judges programs by one
test until pool.py hangs up. Standard library only.
"""

import _thread
import contextlib
import functools
import socket
import sys
import types
from typing import Any

import guard
import runner
import wire
from assertions import NoAnswer, Report
from json_tests import same_output, same_value

OUTCOMES = ("error", "out of memory", "rejected")  # that a program's process can report


def run(sock: socket.socket) -> None:
    """Judge programs: for each a message comes, and a report goes back."""
    wire.send(sock, "ready")
    libraries = guard.library_places()
    while True:
        job = wire.receive(sock)
        report = Report(job, libraries)
        program = Program(sock)
        try:
            _run_test(job, program, report)
        except BaseException as error:  # pytest's and sys.exit's too
            report.fail(error)
        if not program.calls:
            report.fail(NoAnswer("rejected", "the test never calls the candidate", "test"))
        program.end()
        wire.send(sock, [job["end"], report.tokens, report.failures])


def _run_test(job: dict, program: "Program", report: Report) -> None:
    module = types.ModuleType("__test__")
    solution = types.ModuleType("solution")
    vars(solution).update(__all__=job["free"], __getattr__=program.member)
    sys.modules["solution"] = solution
    names = vars(module)
    names["_workbook"] = report
    if job["is_script"]:
        names["_same"] = same_output
        names["candidate"] = program.run_script
    else:
        names["_same"] = _is_one_of
        program.start()
        exec(_compiled(job["setup"], "<setup>"), names)  # while the program is loaded
        program.read_answer()
        for name in job["asked"]:
            names[name] = program.function(name)
        names["candidate"] = program.function(job["entry_point"])
    # the functions that it defines run afterwards, as pytest would call them
    exec(_compiled(job["text"], "<test>"), names)
    runner.call_all(module, job["functions"], report.fail)


@functools.lru_cache(maxsize=2)
def _compiled(text: str, name: str) -> types.CodeType:
    return compile(text, name, "exec", dont_inherit=True)


def _is_one_of(answer, results: list) -> bool:
    return any(same_value(answer, result) for result in results)


class Program:
    """The process with the program, as the test sees it.

    `caller` leads to pool.py, which starts the process; `calls` counts what the test has asked.
    """

    def __init__(self, caller: socket.socket):
        self.caller = caller
        self.sock: Any = None
        self.calls = 0

    def start(self) -> None:
        """Have pool.py start a process with the program, in place of the one before."""
        self.end()
        wire.send(self.caller, "start")
        _, descriptors, _, _ = socket.recv_fds(self.caller, 1, 1)
        self.sock = socket.socket(fileno=descriptors[0])
        self.sock.setblocking(True)  # pool.py had it with a time limit

    def end(self) -> None:
        """Hang up: the test's functions may keep this object for long."""
        if self.sock is not None:
            self.sock.close()

    def member(self, name: str):
        """What stands in the test for a name of `solution`; AttributeError for `__file__`."""
        if name.startswith("__"):
            raise AttributeError(name)
        return self.function(name)

    def function(self, expression: str):
        """What stands for a function of the program, which this expression finds there."""

        def stub(*arguments, **named):
            return self.call(expression, arguments, named)

        return stub

    def call(self, expression: str, arguments, named: dict):
        """What the program's function answers; NoAnswer if there is none."""
        self.calls += 1
        try:
            message = [expression, wire.encode(tuple(arguments)), wire.encode(named)]
            wire.send(self.sock, message)
        except (wire.NotPlain, RecursionError) as problem:
            raise NoAnswer("rejected", f"the test passes {problem}", "test") from None
        except OSError:
            raise NoAnswer("error", wire.ENDED) from None
        return self.read_answer()

    def read_answer(self):
        """The value of the next answer; NoAnswer for anything else."""
        answer = None
        try:
            answer = wire.receive(self.sock)
        except (EOFError, OSError):
            raise NoAnswer("error", wire.ENDED) from None
        except (ValueError, RecursionError):
            pass
        match answer:
            case ["value", value]:
                with contextlib.suppress(Exception):  # what cannot be decoded is no answer: below
                    return wire.decode(value)
            case [str(outcome), str(reason)] if outcome in OUTCOMES:
                raise NoAnswer(outcome, reason[: wire.MAX_TEXT + 100])
        raise NoAnswer("error", "the answer breaks the protocol")

    def run_script(self, text: str) -> str:
        """What the program prints, run as a script with this input in a process of its own."""
        self.calls += 1
        self.start()
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                socket.send_fds(self.sock, [b"o"], [theirs.fileno()])
            # in a thread, for the program may not read it
            _thread.start_new_thread(_feed, (ours, text))
            output = wire.read_up_to(ours, wire.MAX_MESSAGE)
            try:
                self.read_answer()
            except NoAnswer as error:
                if str(error) != wire.ENDED:  # os._exit: its output counts
                    raise
        return output.decode("utf-8", "replace")


def _feed(sock: socket.socket, text: str) -> None:
    with contextlib.suppress(OSError):
        sock.sendall(text.encode("utf-8", "surrogateescape"))
        sock.shutdown(socket.SHUT_WR)
