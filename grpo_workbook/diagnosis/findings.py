"""The findings of a diagnosis. Their texts, and the bounds with reasons, are in findings.toml."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

from grpo_workbook.diagnosis.runlog import RunLog
from grpo_workbook.errors import wrap

SEVERE, WARNING, NOTE, FINE = "severe", "warning", "note", "fine"
ALARMS = SEVERE, WARNING


@dataclass(frozen=True)
class Evidence:
    """A measured number, and the healthy values as text ("over 3")."""

    metric: str
    value: float | str
    threshold: str = ""

    def __str__(self) -> str:
        value = self.value if isinstance(self.value, str) else f"{self.value:.3g}"
        return f"{self.metric} {value}" + (f" ({self.threshold})" if self.threshold else "")


@dataclass(frozen=True)
class Finding:
    """What is wrong with a run: since which step, the evidence, the meaning, and what to do."""

    name: str
    severity: str  # "severe", "warning", "note" or "fine"
    step: int  # the first step at which it showed
    evidence: tuple[Evidence, ...]
    means: str
    do: str


_DATA = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
# name -> severity, symptom, means, do, and the findings it `explains`; name -> value, reason
CATALOGUE = {n: SimpleNamespace(**{"explains": (), **k}) for n, k in _DATA["findings"].items()}
THRESHOLDS = {n: SimpleNamespace(**told) for n, told in _DATA["thresholds"].items()}
bound = SimpleNamespace(**{name: told.value for name, told in THRESHOLDS.items()})


def make(name: str, step: int, *evidence: Evidence, means: str = "") -> Finding:
    """The finding `name` of CATALOGUE, from `step` on; `means` is added to its meaning."""
    kind = CATALOGUE[name]
    means = f"{kind.means} {means}".strip()
    plain = [e if isinstance(e.value, str) else replace(e, value=float(e.value)) for e in evidence]
    return Finding(name, kind.severity, int(step), tuple(plain), means, kind.do)


def in_order(found: Sequence[Finding]) -> list[Finding]:
    """The findings without symptoms of others; the most severe first, causes before symptoms."""
    explained = {symptom for f in found for symptom in CATALOGUE[f.name].explains}
    order = [SEVERE, WARNING, NOTE, FINE, *CATALOGUE]
    kept = [f for f in found if f.name not in explained]
    return sorted(kept, key=lambda f: (order.index(f.severity), order.index(f.name)))


def symptom_table() -> str:
    """Symptom, cause and cure of every finding, as Markdown."""
    rows = ["| finding | what you see | what it means | what to do |", "| --- | --- | --- | --- |"]
    rows += [f"| `{n}` | {k.symptom} | {k.means} | {k.do} |" for n, k in CATALOGUE.items()]
    return "\n".join(rows)


def as_text(found: Sequence[Finding], run: RunLog, width: int = 79) -> str:
    """The findings for a terminal of 80 columns, then what is not known about the run."""
    lines = []
    for f in found:
        lines.append(f"{f.severity.upper()}  {f.name}, from step {f.step}")
        seen = "; ".join(map(str, f.evidence))
        for head, text in ("  ", f.means), ("  seen: ", seen), ("  do:   ", f.do):
            lines += wrap(text, width, head)
        lines.append("")
    lines += [line for note in run.notes for line in wrap(f"Not known: {note}", width)]
    return "\n".join(lines).rstrip()
