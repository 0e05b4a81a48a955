"""Measure a policy on held-out problems, and compare two policies on the same problems.

`generate` lets a model answer, `score` says which answers are right, and `evaluate` does both and
returns `Scores`. `compare` takes the Scores of two policies and says what kind of gain there is;
what a report keeps of them is made by `report_heldout`.

*Strict* counts an answer that is well-formed and exactly right, *lenient* one that is right in any
readable form. *Greedy* takes the most likely token at every position; *sampled*, at temperature 1,
is the policy that GRPO trains.
"""

import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from grpo_workbook import compat, statistics
from grpo_workbook.data import render
from grpo_workbook.data.prompts import prefilled_tag
from grpo_workbook.errors import WorkbookError
from grpo_workbook.pictures import (
    IMAGE_COLUMNS,
    columns_of_pictures,
    encode,
    image_column,
    is_processor,
    pictures_in,
    place_pictures,
    require_processor,
    tokenizer_of,
)
from grpo_workbook.rewards import call
from grpo_workbook.rewards.answers import (
    extract_answer,
    is_correct,
    is_well_formed,
    lenient_answer,
    tagged_answer,
    thought_is_open,
)
from grpo_workbook.rewards.contract import name_of, require_columns
from grpo_workbook.rewards.specs import as_reward

if TYPE_CHECKING:
    from datasets import Dataset
    from pandas import DataFrame

SEEDS_APART = 1_000_003  # between the first batches of two seeds: more than any number of problems

Prompt = str | list[dict[str, str]]
# (answer, reference) -> whether the answer is right, or None if that cannot be told
AnswerJudge = Callable[[str, str], bool | None]


@dataclass(frozen=True)
class WholeJudge:
    """A judge of whole completions: it alone decides what is right, whatever the form."""

    is_right: Callable[[str, str], bool]  # (completion, reference)


CorrectnessJudge = AnswerJudge | WholeJudge  # a language model as a judge is in rewards.judges


@dataclass(frozen=True)
class Sampling:
    """How completions are made: greedily, or sampled without top-k and top-p."""

    max_new_tokens: int = 256
    sample: bool = False
    temperature: float = 1.0
    batch_size: int = 32  # prompts at a time; every batch has its own seed, so this matters
    seed: int = 0
    chat_template_kwargs: Mapping[str, Any] | None = None  # as in `data.render`
    thinking_budget: int | None = None  # tokens after which an open thought is closed


@dataclass(frozen=True)
class Generated:
    """One completion as a model wrote it."""

    text: str
    tokens: list[int]  # up to the first end token, which is included
    ended: bool  # False if it was cut off
    thought: int = 0  # those of its tokens that are a thought, with the tags


# ---------------------------------------------------------------------------- measuring


@dataclass(frozen=True)
class Scores:
    """What a policy got right: lists with one entry for each completion.

    Several samples of a problem stand next to each other: problem 0, problem 0, problem 1, ...
    """

    completions: list[str]
    strict: list[bool]
    lenient: list[bool]
    well_formed: list[bool]
    samples: int = 1  # completions of each problem
    unjudged: int = 0  # completions that the judge could not judge; they count as wrong
    tokens: Sequence[int] = ()  # the length of each completion; empty if only texts were scored
    ended: Sequence[bool] = ()
    thoughts: Sequence[int] = ()  # of each completion's tokens those of its thought, with the tags
    rewards: dict[str, list[float | None]] | None = None  # by name, if rewards judged them

    @property
    def n(self) -> int:
        """The number of problems."""
        return len(self.completions) // self.samples

    @property
    def rate(self) -> float:
        """The fraction of completions that are strictly right, 0 to 1, to 4 places."""
        return statistics.accuracy(self.strict)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the rate (see `rate_interval`)."""
        return rate_interval(by_problem(self.strict, self.samples))

    @property
    def measures(self) -> dict[str, list[bool]]:
        """The three measures by name."""
        return {"strict": self.strict, "lenient": self.lenient, "well_formed": self.well_formed}

    def __str__(self) -> str:
        parts = []
        for name, right in self.measures.items():
            low, high = rate_interval(by_problem(right, self.samples))
            rate = statistics.accuracy(right)
            parts.append(f"{name.replace('_', '-')} {rate:.1%} ({low:.1%} to {high:.1%})")
        return f"{self.n} problems: {', '.join(parts)}"

    def table(self, dataset: "Dataset") -> "DataFrame":
        """A row for each completion: problem, sample, the dataset's columns, the scores.

        Prompts and pictures are left out. A column of the dataset that has the name of one of the
        table's own gets _original after its name.
        """
        pictures = {*IMAGE_COLUMNS, *columns_of_pictures(dataset)}
        left_out = [name for name in dataset.column_names if name == "prompt" or name in pictures]
        columns: Any = dataset.remove_columns(left_out).to_pandas()
        own = ("problem", "sample", "completions", *self.measures, "tokens", "ended", "thought")
        columns = columns.rename(columns={name: f"{name}_original" for name in own})
        table = columns.loc[columns.index.repeat(self.samples)]
        table = table.rename_axis("problem").reset_index()
        table.insert(1, "sample", table.groupby("problem").cumcount())
        table["completions"] = self.completions
        for name, right in self.measures.items():
            table[name] = right
        if self.tokens:
            table["tokens"] = self.tokens
            table["ended"] = self.ended
        if any(self.thoughts):
            table["thought"] = self.thoughts
        return table


def evaluate(
    model: Any,
    tokenizer: Any,
    dataset: "Dataset",
    *,
    rewards: Sequence[Any] = (),
    right_at: float | None = None,
    judge: CorrectnessJudge | None = None,
    samples: int = 1,
    sample: bool = False,
    temperature: float = 1.0,
    max_new_tokens: int = 256,
    batch_size: int = 32,
    seed: int = 0,
    chat_template_kwargs: Mapping[str, Any] | None = None,
    thinking_budget: int | None = None,
    progress: str | None = None,
) -> Scores:
    """Let the model answer each row of the dataset (`prompt`, `answer`), and score the answers.

        before = evaluate(model, tokenizer, heldout, rewards=[right], max_new_tokens=256)
        print(before.rate, before.interval)

    Where the chat template ends the prompt in <reasoning> or <think>, the form counts from there,
    and rewards read the completions with this tag in front, as with `watch(prompt_tag=)`.

    Args:
        model: the policy.
        tokenizer: its tokenizer; for rows with pictures its processor.
        dataset: the rows. Pictures are in a column `image` or `images`, as for TRL's trainer (see
            `pictures`).
        rewards: what scores the completions instead, as in training: functions, reward models or
            their names (see `rewards.specs.as_reward`). The first of them says which are right. The
            dataset then needs the columns that they read, and no `answer`.
        right_at: a completion is right if the first reward gives it at least this value, before
            any weight. Default: 1, for a reward that gives 0 to what is wrong and 1 to what is
            right.
        judge: compares answers that are not numbers (see `score`).
        samples: completions for each problem; several need sample=True.
        sample, temperature, max_new_tokens, batch_size, seed, chat_template_kwargs,
            thinking_budget, progress: as in `generate`.

    Returns:
        The completions, and what is right of them. The samples of a problem stand next to each
        other.

    Raises:
        WorkbookError: for a missing column, for an impossible number of samples, for pictures that
            the model would not see, for a value above 1 of the first reward if `right_at` is left
            out, and for a thinking budget that `generate` refuses.
    """
    needed = ["prompt"] if rewards else ["prompt", "answer"]
    require_columns("evaluate", needed, dataset.column_names)
    if samples < 1 or (samples > 1 and not sample):
        raise WorkbookError(f"samples is {samples}: give at least 1, and sample=True for several")

    require_processor(dataset, tokenizer)
    rows = repeated(dataset, samples)
    pictures = image_column(dataset)
    prompts = list(rows["prompt"])
    sampling = Sampling(
        max_new_tokens=max_new_tokens,
        sample=sample,
        temperature=temperature,
        batch_size=batch_size,
        seed=seed,
        chat_template_kwargs=chat_template_kwargs,
        thinking_budget=thinking_budget,
    )
    completions = complete(
        model,
        tokenizer,
        prompts,
        sampling,
        images=rows[pictures] if pictures else None,
        progress=progress,
    )
    texts = [completion.text for completion in completions]
    prompt_tag = ""  # a prompt that is a text has no template
    if prompts and not isinstance(prompts[0], str):
        prompt_tag = prefilled_tag(tokenizer, chat_template_kwargs)
    if rewards:
        token_ids = [completion.tokens for completion in completions]
        functions = [as_reward(function) for function in rewards]
        scores = score_by_rewards(texts, token_ids, rows, functions, right_at, prompt_tag)
    else:
        answers = list(rows["answer"])
        scores = score(texts, answers, judge=judge, prompts=prompts, prompt_tag=prompt_tag)
    return replace(
        scores,
        samples=samples,
        tokens=[len(completion.tokens) for completion in completions],
        ended=[completion.ended for completion in completions],
        thoughts=[completion.thought for completion in completions],
    )


def repeated(dataset: "Dataset", samples: int) -> "Dataset":
    """Each row `samples` times, one after the other, as `Scores` has them."""
    return dataset.select([i // samples for i in range(len(dataset) * samples)])


def measure(
    model: Any,
    tokenizer: Any,
    heldout: "Dataset",
    *,
    ways: Sequence[str] = ("sampled", "greedy"),
    samples: int = 1,
    judge: CorrectnessJudge | None = None,
    max_new_tokens: int = 256,
    batch_size: int = 32,
    seed: int = 0,
    chat_template_kwargs: Mapping[str, Any] | None = None,
) -> dict[str, Scores]:
    """The scores of a policy on the held-out problems, by way of decoding, for `report_heldout`.

    Args:
        model, tokenizer: the policy.
        heldout: rows with `prompt` and `answer`.
        ways: "sampled" (at temperature 1), "greedy", or both.
        samples: sampled answers to each problem. The greedy answer is always one.
        judge: compares answers that are not numbers (see `score`).
        max_new_tokens, batch_size, seed, chat_template_kwargs: as in `generate`.

    Returns:
        The Scores of each way, under its name.
    """
    scores = {}
    for way in ways:
        is_sampled = way == "sampled"
        scores[way] = evaluate(
            model,
            tokenizer,
            heldout,
            judge=judge,
            samples=samples if is_sampled else 1,
            sample=is_sampled,
            max_new_tokens=max_new_tokens,
            batch_size=batch_size,
            seed=seed,
            chat_template_kwargs=chat_template_kwargs,
            progress=f"held-out problems, {way}",
        )
    return scores


def score(
    texts: Sequence[str],
    answers: Sequence[str],
    *,
    judge: CorrectnessJudge | None = None,
    prompts: Sequence[Prompt] = (),
    prompt_tag: str = "",
) -> Scores:
    """Judge completions against their reference answers.

    Args:
        texts: the completions.
        answers: the reference of each completion: a number, unless there is a judge.
        judge: `judge(answer, reference)` returns whether an answer matches its reference, or None
            if it cannot tell. It is not called for equal texts, and only once for equal pairs. A
            `WholeJudge` decides on whole completions instead.
        prompts: texts or chats, whose words may be units in the answers ("72 widgets").
        prompt_tag: <reasoning> or <think>, if the chat template ends the prompts in it (see
            `data.prompts.prefilled_tag`): the form counts from there.

    Returns:
        The Scores, with one completion for each problem.

    Raises:
        WorkbookError: for a reference that must be a number and is not.
        ValueError: if there is another number of answers than of texts.
    """
    if isinstance(judge, WholeJudge):
        # It knows no form of an answer, so that the three measures are one.
        right = [bool(judge.is_right(*pair)) for pair in zip(texts, answers, strict=True)]
        return Scores(list(texts), strict=right, lenient=right, well_formed=right)

    matches = cache(judge) if judge else None
    strict, lenient, well_formed = [], [], []
    unjudged = 0
    for text, reference, prompt in zip(texts, answers, prompts or [""] * len(texts), strict=True):
        formed = prompt_tag + text  # with the tag that the prompt has opened
        has_form = is_well_formed(formed)
        well_formed.append(has_form)
        strict_answer = tagged_answer(formed) if has_form else None
        strict.append(bool(_is_right(strict_answer, reference, prompt, matches)))

        readable_answer = lenient_answer(formed)
        if judge:  # the answer may be a formula: a marked one comes before the last number
            readable_answer = extract_answer(formed) or readable_answer
        verdict = _is_right(readable_answer, reference, prompt, matches)
        lenient.append(bool(verdict))
        if verdict is None:
            unjudged += 1
    return Scores(list(texts), strict, lenient, well_formed, unjudged=unjudged)


def score_by_rewards(
    texts: Sequence[str],
    token_ids: Sequence[list[int]],
    rows: "Dataset",
    rewards: Sequence[Callable],
    right_at: float | None,
    prompt_tag: str,
) -> Scores:
    """Judge completions by reward functions: right is what the first gives at least `right_at`."""
    columns = {name: list(rows[name]) for name in rows.column_names}
    opened = [prompt_tag + text for text in texts]
    values = {}
    for function in rewards:
        values[name_of(function)] = call(function, opened, completion_ids=token_ids, **columns)
    name = name_of(rewards[0])
    if right_at is None:
        right_at = 1.0
        _check_scale(name, values[name])
    right = [value is not None and value >= right_at for value in values[name]]
    return Scores(list(texts), strict=right, lenient=right, well_formed=right, rewards=values)


def _check_scale(name: str, values: Sequence[float | None]) -> None:
    """Raise WorkbookError, or warn, if it is not clear that a reward of 1 means "right".

    It is an error if a value is above 1, and a warning if the highest one is below 1 but not all
    are 0.
    """
    numbers = {value for value in values if value is not None}
    if not numbers or max(numbers) == 1 or numbers == {0}:
        return
    message = (
        f"{name} gave values from {min(numbers):g} to {max(numbers):g}, where 1 would be right: "
        f"say from which value on a completion is right, such as right_at={max(numbers):g}"
    )
    if max(numbers) > 1:
        raise WorkbookError(message)
    # 4 levels up is the line that calls `evaluate`.
    warnings.warn(f"{message}. Without it none counts as right", stacklevel=4)


def _is_right(
    answer: str | None, reference: str, prompt: Prompt, judge: AnswerJudge | None
) -> bool | None:
    """Whether the answer that a completion gave is the reference; None if the judge cannot tell."""
    if judge is None:
        return is_correct(answer, reference, prompt)
    if answer is None:
        return False
    if answer.casefold().split() == reference.casefold().split():
        return True
    return judge(answer, reference)


# ---------------------------------------------------------------------------- comparing


@dataclass(frozen=True)
class Change:
    """One measure of two policies on the same problems. Rates and gains are 0 to 1, to 4 places."""

    before: float
    before_interval: tuple[float, float]
    after: float
    after_interval: tuple[float, float]
    gain: float
    gain_interval: tuple[float, float]  # 95 %, `statistics.mean_interval` of the problems' gains
    better: int  # problems that got better
    worse: int
    p_value: float  # of the paired test: chance alone makes as many problems better as worse

    def sentence(self, name: str) -> str:
        """What happened to the measure of this name, as a sentence without its full stop."""
        if self.before == self.after:
            return f"{name} stayed at {self.after:.1%}"
        verb = "rose" if self.after > self.before else "fell"
        words = f"{name} {verb} from {self.before:.1%} to {self.after:.1%}"
        if self.p_value < 0.01:
            return f"{words} (p = {self.p_value:.1g})"
        return f"{words}, which may be chance (p = {self.p_value:.2g})"


@dataclass(frozen=True)
class Part:
    """A part of a gain, 0 to 1, to 4 places."""

    gain: float
    gain_interval: tuple[float, float]  # as in Change


@dataclass(frozen=True)
class GainParts:
    """The three parts of a strict gain, which add up to it (see `divide_gain`)."""

    form: Part
    sharpening: Part | None  # these two are None if each problem was answered once
    new: Part | None


@dataclass(frozen=True)
class Comparison:
    """Two policies on the same problems, by all three measures."""

    n: int  # problems
    samples: int  # completions of each problem
    strict: Change
    lenient: Change
    well_formed: Change
    parts: GainParts  # of the strict gain
    # pass@k, where k is `samples`: the problems with a right answer among so many. None for one.
    strict_pass: Change | None = None
    lenient_pass: Change | None = None
    unjudged: int = 0  # completions of both that no judge could judge; they count as wrong

    def __str__(self) -> str:
        change = self.strict
        low, high = change.gain_interval
        return (
            f"{change.sentence('strict accuracy')}: a gain of {100 * change.gain:.1f} points "
            f"(95 % interval {100 * low:.1f} to {100 * high:.1f}), {change.better} of {self.n} "
            f"problems got better and {change.worse} worse"
        )


def compare(before: Scores, after: Scores) -> Comparison:
    """Compare two policies on the same problems: both rates, the gain and its parts, a paired test.

        print(compare(before, after).strict.gain)

    With several samples of each problem, a problem got better if more of its samples are right, and
    the comparison has pass@k, too.

    Raises:
        WorkbookError: if the numbers of problems or of samples differ.
    """
    if before.n != after.n:
        raise WorkbookError(
            f"{before.n} problems before and {after.n} after: evaluate both on the same ones, in "
            "the same order"
        )
    if before.samples != after.samples:
        raise WorkbookError(
            f"{before.samples} samples of each problem before and {after.samples} after: give both "
            "the same number"
        )
    changes = {}
    for name in before.measures:
        changes[name] = _change(
            by_problem(before.measures[name], before.samples),
            by_problem(after.measures[name], after.samples),
        )
    strict_pass, lenient_pass = None, None
    if before.samples > 1:
        strict_pass = _change(
            passed(before.strict, before.samples), passed(after.strict, after.samples)
        )
        lenient_pass = _change(
            passed(before.lenient, before.samples), passed(after.lenient, after.samples)
        )
    return Comparison(
        n=before.n,
        samples=before.samples,
        **changes,
        parts=divide_gain(before, after),
        strict_pass=strict_pass,
        lenient_pass=lenient_pass,
        unjudged=before.unjudged + after.unjudged,
    )


def divide_gain(before: Scores, after: Scores) -> GainParts:
    """Divide the strict gain into form, sharpening and new.

    - *Form* is the strict gain less the lenient gain: answers that were right already, and that now
      have the form that was asked for.
    - *Sharpening* is the lenient gain on problems that the first policy solved in at least one of
      its other tries: training made likely what the model could do already.
    - *New* is the lenient gain on problems that it solved in none of its other tries.

    "Other" means that a problem is assigned for each try by all tries but this one. A problem that
    was assigned by its own unlucky tries would seem to gain whatever the training did (regression
    to the mean); so, a policy that is compared with itself gains nothing in any part on average.

    What is new depends on the number of tries: more of them find rarer answers. The idea is that of
    Yue et al. 2025 (arXiv 2504.13837), who compare pass@k before and after training.
    """
    samples = before.samples
    form, sharpening, new = [], [], []
    for first in range(0, len(before.strict), samples):
        tries = slice(first, first + samples)  # of one problem
        lenient_before = before.lenient[tries]
        right_before = sum(lenient_before)
        rate_after = sum(after.lenient[tries]) / samples
        lenient_gain = rate_after - right_before / samples
        strict_gain = (sum(after.strict[tries]) - sum(before.strict[tries])) / samples
        new_gain = 0.0
        for is_right in lenient_before:
            if right_before - is_right == 0:  # none of the other tries is right
                new_gain += (rate_after - is_right) / samples
        form.append(strict_gain - lenient_gain)
        sharpening.append(lenient_gain - new_gain)
        new.append(new_gain)
    if samples == 1:  # no other tries
        return GainParts(_part(form), None, None)
    return GainParts(_part(form), _part(sharpening), _part(new))


def describe_gain(heldout: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What kind of gain there is, as lines of Markdown; the first says it in plain words.

        print(*describe_gain(report_heldout(before, after)), sep="\\n")

    Args:
        heldout: by way of decoding, as `report_heldout` gives it. The first way is described.
    """
    way, comparison = next(iter(heldout.items()))
    samples = comparison["samples"]
    strict = comparison["strict"]
    # (name, Change or Part, of which problems it is)
    parts = _rows_of_parts(comparison)
    others = [("together", strict, f"strict accuracy, {way}")]
    if samples > 1:
        passes = comparison["lenient_pass"]
        others.append((f"pass@{samples}", passes, f"is solved in at least one of {samples} tries"))
    if way != "greedy" and "greedy" in heldout:
        greedy = heldout["greedy"]["lenient"]
        others.append(("greedy", greedy, "is solved by the greedy answer"))
    gains = ", ".join(f"{_points(part['gain'])} {name}" for name, part, _ in parts)
    lines = [
        f"Strict accuracy ({way}) changed by {_points(strict['gain'])} points: {gains}.",
        "",
        "| gain | points (95 % interval) | of what |",
        "| --- | --- | --- |",
    ]
    for name, change, meaning in [*parts, *others]:
        low, high = change["gain_interval"]
        points = f"{_points(change['gain'])} ({_points(low)} to {_points(high)})"
        lines.append(f"| {name} | {points} | {meaning} |")
    return lines


def _rows_of_parts(comparison: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any], str]]:
    """The rows of `describe_gain` for the parts of the strict gain, which add up to it."""
    parts = comparison["parts"]
    form = ("form", parts["form"], "was right before, in another form")
    tries = comparison["samples"] - 1
    if tries == 0:
        return [form, ("sharpening or new", comparison["lenient"], "several samples tell which")]
    return [
        form,
        ("sharpening", parts["sharpening"], f"was solved before in some of {tries} tries"),
        ("new", parts["new"], f"was solved before in none of {tries} tries"),
    ]


def _points(gain: float) -> str:
    """A gain in points of 100, with its sign; never -0.0."""
    return f"{100 * gain:+z.1f}"


def report_heldout(before: Mapping[str, Scores], after: Mapping[str, Scores]) -> dict[str, dict]:
    """The held-out part of a report, in plain values: the `Comparison` for each way of decoding.

        heldout = report_heldout({"sampled": a, "greedy": b}, {"sampled": c, "greedy": d})
        heldout["sampled"]["strict"]["gain"], heldout["sampled"]["parts"]["new"]["gain"]

    Figures, model cards and verdicts read this.
    """
    return {way: asdict(compare(before[way], after[way])) for way in after}


def by_problem(right: Sequence[bool], samples: int) -> list[float]:
    """For each problem the fraction of its completions that are right."""
    rates = []
    for start in range(0, len(right), samples):
        rates.append(sum(right[start : start + samples]) / samples)
    return rates


def passed(right: Sequence[bool], samples: int) -> list[float]:
    """For each problem 1 if any of its completions is right, else 0: pass@k with k = samples."""
    return [float(rate > 0) for rate in by_problem(right, samples)]


def rate_interval(rates: Sequence[float]) -> tuple[float, float]:
    """95 % (low, high) of the mean of the problems' rates, to 4 places.

    Wilson's interval if each rate is 0 or 1, else a bootstrap of the problems.
    """
    if set(rates) <= {0, 1}:
        return statistics.wilson_interval(rates)
    low, high = statistics.mean_interval(rates, 0, 1)
    return round(low, 4), round(high, 4)


def _gain_interval(gains: Sequence[float]) -> tuple[float, float]:
    """95 % (low, high) of the mean of the problems' gains, to 4 places."""
    low, high = statistics.mean_interval(gains, -1, 1)
    return round(low, 4), round(high, 4)


def _part(gains: list[float]) -> Part:
    """A part of a gain, from the gain of each problem."""
    return Part(statistics.accuracy(gains), _gain_interval(gains))


def _change(before: list[float], after: list[float]) -> Change:
    """The change of one measure, from each problem's rate before and after."""
    gains = [new - old for old, new in zip(before, after, strict=True)]
    better, worse = statistics.changed(before, after)
    return Change(
        before=statistics.accuracy(before),
        before_interval=rate_interval(before),
        after=statistics.accuracy(after),
        after_interval=rate_interval(after),
        gain=round(sum(gains) / len(gains), 4),
        gain_interval=_gain_interval(gains),
        better=len(better),
        worse=len(worse),
        p_value=statistics.paired_p_value(before, after),
    )


# ---------------------------------------------------------------------------- generating


def generate(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[Prompt],
    *,
    images: Sequence[Any] | None = None,
    sample: bool = False,
    temperature: float = 1.0,
    max_new_tokens: int = 256,
    batch_size: int = 32,
    seed: int = 0,
    chat_template_kwargs: Mapping[str, Any] | None = None,
    thinking_budget: int | None = None,
    progress: str | None = None,
) -> list[str]:
    """The model's completion of each prompt.

    Args:
        model: a causal language model, with vision for prompts with pictures.
        tokenizer: its tokenizer, or its processor for text and pictures. With a processor, the
            tokens that stand for a picture are never written (see `compat.picture_tokens`).
        prompts: chats, or texts that are read as they stand.
        images: for each prompt a picture (PIL), a list of them, or None. They are put before the
            text of the first user turn, as TRL does.
        sample: draw tokens at `temperature`, without top-k and top-p; else take the most likely.
        max_new_tokens: where a completion is cut off.
        batch_size: prompts at a time. Each batch has a seed of its own, so that several processes
            share the work and get what one would get; another batch size samples other texts.
        seed: of the samples.
        chat_template_kwargs: those of the training's GRPOConfig, as in `data.render`.
        thinking_budget: where a thought is cut off, in tokens of the completion: </think> is
            written behind it, and the model goes on with its answer. A thought that closes before
            is kept; of a sampled completion what follows the budget is drawn anew. With 0 the
            model gets an empty thought. Default: no cut.
        progress: the label of a bar, or None for no bar.

    Raises:
        WorkbookError: if there are images, and a tokenizer in place of a processor; for a thinking
            budget that leaves no token for the answer, and for one with images.
    """
    sampling = Sampling(
        max_new_tokens=max_new_tokens,
        sample=sample,
        temperature=temperature,
        batch_size=batch_size,
        seed=seed,
        chat_template_kwargs=chat_template_kwargs,
        thinking_budget=thinking_budget,
    )
    completions = complete(model, tokenizer, prompts, sampling, images=images, progress=progress)
    return [completion.text for completion in completions]


def complete(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[Any],
    sampling: Sampling,
    *,
    images: Sequence[Any] | None = None,
    progress: str | None = None,
    share: bool = True,
) -> list[Generated]:
    """The completion of each prompt (a chat or a text); the random state stays as it was.

    The `images` are those of `generate`. A `Column` of a Dataset opens them batch by batch.

    Several processes divide the batches: in each turn every process completes one batch, and then
    all of them get what all have completed. With `share=False` this process works alone.
    """
    import torch
    from accelerate import PartialState
    from accelerate.utils import gather_object
    from tqdm import tqdm

    check_budget(sampling.thinking_budget, sampling.max_new_tokens, pictures=images is not None)
    process_index, num_processes = 0, 1
    if share:
        state = PartialState()
        process_index, num_processes = state.process_index, state.num_processes

    texts, add_special_tokens = texts_of(prompts, images, tokenizer, sampling.chat_template_kwargs)
    # A batch has prompts of similar length, so that it needs little padding.
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    starts = range(0, len(order), sampling.batch_size)  # the batches' places in `order`

    completions: dict[int, Generated] = {}  # by the place of the prompt
    hidden = progress is None or process_index > 0
    bar = tqdm(total=len(texts), desc=progress, disable=hidden, leave=False)
    with undisturbed(model), bar:
        # Every process takes every turn, because gather_object waits for all of them.
        for turn in range(0, len(starts), num_processes):
            completed: list[tuple[int, Generated]] = []
            if turn + process_index < len(starts):  # else this process has no batch left
                start = starts[turn + process_index]
                batch = order[start : start + sampling.batch_size]
                # By the batch's place, so that the number of processes changes no text.
                torch.manual_seed(sampling.seed * SEEDS_APART + start)
                batch_texts = [texts[i] for i in batch]
                pictures = None
                if images is not None:
                    pictures = [pictures_in(images[i]) for i in batch]
                inputs = encode(
                    tokenizer, batch_texts, pictures, add_special_tokens=add_special_tokens
                )
                if sampling.thinking_budget is None:
                    generated = continue_batch(model, tokenizer, inputs, sampling)
                else:
                    generated = continue_within_budget(model, tokenizer, inputs, sampling)
                generated = with_thoughts(generated, batch_texts, tokenizer)
                completed = list(zip(batch, generated, strict=True))
            if num_processes > 1:
                completed = gather_object(completed)  # also what the other processes completed
            completions.update(completed)
            bar.update(len(completed))
    return [completions[i] for i in range(len(texts))]


def texts_of(
    prompts: Sequence[Any],
    images: Sequence[Any] | None,
    tokenizer: Any,
    chat_template_kwargs: Mapping[str, Any] | None,
) -> tuple[list[str], bool]:
    """(the prompts as texts, with a placeholder for each image; whether they lack special tokens).

    Raises WorkbookError if there are images, and a tokenizer, which would drop them.
    """
    if images is not None and not is_processor(tokenizer):
        raise WorkbookError(
            f"there are pictures, and a {type(tokenizer).__name__} reads text alone: give the "
            "model's processor"
        )
    if len(prompts) > 0 and isinstance(prompts[0], str):
        return list(prompts), True
    # From here on, the chat template writes the special tokens.
    if not is_processor(tokenizer):
        return render(prompts, tokenizer, chat_template_kwargs), False
    values = [None] * len(prompts) if images is None else images
    texts = []
    # One at a time, so that only the pictures of one prompt are in memory.
    for prompt, value in zip(prompts, values, strict=True):
        chat = place_pictures(prompt, pictures_in(value))
        texts.extend(render([chat], tokenizer, chat_template_kwargs))
    return texts, False


def complete_batch(
    model: Any, tokenizer: Any, contexts: list[list[int]], sampling: Sampling
) -> list[Generated]:
    """What follows each context (its token ids), in one batch."""
    batch = tokenizer_of(tokenizer).pad(
        {"input_ids": contexts}, padding_side="left", return_tensors="pt"
    )
    return continue_batch(model, tokenizer, batch, sampling)


def continue_batch(model: Any, processor: Any, batch: Any, sampling: Sampling) -> list[Generated]:
    """What follows each row of a batch: the model's input, padded on the left."""
    tokenizer = tokenizer_of(processor)
    ends = end_tokens(model, tokenizer)
    settings: dict[str, Any] = {}
    if is_processor(processor):  # as in training, which would stop at such a token
        settings["suppress_tokens"] = compat.picture_tokens(processor)
    if sampling.sample:
        # Named, because a model's own generation config often has others (Qwen's a top-k of 20).
        settings.update(temperature=sampling.temperature, top_p=1.0, top_k=0)
    output = model.generate(
        **batch.to(model.device),
        do_sample=sampling.sample,
        max_new_tokens=sampling.max_new_tokens,
        use_cache=True,  # a Trainer turns it off in the config of its model
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=ends,
        **settings,
    )  # (batch, padded context + completion)
    completions = []
    for ids in output[:, batch["input_ids"].shape[1] :].tolist():
        tokens, ended = up_to_end(ids, ends)
        text = tokenizer.decode(tokens, skip_special_tokens=True)
        completions.append(Generated(text, tokens, ended))
    return completions


# ---------------------------------------------------------------------------- thoughts

OPENED = "<think>"
CLOSING = "\n</think>\n\n"  # as Qwen3 writes it


def check_budget(budget: int | None, max_new_tokens: int, *, pictures: bool) -> None:
    """Raise WorkbookError for a thinking budget that cannot be kept."""
    if budget is None:
        return
    if not 0 <= budget < max_new_tokens:
        raise WorkbookError(
            f"thinking_budget is {budget} and max_new_tokens {max_new_tokens}: the budget is at "
            "least 0, and must leave tokens for the answer"
        )
    if pictures:
        raise WorkbookError("thinking_budget is for texts: leave it out for rows with pictures")


def continue_within_budget(
    model: Any, processor: Any, batch: Any, sampling: Sampling
) -> list[Generated]:
    """What follows each row of a batch, where a thought has at most `thinking_budget` tokens.

    It takes two passes. The first one ends after the budget. The second continues what has not
    ended; a thought that is still open is closed before. The budget is that of Qwen3's technical
    report (arXiv 2505.09388), without the sentence that Qwen writes before it closes a thought.
    """
    budget = sampling.thinking_budget or 0
    tokenizer = tokenizer_of(processor)
    # Without the padding: the second pass pads its longer contexts anew.
    prompts = []
    for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True):
        prompts.append(ids[mask.bool()].tolist())
    # With a budget of 0 nothing is written before the thought is closed.
    completions = [Generated("", [], ended=False) for _ in prompts]
    if budget > 0:
        first_pass = replace(sampling, max_new_tokens=budget)
        completions = continue_batch(model, processor, batch, first_pass)
    written = {}  # by row: what the second pass continues
    for row, completion in enumerate(completions):
        if not completion.ended:
            written[row] = with_closed_thought(tokenizer, prompts[row], completion.tokens, budget)
    if not written:
        return completions
    contexts = [prompts[row] + tokens for row, tokens in written.items()]
    # What has not ended has used up exactly the budget.
    second_pass = replace(sampling, max_new_tokens=sampling.max_new_tokens - budget)
    answers = complete_batch(model, processor, contexts, second_pass)
    # A completion counts as a whole: what was written for the model is a part of it.
    for (row, tokens), answer in zip(written.items(), answers, strict=True):
        whole = tokens + answer.tokens
        text = tokenizer.decode(whole, skip_special_tokens=True)
        completions[row] = Generated(text, whole, answer.ended)
    return completions


def with_closed_thought(
    tokenizer: Any, prompt: list[int], tokens: list[int], budget: int
) -> list[int]:
    """The tokens of a completion so far, and the tag that closes its thought if that is open."""
    # Only what the template has written last counts: the question may speak of the tags, too.
    # Eight tokens are enough for a tag that a tokenizer cuts into pieces.
    opening = tokenizer.decode(prompt[-8:]).rstrip()
    if opening.endswith("</think>"):  # thinking is off: the template has closed the thought
        return tokens
    is_opened = opening.endswith(OPENED)
    opened_by_prompt = OPENED if is_opened else ""
    closing = CLOSING
    # An empty thought, as the template of Qwen3 writes it with enable_thinking=False.
    if budget == 0 and not is_opened:
        closing = f"{OPENED}\n{CLOSING}"
    elif not thought_is_open(opened_by_prompt + tokenizer.decode(tokens)):
        return tokens
    # The closing tag begins with a line break of its own.
    while tokens and tokenizer.decode(tokens[-1:]).isspace():
        tokens = tokens[:-1]
    return tokens + tokenizer(closing, add_special_tokens=False)["input_ids"]


def with_thoughts(
    completions: list[Generated], prompts: list[str], processor: Any
) -> list[Generated]:
    """The completions with the lengths of their thoughts; a prompt may open the thought."""
    tokenizer = tokenizer_of(processor)
    counted = []
    for completion, prompt in zip(completions, prompts, strict=True):
        # The model opens its thought itself, or the template has done so.
        is_opened = prompt.rstrip().endswith(OPENED) or OPENED in completion.text
        thought = thought_length(tokenizer, completion.tokens) if is_opened else 0
        counted.append(replace(completion, thought=thought))
    return counted


def thought_length(tokenizer: Any, tokens: list[int]) -> int:
    """The number of tokens up to the tag that closes a thought, which is included; else of all."""

    def is_closed(count: int) -> bool:
        return "</think>" in tokenizer.decode(tokens[:count])

    # A search by halves: `is_closed` is False for few tokens, and stays True from some count on.
    return min(bisect_left(range(len(tokens) + 1), True, key=is_closed), len(tokens))


def up_to_end(tokens: list[int], ends: list[int]) -> tuple[list[int], bool]:
    """The tokens up to the first end token, which is included, and whether there was one."""
    for position, token in enumerate(tokens):
        if token in ends:
            return tokens[: position + 1], True
    return tokens, False


def end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """The ids of the end tokens, as in TRL: Gemma and Qwen end a turn and a text by other ones."""
    ends = {tokenizer.eos_token_id}
    configured = model.generation_config.eos_token_id  # one, several, or None
    if isinstance(configured, list):
        ends.update(configured)
    else:
        ends.add(configured)
    return sorted(ends - {None})


@contextmanager
def undisturbed(model: Any) -> Iterator[None]:
    """Evaluation mode without gradients; the mode and the random state are restored."""
    import torch

    was_training = model.training
    # The state of the CPU is always kept, that of a GPU only where it is named.
    devices = [model.device] if model.device.type == "cuda" else []
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices):
            yield
    finally:
        model.train(was_training)
