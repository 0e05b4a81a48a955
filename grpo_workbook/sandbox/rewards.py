"""Unit tests as a reward, in TRL's contract: does the program in a completion pass its task's test?

    trainer = GRPOTrainer(reward_funcs=[unit_tests(), code_format_reward], ...)

The dataset's columns are `test` and `entry_point`, as HumanEval names them, and if there is one
`prompt_code`: code that the completion continues, and that the test may use helpers from. (A
`prompt` that is plain text and ends inside a function does as well.)
"""

import ast
import re
import warnings
from collections.abc import Sequence

from grpo_workbook.errors import WorkbookError
from grpo_workbook.rewards import Completion, RewardFunction, reward, text_of
from grpo_workbook.sandbox.pool import Job, Sandbox

_OPENING = re.compile(r"```[ \t]*([\w+-]*)")
MAX_TEXT = 200_000  # characters of a completion


def fenced_code(text: str) -> list[str]:
    """The contents of the text's fenced blocks that are Python, or do not say what they are.

    A block that is never closed is none, and a text of more than MAX_TEXT characters has none.
    """
    found: list[str] = []
    block: list[str] | None = None  # the lines of the block that is open
    language = ""
    lines = text.replace("\r\n", "\n").split("\n") if len(text) <= MAX_TEXT else []
    for line in lines:  # line by line: the time grows with the text and no faster
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
    """The program of a completion: its last fenced block that defines the entry point, else it all.

    What does not define the entry point continues `prompt`, code that ends where the completion
    begins.
    """
    text, name = text_of(completion), re.escape(entry_point)
    defines = re.compile(rf"^(?:async )?def {name}\b|^{name}\s*=", re.MULTILINE)
    blocks = fenced_code(text)
    whole = [block for block in blocks if defines.search(block)]
    if whole:
        return f"{_imports(prompt)}{whole[-1]}"
    code = blocks[-1] if blocks else text
    return code if defines.search(code) else prompt + code


def _imports(prompt: str) -> str:
    """What a prompt defines besides the function: a block of only that function needs it."""
    if _is_python(prompt):
        return f"{prompt}\n" if prompt else ""
    lines = (line for line in prompt.splitlines() if re.match(r"(import|from) ", line))
    return "".join(f"{line}\n" for line in lines)


def _is_python(code: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def jobs_of(completions, test, entry_point, prompts=None, prompt_code=None, **columns) -> list[Job]:
    """What the sandbox is asked for each completion, from the dataset's columns (see above)."""
    n = len(completions)
    starts = prompt_code or [p if isinstance(p, str) else "" for p in prompts or [""] * n]
    if not len(test) == len(entry_point) == len(starts) == n:
        raise WorkbookError(
            f"{n} completions but {len(test)} tests, {len(entry_point)} entry points, "
            f"{len(starts)} prompts: give one of each for every completion"
        )
    jobs = []
    for completion, one, name, start in zip(completions, test, entry_point, starts, strict=True):
        if not start or not (prompt_code or f"def {name}" in start):
            start = ""  # words are no code, nor is None
        setup = start if _is_python(start) else ""  # the test's helpers: it stands by itself
        jobs.append(Job(program_of(completion, str(name), start), one, name, setup))
    return jobs


def unit_tests(
    sandbox: Sandbox | None = None, *, partial: bool = False, max_failed: float = 0.5
) -> RewardFunction:
    """A reward: 1.0 where the program passes its whole test, else 0.0.

    With `partial` half of the fraction of its assertions that held, so that the last case is always
    worth most. `sandbox` is one with the default limits if left out. None where nothing can be
    said: the sandbox failed, or the test is at fault (no Python, never calls the candidate, does
    not end). When more than `max_failed` of a batch is like that, or timed out, raises
    WorkbookError. TRL's log gets the rate of each outcome (`code/timeout`).
    """
    if not 0 <= max_failed <= 1:
        raise WorkbookError(f"max_failed={max_failed}: give a fraction from 0 to 1")
    sandbox = sandbox or Sandbox()

    @reward(role="correctness", columns=("test", "entry_point"))
    def unit_test_reward(completions, test, entry_point, log_metric=None, **columns):
        """1.0 where the program passes its test, else 0.0 or partial credit; None: unknown."""
        verdicts = sandbox.check(jobs_of(completions, test, entry_point, **columns))
        unsure = [v for v in verdicts if v.fault in ("sandbox", "test")]
        late = [v for v in verdicts if v.outcome == "timeout" and v not in unsure]
        if len(unsure) + len(late) > max_failed * len(verdicts):
            raise WorkbookError(
                f"{len(unsure)} of {len(verdicts)} programs could not be judged and {len(late)} "
                f"timed out (the first: {(unsure or late)[0]}): fix the tests, raise time_limit "
                f"({sandbox.time_limit:g} s), or allow more with max_failed ({max_failed:g})"
            )
        if log_metric is not None and verdicts:
            for outcome in {v.outcome for v in verdicts} | {"timeout", "sandbox error"}:
                rate = sum(v.outcome == outcome for v in verdicts) / len(verdicts)
                log_metric(f"code/{outcome}", rate)
        credit = 0.5 if partial else 0.0
        paid = [1.0 if v.passed else credit * v.fraction for v in verdicts]
        return [None if v.fault in ("sandbox", "test") else p for v, p in zip(verdicts, paid)]  # noqa: B905

    unit_test_reward.sandbox = sandbox
    return unit_test_reward


@reward(role="format")
def code_format_reward(completions: Sequence[Completion], **columns) -> list[float]:
    """1.0 for exactly one fenced block, of Python that parses; 0.5 if it does not; else 0.0."""
    values = []
    for text in map(text_of, completions):
        blocks = fenced_code(text)
        one = len(blocks) == 1 and text.count("```") == 2 and bool(blocks[0].strip())
        good = one and len(blocks[0]) <= 20_000 and _is_python(blocks[0])
        values.append(1.0 if good else 0.5 * one)
    return values
