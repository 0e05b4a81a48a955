"""What a checkpoint of the Trainer leaves out, as one safetensors file for each process: taken, written, put back.

Rewards and callbacks that have state take part by two methods, `state_dict()` and `load_state_dict(state)`, whose state
is made of dicts, lists, texts, numbers, None and tensors.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import readable
from grpo_workbook.rewards import name_of

if TYPE_CHECKING:
    from trl import GRPOTrainer

TENSOR = "<tensor>"  # marks in the JSON part where a tensor stood


def take(trainer: "GRPOTrainer") -> dict:
    """Everything of this process that the next step depends on and the Trainer does not save."""
    generation = trainer.args.steps_per_generation * trainer.num_iterations
    used_up = trainer._step % generation == 0  # the next step draws new completions
    return {
        "setup": setup_of(trainer),
        "step": trainer._step,  # forward passes, by which TRL knows when to draw
        "drawn": None if used_up else trainer._buffered_inputs,
        "metrics": dict(trainer._metrics["train"]),
        "loss": trainer._tr_loss,  # summed up since the last entry of the log
        "total_loss": trainer._total_loss_scalar,
        "logged_at": trainer._globalstep_last_logged,
        "rewards": {
            name: reward.state_dict() for name, reward in stateful_rewards(trainer.reward_funcs)
        },
        "callbacks": {
            name: callback.state_dict() for name, callback in _stateful_callbacks(trainer)
        },
    }


def put_back(trainer: "GRPOTrainer", state: dict, dataloader) -> None:
    """Put the trainer where `take` found it. Call it when training begins, after the Trainer has loaded its part."""
    import torch

    device = trainer.accelerator.device
    trainer._step = state["step"]
    if state["drawn"] is not None:
        trainer._buffered_inputs = [
            {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in batch.items()}
            for batch in state["drawn"]
        ]
    trainer._metrics["train"] = defaultdict(list, state["metrics"])
    trainer._tr_loss = state["loss"].to(device)
    trainer._total_loss_scalar = state["total_loss"]
    trainer._globalstep_last_logged = state["logged_at"]
    put_back_rewards(trainer, state["rewards"])
    for name, callback in _stateful_callbacks(trainer):
        if name in state["callbacks"]:  # one may be added or left out
            callback.load_state_dict(state["callbacks"][name])
    _advance(dataloader, int(trainer.state.epoch))


def put_back_rewards(trainer: "GRPOTrainer", kept: Mapping[str, dict]) -> None:
    """Give the rewards their state. Raises WorkbookError when the checkpoint was written with others."""
    here = dict(stateful_rewards(trainer.reward_funcs))
    if set(here) != set(kept):
        raise WorkbookError(
            f"the checkpoint keeps the state of the rewards {sorted(kept)} and this trainer has {sorted(here)}: give "
            "the same rewards, or begin anew"
        )
    for name, reward in here.items():
        reward.load_state_dict(kept[name])


def stateful_rewards(functions: Iterable) -> Iterator[tuple[str, object]]:
    """(name, reward) for each reward with state: itself, inside a functools.wraps, or a member of an ensemble."""
    import torch

    for place, function in enumerate(functions):
        if isinstance(function, torch.nn.Module):
            continue  # a reward model has weights, which nothing trains
        if hasattr(function, "state_dict") and hasattr(function, "load_state_dict"):
            yield f"{place}:{name_of(function)}", function
        within = getattr(function, "members", ()) or filter(
            None, [getattr(function, "__wrapped__", None)]
        )
        yield from ((f"{place}.{name}", reward) for name, reward in stateful_rewards(within))


def _stateful_callbacks(trainer: "GRPOTrainer") -> Iterator[tuple[str, object]]:
    seen: dict[str, int] = defaultdict(int)
    for callback in trainer.callback_handler.callbacks:
        if hasattr(callback, "state_dict") and hasattr(callback, "load_state_dict"):
            name = type(callback).__name__
            yield f"{name}:{seen[name]}", callback
            seen[name] += 1


def _advance(dataloader, epochs: int) -> None:
    """Draw the orders of the epochs that are done: TRL's sampler continues one random sequence from epoch to epoch."""
    import torch

    place = dataloader
    while place is not None and not hasattr(
        place, "mini_repeat_count"
    ):  # until TRL's RepeatSampler
        place = getattr(place, "batch_sampler", None) or getattr(place, "sampler", None)
    if place is None:
        raise WorkbookError("a streamed data set cannot be resumed exactly: give one with a length")
    if place.shuffle:
        for _ in range(epochs):
            torch.randperm(place.num_samples, generator=place.generator)


def setup_of(trainer: "GRPOTrainer") -> dict:
    """What must be the same for a checkpoint's position in data and completions to mean the same."""
    names = (
        "per_device_train_batch_size",
        "gradient_accumulation_steps",
        "steps_per_generation",
        "num_iterations",
    )
    names += ("num_generations", "world_size", "seed", "shuffle_dataset")
    rows = len(trainer.train_dataset) if hasattr(trainer.train_dataset, "__len__") else None
    return {name: getattr(trainer.args, name) for name in names} | {"training rows": rows}


def check_setup(trainer: "GRPOTrainer", kept: dict, checkpoint: str) -> None:
    """Raise WorkbookError when the trainer is set up otherwise than the one that wrote the checkpoint."""
    here = setup_of(trainer)
    if different := [
        f"{name} {kept.get(name)}, here {here[name]}"
        for name in here
        if kept.get(name) != here[name]
    ]:
        raise WorkbookError(
            f"{readable(checkpoint)} was written with {'; '.join(different)}: give the same values, or begin anew"
        )


def write(path: Path, state: dict) -> None:
    """Write a state. Raises WorkbookError for a value that is no plain one and no tensor."""
    from safetensors.torch import save_file

    tensors: dict = {}
    plain = _flatten(state, "", tensors)
    save_file(tensors, path, metadata={"state": json.dumps(plain)})


def read(path: Path) -> dict:
    """Read what `write` has written."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        plain = json.loads(file.metadata()["state"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is no dict)
    return _unflatten(plain, tensors)


def _flatten(value, path: str, tensors: dict):
    import torch

    if isinstance(value, torch.Tensor):
        tensors[path] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {TENSOR: path}
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise WorkbookError(
                    f"the state has {path}[{key!r}]: use texts as keys of a state_dict()"
                )
        return {key: _flatten(v, f"{path}/{key}", tensors) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_flatten(v, f"{path}/{i}", tensors) for i, v in enumerate(value)]
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise WorkbookError(
        f"a checkpoint cannot keep {path.strip('/')}, a {type(value).__name__}: "
        + (
            "save where completions are used up (save_steps a multiple of the steps for which they are drawn)"
            if path.startswith("/drawn")
            else "make a state_dict() of plain values and tensors"
        )
    )


def _unflatten(value, tensors: dict):
    if isinstance(value, dict):
        if set(value) == {TENSOR}:
            return tensors[value[TENSOR]]
        return {key: _unflatten(v, tensors) for key, v in value.items()}
    return [_unflatten(v, tensors) for v in value] if isinstance(value, list) else value
