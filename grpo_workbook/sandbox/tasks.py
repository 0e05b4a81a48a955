"""Tasks for code rewards, in HumanEval's form, as chat prompts; and pass@1 on them.

A task has `prompt` (the beginning of a function), `entry_point`, `test`, and most have `canonical_solution`. As a
dataset for TRL, `prompt` becomes the conversation and the code moves to `prompt_code`.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_workbook.config import DATA
from grpo_workbook.data import chat_prompt
from grpo_workbook.errors import WorkbookError
from grpo_workbook.readers import Fault
from grpo_workbook.sandbox.rewards import jobs_of
from grpo_workbook.sources import open_source

if TYPE_CHECKING:
    from datasets import Dataset

    from grpo_workbook.rewards import Completion
    from grpo_workbook.sandbox.sandbox import Sandbox, Verdict

CODE_TASKS = {split: DATA / "code_tasks" / f"{split}.jsonl" for split in ("train", "heldout")}
TINY_CODER = DATA / "tiny-coder"
HUMANEVAL = "openai/openai_humaneval::test"  # on the hub; its file HumanEval.jsonl.gz does as well
CODE_SYSTEM_PROMPT = "Complete the function. Answer with one block of Python."
NEEDED = ("prompt", "entry_point", "test")


def read_tasks(source: "str | Path") -> list[dict[str, str]]:
    """The tasks of a file (JSONL, CSV or Parquet, texts also as .gz) or of a hub id, each with all its columns.

    Raises WorkbookError, with file and line, for a row that cannot be read, lacks one of NEEDED, or whose prompt does
    not define the entry point.
    """
    opened = open_source(source)
    tasks = []
    for number, row in opened.rows():
        if isinstance(row, Fault):
            raise WorkbookError(f"{opened.place(number, row.line)}: {row.text}")
        for name in NEEDED:
            if not isinstance(row.get(name), str) or not row[name].strip():
                raise WorkbookError(
                    f"{opened.place(number)}: {name!r} is {str(row.get(name))[:40]!r}: every task needs text in "
                    f"{', '.join(NEEDED)}, as HumanEval has them"
                )
        if not re.search(rf"\bdef {re.escape(row['entry_point'])}\b", row["prompt"]):
            raise WorkbookError(
                f"{opened.place(number)}: the prompt defines no function {row['entry_point'][:40]!r}: it must be code "
                "that ends where the solution begins"
            )
        tasks.append(row)
    return tasks


def code_prompt(code: str, system_prompt: str = CODE_SYSTEM_PROMPT) -> list[dict[str, str]]:
    """The conversation that asks for the rest of a function."""
    return chat_prompt(code, system_prompt)


def to_code_dataset(
    tasks: Sequence[dict[str, str]], system_prompt: str = CODE_SYSTEM_PROMPT
) -> "Dataset":
    """TRL's dataset: prompt (the conversation), prompt_code, entry_point, test, then every other column."""
    from datasets import Dataset

    return Dataset.from_list(
        [
            {
                "prompt": code_prompt(task["prompt"], system_prompt),
                "prompt_code": task["prompt"],
                "entry_point": task["entry_point"],
                "test": task["test"],
                **{name: value for name, value in task.items() if name not in NEEDED},
            }
            for task in tasks
        ]
    )


def verdicts_of(
    completions: "Sequence[Completion]", dataset: "Dataset", sandbox: "Sandbox"
) -> "list[Verdict]":
    """One Verdict for each completion; row i of the dataset belongs to completion i."""
    columns = {name: list(dataset[name]) for name in ("test", "entry_point", "prompt_code")}
    return sandbox.check(jobs_of(completions, **columns))


def pass_at_1(
    model, tokenizer, dataset: "Dataset", sandbox: "Sandbox", *, max_new_tokens: int, **how
) -> "tuple[list[Verdict], list[str]]":
    """(verdicts, completions): one completion for each task, judged. pass@1 is the share that passed.

    `how` goes to evaluate.generate: sample, seed, batch_size, temperature, progress.
    """
    from grpo_workbook.evaluate import generate

    completions = generate(
        model, tokenizer, list(dataset["prompt"]), max_new_tokens=max_new_tokens, **how
    )
    return verdicts_of(completions, dataset, sandbox), completions
