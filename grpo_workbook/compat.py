"""Every work-around for a version of TRL, Unsloth, PEFT, bitsandbytes or Transformers.

Each is one function with a docstring that names the version, the cause and, where there is one, the
upstream issue or pull request, so that it can be removed when the library has changed. The pinned
versions are in requirements.txt.
"""

import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from grpo_workbook.errors import WorkbookError


def let_vllm_sleep() -> None:
    """Let a colocated vLLM give its memory back during the update; call it before `import unsloth`.

    Unsloth 2026.10 reads both variables when it is imported, as its own notebooks set them. With
    the second one vllm_gpu_memory_utilization counts all the same. What is set already stays.
    https://github.com/unslothai/unsloth/issues/3328
    """
    if "unsloth" not in sys.modules:
        os.environ.setdefault("UNSLOTH_VLLM_STANDBY", "1")
        os.environ.setdefault("UNSLOTH_VLLM_STANDBY_UTIL_OVERRIDE", "1")


def keep_float32(dtype: str) -> None:
    """Let Unsloth's trainer on a GPU compute in the dtype of the model ("float32", ...).

    Unsloth 2026.10 decides by this variable, when a trainer is built, whether to compute in
    bfloat16, and its get_peft_model sets it so that a float32 model would be. Call it after
    get_peft_model. https://github.com/unslothai/unsloth/pull/4114
    """
    os.environ["UNSLOTH_MIXED_PRECISION"] = "bfloat16" if dtype == "float32" else "float32"


def is_loaded_in_float16(family: str) -> bool:
    """Whether Unsloth loads this family in float16 on a GPU without bfloat16, whatever the dtype.

    Unsloth 2026.10 does so for Gemma, and computes in float32 all the same.
    https://github.com/unslothai/unsloth/pull/4014
    """
    return family == "gemma"


def keep_packed_weights(model: Any) -> None:
    """Let gradients pass through 4-bit layers on a CPU after the model has generated.

    bitsandbytes 0.50 packs 4-bit weights again for its AVX512-BF16 kernel on the first forward
    without gradients, and the backward pass then reads them wrongly. Unsloth switches it off too.
    https://github.com/bitsandbytes-foundation/bitsandbytes/pull/1804
    """
    for layer in model.modules():
        if hasattr(layer, "support_avx512bf16_for_cpu"):
            layer.support_avx512bf16_for_cpu = False


def wide_modules() -> list[str]:
    """The modules that 4-bit loading leaves wide in a model with vision: llm_int8_skip_modules.

    Transformers 5.17 matches a name from its start (quantizers/quantizers_utils.py), so that
    "vision_tower", which stands inside of names, would be packed all the same.
    """
    vision = [r".*vision_tower", r".*vision_model", r".*visual"]
    return ["lm_head", *vision, r".*multi_modal_projector", r".*connector"]


def picture_tokens(processor: Any) -> list[int]:
    """The tokens that stand for a picture, which a policy must never write.

        GRPOConfig(generation_kwargs={"suppress_tokens": picture_tokens(processor)})

    TRL 1.15 passes a completion through the model with the pictures of its prompt. A sampled image
    token is counted as a part of them, and the training stops: "Image features and image tokens do
    not match". https://github.com/verl-project/verl/issues/3469

    Args:
        processor: the model's, for text and pictures.

    Returns:
        The ids of the image token, and of the marks around a picture where the tokenizer names them
        (boi_token, eoi_token).
    """
    tokens = {token for token in processor.image_token_ids if token is not None}
    for name in ("boi_token_id", "eoi_token_id"):
        token = getattr(processor.tokenizer, name, None)
        if token is not None:
            tokens.add(token)
    return sorted(tokens)


def is_packed_again(quant_state: Any) -> bool:
    """Whether bitsandbytes 0.50 has packed a 4-bit weight for its kernel (`keep_packed_weights`).

    Its dequantize_4bit cannot read such a weight.
    """
    return bool(getattr(quant_state, "packing_format_for_cpu", False))


@contextmanager
def grouped_heads_without_copies() -> Iterator[None]:
    """Let PyTorch's attention read the keys and values of a group of heads in place.

    Transformers 5.17 copies them for each head where it does not know that the kernel can do
    without, as on a CPU. The copies take a large part of the time of a tiny model.
    https://github.com/huggingface/transformers/pull/39412
    """
    from transformers.integrations import sdpa_attention

    original = sdpa_attention.use_gqa_in_sdpa
    sdpa_attention.use_gqa_in_sdpa = lambda *arguments: True
    try:
        yield
    finally:
        sdpa_attention.use_gqa_in_sdpa = original


def free_vllm(model: Any) -> None:
    """End the vLLM engine that Unsloth 2026.10 has put beside a model, if there is one.

    It holds its part of the GPU until it is deleted by Unsloth's own function.
    """
    if hasattr(model, "vllm_engine"):
        from unsloth_zoo.vllm_utils import delete_vllm

        delete_vllm(model.vllm_engine)


def refuse_mlx() -> None:
    """Raise WorkbookError if Unsloth has loaded its backend for MLX. Call it after its import.

    Unsloth 2026.10 does so on Apple silicon where the package mlx is installed. Its models are then
    not of PyTorch, so TRL cannot train them. Without MLX it takes its backend for the CPU.
    """
    import unsloth

    if getattr(unsloth, "DEVICE_TYPE", "") == "mlx":
        raise WorkbookError(
            "Unsloth has loaded its backend for MLX, whose models TRL cannot train: set "
            "UNSLOTH_FORCE_GPU_PATH=1 before Python starts, then it takes the CPU "
            "(docs/apple_silicon.md)"
        )


def why_not_plain(device: str) -> str | None:
    """Why plain Transformers, PEFT and TRL cannot train on this device ("cpu", "cuda"), or None.

    TRL 1.15 calls a Triton kernel without asking whether there is Triton (trl/trainer/utils.py,
    "'NoneType' object has no attribute 'apply'"). Unsloth's import replaces it.
    https://github.com/huggingface/trl/pull/7253
    """
    if device == "cpu":
        return "TRL 1.15 computes log-probabilities in a Triton kernel, which needs a GPU"
    return None


def distil_without_triton() -> None:
    """Let TRL's DistillationTrainer compute its loss on a CPU; call it after `import unsloth`.

    TRL 1.15 has the divergence only as a Triton kernel (trl/kernels/chunked_divergence.py), and
    Unsloth 2026.10 does not replace it. `divergence_in_torch` has the same formula, and keeps the
    logits of all tokens in memory, which the kernel avoids. On a GPU the kernel stays.
    """
    import torch
    from trl.trainer import distillation_trainer

    if not torch.cuda.is_available():
        distillation_trainer._chunked_divergence_loss = divergence_in_torch


def divergence_in_torch(
    student_hidden_states: Any,
    teacher_hidden_states: Any,
    student_lm_head_weight: Any,
    teacher_lm_head_weight: Any,
    completion_mask: Any,
    beta: float,
    num_items_in_batch: Any = None,
    student_lm_head_bias: Any = None,
    teacher_lm_head_bias: Any = None,
    student_logit_scale: float = 1.0,
    teacher_logit_scale: float = 1.0,
    student_final_logit_softcapping: float | None = None,
    teacher_final_logit_softcapping: float | None = None,
    temperature: float = 1.0,
) -> tuple[Any, Any, Any]:
    """The generalized divergence of TRL's DistillationTrainer, with its parameters.

    Its formula is in arXiv 2306.13649, section 3.

    Args:
        student_hidden_states, teacher_hidden_states: (completions, tokens, hidden), each model with
            its own width.
        student_lm_head_weight, teacher_lm_head_weight: (vocabulary, hidden).
        completion_mask: (completions, tokens), 1 for the tokens that count.
        beta: 0 is the forward KL, from the teacher's distribution to the student's; 1 the reverse
            KL; between them a mixture of both distributions takes part.

    Returns:
        The loss, the sum of the student's entropies in nats, and the number of tokens.
    """
    import torch

    counted = completion_mask != 0  # (completions, tokens)
    count = counted.sum()
    student = _log_probabilities(
        student_hidden_states[counted], student_lm_head_weight, student_lm_head_bias,
        student_logit_scale, student_final_logit_softcapping, temperature,
    )  # fmt: skip
    with torch.no_grad():  # as in the kernel, only the student learns
        teacher = _log_probabilities(
            teacher_hidden_states[counted], teacher_lm_head_weight, teacher_lm_head_bias,
            teacher_logit_scale, teacher_final_logit_softcapping, temperature,
        )  # fmt: skip
    if beta == 0:
        divergence = (teacher.exp() * (teacher - student)).sum()
    elif beta == 1:
        divergence = (student.exp() * (student - teacher)).sum()
    else:
        parts = torch.stack([student + math.log(1 - beta), teacher + math.log(beta)])
        mixture = parts.logsumexp(0)
        from_teacher = (teacher.exp() * (teacher - mixture)).sum()
        from_student = (student.exp() * (student - mixture)).sum()
        divergence = beta * from_teacher + (1 - beta) * from_student
    entropy = -(student.exp() * student).sum()
    if num_items_in_batch is None:
        num_items_in_batch = count.clamp(min=1)
    return divergence / num_items_in_batch, entropy, count


def _log_probabilities(
    hidden_states: Any,
    weight: Any,
    bias: Any,
    scale: float,
    softcap: float | None,
    temperature: float,
) -> Any:
    """log pi of all tokens of the vocabulary, as TRL computes the logits: (tokens, vocabulary)."""
    logits = hidden_states.float() @ weight.float().T
    if bias is not None:
        logits = logits + bias
    logits = scale * logits
    if softcap is not None:
        logits = softcap * (logits / softcap).tanh()
    return (logits / temperature).log_softmax(-1)


def reference_of(beta: float, backend: str, device: str) -> str:
    """What the KL penalty of a training that starts from an adapter pulls towards, as a sentence.

    TRL 1.15 copies the adapter under the name "ref" (trl/trainer/grpo_trainer.py). Unsloth 2026.10
    takes these lines out of its trainer for a GPU (unsloth/models/rl.py, at add_adapter), so that
    the reference has no adapter there.
    """
    if beta == 0:
        return "beta is 0: no KL penalty holds the policy near it"
    if backend == "unsloth" and device != "cpu":
        return (
            f"beta is {beta:g}: the KL penalty pulls towards the model WITHOUT the adapter, of "
            "which Unsloth's trainer makes no copy. For a copy, give --backend plain"
        )
    return f"beta is {beta:g}: the KL penalty pulls towards a copy of the adapter as it is now"


def load_adapters(model: Any, checkpoint: Path) -> None:
    """Load all adapters of a PEFT model from a checkpoint, in the dtype that they have now.

    Transformers 5.17 loads one adapter, or of several those that have a folder of their own. With
    beta > 0 that is only TRL's copy for the reference, and training would start with new adapters.
    PEFT 0.21 loads into float32 where TRL has cast the adapters of a 4-bit base to bfloat16.
    https://github.com/huggingface/transformers/issues/30478
    https://github.com/huggingface/peft/issues/2421
    """
    from peft import set_peft_model_state_dict
    from safetensors.torch import load_file

    for name in model.peft_config:
        folder = checkpoint if name == "default" else checkpoint / name  # as PEFT saves them
        path = folder / "adapter_model.safetensors"
        if name == "default" or path.is_file():  # a reference copy may be missing
            set_peft_model_state_dict(model, load_file(path), adapter_name=name)


def replay_shuffles(dataloader: Any, epochs: int) -> bool:
    """Advance a GRPOTrainer's data loader to the order of its epoch; False for a streamed data set.

    TRL 1.15's RepeatSampler draws the order of each epoch from one random sequence, which starts
    again when training is resumed: then the second epoch would have the order of the first.
    """
    import torch

    sampler = dataloader
    while sampler is not None and not hasattr(sampler, "mini_repeat_count"):  # a RepeatSampler
        sampler = getattr(sampler, "batch_sampler", None) or getattr(sampler, "sampler", None)
    if sampler is None:
        return False
    if sampler.shuffle:
        for _ in range(epochs):
            torch.randperm(sampler.num_samples, generator=sampler.generator)
    return True


def is_failed_write(error: BaseException) -> bool:
    """Whether a file could not be written, as on a full disk.

    torch.save (2.13) raises a RuntimeError for it that names its source file, and safetensors an
    error class of its own. https://github.com/pytorch/pytorch/issues/76108
    """
    from safetensors import SafetensorError

    return isinstance(error, OSError | SafetensorError) or "inline_container.cc" in str(error)


def save_under_own_names(model: Any) -> None:
    """Let a model that was converted when it was loaded be saved as it is now.

    Transformers 5.17 keeps the conversions on the model (`_weight_conversions`) and turns them
    around when it saves. A text part, loaded by a key_mapping, would get the names of the whole
    checkpoint, as if it had vision. Weights that were loaded in 4-bit and dequantized cannot be
    turned around: NotImplementedError. https://github.com/huggingface/transformers/pull/45743
    """
    vars(model).pop("_weight_conversions", None)


def unplaced_weights(model: Any, adapter: str) -> list[str]:
    """The weights that only one of the two has: the adapter's folder, or its layers in the model.

    PEFT 0.21 loads such an adapter with no more than a warning from `PeftModel.from_pretrained`;
    `load_adapter`, which does the same again, returns their names.
    https://github.com/huggingface/peft/pull/2118
    """
    loading = model.load_adapter(adapter, "default")
    return [*loading.unexpected_keys, *loading.missing_keys]


def expert_parameters(model: Any, target_modules: Sequence[str]) -> list[str]:
    """The weights of a mixture's experts that these modules are: PEFT's `target_parameters`.

    Transformers 5 stacks the experts of a layer in parameters of three dimensions, gate_up_proj and
    down_proj, which are no modules. PEFT 0.21 finds them by the modules' names in some
    architectures, as Qwen's, and leaves them out without a word in others, as gpt-oss. Unsloth
    finds them in all.
    """
    wanted = set()
    if "gate_proj" in target_modules or "up_proj" in target_modules:
        wanted.add("gate_up_proj")
    if "down_proj" in target_modules:
        wanted.add("down_proj")
    names = set()
    for full_name, parameter in model.named_parameters():
        name = full_name.rsplit(".", 1)[-1]
        if parameter.ndim == 3 and name in wanted:
            names.add(name)
    return sorted(names)


@contextmanager
def relative_precision(digits: int) -> Iterator[None]:
    """Let math-verify compare numbers by their leading digits.

    math-verify 0.9.0 rounds both, or their difference, to a number of decimals, so that all numbers
    near zero are equal: 10^{-31} and 10^{-30} (its issues 14 and 60). It calls one function for
    each pair of numbers, also inside of lists.
    """
    from math_verify import grader

    original = grader.sympy_numeric_eq

    def numbers_equal(a: Any, b: Any, float_rounding: int, numeric_precision: int) -> bool:
        equal = original(a, b, float_rounding, numeric_precision)
        if not equal and grader.Float not in (type(a), type(b)):  # neither has decimals
            return False
        agree = _leading_digits_agree(a, b, digits)
        if agree is None:
            return equal
        return agree

    grader.sympy_numeric_eq = numbers_equal
    try:
        yield
    finally:
        grader.sympy_numeric_eq = original


def _leading_digits_agree(a: Any, b: Any, digits: int) -> bool | None:
    """Whether two expressions of sympy agree in so many digits; None if they have no digits.

    They are compared where all unknowns are 0, too: there x - 10^{-30} has other digits than x.
    """
    from math_verify.grader import Integer, Rational, UnevaluatedExpr

    if a.has(UnevaluatedExpr) or b.has(UnevaluatedExpr):  # a percentage may be equal to its number
        return None
    symbols = sorted(a.free_symbols | b.free_symbols, key=str)
    values = {symbol: Rational(3 * number + 5, 7) for number, symbol in enumerate(symbols)}
    verdict = None
    for point in (values, dict.fromkeys(symbols, Integer(0))):
        first = a.subs(point)
        second = b.subs(point)
        # Absolute values, because they may be complex. Zero, computed from roots, has no digits,
        # and 1/x has no finite value at 0: such a point tells nothing.
        try:
            sizes = [abs(term).evalf(digits + 18) for term in (first, second)]
            has_digits = all(size.is_comparable and size.is_finite for size in sizes)
        # A set or a relation has no absolute value. Of a matrix, math-verify compares the entries.
        except (TypeError, AttributeError):
            return None
        if not has_digits:
            continue
        difference = abs(first - second).evalf(digits + 18)
        if difference > max(sizes) / 10**digits:
            return False
        verdict = True
    return verdict
