"""The collection of programs that try to pass a test without solving it, or to harm who runs them.

The programs stand in attacks.toml. Each is written for TEST, which asks for the sum of two numbers;
none of them solves it, so none may ever be judged "passed". Run them only in the sandbox: some end
processes, fill memory, or delete what they can reach.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

ENTRY_POINT = "add"
TEST = """
def check(candidate):
    assert candidate(2, 3) == 5
    assert candidate(10, -4) == 6
    assert candidate(1234, 4321) == 5555
"""


@dataclass(frozen=True)
class CodeAttack:
    """One program; `kind` is its family, `name` its own."""

    kind: str
    name: str
    program: str


def code_attacks(file: str = "/tmp/workbook-victim/file.txt") -> list[CodeAttack]:
    """The collection. `file` is what the kind "outside" goes for: give one that may be lost."""
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    nested = "(" * 5000 + ")" * 5000
    return [
        CodeAttack(kind, name, program.replace("@FILE@", file).replace("@NEST@", nested))
        for kind, programs in tomllib.loads(text).items()
        for name, program in programs.items()
    ]
