"""The exercises of notebook 04_grpo_run."""

import re

from grpo_workbook.exercises.tasks import exercise, experiment, paired_direction


def first_right(right, problems):
    """Outcomes of which the first `right` are right."""
    return [True] * right + [False] * (problems - right)


def last_right(right, problems):
    """Outcomes of which the last `right` are right."""
    return [False] * (problems - right) + [True] * right


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
TOO_LONG = f"<reasoning>{'6 * 7 is 42, so 6 * 7 is 42. ' * 300}</reasoning>{SHORT}"
WORDY = f"<reasoning>{'6 * 7 is 42. ' * 3}</reasoning>{SHORT}"  # 81 characters
WORDIER = f"<reasoning>{'6 * 7 is 42. ' * 4}</reasoning>{SHORT}"  # 94 characters
CHATTY = SHORT + " So the answer is 42." * 10

my_reward = exercise("04.1", "my_reward", call=compare_two)
my_reward.case([SHORT, WRONG], ["42", "42"], gives=FIRST)
my_reward.case([LONG, WRONG], ["42", "42"], gives=FIRST)
my_reward.case([LONGEST, "<answer>4</answer>"], ["42", "42"], gives=FIRST)
my_reward.case([SHORT, LONG], ["42", "42"], gives=FIRST)
my_reward.case([LONG, LONGEST], ["42", "42"], gives=FIRST)
my_reward.case([LONGEST, ""], ["42", "42"], gives=FIRST)
my_reward.case([LONGEST, "42"], ["42", "42"], gives=FIRST)
my_reward.case([LONGEST, "<answer>142</answer>"], ["42", "42"], gives=FIRST)
my_reward.case([LONGEST, "<answer>420</answer>"], ["42", "42"], gives=FIRST)
my_reward.case([LONGEST, "<answer>42 or 43</answer>"], ["42", "42"], gives=FIRST)
my_reward.case([LONGEST, "<answer>42"], ["42", "42"], gives=FIRST)  # cut off
my_reward.case([LONGEST, BOTH], ["42", "42"], gives=FIRST)
my_reward.case([LONGEST, "<answer>41</answer><answer>42</answer>"], ["42", "42"], gives=FIRST)
my_reward.case([LONGEST, SHORT + SHORT], ["42", "42"], gives=FIRST)
my_reward.case([SHORT, SHORT], ["42", "41"], gives=FIRST)  # each row has its own answer
my_reward.case([TOO_LONG, ""], ["42", "42"], gives=FIRST)
my_reward.case([LONGEST, "<answer>6*7</answer><answer>42</answer>"], ["42", "42"], gives=FIRST)
my_reward.case([SHORT, CHATTY], ["42", "42"], gives=FIRST)  # text after the answer costs, too
my_reward.case([WORDY, WORDIER], ["42", "42"], gives=FIRST)  # both below 100 characters
TWO_LINES = "<answer>\n41\n</answer><answer>42</answer>"
my_reward.case([LONGEST, TWO_LINES], ["42", "42"], gives=FIRST)


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


def pay_where(is_right, completions, answer):
    """The solution's reward for each completion that `is_right(text, answer)` accepts, else 0."""
    rewards = []
    for completion, right in zip(completions, answer, strict=True):
        text = completion[0]["content"]
        rewards.append(1.0 - price(text) if is_right(text, right) else 0.0)
    return rewards


@my_reward.mistake
def finds_the_number_anywhere(completions, answer, **columns):
    """You looked for the number anywhere in the text, where 142 holds a 42: compare it with the
    content of the answer block.
    """
    return pay_where(lambda text, right: right in text, completions, answer)


@my_reward.mistake
def accepts_several_answers(completions, answer, **columns):
    """You accepted a completion with several answer blocks: a model that lists numbers would be
    paid for guessing.
    """
    return pay_where(lambda text, right: right in answers_in(text), completions, answer)


@my_reward.mistake
def reads_the_last_block(completions, answer, **columns):
    """You read only the last answer block: a model that writes two answers would be paid for a
    guess. Pay only where there is exactly one block.
    """
    return pay_where(lambda text, right: answers_in(text)[-1:] == [right], completions, answer)


@my_reward.mistake
def reads_the_first_block(completions, answer, **columns):
    """You read only the first answer block: a model that writes two answers would be paid for a
    guess. Pay only where there is exactly one block.
    """
    return pay_where(lambda text, right: answers_in(text)[:1] == [right], completions, answer)


@my_reward.mistake
def accepts_a_repeated_answer(completions, answer, **columns):
    """You accepted two blocks with the same answer: the exercise asks for exactly one block."""
    return pay_where(lambda text, right: set(answers_in(text)) == {right}, completions, answer)


@my_reward.mistake
def accepts_part_of_the_block(completions, answer, **columns):
    """You looked for the number inside the block, where 142, 420 and "42 or 43" contain a 42:
    compare the whole content.
    """

    def holds_the_number(text, right):
        answers = answers_in(text)
        return len(answers) == 1 and right in answers[0]

    return pay_where(holds_the_number, completions, answer)


@my_reward.mistake
def compares_the_start_of_the_block(completions, answer, **columns):
    """You compared the start of the block: 420 and "42 or 43" begin with 42, so compare the whole
    content.
    """

    def begins_with_it(text, right):
        answers = answers_in(text)
        return len(answers) == 1 and answers[0].startswith(right)

    return pay_where(begins_with_it, completions, answer)


@my_reward.mistake
def accepts_an_open_block(completions, answer, **columns):
    """You accepted a block that is never closed: the answer may go on after the end of the text."""

    def opens_right(text, right):
        return text.count("<answer>") == 1 and answers_in(text + "</answer>")[:1] == [right]

    return pay_where(opens_right, completions, answer)


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


@my_reward.mistake
def stops_charging_too_early(completions, answer, **columns):
    """You charged so much for each character that the price reaches its limit at once: a right
    answer of 81 characters earns as much as one of 94. Charge less for each.
    """
    rewards = []
    for completion, right in zip(completions, answer, strict=True):
        text = completion[0]["content"]
        is_right = answers_in(text) == [right]
        rewards.append(max(0.5, 1.0 - 0.01 * len(text)) if is_right else 0.0)
    return rewards


@my_reward.mistake
def charges_only_before_the_answer(completions, answer, **columns):
    """You charged only for the text before the answer: the model could go on writing after it."""
    rewards = []
    for completion, right in zip(completions, answer, strict=True):
        text = completion[0]["content"]
        is_right = answers_in(text) == [right]
        rewards.append(1.0 - price(text.split("<answer>")[0]) if is_right else 0.0)
    return rewards


@my_reward.mistake
def misses_a_block_of_several_lines(completions, answer, **columns):
    """Your pattern misses a block with a line break in it, so a second answer goes unseen: pass
    re.DOTALL.
    """

    def is_alone(text, right):
        return re.findall("<answer>(.*?)</answer>", text) == [right]

    return pay_where(is_alone, completions, answer)


# 04.2: the chapter's rewards swapped for the learner's own, and a training with it


def read_accuracy(measured):
    """From what was right of the same problems before and after, by a paired test."""
    change, sentence = paired_direction(measured["before"], measured["after"])
    names = {"rises": "more", "stays": "no difference", "falls": "fewer"}
    return names[change], sentence


def read_right_and_short(measured):
    """Whether more answers are right, by a paired test, and whether they are a tenth shorter."""
    change, sentence = paired_direction(measured["before"], measured["after"])
    tokens_before, tokens_after = measured["tokens"]
    sentence += f" Their mean lengths were {tokens_before:.1f} and {tokens_after:.1f} tokens."
    more_right = change == "rises"
    shorter = tokens_after <= 0.9 * tokens_before
    if more_right and shorter:
        return "both", sentence
    if more_right:
        return "more right", sentence
    if shorter:
        return "shorter", sentence
    return "neither", sentence


swap_the_reward = experiment(
    "04.2",
    "swap_the_reward",
    read=read_right_and_short,
    wrong={
        "more right": (
            "Look at what differs within a group: right answers become likelier only where they "
            "earn clearly more than wrong ones, and short ones only where the lengths differ."
        ),
        "shorter": (
            "A short answer earns more only if it is right: within a group the right answers, "
            "long or short, are above all wrong ones."
        ),
        "both": (
            "A reward can only select among the completions that are sampled: how much do the "
            "lengths of this model's right answers to one problem differ?"
        ),
        "neither": (
            "About half of the groups have right and wrong completions. Your reward tells them "
            "apart as the chapter's rewards do, so it has a gradient from the first step."
        ),
    },
)
# measured: 53 and 79 of 120 (here so that 29 got better and 3 worse)
swap_the_reward.example(
    {
        "before": first_right(53, 120),
        "after": first_right(50, 53) + first_right(29, 67),
        "tokens": [27.4, 27.3],
    },
    gives="more right",
)

# 04.3: what a run has shown, from the base, the trained model and a control

NO_GAIN = "no gain shown"
NOT_BEYOND = "a gain, but not beyond the control"
BEYOND = "a gain beyond the control"

what_is_shown = exercise("04.3", "what_is_shown")
what_is_shown.case(first_right(0, 8), first_right(8, 8), first_right(0, 8), gives=BEYOND)
what_is_shown.case(first_right(0, 8), first_right(8, 8), first_right(8, 8), gives=NOT_BEYOND)
# p = 0.06
what_is_shown.case(first_right(0, 8), first_right(5, 8), first_right(0, 8), gives=NO_GAIN)
# p is small, but it is a loss
what_is_shown.case(first_right(8, 8), first_right(0, 8), first_right(0, 8), gives=NO_GAIN)
what_is_shown.case(first_right(8, 8), first_right(0, 8), first_right(8, 8), gives=NO_GAIN)
# the control is better
what_is_shown.case(first_right(0, 16), first_right(8, 16), first_right(16, 16), gives=NOT_BEYOND)
# the control lost
what_is_shown.case(first_right(8, 10), first_right(8, 10), first_right(0, 10), gives=NO_GAIN)
# p = 0.13
what_is_shown.case(first_right(0, 10), first_right(10, 10), first_right(6, 10), gives=NOT_BEYOND)
# the control gained, but less
what_is_shown.case(first_right(0, 16), first_right(16, 16), first_right(8, 16), gives=BEYOND)
what_is_shown.case(first_right(0, 12), first_right(8, 12), first_right(5, 12), gives=NOT_BEYOND)
what_is_shown.case(first_right(6, 16), first_right(12, 16), first_right(6, 16), gives=BEYOND)
what_is_shown.case(first_right(2, 12), last_right(10, 12), first_right(2, 12), gives=BEYOND)
what_is_shown.case(first_right(4, 12), first_right(4, 12), first_right(4, 12), gives=NO_GAIN)
# both lost
what_is_shown.case(first_right(16, 16), first_right(8, 16), first_right(0, 16), gives=NO_GAIN)
what_is_shown.case(first_right(5, 12), first_right(8, 12), first_right(0, 12), gives=NO_GAIN)
what_is_shown.case(first_right(0, 20), first_right(12, 20), first_right(6, 20), gives=BEYOND)


def p_value(before, after):
    """The p of the paired test."""
    from grpo_workbook.statistics import paired_p_value  # SciPy: only when it is needed

    return paired_p_value(before, after)


def is_better(after, before):
    """Whether more are right, with a paired test behind it."""
    return sum(after) > sum(before) and p_value(before, after) < 0.05


def decide(gained, beyond):
    """The three answers, from whether the base and whether the control is beaten."""
    if not gained:
        return NO_GAIN
    return BEYOND if beyond else NOT_BEYOND


@what_is_shown.mistake
def forgets_the_control(before, after, control):
    """You did not use the control: a gain that the control has, too, is not beyond it."""
    return decide(is_better(after, before), True)


@what_is_shown.mistake
def forgets_the_base(before, after, control):
    """You compared with the control alone: where the control got worse, a model that has not
    changed looks better.
    """
    return decide(is_better(after, control), True)


@what_is_shown.mistake
def forgets_the_direction(before, after, control):
    """You looked at p alone: it is small for a loss, too, so compare the numbers of right
    answers as well.
    """
    return decide(p_value(before, after) < 0.05, p_value(control, after) < 0.05)


@what_is_shown.mistake
def forgets_the_direction_of_the_gain(before, after, control):
    """You looked at p alone in the comparison with the base: it is small for a loss, too."""
    return decide(p_value(before, after) < 0.05, is_better(after, control))


@what_is_shown.mistake
def forgets_the_direction_against_the_control(before, after, control):
    """You looked at p alone in the comparison with the control: it is small for a control that is
    better, too.
    """
    return decide(is_better(after, before), p_value(control, after) < 0.05)


@what_is_shown.mistake
def compares_the_rates_alone(before, after, control):
    """You compared the numbers of right answers without a test: such a difference can be chance."""
    return decide(sum(after) > sum(before), sum(after) > sum(control))


@what_is_shown.mistake
def does_not_test_against_the_control(before, after, control):
    """You tested the gain, but not the difference to the control: that can be chance, too."""
    return decide(is_better(after, before), sum(after) > sum(control))


@what_is_shown.mistake
def does_not_test_the_gain(before, after, control):
    """You tested the difference to the control, but not the gain: that can be chance, too."""
    return decide(sum(after) > sum(before), is_better(after, control))


@what_is_shown.mistake
def asks_whether_the_control_gained(before, after, control):
    """You compared the control with the base: a control may gain less than the trained model, so
    compare these two.
    """
    return decide(is_better(after, before), not is_better(control, before))


@what_is_shown.mistake
def asks_for_the_control_first(before, after, control):
    """You looked at the control first: where no gain is shown, there is none to compare with the
    control.
    """
    if not is_better(after, control):
        return NOT_BEYOND
    return decide(is_better(after, before), True)


@what_is_shown.mistake
def compares_intervals(before, after, control):
    """You asked whether two intervals overlap: they can overlap although the paired test shows a
    difference, because the same problems were answered.
    """
    from grpo_workbook.statistics import wilson_interval

    lowest = wilson_interval(after)[0]
    return decide(lowest > wilson_interval(before)[1], lowest > wilson_interval(control)[1])


@what_is_shown.mistake
def takes_a_large_p_as_a_gain(before, after, control):
    """You took p the wrong way round: a small p speaks against chance."""
    gained = sum(after) > sum(before) and p_value(before, after) >= 0.05
    return decide(gained, sum(after) > sum(control) and p_value(control, after) >= 0.05)


# 04.4: problems of the learner's own, before and after

my_problems = experiment(
    "04.4",
    "my_problems",
    read=read_accuracy,
    wrong={
        "more": (
            "The trained model is not better on these problems. Which part of them did it never "
            "train on: the words, the calculation, or the size of the numbers?"
        ),
        "fewer": (
            "The trained model has not become worse on these problems. Where the base solves none, "
            "there is nothing to lose."
        ),
        "no difference": (
            "There is one: compare your sentences and numbers with the training problems. What was "
            "trained carries over to problems that are close to them."
        ),
    },
)
# measured: a tram in place of the bus, larger numbers in the same sentence, a sum of pears
my_problems.example({"before": first_right(7, 32), "after": [1] * 31 + [0]}, gives="more")
my_problems.example({"before": [0] * 32, "after": [0] * 32}, gives="no difference")
my_problems.example({"before": first_right(21, 32), "after": first_right(8, 32)}, gives="fewer")
