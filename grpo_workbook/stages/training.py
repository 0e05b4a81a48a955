"""Train stage after stage: the same adapter, the optimizer's state carried on, each stage measured against the last.

before.json                    the policy's completions before the first stage
stage-1-format/                one folder for each stage: checkpoints/, log.json, adapter/ and
    optimizer.safetensors      AdamW's moments as the stage ended: the next one begins with them
    after.json                 the completions after it
    report.json                its numbers, written last: a stage that has one is finished
stages.json                    all reports

A resumed run skips the finished stages and goes on inside the one that was stopped.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_workbook.cli.pipeline import train_once
from grpo_workbook.cli.run_measures import kept_scores
from grpo_workbook.config import RunConfig
from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import read_json, write_json
from grpo_workbook.resume.states import stateful_rewards
from grpo_workbook.rubric import parse_rewards
from grpo_workbook.stages.carry import (
    AGAIN,
    MOMENTS,
    Carry,
    drop_reference,
    load_adapter,
    whole_stage,
)
from grpo_workbook.stages.difficulty import curriculum, pass_rates
from grpo_workbook.stages.stage import Stage, check_stages

if TYPE_CHECKING:
    from datasets import Dataset


def train_stages(
    run: RunConfig,
    model,
    tokenizer,
    dataset: "Dataset",
    heldout: "Dataset",
    *,
    stages: Sequence[Stage] | None = None,
    answers: str = "number",
    resume: bool = False,
    probe_every: int = 0,
    callbacks: Sequence = (),
    say=print,
) -> dict:
    """Train `stages` (default: the run's own) one after the other; returns what it writes to stages.json.

    Held-out problems are answered (one sample each, the same seed) before, between and after the stages; every stage is
    compared with the one before it by the paired test. `probe_every` steps they are answered while a stage trains, too:
    its report then has a "curve", [step counted over all stages, strict share] each. `callbacks` go to every trainer.

    Raises WorkbookError, before anything is trained, for stages that cannot be.
    """
    stages = check_stages(run.stages if stages is None else stages)
    rewards = [_rewards(run, stage) for stage in stages]
    runs = [stage_run(run, stage, i) for i, stage in enumerate(stages, 1)]
    before = _measure(run, model, tokenizer, heldout, answers, run.output / "before.json", resume)
    reports, steps, moments, trained_here = [], 0, None, False
    for stage, own, chosen in zip(stages, runs, rewards, strict=True):
        # after a stage that is trained again, what later ones have left began with something else
        done = read_report(own.output, stage) if resume and not trained_here else None
        if done:
            say(
                f"Stage {stage.name} had been finished: {done['heldout']['after']['strict']:.1%} strict"
            )
            with whole_stage(own.output):
                load_adapter(model, own.output / "adapter")
                for name, reward in stateful_rewards(chosen[0]):
                    reward.load_state_dict(done["rewards_state"][name])
            after = _measure(
                run, model, tokenizer, heldout, answers, own.output / "after.json", True
            )
        else:
            say(f"Stage {stage.name}: {stage.steps} steps")
            if trained_here and own.output.is_dir():
                shutil.rmtree(own.output)
            trained_here = True
            done, after = _train_stage(
                stage, own, model, tokenizer, (dataset, heldout), chosen, before, moments,
                answers=answers, resume=resume, probe_every=probe_every, callbacks=callbacks, steps=steps, say=say,
            )  # fmt: skip
        reports.append(done)
        before, steps, moments = after, steps + stage.steps, own.output / MOMENTS
    whole = {"seed": run.seed, "heldout_n": len(heldout), "stages": reports}
    write_json(run.output / "stages.json", whole)
    return whole


def stage_run(run: RunConfig, stage: Stage, number: int) -> RunConfig:
    """The run of one stage: its settings, its folder, its seed. With one seed all stages would draw the same rows."""
    own = {
        "learning_rate": stage.learning_rate,
        "beta": stage.beta,
        "rewards": stage.rewards if isinstance(stage.rewards, str) else None,
    }
    return run.replace(
        max_steps=stage.steps,
        shuffle_dataset=not stage.ordered,
        seed=(run.seed + 10_007 * number) % 2**32,
        output=run.output / f"stage-{number}-{stage.name}",
        **{name: value for name, value in own.items() if value is not None},
    )


def choose_rows(
    stage: Stage, run: RunConfig, model, tokenizer, dataset: "Dataset", say=print
) -> tuple["Dataset", dict]:
    """(the rows that this stage trains on, what is to be said of them). WorkbookError when they make no step."""
    rows = dataset
    if stage.keep is not None:
        rows = dataset.select([i for i, row in enumerate(dataset) if stage.keep(row)])
    told = {"rows": len(rows)}
    if stage.pass_rate is not None and len(rows):
        needed = run.prompts_per_step * stage.steps
        rows = rows.shuffle(seed=run.seed).select(
            range(min(len(rows), stage.measured or 2 * needed))
        )
        success = parse_rewards(stage.success)[0][0]
        s = run
        how = {
            "max_new_tokens": s.max_completion_length,
            "batch_size": s.eval_batch,
            "temperature": s.temperature,
        }
        rates = pass_rates(
            model, tokenizer, rows, stage.samples, success=success, seed=run.seed, **how
        )
        found = curriculum(rates, *stage.pass_rate)
        say(f"  {found}")
        places = found.rows
        if stage.ordered:  # the whole way from easy to hard within the steps that there are
            used = min(needed, len(places))
            places = [places[i * len(places) // used] for i in range(used)]
        rows = rows.select(places)
        told = {
            "rows": len(rows),
            "measured": len(rates),
            "left_out": _kinds(found),
            "pass_rates": rates,
        }
    if len(rows) < run.prompts_per_step:
        raise WorkbookError(
            f"stage {stage.name!r} has {len(rows)} rows left and one step needs {run.prompts_per_step}: "
            "widen keep or pass_rate"
        )
    return rows, told


def _kinds(found) -> dict:
    return {kind: getattr(found, kind) for kind in ("hopeless", "too_hard", "too_easy", "mastered")}


def _rewards(run: RunConfig, stage: Stage):
    if stage.rewards is None or isinstance(stage.rewards, str):
        try:
            parse_rewards(stage.success)
            return parse_rewards(stage.rewards or run.rewards)
        except WorkbookError as error:
            raise WorkbookError(f"stage {stage.name!r}: {error}") from None
    try:
        return tuple(
            map(
                list,
                zip(
                    *((function, float(weight)) for function, weight in stage.rewards), strict=True
                ),
            )
        )
    except (TypeError, ValueError):
        raise WorkbookError(
            f"stage {stage.name!r}: rewards are pairs (function, weight), or name:weight,..."
        ) from None


def _measure(run: RunConfig, model, tokenizer, heldout, answers: str, path: Path, kept: bool):
    """Sampled scores on the held-out problems; the completions are written to `path`, and read from it if `kept`."""
    from grpo_workbook.evaluate import evaluate

    if kept and path.is_file():
        return kept_scores(read_json(path, AGAIN), path, heldout, answers, AGAIN)
    s = run
    how = {
        "max_new_tokens": s.max_completion_length,
        "batch_size": s.eval_batch,
        "answers": answers,
    }
    scores = evaluate(model, tokenizer, heldout, sample=True, progress="held-out problems", **how)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, scores.completions)
    return scores


def _train_stage(
    stage, run, model, tokenizer, data, rewards, before, moments, *,
    answers, resume, probe_every, callbacks, steps, say,
):  # fmt: skip
    """(the report of one stage, the scores after it)."""
    from grpo_workbook.training import HeldoutProbe

    dataset, heldout = data
    drop_reference(model)
    rows, told = choose_rows(stage, run, model, tokenizer, dataset, say)
    run.output.mkdir(parents=True, exist_ok=True)
    added = [Carry(stage, moments, run.output / MOMENTS), *callbacks]
    if probe_every:
        length = run.max_completion_length
        probe = HeldoutProbe(
            model,
            tokenizer,
            heldout,
            max_new_tokens=length,
            every=probe_every,
            problems=len(heldout),
        )
        added.append(probe)
    log, seconds, resumed = train_once(run, model, tokenizer, rows, rewards, resume, say, added)
    drop_reference(model)
    after = _measure(run, model, tokenizer, heldout, answers, run.output / "after.json", False)
    report = {
        "stage": stage.to_dict(),
        **told,
        **compare(before, after),
        "train_seconds": round(seconds, 1),
    }
    report |= {"resumed_from_step": resumed, "learning_rate": run.learning_rate}
    report["rewards_state"] = {
        name: reward.state_dict() for name, reward in stateful_rewards(rewards[0])
    }
    tenth = max(1, len(log) // 10)
    report["reward"] = [
        round(sum(e["reward"] for e in part) / tenth, 4) for part in (log[:tenth], log[-tenth:])
    ]
    report["silent_groups"] = round(sum(e["frac_reward_zero_std"] for e in log) / len(log), 4)
    if probe_every:
        from grpo_workbook.evaluate import score

        answer = list(heldout["answer"])
        report["curve"] = [
            [steps + step, sum((s := score(texts, answer, answers)).strict) / s.n]
            for step, texts in probe.seen
        ]
    write_json(run.output / "report.json", report)
    return report, after


def compare(before, after) -> dict:
    """Two policies on the same problems: the shares of each, what changed, and whether it may be chance."""
    from grpo_workbook.intervals import accuracy, changed, paired_p_value, wilson_interval

    def shares(scores):
        told = {
            name: accuracy(getattr(scores, name)) for name in ("strict", "lenient", "well_formed")
        }
        return {**told, "ci95": list(wilson_interval(scores.strict))}

    better, worse = changed(before.strict, after.strict)
    return {
        "heldout": {"before": shares(before), "after": shares(after)},
        "better": len(better),
        "worse": len(worse),
        "p_value": paired_p_value(before.strict, after.strict),
        "p_value_well_formed": paired_p_value(before.well_formed, after.well_formed),
    }


def read_report(folder: Path, stage: Stage) -> dict | None:
    """The report of a finished stage, or None. WorkbookError when another stage was finished in its place."""
    path = folder / "report.json"
    if not path.is_file():
        return None
    report = read_json(path, AGAIN)
    with whole_stage(folder):
        report["stage"], report["heldout"]["after"]["strict"], report["rewards_state"]
    told = json.loads(json.dumps(stage.to_dict()))
    if different := [name for name in told if report["stage"].get(name) != told[name]]:
        raise WorkbookError(
            f"{folder} holds a stage that differs in {', '.join(different)}: give the same stages, or another --output"
        )
    return report


def show_stages(report: dict) -> None:
    """Print one line for each stage: at most 80 columns."""
    print(
        f"{'stage':16}{'steps':>6}{'rows':>6}{'strict, held out':>20}{'better':>8}{'worse':>7}{'p':>9}"
    )
    for told in report["stages"]:
        was, now = (told["heldout"][when]["strict"] for when in ("before", "after"))
        change = f"{was:.1%} -> {now:.1%}"
        stage = told["stage"]
        print(f"{stage['name'][:15]:16}{stage['steps']:6}{told['rows']:6}{change:>20}", end="")
        print(f"{told['better']:8}{told['worse']:7}{told['p_value']:9.1g}")
