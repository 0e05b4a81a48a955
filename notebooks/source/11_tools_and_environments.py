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
from grpo_workbook.environments import multiply, tool

wrong_calls = [{"a": "37", "b": 84}, {"a": True, "b": 84}, {"a": 37},
               {"a": 10**400, "b": 2}, {"a": 37, "b": 84}]
for arguments in wrong_calls:
    try:
        print("result:", multiply(**arguments))
    except Exception as error:
        print(f"{type(error).__name__}: {error}")

# %% [markdown]
# ## The model and its tasks
#
# *tiny-tools* is a Qwen3 of 0.6 million parameters with Qwen3's own chat template. It can call three tools, but mostly
# does not: it answers out of its head. Two kinds of products: *easy* ones of single digits, of which it knows some by
# heart, and *hard* ones, which it cannot do.

# %%
import json
import os

from grpo_workbook import config, load_policy, quiet
from grpo_workbook.run_config import RunConfig
from grpo_workbook.environments import TINY_TOOLS

quiet()
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"  # environments are new in TRL
run = RunConfig.from_env(default_profile="smoke", max_steps=40, batch_size=32)
if run.profile == "smoke":
    run = run.replace(model=str(TINY_TOOLS))
    os.environ["HF_HUB_OFFLINE"] = "1"  # the model is on this disk: ask no network
run = run.replace(output=run.output / "tools")
model, tokenizer = load_policy(run)
print(run)

# %% [markdown]
# The model sees of a tool only its name, its docstring and its types, as a JSON schema. So the docstring is part of the
# prompt: write it for the model.

# %%
from transformers.utils import get_json_schema

print(json.dumps(get_json_schema(multiply), indent=1))

# %% [markdown]
# The rows have a `prompt`, the exact `answer`, and a `kind` that only we read:

# %%
from datasets import Dataset


def read(name):
    lines = (config.DATA / "tool_tasks" / f"{name}.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [row | {"prompt": [{"role": "user", "content": row["question"]}]}
            for row in rows]


train_rows, heldout_rows = read("products_train"), read("products_heldout")[:160]
for row in heldout_rows[:4]:
    print(row["kind"], "|", row["question"], "|", row["answer"])

# %% [markdown]
# ## What is rendered, token by token
#
# `play_episodes` plays conversations as TRL's trainer does, but without training. Here is the first one in which the model
# called the tool and answered with its result. Every box is a token:

# %%
from grpo_workbook.environments import final_answer, play_episodes

how = {"tools": [multiply], "max_turns": 3, "max_new_tokens": 128,
       "sample": True, "seed": run.seed, "batch_size": 80}
before = play_episodes(model, tokenizer, heldout_rows, **how)
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
        mine = [(e.right(row), e.calls) for e, row in zip(episodes, rows)
                if kind in (row["kind"], "all")]
        right, calls = map(sum, zip(*mine))
        table[kind] = (right / len(mine), calls / len(mine))
    return table


def show_table(**tables):
    print(f"{'':8}" + "".join(f"{name:>24}" for name in tables))
    for kind in next(iter(tables.values())):
        cells = [f"{rate:10.1%} right {calls:5.2f} calls"
                 for rate, calls in (table[kind] for table in tables.values())]
        print(f"{kind:8}" + "".join(f"{cell:>24}" for cell in cells))


alone = play_episodes(model, tokenizer, heldout_rows, **how | {"tools": []})
show_table(with_tool=measured(before), without=measured(alone))

# %% [markdown]
# ## Training
#
# TRL's `GRPOTrainer` takes the tools as a list of functions. The reward gets each completion as a list of messages.
# `get_tool_answer_reward` pays 1.0 for the exact final answer; it pays nothing for calling.

# %%
from transformers import PrinterCallback
from trl import GRPOTrainer
from grpo_workbook import training
from grpo_workbook.diagnosis import watch
from grpo_workbook.environments import get_tool_answer_reward

turns = {"max_completion_length": 128, "max_tool_calling_iterations": 3}


def trainer_for(rows, reward, limits=turns, **more):
    args = run.to_grpo_config([1.0] if reward else [], limits)
    adapters = [(p, p.data) for n, p in model.named_parameters() if "lora_" in n]
    trainer = GRPOTrainer(model, reward, args, Dataset.from_list(rows),
                          processing_class=tokenizer, **more)
    for parameter, exact in adapters:  # undo TRL's rounding to bfloat16: chapter 04
        parameter.data = exact.float()
    trainer.reward_funcs = watch(trainer.reward_funcs)  # logs what became of the calls
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(training.RewardBar())
    return trainer


trainer = trainer_for(train_rows, get_tool_answer_reward(), tools=[multiply])
result = trainer.train()

# %% [markdown]
# `tools/call_frequency` is TRL's: calls *per completion*. The rate of completions that call is logged by `watch`
# (chapter 05).

# %%
log = [entry for entry in trainer.state.log_history if "reward" in entry]
steps = [entry["step"] for entry in log]
names = {"reward": "reward", "tools/call_frequency": "calls per completion",
         "tools/failure_frequency": "failed calls, of all calls"}
lines = {text: (steps, [entry.get(name, 0.0) for entry in log])
         for name, text in names.items()}
figures.show(*figures.line_chart(
    lines, x="optimizer step", y="reward, or calls per completion", markers=False,
    title="Calls and reward rise together",
))

# %% [markdown]
# ## After training, and with the tool taken away
#
# Held-out products again. The last column is the control: where the calculator is missing, what was learned must be
# gone, or it was something else. It may fall below what the model knew by heart: it goes on calling a tool that its
# prompt no longer names, and each of these calls fails.

# %%
after = play_episodes(model, tokenizer, heldout_rows, **how)
taken = play_episodes(model, tokenizer, heldout_rows, **how | {"tools": []})
show_table(before=measured(before), after=measured(after), taken_away=measured(taken))

# %% [markdown]
# And what does it still know by heart? That shows only where it cannot call. So the token that opens every call is
# forbidden, in a prompt that names no tool:

# %%
call_token = tokenizer.convert_tokens_to_ids("<tool_call>")
model.generation_config.suppress_tokens = [call_token]
by_heart = play_episodes(model, tokenizer, heldout_rows, **how | {"tools": []})
model.generation_config.suppress_tokens = None
show_table(untrained=measured(alone), calls_forbidden=measured(by_heart))

# %% [markdown]
# The paired test of chapter 04 on the conversations before and after:

# %%
from grpo_workbook import paired_p_value


def right_ones(episodes, rows=heldout_rows):
    return [episode.right(row) for episode, row in zip(episodes, rows)]


p_value = paired_p_value(right_ones(before), right_ones(after))
print(f"p = {p_value:.1g}")

# %% [markdown]
# ## A loss without a word: the result that does not fit
#
# `max_completion_length` bounds everything after the prompt, tool results included. A result that does not fit is
# dropped *after* the tool has run: the conversation ends with the call, the answer is empty, the reward is 0, and
# neither `clipped_ratio` nor any other metric of TRL shows it. `lost_result` recognizes such a conversation by its end.
# The trained model once more, with less and less room:

# %%
from grpo_workbook.environments import lost_result

limits = [10, 20, 30, 40, 50, 60, 80]
narrow = {}
for limit in limits:
    played = play_episodes(model, tokenizer, heldout_rows[:64],
                    **how | {"max_new_tokens": limit})
    narrow[limit] = [measured(played, heldout_rows[:64])["all"][0],
                     sum(lost_result(e.messages) for e in played) / len(played)]
lines = {"right": (limits, [narrow[limit][0] for limit in limits]),
         "end in a call: lost": (limits, [narrow[limit][1] for limit in limits])}
figures.show(*figures.line_chart(
    lines, x="max_completion_length", y="rate of conversations",
    title="Where the result does not fit, the call is paid nothing",
))

# %% [markdown]
# A product in the trained model's hands, with all the room it needs and with 30 tokens:

# %%
short = play_episodes(model, tokenizer, heldout_rows[:1], **how | {"max_new_tokens": 30})[0]
display(coloured(after[0]), coloured(short))

# %% [markdown]
# In a run with 30 tokens no call could earn anything. `watch` (chapter 05) logs the rate as
# `tools/lost_results`: it must be 0. Allow for the number of turns times call and result, plus the answer.

# %% [markdown]
# ## What the mask is for
#
# What if the orange tokens earned a gradient too? TRL's trainer hands the mask to the loss as `tool_mask`. Here is the
# same training without it, a third of the steps:

# %%
model, tokenizer = load_policy(run)  # fresh adapters
unmasked = trainer_for(train_rows, get_tool_answer_reward(),
                       turns | {"max_steps": run.max_steps // 3}, tools=[multiply])
inner = unmasked._generate_and_score_completions
unmasked._generate_and_score_completions = lambda rows: {
    name: value for name, value in inner(rows).items() if name != "tool_mask"
}
unmasked.train();

# %% [markdown]
# The reward and the length of the gradient, with and without the mask:

# %% tags=["hide-input"]
off = [entry for entry in unmasked.state.log_history if "reward" in entry]
for name, title in (("reward", "Without the mask nothing is learned"),
                    ("grad_norm", "The tool's tokens are most of the gradient")):
    lines = {text: ([e["step"] for e in run_log], [e[name] for e in run_log])
             for text, run_log in (("with the mask", log[:len(off)]),
                                   ("without", off))}
    figures.show(*figures.line_chart(lines, x="optimizer step", y=name, title=title,
                                     markers=False))

# %% [markdown]
# A result such as 18981 is a surprise to the model, and so are the headers between two turns, which it never had to
# write. Their gradients are large, and the gradient is clipped to a length of 1: little is left of what the model's own
# tokens say. And the model is trained to *write* what it should only read: where the advantage is positive it learns to
# predict the tool's text, where it is negative not to.

# %% [markdown]
# ## When to call: a price
#
# The trained model calls the calculator for 3 times 4 too: a call costs nothing, so nothing speaks against it. Now each
# call costs half a right answer, and training starts again from fresh adapters, for half of the steps. Which products
# are worth a call?

# %%
model, tokenizer = load_policy(run)
half = get_tool_answer_reward(price=0.5)
fewer = turns | {"max_steps": run.max_steps // 2}
priced_trainer = trainer_for(train_rows, half, fewer, tools=[multiply])
priced_trainer.train()
priced = play_episodes(model, tokenizer, heldout_rows, **how)
show_table(before=measured(before), free=measured(after), priced=measured(priced))

# %% [markdown]
# Calls per conversation, on easy and on hard products:

# %% tags=["hide-input"]
panels = {name: [measured(episodes)[kind][1] for kind in ("easy", "hard")]
          for name, episodes in (("before", before), ("free calls", after),
                                 ("a call costs 0.5", priced))}
figures.show(*figures.bar_panels(
    panels, ["easy", "hard"], y="calls per conversation",
    title="A price teaches when to call",
))

# %% [markdown]
# By hand: a call that ends in the right answer earns 1 - 0.5. Answering by heart earns the rate at which the model is
# right. For hard products that rate is near 0, so the call pays; for easy ones it pays only where the model knows less
# than half.
#
# ## Two tools: look up, then multiply
#
# Shopping: `PriceList` is an *environment*, of which more below. It makes a table of prices afresh for each row, behind
# `lookup(item)`. A question asks for a price, or for a price times a number, or for a product alone: the model has both
# tools in its prompt and must choose. With the book closed, that is without tools, it cannot know a price.

# %%
from grpo_workbook.environments import PriceList

shop_rows = read("shopping_heldout")
shop = {"tools": [multiply], "environment": PriceList}
model, tokenizer = load_policy(run)
shop_closed = play_episodes(model, tokenizer, shop_rows, **how | {"tools": []})
shop_before = play_episodes(model, tokenizer, shop_rows, **how | shop)


def train_shop(reward):
    trainer_for(read("shopping_train"), reward, fewer,
                tools=[multiply], environment_factory=PriceList).train()
    return play_episodes(model, tokenizer, shop_rows, **how | shop)


shop_after = train_shop(get_tool_answer_reward())
shopping = {name: measured(episodes, shop_rows) for name, episodes in
            (("closed_book", shop_closed), ("before", shop_before),
             ("after", shop_after))}
show_table(**shopping)

# %% [markdown]
# A total needs two calls in a row, and the second one must hold what the first one found. The untrained model does that
# now and then: enough for some groups to hold a total that paid, and its advantage is large.
#
# ## Rewards over transcripts
#
# A reward gets the whole transcript, and whatever it reads there can be written by the model on purpose. Below are
# transcripts that deserve nothing where 8342 is wanted. The first reward searches all texts for the answer, the second
# takes the last text of whatever role, and the third is the course's:

# %%
from grpo_workbook.environments import attacks


def anywhere(completion):
    return any("8342" in message["content"] for message in completion)


def last_text(completion):
    return bool(completion) and completion[-1]["content"] == "8342"


fooled = {"anywhere": 0, "last text": 0, "course": 0}
for name, completion in attacks("8342").items():
    paid = [anywhere(completion), last_text(completion),
            get_tool_answer_reward()([completion], ["8342"])[0] > 0]
    fooled = {reward: fooled[reward] + hit for reward, hit in zip(fooled, paid)}
    print(f"{name:45}", *("paid" if hit else "   -" for hit in paid))
print("paid wrongly:", fooled)

# %% [markdown]
# A tool that fails by its own fault is another case. A server that is down would teach the model not to call. So
# `@tool` marks such a failure, the reward of its transcript is `None` (TRL leaves it out of its group, and it earns no
# gradient), and `tools/broken` in the log says how many there were. For a *wrong* call it is the model that pays.

# %% [markdown]
# ## A strategy: an environment of several turns
#
# An *environment* is an object for each conversation: it keeps a secret and a state, its public methods are the tools,
# and it may pay the reward itself. `GuessNumber` hides a number from 1 to 7 and answers *higher* or *lower*; there are
# three guesses. A player who guesses at random within what is left finds about two in three, binary search finds all.

# %%
from grpo_workbook import show
from grpo_workbook.environments import Environment, GuessNumber

show(GuessNumber)

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


players = {"random": random.Random(0).randint,
           "binary search": lambda a, b: (a + b) // 2}
yardsticks = {}
for name, choose in players.items():
    games = [play(choose, seed) for seed in range(2000)]
    yardsticks[name] = [sum(column) / len(games) for column in zip(*games)]
    print("{:14}{:6.1%} found, {:.2f} guesses".format(name, *yardsticks[name]))

# %% [markdown]
# A row needs only a prompt and a `seed`: the environment makes the rest from it. All completions of a group have the
# same row, so the same secret: a lucky first guess is then part of the differences within the group, that is noise.
# The environment's `get_reward` is the only reward, so TRL gets no reward functions:

# %%
GAME = "Find my number from 1 to 7. You have 3 guesses."


def game_rows(count, first):
    prompt = [{"role": "user", "content": GAME}]
    return [{"prompt": prompt, "seed": first + i} for i in range(count)]


def won(episodes):
    return [e.environment.get_reward() == 1 for e in episodes]


def played_games(when):
    episodes = play_episodes(model, tokenizer, game_rows(200, 10**6), **game_how)
    found, guesses = sum(won(episodes)) / 200, sum(e.calls for e in episodes) / 200
    print(f"{when:16}{found:6.1%} found, {guesses:.2f} guesses")
    return episodes


game_how = {"environment": GuessNumber, "max_turns": 3, "max_new_tokens": 180,
            "batch_size": 100, "sample": True, "seed": run.seed}
model, tokenizer = load_policy(run)  # fresh adapters
game_before = played_games("before training")

# %% [markdown]
# Train, and play other games. There are only seven secrets, so what is held out are draws; the strategy is what can be
# learned. Two runs, with two seeds, show how much of it is luck:

# %%
game_turns = {"max_completion_length": 180, "max_tool_calling_iterations": 3,
              "max_steps": run.max_steps // 2}
game_logs, game_after = {}, {}
for seed in (run.seed + 1, run.seed):
    model, tokenizer = load_policy(run.replace(seed=seed))
    seeds = {"seed": seed, "data_seed": seed}
    game_trainer = trainer_for(game_rows(2000, 0), [], game_turns | seeds,
                               environment_factory=GuessNumber)
    game_trainer.train()
    game_after[seed] = played_games(f"after, seed {seed}")
    history = game_trainer.state.log_history
    game_logs[f"seed {seed}"] = [entry for entry in history if "reward" in entry]
game_p = paired_p_value(won(game_before), won(game_after[run.seed]))
print(f"p = {game_p:.1g}")

# %% [markdown]
# Games won and guesses over training, beside the two players. A batch of 32 games has only four secrets, so the curves
# are noisy:

# %%
for i, (name, y) in enumerate((("reward", "games won"),
                               ("tools/call_frequency", "guesses per game"))):
    curves = {seed: ([e["step"] for e in entries], [e[name] for e in entries])
              for seed, entries in game_logs.items()}
    ends = [1, len(next(iter(game_logs.values())))]
    for player, yardstick in yardsticks.items():
        curves[f"player: {player}"] = (ends, [yardstick[i]] * 2)
    figures.show(*figures.line_chart(
        curves, x="optimizer step", y=y, markers=False,
        title=f"{y.capitalize()}, beside a random player and the best one",
    ))

# %% [markdown]
# What did it learn? A guess can *contradict* an earlier answer, or *halve* what is left. Both rates, for each of the
# three guesses:

# %%
def of_guesses(episodes):
    """(rate that contradicts, rate that halves) for the first to third guess."""
    seen = [[] for _ in range(GuessNumber.max_turns)]
    for episode in episodes:
        low, high, secret = 1, GuessNumber.highest, episode.environment._secret
        for turn, (number,) in enumerate(episode.environment._transcript):
            seen[turn].append((not low <= number <= high, number == (low + high) // 2))
            if number < secret:
                low = max(low, number + 1)
            else:
                high = min(high, number - 1)
    return [[sum(column) / len(turn) for column in zip(*turn)] for turn in seen]


panels = {}
for name, episodes in (("before", game_before), ("after", game_after[run.seed])):
    contradict, halve = zip(*of_guesses(episodes))
    panels |= {f"{name}: contradicts": contradict, f"{name}: halves": halve}
figures.show(*figures.bar_panels(
    panels, ["1st", "2nd", "3rd"], y="rate of the guesses",
    title="It contradicts the answers less often, and learns to halve",
))

# %% [markdown]
# In 20 steps the model becomes about as good as the player at random, or better: the two rates are printed above. It
# halves more often, and its second guess hardly ever contradicts. The third one still does: it depends on two answers
# at once. Give it more steps, and see.

# %% [markdown]
# ## Credit over turns
#
# A transcript has one reward, so one advantage, and every blue token in it gets that advantage. The untrained model
# plays twelve groups of eight games, each group for one secret. Here is the group with the most mixed results, each
# game with its advantage and its guesses:

# %%
from statistics import mean, pstdev

model, tokenizer = load_policy(run)  # before training: its results are mixed
rows = [row for row in game_rows(12, 7) for _ in range(8)]
played = play_episodes(model, tokenizer, rows, **game_how)
groups = [played[i : i + 8] for i in range(0, len(played), 8)]
group = min(groups, key=lambda group: abs(sum(won(group)) - 4))  # the most mixed one
rewards = [e.environment.get_reward() for e in group]
spread = pstdev(rewards) * (8 / 7) ** 0.5 + 1e-4  # as TRL: n - 1
for episode, reward in zip(group, rewards):
    guesses = [number for (number,) in episode.environment._transcript]
    print(f"{(reward - mean(rewards)) / spread:+.2f}  {guesses}")

# %% [markdown]
# A good first guess in a lost game is punished, a bad one in a won game is rewarded. On average over many groups the
# good guess still wins more often, and that is all the signal there is. The more turns, the more of this noise. It
# helps to keep episodes short, to start from a model that wins sometimes, and to use more groups.
#
# ## The cost of turns
#
# TRL keeps no key-value cache between turns: for every turn the whole conversation so far is read again.

# %%
def tokens_read(episode):
    """(tokens read in all turns, tokens of the conversation)."""
    masks = [*episode.mask, 0]
    ends = [i for i, mine in enumerate(episode.mask, 1) if mine and not masks[i]]
    starts = [0] + [i for i in range(1, len(episode.mask))
                    if episode.mask[i] and not episode.mask[i - 1]]
    prompt = len(episode.prompt_ids)
    read = sum(prompt + start for start in starts[:len(ends)])
    return read, prompt + len(episode.ids)


for name, episodes in (("a product", after), ("a game", game_after[run.seed])):
    read_tokens, whole = map(sum, zip(*map(tokens_read, episodes)))
    count = len(episodes)
    print(f"{name:10}: {read_tokens / count:5.0f} tokens read for a "
          f"conversation of {whole / count:.0f}")

# %% [markdown]
# All conversations of a batch wait for the slowest in every turn, too. A model that does not stop makes a step last as
# long as `max_completion_length` allows, turn after turn.
#
# ## A tool that runs the model's programs
#
# A model that writes code can try it before it answers. The environment below gives it the sandbox of chapter 06 as a
# tool. The model learns how many of the assertions held, and not which ones: what a tool says, a model can use to cheat.

# %%
from grpo_workbook.sandbox import CODE_TASKS, Job, Sandbox, read_tasks

sandbox = Sandbox(workers=1, time_limit=2.0)


class CodeTask(Environment):
    max_turns = 3

    def _start(self, rng, row):
        self._row, self._passed = row, False

    @tool(seconds=60, characters=2000)
    def run_python(self, program: str) -> str:
        """Run the tests of the task on a program. The last program counts.

        Args:
            program: Python that defines the function.
        """
        self._turn()
        test, name = self._row["test"], self._row["entry_point"]
        verdict = sandbox.check([Job(program, test, name)])[0]
        if verdict.fault in ("test", "sandbox"):  # not the model's
            raise RuntimeError(verdict.reason)
        self._passed = verdict.passed
        return f"{verdict.outcome}: {verdict.cases_passed} of {verdict.cases} held"

    def get_reward(self):
        return float(self._passed)


# %% [markdown]
# Three programs by hand, as a model would send them. The second one tries to leave the test early:

# %%
task = read_tasks(CODE_TASKS["heldout"])[0]
code_task = CodeTask()
code_task.reset(seed=0, **task)
start = task["prompt"]
for program in (start + "    return n < 19\n", start + "    import os; os._exit(0)\n",
                start + task["canonical_solution"]):
    said = code_task.run_python(program=program)
    print(f"{program.splitlines()[-1].strip():28}{said:24}{code_task.get_reward()}")
sandbox.close()

# %% [markdown]
# The tiny model cannot read the schema of this tool. With a Qwen3 on a GPU it goes to `trainer_for` as
# `environment_factory=CodeTask`; this has not been run yet. A test of the course does it on a CPU: a tiny model that
# has learned one call of `run_python` by heart takes a step of GRPO in this environment.
#
# ## Environments of others: OpenEnv and verifiers
#
# OpenEnv's environments have `reset` and `step`, and run mostly on a server. TRL wants methods that are tools. So an
# environment of ours holds one of theirs. `Server` stands for a client such as `EchoEnv(base_url=...)`:

# %%
from importlib.util import find_spec

if not find_spec("openenv"):
    print("skipped: pip install openenv")
else:
    from openenv import core

    class Server(core.Environment):
        state = core.State()

        def reset(self, seed=None, **more):
            self.secret = seed % 7 + 1

        def step(self, action, **more):
            return core.Observation(reward=action.metadata["number"] == self.secret)

    class Remote(Environment):
        def _start(self, rng, row):
            self._server, self._reward = Server(), False
            self._server.reset(seed=row["seed"])

        @tool
        def guess(self, number: int) -> str:
            self._turn(number)
            act = core.Action(metadata={"number": number})
            self._reward = self._server.step(act).reward
            return "correct" if self._reward else "wrong"

        def get_reward(self):
            return float(self._reward)

# %% [markdown]
# A *taskset* of verifiers yields prompts, and its tasks have reward methods. It plays the episodes itself, against a
# served model. For TRL one takes the prompts as rows, and a reward that fills a trace with what the model said:

# %%
if not find_spec("verifiers"):
    print("skipped: pip install verifiers")
else:
    import verifiers.v1 as vf

    class Answer(vf.TaskData):
        answer: str

    class Product(vf.Task[Answer]):
        @vf.reward
        async def exact(self, trace) -> float:
            return float(trace.last_reply == self.data.answer)

    class Products(vf.Taskset[Product]):
        def load(self):
            for row in train_rows:
                yield Product(Answer(prompt=row["question"], answer=row["answer"]))

    their_tasks = list(Products(vf.TasksetConfig()))

    async def their_reward(completions, index, **columns):  # TRL awaits it
        rewards = []
        for messages, task in zip(completions, (their_tasks[i] for i in index)):
            about = vf.TraceTask(type="Product", data=task.data)
            agent = vf.AgentInfo(config=vf.AgentConfig())
            trace = vf.Trace(task=about, agent=agent, root_reply=final_answer(messages))
            await task.score(trace)
            rewards.append(trace.reward)
        return rewards

# %% [markdown]
# ## What the metrics count, and what they do not
#
# | metric | counts | does not count |
# | --- | --- | --- |
# | `tools/call_frequency` | calls per completion | the rate of completions that call |
# | `tools/failure_frequency` | calls that raised, of all calls | calls with broken JSON: these become text |
# | `completions/mean_length` | the model's own tokens | tool results |
# | `completions/clipped_ratio` | turns cut off by the limit | results that did not fit |
# | `tools/calling`, by `watch` | completions that call | |
# | `tools/lost_results`, by `watch` | transcripts that end in a call | |
# | `tools/broken`, by `get_tool_answer_reward` | tools that failed by their own fault | |

# %% [markdown]
# ## On a GPU
#
# On a GPU the cells above run with a Qwen3 of the profile: its tokenizer knows the same marks, and it can read the
# schema of a tool that it has never seen. This has not been run yet.

# %% [markdown] tags=["remove-cell"]
# The numbers that the tests of this course look at:

# %% tags=["remove-cell"] jupyter={"source_hidden": true}
proved = {
    "steps": len(log),
    "linear4bit_layers": training.count_4bit_layers(model),
    "before": measured(before),
    "after": measured(after),
    "taken": measured(taken),
    "priced": measured(priced),
    "p_value": p_value,
    "lost": narrow,
    "unmasked": [mean(e["reward"] for e in entries[-5:])
                 for entries in (log[:len(off)], off)],
    "game": [sum(won(e)) / 200 for e in (game_before, *game_after.values())],
    "fooled": fooled,
    "by_heart": measured(by_heart),
    "shopping": shopping,
}
run.output.mkdir(parents=True, exist_ok=True)
(run.output / "notebook_11.json").write_text(json.dumps(proved, indent=2))
if run.profile == "smoke":
    assert proved["before"]["all"][0] <= 0.30
    assert proved["after"]["all"][0] >= 0.85
    assert proved["taken"]["all"][0] < 0.5
    assert proved["p_value"] < 1e-6
    assert proved["fooled"]["course"] == 0

# %% [markdown]
# ## Exercises
#
# Run a cell to check your answer. The table in chapter 00 counts what you have solved.

# %% [markdown]
# ### Exercise 11.1 · `tokens_needed` · easy · 5 minutes
#
# Return the `max_completion_length` that a conversation of `calls` calls needs: a call has `call` tokens, a result with
# its headers `result`, the answer at the end `answer`. The cell below trains with your number for one call of 21 tokens,
# a result of 21 and an answer of 6.

# %% tags=["exercise"]
from grpo_workbook.exercises import check, predict


def tokens_needed(calls: int, call: int, result: int, answer: int) -> int:
    raise NotImplementedError


check("11.1", tokens_needed);

# %% [markdown]
# <details><summary>Hint</summary>
#
# What stands in the conversation after the prompt, the model's own and the rest?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def tokens_needed(calls: int, call: int, result: int, answer: int) -> int:
#     return calls * (call + result) + answer
# ```
#
# </details>
#
# The run with your number, from fresh adapters and for half of the steps:

# %%
def run_again(reward, limits=turns):
    """Train on products once more, and play the held-out ones."""
    global model, tokenizer
    model, tokenizer = load_policy(run)
    limits = limits | {"max_steps": run.max_steps // 2}
    trainer_for(train_rows, reward, limits, tools=[multiply]).train()
    room = {"max_new_tokens": limits["max_completion_length"]}
    return measured(play_episodes(model, tokenizer, heldout_rows, **how | room))


try:
    room = tokens_needed(calls=1, call=21, result=21, answer=6)
    show_table(yours=run_again(get_tool_answer_reward(),
                               turns | {"max_completion_length": room}))
except NotImplementedError:
    print("Write tokens_needed first, then run this cell.")

# %% [markdown]
# ### Exercise 11.2 · `priced_reward` · medium · 10 minutes
#
# Write the reward of the priced run: 1 if the last message is an assistant's and its content is exactly the answer,
# else 0; then `price` taken away for each call in the transcript, whether it worked or not. The cell below
# trains with it.


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
#     for messages, wanted in zip(completions, answer):
#         last = messages[-1]
#         right = last["role"] == "assistant" and last["content"] == wanted
#         calls = sum(len(message.get("tool_calls", ())) for message in messages)
#         rewards.append(float(right) - price * calls)
#     return rewards
# ```
#
# </details>
#
# The run with your reward. At a price of 0.9, of what use is a call?

# %%
def your_reward(completions, answer, **columns):
    return priced_reward(completions, answer, price=0.9)


try:
    priced_reward([], [], 0.9)
    show_table(yours=run_again(your_reward))
except NotImplementedError:
    print("Write priced_reward first, then run this cell.")

# %% [markdown]
# ### Exercise 11.3 · `my_tool` · medium · 10 minutes
#
# A tool for a task of your own, such as a search in your notes. Return a function with at least one argument that a
# model can call: with type hints, a docstring with `Args:`, and its calls checked.


# %% tags=["exercise"]
def my_tool() -> object:
    raise NotImplementedError


check("11.3", my_tool);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Look at `multiply` in `grpo_workbook/environments/examples.py`: what stands above its `def`, and what in its docstring?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def my_tool() -> object:
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
#     return find
# ```
#
# </details>
#
# The run with your tool beside the calculator. Its schema stands in every prompt, and the model has never seen it:

# %%
try:
    for tools in ([multiply], [multiply, my_tool()]):
        played = play_episodes(model, tokenizer, heldout_rows, **how | {"tools": tools})
        tokens = mean(len(episode.prompt_ids) for episode in played)
        right, calls = measured(played)["all"]
        print(f"{len(tools)} tools: {tokens:4.0f} tokens in the prompt, "
              f"{right:.1%} right, {calls:.2f} calls")
except NotImplementedError:
    print("Write my_tool first, then run this cell.")

# %% [markdown]
# ### Exercise 11.4 · `wrong_tool` · medium · 10 minutes
#
# A calculator that is wrong in half of its answers, by 1. A call now earns a right answer in half of the cases only.
# Which products does the model call for after training? Predict, then run. Calling "for hard ones" means: for most hard
# products, and for less than three quarters of the easy ones. (With a right calculator it calls for nearly all.)

# %% tags=["exercise"]
from functools import wraps
from grpo_workbook.environments import tool

prediction = ...  # "for all", "for hard ones", "for none"


def run_wrong_tool() -> dict:
    """The calls per conversation on held-out products after training, by kind."""
    global model, tokenizer

    @tool
    @wraps(multiply.__wrapped__)  # the same name, docstring and types for the model
    def wrong_half_the_time(a, b):
        return a * b + random.getrandbits(1)

    random.seed(run.seed)
    model, tokenizer = load_policy(run)
    half_wrong = {"tools": [wrong_half_the_time]}
    trainer_for(train_rows, get_tool_answer_reward(), fewer, **half_wrong).train()
    played = play_episodes(model, tokenizer, heldout_rows, **how | half_wrong)
    return {kind: calls for kind, (_, calls) in measured(played).items()}


predict("11.4", prediction, run_wrong_tool);

# %% [markdown]
# <details><summary>Hint</summary>
#
# How often is the model right on an easy product without the calculator, and how often with this one? And on a hard one?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "for hard ones"
# ```
#
# In our run, 0.50 calls for an easy product and 0.99 for a hard one. By heart an easy product is right about as often as
# by this calculator, so little speaks for either. A hard one is right by heart almost never: half a chance is much.
#
# </details>

# %% [markdown]
# ### Exercise 11.5 · `too_narrow` · easy · 8 minutes
#
# Train with `max_completion_length=30`: too little for a call, its result and an answer. What becomes of the calls?
# "die out": under a quarter of the first rate is left; "spread": over four times it.

# %% tags=["exercise"]
prediction = ...  # "die out", "stay", "spread"


def run_narrow() -> dict:
    """The rate of completions that call, in each step."""
    global model, tokenizer
    model, tokenizer = load_policy(run)
    tight = trainer_for(train_rows, get_tool_answer_reward(),
                        fewer | {"max_completion_length": 30}, tools=[multiply])
    tight.train()
    entries = [entry for entry in tight.state.log_history if "reward" in entry]
    return {"calling": [entry.get("tools/calling", 0.0) for entry in entries]}


predict("11.5", prediction, run_narrow);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Which reward does a completion get whose result did not fit, and which one an answer by heart?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "stay"
# ```
#
# A call whose result is dropped earns 0. Without calls hardly any product is right, so most groups earn 0 throughout and
# nothing is learned: in our run 11.5 % of the completions called at first, and 11.5 % at the end. No metric of TRL says
# why; `tools/lost_results` does.
#
# </details>

# %% [markdown]
# ### Exercise 11.6 · `two_tools` · hard · 15 minutes
#
# Shopping with a price: each call costs 0.65 of a right answer. What does the model still get right after as many steps
# as above? "both": over half of the totals; "only single prices": over half of the single prices, but not of the totals.

# %% tags=["exercise"]
prediction = ...  # "neither", "only single prices", "both"


def run_shopping() -> dict:
    """The rate right on held-out questions after training, by kind."""
    global model, tokenizer
    model, tokenizer = load_policy(run)
    played = train_shop(get_tool_answer_reward(price=0.65))
    return {kind: rate for kind, (rate, _) in measured(played, shop_rows).items()}


predict("11.6", prediction, run_shopping);

# %% [markdown]
# <details><summary>Hint</summary>
#
# What does a right price earn after one call, and what a right total after two? And what does saying anything at once?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "only single prices"
# ```
#
# A right price earns 1 - 0.65 after its call. A right total earns 1 - 1.3: less than an answer that calls nothing and is
# wrong. In our run 64 % of the prices were right after these 20 steps, and 27 % of the totals.
# Totals are still above the 7 % of before: what pays for a price is done for a total, too, until that has cost enough.
#
# </details>

# %% [markdown]
# ## Summary
#
# - A model that acts writes turns; a tool's result is part of the conversation, and no action of the model: the mask
#   leaves it out of the loss.
# - Tools check types, sizes and time themselves. A tool's own failure is no wrong answer.
# - `max_completion_length` holds calls, results and the answer. What does not fit is lost without a word: count it.
# - A correctness reward teaches to call always. A price per call teaches when.
# - Read the answer from the last message of the model, never from anywhere in the transcript.
# - One advantage for all turns is a noisy signal. It works where the model wins now and then.
#
# Next: [12 · Which algorithm?](12_which_algorithm.ipynb) asks whether all of this should have been GRPO. To start with
# your own data, go on to [14 · Your own project](14_capstone.ipynb).
