"""The main run, from problems to a proven merged model, with everything written into one folder.

run.json          what this run is: --resume continues only the same run
before.json       the baseline's completions on the held-out problems
checkpoints/      what training saved on its way
log.json          TRL's metrics, step by step
adapter/          the LoRA adapter, with its model card
after.json        the same of the trained policy, with the problems
merged/           base and adapter in 16-bit, for plain Transformers, with its card
figures/          PNG and the same in words
report.json       every number, in one place
"""

import json
import os
import time
from dataclasses import asdict
from pathlib import Path

from grpo_workbook.card_sections import data_name
from grpo_workbook.cards import write_card
from grpo_workbook.data import drop_long_prompts, sha256_of, system_role, to_dataset
from grpo_workbook.folder import check_folder, check_room, claim_folder, write_json
from grpo_workbook.rubric import parse_rewards
from grpo_workbook.run import Run, WorkbookError
from grpo_workbook.run_data import answers_for, load_rows
from grpo_workbook.run_report import from_log, peak_rss_mb, verdict, versions


class Interrupted(KeyboardInterrupt):
    """Training was stopped by Ctrl-C; a checkpoint and the adapter are saved."""


def main_run(
    run: Run,
    *,
    data: Path | str | None = None,
    heldout_data: Path | str | None = None,
    reading: dict | None = None,
    backend: str = "unsloth",
    overwrite: bool = False,
    resume: bool = False,
    say=print,
) -> dict:
    """Load, measure, train, measure, save, merge, prove; returns the report that it wrote to report.json.

    `reading` holds options of problems.load: question_column, answer_column, skip_invalid. Everything that can be wrong
    with the input is found before the first file is written (WorkbookError).
    """
    started = time.monotonic()
    functions, weights = parse_rewards(run.settings.rewards)
    answers = answers_for(functions, data or heldout_data)
    train_rows, heldout_rows, leaked = load_rows(run, data, heldout_data, reading, answers)
    identity = {
        "profile": run.profile,
        "model": run.model_name,
        "seed": run.seed,
        "backend": backend,
        "settings": {k: v for k, v in asdict(run.settings).items() if k not in ("qwen", "gemma")},
        "data_sha256": sha256_of(train_rows, heldout_rows),
    }
    check_backend(run, backend)
    check_room(run)
    check_folder(run.output, identity, overwrite=overwrite, resume=resume)
    say(str(run))

    if Path(run.model).is_dir():
        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # everything is on this disk: ask no one
    from grpo_workbook.notebook import quiet
    from grpo_workbook.training import count_4bit_layers, count_trained_parameters, load_policy

    say("\nLoading the model")
    quiet()
    model, tokenizer = load_policy(run, backend)
    limit = run.settings.max_prompt_tokens
    fold = system_role(tokenizer) in ("refused", "ignored")
    train_set, heldout_set = (to_dataset(rows, fold=fold) for rows in (train_rows, heldout_rows))
    train_set, dropped_train = drop_long_prompts(train_set, tokenizer, limit, "the training data")
    heldout_set, dropped_heldout = drop_long_prompts(heldout_set, tokenizer, limit, "the held-out data")
    if len(train_set) < run.settings.prompts_per_step:
        raise WorkbookError(
            f"{len(train_set)} training problems are left and one step needs {run.settings.prompts_per_step}: "
            "give more, or lower --batch-size"
        )
    claim_folder(run.output, identity, resume=resume)
    report = {
        "profile": run.profile,
        "device": run.device,
        "model": run.model_name,
        "family": run.family,
        "backend": backend,
        "load_in_4bit": run.settings.load_in_4bit,
        "linear4bit_layers": count_4bit_layers(model),
        "lora_parameters": count_trained_parameters(model),
        "steps": run.settings.steps,
        "reward_weights": {f.__name__: w for f, w in zip(functions, weights, strict=True)},
        "seed": run.seed,
        "versions": versions(),
        "data_sha256": identity["data_sha256"],
        "data": {
            "train": len(train_set),
            "heldout": len(heldout_set),
            "dropped_too_long_train": dropped_train,
            "dropped_too_long_heldout": dropped_heldout,
            "dropped_leaked": leaked,
            "max_prompt_tokens": limit,
            "source": data_name(data),
        },
    }
    if dropped_train or dropped_heldout:
        say(
            f"Dropped {dropped_train} training and {dropped_heldout} held-out problems: their prompts are longer than "
            f"{limit} tokens"
        )

    before = _baseline(run, model, tokenizer, heldout_set, answers, say)
    log, seconds, report["resumed_from_step"] = train_once(
        run, model, tokenizer, train_set, (functions, weights), resume, say
    )
    report["train_seconds"] = round(seconds, 1)
    after = _measure(run, model, tokenizer, heldout_set, answers, "measuring after")
    asked = {"kind": answers, **{name: list(heldout_set[name]) for name in ("question", "answer")}}
    write_json(run.output / "after.json", {"sampled": after[0].completions, "greedy": after[1].completions, **asked})
    del model

    from grpo_workbook.evaluate import paired_p_value, summary

    report["heldout"] = {
        "n": len(heldout_set),
        "before": summary(*before),
        "after": summary(*after),
        "p_value": paired_p_value(before[0].strict, after[0].strict),
        "p_value_well_formed": paired_p_value(before[0].well_formed, after[0].well_formed),
    }
    report["merge"], examples = _merge(run, backend, heldout_set, answers, after[1], say)
    report["examples"] = [
        {"question": q, "answer": a, "before": b, "after": c}
        for q, a, b, c in zip(
            heldout_set["question"][:5], heldout_set["answer"][:5], before[1].completions[:5], examples, strict=False
        )
    ]
    report.update(from_log(log, run))
    report["verdict"] = verdict(report["heldout"])
    _draw(run, log, report)
    report["total_seconds"] = round(time.monotonic() - started, 1)
    report["peak_rss_mb"] = peak_rss_mb()
    for kind in ("adapter", "merged"):
        sources = {"data": data, "heldout_data": heldout_data}
        write_card(run.output / kind, report, identity["settings"], base=run.model, kind=kind, **sources)
    write_json(run.output / "report.json", report)
    return report


def check_backend(run: Run, backend: str) -> None:
    """Raise WorkbookError when there is no such backend, or this machine cannot train with it."""
    from grpo_workbook.training import BACKENDS, why_not_plain

    if backend not in BACKENDS:
        raise WorkbookError(f"unknown backend {backend!r}: choose one of {', '.join(BACKENDS)}")
    if backend == "plain" and (reason := why_not_plain(run)):
        raise WorkbookError(f"--backend plain cannot train here: {reason}. Use --backend unsloth, which mends it")


def _measure(run: Run, model, tokenizer, heldout, answers: str, label: str):
    """(sampled, greedy) scores on the held-out problems."""
    from grpo_workbook.evaluate import evaluate

    s = run.settings
    how = {"max_new_tokens": s.max_completion_tokens, "seed": run.seed, "batch_size": s.eval_batch, "answers": answers}
    return (
        evaluate(model, tokenizer, heldout, sample=True, progress=f"{label}, sampled", **how),
        evaluate(model, tokenizer, heldout, progress=f"{label}, greedy", **how),
    )


def _baseline(run: Run, model, tokenizer, heldout, answers: str, say):
    """Measured once, kept in before.json, so that a resumed run compares with where it began."""
    from grpo_workbook.evaluate import score

    path = run.output / "before.json"
    if path.is_file():
        kept = json.loads(path.read_text(encoding="utf-8"))
        say("The baseline was measured before the interruption")
        return tuple(score(kept[how], list(heldout["answer"]), answers) for how in ("sampled", "greedy"))
    sampled, greedy = _measure(run, model, tokenizer, heldout, answers, "measuring before")
    write_json(path, {"sampled": sampled.completions, "greedy": greedy.completions})
    say(f"Before training: {sum(sampled.strict)} of {sampled.n} held-out problems strictly right when sampled")
    return sampled, greedy


def train_once(
    run: Run, model, tokenizer, dataset, rewards, resume: bool, say, callbacks=()
) -> tuple[list[dict], float, int]:
    """Train, save adapter and log; (log, seconds, step resumed from). Raises Interrupted after a Ctrl-C, all saved.

    `rewards` are functions and weights; `callbacks` are added to the trainer.
    """
    from grpo_workbook.export import save_adapter
    from grpo_workbook.health import HealthCallback, log_the_end
    from grpo_workbook.resume import train
    from grpo_workbook.training import make_trainer
    from grpo_workbook.vitals import watch

    functions, weights = rewards
    functions = watch(functions)
    trainer = make_trainer(run, model, tokenizer, dataset, functions, weights)
    for callback in (HealthCallback(functions), *callbacks):
        trainer.add_callback(callback)
    started = time.monotonic()
    with log_the_end(trainer, run.output / "log.json"):
        trained = train(trainer, resume=resume, say=say)
    seconds = time.monotonic() - started
    log = trained.log
    write_json(run.output / "log.json", log)
    save_adapter(model, tokenizer, run.output / "adapter")
    if trained.interrupted:
        raise Interrupted(f"stopped after step {trainer.state.global_step} of {run.settings.steps}")
    seconds += sum(
        entry["step_time"] for entry in log if entry["step"] <= trained.resumed_from_step
    )  # what was trained before counts too
    return log, seconds, trained.resumed_from_step


def _merge(run: Run, backend: str, heldout, answers: str, after_greedy, say) -> tuple[dict, list[str]]:
    """The merge's proof, and the merged model's answers to the first held-out questions."""
    from grpo_workbook.evaluate import accuracy, evaluate
    from grpo_workbook.export import compare_logits, load_merged, merge

    say("Merging the adapter into 16-bit weights and proving it")
    ours, tokenizer = merge(run, run.output / "adapter", run.output / "merged", backend)
    merged, merged_tokenizer = load_merged(run.output / "merged", run.settings.dtype, run.device)
    s = run.settings
    # whole logits are kept for the comparison: a quarter of what generating holds
    proof = compare_logits(
        ours, merged, tokenizer, list(heldout["prompt"]), after_greedy.completions, max(1, s.eval_batch // 4)
    )
    scores = evaluate(
        merged,
        merged_tokenizer,
        heldout,
        max_new_tokens=s.max_completion_tokens,
        batch_size=s.eval_batch,
        answers=answers,
    )
    return {**proof, "merged_strict_greedy": accuracy(scores.strict)}, scores.completions[:5]


def _draw(run: Run, log: list[dict], report: dict) -> None:
    from grpo_workbook import figures

    figures.save(*figures.reward_curves(log), run.output / "figures" / "rewards.png")
    heldout = report["heldout"]
    figures.save(
        *figures.before_after(heldout["before"], heldout["after"], heldout["n"]),
        run.output / "figures" / "before_after.png",
    )
    from grpo_workbook.monitor import diagnose, read_run
    from grpo_workbook.panels import run_panels

    whole = read_run(run.output)
    figures.save(*run_panels(whole, diagnose(whole), "The run"), run.output / "figures" / "health.png")
