"""The workbook's error class, and functions that make untrusted text safe for a terminal."""

import re

# All control characters but the line end, direction marks, and lone surrogates. Rich escapes only
# five of them.
_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LONGEST_MESSAGE = 400  # characters


class WorkbookError(ValueError):
    """Bad input: the message names the value and the fix; the command line exits with 2."""


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, or the name of its type if it has none.

    A line that ends in a colon says nothing by itself: the next one belongs to it.
    """
    if isinstance(error, UnicodeDecodeError):
        start = max(0, error.start - 20)
        surroundings = error.object[start : error.start + 20].decode("latin-1")
        return f"{surroundings!r} is not UTF-8: save the file as UTF-8"
    message = str(error).strip()
    if not message:
        return type(error).__name__
    line, *others = [line.strip() for line in message.splitlines() if line.strip()]
    if line.endswith(":") and others:
        line = f"{line} {others[0]}"
    if len(line) > _LONGEST_MESSAGE:
        return f"{line[:_LONGEST_MESSAGE]} ..."
    return line


def visible(text: str) -> str:
    """The text with control characters escaped, so that data cannot clear the screen or ring."""
    return _CONTROLS.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    return repr(match[0])[1:-1]


def wrap(text: str, width: int, head: str = "") -> list[str]:
    """The text in lines of at most `width` columns, which wide characters fill two at a time.

    `head` stands before the first line, and as many spaces before the others.
    """
    from rich.console import Console
    from rich.text import Text

    lines = []
    margin = head
    for line in Text(visible(text)).wrap(Console(), width - len(head)):
        lines.append(margin + line.plain.rstrip())
        margin = " " * len(head)
    return lines
