"""Load a model in 4-bit, give it adapters, and make TRL's GRPOTrainer, which resume.py trains.

`import unsloth` must come before trl and transformers, which it patches: `load_policy` does it first.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from grpo_workbook.config import grpo_config, named
from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.planning.profiles import loader_for
from grpo_workbook.processes import ALONE, Processes
from grpo_workbook.resume.training import keep_exact, stop_on_interrupt  # noqa: F401  (notebooks import it here)
from grpo_workbook.run import Run

if TYPE_CHECKING:
    import torch
    from datasets import Dataset
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from trl import GRPOTrainer

BACKENDS = ("unsloth", "plain")
TARGET_MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def load_policy(
    run: Run, backend: str = "unsloth"
) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase"]:
    """The base model (4-bit NF4 unless the settings say 16-bit) with fresh LoRA adapters, and its tokenizer.

    `backend`: "unsloth", or "plain" for Transformers + PEFT. Raises WorkbookError for another, and for a model that
    cannot be loaded.
    """
    loaders = {"unsloth": _load_unsloth, "plain": _load_plain}
    if backend not in loaders:
        raise WorkbookError(f"unknown backend {backend!r}: choose one of {', '.join(loaders)}")
    try:
        return loaders[backend](run)
    except OSError as error:  # what Transformers raises for a model that is not there
        raise WorkbookError(
            f"the model {run.model!r} cannot be loaded ({first_line(error)}): check the name, "
            "and the network if it is a hub id"
        ) from error


def _load_unsloth(run: Run):
    import unsloth  # isort: skip  (before transformers)
    from transformers import set_seed

    s = run.settings
    name = loader_for(run.model)
    loader = getattr(unsloth, name)
    # Of a model that sees or hears, the text part. The CPU backend takes nothing else, and does not know the argument.
    more = {"text_only": True} if name == "FastModel" and run.device != "cpu" else {}
    checkpointing = "unsloth" if s.gradient_checkpointing else False
    # vLLM beside the training shares its weights with it; a server's is TRL's affair alone.
    vllm = (
        {
            "fast_inference": True,
            "max_lora_rank": s.lora_rank,
            "gpu_memory_utilization": s.vllm_gpu_memory,
        }
        if s.vllm == "colocate"
        else {}
    )
    set_seed(run.seed)  # the adapters' initial weights
    model, tokenizer = loader.from_pretrained(
        model_name=run.model,
        max_seq_length=s.max_prompt_tokens + s.max_completion_tokens,
        dtype=torch_dtype(s.dtype),
        load_in_4bit=s.load_in_4bit,
        use_gradient_checkpointing=checkpointing,
        **vllm,
        **more,
    )
    model = loader.get_peft_model(
        model,
        r=s.lora_rank,
        lora_alpha=2 * s.lora_rank,
        lora_dropout=0.0,
        target_modules=list(TARGET_MODULES),
        use_gradient_checkpointing=checkpointing,
        random_state=run.seed,
    )
    tokenizer.padding_side = (
        "left"  # a decoder continues its prompt: the padding must stand before it
    )
    return model, tokenizer


def why_not_plain(run: Run) -> str | None:
    """Why plain Transformers + PEFT + TRL cannot train here, or None when it can."""
    from importlib.metadata import version

    from packaging.version import Version

    if run.device == "cpu" and Version(version("trl")) < Version("1.16"):
        return (
            f"TRL {version('trl')} computes log-probabilities in a Triton kernel, Triton has no driver for a CPU, and "
            "training would stop at its first step (TRL 1.16 mends it, but Unsloth does not accept it yet)"
        )
    return None


def _load_plain(run: Run):
    """The same set-up without Unsloth."""
    import torch
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
    from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, set_seed

    s = run.settings
    set_seed(run.seed)
    dtype = torch_dtype(s.dtype)
    sharded = (
        ALONE.sharded
    )  # then the 4-bit weights must be stored in the type of the others, to be divided alike
    quantization = (
        BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
            **({"bnb_4bit_quant_storage": dtype} if sharded else {}),
        )
        if s.load_in_4bit
        else None
    )
    model = AutoModelForCausalLM.from_pretrained(
        run.model,
        dtype=dtype,
        device_map={"": torch.cuda.current_device()} if run.device == "cuda" else run.device,
        quantization_config=quantization,
    )
    # What Unsloth does too: bitsandbytes 0.50 repacks 4-bit weights on the CPU at the first generation, and lets no
    # gradient back through them after that.
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
    if s.load_in_4bit and not sharded:  # it makes the norms float32, and FSDP wants one type
        model = prepare_model_for_kbit_training(
            model, use_gradient_checkpointing=s.gradient_checkpointing
        )
    model = get_peft_model(
        model,
        LoraConfig(
            r=s.lora_rank,
            lora_alpha=2 * s.lora_rank,
            lora_dropout=0.0,
            target_modules=list(TARGET_MODULES),
            task_type="CAUSAL_LM",
        ),
    )
    tokenizer = AutoTokenizer.from_pretrained(run.model, padding_side="left")
    return model, tokenizer


def torch_dtype(name: str) -> "torch.dtype":
    """float32, float16 or bfloat16 by name."""
    import torch

    return getattr(torch, name)


def count_4bit_layers(model: "PreTrainedModel") -> int:
    """How many linear layers really hold 4-bit weights: a fallback to 16-bit would otherwise pass unseen."""
    from bitsandbytes.nn import Linear4bit  # PEFT's wrapper around it has the same name

    return sum(isinstance(module, Linear4bit) for module in model.modules())


def count_trained_parameters(model: "PreTrainedModel") -> int:
    """How many single weights will receive a gradient: with LoRA, those of the adapters."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def make_trainer(
    run: Run,
    model,
    tokenizer,
    dataset: "Dataset",
    rewards: Sequence[Callable],
    weights: Sequence[float] | None = None,
    overrides: dict | None = None,
    processes: Processes = ALONE,
) -> "GRPOTrainer":
    """TRL's own GRPOTrainer with this run's config, a progress bar that shows the weighted reward, and checkpoints that
    can be resumed exactly.

    `overrides` are fields of GRPOConfig that win over the run's. With several processes each samples with a seed of
    its own, run.seed plus its number: the same seed gives the same run only for the same number of processes.
    """
    from transformers import PrinterCallback
    from trl import GRPOTrainer

    args = grpo_config(run, weights, overrides, processes.count)
    try:
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=list(rewards),
            args=args,
            train_dataset=dataset,
            processing_class=tokenizer,
        )
    except (ValueError, TypeError, ImportError, RuntimeError, NotImplementedError) as error:
        if not overrides:
            raise
        raise WorkbookError(f"TRL does not take {named(overrides)}: {error}") from error
    trainer.remove_callback(PrinterCallback)
    if processes.main:
        trainer.add_callback(reward_bar())
    keep_exact(trainer)
    return trainer


def reward_bar():
    """A callback: one line while training, with the steps done, the mean reward and the mean completion length."""
    from tqdm import tqdm
    from transformers import TrainerCallback

    class RewardBar(TrainerCallback):
        """One line while training: steps done, mean reward, mean completion length."""

        def on_train_begin(self, args, state, control, **kwargs):
            # position 0: the bar of a run that an error ended stays open, and would push this one down a line
            done = state.global_step
            self.bar = tqdm(
                total=state.max_steps,
                initial=done,
                desc="training",
                unit="step",
                ncols=80,
                position=0,
            )

        def on_log(self, args, state, control, logs=None, **kwargs):
            if "reward" in (logs or {}):
                length = logs.get(
                    "completions/mean_length", logs.get("completion_length", 0.0)
                )  # TRL's name, Unsloth's
                self.bar.set_postfix(reward=f"{logs['reward']:.2f}", tokens=f"{length:.0f}")

        def on_step_end(self, args, state, control, **kwargs):
            self.bar.update(state.global_step - self.bar.n)

        def on_train_end(self, args, state, control, **kwargs):
            self.bar.close()

    return RewardBar()
