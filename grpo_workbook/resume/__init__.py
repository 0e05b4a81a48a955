"""Stop a run anywhere and resume it exactly: on a CPU it ends in the same adapter, bit for bit.

It works with any GRPOTrainer of TRL:

    from grpo_workbook.resume import keep_exact, train

    keep_exact(trainer)           # from now on all its checkpoints can be resumed exactly
    train(trainer, resume=True)   # from the newest complete checkpoint; Ctrl-C saves and ends
"""

from grpo_workbook.resume.checkpoints import last_checkpoint
from grpo_workbook.resume.exact import Trained, keep_exact, train

__all__ = ["Trained", "keep_exact", "last_checkpoint", "train"]
