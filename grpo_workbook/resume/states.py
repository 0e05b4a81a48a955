"""What a checkpoint of the Trainer leaves out, a file for each process: taken, written, put back.

Rewards and callbacks that have state take part by two methods, `state_dict()` and
`load_state_dict(state)`; the state is made of dicts, lists, texts, numbers, None and tensors.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import readable
from grpo_workbook.rewards import name_of

# A checkpoint's place in data and completions means the same only where these are the same.
SETUP = (
    "per_device_train_batch_size gradient_accumulation_steps steps_per_generation num_iterations "
    "num_generations world_size seed shuffle_dataset"
).split()
# Of the trainer: forward passes, by which TRL knows when to sample; what it has sampled; the loss
# since the last entry of the log, before it, and when that was.
KEPT = "_step _buffered_inputs _tr_loss _total_loss_scalar _globalstep_last_logged".split()


def take(trainer) -> dict:
    """What the next step depends on, of this process, and the Trainer does not save."""
    state: dict = {name: getattr(trainer, name) for name in KEPT}
    if trainer._step % (trainer.args.steps_per_generation * trainer.num_iterations) == 0:
        state["_buffered_inputs"] = None  # used up: the next step samples new completions
    state |= {"setup": _setup(trainer), "metrics": dict(trainer._metrics["train"])}
    parts = {"rewards": trainer.reward_funcs, "callbacks": trainer.callback_handler.callbacks}
    for part, things in parts.items():
        state[part] = {name: thing.state_dict() for name, thing in _stateful(things).items()}
    return state


def put_back(trainer, state: dict, dataloader) -> None:
    """Put the trainer where `take` found it: as training begins, the Trainer's own part loaded."""
    from accelerate.utils import send_to_device

    for name in KEPT:
        setattr(trainer, name, send_to_device(state[name], trainer.accelerator.device))
    trainer._metrics["train"] = defaultdict(list, state["metrics"])
    put_back_rewards(trainer, state["rewards"])
    for name, callback in _stateful(trainer.callback_handler.callbacks).items():
        if name in state["callbacks"]:  # one may be added or left out
            callback.load_state_dict(state["callbacks"][name])
    _advance(dataloader, int(trainer.state.epoch))


def put_back_rewards(trainer, kept: Mapping[str, dict]) -> None:
    """Give the rewards their state; WorkbookError when the checkpoint was written with others."""
    here = _stateful(trainer.reward_funcs)
    if here.keys() != kept.keys():
        said = f"the checkpoint keeps the state of {sorted(kept)}, this trainer has {sorted(here)}"
        raise WorkbookError(f"{said}: give the same rewards, or begin anew")
    for name, reward in here.items():
        reward.load_state_dict(kept[name])


def _stateful(things: Iterable) -> dict[str, Any]:
    """The rewards or callbacks that have state, as name:0, name:1, ..."""
    found = list(_within(things))
    names = [name_of(thing) for thing in found]
    return {f"{name}:{names[:i].count(name)}": found[i] for i, name in enumerate(names)}


def _within(things: Iterable) -> Iterator:
    """Those of them that have state, within a functools.wraps or an ensemble too."""
    import torch

    for thing in things:
        if isinstance(thing, torch.nn.Module):
            continue  # a reward model has weights, which nothing trains
        if hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict"):
            yield thing
        wrapped = getattr(thing, "__wrapped__", None)
        yield from _within(getattr(thing, "members", ()) or ([wrapped] if wrapped else []))


def _advance(dataloader, epochs: int) -> None:
    """Sample the orders of the finished epochs: TRL's sampler goes through one random sequence."""
    import torch

    place = dataloader
    while place is not None and not hasattr(place, "mini_repeat_count"):  # TRL's RepeatSampler
        place = getattr(place, "batch_sampler", None) or getattr(place, "sampler", None)
    if place is None:
        raise WorkbookError("a streamed data set cannot be resumed exactly: give one with a length")
    if place.shuffle:
        for _ in range(epochs):
            torch.randperm(place.num_samples, generator=place.generator)


def _setup(trainer) -> dict:
    """The values of SETUP, and the number of training rows (None: a stream)."""
    rows = getattr(trainer.train_dataset, "num_rows", None)
    return {name: getattr(trainer.args, name) for name in SETUP} | {"training rows": rows}


def check_setup(trainer, checkpoint: str | Path) -> None:
    """Raise WorkbookError when another setup than this trainer's wrote the checkpoint."""
    kept, here = read(file_of(checkpoint, 0))["setup"], _setup(trainer)
    if different := [f"{n} {kept[n]}, here {here[n]}" for n in here if kept[n] != here[n]]:
        said = f"{readable(checkpoint)} was written with {'; '.join(different)}"
        raise WorkbookError(f"{said}: give the same values, or begin anew")


def file_of(checkpoint: str | Path, process: int) -> Path:
    """Where the state of a process stands in a checkpoint."""
    return Path(checkpoint) / f"exact_{process}.safetensors"


def write(path: Path, state: dict) -> None:
    """Write a state as safetensors: its tensors, and the rest as JSON in the file's metadata.

    Raises WorkbookError for a value that is no plain one and no tensor.
    """
    import torch
    from safetensors.torch import save_file

    tensors: dict[str, torch.Tensor] = {}

    def plain(value):
        if isinstance(value, torch.Tensor):
            tensors[name := str(len(tensors))] = value.detach().cpu().clone().contiguous()
            return {"tensor": name}
        if isinstance(value, Mapping):  # as pairs, for keys may be numbers
            return {"pairs": [[key, plain(inner)] for key, inner in value.items()]}
        return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value

    try:
        text = json.dumps(plain(state))
    except TypeError as error:
        raise WorkbookError(
            f"a checkpoint cannot keep this state ({error}): make state_dict() of plain values and "
            "tensors; where completions hold it, let save_steps fall where they are used up"
        ) from error
    save_file(tensors, path, metadata={"state": text})


def read(path: Path) -> dict:
    """Read what `write` has written, on the CPU. Nothing is unpickled."""
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
