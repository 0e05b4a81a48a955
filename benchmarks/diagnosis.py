"""Makes runs sick on purpose, and counts how often the diagnosis names the disease.

    python benchmarks/diagnosis.py                  # an hour on one core; continues if stopped
    python benchmarks/diagnosis.py --only healthy   # the runs with this prefix
    python benchmarks/diagnosis.py --report         # the confusion table of the recorded logs

Every run is its own process: the tiny model of the main run, 4-bit through Unsloth, TRL's
GRPOTrainer, up to 30 steps of 64 completions (fewer if the disease shows at once). Its log goes to
tests/diagnosis_logs, where the tests read it. The thresholds were set on the first seed of each
case; the other seeds are held out.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))  # this project's own package, installed or not

from grpo_workbook.answers import is_correct, lenient_answer  # noqa: E402
from grpo_workbook.diagnosis import (  # noqa: E402
    SEVERE,
    WARNING,
    HealthCallback,
    RunLog,
    diagnose,
    read_run,
    roles_of,
    watch,
)  # fmt: skip
from grpo_workbook.rewards import correctness_reward as right  # noqa: E402
from grpo_workbook.rewards import parse_rewards, reward, text_of  # noqa: E402

LOGS = REPO / "tests" / "diagnosis_logs"
DROPPED = ("epoch", "num_tokens", "total_flos", "train_", "clip_ratio/")
DROPPED += ("completions/min", "completions/max")
STEPS = 30
SETTINGS = (
    "num_generations batch_size max_completion_length temperature beta learning_rate loss_type "
    "scale_rewards max_steps"
).split()


@dataclass(frozen=True)
class Case:
    """One way to make a run sick, or healthy (expected: None). `settings` replace the profile's."""

    expected: str | None
    why: str
    settings: dict = field(default_factory=dict)
    model: str = "qwen"
    rewards: Callable | None = None  # () -> (functions, weights)
    dataset: Callable | None = None  # dataset -> dataset
    prepare: Callable | None = None  # (model, tokenizer) -> None, before the trainer is made
    optimizer: Callable | None = None  # model -> optimizer
    callbacks: Callable | None = None  # (model) -> list of callbacks
    seeds: tuple[int, ...] = (0, 1)


# ---- rewards that are sick


def _default():
    return parse_rewards("correctness:2,strict_format:0.5,incremental_format:0.5")


def _with(function, weights=(2.0, 0.5, 0.5), place=0):
    functions, _ = _default()
    functions[place] = function
    return functions, list(weights)


def _constant():
    @reward(role="correctness")
    def correctness_reward(completions, **columns):
        return [1.0 for _ in completions]

    return [correctness_reward], [1.0]


def _by_prompt():
    @reward(role="other")
    def difficulty_reward(prompts, completions, **columns):
        return [len(p[-1]["content"]) / 100 for p in prompts]

    return [difficulty_reward], [1.0]


def _nan():
    @reward(role="correctness")
    def correctness_reward(completions, answer, trainer_state=None, **columns):
        values = right(completions=completions, answer=answer)
        return [math.nan if i % 3 == 0 else v for i, v in enumerate(values)]

    return _with(correctness_reward)


def _raises():
    @reward(role="correctness")
    def correctness_reward(completions, answer, trainer_state=None, **columns):
        if trainer_state.global_step >= 20:
            raise KeyError("anser")
        return right(completions=completions, answer=answer)

    return _with(correctness_reward)


def _shows_work():
    @reward(role="style")
    def shows_work_reward(completions, **columns):
        return [min(1.0, text_of(c).count("=") / 6) for c in completions]

    return [shows_work_reward], [1.0]


def _long():
    @reward(role="length")
    def thoroughness_reward(completions, completion_ids, **columns):
        return [len(ids) / 64 for ids in completion_ids]

    return [thoroughness_reward], [1.0]


def _unscaled():
    @reward(role="length")
    def brevity_reward(completions, **columns):
        return [-float(abs(len(text_of(c)) - 60)) for c in completions]

    functions, _ = _default()
    return [functions[0], functions[1], brevity_reward], [2.0, 0.5, 1.0]


def _lenient_only():
    @reward(role="correctness")
    def lenient_reward(completions, answer, **columns):

        pairs = zip(completions, answer, strict=True)
        return [float(is_correct(lenient_answer(text_of(c)), a)) for c, a in pairs]

    functions, _ = _default()
    return [lenient_reward, functions[1]], [1.0, 0.0]


# ---- data, models and optimizers that are sick


def _shifted_answers(dataset):
    answers = list(dataset["answer"])
    return dataset.remove_columns("answer").add_column("answer", answers[7:] + answers[:7])


def _wrong_end(model, tokenizer):
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(7)  # a byte that no text here holds
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.config.eos_token_id = tokenizer.eos_token_id


def _optimizer_of_others(model):
    import torch

    return torch.optim.AdamW(
        [p for n, p in model.named_parameters() if "lora_" not in n and p.is_floating_point()], 1e-3
    )


def _uphill(model):
    import torch

    return torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], 1e-3, maximize=True
    )


def _poison(model):
    import torch
    from transformers import TrainerCallback

    class Overflow(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            if state.global_step == 12:  # what a 16-bit overflow leaves
                weight = next(p for n, p in model.named_parameters() if "lora_B" in n)
                with torch.no_grad():
                    weight[0, 0] = math.inf

    return [Overflow()]


def _small(model):
    import psutil
    from transformers import TrainerCallback

    class SmallMachine(TrainerCallback):
        def on_log(self, args, state, control, **kwargs):
            if "memory/fraction" in (entry := state.log_history[-1]):
                entry["memory/fraction"] *= psutil.virtual_memory().total / 1e9

    return [SmallMachine()]


CASES: dict[str, Case] = {
    "raising_reward": Case(
        "reward_raises", "the reward raises KeyError at step 20", rewards=_raises
    ),
    "nan_reward": Case(
        "reward_nan",
        "the reward gives NaN for a third of the completions",
        {"max_steps": 15},
        rewards=_nan,
    ),
    "constant_reward": Case(
        "reward_constant", "the reward gives 1 for everything", {"max_steps": 15}, rewards=_constant
    ),
    "wrong_answers": Case(
        "wrong_answers",
        "the answer column is shifted by seven rows",
        {"max_steps": 20},
        dataset=_shifted_answers,
    ),
    "reward_by_prompt": Case(
        "no_gradient", "the reward looks at the prompt only", {"max_steps": 15}, rewards=_by_prompt
    ),
    "cold_sampling": Case("collapsed", "temperature 0.05", {"max_steps": 15, "temperature": 0.05}),
    "four_tokens": Case(
        "truncated", "max_completion_length 4", {"max_steps": 15, "max_completion_length": 4}
    ),
    "wrong_end_token": Case(
        "never_ends",
        "the end token is one the model never learned",
        {"max_steps": 12},
        prepare=_wrong_end,
    ),
    "free_form": Case(
        "format_ignored",
        "a lenient answer is rewarded, format has weight 0",
        {"max_steps": 20},
        rewards=_lenient_only,
    ),
    "unscaled_reward": Case(
        "drowned",
        "a length reward in characters beside rewards of 0 to 1",
        {"max_steps": 15},
        rewards=_unscaled,
    ),
    "shows_work": Case(
        "hacked", "the reward counts equals signs", {"max_steps": 20}, rewards=_shows_work
    ),
    "pays_length": Case(
        "hacked", "the reward is the completion's length", {"max_steps": 20}, rewards=_long
    ),
    "rate_times_100": Case(
        "rate_too_high", "learning rate 0.1", {"max_steps": 12, "learning_rate": 0.1}
    ),
    "rate_by_100": Case(
        "rate_too_low", "learning rate 1e-5", {"max_steps": 24, "learning_rate": 1e-5}
    ),
    "frozen_adapters": Case(
        "frozen",
        "the optimizer holds other weights",
        {"max_steps": 15},
        optimizer=_optimizer_of_others,
    ),
    "beta_10": Case("beta_too_high", "beta 10", {"max_steps": 24, "beta": 10.0}),
    "drifting": Case(
        "rate_too_high",
        "beta 1e-4, eight times the learning rate",
        {"beta": 1e-4, "learning_rate": 8e-3},
    ),
    "wrong_sign": Case(
        "reward_falls", "the optimizer goes uphill", {"max_steps": 20}, optimizer=_uphill
    ),
    "overflow": Case("nan", "an adapter weight overflows at step 12", callbacks=_poison),
    "small_memory": Case("memory", "the machine has 1 GB", {"max_steps": 10}, callbacks=_small),
    "healthy": Case(None, "the main run", seeds=(0, 1, 2)),
    "healthy_gemma": Case(None, "the main run with Gemma 3", model="gemma", seeds=(0, 1)),
    "healthy_groups_of_4": Case(None, "groups of 4", {"num_generations": 4}, seeds=(0,)),
    "healthy_groups_of_16": Case(None, "groups of 16", {"num_generations": 16}, seeds=(1,)),
    "healthy_grpo": Case(None, "loss_type grpo", {"loss_type": "grpo"}, seeds=(0,)),
    "healthy_dr_grpo": Case(
        None, "loss_type dr_grpo", {"loss_type": "dr_grpo", "scale_rewards": "none"}, seeds=(1,)
    ),
    "healthy_beta": Case(None, "beta 0.04", {"beta": 0.04}, seeds=(0, 1)),
    "healthy_long": Case(None, "60 steps of the main run", {"max_steps": 60}, seeds=(3,)),
}


def train(name: str, seed: int, out: Path) -> None:
    """One run in this process; its log as columns in `out`."""
    os.environ.update(HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="")
    from grpo_workbook import HeldoutProbe, RunConfig, load_policy, make_trainer, quiet
    from grpo_workbook.data import WORD_PROBLEMS, load_problems, to_dataset

    quiet()
    case = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        settings = {"max_steps": STEPS, "profile": "smoke", "model": case.model, **case.settings}
        run = RunConfig.from_env(seed=seed, output=folder, **settings)
        model, tokenizer = load_policy(run)
        functions, weights = (case.rewards or _default)()
        heldout = to_dataset(load_problems(WORD_PROBLEMS["heldout"]).select(range(64)))
        dataset = to_dataset(load_problems(WORD_PROBLEMS["train"]))
        dataset = case.dataset(dataset) if case.dataset else dataset
        if case.prepare:
            case.prepare(model, tokenizer)
        watched = watch(functions)
        trainer = make_trainer(
            run, model, tokenizer, dataset, watched, weights, {"save_strategy": "no"}
        )
        if case.optimizer:
            trainer.optimizer = case.optimizer(model)
        how = {"max_new_tokens": run.max_completion_length, "every": 10, "problems": 64}
        health = HealthCallback(watched, say=lambda text: None)
        callbacks = [HeldoutProbe(model, tokenizer, heldout, **how), health]
        for callback in [*callbacks, *(case.callbacks(model) if case.callbacks else [])]:
            trainer.add_callback(callback)
        ended = []
        try:
            trainer.train()
        except Exception as error:
            what = f"{type(error).__name__}: {str(error)[:200]}"
            where = "; ".join(getattr(error, "__notes__", []))
            ended = [{"step": trainer.state.global_step + 1, "error": what, "where": where}]
        history = [*trainer.state.log_history, *ended]
        names = [f.__name__ for f in functions]
        settings = {
            **{setting: getattr(run, setting) for setting in SETTINGS},
            "model": run.model_name,
            "reward_weights": dict(zip(names, weights, strict=True)),
            "reward_roles": roles_of(functions),
        }
    out.parent.mkdir(parents=True, exist_ok=True)
    about = {
        "run": f"benchmarks/diagnosis.py --only {name}_{seed}",
        "case": name,
        "seed": seed,
        "why": case.why,
    }
    text = json.dumps(
        {**about, "settings": settings, "log": columns(history)}, indent=None
    ).replace("], ", "],\n")
    new = out.with_suffix(".new")
    new.write_text(text + "\n", encoding="utf-8")
    os.replace(new, out)


def columns(history: list[dict]) -> dict[str, list]:
    """The log by column, four digits; None where a step has no value, "nan" and "inf" as words."""
    steps = sorted({e["step"] for e in history})
    table: dict[str, list] = {"step": steps}
    for entry in history:
        for key, value in entry.items():
            if key == "step" or key.startswith(DROPPED):
                continue
            table.setdefault(key, [None] * len(steps))[steps.index(entry["step"])] = _short(value)
    return table


def _short(value):
    if isinstance(value, float):
        return float(f"{value:.4g}") if math.isfinite(value) else str(value)
    return value


def runs(only: str | None = None) -> list[tuple[str, int]]:
    """(case, seed) in the order of training: the bounds were set on each case's first seed."""
    every = [(n, s) for k in range(3) for n, c in CASES.items() for s in c.seeds[k : k + 1]]
    return [(n, s) for n, s in every if only is None or f"{n}_{s}".startswith(only)]


def upto(run: RunLog, step: int) -> RunLog:
    """The same run as it was known after this step."""
    broken = {name: at for name, at in run.broken.items() if at <= step}
    error = run.error if run.error and run.error[0] <= step else None
    return replace(run, table=run.table.loc[:step], broken=broken, error=error)


def named(path: Path) -> str:
    """What the diagnosis names first within 30 steps of a recorded run."""
    return diagnose(upto(read_run(path), 30))[0].name


def outcome(path: Path) -> dict:
    """What the diagnosis says of a recorded run: first finding, and since when it stands first."""
    record = json.loads(path.read_text(encoding="utf-8"))
    case, run = CASES[record["case"]], read_run(path)
    last = max(int(run.table.index.max()), run.error[0] if run.error else 0)
    firsts = [diagnose(upto(run, step))[0] for step in range(1, last + 1)]
    expected = case.expected or "healthy"
    since = next((s for s in range(last, 0, -1) if firsts[s - 1].name != expected), 0) + 1
    alarms = [
        f"{f.name} at {s}" for s, f in enumerate(firsts, 1) if f.severity in (SEVERE, WARNING)
    ]
    return {
        "case": record["case"], "seed": record["seed"], "first": record["seed"] == case.seeds[0],
        "expected": expected, "named": named(path), "since": since, "alarms": alarms,
        "sick": case.expected is not None,
    }  # fmt: skip


def report(logs: Path) -> bool:
    """Print the confusion table; whether 95 % are named and no healthy run is accused."""
    found = [outcome(p) for p in sorted(logs.glob("*.json"))]
    print(f"{'run':24} {'disease':17} {'named first':17} from step")
    for o in found:
        mark = "" if o["named"] == o["expected"] else "   <-- missed"
        who = f"{o['case']} {o['seed']}"
        print(f"{who:24} {o['expected']:17} {o['named']:17} {o['since']:5}{mark}")
    good = True
    for title, part in (
        ("first seeds, on which the thresholds were set", [o for o in found if o["first"]]),
        ("other seeds, held out", [o for o in found if not o["first"]]),
    ):
        sick, healthy = [o for o in part if o["sick"]], [o for o in part if not o["sick"]]
        named = sum(o["named"] == o["expected"] for o in sick)
        accused = [o for o in healthy if o["alarms"]]
        print(
            f"\n{title}: {named} of {len(sick)} diseases named first within 30 steps, "
            f"{len(accused)} of {len(healthy)} healthy runs accused at any step"
        )
        for o in accused:
            print(f"  {o['case']} {o['seed']}: {o['alarms'][:4]}")
        good &= not accused and named >= 0.95 * len(sick)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", metavar="NAME", help="runs whose name begins so, such as beta_10 or beta_10_1"
    )
    parser.add_argument(
        "--logs", type=Path, default=LOGS, help="where the logs are (default tests/diagnosis_logs)"
    )
    parser.add_argument("--report", action="store_true", help="train nothing")
    parser.add_argument("--train", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train:
        train(args.train[0], int(args.train[1]), args.logs / f"{'_'.join(args.train)}.json")
        return 0
    for name, seed in [] if args.report else runs(args.only):
        if (args.logs / f"{name}_{seed}.json").is_file():
            continue
        print(f"{name} {seed}", flush=True)
        command = [sys.executable, __file__, "--logs", str(args.logs), "--train", name, str(seed)]
        result = subprocess.run(command, capture_output=True, text=True, cwd=tempfile.gettempdir())
        if result.returncode:
            print(result.stderr[-3000:], file=sys.stderr)
    return 0 if args.only or report(args.logs) else 1


if __name__ == "__main__":
    sys.exit(main())
