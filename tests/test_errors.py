"""No line is wider than asked for, and nothing in a text is obeyed by the terminal."""

import textwrap

import pytest
from rich.cells import cell_len

from grpo_workbook.errors import visible, wrap

TEXTS = [
    "a plain text of many words " * 9,
    "漢字" * 100,
    "word 漢字 " * 30,
    "x" * 300,
    "\U0001f600 smile " * 20,
    "é" * 200,
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("width", [20, 80])
def test_lines_fit_and_lose_nothing(text, width):
    lines = wrap(text, width, "    ")
    assert max(map(cell_len, lines)) <= width
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_plain_text_is_wrapped_as_ever():
    expected = textwrap.wrap(TEXTS[0], 40, initial_indent="- ", subsequent_indent="  ")
    assert wrap(TEXTS[0], 40, "- ") == expected


def test_control_characters_are_shown_as_text():
    assert visible("a\x1b[2J\x07\rb\nc\u202e\ud83d") == "a\\x1b[2J\\x07\\rb\nc\\u202e\\ud83d"
