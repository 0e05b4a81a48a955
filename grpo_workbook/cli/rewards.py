"""Rewards by name on the command line: of the floor, of the rooms, and from the user's files."""

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
    """The spec from a file in `folder`, with the path added to reward files in that folder."""
    parts = [part.strip() for part in spec.split(",")]
    for i, (file, py, rest) in enumerate(part.partition(".py:") for part in parts):
        there = folder / Path(f"{file}.py").expanduser()
        if py and there.exists():
            if "," in str(there):
                raise WorkbookError(f"{there} has a comma, which ends a reward: rename the folder")
            parts[i] = f"{there}:{rest}"
    return ",".join(parts)


def file_hashes(functions: Sequence[Callable]) -> dict[str, str]:
    """{user's function: SHA-256 of its file}, because a run resumes only with the same ones."""
    own = [(f"{f.own.name}:{f.__name__}", f.own) for f in functions if hasattr(f, "own")]
    return {f"{n}:{i}": sha256(path.read_bytes()).hexdigest() for i, (n, path) in enumerate(own)}


def judge_for(answers: str) -> Callable[[str, str], bool | None] | None:
    """The judge for `evaluation.score` of such answers ("number" or "text"); numbers need none."""
    from grpo_workbook.reward_lab import SymbolicChecker

    return SymbolicChecker().judge if answers == "text" else None  # starts when called
