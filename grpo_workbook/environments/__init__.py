"""Tools and environments for TRL's GRPOTrainer: checked calls, episodes with a secret, a replay."""

from grpo_workbook.config import DATA
from grpo_workbook.environments.attacks import attacks
from grpo_workbook.environments.environment import Environment, GuessNumber, PriceList
from grpo_workbook.environments.replay import (
    Episode,
    answer_after_tools,
    final_answer,
    lost_result,
    replay,
    tool_broke,
    tool_results,
    tool_suffix,
    tools_of,
)
from grpo_workbook.environments.tools import CallError, ToolBroken, multiply, tool

TINY_TOOLS, TOOL_TASKS = DATA / "tiny-tools", DATA / "tool_tasks"
__all__ = [
    "TINY_TOOLS",
    "TOOL_TASKS",
    "CallError",
    "Environment",
    "Episode",
    "GuessNumber",
    "PriceList",
    "ToolBroken",
    "answer_after_tools",
    "attacks",
    "final_answer",
    "lost_result",
    "multiply",
    "replay",
    "tool",
    "tool_broke",
    "tool_results",
    "tool_suffix",
    "tools_of",
]
