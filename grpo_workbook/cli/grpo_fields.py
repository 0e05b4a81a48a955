"""Any field of TRL's GRPOConfig by name, from a file or the command line, with its type as TRL's own scripts read it.

A field that the run has a setting for becomes that setting (max_steps: steps), so that the report and the run's own
sums stay true. A few would break the run or change nothing: they are refused, each with its reason.
"""

import argparse
import difflib
import json
import math
import re
from collections.abc import Iterable
from functools import cache

from grpo_workbook.errors import WorkbookError

# GRPOConfig's name: the setting's. Settings of the same name (beta, temperature, ...) need no entry.
SAME_AS = {
    "max_steps": "steps",
    "per_device_train_batch_size": "per_device_batch",
    "max_completion_length": "max_completion_length",
    "vllm_gpu_memory_utilization": "vllm_gpu_memory",
}
_OWN_MODEL = "the model is loaded before the config is made, so it would change nothing"
_MEASURED = "held-out problems are measured before and after: see heldout and heldout_data"
_LOGGED = "the report is made from the log of the steps"
_LAUNCHED = "the launcher says it: see configs/"
_VLLM = "say vllm: off, colocate or server"
REFUSED = {
    "output_dir": "checkpoints lie in the run's folder: say output",
    "num_train_epochs": "a run's length is its steps; an epoch is as many steps as problems / (batch_size / "
    "num_generations)",
    "reward_weights": "a weight stands behind its reward: rewards: name:weight",
    "resume_from_checkpoint": "say --resume",
    "use_cpu": "the profile says it",
    "bf16": "say dtype: bfloat16",
    "fp16": "say dtype: float16",
    "use_vllm": _VLLM,
    "vllm_mode": _VLLM,
    "vllm_server_host": "say vllm_server: HOST:PORT",
    "vllm_server_port": "say vllm_server: HOST:PORT",
    "model_init_kwargs": _OWN_MODEL,
    "logging_strategy": _LOGGED,
    "eval_strategy": _MEASURED,
    "eval_steps": _MEASURED,
    "eval_on_start": _MEASURED,
    "do_eval": _MEASURED,
    "do_predict": _MEASURED,
    "do_train": "the command trains",
    "load_best_model_at_end": _MEASURED,
    "local_rank": _LAUNCHED,
    "fsdp": _LAUNCHED,
    "fsdp_config": _LAUNCHED,
    "deepspeed": _LAUNCHED,
    "parallelism_config": _LAUNCHED,
    "ddp_backend": "gloo on the CPU, NCCL on GPUs",
    "save_only_model": "a run could not be resumed",
    "hub_token": "it would be written into the run's files: set HF_TOKEN in the environment",
    "push_to_hub": "training sends nothing: `push` shows a finished model, and sends it with --yes",
}
# What TRL and Transformers take without a word, and stumble over later or train on with: the least that makes sense.
LEAST = {
    **dict.fromkeys(
        ("save_total_limit", "num_iterations", "steps_per_generation", "generation_batch_size"), 1
    ),
    **dict.fromkeys(("ref_model_sync_steps", "ddp_timeout"), 1),
    **dict.fromkeys(
        ("max_grad_norm", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "epsilon"), 0
    ),
    **dict.fromkeys(
        ("epsilon_high", "warmup_steps", "top_p", "top_k", "min_p", "dataloader_num_workers"), 0
    ),
}
MOST = {"adam_beta1": 1, "adam_beta2": 1, "top_p": 1, "min_p": 1, "dataloader_num_workers": 256}
MORE_THAN_0 = (
    "save_steps",
    "logging_steps",
    "repetition_penalty",
)  # below 1 the first two are a share of all steps


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise WorkbookError(message)


@cache
def _parser() -> argparse.ArgumentParser:
    """TRL's and Transformers' own way from texts to fields; what is not given is left out."""
    from transformers import HfArgumentParser
    from trl import GRPOConfig

    class Parser(HfArgumentParser, _Parser):
        pass

    parser = Parser(GRPOConfig, add_help=False, allow_abbrev=False)
    for action in parser._actions:
        action.default = argparse.SUPPRESS
    return parser


@cache
def field_names() -> tuple[str, ...]:
    """Every field of the installed GRPOConfig. Imports TRL: with the backend unsloth, import unsloth first."""
    import dataclasses

    from trl import GRPOConfig

    return tuple(f.name for f in dataclasses.fields(GRPOConfig) if f.init)


def from_arguments(arguments: list[str], known: Iterable[str] = ()) -> dict:
    """The fields in a command line: --max_grad_norm 0.5, --max-grad-norm=0.5, --no_bf16. `known`: our own options.

    Raises WorkbookError for an unknown name (with the nearest), and for a value of the wrong type.
    """
    try:
        found, rest = _parser().parse_known_args(arguments)
    except WorkbookError as error:
        raise WorkbookError(_reworded(str(error))) from None
    if rest:
        if not rest[0].startswith("--"):
            raise WorkbookError(f"{rest[0]!r} belongs to no option: give --name value")
        name = rest[0].split("=")[0]
        raise WorkbookError(unknown(name.lstrip("-").replace("-", "_"), known, "--"))
    return vars(found)


def from_value(name: str, value: object, where: str) -> object:
    """One field's value as YAML has it, checked and converted as the command line's would be.

    Raises WorkbookError that names `where` it stands, the field and the value.
    """
    if value is None:
        return None
    if isinstance(value, dict):
        arguments = [f"--{name}={json.dumps(value)}"]
    elif isinstance(value, list):
        arguments = [f"--{name}", *map(str, value)]
    else:
        arguments = [f"--{name}={value}"]
    try:
        found, rest = _parser().parse_known_args(arguments)
    except WorkbookError as error:
        raise WorkbookError(
            f"{where}: {name} is {value!r}: {_reworded(str(error)).split(': ', 1)[-1]}"
        ) from None
    if rest:
        raise WorkbookError(f"{where}: {name} is {value!r}: it takes one value")
    return getattr(found, name)


def unknown(name: str, known: Iterable[str], dashes: str = "") -> str:
    """The words for a name that nothing has, with the nearest that exists."""
    names = [*known, *field_names()]
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f"did you mean {dashes}{near[0]}?" if near else "train --list-fields shows them all"
    return f"no setting of the run and no field of GRPOConfig is called {dashes}{name}: {hint}"


def why_refused(name: str) -> str | None:
    """Why a field cannot be set, or None."""
    if name.startswith("trust_"):
        return "no code that comes with a model is run"
    return REFUSED.get(name) or (REFUSED["push_to_hub"] if name.startswith("hub_") else None)


def divide(fields: dict) -> tuple[dict, dict]:
    """(settings of the run, fields that stay GRPOConfig's). Raises WorkbookError for a field that is refused."""
    from dataclasses import fields as fields_of


    ours = {f.name for f in fields_of(Settings)}
    settings, kept = {}, {}
    for name, value in fields.items():
        if reason := why_refused(name):
            raise WorkbookError(f"{name} cannot be set: {reason}")
        check_number(name, value)
        if (setting := SAME_AS.get(name, name)) in ours:
            settings[setting] = value
        else:
            kept[name] = value
    return settings, kept


def check_number(name: str, value: object) -> None:
    """Raise WorkbookError for a number of a field that is none, or that no training can have."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    least, most = LEAST.get(name, -math.inf), MOST.get(name, math.inf)
    try:
        finite = math.isfinite(value)
    except OverflowError:
        raise WorkbookError(
            f"{name} is a number of more than 300 digits: give a smaller one"
        ) from None
    if not finite:
        raise WorkbookError(f"{name} is {value}: it must be a finite number")
    if name in MORE_THAN_0 and value <= 0:
        raise WorkbookError(f"{name} is {value:g}: it must be more than 0")
    if name.startswith("adam_beta") and value == 1:
        raise WorkbookError(f"{name} is 1: it must be less than 1, or nothing new would count")
    if not least <= value <= most:
        raise WorkbookError(
            f"{name} is {value:g}: it must be "
            + (f"at least {least}" if value < least else f"at most {most}")
        )


def whole_batch(settings: dict, kept: dict, processes: int) -> None:
    """Turn gradient_accumulation_steps into the batch_size that it makes, in place.

    A step has per_device_batch x gradient_accumulation_steps x processes completions, so two of the three numbers
    decide. Raises WorkbookError when they contradict each other, or one alone leaves the batch open.
    """
    if (accumulation := kept.pop("gradient_accumulation_steps", None)) is None:
        return
    at_once, batch = settings.get("per_device_batch"), settings.get("batch_size")
    if at_once is None and batch is None:
        raise WorkbookError(
            f"gradient_accumulation_steps is {accumulation}: give batch_size (completions in a step) or "
            "per_device_train_batch_size with it"
        )
    if at_once is None:
        at_once, rest = divmod(batch, accumulation * processes) if accumulation > 0 else (0, 1)
        if rest or not at_once:
            raise WorkbookError(
                f"batch_size {batch} is not a multiple of gradient_accumulation_steps {accumulation} x {processes} "
                "processes: change one of them"
            )
    made = at_once * accumulation * processes
    if batch not in (None, made):
        raise WorkbookError(
            f"batch_size is {batch}, and per_device_batch {at_once} x gradient_accumulation_steps {accumulation} x "
            f"{processes} processes make {made}: leave one of them out"
        )
    settings["per_device_batch"], settings["batch_size"] = at_once, made


def listing() -> str:
    """Every field with its default and its first words, for --list-fields; at most 80 columns wide."""
    import textwrap

    lines = []
    for action in _listed():
        name = action.dest
        if reason := why_refused(name):
            note = f"not here: {reason}"
        elif name in SAME_AS:
            note = f"the run's setting {SAME_AS[name]}"
        else:
            note = re.split(r"(?<=[a-z])\.\s", " ".join((action.help or "").split()))[0]
        lines += textwrap.wrap(
            f"{name}: {note}" if note else name,
            80,
            initial_indent="  ",
            subsequent_indent="      ",
            max_lines=3,
        )
    return "\n".join(lines)


def _listed() -> list[argparse.Action]:
    seen = {}
    for action in _parser()._actions:
        seen.setdefault(action.dest, action)
    return list(seen.values())


def _reworded(message: str) -> str:
    """argparse's "argument --a_b/--a-b: invalid float value: 'x'" with one name."""
    return re.sub(r"^argument (--[\w-]+)\S*: ", r"\1: ", message)
