"""The exercises of notebook 10_scale_out."""

from math import gcd

from grpo_workbook.exercises import Raises, exercise

NOTEBOOK = "10_scale_out"


def _lcm(a, b):
    return a * b // gcd(a, b)


exercise(
    "10.1",
    "smallest_batch",
    NOTEBOOK,
    [
        ((8, 1, 8), 8),
        ((4, 2, 8), 8),
        ((4, 3, 8), 24),
        ((6, 2, 8), 24),
        ((1, 1, 5), 5),
        ((16, 4, 8), 64),
    ],
    [
        (
            lambda per_device, processes, group: per_device * processes * group,
            "you multiplied all three: both conditions hold much earlier, at the least common multiple",
        ),
        (
            lambda per_device, processes, group: _lcm(per_device, group),
            "you left out the processes: each of them takes per_device completions at once",
        ),
        (
            lambda per_device, processes, group: max(per_device * processes, group),
            "you took the larger of the two: it need not be a multiple of the other, as 24 for 4 x 3 and groups of 8",
        ),
    ],
)

exercise(
    "10.2",
    "kv_cache_bytes",
    NOTEBOOK,
    [
        ((28, 8, 128, 896, 32), 2 * 28 * 8 * 128 * 896 * 32 * 2),
        ((36, 8, 128, 1, 1), 147_456),
        ((4, 2, 32, 160, 64), 2 * 4 * 2 * 32 * 160 * 64 * 2),
    ],
    [
        (
            lambda layers, kv_heads, head_dim, tokens, completions: (
                2 * layers * kv_heads * head_dim * tokens * completions
            ),
            "that is half of it: each token has a key and a value in a layer, and each number takes two bytes",
        ),
        (
            lambda layers, kv_heads, head_dim, tokens, completions: (
                2 * layers * kv_heads * head_dim * tokens * 2
            ),
            "that is one completion: all completions of a step are written side by side",
        ),
        (
            lambda layers, kv_heads, head_dim, tokens, completions: (
                2 * kv_heads * head_dim * tokens * completions * 2
            ),
            "that is one layer: every layer keeps keys and values of its own",
        ),
    ],
)


def _not_refused(batch, group, processes):
    return batch // processes, batch // group


def _shared(batch, group, processes):
    if batch % processes or batch % group:
        raise ValueError("not whole")
    return batch // processes, batch // group


def _whole_groups_each(batch, group, processes):
    if batch % (group * processes):
        raise ValueError("no whole groups")
    return batch // processes, batch // group


exercise(
    "10.3",
    "share_of_each",
    NOTEBOOK,
    lambda: [
        *((given, _shared(*given)) for given in ((64, 8, 2), (64, 8, 1), (96, 8, 4), (64, 8, 16))),
        *((given, Raises(ValueError)) for given in ((64, 8, 3), (60, 8, 2), (40, 8, 16))),
    ],
    [
        (_not_refused, "you shared out what does not divide evenly: raise ValueError there"),
        (
            _whole_groups_each,
            "you asked for whole groups in each process: rewards are gathered first, so a group may lie on several",
        ),
        (
            lambda batch, group, processes: (
                _shared(batch, group, processes)[0],
                batch // processes // group,
            ),
            "you counted the problems of one process: a group may lie on several, so count those of the step",
        ),
        (
            lambda batch, group, processes: (
                _shared(batch, group, processes)[1] * group,
                batch // group,
            ),
            "that is the whole step: the processes share its completions",
        ),
    ],
)

exercise(
    "10.4",
    "nf4_bytes",
    NOTEBOOK,
    [
        ((64 * 256,), 8192 + 256 + 4.0),
        ((3_633_315_840,), 3_633_315_840 * (0.5 + 1 / 64 + 4 / 16384)),
        ((0,), 0.0),
    ],
    [
        (lambda weights: weights / 2, "you left out the scales: half a byte is the weight alone"),
        (
            lambda weights: weights * (0.5 + 4 / 64),
            "those are scales of 32 bits: double quantization stores them in 8 bits, and a 32-bit one for 256 of them",
        ),
        (
            lambda weights: weights * (0.5 + 1 / 64),
            "you left out the second scales: 4 bytes for each 256 blocks of 64",
        ),
        (
            lambda weights: weights * 4.0,
            "you counted 4 bytes for each weight: it is 4 bits, half a byte",
        ),
    ],
)


def _largest(memory, needed):
    fitting = [name for name in needed if needed[name] <= 0.92 * memory]
    return max(fitting, key=lambda name: needed[name], default=None)


_NEEDED = {"qwen3-1.7b": 6.4, "qwen3-0.6b": 5.8, "qwen3-8b": 14.2, "qwen3-4b": 9.1}

exercise(
    "10.5",
    "largest_that_fits",
    NOTEBOOK,
    [
        ((14.7, _NEEDED), "qwen3-4b"),
        ((22.1, _NEEDED), "qwen3-8b"),
        ((6.9, _NEEDED), "qwen3-0.6b"),
        ((4.0, _NEEDED), None),
        ((10.0, {}), None),
    ],
    [
        (
            lambda memory, needed: max(
                (n for n in needed if needed[n] <= memory), key=lambda n: needed[n], default=None
            ),
            "you used all of the memory: 8 % of it is lost between blocks, so 14.2 GiB do not fit into 14.7",
        ),
        (
            lambda memory, needed: min(
                (n for n in needed if needed[n] <= 0.92 * memory),
                key=lambda n: needed[n],
                default=None,
            ),
            "you took the smallest that fits: the largest one knows most",
        ),
        (
            lambda memory, needed: max(
                (n for n in needed if needed[n] <= 0.92 * memory), key=lambda n: needed[n]
            ),
            "you raise an error where nothing fits: give None",
        ),
        (
            lambda memory, needed: next((n for n in needed if needed[n] <= 0.92 * memory), None),
            "you took the first that fits: the models are in no order",
        ),
    ],
)
