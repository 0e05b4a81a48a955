"""The one error of the workbook, and text of unknown origin as a terminal may show it."""

import textwrap

# Controls but for the line end, halves of surrogate pairs, and what turns the direction of writing
# around.
_CONTROLS = [
    *range(0x0A),
    *range(0x0B, 0x20),
    *range(0x7F, 0xA0),
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
]
_SHOWN = {code: repr(chr(code))[1:-1] for code in _CONTROLS} | {
    c: f"\\u{c:04x}" for c in range(0xD800, 0xE000)
}
_FILLER = "\ue000"  # a private character that stands before each wide one while lines are cut


class WorkbookError(ValueError):
    """Bad input. The message names the value that was wrong and how to mend it; the command line
    exits with 2.
    """


def first_line(error: BaseException, most: int = 200) -> str:
    """The first line of what an exception says, at most `most` characters; its type's name where it
    says nothing.
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0][:most]


def visible(text: str) -> str:
    r"""The text with escapes for control characters: a data file must not clear the screen
    (\x1b[2J) or ring (\x07).
    """
    return text.translate(_SHOWN)


def cells(text: str) -> int:
    """The columns that a text takes on a terminal."""
    from rich.cells import cell_len

    return cell_len(text)


def wrap(text: str, width: int, indent: int = 0) -> list[str]:
    """Lines of at most `width` columns; all but the first are indented."""
    text = visible(text)
    if not text.isascii():
        text, width = (
            "".join(_FILLER + c if cells(c) > 1 else c for c in text.replace(_FILLER, "")),
            width - 1,
        )
    lines = textwrap.wrap(text, width, subsequent_indent=" " * indent)
    return [line.replace(_FILLER, "") for line in lines]


def shorten(text: str, width: int) -> str:
    """The text on one line of at most `width` columns, cut with dots."""
    text = " ".join(visible(text.replace("\n", " ")).split())
    if cells(text) <= width:
        return text
    if text.isascii() and " " in text[: width - 4]:
        return textwrap.shorten(text, width, placeholder=" ...")
    while cells(text) > width - 4:
        text = text[: -max(1, (cells(text) - width + 4) // 2)]
    return text + " ..."
