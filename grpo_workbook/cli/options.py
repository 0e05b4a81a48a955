"""Every field of RunConfig and of TRL's GRPOConfig as an option of `run`, and in its YAML file.

The file wins over the profile, and the command line over both.
"""

import argparse
import dataclasses
import inspect
import json
import os
import re
import warnings
from importlib.util import find_spec
from pathlib import Path

from grpo_workbook.cli import option, refuse
from grpo_workbook.cli.rewards import beside, parse_rewards
from grpo_workbook.cli.together import is_main
from grpo_workbook.config import FAMILIES, REWARDS, find_model, nearest
from grpo_workbook.data.reading import find_file
from grpo_workbook.errors import WorkbookError
from grpo_workbook.run_config import FOLLOW, PROFILES, RunConfig

# name: (type, help) of options that are not fields of RunConfig or GRPOConfig
OWN = {
    "config": (Path, "a YAML file with any of these options, one `name: value` per line"),
    "backend": (str, "unsloth (the default), or plain: Transformers and PEFT alone"),
    "data": (str, "problems: .jsonl, .csv, .parquet or a hub id (default: the course's)"),
    "heldout_data": (str, "the held-out problems (default: a part of data)"),
    "question_column": (str, "the data's column of questions (default: question)"),
    "answer_column": (str, "the data's column of answers (default: answer)"),
    "judge": (str, "FILE.py:REWARD, which gives 1 to a right held-out answer (default: compare)"),
    "skip_invalid": (bool, "leave invalid rows out instead of stopping"),
    "overwrite": (bool, "replace the run in the output folder"),
    "resume": (bool, "continue the run in the output folder"),
}
PATHS = ("data", "heldout_data", "model", "output")  # in a YAML file: relative to its folder
# What to do instead: fields of GRPOConfig that would break the run or have no effect.
REFUSED = {
    "use output: checkpoints are in the run's folder": "output_dir",
    "use max_steps": "num_train_epochs",
    "use batch_size, per_device_batch": "per_device_train_batch_size gradient_accumulation_steps",
    "use rewards: name:weight": "reward_weights",
    "use resume": "resume_from_checkpoint",
    "use profile and dtype": "use_cpu bf16 fp16",
    "use vllm: off, colocate or server": "use_vllm vllm_mode",
    "use vllm_server: HOST:PORT": "vllm_server_host vllm_server_port vllm_server_base_url",
    "use vllm_gpu_memory": "vllm_gpu_memory_utilization",
    "use heldout: measured before and after": "eval_strategy eval_steps eval_on_start do_eval",
    "without it a run cannot be resumed or reported": "save_only_model logging_strategy",
    "it has no effect: the model is loaded before": "model_init_kwargs trust_remote_code",
    "the launcher sets it: see configs/": "local_rank fsdp fsdp_config deepspeed ddp_backend",
    "training uploads nothing: use `hf upload`": "push_to_hub hub_model_id hub_token hub_strategy",
}
REFUSED = {name: why for why, names in REFUSED.items() for name in names.split()}


def run_fields() -> dict[str, dataclasses.Field]:
    """The fields of RunConfig that a user can set, by name."""
    return {f.name: f for f in dataclasses.fields(RunConfig) if f.name not in FOLLOW}


def listing() -> list[tuple]:
    """All options for `run --help`; those of RunConfig have their help as comments in config.py."""
    words = dict(re.findall(r"^    (\w+): .*?# (.+)$", inspect.getsource(RunConfig), re.M))
    told = {name: words[name] for name in run_fields()} | {n: text for n, (_, text) in OWN.items()}
    return [option(f"--{n.replace('_', '-')}", metavar="", help=text) for n, text in told.items()]


def read(arguments: list[str], loads: bool = True, **more: type) -> tuple[dict, dict]:
    """(values for RunConfig and OWN, fields for GRPOConfig) from the file and the command line.

    `more`: {name: type} of a command's own options, which are among the first. WorkbookError for
    an unknown name (with the nearest), a wrong value, a refused field (and why): before torch is
    loaded, but for the values of GRPOConfig's fields. `loads`: say that it takes time.
    """
    # a bool that is true by default also gets a --no-...; an empty path would be this folder
    kinds = {name: kind for name, (kind, _) in OWN.items() if name != "config"} | more
    fields = [(name, kind, None) for name, kind in kinds.items()]
    for name, f in run_fields().items():
        fields.append((name, str if f.type is Path else f.type, f.default is True or None))
    parser = _trl_parser(dataclasses.make_dataclass("Options", fields))
    parser.add_argument("--config", type=Path, default=argparse.SUPPRESS)
    ours, rest = parser.parse_known_args(arguments)
    if "config" in ours:
        ours, rest = parser.parse_known_args([*from_yaml(ours.config), *arguments])  # the last wins
        del ours.config
    names = [w.split("=")[0].lstrip("-").replace("-", "_") for w in rest if w.startswith("--")]
    for name in names:
        if name in REFUSED:
            raise WorkbookError(f"{name} cannot be set: {REFUSED[name]}")
        if name not in (trl := trl_fields()):
            near = nearest(name, trl | {action.dest for action in parser._actions})
            raise WorkbookError(f"the run and GRPOConfig have no field called {name}: {near}")
    if vars(ours).get("resume") and vars(ours).get("overwrite"):
        raise WorkbookError("resume and overwrite are both given: choose one")
    if loads:
        _check(vars(ours))
        if is_main():
            print("Loading the libraries", flush=True)
    theirs: dict = {}
    if names:
        if loads and getattr(ours, "backend", "unsloth") == "unsloth":
            # It patches TRL, so it comes first, but after what the run says in the environment.
            RunConfig.from_env(**{n: v for n, v in vars(ours).items() if n in run_fields()})
            import unsloth  # noqa: F401
        from trl import GRPOConfig

        found, rest = _trl_parser(GRPOConfig).parse_known_args(rest)
        theirs = vars(found)
    if rest:
        raise WorkbookError(f"{rest[0]!r} is not an option: give --name value")
    return vars(ours), theirs


def trl_fields() -> set[str]:
    """The names of GRPOConfig's fields, from its source: to load the libraries takes seconds."""
    trl, hf = (Path(find_spec(name).origin).parent for name in ("trl", "transformers"))
    files = trl / "trainer/grpo_config.py", trl / "trainer/base_config.py", hf / "training_args.py"
    texts = [file.read_text(encoding="utf-8") for file in files]
    return {name for text in texts for name in re.findall(r"^    (\w+): ", text, re.M)}


def _check(given: dict) -> None:
    """Raise WorkbookError for what can be judged before torch is loaded, in milliseconds."""
    for name in {"data", "heldout_data"} & given.keys():
        find_file(given[name])
    parse_rewards(given.get("rewards", REWARDS))
    named = {"model": "qwen", "seed": 0, "output": Path(), "device": "", "family": ""}
    named |= {name: value for name, value in given.items() if name in run_fields()}
    wanted = named.get("profile") or os.environ.get("GRPO_WORKBOOK_PROFILE")
    if wanted and wanted not in PROFILES:
        raise WorkbookError(f"unknown profile {wanted!r}: {nearest(wanted, PROFILES)}")
    errors = []
    for profile in [wanted] if wanted else PROFILES:  # which one fits the GPU is not known yet
        usual = {n: v for n, v in PROFILES[profile].items() if n not in FAMILIES}
        try:
            found = {"model": find_model(named["model"], profile), "profile": profile}
            RunConfig(**(usual | named | found))
            return
        except WorkbookError as error:
            errors.append(error)
    raise errors[0]


def _trl_parser(options: type) -> argparse.ArgumentParser:
    from trl.scripts.utils import TrlParser

    # So far only TRL's parser is loaded, which Unsloth does not patch.
    warnings.filterwarnings("ignore", ".*Unsloth should be imported before")
    parser = TrlParser(options, add_help=False, allow_abbrev=False)
    parser.error = refuse
    for action in parser._actions:
        action.default = argparse.SUPPRESS  # options that are not given are left out
    return parser


def from_yaml(path: Path) -> list[str]:
    """The file's names and values as command-line arguments; paths are relative to its folder.

    A scalar keeps its text, so that `vllm: off` does not become false, and 1e-3 is a number.
    Raises WorkbookError for a file that cannot be read, or is not a mapping.
    """
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        typed, texts = (yaml.load(text, Loader=kind) for kind in (yaml.SafeLoader, yaml.BaseLoader))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        why = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise WorkbookError(f"{path} cannot be read as YAML: {why}") from None
    if not isinstance(typed, dict):
        raise WorkbookError(f"{path} is not a mapping: write one `name: value` per line")
    words = []
    for name, value in texts.items():
        meant, name = typed.get(name, value), name.replace("-", "_")
        if meant is None:  # an empty value
            continue
        if name in ("rewards", "judge"):
            value = beside(",".join(value) if isinstance(value, list) else value, path.parent)
        elif isinstance(meant, dict):
            value = json.dumps(meant)
        elif name in PATHS:
            there = path.parent / Path(value).expanduser()
            value = there if name == "output" or there.exists() else value
        words += [f"--{name}", *value] if isinstance(value, list) else [f"--{name}={value}"]
    return words
