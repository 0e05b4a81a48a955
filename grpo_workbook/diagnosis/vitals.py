"""What TRL does not log and a diagnosis needs: how different the completions are, whether the adapters
move, memory, and where a step's time goes.

    functions = watch(functions)              # the same rewards; they also count what they see
    trainer.add_callback(Vitals(functions))   # or HealthCallback, which is one

Everything ends up in TRL's own log, step by step.
"""

import inspect
import math
import time
from collections.abc import Callable, Sequence
from functools import update_wrapper

from grpo_workbook.diagnosis.runlog import unique_fraction
from grpo_workbook.rewards import text_of
from grpo_workbook.training import Callback

SAMPLE = 4096  # values of each adapter matrix that are compared with where they began


def watch(functions: Sequence[Callable]) -> list[Callable]:
    """The same reward functions, under their names; through TRL's log_metric the first also logs:

    completions/unique_share   different texts in a group, of its size (1 / size: all are the same)
    completions/empty_share    the fraction of completions of nothing but white space
    rewards/invalid_share      the fraction of values that are not finite numbers (of every function)

    An exception passes through, with a note that names the function. Reward models and async
    functions stay as they are.
    """
    watched = []
    for function in functions:
        if _is_plain(function):
            first = not any(isinstance(f, _Watched) for f in watched)
            function = _Watched(function, first)
        watched.append(function)
    return watched


def _is_plain(function: Callable) -> bool:
    """Whether it has a name and waits for nothing: a function, or an object like AdaptiveWeight."""
    calls = function, getattr(type(function), "__call__", None)  # noqa: B004
    return hasattr(function, "__name__") and not any(map(inspect.iscoroutinefunction, calls))


class _Watched:
    """A reward that counts what it sees. All else (its role, its state) is that of the function."""

    def __init__(self, function: Callable, first: bool):
        update_wrapper(self, function, updated=())
        self.first, self.called_at = first, None

    def __getattr__(self, name: str):
        if name == "__wrapped__":
            raise AttributeError(name)  # while it is copied
        return getattr(self.__wrapped__, name)

    def __call__(self, prompts=None, completions=None, **columns):
        log = columns.get("log_metric")
        self.called_at = time.perf_counter()
        try:
            values = self.__wrapped__(prompts=prompts, completions=completions, **columns)
        except Exception as error:
            error.add_note(f"raised by the reward function {self.__name__}")
            raise
        if log is not None:
            given = [v for v in values if v is not None]
            bad = sum(not math.isfinite(v) for v in given)
            log("rewards/invalid_share", bad / len(given) if given else 0.0)
            if self.first:
                texts = [text_of(c).strip() for c in completions]
                log("completions/unique_share", unique_fraction(prompts, texts))
                log("completions/empty_share", sum(not t for t in texts) / len(texts))
        return values


class Vitals(Callback):
    """Adds to each entry of the log: adapter/change, memory/share, time/generation_share.

    adapter/change is the distance of the adapters from where they began, relative to their norm
    then. memory/share is the most GPU memory held, of what there is; on a CPU this process's memory,
    of the machine's, or of `memory_limit` (bytes). time/generation_share is the part of a step before
    its rewards are asked for, which is sampling completions; it needs `watched`, the functions that
    `watch` gave.
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
        self._generating = None
        if called is not None and called > self._begun:  # several steps may share one generation
            self._generating = (called - self._begun) / (time.perf_counter() - self._begun)

    @staticmethod
    def _sample(parameter):
        return parameter.detach().flatten()[:SAMPLE].float().cpu().clone()

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "reward" not in (logs or {}) or not state.log_history:
            return
        pairs = zip(self._parameters, self._start, strict=True)
        moved = sum(float(((self._sample(p) - s) ** 2).sum()) for p, s in pairs)
        more = {
            "adapter/change": math.sqrt(moved) / self._norm,
            "memory/share": memory_used(self.memory_limit),
        }
        if self._generating is not None:
            more["time/generation_share"] = self._generating
        state.log_history[-1].update(more)


def memory_used(limit: float | None = None) -> float:
    """The most GPU memory reserved so far, or on a CPU this process's, as a fraction of the whole.

    `limit` (bytes) sets another whole.
    """
    import psutil
    import torch

    if torch.cuda.is_available():
        whole = limit or torch.cuda.get_device_properties(0).total_memory
        return torch.cuda.max_memory_reserved() / whole
    return psutil.Process().memory_info().rss / (limit or psutil.virtual_memory().total)
