"""The options of `run`, on the command line and in a YAML file, parsed by TRL's own parser.

They are the fields of `RunOptions` and of TRL's GRPOConfig. The profile gives the defaults, the
file wins over the profile, and the command line over both. What a profile depends on is read first,
in milliseconds; GRPOConfig is loaded after that, which takes seconds.
"""

import argparse
import difflib
import json
import tomllib
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from grpo_workbook import compat, models
from grpo_workbook.cli import option, refuse
from grpo_workbook.cli.rewards import beside, parse_rewards
from grpo_workbook.cli.together import is_main
from grpo_workbook.config import (
    REWARDS,
    SYSTEM_PROMPT,
    TARGET_MODULES,
    Profile,
    choose_profile,
)
from grpo_workbook.data.reading import find_file
from grpo_workbook.errors import WorkbookError

# In a file they are relative to its folder.
PATHS = ("data", "heldout_data", "model", "adapter", "output_dir")
# On the command line one word with commas; in a file also a list.
WITH_COMMAS = ("rewards", "judge", "target_modules")
# Of the profile's arguments: the machine's, which may be another one when a run is resumed.
OF_THE_MACHINE = ("use_cpu", "dataloader_pin_memory")
# What people bring from elsewhere: {"renamed": {name: ours}, "replaced": {name: what to do}}
with Path(__file__).with_name("synonyms.toml").open("rb") as file:
    SYNONYMS = tomllib.load(file)


@dataclass
class RunOptions:
    """The options of a run that TRL's GRPOConfig does not have."""

    profile: str | None = field(
        default=None,
        metadata={"help": "smoke, t4, 24gb or 80gb (default: the one that fits the machine)"},
    )
    model: str | None = field(
        default=None,
        metadata={"help": "a family (qwen, gemma), a folder or a hub id (default: qwen)"},
    )
    adapter: str | None = field(
        default=None,
        metadata={"help": "start from this LoRA adapter, e.g. of SFT (default model: its base)"},
    )
    backend: Literal["unsloth", "plain"] = field(
        default="unsloth",
        metadata={"help": "unsloth, or plain: Transformers and PEFT alone"},
    )
    data: str | None = field(
        default=None,
        metadata={"help": "problems: .jsonl, .csv, .parquet or a hub id (default: the course's)"},
    )
    heldout_data: str | None = field(
        default=None,
        metadata={"help": "the held-out problems (default: a part of the data)"},
    )
    question_column: str | None = field(
        default=None,
        metadata={
            "help": "the data's column of texts or chats (default: question, prompt, problem, "
            "messages or conversations)"
        },
    )
    answer_column: str | None = field(
        default=None,
        metadata={
            "help": "the data's column of answers (default: answer, solution or ground_truth, else "
            "the last turn of each chat)"
        },
    )
    skip_invalid: bool = field(
        default=False, metadata={"help": "leave invalid rows out instead of stopping"}
    )
    heldout: int | None = field(default=None, metadata={"help": "number of held-out problems"})
    heldout_samples: int = field(
        default=1, metadata={"help": "sampled answers to each of them (default: 1)"}
    )
    subset: str | None = field(
        default=None,
        metadata={"help": "a column of true and false: held-out problems measured apart, too"},
    )
    subset_samples: int = field(
        default=16, metadata={"help": "sampled answers to each of the subset (default: 16)"}
    )
    rewards: str = field(
        default=REWARDS,
        metadata={
            "help": "NAME:WEIGHT,...; FILE.py:FUNCTION:WEIGHT (your own); trl.rewards.NAME; a "
            "reward model's folder or hub id"
        },
    )
    judge: str | None = field(
        default=None,
        metadata={"help": "FILE.py:REWARD, which gives 1 to a right held-out answer"},
    )
    system_prompt: str = field(
        default=SYSTEM_PROMPT, metadata={"help": "the instruction before each question"}
    )
    thinking: bool | None = field(
        default=None,
        metadata={
            "help": "let a hybrid model think, in longer completions (default: it does not)",
            "nargs": "?",
            "const": True,
        },
    )
    dtype: str | None = field(
        default=None, metadata={"help": "float32, float16 or bfloat16 (default: the profile's)"}
    )
    load_in_4bit: bool = field(default=True, metadata={"help": "the base in NF4, as in QLoRA"})
    lora_rank: int | None = field(default=None, metadata={"help": "r of LoRA"})
    target_modules: str | None = field(
        default=None,
        metadata={
            "help": "the layers with adapters, as q_proj,v_proj (default: all; of experts too)"
        },
    )
    max_prompt_length: int | None = field(
        default=None, metadata={"help": "in tokens; longer prompts are dropped"}
    )
    eval_batch_size: int | None = field(
        default=None, metadata={"help": "prompts answered at once in an evaluation"}
    )
    overwrite: bool = field(
        default=False, metadata={"help": "replace the run in the output folder"}
    )
    resume: bool = field(default=False, metadata={"help": "continue the run in the output folder"})


@dataclass
class ProfileOptions:
    """The fields of GRPOConfig that a profile depends on; None counts as not given."""

    output_dir: str | None = field(
        default=None, metadata={"help": "the folder for all results (default: outputs/run)"}
    )
    seed: int | None = field(default=None, metadata={"help": "of everything (default: 0)"})
    max_completion_length: int | None = field(
        default=None, metadata={"help": "in tokens; longer completions are cut off"}
    )
    # With --thinking the profile has others, which belong together.
    per_device_train_batch_size: int | None = field(
        default=None, metadata={"help": "completions that a device learns from at once"}
    )
    gradient_accumulation_steps: int | None = field(
        default=None, metadata={"help": "such batches of a step"}
    )
    use_vllm: bool | None = field(
        default=None, metadata={"help": "sample with vLLM", "nargs": "?", "const": True}
    )
    vllm_mode: str | None = field(default=None, metadata={"help": "colocate or server"})
    vllm_gpu_memory_utilization: float | None = field(
        default=None, metadata={"help": "the fraction of the GPU that a colocated vLLM takes"}
    )


@dataclass(frozen=True)
class Request:
    """What the command line and the file ask for, before TRL is loaded."""

    words: list[str]  # of the file and the command line
    options: RunOptions
    profile_options: ProfileOptions
    profile: Profile
    functions: list[Callable]  # the reward functions
    weights: list[float]  # one for each of them


@dataclass(frozen=True)
class Run:
    """A run with all its settings."""

    options: RunOptions
    profile: Profile
    args: Any  # a GRPOConfig; its output_dir is the run's folder for checkpoints
    functions: list[Callable]  # the reward functions
    settings: dict[str, Any]  # what the profile and the user say, for run.json


def listing(*option_classes: type) -> list[tuple]:
    """The options of these dataclasses with their help, for `--help`: it loads no library."""
    rows = []
    for option_class in option_classes:
        for row in fields(option_class):
            rows.append(option(f"--{row.name}", metavar="", help=row.metadata["help"]))
    return rows


def new_parser(*option_classes: type) -> Any:
    """TRL's parser for these dataclasses; its errors are WorkbookErrors."""
    from trl.scripts.utils import TrlParser

    # Only TRL's parser is loaded with it, which Unsloth does not patch.
    warnings.filterwarnings("ignore", ".*Unsloth should be imported before")
    classes: Any = list(option_classes)
    # `listing` has the help. Abbreviations would be read otherwise by a parser of some options than
    # by a parser of all.
    parser: Any = TrlParser(classes, add_help=False, allow_abbrev=False)
    parser.error = refuse
    return parser


def parse(arguments: list[str]) -> Request:
    """What the arguments and their file ask for, as far as it is known without TRL.

    Raises:
        WorkbookError: for a wrong value, a missing file, an unknown reward, and settings that this
            machine cannot take.
    """
    words = with_file(arguments)
    refuse_foreign(words)
    # What is left over may be fields of GRPOConfig, which `load` reads.
    options, profile_options, _ = _parse(words, RunOptions, ProfileOptions)
    if options.resume and options.overwrite:
        raise WorkbookError("resume and overwrite are both given: choose one")
    # What can be wrong is looked at first: from here on loading takes seconds.
    for source in (options.data, options.heldout_data):
        if source is not None:
            find_file(source)
    # The adapter decides what the profile shows and what run.json records: its base and its rank.
    if options.adapter is not None:
        options = _with_adapter(options, options.adapter)
    functions, weights = parse_rewards(options.rewards)
    if is_main():
        print("Loading the libraries", flush=True)
    profile = profile_of(options, profile_options)
    # Only the profile knows the model's folder, if a family or nothing was given.
    if options.adapter is not None:
        models.find_adapter_of(profile.model, options.adapter)
    return Request(words, options, profile_options, profile, functions, weights)


def _with_adapter(options: RunOptions, adapter: str) -> RunOptions:
    """The options with the adapter's rank, and its base unless a model is given."""
    rank = models.rank_of(adapter)
    if options.lora_rank not in (None, rank):
        raise WorkbookError(
            f"lora_rank is {options.lora_rank}, but the adapter {adapter} has rank {rank}, which "
            "its training keeps: leave out lora_rank"
        )
    if options.target_modules is not None:
        raise WorkbookError(
            f"target_modules is {options.target_modules}, but the adapter {adapter} has its own "
            "layers: leave out target_modules"
        )
    folder = models.find_adapter(adapter)  # without ~, because run.json has a hash of its files
    # What the user names wins. `parse` compares it with the base that the adapter names.
    model = options.model
    if model is None:
        model = models.base_of(folder)
    return replace(options, adapter=folder, model=model, lora_rank=rank)


def load(request: Request) -> Run:
    """The run of a request. Loads TRL, and Unsloth unless the backend is plain.

    With several processes they must be connected before (see together.py): a GRPOConfig decides
    which device a process uses.

    Raises:
        WorkbookError: for an unknown option, and for what TRL refuses.
    """
    options = request.options
    args = read_grpo_config(request.words, request.profile, options.backend)
    if args.reward_weights is not None:
        raise WorkbookError("reward_weights cannot be set: give the weights in rewards")
    args.reward_weights = request.weights
    # Loader and adapters depend on values of GRPOConfig, so the profile is made again with all of
    # them. They count as the user's there: the reasons are those of the first time.
    values = {name: getattr(args, name) for name in request.profile.grpo}
    profile = profile_of(options, request.profile_options, values)
    profile = replace(profile, reasons=request.profile.reasons)
    # output_dir is the folder of the whole run, and TRL's checkpoints are a part of it.
    args.output_dir = str(profile.output / "checkpoints")
    settings = _settings_of(request.words, options, profile, args)
    return Run(options, profile, args, request.functions, settings)


def profile_of(
    options: RunOptions, profile_options: ProfileOptions, grpo: dict[str, Any] | None = None
) -> Profile:
    """The profile with the options' values; `grpo` are all values of GRPOConfig once it is read."""
    changes = dict(grpo or {})
    for row in fields(ProfileOptions):
        value = getattr(profile_options, row.name)
        # These two are arguments of choose_profile itself, the others are GRPOConfig's.
        if value is not None and row.name not in ("output_dir", "seed"):
            changes[row.name] = value
    return choose_profile(
        options.profile,
        model=options.model,
        seed=profile_options.seed,
        output=profile_options.output_dir,
        dtype=options.dtype,
        load_in_4bit=options.load_in_4bit,
        lora_rank=options.lora_rank,
        target_modules=modules_of(options.target_modules),
        max_prompt_length=options.max_prompt_length,
        heldout=options.heldout,
        eval_batch_size=options.eval_batch_size,
        system_prompt=options.system_prompt,
        thinking=options.thinking,
        grpo=changes,
    )


def modules_of(target_modules: str | None) -> list[str]:
    """The names of the layers that get adapters, from a text with commas."""
    if target_modules is None:
        return list(TARGET_MODULES)
    return [name.strip() for name in target_modules.split(",") if name.strip()]


def read_grpo_config(words: list[str], profile: Profile, backend: str) -> Any:
    """The GRPOConfig of these words, with the profile's values as defaults."""
    if backend == "unsloth":
        if profile.loader.get("fast_inference"):
            compat.let_vllm_sleep()
        import unsloth  # noqa: F401  (it patches TRL, so it comes first)
    from trl import GRPOConfig

    # RunOptions once more, so that its words are not left over as unknown ones.
    parser = new_parser(RunOptions, GRPOConfig)
    parser.set_defaults_with_config(output_dir=str(profile.output), **profile.grpo)
    try:
        _, args, unknown = parser.parse_args_into_dataclasses(
            words, return_remaining_strings=True, look_for_args_file=False
        )
    except (ValueError, TypeError) as error:
        raise WorkbookError(f"TRL refuses this run: {error}") from error
    refuse_unknown(unknown, GRPOConfig)
    return args


def refuse_foreign(words: Iterable[str]) -> None:
    """Raise WorkbookError for names of other trainers and of older TRL: it says what to give."""
    # All of them in one message: a file of another trainer has a dozen.
    advice = []
    for word in words:
        if not word.startswith("--"):  # the value of an option
            continue
        name = _name_in(word)
        if name in SYNONYMS["renamed"]:
            advice.append(f"{name} is called {SYNONYMS['renamed'][name]} here")
        elif name in SYNONYMS["replaced"]:
            advice.append(f"there is no {name}: {SYNONYMS['replaced'][name]}")
    if advice:
        raise WorkbookError("; ".join(dict.fromkeys(advice)))


def refuse_unknown(words: Iterable[str], *option_classes: type) -> None:
    """Raise WorkbookError if a word is no option of RunOptions or of these dataclasses."""
    known = []
    for option_class in (RunOptions, *option_classes):
        known += [row.name for row in fields(option_class)]
    for word in words:
        if not word.startswith("--"):
            raise WorkbookError(f"{word!r} is not an option: give --name value")
        name = _name_in(word)
        if name in known:
            continue
        # A misspelt name resembles one strongly; a weaker likeness is chance among 200 names.
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
        if near:
            raise WorkbookError(f"there is no option {name}: did you mean {near[0]}?")
        raise WorkbookError(
            f"there is no option {name}: `run --help` lists ours, and all fields of TRL's "
            "GRPOConfig are options too"
        )


def with_file(arguments: list[str]) -> list[str]:
    """The arguments without --config FILE.yaml, behind the words of that file."""
    parser: Any = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.error = refuse
    parser.add_argument("--config", type=Path)
    known, words = parser.parse_known_args(arguments)
    if known.config is None:
        return words
    return [*words_of(known.config), *words]  # of two equal options the last one wins


def words_of(path: Path) -> list[str]:
    """The names and values of a YAML file as words; its paths are relative to its folder.

    Raises:
        WorkbookError: for a file that cannot be read, or is not a mapping.
    """
    import yaml

    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())  # YAML's errors have several lines
        raise WorkbookError(f"{path} cannot be read as YAML: {reason}") from None
    if not isinstance(config, dict):
        raise WorkbookError(f"{path} is not a mapping: write one `name: value` per line")
    words = []
    for name, value in config.items():
        if value is not None:  # else as if it were not given
            words.extend(_words_for(name, value, path.parent))
    return words


def _words_for(name: str, value: Any, folder: Path) -> list[str]:
    """One entry of a YAML file in `folder` as argparse takes it."""
    if name in WITH_COMMAS and isinstance(value, list):
        value = ",".join(value)
    if name in ("rewards", "judge"):
        value = beside(str(value), folder)
    elif name in PATHS:
        place = folder / Path(value).expanduser()
        # What is not beside the file may be a hub id, a family, or a path from here.
        if name == "output_dir" or place.exists():
            value = place
    if isinstance(value, list):
        # argparse takes the items of a list as words of their own.
        return [f"--{name}", *[str(item) for item in value]]
    if isinstance(value, dict):
        # GRPOConfig reads a text of JSON where it wants a dict.
        return [f"--{name}={json.dumps(value)}"]
    # One word, because argparse takes a value that begins with - for an option.
    return [f"--{name}={value}"]


def _parse(words: list[str], *option_classes: type) -> tuple:
    """An object of each class, and the words that belong to none."""
    # look_for_args_file would read a file beside the script whose name ends in .args.
    return new_parser(*option_classes).parse_args_into_dataclasses(
        words, return_remaining_strings=True, look_for_args_file=False
    )


def _name_in(word: str) -> str:
    """The name in --max-steps=3, with underscores."""
    return word.split("=")[0].lstrip("-").replace("-", "_")


def _settings_of(
    words: list[str], options: RunOptions, profile: Profile, args: Any
) -> dict[str, Any]:
    """What the profile and the user say, by name: a run is resumed only with the same."""
    settings: dict[str, Any] = {
        "rewards": options.rewards,
        "system_prompt": profile.system_prompt,
        "dtype": profile.dtype,
        "load_in_4bit": profile.loader["load_in_4bit"],
        "lora_rank": profile.lora["r"],
        "target_modules": options.target_modules,
        "max_prompt_length": profile.max_prompt_length,
        "heldout": profile.heldout,
        "heldout_samples": options.heldout_samples,
        "subset": options.subset,
        "subset_samples": options.subset_samples,
        "eval_batch_size": profile.eval_batch_size,
    }
    # The options of RunOptions that matter are above, or are recorded by content (see
    # run.identify).
    own = {option.name for option in fields(RunOptions)}
    named = [_name_in(word) for word in words if word.startswith("--")]
    # TRL's parser also has --no_NAME for what is True by default.
    for name in [*profile.grpo, *[name.removeprefix("no_") for name in named]]:
        if name not in own and name not in ("output_dir", "seed", "data_seed", *OF_THE_MACHINE):
            settings[name] = getattr(args, name)
    return settings
