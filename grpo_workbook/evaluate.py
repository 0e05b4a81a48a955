"""Measure a policy on held-out problems: strict and lenient accuracy, intervals, a paired test, what it wrote.

Strict: well-formed and exactly right. Lenient: the kindly read answer is right, whatever the form. Greedy is what
the policy holds most likely; sampled (temperature 1) is what GRPO trains.

Where the reference answers are numbers, right is the same number. Where they are texts (answers="text"), it is the same
text but for case and white space, or the same mathematics (symbolic.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grpo_workbook.answers import (
    extract_answer,
    is_leniently_right,
    is_strictly_right,
    is_well_formed,
    lenient_answer,
    tagged_answer,
)
from grpo_workbook.data import render
from grpo_workbook.symbolic import SymbolicChecker

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True)
class Scores:
    """One completion per problem, and what each was worth."""

    completions: list[str]
    strict: list[bool]
    lenient: list[bool]
    well_formed: list[bool]
    unjudged: int = 0  # texts that the symbolic checker could not judge in time: they count as wrong

    @property
    def n(self) -> int:
        return len(self.completions)


def accuracy(right: Sequence[bool]) -> float:
    """The share of True, rounded to 4 places. Raises ValueError when there is nothing to measure."""
    if not right:
        raise ValueError("no held-out problems were measured")
    return round(sum(right) / len(right), 4)


def wilson_interval(right: Sequence[bool], confidence: float = 0.95) -> tuple[float, float]:
    """The Wilson score interval of a share (Wilson 1927): honest near 0 and 1, where the normal one is not."""
    from scipy.stats import binomtest

    interval = binomtest(sum(right), len(right)).proportion_ci(confidence, method="wilson")
    return round(float(interval.low), 4), round(float(interval.high), 4)


def paired_p_value(before: Sequence[bool], after: Sequence[bool]) -> float:
    """McNemar's exact two-sided test: could as many of the changed problems have changed for the better by chance?

    Only problems whose outcome changed count; by chance, each is as likely to get better as worse (a fair coin).
    """
    from scipy.stats import binomtest

    better = sum(a and not b for b, a in zip(before, after, strict=True))
    worse = sum(b and not a for b, a in zip(before, after, strict=True))
    return float(binomtest(better, better + worse).pvalue) if better + worse else 1.0


def score(completions: Sequence[str], references: Sequence[str], answers: str = "number") -> Scores:
    """Judge completions against their reference answers, which are numbers or, with answers="text", texts."""
    pairs = list(zip(completions, references, strict=True))
    well_formed = [is_well_formed(c) for c in completions]
    if answers == "number":
        strict, lenient = ([right(c, a) for c, a in pairs] for right in (is_strictly_right, is_leniently_right))
        return Scores(list(completions), strict, lenient, well_formed)
    given = [tagged_answer(c) if ok else None for c, ok in zip(completions, well_formed, strict=True)]
    kind = [extract_answer(c) or lenient_answer(c) for c in completions]
    verdicts = _judge_texts({pair for found in (given, kind) for pair in zip(found, references, strict=True)})
    strict, lenient = ([verdicts[p] == "right" for p in zip(found, references, strict=True)] for found in (given, kind))
    unjudged = sum(verdicts[p] not in ("right", "wrong") for p in zip(kind, references, strict=True))
    return Scores(list(completions), strict, lenient, well_formed, unjudged)


def _judge_texts(pairs: set[tuple[str | None, str]]) -> dict[tuple[str | None, str], str]:
    """The verdict on each (answer, reference): "right", "wrong", or "timeout" or "error" where none can be given."""

    def plain(text: str) -> str:
        return " ".join(text.casefold().split())

    verdicts = {p: "wrong" if p[0] is None else "right" for p in pairs if p[0] is None or plain(p[0]) == plain(p[1])}
    rest = sorted(pairs - verdicts.keys())
    with SymbolicChecker() as checker:
        outcomes = checker.check(rest)
    return verdicts | {pair: outcome.verdict for pair, outcome in zip(rest, outcomes, strict=True)}


def generate(
    model,
    tokenizer,
    prompts: Sequence[list[dict]],
    *,
    max_new_tokens: int,
    sample: bool = False,
    temperature: float = 1.0,
    seed: int = 0,
    batch_size: int = 128,
    progress: str | None = None,
) -> list[str]:
    """One completion per chat prompt, as text without special tokens.

    Batches hold prompts of like length, so that little is padding; results come in the order of the prompts. Sampling
    is seeded, and leaves the random state outside as it was. `progress` names the bar; None shows none.
    """
    import torch
    from tqdm import tqdm

    texts = render(prompts, tokenizer)
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    how = {"do_sample": True, "temperature": temperature, "top_p": 1.0, "top_k": 0} if sample else {"do_sample": False}
    results = [""] * len(texts)
    was_training, side = model.training, tokenizer.padding_side
    model.eval()
    tokenizer.padding_side = "left"
    bar = tqdm(total=len(texts), desc=progress, unit="problem", ncols=80, disable=progress is None, leave=False)
    devices = [model.device] if model.device.type == "cuda" else []
    try:
        with torch.no_grad(), torch.random.fork_rng(devices), bar:
            torch.manual_seed(seed)
            for start in range(0, len(order), batch_size):
                chosen = order[start : start + batch_size]
                batch = tokenizer(
                    [texts[i] for i in chosen],
                    return_tensors="pt",
                    padding=True,
                    add_special_tokens=False,
                    return_token_type_ids=False,
                ).to(model.device)
                out = model.generate(
                    **batch,
                    max_new_tokens=max_new_tokens,
                    use_cache=True,
                    pad_token_id=tokenizer.pad_token_id,
                    eos_token_id=end_tokens(model, tokenizer),
                    **how,
                )
                for i, ids in zip(chosen, out[:, batch["input_ids"].shape[1] :], strict=True):
                    results[i] = tokenizer.decode(ids, skip_special_tokens=True)
                bar.update(len(chosen))
    finally:
        tokenizer.padding_side = side
        model.train(was_training)
    return results


def end_tokens(model, tokenizer) -> list[int]:
    """The tokens that end a completion, as TRL takes them: the tokenizer's, and those of the model's generation config.

    Gemma and Qwen end a turn with another token than a text.
    """
    config = model.generation_config.eos_token_id
    more = config if isinstance(config, list) else [] if config is None else [config]
    return sorted({tokenizer.eos_token_id, *more})


def evaluate(
    model,
    tokenizer,
    dataset: "Dataset",
    *,
    max_new_tokens: int,
    sample: bool = False,
    seed: int = 0,
    batch_size: int = 128,
    progress: str | None = None,
    answers: str = "number",
) -> Scores:
    """Generate one completion for every row of the dataset (`prompt`, `answer`) and judge it (see `score`)."""
    completions = generate(
        model,
        tokenizer,
        list(dataset["prompt"]),
        max_new_tokens=max_new_tokens,
        sample=sample,
        seed=seed,
        batch_size=batch_size,
        progress=progress,
    )
    return score(completions, list(dataset["answer"]), answers)


def summary(sampled: Scores, greedy: Scores) -> dict:
    """What report.json says of one policy."""
    return {
        "strict_sampled": accuracy(sampled.strict),
        "strict_greedy": accuracy(greedy.strict),
        "lenient_sampled": accuracy(sampled.lenient),
        "well_formed_sampled": accuracy(sampled.well_formed),
        "ci95": list(wilson_interval(sampled.strict)),
        **({"unjudged": sampled.unjudged} if sampled.unjudged else {}),
    }
