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
sampling_chances.case([800.0, 799.0, 0.0], 1.0, 0.9)  # exp(800) is too large for a float


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


@sampling_chances.mistake
def cuts_nothing(logits, temperature, top_p):
    """You cut nothing off: top_p below 1 gives the unlikely tokens the probability 0."""
    return with_temperature(logits, temperature)


@sampling_chances.mistake
def takes_min_p(logits, temperature, top_p):
    """You compared each token with the likeliest one: that is min_p. top_p adds up probabilities
    from the likeliest token on.
    """
    probabilities = with_temperature(logits, temperature)
    lowest = top_p * max(probabilities)
    kept = []
    for token, chance in enumerate(probabilities):
        if chance >= lowest:
            kept.append(token)
    return normalised(cut(probabilities, kept))


@sampling_chances.mistake
def takes_the_tokens_as_they_come(logits, temperature, top_p):
    """You added the tokens up in the order in which they stand: begin with the likeliest one."""
    probabilities = with_temperature(logits, temperature)
    kept = []
    total = 0.0
    for token, chance in enumerate(probabilities):
        kept.append(token)
        total += chance
        if total >= top_p:
            break
    return normalised(cut(probabilities, kept))


@sampling_chances.mistake
def goes_one_token_too_far(logits, temperature, top_p):
    """You went one token too far where the sum is exactly top_p: stop as soon as it is reached."""
    probabilities = with_temperature(logits, temperature)
    kept = kept_tokens(probabilities, top_p + 1e-9)
    return normalised(cut(probabilities, kept))


@sampling_chances.mistake
def returns_the_kept_ones(logits, temperature, top_p):
    """You returned only the tokens that are kept, the likeliest first: each token keeps its place,
    and one that is cut off has 0.0 there.
    """
    probabilities = with_temperature(logits, temperature)
    kept = kept_tokens(probabilities, top_p)
    return normalised([probabilities[token] for token in kept])


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


def in_the_middle(position, token):
    """A wrong merge: 10 % of the spread, at two positions in the middle."""
    if position in (2, 3):
        return half_as_large(position, token)
    return 0.0


def few_large_ones(position, token):
    """A wrong merge: 12 % of the spread at three of the thirty logits."""
    if (position, token) in ((1, 0), (3, 2), (4, 4)):
        return 0.12
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
wrong_merges.case(POSITIONS, {"middle": moved(POSITIONS, in_the_middle)}, 0.02, gives=["middle"])
wrong_merges.case(POSITIONS, {"few": moved(POSITIONS, few_large_ones)}, 0.02, gives=["few"])
# logits three times as large: 2.1 spreads of the reference, 0.7 of the merge's own
wrong_merges.case(
    POSITIONS, {"tripled": (3 * np.array(POSITIONS)).tolist()}, 1.0, gives=["tripled"]
)


def uneven_positions():
    """The positions, every second of them with logits a hundred times smaller."""
    logits = np.array(POSITIONS)
    logits[::2] *= 0.01
    return logits.tolist()


def just_below(position, token):
    """A right merge: 1.8 % of the spread, up and down in turns."""
    return 0.018 * sign(position, token)


def just_above(position, token):
    """A wrong merge: 2.6 % of the spread, up and down in turns."""
    return 0.026 * sign(position, token)


# A mean of standard deviations is smaller than the root of the mean variance: 2.6 and 3.3 % here.
UNEVEN = uneven_positions()
wrong_merges.case(UNEVEN, {"below": moved(UNEVEN, just_below)}, 0.02, gives=[])
wrong_merges.case(UNEVEN, {"above": moved(UNEVEN, just_above)}, 0.02, gives=["above"])
TWO_WRONG = {
    "first": moved(POSITIONS, half_as_large),
    "second": moved(POSITIONS, rounded),
    "third": moved(POSITIONS, in_the_middle),
}
wrong_merges.case(POSITIONS, TWO_WRONG, 0.02, gives=["first", "third"])


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
def takes_no_root(reference, merges, limit):
    """You compared a mean of squares with the limit: take its root, or a difference of 10 % counts
    as 1 %.
    """

    def mean_square(ours, theirs):
        return relative_difference(ours, theirs) ** 2

    return above(limit, mean_square, reference, merges)


@wrong_merges.mistake
def takes_the_spread_over_all_positions(reference, merges, limit):
    """You took one variance over all logits: positions may differ in height, which changes no
    probability, so take the variance at each position, and then the mean.
    """

    def over_all_positions(ours, theirs):
        mean_square = np.mean(differences(ours, theirs) ** 2)
        return sqrt(mean_square / np.var(ours))

    return above(limit, over_all_positions, reference, merges)


@wrong_merges.mistake
def looks_at_the_first_position(reference, merges, limit):
    """You looked at one position alone: a merge can be wrong at the others, so take the mean over
    all of them.
    """

    def at_the_first(ours, theirs):
        return relative_difference(ours[:1], theirs[:1])

    return above(limit, at_the_first, reference, merges)


@wrong_merges.mistake
def averages_the_sizes(reference, merges, limit):
    """You averaged the sizes of the differences: a few large ones disappear in such a mean. Square
    them before the mean, and take the root after it.
    """

    def mean_size(ours, theirs):
        return np.mean(np.abs(differences(ours, theirs))) / sqrt(spread_of(ours))

    return above(limit, mean_size, reference, merges)


@wrong_merges.mistake
def divides_by_the_merges_spread(reference, merges, limit):
    """You divided by the spread of the merge: a wrong merge can have larger logits and hide its
    error behind them. Divide by the spread of the reference.
    """

    def by_its_own(ours, theirs):
        return relative_difference(theirs, ours)

    return above(limit, by_its_own, reference, merges)


@wrong_merges.mistake
def averages_the_standard_deviations(reference, merges, limit):
    """You took standard deviations too early: a mean of them, or each position by its own. Average
    the variances first, and take one root.
    """

    def by_mean_deviation(ours, theirs):
        mean_square = np.mean(differences(ours, theirs) ** 2)
        return sqrt(mean_square) / np.std(ours, axis=1).mean()

    return above(limit, by_mean_deviation, reference, merges)


@wrong_merges.mistake
def returns_the_worst_alone(reference, merges, limit):
    """You returned the worst merge alone: every merge above the limit is wrong."""
    worst = None
    largest = limit
    for name, logits in merges.items():
        difference = relative_difference(reference, logits)
        if difference > largest:
            worst = name
            largest = difference
    if worst is None:
        return []
    return [worst]


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
# both measured: the unpacked merge of the chapter, and a 16-bit merge on more problems
fewer_bits.example({"better": 4, "worse": 8, "problems": 120}, gives="stays")
fewer_bits.example({"better": 1, "worse": 12, "problems": 257}, gives="falls")

# 09.4: a batch of prompts for generation


def correct_pad_prompts(prompts, pad):
    """The solution."""
    longest = max(len(prompt) for prompt in prompts)
    ids = []
    mask = []
    for prompt in prompts:
        missing = longest - len(prompt)
        ids.append([pad] * missing + prompt)
        mask.append([0] * missing + [1] * len(prompt))
    return ids, mask


pad_prompts = exercise("09.4", "pad_prompts", solution=correct_pad_prompts)
pad_prompts.case([[5, 6, 7], [8, 9]], 0)
pad_prompts.case([[5], [6, 7, 8, 9], [4, 3]], 0)
pad_prompts.case([[5, 1, 6, 1, 7], [8, 1, 9]], 1)  # the end token is the padding
pad_prompts.case([[1, 5, 6], [1, 8]], 1)  # a prompt that begins with it
pad_prompts.case([[4, 2], [3, 7]], 0)  # equally long: nothing to fill up


@pad_prompts.mistake
def pads_on_the_right(prompts, pad):
    """You padded on the right: the model continues at the end of the row, which has to be the end
    of the prompt.
    """
    ids, mask = correct_pad_prompts([prompt[::-1] for prompt in prompts], pad)
    return [row[::-1] for row in ids], [row[::-1] for row in mask]


@pad_prompts.mistake
def masks_by_the_token(prompts, pad):
    """You made the mask from the ids: where the padding is also the end token, real tokens of the
    prompt are hidden from the model. Make it from the number of missing ids.
    """
    ids, _ = correct_pad_prompts(prompts, pad)
    mask = []
    for row in ids:
        mask.append([int(token != pad) for token in row])
    return ids, mask


@pad_prompts.mistake
def masks_nothing(prompts, pad):
    """Your mask has a 1 for the padding: then the model reads it as text."""
    ids, _ = correct_pad_prompts(prompts, pad)
    return ids, [[1] * len(row) for row in ids]


@pad_prompts.mistake
def masks_the_wrong_way_round(prompts, pad):
    """Your mask is the wrong way round: 1 is a token to read, 0 is padding."""
    ids, mask = correct_pad_prompts(prompts, pad)
    return ids, [[1 - value for value in row] for row in mask]


@pad_prompts.mistake
def masks_on_the_other_side(prompts, pad):
    """Your ids are padded on the left, but your mask has its zeros on the right."""
    ids, mask = correct_pad_prompts(prompts, pad)
    return ids, [row[::-1] for row in mask]


@pad_prompts.mistake
def cuts_to_the_shortest(prompts, pad):
    """You cut the prompts to the shortest one: that loses text. Fill up to the longest."""
    shortest = min(len(prompt) for prompt in prompts)
    ids = [prompt[-shortest:] for prompt in prompts]
    return ids, [[1] * shortest for prompt in prompts]


@pad_prompts.mistake
def returns_the_ids_alone(prompts, pad):
    """You returned the ids alone: without an attention mask the model reads the padding as text."""
    ids, _ = correct_pad_prompts(prompts, pad)
    return ids
