"""From problems to what the model reads: chat prompts, examples in the prompt, token boundaries, the length budget.

Rows in have `question` and `answer` (see problems.py). Rows out begin with `prompt` (a list of role and content), which
TRL reads; it hands `answer` and every other column to the rewards.
"""

import contextlib
import hashlib
import json
from array import array
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_workbook.config import CHAT_TEMPLATE_KWARGS, DATA, SYSTEM_PROMPT
from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.files import readable
from grpo_workbook.problems import load

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

WORD_PROBLEMS = {split: DATA / "word_problems" / f"{split}.jsonl" for split in ("train", "heldout")}
KNOWLEDGE_BASE = DATA / "knowledge_base.csv"

# One of these holds the vocabulary; without it Transformers makes an empty tokenizer and says nothing.
VOCABULARIES = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model")

BATCH = 1000  # rows that are held at once
BAR_FROM = 50_000  # rows that take long enough for a progress bar


def read_problems(source: str | Path) -> list[dict[str, str]]:
    """The rows of a small source as a list: `question`, `answer` (the final number as text), `solution` (the whole).

    Raises WorkbookError with file and line for whatever is wrong. `problems.load` does the same for any size.
    """
    return load(source, answers="number").dataset.to_list()


def chat_prompt(
    question: str,
    system_prompt: str | None = SYSTEM_PROMPT,
    examples: "Sequence[tuple[str, str]]" = (),
) -> list[dict[str, str]]:
    """The question as a conversation, after the system prompt and after `examples`: (question, completion) each.

    One example is one-shot, several are few-shot. Without a system prompt (None or "") there is no system turn: then
    the template may add its own.
    """
    shown = [
        {"role": role, "content": text}
        for pair in examples
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]
    opening = [{"role": "system", "content": system_prompt}] if system_prompt else []
    return [*opening, *shown, {"role": "user", "content": question}]


def fold_system(prompt: list[dict[str, str]]) -> list[dict[str, str]]:
    """The conversation without a system turn: its text goes before the first user's, for templates that refuse one."""
    if prompt[0]["role"] != "system":
        return prompt
    system, first, *rest = prompt
    return [{**first, "content": f"{system['content']}\n\n{first['content']}"}, *rest]


def to_dataset(
    rows: "Dataset | Sequence[dict]",
    system_prompt: str | None = SYSTEM_PROMPT,
    examples: "Sequence[tuple[str, str]]" = (),
    fold: bool = False,
) -> "Dataset":
    """The rows with `prompt` in front: prompt, answer, question, then every other column untouched.

    `fold` writes the system prompt into the user's turn, for a template without a system role (see needs_folding).
    Raises WorkbookError for rows without `question` or `answer`, and for no rows.
    """
    from datasets import Dataset

    dataset = rows if isinstance(rows, Dataset) else Dataset.from_list(list(rows))
    if missing := [name for name in ("question", "answer") if name not in dataset.column_names]:
        there = ", ".join(map(repr, dataset.column_names)) or "none"
        raise WorkbookError(
            f"the rows have no column {' and no '.join(map(repr, missing))} (columns: {there}): rename the columns, or "
            "read the rows with problems.load"
        )

    def prompts(batch: dict) -> dict:
        made = [chat_prompt(question, system_prompt, examples) for question in batch["question"]]
        return {"prompt": [fold_system(prompt) for prompt in made] if fold else made}

    with _bars(len(dataset)):
        dataset = dataset.map(prompts, batched=True, batch_size=BATCH)
    first = ["prompt", "answer", "question"]
    return dataset.select_columns(
        [*first, *(name for name in dataset.column_names if name not in first)]
    )


@contextlib.contextmanager
def _bars(rows: int):
    """Progress bars of `datasets` for long work only."""
    from datasets.utils import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    shown = not are_progress_bars_disabled()
    if rows < BAR_FROM:
        disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            enable_progress_bars()


def load_tokenizer(model: str | Path) -> "PreTrainedTokenizerBase":
    """The tokenizer of a folder or hub id, padding on the left. Of a folder nothing is asked of the network.

    Raises WorkbookError where there is none, or it has no chat template.
    """
    here = Path(model).is_dir()
    if here and not any((Path(model) / name).is_file() for name in VOCABULARIES):
        raise WorkbookError(
            f"the folder {readable(model)} has no tokenizer ({', '.join(VOCABULARIES)}): copy it there"
        )
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left", local_files_only=here)
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise WorkbookError(
            f"the tokenizer of {readable(model)!r} cannot be loaded ({first_line(error)}): check the name, and the "
            "network if it is a hub id"
        ) from error
    if not tokenizer.chat_template:
        raise WorkbookError(
            f"{readable(model)!r} has no chat template, so it cannot be asked as a chat: name an instruction-tuned "
            "model"
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def system_role(tokenizer: "PreTrainedTokenizerBase") -> str:
    """What the chat template does with a system message.

    "own turn", "in the user's turn" (Gemma), "refused" or "ignored"; for the last two see `needs_folding`.
    """
    from jinja2 import TemplateError

    try:
        text = render([chat_prompt("USER TEXT", "SYSTEM TEXT")], tokenizer)[0]
    except TemplateError:
        return "refused"
    _, found, after = text.partition("SYSTEM TEXT")
    if not found:
        return "ignored"
    return "own turn" if after.partition("USER TEXT")[0].strip() else "in the user's turn"


def needs_folding(tokenizer: "PreTrainedTokenizerBase") -> bool:
    """Whether the system prompt must open the user's turn (see fold_system): the template refuses or drops one."""
    return system_role(tokenizer) in ("refused", "ignored")


def added_system_text(tokenizer: "PreTrainedTokenizerBase") -> str:
    """What the template itself puts before the first user's turn when there is no system message; "" for nothing."""
    turns = [("user", "FIRST"), ("assistant", "x"), ("user", "SECOND")]
    text = render([[{"role": role, "content": content} for role, content in turns]], tokenizer)[0]
    first, second = text.partition("FIRST")[0], text.partition("SECOND")[0]
    common = 0  # how both users' turns begin
    while common < len(first) and first[-1 - common] == second[-1 - common]:
        common += 1
    return first[: len(first) - common].removeprefix(tokenizer.bos_token or "").strip()


def render(prompts: "Sequence[list[dict]]", tokenizer: "PreTrainedTokenizerBase") -> list[str]:
    """Each conversation as the text that the model reads, up to where its own turn begins.

    Raises jinja2's TemplateError where the chat template refuses a role (see system_role).
    """
    return tokenizer.apply_chat_template(
        list(prompts), tokenize=False, add_generation_prompt=True, **CHAT_TEMPLATE_KWARGS
    )


def token_boundaries(text: str, tokenizer: "PreTrainedTokenizerBase", mark: str = "|") -> str:
    """The text with a mark between every two tokens; a line end is written out before it is made.

    Tokens that share a character (a rare one, of several byte tokens) stand together.
    """
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)[
        "offset_mapping"
    ]
    ends = sorted({end for _, end in offsets if 0 < end < len(text)})
    parts = [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]
    return mark.join(part.replace("\n", "\\n\n") for part in parts)


def prompt_lengths(dataset: "Dataset", tokenizer: "PreTrainedTokenizerBase") -> array:
    """Tokens of each prompt as the model sees it, template and generation prompt included, in the rows' order."""
    from tqdm import tqdm

    lengths = array("q")
    bar = tqdm(
        total=len(dataset),
        desc="tokenizing",
        unit="row",
        ncols=80,
        leave=False,
        disable=len(dataset) < BAR_FROM,
    )
    with bar:
        for batch in dataset.select_columns("prompt").iter(BATCH):
            ids = tokenizer(
                render(batch["prompt"], tokenizer), add_special_tokens=False, verbose=False
            )["input_ids"]
            lengths.extend(map(len, ids))
            bar.update(len(ids))
    return lengths


def drop_long_prompts(
    dataset: "Dataset",
    tokenizer: "PreTrainedTokenizerBase",
    max_prompt_length: int,
    name: str = "the data",
) -> tuple["Dataset", int]:
    """(the rows whose prompt has at most `max_prompt_length`, how many have more). TRL truncates none.

    Raises WorkbookError when there are no rows, or none fits; `name` is what it calls the data.
    """
    import numpy as np

    if not len(dataset):
        raise WorkbookError(f"{name} has no rows: give at least one")
    lengths = prompt_lengths(dataset, tokenizer)
    fitting = np.flatnonzero(np.frombuffer(lengths, np.int64) <= max_prompt_length)
    if not len(fitting):
        raise WorkbookError(
            f"every prompt of {name} is longer than {max_prompt_length} tokens (the shortest has "
            f"{min(lengths)}): raise --max-prompt-length"
        )
    return (dataset if len(fitting) == len(lengths) else dataset.select(fitting)), len(
        lengths
    ) - len(fitting)


def sha256_of(*parts: "Iterable[dict]") -> str:
    """A hash (64 hex digits) of the rows' content, of all parts in order: a report names by it what it was measured on.

    The order of a row's columns does not count; a value that JSON cannot hold counts by its text.
    """
    found, separator = hashlib.sha256(b"["), b""
    for part in parts:
        for row in part:
            found.update(
                separator
                + json.dumps(row, sort_keys=True, ensure_ascii=False, default=str).encode()
            )
            separator = b", "
    found.update(b"]")
    return found.hexdigest()
