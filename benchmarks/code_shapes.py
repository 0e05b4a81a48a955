"""Which shapes of tests the sandbox judges rightly: a table of the project's own tasks.

    python benchmarks/code_shapes.py                    # the table, about a minute
    python benchmarks/code_shapes.py --level limits-only

Each problem has an honest right solution and wrong ones, and is written in the shape of each
dataset; none is copied from one. A right solution must pass, a wrong one must not, and must be the
program's fault. A program "without a verdict" is one that the sandbox could not judge.
"""
# ruff: noqa: E501 (programs stand on one line)

import argparse
import json
from collections import Counter
from typing import NamedTuple

from grpo_workbook.sandbox import Job, Sandbox


class Problem(NamedTuple):
    """A function's head and right body, what to replace in it to make it wrong, and its inputs."""

    head: str
    body: str
    wrong: list[tuple[str, str]]
    inputs: list[tuple]

    @property
    def name(self) -> str:
        return self.head.split("(")[0]

    def solution(self, *change: str) -> str:
        body = self.body.replace(*change) if change else self.body
        assert body != self.body or not change, change
        return f"def {self.head}:\n" + "".join(f"    {line}\n" for line in body.splitlines())

    def programs(self) -> list[str]:
        """The right one first; the last returns nothing."""
        changed = [self.solution(*change) for change in self.wrong]
        return [self.solution(), *changed, f"def {self.head}:\n    return None\n"]

    def cases(self) -> list[tuple]:
        names: dict = {}
        exec(self.solution(), names)
        return [(given, names[self.name](*json.loads(json.dumps(given)))) for given in self.inputs]


PROBLEMS = [
    Problem("running_sum(xs)", "out, s = [], 0\nfor x in xs:\n    s += x\n    out.append(s)\nreturn out",
            [("s += x", "s = x"), ("s = [], 0", "s = [], 1")], [([1, 2, 3],), ([5, -5, 2],), ([4],)]),
    Problem("count_vowels(s)", "return sum(c in 'aeiou' for c in s.lower())",
            [("aeiou", "aeio"), (".lower()", ".upper()")], [("Unique",), ("xyz",), ("AEIOU",)]),
    Problem("mean_of(xs)", "return sum(xs) / len(xs)",
            [("/ len(xs)", "// len(xs)"), ("sum(xs)", "max(xs)")], [([1, 2],), ([0.5, 0.25, 3],), ([7, 8, 10],)]),
    Problem("group(words)", "out = {}\nfor w in words:\n    out.setdefault(len(w), []).append(w)\nreturn out",
            [("len(w)", "w[0]"), ("append(w)", "append(w[0])")], [(["a", "bb", "c"],), (["abc", "xyz", "de"],)]),
    Problem("is_step(n)", "d = [int(c) for c in str(n)]\nreturn all(abs(a - b) == 1 for a, b in zip(d, d[1:]))",
            [("== 1", "<= 1"), ("all(", "any(")], [(1232,), (1223,), (7,), (198,)]),
    Problem("split_at(xs, k)", "k %= len(xs)\nreturn xs[k:] + xs[:k]",
            [("k %= len(xs)\n", ""), ("xs[k:] + xs[:k]", "xs[:k] + xs[k:]")], [([1, 2, 3, 4], 1), ([1, 2, 3], 5)]),
    Problem("pairs(xs, t)", "return [(a, b) for i, a in enumerate(xs) for b in xs[i + 1:] if a + b == t]",
            [("i + 1", "i"), ("== t", "<= t")], [([1, 2, 3, 4], 5), ([2, 2, 2], 4), ([1], 2)]),
    Problem("roman(n)", "out = ''\nfor v, s in ((10, 'X'), (9, 'IX'), (5, 'V'), (4, 'IV'), (1, 'I')):\n"
            "    while n >= v:\n        out += s\n        n -= v\nreturn out",
            [("(4, 'IV'), ", ""), (">= v", "> v")], [(4,), (9,), (14,), (28,)]),
]  # fmt: skip


class Task(NamedTuple):
    """The programs, right one first, and their test."""

    programs: list[str]
    test: str
    name: str
    setup: str = ""


def humaneval(p: Problem) -> Task:
    lines = [f"    assert candidate(*{a!r}) == {w!r}\n" for a, w in p.cases()]
    return Task(p.programs(), "METADATA = {}\n\ndef check(candidate):\n" + "".join(lines), p.name,
                f"from typing import List\n\ndef {p.head}:\n    pass\n")  # fmt: skip


def humaneval_plus(p: Problem) -> Task:
    test = (
        "import numpy as np\n\ndef is_floats(x):\n    return isinstance(x, float)\n\n"
        "def assertion(out, exp, atol):\n    if atol == 0 and is_floats(exp):\n        atol = 1e-6\n"
        "    if out != exp and atol != 0:\n        assert np.allclose(out, exp, rtol=1e-07, atol=atol)\n"
        f"    else:\n        assert out == exp\n\n{p.solution().replace(p.name, 'ref_func', 1)}\n"
        f"def check(candidate):\n    inputs = {[list(x) for x in p.inputs]!r}\n"
        f"    results = {[w for _, w in p.cases()]!r}\n"
        "    for inp, exp in zip(inputs, results):\n        assertion(candidate(*inp), exp, 0)\n"
        "    for inp in inputs:\n        assertion(candidate(*inp), ref_func(*inp), 0)\n"
    )
    return Task(p.programs(), test, p.name)


def mbpp(p: Problem) -> Task:
    lines = [f"assert {p.name}{a!r} == {w!r}".replace(",)", ")") for a, w in p.cases()]
    return Task(p.programs(), "import math\n" + "\n".join(lines), p.name)


def evoeval(p: Problem) -> Task:
    test = f"import math, random\n{p.solution().replace(p.name, 'reference', 1)}\ndef check(candidate):\n"
    test += f"    for given in {p.inputs!r}:\n        found = candidate(*given)\n"
    test += (
        "        wanted = reference(*given)\n        assert found == wanted, f'{given}: {found}'\n"
    )
    return Task(p.programs(), test, p.name)


def bigcodebench(p: Problem) -> Task:
    test = "import unittest\nimport numpy as np\n\nclass TestCases(unittest.TestCase):\n"
    for i, (given, wanted) in enumerate(p.cases()):
        check = "assertAlmostEqual" if isinstance(wanted, float) else "assertEqual"
        test += f"    def test_case_{i}(self):\n        result = task_func(*{given!r})\n"
        test += f"        self.assertIsInstance(result, {type(wanted).__name__})\n"
        test += f"        self.{check}(result, {wanted!r})\n"
    test += "    def test_error(self):\n        with self.assertRaises(TypeError):\n            task_func()\n"
    return Task([x.replace(p.name, "task_func", 1) for x in p.programs()], test, "task_func")


def leetcode(p: Problem) -> Task:
    names = p.head.split("(")[1].rstrip(")").split(", ")
    lines = [
        f"    assert candidate({', '.join(f'{n} = {x!r}' for n, x in zip(names, a, strict=True))}) == {w!r}\n"
        for a, w in p.cases()
    ]
    method = [x.replace("(", "(self, ", 1) for x in p.programs()]
    method = ["class Solution:\n" + "".join(f"    {y}\n" for y in x.splitlines()) for x in method]
    return Task(method, "def check(candidate):\n" + "".join(lines), f"Solution().{p.name}")


def kodcode(p: Problem) -> Task:
    test = f"import pytest\nfrom solution import {p.name}\n\n"
    for i, (given, wanted) in enumerate(p.cases()):
        test += f"def test_{i}():\n    assert {p.name}(*{given!r}) == {wanted!r}\n\n"
    test += (
        f"@pytest.mark.parametrize('given, wanted', {p.cases()!r})\ndef test_all(given, wanted):\n"
    )
    test += f"    assert {p.name}(*given) == wanted\n\n"
    test += f"def test_error():\n    with pytest.raises(TypeError):\n        {p.name}()\n"
    return Task(p.programs(), test, "")


def _script(p: Problem, reading: str) -> list[str]:
    return [
        f"import sys, json\n{x}\nprint({p.name}(*json.loads({reading})))\n" for x in p.programs()
    ]


def apps(p: Problem) -> Task:
    test = {
        "inputs": [json.dumps(a) + "\n" for a, _ in p.cases()],
        "outputs": [f"{w}\n" for _, w in p.cases()],
    }
    return Task(_script(p, "input()"), json.dumps(test), "")


def codecontests(p: Problem) -> Task:
    test = {
        "input": [json.dumps(a) for a, _ in p.cases()],
        "output": [f"{w} \n\n" for _, w in p.cases()],
    }
    return Task(_script(p, "sys.stdin.readline()"), json.dumps(test), "")


def livecodebench(p: Problem) -> Task:
    test = [{"input": json.dumps(a), "output": str(w), "testtype": "stdin"} for a, w in p.cases()]
    return Task(_script(p, "sys.stdin.buffer.read()"), json.dumps(test), "")


NODES = """class ListNode:
    def __init__(self, val=0, next=None):
        self.val = val
        self.next = next
class TreeNode:
    def __init__(self, val=0, left=None, right=None):
        self.val, self.left, self.right = val, left, right
"""
HELPERS = (
    NODES
    + """
def list_node(values):
    first = None
    for x in reversed(values):
        first = ListNode(x, first)
    return first
def values(node):
    out = []
    while node:
        out.append(node.val)
        node = node.next
    return out
"""
)
METHOD = "class Solution:\n    def run(self, {}):\n        {}\n"
SPECIAL = {
    "LeetCode: lists, trees, in place": [
        Task([NODES + METHOD.format("head", x) for x in (
            "new = None\n        while head:\n            head.next, new, head = new, head, head.next\n        return new",
            "return head", "head.next = None\n        return head")],
            "def check(candidate):\n    assert values(candidate(head = list_node([1, 2, 3]))) == [3, 2, 1]", "Solution().run", HELPERS),
        Task([NODES + METHOD.format("root", x) for x in (
            "return 1 + max(self.run(root.left), self.run(root.right)) if root else 0",
            "return max(self.run(root.left), self.run(root.right)) if root else 0", "return 1")],
            "def check(candidate):\n    assert candidate(TreeNode(1, None, TreeNode(2))) == 2\n    assert candidate(None) == 0", "Solution().run", HELPERS),
        Task([METHOD.format("nums, k", x) for x in (
            "nums[:] = nums[-k:] + nums[:-k]", "nums = nums[-k:] + nums[:-k]", "nums.reverse()")],
            "def check(candidate):\n    nums = [1, 2, 3, 4]\n    candidate(nums, 1)\n    assert nums == [4, 1, 2, 3]", "Solution().run"),
        Task([f"class LRU:\n    def __init__(self, n): self.n, self.d = n, {{}}\n    def put(self, k, v):\n{x}" for x in (
            "        self.d.pop(k, None)\n        self.d[k] = v\n        if len(self.d) > self.n: del self.d[next(iter(self.d))]\n    def get(self, k):\n        if k not in self.d: return -1\n        self.d[k] = self.d.pop(k)\n        return self.d[k]",
            "        self.d[k] = v\n    def get(self, k): return self.d.get(k, -1)", "        pass\n    def get(self, k): return -1")],
            "def check(candidate):\n    c = candidate(2)\n    c.put(1, 1)\n    c.put(2, 2)\n    assert c.get(1) == 1\n    c.put(3, 3)\n    assert c.get(2) == -1\n    assert c.get(3) == 3", "LRU"),
    ],
    "KodCode: classes, errors, generators": [
        Task([f"class Account:\n    def __init__(self, balance=0): self.balance = balance\n    def pay(self, x):\n{x}\n    def __add__(self, o): return Account(self.balance + o.balance)\n    def __eq__(self, o): return self.balance == o.balance\n    def __str__(self): return f'<{{self.balance}}>'" for x in (
            "        if x > self.balance: raise ValueError('too much')\n        self.balance -= x", "        self.balance -= x", "        if x > self.balance: raise ValueError('too much')")],
            "import pytest\nfrom solution import Account\ndef test_pay():\n    a = Account(5)\n    a.pay(2)\n    assert a.balance == 3\n    with pytest.raises(ValueError, match='too much'):\n        a.pay(9)\ndef test_add():\n    assert Account(1) + Account(2) == Account(3) and str(Account(1) + Account(2)) == '<3>'", ""),
        Task([f"def primes():\n    n = 2\n    while True:\n        if {x}: yield n\n        n += 1" for x in ("all(n % d for d in range(2, n))", "n % 2", "True")],
            "from itertools import islice\nfrom solution import primes\ndef test_it():\n    assert list(islice(primes(), 5)) == [2, 3, 5, 7, 11]", ""),
        Task([f"import asyncio\nasync def both(f, g):\n    {x}" for x in ("return await asyncio.gather(f(), g())", "return [await f()]", "return []")],
            "import asyncio\nfrom solution import both\nasync def one(): return 1\nasync def two(): return 2\ndef test_it():\n    assert asyncio.run(both(one, two)) == [1, 2]", ""),
    ],
}  # fmt: skip
SHAPES = {
    "HumanEval": humaneval,
    "HumanEval+": humaneval_plus,
    "MBPP": mbpp,
    "EvoEval": evoeval,
    "BigCodeBench (unittest)": bigcodebench,
    "LeetCode": leetcode,
    "KodCode (pytest)": kodcode,
    "APPS (stdin)": apps,
    "CodeContests (stdin)": codecontests,
    "LiveCodeBench (stdin)": livecodebench,
}


def tasks() -> dict[str, list[Task]]:
    """The tasks of each shape."""
    return {shape: [make(p) for p in PROBLEMS] for shape, make in SHAPES.items()} | SPECIAL


def judged(sandbox: Sandbox, shape: list[Task]) -> tuple[Counter, list[str]]:
    """How many programs were judged how, and the verdicts that are not right."""
    counts, wrong = Counter(), []
    jobs = [
        (i == 0, Job(x, t.test, t.name, t.setup)) for t in shape for i, x in enumerate(t.programs)
    ]
    for (right, job), verdict in zip(jobs, sandbox.check([j for _, j in jobs]), strict=True):
        unsure = verdict.fault in ("test", "sandbox")
        as_it_should = not unsure and verdict.passed == right
        kind = "right" if right else "wrong"
        counts[kind] += 1
        counts[f"{kind} ones judged rightly"] += as_it_should
        counts["without a verdict"] += unsure
        if not as_it_should:
            wrong.append(f"{kind}: {verdict}\n{job.program}\n{job.test}")
    return counts, wrong


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--level", choices=["full", "limits-only"], default="full")
    args = parser.parse_args()
    total = Counter()
    with Sandbox(workers=2, time_limit=20.0, level=args.level) as sandbox:
        print(f"isolation: {sandbox.isolation}\n")
        print("| shape | tasks | right programs passed | wrong ones refused | without a verdict |")
        print("| --- | --- | --- | --- | --- |")
        for shape, found in tasks().items():
            counts, wrong = judged(sandbox, found)
            total += counts
            row = [
                f"{counts[f'{x} ones judged rightly']} of {counts[x]}" for x in ("right", "wrong")
            ]
            print(
                f"| {shape} | {len(found)} | {row[0]} | {row[1]} | {counts['without a verdict']} |",
                flush=True,
            )
            for words in wrong[:3]:
                print(words)
    print(f"\nin all: {dict(total)}")


if __name__ == "__main__":
    main()
