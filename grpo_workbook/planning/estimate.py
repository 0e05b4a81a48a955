"""Memory and time of a GRPO run before it is started, whether it fits, and the cheapest changes that make it fit.

From the model's config alone, and offline for the models that the course names. Nobody has compared these numbers with
a GPU yet, and every report says so.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from grpo_workbook.config import PROFILES, RunConfig, replace_settings
from grpo_workbook.errors import WorkbookError
from grpo_workbook.planning.architectures import KNOWN, Architecture, architecture, short_name
from grpo_workbook.planning.memory import (
    GIB,
    Memory,
    activation_bytes,
    activation_value_bytes,
    memory,
    weight_bytes,
)
from grpo_workbook.planning.profiles import CATALOGUE, find_entry
from grpo_workbook.planning.step_time import GPUS, Gpu, step_seconds, vllm_room

USABLE = 0.92  # assumed: the rest of a GPU's memory is lost between the blocks that torch reserves
UNMEASURED = "computed, not measured: no GPU has been compared with these numbers"


@dataclass(frozen=True)
class Change:
    """A change of one setting, or to another model, and what the run takes after it and all changes before it."""

    what: str
    cost: str
    total: float  # bytes
    generating: float  # bytes while it generates, what is always there included
    learning: float  # bytes while it learns, the same included


COSTS = {  # the settings that save memory, the cheapest first, and what each costs
    "per_device_batch": "a little time: the same batch in more pieces",
    "gradient_checkpointing": "time: every layer is computed again",
    "vllm": "time: Transformers draws the completions instead",
    "load_in_4bit": "time to unpack the weights, and a little accuracy",
    "batch_size": "a noisier gradient, so more steps",
    "max_completion_length": "answers that are cut before they earn",
    "num_generations": "more silent groups, coarser advantages",
}


@dataclass(frozen=True)
class Estimate:
    """What a run takes. `budget`: usable bytes of the device, None where it is not known (smoke)."""

    model: str
    profile: str
    settings: RunConfig
    memory: Memory
    budget: float | None
    seconds: dict[str, float]  # of one step, by part; empty without a GPU
    changes: tuple[Change, ...]  # in order, each on top of those before; empty where it fits
    alternatives: dict[
        str, float
    ]  # bytes of weights and activations, had they been chosen otherwise
    processes: int = 1
    room: int | None = None  # completions that vLLM beside the training can write at once

    @property
    def fits(self) -> bool | None:
        """Whether it fits into the budget; None where that is not known."""
        if self.budget is None:
            return None
        return self.memory.total <= self.budget and self.room != 0

    @property
    def minutes(self) -> float | None:
        """Of all steps, with completions of full length; loading and measuring not counted. None without a GPU."""
        return self.settings.steps * sum(self.seconds.values()) / 60 if self.seconds else None

    def as_dict(self) -> dict:
        """For JSON: bytes, seconds, settings."""
        return {
            "model": self.model,
            "profile": self.profile,
            "measured": False,
            "bytes": {k: round(v) for k, v in self.memory.parts.items()}
            | {"total": round(self.memory.total)},
            "usable_bytes": None if self.budget is None else round(self.budget),
            "fits": self.fits,
            "step_seconds": {k: round(v, 3) for k, v in self.seconds.items()},
            "minutes": None if self.minutes is None else round(self.minutes, 1),
            "instead": {k: round(v) for k, v in self.alternatives.items()},
            "changes": [
                {"what": c.what, "cost": c.cost, "total_bytes": round(c.total)}
                for c in self.changes
            ],
            "processes": self.processes,
            "settings": asdict(self.settings),
        }


def estimate(
    model: str,
    profile: str,
    changes: dict | None = None,
    *,
    processes: int = 1,
    gib: float | None = None,
) -> Estimate:
    """Estimate a run of `model` on `profile`, with the catalogue's settings and `changes` to them.

    `model`: "qwen" or "gemma" (the profile's own), or whatever `architecture` takes. `gib`: the device's memory, where
    it is not the profile's. Raises WorkbookError for an unknown model, profile or setting, and values that cannot be.
    """
    if profile not in PROFILES:
        raise WorkbookError(f"unknown profile {profile!r}: choose one of {', '.join(PROFILES)}")
    if gib is not None and not 0 < gib < 10**6:
        raise WorkbookError(
            f"the memory is {gib:g} GiB: give the GPU's memory in GiB, such as 14.7"
        )
    if processes < 1:
        raise WorkbookError(f"processes is {processes}: at least one is needed")
    model = getattr(PROFILES[profile], model) if model in ("qwen", "gemma") else model
    a, entry = architecture(model), find_entry(profile, model)
    settings = replace_settings(entry.settings if entry else PROFILES[profile], changes or {})
    if settings.batch_size % processes:
        raise WorkbookError(
            f"{settings.batch_size} completions cannot be shared out among {processes} processes: choose a batch_size "
            f"that {processes} and num_generations ({settings.num_generations}) both divide"
        )
    gpu = GPUS.get(profile)
    budget = usable(gpu, gib)
    size = gib or (gpu.gib if gpu else 0.0)
    needed = memory(a, settings, processes, size)
    room = vllm_room(a, settings, size) if settings.vllm == "colocate" else None
    fits = budget is None or needed.total <= budget
    each = activation_value_bytes(a, settings.dtype)
    rows, tokens = (
        settings.per_device_batch,
        settings.max_prompt_length + settings.max_completion_length,
    )
    return Estimate(
        model,
        profile,
        settings,
        needed,
        budget,
        step_seconds(a, settings, gpu, processes) if gpu and room != 0 else {},
        () if fits or budget is None else tuple(mend(a, model, settings, budget, processes, size)),
        {
            "weights in 4-bit": weight_bytes(a, settings.dtype, True),
            "weights in 16-bit": weight_bytes(a, "float16", False),
            "activations without checkpointing": sum(
                activation_bytes(a, rows, tokens, settings.lora_rank, each, False).values()
            ),
            "activations with checkpointing": sum(
                activation_bytes(a, rows, tokens, settings.lora_rank, each, True).values()
            ),
        },
        processes,
        room,
    )


def usable(gpu: Gpu | None, gib: float | None = None) -> float | None:
    """Bytes that a run may take of a GPU, or of `gib` GiB in its place; None where no memory is known."""
    size = gib if gib is not None else gpu.gib if gpu else None
    return None if size is None else size * GIB * USABLE


def mend(
    a: Architecture, model: str, s: RunConfig, budget: float, processes: int = 1, gib: float = 0.0
) -> Iterator[Change]:
    """What to change, the cheapest first, so that the run fits; where no change is enough, a smaller model.

    `budget` is in bytes, `gib` the device's memory, of which vLLM takes its share; the settings are the run's own.
    Taken is the cheapest change that lowers the memory, again and again. What is told are the settings that differ in
    the end, in the order of `_ways`, each with the memory of it and all before it.
    """
    changed, helps = s, True
    while helps and (total := memory(a, changed, processes, gib).total) > budget:
        helps = False
        for _, changes in _ways(changed, processes):
            candidate = replace_settings(changed, changes)
            if memory(a, candidate, processes, gib).total < 0.99 * total:
                changed, helps = candidate, True
                break
    so_far = s
    for name, cost in COSTS.items():
        if (old := getattr(s, name)) != (new := getattr(changed, name)):
            so_far = replace(so_far, **{name: new})
            values = " -> ".join(
                ("on" if v else "off") if isinstance(v, bool) else str(v) for v in (old, new)
            )
            yield _change(f"{name} {values}", cost, a, so_far, processes, gib)
    if memory(a, changed, processes, gib).total > budget:
        yield from _smaller(a, model, changed, budget, processes, gib)


def _change(
    what: str, cost: str, a: Architecture, s: RunConfig, processes: int, gib: float
) -> Change:
    m = memory(a, s, processes, gib)
    return Change(what, cost, m.total, m.generating, m.learning)


def _ways(s: RunConfig, processes: int) -> Iterator[tuple[str, dict]]:
    """(setting, the changed settings), the cheapest first."""
    if s.per_device_batch > 1:
        yield "per_device_batch", {"per_device_batch": s.per_device_batch // 2}
    if not s.gradient_checkpointing:
        yield "gradient_checkpointing", {"gradient_checkpointing": True}
    if s.vllm == "colocate":
        yield "vllm", {"vllm": "off"}
    if not s.load_in_4bit:
        yield "load_in_4bit", {"load_in_4bit": True}
    half = s.batch_size // 2
    if half and half % s.num_generations == half % processes == 0:
        yield "batch_size", {"batch_size": half}
    if s.max_completion_length >= 512:
        yield "max_completion_length", {"max_completion_length": s.max_completion_length // 2}
    group = s.num_generations // 2
    if group >= 4 and half % group == half % processes == 0:
        yield "num_generations", {"num_generations": group, "batch_size": half}


def _smaller(
    a: Architecture, model: str, s: RunConfig, budget: float, processes: int, gib: float
) -> Iterator[Change]:
    """The largest smaller model of the course, of the same maker, that fits with these settings."""
    maker = short_name(model)[:4] if short_name(model) in KNOWN else a.model_type[:4]
    others = [architecture(name) for name in KNOWN if name.startswith(maker)]
    for other in sorted(others, key=lambda o: -o.parameters):
        if other.parameters < a.parameters and memory(other, s, processes, gib).total <= budget:
            yield _change(
                f"model -> {other.name}", "knowledge: it is smaller", other, s, processes, gib
            )
            return


def model_sizes(
    profile: str, s: RunConfig, maker: str = "qwen3-"
) -> dict[str, tuple[Architecture, Settings]]:
    """The catalogue's models of one family with the same settings, from small to large: {name: (architecture, s)}."""
    names = sorted(
        (n for p, n in CATALOGUE if p == profile and n.startswith(maker)), key=lambda n: KNOWN[n][2]
    )
    return {name: (architecture(name), replace(s)) for name in names}
