"""Exact resume: restores what stock resuming loses (Transformers 5.17, PEFT 0.21, TRL 1.15).

- the adapters' dtype: with TRL alone those on a 4-bit base train in bfloat16, but PEFT loads them
  in float32;
- with beta > 0, the adapters: only TRL's reference copy is loaded, training starts with new ones;
- the order of the data after the first epoch: TRL's sampler starts again with the first order;
- completions that are sampled but not yet used (steps_per_generation, num_iterations above one);
- metrics between two entries of the log, and the state of rewards and callbacks.

The Trainer itself keeps random states, optimizer, schedule and the position in an epoch. On a GPU
the same states are kept, but its kernels may add up in another order the next time.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.files import readable
from grpo_workbook.resume import states
from grpo_workbook.resume.checkpoints import clear_torn, fault, last_checkpoint, seal, set_aside
from grpo_workbook.training import Callback, stop_on_interrupt


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
    checkpoint, saved, interrupted = None, TrainerState(), False
    if resume:
        found = [last_checkpoint(trainer.args.output_dir, say) if main else None]
        checkpoint = broadcast_object_list(found)[0]  # one process reads them all
        if main:
            begins = "No checkpoint: training starts at step 1"
            say(f"Continuing from {Path(checkpoint).name}" if checkpoint else begins)
    if checkpoint:
        saved = TrainerState.load_from_json(str(Path(checkpoint) / "trainer_state.json"))
    resumed_from, last_step = saved.global_step, max(0, trainer.args.max_steps) or saved.max_steps
    if checkpoint and resumed_from >= last_step:
        exact.restore(checkpoint, saved)  # the Trainer would take one step too many
    else:
        try:
            with stop_on_interrupt(trainer) as seen:
                trainer.train(resume_from_checkpoint=checkpoint)
        finally:  # so that an error's message comes after the bar
            for callback in trainer.callback_handler.callbacks:
                if bar := getattr(callback, "bar", None):
                    bar.close()
        interrupted = seen["interrupted"] and trainer.state.global_step < trainer.state.max_steps
    return Trained(trainer.state.log_history, resumed_from, interrupted)


def keep_exact(trainer) -> "ExactCheckpoints":
    """Make every checkpoint of this trainer exactly resumable.

    From now on `trainer.train(resume_from_checkpoint=...)` is exact too. It keeps at least two
    checkpoints (save_total_limit), as the Trainer removes the oldest before the newest is sealed.
    """
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, ExactCheckpoints):
            return callback
    exact = ExactCheckpoints(trainer)
    # the first callback, so that the others find their state when training starts
    trainer.callback_handler.callbacks.insert(0, exact)
    trainer._load_from_checkpoint, trainer._save_checkpoint = exact.load, exact.save
    if trainer.args.save_total_limit == 1:
        trainer.args.save_total_limit = 2
    return exact


class ExactCheckpoints(Callback):
    """Adds to each checkpoint what the Trainer leaves out, seals it, and restores it."""

    def __init__(self, trainer):
        self.trainer, self.kept = trainer, None
        self.stock_load, self.stock_save = trainer._load_from_checkpoint, trainer._save_checkpoint

    def load(self, checkpoint: str, model=None) -> None:
        """Replaces Trainer._load_from_checkpoint: loads all adapters in the dtype of training."""
        from peft import set_peft_model_state_dict
        from safetensors.torch import load_file

        if why := fault(Path(checkpoint)):
            raise WorkbookError(f"{readable(checkpoint)} cannot be resumed: {why}")
        states.check_setup(self.trainer, checkpoint)
        self.kept = states.read(states.file_of(checkpoint, self.trainer.args.process_index))
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
            states.put_back(self.trainer, self.kept, train_dataloader)
            self.kept = None
        if self.trainer.is_world_process_zero():
            tidy = clear_torn if state.global_step else set_aside
            tidy(Path(args.output_dir))

    def save(self, model, trial) -> None:
        """Replaces Trainer._save_checkpoint: saves everything and a seal, or WorkbookError."""
        from safetensors import SafetensorError

        trainer, main = self.trainer, self.trainer.is_world_process_zero()
        folder = Path(trainer.args.output_dir) / f"checkpoint-{trainer.state.global_step}"
        try:
            self.stock_save(model, trial)
            states.write(states.file_of(folder, trainer.args.process_index), states.take(trainer))
            trainer.accelerator.wait_for_everyone()
            if main:
                seal(folder)
        except Exception as error:
            cause = error.__cause__ if isinstance(error, WorkbookError) else error
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

    def restore(self, checkpoint: str, state) -> None:
        """Restore adapter, log and rewards' state from the last checkpoint of a finished run."""
        self.load(checkpoint)
        states.put_back_rewards(self.trainer, self.kept["rewards"])
        self.kept, self.trainer.state = None, state
