"""The exercises of notebook 00_start_here."""

import difflib
import inspect
import statistics

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
teaches.case([0.5, 0.0, 1.0], gives=True)  # the first is equal to the mean
teaches.case([0.0, 1.0, 0.5], gives=True)  # the last is equal to the mean
teaches.case([0.1, 0.1, 0.1], gives=False)  # their sum divided by 3 is 0.10000000000000002


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
def adds_up_the_advantages(rewards):
    """You added up the advantages: above and below the mean they cancel, so their sum is 0."""
    return False


@teaches.mistake
def wants_all_rewards_to_differ(rewards):
    """You asked for all rewards to differ: one that differs from the rest is enough."""
    return len(set(rewards)) == len(rewards)


@teaches.mistake
def compares_the_first_with_the_last(rewards):
    """You compared only the first and the last reward: one in between may differ from both."""
    return rewards[0] != rewards[-1]


@teaches.mistake
def compares_the_first_two(rewards):
    """You compared only the first two rewards: a later one may differ from both."""
    return rewards[0] != rewards[1]


@teaches.mistake
def asks_for_a_reward_that_is_not_0(rewards):
    """You asked whether any reward differs from 0: it has to differ from another reward."""
    return any(rewards)


@teaches.mistake
def asks_for_a_reward_of_0(rewards):
    """You asked for a reward of 0: also two different rewards above 0 teach something."""
    return 0.0 in rewards


@teaches.mistake
def gives_the_advantages(rewards):
    """You gave the advantages themselves: give True if any of them differs from 0, else False."""
    mean = sum(rewards) / len(rewards)
    return [reward - mean for reward in rewards]


@teaches.mistake
def returns_nothing(rewards):
    """Your function returns nothing: end it with a return."""
    return None


@teaches.mistake
def overlooks_small_differences(rewards):
    """You overlooked a small difference: the division by the deviation makes it a full one."""
    return max(rewards) - min(rewards) > 0.01


@teaches.mistake
def compares_the_first_with_the_mean(rewards):
    """You compared only the first reward with the mean: another one may differ from it."""
    return rewards[0] != statistics.mean(rewards)


@teaches.mistake
def compares_the_last_with_the_mean(rewards):
    """You compared only the last reward with the mean: another one may differ from it."""
    return rewards[-1] != statistics.mean(rewards)


@teaches.mistake
def trusts_a_rounded_mean(rewards):
    """You used a rounded mean: that of three rewards of 0.1 is 0.10000000000000002, also in NumPy's
    deviation, so compare the rewards with each other.
    """
    average = sum(rewards) / len(rewards)
    return any(reward != average for reward in rewards)


# 00.2: what does a reward for the form alone do to strict accuracy?


def read_form_alone(measured):
    """From the strict and the lenient rates before and after, and the number of problems."""
    before, after = measured["strict"]
    lenient_before, lenient_after = measured["lenient"]
    # at most two standard errors of a difference of two rates
    noise = (2 / measured["n"]) ** 0.5
    sentence = (
        f"Strictly right: {before:.0%} before, {after:.0%} after. Right numbers in any form: "
        f"{lenient_before:.0%} before, {lenient_after:.0%} after. "
        f"A change of less than {noise:.0%} can be chance."
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
form_alone.example({"strict": (0.2125, 0.75), "lenient": (0.7875, 0.75), "n": 160}, gives="rises")

# 00.3: a method for each of six teams

METHODS = {
    "A": "GRPO",
    "B": "SFT",
    "C": "DPO",
    "D": "nothing",
    "E": "RLHF",
    "F": "rejection sampling",
}


def method_of(function, team):
    """The learner's method for one team."""
    return function()[team]


choose_methods = exercise("00.3", "choose_methods", call=method_of)
for team, method in METHODS.items():
    choose_methods.case(team, gives=method)


@choose_methods.mistake
def imitates_without_solutions():
    """Team A has no written queries to imitate, but a program that checks what the model writes."""
    return {**METHODS, "A": "SFT"}


@choose_methods.mistake
def throws_wrong_queries_away():
    """Rejection sampling keeps only right answers, but team A wants wrong ones to teach too."""
    return {**METHODS, "A": "rejection sampling"}


@choose_methods.mistake
def trains_a_critic_without_memory():
    """PPO trains a critic beside the policy, and team A has no memory for a second model."""
    return {**METHODS, "A": "PPO"}


@choose_methods.mistake
def trains_on_groups_that_always_fail():
    """None of 10,000 proofs of team B was right, so nearly every group has zero variance and GRPO
    learns almost nothing: first imitate the given proofs.
    """
    return {**METHODS, "B": "GRPO"}


@choose_methods.mistake
def keeps_proofs_that_do_not_exist():
    """Team B has no right proof of its own model to keep: first imitate the given proofs."""
    return {**METHODS, "B": "rejection sampling"}


@choose_methods.mistake
def trains_a_critic_on_failures():
    """None of 10,000 proofs of team B was right, and a critic does not change that: first imitate
    the given proofs.
    """
    return {**METHODS, "B": "PPO"}


@choose_methods.mistake
def ignores_the_worse_replies():
    """SFT would imitate the better replies of team C and ignore what the worse ones show: there is
    a method that learns from pairs.
    """
    return {**METHODS, "C": "SFT"}


@choose_methods.mistake
def samples_on_a_slow_machine():
    """With a reward model team C would have to sample during training, and its machine is too slow:
    there is a method that needs only the given pairs.
    """
    return {**METHODS, "C": "RLHF"}


@choose_methods.mistake
def checks_replies_with_a_program():
    """No program can check the replies of team C, so GRPO has no reward."""
    return {**METHODS, "C": "GRPO"}


@choose_methods.mistake
def trains_on_groups_that_always_pass():
    """All of 1,000 dates of team D were right, so nearly every group has zero variance."""
    return {**METHODS, "D": "GRPO"}


@choose_methods.mistake
def imitates_what_the_model_can_do():
    """All dates of team D are right: written solutions show its model nothing new."""
    return {**METHODS, "D": "SFT"}


@choose_methods.mistake
def keeps_what_the_model_can_do():
    """All dates of team D are right: to train on them changes nothing that the team wants."""
    return {**METHODS, "D": "rejection sampling"}


@choose_methods.mistake
def stays_with_the_given_pairs():
    """DPO learns from the given pairs only, and team E wants better replies than these: it can
    sample, so pay new replies by a model that has learned from the pairs.
    """
    return {**METHODS, "E": "DPO"}


@choose_methods.mistake
def has_no_reward_for_replies():
    """No program can check the replies of team E: first train a reward model on the pairs."""
    return {**METHODS, "E": "GRPO"}


@choose_methods.mistake
def has_no_rewards_for_a_critic():
    """PPO needs rewards, and no program can check the replies of team E: first train a reward model
    on the pairs.
    """
    return {**METHODS, "E": "PPO"}


@choose_methods.mistake
def needs_a_grpo_trainer():
    """GRPO would suit the puzzles, but the only trainer of team F is one for SFT: which answers can
    it imitate?
    """
    return {**METHODS, "F": "GRPO"}


@choose_methods.mistake
def has_nothing_to_imitate():
    """Team F has no written solutions: it must get the answers to imitate from its own model."""
    return {**METHODS, "F": "SFT"}


@choose_methods.mistake
def gives_up_on_hard_puzzles():
    """One answer in ten of team F is right, so its model can learn from what it writes."""
    return {**METHODS, "F": "nothing"}


@choose_methods.mistake
def has_no_pairs_of_queries():
    """Team A has no pairs of queries to compare, but a program that checks each query."""
    return {**METHODS, "A": "DPO"}


@choose_methods.mistake
def trains_a_critic_without_rewards():
    """No program can check the replies of team C, and its machine is too slow to sample."""
    return {**METHODS, "C": "PPO"}


@choose_methods.mistake
def keeps_replies_without_a_check():
    """Team C cannot sample replies, and it has no check that says which ones to keep."""
    return {**METHODS, "C": "rejection sampling"}


@choose_methods.mistake
def imitates_the_better_replies():
    """Imitating the better replies makes nothing better than these, which team E wants."""
    return {**METHODS, "E": "SFT"}


@choose_methods.mistake
def has_no_trainer_with_a_critic():
    """PPO would suit the puzzles, but the only trainer of team F is one for SFT: which answers can
    it imitate?
    """
    return {**METHODS, "F": "PPO"}


# 00.4: a reward for a task of the learner's own, with good and bad answers


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


def judges_new_answers(reward, good, bad):
    """Whether the reward function is more than a list of the good answers."""
    if not inspect.isfunction(reward):
        return True
    known = [value for value in reward.__code__.co_consts if value in good]
    containers = list(reward.__code__.co_consts)
    variables = inspect.getclosurevars(reward)
    containers.extend(variables.nonlocals.values())
    containers.extend(variables.globals.values())
    for container in containers:
        if not isinstance(container, list | tuple | set | frozenset | dict):
            continue
        # a list that also has other values is a rule, such as the names of all months
        if all(value in good for value in container):
            known.extend(container)
    return not set(good) <= set(known)


def comes_close(text, good):
    """Whether a bad answer contains a good one, or resembles it."""
    for good_text in good:
        if good_text.strip() in text:
            return True
        if difflib.SequenceMatcher(None, text, good_text).ratio() >= 0.5:
            return True
    return False


def tries_close_answers(reward, good, bad):
    """Whether two of the bad answers come close to a good one."""
    close = [text for text in set(bad) if comes_close(text, good)]
    return len(close) >= 2


FACTS = {
    "three different answers of each kind": three_of_each,
    "rewards from 0 to 1": within_0_and_1,
    "the same reward for the same text": repeatable,
    "each good answer earns more than each bad one": separates,
    "a good answer earns more than an empty one": beats_an_empty_answer,
    "two good answers in one text earn less than one": refuses_several_values,
    "the reward is more than a list of your good answers": judges_new_answers,
    "two bad answers resemble a good one or contain it": tries_close_answers,
}


def check_fact(function, fact):
    """Whether one of the facts holds of the learner's reward and answers."""
    reward, good, bad = function()
    return FACTS[fact](reward, good, bad)


my_task = exercise("00.4", "my_task", call=check_fact)
for fact in FACTS:
    my_task.case(fact, gives=True)

GOOD = ["aa", "ab", "ac"]
BAD = ["", "ax", "xa"]


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
    return is_an_a_and_a_letter, GOOD, ["xa", "xb"]


@my_task.mistake
def pays_more_than_1():
    """One of your rewards is not between 0 and 1: scale it, because how much a reward counts is the
    business of its weight.
    """

    def up_to_5(text):
        return 5.0 * is_an_a_and_a_letter(text)

    return up_to_5, GOOD, ["", "xa", "xb"]


@my_task.mistake
def pays_several_values():
    """Two of your good answers in one text earn as much as one: GRPO would learn to list answers,
    so accept nothing before or after the answer.
    """

    def has_an_a(text):
        return float("a" in text)

    return has_an_a, GOOD, ["", "xb", "xc"]


@my_task.mistake
def lists_its_good_answers():
    """Your reward has a list of your good answers: it cannot judge an answer that is not in the
    list, so describe what makes an answer right.
    """

    def is_in_the_list(text):
        return float(text in ("aa", "ab", "ac"))

    return is_in_the_list, GOOD, BAD


@my_task.mistake
def stays_far_from_the_good_answers():
    """Your bad answers are far from the good ones: add the right value in another form and a wrong
    value in the right form, and see what your reward pays for them.
    """
    return is_an_a_and_a_letter, GOOD, ["", "x", "y"]
