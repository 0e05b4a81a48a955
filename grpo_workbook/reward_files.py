"""Reward functions of one's own: `my_rewards.py:my_reward`, loaded from the file and tried before any training.

    def my_reward(completions, answer, **kwargs):      # one number for each completion, or None
        return [float(a in c[0]["content"]) for c, a in zip(completions, answer)]

The contract is TRL's: completions and every column of the data come in by name, as lists, so a function takes
`**kwargs` for what it does not use. The file is run as any Python file is: name only what you trust.
"""

import difflib
import hashlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from functools import wraps
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import SimpleNamespace

from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import readable
from grpo_workbook.rewards import RewardFunction, plain_values

# FILE.py:NAME, with or without :WEIGHT behind it
OWN = re.compile(r"(?P<file>.+\.py):(?P<name>[^:]*)(?::(?P<weight>.*))?", re.DOTALL)
# What TRL gives every function beside the columns of the data.
GIVEN = ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric")


def load_reward(file: str | Path, name: str) -> RewardFunction:
    """The function `name` of a Python file, checked against TRL's contract.

    A file that was changed since is run again. Raises WorkbookError for one that is not there or cannot be run, a name
    that it lacks (with the nearest), what is no function, and a function that does not take what TRL gives.
    """
    path = Path(file).expanduser()
    if not path.is_file():
        near = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*.py")], n=1)
        hint = (
            f" (its folder has {near[0]})" if near and near[0] != path.name else ""
        )  # else a link to nowhere
        raise WorkbookError(
            f"the reward file {str(file)!r} does not exist{hint}: name it as FILE.py:FUNCTION"
        )
    names = vars(_run_file(path))
    if name not in names:
        functions = [n for n, v in names.items() if inspect.isfunction(v) and not n.startswith("_")]
        near = difflib.get_close_matches(name, functions, n=1)
        hint = (
            f"did you mean {near[0]!r}?"
            if near
            else f"it has {', '.join(functions) or 'no function'}"
        )
        raise WorkbookError(f"{readable(path)} has no {name!r}: {hint}")
    function = names[name]
    if not inspect.isfunction(function):
        kind = type(function).__name__
        raise WorkbookError(
            f"{name!r} of {readable(path)} is no function but of type {kind}: write `def {name}(completions, **kwargs)`"
        )
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.POSITIONAL_ONLY for p in parameters) or not any(
        p.kind is p.VAR_KEYWORD for p in parameters
    ):
        raise WorkbookError(
            f"{name}{inspect.signature(function)} of {readable(path)} cannot take what TRL gives it by name "
            f"({', '.join(GIVEN)} and every column of the data): end its parameters with **kwargs, and use no /"
        )
    if inspect.iscoroutinefunction(function):
        raise WorkbookError(f"{name!r} of {readable(path)} is async: write a plain `def`")
    return _checked(function, name)


class _Source(SourceFileLoader):
    """Runs the text that is there now: bytecode that was kept counts as current for a second after a change."""

    def get_code(self, fullname: str):
        return self.source_to_code(self.get_data(self.path), self.path)


def _run_file(path: Path):
    """The file as a module of its own, which finds its neighbours as a script does; once for each text of it."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise WorkbookError(
            f"{readable(path)} cannot be read ({error.strerror}): check its permissions"
        ) from None
    module_name = f"own_rewards_{hashlib.sha256(os.fsencode(path.resolve()) + text).hexdigest()}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    spec = importlib.util.spec_from_file_location(
        module_name, path, loader=_Source(module_name, str(path))
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    if (folder := str(path.resolve().parent)) not in sys.path:
        sys.path.append(folder)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        raise WorkbookError(f"{readable(path)} cannot be run: {_said(error, path)}") from error
    return module


def _said(error: BaseException, path: Path) -> str:
    """What went wrong, with the last line of the user's own file that it went through."""
    lines = [
        f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == path
    ]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    return f"{type(error).__name__}: {error}" + (f" (line {line})" if line else "")


def _checked(function: RewardFunction, name: str) -> RewardFunction:
    """The same function, under `name`; what it gives is checked at every call, and is plain numbers.

    Whatever it raises, SystemExit too, becomes a WorkbookError that says where. It gets lists of its own, which it may
    sort or empty.
    """

    @wraps(function)
    def checked(prompts=None, completions=None, **columns):
        own = {key: list(v) if isinstance(v, list) else v for key, v in columns.items()}
        try:
            values = function(
                prompts=prompts and list(prompts), completions=list(completions), **own
            )
            if not isinstance(values, Sequence | Mapping | Set) and hasattr(values, "__next__"):
                values = list(values)  # of a generator: here it runs
        except (Exception, SystemExit) as error:
            path, state = Path(function.__code__.co_filename), columns.get("trainer_state")
            step = getattr(state, "global_step", None)
            when = getattr(state, "when", "" if step is None else f"in step {step + 1}")
            raise WorkbookError(
                f"{readable(path)}: {name} failed {when}: {_said(error, path)}. A model writes anything: let it score "
                "every text"
            ) from error
        return plain_values(name, values, len(completions))

    checked.__name__, checked.own = name, Path(function.__code__.co_filename)
    return checked


def beside(spec: str, folder: Path) -> str:
    """A spec of rewards as a file in `folder` has it: own files that lie there get their path, the rest stays.

    Raises WorkbookError for a path with a comma, which in a spec ends a reward.
    """

    def one(part: str) -> str:
        found = OWN.fullmatch(part)
        there = found and folder / Path(found["file"]).expanduser()
        if not found or not there.exists():
            return part
        if "," in str(there):
            raise WorkbookError(
                f"the reward file {str(there)!r} has a comma in its path, which stands between two rewards: rename the "
                "folder, or start from inside of it"
            )
        return f"{there}{part[len(found['file']) :]}"

    return ",".join(one(part.strip()) for part in spec.split(","))


def own(functions: Sequence[Callable]) -> list[Callable]:
    """Those of the functions that came from a file of the user's."""
    return [f for f in functions if hasattr(f, "own")]


def file_hashes(functions: Sequence[Callable]) -> dict[str, str]:
    """The SHA-256 of the file behind each own function, by file:function: a run is resumed with the same ones.

    Of the path the file's name alone, so that a project may move; where two files share it, with the hash's beginning.
    """
    found = {
        (f.own.name, f.__name__, hashlib.sha256(f.own.read_bytes()).hexdigest())
        for f in own(functions)
    }
    places = Counter((file, name) for file, name, _ in found)
    return {
        f"{file}:{name}" + (f"@{sha[:12]}" if places[file, name] > 1 else ""): sha
        for file, name, sha in sorted(found)
    }


def try_rewards(functions: Sequence[Callable], rows: Sequence[dict]) -> None:
    """Call each own function once with made-up completions for these rows, so that a fault shows before training.

    `rows` are rows of the training data with `prompt`. Raises WorkbookError for a parameter that is no column, an
    exception in the function, and what is no number for each completion.
    """
    columns = {key: [row[key] for row in rows for _ in range(2)] for key in rows[0]}
    prompts = columns.pop("prompt")
    texts = [
        t
        for row in rows
        for t in (f"<reasoning>\n1\n</reasoning>\n<answer>\n{row['answer']}\n</answer>", "")
    ]
    for function in own(functions):
        wanted = inspect.signature(
            function
        ).parameters.values()  # of the wrapped one: wraps keeps it
        for parameter in wanted:
            if parameter.default is parameter.empty and parameter.kind not in (
                parameter.VAR_KEYWORD,
                parameter.VAR_POSITIONAL,
            ):
                _check_column(function.__name__, parameter.name, columns)
        ids = [[0] * len(text.split()) for text in texts]
        call(function, prompts, texts, ids, columns, when="on a made-up completion")


def call(
    function: Callable,
    prompts: Sequence,
    texts: Sequence[str],
    ids: Sequence[list[int]],
    columns: dict,
    when: str = "on a held-out completion",
) -> list:
    """The rewards of these texts outside of a training: what TRL gives beside the data is there, and logs nothing.

    `when` is for the message of an own function that fails.
    """
    state = {
        "global_step": 0,
        "max_steps": 1,
        "epoch": 0.0,
        "num_train_epochs": 1,
        "log_history": [],
        "when": when,
    }
    return function(
        prompts=list(prompts),
        completions=[[{"role": "assistant", "content": text}] for text in texts],
        completion_ids=list(ids),
        trainer_state=SimpleNamespace(**state),
        log_extra=lambda *_: None,
        log_metric=lambda *_: None,
        **columns,
    )


def _check_column(function: str, wanted: str, columns: dict) -> None:
    if wanted in columns or wanted in GIVEN:
        return
    near = difflib.get_close_matches(wanted, [*columns, *GIVEN], n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise WorkbookError(
        f"{function} wants {wanted!r}, which the data has not: {hint}It has {', '.join(columns)}"
    )
