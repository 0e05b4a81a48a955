"""With the real servers, at the level that this machine can give."""
# ruff: noqa: E501 (programs stand on one line)

import ast
import contextlib
import gzip
import json
import multiprocessing
import os
import random
import re
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest
from conftest import REPO, SHARED, until

from grpo_workbook.errors import WorkbookError
from grpo_workbook.sandbox import Job, Sandbox, unit_tests
from grpo_workbook.sandbox.attacks import ENTRY_POINT, TEST, code_attacks
from grpo_workbook.sandbox.pool import MAX_PROGRAM

HUMANEVAL = SHARED / "data" / "humaneval" / "HumanEval.jsonl.gz"
GOOD = "def add(a, b):\n    return a + b\n"
ATTACKS = code_attacks()


@pytest.fixture(scope="module")
def sandbox():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Sandbox(workers=2, time_limit=5.0) as made:
            made.probe()
            yield made


@pytest.fixture(scope="module")
def quick():
    """A short limit, for what never ends."""
    with Sandbox(workers=4, time_limit=1.0) as made:
        yield made


@pytest.fixture(scope="module")
def brief():
    """The shortest limit, where the job itself never ends."""
    with Sandbox(workers=2, time_limit=0.3) as made:
        yield made


def patiently(jobs, verdicts):
    """The verdicts; a job is judged again if its time ended before the program had answered.

    On a busy machine a second can pass before that. Who is at fault is then at fault again.
    """
    with Sandbox(workers=1, time_limit=20.0) as made:
        return [
            made.check([job])[0]
            if v.outcome == "timeout" and (v.fault == "test" or job.program == GOOD)
            else v
            for job, v in zip(jobs, verdicts, strict=True)
        ]


@pytest.fixture(scope="module")
def tasks():
    if not HUMANEVAL.exists():
        pytest.skip("HumanEval is not here")
    with gzip.open(HUMANEVAL, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def job(program, test="assert f(3) == 4", name="f"):
    return Job(program, test, name)


def descendants(pid=None):
    """Process ids of everything below this process."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found.append(
                (int(folder.name), int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1]))
            )
    below, more = set(), {pid or os.getpid()}
    while more:
        more = {p for p, parent in found if parent in more} - below
        below |= more
    return below


def servers_of(sandbox):
    """Process ids of the judge servers that run now."""
    return {w.process.pid for w in sandbox._workers if w.process is not None}


def alive(pid):
    """Whether it still runs; one that has ended and was not yet reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


# ------------------------------------------------------------------ honest programs

HONEST = {
    "prints": job("def f(x):\n    print('x' * 100000)\n    import sys; sys.stderr.write('e')\n    return x + 1"),
    "recurses 900 deep": job("def f(n):\n    return 0 if n == 0 else 1 + f(n - 1)", "assert f(900) == 900"),
    "uses 200 MB": job("def f(x):\n    return len(bytearray(200 << 20)) and x + 1"),
    "raises and catches": job("def f(x):\n    try:\n        raise KeyError(x)\n    except KeyError:\n        return x + 1"),
    "raises for the test": job(
        "def f(x):\n    raise ValueError('no')",
        "try:\n    f(1)\n    assert False\nexcept ValueError as e:\n    assert str(e) == 'no'",
    ),
    "its own exception": job(
        "class Mine(ValueError): pass\ndef f(x):\n    raise Mine('no')",
        "ok = False\ntry:\n    f(1)\nexcept ValueError:\n    ok = True\nassert ok",
    ),
    "nested": job(
        "def f(x):\n    return ({'a': [1, (2, {3})], None: {'b': b'c'}}, 1.5, 2j, frozenset({1}))",
        "assert f(0) == ({'a': [1, (2, {3})], None: {'b': b'c'}}, 1.5, 2j, frozenset({1}))\nassert type(f(0)) is tuple",
    ),
    "floats": job("def f(x):\n    return x / 3", "import math\nassert math.isclose(f(1.0), 0.3333333333333333)"),
    "generator": job("def f(n):\n    yield from range(n)", "assert list(f(3)) == [0, 1, 2]"),
    "list of a generator": job("def f(n):\n    return list(x for x in range(n))", "assert f(3) == [0, 1, 2]"),
    "big numbers": job("def f(n):\n    return 7 ** n", "assert f(6000) == 7 ** 6000\nassert f(-1) == 1 / 7"),
    "counter": job("from collections import Counter\ndef f(s):\n    return Counter(s)", "assert f('aab') == {'a': 2, 'b': 1}"),
    "imports": job("import hashlib, decimal, dataclasses, json, re\ndef f(x):\n    return int(decimal.Decimal(x)) + 1"),
    "threads": job(
        "import threading\ndef f(x):\n    r = []\n    t = threading.Thread(target=r.append, args=(x + 1,))\n"
        "    t.start()\n    t.join()\n    return r[0]"
    ),
    "asyncio": job("import asyncio\nasync def g(x): return x + 1\ndef f(x): return asyncio.run(g(x))"),
    "dataclass": job("from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\ndef f(x): return A(x).x + 1"),
    "keeps a state": job("seen = []\ndef f(x):\n    seen.append(x)\n    return len(seen)", "assert [f(9), f(9)] == [1, 2]"),
    "named arguments": job("def f(x, *, y=0):\n    return x + y", "assert f(1, y=2) == 3"),
    "test functions": job("def f(x): return x + 1", "def test_a():\n    assert f(1) == 2\ndef test_b():\n    assert f(2) == 3"),
    "a check that is called": job("def f(x): return x + 1", "def check(c):\n    assert c(1) == 2\ncheck(f)"),
    "unicode": job("def f(s):\n    return s + '\\ud800é'", "assert f('ß') == 'ß\\ud800é'"),
}  # fmt: skip


def test_honest_programs_pass(sandbox):
    for name, verdict in zip(HONEST, sandbox.check(list(HONEST.values())), strict=True):
        assert verdict.passed, f"{name}: {verdict}"
        assert verdict.cases_passed == verdict.cases >= 1


def test_numpy_where_installed(sandbox):
    pytest.importorskip("numpy")
    program = "import numpy as np\ndef f(x):\n    return np.arange(x + 1).sum()"
    verdict = sandbox.check([job(program, "assert f(3) == 6")])[0]
    assert verdict.passed, str(verdict)


def test_every_canonical_solution_of_humaneval_passes(sandbox, tasks):
    jobs = [
        Job(t["prompt"] + t["canonical_solution"], t["test"], t["entry_point"], t["prompt"])
        for t in tasks
    ]
    verdicts = sandbox.check(jobs)
    wrong = [f"{t['task_id']}: {v}" for t, v in zip(tasks, verdicts, strict=True) if not v.passed]
    assert (len(jobs), wrong) == (164, [])


# ------------------------------------------------------------------ mutants: judged as plain
# execution judges them

SWAPS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
}
SWAPS |= {
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Mod: ast.FloorDiv,
    ast.And: ast.Or,
}


def mutant(source, seed):
    tree = ast.parse(source)
    places = []
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPS:
            places.append(lambda n=node: setattr(n, "op", SWAPS[type(n.op)]()))
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            places.append(lambda n=node: n.ops.__setitem__(0, SWAPS[type(n.ops[0])]()))
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            places.append(lambda n=node: setattr(n, "value", n.value + 1))
    if places:
        random.Random(seed).choice(places)()
    return ast.unparse(tree)


def _plainly(jobs, pipe):
    """Send whether each passes. One that does not end costs the process its processor time."""
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for job in jobs:
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + 2, -1))
        names = {}
        try:
            exec(job.program, names)
            exec(job.test, names)
            names["check"](names[job.entry_point])
            pipe.send(True)
        except BaseException:
            pipe.send(False)


def plainly(jobs):
    """Whether each passes when it is simply run, in one process after the other's end."""
    context = multiprocessing.get_context("fork")
    answers = []
    while len(answers) < len(jobs):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_plainly, args=(jobs[len(answers) :], theirs))
        process.start()
        theirs.close()
        with contextlib.suppress(EOFError):
            while True:
                answers.append(ours.recv())
        process.join()
        if len(answers) < len(jobs):
            answers.append(False)  # this one did not end
    return answers


@pytest.mark.slow
def test_mutated_solutions_are_judged_as_plain_execution_judges_them(tasks):
    programs = [mutant(t["prompt"] + t["canonical_solution"], i) for i, t in enumerate(tasks)]
    jobs = [
        Job(p, t["test"], t["entry_point"], t["prompt"])
        for p, t in zip(programs, tasks, strict=True)
    ]
    with Sandbox(workers=2, time_limit=3.0) as sandbox:
        verdicts = sandbox.check(jobs)
    wanted = plainly(jobs)
    differ = [
        f"{t['task_id']}: plainly {w}, {v}"
        for t, v, w in zip(tasks, verdicts, wanted, strict=True)
        if v.passed != w
    ]
    assert differ == []
    assert 20 < sum(not w for w in wanted) < 164


# ------------------------------------------------------------------ attacks


KINDS = list(dict.fromkeys(a.family for a in ATTACKS if a.family != "outside"))
ENDLESS_KINDS = ("loops", "endless in the test", "endless before the first answer")
ENDLESS_KINDS += ("functions of Python that the test gives",)


def test_the_collection_is_large_and_no_attack_is_there_twice():
    assert (
        len({a.program for a in ATTACKS}) == len({a.name for a in ATTACKS}) == len(ATTACKS) >= 120
    )


@pytest.mark.parametrize("kind", [pytest.param(k, marks=[pytest.mark.slow] * (k in ENDLESS_KINDS)) for k in KINDS])  # fmt: skip
def test_no_attack_passes_and_the_next_job_is_judged(quick, kind):
    """All of a kind at once, for some of them take the whole time limit."""
    attacks = [a for a in ATTACKS if a.family == kind]
    good = Job(GOOD, TEST, ENTRY_POINT)
    quick.check([good] * 8)
    servers = descendants()
    jobs = [x for a in attacks for x in (Job(a.program, a.test, ENTRY_POINT), good)]
    verdicts = patiently(jobs, quick.check(jobs))
    for attack, verdict in zip(attacks, verdicts[::2], strict=True):
        assert not verdict.passed, attack.name
        # in one process nobody can tell who skips a test, or whether such an object is honest
        unsure = re.search("decides what it is equal to|Skipped", verdict.reason)
        assert verdict.fault == ("test" if unsure else "program"), f"{attack.name}: {verdict}"
        assert len(verdict.reason) < 2000
        assert verdict.reason.isprintable()
    assert all(v.passed for v in verdicts[1::2])
    assert len(descendants()) <= len(servers), "something was left running"


@pytest.mark.parametrize(
    "attack", [a for a in ATTACKS if a.family == "outside"], ids=lambda a: a.name
)
def test_nothing_outside_is_harmed(quick, tmp_path, monkeypatch, attack):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    victim = tmp_path / "folder" / "file.txt"
    victim.parent.mkdir()
    victim.write_text("5")
    if attack.name == "read a file" and quick.isolation != "full":
        pytest.skip(f"limits-only: {quick.probe()[1]}")
    program = next(a.program for a in code_attacks(str(victim)) if a.name == attack.name)
    verdict = quick.check([Job(program, attack.test, ENTRY_POINT)])[0]
    assert not verdict.passed
    assert verdict.cases_passed == 0, "the attack had what it wanted"
    assert victim.read_text() == "5"
    assert [p.name for p in tmp_path.rglob("*")] == ["folder", "file.txt"]
    assert "hf_secret" not in verdict.reason


def test_the_file_bomb_left_nothing():
    assert list(Path("/tmp").glob("workbook-bomb-*")) == []


@pytest.mark.slow
def test_without_namespaces_no_attack_passes_either():
    with Sandbox(time_limit=1.0, level="limits-only") as sandbox:
        with pytest.warns(UserWarning, match="limits-only.*see whether a file exists"):
            sandbox.probe()
        chosen = [a for a in ATTACKS if a.family != "outside"]
        jobs = [Job(a.program, a.test, ENTRY_POINT) for a in chosen]
        jobs += [Job(GOOD, TEST, ENTRY_POINT)]
        *verdicts, good = sandbox.check(jobs)
    assert [a.name for a, v in zip(chosen, verdicts, strict=True) if v.passed] == []
    assert good.passed
    assert good.isolation == "limits-only"


# ------------------------------------------------------------------ verdicts


def test_the_outcomes(quick):
    programs = {
        "failed": "def f(x): return x",
        "error": "def f(x): return x.nothing",
        "timeout": "def f(x):\n    while True: pass",
        "out of memory": "def f(x): return bytearray(1 << 40)",
        "rejected": "def g(x): return x",
    }
    jobs = [job(p) for p in programs.values()]
    verdicts = patiently(jobs, quick.check(jobs))
    assert [v.outcome for v in verdicts] == list(programs)
    assert all(v.passed is False and v.reason and v.ms > 0 for v in verdicts)


def test_cases_are_counted_and_a_failed_one_does_not_hide_the_rest(sandbox):
    test = "def check(candidate):\n    for i in range(10):\n        assert candidate(i) == i\n    assert candidate(100) == 0"
    verdict = sandbox.check([job("def f(x): return 0 if x > 6 else x", test)])[0]
    assert (verdict.outcome, verdict.cases_passed, verdict.cases) == ("failed", 1, 2)


def test_a_program_that_dies_half_way_gets_the_cases_before(sandbox):
    test = "assert f(1) == 1\nassert f(2) == 2\nassert f(3) == 3\nassert f(4) == 4"
    verdict = sandbox.check(
        [job("import os\ndef f(x):\n    if x == 3: os._exit(0)\n    return x", test)]
    )[0]
    assert (verdict.outcome, verdict.cases_passed, verdict.cases) == ("error", 2, 4)


def test_a_test_that_does_not_end_is_ended_and_the_next_job_is_judged():
    with Sandbox(workers=1, time_limit=0.5) as made:
        endless = job(GOOD, "add(1, 2)\nwhile True: pass", "add")
        first, second = made.check([endless, Job(GOOD, TEST, "add")])
    assert (first.outcome, first.passed) == ("timeout", False)
    assert second.passed


def test_the_servers_own_modules_are_none_that_a_program_can_import(sandbox):
    for name in ("wire", "jail", "tester", "candidate", "server"):
        verdict = sandbox.check([job(f"import {name}\ndef f(x): return x + 1")])[0]
        assert "ModuleNotFoundError" in verdict.reason


def test_what_breaks_outside_of_assertions_costs_a_case(sandbox):
    test = "assert f(0) == 0\nassert f(1) == 1\nif f(2) != 3:\n    raise ValueError('not three')"
    verdict = sandbox.check([job("def f(x): return x", test)])[0]
    assert (verdict.outcome, verdict.cases_passed, verdict.cases) == ("error", 1, 2)


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ("assert 1 == 1", "never calls"),
        ("def check(candidate):\n    pass", "never calls"),
        ("assert f(1 ==", "cannot be used: SyntaxError"),
        ("import re\nassert f(re.compile('a')) == 1", "only plain values"),
        ("import no_such_package\nassert f(3) == 4", "ModuleNotFoundError"),
        ("assert f(3) == wanted", "NameError"),
        ("import math\nassert f(3) == math.nothing", "AttributeError"),
        ("def test_f(fixture):\n    assert f(3) == 4", "FixtureLookupError"),
        ('{"inputs": [], "outputs": []}', "there is no input"),
        ('{"inputs": ["1"]}', "the test cannot be used"),
    ],
)
def test_a_test_that_cannot_judge_is_rejected_and_is_the_tests_fault(sandbox, test, words):
    verdict = sandbox.check([job("import sys\ndef f(x): return x", test)])[0]
    assert (verdict.outcome, verdict.fault) == ("rejected", "test")
    assert words in verdict.reason


@pytest.mark.parametrize(
    "program", [None, 5, b"def f(x): return x + 1", "x" * 1_000_000, "#" * (MAX_PROGRAM + 1)]
)
def test_what_is_no_program_is_rejected(sandbox, program):
    verdict = sandbox.check([job(program)])[0]
    assert (verdict.outcome, verdict.fault) == ("rejected", "program")


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (Job(GOOD, "", "add"), "there is no test"),
        (Job(GOOD, None, "add"), "the test is not a text of at most"),
        (Job(GOOD, TEST, ""), "entry point '' is not a name"),
        (Job(GOOD, TEST, "add "), "entry point 'add ' is not a name"),
        (Job(GOOD, TEST, None), "entry point 'None' is not a name"),
        (Job(GOOD, TEST, "add\n"), "entry point 'add\\n' is not a name"),
        (Job(GOOD, TEST, "add\0"), "is not a name"),
        (Job(GOOD, TEST, ["add"]), "is not a name"),
        (Job(GOOD, TEST, 10**5000), "of type int is not a name"),
        (Job(GOOD, 10**5000, "add"), "the test is not a text"),
        (Job(GOOD, TEST, "add", None), "the setup is not a text"),
        (Job(GOOD, TEST, "add", "def ("), "the test cannot be used"),
        (Job(GOOD, TEST + "\0", "add"), "the test cannot be used"),
        (Job(GOOD, {"inputs": ["1"]}, ""), "the test is not a text"),
        (Job(GOOD, '{"inputs": 5, "outputs": 5}', ""), "the test cannot be used"),
        (None, "is no Job"),
    ],
)
def test_one_bad_job_is_rejected_and_the_others_are_judged(sandbox, bad, words):
    """A reward must not lose a whole step to one row of the data."""
    before, verdict, after = sandbox.check([Job(GOOD, TEST, "add"), bad, Job(GOOD, TEST, "add")])
    assert (verdict.outcome, verdict.fault) == ("rejected", "test")
    assert words in verdict.reason
    assert before.passed
    assert after.passed


def test_a_program_with_a_zero_byte_is_only_its_own_error(sandbox):
    bad, good = sandbox.check([Job("\0" + GOOD, TEST, "add"), Job(GOOD, TEST, "add")])
    assert (bad.outcome, bad.fault, good.passed) == ("error", "program", True)


@pytest.mark.parametrize("words", ["\x1b[2J\x07", "\ud800", "a\nb\u202e", "\x9b1m"])
def test_a_reason_cannot_reach_the_terminal(sandbox, words):
    verdict = sandbox.check([job(f"def f(x): raise ValueError({words!r})")])[0]
    assert verdict.reason.isprintable()
    assert verdict.reason == "ValueError: " + ascii(words)[1:-1]


# programs that do not let a test end with their answers, and the tests
ENDLESS = {
    "colliding keys": ("def f(x): return {i * (2**61 - 1) for i in range(150_000)}", "assert f(1) == 5"),
    "colliding numbers": ("def f(x): return [i * (2**61 - 1) for i in range(90_000)]", "assert set(f(1)) == {1}"),
    "a range": ("def f(x): return range(10**18)", "assert sum(f(1)) == 1"),
    "a power": ("def f(x): return 10**10", "assert 7 ** f(1) == 1"),
    "a pattern": ("def f(x): return '(a+)+$'", "import re\nassert re.match(f(1), 'a' * 60 + 'b')"),
    "a loop of the test": ("def f(x): return 0", "n = 0\nwhile n != 5: n += f(1)"),
    "a Decimal": ("from decimal import Decimal\ndef f(x): return Decimal('1e99999999')", "import decimal\nassert int(f(1)) == 5"),
    "a circle": ("class N: pass\ndef f(x):\n    n = N(); n.next = n; return n", "n = f(1)\nwhile n: n = n.next"),
    "all of an endless generator": ("def f(x):\n    while True: yield 1", "assert list(f(1)) == 5"),
    "a caught deadline": ("def f(x): return 0", "while f(1) == 0:\n    try:\n        while True: pass\n    except BaseException: pass"),
}  # fmt: skip


@pytest.mark.slow
def test_a_test_that_the_answers_do_not_let_end_is_the_programs_fault():
    """Otherwise half a batch of such programs would end the run; and there is one deadline."""
    jobs = [Job(program, test, "f") for program, test in ENDLESS.values()]
    with Sandbox(workers=2, time_limit=2.5) as made:
        for name, verdict in zip(ENDLESS, made.check(jobs), strict=True):
            assert verdict.fault == "program", f"{name}: {verdict}"
            # a fast machine reaches the largest number of items before the limit
            assert verdict.outcome == "timeout" or "1,000,000 items" in verdict.reason
            assert verdict.ms < 2 * 2500, "it had the limit twice"
        assert made.check([Job(GOOD, TEST, "add")])[0].passed


def test_a_program_cannot_blame_a_test_that_another_one_passes(sandbox):
    tests = unit_tests(sandbox, max_failed=1.0)
    test = "import os\ndef check(candidate): assert candidate(2) == 4"
    programs = ["def f(x): return x + 2", "def f(x): raise ImportError('no such package')"]
    assert tests(programs, test=[test] * 2, entry_point=["f"] * 2) == [1.0, 0.0]
    alone = tests(programs[1:], test=[test], entry_point=["f"])
    assert alone == [None]  # nobody has shown that the test can be passed


LRU = """class LRU:
    def __init__(self, n): self.n, self.d = n, {}
    def get(self, k):
        if k not in self.d: return -1
        self.d[k] = self.d.pop(k)
        return self.d[k]
    def put(self, k, v):
        self.d.pop(k, None)
        self.d[k] = v
        if len(self.d) > self.n: self.d.pop(next(iter(self.d)))
"""
CALLED_BY_NAME = """def check(candidate):
    c = candidate(2)
    steps = [("put", (1, 1), None), ("put", (2, 2), None), ("get", (1,), 1), ("put", (3, 3), None)]
    for name, args, wanted in [*steps, ("get", (2,), -1)]: assert getattr(c, name)(*args) == wanted
"""


@pytest.mark.parametrize("test", [CALLED_BY_NAME, "c = LRU(1)\nc.put(1, 1)\nassert c.get(1) == 1\nc.put(2, 2)\nassert c.get(1) == -1"])  # fmt: skip
def test_methods_of_a_class_are_called_by_name_or_as_those_of_a_dict(sandbox, test):
    wrong = LRU.replace("next(iter(self.d))", "[*self.d][-1]")
    right, other = sandbox.check([job(LRU, test, "LRU"), job(wrong, test, "LRU")])
    assert right.passed, str(right)
    assert (other.outcome, other.fault) == ("failed", "program")


@pytest.mark.parametrize(
    ("error", "raises"),
    [
        ("json.JSONDecodeError", "json.loads('x')"),
        ("re.error", "re.compile('(')"),
        ("struct.error", "struct.pack('i', 2**40)"),
        ("queue.Empty", "queue.Queue().get_nowait()"),
        ("decimal.InvalidOperation", "decimal.Decimal('x')"),
        ("configparser.NoSectionError", "configparser.ConfigParser().get('a', 'b')"),
    ],
)
def test_errors_of_modules_that_the_test_imports_keep_their_class(sandbox, error, raises):
    module = error.split(".")[0]
    test = f"import pytest, {module}\nwith pytest.raises({error}): f(3)"
    programs = [f"import {module}\ndef f(x): {raises}", "def f(x): raise Exception", "def f(x): 1"]
    right, *wrong = sandbox.check([job(program, test) for program in programs])
    assert right.passed, str(right)
    assert [v.fault for v in wrong] == ["program"] * 2


def test_the_class_of_a_typed_dict_makes_a_dict(sandbox):
    program = "from typing import TypedDict\nclass Row(TypedDict):\n    x: int"
    (verdict,) = sandbox.check(
        [Job(program, "from solution import Row\nassert Row(x=1)['x'] == 1", "")]
    )
    assert verdict.passed, str(verdict)


def test_an_error_says_what_its_own_class_says(sandbox):
    program = "class E(Exception):\n    def __str__(self): return f'bad {self.args[0]}'\ndef f(x): raise E(x)"
    test = "import pytest\nwith pytest.raises(Exception, match='bad 3'): f(3)"
    assert sandbox.check([job(program, test)])[0].passed


@pytest.mark.parametrize("call", ["eval(f(2))", "eval(x := f(2))"])
def test_a_test_that_would_run_what_the_program_returns_is_refused(quick, call):
    (verdict,) = quick.check([job("def f(x): return 'int(4)'", f"assert {call} == 4")])
    assert (verdict.outcome, verdict.fault) == ("rejected", "test"), str(verdict)
    assert "would run what the program returns" in verdict.reason


def test_a_test_may_evaluate_its_own_text(quick):
    own = job("def f(x): return 5", "for x in ['int(2) + 3']: assert f(x) == eval(x)")
    wrong = job("def f(x): return 4", "for x in ['int(2) + 3']: assert f(x) == eval(x)")
    assert [v.passed for v in quick.check([own, wrong])] == [True, False]


# A weak test, and tests that run the program's text: nobody could tell what passes from a solution.
PASS_IN_ONE_PROCESS = {
    "class-root contains", "exec in a helper", "sympy.simplify of a text", "yaml.unsafe_load",
    "compile apart",
}  # fmt: skip


def test_no_cheat_of_a_red_team_passes_and_the_next_program_is_judged():
    """Objects that answer like values, forged messages, and the program's text in the judge."""
    cheats = [
        json.loads(x) for x in (REPO / "tests" / "sandbox_cheats.jsonl").open(encoding="utf-8")
    ]
    jobs = [Job(c["program"], c["test"], c["entry_point"], c.get("setup", "")) for c in cheats]
    then = [job(GOOD, "assert add(1, 2) == 3", "add")] * 8
    # The limit leaves time to import sympy on a busy machine: a verdict must not depend on that.
    with Sandbox(workers=4, time_limit=10.0) as patient:
        verdicts = patient.check([*jobs, *then])
    assert all(v.passed for v in verdicts[len(jobs) :])
    names = {c["name"]: v for c, v in zip(cheats, verdicts, strict=False)}
    passed = {n: v.how for n, v in names.items() if v.passed}
    assert {n for n, how in passed.items() if how == "by value"} == set()
    assert passed.keys() == PASS_IN_ONE_PROCESS
    assert {n: str(v) for n, v in names.items() if v.fault == "sandbox"} == {}


@pytest.mark.parametrize(
    ("change", "back"),
    [
        ("math.isclose = lambda *_: True", "math.isclose = real"),
        ("decimal.getcontext().prec = 3", "decimal.getcontext().prec = 28"),
        ("builtins.sorted = lambda _: [1]", "builtins.sorted = ordered"),
    ],
)
def test_what_a_test_changes_does_not_reach_the_next_one(change, back):
    test = f"import builtins, decimal, math\nreal, ordered = math.isclose, sorted\n{change}\nf(1)\n{back}\nassert f(1)"
    then = "from decimal import Decimal\nimport math\nassert math.isclose(f(1), 5)\nassert str(1 / Decimal(f(3))) != '0.333' and sorted([2, 1]) == [1, 2]"
    with Sandbox(workers=1, time_limit=5.0) as one:
        verdicts = one.check([job("def f(x): raise ValueError", test)])
        verdicts += one.check([job("def f(x): return x", then)])
        verdicts += one.check([job("def f(x): return 5 if x == 1 else x", then)])
    assert [v.outcome for v in verdicts] == ["error", "failed", "passed"], [*map(str, verdicts)]


def test_the_words_of_a_difference_take_no_time(quick):
    test = "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(f(), [str(i) * 30 for i in range(500)])"
    (verdict,) = quick.check([job("def f(): return [str(i) * 29 for i in range(500)]", test)])
    assert (verdict.outcome, verdict.fault) == ("failed", "program")


def test_a_helper_called_assertion_is_no_case_of_its_own(quick):
    """As in HumanEval+: the assertions in it are the cases."""
    test = "def assertion(out, expected):\n    assert out == expected\ndef check(candidate):\n    for x in range(4):\n        assertion(candidate(x), x + 1)"
    (verdict,) = quick.check([job("def f(x): return 0", test)])
    assert verdict.fraction == 0


def test_a_fixture_teardown_and_marks_count_as_in_pytest(quick):
    head = "import pytest\nfrom solution import f\n"
    fails = {
        "teardown_method": "class TestIt:\n    def teardown_method(self): assert f(2) == 3\n    def test(self): f(1)",
        "inner class": "class TestIt:\n    class TestInner:\n        def test(self): assert f(2) == 3",
        "skipif": "@pytest.mark.skipif('sys.version_info < (3,)', reason='')\ndef test(): assert f(2) == 3",
        "xfail": "@pytest.mark.xfail(False, reason='')\ndef test(): assert f(2) == 3",
    }
    for name, test in fails.items():
        right, wrong = (f"def f(x): return x + {n}" for n in (1, 0))
        verdicts = quick.check([Job(right, head + test, ""), Job(wrong, head + test, "")])
        assert [v.passed for v in verdicts] == [True, False], (name, *map(str, verdicts))


@pytest.mark.parametrize(
    ("program", "test"),
    [
        ("import os\ndef f(): return os.environ['A']", "import os\nos.environ['A'] = '1'\nassert f() == '1'"),
        ("def f(): return input()", "import io, sys\nsys.stdin = io.StringIO('a')\nassert f() == 'a'"),
        ("import sys\ndef f(): return sys.argv[1]", "import sys\nsys.argv = ['a', 'b']\nassert f() == 'b'"),
        ("def f(path): open(path, 'w').close()", "import os\nf('/tmp/workbook-none')\nassert os.path.exists('/tmp/workbook-none')"),
    ],
)  # fmt: skip
def test_what_a_test_does_to_its_process_reaches_the_program(quick, program, test):
    if "open" in program and quick.isolation != "full":
        pytest.skip("there is no folder to write to")
    right, wrong = quick.check([job(program, test), job("def f(*x): pass", test)])
    assert right.passed, str(right)
    assert right.how.startswith("in one process")
    assert (wrong.passed, wrong.fault) == (False, "program"), str(wrong)


@pytest.mark.parametrize("error", ["StopIteration", "StopAsyncIteration", "GeneratorExit", "KeyboardInterrupt", "SystemExit"])  # fmt: skip
@pytest.mark.parametrize(
    "test",
    [
        "assert all(map(lambda x: f(x) == 5, [1, 2]))",
        "assert [y for x, y in zip([1], map(f, [1])) if y != 5] == []",
        "assert list(iter(lambda: f(1), 5)) == []",
        "assert next(map(f, [1]), 5) == 5",
        "def all_of():\n    for x in [1]: yield f(x) == 5\nassert all(all_of())",
        "import asyncio\nasync def all_of():\n    for x in [1]: yield f(x) == 5\n"
        "async def main(): return [x async for x in all_of()]\nassert all(asyncio.run(main()))",
    ],
)
def test_what_ends_a_loop_does_not_cross_as_itself(sandbox, error, test):
    own = f"class Own({error}): pass\ndef f(x): raise Own"
    for program in (f"def f(x): raise {error}", own):
        verdict = sandbox.check([job(program, test)])[0]
        assert (verdict.outcome, verdict.fault) == ("error", "program")


@pytest.mark.parametrize(
    ("test", "right"),
    [
        ("d = {'k': 5}\nassert f(d, 'k') == d.get('k')", "return d.get(k)"),
        ("from solution import f\nd = {'k': 5}\nassert f(d, 'k') == d.get('k')", "return d.get(k)"),
        ("import unittest\nclass T(unittest.TestCase):\n    def test_it(self):\n        d = {'k': 5}\n"
         "        self.assertEqual(f(d, 'k'), d.get('k'))", "return d.get(k)"),
        ("d = {'k': 5}\nf(d, 'k')\nassert d == {}", "d.clear()"),
        ("d = {'k': 5}\nr = f(d, 'k')\nassert (r or d) == {}", "d.clear()"),
        ("from solution import f\nd = {'k': 5}\nassert f(d, 'k') == 5\nassert d == {}", "return d.pop(k)"),
    ],
)  # fmt: skip
def test_no_answer_does_not_let_an_argument_fit_it(sandbox, test, right):
    programs = [f"def f(d, k): {body}" for body in (right, "d.clear()", "d[k] = None")]
    passed = [v.passed for v in sandbox.check([job(p, test) for p in programs])]
    assert passed == [True, right == "d.clear()", False]


def test_a_program_that_runs_no_assertion_has_not_passed(sandbox):
    test = "for x in f(3):\n    assert x == 1"
    assert sandbox.check([job("def f(x): return [1] * x", test)])[0].passed
    assert sandbox.check([job("def f(x): return []", test)])[0].outcome == "failed"


def test_an_argument_cannot_be_fitted_to_the_answer(sandbox):
    for test in (
        "a = [3, 1, 2]\nassert f(a) == sorted(a)",
        "a = [3, 1, 2]\nr = f(a)\nassert r == sorted(a)",
        "a = [3, 1, 2]\nr = f(a)\nassert len(r) == len(a) and sorted(r) == sorted(a)",
    ):
        for program in ("def f(a): a.clear(); return a", "def f(a): a[:] = [1]; return [1]"):
            assert sandbox.check([job(program, test)])[0].outcome == "failed", (program, test)
        assert sandbox.check([job("def f(a): return sorted(a)", test)])[0].passed
        assert sandbox.check([job("def f(a): a.sort(); return a", test)])[0].passed


LIAR = (
    "class Yes:\n    def __getattr__(self, name): return lambda *a: True\n    def __call__(self, *a): return self\n"
    + "".join(
        f"    def __{name}__(self, *a): return {value}\n"
        for name, value in {
            **dict.fromkeys("eq ne lt le gt ge contains bool instancecheck".split(), "True"),
            **dict.fromkeys("sub rsub add radd mul mod abs neg round getitem iter".split(), "self"),
            **dict.fromkeys("float".split(), "5.0"),
            **dict.fromkeys("int index len hash".split(), "5"),
            "str": "'5'",
        }.items()
    )
)


@pytest.mark.parametrize(
    "test",
    [
        "assert f(2) == 5", "assert 5 == f(2)", "assert not f(2) != 5", "assert f(2) in (5, 6)", "assert f(2) in {5: 1}",
        "assert abs(f(2) - 5) < 1e-6", "assert -1 < f(2) - 5 < 1", "assert f(2) < 6", "assert 4 < f(2)", "assert 6 > f(2)",
        "import math\nassert math.isclose(f(2), 5)", "assert round(f(2)) == 5", "assert 5 in f(2)", "assert f(2).startswith('a')",
        "assert f(2).isdigit()", "assert len(f(2)) == 5", "assert f(2).count(1) == 5", "assert isinstance(f(2), int)",
        "assert sorted(f(2)) == [5]", "assert [f(2)] == [5]", "assert {'a': f(2)} == {'a': 5}", "assert int(f(2)) == 5",
        "import numpy as np\nassert np.allclose(f(2), 5)", "import numpy as np\nassert (f(2) == np.array([5])).all()",
        "import numpy as np\nassert np.asarray(f(2)).sum() == 5", "assert f(2).is_integer()", "assert f(2) % 5 == 0",
        "assert f(2) & 1", "assert f(2) * 1 == 5", "x = f(2)\nx -= 5\nassert x == 0", "assert sum(f(2)) == 5", "assert range(9)[f(2)] == 5",
        "import unittest\nclass T(unittest.TestCase):\n    def test_it(self): self.assertAlmostEqual(f(2), 5)",
        "from unittest.mock import ANY\nassert f(2) == 5", "assert f(2) is True", "import pytest\nassert f(2) == pytest.approx(5)",
    ],
)  # fmt: skip
def test_an_object_that_says_yes_to_all_is_no_value(sandbox, test):
    for last in ("def f(x): return Yes()", "f = Yes()", "f = Yes", "class f(Yes):\n    def __init__(self, *a): pass"):  # fmt: skip
        verdict = sandbox.check([job(LIAR + last, test)])[0]
        assert not verdict.passed, last
        assert verdict.fault == "program", str(verdict)


ALWAYS_EQUAL = {
    "to all": "return True",
    "to all of a kind": "return isinstance(o, (int, P))",
    "once": "P.n += 1; return P.n == 1",
    "at the end": "P.n += 1; return P.n > 4",
}
POINT = "class P:\n    n = 0\n    def __init__(self, x): {}\n    def __eq__(self, o): {}\n"
POINT += "    def __add__(self, o): return P(self.x + o.x)\ndef f(p): return P(p.x + 1)"


@pytest.mark.parametrize(
    "test",
    [
        "from solution import P, f\nassert f(P(1)) == P(2)",
        "from solution import P, f\nassert P(2) == f(P(1))",
        "from solution import P\na = P(4)\nassert P(1) + P(3) == a",
        "from solution import P\nassert P(2) in [P(1), P(2)] and [P(2)] == [P(2)]",
        "import unittest\nfrom solution import P, f\nclass T(unittest.TestCase):\n"
        "    def test_it(self): self.assertEqual(f(P(1)), P(2))",
    ],
)
def test_an_equality_of_the_programs_class_is_believed_between_objects_of_equal_state(
    sandbox, test
):
    (honest,) = sandbox.check([job(POINT.format("self.x = x", "return self.x == o.x"), test, "")])
    assert honest.passed, str(honest)
    for name, end in ALWAYS_EQUAL.items():
        for made in ("pass", "self.x = len(str(id(self))) + id(self)"):
            program = POINT.format(made, end).replace("self.x + o.x", "1").replace("p.x + 1", "1")
            (liar,) = sandbox.check([job(program, test, "")])
            assert not liar.passed, (name, str(liar))


@pytest.mark.parametrize(
    "test",
    [
        "from solution import P\nassert P(2) == 2",
        "from solution import P\nassert 2 in [P(2)]",
        "from solution import P\nassert [P(2), 5] == [2, 5] and {'a': P(2)} == {'a': 2}",
        "from solution import P\nassert 1 < P(2) < 3",
    ],
)
def test_an_object_that_decides_whether_it_is_a_value_has_no_verdict(sandbox, test):
    """Nobody can tell an honest one from one that is equal to everything."""
    says = "return self.x == o\n    def __lt__(self, o): return self.x < o"
    says += "\n    def __gt__(self, o): return self.x > o"
    (verdict,) = sandbox.check([job(POINT.format("self.x = x", says), test, "")])
    assert (verdict.outcome, verdict.fault) == ("rejected", "test"), str(verdict)
    assert "decides what it is equal to" in verdict.reason


@pytest.mark.parametrize(
    "test",
    [
        "assert abs(f(P(1)) - 5) < 1e-6", "assert f(P(1)) < 6", "assert 4 < f(P(1))",
        "assert f(P(1)) == 5", "assert f(P(1)) in (5, 6)", "assert [f(P(1))] == [5]",
        "assert f(P(1)) * 1 == 5", "x = f(P(1))\nx -= 5\nassert x == 0", "assert float(f(P(1)) - 5) == 0",
        "import pytest\nassert f(P(1)) == pytest.approx(5)", "assert sorted([f(P(1)), 5]) == [5, 5]",
    ],
)  # fmt: skip
@pytest.mark.parametrize("last", ["return Yes()", "return P(x)"])
def test_an_object_of_a_class_that_the_test_names_is_no_value_either(sandbox, test, last):
    program = f"{LIAR}class P(Yes):\n    def __init__(self, *a): pass\n    def __call__(self, *a): return 0\n"
    program += f"def f(x): {last}"
    (verdict,) = sandbox.check([job(program, f"from solution import P, f\n{test}", "")])
    assert not verdict.passed, str(verdict)


def test_an_equality_that_holds_for_some_others_is_no_fault_of_the_program(sandbox):
    modulo = "class M:\n    def __init__(self, x): self.x = x % 3\n    def __eq__(self, o): return self.x == o.x"
    (verdict,) = sandbox.check([job(modulo, "from solution import M\nassert M(7) == M(1)", "")])
    assert verdict.passed or (verdict.outcome, verdict.fault) == ("rejected", "test")


@pytest.mark.parametrize(
    "end",
    [
        "raise ValueError",
        "import os; os._exit(0)",
        "return None",
        "while True: pass",
        "return Yes()",
    ],
)
@pytest.mark.parametrize(
    "test",
    [
        "def check(candidate):\n    for x in range(1, 21):\n        got = candidate(x)\n        assert got == (x, x + 1)",
        "def check(candidate):\n    for x in range(1, 21):\n        a, b = candidate(x)\n        assert (a, b) == (x, x + 1)",
        "def one(x):\n    got = f(x)\n    assert got == (x, x + 1)\n" + "".join(f"one({x})\n" for x in range(1, 21)),
        "import unittest\nclass T(unittest.TestCase):\n    def test_it(self):\n        for x in range(1, 21):\n"
        "            got = f(x)\n            self.assertEqual(got, (x, x + 1))",
        "def check(candidate):\n    for x in range(1, 21):\n        with open('/dev/null'):\n            assert candidate(x) == (x, x + 1)",
    ],
)  # fmt: skip
def test_giving_up_earns_no_more_than_a_wrong_answer(brief, test, end):
    """A case that was not reached counts as failed, also where the call stands before the assert."""
    wrong = "def f(x): return (x, x + 1) if x == 1 else (0, 0)"
    early = f"class Yes: pass\ndef f(x):\n    if x == 1: return (x, x + 1)\n    {end}"
    jobs = [job(wrong, test), job(early, test)]
    honest, gave_up = patiently(jobs, brief.check(jobs))
    assert honest.fraction == 0
    assert gave_up.fraction <= honest.fraction, str(gave_up)


@pytest.mark.parametrize(
    ("test", "long"),
    [
        ("for x in f(5):\n    assert x % 2 == 0\nassert len(f(5)) == 5", "return [0] * 5000"),
        ("for x in f(5):\n    assert x % 2 == 0\nassert len([*f(5)]) == 5", "yield from [0] * 5000"),
        ("def see(x):\n    assert x % 2 == 0\nf(see)\nassert f(see) == 5", "return [n(0) for _ in range(5000)]"),
        ("class T:\n    x = 0\nfor t in f(5):\n    assert t.x == 0\nassert len(f(5)) == 5",
         "return [type('T', (), {'x': 0})() for _ in range(5000)]"),
    ],
)  # fmt: skip
def test_a_long_answer_buys_no_cases(sandbox, test, long):
    """Of an assert in a loop over one answer no more cases count than the program has calls."""
    (verdict,) = sandbox.check([job(f"def f(n): {long}", test)])
    assert not verdict.passed
    assert verdict.fraction <= 2 / 3, str(verdict)


EMPTY = "import numpy as np\ndef f(x): return np.asarray(x)[None][:0]"


@pytest.mark.parametrize(
    "test",
    [
        "import pytest\nassert f(2) == pytest.approx(5.0)",
        "import pytest\nassert pytest.approx(5.0) == f(2)",
        "import numpy as np\nassert (f(np.array([1, 2])) == np.array([2, 3])).all()",
        "import numpy as np\nassert np.all(np.abs(f([1, 2]) - np.array([2, 3])) < 1e-6)",
        "import numpy as np\nassert np.linalg.norm(f([1, 2]) - np.array([2, 3])) < 1e-6",
    ],
)
def test_an_empty_array_fits_no_value(sandbox, test):
    pytest.importorskip("numpy")
    (verdict,) = sandbox.check([job(EMPTY, test)])
    assert (verdict.outcome, verdict.fault) == ("failed", "program"), verdict


def test_a_class_with_the_name_of_a_plain_type_is_the_programs_fault(sandbox):
    named = "class list: pass\nlist.__module__ = 'builtins'\ndef f(x): return list()"
    (verdict,) = sandbox.check([job(named, "assert f(3) == [4]")])
    assert (verdict.passed, verdict.fault) == (False, "program")


@pytest.mark.parametrize("message", ["b'[' * 200_000", """b'["raised", [5, "x"]]'""", "b'[]'"])
def test_a_script_that_forges_its_end_is_at_fault(sandbox, message):
    forge = (
        f"import os, struct\nm = {message}\nos.write(3, struct.pack('!I', len(m)) + m)\nos.close(1)"
    )
    verdicts = sandbox.check(
        [Job(forge, '{"inputs": ["1"], "outputs": ["2"]}', ""), job("f = abs")]
    )
    assert [(v.outcome, v.fault) for v in verdicts] == [("error", "program"), ("failed", "program")]


def test_a_forged_call_raises_nothing_in_the_test(sandbox):
    forge = "import json, os, struct\ndef f(g):\n    m = json.dumps([0, [0, ['Decimal', 'x']]]).encode()"
    forge += "\n    os.write(3, struct.pack('!I', len(m)) + m)\n    while True: pass"
    test = "import pytest\nwith pytest.raises(ArithmeticError): f(lambda: 1)"
    (verdict,) = sandbox.check([job(forge, test)])
    assert (verdict.outcome, verdict.fault) == ("error", "program"), verdict


FORGE_REPORT = """
import json, os, struct
def send(report):
    data = json.dumps(report).encode()
    os.write(3, struct.pack("!I", len(data)) + data)
class A:
    def __init__(self): send({report}); os._exit(0)
"""


@pytest.mark.parametrize(
    "report",
    ["[]", "5", "['', [], []]", "['', [], [[1, 'sandbox error', '', 'sandbox']]]", "[[], {}, [5]]"],
)
def test_a_forged_report_is_the_programs_fault(sandbox, report):
    program = FORGE_REPORT.replace("{report}", report)
    (verdict,) = sandbox.check([job(program, "from solution import A\nassert A()", "")])
    assert (verdict.outcome, verdict.fault) == ("error", "program"), str(verdict)
    assert verdict.reason == "the report is not the test's"


def test_what_a_script_does_at_its_exit_counts(sandbox):
    script = "import atexit\natexit.register(lambda: print(int(input()) + 1))"
    (verdict,) = sandbox.check([Job(script, '{"inputs": ["1"], "outputs": ["2"]}', "")])
    assert verdict.passed, verdict


@pytest.mark.parametrize(
    ("program", "test"),
    [
        ("def f():\n    x = yield\n    while True: x = yield x + 1", "g = f()\nnext(g)\nassert g.send(1) == 2"),
        ("async def f(g): return await g()", "import asyncio\nn = []\nasync def g():\n    n.append(1)\n"
         "    await asyncio.sleep(0)\n    return len(n)\nassert asyncio.run(f(g)) == 1"),
        ("all = []\ndef f(x): all.append(x)", "from solution import all, f\nf(1)\nassert all == [1]"),
        ("class Keeps:\n    def __init__(self, d): self.d = d\n    def put(self, k): self.d[k] = 1",
         "from solution import Keeps\nd = {}\nKeeps(d).put(1)\nassert d == {1: 1}"),
        ("def f(x): return sorted(x)", "class A:\n    def __lt__(self, o): return True\nassert f([A(), A()])"),
    ],
)  # fmt: skip
def test_what_no_value_can_show_is_judged_in_one_process(sandbox, program, test):
    (verdict,) = sandbox.check([job(program, test, "" if "solution" in test else "f")])
    assert verdict.passed, str(verdict)
    assert verdict.how.startswith("in one process: ")


def test_by_value_can_be_required(sandbox):
    tests = unit_tests(sandbox, require="by value", max_failed=1.0)
    values, objects = "assert f(3) == 4", "from solution import f\nassert f.__name__ == 'f'"
    program = "def f(x): return x + 1"
    assert tests([program] * 2, test=[values, objects], entry_point=["f", ""]) == [1.0, None]
    with pytest.raises(WorkbookError, match="in one process"):
        unit_tests(sandbox, require="by value")([program], test=[objects], entry_point=[""])
    with pytest.raises(WorkbookError, match="'both'"):
        unit_tests(sandbox, require="both")


@pytest.mark.parametrize(
    ("program", "test", "fault"),
    [
        ("def f(n): return [7] * n", "assert sum(f(2_000_000)) == 14_000_000", ""),
        ("def f(x): return len(x)", "assert f([7] * 2_000_000) == 2_000_000", ""),
        ("def f(x): return len(x)", "assert f([[7, 8]] * 200_000) == 200_000", ""),
        ("def f(n): return [[n, True, 'a', None, 0.5]] * n", "assert f(2) == [[2, True, 'a', None, 0.5]] * 2", ""),
        ("def f(x): return len(x)", "assert f('x' * 70_000_000) == 70_000_000", "test"),
        ("def f(n): return 'x' * n", "assert len(f(70_000_000)) == 70_000_000", "program"),
    ],
)  # fmt: skip
def test_a_large_value_crosses_and_one_that_is_too_large_is_named(sandbox, program, test, fault):
    (verdict,) = sandbox.check([job(program, test)])
    assert (verdict.passed, verdict.fault) == (not fault, fault), str(verdict)
    if fault:
        assert "MB of data" in verdict.reason


def test_an_error_of_the_program_that_the_test_takes_for_a_skip_is_no_pass(sandbox):
    test = (
        "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        try: r = f(1)"
    )
    test += "\n        except OSError: self.skipTest('no network')\n        self.assertEqual(r, 2)"
    test += "\n    @unittest.skip('slow')\n    def test_b(self): pass"
    programs = ["def f(x): raise OSError", "def f(x): return 2"]
    one, two = sandbox.check([job(program, test) for program in programs])
    assert (one.outcome, one.fault, two.outcome) == ("rejected", "test", "passed")


def test_a_short_time_limit_does_not_cost_the_isolation():
    with Sandbox(workers=1) as usual, Sandbox(workers=1, time_limit=0.001) as short:
        assert short.isolation == usual.isolation


def test_less_than_required_is_refused():
    with (
        Sandbox(workers=1, level="limits-only", require="full") as made,
        pytest.raises(WorkbookError, match="limits-only"),
    ):
        made.check([Job(GOOD, TEST, "add")])


def test_a_helper_that_only_the_program_defines_is_not_trusted(sandbox):
    program = "def f(x): return 0\ndef right(x, y): return True"
    test = "assert right(1, f(1))"
    assert not sandbox.check([job(program, test)])[0].passed
    setup = "def right(x, y): return x == y"
    assert sandbox.check([Job(program, test, "f", setup)])[0].outcome == "failed"


# ------------------------------------------------------------------ servers


@pytest.mark.slow
def test_killed_servers_come_back_and_no_job_is_lost(sandbox):
    jobs = [job(f"def f(x): return x + {i % 2}") for i in range(60)]
    sandbox.check(jobs[:2])
    for pid in servers_of(sandbox):
        os.kill(pid, signal.SIGKILL)
    assert [v.passed for v in sandbox.check(jobs)] == [bool(i % 2) for i in range(60)]
    for pid in descendants() - servers_of(sandbox):  # candidate servers and candidates
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    assert [v.passed for v in sandbox.check(jobs)] == [bool(i % 2) for i in range(60)]


def test_after_a_ctrl_c_the_rest_is_not_judged_and_no_stale_answer_is_read(sandbox):
    program = "import time\ndef f(x):\n    time.sleep(0.5)\n    return x"
    slow = [job(program, f"assert f({i}) == {i}") for i in range(30)]
    before = sandbox.counts.copy()
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        sandbox.check(slow)
    assert sandbox.counts == before
    jobs = [job("def f(x): return x", f"assert f({i}) == {i % 2}") for i in range(4)]
    assert [v.outcome for v in sandbox.check(jobs)] == ["passed", "passed", "failed", "failed"]


def test_servers_that_do_not_start_in_the_middle_of_a_batch_cost_no_step(monkeypatch):
    jobs = [job(f"def f(x): return x + {i % 2}") for i in range(20)]
    wanted = [bool(i % 2) for i in range(20)]

    def full(level):
        raise OSError("no process can be started")

    with warnings.catch_warnings(action="ignore"), Sandbox(workers=2, time_limit=5) as made:
        monkeypatch.setattr(made._workers[1], "_launch", full)
        assert [v.passed for v in made.check(jobs)] == wanted  # the other one judges all
        monkeypatch.setattr(made._workers[0], "_launch", full)
        made.close()
        verdicts = made.check(jobs)
        assert {(v.outcome, v.fault) for v in verdicts} == {("sandbox error", "sandbox")}
        assert "no process can be started" in verdicts[0].reason
        monkeypatch.undo()
        assert [v.passed for v in made.check(jobs)] == wanted
    with Sandbox(workers=2) as never:
        for worker in never._workers:
            monkeypatch.setattr(worker, "_launch", full)
        with pytest.raises(WorkbookError, match="no process can be started"):
            never.check(jobs)


def test_closing_leaves_no_process():
    with Sandbox(workers=2, time_limit=1.0) as made:
        made.check([job("import time\ndef f(x): time.sleep(9)"), job("def f(x): return x + 1")])
        ours = servers_of(made).union(*map(descendants, servers_of(made)))
        assert len(ours) >= 2  # those that judged the endless one have ended already
    assert until(lambda: not any(map(alive, ours)))


def test_a_killed_caller_leaves_no_process():
    script = (
        "from grpo_workbook.sandbox.pool import *\nimport warnings\nwarnings.simplefilter('ignore')\n"
        "s = Sandbox(workers=1, time_limit=60)\ns.probe()\nprint('up', flush=True)\n"
        "s.check([Job('while True: pass', 'assert f(1)', 'f')])\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=REPO)
    process.stdout.readline()
    time.sleep(0.3)
    below = descendants(process.pid)
    assert below
    process.kill()
    process.wait()
    process.stdout.close()
    assert until(lambda: not any(map(alive, below)))


@pytest.mark.slow
def test_a_thousand_checks_leave_nothing_behind(sandbox):
    jobs = [Job(GOOD, TEST, ENTRY_POINT)] * 200

    def size():
        pids = [os.getpid(), *servers_of(sandbox)]
        return len(os.listdir("/proc/self/fd")), sum(
            int(Path(f"/proc/{p}/statm").read_text().split()[1]) for p in pids
        ), len(descendants())  # fmt: skip

    sandbox.check(jobs)
    before = size()
    for _ in range(5):
        assert all(v.passed for v in sandbox.check(jobs))
    after = size()
    assert after[0] == before[0]
    assert after[1] - before[1] < 1000  # pages: 4 MB
    assert after[2] <= before[2] + 2


def test_each_program_samples_its_own_random_numbers(sandbox):
    one = job("import random\ndef f(x): return random.random()", "x = f(1)\nassert x > 1, str(x)")
    assert len({v.reason for v in sandbox.check([one] * 4)}) == 4
