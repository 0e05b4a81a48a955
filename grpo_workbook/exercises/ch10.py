"""The exercises of notebook 10_scale_out."""

from grpo_workbook.exercises import exercise, experiment

_CACHES = [(28, 8, 128, 896, 32), (36, 8, 128, 1, 1), (4, 2, 32, 160, 64)]
exercise("10.1", "kv_cache_bytes",
    [((n, h, d, t, c), 4 * n * h * d * t * c) for n, h, d, t, c in _CACHES], {
    "that is half of it: a token has a key and a value in a layer, of two bytes a number":
        lambda layers, heads, dim, tokens, completions: (
            2 * layers * heads * dim * tokens * completions
        ),
    "that is one completion: all completions of a step are sampled side by side":
        lambda layers, heads, dim, tokens, completions: 4 * layers * heads * dim * tokens,
    "that is one layer: every layer has its own keys and values":
        lambda layers, heads, dim, tokens, completions: 4 * heads * dim * tokens * completions,
})  # fmt: skip


def _nf4(weights):
    return weights * (0.5 + 1 / 64 + 4 / (64 * 256))


exercise("10.2", "nf4_bytes",
    [((weights,), _nf4(weights)) for weights in (64 * 256, 3_633_315_840, 0)], {
    "you left out the scales: half a byte is the weight alone": lambda weights: weights / 2,
    "those are scales of 32 bits: double quantization stores them in 8, and a 32-bit one "
    "for 256 of them": lambda weights: weights * (0.5 + 4 / 64),
    "you left out the second scales: 4 bytes for each 256 blocks of 64":
        lambda weights: weights * (0.5 + 1 / 64),
    "you counted 4 bytes for each weight: it is 4 bits": lambda weights: weights * 4.0,
})  # fmt: skip


def _pieces(norms):
    """By the gradient's norm in pieces. Rounding moves it by far less than 1 in 1,000."""
    (many, whole), (few, pieces) = sorted(dict(norms).items(), reverse=True)
    said = f"The norm is {whole:.5f} with {many} at once and {pieces:.5f} with {few}."
    return "changes" if abs(pieces / whole - 1) > 1e-3 else "stays", said


experiment("10.3", "smaller_pieces", _pieces, {
    "stays": "bnpo divides each piece by its own tokens, and pieces differ in length.",
    "changes": "dapo divides by the tokens of the whole step: pieces change only the time.",
}, [({64: 0.28733, 8: 0.30383}, "changes"), ({64: 0.28733, 8: 0.28733}, "stays")])  # fmt: skip


def _sizes(seconds):
    """By the seconds for 8 times the completions: below x 1.5, in between, or above x 6."""
    (few, short), (many, long) = sorted(dict(seconds).items())
    times = long / short
    said = f"{few} took {short:.2f} s and {many} took {long:.2f} s: x {times:.1f}."
    return "hardly" if times < 1.5 else "below proportion" if times <= 6 else "x 8", said


experiment("10.4", "side_by_side", _sizes, {
    "hardly": "Each completion has arithmetic of its own, which a CPU core does in turn.",
    "below proportion": "One part is paid per token position, one per completion: "
    "here one of them outweighs the other.",
    "x 8": "A token position is one call and one reading of the weights for all completions.",
}, [
    ({8: n, 64: m}, "below proportion") for n, m in ((0.1965, 0.7020), (0.3526, 0.8349))
])  # fmt: skip


def _plans():
    from grpo_workbook.planning import find_shape

    find_shape("qwen3-4b")  # the slow imports, before the time of the check begins
    return [((), "it fits")]


def _judged(function):
    from grpo_workbook.planning import plan, total

    found = plan(**function())
    if found.fits is None:
        raise ValueError("give the GPU's memory, such as gib=14.7")
    if not found.fits:
        return "it does not fit"
    if found.run.prompts_per_step < 4:
        return "fewer than 4 problems in a step"
    return "it fits" if total(found.parts) > found.usable / 2 else "more than half is empty"


exercise("10.5", "my_plan", _plans, {
    "that does not fit: print(plan(**my_plan())) lists what to change, the cheapest first":
        lambda: {"model": "qwen3-8b", "profile": "t4", "load_in_4bit": False},
    "a step has fewer than 4 problems, a noisy gradient: save memory elsewhere first":
        lambda: {"model": "qwen3-4b", "profile": "t4", "batch_size": 8},
    "more than half of the memory stays empty: take a larger model, longer completions "
    "or larger groups": lambda: {"model": "qwen3-0.6b", "profile": "t4"},
}, call=_judged)  # fmt: skip
