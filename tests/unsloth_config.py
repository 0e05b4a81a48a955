"""Unsloth's own GRPOConfig and GRPOTrainer, those that it makes on a GPU, made without one.

Prints JSON: "changed", a list of [field, the run's value, Unsloth's], and "logged", the metrics of
the loss.
"""

import contextlib
import dataclasses
import inspect
import io
import itertools
import json
import os
import re
from pathlib import Path

os.environ["UNSLOTH_ALLOW_CPU"] = "1"
import unsloth  # noqa: F401

os.environ["UNSLOTH_ALLOW_CPU"] = "0"
import trl
from unsloth.models import rl

from grpo_workbook.config import FAMILIES
from grpo_workbook.errors import WorkbookError
from grpo_workbook.run_config import CHOICES, PROFILES, RunConfig

stock = trl.GRPOConfig
rl.PatchFastRL(None, None)
made = trl.GRPOConfig
assert made is not stock
found = set()
names = ("loss_type", "scale_rewards", "vllm")
for profile, *values in itertools.product(PROFILES, *(CHOICES[name] for name in names)):
    chosen = {k: v for k, v in PROFILES[profile].items() if k not in FAMILIES}
    chosen |= dict(zip(names, values, strict=True)) | {"load_in_4bit": values[2] != "server"}
    chosen["dtype"] = "float32"  # on a CPU, TRL refuses the others
    try:
        run = RunConfig("cpu", profile, "org/qwen3", "qwen", 0, Path("outputs"), **chosen)
    except WorkbookError:
        continue
    given = {}
    trl.GRPOConfig = lambda given=given, **arguments: given.update(arguments)
    run.to_grpo_config()
    with contextlib.redirect_stdout(io.StringIO()):
        ours, theirs = stock(**given), made(**given)
    for field in dataclasses.fields(stock):
        pair = repr(getattr(ours, field.name)), repr(getattr(theirs, field.name))
        if field.name in given and pair[0] != pair[1]:
            found.add((field.name, *pair))
source = inspect.getsource(trl.GRPOTrainer.compute_loss)
logged = set(re.findall(r'_metrics\[mode\]\["([^"]+)"\]', source))
print(json.dumps({"changed": sorted(found), "logged": sorted(logged)}))
