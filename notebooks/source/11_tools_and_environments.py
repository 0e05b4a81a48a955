# %% [markdown]
# # 11 · Tools and environments
#
# **After this notebook you can** train a model that calls tools and plays several turns with TRL's own trainer; say
# which tokens earn a gradient; find the silent losses; and check a tool before a model does.
#
# **Time:** about 4 minutes on two CPU cores (smoke profile). A tiny model learns to use a calculator, when to use it,
# and a strategy over several turns.
#
# Until now a completion was one text. A model that acts writes a *call*, waits for the *result*, and goes on, perhaps
# many times. GRPO does not change: a group of such conversations for each problem, a reward for each, advantages. What
# changes is how a completion comes about, and which of its tokens the model is responsible for.

# %% [markdown]
# ## The loop of a turn
#
# 1. The model writes until its end token.
# 2. If the text holds a call, it is read (*parsed*), and the tool is run.
# 3. The result is appended to the conversation as a message, and the model writes again.
#
# It ends when the model writes a turn without a call, or when a limit is reached.

# %% tags=["hide-input"]
from grpo_workbook import figures

pale = figures.PALE
boxes = {
    "prompt": (0.08, 0.7, "prompt\n+ tools", pale["data"]),
    "model": (0.32, 0.7, "model writes\na turn", pale["model"]),
    "call": (0.6, 0.7, "Is there a call\nin it?", pale["check"]),
    "tool": (0.6, 0.2, "tool runs,\nresult appended", pale["number"]),
    "reward": (0.9, 0.7, "reward of the\nwhole transcript", pale["check"]),
}
arrows = [("prompt", "model", ""), ("model", "call", ""), ("call", "tool", "yes"),
          ("tool", "model", "next turn", -0.3), ("call", "reward", "no")]
figures.show(figures.diagram(boxes, arrows, (9.0, 2.8)),
             "Diagram: the model writes a turn. If it holds a call, the tool runs, its "
             "result is appended and the model writes again; else the whole transcript "
             "gets a reward.")

# %% [markdown]
# By hand, with a "model" that is a list of prepared turns. The messages are the ones that TRL uses:

# %%
def multiply(a, b):
    return a * b


call = {"type": "function",
        "function": {"name": "multiply", "arguments": {"a": 513, "b": 37}}}
prepared = iter([
    {"role": "assistant", "content": "", "tool_calls": [call]},
    {"role": "assistant", "content": "18981"},
])
messages = [{"role": "user", "content": "What is 513 times 37?"}]
while "tool_calls" in (turn := next(prepared)):
    messages.append(turn)
    for wanted in turn["tool_calls"]:
        result = multiply(**wanted["function"]["arguments"])
        messages.append({"role": "tool", "name": "multiply", "content": str(result)})
messages.append(turn)
for message in messages:
    print({k: v for k, v in message.items() if v})

# %% [markdown]
# ## A tool must check its calls
#
# What a tool gets is whatever the model wrote: JSON of any type and size. TRL passes it on unchecked, and in Python
# `"37" * 84` is a text of 168 characters. So the course's tools are decorated with `@tool`, which checks types and
# sizes, limits the time, and tells the model what was wrong:

# %%
from grpo_workbook.environments import multiply

wrong_calls = [{"a": "37", "b": 84}, {"a": True, "b": 84}, {"a": 37},
               {"a": 10**400, "b": 2}, {"a": 37, "b": 84}]
for arguments in wrong_calls:
    try:
        print("result:", multiply(**arguments))
    except Exception as error:
        print(f"{type(error).__name__}: {error}")

# %% [markdown]
# The model sees of a tool only its name, its docstring and its types, as a JSON schema. So the docstring is part of the
# prompt: write it for the model.

# %%
import json

from transformers.utils import get_json_schema

print(json.dumps(get_json_schema(multiply), indent=1))

# %% [markdown]
# ## The model and its tasks
#
# *tiny-tools* is a Qwen3 of 0.6 million parameters with Qwen3's own chat template. It can call three tools, but mostly
# does not: it answers out of its head. Two kinds of products: *easy* ones of single digits, which it mostly knows by
# heart, and *hard* ones, which it cannot do.

# %%
import os

from grpo_workbook import RunConfig, load_policy, quiet
from grpo_workbook.config import DATA

quiet()
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"  # environments are new in TRL
run = RunConfig.from_env(default_profile="smoke", max_steps=24)
if run.profile == "smoke":
    run = run.replace(model=str(DATA / "tiny-tools"))
    os.environ["HF_HUB_OFFLINE"] = "1"  # the model is on this disk: ask no network
run = run.replace(output=run.output / "tools")
model, tokenizer = load_policy(run)
print(run)

# %% [markdown]
# The rows have a `prompt`, the exact `answer`, and a `kind` that only we read:

# %%
from datasets import Dataset


def read(name):
    lines = (DATA / "tool_tasks" / f"{name}.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [row | {"prompt": [{"role": "user", "content": row["question"]}]}
            for row in rows]


train_rows, heldout_rows = read("products_train"), read("products_heldout")
for row in heldout_rows[:4]:
    print(row["kind"], "|", row["question"], "|", row["answer"])

# %% [markdown]
# ## What is rendered, token by token
#
# `replay` plays conversations as TRL's trainer does, but without training. Here is the first one in which the model
# called the tool and answered with its result. Every box is a token:

# %%
from grpo_workbook.environments import final_answer, replay

how = {"tools": [multiply], "max_turns": 3, "max_new_tokens": 128,
       "sample": True, "seed": run.seed}
before = replay(model, tokenizer, heldout_rows, **how)
shown = next(e for e, row in zip(before, heldout_rows)
             if e.calls and final_answer(e.messages) == row["answer"])
for message in shown.messages:
    print({k: v for k, v in message.items() if v})

# %% [markdown]
# Blue tokens were written by the model, orange ones by the tool and the template between two turns, grey ones are the
# prompt:

# %% tags=["hide-input"]
from html import escape

from IPython.display import HTML, display


def coloured(episode):
    """Every token of an episode as a box: whose is it?"""
    parts = [(token, "#e6e6e6") for token in episode.prompt_ids]
    parts += [(token, "#bcd9f2" if mine else "#f7cfa5")
              for token, mine in zip(episode.ids, episode.mask)]
    boxes = "".join(
        f'<span style="background:{colour};color:#000;margin:1px;padding:1px 3px;'
        f'border-radius:3px;display:inline-block">'
        f"{escape(repr(tokenizer.decode([token]))[1:-1][:34])}</span>"
        for token, colour in parts
    )
    return HTML(f'<div style="line-height:1.9;font-family:monospace">{boxes}</div>')


display(coloured(shown))

# %% [markdown]
# The long first tokens are the template's fixed sentences and the schema. In a real tokenizer they are hundreds of
# tokens; this tiny one has a token for each, so the model knows its tools by heart and cannot read a new one.
#
# **Only the blue tokens earn a gradient.** The orange ones were not sampled from the policy, so the formula of chapter
# 01 does not apply to them. TRL's `tool_mask` is 1 for blue and 0 for orange.

# %% [markdown]
# ## Before training
#
# Right means: the last message is the model's own, calls nothing, and is exactly the number. By kind, with the tool and
# without it (the prompt then names no tool):

# %%
def measured(episodes, rows=heldout_rows):
    """For each kind and for all: rate right, calls per conversation."""
    table = {}
    for kind in [*dict.fromkeys(row["kind"] for row in rows), "all"]:
        mine = [(e, row) for e, row in zip(episodes, rows) if kind in (row["kind"], "all")]
        right = [final_answer(e.messages) == row["answer"] for e, row in mine]
        table[kind] = (sum(right) / len(mine), sum(e.calls for e, _ in mine) / len(mine))
    return table


def show_table(**tables):
    print(f"{'':8}" + "".join(f"{name:>24}" for name in tables))
    for kind in next(iter(tables.values())):
        cells = [f"{t[kind][0]:10.1%} right {t[kind][1]:5.2f} calls" for t in tables.values()]
        print(f"{kind:8}" + "".join(f"{cell:>24}" for cell in cells))


alone = replay(model, tokenizer, heldout_rows, **how | {"tools": []})
show_table(with_tool=measured(before), without=measured(alone))

# %% [markdown]
# ## Training
#
# TRL's `GRPOTrainer` takes the tools as a list of functions. The reward gets each completion as a list of messages.
# `answer_after_tools` pays 1.0 for the exact final answer; it pays nothing for calling.

# %%
from transformers import PrinterCallback
from trl import GRPOTrainer
from grpo_workbook import training
from grpo_workbook.environments import answer_after_tools

turns = {"max_completion_length": 128, "max_tool_calling_iterations": 3}


def trainer_for(rows, reward, seed=run.seed, **more):
    args = run.replace(seed=seed).to_grpo_config([1.0], turns)
    adapters = [(p, p.data) for n, p in model.named_parameters() if "lora_" in n]
    trainer = GRPOTrainer(model, reward, args, Dataset.from_list(rows),
                          processing_class=tokenizer, **more)
    for parameter, exact in adapters:  # undo TRL's rounding to bfloat16: chapter 04
        parameter.data = exact.float()
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(training.RewardBar())
    return trainer


trainer = trainer_for(train_rows, answer_after_tools(), tools=[multiply])
result = trainer.train()

# %% [markdown]
# `tools/call_frequency` is TRL's: calls *per completion*. The other rates are those that `answer_after_tools` logs.

# %%
log = [entry for entry in trainer.state.log_history if "reward" in entry]
steps = [entry["step"] for entry in log]
names = {"reward": "reward", "tools/call_frequency": "calls per completion",
         "tools/failure_frequency": "failed calls, of all calls"}
lines = {text: (steps, [entry.get(name, 0.0) for entry in log])
         for name, text in names.items()}
figures.show(*figures.line_chart(
    lines, x="optimizer step", y="", markers=False,
    title="The calls come first, the reward follows",
))

# %% [markdown]
# ## After training, and with the tool taken away
#
# Held-out products again. The last column is the control: where the calculator is missing, what was learned must be
# gone, or it was something else.

# %%
after = replay(model, tokenizer, heldout_rows, **how)
taken = replay(model, tokenizer, heldout_rows, **how | {"tools": []})
show_table(before=measured(before), after=measured(after), taken_away=measured(taken))

# %% [markdown]
# The paired test of chapter 04 on the conversations before and after:

# %%
from grpo_workbook import paired_p_value


def right_ones(episodes, rows=heldout_rows):
    return [final_answer(e.messages) == row["answer"] for e, row in zip(episodes, rows)]


p_value = paired_p_value(right_ones(before), right_ones(after))
print(f"p = {p_value:.1g}")

# %% [markdown]
# ## A loss without a word: the result that does not fit
#
# `max_completion_length` bounds everything after the prompt, tool results included. A result that does not fit is
# dropped *after* the tool has run: the conversation ends with the call, the answer is empty, the reward is 0, and
# neither `clipped_ratio` nor any other metric of TRL shows it. The trained model once more, with 30 tokens instead of 128:

# %%
from grpo_workbook.environments import lost_result

narrow = replay(model, tokenizer, heldout_rows, **how | {"max_new_tokens": 30})
for name, episodes in (("128 tokens", after), ("30 tokens", narrow)):
    lost = sum(lost_result(e.messages) for e in episodes) / len(episodes)
    print(f"{name:12}{measured(episodes)['all'][0]:7.1%} right, {lost:6.1%} end in a call")

# %% [markdown]
# Every reward of such a run would say that calling is bad, and the model would stop calling. `answer_after_tools` logs
# the rate as `tools/lost_results`. Allow for the number of turns times call and result, plus the answer.

# %% [markdown]
# ## A strategy: an environment of several turns
#
# An *environment* is an object for each conversation: it keeps a secret and a state, its public methods are the tools,
# and it may pay the reward itself. `GuessNumber` hides a number from 1 to 15 and answers *higher* or *lower*; there are
# four guesses. A player who guesses at random within what is left finds about three in five, binary search finds all.

# %%
from grpo_workbook import show
from grpo_workbook.environments import Environment, GuessNumber

show(Environment, GuessNumber)

# %% [markdown]
# Two yardsticks, played by a few lines of Python: a player at random within what is left, and binary search.

# %%
import random


def play(choose, seed):
    """(found?, number of guesses) of one game."""
    game, low, high = GuessNumber(), 1, GuessNumber.highest
    game.reset(seed=seed)
    for turn in range(1, game.max_turns + 1):
        number = choose(low, high)
        said = game.guess(number=number)
        if said == "correct":
            return True, turn
        low, high = (number + 1, high) if said == "higher" else (low, number - 1)
    return False, turn


players = {"random": random.Random(0).randint, "binary": lambda a, b: (a + b) // 2}
limits = {}
for name, choose in players.items():
    found = [play(choose, seed) for seed in range(2000)]
    limits[name] = sum(won for won, _ in found) / len(found)
    print(f"{name:8}{limits[name]:6.1%} found")
