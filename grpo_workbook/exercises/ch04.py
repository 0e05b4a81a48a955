"""The exercises of notebook 04_grpo_run."""

from grpo_workbook.exercises import Raises, exercise

NOTEBOOK = "04_grpo_run"


def _steps(batch_size, at_once, *whole):
    """Accumulation steps; ValueError unless each of `whole` divides the batch."""
    if any(batch_size % size for size in whole):
        raise ValueError
    return batch_size // at_once


def _whole_groups_at_once(batch_size, per_device_batch, processes, num_generations):
    at_once = per_device_batch * processes
    if at_once % num_generations:
        raise ValueError
    return _steps(batch_size, at_once, at_once)


exercise(
    "04.1",
    "accumulation_steps",
    NOTEBOOK,
    [
        ((64, 64, 1, 8), 1), ((64, 8, 1, 8), 8), ((128, 8, 2, 16), 8), ((32, 4, 4, 8), 2),
        ((64, 4, 1, 8), 16), ((20, 4, 1, 8), Raises(ValueError)),
        ((64, 24, 1, 8), Raises(ValueError)),
    ],
    {
        "you left out the processes: each of them takes per_device_batch completions at a time":
            lambda size, each, processes, group: size // each,
        "you multiplied by num_generations: TRL counts completions, not prompts, in its batch "
        "sizes":
            lambda size, each, processes, group: size * group // (each * processes),
        "you gave a float: accumulation steps are counted, so divide with // and raise ValueError "
        "for a rest": lambda size, each, processes, group: size / (each * processes),
        "you wanted whole groups in what is taken at a time: they must be whole in the optimizer "
        "step's batch only": _whole_groups_at_once,
        "you rounded down where nothing fits: raise ValueError when the groups or the batches do "
        "not come out whole": lambda size, each, processes, group: size // (each * processes),
        "you let a broken group through: raise ValueError when num_generations does not divide the "
        "batch":
            lambda size, each, processes, group: _steps(size, each * processes, each * processes),
    },
)  # fmt: skip


exercise(
    "04.2",
    "lora_parameters",
    NOTEBOOK,
    [
        (([(128, 128)], 16), 4096), (([(128, 128), (128, 64), (256, 128)], 8), 6656),
        (([(2048, 8192)], 32), 327680), (([], 16), 0),
    ],
    {
        "you counted the frozen weight W (in x out): count the two thin matrices A and B beside it":
            lambda shapes, rank: sum(i * o for i, o in shapes),
        "you counted only A (rank x in): B is out x rank":
            lambda shapes, rank: sum(rank * i for i, o in shapes),
        "you counted only B (out x rank): A is rank x in":
            lambda shapes, rank: sum(rank * o for i, o in shapes),
        "you took B to be as large as A: B has a row for each output, A a column for each input":
            lambda shapes, rank: sum(2 * rank * i for i, o in shapes),
    },
)  # fmt: skip


def _changed(before, after, strict=True):
    pairs = list(zip(before, after, strict=strict))
    return sum(a and not b for b, a in pairs), sum(b and not a for b, a in pairs)


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
    {
        "you counted every right answer: only problems whose outcome changed say anything about "
        "training": lambda before, after: (sum(after), sum(before)),
        "you have better and worse the wrong way round: better is wrong before and right after":
            lambda before, after: _changed(before, after)[::-1],
        "your zip drops the rest when the lists differ in length: use zip(before, after, "
        "strict=True)":
            lambda before, after: _changed(before, after, strict=False),
    },
)  # fmt: skip
