"""Tools that a model may call: types, sizes and time are checked here, because TRL checks none.

TRL passes on whatever a call's JSON holds: a text where a number is wanted, a list, a number of a
million digits. A function decorated with `@tool` refuses such a call with a message that the model
can read, and says of its own failures that they are not the model's.
"""

import functools
import inspect
import signal
import threading
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from grpo_workbook.errors import WorkbookError, first_line

MAX_TEXT = 200  # characters of an argument and of a result: the model pays for both in tokens
MAX_NUMBER = 10**9
BROKEN = "tool failure in "  # opens the message of a failure that is not the model's


class CallError(WorkbookError):
    """The model called a tool wrongly. It reads the message; TRL counts the call as failed."""


class ToolBroken(WorkbookError):
    """A tool failed, whatever the model did: a reward cannot judge that completion."""


def tool(
    function: Callable | None = None, *, seconds: float = 5.0, characters: int = MAX_TEXT
) -> Callable:
    """Check the calls of a function, or of an environment's method, that a model may call.

    Arguments must have exactly the annotated types, numbers may have at most nine digits, texts so
    many `characters`. Longer results are cut, and say so. Raises CallError for a wrong call;
    ToolBroken if the tool takes longer than `seconds` or raises anything but CallError.
    The function needs type hints and a docstring with `Args:`: TRL shows them to the model.
    """
    if function is None:
        return functools.partial(tool, seconds=seconds, characters=characters)
    signature, types = inspect.signature(function), typing.get_type_hints(function)

    @functools.wraps(function)  # with its signature and docstring, of which TRL makes the schema
    def call(*args, **arguments):
        try:
            given = signature.bind(*args, **arguments).arguments
        except TypeError as error:
            raise CallError(f"{function.__name__}: {error}") from error
        for name, value in given.items():
            if name != "self":
                _check(name, value, types[name], characters)
        try:
            with _deadline(seconds):
                result = str(function(*args, **arguments))
        except CallError:
            raise
        except Exception as error:  # the tool's own: it must not be the model's wrong answer
            if "self" in given:  # the environment
                given["self"]._broken = True
            raise ToolBroken(f"{BROKEN}{function.__name__}: {first_line(error)}") from error
        return result if len(result) <= characters else result[:characters] + " (cut)"

    return call


def _check(name: str, value, wanted: type, characters: int) -> None:
    if type(value) is not wanted:  # not isinstance: True is an int there
        kind = type(value).__name__
        raise CallError(f"{name} must be of type {wanted.__name__}, not {kind}")
    if isinstance(value, int | float) and not abs(value) < MAX_NUMBER:
        raise CallError(f"{name} is too large: give at most nine digits")
    if isinstance(value, str) and len(value) > characters:
        raise CallError(f"{name} has {len(value)} characters: give at most {characters}")


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """End the block after `seconds`, where a signal can: in the main thread, not on Windows."""

    def stop(*_):
        raise TimeoutError(f"no result within {seconds:g} s")

    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two whole numbers.

    Args:
        a: The first number.
        b: The second number.

    Returns:
        The product.
    """
    return a * b
