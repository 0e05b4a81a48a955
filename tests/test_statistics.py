"""Intervals, tests, pass@k, majority vote and power: against closed forms, every possible outcome,
simulations with fixed seeds, and published numbers."""

import math
from collections import Counter
from fractions import Fraction
from itertools import combinations, product
from math import comb

import numpy as np
import pytest
from conftest import raises_naming

from grpo_workbook.errors import WorkbookError
from grpo_workbook.statistics import (
    accuracy,
    bootstrap_interval,
    changed,
    fewest_problems,
    has_fallen,
    majority_at_k,
    mean_interval,
    paired_gain,
    paired_items,
    paired_p_value,
    paired_power,
    pass_at_k,
    wilson_interval,
)


def test_wilson_interval_is_the_closed_form():
    z = 1.959963984540054
    for right, n in ((0, 10), (7, 10), (480, 480), (72, 480)):
        p = right / n
        centre = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        outcomes = [True] * right + [False] * (n - right)
        assert wilson_interval(outcomes) == pytest.approx(
            (max(0, centre - half), min(1, centre + half)), abs=1e-4
        )


def test_paired_test_against_every_coin_toss():
    """p is the rate of fair-coin outcomes at least as far from even as the one seen."""
    better, worse = 6, 1
    changed_problems = better + worse
    outcomes = list(product((0, 1), repeat=changed_problems))
    as_far = 0
    for outcome in outcomes:
        heads = sum(outcome)
        tails = changed_problems - heads
        as_far += abs(heads - tails) >= abs(better - worse)
    expected = as_far / len(outcomes)
    before = [False] * better + [True] * worse + [True, False]
    after = [True] * better + [False] * worse + [True, False]
    assert paired_p_value(before, after) == pytest.approx(expected)


def test_paired_test_without_changes_is_one_and_needs_pairs():
    assert paired_p_value([True, False], [True, False]) == 1.0
    with pytest.raises(ValueError, match="zip"):
        paired_p_value([True], [True, False])


def test_the_bootstrap_agrees_with_the_closed_form_of_a_mean():
    """For many values of a symmetric distribution the interval is mean +- 1.96 standard errors."""
    values = np.random.default_rng(1).normal(30, 5, 800)
    half = 1.959964 * values.std(ddof=1) / np.sqrt(len(values))
    low, high = bootstrap_interval(values)
    assert (low, high) == pytest.approx(
        (values.mean() - half, values.mean() + half), abs=0.05 * half
    )


def test_equal_values_leave_room_for_others():
    """The rule of three: what none of n problems shows is true of at most about 3 / n of all."""
    low, high = mean_interval([0.0] * 120, -1, 1)
    assert (low, high) == pytest.approx((-3 / 120, 3 / 120), rel=0.02)
    # With that rate the chance that all 120 problems show nothing is 5 %.
    assert (1 - high) ** 120 == pytest.approx(0.05)
    assert mean_interval([0.1 + 0.2, 0.3], -1, 1)[0] < 0.2  # they differ by rounding alone
    low, high = mean_interval([1.0] * 8, 0, 1)  # 8 of 8
    assert (low, high) == pytest.approx((0.05 ** (1 / 8), 1))
    low, high = mean_interval([0.25] * 60, 0, 1)
    assert 0 < low < 0.25 < high < 1
    varied = [0.0] * 5 + [1.0] * 5
    assert mean_interval(varied, 0, 1) == bootstrap_interval(varied)


@pytest.mark.slow
@pytest.mark.parametrize(
    "draw", [lambda rng: rng.exponential(20, 80), lambda rng: rng.binomial(8, 0.3, 80) / 8]
)
def test_the_bootstrap_covers_the_true_mean_about_as_often_as_it_says(draw):
    """400 samples of a skewed one, and of rates of 8: 95 % intervals miss some 20 times."""
    rng = np.random.default_rng(2)
    truth = 20 if draw(np.random.default_rng(0)).max() > 1 else 0.3
    hits = 0
    for _ in range(400):
        low, high = bootstrap_interval(draw(rng))
        hits += low <= truth <= high
    assert 0.91 <= hits / 400 <= 0.98


def test_the_bootstrap_is_seeded_and_knows_its_limits():
    values = list(np.random.default_rng(5).exponential(9, 40))
    assert bootstrap_interval(values) == bootstrap_interval(values)
    assert bootstrap_interval([0.25] * 10) == (0.25, 0.25)
    assert bootstrap_interval([2]) == (2.0, 2.0)


def test_wilson_covers_the_true_share_about_as_often_as_it_says():
    """Exactly: over every possible count of right answers among 30, weighted by its probability."""
    from scipy.stats import binom

    for share in (0.05, 0.3, 0.5, 0.9):
        covered = 0.0
        for right in range(31):
            low, high = wilson_interval([True] * right + [False] * (30 - right))
            covered += binom.pmf(right, 30, share) * (low <= share <= high)
        assert 0.92 <= covered <= 0.98


def test_the_paired_test_is_wrong_at_most_as_often_as_alpha():
    """Over every outcome of 10 changed problems, fair coins: p <= 0.05 in at most 5 %."""
    outcomes = list(product([False, True], repeat=10))
    small = sum(paired_p_value([not o for o in outcome], outcome) <= 0.05 for outcome in outcomes)
    assert 0 < small / len(outcomes) <= 0.05


def test_changed_names_the_places():
    assert changed([True, False, False, True], [True, True, False, False]) == ([1], [3])
    with pytest.raises(ValueError, match="zip"):
        changed([True], [])


def test_nothing_and_what_is_no_number_have_no_interval():
    for call in (accuracy, wilson_interval, bootstrap_interval):
        with pytest.raises(WorkbookError):
            call([])
    with pytest.raises(WorkbookError):
        bootstrap_interval([0.1, float("nan"), 0.3])


def test_pass_at_k_counts_every_choice():
    for n in range(1, 8):
        for right in range(n + 1):
            outcomes = [True] * right + [False] * (n - right)
            for k in range(1, n + 1):
                choices = list(combinations(outcomes, k))
                assert pass_at_k(n, right, k) == pytest.approx(
                    sum(map(any, choices)) / len(choices), abs=1e-12
                )


def human_eval_estimator(n, c, k):
    """The formula as the Codex paper prints it (Chen et al. 2021, figure 3), in NumPy."""
    if n - c < k:
        return 1.0
    return 1.0 - np.prod(1.0 - k / np.arange(n - c + 1, n + 1))


@pytest.mark.parametrize("n", [1, 5, 20, 200, 1000])
def test_pass_at_k_is_the_published_estimator(n):
    for right in {0, 1, n // 3, n - 1, n}:
        for k in {1, min(10, n), min(100, n), n}:
            exact = 1 - Fraction(comb(n - right, k), comb(n, k))
            assert pass_at_k(n, right, k) == pytest.approx(
                human_eval_estimator(n, right, k), abs=1e-12
            )
            assert pass_at_k(n, right, k) == pytest.approx(float(exact), abs=1e-12)


def test_pass_at_k_is_unbiased_and_the_plug_in_is_not():
    """Over every outcome of 8 attempts with a true rate of 0.2, weighted: 1 - 0.8 ** 4."""
    weights = [comb(8, c) * 0.2**c * 0.8 ** (8 - c) for c in range(9)]
    truth = 1 - 0.8**4
    assert sum(w * pass_at_k(8, c, 4) for c, w in enumerate(weights)) == pytest.approx(truth)
    assert sum(w * (1 - (1 - c / 8) ** 4) for c, w in enumerate(weights)) < truth - 0.03


def by_hand(votes, gold, k):
    total = Fraction(0)
    choices = list(combinations(votes, k))
    for chosen in choices:
        counts = Counter(v for v in chosen if v is not None)
        best = [v for v, c in counts.items() if c == max(counts.values())]
        total += Fraction(gold in best, max(1, len(best)))
    return float(total / len(choices))


@pytest.mark.parametrize(
    "votes",
    [
        [42],
        [42, 41],
        [42, 42, 41, 41, 40],
        [42, 42, 41, 41, 41, 40, None, None],
        [41, 41, 40, None],
        [None, None, None],
        [42, 1, 2, 3, 4, 5, 6],
        [42, 42, 42, 41, 41, 41, 40, 40, 40],
    ],
)
def test_majority_counts_every_choice(votes):
    for k in range(1, len(votes) + 1):
        assert majority_at_k(votes, 42, k) == pytest.approx(by_hand(votes, 42, k), abs=1e-12)


def test_majority_at_random_small_cases():
    rng = np.random.default_rng(3)
    for _ in range(60):
        votes = [None if v == 0 else int(v) for v in rng.integers(0, 5, rng.integers(1, 10))]
        k = int(rng.integers(1, len(votes) + 1))
        assert majority_at_k(votes, 2, k) == pytest.approx(by_hand(votes, 2, k), abs=1e-12)


def test_one_vote_is_accuracy_and_many_are_quick():
    votes = [42] * 30 + [None] * 4 + list(range(100, 166))
    assert majority_at_k(votes, 42, 1) == pytest.approx(0.3)
    assert majority_at_k(votes, 42, 64) > 0.99


@pytest.mark.parametrize("k", [0, 4, -1])
def test_k_out_of_range_is_named(k):
    with raises_naming(WorkbookError, k, 3):
        pass_at_k(3, 1, k)
    with raises_naming(WorkbookError, k, 3):
        majority_at_k([1, 2, 3], 1, k)
    with raises_naming(WorkbookError, 4, 3):
        pass_at_k(3, 4, 1)


@pytest.mark.slow
def test_paired_power_counts_every_outcome():
    """Each of 7 problems gets better, worse or stays; every combination, weighted."""
    better, worse = 0.6, 0.05
    shares = {1: better, -1: worse, 0: 1 - better - worse}
    expected = 0.0
    for outcome in product(shares, repeat=7):
        before, after = [o == -1 for o in outcome], [o == 1 for o in outcome]
        if paired_p_value(before, after) <= 0.05:
            expected += np.prod([shares[o] for o in outcome])
    assert 0.1 < expected < 0.9
    assert paired_power(7, better, worse) == pytest.approx(expected, abs=1e-12)


def test_paired_power_is_what_simulated_runs_find():
    rng = np.random.default_rng(4)
    found = 0
    for _ in range(500):
        outcome = rng.choice([1, -1, 0], size=200, p=[0.15, 0.06, 0.79])
        found += paired_p_value(list(outcome == -1), list(outcome == 1)) <= 0.05
    assert found / 500 == pytest.approx(paired_power(200, 0.15, 0.06), abs=0.05)


def test_without_a_gain_the_test_rarely_cries_out():
    assert 0 < paired_power(300, 0.1, 0.1) <= 0.05
    assert paired_power(300, 0.0, 0.0) == 0.0


@pytest.mark.parametrize(
    ("better", "worse"), [(0.10, 0.05), (0.3, 0.02), (0.05, 0.0), (0.02, 0.06)]
)
def test_paired_items_is_where_the_power_is_reached(better, worse):
    items = paired_items(better, worse)
    assert paired_power(items, better, worse) >= 0.8
    assert paired_power(int(items * 0.93), better, worse) < 0.8


def test_the_gain_has_the_power():
    gain = paired_gain(480, worse=0.05)
    assert (
        paired_power(480, 0.05 + gain, 0.05) >= 0.8 > paired_power(480, 0.05 + gain - 0.002, 0.05)
    )


def test_too_few_problems_show_nothing():
    assert paired_gain(5) is None
    assert paired_gain(6) == pytest.approx(
        0.97, abs=0.02
    )  # all 6 must change: 2 / 2**6 is the first p below 0.05


def test_pairing_never_needs_more_than_independent_answers():
    better, worse = (1 - 0.5) * 0.6, 0.5 * (1 - 0.6)  # of two policies that have nothing in common
    assert better - worse == pytest.approx(0.1)
    related = paired_items(0.15, 0.05)
    assert related < paired_items(better, worse)
    assert paired_items(better, worse) == pytest.approx(388, rel=0.08), "R: power.prop.test"


@pytest.mark.slow
def test_a_gain_that_no_number_of_problems_shows_is_an_error():
    with raises_naming(WorkbookError, "65,536", 0):
        paired_items(0.1, 0.1)
    with raises_naming(WorkbookError, "65,536", "1e-05"):
        paired_items(0.3, 0.29999)


def fraction_stopped(right_at: list[float], problems: int, test=has_fallen) -> float:
    """How many of 100 runs are called fallen whose rate of right answers is this at each probe."""
    rng = np.random.default_rng(0)
    stopped = 0
    for _ in range(100):
        best = rng.random(problems) < right_at[0]
        for rate in right_at[1:]:
            latest = rng.random(problems) < rate
            if latest.sum() > best.sum():
                best = latest
            elif test(best.tolist(), latest.tolist(), len(right_at)):
                stopped += 1
                break
    return stopped / 100


def falls_at_each_look(best, latest, probes) -> bool:
    """The paired test at 0.05, which does not count how often it is made."""
    return sum(latest) < sum(best) and paired_p_value(best, latest) < 0.05


@pytest.mark.parametrize(("probes", "of_each_look"), [(9, 0.28), (20, 0.68)])
def test_a_run_that_stays_level_is_hardly_ever_called_fallen(probes, of_each_look):
    """Chapter 05 says how many a test at each look calls fallen: a quarter, and two thirds."""
    level = [0.5] * probes
    assert fraction_stopped(level, problems=64) <= 0.05
    rate = fraction_stopped(level, problems=64, test=falls_at_each_look)
    assert rate == pytest.approx(of_each_look, abs=0.1)


@pytest.mark.parametrize("probes", [9, 20])
def test_a_loss_of_20_points_is_found(probes):
    before = probes // 2
    rates = [0.8] * before + [0.6] * (probes - before)
    assert fraction_stopped(rates, problems=64) >= 0.8
    assert 0.3 <= fraction_stopped(rates, problems=32) <= 0.7
    assert not has_fallen([True] * 10, [True] * 10, probes)
    assert not has_fallen([False] * 30, [True] * 30, probes)  # a gain is no loss


@pytest.mark.parametrize("probes", [2, 9, 20, 100])
def test_the_fewest_problems_with_which_a_loss_can_be_found(probes):
    fewest = fewest_problems(probes)
    assert has_fallen([True] * fewest, [False] * fewest, probes)
    assert not has_fallen([True] * (fewest - 1), [False] * (fewest - 1), probes)


def test_one_probe_cannot_fall():
    for call in (lambda: has_fallen([True], [False], 1), lambda: fewest_problems(1)):
        with raises_naming(WorkbookError, "probes is 1"):
            call()
