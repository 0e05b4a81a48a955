"""The diagnosis during training, and the metrics for it that TRL does not log."""

import inspect
import math
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import wraps
from pathlib import Path

import pandas as pd
from tqdm import tqdm

from grpo_workbook.diagnosis.findings import ALARMS, CATALOGUE, SEVERE, Evidence, Finding, as_text
from grpo_workbook.diagnosis.panels import run_panels
from grpo_workbook.diagnosis.rules import diagnose
from grpo_workbook.diagnosis.runlog import RunLog, read_run
from grpo_workbook.errors import WorkbookError
from grpo_workbook.figures import Picture
from grpo_workbook.files import write_json
from grpo_workbook.rewards.contract import about, describe, text_of
from grpo_workbook.training import Callback

SAMPLE = 4096  # values of each adapter matrix that are compared with the start
LOOKS = 3  # checks in a row that make a finding before it is shown: one window can be bad luck


def watch(functions: Sequence[Callable]) -> list[Callable]:
    """The same reward functions with the same names; through TRL's log_metric they also log:

    completions/unique_fraction   different texts in a group / its size (1 / size: all are equal)
    completions/empty_fraction    the fraction of completions of white space alone
    rewards/invalid_fraction      the fraction of reward values that are not finite numbers

    tools/calling, tools/lost_results   the fractions that call a tool, that end in a call
    tools/result_frequency        results per completion: fewer than TRL's call_frequency if lost
    tools/out_of_turns            the fraction whose environment has a true `out_of_turns`

    An exception passes through, with a note that names the function. Reward models and async
    functions stay as they are.
    """
    return list(map(_watched, functions))


def _watched(function: Callable) -> Callable:
    calls = function, getattr(type(function), "__call__", None)  # noqa: B004
    if not hasattr(function, "__name__") or any(map(inspect.iscoroutinefunction, calls)):
        return function

    @wraps(function, ("__name__", "__doc__"), updated=())
    def reward(prompts=None, completions=None, **columns):
        reward.called_at = time.perf_counter()
        try:
            values = function(prompts=prompts, completions=completions, **columns)
        except Exception as error:
            error.add_note(f"raised by the reward function {reward.__name__}")
            raise
        if log := columns.get("log_metric"):
            bad = [not math.isfinite(v) for v in values if v is not None]
            log("rewards/invalid_fraction", sum(bad) / max(1, len(bad)))
            for name, value in _counted(prompts, completions, columns.get("environments")).items():
                log(name, value)
        return values

    describe(reward, about(function))
    reward.called_at = None
    return reward


def _calls(completion) -> bool:
    return not isinstance(completion, str) and any(m.get("tool_calls") for m in completion)


def _counted(prompts: Sequence, completions: Sequence, environments) -> dict[str, float]:
    """What `watch` logs of a batch's texts, by group (equal prompts), and of its calls if any."""
    texts = pd.Series([str(c) if _calls(c) else text_of(c) for c in completions]).str.strip()
    groups = texts.groupby(list(map(repr, prompts)))
    counts = {
        "completions/unique_fraction": float((groups.nunique() / groups.size()).mean()),
        "completions/empty_fraction": float((texts == "").mean()),
    }
    if calling := [c for c in completions if _calls(c)]:
        acts = {
            "calling": len(calling),
            "lost_results": sum(bool(talk[-1].get("tool_calls")) for talk in calling),
            "result_frequency": sum(m["role"] == "tool" for talk in calling for m in talk),
            "out_of_turns": sum(getattr(e, "out_of_turns", False) for e in environments or ()),
        }
        counts |= {f"tools/{name}": n / len(completions) for name, n in acts.items()}
    return counts


class HealthCallback(Callback):
    """Diagnoses the log every few steps, reports alarms once they stand, can stop the run.

        trainer.add_callback(HealthCallback())  # any GRPOTrainer; rewards in `watch` tell it more

    A severe finding or a warning is reported at the third check in a row that makes it, or after a
    tenth of all checks if that is more; a broken number at once. `found` holds the reported ones in
    order. `every`: the steps between two checks, of some 15 ms each. `panels`: redraw the run's six
    panels in a notebook at each check. `say` prints; the default works beside a tqdm bar. `alert`
    sends title, text and level ("ERROR" or "WARN") on: `lambda *a: wandb.alert(*a)` (it is another
    function once training has begun), or `lambda title, text, level: trackio.alert(title, text,
    trackio.AlertLevel[level])`. WorkbookError for an unknown `stop_on`. Each log entry also gets:

    adapter/change            the adapters' distance from their start, relative to their norm
    memory/fraction           peak GPU memory / all of it; on a CPU this process's / the machine's
    time/generation_fraction  the part of a step before its rewards (`watched`, from `watch`) run
    """

    def __init__(
        self, watched: Sequence[Callable] = (), *, stop_on: Collection[str] = (), every: int = 5,
        panels: bool = False, say: Callable[[str], None] | None = None,
        alert: Callable[[str, str, str], object] | None = None,
    ):  # fmt: skip
        if unknown := sorted(set(stop_on) - set(CATALOGUE)):
            said = f"stop_on: unknown finding {', '.join(unknown)}"
            raise WorkbookError(f"{said}: choose from {', '.join(CATALOGUE)}")
        self.watched, self.stop_on, self.say = watched, frozenset(stop_on), say or tqdm.write
        self.alert, self.every, self.looked, self.found = alert, every, 0, []
        self.panels, self._drawn, self._start, self._looks = panels, False, None, []

    def state_dict(self) -> dict:
        """For a checkpoint: the adapters' start, and the findings reported so far."""
        state = {"start": self._start, "looks": self._looks, "looked": self.looked}
        return state | {"found": [asdict(f) for f in self.found]}

    def load_state_dict(self, state: dict) -> None:
        """Continue from a `state_dict()`."""
        self._start, self.looked, self._looks = state["start"], state["looked"], state["looks"]
        told = [(f, tuple(Evidence(**e) for e in f["evidence"])) for f in state["found"]]
        self.found = [Finding(**f | {"evidence": seen}) for f, seen in told]

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        # with beta > 0 TRL keeps a copy of the adapters as its reference, which does not move
        self._trained = [p for p in model.parameters() if p.requires_grad]
        if state.global_step == 0 or self._start is None:  # else it comes from a checkpoint
            self._start = _sample(self._trained)

    def on_step_begin(self, args, state, control, **kwargs):
        self._begun = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        self._ended = time.perf_counter()

    def on_log(self, args, state, control, logs, **kwargs):
        if "reward" not in logs:
            return
        moved = float((_sample(self._trained) - self._start).norm())
        moved /= float(self._start.norm()) or 1.0  # adapters that start at 0 have no norm
        entry, step = state.log_history[-1], state.global_step
        entry |= {"adapter/change": moved, "memory/fraction": _memory_used()}
        called = getattr(self.watched[0], "called_at", None) if self.watched else None
        if called is not None and called > self._begun:  # one generation may serve several steps
            entry["time/generation_fraction"] = (called - self._begun) / (self._ended - self._begun)
        if step - self.looked < self.every:
            return
        settings = vars(args) | {"max_steps": getattr(state, "max_steps", 0) or math.inf}
        self.looked, run = step, read_run(state.log_history, self.watched, settings)
        new = self.look(run)
        for finding in new if state.is_world_process_zero else ():  # each process looks
            self.say(as_text([finding]))
            if self.alert:
                level = "ERROR" if finding.severity == SEVERE else "WARN"
                self.alert(f"{finding.name} at step {step}", f"{finding.means} {finding.do}", level)
        if stop := ", ".join(f.name for f in new if f.name in self.stop_on):
            self.say(f"  Stopping after step {step}: {stop} is in stop_on.")
            control.should_training_stop = True
        if self.panels:
            from IPython.display import display

            picture = Picture(*run_panels(run, self.found, f"step {step}"))
            display(picture, display_id=f"panels {id(self)}", update=self._drawn)
            self._drawn = True

    def look(self, run: RunLog) -> list[Finding]:
        """Check the log of the run so far; the alarms that stand now and were not reported yet."""
        made = [f for f in diagnose(run, live=True) if f.severity in ALARMS]
        self._looks.append([f.name for f in made])
        last = self._looks[-int(max(LOOKS, len(self._looks) / 10)) :]
        standing = set.intersection(*map(set, last)) if len(last) >= LOOKS else set()
        known = {f.name for f in self.found}
        ready = [f for f in made if f.name in standing or CATALOGUE[f.name].at_once]
        self.found += (new := [f for f in ready if f.name not in known])
        return new


def _sample(parameters):
    import torch

    return torch.cat([p.detach().flatten()[:SAMPLE].float().cpu() for p in parameters])


def _memory_used() -> float:
    import psutil
    import torch

    if torch.cuda.is_available():
        return torch.cuda.max_memory_reserved() / torch.cuda.get_device_properties(0).total_memory
    return psutil.Process().memory_info().rss / psutil.virtual_memory().total


@contextmanager
def log_the_end(trainer, path: Path):
    """If an exception ends training, write the log to `path` with an entry about it, and re-raise.

    If nothing was logged, as in a refused run, an existing log stays.
    """
    try:
        yield
    except Exception as error:
        history, where = trainer.state.log_history, "; ".join(getattr(error, "__notes__", []))
        ended = {"step": trainer.state.global_step + 1, "error": f"{type(error).__name__}: {error}"}
        if history or not path.exists():
            with suppress(WorkbookError):  # a full disk must not hide the first exception
                write_json(path, [*history, ended | {"where": where}])
        raise
