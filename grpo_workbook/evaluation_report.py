"""The report of an evaluation: report.json with every number, report.md to read, report.png, and what changed."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_workbook.errors import WorkbookError
from grpo_workbook.evaluation_run import Evaluation
from grpo_workbook.figures import BLUE, GREEN, GREY, ORANGE, save
from grpo_workbook.files import write_json
from grpo_workbook.measures import JUDGES, compare, judge, section, share

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {"strict": "strict", "lenient": "lenient", "well_formed": "well-formed"}
SURE = 0.01  # p below this is called a change
SHOWN = 10  # changed problems of each kind in report.md; all are in changes.jsonl
# What must agree for two evaluations to be comparable, beside the problems themselves.
SAME = ("temperature", "top_p", "max_new_tokens", "system_prompt", "samples")


def build_report(
    found: Evaluation, ks: Sequence[int], baseline: Evaluation | None = None
) -> tuple[dict, list[dict]]:
    """(the report, the changed problems): what report.json and changes.jsonl hold; shares from 0 to 1.

    `ks` are the k of pass@k and maj@k. Raises WorkbookError when the baseline answered none of these problems.
    """
    judged = {name: judge(answered) for name, answered in found.sets.items()}
    report = {**found.identity, "notes": list(found.notes)}
    report["sets"] = {name: section(one, ks) for name, one in judged.items()}
    for name, numbers in report["sets"].items():
        if numbers["cut_off"] > 0.05:
            report["notes"].append(
                f"{numbers['cut_off']:.0%} of the completions of {name!r} were cut off at "
                f"{found.identity['max_new_tokens']} tokens: raise --max-new-tokens, or what is measured is the limit"
            )
    changes: list[dict] = []
    if baseline is not None:
        report["baseline"], changes = _compare_all(
            judged, baseline, report["notes"], found.identity
        )
        report["verdict"] = verdict(report["baseline"]["comparison"])
    return report, changes


def _compare_all(
    judged: dict, baseline: Evaluation, notes: list[str], identity: dict
) -> tuple[dict, list[dict]]:
    different = [name for name in SAME if baseline.identity.get(name) != identity[name]]
    if different:
        notes.append(f"the baseline was measured otherwise (not the same: {', '.join(different)})")
    comparison, sections, changes = {}, {}, []
    for name, one in judged.items():
        if name not in baseline.sets:
            notes.append(f"the baseline did not answer the set {name!r}")
            continue
        before = judge(baseline.sets[name])
        both = compare(before, one)
        if both is None:
            raise WorkbookError(
                f"the baseline answered none of these problems ({name!r}): measure both on the same --data"
            )
        comparison[name], changed = both
        if comparison[name]["only_before"] or comparison[name]["only_after"]:
            notes.append(
                f"{name!r}: compared on the {comparison[name]['n']:,} problems that both answered"
            )
        sections[name] = {measure: share(before.shares(measure)) for measure in JUDGES}
        changes += [{"set": name, **change} for change in changed]
    model = {
        k: baseline.identity.get(k) for k in ("model", "adapter", "model_hash", "adapter_hash")
    }
    return {**model, "sets": sections, "comparison": comparison}, changes


def verdict(comparison: dict) -> list[str]:
    """What the paired numbers allow one to say, a sentence each; `comparison` maps each set to measures.compare's."""
    said = []
    for name, measure in (("main", "strict"), ("main", "well_formed")):
        if name not in comparison:
            continue
        c = comparison[name][measure]
        change = "rose" if c["difference"] > 0 else "fell"
        words = f"{NAMES[measure]} {change} from {c['before']:.1%} to {c['after']:.1%} (p = {c['p_value']:.1g})"
        if c["p_value"] >= SURE:
            words = (
                f"{NAMES[measure]} {c['before']:.1%} before, {c['after']:.1%} after: a difference that may be chance "
                f"(p = {c['p_value']:.2g})"
            )
        first = (
            " (p and these by the first sample of each)" if comparison[name]["samples"] > 1 else ""
        )
        said.append(f"{words}; {c['better']} problems got better, {c['worse']} worse{first}")
    if "main" in comparison:
        tokens = comparison["main"]["tokens"]
        said.append(
            f"completions of {tokens['before']:g} tokens on average before, {tokens['after']:g} after"
        )
    if "also" in comparison:
        c = comparison["also"]["lenient"]
        numbers = f"lenient {c['before']:.1%} before, {c['after']:.1%} after"
        if c["p_value"] < SURE and c["difference"] < 0:
            said.append(f"the other skill was partly forgotten: {numbers} (p = {c['p_value']:.1g})")
        else:
            lost = max(0.0, -c["low"])
            said.append(
                f"the other skill: {numbers}; a loss of more than {lost:.1%} is unlikely (95 % interval)"
            )
    return said


def as_markdown(report: dict, changes: Sequence[dict]) -> str:
    """The report as one reads it."""
    lines = [f"# Evaluation of {report['model']}", ""]
    if report["adapter"]:
        lines += [f"Adapter: {report['adapter']}", ""]
    how = (
        "greedy"
        if report["temperature"] == 0
        else f"temperature {report['temperature']:g}, top-p {report['top_p']:g}"
    )
    lines += [
        f"{report['samples']} sample{'s' * (report['samples'] > 1)} for each problem, {how}, at most "
        f"{report['max_new_tokens']} new tokens, seed {report['seed']}.",
    ]
    said = [
        f"- {line}"
        for line in (*report.get("verdict", ()), *(f"note: {n}" for n in report["notes"]))
    ]
    lines += ["", *said] if said else []
    for name, numbers in report["sets"].items():
        lines += [
            "",
            f"## {'Held-out problems' if name == 'main' else 'Another skill'}: {report['data'][name]}",
            "",
        ]
        lines += _section_lines(numbers, (report.get("baseline") or {}).get("sets", {}).get(name))
    for kind in ("worse", "better"):
        chosen = [c for c in changes if c["change"] == kind]
        if chosen:
            lines += ["", f"## Got {kind}: {len(chosen)}", ""]
            for c in chosen[:SHOWN]:
                lines += [f"- {_flat(c['question'])} (right: {c['answer']})"]
                lines += [f"  - {when}: `{_flat(c[when])[:200]}`" for when in ("before", "after")]
            if len(chosen) > SHOWN:
                lines += [f"- and {len(chosen) - SHOWN} more in changes.jsonl"]
    return "\n".join(lines) + "\n"


def _section_lines(numbers: dict, before: dict | None) -> list[str]:
    head = "| | share | 95 % interval |" + (" baseline |" if before else "")
    lines = [head, "| --- | --- | --- |" + (" --- |" if before else "")]
    for measure, name in NAMES.items():
        row = f"| {name} | {numbers[measure]['share']:.1%} | {_interval(numbers[measure])} |"
        lines.append(row + (f" {before[measure]['share']:.1%} |" if before else ""))
    tokens, harness = numbers["tokens"], numbers["harness"]
    lines += [
        "",
        f"- {numbers['n']} problems; completions of {tokens['mean']:g} tokens on average ({tokens['low']:g} to "
        f"{tokens['high']:g}), {numbers['cut_off']:.1%} cut off",
        f"- as lm-evaluation-harness scores GSM8K: strict-match {harness['strict-match']:.1%}, flexible-extract "
        f"{harness['flexible-extract']:.1%}",
    ]
    gain = numbers["smallest_visible_gain"]
    lines.append(
        f"- so many problems show a paired gain of {gain:.1%} and more (power 80 %, nothing getting worse)"
        if gain is not None
        else "- so few problems show no gain, however large"
    )
    if len(numbers["pass_at_k"]) > 1:
        lines += [
            "",
            "| k | pass@k strict | pass@k lenient | maj@k strict | maj@k lenient |",
            "| --- " * 5 + "|",
        ]
        for k in numbers["pass_at_k"]:
            cells = [
                numbers[which][k][m]
                for which in ("pass_at_k", "majority_at_k")
                for m in ("strict", "lenient")
            ]
            lines.append(
                f"| {k} | " + " | ".join(f"{c['share']:.1%} ({_interval(c)})" for c in cells) + " |"
            )
    for name, found in numbers["by"].items():
        lines += ["", f"| {name} | n | strict | 95 % interval | lenient |", "| --- " * 5 + "|"]
        for g in found:
            lines.append(
                f"| `{_flat(g['group'])}` | {g['n']} | {g['strict']['share']:.1%} | {_interval(g['strict'])} | "
                f"{g['lenient']['share']:.1%} |"
            )
    return lines


def _interval(one: dict) -> str:
    return f"{one['low']:.1%} to {one['high']:.1%}"


def _flat(text: str) -> str:
    return " ".join(text.split()).replace("|", "/").replace("`", "'")


def draw(report: dict) -> tuple["Figure", str]:
    """One figure of the main set: the measures, pass@k and majority where there are samples, and accuracy by group.

    (figure, text alternative), as in figures.py.
    """
    from matplotlib.figure import Figure

    main = report["sets"]["main"]
    before = (report.get("baseline") or {}).get("sets", {}).get("main")
    panels = [("measures", None)]
    panels += [("k", None)] if len(main["pass_at_k"]) > 1 else []
    panels += [
        ("group", name)
        for name in sorted(main["by"], key=lambda n: n in ("length", "sentence", "operations"))
    ][:2]
    figure = Figure(figsize=(3.6 * len(panels) + 0.6, 3.4), layout="constrained")
    said = []
    for axes, (kind, name) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
    ):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25)
        axes.set_ylim(0, 1.08)
        if kind == "measures":
            said.append(_draw_measures(axes, main, before))
        elif kind == "k":
            said.append(_draw_k(axes, main))
        else:
            said.append(_draw_group(axes, name, main["by"][name]))
    return figure, f"Evaluation on {main['n']} problems. " + " ".join(said)


def _whiskers(axes, x, one: dict, **how) -> None:
    span = [[max(0.0, one["share"] - one["low"])], [max(0.0, one["high"] - one["share"])]]
    axes.errorbar(x, one["share"], span, color="black", capsize=3, linewidth=1, **how)


def _draw_measures(axes, main: dict, before: dict | None) -> str:
    sides = [("baseline", before, GREY, "//"), ("this model", main, BLUE, "")]
    sides = [side for side in sides if side[1] is not None]
    width = 0.8 / len(sides)
    for place, (label, numbers, colour, hatch) in enumerate(sides):
        for x, measure in enumerate(NAMES):
            one, at = numbers[measure], x + (place - (len(sides) - 1) / 2) * width
            shown = label if x == 0 else None
            axes.bar(
                at,
                one["share"],
                width * 0.94,
                color=colour,
                hatch=hatch,
                edgecolor="white",
                label=shown,
            )
            _whiskers(axes, at, one)
            axes.annotate(
                f"{one['share']:.0%}", (at, one["high"]), ha="center", va="bottom", fontsize=8
            )
    axes.set(
        xticks=range(len(NAMES)),
        xticklabels=NAMES.values(),
        ylabel="share of problems",
        title="With 95 % intervals",
    )
    if len(sides) > 1:
        axes.legend(
            frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2
        )
    return (
        "Bars: "
        + "; ".join(
            f"{name} {main[m]['share']:.1%} ({_interval(main[m])})"
            + (f", baseline {before[m]['share']:.1%}" if before else "")
            for m, name in NAMES.items()
        )
        + "."
    )


def _draw_k(axes, main: dict) -> str:
    said = []
    for which, name, colour, dash, marker in (
        ("pass_at_k", "pass@k", GREEN, "-", "o"),
        ("majority_at_k", "maj@k", ORANGE, "--", "s"),
    ):
        ks, found = list(map(int, main[which])), [one["lenient"] for one in main[which].values()]
        axes.plot(
            ks, [f["share"] for f in found], color=colour, linestyle=dash, marker=marker, label=name
        )
        axes.fill_between(
            ks,
            [f["low"] for f in found],
            [f["high"] for f in found],
            color=colour,
            alpha=0.15,
            linewidth=0,
        )
        said.append(
            f"{name} {found[0]['share']:.1%} for k = {ks[0]}, {found[-1]['share']:.1%} for k = {ks[-1]}"
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(ks, [str(k) for k in ks])
    axes.minorticks_off()
    axes.set(xlabel="k, attempts at each problem", title="Several attempts (lenient)")
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    return "Lines: " + "; ".join(said) + "."


def _draw_group(axes, name: str, found: list[dict]) -> str:
    for x, group in enumerate(found):
        axes.plot(x, group["strict"]["share"], "o", color=BLUE)
        _whiskers(axes, x, group["strict"], fmt="none")
    labels = [f"{_flat(g['group'])[:22]}\nn={g['n']}" for g in found]
    slant = (
        {"rotation": 60, "ha": "right", "fontsize": 7}
        if max(len(found), 3) > 4 or max(map(len, labels)) > 18
        else {}
    )
    axes.set_xticks(range(len(found)), labels, **slant)
    axes.set_xlim(-0.5, len(found) - 0.5)
    axes.set_title(f"Strict, by {name}")
    return (
        f"Strict by {name}: "
        + ", ".join(f"{g['group']} {g['strict']['share']:.0%}" for g in found)
        + "."
    )


def write(folder: Path, report: dict, changes: Sequence[dict]) -> None:
    """Write report.json, report.md, report.png (with report.txt, its words) and changes.jsonl into the folder."""
    save(*draw(report), folder / "report.png")
    text = "".join(json.dumps(change, ensure_ascii=False) + "\n" for change in changes)
    (folder / "changes.jsonl").write_text(text, encoding="utf-8")
    (folder / "report.md").write_text(as_markdown(report, changes), encoding="utf-8")
    write_json(folder / "report.json", report)
