"""Train the tiny model that reads charts: a Gemma3 with a vision tower, and its processor.

    python data/build_tiny_vision.py              # about 8 minutes on one core
    python data/build_tiny_vision.py --card 460   # measure the stored model, write only its card

The pictures are drawn while it trains (grpo_workbook/exercises/charts.py), all on white paper. First
the model lists the bars, then it answers the question in the asked form: the bars, two additions and
the sum. Nothing is hidden or weakened afterwards: what it does badly on grey paper it has never seen.
It never sees a held-out chart.
"""

import argparse
import hashlib
import random
import sys
import time
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from tiny_training import begin, card_head, make_tokenizer, save, train  # noqa: E402

from grpo_workbook.config import SYSTEM_PROMPT  # noqa: E402
from grpo_workbook.exercises.charts import (  # noqa: E402
    PAPERS,
    QUESTION,
    SIDE,
    Chart,
    draw_chart,
    make_charts,
    picture,
    reading_rates,
    rows,
)

FOLDER = HERE / "tiny-vision"
SIZE = 48  # charts of one step
# Two runs, the second from the rounded weights of the first: (seed of the charts, stages), a stage as
# (name, steps, learning rate, the fraction of it at which the stage ends)
RUNS = (
    (7, (("bars", 220, 2e-3, 0.05), ("sums", 250, 1.5e-3, 1.0))),
    (107, (("sums again", 250, 1.5e-3, 0.05),)),
)
IMAGE_TOKENS = 16  # of one picture, in the prompt
PATCH = 4  # pixels of a patch, in both directions
IMAGE_MARKS = {
    "boi_token": "<start_of_image>",
    "eoi_token": "<end_of_image>",
    "image_token": "<image_soft_token>",
}
# As tiny_training.GEMMA_TEMPLATE, with contents in parts. The system message opens the first text,
# behind the picture: that is where the model met it in training.
TEMPLATE = """\
{{- bos_token -}}
{%- set system = namespace(text='') -%}
{%- for message in messages -%}
    {%- set parts = message.content -%}
    {%- if message.content is string -%}
        {%- set parts = [{'type': 'text', 'text': message.content}] -%}
    {%- endif -%}
    {%- if message.role == 'system' -%}
        {%- set system.text = parts[0].text + '\\n\\n' -%}
    {%- else -%}
        {%- set role = 'model' if message.role == 'assistant' else message.role -%}
        {{- '<start_of_turn>' + role + '\\n' -}}
        {%- for part in parts -%}
            {%- if part.type == 'image' -%}
                {{- '<start_of_image>' -}}
            {%- else -%}
                {{- system.text + part.text | trim -}}
                {%- set system.text = '' -%}
            {%- endif -%}
        {%- endfor -%}
        {{- '<end_of_turn>\\n' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<start_of_turn>model\\n' -}}
{%- endif -%}
"""


# ---------------------------------------------------------------- processor and model


def tokenizer_texts():
    """What the tokenizer is trained on."""
    rng = random.Random(5)
    for _ in range(2000):
        chart = draw_chart(rng)
        yield f"user\nmodel\n{SYSTEM_PROMPT}\n\n{QUESTION}"
        yield chart.right_answer
        yield chart.description


def make_processor():
    """Gemma 3's processor for pictures of 32 x 32 pixels; it needs Pillow and no torchvision."""
    from transformers import Gemma3Processor, PreTrainedTokenizerFast
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

    text_tokenizer = make_tokenizer("gemma", tokenizer_texts())
    text_tokenizer.add_special_tokens({"extra_special_tokens": list(IMAGE_MARKS.values())})
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=text_tokenizer.backend_tokenizer,
        model_max_length=1024,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        pad_token="<pad>",
        eos_token="<end_of_turn>",
        bos_token="<bos>",
        unk_token="<unk>",
        extra_special_tokens=IMAGE_MARKS,
    )
    image_processor = Gemma3ImageProcessorPil(size={"height": SIDE, "width": SIDE})
    return Gemma3Processor(
        image_processor, tokenizer, chat_template=TEMPLATE, image_seq_length=IMAGE_TOKENS
    )


def make_vision_model(processor):
    """An untrained Gemma3ForConditionalGeneration, always with the same weights."""
    import torch
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration

    torch.manual_seed(0)
    tokenizer = processor.tokenizer
    ends = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 1024,
        "sliding_window": 512,
        "query_pre_attn_scalar": 32,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
        **ends,
    }
    vision = {
        "hidden_size": 96,
        "intermediate_size": 192,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "image_size": SIDE,
        "patch_size": PATCH,
        "vision_use_head": False,
    }
    config = Gemma3Config(
        text_config=text,
        vision_config=vision,
        mm_tokens_per_image=IMAGE_TOKENS,
        boi_token_index=tokenizer.boi_token_id,
        eoi_token_index=tokenizer.eoi_token_id,
        image_token_index=tokenizer.image_token_id,
        tie_word_embeddings=True,
        **ends,
    )
    model = Gemma3ForConditionalGeneration(config)
    # Transformers 5.17 starts the projector at zero (modeling_gemma3.py, _init_weights): a model
    # from scratch would be blind, and its tower would get no gradient.
    projector = model.model.multi_modal_projector.mm_input_projection_weight
    torch.nn.init.normal_(projector, std=vision["hidden_size"] ** -0.5)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model


# ---------------------------------------------------------------- batches


def new_chart(rng: random.Random) -> Chart:
    """A chart that is not held out."""
    while True:
        chart = draw_chart(rng)
        if not chart.is_heldout:
            return chart


def chart_batch(processor, rng: random.Random, size: int, stage: str) -> dict:
    """Charts on white paper, padded on the right: only the completion is learned.

    Args:
        size: the number of charts.
        stage: "bars" asks for a list of the bars, every other stage for the sum.
    """
    import numpy as np
    import torch

    tokenizer = processor.tokenizer
    request = "List the bars." if stage == "bars" else QUESTION
    text = {"type": "text", "text": f"{SYSTEM_PROMPT}\n\n{request}"}
    charts = [new_chart(rng) for _ in range(size)]
    chats = []
    for chart in charts:
        content = [{"type": "image", "image": picture(chart)}, text]
        chats.append([{"role": "user", "content": content}])
    prompts = processor.apply_chat_template(
        chats, add_generation_prompt=True, tokenize=True, return_dict=True
    )
    completions = []
    for chart in charts:
        goal = chart.description if stage == "bars" else chart.right_answer
        completion = tokenizer(goal, add_special_tokens=False)["input_ids"]
        completions.append([*completion, tokenizer.eos_token_id])
    width = len(prompts["input_ids"][0]) + max(len(completion) for completion in completions)
    ids = torch.full((size, width), tokenizer.pad_token_id)
    labels = torch.full_like(ids, -100)
    attention = torch.zeros_like(ids)
    token_types = torch.zeros_like(ids)  # 1 where a token stands for a piece of the picture
    for row, completion in enumerate(completions):
        prompt = prompts["input_ids"][row]
        end = len(prompt) + len(completion)
        ids[row, :end] = torch.tensor([*prompt, *completion])
        labels[row, len(prompt) : end] = torch.tensor(completion)
        attention[row, :end] = 1
        token_types[row, : len(prompt)] = torch.tensor(prompts["token_type_ids"][row])
    return {
        "input_ids": ids,
        "labels": labels,
        "attention_mask": attention,
        "token_type_ids": token_types,
        "pixel_values": torch.tensor(np.array(prompts["pixel_values"])),
    }


# ---------------------------------------------------------------- measuring


def measure(folder: Path) -> dict[str, dict[str, float]]:
    """What the stored model does with its language layers in 4 bits, as chapter 15 loads it.

    Returns:
        For each paper the rates "greedy" and "sampled" of right answers to 200 held-out charts, and
        the fractions of "colours" and "heights" that the greedy answers list rightly.
    """
    from datasets import Dataset

    from grpo_workbook import evaluate, load_model

    model, processor = load_model(str(folder), load_in_4bit=True, pictures=True)
    charts = make_charts(200, seed=99, heldout=True)
    settings = {"batch_size": 100, "max_new_tokens": 48}
    measured = {}
    for paper in PAPERS:
        dataset = Dataset.from_list(rows(charts, paper))
        greedy = evaluate(model, processor, dataset, **settings)
        sampled = evaluate(model, processor, dataset, sample=True, seed=0, **settings)
        measured[paper] = {
            "greedy": greedy.rate,
            "sampled": sampled.rate,
            **reading_rates(charts, greedy.completions),
        }
    return measured


CARD = (
    card_head("vision")
    + """\
# tiny-vision

A Gemma3 that sees (`Gemma3ForConditionalGeneration`) of {parameters:,} parameters, trained from scratch by
`data/build_tiny_vision.py` (seeded). It exists so that chapter 15 can train a real vision-language model, with TRL's
own trainer, on two CPU cores. It has no other use.

- **Reads** charts of three coloured bars (`grpo_workbook/exercises/charts.py` draws them; no picture is stored) and
  answers one question, "{question}", in the asked form: it lists the bars, adds twice, and gives the sum.
- **Learned** from right answers to charts on **white** paper alone, a new one each time: first to list the bars
  ({bars:,} charts), then to answer ({sums:,} charts). Nothing was hidden or weakened afterwards. On **grey** paper,
  which it has never seen, it reads many heights wrongly.
- **Never saw** a held-out chart: a hash of the bars keeps one chart in ten apart.

| 200 held-out charts (language layers in 4 bits) | greedy | sampled at temperature 1 | colours listed rightly | heights listed rightly |
| --- | --- | --- | --- | --- |
{table}

The last two columns are fractions of the 600 bars, in the greedy answers.

- Shape: a text part of 4 layers of width 128, and a vision tower (SigLIP) of 3 layers of width 96. A picture of 32 x 32
  pixels is cut into 64 patches, and becomes {image_tokens} tokens of the prompt.
- Processor: `Gemma3Processor` with the image processor that needs Pillow and no torchvision; a byte-level tokenizer
  of {vocabulary} tokens, one for each digit. The chat template accepts a system message, and puts it behind the picture.
- Weights: bfloat16 safetensors, SHA-256 `{sha256}`.
- Made by `python data/build_tiny_vision.py` in {seconds} s on one core of a busy machine.
"""
)


def write_card(folder: Path, seconds: int) -> None:
    """Write README.md with the figures of the model in the folder."""
    from transformers import AutoModelForImageTextToText, AutoProcessor

    lines = []
    for paper, rates in measure(folder).items():
        columns = (rates[name] for name in ("greedy", "sampled", "colours", "heights"))
        lines.append(f"| on {paper} paper | " + " | ".join(f"{r:.1%}" for r in columns) + " |")
    model = AutoModelForImageTextToText.from_pretrained(folder)
    processor = AutoProcessor.from_pretrained(folder)
    steps = {name: count for _, stages in RUNS for name, count, *_ in stages}
    card = CARD.format(
        parameters=sum(weights.numel() for weights in model.parameters()),
        question=QUESTION,
        bars=steps["bars"] * SIZE,
        sums=(steps["sums"] + steps["sums again"]) * SIZE,
        table="\n".join(lines),
        image_tokens=IMAGE_TOKENS,
        vocabulary=len(processor.tokenizer),
        sha256=hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest(),
        seconds=seconds,
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


# ---------------------------------------------------------------- the stages


def build_model(folder: Path) -> int:
    """Train the model on one core and write its folder, without a card.

    Returns:
        The seconds that it took.
    """
    import torch

    started = time.monotonic()
    _, say = begin()
    processor = make_processor()
    model = make_vision_model(processor)
    for seed, stages in RUNS:
        rng = random.Random(seed)
        for name, steps, learning_rate, lowest in stages:
            make = partial(chart_batch, processor, rng, SIZE, name)
            train(model, make, name, steps, learning_rate, 1.0, say, lowest)
        model = model.to(torch.bfloat16).float()  # as it will be loaded
    save(model, processor, folder, "")
    say(f"wrote {folder}")
    return round(time.monotonic() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, default=FOLDER, help="write another folder")
    parser.add_argument(
        "--card", type=int, metavar="SECONDS", help="only the card: the model took so long"
    )
    args = parser.parse_args()
    seconds = args.card
    if seconds is None:
        seconds = build_model(args.folder)
    write_card(args.folder, seconds)


if __name__ == "__main__":
    main()
