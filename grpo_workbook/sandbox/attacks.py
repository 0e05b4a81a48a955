"""Programs that try to pass a test without solving it, or to harm the machine that runs them.

They are in attacks.toml. Each is written for TEST, which asks for the sum of two numbers; none
solves it, so none may ever be judged "passed". Run them only in the sandbox: some end processes,
fill memory, or delete all files that they can reach.
"""

import tomllib
from pathlib import Path
from typing import NamedTuple

ENTRY_POINT = "add"
TEST = """
def check(candidate):
    assert candidate(2, 3) == 5
    assert candidate(10, -4) == 6
    assert candidate(1234, 4321) == 5555
"""


class CodeAttack(NamedTuple):
    """One program with its `kind` (family) and `name`."""

    kind: str
    name: str
    program: str


def code_attacks(file: str = "/tmp/workbook-victim/file.txt") -> list[CodeAttack]:
    """All programs. The kind "outside" attacks `file`: give one that may be lost."""
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    kinds = tomllib.loads(text.replace("@FILE@", file).replace("@NEST@", "(" * 5000 + ")" * 5000))
    return [CodeAttack(k, name, code) for k in kinds for name, code in kinds[k].items()]
