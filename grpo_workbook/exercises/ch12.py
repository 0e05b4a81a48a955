"""The exercises of notebook 12_which_algorithm."""

import json
from statistics import mean, pstdev, stdev

from grpo_workbook.exercises.tasks import exercise
from grpo_workbook.files import REPO

# 12.1: RLOO's advantages


def split(rewards, group_size):
    """The rewards of each group."""
    groups = []
    for start in range(0, len(rewards), group_size):
        groups.append(rewards[start : start + group_size])
    return groups


def correct_rloo_advantages(rewards, group_size):
    """The solution."""
    advantages = []
    for group in split(rewards, group_size):
        for reward in group:
            others = (sum(group) - reward) / (len(group) - 1)
            advantages.append(reward - others)
    return advantages


REWARDS = [1.0, 0.0, 0.0, 1.0, 3.0, 0.5, 0.5, 0.5]

rloo_advantages = exercise("12.1", "rloo_advantages", solution=correct_rloo_advantages)
rloo_advantages.case(REWARDS, 4)
rloo_advantages.case(REWARDS, 2)
rloo_advantages.case(REWARDS, 8)


@rloo_advantages.mistake
def subtracts_the_mean_of_the_group(rewards, group_size):
    """You subtracted the mean of the whole group: it contains the reward itself, so that the
    advantage shrinks to (n - 1) / n of its size.
    """
    advantages = []
    for group in split(rewards, group_size):
        for reward in group:
            advantages.append(reward - mean(group))
    return advantages


@rloo_advantages.mistake
def takes_grpo(rewards, group_size):
    """You computed GRPO's advantage: RLOO subtracts the mean of the others, and divides by no
    deviation.
    """
    advantages = []
    for group in split(rewards, group_size):
        for reward in group:
            advantages.append((reward - mean(group)) / (stdev(group) + 1e-4))
    return advantages


@rloo_advantages.mistake
def divides_by_n(rewards, group_size):
    """You divided the sum of the others by n: they are one fewer than the group, so divide by n -
    1.
    """
    advantages = []
    for group in split(rewards, group_size):
        for reward in group:
            advantages.append(reward - (sum(group) - reward) / len(group))
    return advantages


@rloo_advantages.mistake
def mixes_the_groups(rewards, group_size):
    """You mixed the groups: the others are those of the same question, not of the whole batch."""
    return correct_rloo_advantages(rewards, len(rewards))


# 12.2: the outcome of the race, before it is seen

CONTESTANTS = ["base", "sft", "grpo", "clip-higher, one update", "rejection", "random of 8"]
NOT_CONTRADICTED = "the stored runs do not contradict it"


def stored_accuracies():
    """The accuracy of each method's runs on the task `main`, by seed."""
    accuracies = {}
    path = REPO / "benchmarks" / "race_results" / "main.jsonl"
    for line in path.read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        by_seed = accuracies.setdefault(run["method"], {})
        by_seed[run["seed"]] = run["end"]["sampled"]
    return accuracies


def is_shown_better(method, other, accuracies):
    """Whether the stored runs show that a method is better than another.

    The mean paired difference must be above two standard errors, or above five points where fewer
    than three seeds are stored.
    """
    common_seeds = accuracies[method].keys() & accuracies[other].keys()
    if not common_seeds:
        return False
    gaps = [accuracies[method][seed] - accuracies[other][seed] for seed in common_seeds]
    error = 0.025
    if len(gaps) > 2:
        error = stdev(gaps) / len(gaps) ** 0.5
    return mean(gaps) > 2 * error


def judge_order(function):
    """What is wrong with the learner's order, the most telling fault first."""
    order = list(function())
    if sorted(map(str, order)) != sorted(CONTESTANTS):
        return f"the order must hold these, each once: {', '.join(CONTESTANTS)}"
    if abs(order.index("grpo") - order.index("clip-higher, one update")) > 1:
        return "clip-higher"
    order.remove("clip-higher, one update")
    accuracies = stored_accuracies()
    contradicted = []
    for place, higher in enumerate(order):
        for lower in order[place + 1 :]:
            if is_shown_better(lower, higher, accuracies):
                contradicted.append((higher, lower))
    for pair in [("random of 8", "rejection"), ("base", "grpo"), *sorted(contradicted)]:
        if pair in contradicted:
            return f"{pair[0]} above {pair[1]}"
    return NOT_CONTRADICTED


my_order = exercise("12.2", "my_order", call=judge_order)
my_order.case(gives=NOT_CONTRADICTED)


@my_order.mistake
def expects_clip_higher_to_differ():
    """You expect clip-higher to differ from GRPO with one update per batch: in the first update
    the ratio is 1, so nothing is clipped and both are the same.
    """
    return ["clip-higher, one update", "sft", "rejection", "grpo", "base", "random of 8"]


@my_order.mistake
def expects_a_random_one_to_teach():
    """You expect a random one of eight answers to teach as much as a right one: no check is used,
    so that wrong answers are imitated as they come.
    """
    return ["sft", "random of 8", "rejection", "grpo", "clip-higher, one update", "base"]


@my_order.mistake
def expects_grpo_to_harm():
    """You expect the untrained model to beat GRPO: it is right now and then, so that its groups
    have variance and GRPO can learn from them.
    """
    return ["rejection", "sft", "base", "grpo", "clip-higher, one update", "random of 8"]


@my_order.mistake
def expects_grpo_to_win():
    """You expect GRPO to beat imitation at equal completions: here the base is right often enough
    that its own right answers, all imitated, teach the form sooner.
    """
    return ["grpo", "clip-higher, one update", "rejection", "sft", "base", "random of 8"]


# 12.3: paired differences


def paired_gaps(method, other):
    """The differences of the seeds that both have."""
    return [method[seed] - other[seed] for seed in sorted(method.keys() & other.keys())]


def correct_paired_gap(method, other):
    """The solution."""
    gaps = paired_gaps(method, other)
    return mean(gaps), stdev(gaps) / len(gaps) ** 0.5


paired_gap = exercise("12.3", "paired_gap", solution=correct_paired_gap)
paired_gap.case({0: 0.81, 1: 0.77, 2: 0.85, 3: 0.80}, {0: 0.78, 1: 0.75, 2: 0.80, 3: 0.79})
# each method lacks one of the seeds
paired_gap.case({0: 0.81, 1: 0.77, 2: 0.85, 3: 0.80}, {1: 0.75, 2: 0.80, 3: 0.79, 4: 0.60})
# in another order
paired_gap.case({2: 0.9, 0: 0.5, 1: 0.7}, {0: 0.4, 1: 0.6, 2: 0.9})


@paired_gap.mistake
def compares_unpaired(method, other):
    """You took the error of an unpaired comparison: take the difference of each seed first, and
    then the deviation of these.
    """
    common_seeds = method.keys() & other.keys()
    n = len(common_seeds)
    variance = stdev(method[seed] for seed in common_seeds) ** 2
    other_variance = stdev(other[seed] for seed in common_seeds) ** 2
    return mean(paired_gaps(method, other)), ((variance + other_variance) / n) ** 0.5


@paired_gap.mistake
def pairs_by_place(method, other):
    """You paired by place: a missing run shifts all that follow, so look the seeds up."""
    gaps = [a - b for a, b in zip(method.values(), other.values(), strict=False)]
    return mean(gaps), stdev(gaps) / len(gaps) ** 0.5


@paired_gap.mistake
def gives_the_deviation(method, other):
    """You gave the deviation of the differences: the error of the mean of n differences is smaller
    by the root of n.
    """
    gaps = paired_gaps(method, other)
    return mean(gaps), stdev(gaps)


@paired_gap.mistake
def divides_by_n_in_the_deviation(method, other):
    """You divided by n in the deviation: divide by n - 1, because the mean was taken from the same
    numbers.
    """
    gaps = paired_gaps(method, other)
    return mean(gaps), pstdev(gaps) / len(gaps) ** 0.5


@paired_gap.mistake
def takes_the_other_way_round(method, other):
    """You subtracted the other way round: a positive gap means that `method` is better."""
    gap, error = correct_paired_gap(method, other)
    return -gap, error


# 12.4: the faults of a comparison

FAULTS = [
    "one seed",
    "unequal completions",
    "unequal tuning",
    "chosen on the test set",
    "too few problems",
    "no control",
]
NO_FAULTS = ["different models", "different prompts"]
ALL_FAULTS = "all of them"


def judge_faults(function):
    """The first fault that the learner made up or missed."""
    named = set(function())
    for fault in NO_FAULTS:
        if fault in named:
            return fault
    for fault in FAULTS:
        if fault not in named:
            return fault
    if len(named) > len(FAULTS):
        return f"unknown: {sorted(named - set(FAULTS))}"
    return ALL_FAULTS


faults = exercise("12.4", "faults", call=judge_faults)
faults.case(gives=ALL_FAULTS)


@faults.mistake
def misses_the_seeds():
    """You missed a fault: each method ran once, and seeds of the same method differ by several
    points, too.
    """
    return set(FAULTS) - {"one seed"}


@faults.mistake
def misses_the_completions():
    """You missed a fault: one method sampled twice as many completions. Give both
    the same budget.
    """
    return set(FAULTS) - {"unequal completions"}


@faults.mistake
def misses_the_tuning():
    """You missed a fault: one method got the best of five learning rates, and the
    other a default.
    """
    return set(FAULTS) - {"unequal tuning"}


@faults.mistake
def misses_the_choice():
    """You missed a fault: the best of 20 checkpoints on the test problems is partly luck. Choose it
    on other problems.
    """
    return set(FAULTS) - {"chosen on the test set"}


@faults.mistake
def misses_the_number_of_problems():
    """You missed a fault: 4 points of 30 problems are about one problem, which is far too few to
    show a difference.
    """
    return set(FAULTS) - {"too few problems"}


@faults.mistake
def misses_the_control():
    """You missed a fault: a gain may come from any update, and there is no control such as a random
    reward.
    """
    return set(FAULTS) - {"no control"}


@faults.mistake
def suspects_the_model():
    """The fault "different models" is none: the first row says that the model is the same."""
    return {*FAULTS, "different models"}


@faults.mistake
def suspects_the_prompt():
    """The fault "different prompts" is none: the first row says that the prompt is the same."""
    return {*FAULTS, "different prompts"}


# 12.5: the price of dynamic sampling


def useful_fraction(p, group):
    """The fraction of groups that have variance."""
    return 1 - p**group - (1 - p) ** group


def correct_dynamic_cost(p, group, wanted):
    """The solution."""
    return wanted / useful_fraction(p, group)


dynamic_cost = exercise("12.5", "dynamic_cost", solution=correct_dynamic_cost)
dynamic_cost.case(0.5, 8, 64)
dynamic_cost.case(0.02, 8, 64)  # most groups are wrong as a whole
dynamic_cost.case(0.9, 4, 32)  # most are right as a whole


@dynamic_cost.mistake
def forgets_groups_that_are_wrong(p, group, wanted):
    """You forgot the groups in which all are wrong, which have no variance either: subtract
    (1-p)^n, too.
    """
    return wanted / (1 - p**group)


@dynamic_cost.mistake
def forgets_groups_that_are_right(p, group, wanted):
    """You forgot the groups in which all are right, which have no variance either: subtract p^n,
    too.
    """
    return wanted / (1 - (1 - p) ** group)


@dynamic_cost.mistake
def replaces_once(p, group, wanted):
    """You replaced the discarded groups once: some of the new groups are discarded as well, so
    divide by the useful fraction.
    """
    discarded = 1 - useful_fraction(p, group)
    return wanted * (1 + discarded)


@dynamic_cost.mistake
def gives_the_useful_ones(p, group, wanted):
    """You gave how many of the wanted completions are useful: more must be sampled
    than are wanted.
    """
    return wanted * useful_fraction(p, group)


@dynamic_cost.mistake
def counts_groups(p, group, wanted):
    """You counted groups: the answer is a number of completions."""
    return wanted / group / useful_fraction(p, group)


# 12.6: truncated importance sampling, two completions of four tokens

LOGP = [[-0.1, -2.0, -1.0, -0.5], [-3.0, -0.2, -0.7, -9.0]]
SAMPLER = [[-0.2, -3.5, -0.9, -2.0], [-1.0, -0.2, -1.9, -1.0]]
MASK = [[1, 1, 1, 1], [1, 1, 1, 0]]


def weight_arguments(cap):
    """The arguments of `truncated_weights` as tensors, with the cap of a case."""
    import torch

    return torch.tensor(LOGP), torch.tensor(SAMPLER), torch.tensor(MASK), cap


def correct_truncated_weights(logp, sampler, mask, cap):
    """The solution, (B, T)."""
    return (logp - sampler).exp().clamp(max=cap) * mask


truncated_weights = exercise(
    "12.6", "truncated_weights", solution=correct_truncated_weights, prepare=weight_arguments
)
truncated_weights.case(2.0)
truncated_weights.case(3.0)


@truncated_weights.mistake
def turns_the_ratio_upside_down(logp, sampler, mask, cap):
    """Your ratio is upside down: divide the policy that learns by the sampler."""
    return correct_truncated_weights(sampler, logp, mask, cap)


@truncated_weights.mistake
def cuts_small_ratios(logp, sampler, mask, cap):
    """You cut small ratios, too: truncation is only from above. A token that the policy would
    hardly write must count little.
    """
    return (logp - sampler).exp().clamp(1 / cap, cap) * mask


@truncated_weights.mistake
def takes_the_whole_completion(logp, sampler, mask, cap):
    """You took the ratio of the whole completion: here each token has its own."""
    gap = ((logp - sampler) * mask).sum(dim=1, keepdim=True)
    return gap.exp().clamp(max=cap) * mask


@truncated_weights.mistake
def masks_what_is_over_the_cap(logp, sampler, mask, cap):
    """You set ratios above the cap to 0, which is masking: truncation sets them to the cap."""
    ratio = (logp - sampler).exp()
    return ratio.masked_fill(ratio > cap, 0) * mask


@truncated_weights.mistake
def weights_the_padding(logp, sampler, mask, cap):
    """Padding has a weight of its own in your answer: multiply by the mask."""
    return (logp - sampler).exp().clamp(max=cap)


@truncated_weights.mistake
def masks_the_gap_alone(logp, sampler, mask, cap):
    """Padding has a weight of 1 in your answer: multiply the weights by the mask, after exp."""
    return ((logp - sampler) * mask).exp().clamp(max=cap)
