"""The from-scratch trainer on the tiny model: it says what happens, its pieces do what they claim.

That it learns the main run's task is shown by notebook 01, whose log test_notebooks.py reads.
"""

import copy
import math

import pytest
import torch
from conftest import REPO, raises_naming

from grpo_workbook.data import WORD_PROBLEMS, load_problems, to_dataset
from grpo_workbook.grpo import sequence_logprobs
from grpo_workbook.grpo_trainer import ScratchTrainer, completion_masks, sample
from grpo_workbook.rewards import strict_format_reward

FOLDER = REPO / "data" / "tiny-form"  # its form varies, which gives a gradient


def adapted(seed=0):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(FOLDER, dtype="float32")
    return get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    )


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """The matrices are tiny: where other work shares the cores, waiting for a second thread costs
    four times over."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def rows():
    return list(to_dataset(load_problems(WORD_PROBLEMS["train"])))


@pytest.fixture(scope="module")
def form():
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(FOLDER, dtype="float32").eval()
    return model, AutoTokenizer.from_pretrained(FOLDER)


@pytest.fixture
def plain(form):
    model, tokenizer = form
    return copy.deepcopy(model).requires_grad_(True), tokenizer


def small(model, tokenizer, rewards=strict_format_reward, **changes):
    settings = {"group_size": 4, "prompts_per_step": 2, "max_new_tokens": 40, **changes}
    return ScratchTrainer(model, tokenizer, rewards, **settings)


def snapshot(model):
    return torch.cat([p.detach().flatten().clone() for p in model.parameters()])


def test_the_metrics_are_those_of_the_batch(plain, rows):
    """Rewards by hand: two groups of four, one of them without variance."""
    batches = iter([[1.0, 0.0, 1.0, 0.0, 0.5, 0.5, 0.5, 0.5], [0.0] * 8])

    def reward(completions, **columns):
        return next(batches)

    model, tokenizer = plain
    before = snapshot(model)
    log = list(small(model, tokenizer, reward).train(rows[:2], epochs=2))
    assert log[0]["reward"] == 0.5
    assert log[0]["reward_std"] == pytest.approx(math.sqrt(1 / 7))  # of all eight, as TRL's
    assert log[0]["group_std"] == pytest.approx(math.sqrt(1 / 3) / 2)
    assert [m["frac_reward_zero_std"] for m in log] == [0.5, 1.0]
    assert log[0]["grad_norm"] > 0
    assert log[1]["grad_norm"] == 0
    assert log[1]["loss"] == 0
    assert [(m["step"], m["epoch"]) for m in log] == [(1, 0), (2, 1)]
    assert not torch.equal(snapshot(model), before)


def test_with_the_loss_grpo_a_first_update_shows_a_loss_of_zero(plain, rows):
    def by_length(completions, **columns):
        return [len(c[0]["content"]) / 100 for c in completions]

    metrics = next(small(*plain, by_length, loss_type="grpo").train(rows[:2]))
    assert metrics["loss"] == pytest.approx(0, abs=1e-6)
    assert metrics["grad_norm"] > 0.01


@pytest.mark.slow
def test_only_adapters_move_and_the_reference_stays(rows, form):
    model = adapted()
    trainer = small(model, form[1])
    frozen = {n: p.detach().clone() for n, p in model.named_parameters() if not p.requires_grad}
    reference = snapshot(trainer.reference)
    list(trainer.train(rows[:4]))
    assert all(torch.equal(p, frozen[n]) for n, p in model.named_parameters() if n in frozen)
    assert torch.equal(snapshot(trainer.reference), reference)
    assert not torch.equal(snapshot(model), reference)


@pytest.mark.slow
def test_rounds_refresh_the_reference(plain, rows):
    trainer = small(*plain, beta=0.04)
    log = list(trainer.train(rows[:4]))
    trainer.refresh_reference()
    log += trainer.train(rows[:4])
    trainer.refresh_reference()
    assert log[0]["kl"] == log[2]["kl"] == pytest.approx(0, abs=1e-9)
    assert log[1]["kl"] > 0
    assert log[3]["kl"] > 0
    assert torch.equal(snapshot(trainer.reference), snapshot(trainer.model))


def test_a_given_reference_is_kept_frozen(plain, rows):
    model, tokenizer = plain
    reference = copy.deepcopy(model)
    with torch.no_grad():
        for p in reference.parameters():
            p.mul_(0.9)
    trainer = small(model, tokenizer, reference=reference)
    assert next(trainer.train(rows[:2]))["kl"] > 0.01
    assert not any(p.requires_grad for p in reference.parameters())


@pytest.mark.slow
def test_a_high_kl_coefficient_holds_the_policy_back(rows, form):
    reached = {}
    for coefficient in (0.0, 2.0):
        model = adapted()
        trainer = small(model, form[1], beta=coefficient, prompts_per_step=4, learning_rate=3e-3)
        reached[coefficient] = [m["kl"] for m in trainer.train(rows[:32])][-1]
    assert reached[2.0] < 0.5 * reached[0.0]


@pytest.mark.slow
def test_inner_epochs_make_the_clipping_act(plain, rows):
    log = list(small(*plain, inner_epochs=3, learning_rate=3e-3).train(rows[:4]))
    assert sum(m["clip_low"] + m["clip_high"] for m in log) > 0


@pytest.mark.slow
def test_the_same_seed_gives_the_same_weights(form, rows):
    ends = []
    for seed in (0, 0, 1):
        model = copy.deepcopy(form[0]).requires_grad_(True)
        list(small(model, form[1], seed=seed).train(rows[:4]))
        ends.append(snapshot(model))
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2])


def test_weighted_rewards_and_none(plain, rows):
    """Several functions, with weights, in TRL's contract; None where one does not apply."""
    seen = {}

    def sometimes(prompts, completions, answer, question, **columns):
        seen.update(prompts=prompts, completions=completions, answer=answer)
        return [None if i % 4 == 0 else 1.0 for i in range(len(completions))]

    model, tokenizer = plain
    trainer = small(
        model, tokenizer, [sometimes, lambda completions, **c: [0.5] * len(completions)]
    )
    trainer.reward_weights = [2.0, 1.0]
    metrics = next(trainer.train(rows[:2]))
    assert metrics["reward"] == pytest.approx((0.5 + 3 * 2.5) / 4)
    assert len(seen["completions"]) == len(seen["answer"]) == 8
    assert seen["prompts"][:4] == [seen["prompts"][0]] * 4
    assert seen["answer"][:4] == [seen["answer"][0]] * 4
    assert seen["completions"][0][0]["role"] == "assistant"


def test_a_deviation_of_the_batch_says_nothing_about_the_groups(plain, rows):
    """Two groups that agree with themselves and not with each other: no gradient, and reward_std is
    far from 0 all the same. So `reward_std` has one meaning in the course, TRL's."""
    metrics = next(small(*plain, lambda **c: [1.0] * 4 + [0.0] * 4).train(rows[:2]))
    assert metrics["reward_std"] == pytest.approx(math.sqrt(2 / 7))
    assert metrics["group_std"] == metrics["grad_norm"] == 0
    assert metrics["frac_reward_zero_std"] == 1


# ---- sampling


@pytest.mark.slow
def test_sampling_draws_from_the_models_own_distribution(plain):
    """The first token of 4,000 completions against the softmax; a left-padded prompt must give the
    same one."""
    model, tokenizer = plain
    ids = torch.tensor([[7, 30, 12, 55, 9]])
    padded = torch.cat([torch.zeros(1, 3, dtype=torch.long), ids], dim=1)
    mask = (padded != 0).long()
    torch.manual_seed(0)
    drawn = sample(
        model, padded.expand(4000, -1), mask.expand(4000, -1), 1, tokenizer.eos_token_id, 0
    )
    with torch.no_grad():
        expected = model(input_ids=ids).logits[0, -1].softmax(0)
    counts = torch.bincount(drawn.flatten(), minlength=len(expected)) / 4000
    assert (counts - expected).abs().max() < 4 * math.sqrt(0.25 / 4000)


def test_the_cache_changes_nothing(plain):
    """At a temperature near 0 the draw is the likeliest token: the same as without any cache, one
    by one."""
    model, tokenizer = plain
    model.eval()
    ids = torch.tensor([[0, 0, 7, 30, 12], [5, 8, 13, 21, 34]])
    mask = (ids != 0).long()
    drawn = sample(model, ids, mask, 8, tokenizer.eos_token_id, 0, temperature=1e-4)
    for row, attention, wanted in zip(ids, mask, drawn, strict=True):
        known = row[attention.bool()].tolist()
        for token in wanted.tolist():
            with torch.no_grad():
                best = int(model(input_ids=torch.tensor([known])).logits[0, -1].argmax())
            assert token == best
            if best == tokenizer.eos_token_id:
                break
            known.append(best)


def test_after_the_end_there_is_padding_and_the_mask_ends_with_the_end():
    ids = torch.tensor([[5, 1, 0, 0], [5, 6, 7, 8], [1, 0, 0, 0], [4, 4, 4, 1]])
    mask, truncated = completion_masks(ids, eos=1)
    assert mask.tolist() == [[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 1, 1]]
    assert truncated.tolist() == [False, True, False, False]


def test_completions_are_reported_as_truncated(plain, rows):
    metrics = next(small(*plain, max_new_tokens=3).train(rows[:2]))
    assert metrics["truncated"] == 1.0
    assert metrics["tokens"] == 3


def test_log_probabilities_are_those_of_the_temperature(plain):
    model, _ = plain
    ids = torch.tensor([[7, 30, 12, 55, 9]])
    with torch.no_grad():
        ours = sequence_logprobs(model, ids, torch.ones_like(ids), 2, temperature=0.5)
        logits = model(input_ids=ids).logits[0] / 0.5
    theirs = [float(logits[t - 1].log_softmax(0)[ids[0, t]]) for t in (3, 4)]
    assert ours[0].tolist() == pytest.approx(theirs, abs=1e-5)


# ---- input that makes no sense


def test_too_few_prompts_and_broken_rewards_stop_the_run(plain, rows):
    with raises_naming(ValueError, "1 prompts", "prompts_per_step"):
        next(small(*plain).train(rows[:1]))

    def pays_nan(completions, **columns):
        return [float("nan")] * len(completions)

    def pays_too_few(completions, **columns):
        return [1.0] * 7

    for reward, named in ((pays_nan, "reward 0 is nan"), (pays_too_few, "(7,)")):
        with raises_naming(ValueError, named):
            next(small(*plain, reward).train(rows[:2]))
