"""pass@k and majority vote against every choice of k attempts, counted one by one."""

from collections import Counter
from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest

from grpo_workbook.attempts import majority_at_k, pass_at_k


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
    """Over every outcome of 8 attempts with a true share of 0.2, weighted: the mean is 1 - 0.8 ** 4."""
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
def test_k_out_of_range_is_said(k):
    with pytest.raises(ValueError, match=f"k is {k} and there are 3 attempts"):
        pass_at_k(3, 1, k)
    with pytest.raises(ValueError, match=f"k is {k} and there are 3 attempts"):
        majority_at_k([1, 2, 3], 1, k)
    with pytest.raises(ValueError, match="4 of 3"):
        pass_at_k(3, 4, 1)
