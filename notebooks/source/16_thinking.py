# %% [markdown]
# # 16 · Thinking
#
# When does a thought pay, and how long should it be? A model that thinks writes a text before its answer, and each
# token of that text costs time. This chapter trains a model that thinks, cuts its thoughts off, and puts a price on
# their length.
#
# **After this notebook you can** say what a chat template does to thoughts, train with thoughts in TRL and measure the
# policy with the same prompt, cut thoughts off at a budget, tell what a token limit hides, and train a model to leave
# out of its thoughts what they do not need.
#
# **Time:** about 5 minutes on two CPU cores. (The progress bars below were recorded on a busy machine.) Reading takes
# about 30 minutes. **You need** chapters 00, 01, 02 and 04.

# %% [markdown]
# ## Two small models that think
#
# Models such as Qwen3 and DeepSeek-R1 write their thought between `<think>` and `</think>`, and then the answer. A
# **hybrid model** can answer with a thought or without one, and an option of its chat template chooses; Qwen3 is one,
# and thinks unless the option is off. (Its releases of July 2025, `-2507`, are no hybrids: each either always thinks or
# never.) This chapter has two tiny models with Qwen3's template. They add two numbers, and their thoughts add the
# columns from the right:
#
# - **tiny-thinker** knows how to think ([its card](../data/tiny-thinker/README.md)), but it mostly forgets to.
# - **tiny-rambler** thinks longer than it has to. In three of four of the answers that it learned from, every column
#   was added twice ([its card](../data/tiny-rambler/README.md)).
#
# All other chapters switch thinking off, and this one switches it on: `thinking=True` sets TRL's field
# `chat_template_kwargs`, which has the options that the chat template reads beside the messages:

# %%
from grpo_workbook import choose_profile, config, quiet, use_one_thread

quiet()
use_one_thread()  # for a tiny model several threads only wait for each other
import unsloth  # before TRL, because it changes parts of TRL
from grpo_workbook import load_policy, load_problems, to_dataset

changes = {
    "max_completion_length": 64, "max_steps": 40, "per_device_train_batch_size": 64,
    "learning_rate": 1e-3, "save_strategy": "no",
}
profile = choose_profile(
    default="smoke", model=config.DATA / "tiny-thinker", thinking=True, grpo=changes
)
ON, OFF = profile.grpo["chat_template_kwargs"], {"enable_thinking": False}
print(ON)
SUMS = config.DATA / "step_tasks"
train_set = to_dataset(load_problems(SUMS / "train.jsonl"), system_prompt=None)
heldout = to_dataset(load_problems(SUMS / "heldout.jsonl"), system_prompt=None)
heldout = heldout.select(range(240))
model, tokenizer = load_policy(profile)
print(heldout[0]["prompt"], heldout[0]["answer"])
print("completions of a group:", profile.grpo["num_generations"])

# %% [markdown]
# (On the command line, `python -m grpo_workbook run --thinking` is the same setting. The template of Gemma 3 has no
# such switch. Gemma 4 has one, with tags of its own: print its prompt before you write a reward.)
#
# ## What the template does with a thought
#
# Switching thinking on or off only changes what the chat template writes into the prompt. To see what that is, the next
# cell calls the template five times. Both models have Qwen3's own template, as TRL ships it. `answered` is an answer of
# the model with its thought, and `silent` is one without:

# %%
question = {"role": "user", "content": "Add 57 and 68."}
thought = "<think>\n7+8=15\n5+6+1=12\n</think>\n\n"
answered = {"role": "assistant", "content": f"{thought}<answer>125</answer>"}
silent = {"role": "assistant", "content": "<answer>125</answer>"}
render = tokenizer.apply_chat_template
prompt = {"tokenize": False, "add_generation_prompt": True}
rendered = {}
rendered["prompt, on"] = render([question], **ON, **prompt)
rendered["prompt, off"] = render([question], **OFF, **prompt)
rendered["next prompt"] = render([question, answered, question], **ON, **prompt)
rendered["training row"] = render([question, answered], tokenize=False)
rendered["row without"] = render([question, silent], tokenize=False)
for name, text in rendered.items():
    print(f"{name:13} {len(tokenizer(text)['input_ids'])} tokens")

# %% [markdown]
# Here are the tokens that the model gets from each of the five calls:

# %% tags=["hide-input"]
from grpo_workbook import figures
from matplotlib.patches import Rectangle

LINE = 95.0  # letters in a line
figure, (axes,) = figures.new_panels(10.0, 4.2)
y = 0.0
for name, text in rendered.items():
    axes.text(-1.5, y + 0.45, name, ha="right", va="center", fontsize=10)
    x = 0.0
    for token in tokenizer(text)["input_ids"]:
        label = tokenizer.decode([token]).replace("\n", "\\n").replace(" ", "␣")
        colour = figures.PALE["check" if "think" in label else "data"]
        if "<|" in label:
            colour = figures.PALE["number"]
            label = label.strip("<|>").replace("im_", "")
        width = len(label) + 1.2
        if x + width > LINE:
            x, y = 0.0, y - 1.0
        box = Rectangle((x, y), width, 0.9, facecolor=colour, edgecolor="white")
        axes.add_patch(box)
        axes.text(x + width / 2, y + 0.43, label, ha="center", va="center",
                  fontsize=8.5)
        x += width
    y -= 1.5
axes.set(xlim=(-15, LINE), ylim=(y + 1.2, 1.1))
axes.axis("off")
title = "Thoughts leave the history, and a last answer without one gets an empty one"
axes.set_title(title)
words = "Tokens in boxes for five renderings. With thinking off, and in the row without"
figures.show(figure, f"{words} a thought, there is an empty thought.")

# %% [markdown]
# Each group of boxes is the text of one call, to be read line by line. Orange boxes begin and end a turn, green boxes
# open and close a thought, and blue boxes are all other tokens. `␣` is a space and `\n` a line break. Three things can
# be seen:
#
# 1. **Thinking off** writes an *empty thought* into the prompt. That is how the switch works: the model continues
#    behind a thought that is already closed. Qwen3 has seen such prompts in its training. What another model does with
#    them has to be measured.
# 2. **The history drops thoughts.** In the next prompt the first answer stands without its thought. So in a
#    conversation the model does not see what it thought before its earlier answers. (Qwen3's template keeps the
#    thoughts behind the last message of the user, so between two tool calls they stay.)
# 3. **A training row without a thought gets an empty one** in its last turn. What does supervised training on such rows
#    teach? Exercise 16.4 asks.
#
# Other templates open the thought themselves: those of DeepSeek-R1 and of Qwen3's Thinking models of July 2025 end the
# prompt with `<think>`, so a completion has only the closing tag. Print the prompt of your own model before you write a
# reward that reads thoughts.
#
# The prompt in training, in each measurement, after the merge and on a server must all be rendered with the same
# options: otherwise a policy is measured on a prompt that it was never trained on. `run` keeps them in its record, and
# `evaluate` and `merge` read them there. A server needs them in each request, or as its default
# (`vllm serve --default-chat-template-kwargs`).

# %% [markdown]
# ## Before training
#
# The reward is 1 for the right number in `<answer>` and 0 for any other completion. **It never looks at the thought.**
# A thought has no right form, and what is paid there is learned for its own sake: a reward for long thoughts gives long
# thoughts. [OpenAI](https://arxiv.org/abs/2503.11926) found worse: when a monitor of the thoughts became a part of the
# reward, a model learned to hide its plan and went on cheating. `correctness_reward` reads the answer behind the
# thought, so a number that the model only considers is no answer.
#
# The next function measures a policy in four ways. *pass@16* is the fraction of sums that at least one of 16 samples
# solves:

# %%
from statistics import mean

from grpo_workbook import correctness_reward, evaluate
from grpo_workbook.evaluation import passed

room = {"rewards": [correctness_reward], "max_new_tokens": 64, "batch_size": 120}
some = heldout.select(range(120))


def measure(policy):
    """Scores of a policy on the held-out sums."""
    scores = {}
    scores["greedy"] = evaluate(
        policy, tokenizer, heldout, chat_template_kwargs=ON, **room
    )
    scores["sampled"] = evaluate(
        policy, tokenizer, some, samples=16, sample=True, chat_template_kwargs=ON,
        **room,
    )
    scores["off"] = evaluate(
        policy, tokenizer, heldout, chat_template_kwargs=OFF, **room
    )
    return scores


# %% [markdown]
# Print these scores, and two of the samples: the first one, and the first one with a thought:

# %%
def show(scores):
    for name, score in scores.items():
        thoughts = mean(score.thoughts)
        print(f"{name:8} {score.rate:6.1%} right, {thoughts:4.1f} tokens of thought")
    solved = mean(passed(scores["sampled"].strict, 16))
    print(f"pass@16  {solved:6.1%}")
    return solved


before = measure(model)
solved_before = show(before)
samples = before["sampled"].completions
thinking = [text for text in samples if "<think>" in text]
for text in [samples[0], *thinking[:1]]:
    print(repr(text))

# %% [markdown]
# Few answers are right, because most of them have no thought, or one without all columns. But 16 samples solve many of
# the sums, so GRPO has something to reinforce. With thinking off nothing is right. That is not the fault of the
# switch: without a thought this model solves hardly any sum, as its greedy answers with thinking on show.

# %% [markdown]
# ## The run
#
# Nothing in the run is about thoughts except for the prompt. TRL's trainer gets the reward and the sums:

# %%
import pandas as pd
from grpo_workbook import Float32Adapters, RewardBar
from grpo_workbook.diagnosis import watch
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer


def train(policy, rewards, dataset, settings):
    """Train a policy with GRPO; the log of its steps, a row each."""
    args = GRPOConfig(output_dir=str(profile.output / "thinking"), **settings)
    trainer = GRPOTrainer(
        policy, watch(rewards), args, dataset, processing_class=tokenizer,
        callbacks=[Float32Adapters(policy), RewardBar()],
    )
    trainer.remove_callback(PrinterCallback)  # the bar shows the same in one line
    trainer.train()
    log = pd.DataFrame(trainer.state.log_history)
    return log[log["reward"].notna()]  # the last entry is of the whole run


log = train(model, [correctness_reward], train_set, profile.grpo)
after = measure(model)
solved_after = show(after)
print(repr(after["greedy"].completions[0]))

# %% [markdown]
# With thinking off, the trained model has about one token of thought instead of 34, and nothing is right.
# *tiny-thinker* has never seen an empty thought, but here it has the effect of the switch.
#
# What has changed with thinking on? The figure has the mean reward and the mean length of each step's 64 completions:

# %% tags=["hide-input"]
figure, panels = figures.new_panels(9.0, 3.2, 2, 2)
lengths = log["completions/mean_length"].tolist()
right = (100 * log["reward"]).tolist()
unclosed = 100 * log["thoughts/unclosed"].fillna(0.0)  # not logged without thoughts
panels[0].plot(log["step"], right, color=figures.BLUE, label="right")
panels[0].plot(log["step"], unclosed, "--", color=figures.ORANGE,
               label="thought not closed")
panels[0].set(xlabel="optimizer step", ylabel="completions, %", ylim=(-4, 100))
panels[0].set_title("More are right, and hardly a thought stays open")
panels[1].plot(log["step"], lengths, color=figures.BLUE)
panels[1].set(xlabel="optimizer step", ylabel="tokens", ylim=(0, None))
panels[1].set_title("Completions become longer")
figure.legend(loc="outside lower center", ncols=3, frameon=False)
figures.show(
    figure,
    f"Two line charts. Right answers rise from {right[0]:.0f} to {right[-1]:.0f} %, "
    f"the mean length from {lengths[0]:.0f} to {lengths[-1]:.0f} tokens.",
)

# %% [markdown]
# Both horizontal axes count the optimizer steps. On the left, the solid line is the percentage of right answers, and
# the dashed line that of completions whose thought is open at the end, which `watch` logs. On the right is the mean
# number of tokens.
#
# Nearly every thought is closed, so the dashed line lies near 0. The completions have become longer because complete
# thoughts are right and incomplete ones are not. Nobody paid for length. Nor does the loss favour it: with
# `loss_type="dapo"`, TRL's default, a token of a long wrong answer is penalised as much as one of a short wrong answer
# ([chapter 01](01_grpo_from_scratch.ipynb)). The greedy answer, which never thought before, does so now. This
# resembles the growth of thoughts that was first reported of [DeepSeek-R1-Zero](https://arxiv.org/abs/2501.12948), at a
# very small scale. Two things differ: here the thoughts existed, and GRPO only made them frequent; and there a part of
# the growth may come from a loss that favours long wrong answers ([Dr. GRPO](https://arxiv.org/abs/2503.20783)).

# %% [markdown]
# ## A budget when it answers
#
# Long thoughts cost time. The simplest way to save some is a **thinking budget**: after N tokens the thought is cut
# off, `</think>` is written behind it, and the model has to answer. Qwen3 offers this, with a sentence before the tag
# that says that time is up ([technical report](https://arxiv.org/abs/2505.09388)), and it needs no training.
# `evaluate(thinking_budget=N)` does it in two passes: what has not ended after N tokens is continued, with the closing
# tag where a thought is still open.

# %%
budgets = [0, 16, 24, 32, 36, 40, 48]
rates_cut = {}
for budget in budgets:
    cut = evaluate(
        model, tokenizer, heldout, thinking_budget=budget, chat_template_kwargs=ON,
        **room,
    )
    rates_cut[budget] = cut.rate
    print(f"budget {budget:2}: {cut.rate:6.1%} right, {mean(cut.tokens):.0f} tokens")
    if budget == 24:
        print(repr(cut.completions[0]))

# %% [markdown]
# How much a budget costs depends on what is cut off. The stored runs have the same curve for *tiny-rambler*, whose
# thoughts have every column twice. What do you expect of a budget that cuts the second time off?

# %% tags=["hide-input"]
from grpo_workbook import files

stored = pd.read_json(files.REPO / "benchmarks" / "thinking_runs.jsonl", lines=True)
runs = stored.join(pd.DataFrame(list(stored["end"])))  # a column for each measurement
rambler = runs.query("method == 'rambler, base'").iloc[0]
curve = pd.DataFrame(rambler["budgets"], columns=["budget", "rate", "tokens"])
figure, (axes,) = figures.new_panels(7.0, 3.6)
own = (100 * pd.Series(rates_cut)).tolist()
axes.plot(budgets, own, "o-", color=figures.BLUE, label="tiny-thinker, trained")
ys = (100 * curve["rate"]).tolist()
axes.plot(curve["budget"], ys, "s--", color=figures.ORANGE,
          label="tiny-rambler, as it is")
axes.axhline(100 * rambler["greedy"], color=figures.ORANGE, ls=":",
             label="the same without a budget")
axes.set(xlabel="thinking budget, tokens", ylabel="right answers, %", ylim=(0, 103))
axes.set_title("A thought that is cut off is worth little, even a repeated one")
figure.legend(loc="outside right center", frameon=False)
first = f"{own[0]:.0f} to {own[-1]:.0f} %"
last = f"{ys[0]:.0f} to {ys[-1]:.0f} %"
figures.show(
    figure,
    f"Two curves of right answers over the budget: tiny-thinker {first}, tiny-rambler "
    f"{last}.",
)

# %% [markdown]
# The horizontal axis is the budget, the vertical axis the percentage of right greedy answers to 240 held-out sums. The
# two models have different sums: tiny-thinker's have four or five digits, tiny-rambler's two to five.
#
# For *tiny-thinker* the curve is a cliff, because a thought without its last columns does not lead to the right number.
# That *tiny-rambler* loses as much is a surprise. After 50 tokens each of its thoughts has all columns once, and what
# follows is repetition. But with a budget of 50 tokens only 44.6 % of the sums are right, instead of 98.8 % without a
# budget (the dotted line). Which sums are these? The next two cells measure it, by the digits of the numbers:

# %%
import re

changes["max_completion_length"] = 112
long_profile = choose_profile(
    default="smoke", model=config.DATA / "tiny-rambler", thinking=True, grpo=changes
)
mixed_heldout = to_dataset(load_problems(SUMS / "mixed_heldout.jsonl"), None)
mixed_heldout = mixed_heldout.select(range(240))
rambler_model, _ = load_policy(long_profile)
long_room = {**room, "max_new_tokens": 128}


def by_digits(scores, chosen=None):
    """The rate of right answers by digits, of all completions or the chosen ones."""
    tried = {"2": [], "3": [], "4": [], "5": []}
    for place, right in enumerate(scores.strict):
        question = mixed_heldout["question"][place // scores.samples]
        digits = str(len(re.search(r"\d+", question)[0]))
        if chosen is None or chosen[place]:
            tried[digits].append(right)
    return {digits: mean(right) for digits, right in tried.items() if right}

# %% [markdown]
# Cut the thoughts off at 50 tokens, and print one that was cut in its repetition:

# %%
cut = evaluate(
    rambler_model, tokenizer, mixed_heldout, thinking_budget=50,
    chat_template_kwargs=ON, **long_room,
)
for digits, rate in by_digits(cut).items():
    print(f"{digits} digits: {rate:.1%} right")
print(repr(next(text for text in cut.completions if "Wait." in text)))

# %% [markdown]
# All sums of two digits are right, because their thoughts end before the budget. Of the sums of three digits two thirds
# are right, and of the longer ones hardly any. The printed thought has all four columns, then `Wait.`, and then two of
# the columns again; the answer is wrong, although nothing was missing. The answer begins with 50, which is the result
# of the two columns behind `Wait.`, and goes on with 96, which is no column's result. So the model may read its answer
# off the columns behind `Wait.`; one example does not show it. It has never seen a thought that ends in the middle.
# Qwen3's report says that its models can answer after such a cut without having been trained for it. So measure the
# curve of your own model before you set a budget on a server. A small budget can even be worse than a budget of 0: with
# 0 tokens 16.2 % of tiny-rambler's answers are right, and with 10 only 4.2 %.

# %% [markdown]
# ## The limit in training is not the limit in measuring
#
# Long completions also make training slow, so it is tempting to set a short `max_completion_length`. What does a policy
# learn under such a limit? The stored runs train *tiny-thinker* with a limit of 36 tokens. An answer with all columns
# has 32 to 53 tokens here, with its end token. For 23 % of the held-out sums its number fits into 36 tokens, and earns
# the reward. (For about half of these only the end token is cut off, and such a completion counts as cut off.) The run
# is made with five seeds, and again with `mask_truncated_completions=True`, which leaves the completions that were cut
# off out of the loss. Every policy is measured twice, with the limit of its training and with 64 tokens:

# %%
from scipy.stats import ttest_1samp

names = {
    "greedy at the limit": "greedy, 36 tokens", "greedy": "greedy, 64",
    "sampled at the limit": "sampled, 36 tokens", "sampled": "sampled, 64",
}
limits = runs[runs["method"].isin(["limit 36", "limit 36, mask"])]
table = 100 * limits.set_index(["method", "seed"])[list(names)]
table = table.rename(columns=names)
print(table.round(1).to_string())
print(table.groupby("method").mean().round(1).to_string())
with_room = table["sampled, 64"]
mask = with_room.loc["limit 36, mask"] - with_room.loc["limit 36"]
low, high = ttest_1samp(mask, 0).confidence_interval()
print(f"masking: {mask.mean():+.1f} points sampled ({low:+.1f} to {high:+.1f})")
roomy = 100 * runs[runs["method"] == "thinker"]["sampled"].mean()
print(f"trained with 64 tokens, sampled: {roomy:.1f} %")
five = [100 * row["5"][0] for row in limits["by digits"]]
print(f"sums of five digits, sampled: {[round(rate) for rate in five]} %")

# %% [markdown]
# The sampled rates as a picture:

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(7.5, 3.4)
for y, (name, row) in enumerate(table.iterrows()):
    colour = figures.ORANGE if "mask" in name[0] else figures.BLUE
    tight, roomy_rate = row["sampled, 36 tokens"], row["sampled, 64"]
    axes.plot([tight, roomy_rate], [y, y], color=colour, lw=1)
    axes.plot(tight, y, "o", color=colour, mfc="white",
              label="36 tokens" if y == 0 else None)
    axes.plot(roomy_rate, y, "o", color=colour,
              label="64 tokens" if y == 0 else None)
axes.axvline(26, color="black", ls=":", label="sums with room in 36 tokens")
axes.set_yticks(range(len(table)), [f"{name}, {seed}" for name, seed in table.index])
axes.invert_yaxis()
axes.set_xlabel("right sampled answers, %")
axes.set_xlim(0, 100)
axes.set_title("The limit hides most of what was learned")
figure.legend(loc="outside right center", frameon=False)
hidden = table["sampled, 64"] - table["sampled, 36 tokens"]
words = f"Ten runs, each {hidden.min():.0f} to {hidden.max():.0f} points better with 64"
figures.show(figure, f"{words} tokens than with 36.")

# %% [markdown]
# The rows of the table are runs, the columns percentages of right held-out sums. In the figure, each line is a run with
# its seed; the open dot is its rate with 36 tokens, the filled one that with 64. Orange runs are masked. With 36 tokens
# a rate can lie right of the dotted line only if some numbers are right without all columns.
#
# Under the limit of the training at most 25 % of the sampled answers are right, and the policy looks as if it had
# learned little: only for 23 % of the sums the number has room there (26 % of the first 120, which are sampled), and a
# few more are right without all columns. With 64 tokens the same policies are right in 41.7 to 73.3 % of their samples:
# they learned to write the columns from the sums whose answers fit, and they write them for longer sums as well. No
# answer to a sum of five digits fits into 36 tokens, and yet without masking 25 to 65 % of the sampled ones are right.
# **Whoever measures at the limit of the training measures the limit.**
#
# The limit has a price all the same, at least in as many steps. After 40 steps the runs with 64 tokens are at 85.7 %
# sampled (mean of three seeds), those with 36 tokens at 60.7 %. And masking? It is meant to protect a policy from being
# punished for a good thought that was cut off. In these five pairs of runs no effect is shown: the difference is -7.5
# points sampled, with an interval from
# -25.3 to 10.3, so it could also be a large one in either direction.

# %% [markdown]
# ### Exercise 16.1 · `still_teach` · hard · 15 minutes
#
# What does a limit leave to learn? That can be counted before the run, from completions that were sampled with plenty
# of room. Each group is a list of pairs, a completion's tokens and whether its answer is right, and the limit cuts off
# all tokens behind the first `limit`. A right answer stays right if all its tokens before the end token are left. A
# wrong one stays wrong. Behind the end token there may be padding, and a completion without an end token was cut off
# even with plenty of room.
#
# A group teaches something if its rewards differ. With `mask_truncated_completions=True` the rewards of the cut off
# completions still count in the group's mean, but their tokens are left out of the loss: then at least one completion
# must have its end token within the limit, too. Return the fraction of groups that teach, without and with masking.

# %% tags=["exercise"]
from grpo_workbook.exercises import check


def still_teach(groups: list, limit: int, end: int) -> tuple[float, float]:
    raise NotImplementedError


check("16.1", still_teach);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `end in tokens[:limit]` says whether the end token is within the limit. `tokens.index(end)` is the number of tokens
# before it. Collect the rewards of a group in a set: with two elements they differ.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def still_teach(groups: list, limit: int, end: int) -> tuple[float, float]:
#     unmasked, masked = 0, 0
#     for group in groups:
#         rewards = set()
#         complete = 0
#         for tokens, right in group:
#             size = tokens.index(end) if end in tokens else len(tokens)
#             rewards.add(right and size <= limit)
#             if end in tokens[:limit]:
#                 complete += 1
#         if len(rewards) == 2:
#             unmasked += 1
#             if complete > 0:
#                 masked += 1
#     return unmasked / len(groups), masked / len(groups)
# ```
#
# The two fractions differ only for a group in which every completion is cut off and some of these are right: those lack
# nothing but the end token. A policy that writes a short wrong answer now and then has few such groups. So the two
# fractions tell how many groups teach, and not how much: without the mask, a right answer that lacks only its end token
# is reinforced, and with it, it is not. In our run 0.8 % of the groups teach with a limit of 20 tokens, 4.2 % with 30,
# 18.3 % with 36 and 74.2 % with 64, with and without masking.
#
# </details>
#
# When your function has passed the check, this cell counts the groups of 16 samples before the training:

# %%
from grpo_workbook.exercises import judge, predict

if judge("16.1", still_teach).status == "solved":
    pairs = []
    sampled = before["sampled"]
    for text, right, ended in zip(sampled.completions, sampled.strict, sampled.ended):
        tokens = tokenizer(text)["input_ids"]
        pairs.append((tokens + [tokenizer.eos_token_id] * ended, right))
    groups = [pairs[start : start + 16] for start in range(0, len(pairs), 16)]
    for limit in (20, 30, 36, 64):
        unmasked, masked = still_teach(groups, limit, tokenizer.eos_token_id)
        print(f"limit {limit}: {unmasked:.1%} of the groups teach, masked {masked:.1%}")

# %% [markdown]
# ## A price of length
#
# Can a model learn to think only as long as it pays? *tiny-rambler* knows three ways to answer: with the columns twice,
# with the columns once, and with an empty thought. If 100 tokens cost the fraction c of the reward, an answer that is
# right with probability p and has n tokens earns p · (1 - c · n / 100) on average, or 0 where that is negative. So with
# p and n one can calculate what should be learned. The cell measures p for each way, with sampled answers, because
# these are what the training pays for. Before the second time *tiny-rambler* writes the line `Wait.`:

# %%
sampling = {**long_room, "sample": True, "samples": 4}
silent = evaluate(
    rambler_model, tokenizer, mixed_heldout, chat_template_kwargs=OFF, **sampling
)
thoughtful = evaluate(
    rambler_model, tokenizer, mixed_heldout, chat_template_kwargs=ON, **sampling
)
is_twice = ["Wait." in text for text in thoughtful.completions]
is_once = []
for text, twice in zip(thoughtful.completions, is_twice):
    is_once.append("=" in text and not twice)
rates = {}
rates["twice"] = by_digits(thoughtful, is_twice)
rates["once"] = by_digits(thoughtful, is_once)
rates["not"] = by_digits(silent)
print(f"of {len(is_once)} samples {sum(is_twice)} twice, {sum(is_once)} once")
pd.DataFrame(rates).round(3).rename_axis("digits")

# %% [markdown]
# The rows are the digits of the numbers, the columns the three ways, and each entry is the fraction of right samples.
# (The print says how many samples have the columns twice and once; the rest have an empty thought.) Between once and
# twice no difference is shown: with about 40 samples of *once* in a row, one of ten points could be hidden. Without a
# thought the model is right for more than a third of the sums of two digits, and hardly ever for longer ones.
#
# The next cell takes these rates for p and compares the three ways. (A column with its line break takes about 7.5
# tokens, the tags and the end token 5, and the line `Wait.` 7.)

# %%
best = pd.DataFrame(index=["2", "3", "4", "5"])
for price in (0.0, 0.5, 1.0, 2.0, 3.0, 4.0):
    chosen = []
    for digits in best.index:
        columns = 7.5 * int(digits) - 1  # tokens
        answer = int(digits) + 5
        sizes = {"twice": 2 * columns + 7 + answer, "once": columns + answer}
        sizes["not"] = answer + 1
        worth = {"none earns": 0.01}  # a way that earns less counts as nothing
        for way, tokens in sizes.items():
            p = rates[way].get(digits, 0.0)
            worth[way] = p * max(0.0, 1 - price * tokens / 100)
        chosen.append(max(worth, key=worth.get))
    best[f"price {price}"] = chosen
best.rename_axis("digits")

# %% [markdown]
# The rows are the digits of the numbers, the columns are prices of 100 tokens, and each entry is the way that earns
# most. Without a price *once* and *twice* earn nearly the same, so that chance decides the first column. With a price
# of up to 2 the best is the thought with all columns once, at every length: the repetition should go, and nothing else.
# With a price of 3 a thought about four or five digits costs the whole reward, and without one hardly any answer is
# right: each way earns less than 0.01. For two digits the thought then earns little more than none (0.32 against 0.29),
# which is within chance. With 4 an answer without a thought earns most for two digits, and for longer sums nothing
# earns. So no price of the table takes the short thoughts alone: one that is high enough for them leaves nothing for
# the long ones. And even the short ones are needed: with them 86 % of the sums of two digits are right, without them 38
# %.

# %% [markdown]
# Now the run. The reward is a function like any other; TRL passes the tokens of each completion in `completion_ids`. A
# **wrong answer costs nothing**, however long it is: exercise 16.2 shows why. (TRL ships another price,
# `get_soft_overlong_punishment` of [chapter 03](03_reward_design.ipynb): it charges only the last tokens before the
# limit. So it keeps thoughts below a limit, and does not ask whether they are needed.) One setting matters as well.
# `scale_rewards="group"`, the default, divides the advantages of each group by the group's own standard deviation. In a
# group in which all answers are right, only the lengths differ, so that any price, however small, would act at full
# strength. `"batch"` divides by the deviation of the whole batch, and the price keeps its size, as long as the batch
# has wrong answers, too.

# %%
def priced(price):
    """A reward: 1 for a right answer, less its price; a wrong answer earns 0."""

    def right_and_short(completions, completion_ids, **columns):
        rewards = []
        rights = correctness_reward(completions, **columns)
        for right, tokens in zip(rights, completion_ids):
            rewards.append(right * max(0.0, 1 - price * len(tokens) / 100))
        return rewards

    return right_and_short


mixed = to_dataset(load_problems(SUMS / "mixed_train.jsonl"), system_prompt=None)
settings = {**long_profile.grpo, "max_steps": 60, "scale_rewards": "batch"}
price_log = train(rambler_model, [priced(1.0)], mixed, settings)

# %% [markdown]
# How long are its thoughts now? The cell measures the policy with the same held-out sums as the base above:

# %%
short = evaluate(
    rambler_model, tokenizer, mixed_heldout, sample=True, chat_template_kwargs=ON,
    **long_room,
)
base_rate, base_tokens = thoughtful.rate, mean(thoughtful.tokens)
print(f"sampled, base:    {base_rate:.1%}, {base_tokens:.0f} tokens")
print(f"sampled, trained: {short.rate:.1%}, {mean(short.tokens):.0f} tokens")
for text in short.completions[:4]:
    print(repr(text))

# %% [markdown]
# (The number in `<answer>` has to be copied from the columns, and that can go wrong as well: compare the two.)
#
# One price is one point. The stored runs have five prices with three seeds each. The table has their means:

# %%
PRICES = ["price 0", "price 0.5", "price 1", "price 2", "price 3", "price 4"]
priced_runs = runs[runs["method"].isin(PRICES)]
by_price = priced_runs.groupby("method")
means = 100 * by_price[["sampled", "greedy"]].mean()
means["sampled tokens"] = by_price["sampled tokens"].mean()
print(means.round(1).to_string())
by_run = priced_runs.set_index(["method", "seed"])
tokens = by_run["sampled tokens"]
difference = tokens["price 0.5"] - tokens["price 0"]
low, high = ttest_1samp(difference, 0).confidence_interval()
print(f"tokens, price 0.5 against 0: {difference.mean():.1f} ({low:.1f} to {high:.1f})")
accuracy = 100 * by_run["sampled"]
gap = accuracy["price 3"] - accuracy["price 0"]
low, high = ttest_1samp(gap, 0).confidence_interval()
print(f"sampled, price 3 against 0: {gap.mean():.1f} points ({low:.1f} to {high:.1f})")
ends = [f"{rate:.1f}" for rate in accuracy["price 4"]]
lowest = accuracy.drop("price 4").min()
print(f"sampled, price 4: {', '.join(ends)}; the lowest other run: {lowest:.1f}")

# %% [markdown]
# Below the table stand two differences between prices with their 95 % intervals, and the three runs with the highest
# price. The next figure has each of the runs, and the base with a budget:

# %% tags=["hide-input"]
PRICE_LOOKS = dict.fromkeys(PRICES, figures.STYLES[2])  # the styles of the next figure
PRICE_LOOKS["price 0"], PRICE_LOOKS["price 4"] = figures.STYLES[1], figures.STYLES[3]
figure, (left, right_panel) = figures.new_panels(9.5, 3.6, 2, 2)
left.plot(curve["tokens"], 100 * curve["rate"], "x--", color=figures.BLUE,
          label="base, with budgets")
left.plot(rambler["greedy tokens"], 100 * rambler["greedy"], "x",
          color=figures.BLUE, ms=9, mew=2, label="base, no budget")
for name in PRICES:
    chosen = runs[runs["method"] == name]
    colour, _, mark = PRICE_LOOKS[name]
    labels = {"price 0": name, "price 0.5": "price 0.5 to 3", "price 4": name}
    left.plot(chosen["greedy tokens"], 100 * chosen["greedy"], mark, color=colour,
              markersize=5, label=labels.get(name))
left.set(xlabel="tokens of a completion", ylabel="right greedy answers, %")
left.set(xlim=(0, 70), ylim=(0, 103))
left.set_title("Trained to be short, it is right; cut off, it is not")
for name in PRICES:
    rates_of_price = accuracy[name]
    colour, _, mark = PRICE_LOOKS[name]
    price = float(name.removeprefix("price "))
    right_panel.plot([price] * 3, rates_of_price, mark, color=colour, markersize=5)
right_panel.set(xlabel="price of 100 tokens", ylabel="right sampled answers, %")
right_panel.set_ylim(0, 103)
right_panel.set_title("A price of 4 costs accuracy")
figure.legend(loc="outside lower center", ncols=3, frameon=False)
words = "Right greedy answers over tokens, right sampled answers over the price"
figures.show(figure, f"{words}: {means['sampled'].round(1).to_dict()}.")

# %% [markdown]
# Each mark but the crosses is a run. On the left, the horizontal axis is the mean number of tokens of a greedy
# completion, and the vertical axis the percentage of these that are right. (Greedily, the prices 0 and 0.5 to 3 differ
# by one or two tokens; sampled, by about five.) The crosses are *tiny-rambler* as it is, the large one without a
# budget, the small ones with the thinking budgets of the figure before. The other marks are trained policies: without a
# price, with a price of 0.5 to 3, and with one of 4. On the right, the same runs stand over their price, with their
# sampled answers.
#
# Which thoughts became shorter, those about long numbers or those about short ones? The next figure has the mean length
# of a thought in the sampled answers, over the digits of the numbers:

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(7.0, 3.4)
base = ["rambler, base"]
groups = {
    "base": base, "price 0": PRICES[:1], "price 0.5 to 3": PRICES[1:5],
    "price 4": PRICES[5:],
}
words = []
for (label, methods), (colour, dash, marker) in zip(groups.items(), figures.STYLES):
    stored_digits = runs[runs["method"].isin(methods)]["by digits"]
    # each entry is: right, tokens of thought, right without a thought
    thoughts = pd.DataFrame(list(stored_digits)).map(lambda row: row[1]).mean()
    axes.plot(thoughts.index.astype(int), thoughts, dash, marker=marker, color=colour,
              label=label)
    words.append(f"{label}: {thoughts.iloc[0]:.0f} to {thoughts.iloc[-1]:.0f} tokens")
axes.set(xlabel="digits of the numbers", ylabel="tokens of a thought",
         xticks=[2, 3, 4, 5], ylim=(0, None))
axes.set_title("Most of the shortening comes without a price, at every length")
figure.legend(loc="outside right center", frameon=False)
figures.show(figure, f"Four rising lines. {'; '.join(words)}.")

# %% [markdown]
# And how many of these sums are right?

# %%
right_by_digits = {}
for name in ("rambler, base", "price 0", "price 3", "price 4"):
    stored_digits = runs[runs["method"] == name]["by digits"]
    rates_of_runs = pd.DataFrame(list(stored_digits)).map(lambda row: row[0])
    right_by_digits[name] = (100 * rates_of_runs.mean()).round(1)
pd.DataFrame(right_by_digits).rename_axis("digits")

# %% [markdown]
# The rows are the digits of the numbers, and the entries the percentages of right sampled answers, means over the runs.
# In the figure, each mark is a mean over the runs of its line: one for the base, three with a price of 0, twelve with
# the prices of 0.5, 1, 2 and 3, whose own lines would cover each other, and three with a price of 4. Three things can
# be read from the two figures:
#
# - **The repetition goes, and no accuracy goes with it.** (All stored runs sample the first 120 sums, which are a bit
#   easier than all 240.) The sampled completions of the base have 57.1 tokens, and 82.5 % are right. With a price of
#   0.5 they have 33.2 tokens, and 87.9 % are right (means of three seeds). A budget that cuts the base to a similar
#   length leaves less than a fifth of its greedy answers right. So a policy that learned to be short is far better than
#   one that is cut off.
# - **Most of it happens without any price.** With a price of 0 the completions shrink to 37.7 tokens, and 86.5 % are
#   right. A price of 0.5 takes 4.5 tokens more, with an interval from 3.0 to 6.1. The table cannot say why: its rates
#   of *once* come from about 40 samples a row, so *once* may be right some points more often, which would be a reason,
#   or not. We have not tested it. Look at the run without a price before you add one.
# - **A higher price takes nothing more, until it takes what is needed.** With 1, 2 and 3 the lengths are those of 0.5,
#   and no loss is shown: with 3 the sampled answers are 4.4 points below those without a price, with an interval from
#   -14.4 to 5.5. With 4 the loss is plain: the three runs end at 72.9, 55.4 and 45.0 %, below each of the fifteen
#   others. (If the price made no difference, this would happen in one of 816 cases.) The table of what pays predicts
#   that the thoughts about two digits go. A part of them goes: they have 10.7 tokens, instead of 15.4 with a price of
#   3. Those about three digits become shorter as well (16.2 instead of 22.5), although by that table no way to answer
#   these sums earns anything. Presumably what is learned on two digits carries over. The sums of four and five digits
#   are right less often, too, although their thoughts keep their length. That they earn nothing does not explain it,
#   because at a price of 3 they earn nothing either, and more of them are right. We have not found the reason.
#
# So a price first takes what is of no use, at no cost that these runs show. If it is too high, it takes what the
# answers need as well. Where longer thoughts are right more often, every price buys length with accuracy. Draw the
# first figure for your own model before you choose one.

# %% [markdown]
# ## Thinking with a real model
#
# With a GPU, `choose_profile` with `thinking=True` or `run --thinking` trains Qwen3 with thoughts. The longer
# completions cost memory and time. `plan` calculates both before the run:

# %%
from grpo_workbook.planning import plan

for name in ("t4", "24gb", "80gb"):
    planned = plan("qwen", name, thinking=True)
    print(f"{name}: {planned.notes[-1]}\n")

# %% [markdown]
# These numbers are computed, and no run with thoughts was made on a GPU for this course. Before your own, measure the
# base on your problems twice, with `evaluate --thinking --samples 4 --max-new-tokens 8192` and with
# `evaluate --no-thinking --samples 4`: is it right more often with thoughts, and by how much for how many tokens? (With
# one sample `evaluate` is greedy; with several it samples.) Do not read greedy numbers here: Qwen3's model card advises
# against greedy answers with thoughts, because they can repeat themselves without end, and recommends a temperature of
# 0.6. `evaluate` samples at 1, as the training does: its numbers tell what GRPO starts from, and a server with the
# recommended settings may do better. (The greedy answers of this chapter are those of tiny models that do not loop.) If
# thoughts bring nothing in single samples, repeat both measurements with `--samples 16` and compare their pass@16
# before you give them up: tiny-thinker was right in 9.7 % of its samples, and in 16 samples with thoughts it solved 74
# % of the sums. Where pass@16 is no higher with thoughts than without them, train without them. The first measurement
# also shows the lengths: if most thoughts are longer than your limit, the run learns from the few that fit. If more
# than a few percent of the thoughts are still open at 8192 tokens, this measures a limit again: raise it. `diagnose`
# reports thoughts that never close as `thoughts_open`.
#
# After the training, these commands follow the record of the run:
#
# ```bash
# python -m grpo_workbook run --thinking --profile 24gb
# python -m grpo_workbook evaluate outputs/run/merged --data test.jsonl --samples 4 --max-new-tokens 8192
# python -m grpo_workbook evaluate outputs/run/merged --data test.jsonl --samples 4 --max-new-tokens 8192 \
#     --thinking-budget 1024 --output outputs/budget
# ```

# %% [markdown] tags=["remove-cell"]
# The numbers that the tests of this course look at:

# %% tags=["remove-cell"]
import json

proved = {"steps": len(log), "priced steps": len(price_log), "stored": len(stored)}
for when, measured in (("before", before), ("after", after)):
    proved[when] = {name: scores.rate for name, scores in measured.items()}
proved["pass@16"] = [solved_before, solved_after]
proved["lengths"] = [lengths[0], lengths[-1]]
proved["budgets"] = rates_cut
proved["short"] = [short.rate, mean(short.tokens)]
proved["rambler"] = [rambler["sampled"], rambler["sampled tokens"]]
profile.output.mkdir(parents=True, exist_ok=True)
(profile.output / "notebook_16.json").write_text(json.dumps(proved, indent=2))
print(json.dumps(proved, indent=2))

# %% [markdown]
# ## Exercises
#
# Each of these exercises changes the run of *tiny-thinker*, and takes about a minute.

# %% [markdown]
# ### Exercise 16.2 · `all_pay` · easy · 5 minutes
#
# Write the other price: every completion pays for its tokens, wrong ones as well. The reward is 1 for a right answer or
# 0 for a wrong one, minus `price` for every 100 tokens. `rights` has the 1.0 or 0.0 of each completion. The cell behind
# the solution trains with your reward. What will the model learn?


# %% tags=["exercise"]
def all_pay(rights: list[float], completion_ids: list, price: float) -> list[float]:
    raise NotImplementedError


check("16.2", all_pay);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `len(tokens)` is the length of one completion. With a price of 1.25 a completion of 40 tokens pays 1.25 · 40 / 100 =
# 0.5.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def all_pay(rights: list[float], completion_ids: list, price: float) -> list[float]:
#     rewards = []
#     for right, tokens in zip(rights, completion_ids):
#         rewards.append(right - price * len(tokens) / 100)
#     return rewards
# ```
#
# A completion without a thought pays 0.1 and one with all columns pays 0.5. At the beginning nine of ten completions
# are wrong, and in a group without a right answer the shortest one now earns most: such groups teach the model not to
# think. The default `scale_rewards="group"` even lets these small differences act at full strength. The other groups
# teach the opposite. To think would be the best answer to this reward, too (about 0.4 on average, against -0.1), but
# the way there begins in the wrong direction. In the stored run (seed 0) 30.8 % of the sampled sums are right
# afterwards, with 21 tokens on average, and hardly any greedy answer has a thought. With the same price on right
# answers alone (also one run) 87.5 % are right, with 41 tokens. This is why the chapter's price is one of right answers
# alone, as in [Arora and Zanette](https://arxiv.org/abs/2502.04463).
#
# </details>
#
# When your function has passed the check, this cell trains with it:

# %%
def all_pay_reward(completions, completion_ids, **columns):
    rights = correctness_reward(completions, **columns)
    return all_pay(rights, completion_ids, price=1.25)


if judge("16.2", all_pay).status == "solved":
    paying, _ = load_policy(profile)
    train(paying, [all_pay_reward], train_set, profile.grpo)
    show(measure(paying))

# %% [markdown]
# ### Exercise 16.3 · `train_short` · easy · 5 minutes
#
# The shortest answer with all columns has 32 tokens. Train with a limit of 20, and measure one sampled answer to each
# held-out sum, with the 64 tokens of the chapter, before and after. Are *more* of the 240 answers right after the
# training, *fewer*, or is there *no difference* (p of the paired test is 0.05 or more)?

# %% tags=["exercise"]
prediction = ...  # "more", "fewer" or "no difference"


def train_short() -> dict:
    """The chapter's run with another limit: try 30 and 36 as well."""
    own, _ = load_policy(profile)
    sampled = {**room, "sample": True, "chat_template_kwargs": ON}
    untrained = evaluate(own, tokenizer, heldout, **sampled)
    settings = {**profile.grpo, "max_completion_length": 20}
    train(own, [correctness_reward], train_set, settings)
    trained = evaluate(own, tokenizer, heldout, **sampled)
    for scores in (untrained, trained):
        thoughts = mean(scores.thoughts)
        print(f"{scores.rate:.1%} right, {thoughts:.1f} tokens of thought")
    return {"before": untrained.strict, "after": trained.strict}


predict("16.3", prediction, train_short);

# %% [markdown]
# <details><summary>Hint</summary>
#
# In how many groups of the training is a completion right? A completion that was cut off earns 0.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "no difference"
# ```
#
# A thought that is cut off is not punished: it earns 0, as nearly everything else does. An advantage compares a
# completion with its group, and where all earn 0, all advantages are 0. So the policy stays what it was, as long as no
# completion is right by luck: it neither learns to think nor forgets it. Before the training 9.7 % of the sampled
# answers are right, and the three stored runs with a limit of 20 end at 8.3, 2.5 and 12.9 %. In the first and the third
# run not one of 2,560 completions was right, so the policy is the same as before, and the differences are chance: each
# run samples with its own seed. In the second run a single one was right, a guess without all columns. Adam divides
# each gradient by the size of the recent ones. So this gradient, the first one that was not zero, moved the policy
# about as far as any other would, and in the direction of shorter answers. If your answer is "fewer", look for such a
# guess in the rewards.
#
# The chapter's limit of 36 tokens hides skill, and this one prevents it. With 36 the numbers of 23 % of the sums have
# room, and that was enough. In the five stored runs 50 to 58 of the 240 greedy answers are right with 36 tokens, and
# 126 to 223 with 64. With a limit of 30 a few completions are right all the same, presumably without all columns, and
# already these change the policy.
#
# </details>

# %% [markdown]
# ### Exercise 16.4 · `short_sft` · medium · 8 minutes
#
# A colleague has 128 right answers without thoughts, and wants to give the trained model a short supervised training
# with them before the release. Thinking stays on. (The cell changes `model`: for a second try, run the chapter's
# training again first.) Will *more* of the held-out sums be right afterwards, *fewer*, or is there *no difference*?

# %% tags=["exercise"]
from datasets import Dataset
from trl import SFTConfig, SFTTrainer

prediction = ...  # "more", "fewer" or "no difference"


def short_sft() -> dict:
    """16 supervised steps on right answers: try rows with thoughts, too."""
    sft_rows = []
    for row in train_set.select(range(128)):
        turn = {"role": "assistant", "content": f"<answer>{row['answer']}</answer>"}
        sft_rows.append({"prompt": row["prompt"], "completion": [turn]})
    args = SFTConfig(
        output_dir=str(profile.output / "sft"), max_steps=16, learning_rate=1e-3,
        per_device_train_batch_size=16, bf16=False, use_cpu=True, logging_steps=4,
        gradient_checkpointing=False, save_strategy="no", report_to="none",
    )
    trainer = SFTTrainer(
        model, args=args, train_dataset=Dataset.from_list(sft_rows),
        processing_class=tokenizer,
    )
    trainer.train()
    scores = evaluate(model, tokenizer, heldout, chat_template_kwargs=ON, **room)
    print(f"{mean(scores.thoughts):.1f} tokens of thought: {scores.completions[0]!r}")
    return {"before": after["greedy"].strict, "after": scores.strict}


predict("16.4", prediction, short_sft);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Look at the figure of the template again: what stands before the answer in a training row without a thought?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "fewer"
# ```
#
# The template has written an empty thought into each row, and these tokens are a part of what is learned: print
# `next(iter(trainer.get_train_dataloader()))["labels"]` to see them. A model that has learned to write it thinks
# nothing, and without a thought *tiny-thinker* solves hardly any sum (*off* in the measurements above), although every
# answer in the rows is right. In our run 235 of the 240 sums were right before this training, and 12 after it. Give the
# rows their thoughts, or leave the empty thought out of the loss: with the column `chat_template_kwargs`,
# `{"enable_thinking": False}` in each row, TRL writes it into the prompt. The answers are then learned as those of a
# model that does not think.
#
# </details>

# %% [markdown]
# ## Summary
#
# - Thoughts are a matter of the prompt. Training, measuring, merging and serving need the same options of the chat
#   template; the history drops thoughts, and training rows without a thought teach empty ones.
# - Do not pay for what stands in a thought. Pay for the right answer, and at most charge right answers for their
#   length. Thoughts become longer by themselves where that makes more answers right.
# - A budget cuts thoughts off without any training. What it costs has to be measured: a budget of 50 tokens cost
#   tiny-rambler more than half of its right answers, although mostly repetition was cut off.
# - Measure with more room than the training had: at the limit of the training most of the skill may be hidden.
# - Most of the repetition went without any price (57 to 38 tokens). With a small price on right answers they had 33
#   tokens, and no loss of accuracy was shown. Prices up to 3 made nothing shorter, and one of 4 took thoughts that the
#   answers need.
#
# When does a thought pay, and how long should it be? It pays as far as it makes more answers right: here it needs each
# column once, and a second time is wasted. With a reward for the answer alone GRPO comes near that length, if the token
# limit leaves room for it; the rest took a small price. What a thought of your model is worth, the curve of accuracy
# over tokens tells.
#
# Next: [17 · Your own project](17_capstone.ipynb) takes a file of yours through all of it, step by step.
