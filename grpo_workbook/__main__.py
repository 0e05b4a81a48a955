"""The command line: python -m grpo_workbook COMMAND; each command's options live beside what it does."""

import argparse
import os
import sys
from pathlib import Path

from grpo_workbook import ask, data_report, estimate_command, evaluation_command, merging, monitor
from grpo_workbook.run import FAMILIES, PROFILES, Run, WorkbookError, readable
from grpo_workbook.terminal import visible

EXAMPLES = """examples:
  python -m grpo_workbook doctor
  python -m grpo_workbook estimate --profile t4     does it fit? how long?
  python -m grpo_workbook run                       the course's main run
  python -m grpo_workbook run --resume              after a Ctrl-C or a crash
  python -m grpo_workbook run --model gemma --seed 1 --output outputs/gemma
  python -m grpo_workbook run --data my.jsonl --steps 30 --output outputs/mine
  python -m grpo_workbook check-data my.jsonl       before you train on it
  python -m grpo_workbook diagnose outputs/run      what is wrong with a run
  python -m grpo_workbook evaluate qwen --data my.jsonl
  python -m grpo_workbook generate outputs/run/merged "What is 2+3?"
"""


def parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(
        prog="python -m grpo_workbook",
        description="The GRPO Workbook's command line.",
        epilog=EXAMPLES,
        formatter_class=raw,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("doctor", help="what this machine is, what is wrong with it, how to mend it")
    commands.add_parser("progress", help="which exercises you have solved")

    estimate_command.add_parser(commands)
    data_report.add_parser(commands)
    monitor.add_parser(commands)
    evaluation_command.add_parsers(commands)
    ask.add_parser(commands)
    merging.add_parser(commands)

    run = commands.add_parser(
        "run",
        help="measure, train with GRPO, measure again, merge, report",
        usage="%(prog)s [options]",
        epilog=EXAMPLES,
        formatter_class=raw,
    )
    what = run.add_argument_group("what")
    what.add_argument("--model", metavar="M", help=f"a family ({', '.join(FAMILIES)}), a folder or a hub id")
    what.add_argument("--profile", metavar="P", help=f"{', '.join(PROFILES)} (default: what fits the device)")
    what.add_argument("--backend", default="unsloth", metavar="B", help="unsloth, or plain (Transformers + PEFT + TRL)")
    what.add_argument("--data", metavar="SOURCE", help=".jsonl, .csv, .parquet, a hub id, reasoning-gym:TASK")
    what.add_argument("--heldout-data", metavar="SOURCE", help="held-out problems (default: part of --data)")
    data_report.add_reading_options(what)
    what.add_argument("--seed", type=int, metavar="N", help="default 0")
    where = run.add_argument_group("where")
    where.add_argument("--output", type=Path, metavar="DIR", help="default outputs/run")
    choice = where.add_mutually_exclusive_group()
    choice.add_argument("--overwrite", action="store_true", help="replace the run that is there")
    choice.add_argument("--resume", action="store_true", help="continue the run that is there")
    how = run.add_argument_group("how (default: the profile's values)")
    how.add_argument("--rewards", metavar="SPEC", help="such as correctness:2,strict_format:0.5 (name:weight)")
    how.add_argument("--steps", type=int, metavar="N", help="optimizer steps")
    how.add_argument("--batch-size", type=int, metavar="N", help="completions in a step")
    how.add_argument("--num-generations", type=int, metavar="N", help="completions in a group")
    how.add_argument("--learning-rate", type=float, metavar="X")
    how.add_argument("--heldout", type=int, metavar="N", help="held-out problems measured")
    how.add_argument("--max-prompt-tokens", type=int, metavar="N", help="longer prompts are dropped")
    how.add_argument(
        "--load-in-16bit", dest="load_in_4bit", action="store_false", default=None, help="do not quantize the base"
    )
    how.add_argument(
        "--gradient-checkpointing",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="recompute activations instead of keeping them",
    )
    return top


SETTINGS = (
    "rewards",
    "steps",
    "batch_size",
    "num_generations",
    "learning_rate",
    "heldout",
    "max_prompt_tokens",
    "load_in_4bit",
    "gradient_checkpointing",
)


READING = ("question_column", "answer_column", "skip_invalid")


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 well, 1 something to mend, 2 bad input, 130 interrupted."""
    args = parser().parse_args(arguments)
    try:
        if args.command == "doctor":
            from grpo_workbook import doctor

            return doctor.show(doctor.examine())
        if args.command == "progress":
            from grpo_workbook.checks import show_progress

            return show_progress()
        if args.command == "estimate":
            return estimate_command.main(args)
        if args.command == "check-data":
            return data_report.main(args)
        if args.command == "diagnose":
            return monitor.main(args)
        if args.command == "evaluate":
            return evaluation_command.main(args)
        if args.command == "generate":
            return ask.main(args)
        if args.command == "merge":
            return merging.main(args)
        if args.command == "power":
            return evaluation_command.show_power(args)
        return _run(args)
    except WorkbookError as error:
        print(f"error: {visible(str(error))}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("grpo_workbook"):
            raise
        print(f"error: {error.name} is not installed: run `make setup`, or see the README for pip", file=sys.stderr)
        return 2
    except BrokenPipeError:  # who read the output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.errno is None:  # no file or disk: a library's own, with its story
            raise
        where = f"{error.filename}: " if error.filename else ""
        print(
            f"error: {where}{error.strerror or error}: check the place, its permissions and its room", file=sys.stderr
        )
        return 2
    except KeyboardInterrupt:
        if args.command == "generate":
            print("\nInterrupted.", file=sys.stderr)
            return 130
        goes_on = "--resume (or `make run`)" if args.command == "run" else "The same command"
        print(f"\nInterrupted: nothing more was written. {goes_on} goes on from what is there.", file=sys.stderr)
        return 130


def _run(args: argparse.Namespace) -> int:
    from grpo_workbook.pipeline import Interrupted, main_run

    run = Run.from_env(
        profile=args.profile,
        model=args.model,
        seed=args.seed,
        output=args.output,
        **{name: getattr(args, name) for name in SETTINGS},
    )
    try:
        report = main_run(
            run,
            data=args.data,
            heldout_data=args.heldout_data,
            reading={name: getattr(args, name) for name in READING},
            backend=args.backend,
            overwrite=args.overwrite,
            resume=args.resume,
        )
    except Interrupted as stopped:
        print(
            f"\nInterrupted: {stopped}. The adapter is in {readable(run.output / 'adapter')}; the same command with "
            "--resume goes on from there, and so does `make run`.",
            file=sys.stderr,
        )
        return 130
    show_report(report, run.output)
    return 0


def show_report(report: dict, output: Path) -> None:
    """The before/after table, five answers, and where everything lies."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    held, merge = report["heldout"], report["merge"]
    table = Table(title=f"{held['n']} held-out problems, {report['model']}", title_justify="left")
    for name, justify in (("", "left"), ("before", "right"), ("after", "right")):
        table.add_column(name, justify=justify)
    for key, name in (
        ("strict_sampled", "strict, sampled"),
        ("strict_greedy", "strict, greedy"),
        ("lenient_sampled", "lenient, sampled"),
        ("well_formed_sampled", "well-formed, sampled"),
    ):
        table.add_row(name, f"{held['before'][key]:.1%}", f"{held['after'][key]:.1%}")
    interval = {k: "{:.1%} to {:.1%}".format(*held[k]["ci95"]) for k in ("before", "after")}
    table.add_row("  95 % interval of the first", interval["before"], interval["after"])
    console.print()
    console.print(table)
    for line in report["verdict"]:
        console.print(f"- {line}")
    console.print(
        f"- trained {report['steps']} steps in {report['train_seconds']} s "
        f"({report['total_seconds']} s in all), peak memory {report['peak_rss_mb']} MB"
    )
    console.print(
        f"- merged: largest logit difference {merge['max_abs_logit_difference']}, the same greedy token at "
        f"{merge['same_greedy_tokens']:.2%} of places, strict greedy {merge['merged_strict_greedy']:.1%}"
    )
    console.print("\nFive held-out questions, answered by the merged model:")
    for example in report["examples"]:
        console.print(Text(visible(f"  {example['question']}  (right: {example['answer']})")))
        console.print(Text(visible("    " + " ".join(example["after"].split()))))
    console.print()
    for name, what in (
        ("report.json", "every number"),
        ("adapter", "the LoRA adapter"),
        ("merged", "16-bit weights for plain Transformers"),
        ("figures", "curves and bars"),
        ("log.json", "TRL's metrics, step by step"),
    ):
        console.print(f"{readable(output / name):<28} {what}")


if __name__ == "__main__":
    sys.exit(main())
