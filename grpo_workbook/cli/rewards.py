"""Rewards by name on the command line, and rewards from the user's own files.

`parse_rewards` knows every reward of the package, and FILE.py:FUNCTION, which `load_reward` loads.
An exception in such a function becomes an error that names the file and the line, never a zero.
"""

import functools
import inspect
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_workbook.config import nearest
from grpo_workbook.errors import WorkbookError
from grpo_workbook.evaluation import CorrectnessJudge, WholeJudge
from grpo_workbook.models import fingerprint
from grpo_workbook.rewards import specs
from grpo_workbook.rewards.contract import (
    Completion,
    RewardFunction,
    about,
    attach_info,
    call,
    checked,
    name_of,
    require_columns,
)
from grpo_workbook.rewards.models import RewardModel

if TYPE_CHECKING:
    from grpo_workbook.rewards.symbolic import Outcome


def parse_rewards(spec: str) -> tuple[list[RewardFunction], list[float]]:
    """`specs.parse_rewards` with every reward of the package and FILE.py:FUNCTION."""
    from grpo_workbook.sandbox import code_format_reward

    # `specs` cannot import the sandbox, which stands above it in the layers of the package.
    extra = {
        "unit_tests": _unit_tests,
        "code_format": code_format_reward,
        "symbolic": _symbolic,
    }
    return specs.parse_rewards(spec, extra, load_reward)


def _unit_tests(form: str = "binary") -> RewardFunction:
    """The reward of "unit_tests" and "unit_tests=partial"."""
    from grpo_workbook.sandbox import unit_tests

    if form not in ("binary", "partial"):
        raise WorkbookError(f"{form!r}: choose binary or partial")
    return unit_tests(partial=form == "partial")


def _symbolic() -> RewardFunction:
    """The reward of "symbolic", which takes no argument."""
    from grpo_workbook.rewards.symbolic import get_symbolic_reward

    return get_symbolic_reward()


def beside(spec: str, folder: Path) -> str:
    """The spec from a file in `folder`, with the path added to what lies in that folder."""
    parts = []
    for part in spec.split(","):
        part = part.strip()
        name = part.rsplit(":", 1)[0]  # without its weight
        model = folder / Path(name).expanduser()
        if (model / "config.json").is_file():  # a reward model in this folder
            parts.append(str(folder / part))
            continue
        file, dot_py, rest = part.partition(".py:")
        path = folder / Path(f"{file}.py").expanduser()
        # A reward's name stays as it is, as does a path that is not in this folder.
        if not dot_py or not path.exists():
            parts.append(part)
            continue
        if "," in str(path):  # a spec is divided at its commas
            raise WorkbookError(
                f"the path of a reward file must have no comma: {path}; rename the folder or file"
            )
        parts.append(f"{path}:{rest}")
    return ",".join(parts)


def load_reward(where: str) -> RewardFunction:
    """The reward FILE.py:FUNCTION. This runs the file: give only one that you trust.

    FUNCTION is the name of a function, async or not, of a functools.partial, or of an object with
    `__call__`; the latter two have that name in the log. Raises WorkbookError if there is no such
    file or function, or the file cannot be run. The reward raises WorkbookError for whatever goes
    wrong in it.
    """
    file, _, name = where.strip().rpartition(":")
    # A text without a colon is taken for the file, so that the error below names it.
    path = Path(file or name).expanduser()
    if not path.is_file():
        raise WorkbookError(f"the file '{path}' does not exist: give FILE.py:FUNCTION")
    function = _function_in(path, name)

    @functools.wraps(function)
    def own_reward(completions: Sequence[Completion], **columns: Any) -> list[float | None]:
        try:
            return checked(function, completions, **columns)
        except WorkbookError:
            raise
        # SystemExit as well: sys.exit in a user's function must not look like the end of the run.
        except (Exception, SystemExit) as error:
            # global_step counts the finished steps, and this step is not finished.
            step = getattr(columns.get("trainer_state"), "global_step", 0) + 1
            cause = _cause(error, path)
            raise WorkbookError(f"{path}: {name} failed in step {step}: {cause}") from error

    # An object and a partial have no name of their own, and every lambda the same one.
    if getattr(function, "__name__", "<lambda>") == "<lambda>":
        own_reward.__name__ = name
    # `try_rewards` and `file_hashes` know a user's function by this file.
    attach_info(own_reward, replace(about(function), file=path))
    return own_reward


def _function_in(path: Path, name: str) -> RewardFunction:
    """A function, a partial or a callable object of the user's file by its name."""
    content = _content_of(path, path.stat().st_mtime_ns)
    functions = {}
    for key, value in content.items():
        if callable(value) and not inspect.isclass(value):
            functions[key] = value
    if inspect.isclass(content.get(name)):
        raise WorkbookError(
            f"{name} in {path} is a class: write `reward = {name}(...)` and give {path}:reward"
        )
    if name not in functions:
        raise WorkbookError(f"{path} has no function {name!r}: {nearest(name, functions)}")
    return functions[name]


@functools.cache  # a file runs once for all its rewards, and again only after a change
def _content_of(path: Path, changed_at: int) -> dict[str, Any]:
    """The names that running the file defines."""
    sys.path.append(str(path.resolve().parent))  # so that it can import its neighbours
    try:
        return runpy.run_path(str(path))
    except WorkbookError:
        raise
    except (Exception, SystemExit) as error:
        raise WorkbookError(f"{path} cannot be run: {_cause(error, path)}") from error


def _cause(error: BaseException, path: Path) -> str:
    """An error's type and message, with the last line of the user's file that it passed."""
    cause = f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == path]
    if lines:
        return f"{cause} (line {lines[-1]})"
    if isinstance(error, TypeError):  # in the call itself
        return f"{cause} (add **kwargs to its arguments)"
    return cause  # a SyntaxError names its line itself


def file_hashes(functions: Sequence[Callable]) -> dict[str, str]:
    """{user's function: SHA-256 of its file}, because a run resumes only with the same ones.

    A reward model has the hash of its folder.
    """
    hashes = {}
    for function in functions:
        path = about(function).file
        if path is not None:
            # numbered, because two files may have one name
            name = f"{path.name}:{name_of(function)}:{len(hashes)}"
            hashes[name] = sha256(path.read_bytes()).hexdigest()
        if isinstance(function, RewardModel):
            hashes[function.source] = fingerprint(function.source) or ""  # "" for a hub id
    return hashes


def judge_for(answers: str, where: str | None = None) -> CorrectnessJudge | None:
    """The judge for `evaluation.score` of answers that are a "number" or a "text".

    Numbers need none. The reward `where`, FILE.py:FUNCTION, judges instead if it is given: it gets
    the whole completion and `answer`.
    """
    from grpo_workbook.rewards.symbolic import SymbolicChecker

    if where:
        function = load_reward(where)

        def is_right(completion: str, answer: str) -> bool:
            # Rewards read columns of the data. Here there is no prompt, which is an empty chat.
            (value,) = call(function, [completion], prompt=[[]], answer=[answer])
            if value is not None and value > 1:
                raise WorkbookError(
                    f"{where} gave {value:g} to an answer: a judge gives 1 to a right answer, and "
                    "less to any other"
                )
            return value == 1

        return WholeJudge(is_right)
    if answers == "text":
        return SymbolicChecker().judge  # its workers start with the first call
    return None


def try_references(answers: Sequence[str]) -> "dict[int, Outcome]":
    """Which answers the symbolic reward cannot compare, or only as text: {index: Outcome}."""
    from grpo_workbook.rewards.symbolic import SymbolicChecker

    # A late one may only have waited for the worker's machine, so the time is longer than a run's.
    with SymbolicChecker(workers=min(4, os.cpu_count() or 1), time_limit=10.0) as checker:
        return checker.try_references(answers)


def try_rewards(
    functions: Sequence[Callable], rows: Sequence[Mapping[str, Any]], tokenizer: Any
) -> None:
    """Raise WorkbookError if a column is missing, or a user's reward fails on made-up texts."""
    texts = []
    columns: dict[str, list] = {name: [] for name in rows[0]}
    for row in rows:
        # Two completions that a reward will meet: one in the course's form, and an empty one.
        texts.append(f"<reasoning>\n1\n</reasoning>\n<answer>{row.get('answer')}</answer>")
        texts.append("")
        for name, values in columns.items():
            values.extend([row[name], row[name]])  # a row for each of the two texts
    for function in functions:
        info = about(function)
        require_columns(name_of(function), info.columns, columns)
        if info.file is not None or isinstance(function, RewardModel):
            call(function, texts, tokenizer=tokenizer, **columns)
