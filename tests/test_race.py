"""benchmarks/race.py: its losses are TRL's, and a race runs, resumes and prints its table."""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import REPO, environment, finished, slow
from safetensors.torch import load_file

sys.path.insert(0, str(REPO / "benchmarks"))
import race
import race_training as training

from grpo_workbook.grpo import sequence_logprobs


@pytest.fixture(scope="module")
@slow
def numbers(tmp_path_factory):
    """TRL's own numbers, from a process of its own, which never saw Unsloth."""
    path = tmp_path_factory.mktemp("trl") / "numbers.safetensors"
    env = environment(TRANSFORMERS_VERBOSITY="error", OMP_NUM_THREADS="1")
    script = str(REPO / "tests" / "trl_race_numbers.py")
    result = subprocess.run([sys.executable, script, str(path)], env=env, capture_output=True)
    assert result.returncode == 0, result.stderr[-4000:]
    return load_file(path)


def batch_of(numbers: dict, name: str) -> dict:
    names = {"ids": "completion_ids", "mask": "completion_mask"}
    names |= dict.fromkeys(("prompt_ids", "prompt_mask"), "")
    return {k: numbers[f"{name}/{v or k}"] for k, v in names.items()} | {"group": 1}


def loss_of(method: str, model, numbers: dict, name: str, old) -> float:
    settings = training.Settings(**race.METHODS[method])
    batch = batch_of(numbers, name)
    logp = training.logprobs(model, batch)
    given = (numbers[f"{name}/advantages"], batch["mask"], 24)
    return float(training.policy_loss(settings, logp, old, *given).detach())


def test_a_groups_prompt_read_once_gives_the_same_gradient(tiny):
    model, tokenizer = tiny["qwen"]
    torch.manual_seed(0)
    prompts = [[{"role": "user", "content": text}] for text in ("2 + 3 = ?", "How much is 5?")]
    batch = training.sample(model, tokenizer, prompts, 3, 10)
    rows = {name: batch[name].repeat_interleave(3, 0) for name in ("prompt_ids", "prompt_mask")}
    ids = torch.cat([rows["prompt_ids"], batch["ids"]], 1)
    attention = torch.cat([rows["prompt_mask"], batch["mask"]], 1)
    parameters = [p.requires_grad_(True) for p in model.parameters()]
    ours, theirs = (
        (logp * batch["mask"], torch.autograd.grad((logp * batch["mask"]).sum(), parameters))
        for logp in (
            training.logprobs(model, batch),
            sequence_logprobs(model, ids, attention, batch["ids"].shape[1]),
        )
    )
    model.requires_grad_(False)
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-4, atol=1e-4)
    for one, other in zip(ours[1], theirs[1], strict=True):
        assert (one - other).norm() <= 1e-4 * other.norm()


@pytest.fixture(scope="module")
def fresh(numbers):
    from transformers import AutoModelForCausalLM

    return lambda folder=REPO / "data" / "tiny-form": AutoModelForCausalLM.from_pretrained(
        folder, dtype="float32"
    )


def test_rloo_is_trls(numbers, fresh):
    rewards = numbers["rloo/rewards"]
    groups = rewards.reshape(2, 4)
    settings = training.Settings(baseline="rloo", group=4)
    ours = training.advantages_of(settings, rewards.tolist())
    assert sorted(ours.tolist()) == pytest.approx(sorted(numbers["rloo/advantages"].tolist()))
    by_hand = groups - (groups.sum(1, keepdim=True) - groups) / 3
    assert ours.tolist() == pytest.approx(by_hand.flatten().tolist(), abs=1e-5)
    # a completion's ratio is all that counts: its old log-probability may be spread over its tokens
    mask = numbers["rloo/completion_mask"]
    old = (numbers["rloo/old_logps"] / mask.sum(1)).unsqueeze(1) * mask
    loss = loss_of("rloo", fresh(), numbers, "rloo", old)
    assert loss == pytest.approx(float(numbers["rloo/loss"]), rel=1e-4)


def test_sapo_is_trls(numbers, fresh):
    old = numbers["sapo/old_per_token_logps"]
    loss = loss_of("sapo, 4 updates", fresh(), numbers, "sapo", old)
    assert loss == pytest.approx(float(numbers["sapo/loss"]), rel=1e-4)


def test_dpo_is_trls(numbers, fresh):
    """After one step of TRL's trainer, so that the policy is not its reference."""
    policy, reference = fresh(), fresh()
    weights = {k.removeprefix("dpo/weights/"): v for k, v in numbers.items() if "weights" in k}
    policy.load_state_dict(weights)
    ids, done = numbers["dpo/input_ids"], numbers["dpo/completion_mask"]
    attention, length = numbers["dpo/attention_mask"], ids.shape[1] - 1
    ours, theirs = (
        sequence_logprobs(model, ids, attention, length) for model in (policy, reference)
    )
    loss = training.dpo_loss(ours, theirs, done[:, 1:])
    assert float(loss.detach()) == pytest.approx(float(numbers["dpo/loss"]), rel=1e-4)


def test_in_a_first_update_most_names_mean_the_same():
    """Same gradient of the loss in the log-probabilities: GSPO, SAPO and clip-higher are GRPO."""
    torch.manual_seed(0)
    mask = (torch.arange(9) < torch.tensor([[9], [4], [6], [1]])).long()
    start, advantages = -torch.rand(4, 9), torch.tensor([1.0, -0.5, 0.25, -0.75])

    def gradient(method: str) -> list[float]:
        logp = start.clone().requires_grad_(True)
        settings = training.Settings(**race.METHODS[method])
        training.policy_loss(settings, logp, start, advantages, mask, 9).backward()
        return logp.grad.flatten().tolist()

    for one, other in (
        ("clip-higher, 4 updates", "grpo"),
        ("gspo, 4 updates", "grpo"),
        ("sapo, 4 updates", "grpo"),
        ("cispo, 4 updates", "token-level loss"),
    ):
        assert gradient(one) == pytest.approx(gradient(other), abs=1e-6), one
    assert gradient("grpo") != pytest.approx(gradient("token-level loss"), abs=1e-3)


@pytest.fixture
def racer(monkeypatch):
    """A racer on the harder task with a batch of its own, whose sampler is not the policy."""
    monkeypatch.chdir(REPO)
    monkeypatch.setattr(training, "TEACHER_TEXTS", 1024)

    def made(method: str):
        racer = training.Racer(race.TASKS["steps"], training.Settings(**race.ALL[method]), 0, 128)
        batch = racer.sample(rows := racer.next_rows(8))
        return racer, batch, racer.score(rows, batch)

    return made


@pytest.mark.slow
def test_a_4_bit_sampler_has_the_weights_of_4_bit_loading(racer):
    from bitsandbytes.functional import dequantize_4bit
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    sampler = racer("4-bit sampler")[0].sampler
    config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    loaded = AutoModelForCausalLM.from_pretrained(
        REPO / "data" / "tiny-steps", quantization_config=config, dtype="float32"
    )
    layers = dict(loaded.model.named_modules())
    compared = 0
    for name, layer in sampler.model.named_modules():
        if isinstance(layer, torch.nn.Linear):
            weight = layers[name].weight
            theirs = dequantize_4bit(weight.data, weight.quant_state)
            torch.testing.assert_close(layer.weight.data, theirs, rtol=0, atol=1e-6)
            compared += 1
    assert compared == 7 * sampler.config.num_hidden_layers


@pytest.mark.slow
def test_a_corrected_sampler_weighs_tokens_and_a_stale_one_stays_behind(racer):
    racer, batch, rewards = racer("stale sampler, corrected")
    assert racer.importance(batch).eq(1).all()  # nothing was learned yet
    racer.update_policy(batch, rewards)
    before = racer.sampler
    racer.sample(racer.next_rows(8))
    assert racer.sampler is before
    weights, there = racer.importance(batch), batch["mask"].bool()
    with torch.no_grad():
        new, old = (training.logprobs(m, batch) for m in (racer.model, before))
    torch.testing.assert_close(weights[there], (new - old).exp().clamp(max=2)[there])
    assert weights[there].std() > 0
    racer.s.corrected = False
    assert racer.importance(batch).eq(1).all()


@pytest.mark.slow
def test_top_entropy_tokens_alone_learn_and_the_bonus_raises_the_objective(racer):
    racer, batch, rewards = racer("top-entropy tokens")
    advantages = training.advantages_of(racer.s, rewards)
    with torch.no_grad():
        _, entropy = training.chosen_and_entropy(racer.model, batch)
    there = batch["mask"].bool()
    kept = there & (entropy >= entropy[there].quantile(0.8))
    assert 0.15 < float(kept.sum() / there.sum()) < 0.3
    by_hand = -(advantages.unsqueeze(1) * kept).sum() / kept.sum()  # the ratio is 1
    assert float(racer.loss(batch, None, advantages).detach()) == pytest.approx(
        float(by_hand), abs=1e-5
    )
    racer.s.top, racer.s.bonus = 1.0, 0.0
    plain = float(racer.loss(batch, None, advantages).detach())
    racer.s.bonus = 0.5
    with_bonus = float(racer.loss(batch, None, advantages).detach())
    assert plain - with_bonus == pytest.approx(0.5 * float(entropy[there].mean()), rel=1e-4)


def test_the_report_calls_a_difference_by_chance_not_shown(capsys):
    """Seeds that differ by chance, always, likely, and equal ones."""
    chance, sure, one = (0.01, -0.01, 0.02, -0.02), (0.1, 0.11, 0.12, 0.1), (0.05, 0.2, 0.12, 0.08)
    gains = {"grpo": [0.0] * 4, "rloo": chance, "sft": sure, "ppo": one, "dr_grpo": [0.0] * 4}
    end = dict.fromkeys(("pass8", "entropy", "tokens", "steps"), 0.5)
    rows = [
        {
            "method": method, "seed": seed, "code": "", "seconds": 4.0, "completions": 1024,
            "end": end | {"sampled": 0.8 + gain, "greedy": 0.8 + gain},
            "curve": [[512, 2.0, 0.6], [1024, 4.0, 0.8 + gain]],
        }
        for method, found in gains.items()
        for seed, gain in enumerate(found)
    ]  # fmt: skip
    race.table("main", rows)
    lines = {line.split(" |")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert lines["| rloo"].endswith(": not shown |")
    assert lines["| sft"].endswith(": better |")
    assert lines["| ppo"].endswith(": unsettled |")
    assert lines["| dr_grpo"].endswith("| the same |")
    assert "| 1024 (2 of 4 seeds) | 4 | 4 |" in lines["| rloo"]


def test_holm_is_the_textbooks():
    assert race.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_the_sums_their_steps_and_their_pools():
    seen = {}
    for name in ("train", "heldout"):
        path = REPO / "data" / "step_tasks" / f"{name}.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        pairs = [tuple(map(int, re.findall(r"\d+", row["question"]))) for row in rows]
        seen[name] = set(pairs)
        for (a, b), row in zip(pairs, rows, strict=True):
            text = training.worked(row["answer"])
            assert training.strict_format_reward([text]) == [1.0]
            assert training.correctness_reward([text], [str(a + b)]) == [1.0]
            steps = re.findall(r"(\S+)=(\d+)", text)
            assert all(sum(map(int, left.split("+"))) == int(right) for left, right in steps)
            read = steps[-1][1] + "".join(right[-1] for _, right in reversed(steps[:-1]))
            assert int(read) == a + b
    assert not seen["train"] & seen["heldout"]


@pytest.mark.trains
def test_a_short_race_runs_goes_on_and_prints_its_table(tmp_path):
    call = [sys.executable, race.__file__, "--tasks", "steps", "--budget", "128", "--points", "1"]
    call += ["--folder", str(tmp_path), "--methods", "grpo", "sft"]
    first = finished([*call, "--seeds", "0", "--minutes", "0.0001"])
    assert "2 runs to make" in first.stdout, first.stderr[-3000:]
    again = finished([*call, "--seeds", "0"])
    assert again.returncode == 0, again.stderr[-3000:]
    place = tmp_path / "steps.jsonl"
    stored = [json.loads(line) for line in place.read_text().splitlines()]
    assert {row["method"] for row in stored} == {"grpo", "sft"}
    for row in stored:
        assert row["completions"] == 128
        assert row["updates"] == 2
    with place.open("a") as file:
        file.write('{"task": "ste')  # a killed writer
    race.Store(tmp_path, dev=False).add(stored[0] | {"seed": 5})
    assert [row["seed"] for row in race.Store(tmp_path, dev=False).rows("steps")] == [0, 0, 5]
    third = finished([*call, "--seeds", "0", "1", "--minutes", "0"])
    assert "2 runs to make" in third.stdout
    assert "2 runs are left" in third.stdout
    table = finished([*call, "--seeds", "0", "1", "--table"])
    assert table.stdout.count("| grpo |") == table.stdout.count("| sft |") == 1, table.stderr


def test_distillation_has_the_gradient_of_the_reverse_kl():
    """The sampled tokens' estimate has it on average: here over all tokens that can be sampled."""
    torch.manual_seed(0)
    logits = torch.randn(1, 1, 7, requires_grad=True)
    teacher = torch.randn(1, 1, 7).log_softmax(-1)
    batch = {"mask": torch.ones(1, 1), "ids": torch.zeros(1, 1, dtype=torch.long)}
    student = logits.log_softmax(-1)
    expected = torch.nn.functional.kl_div(teacher, student, log_target=True, reduction="sum")
    whole = training.distillation_loss(student, teacher, batch, whole=True)
    torch.testing.assert_close(whole, expected)
    (gradient,) = torch.autograd.grad(whole, logits, retain_graph=True)

    average = torch.zeros(1, 1, 7)
    for token in range(7):
        batch["ids"] = torch.full((1, 1), token)
        loss = training.distillation_loss(student, teacher, batch, whole=False)
        (estimate,) = torch.autograd.grad(loss, logits, retain_graph=True)
        average += student.exp()[0, 0, token].item() * estimate
    torch.testing.assert_close(average, gradient)


@pytest.mark.slow
def test_a_student_learns_the_rare_kinds_from_its_teacher(monkeypatch):
    monkeypatch.chdir(REPO)
    monkeypatch.setattr(training, "TEACHER_TEXTS", 1024)
    task = race.TASKS["rare"]
    settings = training.Settings(learn="distill", group=1)
    racer = training.Racer(task, settings, seed=0, budget=512, dev=True)
    before = racer.measure()
    after = racer.run(1)["end"]
    assert after["greedy"] > before["greedy"]


def test_the_same_problems_are_those_of_grpo_with_the_same_seed():
    task = race.TASKS["rare"]
    grpo = training.Racer(task, training.Settings(), seed=3, budget=64)
    batch = grpo.next_rows(64 // grpo.s.group)
    for settings in race.SAME_PROBLEMS.values():
        racer = training.Racer(task, training.Settings(**settings), seed=3, budget=64)
        assert racer.next_rows(64) == 8 * batch


def test_four_passes_imitate_the_answers_of_sft_with_the_same_seed():
    task = race.TASKS["rare"]
    sft = training.Racer(task, training.Settings(learn="sft"), seed=3, budget=64)
    settings = training.Settings(**race.FOUR_PASSES["sft, four passes"])
    four = training.Racer(task, settings, seed=3, budget=256)
    assert four.next_rows(256) == 4 * sft.next_rows(64)


def test_the_same_problems_run_only_where_they_are_asked_for():
    assert not set(race.SAME_PROBLEMS) & set(race.methods_of("rare"))
    wanted = race.wanted(
        argparse.Namespace(
            folder=Path("nowhere"),
            tasks=["rare"],
            seeds=[0],
            methods=["sft, same problems"],
            rates=None,
            budget=None,
            points=1,
        )
    )
    (row,) = wanted
    assert row["settings"] == {"learn": "sft", "repeats": 8, "rate": 3e-4}


def a_try(rate: float, accuracy: float, seed: int) -> dict:
    """A stored try of a learning rate of GRPO."""
    return {
        "method": f"grpo, rate {rate:g}",
        "seed": seed,
        "settings": {"rate": rate},
        "end": {"sampled": accuracy - 0.1, "greedy": accuracy + 0.1},
    }


def test_the_rate_with_the_best_mean_is_chosen_and_in_a_tie_the_lower_one():
    tries = [a_try(1e-4, 0.5, 100), a_try(3e-4, 0.52, 100), a_try(1e-3, 0.1, 100)]
    assert race.tuned_rate(tries, "grpo") == 3e-4
    tries.append(a_try(3e-4, 0.49, 101))
    assert race.tuned_rate(tries, "grpo") == 1e-4  # 50 and 50.5 %


def test_the_control_runs_with_the_rate_of_grpo_and_in_any_folder(tmp_path):
    for task in race.COMPARISON:
        rows = race.wanted(
            argparse.Namespace(
                folder=tmp_path,
                tasks=[task],
                seeds=[0],
                methods=["grpo", "random reward"],
                rates=None,
                budget=None,
                points=1,
            )
        )
        rates = [row["settings"]["rate"] for row in rows]
        stored = race.Store(race.RESULTS, dev=False).rows(task)
        of_grpo = {row["settings"]["rate"] for row in stored if row["method"] == "grpo"}
        assert set(rates) == of_grpo
        assert len(rates) == 2
