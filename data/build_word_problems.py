"""Generate the course's word problems in GSM8K's form; the result is always the same.

    python data/build_word_problems.py            # writes data/word_problems/*.jsonl
    python data/build_word_problems.py --check    # exit status 1 if the files differ from what this makes

A problem's identity is its template and its operands, not the names in it. A hash of that identity
puts it into one of three pools, so that no two pools can have a problem in common:

    heldout    8 %   for measuring
    train     32 %   for GRPO
    tiny      60 %   for training the tiny models before the course (build_tiny_models.py)

Each row names its kind, which is the template, and whether the kind is rare: the tiny models have learned from four
worked examples of each rare kind, and from as many as they could use of the others.
"""

import argparse
import hashlib
import json
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

FOLDER = Path(__file__).parent / "word_problems"
SIZES = {"train": 2400, "heldout": 480}
SEEDS = {"train": 11, "heldout": 12}
POOLS = {"heldout": range(8), "train": range(8, 40), "tiny": range(40, 100)}  # name -> hash buckets

NAMES = """Ada Ben Carla Dana Emil Farid Grace Hugo Ines Jonas Kofi Lena Mira Nils Olga Pia Quinn Rosa Sami
    Tara Uma Viktor Wanda Yusuf""".split()
THINGS = """apples pens shells books stamps coins beads marbles cards stickers plums buttons candles ribbons
    tickets pencils""".split()

RARE_KINDS = (
    "bus_stop",
    "three_friends",
    "trays",
    "find_and_lose",
    "boxes_and_more",
    "how_many_more",
)

Step = tuple[int, str, int]  # left, sign, right
_SIGNS = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "/": int.__floordiv__}


@dataclass(frozen=True)
class Template:
    """One sentence pattern. `text` may use a, b, c, p (= a * b), names n, m, k and a thing t."""

    name: str
    text: str
    ranges: tuple[tuple[int, int], ...]  # inclusive bounds of a, b and perhaps c
    solve: Callable[..., list[Step]]
    keep: Callable[..., bool] = lambda *operands: True


def _smaller(a, b, *rest):
    return a > b


_SUM, _DIFFERENCE, _PRODUCT = ((2, 25), (2, 12)), ((5, 32), (2, 12)), ((2, 12), (2, 12))

TEMPLATES = (
    # one step
    Template("buy_more", "{n} has {a} {t} and buys {b} more. How many {t} does {n} have now?",
             _SUM, lambda a, b: [(a, "+", b)]),
    Template("two_colours", "A box holds {a} red {t} and {b} blue {t}. How many {t} are in the box?",
             _SUM, lambda a, b: [(a, "+", b)]),
    Template("give_away", "{n} had {a} {t} and gave {b} of them to {m}. How many {t} does {n} have left?",
             _DIFFERENCE, lambda a, b: [(a, "-", b)], _smaller),
    Template("sold_by_noon", "A shop had {a} {t} in the morning and sold {b} of them by noon. "
             "How many {t} were not sold?",
             _DIFFERENCE, lambda a, b: [(a, "-", b)], _smaller),
    Template("how_many_more", "{n} has {a} {t} and {m} has {b}. How many more {t} does {n} have than {m}?",
             _DIFFERENCE, lambda a, b: [(a, "-", b)], _smaller),
    Template("full_bags", "Each bag holds {a} {t}. {n} fills {b} bags. How many {t} is that?",
             _PRODUCT, lambda a, b: [(a, "*", b)], lambda a, b: a * b <= 60),
    Template("per_day", "{n} paints {a} {t} a day. How many {t} does {n} paint in {b} days?",
             _PRODUCT, lambda a, b: [(a, "*", b)], lambda a, b: a * b <= 60),
    Template("share", "{n} shares {p} {t} equally among {b} friends. How many {t} does each friend get?",
             _PRODUCT, lambda a, b: [(a * b, "/", b)], lambda a, b: a * b <= 60),
    # two steps
    Template("find_and_lose", "{n} has {a} {t}, finds {b} more and then loses {c}. "
             "How many {t} does {n} have at the end?",
             (*_SUM, (2, 12)), lambda a, b, c: [(a, "+", b), (a + b, "-", c)], lambda a, b, c: a + b > c),
    Template("bus_stop", "A bus carries {a} people. At the next stop {b} get off and {c} get on. "
             "How many people are on the bus now?",
             (*_DIFFERENCE, (2, 12)), lambda a, b, c: [(a, "-", b), (a - b, "+", c)], _smaller),
    Template("three_friends", "{n} picks {a} {t}, {m} picks {b} and {k} picks {c}. "
             "How many {t} do they have together?",
             (*_SUM, (2, 12)), lambda a, b, c: [(a, "+", b), (a + b, "+", c)]),
    Template("boxes_and_more", "{n} buys {a} boxes with {b} {t} each and already had {c} {t}. "
             "How many {t} does {n} have in all?",
             ((2, 9), (2, 9), (2, 12)), lambda a, b, c: [(a, "*", b), (a * b, "+", c)],
             lambda a, b, c: a * b <= 60),
    Template("trays", "{n} bakes {a} trays of {b} rolls and sells {c} rolls. How many rolls are left?",
             ((2, 9), (2, 9), (2, 12)), lambda a, b, c: [(a, "*", b), (a * b, "-", c)],
             lambda a, b, c: c < a * b <= 60),
    Template("daily_sales", "Every day {n} sells {a} green {t} and {b} white {t}. "
             "How many {t} does {n} sell in {c} days?",
             ((2, 12), (2, 12), (2, 6)), lambda a, b, c: [(a, "+", b), (a + b, "*", c)],
             lambda a, b, c: (a + b) * c <= 60),
    Template("bags_then_more", "{n} puts {p} {t} equally into {b} bags, then adds {c} {t} to each bag. "
             "How many {t} are in each bag?",
             ((2, 12), (2, 9), (2, 12)), lambda a, b, c: [(a * b, "/", b), (a, "+", c)],
             lambda a, b, c: a * b <= 60),
    Template("change", "A ticket costs ${a}. {n} buys {b} tickets and pays with ${c}. "
             "How many dollars come back?",
             ((2, 9), (2, 9), (10, 40)), lambda a, b, c: [(a, "*", b), (c, "-", a * b)],
             lambda a, b, c: a * b < c),
)  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """A problem as text, with the equations that solve it: ((left, sign, right, result), ...)."""

    template: str
    operands: tuple[int, ...]
    question: str
    steps: tuple[tuple[int, str, int, int], ...]

    @property
    def result(self) -> int:
        return self.steps[-1][3]

    @property
    def rare(self) -> bool:
        """Whether the tiny models have seen only a few worked examples of this kind."""
        return self.template in RARE_KINDS

    def row(self) -> dict[str, str | bool]:
        """The problem in GSM8K's form, and its kind.

        The answer has calculator marks in double angles, and the result after four hashes.
        """
        lines = [f"{a} {s} {b} = <<{a}{s}{b}={r}>>{r}" for a, s, b, r in self.steps]
        return {
            "question": self.question,
            "answer": "\n".join([*lines, f"#### {self.result}"]),
            "kind": self.template,
            "rare": self.rare,
        }


def pool_of(template: str, operands: tuple[int, ...]) -> str:
    """The one pool that a template with these operands belongs to."""
    digest = hashlib.sha256(f"{template} {operands}".encode()).digest()
    bucket = int.from_bytes(digest[:4], "big") % 100
    return next(name for name, buckets in POOLS.items() if bucket in buckets)


@cache
def operands_in(template: Template, pool: str) -> tuple[tuple[int, ...], ...]:
    """Every choice of operands that the template allows and that lies in this pool."""
    space = product(*(range(low, high + 1) for low, high in template.ranges))
    return tuple(v for v in space if template.keep(*v) and pool_of(template.name, v) == pool)


def write_problem(rng: random.Random, template: Template, operands: tuple[int, ...]) -> Problem:
    """The template with these operands, in random names."""
    n, m, k = rng.sample(NAMES, 3)
    values = dict(zip("abc", operands, strict=False), p=operands[0] * operands[1])
    question = template.text.format(**values, n=n, m=m, k=k, t=rng.choice(THINGS))
    steps = tuple((a, s, b, _SIGNS[s](a, b)) for a, s, b in template.solve(*operands))
    return Problem(template.name, operands, question, steps)


def draw_problem(rng: random.Random, pool: str) -> Problem:
    """A random problem from this pool, every template equally likely."""
    template = rng.choice(TEMPLATES)
    return write_problem(rng, template, rng.choice(operands_in(template, pool)))


def build(split: str) -> list[Problem]:
    """All problems of "train" or "heldout", none twice, shuffled: templates in turn until the size is reached."""
    rng = random.Random(SEEDS[split])
    queues = [(t, rng.sample(operands_in(t, split), len(operands_in(t, split)))) for t in TEMPLATES]
    problems: list[Problem] = []
    while len(problems) < SIZES[split]:
        for template, queue in queues:
            if queue:
                problems.append(write_problem(rng, template, queue.pop()))
    problems = problems[: SIZES[split]]
    rng.shuffle(problems)
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the course's word problems.")
    parser.add_argument(
        "--check", action="store_true", help="compare with the files instead of writing them"
    )
    args = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    same = True
    for split in SIZES:
        text = "".join(json.dumps(p.row(), ensure_ascii=False) + "\n" for p in build(split))
        path = FOLDER / f"{split}.jsonl"
        if not args.check:
            path.write_text(text, encoding="utf-8", newline="\n")
            print(f"wrote {path.name}: {text.count(chr(10))} problems")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            print(
                f"{path.name} differs from what build_word_problems.py makes: run it without --check"
            )
            same = False
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
