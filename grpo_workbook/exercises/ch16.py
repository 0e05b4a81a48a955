"""The exercises of notebook 16_thinking."""

from grpo_workbook.exercises.tasks import exercise, experiment, paired_direction

# 16.1: the price at which two ways to answer earn the same


def equal_earnings(p_long, n_long, p_short, n_short):
    """The solution."""
    return 100 * (p_long - p_short) / (p_long * n_long - p_short * n_short)


turning_price = exercise("16.1", "turning_price", solution=equal_earnings)
turning_price.case(1.0, 40, 0.5, 20, gives=5 / 3)
turning_price.case(0.9, 60, 0.6, 30, gives=5 / 6)
turning_price.case(0.988, 21, 0.606, 8)


@turning_price.mistake
def wrong_answers_pay_too(p_long, n_long, p_short, n_short):
    """That is the price if wrong answers pay for their tokens as well: here only the fraction p of
    the answers, the right ones, pays.
    """
    return 100 * (p_long - p_short) / (n_long - n_short)


@turning_price.mistake
def price_per_token(p_long, n_long, p_short, n_short):
    """That is the price of one token: asked for is that of 100."""
    return (p_long - p_short) / (p_long * n_long - p_short * n_short)


@turning_price.mistake
def negative_price(p_long, n_long, p_short, n_short):
    """Your price is negative: check the signs when you bring c to one side."""
    return -equal_earnings(p_long, n_long, p_short, n_short)


# 16.2: a price that wrong answers pay, too


def pay_for_all(rights, completion_ids, price):
    """The solution."""
    rewards = []
    for right, tokens in zip(rights, completion_ids, strict=True):
        rewards.append(right - price * len(tokens) / 100)
    return rewards


def with_tokens(rights, lengths, price):
    """Completions of these lengths, in place of which a case has only numbers."""
    return rights, [[5] * length for length in lengths], price


all_pay = exercise("16.2", "all_pay", solution=pay_for_all, prepare=with_tokens)
all_pay.case([1.0, 0.0], [40, 40], 1.25, gives=[0.5, -0.5])
all_pay.case([1.0, 1.0, 0.0], [8, 48, 0], 1.25, gives=[0.9, 0.4, 0.0])
all_pay.case([0.0, 1.0], [100, 160], 0.5, gives=[-0.5, 0.2])
all_pay.case([1.0, 0.0], [160, 40], 1.25, gives=[-1.0, -0.5])


@all_pay.mistake
def only_right_answers_pay(rights, completion_ids, price):
    """You multiplied, so that a wrong answer pays nothing: that is the chapter's own price. Here
    every completion pays.
    """
    rewards = []
    for right, tokens in zip(rights, completion_ids, strict=True):
        rewards.append(right * (1 - price * len(tokens) / 100))
    return rewards


@all_pay.mistake
def stops_at_zero(rights, completion_ids, price):
    """You cut the reward off at 0: then a long wrong answer earns as much as a short one, and the
    price says nothing to it.
    """
    return [max(0.0, reward) for reward in pay_for_all(rights, completion_ids, price)]


@all_pay.mistake
def price_of_each_token(rights, completion_ids, price):
    """You took the price for one token: it is that of 100."""
    rewards = []
    for right, tokens in zip(rights, completion_ids, strict=True):
        rewards.append(right - price * len(tokens))
    return rewards


@all_pay.mistake
def pays_for_length(rights, completion_ids, price):
    """You added the price: long completions would earn more."""
    rewards = []
    for right, tokens in zip(rights, completion_ids, strict=True):
        rewards.append(right + price * len(tokens) / 100)
    return rewards


# 16.3 and 16.4: other trainings, sum by sum

CHANGES = {"rises": "more", "stays": "no difference", "falls": "fewer"}


def read_change(measured):
    """From what was right of the same sums in two measurements, by a paired test."""
    change, sentence = paired_direction(measured["before"], measured["after"])
    return CHANGES[change], sentence


def outcomes(right, sums=240):
    """So many right sums, then wrong ones."""
    return [True] * right + [False] * (sums - right)


train_short = experiment(
    "16.3",
    "train_short",
    read=read_change,
    wrong={
        "more": (
            "A thought is learned only if a completion with it was right. How many completions "
            "with all columns fit into your limit? Look at the rewards of the training."
        ),
        "fewer": (
            "A completion that is cut off earns 0, as a wrong one does. What is its advantage "
            "where the whole group earns 0?"
        ),
        "no difference": (
            "Your training did change the policy: look at its rewards. Which completions were "
            "right under your limit?"
        ),
    },
)
# made up: no run of this training is stored
train_short.example({"before": outcomes(0), "after": outcomes(0)}, gives="no difference")
# `limit 36`, seed 0, of benchmarks/thinking_runs.jsonl
train_short.example({"before": outcomes(0), "after": outcomes(212)}, gives="more")

forget_to_think = experiment(
    "16.4",
    "forget_to_think",
    read=read_change,
    wrong={
        "more": (
            "The rows have right answers, but the model also learns what stands in them before "
            "the answer: print a completion."
        ),
        "fewer": (
            "Your training changed little. Look at its loss and at the tokens of thought: were "
            "there enough steps, and did the rows have no thought?"
        ),
        "no difference": (
            "The template writes an empty thought into each of these rows, and the model learns to "
            "write it. How many sums does it solve without a thought?"
        ),
    },
)
# made up: no run of this training is stored
forget_to_think.example({"before": outcomes(235), "after": outcomes(0)}, gives="fewer")
