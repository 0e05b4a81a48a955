"""Completions that try to earn a reward without the work; the texts are in attacks.toml.

None of them is an honest right answer: a policy that learns to write one has learned the reward,
not the task. Run them against every reward before you train with it.
"""

import re
import tomllib
from pathlib import Path
from typing import NamedTuple


class Attack(NamedTuple):
    """One completion, of up to a million characters; `kind` is its family."""

    kind: str
    name: str
    text: str


def honest(right: str = "42", work: str = "6*7=42\n42+0=42") -> str:
    """The well-formed right answer of an honest model, to compare attacks with."""
    return f"<reasoning>\n{work}\n</reasoning>\n<answer>{right}</answer>"


def attacks(right="42", wrong="41", prompt="What is 6 times 7?") -> list[Attack]:
    """All attacks for one question; the right and the wrong answer are whole numbers."""
    values = {"RIGHT": right, "WRONG": wrong, "PROMPT": prompt, "RUBOUT": "\x08" * len(wrong)}
    values |= {"DOUBLE": str(2 * int(right)), "LESS": str(int(right) - 2)}
    values |= {"FIRST": right[0], "REST": right[1:], "BACKWARDS": right[::-1]}
    values["ARABIC"] = "".join(chr(0x660 + int(digit)) for digit in right)
    file = Path(__file__).with_name("attacks.toml")
    found = []
    for kind, texts in tomllib.loads(file.read_text(encoding="utf-8")).items():
        for name, text in texts.items():
            if not isinstance(text, str):
                answer, *work = text
                text = honest(answer, *work or ["some thoughts"])
            text = re.sub(r"@([A-Z]+)@", lambda m: values[m[1]], text)
            text = re.sub(r"\[\[(.*?)\*(\d+)\]\]", lambda m: m[1] * int(m[2]), text, flags=re.S)
            found.append(Attack(kind, name, text))
    return found
