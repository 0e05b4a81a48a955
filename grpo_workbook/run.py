"""What this run is: device, profile, model, seed, folders and every setting, each with the reason why.

The same notebook runs on two CPU cores and on an 80 GB GPU; only the `Run` differs.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from numbers import Integral
from pathlib import Path

from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import readable
from grpo_workbook.planning.profiles import find_entry
from grpo_workbook.settings import DATA, PROFILES, REPO, Settings, replace_settings
from grpo_workbook.stages.stage import Stage, check_stages

FAMILIES = ("qwen", "gemma")


@dataclass(frozen=True)
class Run:
    """One run of the course: what it runs on, what it trains, where it writes, and why each was chosen."""

    device: str  # "cpu" or "cuda"
    profile: str
    model: str  # a folder, or an id on the Hugging Face hub
    family: str  # "qwen" or "gemma"
    seed: int
    output: Path
    settings: Settings
    why: dict[str, str] = field(default_factory=dict)
    stages: tuple[
        Stage, ...
    ] = ()  # one after the other, instead of one training run (see stages.py)

    @classmethod
    def from_env(
        cls,
        *,
        profile: str | None = None,
        model: str | None = None,
        seed: int | None = None,
        output: str | Path | None = None,
        stages: Sequence[Stage] = (),
        **settings,
    ) -> "Run":
        """Choose everything: an argument wins over the environment, the environment over what the machine has.

        Reads GRPO_WORKBOOK_PROFILE, GRPO_WORKBOOK_MODEL, GRPO_WORKBOOK_SEED and GRPO_WORKBOOK_OUTPUT. Further keyword
        arguments replace single settings of the profile (`steps=30`). Raises WorkbookError with the mend.
        """
        why: dict[str, str] = {}

        def choose(name: str, given, default, reason: str):
            variable = f"GRPO_WORKBOOK_{name.upper()}"
            if given is not None:
                why[name] = "given as an argument"
                return given
            if os.environ.get(variable):
                why[name] = f"{variable} is set"
                return os.environ[variable]
            why[name] = reason
            return default

        device, gib, why["device"] = find_device()
        fitting, reason = _fitting_profile(device, gib)
        profile = choose("profile", profile, fitting, reason)
        if profile not in PROFILES:
            raise WorkbookError(
                f"unknown profile {profile!r}: choose one of {', '.join(PROFILES)} (--profile or GRPO_WORKBOOK_PROFILE)"
            )
        if profile != "smoke" and device == "cpu":
            raise WorkbookError(
                f"profile {profile!r} needs a CUDA GPU and torch sees none: use the profile smoke, "
                "or see `python -m grpo_workbook doctor`"
            )
        model = str(choose("model", model, "qwen", "the default family"))
        model, family = _resolve_model(model, PROFILES[profile])
        values = PROFILES[profile]
        if profile != "smoke":
            entry = find_entry(profile, model)
            values = entry.settings if entry else values
            whose = (
                "the catalogue's for this model"
                if entry
                else "the profile's: the catalogue lacks this model"
            )
            why["settings"] = f"{whose} (python -m grpo_workbook estimate)"
        chosen = replace_settings(values, settings)
        if device == "cuda" and chosen.dtype == "bfloat16" and not _has_bfloat16():
            chosen = replace(chosen, dtype="float16")
            why["dtype"] = "the GPU has no bfloat16"
        if chosen.vllm != "off" and (missing := _why_no_vllm(device)):
            if settings.get("vllm") is not None:
                raise WorkbookError(
                    f"vllm is {chosen.vllm!r} and {missing}: say vllm: off (or --vllm off)"
                )
            chosen = replace(chosen, vllm="off")
            why["vllm"] = missing
        seed = choose("seed", seed, 0, "the default")
        try:
            if isinstance(seed, bool) or not isinstance(seed, str | Integral):
                raise ValueError
            seed = int(seed)
        except ValueError:
            raise WorkbookError(
                f"the seed {seed!r} is not a whole number (--seed or GRPO_WORKBOOK_SEED)"
            ) from None
        if not 0 <= seed < 2**32:
            raise WorkbookError(
                f"the seed {seed} is not between 0 and {2**32 - 1}, which NumPy can take"
            )
        output = str(choose("output", output, "outputs/run", "the default"))
        if not output.strip() or "\0" in output:
            raise WorkbookError(f"the output {output!r} is no folder's name: name one (--output)")
        output = Path(output)
        stages = check_stages(stages) if stages else ()
        return cls(device, profile, model, family, seed, output, chosen, why, stages)

    @property
    def model_name(self) -> str:
        """The model as reports name it, the same from every folder: a hub id, or a path seen from the project's."""
        folder = Path(self.model)
        return str(folder.relative_to(REPO)) if folder.is_relative_to(REPO) else self.model

    def __str__(self) -> str:
        values = {
            "device": self.device,
            "profile": self.profile,
            "model": f"{readable(self.model)} ({self.family})",
            "seed": self.seed,
            "output": readable(self.output),
        }
        lines = [
            f"{name:<8} {value!s:<28} {self.why.get(name, '')}" for name, value in values.items()
        ]
        s = self.settings
        steps = sum(stage.steps for stage in self.stages) or s.steps
        lines += [
            f"training {steps} steps of {s.prompts_per_step} problems x {s.num_generations} completions,",
            f"         {'4-bit NF4' if s.load_in_4bit else '16-bit'} base, LoRA rank {s.lora_rank}, "
            f"learning rate {s.learning_rate:g}",
        ]
        lines += [
            f"stage    {i} {stage.name}, {stage.steps} steps"
            for i, stage in enumerate(self.stages, 1)
        ]
        if s.vllm != "off" or "vllm" in self.why:
            lines.append(f"vllm     {s.vllm:<28} {self.why.get('vllm', '')}".rstrip())
        return "\n".join(lines)


def find_device() -> tuple[str, float, str]:
    """(device, its memory in GiB, why): the first CUDA GPU that torch sees, else the CPU (memory 0)."""
    import torch

    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        return "cuda", properties.total_memory / 2**30, f"torch sees {properties.name}"
    return "cpu", 0.0, "torch sees no CUDA GPU"


def _has_bfloat16() -> bool:
    import torch

    return torch.cuda.is_bf16_supported(including_emulation=False)


def _why_no_vllm(device: str) -> str | None:
    """Why vLLM cannot draw the completions here, or None where it is installed beside a GPU."""
    if device != "cuda":
        return "vLLM needs a CUDA GPU"
    return None if find_spec("vllm") else "vLLM is not installed"


def _fitting_profile(device: str, gib: float) -> tuple[str, str]:
    if device == "cpu":
        return "smoke", "no GPU: a tiny model for two CPU cores"
    name = "t4" if gib < 20 else "24gb" if gib < 60 else "80gb"
    return name, f"the GPU has {gib:.0f} GiB"


def _resolve_model(model: str, settings: Settings) -> tuple[str, str]:
    """(folder or hub id, family) of a family's name, a folder, or a hub id."""
    if model in FAMILIES:
        chosen = getattr(settings, model)
        if chosen.startswith(str(DATA)) and not Path(chosen).is_dir():
            raise WorkbookError(
                f"the tiny model {chosen} is missing: the course runs from a clone (`pip install -e .` there, or "
                "`make models`); elsewhere name a --model"
            )
        return chosen, model
    folder = Path(model).expanduser()
    if folder.exists():
        config = folder / "config.json"
        if not config.is_file():
            raise WorkbookError(
                f"model folder {model!r} has no config.json: name the folder that save_pretrained wrote"
            )
        try:
            kind = str(json.loads(config.read_text(encoding="utf-8")).get("model_type") or "")
        except (ValueError, AttributeError, RecursionError):
            raise WorkbookError(f"{config} is not a JSON object: copy the model again") from None
        model = str(folder.resolve())  # the adapter will name its base by this path
    elif model.count("/") == 1 and not model.startswith((".", "/", "~")):
        kind = model.rsplit("/", 1)[1]
    else:
        raise WorkbookError(
            f"unknown model {model!r}: give a family ({', '.join(FAMILIES)}), a folder that exists, "
            "or a hub id such as unsloth/Qwen3-1.7B (--model or GRPO_WORKBOOK_MODEL)"
        )
    for family in FAMILIES:
        if family in kind.lower():
            return model, family
    raise WorkbookError(
        f"unknown family {kind!r} of model {model!r}: this course runs {' and '.join(FAMILIES)} models"
    )
