"""What the scripts that train the course's tiny models share: tokenizers, models, training, cards.

A model has four layers of width 128, which is wide enough for 4-bit blocks and small enough for one
core. `train` is AdamW with a cosine, and can let the model see its weights as NF4 will round them.
`build_small` puts the pieces together for a model that learns in stages.
"""

import math
import random
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from build_word_problems import _SIGNS  # noqa: E402

VOCABULARY = 640  # tokens at most

# ---------------------------------------------------------------- tokenizers

QWEN_TEMPLATE = """\
{%- for message in messages -%}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""
# No system role: the system message opens the user's first turn.
GEMMA_TEMPLATE = """\
{{- bos_token -}}
{%- set opening = '' -%}
{%- set turns = messages -%}
{%- if messages[0].role == 'system' -%}
    {%- set opening = messages[0].content + '\\n\\n' -%}
    {%- set turns = messages[1:] -%}
{%- endif -%}
{%- for message in turns -%}
    {%- set role = 'model' if message.role == 'assistant' else message.role -%}
    {{- '<start_of_turn>' + role + '\\n' + (opening if loop.first else '') \
+ message.content | trim -}}
    {{- '<end_of_turn>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<start_of_turn>model\\n' -}}
{%- endif -%}
"""
SPECIALS = {
    "qwen": {
        "pad_token": "<|endoftext|>",
        "eos_token": "<|im_end|>",
        "additional": ["<|im_start|>"],
    },
    "gemma": {
        "pad_token": "<pad>",
        "eos_token": "<end_of_turn>",
        "bos_token": "<bos>",
        "unk_token": "<unk>",
        "additional": ["<start_of_turn>"],
    },
}


def make_tokenizer(family: str, texts: Iterable[str]):
    """Byte-level BPE with single digits and the family's special tokens and turns.

    Args:
        family: "qwen" or "gemma".
        texts: what the merges are counted in.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    names = dict(SPECIALS[family])
    additional = names.pop("additional")
    tokenizer = Tokenizer(models.BPE())
    words = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=[*names.values(), *additional],
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=1024,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        **names,
    )
    fast.chat_template = QWEN_TEMPLATE if family == "qwen" else GEMMA_TEMPLATE
    return fast


# ---------------------------------------------------------------- models


def make_model(family: str, tokenizer):
    """An untrained model, always with the same weights."""
    import torch
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig, Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    shape = {
        "vocab_size": len(tokenizer),
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 1024,
        "tie_word_embeddings": True,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    if family == "qwen":
        return Qwen3ForCausalLM(Qwen3Config(**shape))
    layers = ["sliding_attention"] * 3 + ["full_attention"]
    return Gemma3ForCausalLM(
        Gemma3TextConfig(**shape, sliding_window=512, query_pre_attn_scalar=32, layer_types=layers)
    )


def save(model, tokenizer, folder: Path, card: str) -> None:
    """Write weights in bfloat16, tokenizer and card."""
    import torch

    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "README.md").write_text(card, encoding="utf-8")
    (folder / "model.safetensors").chmod(0o644)


def card_head(*tags: str) -> str:
    """The metadata before the text of a tiny model's card."""
    all_tags = ", ".join(("grpo", "toy", *tags))
    return f"---\nlicense: apache-2.0\nlanguage: en\ntags: [{all_tags}]\n---\n"


# ---------------------------------------------------------------- batches


def equation(rng: random.Random) -> str:
    """A line of arithmetic with numbers as large as the word problems need."""
    sign = rng.choice("++--*/")
    if sign == "+":
        a, b = rng.randint(2, 56), rng.randint(2, 12)
    elif sign == "-":
        a = rng.randint(3, 56)
        b = rng.randint(2, min(a, 36))
    else:
        b = rng.randint(2, 12)
        a = rng.randint(2, min(24, 60 // b))
        a = a * b if sign == "/" else a
    return f"{a}{sign}{b}={_SIGNS[sign](a, b)}\n"


def text_batch(tokenizer, writers: list[Callable[[], str]], size: int, width: int = 96) -> dict:
    """Rows of packed texts: every token is learned.

    Args:
        writers: each returns a text when it is called; row after row takes the next of them.
        size: the number of rows.
        width: the tokens of a row.
    """
    import torch

    rows = []
    for number in range(size):
        write = writers[number % len(writers)]
        tokens: list[int] = []
        while len(tokens) < width:
            tokens += tokenizer(write(), add_special_tokens=False)["input_ids"]
        rows.append(tokens[:width])
    ids = torch.tensor(rows)  # (size, width)
    return {"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids)}


def chat_batch(tokenizer, chats) -> dict:
    """Chats as (prompt, completion), padded on the right: only the completion is learned."""
    import torch

    rows = []
    for messages, text in chats:
        prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        prompt_ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        completion_ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        rows.append((prompt_ids, [*completion_ids, tokenizer.eos_token_id]))
    width = max(len(prompt) + len(completion) for prompt, completion in rows)
    ids = torch.full((len(rows), width), tokenizer.pad_token_id)
    labels = torch.full_like(ids, -100)
    attention = torch.zeros_like(ids)
    for row, (prompt, completion) in enumerate(rows):
        end = len(prompt) + len(completion)
        ids[row, :end] = torch.tensor(prompt + completion)
        labels[row, len(prompt) : end] = torch.tensor(completion)
        attention[row, :end] = 1
    return {"input_ids": ids, "labels": labels, "attention_mask": attention}


# ---------------------------------------------------------------- training


def begin(label: str = "") -> tuple[random.Random, Callable[[str], None]]:
    """(random numbers, what prints a line after the seconds until then), on one quiet thread."""
    import torch
    from transformers import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"{label}{time.monotonic() - started:4.0f} s  {text}", flush=True)

    return random.Random(7), say


@contextmanager
def through_4_bits(model):
    """In the block, forward and backward see the weights as NF4 will round them.

    The optimizer moves the weights that are not rounded. In so small a model the rounding would
    otherwise cost much of the skill (quantization-aware training with a straight-through gradient,
    Bengio et al. 2013).
    """
    import torch
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    layers = [
        m
        for name, m in model.named_modules()
        if isinstance(m, torch.nn.Linear) and "lm_head" not in name
    ]
    exact = [layer.weight.data for layer in layers]
    for layer in layers:
        layer.weight.data = dequantize_4bit(*quantize_4bit(layer.weight.data, quant_type="nf4"))
    yield
    for layer, weight in zip(layers, exact, strict=True):
        layer.weight.data = weight


def train(
    model, make_batch, name, steps, learning_rate, rounded_after, say, lowest: float = 0.05
) -> None:
    """Train with AdamW, warm-up and a cosine.

    Args:
        make_batch: returns the model's arguments for one step when it is called.
        name: of the stage, for the lines that are printed.
        steps: the number of steps.
        learning_rate: the highest one, after 50 steps.
        rounded_after: the fraction of the steps after which the model sees 4-bit weights.
        say: prints a line.
        lowest: the fraction of the learning rate at which the cosine ends; 1 keeps it constant.
    """
    import torch

    optimizer = torch.optim.AdamW(
        model.parameters(), lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.01
    )
    model.train()
    for step in range(1, steps + 1):
        cosine = 0.5 * (1 + math.cos(math.pi * step / steps))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * min(1.0, step / 50) * (lowest + (1 - lowest) * cosine)
        with through_4_bits(model) if step > rounded_after * steps else nullcontext():
            loss = model(**make_batch(), use_cache=False).loss
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            say(f"{name} {step}/{steps}, loss {loss.item():.4f}")


def build_small(tokenizer, stages, batch, measure, folder: Path, card: str) -> None:
    """Train a small Qwen3 through its stages, on one core, and write its folder.

    Args:
        stages: as STAGES of build_tiny_coder.py.
        batch: is called as `batch(rng, size, stage)`.
        measure: is called as `measure(model, tokenizer)`, and gives the rates "sampled" and
            "greedy".
        folder: is written.
        card: may name `sampled` and `greedy`, `skill` (greedy after the first stage), `parameters`
            and `vocabulary`.
    """
    import torch

    rng, say = begin()
    model, skill = make_model("qwen", tokenizer), {}
    for name, steps, size, learning_rate, rounded_after in stages:
        make = partial(batch, rng, size, name)
        train(model, make, name, steps, learning_rate, rounded_after, say)
        shown = measure(model, tokenizer)
        say(f"held-out after {name}: {shown}")
        skill = skill or shown
    model = model.to(torch.bfloat16).float()
    shown = {"skill": skill["greedy"], **measure(model, tokenizer)}
    parameters = sum(p.numel() for p in model.parameters())
    save(
        model,
        tokenizer,
        folder,
        card.format(parameters=parameters, vocabulary=len(tokenizer), **shown),
    )
