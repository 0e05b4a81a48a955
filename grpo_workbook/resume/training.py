"""Stop and resume exactly: a run that was killed and resumed ends in the same adapter, bit for bit on a CPU.

    trained = train(trainer)                  # first; Ctrl-C saves and ends it
    trained = train(trainer, resume=True)     # later, in a new process with a trainer made in the same way

What stock resuming loses, and this brings back (Transformers 5.17, PEFT 0.21, TRL 1.15):
- the adapters' dtype: TRL trains those on a 4-bit base in bfloat16, and PEFT loads them in float32;
- with beta > 0, the adapters: only TRL's reference copy is loaded, and training begins again from fresh ones;
- the order of the data after the first epoch: TRL's sampler begins again with the first epoch's order;
- completions that are drawn and not yet used up (steps_per_generation or num_iterations above one optimizer step);
- metrics between two entries of the log, and the state of rewards and callbacks that have one.
Random states, optimizer, schedule and the place within an epoch are right as the Trainer keeps them. It reads them by
torch.load with weights_only, which makes tensors and plain values and runs no code; our own file is safetensors.
On a GPU the same states are kept, but kernels there need not add up in the same order twice.
"""

import signal
import threading
from collections.abc import Callable as Function
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_workbook.callback import Callback
from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.files import readable
from grpo_workbook.processes import ALONE, Processes
from grpo_workbook.resume import states
from grpo_workbook.resume.checkpoints import (
    clear_torn,
    fault,
    last_checkpoint,
    seal,
    set_aside,
    step_of,
)

if TYPE_CHECKING:
    from trl import GRPOTrainer


@dataclass(frozen=True)
class Trained:
    """What `train` did: TRL's log (the entries with a reward), the step it went on from (0: none), ended by Ctrl-C?"""

    log: list[dict]
    resumed_from_step: int
    interrupted: bool


def train(
    trainer: "GRPOTrainer",
    *,
    resume: bool = False,
    say: Function[[str], None] = print,
    processes: Processes = ALONE,
) -> Trained:
    """Train to the last step; with `resume`, from the newest whole checkpoint in args.output_dir, if there is one.

    A run that had ended gets its adapter and log back and takes no step. Ctrl-C ends training after the step under way
    and saves. Raises WorkbookError when a checkpoint cannot be written (a full disk: the last whole one stays), or when
    the one there is belongs to a trainer that was set up otherwise.
    """
    keep_exact(trainer)
    say = say if trainer.is_world_process_zero() else lambda text: None
    folder = Path(trainer.args.output_dir)
    checkpoint = processes.once(lambda: last_checkpoint(folder, say)) if resume else None
    if resume:
        say(
            f"Continuing from {Path(checkpoint).name}"
            if checkpoint
            else "No checkpoint: training begins at step 1"
        )
    interrupted = False
    if checkpoint and step_of(checkpoint) >= _last_step(trainer, checkpoint):
        restore(trainer, checkpoint)  # the Trainer would take one step too many
    else:
        with (
            stop_on_interrupt(trainer, processes) as seen,
            _bars_closed(trainer),
            _disk_errors_named(trainer),
        ):
            trainer.train(resume_from_checkpoint=checkpoint)
        interrupted = seen["interrupted"] and trainer.state.global_step < trainer.state.max_steps
    log = [entry for entry in trainer.state.log_history if "reward" in entry]
    return Trained(log, step_of(checkpoint) if checkpoint else 0, interrupted)


def keep_exact(trainer: "GRPOTrainer") -> "ExactCheckpoints":
    """Make each checkpoint of this trainer one that can be resumed exactly. `make_trainer` and `train` do it.

    From here on `trainer.train(resume_from_checkpoint=...)` is exact too. At least two checkpoints are kept
    (save_total_limit): the Trainer removes the oldest before the newest is sealed.
    """
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, ExactCheckpoints):
            return callback
    exact = ExactCheckpoints(trainer)
    trainer.add_callback(exact)
    trainer._load_from_checkpoint = exact.load
    if trainer.args.save_total_limit == 1:
        trainer.args.save_total_limit = 2
    return exact


class ExactCheckpoints(Callback):
    """Adds to each checkpoint what the Trainer leaves out, seals it, and brings it back on resuming."""

    def __init__(self, trainer: "GRPOTrainer"):
        self.trainer, self.resuming = trainer, None
        self.stock_load = trainer._load_from_checkpoint

    def load(self, checkpoint: str, model=None) -> None:
        """In the place of Trainer._load_from_checkpoint: every adapter, in the dtype in which it is trained."""
        if why := fault(Path(checkpoint)):
            raise WorkbookError(f"{readable(checkpoint)} cannot be resumed: {why}")
        states.check_setup(
            self.trainer, states.read(Path(checkpoint) / "exact_0.safetensors")["setup"], checkpoint
        )
        self.resuming = checkpoint
        if self.trainer.is_fsdp_enabled or not hasattr(self.trainer.model, "peft_config"):
            self.stock_load(checkpoint, model)
        else:
            load_adapters(self.trainer.model, Path(checkpoint))

    def on_train_begin(self, args, state, control, train_dataloader=None, **kwargs):
        main, folder = self.trainer.is_world_process_zero(), Path(args.output_dir)
        if state.global_step == 0:
            if main:
                set_aside(folder)
            return
        if self.resuming is None:  # DeepSpeed loads by itself
            raise WorkbookError(
                "this trainer loads checkpoints in a way that cannot be made exact (DeepSpeed)"
            )
        states.put_back(self.trainer, states.read(self._file(self.resuming)), train_dataloader)
        self.resuming = None
        if main:
            clear_torn(folder)

    def on_save(self, args, state, control, **kwargs):
        checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        states.write(self._file(checkpoint), states.take(self.trainer))
        self.trainer.accelerator.wait_for_everyone()
        if self.trainer.is_world_process_zero():
            seal(checkpoint)

    def _file(self, checkpoint) -> Path:
        return Path(checkpoint) / f"exact_{self.trainer.args.process_index}.safetensors"


def load_adapters(model, checkpoint: Path) -> None:
    """Put the weights of a checkpoint into the model's adapters of the same names; each keeps its dtype."""
    from peft import set_peft_model_state_dict
    from safetensors.torch import load_file

    for name in model.peft_config:
        path = (
            checkpoint if name == "default" else checkpoint / name
        ) / "adapter_model.safetensors"
        if name == "default" or path.is_file():  # a reference copy may have been dropped since
            set_peft_model_state_dict(model, load_file(path), adapter_name=name)


def restore(trainer: "GRPOTrainer", checkpoint: str) -> None:
    """Take adapter, log and the rewards' state from a checkpoint without training: for a run that had ended."""
    from transformers import TrainerState

    exact = keep_exact(trainer)
    exact.load(checkpoint)
    exact.resuming = None
    trainer.state = TrainerState.load_from_json(str(Path(checkpoint) / "trainer_state.json"))
    states.put_back_rewards(trainer, states.read(exact._file(checkpoint))["rewards"])


def _last_step(trainer: "GRPOTrainer", checkpoint: str) -> int:
    if trainer.args.max_steps > 0:
        return trainer.args.max_steps
    from transformers import TrainerState

    return TrainerState.load_from_json(str(Path(checkpoint) / "trainer_state.json")).max_steps


@contextmanager
def stop_on_interrupt(trainer: "GRPOTrainer", processes: Processes = ALONE):
    """The first Ctrl-C ends training after the step under way and saves a checkpoint; the second stops at once.

    Of several processes all stop after the same step, whichever of them got the signal.
    Yields a dict whose "interrupted" says afterwards whether that happened.
    """
    seen = {"interrupted": False}

    class Stop(Callback):
        def on_step_end(self, args, state, control, **kwargs):
            seen["interrupted"] = processes.any(seen["interrupted"])
            if seen["interrupted"]:
                control.should_save = control.should_training_stop = True
            return control

    def handle(signum, frame):
        if seen["interrupted"]:
            raise KeyboardInterrupt
        seen["interrupted"] = True
        print("\nCtrl-C: finishing this step, then saving (again: stop at once)", flush=True)

    trainer.add_callback(stop := Stop())
    main = threading.current_thread() is threading.main_thread()  # only it may handle signals
    before = signal.signal(signal.SIGINT, handle) if main else None
    try:
        yield seen
    finally:
        trainer.remove_callback(stop)
        if main:
            signal.signal(signal.SIGINT, before)


@contextmanager
def _bars_closed(trainer: "GRPOTrainer"):
    """When training ends with an exception, what is said of it comes below the progress bar."""
    try:
        yield
    except BaseException:
        for bar in filter(
            None, (getattr(c, "bar", None) for c in trainer.callback_handler.callbacks)
        ):
            bar.close()
        raise


@contextmanager
def _disk_errors_named(trainer: "GRPOTrainer"):
    """A checkpoint that cannot be written becomes one WorkbookError; what there is of it is removed to make room."""
    import shutil

    try:
        yield
    except Exception as error:
        if not (_while_saving(error) and (reason := _of_the_disk(error))):
            raise
        folder, step = Path(trainer.args.output_dir), trainer.state.global_step
        if trainer.is_world_process_zero():
            shutil.rmtree(folder / f"checkpoint-{step}", ignore_errors=True)
        kept = last_checkpoint(folder)
        goes_on = (
            f"{readable(kept)} is whole, and resuming goes on from there"
            if kept
            else "there is no earlier one"
        )
        raise WorkbookError(
            f"the checkpoint of step {step} cannot be written to {readable(folder)} ({reason}; "
            f"{shutil.disk_usage(folder).free / 1e6:.1f} MB are free now): free some room there; {goes_on}"
        ) from error


def _while_saving(error: BaseException) -> bool:
    trace, names = error.__traceback__, set()
    while trace is not None:
        names.add(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    return bool(names & {"_save_checkpoint", "on_save"})


def _of_the_disk(error: BaseException) -> str | None:
    """What the disk said, for an error of writing; torch and safetensors have their own, without an errno."""
    if isinstance(error, WorkbookError):  # of writing.py, about the manifest
        error = error.__cause__ or error
    if isinstance(error, OSError) and error.errno is not None:
        return error.strerror
    text = str(error)
    if "No space left on device" in text:
        return "No space left on device"
    if "inline_container.cc" in text:  # torch.save, whose own text is of file positions
        return "PyTorch could not write all of it"
    return first_line(error) if type(error).__name__ == "SafetensorError" else None
