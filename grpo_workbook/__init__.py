"""GRPO Workbook: helpers for GRPO with Unsloth and TRL.

The names below are the ones that most scripts need; each is loaded when it is first used (PEP 562).
Every module is public too: `from grpo_workbook.statistics import majority_at_k`. Larger subjects
have rooms of their own: rewards, sandbox, diagnosis, environments, resume, planning.
"""

import importlib
from pathlib import Path

TYPE_CHECKING = False  # as type checkers and editors read it; `typing` would take time to load
if TYPE_CHECKING:
    from typing import Any

    from grpo_workbook.config import PROFILES as PROFILES
    from grpo_workbook.config import choose_profile as choose_profile
    from grpo_workbook.data import chat_prompt as chat_prompt
    from grpo_workbook.data import drop_leaked as drop_leaked
    from grpo_workbook.data import drop_long_prompts as drop_long_prompts
    from grpo_workbook.data import leaked_rows as leaked_rows
    from grpo_workbook.data import load_problems as load_problems
    from grpo_workbook.data import render as render
    from grpo_workbook.data import split as split
    from grpo_workbook.data import to_dataset as to_dataset
    from grpo_workbook.errors import WorkbookError as WorkbookError
    from grpo_workbook.evaluation import compare as compare
    from grpo_workbook.evaluation import evaluate as evaluate
    from grpo_workbook.evaluation import generate as generate
    from grpo_workbook.evaluation import score as score
    from grpo_workbook.export import merge as merge
    from grpo_workbook.export import save_adapter as save_adapter
    from grpo_workbook.grpo import group_advantages as group_advantages
    from grpo_workbook.grpo import grpo_loss as grpo_loss
    from grpo_workbook.grpo_trainer import ScratchTrainer as ScratchTrainer
    from grpo_workbook.models import load_model as load_model
    from grpo_workbook.notebook import quiet as quiet
    from grpo_workbook.notebook import show as show
    from grpo_workbook.notebook import use_one_thread as use_one_thread
    from grpo_workbook.rewards import correctness_reward as correctness_reward
    from grpo_workbook.rewards import get_answer_reward as get_answer_reward
    from grpo_workbook.rewards import incremental_format_reward as incremental_format_reward
    from grpo_workbook.rewards import parse_rewards as parse_rewards
    from grpo_workbook.rewards import reward as reward
    from grpo_workbook.rewards import strict_format_reward as strict_format_reward
    from grpo_workbook.rewards.answers import is_correct as is_correct
    from grpo_workbook.statistics import bootstrap_interval as bootstrap_interval
    from grpo_workbook.statistics import paired_p_value as paired_p_value
    from grpo_workbook.statistics import pass_at_k as pass_at_k
    from grpo_workbook.statistics import wilson_interval as wilson_interval
    from grpo_workbook.training import Float32Adapters as Float32Adapters
    from grpo_workbook.training import HeldoutProbe as HeldoutProbe
    from grpo_workbook.training import RewardBar as RewardBar
    from grpo_workbook.training import load_policy as load_policy
    from grpo_workbook.training import sample_unpacked as sample_unpacked

__version__ = "0.3.0"


def _modules_of_names() -> dict[str, str]:
    """Public name -> the module that has it, read from the imports above.

    So each name is listed once, for editors and type checkers as for Python.
    """
    modules = {}
    for line in Path(__file__).read_text(encoding="utf-8").splitlines():
        words = line.split()
        if line.startswith("    from grpo_workbook."):
            modules[words[-1]] = words[1]
    return modules


_MODULES = _modules_of_names()
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> "Any":
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    try:
        return importlib.import_module(f"{__name__}.{name}")  # grpo_workbook.figures
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{name}":
            raise  # a library that the module needs is not installed
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
