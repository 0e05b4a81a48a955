"""Unsloth's own GRPOConfig and GRPOTrainer, those that it makes on a GPU, made without one.

Prints JSON: "changed", a list of [field, the profile's value, Unsloth's], and "logged", the metrics
of the loss.
"""

import contextlib
import dataclasses
import inspect
import io
import itertools
import json
import os
import re

os.environ["UNSLOTH_ALLOW_CPU"] = "1"
import unsloth  # noqa: F401

os.environ["UNSLOTH_ALLOW_CPU"] = "0"
import trl
from unsloth.models import rl

from grpo_workbook.cli.options import RunOptions, new_parser
from grpo_workbook.config import PROFILES, choose_profile

stock = trl.GRPOConfig
rl.PatchFastRL(None, None)
made = trl.GRPOConfig
assert made is not stock
CHOICES = {
    "loss_type": ("grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo", "sapo", "vespo"),
    "scale_rewards": ("group", "batch", "none"),
    "use_vllm": (False, True),
    "vllm_mode": ("colocate", "server"),
}
found = set()
for name, *values in itertools.product(PROFILES, *CHOICES.values()):
    # The values of every profile, on this machine: on a CPU, TRL refuses other dtypes.
    profile = choose_profile("smoke", model="org/qwen3", seed=1)
    given = {**profile.grpo, **PROFILES[name]["grpo"], **dict(zip(CHOICES, values, strict=True))}
    if given["loss_type"] == "dr_grpo" and given["scale_rewards"] == "group":
        continue  # `check_grpo_config` refuses it
    with contextlib.redirect_stdout(io.StringIO()):
        ours, theirs = stock(output_dir="x", **given), made(output_dir="x", **given)
        parser = new_parser(RunOptions, made)
        parser.set_defaults_with_config(output_dir="x", **given)
        parsed = parser.parse_args_into_dataclasses([])[1]
    for field in dataclasses.fields(stock):
        for other in (theirs, parsed):
            pair = repr(getattr(ours, field.name)), repr(getattr(other, field.name))
            if field.name in given and pair[0] != pair[1]:
                found.add((field.name, *pair))
source = inspect.getsource(trl.GRPOTrainer.compute_loss)
logged = set(re.findall(r'_metrics\[mode\]\["([^"]+)"\]', source))
print(json.dumps({"changed": sorted(found), "logged": sorted(logged)}))
