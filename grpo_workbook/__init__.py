"""GRPO Workbook: helpers for GRPO with Unsloth and TRL, each imported when first used (PEP 562).

More are in grpo_workbook.sandbox, environments, diagnosis, resume, planning.
"""

import importlib

TYPE_CHECKING = False  # as for a type checker `typing` has it, which takes time to load
if TYPE_CHECKING:
    from typing import Any
__version__ = "0.2.0"

# Module -> its public names. The modules are public too: `from grpo_workbook import grpo`.
_API = {
    "errors": "WorkbookError",
    "config": "Profile PROFILES choose_profile",
    "data": "load_problems chat_prompt to_dataset render drop_long_prompts split "
    "leaked_rows drop_leaked",
    "rewards.answers": "extract_answer is_correct parse_number",
    "rewards": "get_answer_reward correctness_reward strict_format_reward "
    "incremental_format_reward reward parse_rewards",
    "grpo": "group_advantages combine_rewards kl_estimate policy_ratio grpo_loss",
    "grpo_trainer": "ScratchTrainer",
    "training": "load_policy sample_unpacked HeldoutProbe RewardBar Float32Adapters "
    "pass_rates curriculum AdaptiveWeight",
    "run_config": "RunConfig make_trainer",
    "models": "load_model",
    "evaluation": "generate evaluate compare score measure report_heldout",
    "statistics": "wilson_interval bootstrap_interval paired_p_value pass_at_k majority_at_k "
    "paired_gain paired_items",
    "export": "save_adapter merge compare_logits",
    "notebook": "show quiet use_one_thread",
}
_MODULES = {*_API, "figures", "files"}
_HOME = {name: module for module, names in _API.items() for name in names.split()}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> "Any":
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
