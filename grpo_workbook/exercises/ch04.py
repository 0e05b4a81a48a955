"""The exercises of notebook 04_grpo_run."""

from statistics import mean

from grpo_workbook.exercises import Raises, exercise, experiment


def _steps(batch_size, at_once, *whole):
    """Accumulation steps; ValueError unless each of `whole` divides the batch."""
    if any(batch_size % size for size in whole):
        raise ValueError
    return batch_size // at_once


exercise("04.1", "accumulation_steps", [
    ((64, 64, 1, 8), 1), ((64, 8, 1, 8), 8), ((128, 8, 2, 16), 8), ((32, 4, 4, 8), 2),
    ((20, 4, 1, 8), Raises(ValueError)), ((64, 24, 1, 8), Raises(ValueError)),
], {
    "you left out the processes: each of them takes per_device_batch completions at a time":
        lambda size, each, processes, group: size // each,
    "you multiplied by num_generations: TRL counts completions, not prompts, in its batch "
    "sizes": lambda size, each, processes, group: size * group // (each * processes),
    "you rounded down where nothing fits: raise ValueError when the groups or the batches do "
    "not divide evenly": lambda size, each, processes, group: size // (each * processes),
    "you let a broken group through: raise ValueError when num_generations does not divide the "
    "batch": lambda size, each, processes, group: _steps(size, each * processes, each * processes),
})  # fmt: skip


exercise("04.2", "lora_parameters", [
    (([(128, 128)], 16), 4096), (([(128, 128), (128, 64), (256, 128)], 8), 6656),
    (([(2048, 8192)], 32), 327680), (([], 16), 0),
], {
    "you counted the frozen weight W (in x out): count the two thin matrices A and B beside it":
        lambda shapes, rank: sum(i * o for i, o in shapes),
    "you counted only A (rank x in): B is out x rank":
        lambda shapes, rank: sum(rank * i for i, o in shapes),
    "you took B to be as large as A: B has a row for each output, A a column for each input":
        lambda shapes, rank: sum(2 * rank * i for i, o in shapes),
})  # fmt: skip


def _pace(measured):
    """How far the reward rose against the run's: a mean of 5 steps is good to about 10 % of it."""
    start = mean(measured["run"][:2])
    thin, run = (mean(measured[name][-5:]) - start for name in ("rank_1", "run"))
    pace = "as fast" if thin >= 0.8 * run else "slower" if thin > 0.2 * run else "not at all"
    return pace, f"The reward rose by {thin:.2f}, in the chapter's run by {run:.2f}."


experiment("04.3", "rank_one", _pace, {
    "as fast": "One product B A in place of 16, each moved by the same rate, changes a layer less.",
    "slower": "What counts is how far the layers move: compare r, lora_alpha / r and the rate.",
    "not at all": "A rank of 1 can still say 'more of this': RL gets little information a step.",
}, [({"rank_1": [1.4] * 10 + [1.79] * 5, "run": [1.4] * 10 + [2.77] * 5}, "slower")])  # fmt: skip
# measured: rewards that rose by 0.39 and 1.37 (their means here, not each step)


def _gain(measured):
    from grpo_workbook.statistics import paired_p_value  # SciPy: only when it is needed

    before, after = measured["before"], measured["after"]
    better = sum(after) - sum(before)
    p = paired_p_value(before, after)
    right = "no difference" if p >= 0.05 else "more" if better > 0 else "fewer"
    return right, f"{sum(before)} of {len(before)} before, {sum(after)} after, p = {p:.2g}."


experiment("04.4", "my_problems", _gain, {
    "more": "The form carries over, but an answer counts only with the right number in it.",
    "fewer": "Training moved the form; it did not cost the arithmetic that these problems need.",
    "no difference": "The form was learned for every problem, and it shows where sums are right.",
}, [({"before": [0] * 32, "after": [0] * 32}, "no difference")])  # fmt: skip
