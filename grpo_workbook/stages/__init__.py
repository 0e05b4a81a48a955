"""Train in stages, compare each with the one before, and choose problems by difficulty.

STAGES = (
    Stage("format", steps=20, rewards="strict_format,incremental_format"),
    Stage("correct", steps=60, rewards="correctness:2,strict_format:0.5", pass_rate=(0.1, 0.9)),
)
report = train_stages(run, model, tokenizer, dataset, heldout, STAGES)
"""

from grpo_workbook.stages.adaptive import AdaptiveWeight
from grpo_workbook.stages.difficulty import Curriculum, curriculum, pass_rates
from grpo_workbook.stages.stage import Stage, read_stages
from grpo_workbook.stages.training import Carry, planned, show_stages, stage_run, train_stages

# fmt: off
__all__ = [
    "AdaptiveWeight", "Carry", "Curriculum", "Stage", "curriculum", "pass_rates", "planned",
    "read_stages", "show_stages", "stage_run", "train_stages",
]
