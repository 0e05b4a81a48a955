"""What one stage hands to the next: the adapter, the optimizer's moments, and no reference of its own."""

from contextlib import contextmanager
from pathlib import Path

from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.files import readable
from grpo_workbook.stages.stage import Stage
from grpo_workbook.training import Callback

REFERENCE = "ref"  # TRL's name for the frozen copy of the adapter that the KL penalty compares with
MOMENTS = "optimizer.safetensors"
AGAIN = "delete that stage's folder, and --resume trains it and the later ones again"


class Carry(Callback):
    """Gives the optimizer the state that the stage before left, keeps its own for the next, sets the reference."""

    def __init__(self, stage: Stage, moments: Path | None, save_to: Path):
        self.stage, self.moments, self.save_to = stage, moments, save_to

    def on_train_begin(self, args, state, control, model=None, optimizer=None, **kwargs):
        if self.stage.reference == "base":
            drop_reference(
                model
            )  # without the copy TRL switches the adapter off instead: that is the base
        if (
            self.moments is not None and state.global_step == 0
        ):  # else the checkpoint has brought its own
            with whole_stage(self.moments.parent):
                load_moments(optimizer, self.moments)

    def on_step_end(self, args, state, control, optimizer=None, **kwargs):
        if (
            state.global_step >= state.max_steps
        ):  # before the last checkpoint, after which a kill may come
            save_moments(optimizer, self.save_to)

    def on_train_end(self, args, state, control, model=None, optimizer=None, **kwargs):
        save_moments(optimizer, self.save_to)
        drop_reference(model)  # the adapter is saved without it


def save_moments(optimizer, path: Path) -> None:
    """Write the optimizer's state (for AdamW: step, exp_avg, exp_avg_sq of each weight) as safetensors."""
    from safetensors.torch import save_file

    state = optimizer.state_dict()["state"]
    tensors = {
        f"{i}.{name}": value.contiguous()
        for i, values in state.items()
        for name, value in values.items()
    }
    save_file(tensors, path)


def load_moments(optimizer, path: Path) -> None:
    """Give the optimizer a state that `save_moments` wrote; learning rate and the like stay as they are.

    Raises WorkbookError when it is of other weights: the adapters of two stages have the same shapes.
    """
    from safetensors.torch import load_file

    state: dict[int, dict] = {}
    for key, value in load_file(path).items():
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    weights = [p for group in optimizer.param_groups for p in group["params"]]
    shapes = {i: values["exp_avg"].shape for i, values in state.items() if "exp_avg" in values}
    if state and (
        max(state) >= len(weights) or any(weights[i].shape != shape for i, shape in shapes.items())
    ):
        raise WorkbookError(
            f"{path} holds the state of other adapters: the LoRA rank must stay the same"
        )
    optimizer.load_state_dict(
        {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
    )


def drop_reference(model) -> None:
    """Remove TRL's frozen copy of the adapter, if there is one: the next trainer then copies the policy as it is."""
    if REFERENCE in model.peft_config:
        model.delete_adapter(REFERENCE)


def load_adapter(model, folder: Path) -> None:
    """Give the model the adapter weights that a stage saved."""
    from peft import set_peft_model_state_dict
    from safetensors.torch import load_file

    set_peft_model_state_dict(model, load_file(folder / "adapter_model.safetensors"))


@contextmanager
def whole_stage(folder: Path):
    """What a finished stage has left is read inside: where it was damaged, WorkbookError names the stage."""
    from safetensors import SafetensorError

    try:
        yield
    except WorkbookError:
        raise
    except (OSError, ValueError, LookupError, TypeError, RuntimeError, SafetensorError) as error:
        raise WorkbookError(
            f"the finished stage {readable(folder)} is damaged ({first_line(error)}): {AGAIN}"
        ) from error
