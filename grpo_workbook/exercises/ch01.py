"""The exercises of notebook 01_grpo_from_scratch."""

from grpo_workbook.exercises import exercise, experiment

_SPREAD = "A (B,) was spread over the tokens: give it a second dimension, A.unsqueeze(1)"


# 01.1 advantages


def _advantages(centre="group", scale="group", epsilon=1e-4, correction=1):
    def fn(rewards, size):
        groups = rewards.view(-1, size)
        over = {
            "group": lambda of, **more: getattr(groups, of)(dim=1, keepdim=True, **more),
            "batch": lambda of, **more: getattr(groups, of)(**more),
            "none": lambda of, **more: 1.0,
        }
        centred = groups - over[centre]("mean")
        return (centred / (over[scale]("std", correction=correction) + epsilon)).flatten()

    return fn


def _advantage_cases():
    import torch

    given = [
        ([1.0, 1.0, 0.0, 0.0], 4),
        ([3.0, 3.0, 3.0, 3.0], 4),
        ([1.0, 1.0, 0.0, 0.0, 9.0, 7.0, 5.0, 7.0], 4),
        ([0.0, 2.0, 4.0, 10.0, 12.0, 14.0], 3),
    ]
    cases = [(torch.tensor(rewards), size) for rewards, size in given]
    return [(case, _advantages()(*case).tolist()) for case in cases]


_MISTAKES = {
    "you divided by the population deviation: TRL divides by n - 1, as Tensor.std does":
        _advantages(correction=0),
    "you compared with the whole batch: a hard problem's best answer then counts as bad":
        _advantages("batch", "batch"),
    "you subtracted the whole batch's mean: compare an answer with its own group only":
        _advantages("batch"),
    "you divided by the deviation of the whole batch: that is scale_rewards='batch'":
        _advantages(scale="batch"),
    "you did not divide: an advantage is in units of its group's deviation":
        _advantages(scale="none", epsilon=0.0),
    "you divided by the bare deviation, which is 0 if all rewards are equal: add 1e-4":
        _advantages(epsilon=0.0),
}  # fmt: skip
exercise("01.1", "advantages", _advantage_cases, _MISTAKES, tolerance=1e-4)


# 01.2 ratio and clip


def _measured(fn, *given):
    """What the function returns, and the gradient in each argument that can carry one."""
    import torch

    leaves = [x for x in given if getattr(x, "requires_grad", False)]
    value = fn(*given)
    found = [None] * len(leaves)
    if value.requires_grad:
        found = torch.autograd.grad(value.sum(), leaves, allow_unused=True)
    names = ("gradient in logp", "gradient in ref_logp")
    into = ("none" if g is None else g.tolist() for g in found)
    return {"value": value.tolist()} | dict(zip(names, into, strict=False))


def _clipped(
    pick="minimum",
    sign=-1.0,
    bounds=lambda low, high: (1 - low, 1 + high),
    which=lambda logp, old: (logp - old).exp(),
    spread=lambda A: A.unsqueeze(1),
):
    def fn(logp, old_logp, A, low, high):
        ratio, A = which(logp, old_logp), spread(A)
        clipped = ratio.clamp(*bounds(low, high)) * A
        return sign * (getattr(ratio * A, pick)(clipped) if pick else clipped)

    return fn


def _clip_cases():
    import torch

    ratios = torch.tensor([[1.0, 0.6, 0.9], [1.25, 1.5, 0.5], [1.3, 1.1, 0.75]])
    old = torch.tensor([[-1.0, -0.5, -2.0]]).expand(3, 3)
    cases = [
        ((old + ratios.log()).requires_grad_(), old, torch.tensor(A), 0.2, 0.28)
        for A in ([1.0, 1.0, 2.0], [-1.0, -0.5, 1.0], [1.5, -2.0, -1.0])
    ]
    return [(case, _measured(_clipped(), *case)) for case in cases]


_MISTAKES = {
    "you clipped to the epsilons themselves: the bounds are 1 - low and 1 + high":
        _clipped(bounds=lambda low, high: (low, high)),
    "the minus sign is missing: a loss is made smaller, a good token must become likelier":
        _clipped(sign=1.0),
    "you swapped the epsilons: `low` belongs below 1, `high` above":
        _clipped(bounds=lambda low, high: (1 - high, 1 + low)),
    "you took the larger of the two: PPO takes the smaller, the pessimistic one":
        _clipped("maximum"),
    "you forgot the lower side: with A < 0 the ratio must stop at 1 - low":
        _clipped(bounds=lambda low, high: (None, 1 + high)),
    "you forgot the upper side: with A > 0 the ratio must stop at 1 + high":
        _clipped(bounds=lambda low, high: (1 - low, None)),
    "you left out the minimum: a token that went the wrong way must be able to come back":
        _clipped(None),
    "the ratio is upside down: it is new over old, (logp - old_logp).exp()":
        _clipped(which=lambda logp, old: (old - logp).exp()),
    "you took the difference of the logarithms for the ratio: exp is missing":
        _clipped(which=lambda logp, old: logp - old),
    _SPREAD: _clipped(spread=lambda A: A),
    "no gradient reaches logp: nothing on its way may be detached":
        _clipped(which=lambda logp, old: (logp - old).exp().detach()),
}  # fmt: skip
more = {"call": _measured, "tolerance": 1e-4}
exercise("01.2", "clipped_loss", _clip_cases, _MISTAKES, **more)


# 01.3 the KL penalty


def _k3(d):
    return d.exp() - d - 1


def _penalty(formula=_k3, policy=lambda x: x, reference=lambda x: x.detach(), keep=lambda x: x):
    def fn(logp, ref_logp, mask):
        return (formula(reference(ref_logp) - policy(logp)) * keep(mask)).sum() / keep(mask).sum()

    return fn


def _penalty_cases():
    import torch

    given = [
        ([[-1.0, -0.5], [-2.0, -0.1]], [[-1.2, -0.4], [-1.0, -0.3]], [[1.0, 1.0], [1.0, 1.0]]),
        (
            [[-1.0, -0.5, -6.0], [-2.0, -9.0, -9.0]],
            [[-1.5, -0.2, -1.0], [-1.7, -5.0, -2.0]],
            [[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]],
        ),
    ]
    cases = []
    for *both, mask in given:
        leaves = (torch.tensor(x, requires_grad=True) for x in both)
        cases.append((*leaves, torch.tensor(mask)))
    return [(case, _measured(_penalty(), *case)) for case in cases]


_MISTAKES = {
    "a gradient flows through the reference: it is frozen; take ref_logp.detach()":
        _penalty(reference=lambda ref: ref),
    "you detached the wrong one: the policy must get the gradient, not the reference":
        _penalty(policy=lambda logp: logp.detach(), reference=lambda ref: ref),
    "no gradient reaches the policy: detach the reference alone":
        _penalty(policy=lambda logp: logp.detach()),
    "you took the mean of each answer first: it is one mean over all tokens that are kept":
        _penalty(keep=lambda mask: mask / mask.sum(dim=1, keepdim=True)),
    "you divided by all entries: divide by the sum of the mask":
        lambda logp, ref, mask: _penalty()(logp, ref, mask) * mask.mean(),
    "you have the ratio reversed: it is reference over policy, exp(ref_logp - logp)":
        _penalty(lambda d: _k3(-d)),
    "that is k1, the bare difference: its gradient is 0 on average": _penalty(lambda d: -d),
    "that is k2, half the square: its gradient is right, but its value is biased":
        _penalty(lambda d: d * d / 2),
    "you left the mask out: the distance at padding is in your mean":
        _penalty(keep=lambda mask: mask.clamp(min=1.0)),
}  # fmt: skip
exercise("01.3", "kl_penalty", _penalty_cases, _MISTAKES, **more)


# 01.4 the training step


def _two_steps(fn, ids, mask, A):
    """The logits of a small model after each of two steps; the learner's random state stays."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Embedding(6, 4), torch.nn.Linear(4, 6))
        optimizer, found = torch.optim.SGD(model.parameters(), 1.0), {}
        for step in ("one step", "two steps"):
            fn(model, optimizer, ids, mask, A)
            found[f"logits after {step}"] = model(torch.arange(6)).tolist()
    return found


def _step(shift=1, sign=-1.0, use_mask=True, zero=True, update=True, row=False, reduce=None):
    def fn(model, optimizer, ids, mask, A):
        T = mask.shape[1]
        logits = model(ids)[:, ids.shape[1] - T - shift : ids.shape[1] - shift]
        logp = logits.log_softmax(-1).gather(-1, ids[:, -T:, None]).squeeze(-1)
        mask = mask if use_mask else mask.clamp(min=1.0)
        losses = sign * logp * (A if row else A.unsqueeze(1)) * mask
        loss = reduce(losses, mask) if reduce else losses.sum() / mask.sum()
        if zero:
            optimizer.zero_grad()
        loss.backward()
        if update:
            optimizer.step()

    return fn


def _step_cases():
    import torch

    ids = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 5, 1, 0], [4, 3, 3, 0, 0]])
    mask = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    case = (ids, mask, torch.tensor([1.0, -0.5, -0.5]))
    return [(case, _two_steps(_step(), *case))]


_MISTAKES = {
    "the shift is missing: the logits at position t predict token t + 1": _step(shift=0),
    "the mask is missing: your step trains on padding too": _step(use_mask=False),
    "zero_grad is missing: the first step's gradient is still in the second": _step(zero=False),
    "the sign is wrong: your step makes good answers rarer and bad ones likelier": _step(sign=1.0),
    "the weights do not move: call optimizer.step() after loss.backward()": _step(update=False),
    _SPREAD: _step(row=True),
    "you took the mean of each answer first: dapo is one mean over all tokens kept":
        _step(reduce=lambda losses, mask: (losses.sum(1) / mask.sum(1)).mean()),
    "you took the sum over tokens: divide by the sum of the mask":
        _step(reduce=lambda losses, mask: losses.sum()),
    "you divided by padding too: divide by the sum of the mask":
        _step(reduce=lambda losses, mask: losses.mean()),
}  # fmt: skip
more = {"call": _two_steps, "tolerance": 1e-4}
exercise("01.4", "training_step", _step_cases, _MISTAKES, **more)


# 01.5 a batch used again, 01.6 a reward of one's own


def _change(before, after, n):
    """The difference of two fractions of n problems, in units of twice its standard error."""
    p = (before + after) / (2 * n)
    return (after - before) / n / (2 * max(1e-6, (2 * p * (1 - p) / n) ** 0.5))


def _read_reuse(run):
    n, once, again = run["problems"], run["once"], run["four times"]
    change = _change(once, again, n)
    right = "the same" if abs(change) <= 1 else "better" if change > 0 else "worse"
    said = f"Right of {n} held-out problems: {once} after one update a batch, {again} after four"
    return right, f"{said}, a difference of {abs(2 * change):.1f} standard errors."


_WRONG = {
    "better": "More updates do not help if they overfit the batch or the rate is too high.",
    "the same": "The clip stops single tokens; all others keep learning, for better or worse.",
    "worse": "The ratio and the clip keep a few more updates on one batch useful.",
}
_EXAMPLES = [
    ({"problems": 160, "once": 88, "four times": 110}, "better"),
    ({"problems": 8, "once": 4, "four times": 7}, "the same"),  # too few problems to tell
]
experiment("01.5", "reuse", _read_reuse, _WRONG, _EXAMPLES)


def _read_own(run):
    n, (before, after), (first, last) = run["problems"], run["right"], run["reward"]
    if last - first <= 2 * run["error"]:
        raise ValueError(
            f"your reward went from {first:.2f} to {last:.2f}, no more than noise: train longer, "
            "or reward something that some answers already have"
        )
    change = _change(before, after, n)
    right = "stays" if abs(change) <= 1 else "rises" if change > 0 else "falls"
    said = f"Your reward rose from {first:.2f} to {last:.2f}, and the right numbers went from"
    return right, f"{said} {before} to {after} of {n}."


_WRONG = {
    "rises": "Your reward does not ask for the right number, and nothing else does.",
    "stays": "What a reward leaves out is not safe: it moves along with what is rewarded.",
    "falls": "What you reward does not stand in the way of the right number here.",
}
_EXAMPLES = [({"problems": 160, "right": [116, 4], "reward": [0.75, 1.0], "error": 0.02}, "falls")]
experiment("01.6", "own_reward", _read_own, _WRONG, _EXAMPLES)
