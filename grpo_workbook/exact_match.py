"""The two numbers that lm-evaluation-harness reports on GSM8K, for comparison with what others publish.

- strict-match: the first number after `#### `, as GSM8K's own solutions end.
- flexible-extract: the last number of the text.

The extracted text must equal the reference once commas, dollar signs and a final full stop are gone, so `72.0` is not
72. Our own measures read more forms and punish a broken one; these are the harness's task `gsm8k`, version 3.
"""

import re
from collections.abc import Sequence

_STRICT = re.compile(r"#### (-?[0-9.,]+)")
_FLEXIBLE = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")
_IGNORED = tuple(map(re.compile, (",", r"\$", r"(?s).*#### ", r"\.$")))


def strict_match(completion: str, solution: str) -> bool:
    """The harness's strict-match of one completion with the whole solution (its text before `#### ` is ignored)."""
    found = _STRICT.search(completion)
    return _plain(found[1].strip() if found else "[invalid]") == _plain(solution)


def flexible_extract(completion: str, solution: str) -> bool:
    """The harness's flexible-extract of one completion with the whole solution."""
    last = None
    for last in _FLEXIBLE.finditer(completion):  # noqa: B007 (the last one is wanted)
        pass
    return _plain(last[0].strip() if last else "[invalid]") == _plain(solution)


def harness_scores(completions: Sequence[str], solutions: Sequence[str]) -> dict[str, float]:
    """{"strict-match": share, "flexible-extract": share}, shares from 0 to 1; solutions are GSM8K's, or bare numbers.

    Raises ValueError for no completions, or another number of solutions.
    """
    pairs = list(zip(completions, solutions, strict=True))
    if not pairs:
        raise ValueError("no completions: a share of nothing is no number")
    return {
        name: sum(judge(c, s) for c, s in pairs) / len(pairs)
        for name, judge in (("strict-match", strict_match), ("flexible-extract", flexible_extract))
    }


def _plain(text: str) -> str:
    for pattern in _IGNORED:
        text = pattern.sub("", text)
    return text.lower()
