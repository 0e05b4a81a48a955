"""Measure a policy on held-out problems: what it writes, and how often that is right.

Strict: well-formed and exactly right. Lenient: the kindly read answer is right, whatever the form.
Greedy is what the policy holds most likely; sampled (temperature 1) is what GRPO trains.
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_workbook import answers as reading
from grpo_workbook.data import render
from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import readable
from grpo_workbook.statistics import accuracy, wilson_interval

if TYPE_CHECKING:
    from datasets import Dataset
    from pandas import DataFrame

SEEDS_APART = 1_000_003  # between two seeds' first batches: more problems than are ever measured
Judge = Callable[[str, str], bool | None]


@dataclass(frozen=True)
class Completion:
    """What a model wrote: `tokens` counts the end token; `ended` is False where it was cut off."""

    text: str
    tokens: int
    ended: bool


@dataclass(frozen=True)
class Sampling:
    """How completions are made: greedy, or sampled without top-k. Another batch size, which is how
    many prompts go through the model at once, samples other completions: each batch is seeded.
    """

    max_new_tokens: int = 256
    sample: bool = False
    temperature: float = 1.0
    seed: int = 0
    batch_size: int = 32


@dataclass(frozen=True)
class Scores:
    """What each completion was worth: lists of one length, problem by problem, `samples` of each.

    `unjudged` of them could not be judged, and count as wrong.
    """

    completions: list[str]
    strict: list[bool]
    lenient: list[bool]
    well_formed: list[bool]
    samples: int = 1
    unjudged: int = 0
    tokens: Sequence[int] = ()  # empty where texts alone were scored
    ended: Sequence[bool] = ()

    @property
    def n(self) -> int:
        """How many problems."""
        return len(self.completions) // self.samples

    def table(self, dataset: "Dataset") -> "DataFrame":
        """A row for each completion: problem, sample, the dataset's columns, what it was worth."""
        import pandas

        own = [name for name in dataset.column_names if name != "prompt"]
        table = pandas.DataFrame({name: list(dataset[name]) for name in own})
        table = table.loc[table.index.repeat(self.samples)].rename_axis("problem").reset_index()
        table.insert(1, "sample", [i % self.samples for i in table.index])
        lists = {k: v for k, v in asdict(self).items() if not isinstance(v, int) and v}
        return pandas.concat([table, pandas.DataFrame(lists)], axis=1)


def evaluate(
    model,
    tokenizer,
    dataset: "Dataset",
    *,
    samples: int = 1,
    judge: Judge | None = None,
    progress: str | None = None,
    completions_file: str | Path | None = None,
    **how,
) -> Scores:
    """Let the model answer each row of the dataset (`prompt`, `answer`), and judge it by `score`.

    `how`: max_new_tokens, sample, temperature, seed, batch_size (see `Sampling`), and `share` (see
    `complete`). Several `samples` of each problem need sample=True. A stopped evaluation goes on
    from its `completions_file`; several processes share the work, and each gets all scores.
    """
    if not {"prompt", "answer"} <= set(dataset.column_names):
        raise WorkbookError(f"name two of the columns prompt and answer: {dataset.column_names}")
    if samples < 1 or (samples > 1 and not how.get("sample")):
        raise WorkbookError(f"samples is {samples}: give at least 1, and sample=True for several")
    prompts, answers = (
        [value for value in dataset[name] for _ in range(samples)] for name in ("prompt", "answer")
    )
    more = {"progress": progress, "file": completions_file, "share": how.pop("share", True)}
    found = complete(model, tokenizer, prompts, Sampling(**how), **more)
    size = {"tokens": [c.tokens for c in found], "ended": [c.ended for c in found]}
    return replace(score([c.text for c in found], answers, judge), samples=samples, **size)


def score(texts: Sequence[str], answers: Sequence[str], judge: Judge | None = None) -> Scores:
    """Judge completions against their reference answers: numbers, unless there is a judge.

    `judge(given, answer)` says whether the answer that a completion gives is the reference, or None
    where it cannot say; where both are one text it is not asked. Raises WorkbookError for a
    reference that should be a number and is none, ValueError for fewer answers than texts.
    """
    pairs = list(zip(texts, answers, strict=True))
    form = [reading.is_well_formed(text) for text in texts]
    if judge is None:
        strict = [reading.is_strictly_right(text, answer) for text, answer in pairs]
        lenient = [reading.is_leniently_right(text, answer) for text, answer in pairs]
        return Scores(list(texts), strict, lenient, form)

    @cache
    def verdict(given: str | None, answer: str) -> bool | None:
        if given is None or given.casefold().split() == answer.casefold().split():
            return given is not None
        return judge(given, answer)

    given = [reading.tagged_answer(t) if f else None for t, f in zip(texts, form, strict=True)]
    strict = [bool(verdict(text, a)) for text, a in zip(given, answers, strict=True)]
    kind = [verdict(reading.extract_answer(t) or reading.lenient_answer(t), a) for t, a in pairs]
    return Scores(list(texts), strict, list(map(bool, kind)), form, unjudged=kind.count(None))


def summary(sampled: Scores, greedy: Scores) -> dict:
    """What a report says of a policy: rates from 0 to 1, and `ci95`, strict_sampled's interval."""
    rates = {
        f"{name}_{how}": accuracy(getattr(scores, name))
        for name in ("strict", "lenient", "well_formed")
        for how, scores in (("sampled", sampled), ("greedy", greedy))
    }
    unjudged = {"unjudged": sampled.unjudged} if sampled.unjudged else {}
    return {**rates, "ci95": list(wilson_interval(sampled.strict)), **unjudged}


def generate(model, tokenizer, prompts, *, progress: str | None = None, **how) -> list[str]:
    """The texts of `complete`; `how`: `share`, max_new_tokens, sample and what `Sampling` has."""
    more = {"progress": progress, "share": how.pop("share", True)}
    return [c.text for c in complete(model, tokenizer, prompts, Sampling(**how), **more)]


def complete(
    model,
    tokenizer,
    prompts: Sequence,
    how: Sampling,
    *,
    progress: str | None = None,
    file: str | Path | None = None,
    share: bool = True,
) -> list[Completion]:
    """One completion for each prompt, in their order: a chat (list of role and content) or a text.

    Batches hold prompts of like length, so that little is padding. Sampling is seeded batch by
    batch, and leaves the random state outside as it was. So several processes, which take turns
    with the batches (all must call; `share=False`: this one alone), sample what one would, and each
    gets everything. `progress` names the main process's bar; None shows none.

    `file` gets a JSON line for each completion as soon as its batch is done; when it is there, only
    what it lacks is generated. Raises WorkbookError where it was begun with another model, other
    prompts or another `how`, or is damaged; a last line that a kill has torn is dropped.
    """
    import torch
    from accelerate import PartialState
    from accelerate.utils import broadcast_object_list, gather_object
    from tqdm import tqdm

    state = PartialState()
    index, count = (state.process_index, state.num_processes) if share else (0, 1)
    plain = len(prompts) > 0 and isinstance(prompts[0], str)
    texts = list(prompts) if plain else render(prompts, tokenizer)
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    done: dict[int, Completion] = {}
    if file is not None:
        if index == 0:
            done = _open(Path(file), _identity(model, texts, how))
        done = broadcast_object_list([done])[0] if count > 1 else done
    batches = {s: order[s : s + how.batch_size] for s in range(0, len(order), how.batch_size)}
    todo = [(start, chosen) for start, chosen in batches.items() if not done.keys() >= {*chosen}]
    was_training, devices = model.training, [model.device] if model.device.type == "cuda" else []
    hidden = progress is None or index > 0
    bar = tqdm(total=len(texts), initial=len(done), desc=progress, disable=hidden, leave=False)
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices), bar:
            for turn in range(0, len(todo), count):
                found = []
                for start, chosen in todo[turn : turn + count][index : index + 1]:
                    torch.manual_seed(how.seed * SEEDS_APART + start)
                    batch = _batch(model, tokenizer, [texts[i] for i in chosen], how, plain)
                    found += zip(chosen, batch, strict=True)
                found = gather_object(found) if count > 1 else found
                new = {i: completion for i, completion in found if i not in done}
                if file is not None and index == 0:
                    _append(Path(file), [{"index": i, **asdict(c)} for i, c in new.items()])
                done |= new
                bar.update(len(new))
    finally:
        model.train(was_training)
    return [done[i] for i in range(len(texts))]


def _batch(model, tokenizer, texts: list[str], how: Sampling, plain: bool):
    """The Completion of each text, all in one batch; a chat template has its own special tokens."""
    side = {"padding": True, "padding_side": "left", "return_token_type_ids": False}
    batch = tokenizer(texts, return_tensors="pt", add_special_tokens=plain, **side).to(model.device)
    ends = end_tokens(model, tokenizer)
    sampling = {"do_sample": True, "temperature": how.temperature, "top_p": 1.0, "top_k": 0}
    out = model.generate(
        **batch,
        max_new_tokens=how.max_new_tokens,
        use_cache=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=ends,
        **(sampling if how.sample else {"do_sample": False}),
    )
    for ids in out[:, batch["input_ids"].shape[1] :].tolist():
        end = next((i for i, token in enumerate(ids, 1) if token in ends), None)
        text = tokenizer.decode(ids[:end], skip_special_tokens=True)
        yield Completion(text, end or len(ids), end is not None)


def end_tokens(model, tokenizer) -> list[int]:
    """What ends a completion, as TRL takes it: Gemma and Qwen end a turn with another token."""
    ends = model.generation_config.eos_token_id
    return sorted({tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])} - {None})


def _identity(model, texts: list[str], how: Sampling) -> dict:
    """What completions were made with; the model by 64 values of each of its parameters."""
    found = hashlib.sha256()
    for name, weight in model.named_parameters():
        some = weight.data.flatten()[:: max(1, weight.numel() // 64)].float().cpu().numpy()
        found.update(f"{name} {weight.shape} {weight.dtype}".encode() + some.tobytes())
    prompts = hashlib.sha256(json.dumps(texts).encode()).hexdigest()
    return {"model": found.hexdigest(), "prompts": prompts, **asdict(how)}


def _open(path: Path, identity: dict) -> dict[int, Completion]:
    """The completions in the file, whose first line is the identity; a new file is begun."""
    data = path.read_bytes() if path.exists() else b""
    whole = data.rfind(b"\n") + 1
    if whole < len(data):  # a kill came within a line
        os.truncate(path, whole)
    if not whole:
        path.parent.mkdir(parents=True, exist_ok=True)
        _append(path, [identity])
        return {}
    try:
        there, *records = map(json.loads, data[:whole].splitlines())
        different = [name for name in identity if identity[name] != there.get(name)]
        done = {r.pop("index"): Completion(**r) for r in records} if not different else {}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise WorkbookError(f"{readable(path)} is damaged: remove it to start again") from error
    if different:
        raise WorkbookError(
            f"{readable(path)} holds completions of something else (not the same: "
            f"{', '.join(different)}): remove it to start again, or name another file"
        )
    return done


def _append(path: Path, records: list[dict]) -> None:
    """Write a line for each record, and return when they are on the disk."""
    with path.open("a", encoding="utf-8") as lines:
        lines.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        lines.flush()
        os.fsync(lines.fileno())
