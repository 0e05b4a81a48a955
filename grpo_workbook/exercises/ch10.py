"""The exercises of notebook 10_scale_out."""

from grpo_workbook.exercises.tasks import exercise, experiment

# 10.1: the memory of the key-value cache


def correct_kv_cache_bytes(layers, kv_heads, head_dim, tokens, completions):
    """The solution."""
    numbers = 2 * layers * kv_heads * head_dim * tokens * completions  # keys and values
    return 2 * numbers  # two bytes each


# the arguments: layers, kv_heads, head_dim, tokens, completions
kv_cache_bytes = exercise("10.1", "kv_cache_bytes", solution=correct_kv_cache_bytes)
kv_cache_bytes.case(28, 8, 128, 896, 32)
kv_cache_bytes.case(36, 8, 128, 1, 1)  # one token of Qwen3-4B
kv_cache_bytes.case(4, 2, 32, 160, 64)


@kv_cache_bytes.mistake
def takes_half_of_it(layers, kv_heads, head_dim, tokens, completions):
    """You have half of it: in each layer a token has a key and a value, and each of their numbers
    takes two bytes.
    """
    return 2 * layers * kv_heads * head_dim * tokens * completions


@kv_cache_bytes.mistake
def takes_one_completion(layers, kv_heads, head_dim, tokens, completions):
    """You counted one completion: all completions of a step are sampled side by side."""
    return 4 * layers * kv_heads * head_dim * tokens


@kv_cache_bytes.mistake
def takes_one_layer(layers, kv_heads, head_dim, tokens, completions):
    """You counted one layer: every layer has its own keys and values."""
    return 4 * kv_heads * head_dim * tokens * completions


# 10.2: the memory of weights in 4 bits


def correct_nf4_bytes(weights):
    """The solution."""
    scales = 1 / 64  # a byte for each block of 64
    second_scales = 4 / (64 * 256)  # 4 bytes for each 256 blocks
    return weights * (0.5 + scales + second_scales)


nf4_bytes = exercise("10.2", "nf4_bytes", solution=correct_nf4_bytes)
nf4_bytes.case(64 * 256)
nf4_bytes.case(3_633_315_840)
nf4_bytes.case(0)


@nf4_bytes.mistake
def leaves_out_the_scales(weights):
    """You left out the scales: half a byte is the size of the weight alone."""
    return weights / 2


@nf4_bytes.mistake
def takes_scales_of_32_bits(weights):
    """You took scales of 32 bits: double quantization stores each scale in 8 bits, and one number
    of 32 bits for every 256 scales.
    """
    return weights * (0.5 + 4 / 64)


@nf4_bytes.mistake
def leaves_out_the_second_scales(weights):
    """You left out the second scales: there are 4 bytes for every 256 blocks of 64 weights."""
    return weights * (0.5 + 1 / 64)


@nf4_bytes.mistake
def takes_4_bytes(weights):
    """You counted 4 bytes for each weight: it is 4 bits."""
    return weights * 4.0


# 10.3: a step in smaller pieces


def read_pieces(norms):
    """From the gradient's norm by the completions at once; rounding moves it far below 0.1 %."""
    (few, pieces), (many, whole) = sorted(dict(norms).items())
    sentence = f"The norm is {whole:.5f} with {many} at once and {pieces:.5f} with {few}."
    if abs(pieces / whole - 1) > 1e-3:
        return "changes", sentence
    return "stays", sentence


smaller_pieces = experiment(
    "10.3",
    "smaller_pieces",
    read=read_pieces,
    wrong={
        "stays": "bnpo divides each piece by its own tokens, and pieces differ in length.",
        "changes": "dapo divides by the tokens of the whole step: pieces change only the time.",
    },
)
smaller_pieces.example({64: 0.28733, 8: 0.30383}, gives="changes")
smaller_pieces.example({64: 0.28733, 8: 0.28733}, gives="stays")

# 10.4: completions side by side


def read_seconds(seconds):
    """From the seconds for a few completions and for 8 times as many."""
    (few, short), (many, long) = sorted(dict(seconds).items())
    times = long / short
    sentence = f"{few} took {short:.2f} s and {many} took {long:.2f} s: x {times:.1f}."
    if times < 1.5:
        return "hardly", sentence
    if times <= 6:
        return "below proportion", sentence
    return "x 8", sentence


side_by_side = experiment(
    "10.4",
    "side_by_side",
    read=read_seconds,
    wrong={
        "hardly": "Each completion has arithmetic of its own, which a CPU core does in turn.",
        "below proportion": (
            "A part of the time is paid for each token position, and a part for each completion: "
            "here one of them outweighs the other."
        ),
        "x 8": "A token position is one call and one reading of the weights for all completions.",
    },
)
side_by_side.example({8: 0.1965, 64: 0.7020}, gives="below proportion")
side_by_side.example({8: 0.3526, 64: 0.8349}, gives="below proportion")

# 10.5: a plan for a GPU of the learner's own


def judge_plan(function):
    """What is wrong with the learner's plan, or that it fits."""
    from grpo_workbook.planning import plan

    result = plan(**function())
    if result.fits is None:
        raise ValueError("give the GPU's memory, such as gib=14.7")
    if not result.fits:
        return "it does not fit"
    if result.settings.prompts_per_step < 4:
        return "fewer than 4 problems in a step"
    if result.peak > result.usable / 2:
        return "it fits"
    return "more than half is empty"


my_plan = exercise("10.5", "my_plan", call=judge_plan)
my_plan.case(gives="it fits")


@my_plan.mistake
def does_not_fit():
    """Your plan does not fit: print(plan(**my_plan())) lists what to change, the cheapest first."""
    return {"model": "qwen3-8b", "profile": "t4", "load_in_4bit": False}


@my_plan.mistake
def has_too_few_problems():
    """A step has fewer than 4 problems, so its gradient is noisy: save memory elsewhere first."""
    return {"model": "qwen3-4b", "profile": "t4", "gradient_accumulation_steps": 1}


@my_plan.mistake
def leaves_half_empty():
    """More than half of the memory stays empty: take a larger model, longer completions or larger
    groups.
    """
    return {"model": "qwen3-0.6b", "profile": "t4"}
