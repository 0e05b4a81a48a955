"""Train the course's two tiny models from scratch: a Qwen3 and a Gemma3, with byte-level tokenizers.

    python data/build_tiny_models.py              # both, side by side: about 8 minutes on two cores
    python data/build_tiny_models.py --family qwen

As with large models there are two stages. In pre-training the model reads lines of arithmetic, and
questions of all kinds without answers. Then it learns to answer, from right answers alone: as many
as it can use of the ten common kinds of problem, and four of each of the six rare kinds. Nothing is
hidden or weakened afterwards: what the model cannot do with a rare kind it has never learned.

All problems come from the pool "tiny" of build_word_problems.py: the models never see a held-out
problem or a training problem of the course, in any form.

The tokenizers come out as stored, byte for byte. The weights need not: a rebuilt Qwen3 had other
weights, and 39.7 % of the rare kinds right instead of 38.5 %, 88.3 % of the common ones instead of
86.6 % (greedy). Two builds on one machine went the same way, with equal losses.
"""

import argparse
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import mean

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from build_word_problems import (  # noqa: E402
    RARE_KINDS,
    TEMPLATES,
    Problem,
    build,
    draw_problem,
    operands_in,
    write_problem,
)
from tiny_training import (  # noqa: E402
    begin,
    card_head,
    chat_batch,
    equation,
    make_model,
    make_tokenizer,
    save,
    text_batch,
    through_4_bits,
    train,
)

from grpo_workbook.config import SYSTEM_PROMPT  # noqa: E402
from grpo_workbook.data import chat_prompt  # noqa: E402

FOLDERS = {"qwen": HERE / "tiny-qwen3", "gemma": HERE / "tiny-gemma3"}
WIDTH = 96  # tokens of a row of pre-training
PRETRAINING = {"steps": 800, "size": 24, "learning_rate": 2e-3}
SUPERVISED = {"steps": 450, "size": 32, "learning_rate": 2e-3}
EXAMPLES = 4  # of each rare kind
RARE_SHARE = 0.01  # of the answers that the model learns from
MANY, SAMPLES = 120, 16  # problems that are answered several times, and how often
DRAW = 3  # decides which examples of the rare kinds it learns from


def right_answer(problem: Problem) -> str:
    """The equations, one per line (7+7=14), and the result, in the asked form."""
    lines = [f"{a}{sign}{b}={result}" for a, sign, b, result in problem.steps]
    working = "\n".join(lines)
    return f"<reasoning>\n{working}\n</reasoning>\n<answer>{problem.result}</answer>"


def tokenizer_texts():
    """What the tokenizers are trained on."""
    rng = random.Random(5)
    for _ in range(3000):
        problem = draw_problem(rng, "tiny")
        yield f"system\nuser\nassistant\nuser\nmodel\n{SYSTEM_PROMPT}\n\n"
        yield problem.question
        yield right_answer(problem)


def rare_examples(draw: int) -> list[Problem]:
    """The few problems of the rare kinds that the models learn from."""
    rng = random.Random(draw)
    examples = []
    for template in TEMPLATES:
        if template.name in RARE_KINDS:
            for operands in rng.sample(operands_in(template, "tiny"), EXAMPLES):
                examples.append(write_problem(rng, template, operands))
    return examples


def common_problem(rng: random.Random) -> Problem:
    """A new problem of one of the common kinds."""
    common = [template for template in TEMPLATES if template.name not in RARE_KINDS]
    template = rng.choice(common)
    return write_problem(rng, template, rng.choice(operands_in(template, "tiny")))


def answer_batch(
    tokenizer, rng: random.Random, size: int, examples: list[Problem], share: float = RARE_SHARE
) -> dict:
    """Chats of one problem with its right answer each.

    Args:
        size: the number of chats.
        examples: those of the rare kinds.
        share: the fraction of the chats that have one of `examples`.
    """
    chats = []
    for _ in range(size):
        problem = rng.choice(examples) if rng.random() < share else common_problem(rng)
        chats.append((chat_prompt(problem.question), right_answer(problem)))
    return chat_batch(tokenizer, chats)


# ---------------------------------------------------------------- measuring


def measure(model, tokenizer, rare: bool) -> dict[str, float]:
    """Strict accuracy on the held-out problems of the rare kinds, or of the common ones.

    The model's linear layers are first rounded as loading in 4-bit would round them.

    Returns:
        The number of "problems", and the rates "greedy", "sampled" (SAMPLES answers to each of the
        first MANY problems) and "pass@16".
    """
    from grpo_workbook.evaluation import generate, score
    from grpo_workbook.statistics import accuracy, pass_at_k

    problems = [problem for problem in build("heldout") if problem.rare == rare]
    prompts = [chat_prompt(problem.question) for problem in problems]
    answers = [str(problem.result) for problem in problems]
    # Each of the first problems SAMPLES times, one after the other.
    places = [place for place in range(MANY) for _ in range(SAMPLES)]
    settings = {"max_new_tokens": 64, "batch_size": 240}
    with through_4_bits(model):
        greedy = generate(model, tokenizer, prompts, **settings)
        sampled = generate(
            model, tokenizer, [prompts[place] for place in places], sample=True, **settings
        )
    is_right = score(sampled, [answers[place] for place in places]).strict
    right = []  # how many answers to each problem
    for start in range(0, len(is_right), SAMPLES):
        right.append(sum(is_right[start : start + SAMPLES]))
    return {
        "problems": len(problems),
        "greedy": accuracy(score(greedy, answers).strict),
        "sampled": accuracy(is_right),
        "pass@16": mean(pass_at_k(SAMPLES, count, SAMPLES) for count in right),
    }


CARD = (
    card_head()
    + """\
# {folder}

A {kind} causal language model of {parameters:,} parameters, trained from scratch by `data/build_tiny_models.py`
(seeded). It exists so that the course's notebooks can train a real model of this family, in 4-bit, on two CPU cores. It
has no other use.

It has learned as large models do, in two stages, and nothing was hidden or weakened afterwards:

1. **Pre-training**: {pretraining_rows:,} rows of {width} tokens, half of them lines of arithmetic such as 7+7=14, half of them
   questions of all kinds of problem without answers.
2. **Supervised learning from right answers alone**: {answers:,} answers in the asked form
   (`<reasoning>...</reasoning><answer>N</answer>`). {common} kinds of problem are common, with a new problem each time.
   {rare} are **rare**: {examples} worked examples of each, which make up {share:.0%} of the answers
   ({rare_kinds}).

| held-out problems (weights rounded to 4 bits) | problems | greedy | sampled at temperature 1 | pass@16 |
| --- | --- | --- | --- | --- |
| of the rare kinds | {rare_problems} | {rare_greedy:.1%} | {rare_sampled:.1%} | {rare_pass:.1%} |
| of the common kinds | {common_problems} | {common_greedy:.1%} | {common_sampled:.1%} | {common_pass:.1%} |

Greedy is one answer to each problem; sampled and pass@16 (right at least once in 16 answers) are of the first 120 problems.

- **Never saw** a problem of `data/word_problems` (train or held-out), in any form: a hash of template and operands
  keeps the pools apart. It has seen the arithmetic facts that those problems need.
- Tokenizer: byte-level BPE of {vocabulary} tokens (any text can be encoded), one token per digit, the family's
  turns as chat template{system}.
- Weights: bfloat16 safetensors. Late in the second stage the model saw them rounded to NF4, so that loading
  in 4-bit costs little.
"""
)


def write_card(family: str, model, tokenizer) -> str:
    """The card with the figures of this model."""
    common = measure(model, tokenizer, rare=False)
    rare = measure(model, tokenizer, rare=True)
    kind = "Qwen3" if family == "qwen" else "Gemma3 (text)"
    system = (
        "" if family == "qwen" else " (no system role: the system text opens the first user turn)"
    )
    return CARD.format(
        folder=FOLDERS[family].name,
        kind=kind,
        system=system,
        parameters=sum(weights.numel() for weights in model.parameters()),
        vocabulary=len(tokenizer),
        pretraining_rows=PRETRAINING["steps"] * PRETRAINING["size"],
        width=WIDTH,
        answers=SUPERVISED["steps"] * SUPERVISED["size"],
        common=len(TEMPLATES) - len(RARE_KINDS),
        rare=len(RARE_KINDS),
        rare_kinds=", ".join(RARE_KINDS),
        examples=EXAMPLES,
        share=RARE_SHARE,
        rare_problems=rare["problems"],
        rare_greedy=rare["greedy"],
        rare_sampled=rare["sampled"],
        rare_pass=rare["pass@16"],
        common_problems=common["problems"],
        common_greedy=common["greedy"],
        common_sampled=common["sampled"],
        common_pass=common["pass@16"],
    )


# ---------------------------------------------------------------- the two stages


def pretrain(model, tokenizer, rng: random.Random, say: Callable[[str], None]) -> None:
    """The model learns every token of equations, and of questions without answers."""
    writers = [lambda: draw_problem(rng, "tiny").question + "\n", lambda: equation(rng)]
    train(
        model,
        lambda: text_batch(tokenizer, writers, PRETRAINING["size"], WIDTH),
        "pre-training",
        steps=PRETRAINING["steps"],
        learning_rate=PRETRAINING["learning_rate"],
        rounded_after=1.0,
        say=say,
    )


def supervise(
    model, tokenizer, rng: random.Random, examples: list[Problem], say: Callable[[str], None]
) -> None:
    """The model learns right answers; late in the stage it sees its weights in 4-bit."""
    train(
        model,
        lambda: answer_batch(tokenizer, rng, SUPERVISED["size"], examples),
        "answers",
        steps=SUPERVISED["steps"],
        learning_rate=SUPERVISED["learning_rate"],
        rounded_after=0.6,
        say=say,
    )


def build_model(family: str, draw: int, folder: Path) -> None:
    """Train one model on one core and write its folder."""
    import torch

    rng, say = begin(f"{family:<6} ")
    tokenizer = make_tokenizer(family, tokenizer_texts())
    model = make_model(family, tokenizer)
    pretrain(model, tokenizer, rng, say)
    # A generator of its own, so that a change of the first stage changes no draw of the second.
    supervise(model, tokenizer, random.Random(8), rare_examples(draw), say)
    model = model.to(torch.bfloat16).float()  # as it will be loaded
    save(model, tokenizer, folder, write_card(family, model, tokenizer))
    say(f"wrote {folder}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Make the tiny models from nothing (about 8 minutes on two cores)."
    )
    parser.add_argument(
        "--family", choices=FOLDERS, help="only this one (default: both, side by side)"
    )
    parser.add_argument(
        "--draw", type=int, default=DRAW, help="decides the examples of the rare kinds"
    )
    parser.add_argument("--folder", type=Path, help="with --family: write another folder")
    args = parser.parse_args()
    if args.family:
        build_model(args.family, args.draw, args.folder or FOLDERS[args.family])
        return 0
    workers = []
    for family in FOLDERS:
        command = [sys.executable, __file__, "--family", family, "--draw", str(args.draw)]
        workers.append(subprocess.Popen(command))
    return max(abs(worker.wait()) for worker in workers)


if __name__ == "__main__":
    sys.exit(main())
