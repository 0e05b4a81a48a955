"""What the diagnosis can find: the catalogue and the bounds, read from findings.toml.

A rule (rules.py) makes a Finding from its entry in the CATALOGUE and from what it has measured. The
bounds that the rules compare with stand with their reasons in findings.toml.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

SEVERE, WARNING, NOTE, FINE = "severe", "warning", "note", "fine"
ALARMS = (SEVERE, WARNING)
DATA = tomllib.loads(Path(__file__).with_name("findings.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Entry:
    """An entry of the catalogue; the head of findings.toml describes the fields."""

    severity: str
    symptom: str
    means: str
    do: str
    explains: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    asks: str = ""
    setting: str = ""
    factor: float | None = None
    to: float = 0.0
    then: str = ""
    at_once: bool = False


@dataclass(frozen=True)
class Evidence:
    """A measured number, and the healthy values as text ("over 3")."""

    metric: str
    value: float | str
    threshold: str = ""

    def __str__(self) -> str:
        value = self.value if isinstance(self.value, str) else f"{self.value:.3g}"
        if not self.threshold:
            return f"{self.metric} {value}"
        return f"{self.metric} {value} ({self.threshold})"


@dataclass(frozen=True)
class Finding:
    """What is wrong with a run: in which steps, the evidence, the meaning, and what to do."""

    name: str
    severity: str  # "severe", "warning", "note" or "fine"
    step: int  # the first optimizer step at which it showed
    evidence: tuple[Evidence, ...]
    means: str
    do: str
    until: int  # the last step at which it showed, mostly the log's last


CATALOGUE = {name: Entry(**fields) for name, fields in DATA["findings"].items()}
# bounds.sure is the value of [thresholds.sure]
bounds = SimpleNamespace(**{name: fields["value"] for name, fields in DATA["thresholds"].items()})


def advice(name: str, settings: dict) -> str:
    """What to do about a finding: the setting, its value now, the one to try, what will follow."""
    entry = CATALOGUE[name]
    sentences = [entry.do]
    value = settings.get(entry.setting)
    if isinstance(value, int | float) and value == value:  # NaN: it was not logged
        better = entry.to if value == 0 or entry.factor is None else value * entry.factor
        if better != value:
            sentences.append(f"{entry.setting} is {value:.4g} now: try {better:.4g}.")
    if entry.then:
        sentences.append(f"If that was the cause, {entry.then}.")
    return " ".join(sentences)
