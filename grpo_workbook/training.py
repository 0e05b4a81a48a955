"""Load a model in 4-bit, give it adapters, and make TRL's GRPOTrainer; callbacks beside it.

`import unsloth` must come before trl and transformers, which it patches: `load_policy` does that.
"""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    """The base model (4-bit NF4 unless the run says 16-bit) with fresh LoRA adapters; a tokenizer.

    `backend`: "unsloth", or "plain" for Transformers and PEFT alone. Raises WorkbookError for
    another, and for a model that cannot be loaded.
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


def _load_unsloth(run: RunConfig) -> tuple[Any, Any]:
    import unsloth  # isort: skip  (before transformers)
    import torch
    from transformers import set_seed

    loader: Any = unsloth.FastLanguageModel
    more: dict[str, Any] = {}
    if has_many_senses(run.model):
        loader = unsloth.FastModel
        # The CPU backend takes the text part anyway, and does not know the argument.
        more = {"text_only": True} if run.device != "cpu" else {}
    if run.vllm == "colocate":  # it shares its weights with the training; a server is TRL's affair
        more |= {"fast_inference": True, "max_lora_rank": run.lora_rank}
        more |= {"gpu_memory_utilization": run.vllm_gpu_memory}
    checkpointing = "unsloth" if run.gradient_checkpointing else False
    set_seed(run.seed)  # the adapters' initial weights
    model, tokenizer = loader.from_pretrained(
        model_name=run.model,
        max_seq_length=run.max_prompt_length + run.max_completion_length,
        dtype=getattr(torch, run.dtype),
        load_in_4bit=run.load_in_4bit,
        use_gradient_checkpointing=checkpointing,
        **more,
    )
    more = {"use_gradient_checkpointing": checkpointing, "random_state": run.seed}
    model = loader.get_peft_model(model, **_lora(run), **more)
    tokenizer.padding_side = "left"  # a decoder continues its prompt: the padding stands before it
    return model, tokenizer


def _lora(run: RunConfig) -> dict:
    rank, targets = run.lora_rank, list(TARGET_MODULES)
    return {"r": rank, "lora_alpha": 2 * rank, "lora_dropout": 0.0, "target_modules": targets}


def _load_plain(run: RunConfig) -> tuple[Any, Any]:
    """The same set-up without Unsloth."""
    import torch
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
    from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, set_seed

    set_seed(run.seed)
    dtype, checkpointing = getattr(torch, run.dtype), run.gradient_checkpointing
    four_bit = {
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": True,
        "bnb_4bit_compute_dtype": dtype,
    }
    if sharded():  # the packed weights in the type of the others, to be divided alike
        four_bit["bnb_4bit_quant_storage"] = dtype
    model = AutoModelForCausalLM.from_pretrained(
        run.model,
        dtype=dtype,
        device_map={"": torch.cuda.current_device()} if run.device == "cuda" else run.device,
        quantization_config=BitsAndBytesConfig(**four_bit) if run.load_in_4bit else None,
    )
    # What Unsloth does too: bitsandbytes 0.50 repacks 4-bit weights on the CPU at the first
    # generation, and lets no gradient back through them after that.
    layers: Any = model.modules()
    for layer in layers:
        if hasattr(layer, "support_avx512bf16_for_cpu"):
            layer.support_avx512bf16_for_cpu = False
    if run.load_in_4bit and not sharded():  # it makes the norms float32, and FSDP wants one type
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=checkpointing)
    model = get_peft_model(model, LoraConfig(**_lora(run), task_type="CAUSAL_LM"))
    return model, AutoTokenizer.from_pretrained(run.model, padding_side="left")


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
    from bitsandbytes.nn.modules import Linear4bit  # PEFT's wrapper around it has the same name

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

    args = run.to_grpo_config(weights, overrides, int(os.environ.get("WORLD_SIZE") or 1))
    try:
        trainer: Any = GRPOTrainer(model, list(rewards), args, dataset, processing_class=tokenizer)
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

    It derives from no class of Transformers, which may be loaded only after Unsloth. One with
    `state_dict()` and `load_state_dict(state)` has its state kept in checkpoints, see `resume`.
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
        how = {"desc": "training", "unit": "step", "ncols": 80, "position": 0}
        self.bar = tqdm(total=state.max_steps, initial=state.global_step, **how)

    def on_log(self, args, state, control, logs, **kwargs):
        if "reward" in logs:
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
    completions a step, it costs about 2 % of the time. `seen` keeps (step, completions). `how`:
    max_new_tokens, judge and what else `evaluation.evaluate` takes.
    """

    def __init__(self, model, tokenizer, dataset, *, every: int = 20, problems: int = 32, **how):
        if every < 1:
            raise WorkbookError(f"every is {every}: give the steps between two looks, at least 1")
        self.model, self.tokenizer, self.every, self.how = model, tokenizer, every, how
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
            self.measure(state)

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % self.every == 0:
            self.measure(state)

    def measure(self, state) -> None:
        """Look now: the rates go into the log of this step."""
        from grpo_workbook.evaluation import evaluate

        started = time.perf_counter()
        scores = evaluate(self.model, self.tokenizer, self.dataset, sample=True, **self.how)
        self.seen.append((state.global_step, scores.completions))
        names = ("strict", "lenient", "well_formed")
        rates = {f"heldout/{name}": sum(getattr(scores, name)) / scores.n for name in names}
        rates["heldout/seconds"] = time.perf_counter() - started
        state.log_history.append({**rates, "step": state.global_step})


@contextmanager
def stop_on_interrupt(trainer: Any):
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
