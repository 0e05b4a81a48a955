"""The exercises of notebook 10_scale_out."""

from grpo_workbook.exercises.tasks import exercise, experiment

# 10.1: the completions whose cache fits


def bytes_of_completion(layers, kv_heads, head_dim, tokens):
    """The key-value cache of one completion in 16 bits."""
    numbers = 2 * layers * kv_heads * head_dim * tokens  # keys and values
    return 2 * numbers  # two bytes each


def correct_largest_step(free, layers, kv_heads, head_dim, tokens, group):
    """The solution."""
    group_bytes = group * bytes_of_completion(layers, kv_heads, head_dim, tokens)
    return free // group_bytes * group


GIB = 2**30
# the arguments: free, layers, kv_heads, head_dim, tokens, group
largest_step = exercise("10.1", "largest_step", solution=correct_largest_step)
largest_step.case(9 * GIB, 36, 8, 128, 896, 8)  # Qwen3-4B
largest_step.case(15 * GIB, 28, 8, 128, 1536, 16)  # Qwen3-1.7B
largest_step.case(GIB, 36, 8, 128, 1024, 8)  # seven completions would fit, but no group
TWO_GROUPS = 16 * bytes_of_completion(36, 8, 128, 1024)
largest_step.case(TWO_GROUPS, 36, 8, 128, 1024, 8, gives=16)
largest_step.case(TWO_GROUPS - 1, 36, 8, 128, 1024, 8, gives=8)


@largest_step.mistake
def forgets_the_values(free, layers, kv_heads, head_dim, tokens, group):
    """You have twice too many: in each layer a token has a key and a value, and each of their
    numbers takes two bytes.
    """
    group_bytes = group * bytes_of_completion(layers, kv_heads, head_dim, tokens) // 2
    return free // group_bytes * group


@largest_step.mistake
def takes_one_layer(free, layers, kv_heads, head_dim, tokens, group):
    """You counted one layer: every layer has its own keys and values."""
    group_bytes = group * bytes_of_completion(1, kv_heads, head_dim, tokens)
    return free // group_bytes * group


@largest_step.mistake
def takes_32_bits(free, layers, kv_heads, head_dim, tokens, group):
    """You have half as many as fit: in 16 bits a number takes two bytes, not four."""
    group_bytes = group * bytes_of_completion(layers, kv_heads, head_dim, tokens) * 2
    return free // group_bytes * group


@largest_step.mistake
def takes_one_head(free, layers, kv_heads, head_dim, tokens, group):
    """You counted one head: each of the `kv_heads` heads has its own key and value."""
    group_bytes = group * bytes_of_completion(layers, 1, head_dim, tokens)
    return free // group_bytes * group


@largest_step.mistake
def takes_at_least_one_group(free, layers, kv_heads, head_dim, tokens, group):
    """You returned a group although not even one fits: then the answer is 0."""
    return max(group, correct_largest_step(free, layers, kv_heads, head_dim, tokens, group))


@largest_step.mistake
def shares_the_cache_in_a_group(free, layers, kv_heads, head_dim, tokens, group):
    """You counted a group as one completion: each of its completions has a cache of its own."""
    return free // bytes_of_completion(layers, kv_heads, head_dim, tokens) * group


@largest_step.mistake
def leaves_a_group_incomplete(free, layers, kv_heads, head_dim, tokens, group):
    """You left the last group incomplete, which TRL refuses: round down to whole groups."""
    return free // bytes_of_completion(layers, kv_heads, head_dim, tokens)


@largest_step.mistake
def counts_groups(free, layers, kv_heads, head_dim, tokens, group):
    """You returned the number of groups: multiply by the completions of a group."""
    return correct_largest_step(free, layers, kv_heads, head_dim, tokens, group) // group


# 10.2: whether the base model has to be in 4 bits

NF4_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)  # a weight, its part of a scale and of a second scale


def base_that_fits(in_16_bits, in_4_bits, usable):
    """The word for what fits, from the GiB that the run takes with each base."""
    if in_16_bits <= usable:
        return "16 bits"
    if in_4_bits <= usable:
        return "4 bits"
    return "neither"


def correct_choose_base(linear_weights, other_weights, rest, usable):
    """The solution."""
    in_16_bits = 2 * (linear_weights + other_weights) / GIB
    in_4_bits = (NF4_BYTES * linear_weights + 2 * other_weights) / GIB
    return base_that_fits(in_16_bits + rest, in_4_bits + rest, usable)


choose_base = exercise("10.2", "choose_base", solution=correct_choose_base)
choose_base.case(3_633_315_840, 389_152_768, 6.63, 13.52, gives="4 bits")  # Qwen3-4B, T4
choose_base.case(GIB, 0, 1.0, 3.1, gives="16 bits")  # 2 GiB of weights
choose_base.case(GIB, 0, 1.0, 2.5, gives="4 bits")
choose_base.case(GIB, 0, 1.0, 1.52, gives="4 bits")  # 0.516 GiB of weights
choose_base.case(GIB, 0, 1.0, 1.51, gives="neither")
choose_base.case(GIB, 0, 1.0, 1.5157, gives="neither")  # only the shared scales are too much
choose_base.case(GIB, GIB // 2, 1.0, 2.1, gives="neither")  # 1 GiB of embeddings
choose_base.case(GIB, GIB // 2, 1.0, 2.7, gives="4 bits")


@choose_base.mistake
def keeps_the_embeddings_in_32_bits(linear_weights, other_weights, rest, usable):
    """You took four bytes for the weights that are not quantized: they stay in 16 bits."""
    in_16_bits = 2 * (linear_weights + other_weights) / GIB
    in_4_bits = (NF4_BYTES * linear_weights + 4 * other_weights) / GIB
    return base_that_fits(in_16_bits + rest, in_4_bits + rest, usable)


@choose_base.mistake
def forgets_the_rest(linear_weights, other_weights, rest, usable):
    """You compared the weights alone: the run also needs the rest."""
    return correct_choose_base(linear_weights, other_weights, 0.0, usable)


@choose_base.mistake
def counts_in_gigabytes(linear_weights, other_weights, rest, usable):
    """You divided by 10 to the power of 9: a GiB has 2 to the power of 30 bytes, 7 % more."""
    in_16_bits = 2 * (linear_weights + other_weights) / 1e9
    in_4_bits = (NF4_BYTES * linear_weights + 2 * other_weights) / 1e9
    return base_that_fits(in_16_bits + rest, in_4_bits + rest, usable)


@choose_base.mistake
def leaves_out_the_scales(linear_weights, other_weights, rest, usable):
    """You left out the scales: half a byte is the size of the weight alone."""
    in_16_bits = 2 * (linear_weights + other_weights) / GIB
    in_4_bits = (linear_weights / 2 + 2 * other_weights) / GIB
    return base_that_fits(in_16_bits + rest, in_4_bits + rest, usable)


@choose_base.mistake
def leaves_out_the_shared_scales(linear_weights, other_weights, rest, usable):
    """You left out the scales that 256 scales share: 32 bits for every 64 * 256 weights."""
    in_16_bits = 2 * (linear_weights + other_weights) / GIB
    bytes_per_weight = 0.5 + 1 / 64
    in_4_bits = (bytes_per_weight * linear_weights + 2 * other_weights) / GIB
    return base_that_fits(in_16_bits + rest, in_4_bits + rest, usable)


@choose_base.mistake
def takes_scales_of_32_bits(linear_weights, other_weights, rest, usable):
    """You took scales of 32 bits: double quantization stores each scale in 8 bits, and one number
    of 32 bits for every 256 scales.
    """
    in_16_bits = 2 * (linear_weights + other_weights) / GIB
    bytes_per_weight = 0.5 + 4 / 64
    in_4_bits = (bytes_per_weight * linear_weights + 2 * other_weights) / GIB
    return base_that_fits(in_16_bits + rest, in_4_bits + rest, usable)


@choose_base.mistake
def quantizes_everything(linear_weights, other_weights, rest, usable):
    """You stored the embeddings in 4 bits too: only the linear layers are quantized."""
    weights = linear_weights + other_weights
    in_16_bits = 2 * weights / GIB
    in_4_bits = NF4_BYTES * weights / GIB
    return base_that_fits(in_16_bits + rest, in_4_bits + rest, usable)


@choose_base.mistake
def always_takes_4_bits(linear_weights, other_weights, rest, usable):
    """You chose 4 bits although 16 fit: unpacking the weights costs time in every pass."""
    in_4_bits = (NF4_BYTES * linear_weights + 2 * other_weights) / GIB
    return base_that_fits(usable + 1, in_4_bits + rest, usable)


# 10.3: a step in smaller pieces


def read_pieces(norms):
    """From the gradient's norm by the completions at once; rounding moves it far below 0.1 %."""
    fewest_first = sorted(dict(norms).items())
    (few, pieces), (many, whole) = fewest_first
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

# 10.4: the same step on more GPUs


def correct_same_step(processes, completions, at_once, group):
    """The solution."""
    piece = processes * at_once
    if completions % group != 0 or completions % piece != 0:
        return None
    return completions // piece


# the arguments: processes, completions of a step, completions at once in each process, group
same_step = exercise("10.4", "same_step", solution=correct_same_step)
same_step.case(1, 64, 8, 8, gives=8)
same_step.case(2, 64, 8, 8, gives=4)
same_step.case(8, 64, 4, 16, gives=2)  # a group lies in several processes
same_step.case(4, 64, 16, 8, gives=1)
same_step.case(3, 64, 8, 8, gives=None)  # 48 or 72 completions would be another step
same_step.case(16, 64, 8, 8, gives=None)  # already one piece is too large
same_step.case(2, 60, 5, 8, gives=None)  # seven groups and a half
same_step.case(2, 48, 4, 16, gives=6)  # a piece of 8 has half a group


@same_step.mistake
def forgets_the_processes(processes, completions, at_once, group):
    """You forgot the processes: each of them learns from `at_once` completions at the same time, so
    with your number the step grows with the GPUs.
    """
    return correct_same_step(1, completions, at_once, group)


@same_step.mistake
def rounds_down(processes, completions, at_once, group):
    """You rounded: the step then has fewer completions than the one that you tuned. Return None if
    it does not come out even.
    """
    if completions % group != 0:
        return None
    return completions // (processes * at_once)


@same_step.mistake
def rounds_up(processes, completions, at_once, group):
    """You rounded up: the step then has more completions than the one that you tuned. Return None
    if it does not come out even.
    """
    if completions % group != 0:
        return None
    return -(-completions // (processes * at_once))


@same_step.mistake
def multiplies_by_the_processes(processes, completions, at_once, group):
    """You multiplied by the processes: more processes need fewer pieces."""
    if completions % group != 0 or completions % at_once != 0:
        return None
    return completions // at_once * processes


@same_step.mistake
def returns_0(processes, completions, at_once, group):
    """You returned 0 where the step cannot be made: TRL would take that for a setting, so return
    None.
    """
    pieces = correct_same_step(processes, completions, at_once, group)
    if pieces is None:
        return 0
    return pieces


@same_step.mistake
def forgets_the_groups(processes, completions, at_once, group):
    """You let a step end in the middle of a group: TRL refuses that, because its advantage needs
    the whole group.
    """
    if completions % (processes * at_once) != 0:
        return None
    return completions // (processes * at_once)


@same_step.mistake
def returns_a_fraction(processes, completions, at_once, group):
    """You returned a fraction: the number of pieces is whole (//), and None if it does not come out
    even.
    """
    return completions / (processes * at_once)


@same_step.mistake
def divides_by_the_group(processes, completions, at_once, group):
    """You divided by the size of a group: it decides whether the step is allowed, and not how many
    pieces it has.
    """
    if completions % (processes * group) != 0:
        return None
    return completions // (processes * group)


@same_step.mistake
def wants_whole_groups_in_each_process(processes, completions, at_once, group):
    """You asked for whole groups in each process: TRL gathers the rewards first, so a group may be
    spread over processes and over pieces.
    """
    if at_once % group != 0:
        return None
    return correct_same_step(processes, completions, at_once, group)


# 10.5: a plan for a GPU of the learner's own


def judge_plan(function):
    """What is wrong with the learner's plan, or that it fits."""
    from grpo_workbook.planning import plan

    arguments = function()
    if "gib" not in arguments:
        raise ValueError("give the GPU's memory, such as gib=14.7")
    result = plan(**arguments)
    if not result.fits:
        return "it does not fit"
    settings = result.settings
    completions = settings.completions_per_step * settings.num_processes
    if completions < 4 * settings.num_generations:
        return "fewer than 4 problems in a step"
    if result.peak > 0.75 * result.usable:
        return "it fits"
    return "more than a quarter is empty"


my_plan = exercise("10.5", "my_plan", call=judge_plan)
my_plan.case(gives="it fits")


@my_plan.mistake
def does_not_fit():
    """Your plan does not fit: print(plan(**my_plan())) lists what to change, the cheapest first."""
    return {"model": "qwen3-8b", "profile": "t4", "gib": 14.7, "load_in_4bit": False}


@my_plan.mistake
def has_too_few_problems():
    """A step has fewer than 4 problems, so its gradient is noisy: save memory elsewhere first."""
    return {"model": "qwen3-4b", "profile": "t4", "gib": 14.7, "gradient_accumulation_steps": 1}


@my_plan.mistake
def leaves_a_quarter_empty():
    """More than a quarter of the memory stays empty: take a larger model, longer completions or
    larger groups.
    """
    return {"model": "qwen3-0.6b", "profile": "t4", "gib": 14.7}


# 10.6: asynchronous training with slow updates


def read_ahead(seconds):
    """From the seconds per step without and with two steps ahead."""
    without = seconds[0]
    ahead = seconds[2]
    times = without / ahead
    sentence = (
        f"A step takes {without:.0f} s, and {ahead:.0f} s with two steps ahead: x {times:.2f}."
    )
    if times > 2.2:
        return "about 3 times", sentence
    if times > 1.15:
        return "about 1.5 times", sentence
    return "not at all", sentence


two_steps_ahead = experiment(
    "10.6",
    "two_steps_ahead",
    read=read_ahead,
    wrong={
        "about 3 times": (
            "The two work at the same time, so a step takes as long as the slower one: the update "
            "is now the slower one, and running ahead cannot shorten it."
        ),
        "about 1.5 times": (
            "Compare the sum of the two times with the longer of them: the gain is largest where "
            "both are about equal and vLLM waits for its last completions."
        ),
        "not at all": (
            "The time of the sampling disappears behind the update: without running ahead the "
            "trainer waited for it in every step."
        ),
    },
)
two_steps_ahead.example({0: 74.5, 2: 22.6}, gives="about 3 times")
two_steps_ahead.example({0: 174.5, 2: 120.2}, gives="about 1.5 times")
two_steps_ahead.example({0: 1030.0, 2: 1000.0}, gives="not at all")
