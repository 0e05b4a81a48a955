"""The diagnosis of a run: its findings in order, what could not be judged, and both as text."""

import fnmatch
from collections.abc import Mapping, Sequence
from pathlib import Path

from grpo_workbook.diagnosis.findings import (
    ALARMS,
    CATALOGUE,
    DATA,
    FINE,
    NOTE,
    SEVERE,
    WARNING,
    Entry,
    Finding,
)
from grpo_workbook.diagnosis.rules import RULES, healthy
from grpo_workbook.diagnosis.runlog import RunLog, read_run
from grpo_workbook.diagnosis.view import CALLS, View
from grpo_workbook.errors import wrap

WIDTH = 79  # of a terminal of 80 columns
# "healthy" stands before the notes about a healthy run
IMPORTANCE = [SEVERE, WARNING, FINE, NOTE]


def diagnose(run: RunLog | str | Path | Mapping | list, *, live: bool = False) -> list[Finding]:
    """What is wrong with the run, the most severe first; one finding "healthy" if nothing is.

    run: a RunLog, or a source for read_run.
    live: the run goes on, so that a flat reward is reported only after half of its `max_steps`.

    Findings that another one explains are left out. WorkbookError if the source is no log.
    """
    view = View(read_run(run), live)
    findings = []
    for rule in RULES:
        finding = rule(view)
        if finding is not None:
            findings.append(finding)
    severities = {finding.severity for finding in findings}
    # notes are no alarm: a run that has nothing else is healthy
    if severities.isdisjoint(ALARMS):
        findings.append(healthy(view))
    return in_order(findings)


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """The findings by severity, causes first, without those that another one explains."""
    explained = set()
    for finding in findings:
        explained.update(CATALOGUE[finding.name].explains)
    names = list(CATALOGUE)  # a cause before its symptoms

    def place(finding: Finding) -> tuple[int, int]:
        return IMPORTANCE.index(finding.severity), names.index(finding.name)

    kept = [finding for finding in findings if finding.name not in explained]
    return sorted(kept, key=place)


def unjudged(run: RunLog) -> list[dict]:
    """What the log does not tell: a dict for each metric or setting that some findings need.

    Each has the "metric" (or setting), the "findings" that need it, and as "remedy" how to log or
    give it.
    """
    view = View(run)
    logged = list(run.table.columns[run.table.notna().any()])
    known = {*run.settings, *view.roles.values()}
    if set(view.weights) <= set(view.roles):  # no function of unknown role may judge answers
        known.add("correctness")
    missing: dict[str, list[str]] = {}
    for name, entry in CATALOGUE.items():
        metric = first_missing(entry, logged, known)
        if metric:
            missing.setdefault(metric, []).append(name)
    gaps = []
    for metric, findings in missing.items():
        remedy = DATA["metrics"][metric].format(metric)
        # a metric whose every value is NaN has a column
        if metric in run.table and metric not in logged:
            remedy = f"{metric} was never a number"
        gaps.append({"metric": metric, "findings": findings, "remedy": remedy})
    return gaps


def first_missing(entry: Entry, logged: list[str], known: set[str]) -> str:
    """The metric, setting or role for want of which a finding cannot be judged, "" for none."""
    needs = entry.needs
    if CALLS not in logged:  # a run without tools
        needs = [metric for metric in needs if not metric.startswith("tools/")]
    if needs and not any(fnmatch.filter(logged, metric) for metric in needs):
        return needs[0]
    return "" if entry.asks in known else entry.asks


def as_text(findings: Sequence[Finding], run: RunLog | None = None) -> str:
    """The findings for a terminal, then what is not known of the run and could not be judged."""
    lines = []
    for finding in findings:
        steps = f"step {finding.step}"
        if finding.until != finding.step:
            steps = f"steps {finding.step} to {finding.until}"
        lines.append(f"{finding.severity.upper()}  {finding.name}, {steps}")
        lines += wrap(finding.means, WIDTH, "  ")
        lines += wrap("; ".join(map(str, finding.evidence)), WIDTH, "  seen: ")
        lines += wrap(finding.do, WIDTH, "  do:   ")
        lines.append("")
    if run is not None:
        for note in run.notes:
            lines += wrap(f"Not known: {note}", WIDTH)
        gaps = []
        for gap in unjudged(run):
            names = ", ".join(gap["findings"])
            gaps.append(f"{names} ({gap['remedy']})")
        if gaps:
            lines += wrap(f"Not judged: {'; '.join(gaps)}", WIDTH)
    return "\n".join(lines).rstrip()
