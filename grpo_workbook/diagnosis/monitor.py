"""Says what is wrong with a GRPO run: `diagnose(folder)`, or `python -m grpo_workbook diagnose FOLDER`."""

import textwrap
from collections.abc import Sequence

from grpo_workbook.diagnosis.findings import SEVERE, WARNING, Evidence, Finding, bound, in_order, make
from grpo_workbook.diagnosis.rules import RULES, View
from grpo_workbook.diagnosis.runlog import RunLog, read_run


def diagnose(run) -> list[Finding]:
    """What is wrong with the run, the severest first; one finding called "healthy" when nothing is.

    `run`: what read_run gives, or anything that read_run takes. A run is compared with itself: its
    first steps, its group size, its rewards. What was not logged is not judged.
    """
    run = read_run(run)
    view = View(run)
    found = in_order([f for rule in RULES if (f := rule(view)) is not None])
    if any(f.severity in (SEVERE, WARNING) for f in found):
        return found
    if view.few(times=2) if view.learned else view.few("flat_after"):
        last = int(run.table.index.max()) if len(run.table) else 0
        seen = Evidence("steps", view.steps, "more, to see the reward rise")
        return [*found, make("too_short", last, seen)]
    return [_healthy(view), *found]


def _healthy(v: View) -> Finding:
    said = [v.seen("reward", f"{v.first('reward'):.3g} at first, of at most {v.highest:.3g}")]
    if len(v.of("reward_std")):
        said.append(v.seen("reward_std", "more than 0: something to compare"))
    heldout = v.of("heldout/strict")
    if len(heldout) > 1:
        said.append(Evidence("heldout/strict", heldout.iloc[-1], f"{heldout.iloc[0]:.3g} at first"))
    step = v.begin() if len(v.of("reward")) else 0
    return make("healthy", step, *said, means=_about_loss(v))


def _about_loss(v: View) -> str:
    """Why the loss says nothing, for this run; empty when it was not logged."""
    loss = v.of("loss")
    if not len(loss):
        return ""
    size = f"{float(loss.abs().mean()):.2g} on average"
    if v.settings.get("beta", float(v.of("kl").abs().sum())):
        return f"The loss ({size}) holds the KL penalty, which grows as the policy learns."
    return (
        f"A loss near 0 ({size}) is normal here, because beta is 0: advantages sum to 0 in each "
        "group, and with one update per batch the ratio is 1."
    )


def as_text(found: Sequence[Finding], run: RunLog, width: int = 79) -> str:
    """The findings for a terminal of 80 columns."""
    lines = []
    for f in found:
        lines.append(f"{f.severity.upper()}  {f.name}, from step {f.step}")
        said = {"": f.means, "seen: ": "; ".join(map(str, f.evidence)), "do:   ": f.do}
        for head, text in said.items():
            indent = "  " + " " * len(head)
            how = {"initial_indent": f"  {head}", "subsequent_indent": indent}
            lines += textwrap.wrap(text, width, **how)
        lines.append("")
    lines += [line for note in run.notes for line in textwrap.wrap(f"Not known: {note}", width)]
    return "\n".join(lines).rstrip()
