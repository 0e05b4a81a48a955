"""Whether a run fits a GPU before it is started, and the cheapest changes that make it fit."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from grpo_workbook.config import FAMILIES, PROFILES, RunConfig
from grpo_workbook.errors import WorkbookError
from grpo_workbook.planning.memory import GIB, find_shape, memory, total

PROFILE_GIB = {"t4": 14.7, "24gb": 22.1, "80gb": 79.1}  # as torch reports a T4, an L4, an A100
USABLE = 0.92  # assumed: the rest is lost between the blocks that torch reserves
COSTS = {  # what saves memory, the cheapest first, and what each costs
    "per_device_batch": "a little time: the same batch in more pieces",
    "gradient_checkpointing": "time: every layer is computed again",
    "vllm": "time: Transformers samples the completions instead",
    "load_in_4bit": "time to unpack the weights, and a little accuracy",
    "batch_size": "a noisier gradient, so more steps",
    "max_completion_length": "answers that are cut before they earn",
    "num_generations": "more zero-variance groups, coarser advantages",
}


@dataclass(frozen=True)
class Plan:
    """What a run takes, in bytes. `usable`: of the device, None where nobody says (smoke)."""

    run: RunConfig
    parts: dict[str, dict[str, float]]  # see memory()
    usable: float | None
    changes: tuple[tuple[str, str, float], ...] = ()  # (change, its cost, bytes after all so far)

    @property
    def fits(self) -> bool | None:
        """Whether it fits; None where the memory is not known."""
        return None if self.usable is None else total(self.parts) <= self.usable

    def __str__(self) -> str:
        most = total(self.parts)
        unit, name = (GIB, "GiB") if most > 4 * GIB else (2**20, "MiB")
        lines = [f"{self.run.model_name} on {self.run.profile}: computed, measured on no GPU", ""]
        for phase, parts in self.parts.items():
            lines.append(f"{phase:<34}{sum(parts.values()) / unit:8.2f} {name}")
            for part, size in parts.items():
                bar = "#" * round(30 * size / most)
                lines.append(f"  {part:<32}{size / unit:8.2f}  {bar}".rstrip())
        lines += [f"{'in all: always + the larger':<34}{most / unit:8.2f} {name}", ""]
        if self.usable is None:
            return "\n".join([*lines, "Nobody says what this machine has: give it with --memory."])
        room = f"{self.usable / unit:.2f} {name} can be used ({USABLE:.0%}, assumed)."
        lines.append(f"It {'fits' if self.fits else 'does not fit'}: {room}")
        for what, cost, size in self.changes:
            lines += [f"  {what:<50}{size / unit:8.2f} {name}", f"      costs {cost}"]
        if not self.fits and (not self.changes or self.changes[-1][2] > self.usable):
            lines.append("No setting is enough: take a smaller model or a larger GPU.")
        return "\n".join(lines)


def plan(
    model: str, profile: str, *, processes: int = 1, gib: float | None = None, **values
) -> Plan:
    """What a run of `model`, with the profile's values and these, takes of a GPU anywhere.

    `model`: "qwen" or "gemma" (the profile's own), or what `find_shape` takes. `gib`: the device's
    memory, where it is not the profile's. WorkbookError for what is unknown or cannot be.
    """
    if profile not in PROFILES:
        raise WorkbookError(f"unknown profile {profile!r}: choose one of {', '.join(PROFILES)}")
    if processes < 1 or (gib is not None and not 0 < gib < 10**6):
        raise WorkbookError(f"{processes} processes and {gib} GiB: both must be more than 0")
    chosen = PROFILES[profile] | values
    model = chosen[model] if model in FAMILIES else model
    settings = {name: value for name, value in chosen.items() if name not in FAMILIES}
    device = "cpu" if profile == "smoke" else "cuda"
    run = RunConfig(device, profile, model, "", 0, Path("outputs/run"), **settings)
    if run.batch_size % processes:
        raise WorkbookError(f"{run.batch_size} completions do not divide by {processes} processes")
    size = PROFILE_GIB.get(profile) if gib is None else gib
    parts = memory(find_shape(model), run, processes, size or 0.0)
    found = Plan(run, parts, None if size is None else USABLE * size * GIB)
    if found.fits is not False:
        return found
    return Plan(run, parts, found.usable, tuple(_changes(found, processes, size or 0.0)))


def _changes(found: Plan, processes: int, gib: float) -> Iterator[tuple[str, str, float]]:
    """The cheapest change that saves memory, again and again; then each with all before it."""

    def needed(run: RunConfig) -> float:
        return total(memory(find_shape(run.model), run, processes, gib))

    changed, usable = found.run, found.usable or 0.0
    while needed(changed) > usable:
        ways = (changed.replace(**values) for values in _ways(changed, processes))
        better = next((run for run in ways if needed(run) < 0.99 * needed(changed)), None)
        if better is None:
            break
        changed = better
    so_far = found.run
    for name, cost in COSTS.items():
        if (new := getattr(changed, name)) != (old := getattr(found.run, name)):
            so_far = so_far.replace(**{name: new})
            yield f"{name} {old} -> {new}", cost, needed(so_far)


def _ways(run: RunConfig, processes: int) -> Iterator[dict]:
    """Values that save memory, the cheapest first."""
    half, group = run.batch_size // 2, run.num_generations // 2
    if run.per_device_batch > 1:
        yield {"per_device_batch": run.per_device_batch // 2}
    for name, value in (("gradient_checkpointing", True), ("vllm", "off"), ("load_in_4bit", True)):
        if getattr(run, name) != value:
            yield {name: value}
    if half and half % run.num_generations == half % processes == 0:
        yield {"batch_size": half}
    if run.max_completion_length >= 512:
        yield {"max_completion_length": run.max_completion_length // 2}
    if group >= 4 and half % group == half % processes == 0:
        yield {"num_generations": group, "batch_size": half}
