"""Stop a run anywhere and resume it exactly: on a CPU it ends in the same adapter, bit for bit.

It works with any GRPOTrainer, and restores what stock resuming loses (Transformers 5.17, PEFT 0.21,
TRL 1.15):
- the adapters' dtype: with TRL alone those on a 4-bit base train in bfloat16, but PEFT loads them
  in float32;
- with beta > 0, the adapters: only TRL's reference copy is loaded, training starts with new ones;
- the order of the data after the first epoch: TRL's sampler starts again with the first order;
- completions that are sampled but not yet used (steps_per_generation, num_iterations above one);
- metrics between two entries of the log, and the state of rewards and callbacks.

The Trainer itself keeps random states, optimizer, schedule and the position in an epoch. Rewards
and callbacks with state need two methods, `state_dict()` and `load_state_dict(state)`, for dicts,
lists, texts, numbers, None and tensors. A checkpoint counts only if every file has the SHA-256 in
its manifest.json, written last: else a kill may have cut it off. On a GPU the same states are kept,
but its kernels may add up in another order the next time.
"""

import hashlib
import json
import os
import shutil
import signal
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open

from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.files import readable, write_json
from grpo_workbook.rewards.contract import RewardError, name_of
from grpo_workbook.training import Callback

__all__ = ["Trained", "keep_exact", "last_checkpoint", "stop_on_interrupt", "train"]

MANIFEST, STATE = "manifest.json", "exact_{}.safetensors"  # STATE: of one process
# A checkpoint's position in data and completions is valid only for the same values of these.
SETUP = (
    "per_device_train_batch_size gradient_accumulation_steps steps_per_generation num_iterations "
    "num_generations world_size seed shuffle_dataset"
).split()
# The trainer's forward passes, which tell TRL when to sample; its sampled completions; the loss
# since the last entry of the log and before it, and the step of that entry.
KEPT = "_step _buffered_inputs _tr_loss _total_loss_scalar _globalstep_last_logged".split()


class Trained(NamedTuple):
    """The result of `train`: TRL's log history, its start, and whether a Ctrl-C ended it."""

    history: list[dict]
    resumed_from_step: int  # 0: a new run
    interrupted: bool


def train(trainer, *, resume: bool = False, say: Callable[[str], object] = print) -> Trained:
    """Train to the last step; `resume`: from the newest complete checkpoint in args.output_dir.
    A finished run gets its adapter and log back without a step. Ctrl-C ends training after the
    current step and saves. Raises WorkbookError if a checkpoint cannot be written (after a full
    disk the last complete one stays), or if it belongs to a trainer with another setup.
    """
    from accelerate.utils import broadcast_object_list
    from transformers import TrainerState

    exact, main = keep_exact(trainer), trainer.is_world_process_zero()
    checkpoint, saved = None, TrainerState()
    if resume:
        found = [last_checkpoint(trainer.args.output_dir, say) if main else None]
        checkpoint = broadcast_object_list(found)[0]  # one process reads them all
    if resume and main:
        begins = "No checkpoint: training starts at step 1"
        say(f"Continuing from {Path(checkpoint).name}" if checkpoint else begins)
    if checkpoint:
        saved = TrainerState.load_from_json(str(Path(checkpoint) / "trainer_state.json"))
    resumed_from, last_step = saved.global_step, max(0, trainer.args.max_steps) or saved.max_steps
    if checkpoint and resumed_from >= last_step:  # the Trainer would take one step too many
        exact.load(checkpoint)
        put_back(trainer, exact.kept)
        trainer.state = saved
        return Trained(saved.log_history, resumed_from, False)
    try:
        with stop_on_interrupt(trainer) as seen:
            trainer.train(resume_from_checkpoint=checkpoint)
    except BaseException as error:
        step, pieces = trainer.state.global_step, trainer.args.gradient_accumulation_steps
        whole = trainer.accelerator.num_processes == 1 and trainer._step % pieces == 0
        # a reward failed between two steps, and a checkpoint of them can be resumed
        if isinstance(error, RewardError) and whole and 0 < step < trainer.state.max_steps:
            trainer._save_checkpoint(trainer.model, trial=None)
            say(f"\nThe {step} finished steps are saved")
        raise
    finally:  # so that an error's message comes after the bar
        for callback in trainer.callback_handler.callbacks:
            if bar := getattr(callback, "bar", None):
                bar.close()
    interrupted = seen["interrupted"] and trainer.state.global_step < trainer.state.max_steps
    return Trained(trainer.state.log_history, resumed_from, interrupted)


@contextmanager
def stop_on_interrupt(trainer: Any):
    """The first Ctrl-C ends training after the current step and saves; the second stops at once.

    So does a SIGTERM, as clusters send it, unless there are several processes: these all stop after
    the same step. Yields a dict; its "interrupted" is True after a stop.
    """
    from accelerate.utils import gather_object

    seen = {"interrupted": False}

    class Stop(Callback):
        def on_step_end(self, args, state, control, **kwargs):
            seen["interrupted"] = any(gather_object([seen["interrupted"]]))
            if seen["interrupted"]:
                control.should_save = control.should_training_stop = True

    def handle(signum, frame):
        if seen["interrupted"]:
            raise KeyboardInterrupt
        seen["interrupted"] = True
        name = "Ctrl-C" if signum == signal.SIGINT else "SIGTERM"
        print(f"\n{name}: finishing this step, then saving (again: stop at once)", flush=True)

    trainer.add_callback(stop := Stop())
    alone = int(os.environ.get("WORLD_SIZE") or 1) == 1  # else a launcher sends SIGTERM for a crash
    stops = [signal.SIGINT, signal.SIGTERM] if alone else [signal.SIGINT]
    before = {number: signal.signal(number, handle) for number in stops}
    try:
        yield seen
    finally:
        trainer.remove_callback(stop)
        for number, handler in before.items():
            signal.signal(number, handler)


def keep_exact(trainer: Any) -> "ExactCheckpoints":
    """Make every checkpoint of this trainer exactly resumable.

        keep_exact(trainer)
        trainer.train(resume_from_checkpoint=True)  # exact too, as all else from now on

    It keeps at least two checkpoints, as the Trainer removes the oldest before it seals the newest.
    """
    callbacks = trainer.callback_handler.callbacks
    if found := [callback for callback in callbacks if isinstance(callback, ExactCheckpoints)]:
        return found[0]
    # the first callback, so that the others find their state when training starts
    callbacks.insert(0, exact := ExactCheckpoints(trainer))
    trainer._load_from_checkpoint, trainer._save_checkpoint = exact.load, exact.save
    if trainer.args.save_total_limit == 1:
        trainer.args.save_total_limit = 2
    return exact


class ExactCheckpoints(Callback):
    """Adds to each checkpoint what the Trainer leaves out, seals it, and restores it."""

    kept: Any = None  # the state from the checkpoint that is loaded

    def __init__(self, trainer):
        self.trainer = trainer
        self.stock_load, self.stock_save = trainer._load_from_checkpoint, trainer._save_checkpoint

    def load(self, checkpoint: str, model=None) -> None:
        """Replaces Trainer._load_from_checkpoint: loads all adapters in the dtype of training."""
        from peft import set_peft_model_state_dict
        from safetensors.torch import load_file

        if why := fault(Path(checkpoint)):
            raise WorkbookError(f"{readable(checkpoint)} cannot be resumed: {why}")
        kept, here = read_state(Path(checkpoint) / STATE.format(0))["setup"], _setup(self.trainer)
        if different := [f"{n} {kept[n]}, here {here[n]}" for n in here if kept[n] != here[n]]:
            said = f"{readable(checkpoint)} was written with {'; '.join(different)}"
            raise WorkbookError(f"{said}: give the same values, or start again")
        self.kept = read_state(Path(checkpoint) / STATE.format(self.trainer.args.process_index))
        policy = self.trainer.model
        if self.trainer.is_fsdp_enabled or not hasattr(policy, "peft_config"):
            self.stock_load(checkpoint, model)
            return
        for name in policy.peft_config:  # PEFT gives the default adapter no folder of its own
            folder = Path(checkpoint) / ("" if name == "default" else name)
            path = folder / "adapter_model.safetensors"
            if name == "default" or path.is_file():  # a reference copy may be missing
                set_peft_model_state_dict(policy, load_file(path), adapter_name=name)

    def on_train_begin(self, args, state, control, train_dataloader=None, **kwargs):
        if state.global_step and self.kept is None:
            raise WorkbookError("DeepSpeed loads its own checkpoints: they cannot be made exact")
        if state.global_step:
            put_back(self.trainer, self.kept, train_dataloader)
        if self.trainer.is_world_process_zero():
            tidy(Path(args.output_dir), resumed=state.global_step > 0)

    def save(self, model, trial) -> None:
        """Replaces Trainer._save_checkpoint: saves everything and a seal, or WorkbookError."""
        trainer, main = self.trainer, self.trainer.is_world_process_zero()
        folder = Path(trainer.args.output_dir) / f"checkpoint-{trainer.state.global_step}"
        try:
            self.stock_save(model, trial)
            write_state(folder / STATE.format(trainer.args.process_index), take(trainer))
            trainer.accelerator.wait_for_everyone()
            if main:
                seal(folder)
        except Exception as error:
            cause: Any = error.__cause__ if isinstance(error, WorkbookError) else error
            by_torch = "inline_container.cc" in str(cause)  # torch.save raises a RuntimeError
            if not by_torch and not isinstance(cause, OSError | SafetensorError):
                raise
            if main:
                shutil.rmtree(folder, ignore_errors=True)
            kept, free = last_checkpoint(folder.parent), shutil.disk_usage(folder.parent).free
            goes_on = f"{readable(kept)} is complete, so resuming is possible" if kept else ""
            raise WorkbookError(
                f"{readable(folder)} cannot be written ({first_line(cause)}; {free / 1e6:.1f} MB "
                f"are free now): free some disk space; {goes_on or 'there is no earlier one'}"
            ) from error


def take(trainer) -> dict:
    """The state of this process that the next step needs and the Trainer does not save."""
    state: dict = {name: getattr(trainer, name) for name in KEPT}
    if trainer._step % (trainer.args.steps_per_generation * trainer.num_iterations) == 0:
        state["_buffered_inputs"] = None  # all used: the next step samples new completions
    state |= {"setup": _setup(trainer), "metrics": dict(trainer._metrics["train"])}
    for part, things in _stateful(trainer).items():
        state[part] = {name: thing.state_dict() for name, thing in things.items()}
    return state


def put_back(trainer, state: dict, dataloader=None) -> None:
    """Restore the state from `take` after the Trainer's own part: when training starts, or without
    a dataloader when it has ended. WorkbookError if the checkpoint is of other rewards.
    """
    from accelerate.utils import send_to_device

    for name in KEPT:
        setattr(trainer, name, send_to_device(state[name], trainer.accelerator.device))
    trainer._metrics["train"] = defaultdict(list, state["metrics"])
    found = _stateful(trainer)
    if (kept := sorted(state["rewards"])) != (here := sorted(found["rewards"])):
        said = f"the checkpoint keeps the state of {kept}, this trainer has {here}"
        raise WorkbookError(f"{said}: give the same rewards, or start again")
    for part, things in found.items():
        for name in things.keys() & state[part].keys():  # callbacks may be added or left out
            things[name].load_state_dict(state[part][name])
    if dataloader is not None:
        _advance(dataloader, int(trainer.state.epoch))


def _stateful(trainer) -> dict[str, Any]:
    """The rewards and the callbacks with state, as name:0, name:1, ..."""
    found = {"rewards": trainer.reward_funcs, "callbacks": trainer.callback_handler.callbacks}
    for part, things in found.items():
        inside = list(_within(things))
        names = [name_of(thing) for thing in inside]
        found[part] = {f"{n}:{names[:i].count(n)}": inside[i] for i, n in enumerate(names)}
    return found


def _within(things: Iterable) -> Iterator:
    """The things with state, also within a functools.wraps or an ensemble."""
    for thing in things:
        if hasattr(thing, "load_state_dict") and not hasattr(thing, "named_parameters"):
            yield thing  # not a reward model, whose weights are not trained
        wrapped = getattr(thing, "__wrapped__", None)
        yield from _within([wrapped] if wrapped else getattr(thing, "members", ()))


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


def write_state(path: Path, state: dict) -> None:
    """Write tensors as safetensors, the rest as JSON in its metadata; WorkbookError for more."""
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


def read_state(path: Path) -> dict:
    """Read a state from `write_state`, on the CPU. Nothing is unpickled."""

    def whole(found: dict) -> Any:  # from the inside out
        return file.get_tensor(found["tensor"]) if "tensor" in found else dict(found["pairs"])

    with safe_open(path, "pt") as file:
        return json.loads(file.metadata()["state"], object_hook=whole)


def seal(checkpoint: Path) -> None:
    """Flush every file of the checkpoint to the disk, then write its manifest."""
    files = [p for p in sorted(checkpoint.rglob("*")) if p.is_file() and p.name != MANIFEST]
    hashes = {path.relative_to(checkpoint).as_posix(): _sha256(path, flush=True) for path in files}
    write_json(checkpoint / MANIFEST, {"files": hashes})


def _sha256(path: Path, flush: bool = False) -> str:
    with path.open("r+b" if flush else "rb") as file:  # Windows flushes what is open to write
        if flush:
            os.fsync(file.fileno())  # else a power cut could leave a manifest without its files
        return hashlib.file_digest(file, "sha256").hexdigest()


def fault(checkpoint: Path) -> str | None:
    """Why the checkpoint is incomplete, or None. Reads all of it (1 to 3 s per GB)."""
    try:
        files = dict(json.loads((checkpoint / MANIFEST).read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return f"no {MANIFEST} can be read: it is incomplete, or of an earlier run or other program"
    for name, sha256 in files.items():
        if not (checkpoint / name).is_file():
            return f"{name} is missing"
        if _sha256(checkpoint / name) != sha256:
            return f"{name} has changed since it was written"
    return None


def all_checkpoints(folder: Path | str) -> list[Path]:
    """The folders checkpoint-N in `folder`, newest first, complete or not."""
    found = [p for p in Path(folder).glob("checkpoint-*") if p.name[11:].isdecimal() and p.is_dir()]
    return sorted(found, key=lambda path: int(path.name[11:]), reverse=True)


def last_checkpoint(folder: Path | str, say: Callable = lambda text: None) -> str | None:
    """The newest complete checkpoint in `folder`, or None; `say` gets the skipped ones, and why."""
    for checkpoint in all_checkpoints(folder):
        if (why := fault(checkpoint)) is None:
            return str(checkpoint)
        say(f"{readable(checkpoint)} is skipped: {why}")
    return None


def tidy(folder: Path, resumed: bool) -> None:
    """Before training: what a kill cut off goes, and of an earlier run nothing counts any more."""
    for checkpoint in all_checkpoints(folder):
        if not resumed:
            (checkpoint / MANIFEST).unlink(missing_ok=True)
        elif fault(checkpoint):  # the Trainer would count it, and remove complete ones
            shutil.rmtree(checkpoint)
