"""Measure any model on held-out problems; compare it with an earlier measurement.

examples:
  python -m grpo_workbook evaluate qwen --data test.jsonl --output outputs/base
  python -m grpo_workbook evaluate qwen --adapter outputs/run/adapter \\
      --data test.jsonl --output outputs/after --baseline outputs/base
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_workbook import evaluation, models, statistics
from grpo_workbook.cli import READING, option
from grpo_workbook.cli.report import verdict, versions
from grpo_workbook.cli.rewards import judge_for
from grpo_workbook.config import SYSTEM_PROMPT, find_device, find_model
from grpo_workbook.data import load_problems, prompts, splitting, to_dataset
from grpo_workbook.data.reading import find_file
from grpo_workbook.errors import WorkbookError, wrap
from grpo_workbook.evaluation import Scores
from grpo_workbook.files import read_json, readable, write_json

if TYPE_CHECKING:
    from datasets import Dataset

# What must be the same for both sides of a comparison; else the report says so.
SETTINGS = ("sample", "temperature", "max_new_tokens", "system_prompt", "dtype")
OPTIONS = [
    option("model", metavar="MODEL", help="a family (qwen, gemma), a folder or a hub id"),
    option("--data", metavar="SOURCE", required=True, help=".jsonl, .csv, .parquet or a hub id"),
    *READING,
    option("--answers", choices=("number", "text"), default="number", help="default number"),
    option("--items", type=int, metavar="N", help="only the first N problems"),
    option("--adapter", metavar="DIR", help="a LoRA adapter on top of MODEL"),
    option("--any-base", action="store_true", help="use the adapter on another base than its own"),
    option("--load-in-4bit", action="store_true", help="as in training; default 16 or 32 bit"),
    option("--system-prompt", metavar="TEXT", help="default: the course's; '' for none"),
    option("--samples", type=int, default=1, metavar="N", help="answers to each problem (1)"),
    option("--temperature", type=float, metavar="X", help="default 0 (greedy); 1 for --samples"),
    option("--seed", type=int, default=0, metavar="N"),
    option("--max-new-tokens", type=int, default=256, metavar="N", help="default 256"),
    option("--batch-size", type=int, default=32, metavar="N", help="default 32"),
    option("--output", type=Path, default=Path("outputs/evaluation"), metavar="DIR"),
    option("--baseline", type=Path, metavar="DIR", help="an earlier --output, to compare with"),
    option("--overwrite", action="store_true", help="replace an earlier evaluation"),
]


@dataclass
class Policy:
    """What is measured."""

    model: Any
    tokenizer: Any
    facts: dict[str, Any]  # what it is, for the report
    other_base: str | None  # a sentence if the adapter was trained on another base


def main(args: argparse.Namespace) -> int:
    """Evaluate, report, print the numbers. Raises WorkbookError for bad input."""
    find_file(args.data)  # before the libraries are loaded
    check_options(args)
    check_output(args.output, args.overwrite)
    # The baseline is read before the model is loaded, so that a wrong folder is found at once.
    baseline = None
    if args.baseline:
        baseline = read_evaluation(args.baseline)

    rows = read_problems(args)
    policy = load_policy(args)
    dataset = make_prompts(rows, args, policy)
    scores = answer(dataset, args, policy)
    report = make_report(rows, scores, args, policy)
    if baseline:
        report = {**report, **compare_with(*baseline, report, scores)}
    write_evaluation(args.output, report, scores.table(dataset))
    print(as_markdown(report))
    print(f"In {readable(args.output)}: report.md, report.json, results.jsonl (every completion)")
    return 0


def check_options(args: argparse.Namespace) -> None:
    """Set the defaults that depend on others. Raises WorkbookError for impossible numbers."""
    for name in ("samples", "items", "max_new_tokens", "batch_size"):
        value = vars(args)[name]
        if value is not None and value < 1:
            raise WorkbookError(f"--{name.replace('_', '-')} is {value}: it must be at least 1")
    if args.system_prompt is None:
        args.system_prompt = SYSTEM_PROMPT
    if args.temperature is None:
        args.temperature = 1.0 if args.samples > 1 else 0.0
    greedy = args.temperature == 0
    # Written so that NaN is refused as well.
    if not args.temperature >= 0 or (args.samples > 1 and greedy):
        raise WorkbookError(
            f"--temperature is {args.temperature}: 0 is greedy, several --samples need more"
        )


def check_output(folder: Path, overwrite: bool) -> None:
    """Raise WorkbookError if the folder has files that must not be replaced."""
    if (folder / "report.json").is_file():
        if not overwrite:
            raise WorkbookError(
                f"{readable(folder)} holds an evaluation: replace it with --overwrite, or choose "
                "another --output"
            )
    elif folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise WorkbookError(f"{readable(folder)} holds other files: choose another --output")


def read_problems(args: argparse.Namespace) -> "Dataset":
    """The problems to answer. Raises WorkbookError for bad data."""
    rows = load_problems(
        args.data,
        question_column=args.question_column,
        answer_column=args.answer_column,
        answers=args.answers,
        skip_invalid=args.skip_invalid,
    )
    if args.items:
        rows = rows.select(range(min(args.items, len(rows))))
    return rows


def load_policy(args: argparse.Namespace) -> Policy:
    """The model, with its adapter if there is one, on the GPU if there is one."""
    import torch

    name = find_model(args.model)
    adapter, other_base = None, None
    if args.adapter:
        adapter, other_base = models.find_adapter(args.adapter, name)
    device = find_device()[0]
    dtype = "float32"
    if device != "cpu":
        dtype = "float16"
        # By default torch counts emulated bfloat16, too, as on a T4.
        if torch.cuda.is_bf16_supported(including_emulation=False):
            dtype = "bfloat16"
    model, tokenizer = models.load_model(
        name,
        adapter,
        dtype=dtype,
        device=device,
        load_in_4bit=args.load_in_4bit,
        any_base=args.any_base,
    )
    facts = {
        "model": readable(name),
        "model_hash": models.fingerprint(name),
        "adapter": None,
        "adapter_hash": models.fingerprint(adapter),
        "dtype": dtype,
        "device": device,
        "load_in_4bit": args.load_in_4bit,
    }
    if adapter:
        facts["adapter"] = readable(adapter)
    return Policy(model, tokenizer, facts, other_base)


def make_prompts(rows: "Dataset", args: argparse.Namespace, policy: Policy) -> "Dataset":
    """The problems with their prompts. Raises WorkbookError if one is too long for the model."""
    # As in training, so that a run and this command ask the same.
    fold = prompts.needs_folding(policy.tokenizer)
    dataset = to_dataset(rows, args.system_prompt, fold=fold)
    longest = max(prompts.prompt_lengths(dataset, policy.tokenizer)) + args.max_new_tokens
    fix = "remove the long prompts, or lower --max-new-tokens"
    models.check_positions(policy.model, longest, fix)
    return dataset


def answer(dataset: "Dataset", args: argparse.Namespace, policy: Policy) -> Scores:
    """Let the model answer. Raises WorkbookError if the GPU's memory is full."""
    import torch

    try:
        return evaluation.evaluate(
            policy.model,
            policy.tokenizer,
            dataset,
            judge=judge_for(args.answers),
            samples=args.samples,
            sample=args.temperature > 0,
            temperature=args.temperature or 1.0,  # greedily it has no effect
            max_new_tokens=args.max_new_tokens,
            batch_size=args.batch_size,
            seed=args.seed,
            progress="answering",
        )
    except torch.OutOfMemoryError:
        raise WorkbookError("the GPU's memory is full: give a smaller --batch-size") from None


def make_report(
    rows: "Dataset", scores: Scores, args: argparse.Namespace, policy: Policy
) -> dict[str, Any]:
    """All that a reader needs to measure the same again, and the numbers."""
    return {
        **policy.facts,
        "data": readable(args.data),
        # A comparison looks at the content: the same problems may be in another file.
        "data_sha256": splitting.sha256_of(rows.to_list()),
        "system_prompt": args.system_prompt,
        "samples": args.samples,
        "sample": args.temperature > 0,
        "temperature": args.temperature or 1.0,
        "max_new_tokens": args.max_new_tokens,
        "batch_size": args.batch_size,
        "seed": args.seed,
        "versions": versions(),
        **numbers(scores),
        "notes": notes(scores, policy.other_base),
    }


def numbers(scores: Scores) -> dict[str, Any]:
    """The report's numbers: rates with intervals, lengths, pass@k of lenient answers."""
    result: dict[str, Any] = {
        "n": scores.n,
        "tokens": round(sum(scores.tokens) / len(scores.tokens), 2),
        "cut_off": round(1 - sum(scores.ended) / len(scores.ended), 4),
    }
    for name, right in scores.measures.items():
        result[name] = rate_of(evaluation.by_problem(right, scores.samples))

    # bit_length gives the powers of two up to the number of samples.
    sizes = [2**i for i in range(scores.samples.bit_length())]  # 1, 2, 4 ... and all samples
    if scores.samples not in sizes:
        sizes.append(scores.samples)
    result["pass_at_k"] = {}
    for k in sizes:
        rates = []
        for rate in evaluation.by_problem(scores.lenient, scores.samples):
            # pass@k takes the number of right samples, and `by_problem` gives their rate.
            right = round(rate * scores.samples)
            rates.append(statistics.pass_at_k(scores.samples, right, k))
        result["pass_at_k"][k] = rate_of(rates)
    return result


def rate_of(rates: list[float]) -> dict[str, Any]:
    """The mean of the problems' rates with its 95 % interval."""
    return {"rate": statistics.accuracy(rates), "interval": evaluation.rate_interval(rates)}


def notes(scores: Scores, other_base: str | None) -> list[str]:
    """What a reader of the numbers should know."""
    result = []
    if other_base:
        result.append(other_base)
    if scores.unjudged:
        result.append(f"{scores.unjudged} answers could not be judged in time")
    if sum(scores.ended) < 0.95 * len(scores.ended):
        result.append("many completions were cut off: raise --max-new-tokens")
    return result


def read_evaluation(folder: Path) -> tuple[dict[str, Any], Scores]:
    """(report, scores) of an earlier evaluation. Raises WorkbookError if it is not finished."""
    # report.json is written last, so that it marks a finished evaluation.
    if not ((folder / "report.json").is_file() and (folder / "results.jsonl").is_file()):
        raise WorkbookError(f"the baseline {folder} is not there, or is not finished: measure it")
    report = read_json(folder / "report.json")
    # Completions, strict, lenient, well-formed: filled below. A comparison needs no lengths.
    scores = Scores([], [], [], [], samples=report["samples"])
    with (folder / "results.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            scores.completions.append(row["completions"])
            for name, right in scores.measures.items():
                right.append(row[name])
    return report, scores


def compare_with(
    baseline: dict[str, Any], before: Scores, report: dict[str, Any], after: Scores
) -> dict[str, Any]:
    """What a comparison with the baseline adds to the report.

    Raises WorkbookError if the two did not answer the same problems.
    """
    if baseline["data_sha256"] != report["data_sha256"]:
        raise WorkbookError("the baseline answered other problems: measure both on the same --data")
    notes = list(report["notes"])
    different = [name for name in SETTINGS if baseline[name] != report[name]]
    if different:
        notes.append(f"the baseline has other settings: {', '.join(different)}")
    # `report_heldout` takes scores by way of decoding. Here each side has one way.
    way = "sampled" if report["sample"] else "greedy"
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
    (folder / "report.md").write_text(as_markdown(report), encoding="utf-8")
    write_json(folder / "report.json", report)


def as_markdown(report: dict[str, Any]) -> str:
    """The numbers as Markdown, narrow enough for a terminal."""
    name = report["model"]
    if report["adapter"]:
        name = f"{name} with {report['adapter']}"
    decoding = "greedy"
    if report["sample"]:
        decoding = f"temperature {report['temperature']:g}"
    samples = "1 sample"
    if report["samples"] > 1:
        samples = f"{report['samples']} samples"
    lines = [
        f"# Evaluation of {name}",
        "",
        f"{report['n']} problems of {report['data']}, {samples} each, {decoding}",
        "",
        "| | rate | 95 % interval |",
        "| --- | --- | --- |",
    ]
    rates = {name.replace("_", "-"): report[name] for name in ("strict", "lenient", "well_formed")}
    if report["samples"] > 1:
        for k, rate in report["pass_at_k"].items():
            rates[f"pass@{k}, lenient"] = rate
    for label, rate in rates.items():
        low, high = rate["interval"]
        lines.append(f"| {label} | {rate['rate']:.1%} | {low:.1%} to {high:.1%} |")
    lines.append("")

    sentences = [f"{report['tokens']:g} tokens on average, {report['cut_off']:.1%} cut off"]
    sentences += report.get("verdict", [])
    sentences += report["notes"]
    for sentence in sentences:
        lines += wrap(sentence, 80, "- ")
    return "\n".join([*lines, ""])
