"""The state that a checkpoint of the Trainer leaves out, in one file per process.

Rewards and callbacks with state need two methods, `state_dict()` and `load_state_dict(state)`; the
state consists of dicts, lists, texts, numbers, None and tensors.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import readable
from grpo_workbook.rewards import name_of

# A checkpoint's position in data and completions is valid only for the same values of these.
SETUP = (
    "per_device_train_batch_size gradient_accumulation_steps steps_per_generation num_iterations "
    "num_generations world_size seed shuffle_dataset"
).split()
# The trainer's forward passes, which tell TRL when to sample; its sampled completions; the loss
# since the last entry of the log and before it, and the step of that entry.
KEPT = "_step _buffered_inputs _tr_loss _total_loss_scalar _globalstep_last_logged".split()


def take(trainer) -> dict:
    """The state of this process that the next step needs and the Trainer does not save."""
    state: dict = {name: getattr(trainer, name) for name in KEPT}
    if trainer._step % (trainer.args.steps_per_generation * trainer.num_iterations) == 0:
        state["_buffered_inputs"] = None  # all used: the next step samples new completions
    state |= {"setup": _setup(trainer), "metrics": dict(trainer._metrics["train"])}
    parts = {"rewards": trainer.reward_funcs, "callbacks": trainer.callback_handler.callbacks}
    for part, things in parts.items():
        state[part] = {name: thing.state_dict() for name, thing in _stateful(things).items()}
    return state


def put_back(trainer, state: dict, dataloader) -> None:
    """Restore the state from `take` when training starts, after the Trainer's own part."""
    from accelerate.utils import send_to_device

    for name in KEPT:
        setattr(trainer, name, send_to_device(state[name], trainer.accelerator.device))
    trainer._metrics["train"] = defaultdict(list, state["metrics"])
    put_back_rewards(trainer, state["rewards"])
    for name, callback in _stateful(trainer.callback_handler.callbacks).items():
        if name in state["callbacks"]:  # callbacks may be added or left out
            callback.load_state_dict(state["callbacks"][name])
    _advance(dataloader, int(trainer.state.epoch))


def put_back_rewards(trainer, kept: Mapping[str, dict]) -> None:
    """Restore the rewards' state; WorkbookError if the checkpoint is of other rewards."""
    here = _stateful(trainer.reward_funcs)
    if here.keys() != kept.keys():
        said = f"the checkpoint keeps the state of {sorted(kept)}, this trainer has {sorted(here)}"
        raise WorkbookError(f"{said}: give the same rewards, or start again")
    for name, reward in here.items():
        reward.load_state_dict(kept[name])


def _stateful(things: Iterable) -> dict[str, Any]:
    """The rewards or callbacks with state, as name:0, name:1, ..."""
    found = list(_within(things))
    names = [name_of(thing) for thing in found]
    return {f"{name}:{names[:i].count(name)}": found[i] for i, name in enumerate(names)}


def _within(things: Iterable) -> Iterator:
    """The things with state, also within a functools.wraps or the members of another."""
    import torch

    for thing in things:
        if isinstance(thing, torch.nn.Module):
            continue  # a reward model's weights are not trained
        if hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict"):
            yield thing
        wrapped = getattr(thing, "__wrapped__", None)
        yield from _within(getattr(thing, "members", ()) or ([wrapped] if wrapped else []))


def _advance(dataloader, epochs: int) -> None:
    """Generate the orders of the finished epochs: TRL's sampler uses one random sequence."""
    import torch

    place = dataloader
    while place is not None and not hasattr(place, "mini_repeat_count"):  # TRL's RepeatSampler
        place = getattr(place, "batch_sampler", None) or getattr(place, "sampler", None)
    if place is None:
        raise WorkbookError("a streamed data set cannot resume exactly: give one with a length")
    if place.shuffle:
        for _ in range(epochs):
            torch.randperm(place.num_samples, generator=place.generator)


def _setup(trainer) -> dict:
    """The values of SETUP, and the number of training rows (None: a stream)."""
    rows = getattr(trainer.train_dataset, "num_rows", None)
    return {name: getattr(trainer.args, name) for name in SETUP} | {"training rows": rows}


def check_setup(trainer, checkpoint: str | Path) -> None:
    """Raise WorkbookError if the checkpoint is of a trainer with another setup."""
    kept, here = read(file_of(checkpoint, 0))["setup"], _setup(trainer)
    if different := [f"{n} {kept[n]}, here {here[n]}" for n in here if kept[n] != here[n]]:
        said = f"{readable(checkpoint)} was written with {'; '.join(different)}"
        raise WorkbookError(f"{said}: give the same values, or start again")


def file_of(checkpoint: str | Path, process: int) -> Path:
    """The path of a process's state in a checkpoint."""
    return Path(checkpoint) / f"exact_{process}.safetensors"


def write(path: Path, state: dict) -> None:
    """Write a state as safetensors: its tensors, and the rest as JSON in the file's metadata.

    Raises WorkbookError for any other value.
    """
    import torch
    from safetensors.torch import save_file

    tensors: dict[str, torch.Tensor] = {}

    def plain(value):
        if isinstance(value, torch.Tensor):
            tensors[name := str(len(tensors))] = value.detach().cpu().clone().contiguous()
            return {"tensor": name}
        if isinstance(value, Mapping):  # as pairs, because keys may be numbers
            return {"pairs": [[key, plain(inner)] for key, inner in value.items()]}
        return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value

    try:
        text = json.dumps(plain(state))
    except TypeError as error:
        raise WorkbookError(
            f"a checkpoint cannot keep this state ({error}): return plain values and tensors from "
            "state_dict(); if it is in completions, choose save_steps at which all are used"
        ) from error
    save_file(tensors, path, metadata={"state": text})


def read(path: Path) -> dict:
    """Read a state from `write`, on the CPU. Nothing is unpickled."""
    from safetensors import safe_open

    def whole(value):
        if isinstance(value, list):
            return [whole(inner) for inner in value]
        if not isinstance(value, dict):
            return value
        if "tensor" in value:
            return file.get_tensor(value["tensor"])
        return {key: whole(inner) for key, inner in value["pairs"]}

    with safe_open(path, "pt") as file:
        return whole(json.loads(file.metadata()["state"]))
