"""From rows to the model's input: chat prompts, chat templates, and lengths in tokens."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_workbook.config import CHAT_TEMPLATE_KWARGS, SYSTEM_PROMPT
from grpo_workbook.data.chats import CHAT, has_chats
from grpo_workbook.data.reading import read_rows
from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.files import readable
from grpo_workbook.pictures import (
    encode,
    image_column,
    is_processor,
    pictures_in,
    place_pictures,
    require_processor,
    tokenizer_of,
)

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase as Tokenizer

Chat = list[dict[str, str]]  # messages with "role" and "content"


def chat_prompt(question: str, system_prompt: str | None = SYSTEM_PROMPT) -> Chat:
    """A conversation: the `system_prompt`, unless it is None or "", then the question."""
    user_turn = {"role": "user", "content": question}
    if not system_prompt:
        return [user_turn]
    return [{"role": "system", "content": system_prompt}, user_turn]


def with_system(chat: Chat, system_prompt: str | None) -> Chat:
    """The conversation with this system message first, unless it has one of its own."""
    if not system_prompt or chat[0]["role"] == "system":
        return chat
    return [{"role": "system", "content": system_prompt}, *chat]


def fold_system(prompt: Chat) -> Chat:
    """The conversation with its system text moved to the start of the first user turn."""
    if prompt[0]["role"] != "system":
        return prompt
    system, first_turn, *rest = prompt
    content = f"{system['content']}\n\n{first_turn['content']}"
    return [{**first_turn, "content": content}, *rest]


def to_dataset(
    rows: Any, system_prompt: str | None = SYSTEM_PROMPT, fold: bool = False
) -> "Dataset":
    """Add a `prompt` to the rows, as TRL and the rewards read them.

    Args:
        rows: a Dataset or a list of dicts, with `question` and `answer` (see `load_problems`). With
            `chat`, the messages of a conversation, that is the prompt.
        system_prompt: the instruction before each question; None or "" for no instruction. A
            conversation that begins with a system message keeps its own.
        fold: write the instruction into the user's turn (see `needs_folding`).

    Returns:
        The columns prompt, answer and question, then all others unchanged.
    """
    from datasets import Features

    dataset = read_rows(rows)
    source = "question"
    features = None  # as `datasets` guesses them
    # A user's own column of this name may be a text.
    if has_chats(dataset, CHAT):
        source = CHAT
        # As messages were read: a struct would give each of them the keys of all others.
        features = Features({**dataset.features, "prompt": dataset.features[CHAT]})

    def make_prompts(sources: list) -> dict[str, list]:
        if source == CHAT:
            prompts = [with_system(chat, system_prompt) for chat in sources]
        else:
            prompts = [chat_prompt(question, system_prompt) for question in sources]
        if fold:
            prompts = [fold_system(prompt) for prompt in prompts]
        return {"prompt": prompts}

    # First what TRL and the rewards read. TRL gives all other columns to the rewards too.
    columns = ["prompt", "answer", "question"]
    for name in dataset.column_names:
        if name not in columns and name != source:
            columns.append(name)
    with_prompts = dataset.map(make_prompts, batched=True, input_columns=source, features=features)
    return with_prompts.select_columns(columns)


def load_tokenizer(model: str | Path) -> "Tokenizer":
    """Load the tokenizer of `model`, a folder or a hub id; it pads on the left, for generation.

    Raises:
        WorkbookError: it cannot be loaded, or has no chat template.
    """
    from transformers import AutoTokenizer

    name = readable(model)
    is_folder = Path(model).is_dir()
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            model, padding_side="left", local_files_only=is_folder
        )
    except Exception as error:  # a damaged file can raise anything
        problem = f"the tokenizer of {name!r} cannot be loaded ({first_line(error)})"
        fix = "check the name, and the network if it is a hub id"
        raise WorkbookError(f"{problem}: {fix}") from error
    # Without tokenizer.json, Transformers makes a tokenizer of a few special tokens.
    if not tokenizer.chat_template or len(tokenizer) < 100:
        problem = f"{name!r} has no tokenizer with a chat template"
        raise WorkbookError(f"{problem}: choose an instruction-tuned model")
    # A batch needs a token for its padding. TRL takes the same one.
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_processor(model: str | Path) -> Any:
    """Load the processor of `model`, for text and pictures; it pads on the left.

    Args:
        model: a folder or a hub id.

    Raises:
        WorkbookError: it cannot be loaded, or reads no pictures.
    """
    from transformers import AutoProcessor

    name = readable(model)
    try:
        processor: Any = AutoProcessor.from_pretrained(
            model, padding_side="left", local_files_only=Path(model).is_dir()
        )
    except Exception as error:  # a damaged file can raise anything
        raise WorkbookError(
            f"the processor of {name!r} cannot be loaded ({first_line(error)}): check the name, "
            "and the network if it is a hub id"
        ) from error
    # Of a model of text, Transformers loads the tokenizer instead.
    if not is_processor(processor):
        raise WorkbookError(f"{name!r} has no processor for pictures: choose a model with vision")
    if not processor.chat_template:
        raise WorkbookError(f"{name!r} has no chat template: choose an instruction-tuned model")
    if processor.tokenizer.pad_token is None:  # as in load_tokenizer
        processor.tokenizer.pad_token = processor.tokenizer.eos_token
    return processor


def needs_folding(tokenizer: "Tokenizer") -> bool:
    """Whether the template refuses or drops a system message, so it must go into the user turn."""
    from jinja2 import TemplateError

    try:
        # The template is tried, because no field of a tokenizer tells what it takes.
        text = render([chat_prompt("?", "SYSTEM TEXT")], tokenizer)[0]
    # Gemma 2's template raises for a system message. Others leave its text out.
    except TemplateError:
        return True
    return "SYSTEM TEXT" not in text


def render(
    prompts: Sequence[Chat],
    tokenizer: Any,
    chat_template_kwargs: Mapping[str, Any] | None = None,
) -> list[str]:
    """Each conversation as the text that the model reads, up to the start of its own turn.

    Args:
        prompts: the conversations. Pictures in them leave their placeholders in the text.
        tokenizer: has the chat template; or a processor, for a model with vision.
        chat_template_kwargs: what the template reads beside the messages, as in the GRPOConfig
            with which the policy is trained: {"enable_thinking": True}, for example. Default: that
            of the profiles, which switches thinking off; with a processor {}. {} leaves all to the
            template, as a GRPOConfig without this field does. Every function that measures a policy
            has it.
    """
    options: Any = chat_template_kwargs
    if options is None:
        options = {} if is_processor(tokenizer) else CHAT_TEMPLATE_KWARGS
    if is_processor(tokenizer):
        from trl.data_utils import prepare_multimodal_messages

        # As TRL does: the templates of some models with vision read no content that is a text.
        prompts = [prepare_multimodal_messages(prompt) for prompt in prompts]
    return tokenizer.apply_chat_template(
        list(prompts), tokenize=False, add_generation_prompt=True, **options
    )


def prefilled_tag(tokenizer: Any, chat_template_kwargs: Mapping[str, Any] | None = None) -> str:
    """The opening tag with which the template ends each prompt, <reasoning> or <think>, or ""."""
    prompt = render([chat_prompt("?", None)], tokenizer, chat_template_kwargs)[0].rstrip()
    for tag in ("<reasoning>", "<think>"):
        if prompt.endswith(tag):
            return tag
    return ""


def require_switch(tokenizer: Any, model: str) -> None:
    """Raise WorkbookError if `enable_thinking` changes nothing in what the template writes.

    Templates ignore options that they do not know: the user would wait for thoughts in vain.
    """
    prompt = [chat_prompt("?", None)]
    on, off = {"enable_thinking": True}, {"enable_thinking": False}
    if render(prompt, tokenizer, on) == render(prompt, tokenizer, off):
        raise WorkbookError(
            f"the chat template of {model} has no enable_thinking: the model always thinks, or "
            "never does. Leave --thinking out, and allow longer completions for long thoughts"
        )


def prompt_lengths(
    dataset: "Dataset",
    tokenizer: "Tokenizer",
    chat_template_kwargs: Mapping[str, Any] | None = None,
) -> list[int]:
    """The length of each prompt in tokens, with the template and the generation prompt.

    With a processor in place of the tokenizer the tokens of the pictures are counted, too.
    """
    require_processor(dataset, tokenizer)
    column = image_column(dataset)
    if column is not None:
        return _lengths_with_pictures(dataset, column, tokenizer, chat_template_kwargs)
    texts = render(dataset["prompt"][:], tokenizer, chat_template_kwargs)
    # The template has written the special tokens. Not verbose: it would warn of long texts.
    encoded = tokenizer_of(tokenizer)(texts, add_special_tokens=False, verbose=False)
    return [len(token_ids) for token_ids in encoded["input_ids"]]


def _lengths_with_pictures(
    dataset: "Dataset",
    column: str,
    processor: Any,
    chat_template_kwargs: Mapping[str, Any] | None,
) -> list[int]:
    """The lengths of prompts with pictures, whose tokens depend on their sizes in some models."""
    lengths = []
    for prompt, value in zip(dataset["prompt"], dataset[column], strict=True):
        pictures = pictures_in(value)
        text = render([place_pictures(prompt, pictures)], processor, chat_template_kwargs)
        inputs = encode(processor, text, [pictures], add_special_tokens=False)
        lengths.append(inputs["input_ids"].shape[1])
    return lengths


def drop_long_prompts(
    dataset: "Dataset",
    tokenizer: "Tokenizer",
    max_prompt_length: int,
    name: str = "the data",
    chat_template_kwargs: Mapping[str, Any] | None = None,
) -> tuple["Dataset", int]:
    """Drop the rows whose prompt is too long: TRL truncates no prompt.

    Args:
        dataset: rows with a `prompt`.
        tokenizer: the model's; for rows with pictures its processor.
        max_prompt_length: in tokens, with the template and the generation prompt, and with the
            tokens of the pictures.
        name: what the error calls the data.
        chat_template_kwargs: as in `render`.

    Returns:
        The rows that fit, and how many were dropped.

    Raises:
        WorkbookError: no prompt fits.
    """
    lengths = prompt_lengths(dataset, tokenizer, chat_template_kwargs)
    fitting = [row for row, length in enumerate(lengths) if length <= max_prompt_length]
    if not fitting:
        problem = f"{name} has no prompt of at most {max_prompt_length} tokens"
        fix = "raise --max-prompt-length"
        raise WorkbookError(f"{problem} (the shortest has {min(lengths)}): {fix}")
    return dataset.select(fitting), len(lengths) - len(fitting)
