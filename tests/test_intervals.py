"""Intervals and tests against closed forms, every possible outcome, and simulations with fixed seeds."""

from itertools import product

import numpy as np
import pytest

from grpo_workbook.intervals import (
    accuracy,
    bootstrap_interval,
    changed,
    paired_p_value,
    wilson_interval,
)


def test_the_bootstrap_agrees_with_the_closed_form_of_a_mean():
    """For many values of a symmetric distribution the interval is mean +- 1.96 standard errors."""
    values = np.random.default_rng(1).normal(30, 5, 800)
    half = 1.959964 * values.std(ddof=1) / np.sqrt(len(values))
    low, high = bootstrap_interval(values, resamples=20_000)
    assert (low, high) == pytest.approx(
        (values.mean() - half, values.mean() + half), abs=0.05 * half
    )


@pytest.mark.parametrize(
    "draw", [lambda rng: rng.exponential(20, 80), lambda rng: rng.binomial(8, 0.3, 80) / 8]
)
def test_the_bootstrap_covers_the_true_mean_about_as_often_as_it_says(draw):
    """400 samples of a skewed distribution, and of shares of 8: 95 % intervals miss the truth about 20 times."""
    rng = np.random.default_rng(2)
    truth = 20 if draw(np.random.default_rng(0)).max() > 1 else 0.3
    hits = 0
    for _ in range(400):
        low, high = bootstrap_interval(draw(rng), resamples=400)
        hits += low <= truth <= high
    assert 0.91 <= hits / 400 <= 0.98


def test_the_bootstrap_is_seeded_and_knows_its_limits():
    values = list(np.random.default_rng(5).exponential(9, 40))
    assert bootstrap_interval(values) == bootstrap_interval(values)
    assert bootstrap_interval(values, seed=1) != bootstrap_interval(values)
    assert bootstrap_interval([0.25] * 10) == (0.25, 0.25)
    assert bootstrap_interval([2]) == (2.0, 2.0)
    with pytest.raises(ValueError, match="no values"):
        bootstrap_interval([])


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
    """Over every outcome of 10 changed problems under a fair coin: p <= 0.05 in at most 5 % of them."""
    outcomes = list(product([False, True], repeat=10))
    small = sum(paired_p_value([not o for o in outcome], outcome) <= 0.05 for outcome in outcomes)
    assert 0 < small / len(outcomes) <= 0.05


def test_changed_names_the_places():
    assert changed([True, False, False, True], [True, True, False, False]) == ([1], [3])
    with pytest.raises(ValueError, match="zip"):
        changed([True], [])


def test_nothing_and_what_is_no_number_have_no_interval():
    for call in (accuracy, wilson_interval, bootstrap_interval):
        with pytest.raises(ValueError, match="nothing"):
            call([])
    with pytest.raises(ValueError, match="value 1 is no finite number"):
        bootstrap_interval([0.1, float("nan"), 0.3])
