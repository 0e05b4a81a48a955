"""Train the tiny model that can add long numbers in steps and mostly does not, and make its data.

    python data/build_tiny_steps.py               # about 6 minutes on one core
    python data/build_tiny_steps.py --data        # only data/step_tasks

A step adds one column: its two digits and the carry. The model first learns to write all columns,
from the right, and to read the sum off them; then habits: it mostly answers at once, or writes only
the first columns. Every answer that it learns from is right: without steps they are only too
hard. Pairs of numbers are divided by a hash into three pools: it never sees a pair of the data.
"""

import argparse
import hashlib
import json
import random
import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from tiny_training import build_small, card_head, chat_batch, make_tokenizer  # noqa: E402

from grpo_workbook.data import chat_prompt  # noqa: E402

MODEL, FOLDER = HERE / "tiny-steps", HERE / "step_tasks"
# (name, steps, sequences per step, learning rate, fraction of the steps after which weights are rounded to 4 bits)
STAGES = (("skill", 750, 32, 2e-3, 0.8), ("habits", 60, 32, 4e-4, 0.0))
# stage -> the fractions of answers with all steps, and with some; the rest answers at once. Some of
# the skill has to be without: a model that meets hard answers only later forgets to read its steps
MIX = {"skill": (0.8, 0.06), "habits": (0.1, 0.3)}
SIZES = {"train": 1600, "heldout": 480}
WORDS = ("What is {a} + {b}?", "Add {a} and {b}.", "{a} + {b} = ?", "Find the sum of {a} and {b}.")


def columns(a: int, b: int) -> list[str]:
    """The steps, from the right: 48 + 67 is 8+7=15, then 4+6+1=11."""
    lines, carry = [], 0
    while a or b:
        x, y = a % 10, b % 10
        lines.append(f"{x}+{y}{'+1' * carry}={x + y + carry}")
        a, b, carry = a // 10, b // 10, (x + y + carry) // 10
    return lines


def draw(rng: random.Random, pool: str, digits: tuple[int, int] = (4, 5)) -> tuple[int, int]:
    """Two numbers of equally many digits, out of one pool."""
    while True:
        n = rng.randint(*digits)
        a, b = (rng.randint(10 ** (n - 1), 10**n - 1) for _ in range(2))
        place = hashlib.sha256(f"{a}+{b}".encode()).digest()[0] % 5
        if ("heldout", "train", "tiny", "tiny", "tiny")[place] == pool:
            return a, b


def write_data() -> None:
    """data/step_tasks, in the form of GSM8K's rows: the steps between << and >>."""
    FOLDER.mkdir(exist_ok=True)
    for seed, (name, size) in enumerate(SIZES.items(), 21):
        rng, rows = random.Random(seed), {}
        while len(rows) < size:
            a, b = draw(rng, name)
            steps = "\n".join(f"<<{line}>>" for line in columns(a, b))
            rows[a, b] = {
                "question": rng.choice(WORDS).format(a=a, b=b),
                "answer": f"{steps}\n#### {a + b}",
            }
        text = "".join(json.dumps(row) + "\n" for row in rows.values())
        (FOLDER / f"{name}.jsonl").write_text(text, encoding="utf-8")


def written(a: int, b: int, steps: int) -> str:
    """The right answer after so many steps."""
    lines = "\n".join(columns(a, b)[:steps])
    return (f"<reasoning>\n{lines}\n</reasoning>\n" if lines else "") + f"<answer>{a + b}</answer>"


def batch(tokenizer, rng: random.Random, size: int, stage: str):
    chats = []
    for _ in range(size):
        a, b = draw(rng, "tiny", (2, 5) if stage == "skill" else (4, 5))
        steps, chance, (every, some) = len(str(a)), rng.random(), MIX[stage]
        if chance > every:
            steps = rng.randint(1, steps - 1) if chance < every + some else 0
        question = rng.choice(WORDS).format(a=a, b=b)
        chats.append((chat_prompt(question, None), written(a, b, steps)))
    return chat_batch(tokenizer, chats)


def make_step_tokenizer():
    """make_tokenizer's, with each tag as one token."""
    from tokenizers import AddedToken

    rng = random.Random(5)
    pairs = [draw(rng, "tiny") for _ in range(500)]
    texts = (
        "system\nuser\nassistant\n" + words.format(a=a, b=b) + "\n".join(columns(a, b))
        for a, b in pairs
        for words in WORDS
    )
    tokenizer = make_tokenizer("qwen", texts)
    tags = ("<reasoning>\n", "\n</reasoning>\n", "<answer>", "</answer>")
    tokenizer.add_tokens([AddedToken(tag, normalized=False, special=False) for tag in tags])
    return tokenizer


def measure(model, tokenizer) -> dict[str, float]:
    """The fraction of right answers, with or without steps, to the first 240 held-out sums."""
    from grpo_workbook import correctness_reward, evaluate, load_problems, to_dataset

    rows = to_dataset(load_problems(FOLDER / "heldout.jsonl").select(range(240)), None)
    how = {"rewards": [correctness_reward], "max_new_tokens": 64, "batch_size": 120}
    return {
        name: evaluate(model, tokenizer, rows, sample=name == "sampled", **how).rate
        for name in ("sampled", "greedy")
    }


CARD = (
    card_head()
    + """\
# tiny-steps

A Qwen3 causal language model of {parameters:,} parameters, trained from scratch by `data/build_tiny_steps.py` (seeded). It
exists so that learners can watch a model discover that writing steps pays, on a CPU. It has no other use.

- **Knows** how to add two numbers of four or five digits column by column, and to read the sum off the columns.
- **Shows it badly**, on purpose: it was taught to write all columns in one of ten answers, some of them in three, and
  none in six. All of these answers were right; without steps a sum is too hard for it.
- **Never saw** a pair of numbers of `data/step_tasks`.

| | held-out sums, right (float32) |
| --- | --- |
| after learning the skill, greedy | {skill:.1%} |
| as shipped, greedy | {greedy:.1%} |
| as shipped, sampled at temperature 1 | {sampled:.1%} |

Tokenizer: byte-level BPE of {vocabulary} tokens (any text can be encoded), one token per digit and per tag, Qwen's turns
as chat template. Weights: bfloat16 safetensors; late in training they were rounded to NF4, so that
loading in 4-bit costs little.
"""
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", action="store_true", help="write data/step_tasks, train nothing")
    write_data()
    if parser.parse_args().data:
        return
    tokenizer = make_step_tokenizer()
    build_small(tokenizer, STAGES, partial(batch, tokenizer), measure, MODEL, CARD)


if __name__ == "__main__":
    main()
