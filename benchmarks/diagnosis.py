"""Makes runs sick on purpose, and counts how often the diagnosis names the disease.

    python benchmarks/diagnosis.py                  # an hour on one core; continues if stopped
    python benchmarks/diagnosis.py --only healthy   # the runs with this prefix
    python benchmarks/diagnosis.py --report         # the confusion table of the recorded logs
    python benchmarks/diagnosis.py --real FOLDER    # logs of other people's runs, minutes
    python benchmarks/diagnosis.py --real FOLDER --perturb 5   # each of them changed at random

Every run is its own process: data/tiny-form, 4-bit through Unsloth, TRL's GRPOTrainer, up to 30
steps of 64 completions (fewer if the disease shows at once). Its log goes to tests/diagnosis_logs,
where the tests read it. The other seeds of each case are held out.

FOLDER holds logs of real runs: NAME/trainer_state.json, and labels.json with {NAME: {class: sick or
healthy, accept: the findings that name the cause, settings, source}}. Each bound in CHOICES is set
again without the logs of one source, and those logs are judged with it. Beside it run rldoctor (if
it is installed) and the checks of post-training-toolkit as its files describe them.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))  # this project's own package, installed or not

from grpo_workbook.diagnosis import (  # noqa: E402
    HealthCallback,
    diagnose,
    read_run,
    roles_of,
    watch,
)
from grpo_workbook.diagnosis.findings import ALARMS, bounds  # noqa: E402
from grpo_workbook.diagnosis.runlog import RunLog  # noqa: E402
from grpo_workbook.files import readable  # noqa: E402
from grpo_workbook.rewards import correctness_reward as right  # noqa: E402
from grpo_workbook.rewards import parse_rewards, reward, text_of  # noqa: E402
from grpo_workbook.rewards.answers import is_correct, lenient_answer  # noqa: E402

LOGS = REPO / "tests" / "diagnosis_logs"
DROPPED = ("epoch", "num_tokens", "total_flos", "train_", "clip_ratio/")
DROPPED += ("completions/min", "completions/max")
STEPS = 30
SETTINGS = (
    "num_generations per_device_train_batch_size max_completion_length temperature beta "
    "learning_rate loss_type scale_rewards max_steps"
).split()


@dataclass(frozen=True)
class Case:
    """One way to make a run sick, or healthy (expected: None); `settings` are GRPOConfig's."""

    expected: str | None
    why: str
    settings: dict = field(default_factory=dict)
    model: str = str(REPO / "data" / "tiny-form")
    rewards: Callable | None = None  # () -> (functions, weights)
    dataset: Callable | None = None  # dataset -> dataset
    prepare: Callable | None = None  # (model, tokenizer) -> None, before the trainer is made
    optimizer: Callable | None = None  # model -> optimizer
    callbacks: Callable | None = None  # (model) -> list of callbacks
    acts: Callable | None = None  # () -> rows and arguments of GRPOTrainer for a model that acts
    turns: int = 5  # max_tool_calling_iterations
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


# ---- models that act: a calculator, a price list, a game


def _acts(rows=None, tools=None, environment=None):
    from grpo_workbook.config import DATA
    from grpo_workbook.environments import multiply

    if rows is None:
        tasks = DATA / "tool_tasks" / "products_train.jsonl"
        lines = tasks.read_text(encoding="utf-8").splitlines()
        rows = list(map(json.loads, lines))
    rows = [r | {"prompt": [{"role": "user", "content": r["question"]}]} for r in rows]
    if environment:  # it pays the reward
        return rows, {"environment_factory": environment}
    return rows, {"tools": tools or [multiply]}


def _server_down(a: int, b: int) -> int:
    """Multiply two whole numbers.

    Args:
        a: The first number.
        b: The second number.

    Returns:
        The product.
    """
    raise ConnectionError("the server is down")


_server_down.__name__ = "multiply"


def _sometimes_down():
    from grpo_workbook.environments import multiply, tool

    @tool
    def half(a: int, b: int) -> int:
        if a % 2:
            raise ConnectionError("the server is down")
        return a * b

    half.__name__, half.__doc__ = "multiply", multiply.__doc__
    return _acts(tools=[half])


def _game(**changes):
    from grpo_workbook.environments import GuessNumber

    asked = "Find my number from 1 to 7. You have 3 guesses."
    rows = [{"question": asked, "seed": i} for i in range(2000)]
    return _acts(rows, environment=type("Game", (GuessNumber,), changes))


def _endless_game():
    """Ten guesses, and none is ever correct: the secret lies between two numbers."""

    def start(self, rng, row):
        self._secret, self._found = rng.randint(1, 6) + 0.5, False

    rows, how = _game(max_turns=10, get_reward=None, _start=start)
    game = how["environment_factory"]()
    for row in rows:
        game.reset(**row)
        row["answer"] = str(int(game._secret))
    return rows, how


def _pays_calls():
    @reward(role="other")
    def effort_reward(completions, **columns):
        return [sum(len(m.get("tool_calls") or ()) for m in talk) / 4 for talk in completions]

    return [*_answer()[0], effort_reward], [1.0, 1.0]


def _own():
    return [], []  # the environment pays


def _answer(price=0.0):
    from grpo_workbook.environments import get_tool_answer_reward

    return [get_tool_answer_reward(price)], [1.0]


ACTING = {"max_steps": 12, "per_device_train_batch_size": 32, "max_completion_length": 128}
GAME = ACTING | {"max_steps": 24, "max_completion_length": 220}

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
    "dear_calls": Case(
        "calls_die", "a call costs 1.5", ACTING, rewards=partial(_answer, 1.5), acts=_acts
    ),
    "failing_tool": Case(
        "calls_fail",
        "the tool always raises",
        ACTING,
        rewards=_answer,
        acts=partial(_acts, tools=[_server_down]),
    ),
    "broken_tool": Case(
        "tool_down",
        "@tool raises for half of the numbers",
        ACTING,
        rewards=_answer,
        acts=_sometimes_down,
    ),
    "narrow_tools": Case(
        "results_lost",
        "a call, its result and the answer in 30 tokens",
        {**ACTING, "max_completion_length": 30},
        rewards=_answer,
        acts=_acts,
    ),
    "two_guesses": Case(
        "turns_used_up",
        "two guesses in the game of three",
        GAME,
        rewards=_own,
        acts=partial(_game, max_turns=2),
    ),
    "paid_calls": Case(
        "calls_explode",
        "a guess earns a quarter of a right answer, and eight are allowed",
        GAME | {"max_completion_length": 400},
        rewards=_pays_calls,
        acts=_endless_game,
        turns=8,
    ),
    "healthy_tools": Case(
        None, "a calculator", ACTING | {"max_steps": 20}, rewards=_answer, acts=_acts
    ),
    "healthy_priced": Case(
        None,
        "a call costs half of a right answer",
        ACTING | {"max_steps": 20},
        rewards=partial(_answer, 0.5),
        acts=_acts,
    ),
    "healthy_game": Case(None, "the game of three guesses", GAME, rewards=_own, acts=_game),
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
    from datasets import Dataset

    from grpo_workbook import Float32Adapters, HeldoutProbe, choose_profile, load_policy, quiet
    from grpo_workbook.data import WORD_PROBLEMS, load_problems, to_dataset
    from grpo_workbook.environments import TINY_TOOLS
    from grpo_workbook.notebook import use_one_thread

    quiet()
    use_one_thread()
    case = CASES[name]
    profile = choose_profile(
        "smoke",
        model=str(TINY_TOOLS) if case.acts else case.model,
        seed=seed,
        grpo={
            "max_steps": STEPS,
            # As the logs were recorded.
            "learning_rate": 1e-3,
            "per_device_train_batch_size": 64,
            "save_strategy": "no",
            **case.settings,
        },
    )
    model, tokenizer = load_policy(profile)  # before TRL: it loads Unsloth
    from transformers import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    functions, weights = (case.rewards or _default)()
    config = {**profile.grpo, "reward_weights": weights or None}
    dataset = to_dataset(load_problems(WORD_PROBLEMS["train"]))
    if case.dataset:
        dataset = case.dataset(dataset)
    acts = {}
    if case.acts:
        rows, acts = case.acts()
        dataset = Dataset.from_list(rows)
        config["max_tool_calling_iterations"] = case.turns
    if case.prepare:
        case.prepare(model, tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model,
            functions,
            GRPOConfig(output_dir=folder, **config),
            dataset,
            processing_class=tokenizer,
            callbacks=[Float32Adapters(model)],
            **acts,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.reward_funcs = watched = watch(trainer.reward_funcs)  # an environment's, too
        if case.optimizer:
            trainer.optimizer = case.optimizer(model)
        if not case.acts:
            heldout = to_dataset(load_problems(WORD_PROBLEMS["heldout"]).select(range(64)))
            length = config["max_completion_length"]
            probe = HeldoutProbe(
                model, tokenizer, heldout, every=10, problems=64, max_new_tokens=length
            )
            trainer.add_callback(probe)
        trainer.add_callback(HealthCallback(watched, say=lambda text: None))
        for callback in case.callbacks(model) if case.callbacks else []:
            trainer.add_callback(callback)
        history = train_to_the_end(trainer)
    names = [function.__name__ for function in functions]
    settings = {setting: config[setting] for setting in SETTINGS}
    if case.acts:
        settings["max_tool_calling_iterations"] = case.turns
    settings["model"] = readable(profile.model)
    settings["reward_weights"] = dict(zip(names, weights, strict=True))
    settings["reward_roles"] = roles_of(functions)
    record = {
        "run": f"benchmarks/diagnosis.py --only {name}_{seed}",
        "case": name,
        "seed": seed,
        "why": case.why,
        "settings": settings,
        "log": columns(history),
    }
    text = json.dumps(record).replace("], ", "],\n")
    out.parent.mkdir(parents=True, exist_ok=True)
    new = out.with_suffix(".new")
    new.write_text(text + "\n", encoding="utf-8")
    os.replace(new, out)


def train_to_the_end(trainer) -> list[dict]:
    """The log of the training, with an entry about the exception that ended it, if one did."""
    try:
        trainer.train()
    except Exception as error:
        end = {
            "step": trainer.state.global_step + 1,
            "error": f"{type(error).__name__}: {str(error)[:200]}",
            "where": "; ".join(getattr(error, "__notes__", [])),
        }
        return [*trainer.state.log_history, end]
    return trainer.state.log_history


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
    alarms = [f"{f.name} at {s}" for s, f in enumerate(firsts, 1) if f.severity in ALARMS]
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


# ---- logs of other people's runs

# bound -> the values to choose from, the middle one first in doubt
CHOICES = {
    "sure": (2.0, 2.5, 3.0, 3.5, 4.0),
    "fall": (3.0, 3.5, 4.0, 5.0, 6.0),
    "lost": (0.1, 0.2, 0.3, 0.4, 0.5),
    "zero_variance": (0.7, 0.8, 0.85, 0.9, 0.95),
    "far": (0.5, 1.0, 1.7, 2.5, 4.0),
    "rarely_right": (0.05, 0.1, 0.15, 0.2, 0.3),
}
# what their alarms are called here: one match among all of their alarms counts as named
RLDOCTOR = {
    "advantage_collapse": {"no_gradient", "reward_constant", "collapsed"},
    "entropy_collapse": {"collapsed"},
    "reward_hacking": {"hacked"},
    "length_pathology": {"truncated", "never_ends"},
    "clip_saturation": {"rate_too_high"},
    "kl_drift": {"kl_too_high"},
    "gradient_pathology": {"rate_too_high", "nan"},
    "reward_composition": {"drowned", "wrong_answers", "hacked"},
    "plateau": {"reward_flat", "rate_too_low"},
}


@dataclass(frozen=True)
class Real:
    """A log of somebody else's run, as its label describes it."""

    name: str
    run: RunLog
    sick: bool
    accept: tuple[str, ...]
    source: str

    def right(self, names: set[str]) -> bool:
        """A flat reward counts as the cause only where the label has it first."""
        return bool(names & (set(self.accept[1:]) - {"reward_flat"} | {self.accept[0]}))


def real_runs(folder: Path) -> list[Real]:
    """The sick and healthy runs of a folder with labels.json; unclear and short ones are left."""
    found = []
    for name, label in json.loads((folder / "labels.json").read_text(encoding="utf-8")).items():
        if label["class"] in ("sick", "healthy"):
            state = json.loads((folder / name / "trainer_state.json").read_text(encoding="utf-8"))
            told = {"log_history": state["log_history"], "settings": label["settings"]}
            about = label["class"] == "sick", tuple(label["accept"]), label["source"]
            found.append(Real(name, read_run(told), *about))
    return found


def alarms(found) -> list[str]:
    """The names of the severe findings and warnings, in order."""
    return [f.name for f in found if f.severity in ALARMS]


def live_alarms(real: Real, every: int = 5) -> list[str]:
    """What HealthCallback would have reported while the run went on, with the steps."""
    health, last = HealthCallback(every=every), 0
    planned = {"max_steps": real.run.settings.get("max_steps") or math.inf}
    known, said = replace(real.run, settings=real.run.settings | planned), []
    for step in real.run.table.index:
        if step - last >= every:
            last = step
            said += [f"{f.name} at {step}" for f in health.look(upto(known, step))]
    return said


def score(reals: list[Real], first: Callable[[Real], str | None]) -> tuple[int, int]:
    """(sick runs named by their first alarm, healthy runs with an alarm)."""
    named = sum(r.right({first(r)}) for r in reals if r.sick)
    return named, sum(first(r) is not None for r in reals if not r.sick)


def first_alarm(real: Real, chosen: dict, seen: dict) -> str | None:
    """The first alarm with these bounds; `seen` keeps what was asked before."""
    if (key := (real.name, *chosen.values())) not in seen:
        shipped = vars(bounds).copy()
        vars(bounds).update(chosen)
        seen[key] = next(iter(alarms(diagnose(real.run))), None)
        vars(bounds).update(shipped)
    return seen[key]


def set_bounds(reals: list[Real], seen: dict) -> dict:
    """One bound after the other: the middle one of those with the best score on these logs."""
    chosen = {name: values[2] for name, values in CHOICES.items()}
    for name, values in CHOICES.items():
        worth = []
        for value in values:
            first = partial(first_alarm, chosen=chosen | {name: value}, seen=seen)
            named, accused = score(reals, first)
            worth.append(named - 3 * accused)
        best = [v for v, w in zip(values, worth, strict=True) if w == max(worth)]
        chosen[name] = best[len(best) // 2]
    return chosen


def left_out(reals: list[Real], source: Callable[[Real], str]) -> tuple[int, int]:
    """The score when each source is judged with bounds that were set without it."""
    seen, scores = {}, []
    for out in sorted({source(r) for r in reals}):
        chosen = set_bounds([r for r in reals if source(r) != out], seen)
        print(f"  without {out[:50]}: {chosen}")
        of_it = [r for r in reals if source(r) == out]
        scores.append(score(of_it, partial(first_alarm, chosen=chosen, seen=seen)))
    return sum(named for named, _ in scores), sum(accused for _, accused in scores)


def toolkit(run: RunLog) -> set[str]:
    """post-training-toolkit's YAML checks for GRPO, on means of the last 20 rows."""
    table, rows = run.table, len(run.table)
    last = {name: values.dropna().tail(20).mean() for name, values in table.items()}
    found = set()
    if rows >= 30 and last.get("kl", 0) > 0.3:
        found.add("kl_too_high")
    if rows >= 30 and last.get("completions/clipped_ratio", 0) > 0.3:
        found |= {"truncated", "never_ends"}
    if rows >= 40 and last.get("reward_std", 1) < 0.01:
        found |= {"no_gradient", "reward_constant", "collapsed"}
    if rows >= 50 and "reward_std" in table:
        spread = table["reward_std"].dropna()
        if spread.iloc[-1] > 2.5 * spread.tail(20).mean() > 0:
            found.add("rate_too_high")
    return found


def rldoctor(run: RunLog) -> set[str]:
    """What rldoctor's warnings and critical findings are called here."""
    import rl_doctor

    rows = [{"step": step, **row.dropna()} for step, row in run.table.iterrows()]
    told = rl_doctor.diagnose(rl_doctor.run_from_records(rows)).findings
    said = [f.detector for f in told if f.severity.name in ("WARNING", "CRITICAL")]
    return set().union(*(RLDOCTOR[name] for name in said))


def real_report(folder: Path) -> bool:
    """Print what is named in real logs, in sample and left out, live, and beside rivals."""
    reals = real_runs(folder)
    sick, healthy = [r for r in reals if r.sick], [r for r in reals if not r.sick]
    for real in reals:
        found = alarms(diagnose(real.run))
        live = [] if real.sick else live_alarms(real)
        wrong = not real.right({*found[:1]}) if real.sick else bool(found or live)
        print(f"{real.name:30} {', '.join(found) or 'healthy'}{'; live ' if live else ''}"
              f"{', '.join(live)}{'   <-- wrong' if wrong else ''}")  # fmt: skip
    lives = sum(bool(live_alarms(r)) for r in healthy)
    ways = {"this": lambda run: set(alarms(diagnose(run))[:1]), "toolkit": toolkit}
    try:
        import rl_doctor  # noqa: F401

        ways["rldoctor"] = rldoctor
    except ImportError:
        print("rldoctor is not installed: pip install -r requirements/compare.txt")
    print(f"\n{'checked by':12} named of {len(sick)}  accused of {len(healthy)}  seconds for all")
    scores = {}
    for name, way in ways.items():
        began = time.perf_counter()
        said = {real.name: way(real.run) for real in reals}
        took = time.perf_counter() - began
        named = sum(r.right(said[r.name]) for r in sick)
        scores[name] = named, sum(bool(said[r.name]) for r in healthy)
        print(f"{name:12} {named:11} {scores[name][1]:14} {took:16.2f}")
    print(f"\nHealthCallback accused {lives} of {len(healthy)} healthy runs while they went on")
    for title, source in (
        ("repository", lambda r: r.source.split()[0]),
        ("file", lambda r: r.source.split(" @")[0]),
    ):
        named, accused = left_out(reals, source)
        print(f"bounds set without the {title} of the log: {named} named, {accused} accused")
    named, accused = scores["this"]
    return named >= 0.9 * len(sick) and not accused and lives <= len(healthy) // 7


def _means(table, chance, of: int):
    """The table as a larger logging_steps would have left it, if 20 rows or more are left."""
    means = table.groupby(-(-np.arange(1, len(table) + 1) // of)).mean()
    ends = table.index[of - 1 :: of].union(table.index[-1:])
    return means.set_axis(ends) if len(means) >= 20 else None


def _some(table, chance, fraction: float):
    """The names of this fraction of the metrics, but never of the total reward or the step."""
    names = [c for c in table if c not in ("reward", "step")]
    return list(chance.choice(names, round(fraction * len(names)), replace=False))


def _scaled(table, chance):
    factor = math.exp(chance.uniform(math.log(0.2), math.log(5)))
    paid = [c for c in table if c.startswith("reward") and c != "rewards/invalid_fraction"]
    return table.assign(**{c: factor * table[c] for c in paid})


def _shifted(table, chance):
    # each function from 0.5 to 2 higher or lower, and the total with them
    paid = [c for c in table if re.fullmatch("rewards/.*/mean", c)]
    by = chance.uniform(0.5, 2) * chance.choice([-1, 1])
    moved = {c: table[c] + by for c in paid}
    return table.assign(**moved, reward=table["reward"] + by * max(1, len(paid)))


# what happens to a log on its way to the reader: (table, random generator) -> table
PERTURBED: dict[str, Callable] = {
    "a fifth of the rows dropped": lambda t, chance: t[chance.random(len(t)) > 0.2],
    "cut after 80 to 99 %": lambda t, chance: t.head(round(len(t) * chance.uniform(0.8, 0.99))),
    "noise, a tenth of the deviation": lambda t, chance: (
        t + chance.normal(size=t.shape) * 0.1 * t.std().to_numpy()
    ),
    "means of 5 rows": partial(_means, of=5),
    "a fifth of the metrics missing": lambda t, chance: t.drop(columns=_some(t, chance, 0.2)),
    "rewards times 0.2 to 5": _scaled,
    "0.5 to 2 added to each reward": _shifted,
    "means of 2 rows": partial(_means, of=2),
    "means of 10 rows": partial(_means, of=10),
}


def perturb_report(folder: Path, times: int) -> None:
    """Print what is named and who is accused in real logs after random changes, by kind."""
    reals, total = real_runs(folder), np.zeros(4, int)
    print(f"{'change':32} {'named':>12} {'accused':>12}")
    for number, (way, change) in enumerate(PERTURBED.items()):
        counts = np.zeros(4, int)  # named, sick, accused, healthy
        for real in reals:
            for seed in range(1 if way.startswith("means") else times):  # it has no chance
                chance = np.random.default_rng([number, seed, *real.name.encode()])
                if (table := change(real.run.table, chance)) is None:
                    continue
                first = next(iter(alarms(diagnose(replace(real.run, table=table)))), None)
                if real.sick:
                    counts += real.right({first}), 1, 0, 0
                else:
                    counts += 0, 0, first is not None, 1
        total += counts
        print(f"{way:32} {counts[0]:5} of {counts[1]:3} {counts[2]:5} of {counts[3]:3}")
    named, sick, accused, healthy = total
    print(f"all {sick + healthy}: {named / sick:.1%} named, {accused / healthy:.1%} accused")


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
    parser.add_argument("--real", metavar="FOLDER", type=Path, help="judge real logs with labels")
    parser.add_argument(
        "--perturb", metavar="TIMES", type=int, help="change each real log so often, at random"
    )
    parser.add_argument("--train", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train:
        train(args.train[0], int(args.train[1]), args.logs / f"{'_'.join(args.train)}.json")
        return 0
    if args.real and args.perturb:
        perturb_report(args.real, args.perturb)
        return 0
    if args.real:
        return 0 if real_report(args.real) else 1
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
