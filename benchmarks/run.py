"""What the main run costs, and what gradient checkpointing and 16-bit loading would cost instead.

    python benchmarks/run.py                  # 40 steps of each, about 4 minutes on two cores
    python benchmarks/run.py --steps 120      # the whole run
    python benchmarks/run.py --seeds 0 1 2    # whether every family and seed learns

Every row is a process of its own; ratios compare rows of one call, so a slow machine slows both
sides.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

VARIANTS = {
    "main run (4-bit)": [],
    "with gradient checkpointing": ["--gradient-checkpointing"],
    "16-bit base": ["--no-load-in-4bit"],
    "16-bit, checkpointing": ["--no-load-in-4bit", "--gradient-checkpointing"],
}


def run(arguments: list[str]) -> dict:
    """One run's report. Raises CalledProcessError, with what it printed, when it fails."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "grpo_workbook",
            "run",
            "--output_dir",
            f"{folder}/run",
            *arguments,
        ]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:
            print(result.stdout[-2000:], result.stderr[-4000:], file=sys.stderr)
            result.check_returncode()
        return json.loads(Path(folder, "run", "report.json").read_text(encoding="utf-8"))


def costs(steps: int, heldout: int, model: str) -> None:
    print(
        f"{'':30} {'train s':>8} {'completions/s':>14} {'peak MB':>8} {'time x':>7} {'memory x':>9}"
    )
    first = None
    for name, arguments in VARIANTS.items():
        report = run(
            ["--model", model, "--max-steps", str(steps), "--heldout", str(heldout), *arguments]
        )
        first = first or report
        print(
            f"{name:30} {report['train_seconds']:8.1f} "
            f"{report['completions']['total'] / report['train_seconds']:14.1f} "
            f"{report['peak_rss_mb']:8} "
            f"{report['train_seconds'] / first['train_seconds']:7.2f} "
            f"{report['peak_rss_mb'] / first['peak_rss_mb']:9.2f}",
            flush=True,
        )


def seeds(chosen: list[int]) -> bool:
    """Print a table of the rare kinds, on which the run trains, and the merged model on all kinds.

    Returns:
        Whether every run kept the bounds that tests/test_cli_run.py asks of seed 0.
    """
    kept = True
    print(
        "| model | seed | rare: sampled | rare: greedy | p | merged greedy, all kinds | train s | "
        "total s | peak MB |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for model in ("qwen", "gemma"):
        for seed in chosen:
            report = run(["--model", model, "--seed", str(seed)])
            merged = report["merge"]["heldout"]["strict"]["after"]
            sampled = report["subset"]["sampled"]["strict"]
            greedy = report["subset"]["greedy"]["strict"]
            kept &= sampled["before"] <= 0.40 and sampled["after"] >= 0.65
            kept &= greedy["before"] <= 0.45 and greedy["after"] >= 0.75
            kept &= merged >= report["heldout"]["greedy"]["strict"]["after"] - 0.03
            print(
                f"| {model} | {seed} | {sampled['before']:.3f} → {sampled['after']:.3f} | "
                f"{greedy['before']:.3f} → {greedy['after']:.3f} | "
                f"{sampled['p_value']:.0e} | "
                f"{merged:.3f} | {report['train_seconds']} | "
                f"{report['total_seconds']} | {report['peak_rss_mb']} |",
                flush=True,
            )
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument(
        "--heldout", type=int, default=40, help="held-out problems measured in each run"
    )
    parser.add_argument("--model", default="qwen")
    parser.add_argument(
        "--seeds", type=int, nargs="+", help="instead: full runs of both families with these seeds"
    )
    args = parser.parse_args()
    if args.seeds:
        return 0 if seeds(args.seeds) else 1
    costs(args.steps, args.heldout, args.model)
    return 0


if __name__ == "__main__":
    sys.exit(main())
