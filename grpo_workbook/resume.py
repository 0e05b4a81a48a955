"""Stop a run anywhere and resume it exactly: on a CPU it ends in the same adapter, bit for bit.

It works with any GRPOTrainer. `train` replaces `trainer.train()`; `keep_exact` is for those who
call that themselves. Both let the trainer write its checkpoints as always, add what it leaves out,
and seal them. What stock resuming loses (Transformers 5.17, PEFT 0.21, TRL 1.15):
- with beta > 0 the adapters, and always their dtype (see `compat.load_adapters`);
- the order of the data after the first epoch (see `compat.replay_shuffles`);
- completions that are sampled but not yet used (steps_per_generation, num_iterations above one);
- metrics between two entries of the log, and the state of rewards and callbacks.
The Trainer itself keeps random states, optimizer, schedule and the position in an epoch.

Rewards and callbacks with state need two methods, `state_dict()` and `load_state_dict(state)`, for
plain values and tensors.

A sealed checkpoint has a manifest.json, written last, with the SHA-256 of every file: without it
a kill may have cut the checkpoint off. A checkpoint without a manifest was written by the Trainer
alone. It is continued as TRL would continue it, and a line says what is lost. Such checkpoints are
never changed or deleted. On a GPU the same states are kept, but its kernels may add up in another
order the next time.
"""

import hashlib
import json
import os
import shutil
import signal
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from grpo_workbook import compat
from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.files import readable, write_json
from grpo_workbook.rewards.contract import name_of
from grpo_workbook.training import Callback, RewardBar

__all__ = ["keep_exact", "stop_on_interrupt", "train"]

MANIFEST = "manifest.json"
TRAINER_STATE = "trainer_state.json"  # the last file that the Trainer writes
EARLIER = "earlier_checkpoints.json"  # beside the checkpoints: which ones a new run found there
PROCESS_STATE = "exact_{}.safetensors"  # what we keep for one process

# A checkpoint's position in data and completions is valid only for the same values of these.
SETUP = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "steps_per_generation",
    "num_iterations",
    "num_generations",
    "world_size",
    "seed",
    "shuffle_dataset",
)
# Attributes of the trainer that the next step needs and no stock checkpoint has.
KEPT = (
    "_step",  # forward passes, by which TRL knows when to sample
    "_buffered_inputs",  # sampled completions
    "_tr_loss",  # the loss since the last entry of the log
    "_total_loss_scalar",  # and before it
    "_globalstep_last_logged",
)
LOST = (
    "{} was written without exact resuming, so training continues as TRL does. Lost are "
    "completions that were sampled and not used, the order of the data after the first epoch, "
    "metrics since the last entry of the log, and the state of rewards and callbacks."
)


# ---- train and stop


class Trained(NamedTuple):
    """The result of `train`: TRL's log history, its start, and whether a Ctrl-C ended it."""

    history: list[dict]
    resumed_from_step: int  # 0: a new run
    interrupted: bool


def train(trainer: Any, *, resume: bool = False) -> Trained:
    """Train to the last step. Ctrl-C ends training after the current step and saves.

    With `resume` training continues from the newest complete checkpoint in `args.output_dir`; a
    finished run gets its adapter and log back without a step. Prints where it continues, and which
    checkpoints it skips and why. Raises WorkbookError if a checkpoint cannot be written (after a
    full disk the last complete one stays), or if it belongs to a trainer with another setup.
    """
    from transformers import TrainerState

    exact = keep_exact(trainer)
    checkpoint = None
    resumed_from_step = 0
    if resume:
        checkpoint = _choose_checkpoint(trainer)
    if checkpoint is not None:
        saved = TrainerState.load_from_json(os.path.join(checkpoint, TRAINER_STATE))
        resumed_from_step = saved.global_step
        # max_steps is -1 in a run by epochs. The saved state has the number that came of them.
        last_step = trainer.args.max_steps if trainer.args.max_steps > 0 else saved.max_steps
        if resumed_from_step >= last_step:  # the Trainer would take one step too many
            exact.load_finished(checkpoint, saved)
            return Trained(saved.log_history, resumed_from_step, False)
    try:
        with stop_on_interrupt(trainer) as stop:
            trainer.train(resume_from_checkpoint=checkpoint)
    finally:
        _close_bars(trainer)  # so that an error's message comes after the bar
    interrupted = stop.requested and trainer.state.global_step < trainer.state.max_steps
    return Trained(trainer.state.log_history, resumed_from_step, interrupted)


def _choose_checkpoint(trainer: Any) -> str | None:
    """The newest complete checkpoint. One process reads them, and all processes get its choice."""
    from accelerate.utils import broadcast_object_list

    choice = [None]
    if trainer.is_world_process_zero():
        choice = [last_checkpoint(trainer.args.output_dir)]
        if choice[0] is None:
            print("No checkpoint: training starts at step 1")
        else:
            print(f"Continuing from {Path(choice[0]).name}")
    return broadcast_object_list(choice)[0]


def _close_bars(trainer: Any) -> None:
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, RewardBar) and callback.bar is not None:
            callback.bar.close()


@contextmanager
def stop_on_interrupt(trainer: Any) -> Iterator["StopAfterStep"]:
    """The first Ctrl-C ends training after the current step and saves; the second stops at once.

        with stop_on_interrupt(trainer) as stop:
            trainer.train()
        print(stop.requested)

    A SIGTERM, as clusters send it, does the same, unless there are several processes: then a
    launcher sends it because one of them has crashed. A Ctrl-C stops all after the same step.
    """
    stop = StopAfterStep()
    signals = [signal.SIGINT]
    if int(os.environ.get("WORLD_SIZE") or 1) == 1:
        signals.append(signal.SIGTERM)
    trainer.add_callback(stop)
    handlers_before = {number: signal.signal(number, stop.on_signal) for number in signals}
    try:
        yield stop
    finally:
        trainer.remove_callback(stop)
        for number, handler in handlers_before.items():
            signal.signal(number, handler)


class StopAfterStep(Callback):
    """Saves and stops at the end of a step, once a signal has requested it in any process."""

    def __init__(self):
        self.requested = False

    def on_signal(self, number, frame):
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        name = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
        print(f"\n{name}: finishing this step, then saving (again: stop at once)", flush=True)

    def on_step_end(self, args, state, control, **kwargs):
        from accelerate.utils import gather_object

        # Asked in every process, so that all of them stop after the same step.
        self.requested = any(gather_object([self.requested]))
        if self.requested:
            control.should_save = True
            control.should_training_stop = True


# ---- exact checkpoints


def keep_exact(trainer: Any) -> "ExactCheckpoints":
    """Make every checkpoint of this trainer exactly resumable.

        keep_exact(trainer)
        trainer.train(resume_from_checkpoint=True)  # exact too, as all else from now on

    It keeps at least two checkpoints, as the Trainer removes the oldest before the newest is
    sealed.
    """
    callbacks = trainer.callback_handler.callbacks
    for callback in callbacks:
        if isinstance(callback, ExactCheckpoints):
            return callback
    exact = ExactCheckpoints(trainer)
    callbacks.insert(0, exact)  # so that the others find their state when training starts
    # The Trainer has no event for loading, and its event for saving cannot refuse a full disk.
    trainer._load_from_checkpoint = exact.load
    trainer._save_checkpoint = exact.save
    if trainer.args.save_total_limit == 1:
        trainer.args.save_total_limit = 2
    return exact


class ExactCheckpoints(Callback):
    """Adds to each checkpoint what the Trainer leaves out, seals it, and restores it."""

    def __init__(self, trainer: Any):
        self.trainer = trainer
        self.stock_load = trainer._load_from_checkpoint
        self.stock_save = trainer._save_checkpoint
        self.state: dict | None = None  # from the checkpoint; None for a stock one

    def load(self, checkpoint: str, model: Any = None) -> None:
        """Replaces Trainer._load_from_checkpoint: loads all adapters in the dtype of training.

        Raises WorkbookError if the checkpoint is incomplete or was written with another setup.
        """
        trainer = self.trainer
        folder = Path(checkpoint)
        problem = fault(folder)
        if problem is not None:
            raise WorkbookError(
                f"{readable(folder)} cannot be resumed: {problem}; name another checkpoint"
            )
        self.state = None
        if is_ours(folder):
            _check_setup(folder, trainer)
            self.state = read_state(folder / PROCESS_STATE.format(trainer.args.process_index))
        elif trainer.is_world_process_zero():
            print(LOST.format(readable(folder)))
        if hasattr(trainer.model, "peft_config"):
            compat.load_adapters(trainer.model, folder)
        else:
            self.stock_load(checkpoint, model)

    def load_finished(self, checkpoint: str, trainer_state: Any) -> None:
        """Load the checkpoint of a run that needs no step any more."""
        self.load(checkpoint)
        if self.state is not None:
            restore(self.trainer, self.state)
        self.trainer.state = trainer_state

    def save(self, model: Any, trial: Any) -> None:
        """Replaces Trainer._save_checkpoint: saves everything and seals it.

        Raises WorkbookError, and removes the incomplete folder, if the disk is full.
        """
        trainer = self.trainer
        is_main = trainer.is_world_process_zero()
        folder = Path(trainer.args.output_dir) / f"checkpoint-{trainer.state.global_step}"
        try:
            if is_main:
                mark_unfinished(folder)
            self.stock_save(model, trial)
            state = state_of(trainer)
            write_state(folder / PROCESS_STATE.format(trainer.args.process_index), state)
            # the seal names the files of all processes
            trainer.accelerator.wait_for_everyone()
            if is_main:
                seal(folder)
        except Exception as error:
            cause = error.__cause__ if isinstance(error, WorkbookError) else error
            if cause is None or not compat.is_failed_write(cause):
                raise
            if is_main:
                shutil.rmtree(folder, ignore_errors=True)
            raise _not_written(folder, cause) from error

    def on_train_begin(self, args, state, control, train_dataloader=None, **kwargs):
        is_resumed = state.global_step > 0
        if is_resumed and self.state is not None:
            restore(self.trainer, self.state, train_dataloader)
        if not self.trainer.is_world_process_zero():
            return
        if is_resumed:
            remove_unfinished(Path(args.output_dir))
        else:
            note_earlier(Path(args.output_dir))


def _not_written(folder: Path, cause: BaseException) -> WorkbookError:
    free = shutil.disk_usage(folder.parent).free / 1e6
    complete = last_checkpoint(folder.parent)
    if complete is None:
        advice = "there is no earlier one"
    else:
        advice = f"{readable(complete)} is complete, so resuming is possible"
    return WorkbookError(
        f"{readable(folder)} cannot be written ({first_line(cause)}; {free:.1f} MB are free now): "
        f"free some disk space; {advice}"
    )


# ---- the state that the Trainer does not keep


def state_of(trainer: Any) -> dict:
    """The state of this process that the next step needs and the Trainer does not save."""
    state: dict = {name: getattr(trainer, name) for name in KEPT}
    steps_per_sampling = trainer.args.steps_per_generation * trainer.num_iterations
    if trainer._step % steps_per_sampling == 0:
        state["_buffered_inputs"] = None  # all used: the next step samples new completions
    state["setup"] = _setup(trainer)
    state["metrics"] = dict(trainer._metrics["train"])
    state["rewards"] = _states_of(_stateful(trainer.reward_funcs))
    state["callbacks"] = _states_of(_stateful(trainer.callback_handler.callbacks))
    return state


def restore(trainer: Any, state: dict, dataloader: Any = None) -> None:
    """Restore the state from `state_of`, after the Trainer has restored its own part.

    `dataloader` is that of the training which starts; a finished run has none. Raises WorkbookError
    if the checkpoint keeps the state of other rewards.
    """
    from accelerate.utils import send_to_device

    for name in KEPT:
        setattr(trainer, name, send_to_device(state[name], trainer.accelerator.device))
    trainer._metrics["train"] = defaultdict(list, state["metrics"])

    rewards = _stateful(trainer.reward_funcs)
    if rewards.keys() != state["rewards"].keys():
        raise WorkbookError(
            f"the checkpoint keeps the state of {sorted(state['rewards'])}, this trainer has "
            f"{sorted(rewards)}: give the same rewards, or start again"
        )
    for name, function in rewards.items():
        function.load_state_dict(state["rewards"][name])
    for name, callback in _stateful(trainer.callback_handler.callbacks).items():
        if name in state["callbacks"]:  # callbacks may be added or left out
            callback.load_state_dict(state["callbacks"][name])

    if dataloader is not None:
        finished_epochs = int(trainer.state.epoch)
        if not compat.replay_shuffles(dataloader, finished_epochs):
            raise WorkbookError("a streamed data set cannot resume exactly: give one with a length")


def _stateful(objects: Iterable) -> dict[str, Any]:
    """Those with a state among rewards or callbacks, by name:0, name:1, ..."""
    named = {}
    counts: Counter[str] = Counter()
    for thing in objects:
        # functools.wraps copies the attributes of an object, but not the methods of its class.
        # So a wrapper, such as that of `watch`, is looked through for the object itself.
        while not hasattr(thing, "load_state_dict") and hasattr(thing, "__wrapped__"):
            thing = thing.__wrapped__
        is_model = hasattr(thing, "named_parameters")  # a reward model, which is not trained
        if hasattr(thing, "load_state_dict") and not is_model:
            name = name_of(thing)
            named[f"{name}:{counts[name]}"] = thing
            counts[name] += 1
    return named


def _states_of(named: dict[str, Any]) -> dict[str, Any]:
    return {name: thing.state_dict() for name, thing in named.items()}


def _setup(trainer: Any) -> dict:
    """The values of SETUP, and the number of training rows (None for a stream)."""
    setup = {name: getattr(trainer.args, name) for name in SETUP}
    setup["training rows"] = getattr(trainer.train_dataset, "num_rows", None)
    return setup


def _check_setup(checkpoint: Path, trainer: Any) -> None:
    """Raise WorkbookError if the checkpoint was written with another setup."""
    written = read_state(checkpoint / PROCESS_STATE.format(0))["setup"]
    differences = []
    for name, value in _setup(trainer).items():
        if written[name] != value:
            differences.append(f"{name} {written[name]}, here {value}")
    if differences:
        raise WorkbookError(
            f"{readable(checkpoint)} was written with {'; '.join(differences)}: give the same "
            "values, or start again"
        )


def write_state(path: Path, state: dict) -> None:
    """Write tensors as safetensors, the rest as JSON in its metadata.

    Raises WorkbookError for values that are neither.
    """
    from safetensors.torch import save_file

    tensors: dict[str, Any] = {}
    try:
        text = json.dumps(_encode(state, tensors))
    except TypeError as error:
        raise WorkbookError(
            f"a checkpoint cannot keep this state ({error}): return plain values and tensors from "
            "state_dict()"
        ) from error
    save_file(tensors, path, metadata={"state": text})


def read_state(path: Path) -> dict:
    """Read a state from `write_state`, on the CPU. Nothing is unpickled."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return _decode(json.loads(file.metadata()["state"]), file)


def _encode(value: Any, tensors: dict[str, Any]) -> Any:
    """The value as JSON takes it; its tensors go into `tensors`."""
    import torch

    if isinstance(value, torch.Tensor):
        name = str(len(tensors))
        # A copy, because safetensors refuses tensors that share memory.
        tensors[name] = value.detach().cpu().clone().contiguous()
        return {"tensor": name}
    if isinstance(value, np.generic):  # a number of NumPy, such as a mean
        return value.item()
    if isinstance(value, Mapping):  # as pairs, because keys may be numbers
        return {"pairs": [[key, _encode(item, tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return [_encode(item, tensors) for item in value]
    return value


def _decode(value: Any, file: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item, file) for item in value]
    if isinstance(value, dict) and "tensor" in value:
        return file.get_tensor(value["tensor"])
    if isinstance(value, dict):
        return {key: _decode(item, file) for key, item in value["pairs"]}
    return value


# ---- checkpoints on the disk


def mark_unfinished(checkpoint: Path) -> None:
    """Say that this checkpoint is ours and not complete yet, before anything else is written."""
    checkpoint.mkdir(parents=True, exist_ok=True)
    write_json(checkpoint / MANIFEST, {"unfinished": True})


def seal(checkpoint: Path) -> None:
    """Flush every file of the checkpoint to the disk, then write its manifest."""
    hashes = {}
    for path in sorted(checkpoint.rglob("*")):
        if path.is_file() and path.name != MANIFEST:
            _flush(path)  # else a power cut could leave a manifest without its files
            name = path.relative_to(checkpoint).as_posix()
            hashes[name] = _sha256(path)
    write_json(checkpoint / MANIFEST, {"files": hashes})


def is_ours(checkpoint: Path) -> bool:
    """Whether we wrote the checkpoint, complete or not: the Trainer alone writes no manifest."""
    return (checkpoint / MANIFEST).exists()


def fault(checkpoint: Path) -> str | None:
    """Why the checkpoint cannot be resumed, or None. Reads all of it (1 to 3 s per GB)."""
    if not is_ours(checkpoint):
        if _read_dict(checkpoint / TRAINER_STATE) is None:
            return f"{TRAINER_STATE}, which is written last, is missing or cut off"
        return None
    manifest = _read_dict(checkpoint / MANIFEST)
    if manifest is None:
        return f"{MANIFEST} cannot be read"
    if "unfinished" in manifest:
        return f"it is incomplete, as its {MANIFEST} says"
    hashes = manifest.get("files")
    if not isinstance(hashes, dict):
        return f"{MANIFEST} is of another program"
    for name, sha256 in hashes.items():
        if not (checkpoint / name).is_file():
            return f"{name} is missing"
        if _sha256(checkpoint / name) != sha256:
            return f"{name} has changed since it was written"
    return None


def all_checkpoints(folder: Path | str) -> list[Path]:
    """The folders checkpoint-N in `folder`, newest first, complete or not."""
    numbered = []
    for path in Path(folder).glob("checkpoint-*"):
        number = path.name.removeprefix("checkpoint-")
        if number.isdecimal() and path.is_dir():
            numbered.append((int(number), path))
    numbered.sort(reverse=True)
    return [path for _, path in numbered]


def last_checkpoint(folder: Path | str) -> str | None:
    """The newest complete checkpoint in `folder`, or None. Prints which ones it skips, and why."""
    earlier = _read_dict(Path(folder) / EARLIER) or {}
    for checkpoint in all_checkpoints(folder):
        problem = fault(checkpoint)
        if problem is None and _trainer_state_hash(checkpoint) == earlier.get(checkpoint.name):
            problem = "it is of an earlier run in this folder"
        if problem is None:
            return str(checkpoint)
        print(f"{readable(checkpoint)} is skipped: {problem}")
    return None


def note_earlier(folder: Path) -> None:
    """When a new run starts: write down the checkpoints of earlier runs, which do not count now.

    They are known by the hash of their log, so that one of the new run with the same number counts.
    """
    hashes = {path.name: _trainer_state_hash(path) for path in all_checkpoints(folder)}
    if hashes or (folder / EARLIER).exists():
        write_json(folder / EARLIER, hashes)


def remove_unfinished(folder: Path) -> None:
    """When a run continues: remove what a kill cut off.

    The Trainer would count it for save_total_limit, and remove complete ones instead.
    """
    for checkpoint in all_checkpoints(folder):
        manifest = _read_dict(checkpoint / MANIFEST)
        if manifest is not None and "unfinished" in manifest:
            shutil.rmtree(checkpoint)


def _trainer_state_hash(checkpoint: Path) -> str:
    path = checkpoint / TRAINER_STATE
    return _sha256(path) if path.is_file() else "none"


def _flush(path: Path) -> None:
    with path.open("r+b") as file:  # Windows flushes only what is open to write
        os.fsync(file.fileno())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_dict(path: Path) -> dict | None:
    """The JSON object in a file, or None if there is none that can be read."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
