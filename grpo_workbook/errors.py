"""The workbook's error class, and functions that make untrusted text safe for a terminal."""

import re

# All controls but the line end, direction marks, lone surrogates; rich escapes 5 controls only.
_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class WorkbookError(ValueError):
    """Bad input: the message names the value and the fix; the command line exits with 2."""


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, or the name of its type if it has none."""
    if isinstance(error, UnicodeDecodeError):
        part = error.object[max(0, error.start - 20) : error.start + 20].decode("latin-1")
        return f"{part!r} is not UTF-8: save the file as UTF-8"
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def visible(text: str) -> str:
    """The text with control characters escaped, so that data cannot clear the screen or ring."""
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


def wrap(text: str, width: int, head: str = "") -> list[str]:
    """The text in lines of at most `width` columns, `head` before the first."""
    from rich.console import Console
    from rich.text import Text

    lines = Text(visible(text)).wrap(Console(), width - len(head))
    return [f"{'' if n else head:{len(head)}}{line.plain.rstrip()}" for n, line in enumerate(lines)]
