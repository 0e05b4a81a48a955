"""`python -m grpo_workbook stages`: train the stages of a YAML file, each compared with the one before it."""

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

from grpo_workbook.cli.data_report import add_reading_options, reading_options
from grpo_workbook.cli.folder import add_choice, check_folder, check_room, identity_of, own_folder
from grpo_workbook.cli.pipeline import Interrupted, check_backend, try_own_rewards
from grpo_workbook.cli.run_command import add_options
from grpo_workbook.cli.run_data import answers_for, load_rows
from grpo_workbook.config import RunConfig
from grpo_workbook.data import drop_long_prompts, needs_folding, sha256_of, to_dataset
from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import readable
from grpo_workbook.reward_files import beside, file_hashes
from grpo_workbook.rubric import parse_rewards
from grpo_workbook.stages.stage import Stage, read_stages

EXAMPLES = """a file of stages:
  - {name: format, steps: 8, rewards: "strict_format:0.5"}
  - {name: correct, steps: 60, rewards: "correctness:2,strict_format:0.5"}

each may have: name, steps, rewards, learning_rate, beta, reference,
pass_rate, success, samples, measured, ordered (see notebook 07). Rewards of
your own, FILE.py:FUNCTION:weight, start from the folder of the file.

examples:
  python -m grpo_workbook stages my_stages.yaml --output outputs/staged
  python -m grpo_workbook stages my_stages.yaml --output outputs/staged --resume
"""
SETTINGS = ("heldout", "batch_size", "num_generations", "learning_rate")


def add_parser(commands) -> None:
    """Add stages to the command line."""
    parser = commands.add_parser(
        "stages",
        help="train in stages, each compared with the one before",
        usage="%(prog)s FILE.yaml [options]",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE.yaml", help="a list of stages")
    add_options(parser, "model", "profile", "backend", "data", "heldout_data")
    add_reading_options(parser)
    add_options(
        parser,
        "seed",
        *SETTINGS,
        batch_size="completions in a step",
        learning_rate="of stages that name none",
    )
    parser.add_argument(
        "--probe-every",
        type=int,
        default=0,
        metavar="N",
        help="measure every N steps, too (default: not)",
    )
    add_options(parser, "output", output="default outputs/stages")
    add_choice(parser)


def _from(folder: Path, stage: Stage) -> Stage:
    """The stage with its own reward files as paths from the YAML file's folder."""
    specs = {name: getattr(stage, name) for name in ("rewards", "success")}
    return replace(
        stage, **{name: beside(spec, folder) for name, spec in specs.items() if spec is not None}
    )


def main(args: argparse.Namespace) -> int:
    """Exit status: 0 trained, 130 interrupted. What is wrong with the input is found before anything is written."""
    run = RunConfig.from_env(
        profile=args.profile,
        model=args.model,
        seed=args.seed,
        output="outputs/stages"
        if args.output is None and not os.environ.get("GRPO_WORKBOOK_OUTPUT")
        else args.output,
        stages=[_from(Path(args.file).parent, stage) for stage in read_stages(args.file)],
        **{name: getattr(args, name) for name in SETTINGS},
    )
    if args.probe_every < 0:
        raise WorkbookError(
            f"--probe-every is {args.probe_every}: give the steps between two measurements, or 0 for none"
        )
    from grpo_workbook.stages.training import show_stages, stage_run, train_stages

    for number, stage in enumerate(run.stages, 1):
        stage_run(run, stage, number)  # whether its settings can be
    functions = [
        f for stage in run.stages for f in parse_rewards(stage.rewards or run.rewards)[0]
    ]
    judges = [f for stage in run.stages for f in parse_rewards(stage.success)[0]]
    answers = answers_for(functions, args.data or args.heldout_data)
    rows, heldout_rows, _ = load_rows(
        run, args.data, args.heldout_data, reading_options(args), answers
    )
    identity = identity_of(
        run,
        args.backend,
        sha256_of(rows, heldout_rows),
        stages=[stage.to_dict() for stage in run.stages],
        reward_files=file_hashes([*functions, *judges]),
    )
    check_backend(run, args.backend)
    check_room(run)
    check_folder(run.output, identity, overwrite=args.overwrite, resume=args.resume)
    try_own_rewards([*functions, *judges], rows)
    print(run)

    if Path(run.model).is_dir():
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from grpo_workbook.notebook import quiet
    from grpo_workbook.training import load_policy

    quiet()
    model, tokenizer = load_policy(run, args.backend)
    fold = needs_folding(tokenizer)
    train_set, heldout = (
        drop_long_prompts(to_dataset(part, fold=fold), tokenizer, run.max_prompt_length)[0]
        for part in (rows, heldout_rows)
    )
    how = {"answers": answers, "resume": args.resume, "probe_every": args.probe_every}
    try:
        with own_folder(run.output, identity, overwrite=args.overwrite, resume=args.resume):
            report = train_stages(run, model, tokenizer, train_set, heldout, **how)
    except Interrupted as stopped:
        print(
            f"\nInterrupted: {stopped}. The same command with --resume goes on from there.",
            file=sys.stderr,
        )
        return 130
    print()
    show_stages(report)
    last = run.output / f"stage-{len(run.stages)}-{run.stages[-1].name}"
    print(
        f"\n{readable(run.output / 'stages.json')}: every number; {readable(last / 'adapter')}: the adapter"
    )
    return 0
