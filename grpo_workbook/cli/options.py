"""Every field of RunConfig and of TRL's GRPOConfig as an option of `run`, and from its YAML file.

Only what is given counts: the profile's value gives way to the file's, the file's to the command
line's. Both are read by TRL's own parser.
"""

import argparse
import dataclasses
import inspect
import json
import re
import textwrap
import warnings
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import get_type_hints

from grpo_workbook.cli.rewards import beside
from grpo_workbook.config import RunConfig, nearest
from grpo_workbook.errors import WorkbookError

# name: (type, help) of what is a field of neither
OWN = {
    "config": (str, "a YAML file with any of these, `name: value` in a line"),
    "backend": (str, "unsloth (the default), or plain: Transformers and PEFT alone"),
    "data": (str, "problems: .jsonl, .csv, .parquet or a hub id (default: the course's)"),
    "heldout_data": (str, "the held-out problems (default: a part of data)"),
    "question_column": (str, "the data's column of questions (default: question)"),
    "answer_column": (str, "the data's column of answers (default: answer)"),
    "skip_invalid": (bool, "leave invalid rows out instead of stopping"),
    "overwrite": (bool, "replace the run that lies in the output folder"),
    "resume": (bool, "continue the run that lies in the output folder"),
}
PATHS = ("data", "heldout_data", "model")  # what a file may name from its own folder
# Fields of GRPOConfig that would break the run or change nothing.
REFUSED = {
    "output_dir": "checkpoints lie in the run's folder: say output",
    "num_train_epochs": "a run's length is max_steps",
    "per_device_train_batch_size": "say per_device_batch",
    "gradient_accumulation_steps": "it follows from batch_size and per_device_batch",
    "reward_weights": "a weight stands behind its reward: rewards: name:weight",
    "resume_from_checkpoint": "say resume",
    "save_only_model": "the run could not be resumed",
    "logging_strategy": "the report is made from the log of the steps",
    "use_cpu bf16 fp16": "the profile and dtype say it",
    "use_vllm vllm_mode": "say vllm: off, colocate or server",
    "vllm_server_host vllm_server_port": "say vllm_server: HOST:PORT",
    "vllm_gpu_memory_utilization": "say vllm_gpu_memory",
    "model_init_kwargs trust_remote_code": "the model is loaded before: it would change nothing",
    "eval_strategy eval_steps eval_on_start do_eval": "see heldout: measured before and after",
    "local_rank fsdp fsdp_config deepspeed ddp_backend": "the launcher says it: see configs/",
    "push_to_hub hub_model_id hub_token hub_strategy": "training sends nothing: see `hf upload`",
}
REFUSED = {name: why for names, why in REFUSED.items() for name in names.split()}


def run_fields() -> dict[str, dataclasses.Field]:
    """The fields of RunConfig that a user gives, by name."""
    follow = ("device", "family", "why")  # from the machine and the model
    return {f.name: f for f in dataclasses.fields(RunConfig) if f.name not in follow}


def listing() -> str:
    """The options for `run --help`; what each of RunConfig is, stands beside it in config.py."""
    words = dict(re.findall(r"^    (\w+): .*?# (.+)$", inspect.getsource(RunConfig), re.M))
    told = {name: words[name] for name in run_fields()} | {n: text for n, (_, text) in OWN.items()}
    rows = [f"--{name.replace('_', '-'):<24}{text}" for name, text in told.items()]
    how = {"initial_indent": "  ", "subsequent_indent": " " * 28}
    return "\n".join(line for row in rows for line in textwrap.wrap(row, 80, **how))


def read(arguments: list[str]) -> tuple[dict, dict]:
    """(values of RunConfig and of OWN, fields that stay GRPOConfig's), of file and command line.

    Raises WorkbookError for an unknown name (with the nearest), a value of the wrong type, and a
    field that is refused (with the reason).
    """
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--config", type=Path)
    config, arguments = first.parse_known_args(arguments)
    file = from_yaml(config.config) if config.config else []
    plain = "plain" in " ".join([*file, *arguments]).replace("=", " ").partition("--backend")[2]
    ours, theirs = _parse(file, plain, f"{config.config}: ")
    more, also = _parse(arguments, plain)
    if more.keys() & {"overwrite", "resume"}:  # one of the two: the command line's wins
        ours = {name: v for name, v in ours.items() if name not in ("overwrite", "resume")}
    ours |= more
    if ours.get("resume") and ours.get("overwrite"):
        raise WorkbookError("resume and overwrite are both given: choose one")
    return ours, theirs | also


def _parse(arguments: list[str], plain: bool, where: str = "") -> tuple[dict, dict]:
    try:
        ours, rest = _parser().parse_known_args(arguments)
        theirs = argparse.Namespace()
        if rest:  # only then TRL's own fields are needed, and the libraries that hold them
            theirs, rest = _grpo_parser(plain).parse_known_args(rest)
        for name in vars(theirs):
            if name in REFUSED:
                raise WorkbookError(f"{name} cannot be set: {REFUSED[name]}")
        if rest and not rest[0].startswith("--"):
            raise WorkbookError(f"{rest[0]!r} belongs to no option: give --name value")
        if rest:
            name = rest[0].split("=")[0].lstrip("-").replace("-", "_")
            known = [a.dest for p in (_parser(), _grpo_parser(plain)) for a in p._actions]
            raise WorkbookError(
                f"no field of the run or of GRPOConfig is called {name}: {nearest(name, known)}"
            )
    except WorkbookError as error:
        raise WorkbookError(f"{where}{error}") from None
    return vars(ours), vars(theirs)


@cache
def _parser() -> argparse.ArgumentParser:
    """TRL's parser of RunConfig's fields and our own."""
    given = {name: (kind, False) for name, (kind, _) in OWN.items() if name != "config"}
    given |= {name: (f.type, f.default) for name, f in run_fields().items()}
    return _trl_parser(
        # a bool that is true by default gets a --no-... too; the defaults are dropped below
        (name, kind, dataclasses.field(default=default is True))
        if kind is bool
        else (name, kind | None, dataclasses.field(default=None))
        for name, (kind, default) in given.items()
    )


@cache
def _grpo_parser(plain: bool) -> argparse.ArgumentParser:
    """TRL's parser of GRPOConfig's fields that the run does not have."""
    if not plain:
        from grpo_workbook.notebook import quiet

        quiet()
        import unsloth  # noqa: F401
    from trl import GRPOConfig

    hints, known = get_type_hints(GRPOConfig), {*run_fields(), *OWN}
    return _trl_parser(
        (f.name, hints[f.name], dataclasses.field(default=None, metadata=f.metadata))
        for f in dataclasses.fields(GRPOConfig)
        if f.init and f.name not in known
    )


def _trl_parser(fields: Iterable[tuple]) -> argparse.ArgumentParser:
    from trl.scripts.utils import TrlParser

    # Of TRL only the parser is there yet, which Unsloth does not patch.
    warnings.filterwarnings("ignore", ".*Unsloth should be imported before")

    class Parser(TrlParser):
        def error(self, message: str):
            raise WorkbookError(re.sub(r"^argument (--[\w-]+)\S*: ", r"\1: ", message))

    options = dataclasses.make_dataclass("Options", fields)
    parser = Parser(options, add_help=False, allow_abbrev=False)
    for action in parser._actions:
        action.default = argparse.SUPPRESS  # what is not given is left out
    return parser


def from_yaml(path: Path) -> list[str]:
    """The file's names and values as a command line would have them; paths from its own folder.

    Each scalar stays the text that stands there: `vllm: off` is no false, and 1e-3 a number.
    Raises WorkbookError for a file that cannot be read, is no mapping, or has a name twice.
    """
    import yaml

    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise WorkbookError(f"the config {path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise WorkbookError(f"{path} is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(node, yaml.MappingNode):
        raise WorkbookError(f"{path}: write one `name: value` in a line")
    given: dict[str, list[str]] = {}
    for key, value in node.value:
        name = str(key.value).replace("-", "_")
        if name in given:
            raise WorkbookError(f"{path}, line {key.start_mark.line + 1}: a second {name}")
        if isinstance(value, yaml.SequenceNode):
            words = [str(item.value) for item in value.value]
            given[name] = [",".join(words)] if name == "rewards" else words
        elif isinstance(value, yaml.MappingNode):
            given[name] = [json.dumps(yaml.safe_load(yaml.serialize(value)))]
        else:
            given[name] = [] if value.tag.endswith(":null") else [value.value]
    words = []
    for name, values in given.items():
        one = [f"--{name}={_from(path.parent, name, value)}" for value in values]
        words += one if len(values) == 1 else [f"--{name}", *values] * bool(values)
    return words


def _from(folder: Path, name: str, value: str) -> str:
    """The value, with a path that starts in the file's folder."""
    if name == "rewards":
        return beside(value, folder)
    there = folder / Path(value).expanduser()
    return str(there) if name == "output" or (name in PATHS and there.exists()) else value
