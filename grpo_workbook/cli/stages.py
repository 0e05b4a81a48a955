"""`python -m grpo_workbook stages`: train the stages of a YAML file, compared one by one."""

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

from grpo_workbook.cli import options
from grpo_workbook.cli.folder import check_folder, check_room, identity_of, own_folder
from grpo_workbook.config import RunConfig
from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import readable

EXAMPLES = """a file of stages:
  - {name: format, steps: 8, rewards: "strict_format:0.5"}
  - {name: correct, steps: 60, rewards: "correctness:2,strict_format:0.5"}

each may have: name, steps, rewards, learning_rate, beta, reference,
pass_rate, success, samples, measured, ordered (see notebook 07). Rewards of
your own, FILE.py:FUNCTION:weight, start from the folder of the file.

examples:
  python -m grpo_workbook stages my.yaml --output outputs/staged
"""


def add_parser(commands) -> None:
    """Add stages to the command line; `main` reads what follows it."""
    commands.add_parser(
        "stages",
        help="train in stages, each compared with the one before",
        usage="%(prog)s FILE.yaml [--probe-every N] [options]",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _with_functions(stage, run: RunConfig, folder: Path):
    """The stage with functions for the names of rewards; own files start from `folder`."""
    from grpo_workbook.cli.rewards import beside, parse_rewards

    try:
        pairs = zip(*parse_rewards(beside(stage.rewards or run.rewards, folder)), strict=True)
        success = parse_rewards(beside(stage.success, folder))[0][0]
    except WorkbookError as error:
        raise WorkbookError(f"stage {stage.name!r}: {error}") from None
    return replace(stage, rewards=tuple(pairs), success=success)


def main(arguments: list[str]) -> int:
    """Exit status: 0 trained, 130 interrupted. Bad input is found before anything is written."""
    from grpo_workbook.cli.run import Interrupted, prepare, train_once
    from grpo_workbook.stages import read_stages, show_stages, stage_run, train_stages
    from grpo_workbook.training import HeldoutProbe

    if not arguments or arguments[0].startswith("-"):
        raise WorkbookError("name the file of stages first: stages FILE.yaml [options]")
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--probe-every", type=int, default=0)
    own, rest = first.parse_known_args(arguments[1:])
    values, overrides = options.read(rest)
    named = {n: values.pop(n) for n in options.run_fields().keys() & values.keys()}
    named.setdefault("output", os.environ.get("GRPO_WORKBOOK_OUTPUT") or "outputs/stages")
    run = RunConfig.from_env(**named)
    given, folder = read_stages(arguments[0]), Path(arguments[0]).parent
    for number, stage in enumerate(given, 1):
        stage_run(run, stage, number)  # whether its values can be
    stages = [_with_functions(stage, run, folder) for stage in given]
    used = [stage.success for stage in stages if stage.pass_rate]
    used += [function for stage in stages for function, _ in stage.rewards]
    how = {name: bool(values.pop(name, False)) for name in ("overwrite", "resume")}
    sources = [values.pop("data", None), values.pop("heldout_data", None)]
    job = prepare(run, values.pop("backend", "unsloth"), *sources, values, used)
    more = {"overrides": overrides, "reward_files": job.reward_files}
    more["stages"] = [stage.to_dict() for stage in given]
    identity = identity_of(run, job.backend, job.data_sha256, **more)
    check_room(run)
    check_folder(run.output, identity, **how)
    print(run)
    model, tokenizer = job.load()

    def train(run, model, tokenizer, rows, functions, weights, callbacks):
        mine = replace(job, run=run, train=rows, functions=functions, weights=weights)
        return train_once(mine, model, tokenizer, how["resume"], overrides, callbacks)[0].history

    more = {"train": train, "judge": job.judge, "resume": how["resume"]}
    if own.probe_every:
        probe = {"max_new_tokens": run.max_completion_length, "every": own.probe_every}
        probe |= {"problems": len(job.heldout), "judge": job.judge}
        more["callbacks"] = [HeldoutProbe(model, tokenizer, job.heldout, **probe)]
    try:
        with own_folder(run.output, identity, **how):
            report = train_stages(run, model, tokenizer, job.train, job.heldout, stages, **more)
    except Interrupted as stopped:
        again = "The same command with --resume goes on from there"
        print(f"\nInterrupted: {stopped}. {again}.", file=sys.stderr)
        return 130
    print()
    show_stages(report)
    last = stage_run(run, stages[-1], len(stages)).output / "adapter"
    print(f"\n{readable(run.output / 'stages.json')}: every number; {readable(last)}: the adapter")
    return 0
