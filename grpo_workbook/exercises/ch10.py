"""The exercises of notebook 10_scale_out."""

from math import lcm

from grpo_workbook.exercises import Raises, exercise

NOTEBOOK = "10_scale_out"

_BATCHES = [(8, 1, 8), (4, 2, 8), (4, 3, 8), (6, 2, 8), (1, 1, 5), (16, 4, 8)]
exercise(
    "10.1",
    "smallest_batch",
    NOTEBOOK,
    [(given, lcm(given[0] * given[1], given[2])) for given in _BATCHES],
    [
        (
            lambda per_device, processes, group: per_device * processes * group,
            "you multiplied all three: both conditions hold at the least common multiple",
        ),
        (
            lambda per_device, processes, group: lcm(per_device, group),
            "you left out the processes: each of them takes per_device completions at once",
        ),
        (
            lambda per_device, processes, group: max(per_device * processes, group),
            "you took the larger of the two: it need not be a multiple of the other (24 for 4 x 3 "
            "and groups of 8)",
        ),
    ],
)

_CACHES = [(28, 8, 128, 896, 32), (36, 8, 128, 1, 1), (4, 2, 32, 160, 64)]
exercise(
    "10.2",
    "kv_cache_bytes",
    NOTEBOOK,
    [((n, h, d, t, c), 4 * n * h * d * t * c) for n, h, d, t, c in _CACHES],
    [
        (
            lambda layers, heads, dim, tokens, completions: (
                2 * layers * heads * dim * tokens * completions
            ),
            "that is half of it: a token has a key and a value in a layer, of two bytes a number",
        ),
        (
            lambda layers, heads, dim, tokens, completions: 4 * layers * heads * dim * tokens,
            "that is one completion: all completions of a step are written side by side",
        ),
        (
            lambda layers, heads, dim, tokens, completions: 4 * heads * dim * tokens * completions,
            "that is one layer: every layer keeps keys and values of its own",
        ),
    ],
)


def _divided(batch, group, processes, whole=1):
    if batch % (processes * whole) or batch % group:
        raise ValueError("not whole")
    return batch // processes, batch // group


exercise(
    "10.3",
    "completions_each",
    NOTEBOOK,
    [
        *((given, _divided(*given)) for given in ((64, 8, 2), (64, 8, 1), (96, 8, 4), (64, 8, 16))),
        *((given, Raises(ValueError)) for given in ((64, 8, 3), (60, 8, 2), (40, 8, 16))),
    ],
    [
        (
            lambda batch, group, processes: (batch // processes, batch // group),
            "you divided what does not come out even: raise ValueError there",
        ),
        (
            lambda batch, group, processes: _divided(batch, group, processes, group),
            "you asked for whole groups in each process: rewards are gathered first, so a group "
            "may lie on several",
        ),
        (
            lambda batch, group, processes: (
                _divided(batch, group, processes)[0],
                batch // processes // group,
            ),
            "you counted the problems of one process: count those of the step",
        ),
        (
            lambda batch, group, processes: (
                _divided(batch, group, processes)[1] * group,
                batch // group,
            ),
            "that is the whole step: the processes divide its completions",
        ),
    ],
)


def _nf4(weights):
    return weights * (0.5 + 1 / 64 + 4 / (64 * 256))


exercise(
    "10.4",
    "nf4_bytes",
    NOTEBOOK,
    [((weights,), _nf4(weights)) for weights in (64 * 256, 3_633_315_840, 0)],
    [
        (lambda weights: weights / 2, "you left out the scales: half a byte is the weight alone"),
        (
            lambda weights: weights * (0.5 + 4 / 64),
            "those are scales of 32 bits: double quantization stores them in 8, and a 32-bit one "
            "for 256 of them",
        ),
        (
            lambda weights: weights * (0.5 + 1 / 64),
            "you left out the second scales: 4 bytes for each 256 blocks of 64",
        ),
        (lambda weights: weights * 4.0, "you counted 4 bytes for each weight: it is 4 bits"),
    ],
)


def _largest(memory, needed, usable=0.92):
    fitting = [name for name in needed if needed[name] <= usable * memory]
    return max(fitting, key=lambda name: needed[name], default=None)


_NEEDED = {"qwen3-1.7b": 6.4, "qwen3-0.6b": 5.8, "qwen3-8b": 14.2, "qwen3-4b": 9.1}
exercise(
    "10.5",
    "largest_that_fits",
    NOTEBOOK,
    [
        *[((gib, _NEEDED), _largest(gib, _NEEDED)) for gib in (14.7, 22.1, 6.9, 4.0)],
        ((10.0, {}), None),
    ],
    [
        (
            lambda memory, needed: _largest(memory, needed, 1.0),
            "you used all of the memory: 8 % of it is lost between blocks",
        ),
        (
            lambda memory, needed: min(
                (n for n in needed if needed[n] <= 0.92 * memory), key=needed.get, default=None
            ),
            "you took the smallest that fits: the largest one knows most",
        ),
        (
            lambda memory, needed: max(
                (n for n in needed if needed[n] <= 0.92 * memory), key=needed.get
            ),
            "you raise an error where nothing fits: give None",
        ),
        (
            lambda memory, needed: next((n for n in needed if needed[n] <= 0.92 * memory), None),
            "you took the first that fits: the models are in no order",
        ),
    ],
)
