"""The exercises of notebook 04_grpo_run."""

import re
from statistics import mean

from grpo_workbook.exercises.tasks import exercise, experiment

# 04.1: a reward of the learner's own: right answers, as short as possible

FIRST = "more for the first"
SECOND = "more for the second"
EQUAL = "as much for both"
NO_REWARDS = "no list of two numbers"


def compare_two(function, texts, answers):
    """Which of two completions earns more when the function is called as TRL calls it."""
    completions = [[{"role": "assistant", "content": text}] for text in texts]
    prompts = [[{"role": "user", "content": "How many?"}]] * 2
    rewards = function(prompts=prompts, completions=completions, answer=answers)
    if not isinstance(rewards, list) or len(rewards) != 2:
        return NO_REWARDS
    if any(isinstance(reward, bool) or not isinstance(reward, int | float) for reward in rewards):
        return NO_REWARDS
    if rewards[0] > rewards[1]:
        return FIRST
    if rewards[0] < rewards[1]:
        return SECOND
    return EQUAL


SHORT = "<answer>42</answer>"
LONG = "<reasoning>\n6 * 7 = 42\n</reasoning>\n<answer>42</answer>"
LONGEST = f"<reasoning>{'6 * 7 is 42, so 6 * 7 is 42. ' * 30}</reasoning>{SHORT}"
WRONG = "<answer>41</answer>"
BOTH = "<answer>42</answer><answer>41</answer>"

my_reward = exercise("04.1", "my_reward", call=compare_two)
my_reward.case([SHORT, WRONG], ["42", "42"], gives=FIRST)
my_reward.case([LONG, WRONG], ["42", "42"], gives=FIRST)
my_reward.case([LONGEST, "<answer>4</answer>"], ["42", "42"], gives=FIRST)
my_reward.case([SHORT, LONG], ["42", "42"], gives=FIRST)
my_reward.case([LONG, LONGEST], ["42", "42"], gives=FIRST)
my_reward.case([LONGEST, ""], ["42", "42"], gives=FIRST)
my_reward.case([LONGEST, "42"], ["42", "42"], gives=FIRST)
my_reward.case([LONGEST, "<answer>142</answer>"], ["42", "42"], gives=FIRST)
my_reward.case([LONGEST, BOTH], ["42", "42"], gives=FIRST)
my_reward.case([SHORT, SHORT], ["42", "41"], gives=FIRST)  # each row has its own answer


def answers_in(text):
    """The contents of all answer blocks."""
    blocks = re.findall("<answer>(.*?)</answer>", text, re.DOTALL)
    return [block.strip() for block in blocks]


def price(text):
    """What a text costs: a little for each character, at most 0.5."""
    return 0.5 * len(text) / (len(text) + 100)


@my_reward.mistake
def returns_one_number(completions, answer, **columns):
    """You returned one number for all completions: TRL needs a list with a number for each."""
    return sum(text[0]["content"] == right for text, right in zip(completions, answer, strict=True))


@my_reward.mistake
def pays_the_same_for_any_length(completions, answer, **columns):
    """You paid the same for a short and a long right answer: subtract a little for each character,
    or nothing tells the model to be brief.
    """
    rewards = []
    for completion, right in zip(completions, answer, strict=True):
        answers = answers_in(completion[0]["content"])
        rewards.append(1.0 if answers == [right] else 0.0)
    return rewards


@my_reward.mistake
def pays_for_brevity_alone(completions, answer, **columns):
    """You paid for brevity alone: the model would learn to write nothing. Only a right answer may
    earn something.
    """
    return [1.0 - price(completion[0]["content"]) for completion in completions]


@my_reward.mistake
def charges_more_than_an_answer_earns(completions, answer, **columns):
    """You charged so much for length that a long right answer earns less than a wrong one: keep the
    reward of every right answer above that of a wrong one.
    """
    rewards = []
    for completion, right in zip(completions, answer, strict=True):
        text = completion[0]["content"]
        is_right = answers_in(text) == [right]
        rewards.append(1.0 - 0.01 * len(text) if is_right else 0.0)
    return rewards


@my_reward.mistake
def finds_the_number_anywhere(completions, answer, **columns):
    """You looked for the number anywhere in the text, where 142 holds a 42: compare it with the
    content of the answer block.
    """
    rewards = []
    for completion, right in zip(completions, answer, strict=True):
        text = completion[0]["content"]
        rewards.append(1.0 - price(text) if right in text else 0.0)
    return rewards


@my_reward.mistake
def accepts_several_answers(completions, answer, **columns):
    """You accepted a completion with several answer blocks: a model that lists numbers would be
    paid for guessing.
    """
    rewards = []
    for completion, right in zip(completions, answer, strict=True):
        text = completion[0]["content"]
        rewards.append(1.0 - price(text) if right in answers_in(text) else 0.0)
    return rewards


@my_reward.mistake
def compares_all_with_the_first_answer(completions, answer, **columns):
    """You compared every completion with answer[0]: each has its own answer, at the same place in
    the list.
    """
    rewards = []
    for completion in completions:
        text = completion[0]["content"]
        is_right = answers_in(text) == [answer[0]]
        rewards.append(1.0 - price(text) if is_right else 0.0)
    return rewards


# 04.2: how many numbers a LoRA adapter trains

lora_parameters = exercise("04.2", "lora_parameters")
lora_parameters.case([(128, 128)], 16, gives=4096)
lora_parameters.case([(128, 128), (128, 64), (256, 128)], 8, gives=6656)
# an MLP layer: B is four times as large as A
lora_parameters.case([(2048, 8192)], 32, gives=327680)
lora_parameters.case([], 16, gives=0)


@lora_parameters.mistake
def counts_the_frozen_weight(shapes, rank):
    """You counted the frozen weight W (in x out): count the two thin matrices A and B beside it."""
    return sum(inputs * outputs for inputs, outputs in shapes)


@lora_parameters.mistake
def counts_only_a(shapes, rank):
    """You counted only A (rank x in): B is out x rank."""
    return sum(rank * inputs for inputs, _ in shapes)


@lora_parameters.mistake
def takes_b_to_be_as_large_as_a(shapes, rank):
    """You took B to be as large as A: B has a row for each output, A a column for each input."""
    return sum(2 * rank * inputs for inputs, _ in shapes)


# 04.3: an adapter of rank 1


def read_rank_one(measured):
    """From each step's reward: the mean of the last 5 steps is good to about 10 % of the rise."""
    start = mean(measured["run"][:2])
    thin = mean(measured["rank_1"][-5:]) - start
    run = mean(measured["run"][-5:]) - start
    sentence = f"The reward rose by {thin:.2f}, in the chapter's run by {run:.2f}."
    if thin >= 0.8 * run:
        return "as fast", sentence
    if thin > 0.2 * run:
        return "slower", sentence
    return "not at all", sentence


rank_one = experiment(
    "04.3",
    "rank_one",
    read=read_rank_one,
    wrong={
        "as fast": (
            "At rank 1 one column of B and one row of A move the layer, and not 16 of each: "
            "with the same learning rate it changes less."
        ),
        "slower": (
            "What counts is how far the layers move: compare r, lora_alpha / r and the learning "
            "rate."
        ),
        "not at all": (
            "A rank of 1 can still say 'more of this': a step of RL carries little information."
        ),
    },
)
# measured: rewards that rose by 0.39 and 1.37 (their means here, not each step)
THIN_REWARDS = [1.4] * 10 + [1.79] * 5
RUN_REWARDS = [1.4] * 10 + [2.77] * 5
rank_one.example({"rank_1": THIN_REWARDS, "run": RUN_REWARDS}, gives="slower")

# 04.4: problems of the learner's own, before and after


def read_my_problems(measured):
    """From what was right of the same problems before and after, by a paired test."""
    from grpo_workbook.statistics import paired_p_value  # SciPy: only when it is needed

    before = measured["before"]
    after = measured["after"]
    p = paired_p_value(before, after)
    sentence = f"{sum(before)} of {len(before)} before, {sum(after)} after, p = {p:.2g}."
    if p >= 0.05:
        return "no difference", sentence
    if sum(after) > sum(before):
        return "more", sentence
    return "fewer", sentence


my_problems = experiment(
    "04.4",
    "my_problems",
    read=read_my_problems,
    wrong={
        "more": "The form carries over, but an answer counts only with the right number in it.",
        "fewer": (
            "Training changed the form, and the model lost no arithmetic that these problems need."
        ),
        "no difference": (
            "The form was learned for every problem, and it counts wherever the sum is right."
        ),
    },
)
my_problems.example({"before": [0] * 32, "after": [0] * 32}, gives="no difference")
