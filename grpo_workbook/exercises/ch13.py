"""The exercises of notebook 13_learned_rewards."""

from collections.abc import Callable
from math import exp, log
from statistics import mean, stdev

from grpo_workbook.exercises import exercise, experiment

# 13.1 the policy that a penalised reward leads to


def _tilted(tempered=lambda r, beta: r / beta, divergence=None, total=sum) -> Callable:
    """(KL, mean proxy, mean gold) of p ~ exp(proxy / beta) over a uniform base."""

    def tilted(proxy, gold, beta):
        weights = [exp(tempered(r, beta)) for r in proxy]
        p = [w / total(weights) for w in weights]
        n = len(p)
        kl = divergence(p) if divergence else sum(x * log(x * n) for x in p)
        means = (sum(x * r for x, r in zip(p, rewards, strict=True)) for rewards in (proxy, gold))
        return (kl, *means)

    return tilted


_REWARDS = [([0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, -3.0]), ([0.5, -1.0, 0.5], [1.0, 0.0, 0.0])]

exercise("13.1", "tilted",
    [((*pair, beta), _tilted()(*pair, beta)) for pair in _REWARDS for beta in (0.5, 2.0)], {
    "you multiplied by beta: a large penalty must keep the policy at the base, so divide by it":
        _tilted(lambda r, beta: r * beta),
    "your probabilities do not add up to 1: divide the weights by their sum":
        _tilted(total=len),
    "that is the divergence of the base from the policy: the penalty takes that of the policy "
    "from the base, so the policy's probabilities weigh it":
        _tilted(divergence=lambda p: sum(-log(x * len(p)) for x in p) / len(p)),
    "that is the policy's entropy: the divergence compares with the base, 1 / n each":
        _tilted(divergence=lambda p: -sum(x * log(x) for x in p)),
})  # fmt: skip

# 13.2 the loss of a reward model


def _preference(loss: Callable) -> Callable:
    return lambda chosen, rejected: mean(loss(c, r) for c, r in zip(chosen, rejected, strict=True))


def _sigmoid(x):
    return 1 / (1 + exp(-x))


_SCORES = [([1.0, 0.5, -2.0], [0.0, 0.5, 1.0]), ([3.0], [-1.0]), ([0.0, 0.0], [2.0, -2.0])]

exercise("13.2", "preference_loss",
    [(scores, _preference(lambda c, r: -log(_sigmoid(c - r)))(*scores)) for scores in _SCORES], {
    "that is the probability of the label: the loss is minus its logarithm":
        _preference(lambda c, r: _sigmoid(c - r)),
    "you took the other way round: the chosen one's reward minus the rejected one's":
        _preference(lambda c, r: -log(_sigmoid(r - c))),
    "that judges each completion alone: only the difference of two rewards has a meaning":
        _preference(lambda c, r: -log(_sigmoid(c)) - log(_sigmoid(-r))),
    "that only counts wrong orders: it has no gradient": _preference(lambda c, r: float(c <= r)),
    "that is the sum over the pairs: take their mean":
        lambda chosen, rejected: len(chosen)
    * _preference(lambda c, r: -log(_sigmoid(c - r)))(chosen, rejected),
})  # fmt: skip

# 13.3 what a KL penalty does to the curve


def _penalised(measured):
    free, held = measured["beta 0"], measured["beta 0.3"]
    if min(len(free), len(held)) < 8:
        raise ValueError("a run has fewer than 8 steps: train at least 8, then look at the last 4")
    gold, proxy = (
        mean(step[name] for step in held[-4:]) - mean(step[name] for step in free[-4:])
        for name in ("gold", "proxy")
    )
    said = f"The penalty changed gold by {gold:+.2f} and the proxy by {proxy:+.2f} at the end."
    return "more gold" if gold > 0.1 else "less gold" if gold < -0.1 else "the same", said


_FREE = [{"gold": 0.44, "proxy": 1.6}] * 8

experiment("13.3", "penalised", _penalised, {
    "more gold": "Here it did not: was beta 0.3, and did the free run go far enough to fall?",
    "the same": "The penalty keeps the policy where the reward model has seen completions.",
    "less gold": "A penalty costs reward only as far as the reward is right; here it is not.",
}, [
    ({"beta 0": _FREE, "beta 0.3": [{"gold": 0.85, "proxy": 1.5}] * 8}, "more gold"),
    ({"beta 0": _FREE, "beta 0.3": [{"gold": 0.47, "proxy": 1.6}] * 8}, "the same"),
])  # fmt: skip

# 13.4 a penalty that follows its target


def _controller(error: Callable = lambda kl, target: kl / target - 1, bound=0.2) -> Callable:
    return lambda beta, kl, target: beta * (1 + 0.5 * max(-bound, min(bound, error(kl, target))))


exercise("13.4", "adaptive_beta", [(case, _controller()(*case)) for case in
 ((0.1, 2.2, 2.0), (0.1, 9.0, 2.0), (0.1, 1.9, 2.0), (0.3, 0.0, 4.0))], {
    "your beta falls when the policy is too far away: then it must grow":
        _controller(lambda kl, target: 1 - kl / target),
    "one large divergence changes beta at once: limit the error to -0.2 and 0.2":
        _controller(bound=1e9),
    "that is an absolute error: take it as a rate of the target, so that one bound fits all":
        _controller(lambda kl, target: kl - target),
    "you added where the rule multiplies: beta would become negative":
        lambda beta, kl, target: beta + 0.5 * max(-0.2, min(0.2, kl / target - 1)),
})  # fmt: skip

# 13.5 a reward for each step


def _steps(scale: str = "group", summed: Callable | None = None) -> Callable:
    """Advantages of each step of a group's completions; `summed`: of a completion's scaled ones."""

    def advantages(rewards):
        values, found = [r for each in rewards for r in each], []
        for each in rewards:
            some = each if scale == "completion" else values
            std = stdev(some) if len(some) > 1 else 0.0
            scaled = [(r - mean(some)) / (std + 1e-4) for r in each]
            later = [sum(scaled[i:]) for i in range(len(scaled))]
            found.append(summed(scaled) if summed else later)
        return found

    return advantages


_GROUPS = [[[1.0, 1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [1.0], [0.0, 0.0, 0.0, 1.0]]]

exercise("13.5", "step_advantages", [((group,), _steps()(group)) for group in _GROUPS], {
    "you normalised within each completion: the steps of the whole group are compared":
        _steps("completion"),
    "a step is also responsible for what follows: add the later steps' rewards":
        _steps(summed=lambda scaled: scaled),
    "you added up what came before: a step cannot change that, only what follows":
        _steps(summed=lambda scaled: [sum(scaled[: i + 1]) for i in range(len(scaled))]),
    "that is an outcome reward: every step got the same":
        _steps(summed=lambda scaled: [sum(scaled)] * len(scaled)),
})  # fmt: skip

# 13.6 agreement beyond chance


def _kappa(chance: Callable) -> Callable:
    def kappa(judge, labels):
        n = len(judge)
        equal = sum(a == b for a, b in zip(judge, labels, strict=True)) / n
        by_chance = chance(judge, labels, sorted({*judge, *labels}))
        return (equal - by_chance) / (1 - by_chance)

    return kappa


def _rate(values, kind):
    return values.count(kind) / len(values)


_true_kappa = _kappa(lambda a, b, kinds: sum(_rate(a, k) * _rate(b, k) for k in kinds))
_VERDICTS = [
    (["yes"] * 25 + ["no"] * 25, ["yes"] * 20 + ["no"] * 5 + ["yes"] * 10 + ["no"] * 15),
    (["yes"] * 9 + ["no"], ["yes"] * 8 + ["no"] * 2),
    (["a", "b", "c", "a", "b", "c"], ["a", "b", "c", "b", "b", "a"]),
]

exercise("13.6", "kappa", [(pair, _true_kappa(*pair)) for pair in _VERDICTS], {
    "that is the rate of equal verdicts: a judge that always says yes would score high":
        lambda judge, labels: sum(a == b for a, b in zip(judge, labels, strict=True)) / len(judge),
    "you took a coin's chance: chance agreement follows from how often each says what":
        _kappa(lambda a, b, kinds: 1 / len(kinds)),
    "you used the labels' rates twice: the judge has its own":
        _kappa(lambda a, b, kinds: sum(_rate(b, k) ** 2 for k in kinds)),
    "you took chance away but did not divide: at full agreement kappa must be 1":
        lambda judge, labels: _true_kappa(judge, labels)
    * (1 - sum(_rate(judge, k) * _rate(labels, k) for k in {*judge, *labels})),
})  # fmt: skip
