"""Run model-written Python against tests, and reward what passes: `reward_funcs=[unit_tests()]`.

The dataset's columns are `test` and `entry_point`, named as in HumanEval, and optionally
`prompt_code`: code that the completion continues, with helpers that the test may use. (A plain
text `prompt` that ends inside a function works too.)

A test is Python in any of these shapes, and may import installed packages:

- `check(candidate)` as in HumanEval, HumanEval+ and LeetCode; assertions alone as in MBPP
- functions `test_...` and classes `Test...` of pytest, `unittest.TestCase` as in BigCodeBench
- `from solution import f` or `import solution` as in KodCode: then no `entry_point` is needed
- JSON or a dict with `inputs` and `outputs` as in APPS, CodeContests and LiveCodeBench: the program
  is run as a script for each input, and what it prints is compared; or, with `fn_name`, called

The entry point is a function, a class, or a method such as `Solution().twoSum`. `pool.py` says how
a test is judged, and what that is worth.
"""

from grpo_workbook.sandbox.pool import Job, Sandbox, Verdict
from grpo_workbook.sandbox.rewards import code_format_reward, unit_tests
from grpo_workbook.sandbox.tasks import (
    CODE_TASKS,
    HUMANEVAL,
    TINY_CODER,
    pass_at_1,
    read_tasks,
    to_code_dataset,
    verdicts_of,
)

__all__ = [
    "CODE_TASKS",
    "HUMANEVAL",
    "TINY_CODER",
    "Job",
    "Sandbox",
    "Verdict",
    "code_format_reward",
    "pass_at_1",
    "read_tasks",
    "to_code_dataset",
    "unit_tests",
    "verdicts_of",
]
