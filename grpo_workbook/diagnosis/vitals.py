"""What TRL does not log and a diagnosis needs: how different the completions are, whether the adapters move, memory,
where a step's time goes, and how the policy does on held-out problems.

    functions = watch(functions)                      # the same rewards; they also count what they see
    trainer.add_callback(Vitals())
    trainer.add_callback(HeldoutProbe(model, tokenizer, heldout_set, max_new_tokens=64))

Everything ends up in TRL's own log, step by step. No class here derives from TrainerCallback: Transformers would
have to be imported first, and Unsloth must come before it.
"""

import inspect
import math
import time
from collections.abc import Callable, Sequence
from functools import wraps

from grpo_workbook.diagnosis.runlog import unique_share
from grpo_workbook.errors import WorkbookError
from grpo_workbook.rewards import text_of
from grpo_workbook.training import Callback

SAMPLE = 4096  # values of each adapter matrix that are compared with where they began


def watch(functions: Sequence[Callable]) -> list[Callable]:
    """The same reward functions, under their names; through TRL's log_metric the first also logs, per step:

    completions/unique_share   different texts in a group, as a share of its size (1 / size: all are the same)
    completions/empty_share    completions of nothing but white space
    rewards/invalid_share      values that are not finite numbers (of every function; None is no value)

    An exception passes through, with a note that names the function. Reward models and async functions stay as they
    are.
    """
    plain = [inspect.isfunction(f) and not inspect.iscoroutinefunction(f) for f in functions]
    first = plain.index(True) if True in plain else -1
    return [_watched(f, i == first) if plain[i] else f for i, f in enumerate(functions)]


def _watched(function: Callable, first: bool) -> Callable:
    @wraps(function)
    def watched(prompts=None, completions=None, **columns):
        log = columns.get("log_metric")
        watched.called_at = time.perf_counter()
        try:
            values = function(prompts=prompts, completions=completions, **columns)
        except Exception as error:
            error.add_note(f"raised by the reward function {function.__name__}")
            raise
        if log is not None:
            given = [v for v in values if v is not None]
            bad = sum(not math.isfinite(v) for v in given)
            log("rewards/invalid_share", bad / len(given) if given else 0.0)
            if first:
                texts = [text_of(c).strip() for c in completions]
                log("completions/unique_share", unique_share(prompts, texts))
                log("completions/empty_share", sum(not t for t in texts) / len(texts))
        return values

    watched.called_at = None
    return watched


class Vitals(Callback):
    """Adds to each entry of the log: adapter/change, memory/share, time/generation_share.

    adapter/change is the distance of the adapters from where they began, relative to their norm then. memory/share is
    the most GPU memory held, of what there is; on a CPU this process's memory, of the machine's. `memory_limit` (bytes)
    sets another whole, for a share of a machine. time/generation_share is the part of a step before its rewards are
    asked for, which is drawing completions; it needs `watched`, the functions that `watch` gave.
    """

    def __init__(self, watched: Sequence[Callable] = (), memory_limit: float | None = None):
        self.watched, self.memory_limit = watched, memory_limit
        self._start = None

    def state_dict(self) -> dict:
        """For a checkpoint: where the adapters began."""
        return {"start": self._start}

    def load_state_dict(self, state: dict) -> None:
        """Go on from `state_dict()`."""
        self._start = state["start"]

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        # with beta > 0 TRL keeps a copy of the adapters as its reference, which stands still
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        if state.global_step == 0 or self._start is None:  # else a checkpoint has brought it
            self._start = [self._sample(p) for p in self._parameters]
        self._norm = math.sqrt(sum(float((s * s).sum()) for s in self._start)) or 1.0
        self._begun = self._generating = None

    def on_step_begin(self, args, state, control, **kwargs):
        self._begun = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        called = getattr(self.watched[0], "called_at", None) if self.watched else None
        drawn = (
            called is not None and called > self._begun
        )  # several steps may share one generation
        self._generating = (
            (called - self._begun) / (time.perf_counter() - self._begun) if drawn else None
        )

    @staticmethod
    def _sample(parameter):
        return parameter.detach().flatten()[:SAMPLE].float().cpu().clone()

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "reward" not in (logs or {}) or not state.log_history:
            return
        moved = sum(
            float(((self._sample(p) - s) ** 2).sum())
            for p, s in zip(self._parameters, self._start, strict=True)
        )
        more = {
            "adapter/change": math.sqrt(moved) / self._norm,
            "memory/share": memory_share(self.memory_limit),
        }
        if self._generating is not None:
            more["time/generation_share"] = self._generating
        state.log_history[-1].update(more)


def memory_share(limit: float | None = None) -> float:
    """The most GPU memory reserved so far, or on a CPU this process's memory, as a share of the whole (or `limit`
    bytes).
    """
    import psutil
    import torch

    if torch.cuda.is_available():
        return torch.cuda.max_memory_reserved() / (
            limit or torch.cuda.get_device_properties(0).total_memory
        )
    return psutil.Process().memory_info().rss / (limit or psutil.virtual_memory().total)


def check_every(every: int) -> None:
    """Raise WorkbookError for no number of steps, which would end training at its first."""
    if every < 1:
        raise WorkbookError(
            f"every is {every}: give the steps from one look to the next, at least 1"
        )
