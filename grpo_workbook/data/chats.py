"""Conversations in the forms that people have, read as messages with `role` and `content`.

TRL's `prompt` and `messages` have messages already; ShareGPT's `conversations` have `from` and
`value`. The last turn of the assistant is the reference answer where no column has one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grpo_workbook.errors import WorkbookError
from grpo_workbook.pictures import image_column

if TYPE_CHECKING:
    from datasets import Dataset

# The column with the messages before the answer, from which `to_dataset` makes prompts.
CHAT = "chat"
# Names of the speakers in data of ShareGPT's form -> roles.
ROLES = {
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "function_call": "assistant",
    "observation": "tool",
    "function": "tool",
    "developer": "system",
}
KNOWN_ROLES = ("system", "user", "assistant", "tool")
NO_TOOLS = (
    "TRL shows a model the tools that its trainer is given, and none of the data, so a run has no "
    "tools (chapter 11 trains with tools)"
)


@dataclass(frozen=True)
class Conversation:
    """A conversation up to the turn that a model shall write."""

    messages: list[dict[str, Any]]
    question: str  # all of it but the system text, to find equal ones and to show
    answer: str | None  # the text of a last turn of the assistant, which `messages` has not


def read_conversation(turns: Any) -> Conversation:
    """The conversation of a list of turns. Raises ValueError with the reason if it is none."""
    if not isinstance(turns, list) or not turns:
        raise ValueError(f"is empty or no list of messages: {turns!r:.60}")
    messages = [_read_message(turn) for turn in turns]
    answer = None
    # A last turn that calls a tool is no answer, and the model would have to go on after it.
    if messages[-1]["role"] == "assistant" and "tool_calls" not in messages[-1]:
        answer = messages.pop()["content"]
    # After the result of a tool the model goes on, too.
    if not messages or messages[-1]["role"] not in ("user", "tool"):
        raise ValueError("has no turn of the user before the answer")
    return Conversation(messages, _text_of(messages), answer)


def _text_of(messages: list[dict[str, Any]]) -> str:
    """All that is said in a conversation after its system message."""
    texts = []
    for message in messages:
        if message["role"] != "system" and message["content"]:
            texts.append(message["content"])
    return "\n\n".join(texts)


def _read_message(turn: Any) -> dict[str, Any]:
    """A turn as a message; what else it has, such as tool_calls, is kept unless it is None."""
    if not isinstance(turn, dict):
        raise ValueError(f"has a turn that is no message: {turn!r:.60}")
    # TRL's names of the two fields, or those of ShareGPT.
    name = turn.get("role") or turn.get("from")
    role = ROLES.get(str(name), name)
    if role not in KNOWN_ROLES:
        raise ValueError(
            f"has a turn of {name!r}: its role must be one of {', '.join(KNOWN_ROLES)}"
        )
    content = turn["content"] if "content" in turn else turn.get("value")
    message = {"role": role, "content": _read_content(content)}
    for key, value in turn.items():
        if key not in ("role", "from", "content", "value") and value is not None:
            message[key] = _without_none(value)
    return message


def _without_none(value: Any) -> Any:
    """The value without the keys that are None: Arrow gives every dict the keys of all others."""
    if isinstance(value, dict):
        return {key: _without_none(part) for key, part in value.items() if part is not None}
    if isinstance(value, list):
        return [_without_none(part) for part in value]
    return value


def _read_content(content: Any) -> str:
    """The text of a message; a call of a tool may have none."""
    # Some templates add the content to a text, which fails for None.
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise ValueError(f"has a message that is no text: {content!r:.60}")
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text":
            part_type = part.get("type") if isinstance(part, dict) else part
            if part_type == "image":
                raise ValueError(
                    "has a part of the type image in a message: for a model with vision, let the "
                    "message be its text alone, and put the picture into a column 'image', from "
                    "which TRL takes it"
                )
            raise ValueError(
                f"has a part that is no text, which a model of text lacks: {part_type}"
            )
        texts.append(part["text"])
    return "".join(texts)


def has_chats(rows: "Dataset", column: str) -> bool:
    """Whether there is such a column of lists, by the first of its rows that is not None."""
    if column not in rows.column_names:
        return False
    # One row decides: a column of Arrow has one type.
    for value in rows[column]:
        if value is not None:
            return isinstance(value, list)
    return False


def own_system_messages(rows: "Dataset") -> list[str]:
    """The system messages of the conversations in CHAT that begin with one of their own."""
    if not has_chats(rows, CHAT):  # a user's own column of this name may be a text
        return []
    return [chat[0]["content"] for chat in rows[CHAT] if chat[0]["role"] == "system"]


def unfold_chats(
    rows: "Dataset", column: str, answer_column: str | None
) -> tuple["Dataset", dict[int, str]]:
    """Make texts of the conversations in a column.

    Args:
        rows: a table.
        column: the one with the conversations.
        answer_column: the one with the answers, or None if the assistant's last turn is the answer.

    Returns:
        The rows with `question` and CHAT in place of `column`, and with `answer` if no column has
        it; and {row number, from 1: the reason} for what is no conversation.
    """
    from datasets import Features, Json, List, Value

    reasons: dict[int, str] = {}

    def unfold(chats: list, numbers: list[int]) -> dict[str, list]:
        columns: dict[str, list] = {name: [] for name in new_columns}
        for chat, number in zip(chats, numbers, strict=True):
            try:
                conversation = read_conversation(chat)
                _check_answer(conversation, column, answer_column)
            except ValueError as error:
                reasons[number + 1] = f"{column!r} {error}"
                # An empty question makes the row invalid, as an empty text would.
                conversation = Conversation([], "", None)
            columns["question"].append(conversation.question)
            columns[CHAT].append(conversation.messages)
            if answer_column is None:
                columns["answer"].append(conversation.answer)
        return columns

    # Json keeps each message as it is. A struct would give it the keys of all others.
    new_columns: dict[str, Any] = {"question": Value("string"), CHAT: List(Json())}
    if answer_column is None:
        new_columns["answer"] = Value("string")
    types = {name: rows.features[name] for name in rows.column_names if name != column}
    unfolded = rows.map(
        unfold,
        batched=True,
        with_indices=True,
        input_columns=column,
        remove_columns=column,
        features=Features({**types, **new_columns}),
        load_from_cache_file=False,
    )
    return unfolded, reasons


def _check_answer(conversation: Conversation, column: str, answer_column: str | None) -> None:
    """Raise ValueError if it is not clear what the reference of a conversation is."""
    if answer_column is None and conversation.answer is None:
        raise ValueError("does not end in a turn of the assistant, which would be the answer")
    # TRL would let the model go on with this turn. That is another task than to answer.
    if answer_column is not None and column == "prompt" and conversation.answer is not None:
        raise ValueError("ends in a turn of the assistant, but must end where the model answers")


def refuse_images(rows: "Dataset", name: str) -> None:
    """Raise WorkbookError if a column of TRL's for images has some: only text is read here."""
    column = image_column(rows)
    if column is not None:
        raise WorkbookError(
            f"{name} has images in the column {column!r}, and a run trains a text model (of a "
            "model with vision its text part), which would not see them: train on pictures with "
            "TRL's trainer, as chapter 15 does, take problems without images, or remove the column "
            "if the text alone is enough"
        )


def text_answers(answers: list) -> list:
    """The answers; of a chat, such as TRL's `completion`, the text of its last turn."""
    texts = []
    for answer in answers:
        if isinstance(answer, list) and answer and isinstance(answer[-1], dict):
            answer = answer[-1].get("content", answer[-1].get("value"))
        texts.append(answer)
    return texts
