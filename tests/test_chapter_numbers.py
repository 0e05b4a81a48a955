"""Sentences of chapters 12 and 13 that cite stored runs: their numbers are computed again."""

import functools
import json
import re
from statistics import mean

import pytest
from conftest import REPO


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


MAIN, STEPS = "race_results/main.jsonl", "race_results/steps.jsonl"
GOODHART, PIPELINE = "goodhart_results/goodhart.jsonl", "goodhart_results/pipeline.jsonl"
DIVERSITY, NOISE = "goodhart_results/diversity.jsonl", "goodhart_results/noise.jsonl"
FOUR, GREEDY = "grpo, 4 updates", "greedy"
SENTENCES = [
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
        "**The rule itself** reaches {:.0f} %",
        lambda: (percent(GOODHART, "the rule itself"),),
    ),
    (
        "13_learned_rewards",
        "than the plain SFT with which it started: the difference is {:+.1f} points",
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
]


@pytest.mark.parametrize(("chapter", "sentence", "numbers"), SENTENCES)
def test_a_sentence_has_the_numbers_of_the_stored_runs(chapter, sentence, numbers):
    assert sentence.format(*numbers()) in words_of(chapter)
