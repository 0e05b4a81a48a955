"""Sentences of chapters about stored runs: their numbers are computed again."""

import functools
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
SECOND_RATE = "race_results/other_rates/addition.jsonl"
SAME_RARE = "race_results/same_problems/rare.jsonl"
SAME_ADDITION = "race_results/same_problems/addition.jsonl"
SAME_SFT, SAME_DISTILLATION = "sft, same problems", "distillation, same problems"
SLOW_CONTROL = "random reward, rate 0.0001"
# What the text of chapter 12 says of the race's methods, on each task.
VERDICTS = {
    RARE: {
        "better": {"sft", "distillation"},
        "worse": {"distillation, sampled token", "dapo, 4 updates", "random reward"},
        "better, sampled": {"rejection"},
        "worse, sampled": set(),
    },
    ADDITION: {
        "better": set(),
        "worse": {"distillation, sampled token", "random reward"},
        "better, sampled": {"sft", "distillation", "grpo, 4 updates"},
        "worse, sampled": {"gspo, 4 updates", "dapo, 4 updates"},
    },
}
SLOW_GRPO, SAMPLED_TOKEN = "grpo, rate 0.0001", "distillation, sampled token"
SLOW_ROUNDS, ROUNDS = "rejection, 4 rounds, rate 0.0003", "rejection, 4 rounds"
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


def points_between_tries(method: str, rate: float, other_rate: float) -> float:
    """How far two learning rates' tries lie apart, in the mean of sampled and greedy."""
    accuracy = {}
    for name, runs in whole_runs_of("race_results/dev-rare.jsonl").items():
        if name.rsplit(", rate ", 1)[0] == method:
            (run,) = runs
            accuracy[run["settings"]["rate"]] = 50 * (run["end"]["sampled"] + run["end"]["greedy"])
    return accuracy[rate] - accuracy[other_rate]


def tried(
    method: str,
    rate: float,
    seeds: list[int] | None = None,
    measures: list[str] | None = None,
) -> float:
    """The mean accuracy of a learning rate's tries on addition, in percent."""
    ends = runs_of("race_results/dev-addition.jsonl")[f"{method}, rate {rate:g}"]
    accuracies = []
    for seed in seeds or ends:
        for measure in measures or [SAMPLED, GREEDY]:
            accuracies.append(100 * ends[seed][measure])
    return mean(accuracies)


def in_both_measures(method: str, rival: str) -> tuple[float, ...]:
    """The paired difference with its interval, sampled and then greedy, in points."""
    return (
        *points_with_interval(RARE, method, rival),
        *points_with_interval(RARE, method, rival, GREEDY),
    )


def at_another_rate(
    method: str, rival: str, files: tuple[str, str] = (RARE, OTHER_RATES)
) -> tuple[float, ...]:
    """The same where one of the two has the other learning rate."""
    runs = {**runs_of(files[0]), **runs_of(files[1])}
    numbers: list[float] = []
    for measure in ("sampled", GREEDY):
        seeds = sorted(runs[method].keys() & runs[rival].keys())
        gaps = [100 * (runs[method][s][measure] - runs[rival][s][measure]) for s in seeds]
        numbers.extend(mean_and_interval(gaps))
    return tuple(numbers)


def on_addition(method: str, rival: str) -> tuple[float, ...]:
    """The same on addition."""
    return at_another_rate(method, rival, (ADDITION, SECOND_RATE))


def spread(method: str, rival: str) -> float:
    """The standard deviation of the paired differences on the rare kinds, in points."""
    runs = runs_of(RARE)
    gaps = [
        100 * (runs[method][seed]["sampled"] - runs[rival][seed]["sampled"]) for seed in range(8)
    ]
    return stdev(gaps)


def between_other_rates(method: str, rival: str) -> tuple[float, ...]:
    """The same where both have their other learning rate."""
    return at_another_rate(method, rival, (OTHER_RATES, OTHER_RATES))


def extremes(method: str, measure: str, file: str = RARE) -> tuple[float, float]:
    """The lowest and the highest seed of a method, in percent."""
    rates = [100 * end[measure] for end in runs_of(file)[method].values()]
    return min(rates), max(rates)


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


def paid_completions() -> tuple[float, float, float]:
    """Of chapter 07's strict reward: the most in five steps, and the range of the ninth."""
    first_steps: list[float] = []
    ninth: list[float] = []
    for run in whole_runs_of(FILTER)["strict alone"]:
        paid = [64 * reward for reward, _ in run["log"]]
        first_steps.append(sum(paid[:5]))
        ninth.append(paid[8])
    return max(first_steps), min(ninth), max(ninth)


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
        "is called `rate_too_high` from a movement of {:.0f} % on",
        lambda: (100 * bounds.jump / 2,),
    ),
    (
        "05_monitoring",
        "a *t* over {:.1f} means that the reward rose",
        lambda: (bounds.sure,),
    ),
    (
        "07_stages_and_curriculum",
        "these runs are {:.1f} points below the strict reward alone [{:.1f}, {:.1f}]",
        lambda: (
            -points_with_interval(FILTER, "parts, number and whole", "strict alone")[0],
            *points_with_interval(FILTER, "parts, number and whole", "strict alone")[1:],
        ),
    ),
    (
        "07_stages_and_curriculum",
        "It ends {:.1f} points above 32 steps on the whole pool when sampled [{:.1f}, {:.1f}]",
        lambda: points_with_interval(FILTER, "whole pool, then chosen", LONGER),
    ),
    (
        "07_stages_and_curriculum",
        "in the first five steps at most {:.0f} of 320 are paid, in the ninth {:.0f} to {:.0f} of "
        "64",
        paid_completions,
    ),
    (
        "07_stages_and_curriculum",
        "after 24 steps {:.0f} to {:.0f} % of the sampled answers are right in the asked form, and "
        "at least {:.0f} % of the greedy ones",
        lambda: (
            *extremes("strict alone", SAMPLED, FILTER),
            extremes("strict alone", GREEDY, FILTER)[0],
        ),
    ),
    (
        "07_stages_and_curriculum",
        "{:.1f} points when sampled [{:.1f}, {:.1f}], and {:.1f} points greedily.",
        lambda: (
            *points_with_interval(FILTER, "parts first", "strict alone"),
            points_with_interval(FILTER, "parts first", "strict alone", GREEDY)[0],
        ),
    ),
    (
        "07_stages_and_curriculum",
        "They end {:.1f} points below the strict reward when sampled [{:.1f}, {:.1f}]",
        lambda: (
            -points_with_interval(FILTER, "parts and number", "strict alone")[0],
            *points_with_interval(FILTER, "parts and number", "strict alone")[1:],
        ),
    ),
    (
        "07_stages_and_curriculum",
        "the filter lowered the zero-variance groups from {:.0f} to {:.0f} %",
        lambda: (idle_groups("whole pool"), idle_groups("chosen")),
    ),
    (
        "07_stages_and_curriculum",
        "the sampled answers are {:.1f} points better after as many steps (five seeds)",
        lambda: (points_with_interval(FILTER, "chosen", "whole pool")[0],),
    ),
    (
        "07_stages_and_curriculum",
        "over five seeds the sampled answers of the policy were {:.1f} points better after as many "
        "steps. After as many completions, those of the filter's measurement included, they were "
        "{:.1f} points better",
        lambda: (
            points_with_interval(FILTER, "chosen", "whole pool")[0],
            points_with_interval(FILTER, "chosen", LONGER)[0],
        ),
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
        "Its sampled answers are right {:.1f} points more often [{:.1f}, {:.1f}], which holds with "
        "Holm's correction for the six tests as well (p = {:.3f}). For greedy answers no "
        "difference is shown ({:.1f} points [{:.1f}, {:.1f}])",
        lambda: (
            *points_with_interval(FILTER, "chosen", "whole pool"),
            6 * p_of_filter("whole pool"),
            *points_with_interval(FILTER, "chosen", "whole pool", GREEDY),
        ),
    ),
    (
        "07_stages_and_curriculum",
        "Against 32 steps on the whole pool the sampled answers of the chosen problems are {:.1f} "
        "points better [{:.1f}, {:.1f}] and the greedy ones {:.1f} [{:.1f}, {:.1f}]",
        lambda: (
            *points_with_interval(FILTER, "chosen", LONGER),
            *points_with_interval(FILTER, "chosen", LONGER, GREEDY),
        ),
    ),
    (
        "07_stages_and_curriculum",
        "and {:.1f} points above the strict reward alone [{:.1f}, {:.1f}] in the case made for "
        "them (five seeds)",
        lambda: points_with_interval(FILTER, "parts first", "strict alone"),
    ),
    (
        "12_which_algorithm",
        "GRPO with four ends above both when sampled, by {:.1f} points (SFT) and {:.1f} "
        "(distillation)",
        lambda: (points(ADDITION, FOUR, "sft"), points(ADDITION, FOUR, "distillation")),
    ),
    (
        "12_which_algorithm",
        "On the rare kinds, SFT with GRPO's problems is {:.1f} points above GRPO when sampled and "
        "{:.1f} greedily, and distillation {:.1f} and {:.1f}. The other problems bring SFT another "
        "{:.1f} and {:.1f} points, and distillation {:.1f} and {:.1f}",
        lambda: (
            *at_another_rate(SAME_SFT, SLOW_GRPO, (SAME_RARE, OTHER_RATES))[::3],
            *at_another_rate(SAME_DISTILLATION, SLOW_GRPO, (SAME_RARE, OTHER_RATES))[::3],
            *at_another_rate("sft", SAME_SFT, (RARE, SAME_RARE))[::3],
            *at_another_rate("distillation", SAME_DISTILLATION, (RARE, SAME_RARE))[::3],
        ),
    ),
    (
        "12_which_algorithm",
        "sampled, all eight lie between {:.0f} and {:.0f} %",
        lambda: extremes("ppo", SAMPLED, ADDITION),
    ),
    (
        "12_which_algorithm",
        "GRPO with four updates is about {:.0f} points lower on the rare kinds, and {:.1f} points "
        "higher on addition when sampled",
        lambda: (-points(RARE, FOUR, "rejection"), on_addition(FOUR, "rejection")[0]),
    ),
    (
        "12_which_algorithm",
        "rejection sampling in four rounds by {:.1f} and {:.1f} points on the rare kinds, GRPO "
        "with four updates by {:.1f} points on addition when sampled",
        lambda: (
            *at_another_rate(SLOW_ROUNDS, FOUR, (OTHER_RATES, RARE))[::3],
            on_addition(FOUR, ROUNDS)[0],
        ),
    ),
    (
        "12_which_algorithm",
        "of SFT by {:.1f} points, and of distillation by {:.1f}. Greedily, distillation is ahead "
        "of it by {:.1f} points, and SFT cannot be told from it ({:.1f} points [{:.1f}, {:.1f}])",
        lambda: (
            -at_another_rate(SAME_SFT, FOUR, (SAME_ADDITION, ADDITION))[0],
            -at_another_rate(SAME_DISTILLATION, FOUR, (SAME_ADDITION, ADDITION))[0],
            at_another_rate(SAME_DISTILLATION, FOUR, (SAME_ADDITION, ADDITION))[3],
            *at_another_rate(SAME_SFT, FOUR, (SAME_ADDITION, ADDITION))[3:],
        ),
    ),
    (
        "12_which_algorithm",
        "another rate moved GRPO by {:.0f} to {:.0f} points",
        lambda: (at_another_rate(SLOW_GRPO, "grpo")[0], on_addition(SLOW_GRPO, "grpo")[3]),
    ),
    (
        "12_which_algorithm",
        "{:.1f} and {:.1f} points on addition (each against the better rate of GRPO)",
        lambda: (
            on_addition(SAMPLED_TOKEN, "grpo")[0],
            on_addition(SAMPLED_TOKEN, SLOW_GRPO)[3],
        ),
    ),
    (
        "12_which_algorithm",
        "With 1e-4 the control ends at {:.1f} % sampled and {:.1f} % greedily, below the base "
        "({:.1f} and {:.1f} %)",
        lambda: (
            percent(OTHER_RATES, SLOW_CONTROL),
            percent(OTHER_RATES, SLOW_CONTROL, GREEDY),
            percent(RARE, "base"),
            percent(RARE, "base", GREEDY),
        ),
    ),
    (
        "12_which_algorithm",
        "The control ends at {:.1f} % sampled and {:.1f} % greedily",
        lambda: (percent(SECOND_RATE, SLOW_CONTROL), percent(SECOND_RATE, SLOW_CONTROL, GREEDY)),
    ),
    (
        "12_which_algorithm",
        "SFT is {:.1f} points above distillation, with a paired interval from {:.1f} to {:.1f}",
        lambda: points_with_interval(RARE, "sft", "distillation", GREEDY),
    ),
    (
        "12_which_algorithm",
        "it makes {:.0f} updates on average instead of 96",
        lambda: (mean(run["updates"] for run in whole_runs_of(RARE)["dapo, 4 updates"]),),
    ),
    (
        "12_which_algorithm",
        "Its eight seeds end between {:.0f} and {:.0f} % (greedy), and those of rejection sampling "
        "in four rounds between {:.0f} and {:.0f} %",
        lambda: (*extremes("grpo", GREEDY), *extremes("rejection, 4 rounds", GREEDY)),
    ),
    (
        "12_which_algorithm",
        "GRPO gains {:.1f} points when sampled and {:.1f} greedily, rejection sampling in four "
        "rounds {:.1f} and {:.1f}. With 3e-4 the latter has the highest means of all methods with "
        "a check alone, and it leads GRPO with 1e-4 by {:.1f} and {:.1f} points",
        lambda: (
            *at_another_rate(SLOW_GRPO, "grpo")[::3],
            *at_another_rate(SLOW_ROUNDS, ROUNDS)[::3],
            *between_other_rates(SLOW_ROUNDS, SLOW_GRPO)[::3],
        ),
    ),
    (
        "12_which_algorithm",
        "Worked answers and a teacher are better than GRPO by both measures**, by {:.0f} to {:.0f} "
        "points",
        lambda: (
            min(in_both_measures(name, "grpo")[0] for name in ("sft", "distillation")),
            max(in_both_measures(name, "grpo")[3] for name in ("sft", "distillation")),
        ),
    ),
    (
        "12_which_algorithm",
        "it is {:.1f} and {:.1f} points above GRPO with 1e-4",
        lambda: between_other_rates(SLOW_ROUNDS, SLOW_GRPO)[::3],
    ),
    (
        "12_which_algorithm",
        "GRPO ends {:.0f} points higher when sampled and {:.0f} greedily, and rejection sampling "
        "in four rounds {:.0f} and {:.0f}",
        lambda: (
            *at_another_rate(SLOW_GRPO, "grpo")[::3],
            *at_another_rate(SLOW_ROUNDS, ROUNDS)[::3],
        ),
    ),
    (
        "12_which_algorithm",
        "Rejection sampling in one round stays {:.1f} points above it when sampled, and four "
        "updates per batch {:.1f}",
        lambda: [at_another_rate(name, SLOW_GRPO)[0] for name in ("rejection", FOUR)],
    ),
    (
        "12_which_algorithm",
        "{:.1f} % of its samples are right and none of its greedy answers, and yet it solves "
        "{:.1f} % of the problems in 16 attempts",
        lambda: (percent(ADDITION, "base"), percent(ADDITION, "base", "pass16")),
    ),
    (
        "12_which_algorithm",
        "With seed 100 alone, GRPO would get 1e-4 ({:.1f} against {:.1f} % with 3e-4), and PPO "
        "3e-4 ({:.1f} against {:.1f} % with 1e-4)",
        lambda: (
            tried("grpo", 1e-4, [100]),
            tried("grpo", 3e-4, [100]),
            tried("ppo", 3e-4, [100]),
            tried("ppo", 1e-4, [100]),
        ),
    ),
    (
        "12_which_algorithm",
        "With three seeds GRPO gets 3e-4 ({:.1f} against {:.1f} %) and PPO gets 1e-4 ({:.1f} "
        "against {:.1f} %)",
        lambda: (
            tried("grpo", 3e-4),
            tried("grpo", 1e-4),
            tried("ppo", 1e-4),
            tried("ppo", 3e-4),
        ),
    ),
    (
        "12_which_algorithm",
        "Its greedy mean is higher ({:.1f} %, and the interval of the gain includes 0). When "
        "sampled it is lower ({:.1f} %)",
        lambda: (
            percent(SECOND_RATE, SLOW_GRPO, GREEDY),
            percent(SECOND_RATE, SLOW_GRPO),
        ),
    ),
    (
        "12_which_algorithm",
        "Greedily they lead by {:.1f} points each on addition",
        lambda: (on_addition("sft", SLOW_GRPO)[3],),
    ),
    (
        "12_which_algorithm",
        "PPO with 3e-5 reaches {:.1f} % (three seeds), and GRPO with 1e-3 reaches {:.1f} %",
        lambda: (tried("ppo", 3e-5), tried("grpo", 1e-3)),
    ),
    (
        "12_which_algorithm",
        "Of PPO's three tries with 1e-4 one was low as well ({:.1f} % greedily)",
        lambda: (tried("ppo", 1e-4, [100], [GREEDY]),),
    ),
    (
        "12_which_algorithm",
        "On addition their means are {:.0f} to {:.0f} points above it when sampled",
        lambda: (on_addition("rejection", "grpo")[0], on_addition(FOUR, "grpo")[0]),
    ),
    (
        "12_which_algorithm",
        "s was {:.1f} points between DAPO and its rival, and {:.1f} between rejection sampling and "
        "GRPO",
        lambda: (spread("dapo, 4 updates", FOUR), spread("rejection", "grpo")),
    ),
    (
        "12_which_algorithm",
        "GRPO with four updates has the highest sampled accuracy ({:.1f} %; rejection sampling in "
        "four rounds has {:.1f} %). Greedily these two end alike ({:.1f} and {:.1f} %)",
        lambda: (
            percent(ADDITION, FOUR),
            percent(ADDITION, ROUNDS),
            percent(ADDITION, FOUR, GREEDY),
            percent(ADDITION, ROUNDS, GREEDY),
        ),
    ),
    (
        "12_which_algorithm",
        "GRPO with four updates ends {:.1f} points below SFT when sampled, and {:.1f} greedily",
        lambda: (points(RARE, "sft", FOUR), points(RARE, "sft", FOUR, GREEDY)),
    ),
    (
        "12_which_algorithm",
        "ends {:.1f} points above SFT when sampled and {:.1f} below it greedily",
        lambda: (points(ADDITION, FOUR, "sft"), points(ADDITION, "sft", FOUR, GREEDY)),
    ),
    (
        "12_which_algorithm",
        "after GRPO with four updates {:.1f} % of the problems are solved in 16 attempts. On the "
        "rare kinds the methods with a check alone solve at most {:.1f} % in 16 attempts "
        "(rejection sampling in four rounds with 3e-4), SFT {:.1f} %",
        lambda: (
            percent(ADDITION, FOUR, "pass16"),
            percent(OTHER_RATES, SLOW_ROUNDS, "pass16"),
            percent(RARE, "sft", "pass16"),
        ),
    ),
    (
        "12_which_algorithm",
        "still {:.1f} points above GRPO when sampled and {:.1f} greedily on the rare kinds",
        lambda: at_another_rate(SAMPLED_TOKEN, SLOW_GRPO)[::3],
    ),
    (
        "12_which_algorithm",
        "SFT, RLOO and GRPO need {:.0f} to {:.0f} seconds, distillation {:.0f}, and four updates "
        "per batch {:.0f}",
        lambda: [seconds(name) for name in ("sft", "grpo", "distillation", FOUR)],
    ),
    (
        "12_which_algorithm",
        "rejection sampling raises pass@16 by {:.1f} points and GRPO with four updates by {:.1f}. "
        "GRPO's own gain of {:.1f} points is not shown with the race's rate of 3e-4; with 1e-4 it "
        "is {:.1f} points",
        lambda: (
            *[points(RARE, name, "base", "pass16") for name in ("rejection", FOUR, "grpo")],
            percent(OTHER_RATES, SLOW_GRPO, "pass16") - percent(RARE, "base", "pass16"),
        ),
    ),
    (
        "12_which_algorithm",
        "The base solves {:.1f} % of the problems in 16 attempts. One greedy answer is right for "
        "{:.1f} % after GRPO and for {:.1f} % after rejection sampling, but for {:.1f} % after SFT",
        lambda: (
            percent(RARE, "base", "pass16"),
            *[percent(RARE, name, GREEDY) for name in ("grpo", "rejection", "sft")],
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


def test_two_rates_of_chapter_12_were_chosen_by_less_than_half_a_point():
    assert 0 < points_between_tries("grpo", 3e-4, 1e-4) < 0.5
    assert 0 < points_between_tries("rejection, 4 rounds", 1e-3, 3e-4) < 0.5


def test_each_method_of_chapter_12_has_a_worse_rate_on_both_sides_of_its_best_on_addition():
    rates: dict[str, dict[float, float]] = {}
    for name in runs_of("race_results/dev-addition.jsonl"):
        method, rate = name.rsplit(", rate ", 1)
        rates.setdefault(method, {})[float(rate)] = tried(method, float(rate))
    for method, accuracy in rates.items():
        best = max(accuracy, key=accuracy.get)
        assert min(accuracy) < best < max(accuracy), method


def test_with_the_lower_rate_of_grpo_four_differences_keep_their_side():
    for method in ("dpo, 4 rounds", "ppo", "rloo"):
        gaps = (at_another_rate(method, SLOW_GRPO)[0], on_addition(method, SLOW_GRPO)[0])
        assert max(gaps) < 0 if method == "dpo, 4 rounds" else max(map(abs, gaps)) < 3
    assert between_other_rates(SLOW_ROUNDS, SLOW_GRPO)[1] > 0
    assert on_addition(ROUNDS, SLOW_GRPO)[1] > 0


def test_only_with_the_highest_price_every_run_is_below_all_runs_with_lower_ones():
    lower = [f"price {price:g}" for price in (0, 0.5, 1, 2, 3)]
    rates = [extremes(price, SAMPLED, THINKING) for price in lower]
    assert extremes("price 4", SAMPLED, THINKING)[1] < min(low for low, _ in rates)
    assert extremes("price 3", SAMPLED, THINKING)[1] > min(low for low, _ in rates[:-1])
    lengths = {}
    for price in ("price 0.5", "price 1", "price 2", "price 3"):
        lengths[price] = length_and_rate(price)[0]
    assert max(lengths.values()) - min(lengths.values()) < 0.5


def test_on_addition_three_methods_end_greedily_within_a_point_of_grpo_with_the_lower_rate():
    for method in ("rejection", ROUNDS, FOUR):
        assert abs(on_addition(method, SLOW_GRPO)[3]) < 1


def test_two_stages_end_between_grpo_and_sft():
    for file in ("race_results/main.jsonl", STEPS):
        for measure in (SAMPLED, GREEDY):
            stages = [percent(file, name, measure) for name in ("grpo", "sft then grpo", "sft")]
            assert stages == sorted(stages)


def test_no_seed_of_grpo_with_the_lower_rate_fails_on_addition():
    assert extremes(SLOW_GRPO, GREEDY, SECOND_RATE)[0] > 90


def test_with_its_lower_rate_rejection_in_four_rounds_is_above_all_with_a_check_alone():
    alone = set(race.methods_of("rare"))
    alone -= {"sft", "distillation", SAMPLED_TOKEN, "teacher"}
    for measure in (SAMPLED, GREEDY, "pass16"):
        highest = max(percent(RARE, name, measure) for name in alone)
        assert percent(OTHER_RATES, SLOW_ROUNDS, measure) > highest


def test_eight_seeds_find_a_difference_of_half_an_interval_in_half_of_all_races():
    half_width = t.ppf(0.975, 7)  # in standard errors
    found = [1 - nct.cdf(half_width, 7, factor * half_width) for factor in (1, 1.4)]
    assert found == [pytest.approx(0.5, abs=0.05), pytest.approx(0.8, abs=0.02)]


def test_each_method_keeps_its_side_of_the_better_rate_of_grpo():
    on_the_rare_kinds = {ROUNDS: between_other_rates(SLOW_ROUNDS, SLOW_GRPO)[0]}
    for method in ("dpo, 4 rounds", "rejection", FOUR, "sft", "distillation"):
        on_the_rare_kinds[method] = at_another_rate(method, SLOW_GRPO)[0]
    for method, gap in on_the_rare_kinds.items():
        assert gap * on_addition(method, "grpo")[0] > 0
    assert on_addition("ppo", "grpo")[2] < 0
    assert on_addition("rloo", "grpo")[1] < 0 < on_addition("rloo", "grpo")[2]
    assert 0 < at_another_rate("ppo", SLOW_GRPO)[0] < 0.35


def test_on_addition_sft_and_distillation_alone_lead_grpo_with_the_lower_rate_greedily():
    leading = set()
    with_another_rival = {"gspo, 4 updates", "dapo, 4 updates", SAMPLED_TOKEN}
    left_out = {"base", "teacher", "grpo", "random reward"} | with_another_rival
    for method in set(race.methods_of("addition")) - left_out:
        if on_addition(method, SLOW_GRPO)[4] > 0:
            leading.add(method)
    assert leading == {"sft", "distillation"}


def test_sampled_five_differences_change_their_side_on_addition():
    rivals = dict.fromkeys(set(race.methods_of("rare")) - {"base", "teacher", "grpo"}, "grpo")
    rivals |= {"gspo, 4 updates": FOUR, "dapo, 4 updates": FOUR, SAMPLED_TOKEN: "distillation"}
    assert len(rivals) == 12
    changed = set()
    for method, rival in rivals.items():
        if points(RARE, method, rival) * points(ADDITION, method, rival) < 0:
            changed.add(method)
    assert changed == {"ppo", "rloo", "dpo, 4 rounds", "gspo, 4 updates", ROUNDS}


def test_rloo_and_ppo_cannot_be_told_from_grpo_with_the_lower_rate():
    for method in ("rloo", "ppo"):
        _, low, high, _, greedy_low, greedy_high = at_another_rate(method, SLOW_GRPO)
        assert low < 0 < high
        assert greedy_low < 0 < greedy_high


@pytest.mark.parametrize("task", VERDICTS)
def test_chapter_12_calls_a_method_better_or_worse_only_where_both_measures_agree(task):
    by_method: dict[str, dict[int, dict]] = {}
    for method, runs in whole_runs_of(task).items():
        by_method[method] = {run["seed"]: run for run in runs}
    assert {len(by_seed) for by_seed in by_method.values()} == {8}
    sampled = race.differences(by_method)
    greedily = race.differences(by_method, measure=GREEDY)
    if task == RARE:
        assert "p 0.051: " in greedily["rejection"]
        assert "(p = 0.051)" in words_of("12_which_algorithm")
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
