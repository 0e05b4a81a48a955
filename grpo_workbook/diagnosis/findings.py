"""The findings of a diagnosis. Their texts, and the bounds with reasons, are in findings.toml."""

import fnmatch
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace

from grpo_workbook.diagnosis.runlog import DATA, RunLog
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
    """What is wrong with a run: in which steps, the evidence, the meaning, and what to do."""

    name: str
    severity: str  # "severe", "warning", "note" or "fine"
    step: int  # the first optimizer step at which it showed
    evidence: tuple[Evidence, ...]
    means: str
    do: str
    until: int = 0  # the last one, mostly the log's


CATALOGUE = {n: SimpleNamespace(**DATA["unsaid"] | kind) for n, kind in DATA["findings"].items()}
THRESHOLDS = {name: SimpleNamespace(**told) for name, told in DATA["thresholds"].items()}
bound = SimpleNamespace(**{name: told.value for name, told in THRESHOLDS.items()})


def make(name: str, step, *seen: tuple, means: str = "", until=0, **values) -> Finding:
    """The finding `name` of CATALOGUE, from `step` on (to `until`); `seen`: metrics and values."""
    # the healthy values come with them, or from the catalogue, with all bounds and these `numbers`
    kind, evidence = CATALOGUE[name], []
    for metric, value, *text in seen:
        known = [t for pattern, t in kind.healthy.items() if fnmatch.fnmatch(metric, pattern)]
        told = text[0] if text else known[0].format(**vars(bound) | values)
        evidence.append(Evidence(metric, value if isinstance(value, str) else float(value), told))
    said = f"{kind.means} {means}".strip()
    return Finding(name, kind.severity, int(step), tuple(evidence), said, kind.do, int(until))


def advice(name: str, settings: dict) -> str:
    """What to do about a finding: the setting, its value now, the one to try, what will follow."""
    kind, now = CATALOGUE[name], settings.get(CATALOGUE[name].setting)
    said = [kind.do]
    if isinstance(now, int | float) and now == now:  # a NaN was not logged
        new = kind.to if now == 0 or not hasattr(kind, "factor") else now * kind.factor
        if new != now:
            said.append(f"{kind.setting} is {now:.4g} now: try {new:.4g}.")
    elif kind.setting:
        new = f"{kind.factor:g} times its value" if hasattr(kind, "factor") else f"{kind.to:g}"
        said.append(f"{kind.setting} is not in the log (--set {kind.setting}=VALUE): try {new}.")
    if kind.then:
        said.append(f"If that was the cause, {kind.then}.")
    return " ".join(said)


class Diagnosis(list):
    """Findings without those that another one explains; `told`: the settings and roles known."""

    def __init__(self, found: Sequence[Finding], table, settings: dict, told: Collection[str] = ()):
        last = max([0, *map(int, table.index), *(f.step for f in found)])
        full = [replace(f, until=f.until or last, do=advice(f.name, settings)) for f in found]
        explained = {symptom for f in found for symptom in CATALOGUE[f.name].explains}
        order = [SEVERE, WARNING, FINE, NOTE, *CATALOGUE]  # of two, the cause before its symptom
        full.sort(key=lambda f: (order.index(f.severity), order.index(f.name)))
        super().__init__(f for f in full if f.name not in explained)
        logged, missing = list(table.columns[table.notna().any()]), {}
        acts = "tools/call_frequency" in logged
        for name, kind in CATALOGUE.items():
            needs = [m for m in kind.needs if acts or not m.startswith("tools/")]
            if needs and not any(fnmatch.filter(logged, metric) for metric in needs):
                missing.setdefault(needs[0], []).append(name)
            elif kind.asks and kind.asks not in told:
                missing.setdefault(kind.asks, []).append(name)
        how = {metric: how.format(metric) for metric, how in DATA["metrics"].items()}
        how |= {m: f"{m} was never a number" for m in table if m not in logged}
        self.unjudged = [{"metric": m, "findings": f, "how": how[m]} for m, f in missing.items()]


def as_text(found: Sequence[Finding], run: RunLog | None = None, width: int = 79) -> str:
    """The findings for a terminal of 80 columns, then what is not known about the run."""
    lines = []
    for f in found:
        steps = f"steps {f.step} to {f.until}" if f.until != f.step else f"step {f.step}"
        lines.append(f"{f.severity.upper()}  {f.name}, {steps}")
        seen = "; ".join(map(str, f.evidence))
        for head, text in ("  ", f.means), ("  seen: ", seen), ("  do:   ", f.do):
            lines += wrap(text, width, head)
        lines.append("")
    notes = [f"Not known: {note}" for note in (run.notes if run else ())]
    unjudged = getattr(found, "unjudged", ())
    gaps = "; ".join(f"{', '.join(gap['findings'])} ({gap['how']})" for gap in unjudged)
    notes += [f"Not judged: {gaps}"] if gaps else []
    lines += [line for note in notes for line in wrap(note, width)]
    return "\n".join(lines).rstrip()
