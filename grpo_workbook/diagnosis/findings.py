"""What a diagnosis can say: every finding with its meaning and its cure, and every threshold with its reason."""

from collections.abc import Sequence
from dataclasses import dataclass

SEVERE, WARNING, NOTE, FINE = "severe", "warning", "note", "fine"


@dataclass(frozen=True)
class Evidence:
    """One measured number, and the bound that it crossed. `threshold` says the direction: "at least 0.9"."""

    metric: str
    value: float | str
    threshold: str

    def __str__(self) -> str:
        value = f"{self.value:.3g}" if isinstance(self.value, float | int) else self.value
        return (
            f"{self.metric} {value} ({self.threshold})"
            if self.threshold
            else f"{self.metric} {value}"
        )


@dataclass(frozen=True)
class Finding:
    """What is wrong with a run: since which step, by what evidence, what it means, what to do about it."""

    name: str
    severity: str  # "severe", "warning", "note" or "fine"
    step: int  # the first step at which it showed
    evidence: tuple[Evidence, ...]
    means: str
    do: str

    def __str__(self) -> str:
        seen = "; ".join(map(str, self.evidence))
        return f"{self.severity}: {self.name} from step {self.step}: {self.means} Seen: {seen}. Do: {self.do}"


# name -> (severity, symptom, what it means, what to do). Causes stand before their symptoms: of two findings that are
# equally severe, the one that stands higher comes first.
CATALOGUE: dict[str, tuple[str, str, str, str]] = {
    "reward_raises": (
        SEVERE,
        "training ends with an exception",
        "A reward function raised an exception and ended training.",
        "Run the function by hand on the step's completions; mend it, and let it raise rather than give 0.",
    ),
    "nan": (
        SEVERE,
        "loss or gradient norm is NaN",
        "The loss, a gradient or a probability is not a number: every weight after that is lost.",
        "Go back to the last checkpoint; use bfloat16 or float32 instead of float16, and a lower learning rate.",
    ),
    "stopped": (
        SEVERE,
        "training ends with an exception",
        "An exception ended training, and no reward function raised it.",
        "Read it above: the log says nothing more about it.",
    ),
    "memory": (
        SEVERE,
        "memory nearly full",
        "Memory is nearly full: one batch of long completions will end the run.",
        "Lower per_device_train_batch_size and accumulate; shorten max_completion_length; gradient checkpointing.",
    ),
    "reward_nan": (
        SEVERE,
        "a reward is NaN",
        "A reward function gives NaN or infinity. TRL takes it for 'does not apply', so nothing fails, and those "
        "completions are judged by the other functions alone.",
        "Find the division or the logarithm behind it; give None on purpose, or a number.",
    ),
    "empty": (
        SEVERE,
        "completions are empty",
        "The model ends its turn at once: there is nothing to reward.",
        "Print one prompt as the model reads it: does it end in a finished answer, or an end token?",
    ),
    "never_ends": (
        SEVERE,
        "every completion runs to the limit, though some earn",
        "Completions hold what is rewarded and then go on to the limit: the end token is never drawn.",
        "Compare the tokenizer's eos_token, generation_config and the token that ends a turn in the chat template.",
    ),
    "truncated": (
        SEVERE,
        "nearly all completions are cut off and earn nothing",
        "Completions are cut off before they can earn anything: max_completion_length is too small.",
        "Measure the baseline's lengths, and set the limit above their 95th percentile.",
    ),
    "frozen": (
        SEVERE,
        "gradient there, adapters unmoved",
        "There is a gradient and the adapters do not move: the optimizer holds other weights, or they are frozen.",
        "Make the adapters before the optimizer; count the weights with requires_grad.",
    ),
    "reward_constant": (
        SEVERE,
        "reward_std 0 from the first step",
        "The reward is the same number for every completion: it does not look at them, or always fails.",
        "Score three completions by hand, one right, one wrong, one empty; check the columns that the function reads.",
    ),
    "wrong_answers": (
        SEVERE,
        "form is learned, correctness stays near 0",
        "Answers have the right form and are almost never called right: the reference answers belong elsewhere, "
        "are in another notation, or the problems are too hard.",
        "Print five questions with their reference answers and completions; compare what the reward compares.",
    ),
    "rate_too_high": (
        SEVERE,
        "reward falls off a cliff, adapters jump",
        "The learning rate is too high: the adapters jump, and the policy breaks within a few steps.",
        "Start again with a tenth of the learning rate; keep the warm-up and max_grad_norm.",
    ),
    "collapsed": (
        SEVERE,
        "completions of a group are the same text",
        "The completions of a group are nearly all the same text while the reward is not high: nothing to compare, "
        "nothing to learn.",
        "Raise the temperature to 1; if it came with training, lower the learning rate or add a KL penalty.",
    ),
    "no_gradient": (
        SEVERE,
        "frac_reward_zero_std near 1, grad_norm near 0",
        "All completions of a group earn the same, so every advantage is 0 and nothing is learned.",
        "Give partial credit, choose problems that are solved sometimes, raise num_generations; let no reward look at "
        "the prompt alone.",
    ),
    "drowned": (
        SEVERE,
        "one reward's spread hides the others",
        "One reward function's spread is so much larger that the others count for nothing.",
        "Scale every reward to 0 to 1, and say by reward_weights what each counts.",
    ),
    "hacked": (
        SEVERE,
        "reward rises, held-out accuracy does not, or length explodes",
        "The reward rises without the model getting better: it is being gamed.",
        "Read the best-paid completions; reward the right answer, and attack the reward before you train on it.",
    ),
    "beta_too_high": (
        SEVERE,
        "beta large, KL near 0, reward flat",
        "The KL penalty outweighs the reward: the policy is tied to where it began.",
        "Set beta to 0, or to at most 0.04.",
    ),
    "kl_too_high": (
        WARNING,
        "KL above the reference's own entropy",
        "The policy is far from its reference: the penalty does not hold it, and what it could do before may be lost.",
        "Raise beta tenfold, or lower the learning rate; measure what the model did well before.",
    ),
    "reward_falls": (
        SEVERE,
        "the reward falls",
        "The reward falls: training moves away from it.",
        "Look for a sign turned round (a penalty given as positive, a loss maximized), then lower the learning rate.",
    ),
    "format_ignored": (
        WARNING,
        "correctness rises, format does not",
        "Right answers are rewarded in whatever form, and the form that you check is ignored.",
        "Give the format reward a weight, or let correctness count only inside the form.",
    ),
    "rate_too_low": (
        WARNING,
        "reward flat, adapters hardly move",
        "The learning rate is too low: there is a gradient, and the adapters hardly move.",
        "Raise it tenfold; adapters take 10 to 100 times the rate of full fine-tuning.",
    ),
    "reward_flat": (
        WARNING,
        "reward flat",
        "The reward has not risen, and nothing else stands out.",
        "Larger groups for a clearer signal; easier problems or partial credit; then a higher learning rate.",
    ),
    "generation_slow": (
        NOTE,
        "drawing completions takes nearly all of a step",
        "Nearly all of a step goes into drawing completions.",
        "Generate with vLLM on a GPU, shorten max_completion_length, draw larger batches at once.",
    ),
    "saturated": (
        NOTE,
        "silent groups because all are right",
        "Most groups are silent because all their completions earn the same high reward: little is left to learn here.",
        "Stop, or go on with harder problems.",
    ),
    "too_short": (
        NOTE,
        "too few steps",
        "There are too few steps to say whether it learns.",
        "Look again after some more.",
    ),
    "healthy": (
        FINE,
        "reward rises, spread and gradient are there",
        "The run is healthy.",
        "Nothing. Trust held-out accuracy over the training reward.",
    ),
}

# A finding takes these with it: they are its symptoms.
EXPLAINS: dict[str, Sequence[str]] = {
    "empty": ("reward_constant", "no_gradient", "collapsed", "reward_flat", "wrong_answers", "truncated"),
    "never_ends": ("no_gradient", "wrong_answers", "reward_flat", "hacked", "collapsed"),
    "truncated": ("reward_constant", "no_gradient", "collapsed", "reward_flat", "wrong_answers", "hacked"),
    "frozen": ("reward_flat", "rate_too_low"),
    "nan": ("rate_too_high", "stopped", "reward_nan", "reward_falls", "collapsed", "frozen", "empty", "truncated"),
    "reward_constant": ("no_gradient", "reward_flat", "frozen", "rate_too_low", "collapsed"),
    "no_gradient": ("reward_flat", "frozen", "rate_too_low"),
    "collapsed": ("no_gradient", "reward_flat", "saturated", "reward_falls"),
    "rate_too_high": ("reward_falls", "collapsed", "no_gradient", "reward_constant", "kl_too_high", "never_ends",
                      "truncated", "empty", "wrong_answers", "hacked", "format_ignored", "drowned"),
    "reward_falls": ("hacked", "wrong_answers", "no_gradient", "format_ignored"),
    "beta_too_high": ("reward_flat", "rate_too_low", "kl_too_high"),
    "rate_too_low": ("reward_flat",),
    "hacked": ("format_ignored", "saturated"),
    "drowned": ("hacked", "reward_falls", "wrong_answers", "format_ignored"),
}  # fmt: skip


@dataclass(frozen=True)
class Threshold:
    """A bound and why it lies there."""

    value: float
    reason: str


THRESHOLDS: dict[str, Threshold] = {
    "first_steps": Threshold(5, "means over fewer steps move by chance more than by training"),
    "window": Threshold(
        0.25, "first and last quarter of the steps seen: the run is compared with itself"
    ),
    "longest_window": Threshold(20, "a long run's last quarter would hide what began lately"),
    "sure": Threshold(
        3.0, "standard errors between two windows' means: by chance about 1 in 400 comparisons"
    ),
    "rise": Threshold(
        0.05,
        "share of the highest reward: with many steps even a tiny rise is sure, and means nothing",
    ),
    "flat_after": Threshold(
        20, "steps before a flat reward is worth a word; the warm-up alone takes 5"
    ),
    "share_nearly_all": Threshold(
        0.9, "share of completions or groups: leaves room for an exception in a batch"
    ),
    "silent": Threshold(0.95, "share of groups without any spread: 19 of 20 teach nothing"),
    "half": Threshold(0.5, "share of completions: the larger part"),
    "same_text": Threshold(
        2.0, "different texts in a group: two or fewer leave next to nothing to compare"
    ),
    "high_reward": Threshold(
        0.8, "share of the highest reward possible: then equal completions mean 'learned'"
    ),
    "little_earned": Threshold(0.25, "share of what a function can pay: a tag or two, by accident"),
    "rarely_right": Threshold(
        0.15, "share of right answers that a model reaches which knows the form and guesses"
    ),
    "jump": Threshold(
        0.5,
        "adapter change relative to its norm at the start: healthy runs of 30 to 60 steps stay below 0.2",
    ),
    "hardly": Threshold(0.005, "the same: after 20 steps healthy runs are beyond 0.09"),
    "cliff": Threshold(0.5, "share of the reward's best window that is lost"),
    "drown": Threshold(
        0.85,
        "one function's share of the summed spreads (weight times deviation): the rest is a sixth",
    ),
    "kl_of_entropy": Threshold(
        1.0, "KL per token over the first steps' entropy per token: as far as it was undecided"
    ),
    "held": Threshold(
        0.05,
        "KL over entropy: adapters that moved so far change the policy more when they are free",
    ),
    "large_beta": Threshold(0.1, "TRL's examples and published runs use 0 to 0.04"),
    "gamed_rise": Threshold(
        0.15, "share of the highest reward: a charge this serious needs a rise that anyone can see"
    ),
    "longer": Threshold(1.6, "times the mean length of the first steps, while the reward rises"),
    "generation": Threshold(
        0.85, "share of a step's time; without a faster engine half to three quarters is usual"
    ),
    "memory_full": Threshold(
        0.92, "share of memory: allocators need some room, and completions vary in length"
    ),
}


def bound(name: str) -> float:
    """The value of the threshold of that name in THRESHOLDS; KeyError for another."""
    return THRESHOLDS[name].value


def make(name: str, step: int, *evidence: Evidence, means: str = "") -> Finding:
    """The finding of that name in CATALOGUE, from that step on; `means` is added to what it says there."""
    severity, _, text, do = CATALOGUE[name]
    return Finding(name, severity, int(step), evidence, f"{text} {means}".strip(), do)


def in_order(found: Sequence[Finding]) -> list[Finding]:
    """Without the symptoms that another finding explains; the severest first, causes before symptoms."""
    explained = {
        symptom for f in found for symptom in EXPLAINS.get(f.name, ()) if symptom != f.name
    }
    severities, names = [SEVERE, WARNING, NOTE, FINE], list(CATALOGUE)
    kept = [f for f in found if f.name not in explained]
    return sorted(kept, key=lambda f: (severities.index(f.severity), names.index(f.name)))
