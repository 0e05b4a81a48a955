"""`python -m grpo_workbook run`: from problems to a proven merged model, all in one folder.

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

import argparse
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from grpo_workbook.cli import options
from grpo_workbook.cli.folder import check_folder, check_room, identity_of, own_folder
from grpo_workbook.cli.report import draw, from_log, peak_rss_mb, show_report, verdict, versions
from grpo_workbook.cli.rewards import file_hashes, judge_for, parse_rewards
from grpo_workbook.cli.together import count, is_main, main_first, once, together
from grpo_workbook.config import RunConfig
from grpo_workbook.errors import WorkbookError
from grpo_workbook.evaluation import evaluate, score, summary
from grpo_workbook.export import merge, save_adapter, write_card
from grpo_workbook.files import read_json, readable, write_json
from grpo_workbook.models import load_model
from grpo_workbook.rewards import call, try_rewards
from grpo_workbook.statistics import paired_p_value
from grpo_workbook.training import (
    BACKENDS,
    count_4bit_layers,
    count_trained_parameters,
    load_policy,
    make_trainer,
    sharded,
    why_not_plain,
)  # fmt: skip

EXAMPLES = """examples:
  python -m grpo_workbook run                       the course's main run
  python -m grpo_workbook run --resume              after a Ctrl-C or a crash
  python -m grpo_workbook run --config my.yaml --max-steps 50
  python -m grpo_workbook run --data my.jsonl --rewards mine.py:shown:2
  torchrun --nproc_per_node 2 -m grpo_workbook run --config my.yaml

Names may have - or _, and take their value after a space or =. What is not
given is the profile's or TRL's. Exit status: 0 well, 1 another process was
lost, 2 bad input, 130 interrupted.
"""


class Interrupted(KeyboardInterrupt):
    """Training was stopped by Ctrl-C; a checkpoint and the adapter are saved."""


def add_parser(commands) -> None:
    """Add run to the command line; `main` reads what follows it."""
    commands.add_parser(
        "run",
        help="train with GRPO, measured before and after, merged and proved",
        usage="%(prog)s [--config FILE.yaml] [--NAME VALUE ...]",
        description=f"{options.listing()}\n\nand every field of TRL's GRPOConfig, such as "
        "--max_grad_norm 0.5:\nhttps://huggingface.co/docs/trl/grpo_trainer#trl.GRPOConfig",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def main(arguments: list[str]) -> int:
    """Exit status: 0 well, 130 interrupted. Raises WorkbookError for bad input."""
    from grpo_workbook.resume import last_checkpoint

    values, overrides = options.read(arguments)
    names = options.run_fields().keys() & values.keys()
    run = RunConfig.from_env(**{name: values.pop(name) for name in names})
    if (overrides.get("logging_steps") or 1) > run.max_steps:
        raise WorkbookError(
            f"logging_steps is {overrides['logging_steps']:g} and the run has {run.max_steps} "
            "steps: nothing would be logged, and the report is made from the log"
        )
    with together(run.device, lambda: last_checkpoint(run.output / "checkpoints")):
        try:
            report = main_run(run, overrides=overrides, **values)
        except Interrupted as stopped:
            if is_main():
                again = "The same command with --resume goes on from there"
                print(f"\nInterrupted: {stopped}. {again}.", file=sys.stderr)
            return 130
    if report:
        show_report(report, run.output)
    return 0


def main_run(
    run: RunConfig,
    *,
    backend: str = "unsloth",
    data: Path | str | None = None,
    heldout_data: Path | str | None = None,
    overwrite: bool = False,
    resume: bool = False,
    overrides: dict | None = None,
    **reading,
) -> dict | None:
    """Load, measure, train, measure, save, merge, prove; returns what it wrote to report.json.

    `overrides` are fields of GRPOConfig that win over the run's, `reading` options of
    `load_problems`. Connected processes (see together.py) all train and measure; the main one alone
    writes and merges, and the others get None. What can be wrong with the input is found before the
    first file is written (WorkbookError). A Ctrl-C in training ends in Interrupted, all saved.
    """
    from grpo_workbook.diagnosis import roles_of

    started, overrides = time.monotonic(), overrides or {}
    job = prepare(run, backend, data, heldout_data, reading)
    more = {"overrides": overrides, "processes": count(), "reward_weights": job.weights_by_name}
    more |= {"reward_files": job.reward_files, "reward_roles": roles_of(job.functions)}
    identity = identity_of(run, backend, job.data_sha256, **more)
    how = {"overwrite": overwrite, "resume": resume}
    once(lambda: check_room(run))
    once(lambda: check_folder(run.output, identity, **how))
    print(run)
    model, tokenizer = job.load()
    run.to_grpo_config(job.weights, overrides, count())  # what TRL does not take is said here
    report = job.facts(model) | {"processes": count(), "overrides": overrides}
    with ExitStack() as held:
        once(lambda: held.enter_context(own_folder(run.output, identity, **how)))
        before = baseline(job, model, tokenizer)
        done, seconds = train_once(job, model, tokenizer, resume, overrides)
        if sharded():  # no process holds the weights whole any more
            where = {"dtype": run.dtype, "device": run.device, "load_in_4bit": run.load_in_4bit}
            model = load_model(run.model, run.output / "adapter", **where)[0]
        after = measure(job, model, tokenizer, "measuring after")
        if not is_main():
            return None
        asked = {name: list(job.heldout[name]) for name in ("question", "answer")}
        write_json(run.output / "after.json", {**texts_of(after), "kind": job.answers, **asked})
        del model
        report |= {"resumed_from_step": done.resumed_from_step, "train_seconds": round(seconds, 1)}
        report["heldout"] = compared(job, tokenizer, before, after)
        report["merge"], report["examples"] = merged(job, before, after)
        report |= from_log(done.log, run) | {"verdict": verdict(report["heldout"])}
        draw(run, done.log, report)
        report["total_seconds"] = round(time.monotonic() - started, 1)
        report["peak_rss_mb"] = peak_rss_mb()
        for kind in ("adapter", "merged"):
            write_card(run.output / kind, report, identity["settings"], base=run.model)
        write_json(run.output / "report.json", report)
        return report


@dataclass
class Job:
    """What a run works with, once everything that can be wrong with its input has been checked."""

    run: RunConfig
    backend: str
    functions: list
    weights: list[float]
    answers: str  # "number" or "text"
    judge: Any  # for answers that are texts, see evaluation.score
    train: Any  # the rows, and after `load` the prompts
    heldout: Any
    data_sha256: str
    reward_files: dict[str, str]
    data: dict[str, Any]  # for the report

    @property
    def weights_by_name(self) -> dict[str, float]:
        """{reward's name in the log: its weight}."""
        return {f.__name__: w for f, w in zip(self.functions, self.weights, strict=True)}

    def load(self):
        """(policy, tokenizer); the rows become prompts, and those that are too long are dropped."""
        from grpo_workbook.data import drop_long_prompts, needs_folding, to_dataset
        from grpo_workbook.notebook import quiet

        run, here = self.run, Path(self.run.model).is_dir()
        print("\nLoading the model")
        if here:
            os.environ.setdefault("HF_HUB_OFFLINE", "1")  # all is on this disk: ask no one
        quiet()
        with nullcontext() if here else main_first():
            model, tokenizer = load_policy(run, self.backend)
        fold = needs_folding(tokenizer)
        for name, words in (("train", "training"), ("heldout", "held-out")):
            rows = to_dataset(getattr(self, name), run.system_prompt, fold=fold)
            limit = run.max_prompt_length
            kept, dropped = drop_long_prompts(rows, tokenizer, limit, f"the {words} data")
            setattr(self, name, kept)
            self.data |= {name: len(kept), f"dropped_too_long_{name}": dropped}
            if dropped:
                print(f"Dropped {dropped} {words} problems: prompts longer than {limit} tokens")
        if len(self.train) < run.prompts_per_step:
            raise WorkbookError(
                f"{len(self.train)} training problems are left and one step needs "
                f"{run.prompts_per_step}: give more, or lower --batch-size"
            )
        return model, tokenizer

    def facts(self, model) -> dict[str, Any]:
        """What the report says of the run before it begins."""
        names = ("profile", "device", "family", "seed", "load_in_4bit")
        return {name: getattr(self.run, name) for name in names} | {
            "model": self.run.model_name,
            "backend": self.backend,
            "steps": self.run.max_steps,
            "linear4bit_layers": count_4bit_layers(model),
            "lora_parameters": count_trained_parameters(model),
            "reward_weights": self.weights_by_name,
            "versions": versions(),
            "data_sha256": self.data_sha256,
            "data": {**self.data, "max_prompt_length": self.run.max_prompt_length},
        }


def prepare(
    run: RunConfig, backend: str, data, heldout_data, reading: dict, used: Sequence = ()
) -> Job:
    """Everything about rewards, data and backend, checked. Raises WorkbookError; writes nothing.

    `used` are the reward functions that will be called; the run's own when there are none.
    """
    from grpo_workbook.data import load_split, sha256_of, to_dataset

    functions, weights = parse_rewards(run.rewards)
    used = used or functions
    # The course's answers are numbers; of others that is demanded where a reward compares them.
    own = bool(data or heldout_data)
    text = own and all(getattr(f, "answers", None) != "number" for f in used)
    answers = "text" if text else "number"
    check_backend(run, backend)
    with main_first():
        train, heldout, leaked = load_split(run, data, heldout_data, answers=answers, **reading)
    try_rewards(used, list(to_dataset(train.select(range(min(2, len(train)))))))
    named = [s and (Path(s).name if Path(s).exists() else str(s)) for s in (data, heldout_data)]
    return Job(
        run=run,
        backend=backend,
        functions=functions,
        weights=weights,
        answers=answers,
        judge=judge_for(answers),
        train=train,
        heldout=heldout,
        data_sha256=sha256_of(train, heldout),
        reward_files=file_hashes(used),
        data={"dropped_leaked": leaked, "source": named[0], "heldout_source": named[1]},
    )


def check_backend(run: RunConfig, backend: str) -> None:
    """Raise WorkbookError when there is no such backend, or this machine cannot train with it."""
    if backend not in BACKENDS:
        raise WorkbookError(f"unknown backend {backend!r}: choose one of {', '.join(BACKENDS)}")
    if sharded() and backend == "unsloth":
        raise WorkbookError(
            "FSDP and DeepSpeed divide the weights among the processes, which Unsloth does not do: "
            "add --backend plain, or launch with configs/data_parallel.yaml"
        )
    if backend == "plain" and (reason := why_not_plain(run)):
        raise WorkbookError(f"--backend plain cannot train here: {reason}. Use --backend unsloth")


def texts_of(scores) -> dict[str, list[str]]:
    """The completions of (sampled, greedy) scores, as before.json and after.json keep them."""
    return {"sampled": scores[0].completions, "greedy": scores[1].completions}


def baseline(job: Job, model, tokenizer):
    """(sampled, greedy) scores before training, measured once: a resumed run compares with them."""
    path, n = job.run.output / "before.json", len(job.heldout)
    kept = once(lambda: read_json(path) if path.is_file() else None)
    if kept:
        print("The baseline was measured before the interruption")
        lists = [kept.get(how) for how in ("sampled", "greedy")]
        if any(not isinstance(texts, list) or len(texts) != n for texts in lists):
            raise WorkbookError(
                f"{readable(path)} does not hold the completions of {n} problems: start again with "
                "--overwrite"
            )
        return tuple(score(texts, list(job.heldout["answer"]), job.judge) for texts in lists)
    scores = measure(job, model, tokenizer, "measuring before")
    if is_main():
        write_json(path, texts_of(scores))
    right = sum(scores[0].strict)
    print(f"Before training: {right} of {n} held-out problems strictly right when sampled")
    return scores


def measure(job: Job, model, tokenizer, label: str):
    """(sampled, greedy) scores on the held-out problems; the processes share the work."""
    run, judge = job.run, job.judge
    how = {"max_new_tokens": run.max_completion_length, "batch_size": run.eval_batch}
    how |= {"seed": run.seed, "judge": judge}
    ask = partial(evaluate, model, tokenizer, job.heldout, **how)
    sampled = ask(sample=True, progress=f"{label}, sampled")
    return sampled, ask(progress=f"{label}, greedy")


def train_once(job: Job, model, tokenizer, resume: bool, overrides: dict, callbacks=()):
    """Train exactly, under diagnosis; save adapter and log. (what `resume.train` gives, seconds).

    Raises Interrupted after a Ctrl-C.
    """
    from grpo_workbook.diagnosis import HealthCallback, log_the_end, watch
    from grpo_workbook.resume import train

    run, functions = job.run, watch(job.functions)
    trainer = make_trainer(run, model, tokenizer, job.train, functions, job.weights, overrides)
    for callback in (*([HealthCallback(functions)] if is_main() else []), *callbacks):
        trainer.add_callback(callback)
    started = time.monotonic()
    with log_the_end(trainer, run.output / "log.json") if is_main() else nullcontext():
        done = train(trainer, resume=resume)
    seconds = time.monotonic() - started
    whole = trainer.accelerator.get_state_dict(trainer.model_wrapped) if sharded() else None
    if is_main():
        write_json(run.output / "log.json", done.log)
        save_adapter(model, tokenizer, run.output / "adapter", whole)
    trainer.accelerator.wait_for_everyone()
    if done.interrupted:
        raise Interrupted(f"stopped after step {trainer.state.global_step} of {run.max_steps}")
    # what was trained before counts too
    seconds += sum(e["step_time"] for e in done.log if e["step"] <= done.resumed_from_step)
    return done, seconds


def compared(job: Job, tokenizer, before, after) -> dict[str, Any]:
    """The report's held-out part: both policies, the paired tests, each reward's mean."""
    columns = {name: list(job.heldout[name]) for name in job.heldout.column_names}

    def mean(function, texts: list[str]) -> float | None:
        ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
        kept = [value for value in call(function, texts, ids, **columns) if value is not None]
        return round(sum(kept) / len(kept), 4) if kept else None  # None: it applies to no row

    pair = {"before": before, "after": after}
    return {
        "n": len(job.heldout),
        **{when: summary(*scores) for when, scores in pair.items()},
        "p_value": paired_p_value(before[0].strict, after[0].strict),
        "p_value_well_formed": paired_p_value(before[0].well_formed, after[0].well_formed),
        "rewards": {
            f.__name__: {when: mean(f, scores[0].completions) for when, scores in pair.items()}
            for f in job.functions
        },
    }


def merged(job: Job, before, after) -> tuple[dict, list[dict]]:
    """(the merge's proof, five questions answered before and after). A bad merge is refused."""
    run = job.run
    print("Merging the adapter into 16-bit weights and proving it")
    how = {"heldout": job.heldout, "policy": after[1], "judge": job.judge}
    how |= {"max_new_tokens": run.max_completion_length, "batch_size": run.eval_batch}
    proof = merge(run.model, run.output / "adapter", run.output / "merged", **how)
    columns = (job.heldout["question"], job.heldout["answer"], before[1].completions)
    names = ("question", "answer", "before", "after")
    rows = zip(*columns, proof.pop("merged_answers"), strict=False)
    return proof, [dict(zip(names, row, strict=True)) for row in rows]
