"""Reward functions in TRL's contract, and what tests them before training."""

from grpo_workbook.rewards.builtin import (
    correctness_reward,
    get_answer_reward,
    get_overlong_reward,
    incremental_format_reward,
    strict_format_reward,
)
from grpo_workbook.rewards.contract import call, reward, text_of
from grpo_workbook.rewards.lab import attacks, honest, score_rewards
from grpo_workbook.rewards.specs import parse_rewards

__all__ = [
    "attacks",
    "call",
    "correctness_reward",
    "get_answer_reward",
    "get_overlong_reward",
    "honest",
    "incremental_format_reward",
    "parse_rewards",
    "reward",
    "score_rewards",
    "strict_format_reward",
    "text_of",
]
