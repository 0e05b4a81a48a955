"""The one table of benchmarks/gpu.py, in Markdown."""


def table(results: dict) -> str:
    """All results to compare; a refused or failed job has its reason in place of a number."""
    about = results["machine"]
    versions = {k: v for k, v in about["versions"].items() if v}
    where = (
        f"{about['gpu']}, {about['memory_gib']} GiB"
        if about["gpu"]
        else "no GPU: a test of the program alone"
    )
    lines = [
        f"{where}; CUDA {about['cuda']}; Python {about['python']}",
        ", ".join(f"{k} {v}" for k, v in versions.items()),
    ]
    for part, rows in (
        ("speed", _speed),
        ("learning", _learning),
        ("merge", _merge),
        ("resume", _resume),
    ):
        if results.get(part):
            lines += ["", *rows(results[part])]
    if results.get("failures"):
        lines += ["", "Not well:", *(f"- {text}" for text in results["failures"])]
    return "\n".join(lines) + "\n"


def _line(*cells) -> str:
    return "| " + " | ".join(str(c) for c in cells) + " |"


def _head(*cells) -> list[str]:
    return [_line(*cells), _line(*["---"] * len(cells))]


def why(row: dict) -> str:
    """Why this row has no number, or ""."""
    return next((f"{k}: {row[k]}" for k in ("refused", "error", "skipped") if row.get(k)), "")


def ratio(a: dict | None, b: dict | None, *path: str) -> str:
    """a / b of the value at `path`, or "" where a side has none."""
    for key in path:
        a, b = (x.get(key) if isinstance(x, dict) else None for x in (a, b))
    return f"{a / b:.2f}" if a and b else ""


def _speed(rows: list[dict]) -> list[str]:
    s = rows[0]["shapes"]
    lines = [
        f"4-bit, LoRA rank {s['rank']}, {s['batch']} completions a step in groups of "
        f"{s['group']}, {s['per_device']} "
        f"trained at once, {s['prompt_tokens']} + {s['completion_tokens']} tokens, checkpointing "
        f"{'on' if s['checkpointing'] else 'off'}; median of {s['steps'] - s['warm_up']} steps. "
        f"The factors are "
        "plain / Unsloth.",
        "",
        *_head(
            "model",
            "side",
            "s/step",
            "tokens/s",
            "peak GiB",
            "reserved GiB",
            "estimated GiB",
            "time x",
            "memory x",
        ),
    ]
    for row in rows:
        ours, plain = row.get("unsloth"), row.get("plain")
        if why(row["weights"]):
            lines.append(_line(row["model"], "", why(row["weights"]), *[""] * 6))
        for side, found in (("unsloth", ours), ("plain", plain)):
            if found is None:
                continue
            if why(found):
                lines.append(_line(row["model"], side, why(found), *[""] * 6))
                continue
            peak = found["peak"]
            factors = ["1.00", "1.00"]
            if side == "plain":
                which = "allocated" if "allocated" in peak else "resident"
                factors = [
                    ratio(plain, ours, "seconds_per_step"),
                    ratio(plain, ours, "peak", which),
                ]
            lines.append(
                _line(
                    row["model"],
                    side,
                    f"{found['seconds_per_step']:.2f}",
                    f"{found['completion_tokens_per_s']:.0f}",
                    f"{peak.get('allocated', peak.get('resident')):.2f}",
                    peak.get("reserved", ""),
                    found["estimate_gib"] or "",
                    *factors,
                )
            )
    return lines


def _learning(rows: list[dict]) -> list[str]:
    lines = _head(
        "learning", "steps", "strict sampled", "strict greedy", "bounds", "metrics", "diagnosis"
    )
    for row in rows:
        if why(row):
            lines.append(_line(row["family"], why(row), *[""] * 5))
            continue
        a, b = row["before"], row["after"]
        bounds = "kept" if not row["problems"] else "; ".join(row["problems"])
        lines.append(
            _line(
                row["family"],
                row["steps"],
                f"{a['strict_sampled']:.3f} → {b['strict_sampled']:.3f}",
                f"{a['strict_greedy']:.3f} → {b['strict_greedy']:.3f}",
                bounds if row["bounds_judged"] or row["problems"] else "too short to judge",
                len(row["metrics"]),
                ", ".join(row["diagnosis"]),
            )
        )
    return lines


def _merge(rows: list[dict]) -> list[str]:
    lines = _head(
        "merge of an adapter trained in 4-bit",
        "largest logit difference",
        "of the spread",
        "same token",
        "greedy adapter → merged",
    )
    for row in rows:
        if why(row["training"]):
            lines.append(_line(row["family"], why(row["training"]), "", "", ""))
        for way in ("live", "reloaded"):
            found = row.get(way)
            if found and why(found):
                lines.append(_line(f"{row['family']}, {way}", why(found), "", "", ""))
            elif found:
                lines.append(
                    _line(
                        f"{row['family']}, {way}",
                        found["max_abs_logit_difference"],
                        f"{found['relative_logit_difference']:.2%}",
                        f"{found['same_greedy_tokens']:.2%}",
                        f"{found['strict_greedy_adapter']:.3f} → "
                        f"{found['strict_greedy_merged']:.3f}",
                    )
                )
    return lines


def _resume(rows: list[dict]) -> list[str]:
    row = rows[0]
    lines = _head(
        "resume",
        "steps",
        "continued from",
        "first step that differs",
        "same adapter",
        "largest difference",
    )
    for name in ("through", "stopped", "resumed"):
        if name in row and why(row[name]):
            return [*lines, _line(name, why(row[name]), *[""] * 4)]
    found = row.get("comparison", {})
    if why(found) or not found:
        return [*lines, _line("comparison", why(found) or "not reached", *[""] * 4)]
    same = "yes" if found["same_adapter"] else "no"
    differs = found["first_step_with_another_reward"] or "none"
    return [
        *lines,
        _line(
            row["family"],
            found["steps"],
            row["resumed"]["from"],
            differs,
            same,
            f"{found['largest_adapter_difference']:.2g}",
        ),
    ]
