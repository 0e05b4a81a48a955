"""Pictures in a data set: where TRL looks for them, what goes wrong, and controls without them.

TRL 1.15 takes pictures from a column `image` (one in each row) or `images` (a list), and puts them
before the text of the first user turn. A processor makes the model's input of both: it turns a
picture into numbers, and writes image tokens into the prompt where the picture stands.
"""

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from grpo_workbook.errors import WorkbookError, first_line

if TYPE_CHECKING:
    from datasets import Dataset

IMAGE_COLUMNS = ("images", "image")  # in the order in which TRL looks for them
WHITE = (255, 255, 255)

# Names of layers as regular expressions, which PEFT matches from start to end. Both parts of a
# model have layers of the same names (q_proj), so that a list of names would put adapters into
# both. Unsloth 2026.10 has the argument finetune_vision_layers for this, and drops it on a CPU.
_LANGUAGE = r".*(language_model|text_model)\..*\.(q|k|v|o|gate|up|down)_proj"
_VISION = (
    r".*(vision_tower|vision_model|visual)\."
    r".*\.((q|k|v|out|gate|up|down)_proj|fc1|fc2|qkv|attn\.proj|linear_fc1|linear_fc2)"
)
# The target_modules of a LoraConfig, by the part of the model that shall learn.
LAYERS = {"language": _LANGUAGE, "vision": _VISION, "both": f"{_LANGUAGE}|{_VISION}"}


# ---------------------------------------------------------------------------- finding pictures


def is_processor(tokenizer: Any) -> bool:
    """Whether it is a processor for text and pictures, and no bare tokenizer."""
    return hasattr(tokenizer, "image_processor")


def tokenizer_of(processor: Any) -> Any:
    """The tokenizer inside a processor for pictures; a bare tokenizer is its own."""
    if is_processor(processor):
        return processor.tokenizer
    return processor


def image_column(rows: "Dataset") -> str | None:
    """The column from which TRL takes the pictures, or None if it is not there or empty."""
    for name in IMAGE_COLUMNS:
        if name in rows.column_names and _has_values(rows, name):
            return name
    return None


def _has_values(rows: "Dataset", column: str) -> bool:
    """Whether a row has something in this column. No picture is opened."""
    # In parts, because the first rows usually tell, and all pictures would fill the memory.
    parts: Any = rows.select_columns(column).with_format("arrow").iter(100)
    for part in parts:
        values = part.column(column).to_pylist()
        if any(values):
            return True
    return False


def columns_of_pictures(rows: "Dataset") -> list[str]:
    """The columns whose type is a picture or a list of pictures, under any name, if any has one."""
    from datasets import Image, List

    names = []
    for name, feature in rows.features.items():
        # A column with several pictures in each row is a list of this type.
        if isinstance(feature, List):
            feature = feature.feature
        if isinstance(feature, Image) and _has_values(rows, name):
            names.append(name)
    return names


def pictures_in(value: Any) -> list:
    """The pictures of a row, from the value of its column: None, a picture, or a list.

    Raises WorkbookError for a path or another value, which a processor would open or download.
    """
    from PIL.Image import Image

    pictures = []
    if isinstance(value, list):
        pictures = value
    elif value is not None:
        pictures = [value]
    for picture in pictures:
        if not isinstance(picture, Image):
            raise WorkbookError(
                f"{picture!r:.60} is no picture: rows.cast_column('image', datasets.Image()) opens "
                "the files of a column"
            )
    return pictures


def require_processor(rows: "Dataset", tokenizer: Any) -> None:
    """Raise WorkbookError if a model would answer without the pictures of these rows.

    That is the case with a tokenizer in place of a processor, and with pictures in a column where
    TRL does not look for them.
    """
    column = image_column(rows)
    names = columns_of_pictures(rows)
    if not is_processor(tokenizer):
        if column is None and not names:
            return
        raise WorkbookError(
            f"the rows have pictures in {column or names[0]!r}, and a {type(tokenizer).__name__} "
            "reads text alone: give the model's processor (load_model(..., pictures=True), or "
            "AutoProcessor), or remove the column if the text is enough"
        )
    # TRL would neither show these pictures nor say so.
    if column is None and names:
        raise WorkbookError(
            f"the pictures are in the column {names[0]!r}, where TRL does not look, so that the "
            f"model would see none: dataset.rename_column({names[0]!r}, 'image'), or 'images' for "
            "lists of them"
        )


def check_pictures(rows: "Dataset", processor: Any) -> None:
    """Look for what lets a training on pictures fail late, or go on without the pictures.

        check_pictures(train_rows, processor)
        GRPOTrainer(model=model, processing_class=processor, train_dataset=train_rows, ...)

    Args:
        rows: with a `prompt` and a column `image` (a picture) or `images` (a list of them). Every
            picture is opened once.
        processor: what the trainer gets as its processing_class.

    Raises:
        WorkbookError: for a tokenizer in place of a processor, pictures in another column, padding
            on the right, a prompt that is a text, a picture inside a message, and a row whose
            picture is missing or cannot be read.
    """
    require_processor(rows, processor)
    column = image_column(rows)
    if column is None:
        raise WorkbookError(f"there is no column 'image' or 'images', only {rows.column_names}")
    if column == "image" and "images" in rows.column_names:
        raise WorkbookError(
            "there is an empty column 'images', which TRL reads in place of 'image', so that the "
            "model would see no picture: rows.remove_columns('images')"
        )
    # TRL 1.15 pads prompts on the left, and the marks of the image tokens as the processor says.
    # https://github.com/huggingface/trl/issues/5785
    if processor.tokenizer.padding_side != "left":
        raise WorkbookError(
            "the processor pads on the right, so that prompts of unequal length get the marks of "
            "their image tokens in wrong places: set processor.tokenizer.padding_side = 'left'"
        )
    if "prompt" not in rows.column_names:
        raise WorkbookError(f"there is no column 'prompt', only {rows.column_names}")
    for number, prompt in enumerate(rows["prompt"], start=1):
        reason = _why_not_a_prompt(prompt)
        if reason is not None:
            raise WorkbookError(f"row {number}: {reason}")
    unreadable = unreadable_pictures(rows)
    if unreadable:
        number, reason = next(iter(unreadable.items()))
        raise WorkbookError(f"row {number}: {reason}. Repair the row, or leave it out")


def _why_not_a_prompt(prompt: Any) -> str | None:
    """Why the pictures of a column cannot be put into this prompt, or None."""
    # As a text it has placeholders of its own, beside those for which TRL has the pictures.
    if isinstance(prompt, str):
        return (
            "the prompt is a text, and TRL puts pictures only into a chat: give the messages, and "
            "do not apply the chat template yourself"
        )
    for message in prompt:
        content = message.get("content")
        if not isinstance(content, list):
            continue
        for part in content:
            # A placeholder, which TRL fills, is of the type image and has no field "image".
            if part["type"] == "image" and "image" in part:
                return (
                    "a message has a picture of its own, and pictures are taken from a column "
                    "'image' or 'images', from which TRL would put in a second one: let the "
                    "content of the message be its text alone"
                )
    return None


def unreadable_pictures(rows: "Dataset") -> dict[int, str]:
    """{row number, from 1: the reason} for rows without a picture that can be opened."""
    column = image_column(rows)
    reasons = {}
    # Row by row, because one damaged file stops the reading of a whole column.
    for row in range(len(rows)):
        try:
            pictures = pictures_in(rows[row][column])
        except Exception as error:  # a damaged file can raise anything
            reasons[row + 1] = f"{column!r} cannot be read ({first_line(error)})"
            continue
        if not pictures:
            reasons[row + 1] = f"{column!r} is empty"
    return reasons


# ---------------------------------------------------------------------------- the model's input


def place_pictures(prompt: list[dict], pictures: Sequence[Any]) -> list[dict]:
    """The chat with its pictures where TRL puts them: before the text of the first user turn.

    Raises:
        WorkbookError: if TRL cannot place them.
    """
    from trl.data_utils import prepare_multimodal_messages

    reason = _why_not_a_prompt(prompt)
    if reason is not None:
        raise WorkbookError(reason)
    try:
        return prepare_multimodal_messages(prompt, images=list(pictures))
    except ValueError as error:  # for example, another number of placeholders than of pictures
        raise WorkbookError(f"a prompt does not fit its pictures: {first_line(error)}") from error


def encode(
    tokenizer: Any,
    texts: Sequence[str],
    pictures: Sequence[list] | None = None,
    *,
    add_special_tokens: bool,
) -> Any:
    """The model's input for a batch of rendered prompts, padded on the left.

    Args:
        tokenizer: the model's; its processor, if there are pictures.
        texts: prompts as the chat template writes them, with a placeholder for each picture.
        pictures: those of each prompt.
        add_special_tokens: whether the texts lack the tokens of the start and the end.

    Returns:
        Tensors by name: input_ids and attention_mask (batch, tokens). With a processor also
        pixel_values, and whatever else the model takes.
    """
    if not is_processor(tokenizer):
        contexts = tokenizer(list(texts), add_special_tokens=add_special_tokens)["input_ids"]
        return tokenizer.pad({"input_ids": contexts}, padding_side="left", return_tensors="pt")
    # Without any picture the processor must get None and not empty lists.
    images = None
    if pictures is not None and any(pictures):
        images = list(pictures)
    return tokenizer(
        text=list(texts),
        images=images,
        add_special_tokens=add_special_tokens,
        padding=True,
        padding_side="left",
        return_tensors="pt",
    )


# ---------------------------------------------------------------------------- controls


def picture_controls(rows: "Dataset", colour: tuple[int, int, int] = WHITE) -> dict[str, "Dataset"]:
    """The same rows with pictures that cannot help: a policy that looks must lose its accuracy.

        for name, control in picture_controls(heldout).items():
            print(name, evaluate(model, processor, control).rate)

    What a policy still gets right without its picture it has guessed from the question; with a
    wrong picture, that may also have the same answer. Neither has anything to do with seeing.

    Args:
        rows: with a column `image` or `images`.
        colour: red, green and blue (0 to 255) of the blank pictures: the background of your own.

    Returns:
        "blank": every picture has this one colour, and its old size. "shuffled": every row with a
        picture has that of another row, the next one whose picture differs from its own. In both
        a row without a picture stays without.

    Raises:
        WorkbookError: if there is no such column, or if all rows have the same picture.
    """
    from datasets import concatenate_datasets

    column = image_column(rows)
    if column is None:
        raise WorkbookError(f"there is no column 'image' or 'images', only {rows.column_names}")

    def blank(value: Any) -> dict[str, Any]:
        pictures = pictures_in(value)
        if value is None:  # a row without a picture stays without
            return {column: None}
        if isinstance(value, list):
            return {column: [_blank(picture, colour) for picture in pictures]}
        return {column: _blank(pictures[0], colour)}

    blanks = rows.map(
        blank, input_columns=column, features=rows.features, load_from_cache_file=False
    )
    # By the numbers of the rows, so that the pictures are neither opened nor packed again.
    others = rows.select_columns(column).select(_other_rows(picture_numbers(rows)))
    shuffled = concatenate_datasets([rows.remove_columns(column), others], axis=1)
    return {"blank": blanks, "shuffled": shuffled.select_columns(rows.column_names)}


def _blank(picture: Any, colour: tuple[int, int, int]) -> Any:
    from PIL import Image

    return Image.new("RGB", picture.size, colour)


def _other_rows(numbers: list[int]) -> list[int]:
    """For each row the next one, from the start again after the last, with another number.

    Rows with several questions to one picture often stand together, so the next row is not enough.
    A row with the number 0 has no picture: it gets itself, and no other row gets it.
    """
    others = []
    count = len(numbers)
    for row, number in enumerate(numbers):
        if number == 0:
            others.append(row)
            continue
        distance = 1
        while distance < count and numbers[(row + distance) % count] in (0, number):
            distance += 1
        if distance >= count:
            raise WorkbookError(
                "all rows have the same picture, so that none can be exchanged: give rows with at "
                "least two different pictures"
            )
        others.append((row + distance) % count)
    return others


# ---------------------------------------------------------------------------- equal pictures


def picture_numbers(rows: "Dataset") -> list[int]:
    """A number for the pictures of each row: the same for the same pixels, whatever the file.

    A row without a picture has the number 0.
    """
    column = image_column(rows)
    # A caller need not know whether there are any.
    if column is None:
        return [0] * len(rows)
    numbers = []
    for value in rows[column]:
        pictures = pictures_in(value)
        if not pictures:
            numbers.append(0)
            continue
        digest = hashlib.sha256()
        for picture in pictures:
            # Equal pixels may be stored with a palette, or as grey.
            pixels = picture.convert("RGB")
            digest.update(f"{pixels.size}".encode())
            digest.update(pixels.tobytes())
        numbers.append(int.from_bytes(digest.digest()[:7]))
    return numbers
