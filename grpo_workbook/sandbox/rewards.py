"""Unit tests as a reward, in TRL's contract: does the program that a completion holds pass its task's test?

    with Sandbox() as sandbox:
        trainer = GRPOTrainer(reward_funcs=[unit_tests(sandbox), code_format_reward], ...)

The dataset's columns are `test` and `entry_point`, as HumanEval names them, and if there is one `prompt_code`: code
that the completion continues, and that the test may use helpers from. (A `prompt` that is plain text and ends inside a
function does as well.) None stands where nothing can be said: the sandbox failed, or the test is at fault.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from grpo_workbook.errors import WorkbookError
from grpo_workbook.rewards import Completion, RewardFunction, text_of
from grpo_workbook.sandbox.sandbox import Job

if TYPE_CHECKING:
    from grpo_workbook.sandbox.sandbox import Sandbox

_OPENING = re.compile(r"```[ \t]*([\w+-]*)")
MAX_TEXT = 200_000  # characters of a completion


def fenced_code(text: str) -> list[str]:
    """The contents of the text's fenced blocks that are Python, or do not say what they are.

    A block that is never closed is none, and a text of more than MAX_TEXT characters has none. Windows line ends count
    as line ends.
    """
    if len(text) > MAX_TEXT:
        return []
    found: list[str] = []
    block: list[str] | None = None  # the lines of the block that is open
    language = ""
    for line in text.replace("\r\n", "\n").split(
        "\n"
    ):  # line by line: the time grows with the text and no faster
        fence = line.strip(" \t")
        if block is None:
            if opening := _OPENING.fullmatch(fence):
                language, block = opening[1].lower(), []
        elif fence != "```":
            block.append(line + "\n")
        else:
            if language in ("", "python", "py", "python3"):
                found.append("".join(block))
            block = None
    return found


def program_of(completion: Completion, entry_point: str, prompt: str = "") -> str:
    """The program of a completion: its last fenced block that defines the entry point, else the text itself.

    What does not define the entry point continues `prompt`, code that ends where the completion begins.
    """
    text = text_of(completion)
    defines = re.compile(
        rf"^(?:async )?def {re.escape(entry_point)}\b|^{re.escape(entry_point)}\s*=", re.MULTILINE
    )
    blocks = fenced_code(text)
    whole = [block for block in blocks if defines.search(block)]
    if whole:
        return f"{_imports(prompt)}{whole[-1]}"
    code = blocks[-1] if blocks else text
    return code if defines.search(code) else prompt + code


def _imports(prompt: str) -> str:
    """What a prompt defines besides the function asked for is needed by a block that gives only that function."""
    if _is_python(prompt):
        return f"{prompt}\n" if prompt else ""
    lines = (line for line in prompt.splitlines() if re.match(r"(import|from) ", line))
    return "".join(f"{line}\n" for line in lines)


def _is_python(code: str) -> bool:
    try:
        compile(code, "<prompt>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def unit_tests(
    sandbox: "Sandbox", partial: bool = False, max_failed: float = 0.5
) -> RewardFunction:
    """A reward: 1.0 where the program passes its whole test, else 0.0; with `partial` the share of its assertions.

    Partial credit is at most half while the test is not passed, so that the last case is always worth most.
    None where nothing can be said: the sandbox itself failed, or the test is at fault (it is no Python, never calls the
    candidate, does not end). When more than `max_failed` of a batch is like that, or timed out, raises WorkbookError
    with the counts. What happened is in `sandbox.counts`, and TRL's log gets each outcome's share (`code/timeout`).
    """
    if not 0 <= max_failed <= 1:
        raise WorkbookError(f"max_failed={max_failed}: give a share from 0 to 1")

    def unit_test_reward(
        completions, test, entry_point, prompts=None, prompt_code=None, log_metric=None, **columns
    ):
        """1.0 where the program passes its task's test, else 0.0 (or partial credit); None where nobody can say."""
        jobs = jobs_of(completions, test, entry_point, prompts, prompt_code)
        verdicts = sandbox.check(jobs)
        unsure = [v for v in verdicts if v.fault in ("sandbox", "test")]
        late = [v for v in verdicts if v.outcome == "timeout" and v not in unsure]
        if verdicts and len(unsure) + len(late) > max_failed * len(verdicts):
            first = (unsure or late)[0]
            raise WorkbookError(
                f"{len(unsure)} of {len(verdicts)} programs could not be judged and {len(late)} timed out (the first: "
                f"{first}): mend the tests, raise time_limit ({sandbox.time_limit:g} s), or allow more with "
                f"max_failed ({max_failed:g})"
            )
        if log_metric is not None and verdicts:
            for outcome in {v.outcome for v in verdicts} | {"timeout", "sandbox error"}:
                log_metric(
                    f"code/{outcome}", sum(v.outcome == outcome for v in verdicts) / len(verdicts)
                )
        return [None if v.fault in ("sandbox", "test") else _value(v, partial) for v in verdicts]

    return unit_test_reward


def _value(verdict, partial: bool) -> float:
    if verdict.passed:
        return 1.0
    return 0.5 * verdict.share if partial else 0.0


def jobs_of(
    completions: Sequence[Completion],
    test: Sequence[str],
    entry_point: Sequence[str],
    prompts: Sequence | None = None,
    prompt_code: Sequence[str | None] | None = None,
) -> list[Job]:
    """What the sandbox is asked for each completion, from the dataset's columns (see the module's text).

    Raises WorkbookError when a column is shorter or longer than the completions.
    """
    n = len(completions)
    starts = prompt_code or [p if isinstance(p, str) else "" for p in prompts or [""] * n]
    if not len(test) == len(entry_point) == len(starts) == n:
        raise WorkbookError(
            f"{n} completions but {len(test)} tests, {len(entry_point)} entry points, {len(starts)} prompts: give one "
            "of each for every completion"
        )
    jobs = []
    for completion, one, name, start in zip(completions, test, entry_point, starts, strict=True):
        start = (
            start if start and (prompt_code or f"def {name}" in start) else ""
        )  # words are no code, nor is None
        # A prompt that is Python by itself (a function with only its docstring is) gives the test its helpers.
        jobs.append(
            Job(program_of(completion, name, start), one, name, start if _is_python(start) else "")
        )
    return jobs


def code_format_reward(completions: Sequence[Completion], **columns) -> list[float]:
    """1.0 for exactly one fenced block, of Python that compiles; 0.5 for one that does not; else 0.0. Runs nothing."""
    return [_form(fenced_code(text_of(c)), text_of(c).count("```")) for c in completions]


def _form(blocks: list[str], fences: int) -> float:
    if len(blocks) != 1 or fences != 2 or not blocks[0].strip():
        return 0.0
    if len(blocks[0]) > 20_000:
        return 0.5
    import ast
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(blocks[0])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 0.5
    return 1.0
