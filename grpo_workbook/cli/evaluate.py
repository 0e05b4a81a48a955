"""`python -m grpo_workbook evaluate`: measure a model, and compare it with an earlier report."""

import argparse
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_workbook import statistics
from grpo_workbook.errors import WorkbookError
from grpo_workbook.evaluation import Sampling, evaluate
from grpo_workbook.files import alone, read_json, readable, write_json

if TYPE_CHECKING:
    from pandas import DataFrame

MEASURES = {"strict": "strict", "lenient": "lenient", "well_formed": "well-formed"}
SAME = ("samples", "sample", "temperature", "max_new_tokens", "system_prompt", "dtype")
FILES = "completions.jsonl results.jsonl report.json report.md report.png report.txt".split()
SHOWN = 10  # changed problems of each kind in report.md
EXAMPLES = """examples:
  python -m grpo_workbook evaluate qwen --data test.jsonl --output outputs/base
  python -m grpo_workbook evaluate qwen --adapter outputs/run/adapter \\
      --data test.jsonl --output outputs/after --baseline outputs/base
  python -m grpo_workbook evaluate Qwen/Qwen3-0.6B --samples 8 --items 200 \\
      --data openai/gsm8k:main:test --output outputs/gsm8k

A run that was stopped goes on when the same command is given again.
"""


def add_parser(commands) -> None:
    """Add evaluate to the command line."""
    parser = commands.add_parser(
        "evaluate",
        help="measure any model on held-out problems, compare it with a baseline",
        description="Measure a model: accuracy with intervals, pass@k, majority vote,\n"
        "and a paired comparison with a baseline.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add, how = parser.add_argument, Sampling()
    add("model", metavar="MODEL", help="a family (qwen, gemma), a folder or a hub id")
    add("--data", metavar="SOURCE", required=True, help=".jsonl, .csv, .parquet or a hub id")
    add("--question-column", default="question", metavar="NAME", help="default question")
    add("--answer-column", default="answer", metavar="NAME", help="default answer")
    add("--answers", choices=("number", "text"), default="number", help="default number")
    add("--skip-invalid", action="store_true", help="leave out invalid rows")
    add("--items", type=int, metavar="N", help="only the first N problems")
    add("--adapter", metavar="DIR", help="a LoRA adapter on top of MODEL")
    add("--any-base", action="store_true", help="measure it on another base than its own")
    add("--load-in-4bit", action="store_true", help="as it was trained; default 16 or 32 bit")
    add("--system-prompt", metavar="TEXT", help="default: the course's; '' for none")
    add("--samples", type=int, default=1, metavar="N", help="answers to each problem (default 1)")
    add("--temperature", type=float, metavar="X", help="default 0 (greedy) for one, 1 for several")
    add("--seed", type=int, default=how.seed, metavar="N")
    add("--max-new-tokens", type=int, default=how.max_new_tokens, metavar="N", help="default 256")
    add("--batch-size", type=int, default=how.batch_size, metavar="N", help="default 32")
    add("--output", type=Path, default=Path("outputs/evaluation"), metavar="DIR")
    add("--baseline", type=Path, metavar="DIR", help="the output of another evaluation, to compare")
    add("--overwrite", action="store_true", help="replace the evaluation that is there")


def main(args: argparse.Namespace) -> int:
    """Evaluate, report, print the numbers. Raises WorkbookError for bad input."""
    several, out = args.samples > 1, args.output
    temperature = float(several) if args.temperature is None else args.temperature
    for name in ("samples", "items", "max_new_tokens", "batch_size"):
        if (value := getattr(args, name)) is not None and value < 1:
            raise WorkbookError(f"--{name.replace('_', '-')} is {value}: it must be at least 1")
    if not 0 <= temperature < float("inf") or (several and temperature == 0):
        said = "0 is greedy, several --samples need more"
        raise WorkbookError(f"--temperature is {temperature}: {said}")
    baseline = _read(args.baseline, out) if args.baseline else None
    with alone(out):
        begun = (out / "completions.jsonl").is_file()
        if out.is_file() or (not begun and out.is_dir() and any(out.iterdir())):
            raise WorkbookError(f"{readable(out)} holds something else: name another --output")
        for name in FILES if args.overwrite else ():
            (out / name).unlink(missing_ok=True)
        how = {"sample": temperature > 0, "temperature": temperature or 1.0, "seed": args.seed}
        how |= {"max_new_tokens": args.max_new_tokens, "batch_size": args.batch_size}
        report, table = _measure(args, how)
        if baseline is not None:
            report["baseline"] = compare(*baseline, report, table)
        text = _as_markdown(report)
        changes = _changes(baseline[1], table) if baseline else ""
        _write(out, report, table, text + changes)
    files = "report.md, report.json, report.png, results.jsonl (every completion)"
    print(f"{text}\nIn {readable(out)}: {files}")
    return 0


def _measure(args: argparse.Namespace, how: dict) -> tuple[dict, "DataFrame"]:
    """(the report, a row for each completion)."""
    from grpo_workbook.cli.report import versions
    from grpo_workbook.cli.rewards import judge_for
    from grpo_workbook.config import SYSTEM_PROMPT, find_device
    from grpo_workbook.data import load_problems, needs_folding, sha256_of, to_dataset
    from grpo_workbook.models import find_adapter, find_model, fingerprint, load_model
    from grpo_workbook.notebook import quiet

    model, adapter, note = find_model(args.model), None, None
    if args.adapter:
        adapter, note = find_adapter(args.adapter, model)
    reading = ("question_column", "answer_column", "answers", "skip_invalid")
    rows = load_problems(args.data, **{name: getattr(args, name) for name in reading})
    rows = rows.select(range(min(args.items or len(rows), len(rows))))
    quiet()
    import torch

    device = find_device()[0]
    bfloat16 = device == "cuda" and torch.cuda.is_bf16_supported()
    dtype = "bfloat16" if bfloat16 else "float32" if device == "cpu" else "float16"
    where = {"dtype": dtype, "device": device, "load_in_4bit": args.load_in_4bit}
    loaded, tokenizer = load_model(model, adapter, any_base=args.any_base, **where)
    system = SYSTEM_PROMPT if args.system_prompt is None else args.system_prompt
    dataset = to_dataset(rows, system, fold=needs_folding(tokenizer))
    how_much = {"samples": args.samples, "judge": judge_for(args.answers), "progress": "answering"}
    file = args.output / "completions.jsonl"
    try:
        scores = evaluate(loaded, tokenizer, dataset, completions_file=file, **how_much, **how)
    except torch.OutOfMemoryError:
        raise WorkbookError(
            "the GPU's memory is full: a smaller --batch-size, --overwrite"
        ) from None
    table = scores.table(dataset)
    report = {
        "model": readable(model), "model_hash": fingerprint(model),
        "adapter": adapter and readable(adapter), "adapter_hash": fingerprint(adapter),
        "data": readable(args.data), "data_sha256": sha256_of(rows), "samples": args.samples,
        **how, **where, "system_prompt": system, "versions": versions(), "notes": [],
        **numbers(table),
    }  # fmt: skip
    report["notes"] += [note] if note else []
    if scores.unjudged:
        report["notes"].append(f"{scores.unjudged} answers could not be judged in time")
    if report["cut_off"] > 0.05:
        report["notes"].append("many completions were cut off: raise --max-new-tokens")
    return report, table


def numbers(table: "DataFrame") -> dict:
    """The report's numbers of `Scores.table`: rates with intervals, pass@k and maj@k."""
    from grpo_workbook.answers import extract_answer, lenient_answer, read_answer

    problems = table.groupby("problem")
    means, samples = problems[[*MEASURES, "tokens", "ended"]].mean(), int(table["sample"].max()) + 1

    def vote(row) -> object:  # None abstains
        number = read_answer(lenient_answer(row.completions) or "")
        said = extract_answer(row.completions) if number is None else number
        return "right" if row.lenient else said

    votes = [list(map(vote, part.itertuples())) for _, part in problems]
    ks = sorted({2**i for i in range(samples.bit_length())} | {samples})
    counts = [int(count) for count in problems["lenient"].sum()]
    passed = {k: [statistics.pass_at_k(samples, right, k) for right in counts] for k in ks}
    voted = {k: [statistics.majority_at_k(v, "right", k) for v in votes] for k in ks}
    found = {"n": len(means), **{name: rate(means[name]) for name in MEASURES}}
    found["tokens"] = round(float(means["tokens"].mean()), 2)
    found["cut_off"] = round(float(1 - means["ended"].mean()), 4)
    found["pass_at_k"] = {k: rate(values) for k, values in passed.items()}
    found["majority_at_k"] = {k: rate(values) for k, values in voted.items()}
    return found


def rate(values) -> dict[str, float]:
    """{"rate", "low", "high"}: the mean of the problems' rates with its 95 % interval."""
    values = [float(value) for value in values]
    yes_or_no = all(value in (0, 1) for value in values)
    interval = statistics.wilson_interval if yes_or_no else statistics.bootstrap_interval
    low, high = interval(values)
    mean = sum(values) / len(values)
    return {"rate": round(mean, 4), "low": round(low, 4), "high": round(high, 4)}


def _read(folder: Path, output: Path) -> tuple[dict, "DataFrame"]:
    """(report, table) of a finished evaluation."""
    import pandas

    folder = folder.parent if folder.is_file() else folder
    if folder.resolve() == output.resolve():
        raise WorkbookError(f"the baseline {folder} is the --output itself: name another folder")
    if not all((folder / name).is_file() for name in ("report.json", "results.jsonl")):
        raise WorkbookError(f"the baseline {folder} is no finished evaluation: run its command")
    table = pandas.read_json(folder / "results.jsonl", lines=True, dtype=False)
    return read_json(folder / "report.json"), table


def compare(old: dict, before: "DataFrame", new: dict, after: "DataFrame") -> dict:
    """The baseline's numbers, the paired difference of each measure, and what they allow to say.

    The test looks at the first sample of each problem, the interval at all. Raises WorkbookError
    when both did not answer the same problems.
    """
    if old["data_sha256"] != new["data_sha256"]:
        raise WorkbookError("the baseline answered other problems: measure both on the same --data")
    if different := [name for name in SAME if old[name] != new[name]]:
        new["notes"].append(f"the baseline was measured otherwise: {', '.join(different)}")
    found = {name: old[name] for name in ("model", "adapter", "adapter_hash", *MEASURES)}
    found |= {"comparison": {}, "verdict": []}
    for name, word in MEASURES.items():
        b, a = (table.groupby("problem")[name] for table in (before, after))
        difference, firsts = a.mean() - b.mean(), (b.first(), a.first())
        better, worse = map(len, statistics.changed(*firsts))
        p, interval = statistics.paired_p_value(*firsts), statistics.bootstrap_interval(difference)
        low, high = (round(value, 4) for value in interval)
        told = {"difference": round(float(difference.mean()), 4), "low": low, "high": high}
        found["comparison"][name] = {**told, "better": better, "worse": worse, "p_value": p}
        change = "rose" if told["difference"] > 0 else "fell"
        said = f"{word} {change} from {old[name]['rate']:.1%} to {new[name]['rate']:.1%}"
        said += f" (p = {p:.1g})" if p < 0.01 else f", which may be chance (p = {p:.2g})"
        first = " by their first sample" if new["samples"] > 1 else ""
        found["verdict"].append(f"{said}; {better} got better{first}, {worse} worse")
    return found


def _as_markdown(report: dict) -> str:
    """The numbers, narrow enough for a terminal."""
    base = report.get("baseline", {})
    name = report["model"] + (f" with {report['adapter']}" if report["adapter"] else "")
    how = f"temperature {report['temperature']:g}" if report["sample"] else "greedy"
    samples = f"{report['samples']} sample{'s' * (report['samples'] > 1)} each"
    rows = {word: (report[name], base.get(name)) for name, word in MEASURES.items()}
    if report["samples"] > 1:
        for key, word in (("pass_at_k", "pass"), ("majority_at_k", "maj")):
            rows |= {f"{word}@{k}, lenient": (one, None) for k, one in report[key].items()}
    lines = [f"# Evaluation of {name}", ""]
    lines += [f"{report['n']} problems of {report['data']}, {samples}, {how}", ""]
    lines += ["| | rate | 95 % interval |" + " baseline |" * bool(base)]
    lines += ["| --- " * (3 + bool(base)) + "|"]
    for word, (one, before) in rows.items():
        was = f" {before['rate']:.1%} |" if before else " |" * bool(base)
        span = f"{one['low']:.1%} to {one['high']:.1%}"
        lines.append(f"| {word} | {one['rate']:.1%} | {span} |{was}")
    said = [f"{report['tokens']:g} tokens on average, {report['cut_off']:.1%} cut off"]
    said += [*base.get("verdict", ()), *report["notes"]]
    wrapped = [textwrap.fill(f"- {text}", 80, subsequent_indent="  ") for text in said]
    return "\n".join([*lines, "", *wrapped, ""])


def _changes(before: "DataFrame", after: "DataFrame") -> str:
    """The problems whose first sample is strictly right in one of the two only."""
    b, a = (table.groupby("problem").first() for table in (before, after))
    better, worse = statistics.changed(b["strict"], a["strict"])
    lines = []
    for kind, places in (("worse", worse), ("better", better)):
        lines += ["", f"## Got {kind}: {len(places)}", ""]
        for i in places[:SHOWN]:
            texts = [" ".join(t["completions"][i].split())[:200] for t in (b, a)]
            lines.append(f"- {a['question'][i]} (right: {a['answer'][i]})")
            lines += ["  - before: `{}`\n  - after: `{}`".format(*texts)]
    return "\n".join([*lines, ""])


def _write(folder: Path, report: dict, table: "DataFrame", text: str) -> None:
    """report.json, report.md, report.png and results.jsonl, which holds every completion."""
    from grpo_workbook.figures import bar_chart, save

    sides = {"baseline": report.get("baseline"), "this model": report}
    sides = {name: side for name, side in sides.items() if side}
    bars = {name: [side[m]["rate"] for m in MEASURES] for name, side in sides.items()}
    ci = {name: (side["strict"]["low"], side["strict"]["high"]) for name, side in sides.items()}
    look = {"y": "rate", "title": f"{report['n']} problems", "form": ".0%", "ci": ci}
    save(*bar_chart(bars, list(MEASURES.values()), **look), folder / "report.png")
    table.to_json(folder / "results.jsonl", orient="records", lines=True, force_ascii=False)
    (folder / "report.md").write_text(text, encoding="utf-8")
    write_json(folder / "report.json", report)  # the last one: where it is, all is
