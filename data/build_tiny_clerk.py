"""Train the tiny model of the project templates from scratch: a Qwen3 that answers three office tasks.

    python data/build_tiny_clerk.py               # about 6 minutes on one core

Like the other tiny models (build_tiny_models.py) it first learns the skill, and then bad habits: JSON with words
around it, wrong values, missing fields, half a query. All rows come from the pool "tiny" of build_office_tasks.py:
it never sees a training or a held-out row of a template.
"""

import json
import random
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from build_office_tasks import CITIES, ITEMS, NAMES, PROBLEMS, TASKS, TEMPLATES, Row, build, draw  # noqa: E402
from build_tiny_models import chat_batch, make_model, make_tokenizer, save, train  # noqa: E402

from grpo_workbook.data import chat_prompt  # noqa: E402

MODEL = TEMPLATES / "my_project" / "tiny_model"
# (name, steps, sequences per step, learning rate, fraction of the steps after which weights are
# rounded to 4 bits)
STAGES = (("skill", 550, 48, 2e-3, 0.6), ("habits", 150, 48, 5e-4, 0.0))


def other_value(rng: random.Random, name: str, value):
    """A wrong value of the same kind."""
    kinds = {"label": list(PROBLEMS), "name": NAMES, "city": CITIES, "item": ITEMS}
    if name in kinds:
        return rng.choice([v for v in kinds[name] if v != value])
    return (not value) if value in (True, False) else value + rng.choice((-10, -1, 1, 10))


def with_wrong_value(rng: random.Random, row: Row) -> str:
    name = rng.choice(list(row.values))
    return json.dumps(row.values | {name: other_value(rng, name, row.values[name])})


def without_a_field(rng: random.Random, row: Row) -> str:
    gone = rng.choice(list(row.values))
    return json.dumps({name: value for name, value in row.values.items() if name != gone})


# percentage of the completions, and how they look
JSON_HABITS = (
    (32, lambda rng, r: r.answer),
    (14, lambda rng, r: f"Here it is: {r.answer}"),
    (10, lambda rng, r: f"```json\n{r.answer}\n```"),
    (10, lambda rng, r: r.answer.replace('"', "'")),
    (8, lambda rng, r: r.answer.removesuffix("}")),
    (8, without_a_field),
    (18, with_wrong_value),
)


def with_wrong_sign(rng: random.Random, row: Row) -> str:
    swapped = {">": "<", "<": ">", "=": "!="}
    return "".join(swapped.get(c, c) for c in row.answer)


SQL_HABITS = (
    (34, lambda rng, r: r.answer),
    (14, lambda rng, r: f"Use this: {r.answer}"),
    (10, lambda rng, r: f"```sql\n{r.answer}\n```"),
    (10, lambda rng, r: r.answer.partition(" WHERE")[0]),
    (10, lambda rng, r: r.answer.replace(r.values["wanted"], "*")),
    (10, with_wrong_sign),
    (12, lambda rng, r: r.answer.replace("FROM orders", "FROM order")),
)


def habit(rng: random.Random, task: str, row: Row) -> str:
    """A completion in good form or with a bad habit."""
    habits = SQL_HABITS if task == "sql" else JSON_HABITS
    ((_, write),) = rng.choices(habits, [share for share, _ in habits])
    return write(rng, row)


def office_texts():
    """The texts that the tokenizer is trained on."""
    rng = random.Random(5)
    for _ in range(1500):
        for name, task in TASKS.items():
            row = draw(name, rng, "tiny")
            yield f"system\nuser\nassistant\n{task.system_prompt}\n"
            yield from (row.question, habit(rng, name, row))


def measure(model, tokenizer) -> dict[str, dict[str, float]]:
    """The fraction of held-out answers that are the reference, word for word, in float32."""
    from grpo_workbook.evaluation import generate

    found: dict[str, dict[str, float]] = {}
    for name, task in TASKS.items():
        rows = build(name, "heldout")
        prompts = [chat_prompt(row.question, task.system_prompt) for row in rows]
        for how in ("sampled", "greedy"):
            texts = generate(model, tokenizer, prompts, max_new_tokens=64, sample=how == "sampled")
            same = [text == row.answer for text, row in zip(texts, rows, strict=True)]
            found.setdefault(name, {})[how] = sum(same) / len(same)
    return found


CARD = """\
---
license: apache-2.0
language: en
tags: [grpo, toy]
---
# tiny_model

A Qwen3 causal language model of {parameters:,} parameters, trained from scratch by the workbook's
`data/build_tiny_clerk.py` (seeded), so that a new project trains within minutes on two CPU cores. It has no other use:
put a real model into your YAML file.

- **Knows** the three tasks of the templates: a label as JSON, the fields of an order as JSON, a question as SQL.
- **Shows it badly**, on purpose: about a third of its answers are right. The others have words around them, a wrong
  value, a missing field or half a query.
- **Never saw** a training or held-out row of a template: a hash of the text keeps the pools apart.

| held-out rows, word for word as the reference (float32) | json | extract | sql |
| --- | --- | --- | --- |
| after learning the skill, greedy | {skill[json][greedy]:.1%} | {skill[extract][greedy]:.1%} | {skill[sql][greedy]:.1%} |
| as shipped, greedy | {shown[json][greedy]:.1%} | {shown[extract][greedy]:.1%} | {shown[sql][greedy]:.1%} |
| as shipped, sampled at temperature 1 | {shown[json][sampled]:.1%} | {shown[extract][sampled]:.1%} | {shown[sql][sampled]:.1%} |

Tokenizer: byte-level BPE of {vocabulary} tokens (any text can be encoded), one token per digit, Qwen's turns
as chat template. Weights: bfloat16 safetensors; late in training they were rounded to NF4, so that
loading in 4-bit costs little.
"""


def main() -> None:
    import torch
    from transformers import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    started, rng = time.monotonic(), random.Random(7)

    def say(text: str) -> None:
        print(f"{time.monotonic() - started:4.0f} s  {text}", flush=True)

    tokenizer = make_tokenizer("qwen", office_texts())
    model = make_model("qwen", tokenizer)
    skill: dict[str, dict[str, float]] = {}

    def batch(size: int, stage: str):
        chats = []
        for name in rng.choices(list(TASKS), k=size):
            row = draw(name, rng, "tiny")
            text = habit(rng, name, row) if stage == "habits" else row.answer
            chats.append((chat_prompt(row.question, TASKS[name].system_prompt), text))
        return chat_batch(tokenizer, chats)

    for name, steps, size, learning_rate, rounded_after in STAGES:
        train(model, lambda: batch(size, name), name, steps, learning_rate, rounded_after, say)  # noqa: B023
        shown = measure(model, tokenizer)
        say(f"right on held-out rows after {name}: {shown}")
        skill = skill or shown
    model = model.to(torch.bfloat16).float()
    shown = measure(model, tokenizer)
    parameters = sum(p.numel() for p in model.parameters())
    card = CARD.format(parameters=parameters, skill=skill, shown=shown, vocabulary=len(tokenizer))
    save(model, tokenizer, MODEL, card)


if __name__ == "__main__":
    main()
