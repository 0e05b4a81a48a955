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
# **Time:** about 3 minutes on two CPU cores. (The bar of the stored run is that of a busy machine.) Reading takes about
# 35 minutes, and each of the four exercises that train takes about two minutes more. **You need** chapters 00, 01 and
# 04.

# %% [markdown]
# ## The task
#
# The pictures are charts of three coloured bars, and the question is always the same: how much are the bars together? A
# bar is 1 to 9 units tall. The model of this chapter, *tiny-vision*, learned to read such charts on white paper, from
# right answers ([its card](../data/tiny-vision/README.md)). GRPO gets charts on grey paper, which the model has never
# seen, and no right answer: only a reward of 1 if the sum is right. A program draws the charts, so there is no file of
# pictures. One chart in ten is **held out**, chosen by a hash of its bars: neither the training of *tiny-vision* nor
# GRPO has seen it.

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
from grpo_workbook.exercises.charts import COLOURS, picture


def draw_chart(axes, chart, paper, labels):
    """A chart with its scale, and a label below each bar."""
    axes.imshow(picture(chart, paper))
    axes.grid(False)
    axes.spines[["left", "bottom"]].set_visible(False)
    # A bar of h units ends in pixel row 31 - 3 h; the bars are 9 pixel columns apart.
    units = [1, 3, 5, 7, 9]
    rows_of_units = [31 - 3 * height for height in units]
    axes.set_yticks(rows_of_units, units)
    axes.set_xticks([9, 18, 27], labels)
    axes.tick_params(length=0)


figure, panels = figures.new_panels(8.5, 2.9, 4, 4)
for place, axes in enumerate(panels):
    chart = heldout_charts[place // 2]
    paper = ("white", "grey")[place % 2]
    heights = [str(height) for _, height in chart.bars]
    draw_chart(axes, chart, paper, heights)
    axes.set(title=f"{paper} paper", xlabel=f"sum: {chart.answer}")
panels[0].set_ylabel("units")
figure.suptitle("Two held-out charts, on white paper (known) and on grey (new)")
listed = "; ".join(chart.description for chart in heldout_charts[:2])
figures.show(figure, f"Two charts, each on white and on grey paper: {listed}.")

# %% [markdown]
# Each picture is 32 pixels wide and 32 pixels high. The vertical axis counts units of 3 pixels. The number below each
# bar is its height, and the sum below the chart is the right answer; neither is part of the picture.

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
# This is Gemma 3's way, and *tiny-vision* is built like it. Qwen3-VL joins the vectors of 2 x 2 patches in place of
# averaging them, and adds vectors of earlier layers of the tower in the first layers of the language model.
#
# The cell loads the model and its **processor**. A processor prepares both inputs: it holds the tokenizer and an image
# processor, which resizes the picture and scales its colours. As in chapter 04 the base is in 4 bits, but the vision
# tower stays in 32 bits. (On a CPU Unsloth's `FastVisionModel` raises `NotImplementedError`. So `load_model` calls
# Transformers, and `import unsloth` is only needed to train.)

# %%
from grpo_workbook import load_model

base, processor = load_model(str(MODEL), load_in_4bit=True, pictures=True)
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
# (Gemma 3's own template puts the system text before the picture.) The template writes one placeholder,
# `<start_of_image>`, and the processor replaces it by 16 image tokens between two marks. `input_ids` has the prompt's
# tokens. `pixel_values` has the numbers of the picture: 3 colours of 32 x 32 pixels, from -1 to 1. `token_type_ids`
# marks the image tokens with 1, because in Gemma 3 they may attend to each other in both directions. Now send the
# picture through the tower and the projector:

# %%
import torch

with torch.no_grad():
    features = base.get_image_features(inputs["pixel_values"])
    embeddings = base.get_input_embeddings()(inputs["input_ids"])
print("from the vision tower:", tuple(features.last_hidden_state.shape))
print("from the projector:   ", tuple(features.pooler_output.shape))
print("the prompt's tokens:  ", tuple(embeddings.shape))

# %% [markdown]
# The tower gives a vector of 96 numbers for each of 64 patches. The projector makes 16 vectors of 128 numbers of them,
# and 128 is also the width of the tokens' embeddings. The whole way, with these sizes:

# %% tags=["hide-input"]
seen, sent = features.last_hidden_state.shape, features.pooler_output.shape
whole = embeddings.shape
places, numbers = figures.PALE["data"], figures.PALE["number"]
adapted, fixed = figures.PALE["check"], figures.PALE["off"]
boxes = {
    "picture": (0.08, 0.72, f"picture\n{seen[-2]} patches", places),
    "tower": (0.28, 0.72, "vision tower", adapted),
    "projector": (0.58, 0.72, "projector", fixed),
    "prompt": (0.84, 0.72, f"prompt\n{whole[1]} vectors\nof {whole[2]}", numbers),
    "question": (0.28, 0.2, "question\n(and the template)", places),
    "table": (0.58, 0.2, "table of embeddings", fixed),
    "language": (0.84, 0.2, "language layers", adapted),
}
arrows = [
    ("picture", "tower", ""),
    ("tower", "projector", f"{seen[-2]} vectors\nof {seen[-1]}"),
    ("projector", "prompt", f"{sent[-2]} of\n{sent[-1]}"),
    ("question", "table", f"{whole[1] - sent[-2]}\ntokens"),
    ("table", "prompt", ""),
    ("prompt", "language", ""),
]
figure = figures.diagram(boxes, arrows, (9.0, 2.9))
figure.suptitle("Picture and question become vectors of the same width", y=1.02)
words = "From the picture through the vision tower and the projector to the prompt, "
words += "from the question through the table of embeddings; then the language layers."
figures.show(figure, words)

# %% [markdown]
# Follow the arrows; their labels say how many vectors are passed on and how wide they are. Blue boxes are the inputs,
# the orange box is the sequence of vectors. This chapter can put adapters into the green boxes; the grey ones stay as
# they are. The next figure shows the square of the picture that each of the 16 vectors stands for:

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(4.2, 4.4)
axes.imshow(example["image"])
for line in range(0, 33, 4):
    width = 1.8 if line % 8 == 0 else 0.4
    axes.axhline(line - 0.5, color=figures.ORANGE, lw=width)
    axes.axvline(line - 0.5, color=figures.ORANGE, lw=width)
for number in range(16):
    x = number % 4 * 8 + 0.6
    y = number // 4 * 8 + 1.9
    box = {"facecolor": figures.PALE["number"], "edgecolor": "none", "pad": 1}
    axes.text(x, y, str(number + 1), fontsize=8, bbox=box)
axes.axis("off")
axes.set_title("64 patches of 4 x 4 pixels become\n16 vectors, one for each number")
figures.show(figure, "A chart with a grid of 8 by 8 patches, in 16 numbered squares.")

# %% [markdown]
# Thin lines are the borders of the patches, thick lines those of the squares of four patches whose vectors the
# projector averages. In the tower every patch attends to all others, so a vector can also know about the rest of the
# picture. The next figure shows where the 16 vectors stand in the prompt:

# %% tags=["hide-input"]
from matplotlib.patches import Rectangle

figure, (axes,) = figures.new_panels(8.0, 3.9)
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
    axes.text(x + 0.47, y + 0.45, label, ha="center", va="center", fontsize=8)
rows_of_tokens = -(-len(ids) // 11)
axes.set(xlim=(0, 11), ylim=(1 - rows_of_tokens, 1))
axes.axis("off")
axes.bar(0, 0, color=figures.PALE["data"], label="text: the token's embedding")
axes.bar(0, 0, color=figures.PALE["number"], label="image token: a picture's vector")
figure.legend(loc="outside lower center", ncols=2, frameon=False)
axes.set_title(f"The picture takes {image_number} of the prompt's {len(ids)} places")
words = f"The prompt's {len(ids)} tokens in {rows_of_tokens} lines of boxes; "
figures.show(figure, words + f"{image_number} of them are image tokens.")

# %% [markdown]
# The boxes are the tokens of the prompt, to be read line by line. The numbers are those of the squares above.
#
# How many image tokens a picture costs depends on the model. Gemma 3 makes 256 of any picture. In Qwen3-VL their number
# grows with the picture, one for every 32 x 32 pixels: resize large pictures before training, or the prompt gets long.
# TRL 1.15 has no `max_prompt_length` any more (`TypeError`), and truncating a prompt would cut through the image
# tokens: the processor then stops with *Mismatch in image token count*.
#
# *Question:* a page is scanned as a picture of 1024 x 768 pixels. How many image tokens does it cost in Qwen3-VL, and
# how many in Gemma 3?
#
# <details><summary>Answer</summary>
#
# Qwen3-VL: 32 · 24 = 768. Gemma 3: 256. Each completion of a group has all of them in its prompt.
#
# </details>

# %% [markdown]
# ## A model whose answers are fluent
#
# Measure the model on the held-out charts before any training, greedily and sampled, and on the same charts on white
# paper:

# %%
from grpo_workbook import evaluate

sampling = {"batch_size": 100, "max_new_tokens": 48}
before = {}
before["greedy"] = evaluate(base, processor, heldout, **sampling)
before["sampled"] = evaluate(base, processor, heldout, sample=True, **sampling)
before["white paper"] = evaluate(base, processor, white_heldout, **sampling)
for name, scores in before.items():
    print(f"{name:12} {scores}")
print(before["greedy"].completions[0])

# %% [markdown]
# (*Strict* and *lenient* are the two ways of counting of chapter 08: the answer in the asked form, and in any form.
# This chapter uses *strict*.) On white paper the model is right. On grey paper nearly every answer still has the right
# form: bars, additions, a sum. But only half of the sums are right, and a reader who does not look at the chart cannot
# tell which.
#
# This is the danger of the whole field: fluent answers do not show that a model looks at the picture. Many benchmarks
# can be answered partly from the question alone ([Goyal et al.](https://arxiv.org/abs/1612.00837) for pictures, [Chen
# et al.](https://arxiv.org/abs/2403.20330) for current models). The cure is a **control**: take the picture away and
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
# With the right picture 48.0 % of the sums are right, with a wrong one 5.0 %, and with a blank one none; always 13
# would give 10.0 %. So nearly all that the model gets right, it reads from the picture. Keep the two rates without the
# right picture: training may raise the score of a model that does not look, because it can learn which answers are
# frequent. Then the rates of the controls rise with it.

# %% [markdown]
# ### Exercise 15.1 · `gain_from_pictures` · medium · 6 minutes
#
# Somebody trains a model on charts like these, and its rate rises from 50 to 70 %. With shuffled pictures it rises from
# 10 to 30 %. Assume that better guessing raises the rate on right pictures at most as much as on wrong ones. How much
# of the gain of 20 points must then be better seeing, at the least? Write a function that computes this least part for
# any such report, as a difference of rates (0.2 for 20 points). `before` and `after` have a list for each kind of
# picture, `"real"`, `"shuffled"` and `"blank"`, with True or False for each chart.


# %% tags=["exercise"]
from grpo_workbook.exercises import check, predict


def gain_from_pictures(
    before: dict[str, list[bool]], after: dict[str, list[bool]]
) -> float:
    raise NotImplementedError


check("15.1", gain_from_pictures);

# %% [markdown]
# <details><summary>Hint</summary>
#
# A model that has only learned which sums are frequent guesses better on every picture that looks like a chart, whether
# it is the right one or not. By how much does its rate on the real pictures rise?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def gain_from_pictures(
#     before: dict[str, list[bool]], after: dict[str, list[bool]]
# ) -> float:
#     gains = {}
#     for pictures in ("real", "shuffled"):
#         old = sum(before[pictures]) / len(before[pictures])
#         new = sum(after[pictures]) / len(after[pictures])
#         gains[pictures] = new - old
#     return gains["real"] - gains["shuffled"]
# ```
#
# In the report above it is 0: no part of the gain has to be better seeing, because the model gained as much with wrong
# pictures as with the right ones. This number is cautious. A guess helps only on charts that the model does not read,
# so better guessing raises the rate less on the right pictures than on wrong ones. The usual correction for guessing,
# `(real - shuffled) / (1 - shuffled)`, gives 44 % before training and 57 % after it. So where the rate on shuffled
# pictures rises, a number above 0 shows better seeing, if it is more than chance, but 0 or less does not prove that the
# model sees no better. Where that rate falls, take the gain on the right pictures alone: worse guessing makes the
# difference too large. Shuffled pictures are the better control here, because they look like what the model was trained
# on. A model may treat a blank picture as something else altogether, and then its guesses on blank pictures say little
# about its guesses on charts.
#
# </details>

# %% [markdown]
# ## Before training: what fails in silence
#
# Training on pictures has more ways to go wrong than training on texts. Some of these mistakes raise no error: the
# model trains without its pictures, or with the marks of its image tokens in wrong places. `check_pictures` looks for
# those in the table below. It cannot see that a picture is empty or belongs to another row: look at some rows yourself.
# The cell makes the five mistakes of the table on purpose:

# %%
from grpo_workbook.errors import WorkbookError
from grpo_workbook.pictures import check_pictures
from transformers import AutoProcessor

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
# The last line checks the chapter's own rows, and has nothing to say. What does TRL 1.15 do without the check?
#
# | mistake | what TRL does |
# | --- | --- |
# | a tokenizer as `processing_class` | `KeyError: 'pixel_values'` |
# | the column is not called `image` or `images` | **no error**: it trains without pictures |
# | padding on the right, prompts of unequal length | **no error**: the marks of the image tokens are misplaced ([TRL 5785](https://github.com/huggingface/trl/issues/5785)) |
# | the template was applied beforehand | `ValueError`, though TRL's documentation asks for it |
# | the picture in the message and in the column | `ValueError: ... images provided (1) ... placeholders (0)`; TRL's own notebook `grpo_qwen3_vl` has this form |
#
# The `format_reward` of that notebook fails as well, because with conversations a reward function gets a list of
# messages for each completion and not a text.

# %% [markdown]
# ## The run
#
# Which part of the model shall learn? Grey paper changes what the vision tower sees, so give the adapters to the tower.
# PEFT finds the layers by their names. The tower and the language layers both have layers that are called `q_proj`, so
# a list of such names would reach both parts. Use a pattern for the whole name instead, which contains the name of the
# part. (Unsloth's argument `finetune_vision_layers=False` is dropped on a CPU: there some of the adapters landed in the
# tower.) The projector stays as it is: in Gemma 3 it is a bare matrix, which a pattern for layers does not reach.
# `LAYERS` has the patterns:

# %%
import re

from grpo_workbook.compat import picture_tokens
from grpo_workbook.pictures import LAYERS

print("vision:", LAYERS["vision"])
for part, pattern in LAYERS.items():
    reached = []
    for name, _ in base.named_modules():
        if re.fullmatch(pattern, name):
            reached.append(name)
    print(f"{part:9} {len(reached)} layers, the first is {reached[0]}")
suppressed = picture_tokens(processor)
print("never sampled:", processor.tokenizer.convert_ids_to_tokens(suppressed))

# %% [markdown]
# The last line prevents a rare crash. The policy can sample an image token, because it is in its vocabulary. In the
# next forward pass the model finds more image tokens than it has vectors, and stops with *Image features and image
# tokens do not match* ([verl 3469](https://github.com/verl-project/verl/issues/3469) looks the same). `suppress_tokens`
# makes that impossible.
#
# The loss is that of chapter 04, without a KL penalty. A step has 64 completions in groups of 8. The learning rate is a
# third of chapter 04's and stays constant after the warm-up, and gradients are clipped to a norm of 0.2 in place of 1:

# %%
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
# The figure has the fraction of right sums among the 64 completions of each step, which is their mean reward:

# %% tags=["hide-input"]
import pandas as pd

figure, (axes,) = figures.new_panels(7.5, 3.2)
rewards = pd.DataFrame(log).set_index("step")["reward"]
means = rewards.rolling(7, 1, center=True).mean()
axes.plot(rewards, color=figures.BLUE, alpha=0.35, lw=1, label="single step")
axes.plot(means, color=figures.BLUE, lw=2.5, label="mean of 7 steps")
guessing = count / len(heldout)
best_guess = "always the most\nfrequent sum"
axes.axhline(guessing, color=figures.GREY, ls="--", label=best_guess)
axes.set(ylim=(0, 1.05), xlabel="step", ylabel="right sums while training")
figure.legend(loc="outside right center", frameon=False)
first = means.iloc[0]
last = means.iloc[-1]
axes.set_title(f"The reward rises from {first:.0%} to {last:.0%}")
words = f"The mean of 7 steps goes from {first:.0%} to {last:.0%} in {len(log)} steps."
figures.show(figure, words)

# %% [markdown]
# The horizontal axis counts optimizer steps, the pale line has each step and the bold one the centred mean of seven
# steps. The dashed line is the rate of the best guess without a picture, from above. A rising curve alone does not
# answer the question of this chapter: a model that guesses better has one, too.

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
gain = after["greedy"].rate - before["greedy"].rate
guessed = after["shuffled"].rate - before["shuffled"].rate
print(f"gain {100 * gain:+.1f} points with the right pictures,", end=" ")
print(f"{100 * guessed:+.1f} with shuffled ones")

# %% [markdown]
# Each line has the rate before and after training, the 95 % interval of the second, and the p-value of the paired test.
# The last line has the gain on the real charts and the gain on shuffled ones, as in exercise 15.1. Shuffled pictures
# show no change beyond chance here (p = 0.8), so no part of the gain is shown to be guessing. The same rates as bars:

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(8.5, 3.6)
paper = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
places = {"greedy": 0, "sampled": 1, "shuffled": 2.4, "blank": 3.4, "white paper": 4.8}
looks = [("before training", before, -0.2, figures.GREY, "")]
looks.append(("after training", after, 0.2, figures.BLUE, "//"))
for label, measured, shift, colour, hatch in looks:
    for name, place in places.items():
        rate = 100 * measured[name].rate
        low, high = measured[name].interval
        x = place + shift
        bar = axes.bar(x, rate, 0.36, color=colour, hatch=hatch, edgecolor="white")
        whiskers = [[rate - 100 * low], [100 * high - rate]]
        axes.errorbar(x, rate, whiskers, color="black", capsize=3)
        label_y = 100 * high + 2
        axes.text(x, label_y, f"{rate:.1f}", ha="center", fontsize=9, bbox=paper)
    bar.set_label(label)
labels = ["right picture,\ngreedy", "right picture,\nsampled", "shuffled\npictures"]
labels += ["blank\npictures", "white paper,\ngreedy"]
axes.axhline(100 * guessing, color="black", ls=":", label=best_guess)
axes.set_xticks(list(places.values()), labels)
axes.set(ylim=(0, 112), ylabel="right sums (%)")
figure.legend(loc="outside right center", frameon=False)
axes.set_title("Only with the right picture are the sums right")
rates = []
for name in places:
    old = before[name].rate
    new = after[name].rate
    rates.append(f"{name}: {old:.1%} before, {new:.1%} after")
figures.show(figure, f"Bars with intervals. {'; '.join(rates)}.")

# %% [markdown]
# The vertical axis is the percentage of right sums on the same 200 held-out charts, on grey paper except in the last
# group. The black lines are 95 % intervals. *Shuffled* and *blank* are greedy.
#
# On grey paper nearly all sums are right now, greedy and sampled. With blank and with shuffled pictures they are as
# rarely right as before. So the gain is seeing: the greedy answers had the right form before, and no better guessing is
# shown. On white paper, which the model read perfectly, it is now wrong in about one of four charts: it has forgotten a
# part of what it knew.

# %% [markdown]
# ## Which part of the model should learn?
#
# The adapters were in the tower. The language layers could learn the task as well: they could take the same vectors as
# before and read them in another way. Unsloth's notebooks for GRPO with pictures train the language layers only. Does
# it matter?

# %% [markdown]
# ### Exercise 15.2 · `train_the_language` · medium · 5 minutes
#
# Train the language layers in place of the tower, and ask for the charts on *white* paper, which the model knew before.
# Compared with the run above, will *more* of them be right, *fewer*, or is there *no difference* (p of the paired test
# is 0.05 or more)?

# %% tags=["exercise"]
prediction = ...  # "more", "fewer" or "no difference"


def train_the_language() -> dict:
    """40 steps with adapters in the language layers: try "both" as well."""
    _, own = train_policy("language", train_set, [correctness_reward])
    grey = evaluate(own, processor, heldout, **sampling)
    white = evaluate(own, processor, white_heldout, **sampling)
    print(f"grey paper {grey.rate:.1%}, white paper {white.rate:.1%}")
    return {"before": after["white paper"].strict, "after": white.strict}


predict("15.2", prediction, train_the_language);

# %% [markdown]
# <details><summary>Hint</summary>
#
# A chart on white paper and one on grey paper send different vectors from the tower. Which of the two parts can be
# changed so that the vectors of grey charts become those of white ones?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "fewer"
# ```
#
# In the stored run with this seed 66.5 % of the charts on white paper are right, and the chapter's run has 76.5 % (p =
# 0.012). What a training forgets shows only on data that it was not about. The test is over charts: it shows that these
# two *runs* differ. Whether the two *parts* differ needs several runs of each, and a test over runs. The next cells
# have them.
#
# </details>

# %% [markdown]
# One run of each could be luck. `benchmarks/vision.py` repeats the runs with other seeds, which change the training
# charts, the adapters' first values and all samples. It also puts the adapters into both parts at once. Its runs are
# stored:

# %%
import json

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
            line = {"adapters in": methods[run["method"]], "seed": run["seed"]}
            for column, label in columns.items():
                percent = 100 * run["end"][column]
                line[label] = round(percent, 1)
            lines.append(line)
    return pd.DataFrame(lines).set_index(["adapters in", "seed"])


papers = {"greedy": "grey", "sampled": "grey, sampled", "white": "white"}
papers["shuffled"] = "grey, shuffled"
parts = {"vision": "vision tower", "language": "language layers", "both": "both"}
table_of({"base": "none", **parts}, papers)

# %% [markdown]
# The numbers are percentages of right sums on the 200 held-out charts, on grey and on white paper; they are greedy
# except in the column *grey, sampled*. The row *none* is the model before training. *grey, shuffled* stays at 4.0 to
# 5.0 in every run. The figure has the columns *grey* and *white*:

# %% tags=["hide-input"]
from statistics import mean

figure, panels = figures.new_panels(8.5, 3.4, 2, 2)
titles = {"greedy": "Grey paper: trained on", "white": "White paper: known before"}
words = []
for axes, (measure, title) in zip(panels, titles.items()):
    start = stored[0]["end"][measure]
    axes.axhline(start, color=figures.GREY, ls="--", label="before training")
    for place, part in enumerate(parts):
        rates = []
        for run in stored:
            if run["method"] == part:
                rates.append(run["end"][measure])
                x = place + 0.15 * (run["seed"] - 1)
                axes.plot(x, rates[-1], "o", color=figures.BLUE, ms=7)
        average = mean(rates)
        ends = [place - 0.3, place + 0.3]
        axes.plot(ends, [average, average], color=figures.ORANGE)
        axes.text(place, 0.04, f"mean {average:.1%}", ha="center", fontsize=9)
        words.append(f"{title}, adapters in {parts[part]}, {average:.1%}")
    axes.set_xticks(range(3), ["vision\ntower", "language\nlayers", "both"])
    axes.set(ylim=(0, 1.05), xlim=(-0.5, 2.5), title=title, xlabel="adapters in")
panels[0].set_ylabel("right sums, greedy")
panels[0].plot([], [], "o", color=figures.BLUE, label="a run")
panels[0].plot([], [], color=figures.ORANGE, label="their mean")
handles, labels = panels[0].get_legend_handles_labels()
figure.legend(handles, labels, loc="outside right center", frameon=False)
listing = "; ".join(words)
figures.show(figure, f"Mean right sums of the stored runs: {listing}.")

# %% [markdown]
# Each dot is a run, from left to right with seed 0, 1 and so on. The orange line is the mean of a column, printed below
# it, and the dashed line is the rate before training. No run was trained on white paper.
#
# Are the differences more than chance? Runs with the same seed have the same training charts, so compare them seed by
# seed. The cell prints the differences to the tower in percentage points, their mean with its 95 % interval (Student's
# t), and the p of its test against 0:

# %%
from scipy.stats import ttest_1samp

ends = {}
for run in stored:
    ends[run["method"], run["seed"]] = run["end"]


def compare(method, other, measure):
    """The differences of two methods by seed, in points; their mean and its test."""
    differences = []
    for seed in (0, 1, 2):
        rate = ends[method, seed][measure]
        differences.append(100 * (rate - ends[other, seed][measure]))
    test = ttest_1samp(differences, 0)
    low, high = test.confidence_interval()
    words = " ".join(f"{difference:+6.1f}" for difference in differences)
    interval = f"{mean(differences):+.1f} ({low:+.1f} to {high:+.1f})"
    return f"{words}, mean {interval}, p = {test.pvalue:.3f}"


for part in ("language", "both"):
    for measure, paper in (("greedy", "grey"), ("white", "white")):
        difference = compare(part, "vision", measure)
        print(f"{part:8} - vision, {paper:5}: {difference}")

# %% [markdown]
# Both parts can learn grey paper, and every run forgets some of the white one. In each seed the runs with adapters in
# the language layers end lower than those with adapters in the tower: by 6.5, 10.5 and 12.0 points on grey paper, and
# by 10.0, 44.5 and 23.5 points on white. In these runs adapters in both parts end about as high on grey paper as the
# tower alone, and lower on white paper, by 17.5, 20.5 and 9.0 points.
#
# Two of the four intervals leave out 0. But four tests were made, so the smallest p counts four times (Holm's
# correction, [chapter 12](12_which_algorithm.ipynb)), and 4 times 0.028 is more than 0.05. With three seeds no
# difference between the parts is shown. All runs also have the learning rate of the chapter's run; with a rate of its
# own each part might forget less. So take the order of the parts as a hint from a tiny model, and not as a rule.
#
# A possible reason: the tower can learn to send for grey charts what it used to send for white ones, while the language
# layers have to change how they read the vectors of both. These runs do not test it. If your pictures look unlike what
# your model knows, compare the parts, and measure the old task as well as the new one.

# %% [markdown]
# ### Exercise 15.3 · `mix_the_papers` · medium · 6 minutes
#
# Suppose that you need both papers. You may change the training set, but not the number of steps: take half of the
# training charts on grey and half on white paper. The model already solves nearly all charts on white paper, so many
# groups have only right sums, and their advantages are 0. What will the run bring, compared with the run above?
#
# - `"keeps white"`: more charts on white paper are right, and on grey paper no difference is shown;
# - `"pays with grey"`: more charts on white paper are right, and fewer on grey paper;
# - `"no help"`: on white paper no more charts are right.
#
# A difference counts if p of the paired test is below 0.05.

# %% tags=["exercise"]
prediction = ...  # "keeps white", "pays with grey" or "no help"


def mix_the_papers() -> dict:
    """40 steps on charts on both papers: try other shares as well."""
    half = len(train_charts) // 2
    grey_rows = rows(train_charts[:half], "grey")
    white_rows = rows(train_charts[half:], "white")
    mixed_set = Dataset.from_list(grey_rows + white_rows)  # the trainer shuffles them
    _, own = train_policy("vision", mixed_set, [correctness_reward])
    changes = {"grey": [after["greedy"].strict], "white": [after["white paper"].strict]}
    changes["grey"].append(evaluate(own, processor, heldout, **sampling).strict)
    changes["white"].append(evaluate(own, processor, white_heldout, **sampling).strict)
    return changes


predict("15.3", prediction, mix_the_papers);

# %% [markdown]
# <details><summary>Hint</summary>
#
# A group of white charts has no gradient as long as all of its sums are right. What happens to its advantages as soon
# as the policy begins to forget white paper?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "keeps white"
# ```
#
# A group of white charts has no gradient while all of its sums are right. As soon as the policy forgets some of white
# paper, such a group has right and wrong sums, and its advantages pull the policy back. A share of old data in the
# training set is called *rehearsal* or *replay*. Its price is that fewer groups are about the new task. In our run
# (seed 0) 95.0 % of the charts on white paper were right, where the chapter's run has 76.5 % (p = 1.5e-11), and 99.5 %
# on grey paper, as in the chapter's run. One run is not a rule: try another share.
#
# </details>

# %% [markdown]
# ## Trained without pictures
#
# A further control is a training in which the pictures cannot help. If the score rises all the same, then the gain did
# not come from the pictures. That a score can rise without a useful reward is known: with random rewards, or with wrong
# answers rewarded, Qwen2.5-Math-7B got much better at MATH-500, while other families of models often did not ([Shao et
# al.](https://arxiv.org/abs/2506.10947)). We use blank pictures, since lost pictures are a common bug. Shuffled ones
# would be the stronger form of this control. No run with them is stored; the next exercise can train on them, too.

# %% [markdown]
# ### Exercise 15.4 · `train_blindly` · easy · 5 minutes
#
# A bug in the preparation of the data has lost the bars, and the training starts without an error. Train on blank
# pictures, and measure the *right* charts before and after. Will *more* sums be right after training, *fewer*, or is
# there *no difference* (p is 0.05 or more)?

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


predict("15.4", prediction, train_blindly);

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
# In the stored run with this seed 46.5 % of the real charts were right after training, and 48.0 % before. Most groups
# had no right completion, so all of their advantages were 0. The next figure has the reward of this run.
#
# </details>

# %% [markdown]
# The stored runs trained the tower on real pictures and on pictures that cannot help:

# %% tags=["hide-input"]
kinds = {"vision": "real", "vision, blank pictures": "blank"}
figure, (left, right) = figures.new_panels(8.5, 3.4, 2, 2)
start = stored[0]["end"]["greedy"]
right.axhline(start, color=figures.GREY, ls="--")
right.text(0.4, start + 0.02, "before training", ha="center", fontsize=9)
colours = [figures.BLUE, figures.ORANGE]
words = []
for place, (method, label) in enumerate(kinds.items()):
    colour = colours[place]
    dash = ("-", "--")[place]
    runs = [run for run in stored if run["method"] == method]
    for run in runs:
        steps = range(1, len(run["rewards"]) + 1)
        curve = pd.Series(run["rewards"], steps).rolling(7, 1, center=True).mean()
        left.plot(curve, color=colour, ls=dash)
        x = place + 0.15 * (run["seed"] - 1)
        rate = run["end"]["greedy"]
        right.plot(x, rate, "os"[place], color=colour, ms=7)
        words.append(f"{label}, seed {run['seed']}: {rate:.1%}")
    left.plot([], [], color=colour, ls=dash, label=label)
left.set(ylim=(-0.03, 1.05), xlabel="step", ylabel="right sums (mean of 7 steps)")
left.set_title("While training, on its own pictures")
right.set(ylim=(-0.03, 1.05), ylabel="right sums, greedy")
right.set(xlim=(-0.5, len(kinds) - 0.5))
right.set_xticks(range(len(kinds)), kinds.values())
right.set(title="Afterwards, on real charts", xlabel="trained on these pictures")
figure.legend(loc="outside right center", title="trained on", frameon=False)
figures.show(figure, f"Right sums on real charts afterwards: {'; '.join(words)}.")

# %% [markdown]
# Left: each line is a run's mean reward. Right: each mark is the same run after its training, measured on the 200 real
# held-out charts; the dashed line is the model before training. The next cell prints the numbers of the run on blank
# pictures:

# %%
blank_rewards = next(
    run["rewards"]
    for run in stored
    if run["method"] == "vision, blank pictures" and run["seed"] == 0
)
without_reward = sum(reward == 0 for reward in blank_rewards)
print(f"blank: reward {mean(blank_rewards[:10]):.1%} in the first ten steps,", end=" ")
print(f"{mean(blank_rewards[-10:]):.1%} in the last ten;", end=" ")
print(f"no completion was right in {without_reward} of {len(blank_rewards)} steps")

# %% [markdown]
# On blank pictures the reward rises only from 0.5 to 4.1 % (means of the first and of the last ten steps): the few
# right guesses can teach which sums are frequent, and nothing about a chart. No change is shown: 46.5 % of the real
# charts are right afterwards, and 48.0 % were right before (exercise 15.4 tests the difference). So the same recipe
# without pictures shows no gain, and the gain of the chapter's run needs what the pictures show. (This is one run. In
# 21 of its 40 steps no completion was right, so all advantages were 0; it does not show what 40 large updates in a
# wrong direction would do.)
#
# Note how quiet this failure is: nothing stops. Here a reward that stays low shows that the pictures are missing. Where
# the question can be guessed from its text, the reward may rise all the same, and only the controls show it.
# [PAPO](https://arxiv.org/abs/2507.06448) builds such a control into the loss: it pays for predictions that change when
# parts of the picture are masked.

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
# *Colours* and *heights* are fractions of the 600 bars, *lists* is the fraction of the 200 charts whose list is right
# as a whole. Three of the right answers with a wrong list, each below its chart:

# %% tags=["hide-input"]
shown = wrong_lists[:3]
figure, panels = figures.new_panels(8.5, 3.8, max(1, len(shown)), 3)
words = []
for axes, (chart, completion) in zip(panels, shown):
    named = completion.split("\n")[1]
    draw_chart(axes, chart, "grey", named.split(", "))
    for label, bar in zip(axes.get_xticklabels(), chart.description.split(", ")):
        if label.get_text() != bar:
            label.set(color=figures.ORANGE, weight="bold")
    axes.set_title(f"sum {chart.answer}, which is right", fontsize=10)
    words.append(f"{chart.description}, read as {named}")
figure.suptitle("Right sums with wrong lists: what the model wrote, below each bar")
figures.show(figure, f"Charts on grey paper with wrong lists. {'; '.join(words)}.")

# %% [markdown]
# Below each bar stands what the model's list says about it; bold orange words are wrong.
#
# All heights are right now, but some colours are still wrong, and 30 of the 199 right sums come with a list that
# describes another chart. The reward allows this: the sum depends on the heights alone. Two completions with the same
# heights and other colours earn the same, so the reward does not teach the colours. (They rose from 88.5 to 95.0 % all
# the same. What makes the heights readable on grey paper can make colours readable, too, but nothing guarantees it: the
# next runs differ.)

# %% [markdown]
# ### Exercise 15.5 · `list_reward` · medium · 8 minutes
#
# Write a second reward: 1.0 if the completion lists all bars rightly, in their order and with colours and heights, and
# 0.0 if not. The list is the first line after `<reasoning>`, and the column `bars` has it as it should be, such as
# `red 7, green 2, blue 4`. A completion is a list with one message, as in chapter 04.


# %% tags=["exercise"]
def list_reward(completions: list, bars: list[str], **columns) -> list[float]:
    raise NotImplementedError


check("15.5", list_reward);

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
# ### Exercise 15.6 · `pay_the_list` · medium · 5 minutes
#
# Now train with both rewards, the sum's and yours, so solve 15.5 first. TRL adds the two. Most sums are learned after
# 20 steps with the sum's reward alone; with the second one, the same 40 steps have two things to teach. Compared with
# the chapter's run, will *more* held-out charts have a right list *and* a right sum, *fewer*, or is there *no
# difference* (p of the paired test is 0.05 or more)?

# %% tags=["exercise"]
prediction = ...  # "more", "fewer" or "no difference"


def wholly_right(scores):
    """For each held-out chart: whether the sum and all listed bars are right."""
    rights = []
    answers = zip(heldout_charts, scores.completions, scores.strict)
    for chart, completion, right_sum in answers:
        right_list = reading_rates([chart], [completion])["lists"] == 1
        rights.append(right_list and right_sum)
    return rights


def pay_the_list() -> dict:
    """40 steps with both rewards: change the functions, and run again."""
    _, own = train_policy("vision", train_set, [correctness_reward, list_reward])
    scores = evaluate(own, processor, heldout, **sampling)
    print(f"right sums: {scores.rate:.1%}")
    return {"before": wholly_right(after["greedy"]), "after": wholly_right(scores)}


predict("15.6", prediction, pay_the_list);

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
# In the stored run with this seed all 200 lists are right, and all sums. In the chapter's run 85 % of the lists were
# right. A group whose sums are all right teaches nothing with the first reward alone, because its advantages are 0.
# With the second reward it teaches the colours, as long as some of its lists are wrong. The two rewards need not get
# into each other's way: the same completion can earn both. If the list has to be right, give it a reward of its own.
#
# </details>

# %% [markdown]
# The stored runs show what each training did to the heights and to the colours, and *list paid* has the second reward:

# %%
readings = {"greedy": "sums", "heights": "heights", "colours": "colours"}
readings["lists"] = "whole lists"
readings["right sum, wrong list"] = "right sum, wrong list"
trained = {"base": "none", **parts, "vision, list paid": "vision tower, list paid"}
paid_for_lists = ends["vision, list paid", 0]["lists"] - ends["vision", 0]["lists"]
print(f"list paid - sum alone, whole lists, seed 0: {100 * paid_for_lists:+.1f} points")
table_of(trained, readings)

# %% [markdown]
# The columns are percentages on grey paper: right sums (of 200 charts), right heights and colours (of 600 bars), lists
# that are right as a whole, and answers with a right sum and a wrong list. The cell also prints by how many points the
# second reward raised the whole lists.
#
# Before training 88.5 % of the colours are right. With adapters in the tower they end at 95.0, 89.3 and 96.8 %,
# although all heights are right, and with adapters in the language layers at 82.7, 87.8 and 91.8 %. In seven of the
# nine runs with adapters in these parts or in both more colours are right than before, and in two fewer, by 5.8 and 0.7
# points (not tested). This is the lesson of **outcome rewards**: what the outcome depends on improves. The rest of the
# answer may improve, stay or get worse, although it looks like the reason for the outcome. If you need it to be right,
# measure it and reward it: in the stored run *list paid* every bar of every chart is right.

# %% [markdown]
# ## Keep the model
#
# Whoever loads the adapter later needs the processor, too. If it is not saved beside the adapter, `AutoProcessor` finds
# nothing to load there, so `save_adapter` wants the processor. `merge` adds the adapter to the unquantized base, tower
# included, and measures the merged model on the held-out charts, as chapter 04 does. The first line of the output
# compares the merged model with the unquantized base and its adapter: merging changed no choice. The other two lines
# differ by one chart in 200, because the policy was measured on the base in 4 bits:

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
# Without a GPU they do nothing. **These cells have not been run with Qwen3-VL or on a real GPU.** Their names and
# arguments were only checked against the source of Unsloth and TRL. Two things differ from the tiny model: Unsloth's
# `FastVisionModel` loads the model, and its switches choose the part that learns. Unsloth's own GRPO notebooks train
# the language layers only; with `fast_inference` it refuses adapters in the tower.

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
# Pictures of 512 x 512 pixels cost 256 image tokens in Qwen3-VL, as in Gemma 3. (`to_row` squeezes every picture into
# this square, which changes angles and circles. For such questions keep the proportions: `ImageOps.pad` of Pillow fills
# the rest with one colour.) Keep the questions whose answer is a number, and hold 200 of them out:

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
# loss `dr_grpo`. The controls are made and measured by the same two functions as above. Run the last loop before the
# training as well: without the rates before, you cannot tell what the training changed.

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
#   `"vision_tower"` skips nothing in a model whose layers are called `model.vision_tower...`, and the tower is
#   quantized all the same. `load_model` gives the pattern `.*vision_tower`.
# - **A model from scratch.** Transformers starts Gemma 3's projector at zero: such a model is blind, and its tower gets
#   no gradient. `data/build_tiny_vision.py` gives the projector random values first.
# - **Memory.** TRL repeats `pixel_values` for each completion of a group, and runs the processor twice for each batch
#   (read in its source). With groups of 8 and large pictures this counts: `plan` has an argument `image_tokens`.
# - **The text part alone.** Without `pictures=True`, `load_model` takes only the text part of a model that sees. An
#   adapter of the whole model does not fit it.
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
# Exercises 15.1 to 15.6 stand above, where their ideas are explained. The table in chapter 00 counts what you have
# solved. One more has no check, because it is about your own project: take a vision-language model that you use and 50
# questions about pictures whose answers you know. Measure it with the right pictures and with the two controls of
# `picture_controls`. How many of its right answers need the picture?

# %% [markdown]
# ## Summary
#
# - A picture reaches a language model as a few vectors in the place of image tokens. Adapters can stand in the tower
#   that makes these vectors, in the layers that read them, or in both; with three seeds no difference between these is
#   shown. Choose them by a pattern for the whole name.
# - Check the rows and the processor before training. Two of the usual mistakes raise no error, and with one of them the
#   model trains without any picture.
# - Fluent answers do not show that a model sees, and a rising reward does not, either. Measure with the right pictures,
#   with blank and with shuffled ones, before and after.
# - Measure what the model could do before, too: what was trained on grey paper was partly forgotten on white.
# - A reward for the outcome teaches what the outcome depends on, here the heights. It promises nothing for the colours:
#   more of them were right in seven runs of nine, and fewer in two.
#
# Does the model see, or are its answers only fluent? It sees the heights of the bars: without the right picture its
# right sums are gone. For some of the colours its answers are only fluent.
#
# Next: [16 · Thinking](16_thinking.ipynb) trains a model that thinks before it answers.
