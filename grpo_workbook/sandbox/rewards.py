"""Rewards for programs: `unit_tests` judges them, `code_format_reward` looks at their form."""

import ast
import contextlib
import json
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from grpo_workbook.errors import WorkbookError
from grpo_workbook.rewards import reward, text_of
from grpo_workbook.rewards.contract import Completion, RewardFunction, makes_reward
from grpo_workbook.sandbox.json_tests import is_json
from grpo_workbook.sandbox.pool import Job, Sandbox, Verdict

_FENCE = re.compile(r"^([ \t]*+)```[ \t]*+(?:([\w+-]++)(?:[ \t{][^`\n]*+)?)?$", re.MULTILINE)
_PYTHON = ("", "python", "py", "python3")


# ------------------------------------------------------------------ the program of a completion


def fenced_code(text: str) -> list[str]:
    """The contents of closed fenced blocks whose language is Python, or not given."""
    blocks, opening = [], None
    text = text.replace("\r\n", "\n")
    for fence in _FENCE.finditer(text):
        if opening is None:
            opening = fence
            continue
        if fence[2] is not None:  # only a bare fence closes a block
            continue
        if (opening[2] or "").lower() in _PYTHON:
            code = f"\n{text[opening.end() + 1 : fence.start()]}"
            # without the block's own indentation, as in a list
            blocks.append(code.replace(f"\n{opening[1]}", "\n")[1:])
        opening = None
    return blocks


def program_of(completion: Completion, entry_point: str, prompt: str = "") -> str:
    """The program of a completion: its last fenced block with the entry point, or all of it.

    A block that defines the entry point follows the other definitions of `prompt`, such as imports.
    Other text continues `prompt`, code that ends where the completion begins.
    """
    text = text_of(completion)
    blocks = fenced_code(text)
    code = blocks[-1] if blocks else text
    if not entry_point:
        return code  # a script
    name = re.escape(re.split(r"[.(]", entry_point)[0])
    defines_it = re.compile(rf"^(?:(?:async )?def|class) {name}\b|^{name}\s*=", re.MULTILINE)
    # examples of its use often follow the program
    for block in reversed(blocks):
        if defines_it.search(block):
            return f"{_standalone(prompt)}{block}"
    return code if defines_it.search(code) else prompt + code


def defines(prompt: str, entry_point: str) -> bool:
    """Whether the prompt has the start of the function or class."""
    root = re.escape(re.split(r"[.(]", entry_point)[0])
    return bool(re.search(rf"\b(def|class) {root}\b", prompt))


def _standalone(prompt: str) -> str:
    """The prompt as Python that runs alone; "" if that is impossible."""
    if not prompt:
        return ""
    for whole in (f"{prompt}\n", f"{prompt}    pass\n"):
        if _is_python(whole):
            return whole
    return ""


def _is_python(code: str) -> bool:
    errors = (SyntaxError, ValueError, RecursionError, MemoryError)
    with contextlib.suppress(*errors), warnings.catch_warnings(action="ignore"):
        ast.parse(code)
        return True
    return False


def test_text(test):
    """A test as text: a dict as JSON, MBPP's `test_list` as lines; anything else as it is."""
    if isinstance(test, list) and test and all(isinstance(line, str) for line in test):
        return "\n".join(test)
    if isinstance(test, dict | list):
        return json.dumps(test)
    return test


def jobs_of(
    completions: Sequence[Completion],
    test: Sequence,
    entry_point: Sequence[Any],
    *,
    prompts: Sequence | None = None,
    prompt_code: Sequence | None = None,
) -> list[Job]:
    """A sandbox job for each completion, from the dataset's columns of these names."""
    starts = prompt_code or prompts or [""] * len(completions)
    jobs = []
    for completion, one_test, name, start in zip(
        completions, test, entry_point, starts, strict=True
    ):
        function: Any = "" if name is None and is_json(one_test) else name
        is_code = isinstance(start, str) and (prompt_code or defines(start, str(function)))
        if not is_code:
            start = ""  # neither words nor None are code
        program = program_of(completion, str(function), start)
        # the test's helpers come from the prompt, not from the program
        jobs.append(Job(program, test_text(one_test), function, _standalone(start)))
    return jobs


# ------------------------------------------------------------------ rewards


@makes_reward
def unit_tests(
    sandbox: Sandbox | None = None,
    *,
    partial: bool = False,
    max_failed: float = 0.5,
    time_limit: float = 5.0,
    setup_column: str | None = None,
    require: Literal["by value"] | None = None,
) -> RewardFunction:
    """Make a reward: 1.0 if the program passes its whole test, else 0.0.

        tests = unit_tests(time_limit=2, setup_column="test_setup_code")  # and test, entry_point
        trainer = GRPOTrainer(model, reward_funcs=[tests], train_dataset=dataset)

    Args:
        sandbox: judges the programs: give one of your own to close it, or to read its `counts`.
            Without one, it is a new `Sandbox(time_limit=time_limit)`.
        partial: a failed test earns half of the fraction of its assertions that held; one that was
            not reached counts as failed.
        max_failed: the largest fraction of a batch that may have no verdict or time out.
        time_limit: seconds for each program, without a `sandbox` of your own.
        setup_column: the column of code to run before the test.
        require: "by value": a test that needs program and test in one process gives None. No
            program can give itself a pass in the others.

    A reward is None without a verdict: the sandbox failed, or the test is at fault (not Python,
    never calls the candidate, does not end) and none of the batch passes it. TRL leaves such a
    completion out of its group only if all its rewards are None; beside another reward a None
    counts as 0. TRL logs each outcome's rate (`code/timeout`), and the rates of `code/no verdict`
    and `code/in one process`.

    Raises WorkbookError if more than `max_failed` of a batch has no verdict or timed out.
    """
    if not 0 <= max_failed <= 1:
        raise WorkbookError(f"max_failed is {max_failed}: give a fraction from 0 to 1")
    if require not in (None, "by value"):
        raise WorkbookError(f"require is {require!r}: give 'by value', or leave it out")
    judge = sandbox or Sandbox(time_limit=time_limit)
    needed = ("test", "entry_point")
    if setup_column is not None:
        needed = (*needed, setup_column)

    @reward(role="correctness", columns=needed)
    def unit_test_reward(completions, log_metric=None, **columns):
        """1.0 if the program passes its test, else 0.0 or partial credit; None: unknown."""
        tests = columns["test"]
        if setup_column is not None:
            pairs = zip(columns[setup_column], tests, strict=True)
            tests = [f"{setup or ''}\n{test_text(test)}" for setup, test in pairs]
        jobs = jobs_of(
            completions,
            tests,
            columns["entry_point"],
            prompts=columns.get("prompts"),
            prompt_code=columns.get("prompt_code"),
        )
        verdicts = judge.check(jobs)
        # None, not 0: a program must not lose for a test that says nothing of it
        unsure = _unsure(jobs, verdicts, require)
        _refuse_too_many(verdicts, unsure, max_failed, judge.time_limit)
        if log_metric is not None and verdicts:
            _log(log_metric, verdicts, unsure)
        rewards = []
        for verdict, is_unsure in zip(verdicts, unsure, strict=True):
            if is_unsure:
                rewards.append(None)
            elif verdict.passed:
                rewards.append(1.0)
            else:
                rewards.append(0.5 * verdict.fraction if partial else 0.0)
        return rewards

    return unit_test_reward


def _unsure(jobs: list[Job], verdicts: list[Verdict], require: str | None) -> list[bool]:
    """Which verdicts say nothing of the program.

    A program cannot put the fault on a test that another one of the batch passes.
    """
    passed = []
    for job, verdict in zip(jobs, verdicts, strict=True):
        if verdict.passed:
            passed.append((job.test, job.entry_point, job.setup))
    unsure = []
    for job, verdict in zip(jobs, verdicts, strict=True):
        test = (job.test, job.entry_point, job.setup)
        test_at_fault = verdict.fault == "test" and test not in passed
        not_allowed = require == "by value" and verdict.is_together
        unsure.append(verdict.fault == "sandbox" or test_at_fault or not_allowed)
    return unsure


def _refuse_too_many(
    verdicts: list[Verdict], unsure: list[bool], max_failed: float, time_limit: float
) -> None:
    """Raise WorkbookError if too much of a batch has no verdict, or timed out."""
    unknown, late = [], []
    for verdict, is_unsure in zip(verdicts, unsure, strict=True):
        if is_unsure:
            unknown.append(verdict)
        elif verdict.outcome == "timeout":
            late.append(verdict)
    if len(unknown) + len(late) <= max_failed * len(verdicts):
        return
    counts = f"{len(unknown)} of {len(verdicts)} programs had no verdict and {len(late)} timed out"
    first = [*unknown, *late][0]
    cure = f"raise time_limit ({time_limit:g} s) or max_failed ({max_failed:g})"
    raise WorkbookError(f"{counts} (the first: {first}): fix the tests, or {cure}")


def _log(log_metric, verdicts: list[Verdict], unsure: list[bool]) -> None:
    counts = Counter(verdict.outcome for verdict in verdicts)
    for outcome in {*counts, "timeout", "sandbox error"}:
        log_metric(f"code/{outcome}", counts[outcome] / len(verdicts))
    log_metric("code/no verdict", sum(unsure) / len(verdicts))
    together = sum(verdict.is_together for verdict in verdicts)
    log_metric("code/in one process", together / len(verdicts))


@reward(role="format")
def code_format_reward(completions: Sequence[Completion], **columns) -> list[float]:
    """1.0 for exactly one fenced block of valid Python, 0.5 if it does not parse, else 0.0."""
    rewards = []
    for completion in completions:
        text = text_of(completion)
        blocks = fenced_code(text)
        if len(blocks) != 1 or text.count("```") != 2 or not blocks[0].strip():
            rewards.append(0.0)
        else:
            rewards.append(1.0 if _is_python(blocks[0]) else 0.5)
    return rewards
