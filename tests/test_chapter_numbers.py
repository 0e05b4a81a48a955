"""Sentences of chapters about stored runs: their numbers are computed again."""

import functools
import itertools
import json
import re
import sys
from math import comb, log
from statistics import mean, stdev

import pytest
from conftest import REPO
from scipy.stats import nct, t, ttest_1samp

sys.path.insert(0, str(REPO / "benchmarks"))
import race

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


def control(name: str, tries: str) -> float:
    """The pass@k in percent of a run of chapter 04's controls, the mean of its seeds."""
    stored = json.loads((REPO / "benchmarks" / "controls.json").read_text(encoding="utf-8"))
    runs = [run for run in stored if (run["run"], run["family"]) == (name, "qwen")]
    return 100 * mean(run["pass_at_k"][tries] for run in runs)


def with_budgets(method: str) -> list[tuple[int, float]]:
    """(budget, the fraction of right answers) of a stored run of chapter 16."""
    end = runs_of(THINKING)[method][0]
    return [(budget, rate) for budget, rate, _ in end["budgets"]]


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


def behind_the_tower(method: str, seed: int, measure: str) -> float:
    """How many points a run ends below the one with adapters in the tower, with the same seed."""
    return vision("vision", seed, measure) - vision(method, seed, measure)


def smallest_p_of_the_parts() -> float:
    """The smallest p of four comparisons: two parts of the model with the tower, on two papers."""
    p_values = []
    for part in ("language", "both"):
        for measure in (GREEDY, "white"):
            gaps = [behind_the_tower(part, seed, measure) for seed in (0, 1, 2)]
            p_values.append(ttest_1samp(gaps, 0).pvalue)
    return min(p_values)


def steps_without_reward(method: str, seed: int) -> tuple[int, int]:
    """The steps in which a run of benchmarks/vision.py earned nothing, and all of its steps."""
    for line in (REPO / "benchmarks" / VISION).read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        if (run["method"], run["seed"]) == (method, seed):
            rewards = run["rewards"]
            return rewards.count(0.0), len(rewards)
    raise ValueError(f"no run of {method} with seed {seed} is stored")


FILTER, LONGER = "curriculum_runs.jsonl", "whole pool, 32 steps"
THINKING = "thinking_runs.jsonl"
MASKS = ("limit 36", "limit 36, mask")
RARE, STEPS = "race_results/rare.jsonl", "race_results/steps.jsonl"
ADDITION = "race_results/addition.jsonl"
OTHER_RATES = "race_results/other_rates/rare.jsonl"
OTHER_RATES_OF_ADDITION = "race_results/other_rates/addition.jsonl"
SAME_RARE = "race_results/same_problems/rare.jsonl"
SAME_ADDITION = "race_results/same_problems/addition.jsonl"
PASSES_RARE = "race_results/four_passes/rare.jsonl"
PASSES_ADDITION = "race_results/four_passes/addition.jsonl"
PASSES, SAMPLED_TOKEN = "sft, four passes", "distillation, sampled token"
SAME_SFT, SAME_DISTILLATION = "sft, same problems", "distillation, same problems"
# What the text of chapter 12 says of the race's methods, on each task.
VERDICTS = {
    RARE: {
        "better": {"sft", "distillation", "rejection, 4 rounds", "grpo, 4 updates"},
        "worse": {"distillation, sampled token", "dpo, 4 rounds", "random reward"},
        "better, sampled": {"rejection"},
        "worse, sampled": {"gspo, 4 updates"},
    },
    ADDITION: {
        "better": set(),
        "worse": {"distillation, sampled token", "random reward"},
        "better, sampled": {"sft", "distillation", "grpo, 4 updates"},
        "worse, sampled": {"gspo, 4 updates", "dapo, 4 updates"},
    },
}
WITH_A_CHECK_ALONE = set(race.methods_of("rare")) - {
    "base", "teacher", "sft", "distillation", "distillation, sampled token", "random reward",
}  # fmt: skip
FAST_GRPO, SLOW_GRPO = "grpo, rate 0.0003", "grpo, rate 0.0001"
FAST_ROUNDS, ROUNDS = "rejection, 4 rounds, rate 0.001", "rejection, 4 rounds"
GOODHART, PIPELINE = "goodhart_results/goodhart.jsonl", "goodhart_results/pipeline.jsonl"
SELECTION = "goodhart_results/selection.jsonl"
PENALTIES = ("beta 0.3", "beta 0.1", "adaptive beta")
DIVERSITY, NOISE = "goodhart_results/diversity.jsonl", "goodhart_results/noise.jsonl"
FOUR, GREEDY, SAMPLED = "grpo, 4 updates", "greedy", "sampled"
VISION = "vision_runs.jsonl"


def widest_interval(problems: int) -> float:
    """Points to each side of a rate at which half of the problems are right."""
    low, high = wilson_interval([True, False] * (problems // 2))
    return 100 * (high - low) / 2


@functools.cache
def whole_runs_of(file: str) -> dict[str, list[dict]]:
    """{method: its stored runs, with settings and costs}."""
    runs: dict[str, list[dict]] = {}
    for line in (REPO / "benchmarks" / file).read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        runs.setdefault(run["method"], []).append(run)
    return runs


TRIES = {RARE: "race_results/dev-rare.jsonl", ADDITION: "race_results/dev-addition.jsonl"}


def tried(task: str, method: str, rate: float, seeds: list[int] | None = None) -> float:
    """The mean of sampled and greedy accuracy of a learning rate's tries, in percent."""
    ends = runs_of(TRIES[task])[f"{method}, rate {rate:g}"]
    accuracies = []
    for seed in seeds or ends:
        accuracies.extend(ends[seed][measure] for measure in (SAMPLED, GREEDY))
    return 100 * mean(accuracies)


def in_both_measures(method: str, rival: str, *files: str) -> tuple[float, ...]:
    """The paired difference with its interval, sampled and then greedy, in points.

    The runs of the two are looked for in these files.
    """
    runs: dict[str, dict[int, dict]] = {}
    for file in files:
        runs.update(runs_of(file))
    numbers: list[float] = []
    for measure in (SAMPLED, GREEDY):
        seeds = sorted(runs[method].keys() & runs[rival].keys())
        gaps = [100 * (runs[method][s][measure] - runs[rival][s][measure]) for s in seeds]
        numbers.extend(mean_and_interval(gaps))
    return tuple(numbers)


def means_in_both_measures(method: str, rival: str, *files: str) -> tuple[float, float]:
    """The paired difference, sampled and greedy, in points."""
    return in_both_measures(method, rival, *files)[::3]


def against_slow_grpo(method: str) -> tuple[float, float]:
    """The points above GRPO with 1e-4 on addition, sampled and greedy."""
    return means_in_both_measures(method, SLOW_GRPO, ADDITION, OTHER_RATES_OF_ADDITION)


def greedy_without_seed_7(method: str, file: str) -> list[float]:
    """The seeds of a method but the one that failed on addition, greedily, in percent."""
    return [100 * runs_of(file)[method][seed][GREEDY] for seed in range(7)]


def slow_without_seed_7() -> list[float]:
    """Those of GRPO with 1e-4 on addition."""
    return greedy_without_seed_7(SLOW_GRPO, OTHER_RATES_OF_ADDITION)


def spread(method: str, rival: str, file: str = RARE) -> float:
    """The standard deviation of the paired differences, sampled, in points."""
    runs = runs_of(file)
    gaps = [
        100 * (runs[method][seed]["sampled"] - runs[rival][seed]["sampled"]) for seed in range(8)
    ]
    return stdev(gaps)


def extremes(method: str, measure: str, file: str = RARE) -> tuple[float, float]:
    """The lowest and the highest seed of a method, in percent."""
    rates = [100 * end[measure] for end in runs_of(file)[method].values()]
    return min(rates), max(rates)


def second_best(method: str, measure: str, file: str) -> float:
    """The second highest seed of a method, in percent."""
    rates = sorted(100 * end[measure] for end in runs_of(file)[method].values())
    return rates[-2]


def length_and_rate(method: str) -> tuple[float, float]:
    """The tokens of the sampled completions of chapter 16, and the right ones in percent."""
    runs = runs_of(THINKING)[method].values()
    return mean(run["sampled tokens"] for run in runs), percent(THINKING, method)


def thought_tokens(method: str, digits: str) -> float:
    """The mean length of chapter 16's sampled thoughts about sums of so many digits."""
    return mean(end["by digits"][digits][1] for end in runs_of(THINKING)[method].values())


def idle_groups(method: str) -> float:
    """The zero-variance groups of chapter 07's stored trainings, in percent."""
    fractions = []
    for run in whole_runs_of(FILTER)[method]:
        fractions.extend(fraction for _, fraction in run["log"])
    return 100 * mean(fractions)


def paid_completions() -> float:
    """The most completions that chapter 07's *whole alone* pays in its first five steps."""
    counts: list[float] = []
    for run in whole_runs_of(FILTER)["strict alone"]:
        counts.append(sum(64 * reward for reward, _ in run["log"][:5]))
    return max(counts)


def p_of_filter(rival: str) -> float:
    """p of the paired test of chapter 07's chosen problems, sampled."""
    chosen, other = runs_of(FILTER)["chosen"], runs_of(FILTER)[rival]
    gaps = [chosen[seed]["sampled"] - other[seed]["sampled"] for seed in sorted(chosen)]
    return float(ttest_1samp(gaps, 0).pvalue)


def seconds(method: str) -> float:
    return mean(run["seconds"] for run in whole_runs_of(RARE)[method])


SENTENCES = [
    (
        "04_grpo_run",
        "All 64 together solve {:.1f} % of the problems, and any 16 of them {:.1f} % on average. "
        "After training, 16 tries solve {:.1f} %, the mean of three seeds.",
        lambda: (control("base", "64"), control("base", "16"), control("main", "16")),
    ),
    (
        "05_monitoring",
        "Each dot comes from 64 problems, so it is uncertain by up to {:.0f} points",
        lambda: (widest_interval(64),),
    ),
    (
        "05_monitoring",
        "and {:.0f} % for a run that has also lost half of its reward",
        lambda: (100 * bounds.jump / 2,),
    ),
    (
        "05_monitoring",
        "the *t* is over {:.1f}, so the reward rose.",
        lambda: (bounds.sure,),
    ),
    (
        "07_stages_and_curriculum",
        "the loss ({:.1f} points when sampled) is not confirmed either",
        lambda: (points_with_interval(FILTER, "strict alone", "parts, number and whole")[0],),
    ),
    (
        "07_stages_and_curriculum",
        "in the first five steps at most {:.0f} of 320 are paid",
        lambda: (paid_completions(),),
    ),
    (
        "07_stages_and_curriculum",
        "After 24 steps at least {:.0f} % of the greedy answers are right in the open form",
        lambda: (extremes("strict alone", GREEDY, FILTER)[0],),
    ),
    (
        "07_stages_and_curriculum",
        "in four of five at most {:.0f} % of the sampled answers are right after 24 steps",
        lambda: (second_best("parts and number", SAMPLED, FILTER),),
    ),
    (
        "07_stages_and_curriculum",
        "*parts and number* is worse when sampled (on average {:.1f} points, p = 0.037)",
        lambda: (-points_with_interval(FILTER, "parts and number", "strict alone")[0],),
    ),
    (
        "07_stages_and_curriculum",
        "{:.0f} % of the groups of the whole pool have zero variance, and {:.0f} % of those of the "
        "chosen problems",
        lambda: (idle_groups("whole pool"), idle_groups("chosen")),
    ),
    (
        "07_stages_and_curriculum",
        "but the sampled answers gain only {:.1f} points",
        lambda: (points_with_interval(FILTER, "chosen", "whole pool")[0],),
    ),
    (
        "07_stages_and_curriculum",
        "the sampled answers {:.1f} points better after the same number of steps (five seeds)",
        lambda: (points_with_interval(FILTER, "chosen", "whole pool")[0],),
    ),
    (
        "07_stages_and_curriculum",
        "{:.0f} % of the greedy answers were right before any training, and fewer after it, "
        "{:.0f} % with the whole pool and {:.0f} % with the chosen problems",
        lambda: [
            percent(FILTER, name, "greedy lenient") for name in ("base", "whole pool", "chosen")
        ],
    ),
    (
        "07_stages_and_curriculum",
        "When sampled, yes: {:.1f} points [{:.1f}, {:.1f}]. For greedy answers no difference is "
        "shown",
        lambda: points_with_interval(FILTER, "chosen", "whole pool"),
    ),
    (
        "07_stages_and_curriculum",
        "The {:.1f} points hold with Holm's correction for the six tests as well (p = {:.3f})",
        lambda: (
            points_with_interval(FILTER, "chosen", "whole pool")[0],
            6 * p_of_filter("whole pool"),
        ),
    ),
    (
        "07_stages_and_curriculum",
        "The greedy answers of the chosen problems are {:.1f} points [{:.1f}, {:.1f}] above the "
        "whole pool, and {:.1f} [{:.1f}, {:.1f}] above its 32 steps",
        lambda: (
            *points_with_interval(FILTER, "chosen", "whole pool", GREEDY),
            *points_with_interval(FILTER, "chosen", LONGER, GREEDY),
        ),
    ),
    (
        "07_stages_and_curriculum",
        "end {:.1f} and {:.1f} points above *whole pool, 32 steps*",
        lambda: (
            points_with_interval(FILTER, "chosen", LONGER)[0],
            points_with_interval(FILTER, "whole pool, then chosen", LONGER)[0],
        ),
    ),
    (
        "07_stages_and_curriculum",
        "but the {:.1f} points do not: the printed {:.3f} becomes",
        lambda: (points_with_interval(FILTER, "chosen", LONGER)[0], p_of_filter(LONGER)),
    ),
    (
        "12_which_algorithm",
        "with 1e-3 GRPO ends at {:.1f} % on the rare kinds and at {:.1f} % on addition",
        lambda: (tried(RARE, "grpo", 1e-3), tried(ADDITION, "grpo", 1e-3)),
    ),
    (
        "12_which_algorithm",
        "({:.1f} and {:.1f} % on the rare kinds, {:.1f} and {:.1f} % on addition), so the rule for "
        "ties would take 1e-4 on both. The five seeds have {:.1f} and {:.1f} %, and {:.1f} and "
        "{:.1f} %: on the rare kinds the tie hides a gap of {:.0f} points",
        lambda: (
            [
                tried(task, "grpo", rate, seeds)
                for seeds in ([100], None)
                for task in (RARE, ADDITION)
                for rate in (3e-4, 1e-4)
            ]
            + [tried(RARE, "grpo", 1e-4) - tried(RARE, "grpo", 3e-4)]
        ),
    ),
    (
        "12_which_algorithm",
        "on addition GRPO falls from {:.1f} % at 1e-4 to {:.1f} % at 3e-5",
        lambda: (tried(ADDITION, "grpo", 1e-4), tried(ADDITION, "grpo", 3e-5)),
    ),
    (
        "12_which_algorithm",
        "RLOO's one try there ended at {:.1f} %",
        lambda: (tried(ADDITION, "rloo", 3e-4),),
    ),
    (
        "12_which_algorithm",
        "the base: sampled, greedy, pass@16 | {:.1f}, {:.1f}, {:.1f} % | {:.1f}, {:.1f}, {:.1f} %",
        lambda: [
            percent(task, "base", measure)
            for task in (RARE, ADDITION)
            for measure in (SAMPLED, GREEDY, "pass16")
        ],
    ),
    (
        "12_which_algorithm",
        "One of GRPO's eight seeds ends at {:.0f} % greedily and {:.0f} % sampled",
        lambda: (extremes("grpo", GREEDY, ADDITION)[0], extremes("grpo", SAMPLED, ADDITION)[0]),
    ),
    (
        "12_which_algorithm",
        "sampled all eight lie between {:.0f} and {:.0f} %",
        lambda: extremes("ppo", SAMPLED, ADDITION),
    ),
    (
        "12_which_algorithm",
        "SFT and distillation lead it by {:.0f} to {:.0f} points",
        lambda: (
            min(points(RARE, name, "grpo") for name in ("sft", "distillation")),
            max(points(RARE, name, "grpo", GREEDY) for name in ("sft", "distillation")),
        ),
    ),
    (
        "12_which_algorithm",
        "On addition the lead is confirmed when sampled, by {:.1f} and {:.1f} points",
        lambda: [points(ADDITION, name, "grpo") for name in ("sft", "distillation")],
    ),
    (
        "12_which_algorithm",
        "Its lead on the rare kinds is {:.1f} and {:.1f} points, by both measures, and on addition "
        "{:.1f} points when sampled",
        lambda: (
            *means_in_both_measures(FOUR, "grpo", RARE),
            points(ADDITION, FOUR, "grpo"),
        ),
    ),
    (
        "12_which_algorithm",
        "in four rounds by {:.1f} and {:.1f} points, and in one round by {:.1f} points, when "
        "sampled",
        lambda: (
            *means_in_both_measures(ROUNDS, "grpo", RARE),
            points(RARE, "rejection", "grpo"),
        ),
    ),
    (
        "12_which_algorithm",
        "it makes {:.0f} updates on average instead of {:.0f} on the rare kinds",
        lambda: [
            mean(run["updates"] for run in whole_runs_of(RARE)[name])
            for name in ("dapo, 4 updates", FOUR)
        ],
    ),
    (
        "12_which_algorithm",
        "On addition GRPO with four updates is {:.1f} and {:.1f} points above the two when sampled",
        lambda: (points(ADDITION, FOUR, "rejection"), points(ADDITION, FOUR, ROUNDS)),
    ),
    (
        "12_which_algorithm",
        "On addition GSPO and DAPO are worse than GRPO with four updates when sampled, by {:.1f} "
        "and {:.1f} points. On the rare kinds GSPO is, too, but by {:.1f} points",
        lambda: (
            points(ADDITION, FOUR, "gspo, 4 updates"),
            points(ADDITION, FOUR, "dapo, 4 updates"),
            points(RARE, FOUR, "gspo, 4 updates"),
        ),
    ),
    (
        "12_which_algorithm",
        "on the rare kinds SFT is {:.1f} points above distillation greedily",
        lambda: (points(RARE, "sft", "distillation", GREEDY),),
    ),
    (
        "12_which_algorithm",
        "Greedily, SFT and distillation lead it by {:.1f} points each",
        lambda: (against_slow_grpo("sft")[1],),
    ),
    (
        "12_which_algorithm",
        "Sampled, all three lead it by {:.0f} to {:.0f} points",
        lambda: (against_slow_grpo("sft")[0], against_slow_grpo(FOUR)[0]),
    ),
    (
        "12_which_algorithm",
        "On addition, sampled, GRPO with four updates beats it by {:.0f} points, SFT and "
        "distillation by {:.0f} and {:.0f}",
        lambda: [points(ADDITION, name, "grpo") for name in (FOUR, "sft", "distillation")],
    ),
    (
        "12_which_algorithm",
        "by {:.0f} points on the rare kinds and {:.0f} on addition when sampled, and by {:.0f} and "
        "{:.1f} greedily",
        lambda: (
            in_both_measures(PASSES, FOUR, RARE, PASSES_RARE)[0],
            in_both_measures(PASSES, FOUR, ADDITION, PASSES_ADDITION)[0],
            in_both_measures(PASSES, FOUR, RARE, PASSES_RARE)[3],
            in_both_measures(PASSES, FOUR, ADDITION, PASSES_ADDITION)[3],
        ),
    ),
    (
        "12_which_algorithm",
        "On the rare kinds {:.0f} points when sampled and {:.1f} greedily, so that SFT ends above "
        "the teacher of distillation ({:.1f} and {:.1f} % when sampled). On addition they bring "
        "{:.0f} points when sampled",
        lambda: (
            *means_in_both_measures(PASSES, "sft", RARE, PASSES_RARE),
            percent(PASSES_RARE, PASSES),
            percent(RARE, "teacher"),
            in_both_measures(PASSES, "sft", ADDITION, PASSES_ADDITION)[0],
        ),
    ),
    (
        "12_which_algorithm",
        "this teacher is worth {:.1f} points more than GRPO with four updates when sampled and "
        "{:.1f} greedily; on addition it ends {:.1f} below it when sampled",
        lambda: (
            *means_in_both_measures(SAMPLED_TOKEN, FOUR, RARE),
            points(ADDITION, FOUR, SAMPLED_TOKEN),
        ),
    ),
    (
        "12_which_algorithm",
        "with no more problems than these by about {:.0f} when sampled and {:.0f} greedily",
        lambda: means_in_both_measures(SAME_SFT, ROUNDS, SAME_RARE, RARE),
    ),
    (
        "12_which_algorithm",
        "on the rare kinds it still ends {:.1f} points above grpo (sampled)",
        lambda: (points(RARE, SAMPLED_TOKEN, "grpo"),),
    ),
    (
        "12_which_algorithm",
        "on addition SFT is right in {:.1f} % of the answers at temperature 1, and in {:.1f} % "
        "greedily",
        lambda: (percent(ADDITION, "sft"), percent(ADDITION, "sft", GREEDY)),
    ),
    (
        "12_which_algorithm",
        "even without the failed seed GRPO has {:.0f} % there, and with 1e-4 {:.0f} %",
        lambda: (mean(greedy_without_seed_7("grpo", ADDITION)), mean(slow_without_seed_7())),
    ),
    (
        "12_which_algorithm",
        "over the seven other seeds 1e-4 is still {:.1f} points better",
        lambda: (mean(slow_without_seed_7()) - mean(greedy_without_seed_7("grpo", ADDITION)),),
    ),
    (
        "12_which_algorithm",
        "3e-4 ends below 1e-4 here ({:.1f} and {:.1f} %)",
        lambda: (
            (percent(ADDITION, "grpo") + percent(ADDITION, "grpo", GREEDY)) / 2,
            (
                percent(OTHER_RATES_OF_ADDITION, SLOW_GRPO)
                + percent(OTHER_RATES_OF_ADDITION, SLOW_GRPO, GREEDY)
            )
            / 2,
        ),
    ),
    (
        "12_which_algorithm",
        "SFT with GRPO's problems is still {:.1f} points above GRPO when sampled and {:.1f} "
        "greedily, and distillation {:.1f} and {:.1f}",
        lambda: (
            *means_in_both_measures(SAME_SFT, "grpo", SAME_RARE, RARE),
            *means_in_both_measures(SAME_DISTILLATION, "grpo", SAME_RARE, RARE),
        ),
    ),
    (
        "12_which_algorithm",
        "the better rate brings GRPO {:.1f} and {:.1f} points, and rejection sampling in four "
        "rounds {:.1f} and {:.1f}",
        lambda: (
            *means_in_both_measures("grpo", FAST_GRPO, RARE, OTHER_RATES),
            *means_in_both_measures(ROUNDS, FAST_ROUNDS, RARE, OTHER_RATES),
        ),
    ),
    (
        "12_which_algorithm",
        "Sampled, 3e-4 is {:.1f} points better. Greedily, 1e-4 is {:.1f} points better",
        lambda: (
            in_both_measures("grpo", SLOW_GRPO, ADDITION, OTHER_RATES_OF_ADDITION)[0],
            -in_both_measures("grpo", SLOW_GRPO, ADDITION, OTHER_RATES_OF_ADDITION)[3],
        ),
    ),
    (
        "12_which_algorithm",
        "s was {:.1f} points between DAPO and its rival, and {:.1f} between rejection sampling and "
        "GRPO; on addition, with GRPO's failed seed, it was {:.1f}",
        lambda: (
            spread("dapo, 4 updates", FOUR),
            spread("rejection", "grpo"),
            spread("rejection", "grpo", ADDITION),
        ),
    ),
    (
        "12_which_algorithm",
        "SFT, RLOO and GRPO need {:.0f} to {:.0f}, distillation {:.0f}, and GRPO with four updates "
        "{:.0f}",
        lambda: [seconds(name) for name in ("sft", "grpo", "distillation", FOUR)],
    ),
    (
        "12_which_algorithm",
        "All five solve more problems in 16 attempts than the base, GRPO by {:.0f} points and SFT "
        "by {:.0f}",
        lambda: [points(RARE, name, "base", "pass16") for name in ("grpo", "sft")],
    ),
    (
        "12_which_algorithm",
        "The base solves {:.1f} % of the problems in 16 attempts. One greedy answer is right for "
        "{:.1f} % after GRPO and for {:.1f} % after rejection sampling in four rounds, but for "
        "{:.1f} % after SFT",
        lambda: (
            percent(RARE, "base", "pass16"),
            *[percent(RARE, name, GREEDY) for name in ("grpo", ROUNDS, "sft")],
        ),
    ),
    (
        "12_which_algorithm",
        "GRPO with four updates per batch takes the answers from {:.0f} to {:.0f} tokens and from "
        "{:.0f} to {:.0f} % right (sampled)",
        lambda: (
            percent(STEPS, "base", "tokens") / 100,
            percent(STEPS, FOUR, "tokens") / 100,
            percent(STEPS, "base"),
            percent(STEPS, FOUR),
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
        "those with this penalty end with {:.0f} % right and a proxy of {:.2f}, those without it "
        "with {:.0f} % right and a proxy of {:.2f}",
        lambda: (
            percent(GOODHART, "beta 0.3"),
            percent(GOODHART, "beta 0.3", "proxy") / 100,
            percent(GOODHART, "one model"),
            percent(GOODHART, "one model", "proxy") / 100,
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
        "The mean of three ends lower, at {:.1f} points, and so do reward models from labels of "
        "which 30 % were flipped, at {:.1f}",
        lambda: (
            points(GOODHART, "mean of three", "one model"),
            points(GOODHART, "30 % flipped", "one model"),
        ),
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
        "lower than those with adapters in the tower: by {:.1f}, {:.1f} and {:.1f} points on grey "
        "paper, and by {:.1f}, {:.1f} and {:.1f} points on white",
        lambda: (
            *[behind_the_tower("language", seed, GREEDY) for seed in (0, 1, 2)],
            *[behind_the_tower("language", seed, "white") for seed in (0, 1, 2)],
        ),
    ),
    (
        "15_pictures",
        "and lower on white paper, by {:.1f}, {:.1f} and {:.1f} points",
        lambda: [behind_the_tower("both", seed, "white") for seed in (0, 1, 2)],
    ),
    (
        "15_pictures",
        "4 times {:.3f} is more than 0.05",
        lambda: (smallest_p_of_the_parts(),),
    ),
    (
        "15_pictures",
        "{:.1f} % of the real charts are right afterwards, and {:.1f} % were right before",
        lambda: (vision("vision, blank pictures", 0, GREEDY), vision("base", 0, GREEDY)),
    ),
    (
        "15_pictures",
        "In {} of its {} steps no completion was right",
        lambda: steps_without_reward("vision, blank pictures", seed=0),
    ),
    (
        "15_pictures",
        "Before training {:.1f} % of the colours are right. With adapters in the tower they end at "
        "{:.1f}, {:.1f} and {:.1f} %, although all heights are right, and with adapters in the "
        "language layers at {:.1f}, {:.1f} and {:.1f} %",
        lambda: (
            vision("base", 0, "colours"),
            *[vision("vision", seed, "colours") for seed in (0, 1, 2)],
            *[vision("language", seed, "colours") for seed in (0, 1, 2)],
        ),
    ),
    (
        "16_thinking",
        "with a budget of 50 tokens only {:.1f} % of the sums are right, instead of {:.1f} % "
        "without a budget",
        lambda: (
            100 * dict(with_budgets("rambler, base"))[50],
            percent(THINKING, "rambler, base", "greedy"),
        ),
    ),
    (
        "16_thinking",
        "With 64 tokens the same policies are right in {:.1f} to {:.1f} % of their samples",
        lambda: (
            min(rate for mask in MASKS for rate in extremes(mask, "sampled", THINKING)),
            max(rate for mask in MASKS for rate in extremes(mask, "sampled", THINKING)),
        ),
    ),
    (
        "16_thinking",
        "the runs with 64 tokens are at {:.1f} % sampled (mean of three seeds), those with 36 "
        "tokens at {:.1f} %",
        lambda: (percent(THINKING, "thinker"), percent(THINKING, "limit 36")),
    ),
    (
        "16_thinking",
        "the difference is {:.1f} points sampled, with an interval from {:.1f} to {:.1f}",
        lambda: points_with_interval(THINKING, "limit 36, mask", "limit 36"),
    ),
    (
        "16_thinking",
        "The sampled completions of the base have {:.1f} tokens, and {:.1f} % are right. With a "
        "price of 0.5 they have {:.1f} tokens, and {:.1f} % are right",
        lambda: (*length_and_rate("rambler, base"), *length_and_rate("price 0.5")),
    ),
    (
        "16_thinking",
        "With a price of 0 the completions shrink to {:.1f} tokens, and {:.1f} % are right",
        lambda: length_and_rate("price 0"),
    ),
    (
        "16_thinking",
        "A price of 0.5 takes {:.1f} tokens more, with an interval from {:.1f} to {:.1f}",
        lambda: mean_and_interval(
            [
                runs_of(THINKING)["price 0"][seed]["sampled tokens"]
                - runs_of(THINKING)["price 0.5"][seed]["sampled tokens"]
                for seed in (0, 1, 2)
            ]
        ),
    ),
    (
        "16_thinking",
        "with 3 the sampled answers are {:.1f} points below those without a price, with an "
        "interval from {:.1f} to {:.1f}",
        lambda: (
            -points_with_interval(THINKING, "price 3", "price 0")[0],
            *points_with_interval(THINKING, "price 3", "price 0")[1:],
        ),
    ),
    (
        "16_thinking",
        "the three runs end at {:.1f}, {:.1f} and {:.1f} %, below each of the fifteen others. (If "
        "the price made no difference, this would happen in one of {:.0f} cases.)",
        lambda: (
            *[100 * runs_of(THINKING)["price 4"][seed]["sampled"] for seed in (0, 1, 2)],
            comb(18, 3),
        ),
    ),
    (
        "16_thinking",
        "they have {:.1f} tokens, instead of {:.1f} with a price of 3. Those about three digits "
        "become shorter as well ({:.1f} instead of {:.1f})",
        lambda: [thought_tokens(f"price {price}", n) for n in "23" for price in (4, 3)],
    ),
    (
        "16_thinking",
        "In the stored run (seed 0) {:.1f} % of the sampled sums are right afterwards, with {:.0f} "
        "tokens on average",
        lambda: length_and_rate("thinker, all pay")[::-1],
    ),
    (
        "16_thinking",
        "With the same price on right answers alone (also one run) {:.1f} % are right, with {:.0f} "
        "tokens",
        lambda: length_and_rate("thinker, price 1.25")[::-1],
    ),
    (
        "16_thinking",
        "Before the training {:.1f} % of the sampled answers are right, and the three stored runs "
        "with a limit of 20 end at {:.1f}, {:.1f} and {:.1f} %",
        lambda: (
            percent(THINKING, "thinker, base"),
            *[100 * runs_of(THINKING)["limit 20"][seed]["sampled"] for seed in (0, 1, 2)],
        ),
    ),
    (
        "16_thinking",
        "In the five stored runs {:.0f} to {:.0f} of the 240 greedy answers are right with 36 "
        "tokens, and {:.0f} to {:.0f} with 64",
        lambda: (
            *[2.4 * rate for rate in extremes("limit 36", "greedy at the limit", THINKING)],
            *[2.4 * rate for rate in extremes("limit 36", "greedy", THINKING)],
        ),
    ),
]


@pytest.mark.parametrize("task", TRIES)
def test_each_best_rate_of_chapter_12_has_a_worse_one_on_both_sides(task):
    rates: dict[str, dict[float, float]] = {}
    for name in runs_of(TRIES[task]):
        method, rate = name.rsplit(", rate ", 1)
        rates.setdefault(method, {})[float(rate)] = tried(task, method, float(rate))
    for method, accuracy in rates.items():
        best = max(accuracy, key=accuracy.get)
        assert min(accuracy) < best < max(accuracy), method


@pytest.mark.parametrize("task", TRIES)
def test_the_two_best_rates_of_chapter_12_have_five_seeds_and_the_better_one_ran(task):
    tries = [run for runs in whole_runs_of(TRIES[task]).values() for run in runs]
    for method in {name.rsplit(", rate ", 1)[0] for name in runs_of(TRIES[task])}:
        by_rate: dict[float, list[int]] = {}
        for run in tries:
            if run["method"].rsplit(", rate ", 1)[0] == method:
                by_rate.setdefault(run["settings"]["rate"], []).append(run["seed"])
        best_first = sorted(by_rate, key=lambda rate: -tried(task, method, rate))
        for rate in best_first[:2]:
            assert sorted(by_rate[rate]) == [100, 101, 102, 103, 104], (method, rate)
        chosen = {run["settings"]["rate"] for run in whole_runs_of(task)[method]}
        assert chosen == {race.tuned_rate(tries, method)}


def test_one_seed_chooses_the_wrong_rate_of_grpo_on_both_tasks():
    assert tried(RARE, "grpo", 3e-4, [100]) > tried(RARE, "grpo", 1e-4, [100])
    assert tried(RARE, "grpo", 3e-4) < tried(RARE, "grpo", 1e-4)
    assert tried(ADDITION, "grpo", 1e-4, [100]) > tried(ADDITION, "grpo", 3e-4, [100])
    assert tried(ADDITION, "grpo", 1e-4) < tried(ADDITION, "grpo", 3e-4)


def test_on_addition_a_low_rate_hardly_moves_four_methods():
    for method in ("grpo", "ppo", "rloo", "dpo, 4 rounds"):
        assert 6 < tried(ADDITION, method, 3e-5) < 9


def test_only_with_the_highest_price_every_run_is_below_all_runs_with_lower_ones():
    lower = [f"price {price:g}" for price in (0, 0.5, 1, 2, 3)]
    rates = [extremes(price, SAMPLED, THINKING) for price in lower]
    assert extremes("price 4", SAMPLED, THINKING)[1] < min(low for low, _ in rates)
    assert extremes("price 3", SAMPLED, THINKING)[1] > min(low for low, _ in rates[:-1])
    lengths = {}
    for price in ("price 0.5", "price 1", "price 2", "price 3"):
        lengths[price] = length_and_rate(price)[0]
    assert max(lengths.values()) - min(lengths.values()) < 0.5


def test_two_stages_end_between_grpo_and_sft():
    for file in ("race_results/main.jsonl", STEPS):
        for measure in (SAMPLED, GREEDY):
            stages = [percent(file, name, measure) for name in ("grpo", "sft then grpo", "sft")]
            assert stages == sorted(stages)


def test_without_the_failed_seed_six_of_seven_are_higher_with_the_lower_rate():
    pairs = zip(greedy_without_seed_7("grpo", ADDITION), slow_without_seed_7(), strict=True)
    assert sum(fast < slow for fast, slow in pairs) == 6


def test_with_as_many_updates_sft_is_above_grpo_with_four_by_both_measures():
    for file, passes in ((RARE, PASSES_RARE), (ADDITION, PASSES_ADDITION)):
        _, low, _, _, greedy_low, _ = in_both_measures(PASSES, FOUR, file, passes)
        assert min(low, greedy_low) > 0


def test_no_seed_of_grpo_with_the_lower_rate_fails_on_addition():
    assert round(extremes(SLOW_GRPO, GREEDY, OTHER_RATES_OF_ADDITION)[0]) == 90


def test_with_its_first_rate_rejection_in_four_rounds_is_below_all_with_a_check_alone():
    for measure in (SAMPLED, GREEDY):
        lowest = min(percent(RARE, name, measure) for name in WITH_A_CHECK_ALONE)
        assert percent(OTHER_RATES, FAST_ROUNDS, measure) < lowest


def test_sft_and_distillation_lead_all_with_a_check_alone_by_18_points():
    for measure in (SAMPLED, GREEDY):
        highest = max(percent(RARE, name, measure) for name in WITH_A_CHECK_ALONE)
        for name in ("sft", "distillation"):
            assert percent(RARE, name, measure) > highest + 18


def test_below_distillation_the_seeds_of_a_method_lie_further_apart_than_neighbours():
    widths = [high - low for low, high in (extremes(name, SAMPLED) for name in WITH_A_CHECK_ALONE)]
    assert (round(min(widths)), round(max(widths))) == (6, 11)
    means = sorted(percent(RARE, name) for name in WITH_A_CHECK_ALONE)
    assert max(high - low for low, high in itertools.pairwise(means)) < 5


def test_the_other_problems_add_4_to_8_points_on_the_rare_kinds_and_hardly_any_on_addition():
    for file, same, low, high in ((RARE, SAME_RARE, 4, 8.3), (ADDITION, SAME_ADDITION, -0.2, 1.6)):
        gaps = [
            *means_in_both_measures("sft", SAME_SFT, file, same),
            *means_in_both_measures("distillation", SAME_DISTILLATION, file, same),
        ]
        assert min(gaps) == pytest.approx(low, abs=0.05)
        assert max(gaps) == pytest.approx(high, abs=0.05)


def test_the_decision_table_has_the_numbers_and_the_verdicts_of_the_races():
    source = REPO / "notebooks" / "source" / "12_which_algorithm.py"
    text = source.read_text(encoding="utf-8").split("# ## The decision", 1)[1]
    rows = [line.strip("# |").split(" | ") for line in text.splitlines() if "? |" in line]
    assert len(rows) == 11  # the control is no choice
    for _, _, method, against, *cells, _ in rows:
        for task, cell in zip((RARE, ADDITION), cells, strict=True):
            confirmed = [word for word, names in VERDICTS[task].items() if method in names]
            if not confirmed:
                assert cell == "not shown"
                continue
            rival = race.against(method)
            assert against == rival
            assert cell == f"{points(task, method, rival):+.1f}: {confirmed[0]}"


def test_eight_seeds_find_a_difference_of_half_an_interval_in_half_of_all_races():
    half_width = t.ppf(0.975, 7)  # in standard errors
    found = [1 - nct.cdf(half_width, 7, factor * half_width) for factor in (1, 1.4)]
    assert found == [pytest.approx(0.5, abs=0.05), pytest.approx(0.8, abs=0.02)]


@pytest.mark.parametrize("task", VERDICTS)
def test_chapter_12_calls_a_method_better_or_worse_only_where_both_measures_agree(task):
    by_method: dict[str, dict[int, dict]] = {}
    for method, runs in whole_runs_of(task).items():
        by_method[method] = {run["seed"]: run for run in runs}
    assert {len(by_seed) for by_seed in by_method.values()} == {8}
    sampled = race.differences(by_method)
    greedily = race.differences(by_method, measure=GREEDY)
    verdicts: dict[str, set] = {word: set() for word in VERDICTS[task]}
    for method in sampled:
        one, other = (words[method].rsplit(": ", 1)[1] for words in (sampled, greedily))
        if one == other and one in verdicts:
            verdicts[one].add(method)
        elif one in ("better", "worse"):
            verdicts[f"{one}, sampled"].add(method)
    assert verdicts == VERDICTS[task]


def test_on_addition_all_but_three_methods_end_right_and_entropy_follows_the_updates():
    ends = {name: runs_of(ADDITION)[name] for name in race.methods_of("addition")}
    by_rate = {name: mean(end["entropy"] for end in runs.values()) for name, runs in ends.items()}
    slow = {"rloo", "ppo", "dpo, 4 rounds"}  # 16 updates at 1e-4
    assert all(0.285 < by_rate[name] < 0.345 for name in slow)
    others = by_rate.keys() - slow - {"base", "teacher", "random reward"}
    assert all(by_rate[name] < 0.145 for name in others)
    low = {name for name in ends if percent(ADDITION, name, GREEDY) < 93.95}
    assert low == {"grpo", "ppo", "dpo, 4 rounds", "base", "random reward"}
    rates = sorted(100 * end[GREEDY] for end in runs_of(ADDITION)["grpo"].values())
    assert [round(rate) for rate in (rates[0], rates[1], rates[-1])] == [15, 73, 97]


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
