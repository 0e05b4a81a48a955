"""Describe a data set, and report what would hurt training.

examples:
  python -m grpo_workbook check-data my.csv --answer-column solution
  python -m grpo_workbook check-data train.jsonl --heldout-data test.jsonl

Exit status 0: fine; 2: bad input; 1: something would hurt training: invalid
rows, leaks, second answers, over 5 % repeats, over 20 % of the prompts (or a
held-out one) over the budget, fewer than 64 rows, texts without --answers text.
"""

from collections import Counter
from pathlib import Path

from grpo_workbook.cli import READING, option
from grpo_workbook.data import load_problems, load_tokenizer, to_dataset
from grpo_workbook.data.duplicates import near_duplicates, same_questions, template
from grpo_workbook.data.prompts import needs_folding, prompt_lengths
from grpo_workbook.data.reading import KINDS, find_file
from grpo_workbook.errors import WorkbookError, wrap
from grpo_workbook.files import readable, write_json
from grpo_workbook.rewards.answers import parse_number
from grpo_workbook.run_config import RunConfig

REPEATED, TOO_LONG = 0.05, 0.20  # largest rates of repeated questions, of prompts over the budget
FEWEST = 64  # rows: a model memorizes fewer
PERCENTILES = (0, 5, 25, 50, 75, 95, 99, 100)
OPTIONS = [
    option("source", help=".jsonl, .csv, .parquet or a hub id"),
    option("--heldout-data", metavar="SOURCE", help="look for leaks between the two"),
    *READING,
    option("--answers", choices=KINDS, default="auto", help="what an answer is"),
    option("--model", metavar="M", help="use its tokenizer and chat template"),
    option("--profile", metavar="P", help="use its prompt budget"),
    option("--max-prompt-length", type=int, metavar="N", help="the budget in tokens"),
    option("--json", type=Path, metavar="FILE", help="the report as JSON"),
]


def main(args) -> int:
    """Exit status 0, or 1 when something would hurt training; WorkbookError for bad input."""
    for given in filter(None, (args.source, args.heldout_data)):
        there, kind = find_file(given)  # also through a link or another name of the same file
        if (out := args.json) and (out.is_dir() or (kind and out.exists() and out.samefile(there))):
            raise WorkbookError(f"--json {out} is a folder, or the data: choose another file")
    report, hurts = examine(args)
    for name, value in report.items():
        examples, value = (value, len(value)) if isinstance(value, list) else ([], value)
        told = value if isinstance(value, str) else f"{value:,}"
        _say(f"{name.replace('_', ' '):<28}", told)
        _say("  - ", *examples[:5])
    print("" if hurts else "\nNothing here would hurt training.")
    _say("HURTS: ", *hurts)
    if args.json:
        write_json(args.json, report | {"hurts": hurts, "well": not hurts})
        print(f"\n{readable(args.json)}: the report")
    return 1 if hurts else 0


def _say(head: str, *texts: str) -> None:
    for text in texts:
        print(*wrap(text, 80, head), sep="\n")


def examine(args) -> tuple[dict, list[str]]:
    """(a description of the data, what would hurt training)."""
    limit = args.max_prompt_length
    run = RunConfig.from_env(profile=args.profile, model=args.model, max_prompt_length=limit)
    tokenizer, budget = load_tokenizer(run.model), run.max_prompt_length
    reading = {n: getattr(args, n) for n in ("question_column", "answer_column", "answers")}

    def read(source: str) -> tuple:
        """(facts, rows, the tokens of each prompt, the name of each row)."""
        invalid: dict[int, str] = {}
        rows = load_problems(source, invalid=invalid, **reading)
        prompts = to_dataset(rows, fold=needs_folding(tokenizer))
        tokens = prompt_lengths(prompts, tokenizer)
        name, total = Path(source).name, len(rows) + len(invalid)
        told = [f"row {row}: {why}" for row, why in invalid.items()]
        facts = {"source": name, "rows": total, "invalid": told}
        facts["too_long"] = sum(length > budget for length in tokens)
        called = [f"{name}, row {row}" for row in range(1, total + 1) if row not in invalid]
        return facts, rows, tokens, called

    facts, rows, tokens, called = read(args.source)
    questions, answers, count = rows["question"][:], rows["answer"][:], len(rows)
    same, near = same_questions(questions), near_duplicates(questions)
    other = {a: b for a, b in same.items() if answers[a] != answers[b]}
    [(commonest, times)], tokens = Counter(answers).most_common(1), sorted(tokens)
    report = facts | {
        "columns": ", ".join(rows.column_names),
        "answers": "number" if all(parse_number(a) is not None for a in answers) else "text",
        "same_question": [f"{called[a]} ~ {called[b]}" for a, b in same.items()],
        "other_answer": [f"{called[a]} ~ {called[b]}" for a, b in other.items()],
        "near": [f"{called[a]} ~ {called[b]}" for a, b in near.items()],
        "templates": len({hash(template(question)) for question in questions}),
        "different_answers": len(set(answers)),
        "commonest_answer": f"{commonest:.40} ({times / count:.1%})",
        "budget": budget,
        "prompt_tokens": ", ".join(f"p{p} {tokens[(count - 1) * p // 100]}" for p in PERCENTILES),
    }
    over, long = f"prompts are longer than {budget} tokens", facts["too_long"]
    wrong = 0 if args.skip_invalid else len(facts["invalid"])
    need = "the default rewards of `run` need numbers: if you want texts, give --answers text"
    unasked = report["answers"] == "text" and args.answers != "text"
    harms = {
        f"{wrong:,} rows are invalid: fix or --skip-invalid": wrong,
        f"{len(other):,} questions have a second answer": other,
        f"{len(same):,} rows repeat a question: drop them": len(same) > REPEATED * count,
        f"{long:,} of {count:,} {over} and would be dropped": long > TOO_LONG * count,
        f"{count} rows are too few: a model memorizes them": count < FEWEST,
        f"answers are texts, and {need} here and --rewards symbolic there": unasked,
    }
    if args.heldout_data:
        facts, rows, _, mine = read(args.heldout_data)
        asked, long = rows["question"][:], facts["too_long"]
        also, nearly = same_questions(asked, questions), near_duplicates(asked, questions)
        facts["also_in_training"] = [f"{mine[a]} ~ {called[b]}" for a, b in also.items()]
        facts["nearly_in_training"] = [f"{mine[a]} ~ {called[b]}" for a, b in nearly.items()]
        report |= {f"heldout_{name}": value for name, value in facts.items()}
        leaks = f"{len(also):,} held-out questions are also training questions and {len(nearly):,}"
        harms[f"{leaks} near-duplicates: the held-out score would be too high"] = also or nearly
        harms[f"{long:,} held-out {over}"] = long
        wrong = 0 if args.skip_invalid else len(facts["invalid"])
        harms[f"{wrong:,} held-out rows are invalid: fix or --skip-invalid"] = wrong
    return report, [harm for harm, found in harms.items() if found]
