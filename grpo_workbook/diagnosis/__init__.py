"""Read the log of a run and find what is wrong: `diagnose(folder)`, HealthCallback in training."""

from grpo_workbook.diagnosis.health import HealthCallback, watch
from grpo_workbook.diagnosis.panels import run_panels, side_by_side
from grpo_workbook.diagnosis.report import as_text, diagnose
from grpo_workbook.diagnosis.runlog import read_run, roles_of

__all__ = [
    "HealthCallback",
    "as_text",
    "diagnose",
    "read_run",
    "roles_of",
    "run_panels",
    "side_by_side",
    "watch",
]
