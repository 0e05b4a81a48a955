"""Profiles: the settings that fit a machine, as plain values for Unsloth and TRL.

`choose_profile` looks at the GPU, at the environment and at its arguments, and returns a `Profile`.
Three of its fields are dicts of arguments: `loader` for FastLanguageModel.from_pretrained, `lora`
for FastLanguageModel.get_peft_model, and `grpo` for TRL's GRPOConfig. The values are in
profiles.toml. Nothing here changes the environment, the number of threads or a library.
"""

import difflib
import json
import os
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from grpo_workbook import compat
from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import REPO, readable

DATA = REPO / "data"
FAMILIES = ("qwen", "gemma")
DTYPES = ("float32", "float16", "bfloat16")
SYSTEM_PROMPT = "Work inside <reasoning> tags, then give the number inside <answer> tags."
REWARDS = "correctness:2,strict_format:0.5,incremental_format:0.5"  # name:weight of the course
TARGET_MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
BATCH = ("per_device_train_batch_size", "gradient_accumulation_steps")  # the completions of a step


def _read_profiles() -> dict[str, dict[str, Any]]:
    """The tables of profiles.toml by name, each with the values that all share."""
    text = Path(__file__).with_name("profiles.toml").read_text(encoding="utf-8")
    profiles = tomllib.loads(text)
    shared = profiles.pop("shared")
    for profile in profiles.values():
        profile["grpo"] = {**shared["grpo"], **profile["grpo"]}
    for family in FAMILIES:
        # The tiny models are folders of a clone. Those of the other profiles are hub ids.
        profiles["smoke"][family] = str(REPO / profiles["smoke"][family])
    return profiles


PROFILES = _read_profiles()
CHAT_TEMPLATE_KWARGS = PROFILES["smoke"]["grpo"]["chat_template_kwargs"]


@dataclass(frozen=True)
class Profile:
    """The settings for one machine, one model and one folder. `print(profile)` shows why."""

    name: str  # "smoke", "t4", "24gb" or "80gb"
    device: str  # "cpu" or "cuda"
    model: str  # the model's folder, or its id on the Hugging Face hub
    family: str  # "qwen", "gemma", or the name of another model
    seed: int  # of the adapters' first weights, the order of the data and all sampling
    output: Path  # the folder for all results
    dtype: str  # of the weights that are not 4-bit, and of the arithmetic
    max_prompt_length: int  # in tokens; drop longer prompts, because TRL does not truncate them
    heldout: int  # number of held-out problems
    eval_batch_size: int  # prompts that are answered at once in an evaluation
    loader: dict[str, Any]  # arguments of Unsloth's FastLanguageModel.from_pretrained
    lora: dict[str, Any]  # arguments of Unsloth's FastLanguageModel.get_peft_model
    grpo: dict[str, Any]  # arguments of TRL's GRPOConfig, besides output_dir and reward_weights
    system_prompt: str  # the instruction before each question
    reasons: dict[str, str] = field(default_factory=dict, compare=False)

    @property
    def thinking(self) -> bool | None:
        """Whether the chat template is asked for thoughts; None where that is left to it."""
        options = self.grpo["chat_template_kwargs"] or {}
        return options.get("enable_thinking")

    @property
    def model_name(self) -> str:
        """The model's name in reports: a hub id, or a path relative to the project's folder."""
        return self.model.removeprefix(f"{REPO}{os.sep}")

    def __str__(self) -> str:
        # What may have a reason; a line is shown for each one that has.
        values = {
            "device": self.device,
            "profile": self.name,
            "model": f"{readable(self.model)} ({self.family})",
            "seed": self.seed,
            "output": readable(self.output),
            "dtype": self.dtype,
            "use_vllm": self.grpo["use_vllm"],
            "thinking": self.thinking,
        }
        lines = []
        for name, reason in self.reasons.items():
            lines.append(f"{name:<8} {values[name]!s:<28} {reason}")
        grpo = self.grpo
        completions = grpo["per_device_train_batch_size"] * grpo["gradient_accumulation_steps"]
        base = "4-bit NF4" if self.loader["load_in_4bit"] else "16-bit"
        sampler = ", vLLM samples" if grpo["use_vllm"] else ""
        lines.append(
            f"training {grpo['max_steps']} steps of {completions} completions in groups of "
            f"{grpo['num_generations']}{sampler},"
        )
        lines.append(
            f"         {base} base, LoRA rank {self.lora['r']}, "
            f"learning rate {grpo['learning_rate']:g}"
        )
        return "\n".join(lines)


def choose_profile(
    name: str | None = None,
    *,
    model: str | Path | None = None,
    seed: int | None = None,
    output: str | Path | None = None,
    default: str | None = None,
    dtype: str | None = None,
    load_in_4bit: bool | None = None,
    lora_rank: int | None = None,
    target_modules: Sequence[str] = TARGET_MODULES,
    max_prompt_length: int | None = None,
    heldout: int | None = None,
    eval_batch_size: int | None = None,
    system_prompt: str = SYSTEM_PROMPT,
    thinking: bool | None = None,
    grpo: dict[str, Any] | None = None,
) -> Profile:
    """The settings for this machine.

        profile = choose_profile(default="smoke", grpo={"max_steps": 30})
        args = GRPOConfig(output_dir=str(profile.output / "checkpoints"), **profile.grpo)

    Args:
        name: smoke, t4, 24gb or 80gb. If it is None, the environment's GRPO_WORKBOOK_PROFILE
            counts, then `default`, then the profile that fits the GPU's memory.
        model: a family (qwen, gemma), a folder, or a hub id; if None GRPO_WORKBOOK_MODEL or qwen.
        seed: a whole number from 0; if None GRPO_WORKBOOK_SEED or 0.
        output: the folder for all results; if None GRPO_WORKBOOK_OUTPUT or outputs/run.
        default: the profile of a chapter that takes minutes on any machine.
        dtype: float32, float16 or bfloat16; if None the profile's, or float16 where the GPU has no
            bfloat16.
        load_in_4bit: whether the base is loaded in NF4, as in QLoRA; True if None.
        lora_rank: r of LoRA (Hu et al., arXiv 2106.09685); its alpha is twice as much.
        target_modules: the layers that get adapters, by the last part of their names. The MLP's
            three are also the experts of a mixture of experts, whose adapters take much memory.
        max_prompt_length: in tokens.
        heldout: number of held-out problems.
        eval_batch_size: prompts that are answered at once in an evaluation.
        system_prompt: the instruction before each question.
        thinking: whether the chat template is asked for thoughts. True also makes completions
            longer, as the profile's table `thinking` says. If None it is not, and the lengths stay.
            If `grpo` has a batch size or accumulation steps, the table's are left out.
        grpo: arguments of GRPOConfig that replace the profile's.

    Raises:
        WorkbookError: for an unknown name, a value that is not possible, a profile of a GPU
            without one, `use_vllm` where vLLM cannot run, and chat_template_kwargs in `grpo` that
            contradict `thinking`.
    """
    # Each of these comes from an argument, the environment or a default.
    reasons = {}
    device, gpu_gib, reasons["device"] = find_device()
    profile_name, reasons["profile"] = _choose_name(name, default, device, gpu_gib)
    model_name, reasons["model"] = _choose("model", model, "qwen", "the default family")
    seed_or_text, reasons["seed"] = _choose("seed", seed, 0, "the default")
    output_folder, reasons["output"] = _choose("output", output, "outputs/run", "the default")
    if not str(output_folder).strip():
        raise WorkbookError(f"output is {output_folder!r}: it must be the name of a folder")
    model_path = find_model(model_name, profile_name)
    seed = _whole("seed", seed_or_text, least=0)

    # The profile's values, except for those that the caller or the GPU replaces.
    replaced = {
        "dtype": dtype,
        "load_in_4bit": load_in_4bit,
        "lora_rank": lora_rank,
        "max_prompt_length": max_prompt_length,
        "heldout": heldout,
        "eval_batch_size": eval_batch_size,
    }
    settings = _settings(profile_name, replaced)
    if _needs_float16(settings["dtype"], dtype, device, model_path):
        settings["dtype"] = "float16"
        reasons["dtype"] = "the GPU has no bfloat16"
    changes = grpo or {}
    if thinking is not None:
        # What the user names wins here, too: a shorter limit for thoughts is no contradiction.
        changes = {**_thinking_arguments(settings, thinking, changes), **changes}
        check_thinking(thinking, changes["chat_template_kwargs"])
        reasons["thinking"] = "given as an argument"
    grpo_arguments = _grpo_arguments(settings, changes, device, seed)
    if grpo_arguments["use_vllm"] and (device == "cpu" or find_spec("vllm") is None):
        missing = "vLLM needs a CUDA GPU, and to be installed"
        # A user's vLLM is an error where it cannot run. A profile's is left out, with a reason.
        if grpo is not None and grpo.get("use_vllm"):
            raise WorkbookError(f"use_vllm is True and {missing} (.[vllm]): use_vllm=False")
        grpo_arguments["use_vllm"] = False
        reasons["use_vllm"] = missing
    return Profile(
        name=profile_name,
        device=device,
        model=model_path,
        family=_family(model_path),
        seed=seed,
        output=Path(output_folder),
        dtype=settings["dtype"],
        max_prompt_length=settings["max_prompt_length"],
        heldout=settings["heldout"],
        eval_batch_size=settings["eval_batch_size"],
        loader=_loader_arguments(settings, grpo_arguments, model_path),
        lora=_lora_arguments(settings, target_modules, grpo_arguments, seed),
        grpo=grpo_arguments,
        system_prompt=system_prompt,
        reasons=reasons,
    )


def _choose_name(
    requested: str | None, default: str | None, device: str, gpu_gib: float
) -> tuple[str, str]:
    """The name of the profile, and why it is this one."""
    if default is None:
        default, reason = _fitting_profile(device, gpu_gib)
    else:
        reason = "the chapter's: minutes on any machine"
    name, reason = _choose("profile", requested, default, reason)
    if name not in PROFILES:
        raise WorkbookError(f"unknown profile {name!r}: {nearest(name, PROFILES)}")
    if name != "smoke" and device == "cpu":
        raise WorkbookError(f"profile {name!r} needs a CUDA GPU, torch sees none: use smoke")
    return name, reason


def _settings(name: str, replaced: dict[str, Any]) -> dict[str, Any]:
    """The profile's values, and those of `replaced` that are not None, checked."""
    settings = {"load_in_4bit": True, **PROFILES[name]}
    for key, value in replaced.items():
        if value is not None:
            settings[key] = value
    for key in ("lora_rank", "max_prompt_length", "heldout", "eval_batch_size"):
        settings[key] = _whole(key, settings[key], least=1)
    if settings["dtype"] not in DTYPES:
        raise WorkbookError(f"dtype is {settings['dtype']!r}: choose one of {', '.join(DTYPES)}")
    return settings


def _thinking_arguments(
    settings: dict[str, Any], thinking: bool, named: Iterable[str]
) -> dict[str, Any]:
    """The arguments of GRPOConfig that follow from the choice to think or not.

    `named` are those that the user gives.
    """
    options = {**settings["grpo"]["chat_template_kwargs"], "enable_thinking": thinking}
    # Without thoughts the profile's own lengths are those of answers.
    if not thinking:
        return {"chat_template_kwargs": options}
    return {**lengths_of_thoughts(settings["thinking"], named), "chat_template_kwargs": options}


def lengths_of_thoughts(table: dict[str, Any], named: Iterable[str]) -> dict[str, Any]:
    """The values of a profile's table `thinking` that count beside those that a user names.

    Its batch size and accumulation steps count together or not at all: one of them with the user's
    other one would change the number of completions in a step.
    """
    if set(BATCH).isdisjoint(named):
        return table
    return {name: value for name, value in table.items() if name not in BATCH}


def check_thinking(thinking: bool, chat_template_kwargs: dict[str, Any] | None) -> None:
    """Raise WorkbookError if the template's options do not say what `thinking` says."""
    options = chat_template_kwargs or {}
    if options.get("enable_thinking") != thinking:
        raise WorkbookError(
            f"thinking is {thinking}, and chat_template_kwargs is {options}: give one of the two, "
            "or the same value in both"
        )


def _grpo_arguments(settings: dict, changes: dict, device: str, seed: int) -> dict[str, Any]:
    """The arguments of GRPOConfig: the profile's, those of the machine, and the user's changes."""
    arguments = dict(settings["grpo"])
    arguments["seed"] = seed
    arguments["data_seed"] = seed
    arguments["bf16"] = settings["dtype"] == "bfloat16"
    arguments["fp16"] = settings["dtype"] == "float16"
    arguments["use_cpu"] = device == "cpu"
    # Pinned memory speeds up copies to a GPU. Without a GPU torch warns of it.
    arguments["dataloader_pin_memory"] = device != "cpu"
    # Last, so that what the user names wins over profile and machine.
    arguments.update(changes)
    longest = settings["max_prompt_length"] + arguments["max_completion_length"]
    # Else vLLM takes the model's own maximum, for which its cache may be too small.
    arguments.setdefault("vllm_max_model_length", longest)
    return arguments


def _loader_arguments(settings: dict, grpo: dict, model: str) -> dict[str, Any]:
    """The arguments of Unsloth's from_pretrained."""
    import torch

    arguments = {
        "model_name": model,
        "dtype": getattr(torch, settings["dtype"]),
        "max_seq_length": settings["max_prompt_length"] + grpo["max_completion_length"],
        "load_in_4bit": settings["load_in_4bit"],
        # Without it Unsloth loads the 4-bit weights of another repository, partly in 16 bits.
        "use_exact_model_name": True,
        "use_gradient_checkpointing": "unsloth" if grpo["gradient_checkpointing"] else False,
    }
    if grpo["use_vllm"] and grpo["vllm_mode"] == "colocate":
        # This vLLM shares its weights with the training; TRL talks to a server by itself.
        arguments["fast_inference"] = True
        arguments["max_lora_rank"] = settings["lora_rank"]
        arguments["gpu_memory_utilization"] = grpo["vllm_gpu_memory_utilization"]
    return arguments


def _lora_arguments(
    settings: dict, target_modules: Sequence[str], grpo: dict, seed: int
) -> dict[str, Any]:
    """The arguments of Unsloth's get_peft_model."""
    if isinstance(target_modules, str) or len(target_modules) == 0:
        raise WorkbookError(f"target_modules is {target_modules!r}: give a list of layers' names")
    return {
        "r": settings["lora_rank"],
        "lora_alpha": 2 * settings["lora_rank"],
        "lora_dropout": 0.0,
        "target_modules": list(target_modules),
        "use_gradient_checkpointing": "unsloth" if grpo["gradient_checkpointing"] else False,
        "random_state": seed,
    }


def check_grpo_config(args: Any, *, backend: str, load_in_4bit: bool) -> None:
    """Raise WorkbookError for values that TRL or Unsloth accepts and then ignores or misuses.

    Args:
        args: a GRPOConfig.
        backend: "unsloth" or "plain", see `load_policy`.
        load_in_4bit: whether the base is in 4-bit.
    """
    _check_steps_and_loss(args)
    if args.use_vllm and load_in_4bit:
        if args.vllm_mode == "server":
            raise WorkbookError("a vLLM server cannot read 4-bit weights: give load_in_4bit=False")
        if backend == "plain":
            raise WorkbookError(
                "with the plain backend TRL merges the adapter into the 4-bit base and out again "
                "at every step, which rounds the base: give use_vllm=False, or load_in_4bit=False"
            )


def _check_steps_and_loss(args: Any) -> None:
    """The part of `check_grpo_config` that depends on the GRPOConfig alone."""
    if args.max_steps > 0 and args.num_train_epochs != 3:  # TRL's default
        raise WorkbookError(
            f"num_train_epochs is {args.num_train_epochs}, which max_steps={args.max_steps} "
            "overrides: give max_steps=-1 to train by epochs"
        )
    if args.resume_from_checkpoint:
        raise WorkbookError(
            f"resume_from_checkpoint is {args.resume_from_checkpoint!r}, which a Trainer does not "
            "read: continue with resume.train, or --resume"
        )
    if args.loss_type == "cispo" and args.epsilon_high is not None and args.epsilon_high < 1:
        raise WorkbookError(
            f"epsilon_high is {args.epsilon_high}: cispo caps every token's weight at it, and so "
            "would scale the whole gradient down. Give epsilon_high=5"
        )
    if args.loss_type == "dr_grpo" and args.scale_rewards == "group":
        raise WorkbookError(
            "scale_rewards is 'group', which Unsloth ignores with dr_grpo on a GPU: "
            "give scale_rewards='none'"
        )


def nearest(name: object, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest known name, or all of them."""
    names = sorted(known)
    matches = difflib.get_close_matches(str(name), names, n=1)
    if matches:
        return f"did you mean {matches[0]}?"
    return f"choose from {', '.join(names)}"


def find_device() -> tuple[str, float, str]:
    """(device, its memory in GiB, why): the first CUDA GPU that torch sees, else the CPU (0)."""
    import torch

    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        return "cuda", properties.total_memory / 2**30, f"torch sees {properties.name}"
    return "cpu", 0.0, "torch sees no CUDA GPU"


def find_model(name: str | Path, profile: str | None = None) -> str:
    """The folder or hub id of a model, found without the network.

    Args:
        name: a family (qwen, gemma), a folder with a saved model, or a hub id such as A/B.
        profile: of which the family's model is taken; if None, the one that fits this machine.

    Raises:
        WorkbookError: if it is none of the three, or is an adapter's folder.
    """
    model = str(name)
    if model in FAMILIES:
        if profile is None:
            return choose_profile(model=model).model
        model = PROFILES[profile][model]
    folder = Path(model).expanduser()
    if (folder / "config.json").is_file():
        return str(folder.resolve())  # an adapter names its base by this path
    if (folder / "adapter_config.json").is_file():
        raise WorkbookError(
            f"{model} is an adapter and not a model: give its base here{_base_named_by(folder)}. "
            "The adapter itself is what `merge` takes, and --adapter of `run` and `evaluate`"
        )
    if folder.exists():
        raise WorkbookError(f"{model} has no config.json: name a folder with a saved model")
    if folder.is_relative_to(DATA):
        raise WorkbookError(
            f"{model} comes with a clone of the course: elsewhere give another model"
        )
    if not re.fullmatch(r"\w[\w.-]*/[\w.-]+", model):
        forms = f"a family ({', '.join(FAMILIES)}), a folder, or a hub id such as A/B"
        raise WorkbookError(f"unknown model {model!r}: give {forms}")
    return model


def _base_named_by(adapter: Path) -> str:
    """The end of a sentence with the name of the adapter's base; empty if its file is damaged."""
    try:
        config = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
        return f", which it calls {readable(config['base_model_name_or_path'])}"
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def _family(model: str) -> str:
    """qwen or gemma, if the model's config or hub id has the word; else the model's own name."""
    config = Path(model) / "config.json"
    name = Path(model).name
    # A folder may have any name, so its config is searched.
    text = config.read_text(encoding="utf-8") if config.is_file() else name
    for family in FAMILIES:
        if family in text.lower():
            return family
    return name


def _choose(setting: str, argument: Any, default: Any, reason: str) -> tuple[Any, str]:
    """The argument, else the value in the environment, else the default; and the reason."""
    if argument is not None:
        return argument, "given as an argument"
    variable = f"GRPO_WORKBOOK_{setting.upper()}"
    if os.environ.get(variable):
        return os.environ[variable], f"{variable} is set"
    return default, reason


def _fitting_profile(device: str, gpu_gib: float) -> tuple[str, str]:
    """The profile for a device with so much memory, and the reason."""
    if device == "cpu":
        return "smoke", "no GPU: a tiny model for two CPU cores"
    reason = f"the GPU has {gpu_gib:.0f} GiB"
    # The bounds lie between the cards of 15, 24 and 80 GB that the profiles are made for.
    if gpu_gib < 20:
        return "t4", reason
    if gpu_gib < 60:
        return "24gb", reason
    return "80gb", reason


def _needs_float16(dtype: str, requested: str | None, device: str, model: str) -> bool:
    """Whether the GPU has no bfloat16 for a model that is to be loaded in it."""
    import torch

    if device == "cpu" or torch.cuda.is_bf16_supported(including_emulation=False):
        return False
    if dtype == "bfloat16":
        return True
    return requested is None and compat.is_loaded_in_float16(_family(model))


def _whole(name: str, value: Any, least: int) -> int:
    """The value as a whole number; it may be a text, as from the environment."""
    text = str(value)
    if not text.isdecimal() or int(text) < least:
        raise WorkbookError(f"{name} is {value!r}: it must be a whole number, at least {least}")
    return int(text)
