"""benchmarks/goodhart.py: its pairs, its reward models, its advantages by step, and a short run."""

import itertools
import json
import random
import sys
from statistics import mean

import pytest
import torch
from conftest import REPO, finished, slow

sys.path.insert(0, str(REPO / "benchmarks"))
import goodhart
import goodhart_selection as selection
import goodhart_training as training
import race_training


def completions(*golds: float) -> list[dict]:
    return [{"prompt": [], "text": f"{i}: {gold}", "gold": gold} for i, gold in enumerate(golds)]


def test_pairs_are_of_one_prompt_and_ordered_by_gold_but_for_the_flipped():
    pool = completions(*[1.0, 0.5, 0.5, 0.0] * 200, *[1.0] * 4)
    gold = {row["text"]: row["gold"] for row in pool}

    def right_order(flips: float) -> list[bool]:
        found = training.ordered_pairs(pool, 2, flips, seed=0)
        assert len(found) == 400  # equal golds give no pair
        sides = [(pair["chosen"][0]["content"], pair["rejected"][0]["content"]) for pair in found]
        assert all(int(a.split(":")[0]) // 4 == int(b.split(":")[0]) // 4 for a, b in sides)
        return [gold[a] > gold[b] for a, b in sides]

    assert all(right_order(0.0))
    assert not any(right_order(1.0))
    assert sum(right_order(0.3)) / 400 == pytest.approx(0.7, abs=0.07)


def test_the_kl_of_a_run_is_that_of_the_weights_that_were_measured():
    log = [{"used": 64 * i, "kl": float(i)} for i in range(1, 9)]
    assert goodhart.measured_kl({"end": {}, "log": log}) == 8.0
    # after the batch 4 these weights were kept, and they wrote batch 5
    assert goodhart.measured_kl({"end": {"kept": 256}, "log": log}) == 5.0
    assert goodhart.measured_kl({"end": {"kept": 512}, "log": log}) == 8.0


def scored(*rewards: tuple[float, float]) -> list[dict]:
    """Completions of one prompt from their (proxy, gold)."""
    return [{"proxy": proxy, "gold": gold} for proxy, gold in rewards]


def test_the_best_of_n_is_the_mean_over_all_choices():
    group = scored((0.4, 0.3), (0.1, 0.0), (2.0, 0.2), (1.2, 1.0), (0.9, 0.8))
    for n in range(1, 6):
        kept = []
        for choice in itertools.combinations(group, n):
            kept.append(max(choice, key=lambda completion: completion["proxy"])["gold"])
        assert selection.best_of(group, n, "gold") == pytest.approx(mean(kept))


def test_completions_are_ordered_within_their_prompt_alone():
    right = scored((0.2, 1.0), (0.5, 1.0))
    wrong = scored((0.3, 1 / 3))
    rng = random.Random(0)
    assert selection.order_rate(right, wrong, rng) == 0.5
    assert selection.order_rate(right, [], rng) is None
    assert selection.any_rate(scored((0.2, 1.0), (0.1, 0.0)), rng) == 1.0
    assert selection.any_rate(scored((0.2, 1.0), (0.1, 1.0)), rng) is None


def test_agreement_of_a_group_is_counted_within_it():
    answers = ["1", "1", "2", None, None, None, None, None, "3", "2", "2", "2"]
    assert training.agreeing(answers, 4) == [1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1]


@pytest.fixture
@slow
def adder(monkeypatch, tmp_path):
    """A learner on the sums with a reward for each step, and a batch of four given completions."""
    monkeypatch.chdir(REPO)
    setup = goodhart.TASKS["process"]["setup"]
    methods = goodhart.TASKS["process"]["methods"]

    def made(method: str):
        settings = training.Learned(**methods[method])
        learner = training.Learner(setup, settings, 0, 64, tmp_path)
        row = {"solution": "<<5+0=5>>\n<<4+2=6>>\n#### 65", "prompt": learner.rows[0]["prompt"]}
        texts = [
            "<reasoning>\n5+0=5\n4+2=6\n</reasoning>\n<answer>65</answer>",
            "<reasoning>\n5+0=5\n4+2=7\n</reasoning>\n<answer>75</answer>",
            "<reasoning>\n1+1=2\n1+1=2\n</reasoning>\n<answer>22</answer>",
            "<answer>65</answer>",
        ]
        learner.current = [row]
        batch = race_training.given_batch(learner.tokenizer, [row["prompt"]] * 4, texts)
        return learner, batch | {"group": 4}, row, texts

    return made


@pytest.mark.parametrize(
    ("method", "values"),
    [
        ("right steps", [[1, 1, 1], [1, 0, 0], [0, 0, 0], [1]]),
        ("true steps", [[1, 1, 1], [1, 0, 0], [1, 1, 0], [1]]),
    ],
)
def test_each_step_is_found_and_paid_and_counts_for_what_led_to_it(adder, method, values):
    learner, batch, row, texts = adder(method)
    right = [1.0, 0.0, 0.0, 1.0]
    found = [learner.critic.rewarded(batch, j, row, right[j]) for j in range(4)]
    assert [[value for _, value in each] for each in found] == values
    decode = learner.tokenizer.decode
    for each, text in zip(found, texts, strict=True):
        j = texts.index(text)
        ends = [decode(batch["ids"][j, : end + 1]) for end, _ in each[:-1]]
        assert all(end in text for end in ends)
        assert [end.splitlines()[-1] for end in ends] == [
            line for line in text.splitlines() if "=" in line
        ]
        assert each[-1][0] == int(batch["mask"][j].sum()) - 1
    flat = torch.tensor([float(v) for each in values for v in each])
    advantages = learner.critic.advantages(batch, right)
    for j, each in enumerate(found):
        scaled = [(v - float(flat.mean())) / (float(flat.std()) + 1e-4) for _, v in each]
        for i, (end, _) in enumerate(each):
            assert float(advantages[j, end]) == pytest.approx(sum(scaled[i:]), abs=1e-4)
        assert advantages[j, each[-1][0] + 1 :].abs().sum() == 0


@pytest.mark.slow
@pytest.mark.parametrize("method", ["beta 0.3", "adaptive beta"])
def test_a_penalty_is_paid_for_distance_alone(method, monkeypatch, tmp_path):
    """At the base it has no gradient of its own; away from it, beta times the divergence."""
    monkeypatch.chdir(REPO)
    setup = goodhart.TASKS["goodhart"]["setup"]
    methods = goodhart.TASKS["goodhart"]["methods"]
    settings = training.Learned(**(methods[method] | {"paid": "rule"}))
    learner = training.Learner(setup, settings, 0, 64, tmp_path)
    batch = learner.sample(rows := learner.next_rows(2))
    learner.score(rows, batch)
    advantages = torch.zeros(16)
    assert float(learner.loss(batch, None, advantages).detach()) == pytest.approx(0, abs=1e-6)
    with torch.no_grad():
        for weight in learner.model.parameters():
            weight.add_(0.01 * torch.randn_like(weight))
    loss = float(learner.loss(batch, None, advantages).detach())
    assert loss > 0
    learner.beta *= 2
    assert float(learner.loss(batch, None, advantages).detach()) == pytest.approx(
        2 * loss, rel=1e-4
    )
    learner.seen |= {"kl": 10.0, "proxy": 0.0}
    before = learner.beta
    learner.probe()
    assert learner.beta == pytest.approx(before * (1.1 if settings.target else 1))


@pytest.mark.trains
def test_a_short_run_against_a_reward_model_is_stored_and_printed(tmp_path):
    call = [sys.executable, goodhart.__file__, "--folder", str(tmp_path / "rows"), "--seeds", "0"]
    call += ["--models", str(tmp_path / "models"), "--budget", "128"]
    call += ["--tasks", "goodhart", "--methods", "beta 0.1", "one model"]
    first = finished(call)
    assert first.returncode == 0, first.stderr[-3000:]
    lines = (tmp_path / "rows" / "goodhart.jsonl").read_text().splitlines()
    rows = {row["method"]: row for row in map(json.loads, lines)}
    assert rows.keys() == {"beta 0.1", "one model"}
    for row in rows.values():
        assert [point["used"] for point in row["log"]] == [64, 128]
        assert row["log"][1]["proxy"] > row["log"][0]["proxy"]
        assert row["end"]["megabytes"] > 10
    assert rows["beta 0.1"]["log"][0]["gold"] == rows["one model"]["log"][0]["gold"]
    made = sorted(path.name for path in (tmp_path / "models").iterdir() if path.name != "trl")
    assert made == ["pool-0.json", "seed-0-flips-0-member-0"]  # one model for both
    assert "0 runs to make" in finished(call).stdout
    table = finished([*call, "--table"])
    assert "| beta 0.1 | 1 |" in table.stdout, table.stderr
    measured = finished([*call[:-5], "--tasks", "models", "--methods", "0 % flipped"])
    assert measured.returncode == 0, measured.stderr[-3000:]
    (row,) = map(json.loads, (tmp_path / "rows" / "models.jsonl").read_text().splitlines())
    assert row["end"]["accuracy"] > 0.8 > row["end"]["alike"]
    assert sum(bin[0] for bin in row["calibration"] if bin) == 2 * row["pairs"][0]
