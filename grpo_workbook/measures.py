"""From completions to numbers: shares with intervals, lengths, pass@k and majority vote, groups, and a comparison.

With one sample for each problem, outcomes are yes or no, and shares get Wilson's interval. With several, a problem's
outcome is its share of right samples, and the interval is the bootstrap's over problems.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import median

from grpo_workbook.answers import (
    is_leniently_right,
    is_strictly_right,
    is_well_formed,
    lenient_answer,
    parse_number,
    read_answer,
    tagged_answer,
)
from grpo_workbook.attempts import majority_at_k, pass_at_k
from grpo_workbook.breakdown import groups, in_order
from grpo_workbook.evaluation_run import Answered
from grpo_workbook.exact_match import harness_scores
from grpo_workbook.intervals import bootstrap_interval, changed, paired_p_value, wilson_interval
from grpo_workbook.power import paired_gain

JUDGES: dict[str, Callable[[str, str], bool]] = {
    "strict": is_strictly_right,
    "lenient": is_leniently_right,
    "well_formed": lambda text, answer: is_well_formed(text),
}


@dataclass
class Judged:
    """An Answered with its verdicts: `right[measure][i][s]` for sample s of problem i."""

    answered: Answered
    right: dict[str, list[list[bool]]]

    @property
    def n(self) -> int:
        """How many problems there are."""
        return len(self.answered.rows)

    @property
    def samples(self) -> int:
        """How many completions each problem has."""
        return len(self.answered.completions[0])

    def shares(self, measure: str) -> list[float]:
        """Each problem's share of right samples, 0 to 1; `measure` is one of JUDGES."""
        return [sum(found) / len(found) for found in self.right[measure]]


def judge(answered: Answered) -> Judged:
    """Judge every completion by every measure."""
    pairs = list(zip(answered.rows, answered.completions, strict=True))
    return Judged(
        answered,
        {
            name: [[is_right(c.text, row["answer"]) for c in cs] for row, cs in pairs]
            for name, is_right in JUDGES.items()
        },
    )


def share(values: Sequence[float]) -> dict[str, float]:
    """{"share", "low", "high"}: the mean of the problems' shares (each 0 to 1) with its 95 % interval, to 4 places.

    Raises ValueError for no values.
    """
    if all(v in (0, 1) for v in values):
        low, high = wilson_interval([bool(v) for v in values])
    else:
        low, high = bootstrap_interval(values)
    return {
        "share": round(sum(values) / len(values), 4),
        "low": round(low, 4),
        "high": round(high, 4),
    }


def section(judged: Judged, ks: Sequence[int]) -> dict:
    """The numbers of one set of problems, as report.json has them: shares 0 to 1, lengths in tokens.

    `ks` are the k of pass@k and of the majority vote, each from 1 to the number of samples.
    """
    every = [c for cs in judged.answered.completions for c in cs]
    tokens = [sum(c.tokens for c in cs) / len(cs) for cs in judged.answered.completions]
    low, high = bootstrap_interval(tokens)
    solutions = [
        row.get("solution", row["answer"])
        for row in judged.answered.rows
        for _ in range(judged.samples)
    ]
    visible = paired_gain(judged.n)
    return {
        "n": judged.n,
        "samples": judged.samples,
        **{name: share(judged.shares(name)) for name in JUDGES},
        "cut_off": round(sum(not c.ended for c in every) / len(every), 4),
        "tokens": {
            "mean": round(sum(tokens) / len(tokens), 2),
            "low": round(low, 2),
            "high": round(high, 2),
            "median": median(c.tokens for c in every),
            "max": max(c.tokens for c in every),
        },
        "harness": {
            k: round(v, 4) for k, v in harness_scores([c.text for c in every], solutions).items()
        },
        "pass_at_k": {str(k): _pass_at(judged, k) for k in ks},
        "majority_at_k": {str(k): _majority_at(judged, k) for k in ks},
        "by": _by_group(judged),
        "smallest_visible_gain": visible,
    }


def _pass_at(judged: Judged, k: int) -> dict:
    n = judged.samples
    return {
        m: share([pass_at_k(n, sum(found), k) for found in judged.right[m]])
        for m in ("strict", "lenient")
    }


def _majority_at(judged: Judged, k: int) -> dict:
    found: dict[str, list[float]] = {"strict": [], "lenient": []}
    for row, completions in zip(judged.answered.rows, judged.answered.completions, strict=True):
        gold = _gold(row["answer"])
        for measure, vote in (("strict", strict_vote), ("lenient", lenient_vote)):
            found[measure].append(majority_at_k([vote(c.text) for c in completions], gold, k))
    return {measure: share(values) for measure, values in found.items()}


def strict_vote(text: str) -> Fraction | None:
    """The number in a well-formed completion's answer block; any other abstains."""
    return read_answer(tagged_answer(text) or "") if is_well_formed(text) else None


def lenient_vote(text: str) -> Fraction | None:
    """The number that a kind reader takes for the answer; None where there is none."""
    return read_answer(lenient_answer(text) or "")


def _gold(answer: str) -> Fraction | None:
    number = parse_number(answer)
    return read_answer(answer) if number is None else number


def _by_group(judged: Judged) -> dict[str, list[dict]]:
    strict, lenient = judged.shares("strict"), judged.shares("lenient")
    found = {}
    for name, labels in groups(judged.answered.rows).items():
        found[name] = []
        for label in in_order(labels):
            inside = [i for i, other in enumerate(labels) if other == label]
            found[name].append(
                {
                    "group": label,
                    "n": len(inside),
                    "strict": share([strict[i] for i in inside]),
                    "lenient": share([lenient[i] for i in inside]),
                }
            )
    return found


def compare(before: Judged, after: Judged) -> tuple[dict, list[dict]] | None:
    """(numbers, the problems that changed) of two evaluations' common problems; None where they share none.

    The paired test looks at the first sample of each problem; the interval of the difference, at all of them.
    """
    places = {row["key"]: i for i, row in enumerate(before.answered.rows)}
    pairs = [
        (places[row["key"]], j) for j, row in enumerate(after.answered.rows) if row["key"] in places
    ]
    if not pairs:
        return None
    numbers: dict = {
        "n": len(pairs),
        "samples": max(before.samples, after.samples),
        "only_before": before.n - len(pairs),
        "only_after": after.n - len(pairs),
    }
    for name in JUDGES:
        b, a = ([j.shares(name)[p[side]] for p in pairs] for side, j in enumerate((before, after)))
        first = [
            [j.right[name][p[side]][0] for p in pairs] for side, j in enumerate((before, after))
        ]
        better, worse = changed(*first)
        differences = [y - x for x, y in zip(b, a, strict=True)]
        low, high = bootstrap_interval(differences)
        numbers[name] = {
            "before": round(sum(b) / len(b), 4),
            "after": round(sum(a) / len(a), 4),
            "difference": round(sum(differences) / len(pairs), 4),
            "low": round(low, 4),
            "high": round(high, 4),
            "better": len(better),
            "worse": len(worse),
            "p_value": paired_p_value(*first),
        }
    mean_tokens = [
        sum(c.tokens for p in pairs for c in j.answered.completions[p[side]])
        / len(pairs)
        / j.samples
        for side, j in enumerate((before, after))
    ]
    numbers["tokens"] = {"before": round(mean_tokens[0], 2), "after": round(mean_tokens[1], 2)}
    return numbers, _changes(before, after, pairs)


def _changes(before: Judged, after: Judged, pairs: Sequence[tuple[int, int]]) -> list[dict]:
    """The problems whose first sample is strictly right in one of the two only, those that got worse first."""
    found = []
    for i, j in pairs:
        was, is_now = before.right["strict"][i][0], after.right["strict"][j][0]
        if was != is_now:
            row = after.answered.rows[j]
            found.append(
                {
                    "change": "better" if is_now else "worse",
                    "key": row["key"],
                    "question": row["question"],
                    "answer": row["answer"],
                    "before": before.answered.completions[i][0].text,
                    "after": after.answered.completions[j][0].text,
                }
            )
    return sorted(found, key=lambda change: change["change"] == "better")
