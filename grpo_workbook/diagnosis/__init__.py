"""Read the log of a run and find what is wrong: `diagnose(folder)`, HealthCallback in training."""

# ruff: noqa: F401, I001
from grpo_workbook.diagnosis.findings import CATALOGUE, SEVERE, THRESHOLDS, WARNING
from grpo_workbook.diagnosis.findings import Finding, as_text
from grpo_workbook.diagnosis.health import HealthCallback, log_the_end, watch
from grpo_workbook.diagnosis.panels import compare_panels, run_panels, side_by_side
from grpo_workbook.diagnosis.rules import diagnose
from grpo_workbook.diagnosis.runlog import RunLog, read_run, read_runs, roles_of, samples

__all__ = """CATALOGUE SEVERE THRESHOLDS WARNING Finding HealthCallback RunLog as_text
    compare_panels diagnose log_the_end read_run read_runs roles_of run_panels samples side_by_side
    watch""".split()
