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
    sections = {
        "kernels": _kernels, "main_run": _main_run, "learning": _learning, "vision": _vision,
        "precisions": _learning, "memory": _memory, "merge": _merge, "resume": _resume,
        "speed": _speed, "chapters": _chapters,
    }  # fmt: skip
    for part, rows in sections.items():
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


def _kernels(rows: list[dict]) -> list[str]:
    row = rows[0]
    lines = _head("kernel", "relative difference")
    if why(row):
        return [*lines, _line("import", why(row))]
    lines += [_line(f"NF4 there and back, {k}", f"{v:.3f}") for k, v in row["nf4_loss"].items()]
    lines += [_line(f"RMSNorm, {k}", f"{v:.1e}") for k, v in row["norm_error"].items()]
    return [*lines, "", *(f"doctor: {text}" for text in row["doctor"])]


def _main_run(rows: list[dict]) -> list[str]:
    lines = _head("main run", "strict sampled", "strict greedy", "merge: same token", "seconds")
    for row in rows:
        if why(row):
            lines.append(_line(row["family"], why(row), "", "", ""))
            continue
        names = ("strict_sampled", "strict_greedy")
        rates = [f"{row['before'][n]:.3f} → {row['after'][n]:.3f}" for n in names]
        same = f"{row['merge']['same_greedy_tokens']:.2%}"
        name = f"{row['family']}, {row['dtype']}, {row['steps']} steps"
        lines.append(_line(name, *rates, same, row["total_seconds"]))
    return lines


def _vision(rows: list[dict]) -> list[str]:
    lines = _head("adapter", "moves the logits by", "lost when loaded again")
    for row in rows:
        numbers = [f"{row[n]:.3f}" for n in ("moved", "lost")] if not why(row) else 0
        lines.append(_line(row["model"], *(numbers or (why(row), ""))))
    return lines


def _memory(rows: list[dict]) -> list[str]:
    phases = ("sampling", "learning")
    heads = [f"{phase}, {kind} GiB" for phase in phases for kind in ("peak", "computed")]
    lines = _head("memory", *heads)
    for row in rows:
        if why(row):
            lines.append(_line(row["model"], why(row), "", "", ""))
            continue
        both = [row[kind][phase] for phase in phases for kind in ("measured", "computed")]
        lines.append(_line(row["model"], *(f"{n:.2f}" for n in both)))
    return lines


def _chapters(rows: list[dict]) -> list[str]:
    told = [_line(row["model"], why(row) or row["job_seconds"]) for row in rows]
    return [*_head("chapter", "seconds"), *told]


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
        "learning", "steps", "strict sampled", "strict greedy", "bounds", "metrics", "diagnosis",
        "adapters", "autocast",
    )  # fmt: skip
    for row in rows:
        name = row.get("model") or row["family"]
        if why(row):
            lines.append(_line(name, why(row), *[""] * 7))
            continue
        used = row["used"]
        half = [kind for kind in ("bf16", "fp16") if used[kind]]
        a, b = row["before"], row["after"]
        bounds = "kept" if not row["problems"] else "; ".join(row["problems"])
        lines.append(
            _line(
                name,
                row["steps"],
                f"{a['strict_sampled']:.3f} → {b['strict_sampled']:.3f}",
                f"{a['strict_greedy']:.3f} → {b['strict_greedy']:.3f}",
                bounds if row["bounds_judged"] or row["problems"] else "too short to judge",
                len(row["metrics"]),
                ", ".join(row["diagnosis"]),
                used["adapters"].replace("torch.", ""),
                ", ".join(half) or "none",
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
