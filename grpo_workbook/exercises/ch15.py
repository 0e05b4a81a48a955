"""The exercises of notebook 15_pictures."""

from grpo_workbook.exercises.charts import list_reward as correct_list_reward
from grpo_workbook.exercises.charts import listed_bars
from grpo_workbook.exercises.tasks import exercise, experiment, paired_direction

# 15.1: the part of a gain that is better seeing


def correct_gain(before, after):
    """The gain on the real pictures that better guessing does not explain."""
    real = gain_on(before, after, "real")
    shuffled = gain_on(before, after, "shuffled")
    return real - shuffled


def gain_on(before, after, pictures):
    """The gain on these pictures, as a difference of rates."""
    return rate_of(after[pictures]) - rate_of(before[pictures])


def rate_of(rights):
    """The fraction of right charts."""
    return sum(rights) / len(rights)


def outcomes(right, charts=200):
    """So many right charts, then wrong ones."""
    return [True] * right + [False] * (charts - right)


def rates_of(real, shuffled, blank, charts=10):
    """The outcomes of an evaluation with so many right charts of each kind."""
    return {
        "real": outcomes(real, charts),
        "shuffled": outcomes(shuffled, charts),
        "blank": outcomes(blank, charts),
    }


gain_from_pictures = exercise("15.1", "gain_from_pictures", solution=correct_gain)
HALF_SEEN = rates_of(5, 1, 0)
GUESSES_BETTER = rates_of(7, 3, 1)
SEES_BETTER = rates_of(9, 1, 2)
gain_from_pictures.case(HALF_SEEN, GUESSES_BETTER, gives=0.0)
gain_from_pictures.case(HALF_SEEN, SEES_BETTER, gives=0.4)

BLANK_BEFORE = rates_of(5, 1, 1)
BLANK_AFTER = rates_of(8, 2, 1)
gain_from_pictures.case(BLANK_BEFORE, BLANK_AFTER, gives=0.2)

SEES_BEFORE = rates_of(6, 1, 1)
SEES_WORSE = rates_of(4, 3, 1)
gain_from_pictures.case(SEES_BEFORE, SEES_WORSE, gives=-0.4)

TWENTY_BEFORE = rates_of(10, 2, 0, charts=20)
TWENTY_AFTER = rates_of(18, 3, 0, charts=20)
gain_from_pictures.case(TWENTY_BEFORE, TWENTY_AFTER, gives=0.35)

# The lists of one evaluation need not have the same length.
MORE_SHUFFLED = rates_of(5, 1, 0)
MORE_SHUFFLED["shuffled"] = outcomes(2, charts=20)
BOTH_BETTER = rates_of(8, 2, 2)
gain_from_pictures.case(MORE_SHUFFLED, BOTH_BETTER, gives=0.2)


@gain_from_pictures.mistake
def returns_the_whole_gain(before, after):
    """You returned the whole gain on the real pictures: a model that has only learned which sums
    are frequent gains, too, on the right pictures and on wrong ones.
    """
    return gain_on(before, after, "real")


@gain_from_pictures.mistake
def looks_after_training_alone(before, after):
    """You compared the two kinds of pictures after training alone: the model could see something
    before training, and that is no gain.
    """
    real = rate_of(after["real"])
    shuffled = rate_of(after["shuffled"])
    return real - shuffled


@gain_from_pictures.mistake
def takes_blank_pictures(before, after):
    """You took the blank pictures as the control: a model may treat them as something else than a
    chart. Guessing about charts shows on shuffled pictures, which look like the real ones.
    """
    real = gain_on(before, after, "real")
    blank = gain_on(before, after, "blank")
    return real - blank


@gain_from_pictures.mistake
def takes_both_controls(before, after):
    """You subtracted the gains on both controls: better guessing raises each of them, so you have
    subtracted it twice.
    """
    return takes_blank_pictures(before, after) - gain_on(before, after, "shuffled")


@gain_from_pictures.mistake
def averages_the_controls(before, after):
    """You subtracted the mean of both controls: guessing about charts shows on shuffled pictures,
    which look like the real ones. A blank picture may be answered in another way.
    """
    real = gain_on(before, after, "real")
    shuffled = gain_on(before, after, "shuffled")
    blank = gain_on(before, after, "blank")
    return real - (shuffled + blank) / 2


@gain_from_pictures.mistake
def adds_the_gains(before, after):
    """You added the gain on shuffled pictures: it is what guessing explains, so it goes off the
    gain on the real ones.
    """
    real = gain_on(before, after, "real")
    shuffled = gain_on(before, after, "shuffled")
    return real + shuffled


@gain_from_pictures.mistake
def subtracts_the_wrong_way(before, after):
    """Your result has the wrong sign: a gain is the rate after training minus the one before, and
    what guessing explains is subtracted from it.
    """
    return -correct_gain(before, after)


@gain_from_pictures.mistake
def stops_at_zero(before, after):
    """You replaced negative results by 0: a model that guesses better and sees worse is just what
    this number has to report.
    """
    return max(0.0, correct_gain(before, after))


@gain_from_pictures.mistake
def drops_the_sign(before, after):
    """You returned the size without its sign: a model that guesses better and sees worse must get a
    negative number.
    """
    return abs(correct_gain(before, after))


@gain_from_pictures.mistake
def gives_the_seen_share(before, after):
    """You divided by the gain on the real pictures: the question asks for a difference of rates,
    and a share has no meaning where that gain is small.
    """
    real = gain_on(before, after, "real")
    return correct_gain(before, after) / real


@gain_from_pictures.mistake
def gives_the_guessed_share(before, after):
    """You divided the gain on shuffled pictures by the one on real pictures: that is the share of
    guessing. Return what is left without it, as a difference of rates.
    """
    real = gain_on(before, after, "real")
    shuffled = gain_on(before, after, "shuffled")
    return shuffled / real


@gain_from_pictures.mistake
def gives_points(before, after):
    """You gave percentage points: return a difference of rates, from -1 to 1."""
    return 100 * correct_gain(before, after)


@gain_from_pictures.mistake
def counts_charts(before, after):
    """You subtracted numbers of charts: divide each by the length of its list to get rates."""
    real = sum(after["real"]) - sum(before["real"])
    shuffled = sum(after["shuffled"]) - sum(before["shuffled"])
    return float(real - shuffled)


@gain_from_pictures.mistake
def divides_all_by_one_length(before, after):
    """You divided everything by the number of real charts: each list has a length of its own."""
    return counts_charts(before, after) / len(before["real"])


# 15.5: a reward for the list of the bars


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
LATER_LINE = written(f"three bars\n{BARS}")
OTHER_BARS = "blue 3, red 2, black 4"

list_reward = exercise("15.5", "list_reward", call=call_as_trl_does)
list_reward.case([RIGHT, WRONG_COLOUR], [BARS, BARS], gives=[1.0, 0.0])
list_reward.case([WRONG_SUM, WRONG_HEIGHT], [BARS, BARS], gives=[1.0, 0.0])
list_reward.case([RIGHT, OTHER_ORDER, LONGER], [BARS, BARS, BARS], gives=[1.0, 0.0, 0.0])
list_reward.case([TWO_LISTS, BEHIND, FIRST_TWO], [BARS, BARS, BARS], gives=[0.0, 0.0, 0.0])
list_reward.case([TWICE, RIGHT], [BARS, BARS], gives=[0.0, 1.0])
list_reward.case(["", "no list"], [BARS, BARS], gives=[0.0, 0.0])
list_reward.case([RIGHT, RIGHT], [BARS, OTHER_BARS], gives=[1.0, 0.0])
list_reward.case([RIGHT, written(OTHER_BARS)], [BARS, OTHER_BARS], gives=[1.0, 1.0])
list_reward.case([LATER_LINE, RIGHT], [BARS, BARS], gives=[0.0, 1.0])
list_reward.case([written(f"green 1, {BARS}"), RIGHT], [BARS, BARS], gives=[0.0, 1.0])
# a list without <reasoning> before it
list_reward.case([f"The bars:\n{BARS}\n2+3=5", RIGHT], [BARS, BARS], gives=[0.0, 1.0])


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
def looks_at_every_line(completions, bars, **columns):
    """You looked for the list in every line: a model could write several lists. Only the first line
    of the reasoning counts.
    """
    rewards = []
    for completion, description in zip(completions, bars, strict=True):
        lines = text_of(completion).split("\n")
        rewards.append(float(description in lines))
    return rewards


@list_reward.mistake
def gives_booleans(completions, bars, **columns):
    """You returned True and False: TRL adds and averages rewards, so return 1.0 and 0.0."""
    return [reward == 1.0 for reward in correct_list_reward(completions, bars)]


@list_reward.mistake
def punishes_a_wrong_list(completions, bars, **columns):
    """You returned -1.0 for a wrong list: the exercise asks for 0.0. (In a group, only differences
    count, but here the list would weigh twice as much as the sum.)
    """
    return [2 * reward - 1 for reward in correct_list_reward(completions, bars)]


@list_reward.mistake
def reads_a_completion_as_text(completions, bars, **columns):
    """You used a completion as if it were a text: with conversations it is a list with one message,
    and its text is completion[0]["content"].
    """
    rewards = []
    for completion, description in zip(completions, bars, strict=True):
        reasoning = completion.partition("<reasoning>")[2]
        rewards.append(float(reasoning.strip().startswith(description)))
    return rewards


@list_reward.mistake
def pays_for_each_bar(completions, bars, **columns):
    """You paid for each right bar: the exercise asks for 1.0 only if the whole list is right."""
    rewards = []
    for completion, description in zip(completions, bars, strict=True):
        listed = listed_bars(text_of(completion))
        right = listed_bars(f"<reasoning>{description}")
        matches = sum(pair in right for pair in listed)
        rewards.append(min(1.0, matches / len(right)))
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


@list_reward.mistake
def accepts_a_longer_line(completions, bars, **columns):
    """You accepted a line that only contains the right list, or begins or ends with it: a list that
    ends in 45 begins like the one that ends in 4. The whole line has to be the list.
    """
    rewards = []
    for completion, description in zip(completions, bars, strict=True):
        reasoning = text_of(completion).partition("<reasoning>")[2].strip()
        first_line = reasoning.partition("\n")[0]
        rewards.append(float(description in first_line))
    return rewards


# 15.2, 15.3, 15.4 and 15.6: other runs, chart by chart beside the chapter's


CHANGES = {"rises": "more", "stays": "no difference", "falls": "fewer"}


def read_change(measured):
    """From what was right of the same charts in two runs, by a paired test."""
    change, sentence = paired_direction(measured["before"], measured["after"])
    return CHANGES[change], sentence


train_the_language = experiment(
    "15.2",
    "train_the_language",
    read=read_change,
    wrong={
        "more": (
            "The language layers cannot change what the tower sends: they have to learn to read "
            "the vectors of grey charts anew, and that can change how they read white ones."
        ),
        "fewer": (
            "Your run changed the white charts less than the chapter's, or too little for the "
            "test: look at both rates and at the number of steps."
        ),
        "no difference": (
            "The two runs change different parts of the model. Which of the two is the one in "
            "which grey and white charts can be made to look the same?"
        ),
    },
)
train_the_language.example({"before": outcomes(182), "after": outcomes(98)}, gives="fewer")


def read_mixture(measured):
    """From what was right of the charts on each paper, in the chapter's run and in the mixed one.

    "grey" and "white" have two lists of outcomes each.
    """
    grey_change, grey_sentence = paired_direction(*measured["grey"])
    white_change, white_sentence = paired_direction(*measured["white"])
    sentence = f"White: {white_sentence} Grey: {grey_sentence}"
    if white_change != "rises":
        return "no help", sentence
    if grey_change == "falls":
        return "pays with grey", sentence
    return "keeps white", sentence


mix_the_papers = experiment(
    "15.3",
    "mix_the_papers",
    read=read_mixture,
    wrong={
        "keeps white": (
            "In your run white paper was not kept, or grey paper was learned worse: look at both "
            "sentences, and at the share of each paper."
        ),
        "pays with grey": (
            "Groups of white charts whose sums are all right have advantages of 0. They take "
            "places in the batch, but they do not pull the policy away from grey paper."
        ),
        "no help": (
            "A group of white charts teaches nothing while all of its sums are right. As soon as "
            "the policy forgets, some of them are wrong, and their group has advantages."
        ),
    },
)
GREY_KEPT = [outcomes(199), outcomes(198)]
GREY_LOST = [outcomes(199), outcomes(180)]
WHITE_KEPT = [outcomes(153), outcomes(199)]
WHITE_LOST = [outcomes(153), outcomes(155)]
mix_the_papers.example({"grey": GREY_KEPT, "white": WHITE_KEPT}, gives="keeps white")
mix_the_papers.example({"grey": GREY_LOST, "white": WHITE_KEPT}, gives="pays with grey")
mix_the_papers.example({"grey": GREY_KEPT, "white": WHITE_LOST}, gives="no help")

train_blindly = experiment(
    "15.4",
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

pay_the_list = experiment(
    "15.6",
    "pay_the_list",
    read=read_change,
    wrong={
        "more": "Look whether the list was rewarded in your run: 15.5 has to be solved first.",
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
