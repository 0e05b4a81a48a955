"""Everything that this project wants to know of a CUDA GPU, without a network: make bench-gpu.

Parts, in this order; a failed `kernels` ends it, after any other failure it goes on:

PARTS
Each job is its own process. The results, with the machine's name, are gpu.json and gpu.md in --out;
calls on the same machine add to them. vLLM is not used.

examples:
  python benchmarks/gpu.py --dry-run                         # what would run, and its limits
  python benchmarks/gpu.py --sizes 0.6B,4B --out outputs/gpu
  python benchmarks/gpu.py --part kernels,main_run,learning --budget 540  # in calls of 10 minutes
  python benchmarks/gpu.py --tiny --device cpu               # the whole logic, without a GPU

exit status: 0 fine, 1 something failed or was not reached, 2 bad input
"""

import argparse
import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpu_models import family_of
from gpu_report import table

HERE = Path(__file__).resolve().parent
REPO = HERE.parent
# What each part shows, and the seconds after which its job is stopped and the next part begins.
PARTS = {
    "kernels": ("imports, NF4, RMSNorm against PyTorch, doctor", 240),
    "main_run": ("the main run of a tiny model, with merge and report", 400),
    "learning": ("both tiny models, held to the bounds of the tests on a CPU", 600),
    "vision": ("an adapter of a model that sees: trained, loaded again, merged", 150),
    "precisions": ("learning in float16 and float32, and what the trainer really took", 600),
    "memory": ("the estimate of `plan` beside torch's peaks, by phase", 400),
    "merge": ("an adapter of a 4-bit base, merged and proved by its logits", 500),
    "resume": ("a run that is stopped half-way and continued, beside one that is not", 300),
    "speed": ("Unsloth beside TRL + PEFT + bitsandbytes, the same shapes, in 4-bit", 1500),
    "chapters": ("every chapter as a script, in the smoke profile", 2400),
}
SIZES = ("0.6B", "1.7B", "4B", "8B", "gemma-1B", "gemma-4B")
FAMILIES = ("qwen", "gemma")
PRECISIONS = (("float16", "qwen"), ("float32", "qwen"), ("float16", "gemma"))
# Size, 4-bit, gradient checkpointing, completions trained at once.
MEMORY = (
    ("0.6B", True, True, 8), ("0.6B", False, True, 8), ("0.6B", False, False, 8),
    ("1.7B", True, True, 16), ("gemma-1B", False, True, 8),
)  # fmt: skip
__doc__ = __doc__.replace(
    "PARTS\n", "".join(f"{name:11}{what}\n" for name, (what, _) in PARTS.items()) + "\n"
)


class Jobs:
    """Runs jobs of gpu_worker.py, one after the other, until the time is up, and keeps their
    results."""

    def __init__(self, args: argparse.Namespace, work: Path):
        self.device, self.work = args.device, work
        self.end = time.monotonic() + (args.budget or math.inf)
        self.part_end = self.end
        paths = [str(REPO)]
        if os.environ.get("PYTHONPATH"):
            paths.append(os.environ["PYTHONPATH"])
        self.environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(paths),
            "HF_HUB_OFFLINE": "1",
            "UNSLOTH_DISABLE_STATISTICS": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        if self.device == "cpu":
            self.environment["CUDA_VISIBLE_DEVICES"] = ""
        else:
            self.environment.setdefault(
                "CUDA_VISIBLE_DEVICES", "0"
            )  # one process trains on one GPU

    def run(self, job: str, **values) -> dict:
        """The job's result, or {"error": why} or {"skipped": why}. Never raises for what happens
        inside the job."""
        left = min(self.end, self.part_end) - time.monotonic()
        whose = "--budget" if self.end <= self.part_end else "the part"
        if left < 1:
            return {"skipped": f"the time of {whose} was used up"}
        asked, result = self.work / "job.json", self.work / "result.json"
        asked.write_text(
            json.dumps({"job": job, "device": self.device, **values}), encoding="utf-8"
        )
        result.unlink(missing_ok=True)
        started = time.monotonic()
        with (self.work / "output.txt").open("w+", encoding="utf-8", errors="replace") as output:
            process = subprocess.Popen(
                [sys.executable, str(HERE / "gpu_worker.py"), str(asked), str(result)],
                cwd=self.work, env=self.environment, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
            try:
                process.wait(timeout=None if left == math.inf else left)
            except BaseException as stopped:
                with contextlib.suppress(ProcessLookupError):  # its compilers' processes too
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if isinstance(stopped, subprocess.TimeoutExpired):
                    return {"error": f"stopped after {left:.0f} s: the time of {whose} was used up"}
                raise
            output.seek(0)
            said = output.read()
        if process.returncode or not result.is_file():
            print(said[-3000:], file=sys.stderr)
            last = next(
                (line for line in reversed(said.splitlines()) if line.strip()), "it said nothing"
            )
            return {"error": f"exit status {process.returncode}: {last.strip()[:300]}"}
        found = json.loads(result.read_text(encoding="utf-8"))
        return found | {"job_seconds": round(time.monotonic() - started, 1)}


def kernels(jobs: Jobs, args: argparse.Namespace, dtype: str, keep) -> None:
    """One row."""
    keep({"model": "kernels"} | jobs.run("kernels", dtype=dtype))


def main_run(jobs: Jobs, args: argparse.Namespace, dtype: str, keep) -> None:
    """The first family's; `learning` trains the others."""
    family = args.families[0]
    job = _tiny_job(jobs, args, family, dtype, "main")
    keep({"family": family, "dtype": dtype} | jobs.run("main_run", **job))


def vision(jobs: Jobs, args: argparse.Namespace, dtype: str, keep) -> None:
    """A tiny Gemma 3 with vision."""
    where = {"folder": str(jobs.work / "vision"), "dtype": dtype}
    keep({"model": "gemma with vision", "dtype": dtype} | jobs.run("vision", **where))


def precisions(jobs: Jobs, args: argparse.Namespace, dtype: str, keep) -> None:
    """Shorter than `learning`, so its bounds do not hold here: the first run is the measure."""
    for name, family in PRECISIONS:
        job = _tiny_job(jobs, args, family, name, f"precision-{name}")
        job |= {"steps": min(60, job["steps"]), "heldout": min(240, job["heldout"])}
        keep({"model": f"{family} {name}"} | jobs.run("learning", **job))


def memory(jobs: Jobs, args: argparse.Namespace, dtype: str, keep) -> None:
    """Random weights, two steps of each case."""
    for size, four, checkpointing, rows in [("tiny", True, False, 8)] if args.tiny else MEMORY:
        model = jobs.work / f"memory-{size}"
        how = "4-bit" if four else "16-bit"
        row = {"model": f"{size} {how}, {rows} at once" + ", checkpointing" * checkpointing}
        written = {} if model.is_dir() else jobs.run("write", size=size, model=str(model))
        if "error" in written or "skipped" in written:
            keep(row | written)
            continue
        shapes = _shapes(args, dtype) | {"steps": 2, "checkpointing": checkpointing}
        shapes |= {"per_device": rows, "load_in_4bit": four, "model": str(model)}
        shapes |= {"family": family_of(size), "folder": str(jobs.work / "memory")}
        keep(row | jobs.run("memory", **shapes))


def chapters(jobs: Jobs, args: argparse.Namespace, dtype: str, keep) -> None:
    """One job for each source; 02 has no model, and needs a package that others do not."""
    found = sorted(path.stem for path in (REPO / "notebooks" / "source").glob("[0-9]*.py"))
    for name in ["03_reward_design"] if args.tiny else found:
        if not name.startswith("02"):
            folder = str(jobs.work / name)
            keep({"model": name} | jobs.run("chapter", chapter=name, folder=folder))


def _shapes(args: argparse.Namespace, dtype: str) -> dict:
    return {
        "steps": args.warm_up + args.steps,
        "warm_up": args.warm_up,
        "batch": args.batch,
        "group": args.group,
        "per_device": args.per_device,
        "prompt_tokens": args.prompt_tokens,
        "completion_tokens": args.completion_tokens,
        "rank": args.rank,
        "checkpointing": not args.no_checkpointing,
        "dtype": dtype,
    }


def speed(jobs: Jobs, args: argparse.Namespace, dtype: str, keep) -> None:
    """Both sides of every size; `keep` is called after each."""
    for size in args.sizes:
        model = jobs.work / f"model-{size}"
        family, shapes = family_of(size), _shapes(args, dtype)
        written = jobs.run("write", size=size, model=str(model))
        row = {"model": size, "shapes": shapes, "weights": written}
        if "parameters" in written:
            for side in ("unsloth", "plain"):
                folder = jobs.work / f"{side}-{size}"
                row[side] = jobs.run(
                    "speed",
                    side=side,
                    model=str(model),
                    family=family,
                    folder=str(folder),
                    **shapes,
                )
                keep(row)
        shutil.rmtree(model, ignore_errors=True)
        keep(row)


def learning(jobs: Jobs, args: argparse.Namespace, dtype: str, keep) -> None:
    """The main run of each family."""
    for family in args.families:
        keep(
            {"family": family}
            | jobs.run("learning", **_tiny_job(jobs, args, family, dtype, "learning"))
        )


def merge(jobs: Jobs, args: argparse.Namespace, dtype: str, keep) -> None:
    """Trained in 4-bit, merged in both ways, each proved in a process that holds no Unsloth."""
    for family in args.families:
        job = _tiny_job(jobs, args, family, dtype, "merge") | {
            "steps": min(30, args.learning_steps)
        }
        row = {"family": family, "training": jobs.run("train_and_merge", **job)}
        keep(row)
        if "ways" in row["training"]:
            for way, failed in row["training"].pop("ways").items():
                row[way] = failed or jobs.run("prove", way=way, **job)
                keep(row)


def resume(jobs: Jobs, args: argparse.Namespace, dtype: str, keep) -> None:
    """Three processes: one goes through, one is stopped half-way, one continues it."""
    steps = min(20, args.learning_steps)
    job = _tiny_job(jobs, args, "qwen", dtype, "resume") | {"steps": steps}
    folder = Path(job["folder"])
    row: dict = {"family": "qwen"}
    for name, where, stop_after, again in (
        ("through", "through", steps, False),
        ("stopped", "resumed", steps // 2, False),
        ("resumed", "resumed", steps, True),
    ):
        place = {"folder": str(folder / where), "stop_after": stop_after, "resume": again}
        row[name] = jobs.run("train_part", **job | place)
        keep(row)
        if "steps" not in row[name]:
            return
    row["comparison"] = jobs.run("compare_runs", **job)
    keep(row)


def _tiny_job(jobs: Jobs, args: argparse.Namespace, family: str, dtype: str, name: str) -> dict:
    folder = jobs.work / f"{name}-{family}"
    job = {
        "family": family,
        "folder": str(folder),
        "steps": args.learning_steps,
        "heldout": args.heldout,
    }
    return job | {"dtype": dtype, "batch": 16 if args.tiny else None}


def failures(results: dict) -> list[str]:
    """Every error, every problem, everything not reached, as one line each; a refusal is none."""
    found = []

    def look(value, path):
        if isinstance(value, dict):
            found.extend(f"{path}: {value[k]}" for k in ("error", "skipped") if k in value)
            found.extend(f"{path}: {text}" for text in value.get("problems", ()))
            for key, inner in value.items():
                look(inner, f"{path}, {key}" if path else key)

    for part in PARTS:
        for row in results.get(part, ()):
            look(row, f"{part}, {row.get('model') or row.get('family')}")
    return found


def write_results(out: Path, results: dict) -> None:
    """gpu.json and gpu.md, whole or not at all."""
    results["failures"] = failures(results)
    for name, text in (
        ("gpu.json", json.dumps(results, indent=2) + "\n"),
        ("gpu.md", table(results)),
    ):
        new = out / f"{name}.new"
        new.write_text(text, encoding="utf-8")
        os.replace(new, out / name)


def earlier(out: Path, machine: dict) -> dict:
    """What other calls on the same machine have written to this folder; nothing of another
    machine."""
    try:
        there = json.loads((out / "gpu.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return there if there.get("machine") == machine else {}


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", default="all", metavar="A,B", help="of those above (all)")
    parser.add_argument("--dry-run", action="store_true", help="print the parts and their limits")
    parser.add_argument(
        "--sizes", default="0.6B,4B", metavar="A,B", help=f"of {', '.join(SIZES)} (default 0.6B,4B)"
    )
    parser.add_argument(
        "--families",
        default="qwen,gemma",
        metavar="A,B",
        help="of the tiny models (default qwen,gemma)",
    )
    parser.add_argument(
        "--steps", type=int, default=5, metavar="N", help="timed steps of each side (5)"
    )
    parser.add_argument("--warm-up", type=int, default=2, metavar="N", help="steps before them (2)")
    parser.add_argument(
        "--prompt-tokens", type=int, default=256, metavar="N", help="of every prompt (256)"
    )
    parser.add_argument(
        "--completion-tokens", type=int, default=256, metavar="N", help="of every completion (256)"
    )
    parser.add_argument(
        "--batch", type=int, default=32, metavar="N", help="completions in a step (32)"
    )
    parser.add_argument(
        "--group", type=int, default=8, metavar="N", help="completions of one prompt (8)"
    )
    parser.add_argument(
        "--per-device", type=int, default=8, metavar="N", help="trained at once (8)"
    )
    parser.add_argument("--rank", type=int, default=32, metavar="R", help="of the adapters (32)")
    parser.add_argument(
        "--no-checkpointing", action="store_true", help="no gradient checkpointing, on both sides"
    )
    parser.add_argument(
        "--learning-steps", type=int, default=120, metavar="N", help="of the tiny models (120)"
    )
    parser.add_argument(
        "--heldout", type=int, default=480, metavar="N", help="held-out problems (480)"
    )
    parser.add_argument(
        "--budget",
        type=float,
        metavar="S",
        help="begin nothing and stop what runs after so many seconds",
    )
    parser.add_argument(
        "--out", type=Path, default=REPO / "outputs" / "gpu", metavar="DIR", help="outputs/gpu"
    )
    parser.add_argument(
        "--work",
        type=Path,
        metavar="DIR",
        help="for models, on a disk with room (default: a temporary one)",
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument(
        "--tiny", action="store_true", help="tiny shapes and few steps: a test of this program"
    )
    args = parser.parse_args(argv)
    args.sizes, args.families = args.sizes.split(","), args.families.split(",")
    args.part = list(PARTS) if args.part == "all" else args.part.split(",")
    if unknown := [part for part in args.part if part not in PARTS]:
        parser.error(f"unknown part {unknown[0]!r}: choose from {', '.join(PARTS)}")
    if args.tiny:
        args.sizes, args.steps, args.warm_up, args.learning_steps, args.heldout = (
            ["tiny"],
            2,
            1,
            4,
            16,
        )
        (
            args.prompt_tokens,
            args.completion_tokens,
            args.batch,
            args.group,
            args.per_device,
            args.rank,
        ) = (
            128,
            8,
            8,
            4,
            4,
            8,
        )
    if unknown := [f for f in args.families if f not in FAMILIES]:
        parser.error(f"unknown family {unknown[0]!r}: choose from {', '.join(FAMILIES)}")
    if not args.tiny and (unknown := [s for s in args.sizes if s not in SIZES]):
        parser.error(f"unknown size {unknown[0]!r}: choose from {', '.join(SIZES)}")
    for name in ("steps", "warm_up", "completion_tokens", "learning_steps", "heldout", "rank"):
        if getattr(args, name) < 1:
            parser.error(
                f"--{name.replace('_', '-')} is {getattr(args, name)}: it must be at least 1"
            )
    if args.group < 2 or args.batch % args.group or args.batch % args.per_device:
        parser.error(
            f"--batch {args.batch} must be a multiple of --group {args.group} (2 or more) and "
            f"--per-device"
        )
    if args.per_device % args.group:
        parser.error(
            f"--per-device {args.per_device} must be a multiple of --group: Unsloth would raise "
            f"it, and TRL not"
        )
    if args.device == "cpu" and not args.tiny:
        parser.error("--device cpu is for --tiny: the real sizes need a GPU")
    return args


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    if args.dry_run:
        for part in args.part:
            what, seconds = PARTS[part]
            print(f"{part:11}at most {seconds:4} s  {what}")
        print(f"all numbers would be in {args.out / 'gpu.json'}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the job that runs ends too
    args.out.mkdir(parents=True, exist_ok=True)
    if args.work:
        args.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.work, ignore_cleanup_errors=True) as folder:
        work = Path(folder)
        jobs = Jobs(args, work)
        machine = jobs.run("machine")
        machine.pop("job_seconds", None)
        if "error" in machine or (args.device == "cuda" and not machine.get("gpu")):
            print(
                f"error: {machine.get('error', 'torch sees no CUDA GPU: try --tiny --device cpu')}"
            )
            return 2
        results = earlier(args.out, machine) | {"machine": machine}
        for part in args.part:
            rows: dict[str, dict] = {}
            others = [
                r for r in results.get(part, ()) if part == "speed" and r["model"] not in args.sizes
            ]

            def keep(row: dict, rows=rows, part=part, others=others) -> None:
                rows[row.get("model") or row["family"]] = row
                results[part] = [*others, *rows.values()]
                write_results(args.out, results)

            print(f"{part} ...", flush=True)
            # Minutes of a GPU are counted; a test on the CPU may wait for a busy machine.
            limit = PARTS[part][1] if args.device == "cuda" else math.inf
            jobs.part_end = time.monotonic() + limit
            globals()[part](jobs, args, machine["dtype"], keep)
            if part == "kernels" and results["failures"]:
                print("an import or a kernel fails: nothing after it can pass")
                break
    print(table(results))
    print(f"all numbers: {args.out / 'gpu.json'}")
    return 1 if results["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
