"""Tools that a model may call: types, sizes and time are checked here, because TRL checks none.

TRL passes on whatever a call's JSON holds: a text where a number is wanted, a list, a number of a
million digits. A function decorated with `@tool` refuses such a call with a message that the model
can read, and says of its own failures that they are not the model's.
"""

import functools
import inspect
import json
import reprlib
import signal
import threading
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

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

    Arguments must have exactly the annotated types, as JSON holds them. A wrong call raises
    CallError. A tool that takes too long, or raises anything but CallError, raises ToolBroken.

    Args:
        function: with type hints, and a docstring with `Args:`, which TRL shows to the model.
        seconds: the time that a call may take.
        characters: of an argument, and of a result; longer results are cut, and say so. Numbers
            may have at most nine digits.

    Raises:
        WorkbookError: a type hint is missing, or the function is async.
    """
    if function is None:
        return functools.partial(tool, seconds=seconds, characters=characters)
    name = function.__name__
    signature = inspect.signature(function)
    # Under `from __future__ import annotations` the signature's own annotations are texts.
    types = typing.get_type_hints(function)
    _refuse(function, types)

    @functools.wraps(function)  # with its signature and docstring, of which TRL makes the schema
    def call(*args: Any, **kwargs: Any) -> str:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise CallError(f"{name}: {error}") from error
        for argument, value in bound.arguments.items():
            # A method of an environment gets its instance as the first argument.
            if argument != "self":
                bound.arguments[argument] = _typed(argument, value, types[argument], characters)
        try:
            with _time_limit(seconds):
                # The text is made within the limit as well, because it may take long, too.
                result = str(function(*bound.args, **bound.kwargs))
        except CallError:
            raise
        except Exception as error:  # whatever a tool raises must not be the model's wrong answer
            if "self" in bound.arguments:  # the environment
                # The environment's reward is then None (see `Environment`).
                bound.arguments["self"]._broken = True
            raise _broken(name, error, seconds) from error
        if len(result) > characters:
            return result[:characters] + " (cut)"
        return result

    return call


def _refuse(function: Callable, types: dict[str, Any]) -> None:
    """Raise WorkbookError for a function that cannot be a tool."""
    name = function.__name__
    if inspect.iscoroutinefunction(function):
        raise WorkbookError(f"the tool {name} is async: give a plain function")
    untyped = inspect.signature(function).parameters.keys() - types.keys() - {"self"}
    if untyped:
        problem = f"the tool {name} has no type for {', '.join(sorted(untyped))}"
        raise WorkbookError(f"{problem}: give it one, such as (word: str)")


def _broken(name: str, error: Exception, seconds: float) -> ToolBroken:
    reason = first_line(error)
    if isinstance(error, TimeoutError) and not str(error):  # of the time limit
        reason = f"no result within {seconds:g} s"
    return ToolBroken(f"{BROKEN}{name}: {reason}")


def _typed(name: str, value: Any, hint: Any, characters: int) -> Any:
    """The value as the hint's type (3 as 3.0 for a float), or CallError if it is not one."""
    from pydantic import TypeAdapter

    # Before str(), which refuses a whole number of more than 4,300 digits. NaN is refused, too.
    if isinstance(value, int | float) and not abs(value) < MAX_NUMBER:
        raise CallError(f"{name} is too large: give at most nine digits")
    # The size before the type: nothing has to be read that is too long anyway.
    length = len(str(value))
    if length > characters:
        raise CallError(f"{name} has {length} characters: give at most {characters}")
    try:
        # Strict: neither "37" nor True is an int. By way of JSON, where a list also says a tuple.
        return TypeAdapter(hint).validate_json(json.dumps(value), strict=True)
    except (TypeError, ValueError) as error:
        expected = inspect.formatannotation(hint)
        actual = f"{type(value).__name__} {reprlib.repr(value)}"
        raise CallError(f"{name} must be of type {expected}, not {actual}") from error


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """End the block after `seconds`, where a signal can: in the main thread, not on Windows."""

    def stop(*_: Any) -> None:
        raise TimeoutError

    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or not hasattr(signal, "SIGALRM"):
        yield
        return
    handler_before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        # The timer stops first: its signal would end the process under the usual handler.
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler_before)
