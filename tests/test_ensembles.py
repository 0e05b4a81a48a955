import json

import pytest

from grpo_workbook.ensembles import AdaptiveWeight, mean_of, minimum_of, vote_of
from grpo_workbook.rewards import correctness_reward, strict_format_reward

GOOD = "<reasoning>\n6*7=42\n</reasoning>\n<answer>42</answer>"


def fixed(name, *values):
    def reward(completions, **columns):
        return list(values)

    reward.__name__ = f"{name}_reward"
    return reward


A, B, C = (
    fixed("a", 1.0, 1.0, 0.0, None),
    fixed("b", 0.0, 1.0, 0.25, None),
    fixed("c", 0.0, None, 1.0, None),
)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (mean_of, [pytest.approx(1 / 3), 1.0, pytest.approx(1.25 / 3), None]),
        (minimum_of, [0.0, 1.0, 0.0, None]),
        (vote_of, [0.0, 1.0, 0.0, None]),
    ],
)
def test_ensembles_leave_out_what_does_not_apply(make, expected):
    assert make(A, B, C)(completions=["x"] * 4) == expected


def test_a_tie_is_lost_and_a_majority_wins():
    assert vote_of(fixed("a", 1.0), fixed("b", 0.0))(completions=["x"]) == [0.0]
    assert vote_of(fixed("a", 1.0), fixed("b", 0.0), fixed("c", 0.75))(completions=["x"]) == [1.0]


def test_ensembles_have_names_for_the_log_and_take_columns():
    both = minimum_of(correctness_reward, strict_format_reward)
    assert both.__name__ == "minimum_of_correctness_strict_format_reward"
    assert both(completions=[GOOD, "<answer>42</answer>"], answer=["42", "42"]) == [1.0, 0.0]
    with pytest.raises(ValueError, match="a mean of 1 rewards"):
        mean_of(correctness_reward)


def test_an_adaptive_weight_follows_its_formula():
    reward = AdaptiveWeight(
        strict_format_reward, correctness_reward, at_zero=1.0, at_one=0.2, memory=0.5
    )
    assert reward.__name__ == "adaptive_strict_format_reward"
    got = [reward(completions=[GOOD, "no"], answer=["42", "42"]) for _ in range(3)]
    rates = [0.0, 0.25, 0.375]  # half of each batch is right
    assert got == [[pytest.approx(1 - 0.8 * r), 0.0] for r in rates]
    assert reward.rate == 0.4375


def test_a_grown_weight_and_what_does_not_apply():
    reward = AdaptiveWeight(fixed("a", 1.0, None), fixed("b", None, None), at_zero=0.5, at_one=1.0)
    assert reward(completions=["x", "y"]) == [0.5, None]
    assert (reward.rate, reward.batches) == (0.0, 0)  # nothing was judged, so nothing was learned


def test_a_restored_weight_goes_on_exactly():
    def make():
        return AdaptiveWeight(
            strict_format_reward, correctness_reward, at_zero=1.0, at_one=0.0, memory=0.9
        )

    batches = [[GOOD] * k + ["no"] * (8 - k) for k in (1, 3, 0, 8, 5, 2, 7)]
    through, first, second = make(), make(), make()
    wanted = [through(completions=b, answer=["42"] * 8) for b in batches]
    got = [first(completions=b, answer=["42"] * 8) for b in batches[:3]]
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    got += [second(completions=b, answer=["42"] * 8) for b in batches[3:]]
    assert got == wanted
    assert second.state_dict() == through.state_dict()


@pytest.mark.parametrize(
    "bad", [{"at_zero": 2.0}, {"at_one": -0.1}, {"memory": 1.0}, {"memory": float("nan")}]
)
def test_bad_settings(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        AdaptiveWeight(A, B, **bad)


@pytest.mark.parametrize(
    "bad", [{}, {"rate": 2, "batches": 1}, {"rate": 0.5}, {"rate": 0.5, "batches": "1"}]
)
def test_a_broken_state(bad):
    with pytest.raises(ValueError, match="give what state"):
        AdaptiveWeight(A, B).load_state_dict(bad)


def test_members_may_be_partial_functions_and_numpy_numbers_and_a_broken_one_is_named():
    import functools

    import numpy as np

    def half(completions, **columns):
        return [np.float32(0.5)] * len(completions)

    def short(completions, **columns):
        return [1.0]

    joined = mean_of(functools.partial(half), half)
    assert (joined.__name__, joined(completions=["a", "b"])) == (
        "mean_of_half_half_reward",
        [0.5, 0.5],
    )
    with pytest.raises(ValueError, match="short broke the contract"):
        mean_of(half, short)(completions=["a", "b"])


def test_a_broken_member_of_an_adaptive_weight_is_named_and_not_paid():
    def nan(completions, **columns):
        return [float("nan")] * len(completions)

    def short(completions, **columns):
        return [1.0]

    for members, name in (
        ((nan, A), "nan"),
        ((short, A), "short"),
        ((A, short), "short"),
        ((A, nan), "nan"),
    ):
        weight = AdaptiveWeight(*members)
        with pytest.raises(ValueError, match=f"{name} broke the contract"):
            weight(completions=["a", "b", "c", "d"])
        assert weight.batches == 0
