"""Measure any model on held-out problems; compare it with an earlier measurement.

examples:
  python -m grpo_workbook evaluate qwen --data test.jsonl --output outputs/base
  python -m grpo_workbook evaluate qwen --adapter outputs/run/adapter \\
      --data test.jsonl --output outputs/after --baseline outputs/base

The same command continues an evaluation that was stopped.
"""

from pathlib import Path

from grpo_workbook import data, models, statistics
from grpo_workbook.cli import READING, option
from grpo_workbook.cli.report import change, versions
from grpo_workbook.cli.rewards import judge_for
from grpo_workbook.config import SYSTEM_PROMPT, find_device, find_model
from grpo_workbook.errors import WorkbookError, wrap
from grpo_workbook.evaluation import evaluate
from grpo_workbook.files import alone, read_json, readable, write_json

MEASURES = ("strict", "lenient", "well_formed")
FILES = ("report.json", "results.jsonl")  # of a finished evaluation
MOST = 1_000_000  # completions of one evaluation
SAME = ("samples", "sample", "temperature", "max_new_tokens", "system_prompt", "dtype")
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


def main(args) -> int:
    """Evaluate, report, print the numbers. Raises WorkbookError for bad input."""
    data.reading.find_file(args.data)  # before the libraries are loaded
    several, out, heat = args.samples > 1, args.output, args.temperature
    heat = float(several) if heat is None else heat  # by default greedy for one sample
    for name in ("samples", "items", "max_new_tokens", "batch_size"):
        if (value := getattr(args, name)) is not None and value < 1:
            raise WorkbookError(f"--{name.replace('_', '-')} is {value}: it must be at least 1")
    if not heat >= 0 or (several and heat == 0):
        raise WorkbookError(f"--temperature is {heat}: 0 is greedy, several --samples need more")
    if (old := args.baseline) and not all((old / name).is_file() for name in FILES):
        raise WorkbookError(f"the baseline {old} is not there, or is not finished: run its command")
    known = read_json(old / "report.json") if old else {}
    with alone(out):
        begun = (out / "completions.jsonl").is_file()
        if out.is_file() or (not begun and out.is_dir() and any(out.iterdir())):
            raise WorkbookError(f"{readable(out)} holds other files: choose another --output")
        for name in ("completions.jsonl", "report.json") if args.overwrite else ():
            (out / name).unlink(missing_ok=True)
        how = {"sample": heat > 0, "temperature": heat or 1.0, "seed": args.seed}
        how |= {"max_new_tokens": args.max_new_tokens, "batch_size": args.batch_size}
        report, table = _measure(args, how)
        if old:
            import pandas

            before = pandas.read_json(old / "results.jsonl", lines=True, dtype=False)
            report["baseline"] = compare(known, before, report, table)
        text = _as_markdown(report)
        table.to_json(out / "results.jsonl", orient="records", lines=True, force_ascii=False)
        (out / "report.md").write_text(text, encoding="utf-8")
        write_json(out / "report.json", report)  # written last: it marks a finished evaluation
    print(f"{text}\nIn {readable(out)}: report.md, report.json, results.jsonl (every completion)")
    return 0


def _measure(args, how: dict) -> tuple:
    """(the report, the table of all completions)."""
    model, adapter, note = find_model(args.model), None, None
    if args.adapter:
        adapter, note = models.find_adapter(args.adapter, model)
    reading = ("question_column", "answer_column", "answers", "skip_invalid")
    rows = data.load_problems(args.data, **{name: getattr(args, name) for name in reading})
    rows = rows.select(range(min(args.items or len(rows), len(rows))))
    if (count := len(rows) * args.samples) > MOST:
        said = f"{len(rows):,} problems with {args.samples:,} --samples each are {count:,}"
        raise WorkbookError(f"{said} completions, at most {MOST:,}: give fewer, or fewer --items")
    import torch

    device = find_device()[0]
    half = "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float16"
    where = {"dtype": "float32" if device == "cpu" else half, "device": device}
    where["load_in_4bit"] = args.load_in_4bit
    loaded, tokenizer = models.load_model(model, adapter, any_base=args.any_base, **where)
    system = SYSTEM_PROMPT if args.system_prompt is None else args.system_prompt
    dataset = data.to_dataset(rows, system, fold=data.prompts.needs_folding(tokenizer))
    longest = max(data.prompts.prompt_lengths(dataset, tokenizer)) + args.max_new_tokens
    models.check_positions(loaded, longest, "remove the long prompts, or lower --max-new-tokens")
    more = {"samples": args.samples, "judge": judge_for(args.answers), "progress": "answering"}
    more["completions_file"] = args.output / "completions.jsonl"
    try:
        scores = evaluate(loaded, tokenizer, dataset, **more, **how)
    except torch.OutOfMemoryError:
        raise WorkbookError("the GPU's memory is full: give a smaller --batch-size") from None
    table = scores.table(dataset)
    report = {"model": readable(model), "model_hash": models.fingerprint(model)}
    report |= {"adapter": adapter and readable(adapter), "data": readable(args.data)}
    report |= {
        "adapter_hash": models.fingerprint(adapter),
        "data_sha256": data.splitting.sha256_of(rows),
    }
    report |= {"samples": args.samples, "system_prompt": system, "versions": versions()}
    report |= {**how, **where, **numbers(table)}
    notes = {note: note, f"{scores.unjudged} answers could not be judged in time": scores.unjudged}
    notes["many completions were cut off: raise --max-new-tokens"] = report["cut_off"] > 0.05
    return report | {"notes": [words for words, true in notes.items() if true]}, table


def numbers(table) -> dict:
    """The report's numbers of `Scores.table`: rates with intervals, tokens, pass@k."""
    problems, samples = table.groupby("problem"), int(table["sample"].max()) + 1
    found: dict = {"n": len(problems), "cut_off": round(1 - float(table["ended"].mean()), 4)}
    found |= {"tokens": round(float(table["tokens"].mean()), 2), "pass_at_k": {}}
    right = problems["lenient"].sum().astype(int)
    for k in sorted({2**i for i in range(samples.bit_length())} | {samples}):  # 1, 2, 4 ... and all
        found["pass_at_k"][k] = rate([statistics.pass_at_k(samples, n, k) for n in right])
    return found | {name: rate(problems[name].mean()) for name in MEASURES}


def rate(values) -> dict[str, float]:
    """{"rate", "low", "high"}: the mean of the problems' rates with its 95 % interval."""
    yes_or_no = set(values) <= {0, 1}
    interval = statistics.wilson_interval if yes_or_no else statistics.bootstrap_interval
    low, high = (round(value, 4) for value in interval(values))
    return {"rate": statistics.accuracy(values), "low": low, "high": high}


def compare(old: dict, before, new: dict, after) -> dict:
    """The baseline's numbers, the paired difference of each measure, and a verdict.

    The test uses the first sample of each problem, the interval all samples. Raises WorkbookError
    if the two did not answer the same problems.
    """
    if old["data_sha256"] != new["data_sha256"]:
        raise WorkbookError("the baseline answered other problems: measure both on the same --data")
    if different := [name for name in SAME if old[name] != new[name]]:
        new["notes"].append(f"the baseline has other settings: {', '.join(different)}")
    found = {name: old[name] for name in ("model", "adapter", "adapter_hash", *MEASURES)}
    found |= {"comparison": {}, "verdict": []}
    for name in MEASURES:
        b, a = (table.groupby("problem")[name] for table in (before, after))
        gains, firsts = a.mean() - b.mean(), (b.first(), a.first())
        better, worse = map(len, statistics.changed(*firsts))
        low, high = (round(end, 4) for end in statistics.bootstrap_interval(gains))
        p, gain = statistics.paired_p_value(*firsts), round(float(gains.mean()), 4)
        told = {"difference": gain, "low": low, "high": high, "p_value": p}
        found["comparison"][name] = told | {"better": better, "worse": worse}
        said = change(name.replace("_", "-"), old[name]["rate"], new[name]["rate"], p)
        first = " by their first sample" if new["samples"] > 1 else ""
        found["verdict"].append(f"{said}; {better} got better{first}, {worse} worse")
    return found


def _as_markdown(report: dict) -> str:
    """The numbers as Markdown, narrow enough for a terminal."""
    name = report["model"] + (f" with {report['adapter']}" if report["adapter"] else "")
    how = f"temperature {report['temperature']:g}" if report["sample"] else "greedy"
    rows = {name.replace("_", "-"): report[name] for name in MEASURES}
    if (each := report["samples"]) > 1:
        rows |= {f"pass@{k}, lenient": one for k, one in report["pass_at_k"].items()}
    asked = f"{report['n']} problems of {report['data']}, {each} sample{'s' * (each > 1)} each"
    lines = [f"# Evaluation of {name}", "", f"{asked}, {how}", ""]
    lines += ["| | rate | 95 % interval |", "| --- | --- | --- |"]
    form = "| {} | {rate:.1%} | {low:.1%} to {high:.1%} |"
    lines += [*(form.format(word, **one) for word, one in rows.items()), ""]
    said = [f"{report['tokens']:g} tokens on average, {report['cut_off']:.1%} cut off"]
    said += [*report.get("baseline", {}).get("verdict", ()), *report["notes"]]
    lines += [line for text in said for line in wrap(text, 80, "- ")]
    return "\n".join([*lines, ""])
