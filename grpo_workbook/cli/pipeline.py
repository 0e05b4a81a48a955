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

import os
import time
from contextlib import ExitStack, nullcontext
from pathlib import Path

from grpo_workbook.card_sections import data_name
from grpo_workbook.cards import write_card
from grpo_workbook.cli.folder import check_folder, check_room, identity_of, own_folder
from grpo_workbook.cli.run_data import answers_for, load_rows
from grpo_workbook.cli.run_measures import (
    baseline,
    mean_reward,
    measure,
    merge_proved,
    trained_whole,
)
from grpo_workbook.cli.run_report import draw, from_log, peak_rss_mb, verdict, versions
from grpo_workbook.config import RunConfig, batch_arguments, grpo_config
from grpo_workbook.data import (
    SYSTEM_PROMPT,
    drop_long_prompts,
    needs_folding,
    sha256_of,
    to_dataset,
)
from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import write_json
from grpo_workbook.processes import ALONE, Processes
from grpo_workbook.reward_files import file_hashes, own, try_rewards
from grpo_workbook.rubric import parse_rewards


class Interrupted(KeyboardInterrupt):
    """Training was stopped by Ctrl-C; a checkpoint and the adapter are saved."""


def main_run(
    run: RunConfig,
    *,
    data: Path | str | None = None,
    heldout_data: Path | str | None = None,
    reading: dict | None = None,
    backend: str = "unsloth",
    overwrite: bool = False,
    resume: bool = False,
    system_prompt: str = SYSTEM_PROMPT,
    overrides: dict | None = None,
    processes: Processes = ALONE,
    say=print,
) -> dict | None:
    """Load, measure, train, measure, save, merge, prove; returns the report that it wrote to report.json.

    `reading` holds options of problems.load: question_column, answer_column, skip_invalid. `overrides` are fields of
    GRPOConfig that win over the run's. `processes` are connected (processes.start): all train and measure, the main
    one alone writes, says and merges, and the others get None. No other run can write to the folder meanwhile.
    Everything that can be wrong with the input is found before the first file is written (WorkbookError); a Ctrl-C in
    training ends in Interrupted, with all saved. `say` prints.
    """
    started = time.monotonic()
    overrides = overrides or {}
    functions, weights = parse_rewards(run.rewards)
    answers = answers_for(functions, data or heldout_data)
    train_rows, heldout_rows, leaked = processes.first(
        lambda: load_rows(run, data, heldout_data, reading, answers)
    )
    identity = identity_of(
        run,
        backend,
        sha256_of(train_rows, heldout_rows),
        system_prompt=system_prompt,
        overrides=overrides,
        processes=processes.count,
        reward_weights={f.__name__: w for f, w in zip(functions, weights, strict=True)},
        reward_files=file_hashes(functions),
    )
    check_backend(run, backend, processes)
    processes.once(lambda: check_room(run))
    processes.once(lambda: check_folder(run.output, identity, overwrite=overwrite, resume=resume))
    batch_arguments(run.settings, processes.count)
    try_own_rewards(functions, train_rows, system_prompt)
    say(str(run))
    if processes.count > 1:
        say(
            f"{processes.count} processes share the {run.batch_size} completions of a step"
        )

    downloads = not Path(run.model).is_dir()
    if not downloads:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # everything is on this disk: ask no one
    from grpo_workbook.notebook import quiet
    from grpo_workbook.training import count_4bit_layers, count_trained_parameters, load_policy

    say("\nLoading the model")
    quiet()
    model, tokenizer = (
        processes.first(lambda: load_policy(run, backend))
        if downloads
        else load_policy(run, backend)
    )
    limit = run.max_prompt_length
    fold = needs_folding(tokenizer)
    train_set, heldout_set = (
        to_dataset(rows, system_prompt, fold=fold) for rows in (train_rows, heldout_rows)
    )
    train_set, dropped_train = drop_long_prompts(train_set, tokenizer, limit, "the training data")
    heldout_set, dropped_heldout = drop_long_prompts(
        heldout_set, tokenizer, limit, "the held-out data"
    )
    if len(train_set) < run.prompts_per_step:
        raise WorkbookError(
            f"{len(train_set)} training problems are left and one step needs {run.prompts_per_step}: "
            "give more, or lower --batch-size"
        )
    grpo_config(
        run, weights, overrides, processes.count
    )  # what TRL does not take is said before anything is written

    report = {
        "profile": run.profile,
        "device": run.device,
        "model": run.model_name,
        "family": run.family,
        "backend": backend,
        "load_in_4bit": run.load_in_4bit,
        "linear4bit_layers": count_4bit_layers(model),
        "lora_parameters": count_trained_parameters(model),
        "steps": run.max_steps,
        "reward_weights": identity["reward_weights"],
        "seed": run.seed,
        "processes": processes.count,
        "overrides": overrides,
        "versions": versions(),
        "data_sha256": identity["data_sha256"],
        "data": {
            "train": len(train_set),
            "heldout": len(heldout_set),
            "dropped_too_long_train": dropped_train,
            "dropped_too_long_heldout": dropped_heldout,
            "dropped_leaked": leaked,
            "max_prompt_length": limit,
            "source": data_name(data),
        },
    }
    if dropped_train or dropped_heldout:
        say(
            f"Dropped {dropped_train} training and {dropped_heldout} held-out problems: their prompts are longer than "
            f"{limit} tokens"
        )

    with ExitStack() as held:
        claim = own_folder(run.output, identity, overwrite=overwrite, resume=resume)
        processes.once(lambda: held.enter_context(claim))
        before = baseline(run, model, tokenizer, heldout_set, answers, processes, say)
        log, seconds, report["resumed_from_step"] = train_once(
            run,
            model,
            tokenizer,
            train_set,
            (functions, weights),
            resume,
            say,
            overrides=overrides,
            processes=processes,
        )
        report["train_seconds"] = round(seconds, 1)
        if processes.sharded:  # no process holds the trained weights whole any more
            model = trained_whole(run)
        after = measure(run, model, tokenizer, heldout_set, answers, "measuring after", processes)
        if not processes.main:
            return None
        asked = {
            "kind": answers,
            **{name: list(heldout_set[name]) for name in ("question", "answer")},
        }
        write_json(
            run.output / "after.json",
            {"sampled": after[0].completions, "greedy": after[1].completions, **asked},
        )
        del model

        from grpo_workbook.evaluate import paired_p_value, summary

        report["heldout"] = {
            "n": len(heldout_set),
            "before": summary(*before),
            "after": summary(*after),
            "p_value": paired_p_value(before[0].strict, after[0].strict),
            "p_value_well_formed": paired_p_value(before[0].well_formed, after[0].well_formed),
            "rewards": {
                f.__name__: {
                    "before": mean_reward(f, tokenizer, heldout_set, before),
                    "after": mean_reward(f, tokenizer, heldout_set, after),
                }
                for f in functions
            },
        }
        report["merge"], examples = merge_proved(run, backend, heldout_set, answers, after[1], say)
        report["examples"] = [
            {"question": q, "answer": a, "before": b, "after": c}
            for q, a, b, c in zip(
                heldout_set["question"][:5],
                heldout_set["answer"][:5],
                before[1].completions[:5],
                examples,
                strict=False,
            )
        ]
        report.update(from_log(log, run))
        report["verdict"] = verdict(report["heldout"])
        draw(run, log, report)
        report["total_seconds"] = round(time.monotonic() - started, 1)
        report["peak_rss_mb"] = peak_rss_mb()
        for kind in ("adapter", "merged"):
            sources = {"data": data, "heldout_data": heldout_data}
            write_card(
                run.output / kind,
                report,
                identity["settings"],
                base=run.model,
                kind=kind,
                **sources,
            )
        write_json(run.output / "report.json", report)
        return report


def check_backend(run: RunConfig, backend: str, processes: Processes = ALONE) -> None:
    """Raise WorkbookError when there is no such backend, or this machine cannot train with it."""
    from grpo_workbook.training import BACKENDS, why_not_plain

    if backend not in BACKENDS:
        raise WorkbookError(f"unknown backend {backend!r}: choose one of {', '.join(BACKENDS)}")
    if processes.sharded and backend == "unsloth":
        raise WorkbookError(
            "FSDP and DeepSpeed divide the weights among the processes, which Unsloth does not do: add --backend "
            "plain, or launch with configs/data_parallel.yaml"
        )
    if backend == "plain" and (reason := why_not_plain(run)):
        raise WorkbookError(
            f"--backend plain cannot train here: {reason}. Use --backend unsloth, which mends it"
        )


def try_own_rewards(functions, rows, system_prompt: str = SYSTEM_PROMPT) -> None:
    """Raise WorkbookError when a reward function of the user's fails on the first two of these training rows."""
    if own(functions):
        try_rewards(
            functions, list(to_dataset(rows.select(range(min(2, len(rows)))), system_prompt))
        )


def train_once(
    run: RunConfig,
    model,
    tokenizer,
    dataset,
    rewards,
    resume: bool,
    say,
    callbacks=(),
    overrides: dict | None = None,
    processes: Processes = ALONE,
) -> tuple[list[dict], float, int]:
    """Train, save adapter and log; (log, seconds, step resumed from). Raises Interrupted after a Ctrl-C, all saved.

    `rewards` are functions and weights; `callbacks` are added to the trainer.
    """
    from grpo_workbook.diagnosis.health import HealthCallback, log_the_end
    from grpo_workbook.diagnosis.vitals import watch
    from grpo_workbook.export import save_adapter
    from grpo_workbook.resume import train
    from grpo_workbook.training import make_trainer

    functions, weights = rewards
    functions = watch(functions)
    trainer = make_trainer(run, model, tokenizer, dataset, functions, weights, overrides, processes)
    for callback in (*([HealthCallback(functions)] if processes.main else []), *callbacks):
        trainer.add_callback(callback)
    started = time.monotonic()
    with log_the_end(trainer, run.output / "log.json") if processes.main else nullcontext():
        trained = train(trainer, resume=resume, say=say)
    seconds = time.monotonic() - started
    log = trained.log
    whole = trainer.accelerator.get_state_dict(trainer.model_wrapped) if processes.sharded else None
    if processes.main:
        write_json(run.output / "log.json", log)
        save_adapter(model, tokenizer, run.output / "adapter", whole)
    processes.wait()
    if trained.interrupted:
        raise Interrupted(f"stopped after step {trainer.state.global_step} of {run.max_steps}")
    seconds += sum(
        entry["step_time"] for entry in log if entry["step"] <= trained.resumed_from_step
    )  # what was trained before counts too
    return log, seconds, trained.resumed_from_step
