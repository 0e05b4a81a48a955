"""Short real runs for test_resume.py, in a process of their own: python tests/resumed.py '[{"folder": ..., ...}, ...]'

For each a trainer is made and trained to its last step; with "resume", from its last checkpoint. "arm" is a number of
finished steps and a place, at which the process kills itself with SIGKILL: "step" (before the optimizer moves),
"writing" (a checkpoint: the adapter is written and the optimizer not), "before the seal", "sealed".
"""

import json
import os
import random
import signal
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

BASE = {"steps": 10, "batch_size": 8, "num_generations": 4, "max_completion_length": 12}


def make(folder: Path, options: dict):
    """A trainer; options are settings, names of GRPOConfig, "rows" and "adaptive"."""
    from grpo_workbook import training
    from grpo_workbook.config import RunConfig
    from grpo_workbook.data import WORD_PROBLEMS, to_dataset
    from grpo_workbook.diagnosis.health import HealthCallback
    from grpo_workbook.diagnosis.vitals import watch
    from grpo_workbook.training import HeldoutProbe
    from grpo_workbook.notebook import quiet
    from grpo_workbook.problems import load
    from grpo_workbook.rubric import parse_rewards

    options = BASE | options
    quiet()
    settings = {
        k: options[k] for k in ("steps", "batch_size", "num_generations", "max_completion_length")
    }
    settings |= {k: options[k] for k in ("per_device_batch", "beta") if k in options}
    run = RunConfig.from_env(profile="smoke", output=folder, **settings)
    functions, weights = parse_rewards("strict_format:0.5,incremental_format:0.5")
    if options.get("adaptive"):
        from grpo_workbook.ensembles import AdaptiveWeight, mean_of

        fading = AdaptiveWeight(*functions, at_zero=1.0, at_one=0.2, memory=0.5)
        inner = AdaptiveWeight(*reversed(functions), at_zero=0.1, at_one=0.9, memory=0.8)
        functions, weights = [fading, mean_of(inner, functions[1])], [1.0, 0.5]
    rows = load(WORD_PROBLEMS["train"]).dataset
    model, tokenizer = training.load_policy(run)
    names = ("num_iterations", "steps_per_generation", "logging_steps", "save_total_limit")
    overrides = {"save_steps": options.get("save_steps", 3)} | {
        n: options[n] for n in names if n in options
    }
    functions = watch(functions)
    data = to_dataset(rows.select(range(options.get("rows", 400))))
    trainer = training.make_trainer(run, model, tokenizer, data, functions, weights, overrides)
    trainer.add_callback(HealthCallback(functions, every=2))
    if options.get("probe"):
        trainer.add_callback(
            HeldoutProbe(model, tokenizer, data, max_new_tokens=6, every=2, problems=4)
        )
    return trainer


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def arm(trainer, step: int, where: str) -> None:
    """Make the process kill itself in this step, or (in "interrupted") get a Ctrl-C, or (in "full") fill the disk."""
    from grpo_workbook.resume import training as resume
    from grpo_workbook.training import Callback

    def before(function, stage, act=die):
        def armed(*args, **kwargs):
            if trainer.state.global_step == step and where == stage:
                act()
            return function(*args, **kwargs)

        return armed

    class InTheStep(Callback):
        on_substep_end = on_pre_optimizer_step = staticmethod(before(lambda *_, **__: None, "step"))
        on_step_begin = staticmethod(
            before(lambda *_, **__: None, "full", lambda: fill(trainer.args.output_dir))
        )
        on_step_end = staticmethod(
            before(
                lambda *_, **__: None, "interrupted", lambda: os.kill(os.getpid(), signal.SIGINT)
            )
        )

    class Sealed(Callback):
        on_save = staticmethod(before(lambda *_, **__: None, "sealed"))

    trainer.callback_handler.callbacks.insert(0, InTheStep())
    trainer.add_callback(Sealed())  # after the one that seals
    trainer._save_optimizer_and_scheduler = before(trainer._save_optimizer_and_scheduler, "writing")
    resume.seal = before(resume.seal, "before the seal")


def fill(folder: str) -> None:
    """Leave 400 kB on the disk of this folder: an adapter fits and the optimizer's state does not."""
    path = Path(folder).parent / "filler"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(100_000))
        except OSError:
            file.truncate(file.tell() // 100_000 * 100_000 - 400_000)


def train(folder: Path, options: dict) -> dict:
    """One run; what it came to."""
    import torch

    from grpo_workbook.errors import WorkbookError
    from grpo_workbook.export import save_adapter
    from grpo_workbook.files import write_json
    from grpo_workbook.resume import checkpoints
    from grpo_workbook.resume import training as resume

    trainer = make(folder, options)
    if "arm" in options:
        arm(trainer, *options["arm"])
    if checkpoints.last_checkpoint(folder / "checkpoints"):  # what resumes may be in any state
        random.seed(99)
        torch.manual_seed(99)
    try:
        trained = resume.train(trainer, resume=options.get("resume", False))
    except WorkbookError as error:
        return {"error": str(error)}
    save_adapter(trainer.model, trainer.processing_class, folder / "adapter")
    write_json(folder / "history.json", trainer.state.log_history)
    found = [cb.found for cb in trainer.callback_handler.callbacks if hasattr(cb, "found")]
    return {
        "from": trained.resumed_from_step,
        "to": trainer.state.global_step,
        "said": len(found[0]),
    }


def command(arguments: list[str], armed: list | None) -> int:
    """The command line, with a checkpoint every 3 steps."""
    from grpo_workbook import __main__, config, training

    def grpo_config(*given):
        made = config.grpo_config(*given)
        made.save_steps = 3
        return made

    def make_trainer(*given):
        trainer = stock(*given)
        if armed:
            arm(trainer, *armed)
        return trainer

    stock = training.make_trainer
    training.grpo_config, training.make_trainer = grpo_config, make_trainer
    return __main__.main(arguments)


if __name__ == "__main__":
    runs = json.loads(sys.argv[1])
    if isinstance(runs, dict):
        sys.exit(command(**runs))
    for run in runs:
        print("DID", json.dumps(train(Path(run.pop("folder")), run)), flush=True)
