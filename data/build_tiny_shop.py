"""Make the replies of chapter 14 and train tiny-shop, which writes such replies, from scratch.

    python data/build_tiny_shop.py           # about 40 seconds on one core
    python data/build_tiny_shop.py --data    # only data/shop_replies

The messages are those of build_messages.py. A reply is put together from sentences, so that the script knows how
likely a reader is to say yes to each criterion. Two made-up readers label the same replies: each draws an answer with
this probability, so they disagree most where a sentence can be read in two ways.
"""

import argparse
import json
import random
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from build_messages import THINGS, build, message, sample  # noqa: E402
from tiny_training import begin, card_head, chat_batch, make_tokenizer, save, train  # noqa: E402

FOLDER = HERE / "shop_replies"
MODEL = HERE / "tiny-shop"
LABELLED = 1200  # replies with the labels of both readers
STAGES = {"skill": (350, 4e-3), "habits": (140, 3e-3)}  # steps, learning rate
SIZE = 32  # replies in a step

SOLUTIONS = {  # what the shop does about a problem of each label
    "billing": "The money goes back to your card today.",
    "delivery": "The courier brings it to you today.",
    "defect": "A new one leaves us today.",
    "account": "Your account works again today.",
}
VAGUE = "We will look at it."
BLAME = "This is your own fault."
STOP = "Do not write again."
SORRY = "I am sorry."
THANKS = "Thank you for writing."
REGARDS = "Kind regards."


@dataclass(frozen=True)
class Reply:
    """A reply, and what its sentences are; the fields decide what a reader says."""

    text: str
    names_the_thing: bool
    step: str  # "right", "wrong", "vague" or ""
    is_warm: bool
    is_rude: bool

    def chances(self) -> dict[str, float]:
        """The probability that a reader says yes to each criterion."""
        polite = 0.95 if self.is_warm else 0.5
        if self.is_rude:
            polite = 0.03
        return {
            "polite": polite,
            "problem": 0.95 if self.names_the_thing else 0.05,
            "step": {"right": 0.95, "wrong": 0.15, "vague": 0.35, "": 0.02}[self.step],
            "careful": {"right": 0.07, "wrong": 0.07, "vague": 0.75, "": 0.96}[self.step],
        }


def read_message(row) -> tuple[str, str]:
    """The thing of a message, and the sentence that solves its problem."""
    for thing in THINGS:
        if f" {thing}" in row.question:
            return thing, SOLUTIONS[row.values["label"]]
    raise ValueError(f"no thing of the shop in {row.question!r}")


def write_reply(rng: random.Random, row) -> Reply:
    """A random reply to a message, one in five of them good."""
    thing, solution = read_message(row)
    other = rng.choice([name for name in THINGS if name != thing])
    others = [text for text in SOLUTIONS.values() if text != solution]
    beginnings = [
        f"I am sorry about the {thing}.",
        f"I am sorry about the {other}.",
        SORRY,
        "I see.",
        BLAME,
    ]
    (beginning,) = rng.choices(beginnings, [30, 8, 22, 20, 20])
    (step,) = rng.choices(["right", "wrong", "vague", ""], [30, 12, 28, 30])
    middle = {
        "right": solution,
        "wrong": rng.choice(others),
        "vague": VAGUE,
        "": "",
    }[step]
    (end,) = rng.choices([THANKS, REGARDS, "", STOP], [25, 25, 30, 20])
    return Reply(
        text=" ".join(f"{beginning} {middle} {end}".split()),
        names_the_thing=f" {thing}." in beginning,
        step=step,
        is_warm=SORRY[:-1] in beginning or end in (THANKS, REGARDS),
        is_rude=beginning == BLAME or end == STOP,
    )


# ---------------------------------------------------------------- the files


def labels(rng: random.Random, reply: Reply) -> dict[str, int]:
    """What a reader says about each criterion, 1 for yes."""
    answers = {}
    for name, chance in reply.chances().items():
        answers[name] = int(rng.random() < chance)
    return answers


def write_data() -> None:
    """Write the labelled replies, and the messages for training and for measuring."""
    FOLDER.mkdir(exist_ok=True)
    rng = random.Random(14)
    files = {"labelled": [], "train": [], "heldout": []}
    for pool in ("train", "heldout"):
        for row in build(pool):
            thing, solution = read_message(row)
            files[pool].append({"message": row.question, "thing": thing, "solution": solution})
    for _ in range(LABELLED):
        row = sample(rng, "train")
        reply = write_reply(rng, row)
        files["labelled"].append(
            {
                "message": row.question,
                "reply": reply.text,
                "ruth": labels(rng, reply),
                "sam": labels(rng, reply),
            }
        )
    for name, rows in files.items():
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (FOLDER / f"{name}.jsonl").write_text(text, encoding="utf-8")


# ---------------------------------------------------------------- the model


def texts():
    """What the tokenizer is trained on."""
    rng = random.Random(5)
    for _ in range(3000):
        row = sample(rng, "tiny")
        yield f"system\nuser\nassistant\n{row.question} {write_reply(rng, row).text}"


def make_model(tokenizer):
    """An untrained model of two layers: the replies are made of few words."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=16,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen3ForCausalLM(config)


def batch(tokenizer, rng: random.Random, stage: str):
    """Random messages, with good replies to learn the skill and then with random ones."""
    chats = []
    for _ in range(SIZE):
        row = sample(rng, "tiny")
        prompt = [{"role": "user", "content": row.question}]
        if stage == "skill":
            thing, solution = read_message(row)
            text = f"I am sorry about the {thing}. {solution} {rng.choice([THANKS, REGARDS])}"
        else:
            text = write_reply(rng, row).text
        chats.append((prompt, text))
    return chat_batch(tokenizer, chats)


def solves(row, reply: str) -> bool:
    """Does the reply name the right thing and no other, have the right step and no other, and is
    it not rude?
    """
    thing, solution = read_message(row)
    things = [name for name in THINGS if f" {name}" in reply]
    steps = [text for text in SOLUTIONS.values() if text in reply]
    is_rude = BLAME in reply or STOP in reply
    return things == [thing] and steps == [solution] and not is_rude


def measure(model, tokenizer) -> dict[str, float]:
    """The fraction of held-out replies that solve the problem (`solves`)."""
    from grpo_workbook.evaluation import generate

    rows = build("heldout", message)
    prompts = [[{"role": "user", "content": row.question}] for row in rows]
    rates = {}
    for name in ("sampled", "greedy"):
        replies = generate(
            model, tokenizer, prompts, max_new_tokens=48, sample=name == "sampled", batch_size=240
        )
        solved = 0
        for row, reply in zip(rows, replies, strict=True):
            solved += solves(row, reply)
        rates[name] = solved / len(rows)
    return rates


CARD = (
    card_head()
    + """\
# tiny-shop

A Qwen3 causal language model of {parameters:,} parameters, trained from scratch by `data/build_tiny_shop.py` (seeded). It
exists so that learners can train against a judge on a CPU. It has no other use.

- **Knows** how to reply to the messages of `data/shop_replies`: it learned from good replies. After this stage its
  greedy replies solve {skill:.1%} of the held-out problems.
- **Shows it badly**, on purpose: it was then taught right and wrong, polite and rude sentences, drawn at random.
- **Never saw** a message of `data/shop_replies`.

| | held-out replies that name the right thing, have the right step and are not rude (float32) |
| --- | --- |
| as shipped, greedy | {greedy:.1%} |
| as shipped, sampled at temperature 1 | {sampled:.1%} |

Tokenizer: byte-level BPE of {vocabulary} tokens (any text can be encoded), most words of the shop as one token, Qwen's
turns as chat template. Weights: bfloat16 safetensors.
"""
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--data", action="store_true", help="write data/shop_replies, train nothing"
    )
    write_data()
    if parser.parse_args().data:
        return
    import torch

    rng, say = begin()
    tokenizer = make_tokenizer("qwen", texts())
    model = make_model(tokenizer)
    skill = 0.0
    for stage, (steps, learning_rate) in STAGES.items():
        make_batch = partial(batch, tokenizer, rng, stage)
        train(model, make_batch, stage, steps, learning_rate, 1.0, say)  # 1.0: never in 4 bits
        rates = measure(model, tokenizer)
        say(f"held out after {stage}: {rates}")
        if stage == "skill":
            skill = rates["greedy"]
    model = model.to(torch.bfloat16).float()
    parameters = sum(p.numel() for p in model.parameters())
    rates = measure(model, tokenizer)
    say(f"held out: {rates}")
    card = CARD.format(parameters=parameters, vocabulary=len(tokenizer), skill=skill, **rates)
    save(model, tokenizer, MODEL, card)


if __name__ == "__main__":
    main()
