"""The program's side where only plain values cross: it answers calls, or runs as a script.

This runs in a fork of server.py, and a program may change all of it: the judge believes nothing but
the values that arrive. Standard library only.
"""

import atexit
import builtins
import contextlib
import os
import socket
import sys
import types
from typing import Any

import wire

MAX_WORDS = 400  # characters of an error's text
# What LeetCode has imported (the last: its `pow` is the built-in one), and its nodes.
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
    for name in [*_LEETCODE_MODULES.split(), "builtins"]:
        lines.append(f"from {name} import *; import {name}")
    return compile("\n".join(lines) + _LEETCODE_NODES, "<leetcode>", "exec")


_LEETCODE = _leetcode()


def import_for_leetcode() -> None:
    """Import the modules that programs need most."""
    exec(_LEETCODE, {})


def load(module: types.ModuleType, source: str, setup: str = "") -> None:
    """Run the program in its module, with what its place of origin gives it."""
    builtins.exit = builtins.quit = sys.exit  # which `-S` leaves out
    if "random" in source:  # each fork has random numbers of its own
        sys.modules["random"].seed()
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed()
    if "class Solution" in source:
        exec(_LEETCODE, module.__dict__)
    if setup:
        exec(compile(setup, "<setup>", "exec", dont_inherit=True), module.__dict__)
    exec(compile(source, "<program>", "exec", dont_inherit=True), module.__dict__)


# ------------------------------------------------------------------ calls


def answer_calls(sock: socket.socket) -> None:
    """Load the program, then answer calls until the judge hangs up.

    A call is [an expression for the function, whether to find it anew, arguments, named ones]; an
    answer is ["value", the result], ["raised", ...] or ["not plain", what it is].
    """
    wire.send(sock, ["ready"])
    source, knows_numpy = wire.receive(sock)
    module = types.ModuleType("solution")
    sys.modules["solution"] = module
    try:
        load(module, source)
        answer = ["value", None]
    except BaseException as error:
        answer = _raised(error)
    functions = {}
    while True:
        try:
            wire.send(sock, answer)
        except wire.NotPlain as problem:
            wire.send(sock, ["not plain", str(problem)])
        expression, anew, arguments, named = wire.receive(sock)
        try:
            if anew or expression not in functions:
                functions[expression] = eval(expression, module.__dict__)
        except (NameError, AttributeError):
            answer = ["missing", expression]
            continue
        except BaseException as error:
            answer = _raised(error)
            continue
        try:
            values: Any = wire.decode(arguments), wire.decode(named)
            result = functions[expression](*values[0], **values[1])
            answer = ["value", _encode(result, knows_numpy)]
        except wire.NotPlain as problem:
            answer = ["not plain", str(problem)]
        except BaseException as error:
            answer = _raised(error)


def _encode(value, knows_numpy: bool):
    """An answer for JSON; of a coroutine its result."""
    if type(value) is types.CoroutineType:
        import asyncio

        value = asyncio.run(value)
    if type(value).__module__ == "numpy" and not knows_numpy and getattr(value, "shape", 1) == ():
        value = value.item()  # the judge would have to load NumPy for it
    return wire.encode(value, loose=True)


def _raised(error: BaseException) -> list:
    """An exception: the names of its classes, its text, its arguments."""
    names = [cls.__name__ for cls in type(error).__mro__]
    text = type(error).__name__
    with contextlib.suppress(Exception):
        text = str(error)[:MAX_WORDS]
    try:
        arguments = wire.encode(error.args)
    except (wire.NotPlain, RecursionError):
        arguments = ["t", text]
    return ["raised", names, text, arguments]


# ------------------------------------------------------------------ scripts


def run_script(sock: socket.socket) -> None:
    """Run the program as a script on the input that comes over a socket of its own."""
    wire.send(sock, ["ready"])
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
            answer = _raised(error)
    except BaseException as error:
        answer = _raised(error)
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
        sys.stdout.flush()
    os.closerange(0, 2)
    wire.send(sock, answer)
