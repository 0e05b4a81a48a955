"""The exercises of notebook 05_monitoring."""

from functools import partial
from statistics import mean

from grpo_workbook.exercises import exercise, experiment

# 05.1 is it gamed?


def _risen(reward):
    third = max(1, len(reward) // 3)
    return mean(reward[-third:]) > mean(reward[:third]) + 0.05


_UP = [0.2, 0.3, 0.3, 0.5, 0.7, 0.8, 0.8, 0.9, 0.9]
_EVEN = [0.5, 0.6, 0.4, 0.5, 0.5, 0.6, 0.5, 0.5, 0.5]
exercise("05.1", "is_gamed", [
    ((_UP, [0.20, 0.55, 0.80]), False),
    ((_UP, [0.20, 0.10, 0.00]), True),
    ((_UP, [0.20, 0.22, 0.21]), True),
    ((_UP[::-1], [0.20, 0.10, 0.00]), False),
    ((_UP, [0.20, 0.05, 0.50]), False),
    ((_EVEN, [0.4, 0.3]), False),
], {
    "you waited for the accuracy to fall: a reward that rises while accuracy stays is gamed "
    "too": lambda reward, heldout: _risen(reward) and heldout[-1] < heldout[0] - 0.05,
    "you looked at the held-out accuracy alone: without a rising reward it is another "
    "disease": lambda reward, heldout: heldout[-1] <= heldout[0] + 0.05,
    "you looked at the reward alone: a rising reward is the aim of training "
    "for": lambda reward, heldout: _risen(reward),
    "you took the lowest accuracy on the way: compare the last one with the "
    "first": lambda reward, heldout: _risen(reward) and min(heldout[1:]) <= heldout[0] + 0.05,
})  # fmt: skip

# 05.2 the clinic: each patient's log, and its findings

_CLINIC = {
    "A": ("healthy_gemma_1", "healthy"),
    "B": ("cold_sampling_1", "collapsed"),
    "C": ("free_form_1", "format_ignored"),
    "D": ("shows_work_1", "hacked"),
    "E": ("drifting_1", "rate_too_high"),
    "F": ("rate_by_100_1", "rate_too_low"),
    "G": ("unscaled_reward_1", "drowned"),
    "H": ("healthy_dr_grpo_1", "healthy"),
    "I": ("four_tokens_1", "truncated"),
    "J": ("frozen_adapters_1", "frozen"),
    "K": ("healthy_long_3", "healthy saturated"),
    "L": ("wrong_answers_1", "wrong_answers"),
}
CLINIC = {letter: log for letter, (log, _) in _CLINIC.items()}
_WRONG = [
    ("B", "no_gradient", "B's groups have no variance, but why? Look at how many different texts a "
     "group holds"),
    ("B", "saturated", "B has no variance from its first step, before it could learn: look at "
     "unique texts"),
    ("B", "healthy", "B's reward is high from the first step and stays: nothing is learned, its "
     "gradient is 0"),
    ("C", "healthy", "C learns to be right, but look at its format reward and the strict accuracy"),
    ("D", "healthy", "D's reward rises and looks healthy: what do its held-out problems say?"),
    ("E", "reward_falls", "E's reward falls, but a cause is in the log: how far did its adapters "
     "move?"),
    ("E", "kl_too_high", "E's KL grows, but a cause is in the log: how far did its adapters move?"),
    ("F", "frozen", "F's adapters do move, a very little"),
    ("F", "reward_flat", "F's reward is flat, but a cause is in the log: how far did its adapters "
     "move?"),
    ("G", "healthy", "G's total is far below 0: one of its rewards is counted in characters"),
    ("H", "rate_too_low", "H is healthy: its loss type divides by another number, so its gradient "
     "norm is another"),
    ("I", "never_ends", "I runs to its limit, but nothing is earned on the way: how long may it "
     "be?"),
    ("J", "rate_too_low", "J's adapters do not move at all, with a usual learning rate"),
    ("K", "healthy", "K is healthy and has one finding more: look at its zero-variance groups"),
    ("L", "reward_flat", "L's reward rises, by its form alone: compare the two"),
]  # fmt: skip


def _clinic(number, name, findings, wrong):
    """An exercise that asks for the findings of each patient; `wrong`: patient, findings, why."""
    right = {patient: set(names.split()) for patient, names in findings.items()}

    def but(patient, names):
        return lambda asked: set(names.split()) if asked == patient else right[asked]

    mistakes = [(but(patient, names), why) for patient, names, why in wrong]
    cases = [((patient,), names) for patient, names in right.items()]
    exercise(number, name, cases, mistakes)


_clinic("05.2", "my_diagnosis", {letter: names for letter, (_, names) in _CLINIC.items()}, _WRONG)

# 05.3 two diseases and a cure


def _read_cured(measured):
    found = measured["finding"]
    right = found if found in _CURED else "another"
    began, ended = measured["reward"]
    said = f"The finding is {found}; the reward went from {began:.2f} to {ended:.2f}"
    return right, f"{said}, with {measured['unique']:.0%} different texts in a group."


_CURED = {
    "healthy": "Cut-off answers hid the second disease: are the texts of a group different now?",
    "truncated": "With a limit of 64 tokens nothing is cut off: an answer has about 26.",
    "collapsed": "The texts of a group differ as soon as the temperature is not near 0.",
    "another": "One of the two diseases, or none of them, explains what you see.",
}
experiment("05.3", "cured", _read_cured, _CURED, [
    ({"finding": "collapsed", "reward": (2.73, 2.83), "unique": 0.13}, "collapsed"),
    ({"finding": "healthy", "reward": (1.34, 2.68), "unique": 0.26}, "healthy"),
    ({"finding": "truncated", "reward": (0.13, 0.13), "unique": 0.13}, "truncated"),
])  # fmt: skip

# 05.4 entropy that bought nothing


def _spent(entropy, reward, highest, *, start=None, enough=0.8, width=3):
    for step in range(width, len(entropy) + 1):
        sure, paid = (mean(values[step - width : step]) for values in (entropy, reward))
        if sure < 0.25 * (start or mean(entropy[:3])) and paid < enough * highest:
            return step
    return None


_FALLS = [1.0, 0.8, 0.6, 0.1, 0.5, 0.4, 0.2, 0.15, 0.1, 0.1]
_LOW, _HIGH = [1.0] * 8 + [2.9, 2.9], [1.0, 1.2, 1.5, 2.0, 2.3, 2.6, 2.8, 2.9, 2.9, 2.9]
exercise("05.4", "entropy_spent", [
    ((_FALLS, [1.0] * 10, 3.0), 9),
    ((_FALLS, _HIGH, 3.0), None),
    ((_FALLS, _LOW, 3.0), 9),
    (([0.4, 0.4, 0.4, 0.2, 0.2, 0.2], [1.0] * 6, 3.0), None),
    ((_FALLS[:2], [1.0] * 2, 3.0), None),
    (([1.0, 1.0, 1.0, 0.2, 0.2, 0.2], [2.6, 2.6, 2.6, 2.0, 2.5, 2.5], 3.0), 6),
], {
    "you looked at single steps: one step is noise, take the mean of the last three":
        partial(_spent, width=1),
    "you left out the reward: entropy that falls while the model learns is well spent":
        partial(_spent, enough=9.0),
    "you compared the entropy with 0.25: compare it with a quarter of its own first three "
    "steps": partial(_spent, start=1.0),
    "you counted from 0: the log's first step is 1":
        lambda *given: ((found := _spent(*given)) and found - 1),
})  # fmt: skip

# 05.5 the published runs of data/gpu_runs.csv

GPU_CLINIC = {
    "gemma3_1b": "healthy",
    "llama32_3b": "healthy",
    "qwen25_3b": "healthy",
    "phi4_14b": "truncated",
    "llama32_1b_fp8": "reference_differs truncated",
    "qwen3_0.6b_base": "kl_too_high reward_falls",
}
_WRONG_GPU = [
    ("gemma3_1b", "reward_flat", "gemma3_1b's reward is flat for 60 steps, and then it rises: read "
     "the whole curve"),
    ("qwen25_3b", "truncated", "qwen25_3b begins near its limit, but its answers get shorter and "
     "its reward rises: it found the way out by itself"),
    ("phi4_14b", "reward_flat", "phi4_14b's reward is flat, but a cause is in the log: how many of "
     "its 200 tokens does it use?"),
    ("llama32_1b_fp8", "kl_too_high", "llama32_1b_fp8's KL does not grow: it is 0.6 in the first "
     "steps, before anything was learned"),
    ("llama32_1b_fp8", "reference_differs", "llama32_1b_fp8 has a second finding: look at the "
     "fraction that is cut off"),
    ("llama32_1b_fp8", "truncated", "llama32_1b_fp8 has a second finding: look at the KL of its "
     "first steps"),
    ("qwen3_0.6b_base", "truncated", "qwen3_0.6b_base is not at its limit in its first 60 steps: "
     "what else changes at step 70?"),
    ("qwen3_0.6b_base", "reward_falls", "qwen3_0.6b_base has a second finding: look at the KL when "
     "the reward falls"),
]  # fmt: skip
_clinic("05.5", "gpu_diagnosis", GPU_CLINIC, _WRONG_GPU)
