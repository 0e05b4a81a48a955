"""The exercises of notebook 15_pictures."""

from grpo_workbook.exercises.charts import list_reward as correct_list_reward
from grpo_workbook.exercises.charts import listed_bars
from grpo_workbook.exercises.tasks import exercise, experiment, paired_direction

# 15.1: a reward for the list of the bars


def call_as_trl_does(function, texts, bars):
    """The learner's rewards for completions of one message each."""
    completions = [[{"role": "assistant", "content": text}] for text in texts]
    prompts = [[{"role": "user", "content": "How much?"}]] * len(texts)
    return function(prompts=prompts, completions=completions, bars=bars, answer=["9"] * len(texts))


def written(bars, result="9"):
    """A completion that lists these bars."""
    return f"<reasoning>\n{bars}\n2+3=5\n5+4=9\n</reasoning>\n<answer>{result}</answer>"


BARS = "red 2, blue 3, black 4"
RIGHT = written(BARS)
WRONG_SUM = written(BARS, "8")
WRONG_COLOUR = written("red 2, green 3, black 4")
WRONG_HEIGHT = written("red 2, blue 4, black 3")
OTHER_ORDER = written("blue 3, red 2, black 4")
LONGER = written("red 2, blue 3, black 45")
TWO_LISTS = written(f"green 2, blue 3, black 4\n{BARS}")
BEHIND = f"{written('green 2, blue 3, black 4')}\n{BARS}"
TWICE = f"{written('green 2, blue 3, black 4')}\n{RIGHT}"
FIRST_TWO = written("red 2, blue 3")

list_reward = exercise("15.1", "list_reward", call=call_as_trl_does)
list_reward.case([RIGHT, WRONG_COLOUR], [BARS, BARS], gives=[1.0, 0.0])
list_reward.case([WRONG_SUM, WRONG_HEIGHT], [BARS, BARS], gives=[1.0, 0.0])
list_reward.case([RIGHT, OTHER_ORDER, LONGER], [BARS, BARS, BARS], gives=[1.0, 0.0, 0.0])
list_reward.case([TWO_LISTS, BEHIND, FIRST_TWO], [BARS, BARS, BARS], gives=[0.0, 0.0, 0.0])
list_reward.case([TWICE, RIGHT], [BARS, BARS], gives=[0.0, 1.0])
list_reward.case(["", "no list"], [BARS, BARS], gives=[0.0, 0.0])
list_reward.case([RIGHT, RIGHT], [BARS, "blue 3, red 2, black 4"], gives=[1.0, 0.0])


def text_of(completion):
    """The text of a completion."""
    return completion[0]["content"]


@list_reward.mistake
def returns_one_number(completions, bars, **columns):
    """You returned one number for all completions: TRL needs a list with a number for each."""
    return sum(correct_list_reward(completions, bars))


@list_reward.mistake
def finds_the_list_anywhere(completions, bars, **columns):
    """You looked for the list anywhere in the completion: a model could write several lists, and a
    list that ends in 45 contains the one that ends in 4. Compare it with the first line of the
    reasoning.
    """
    rewards = []
    for completion, description in zip(completions, bars, strict=True):
        rewards.append(float(description in text_of(completion)))
    return rewards


@list_reward.mistake
def compares_the_heights_alone(completions, bars, **columns):
    """You compared the heights and not the colours: the sum already pays for the heights."""
    rewards = []
    for completion, description in zip(completions, bars, strict=True):
        heights = [height for _, height in listed_bars(text_of(completion))]
        right = [height for _, height in listed_bars(f"<reasoning>{description}")]
        rewards.append(float(heights == right))
    return rewards


@list_reward.mistake
def compares_the_colours_alone(completions, bars, **columns):
    """You compared the colours and not the heights: a right list has both."""
    rewards = []
    for completion, description in zip(completions, bars, strict=True):
        colours = [colour for colour, _ in listed_bars(text_of(completion))]
        right = [colour for colour, _ in listed_bars(f"<reasoning>{description}")]
        rewards.append(float(colours == right))
    return rewards


@list_reward.mistake
def ignores_the_order(completions, bars, **columns):
    """You accepted the bars in any order: the list must go from the left to the right, or a red bar
    on the left and one on the right are the same.
    """
    rewards = []
    for completion, description in zip(completions, bars, strict=True):
        listed = sorted(listed_bars(text_of(completion)))
        right = sorted(listed_bars(f"<reasoning>{description}"))
        rewards.append(float(listed == right))
    return rewards


@list_reward.mistake
def compares_all_with_the_first_list(completions, bars, **columns):
    """You compared every completion with bars[0]: each has its own list, at the same place."""
    return correct_list_reward(completions, [bars[0]] * len(completions))


@list_reward.mistake
def wants_the_sum_too(completions, bars, answer, **columns):
    """You asked for the right sum as well: the other reward function pays for it. This one pays for
    the list alone, so that a right list with a wrong sum earns something.
    """
    rewards = correct_list_reward(completions, bars)
    for place, (completion, result) in enumerate(zip(completions, answer, strict=True)):
        if f"<answer>{result}</answer>" not in text_of(completion):
            rewards[place] = 0.0
    return rewards


# 15.2 to 15.4: other runs, chart by chart beside the chapter's


CHANGES = {"rises": "more", "stays": "no difference", "falls": "fewer"}


def read_change(measured):
    """From what was right of the same charts in two runs, by a paired test."""
    change, sentence = paired_direction(measured["before"], measured["after"])
    return CHANGES[change], sentence


def outcomes(right, charts=200):
    """So many right charts, then wrong ones."""
    return [True] * right + [False] * (charts - right)


pay_the_list = experiment(
    "15.2",
    "pay_the_list",
    read=read_change,
    wrong={
        "more": "Look whether the list was rewarded in your run: 15.1 has to be solved first.",
        "fewer": (
            "A reward for the list separates the completions of a group by what they list, and "
            "those with a right list become likelier."
        ),
        "no difference": (
            "The sum alone separates completions by their heights only. Which completions of a "
            "group does your second reward tell apart that the first one does not?"
        ),
    },
)
pay_the_list.example({"before": [1] * 118 + [0] * 82, "after": [1] * 190 + [0] * 10}, gives="more")

train_blindly = experiment(
    "15.3",
    "train_blindly",
    read=read_change,
    wrong={
        "more": (
            "A blank picture does not tell which sum is right, so the reward can teach only which "
            "sums are frequent."
        ),
        "fewer": (
            "Most groups have no right completion, and their advantages are all 0: few of the "
            "updates change anything."
        ),
        "no difference": (
            "The adapters changed how real charts are read: look at the reward, and at how many "
            "groups had a right completion."
        ),
    },
)
train_blindly.example({"before": outcomes(96), "after": outcomes(93)}, gives="no difference")

train_the_language = experiment(
    "15.4",
    "train_the_language",
    read=read_change,
    wrong={
        "more": (
            "The language layers cannot change what the tower sends: they learn to read the "
            "vectors of grey charts as other heights, and white charts send other vectors."
        ),
        "fewer": (
            "Your run changed the white charts less than the chapter's: look at both rates and at "
            "the number of steps."
        ),
        "no difference": (
            "The two runs change different parts of the model. Which of the two is the one in "
            "which grey and white charts can be made to look the same?"
        ),
    },
)
train_the_language.example({"before": outcomes(182), "after": outcomes(98)}, gives="fewer")
