"""Rewards as the command line names them: the rooms' beside the floor's, and files of one's own."""

from collections.abc import Callable, Sequence
from hashlib import sha256
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

    more = {"unit_tests": tests, "code_format": code_format_reward}
    return rewards.parse_rewards(spec, more | {"symbolic": lambda: symbolic_correctness()})


def beside(spec: str, folder: Path) -> str:
    """The spec of a file in `folder`: own reward files that lie there get their path."""
    parts = [part.strip() for part in spec.split(",")]
    for i, (file, py, rest) in enumerate(part.partition(".py:") for part in parts):
        there = folder / Path(f"{file}.py").expanduser()
        if py and there.exists():
            if "," in str(there):
                raise WorkbookError(f"{there} has a comma, which ends a reward: rename the folder")
            parts[i] = f"{there}:{rest}"
    return ",".join(parts)


def file_hashes(functions: Sequence[Callable]) -> dict[str, str]:
    """The SHA-256 of the file behind each own function: a run is resumed with the same ones."""
    own = [(f"{f.own.name}:{f.__name__}", f.own) for f in functions if hasattr(f, "own")]
    return {f"{n}:{i}": sha256(path.read_bytes()).hexdigest() for i, (n, path) in enumerate(own)}


def judge_for(answers: str) -> Callable[[str, str], bool | None] | None:
    """Who judges such answers ("number" or "text"), for `evaluation.score`; numbers need none."""
    from grpo_workbook.reward_lab import SymbolicChecker

    return SymbolicChecker().judge if answers == "text" else None  # its worker starts when asked
