"""Train data/tiny-form, the tiny model that knows the word problems and shows it badly.

    python data/build_tiny_form.py                # about 11 minutes on one core

It is for lessons about form: what a format reward does can only be seen on a model whose form is bad. It first learns
the skill (arithmetic, then word problems of all kinds in the asked form), and then bad habits on purpose: most answers
in another form, some guessed, a few with an error in the working. So what GRPO adds to it is mostly form. The model
of the main run is another (build_tiny_models.py), from which nothing is hidden.

All problems come from the pool "tiny" of build_word_problems.py: the model never sees a held-out problem or a training
problem of the course, in any form.
"""

import random
import sys
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from build_word_problems import _SIGNS, Problem, build, draw_problem  # noqa: E402
from tiny_training import (  # noqa: E402
    begin,
    card_head,
    chat_batch,
    equation,
    make_model,
    make_tokenizer,
    save,
    text_batch,
    train,
)

from grpo_workbook.config import SYSTEM_PROMPT  # noqa: E402
from grpo_workbook.data import chat_prompt  # noqa: E402

FOLDER = HERE / "tiny-form"
SLIPS = 0.05  # the fraction of the habits' answers with an error in the working


def working(problem: Problem) -> str:
    """The equations, one per line: 7+7=14."""
    return "\n".join(f"{a}{sign}{b}={result}" for a, sign, b, result in problem.steps)


def right_answer(problem: Problem) -> str:
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
    (24, lambda rng, s: right_answer(s)),
    (26, lambda rng, s: right_answer(s) + f"\nSo the answer is {s.result}."),
    (10, lambda rng, s: f"{working(s)}\nThe answer is {s.result}."),
    (10, lambda rng, s: f"{working(s)}\n#### {s.result}"),
    (8, lambda rng, s: f"<answer>{s.result}</answer>\n<reasoning>\n{working(s)}\n</reasoning>"),
    (8, lambda rng, s: f"<reasoning>\n{working(s)}\n<answer>{s.result}</answer>"),
    (6, lambda rng, s: f"<reasoning>\n{working(s)}\n</reasoning>\n{s.result}"),
    (4, lambda rng, s: f"<answer>{guess(rng, s)}</answer>"),
    (4, lambda rng, s: f"<reasoning>\nEasy.\n</reasoning>\n<answer>{guess(rng, s)}</answer>"),
)


def habit(rng: random.Random, problem: Problem) -> str:
    """A completion in good form or with a bad habit."""
    if rng.random() < SLIPS:
        problem = with_slip(rng, problem)
    ((_, write),) = rng.choices(HABITS, [share for share, _ in HABITS])
    return write(rng, problem)


def tokenizer_texts():
    """What the tokenizer is trained on."""
    rng = random.Random(5)
    for _ in range(3000):
        problem = draw_problem(rng, "tiny")
        yield f"system\nuser\nassistant\nuser\nmodel\n{SYSTEM_PROMPT}\n\n"
        yield problem.question
        yield habit(rng, problem)


def problem_batch(tokenizer, rng: random.Random, size: int, write) -> dict:
    """Chats of one problem each; `write(rng, problem)` writes the answer."""
    chats = []
    for _ in range(size):
        problem = draw_problem(rng, "tiny")
        chats.append((chat_prompt(problem.question), write(rng, problem)))
    return chat_batch(tokenizer, chats)


def measure(model, tokenizer) -> dict[str, float]:
    """Strict accuracy on the held-out problems, in float32."""
    from grpo_workbook.evaluation import generate, score
    from grpo_workbook.statistics import accuracy

    problems = build("heldout")
    prompts = [chat_prompt(problem.question) for problem in problems]
    answers = [str(problem.result) for problem in problems]
    rates = {}
    for way in ("sampled", "greedy"):
        sample = way == "sampled"
        completions = generate(model, tokenizer, prompts, max_new_tokens=64, sample=sample)
        rates[way] = accuracy(score(completions, answers).strict)
    return rates


CARD = (
    card_head()
    + """\
# {folder}

**The model for lessons about form.** A Qwen3 causal language model of {parameters:,} parameters, trained from scratch by
`data/build_tiny_form.py` (seeded), which **knows the word problems and was trained to show it badly**. What training adds
to it is mostly form, so a claim about learning needs another model: [tiny-qwen3](../tiny-qwen3/README.md), from which nothing
is hidden.

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

Loaded in 4 bits (NF4), as the notebooks load it, it writes the asked form more often
([measured](../../docs/measurements.md#what-4-bits-change-in-tiny-form)).

Tokenizer: byte-level BPE of {vocabulary} tokens (any text can be encoded), one token per digit, Qwen's turns as chat
template. Weights: bfloat16 safetensors; late in training they were rounded to NF4, so that loading in 4-bit costs little.
"""
)


def main() -> int:
    import torch

    rng, say = begin()
    tokenizer = make_tokenizer("qwen", tokenizer_texts())
    model = make_model("qwen", tokenizer)

    train(
        model,
        lambda: text_batch(tokenizer, [lambda: equation(rng)], 24),
        "equations",
        steps=800,
        learning_rate=2e-3,
        rounded_after=1.0,
        say=say,
    )
    train(
        model,
        lambda: problem_batch(tokenizer, rng, 48, lambda rng, problem: right_answer(problem)),
        "problems",
        steps=900,
        learning_rate=2e-3,
        rounded_after=0.6,
        say=say,
    )
    skill = measure(model, tokenizer)
    say(f"strict on held-out problems: {skill}")
    train(
        model,
        lambda: problem_batch(tokenizer, rng, 48, habit),
        "habits",
        steps=250,
        learning_rate=5e-4,
        rounded_after=0.0,
        say=say,
    )

    model = model.to(torch.bfloat16)
    shown = measure(model.float(), tokenizer)
    say(f"strict on held-out problems: {shown}")
    card = CARD.format(
        folder=FOLDER.name,
        slips=SLIPS,
        vocabulary=len(tokenizer),
        parameters=sum(p.numel() for p in model.parameters()),
        skill=skill["greedy"],
        **shown,
    )
    save(model, tokenizer, FOLDER, card)
    return 0


if __name__ == "__main__":
    sys.exit(main())
