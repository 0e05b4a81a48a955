"""AdaptiveWeight: its formula, its state, what it says of itself, a broken member."""

import json

import pytest

from grpo_workbook.errors import WorkbookError
from grpo_workbook.rewards import correctness_reward, strict_format_reward
from grpo_workbook.rewards.contract import RewardInfo, about
from grpo_workbook.training import AdaptiveWeight

GOOD = "<reasoning>\n6*7=42\n</reasoning>\n<answer>42</answer>"


def fixed(name, *values):
    def reward(completions, **columns):
        return list(values)

    reward.__name__ = f"{name}_reward"
    return reward


A, B = fixed("a", 1.0, 1.0, 0.0, None), fixed("b", 0.0, 1.0, 0.25, None)


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
    assert reward.rate == 0.0  # nothing was judged, so nothing was learned


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
        with pytest.raises(WorkbookError, match=f"{name} broke the contract"):
            weight(completions=["a", "b", "c", "d"])
        assert weight.rate == 0.0


@pytest.mark.parametrize(
    "bad", [{"at_zero": 2.0}, {"at_one": -0.1}, {"memory": 1.0}, {"memory": float("nan")}]
)
def test_bad_weights(bad):
    with pytest.raises(WorkbookError, match=next(iter(bad))):
        AdaptiveWeight(A, B, **bad)


def test_it_says_what_its_members_say():
    fading = AdaptiveWeight(strict_format_reward, correctness_reward)
    assert about(fading) == RewardInfo("format", ("answer",), "number")
    assert fading.members == (strict_format_reward, correctness_reward)
