"""Measure any model on held-out problems; compare it with an earlier measurement.

Greedy with one answer to each problem, at temperature 1 with several. --output
gets report.json and results.jsonl, which has every completion. Pictures in a
column image or images are shown to a model with vision.

examples:
  python -m grpo_workbook evaluate qwen --data test.jsonl --output outputs/base
  python -m grpo_workbook evaluate qwen --adapter outputs/run/adapter \\
      --data test.jsonl --output outputs/after --baseline outputs/base
  python -m grpo_workbook evaluate Qwen/Qwen3-4B --data test.jsonl \\
      --thinking --thinking-budget 512 --max-new-tokens 1024
"""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_workbook import evaluation, models, statistics
from grpo_workbook.cli import READING, option
from grpo_workbook.cli.report import verdict, versions
from grpo_workbook.cli.rewards import judge_for
from grpo_workbook.config import (
    CHAT_TEMPLATE_KWARGS,
    SYSTEM_PROMPT,
    Profile,
    check_thinking,
    choose_profile,
)
from grpo_workbook.data import load_problems, prompts, splitting, to_dataset
from grpo_workbook.data.reading import find_file
from grpo_workbook.errors import WorkbookError, wrap
from grpo_workbook.evaluation import Scores
from grpo_workbook.export import settings_of_run
from grpo_workbook.files import read_object, readable, write_json
from grpo_workbook.pictures import columns_of_pictures, image_column, picture_numbers

if TYPE_CHECKING:
    from datasets import Dataset

# What must be the same for both sides of a comparison; else the report says so.
SETTINGS = (
    "max_new_tokens",
    "system_prompt",
    "chat_template_kwargs",
    "thinking_budget",
    "dtype",
    "load_in_4bit",
)


def count(text: str) -> int:
    """The value of an option that is a number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def json_object(text: str) -> dict[str, Any]:
    """The value of an option that is an object in JSON."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON object such as '{{\"name\": true}}'")
    return value


OPTIONS = [
    option("model", metavar="MODEL", help="a family (qwen, gemma), a folder or a hub id"),
    option("--data", metavar="SOURCE", required=True, help=".jsonl, .csv, .parquet or a hub id"),
    *READING,
    option("--answers", choices=("number", "text"), default="number", help="default number"),
    option("--subset", metavar="COLUMN", help="only problems in which this column is true"),
    option("--items", type=count, metavar="N", help="only the first N problems"),
    option("--adapter", metavar="DIR", help="a LoRA adapter on top of MODEL"),
    option("--load-in-4bit", action="store_true", help="as in training; default 16 or 32 bit"),
    option(
        "--system-prompt",
        default=SYSTEM_PROMPT,
        metavar="TEXT",
        help="default: the course's; '' for none",
    ),
    option(
        "--chat-template-kwargs",
        type=json_object,
        metavar="JSON",
        help="of the training's GRPOConfig; default: the run's, or thinking off",
    ),
    option(
        "--thinking",
        action=argparse.BooleanOptionalAction,
        help="let a hybrid model think or not; default: as in its run, or not",
    ),
    option(
        "--thinking-budget",
        type=int,
        metavar="N",
        help="close a thought after N tokens, and let the model answer",
    ),
    option("--samples", type=count, default=1, metavar="N", help="answers to each problem (1)"),
    option("--seed", type=int, default=0, metavar="N", help="of the samples"),
    option("--max-new-tokens", type=count, metavar="N", help="default: the run's, or 256"),
    option("--batch-size", type=count, default=32, metavar="N", help="default 32"),
    option("--output", type=Path, default=Path("outputs/evaluation"), metavar="DIR"),
    option("--baseline", type=Path, metavar="DIR", help="an earlier --output, to compare with"),
    option("--overwrite", action="store_true", help="replace an earlier evaluation"),
]


def main(args: argparse.Namespace) -> int:
    """Evaluate, report, print the numbers. Raises WorkbookError for bad input."""
    # All that can be wrong is looked at before the model is loaded.
    find_file(args.data)
    if (args.output / "report.json").is_file() and not args.overwrite:
        raise WorkbookError(
            f"{readable(args.output)} holds an evaluation: replace it with --overwrite, or choose "
            "another --output"
        )
    # Device and dtype are those of a run on this machine.
    profile = choose_profile(model=args.model)
    rows = read_problems(args)
    data_sha256 = splitting.sha256_of(without_pictures(rows))
    baseline = None
    if args.baseline:
        baseline = read_evaluation(args.baseline)
        require_same_problems(baseline[0], data_sha256, args)
    # A merged model lies beside its run's record, as the adapter does.
    trained = settings_of_run(args.adapter or profile.model)
    args.chat_template_kwargs = template_options(args, trained)
    if args.max_new_tokens is None:
        # A shorter limit than in training would cut the thoughts of a run that thinks.
        args.max_new_tokens = trained.get("max_completion_length", 256)
    pictures = image_column(rows) is not None
    evaluation.check_budget(args.thinking_budget, args.max_new_tokens, pictures=pictures)
    check_template(args, profile, pictures=pictures)

    model, tokenizer = models.load_model(
        profile.model,
        args.adapter,
        dtype=profile.dtype,
        device=profile.device,
        load_in_4bit=args.load_in_4bit,
        pictures=pictures,
    )
    dataset = make_prompts(rows, args, tokenizer)
    scores = evaluation.evaluate(
        model,
        tokenizer,
        dataset,
        judge=judge_for(args.answers),
        samples=args.samples,
        sample=args.samples > 1,
        max_new_tokens=args.max_new_tokens,
        batch_size=args.batch_size,
        seed=args.seed,
        chat_template_kwargs=args.chat_template_kwargs,
        thinking_budget=args.thinking_budget,
        progress="answering",
    )
    report = make_report(data_sha256, scores, args, profile)
    if baseline:
        report.update(compare_with(*baseline, report, scores))
    differences = differences_from_run(args, trained)
    if differences:
        report["notes"] = [*report.get("notes", []), *differences]
    write_evaluation(args.output, report, scores.table(dataset))
    show(report, scores)
    print(f"In {readable(args.output)}: report.json, results.jsonl (every completion)")
    return 0


def template_options(args: argparse.Namespace, trained: dict[str, Any]) -> dict[str, Any]:
    """The options of the chat template: the user's, else those of the model's run, else ours.

    `trained` are the settings of the run. Raises WorkbookError if the user's contradict each other.
    """
    if args.chat_template_kwargs is not None:
        if args.thinking is not None:
            check_thinking(args.thinking, args.chat_template_kwargs)
        return args.chat_template_kwargs
    options = CHAT_TEMPLATE_KWARGS
    if "chat_template_kwargs" in trained:
        options = trained["chat_template_kwargs"] or {}  # None: the run had no options
    if args.thinking is not None:
        options = {**options, "enable_thinking": args.thinking}
    return options


def check_template(args: argparse.Namespace, profile: Profile, *, pictures: bool) -> None:
    """Raise WorkbookError if the model's chat template cannot do what the options ask for."""
    if args.thinking is None and args.thinking_budget is None:
        return
    # The tokenizer alone is small, so that this is known before the model is loaded.
    tokenizer = models.load_reader(profile.model, args.adapter, pictures=pictures)
    if args.thinking is not None:
        prompts.require_switch(tokenizer, args.adapter or profile.model_name)
    if args.thinking_budget is None:
        return
    # Without a switch in the template both are the same text: such a model may always think.
    prompt = [prompts.chat_prompt("?", None)]
    options = args.chat_template_kwargs
    asked = prompts.render(prompt, tokenizer, options)
    thinking = prompts.render(prompt, tokenizer, {**options, "enable_thinking": True})
    if asked != thinking:
        raise WorkbookError(
            f"--thinking-budget is {args.thinking_budget}, and thinking is off: give --thinking"
        )


def differences_from_run(args: argparse.Namespace, trained: dict[str, Any]) -> list[str]:
    """A sentence for each setting that gives a policy another prompt than in its training."""
    sentences = []
    for name in ("chat_template_kwargs", "system_prompt"):
        of_run, measured = trained.get(name), vars(args)[name]
        # None, "" and {} are the same: nothing.
        if name in trained and (of_run or measured) and of_run != measured:
            sentences.append(
                f"it was trained with {name} {json.dumps(of_run)} and measured with "
                f"{json.dumps(measured)}: it got another prompt than in training"
            )
    return sentences


def read_problems(args: argparse.Namespace) -> "Dataset":
    """The problems to answer. Raises WorkbookError for bad data."""
    rows = load_problems(
        args.data,
        question_column=args.question_column,
        answer_column=args.answer_column,
        answers=args.answers,
        skip_invalid=args.skip_invalid,
        pictures=True,
    )
    if args.subset:
        rows = splitting.select_true(rows, args.subset)
    if args.items:
        rows = rows.select(range(min(args.items, len(rows))))
    return rows


def make_prompts(rows: "Dataset", args: argparse.Namespace, tokenizer: Any) -> "Dataset":
    """The problems with their prompts, as in training: a run and this command ask the same."""
    fold = prompts.needs_folding(tokenizer)
    return to_dataset(rows, args.system_prompt, fold=fold)


def make_report(
    data_sha256: str, scores: Scores, args: argparse.Namespace, profile: Profile
) -> dict[str, Any]:
    """All that a reader needs to measure the same again, and the numbers."""
    report = {
        # With hashes of their content, because another model may stand in the same folder.
        "model": profile.model_name,
        "model_hash": models.fingerprint(profile.model),
        "adapter": args.adapter,
        "adapter_hash": models.fingerprint(args.adapter),
        "dtype": profile.dtype,
        "device": profile.device,
        "load_in_4bit": args.load_in_4bit,
        "data": readable(args.data),
        "subset": args.subset,
        # A comparison looks at the content: the same problems may be in another file.
        "data_sha256": data_sha256,
        "system_prompt": args.system_prompt,
        "chat_template_kwargs": args.chat_template_kwargs,
        "thinking_budget": args.thinking_budget,
        "samples": args.samples,
        "temperature": 1.0 if args.samples > 1 else 0.0,
        "max_new_tokens": args.max_new_tokens,
        "batch_size": args.batch_size,
        "seed": args.seed,
        "versions": versions(),
        "n": scores.n,
        "tokens": round(sum(scores.tokens) / len(scores.tokens), 2),
        "cut_off": round(1 - sum(scores.ended) / len(scores.ended), 4),
        "thought": round(sum(scores.thoughts) / len(scores.thoughts), 2),  # tokens
        "unjudged": scores.unjudged,
        "pass_at_k": pass_at_k(scores),
    }
    for name, right in scores.measures.items():
        report[name] = rate_of(evaluation.by_problem(right, scores.samples))
    return report


def without_pictures(rows: "Dataset") -> list[dict[str, Any]]:
    """The rows with a number in place of their pictures, which JSON cannot hold."""
    column = image_column(rows)
    if column is None:
        return rows.to_list()
    # The numbers are of the pixels: another picture in the same place must change the hash.
    numbers = picture_numbers(rows)
    columns = {column, *columns_of_pictures(rows)}
    return rows.remove_columns(list(columns)).add_column("picture numbers", numbers).to_list()


def pass_at_k(scores: Scores) -> dict[int, dict[str, Any]]:
    """The rate of problems with a lenient answer among k samples, for k = 1, 2, 4 ..."""
    table = {}
    k = 1
    while k <= scores.samples:
        rates = []
        for rate in evaluation.by_problem(scores.lenient, scores.samples):
            # `by_problem` gives a rate, and the estimator takes the number of right samples.
            right = round(rate * scores.samples)
            rates.append(statistics.pass_at_k(scores.samples, right, k))
        table[k] = rate_of(rates)
        k *= 2
    return table


def rate_of(rates: list[float]) -> dict[str, Any]:
    """The mean of the problems' rates with its 95 % interval."""
    return {"rate": statistics.accuracy(rates), "interval": evaluation.rate_interval(rates)}


def read_evaluation(folder: Path) -> tuple[dict[str, Any], Scores]:
    """(report, scores) of an earlier evaluation. Raises WorkbookError if it is not finished."""
    import pandas as pd

    # report.json is written last, so that it marks a finished evaluation.
    if not ((folder / "report.json").is_file() and (folder / "results.jsonl").is_file()):
        raise WorkbookError(f"the baseline {folder} is not there, or is not finished: measure it")
    report = read_object(folder / "report.json", f"measure {folder} again")
    # By its type: else a completion that is a number would become one.
    table = pd.read_json(folder / "results.jsonl", lines=True, dtype={"completions": str})
    scores = Scores(
        completions=list(table["completions"]),
        strict=list(table["strict"]),
        lenient=list(table["lenient"]),
        well_formed=list(table["well_formed"]),
        samples=report["samples"],
    )
    return report, scores


def require_same_problems(
    baseline: dict[str, Any], data_sha256: str, args: argparse.Namespace
) -> None:
    """Raise WorkbookError unless the baseline answered the problems of this hash as often."""
    if baseline["data_sha256"] != data_sha256:
        raise WorkbookError(
            f"the baseline {args.baseline} answered other problems: measure both on the same "
            "--data, --subset and --items"
        )
    if baseline["samples"] != args.samples:
        raise WorkbookError(
            f"the baseline {args.baseline} has {baseline['samples']} answers to each problem, and "
            f"--samples is {args.samples}: give both the same number"
        )


def compare_with(
    baseline: dict[str, Any], before: Scores, report: dict[str, Any], after: Scores
) -> dict[str, Any]:
    """What a comparison with the baseline adds to the report."""
    notes = []
    different = [name for name in SETTINGS if baseline.get(name) != report.get(name)]
    if different:
        notes.append(f"the baseline has other settings: {', '.join(different)}")
    # `report_heldout` takes scores by way of decoding. Here each side has one way.
    way = "sampled" if report["samples"] > 1 else "greedy"
    heldout = evaluation.report_heldout({way: before}, {way: after})
    identity = {name: baseline[name] for name in ("model", "adapter", "adapter_hash")}
    return {
        "heldout": heldout,
        "verdict": verdict(heldout[way]),
        "baseline": identity,
        "notes": notes,
    }


def write_evaluation(folder: Path, report: dict[str, Any], table: Any) -> None:
    """Write the files; report.json comes last and marks a finished evaluation."""
    folder.mkdir(parents=True, exist_ok=True)
    # If writing is interrupted, no old report must stand beside new results.
    (folder / "report.json").unlink(missing_ok=True)
    table.to_json(folder / "results.jsonl", orient="records", lines=True, force_ascii=False)
    write_json(folder / "report.json", report)


def show(report: dict[str, Any], scores: Scores) -> None:
    """Print the numbers of a report as sentences."""
    name = report["model"]
    if report["adapter"]:
        name = f"{name} with {readable(report['adapter'])}"
    sentences = [
        f"{name}: {scores}",
        f"{report['tokens']:g} tokens on average, {report['cut_off']:.1%} cut off",
    ]
    if report["thought"] > 0:
        sentences.append(f"{report['thought']:g} of the tokens are thoughts")
    if scores.unjudged:
        sentences.append(f"{scores.unjudged} answers could not be judged in time")
    if scores.samples > 1:
        for k, rate in report["pass_at_k"].items():
            low, high = rate["interval"]
            sentences.append(f"pass@{k}, lenient: {rate['rate']:.1%} ({low:.1%} to {high:.1%})")
    for sentence in [*sentences, *report.get("verdict", []), *report.get("notes", [])]:
        print(*wrap(sentence, 80, "- "), sep="\n")
    if "heldout" in report:
        for line in ["", *evaluation.describe_gain(report["heldout"])]:
            print(*wrap(line, 80), sep="\n")
