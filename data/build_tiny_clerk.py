"""Train the tiny models of the project templates from scratch: Qwen3s that do a clerk's work.

    python data/build_tiny_clerk.py messages      # classification: about 2 minutes on one core
    python data/build_tiny_clerk.py orders        # extraction and SQL, in one model

Like the other tiny models (build_tiny_models.py) they first learn the skill, and then bad habits: words around the
answer, wrong values, missing fields, half a query. All rows come from the pool "tiny" of build_messages.py and
build_orders.py: they never see a training or a held-out row of a template.
"""

import argparse
import json
import random
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from build_messages import NAMES, PROBLEMS, Row, build, message, sample  # noqa: E402
from build_orders import CITIES, DAYS, ITEMS, TEMPLATES, order, query  # noqa: E402
from tiny_training import build_small, card_head, chat_batch, make_tokenizer  # noqa: E402

from grpo_workbook.cli.new import PROMPTS  # noqa: E402
from grpo_workbook.data import chat_prompt  # noqa: E402


def other_value(rng: random.Random, name: str, value):
    """A wrong value of the same kind."""
    kinds = {"label": list(PROBLEMS), "name": NAMES, "city": CITIES, "item": ITEMS, "day": DAYS}
    if name in kinds:
        return rng.choice([one for one in kinds[name] if one != value])
    return (not value) if isinstance(value, bool) else value + rng.choice((-10, -1, 1, 10))


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
SQL_HABITS = (
    (32, lambda rng, r: r.answer),
    (14, lambda rng, r: f"Use this: {r.answer}"),
    (10, lambda rng, r: f"```sql\n{r.answer}\n```"),
    (10, lambda rng, r: r.answer.partition(" WHERE")[0]),
    (10, lambda rng, r: r.answer.replace(r.values["wanted"], "*", 1)),
    (
        12,
        lambda rng, r: re.sub(
            "[<=>]", lambda sign: {"<": ">", ">": "<", "=": "!="}[sign[0]], r.answer
        ),
    ),
    (12, lambda rng, r: r.answer.replace("FROM orders", "FROM order")),
)


@dataclass(frozen=True)
class Task:
    """What a model learns: rows, and habits of answering them."""

    make: Callable[[random.Random], Row]
    system_prompt: str
    habits: tuple

    def habit(self, rng: random.Random, row: Row) -> str:
        """A completion in good form or with a bad habit."""
        ((_, write),) = rng.choices(self.habits, [percentage for percentage, _ in self.habits])
        return write(rng, row)


CLASSIFICATION = Task(message, PROMPTS["classification"], JSON_HABITS)
EXTRACTION = Task(order, PROMPTS["extraction"], JSON_HABITS)
SQL = Task(query, PROMPTS["sql"], SQL_HABITS)


def texts(tasks: list[Task]):
    """The texts that the tokenizer is trained on."""
    rng = random.Random(5)
    for i in range(3000):
        task = tasks[i % len(tasks)]
        row = sample(rng, "tiny", task.make)
        yield f"system\nuser\nassistant\n{task.system_prompt}\n"
        yield from (row.question, task.habit(rng, row))


def measure(tasks: list[Task], model, tokenizer) -> dict[str, float]:
    """The fraction of held-out answers that are the reference, word for word, in float32."""
    from grpo_workbook.evaluation import generate

    rows = [(task, row) for task in tasks for row in build("heldout", task.make)]
    prompts, found = [chat_prompt(row.question, task.system_prompt) for task, row in rows], {}
    for how in ("sampled", "greedy"):
        said = generate(model, tokenizer, prompts, max_new_tokens=64, sample=how == "sampled")
        same = [text == row.answer for text, (_, row) in zip(said, rows, strict=True)]
        found[how] = sum(same) / len(same)
    return found


def batch(tasks: list[Task], tokenizer, rng: random.Random, size: int, stage: str):
    """Chats of all tasks, in turn."""
    turns = [tasks[i % len(tasks)] for i in range(size)]
    rows = [(task, sample(rng, "tiny", task.make)) for task in turns]
    said = [task.habit(rng, row) if stage == "habits" else row.answer for task, row in rows]
    asked = [chat_prompt(row.question, task.system_prompt) for task, row in rows]
    return chat_batch(tokenizer, list(zip(asked, said, strict=True)))


CARD = (
    card_head()
    + """\
# tiny_model

A Qwen3 causal language model of {parameters:,} parameters, trained from scratch by the workbook's
`data/build_tiny_clerk.py` (seeded), so that a new project trains within minutes on two CPU cores. It has no other use:
put a real model into your YAML file.

KNOWS
- **Shows it badly**, on purpose; the table says how often. Else there are words around the answer, a wrong value or
  a missing field. So what training adds is form and sharpening, and no new skill.
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
)


@dataclass(frozen=True)
class Clerk:
    """A model: its folder and tasks, what its card says that it knows, and its STAGES.

    A stage is (name, steps, sequences per step, learning rate, fraction of the steps after which
    weights are rounded to 4 bits).
    """

    template: str
    tasks: list[Task]
    knows: str
    stages: tuple


CLERKS = {
    "messages": Clerk(
        "my_project",
        [CLASSIFICATION],
        "- **Knows** the task of the template: the label of a message and whether it is urgent, as JSON.",
        (("skill", 260, 32, 2e-3, 0.6), ("habits", 90, 32, 5e-4, 0.0)),
    ),
    "orders": Clerk(
        "extraction",
        [EXTRACTION, SQL],
        "- **Knows** the tasks of two templates: the values of an order as JSON, and a question as an SQL query. The\n"
        "  rates below are means of both.",
        (("skill", 1000, 32, 2e-3, 0.85), ("habits", 150, 32, 5e-4, 0.0)),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a tiny model of the project templates.")
    parser.add_argument("clerk", choices=CLERKS)
    clerk = CLERKS[parser.parse_args().clerk]
    tokenizer = make_tokenizer("qwen", texts(clerk.tasks))
    build_small(
        tokenizer,
        clerk.stages,
        partial(batch, clerk.tasks, tokenizer),
        partial(measure, clerk.tasks),
        TEMPLATES / clerk.template / "tiny_model",
        CARD.replace("KNOWS", clerk.knows),
    )


if __name__ == "__main__":
    main()
