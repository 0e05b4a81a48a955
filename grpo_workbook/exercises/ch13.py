"""The exercises of notebook 13_learned_rewards."""

from math import comb, exp, log
from statistics import mean

from grpo_workbook.exercises.tasks import direction, exercise, experiment

# 13.1: when the mean of gold turns


def tilted_policy(proxy, beta):
    """The probability of each answer, exp(proxy / beta) over a uniform base."""
    weights = [exp(reward / beta) for reward in proxy]
    total = sum(weights)
    return [weight / total for weight in weights]


def expected(probabilities, values):
    """The mean of values under these probabilities."""
    total = 0.0
    for probability, value in zip(probabilities, values, strict=True):
        total += probability * value
    return total


def products(first, second):
    """The products of two lists, element by element."""
    return [a * b for a, b in zip(first, second, strict=True)]


def covariance(probabilities, first, second):
    """The covariance of two lists of values under these probabilities."""
    mean_product = expected(probabilities, products(first, second))
    return mean_product - expected(probabilities, first) * expected(probabilities, second)


def correct_slope_of_gold(proxy, gold, beta):
    """The solution: the covariance of gold and proxy under the best policy."""
    return covariance(tilted_policy(proxy, beta), gold, proxy)


slope_of_gold = exercise("13.1", "slope_of_gold", solution=correct_slope_of_gold)
# the last answer is a loophole: the slope is positive for the large betas, negative for the small
LOOPHOLE_PROXY = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
LOOPHOLE_GOLD = [0.0, 1.0, 2.0, 3.0, 4.0, 1.0]
slope_of_gold.case(LOOPHOLE_PROXY, LOOPHOLE_GOLD, 8.0)
slope_of_gold.case(LOOPHOLE_PROXY, LOOPHOLE_GOLD, 4.0)
slope_of_gold.case(LOOPHOLE_PROXY, LOOPHOLE_GOLD, 0.5)
slope_of_gold.case([0.5, -1.0, 0.5], [1.0, 0.0, 0.0], 0.5)
slope_of_gold.case([0.5, -1.0, 0.5], [1.0, 0.0, 0.0], 2.0)


@slope_of_gold.mistake
def takes_the_base(proxy, gold, beta):
    """You took the covariance under the base, which is the slope at the beginning alone: weight
    each answer with its probability under the best policy at this beta.
    """
    base = [1 / len(proxy)] * len(proxy)
    return covariance(base, gold, proxy)


@slope_of_gold.mistake
def multiplies_by_beta(proxy, gold, beta):
    """You multiplied by beta: a large penalty must keep the policy at the base, so divide by it."""
    return correct_slope_of_gold(proxy, gold, 1 / beta)


@slope_of_gold.mistake
def does_not_normalise(proxy, gold, beta):
    """Your probabilities do not add up to 1: divide the weights by their sum."""
    weights = [exp(reward / beta) for reward in proxy]
    return covariance(weights, gold, proxy)


@slope_of_gold.mistake
def forgets_the_means(proxy, gold, beta):
    """You gave the mean of gold times proxy: subtract the product of their two means, because a
    covariance does not change when 100 is added to all rewards.
    """
    return expected(tilted_policy(proxy, beta), products(gold, proxy))


@slope_of_gold.mistake
def subtracts_the_means_of_the_base(proxy, gold, beta):
    """You subtracted the means under the base: take all means under the policy at this beta."""
    centred_gold = [value - mean(gold) for value in gold]
    centred_proxy = [value - mean(proxy) for value in proxy]
    return expected(tilted_policy(proxy, beta), products(centred_gold, centred_proxy))


@slope_of_gold.mistake
def tilts_by_gold(proxy, gold, beta):
    """You weighted the answers by gold: the policy is paid the proxy and never sees gold."""
    return covariance(tilted_policy(gold, beta), gold, proxy)


@slope_of_gold.mistake
def gives_the_slope_of_the_proxy(proxy, gold, beta):
    """You gave the variance of the proxy, which is the slope of the mean proxy and never negative:
    take the covariance of gold and proxy.
    """
    return covariance(tilted_policy(proxy, beta), proxy, proxy)


@slope_of_gold.mistake
def gives_the_mean_gold(proxy, gold, beta):
    """You gave the mean of gold: what is asked for is how it changes when beta falls, the
    covariance of gold and proxy.
    """
    return expected(tilted_policy(proxy, beta), gold)


@slope_of_gold.mistake
def divides_by_beta(proxy, gold, beta):
    """You divided the covariance by beta, which is about the gain in gold near the base: the slope
    over 1 / beta is the covariance itself.
    """
    return correct_slope_of_gold(proxy, gold, beta) / beta


@slope_of_gold.mistake
def gives_the_correlation(proxy, gold, beta):
    """You gave the correlation: do not divide by the standard deviations."""
    policy = tilted_policy(proxy, beta)
    variances = covariance(policy, gold, gold) * covariance(policy, proxy, proxy)
    return covariance(policy, gold, proxy) / variances**0.5


@slope_of_gold.mistake
def divides_by_one_less(proxy, gold, beta):
    """You corrected for a sample, n / (n - 1): the probabilities of all answers are known here, so
    nothing has to be corrected.
    """
    n = len(proxy)
    return correct_slope_of_gold(proxy, gold, beta) * n / (n - 1)


# 13.2: the loss of a reward model


def sigmoid(x):
    """The logistic function."""
    return 1 / (1 + exp(-x))


def mean_over_pairs(loss, chosen, rejected):
    """The mean of `loss(chosen, rejected)` over the pairs."""
    return mean(loss(c, r) for c, r in zip(chosen, rejected, strict=True))


def loss_of_pair(chosen, rejected):
    """The loss of Bradley and Terry's model for one pair."""
    return -log(sigmoid(chosen - rejected))


def correct_preference_loss(chosen, rejected):
    """The solution."""
    return mean_over_pairs(loss_of_pair, chosen, rejected)


preference_loss = exercise("13.2", "preference_loss", solution=correct_preference_loss)
preference_loss.case([1.0, 0.5, -2.0], [0.0, 0.5, 1.0])
preference_loss.case([3.0], [-1.0])
preference_loss.case([0.0, 0.0], [2.0, -2.0])


@preference_loss.mistake
def gives_the_probability(chosen, rejected):
    """You gave the probability of the label: the loss is minus its logarithm."""

    def probability(chosen, rejected):
        return sigmoid(chosen - rejected)

    return mean_over_pairs(probability, chosen, rejected)


@preference_loss.mistake
def swaps_the_pair(chosen, rejected):
    """You subtracted the other way round: take the reward of the chosen completion minus that of
    the rejected one.
    """
    return correct_preference_loss(rejected, chosen)


@preference_loss.mistake
def judges_each_alone(chosen, rejected):
    """You judged each completion alone: only the difference of two rewards has a meaning."""

    def loss(chosen, rejected):
        return -log(sigmoid(chosen)) - log(sigmoid(-rejected))

    return mean_over_pairs(loss, chosen, rejected)


@preference_loss.mistake
def counts_wrong_orders(chosen, rejected):
    """You only counted wrong orders: that has no gradient."""

    def is_wrong(chosen, rejected):
        return float(chosen <= rejected)

    return mean_over_pairs(is_wrong, chosen, rejected)


@preference_loss.mistake
def gives_the_sum(chosen, rejected):
    """You gave the sum over the pairs: take their mean."""
    return len(chosen) * correct_preference_loss(chosen, rejected)


@preference_loss.mistake
def forgets_the_minus(chosen, rejected):
    """You forgot the minus: the logarithm of a probability is negative, and a loss must fall when
    the model gets better.
    """
    return -correct_preference_loss(chosen, rejected)


@preference_loss.mistake
def averages_the_rewards_first(chosen, rejected):
    """You took the mean rewards first: the loss is not linear, so compute it for each pair and take
    the mean of the losses.
    """
    return loss_of_pair(mean(chosen), mean(rejected))


@preference_loss.mistake
def averages_the_probabilities(chosen, rejected):
    """You took the logarithm of the mean probability: take the logarithm of each pair, then the
    mean.
    """

    def probability(chosen, rejected):
        return sigmoid(chosen - rejected)

    return -log(mean_over_pairs(probability, chosen, rejected))


@preference_loss.mistake
def gives_the_margin(chosen, rejected):
    """You gave the margin with a minus: without the logistic function a pair that is already right
    pulls as strongly as one that is wrong.
    """
    return mean_over_pairs(lambda c, r: r - c, chosen, rejected)


# 13.3: does a reward model tell completions of one prompt apart?


def rows_by_prompt(rows):
    """The (gold, reward) of each prompt's rows."""
    by_prompt = {}
    for prompt, gold, reward in rows:
        by_prompt.setdefault(prompt, []).append((gold, reward))
    return list(by_prompt.values())


def right_orders(group):
    """For each pair that differs in gold: has the better one strictly more reward?"""
    outcomes = []
    for better_gold, better_reward in group:
        for worse_gold, worse_reward in group:
            if better_gold > worse_gold:
                outcomes.append(better_reward > worse_reward)
    return outcomes


def correct_rate_within(rows):
    """The solution."""
    rates = []
    for group in rows_by_prompt(rows):
        outcomes = right_orders(group)
        if outcomes:
            rates.append(mean(outcomes))
    return mean(rates)


rate_within = exercise("13.3", "rate_within", solution=correct_rate_within)
# the second prompt earns more on every row: only that is right across prompts
rate_within.case(
    [("a", 1.0, 0.2), ("a", 0.0, 0.3), ("a", 0.0, 0.1), ("b", 1.0, 2.0), ("b", 0.0, 1.0)]
)
# a prompt whose rows are all right, and a tie
rate_within.case(
    [("a", 1.0, 0.5), ("a", 1.0, 0.4), ("b", 0.5, 1.0), ("b", 0.0, 1.0), ("b", 1.0, 2.0)]
)
# many pairs of one prompt and one pair of another
rate_within.case(
    [
        ("a", 1.0, 3.0),
        ("a", 0.0, 1.0),
        ("a", 0.0, 2.0),
        ("a", 0.0, 0.0),
        ("b", 1.0, 0.0),
        ("b", 0.0, 1.0),
    ]
)
# one pair of each prompt: one in the right order, one in the wrong order
rate_within.case([("a", 1.0, 0.2), ("b", 1.0, 2.0), ("a", 0.0, 0.3), ("b", 0.0, 1.0)])
# one tie among right and wrong pairs
rate_within.case([("a", 1.0, 0.5), ("a", 0.8, 0.5), ("a", 0.3, 0.2), ("a", 0.0, 0.9)])
# a prompt whose rows are all right, and one where two of three pairs differ in gold
rate_within.case(
    [("a", 1.0, 0.5), ("a", 1.0, 0.4), ("b", 1.0, 1.0), ("b", 0.0, 0.0), ("b", 0.0, 2.0)]
)


@rate_within.mistake
def compares_different_prompts(rows):
    """You compared rows of different prompts: the loss leaves the level of each prompt's rewards
    free, so that such a pair shows nothing.
    """
    return mean(right_orders([(gold, reward) for _, gold, reward in rows]))


@rate_within.mistake
def counts_every_pair_alike(rows):
    """You took the mean over all pairs: a prompt with many pairs then counts more than others. Take
    the rate of each prompt, then the mean of the rates.
    """
    outcomes = []
    for group in rows_by_prompt(rows):
        outcomes.extend(right_orders(group))
    return mean(outcomes)


@rate_within.mistake
def counts_a_prompt_without_pairs(rows):
    """You counted a prompt that has no pair with different gold: leave it out."""
    rates = []
    for group in rows_by_prompt(rows):
        outcomes = right_orders(group)
        rates.append(mean(outcomes) if outcomes else 0.0)
    return mean(rates)


@rate_within.mistake
def counts_a_tie_as_right(rows):
    """You counted equal rewards as the right order: a model that gives every completion the same
    reward would be perfect.
    """
    rates = []
    for group in rows_by_prompt(rows):
        # the reward moved up a little where gold is higher: a tie is won
        outcomes = right_orders([(gold, reward + 1e-9 * gold) for gold, reward in group])
        if outcomes:
            rates.append(mean(outcomes))
    return mean(rates)


def rate_with_ties(rows, value_of_a_tie):
    """The mean rate where a tie counts so much; None leaves ties out."""
    rates = []
    for group in rows_by_prompt(rows):
        outcomes = []
        for better_gold, better_reward in group:
            for worse_gold, worse_reward in group:
                if better_gold <= worse_gold:
                    continue
                if better_reward != worse_reward:
                    outcomes.append(float(better_reward > worse_reward))
                elif value_of_a_tie is not None:
                    outcomes.append(value_of_a_tie)
        if outcomes:
            rates.append(mean(outcomes))
    return mean(rates)


@rate_within.mistake
def counts_a_tie_half(rows):
    """You counted equal rewards as half right: the exercise asks for strictly more reward."""
    return rate_with_ties(rows, 0.5)


@rate_within.mistake
def leaves_ties_out(rows):
    """You left out pairs with equal rewards: the model was asked about them and could not tell, so
    they count as wrong.
    """
    return rate_with_ties(rows, None)


@rate_within.mistake
def compares_best_and_worst(rows):
    """You compared only the best and the worst row of a prompt: take all pairs that differ in gold,
    because the close ones are the hard ones.
    """
    rates = []
    for group in rows_by_prompt(rows):
        best, worst = max(group), min(group)
        if best[0] > worst[0]:
            rates.append(float(best[1] > worst[1]))
    return mean(rates)


@rate_within.mistake
def divides_by_all_pairs(rows):
    """You divided by all pairs of a prompt: a pair with equal gold has no right order, so leave it
    out.
    """
    rates = []
    for group in rows_by_prompt(rows):
        pairs = comb(len(group), 2)
        if pairs:
            rates.append(sum(right_orders(group)) / pairs)
    return mean(rates)


# 13.4: what a KL penalty does to the curve


def change_at_the_end(name, free, penalised):
    """By how much the penalty changed the mean of the last four steps."""
    penalised_end = mean(step[name] for step in penalised[-4:])
    free_end = mean(step[name] for step in free[-4:])
    return penalised_end - free_end


def read_penalised(measured):
    """From each step's gold and proxy reward, without a penalty and with one."""
    free = measured["beta 0"]
    held = measured["beta 0.3"]
    if min(len(free), len(held)) < 8:
        raise ValueError("a run has fewer than 8 steps: train at least 8, then look at the last 4")
    gold = change_at_the_end("gold", free, held)
    proxy = change_at_the_end("proxy", free, held)
    sentence = f"The penalty changed gold by {gold:+.2f} and the proxy by {proxy:+.2f} at the end."
    names = {"rises": "more gold", "stays": "the same", "falls": "less gold"}
    return names[direction(gold, 0.1)], sentence


penalised = experiment(
    "13.4",
    "penalised",
    read=read_penalised,
    wrong={
        "more gold": "Here it did not: was beta 0.3, and did the free run go far enough to fall?",
        "the same": "The penalty keeps the policy where the reward model has seen completions.",
        "less gold": (
            "The penalty costs proxy, not gold: "
            "the free run ended far beyond the distance of its best gold."
        ),
    },
)
FREE_RUN = [{"gold": 0.44, "proxy": 1.6}] * 8
BETTER_RUN = [{"gold": 0.85, "proxy": 1.5}] * 8
SAME_RUN = [{"gold": 0.47, "proxy": 1.6}] * 8
penalised.example({"beta 0": FREE_RUN, "beta 0.3": BETTER_RUN}, gives="more gold")
penalised.example({"beta 0": FREE_RUN, "beta 0.3": SAME_RUN}, gives="the same")

# 13.5: the best of n


def expected_best(ranked_gold, n):
    """The mean gold of the last one of n, over all choices from a list in rising order."""
    choices = comb(len(ranked_gold), n)
    total = 0.0
    for place, gold in enumerate(ranked_gold):
        total += comb(place, n - 1) / choices * gold
    return total


def ranked(proxy, gold):
    """The gold of the completions, in the order of their proxy."""
    return [value for _, value in sorted(zip(proxy, gold, strict=True))]


def correct_best_of(proxy, gold, n):
    """The solution."""
    return expected_best(ranked(proxy, gold), n)


best_of = exercise("13.5", "best_of", solution=correct_best_of)
best_of.case([0.4, 0.1, 2.0, 1.2], [0.3, 0.0, 0.2, 1.0], 2)
best_of.case([0.4, 0.1, 2.0, 1.2], [0.3, 0.0, 0.2, 1.0], 1)  # the mean of the base
best_of.case([0.4, 0.1, 2.0, 1.2], [0.3, 0.0, 0.2, 1.0], 4)  # the one with the highest proxy
best_of.case([1.0, 3.0, 2.0, 5.0, 4.0], [1.0, 0.5, 0.0, 0.0, 1.0], 3)


@best_of.mistake
def chooses_by_gold(proxy, gold, n):
    """You kept the best by gold: nobody knows gold when one of n is chosen, so order by the
    proxy.
    """
    return expected_best(sorted(gold), n)


@best_of.mistake
def keeps_the_lowest(proxy, gold, n):
    """You kept the completion with the lowest proxy: sort so that the highest comes last."""
    return expected_best(ranked(proxy, gold)[::-1], n)


@best_of.mistake
def takes_only_the_first_n(proxy, gold, n):
    """You looked at the first n completions alone: average over all choices of n, which uses all of
    them and is far less noisy.
    """
    return ranked(proxy[:n], gold[:n])[-1]


@best_of.mistake
def gives_the_proxy(proxy, gold, n):
    """You gave the expected proxy, which rises with every n: what counts is the gold of the one
    that is kept.
    """
    return expected_best(sorted(proxy), n)


@best_of.mistake
def draws_with_replacement(proxy, gold, n):
    """You drew with replacement: the n completions are different ones, so count the choices with
    `comb`.
    """
    ordered = ranked(proxy, gold)
    size = len(ordered)
    total = 0.0
    for place, value in enumerate(ordered):
        total += (((place + 1) / size) ** n - (place / size) ** n) * value
    return total


@best_of.mistake
def does_not_sort(proxy, gold, n):
    """You did not sort: number the completions by rising proxy before you count the choices."""
    return expected_best(gold, n)


@best_of.mistake
def counts_choices_without_the_best(proxy, gold, n):
    """You counted the choices of n from the i completions below: number i itself is in the choice,
    so only n - 1 of them are free.
    """
    ordered = ranked(proxy, gold)
    choices = comb(len(ordered), n)
    total = 0.0
    for place, value in enumerate(ordered):
        total += comb(place, n) / choices * value
    return total


@best_of.mistake
def averages_the_top_n(proxy, gold, n):
    """You took the mean of the n completions with the highest proxy: sample n of all, and keep one
    of these n.
    """
    return mean(ranked(proxy, gold)[-n:])


# 13.6: two methods at the same distance


def golds_in_range(batches, low, high):
    """The gold of the batches whose divergence lies in a range."""
    return [gold for kl, gold in batches if low < kl < high]


def common_seeds(first, second):
    """The seeds that both methods have, in order."""
    return [seed for seed in first if seed in second]


def correct_at_equal_distance(first, second, low, high):
    """The solution."""
    differences = []
    for seed in common_seeds(first, second):
        before = golds_in_range(first[seed], low, high)
        after = golds_in_range(second[seed], low, high)
        if before and after:
            differences.append(mean(after) - mean(before))
    if not differences:
        return None
    return mean(differences)


at_equal_distance = exercise("13.6", "at_equal_distance", solution=correct_at_equal_distance)
# The first method runs away, the second stays near: at the end it has more gold, between 2 and 4
# nats it has less.
RUNS_AWAY = {
    0: [(0.5, 0.5), (1.5, 0.7), (2.5, 0.8), (7.0, 0.5), (15.0, 0.3)],
    1: [(0.6, 0.4), (2.2, 0.6), (3.5, 0.7), (9.0, 0.4), (12.0, 0.4)],
}
STAYS_NEAR = {
    0: [(0.4, 0.5), (1.2, 0.6), (2.1, 0.7), (2.2, 0.7), (2.3, 0.7), (2.4, 0.6)],
    1: [(0.3, 0.4), (1.1, 0.7), (3.1, 0.6), (2.9, 0.5)],
}
at_equal_distance.case(RUNS_AWAY, STAYS_NEAR, 2.0, 4.0)
at_equal_distance.case(RUNS_AWAY, STAYS_NEAR, 1.0, 4.0)
# seed 1 of the second method never gets so far, and seed 2 has no partner
ONE_STOPS_EARLY = {
    0: [(0.4, 0.5), (2.1, 0.9)],
    1: [(0.3, 0.4), (1.1, 0.7)],
    2: [(2.5, 0.1)],
}
at_equal_distance.case(RUNS_AWAY, ONE_STOPS_EARLY, 2.0, 4.0)
# now the first has a seed without a partner
at_equal_distance.case(ONE_STOPS_EARLY, RUNS_AWAY, 2.0, 4.0)
# nobody gets so far
at_equal_distance.case(RUNS_AWAY, STAYS_NEAR, 20.0, 30.0)


def pooled(runs, low, high):
    """The gold of all batches of all seeds in a range."""
    golds = []
    for batches in runs.values():
        golds.extend(golds_in_range(batches, low, high))
    return golds


@at_equal_distance.mistake
def compares_the_ends(first, second, low, high):
    """You compared the last batches: there the two methods are at different distances. Take only
    the batches with a divergence between low and high.
    """
    seeds = common_seeds(first, second)
    return mean(second[seed][-1][1] - first[seed][-1][1] for seed in seeds)


@at_equal_distance.mistake
def compares_whole_runs(first, second, low, high):
    """You took the mean over whole runs: take only the batches with a divergence between low and
    high.
    """
    return correct_at_equal_distance(first, second, float("-inf"), float("inf"))


@at_equal_distance.mistake
def has_no_lower_end(first, second, low, high):
    """You also counted batches below low: near the base all methods have little gold, and the
    comparison is of something else.
    """
    return correct_at_equal_distance(first, second, float("-inf"), high)


@at_equal_distance.mistake
def has_no_upper_end(first, second, low, high):
    """You also counted batches above high: the method that goes farther then pays for its
    distance.
    """
    return correct_at_equal_distance(first, second, low, float("inf"))


@at_equal_distance.mistake
def pools_the_batches(first, second, low, high):
    """You pooled the batches of all seeds: a run that stays long in the range then counts more than
    one that passes quickly. Take the mean of each seed first.
    """
    before = pooled(first, low, high)
    after = pooled(second, low, high)
    if not before or not after:
        return None
    return mean(after) - mean(before)


def mean_of_seeds(runs, low, high):
    """The mean over the seeds of a method that have batches in a range."""
    means = []
    for batches in runs.values():
        golds = golds_in_range(batches, low, high)
        if golds:
            means.append(mean(golds))
    if not means:
        return None
    return mean(means)


@at_equal_distance.mistake
def does_not_pair_the_seeds(first, second, low, high):
    """You took the mean of each method over its own seeds: the two means are then over different
    seeds. Leave out a seed that has batches in the range under one method only.
    """
    before = mean_of_seeds(first, low, high)
    after = mean_of_seeds(second, low, high)
    if before is None or after is None:
        return None
    return after - before


@at_equal_distance.mistake
def counts_a_missing_seed_as_zero(first, second, low, high):
    """You counted a seed without batches in the range as a difference of 0: nothing was compared
    there, so leave it out.
    """
    differences = []
    for seed in common_seeds(first, second):
        only = {seed: first[seed]}
        difference = correct_at_equal_distance(only, second, low, high)
        if difference is None:
            difference = 0.0
        differences.append(difference)
    return mean(differences)


@at_equal_distance.mistake
def gives_zero_for_nothing(first, second, low, high):
    """You gave 0 where no seed is left: 0 claims that the methods are equal, and nothing was
    compared. Return None.
    """
    difference = correct_at_equal_distance(first, second, low, high)
    if difference is None:
        return 0.0
    return difference


@at_equal_distance.mistake
def subtracts_the_second(first, second, low, high):
    """You subtracted the second method from the first: a positive result must mean that the second
    has more gold.
    """
    difference = correct_at_equal_distance(first, second, low, high)
    if difference is None:
        return None
    return -difference


@at_equal_distance.mistake
def takes_the_best_batch(first, second, low, high):
    """You took the best batch in the range: the highest of several noisy values is too high, and
    more so for the run with more batches. Take their mean.
    """
    differences = []
    for seed in common_seeds(first, second):
        before = golds_in_range(first[seed], low, high)
        after = golds_in_range(second[seed], low, high)
        if before and after:
            differences.append(max(after) - max(before))
    if not differences:
        return None
    return mean(differences)


@at_equal_distance.mistake
def takes_the_last_batch(first, second, low, high):
    """You took the last batch in the range: take the mean of all batches there, which is less
    noisy.
    """
    differences = []
    for seed in common_seeds(first, second):
        before = golds_in_range(first[seed], low, high)
        after = golds_in_range(second[seed], low, high)
        if before and after:
            differences.append(after[-1] - before[-1])
    if not differences:
        return None
    return mean(differences)
