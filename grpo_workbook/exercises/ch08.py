"""The exercises of notebook 08_evaluation."""

from math import comb, sqrt

from grpo_workbook.exercises import exercise, experiment

# 08.1 McNemar's exact test


def _tail(better, worse):
    m = better + worse
    return sum(comb(m, i) for i in range(min(better, worse) + 1)) / 2**m


def _normal(better, worse):
    from scipy.stats import chi2

    return float(chi2.sf((better - worse) ** 2 / (better + worse), 1)) if better + worse else 1.0


exercise("08.1", "mcnemar", [
    ((6, 1), 0.125),
    ((1, 6), 0.125),
    ((10, 0), 2 / 1024),
    ((3, 3), 1.0),
    ((0, 0), 1.0),
    ((15, 4), 2 * (1 + 19 + 171 + 969 + 3876) / 2**19),
], {
    "you looked in one direction only: training could have made it worse as well, so double "
    "the tail": lambda better, worse: min(1.0, _tail(better, worse)),
    "your p is above 1 where both counts are equal: the middle is in both tails, cap it at 1":
        lambda better, worse: 2 * _tail(better, worse),
    "you took the chance of this one outcome: p adds up all that are at least as far from even":
        lambda better, worse: min(1.0, 2 * comb(better + worse, better) / 2 ** (better + worse)),
    "that is the chi-squared approximation: with few changed problems it gives too small a p":
        _normal,
})  # fmt: skip

# 08.2 a gain by chance


def _chances(n, rate):
    return [comb(n, i) * rate**i * (1 - rate) ** (n - i) for i in range(n + 1)]


def _gain(n, rate, fits):
    chances = list(enumerate(_chances(n, rate)))
    return sum(a * b for i, a in chances for j, b in chances if fits(j - i))


exercise("08.2", "chance_of_gain", lambda: [
    ((n, rate, more), _gain(n, rate, lambda d, more=more: d >= more))
    for n, rate, more in ((30, 0.5, 3), (30, 0.7, 3), (4, 0.5, 1), (100, 0.5, 10), (30, 0.5, 0))
], {
    "you left out the gain of exactly `more`: at least means it counts":
        lambda n, rate, more: _gain(n, rate, lambda d: d > more),
    "you counted losses as well: only a second count that is higher looks like a gain":
        lambda n, rate, more: _gain(n, rate, lambda d: abs(d) >= more),
    "you took the first count as certain: it is as much luck as the second":
        lambda n, rate, more: sum(_chances(n, rate)[-int(-(n * rate + more) // 1) :]),
}, tolerance=1e-5)  # fmt: skip

# 08.3 training seeds

RANGE = {2: 2.77, 3: 3.31, 4: 3.63, 5: 3.86}  # of so many equal means, 95 %, in standard errors


def _seeds(measured):
    rates, n = measured["strict"], measured["problems"]
    if len(rates) not in RANGE:
        raise ValueError(f"{len(rates)} rates: measure two to five seeds")
    rate, gap = sum(rates) / len(rates), max(rates) - min(rates)
    limit = RANGE[len(rates)] * sqrt(rate * (1 - rate) / n)
    said = f"The seeds lie {gap:.1%} apart; noise of {n} problems alone explains up to {limit:.1%}."
    return "beyond" if gap > limit else "within", said


experiment("08.3", "seed_spread", _seeds, {
    "within": "The bound knows the noise of the evaluation alone. The seed changes the start "
    "of the adapters, the order of the problems and every completion as well, and where the "
    "curve is steep one seed is steps ahead of another.",
    "beyond": "The seeds may differ, but by no more than the noise of this evaluation: it "
    "takes more problems, or more seeds, to show it.",
}, [
    ({"strict": [0.68125, 0.65], "problems": 160}, "within"),  # after 8 steps
    ({"strict": [0.7125, 0.73125, 0.7], "problems": 160}, "within"),  # after 10 steps
    ({"strict": [0.915, 0.944, 0.931], "problems": 480}, "within"),  # after 120
])  # fmt: skip

# 08.4 the sentence for the report


def _outcomes(stayed, better, worse, never):
    before = [True] * stayed + [False] * better + [True] * worse + [False] * never
    return before, [True] * (stayed + better) + [False] * (worse + never)


def _verdict(before, after, p=None, names=("rose", "fell")):
    better = sum(a > b for b, a in zip(before, after, strict=True))
    worse = sum(b > a for b, a in zip(before, after, strict=True))
    shown = (p or (lambda *counts: min(1.0, 2 * _tail(*counts[:2]))))(better, worse, before, after)
    return "not shown" if shown > 0.05 else names[worse > better]


def _unpaired(better, worse, before, after):
    from scipy.stats import fisher_exact

    n, b, a = len(before), sum(before), sum(after)
    return fisher_exact([[b, n - b], [a, n - a]]).pvalue


exercise("08.4", "verdict", [
    (_outcomes(40, 8, 0, 52), "rose"),
    (_outcomes(40, 30, 25, 25), "not shown"),
    (_outcomes(40, 3, 15, 42), "fell"),
    (_outcomes(40, 5, 0, 55), "not shown"),
    (_outcomes(0, 0, 0, 30), "not shown"),
], {
    "you compared the rates: 70 of 120 against 65 may be chance, so test the problems that "
    "changed": lambda b, a: _verdict(b, a, lambda better, worse, *_: float(better == worse)),
    "you tested both rates as if different problems had been answered: pair them, for then "
    "8 better and none worse is shown": lambda b, a: _verdict(b, a, _unpaired),
    "you tested one direction: training may make it worse as well, so double the tail":
        lambda b, a: _verdict(b, a, lambda better, worse, *_: _tail(better, worse)),
    "a small p says only that something changed: look at the direction too":
        lambda b, a: _verdict(b, a, names=("rose", "rose")),
})  # fmt: skip
