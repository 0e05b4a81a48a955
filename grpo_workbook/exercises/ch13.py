"""The exercises of notebook 13_learned_rewards."""

from math import exp, log
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


# 13.3: what a KL penalty does to the curve


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
    "13.3",
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

# 13.4: a penalty that follows its target


def limited(error):
    """The error within -0.2 and 0.2."""
    return max(-0.2, min(0.2, error))


def correct_adaptive_beta(beta, kl, target):
    """The solution."""
    return beta * (1 + 0.5 * limited(kl / target - 1))


adaptive_beta = exercise("13.4", "adaptive_beta", solution=correct_adaptive_beta)
adaptive_beta.case(0.1, 2.2, 2.0)
adaptive_beta.case(0.1, 9.0, 2.0)  # far away: the error is limited
adaptive_beta.case(0.1, 1.9, 2.0)
adaptive_beta.case(0.3, 0.0, 4.0)  # at the base


@adaptive_beta.mistake
def turns_the_error_round(beta, kl, target):
    """Your beta falls when the policy is too far from the base: it must grow then."""
    return beta * (1 + 0.5 * limited(1 - kl / target))


@adaptive_beta.mistake
def does_not_limit(beta, kl, target):
    """You let one large divergence change beta at once: limit the error to -0.2 and 0.2."""
    return beta * (1 + 0.5 * (kl / target - 1))


@adaptive_beta.mistake
def takes_an_absolute_error(beta, kl, target):
    """You took the absolute error: divide it by the target, so that one bound fits every target."""
    return beta * (1 + 0.5 * limited(kl - target))


@adaptive_beta.mistake
def adds_to_beta(beta, kl, target):
    """You added to beta, and could make it negative: the rule multiplies it."""
    return beta + 0.5 * limited(kl / target - 1)


# 13.5: a reward for each step


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


step_advantages = exercise("13.5", "step_advantages", solution=correct_step_advantages)
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


# 13.6: agreement beyond chance


def agreement(judge, labels):
    """The rate of equal verdicts."""
    return sum(a == b for a, b in zip(judge, labels, strict=True)) / len(judge)


def rate(verdict, verdicts):
    """How often a verdict occurs among the verdicts."""
    return verdicts.count(verdict) / len(verdicts)


def chance_agreement(judge, labels):
    """The rate of equal verdicts that two independent judges with these rates would have."""
    return sum(rate(verdict, judge) * rate(verdict, labels) for verdict in set(labels))


def beyond(chance, judge, labels):
    """The agreement beyond chance, 1 for full agreement."""
    return (agreement(judge, labels) - chance) / (1 - chance)


def correct_kappa(judge, labels):
    """The solution."""
    return beyond(chance_agreement(judge, labels), judge, labels)


kappa = exercise("13.6", "kappa", solution=correct_kappa)
# the textbook's example: 0.7 agree, 0.5 by chance, kappa 0.4
kappa.case(
    ["yes"] * 25 + ["no"] * 25,
    ["yes"] * 20 + ["no"] * 5 + ["yes"] * 10 + ["no"] * 15,
)
# a judge that almost always says yes
kappa.case(["yes"] * 9 + ["no"], ["yes"] * 8 + ["no"] * 2)
kappa.case(["a", "b", "c", "a", "b", "c"], ["a", "b", "c", "b", "b", "a"])


@kappa.mistake
def gives_the_agreement(judge, labels):
    """You gave the rate of equal verdicts: by that, a judge that always says yes
    would score high.
    """
    return agreement(judge, labels)


@kappa.mistake
def takes_a_coins_chance(judge, labels):
    """You took the chance of a coin: the agreement by chance follows from how often each of the two
    gives each verdict.
    """
    return beyond(1 / len(set(judge) | set(labels)), judge, labels)


@kappa.mistake
def takes_the_labels_twice(judge, labels):
    """You used the rates of the labels twice: the judge has its own."""
    return beyond(chance_agreement(labels, labels), judge, labels)


@kappa.mistake
def does_not_divide(judge, labels):
    """You subtracted the agreement by chance but did not divide: at full agreement
    kappa must be 1.
    """
    return agreement(judge, labels) - chance_agreement(judge, labels)
