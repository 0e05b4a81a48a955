"""Generate the course's code tasks in HumanEval's form; the result is always the same.

    python data/build_code_tasks.py            # writes data/code_tasks/*.jsonl
    python data/build_code_tasks.py --check    # exit status 1 if the files differ from what this makes

A task's identity is its template and its constant, not the names of its parameters. A hash of that identity puts it
into one of three pools, so that no two pools can have a task in common:

    heldout   15 %   for measuring
    train     30 %   for GRPO
    tiny      55 %   for training the tiny coder before the course (build_tiny_coder.py)
"""

import argparse
import hashlib
import json
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "code_tasks"
SIZES = {"train": 320, "heldout": 200}
SEEDS = {"train": 21, "heldout": 22}
POOLS = {
    "heldout": range(15),
    "train": range(15, 45),
    "tiny": range(45, 100),
}  # name -> hash buckets
ASSERTIONS = 5

# names of parameters, for each kind of function
PARAMETERS = {
    "two": (("a", "b"), ("x", "y"), ("n", "m"), ("p", "q"), ("left", "right"), ("first", "second")),
    "one": (("n",), ("x",), ("number",), ("value",)),
    "list": (("items",), ("numbers",), ("values",), ("scores",)),
    "text": (("text",), ("word",), ("name",), ("line",)),
}
MANY, FEW = range(2, 41), range(2, 13)  # constants


@dataclass(frozen=True)
class Template:
    """One function of one line. `text` and `code` may use {k}, and the parameters {x} and {y}.

    `solve(*arguments, k)` computes the same in another way, so that a test can compare the two.
    """

    name: str  # of the function too
    kind: str
    text: str
    code: str
    solve: Callable
    constants: range = MANY


def _list_of(function):
    return lambda items, k: [function(item, k) for item in items]


TEMPLATES = (
    # two numbers
    Template("product_plus", "two", "{x} times {y} plus {k}", "{x} * {y} + {k}", lambda x, y, k: x * y + k),
    Template("product_minus", "two", "{x} times {y} minus {k}", "{x} * {y} - {k}", lambda x, y, k: x * y - k),
    Template("add_all", "two", "{x} plus {y} plus {k}", "{x} + {y} + {k}", lambda x, y, k: x + y + k),
    Template("difference_plus", "two", "{x} minus {y} plus {k}", "{x} - {y} + {k}", lambda x, y, k: x - y + k),
    Template("scale_and_add", "two", "{k} times {x} plus {y}", "{k} * {x} + {y}", lambda x, y, k: k * x + y),
    Template("scale_and_take", "two", "{k} times {x} minus {y}", "{k} * {x} - {y}", lambda x, y, k: k * x - y),
    Template("scaled_sum", "two", "the sum of {x} and {y}, times {k}", "({x} + {y}) * {k}",
             lambda x, y, k: (x + y) * k),
    Template("scaled_gap", "two", "the distance between {x} and {y}, times {k}", "abs({x} - {y}) * {k}",
             lambda x, y, k: abs(x - y) * k),
    Template("larger_plus", "two", "the larger of {x} and {y}, plus {k}", "max({x}, {y}) + {k}",
             lambda x, y, k: max(x, y) + k),
    Template("smaller_minus", "two", "the smaller of {x} and {y}, minus {k}", "min({x}, {y}) - {k}",
             lambda x, y, k: min(x, y) - k),
    # one number
    Template("square_plus", "one", "{x} squared, plus {k}", "{x} ** 2 + {k}", lambda x, k: x**2 + k),
    Template("rest", "one", "the rest of {x} divided by {k}", "{x} % {k}", lambda x, k: x % k),
    Template("whole_parts", "one", "{x} divided by {k}, rounded down", "{x} // {k}", lambda x, k: x // k),
    Template("is_multiple", "one", "True if {x} is a multiple of {k}", "{x} % {k} == 0", lambda x, k: x % k == 0),
    Template("is_above", "one", "True if {x} is more than {k}", "{x} > {k}", lambda x, k: x > k),
    Template("is_below", "one", "True if {x} is less than {k}", "{x} < {k}", lambda x, k: x < k),
    Template("is_at_least", "one", "True if {x} is {k} or more", "{x} >= {k}", lambda x, k: x >= k),
    Template("is_at_most", "one", "True if {x} is {k} or less", "{x} <= {k}", lambda x, k: x <= k),
    Template("limit", "one", "{x}, but at most {k}", "min({x}, {k})", lambda x, k: min(x, k)),
    Template("raise_to", "one", "{x}, but at least {k}", "max({x}, {k})", lambda x, k: max(x, k)),
    # a list of numbers
    Template("total_plus", "list", "the sum of {x}, plus {k}", "sum({x}) + {k}", lambda x, k: sum(x) + k),
    Template("total_times", "list", "the sum of {x}, times {k}", "sum({x}) * {k}", lambda x, k: sum(x) * k),
    Template("largest_minus", "list", "the largest of {x}, minus {k}", "max({x}) - {k}", lambda x, k: max(x) - k),
    Template("smallest_plus", "list", "the smallest of {x}, plus {k}", "min({x}) + {k}", lambda x, k: min(x) + k),
    Template("length_times", "list", "the length of {x}, times {k}", "len({x}) * {k}", lambda x, k: len(x) * k),
    Template("spread_plus", "list", "the largest minus the smallest of {x}, plus {k}", "max({x}) - min({x}) + {k}",
             lambda x, k: max(x) - min(x) + k),
    Template("how_often", "list", "how often {k} is in {x}", "{x}.count({k})", lambda x, k: x.count(k)),
    Template("contains", "list", "True if {k} is in {x}", "{k} in {x}", lambda x, k: k in x),
    Template("times_each", "list", "each of {x}, times {k}", "[i * {k} for i in {x}]", _list_of(lambda i, k: i * k)),
    Template("plus_each", "list", "each of {x}, plus {k}", "[i + {k} for i in {x}]", _list_of(lambda i, k: i + k)),
    Template("only_above", "list", "those of {x} that are more than {k}", "[i for i in {x} if i > {k}]",
             lambda x, k: [i for i in x if i > k]),
    Template("only_below", "list", "those of {x} that are less than {k}", "[i for i in {x} if i < {k}]",
             lambda x, k: [i for i in x if i < k]),
    Template("first_items", "list", "the first {k} of {x}", "{x}[:{k}]", lambda x, k: x[:k], FEW),
    Template("last_items", "list", "the last {k} of {x}", "{x}[-{k}:]", lambda x, k: x[-k:], FEW),
    Template("lowest_items", "list", "the {k} smallest of {x}, sorted", "sorted({x})[:{k}]",
             lambda x, k: sorted(x)[:k], FEW),
    # a text
    Template("is_longer", "text", "True if {x} has more than {k} characters", "len({x}) > {k}",
             lambda x, k: len(x) > k),
    Template("is_shorter", "text", "True if {x} has less than {k} characters", "len({x}) < {k}",
             lambda x, k: len(x) < k),
    Template("length_plus", "text", "the length of {x}, plus {k}", "len({x}) + {k}", lambda x, k: len(x) + k),
    Template("repeat", "text", "{x}, {k} times in a row", "{x} * {k}", lambda x, k: x * k, FEW),
    Template("repeat_reversed", "text", "{x} reversed, {k} times in a row", "{x}[::-1] * {k}",
             lambda x, k: x[::-1] * k, FEW),
    Template("beginning", "text", "the first {k} characters of {x}", "{x}[:{k}]", lambda x, k: x[:k], FEW),
    Template("ending", "text", "the last {k} characters of {x}", "{x}[-{k}:]", lambda x, k: x[-k:], FEW),
    Template("upper_beginning", "text", "the first {k} characters of {x}, in capitals", "{x}[:{k}].upper()",
             lambda x, k: x[:k].upper(), FEW),
)  # fmt: skip
BY_NAME = {template.name: template for template in TEMPLATES}


@dataclass(frozen=True)
class Task:
    """A function to complete, with its solution and the calls that test it."""

    template: str
    constant: int
    parameters: tuple[str, ...]
    arguments: tuple[tuple, ...]

    def fill(self, text: str) -> str:
        x, y = (*self.parameters, "")[:2]
        return text.format(x=x, y=y, k=self.constant)

    @property
    def head(self) -> str:
        return f"def {self.template}({', '.join(self.parameters)}):\n"

    @property
    def prompt(self) -> str:
        """The start of the function, as in HumanEval: the completion continues with its body."""
        return f'{self.head}    """Return {self.fill(BY_NAME[self.template].text)}."""\n'

    @property
    def expression(self) -> str:
        return self.fill(BY_NAME[self.template].code)

    def row(self, task_id: str) -> dict[str, str]:
        solve = BY_NAME[self.template].solve
        lines = [
            f"    assert candidate({', '.join(map(repr, arguments))}) == {solve(*arguments, self.constant)!r}\n"
            for arguments in self.arguments
        ]
        return {
            "task_id": task_id,
            "prompt": self.prompt,
            "entry_point": self.template,
            "canonical_solution": f"    return {self.expression}\n",
            "test": "def check(candidate):\n" + "".join(lines),
        }


def pool_of(template: str, constant: int) -> str:
    """The pool of a template with this constant."""
    digest = hashlib.sha256(f"{template} {constant}".encode()).digest()
    bucket = int.from_bytes(digest[:4], "big") % 100
    return next(name for name, buckets in POOLS.items() if bucket in buckets)


@cache
def constants_in(template: Template, pool: str) -> tuple[int, ...]:
    """All constants of the template in this pool."""
    return tuple(k for k in template.constants if pool_of(template.name, k) == pool)


def _call(rng: random.Random, kind: str, k: int) -> tuple:
    """Arguments of one call, some near the constant, where errors show."""
    if kind == "two":
        x = rng.randint(-9, 30)
        return x, rng.choice((x, 0, *(rng.randint(-9, 30) for _ in range(8))))
    if kind == "one":
        return (
            rng.choice(
                (
                    k - 1,
                    k,
                    k + 1,
                    k * rng.randint(2, 4),
                    0,
                    *(rng.randint(-20, 90) for _ in range(3)),
                )
            ),
        )
    size = rng.choice((max(1, k - 1), k, k + 1)) if k < 13 else rng.randint(1, 8)
    if kind == "list":
        near = (k - 1, k, k + 1, *(rng.randint(-5, 40) for _ in range(3)))
        return ([rng.choice(near) for _ in range(size)],)
    if k >= 13 and rng.random() < 0.5:
        size = rng.choice((k - 1, k, k + 1))
    return ("".join(rng.choice("abcdefghijklmnoprstuvw") for _ in range(size)),)


def _told_apart(template: Template, k: int, calls: tuple[tuple, ...]) -> bool:
    """Whether the test notices a constant that is off by one, and an answer that is always the same."""
    expected = [template.solve(*call, k) for call in calls]
    slips = ([template.solve(*call, wrong) for call in calls] for wrong in (k - 1, k + 1))
    return expected not in slips and any(e != expected[0] for e in expected)


def write_task(rng: random.Random, template: Template, constant: int) -> Task:
    """The template with this constant, random parameter names and five different calls that show errors."""
    parameters = rng.choice(PARAMETERS[template.kind])
    while True:
        calls: list[tuple] = []
        while len(calls) < ASSERTIONS:
            call = _call(rng, template.kind, constant)
            if call not in calls:
                calls.append(call)
        if _told_apart(template, constant, tuple(calls)):
            return Task(template.name, constant, parameters, tuple(calls))


def draw_task(rng: random.Random, pool: str) -> Task:
    """A random task from this pool, every template equally likely."""
    template = rng.choice([t for t in TEMPLATES if constants_in(t, pool)])
    return write_task(rng, template, rng.choice(constants_in(template, pool)))


def build(split: str) -> list[Task]:
    """All tasks of "train" or "heldout" without repeats, shuffled: templates in turn up to the size."""
    rng = random.Random(SEEDS[split])
    queues = [
        (t, rng.sample(constants_in(t, split), len(constants_in(t, split)))) for t in TEMPLATES
    ]
    tasks: list[Task] = []
    while len(tasks) < SIZES[split] and any(queue for _, queue in queues):
        tasks += [write_task(rng, template, queue.pop()) for template, queue in queues if queue]
    if len(tasks) < SIZES[split]:
        raise ValueError(f"the pool {split} has {len(tasks)} tasks, but {SIZES[split]} are needed")
    tasks = tasks[: SIZES[split]]
    rng.shuffle(tasks)
    return tasks


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the course's code tasks.")
    parser.add_argument(
        "--check", action="store_true", help="compare with the files instead of writing them"
    )
    args = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    same = True
    for split in SIZES:
        rows = [task.row(f"code_tasks/{split}/{i}") for i, task in enumerate(build(split))]
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        path = FOLDER / f"{split}.jsonl"
        if not args.check:
            path.write_text(text, encoding="utf-8", newline="\n")
            print(f"wrote {path.name}: {len(rows)} tasks")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            print(
                f"{path.name} differs from what build_code_tasks.py makes: run it without --check"
            )
            same = False
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
