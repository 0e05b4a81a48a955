"""Train in stages, compare each with the one before, and choose problems by difficulty.

    form = Stage("format", steps=20, rewards="strict_format,incremental_format")
    correct = Stage("correct", steps=60, rewards="correctness:2", pass_rate=(0.1, 0.9))
    report = train_stages(run, model, tokenizer, dataset, heldout, (form, correct))

All train the same adapter and optimizer state. A stage has a folder stage-N-NAME: checkpoints/,
log.json, adapter/, the optimizer's moments at its end, the completions after it (after.json), and
report.json, written last: it marks a finished stage. stages.json has all reports.
"""

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from grpo_workbook.config import RunConfig, nearest
from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.evaluation import Scores, evaluate, score, summary
from grpo_workbook.export import save_adapter
from grpo_workbook.files import read_json, whole_file, write_json
from grpo_workbook.rewards import correctness_reward, parse_rewards
from grpo_workbook.rewards import reward as marked
from grpo_workbook.rewards.contract import checked, name_of
from grpo_workbook.statistics import changed, paired_p_value
from grpo_workbook.training import Callback, make_trainer

__all__ = """AdaptiveWeight Carry Curriculum Stage compare curriculum measure pass_rates planned
    read_stages show_stages train_stages""".split()

MOMENTS = "optimizer.safetensors"
AGAIN = "delete that stage's folder, and --resume trains it and the later ones again"


@dataclass(frozen=True)
class Stage:
    """One stage. None means the run's own value; invalid values raise WorkbookError.
    `rewards` is a spec (see `parse_rewards`), or pairs (function, weight); `keep` is a function
    that chooses rows. `pass_rate` (low, high) keeps the rows with a pass rate between the two at
    the start of the stage: the fraction of `samples` completions with a `success` reward (or its
    name) above 0.5, for `measured` rows (None: twice as many as the stage can use). `ordered`
    trains from easy to hard. With `beta` above 0 the KL penalty ties the policy to its `reference`:
    "start", the policy at the start of this stage, or "base", the model without adapter.
    """

    name: str
    steps: int
    rewards: "str | tuple | None" = None
    learning_rate: float | None = None
    beta: float | None = None
    reference: str = "start"
    keep: Callable[[dict], bool] | None = None
    pass_rate: tuple[float, float] | None = None
    success: "str | Callable" = "correctness"
    samples: int = 8
    measured: int | None = None
    ordered: bool = False

    def __post_init__(self):
        letters = isinstance(self.name, str) and re.fullmatch(r"[a-z0-9][a-z0-9_-]{,39}", self.name)
        kind, needed = isinstance(self.rewards, str | tuple | None), self.ordered or self.measured
        rate = (0, 1) if self.pass_rate is None else self.pass_rate
        pair = isinstance(rate, tuple) and len(rate) == 2 and 0 <= rate[0] < rate[1] <= 1
        for field, fine, wanted in (
            ("name", letters, "up to 40 small letters, digits, - and _, for a folder's name"),
            ("rewards", kind, "NAME:WEIGHT,... or pairs (function, weight)"),
            ("reference", self.reference in ("start", "base"), "start or base"),
            ("pass_rate", pair, "[low, high] with 0 <= low < high <= 1"),
            ("samples", self.samples > 1, "at least 2: the rate of one is always 0 or 1"),
            ("measured", self.measured is None or self.measured > 0, "at least 1"),
            ("pass_rate", self.pass_rate or not needed, "bounds: ordered and measured need them"),
        ):
            if not fine:
                value = getattr(self, field)
                raise WorkbookError(f"stage {self.name!r}: {field} is {value!r}: give {wanted}")

    @classmethod
    def from_dict(cls, given: Mapping) -> "Stage":
        """A stage from plain values, such as YAML's. Unknown names raise WorkbookError."""
        if not isinstance(given, Mapping):
            raise WorkbookError(f"a stage is {given!r}: give a mapping with name, steps and others")
        known = [f.name for f in fields(cls) if f.name != "keep"]  # a function
        for name in given:
            if name not in known:
                raise WorkbookError(f"a stage has no {name!r}: {nearest(name, known)}")
        if missing := [name for name in ("name", "steps") if name not in given]:
            raise WorkbookError(f"the stage {dict(given)} lacks {' and '.join(missing)}")
        values = dict(given)
        for name, value in given.items():
            if name in ("learning_rate", "beta") and re.fullmatch(r"[\d.]+e-?\d+", str(value)):
                values[name] = float(value)  # 1e-3 is a text in YAML 1.1
            if name == "pass_rate" and isinstance(value, list):
                values[name] = tuple(value)
        return cls(**values)

    def to_dict(self) -> dict:
        """This stage in plain values, with functions by name; equal for equal stages."""
        return json.loads(json.dumps(vars(self), default=name_of))


def read_stages(path: Path | str) -> tuple[Stage, ...]:
    """The stages of a YAML file, a list of mappings. Raises WorkbookError with the file's name."""
    try:
        given = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        if not isinstance(given, list) or not given:
            raise WorkbookError("give a list: one mapping with name and steps for each stage")
        return tuple(Stage.from_dict(stage) for stage in given)
    except (OSError, yaml.YAMLError, ValueError, TypeError) as error:
        what = "" if isinstance(error, WorkbookError) else "cannot be read as stages: "
        raise WorkbookError(f"{path}: {what}{first_line(error)}") from None


def train_plainly(run, model, tokenizer, rows, rewards, weights, callbacks) -> list[dict]:
    """Train one stage with TRL alone, from its first step; returns the log."""
    trainer = make_trainer(run, model, tokenizer, rows, rewards, weights, callbacks=callbacks)
    trainer.train()
    return trainer.state.log_history


def train_stages(  # noqa: PLR0913 - each is a part of the training
    run: RunConfig, model, tokenizer, dataset, heldout, stages, *, resume: bool = False,
    train: Callable = train_plainly, callbacks: Sequence = (), judge=None,
) -> dict:  # fmt: skip
    """Train the stages one after the other; returns what it writes to stages.json.
    The model answers the held-out problems (one sample each, the same seed) before, between and
    after the stages; a paired test compares each stage with the one before. `how`: `train`, which
    trains one stage and returns its log (default: `train_plainly`); `callbacks` for every trainer
    (with a HeldoutProbe, reports get a "curve": [step over all stages, rate of strictly right]);
    `judge` for answers that are not numbers, see `evaluation.score`. `resume` skips finished
    stages; `train` decides whether the next one continues within. Raises WorkbookError for stages
    that cannot be trained, before training starts.
    """
    from peft import load_peft_weights, set_peft_model_state_dict

    policy, reports, trained_here = (model, tokenizer), [], False
    before, steps, moments = None, 0, None
    for stage, own, functions, weights, success in planned(run, stages):
        path = own.output / "after.json"
        # if a stage is trained again, results of later stages are out of date
        report = read_report(own.output, stage) if resume and not trained_here else None
        if report:
            print(f"Stage {stage.name} is already finished")
            adapter = load_peft_weights(str(own.output / "adapter"), device="cpu")
            set_peft_model_state_dict(model, adapter)
            after = measure(own, *policy, heldout, path, kept=read_json(path, AGAIN), judge=judge)
        else:
            before = before or measure(run, *policy, heldout, judge=judge)
            print(f"Stage {stage.name}: {stage.steps} steps")
            if trained_here:
                shutil.rmtree(own.output, ignore_errors=True)
            trained_here, carry = True, Carry(stage, moments, own.output / MOMENTS, model)
            drop_reference(model)
            rows, report = choose_rows(stage, own, *policy, dataset, success)
            own.output.mkdir(parents=True, exist_ok=True)
            history = train(own, *policy, rows, functions, weights, [carry, *callbacks])
            drop_reference(model)
            log = [entry for entry in history if "reward" in entry]
            write_json(own.output / "log.json", log)
            save_adapter(*policy, own.output / "adapter")
            report["train_seconds"] = round(sum(e["step_time"] for e in log), 1)
            report["zero_variance"] = round(fmean(e["frac_reward_zero_std"] for e in log), 4)
            if probed := [e for e in history if "heldout/strict" in e]:
                report["curve"] = [[steps + e["step"], e["heldout/strict"]] for e in probed]
            after = measure(own, *policy, heldout, path, judge=judge)
            report |= {"stage": stage.to_dict(), "heldout": compare(before, after)}
            write_json(own.output / "report.json", report)
        reports.append(report)
        before, steps, moments = after, steps + stage.steps, own.output / MOMENTS
    write_json(run.output / "stages.json", whole := {"seed": run.seed, "stages": reports})
    return whole


def planned(run: RunConfig, stages: Sequence[Stage], parse: Callable = parse_rewards) -> list:
    """[(stage, its run, reward functions, their weights, the success reward), ...].
    `parse` turns a spec into functions and weights. WorkbookError for an impossible stage.
    """
    names, found = [stage.name for stage in stages], []
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise WorkbookError(f"two stages are called {', '.join(twice)}: give each its own name")
    for number, stage in enumerate(stages, 1):
        rewards, success = stage.rewards or run.rewards, stage.success
        own: dict = {"max_steps": stage.steps, "shuffle_dataset": not stage.ordered}
        changed_too = {"learning_rate": stage.learning_rate, "beta": stage.beta}
        own |= {name: value for name, value in changed_too.items() if value is not None}
        own["seed"] = (run.seed + 10_007 * number) % 2**32  # else all start with the same rows
        own["output"] = run.output / f"stage-{number}-{stage.name}"
        try:
            pairs = parse(rewards) if isinstance(rewards, str) else zip(*rewards, strict=True)
            success = parse(success)[0][0] if isinstance(success, str) else success
            found.append((stage, run.replace(**own), *map(list, pairs), success))
        except WorkbookError as error:
            raise WorkbookError(f"stage {stage.name!r}: {error}") from None
    return found


def choose_rows(stage: Stage, run: RunConfig, model, tokenizer, dataset, success) -> tuple:
    """(the rows that a stage trains on, facts about them). WorkbookError for too few."""
    rows, told, needed = dataset, {}, run.prompts_per_step * stage.steps
    if stage.keep is not None:
        rows = dataset.select([i for i, row in enumerate(dataset) if stage.keep(row)])
    if stage.pass_rate is not None and len(rows):
        most = min(len(rows), stage.measured or 2 * needed)
        rows = rows.shuffle(seed=run.seed).select(range(most))
        how = {"temperature": run.temperature, "seed": run.seed, "batch_size": run.eval_batch}
        how |= {"success": success, "max_new_tokens": run.max_completion_length}
        rates = pass_rates(model, tokenizer, rows, stage.samples, **how)
        found = curriculum(rates, *stage.pass_rate)
        print(f"  {found}")
        n = len(found.rows)
        used = min(needed, n) if stage.ordered else n  # from easy to hard within the stage's steps
        rows = rows.select([found.rows[i * n // used] for i in range(used)])
        told = {"measured": len(rates), "left_out": found.left_out, "pass_rates": rates}
    if len(rows) < (least := run.prompts_per_step):
        left = f"{len(rows)} rows left, but one step needs {least}: widen keep or pass_rate"
        raise WorkbookError(f"stage {stage.name!r} has {left}")
    return rows, {"rows": len(rows), **told}


def measure(
    run: RunConfig, model, tokenizer, heldout, path=None, *, ways=("sampled",), kept=None, **how
) -> list[Scores]:
    """The scores on the held-out problems, sampled or also greedy; the main process writes `path`.
    `kept` is the content of such a file: then nothing is generated. `how`: judge and seed.
    """
    from accelerate import PartialState

    asked = {name: list(heldout[name]) for name in ("question", "answer")}
    judge = how.setdefault("judge", None)
    if kept:
        if kept["answer"] != asked["answer"]:
            raise WorkbookError(f"{path} is not about these {len(heldout)} problems: {AGAIN}")
        return [score(kept[way], asked["answer"], judge, heldout["prompt"]) for way in ways]
    how |= {"max_new_tokens": run.max_completion_length, "batch_size": run.eval_batch}
    found = {}
    for way in ways:
        how |= {"sample": way == "sampled", "progress": f"held-out problems, {way}"}
        found[way] = evaluate(model, tokenizer, heldout, **how)
    if path and PartialState().is_main_process:
        texts = {way: scores.completions for way, scores in found.items()}
        write_json(path, {**texts, "kind": "text" if judge else "number", **asked})
    return [*found.values()]


def compare(before: Sequence[Scores], after: Sequence[Scores]) -> dict:
    """Two policies (each sampled, or sampled and greedy) on the same problems: rates; of the
    sampled answers how many got better and worse, with p-values.
    """
    a, b = before[0], after[0]
    report: dict = {"n": b.n, "before": summary(*before), "after": summary(*after)}
    report["better"], report["worse"] = map(len, changed(a.strict, b.strict))
    report["p_value"] = paired_p_value(a.strict, b.strict)
    return report | {"p_value_well_formed": paired_p_value(a.well_formed, b.well_formed)}


def read_report(folder: Path, stage: Stage) -> dict | None:
    """The report of a finished stage, or None; WorkbookError if it is of another stage."""
    if not (path := folder / "report.json").is_file():
        return None
    report, told = read_json(path, AGAIN), stage.to_dict()
    if other := ", ".join(name for name in told if report["stage"].get(name) != told[name]):
        raise WorkbookError(f"{folder} has another stage (different: {other}): choose another one")
    return report


def show_stages(report: dict) -> None:
    """Print one line for each stage: at most 80 columns."""
    print("stage            steps  rows    strict, held out  better  worse        p")
    for told in report["stages"]:
        stage, held = told["stage"], told["heldout"]
        change = " -> ".join(f"{held[when]['strict_sampled']:.1%}" for when in ("before", "after"))
        print(f"{stage['name'][:15]:16}{stage['steps']:6}{told['rows']:6}{change:>20}", end="")
        print(f"{held['better']:8}{held['worse']:7}{held['p_value']:9.1g}")


class Carry(Callback):
    """Hands the optimizer's moments from stage to stage, and sets the reference of the KL.
    TRL's trainer copies the adapter when it is built, as the reference. On a GPU Unsloth removes
    that code, and the base would be the reference: so the copy is made here.
    """

    def __init__(self, stage: Stage, moments: Path | None, save_to: Path, model):
        self.stage, self.moments, self.save_to = stage, moments, save_to
        adapter = [(name, p) for name, p in model.named_parameters() if ".default." in name]
        self.start = {name: p.detach().to("cpu", copy=True) for name, p in adapter}

    def on_train_begin(
        self, args, state, control, model: Any = None, optimizer: Any = None, **kwargs
    ):
        from safetensors.torch import load_file

        if self.stage.reference == "base":  # without a copy TRL turns the adapter off for it
            drop_reference(model)
        elif args.beta and "ref" not in model.peft_config:
            model.add_adapter("ref", model.peft_config["default"])  # not active, so frozen
            for name, value in self.start.items():
                model.get_parameter(name.replace(".default.", ".ref.")).data.copy_(value)
        if self.moments is not None and state.global_step == 0:  # else they come from a checkpoint
            moments: dict[int, dict] = {}  # {parameter's number: {name: tensor}}
            for name, value in load_file(self.moments).items():
                number, moment = name.split(".")
                moments.setdefault(int(number), {})[moment] = value
            optimizer.load_state_dict(optimizer.state_dict() | {"state": moments})

    def on_step_end(self, args, state, control, optimizer: Any = None, **kwargs):
        if state.global_step >= state.max_steps:  # before the last checkpoint, in case of a kill
            self.on_train_end(args, state, control, optimizer)

    def on_train_end(self, args, state, control, optimizer: Any = None, **kwargs):
        from safetensors.torch import save_file

        kept = optimizer.state_dict()["state"].items()
        flat = {f"{number}.{name}": v for number, of in kept for name, v in of.items()}
        with whole_file(self.save_to) as new:
            save_file({name: value.cpu().contiguous() for name, value in flat.items()}, new)


def drop_reference(model) -> None:
    """Remove the frozen copy of the adapter, so that the next stage copies the current policy."""
    if "ref" in model.peft_config:  # TRL's name for it
        model.delete_adapter("ref")


def pass_rates(
    model, tokenizer, dataset, n: int = 8, *, success: Callable = correctness_reward, **how
) -> list[float]:
    """For each row the fraction of `n` sampled completions with a `success` reward above 0.5.
    The Dataset has `prompt` and the columns that the reward reads. `how`: max_new_tokens,
    temperature, seed, batch_size and progress, as in `generate`. A reward of None (it does not
    apply) counts as not solved. Raises WorkbookError for no rows or n < 1.
    """
    if not len(dataset) or n < 1:
        raise WorkbookError(f"{len(dataset)} rows, {n} completions each: give at least 1 of both")
    how = {"sample": True, "progress": "pass rates"} | how
    scores = evaluate(model, tokenizer, dataset, samples=n, rewards=[success], **how)
    right = [(value or 0) > 0.5 for value in (scores.rewards or {})[name_of(success)]]
    return replace(scores, strict=right).each


@dataclass(frozen=True)
class Curriculum:
    """The rows to train on, and how many are left out for which reason."""

    rows: list[int]  # their indices, the easiest first
    left_out: dict[str, int]  # hopeless (never right), too hard, too easy, mastered (always right)

    def __str__(self) -> str:
        said = ", ".join(f"{n} {kind}" for kind, n in self.left_out.items() if n)
        return f"{len(self.rows)} rows can teach; left out: {said or 'none'}"


def curriculum(rates: Sequence[float], low: float = 0.0, high: float = 1.0) -> Curriculum:
    """The rows to train on: low < pass rate < high, the easiest first (equal ones in order).
    Low 0 and high 1 leave out only the rows that are never or always solved. Raises WorkbookError
    for invalid bounds, and if no row is left.
    """
    if not 0 <= low < high <= 1:
        raise WorkbookError(f"the bounds are {low!r} and {high!r}: give 0 <= low < high <= 1")
    kept = [i for i, rate in enumerate(rates) if low < rate < high]
    left_out = {
        "hopeless": sum(rate == 0 for rate in rates),
        "too hard": sum(0 < rate <= low for rate in rates),
        "too easy": sum(high <= rate < 1 for rate in rates),
        "mastered": sum(rate == 1 for rate in rates),
    }
    found = Curriculum(sorted(kept, key=lambda i: -rates[i]), left_out)
    if not kept:
        said = f"no row of {len(rates)} has a pass rate between {low:g} and {high:g} ({found})"
        raise WorkbookError(f"{said}: widen the bounds, or start with an easier stage")
    return found


class AdaptiveWeight:
    """A reward whose weight follows the success rate of another one: form can fade once mastered.
    A batch earns weight * reward, with weight = at_zero + (at_one - at_zero) * rate. After it,
    rate = memory * rate + (1 - memory) * (fraction of the batch with `success` over 0.5), starting
    from 0. Each process keeps the rate of its own batches.
    """

    def __init__(self, reward, success, *, at_zero=1.0, at_one=0.0, memory=0.9):
        if not (0 <= at_zero <= 1 and 0 <= at_one <= 1 and 0 <= memory < 1):
            raise WorkbookError(f"{at_zero=}, {at_one=}, {memory=}: give 0 to 1, memory below 1")
        self.at_zero, self.at_one, self.memory, self.rate = at_zero, at_one, memory, 0.0
        # Members may have a state of their own; the columns and the kind of answers are both's.
        self.__name__, self.members = f"adaptive_{name_of(reward)}", (reward, success)
        columns = dict.fromkeys(c for m in self.members for c in getattr(m, "columns", ()))
        answers = getattr(reward, "answers", None) or getattr(success, "answers", None)
        marked(getattr(reward, "role", None), tuple(columns), answers)(self)

    @property
    def weight(self) -> float:
        """The weight of the next batch."""
        return self.at_zero + (self.at_one - self.at_zero) * self.rate

    def __call__(self, completions, **columns) -> list[float | None]:
        if "log_metric" in columns:
            columns["log_metric"](f"rewards/{self.__name__}/weight", self.weight)
        values, success = [checked(m, completions, **columns) for m in self.members]
        paid = [None if v is None else self.weight * v for v in values]
        if given := [v > 0.5 for v in success if v is not None]:
            self.rate = self.memory * self.rate + (1 - self.memory) * fmean(given)
        return paid

    def state_dict(self) -> dict:
        """The state for a checkpoint."""
        return {"rate": self.rate}

    def load_state_dict(self, state: dict) -> None:
        """Continue from a `state_dict()`."""
        self.rate = float(state["rate"])
