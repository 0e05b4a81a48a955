"""Train in stages, each compared with the one before.

examples:
  python -m grpo_workbook stages my_stages.yaml --output outputs/stages
  python -m grpo_workbook stages my_stages.yaml --probe-every 5 --resume

a file of stages:
  - {name: format, steps: 8, rewards: "strict_format:0.5"}
  - {name: correct, steps: 60, rewards: "correctness:2,strict_format:0.5"}

More fields are in notebook 07. Your own rewards, FILE.py:FUNCTION:weight, are
relative to the folder of the file.
"""

import os
from dataclasses import replace
from pathlib import Path

from grpo_workbook.cli import option, options
from grpo_workbook.cli.rewards import beside, parse_rewards
from grpo_workbook.cli.run import Job, own_folder
from grpo_workbook.config import RunConfig
from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import readable
from grpo_workbook.stages import planned, read_stages, show_stages, train_stages
from grpo_workbook.training import HeldoutProbe

USAGE = "%(prog)s FILE.yaml [options of run]"
OPTIONS = [option("--probe-every", metavar="N", help="measure every N steps")]


def main(arguments: list[str]) -> int:
    """Exit status 0. Bad input is found before a file is written; a Ctrl-C works as in `run`."""
    if not arguments or arguments[0].startswith("-"):
        raise WorkbookError("there is no file of stages: give stages FILE.yaml [options]")
    given = read_stages(arguments[0])
    values, overrides = options.read(arguments[1:], probe_every=int)
    if values.keys() & {"tools", "environment"}:  # between stages only texts are measured
        raise WorkbookError("stages trains no model that acts: give --tools, --environment to run")
    probe_every, timeout = values.pop("probe_every", 0), values.pop("reward_timeout", 600)
    named = {n: values.pop(n) for n in options.run_fields().keys() & values.keys()}
    named.setdefault("output", os.environ.get("GRPO_WORKBOOK_OUTPUT") or "outputs/stages")
    run = RunConfig.from_env(**named)
    folder, stages, used = Path(arguments[0]).parent, [], []
    plans = planned(run, given, lambda spec: parse_rewards(beside(spec, folder), timeout))
    for stage, _, functions, weights, success in plans:
        pairs = tuple(zip(functions, weights, strict=True))
        stages.append(replace(stage, rewards=pairs, success=success))
        used += [*functions, success] if stage.pass_rate else functions
    job = Job(run, used, overrides=overrides, **values)
    model, tokenizer = job.load(stages=[stage.to_dict() for stage in given])
    train = {"train": lambda *stage: job.train_once(*stage)[0], "resume": job.mode["resume"]}
    if probe_every:
        probe = {"max_new_tokens": run.max_completion_length, "every": probe_every}
        probe |= {"problems": len(job.heldout), "judge": job.judge}
        train["callbacks"] = [HeldoutProbe(model, tokenizer, job.heldout, **probe)]
    with own_folder(run.output, job.identity, **job.mode):
        data = job.train, job.heldout
        report = train_stages(run, model, tokenizer, *data, stages, judge=job.judge, **train)
    print()
    show_stages(report)
    last = plans[-1][1].output / "adapter"
    print(f"\n{readable(run.output / 'stages.json')}: every number; {readable(last)}: the adapter")
    return 0
