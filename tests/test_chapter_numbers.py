"""Sentences of chapters 05, 12, 13 and 15 about stored runs: their numbers are computed again."""

import functools
import json
import re
from math import log
from statistics import mean

import pytest
from conftest import REPO
from scipy.stats import ttest_1samp

from grpo_workbook.diagnosis.findings import bounds
from grpo_workbook.statistics import wilson_interval


@functools.cache
def words_of(chapter: str) -> str:
    """The text of a chapter's source, on one line."""
    source = (REPO / "notebooks" / "source" / f"{chapter}.py").read_text(encoding="utf-8")
    lines = [line.removeprefix("#").strip() for line in source.splitlines()]
    return re.sub(r"\s+", " ", " ".join(lines))


@functools.cache
def runs_of(file: str) -> dict[str, dict[int, dict]]:
    """{method: {seed: what was measured at the end of its run}}."""
    runs: dict[str, dict[int, dict]] = {}
    for line in (REPO / "benchmarks" / file).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        end = row["end"] | {"labels": row.get("labels")}
        runs.setdefault(row["method"], {})[row["seed"]] = end
    return runs


def percent(file: str, method: str, measure: str = "sampled") -> float:
    return 100 * mean(end[measure] for end in runs_of(file)[method].values())


def points(file: str, method: str, rival: str, measure: str = "sampled") -> float:
    """The mean difference of two methods, seed by seed, in points."""
    ours, theirs = runs_of(file)[method], runs_of(file)[rival]
    seeds = ours.keys() & theirs.keys()
    return 100 * mean(ours[seed][measure] - theirs[seed][measure] for seed in seeds)


@functools.cache
def logs_of(file: str) -> dict[str, dict[int, list[dict]]]:
    """{method: {seed: its batches}}."""
    logs: dict[str, dict[int, list[dict]]] = {}
    for line in (REPO / "benchmarks" / file).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        logs.setdefault(row["method"], {})[row["seed"]] = row["log"]
    return logs


def mean_and_interval(values: list[float]) -> tuple[float, float, float]:
    """The mean with its 95 % t interval."""
    low, high = ttest_1samp(values, 0).confidence_interval()
    return mean(values), float(low), float(high)


def points_with_interval(
    file: str, method: str, rival: str, measure: str = "sampled"
) -> tuple[float, float, float]:
    """The paired difference of two methods at the end of their runs, in points."""
    ours, theirs = runs_of(file)[method], runs_of(file)[rival]
    seeds = sorted(ours.keys() & theirs.keys())
    gaps = [100 * (ours[seed][measure] - theirs[seed][measure]) for seed in seeds]
    return mean_and_interval(gaps)


def points_at_distance(
    file: str, method: str, rival: str, low: float, high: float, measure: str
) -> tuple[float, float, float]:
    """The same over the batches whose KL lies between two bounds, in points."""
    rates: dict[str, dict[int, float]] = {}
    for name in (method, rival):
        rates[name] = {}
        for seed, log_of_run in logs_of(file)[name].items():
            inside = [batch[measure] for batch in log_of_run if low < batch["kl"] <= high]
            rates[name][seed] = mean(inside)
    gaps = [100 * (rates[method][seed] - rates[rival][seed]) for seed in sorted(rates[method])]
    return mean_and_interval(gaps)


def selection_rows() -> list[dict]:
    """The stored measurements of five reward models on completions of the base."""
    text = (REPO / "benchmarks" / SELECTION).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def percent_with_interval(measure: str) -> tuple[float, float, float]:
    """A rate of the five reward models, in percent."""
    return mean_and_interval([100 * row["end"][measure] for row in selection_rows()])


def best_of(n: int, measure: str = "gold") -> float:
    """The mean over the seeds of the best of n."""
    values = []
    for row in selection_rows():
        for stored in row["best"]:
            if stored["n"] == n:
                values.append(stored[measure])
    return mean(values)


def kl_of_best(n: int) -> float:
    """The divergence of the best of n from the base, in nats."""
    return log(n) - (n - 1) / n


def vision(method: str, seed: int, measure: str) -> float:
    """What a run of benchmarks/vision.py measured at its end, in percent."""
    return 100 * runs_of(VISION)[method][seed][measure]


def steps_without_reward(method: str) -> tuple[int, int]:
    """The steps in which a method's only run of benchmarks/vision.py earned nothing, and all."""
    runs = []
    for line in (REPO / "benchmarks" / VISION).read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        if run["method"] == method:
            runs.append(run)
    (only_run,) = runs
    rewards = only_run["rewards"]
    return rewards.count(0.0), len(rewards)


MAIN, STEPS = "race_results/main.jsonl", "race_results/steps.jsonl"
GOODHART, PIPELINE = "goodhart_results/goodhart.jsonl", "goodhart_results/pipeline.jsonl"
SELECTION = "goodhart_results/selection.jsonl"
PENALTIES = ("beta 0.3", "beta 0.1", "adaptive beta")
DIVERSITY, NOISE = "goodhart_results/diversity.jsonl", "goodhart_results/noise.jsonl"
FOUR, GREEDY = "grpo, 4 updates", "greedy"
VISION = "vision_runs.jsonl"


def widest_interval(problems: int) -> float:
    """Points to each side of a rate at which half of the problems are right."""
    low, high = wilson_interval([True, False] * (problems // 2))
    return 100 * (high - low) / 2


SENTENCES = [
    (
        "05_monitoring",
        "Each dot comes from 64 problems, so it is uncertain by up to {:.0f} points",
        lambda: (widest_interval(64),),
    ),
    (
        "05_monitoring",
        "already {:.0f} % counts as too far",
        lambda: (100 * bounds.jump / 2,),
    ),
    (
        "05_monitoring",
        "a *t* over {:.1f} means that the reward rose",
        lambda: (bounds.sure,),
    ),
    (
        "12_which_algorithm",
        "SFT on the data's answers is {:.1f} points better when sampled and {:.1f} points better",
        lambda: (points(MAIN, "sft", "grpo"), points(MAIN, "sft", "grpo", GREEDY)),
    ),
    (
        "12_which_algorithm",
        "imitates the model's own right answers, is {:.1f} and {:.1f} points better",
        lambda: (points(MAIN, "rejection", "grpo"), points(MAIN, "rejection", "grpo", GREEDY)),
    ),
    (
        "12_which_algorithm",
        '"Best of 8" is {:.1f} points below GRPO when sampled, and {:.1f} points above it',
        lambda: (-points(MAIN, "best of 8", "grpo"), points(MAIN, "best of 8", "grpo", GREEDY)),
    ),
    (
        "12_which_algorithm",
        "DPO in four rounds is {:.1f} points below GRPO and {:.1f} points above it",
        lambda: (
            -points(MAIN, "dpo, 4 rounds", "grpo"),
            points(MAIN, "dpo, 4 rounds", "grpo", GREEDY),
        ),
    ),
    (
        "12_which_algorithm",
        "GSPO is {:.1f} points lower when sampled, in all eight seeds. Decoded greedily it is "
        "{:.1f} points higher, in seven of eight seeds, and its pass@8 is {:.1f} points higher",
        lambda: (
            -points(STEPS, "gspo, 4 updates", FOUR),
            points(STEPS, "gspo, 4 updates", FOUR, GREEDY),
            points(STEPS, "gspo, 4 updates", FOUR, "pass8"),
        ),
    ),
    (
        "12_which_algorithm",
        "the correction adds {:.0f} points sampled (in seven of eight seeds) and {:.0f} points "
        "greedy",
        lambda: (
            points(STEPS, "stale sampler, corrected", "stale sampler"),
            points(STEPS, "stale sampler, corrected", "stale sampler", GREEDY),
        ),
    ),
    (
        "13_learned_rewards",
        "with a KL penalty of 0.3, {:.0f} % are right, and early stopping ends at {:.0f} %, for "
        "{:.0f} gold labels",
        lambda: (
            percent(GOODHART, "beta 0.3"),
            percent(GOODHART, "early stopping"),
            percent(GOODHART, "early stopping", "labels") / 100,
        ),
    ),
    (
        "13_learned_rewards",
        "By gold, all three penalties lie above the runs without one, by {:.1f}, {:.1f} and {:.1f} "
        "points",
        lambda: [
            points_at_distance(GOODHART, name, "one model", 2, 4, "gold")[0] for name in PENALTIES
        ],
    ),
    (
        "13_learned_rewards",
        "By the rate of right answers the differences are {:.1f}, {:.1f} and {:.1f} points",
        lambda: [
            points_at_distance(GOODHART, name, "one model", 2, 4, "right")[0] for name in PENALTIES
        ],
    ),
    (
        "13_learned_rewards",
        "for a beta of 0.3 the difference is {:+.1f} points, with an interval from {:.1f} to "
        "{:+.1f}",
        lambda: points_with_interval(GOODHART, "beta 0.3", "early stopping"),
    ),
    (
        "13_learned_rewards",
        "at {:.1f} points with an interval from {:.0f} to {:+.0f}, so it may help or harm",
        lambda: points_with_interval(GOODHART, "minimum of three", "one model"),
    ),
    (
        "13_learned_rewards",
        "PPO is {:.1f} points above GRPO, with an interval from {:.1f} to {:+.1f}",
        lambda: points_at_distance(PIPELINE, "SFT, then PPO", "SFT, then GRPO", 0.2, 0.6, "right"),
    ),
    (
        "13_learned_rewards",
        "these five models order {:.1f} % rightly [{:.1f}, {:.1f}]",
        lambda: percent_with_interval("accuracy"),
    ),
    (
        "13_learned_rewards",
        "of the pairs of the same form only {:.1f} % [{:.1f}, {:.1f}]",
        lambda: percent_with_interval("alike"),
    ),
    (
        "13_learned_rewards",
        "it rises from {:.2f} to {:.2f} for n = 8 and falls to {:.2f} for n = 64",
        lambda: (best_of(1), best_of(8), best_of(64)),
    ),
    (
        "13_learned_rewards",
        "Choosing the best of 8 costs {:.1f} nats, the best of 64 costs {:.1f}",
        lambda: (kl_of_best(8), kl_of_best(64)),
    ),
    (
        "13_learned_rewards",
        "**The rule itself** reaches {:.0f} %",
        lambda: (percent(GOODHART, "the rule itself"),),
    ),
    (
        "13_learned_rewards",
        "not shown to be better than SFT alone, either: the difference is {:+.1f} points",
        lambda: (points(PIPELINE, "SFT, then PPO", "SFT"),),
    ),
    (
        "13_learned_rewards",
        "all five seeds end between 57 and 70 %, on average {:.0f} points above the usual rate",
        lambda: (points(NOISE, "30 %, group of 8, rate 1e-4", "30 %, group of 8"),),
    ),
    (
        "13_learned_rewards",
        "paying the majority raises single answers from {:.0f} to {:.0f} % right. But the base "
        "solves nearly all problems ({:.1f} %)",
        lambda: (
            percent(DIVERSITY, "base", "answer"),
            percent(DIVERSITY, "majority", "answer"),
            percent(DIVERSITY, "base", "answer8"),
        ),
    ),
    (
        "15_pictures",
        "the stored run with another seed reaches {:.1f} % and falls to {:.1f} %",
        lambda: (vision("vision", 1, GREEDY), vision("vision", 1, "white")),
    ),
    (
        "15_pictures",
        "The stored run with adapters in the language layers reaches {:.1f} % and falls to "
        "{:.1f} %",
        lambda: (vision("language", 0, GREEDY), vision("language", 0, "white")),
    ),
    (
        "15_pictures",
        "{:.1f} % of the real charts are right, instead of {:.1f} %",
        lambda: (vision("vision, blank pictures", 0, GREEDY), vision("base", 0, GREEDY)),
    ),
    (
        "15_pictures",
        "In {} of its {} steps no completion was right",
        lambda: steps_without_reward("vision, blank pictures"),
    ),
    (
        "15_pictures",
        "Before training {:.1f} % of the colours are right. In the tower's stored run it is "
        "{:.1f} % afterwards, although all heights are right; in that of the language layers it is "
        "{:.1f} %",
        lambda: (
            vision("base", 0, "colours"),
            vision("vision", 1, "colours"),
            vision("language", 0, "colours"),
        ),
    ),
]


@pytest.mark.parametrize(("chapter", "sentence", "numbers"), SENTENCES)
def test_a_sentence_has_the_numbers_of_the_stored_runs(chapter, sentence, numbers):
    assert sentence.format(*numbers()) in words_of(chapter)


def test_gold_falls_where_more_is_chosen_and_the_proxy_rises():
    assert best_of(8) == max(best_of(n) for n in (1, 2, 4, 8, 16, 32, 64))
    assert best_of(64, "proxy") > best_of(8, "proxy")
    # how far gold falls, with the seeds' interval
    falls = []
    for row in selection_rows():
        gold = {stored["n"]: stored["gold"] for stored in row["best"]}
        falls.append(gold[8] - gold[64])
    _, low, _ = mean_and_interval(falls)
    assert low > 0
