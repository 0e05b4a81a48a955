"""Load a model in 4-bit, give it adapters, and make TRL's GRPOTrainer.

`import unsloth` must come before trl and transformers, which it patches: `load_policy` does it first.
That is also why no callback here derives from TrainerCallback.
"""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_workbook.config import RunConfig
from grpo_workbook.errors import WorkbookError, first_line

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from trl import GRPOTrainer

BACKENDS = ("unsloth", "plain")
TARGET_MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
# Checkpoints with vision or sound: Unsloth's FastModel takes their text part.
MANY_SENSES = ("gemma-3-4b", "gemma-3-12b", "gemma-3-27b", "gemma-4-", "qwen3.5-")


def load_policy(
    run: RunConfig, backend: str = "unsloth"
) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase"]:
    """The base model (4-bit NF4 unless the run says 16-bit) with fresh LoRA adapters, its tokenizer.

    `backend`: "unsloth", or "plain" for Transformers + PEFT. Raises WorkbookError for another, and
    for a model that cannot be loaded.
    """
    if backend not in BACKENDS:
        raise WorkbookError(f"unknown backend {backend!r}: choose one of {', '.join(BACKENDS)}")
    try:
        return _load_unsloth(run) if backend == "unsloth" else _load_plain(run)
    except OSError as error:  # what Transformers raises for a model that is not there
        raise WorkbookError(
            f"the model {run.model!r} cannot be loaded ({first_line(error)}): check the name, "
            "and the network if it is a hub id"
        ) from error


def _load_unsloth(run: RunConfig):
    import unsloth  # isort: skip  (before transformers)
    import torch
    from transformers import set_seed

    loader = unsloth.FastModel if has_many_senses(run.model) else unsloth.FastLanguageModel
    # The CPU backend takes the text part anyway, and does not know the argument.
    text_only = loader is unsloth.FastModel and run.device != "cpu"
    checkpointing = "unsloth" if run.gradient_checkpointing else False
    # vLLM beside the training shares its weights with it; a server's is TRL's affair alone.
    vllm = {
        "fast_inference": True,
        "max_lora_rank": run.lora_rank,
        "gpu_memory_utilization": run.vllm_gpu_memory,
    }
    set_seed(run.seed)  # the adapters' initial weights
    model, tokenizer = loader.from_pretrained(
        model_name=run.model,
        max_seq_length=run.max_prompt_length + run.max_completion_length,
        dtype=getattr(torch, run.dtype),
        load_in_4bit=run.load_in_4bit,
        use_gradient_checkpointing=checkpointing,
        **(vllm if run.vllm == "colocate" else {}),
        **({"text_only": True} if text_only else {}),
    )
    model = loader.get_peft_model(
        model,
        r=run.lora_rank,
        lora_alpha=2 * run.lora_rank,
        lora_dropout=0.0,
        target_modules=list(TARGET_MODULES),
        use_gradient_checkpointing=checkpointing,
        random_state=run.seed,
    )
    tokenizer.padding_side = "left"  # a decoder continues its prompt: the padding stands before it
    return model, tokenizer


def _load_plain(run: RunConfig):
    """The same set-up without Unsloth."""
    import torch
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
    from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, set_seed

    set_seed(run.seed)
    dtype = getattr(torch, run.dtype)
    # Sharded 4-bit weights are stored in the type of the others, to be divided alike.
    storage = {"bnb_4bit_quant_storage": dtype} if sharded() else {}
    quantization = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
        **storage,
    )
    model = AutoModelForCausalLM.from_pretrained(
        run.model,
        dtype=dtype,
        device_map={"": torch.cuda.current_device()} if run.device == "cuda" else run.device,
        quantization_config=quantization if run.load_in_4bit else None,
    )
    # What Unsloth does too: bitsandbytes 0.50 repacks 4-bit weights on the CPU at the first
    # generation, and lets no gradient back through them after that.
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
    if run.load_in_4bit and not sharded():  # it makes the norms float32, and FSDP wants one type
        model = prepare_model_for_kbit_training(
            model, use_gradient_checkpointing=run.gradient_checkpointing
        )
    lora = LoraConfig(
        r=run.lora_rank,
        lora_alpha=2 * run.lora_rank,
        lora_dropout=0.0,
        target_modules=list(TARGET_MODULES),
        task_type="CAUSAL_LM",
    )
    tokenizer = AutoTokenizer.from_pretrained(run.model, padding_side="left")
    return get_peft_model(model, lora), tokenizer


def has_many_senses(model: str) -> bool:
    """Whether this hub id or folder is a checkpoint with vision or sound."""
    config = Path(model).expanduser() / "config.json"
    if config.is_file():
        return bool({"vision_config", "audio_config"} & json.loads(config.read_text()).keys())
    return model.rsplit("/", 1)[-1].lower().startswith(MANY_SENSES)


def sharded() -> bool:
    """Whether `accelerate launch` divides the weights among the processes (FSDP, DeepSpeed)."""
    names = ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED")
    return any(os.environ.get(name, "").lower() == "true" for name in names)


def why_not_plain(run: RunConfig) -> str | None:
    """Why plain Transformers + PEFT + TRL cannot train here, or None when it can."""
    from importlib.metadata import version

    from packaging.version import Version

    if run.device == "cpu" and Version(version("trl")) < Version("1.16"):
        return (
            f"TRL {version('trl')} computes log-probabilities in a Triton kernel, and Triton has "
            "no driver for a CPU (TRL 1.16 fixes it, but Unsloth does not accept it yet)"
        )
    return None


def count_4bit_layers(model: "PreTrainedModel") -> int:
    """How many linear layers really hold 4-bit weights: a fallback to 16-bit would pass unseen."""
    from bitsandbytes.nn import Linear4bit  # PEFT's wrapper around it has the same name

    return sum(isinstance(module, Linear4bit) for module in model.modules())


def count_trained_parameters(model: "PreTrainedModel") -> int:
    """How many single weights will receive a gradient: with LoRA, those of the adapters."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def make_trainer(
    run: RunConfig,
    model,
    tokenizer,
    dataset: "Dataset",
    rewards: Sequence[Callable],
    weights: Sequence[float] | None = None,
    overrides: dict | None = None,
) -> "GRPOTrainer":
    """TRL's own GRPOTrainer with this run's config and a progress bar that shows the reward.

    `overrides` are fields of GRPOConfig that win over the run's. Where several processes train,
    each samples with a seed of its own: the same numbers need the same number of processes.
    """
    from transformers import PrinterCallback
    from trl import GRPOTrainer

    processes = int(os.environ.get("WORLD_SIZE") or 1)
    args = run.to_grpo_config(weights, overrides, processes)
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
        raise WorkbookError(f"TRL does not take {overrides}: {error}") from error
    trainer.remove_callback(PrinterCallback)
    if trainer.is_world_process_zero():
        trainer.add_callback(RewardBar())
    return trainer


class Callback:
    """A Trainer callback that answers every event with nothing, until a method says otherwise.

    One with `state_dict()` and `load_state_dict(state)` has its state kept in checkpoints by the
    room `resume`.
    """

    def __getattr__(self, name: str):
        if name.startswith("on_"):
            return lambda *args, **kwargs: None
        raise AttributeError(name)


class RewardBar(Callback):
    """One line while training: steps done, mean reward, mean completion length."""

    def on_train_begin(self, args, state, control, **kwargs):
        from tqdm import tqdm

        # position 0: the bar of a run that an error ended stays open, and would push this one down
        total, done = state.max_steps, state.global_step
        self.bar = tqdm(
            total=total, initial=done, desc="training", unit="step", ncols=80, position=0
        )

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "reward" in (logs or {}):
            length = logs.get("completions/mean_length", logs.get("completion_length", 0.0))
            self.bar.set_postfix(reward=f"{logs['reward']:.2f}", tokens=f"{length:.0f}")

    def on_step_end(self, args, state, control, **kwargs):
        self.bar.update(state.global_step - self.bar.n)

    def on_train_end(self, args, state, control, **kwargs):
        self.bar.close()


class HeldoutProbe(Callback):
    """Samples one completion for each of a few held-out problems every N steps, and logs its worth.

    Logs heldout/strict, heldout/lenient and heldout/well_formed (rates) and heldout/seconds, at
    the start and then every `every` steps. At the default, 32 problems each 20 steps beside 64
    completions a step, it costs about 2 % of the time. `seen` keeps (step, completions). `judge`:
    see `evaluation.evaluate`. Raises WorkbookError for `every` under 1.
    """

    def __init__(
        self,
        model,
        tokenizer,
        dataset,
        *,
        max_new_tokens: int,
        every: int = 20,
        problems: int = 32,
        judge: Callable[[str, str], bool] | None = None,
    ):
        if every < 1:
            raise WorkbookError(f"every is {every}: give the steps between two looks, at least 1")
        self.model, self.tokenizer, self.every = model, tokenizer, every
        self.how = {"max_new_tokens": max_new_tokens, "judge": judge}
        self.dataset = dataset.select(range(min(problems, len(dataset))))
        self.seen: list[tuple[int, list[str]]] = []

    def state_dict(self) -> dict:
        """For a checkpoint: what was seen so far."""
        return {"seen": self.seen}

    def load_state_dict(self, state: dict) -> None:
        """Go on from `state_dict()`."""
        self.seen = [(step, texts) for step, texts in state["seen"]]

    def on_train_begin(self, args, state, control, **kwargs):
        if state.global_step == 0:
            self._measure(state)

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % self.every == 0:
            self._measure(state)

    def _measure(self, state):
        from grpo_workbook.evaluation import evaluate

        started = time.perf_counter()
        scores = evaluate(self.model, self.tokenizer, self.dataset, sample=True, **self.how)
        self.seen.append((state.global_step, scores.completions))
        rates = {
            f"heldout/{name}": sum(getattr(scores, name)) / scores.n
            for name in ("strict", "lenient", "well_formed")
        }
        seconds = time.perf_counter() - started
        state.log_history.append({**rates, "heldout/seconds": seconds, "step": state.global_step})


@contextmanager
def stop_on_interrupt(trainer: "GRPOTrainer"):
    """The first Ctrl-C ends training after the step under way and saves; the second stops at once.

    Of several processes all stop after the same step, whichever of them got the signal. Yields a
    dict whose "interrupted" says afterwards whether that happened.
    """
    from accelerate.utils import gather_object

    seen = {"interrupted": False}

    class Stop(Callback):
        def on_step_end(self, args, state, control, **kwargs):
            seen["interrupted"] = any(gather_object([seen["interrupted"]]))
            if seen["interrupted"]:
                control.should_save = control.should_training_stop = True
            return control

    def handle(signum, frame):
        if seen["interrupted"]:
            raise KeyboardInterrupt
        seen["interrupted"] = True
        print("\nCtrl-C: finishing this step, then saving (again: stop at once)", flush=True)

    trainer.add_callback(stop := Stop())
    main = threading.current_thread() is threading.main_thread()  # only it may handle signals
    before = signal.signal(signal.SIGINT, handle) if main else None
    try:
        yield seen
    finally:
        trainer.remove_callback(stop)
        if main:
            signal.signal(signal.SIGINT, before)
