"""Run model-written Python against tests, and reward what passes: `reward_funcs=[unit_tests()]`.

The dataset's columns are `test` and `entry_point`, named as in HumanEval, and optionally
`prompt_code`: code that the completion continues, with helpers that the test may use. (A plain
text `prompt` that ends inside a function works too.)

A test is Python in any of these shapes, and may import installed packages:

- `check(candidate)` as in HumanEval, HumanEval+ and LeetCode; assertions alone as in MBPP
- functions `test_...` and classes `Test...` of pytest, `unittest.TestCase` as in BigCodeBench
- `from solution import f` or `import solution` as in KodCode: then no `entry_point` is needed
- JSON or a dict with `inputs` and `outputs` as in APPS, CodeContests and LiveCodeBench: the program
  is run as a script for each input, and what it prints is compared; or, with `fn_name`, called

The entry point is a function, a class, or a method such as `Solution().twoSum`.
"""

import ast
import contextlib
import json
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from grpo_workbook.config import DATA
from grpo_workbook.data import chat_prompt
from grpo_workbook.data.reading import read_rows
from grpo_workbook.errors import WorkbookError
from grpo_workbook.rewards import reward, text_of
from grpo_workbook.rewards.contract import Completion, RewardFunction, makes_reward
from grpo_workbook.sandbox.attacks import CodeAttack, code_attacks
from grpo_workbook.sandbox.pool import OUTCOMES, Job, Sandbox, Verdict
from grpo_workbook.sandbox.source import is_json
from grpo_workbook.sandbox.wire import encode

__all__ = ["CODE_SYSTEM_PROMPT", "CODE_TASKS", "HUMANEVAL", "OUTCOMES", "TINY_CODER", "CodeAttack"]
__all__ += ["Job", "Sandbox", "Verdict", "code_attacks", "code_format_reward", "encode"]
__all__ += ["fenced_code", "pass_at_1", "program_of", "read_tasks", "to_code_dataset", "unit_tests"]
__all__ += ["verdicts_of"]

CODE_TASKS = {split: DATA / "code_tasks" / f"{split}.jsonl" for split in ("train", "heldout")}
TINY_CODER = DATA / "tiny-coder"
HUMANEVAL = "openai/openai_humaneval::test"  # on the hub; its file HumanEval.jsonl.gz works too
CODE_SYSTEM_PROMPT = "Complete the function. Answer with one block of Python."
NEEDED = ("prompt", "entry_point", "test")
_FENCE = re.compile(r"^([ \t]*+)```[ \t]*+(?:([\w+-]++)(?:[ \t{][^`\n]*+)?)?$", re.MULTILINE)


def read_tasks(source: str | Path) -> list[dict[str, str]]:
    """The tasks of a file (.jsonl, .csv, .parquet; text files also .gz) or hub id, all columns.

    `prompt` is the start of the function `entry_point`; most tasks have a `canonical_solution`.
    Raises WorkbookError for a row without a column of NEEDED, or without the function's start.
    """
    tasks: list[dict] = read_rows(source).to_list()
    for number, row in enumerate(tasks, 1):
        row["test"] = _text(row.get("test"))
        cases, why = is_json(row["test"]), ""
        needed = [c for c in NEEDED if not (cases and c == "entry_point")]
        empty = [c for c in needed if not isinstance(row.get(c), str) or not row[c].strip()]
        if empty:
            what = f"{empty[0]!r} is {str(row.get(empty[0]))[:40]!r}"
            why = f"{what}: every task needs text in {', '.join(needed)}, as in HumanEval"
        elif not cases and not _defines(row["prompt"], name := row["entry_point"]):
            why = f"the prompt does not define {name[:40]!r}: end it where the solution begins"
        if why:
            raise WorkbookError(f"{source}, row {number}: {why}")
    return tasks


def _text(test):
    if isinstance(test, list) and test and all(isinstance(line, str) for line in test):
        return "\n".join(test)  # MBPP's test_list
    return json.dumps(test) if isinstance(test, dict | list) else test


def _defines(prompt: str, name: str) -> bool:
    root = re.escape(re.split(r"[.(]", name)[0])
    return bool(re.search(rf"\b(def|class) {root}\b", prompt))


def to_code_dataset(tasks: Sequence[dict], system_prompt: str = CODE_SYSTEM_PROMPT):
    """TRL's dataset: prompt (the conversation), prompt_code, entry_point, test, other columns."""
    from datasets import Dataset

    first = dict.fromkeys(("prompt", "prompt_code", "entry_point", "test"))  # these columns first
    rows = [first | task | {"prompt_code": task["prompt"]} for task in tasks]
    chats = [chat_prompt(task["prompt"], system_prompt) for task in tasks]
    return Dataset.from_list([r | {"prompt": c} for r, c in zip(rows, chats, strict=True)])


def fenced_code(text: str) -> list[str]:
    """The contents of closed fenced blocks whose language is Python, or not given."""
    found, opening, text = [], None, text.replace("\r\n", "\n")
    for fence in _FENCE.finditer(text):
        if opening is None:
            opening = fence
        elif fence[2] is None:  # only a bare fence closes a block
            if (opening[2] or "").lower() in ("", "python", "py", "python3"):
                code = f"\n{text[opening.end() + 1 : fence.start()]}"
                found.append(code.replace(f"\n{opening[1]}", "\n")[1:])  # indented, as in a list
            opening = None
    return found


def program_of(completion: Completion, entry_point: str, prompt: str = "") -> str:
    """The program of a completion: its last fenced block with the entry point, or all of it.

    A block that defines the entry point follows the other definitions of `prompt`, such as imports.
    Other text continues `prompt`, code that ends where the completion begins.
    """
    text, name = text_of(completion), re.escape(re.split(r"[.(]", entry_point)[0])
    defines = re.compile(rf"^(?:(?:async )?def|class) {name}\b|^{name}\s*=", re.MULTILINE)
    blocks = fenced_code(text)
    if name and (whole := [block for block in blocks if defines.search(block)]):
        return f"{_standalone(prompt)}{whole[-1]}"
    code = blocks[-1] if blocks else text
    return code if not name or defines.search(code) else prompt + code  # no name: a script


def _standalone(prompt: str) -> str:
    """The prompt as Python that runs alone; "" if that is impossible."""
    wholes = (f"{prompt}\n", f"{prompt}    pass\n")
    return next(filter(_is_python, wholes), "") if prompt else ""


def _is_python(code: str) -> bool:
    errors = SyntaxError, ValueError, RecursionError, MemoryError
    with contextlib.suppress(*errors), warnings.catch_warnings(action="ignore"):
        return isinstance(ast.parse(code), ast.Module)
    return False


def jobs_of(completions, test, entry_point, prompts=None, prompt_code=None, **columns) -> list[Job]:
    """A sandbox job for each completion, from the dataset's columns (see above)."""
    starts = prompt_code or prompts or [""] * len(completions)
    jobs = []
    for completion, one, name, start in zip(completions, test, entry_point, starts, strict=True):
        name = "" if name is None and is_json(one) else name
        if not isinstance(start, str) or not (prompt_code or _defines(start, str(name))):
            start = ""  # neither words nor None are code
        program = program_of(completion, str(name), start)
        # the test's helpers come from the prompt, not from the program
        jobs.append(Job(program, _text(one), name, _standalone(start)))
    return jobs


def verdicts_of(completions: Sequence[Completion], dataset, sandbox: Sandbox) -> list[Verdict]:
    """One Verdict for each completion; row i of the dataset belongs to completion i."""
    columns = {name: list(dataset[name]) for name in ("test", "entry_point", "prompt_code")}
    return sandbox.check(jobs_of(completions, **columns))


def pass_at_1(model, tokenizer, dataset, sandbox: Sandbox, **how) -> tuple[list, list]:
    """(verdicts, completions): one completion per task, judged; pass@1 is the rate that passed.

    `how` goes to evaluation.generate: max_new_tokens, sample, seed, batch_size, temperature.
    """
    from grpo_workbook.evaluation import generate

    completions = generate(model, tokenizer, list(dataset["prompt"]), **how)
    return verdicts_of(completions, dataset, sandbox), completions


@makes_reward
def unit_tests(
    sandbox: Sandbox | None = None, *, partial: bool = False, max_failed: float = 0.5,
    time_limit: float = 5.0, setup_column: str | None = None,
) -> RewardFunction:  # fmt: skip
    """Make a reward: 1.0 if the program passes its whole test, else 0.0.

        tests = unit_tests(time_limit=2, setup_column="test_setup_code")  # and test, entry_point
        trainer = GRPOTrainer(model, reward_funcs=[tests], train_dataset=dataset)

    `time_limit`: seconds for each program, without a `sandbox` of your own. `setup_column`: code to
    run before the test.
    With `partial` a failed test earns half of the fraction of its assertions that held; one that
    was not reached counts as failed. None without a verdict: the sandbox failed, or the test is at
    fault (not Python, never calls the candidate, does not end) and none of the batch passes it.
    Raises WorkbookError if more than `max_failed` of a batch has no verdict or timed out. TRL logs
    each outcome's rate (`code/timeout`), and the rate without a verdict (`code/no verdict`).
    """
    if not 0 <= max_failed <= 1:
        raise WorkbookError(f"max_failed is {max_failed}: give a fraction from 0 to 1")
    sandbox = sandbox or Sandbox(time_limit=time_limit)
    needed = ("test", "entry_point", *([setup_column] if setup_column else []))

    @reward(role="correctness", columns=needed)
    def unit_test_reward(completions, log_metric=None, **columns):
        """1.0 if the program passes its test, else 0.0 or partial credit; None: unknown."""
        if setup_column:
            pairs = zip(columns[setup_column], columns["test"], strict=True)
            columns["test"] = [f"{setup or ''}\n{_text(test)}" for setup, test in pairs]
        verdicts = sandbox.check(jobs := jobs_of(completions, **columns))
        # a program cannot put the fault on a test that another one of the batch passes
        task = [(job.test, job.entry_point, job.setup) for job in jobs]
        good = {one for one, v in zip(task, verdicts, strict=True) if v.passed}
        lost = [v for one, v in zip(task, verdicts, strict=True) if one not in good]
        unsure = [v for v in verdicts if v.fault == "sandbox" or (v.fault == "test" and v in lost)]
        late = [v for v in verdicts if v.outcome == "timeout" and v.fault == "program"]
        if len(unsure) + len(late) > max_failed * len(verdicts):
            found = f"{len(unsure)} of {len(verdicts)} programs had no verdict and {len(late)}"
            found += f" timed out (the first: {(unsure or late)[0]})"
            cure = f"raise time_limit ({sandbox.time_limit:g} s) or max_failed ({max_failed:g})"
            raise WorkbookError(f"{found}: fix the tests, or {cure}")
        if log_metric is not None and verdicts:
            counts = Counter(v.outcome for v in verdicts)
            for outcome in {*counts, "timeout", "sandbox error"}:
                log_metric(f"code/{outcome}", counts[outcome] / len(verdicts))
            log_metric("code/no verdict", len(unsure) / len(verdicts))
        credit = 0.5 if partial else 0.0
        paid = [1.0 if v.passed else credit * v.fraction for v in verdicts]
        return [None if v in unsure else p for v, p in zip(verdicts, paid, strict=True)]

    unit_test_reward.sandbox = sandbox
    return unit_test_reward


@reward(role="format")
def code_format_reward(completions: Sequence[Completion], **columns) -> list[float]:
    """1.0 for exactly one fenced block of valid Python, 0.5 if it does not parse, else 0.0."""
    values = []
    for text in map(text_of, completions):
        blocks = fenced_code(text)
        one = len(blocks) == 1 and text.count("```") == 2 and blocks[0].strip()
        values.append((1.0 if _is_python(blocks[0]) else 0.5) if one else 0.0)
    return values
