"""The validation report: what a data set is, and what in it would hurt training.

Findings that hurt (`report.hurts`, exit status 1 of check-data):

- invalid rows, unless they are skipped on purpose
- a held-out question that is also, or nearly, among the training questions
- the same question with different answers
- more than 5 % of the questions repeated
- more than 20 % of the prompts over the budget, or held-out prompts over it
- fewer rows left than 64
- answers that are texts, unless they were asked for: the main run's rewards compare numbers
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from grpo_workbook.data import SYSTEM_PROMPT, prompt_lengths, to_dataset
from grpo_workbook.duplicates import Index, near, same, template, words
from grpo_workbook.lengths import percentiles
from grpo_workbook.problems import ASKED, Loaded
from grpo_workbook.table import column

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

REPEATED = 0.05  # a larger share of repeated questions hurts
TOO_LONG = 0.20  # a larger share of prompts over the budget hurts
FEWEST = 64  # rows: fewer are learned by heart
SHOWN = 5  # examples of each finding
DIVERSITY_ROWS = 20_000  # diversity is counted on so many rows, evenly spaced


@dataclass
class Report:
    """What was found; lengths are in tokens of the model's own tokenizer, chat template included."""

    name: str
    rows: int
    invalid: dict[str, int]
    invalid_examples: list[str]
    answers: str
    answers_reason: str
    columns: list[str]
    duplicates: dict = field(default_factory=dict)
    heldout: dict | None = None
    lengths: dict | None = None
    diversity: dict = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    hurts: list[str] = field(default_factory=list)
    token_counts: Sequence[int] = field(default_factory=list, repr=False)

    def to_dict(self) -> dict:
        """Everything but the length of every single prompt, ready for JSON."""
        return {k: v for k, v in asdict(self).items() if k != "token_counts"} | {
            "well": not self.hurts
        }


def validate(
    loaded: Loaded,
    heldout: Loaded | None = None,
    *,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    max_prompt_length: int | None = None,
    system_prompt: str | None = SYSTEM_PROMPT,
    skip_invalid: bool = False,
) -> Report:
    """The report on data that `problems.load(..., skip_invalid=True)` has read.

    `heldout` is compared with it. With a tokenizer, prompts are measured against `max_prompt_length`.
    """
    report = Report(
        name=loaded.source.name,
        rows=len(loaded.dataset) + loaded.fault_counts.total(),
        invalid=dict(loaded.fault_counts.most_common()),
        invalid_examples=[f"{place}: {fault.text}" for place, fault in loaded.faults[:SHOWN]],
        answers=loaded.kind,
        answers_reason=loaded.kind_reason,
        columns=loaded.dataset.column_names,
        notes=list(loaded.notes),
    )
    _judge_invalid(report, skip_invalid)
    _find_duplicates(report, loaded, heldout)
    report.diversity = diversity(loaded)
    if tokenizer is not None:
        _measure(report, loaded, heldout, tokenizer, max_prompt_length, system_prompt)
    if len(loaded.dataset) < FEWEST:
        report.hurts.append(
            f"{len(loaded.dataset)} rows are few: below {FEWEST} a model learns them by heart"
        )
    return report


def _judge_invalid(report: Report, skip_invalid: bool) -> None:
    invalid = sum(report.invalid.values())
    if invalid and skip_invalid:
        report.notes.append(f"{invalid:,} invalid rows are skipped")
    elif invalid:
        report.hurts.append(
            f"{invalid:,} of {report.rows:,} rows are invalid: mend them, or drop them (--skip-invalid)"
        )
    if report.answers == "text" and report.answers_reason == ASKED:
        report.notes.append(
            "answers are texts: `run` needs rewards that judge them, such as --rewards symbolic"
        )
    elif report.answers == "text":
        report.hurts.append(
            "answers are texts, and the default rewards of `run` need numbers: if texts are meant, say --answers text "
            "here and --rewards symbolic (or your own) there"
        )


def _find_duplicates(report: Report, loaded: Loaded, heldout: Loaded | None) -> None:
    """Repeated questions within the data, and across to the held-out data, from one index over both."""
    count = len(loaded.dataset)
    parts = [column(part.dataset, "question") for part in (loaded, heldout) if part is not None]
    index = Index.of(*parts)
    groups, near_inside = same(index), near(index.head(count))

    def place(row: int) -> str:
        return loaded.place(row) if row < count else heldout.place(row - count)

    inside = [rows for group in groups if len(rows := [r for r in group if r < count]) > 1]
    repeated = sum(len(rows) - 1 for rows in inside)
    conflicts = [rows for rows in inside if len({loaded.dataset[r]["answer"] for r in rows}) > 1]
    report.duplicates = {
        "same_question": repeated,
        "same_question_other_answer": len(conflicts),
        "near": len(near_inside),
        "examples": [f"{place(rows[0])} = {place(rows[1])}" for rows in inside[:SHOWN]]
        + [f"{place(a)} ~ {place(b)}" for a, b in near_inside[:SHOWN]],
    }
    if conflicts:
        first = " and ".join(map(place, conflicts[0][:2]))
        report.hurts.append(
            f"{len(conflicts):,} questions stand there with different answers, such as {first}"
        )
    if repeated > REPEATED * count:
        report.hurts.append(
            f"{repeated:,} rows repeat an earlier question: drop them, they count more than others"
        )
    if heldout is not None:
        twins = {r: g[0] for g in groups if g[0] < count for r in g if r >= count}
        nearly = {b: a for a, b in near(index, boundary=count) if b not in twins}
        report.heldout = {
            "name": heldout.source.name,
            "rows": len(heldout.dataset),
            "invalid": heldout.fault_counts.total(),
            "also_in_training": len(twins),
            "nearly_in_training": len(nearly),
            "examples": [f"{place(r)} = {place(t)}" for r, t in list(twins.items())[:SHOWN]]
            + [f"{place(r)} ~ {place(t)}" for r, t in list(nearly.items())[:SHOWN]],
        }
        if twins or nearly:
            report.hurts.append(
                f"{len(twins):,} held-out questions are also training questions and {len(nearly):,} nearly so: the "
                "held-out score would flatter"
            )


def diversity(loaded: Loaded) -> dict:
    """How different the questions are: distinct n-grams, templates, the commonest openings, the answers.

    distinct_n is the share of different ones among all n-grams of words (Li et al. 2016). Long data is sampled evenly.
    """
    rows = range(0, len(loaded.dataset), -(-len(loaded.dataset) // DIVERSITY_ROWS))
    sample = loaded.dataset if len(rows) == len(loaded.dataset) else loaded.dataset.select(rows)
    grams: dict[int, Counter] = {1: Counter(), 3: Counter()}
    openings, templates = Counter(), set()
    for question in column(sample, "question"):
        found = words(question)
        for n, counter in grams.items():
            counter.update(zip(*(found[i:] for i in range(n)), strict=False))
        openings[" ".join(found[:3])] += 1
        templates.add(hash(template(question)))
    answers = Counter(column(sample, "answer"))
    return {
        "rows": len(rows),
        **{f"distinct_{n}": round(len(c) / max(1, c.total()), 3) for n, c in grams.items()},
        "templates": len(templates),
        "openings": [[text, round(n / len(rows), 3)] for text, n in openings.most_common(3)],
        "distinct_answers": len(answers),
        "commonest_answer": [
            str(answers.most_common(1)[0][0])[:40],
            round(answers.most_common(1)[0][1] / len(rows), 3),
        ],
    }


def _measure(
    report: Report, loaded: Loaded, heldout: Loaded | None, tokenizer, limit, system_prompt
) -> None:
    from grpo_workbook.data import needs_folding

    fold = needs_folding(tokenizer)
    counts = prompt_lengths(to_dataset(loaded.dataset, system_prompt, fold=fold), tokenizer)
    report.token_counts = counts
    report.lengths = {"percentiles": percentiles(counts)}
    if limit is None:
        return
    over = sum(n > limit for n in counts)
    report.lengths |= {"budget": limit, "dropped": over, "kept": len(counts) - over}
    if over > TOO_LONG * len(counts):
        report.hurts.append(
            f"{over:,} of {len(counts):,} prompts are longer than {limit} tokens and would be dropped"
        )
    if heldout is not None:
        counts = prompt_lengths(to_dataset(heldout.dataset, system_prompt, fold=fold), tokenizer)
        report.lengths["heldout_dropped"] = over = sum(n > limit for n in counts)
        if over:
            report.hurts.append(
                f"{over:,} held-out prompts are longer than {limit} tokens and would not be measured"
            )
