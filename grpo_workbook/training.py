"""Load a policy, and what a GRPO training takes besides TRL's own parts.

`load_policy` gives a 4-bit model with LoRA adapters: new ones, or those of an earlier training.
`Float32Adapters`, `RewardBar` and `HeldoutProbe` are callbacks for TRL's GRPOTrainer. `pass_rates`
and `curriculum` choose problems by their difficulty before a training.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from types import MethodType
from typing import Any

from grpo_workbook import compat, models
from grpo_workbook.config import TARGET_MODULES, Profile
from grpo_workbook.data import load_tokenizer
from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.evaluation import CorrectnessJudge, by_problem, evaluate
from grpo_workbook.export import save_adapter
from grpo_workbook.models import load_base, text_part
from grpo_workbook.rewards import correctness_reward
from grpo_workbook.statistics import fewest_problems, has_fallen

# The largest 4-bit model that is unpacked to sample: in float32 it has eight times as much, 1 GiB.
UNPACKED_BYTES = 2**27


# ------------------------------------------------------------------ the policy


def load_policy(
    profile: Profile, backend: str = "unsloth", *, adapter: str | Path | None = None
) -> tuple[Any, Any]:
    """The base model with LoRA adapters that can be trained, and its tokenizer.

        model, tokenizer = load_policy(profile)  # new adapters, which change nothing yet
        model, tokenizer = load_policy(profile, adapter="sft/adapter")  # trains this one on

    Args:
        profile: names the model and how it is loaded (`profile.loader`, `profile.lora`).
        backend: "unsloth", or "plain" for Transformers and PEFT alone.
        adapter: the folder of a LoRA adapter of this model, for example of supervised fine-tuning
            (SFT). Its rank, alpha and layers count instead of the profile's. A tokenizer in its
            folder is used, because its chat template is that of its training. With `beta` above 0
            the reference of the KL penalty is a copy of this adapter in TRL, and the model without
            it in Unsloth's trainer on a GPU (see `compat.reference_of`).

    Raises:
        WorkbookError: for an unknown backend, for a model that cannot be loaded, and for an adapter
            that is not one of LoRA, or is of another model.
    """
    if backend not in ("unsloth", "plain"):
        raise WorkbookError(f"unknown backend {backend!r}: choose one of unsloth, plain")
    # Before anything is loaded, because a wrong folder costs no time here.
    if adapter is not None:
        adapter = models.find_adapter_of(profile.model, adapter)
    if backend == "unsloth":
        model, tokenizer = _load_with_unsloth(profile, adapter)
    else:
        model, tokenizer = _load_plain(profile, adapter)
    if adapter is None:
        _require_layers(model, profile)
    else:
        # The layers are new ones of the adapter's form, made as for any policy. So all that Unsloth
        # does to them, beside a vLLM too, is done, and only the weights are missing.
        models.load_weights(model, adapter, profile.model)
        # PEFT alone saves no tokenizer. An SFT may have changed the chat template.
        if (Path(adapter) / "tokenizer_config.json").is_file():
            tokenizer = load_tokenizer(adapter)
    sample_unpacked(model)
    return model, tokenizer


def _load_with_unsloth(profile: Profile, adapter: str | None) -> tuple[Any, Any]:
    if profile.loader.get("fast_inference"):
        compat.let_vllm_sleep()
    import unsloth  # isort: skip  (before trl and transformers, which it patches)
    from transformers import set_seed

    compat.refuse_mlx()
    set_seed(profile.seed)  # the adapters' initial weights
    if adapter is not None:
        profile = _with_layers_of(adapter, profile)
    lora = dict(profile.lora)
    try:
        library: Any = unsloth.FastLanguageModel
        only_text = text_part(profile.model)  # empty for a model of text alone
        if only_text:
            # A model with vision or sound: only its text part is trained. Unsloth has an argument
            # of its own for this, which works only on a GPU.
            library = unsloth.FastModel
            if profile.device != "cpu":
                only_text = {"text_only": True}
            # A vLLM that runs beside the training refuses adapters of the other parts.
            lora["finetune_vision_layers"] = False
        model, tokenizer = library.from_pretrained(**profile.loader, **only_text)
    except Exception as error:  # a damaged file can raise anything
        raise WorkbookError(
            f"the model {profile.model!r} cannot be loaded ({first_line(error)}): "
            "check the name, and the network for a hub id"
        ) from error
    try:
        model = library.get_peft_model(model, **lora)
    except ValueError as error:
        raise _no_layers(profile, error) from error
    compat.keep_float32(profile.dtype)
    tokenizer.padding_side = "left"  # a decoder continues its prompt, so padding comes before it
    return model, tokenizer


def _with_layers_of(adapter: str, profile: Profile) -> Profile:
    """The profile with the adapter's rank, alpha and layers. Call it after `import unsloth`."""
    lora = {**profile.lora, **models.lora_settings(adapter)}
    loader = dict(profile.loader)
    if "max_lora_rank" in loader:  # of the vLLM that samples
        loader["max_lora_rank"] = lora["r"]
    return replace(profile, lora=lora, loader=loader)


def _load_plain(profile: Profile, adapter: str | None) -> tuple[Any, Any]:
    """The same model and adapters without Unsloth."""
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
    from transformers import set_seed

    set_seed(profile.seed)
    if adapter is not None:
        profile = _with_layers_of(adapter, profile)
    load_in_4bit = profile.loader["load_in_4bit"]
    model = load_base(profile.model, profile.dtype, profile.device, load_in_4bit)
    compat.keep_packed_weights(model)
    if load_in_4bit:  # it makes the norms and embeddings float32
        checkpointing = profile.grpo["gradient_checkpointing"]
        model = prepare_model_for_kbit_training(model, checkpointing)
    settings = dict(profile.lora)
    for name in ("use_gradient_checkpointing", "random_state"):  # Unsloth's, not PEFT's
        del settings[name]
    experts = compat.expert_parameters(model, settings["target_modules"])
    if experts:
        settings.setdefault("target_parameters", experts)
    adapters = LoraConfig(**settings, task_type="CAUSAL_LM")
    try:
        return get_peft_model(model, adapters), load_tokenizer(profile.model)
    except ValueError as error:
        raise _no_layers(profile, error) from error


def _no_layers(profile: Profile, error: Exception) -> WorkbookError:
    return WorkbookError(
        f"{profile.model} cannot get adapters on {profile.lora['target_modules']} "
        f"({first_line(error)}): give other target_modules"
    )


def _require_layers(model: Any, profile: Profile) -> None:
    """Raise WorkbookError for a misspelt name in target_modules, which no layer has.

    PEFT leaves it out without a word where it finds another one. The usual names are no error: a
    model may have only some of them.
    """
    known = {name.split(".")[-1] for name, _ in model.named_modules()}.union(TARGET_MODULES)
    for name in profile.lora["target_modules"]:
        if name.split(".")[-1] not in known:
            raise _no_layers(profile, ValueError(f"it has no {name}"))


def count_4bit_layers(model: Any) -> int:
    """The number of linear layers with 4-bit weights; 0 after a fallback to 16-bit."""
    from bitsandbytes.nn.modules import Linear4bit  # PEFT's wrapper around it has the same name

    return sum(isinstance(module, Linear4bit) for module in model.modules())


def sample_unpacked(model: Any) -> None:
    """Let a 4-bit model with LoRA adapters sample in about half the time on a CPU.

        model = get_peft_model(base, config)
        sample_unpacked(model)  # once; `generate` follows the adapters as they learn
        GRPOTrainer(model, ...).train()

    While it generates, each layer with its adapter is one matrix, where packed layers are unpacked
    for each token: the same function up to rounding. It changes nothing on a GPU, nor for a model
    of more than 1 GiB in float32.
    """
    if model.device.type == "cpu" and model.get_memory_footprint() < UNPACKED_BYTES:
        model.generate = MethodType(_generate_unpacked, model)


def _generate_unpacked(model: Any, *args: Any, **kwargs: Any) -> Any:
    """`model.generate` with the layers of `sample_unpacked`."""
    from peft.tuners.lora import LoraLayer

    layers: list[Any] = [module for module in model.modules() if isinstance(module, LoraLayer)]
    for layer in layers:
        _unpack(layer, model.dtype)
    try:
        with compat.grouped_heads_without_copies():
            return type(model).generate(model, *args, **kwargs)
    finally:
        for layer in layers:
            vars(layer).pop("forward", None)


def _unpack(layer: Any, dtype: Any) -> None:
    """Let a 4-bit layer with its adapter compute with one matrix: W + (alpha / r) B A."""
    import torch
    from bitsandbytes.functional import dequantize_4bit

    base = layer.get_base_layer()
    # The experts of a mixture are no layer with a weight; they stay as they are.
    quant_state = getattr(getattr(base, "weight", None), "quant_state", None)
    if not quant_state or compat.is_packed_again(quant_state):
        return
    if layer.disable_adapters or layer.lora_variant:  # a variant, such as DoRA, is no plain sum
        return
    matrix = dequantize_4bit(base.weight.data, quant_state).to(dtype)
    matrix += sum(layer.get_delta_weight(name).detach() for name in layer.active_adapters)
    layer.forward = partial(torch.nn.functional.linear, weight=matrix, bias=base.bias)


# ------------------------------------------------------------------ callbacks


class Callback:
    """A callback for a Trainer. It ignores the events for which a subclass has no method.

    It does not inherit from Transformers' TrainerCallback: to import that would load Transformers,
    which must be loaded after Unsloth.
    """

    def __getattr__(self, name: str) -> Callable:
        if name.startswith("on_"):
            return lambda *args, **kwargs: None
        raise AttributeError(name)


class Float32Adapters(Callback):
    """Keeps the LoRA adapters of a quantized model in float32.

        trainer = GRPOTrainer(model, ..., callbacks=[Float32Adapters(model)])

    TRL 1.15 casts them to bfloat16 when the trainer is built, where a weight of 0.01 cannot take a
    step of 1e-5. This object remembers the weights before, and puts them back, with the digits that
    the cast took, when the trainer is complete. On a GPU Unsloth removes the cast.
    """

    def __init__(self, model: Any):
        self.adapters = []
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                self.adapters.append((parameter, parameter.data))

    def on_init_end(self, args, state, control, **kwargs):
        for parameter, exact in self.adapters:
            parameter.data = exact.float()


class RewardBar(Callback):
    """One line while training: steps done, mean reward, mean completion length in tokens."""

    bar: Any = None  # tqdm's, from the start of training on

    def on_train_begin(self, args, state, control, **kwargs):
        from tqdm import tqdm

        self.bar = tqdm(
            desc="training",
            total=state.max_steps,
            initial=state.global_step,
            unit="step",
            ncols=80,
            position=0,  # the bar of a failed run stays open, and would push this one down
            disable=not state.is_world_process_zero,
        )

    def on_log(self, args, state, control, logs, **kwargs):
        if logs.get("reward") is None:  # no reward applied in this step
            return
        # Unsloth's name on a GPU is the second one
        length = logs.get("completions/mean_length", logs.get("completion_length", 0.0))
        self.bar.set_postfix(reward=f"{logs['reward']:.2f}", tokens=f"{length:.0f}")

    def on_step_end(self, args, state, control, **kwargs):
        self.bar.update(state.global_step - self.bar.n)

    def on_train_end(self, args, state, control, **kwargs):
        self.bar.close()


class HeldoutProbe(Callback):
    """Measures the policy on a few held-out problems, at the start and then every N steps.

        trainer = GRPOTrainer(model, ..., callbacks=[HeldoutProbe(model, tokenizer, heldout)])

    It samples one completion for each problem at temperature 1, with the chat_template_kwargs of
    the trainer's GRPOConfig, and logs the rates heldout/strict, heldout/lenient and
    heldout/well_formed, and heldout/seconds. `seen` keeps (step, completions) of each probe, and
    `best` the step with the most strictly right completions.

    Args:
        model: the policy that is trained.
        tokenizer: its tokenizer.
        dataset: rows with prompt and answer; training must never see them.
        every: steps between two probes.
        problems: how many of the rows are answered, the first ones.
        keep: a folder for the adapter of the step with the best heldout/strict. No reward takes
            part in this choice, so a policy that exploits the reward gains nothing by it.
        stop: whether training ends when fewer completions are right than at the best step,
            however high the reward is by then. `statistics.has_fallen` decides: it stops at most
            5 % of the runs whose accuracy stays level. A loss of 20 points is found in four of
            five runs with 64 problems, and in about half of them with 32.
        judge, max_new_tokens, batch_size, seed: as in `evaluation.evaluate`.

    Raises:
        WorkbookError: if `every` is less than 1; with `stop`, when the training begins, if there
            are so few problems or probes that it could never stop.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        dataset: Any,
        *,
        every: int = 20,
        problems: int = 32,
        keep: str | Path | None = None,
        stop: bool = False,
        judge: CorrectnessJudge | None = None,
        max_new_tokens: int = 256,
        batch_size: int = 32,
        seed: int = 0,
    ):
        if every < 1:
            raise WorkbookError(f"every is {every}: give the steps between two probes, at least 1")
        self.model = model
        self.tokenizer = tokenizer
        self.dataset = dataset.select(range(min(problems, len(dataset))))
        self.every = every
        self.keep = keep
        self.stop = stop
        self.judge = judge
        self.max_new_tokens = max_new_tokens
        self.batch_size = batch_size
        self.seed = seed
        self.best: dict[str, Any] = {"step": -1, "strict": []}
        self.seen: list[tuple[int, list[str]]] = []

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return {"seen": self.seen, "best": self.best}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict()`."""
        self.seen = [(step, texts) for step, texts in state["seen"]]
        self.best = state["best"]

    def probes(self, state: Any) -> int:
        """How many probes the whole training has, with the one before its first step."""
        return state.max_steps // self.every + 1

    def _require_problems(self, probes: int) -> None:
        """Raise WorkbookError if so many probes of these problems could never show a fall."""
        problems, needed = len(self.dataset), fewest_problems(probes)
        if problems < needed:
            raise WorkbookError(
                f"stop is True with {problems} problems and {probes} probes: if all problems were "
                f"lost, that could still be chance. Give at least {needed} problems, or a larger "
                "`every` for fewer probes"
            )

    def on_train_begin(self, args, state, control, **kwargs):
        if self.stop:
            self._require_problems(self.probes(state))
        if state.global_step == 0:
            self.on_step_end(args, state, control)

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % self.every != 0:
            return
        started = time.perf_counter()
        scores = evaluate(
            self.model,
            self.tokenizer,
            self.dataset,
            sample=True,
            judge=self.judge,
            max_new_tokens=self.max_new_tokens,
            batch_size=self.batch_size,
            seed=self.seed,
            # For TRL None means no options, and for `evaluate` the course's.
            chat_template_kwargs=args.chat_template_kwargs or {},
        )
        self.seen.append((state.global_step, scores.completions))
        if self.best["step"] < 0 or sum(scores.strict) > sum(self.best["strict"]):
            self.best = {"step": state.global_step, "strict": scores.strict}
            if self.keep is not None and state.is_world_process_zero:
                save_adapter(self.model, self.tokenizer, self.keep)
        elif self.stop and has_fallen(self.best["strict"], scores.strict, self.probes(state)):
            if state.is_world_process_zero:
                print(f"\nHeld-out accuracy has fallen: the best step was {self.best['step']}")
            control.should_training_stop = True
        state.log_history.append(
            {
                "heldout/strict": fmean(scores.strict),
                "heldout/lenient": fmean(scores.lenient),
                "heldout/well_formed": fmean(scores.well_formed),
                "heldout/seconds": time.perf_counter() - started,
                "step": state.global_step,
            }
        )


# ------------------------------------------------------------------ problems by difficulty


def pass_rates(
    model: Any,
    tokenizer: Any,
    dataset: Any,
    samples: int = 8,
    *,
    success: Callable = correctness_reward,
    max_new_tokens: int = 256,
    batch_size: int = 32,
    seed: int = 0,
    chat_template_kwargs: Mapping[str, Any] | None = None,
    progress: str | None = "pass rates",
) -> list[float]:
    """How often each problem is solved at temperature 1.

    Args:
        model, tokenizer: the policy.
        dataset: rows with `prompt` and the columns that `success` reads.
        samples: completions for each row.
        success: a reward function; from 0.5 on a completion counts as solved. None, which means
            that the reward does not apply, does not.
        max_new_tokens, batch_size, seed, chat_template_kwargs, progress: as in
            `evaluation.evaluate`.

    Returns:
        For each row the fraction of its completions that are solved.

    Raises:
        WorkbookError: for no rows, or fewer than one sample.
    """
    if len(dataset) == 0 or samples < 1:
        raise WorkbookError(f"{len(dataset)} rows, {samples} completions each: give at least 1")
    scores = evaluate(
        model,
        tokenizer,
        dataset,
        samples=samples,
        rewards=[success],
        right_at=0.5,
        sample=True,
        max_new_tokens=max_new_tokens,
        batch_size=batch_size,
        seed=seed,
        chat_template_kwargs=chat_template_kwargs,
        progress=progress,
    )
    return by_problem(scores.strict, samples)


@dataclass(frozen=True)
class Curriculum:
    """The rows to train on, and how many are left out for which reason."""

    rows: list[int]  # their indices, the easiest first
    left_out: dict[str, int]  # hopeless (never right), too hard, too easy, mastered (always right)

    def __str__(self) -> str:
        counts = [f"{count} {reason}" for reason, count in self.left_out.items() if count]
        return f"{len(self.rows)} rows can teach; left out: {', '.join(counts) or 'none'}"


def curriculum(rates: Sequence[float], low: float = 0.0, high: float = 1.0) -> Curriculum:
    """The rows that can teach: low < pass rate < high, the easiest first (equal ones in order).

    Args:
        rates: the pass rate of each row, from `pass_rates`.
        low, high: the bounds. 0 and 1 leave out only the rows that are never or always solved: in
            their groups all rewards are equal, and so all advantages 0.

    Raises:
        WorkbookError: for invalid bounds, and if no row is left.
    """
    if not 0 <= low < high <= 1:
        raise WorkbookError(f"the bounds are {low!r} and {high!r}: give 0 <= low < high <= 1")
    rows = []
    left_out = {"hopeless": 0, "too hard": 0, "too easy": 0, "mastered": 0}
    for row, rate in enumerate(rates):
        if low < rate < high:
            rows.append(row)
        elif rate == 0:
            left_out["hopeless"] += 1
        elif rate == 1:
            left_out["mastered"] += 1
        elif rate <= low:
            left_out["too hard"] += 1
        else:
            left_out["too easy"] += 1
    rows.sort(key=lambda row: -rates[row])
    chosen = Curriculum(rows, left_out)
    if not rows:
        raise WorkbookError(
            f"no row of {len(rates)} has a pass rate between {low:g} and {high:g} ({chosen}): "
            "widen the bounds, or start with an easier task"
        )
    return chosen
