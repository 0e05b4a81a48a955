"""Train with GRPO, measure before and after, merge and prove the merge.

Every field of TRL's GRPOConfig is an option too, as --max_steps 50:
https://huggingface.co/docs/trl/grpo_trainer#trl.GRPOConfig
Names may have - or _; without an option the profile's or TRL's value counts.
--output_dir gets run.json (--resume continues only the same run), the answers
before and after, checkpoints/, log.json, adapter/ and merged/ (16-bit) with
cards, figures/, report.json.

examples:
  python -m grpo_workbook run                       the course's main run
  python -m grpo_workbook run --resume              after a Ctrl-C or a crash
  python -m grpo_workbook run --config my.yaml --max_steps 50
  python -m grpo_workbook run --data my.jsonl --rewards mine.py:shown:2
  python -m grpo_workbook run --adapter sft/adapter     train an SFT adapter on
  torchrun --nproc_per_node 2 -m grpo_workbook run --config my.yaml
"""

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grpo_workbook import compat, data, training
from grpo_workbook.cli import option, options
from grpo_workbook.cli.report import draw, from_log, peak_rss_mb, show_report, verdict, versions
from grpo_workbook.cli.rewards import file_hashes, judge_for, try_references, try_rewards
from grpo_workbook.cli.together import count, is_main, once, together
from grpo_workbook.config import check_grpo_config
from grpo_workbook.data.chats import NO_TOOLS, own_system_messages
from grpo_workbook.data.prompts import needs_folding, prefilled_tag, require_switch
from grpo_workbook.data.reading import GSM8K
from grpo_workbook.data.splitting import course_data, select_true, sha256_of
from grpo_workbook.errors import WorkbookError
from grpo_workbook.evaluation import (
    CorrectnessJudge,
    Scores,
    WholeJudge,
    measure,
    repeated,
    report_heldout,
    score,
)
from grpo_workbook.export import merge, save_adapter, write_card
from grpo_workbook.files import alone, read_json, read_object, readable, write_json
from grpo_workbook.models import fingerprint
from grpo_workbook.notebook import use_one_thread
from grpo_workbook.resume import Trained, train
from grpo_workbook.rewards.contract import about, name_of
from grpo_workbook.rewards.lab import honest
from grpo_workbook.rewards.models import RewardModel

PARTS = (
    "run.json",
    "before.json",
    "checkpoints",
    "log.json",
    "adapter",
    "after.json",
    "merged",
    "figures",
    "report.json",
)
USAGE = "%(prog)s [--config FILE.yaml] [--NAME VALUE ...]"
OPTIONS = [
    option("--config", metavar="", help="a YAML file with any of these options, one per line"),
    *options.listing(options.RunOptions, options.ProfileOptions),
]


@dataclass
class Problems:
    """What a run trains on and is measured on. First rows, and prompts after `make_prompts`."""

    train: Any  # a Dataset
    heldout: Any
    judge: CorrectnessJudge | None  # of held-out answers that are not numbers
    facts: dict[str, Any]  # for the report
    subset: Any = None  # the held-out problems that are measured apart, too
    prompt_tag: str = ""  # in which the chat template ends each prompt, as in `evaluation.score`

    @property
    def measured(self) -> dict[str, Any]:
        """What a policy is measured on."""
        if self.subset is None:
            return {"heldout": self.heldout}
        return {"heldout": self.heldout, "subset": self.subset}


def main(arguments: list[str]) -> int:
    """Exit status 0. Raises WorkbookError for bad input, SystemExit with 130 after a Ctrl-C."""
    request = options.parse(arguments)
    if request.profile.name == "smoke":
        use_one_thread()
    with together(request.profile.device):
        report = train_and_measure(options.load(request))
    if report is not None:
        show_report(report, request.profile.output)
    return 0


def train_and_measure(run: options.Run) -> dict[str, Any] | None:
    """Load, measure, train, measure, save, merge, prove; returns the content of report.json.

    Bad input is found before the first file is written. Connected processes (see together.py) all
    train and measure; only the main one writes and merges, and the others return None.
    """
    started = time.monotonic()
    profile = run.profile
    output = profile.output
    check_machine(run)
    problems = load_problems(run)
    identity = identify(run, problems)
    # Before the model is loaded: a folder with another run costs seconds here.
    once(lambda: check_folder(output, identity, run.options.overwrite, run.options.resume))

    print(f"{profile}\n\nLoading the model")
    model, tokenizer = load_policy(run)
    make_prompts(run, problems, tokenizer)
    facts: dict[str, Any] = {
        "linear4bit_layers": training.count_4bit_layers(model),
        "lora_parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
    }
    if run.options.adapter is not None:
        facts["adapter"] = readable(run.options.adapter)
        reference = compat.reference_of(run.args.beta, run.options.backend, profile.device)
        print(f"Training goes on from the adapter {facts['adapter']}; {reference}")
    # Only the main process enters the folder's lock. The stack gives it back at the end of the
    # block.
    with ExitStack() as stack:
        once(lambda: stack.enter_context(own_folder(output, identity, run.options)))
        before = load_scores(output / "before.json", problems)
        if before is None:
            before = measure_policy(run, model, tokenizer, problems)
            save_scores(output / "before.json", before, problems)
        sampled = before["heldout"]["sampled"]
        print(
            f"Before training: {sampled.rate:.1%} of the sampled answers to {sampled.n} held-out "
            "problems are strictly right"
        )

        trained, seconds = train_policy(run, model, tokenizer, problems)
        after = measure_policy(run, model, tokenizer, problems)
        save_scores(output / "after.json", after, problems)
        if not is_main():
            return None

        facts["train_seconds"] = round(seconds, 1)
        # The last row of TRL's history is a summary of the training, without a reward.
        log = [row for row in trained.history if "reward" in row]
        facts["resumed_from_step"] = trained.resumed_from_step
        report = make_report(run, problems, identity, log, before, after, facts)
        draw(output, log, report)
        write_json(output / "report.json", report)  # whatever becomes of the merge
        # The merge loads the base again, and needs the memory of this model.
        compat.free_vllm(model)
        del model
        proof = merge_and_prove(run, problems, after["heldout"]["greedy"])
        report = with_merge(report, proof, total_seconds=time.monotonic() - started)
        # `merge` has written a card with what it knows. This one has the run's report.
        for folder in ("adapter", "merged"):
            write_card(output / folder, report, identity["settings"], base=profile.model)
        write_json(output / "report.json", report)
        return report


# ------------------------------------------------------------------ before training


def check_machine(run: options.Run) -> None:
    """Raise WorkbookError for what this machine or backend would refuse, or do wrongly."""
    backend = run.options.backend
    reason = compat.why_not_plain(run.profile.device)
    if backend == "plain" and reason is not None:
        raise WorkbookError(f"--backend plain cannot train here: {reason}. Use --backend unsloth")
    check_grpo_config(
        run.args,
        backend=backend,
        load_in_4bit=run.profile.loader["load_in_4bit"],
    )
    if 0 < run.args.max_steps < run.args.logging_steps:
        raise WorkbookError(
            f"logging_steps is {run.args.logging_steps:g}, but the run has {run.args.max_steps} "
            "steps: the report needs a log, so give fewer logging_steps"
        )


def load_problems(run: options.Run) -> Problems:
    """The training and held-out rows, on which the rewards have been tried."""
    from accelerate import PartialState

    user_options = run.options
    own = user_options.data is not None or user_options.heldout_data is not None
    # The course's answers are numbers; a user's must be if a reward compares numbers.
    answers = "text" if own else "number"
    for function in run.functions:
        if about(function).answers == "number":
            answers = "number"
    with PartialState().main_process_first():  # one download, one cache
        train_rows, heldout_rows, leaked = data.load_split(
            user_options.data,
            user_options.heldout_data,
            heldout=run.profile.heldout,
            seed=run.profile.seed,
            profile_name=run.profile.name,
            question_column=user_options.question_column,
            answer_column=user_options.answer_column,
            answers=answers,
            skip_invalid=user_options.skip_invalid,
        )
    system_messages = own_system_messages(train_rows)
    tell_about_chats(train_rows, len(system_messages))
    # A reward that fails is found on two rows, and not after the model has been loaded.
    first_rows: Any = data.to_dataset(train_rows.select(range(min(2, len(train_rows)))))
    with PartialState().main_process_first():
        tokenizer = data.load_tokenizer(run.profile.model)
    try_rewards(run.functions, list(first_rows), tokenizer)
    sources = {"train": user_options.data, "heldout": user_options.heldout_data}
    # The course's data have no name of the user's. GSM8K has one on the hub, which the card links.
    if not own and course_data(run.profile.name) is GSM8K:
        sources = GSM8K
    facts: dict[str, Any] = {
        "source": _source_name(sources["train"]),
        "heldout_source": _source_name(sources["heldout"]),
        "dropped_leaked": leaked,
        "max_prompt_length": run.profile.max_prompt_length,
        "system_messages": system_messages[:1],  # an example, for the card
    }
    facts["subset"] = user_options.subset
    if user_options.subset is None and not own and "rare" in heldout_rows.column_names:
        facts["subset"] = "rare"  # the course's data
    if facts["subset"] is not None:
        select_true(heldout_rows, facts["subset"])  # an error before the model is loaded
    if answers == "text" and user_options.judge is None:
        check_references(train_rows, heldout_rows)
    judge = judge_for(answers, user_options.judge)
    if isinstance(judge, WholeJudge):  # its faults, too, are found before the model is loaded
        answer = first_rows[0]["answer"]
        judge.is_right(honest(answer), answer)
    return Problems(train_rows, heldout_rows, judge, facts)


def check_references(train_rows: Any, heldout_rows: Any) -> None:
    """Try the reference answers: print those that are compared as text.

    Raises WorkbookError for answers that nothing can be compared with: a reward would find no
    verdict in the middle of the run.
    """
    for words, rows in (("training", train_rows), ("held-out", heldout_rows)):
        answers = rows["answer"][:]
        failed = []
        for index, outcome in once(lambda answers=answers: try_references(answers)).items():
            line = f"{answers[index]!r:.60} to {rows[index]['question']!r:.60} ({outcome.reason})"
            if outcome.value is None:
                failed.append(line)
            else:
                print(f"A {words} answer: {line}")
        if failed:
            raise WorkbookError(
                f"{len(failed)} {words} answers cannot be compared with anything, such as "
                f"{failed[0]}: correct them, or leave these rows out (`check-data` lists them)"
            )


def tell_about_chats(rows: Any, own: int) -> None:
    """Print what a run does with conversations that a user may not expect.

    `own` of the rows have a system message of their own.
    """
    if "tools" in rows.column_names:
        print(f"The column 'tools' goes to the rewards only: {NO_TOOLS}")
    if own:
        print(
            f"{own} of {len(rows)} conversations keep a system message of their own, without "
            "that of --system_prompt, which asks for the tags that rewards of form look for"
        )


def _source_name(source: str | None) -> str | None:
    """A file's name without its folder, or a hub id."""
    if source is not None and Path(source).exists():
        return Path(source).name
    return source


def identify(run: options.Run, problems: Problems) -> dict[str, Any]:
    """The content of run.json: --resume continues only a run with the same."""
    from grpo_workbook.diagnosis import roles_of  # it loads pandas

    # Weights and roles by the rewards' names in the log, where the diagnosis looks for them.
    names = [name_of(function) for function in run.functions]
    return {
        "backend": run.options.backend,
        "settings": run.settings,
        "profile": run.profile.name,
        "model": run.profile.model_name,
        # By its content: the folder may have been moved, or trained on.
        "adapter_hash": fingerprint(run.options.adapter),
        "seed": run.profile.seed,
        "data_sha256": sha256_of(problems.train, problems.heldout),
        "reward_files": file_hashes(run.functions),
        "reward_weights": dict(zip(names, run.args.reward_weights, strict=True)),
        "reward_roles": roles_of(run.functions),
        "processes": count(),
    }


def load_policy(run: options.Run) -> tuple[Any, Any]:
    """The policy and its tokenizer; a model of the hub is downloaded by one process."""
    from accelerate import PartialState

    adapter = run.options.adapter
    if Path(run.profile.model).is_dir():
        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # everything is on this disk
        return training.load_policy(run.profile, run.options.backend, adapter=adapter)
    with PartialState().main_process_first():
        return training.load_policy(run.profile, run.options.backend, adapter=adapter)


def make_prompts(run: options.Run, problems: Problems, tokenizer: Any) -> None:
    """Make prompts of the rows, and drop those that are too long."""
    limit = run.profile.max_prompt_length
    problems.prompt_tag = prefilled_tag(tokenizer, run.args.chat_template_kwargs or {})
    if run.options.thinking is not None:
        require_switch(tokenizer, run.profile.model_name)
    fold = needs_folding(tokenizer)
    for part, words in (("train", "training"), ("heldout", "held-out")):
        rows = data.to_dataset(getattr(problems, part), run.profile.system_prompt, fold=fold)
        kept, dropped = data.drop_long_prompts(
            rows, tokenizer, limit, f"the {words} data", run.args.chat_template_kwargs or {}
        )
        setattr(problems, part, kept)
        problems.facts[part] = len(kept)
        problems.facts[f"dropped_too_long_{part}"] = dropped
        if dropped:
            print(f"Dropped {dropped} {words} problems: prompts longer than {limit} tokens")
    if problems.facts["subset"] is not None:
        problems.subset = select_true(problems.heldout, problems.facts["subset"])
    # TRL starts an epoch without a whole batch of different problems, and then trains no step.
    needed = run.args.generation_batch_size // run.args.num_generations
    if len(problems.train) < needed:
        raise WorkbookError(
            f"{len(problems.train)} training problems are left, but one step needs {needed}: "
            "give more, or lower --gradient_accumulation_steps or --per_device_train_batch_size"
        )


# ------------------------------------------------------------------ training


def for_trl(function: Any) -> Any:
    """A reward as TRL takes it: of a reward model the model itself, which TRL calls."""
    if isinstance(function, RewardModel):
        return function.model
    return function


def train_policy(
    run: options.Run, model: Any, tokenizer: Any, problems: Problems
) -> tuple[Trained, float]:
    """Train resumably, with diagnosis, and save adapter and log.

    Returns what `resume.train` returns, and the seconds of training. After a Ctrl-C everything is
    saved, and SystemExit is raised.
    """
    from transformers import PrinterCallback
    from trl import GRPOTrainer

    from grpo_workbook.diagnosis.health import HealthCallback, log_the_end, watch

    output = run.profile.output
    rewards = [for_trl(function) for function in run.functions]
    functions: Any = watch(rewards, prompt_tag=problems.prompt_tag)
    # Float32Adapters acts when the trainer has been built, so the trainer must get it at once.
    callbacks: list[Any] = [training.Float32Adapters(model), training.RewardBar()]
    try:
        trainer: Any = GRPOTrainer(
            model,
            functions,
            run.args,
            problems.train,
            processing_class=tokenizer,
            callbacks=callbacks,
        )
    except (ValueError, TypeError, ImportError, RuntimeError) as error:
        raise WorkbookError(f"TRL refuses this run: {error}") from error
    trainer.remove_callback(PrinterCallback)  # RewardBar shows the same in one line
    if is_main():
        # One process is enough: with no `stop_on` it reports, and stops nothing.
        trainer.add_callback(HealthCallback(functions))

    started = time.monotonic()
    with log_the_end(trainer, output / "log.json") if is_main() else nullcontext():
        trained = train(trainer, resume=run.options.resume)
    seconds = time.monotonic() - started
    log = [row for row in trained.history if "reward" in row]
    for row in log:  # the time before the interruption
        if row["step"] <= trained.resumed_from_step:
            seconds += row["step_time"]

    if is_main():
        write_json(output / "log.json", log)
        save_adapter(model, tokenizer, output / "adapter")
    # The adapter must be written before another process ends.
    trainer.accelerator.wait_for_everyone()
    if trained.interrupted:
        if is_main():
            print(
                f"\nInterrupted: stopped after step {trainer.state.global_step} of "
                f"{trainer.state.max_steps}. The same command with --resume continues from there.",
                file=sys.stderr,
            )
        raise SystemExit(130)
    return trained, seconds


# ------------------------------------------------------------------ measuring


# The scores of a policy by way of decoding: on "heldout" and, if there is one, on "subset".
Measured = dict[str, dict[str, Scores]]


def measure_policy(run: options.Run, model: Any, tokenizer: Any, problems: Problems) -> Measured:
    """The scores on the held-out problems and on their subset, sampled and greedy."""
    samples = {"heldout": run.options.heldout_samples, "subset": run.options.subset_samples}
    measured = {}
    for name, dataset in problems.measured.items():
        measured[name] = measure(
            model,
            tokenizer,
            dataset,
            samples=samples[name],
            judge=problems.judge,
            max_new_tokens=run.args.max_completion_length,
            batch_size=run.profile.eval_batch_size,
            seed=run.profile.seed,
            chat_template_kwargs=run.args.chat_template_kwargs or {},
        )
    return measured


def save_scores(path: Path, measured: Measured, problems: Problems) -> None:
    """Let the main process write the completions, from which `load_scores` scores again."""
    if not is_main():
        return
    content: dict[str, Any] = {}
    for name, scores in measured.items():
        content[name] = {way: scores[way].completions for way in scores}
    # `export.merge` learns from it whether it needs a judge to score these answers.
    content["kind"] = "number" if problems.judge is None else "text"
    # The prompts as they are: those of conversations cannot be made from the question.
    for column in ("question", "answer", "prompt"):
        content[column] = list(problems.heldout[column])
    write_json(path, content)


def load_scores(path: Path, problems: Problems) -> Measured | None:
    """The scores that were measured before an interruption, or None."""
    content: Any = once(lambda: read_json(path) if path.is_file() else None)
    if content is None:
        return None
    print("The baseline was measured before the interruption")
    measured: Measured = {}
    for name, dataset in problems.measured.items():
        measured[name] = {}
        for way, texts in content[name].items():
            samples = len(texts) // len(dataset)
            rows = repeated(dataset, samples)
            scores = score(
                texts,
                list(rows["answer"]),
                judge=problems.judge,
                prompts=list(rows["prompt"]),
                prompt_tag=problems.prompt_tag,
            )
            measured[name][way] = replace(scores, samples=samples)
    return measured


def make_report(
    run: options.Run,
    problems: Problems,
    identity: dict[str, Any],
    log: list[dict[str, Any]],
    before: Measured,
    after: Measured,
    facts: dict[str, Any],
) -> dict[str, Any]:
    """The content of report.json as far as it is known before the merge.

    `facts` are its single numbers about the policy and its training.
    """
    profile = run.profile
    # In one step of one process.
    completions = run.args.per_device_train_batch_size * run.args.gradient_accumulation_steps
    report = {name: value for name, value in identity.items() if name != "settings"}
    report["device"] = profile.device
    report["family"] = profile.family
    report["load_in_4bit"] = profile.loader["load_in_4bit"]
    report["data"] = problems.facts
    report["steps"] = log[-1]["step"]
    report.update(from_log(log, completions * count()))
    for name in after:  # "heldout", and "subset" if there is one
        report[name] = report_heldout(before[name], after[name])
    report["verdict"] = verdict(report["heldout"]["sampled"])
    report["versions"] = versions()
    report["examples"] = []
    for number, row in enumerate(problems.heldout.select_columns(["question", "answer"])):
        if number == 5:
            break
        example = dict(row)
        example["before"] = before["heldout"]["greedy"].completions[number]
        example["after"] = after["heldout"]["greedy"].completions[number]
        report["examples"].append(example)
    report.update(facts)
    return report


def with_merge(
    report: dict[str, Any], proof: dict[str, Any], total_seconds: float
) -> dict[str, Any]:
    """The whole content of report.json: `report` with the merge's proof and the costs of the run.

    The examples then show what the merged model answers, because that is the model to be used.
    """
    examples = []
    for example, answer in zip(report["examples"], proof["merged_answers"], strict=True):
        examples.append({**example, "after": answer})
    return {
        **report,
        "examples": examples,
        "merge": {name: value for name, value in proof.items() if name != "merged_answers"},
        "total_seconds": round(total_seconds, 1),
        "peak_rss_mb": peak_rss_mb(),
    }


# ------------------------------------------------------------------ the merge


def merge_and_prove(run: options.Run, problems: Problems, policy: Scores) -> dict[str, Any]:
    """The merge's proof. Raises WorkbookError for a bad merge, and for a GPU that is too small.

    `policy` holds the scores of the trained policy's greedy answers.
    """
    import torch
    from accelerate.utils.memory import clear_device_cache

    clear_device_cache(garbage_collection=True)
    adapter = run.profile.output / "adapter"
    folder = run.profile.output / "merged"
    print("Merging the adapter into 16-bit weights and proving it")
    try:
        return merge(
            run.profile.model,
            adapter,
            folder,
            heldout=problems.heldout,
            policy=policy,
            judge=problems.judge,
            max_new_tokens=run.args.max_completion_length,
            batch_size=run.profile.eval_batch_size,
        )
    except torch.OutOfMemoryError:
        command = f"python -m grpo_workbook merge {readable(adapter)} --output {readable(folder)}"
        raise WorkbookError(
            "the GPU's memory is full while merging; all else is saved. To merge on the CPU: "
            f"CUDA_VISIBLE_DEVICES= {command}"
        ) from None


# ------------------------------------------------------------------ the folder


def parts(output: Path) -> list[str]:
    """The files and folders of a run in this folder."""
    return [name for name in PARTS if (output / name).exists()]


def check_folder(output: Path, identity: dict, overwrite: bool, resume: bool) -> None:
    """Raise WorkbookError if the folder holds another run, or one that must not be replaced."""
    if output.is_file():
        raise WorkbookError(f"the output {output} is a file: give a folder with --output_dir")
    present = ", ".join(parts(output))
    if not present:
        return
    if overwrite:
        if not (output / "run.json").exists():
            raise WorkbookError(
                f"{output} has {present} but no run.json, so it is not a run: "
                "choose another folder with --output_dir"
            )
        return
    if not resume:
        raise WorkbookError(
            f"{output} holds another run ({present}): continue it with --resume, replace it with "
            "--overwrite, or choose another folder with --output_dir"
        )
    different = differences(read_object(output / "run.json"), identity)
    if different:
        raise WorkbookError(
            f"{output} holds another run (different: {', '.join(different)}): "
            "give its options to --resume it, or replace it with --overwrite"
        )


def differences(recorded: dict, current: dict) -> list[str]:
    """The names of the values that differ in the content of two run.json."""
    first = {**recorded, **recorded.get("settings", {})}
    second = {**current, **current.get("settings", {})}
    # The settings are compared one by one; what follows from the rewards is no other run.
    for name in ("settings", "reward_weights", "reward_roles"):
        first.pop(name, None)
        second.pop(name, None)
    names = dict.fromkeys([*first, *second])
    return [name for name in names if first.get(name) != second.get(name)]


@contextmanager
def own_folder(output: Path, identity: dict, mode: options.RunOptions) -> Iterator[None]:
    """Lock the folder for the block, check it again, clear it of the old run, write run.json."""
    with alone(output):
        # Another process may have started a run here since the first check.
        check_folder(output, identity, mode.overwrite, mode.resume)
        if mode.resume and not parts(output):  # perhaps a misspelt name
            print(f"{output} holds no run yet: a new one starts")
        if not mode.resume:
            remove_run(output)
        output.mkdir(parents=True, exist_ok=True)
        write_json(output / "run.json", identity)
        yield


def remove_run(output: Path) -> None:
    """Remove the parts of a run from its folder; of a part on another disk only the link."""
    for name in parts(output):
        path = output / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
