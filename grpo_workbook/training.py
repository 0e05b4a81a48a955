"""Load a model in 4-bit with adapters, build TRL's GRPOTrainer for it, and the callbacks."""

import os
import sys
import time
from functools import partial
from types import MethodType
from typing import Any

from grpo_workbook.config import RunConfig
from grpo_workbook.data import load_tokenizer
from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.evaluation import evaluate
from grpo_workbook.export import save_adapter
from grpo_workbook.models import load_base, text_part
from grpo_workbook.statistics import paired_p_value

TARGET_MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def load_policy(run: RunConfig, backend: str = "unsloth") -> tuple[Any, Any]:
    """(the base model with new LoRA adapters, in 4-bit NF4 unless the run says 16-bit; tokenizer);
    `backend` "plain" is Transformers and PEFT alone.
    """
    if backend not in ("unsloth", "plain"):
        raise WorkbookError(f"unknown backend {backend!r}: choose one of unsloth, plain")
    rank, targets = run.lora_rank, list(TARGET_MODULES)
    lora = {"r": rank, "lora_alpha": 2 * rank, "lora_dropout": 0.0, "target_modules": targets}
    model, tokenizer = (_load_unsloth if backend == "unsloth" else _load_plain)(run, lora)
    sample_unpacked(model)
    return model, tokenizer


def sample_unpacked(model) -> None:
    """Let a 4-bit model with LoRA adapters sample in about half the time on a CPU.

        model = get_peft_model(base, config)
        sample_unpacked(model)  # once; `generate` follows the adapters as they learn
        GRPOTrainer(model, ...).train()

    While it generates, each layer with its adapter is one matrix, where packed layers are unpacked
    for each token: the same function up to rounding. Not on a GPU, nor for over 1 GiB in float32.
    """
    if model.device.type == "cpu" and model.get_memory_footprint() < 2**27:  # 4-bit: an eighth
        model.generate = MethodType(_generate_unpacked, model)


def _generate_unpacked(model, *args, **kwargs):
    import torch
    from bitsandbytes.functional import dequantize_4bit
    from peft.tuners.lora import LoraLayer
    from transformers.integrations import sdpa_attention

    layers: list[Any] = [m for m in model.modules() if isinstance(m, LoraLayer)]
    for layer in layers:
        base = layer.get_base_layer()
        state = getattr(base.weight, "quant_state", None)
        repacked = getattr(state, "packing_format_for_cpu", False)  # for a kernel of bitsandbytes
        if state and not (repacked or layer.disable_adapters or layer.lora_variant):  # of DoRA
            matrix = dequantize_4bit(base.weight.data, state).to(model.dtype)
            matrix += sum(layer.get_delta_weight(name).detach() for name in layer.active_adapters)
            layer.forward = partial(torch.nn.functional.linear, weight=matrix, bias=base.bias)
    # Transformers copies keys and values for each head of a group; PyTorch's kernel need not.
    copies = sdpa_attention.use_gqa_in_sdpa
    sdpa_attention.use_gqa_in_sdpa = lambda *given: True
    try:
        return type(model).generate(model, *args, **kwargs)
    finally:
        sdpa_attention.use_gqa_in_sdpa = copies
        for layer in layers:
            vars(layer).pop("forward", None)


def _load_unsloth(run: RunConfig, lora: dict) -> tuple[Any, Any]:
    import unsloth  # isort: skip  (before trl and transformers, which it patches)
    import torch
    from transformers import set_seed

    loader: Any = unsloth.FastLanguageModel
    how: dict[str, Any] = {"model_name": run.model, "dtype": getattr(torch, run.dtype)}
    how["max_seq_length"] = run.max_prompt_length + run.max_completion_length
    how["load_in_4bit"] = run.load_in_4bit
    how["use_exact_model_name"] = True  # else another repository's 4-bit weights, partly in 16 bits
    if run.vllm == "colocate":  # it shares its weights with the training; a server is TRL's affair
        how |= {"fast_inference": True, "max_lora_rank": run.lora_rank}
        how |= {"gpu_memory_utilization": run.vllm_gpu_memory}
    checkpointing = {"use_gradient_checkpointing": run.gradient_checkpointing and "unsloth"}
    set_seed(run.seed)  # the adapters' initial weights
    try:
        if part := text_part(run.model):  # Unsloth's own way to it is on a GPU alone
            loader = unsloth.FastModel
            how |= part if run.device == "cpu" else {"text_only": True}
            lora = {**lora, "finetune_vision_layers": False}  # vLLM beside it refuses the others
        model, tokenizer = loader.from_pretrained(**checkpointing, **how)
    except Exception as error:  # a damaged file can raise anything
        said = f"the model {run.model!r} cannot be loaded ({first_line(error)})"
        raise WorkbookError(f"{said}: check the name, and the network for a hub id") from error
    if run.dtype == "float32" and model.dtype != torch.float32:  # Gemma 3: it overflows float16
        said = f"Unsloth loads {run.model_name} in {str(model.dtype)[6:]} on a GPU without bfloat16"
        raise WorkbookError(f"{said}: say dtype: float16 (it computes in float32 all the same)")
    model = loader.get_peft_model(model, **lora, **checkpointing, random_state=run.seed)
    tokenizer.padding_side = "left"  # a decoder continues its prompt, so padding comes before it
    return model, tokenizer


def _load_plain(run: RunConfig, lora: dict) -> tuple[Any, Any]:
    """The same set-up without Unsloth."""
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
    from transformers import set_seed

    set_seed(run.seed)
    # For sharding, the packed weights must have the dtype of the others.
    nf4 = {"bnb_4bit_quant_storage": run.dtype} if sharded() else {}
    model = load_base(run.model, run.dtype, run.device, run.load_in_4bit, **nf4)
    # As Unsloth does: bitsandbytes 0.50 repacks 4-bit weights on the CPU at the first generation,
    # and then passes no gradient back through them.
    for layer in model.modules():
        if hasattr(layer, "support_avx512bf16_for_cpu"):
            layer.support_avx512bf16_for_cpu = False
    if run.load_in_4bit and not sharded():  # it makes the norms and embeddings float32
        model = prepare_model_for_kbit_training(model, run.gradient_checkpointing)
    model = get_peft_model(model, LoraConfig(**lora, task_type="CAUSAL_LM"))
    return model, load_tokenizer(run.model)


def sharded() -> bool:
    """Whether `accelerate launch` divides the weights among the processes (FSDP, DeepSpeed)."""
    return "true" in (os.getenv(f"ACCELERATE_USE_{n}", "").lower() for n in ("FSDP", "DEEPSPEED"))


def why_not_plain(run: RunConfig) -> str | None:
    """Why plain Transformers + PEFT + TRL cannot train here, or None when it can."""
    if run.vllm == "colocate" and run.load_in_4bit:
        said = "TRL would merge into the 4-bit base and out again at every step, which rounds it"
        return f"{said}: say vllm: off, or load_in_4bit: false"
    kernel = "TRL 1.15 computes log-probabilities in a Triton kernel, which needs a GPU"
    return kernel if run.device == "cpu" else None


def count_4bit_layers(model) -> int:
    """The number of linear layers with 4-bit weights; 0 after a fallback to 16-bit."""
    from bitsandbytes.nn.modules import Linear4bit  # PEFT's wrapper around it has the same name

    return sum(isinstance(module, Linear4bit) for module in model.modules())


def make_trainer(
    run: RunConfig, model, tokenizer, dataset, rewards, weights=None, overrides=None, **more
):
    """TRL's own GRPOTrainer with this run's config and a progress bar that shows the reward;
    `weights`: a number for each reward; `overrides`: of GRPOConfig; `more`: tools, callbacks, ...
    """
    from transformers import PrinterCallback
    from trl import GRPOTrainer

    args = run.to_grpo_config(weights, overrides, int(os.environ.get("WORLD_SIZE") or 1))
    if args.use_adaptive_entropy and run.device == "cuda" and "unsloth" in sys.modules:
        said = "on a GPU Unsloth's trainer ignores use_adaptive_entropy"
        raise WorkbookError(f"{said}: say entropy_coef for a fixed bonus, or --backend plain")
    adapters = [(p, p.data) for name, p in model.named_parameters() if "lora_" in name]
    try:
        trainer: Any = GRPOTrainer(model, list(rewards), args, dataset, None, tokenizer, **more)
    except (ValueError, TypeError, ImportError, RuntimeError) as error:
        raise WorkbookError(f"TRL refuses {overrides or 'this run'}: {error}") from error
    # TRL casts the adapters of a quantized model to bfloat16, where a weight of 0.01 cannot take a
    # step of 1e-5. On a GPU Unsloth removes that cast; here it is undone, with the digits it took.
    for parameter, exact in adapters:
        parameter.data = exact.float()
    trainer.remove_callback(PrinterCallback)
    if trainer.is_world_process_zero():
        trainer.add_callback(RewardBar())
    return trainer


class Callback:
    """Ignores a Trainer's other events: its base in Transformers must be loaded after Unsloth."""

    def __getattr__(self, name: str):
        if name.startswith("on_"):
            return lambda *args, **kwargs: None
        raise AttributeError(name)


class RewardBar(Callback):
    """One line while training: steps done, mean reward, mean completion length."""

    def on_train_begin(self, args, state, control, **kwargs):
        from tqdm import tqdm

        # position 0: the bar of a failed run stays open, and would push this one down
        how = {"desc": "training", "unit": "step", "ncols": 80, "position": 0}
        self.bar = tqdm(total=state.max_steps, initial=state.global_step, **how)

    def on_log(self, args, state, control, logs, **kwargs):
        if logs.get("reward") is not None:  # None: no reward applied in this step
            length = logs.get("completions/mean_length", logs.get("completion_length", 0.0))
            self.bar.set_postfix(reward=f"{logs['reward']:.2f}", tokens=f"{length:.0f}")

    def on_step_end(self, args, state, control, **kwargs):
        self.bar.update(state.global_step - self.bar.n)

    def on_train_end(self, args, state, control, **kwargs):
        self.bar.close()


class HeldoutProbe(Callback):
    """Samples one completion for each of a few held-out problems every N steps, and scores it.

    It logs heldout/strict, heldout/lenient and heldout/well_formed (rates) and heldout/seconds,
    first at the start. `seen` keeps (step, completions); `how` goes to `evaluation.evaluate`.
    With `keep`, a folder, the adapter of the best step by heldout/strict is saved there: training
    never sees these problems, so no reward can buy that score. With `stop` training ends when
    fewer are right than at the best step (McNemar's paired test, p < 0.05) though the reward rose.
    """

    def __init__(
        self, model, tokenizer, dataset, *, every=20, problems=32, keep=None, stop=False, **how
    ):
        if every < 1:
            raise WorkbookError(f"every is {every}: give the steps between two probes, at least 1")
        self.model, self.tokenizer, self.every, self.how = model, tokenizer, every, how
        self.dataset = dataset.select(range(min(problems, len(dataset))))
        self.keep, self.stop, self.best = keep, stop, {"step": -1, "strict": []}
        self.seen: list[tuple[int, list[str]]] = []

    def state_dict(self) -> dict:
        """The state for a checkpoint."""
        return {"seen": self.seen, "best": self.best}

    def load_state_dict(self, state: dict) -> None:
        """Continue from a `state_dict()`."""
        self.seen, self.best = [(step, texts) for step, texts in state["seen"]], state["best"]

    def on_train_begin(self, args, state, control, **kwargs):
        if state.global_step == 0:
            self.on_step_end(args, state, control)

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % self.every:
            return
        started = time.perf_counter()
        scores = evaluate(self.model, self.tokenizer, self.dataset, sample=True, **self.how)
        self.seen.append((state.global_step, scores.completions))
        names = ("strict", "lenient", "well_formed")
        rates = {f"heldout/{name}": sum(getattr(scores, name)) / scores.n for name in names}
        if self.best["step"] < 0 or sum(scores.strict) > sum(self.best["strict"]):
            self.best = {"step": state.global_step, "strict": scores.strict}
            if self.keep is not None and state.is_world_process_zero:
                save_adapter(self.model, self.tokenizer, self.keep)
        elif self.stop and self._falls_alone(state, scores.strict):
            print(f"\nThe reward rises, held-out accuracy falls. Best: step {self.best['step']}")
            control.should_training_stop = True
        rates["heldout/seconds"] = time.perf_counter() - started
        state.log_history.append({**rates, "step": state.global_step})

    def _falls_alone(self, state, strict: list[bool]) -> bool:
        """Whether fewer are right than at the best step though the reward rose since then."""
        rows = {e["step"]: e["reward"] for e in state.log_history if "reward" in e}
        width = max([self.every, *list(rows)[:1]])  # a row may cover more steps than a probe
        paid = []  # the mean up to the best probe (at the start, up to the next), and up to this
        for last in (max(self.best["step"], width), state.global_step):
            seen = [reward for at, reward in rows.items() if last - width <= at <= last]
            paid.append(sum(seen) / max(1, len(seen)))
        return paid[1] > paid[0] and paired_p_value(self.best["strict"], strict) < 0.05
