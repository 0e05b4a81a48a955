"""From a file of problems to the rows that TRL trains on: read, validate, chat prompts, length budget, split.

A row in is GSM8K's: `question`, and `answer` ending in `#### N` (or a plain number). A row out has `prompt` (a list of
role and content), `answer` (the number as text) and `question`.
"""

import hashlib
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_workbook.answers import reference_answer
from grpo_workbook.run import DATA, WorkbookError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

WORD_PROBLEMS = {split: DATA / "word_problems" / f"{split}.jsonl" for split in ("train", "heldout")}

SYSTEM_PROMPT = "Work inside <reasoning> tags, then give the number inside <answer> tags."

# Qwen3's own template would otherwise open a <think> block before ours. Templates without the switch ignore it.
CHAT_TEMPLATE_KWARGS = {"enable_thinking": False}


def chat_prompt(question: str, system_prompt: str = SYSTEM_PROMPT) -> list[dict[str, str]]:
    """The question as a conversation. Models without a system role fold it into the user's turn by their template."""
    return [{"role": "system", "content": system_prompt}, {"role": "user", "content": question}]


def read_problems(path: str | Path) -> list[dict[str, str]]:
    """The rows of a JSONL file, validated: `question`, `answer` (the final number as text) and `solution` (the whole).

    Raises WorkbookError with file and line for a missing or empty file, a line that is not a JSON object, a missing or
    empty field, an answer without a number.
    """
    path = Path(path)
    if path.is_dir():
        raise WorkbookError(f"data file {path} is a folder: name the JSONL file in it")
    if not path.is_file():
        raise WorkbookError(f"data file {path} does not exist: give a JSONL file with 'question' and 'answer'")
    rows = []
    # Split at \n alone: str.splitlines would also cut at characters that may stand inside a JSON text.
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise WorkbookError(f"{path} is not UTF-8 (byte {error.start}): save it as UTF-8 text") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            rows.append(_read_row(f"{path.name}, line {number}", line))
    if not rows:
        raise WorkbookError(f"{path} is empty: give a JSONL file with 'question' and 'answer' on every line")
    return rows


def _read_row(where: str, line: str) -> dict[str, str]:
    try:
        row = json.loads(line)
    except RecursionError:
        raise WorkbookError(f"{where}: nested too deeply: give one flat JSON object on a line") from None
    except ValueError as error:
        raise WorkbookError(f"{where}: not JSON ({error}): every line must be one JSON object") from None
    if not isinstance(row, dict):
        raise WorkbookError(f"{where}: a {type(row).__name__}, not a JSON object with 'question' and 'answer'")
    for name in ("question", "answer"):
        if name not in row:
            raise WorkbookError(f"{where}: no {name!r} among {sorted(row)}: rename the column or fill it in")
        if not isinstance(row[name], str) or not row[name].strip():
            raise WorkbookError(f"{where}: {name!r} is {row[name]!r}: it must be a non-empty text")
        if any("\ud800" <= c <= "\udfff" for c in row[name]):
            raise WorkbookError(f"{where}: {name!r} holds half of a surrogate pair: save the file as whole UTF-8 text")
    answer = reference_answer(row["answer"])
    if answer is None:
        raise WorkbookError(f"{where}: no number in the answer {row['answer'][-60:]!r}: end it in '#### N', or give N")
    return {"question": row["question"], "answer": answer, "solution": row["answer"]}


def to_dataset(rows: list[dict[str, str]], system_prompt: str = SYSTEM_PROMPT) -> "Dataset":
    """The rows as a dataset with the columns that TRL and the rewards read: prompt, answer, question."""
    from datasets import Dataset

    return Dataset.from_list(
        [
            {"prompt": chat_prompt(r["question"], system_prompt), "answer": r["answer"], "question": r["question"]}
            for r in rows
        ]
    )


def render(prompts: "Sequence[list[dict]]", tokenizer: "PreTrainedTokenizerBase") -> list[str]:
    """Each conversation as the text that the model reads, up to where its own turn begins."""
    return tokenizer.apply_chat_template(
        list(prompts), tokenize=False, add_generation_prompt=True, **CHAT_TEMPLATE_KWARGS
    )


def prompt_lengths(dataset: "Dataset", tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """Tokens of each prompt as the model sees it, template and generation prompt included."""
    return [len(ids) for ids in tokenizer(render(dataset["prompt"], tokenizer), add_special_tokens=False)["input_ids"]]


def drop_long_prompts(
    dataset: "Dataset", tokenizer: "PreTrainedTokenizerBase", max_tokens: int, name: str = "the data"
) -> tuple["Dataset", int]:
    """(the rows whose prompt fits, how many did not). Raises WorkbookError when none fits."""
    lengths = prompt_lengths(dataset, tokenizer)
    fitting = [i for i, length in enumerate(lengths) if length <= max_tokens]
    if not fitting:
        raise WorkbookError(
            f"every prompt of {name} is longer than {max_tokens} tokens (the shortest has "
            f"{min(lengths)}): raise --max-prompt-tokens"
        )
    return (dataset if len(fitting) == len(lengths) else dataset.select(fitting)), len(lengths) - len(fitting)


def split_rows(rows: list[dict[str, str]], heldout: int, seed: int) -> tuple[list[dict], list[dict]]:
    """(train, held-out): a seeded sample of at most `heldout` rows, and never more than a fifth, is held out."""
    count = min(heldout, len(rows) // 5)
    if count == 0:
        raise WorkbookError(f"{len(rows)} rows are too few to hold some out: give at least 5, or --heldout-data FILE")
    chosen = set(random.Random(seed).sample(range(len(rows)), count))
    return [r for i, r in enumerate(rows) if i not in chosen], [rows[i] for i in sorted(chosen)]


def drop_leaked(train: list[dict], heldout: list[dict]) -> tuple[list[dict], int]:
    """(the training rows whose question is not held out, how many were): case and white space do not count."""
    seen = {" ".join(r["question"].lower().split()) for r in heldout}
    kept = [r for r in train if " ".join(r["question"].lower().split()) not in seen]
    if not kept:
        raise WorkbookError("every training question is also held out: give different files")
    return kept, len(train) - len(kept)


def sha256_of(rows: list[dict]) -> str:
    """A hash of the rows' content, so that a report names the data it was measured on."""
    return hashlib.sha256(json.dumps(rows, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
