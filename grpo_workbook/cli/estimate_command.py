"""The command `estimate`: what a run takes and how long, by part; whether it fits; what to change if it does not."""

import argparse
import dataclasses
import difflib
import json
from pathlib import Path

from grpo_workbook.config import PROFILES
from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import check_writable, readable
from grpo_workbook.planning.architectures import KNOWN
from grpo_workbook.planning.estimate import UNMEASURED, USABLE, Estimate, estimate
from grpo_workbook.planning.memory import GIB
from grpo_workbook.planning.profiles import CATALOGUE
from grpo_workbook.planning.step_time import ASSUMED, GPUS

EXAMPLES = """examples:
  python -m grpo_workbook estimate --model Qwen/Qwen3-4B --profile t4
  python -m grpo_workbook estimate --model gemma-3-4b --profile t4 \\
      --set load_in_4bit=false --set batch_size=64
  python -m grpo_workbook estimate --model qwen --profile 24gb --figure c.png
  python -m grpo_workbook estimate --list             all models and profiles
  python -m grpo_workbook estimate --assumptions      what the times rest on
"""


def add_parser(commands) -> None:
    """Add estimate to the command line."""
    parser = commands.add_parser(
        "estimate",
        help="memory and time of a run before it starts, and what makes it fit",
        usage="%(prog)s [options]",
        description="Memory by part and time of a step, from the model's config alone. Nothing\n"
        "of it is measured on a GPU yet.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--model",
        default="qwen",
        metavar="M",
        help="qwen, gemma, a hub id, a folder (default qwen)",
    )
    parser.add_argument(
        "--profile", default="t4", metavar="P", help=f"{', '.join(PROFILES)} (default t4)"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="changes",
        help="a setting; may be repeated",
    )
    parser.add_argument(
        "--memory", type=float, metavar="GIB", help="your GPU's memory (default: the profile's)"
    )
    parser.add_argument(
        "--processes", type=int, default=1, metavar="N", help="GPUs that share the batch"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--figure", type=Path, metavar="PNG", help="draw what it costs to change sizes"
    )
    parser.add_argument(
        "--list", action="store_true", help="list the catalogue: every model on every profile"
    )
    parser.add_argument("--assumptions", action="store_true", help="list what the times rest on")


def main(args: argparse.Namespace) -> int:
    """Print the estimate; 0 when the run fits or nobody can say, 1 when it does not. WorkbookError for bad input."""
    if args.list:
        print(listing())
        return 0
    if args.assumptions:
        print(assumptions())
        return 0
    if args.figure and args.figure.suffix != ".png":
        raise WorkbookError(f"--figure {args.figure}: name a .png file")
    more = args.figure and args.figure.with_name(f"{args.figure.stem}-gpus.png")
    check_writable({"--figure": args.figure, "its second file": more}, {})
    found = estimate(
        args.model, args.profile, parse(args.changes), processes=args.processes, gib=args.memory
    )
    print(json.dumps(found.as_dict(), indent=2) if args.json else report(found))
    if args.figure:
        from grpo_workbook.figures import save
        from grpo_workbook.planning.cost_figures import cost_panels, gpu_counts

        save(*cost_panels(found), args.figure)
        save(*gpu_counts(found), more)
        if not args.json:
            print(f"\n{args.figure} and {more}: what other sizes and more GPUs cost")
    return 0 if found.fits in (True, None) else 1


def parse(pairs: list[str]) -> dict:
    """{"batch_size": 16} of ["batch_size=16"], each value as its setting's type.

    Raises WorkbookError for an unknown setting (with the nearest name) and a value that is not of its type.
    """
    kinds = {field.name: field.type for field in dataclasses.fields(Settings)}
    found: dict = {}
    for pair in pairs:
        name, given, value = pair.partition("=")
        if not given:
            raise WorkbookError(f"--set {pair}: give NAME=VALUE, such as batch_size=16")
        if name not in kinds:
            near = difflib.get_close_matches(name, kinds, n=1)
            mend = f"did you mean {near[0]}?" if near else f"choose from {', '.join(sorted(kinds))}"
            raise WorkbookError(f"unknown setting {name!r}: {mend}")
        try:
            found[name] = _value(value, str(getattr(kinds[name], "__name__", kinds[name])))
        except (ValueError, KeyError):
            raise WorkbookError(f"--set {pair}: {value!r} is not what {name} takes") from None
    return found


def _value(text: str, kind: str):
    if kind == "bool":
        return {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}[
            text.lower()
        ]
    if kind.startswith("int"):
        return int(text)
    return float(text) if kind.startswith("float") else text


def report(e: Estimate) -> str:
    """The whole answer, at most 80 columns wide."""
    gpu = GPUS.get(e.profile)
    device = f"{e.profile} ({gpu.name}, {gpu.gib:g} GiB)" if gpu else f"{e.profile} (no GPU)"
    unit, name = (GIB, "GiB") if e.memory.total > 4 * GIB else (2**20, "MiB")
    largest = max(e.memory.parts.values())
    lines = [
        f"{readable(e.model)} on {f'{e.processes} x ' if e.processes > 1 else ''}{device}",
        UNMEASURED,
        "",
    ]
    phases = (
        ("all the time", e.memory.always),
        ("while it generates", e.memory.generation),
        ("while it learns", e.memory.update),
    )
    for title, parts in phases:
        lines.append(f"{title:<32}{sum(parts.values()) / unit:8.2f} {name}")
        for part, size in parts.items():
            lines.append(
                f"  {part:<30}{size / unit:8.2f}  {'#' * round(30 * size / largest)}".rstrip()
            )
    lines.append(f"{'in all: the first + the larger':<32}{e.memory.total / unit:8.2f} {name}")
    lines += ["", *_verdict(e, unit, name), "", "had you chosen otherwise"]
    lines += [f"  {part:<36}{size / unit:8.2f} {name}" for part, size in e.alternatives.items()]
    return "\n".join(lines + _time(e))


def _verdict(e: Estimate, unit: int, name: str) -> list[str]:
    if e.budget is None:
        return ["No limit is known for this profile: give your machine's memory with --memory."]
    room = f"{e.budget / unit:.2f} {name} can be used ({USABLE:.0%} of the memory, assumed)"
    if e.fits:
        return [f"It fits: {room}."]
    if e.room == 0:
        return [
            "It does not fit: vLLM's share of the memory has no room for one completion",
            f"beside the weights. Give it more (vllm_gpu_memory={e.settings.vllm_gpu_memory:g}), or take vllm=off.",
        ]
    if not e.changes:
        return ["It does not fit, and no setting helps. Take a larger GPU:", f"{room}."]
    lines = [
        f"It does not fit: {room}.",
        "Change, the cheapest first (memory with all changes so far):",
        "",
    ]
    lines.append(f"  {'':<36}{'generating':>11}{'learning':>10}{'in all':>9} {name}")
    for c in e.changes:
        sizes = f"{c.generating / unit:>11.2f}{c.learning / unit:>10.2f}{c.total / unit:>9.2f}"
        lines += [f"  {c.what:<36}{sizes}", f"      costs {c.cost}"]
    if e.changes[-1].total > e.budget:
        lines.append("  That is not enough: take a larger GPU.")
    return lines


def _time(e: Estimate) -> list[str]:
    if not e.seconds:
        return []
    s = e.settings
    parts = ", ".join(
        f"{name} {seconds:.1f}" for name, seconds in e.seconds.items() if seconds >= 0.05
    )
    who = "generate of Transformers" if s.vllm == "off" else "vLLM"
    rows = s.batch_size // e.processes
    room = (
        [f"vLLM writes {min(e.room, rows)} of {rows} completions at once"]
        if e.room is not None
        else []
    )
    return [
        "",
        *room,
        f"a step with {who}: {sum(e.seconds.values()):.0f} s ({parts}),",
        f"of {s.prompts_per_step} x {s.num_generations} completions of full length "
        f"({s.max_prompt_length} + {s.max_completion_length} tokens)",
        f"{s.max_steps} steps: at most about {_duration(e.minutes or 0)} (on what it rests: --assumptions)",
    ]


def _duration(minutes: float) -> str:
    return f"{minutes:.0f} minutes" if minutes < 120 else f"{minutes / 60:.1f} hours"


def listing() -> str:
    """The catalogue as a table of 80 columns."""
    lines = [
        UNMEASURED,
        "",
        f"{'on':<5}{'model':<15}{'batch':>6}{'once':>5}{'tokens':>9}{'rate':>7}{'steps':>6} {'base':<7}{'vLLM':<5}"
        f"{'GiB':>5}{'hours':>6}",
    ]
    for (profile, name), entry in CATALOGUE.items():
        s, found = entry.settings, estimate(entry.model, profile)
        mark = "" if entry.tried else " *"
        lines.append(
            f"{profile:<5}{name + mark:<15}{f'{s.prompts_per_step}x{s.num_generations}':>6}{s.per_device_batch:>5}"
            f"{f'{s.max_prompt_length}+{s.max_completion_length}':>9}{s.learning_rate:>7g}{s.max_steps:>6} "
            f"{'4-bit' if s.load_in_4bit else '16-bit':<7}{'no' if s.vllm == 'off' else f'{s.vllm_gpu_memory:g}':<5}"
            f"{found.memory.total / GIB:>5.1f}{(found.minutes or 0) / 60:>6.1f}"
        )
    lines += [
        "",
        "* untried: nobody has run it yet. batch: problems x group; once: completions in",
        "memory while it learns; tokens: longest prompt + completion. Gradient",
        "checkpointing is on everywhere; t4 computes in float16, the others in bfloat16.",
        "vLLM: its share of the GPU's memory, beside the training.",
        "",
    ]
    lines += [f"{name:<14}{entry[1]}" for name, entry in KNOWN.items()]
    return "\n".join(lines)


def assumptions() -> str:
    """What the times rest on."""
    lines = ["None of these was measured here:", ""]
    lines += [f"{name:<14}{value:>7g}  {why}" for name, (value, why) in ASSUMED.items()]
    lines += ["", "GPU              GiB   TFLOPS (dense, 16-bit)   GB/s   (data sheets)"]
    lines += [f"{g.name:<13}{g.gib:>7g}  {g.tflops:>7g}{g.bandwidth:>23g}" for g in GPUS.values()]
    return "\n".join(lines)
