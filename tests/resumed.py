"""Short real runs for test_resume.py, in a process of their own: python tests/resumed.py FOLDER '{"name": "...", ...}'

One trainer is made and trained to its last step in FOLDER; with "resume", from its last checkpoint. "kill" names a step
and where in it the process kills itself with SIGKILL: "step" (after the optimizer's step), "writing" (with the adapter
written and the optimizer not), "before the seal", "sealed".
"""

import json
import os
import random
import signal
import sys
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

BASE = {"steps": 7, "batch_size": 8, "num_generations": 4, "max_completion_tokens": 12}


def make(folder: Path, options: dict):
    """A trainer; options are settings, names of GRPOConfig, "rows" and "adaptive"."""
    from grpo_workbook import config, training
    from grpo_workbook.data import to_dataset
    from grpo_workbook.health import HealthCallback
    from grpo_workbook.notebook import quiet
    from grpo_workbook.problems import load
    from grpo_workbook.data import WORD_PROBLEMS
    from grpo_workbook.rubric import parse_rewards
    from grpo_workbook.run import Run
    from grpo_workbook.vitals import HeldoutProbe, watch

    options = BASE | options
    quiet()
    settings = {k: options[k] for k in ("steps", "batch_size", "num_generations", "max_completion_tokens")}
    settings |= {k: options[k] for k in ("per_device_batch", "beta") if k in options}
    run = Run.from_env(profile="smoke", output=folder, **settings)
    functions, weights = parse_rewards("strict_format:0.5,incremental_format:0.5")
    if options.get("adaptive"):
        from grpo_workbook.ensembles import AdaptiveWeight, mean_of

        fading = AdaptiveWeight(*functions, at_zero=1.0, at_one=0.2, memory=0.5)
        inner = AdaptiveWeight(*reversed(functions), at_zero=0.1, at_one=0.9, memory=0.8)
        functions, weights = [fading, mean_of(inner, functions[1])], [1.0, 0.5]
    rows = load(WORD_PROBLEMS["train"]).dataset
    model, tokenizer = training.load_policy(run)
    made = config.grpo_config(run, weights)
    made.save_steps = options.get("save_steps", 3)
    for name in ("num_iterations", "steps_per_generation", "logging_steps", "save_total_limit"):
        setattr(made, name, options.get(name, getattr(made, name)))
    made.generation_batch_size = made.per_device_train_batch_size * made.steps_per_generation
    training.grpo_config = lambda run, weights: made
    functions = watch(functions)
    data = to_dataset(rows.select(range(options.get("rows", 400))))
    trainer = training.make_trainer(run, model, tokenizer, data, functions, weights)
    trainer.add_callback(HealthCallback(functions, every=2))
    if options.get("probe"):
        trainer.add_callback(HeldoutProbe(model, tokenizer, data, max_new_tokens=6, every=2, problems=4))
    return trainer


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def arm(trainer, step: int, where: str) -> None:
    """Make the process kill itself."""
    from grpo_workbook import checkpoints, resume
    from grpo_workbook.callback import Callback

    def at(stage, function):
        def armed(*args, **kwargs):
            due = trainer.state.global_step == step and where == stage
            if due and stage != "sealed":
                die()
            function(*args, **kwargs)
            if due:
                die()

        return armed

    class Step(Callback):
        on_optimizer_step = staticmethod(at("step", lambda *args, **kwargs: None))

    # on_optimizer_step comes before the step is counted
    trainer.add_callback(Step())
    trainer._save_optimizer_and_scheduler = at("writing", trainer._save_optimizer_and_scheduler)
    resume.seal = at("before the seal", at("sealed", checkpoints.seal))


def main(folder: Path, options: dict) -> None:
    import torch

    from grpo_workbook.export import save_adapter
    from grpo_workbook.folder import write_json
    from grpo_workbook.resume import train

    trainer = make(folder, options)
    if "kill" in options:
        arm(trainer, *options["kill"])
    if options.get("resume"):  # whatever the random states are in the new process
        random.seed(99)
        torch.manual_seed(99)
    trained = train(trainer, resume=options.get("resume", False))
    save_adapter(trainer.model, trainer.processing_class, folder / "adapter")
    write_json(folder / "log.json", trained.log)
    write_json(folder / "history.json", trainer.state.log_history)
    print("resumed from", trained.resumed_from_step, "ended at", trainer.state.global_step)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
