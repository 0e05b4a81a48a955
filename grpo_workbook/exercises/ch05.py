"""The exercises of notebook 05_monitoring."""

from collections.abc import Mapping
from itertools import combinations
from statistics import mean

from grpo_workbook.exercises.tasks import Exercise, exercise, experiment

# 05.1: is the reward gamed?

RISING = [0.2, 0.3, 0.3, 0.5, 0.7, 0.8, 0.8, 0.9, 0.9]
EVEN = [0.5, 0.6, 0.4, 0.5, 0.5, 0.6, 0.5, 0.5, 0.5]
# real rewards are noisy: here the first and the last step alone show the opposite
NOISY_RISING = [0.6, 0.2, 0.1, 0.3, 0.4, 0.6, 0.7, 0.6, 0.9, 0.8, 0.9, 0.5]
NOISY_EVEN = [0.2, 0.6, 0.5, 0.6, 0.5, 0.3, 0.6, 0.5, 0.5, 0.4, 0.3, 0.7]
HARDLY_RISING = [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.52, 0.52, 0.52]
# by more than 5 % of the first value, but by less than 0.05
RISING_BY_8_PERCENT = [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.54, 0.54, 0.54]
# the second half is better than the first, and the last third is not
LOW_IN_THE_MIDDLE = [0.5, 0.5, 0.1, 0.9, 0.5, 0.5]

is_gamed = exercise("05.1", "is_gamed")
is_gamed.case(RISING, [0.20, 0.55, 0.80], gives=False)
is_gamed.case(RISING, [0.20, 0.10, 0.00], gives=True)  # the accuracy falls
is_gamed.case(RISING, [0.60, 0.62, 0.61], gives=True)  # it stays
is_gamed.case(RISING, [0.20, 0.22, 0.24], gives=True)  # it rises by more than 5 %, not by 0.05
is_gamed.case(RISING[::-1], [0.20, 0.10, 0.00], gives=False)
is_gamed.case(RISING, [0.20, 0.05, 0.50], gives=False)  # it falls on the way
is_gamed.case(EVEN, [0.4, 0.3], gives=False)
is_gamed.case(NOISY_RISING, [0.3, 0.2, 0.3], gives=True)
is_gamed.case(NOISY_EVEN, [0.3, 0.2, 0.3], gives=False)
is_gamed.case([0.2, 0.6], [0.3, 0.3], gives=True)  # a third of two steps is one step
is_gamed.case(RISING, [0.20, 0.60, 0.20], gives=True)  # the accuracy rises, and is lost again
is_gamed.case(HARDLY_RISING, [0.3, 0.3], gives=False)
is_gamed.case(RISING_BY_8_PERCENT, [0.3, 0.3], gives=False)
is_gamed.case(LOW_IN_THE_MIDDLE, [0.3, 0.3], gives=False)
is_gamed.case([0.4, 0.4, 0.5, 0.5, 0.5, 0.1, 0.6, 0.6], [0.3, 0.3], gives=True)  # a third of 8 is 2
# the first and the last accuracy count, not the means of their thirds
is_gamed.case(RISING, [0.2, 0.6, 0.4, 0.4, 0.5, 0.3], gives=False)


def rises(reward):
    """Whether the last third is more than 0.05 above the first."""
    third = max(1, len(reward) // 3)
    return mean(reward[-third:]) > mean(reward[:third]) + 0.05


def correct_is_gamed(reward, heldout):
    """The solution."""
    return rises(reward) and heldout[-1] <= heldout[0] + 0.05


@is_gamed.mistake
def returns_the_opposite(reward, heldout):
    """You returned True for the runs that are not gamed: turn the result round."""
    return not correct_is_gamed(reward, heldout)


@is_gamed.mistake
def waits_for_the_accuracy_to_fall(reward, heldout):
    """You waited for the accuracy to fall: a reward that rises while accuracy stays is gamed
    too.
    """
    return rises(reward) and heldout[-1] < heldout[0] - 0.05


@is_gamed.mistake
def looks_at_the_accuracy_alone(reward, heldout):
    """You looked at the held-out accuracy alone: where the reward does not rise either, the disease
    is another one.
    """
    return heldout[-1] <= heldout[0] + 0.05


@is_gamed.mistake
def looks_at_the_reward_alone(reward, heldout):
    """You looked at the reward alone: it is meant to rise, and only the held-out accuracy shows
    whether it is gamed.
    """
    return rises(reward)


@is_gamed.mistake
def takes_the_lowest_accuracy(reward, heldout):
    """You took the lowest accuracy on the way: compare the last one with the first."""
    return rises(reward) and min(heldout[1:]) <= heldout[0] + 0.05


@is_gamed.mistake
def compares_two_steps(reward, heldout):
    """You compared the last step with the first: one step is noise, so compare the mean of the
    last third with that of the first.
    """
    return reward[-1] > reward[0] + 0.05 and heldout[-1] <= heldout[0] + 0.05


@is_gamed.mistake
def leaves_out_the_margin_of_the_reward(reward, heldout):
    """You counted every rise of the reward: a rise of less than 0.05 is noise."""
    third = max(1, len(reward) // 3)
    any_rise = mean(reward[-third:]) > mean(reward[:third])
    return any_rise and heldout[-1] <= heldout[0] + 0.05


@is_gamed.mistake
def leaves_out_the_margin_of_the_accuracy(reward, heldout):
    """You counted every rise of the accuracy: a rise of less than 0.05 is noise."""
    return rises(reward) and heldout[-1] <= heldout[0]


@is_gamed.mistake
def takes_the_highest_accuracy(reward, heldout):
    """You took the highest accuracy on the way: what was gained and lost again is not kept."""
    return rises(reward) and max(heldout[1:]) <= heldout[0] + 0.05


@is_gamed.mistake
def compares_halves(reward, heldout):
    """You compared halves of the run: compare the last third of the steps with the first third."""
    half = len(reward) // 2
    second_is_better = mean(reward[half:]) > mean(reward[:half]) + 0.05
    return second_is_better and heldout[-1] <= heldout[0] + 0.05


@is_gamed.mistake
def rounds_up(reward, heldout):
    """You rounded a third of the steps up (`-len(reward) // 3` does so too): round it down."""
    third = -(-len(reward) // 3)
    has_risen = mean(reward[-third:]) > mean(reward[:third]) + 0.05
    return has_risen and heldout[-1] <= heldout[0] + 0.05


@is_gamed.mistake
def takes_thirds_of_the_accuracy(reward, heldout):
    """You averaged thirds of the held-out accuracy too: compare its last value with its first."""
    third = max(1, len(heldout) // 3)
    return rises(reward) and mean(heldout[-third:]) <= mean(heldout[:third]) + 0.05


@is_gamed.mistake
def takes_the_margin_as_a_fraction(reward, heldout):
    """You took 0.05 as 5 % of the first value: it is a difference."""
    third = max(1, len(reward) // 3)
    has_risen = mean(reward[-third:]) > 1.05 * mean(reward[:third])
    return has_risen and heldout[-1] <= 1.05 * heldout[0]


# 05.2: the clinic, a diagnosis for each patient

CLINIC = {  # the name of each patient's log
    "A": "healthy_gemma_1",
    "B": "cold_sampling_1",
    "C": "free_form_1",
    "D": "shows_work_1",
    "E": "drifting_1",
    "F": "wrong_answers_1",
}
FINDINGS = {
    "A": "healthy",
    "B": "collapsed",
    "C": "format_ignored",
    "D": "hacked",
    "E": "rate_too_high",
    "F": "wrong_answers",
}

my_diagnosis = exercise("05.2", "my_diagnosis")
for letter in CLINIC:
    my_diagnosis.case(letter, gives=FINDINGS[letter])


def misdiagnose(
    task: Exercise, right: Mapping[str, object], patient: str, wrong: object, message: str
) -> None:
    """Add the mistake that is wrong about this patient, and right about the others."""

    def misdiagnosis(name: str) -> object:
        if name == patient:
            return wrong
        return right[name]

    misdiagnosis.__doc__ = message
    task.mistake(misdiagnosis)


NAMES = "collapsed drowned format_ignored frozen hacked healthy kl_too_high no_gradient".split()
NAMES += "rate_too_high rate_too_low reward_falls reward_flat saturated wrong_answers".split()
# For each patient the message to a wrong finding; "other" is for those that are not listed, so
# that no message gives the right one away.
MISTAKEN = {}
MISTAKEN["A", "other"] = (
    "In A all parts of the reward rise, and the held-out accuracy too: what is wrong?"
)
MISTAKEN["B", "other"] = "B's reward is high from the first step. What does a group of B look like?"
MISTAKEN["B", "no_gradient"] = (
    "B's groups have no variance, but why? Look at how many different texts a group holds."
)
MISTAKEN["B", "saturated"] = (
    "Half or more of B's groups have no variance from the first step, before it could learn: look "
    "at unique texts."
)
MISTAKEN["B", "healthy"] = (
    "B's reward is near its maximum after three steps, and from step 4 on the gradient is 0: what "
    "does a group of B look like?"
)
MISTAKEN["C", "other"] = (
    "C gets better at one of its two rewards: what is the weight of the other one?"
)
MISTAKEN["C", "healthy"] = (
    "C learns to be right, but look at the weight of its format reward and at the strict accuracy."
)
MISTAKEN["C", "drowned"] = (
    "C's format reward is not hidden by a larger spread: it would not count at all. Look at its "
    "weight."
)
MISTAKEN["C", "wrong_answers"] = (
    "C's lenient answers get better: look at what its other reward pays for."
)
MISTAKEN["D", "other"] = (
    "D's reward reaches its maximum: what happens to its held-out problems meanwhile?"
)
MISTAKEN["D", "healthy"] = "D's reward rises and looks healthy: what do its held-out problems say?"
MISTAKEN["E", "other"] = "E's correctness falls after a good start: how far do its adapters move?"
MISTAKEN["E", "reward_falls"] = (
    "E's reward falls, and the log shows why: how far do its adapters move?"
)
MISTAKEN["E", "kl_too_high"] = (
    "E's KL grows, and the log shows the cause: how far do its adapters move?"
)
MISTAKEN["F", "other"] = "Some parts of F's reward rise and one does not: what does each pay for?"
MISTAKEN["F", "reward_flat"] = (
    "F's reward is not flat, because two of its functions rise: compare them."
)
MISTAKEN["F", "healthy"] = (
    "F's reward rises, but only the form is learned: look at the correctness."
)
for patient in CLINIC:
    for wrong_name in NAMES:
        if wrong_name == FINDINGS[patient]:
            continue
        patient_message = MISTAKEN.get((patient, wrong_name), MISTAKEN[patient, "other"])
        misdiagnose(my_diagnosis, FINDINGS, patient, wrong_name, patient_message)


# 05.3: two diseases and a cure


def read_cured(measured):
    """From the first finding, the reward at both ends and the rate of different texts."""
    finding = measured["finding"]
    began, ended = measured["reward"]
    sentence = (
        f"The finding is {finding}; the reward went from {began:.2f} to {ended:.2f}, with "
        f"{measured['unique']:.0%} different texts in a group."
    )
    if finding in ("healthy", "truncated", "collapsed"):
        return finding, sentence
    return "another", sentence


cured = experiment(
    "05.3",
    "cured",
    read=read_cured,
    wrong={
        "healthy": (
            "Cut-off answers hid the second disease: are the texts of a group different now?"
        ),
        "truncated": (
            "A limit that leaves room for a whole answer (about 26 tokens) cuts nothing off: which "
            "limit does your cure set?"
        ),
        "collapsed": "The texts of a group differ as soon as the temperature is not near 0.",
        "another": "One of the two diseases, or none of them, explains what you see.",
    },
)
cured.example({"finding": "collapsed", "reward": (2.73, 2.83), "unique": 0.13}, gives="collapsed")
cured.example({"finding": "healthy", "reward": (1.34, 2.68), "unique": 0.26}, gives="healthy")
cured.example({"finding": "truncated", "reward": (0.13, 0.13), "unique": 0.13}, gives="truncated")

# 05.4: entropy that bought nothing

FALLING = [1.0, 0.8, 0.6, 0.1, 0.5, 0.4, 0.2, 0.15, 0.1, 0.1]
# the first step alone lies far above the mean of the first three
NOISY_START = [2.0, 0.8, 0.8, 0.5, 0.45, 0.4, 0.35, 0.31, 0.2, 0.1]
LATE_REWARD = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.9, 2.9]
HIGH_REWARD = [1.0, 1.2, 1.5, 2.0, 2.3, 2.6, 2.8, 2.9, 2.9, 2.9]

entropy_spent = exercise("05.4", "entropy_spent")
entropy_spent.case(FALLING, [1.0] * 10, 3.0, gives=9)
entropy_spent.case(FALLING, HIGH_REWARD, 3.0, gives=None)  # it was well spent
entropy_spent.case(FALLING, LATE_REWARD, 3.0, gives=9)
entropy_spent.case([0.4, 0.4, 0.4, 0.2, 0.2, 0.2], [1.0] * 6, 3.0, gives=None)
entropy_spent.case([1.0, 0.8], [1.0] * 2, 3.0, gives=None)  # fewer than three steps
entropy_spent.case([1.0, 1.0, 1.0, 0.2, 0.2, 0.2], [2.6, 2.6, 2.6, 2.0, 2.5, 2.5], 3.0, gives=6)
entropy_spent.case(NOISY_START, [1.0] * 10, 3.0, gives=9)
entropy_spent.case(FALLING, [2.43] * 10, 3.0, gives=None)  # 0.81 of the highest reward


def first_step_below(entropy, reward, low_entropy, low_reward, width=3):
    """The first step, from 1, at which the means of the last `width` steps are both low."""
    for step in range(width, len(entropy) + 1):
        recent_entropy = mean(entropy[step - width : step])
        recent_reward = mean(reward[step - width : step])
        if recent_entropy < low_entropy and recent_reward < low_reward:
            return step
    return None


def correct_entropy_spent(entropy, reward, highest):
    """The solution."""
    return first_step_below(entropy, reward, 0.25 * mean(entropy[:3]), 0.8 * highest)


@entropy_spent.mistake
def gives_the_last_step(entropy, reward, highest):
    """You looked at the end of the run alone: return the first step at which both are low."""
    if correct_entropy_spent(entropy, reward, highest) is None:
        return None
    return len(entropy)


@entropy_spent.mistake
def takes_0_for_none(entropy, reward, highest):
    """You returned 0 where there is no such step: return None."""
    return correct_entropy_spent(entropy, reward, highest) or 0


@entropy_spent.mistake
def takes_half(entropy, reward, highest):
    """You compared with half of the first entropy: the limit is a quarter of it."""
    return first_step_below(entropy, reward, 0.5 * mean(entropy[:3]), 0.8 * highest)


@entropy_spent.mistake
def forgets_the_highest_reward(entropy, reward, highest):
    """You compared the reward with 0.8: compare it with 0.8 of the highest reward."""
    return first_step_below(entropy, reward, 0.25 * mean(entropy[:3]), 0.8)


@entropy_spent.mistake
def stops_before_the_last_step(entropy, reward, highest):
    """You left out the last step: `range` ends before its last number, so add 1."""
    step = correct_entropy_spent(entropy, reward, highest)
    if step == len(entropy):
        return None
    return step


@entropy_spent.mistake
def looks_at_single_steps(entropy, reward, highest):
    """You looked at single steps: one step is noise, so take the mean of the last three."""
    return first_step_below(entropy, reward, 0.25 * mean(entropy[:3]), 0.8 * highest, width=1)


@entropy_spent.mistake
def leaves_out_the_reward(entropy, reward, highest):
    """You left out the reward: entropy that falls while the model learns is well spent."""
    return first_step_below(entropy, reward, 0.25 * mean(entropy[:3]), float("inf"))


@entropy_spent.mistake
def compares_with_a_quarter(entropy, reward, highest):
    """You compared the entropy with 0.25: compare it with a quarter of its own first three
    steps.
    """
    return first_step_below(entropy, reward, 0.25, 0.8 * highest)


@entropy_spent.mistake
def counts_from_0(entropy, reward, highest):
    """You counted from 0: the log's first step is 1."""
    step = correct_entropy_spent(entropy, reward, highest)
    if step is None:
        return None
    return step - 1


@entropy_spent.mistake
def starts_from_the_first_step_alone(entropy, reward, highest):
    """You compared with the first step alone: one step is noise, so take the mean of the first
    three.
    """
    return first_step_below(entropy, reward, 0.25 * entropy[0], 0.8 * highest)


# 05.5: the published runs of data/gpu_runs.csv

GPU_CLINIC = {
    "gemma3_1b": {"healthy"},
    "llama32_3b": {"healthy"},
    "qwen25_3b": {"healthy"},
    "phi4_14b": {"truncated"},
    "llama32_1b_fp8": {"reference_differs", "truncated"},
    "qwen3_0.6b_base": {"kl_too_high", "reward_falls"},
}

gpu_diagnosis = exercise("05.5", "gpu_diagnosis")
for run_name, run_findings in GPU_CLINIC.items():
    gpu_diagnosis.case(run_name, gives=run_findings)


GPU_NAMES = ["healthy", "kl_too_high", "rate_too_low", "reference_differs"]
GPU_NAMES += ["reward_falls", "reward_flat", "truncated"]
GPU_MISTAKEN = {}
GPU_MISTAKEN["gemma3_1b", "other"] = (
    "gemma3_1b's reward rises, and its KL and its lengths stay moderate."
)
GPU_MISTAKEN["gemma3_1b", "reward_flat"] = (
    "gemma3_1b's reward is flat for 60 steps, and then it rises: read the whole curve."
)
GPU_MISTAKEN["llama32_3b", "other"] = (
    "llama32_3b's reward rises to the end, and its KL levels off near 0.1."
)
GPU_MISTAKEN["qwen25_3b", "other"] = "qwen25_3b's reward rises, and its KL levels off below 0.1."
GPU_MISTAKEN["qwen25_3b", "truncated"] = (
    "qwen25_3b begins near its limit, but its answers get shorter and its reward rises: it "
    "found the way out by itself."
)
GPU_MISTAKEN["phi4_14b", "other"] = (
    "phi4_14b's reward goes nowhere, and the log shows one cause: how many of its 200 tokens "
    "does it use?"
)
GPU_MISTAKEN["llama32_1b_fp8", "other"] = (
    "llama32_1b_fp8 has two findings: look at the KL of its first steps, and at the fraction "
    "that is cut off."
)
GPU_MISTAKEN["llama32_1b_fp8", "kl_too_high"] = (
    "llama32_1b_fp8's KL does not grow: it is 0.6 in the first steps, before anything was learned."
)
GPU_MISTAKEN["llama32_1b_fp8", "kl_too_high, truncated"] = (
    "llama32_1b_fp8's KL does not grow: it is 0.6 in the first steps, before anything was learned."
)
GPU_MISTAKEN["llama32_1b_fp8", "reference_differs"] = (
    "llama32_1b_fp8 has a second finding: look at the fraction that is cut off."
)
GPU_MISTAKEN["llama32_1b_fp8", "truncated"] = (
    "llama32_1b_fp8 has a second finding: look at the KL of its first steps."
)
GPU_MISTAKEN["qwen3_0.6b_base", "other"] = (
    "qwen3_0.6b_base has two findings: which two curves break at step 70?"
)
GPU_MISTAKEN["qwen3_0.6b_base", "truncated"] = (
    "qwen3_0.6b_base is not at its limit in its first 60 steps: what else changes at step 70?"
)
GPU_MISTAKEN["qwen3_0.6b_base", "reward_falls"] = (
    "qwen3_0.6b_base has a second finding: look at the KL when the reward falls."
)
GPU_MISTAKEN["qwen3_0.6b_base", "kl_too_high"] = (
    "qwen3_0.6b_base has a second finding: look at the reward when the KL jumps."
)
# sets of one or two findings, and the one of three that is likely
wrong_sets = [{"kl_too_high", "reward_falls", "truncated"}]
for set_size in (1, 2):
    for chosen in combinations(GPU_NAMES, set_size):
        wrong_sets.append(set(chosen))
for run_name in GPU_CLINIC:
    for wrong_set in wrong_sets:
        if wrong_set == GPU_CLINIC[run_name]:
            continue
        words = ", ".join(sorted(wrong_set))
        run_message = GPU_MISTAKEN.get((run_name, words), GPU_MISTAKEN[run_name, "other"])
        misdiagnose(gpu_diagnosis, GPU_CLINIC, run_name, wrong_set, run_message)
