"""Power against every outcome, a simulation, and published numbers."""

from itertools import product

import numpy as np
import pytest

from grpo_workbook.intervals import paired_p_value
from grpo_workbook.power import (
    paired_gain,
    paired_items,
    paired_power,
    unpaired_gain,
    unpaired_items,
)


def test_paired_power_counts_every_outcome():
    """Each of 7 problems gets better, gets worse or stays; every combination with its probability."""
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


def test_unpaired_items_as_the_tables_have_them():
    """Fleiss, Levin and Paik's formula without correction; R's power.prop.test(p1=.5, p2=.75) gives n = 57.67."""
    assert unpaired_items(0.5, 0.75) == 58
    assert unpaired_items(0.75, 0.5) == 58
    assert unpaired_items(0.5, 0.55) == 1565


def test_gain_and_items_are_each_others_inverse():
    gain = unpaired_gain(480, 0.5)
    assert unpaired_items(0.5, 0.5 + gain) <= 480 < unpaired_items(0.5, 0.5 + gain - 0.001)
    gain = paired_gain(480, worse=0.05)
    assert (
        paired_power(480, 0.05 + gain, 0.05) >= 0.8 > paired_power(480, 0.05 + gain - 0.002, 0.05)
    )


def test_too_few_problems_show_nothing():
    assert paired_gain(5) is None
    assert paired_gain(6) == pytest.approx(
        0.97, abs=0.02
    )  # all 6 must change: 2 / 2**6 is the first p below 0.05
    assert unpaired_gain(3, 0.5) is None


def test_pairing_never_needs_more_than_independent_answers():
    better, worse = (1 - 0.5) * 0.6, 0.5 * (1 - 0.6)  # of two policies that have nothing in common
    assert better - worse == pytest.approx(0.1)
    related = paired_items(0.15, 0.05)
    assert related < paired_items(better, worse)
    assert paired_items(better, worse) == pytest.approx(unpaired_items(0.5, 0.6), rel=0.08)


def test_what_makes_no_sense_is_said():
    for call in (lambda: unpaired_items(0.5, 0.5), lambda: paired_items(0.1, 0.1)):
        with pytest.raises(ValueError, match="gain of nothing"):
            call()
    with pytest.raises(ValueError, match="add up to more"):
        paired_power(10, 0.7, 0.6)
    with pytest.raises(ValueError, match="before is 50"):
        unpaired_items(50, 0.6)
    for call in (unpaired_items, paired_items):
        with pytest.raises(ValueError, match=r"power is 1\.0: a chance that can be had"):
            call(0.5, 0.4, power=1.0)
        with pytest.raises(ValueError, match="alpha is 0"):
            call(0.5, 0.4, alpha=0)
    with pytest.raises(ValueError, match=r"1,000,000,000 items: .* at most 10,000,000"):
        paired_gain(10**9)
    with pytest.raises(ValueError, match="over a million"):
        paired_items(0.3, 0.29999)
