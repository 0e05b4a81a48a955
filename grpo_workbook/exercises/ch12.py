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

CONTESTANTS = ["base", "sft", "grpo", "rejection", "distillation", "random reward"]
NOT_CONTRADICTED = "the stored runs do not contradict it"


def stored_accuracies():
    """The accuracy of each method's runs on the task `rare`, by seed."""
    accuracies = {}
    path = REPO / "benchmarks" / "race_results" / "rare.jsonl"
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
    accuracies = stored_accuracies()
    contradicted = []
    for place, higher in enumerate(order):
        for lower in order[place + 1 :]:
            if is_shown_better(lower, higher, accuracies):
                contradicted.append((higher, lower))
    for pair in [("random reward", "base"), *sorted(contradicted)]:
        if pair in contradicted:
            return f"{pair[0]} above {pair[1]}"
    return NOT_CONTRADICTED


my_order = exercise("12.2", "my_order", call=judge_order)
my_order.case(gives=NOT_CONTRADICTED)


@my_order.mistake
def expects_a_coin_to_be_harmless():
    """You expect a random reward to leave the model at least as good as it was: its updates go in
    random directions, and most directions make a trained model worse.
    """
    return ["distillation", "sft", "rejection", "grpo", "random reward", "base"]


@my_order.mistake
def expects_grpo_to_win():
    """You expect GRPO to beat worked answers and a teacher at equal completions: they show at every
    token what is right, and a reward only says whether the whole answer was.
    """
    return ["grpo", "distillation", "sft", "rejection", "base", "random reward"]


@my_order.mistake
def expects_grpo_to_beat_imitation():
    """You expect GRPO to beat rejection sampling: both learn from the model's own right answers,
    and in these runs imitating all of them brings more.
    """
    return ["distillation", "sft", "grpo", "rejection", "base", "random reward"]


@my_order.mistake
def expects_own_answers_to_win():
    """You expect the model's own right answers to teach more than worked ones: they are answers to
    the problems that the model can solve already, and worked answers cover the others, too.
    """
    return ["rejection", "distillation", "sft", "grpo", "base", "random reward"]


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


# 12.5: which method, from an invented race

TEAMS = {
    "A": ("sft", "grpo", "rejection", "fancypo"),  # worked answers and a check
    "B": ("grpo", "rejection", "fancypo"),  # a check, decodes greedily
    "C": ("grpo", "rejection", "fancypo"),  # a check, samples
    "D": ("distillation", "grpo", "rejection", "fancypo"),  # a teacher and a check
}
BEST = {"A": "sft", "B": "grpo", "C": "rejection", "D": "distillation"}
ALL_METHODS = {"sft", "distillation", "rejection", "fancypo", "grpo"}
ALL_RIGHT = "all four"


def judge_choices(function):
    """What is wrong with the learner's choices, the most telling fault first."""
    chosen = dict(function())
    if set(chosen) != set(TEAMS):
        return "the dictionary must have the keys A, B, C and D"
    unknown = sorted(set(map(str, chosen.values())) - ALL_METHODS)
    if unknown:
        return f"unknown method: {', '.join(unknown)}"
    for team, method in chosen.items():
        if method not in TEAMS[team]:
            return f"{team} lacks what {method} needs"
    if "fancypo" in chosen.values():
        return "fancypo"
    if chosen["B"] == "rejection":
        return "B: better, sampled"
    for team, method in BEST.items():
        if chosen[team] != method:
            return f"{team}: {method} is better"
    return ALL_RIGHT


choices = exercise("12.5", "choices", call=judge_choices)
choices.case(gives=ALL_RIGHT)


@choices.mistake
def gives_b_the_teacher():
    """You chose distillation for B, which has a check alone and no teacher."""
    return {"A": "sft", "B": "distillation", "C": "rejection", "D": "distillation"}


@choices.mistake
def gives_c_the_teacher():
    """You chose distillation for C, which has no teacher."""
    return {"A": "sft", "B": "grpo", "C": "distillation", "D": "distillation"}


@choices.mistake
def gives_a_the_teacher():
    """You chose distillation for A, which has worked answers, but no teacher."""
    return {"A": "distillation", "B": "grpo", "C": "rejection", "D": "distillation"}


@choices.mistake
def gives_b_worked_answers():
    """You chose SFT for B, which has no worked answers to imitate."""
    return {"A": "sft", "B": "sft", "C": "rejection", "D": "distillation"}


@choices.mistake
def gives_c_worked_answers():
    """You chose SFT for C, which has no worked answers to imitate."""
    return {"A": "sft", "B": "grpo", "C": "sft", "D": "distillation"}


@choices.mistake
def gives_d_worked_answers():
    """You chose SFT for D, which has no worked answers. Its larger model is a teacher."""
    return {"A": "sft", "B": "grpo", "C": "rejection", "D": "sft"}


@choices.mistake
def believes_a_large_difference():
    """You chose FancyPO: its differences are large, but no corrected p is below 0.05, so they are
    not shown. It also costs three times the seconds.
    """
    return {"A": "sft", "B": "fancypo", "C": "fancypo", "D": "distillation"}


@choices.mistake
def takes_a_sampled_gain_for_greedy_decoding():
    """You chose rejection sampling for B: its sampled accuracy is better, but B decodes greedily,
    and greedily no difference from GRPO is shown.
    """
    return {"A": "sft", "B": "rejection", "C": "rejection", "D": "distillation"}


@choices.mistake
def leaves_the_sampled_gain():
    """You left GRPO for C: C draws one answer, and there rejection sampling is shown to be right
    more often, with the same need of a check.
    """
    return {"A": "sft", "B": "grpo", "C": "grpo", "D": "distillation"}


@choices.mistake
def does_not_imitate():
    """You do not imitate in A: SFT is better by both measures, and A has what it needs."""
    return {"A": "grpo", "B": "grpo", "C": "rejection", "D": "distillation"}


@choices.mistake
def does_not_distil():
    """You do not distil in D: distillation is better by both measures, and the larger model is the
    teacher that it needs.
    """
    return {"A": "sft", "B": "grpo", "C": "rejection", "D": "grpo"}


# 12.6: the next learning rate to try

GRID = [1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3]


def neighbours_of(rate, grid):
    """The rates of the grid beside one."""
    place = grid.index(rate)
    return [grid[i] for i in (place - 1, place + 1) if 0 <= i < len(grid)]


def correct_next_rate(tries, grid):
    """The solution."""
    best = max(tries, key=tries.get)
    for neighbour in neighbours_of(best, grid):
        if neighbour not in tries:
            return neighbour
    return None


next_rate = exercise("12.6", "next_rate", solution=correct_next_rate)
next_rate.case({1e-4: 43.4, 3e-4: 5.4}, GRID)  # the lower one is best: go down
next_rate.case({1e-4: 44.1, 3e-4: 44.4}, GRID)  # the higher one is best: go up
next_rate.case({3e-5: 51.0, 1e-4: 43.4, 3e-4: 5.4}, GRID)  # still at the edge of the tries
next_rate.case({1e-4: 44.1, 3e-4: 44.4, 1e-3: 1.9}, GRID)  # done
next_rate.case({3e-3: 2.8, 1e-3: 57.2, 3e-4: 57.1}, GRID)  # done, in another order
next_rate.case({1e-5: 42.8, 3e-5: 40.0}, GRID)  # done: an end of the grid is best
next_rate.case({1e-3: 9.0, 3e-3: 12.0}, GRID)
next_rate.case({1e-5: 40.0, 3e-5: 45.0, 1e-4: 50.0, 1e-3: 30.0}, GRID)  # a gap above the best


@next_rate.mistake
def stops_after_two(tries, grid):
    """You stopped although the best rate has no worse one on one of its sides: it may be better
    still there.
    """
    return None


@next_rate.mistake
def fills_the_grid(tries, grid):
    """You try every rate of the grid: a rate with a worse one on both sides is the best, so the
    rest need not be tried.
    """
    for rate in grid:
        if rate not in tries:
            return rate
    return None


@next_rate.mistake
def looks_below_alone(tries, grid):
    """You only look for a lower rate: the side above the best rate may be open, too."""
    place = grid.index(max(tries, key=tries.get))
    if place == 0 or grid[place - 1] in tries:
        return None
    return grid[place - 1]


@next_rate.mistake
def looks_above_alone(tries, grid):
    """You only look for a higher rate: the side below the best rate may be open, too."""
    place = grid.index(max(tries, key=tries.get))
    if place + 1 == len(grid) or grid[place + 1] in tries:
        return None
    return grid[place + 1]


@next_rate.mistake
def divides_by_three(tries, grid):
    """You computed a rate that the grid does not have: take the best rate's neighbour from it."""
    return max(tries, key=tries.get) / 3


@next_rate.mistake
def wraps_around(tries, grid):
    """You went beyond the end of the grid: the place -1 of a list is its last value."""
    place = grid.index(max(tries, key=tries.get))
    for neighbour in (place - 1, (place + 1) % len(grid)):
        if grid[neighbour] not in tries:
            return grid[neighbour]
    return None


@next_rate.mistake
def returns_the_accuracy(tries, grid):
    """You returned an accuracy: asked for is a learning rate, or None."""
    return max(tries.values())


@next_rate.mistake
def returns_the_best_rate(tries, grid):
    """You returned the best rate: asked for is the rate to try next, or None."""
    return max(tries, key=tries.get)


@next_rate.mistake
def looks_at_the_worst(tries, grid):
    """You looked beside the worst rate: the optimum lies beside the best one."""
    worst = min(tries, key=tries.get)
    for neighbour in neighbours_of(worst, grid):
        if neighbour not in tries:
            return neighbour
    return None
