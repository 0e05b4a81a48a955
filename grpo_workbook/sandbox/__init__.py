"""Run model-written Python against tests, pay for what passes: `reward_funcs=[unit_tests()]`."""

# ruff: noqa: I001
# fmt: off
from grpo_workbook.sandbox.attacks import CodeAttack, code_attacks
from grpo_workbook.sandbox.pool import OUTCOMES, Job, Sandbox, Verdict
from grpo_workbook.sandbox.rewards import (
    code_format_reward, fenced_code, program_of, unit_tests
)
from grpo_workbook.sandbox.tasks import (
    CODE_SYSTEM_PROMPT, CODE_TASKS, HUMANEVAL, TINY_CODER, pass_at_1, read_tasks, to_code_dataset,
    verdicts_of
)
from grpo_workbook.sandbox.wire import encode

__all__ = [
    "CODE_SYSTEM_PROMPT", "CODE_TASKS", "HUMANEVAL", "OUTCOMES", "TINY_CODER",
    "CodeAttack", "Job", "Sandbox", "Verdict", "code_attacks", "code_format_reward", "encode",
    "fenced_code", "pass_at_1", "program_of", "read_tasks", "to_code_dataset", "unit_tests",
    "verdicts_of",
]
