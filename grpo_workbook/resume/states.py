"""What a checkpoint of the Trainer leaves out, a file for each process: taken, written, put back.

Rewards and callbacks that have state take part by two methods, `state_dict()` and
`load_state_dict(state)`; the state is made of dicts, lists, texts, numbers, None and tensors.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.files import readable
from grpo_workbook.rewards import name_of

if TYPE_CHECKING:
    from trl import GRPOTrainer

# A checkpoint's place in data and completions means the same only where these are the same.
SETUP = (
    "per_device_train_batch_size gradient_accumulation_steps steps_per_generation num_iterations "
    "num_generations world_size seed shuffle_dataset"
).split()


def take(trainer: "GRPOTrainer") -> dict:
    """What the next step depends on, of this process, and the Trainer does not save."""
    generation = trainer.args.steps_per_generation * trainer.num_iterations
    used_up = trainer._step % generation == 0  # the next step samples new completions
    return {
        "setup": setup_of(trainer),
        "step": trainer._step,  # forward passes, by which TRL knows when to sample
        "sampled": None if used_up else trainer._buffered_inputs,
        "metrics": dict(trainer._metrics["train"]),
        "loss": trainer._tr_loss,  # summed up since the last entry of the log
        "total_loss": trainer._total_loss_scalar,
        "logged_at": trainer._globalstep_last_logged,
        "rewards": {name: r.state_dict() for name, r in stateful_rewards(trainer.reward_funcs)},
        "callbacks": {name: c.state_dict() for name, c in _stateful_callbacks(trainer)},
    }


def put_back(trainer: "GRPOTrainer", state: dict, dataloader) -> None:
    """Put the trainer where `take` found it: as training begins, the Trainer's own part loaded."""
    import torch

    device = trainer.accelerator.device
    trainer._step = state["step"]
    if state["sampled"] is not None:
        trainer._buffered_inputs = [
            {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in batch.items()}
            for batch in state["sampled"]
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
    """Give the rewards their state; WorkbookError when the checkpoint was written with others."""
    here = dict(stateful_rewards(trainer.reward_funcs))
    if set(here) != set(kept):
        raise WorkbookError(
            f"the checkpoint keeps the state of the rewards {sorted(kept)} and this trainer has "
            f"{sorted(here)}: give the same rewards, or begin anew"
        )
    for name, reward in here.items():
        reward.load_state_dict(kept[name])


def stateful_rewards(functions: Iterable) -> Iterator[tuple[str, object]]:
    """(name, reward) of each with state: itself, in a functools.wraps, or an ensemble's member."""
    import torch

    for place, function in enumerate(functions):
        if isinstance(function, torch.nn.Module):
            continue  # a reward model has weights, which nothing trains
        if hasattr(function, "state_dict") and hasattr(function, "load_state_dict"):
            yield f"{place}:{name_of(function)}", function
        wrapped = getattr(function, "__wrapped__", None)
        within = getattr(function, "members", ()) or ([] if wrapped is None else [wrapped])
        yield from ((f"{place}.{name}", reward) for name, reward in stateful_rewards(within))


def _stateful_callbacks(trainer: "GRPOTrainer") -> Iterator[tuple[str, object]]:
    seen: dict[str, int] = defaultdict(int)
    for callback in trainer.callback_handler.callbacks:
        if hasattr(callback, "state_dict") and hasattr(callback, "load_state_dict"):
            name = type(callback).__name__
            yield f"{name}:{seen[name]}", callback
            seen[name] += 1


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


def setup_of(trainer: "GRPOTrainer") -> dict:
    """The values of SETUP, and the number of training rows."""
    rows = len(trainer.train_dataset) if hasattr(trainer.train_dataset, "__len__") else None
    return {name: getattr(trainer.args, name) for name in SETUP} | {"training rows": rows}


def check_setup(trainer: "GRPOTrainer", kept: dict, checkpoint: str) -> None:
    """Raise WorkbookError when another setup than this trainer's wrote the checkpoint."""
    here = setup_of(trainer)
    different = [f"{n} {kept.get(n)}, here {here[n]}" for n in here if kept.get(n) != here[n]]
    if different:
        raise WorkbookError(
            f"{readable(checkpoint)} was written with {'; '.join(different)}: give the same "
            "values, or begin anew"
        )


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
            f"a checkpoint cannot keep this state ({first_line(error)}): make state_dict() of "
            "plain values and tensors; where completions hold images, save when they are used up "
            "(save_steps a multiple of the steps for which they are sampled)"
        ) from error
    save_file(tensors, path, metadata={"state": text})


def read(path: Path) -> dict:
    """Read what `write` has written. Nothing is unpickled."""
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
