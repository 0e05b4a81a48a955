"""Programs that try to pass a test without solving it, or to harm the machine that runs them.

They are in attacks.toml. Each is written for TEST, which asks for the sum of two numbers, or for
the test of its kind; none solves it, so none may ever be judged "passed". Run them only in the
sandbox: some end processes, fill memory, or delete all files that they can reach.
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
    """One program with its `family` and `name`, and the `test` that it is written for."""

    family: str
    name: str
    program: str
    test: str = TEST


def code_attacks(file: str = "/tmp/workbook-victim/file.txt") -> list[CodeAttack]:
    """All programs. The family "outside" attacks `file`: give one that may be lost."""
    families = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    marks = {
        "@FILE@": file,
        "@NEST@": "(" * 5000 + ")" * 5000,
        "@FORGE@": families.pop("forge"),
    }
    attacks = []
    for family, programs in families.items():
        test = programs.pop("test", TEST)
        for name, code in programs.items():
            for mark, replacement in marks.items():
                code = code.replace(mark, replacement)
            attacks.append(CodeAttack(family, name, code, test))
    return attacks
