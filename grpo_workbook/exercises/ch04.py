"""The exercises of notebook 04_grpo_run."""

from statistics import mean

from grpo_workbook.exercises.tasks import exercise, experiment

# 04.1: how many backward passes one step takes

accumulation_steps = exercise("04.1", "accumulation_steps")
# the arguments: batch_size, per_device_batch, processes, num_generations
accumulation_steps.case(64, 64, 1, 8, gives=1)
accumulation_steps.case(64, 8, 1, 8, gives=8)
accumulation_steps.case(128, 8, 2, 16, gives=8)
accumulation_steps.case(32, 4, 4, 8, gives=2)
accumulation_steps.case(20, 4, 1, 8, raises=ValueError)  # the last group is not whole
accumulation_steps.case(64, 24, 1, 8, raises=ValueError)  # the last backward pass is not full


@accumulation_steps.mistake
def leaves_out_the_processes(batch_size, per_device_batch, processes, num_generations):
    """You left out the processes: each of them takes per_device_batch completions at a time."""
    return batch_size // per_device_batch


@accumulation_steps.mistake
def counts_prompts(batch_size, per_device_batch, processes, num_generations):
    """You multiplied by num_generations: TRL counts completions, not prompts, in its batch
    sizes.
    """
    return batch_size * num_generations // (per_device_batch * processes)


@accumulation_steps.mistake
def rounds_down(batch_size, per_device_batch, processes, num_generations):
    """You rounded down where nothing fits: raise ValueError when the groups or the batches do not
    divide evenly.
    """
    return batch_size // (per_device_batch * processes)


@accumulation_steps.mistake
def lets_a_broken_group_through(batch_size, per_device_batch, processes, num_generations):
    """You let a broken group through: raise ValueError when num_generations does not divide the
    batch.
    """
    at_once = per_device_batch * processes
    if batch_size % at_once != 0:
        raise ValueError(f"{batch_size} is no multiple of {at_once}")
    return batch_size // at_once


# 04.2: how many numbers a LoRA adapter trains

lora_parameters = exercise("04.2", "lora_parameters")
lora_parameters.case([(128, 128)], 16, gives=4096)
lora_parameters.case([(128, 128), (128, 64), (256, 128)], 8, gives=6656)
# an MLP layer: B is four times as large as A
lora_parameters.case([(2048, 8192)], 32, gives=327680)
lora_parameters.case([], 16, gives=0)


@lora_parameters.mistake
def counts_the_frozen_weight(shapes, rank):
    """You counted the frozen weight W (in x out): count the two thin matrices A and B beside it."""
    return sum(inputs * outputs for inputs, outputs in shapes)


@lora_parameters.mistake
def counts_only_a(shapes, rank):
    """You counted only A (rank x in): B is out x rank."""
    return sum(rank * inputs for inputs, _ in shapes)


@lora_parameters.mistake
def takes_b_to_be_as_large_as_a(shapes, rank):
    """You took B to be as large as A: B has a row for each output, A a column for each input."""
    return sum(2 * rank * inputs for inputs, _ in shapes)


# 04.3: an adapter of rank 1


def read_rank_one(measured):
    """From each step's reward: the mean of the last 5 steps is good to about 10 % of the rise."""
    start = mean(measured["run"][:2])
    thin = mean(measured["rank_1"][-5:]) - start
    run = mean(measured["run"][-5:]) - start
    sentence = f"The reward rose by {thin:.2f}, in the chapter's run by {run:.2f}."
    if thin >= 0.8 * run:
        return "as fast", sentence
    if thin > 0.2 * run:
        return "slower", sentence
    return "not at all", sentence


rank_one = experiment(
    "04.3",
    "rank_one",
    read=read_rank_one,
    wrong={
        "as fast": (
            "One product B A in place of 16, each moved by the same rate, changes a layer less."
        ),
        "slower": (
            "What counts is how far the layers move: compare r, lora_alpha / r and the rate."
        ),
        "not at all": (
            "A rank of 1 can still say 'more of this': RL gets little information a step."
        ),
    },
)
# measured: rewards that rose by 0.39 and 1.37 (their means here, not each step)
THIN_REWARDS = [1.4] * 10 + [1.79] * 5
RUN_REWARDS = [1.4] * 10 + [2.77] * 5
rank_one.example({"rank_1": THIN_REWARDS, "run": RUN_REWARDS}, gives="slower")

# 04.4: problems of the learner's own, before and after


def read_my_problems(measured):
    """From what was right of the same problems before and after, by a paired test."""
    from grpo_workbook.statistics import paired_p_value  # SciPy: only when it is needed

    before = measured["before"]
    after = measured["after"]
    p = paired_p_value(before, after)
    sentence = f"{sum(before)} of {len(before)} before, {sum(after)} after, p = {p:.2g}."
    if p >= 0.05:
        return "no difference", sentence
    if sum(after) > sum(before):
        return "more", sentence
    return "fewer", sentence


my_problems = experiment(
    "04.4",
    "my_problems",
    read=read_my_problems,
    wrong={
        "more": "The form carries over, but an answer counts only with the right number in it.",
        "fewer": (
            "Training moved the form; it did not cost the arithmetic that these problems need."
        ),
        "no difference": (
            "The form was learned for every problem, and it shows where sums are right."
        ),
    },
)
my_problems.example({"before": [0] * 32, "after": [0] * 32}, gives="no difference")
