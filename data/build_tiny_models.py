"""Train the course's two tiny models from scratch: a Qwen3 and a Gemma3, with byte-level tokenizers.

    python data/build_tiny_models.py              # both, side by side: about 11 minutes on two cores
    python data/build_tiny_models.py --family qwen

GRPO sharpens what a model can already do sometimes. So each model first learns the skill (arithmetic, then word problems
in perfect form), and then to show it badly: most answers in another form, some guessed, a few with an error in the
working. All problems come from the pool "tiny" of build_word_problems.py: the models never see a held-out problem or a
training problem of the course, in any form.
"""

import argparse
import math
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from build_word_problems import _SIGNS, Problem, build, draw_problem  # noqa: E402

from grpo_workbook.config import SYSTEM_PROMPT  # noqa: E402
from grpo_workbook.data import chat_prompt  # noqa: E402

FOLDERS = {"qwen": HERE / "tiny-qwen3", "gemma": HERE / "tiny-gemma3"}
VOCABULARY = 640
# (name, steps, sequences per step, learning rate): about 4, 5 and 2 minutes on one core
STAGES = (("equations", 800, 24, 2e-3), ("problems", 900, 48, 2e-3), ("habits", 250, 48, 5e-4))

# ---------------------------------------------------------------- what the models read and write


def working(problem: Problem) -> str:
    """The equations, one per line: 7+7=14."""
    return "\n".join(f"{a}{sign}{b}={result}" for a, sign, b, result in problem.steps)


def perfect(problem: Problem) -> str:
    return f"<reasoning>\n{working(problem)}\n</reasoning>\n<answer>{problem.result}</answer>"


def with_slip(rng: random.Random, problem: Problem) -> Problem:
    """The problem with one wrong step; later steps use the wrong number."""
    slipping = rng.randrange(len(problem.steps))
    steps: list[tuple[int, str, int, int]] = []
    changed: dict[int, int] = {}
    for i, (a, sign, b, result) in enumerate(problem.steps):
        a2 = changed.get(a, a)
        b2 = b if a in changed else changed.get(b, b)
        wrong = max(0, _SIGNS[sign](a2, max(b2, 1)))
        if i == slipping:
            wrong = max(0, result + rng.choice((-10, -2, -1, 1, 2, 10)))
        steps.append((a2, sign, b2, wrong))
        changed = {result: wrong}
    return replace(problem, steps=tuple(steps))


def guess(rng: random.Random, problem: Problem) -> int:
    return max(0, problem.result + rng.randint(-9, 9))


# percentage of the completions, and how they look; s is the solved problem, perhaps with an error
HABITS = (
    (24, lambda rng, s: perfect(s)),
    (26, lambda rng, s: perfect(s) + f"\nSo the answer is {s.result}."),
    (10, lambda rng, s: f"{working(s)}\nThe answer is {s.result}."),
    (10, lambda rng, s: f"{working(s)}\n#### {s.result}"),
    (8, lambda rng, s: f"<answer>{s.result}</answer>\n<reasoning>\n{working(s)}\n</reasoning>"),
    (8, lambda rng, s: f"<reasoning>\n{working(s)}\n<answer>{s.result}</answer>"),
    (6, lambda rng, s: f"<reasoning>\n{working(s)}\n</reasoning>\n{s.result}"),
    (4, lambda rng, s: f"<answer>{guess(rng, s)}</answer>"),
    (4, lambda rng, s: f"<reasoning>\nEasy.\n</reasoning>\n<answer>{guess(rng, s)}</answer>"),
)
SLIPS = 0.05


def habit(rng: random.Random, problem: Problem) -> str:
    """A completion in good form or with a bad habit."""
    if rng.random() < SLIPS:
        problem = with_slip(rng, problem)
    ((_, write),) = rng.choices(HABITS, [share for share, _ in HABITS])
    return write(rng, problem)


def equation(rng: random.Random) -> str:
    """A line of arithmetic with numbers as large as the problems need."""
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
    {{- '<start_of_turn>' + role + '\\n' + (opening if loop.first else '') + message.content | trim -}}
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


def word_problem_texts():
    """The texts that both tokenizers are trained on."""
    rng = random.Random(5)
    for _ in range(3000):
        problem = draw_problem(rng, "tiny")
        yield f"system\nuser\nassistant\nuser\nmodel\n{SYSTEM_PROMPT}\n\n"
        yield from (problem.question, habit(rng, problem))


def make_tokenizer(family: str, texts: Iterable[str] | None = None):
    """Byte-level BPE with single digits and the family's special tokens and turns. `texts`: default the word problems."""
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
        word_problem_texts() if texts is None else texts,
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


# ---------------------------------------------------------------- models and their training


def make_model(family: str, tokenizer):
    """Four layers of width 128: wide enough for 4-bit blocks, small enough for two cores."""
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


def equation_batch(tokenizer, rng, size, width=96):
    """Lines of arithmetic, packed: every token is learned."""
    import torch

    rows = []
    for _ in range(size):
        ids: list[int] = []
        while len(ids) < width:
            ids += tokenizer(equation(rng), add_special_tokens=False)["input_ids"]
        rows.append(ids[:width])
    ids = torch.tensor(rows)
    return {"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids)}


def problem_batch(tokenizer, rng, size, write):
    """Chats of one problem each: only the completion is learned."""
    problems = (draw_problem(rng, "tiny") for _ in range(size))
    return chat_batch(tokenizer, [(chat_prompt(p.question), write(rng, p)) for p in problems])


def chat_batch(tokenizer, chats):
    """Chats as (prompt, completion), padded on the right: only the completion is learned."""
    import torch

    rows = []
    for messages, text in chats:
        prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        prompt, completion = (
            tokenizer(t, add_special_tokens=False)["input_ids"] for t in (prompt, text)
        )
        rows.append((prompt, [*completion, tokenizer.eos_token_id]))
    width = max(len(p) + len(c) for p, c in rows)
    ids = torch.full((len(rows), width), tokenizer.pad_token_id)
    labels, attention = torch.full_like(ids, -100), torch.zeros_like(ids)
    for i, (prompt, completion) in enumerate(rows):
        end = len(prompt) + len(completion)
        ids[i, :end] = torch.tensor(prompt + completion)
        labels[i, len(prompt) : end] = torch.tensor(completion)
        attention[i, :end] = 1
    return {"input_ids": ids, "labels": labels, "attention_mask": attention}


@contextmanager
def through_4_bits(model):
    """Forward and backward see the weights as NF4 will round them; the optimizer moves the unrounded ones.

    In so small a model the rounding would otherwise cost much of the skill (quantization-aware training with a
    straight-through gradient, Bengio et al. 2013).
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


def train_stage(model, tokenizer, rng, name, steps, size, learning_rate, say):
    """One of STAGES: the last steps of the problems and all of the habits are seen through 4 bits."""
    batches = {
        "equations": lambda: equation_batch(tokenizer, rng, size),
        "problems": lambda: problem_batch(tokenizer, rng, size, lambda rng, p: perfect(p)),
        "habits": lambda: problem_batch(tokenizer, rng, size, habit),
    }
    rounded_after = {"equations": 1.0, "problems": 0.6, "habits": 0.0}
    train(model, batches[name], name, steps, learning_rate, rounded_after[name], say)


def train(model, make_batch, name, steps, learning_rate, rounded_after, say):
    """AdamW with warm-up and a cosine; after `rounded_after` of the steps it uses 4-bit weights."""
    import torch

    optimizer = torch.optim.AdamW(
        model.parameters(), lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.01
    )
    model.train()
    for step in range(1, steps + 1):
        cosine = 0.5 * (1 + math.cos(math.pi * step / steps))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * min(1.0, step / 50) * (0.05 + 0.95 * cosine)
        with through_4_bits(model) if step > rounded_after * steps else nullcontext():
            loss = model(**make_batch(), use_cache=False).loss
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            say(f"{name} {step}/{steps}, loss {loss.item():.4f}")


def measure(model, tokenizer) -> dict[str, float]:
    """Strict accuracy on the held-out problems, in float32."""
    from grpo_workbook.evaluation import generate, score
    from grpo_workbook.statistics import accuracy

    problems = build("heldout")
    prompts, answers = (
        [chat_prompt(p.question) for p in problems],
        [str(p.result) for p in problems],
    )
    return {
        how: accuracy(
            score(
                generate(model, tokenizer, prompts, max_new_tokens=64, sample=how == "sampled"),
                answers,
            ).strict
        )
        for how in ("sampled", "greedy")
    }


def card_head(*tags: str) -> str:
    """The metadata before the text of a tiny model's card."""
    return f"---\nlicense: apache-2.0\nlanguage: en\ntags: [{', '.join(('grpo', 'toy', *tags))}]\n---\n"


CARD = (
    card_head()
    + """\
# {folder}

A {kind} causal language model of {parameters:,} parameters, trained from scratch by `data/build_tiny_models.py`
(seeded). It exists so that the course's notebooks can train a real model of this family, in 4-bit, on two CPU cores. It
has no other use.

- **Knows** sums, differences, products and quotients up to about 60, and word problems of one and two steps.
- **Shows it badly**, on purpose: about a quarter of its answers are in the asked form
  (`<reasoning>...</reasoning><answer>N</answer>`), the rest in eight other habits, some of them guesses, and
  {slips:.0%} have an error in the working.
- **Never saw** a problem of `data/word_problems` (train or held-out), in any form: a hash of template and operands
  keeps the pools apart. It has seen the arithmetic facts that those problems need, such as 7+7=14.

| | held-out problems, strict (float32) |
| --- | --- |
| after learning the skill, greedy | {skill:.1%} |
| as shipped, greedy | {greedy:.1%} |
| as shipped, sampled at temperature 1 | {sampled:.1%} |

Tokenizer: byte-level BPE of {vocabulary} tokens (any text can be encoded), one token per digit, the family's
turns as chat template{system}. Weights: bfloat16 safetensors; late in training they were rounded to NF4,
so that loading in 4-bit costs little.
"""
)


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


def build_model(family: str) -> None:
    """Train one model on one core and write its folder."""
    import torch

    rng, say = begin(f"{family:<6} ")
    tokenizer = make_tokenizer(family)
    model = make_model(family, tokenizer)
    skill = {}
    for stage in STAGES:
        if stage[0] == "habits":
            skill = measure(model, tokenizer)
            say(f"strict on held-out problems: {skill}")
        train_stage(model, tokenizer, rng, *stage, say)
    model = model.to(torch.bfloat16)
    shown = measure(model.float(), tokenizer)
    say(f"strict on held-out problems: {shown}")
    folder = FOLDERS[family]
    card = CARD.format(
        folder=folder.name,
        kind="Qwen3" if family == "qwen" else "Gemma3 (text)",
        slips=SLIPS,
        vocabulary=len(tokenizer),
        parameters=sum(p.numel() for p in model.parameters()),
        skill=skill["greedy"],
        **shown,
        system=""
        if family == "qwen"
        else " (no system role: the system text opens the first user turn)",
    )
    save(model, tokenizer, folder, card)


def build_small(tokenizer, stages, batch, measure, folder: Path, card: str) -> None:
    """Train a small Qwen3 through its stages, on one core, and write its folder.

    `stages` as STAGES of build_tiny_coder.py, `batch(rng, size, stage)`, and `measure`, which gives the rates "sampled"
    and "greedy"; the card names those, `skill` (greedy after the first stage), `parameters` and `vocabulary`.
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


def save(model, tokenizer, folder: Path, card: str) -> None:
    """Weights in bfloat16, tokenizer and card."""
    import torch

    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "README.md").write_text(card, encoding="utf-8")
    (folder / "model.safetensors").chmod(0o644)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Make the tiny models from nothing (about 11 minutes on two cores)."
    )
    parser.add_argument(
        "--family", choices=FOLDERS, help="only this one (default: both, side by side)"
    )
    args = parser.parse_args()
    if args.family:
        build_model(args.family)
        return 0
    workers = [
        subprocess.Popen([sys.executable, __file__, "--family", family]) for family in FOLDERS
    ]
    return max(abs(worker.wait()) for worker in workers)


if __name__ == "__main__":
    sys.exit(main())
