"""The exercises of notebook 12_which_algorithm."""

import json
from collections.abc import Callable
from statistics import mean, pstdev, stdev

from grpo_workbook.exercises import exercise
from grpo_workbook.files import REPO

# 12.1 RLOO's advantages


def _groups(rewards, group_size):
    return [rewards[i : i + group_size] for i in range(0, len(rewards), group_size)]


def _less(baseline: Callable) -> Callable:
    """Each reward less `baseline(its group, its place, the group's size)`."""
    return lambda rewards, group_size: [
        r - baseline(group, i, group_size)
        for group in _groups(rewards, group_size)
        for i, r in enumerate(group)
    ]


def _grpo(rewards, group_size):
    return [
        (r - mean(group)) / (stdev(group) + 1e-4)
        for group in _groups(rewards, group_size)
        for r in group
    ]


_rloo = _less(lambda group, i, n: (sum(group) - group[i]) / (n - 1))
_REWARDS = [1.0, 0.0, 0.0, 1.0, 3.0, 0.5, 0.5, 0.5]

exercise("12.1", "rloo_advantages", [((_REWARDS, n), _rloo(_REWARDS, n)) for n in (4, 2, 8)], {
    "that is the mean of the whole group: it contains the reward itself, so the advantage "
    "shrinks to (n - 1) / n": _less(lambda group, i, n: mean(group)),
    "that is GRPO's advantage: RLOO takes only the mean of the others away, and divides by "
    "no deviation": _grpo,
    "the others are one fewer than the group: divide their sum by n - 1, not by n":
        _less(lambda group, i, n: (sum(group) - group[i]) / n),
    "you mixed the groups: the others are those of the same question, not of the whole batch":
        lambda rewards, group_size: _rloo(rewards, len(rewards)),
})  # fmt: skip

# 12.2 the outcome of the race, before it is seen

CONTESTANTS = ("base", "sft", "grpo", "clip-higher, one update", "rejection", "random of 8")


def _shown(better: str, worse: str, rates: dict[str, dict[int, float]]) -> bool:
    """Whether the stored runs show that one is better: by two standard errors of the paired
    differences, or by five points where fewer than three seeds are stored.
    """
    gaps = [
        rates[better][seed] - rates[worse][seed] for seed in rates[better].keys() & rates[worse]
    ]
    error = stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 2 else 0.025
    return bool(gaps) and mean(gaps) > 2 * error


def _stored() -> dict[str, dict[int, float]]:
    """{method: {seed: accuracy}} of the race's runs on the task `main`."""
    found: dict[str, dict[int, float]] = {}
    path = REPO / "benchmarks" / "race_results" / "main.jsonl"
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        found.setdefault(row["method"], {})[row["seed"]] = row["end"]["sampled"]
    return found


def _order_judged(function) -> str:
    order = list(function())
    if sorted(map(str, order)) != sorted(CONTESTANTS):
        return f"the order must hold these, each once: {', '.join(CONTESTANTS)}"
    if abs(order.index("grpo") - order.index("clip-higher, one update")) > 1:
        return "clip-higher"
    order.remove("clip-higher, one update")
    rates = _stored()
    wrong = {
        (low, high)
        for i, low in enumerate(order)
        for high in order[i + 1 :]
        if _shown(high, low, rates)
    }
    for names in (("random of 8", "rejection"), ("base", "grpo"), *sorted(wrong)):
        if names in wrong:
            return " above ".join(names)
    return "the stored runs do not contradict it"


_EXPECTED = ["sft", "rejection", "grpo", "clip-higher, one update", "base", "random of 8"]


def _moved(name: str, before: str) -> Callable:
    """The expected order, but with `name` right before `before`."""

    def order():
        found = [other for other in _EXPECTED if other != name]
        found.insert(found.index(before), name)
        return found

    return order


exercise("12.2", "my_order", [((), "the stored runs do not contradict it")], {
    "you expect clip-higher to differ from GRPO with one update per batch: in the first update "
    "the ratio is 1, so nothing is clipped and both are the same":
        _moved("clip-higher, one update", "sft"),
    "imitating a random one of eight uses no check at all: it copies wrong answers as they "
    "come, and cannot keep up with imitating right ones": _moved("random of 8", "rejection"),
    "an untrained model cannot be better than GRPO on a task that it is right on now and then: "
    "look at the groups, they have variance":
        lambda: ["rejection", "sft", "base", "grpo", "clip-higher, one update", "random of 8"],
    "you expect GRPO to beat imitation at equal completions: here the base is right often "
    "enough that its own right answers, all imitated, teach the form sooner":
        lambda: ["grpo", "clip-higher, one update", "rejection", "sft", "base", "random of 8"],
}, call=_order_judged)  # fmt: skip

# 12.3 paired differences


def _paired(method, other, deviation=stdev, root=0.5):
    gaps = [method[seed] - other[seed] for seed in sorted(method.keys() & other.keys())]
    return mean(gaps), deviation(gaps) / len(gaps) ** root


def _unpaired(method, other):
    gap = _paired(method, other)[0]
    common = sorted(method.keys() & other.keys())
    errors = [stdev(each[seed] for seed in common) ** 2 / len(common) for each in (method, other)]
    return gap, sum(errors) ** 0.5


def _by_place(method, other):
    gaps = [a - b for a, b in zip(method.values(), other.values(), strict=False)]
    return mean(gaps), stdev(gaps) / len(gaps) ** 0.5


_RUNS = [
    ({0: 0.81, 1: 0.77, 2: 0.85, 3: 0.80}, {0: 0.78, 1: 0.75, 2: 0.80, 3: 0.79}),
    ({0: 0.81, 1: 0.77, 2: 0.85, 3: 0.80}, {1: 0.75, 2: 0.80, 3: 0.79, 4: 0.60}),
    ({2: 0.9, 0: 0.5, 1: 0.7}, {0: 0.4, 1: 0.6, 2: 0.9}),
]

exercise("12.3", "paired_gap", [(runs, _paired(*runs)) for runs in _RUNS], {
    "that is the error of an unpaired comparison: take the difference of each seed first, "
    "then their deviation": _unpaired,
    "you paired by place: a missing run shifts all that follow, so look the seeds up": _by_place,
    "that is the deviation of the differences: the mean of n of them has an error smaller by "
    "the root of n": lambda method, other: _paired(method, other, root=0),
    "you divided by n in the deviation: n - 1, because the mean was taken from the same "
    "numbers": lambda method, other: _paired(method, other, pstdev),
    "you took the other way round: a positive gap means that `method` is better":
        lambda method, other: (-_paired(method, other)[0], _paired(method, other)[1]),
})  # fmt: skip

# 12.4 the faults of a comparison

FAULTS = {
    "one seed": "one run each: seeds of the same method differ by several points too",
    "unequal completions": "one method sampled twice as many completions: equal budgets first",
    "unequal tuning": "one method got the best of five learning rates, the other a default",
    "chosen on the test set": "the best of 20 checkpoints on the test problems is partly luck: "
    "choose on others",
    "too few problems": "4 points of 30 problems are about one problem: far too few to show that",
    "no control": "a gain may come from any update: there is no control such as a random reward",
}
NO_FAULTS = {
    "different models": "the first row says that the model is the same",
    "different prompts": "the first row says that the prompt is the same",
}
_FOUND = "all of them"


def _faults_judged(function) -> str:
    named = set(function())
    for fault in (*NO_FAULTS, *FAULTS):
        if (fault in named) is not (fault in FAULTS):
            return fault
    return _FOUND if len(named) == len(FAULTS) else f"unknown: {sorted(named - FAULTS.keys())}"


exercise("12.4", "faults", [((), _FOUND)], [
    *((lambda name=name: FAULTS.keys() - {name}, f"you missed one: {said}")
      for name, said in FAULTS.items()),
    *((lambda name=name: FAULTS.keys() | {name}, f"that is none of its faults: {said}")
      for name, said in NO_FAULTS.items()),
], call=_faults_judged)  # fmt: skip

# 12.5 the price of dynamic sampling


def _useful(p, group):
    return 1 - p**group - (1 - p) ** group


exercise("12.5", "dynamic_cost",
    [((p, n, w), w / _useful(p, n)) for p, n, w in ((0.5, 8, 64), (0.02, 8, 64), (0.9, 4, 32))], {
    "a group in which all are wrong has no variance either: take (1 - p)^n away too":
        lambda p, group, wanted: wanted / (1 - p**group),
    "a group in which all are right has no variance either: take p^n away too":
        lambda p, group, wanted: wanted / (1 - (1 - p) ** group),
    "the groups sampled in place of discarded ones are discarded too now and then: divide by "
    "the fraction that is useful": lambda p, group, wanted: wanted * (2 - _useful(p, group)),
    "that is how many of them are useful: more must be sampled than are wanted":
        lambda p, group, wanted: wanted * _useful(p, group),
    "that counts groups: the answer is in completions":
        lambda p, group, wanted: wanted / group / _useful(p, group),
})  # fmt: skip

# 12.6 truncated importance sampling


def _cases():
    import torch

    logp = torch.tensor([[-0.1, -2.0, -1.0, -0.5], [-3.0, -0.2, -0.7, -9.0]])
    sampler = torch.tensor([[-0.2, -3.5, -0.9, -2.0], [-1.0, -0.2, -1.9, -1.0]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    return [
        ((logp, sampler, mask, cap), _weights()(logp, sampler, mask, cap)) for cap in (2.0, 3.0)
    ]


def _weights(sign=1, low: float = 0, whole=False, drop=False, masked=True) -> Callable:
    def weights(logp, sampler, mask, cap):
        gap = sign * (logp - sampler) * mask
        if whole:
            gap = gap.sum(1, keepdim=True).expand_as(gap)
        ratio = gap.exp()
        cut = ratio.masked_fill(ratio > cap, 0) if drop else ratio.clamp(low and 1 / cap, cap)
        return cut * mask if masked else cut

    return weights


exercise("12.6", "truncated_weights", _cases, {
    "your ratio is upside down: the policy that learns on top, the sampler below": _weights(-1),
    "you cut small ratios too: truncation is only from above, a token that the policy would "
    "hardly write must count little": _weights(low=1),
    "that is the ratio of the whole completion: here each token has its own": _weights(whole=True),
    "you dropped what is over the cap: that is masking, and truncation sets it to the cap":
        _weights(drop=True),
    "padding has a weight of its own in your answer: multiply by the mask": _weights(masked=False),
})  # fmt: skip
