"""The diagnosis while training runs, and what it needs that TRL does not log.

    functions = watch(functions)                       # the same rewards, which count what they see
    trainer.add_callback(HealthCallback(functions))    # says what is wrong, once; can stop the run

Everything ends up in TRL's own log, step by step.
"""

import inspect
import math
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import update_wrapper
from pathlib import Path

from grpo_workbook.diagnosis.findings import (
    CATALOGUE,
    SEVERE,
    WARNING,
    Evidence,
    Finding,
    as_text,
)  # fmt: skip
from grpo_workbook.diagnosis.rules import diagnose
from grpo_workbook.diagnosis.runlog import RunLog, read_run, unique_fraction
from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import write_json
from grpo_workbook.rewards import text_of
from grpo_workbook.training import Callback

SAMPLE = 4096  # values of each adapter matrix that are compared with where they began
# What the diagnosis asks of a GRPOConfig.
SETTINGS = "num_generations beta learning_rate max_completion_length reward_weights".split()


def watch(functions: Sequence[Callable]) -> list[Callable]:
    """The same reward functions, under their names; through TRL's log_metric the first also logs:

    completions/unique_share   different texts in a group, of its size (1 / size: all are the same)
    completions/empty_share    the fraction of completions of nothing but white space
    rewards/invalid_share      the fraction of values that are no finite numbers, of every function

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
    """Whether it has a name and is not async: a function, or an object like AdaptiveWeight."""
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
    then. memory/share is the most GPU memory held, of what there is; on a CPU this process's, of
    the machine's. `memory_limit` (bytes) is another whole. time/generation_share is the part of a
    step before its rewards are asked for, which is sampling completions; it needs `watched`, the
    functions that `watch` gave.
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
            self._start = [_sample(p) for p in self._parameters]
        self._norm = math.sqrt(sum(float((s * s).sum()) for s in self._start)) or 1.0
        self._begun = self._generating = None

    def on_step_begin(self, args, state, control, **kwargs):
        self._begun = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        called = getattr(self.watched[0], "called_at", None) if self.watched else None
        self._generating = None
        if called is not None and called > self._begun:  # several steps may share one generation
            self._generating = (called - self._begun) / (time.perf_counter() - self._begun)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "reward" not in (logs or {}) or not state.log_history:
            return
        pairs = zip(self._parameters, self._start, strict=True)
        moved = math.sqrt(sum(float(((_sample(p) - s) ** 2).sum()) for p, s in pairs))
        entry = state.log_history[-1]
        entry["adapter/change"] = moved / self._norm
        entry["memory/share"] = _memory_used(self.memory_limit)
        if self._generating is not None:
            entry["time/generation_share"] = self._generating


def _sample(parameter):
    return parameter.detach().flatten()[:SAMPLE].float().cpu().clone()


def _memory_used(limit: float | None = None) -> float:
    import psutil
    import torch

    if torch.cuda.is_available():
        whole = limit or torch.cuda.get_device_properties(0).total_memory
        return torch.cuda.max_memory_reserved() / whole
    return psutil.Process().memory_info().rss / (limit or psutil.virtual_memory().total)


class _Pace:
    """Says when to look: at the first log that is at least `every` steps after the last look."""

    def __init__(self, every: int):
        if every < 1:  # it would end training at its first step
            raise WorkbookError(f"every is {every}: give the steps between two looks, at least 1")
        self.every, self.last = every, 0

    def due(self, step: int, logs: dict | None) -> bool:
        """Whether to look now; if so, the next look is counted from this step."""
        if due := "reward" in (logs or {}) and step - self.last >= self.every:
            self.last = step
        return due


class HealthCallback(Vitals):
    """Diagnoses the log every few steps, says each severe finding or warning once, can stop it.

        watched = watch(functions)
        trainer = GRPOTrainer(..., reward_funcs=watched)
        trainer.add_callback(HealthCallback(watched, stop_on={"collapsed", "nan"}))

    `found` holds the findings said so far, in the order in which they showed. `every`: a look, of
    some 15 ms, at the first log that is at least as many steps after the last one. `say` prints; by
    default beside a tqdm bar. `memory_limit`: see Vitals. Raises WorkbookError for a name in
    `stop_on` that no finding has, and for `every` under 1.
    """

    def __init__(
        self,
        watched: Sequence[Callable] = (),
        *,
        stop_on: Collection[str] = (),
        every: int = 5,
        say: Callable[[str], None] | None = None,
        memory_limit: float | None = None,
    ):
        from tqdm import tqdm

        super().__init__(watched, memory_limit)
        if unknown := sorted(set(stop_on) - set(CATALOGUE)):
            words = f"no finding is called {', '.join(unknown)}: choose from {', '.join(CATALOGUE)}"
            raise WorkbookError(f"stop_on: {words}")
        self.stop_on, self.say, self._pace = frozenset(stop_on), say or tqdm.write, _Pace(every)
        self.found: list[Finding] = []

    def state_dict(self) -> dict:
        """For a checkpoint: what was said so far is not said again."""
        said = [asdict(f) for f in self.found]
        return super().state_dict() | {"found": said, "looked": self._pace.last}

    def load_state_dict(self, state: dict) -> None:
        """Go on from `state_dict()`."""
        super().load_state_dict(state)
        self._pace.last, self.found = state["looked"], []
        for told in state["found"]:
            evidence = tuple(Evidence(**e) for e in told["evidence"])
            self.found.append(Finding(**told | {"evidence": evidence}))

    def on_log(self, args, state, control, logs=None, **kwargs):
        super().on_log(args, state, control, logs=logs, **kwargs)
        if not self._pace.due(state.global_step, logs):
            return
        run = _read(args, state, self.watched)
        known = {f.name for f in self.found}
        for finding in diagnose(run):
            if finding.severity not in (SEVERE, WARNING) or finding.name in known:
                continue
            self.found.append(finding)
            self.say(as_text([finding], run))
            if finding.name in self.stop_on:
                step = state.global_step
                self.say(f"  Stopping after step {step}: {finding.name} is in stop_on.")
                control.should_training_stop = True


class LivePanels(Callback):
    """Draws the run's six panels in a notebook, and again in the same place every `every` steps."""

    def __init__(self, every: int = 10):
        self._pace, self._shown = _Pace(every), None

    def on_log(self, args, state, control, logs=None, **kwargs):
        if not self._pace.due(state.global_step, logs):
            return
        from grpo_workbook.diagnosis.panels import run_panels
        from grpo_workbook.figures import as_html

        run = _read(args, state)
        picture = as_html(*run_panels(run, diagnose(run), f"step {state.global_step}"))
        if self._shown is None:
            from IPython.display import display

            self._shown = display(picture, display_id=True)
        else:
            self._shown.update(picture)


def _read(args, state, functions: Sequence[Callable] = ()) -> RunLog:
    settings = {name: getattr(args, name, None) for name in SETTINGS}
    settings = {name: value for name, value in settings.items() if value is not None}
    return read_run({"log_history": state.log_history, "settings": settings}, functions)


@contextmanager
def log_the_end(trainer, path: Path):
    """When training ends with an exception, write the log to `path` with an entry that says so.

    The exception goes on. A log that is there already stays when nothing was logged since: one has
    been refused to go on from what it tells of.
    """
    try:
        yield
    except Exception as error:
        if path.exists() and not trainer.state.log_history:
            raise
        ended = {"step": trainer.state.global_step + 1, "error": f"{type(error).__name__}: {error}"}
        ended["where"] = "; ".join(getattr(error, "__notes__", []))
        with suppress(WorkbookError):  # on a full disk too, what ended the run is what is told
            write_json(path, [*trainer.state.log_history, ended])
        raise
