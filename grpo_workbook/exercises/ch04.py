"""The exercises of notebook 04_grpo_run."""

from grpo_workbook.exercises import Raises, exercise

NOTEBOOK = "04_grpo_run"


def _forgot_processes(batch_size, per_device_batch, processes, num_generations):
    return batch_size // per_device_batch


def _counted_prompts(batch_size, per_device_batch, processes, num_generations):
    return batch_size * num_generations // (per_device_batch * processes)


def _no_error(batch_size, per_device_batch, processes, num_generations):
    return batch_size // (per_device_batch * processes)


def _no_group_error(batch_size, per_device_batch, processes, num_generations):
    if batch_size % (per_device_batch * processes):
        raise ValueError
    return batch_size // (per_device_batch * processes)


def _whole_groups_at_once(batch_size, per_device_batch, processes, num_generations):
    at_once = per_device_batch * processes
    if at_once % num_generations or batch_size % at_once:
        raise ValueError
    return batch_size // at_once


exercise(
    "04.1",
    "accumulation_steps",
    NOTEBOOK,
    [
        ((64, 64, 1, 8), 1),
        ((64, 8, 1, 8), 8),
        ((128, 8, 2, 16), 8),
        ((32, 4, 4, 8), 2),
        ((64, 4, 1, 8), 16),
        ((20, 4, 1, 8), Raises(ValueError)),
        ((64, 24, 1, 8), Raises(ValueError)),
    ],
    [
        (
            _forgot_processes,
            "you left out the processes: each of them takes per_device_batch completions at a time",
        ),
        (
            _counted_prompts,
            "you multiplied by num_generations: TRL counts completions, not prompts, in its batch sizes",
        ),
        (
            lambda batch_size, per_device_batch, processes, num_generations: (
                batch_size / (per_device_batch * processes)
            ),
            "you gave a float: accumulation steps are counted, so divide with // and raise ValueError for a rest",
        ),
        (
            _whole_groups_at_once,
            "you wanted whole groups in what is taken at a time: they must be whole in the optimizer step's batch only",
        ),
        (
            _no_error,
            "you rounded down where nothing fits: raise ValueError when the groups or the batches do not come "
            "out whole",
        ),
        (
            _no_group_error,
            "you let a broken group through: raise ValueError when num_generations does not divide the batch",
        ),
    ],
)


exercise(
    "04.2",
    "lora_parameters",
    NOTEBOOK,
    [
        (([(128, 128)], 16), 4096),
        (([(128, 128), (128, 64), (256, 128)], 8), 6656),
        (([(2048, 8192)], 32), 327680),
        (([], 16), 0),
    ],
    [
        (
            lambda shapes, rank: sum(i * o for i, o in shapes),
            "you counted the frozen weight W (in x out): count the two thin matrices A and B beside it",
        ),
        (
            lambda shapes, rank: sum(rank * i for i, o in shapes),
            "you counted only A (rank x in): B is out x rank",
        ),
        (
            lambda shapes, rank: sum(rank * o for i, o in shapes),
            "you counted only B (out x rank): A is rank x in",
        ),
        (
            lambda shapes, rank: sum(2 * rank * i for i, o in shapes),
            "you took B to be as large as A: B has a row for each output, A a column for each input",
        ),
    ],
)


def _all_right(before, after):
    return sum(after), sum(before)


exercise(
    "04.3",
    "changed_outcomes",
    NOTEBOOK,
    [
        (([False, False, True, True], [True, False, True, False]), (1, 1)),
        (([False, False, False], [True, True, False]), (2, 0)),
        (([True, True], [True, True]), (0, 0)),
        (([True, False, True], [False, False, False]), (0, 2)),
        (([True, False], [True]), Raises(ValueError)),
    ],
    [
        (
            _all_right,
            "you counted every right answer: only problems whose outcome changed say anything about training",
        ),
        (
            lambda before, after: (
                sum(b and not a for b, a in zip(before, after, strict=True)),
                sum(a and not b for b, a in zip(before, after, strict=True)),
            ),
            "you have better and worse the wrong way round: better is wrong before and right after",
        ),
        (
            lambda before, after: (
                sum(a and not b for b, a in zip(before, after, strict=False)),
                sum(b and not a for b, a in zip(before, after, strict=False)),
            ),
            "your zip drops the rest when the lists differ in length: use zip(before, after, strict=True)",
        ),
    ],
)
