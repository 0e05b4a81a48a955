# %% [markdown]
# # 15 · Pictures
#
# A model is trained with GRPO to answer questions about pictures, and its score rises: does the model see, or are its
# answers only fluent? This chapter trains a model that sees with TRL's own trainer, and measures it with the right
# pictures, with wrong ones and with none.
#
# **After this notebook you can** train a vision-language model with GRPO, choose which part of it learns, show with
# blank and shuffled pictures whether it looks at them, and find what a reward for the answer alone did not pay for.
#
# **Time:** about 3 minutes on two CPU cores. (The stored run was made on a busy machine, so its progress bar shows a
# longer time.) Reading takes about 35 minutes. **You need** chapters 00, 01 and 04.

# %% [markdown]
# ## The task
#
# The pictures are charts of three coloured bars, and the question is always the same: how much are the bars together? A
# bar is 1 to 9 units tall. The model of this chapter, *tiny-vision*, learned to read such charts on white paper, from
# right answers ([its card](../data/tiny-vision/README.md)). GRPO gets charts on grey paper, which the model has never
# seen, and no right answer. A program draws the charts, so there is no file of pictures. A hash of the bars keeps one
# chart in ten **held out**: neither the training of *tiny-vision* nor GRPO has seen it.

# %%
from grpo_workbook import choose_profile, config, quiet, use_one_thread

quiet()
use_one_thread()  # for a tiny model several threads only wait for each other
import unsloth  # before TRL, because it changes parts of TRL
from datasets import Dataset
from grpo_workbook.exercises.charts import make_charts, rows

profile = choose_profile(default="smoke")
MODEL = config.DATA / "tiny-vision"
train_charts = make_charts(2000, seed=1000 + profile.seed, heldout=False)
heldout_charts = make_charts(200, seed=99, heldout=True)
train_set = Dataset.from_list(rows(train_charts, "grey"))
heldout = Dataset.from_list(rows(heldout_charts, "grey"))
white_heldout = Dataset.from_list(rows(heldout_charts, "white"))
example = train_set[0]
for message in example["prompt"]:
    print(message)
print(f"image: {example['image'].size} pixels, answer: {example['answer']}")
print("bars:", example["bars"])

# %% [markdown]
# This is the form in which TRL takes pictures. The prompt is a conversation of texts, and the picture is in a column of
# its own that is called `image` (or `images`, for a list of pictures in each row). TRL passes the other columns to the
# reward functions: `answer` is the sum, and `bars` lists the bars.

# %% tags=["hide-input"]
from grpo_workbook import figures
from grpo_workbook.exercises.charts import picture

figure, panels = figures.new_panels(8.5, 2.5, 4, 4)
for place, axes in enumerate(panels):
    chart = heldout_charts[place // 2]
    paper = ("white", "grey")[place % 2]
    axes.imshow(picture(chart, paper))
    axes.set_title(f"{paper}: {chart.answer}")
    axes.axis("off")
figure.suptitle("The same charts on white and on grey paper, with the right answer")
listed = "; ".join(chart.description for chart in heldout_charts[:2])
figures.show(figure, f"Two charts, each on white and on grey paper: {listed}.")

# %% [markdown]
# Each picture is 32 pixels wide and 32 pixels high, and one unit of height is 3 pixels. The ticks on the left are one
# unit apart. The title has the colour of the paper and the right answer.

# %% [markdown]
# ## What a picture is to a language model
#
# A language model reads a sequence of vectors, one for each token. How does a picture get into this sequence? In three
# steps:
#
# 1. The picture is cut into square **patches**. A **vision tower**, a transformer of its own, turns each patch into a
#    vector.
# 2. A **projector** averages neighbouring vectors and maps them to the width of the language model.
# 3. The prompt has a placeholder for each of these vectors, the **image tokens**. The model replaces the embeddings of
#    the image tokens by the vectors, and from there on treats them like words.
#
# A **processor** prepares both inputs. It holds the tokenizer and an image processor, which resizes the picture and
# scales its colours:

# %%
from transformers import AutoProcessor

processor = AutoProcessor.from_pretrained(MODEL, padding_side="left")
system, user = example["prompt"]
question = {"type": "text", "text": user["content"]}
parts = [{"type": "image"}, question]
chat = [system, {"role": "user", "content": parts}]
text = processor.apply_chat_template(chat, add_generation_prompt=True)
inputs = processor(
    text=[text], images=[[example["image"]]], add_special_tokens=False,
    return_tensors="pt",
)
print(text)
for name, tensor in inputs.items():
    print(f"{name:15} {tuple(tensor.shape)}")

# %% [markdown]
# The template writes one placeholder, `<start_of_image>`, and the processor replaces it by 16 image tokens between two
# marks. `pixel_values` has the numbers of the picture: 3 colours of 32 x 32 pixels, from -1 to 1. `token_type_ids` marks
# the image tokens with 1, because in Gemma 3 they may attend to each other in both directions.

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(4.2, 4.2)
axes.imshow(example["image"])
for line in range(0, 33, 4):
    width = 1.6 if line % 8 == 0 else 0.4
    axes.axhline(line - 0.5, color=figures.ORANGE, lw=width)
    axes.axvline(line - 0.5, color=figures.ORANGE, lw=width)
for number in range(16):
    x = number % 4 * 8 + 0.5
    y = number // 4 * 8 + 2.4
    box = {"facecolor": figures.PALE["number"], "edgecolor": "none", "pad": 1}
    axes.text(x, y, str(number + 1), fontsize=7, bbox=box)
axes.axis("off")
axes.set_title("64 patches become 16 vectors")
figures.show(figure, "A chart with a grid of 8 by 8 patches, in 16 numbered squares.")

# %% [markdown]
# Thin lines are the borders of the 64 patches of 4 x 4 pixels, thick lines those of the 16 squares whose vectors the
# projector averages. Here is where these 16 vectors stand in the prompt:

# %% tags=["hide-input"]
from matplotlib.patches import Rectangle

figure, (axes,) = figures.new_panels(8.0, 3.6)
ids = inputs["input_ids"][0].tolist()
image_number = 0
for place, token in enumerate(ids):
    x, y = place % 11, -(place // 11)
    label = processor.tokenizer.decode([token])
    label = label.replace("\n", "\\n").replace("_of_", " of\n")
    colour = figures.PALE["data"]
    if token == processor.tokenizer.image_token_id:
        image_number += 1
        label, colour = str(image_number), figures.PALE["number"]
    axes.add_patch(Rectangle((x, y), 0.94, 0.9, color=colour))
    axes.text(x + 0.47, y + 0.45, label, ha="center", va="center", fontsize=7)
rows_of_tokens = -(-len(ids) // 11)
axes.set(xlim=(0, 11), ylim=(1 - rows_of_tokens, 1))
axes.axis("off")
axes.set_title(f"Each vector takes the place of one of the prompt's {len(ids)} tokens")
words = f"The prompt's {len(ids)} tokens in {rows_of_tokens} lines of boxes; "
figures.show(figure, words + "16 of them are image tokens.")

# %% [markdown]
# The boxes are the tokens of the prompt, to be read line by line. The orange ones are the image tokens, numbered like the
# squares above; the blue ones are text.
#
# How many image tokens a picture costs depends on the model. Gemma 3 makes 256 of any picture. In Qwen3-VL their number
# grows with the picture, one for every 32 x 32 pixels: resize large pictures before training, or the prompt gets long.
# TRL 1.15 has no `max_prompt_length` any more (`TypeError`), and truncating a prompt would cut through the image tokens:
# the processor then stops with *Mismatch in image token count*.

# %% [markdown]
# ## A model whose answers are fluent
#
# Load the model as in chapter 04, with the base in 4 bits. `pictures=True` loads the whole model with its processor; the
# vision tower stays in 32 bits. Then measure it on the held-out charts, greedily and sampled. (On a CPU Unsloth's
# `FastVisionModel` raises `NotImplementedError`, so `load_model` calls Transformers, and `import unsloth` is only
# needed to train.)

# %%
from grpo_workbook import evaluate, load_model

base, processor = load_model(str(MODEL), load_in_4bit=True, pictures=True)
sampling = {"batch_size": 100, "max_new_tokens": 48}
before = {}
before["greedy"] = evaluate(base, processor, heldout, **sampling)
before["sampled"] = evaluate(base, processor, heldout, sample=True, **sampling)
before["white paper"] = evaluate(base, processor, white_heldout, **sampling)
for name, scores in before.items():
    print(f"{name:12} {scores}")
print(before["greedy"].completions[0])

# %% [markdown]
# On white paper the model is right. On grey paper every answer still has the right form: bars, additions, a sum. But only
# half of the sums are right, and a reader who does not look at the chart cannot tell which.
#
# This is the danger of the whole field: fluent answers do not show that a model looks at the picture. Many benchmarks
# can be answered partly from the question alone ([Goyal et al.](https://arxiv.org/abs/1612.00837) for pictures,
# [Chen et al.](https://arxiv.org/abs/2403.20330) for current models). The cure is a **control**: take the picture away and
# measure again. `picture_controls` makes two:
#
# - **blank**: each picture is replaced by empty paper of the same size;
# - **shuffled**: each row gets the picture of another row, so that pictures are real but wrong.
#
# What the model still gets right without its own picture is right by chance: it guesses, or the wrong picture happens
# to have the same sum. The cell also computes the best guess that needs no picture at all, the most frequent sum:

# %%
from collections import Counter

from grpo_workbook.exercises.charts import PAPERS
from grpo_workbook.pictures import picture_controls

controls = picture_controls(heldout, colour=PAPERS["grey"])
for name, control in controls.items():
    before[name] = evaluate(base, processor, control, **sampling)
    print(f"{name:9} {before[name].rate:.1%} right")
sums = Counter(heldout["answer"])
guess, count = sums.most_common(1)[0]
print(f"always {guess}: {count / len(heldout):.1%} right")

# %% [markdown]
# Without the right picture the model is right less often than somebody who always gives the most frequent sum. So what it
# gets right, it reads from the picture. Keep these two rates: training may raise the score of a model that does not look,
# because it can learn which answers are frequent. Then the rates of the controls rise with it.

# %% [markdown]
# ## Before training: what fails in silence
#
# Training on pictures has more ways to go wrong than training on texts. Some of these mistakes raise no error: the model
# trains without its pictures, or with the marks of its image tokens in wrong places. `check_pictures` looks for all of
# them. The cell makes five of them on purpose:

# %%
from grpo_workbook.errors import WorkbookError
from grpo_workbook.pictures import check_pictures

few = train_set.select(range(8))
right_padding = AutoProcessor.from_pretrained(MODEL, padding_side="right")
inside = [{"type": "image", "image": example["image"]}, question]
twice = [{**example, "prompt": [{"role": "user", "content": inside}]}]
renamed = few.rename_column("image", "chart")
applied = few.map(lambda row: {"prompt": text})
mistakes = {}
mistakes["a tokenizer"] = few, processor.tokenizer
mistakes["another column"] = renamed, processor
mistakes["padding on the right"] = few, right_padding
mistakes["the template applied"] = applied, processor
mistakes["the picture twice"] = Dataset.from_list(twice), processor
for name, (some_rows, reader) in mistakes.items():
    try:
        check_pictures(some_rows, reader)
    except WorkbookError as error:
        print(f"{name}: {error}\n")
check_pictures(train_set, processor)

# %% [markdown]
# What happens in TRL 1.15 without the check?
#
# | mistake | what TRL does |
# | --- | --- |
# | a tokenizer as `processing_class` | `KeyError: 'pixel_values'` |
# | the column is not called `image` or `images` | **no error**: it trains without pictures |
# | padding on the right, prompts of unequal length | **no error**: the marks of the image tokens are misplaced ([TRL 5785](https://github.com/huggingface/trl/issues/5785)) |
# | the template was applied beforehand | `ValueError`, though TRL's documentation asks for it |
# | the picture in the message and in the column | `ValueError: ... images provided (1) ... placeholders (0)`; TRL's own notebook `grpo_qwen3_vl` has this form |
#
# The `format_reward` of that notebook fails as well, because with conversations a reward function gets a list of messages
# for each completion and not a text.

# %% [markdown]
# ## The run
#
# Which part of the model shall learn? Grey paper changes what the vision tower sees, so give the adapters to the tower.
# Name the layers by a pattern that holds the part's name. The tower and the language layers both have layers that are
# called `q_proj`, so a list of names would reach both. (Unsloth's `finetune_vision_layers=False` is dropped on a CPU:
# there some of the adapters landed in the tower.) `LAYERS` has a pattern for each part:

# %%
from grpo_workbook.compat import picture_tokens
from grpo_workbook.pictures import LAYERS

for part, pattern in LAYERS.items():
    print(f"{part:9} {pattern}")
suppressed = picture_tokens(processor)
print("never sampled:", processor.tokenizer.convert_ids_to_tokens(suppressed))

# %% [markdown]
# The last line prevents a rare crash. The policy can sample an image token, because it is in its vocabulary. In the
# next forward pass the model finds more image tokens than it has vectors, and stops with *Image features and image
# tokens do not match* ([verl 3469](https://github.com/verl-project/verl/issues/3469) looks the same). `suppress_tokens`
# makes that impossible.
#
# Everything else is the configuration of chapter 04, with 64 completions a step in groups of 8:

# %%
import torch
from trl import GRPOConfig


def make_args(steps=40):
    return GRPOConfig(
        output_dir=str(profile.output / "pictures"), max_steps=steps,
        per_device_train_batch_size=64, num_generations=8, max_completion_length=48,
        temperature=1.0, top_p=1.0, top_k=0,
        generation_kwargs={"suppress_tokens": suppressed},
        learning_rate=5e-4, lr_scheduler_type="constant_with_warmup", warmup_steps=5,
        weight_decay=0.0, adam_beta2=0.99, max_grad_norm=0.2, optim="adamw_torch",
        beta=0.0, loss_type="dapo", scale_rewards="group",
        gradient_checkpointing=False, bf16=False, seed=profile.seed,
        use_cpu=not torch.cuda.is_available(),
        logging_steps=1, save_strategy="no", report_to="none",
    )


print(make_args().generation_batch_size, "completions a step")

# %% [markdown]
# The reward pays 1 for the right sum and nothing else. `GRPOTrainer` gets the processor where it got the tokenizer
# before, and finds the column `image` by itself. The exercises train again, so the call is in a function:

# %%
from grpo_workbook import Float32Adapters, RewardBar, correctness_reward
from peft import LoraConfig, get_peft_model
from transformers import PrinterCallback, set_seed
from trl import GRPOTrainer


def train_policy(part, dataset, functions):
    """40 steps of GRPO on a fresh copy of the base; its log and the policy."""
    set_seed(profile.seed)  # of the adapters
    policy, _ = load_model(str(MODEL), load_in_4bit=True, pictures=True)
    adapters = LoraConfig(r=16, lora_alpha=32, target_modules=LAYERS[part])
    policy = get_peft_model(policy, adapters)
    trainer = GRPOTrainer(
        policy, functions, make_args(), dataset, processing_class=processor,
        callbacks=[Float32Adapters(policy), RewardBar()],
    )
    trainer.remove_callback(PrinterCallback)  # the bar shows the same in one line
    trainer.train()
    log = [entry for entry in trainer.state.log_history if "reward" in entry]
    return log, policy


log, policy = train_policy("vision", train_set, [correctness_reward])

# %% [markdown]
# The figure has the mean reward of each step's 64 completions. The pale line has the single steps, the bold one the
# means of seven steps. There is only one reward, so the lines *total* and *correctness* lie on each other.

# %% tags=["hide-input"]
from statistics import mean

figure, words = figures.reward_curves(log)
rewards = [entry["reward"] for entry in log]
first = mean(rewards[:5])
last = mean(rewards[-5:])
figure.axes[0].set_title(f"Right sums: {first:.0%} to {last:.0%} (means of five steps)")
figures.show(figure, words)

# %% [markdown]
# ## Does it see?
#
# Measure everything again: the held-out charts greedily and sampled, the two controls, and the old charts on white
# paper.

# %%
from grpo_workbook import paired_p_value

datasets = {"greedy": heldout, **controls, "white paper": white_heldout}
after = {"sampled": evaluate(policy, processor, heldout, sample=True, **sampling)}
for name, dataset in datasets.items():
    after[name] = evaluate(policy, processor, dataset, **sampling)
for name in before:
    old, new = before[name], after[name]
    p_value = paired_p_value(old.strict, new.strict)
    low, high = new.interval
    change = f"{old.rate:6.1%} to {new.rate:6.1%} ({low:.1%} to {high:.1%})"
    print(f"{name:12} {change}, p = {p_value:.1g}")

# %% [markdown]
# Each line has the rate before and after training, the 95 % interval of the second, and the p-value of the paired test.
# The same rates as bars:

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(8.0, 3.2)
names = ["greedy", "sampled", "shuffled", "blank", "white paper"]
looks = [("before", before, -0.2, figures.GREY, "")]
looks.append(("after", after, 0.2, figures.BLUE, "//"))
for label, measured, shift, colour, hatch in looks:
    for place, name in enumerate(names):
        rate = measured[name].rate
        low, high = measured[name].interval
        x = place + shift
        bar = axes.bar(x, rate, 0.36, color=colour, hatch=hatch, edgecolor="white")
        whiskers = [[rate - low], [high - rate]]
        axes.errorbar(x, rate, whiskers, color="black", capsize=3)
    bar.set_label(label)
labels = ["grey paper,\ngreedy", "grey paper,\nsampled", "shuffled", "blank"]
labels.append("white paper,\ngreedy")
axes.set_xticks(range(5), labels)
axes.set(ylim=(0, 1.05), ylabel="right sums")
figure.legend(loc="outside right center", frameon=False)
axes.set_title("The gain on grey paper is gone without the right picture")
rates = []
for name in names:
    old, new = before[name].rate, after[name].rate
    rates.append(f"{name}: {old:.1%} before, {new:.1%} after")
figures.show(figure, f"Bars with intervals. {'; '.join(rates)}.")

# %% [markdown]
# The vertical axis is the fraction of right sums. The grey bars are the rates before training, the hatched blue bars
# those after it, and the black lines are their 95 % intervals. All groups are of the same 200 charts, and *shuffled* and
# *blank* are greedy, on grey paper.
#
# On grey paper nearly all sums are right now, greedy and sampled. With blank and with shuffled pictures they are as rarely
# right as before. So the gain is seeing: the form was perfect before, and guessing has not improved. On white paper, which
# the model read perfectly, it is now wrong in one of four charts: it has forgotten a part of what it knew.

# %% [markdown]
# ### Other seeds, and other parts of the model
#
# One run could be luck. `benchmarks/vision.py` can repeat the run with other seeds, which change the training charts,
# the adapters' first values and all samples. It can also put the adapters into the language layers alone, or into both
# parts. One more seed of the tower and one run of the language layers are stored, but no run of both parts:

# %%
import json

import pandas as pd
from grpo_workbook import files

stored = []
path = files.REPO / "benchmarks" / "vision_runs.jsonl"
for line in path.read_text().splitlines():
    stored.append(json.loads(line))


def table_of(methods, columns):
    """The stored runs of some methods in percent, one row for each seed."""
    lines = []
    for run in stored:
        if run["method"] in methods:
            line = {"adapters in": run["method"], "seed": run["seed"]}
            for column in columns:
                percent = 100 * run["end"][column]
                line[column] = round(percent, 1)
            lines.append(line)
    return pd.DataFrame(lines).set_index(["adapters in", "seed"])


table_of(
    ["base", "vision", "language", "both"], ["greedy", "sampled", "shuffled", "white"]
)

# %% [markdown]
# The numbers are percentages of the 200 held-out charts: *greedy*, *sampled* and *shuffled* on grey paper, *white* greedily
# on white paper.

# %% tags=["hide-input"]
figure, panels = figures.new_panels(8.5, 3.0, 2, 2)
parts_of_model = ["vision", "language", "both"]
own = {"greedy": after["greedy"].rate, "white": after["white paper"].rate}
titles = {"greedy": "Grey paper: trained", "white": "White paper: known before"}
for axes, (measure, title) in zip(panels, titles.items()):
    start = stored[0]["end"][measure]
    axes.axhline(start, color=figures.GREY, ls="--", lw=1, label="before training")
    for place, part in enumerate(parts_of_model):
        for run in stored:
            if run["method"] == part:
                x = place + 0.12 * (run["seed"] - 1)
                rate = run["end"][measure]
                axes.plot(x, rate, "o", color=figures.BLUE, ms=6)
    axes.plot(0.3, own[measure], "D", color=figures.ORANGE, label="the run above")
    axes.plot([], [], "o", color=figures.BLUE, label="a stored run")
    axes.set_xticks(range(3), ["vision\ntower", "language\nlayers", "both"])
    axes.set(ylim=(0, 1.05), xlim=(-0.5, 2.5))
    axes.set(title=title, ylabel="right sums, greedy")
handles, labels = panels[0].get_legend_handles_labels()
figure.legend(handles, labels, loc="outside right center", frameon=False)
figure.suptitle("Where the adapters are: what is learned, and what is forgotten")
words = []
for run in stored:
    if run["method"] in parts_of_model:
        grey, white = run["end"]["greedy"], run["end"]["white"]
        name = f"{run['method']}, seed {run['seed']}"
        words.append(f"{name}: {grey:.1%}, {white:.1%}")
listing = "; ".join(words)
figures.show(figure, f"Dots by part of the model. Grey, then white paper: {listing}.")

# %% [markdown]
# Each dot is a run, the vertical axis is its greedy rate on 200 held-out charts, and the dashed line is the rate before
# training. Left: grey paper. Right: white paper, which no run was trained on.
#
# Both parts can learn grey paper, and both forget some of the white one. With adapters in the tower, the run above reaches
# 99.5 % on grey paper and falls from 100 to 76.5 % on white; the stored run with another seed reaches 100.0 % and falls to
# 85.5 %. The stored run with adapters in the language layers reaches 93.0 % and falls to 66.5 %. Perhaps the tower learns to
# send for grey charts what it used to send for white ones, while the language layers have to change what they do for both.
# But these are two runs against one, which show no general rule, and no run of *both* parts is stored yet. Unsloth's
# notebooks train the language layers only. If your pictures look unlike what the model knows, compare the parts, on the
# old task as well as on the new one.
#
# ### Trained without pictures
#
# The strongest control is a training in which the pictures cannot help. A stored run put the adapters into the tower, as
# above, and trained on blank pictures. The cell prints the mean reward of its first and of its last ten steps, and its
# greedy rate on real charts, beside those of runs with real pictures:

# %%
for run in stored:
    if run["method"].startswith("vision") and "rewards" in run:
        early = mean(run["rewards"][:10])
        late = mean(run["rewards"][-10:])
        real = run["end"]["greedy"]
        print(f"{run['method']:26} seed {run['seed']}:")
        print(f"    reward {early:.1%} to {late:.1%}, real charts {real:.1%}")

# %% [markdown]
# (The run *list paid* has two rewards, which the next section explains, so that its mean reward can reach 200 %.) On
# blank pictures the reward rises only from 0.5 to 4.1 %, and 46.5 % of the real charts are right, instead of 48.0 %. So
# the same recipe without pictures gains nothing: the gain above needs what the pictures show. (This run does not show
# what 40 large updates in a wrong direction would do. In 21 of its 40 steps no completion was right, so all advantages
# were 0.)

# %% [markdown]
# ## What the reward did not pay for
#
# The sums are right now. But the answers say more than the sum: the first line lists the bars with their colours. Does
# the model see these, too?

# %%
from grpo_workbook.exercises.charts import reading_rates

for name, scores in (("before", before["greedy"]), ("after", after["greedy"])):
    for what, rate in reading_rates(heldout_charts, scores.completions).items():
        print(f"{name:6} {what:7} {rate:6.1%} right")
wrong_lists = []
answers = zip(heldout_charts, after["greedy"].completions, after["greedy"].strict)
for chart, completion, is_right in answers:
    if is_right and reading_rates([chart], [completion])["lists"] == 0:
        wrong_lists.append((chart, completion))
right_sums = sum(after["greedy"].strict)
print(f"{len(wrong_lists)} of {right_sums} right answers list wrong bars")

# %% [markdown]
# Three of these answers, each above its chart:

# %% tags=["hide-input"]
shown = wrong_lists[:3]
figure, panels = figures.new_panels(9.0, 3.0, max(1, len(shown)), 3)
words = []
for axes, (chart, completion) in zip(panels, shown):
    axes.imshow(picture(chart, "grey"))
    axes.axis("off")
    named = completion.split("\n")[1]
    axes.set_title(f"{chart.description}\nmodel: {named}", fontsize=9)
    words.append(f"{chart.description}, read as {named}")
figure.suptitle("Right sums, wrong lists: above each chart the truth, then the model")
figures.show(figure, f"Charts on grey paper with wrong lists. {'; '.join(words)}.")

# %% [markdown]
# All heights are right now. Of the colours one in twenty is still wrong, and 30 of the 199 right sums come with a list that
# describes another chart, as in the figure: the title of each chart has the true bars, and below them what the model
# wrote. The reason is the reward: the sum depends on the heights alone. Two completions with the same heights and other
# colours earn the same, so nothing teaches the colours.
#
# Colours may improve along with the heights, as they did here, or they may not. The stored runs show it:

# %%
table_of(
    ["base", "vision", "vision, list paid", "language", "both"],
    ["greedy", "heights", "colours", "lists", "right sum, wrong list"],
)

# %% [markdown]
# The columns are percentages on grey paper: right sums, heights and colours (of 600 bars), lists that are right as a
# whole, and answers with a right sum and a wrong list. Before training 88.5 % of the colours are right. In the tower's
# stored run it is 89.3 % afterwards, although all heights are right; in that of the language layers it is 82.7 %.
# (These are single runs, and we did not test the differences.) This is the lesson of **outcome rewards**: what the
# outcome depends on improves. The rest of the answer may improve, stay or get worse, although it looks like the reason
# for the outcome. If you need it to be right, measure it and reward it: in the stored run *list paid*, with a second
# reward for the list, every bar of every chart is right (exercise 15.2).

# %% [markdown]
# ## Keep the model
#
# An adapter of the whole model needs the processor beside it: without it, `AutoProcessor` finds nothing to load. So
# `save_adapter` wants the processor. `merge` adds the adapter to the unquantized base, tower included, and proves the
# merged model on held-out charts as chapter 04 does:

# %%
from grpo_workbook import merge, save_adapter

folder = profile.output / "pictures"
save_adapter(policy, processor, folder / "adapter")
proof = merge(
    str(MODEL), folder / "adapter", folder / "merged",
    heldout=heldout, policy=after["greedy"], **sampling,
)
greedy = proof["heldout"]["strict"]
print(f"the same most likely token: {proof['same_greedy_tokens']:.2%} of positions")
print(f"4-bit with adapter:         {greedy['before']:.1%} right, greedy")
print(f"merged, 16-bit:             {greedy['after']:.1%} right, greedy")

# %% [markdown]
# ## A real model, on a GPU
#
# With `GRPO_WORKBOOK_PROFILE` set to `t4`, `24gb` or `80gb` the next cells train Qwen3-VL on
# [MathVista](https://huggingface.co/datasets/AI4Math/MathVista), questions about figures with a number as answer. (The
# cells load its split `testmini`, which is a benchmark: a model trained on it must never be reported on MathVista.)
# Without a GPU they do nothing. **These cells have not been run.** Their names and arguments were only checked against
# the source of Unsloth and TRL. Two things differ from the tiny model: Unsloth's `FastVisionModel` loads the model, and
# its switches choose the part that learns. Unsloth's own notebooks train the language layers only; with
# `fast_inference` it refuses adapters in the tower.

# %%
GPU_MODELS = {
    "t4": "unsloth/Qwen3-VL-2B-Instruct",
    "24gb": "unsloth/Qwen3-VL-4B-Instruct",  # or unsloth/gemma-3-4b-it
    "80gb": "unsloth/Qwen3-VL-8B-Instruct",
}
on_a_gpu = profile.name in GPU_MODELS
if on_a_gpu:
    from unsloth import FastVisionModel

    large, large_processor = FastVisionModel.from_pretrained(
        GPU_MODELS[profile.name], max_seq_length=4096, load_in_4bit=True,
        fast_inference=False, use_gradient_checkpointing="unsloth",
    )
    large = FastVisionModel.get_peft_model(
        large, finetune_vision_layers=False, finetune_language_layers=True,
        finetune_attention_modules=True, finetune_mlp_modules=True, r=16, lora_alpha=16,
        lora_dropout=0, bias="none", random_state=profile.seed,
        use_gradient_checkpointing="unsloth",
    )

# %% [markdown]
# Pictures of 512 x 512 pixels cost 256 image tokens in Qwen3-VL, as in Gemma 3. Keep the questions whose answer is a
# number, and hold 200 of them out:

# %%
def to_row(example):
    image = example["decoded_image"].convert("RGB")
    image = image.resize((512, 512))
    content = f"{profile.system_prompt}\n\n{example['question']}"
    prompt = [{"role": "user", "content": content}]
    return {"prompt": prompt, "image": image, "answer": example["answer"]}


if on_a_gpu:
    from datasets import load_dataset

    problems = load_dataset("AI4Math/MathVista", split="testmini")
    problems = problems.filter(lambda row: row["answer"].replace(".", "", 1).isdigit())
    problems = problems.map(to_row, remove_columns=problems.column_names)
    halves = problems.train_test_split(test_size=200, seed=profile.seed)
    check_pictures(halves["train"], large_processor)

# %% [markdown]
# The settings are Unsloth's for its vision notebooks: a smaller learning rate, GSPO's ratio of whole sequences, and the
# loss `dr_grpo`. The controls are the same two calls as above.

# %%
if on_a_gpu:
    large_args = GRPOConfig(
        output_dir=str(profile.output / "large"), max_steps=60, learning_rate=5e-6,
        lr_scheduler_type="cosine", warmup_steps=0.1, weight_decay=0.001,
        optim="adamw_8bit", max_grad_norm=0.1, per_device_train_batch_size=4,
        gradient_accumulation_steps=2, num_generations=4, max_completion_length=1024,
        temperature=1.0, top_p=1.0, top_k=0, beta=0.0, loss_type="dr_grpo",
        importance_sampling_level="sequence", report_to="none", logging_steps=1,
        generation_kwargs={"suppress_tokens": picture_tokens(large_processor)},
    )
    large_trainer = GRPOTrainer(
        large, [correctness_reward], large_args, halves["train"],
        processing_class=large_processor,
    )
    large_trainer.train()
    tests = picture_controls(halves["test"])
    tests["real"] = halves["test"]
    for name, dataset in tests.items():
        scores = evaluate(large, large_processor, dataset, batch_size=8,
                          max_new_tokens=1024)
        print(f"{name:9} {scores}")

# %% [markdown]
# <details><summary>For the curious: what else is different with pictures</summary>
#
# - **4 bits in the tower.** Transformers 5.17 compares the names in `llm_int8_skip_modules` from their beginning. So
#   `"vision_tower"` skips nothing in a model whose layers are called `model.vision_tower...`, and the tower is quantized
#   all the same. `load_model` gives the pattern `.*vision_tower`.
# - **A model from scratch.** Transformers starts Gemma 3's projector at zero: such a model is blind, and its tower gets
#   no gradient. `data/build_tiny_vision.py` gives the projector random values first.
# - **Memory.** TRL repeats `pixel_values` for each completion of a group, and runs the processor twice for each batch
#   (read in its source). With groups of 8 and large pictures this counts: `plan` has an argument `image_tokens`.
# - **The text part alone.** Without `pictures=True`, `load_model` takes only the text part of a model that sees. An adapter
#   of the whole model does not fit it.
# - **Stock TRL on a CPU** fails with `'NoneType' object has no attribute 'apply'`, with pictures as without: import
#   Unsloth first.
#
# </details>

# %% [markdown] tags=["remove-cell"]
# The numbers that the tests of this course look at:

# %% tags=["remove-cell"]
read_before = reading_rates(heldout_charts, before["greedy"].completions)
read_after = reading_rates(heldout_charts, after["greedy"].completions)
proved = {"steps": len(log), "stored": len(stored)}
proved["before"] = {name: scores.rate for name, scores in before.items()}
proved["after"] = {name: scores.rate for name, scores in after.items()}
proved["p_value"] = paired_p_value(before["greedy"].strict, after["greedy"].strict)
proved["form"] = mean(before["greedy"].well_formed)
for what in ("heights", "colours"):
    proved[what] = [read_before[what], read_after[what]]
proved["merged"] = proof["heldout"]["strict"]["after"]
profile.output.mkdir(parents=True, exist_ok=True)
(profile.output / "notebook_15.json").write_text(json.dumps(proved, indent=2))
print(json.dumps(proved, indent=2))

# %% [markdown]
# ## Exercises
#
# Each exercise changes the run. Exercises 15.2 to 15.4 train again, which takes about two minutes each.

# %% [markdown]
# ### Exercise 15.1 · `list_reward` · medium · 8 minutes
#
# Write a second reward: 1.0 if the completion lists all bars rightly, in their order and with colours and heights, and
# 0.0 if not. The list is the first line after `<reasoning>`, and the column `bars` has it as it should be, such as
# `red 7, green 2, blue 4`. A completion is a list with one message, as in chapter 04.


# %% tags=["exercise"]
from grpo_workbook.exercises import check, predict


def list_reward(completions: list, bars: list[str], **columns) -> list[float]:
    raise NotImplementedError


check("15.1", list_reward);

# %% [markdown]
# <details><summary>Hint</summary>
#
# The text is `completion[0]["content"]`. Everything before the list is `<reasoning>` and a line break, and behind it is
# another line break.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def list_reward(completions: list, bars: list[str], **columns) -> list[float]:
#     rewards = []
#     for completion, description in zip(completions, bars):
#         text = completion[0]["content"]
#         reasoning = text.partition("<reasoning>")[2].strip()
#         first_line = reasoning.partition("\n")[0]
#         rewards.append(1.0 if first_line == description else 0.0)
#     return rewards
# ```
#
# </details>

# %% [markdown]
# ### Exercise 15.2 · `pay_the_list` · medium · 5 minutes
#
# Now train with both rewards, the sum's and yours. Compared with the chapter's run, will *more* held-out charts have a
# right list, *fewer*, or is there *no difference* (p of the paired test is 0.05 or more)?

# %% tags=["exercise"]
prediction = ...  # "more", "fewer" or "no difference"


def right_lists(scores):
    """For each held-out chart: whether all of its bars are listed rightly."""
    rights = []
    for chart, completion in zip(heldout_charts, scores.completions):
        rights.append(reading_rates([chart], [completion])["lists"] == 1)
    return rights


def pay_the_list() -> dict:
    """40 steps with both rewards: change the functions, and run again."""
    _, own = train_policy("vision", train_set, [correctness_reward, list_reward])
    scores = evaluate(own, processor, heldout, **sampling)
    print(f"right sums: {scores.rate:.1%}")
    return {"before": right_lists(after["greedy"]), "after": right_lists(scores)}


predict("15.2", prediction, pay_the_list);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Take a group in which all sums are right, and some lists are wrong. What did the chapter's reward teach from it, and
# what do the two rewards teach together?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "more"
# ```
#
# In our stored run all 200 lists are right, and all sums. In the chapter's run 85 % of the lists were right. A group whose
# sums are all right teaches nothing with the first reward alone, because its advantages are 0. With the second reward it
# teaches the colours, as long as some of its lists are wrong.
#
# </details>

# %% [markdown]
# ### Exercise 15.3 · `train_blindly` · medium · 5 minutes
#
# A bug in the preparation of the data has lost the bars, and the training starts without an error. Train on blank
# pictures, and measure the *right* charts before and after. Will *more* sums be right after training, *fewer*, or is there
# *no difference* (p is 0.05 or more)?

# %% tags=["exercise"]
prediction = ...  # "more", "fewer" or "no difference"


def train_blindly() -> dict:
    """40 steps on blank pictures: try "shuffled" as well."""
    blind_set = picture_controls(train_set, colour=PAPERS["grey"])["blank"]
    blind_log, own = train_policy("vision", blind_set, [correctness_reward])
    last_rewards = [entry["reward"] for entry in blind_log[-10:]]
    print(f"mean reward of the last ten steps: {mean(last_rewards):.1%}")
    scores = evaluate(own, processor, heldout, **sampling)
    return {"before": before["greedy"].strict, "after": scores.strict}


predict("15.3", prediction, train_blindly);

# %% [markdown]
# <details><summary>Hint</summary>
#
# How often is a completion right when nothing can be seen? What is the advantage of all completions in a group in which
# none is?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "no difference"
# ```
#
# In our stored run 46.5 % of the right charts were read correctly afterwards, and 48.0 % before. The reward rose from
# 0.5 to 4.1 %: the few right guesses can teach which sums are frequent, and nothing about a chart. Most groups had no
# right completion, so all of their advantages were 0. Nothing fails and nothing warns: only a reward that stays low
# shows that the pictures are missing. So this run is also a control of the chapter's gain: the same steps without the
# pictures gained nothing.
#
# </details>

# %% [markdown]
# ### Exercise 15.4 · `train_the_language` · easy · 4 minutes
#
# Train the language layers in place of the tower, and ask for the charts on *white* paper, which the model knew before.
# Compared with the chapter's run, will *more* of them be right, *fewer*, or is there *no difference* (p is 0.05 or more)?

# %% tags=["exercise"]
prediction = ...  # "more", "fewer" or "no difference"


def train_the_language() -> dict:
    """40 steps with adapters in the language layers: try "both" as well."""
    _, own = train_policy("language", train_set, [correctness_reward])
    grey = evaluate(own, processor, heldout, **sampling)
    white = evaluate(own, processor, white_heldout, **sampling)
    print(f"grey paper {grey.rate:.1%}, white paper {white.rate:.1%}")
    return {"before": after["white paper"].strict, "after": white.strict}


predict("15.4", prediction, train_the_language);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Which of the two parts handles grey and white charts with the same weights in *every* token that follows?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "fewer"
# ```
#
# In our stored run the language layers end at 66.5 % on white paper, and the tower ended at 76.5 % in the chapter's
# run. This is one run against one; the check prints the paired test of yours. What a training forgets shows only on
# data that it was not about.
#
# </details>

# %% [markdown]
# ## Summary
#
# - A picture reaches a language model as a few vectors in the place of image tokens. Adapters can stand in the tower that
#   makes these vectors, in the layers that read them, or in both. Choose them by a pattern.
# - Check the rows and the processor before training: two of the usual mistakes raise no error; with one of them the
#   model trains without any picture.
# - Fluent answers show nothing. Measure with the right pictures, with blank and with shuffled ones, before and after.
# - Measure what the model could do before, too: what was trained on grey paper was partly forgotten on white.
# - A reward for the outcome teaches what the outcome depends on, here the heights. The colours it leaves to chance.
#
# Does the model see, or are its answers only fluent? It sees the heights of the bars: without the right picture its
# right sums are gone. For some of the colours its answers are only fluent.
#
# Next: [17 · Your own project](17_capstone.ipynb) takes a file of yours through all of it, step by step.
