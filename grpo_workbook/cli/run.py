"""Train with GRPO, measure before and after, merge and prove the merge.

Every field of TRL's GRPOConfig is an option too, as --max_grad_norm 0.5:
https://huggingface.co/docs/trl/grpo_trainer#trl.GRPOConfig
Names may have - or _; without an option the profile's or TRL's value counts.
The output folder gets run.json (--resume continues only the same run), the
answers before and after, checkpoints/, log.json, adapter/ and merged/ (16-bit)
with cards, figures/, report.json. Exit status 1: another process was lost.

examples:
  python -m grpo_workbook run                       the course's main run
  python -m grpo_workbook run --resume              after a Ctrl-C or a crash
  python -m grpo_workbook run --config my.yaml --max-steps 50
  python -m grpo_workbook run --data my.jsonl --rewards mine.py:shown:2
  torchrun --nproc_per_node 2 -m grpo_workbook run --config my.yaml
"""

import os
import shutil
import sys
import time
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

from grpo_workbook import data, evaluation, training
from grpo_workbook.cli import options
from grpo_workbook.cli.report import draw, from_log, peak_rss_mb, show_report, verdict, versions
from grpo_workbook.cli.rewards import file_hashes, judge_for, parse_rewards, try_rewards
from grpo_workbook.cli.together import count, is_main, once, together
from grpo_workbook.errors import WorkbookError
from grpo_workbook.evaluation import Scores, report_heldout
from grpo_workbook.export import merge, save_adapter, write_card
from grpo_workbook.files import alone, check_disk, read_json, readable, write_json
from grpo_workbook.models import check_positions, load_model
from grpo_workbook.resume import train
from grpo_workbook.rewards.contract import about
from grpo_workbook.run_config import RunConfig, make_trainer, why_not_plain

PARTS = "run.json before.json checkpoints log.json adapter after.json merged figures report.json"
NO_SETTING = ("device", "profile", "model", "family", "seed", "output", "why")
USAGE, OPTIONS = "%(prog)s [--config FILE.yaml] [--NAME VALUE ...]", options.listing()


def main(arguments: list[str]) -> int:
    """Exit status 0. Raises WorkbookError for bad input, SystemExit with 130 after a Ctrl-C."""
    values, overrides = options.read(arguments)
    run = RunConfig.from_env(**{n: values.pop(n) for n in {*options.run_fields()} & {*values}})
    if (every := overrides.get("logging_steps") or 1) > run.max_steps:
        said = f"logging_steps is {every:g}, but the run has {run.max_steps} steps"
        raise WorkbookError(f"{said}: the report needs a log, so give fewer logging_steps")
    with together(run.device):
        report = main_run(run, overrides=overrides, **values)
    if report:
        show_report(report, run.output)
    return 0


def main_run(run, **given) -> dict | None:
    """Load, measure, train, measure, save, merge, prove; returns the content of report.json.

    `given` are arguments of `Job`. Bad input is found before the first file is written. Connected
    processes (see together.py) all train and measure; only the main one writes and merges, the
    others get None.
    """
    from accelerate.utils.memory import clear_device_cache

    from grpo_workbook.diagnosis import roles_of  # it loads pandas

    started, output, job = time.monotonic(), run.output, Job(run, **given)
    weights = {f.__name__: weight for f, weight in zip(*job.rewards, strict=True)}
    more = {"reward_roles": roles_of(job.rewards[0]), "processes": count()}
    model, tokenizer = job.load(reward_weights=weights, **more)
    run.to_grpo_config(job.rewards[1], job.overrides, count())  # TRL refuses bad values here
    who = {name: getattr(run, name) for name in ("device", "family", "load_in_4bit")}
    report = {name: value for name, value in job.identity.items() if name != "settings"} | who
    report |= {"data": job.data, "linear4bit_layers": training.count_4bit_layers(model)}
    report |= {"steps": run.max_steps, "lora_parameters": model.get_nb_trainable_parameters()[0]}
    with ExitStack() as held:
        once(lambda: held.enter_context(own_folder(output, job.identity, **job.mode)))
        path = output / "before.json"
        if kept := once(lambda: read_json(path) if path.is_file() else None):
            print("The baseline was measured before the interruption")
        before = measure(job, model, tokenizer, path, kept)
        right, n = sum(before["sampled"].strict), before["sampled"].n
        print(f"Before training: {right} of {n} held-out problems strictly right when sampled")
        history, told = job.train_once(run, model, tokenizer, job.train, *job.rewards)
        if training.is_sharded():  # no process holds all the weights
            where = {"dtype": run.dtype, "device": run.device, "load_in_4bit": run.load_in_4bit}
            model = load_model(run.model, output / "adapter", **where)[0]
        after = measure(job, model, tokenizer, output / "after.json")
        if not is_main():
            return None
        log = [entry for entry in history if "reward" in entry]
        report |= {**told, "heldout": report_heldout(before, after), **from_log(log, run)}
        report |= {"verdict": verdict(report["heldout"]["sampled"]), "versions": versions()}
        asked = job.heldout.select_columns(["question", "answer"]).to_list()[:5]
        rows = zip(asked, before["greedy"].completions, after["greedy"].completions, strict=False)
        examples = report["examples"] = [q | {"before": b, "after": a} for q, b, a in rows]
        draw(run, log, report)
        write_json(output / "report.json", report)  # whatever becomes of the merge
        if hasattr(model, "vllm_engine"):  # it holds its part of the GPU to its end
            from unsloth_zoo.vllm_utils import delete_vllm

            delete_vllm(model.vllm_engine)
        del model
        clear_device_cache(garbage_collection=True)
        report["merge"] = merged(job, after["greedy"])
        for row, text in zip(examples, report["merge"].pop("merged_answers"), strict=True):
            row["after"] = text
        report["total_seconds"] = round(time.monotonic() - started, 1)
        report["peak_rss_mb"] = peak_rss_mb()
        for kind in ("adapter", "merged"):
            write_card(output / kind, report, job.identity["settings"], base=run.model)
        write_json(output / "report.json", report)
        return report


class Job:
    """A run's rewards, data and backend, and its steps; WorkbookError if they do not fit.

    `used` are the reward functions to call (default: the run's), `overrides` are fields of
    GRPOConfig that win over the run's, `how` are other names of `options.OWN`. `train` and
    `heldout` are rows, and prompts after `load`. `identity` is the content of run.json: --resume
    continues only a run with the same one.
    """

    def __init__(self, run, used=(), *, backend="unsloth", judge=None, overrides=None, **how):
        from accelerate import PartialState

        self.run, self.backend, self.overrides = run, backend, overrides or {}
        self.mode = {name: how.pop(name, False) for name in ("overwrite", "resume")}
        if training.is_sharded() and backend == "unsloth":
            said = "FSDP and DeepSpeed shard the weights, which Unsloth does not support"
            fix = "add --backend plain, or launch with configs/data_parallel.yaml"
            raise WorkbookError(f"{said}: {fix}")
        if backend == "plain" and (why := why_not_plain(run)):
            raise WorkbookError(f"--backend plain cannot train here: {why}. Use --backend unsloth")
        self.rewards = parse_rewards(run.rewards)
        used, given = used or self.rewards[0], [how.pop(n, None) for n in ("data", "heldout_data")]
        own = any(given)
        # The course's answers are numbers; a user's must be if a reward compares numbers.
        numbers = not own or any(about(f).answers == "number" for f in used)
        answers = "number" if numbers else "text"
        with PartialState().main_process_first():  # one download, one cache
            self.train, self.heldout, leaked = data.load_split(
                *given,
                heldout=run.heldout,
                seed=run.seed,
                profile_name=run.profile,
                answers=answers,
                **how,
            )
        try_rewards(used, list(data.to_dataset(self.train.select(range(min(2, len(self.train)))))))
        self.judge = judge_for(answers, judge)
        if not own and data.splitting.course_data(run.profile) is data.reading.GSM8K:
            given = data.reading.GSM8K.values()
        named = [s and (Path(s).name if Path(s).exists() else str(s)) for s in given]
        self.data = {"source": named[0], "heldout_source": named[1], "dropped_leaked": leaked}
        self.data["max_prompt_length"] = run.max_prompt_length
        settings = {name: value for name, value in vars(run).items() if name not in NO_SETTING}
        self.identity = {"backend": backend, "overrides": self.overrides, "settings": settings}
        self.identity["data_sha256"] = data.splitting.sha256_of(self.train, self.heldout)
        self.identity |= {"profile": run.profile, "model": run.model_name, "seed": run.seed}
        self.identity["reward_files"] = file_hashes(used)

    def load(self, **identity):
        """(policy, tokenizer) after checking disk and folder; drops rows that are too long."""
        from accelerate import PartialState

        run, folder = self.run, Path(self.run.model)
        self.identity |= identity
        # a guess for a hub model; for a folder six times the base and 50 MiB
        needed = {"smoke": 5, "t4": 15, "24gb": 30, "80gb": 80}[run.profile] * 2**30
        if here := folder.is_dir():
            sizes = (f.stat().st_size for f in folder.rglob("*") if f.is_file())
            needed = 6 * sum(sizes) + 50 * 2**20
        once(lambda: check_disk(run.output, needed, "the run"))
        once(lambda: check_folder(run.output, self.identity, **self.mode))
        print(f"{run}\n\nLoading the model")
        if here:
            os.environ.setdefault("HF_HUB_OFFLINE", "1")  # everything is on this disk
        with nullcontext() if here else PartialState().main_process_first():
            model, tokenizer = training.load_policy(run, self.backend)
        fold, limit = data.prompts.needs_folding(tokenizer), run.max_prompt_length
        fix = "lower --max-prompt-length (longer prompts are dropped)"
        check_positions(model, limit + run.max_completion_length, fix)
        for name, words in (("train", "training"), ("heldout", "held-out")):
            rows = data.to_dataset(getattr(self, name), run.system_prompt, fold=fold)
            kept, dropped = data.drop_long_prompts(rows, tokenizer, limit, f"the {words} data")
            setattr(self, name, kept)
            self.data |= {name: len(kept), f"dropped_too_long_{name}": dropped}
            if dropped:
                print(f"Dropped {dropped} {words} problems: prompts longer than {limit} tokens")
        if len(self.train) < (least := run.prompts_per_step):
            said = f"{len(self.train)} training problems are left, but one step needs {least}"
            raise WorkbookError(f"{said}: give more, or lower --batch-size")
        return model, tokenizer

    def train_once(self, run, model, tokenizer, rows, functions, weights, callbacks=()) -> tuple:
        """Train resumably, with diagnosis, save adapter and log; (TRL's history, report entries).

        After a Ctrl-C everything is saved, and SystemExit is raised.
        """
        from grpo_workbook.diagnosis import HealthCallback, log_the_end, watch

        given = (run, model, tokenizer, rows, functions, weights, self.overrides)
        trainer = make_trainer(*given)
        trainer.reward_funcs = functions = watch(trainer.reward_funcs)
        for callback in (*([HealthCallback(functions)] if is_main() else []), *callbacks):
            trainer.add_callback(callback)
        started = time.monotonic()
        with log_the_end(trainer, run.output / "log.json") if is_main() else nullcontext():
            done = train(trainer, resume=self.mode["resume"])
        seconds = time.monotonic() - started
        log = [entry for entry in done.history if "reward" in entry]
        gather = trainer.accelerator.get_state_dict
        whole = gather(trainer.model_wrapped) if training.is_sharded() else None
        if is_main():
            write_json(run.output / "log.json", log)
            # of this task: on other texts training may have changed less than the 4 bits
            save_adapter(model, tokenizer, run.output / "adapter", whole, rows["prompt"][:4])
        trainer.accelerator.wait_for_everyone()
        if done.interrupted:
            if is_main():
                step = f"{trainer.state.global_step} of {run.max_steps}"
                said = f"\nInterrupted: stopped after step {step}. The same command with"
                print(said, "--resume continues from there.", file=sys.stderr)
            raise SystemExit(130)
        # with the time before the interruption
        seconds += sum(e["step_time"] for e in log if e["step"] <= done.resumed_from_step)
        told = {"resumed_from_step": done.resumed_from_step, "train_seconds": round(seconds, 1)}
        return done.history, told


def merged(job: Job, policy) -> dict:
    """The merge's proof. Raises WorkbookError for a bad merge, and for a GPU that is too small."""
    import torch

    run, adapter, folder = job.run, job.run.output / "adapter", job.run.output / "merged"
    print("Merging the adapter into 16-bit weights and proving it")
    how = {"heldout": job.heldout, "policy": policy, "judge": job.judge}
    how |= {"max_new_tokens": run.max_completion_length, "batch_size": run.eval_batch}
    try:
        proof = merge(run.model, adapter, folder, **how)
    except torch.OutOfMemoryError:
        again = f"python -m grpo_workbook merge {readable(adapter)} --output {readable(folder)}"
        said = "the GPU's memory is full while merging; all else is saved. To merge on the CPU:"
        raise WorkbookError(f"{said} CUDA_VISIBLE_DEVICES= {again}") from None
    return proof


def measure(job: Job, model, tokenizer, path: Path, kept: dict | None = None) -> dict[str, Scores]:
    """The scores on the held-out problems, by way of decoding; the main process writes `path`.

    `kept` is the content of such a file: then nothing is generated.
    """
    run, heldout = job.run, job.heldout
    asked = {name: list(heldout[name]) for name in ("question", "answer")}
    if kept:
        if kept["answer"] != asked["answer"]:
            said = f"{path} is not about these {len(heldout)} problems"
            raise WorkbookError(f"{said}: delete the output folder, and run again")
        scores = {}
        for way in ("sampled", "greedy"):
            scores[way] = evaluation.score(
                kept[way], asked["answer"], judge=job.judge, prompts=list(heldout["prompt"])
            )
        return scores
    scores = evaluation.measure(
        model,
        tokenizer,
        heldout,
        judge=job.judge,
        max_new_tokens=run.max_completion_length,
        batch_size=run.eval_batch,
        seed=run.seed,
    )
    if is_main():
        texts = {way: scores[way].completions for way in scores}
        write_json(path, {**texts, "kind": "text" if job.judge else "number", **asked})
    return scores


def parts(output: Path) -> list[str]:
    """The files and folders of a run in this folder."""
    return [name for name in PARTS.split() if (output / name).exists()]


def check_folder(output: Path, identity: dict, *, overwrite: bool, resume: bool) -> None:
    """Raise WorkbookError if the folder holds another run, or one that must not be replaced."""
    if output.is_file():
        raise WorkbookError(f"the output {output} is a file: give a folder with --output")
    present, other = ", ".join(parts(output)), "choose another folder with --output"
    if not present or (overwrite and (output / "run.json").exists()):
        return
    if overwrite:
        raise WorkbookError(f"{output} has {present} but no run.json, so it is not a run: {other}")
    if not resume:
        how = "continue it with --resume, replace it with --overwrite"
        raise WorkbookError(f"{output} holds another run ({present}): {how}, or {other}")
    # Settings and overrides are compared one by one; the last two follow from the rewards.
    told = "settings overrides reward_weights reward_roles".split()
    there = read_json(output / "run.json")
    a, b = ({**x, **x.get("settings", {}), **x.get("overrides", {})} for x in (there, identity))
    if different := [name for name in a | b if name not in told and a.get(name) != b.get(name)]:
        said = f"{output} holds another run (different: {', '.join(different)})"
        fix = "give its options to --resume it, or replace it with --overwrite"
        raise WorkbookError(f"{said}: {fix}")


@contextmanager
def own_folder(output: Path, identity: dict, *, overwrite: bool, resume: bool):
    """Lock the folder for the block, check it again, clear it of the old run, write run.json."""
    with alone(output):
        check_folder(output, identity, overwrite=overwrite, resume=resume)
        if resume and not parts(output):  # perhaps a misspelt name
            print(f"{output} holds no run yet: a new one starts")
        for path in [output / name for name in parts(output) if not resume]:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        output.mkdir(parents=True, exist_ok=True)
        write_json(output / "run.json", identity)
        yield
