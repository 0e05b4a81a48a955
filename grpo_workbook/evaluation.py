"""Measure a policy on held-out problems: generate completions and count the right ones.

Strict: well-formed and exactly right. Lenient: the answer is right in any readable form.
Greedy takes the most likely token; sampled (temperature 1) is the policy that GRPO trains.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_workbook.data import render
from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import readable, whole_file
from grpo_workbook.rewards import answers as reading
from grpo_workbook.rewards import call
from grpo_workbook.rewards.contract import about, name_of, require_columns
from grpo_workbook.statistics import accuracy, bootstrap_interval, paired_p_value, wilson_interval

if TYPE_CHECKING:
    from datasets import Dataset
    from pandas import DataFrame

SEEDS_APART = 1_000_003  # between the first batches of two seeds: more than any number of problems


@dataclass(frozen=True)
class Sampling:
    """How completions are made: greedy, or sampled without top-k."""

    max_new_tokens: int = 256
    sample: bool = False
    temperature: float = 1.0
    seed: int = 0
    batch_size: int = 32  # prompts at a time; each batch is seeded, so it changes what is sampled


@dataclass(frozen=True)
class Scores:
    """The result for each completion: lists of equal length, `samples` entries per problem."""

    completions: list[str]
    strict: list[bool]
    lenient: list[bool]
    well_formed: list[bool]
    samples: int = 1
    unjudged: int = 0  # completions that could not be judged; they count as wrong
    tokens: Sequence[int] = ()  # empty if only texts were scored
    ended: Sequence[bool] = ()
    rewards: dict[str, list] | None = None  # by name, if rewards judged them

    @property
    def rate(self) -> float:
        """The fraction of completions that are strictly right, 0 to 1."""
        return accuracy(self.strict)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the rate: Wilson's; for several samples, a bootstrap of problems."""
        return wilson_interval(self.strict) if self.samples == 1 else bootstrap_interval(self.each)

    @property
    def each(self) -> list[float]:
        """For each problem the fraction of its completions that are strictly right."""
        starts = range(0, len(self.strict), self.samples)
        return [sum(self.strict[i : i + self.samples]) / self.samples for i in starts]

    @property
    def n(self) -> int:
        """The number of problems."""
        return len(self.completions) // self.samples

    def table(self, dataset: "Dataset") -> "DataFrame":
        """A row for each completion: problem, sample, the dataset's columns, the scores."""
        table: Any = dataset.remove_columns("prompt").to_pandas()
        table = table.loc[table.index.repeat(self.samples)].rename_axis("problem").reset_index()
        table.insert(1, "sample", table.groupby("problem").cumcount())
        return table.assign(**{k: v for k, v in asdict(self).items() if isinstance(v, list)})


def evaluate(model: Any, tokenizer: Any, dataset: "Dataset", *, samples: int = 1, rewards=(),
             judge: Callable | None = None, completions_file: str | Path | None = None,
             **how: Any) -> Scores:  # fmt: skip
    """Let the model answer each row of the dataset (`prompt`, `answer`), and judge it by `score`.

        before = evaluate(model, tokenizer, heldout, rewards=[right], max_new_tokens=256)
        print(before.rate, before.interval)

    With `rewards` the dataset needs no `answer`: a completion is right if the first of them gives
    1, and `Scores.rewards` has the values of all.
    `how`: max_new_tokens, sample, temperature, seed, batch_size (see `Sampling`), `progress` and
    `share` (see `complete`). Several `samples` per problem need sample=True. A stopped evaluation
    continues from its `completions_file`; several processes divide the work.
    """
    needed = ("prompt",) if rewards else ("prompt", "answer")
    require_columns("evaluate", needed, dataset.column_names)
    if samples < 1 or (samples > 1 and not how.get("sample")):
        raise WorkbookError(f"samples is {samples}: give at least 1, and sample=True for several")
    rows = dataset.select([i for i in range(len(dataset)) for _ in range(samples)])
    found = complete(model, tokenizer, list(rows["prompt"]), file=completions_file, **how)
    texts = [c["text"] for c in found]
    if rewards:
        columns = {name: list(rows[name]) for name in rows.column_names}
        values = {name_of(f): call(f, texts, **columns) for f in rewards}
        right = [value == 1 for value in values[name_of(rewards[0])]]
        scores = Scores(texts, right, right, right, rewards=values)
    else:
        scores = score(texts, list(rows["answer"]), judge, list(rows["prompt"]))
    size = {name: [c[name] for c in found] for name in ("tokens", "ended")}
    return replace(scores, samples=samples, **size)


def score(texts: Sequence[str], answers: Sequence[str], judge=None, prompts=()) -> Scores:
    """Judge completions against their reference answers: numbers, unless there is a judge.

    A word of the prompts (texts or chats), if given, may be a unit in the answer to them.
    `judge(given, answer)` returns whether a completion's answer matches the reference, or None if
    it cannot tell; for equal texts it is not called. A judge with `about(judge).whole` gets whole
    completions, and only it decides. Raises WorkbookError for a reference that must
    be a number and is not, ValueError for fewer answers than texts.
    """

    @cache
    def is_right(given: str | None, answer: str, asked: str) -> bool | None:
        if judge is None:
            return reading.is_correct(given, answer, asked)
        if given is None or given.casefold().split() == answer.casefold().split():
            return given is not None
        return judge(given, answer)

    if judge and about(judge).whole:
        right = [bool(judge(text, answer)) for text, answer in zip(texts, answers, strict=True)]
        return Scores(list(texts), right, right, right)
    form = [reading.is_well_formed(text) for text in texts]
    exact = [reading.tagged_answer(t) if f else None for t, f in zip(texts, form, strict=True)]
    loose = [(judge and reading.extract_answer(t)) or reading.lenient_answer(t) for t in texts]
    asked = [str(prompt) for prompt in prompts] or [""] * len(texts)
    strict = [bool(is_right(*row)) for row in zip(exact, answers, asked, strict=True)]
    lenient = [is_right(*row) for row in zip(loose, answers, asked, strict=True)]
    return Scores(list(texts), strict, [*map(bool, lenient)], form, unjudged=lenient.count(None))


def summary(sampled: Scores, greedy: Scores | None = None) -> dict:
    """A policy's rates, 0 to 1, for a report, and `ci95`, the interval of strict_sampled."""
    given = {"sampled": sampled} | ({"greedy": greedy} if greedy else {})
    names = ("strict", "lenient", "well_formed")
    rates = {f"{n}_{how}": accuracy(getattr(s, n)) for n in names for how, s in given.items()}
    unjudged = {"unjudged": sampled.unjudged} if sampled.unjudged else {}
    return {**rates, "ci95": list(wilson_interval(sampled.strict)), **unjudged}


def compare(before: Scores, after: Scores) -> dict[str, Any]:
    """Both rates of two policies on the same problems, the gain with its 95 % interval, and p.

        print(compare(before, after))  # {"before": 0.31, "after": 0.9, "gain": 0.59, ...}

    The interval is a bootstrap of the problems. `p_value` is McNemar's exact test, None for several
    samples per problem. Raises WorkbookError for different numbers of problems.
    """
    if before.n != after.n:
        said = f"{before.n} problems before and {after.n} after"
        raise WorkbookError(f"{said}: evaluate both on the same ones, in the same order")
    gains = [new - old for old, new in zip(before.each, after.each, strict=True)]
    single = before.samples == after.samples == 1
    found: dict[str, Any] = {"n": before.n, "before": before.rate, "after": after.rate}
    found |= {"gain": sum(gains) / len(gains), "ci95": bootstrap_interval(gains)}
    return found | {"p_value": paired_p_value(before.strict, after.strict) if single else None}


def generate(model, tokenizer, prompts: Sequence, **how) -> list[str]:
    """The texts of `complete`, which takes the same `how`."""
    return [found["text"] for found in complete(model, tokenizer, prompts, **how)]


def complete(
    model, tokenizer, prompts: Sequence, *, progress=None, file=None, share=True, **how
) -> list[dict]:
    """One completion for each prompt (a chat or a text) by `Sampling(**how)`: its `text`, `tokens`
    (with the end token), and `ended`, which is False if it was cut off.
    Each batch is seeded, so several processes (`share=False`: this one alone) get the same
    completions as one; the random state is restored. `progress` is the label of a bar.
    Each finished batch is appended to `file` as JSON lines, and not generated again. Raises
    WorkbookError for a damaged file, or one of another model, other prompts or another `how`.
    """
    import torch
    from accelerate import PartialState
    from accelerate.utils import broadcast_object_list, gather_object
    from tqdm import tqdm

    how, state = Sampling(**how), PartialState()
    index, count = (state.process_index, state.num_processes) if share else (0, 1)
    plain = len(prompts) > 0 and isinstance(prompts[0], str)  # a template adds special tokens
    texts = list(prompts) if plain else render(prompts, tokenizer)
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))  # little padding
    done = _open(Path(file), _identity(model, texts, how)) if file and index == 0 else {}
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
                for start, chosen in todo[turn + index :][:1]:  # its batch, if one is left
                    torch.manual_seed(how.seed * SEEDS_APART + start)
                    asked = tokenizer([texts[i] for i in chosen], add_special_tokens=plain)
                    said = continued(model, tokenizer, asked["input_ids"], how)
                    found += zip(chosen, (record for _, record in said), strict=True)
                found = gather_object(found) if count > 1 else found
                new = {i: completion for i, completion in found if i not in done}
                if file and index == 0:
                    with Path(file).open("a", encoding="utf-8") as lines:
                        lines.writelines(json.dumps({"index": i, **new[i]}) + "\n" for i in new)
                done |= new
                bar.update(len(new))
    finally:
        model.train(was_training)
    return [done[i] for i in range(len(texts))]


def continued(model, tokenizer, contexts: list[list[int]], how: Sampling):
    """What follows each context, in one batch: (its tokens, its record as of `complete`)."""
    batch = tokenizer.pad({"input_ids": contexts}, padding_side="left", return_tensors="pt")
    ends = end_tokens(model, tokenizer)
    way = {"do_sample": how.sample, "max_new_tokens": how.max_new_tokens, "use_cache": True}
    way |= {"temperature": how.temperature, "top_p": 1.0, "top_k": 0} if how.sample else {}
    way |= {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": ends}
    out = model.generate(**batch.to(model.device), **way)
    for ids in out[:, batch["input_ids"].shape[1] :].tolist():
        end = next((i for i, token in enumerate(ids, 1) if token in ends), None)
        text = tokenizer.decode(ids[:end], skip_special_tokens=True)
        yield ids[:end], {"text": text, "tokens": end or len(ids), "ended": end is not None}


def end_tokens(model, tokenizer) -> list[int]:
    """The end tokens, as in TRL: Gemma and Qwen end a turn with another token than a text."""
    ends = model.generation_config.eos_token_id
    return sorted({tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])} - {None})


def _identity(model, texts: list[str], how: Sampling) -> dict:
    """What the completions depend on; the model as a hash of 64 values of each parameter."""
    found = hashlib.sha256()
    for name, weight in model.named_parameters():
        some = weight.data.flatten()[:: max(1, weight.numel() // 64)].float().cpu().numpy()
        found.update(f"{name} {weight.shape} {weight.dtype}".encode() + some.tobytes())
    prompts = hashlib.sha256(json.dumps(texts).encode()).hexdigest()
    return {"model": found.hexdigest(), "prompts": prompts, **asdict(how)}


def _open(path: Path, identity: dict) -> dict[int, dict]:
    """The completions in the file, whose first line is the identity; a missing file is created."""
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    lines = [line for line in lines if line.endswith(b"\n")]  # a kill may cut the last one
    lines = lines or [json.dumps(identity).encode() + b"\n"]
    try:
        there, *records = map(json.loads, lines)
        different = [name for name in identity if identity[name] != there.get(name)]
        done = {r["index"]: {k: r[k] for k in ("text", "tokens", "ended")} for r in records}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise WorkbookError(f"{readable(path)} is damaged: remove it to start again") from error
    if different:
        said = f"{readable(path)} is of another evaluation (different: {', '.join(different)})"
        raise WorkbookError(f"{said}: remove it, or choose another file")
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as new:
        new.write_bytes(b"".join(lines))
    return done
