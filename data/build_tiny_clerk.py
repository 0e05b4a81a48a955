"""Train the tiny model of the project template from scratch: a Qwen3 that classifies messages.

    python data/build_tiny_clerk.py               # about 2 minutes on one core

Like the other tiny models (build_tiny_models.py) it first learns the skill, and then bad habits: JSON with words
around it, wrong values, missing fields. All rows come from the pool "tiny" of build_messages.py: it never sees a
training or a held-out row of the template.
"""

import json
import random
import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from build_messages import PROBLEMS, SYSTEM_PROMPT, TEMPLATE, Row, build, sample  # noqa: E402
from build_tiny_models import build_small, chat_batch, make_tokenizer  # noqa: E402

from grpo_workbook.data import chat_prompt  # noqa: E402

MODEL = TEMPLATE / "tiny_model"
# (name, steps, sequences per step, learning rate, fraction of the steps after which weights are
# rounded to 4 bits)
STAGES = (("skill", 260, 32, 2e-3, 0.6), ("habits", 90, 32, 5e-4, 0.0))


def other_value(rng: random.Random, value):
    """A wrong value of the same kind."""
    others = [label for label in PROBLEMS if label != value]
    return (not value) if isinstance(value, bool) else rng.choice(others)


def with_wrong_value(rng: random.Random, row: Row) -> str:
    name = rng.choice(list(row.values))
    return json.dumps(row.values | {name: other_value(rng, row.values[name])})


def without_a_field(rng: random.Random, row: Row) -> str:
    gone = rng.choice(list(row.values))
    return json.dumps({name: value for name, value in row.values.items() if name != gone})


# percentage of the completions, and how they look
HABITS = (
    (32, lambda rng, r: r.answer),
    (14, lambda rng, r: f"Here it is: {r.answer}"),
    (10, lambda rng, r: f"```json\n{r.answer}\n```"),
    (10, lambda rng, r: r.answer.replace('"', "'")),
    (8, lambda rng, r: r.answer.removesuffix("}")),
    (8, without_a_field),
    (18, with_wrong_value),
)


def habit(rng: random.Random, row: Row) -> str:
    """A completion in good form or with a bad habit."""
    ((_, write),) = rng.choices(HABITS, [percentage for percentage, _ in HABITS])
    return write(rng, row)


def texts():
    """The texts that the tokenizer is trained on."""
    rng = random.Random(5)
    for _ in range(3000):
        row = sample(rng, "tiny")
        yield f"system\nuser\nassistant\n{SYSTEM_PROMPT}\n"
        yield from (row.question, habit(rng, row))


def measure(model, tokenizer) -> dict[str, float]:
    """The fraction of held-out answers that are the reference, word for word, in float32."""
    from grpo_workbook.evaluation import generate

    rows, found = build("heldout"), {}
    prompts = [chat_prompt(row.question, SYSTEM_PROMPT) for row in rows]
    for how in ("sampled", "greedy"):
        said = generate(model, tokenizer, prompts, max_new_tokens=32, sample=how == "sampled")
        same = [text == row.answer for text, row in zip(said, rows, strict=True)]
        found[how] = sum(same) / len(same)
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

- **Knows** the task of the template: the label of a message and whether it is urgent, as JSON.
- **Shows it badly**, on purpose: about a quarter of its answers are right. The others have words around them, a wrong
  value or a missing field.
- **Never saw** a training or held-out row of the template: a hash of the text keeps the pools apart.

| | held-out rows, word for word as the reference (float32) |
| --- | --- |
| after learning the skill, greedy | {skill:.1%} |
| as shipped, greedy | {greedy:.1%} |
| as shipped, sampled at temperature 1 | {sampled:.1%} |

Tokenizer: byte-level BPE of {vocabulary} tokens (any text can be encoded), one token per digit, Qwen's turns
as chat template. Weights: bfloat16 safetensors; late in training they were rounded to NF4, so that
loading in 4-bit costs little.
"""


def batch(tokenizer, rng: random.Random, size: int, stage: str):
    rows = [sample(rng, "tiny") for _ in range(size)]
    said = [habit(rng, row) if stage == "habits" else row.answer for row in rows]
    asked = [chat_prompt(row.question, SYSTEM_PROMPT) for row in rows]
    return chat_batch(tokenizer, list(zip(asked, said, strict=True)))


def main() -> None:
    tokenizer = make_tokenizer("qwen", texts())
    build_small(tokenizer, STAGES, partial(batch, tokenizer), measure, MODEL, CARD)


if __name__ == "__main__":
    main()
