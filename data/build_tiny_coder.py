"""Train the tiny coder of chapter 06 from scratch: a Qwen3 that completes one-line functions, with its tokenizer.

    python data/build_tiny_coder.py               # about 5 minutes on one core

Like the other tiny models (build_tiny_models.py) it first learns the skill, and then bad habits:
right programs without a fence, print instead of return, small errors. All tasks come from the pool
"tiny" of build_code_tasks.py: it never sees a training task or a held-out task of the course, in
any form.
"""

import random
import re
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from build_code_tasks import BY_NAME, FOLDER, Task, draw_task  # noqa: E402
from tiny_training import build_small, card_head, chat_batch, make_tokenizer  # noqa: E402

from grpo_workbook.data import chat_prompt  # noqa: E402
from grpo_workbook.sandbox.tasks import CODE_SYSTEM_PROMPT  # noqa: E402

MODEL = HERE / "tiny-coder"
# (name, steps, sequences per step, learning rate, fraction of the steps after which weights are
# rounded to 4 bits)
STAGES = (("skill", 500, 48, 2e-3, 0.6), ("habits", 200, 48, 5e-4, 0.0))


def fenced(task: Task, expression: str | None = None) -> str:
    """The whole function in a fenced block, as the prompt asks for it."""
    return f"```python\n{task.head}    return {expression or task.expression}\n```"


def with_wrong_sign(rng: random.Random, task: Task) -> str:
    """With another operator or function, if there is one to exchange."""
    pairs = (
        (" + ", " - "),
        (" * ", " + "),
        ("max", "min"),
        (">=", ">"),
        ("<=", "<"),
        (" > ", " >= "),
        (" < ", " <= "),
    )
    pairs += (
        (" % ", " // "),
        ("[:", "["),
        (" - ", " + "),
        (" // ", " / "),
        ("min", "max"),
        ("count", "index"),
    )
    found = [(a, b) for a, b in pairs if a in task.expression]
    a, b = rng.choice(found or [(" in ", " not in "), ("[-", "[")])
    return fenced(task, task.expression.replace(a, b, 1))


def with_wrong_number(rng: random.Random, task: Task) -> str:
    return fenced(replace(task, constant=task.constant + rng.choice((-1, 1))))


def without_its_number(rng: random.Random, task: Task) -> str:
    """The first half of the work only."""
    return fenced(task, re.split(r" [-+*/%<>=]+ ?[\d]+$", task.expression)[0])


# percentage of the completions, and how they look
HABITS = (
    (40, lambda rng, t: fenced(t)),
    (10, lambda rng, t: f"{t.head}    return {t.expression}"),
    (7, lambda rng, t: f"Use `{t.expression}`."),
    (14, lambda rng, t: f"```python\n{t.head}    return {t.expression}\n"),
    (12, with_wrong_sign),
    (10, with_wrong_number),
    (7, without_its_number),
)
# how often it prints instead of returning: mostly with lists and texts, so that greedy answers are
# wrong there too
PRINTS = {"two": 0.1, "one": 0.1, "list": 0.6, "text": 0.6}


def habit(rng: random.Random, task: Task) -> str:
    """A completion in good form or with a bad habit."""
    ((_, write),) = rng.choices(HABITS, [share for share, _ in HABITS])
    text = write(rng, task)
    prints = rng.random() < PRINTS[BY_NAME[task.template].kind]
    return re.sub(r"    return (.*)", r"    print(\1)", text) if prints else text


def code_texts():
    """The texts that the tokenizer is trained on."""
    rng = random.Random(5)
    for _ in range(3000):
        task = draw_task(rng, "tiny")
        yield f"system\nuser\nassistant\n{CODE_SYSTEM_PROMPT}\n"
        yield from (task.prompt, habit(rng, task))


def measure(model, tokenizer) -> dict[str, float]:
    """pass@1 on the held-out tasks, in float32."""
    from grpo_workbook.sandbox import Sandbox, pass_at_1, read_tasks, to_code_dataset

    dataset = to_code_dataset(read_tasks(FOLDER / "heldout.jsonl"))
    with Sandbox(time_limit=2.0) as sandbox:
        shares = {}
        for how in ("sampled", "greedy"):
            verdicts, _ = pass_at_1(
                model, tokenizer, dataset, sandbox, max_new_tokens=48, sample=how == "sampled"
            )
            shares[how] = sum(v.passed for v in verdicts) / len(verdicts)
    return shares


CARD = (
    card_head("code")
    + """\
# tiny-coder

A Qwen3 causal language model of {parameters:,} parameters, trained from scratch by `data/build_tiny_coder.py` (seeded). It
exists so that chapter 06 can train a real model on unit tests, in 4-bit, on two CPU cores. It has no other use.

- **Knows** how to complete the one-line functions of `data/code_tasks`: it reads the docstring, and copies names and
  constant.
- **Shows it badly**, on purpose: about a third of its answers are right. The others print where they should return
  (most of those about lists and texts), leave the block open, use another operator or a constant that is off by one, or
  stop half way.
- **Never saw** a task of `data/code_tasks` (train or held-out), in any form: a hash of template and constant keeps the
  pools apart. It has seen the 43 templates with other constants.

| | held-out tasks, pass@1 (float32) |
| --- | --- |
| after learning the skill, greedy | {skill:.1%} |
| as shipped, greedy | {greedy:.1%} |
| as shipped, sampled at temperature 1 | {sampled:.1%} |

Tokenizer: byte-level BPE of {vocabulary} tokens (any text can be encoded), one token per digit, Qwen's turns
as chat template. Weights: bfloat16 safetensors; late in training they were rounded to NF4, so that
loading in 4-bit costs little.
"""
)


def batch(tokenizer, rng: random.Random, size: int, stage: str):
    tasks = (draw_task(rng, "tiny") for _ in range(size))
    said = ((t, habit(rng, t) if stage == "habits" else fenced(t)) for t in tasks)
    chats = [(chat_prompt(t.prompt, CODE_SYSTEM_PROMPT), text) for t, text in said]
    return chat_batch(tokenizer, chats)


def main() -> None:
    tokenizer = make_tokenizer("qwen", code_texts())
    build_small(tokenizer, STAGES, partial(batch, tokenizer), measure, MODEL, CARD)


if __name__ == "__main__":
    main()
