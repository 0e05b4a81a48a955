"""Tasks with a function to complete and a test: read, made a dataset of TRL, judged."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_workbook.config import DATA
from grpo_workbook.data import chat_prompt
from grpo_workbook.data.reading import read_rows
from grpo_workbook.errors import WorkbookError
from grpo_workbook.rewards.contract import Completion
from grpo_workbook.sandbox.json_tests import is_json
from grpo_workbook.sandbox.pool import Sandbox, Verdict
from grpo_workbook.sandbox.rewards import defines, jobs_of, test_text

if TYPE_CHECKING:
    from datasets import Dataset

CODE_TASKS = {split: DATA / "code_tasks" / f"{split}.jsonl" for split in ("train", "heldout")}
TINY_CODER = DATA / "tiny-coder"
HUMANEVAL = "openai/openai_humaneval::test"  # on the hub; its file HumanEval.jsonl.gz works too
CODE_SYSTEM_PROMPT = "Complete the function. Answer with one block of Python."
NEEDED = ("prompt", "entry_point", "test")


def read_tasks(source: str | Path) -> list[dict[str, Any]]:
    """The tasks of a file (.jsonl, .csv, .parquet; text files also .gz) or hub id, all columns.

    `source` is what `data.reading.read_rows` takes. A task's `prompt` is the start of its function
    `entry_point`; most tasks have a `canonical_solution`.
    Raises WorkbookError for a row without a column of NEEDED, or without the function's start.
    """
    tasks: list[dict] = read_rows(source).to_list()
    for number, task in enumerate(tasks, 1):
        task["test"] = test_text(task.get("test"))
        problem = _problem_of(task)
        if problem:
            raise WorkbookError(f"{source}, row {number}: {problem}")
    return tasks


def _problem_of(task: dict) -> str:
    """What is wrong with a task; "" if nothing is."""
    needed = list(NEEDED)
    if is_json(task["test"]):
        needed.remove("entry_point")
    for column in needed:
        value = task.get(column)
        if not isinstance(value, str) or not value.strip():
            columns = ", ".join(needed)
            value = str(value)[:40]
            return f"{column!r} is {value!r}: every task needs text in {columns}, as in HumanEval"
    name = str(task.get("entry_point"))
    if "entry_point" in needed and not defines(task["prompt"], name):
        return f"the prompt does not define {name[:40]!r}: end it where the solution begins"
    return ""


def to_code_dataset(tasks: Sequence[dict]) -> "Dataset":
    """TRL's dataset of tasks as `read_tasks` gives them.

    Its columns are prompt (the conversation), prompt_code (the code in it), entry_point, test, and
    all others of the tasks.
    """
    from datasets import Dataset

    rows = []
    for task in tasks:
        first = {
            "prompt": chat_prompt(task["prompt"], CODE_SYSTEM_PROMPT),
            "prompt_code": task["prompt"],
            "entry_point": task.get("entry_point"),
            "test": task.get("test"),
        }
        others = {name: value for name, value in task.items() if name not in first}
        rows.append(first | others)
    return Dataset.from_list(rows)


def verdicts_of(completions: Sequence[Completion], dataset: Any, sandbox: Sandbox) -> list[Verdict]:
    """One Verdict for each completion; row i of the dataset belongs to completion i.

    `dataset` is one of `to_code_dataset`, and `sandbox` judges.
    """
    tests, names = list(dataset["test"]), list(dataset["entry_point"])
    return sandbox.check(jobs_of(completions, tests, names, prompt_code=dataset["prompt_code"]))


def pass_at_1(
    model: Any,
    tokenizer: Any,
    dataset: Any,
    sandbox: Sandbox,
    *,
    sample: bool = False,
    max_new_tokens: int = 256,
    batch_size: int = 32,
    seed: int = 0,
) -> tuple[list[Verdict], list[str]]:
    """(verdicts, completions): one completion per task, judged; pass@1 is the rate that passed.

    `dataset` is one of `to_code_dataset`, and `sandbox` judges. The other parameters (model,
    tokenizer, sample, max_new_tokens, batch_size, seed) are those of `evaluation.generate`, which
    samples at temperature 1.
    """
    from grpo_workbook.evaluation import generate

    completions = generate(
        model,
        tokenizer,
        list(dataset["prompt"]),
        sample=sample,
        max_new_tokens=max_new_tokens,
        batch_size=batch_size,
        seed=seed,
    )
    return verdicts_of(completions, dataset, sandbox), completions
