"""The diagnosis during training, and the metrics for it that TRL does not log.

`watch` wraps reward functions, which see every completion, and logs what they see. HealthCallback
adds what the trainer knows, diagnoses the log every few steps, and reports what stands.
"""

import functools
import inspect
import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any

from tqdm import tqdm

from grpo_workbook.diagnosis.findings import ALARMS, CATALOGUE, SEVERE, Evidence, Finding
from grpo_workbook.diagnosis.panels import run_panels
from grpo_workbook.diagnosis.report import as_text, diagnose
from grpo_workbook.diagnosis.runlog import RunLog, read_run
from grpo_workbook.errors import WorkbookError
from grpo_workbook.figures import Picture
from grpo_workbook.files import write_json
from grpo_workbook.rewards.answers import thought_is_open
from grpo_workbook.rewards.contract import about, attach_info, name_of, text_of, with_opening
from grpo_workbook.training import Callback

SAMPLE = 4096  # values of each adapter matrix that are compared with the start
CHECKS = 3  # in a row that make a finding before it is reported: one window can be bad luck
# The same as a fraction of all checks so far: the longer a run is, the more often chance looks like
# a fault for a while. With a tenth, four times as many healthy runs had an alarm.
STANDING = 1 / 3


def watch(functions: Sequence[Callable], *, prompt_tag: str = "") -> list[Callable]:
    """The same reward functions with the same names; through TRL's log_metric they also log:

    completions/unique_fraction   different texts in a group / its size (1 / size: all are equal)
    completions/empty_fraction    the fraction of completions of white space alone
    rewards/invalid_fraction      the fraction of reward values that are not finite numbers
    thoughts/unclosed             the fraction that never close their <think>, if any has a thought

    tools/calling, tools/lost_results   the fractions that call a tool, that end in a call
    tools/result_frequency        results per completion: fewer than TRL's call_frequency if lost
    tools/out_of_turns            the fraction whose environment has a true `out_of_turns`

    TRL passes the completion alone. If the chat template ends each prompt in <think> or <reasoning>
    (`data.prompts.prefilled_tag` finds it), give that as `prompt_tag`: the functions then read each
    completion with the tag in front, and a thought without its end is known to be one.

    An exception passes through, with a note that names the function. Async functions read the tag,
    too, and log nothing. Reward models stay as they are: TRL gives them the prompt as well.
    """
    watched = []
    for function in functions:
        if isinstance(function, str) or hasattr(function, "named_parameters"):  # a reward model
            watched.append(function)
        elif is_async(function):
            watched.append(with_tag(function, prompt_tag))
        else:
            watched.append(Watched(function, prompt_tag))
    return watched


def is_async(function: Callable) -> bool:
    """Whether TRL awaits a reward: an async function, or an object with an async `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(function.__call__)


def with_tag(function: Callable, prompt_tag: str) -> Callable:
    """The same async reward, which reads each completion with the tag in front."""

    @functools.wraps(function)
    async def opened(completions: Any, **columns: Any) -> list:
        completions = [with_opening(completion, prompt_tag) for completion in completions]
        return await function(completions=completions, **columns)

    opened.__name__ = name_of(function)
    attach_info(opened, about(function))
    return opened


class Watched:
    """A reward function that logs what it sees, and remembers when it was called."""

    def __init__(self, function: Callable, prompt_tag: str):
        self.prompt_tag = prompt_tag
        self.__wrapped__ = function  # a checkpoint finds the function's state here
        self.__name__ = name_of(function)
        self.__doc__ = function.__doc__
        self.called_at: float | None = None  # time.perf_counter() of the last call
        attach_info(self, about(function))

    def __call__(self, prompts: Any = None, completions: Any = None, **columns: Any) -> list:
        self.called_at = time.perf_counter()
        opened = completions
        if self.prompt_tag:
            opened = [with_opening(completion, self.prompt_tag) for completion in completions]
        try:
            rewards = self.__wrapped__(prompts=prompts, completions=opened, **columns)
        except Exception as error:
            error.add_note(f"raised by the reward function {self.__name__}")
            raise
        log = columns.get("log_metric")
        if log is None:
            return rewards
        applied = invalid = 0
        for reward in rewards:
            if reward is None:  # the function does not apply to this completion
                continue
            applied += 1
            if not math.isfinite(reward):
                invalid += 1
        log("rewards/invalid_fraction", invalid / max(1, applied))
        metrics = {
            **text_metrics(prompts, completions),
            **thought_metrics(opened),
            **call_metrics(completions),
        }
        if "tools/calling" in metrics:
            environments = columns.get("environments") or ()
            late = sum(getattr(game, "out_of_turns", False) for game in environments)
            metrics["tools/out_of_turns"] = late / len(completions)
        for name, value in metrics.items():
            log(name, value)
        return rewards


def text_metrics(prompts: Sequence, completions: Sequence) -> dict[str, float]:
    """What `watch` logs of a batch's texts, by group (equal prompts)."""
    groups: dict[str, list[str]] = {}
    empty = 0
    for prompt, completion in zip(prompts, completions, strict=True):
        # texts that call are compared with their calls, and none of them is empty
        text = str(completion) if calls_a_tool(completion) else text_of(completion)
        # a chat is a list, which cannot be a key
        groups.setdefault(repr(prompt), []).append(text.strip())
        if not text.strip():
            empty += 1
    unique = [len(set(texts)) / len(texts) for texts in groups.values()]
    return {
        "completions/unique_fraction": mean(unique),
        "completions/empty_fraction": empty / len(completions),
    }


def thought_metrics(completions: Sequence) -> dict[str, float]:
    """What `watch` logs of a batch's thoughts, nothing if there is none.

    The completions have the tag in front that their prompt has opened. A closing tag alone is none.
    """
    texts = [text_of(completion) for completion in completions]
    if not any("<think>" in text for text in texts):
        return {}
    # Of all completions, because one without a thought has none that is open.
    unclosed = sum(thought_is_open(text) for text in texts)
    return {"thoughts/unclosed": unclosed / len(texts)}


def call_metrics(completions: Sequence) -> dict[str, float]:
    """What `watch` logs of a batch's calls of tools, nothing if there is none."""
    calling = lost = results = 0
    for completion in completions:
        if not calls_a_tool(completion):
            continue
        calling += 1
        if completion[-1].get("tool_calls"):
            lost += 1
        for message in completion:
            if message["role"] == "tool":
                results += 1
    if not calling:
        return {}
    return {
        "tools/calling": calling / len(completions),
        "tools/lost_results": lost / len(completions),
        "tools/result_frequency": results / len(completions),
    }


def calls_a_tool(completion: str | list[dict]) -> bool:
    """Whether one of the completion's messages calls a tool."""
    if isinstance(completion, str):
        return False
    return any(message.get("tool_calls") for message in completion)


class HealthCallback(Callback):
    """Diagnoses the log every few steps, reports alarms once they stand, can stop the run.

        trainer.add_callback(HealthCallback())  # any GRPOTrainer; rewards in `watch` tell it more

    A severe finding or a warning is reported at the third check in a row that makes it, or after a
    third of all checks if that is more; a broken number at once.

    watched: the rewards as `watch` returns them, for the time that sampling takes.
    stop_on: names of findings that stop the training (WorkbookError for an unknown one).
    every: the steps between two checks, of some 15 ms each.
    panels: redraw the run's six panels in a notebook at each check.
    say: prints a report; the default works beside a tqdm bar.
    alert: sends title, text and level ("ERROR" or "WARN") on: `lambda *a: wandb.alert(*a)` (it is
    another function once training has begun), or `lambda title, text, level: trackio.alert(title,
    text, trackio.AlertLevel[level])`.

    `findings` holds the reported ones in order. Each log entry also gets:

    adapter/change            the adapters' distance from their start, relative to their norm
    memory/fraction           peak GPU memory / all of it; on a CPU this process's / the machine's
    time/generation_fraction  the part of a step before its rewards (`watched`) run
    """

    def __init__(
        self,
        watched: Sequence[Callable] = (),
        *,
        stop_on: Collection[str] = (),
        every: int = 5,
        panels: bool = False,
        say: Callable[[str], None] | None = None,
        alert: Callable[[str, str, str], object] | None = None,
    ):
        for name in stop_on:
            if name not in CATALOGUE:
                names = ", ".join(CATALOGUE)
                raise WorkbookError(f"stop_on: unknown finding {name}: choose from {names}")
        self.watched = watched
        self.stop_on = stop_on
        self.every = every
        self.panels = panels
        self.say = say or tqdm.write
        self.alert = alert
        self.findings: list[Finding] = []
        self._checked = 0  # the step of the last check
        self._checks: list[list[str]] = []  # the alarms of each check
        self._start: Any = None  # the adapters' values before the first step
        self._drawn = False

    def state_dict(self) -> dict:
        """For a checkpoint: the adapters' start, and the findings reported so far."""
        return {
            "start": self._start,
            "checked": self._checked,
            "checks": self._checks,
            "findings": [asdict(finding) for finding in self.findings],
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue from a `state_dict()`."""
        self._start = state["start"]
        self._checked = state["checked"]
        self._checks = state["checks"]
        self.findings = []
        for fields in state["findings"]:
            evidence = [Evidence(**row) for row in fields["evidence"]]
            self.findings.append(Finding(**{**fields, "evidence": tuple(evidence)}))

    def on_train_begin(self, args, state, control, model, **kwargs):
        # with beta > 0 TRL keeps a copy of the adapters as its reference, which does not move
        self._trained = [weight for weight in model.parameters() if weight.requires_grad]
        if state.global_step == 0 or self._start is None:  # else it comes from a checkpoint
            self._start = some_values(self._trained)

    def on_step_begin(self, args, state, control, **kwargs):
        self._step_began = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        self._step_ended = time.perf_counter()

    def on_log(self, args, state, control, logs, **kwargs):
        if "reward" not in logs:
            return
        # `logs` is not the entry of the history, from which files and checkpoints are written
        self._add_metrics(state.log_history[-1])
        if state.global_step - self._checked < self.every:
            return
        self._checked = state.global_step
        # without planned steps a level reward is never called flat while the run goes on
        settings = {**vars(args), "max_steps": getattr(state, "max_steps", 0) or math.inf}
        run = read_run(state.log_history, self.watched, settings)
        findings = self.look(run)  # in each process: all of them must stop
        if state.is_world_process_zero:
            for finding in findings:
                self._report(finding, state.global_step)
        for finding in findings:
            if finding.name in self.stop_on:
                step = state.global_step
                self.say(f"  Stopping after step {step}: {finding.name} is in stop_on.")
                control.should_training_stop = True
        if self.panels:
            self._draw(run, f"step {state.global_step}")

    def look(self, run: RunLog) -> list[Finding]:
        """Check the log of the run so far; the alarms that stand now and were not reported yet."""
        alarms = [finding for finding in diagnose(run, live=True) if finding.severity in ALARMS]
        self._checks.append([finding.name for finding in alarms])
        known = {finding.name for finding in self.findings}
        new = []
        for finding in alarms:
            if finding.name not in known and self._stands(finding.name):
                new.append(finding)
        self.findings += new
        return new

    def _stands(self, name: str) -> bool:
        """Whether an alarm was made often enough in a row, or needs no second check."""
        if CATALOGUE[name].at_once:
            return True
        count = int(max(CHECKS, len(self._checks) * STANDING))
        recent = self._checks[-count:]
        return len(recent) == count and all(name in names for names in recent)

    def _add_metrics(self, entry: dict) -> None:
        """Add this callback's metrics to an entry of the log."""
        moved = float((some_values(self._trained) - self._start).norm())
        # adapters that start at 0 have no norm: then the distance itself
        entry["adapter/change"] = moved / (float(self._start.norm()) or 1.0)
        entry["memory/fraction"] = memory_fraction()
        if self.watched and isinstance(self.watched[0], Watched):
            # TRL calls the first reward when the completions of a step are sampled
            called = self.watched[0].called_at
            # one generation may serve several steps: then it was called in an earlier one
            if called is not None and called > self._step_began:
                seconds = self._step_ended - self._step_began
                entry["time/generation_fraction"] = (called - self._step_began) / seconds

    def _report(self, finding: Finding, step: int) -> None:
        self.say(as_text([finding]))
        if self.alert is not None:
            level = "ERROR" if finding.severity == SEVERE else "WARN"
            self.alert(f"{finding.name} at step {step}", f"{finding.means} {finding.do}", level)

    def _draw(self, run: RunLog, title: str) -> None:
        """Show the panels, each time in the place of the last ones."""
        from IPython.display import display

        picture = Picture(*run_panels(run, self.findings, title))
        display(picture, display_id=f"panels {id(self)}", update=self._drawn)
        self._drawn = True


def some_values(weights: Sequence[Any]) -> Any:
    """The first values of each of these tensors, in one."""
    import torch

    return torch.cat([weight.detach().flatten()[:SAMPLE].float().cpu() for weight in weights])


def memory_fraction() -> float:
    """The peak of the GPU's memory by all of it; on a CPU this process's by the machine's."""
    import psutil
    import torch

    if torch.cuda.is_available():
        return torch.cuda.max_memory_reserved() / torch.cuda.get_device_properties(0).total_memory
    return psutil.Process().memory_info().rss / psutil.virtual_memory().total


@contextmanager
def log_the_end(trainer: Any, path: Path) -> Iterator[None]:
    """If an exception ends training, write the log to `path` with an entry about it, and re-raise.

    If nothing was logged, as in a refused run, an existing log stays.
    """
    try:
        yield
    except Exception as error:
        history = trainer.state.log_history
        end = {
            "step": trainer.state.global_step + 1,
            "error": f"{type(error).__name__}: {error}",
            "where": "; ".join(getattr(error, "__notes__", [])),
        }
        if history or not path.exists():
            write_json(path, [*history, end])
        raise
