"""The exercises of notebook 16_thinking."""

from grpo_workbook.exercises.tasks import exercise, experiment, paired_direction

# 16.1: the groups that teach something under a limit

END = 2  # the end token of the cases; 5 is any other token, and 0 pads


def groups_that_teach(groups, limit, end):
    """The solution."""
    unmasked, masked = 0, 0
    for group in groups:
        rewards = set()
        complete = 0
        for tokens, right in group:
            size = tokens.index(end) if end in tokens else len(tokens)
            rewards.add(right and size <= limit)
            complete += end in tokens[:limit]
        if len(rewards) == 2:
            unmasked += 1
            masked += complete > 0
    return unmasked / len(groups), masked / len(groups)


def ended(length, right, padding=0):
    """A completion with so many tokens before its end token, and whether it is right."""
    return [5] * length + [END] + [0] * padding, right


def never_ended(length, right):
    """A completion that was cut off when it was sampled."""
    return [5] * length, right


still_teach = exercise("16.1", "still_teach", solution=groups_that_teach)
right_fits = ended(3, True)
right_without_end = ended(4, True)  # only its end token is behind the limit of 4
right_too_long = ended(6, True)
wrong_short = ended(2, False)
wrong_long = ended(7, False)
# a right answer that fits, and one that does not
fits = [right_fits, wrong_short]
does_not_fit = [right_too_long, wrong_short]
still_teach.case([fits, does_not_fit], 4, END)
# only the end token is missing, and nothing else is complete
nothing_complete = [right_without_end, wrong_long]
still_teach.case([nothing_complete], 4, END, gives=(1.0, 0.0))
# the same, beside a wrong answer that is complete
one_complete = [right_without_end, wrong_short]
still_teach.case([one_complete], 4, END, gives=(1.0, 1.0))
# all right, and one of them too long for the limit
all_fit = [ended(2, True), right_fits]
one_too_long = [ended(2, True), right_too_long]
still_teach.case([all_fit, one_too_long], 4, END)
# the tokens with the end token just fit
right_complete = [right_fits, ended(5, False)]
still_teach.case([right_complete], 4, END, gives=(1.0, 1.0))
# two such groups together
still_teach.case([one_complete, right_complete], 4, END)
# padding behind the end token
padded = [ended(2, True, padding=4), ended(6, False)]
still_teach.case([padded], 4, END, gives=(1.0, 1.0))
# a right answer without an end token, and wrong answers alone
open_ends = [never_ended(4, True), never_ended(4, False)]
still_teach.case([open_ends], 4, END, gives=(1.0, 0.0))
wrong_alone = [ended(1, False), ended(6, False)]
still_teach.case([wrong_alone], 4, END, gives=(0.0, 0.0))


def count_groups(groups, teaches):
    """The two fractions, if `teaches(group)` says whether a group does without and with masking."""
    unmasked, masked = 0, 0
    for group in groups:
        without_mask, with_mask = teaches(group)
        unmasked += without_mask
        masked += with_mask
    return unmasked / len(groups), masked / len(groups)


def size_of(tokens, end):
    """The number of tokens before the first end token."""
    return tokens.index(end) if end in tokens else len(tokens)


@still_teach.mistake
def end_token_must_fit(groups, limit, end):
    """You took a right answer as wrong if its end token has no room: the answer is complete without
    it, and earns the reward.
    """

    def teaches(group):
        rewards = {right and end in tokens[:limit] for tokens, right in group}
        return len(rewards) == 2, len(rewards) == 2

    return count_groups(groups, teaches)


@still_teach.mistake
def padding_counts(groups, limit, end):
    """You counted the padding as tokens of the answer: count up to the end token."""

    def teaches(group):
        rewards = {right and len(tokens) - (end in tokens) <= limit for tokens, right in group}
        complete = any(end in tokens and len(tokens) <= limit for tokens, _ in group)
        return len(rewards) == 2, len(rewards) == 2 and complete

    return count_groups(groups, teaches)


@still_teach.mistake
def masking_changes_nothing(groups, limit, end):
    """Your two fractions are the same: where every completion is cut off, the masked loss is empty,
    although the rewards differ.
    """

    def teaches(group):
        rewards = {right and size_of(tokens, end) <= limit for tokens, right in group}
        return len(rewards) == 2, len(rewards) == 2

    return count_groups(groups, teaches)


@still_teach.mistake
def masked_leave_the_group(groups, limit, end):
    """You took the masked completions out of their groups: they are left out of the loss alone, and
    their rewards still count in the mean.
    """

    def teaches(group):
        rewards = {right and size_of(tokens, end) <= limit for tokens, right in group}
        kept = {right for tokens, right in group if end in tokens[:limit]}
        return len(rewards) == 2, len(kept) == 2

    return count_groups(groups, teaches)


@still_teach.mistake
def one_right_answer_is_enough(groups, limit, end):
    """You counted each group with a right answer: where all are right, all advantages are 0."""

    def teaches(group):
        paid = any(right and size_of(tokens, end) <= limit for tokens, right in group)
        complete = any(end in tokens[:limit] for tokens, _ in group)
        return paid, paid and complete

    return count_groups(groups, teaches)


@still_teach.mistake
def limit_is_too_long(groups, limit, end):
    """You wrote < where the limit itself has room: with a limit of 4, 4 tokens fit."""

    def teaches(group):
        rewards = {right and size_of(tokens, end) < limit for tokens, right in group}
        complete = any(end in tokens[: limit - 1] for tokens, _ in group)
        return len(rewards) == 2, len(rewards) == 2 and complete

    return count_groups(groups, teaches)


@still_teach.mistake
def swaps_the_fractions(groups, limit, end):
    """You returned the fraction with masking first: without masking comes first."""
    unmasked, masked = groups_that_teach(groups, limit, end)
    return masked, unmasked


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
            "where the whole group earns 0? Count the steps of your training with a reward."
        ),
        "no difference": (
            "Your training did change the policy: look at its rewards. Which completions were "
            "right under your limit?"
        ),
    },
)
# `limit 20`, seed 0, of benchmarks/thinking_runs.jsonl: 8.3 % after 9.7 %
train_short.example({"before": outcomes(23), "after": outcomes(20)}, gives="no difference")
# `limit 20`, seed 1: one lucky guess in training
train_short.example({"before": outcomes(23), "after": outcomes(6)}, gives="fewer")
# `limit 36`, seed 0, of benchmarks/thinking_runs.jsonl
train_short.example({"before": outcomes(23), "after": outcomes(212)}, gives="more")

short_sft = experiment(
    "16.4",
    "short_sft",
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
# the chapter's run with the solution
short_sft.example({"before": outcomes(235), "after": outcomes(12)}, gives="fewer")
