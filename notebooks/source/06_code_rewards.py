# %% [markdown]
# # 06 · Code rewards
#
# **After this notebook you can** pay a model for programs that pass their unit tests, without letting a program pay
# itself; choose between all-or-nothing and partial credit; and train on such a reward.
#
# **Time:** about 2 minutes on two CPU cores (smoke profile). On a GPU the same cells train a real model and measure it
# on HumanEval; the times there have not been measured yet.
#
# Unit tests look like the perfect reward: nobody has to judge, the program works or it does not. But the program that
# is judged also *runs*, and a program that runs can do anything, to the verdict too.

# %% [markdown]
# ## The common way, on four programs
#
# Write the program and its test into one file, run it, and read the exit code: 0 means passed.

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
# Four completions for "add two numbers". One is right, one is wrong, two are neither:

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
# The last two pass. One ended the process before the test began, and the other returns an object that is equal to
# everything. GRPO makes more likely whatever is paid, so one such completion in a group is enough to teach the trick.
# Running programs inside the trainer, with Python's own `exec`, is worse: there they can stop the training as well.

# %% [markdown]
# ## The same four in the sandbox
#
# A `Job` is a program, its test, and the name of the function that is tested. `sandbox.check` takes many at once and
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
# *Isolation* says what this machine can enforce. **full**: no network, no view of your files, nothing that can be
# written or started, and a table of processes of its own. **limits-only**: time, memory and system calls are limited,
# but your files can be read; the sandbox then warns once. `Sandbox(require="full")` refuses to go on with less.
#
# Three ideas make the verdict hold, wherever it runs:
#
# 1. The test runs in one process, the program in another. The program never sees the test.
# 2. Only **plain values** cross between them: numbers, texts, lists, tuples, sets, dicts and the like. The type must be
#    exactly one of these; a class that inherits from `int` or `list` is refused. This is the gate (`TAGS` are list,
#    tuple, set, frozenset and dict; `ITERATORS` and `VIEWS` are Python's own, such as `map` and `dict.keys()`):

# %%
from grpo_workbook import show
from grpo_workbook.sandbox import encode

show(encode)

# %% [markdown]
# 3. Nothing that the program does to its own process can say "passed". Only a test that ran to its end does.
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
# The last one is **rejected**: a test that never calls the function would pass anything. That is the test's fault, not
# the program's, and the reward will be `None` and not 0. The other jobs of the batch are judged all the same.

# %% [markdown]
# ## Attack it
#
# The collection holds programs that try to pass without solving anything, or to harm who runs them. All of them go
# through the sandbox. The common way, by exit code, gets only the kinds that do no harm outside of it.

# %%
import tempfile
from pathlib import Path

from grpo_workbook.sandbox import attacks

victim = Path(tempfile.mkdtemp()) / "victim.txt"
victim.write_text("still here")
collection = attacks.code_attacks(str(victim))
jobs = [Job(a.program, attacks.TEST, attacks.ENTRY_POINT) for a in collection]
with Sandbox(time_limit=0.5) as impatient:
    verdicts = impatient.check(jobs)

# %% [markdown]
# Zero is the only good number in the right column:

# %%
harmless = ("exits", "equality", "patching")
print(f"{'kind':24}{'programs':>9}{'pass by exit code':>20}{'pass in the sandbox':>21}")
for kind in dict.fromkeys(attack.kind for attack in collection):
    mine = [i for i, attack in enumerate(collection) if attack.kind == kind]
    naive = "not run"
    if kind in harmless:
        naive = sum(by_exit_code(collection[i].program, attacks.TEST) for i in mine)
    ours = sum(verdicts[i].passed for i in mine)
    print(f"{kind:24}{len(mine):9}{naive:>20}{ours:21}")
assert not any(v.passed for v in verdicts) and victim.read_text() == "still here"

# %% [markdown]
# *Patching* changes Python's own functions, pytest's reports, or the sandbox's judge. A plain `python -c` uses none of
# what these eight change, so it stands firm; a reward that runs pytest would not.
#
# And what became of them in the sandbox:

# %%
from collections import Counter

print(dict(Counter(v.outcome for v in verdicts)))

# %% [markdown]
# One cheat no sandbox can see: a program that knows the test's values by heart, `if a == 2: return 5`. Against that the
# test needs many different cases, and it must not stand in the prompt.

# %% [markdown]
# ## Tasks
#
# The course's own tasks have HumanEval's form: the beginning of a function, its name, a test, a solution. The held-out
# tasks share no combination of template and constant with the training tasks.

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
# First of all, the tests themselves: every solution must pass, or the reward would punish what is right.

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
# A step of GRPO judges 64 completions here. A new Python for each of them can take as long as the model's own part of
# the step. The sandbox starts a few small server processes once, and they fork for each job:

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
# Many guides call `python -m pytest` for each completion, which is slower still: `python benchmarks/code_rewards.py`
# measures all three side by side.

# %% [markdown]
# ## The model
#
# In the smoke profile it is the *tiny coder*: a Qwen3 of 0.7 million parameters that knows these one-line functions and
# shows it badly. On a GPU it is the Qwen3 that fits.

# %%
import os
from grpo_workbook import RunConfig, quiet

quiet()
run = RunConfig.from_env()
if run.profile == "smoke":
    smaller = {"max_steps": 60, "max_completion_length": 48}
    run = RunConfig.from_env(model=str(TINY_CODER), **smaller)
run = run.replace(output=run.output / "code")
if os.path.isdir(run.model):
    os.environ["HF_HUB_OFFLINE"] = "1"  # the model is on this disk: ask no network
print(run)

# %% [markdown]
# Loaded in 4-bit by Unsloth, with adapters, as in chapter 04:

# %%
import unsloth
import torch
from unsloth import FastLanguageModel

torch.manual_seed(run.seed)
model, tokenizer = FastLanguageModel.from_pretrained(
    model_name=run.model,
    max_seq_length=run.max_prompt_length + run.max_completion_length,
    dtype=getattr(torch, run.dtype),
    load_in_4bit=run.load_in_4bit,
    use_gradient_checkpointing="unsloth" if run.gradient_checkpointing else False,
)

# %% [markdown]
# The adapters:

# %%
model = FastLanguageModel.get_peft_model(
    model,
    r=run.lora_rank,
    lora_alpha=2 * run.lora_rank,
    lora_dropout=0.0,
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj",
                    "gate_proj", "up_proj", "down_proj"],
    use_gradient_checkpointing="unsloth" if run.gradient_checkpointing else False,
    random_state=run.seed,
)
tokenizer.padding_side = "left"

# %% [markdown]
# ## From a completion to a program
#
# The dataset for TRL: `prompt` is the conversation. The beginning of the function, which a completion may continue,
# is also kept as code in a column of its own, `prompt_code`.

# %%
from grpo_workbook import drop_long_prompts, render
from grpo_workbook.sandbox import to_code_dataset

train_set = to_code_dataset(train_tasks)
train_set, dropped = drop_long_prompts(train_set, tokenizer, run.max_prompt_length)
heldout_set = to_code_dataset(heldout_tasks[: run.heldout])
print(dropped, "dropped; columns:", ", ".join(train_set.column_names), "\n")
print(render([train_set[2]["prompt"]], tokenizer)[0])

# %% [markdown]
# A completion is a text and not a program. The program is the last fenced block that defines the function. Without
# such a block the text itself is taken as code, which continues the prompt unless it defines the function:

# %%
from grpo_workbook.sandbox import code_format_reward, program_of, unit_tests

show(program_of)

# %% [markdown]
# Two rewards. `unit_tests(sandbox)` pays 1.0 for a program that passes its whole test, else 0 (`unit_tests()` makes a
# sandbox of its own). With `partial=True` a program that does not pass gets half of the fraction of its assertions that
# held. `code_format_reward` pays 1.0 for exactly one fenced block of Python that can be parsed, 0.5 if it cannot, and
# runs nothing. The weights, 2 and 0.5, make the highest reward of a completion 2.5.

# %%
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
# When the sandbox or a test is at fault the reward is `None`, and when more than half of a batch is like that, or timed
# out, it raises: a run that cannot judge must stop, and not train on zeros.

# %% [markdown]
# ## What the model writes
#
# Groups of eight for 40 training tasks, sampled as in training, and judged once:

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
# Any program that does the same passes: a test judges what it does, not how it is written. And what looks right may be
# no program: when a block is never closed, its fence is read as code, and that is an error.

# %% [markdown]
# ## All or nothing, or partial credit?
#
# Both ways of paying, for these very completions. A zero-variance group teaches nothing (chapter 01), so this
# counts the groups whose rewards differ:

# %%
def teaching(groups):
    return sum(len(set(group)) > 1 for group in groups) / len(groups)


payments = {
    "all or nothing": lambda verdict: float(verdict.passed),
    "partial credit": lambda verdict: 1.0 if verdict.passed else 0.5 * verdict.fraction,
}

# %% [markdown]
# The same completions, cut into groups of 2, 4 and 8. The last pair of bars imitates a model that never passes: from
# each task with at least four failed completions, a group of four of them.

# %%
from grpo_workbook import figures

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
labels = ["groups of 2", "groups of 4", "groups of 8", "4 that failed"]
figures.show(*figures.bar_chart(
    rates, labels, y="fraction of groups that teach",
    title="Groups in which the rewards differ",
    finding="Partial credit matters where nothing passes.",
))

# %% [markdown]
# While the model passes now and then, partial credit adds next to nothing. Where it never passes, all or nothing says
# nothing, and partial credit still differs in some of the groups. But what does it say? Below is what a program earns
# that ignores its task and always returns the same:

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
#   tests with many different answers. Watch what is written: `return False` is a local optimum, a small reward that
#   every little change makes smaller.
#
# This model passes now and then.

# %% [markdown]
# ## The baseline
#
# *pass@1* is the rate of tasks whose one completion passes (chapter 08 has pass@k). Sampled as training samples, and
# greedy:

# %%
from grpo_workbook import paired_p_value, wilson_interval
from grpo_workbook.sandbox import pass_at_1


def measured(data):
    """pass@1 sampled, with its interval, and greedy; the form; each task's outcome."""
    sampled, texts = pass_at_1(model, tokenizer, data, sandbox, sample=True, **how)
    greedy, _ = pass_at_1(model, tokenizer, data, sandbox, **how)
    passed = [verdict.passed for verdict in sampled]
    form = code_format_reward(completions=texts)
    return {
        "sampled": sum(passed) / len(passed),
        "ci95": wilson_interval(passed),
        "greedy": sum(verdict.passed for verdict in greedy) / len(greedy),
        "form": sum(value == 1.0 for value in form) / len(form),
        "passed": passed,
    }


before = measured(heldout_set)
print({name: value for name, value in before.items() if name != "passed"})

# %% [markdown]
# ## Training
#
# TRL's trainer, the config of chapter 04, and the two rewards. The dataset's columns `test`, `entry_point` and
# `prompt_code` reach the reward by their names. The bar shows the mean reward, at most 2.5.

# %%
from transformers import PrinterCallback
from trl import GRPOTrainer
from grpo_workbook import stop_on_interrupt, training

trainer = GRPOTrainer(
    model=model,
    processing_class=tokenizer,
    args=run.to_grpo_config(weights),
    reward_funcs=functions,
    train_dataset=train_set,
)
trainer.remove_callback(PrinterCallback)
trainer.add_callback(training.RewardBar())
with stop_on_interrupt(trainer):
    result = trainer.train()

# %% [markdown]
# The reward wrote the rate of each outcome into TRL's log (`code/passed`, `code/failed` and so on), which says more than
# the reward alone. *Failed*: an assertion did not hold. *Error*: the program is broken, or defines nothing.

# %%
log = [entry for entry in trainer.state.log_history if "reward" in entry]
steps = [entry["step"] for entry in log]
lines = {}
for name in ("passed", "failed", "error", "timeout"):
    values = [entry.get(f"code/{name}", 0.0) for entry in log]
    lines[name] = (steps, figures.smooth(values))
figures.show(*figures.line_chart(
    lines, x="optimizer step", y="fraction of the completions", markers=False,
    title="What became of the programs (mean of 7 steps)",
    finding="More pass, fewer fail or break.",
))

# %% [markdown]
# A rate of timeouts that rises would mean that the machine is too busy, or that the model has found endless loops.

# %% [markdown]
# ## Did it learn?
#
# The held-out tasks, again one completion each:

# %%
after = measured(heldout_set)
names = {"sampled": "pass@1, sampled", "greedy": "pass@1, greedy",
         "form": "one block of Python"}
bars = {"before": [before[name] for name in names],
        "after": [after[name] for name in names]}
figures.show(*figures.bar_chart(bars, list(names.values()), y="fraction of tasks",
                               title=f"{len(heldout_set)} held-out tasks",
                               finding="More pass after training."))

# %% [markdown]
# With its interval, and the paired test of chapter 04:

# %%
p_value = paired_p_value(before["passed"], after["passed"])
for when, scores in (("before", before), ("after", after)):
    low, high = scores["ci95"]
    rate = scores["sampled"]
    print(f"pass@1 {when:7}{rate:.3f}, 95 % interval {low:.3f} to {high:.3f}")
print(f"p = {p_value:.1g}")

# %% [markdown]
# This model could do it before: what it learned is to do it each time. That is what GRPO is good at, with a large model
# too. What a model never writes in many tries, no reward can make more likely.

# %% [markdown]
# This cell is for the machine that runs the notebook on every change: it fails when training did not happen, or did
# not help.

# %%
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
# 164 tasks that models have been compared on for years (Chen et al. 2021, MIT licence). Here the columns are the same,
# so the same functions read and judge them. Switching the adapter off gives the model before training.
#
# Nothing is trained on it here: what is measured must not be learned. A large model may have read it long ago, so
# compare its scores before and after, and not with other people's. For a real model our one-line functions are too
# easy to learn much from; take harder tasks of your own, or MBPP's training part.

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
# Write the function and run its cell: it answers. `python -m grpo_workbook progress` lists what you have solved.

# %% [markdown]
# ### Exercise 06.1 · `last_block` · medium · 8 minutes
#
# Of the fenced blocks in a text, those count whose opening fence says `python` or nothing, and that are closed. Return
# the code of the last one, from the line after its opening fence to its closing fence, and `None` where there is none.

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
# ### Exercise 06.2 · `partial_reward` · easy · 5 minutes
#
# The reward of a program that passed `passed` of its test's `total` assertions: 1.0 when it passed all, else half of
# the fraction that it passed. A test without any assertion is an error: raise `ValueError`.

# %% tags=["exercise"]
def partial_reward(passed: int, total: int) -> float:
    raise NotImplementedError


check("06.2", partial_reward);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Look at `total` first: 0 of 0 is all of them.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def partial_reward(passed: int, total: int) -> float:
#     if total < 1:
#         raise ValueError("a test without an assertion would pay for anything")
#     return 1.0 if passed == total else 0.5 * passed / total
# ```
#
# </details>

# %% [markdown]
# ### Exercise 06.3 · `same` · hard · 10 minutes
#
# Is `a`, which a program returned, the same as the expected `b`? The types must be the same, not merely related; lists
# and tuples are compared item by item, by the same rule. `a`, or an item of it, may be an object that says it is equal
# to everything.

# %% tags=["exercise"]
def same(a: object, b: object) -> bool:
    raise NotImplementedError


check("06.3", same);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `type(a) is type(b)` cannot be fooled; `isinstance` and `__class__` can. Only when it holds may you ask `a == b`.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def same(a: object, b: object) -> bool:
#     if type(a) is not type(b):
#         return False
#     if type(b) in (list, tuple):
#         return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
#     return a == b
# ```
#
# </details>

# %% [markdown]
# ### Exercise 06.4 · `outcome_rewards` · medium · 8 minutes
#
# One reward for each outcome: 1.0 for `"passed"`, `None` for `"sandbox error"`, 0.0 for everything else. When the rate
# of outcomes that are `"sandbox error"` or `"timeout"` is more than `max_failed`, raise `RuntimeError`.

# %% tags=["exercise"]
def outcome_rewards(outcomes: list[str], max_failed: float) -> list[float | None]:
    raise NotImplementedError


check("06.4", outcome_rewards);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Count first, then build the list. Exactly `max_failed` is still allowed.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def outcome_rewards(outcomes: list[str], max_failed: float) -> list[float | None]:
#     failed = sum(outcome in ("sandbox error", "timeout") for outcome in outcomes)
#     if failed > max_failed * len(outcomes):
#         raise RuntimeError(f"{failed} of {len(outcomes)} programs could not be judged")
#     values = {"passed": 1.0, "sandbox error": None}
#     return [values.get(outcome, 0.0) for outcome in outcomes]
# ```
#
# </details>

# %% [markdown]
# ### Exercise 06.5 · `fraction_caught` · medium · 8 minutes
#
# How good is a test? Give it wrong programs and see how many it catches. `cases` are `(arguments, expected)` pairs,
# where `arguments` is a tuple; `programs` are functions. A program is caught when it returns another value than
# expected in at least one case, or raises an exception. Return the fraction of the programs that are caught.

# %% tags=["exercise"]
from collections.abc import Callable


def fraction_caught(cases: list[tuple], programs: list[Callable]) -> float:
    raise NotImplementedError


check("06.5", fraction_caught);

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
# ## Before you train on code, a checklist
#
# - Every reference solution passes its own test, and the same with one operator changed fails it.
# - The test does not stand in the prompt.
# - `sandbox.isolation` is what you think it is; the log shows `code/timeout` and `code/sandbox error`.
# - All or nothing if the model passes now and then; capped partial credit if it never does.
# - What you measure on, nobody trains on.

# %% [markdown]
# ## Summary
#
# - An exit code says how a process ended, not what a program computed. Two lines of Python pass it.
# - The test runs in one process and the program in another, and only plain values of exact types cross.
# - Forking from a small server that is started once makes 64 checks cheap.
# - Partial credit makes fewer zero-variance groups, and pays for guesses. It is no free lunch.
# - pass@1 on held-out tasks, with an interval, says whether it helped.
#
# Next: [07 · Stages and curriculum](07_stages_and_curriculum.ipynb): does the order of rewards and problems matter?
