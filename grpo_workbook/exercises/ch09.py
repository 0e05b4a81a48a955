"""The exercises of notebook 09_merge_and_inference."""

from math import comb, exp

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


# 09.2 and 09.3: the same problems with another prompt, and with fewer bits


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


other_prompt = experiment(
    "09.2",
    "other_prompt",
    read=read_paired,
    wrong={
        "falls": (
            "The form followed the turn of the assistant here, and not the words before it: do "
            "not rely on that with another prompt or model."
        ),
        "stays": (
            "The answers changed more than chance would change them: the system prompt is a part "
            "of what the model was trained on, so it belongs to the model."
        ),
        "rises": (
            "A prompt that the rewards never saw is rarely better than the one of training; look "
            "at the completions before you believe it."
        ),
    },
)
# without a system prompt, and with the same in other words
other_prompt.example({"better": 0, "worse": 15, "problems": 120}, gives="falls")
other_prompt.example({"better": 1, "worse": 0, "problems": 120}, gives="stays")

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
fewer_bits.example({"better": 1, "worse": 0, "problems": 120}, gives="stays")
