"""Short real runs for test_resume.py. Each line of the standard input asks for one, as JSON:

    {"folder": ..., "resume": false, "arm": [3, "step"], ...}

Each runs in a process of its own, forked from this one, which has only imported the libraries.
The answer is a line "DID ..." with what it came to, or with the signal that killed it. "arm" is a
number of finished steps and what happens then: "step" (SIGKILL before the optimizer moves),
"writing" (SIGKILL within a checkpoint: the adapter is written and the optimizer not), "before the
seal", "sealed", "interrupted" (a Ctrl-C), "full" (the disk is filled up).
"""

import json
import os
import random
import signal
import sys
import traceback
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")

FORM = str(Path(__file__).resolve().parent.parent / "data" / "tiny-form")
BASE = {
    "max_steps": 10,
    "per_device_train_batch_size": 8,
    "num_generations": 4,
    "max_completion_length": 12,
    "save_steps": 3,
}
# Arguments of GRPOConfig that may be asked for. The further options are read where they are needed:
# rows, fading, probe, arm, resume, remove, stock.
OF_TRL = (
    *BASE,
    "gradient_accumulation_steps",
    "beta",
    "num_iterations",
    "steps_per_generation",
    "logging_steps",
    "save_total_limit",
)


class Fading:
    """A reward with a state: it pays less the more completions have earned something."""

    def __init__(self, reward):
        self.reward = reward
        self.__name__ = f"fading_{reward.__name__}"
        self.rate = 0.0

    def __call__(self, completions, **columns):
        values = self.reward(completions=completions, **columns)
        paid = [(1 - 0.8 * self.rate) * value for value in values]
        self.rate = (self.rate + sum(value > 0 for value in values) / len(values)) / 2
        return paid

    def state_dict(self):
        return {"rate": self.rate}

    def load_state_dict(self, state):
        self.rate = state["rate"]


def make(folder: Path, options: dict):
    """A stock trainer of TRL, with a stateful callback and, if asked for, stateful rewards."""
    from trl import GRPOConfig, GRPOTrainer

    from grpo_workbook import training
    from grpo_workbook.config import choose_profile
    from grpo_workbook.data import WORD_PROBLEMS, load_problems, to_dataset
    from grpo_workbook.diagnosis import HealthCallback, watch
    from grpo_workbook.notebook import quiet, use_one_thread
    from grpo_workbook.rewards import parse_rewards

    options = BASE | options
    quiet()
    use_one_thread()
    arguments = {name: options[name] for name in OF_TRL if name in options}
    # Its form varies in the first tokens, which gives a gradient.
    profile = choose_profile("smoke", model=FORM, grpo=arguments)
    functions, weights = parse_rewards("strict_format:0.5,incremental_format:0.5")
    if options.get("fading"):
        functions = [Fading(function) for function in functions]
    functions = watch(functions)
    rows = load_problems(WORD_PROBLEMS["train"]).select(range(options.get("rows", 400)))
    data = to_dataset(rows)
    model, tokenizer = training.load_policy(profile)
    checkpoints = str(folder / "checkpoints")
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=functions,
        args=GRPOConfig(output_dir=checkpoints, reward_weights=weights, **profile.grpo),
        train_dataset=data,
        processing_class=tokenizer,
    )
    trainer.add_callback(HealthCallback(functions, every=2))
    if options.get("probe"):
        how = {"max_new_tokens": 6, "every": 2, "problems": 4}
        trainer.add_callback(training.HeldoutProbe(model, tokenizer, data, **how))
    return trainer


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def arm(trainer, step: int, where: str) -> None:
    """Let happen what is asked for."""
    from grpo_workbook import resume as exact
    from grpo_workbook.training import Callback

    def before(function, stage, act=die):
        def armed(*args, **kwargs):
            if trainer.state.global_step == step and where == stage:
                act()
            return function(*args, **kwargs)

        return armed

    def nothing(*args, **kwargs):
        return None

    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)

    class InTheStep(Callback):
        on_substep_end = on_pre_optimizer_step = staticmethod(before(nothing, "step"))
        on_step_begin = staticmethod(before(nothing, "full", lambda: fill(trainer.args.output_dir)))
        on_step_end = staticmethod(before(nothing, "interrupted", interrupt))
        on_save = staticmethod(before(nothing, "sealed"))

    trainer.callback_handler.callbacks.insert(0, InTheStep())
    trainer._save_optimizer_and_scheduler = before(trainer._save_optimizer_and_scheduler, "writing")
    exact.seal = before(exact.seal, "before the seal")


def fill(folder: str) -> None:
    """Leave 400 kB on this folder's disk: an adapter fits and the optimizer's state does not."""
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

    from grpo_workbook import resume
    from grpo_workbook.errors import WorkbookError
    from grpo_workbook.export import save_adapter
    from grpo_workbook.files import write_json

    if "remove" in options:
        Path(options["remove"]).unlink()
    trainer = make(folder, options)
    if "arm" in options:
        arm(trainer, *options["arm"])
    if resume.last_checkpoint(folder / "checkpoints"):  # what resumes may be in any state
        random.seed(99)
        torch.manual_seed(99)
    if options.get("stock"):  # as someone would who does not know of grpo_workbook.resume
        trainer.train()
        return {"to": trainer.state.global_step}
    try:
        trained = resume.train(trainer, resume=options.get("resume", False))
    except WorkbookError as error:
        return {"error": str(error)}
    save_adapter(trainer.model, trainer.processing_class, folder / "adapter")
    write_json(folder / "history.json", trainer.state.log_history)
    found = [cb.findings for cb in trainer.callback_handler.callbacks if hasattr(cb, "findings")]
    steps = {"from": trained.resumed_from_step, "to": trainer.state.global_step}
    return {**steps, "findings": len(found[0])}


def forked(options: dict) -> None:
    """Do one run in a child process, and say what came of it."""
    if not os.fork():
        try:
            done = train(Path(options.pop("folder")), options)
        except BaseException:
            done = {"error": traceback.format_exc()}
        print("DID", json.dumps(done), flush=True)
        os._exit(0)
    _, status = os.wait()
    if os.WIFSIGNALED(status):
        print("DID", json.dumps({"killed": os.WTERMSIG(status)}), flush=True)


if __name__ == "__main__":
    import unsloth  # noqa: F401  (before trl)
    import trl  # noqa: F401  # isort: skip

    for line in sys.stdin:
        forked(json.loads(line))
