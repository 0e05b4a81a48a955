"""The exercises of notebook 01_grpo_from_scratch. B answers have T tokens each."""

from statistics import mean, stdev

from grpo_workbook.exercises.tasks import exercise, experiment, paired_direction


def to_tensors(*arguments):
    """The arguments of a case, with a tensor for each list."""
    import torch

    return tuple(torch.tensor(a) if isinstance(a, list) else a for a in arguments)


# 01.1: the advantages of a batch of groups


def correct_advantages(rewards, group_size):
    """The solution: (B,) rewards give (B,) advantages."""
    groups = rewards.view(-1, group_size)
    centred = groups - groups.mean(dim=1, keepdim=True)
    deviations = groups.std(dim=1, keepdim=True)
    return (centred / (deviations + 1e-4)).flatten()


advantages = exercise(
    "01.1", "advantages", solution=correct_advantages, prepare=to_tensors, tolerance=1e-4
)
advantages.case([1.0, 1.0, 0.0, 0.0], 4)
advantages.case([3.0, 3.0, 3.0, 3.0], 4)  # no variance
advantages.case([1.0, 1.0, 0.0, 0.0, 9.0, 7.0, 5.0, 7.0], 4)
# a hard and an easy problem
advantages.case([0.0, 2.0, 4.0, 10.0, 12.0, 14.0], 3)
advantages.case([0.001, 0.0, 0.0, 0.0], 4)  # a tiny difference, beside which 1e-4 counts


@advantages.mistake
def takes_the_population_deviation(rewards, group_size):
    """You divided by the population deviation: TRL divides by n - 1, as Tensor.std does."""
    groups = rewards.view(-1, group_size)
    centred = groups - groups.mean(dim=1, keepdim=True)
    deviations = groups.std(dim=1, keepdim=True, correction=0)
    return (centred / (deviations + 1e-4)).flatten()


@advantages.mistake
def compares_with_the_batch(rewards, group_size):
    """You compared with the whole batch: a hard problem's best answer then counts as bad."""
    return (rewards - rewards.mean()) / (rewards.std() + 1e-4)


@advantages.mistake
def subtracts_the_mean_of_the_batch(rewards, group_size):
    """You subtracted the whole batch's mean: compare an answer with its own group only."""
    groups = rewards.view(-1, group_size)
    deviations = groups.std(dim=1, keepdim=True)
    return ((groups - rewards.mean()) / (deviations + 1e-4)).flatten()


@advantages.mistake
def divides_by_the_deviation_of_the_batch(rewards, group_size):
    """You divided by the deviation of the whole batch: that is scale_rewards='batch'."""
    groups = rewards.view(-1, group_size)
    centred = groups - groups.mean(dim=1, keepdim=True)
    return (centred / (rewards.std() + 1e-4)).flatten()


@advantages.mistake
def does_not_divide(rewards, group_size):
    """You did not divide: an advantage is measured in standard deviations of its group."""
    groups = rewards.view(-1, group_size)
    return (groups - groups.mean(dim=1, keepdim=True)).flatten()


@advantages.mistake
def divides_by_zero(rewards, group_size):
    """You divided by the bare deviation, which is 0 if all rewards are equal: add 1e-4."""
    groups = rewards.view(-1, group_size)
    centred = groups - groups.mean(dim=1, keepdim=True)
    return (centred / groups.std(dim=1, keepdim=True)).flatten()


@advantages.mistake
def adds_another_small_number(rewards, group_size):
    """You added another small number than 1e-4, the one in the formula."""
    groups = rewards.view(-1, group_size)
    centred = groups - groups.mean(dim=1, keepdim=True)
    deviations = groups.std(dim=1, keepdim=True)
    return (centred / (deviations + 1e-8)).flatten()


@advantages.mistake
def keeps_the_groups_as_rows(rewards, group_size):
    """You gave a row for each group: the advantages are one after the other, so flatten them."""
    return correct_advantages(rewards, group_size).view(-1, group_size)


@advantages.mistake
def divides_by_the_variance(rewards, group_size):
    """You divided by the variance: divide by the standard deviation, its square root."""
    groups = rewards.view(-1, group_size)
    centred = groups - groups.mean(dim=1, keepdim=True)
    variances = groups.var(dim=1, keepdim=True)
    return (centred / (variances + 1e-4)).flatten()


@advantages.mistake
def subtracts_the_mean_of_the_others(rewards, group_size):
    """You subtracted the mean of the other answers, as RLOO does: GRPO takes the whole group's."""
    groups = rewards.view(-1, group_size)
    sums = groups.sum(dim=1, keepdim=True)
    others = (sums - groups) / (group_size - 1)
    deviations = groups.std(dim=1, keepdim=True)
    return ((groups - others) / (deviations + 1e-4)).flatten()


@advantages.mistake
def subtracts_the_reward(rewards, group_size):
    """The sign is wrong: an answer above its group's mean has a positive advantage."""
    return -correct_advantages(rewards, group_size)


@advantages.mistake
def forgets_the_mean(rewards, group_size):
    """You did not subtract the group's mean: then no right answer makes a wrong one less likely."""
    groups = rewards.view(-1, group_size)
    deviations = groups.std(dim=1, keepdim=True)
    return (groups / (deviations + 1e-4)).flatten()


@advantages.mistake
def subtracts_the_median(rewards, group_size):
    """You subtracted the median: GRPO subtracts the mean."""
    groups = rewards.view(-1, group_size)
    centred = groups - groups.median(dim=1, keepdim=True).values
    deviations = groups.std(dim=1, keepdim=True)
    return (centred / (deviations + 1e-4)).flatten()


@advantages.mistake
def adds_the_small_number_under_the_root(rewards, group_size):
    """You added 1e-4 to the variance: add it to the standard deviation, outside of the root."""
    groups = rewards.view(-1, group_size)
    centred = groups - groups.mean(dim=1, keepdim=True)
    variances = groups.var(dim=1, keepdim=True)
    return (centred / (variances + 1e-4).sqrt()).flatten()


# 01.2: the clipped loss of every token

RATIOS = [[1.0, 0.6, 0.9], [1.25, 1.5, 0.5], [1.3, 1.1, 0.75]]  # (B, T)
OLD_LOGP = [[-1.0, -0.5, -2.0]] * 3  # (B, T)


def clip_arguments(answer_advantages):
    """The arguments of `clipped_loss`: the ratios above, and the advantages (B,) of a case."""
    import torch

    old_logp = torch.tensor(OLD_LOGP)
    logp = old_logp + torch.tensor(RATIOS).log()
    return logp.requires_grad_(), old_logp, torch.tensor(answer_advantages), 0.2, 0.28


def value_and_gradients(function, *arguments):
    """What the function returns, and the gradient in each argument that can carry one."""
    import torch

    value = function(*arguments)
    measured = {"value": value.tolist()}
    leaves = []
    for argument in arguments:
        if isinstance(argument, torch.Tensor) and argument.requires_grad:
            leaves.append(argument)
    gradients = [None] * len(leaves)
    if value.requires_grad:
        gradients = torch.autograd.grad(value.sum(), leaves, allow_unused=True)
    names = ["gradient in logp", "gradient in ref_logp"]
    for name, gradient in zip(names, gradients, strict=False):  # 01.2 has one of the two
        measured[name] = "none" if gradient is None else gradient.tolist()
    return measured


def clip_with(ratio, A, low, high):
    """The clipped loss for a ratio (B, T), with the bounds `low` and `high`, None for no bound."""
    A = A.unsqueeze(1)
    return -(ratio * A).minimum(ratio.clamp(low, high) * A)


def correct_clipped_loss(logp, old_logp, A, low=0.2, high=0.2):
    """The solution, (B, T)."""
    return clip_with((logp - old_logp).exp(), A, 1 - low, 1 + high)


clipped_loss = exercise(
    "01.2",
    "clipped_loss",
    solution=correct_clipped_loss,
    prepare=clip_arguments,
    call=value_and_gradients,
    tolerance=1e-4,
)
# the advantage of each answer: both signs meet ratios on both sides of the clip
clipped_loss.case([1.0, 1.0, 2.0])
clipped_loss.case([-1.0, -0.5, 1.0])
clipped_loss.case([1.5, -2.0, -1.0])


@clipped_loss.mistake
def clips_to_the_epsilons(logp, old_logp, A, low, high):
    """You clipped to the epsilons themselves: the bounds are 1 - low and 1 + high."""
    return clip_with((logp - old_logp).exp(), A, low, high)


@clipped_loss.mistake
def forgets_the_minus_sign(logp, old_logp, A, low, high):
    """The minus sign is missing: the optimizer makes the loss smaller, and that must make a good
    token likelier.
    """
    return -correct_clipped_loss(logp, old_logp, A, low, high)


@clipped_loss.mistake
def swaps_the_epsilons(logp, old_logp, A, low, high):
    """You swapped the epsilons: `low` belongs below 1, `high` above."""
    return correct_clipped_loss(logp, old_logp, A, high, low)


@clipped_loss.mistake
def takes_the_larger(logp, old_logp, A, low, high):
    """You took the larger of the two: PPO takes the smaller, the pessimistic one."""
    ratio = (logp - old_logp).exp()
    A = A.unsqueeze(1)
    return -(ratio * A).maximum(ratio.clamp(1 - low, 1 + high) * A)


@clipped_loss.mistake
def forgets_the_lower_side(logp, old_logp, A, low, high):
    """You forgot the lower side: with A < 0 the ratio must stop at 1 - low."""
    return clip_with((logp - old_logp).exp(), A, None, 1 + high)


@clipped_loss.mistake
def forgets_the_upper_side(logp, old_logp, A, low, high):
    """You forgot the upper side: with A > 0 the ratio must stop at 1 + high."""
    return clip_with((logp - old_logp).exp(), A, 1 - low, None)


@clipped_loss.mistake
def forgets_the_minimum(logp, old_logp, A, low, high):
    """You left out the minimum: a token that went the wrong way must be able to come back."""
    ratio = (logp - old_logp).exp()
    return -ratio.clamp(1 - low, 1 + high) * A.unsqueeze(1)


@clipped_loss.mistake
def turns_the_ratio_upside_down(logp, old_logp, A, low, high):
    """The ratio is upside down: it is new over old, (logp - old_logp).exp()."""
    return clip_with((old_logp - logp).exp(), A, 1 - low, 1 + high)


@clipped_loss.mistake
def forgets_exp(logp, old_logp, A, low, high):
    """You took the difference of the logarithms for the ratio: exp is missing."""
    return clip_with(logp - old_logp, A, 1 - low, 1 + high)


@clipped_loss.mistake
def spreads_the_advantages_over_the_tokens(logp, old_logp, A, low, high):
    """A (B,) was spread over the tokens: give it a second dimension, A.unsqueeze(1)."""
    ratio = (logp - old_logp).exp()
    return -(ratio * A).minimum(ratio.clamp(1 - low, 1 + high) * A)


@clipped_loss.mistake
def does_not_clip(logp, old_logp, A, low, high):
    """You did not clip: beyond the bounds a token must lose its gradient."""
    return -(logp - old_logp).exp() * A.unsqueeze(1)


@clipped_loss.mistake
def clips_the_product(logp, old_logp, A, low, high):
    """You clipped the ratio times A: clip the ratio alone, and multiply by A afterwards."""
    product = (logp - old_logp).exp() * A.unsqueeze(1)
    return -product.minimum(product.clamp(1 - low, 1 + high))


@clipped_loss.mistake
def divides_the_logarithms(logp, old_logp, A, low, high):
    """You divided the logarithms: the ratio of the probabilities is (logp - old_logp).exp()."""
    return clip_with(logp / old_logp, A, 1 - low, 1 + high)


@clipped_loss.mistake
def compares_before_multiplying(logp, old_logp, A, low, high):
    """You took the minimum of the ratios: take that of the two products with A, because a negative
    A turns the order round.
    """
    ratio = (logp - old_logp).exp()
    return -ratio.minimum(ratio.clamp(1 - low, 1 + high)) * A.unsqueeze(1)


@clipped_loss.mistake
def takes_low_on_both_sides(logp, old_logp, A, low, high):
    """You took `low` on both sides: the upper bound is 1 + high."""
    return clip_with((logp - old_logp).exp(), A, 1 - low, 1 + low)


@clipped_loss.mistake
def averages_the_tokens(logp, old_logp, A, low, high):
    """You took the mean: return the loss of every token, (B, T)."""
    return correct_clipped_loss(logp, old_logp, A, low, high).mean()


@clipped_loss.mistake
def detaches_the_ratio(logp, old_logp, A, low, high):
    """No gradient reaches logp: nothing on its way may be detached."""
    return correct_clipped_loss(logp.detach(), old_logp, A, low, high)


# 01.3: the KL penalty


def penalty_arguments(logp, ref_logp, mask):
    """The arguments of `kl_penalty` as tensors (B, T); the first two can carry a gradient."""
    import torch

    policy = torch.tensor(logp, requires_grad=True)
    reference = torch.tensor(ref_logp, requires_grad=True)
    return policy, reference, torch.tensor(mask)


def k3(d):
    """The estimate k3 of the divergence, from d = ref_logp - logp."""
    return d.exp() - d - 1


def masked_mean(values, mask):
    """The mean over the tokens that the mask (B, T) keeps."""
    return (values * mask).sum() / mask.sum()


def correct_kl_penalty(logp, ref_logp, mask):
    """The solution."""
    return masked_mean(k3(ref_logp.detach() - logp), mask)


kl_penalty = exercise(
    "01.3",
    "kl_penalty",
    solution=correct_kl_penalty,
    prepare=penalty_arguments,
    call=value_and_gradients,
    tolerance=1e-4,
)
logp = [[-1.0, -0.5], [-2.0, -0.1]]
ref_logp = [[-1.2, -0.4], [-1.0, -0.3]]
mask = [[1.0, 1.0], [1.0, 1.0]]
kl_penalty.case(logp, ref_logp, mask)
# with padding, where the two policies lie far apart
logp = [[-1.0, -0.5, -6.0], [-2.0, -9.0, -9.0]]
ref_logp = [[-1.5, -0.2, -1.0], [-1.7, -5.0, -2.0]]
mask = [[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
kl_penalty.case(logp, ref_logp, mask)


@kl_penalty.mistake
def trains_the_reference(logp, ref_logp, mask):
    """A gradient flows through the reference: it is frozen; take ref_logp.detach()."""
    return masked_mean(k3(ref_logp - logp), mask)


@kl_penalty.mistake
def detaches_the_policy_alone(logp, ref_logp, mask):
    """You detached the wrong one: the policy must get the gradient, not the reference."""
    return masked_mean(k3(ref_logp - logp.detach()), mask)


@kl_penalty.mistake
def detaches_both(logp, ref_logp, mask):
    """No gradient reaches the policy: detach the reference alone."""
    return correct_kl_penalty(logp.detach(), ref_logp, mask)


@kl_penalty.mistake
def averages_each_answer_first(logp, ref_logp, mask):
    """You took the mean of each answer first: the penalty is one mean over all tokens that the mask
    keeps.
    """
    distances = k3(ref_logp.detach() - logp)
    return ((distances * mask).sum(dim=1) / mask.sum(dim=1)).mean()


@kl_penalty.mistake
def divides_by_all_entries(logp, ref_logp, mask):
    """You divided by all entries: divide by the sum of the mask."""
    return (k3(ref_logp.detach() - logp) * mask).mean()


@kl_penalty.mistake
def reverses_the_ratio(logp, ref_logp, mask):
    """You have the ratio reversed: it is reference over policy, exp(ref_logp - logp)."""
    return masked_mean(k3(logp - ref_logp.detach()), mask)


@kl_penalty.mistake
def takes_k1(logp, ref_logp, mask):
    """That is k1, the bare difference: its gradient is 0 on average."""
    return masked_mean(logp - ref_logp.detach(), mask)


@kl_penalty.mistake
def takes_k2(logp, ref_logp, mask):
    """That is k2, half the square: its gradient is right, but its value is biased."""
    return masked_mean((ref_logp.detach() - logp) ** 2 / 2, mask)


@kl_penalty.mistake
def leaves_the_mask_out(logp, ref_logp, mask):
    """You left the mask out: the distance at padding is in your mean."""
    return k3(ref_logp.detach() - logp).mean()


@kl_penalty.mistake
def forgets_d(logp, ref_logp, mask):
    """The term - d is missing: k3 is exp(d) - d - 1."""
    d = ref_logp.detach() - logp
    return masked_mean(d.exp() - 1, mask)


@kl_penalty.mistake
def adds_1(logp, ref_logp, mask):
    """You added 1: k3 is exp(d) - d - 1, so it is 0 where the two policies agree."""
    return masked_mean(k3(ref_logp.detach() - logp) + 2, mask)


@kl_penalty.mistake
def takes_the_sum_of_k3(logp, ref_logp, mask):
    """You took the sum over the tokens: divide by the sum of the mask."""
    return (k3(ref_logp.detach() - logp) * mask).sum()


@kl_penalty.mistake
def keeps_every_token(logp, ref_logp, mask):
    """You gave one number for each token: give one mean over the tokens that the mask keeps."""
    return k3(ref_logp.detach() - logp) * mask


@kl_penalty.mistake
def rewards_the_distance(logp, ref_logp, mask):
    """The sign is wrong: your penalty falls as the policy moves away from the reference."""
    return -correct_kl_penalty(logp, ref_logp, mask)


@kl_penalty.mistake
def multiplies_by_the_ratio(logp, ref_logp, mask):
    """You multiplied by the ratio, as TRL does: that makes the gradient right, but here the bare k3
    is asked for.
    """
    ratio = (logp - logp.detach()).exp()
    return masked_mean(ratio * k3(ref_logp.detach() - logp), mask)


# 01.4: the training step


def two_steps(function, ids, mask, A):
    """The logits of a small model after each of two steps. The learner's random state stays."""
    import torch

    logits = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Embedding(6, 4), torch.nn.Linear(4, 6))
        optimizer = torch.optim.SGD(model.parameters(), 1.0)
        for step in ["one step", "two steps"]:
            function(model.forward, optimizer, ids, mask, A)  # as the notebook: a function
            logits[f"logits after {step}"] = model(torch.arange(6)).tolist()
    return logits


def token_logprobs(model, ids, mask, shift=1):
    """The log-probabilities (B, T) of the last T ids, from the logits `shift` places before."""
    tokens = mask.shape[1]
    start = ids.shape[1] - tokens - shift
    logits = model(ids)[:, start : start + tokens]  # (B, T, V)
    return logits.log_softmax(-1).gather(-1, ids[:, -tokens:, None]).squeeze(-1)


def token_losses(model, ids, mask, A):
    """The loss of each token (B, T), 0 where the mask is 0."""
    return -token_logprobs(model, ids, mask) * A.unsqueeze(1) * mask


def update(optimizer, loss):
    """One step of the optimizer."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def correct_training_step(model, optimizer, ids, mask, A):
    """The solution."""
    update(optimizer, token_losses(model, ids, mask, A).sum() / mask.sum())


training_step = exercise(
    "01.4",
    "training_step",
    solution=correct_training_step,
    prepare=to_tensors,
    call=two_steps,
    tolerance=1e-4,
)
# three answers of 3, 2 and 1 tokens
ids = [[0, 1, 2, 3, 4], [1, 2, 5, 1, 0], [4, 3, 3, 0, 0]]
mask = [[1.0, 1.0, 1.0], [1.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
advantages = [1.0, -0.5, -0.5]
training_step.case(ids, mask, advantages)
# two answers of 2 and 4 tokens after a prompt of three
ids = [[0, 2, 4, 1, 5, 0, 0], [3, 3, 1, 2, 4, 5, 1]]
mask = [[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]]
advantages = [0.7, -0.7]
training_step.case(ids, mask, advantages)


@training_step.mistake
def forgets_the_shift(model, optimizer, ids, mask, A):
    """The shift is missing: the logits at position t predict token t + 1."""
    logp = token_logprobs(model, ids, mask, shift=0)
    losses = -logp * A.unsqueeze(1) * mask
    update(optimizer, losses.sum() / mask.sum())


@training_step.mistake
def forgets_the_mask(model, optimizer, ids, mask, A):
    """The mask is missing: your step trains on padding too."""
    logp = token_logprobs(model, ids, mask)
    update(optimizer, -(logp * A.unsqueeze(1)).mean())


@training_step.mistake
def forgets_zero_grad(model, optimizer, ids, mask, A):
    """zero_grad is missing: the first step's gradient is still in the second."""
    loss = token_losses(model, ids, mask, A).sum() / mask.sum()
    loss.backward()
    optimizer.step()


@training_step.mistake
def has_the_wrong_sign(model, optimizer, ids, mask, A):
    """The sign is wrong: your step makes good answers rarer and bad ones likelier."""
    correct_training_step(model, optimizer, ids, mask, -A)


@training_step.mistake
def forgets_the_step(model, optimizer, ids, mask, A):
    """The weights do not move: call zero_grad() first, then loss.backward(), then optimizer.step(),
    so that the step has a gradient.
    """
    loss = token_losses(model, ids, mask, A).sum() / mask.sum()
    optimizer.zero_grad()
    loss.backward()


@training_step.mistake
def spreads_A_over_the_tokens(model, optimizer, ids, mask, A):
    """A (B,) was spread over the tokens: give it a second dimension, A.unsqueeze(1)."""
    losses = -token_logprobs(model, ids, mask) * A * mask
    update(optimizer, losses.sum() / mask.sum())


@training_step.mistake
def averages_the_answers(model, optimizer, ids, mask, A):
    """You took the mean of each answer first: take one mean over all tokens whose mask is 1."""
    losses = token_losses(model, ids, mask, A)
    update(optimizer, (losses.sum(dim=1) / mask.sum(dim=1)).mean())


@training_step.mistake
def takes_the_sum(model, optimizer, ids, mask, A):
    """You took the sum over tokens: divide by the sum of the mask."""
    update(optimizer, token_losses(model, ids, mask, A).sum())


@training_step.mistake
def divides_by_padding_too(model, optimizer, ids, mask, A):
    """You divided by padding too: divide by the sum of the mask."""
    update(optimizer, token_losses(model, ids, mask, A).mean())


@training_step.mistake
def divides_by_the_answers(model, optimizer, ids, mask, A):
    """You divided by the number of answers: divide by the sum of the mask, the number of tokens."""
    losses = token_losses(model, ids, mask, A)
    update(optimizer, losses.sum() / len(A))


@training_step.mistake
def trains_on_the_first_ids(model, optimizer, ids, mask, A):
    """You took the first ids, which belong to the prompt: the completion is the last T columns."""
    tokens = mask.shape[1]
    answers = ids[:, 1 : tokens + 1, None]
    logp = model(ids)[:, :tokens].log_softmax(-1)
    logp = logp.gather(-1, answers).squeeze(-1)
    losses = -logp * A.unsqueeze(1) * mask
    update(optimizer, losses.sum() / mask.sum())


@training_step.mistake
def takes_probabilities(model, optimizer, ids, mask, A):
    """You took the probability of each token: the loss has its logarithm, log_softmax."""
    probability = token_logprobs(model, ids, mask).exp()
    losses = -probability * A.unsqueeze(1) * mask
    update(optimizer, losses.sum() / mask.sum())


@training_step.mistake
def takes_the_logits(model, optimizer, ids, mask, A):
    """You took the bare logits of the tokens: log_softmax makes log-probabilities of them."""
    tokens = mask.shape[1]
    answers = ids[:, -tokens:, None]
    logits = model(ids)[:, -tokens - 1 : -1]
    logits = logits.gather(-1, answers).squeeze(-1)
    losses = -logits * A.unsqueeze(1) * mask
    update(optimizer, losses.sum() / mask.sum())


@training_step.mistake
def forgets_the_advantages(model, optimizer, ids, mask, A):
    """The advantages are missing: without them every answer becomes likelier, also a bad one."""
    logp = token_logprobs(model, ids, mask)
    update(optimizer, -(logp * mask).sum() / mask.sum())


@training_step.mistake
def forgets_the_mask_in_the_sum(model, optimizer, ids, mask, A):
    """The mask is missing in the sum: multiply each token's loss by it, or padding is trained."""
    logp = token_logprobs(model, ids, mask)
    update(optimizer, -(logp * A.unsqueeze(1)).sum() / mask.sum())


# 01.5: a batch that is used again


def read_reuse(run):
    """From whether each problem is right after one, and after several updates of each batch."""
    once, name = run
    change, sentence = paired_direction(run[once], run[name])
    names = {"rises": "better", "stays": "the same", "falls": "worse"}
    return names[change], f"With each batch used once, then {name}: {sentence}"


reuse = experiment(
    "01.5",
    "reuse",
    read=read_reuse,
    wrong={
        "better": (
            "Your run does not show a gain: few groups of these batches teach anything, and more "
            "updates repeat what they teach."
        ),
        "the same": (
            "Your run shows a difference: the clip stops single tokens, and all others went on "
            "learning from the same batch, for better or worse."
        ),
        "worse": (
            "Your run does not show a loss. If it shows no difference, that does not prove that "
            "there is none: take all held-out problems and several seeds."
        ),
    },
)
# measured: 64 and 54 of 160, 9 got better and 19 worse
right_with_one = [1] * 64 + [0] * 96
right_with_four = [1] * 45 + [0] * 19 + [1] * 9 + [0] * 87
reuse.example({"once": right_with_one, "four times": right_with_four}, gives="the same")
# made up, as are the next two: other numbers of updates
reuse.example({"once": [1] * 60 + [0] * 100, "twice": [1] * 85 + [0] * 75}, gives="better")
reuse.example({"once": [1] * 60 + [0] * 100, "16 times": [1] * 35 + [0] * 125}, gives="worse")
# too few problems to show a difference
reuse.example({"once": [1] * 4 + [0] * 4, "four times": [1] * 7 + [0]}, gives="the same")

# 01.6: a reward of the learner's own that says nothing about the right number


def read_own_reward(run):
    """From the groups' mean rewards at both ends, and whether each number was right before and
    after.
    """
    first = mean(run["first"])
    last = mean(run["last"])
    spread = max(stdev(run["first"]), stdev(run["last"]))
    error = spread * (2 / len(run["first"])) ** 0.5  # of the difference of the two means
    change, sentence = paired_direction(*run["right"])
    if last - first <= 2 * error:
        raise ValueError(
            f"your reward went from {first:.2f} to {last:.2f}, no rise beyond the noise; before "
            f"and after, {sentence} If a penalty holds the reward down, compare these numbers, or "
            "lower beta; if not, train longer, or reward something that some answers already have"
        )
    return change, f"Your reward rose from {first:.2f} to {last:.2f}. Before and after, {sentence}"


own_reward = experiment(
    "01.6",
    "own_reward",
    read=read_own_reward,
    wrong={
        "rises": "Your reward does not ask for the right number, and nothing else does.",
        "stays": (
            "A reward does not protect what it leaves out: that changes along with what is "
            "rewarded."
        ),
        "falls": "What you reward does not stand in the way of the right number here.",
    },
)
# measured: 58 and 8 of 160, 2 got better and 52 worse (the groups' rewards are made up)
right_before = [1] * 58 + [0] * 102
right_after = [1] * 6 + [0] * 52 + [1] * 2 + [0] * 100
own_reward.example(
    {
        "right": [right_before, right_after],
        "first": [0.42, 0.43, 0.44],
        "last": [0.52, 0.53, 0.54],
    },
    gives="falls",
)
# made up, too: a reward on another scale, which the noise must follow
right_before = [1] * 49 + [0] * 111
right_after = [1] * 44 + [0] * 116
own_reward.example(
    {
        "right": [right_before, right_after],
        "first": [-40.0, -30.0],
        "last": [-4.0, -3.0],
    },
    gives="stays",
)
