# %% [markdown]
# # 11 · Tools and environments
#
# How do you train a model that acts, that is a model that calls a tool, reads the result, and goes on? A tool gives the
# model what it lacks: a small language model multiplies 513 by 37 badly, and it cannot know the prices of today.
#
# With TRL's own trainer, this chapter trains a tiny model to use a calculator. (It had learned this before, and was
# then trained to call rarely, so that a few minutes of training can bring it back.) Then the chapter gives each call a
# price, and trains the model in the same way to play a game over several turns.
#
# **After this notebook you can** train a model that calls tools and plays several turns; tell which tokens earn a
# gradient; find tool results that were dropped without a warning; and check a tool before a model uses it.
#
# **Time:** about 4 minutes on two CPU cores. (The stored run was made on a slower machine, so its bars show a longer
# time.) Reading takes about 40 minutes, the exercises an hour more. **You need** the chapters 01, 03 and 04.
#
# **Models:** of the course's two families TRL accepts Qwen3 here and refuses Gemma 3 (the list is near the end).

# %% [markdown]
# ## The loop of a turn
#
# Until now a completion was one text. A model that acts writes a *call*, waits for the *result*, and goes on, perhaps
# many times. What it writes until its end token is a **turn**. One round has three steps:
#
# 1. The model writes a turn: a call, or the answer.
# 2. If the turn contains a call, a program reads the call and runs the tool.
# 3. The result is appended to the conversation as a message, and the model writes again.
#
# The conversation ends when the model writes a turn without a call, as in the figure, or when a limit is reached. All
# its messages after the prompt are the **transcript**: the model's turns and the tools' results. For GRPO the
# transcript is the completion. In the code, a whole conversation is an *episode*.
#
# GRPO samples a group of conversations for each problem, gives each one a reward, and computes advantages, as before.
# Only two things change: a completion now consists of several turns, and the model did not write all of its tokens.

# %% tags=["hide-input"]
from grpo_workbook import figures

pale = figures.PALE
boxes = {
    "prompt": (0.08, 0.7, "prompt\n+ tools", pale["off"]),
    "model": (0.32, 0.7, "model writes\na turn", pale["data"]),
    "call": (0.6, 0.7, "Is there a call\nin it?", pale["check"]),
    "tool": (0.6, 0.2, "tool runs,\nresult appended", pale["number"]),
    "reward": (0.9, 0.7, "reward of the\nwhole transcript", pale["check"]),
}
arrows = [("prompt", "model", ""), ("model", "call", ""), ("call", "tool", "yes"),
          ("tool", "model", "next turn", -0.3), ("call", "reward", "no")]
figure = figures.diagram(boxes, arrows, (9.0, 2.8))
figure.suptitle("The model acts until it writes a turn without a call", y=1.0)
figures.show(figure, "Diagram: the model writes a turn. If it holds a call, the tool "
             "runs, its result is appended and the model writes again; else the whole "
             "transcript gets a reward.")

# %% [markdown]
# The prompt is grey, what the model writes is blue, the tool is orange, and programs that judge it are green.
#
# The next cell runs this loop by hand. Its "model" is a list of prepared turns, and the messages have the form that TRL
# uses:

# %%
def product(a, b):
    return a * b


function = {"name": "product", "arguments": {"a": 513, "b": 37}}
call = {"type": "function", "function": function}
prepared_turns = [
    {"role": "assistant", "tool_calls": [call]},
    {"role": "assistant", "content": "18981"},
]
messages = [{"role": "user", "content": "What is 513 times 37?"}]
for turn in prepared_turns:
    messages.append(turn)
    for call in turn.get("tool_calls", []):
        result = product(**call["function"]["arguments"])
        messages.append({"role": "tool", "name": "product", "content": str(result)})
for message in messages:
    print(message)

# %% [markdown]
# ## The model and its tasks
#
# *tiny-tools* is a Qwen3 of 0.6 million parameters with Qwen3's own chat template. It learned to call three tools, to
# copy a result and to play a game. Then it was given bad habits on purpose: it calls rarely, and some of its calls are
# broken ([its card](../data/tiny-tools/README.md)). So the right behaviour is there, though rare, and GRPO can
# reinforce it. How far training would bring a model that never learned to use a tool, this chapter does not show.
#
# The folded cell chooses the *profile*, the settings that fit this machine. Without a GPU its model is *tiny-tools*:

# %% tags=["hide-input"]
import os

from grpo_workbook import choose_profile, config, load_policy, quiet, use_one_thread
from grpo_workbook.environments import TINY_TOOLS

quiet()  # fewer warnings of the libraries
use_one_thread()  # for a tiny model several threads only wait for each other
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"  # environments are new in TRL
STEPS = 40


def tools_profile(seed=None):
    """The profile of this machine, with the tiny model that can call tools."""
    common = {"max_steps": STEPS, "save_strategy": "no"}
    profile = choose_profile(default="smoke", seed=seed, grpo=common)
    if profile.name != "smoke":
        return profile  # a GPU: its own model can call tools
    tiny = {**common, "per_device_train_batch_size": 32, "learning_rate": 1e-3}
    return choose_profile("smoke", model=TINY_TOOLS, seed=seed, grpo=tiny)


profile = tools_profile()
if os.path.isdir(profile.model):
    os.environ["HF_HUB_OFFLINE"] = "1"  # the model is on this disk: no network needed
print(profile)

# %% [markdown]
# `load_policy` loads the model of the profile and adds a new LoRA adapter:

# %%
model, tokenizer = load_policy(profile)

# %% [markdown]
# The tasks are two kinds of products. *Easy* ones have single digits, and the model knows some of them by heart. *Hard*
# ones have larger numbers, and it cannot compute them. Each row of the data has a `prompt`, the exact `answer`, and a
# `kind`, which the model does not see.
#
# Every policy of this chapter is measured on 160 *held-out* rows, which are not in the training data. A hard product of
# these rows occurs nowhere in the training data. Nearly every easy one does, mostly in other words, because there are
# only few products of single digits. So an easy rate is about products that the policy has trained on.

# %%
import json

from datasets import Dataset


def read_rows(name):
    text = (config.DATA / "tool_tasks" / f"{name}.jsonl").read_text(encoding="utf-8")
    rows = []
    for line in text.splitlines():
        row = json.loads(line)
        row["prompt"] = [{"role": "user", "content": row["question"]}]
        rows.append(row)
    return rows


train_rows = read_rows("products_train")
heldout_rows = read_rows("products_heldout")[:160]
for row in heldout_rows[:4]:
    print(row["kind"], "|", row["question"], "|", row["answer"])
print(Dataset.from_list(heldout_rows).to_pandas()["kind"].value_counts().to_dict())

# %% [markdown]
# ## A tool: what the model sees, and what it checks
#
# A tool is a Python function. This is the course's `multiply`, which replaces `product` from above:

# %%
from grpo_workbook import show
from grpo_workbook.environments import CallError, multiply, tool

show(multiply)

# %% [markdown]
# Of this function, the model sees only the name, the docstring and the types of the arguments, as a JSON schema. So the
# docstring is part of the prompt: write it for the model. This is the schema:

# %%
from transformers.utils import get_json_schema

print(json.dumps(get_json_schema(multiply), indent=1))

# %% [markdown]
# What does `@tool` do? A model may write arguments of any type and size. TRL passes them on unchecked, and in Python
# `"37" * 84` is a text of 168 characters. So `@tool` checks types and sizes, limits the time, and raises a `CallError`
# that says what was wrong. TRL appends its text as the tool's result, so the model can read it. Here are four wrong
# calls and a right one:

# %%
calls = [{"a": "37", "b": 84}, {"a": True, "b": 84}, {"a": 37}, {"a": 10**400, "b": 2}]
for arguments in calls:
    try:
        multiply(**arguments)
    except CallError as error:
        print("CallError:", error)
print("result:", multiply(a=37, b=84))

# %% [markdown]
# ## A conversation, token by token
#
# `play_episodes` plays conversations as TRL's trainer does, but without training. The next cell plays the held-out
# products. Then it shows the first conversation in which the model called the tool and answered with its result:

# %%
from grpo_workbook.environments import final_answer, play_episodes


def play_products(model, tools, room=128, rows=heldout_rows):
    """One conversation for each row, with at most `room` tokens after the prompt."""
    return play_episodes(
        model, tokenizer, rows, tools=tools, max_turns=3, max_new_tokens=room,
        sample=True, seed=profile.seed, batch_size=80,
    )


before = play_products(model, [multiply])
for example, row in zip(before, heldout_rows):
    if example.calls > 0 and final_answer(example.messages) == row["answer"]:
        break
for message in example.messages:
    print(message)

# %% [markdown]
# Every box below is a token. Blue tokens were written by the model. Orange tokens were written by the tool, or by the
# template between two turns. (Qwen3's template writes a tool's result as a turn of the *user*.) Grey tokens are the
# prompt.

# %% tags=["hide-input"]
from html import escape

from IPython.display import HTML, display


def box(token, colour):
    text = repr(tokenizer.decode([token]))[1:-1][:34]
    style = f"background:{colour};color:#000;margin:1px;padding:1px 3px"
    style += ";border-radius:3px;display:inline-block"
    return f'<span style="{style}">{escape(text)}</span>'


def coloured(episode):
    """Every token of an episode as a box: who wrote it?"""
    parts = [box(token, "#e6e6e6") for token in episode.prompt_ids]
    for token, written_by_model in zip(episode.ids, episode.mask):
        parts.append(box(token, "#bcd9f2" if written_by_model else "#f7cfa5"))
    style = "line-height:1.9;font-family:monospace"
    return HTML(f'<div style="{style}">{"".join(parts)}</div>')


display(coloured(example))

# %% [markdown]
# The long first tokens are the template's fixed sentences and the schema. In a real tokenizer they are hundreds of
# tokens. This tiny tokenizer has one token for each of them. So the model knows its three tools (`multiply`, and later
# `lookup` and `guess`) by heart, and cannot read the schema of a new one.
#
# **Only the blue tokens earn a gradient.** The policy did not sample the orange ones, so they hold no choice of the
# model that GRPO could reinforce. TRL's `tool_mask` is 1 for blue tokens and 0 for orange ones.
#
# <details><summary>For the curious: why not make the tokens again from the messages?</summary>
#
# The mask fits only the tokens as they were sampled. So TRL keeps the token ids of every turn and appends those of the
# results. Tokens that are made again from the messages may differ: the same text can be cut into other tokens, and a
# template may change earlier turns (Qwen3's removes their thinking).
#
# </details>

# %% [markdown]
# ## Before training
#
# A conversation counts as right if its last message is the model's own, calls nothing, and is exactly the number. The
# next folded cell computes the fraction of right conversations, and the calls per conversation:

# %% tags=["hide-input"]
def measured(episodes, rows):
    """{kind: (rate right, calls per conversation)}, and the same for all rows."""
    table = {}
    kinds = sorted({row["kind"] for row in rows})
    for kind in [*kinds, "all"]:
        right = []
        calls = []
        for episode, row in zip(episodes, rows):
            if kind in ("all", row["kind"]):
                right.append(episode.right(row))
                calls.append(episode.calls)
        table[kind] = (sum(right) / len(right), sum(calls) / len(calls))
    return table


def show_tables(tables):
    print(" " * 8 + "".join(f"{name:>24}" for name in tables))
    first_table = next(iter(tables.values()))
    for kind in first_table:
        line = f"{kind:8}"
        for table in tables.values():
            rate, calls = table[kind]
            line += f"{rate:7.1%} right{calls:5.2f} calls".rjust(24)
        print(line)

# %% [markdown]
# Play once more without the tool (the prompt then names none), and compare:

# %%
without_tool = play_products(model, [])
rates_before = measured(before, heldout_rows)
rates_without = measured(without_tool, heldout_rows)
show_tables({"with the tool": rates_before, "without": rates_without})

# %% [markdown]
# Most answers are wrong, and calls are rare. Without the tool no hard product is right, so each right one in the left
# column is due to a call. (Only 36 products are easy, so their rates are uncertain by up to 16 points to each side;
# those of the 124 hard ones by up to 9, see [chapter 08](08_evaluation.ipynb).)
#
# ## Training
#
# TRL's `GRPOTrainer` takes the tools as a list of functions. A reward function gets each completion as a list of
# messages. Three names in the next cell are new:
#
# - `get_tool_answer_reward` makes a reward that is 1 for the exact final answer and adds nothing for a call.
# - `watch` adds metrics about the calls to the log.
# - `max_tool_calling_iterations` limits the turns with calls in a conversation (`max_turns` above).

# %%
from grpo_workbook import Float32Adapters, RewardBar
from grpo_workbook.diagnosis import watch
from grpo_workbook.environments import get_tool_answer_reward
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

folder = profile.output / "tools"
settings = {**profile.grpo, "max_completion_length": 128}
args = GRPOConfig(str(folder / "run"), max_tool_calling_iterations=3, **settings)
trainer = GRPOTrainer(
    model, watch([get_tool_answer_reward()]), args, Dataset.from_list(train_rows),
    processing_class=tokenizer, tools=[multiply],
    callbacks=[Float32Adapters(model), RewardBar()],
)
trainer.remove_callback(PrinterCallback)  # the bar shows the same in one line
trainer.train();

# %% [markdown]
# The figure shows three metrics of the log. *Calls per completion* is TRL's `tools/call_frequency`:

# %%
def reward_log(trainer):
    """The log entries of the training steps."""
    return [entry for entry in trainer.state.log_history if "reward" in entry]


def curve(entries, metric):
    """(steps, values) of a metric."""
    steps = [entry["step"] for entry in entries]
    return steps, [entry.get(metric, 0.0) for entry in entries]


log = reward_log(trainer)
lines = {
    "reward": curve(log, "reward"),
    "calls per completion": curve(log, "tools/call_frequency"),
    "failed calls, of all calls": curve(log, "tools/failure_frequency"),
}
figure, words = figures.line_chart(
    lines, x="optimizer step", y="value of the metric", markers=False,
    title="Calls and reward rise together",
)
figures.show(figure, words)

# %% [markdown]
# The reward is the fraction of right answers. It rises together with the calls, so the model learned to call and to
# answer with the result. Failed calls become rare.
#
# ## After training, and with the tool taken away
#
# Play the held-out products again. The last column is a control without the calculator: if the gain came from it, the
# gain must disappear.

# %%
after = play_products(model, [multiply])
taken_away = play_products(model, [])
rates_after = measured(after, heldout_rows)
rates_taken = measured(taken_away, heldout_rows)
show_tables({"before": rates_before, "after": rates_after, "taken away": rates_taken})

# %% [markdown]
# Without the calculator the gain is gone. Even the easy products are wrong now: the model goes on calling a tool that
# its prompt does not name (1.68 calls per conversation), and these calls fail.
#
# The gain is far larger than the uncertainty of these rates. (Whether another run gains as much, one run cannot
# show; three earlier runs ended between 93 and 95 %, [as measured](../docs/measurements.md#a-model-that-acts).)
#
# ## A silent loss: the result that does not fit
#
# A wrong setting can take the whole gain away. `max_completion_length` (`room` above) limits everything after the
# prompt, including tool results. A result that does not fit is dropped *after* the tool has run. Then the conversation
# ends with the call: there is no answer, so the reward is 0. No metric of TRL shows that. Even `clipped_ratio` does
# not: it counts texts without an end token, and the call has one.
#
# `lost_result` recognises such a conversation by its last message, which is a call. (So it also counts one that has
# used up its turns with calls.) Play the trained model with different limits:

# %%
from statistics import mean

import numpy as np
from grpo_workbook.environments import lost_result

rooms = [10, 20, 30, 40, 50, 60, 80]
some_rows = heldout_rows[:64]
right_rates = []
lost_rates = []
for room in rooms:
    episodes = play_products(model, [multiply], room=room, rows=some_rows)
    right_rate, _ = measured(episodes, some_rows)["all"]
    right_rates.append(right_rate)
    lost_rates.append(mean(lost_result(episode.messages) for episode in episodes))

# %% [markdown]
# Each bar is one limit, and its parts show how its 64 conversations ended. The hatched part is what `lost_result`
# recognises:

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(7.5, 3.2)
right_part, lost_part = np.array(right_rates), np.array(lost_rates)
other_part = 1 - right_part - lost_part
places = range(len(rooms))
axes.bar(places, right_part, color=figures.BLUE, label="right")
axes.bar(places, lost_part, bottom=right_part, color=figures.ORANGE, hatch="//",
         edgecolor="white", label="ended in a call")
axes.bar(places, other_part, bottom=right_part + lost_part, color="#CCCCCC",
         label="wrong in another way")
axes.set_xticks(places, rooms)
axes.set(xlabel="max_completion_length, tokens", ylabel="fraction of conversations")
enough = [room for room, rate in zip(rooms, right_rates) if rate > 0.5]
title = "No limit is enough for call, result and answer"
if enough:
    title = f"Below {enough[0]} tokens call, result or answer does not fit"
axes.set_title(title, loc="left")
figure.legend(loc="outside lower center", ncols=3, frameon=False)
parts = []
for room, right_rate, lost_rate in zip(rooms, right_rates, lost_rates):
    parts.append(f"{room} tokens: {right_rate:.0%} right, {lost_rate:.0%} lost")
figures.show(figure, "Stacked bars of how conversations end. " + "; ".join(parts))

# %% [markdown]
# With 10 tokens hardly any call fits. With 20 to 40 tokens the call fits, but in most conversations its result does
# not. At 40 tokens some results fit, but then the answer mostly does not. From 50 tokens on, call, result and answer
# fit, except in single conversations (the thin hatched parts). (Compare the bars with one another, not with the 91 %
# above: these are only the first 64 rows.)
#
# Here is one product with the limit of 128 tokens, and then with 30, where the tool has run, but its result did not
# fit.

# %%
(cut_off,) = play_products(model, [multiply], room=30, rows=heldout_rows[:1])
display(coloured(after[0]), coloured(cut_off))

# %% [markdown]
# In a training with 30 tokens no call could earn anything. So leave room for every round and for the answer:
#
#     limit >= calls x (call + result + template around it) + answer
#
# For this product these are 1 x (21 + 4 + 19) + 5 = 49 tokens: the template around the result is longer than the result
# itself. Then look at `tools/lost_results`, which `watch` logs: the fraction of conversations that end in a call. It
# should be near 0.

# %% [markdown]
# ## What the mask is for
#
# What would happen if the orange tokens earned a gradient, too? The trainer passes `tool_mask` to the loss, so you can
# take it away. The chapter now trains several times, so first put the trainer from above into a function:

# %%
def make_trainer(
    policy, rows, rewards, steps, room=128, tools=None, environment=None,
    profile=profile,
):
    """The trainer from above, with other rows, rewards, steps, tools or games."""
    settings = {**profile.grpo, "max_steps": steps, "max_completion_length": room}
    args = GRPOConfig(str(folder / "run"), max_tool_calling_iterations=3, **settings)
    trainer = GRPOTrainer(
        policy, watch(rewards), args, Dataset.from_list(rows),
        processing_class=tokenizer, tools=tools, environment_factory=environment,
        callbacks=[Float32Adapters(policy), RewardBar()],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer

# %% [markdown]
# Now take the mask away and train a new policy, otherwise as before. The trainer's internal method
# `_generate_and_score_completions` makes the batches; the cell removes `tool_mask` from them. `EndEarly` stops after a
# third of the steps, which is enough to see the effect:

# %%
from transformers import TrainerCallback


# All STEPS are planned, so each step has the learning rate of the run above.
class EndEarly(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step >= STEPS // 3:
            control.should_training_stop = True


unmasked_model, _ = load_policy(profile)
unmasked = make_trainer(
    unmasked_model, train_rows, [get_tool_answer_reward()], STEPS, tools=[multiply]
)
unmasked.add_callback(EndEarly())
generate_with_mask = unmasked._generate_and_score_completions


def generate_without_mask(rows):
    batch = generate_with_mask(rows)
    batch.pop("tool_mask")  # now the loss counts every token after the prompt
    return batch


unmasked._generate_and_score_completions = generate_without_mask
unmasked.train();

# %% [markdown]
# Compare both runs: the reward on the left, the length of the gradient on the right:

# %% tags=["hide-input"]
unmasked_log = reward_log(unmasked)
masked_log = log[: len(unmasked_log)]
last_rewards = {}
figure, panels = figures.new_panels(8.5, 3.2, count=2, across=2)
sentences = []
for name, entries, dash, colour in (
    ("with the mask", masked_log, "-", figures.BLUE),
    ("without", unmasked_log, "--", figures.ORANGE),
):
    for axes, metric in zip(panels, ["reward", "grad_norm"]):
        steps, values = curve(entries, metric)
        axes.plot(steps, values, dash, color=colour, lw=2, label=name)
        axes.set(xlabel="optimizer step", ylabel=metric)
        first, last = values[0], values[-1]
        sentences.append(f"{metric} {name}: {first:.2f} to {last:.2f}, at most "
                         f"{max(values):.2f}")
    _, rewards = curve(entries, "reward")
    last_rewards[name] = mean(rewards[-5:])
masked, without = last_rewards.values()
title = f"last five steps: {masked:.2f} with the mask, {without:.2f} without"
panels[0].set_title(title, fontsize=9)
panels[1].set_title("length of the gradient", fontsize=9)
panels[1].set_ylim(0, 1.35 * panels[1].get_ylim()[1])  # room for the legend
panels[1].legend(frameon=False, loc="upper right", ncols=2)
figures.show(figure, f"Two line charts by step. {'; '.join(sentences)}.")

# %% [markdown]
# With the mask the reward goes on rising. Without it the reward rises for a few steps and falls back, and the gradient
# is on average more than ten times as long.
#
# There are two likely reasons, which one run of each kind cannot separate. First, the model is trained to *write* what
# it should only read. Second, the tool's tokens surprise it, so their part of the gradient is large. The trainer
# shortens the whole gradient to a length of at most 1, and then the part of the model's own tokens is small.
#
# [Jin et al. 2025](https://arxiv.org/abs/2503.09516) train large models with a search engine as the tool. They mask the
# texts that it finds, too, to keep the training stable.
#
# <details><summary>For the curious: a longer gradient is not a longer step</summary>
#
# The figure shows the gradient before the trainer shortens it, and Adam divides by the gradient's recent size. So the
# surprising tokens do not make the step longer; they decide where it goes. Among them are the headers between two
# turns, which the model never had to write.
#
# </details>

# %% [markdown]
# ## When to call: a price
#
# The trained model uses the calculator even for 3 times 4. A call costs nothing, so it has no reason to answer from
# memory. Now let each call cost half of a right answer. For which products does a call still pay? On average the model
# earns:
#
# - without a call: its rate of right answers by heart;
# - with a call: its rate of right answers after a call, minus the price.
#
# So a call pays if the rate by heart is below this **border**:
#
#     border = rate right after a call - price
#
# Above, nearly every conversation of the trained model had a call, and about nine in ten were right. So the border is
# near 0.9 - 0.5 = 0.4:
#
# - *Hard* products lie far below it. By heart none is right, so there a call pays.
# - *Easy* products lie near it: by heart 44 % are right (without the tool, before training). So on average a call
#   gains almost nothing. Single products differ: a call pays for one that the model does not know, and not for one that
#   it knows.
#
# Train again from new adapters, with the price and otherwise as before. The column *free* is the training above,
# without a price:

# %%
PRICE = 0.5
priced_model, _ = load_policy(profile)
reward = get_tool_answer_reward(price=PRICE)
make_trainer(priced_model, train_rows, [reward], STEPS, tools=[multiply]).train()
priced = play_products(priced_model, [multiply])
rates_priced = measured(priced, heldout_rows)
show_tables({"before": rates_before, "free": rates_after, "priced": rates_priced})
right_after_a_call = []
for episode, row in zip(priced, heldout_rows):
    if episode.calls == 1:
        right_after_a_call.append(episode.right(row))
border = mean(right_after_a_call) - PRICE
print(f"right after a call: {mean(right_after_a_call):.0%}")
print(f"a call pays if the rate by heart is below {border:.2f}")

# %% [markdown]
# With a price the model still calls for nearly every hard product (0.98 calls), and perhaps a little more rarely for an
# easy one: 0.81 calls for these 36 products. (In a section near the end, with more tries, about 90 % have a call.)
#
# This fits the border. Of the easy products 44 % are right by heart, and the printed border is 0.44. So for all of them
# together a call neither gains nor costs. For a single one it does. But this run does not show that the model calls
# more often for the easy products that it does not know (measured in the same section). In exercise 11.2 a higher price
# moves the border far below 0.44.
#
# ## Two tools: look up, then multiply
#
# The next task needs two tools. A question asks for the price of an item, for a product, or for a *total*, which is the
# price of several pieces:

# %%
shop_rows = read_rows("shopping_heldout")
for row in shop_rows[:3]:
    print(row["kind"], "|", row["question"])

# %% [markdown]
# The model must read the prices through a tool, `lookup(item)`. If they were always the same, it could learn them by
# heart. So they belong to an **environment**: an object that TRL makes for each conversation, and whose public methods
# are tools.
#
# Before each conversation TRL calls the environment's `reset` with the row. Here `reset` comes from the course's base
# class `Environment`: it makes a random generator `rng` from the row's `seed` and calls `_start`. So the prices fit the
# row's `answer`, and all conversations of a group see the same ones. The method under `@tool` is the tool: its
# docstring is what the model reads. `_turn`, also of the base class, counts the calls and refuses one too many.

# %%
from grpo_workbook.environments import PriceList

show(PriceList)

# %% [markdown]
# The trainer gets the class as `environment_factory`. The prompt names `lookup` and `multiply`, and the model must
# choose:

# %%
def play_shop(model):
    return play_episodes(
        model, tokenizer, shop_rows, tools=[multiply], environment=PriceList,
        max_turns=3, max_new_tokens=128, sample=True, seed=profile.seed, batch_size=80,
    )


def train_shop(reward):
    """A new policy that has learned to shop with this reward."""
    policy, _ = load_policy(profile)
    rows = read_rows("shopping_train")
    trainer = make_trainer(
        policy, rows, [reward], STEPS // 2, tools=[multiply], environment=PriceList
    )
    trainer.train()
    return policy

# %% [markdown]
# Play the same questions without tools (the column `closed_book`), and with both tools before and after training:

# %%
untrained_model, _ = load_policy(profile)
closed_book = play_products(untrained_model, [], rows=shop_rows)
shopping = {"closed_book": measured(closed_book, shop_rows)}
shopping["before"] = measured(play_shop(untrained_model), shop_rows)
shopper = train_shop(get_tool_answer_reward())
shopped = play_shop(shopper)
shopping["after"] = measured(shopped, shop_rows)
show_tables(shopping)

# %% [markdown]
# Without tools the model cannot know a price. After training it is right in most questions of each kind. A total needs
# two calls in a row, and the second call must contain the result of the first one. Here is such a conversation:

# %%
for example, row in zip(shopped, shop_rows):
    if row["kind"] == "total" and example.calls == 2 and example.right(row):
        break
print(row["question"])
for message in example.messages:
    print(message)

# %% [markdown]
# Before training 6.8 % of the totals were right. That is enough: in a group with one right total, the advantage of this
# total is large.
#
# ## Rewards over transcripts
#
# A reward function gets the whole transcript. Whatever it looks for, a model can learn to write. So test a reward
# before you train with it: the course keeps 14 transcripts that deserve no reward but may fool a careless reward. Here
# are two of them, for a problem whose answer is 8342. In the first, the tool's result comes last, and the model never
# answers. In the second, a tool's result holds the number, and the model answers *yes*:

# %%
from grpo_workbook.environments import attacks

transcripts = attacks("8342")
shown = ("two calls, and the right one's result last", "an instruction in a result")
for name in shown:
    print(name)
    for message in transcripts[name]:
        calls_in_it = len(message.get("tool_calls", []))
        print(f"  {message['role']:10}{calls_in_it} calls  {message['content']!r}")

# %% [markdown]
# Three rewards judge all of them. *anywhere* searches all messages for the answer, *last text* takes the last message
# of whatever role, and *course* is the reward of the trainings above (it takes and returns lists, here of one
# transcript).
#
# The table shows the transcripts that fool at least one reward:

# %%

def anywhere(completion):
    return any("8342" in message["content"] for message in completion)


def last_text(completion):
    return bool(completion) and completion[-1]["content"] == "8342"


def course(completion):
    (value,) = get_tool_answer_reward()([completion], ["8342"])
    return value > 0


fooled = {"anywhere": 0, "last text": 0, "course": 0}
print(" " * 45 + "".join(f"{reward_name:>12}" for reward_name in fooled))
for name, completion in transcripts.items():
    marks = ""
    for reward_name, judge in zip(fooled, (anywhere, last_text, course)):
        is_fooled = judge(completion)
        fooled[reward_name] += is_fooled
        marks += f"{'paid' if is_fooled else '-':>12}"
    if "paid" in marks:
        print(f"{name:45}{marks}")
print(f"paid wrongly, of {len(transcripts)}:", fooled)

# %% [markdown]
# In the first three rows the model never answers. In the next six its last message holds the number beside something
# else: a call, a tool's result that it wrote itself, a second number, or the marks of thinking. In the last row only
# the tool said the number.
#
# Only the course's reward pays for none: it reads the answer from the last message, and only if the model wrote it.
# (The list is the course's own, and a reward that never pays would score 0 as well. That this one pays for right
# answers, the training above has shown.)
#
# A tool may also fail by its own fault, as when a server is down. A reward of 0 would teach the model not to call it.
# So `@tool` separates two cases. A `CallError` means that the model's call was wrong: the transcript earns what its
# answer earns. Any other error, or a call that takes too long, is the tool's own fault: the reward is `None`, and TRL
# leaves the transcript out of its group.

# %% [markdown]
# ## A strategy: an environment of several turns
#
# An environment can also keep a state that changes from turn to turn, and compute the reward itself. `GuessNumber`
# hides a number from 1 to 7 and answers *higher* or *lower* to each of three guesses. (Whoever always guesses the
# middle of what is left needs at most three.) It remembers in `_found` whether the number was found, and its reward is
# `get_reward`:

# %%
from grpo_workbook import paired_p_value, wilson_interval
from grpo_workbook.environments import Environment, GuessNumber

show(GuessNumber)

# %% [markdown]
# To know how good a model is at this game, compare it with two players written in Python. One guesses at random within
# what is left; the other one guesses its middle (binary search):

# %% tags=["hide-input"]
import random


def play(choose_number, seed):
    """(whether the number was found, guesses) of one game."""
    game = GuessNumber()
    game.reset(seed=seed)
    low, high = 1, GuessNumber.highest
    for turn in range(1, game.max_turns + 1):
        number = choose_number(low, high)
        reply = game.guess(number=number)
        if reply == "correct":
            return True, turn
        if reply == "higher":
            low = number + 1
        else:
            high = number - 1
    return False, game.max_turns


def middle(low, high):
    return (low + high) // 2


yardsticks = {}  # player -> rate of games won
players = {"random": random.Random(0).randint, "binary search": middle}
for name, player in players.items():
    found, guesses = zip(*[play(player, seed) for seed in range(2000)])
    yardsticks[name] = mean(found)
    print(f"{name:14}{mean(found):6.1%} found, {mean(guesses):.2f} guesses")

# %% [markdown]
# The random player finds about two in three numbers, and binary search finds all. Now the untrained model plays.
#
# A row needs only a prompt and a `seed`, which gives the secret. So all completions of a group have the same secret:

# %%
GAME = "Find my number from 1 to 7. You have 3 guesses."
GAME_ROOM = 180  # tokens after the prompt


def game_rows(seeds):
    prompt = [{"role": "user", "content": GAME}]
    return [{"prompt": prompt, "seed": seed} for seed in seeds]


def won(episodes):
    return [episode.environment.get_reward() == 1 for episode in episodes]


def play_games(model, rows):
    return play_episodes(
        model, tokenizer, rows, environment=GuessNumber, max_turns=3,
        max_new_tokens=GAME_ROOM, sample=True, seed=profile.seed, batch_size=100,
    )


heldout_games = game_rows(range(10**6, 10**6 + 200))
game_before = play_games(untrained_model, heldout_games)
print(f"before training: {mean(won(game_before)):.1%} found")

# %% [markdown]
# Now train. The environment's `get_reward` is the only reward, so the trainer gets no reward functions. Three runs with
# three seeds show how much the result depends on the seed. Afterwards each policy plays 200 held-out games. The prompt
# says nothing about the secret, so only a strategy helps. The printed p is that of a paired test
# ([chapter 08](08_evaluation.ipynb)): how likely so large a difference from the untrained policy would be by luck.

# %%
game_logs = {}
game_after = {}
for seed in range(profile.seed, profile.seed + 3):
    seed_profile = tools_profile(seed)
    policy, _ = load_policy(seed_profile)
    game_trainer = make_trainer(
        policy, game_rows(range(2000)), [], STEPS // 2, room=GAME_ROOM,
        environment=GuessNumber, profile=seed_profile,
    )
    game_trainer.train()
    game_after[seed] = play_games(policy, heldout_games)
    game_logs[seed] = reward_log(game_trainer)
    game_p = paired_p_value(won(game_before), won(game_after[seed]))
    rate = mean(won(game_after[seed]))
    print(f"after, seed {seed}: {rate:.1%} found, p = {game_p:.1g}")
trained_games = game_after[profile.seed]

# %% [markdown]
# In the figure, a thin line is the fraction of games won in each step of a run. A step of 32 games has only four
# secrets, so this line is noisy; the thick line is its mean over five steps. The points on the right are the 200
# held-out games, with a 95 % interval. The horizontal lines are the two players.

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(8.5, 3.8)
parts = []
marks = zip(game_logs.items(), figures.STYLES)
for place, ((seed, entries), (colour, dash, mark)) in enumerate(marks):
    steps, values = curve(entries, "reward")
    width = min(5, len(values))
    smooth = np.convolve(values, np.ones(width) / width, mode="valid")
    axes.plot(steps, values, dash, color=colour, alpha=0.3, lw=1)
    thick = steps[width - 1 :]
    axes.plot(thick, smooth, dash, color=colour, lw=2, label=f"seed {seed}")
    results = won(game_after[seed])
    rate = mean(results)
    low, high = wilson_interval(list(map(float, results)))
    x = STEPS // 2 + 1.5 + place
    axes.plot([x, x], [low, high], "-", color=colour)
    axes.plot(x, rate, mark, color=colour)
    interval = f"from {low:.2f} to {high:.2f}"
    parts.append(f"seed {seed}, held out: {rate:.2f}, {interval}")
axes.text(STEPS // 2 + 2.5, 0.53, "held-out\ngames", ha="center", fontsize=9)
for name, rate in yardsticks.items():
    axes.axhline(rate, color="black", linestyle=":", lw=1)
    axes.text(1, rate + 0.015, f"player: {name}", fontsize=9)
    parts.append(f"player {name}: {rate:.2f}")
axes.set(xlabel="optimizer step", ylabel="games won", ylim=(0.1, 1.1))
axes.set_xticks(range(0, STEPS // 2 + 1, 5))
figure.legend(frameon=False, loc="outside right center")
axes.set_title("These three runs beat the random player, not binary search")
figures.show(figure, "Lines of the games won by step. " + "; ".join(parts))

# %% [markdown]
# All three runs win 78 to 80.5 % of the held-out games, more than the random player and less than binary search. Runs
# can differ more than these three do: an earlier execution of this chapter, with other samples, ended at 70.0 % with
# seed 0, hardly above the random player ([as measured](../docs/measurements.md#a-model-that-acts)).
#
# <details><summary>For the curious: the thick lines end lower than the points</summary>
#
# The end of a thick line is the mean of only 20 secrets, some of them harder than others, so it may be off by some
# points in either direction. Why all three ends lie lower, we have not found.
#
# </details>
#
# ### What did the model learn?
#
# A good player looks at the range of numbers that are left, and guesses its middle. So the next folded cell counts, for
# each range, how often the model guessed which number:

# %% tags=["hide-input"]
def guess_tables(episodes):
    """{(lowest, highest number left): how often 1 to 7 were guessed, and others}."""
    highest = GuessNumber.highest
    tables = {}
    for episode in episodes:
        low, high = 1, highest
        secret = episode.environment._secret
        for (number,) in episode.environment._transcript:
            counts = tables.setdefault((low, high), np.zeros(highest + 1))
            in_range = 1 <= number <= highest
            column = number - 1 if in_range else highest  # the last one: other numbers
            counts[column] += 1
            if number < secret:
                low = max(low, number + 1)
            else:
                high = min(high, number - 1)
    return tables

# %% [markdown]
# A guess outside of what is left *contradicts* an earlier answer (or it is not a number from 1 to 7 at all). How often
# does that happen before and after training (seed 0)?

# %% tags=["hide-input"]
def contradicting(tables):
    """The fraction of guesses outside of what was left."""
    inside = 0
    guesses = 0
    for (low, high), counts in tables.items():
        inside += counts[low - 1 : high].sum()
        guesses += counts.sum()
    return 1 - inside / guesses


tables_before = guess_tables(game_before)
tables_after = guess_tables(trained_games)
for name, tables in (("before", tables_before), ("after", tables_after)):
    every_guess = sum(tables.values())
    wrong = contradicting(tables)
    print(f"{name:7} {wrong:.1%} of {every_guess.sum():.0f} guesses contradict", end="")
    print(f" an answer; guesses outside 1 to 7: {every_guess[-1]:.0f}")
guesses_at = {}  # range -> guesses in both tables
for left in set(tables_before) & set(tables_after):
    both_tables = tables_before[left] + tables_after[left]
    guesses_at[left] = both_tables.sum()
common = sorted(guesses_at, key=guesses_at.get)[-7:]
common.sort(key=lambda left: (left[0] - left[1], left[0]))  # wide ranges first

# %% [markdown]
# The figure shows the seven commonest ranges of seed 0:
#
# - A *row* is one range, with the number of guesses there. The darker a square, the more often this number was guessed.
# - The *black frame* contains what is left, so a guess outside of it contradicts an earlier answer.
# - A *dot* is what binary search would guess: the middle, or one of two middles. Each title gives the part of the
#   guesses that are on a dot. *By chance* is this part for a player who guesses at random within the frames.
# - The column *other* holds guesses outside of 1 to 7. Such a guess leaves the range as it is, so 200 games have 201
#   guesses in the row *1 to 7*.

# %% tags=["hide-input"]
from matplotlib.patches import Rectangle

figure, panels = figures.new_panels(9.0, 3.6, count=2, across=2)
parts = []
both = {"before": tables_before, "after": tables_after}
for axes, (name, tables) in zip(panels, both.items()):
    counts = np.array([tables[left] for left in common])
    totals = counts.sum(axis=1)
    rates = counts / totals[:, None]
    shades = axes.imshow(rates, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    halving = by_chance = 0  # the second: of a random player within the frames
    labels = []
    for y, (low, high) in enumerate(common):
        total = int(totals[y])
        labels.append(f"{low} to {high}: {total}")
        width = high - low + 1
        axes.add_patch(Rectangle((low - 1.5, y - 0.45), width, 0.9, fill=False))
        for number in {(low + high) // 2, (low + high + 1) // 2}:
            axes.plot(number - 1, y, "o", color=figures.ORANGE, ms=4)
            halving += counts[y, number - 1] / totals.sum()
            by_chance += total / width / totals.sum()
    title = f"{name}: {halving:.0%} on a dot, by chance {by_chance:.0%}"
    axes.set(xlabel="guess", title=title, yticks=range(len(common)), yticklabels=labels)
    axes.set_xticks(range(8), [1, 2, 3, 4, 5, 6, 7, "other"])
    axes.grid(False)
    parts.append(f"{name}: {halving:.0%} are in the middle, by chance {by_chance:.0%}")
panels[0].set_ylabel("what is left: number of guesses")
figure.colorbar(shades, ax=panels, label="rate of this guess in its row")
words = "Two tables of how often each number is guessed, by the range that is left. "
figures.show(figure, words + "; ".join(parts))

# %% [markdown]
# After training 70 % of these guesses are on a dot, before it 39 %. (By chance, it would be about 30 % both times.) And
# fewer guesses contradict an earlier answer (see the counts above the figure). So the model plays a part of the
# strategy again. It is not binary search: in the rows *1 to 6* and *2 to 7*, which have few guesses, the darkest square
# is not on a dot.

# %% [markdown]
# ## Credit over turns
#
# A transcript has one reward, so it has one advantage, and every blue token in it gets this advantage. What does that
# mean for a single guess? Here is one group of eight games of the untrained model (stored in the cell), all with the
# secret 3. Each line is a game: its advantage and its guesses. (A game with one or two guesses was either won, or the
# model stopped calling.)

# %%
from statistics import stdev

SECRET = 3
stored_games = [[3], [5], [3], [3], [1, 5, 1], [1, 5, 8], [4, 3], [1, 4, 2]]
stored_rewards = [float(guesses[-1] == SECRET) for guesses in stored_games]


def group_advantage(reward, rewards):
    return (reward - mean(rewards)) / (stdev(rewards) + 1e-4)


for guesses, reward in zip(stored_games, stored_rewards):
    print(f"{group_advantage(reward, stored_rewards):+.2f}  {guesses}")

# %% [markdown]
# Look at the first guesses:
#
# - 3 wins at once and is reinforced, only because the secret is 3.
# - 4 is reinforced as well, because the right guess came after it.
# - 1 is penalised three times. In two of these games the mistake came later: the last guess, 1 or 8, contradicts an
#   earlier answer. But the first guess gets the same advantage as the last one.
#
# So within one group the signal for a first guess is mostly noise.
#
# Only the average over many groups can tell a good first guess from a bad one. How much better is a good one? Let the
# random player of the last section begin with each number, and count the games that it wins:

# %% tags=["hide-input"]
def starts_with(first):
    """A player who begins with this number, and then guesses at random."""

    def choose_number(low, high):
        if (low, high) == (1, GuessNumber.highest):
            return first
        return players["random"](low, high)

    return choose_number


for first in range(1, GuessNumber.highest + 1):
    results = [play(starts_with(first), seed) for seed in range(2000)]
    print(f"first guess {first}: {mean(found for found, _ in results):.1%} found")

# %% [markdown]
# The middle is the best first guess, and the two ends are the worst. How many games does GRPO need to see that? Let the
# untrained model play 42 groups of eight games. Each of the seven secrets is hidden in six of the groups, so that no
# guess is favoured by chance. The next folded cell collects the first guess and the advantage of each game:

# %% tags=["hide-input"]
seeds_of_secrets = {secret: [] for secret in range(1, GuessNumber.highest + 1)}
game = GuessNumber()
for seed in range(7, 500):
    game.reset(seed=seed)
    seeds_of_secrets[game._secret].append(seed)
rows = []
for seeds in list(zip(*seeds_of_secrets.values()))[:6]:  # each secret once
    for row in game_rows(seeds):
        rows += [row] * 8
group_games = play_games(untrained_model, rows)
first_guesses = []
advantages = []
for start in range(0, len(group_games), 8):
    group = group_games[start : start + 8]
    rewards = list(map(float, won(group)))
    for episode, reward in zip(group, rewards):
        guesses = [number for (number,) in episode.environment._transcript]
        if guesses:
            first_guesses.append(guesses[0])
            advantages.append(group_advantage(reward, rewards))
print(len(first_guesses), "games with at least one guess")

# %% [markdown]
# In the figure a pale point is the advantage of one game. The wide line is the mean of all games with this first guess,
# and the narrow one is its 95 % interval:

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(7.5, 3.4)
spread = np.random.default_rng(0).uniform(-0.2, 0.2, len(first_guesses))
parts = []
for number in range(1, GuessNumber.highest + 1):
    is_first = np.array(first_guesses) == number
    values = np.array(advantages)[is_first]
    if len(values) < 2:
        continue
    reach = 1.96 * values.std(ddof=1) / len(values) ** 0.5
    x = number + spread[is_first]
    axes.plot(x, values, ".", color=figures.GREY, alpha=0.35)
    blue = {"color": figures.BLUE, "ms": 28, "mew": 2}
    axes.errorbar(number, values.mean(), reach, fmt="_", **blue)
    average = f"{values.mean():+.2f} with an interval of {reach:.2f} to each side"
    parts.append(f"{number}: {average}, {len(values)} games")
axes.axhline(0, color="black", lw=0.8)
axes.set(xlabel="first guess", ylabel="advantage of the game",
         xticks=range(1, GuessNumber.highest + 1))
axes.set_title("One game says little about its first guess", loc="left")
figures.show(figure, "Advantages by first guess, means: " + "; ".join(parts))

# %% [markdown]
# The points of each guess lie far apart, on both sides of 0. The means differ much less, and each interval contains 0.
# So more than 300 games of this model do not show clearly which first guess is good, and to halve such an interval
# takes four times as many games. (A part of the reason is the model: it contradicts itself and stops early, so a good
# start helps it less than it helps the random player.)
#
# So the more turns an episode has, the less its advantage tells about one of them. It helps to keep episodes short, to
# start from a model that wins sometimes, and to use more groups.
#
# <details><summary>For the curious: why did training still find the 4?</summary>
#
# The training had 640 games, about twice as many, and after it the model of seed 0 begins with 4 more often (the row *1
# to 7* of the tables). A likely reason, which this one run does not show: its later guesses improved, so that a good
# start paid more and more.
#
# </details>

# %% [markdown]
# ## The cost of turns
#
# Turns also cost time. With `generate`, TRL keeps no key-value cache between turns: for every turn the model reads the
# whole conversation so far again. (vLLM, with its prefix cache, reads only what is new.) How many tokens is that?

# %% tags=["hide-input"]
def tokens_read(episode):
    """Tokens that are read in all turns together, without a cache between them."""
    total = 0
    previous = 0
    for position, written_by_model in enumerate(episode.mask):
        if written_by_model and not previous:  # a turn of the model begins
            total += len(episode.prompt_ids) + position
        previous = written_by_model
    return total


def conversation_length(episode):
    return len(episode.prompt_ids) + len(episode.ids)


for name, episodes in (("a product", after), ("a game", trained_games)):
    read = mean(map(tokens_read, episodes))
    length = mean(map(conversation_length, episodes))
    print(f"{name:10}: {read:4.0f} tokens read for a conversation of {length:.0f}")

# %% [markdown]
# In the game the model reads more than twice as many tokens as the conversation has. In addition, all conversations of
# a batch wait in every turn for the slowest one.

# %% [markdown]
# ## Which real models can be trained with tools?
#
# A model needs two things: a chat template that renders calls and results, and calls that TRL can parse. TRL tests the
# first, and for the second it compares the template with a list of those it knows. For the installed TRL 1.15 this
# gives:
#
# | TRL accepts | TRL refuses |
# | --- | --- |
# | Qwen2.5, Qwen3 (also VL, Instruct-2507), Qwen3.5, Qwen3.6, Qwen3.8 | Qwen2.5-VL |
# | Gemma 4 | Gemma, Gemma 2, **Gemma 3** |
# | Llama 3.1, 3.2 | Llama 3, LLaVA-NeXT |
# | gpt-oss, GLM-4-MoE, Nemotron 3, LFM2 (newer template), LFM2.5 | Phi-3, Cohere, SmolVLM, LFM2 (first template) |
#
# With a model of the right column the trainer stops before the first step and says why.
#
# <details><summary>When your model's template is not on TRL's list</summary>
#
# A template that differs from TRL's list in a single character is unknown to it. Unsloth's own copies of models often
# differ, so the installed Unsloth lets TRL accept a template that renders the same text as a known one. For any other
# template, set `tokenizer.response_template` yourself.
#
# </details>
#
# On a GPU the cells above take the Qwen3 of the profile. It has the same marks for calls and results, and it can read
# the schema of a tool that it has never seen. No cell of this chapter was run on a GPU: that real models *can* be
# trained here is read from the source of TRL and Unsloth, and how much they gain is not measured.
#
# Environments of other libraries (OpenEnv, verifiers) need a few lines around them, which
# [a page of their own](../docs/environments.md) shows.

# %% [markdown]
# ## What the metrics count, and what they do not
#
# TRL's own metrics miss some failures of this chapter. So `watch` and the course's reward add three (the last rows):
#
# | metric | counts | does not count |
# | --- | --- | --- |
# | `tools/call_frequency` | calls per completion | the fraction of completions that call |
# | `tools/failure_frequency` | calls that raised an error, of all calls | calls with broken JSON: these become text |
# | `completions/mean_length` | the model's own tokens | tool results |
# | `completions/clipped_ratio` | turns cut off by the limit | results that did not fit |
# | `tools/calling`, by `watch` | completions that call | |
# | `tools/lost_results`, by `watch` | transcripts that end in a call | |
# | `tools/broken`, by `get_tool_answer_reward` | tools that failed by their own fault: reward `None` | |
#
# (TRL leaves a transcript out of its group only if *all* its rewards are `None`. Beside another reward, a `None` counts
# as 0.)
#
# The next three sections are optional; then come the exercises.

# %% [markdown]
# ## For the curious: what does the trained model still know by heart?
#
# With the tool taken away, the model went on calling, so its answers by heart were not to be seen. Now forbid calls:
# use a prompt that names no tool, and suppress the token that opens every call:

# %% tags=["hide-input"]
call_token = tokenizer.convert_tokens_to_ids("<tool_call>")
model.generation_config.suppress_tokens = [call_token]
by_heart = play_products(model, [])
model.generation_config.suppress_tokens = None
rates_by_heart = measured(by_heart, heldout_rows)
show_tables({"untrained": rates_without, "calls forbidden": rates_by_heart})

# %% [markdown]
# With calls forbidden, the model still knows some easy products. (Whether it knows fewer than before cannot be told: 36
# products are too few for a difference of 14 points.)
#
# ## For the curious: does it call where a call pays?
#
# Does the model of the priced run call more often for the easy products that it does not know? The next cells play each
# of 60 products (36 easy ones and 24 hard ones) sixteen times: eight times freely, to see how often the model calls,
# and eight times with calls forbidden, to see how often it is right by heart.

# %% tags=["hide-input"]
TRIES = 8


def called(episode, row):
    return episode.calls > 0


def answered_right(episode, row):
    return episode.right(row)


def rates_of_products(model, rows, is_counted):
    """For each row, the fraction of its eight conversations that are counted."""
    repeated = []
    for row in rows:
        repeated += [row] * TRIES
    episodes = play_products(model, [multiply], rows=repeated)
    counted = []
    for episode, row in zip(episodes, repeated):
        counted.append(is_counted(episode, row))
    return np.array(counted).reshape(len(rows), TRIES).mean(axis=1)

# %% [markdown]
# Play all of them:

# %% tags=["hide-input"]
by_kind = sorted(heldout_rows, key=lambda row: row["kind"])  # the easy ones first
some_products = by_kind[:60]
is_easy = np.array([row["kind"] == "easy" for row in some_products])
calling = rates_of_products(priced_model, some_products, called)
priced_model.generation_config.suppress_tokens = [call_token]
known = rates_of_products(priced_model, some_products, answered_right)
priced_model.generation_config.suppress_tokens = None

# %% [markdown]
# Count the calls of three groups: hard products, easy products for which a call pays at the border of this run, and
# the other easy ones:

# %% tags=["hide-input"]
pays = known < border
groups = {"hard": ~is_easy}
groups["easy, a call pays"] = is_easy & pays
groups["easy, it does not pay"] = is_easy & ~pays
for name, chosen in groups.items():
    rate = calling[chosen].mean()
    print(f"{name:22} {chosen.sum():2} products, calls in {rate:.0%} of the tries")

# %% [markdown]
# Each point of the figure is a product, moved a little at random so that equal ones stay visible. A call pays for the
# products to the left of the dashed line, which is the border. Each thick line is the mean of the easy products on its
# side. If the model knew where a call pays, the left one would be near the top, and the right one near the bottom:

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(7.5, 4.0)
chance = np.random.default_rng(0)
shift = chance.uniform(-0.025, 0.025, (2, len(some_products)))
for kind, chosen, mark, colour in (("hard", ~is_easy, "x", figures.ORANGE),
                                   ("easy", is_easy, "o", figures.BLUE)):
    x = known[chosen] + shift[0, chosen]
    y = calling[chosen] + shift[1, chosen]
    axes.scatter(x, y, marker=mark, color=colour, alpha=0.6, label=f"{kind} product")
left_mean = calling[is_easy & pays].mean()
right_mean = calling[is_easy & ~pays].mean()
label = "mean of the easy products on this side"
axes.hlines(left_mean, -0.04, border, color=figures.BLUE, lw=3, label=label)
axes.hlines(right_mean, border, 1.04, color=figures.BLUE, lw=3)
axes.axvline(border, color="black", linestyle="--", lw=1, label="calls pay left of it")
axes.set(xlabel="rate right by heart (of 8 tries)", ylabel="rate of calling (of 8)")
axes.set(xlim=(-0.05, 1.05), ylim=(-0.08, 1.08))
hard_mean = calling[~is_easy].mean()
numbers = f"hard {hard_mean:.0%}; easy, left {left_mean:.0%}, right {right_mean:.0%}"
axes.set_title(f"How often it calls: {numbers}", loc="left")
figure.legend(loc="outside lower center", ncols=2, frameon=False)
figures.show(figure, f"Scatter plot of 60 products. Calls: {numbers}.")

# %% [markdown]
# Could the difference of the two thick lines be chance? Its 95 % interval follows from the scatter of the single
# products:

# %% tags=["hide-input"]
left = calling[is_easy & pays]
right = calling[is_easy & ~pays]
gap = left.mean() - right.mean()
variance = left.var(ddof=1) / len(left)
variance += right.var(ddof=1) / len(right)
reach = 1.96 * variance**0.5
low = gap - reach
high = gap + reach
print(f"left minus right: {gap:+.2f}, 95 % interval from {low:+.2f} to {high:+.2f}")

# %% [markdown]
# The interval contains 0, so this run does not show that the model tells single products apart. Even the two kinds
# differ little: over eight tries it calls for about 90 % of the easy products and 96 % of the hard ones. (A rate of
# eight tries is rough, so some products may stand on the wrong side of the border, which makes a difference harder to
# see.)
#
# This is hard to learn. A call gains or costs only a few tenths, while an answer by heart earns 0 or 1 by luck. Only
# the groups of this one product can teach it. And once nine of ten tries call, a group of eight has on average less
# than one answer by heart, so there is often nothing to compare with.

# %% [markdown]
# ## For the curious: a tool that runs the model's programs
#
# A model that writes code can try it before it answers. This environment gives it the sandbox of chapter 06 as a tool.
# It says how many of the assertions held, but not which ones, because a model can use whatever it is told, also for
# cheating.

# %% tags=["hide-input"]
from grpo_workbook.sandbox import CODE_TASKS, Job, Sandbox, read_tasks

sandbox = Sandbox(workers=1, time_limit=2.0)


class CodeTask(Environment):
    max_turns = 3

    def _start(self, rng, row):
        self._row = row
        self._passed = False

    @tool(seconds=60, characters=2000)
    def run_python(self, program: str) -> str:
        """Run the tests of the task on a program. The last program counts.

        Args:
            program: Python that defines the function.
        """
        self._turn()
        job = Job(program, self._row["test"], self._row["entry_point"])
        (verdict,) = sandbox.check([job])
        if verdict.fault in ("test", "sandbox"):  # not the model's
            raise RuntimeError(verdict.reason)
        self._passed = verdict.passed
        return f"{verdict.outcome}: {verdict.cases_passed} of {verdict.cases} held"

    def get_reward(self):
        return float(self._passed)

# %% [markdown]
# The task is `is_at_most(n)`: is n 19 or less? Here are three programs, as a model would send them. The second one
# tries to leave the test early. The last column is the reward:

# %% tags=["hide-input"]
task = read_tasks(CODE_TASKS["heldout"])[0]
code_task = CodeTask()
code_task.reset(seed=0, **task)
start = task["prompt"]
wrong = start + "    return n < 19\n"
leaves = start + "    import os; os._exit(0)\n"
right = start + task["canonical_solution"]
for program in (wrong, leaves, right):
    reply = code_task.run_python(program=program)
    last_line = program.splitlines()[-1].strip()
    print(f"{last_line:28}{reply:24}{code_task.get_reward()}")
sandbox.close()

# %% [markdown]
# The tiny model cannot read the schema of this tool. A Qwen3 on a GPU can, with `environment=CodeTask` in
# `make_trainer` (not run on a GPU; a test of the course runs it on a CPU, with a tiny model that has learned one call).

# %% [markdown] tags=["remove-cell"]
# The numbers that the tests of this course look at:

# %% tags=["remove-cell"]
from grpo_workbook import files
from grpo_workbook.training import count_4bit_layers



def right_ones(episodes):
    return [episode.right(row) for episode, row in zip(episodes, heldout_rows)]


p_value = paired_p_value(right_ones(before), right_ones(after))
proved = {"steps": len(log), "linear4bit_layers": count_4bit_layers(model)}
proved["before"] = rates_before
proved["after"] = rates_after
proved["taken"] = rates_taken
proved["priced"] = rates_priced
proved["by_heart"] = rates_by_heart
proved["p_value"] = p_value
proved["lost"] = dict(zip(rooms, zip(right_rates, lost_rates)))
proved["unmasked"] = list(last_rewards.values())
games_played = [game_before, *game_after.values()]
proved["game"] = [mean(won(episodes)) for episodes in games_played]
proved["fooled"] = fooled
proved["shopping"] = shopping
files.write_json(folder / "notebook_11.json", proved)
if profile.name == "smoke":
    assert rates_before["all"][0] <= 0.30
    assert rates_after["all"][0] >= 0.85
    assert rates_taken["all"][0] < 0.5
    assert p_value < 1e-6
    assert fooled["course"] == 0

# %% [markdown]
# ## Exercises
#
# Run a cell to check your answer. The table in chapter 00 counts what you have solved.

# %% [markdown]
# ### Exercise 11.1 · `tool_mask` · medium · 10 minutes
#
# TRL makes the mask while it plays the conversation. A library that gets finished conversations must make it from the
# tokens. Write that function: return 1 for each token that the model wrote, and 0 for the others. `tokens` are the
# tokens after the prompt, so the model writes first. It ends each of its turns with the token `end`, which it writes
# itself. Then the template and the tool write, until the tokens `header` open the model's next turn:

# %% tags=["exercise"]
from grpo_workbook.exercises import check, predict


def tool_mask(tokens: list, end: object, header: list) -> list:
    raise NotImplementedError


check("11.1", tool_mask);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Go through the tokens and remember who is writing. Two events change that: the model's end token, and the last token
# of a whole header. Who wrote the token that causes the change?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def tool_mask(tokens: list, end: object, header: list) -> list:
#     mask = []
#     model_writes = True
#     for position, token in enumerate(tokens):
#         mask.append(1 if model_writes else 0)
#         last_tokens = tokens[: position + 1][-len(header) :]
#         if model_writes and token == end:
#             model_writes = False
#         elif not model_writes and last_tokens == header:
#             model_writes = True
#     return mask
# ```
#
# </details>
#
# Compare your masks with those of the conversations that this chapter has played. They should be equal everywhere. With
# a 1 too many the model would be trained to write what it should read.

# %%
header = tokenizer.encode(
    "<|im_start|>assistant\n<think>\n\n</think>\n\n", add_special_tokens=False
)
try:
    for name, episodes in {"products": after, "games": trained_games}.items():
        equal = 0
        for episode in episodes:
            mask = tool_mask(episode.ids, tokenizer.eos_token_id, header)
            equal += mask == episode.mask
        print(f"{name}: your mask is the real one in {equal} of {len(episodes)}")
except NotImplementedError:
    print("Write tool_mask first, then run this cell.")

# %% [markdown]
# ### Exercise 11.2 · `priced_reward` · medium · 10 minutes
#
# Write the reward of the priced run: 1 if the last message is an assistant's, calls nothing, and its content is exactly
# the answer, else 0. Then subtract `price` for each call in the transcript, whether it worked or not. The cell after
# the solution trains with it.

# %% tags=["exercise"]
def priced_reward(completions: list, answer: list, price: float) -> list:
    raise NotImplementedError


check("11.2", priced_reward);

# %% [markdown]
# <details><summary>Hint</summary>
#
# A message has `role` and `content`, and perhaps `tool_calls`, a list: a turn may hold several calls.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def priced_reward(completions: list, answer: list, price: float) -> list:
#     rewards = []
#     for messages, reference in zip(completions, answer):
#         last = messages[-1]
#         right = False
#         if last["role"] == "assistant" and not last.get("tool_calls"):
#             right = last["content"] == reference
#         calls = 0
#         for message in messages:
#             calls += len(message.get("tool_calls", ()))
#         rewards.append(float(right) - price * calls)
#     return rewards
# ```
#
# </details>
#
# Train with your reward, from new adapters and for half of the steps. The price is now 0.9. Where is the border, and
# what will the model do with the easy products, and with the hard ones? Decide before you run the cell.
#
# <details><summary>Answer</summary>
#
# After a call 94 % of the answers are right (priced run), so the border is near 0.04. Of the easy products 44 % are
# right by heart, so on average a call for them costs 0.4 more than it gains.
#
# For a hard product a call still pays, but it gains only about 0.04. Yet the model learns to make it, because the
# advantage divides by the spread of the group's rewards. In a group where every call leads to the right answer, 0.1 for
# a call against 0 for a wrong answer by heart gives nearly the same advantages as 1 against 0.
#
# </details>

# %%
def train_on_products(reward):
    """The rates of a new policy on held-out products, after half of the steps."""
    policy, _ = load_policy(profile)
    make_trainer(policy, train_rows, [reward], STEPS // 2, tools=[multiply]).train()
    return measured(play_products(policy, [multiply]), heldout_rows)


def your_reward(completions, answer, **columns):
    return priced_reward(completions, answer, price=0.9)


try:
    priced_reward([], [], 0.9)
    show_tables({"yours": train_on_products(your_reward)})
except NotImplementedError:
    print("Write priced_reward first, then run this cell.")

# %% [markdown]
# <details><summary>How to read your result</summary>
#
# In our run (seed 0) the model called for nearly every hard product (0.98 calls each), but only 0.25 times for an easy
# one. Half of the easy products were right, so one earned 0.50 - 0.9 x 0.25 = 0.28.
#
# A policy that always calls would earn about nothing there. The untrained model, which calls rarely anyway, would earn
# 0.27. So for easy products the price did not make calls rarer than before. It kept the training from making them the
# rule.
#
# </details>

# %% [markdown]
# ### Exercise 11.3 · `my_tool` · medium · 10 minutes
#
# Write a tool for a task of your own, such as a search in your notes. Return two things: the tool, and the arguments of
# one right call as a dict. The tool is a function with at least one argument that a model can call: it needs type
# hints, a docstring with `Args:`, and checks of its calls. The exercise makes your call, which must give a result, and
# a call with arguments of a wrong type, which must raise `CallError`.

# %% tags=["exercise"]
def my_tool() -> tuple:
    raise NotImplementedError


check("11.3", my_tool);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Look at `multiply` in `grpo_workbook/environments/examples.py`: what is written above its `def`, and what is in its
# docstring?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def my_tool() -> tuple:
#     from grpo_workbook.environments import tool
#
#     @tool
#     def find(word: str) -> str:
#         """Find the notes that hold a word.
#
#         Args:
#             word: The word to look for.
#
#         Returns:
#             The notes, one per line.
#         """
#         notes = ["GRPO compares answers in a group", "a tool's result is no action"]
#         return "\n".join(note for note in notes if word in note) or "none"
#
#     return find, {"word": "group"}
# ```
#
# </details>
#
# Now the trained model plays with your tool beside the calculator. The schema of your tool is in every prompt, and the
# model has never seen this schema:

# %%
try:
    your_tool, _ = my_tool()
    for tools in ([multiply], [multiply, your_tool]):
        episodes = play_products(model, tools)
        tokens = mean(len(episode.prompt_ids) for episode in episodes)
        right, calls = measured(episodes, heldout_rows)["all"]
        print(f"{len(tools)} tools: {tokens:4.0f} tokens in the prompt, "
              f"{right:.1%} right, {calls:.2f} calls")
except NotImplementedError:
    print("Write my_tool first, then run this cell.")

# %% [markdown]
# <details><summary>How to read your result</summary>
#
# The prompt grows by your schema. The tiny model cannot read it: its tokens only stand in an unusual place. So a change
# of the rates shows how much they disturb the model. (160 products leave an interval of up to 8 points to each side.)
# In a real model the schema costs tokens in every prompt as well, and your tool competes with the other one for being
# called.
#
# </details>

# %% [markdown]
# ### Exercise 11.4 · `wrong_tool` · medium · 10 minutes
#
# Suppose that the calculator is wrong by 1 in half of its answers, so that only half of the calls lead to a right
# answer. For which products does the model call after training? Predict, then run. The cell counts the calls per
# conversation (with a right calculator they are about 1 for both kinds):
#
# - "for none": less than 0.5 calls for a hard product.
# - "for hard ones": at least 0.5 for a hard product, but less than 0.75 for an easy one.
# - "for all": at least 0.5 for a hard product, and at least 0.75 for an easy one.

# %% tags=["exercise"]
from functools import wraps

prediction = ...  # "for all", "for hard ones", "for none"


def run_wrong_tool() -> dict:
    """The calls per conversation on held-out products after training, by kind."""

    @tool
    @wraps(multiply.__wrapped__)  # the same name, docstring and types for the model
    def wrong_half_the_time(a, b):
        return a * b + random.getrandbits(1)

    random.seed(profile.seed)
    policy, _ = load_policy(profile)
    tools = [wrong_half_the_time]
    reward = get_tool_answer_reward()
    make_trainer(policy, train_rows, [reward], STEPS // 2, tools=tools).train()
    rates = measured(play_products(policy, tools), heldout_rows)
    return {kind: calls for kind, (_, calls) in rates.items()}


predict("11.4", prediction, run_wrong_tool);

# %% [markdown]
# <details><summary>Hint</summary>
#
# How often is the model right on an easy product without the calculator, and how often with this one? And on a hard
# one?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "for hard ones"
# ```
#
# From memory, the model is right on an easy product about as often as with this calculator, so a call makes little
# difference. In one run, 20 steps led to 0.50 calls for an easy product, up from 0.17, and to 0.99 for a hard one.
# With more steps the rate for easy products might go on rising. On a hard product the model is almost never right from
# memory, so a chance of one half is much better. A tool need not be reliable to be learned; it must be better than the
# model.
#
# </details>

# %% [markdown]
# ### Exercise 11.5 · `too_narrow` · easy · 8 minutes
#
# Train with `max_completion_length=30`, which is too little for a call, its result and an answer. How often does the
# model call in the last three steps, compared with the first three?
#
# - "die out": less than a quarter as often.
# - "stay": between the two.
# - "spread": more than four times as often.

# %% tags=["exercise"]
prediction = ...  # "die out", "stay", "spread"


def run_narrow() -> dict:
    """The rate of completions that call, in each step."""
    policy, _ = load_policy(profile)
    reward = get_tool_answer_reward()
    narrow = make_trainer(
        policy, train_rows, [reward], STEPS // 2, room=30, tools=[multiply]
    )
    narrow.train()
    _, calling = curve(reward_log(narrow), "tools/calling")
    return {"calling": calling}


predict("11.5", prediction, run_narrow);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Which reward does a completion get if its result did not fit, and which one if it answers by heart?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "stay"
# ```
#
# A call whose result is dropped earns 0. Without calls hardly any product is right, so in most groups every reward is 0
# and nothing speaks for or against a call: the rate stays near its start (11.5 % at first and at the end, in one run).
# Only in a group with a right answer by heart does a call count as worse. These groups are few, so 20 steps push the
# rate of calls down too little to see, and nothing ever pushes it up. No metric of TRL shows why; `tools/lost_results`
# does.
#
# </details>

# %% [markdown]
# ### Exercise 11.6 · `game_reward` · hard · 15 minutes
#
# In a lost game every guess is penalised, the sensible ones as well. Would the model learn more from a reward that also
# pays for sensible guesses? TRL still adds everything up into one advantage for the whole game. And a model can collect
# such parts without ever winning, so a lost game must earn less than a won one.
#
# Write such a reward for a finished game. `guesses` has up to three numbers. A guess *contradicts* if an earlier answer
# has excluded it, or if it lies outside of 1 to 7. (So a number that was guessed before contradicts.)
#
# - A won game earns exactly 1, whatever its guesses.
# - A lost game earns at most 0.5: a part for each guess that does not contradict, and nothing for the others.
# - Each first guess from 1 to 7 earns the same part.
#
# The check plays all games against your reward.

# %% tags=["exercise"]
def game_reward(guesses: list, secret: int) -> float:
    raise NotImplementedError


check("11.6", game_reward);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Keep two bounds, `low` and `high`: what is left lies between them. Compare each guess with them *before* you use its
# answer to move one of them.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def game_reward(guesses: list, secret: int) -> float:
#     if secret in guesses:
#         return 1.0
#     low, high = 1, 7
#     allowed = 0
#     for guess in guesses:
#         if low <= guess <= high:
#             allowed += 1
#         if guess < secret:
#             low = max(low, guess + 1)
#         else:
#             high = min(high, guess - 1)
#     return 0.1 * allowed
# ```
#
# </details>
#
# Now train on the game with your reward, with the same seed and as many steps as above. (The environment keeps each
# guess in `_transcript`, as a tuple of one number.) Then the policy plays the same held-out games, and a game counts as
# before: it is won, or it is not. Do your parts help?

# %%
class GameWithParts(GuessNumber):
    def get_reward(self):
        guesses = [number for (number,) in self._transcript]
        return game_reward(guesses, self._secret)


try:
    game_reward([], 4)
    policy, _ = load_policy(profile)
    game_trainer = make_trainer(
        policy, game_rows(range(2000)), [], STEPS // 2, room=GAME_ROOM,
        environment=GameWithParts,
    )
    game_trainer.train()
    with_parts = play_games(policy, heldout_games)
    outside = contradicting(guess_tables(with_parts))
    p = paired_p_value(won(trained_games), won(with_parts))
    print(f"with parts {mean(won(with_parts)):.1%} found, p = {p:.1g}")
    print(f"{outside:.1%} of the guesses are outside of what is left")
except NotImplementedError:
    print("Write game_reward first, then run this cell.")

# %% [markdown]
# <details><summary>How to read your result</summary>
#
# The three seeds above ended between 78 and 80.5 %, and an earlier run of seed 0 at 70 %. So even a difference of ten
# points may be the luck of one training. The printed p does not count that: it compares the games of two policies, not
# two ways of training. Look at the guesses outside of what is left: your reward pays nothing for them, so if the parts
# work, these guesses become rarer first.
#
# We trained once with the reward of the solution (seed 0). Then 89.5 % were found instead of 78.0 %, and 3.1 % of the
# guesses were outside of what is left instead of 6.5 %. That is a hint that the parts help here, but a run with one
# seed does not show it.
#
# Other methods give each action an advantage of its own: [Feng et al. 2025](https://arxiv.org/abs/2505.10978) compare
# the actions of a group that were taken in the same state.
#
# </details>

# %% [markdown]
# ## Summary
#
# How do you train a model that acts?
#
# - Use the same trainer: `GRPOTrainer` takes `tools` and `environment_factory`. A tool's result is part of the
#   conversation, but the model did not write it, so the mask leaves it out of the loss. The model of this chapter
#   regained a skill within 20 to 40 steps; how far a model without it would come was not measured.
# - Let tools check types, sizes and time themselves. If a tool fails by its own fault, do not count that as a wrong
#   answer.
# - `max_completion_length` limits calls, results and the answer together. What does not fit is dropped without a
#   warning: watch `tools/lost_results`.
# - A correctness reward teaches the model to call always. With a price, a call pays only where the rate by heart is
#   below the border, that is the rate after a call minus the price. With a price of 0.5 our model kept calling for hard
#   products and perhaps called a little more rarely for easy ones, where on average a call neither gained nor cost.
#   That it knows for a single product whether a call pays is not shown.
# - Read the answer from the last message of the model, never from anywhere in the transcript.
# - One advantage for all turns is a noisy signal. It works if the model wins now and then.
#
# Next: [12 · Which algorithm?](12_which_algorithm.ipynb) asks whether all of this should have been GRPO. To start with
# your own data, go on to [17 · Your own project](17_capstone.ipynb).
