"""Tools that a model may call: types, sizes and time are checked here, because TRL checks none.

TRL passes on whatever a call's JSON holds: a text where a number is wanted, a list, a number of a
million digits. A function decorated with `@tool` refuses such a call with a message that the model
can read, and says of its own failures that they are not the model's.
"""

import asyncio
import functools
import inspect
import json
import reprlib
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

    Arguments must have exactly the annotated types, as JSON holds them; numbers may have at most
    nine digits, texts and all else so many `characters`. Longer results are cut, and say so. An
    async function stays one, which TRL and `replay` await. Raises CallError for a wrong call;
    ToolBroken if the tool takes longer than `seconds` or raises anything but CallError.
    The function needs a docstring with `Args:`, which TRL shows to the model, and type hints: a
    WorkbookError where one is missing.
    """
    if function is None:
        return functools.partial(tool, seconds=seconds, characters=characters)
    signature, types = inspect.signature(function), typing.get_type_hints(function)
    if untyped := signature.parameters.keys() - types.keys() - {"self"}:
        said = f"the tool {function.__name__} has no type for {', '.join(sorted(untyped))}"
        raise WorkbookError(f"{said}: give it one, such as (word: str)")

    def checked(args, arguments) -> inspect.BoundArguments:
        try:
            given = signature.bind(*args, **arguments)
        except TypeError as error:
            raise CallError(f"{function.__name__}: {error}") from error
        for name in given.arguments.keys() - {"self"}:
            value = given.arguments[name]
            given.arguments[name] = _typed(name, value, types[name], characters)
        return given

    @functools.wraps(function)  # with its signature and docstring, of which TRL makes the schema
    def call(*args, **arguments):
        given = checked(args, arguments)
        with _blaming(function, given, seconds), _deadline(seconds):
            return _cut(str(function(*given.args, **given.kwargs)), characters)

    @functools.wraps(function)
    async def awaited(*args, **arguments):
        given = checked(args, arguments)
        with _blaming(function, given, seconds):
            async with asyncio.timeout(seconds):
                return _cut(str(await function(*given.args, **given.kwargs)), characters)

    return awaited if inspect.iscoroutinefunction(function) else call


def _cut(result: str, characters: int) -> str:
    return result if len(result) <= characters else result[:characters] + " (cut)"


def _typed(name: str, value, wanted, characters: int):
    """The value as the hint's type (3 as 3.0 for a float), or CallError if it is not one."""
    from pydantic import TypeAdapter

    if isinstance(value, int | float) and not abs(value) < MAX_NUMBER:
        raise CallError(f"{name} is too large: give at most nine digits")
    if (length := len(str(value))) > characters:
        raise CallError(f"{name} has {length} characters: give at most {characters}")
    try:  # strict: neither "37" nor True is an int. In JSON a list is also the way to say a tuple
        return TypeAdapter(wanted).validate_json(json.dumps(value), strict=True)
    except (TypeError, ValueError) as error:
        kind = f"{inspect.formatannotation(wanted)}, not {type(value).__name__}"
        raise CallError(f"{name} must be of type {kind} {reprlib.repr(value)}") from error


@contextmanager
def _blaming(function: Callable, given: inspect.BoundArguments, seconds: float) -> Iterator[None]:
    """Turn what the tool raises into ToolBroken: it must not be the model's wrong answer."""
    try:
        yield
    except CallError:
        raise
    except Exception as error:
        if "self" in given.arguments:  # the environment
            given.arguments["self"]._broken = True
        late = isinstance(error, TimeoutError) and not str(error)
        why = f"no result within {seconds:g} s" if late else first_line(error)
        raise ToolBroken(f"{BROKEN}{function.__name__}: {why}") from error


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """End the block after `seconds`, where a signal can: in the main thread, not on Windows."""

    def stop(*_):
        raise TimeoutError

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
