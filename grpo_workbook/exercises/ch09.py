"""The exercises of notebook 09_merge_and_inference."""

from math import comb, exp, sqrt

import numpy as np

from grpo_workbook.exercises.tasks import exercise, experiment

# 09.1: the probability of each token, with a temperature and top_p


def softmax(logits):
    """The probabilities of the tokens."""
    highest = max(logits)
    weights = [exp(logit - highest) for logit in logits]
    return normalised(weights)


def normalised(weights):
    """The weights divided by their sum."""
    total = sum(weights)
    return [weight / total for weight in weights]


def with_temperature(logits, temperature):
    """The probabilities at a temperature."""
    return softmax([logit / temperature for logit in logits])


def kept_tokens(probabilities, top_p):
    """The most likely tokens that reach top_p together."""
    order = sorted(range(len(probabilities)), key=probabilities.__getitem__, reverse=True)
    kept = []
    total = 0.0
    for token in order:
        kept.append(token)
        total += probabilities[token]
        if total >= top_p:
            break
    return kept


def cut(probabilities, kept):
    """The probabilities with 0 for every token that is not kept; they may not add up to 1."""
    result = [0.0] * len(probabilities)
    for token in kept:
        result[token] = probabilities[token]
    return result


def correct_sampling_chances(logits, temperature, top_p):
    """The solution."""
    probabilities = with_temperature(logits, temperature)
    return normalised(cut(probabilities, kept_tokens(probabilities, top_p)))


LOGITS = [2.0, 0.5, 1.0, -1.0, 0.0]

sampling_chances = exercise("09.1", "sampling_chances", solution=correct_sampling_chances)
sampling_chances.case(LOGITS, 1.0, 1.0)  # neither changes anything
sampling_chances.case(LOGITS, 2.0, 0.8)
sampling_chances.case(LOGITS, 0.5, 0.9)
sampling_chances.case(LOGITS, 1.0, 0.7)
sampling_chances.case(LOGITS, 1.0, 0.3)  # only the most likely token is left
sampling_chances.case([0.0, 3.0, 1.0], 1.5, 0.95)
sampling_chances.case([0.0, 0.0, 0.0, 0.0], 1.0, 0.5)  # two tokens add up to exactly top_p


@sampling_chances.mistake
def cuts_before_the_temperature(logits, temperature, top_p):
    """You cut before the temperature: the temperature comes first, and a flatter distribution
    needs more tokens to reach top_p.
    """
    kept = kept_tokens(softmax(logits), top_p)
    return normalised(cut(with_temperature(logits, temperature), kept))


@sampling_chances.mistake
def leaves_out_the_crossing_token(logits, temperature, top_p):
    """You left out the token that crosses top_p: the tokens that are kept add up to
    at least top_p.
    """
    probabilities = with_temperature(logits, temperature)
    kept = kept_tokens(probabilities, top_p)
    total = sum(probabilities[token] for token in kept)
    if len(kept) > 1 and total > top_p:
        kept = kept[:-1]
    return normalised(cut(probabilities, kept))


@sampling_chances.mistake
def does_not_normalise(logits, temperature, top_p):
    """What is left does not add up to 1: divide by its sum."""
    probabilities = with_temperature(logits, temperature)
    return cut(probabilities, kept_tokens(probabilities, top_p))


@sampling_chances.mistake
def multiplies_by_the_temperature(logits, temperature, top_p):
    """You multiplied by the temperature: logits are divided by it, so that a high one flattens."""
    return correct_sampling_chances(logits, 1 / temperature, top_p)


@sampling_chances.mistake
def has_no_temperature(logits, temperature, top_p):
    """The temperature changed nothing: if you divided the probabilities by it, dividing by their
    sum undoes that. Divide the logits.
    """
    return correct_sampling_chances(logits, 1.0, top_p)


# 09.2: the wrong merges, by their logits


def spread_of(logits):
    """The mean variance of the logits at a position."""
    variances = np.var(logits, axis=1)  # (positions,)
    return variances.mean()


def differences(reference, merged):
    """All differences of two tables of logits (positions, vocabulary), in one row."""
    return np.ravel(np.subtract(merged, reference))


def relative_difference(reference, merged):
    """The root mean square of the differences, in units of the logits' standard deviation."""
    mean_square = np.mean(differences(reference, merged) ** 2)
    return sqrt(mean_square / spread_of(reference))


def above(limit, measure, reference, merges):
    """The names of the merges whose measure is above the limit."""
    names = []
    for name, logits in merges.items():
        if measure(reference, logits) > limit:
            names.append(name)
    return names


def correct_wrong_merges(reference, merges, limit):
    """The solution."""
    return above(limit, relative_difference, reference, merges)


def moved(logits, change):
    """The logits with `change(position, token)` added, in units of their standard deviation."""
    scale = sqrt(spread_of(logits))
    result = np.array(logits)
    for position, token in np.ndindex(result.shape):
        result[position, token] += scale * change(position, token)
    return result.tolist()


def sign(position, token):
    """1 and -1 in turns, as on a chessboard."""
    return (-1) ** (position + token + 1)


def rounded(position, token):
    """The rounding of a right merge: 0.3 % of the spread, up and down in turns."""
    return 0.003 * sign(position, token)


def half_as_large(position, token):
    """A wrong merge: 10 % of the spread, up and down in turns."""
    return 0.1 * sign(position, token)


def one_outlier(position, token):
    """A right merge with one logit that is 6 % of the spread off."""
    if (position, token) == (2, 3):
        return 0.06
    return 0.0


def tie_turned(position, token):
    """A right merge that changes the order of two logits that are nearly the same."""
    if (position, token) == (1, 2):
        return 0.002
    return 0.0


POSITIONS = [  # the logits of five tokens at six positions
    [6.0, 1.0, -2.0, 0.5, -3.0],
    [-1.0, 4.0, 3.998, -2.0, 0.0],  # nearly a tie
    [0.0, -3.0, 5.0, 1.0, -1.0],
    [2.0, -1.0, 0.0, -4.0, 7.0],
    [-2.0, 3.0, -1.0, 5.5, 0.0],
    [1.0, -2.0, 0.0, -1.0, 4.5],
]
SMALL = (np.array(POSITIONS) / 100).tolist()
LARGE = (np.array(POSITIONS) * 50).tolist()
# each position 20 higher than the one before, which changes no probability
HEIGHTS = [[0.0], [20.0], [40.0], [60.0], [80.0], [100.0]]
SHIFTED = np.add(POSITIONS, HEIGHTS).tolist()


def three_merges(logits):
    """One wrong merge, which chooses the same tokens, among two right ones."""
    return {
        "first": moved(logits, tie_turned),
        "second": moved(logits, half_as_large),
        "third": moved(logits, rounded),
    }


wrong_merges = exercise("09.2", "wrong_merges", solution=correct_wrong_merges)
wrong_merges.case(POSITIONS, three_merges(POSITIONS), 0.02)
wrong_merges.case(SMALL, three_merges(SMALL), 0.02)  # small logits: small differences
wrong_merges.case(LARGE, three_merges(LARGE), 0.02)
wrong_merges.case(POSITIONS, {"outlier": moved(POSITIONS, one_outlier)}, 0.02)  # accepted
wrong_merges.case(POSITIONS, {"same": POSITIONS}, 0.02)
wrong_merges.case(SHIFTED, three_merges(SHIFTED), 0.02)


@wrong_merges.mistake
def compares_tokens(reference, merges, limit):
    """You compared the tokens that are chosen: a wrong merge can choose the same ones, and rounding
    can turn a tie. Compare the logits themselves.
    """

    def other_tokens(ours, theirs):
        tokens = np.argmax(ours, axis=1)  # (positions,)
        merged_tokens = np.argmax(theirs, axis=1)
        return np.mean(tokens != merged_tokens)

    return above(limit, other_tokens, reference, merges)


@wrong_merges.mistake
def ignores_the_spread(reference, merges, limit):
    """You did not divide by the spread of the logits: a difference of 0.1 is large for logits
    between -0.05 and 0.05 and nothing for those between -300 and 300.
    """

    def root_mean_square(ours, theirs):
        return sqrt(np.mean(differences(ours, theirs) ** 2))

    return above(limit, root_mean_square, reference, merges)


@wrong_merges.mistake
def takes_the_largest(reference, merges, limit):
    """You took the largest difference: one logit that is off does not make a merge wrong, so take
    the root mean square over all of them.
    """

    def largest(ours, theirs):
        sizes = np.abs(differences(ours, theirs))
        return sizes.max() / sqrt(spread_of(ours))

    return above(limit, largest, reference, merges)


@wrong_merges.mistake
def lets_signs_cancel(reference, merges, limit):
    """You averaged the differences with their signs, which cancel: square them first."""

    def mean_difference(ours, theirs):
        mean = np.mean(differences(ours, theirs))
        return abs(mean) / sqrt(spread_of(ours))

    return above(limit, mean_difference, reference, merges)


@wrong_merges.mistake
def takes_the_spread_over_all_positions(reference, merges, limit):
    """You took one variance over all logits: positions may differ in height, which changes no
    probability, so take the variance at each position, and then the mean.
    """

    def over_all_positions(ours, theirs):
        mean_square = np.mean(differences(ours, theirs) ** 2)
        return sqrt(mean_square / np.var(ours))

    return above(limit, over_all_positions, reference, merges)


# 09.3: the same problems with fewer bits


def read_paired(measured):
    """From how many problems got better and worse, by McNemar's exact test."""
    better = measured["better"]
    worse = measured["worse"]
    n = measured["problems"]
    changed = better + worse
    tail = sum(comb(changed, i) for i in range(min(better, worse) + 1)) / 2**changed
    p = min(1.0, 2 * tail)
    sentence = f"Of {n} problems {better} got better and {worse} worse (paired test: p = {p:.2g})."
    if p > 0.05:
        return "stays", sentence
    if better > worse:
        return "rises", sentence
    return "falls", sentence


fewer_bits = experiment(
    "09.3",
    "fewer_bits",
    read=read_paired,
    wrong={
        "falls": (
            "No loss was shown. A small one may hide in so few problems: see how many would show "
            "it, by `paired_items` of chapter 08."
        ),
        "stays": (
            "More answers changed in one direction than chance explains, so rounding moved this "
            "model: report the score of the 4-bit model."
        ),
        "rises": (
            "Rounding adds errors to weights and no skill; where it seems to help, suspect chance "
            "or a policy that was trained on the 4-bit base."
        ),
    },
)
# two adapters: the second of the stored run
fewer_bits.example({"better": 2, "worse": 2, "problems": 120}, gives="stays")
fewer_bits.example({"better": 1, "worse": 12, "problems": 257}, gives="falls")
