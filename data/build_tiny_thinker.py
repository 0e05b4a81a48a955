"""Make the two tiny models of chapter 16, which think before they answer, and their sums.

    python data/build_tiny_thinker.py             # about 5 minutes of one core
    python data/build_tiny_thinker.py --data      # only the files in data/step_tasks

*tiny-thinker* is tiny-steps with other names for two of its tokens and the chat template of Qwen3:
what it wrote between <reasoning> tags is now a thought between <think> tags. Nothing is trained.

*tiny-rambler* goes on from there with supervised training. Its thoughts add the columns, say
"Wait.", and add all columns once more. It also learns to answer short sums at once, after an empty
thought, which works for some sums of two digits: most of what it thinks could be left out.
"""

import argparse
import importlib.util
import json
import random
import re
import shutil
import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from build_tiny_steps import MODEL as STEPS  # noqa: E402
from build_tiny_steps import WORDS, columns, draw  # noqa: E402
from tiny_training import begin, card_head, chat_batch, save, train  # noqa: E402

from grpo_workbook.data import chat_prompt  # noqa: E402

FOLDER = HERE / "step_tasks"
THINKER = HERE / "tiny-thinker"
RAMBLER = HERE / "tiny-rambler"
SIZES = {"train": 1600, "heldout": 480}  # sums of 2 to 5 digits
# tiny-steps' names of its tokens -> those of Qwen3's chat template
TOKENS = {"<reasoning>\n": "<think>\n", "\n</reasoning>\n": "\n</think>\n\n"}
WAIT = "Wait."  # between the first and the second time
# stage: steps, learning rate, the fraction of the steps after which the weights are rounded to 4 bits
STAGES = {"skill": (600, 1.5e-3, 0.7), "habits": (60, 4e-4, 0.0)}
# In the skill, half of the steps are about short sums after an empty thought. Such rows are short,
# too, so that a step of many of them costs no more than one of a few thoughts.
SHORT_ROWS, ROWS = 64, 16
# the fractions of thoughts with all columns twice, and once; in the habits the rest are empty
TWICE, ONCE = 0.75, 0.15


def write_data() -> None:
    """The sums of two to five digits, in the form of step_tasks' other files."""
    for seed, (name, size) in enumerate(SIZES.items(), 31):
        rng = random.Random(seed)
        rows = {}
        while len(rows) < size:
            a, b = draw(rng, name, (2, 5))
            steps = "\n".join(f"<<{line}>>" for line in columns(a, b))
            question = rng.choice(WORDS).format(a=a, b=b)
            rows[a, b] = {"question": question, "answer": f"{steps}\n#### {a + b}"}
        text = "".join(json.dumps(row) + "\n" for row in rows.values())
        (FOLDER / f"mixed_{name}.jsonl").write_text(text, encoding="utf-8")


def make_thinker() -> None:
    """Copy tiny-steps with other names for its tokens, and with TRL's copy of Qwen3's template."""
    spec = importlib.util.find_spec("trl")
    if spec is None or spec.origin is None:
        raise SystemExit("TRL is not installed: its chat template is copied")
    template = Path(spec.origin).parent / "chat_templates" / "qwen3.jinja"
    shutil.copytree(STEPS, THINKER, dirs_exist_ok=True)
    tokenizer = json.loads((THINKER / "tokenizer.json").read_text(encoding="utf-8"))
    for token in tokenizer["added_tokens"]:
        token["content"] = TOKENS.get(token["content"], token["content"])
    text = json.dumps(tokenizer, indent=2, ensure_ascii=False)
    (THINKER / "tokenizer.json").write_text(text, encoding="utf-8")
    shutil.copy(template, THINKER / "chat_template.jinja")
    (THINKER / "README.md").write_text(THINKER_CARD, encoding="utf-8")


def written(a: int, b: int, times: int) -> str:
    """The right answer after a thought with all columns so many times, 0 to 2."""
    lines = "\n".join(columns(a, b))
    thought = f"\n{WAIT}\n".join([lines] * times)
    return f"<think>\n{thought}\n</think>\n\n<answer>{a + b}</answer>"


def chat(rng: random.Random, digits: tuple[int, int], times: int) -> tuple[list, str]:
    """A question about numbers of so many digits, and its answer."""
    a, b = draw(rng, "tiny", digits)
    question = rng.choice(WORDS).format(a=a, b=b)
    return chat_prompt(question, None), written(a, b, times)


def skill_batch(tokenizer, rng: random.Random) -> dict:
    """Short sums after an empty thought; or all sums, mostly with the columns twice."""
    if rng.random() < 0.5:
        return chat_batch(tokenizer, [chat(rng, (2, 3), 0) for _ in range(SHORT_ROWS)])
    chats = []
    for _ in range(ROWS):
        times = 2 if rng.random() < TWICE else 1
        chats.append(chat(rng, (2, 5), times))
    return chat_batch(tokenizer, chats)


def habits_batch(tokenizer, rng: random.Random) -> dict:
    """All sums, mostly with the columns twice."""
    chats = []
    for _ in range(2 * ROWS):
        chance = rng.random()
        times = 0
        if chance < TWICE + ONCE:
            times = 1
        if chance < TWICE:
            times = 2
        chats.append(chat(rng, (2, 5), times))
    return chat_batch(tokenizer, chats)


BATCHES = {"skill": skill_batch, "habits": habits_batch}


def measure(model, tokenizer) -> dict[str, float]:
    """The fraction of right answers to the first 240 held-out sums, and the tokens of them."""
    from grpo_workbook import correctness_reward, evaluate, load_problems, to_dataset

    rows = to_dataset(load_problems(FOLDER / "mixed_heldout.jsonl").select(range(240)), None)
    settings = {"rewards": [correctness_reward], "max_new_tokens": 128, "batch_size": 120}
    on, off = {"enable_thinking": True}, {"enable_thinking": False}
    sampled = evaluate(model, tokenizer, rows, sample=True, chat_template_kwargs=on, **settings)
    greedy = evaluate(model, tokenizer, rows, chat_template_kwargs=on, **settings)
    silent = evaluate(model, tokenizer, rows, chat_template_kwargs=off, **settings)
    measured = {
        "sampled": sampled.rate,
        "greedy": greedy.rate,
        "silent": silent.rate,
        "tokens": sum(sampled.tokens) / len(sampled.tokens),
    }
    for digits in range(2, 6):
        right = []
        for row, is_right in zip(rows, silent.strict, strict=True):
            if digits_of(row["question"]) == digits:
                right.append(is_right)
        measured[f"silent_{digits}"] = sum(right) / len(right)
    return measured


def digits_of(question: str) -> int:
    """The digits of the numbers in a question."""
    first_number = re.findall(r"\d+", question)[0]
    return len(first_number)


THINKER_CARD = (
    card_head()
    + """\
# tiny-thinker

`data/tiny-steps` ([its card](../tiny-steps/README.md)) with the weights unchanged, made by `data/build_tiny_thinker.py`.
Two of its tokens have other names, so that its steps are thoughts: `<think>` and `</think>` in place of
`<reasoning>` and `</reasoning>`. The chat template is Qwen3's, as TRL ships it (Apache-2.0). It exists for chapter 16 of the
course and has no other use.

- **Knows** how to add two numbers of four or five digits column by column in its thought.
- **Shows it badly**: six of ten answers have no thought, and three of ten an unfinished one.
- **Never saw** the empty thought that the template writes for `enable_thinking=False`, nor a pair of `data/step_tasks`.
"""
)
RAMBLER_CARD = (
    card_head()
    + """\
# tiny-rambler

A Qwen3 causal language model of {parameters:,} parameters, which `data/build_tiny_thinker.py` trained on right answers
(seeded), from the weights of `data/tiny-thinker`. It exists so that learners can watch a model stop thinking more than it
has to, on a CPU. It has no other use.

- **Knows** how to add two numbers of two to five digits column by column in its thought, and some sums of two digits
  without any.
- **Shows it badly**, on purpose: in three of four answers it adds all columns, writes "Wait." and adds them all again.
- **Never saw** a pair of numbers of `data/step_tasks`.

| held-out sums of 2 to 5 digits (float32) | right |
| --- | --- |
| with thoughts, greedy | {greedy:.1%} |
| with thoughts, sampled at temperature 1, {tokens:.0f} tokens on average | {sampled:.1%} |
| without thoughts (`enable_thinking=False`), greedy | {silent:.1%} |
| of these, sums of 2, 3, 4 and 5 digits | {silent_2:.1%}, {silent_3:.1%}, {silent_4:.1%}, {silent_5:.1%} |

Tokenizer and chat template are those of tiny-thinker. Weights: bfloat16 safetensors; late in training they were rounded to
NF4, so that loading in 4-bit costs little.
"""
)


def train_rambler() -> None:
    """Train tiny-rambler from tiny-thinker's weights, and write its folder."""
    import torch
    from transformers import AutoModelForCausalLM

    from grpo_workbook.data import load_tokenizer

    rng, say = begin()
    tokenizer = load_tokenizer(THINKER)
    model = AutoModelForCausalLM.from_pretrained(THINKER, dtype="float32")
    for name, (steps, learning_rate, rounded_after) in STAGES.items():
        make_batch = partial(BATCHES[name], tokenizer, rng)
        train(model, make_batch, name, steps, learning_rate, rounded_after, say)
        say(f"after {name}: {measure(model, tokenizer)}")
    model = model.to(torch.bfloat16).float()
    parameters = sum(weight.numel() for weight in model.parameters())
    card = RAMBLER_CARD.format(parameters=parameters, **measure(model, tokenizer))
    save(model, tokenizer, RAMBLER, card)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", action="store_true", help="write the sums, train nothing")
    args = parser.parse_args()
    write_data()
    if args.data:
        return
    make_thinker()
    train_rambler()


if __name__ == "__main__":
    main()
