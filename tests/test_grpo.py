"""Our formulas against TRL 1.15's own numbers, exact KL divergences, and inputs that make no
sense."""

import functools
import itertools
import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import REPO, environment, raises_naming, slow
from safetensors.torch import load_file

from grpo_workbook import grpo
from grpo_workbook.grpo import (
    combine_rewards,
    group_advantages,
    grpo_loss,
    kl_estimate,
    sequence_logprobs,
)

sys.path.insert(0, str(REPO / "tests"))
TOLERANCE = 1e-5
ROUNDING = torch.finfo(torch.float32).eps  # a loss near 0 is what is left of terms near 1


@pytest.fixture(scope="module")
@slow
def numbers(tmp_path_factory):
    """The module that made TRL's numbers, and the numbers: from a process of its own, which never
    saw Unsloth."""
    path = tmp_path_factory.mktemp("trl") / "numbers.safetensors"
    script = REPO / "tests" / "trl_numbers.py"
    env = environment(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", OMP_NUM_THREADS="1")
    result = subprocess.run(
        [sys.executable, str(script), str(path)], env=env, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return load_file(path)


@pytest.fixture(scope="module")
def trl_numbers():
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    import trl_numbers

    return trl_numbers


@pytest.fixture(scope="module")
def policy(trl_numbers):
    return trl_numbers.policy()


def assert_same(loss, model, numbers, name):
    theirs = float(numbers[f"{name}/loss"])
    assert float(loss.detach()) == pytest.approx(theirs, rel=TOLERANCE, abs=ROUNDING), name
    compare_gradients(model, numbers, name)


def compare_gradients(model, numbers, name):
    compared = 0
    for key, parameter in model.named_parameters():
        if parameter.requires_grad:
            theirs = numbers[f"{name}/grad/{key}"]
            assert theirs.norm() > 0
            assert (parameter.grad - theirs).norm() <= TOLERANCE * theirs.norm(), (name, key)
            compared += 1
    assert compared == 56  # A and B of seven projections in four layers


class Batch:
    """The fixed completions as our functions take them."""

    def __init__(self, numbers, trl_numbers, policy):
        self.ids, self.attention, self.old = (
            numbers[f"inputs/{n}"] for n in ("ids", "attention", "old_logp")
        )
        self.length = self.old.shape[1]
        self.mask = self.attention[:, -self.length :]
        self.truncated = torch.tensor(trl_numbers.TRUNCATED)
        with torch.no_grad(), policy.disable_adapter():
            self.ref = sequence_logprobs(policy, self.ids, self.attention, self.length)
        self.rewards, self.limit = trl_numbers.REWARDS["plain"][0][0], trl_numbers.LIMIT

    def loss(self, policy, scale="group", **arguments):
        policy.zero_grad()
        logp = sequence_logprobs(policy, self.ids, self.attention, self.length)
        loss, metrics = grpo_loss(
            logp,
            group_advantages(self.rewards, 4, scale),
            self.mask,
            old_logp=self.old,
            ref_logp=self.ref,
            max_completion_length=self.limit,
            **arguments,
        )
        loss.backward()
        return loss, metrics


@pytest.fixture(scope="module")
def batch(numbers, trl_numbers, policy):
    return Batch(numbers, trl_numbers, policy)


# ---- equal to TRL


def test_the_batch_is_ragged_clips_on_both_sides_and_is_off_the_reference(batch, policy, numbers):
    assert sorted(batch.mask.sum(1).tolist()) == [1, 3, 6, 9, 14, 20, 24, 24]
    assert batch.truncated.sum() == 2
    _, metrics = batch.loss(policy)
    assert metrics["clip_low"] > 0.05
    assert metrics["clip_high"] > 0.05
    assert metrics["kl"] > 0.1
    is_token = batch.mask.bool()
    torch.testing.assert_close(
        batch.ref[is_token], numbers["inputs/ref_logp"][is_token], rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("loss_type", grpo.LOSS_TYPES)
def test_loss_and_every_gradient_are_trls(loss_type, batch, policy, numbers, trl_numbers):
    """Every beta, level, scale, truncated completions left out and not: 24 cases for each loss
    type."""
    cases = [case for case in trl_numbers.GRID if case[0] == loss_type]
    assert len(cases) == 24
    for _, beta, level, masked, scale in cases:
        loss, _ = batch.loss(
            policy,
            scale,
            loss_type=loss_type,
            beta=beta,
            level=level,
            truncated=batch.truncated if masked else None,
            epsilon_high=trl_numbers.EPSILON_HIGH.get(loss_type),
        )
        assert_same(loss, policy, numbers, f"{loss_type}/{beta}/{level}/{masked}/{scale}")


def test_unequal_clipping_is_trls(batch, policy, numbers, trl_numbers):
    for loss_type, level, low, high in trl_numbers.CLIPPING:
        loss, _ = batch.loss(
            policy,
            loss_type=loss_type,
            level=level,
            beta=0.04,
            epsilon_low=low,
            epsilon_high=high,
        )
        assert_same(loss, policy, numbers, f"clipping/{loss_type}/{level}")


@pytest.mark.parametrize("level", grpo.LEVELS)
def test_kl_without_the_ratio_is_trls(level, batch, policy, numbers):
    loss, _ = batch.loss(policy, loss_type="grpo", level=level, beta=0.04, unbiased_kl=False)
    assert_same(loss, policy, numbers, f"biased kl/{level}")


@pytest.mark.parametrize("loss_type", grpo.LOSS_TYPES)
def test_a_step_in_two_batches_is_trls(loss_type, numbers, trl_numbers):
    """The batches of a real train() with gradient accumulation, which TRL shuffled: losses and the
    summed gradient."""
    model, name = trl_numbers.policy(), f"accumulated/{loss_type}"
    parts = [{k: numbers[f"{name}/{i}/{k}"] for k in PARTS} for i in (0, 1)]
    tokens = sum(int(p["completion_mask"].sum()) for p in parts)
    for part in parts:
        ids = torch.cat([part["prompt_ids"], part["completion_ids"]], 1)
        attention = torch.cat([part["prompt_mask"], part["completion_mask"]], 1)
        loss, _ = grpo_loss(
            sequence_logprobs(model, ids, attention, part["completion_ids"].shape[1]),
            part["advantages"],
            part["completion_mask"],
            ref_logp=part["ref_logp"],
            beta=0.04,
            loss_type=loss_type,
            epsilon_high=trl_numbers.EPSILON_HIGH.get(loss_type),
            max_completion_length=trl_numbers.LIMIT,
            num_items_in_batch=tokens,
            accumulation_steps=2,
        )
        theirs = float(part["loss"])
        assert float(loss.detach()) == pytest.approx(theirs, rel=TOLERANCE, abs=ROUNDING)
        loss.backward()
    compare_gradients(model, numbers, name)


PARTS = (
    "prompt_ids",
    "prompt_mask",
    "completion_ids",
    "completion_mask",
    "advantages",
    "ref_logp",
    "loss",
)


# ---- advantages


def test_advantages_are_trls(numbers, trl_numbers):
    for case, (values, weights) in trl_numbers.REWARDS.items():
        for scale in grpo.SCALES:
            ours = group_advantages(combine_rewards(values, weights), trl_numbers.GROUP, scale)
            torch.testing.assert_close(
                ours, numbers[f"advantages/{case}/{scale}"], rtol=0, atol=1e-6
            )


def test_the_advantages_of_four_rewards_by_hand():
    high = 0.5 / math.sqrt(1 / 3)  # the deviation from the mean, over the standard deviation
    expected = [high, high, -high, -high]
    assert group_advantages([1, 1, 0, 0], 4).tolist() == pytest.approx(expected, abs=3e-4)


@pytest.mark.parametrize("scale", grpo.SCALES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_rewards_give_exactly_zero(scale, dtype):
    """Values whose mean is not exact in floats: 0.1 eight times sums to 0.8000000000000000444."""
    values = torch.tensor([0.1, 1 / 3, 2.5, 1e6 + 0.1, -7.7, 0.0], dtype=dtype)
    equal = group_advantages(values.repeat_interleave(7), 7, scale)
    assert equal.tolist() == [0.0] * 42
    mixed = group_advantages(
        torch.cat([values[:1].expand(7), torch.arange(7, dtype=dtype)]), 7, scale
    )
    assert mixed[:7].tolist() == [0.0] * 7
    assert mixed[7:].abs().min() >= 0
    assert float(mixed.sum()) == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize(
    "make", [list, tuple, np.array, torch.tensor, lambda v: np.array(v, dtype=object)]
)
def test_a_list_an_array_and_a_tensor_give_the_same(make):
    values = [0.0, 1.0, 0.25, 3.0, 2.0, 2.0, 2.0, 0.5]
    ours = group_advantages(make(values), 4)
    assert isinstance(ours, torch.Tensor)
    assert ours.shape == (8,)
    assert ours.dtype == torch.float32
    assert ours.tolist() == pytest.approx(
        group_advantages(torch.tensor(values), 4).tolist(), abs=1e-6
    )


def test_inputs_stay_as_they_were_and_need_not_be_contiguous():
    rewards = torch.tensor([[1.0, 9.0], [0.0, 9.0], [0.5, 9.0], [1.0, 9.0]])
    column = rewards[:, 0]
    ours = group_advantages(column, 2)
    assert ours.tolist() == group_advantages([1.0, 0.0, 0.5, 1.0], 2).tolist()
    assert rewards[:, 0].tolist() == [1.0, 0.0, 0.5, 1.0]


def test_unscored_completions_get_zero_and_move_nobody():
    ours = group_advantages([None, 1.0, 0.0, None, 5.0, None, None, None], 4)
    without = group_advantages([1.0, 0.0], 2)
    assert ours.tolist() == pytest.approx([0.0, *without.tolist(), 0.0, 0.0, 0.0, 0.0, 0.0])
    assert group_advantages([None] * 4, 2, "batch").tolist() == [0.0] * 4


# ---- the KL estimators


POLICIES = [
    ([0.5, 0.5], [0.75, 0.25]),
    ([0.7, 0.2, 0.1], [0.2, 0.5, 0.3]),
    ([0.05, 0.15, 0.3, 0.5], [0.25, 0.25, 0.25, 0.25]),
]


def exact_kl(p, q):
    return float((p * (p / q).log()).sum())


def is_unbiased(estimate, p, q, draws=200_000) -> bool:
    """Whether the mean over draws from p lies within 4 standard errors of the exact KL(p || q)."""
    tokens = torch.multinomial(
        p, draws, replacement=True, generator=torch.Generator().manual_seed(0)
    )
    values = estimate(p.log()[tokens], q.log()[tokens])
    return bool((values.mean() - exact_kl(p, q)).abs() < 4 * values.std() / draws**0.5)


@pytest.mark.parametrize(("p", "q"), POLICIES)
def test_k1_and_k3_are_unbiased_and_k3_is_never_negative(p, q):
    p, q = torch.tensor(p, dtype=torch.float64), torch.tensor(q, dtype=torch.float64)
    for estimator in ("k1", "k3"):
        assert is_unbiased(functools.partial(kl_estimate, estimator=estimator), p, q)
        mean = float((p * kl_estimate(p.log(), q.log(), estimator)).sum())  # without sampling
        assert mean == pytest.approx(exact_kl(p, q), rel=1e-12)
    assert (kl_estimate(p.log(), q.log(), "k3") >= 0).all()
    assert (kl_estimate(p.log(), q.log(), "k1") < 0).any()
    assert (kl_estimate(p.log(), q.log(), "k2") >= 0).all()


@pytest.mark.parametrize(("p", "q"), POLICIES)
def test_the_reversed_ratio_of_a_published_helper_is_caught(p, q):
    """pi / pi_ref where Schulman's k3 has pi_ref / pi: never negative either, and it estimates
    something else."""
    p, q = torch.tensor(p, dtype=torch.float64), torch.tensor(q, dtype=torch.float64)
    assert not is_unbiased(lambda logp, ref: kl_estimate(ref, logp, "k3"), p, q)


def test_k3_is_zero_without_distance_and_small_differences_lose_no_digits():
    logp = torch.randn(100, generator=torch.Generator().manual_seed(0))
    assert kl_estimate(logp, logp).tolist() == [0.0] * 100
    assert (kl_estimate(logp, logp + 1e-4, "k3") >= 0).all()


def test_the_ratio_fixes_the_gradient_of_k3():
    """Gradient of KL(p || q) in p's logits, exactly and as the mean gradient of the penalty over
    all tokens."""
    logits = torch.tensor([0.3, -0.2, 0.9], dtype=torch.float64, requires_grad=True)
    q = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    exact = torch.autograd.grad(
        (logits.softmax(0) * (logits.log_softmax(0) - q.log())).sum(), logits
    )[0]
    gradients = {}
    for unbiased in (True, False):
        gradients[unbiased] = torch.zeros(3, dtype=torch.float64)
        for token in range(3):
            logp = logits.log_softmax(0)[token].view(1, 1)
            loss, _ = grpo_loss(
                logp,
                torch.zeros(1, dtype=torch.float64),
                torch.ones(1, 1),
                ref_logp=q[token].log().view(1, 1),
                beta=1.0,
                unbiased_kl=unbiased,
            )
            weight = float(logits.detach().softmax(0)[token])
            gradients[unbiased] += weight * torch.autograd.grad(loss, logits)[0]
    torch.testing.assert_close(gradients[True], exact)
    assert (gradients[False] - exact).abs().max() > 0.05


def test_each_estimators_mean_gradient_is_what_its_docstring_says():
    logits = torch.tensor([0.3, -0.2, 0.9], dtype=torch.float64, requires_grad=True)
    log_q = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64).log()
    log_p = logits.log_softmax(0)
    p = log_p.detach().exp()

    def gradient(value):
        return torch.autograd.grad(value, logits, retain_graph=True)[0]

    forward, reverse = (log_p.exp() * (log_p - log_q)).sum(), (log_q.exp() * (log_q - log_p)).sum()
    expected = {"k1": torch.zeros_like(p), "k2": gradient(forward), "k3": gradient(reverse)}
    for estimator, exact in expected.items():
        penalty = (p * kl_estimate(log_p, log_q, estimator)).sum()  # p: how often it is sampled
        torch.testing.assert_close(gradient(penalty), exact)
    ratio = (log_p - log_p.detach()).exp()
    weighted = gradient((p * ratio * kl_estimate(log_p, log_q, "k3")).sum())
    torch.testing.assert_close(weighted, expected["k2"])


# ---- what each part does


def simple(logp, advantages, old=None, **arguments):
    logp = torch.tensor(logp, requires_grad=True)
    loss, metrics = grpo_loss(
        logp,
        torch.tensor(advantages),
        torch.ones_like(logp),
        old_logp=None if old is None else torch.tensor(old),
        **arguments,
    )
    loss.backward()
    return float(loss.detach()), logp.grad, metrics


def test_a_first_update_has_a_loss_of_zero_and_a_gradient():
    loss, gradient, metrics = simple([[-1.0, -2.0], [-1.0, -2.0]], [1.0, -1.0])
    assert loss == 0.0
    assert gradient.tolist() == [[-0.25, -0.25], [0.25, 0.25]]
    assert metrics == {"clip_low": 0.0, "clip_high": 0.0}


def test_clipping_stops_the_gradient_only_where_the_ratio_already_went_the_right_way():
    up = math.log(1.5)
    _, gradient, metrics = simple([[up], [-up], [up], [-up]], [1.0, -1.0, -1.0, 1.0], [[0.0]] * 4)
    assert (gradient.flatten() != 0).tolist() == [False, False, True, True]
    assert metrics["clip_high"] == metrics["clip_low"] == 0.25
    _, gradient, _ = simple(
        [[up], [-up]], [1.0, -1.0], [[0.0]] * 2, loss_type="cispo", epsilon_high=1.2
    )
    assert (gradient != 0).all()


def test_no_gradient_reaches_reference_old_policy_or_advantages():
    others = [torch.full((2, 3), v, requires_grad=True) for v in (-0.5, -0.6)]
    advantages = torch.tensor([1.0, -1.0], requires_grad=True)
    logp = torch.full((2, 3), -0.55, requires_grad=True)
    loss, _ = grpo_loss(
        logp, advantages, torch.ones(2, 3), old_logp=others[0], ref_logp=others[1], beta=0.1
    )
    loss.backward()
    assert logp.grad.abs().sum() > 0
    assert [t.grad for t in (*others, advantages)] == [None] * 3


def test_padding_changes_nothing_whatever_stands_there():
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    for fill in (0.0, -300.0, float("-inf"), float("nan")):
        logp = torch.tensor([[-1.0, -0.5, fill], [-2.0, fill, fill]], requires_grad=True)
        clean = torch.where(mask.bool(), logp.detach(), -1.0)
        advantages = torch.tensor([1.0, -1.0])
        for loss_type, level in itertools.product(grpo.LOSS_TYPES, grpo.LEVELS):
            settings = {
                "old_logp": torch.full((2, 3), -1.0),
                "ref_logp": torch.full((2, 3), -1.2),
                "beta": 0.1,
                "loss_type": loss_type,
                "level": level,
                "epsilon_high": 0.3,
                "max_completion_length": 3,
            }
            loss, _ = grpo_loss(logp, advantages, mask, **settings)
            expected, _ = grpo_loss(clean, advantages, mask, **settings)
            assert float(loss.detach()) == float(expected)
            gradient = torch.autograd.grad(loss, logp)[0]
            assert gradient.isfinite().all()
            assert not gradient[mask == 0].any()


def test_all_truncated_is_a_loss_of_zero_without_gradient():
    logp = torch.zeros(2, 3, requires_grad=True)
    for loss_type in grpo.LOSS_TYPES:
        loss, metrics = grpo_loss(
            logp,
            torch.tensor([1.0, -1.0]),
            torch.ones(2, 3),
            truncated=torch.tensor([True, True]),
            loss_type=loss_type,
            epsilon_high=0.2,
            max_completion_length=3,
        )
        loss.backward()
        assert float(loss.detach()) == 0
        assert metrics["clip_low"] == 0
    assert not logp.grad.any()


def test_rewards_are_weighed_and_none_is_left_out():
    assert combine_rewards([[1.0, None, None], [0.5, 0.5, None]], [2.0, 1.0]) == [2.5, 0.5, None]
    assert combine_rewards([[1.0, None]]) == [1.0, None]


# ---- input that makes no sense

NAN = float("nan")
BAD_ADVANTAGES = {
    "not whole groups": (([1.0] * 10, 4), "(10,)"),
    "nothing": (([], 4), "(0,)"),
    "a table": ((torch.ones(2, 4), 4), "(2, 4)"),
    "a group of one": (([1.0, 2.0], 1), "groups of 1"),
    "nan": (([1.0, 0.0, NAN, 1.0], 2), "reward 2 is nan"),
    "nan by batch": (([1.0, 0.0, NAN, 1.0], 2, "batch"), "reward 2 is nan"),
    "nan unscaled": (([1.0, 0.0, NAN, 1.0], 2, "none"), "reward 2 is nan"),
    "infinite": (([1.0, float("inf")], 2), "reward 1 is inf"),
    "minus infinite": (([float("-inf"), 1.0], 2, "none"), "reward 0 is -inf"),
    "nan beside none": (([None, 1.0, NAN, 0.0], 2), "reward 2 is nan"),
    "an unknown scale": (([1.0, 0.0], 2, "std"), "'std'"),
}


@pytest.mark.parametrize(("arguments", "named"), BAD_ADVANTAGES.values(), ids=BAD_ADVANTAGES)
def test_bad_rewards_are_refused_by_name(arguments, named):
    with raises_naming(ValueError, named):
        group_advantages(*arguments)


BAD_LOSS = {
    "an empty completion": (
        {"mask": torch.tensor([[1.0, 1, 1], [0, 0, 0]])},
        ["completion 1"],
    ),
    "a mask of another shape": ({"mask": torch.ones(2, 4)}, ["mask", "(2, 4)", "(2, 3)"]),
    "another reference": ({"ref_logp": torch.ones(2, 2)}, ["ref_logp", "(2, 2)", "(2, 3)"]),
    "another old policy": ({"old_logp": torch.ones(3, 3)}, ["old_logp", "(3, 3)", "(2, 3)"]),
    "advantages per token": ({"advantages": torch.ones(2, 3)}, ["advantages"]),
    "a NaN advantage": ({"advantages": torch.tensor([1.0, NAN])}, ["advantages", "nan"]),
    "truncated of another shape": ({"truncated": torch.ones(3).bool()}, ["truncated", "(3,)"]),
    "no reference": ({"beta": 0.1}, ["beta", 0.1, "ref_logp"]),
    "an unknown loss": ({"loss_type": "ppo"}, ["loss_type", "'ppo'", *grpo.LOSS_TYPES]),
    "an unknown level": ({"level": "word"}, ["level", "'word'", *grpo.LEVELS]),
    "cispo without its cap": ({"loss_type": "cispo"}, ["epsilon_high"]),
    "dr_grpo without its constant": ({"loss_type": "dr_grpo"}, ["max_completion_length"]),
}


@pytest.mark.parametrize(("changes", "named"), BAD_LOSS.values(), ids=BAD_LOSS)
def test_bad_input_of_the_loss_is_refused_by_name(changes, named):
    arguments = {
        "logp": torch.zeros(2, 3),
        "advantages": torch.tensor([1.0, -1.0]),
        "mask": torch.ones(2, 3),
    }
    with raises_naming(ValueError, *named):
        grpo_loss(**arguments | changes)


def test_what_would_broadcast_or_be_cut_is_refused():
    with raises_naming(ValueError, "ref_logp", "(3,)", "(2,)"):
        kl_estimate(torch.zeros(2), torch.zeros(3))
    with raises_naming(ValueError, "k4", "k1", "k2", "k3"):
        kl_estimate(torch.zeros(2), torch.zeros(2), "k4")
    for per_function, weights in (([[1.0, 1.0], [1.0]], None), ([[1.0]], [1.0, 2.0])):
        with pytest.raises(ValueError, match="zip"):
            combine_rewards(per_function, weights)
