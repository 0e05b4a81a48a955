"""The program's side where only plain values cross: it answers calls, or runs as a script.

This runs in a fork of server.py, and a program may change all of it: tester.py believes nothing but
the values that arrive. Standard library only.
"""

import atexit
import builtins
import contextlib
import os
import socket
import sys
import types
from collections.abc import Callable

import wire

# What LeetCode has imported, and its nodes.
_LEETCODE_MODULES = "typing functools collections itertools heapq bisect copy string operator math"
_LEETCODE_NODES = """
import random, re, sys, datetime
class ListNode:
    def __init__(self, val=0, next=None): self.val, self.next = val, next
class TreeNode:
    def __init__(self, val=0, left=None, right=None):
        self.val, self.left, self.right = val, left, right
"""


def _leetcode() -> types.CodeType:
    lines = []
    # the built-in names last, for `pow` is not that of `math`
    for name in [*_LEETCODE_MODULES.split(), "builtins"]:
        lines.append(f"from {name} import *; import {name}")
    return compile("\n".join(lines) + _LEETCODE_NODES, "<leetcode>", "exec")


_LEETCODE = _leetcode()


def import_for_leetcode() -> None:
    """Import the modules that programs need most."""
    exec(_LEETCODE, {})


def load(module: types.ModuleType, source: str) -> None:
    """Run the program in its module, with what LeetCode would give it; raises what it raises."""
    builtins.exit = builtins.quit = sys.exit  # which `-S` leaves out
    if "ThreadPool" in source or "multiprocessing.dummy" in source:
        _allow_thread_pools()
    if "class Solution" in source:
        exec(_LEETCODE, module.__dict__)
    exec(compile(source, "<program>", "exec", dont_inherit=True), module.__dict__)


def _allow_thread_pools() -> None:
    """Give pools of threads a lock of threads: the walls refuse the system's semaphores."""
    import multiprocessing.context
    import threading

    context: type = multiprocessing.context.BaseContext
    context.Lock = lambda self: threading.Lock()


# ------------------------------------------------------------------ calls


def answer_calls(sock: socket.socket) -> None:
    """Load the program, then answer calls until tester.py hangs up.

    A call is [an expression for the function, arguments, named ones]; an answer is ["value", the
    result], or an outcome and what has gone wrong.
    """
    wire.send(sock, "ready")
    source = wire.receive(sock)
    module = types.ModuleType("solution")
    sys.modules["solution"] = module
    functions: dict[str, Callable] = {}
    answer = ["value", None]
    try:
        load(module, source)
    except BaseException as error:
        answer = describe(error)
    while True:
        try:
            wire.send(sock, answer)
        except wire.NotPlain as problem:
            wire.send(sock, describe(problem))
        call = wire.receive(sock)
        try:
            answer = _answer(call, functions, vars(module))
        except BaseException as error:
            answer = describe(error)


def _answer(call: list, functions: dict[str, Callable], names: dict) -> list:
    """The answer to one call. `functions` keeps what an expression has led to in `names`."""
    expression, arguments, named = call
    # only here these errors say that there is no such function; below they are its own
    try:
        if expression not in functions:
            functions[expression] = eval(expression, names)
    except (NameError, AttributeError):
        return ["rejected", f"the program does not define {expression}"]
    result = functions[expression](*wire.decode(arguments), **wire.decode(named))
    return ["value", wire.encode(result)]


def describe(error: BaseException) -> list[str]:
    """An exception as an outcome and a reason."""
    if isinstance(error, wire.NotPlain):
        return ["rejected", f"the program returned {error}"]
    outcome = "out of memory" if isinstance(error, MemoryError) else "error"
    return [outcome, f"{type(error).__name__}: {text_of(error)}"]


def text_of(error: BaseException) -> str:
    """The start of an exception's text; "" if it cannot be written, as an int of 5,000 digits."""
    with contextlib.suppress(Exception):
        return str(error)[: wire.MAX_TEXT]
    return ""


# ------------------------------------------------------------------ scripts


def run_script(sock: socket.socket) -> None:
    """Run the program as a script on the input that comes over a socket of its own."""
    wire.send(sock, "ready")
    source = wire.receive(sock)
    _, (stream,), _, _ = socket.recv_fds(sock, 1, 1)
    os.dup2(stream, 0)
    os.dup2(stream, 1)
    os.close(stream)
    sys.stdin = os.fdopen(0, encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="replace", closefd=False)
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    answer = ["value", None]
    try:
        load(module, source)
        threads = sys.modules.get("threading")
        if threads is not None:
            threads._shutdown()  # waits for its threads, as at the end of any script
    except SystemExit as error:
        if error.code not in (None, 0, False):
            answer = describe(error)
    except BaseException as error:
        answer = describe(error)
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
        sys.stdout.flush()
    os.closerange(0, 2)
    wire.send(sock, answer)
