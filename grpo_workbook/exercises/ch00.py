"""The exercises of notebook 00_start_here."""

from grpo_workbook.exercises.tasks import direction, exercise, experiment

# 00.1: which rewards teach anything?

teaches = exercise("00.1", "teaches")
teaches.case([1.0, 1.0, 0.0, 0.0], gives=True)
teaches.case([0.0, 0.0, 0.0, 0.0], gives=False)
teaches.case([3.0, 3.0, 3.0], gives=False)  # all right
teaches.case([-1.0, -1.0, 1.0, 1.0], gives=True)  # their sum is 0
teaches.case([0.25, 0.5], gives=True)
teaches.case([-1.0, -0.5], gives=True)  # no answer earns anything, yet they differ
teaches.case([-0.5, -0.5], gives=False)
teaches.case([1.0, 0.0, 0.0, 1.0], gives=True)  # the first and the last are equal
teaches.case([0.5, 0.5, 0.501, 0.5], gives=True)  # a small difference gets full advantages


@teaches.mistake
def the_other_way_round(rewards):
    """You have it the other way round: a group of equal rewards teaches nothing."""
    return max(rewards) == min(rewards)


@teaches.mistake
def asks_whether_any_answer_earned(rewards):
    """You asked whether any answer earned something: a group that is all right teaches nothing
    either.
    """
    return max(rewards) > 0


@teaches.mistake
def looks_at_the_sum(rewards):
    """You looked at the sum: advantages are differences from the mean, and the sum says nothing
    about those.
    """
    return sum(rewards) != 0


@teaches.mistake
def wants_all_rewards_to_differ(rewards):
    """You asked for all rewards to differ: one that differs from the rest is enough."""
    return len(set(rewards)) == len(rewards)


@teaches.mistake
def compares_the_first_with_the_last(rewards):
    """You compared only the first and the last reward: one in between may differ from both."""
    return rewards[0] != rewards[-1]


@teaches.mistake
def overlooks_small_differences(rewards):
    """You overlooked a small difference: the division by the deviation makes it a full one."""
    return max(rewards) - min(rewards) > 0.01


# 00.2: what does a reward for the form alone do to strict accuracy?


def read_form_alone(measured):
    """From the strict rates before and after, the lenient rate and the number of problems."""
    before, after = measured["strict"]
    # at most two standard errors of a difference of two rates
    noise = (2 / measured["n"]) ** 0.5
    sentence = (
        f"Strictly right: {before:.0%} before, {after:.0%} after; {measured['lenient']:.0%} of "
        f"the numbers are right in any form. A change of less than {noise:.0%} can be chance."
    )
    return direction(after - before, noise), sentence


form_alone = experiment(
    "00.2",
    "form_alone",
    read=read_form_alone,
    wrong={
        "rises": "A reward helps only with what it looks at, and only if some answers earn it.",
        "stays": "The number was right in most answers before; what failed was the form.",
        "falls": "No answer is punished for its number: the arithmetic is left as it was.",
    },
)
form_alone.example({"strict": (0.2125, 0.75), "lenient": 0.75, "n": 160}, gives="rises")

# 00.3: a reward for a task of the learner's own, with good and bad answers


def three_of_each(reward, good, bad):
    """Whether there are three different answers of each sort."""
    return len(set(good)) >= 3 and len(set(bad)) >= 3


def within_0_and_1(reward, good, bad):
    """Whether every reward lies from 0 to 1."""
    return all(0 <= reward(text) <= 1 for text in [*good, *bad])


def repeatable(reward, good, bad):
    """Whether a text earns the same reward each time."""
    for text in [*good, *bad]:
        for _ in range(5):
            if reward(text) != reward(text):
                return False
    return True


def separates(reward, good, bad):
    """Whether each good answer earns more than each bad one."""
    for good_text in good:
        for bad_text in bad:
            if not reward(good_text) > reward(bad_text):
                return False
    return True


def beats_an_empty_answer(reward, good, bad):
    """Whether each good answer earns more than an empty text."""
    return all(reward(text) > reward("") for text in good)


def refuses_several_values(reward, good, bad):
    """Whether two good answers in one text earn less than one."""
    return reward(f"{good[0]} or {good[1]}") < reward(good[0])


FACTS = {
    "three different answers of each kind": three_of_each,
    "rewards from 0 to 1": within_0_and_1,
    "the same reward for the same text": repeatable,
    "each good answer earns more than each bad one": separates,
    "a good answer earns more than an empty one": beats_an_empty_answer,
    "two good answers in one text earn less than one": refuses_several_values,
}


def check_fact(function, fact):
    """Whether one of the facts holds of the learner's reward and answers."""
    reward, good, bad = function()
    return FACTS[fact](reward, good, bad)


my_task = exercise("00.3", "my_task", call=check_fact)
for fact in FACTS:
    my_task.case(fact, gives=True)

GOOD = ["aa", "ab", "ac"]
BAD = ["", "ax", "x"]


def is_an_a_and_a_letter(text):
    """Pays every answer of two letters of which the first is an a."""
    return float(len(text) == 2 and text[0] == "a")


@my_task.mistake
def makes_no_difference():
    """Your reward makes no difference: a good, a bad and an empty answer earn the same."""

    def same_for_all(text):
        return 1.0

    return same_for_all, GOOD, BAD


@my_task.mistake
def pays_a_bad_answer():
    """A bad answer earns as much as a good one: GRPO would learn to write it, so make the reward
    stricter.
    """
    return is_an_a_and_a_letter, GOOD, BAD


@my_task.mistake
def has_too_few_answers():
    """There are too few answers: give three different good ones and three different bad ones."""
    return is_an_a_and_a_letter, GOOD, ["", "x"]


@my_task.mistake
def pays_more_than_1():
    """One of your rewards is not between 0 and 1: scale it, because how much a reward counts is the
    business of its weight.
    """

    def up_to_5(text):
        return 5.0 * is_an_a_and_a_letter(text)

    return up_to_5, GOOD, ["", "x", "y"]


@my_task.mistake
def pays_several_values():
    """Two of your good answers in one text earn as much as one: GRPO would learn to list answers,
    so accept nothing before or after the answer.
    """

    def has_an_a(text):
        return float("a" in text)

    return has_an_a, GOOD, ["", "x", "y"]
