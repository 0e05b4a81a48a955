"""Exact resume: what stock resuming loses (Transformers 5.17, PEFT 0.21, TRL 1.15) is brought back.

- the adapters' dtype: TRL trains those on a 4-bit base in bfloat16, and PEFT loads them in float32;
- with beta > 0, the adapters: only TRL's reference copy is loaded, training begins from fresh ones;
- the order of the data after the first epoch: TRL's sampler begins again with the first one's;
- completions sampled and not yet used up (steps_per_generation, num_iterations above one step);
- metrics between two entries of the log, and the state of rewards and callbacks that have one.

Random states, optimizer, schedule and the place within an epoch are right as the Trainer keeps
them. What is added is kept as safetensors: nothing is unpickled. On a GPU the same states are kept,
but kernels there need not add up in the same order twice.
"""

import shutil
from collections.abc import Callable as Function
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.files import readable
from grpo_workbook.resume import states
from grpo_workbook.resume.checkpoints import clear_torn, fault, last_checkpoint, seal, set_aside
from grpo_workbook.training import Callback, stop_on_interrupt

if TYPE_CHECKING:
    from trl import GRPOTrainer


@dataclass(frozen=True)
class Trained:
    """What `train` did: TRL's log history, where it went on, and whether a Ctrl-C ended it."""

    history: list[dict]
    resumed_from_step: int  # 0: it began anew
    interrupted: bool

    @property
    def log(self) -> list[dict]:
        """The entries of the steps: those with a reward."""
        return [entry for entry in self.history if "reward" in entry]


def train(
    trainer: "GRPOTrainer", *, resume: bool = False, say: Function[[str], object] = print
) -> Trained:
    """Train to the last step; with `resume`, from the newest whole checkpoint in args.output_dir.

    A run that had ended gets its adapter and log back and takes no step. Ctrl-C ends training after
    the step under way and saves. Raises WorkbookError when a checkpoint cannot be written (a full
    disk: the last whole one stays), or the one there belongs to a trainer with another setup.
    """
    from accelerate.utils import broadcast_object_list
    from transformers import TrainerState

    exact, main = keep_exact(trainer), trainer.is_world_process_zero()
    say = say if main else lambda text: None
    checkpoint = None
    if resume:
        found = [last_checkpoint(trainer.args.output_dir, say) if main else None]
        checkpoint = broadcast_object_list(found)[0]  # one process reads them all
        begins = "No checkpoint: training begins at step 1"
        say(f"Continuing from {Path(checkpoint).name}" if checkpoint else begins)
    path = checkpoint and str(Path(checkpoint) / "trainer_state.json")
    saved, interrupted = path and TrainerState.load_from_json(path), False
    steps = saved.global_step if saved else 0
    last_step = trainer.args.max_steps
    if saved and steps >= (last_step if last_step > 0 else saved.max_steps):
        exact.restore(checkpoint, saved)  # the Trainer would take one step too many
    else:
        try:
            with stop_on_interrupt(trainer) as seen:
                trainer.train(resume_from_checkpoint=checkpoint)
        except BaseException:
            for callback in trainer.callback_handler.callbacks:
                if bar := getattr(callback, "bar", None):
                    bar.close()  # the message stands below it
            raise
        interrupted = seen["interrupted"] and trainer.state.global_step < trainer.state.max_steps
    return Trained(trainer.state.log_history, steps, interrupted)


def keep_exact(trainer: "GRPOTrainer") -> "ExactCheckpoints":
    """Make each checkpoint of this trainer one that can be resumed exactly.

    From here on `trainer.train(resume_from_checkpoint=...)` is exact too. At least two checkpoints
    are kept (save_total_limit): the Trainer removes the oldest before the newest is sealed.
    """
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, ExactCheckpoints):
            return callback
    exact = ExactCheckpoints(trainer)
    # the first of all: as training begins, the others find their state
    trainer.callback_handler.callbacks.insert(0, exact)
    trainer._load_from_checkpoint, trainer._save_checkpoint = exact.load, exact.save
    if trainer.args.save_total_limit == 1:
        trainer.args.save_total_limit = 2
    return exact


class ExactCheckpoints(Callback):
    """Adds to each checkpoint what the Trainer leaves out, seals it, and brings it back."""

    def __init__(self, trainer: "GRPOTrainer"):
        self.trainer, self.resuming = trainer, None
        self.stock_load, self.stock_save = trainer._load_from_checkpoint, trainer._save_checkpoint

    def load(self, checkpoint: str, model=None) -> None:
        """In place of Trainer._load_from_checkpoint: every adapter, in the dtype of training."""
        if why := fault(Path(checkpoint)):
            raise WorkbookError(f"{readable(checkpoint)} cannot be resumed: {why}")
        kept = states.read(Path(checkpoint) / "exact_0.safetensors")["setup"]
        states.check_setup(self.trainer, kept, checkpoint)
        self.resuming = checkpoint
        if self.trainer.is_fsdp_enabled or not hasattr(self.trainer.model, "peft_config"):
            self.stock_load(checkpoint, model)
        else:
            _load_adapters(self.trainer.model, Path(checkpoint))

    def on_train_begin(self, args, state, control, train_dataloader=None, **kwargs):
        main, folder = self.trainer.is_world_process_zero(), Path(args.output_dir)
        if state.global_step == 0:
            if main:
                set_aside(folder)
            return
        if self.resuming is None:
            raise WorkbookError("DeepSpeed loads checkpoints by itself: they cannot be made exact")
        states.put_back(self.trainer, states.read(self.file(self.resuming)), train_dataloader)
        self.resuming = None
        if main:
            clear_torn(folder)

    def save(self, model, trial) -> None:
        """In place of Trainer._save_checkpoint: with the state, and a seal at the end."""
        trainer = self.trainer
        folder = Path(trainer.args.output_dir) / f"checkpoint-{trainer.state.global_step}"
        with _disk_errors_named(folder, trainer.is_world_process_zero()):
            self.stock_save(model, trial)
            states.write(self.file(folder), states.take(trainer))
            trainer.accelerator.wait_for_everyone()
            if trainer.is_world_process_zero():
                seal(folder)

    def restore(self, checkpoint: str, state) -> None:
        """Take adapter, log and the rewards' state from the last checkpoint of a finished run."""
        self.load(checkpoint)
        self.resuming, self.trainer.state = None, state
        states.put_back_rewards(self.trainer, states.read(self.file(checkpoint))["rewards"])

    def file(self, checkpoint: str | Path) -> Path:
        """Where the state of this process stands in a checkpoint."""
        return Path(checkpoint) / f"exact_{self.trainer.args.process_index}.safetensors"


def _load_adapters(model, checkpoint: Path) -> None:
    """Put the weights of a checkpoint into the model's adapters; each keeps its dtype."""
    from peft import set_peft_model_state_dict
    from safetensors.torch import load_file

    for name in model.peft_config:
        folder = checkpoint if name == "default" else checkpoint / name
        path = folder / "adapter_model.safetensors"
        if name == "default" or path.is_file():  # a reference copy may have been dropped since
            set_peft_model_state_dict(model, load_file(path), adapter_name=name)


@contextmanager
def _disk_errors_named(checkpoint: Path, main: bool):
    """A checkpoint that cannot be written is one WorkbookError; what there is of it is removed."""
    from safetensors import SafetensorError

    try:
        yield
    except Exception as error:
        cause = error.__cause__ if isinstance(error, WorkbookError) else error
        reason = getattr(cause, "strerror", None) or first_line(cause or error)
        if "inline_container.cc" in reason:  # torch.save, whose own text is of file positions
            reason = "PyTorch could not write all of it"
        elif not isinstance(cause, OSError | SafetensorError):
            raise
        if main:
            shutil.rmtree(checkpoint, ignore_errors=True)
        kept, goes_on = last_checkpoint(checkpoint.parent), "there is no earlier one"
        if kept:
            goes_on = f"{readable(kept)} is whole, and resuming goes on from there"
        raise WorkbookError(
            f"{readable(checkpoint)} cannot be written ({reason}; "
            f"{shutil.disk_usage(checkpoint.parent).free / 1e6:.1f} MB are free now): free some "
            f"room there; {goes_on}"
        ) from error
