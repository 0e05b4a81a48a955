"""The exercises of notebook 05_monitoring."""

from statistics import mean

from grpo_workbook.exercises.tasks import exercise, experiment

# 05.1: is the reward gamed?

RISING = [0.2, 0.3, 0.3, 0.5, 0.7, 0.8, 0.8, 0.9, 0.9]
EVEN = [0.5, 0.6, 0.4, 0.5, 0.5, 0.6, 0.5, 0.5, 0.5]
# real rewards are noisy: here the first and the last step alone show the opposite
NOISY_RISING = [0.6, 0.2, 0.1, 0.3, 0.4, 0.6, 0.7, 0.6, 0.9, 0.8, 0.9, 0.5]
NOISY_EVEN = [0.2, 0.6, 0.5, 0.6, 0.5, 0.3, 0.6, 0.5, 0.5, 0.4, 0.3, 0.7]

is_gamed = exercise("05.1", "is_gamed")
is_gamed.case(RISING, [0.20, 0.55, 0.80], gives=False)
is_gamed.case(RISING, [0.20, 0.10, 0.00], gives=True)  # the accuracy falls
is_gamed.case(RISING, [0.20, 0.22, 0.21], gives=True)  # it stays
is_gamed.case(RISING[::-1], [0.20, 0.10, 0.00], gives=False)
is_gamed.case(RISING, [0.20, 0.05, 0.50], gives=False)  # it falls on the way
is_gamed.case(EVEN, [0.4, 0.3], gives=False)
is_gamed.case(NOISY_RISING, [0.3, 0.2, 0.3], gives=True)
is_gamed.case(NOISY_EVEN, [0.3, 0.2, 0.3], gives=False)
is_gamed.case([0.2, 0.6], [0.3, 0.3], gives=True)  # a third of two steps is one step


def rises(reward):
    """Whether the last third is more than 0.05 above the first."""
    third = max(1, len(reward) // 3)
    return mean(reward[-third:]) > mean(reward[:third]) + 0.05


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


def but_for(patient, finding, letter):
    """The right finding of the patient `letter`, but for `patient` this one."""
    if letter == patient:
        return finding
    return FINDINGS[letter]


@my_diagnosis.mistake
def b_has_no_gradient(letter):
    """B's groups have no variance, but why? Look at how many different texts a group holds."""
    return but_for("B", "no_gradient", letter)


@my_diagnosis.mistake
def b_is_saturated(letter):
    """B has no variance from its first step, before it could learn: look at unique texts."""
    return but_for("B", "saturated", letter)


@my_diagnosis.mistake
def b_is_healthy(letter):
    """B's reward is high from the first step and stays there: nothing is learned, because the
    gradient is 0.
    """
    return but_for("B", "healthy", letter)


@my_diagnosis.mistake
def c_is_healthy(letter):
    """C learns to be right, but look at its format reward and the strict accuracy."""
    return but_for("C", "healthy", letter)


@my_diagnosis.mistake
def d_is_healthy(letter):
    """D's reward rises and looks healthy: what do its held-out problems say?"""
    return but_for("D", "healthy", letter)


@my_diagnosis.mistake
def e_has_a_falling_reward(letter):
    """E's reward falls, but the log shows the cause: how far did its adapters move?"""
    return but_for("E", "reward_falls", letter)


@my_diagnosis.mistake
def e_has_a_large_kl(letter):
    """E's KL grows, but the log shows the cause: how far did its adapters move?"""
    return but_for("E", "kl_too_high", letter)


@my_diagnosis.mistake
def f_has_a_flat_reward(letter):
    """F's reward is not flat, because one of its two functions rises: compare them."""
    return but_for("F", "reward_flat", letter)


@my_diagnosis.mistake
def f_is_healthy(letter):
    """F's reward rises, but only its form is learned: look at the correctness reward."""
    return but_for("F", "healthy", letter)


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
        "truncated": "With a limit of 64 tokens nothing is cut off: an answer has about 26.",
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
entropy_spent.case(FALLING, [2.55] * 10, 3.0, gives=None)  # 0.85 of the highest reward


def first_step_below(entropy, reward, low_entropy, low_reward, width=3):
    """The first step, from 1, at which the means of the last `width` steps are both low."""
    for step in range(width, len(entropy) + 1):
        recent_entropy = mean(entropy[step - width : step])
        recent_reward = mean(reward[step - width : step])
        if recent_entropy < low_entropy and recent_reward < low_reward:
            return step
    return None


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
    step = first_step_below(entropy, reward, 0.25 * mean(entropy[:3]), 0.8 * highest)
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


def but_for_run(patient, finding, run):
    """The right findings of a run, but for the run `patient` this finding alone."""
    if run == patient:
        return {finding}
    return GPU_CLINIC[run]


@gpu_diagnosis.mistake
def gemma3_is_flat(run):
    """gemma3_1b's reward is flat for 60 steps, and then it rises: read the whole curve."""
    return but_for_run("gemma3_1b", "reward_flat", run)


@gpu_diagnosis.mistake
def qwen25_is_truncated(run):
    """qwen25_3b begins near its limit, but its answers get shorter and its reward rises: it found
    the way out by itself.
    """
    return but_for_run("qwen25_3b", "truncated", run)


@gpu_diagnosis.mistake
def phi4_is_flat(run):
    """phi4_14b's reward is flat, but the log shows the cause: how many of its 200 tokens does it
    use?
    """
    return but_for_run("phi4_14b", "reward_flat", run)


@gpu_diagnosis.mistake
def llama32_has_a_large_kl(run):
    """llama32_1b_fp8's KL does not grow: it is 0.6 in the first steps, before anything was
    learned.
    """
    return but_for_run("llama32_1b_fp8", "kl_too_high", run)


@gpu_diagnosis.mistake
def llama32_has_only_another_reference(run):
    """llama32_1b_fp8 has a second finding: look at the fraction that is cut off."""
    return but_for_run("llama32_1b_fp8", "reference_differs", run)


@gpu_diagnosis.mistake
def llama32_is_only_truncated(run):
    """llama32_1b_fp8 has a second finding: look at the KL of its first steps."""
    return but_for_run("llama32_1b_fp8", "truncated", run)


@gpu_diagnosis.mistake
def qwen3_is_truncated(run):
    """qwen3_0.6b_base is not at its limit in its first 60 steps: what else changes at step 70?"""
    return but_for_run("qwen3_0.6b_base", "truncated", run)


@gpu_diagnosis.mistake
def qwen3_has_only_a_falling_reward(run):
    """qwen3_0.6b_base has a second finding: look at the KL when the reward falls."""
    return but_for_run("qwen3_0.6b_base", "reward_falls", run)
