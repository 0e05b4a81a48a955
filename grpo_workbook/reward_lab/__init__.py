"""Test rewards before training: a table of scores, attacks, symbolic answers.

functions, weights = parse_rewards("correctness:2,strict_format:0.5")
score(functions, completions, rows, group_size=8, weights=weights).show()
"""

from grpo_workbook.reward_lab.attacks import attacks, honest
from grpo_workbook.reward_lab.score import score
from grpo_workbook.reward_lab.symbolic import SymbolicChecker, symbolic_correctness

__all__ = ["SymbolicChecker", "attacks", "honest", "score", "symbolic_correctness"]
