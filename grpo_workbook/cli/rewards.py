"""Rewards as the command line names them: the rooms' beside the floor's, and files of one's own."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from grpo_workbook import rewards
from grpo_workbook.errors import WorkbookError


def parse_rewards(spec: str):
    """`rewards.parse_rewards` with the rewards of the rooms: symbolic, unit_tests, code_format."""
    from grpo_workbook.reward_lab import symbolic_correctness
    from grpo_workbook.sandbox import code_format_reward, unit_tests

    def tests(form: str = "binary"):
        if form not in ("binary", "partial"):
            raise WorkbookError(f"{form!r}: choose binary or partial")
        return unit_tests(partial=form == "partial")

    more = {"symbolic": lambda: symbolic_correctness(), "unit_tests": tests}
    more["code_format"] = code_format_reward
    return rewards.parse_rewards(spec, more)


def beside(spec: str, folder: Path) -> str:
    """The spec of a file in `folder`: own reward files that lie there get their path."""

    def one(part: str) -> str:
        file, py, rest = part.partition(".py:")
        there = folder / Path(f"{file}.py").expanduser()
        if not py or not there.exists():
            return part
        if "," in str(there):
            raise WorkbookError(
                f"{str(there)!r} has a comma, which ends a reward: rename the folder"
            )
        return f"{there}:{rest}"

    return ",".join(one(part.strip()) for part in spec.split(","))


def file_hashes(functions: Sequence[Callable]) -> dict[str, str]:
    """The SHA-256 of the file behind each own function: a run is resumed with the same ones."""
    own = [f for f in functions if hasattr(f, "own")]
    return {
        f"{f.own.name}:{f.__name__}:{i}": hashlib.sha256(f.own.read_bytes()).hexdigest()
        for i, f in enumerate(own)
    }


def judge_for(answers: str) -> Callable[[str, str], bool | None] | None:
    """Who judges such answers ("number" or "text"), for `evaluation.score`; numbers need none."""
    if answers == "number":
        return None
    from grpo_workbook.reward_lab import SymbolicChecker

    return SymbolicChecker().judge  # its worker starts with the first answer
