"""From rows to the model's input: chat prompts, templates and their lengths in tokens."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_workbook.config import CHAT_TEMPLATE_KWARGS, SYSTEM_PROMPT
from grpo_workbook.data.reading import read_rows
from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.files import readable

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase as Tokenizer


def chat_prompt(question: str, system_prompt: str | None = SYSTEM_PROMPT) -> list[dict[str, str]]:
    """A conversation: the system prompt, if there is one, then the question."""
    system = [{"role": "system", "content": system_prompt}] if system_prompt else []
    return [*system, {"role": "user", "content": question}]


def fold_system(prompt: list[dict[str, str]]) -> list[dict[str, str]]:
    """The conversation with its system text moved to the start of the first user turn."""
    if prompt[0]["role"] != "system":
        return prompt
    system, first, *rest = prompt
    return [{**first, "content": f"{system['content']}\n\n{first['content']}"}, *rest]


def to_dataset(rows, system_prompt: str | None = SYSTEM_PROMPT, fold: bool = False) -> "Dataset":
    """The rows with a `prompt` (columns prompt, answer, question, then all others unchanged);
    `fold` writes the system prompt into the user turn (see `needs_folding`).
    """
    dataset, shaped = read_rows(rows), fold_system if fold else list

    def prompts(questions: list[str]) -> dict:
        return {"prompt": [shaped(chat_prompt(text, system_prompt)) for text in questions]}

    names = dict.fromkeys(["prompt", "answer", "question", *dataset.column_names])
    return dataset.map(prompts, batched=True, input_columns="question").select_columns([*names])


def load_tokenizer(model: str | Path) -> "Tokenizer":
    """The tokenizer of a folder or a hub id, padding on the left. It needs a chat template."""
    from transformers import AutoTokenizer

    name, here = readable(model), Path(model).is_dir()
    try:
        tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left", local_files_only=here)
    except Exception as error:  # a damaged file can raise anything
        why = f"({first_line(error)}): check the name, and the network if it is a hub id"
        raise WorkbookError(f"the tokenizer of {name!r} cannot be loaded {why}") from error
    if not tokenizer.chat_template or len(tokenizer) < 100:  # few: its vocabulary is missing
        said = f"{name!r} has no tokenizer with a chat template"
        raise WorkbookError(f"{said}: choose an instruction-tuned model")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return tokenizer


def needs_folding(tokenizer: "Tokenizer") -> bool:
    """Whether the template refuses or drops a system message, so it must go into the user turn."""
    from jinja2 import TemplateError

    try:
        return "SYSTEM TEXT" not in render([chat_prompt("?", "SYSTEM TEXT")], tokenizer)[0]
    except TemplateError:
        return True


def render(prompts: Sequence[list[dict]], tokenizer: Any) -> list[str]:
    """Each conversation as the text that the model reads, up to the start of its own turn."""
    how = {"tokenize": False, "add_generation_prompt": True, **CHAT_TEMPLATE_KWARGS}
    return tokenizer.apply_chat_template(list(prompts), **how)


def prompt_lengths(dataset: "Dataset", tokenizer: "Tokenizer") -> list[int]:
    """The length of each prompt in tokens, with the template and the generation prompt."""
    texts = render(dataset["prompt"][:], tokenizer)
    return [*map(len, tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"])]


def drop_long_prompts(dataset: "Dataset", tokenizer, max_prompt_length: int, name="the data"):
    """(the rows with a prompt of at most so many tokens, number dropped): TRL truncates none."""
    lengths = prompt_lengths(dataset, tokenizer)
    fitting = [row for row, length in enumerate(lengths) if length <= max_prompt_length]
    if not fitting:
        said = f"{name} has no prompt of at most {max_prompt_length} tokens"
        raise WorkbookError(f"{said} (the shortest has {min(lengths)}): raise --max-prompt-length")
    return dataset.select(fitting), len(lengths) - len(fitting)
