"""Answer every problem with a model, so often as asked, into a journal that survives a kill.

Work is cut into batches once and for all, and each batch has its own seed: one that a kill cut off is drawn again the
same, so an evaluation that was resumed ends in the same completions as one that went through.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from grpo_workbook.data import SYSTEM_PROMPT, needs_folding, render, sha256_of, to_dataset
from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import readable
from grpo_workbook.generation import Completion, check_sampling, complete, ready, sampling
from grpo_workbook.journal import LINES, Journal, read_identity, read_lines
from grpo_workbook.loading import find_adapter, find_model, fingerprint, load_for_measuring
from grpo_workbook.problems import load

RESULTS = ("report.json", "report.md", "report.png", "report.txt", "changes.jsonl")
VERSIONS = ("torch", "transformers", "peft", "bitsandbytes")
# Of a plan: what the identity says in another way, or what changes no number.
NAMED = ("model", "adapter", "output", "reading", "data", "also", "items", "any_base")


@dataclass(frozen=True)
class Plan:
    """What is measured, and how. `also` is held-out data of another skill, to see whether it was forgotten."""

    model: str  # a family, a folder or a hub id
    data: str  # a source, as problems.load takes it
    output: Path
    adapter: str | None = None  # its folder
    also: str | None = None
    items: int | None = None  # the first so many problems of each source; None for all
    samples: int = 1  # completions of each problem
    temperature: float = 0.0  # 0: greedy
    top_p: float = 1.0
    seed: int = 0
    max_new_tokens: int = 64
    batch_size: int = 128  # completions that are written at once
    dtype: str = "float32"  # see settings.DTYPES
    device: str = "cpu"
    load_in_4bit: bool = False
    any_base: bool = False  # measure an adapter on another base than its own
    system_prompt: str = SYSTEM_PROMPT
    reading: dict = field(default_factory=dict)  # problems.load's options

    def check(self) -> None:
        """Raise WorkbookError for a value that makes no sense."""
        check_sampling(self.samples, self.temperature, self.top_p, self.max_new_tokens)
        for name in ("batch_size", "items"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise WorkbookError(f"--{name.replace('_', '-')} is {value}: it must be at least 1")


@dataclass
class Answered:
    """One set of problems and what was written: `completions[i][s]` is sample s of `rows[i]`.

    A row has `key` (the same in every evaluation of the same problem), `question`, `answer`, and the source's columns.
    """

    rows: list[dict]
    completions: list[list[Completion]]


@dataclass
class Evaluation:
    """What an evaluation holds: how it was made, and each set, "main" and perhaps "also"."""

    identity: dict
    sets: dict[str, Answered]
    notes: list[str] = field(default_factory=list)


def keyed_rows(source: str, items: int | None, reading: dict) -> list[dict]:
    """The problems of a source with a key each: a hash of question and answer, numbered where one occurs again.

    `items`: the first so many, None for all. `reading` holds problems.load's options, whose errors are raised here.
    """
    dataset = load(source, answers="number", progress=True, **reading).dataset
    rows = (dataset if items is None else dataset.select(range(min(items, len(dataset))))).to_list()
    seen: dict[str, int] = {}
    for row in rows:
        text = f"{row['question']}\0{row['answer']}"
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        seen[key] = seen.get(key, 0) + 1
        row["key"] = key if seen[key] == 1 else f"{key}-{seen[key]}"
    return rows


def answer_all(
    plan: Plan, *, overwrite: bool = False, say: Callable[[str], None] = print
) -> Evaluation:
    """Answer what the plan asks for, or what is left of it; the whole evaluation.

    Raises WorkbookError for bad input before a model is loaded, and later for a prompt that leaves no room for its
    completion or a batch that does not fit into the GPU's memory.
    """
    from importlib.metadata import version

    plan.check()
    model = find_model(plan.model)
    adapter, note = (
        find_adapter(plan.adapter, model, any_base=plan.any_base) if plan.adapter else (None, None)
    )
    sources = {"main": plan.data} | ({"also": plan.also} if plan.also else {})
    rows = {name: keyed_rows(source, plan.items, plan.reading) for name, source in sources.items()}
    how = asdict(plan)
    identity = {
        "model": readable(model),
        "adapter": readable(adapter) if adapter else None,
        "model_hash": fingerprint(model),
        "adapter_hash": fingerprint(adapter),
        **{k: how[k] for k in how if k not in NAMED},
        "data": {name: readable(source) for name, source in sources.items()},
        "data_sha256": {name: sha256_of(found) for name, found in rows.items()},
        "items": {name: len(found) for name, found in rows.items()},
        "versions": {name: version(name) for name in VERSIONS},
    }
    journal = Journal(plan.output)
    journal.open(identity, overwrite=overwrite, results=RESULTS)
    total = plan.samples * sum(map(len, rows.values()))
    if len(journal.records) < total:
        if journal.records:
            say(f"Going on: {len(journal.records):,} of {total:,} completions are there")
        _generate(plan, model, adapter, rows, journal, total)
    return Evaluation(identity, _sets(identity, journal.records, rows), [note] if note else [])


def _generate(
    plan: Plan, model: str, adapter: str | None, rows: dict, journal: Journal, total: int
) -> None:
    import torch
    from tqdm import tqdm

    loaded, tokenizer = load_for_measuring(
        model, adapter, dtype=plan.dtype, device=plan.device, load_in_4bit=plan.load_in_4bit
    )
    fold = needs_folding(tokenizer)
    done = {(r["set"], r["key"], r["sample"]) for r in journal.records}
    bar = tqdm(total=total, initial=len(done), desc="answering", unit="answer", ncols=80)
    with ready(loaded, tokenizer), bar:
        for name, problems in rows.items():
            dataset = to_dataset(
                [{k: r[k] for k in ("question", "answer")} for r in problems],
                plan.system_prompt,
                fold=fold,
            )
            texts = render(list(dataset["prompt"]), tokenizer)
            _check_lengths(texts, problems, loaded, tokenizer, plan.max_new_tokens)
            for number, batch in enumerate(batches(texts, plan.samples, plan.batch_size)):
                missing = {u for u in batch if (name, problems[u[0]]["key"], u[1]) not in done}
                if not missing:
                    continue
                torch.manual_seed(_batch_seed(plan.seed, name, number))
                try:
                    found = complete(
                        loaded,
                        tokenizer,
                        [texts[i] for i, _ in batch],
                        max_new_tokens=plan.max_new_tokens,
                        how=sampling(plan.temperature, plan.top_p),
                    )
                except torch.OutOfMemoryError:
                    raise WorkbookError(
                        f"a batch of {len(batch)} completions does not fit into the GPU's memory: give a smaller "
                        "--batch-size, with --overwrite"
                    ) from None
                pairs = zip(batch, found, strict=True)
                journal.append(
                    _record(name, problems[i], s, c) for (i, s), c in pairs if (i, s) in missing
                )
                bar.update(len(missing))


def batches(texts: Sequence[str], samples: int, batch_size: int) -> list[list[tuple[int, int]]]:
    """(place, sample) of every completion, in batches of at most `batch_size`, each of texts of like length."""
    order = sorted(range(len(texts)), key=lambda i: (len(texts[i]), i))
    units = [(i, s) for i in order for s in range(samples)]
    return [units[start : start + batch_size] for start in range(0, len(units), batch_size)]


def _batch_seed(seed: int, name: str, number: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed} {name} {number}".encode()).digest()[:4])


def _record(name: str, row: dict, sample: int, completion: Completion) -> dict:
    return {
        "set": name,
        "key": row["key"],
        "sample": sample,
        "question": row["question"],
        "answer": row["answer"],
        "completion": completion.text,
        "tokens": completion.tokens,
        "ended": completion.ended,
    }


def _check_lengths(
    texts: list[str], problems: list[dict], model, tokenizer, max_new_tokens: int
) -> None:
    """Raise WorkbookError for a prompt that leaves no room for the completion."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    longest = max(range(len(texts)), key=lambda i: len(texts[i]))
    tokens = len(tokenizer(texts[longest], add_special_tokens=False, verbose=False)["input_ids"])
    if limit is not None and tokens + max_new_tokens > limit:
        raise WorkbookError(
            f"the question {problems[longest]['question'][:60]!r} has {tokens} tokens, and with {max_new_tokens} for "
            f"the completion that is more than the {limit} that the model takes: drop it, or lower --max-new-tokens"
        )


def _sets(identity: dict, records: list[dict], rows: dict[str, list[dict]]) -> dict[str, Answered]:
    """The records in the order of the rows. Raises WorkbookError unless every completion is there exactly once."""
    found = {(r["set"], r["key"], r["sample"]): r for r in records}
    wanted = [
        (name, row["key"], s)
        for name in rows
        for row in rows[name]
        for s in range(identity["samples"])
    ]
    if len(found) != len(records) or found.keys() != set(wanted):
        raise WorkbookError(
            f"the completions are not those of the data ({len(records):,} lines, {len(found):,} different, "
            f"{len(wanted):,} wanted): start again with --overwrite"
        )
    return {
        name: Answered(
            problems,
            [
                [
                    Completion(r["completion"], r["tokens"], r["ended"])
                    for r in (found[name, row["key"], s] for s in range(identity["samples"]))
                ]
                for row in problems
            ],
        )
        for name, problems in rows.items()
    }


def read_evaluation(place: str | Path) -> Evaluation:
    """A finished evaluation from its folder, or from the report in it, for comparison.

    Raises WorkbookError for what is none, is unfinished, or was written by another version.
    """
    path = Path(place).expanduser()
    folder = path.parent if path.is_file() else path
    identity = read_identity(folder) if folder.is_dir() else None
    if identity is None or not (folder / LINES).is_file():
        raise WorkbookError(
            f"the baseline {place} is no evaluation: name the folder that `evaluate` wrote with --output"
        )
    records = read_lines(folder / LINES)
    rows: dict[str, dict[str, dict]] = {}
    try:
        for r in records:
            rows.setdefault(r["set"], {})[r["key"]] = {
                k: r[k] for k in ("key", "question", "answer")
            }
        wanted = identity["samples"] * sum(identity["items"].values())
    except (KeyError, TypeError, AttributeError):
        raise WorkbookError(
            f"the baseline {place} was written by another version: measure it again"
        ) from None
    if len(records) < wanted:
        raise WorkbookError(
            f"the baseline {place} is unfinished ({len(records):,} of {wanted:,} completions): run its command again"
        )
    return Evaluation(
        identity,
        _sets(identity, records, {name: list(found.values()) for name, found in rows.items()}),
    )
