"""Tools and environments for TRL's GRPOTrainer, and episodes played without training.

`tools` checks the calls of a model, `environment` has the base class of episodes with a secret,
`examples` what the course trains on, `transcripts` reads and rewards what happened, and `playing`
lets a model act as TRL's trainer does.
"""

from grpo_workbook.environments.environment import Environment
from grpo_workbook.environments.examples import (
    TINY_TOOLS,
    GuessNumber,
    PriceList,
    multiply,
)
from grpo_workbook.environments.playing import play_episodes
from grpo_workbook.environments.tools import CallError, tool
from grpo_workbook.environments.transcripts import (
    attacks,
    final_answer,
    get_tool_answer_reward,
    lost_result,
)

__all__ = [
    "TINY_TOOLS",
    "CallError",
    "Environment",
    "GuessNumber",
    "PriceList",
    "attacks",
    "final_answer",
    "get_tool_answer_reward",
    "lost_result",
    "multiply",
    "play_episodes",
    "tool",
]
