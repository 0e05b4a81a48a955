import pytest

from grpo_workbook.lengths import histogram, percentiles


@pytest.mark.parametrize(
    "counts", [[5], [5, 5, 5], list(range(1000)), [1, 1_000_000], [0, 9, 10, 11]]
)
def test_a_histogram_holds_every_count_once(counts):
    bins = histogram(counts)
    assert sum(n for *_, n in bins) == len(counts)
    assert len(bins) <= 12
    for low, high, n in bins:
        assert n == sum(low <= c < high for c in counts)


def test_percentiles_are_counts_that_occur():
    assert percentiles(list(range(1, 101))) == {
        0: 1,
        5: 5,
        25: 25,
        50: 50,
        75: 75,
        95: 95,
        99: 99,
        100: 100,
    }
    assert percentiles([7]) == dict.fromkeys((0, 5, 25, 50, 75, 95, 99, 100), 7)
