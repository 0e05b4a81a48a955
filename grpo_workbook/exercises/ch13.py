"""The exercises of notebook 13_learned_rewards."""

from math import comb, exp, log
from statistics import mean, stdev

from grpo_workbook.exercises.tasks import direction, exercise, experiment

# 13.1: the policy that a penalised reward leads to


def tilted_policy(proxy, beta):
    """The probability of each answer, exp(proxy / beta) over a uniform base."""
    weights = [exp(reward / beta) for reward in proxy]
    total = sum(weights)
    return [weight / total for weight in weights]


def expected(probabilities, rewards):
    """The mean reward under these probabilities."""
    total = 0.0
    for probability, reward in zip(probabilities, rewards, strict=True):
        total += probability * reward
    return total


def divergence(probabilities):
    """The KL divergence from the uniform base."""
    n = len(probabilities)
    return sum(p * log(p * n) for p in probabilities)


def correct_tilted(proxy, gold, beta):
    """The solution: the divergence, the mean proxy and the mean gold."""
    policy = tilted_policy(proxy, beta)
    return divergence(policy), expected(policy, proxy), expected(policy, gold)


tilted = exercise("13.1", "tilted", solution=correct_tilted)
tilted.case([0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, -3.0], 0.5)
tilted.case([0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, -3.0], 2.0)
tilted.case([0.5, -1.0, 0.5], [1.0, 0.0, 0.0], 0.5)
tilted.case([0.5, -1.0, 0.5], [1.0, 0.0, 0.0], 2.0)


@tilted.mistake
def multiplies_by_beta(proxy, gold, beta):
    """You multiplied by beta: a large penalty must keep the policy at the base, so divide by it."""
    return correct_tilted(proxy, gold, 1 / beta)


@tilted.mistake
def does_not_normalise(proxy, gold, beta):
    """Your probabilities do not add up to 1: divide the weights by their sum."""
    weights = [exp(reward / beta) / len(proxy) for reward in proxy]
    return divergence(weights), expected(weights, proxy), expected(weights, gold)


@tilted.mistake
def reverses_the_divergence(proxy, gold, beta):
    """You took the divergence of the base from the policy: the penalty is that of the policy from
    the base, a mean under the policy's probabilities.
    """
    policy = tilted_policy(proxy, beta)
    n = len(policy)
    reverse = sum(-log(p * n) for p in policy) / n
    return reverse, expected(policy, proxy), expected(policy, gold)


@tilted.mistake
def gives_the_entropy(proxy, gold, beta):
    """You gave the entropy of the policy: the divergence compares it with the base, which has 1 / n
    for each answer.
    """
    policy = tilted_policy(proxy, beta)
    entropy = -sum(p * log(p) for p in policy)
    return entropy, expected(policy, proxy), expected(policy, gold)


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
        "less gold": ("A penalty costs reward only as far as the reward is right; here it is not."),
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


# 13.6: a reward for each step


def scale(values, reference):
    """The values less the mean of `reference`, divided by its standard deviation."""
    deviation = stdev(reference) if len(reference) > 1 else 0.0
    return [(value - mean(reference)) / (deviation + 1e-4) for value in values]


def scaled_by_group(rewards):
    """The scaled rewards of each completion's steps, with mean and deviation of all steps."""
    all_steps = []
    for completion in rewards:
        all_steps.extend(completion)
    return [scale(completion, all_steps) for completion in rewards]


def sums_to_the_end(values):
    """For each place the sum from there to the end."""
    return [sum(values[place:]) for place in range(len(values))]


def correct_step_advantages(rewards):
    """The solution."""
    return [sums_to_the_end(completion) for completion in scaled_by_group(rewards)]


step_advantages = exercise("13.6", "step_advantages", solution=correct_step_advantages)
step_advantages.case([[1.0, 1.0, 0.0], [1.0, 0.0]])
# completions of 2, 1 and 4 steps
step_advantages.case([[0.0, 1.0], [1.0], [0.0, 0.0, 0.0, 1.0]])


@step_advantages.mistake
def scales_each_completion(rewards):
    """You normalised within each completion: the steps of the whole group are compared."""
    return [sums_to_the_end(scale(completion, completion)) for completion in rewards]


@step_advantages.mistake
def forgets_later_steps(rewards):
    """You forgot the later steps: a step is also responsible for what follows, so add their
    rewards.
    """
    return scaled_by_group(rewards)


@step_advantages.mistake
def adds_what_came_before(rewards):
    """You added up what came before: a step cannot change that, only what follows."""
    advantages = []
    for completion in scaled_by_group(rewards):
        places = range(1, len(completion) + 1)
        advantages.append([sum(completion[:place]) for place in places])
    return advantages


@step_advantages.mistake
def gives_an_outcome_reward(rewards):
    """You gave every step the same, as an outcome reward does: a step counts for itself and for
    what follows.
    """
    advantages = []
    for completion in scaled_by_group(rewards):
        advantages.append([sum(completion)] * len(completion))
    return advantages
