"""Tasks for code rewards, in HumanEval's form, as chat prompts; and pass@1 on them.

A task has `prompt` (the beginning of a function), `entry_point`, `test`, and most have
`canonical_solution`.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_workbook.config import DATA
from grpo_workbook.data import chat_prompt, read_rows
from grpo_workbook.errors import WorkbookError
from grpo_workbook.sandbox.pool import Sandbox, Verdict
from grpo_workbook.sandbox.rewards import jobs_of

if TYPE_CHECKING:
    from datasets import Dataset

    from grpo_workbook.rewards import Completion

CODE_TASKS = {split: DATA / "code_tasks" / f"{split}.jsonl" for split in ("train", "heldout")}
TINY_CODER = DATA / "tiny-coder"
HUMANEVAL = "openai/openai_humaneval::test"  # on the hub; its file HumanEval.jsonl.gz does as well
CODE_SYSTEM_PROMPT = "Complete the function. Answer with one block of Python."
NEEDED = ("prompt", "entry_point", "test")


def read_tasks(source: str | Path) -> list[dict[str, str]]:
    """The tasks of a file (.jsonl, .csv, .parquet; texts also .gz) or hub id, with all columns.

    Raises WorkbookError, with the row, for one that lacks a column of NEEDED, or whose prompt does
    not define the entry point.
    """
    tasks: list[dict] = read_rows(source).to_list()
    for number, row in enumerate(tasks, 1):
        for column in NEEDED:
            if not isinstance(value := row.get(column), str) or not value.strip():
                raise WorkbookError(
                    f"{source}, row {number}: {column!r} is {str(value)[:40]!r}: every task needs "
                    f"text in {', '.join(NEEDED)}, as HumanEval has them"
                )
        name = row["entry_point"]
        if not re.search(rf"\bdef {re.escape(name)}\b", row["prompt"]):
            raise WorkbookError(
                f"{source}, row {number}: the prompt defines no function {name[:40]!r}: it must be "
                "code that ends where the solution begins"
            )
    return tasks


def to_code_dataset(
    tasks: Sequence[dict[str, str]], system_prompt: str = CODE_SYSTEM_PROMPT
) -> "Dataset":
    """TRL's dataset: prompt (the conversation), prompt_code, entry_point, test, other columns."""
    from datasets import Dataset

    rows = []
    for task in tasks:
        code = {"prompt": chat_prompt(task["prompt"], system_prompt), "prompt_code": task["prompt"]}
        rows.append(code | {n: task[n] for n in ("entry_point", "test")} | {**task, **code})
    return Dataset.from_list(rows)


def verdicts_of(
    completions: "Sequence[Completion]", dataset: "Dataset", sandbox: Sandbox
) -> list[Verdict]:
    """One Verdict for each completion; row i of the dataset belongs to completion i."""
    columns = {name: list(dataset[name]) for name in ("test", "entry_point", "prompt_code")}
    return sandbox.check(jobs_of(completions, **columns))


def pass_at_1(
    model, tokenizer, dataset: "Dataset", sandbox: Sandbox, *, max_new_tokens: int, **how
) -> tuple[list[Verdict], list[str]]:
    """(verdicts, completions): one completion for each task, judged. pass@1: the rate that passed.

    `how` goes to evaluation.generate: sample, seed, batch_size, temperature, progress.
    """
    from grpo_workbook.evaluation import generate

    how = {"max_new_tokens": max_new_tokens, **how}
    completions = generate(model, tokenizer, list(dataset["prompt"]), **how)
    return verdicts_of(completions, dataset, sandbox), completions
