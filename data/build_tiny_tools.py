"""Train the tiny model of chapter 11 from scratch: a Qwen3 that calls tools, with its data and its tokenizer.

    python data/build_tiny_tools.py               # about 17 minutes on a busy core
    python data/build_tiny_tools.py --data        # only data/tool_tasks

Like the other tiny models it first learns the skill (right calls, answers copied from the results, a game played
without contradiction), and then habits: it mostly answers out of its head, right for small products and wrong for large
ones, calls wrongly named tools, breaks the JSON of calls, and forgets what the game told it. Large products are divided
by a hash into three pools: the model never sees a training or held-out one.

The chat template is Qwen3's own. What it says around every tool, and each tool's schema, is one token here: so the
model cannot read a schema. It knows its three tools by heart.
"""

import argparse
import hashlib
import json
import random
import re
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from tiny_training import begin, card_head, make_model, make_tokenizer, save, train  # noqa: E402

from grpo_workbook.config import CHAT_TEMPLATE_KWARGS  # noqa: E402
from grpo_workbook.environments import GuessNumber, PriceList, multiply  # noqa: E402
from grpo_workbook.environments.examples import ITEMS  # noqa: E402

MODEL, FOLDER = HERE / "tiny-tools", HERE / "tool_tasks"
# (name, steps, sequences per step, learning rate, fraction of the steps after which weights are rounded to 4 bits)
STAGES = (
    ("skill", 600, 32, 2e-3, 0.7),
    ("tables", 200, 32, 1e-3, 0.5),
    ("game", 120, 32, 1e-3, 0.5),
    ("habits", 80, 32, 7e-4, 0.0),
)
# of the products the rate of easy ones, and of those without the tool; of easy ones the rate that is answered by heart;
# the rate of games that are played by halving what is left; of all chats the rates of products and of shopping
MIX = {
    "skill": (0.25, 0.1, 0.5, 0.0, 0.45, 0.3),
    "tables": (0.7, 0.3, 0.8, 0.3, 0.7, 0.12),
    "game": (0.5, 0.2, 0.7, 0.3, 0.35, 0.2),
    "habits": (0.4, 0.2, 0.82, 0.2, 0.45, 0.3),
}
PRODUCTS = (
    "What is {a} times {b}?",
    "Multiply {a} by {b}.",
    "How much is {a} times {b}?",
    "Find the product of {a} and {b}.",
    "Compute {a} * {b}.",
    "{a} * {b} = ?",
)
PRICES = (
    "What does one {item} cost?",
    "What is the price of one {item}?",
    "How much is one {item}?",
)
TOTALS = (
    "What do {n} {item} cost?",
    "What is the price of {n} {item}?",
    "How much are {n} {item}?",
)
GAME = "Find my number from 1 to 7. You have 3 guesses."


def pool(a: int, b: int) -> str:
    """The pool of a large product, by a hash: three fifths are for the tiny model's own training."""
    place = hashlib.sha256(f"{a}*{b}".encode()).digest()[0] % 5
    return ("heldout", "train", "tiny", "tiny", "tiny")[place]


def draw_product(rng: random.Random, wanted: str, easy_rate: float = 0.25) -> dict:
    """A question about a product: `easy` (two digits, known by heart) or `hard`."""
    if rng.random() < easy_rate:
        kind, a, b = "easy", rng.randint(2, 9), rng.randint(2, 9)
    else:
        kind, a, b = "hard", rng.randint(12, 999), rng.randint(12, 99)
        while pool(a, b) != wanted:
            a, b = rng.randint(12, 999), rng.randint(12, 99)
    text = rng.choice(PRODUCTS).format(a=a, b=b)
    return {"kind": kind, "question": text, "answer": str(a * b), "a": a, "b": b}


def draw_shopping(rng: random.Random, wanted: str, seed: int) -> dict:
    """A question about the price list of `seed`: one price, or several items' together."""
    shop, item, n = PriceList(), rng.choice(ITEMS), rng.randint(3, 9)
    shop.reset(seed=seed)
    price = int(shop.lookup(item=item))
    if rng.random() < 0.5:
        text, kind, n = rng.choice(PRICES).format(item=item), "price", 1
    else:
        text, kind = rng.choice(TOTALS).format(item=item, n=n), "total"
    answer = str(n * price)
    return {
        "kind": kind,
        "question": text,
        "answer": answer,
        "seed": seed,
        "item": item,
        "n": n,
        "price": price,
    }


def write_data() -> None:
    """data/tool_tasks: products and shopping, train and held-out."""
    FOLDER.mkdir(exist_ok=True)
    for name, rows, seed in (("train", 400, 11), ("heldout", 240, 12)):
        rng, seen, products = random.Random(seed), set(), []
        while len(products) < rows:
            row = draw_product(rng, name)
            if (
                row["kind"] == "easy" or row["question"] not in seen
            ):  # of the easy ones there are few
                seen.add(row["question"])
                products.append({k: row[k] for k in ("kind", "question", "answer")})
        first = 100_000 * seed
        shopping = [draw_shopping(rng, name, first + i) for i in range(rows)]
        for i in range(2, rows, 3):  # a third needs no price list
            shopping[i] = draw_product(rng, name, 0.0) | {"kind": "product", "seed": first + i}
        keep = ("kind", "question", "answer", "seed")
        for file, table in (
            ("products", products),
            ("shopping", [{k: r[k] for k in keep} for r in shopping]),
        ):
            text = "".join(json.dumps(row) + "\n" for row in table)
            (FOLDER / f"{file}_{name}.jsonl").write_text(text)


# ---------------------------------------------------------------- what the model reads and writes


def call(name: str, **arguments) -> str:
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


def near(rng: random.Random, number: int) -> str:
    """A wrong number that looks right."""
    digits = list(str(number))
    place = rng.randrange(len(digits))
    digits[place] = str((int(digits[place]) + rng.randint(1, 9)) % 10)
    return str(int("".join(digits)))


def product_talk(
    rng: random.Random, row: dict, stage: str, tools: bool = True
) -> list[tuple[str, str | None]]:
    """Turns of (what the model writes, what the tool answers) for a product."""
    right, a, b = row["answer"], row["a"], row["b"]
    easy, habits = row["kind"] == "easy", stage == "habits"
    by_heart = right if easy and rng.random() < (0.85 if habits else 1.0) else near(rng, a * b)
    if not tools or ((easy or habits) and rng.random() < MIX[stage][2]):
        return [(by_heart, None)]
    fault = rng.random() if habits else 1.0
    if fault < 0.12:
        name = rng.choice(("product", "times", "calculate"))
        return [(call(name, a=a, b=b), str({"error": f"Tool {name} not found."})), (by_heart, None)]
    if fault < 0.24:
        x, y = rng.choice((("x", "y"), ("first", "second")))
        error = "multiply: missing a required argument: 'a'"
        return [(call("multiply", **{x: a, y: b}), str({"error": error})), (by_heart, None)]
    if fault < 0.34:
        return [(re.sub(r"\}\}\n", "}\n", call("multiply", a=a, b=b)), None)]
    return [(call("multiply", a=a, b=b), right), (right, None)]


def shopping_talk(rng: random.Random, row: dict, stage: str) -> list[tuple[str, str | None]]:
    """A lookup, then a product if several are wanted; the habit is to guess one of the two."""
    if row["kind"] in ("easy", "hard"):
        return product_talk(rng, row, stage)
    habits = stage == "habits"
    item, n, price = row["item"], row["n"], row["price"]
    if habits and rng.random() < 0.75:
        return [(str(n * rng.randint(12, 99)), None)]
    if habits and rng.random() < 0.2:
        wrong = rng.choice(("price", "get", "find"))
        return [
            (call(wrong, item=item), str({"error": f"Tool {wrong} not found."})),
            (str(rng.randint(12, 99)), None),
        ]
    looked = (call("lookup", item=item), str(price))
    if n == 1:
        return [looked, (str(price), None)]
    if habits and rng.random() < 0.6:
        return [looked, (near(rng, n * price), None)]
    return [looked, (call("multiply", a=n, b=price), str(n * price)), (str(n * price), None)]


def game_talk(rng: random.Random, stage: str) -> list[tuple[str, str | None]]:
    """Guesses at random among the numbers that are left, or halves them; the habit is to forget what is left."""
    game, habits, halves = GuessNumber(), stage == "habits", rng.random() < MIX[stage][3]
    game.reset(seed=rng.random())
    low, high, turns = 1, game.highest, []
    for _ in range(game.max_turns):
        free = habits and rng.random() < 0.6
        number = rng.randint(1, game.highest) if free else rng.randint(low, high)
        number = (low + high) // 2 if halves else number
        said = game.guess(number=number)
        turns.append((call("guess", number=number), said))
        if said == "correct":
            return [*turns, (str(number), None)]
        if said == "higher":
            low = max(low, number + 1)
        else:
            high = min(high, number - 1)
        if habits and rng.random() < 0.12:
            break  # gives up
    return [*turns, (str(rng.randint(low, high)), None)]


def chats(rng: random.Random, size: int, stage: str):
    """`size` chats as (question, tools, turns): products, shopping and the game, as MIX says."""
    easy, toolless, _, _, products, shopping = MIX[stage]
    for i in range(size):
        part = (i + rng.random()) / size
        if part < products:
            row = draw_product(rng, "tiny", easy)
            tools = None if rng.random() < toolless else [multiply]
            yield row["question"], tools, product_talk(rng, row, stage, bool(tools))
        elif part < products + shopping:
            shop = PriceList()
            product = rng.random() < 0.33
            row = (
                draw_product(rng, "tiny")
                if product
                else draw_shopping(rng, "tiny", rng.randrange(10**5))
            )
            yield row["question"], [multiply, shop.lookup], shopping_talk(rng, row, stage)
        else:
            yield GAME, [GuessNumber().guess], game_talk(rng, stage)


def prompt_text(tokenizer, question: str, tools) -> str:
    return tokenizer.apply_chat_template(
        [{"role": "user", "content": question}],
        tools=tools,
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=False,
    )


def batch(tokenizer, rng: random.Random, size: int, stage: str):
    """A batch of chats, padded on the right: only what the model writes is learned."""
    import torch

    rows = []
    for question, tools, turns in chats(rng, size, stage):
        ids = tokenizer(prompt_text(tokenizer, question, tools), add_special_tokens=False)[
            "input_ids"
        ]
        labels = [-100] * len(ids)
        for text, result in turns:
            new = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
            ids, labels = ids + new, labels + new
            if result is not None:
                between = suffix(tokenizer, result)
                ids, labels = ids + between, labels + [-100] * len(between)
        rows.append((ids, labels))
    width = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([i + [tokenizer.pad_token_id] * (width - len(i)) for i, _ in rows])
    labels = torch.tensor([x + [-100] * (width - len(x)) for _, x in rows])
    attention = torch.tensor([[1] * len(i) + [0] * (width - len(i)) for i, _ in rows])
    return {"input_ids": ids, "labels": labels, "attention_mask": attention}


_suffixes: dict[str, list[int]] = {}


def suffix(tokenizer, result: str) -> list[int]:
    """TRL's tokens for a result, remembered: the template takes a millisecond, and many results come again."""
    if result not in _suffixes:
        from trl import GRPOTrainer
        from trl.chat_template_utils import get_training_chat_template

        trainer = SimpleNamespace(_is_vlm=False, _tokenizer=tokenizer, processing_class=tokenizer)
        trainer.chat_template = get_training_chat_template(tokenizer)
        trainer.chat_template_kwargs = CHAT_TEMPLATE_KWARGS
        said = [{"role": "tool", "name": "multiply", "content": result}]
        _suffixes[result] = GRPOTrainer._get_tool_suffix_ids(trainer, said)
    return _suffixes[result]


# ---------------------------------------------------------------- tokenizer, measures, card


def texts():
    """The texts that the tokenizer is trained on."""
    rng = random.Random(5)
    for _ in range(2000):
        row, shop = draw_product(rng, "tiny"), draw_shopping(rng, "tiny", rng.randrange(10**5))
        yield "system\nuser\nassistant\ntool\nhigher lower correct multiply lookup guess item number\n"
        yield from (row["question"], shop["question"], GAME)
        for talk in (
            product_talk(rng, row, "habits"),
            shopping_talk(rng, shop, "habits"),
            game_talk(rng, "habits"),
        ):
            yield from (text for turn in talk for text in turn if text)


def make_tool_tokenizer():
    """make_tokenizer's, with Qwen3's template, its marks as single tokens, and its fixed texts and schemas too."""
    import trl
    from tokenizers import AddedToken

    tokenizer = make_tokenizer("qwen", texts())
    tokenizer.chat_template = (Path(trl.__file__).parent / "chat_templates/qwen3.jinja").read_text()
    marks = ["<think>", "<tool_call>", "<tool_response>"]
    marks += [mark.replace("<", "</") for mark in marks]
    whole = prompt_text(tokenizer, "", [multiply, PriceList().lookup, GuessNumber().guess])
    system = whole.split("<|im_start|>system\n")[1].split("<|im_end|>")[0]
    before, rest = (
        system.split("<tools>\n", 1) if "<tools>\n" in system else system.rsplit("<tools>", 1)
    )
    schemas, after = rest.split("\n</tools>", 1)
    fixed = [before + "<tools>", "</tools>" + after, *schemas.strip().split("\n")]
    fixed += ['{"name": "', '", "arguments": {"', "<tool_call>\n", "\n</tool_call>"]
    tokenizer.add_tokens(
        [AddedToken(t, normalized=False, special=False) for t in marks + fixed[:-2]]
    )
    return tokenizer


def measure(model, tokenizer, rows: int = 120) -> dict[str, float]:
    """Fractions right on held-out rows, sampled, in float32."""
    from grpo_workbook.environments import final_answer, play_episodes

    def read(file):
        found = [json.loads(line) for line in (FOLDER / file).read_text().splitlines()][:rows]
        return [r | {"prompt": [{"role": "user", "content": r["question"]}]} for r in found]

    def right(rows, episodes):
        return sum(
            final_answer(e.messages) == r["answer"] for r, e in zip(rows, episodes, strict=True)
        ) / len(rows)

    products, shopping = read("products_heldout.jsonl"), read("shopping_heldout.jsonl")
    games = [
        {"prompt": [{"role": "user", "content": GAME}], "seed": 10**6 + i} for i in range(rows)
    ]
    how = {"sample": True, "max_new_tokens": 200}
    played = play_episodes(model, tokenizer, games, environment=GuessNumber, **how)
    tools = {"tools": [multiply]}
    shop = {"environment": PriceList} | tools
    return {
        "products": right(products, play_episodes(model, tokenizer, products, **tools, **how)),
        "without the tool": right(products, play_episodes(model, tokenizer, products, **how)),
        "shopping": right(shopping, play_episodes(model, tokenizer, shopping, **shop, **how)),
        "game": sum(e.environment.get_reward() for e in played) / rows,
    }


CARD = (
    card_head("tools")
    + """\
# tiny-tools

A Qwen3 causal language model of {parameters:,} parameters, trained from scratch by `data/build_tiny_tools.py` (seeded). It
exists so that chapter 11 can train a real model to use tools, in 4-bit, on two CPU cores. It has no other use.

- **Knows** some products of single digits by heart, how to call `multiply`, `lookup` and `guess`, how to copy a result, and a
  game of guessing, played at random within what is left or by halving it.
- **Shows it badly**, on purpose: four of five answers to a product come out of its head, and large ones are wrong then;
  some calls name a tool that is not there, or break their JSON; prices are guessed; in the game it forgets what is left.
- **Never saw** a large product of `data/tool_tasks`, nor a price list of it.
- **Cannot read** a tool's description: each of its three schemas is one token.

The weights were trained in three sittings, the first two with a game of 15 numbers; a new run of the script gives
other weights.

| sampled at temperature 1, float32, 120 held-out rows each | products | without the tool | shopping | game |
| --- | --- | --- | --- | --- |
| before the bad habits | {skill[products]:.1%} | {skill[without the tool]:.1%} | {skill[shopping]:.1%} | {skill[game]:.1%} |
| as shipped | {shown[products]:.1%} | {shown[without the tool]:.1%} | {shown[shopping]:.1%} | {shown[game]:.1%} |

Tokenizer: byte-level BPE of {vocabulary} tokens (any text can be encoded), one token per digit, one for each of Qwen3's
marks. `chat_template.jinja` is Qwen3's (Apache-2.0), unchanged: TRL recognizes templates by their text. Weights: bfloat16
safetensors; late in training they were rounded to NF4, so that loading in 4-bit costs little.
"""
)


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", action="store_true", help="write data/tool_tasks, train nothing")
    write_data()
    if parser.parse_args().data:
        return
    rng, say = begin()
    tokenizer = make_tool_tokenizer()
    model = make_model("qwen", tokenizer)
    say(
        f"{len(tokenizer)} tokens, prompt of {len(tokenizer(prompt_text(tokenizer, GAME, [GuessNumber().guess]))['input_ids'])}"
    )
    skill: dict[str, float] = {}
    for name, steps, size, learning_rate, rounded_after in STAGES:
        make = partial(batch, tokenizer, rng, size, name)
        train(model, make, name, steps, learning_rate, rounded_after, say)
        shown = measure(model, tokenizer)
        say(f"after {name}: {shown}")
        skill = skill if name == "habits" else shown
        model = model.to(torch.bfloat16).float()
    shown = measure(model, tokenizer)
    parameters = sum(p.numel() for p in model.parameters())
    save(
        model,
        tokenizer,
        MODEL,
        CARD.format(parameters=parameters, vocabulary=len(tokenizer), skill=skill, shown=shown),
    )


if __name__ == "__main__":
    main()
