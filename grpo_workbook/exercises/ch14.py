"""The exercises of notebook 14_judges_and_rubrics."""

from grpo_workbook.exercises.tasks import exercise, experiment, paired_direction

# 14.1: agreement beyond chance


def agreement(judge, labels):
    """The rate of equal answers."""
    equal = 0
    for verdict, label in zip(judge, labels, strict=True):
        equal += verdict == label
    return equal / len(judge)


def rate(verdict, verdicts):
    """How often a verdict occurs among the verdicts."""
    return verdicts.count(verdict) / len(verdicts)


def chance_agreement(judge, labels):
    """The rate of equal answers that two independent readers with these rates would have."""
    chance = 0.0
    for verdict in set(labels):
        chance += rate(verdict, judge) * rate(verdict, labels)
    return chance


def beyond(chance, judge, labels):
    """The agreement beyond chance, 1 for full agreement; None if chance is certain."""
    if chance == 1:
        return None
    return (agreement(judge, labels) - chance) / (1 - chance)


def correct_kappa(judge, labels):
    """The solution."""
    return beyond(chance_agreement(judge, labels), judge, labels)


kappa = exercise("14.1", "kappa", solution=correct_kappa)
# the textbook's example: 0.7 agree, 0.5 by chance, kappa 0.4
TEXTBOOK_JUDGE = list("y" * 25 + "n" * 25)
TEXTBOOK_LABELS = list("y" * 20 + "n" * 5 + "y" * 10 + "n" * 15)
kappa.case(TEXTBOOK_JUDGE, TEXTBOOK_LABELS)
# a judge that almost always says yes
MOSTLY_YES = list("yyyyyyyyyn")
OFTEN_YES = list("yyyyyyyynn")
kappa.case(MOSTLY_YES, OFTEN_YES)
kappa.case(list("abcabc"), list("abcbba"))
# a judge that never varies, and a judge and labels that never vary
ALWAYS_YES = list("yyyyyyyyyy")
ALWAYS_NO = list("nnnnnnnnnn")
kappa.case(ALWAYS_YES, OFTEN_YES)
kappa.case(OFTEN_YES, ALWAYS_YES)
kappa.case(ALWAYS_YES, ALWAYS_YES)
kappa.case(ALWAYS_YES, ALWAYS_NO)
# a judge that says the opposite: kappa is below 0
kappa.case(list("yyyynnnn"), list("nnnnyyyn"))


@kappa.mistake
def gives_the_agreement(judge, labels):
    """You gave the rate of equal answers: by that, a judge that always says yes
    would score high.
    """
    return agreement(judge, labels)


@kappa.mistake
def takes_a_coins_chance(judge, labels):
    """You took the chance of a coin: the agreement by chance follows from how often each of the two
    gives each answer.
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


@kappa.mistake
def calls_no_variance_perfect(judge, labels):
    """You gave 1 where neither the judge nor the labels vary: kappa is undefined there, so return
    None. Such labels cannot show anything about a judge.
    """
    result = correct_kappa(judge, labels)
    return 1.0 if result is None else result


@kappa.mistake
def calls_no_variance_chance(judge, labels):
    """You gave 0 where neither the judge nor the labels vary: kappa is 0 divided by 0 there, so
    return None.
    """
    result = correct_kappa(judge, labels)
    return 0.0 if result is None else result


@kappa.mistake
def cuts_off_at_zero(judge, labels):
    """You cut kappa off at 0: a negative kappa shows that the judge agrees less often than chance,
    which you want to know.
    """
    result = correct_kappa(judge, labels)
    if result is None:
        return None
    return max(0.0, result)


@kappa.mistake
def refuses_a_judge_without_variance(judge, labels):
    """You gave None where only one of the two never varies: kappa is 0 there. It is undefined only
    if the agreement by chance is certain.
    """
    if len(set(judge)) == 1 or len(set(labels)) == 1:
        return None
    return correct_kappa(judge, labels)


@kappa.mistake
def takes_the_pooled_rates(judge, labels):
    """You pooled the answers of both (Scott's pi): Cohen's kappa multiplies the rates of the two
    readers, which may differ.
    """
    both = [*judge, *labels]
    return beyond(chance_agreement(both, both), judge, labels)


@kappa.mistake
def counts_one_answer_only(judge, labels):
    """You took the agreement by chance on one of the answers alone: add it up over all answers that
    occur.
    """
    verdict = labels[0]
    return beyond(rate(verdict, judge) * rate(verdict, labels), judge, labels)


@kappa.mistake
def refuses_two_readers_without_variance(judge, labels):
    """You gave None where neither of the two varies, although their answers differ: the agreement
    by chance is 0 there and kappa is 0. It is undefined only if both always give the same answer.
    """
    if len(set(judge)) == 1 and len(set(labels)) == 1:
        return None
    return correct_kappa(judge, labels)


# 14.2: the formula of a rubric


def correct_rubric_reward(verdicts, weights):
    """The solution."""
    total = 0.0
    for name, weight in weights.items():
        if verdicts[name] is None:
            return None
        total += weight * verdicts[name]
    return total / sum(weights.values())


def named(polite, problem, step):
    """The verdicts of a case."""
    return {"polite": polite, "problem": problem, "step": step}


WEIGHTS = {"polite": 2.0, "problem": 1.0, "step": 3.0}
rubric_reward = exercise("14.2", "rubric_reward", solution=correct_rubric_reward)
rubric_reward.case(named(1.0, 0.0, 1.0), WEIGHTS)
rubric_reward.case(named(1.0, 1.0, 0.0), WEIGHTS)
rubric_reward.case(named(1.0, 1.0, None), WEIGHTS)  # the judge failed once
rubric_reward.case(named(None, 0.0, 0.0), WEIGHTS)
rubric_reward.case(named(None, None, None), WEIGHTS)
# other weights: their sum is not twice the number of criteria
rubric_reward.case(named(0.0, 1.0, 1.0), {"polite": 1.0, "problem": 2.0, "step": 6.0})


@rubric_reward.mistake
def counts_a_failure_as_no(verdicts, weights):
    """You counted a missing verdict as a no: the judge failed, and the completion is penalised for
    it. Return None.
    """
    filled = {name: verdict or 0.0 for name, verdict in verdicts.items()}
    return correct_rubric_reward(filled, weights)


@rubric_reward.mistake
def averages_the_others(verdicts, weights):
    """You averaged the criteria that were judged: a completion whose hard criterion is missing then
    earns more than its neighbours. Return None.
    """
    judged = {name: weights[name] for name in weights if verdicts[name] is not None}
    if not judged:
        return None
    return correct_rubric_reward(verdicts, judged)


@rubric_reward.mistake
def forgets_the_weights(verdicts, weights):
    """You gave every criterion the same weight: multiply each verdict by its own."""
    return correct_rubric_reward(verdicts, dict.fromkeys(weights, 1.0))


@rubric_reward.mistake
def gives_the_sum(verdicts, weights):
    """You gave the weighted sum: divide it by the sum of the weights, so that a rubric with one
    more criterion keeps its scale.
    """
    reward = correct_rubric_reward(verdicts, weights)
    if reward is None:
        return None
    return reward * sum(weights.values())


@rubric_reward.mistake
def divides_by_the_criteria(verdicts, weights):
    """You divided by the number of criteria: divide by the sum of their weights."""
    reward = correct_rubric_reward(verdicts, weights)
    if reward is None:
        return None
    return reward * sum(weights.values()) / len(weights)


@rubric_reward.mistake
def takes_a_no_for_a_failure(verdicts, weights):
    """You returned None for a verdict of 0.0: `not value` is true for a no as for a missing
    verdict, so ask `value is None`.
    """
    if not all(verdicts.values()):
        return None
    return correct_rubric_reward(verdicts, weights)


@rubric_reward.mistake
def wants_all_criteria(verdicts, weights):
    """You paid 1 only if every criterion is met: then most groups earn the same, and nothing is
    learned. Pay the weighted mean.
    """
    if None in verdicts.values():
        return None
    return float(all(verdicts.values()))


@rubric_reward.mistake
def leaves_the_missing_weight_in(verdicts, weights):
    """You left a missing verdict out of the sum but not out of the weights, which counts it as a
    no. Return None.
    """
    judged = {name: weights[name] for name in weights if verdicts[name] is not None}
    if not judged:
        return None
    passed_weight = sum(judged[name] for name in judged if verdicts[name])
    return passed_weight / sum(weights.values())


# 14.3: what a rule beside the judge changes


def read_repair(measured):
    """From which held-out replies name a wrong product, before training and with a rule."""
    before = [bool(named) for named in measured["before training"]]
    with_rule = [bool(named) for named in measured["judge and rule"]]
    change, sentence = paired_direction(before, with_rule)
    names = {"rises": "more often", "stays": "equally often", "falls": "less often"}
    return names[change], sentence.replace("were right", "name a wrong product")


repair = experiment(
    "14.3",
    "repair",
    read=read_repair,
    wrong={
        "less often": (
            "The rule pays nothing for a wrong product, but nothing for a reply without one "
            "either, and the policy now names products far more often."
        ),
        "more often": "The judge alone taught that, because it paid for them; the rule does not.",
        "equally often": "Here it differs: does names_product pay 1 for the right product alone?",
    },
)
SELDOM = [True] * 24 + [False] * 216
OFTEN = [True] * 59 + [False] * 181
repair.example({"before training": SELDOM, "judge and rule": SELDOM}, gives="equally often")
repair.example({"before training": SELDOM, "judge and rule": OFTEN}, gives="more often")
repair.example({"before training": OFTEN, "judge and rule": SELDOM}, gives="less often")

# 14.4: the weight at which two replies earn the same


def lead_on_the_others(wanted, other, weights, criterion):
    """The lead of the wanted reply in the weighted sum of all other criteria."""
    lead = 0.0
    for name, weight in weights.items():
        if name != criterion:
            lead += weight * (wanted[name] - other[name])
    return lead


def weight_where_even(lead, difference):
    """The weight that takes this lead away; None if no weight above 0 does."""
    if difference == 0 or lead / difference <= 0:
        return None
    return lead / difference


def correct_tipping_weight(wanted, other, weights, criterion):
    """The solution."""
    lead = lead_on_the_others(wanted, other, weights, criterion)
    return weight_where_even(lead, other[criterion] - wanted[criterion])


def judged(polite, product, step, careful):
    """The verdicts on a reply of a case."""
    return {"polite": polite, "product": product, "step": step, "careful": careful}


SHOP = {"polite": 2.0, "product": 1.0, "step": 3.0, "careful": 5.0}
tipping_weight = exercise("14.4", "tipping_weight", solution=correct_tipping_weight)
# the chapter's rubric: a reply with a step against one without
tipping_weight.case(judged(1.0, 1.0, 1.0, 0.0), judged(1.0, 1.0, 0.0, 1.0), SHOP, "careful")
# verdicts between 0 and 1, and another reply that is not polite
tipping_weight.case(judged(1.0, 1.0, 1.0, 0.25), judged(0.5, 1.0, 0.0, 0.75), SHOP, "careful")
# another criterion, on which the wanted reply is the better one
tipping_weight.case(judged(1.0, 1.0, 1.0, 0.0), judged(1.0, 0.5, 0.0, 1.0), SHOP, "step")
# the wanted reply leads on everything; on nothing; the criterion does not tell them apart
tipping_weight.case(judged(1.0, 1.0, 1.0, 1.0), judged(1.0, 0.0, 0.0, 0.0), SHOP, "careful")
tipping_weight.case(judged(1.0, 1.0, 0.0, 0.0), judged(1.0, 1.0, 0.0, 1.0), SHOP, "careful")
tipping_weight.case(judged(1.0, 1.0, 1.0, 1.0), judged(1.0, 1.0, 0.0, 1.0), SHOP, "careful")


@tipping_weight.mistake
def keeps_the_present_weight(wanted, other, weights, criterion):
    """You counted the criterion with its present weight in the lead: leave it out, because this
    weight is to be replaced.
    """
    lead = lead_on_the_others(wanted, other, weights, "")
    return weight_where_even(lead, other[criterion] - wanted[criterion])


@tipping_weight.mistake
def divides_by_the_weights(wanted, other, weights, criterion):
    """You divided the lead by the sum of the weights: both rewards are divided by the same sum, so
    it does not change which is higher.
    """
    lead = lead_on_the_others(wanted, other, weights, criterion) / sum(weights.values())
    return weight_where_even(lead, other[criterion] - wanted[criterion])


@tipping_weight.mistake
def gives_the_lead(wanted, other, weights, criterion):
    """You gave the lead on the other criteria: divide it by the difference of the two verdicts on
    the criterion, which need not be 1.
    """
    lead = lead_on_the_others(wanted, other, weights, criterion)
    if weight_where_even(lead, other[criterion] - wanted[criterion]) is None:
        return None
    return abs(lead)


@tipping_weight.mistake
def counts_the_wanted_reply_alone(wanted, other, weights, criterion):
    """You took what the wanted reply earns on the other criteria: subtract what the other reply
    earns there.
    """
    nothing = dict.fromkeys(weights, 0.0)
    lead = lead_on_the_others(wanted, nothing, weights, criterion)
    return weight_where_even(lead, other[criterion] - wanted[criterion])


@tipping_weight.mistake
def subtracts_the_wrong_way(wanted, other, weights, criterion):
    """You have one of the two differences the wrong way round: the lead of the wanted reply is
    taken away by what the *other* reply has more on the criterion.
    """
    lead = lead_on_the_others(wanted, other, weights, criterion)
    return weight_where_even(lead, wanted[criterion] - other[criterion])


@tipping_weight.mistake
def gives_a_weight_that_cannot_be(wanted, other, weights, criterion):
    """You gave a weight of 0 or below: a weight must be above 0, so return None there."""
    lead = lead_on_the_others(wanted, other, weights, criterion)
    difference = other[criterion] - wanted[criterion]
    if difference == 0:
        return None
    return lead / difference


@tipping_weight.mistake
def tips_without_a_difference(wanted, other, weights, criterion):
    """You gave a weight although both replies have the same verdict on the criterion: no weight
    of it changes which of them earns more, so return None.
    """
    lead = lead_on_the_others(wanted, other, weights, criterion)
    difference = other[criterion] - wanted[criterion]
    if difference == 0:
        return 0.0
    return weight_where_even(lead, difference)


@tipping_weight.mistake
def takes_a_lead_for_granted(wanted, other, weights, criterion):
    """You returned None where the wanted reply is behind on the other criteria: if it is the better
    one on this criterion, a weight above 0 makes both earn the same.
    """
    lead = lead_on_the_others(wanted, other, weights, criterion)
    if lead <= 0:
        return None
    return weight_where_even(lead, other[criterion] - wanted[criterion])
