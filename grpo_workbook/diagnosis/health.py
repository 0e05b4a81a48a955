"""The diagnosis while training runs: HealthCallback says what it finds once, and can stop the run."""

from collections.abc import Callable, Collection, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from grpo_workbook.diagnosis.findings import CATALOGUE, SEVERE, WARNING, Evidence, Finding
from grpo_workbook.diagnosis.monitor import as_text, diagnose
from grpo_workbook.diagnosis.runlog import RunLog, read_run, roles_of
from grpo_workbook.diagnosis.vitals import Vitals
from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import write_json
from grpo_workbook.training import Callback

# What the diagnosis asks of a GRPOConfig.
SETTINGS = "num_generations beta learning_rate max_completion_length reward_weights".split()


class _Pace:
    """Says when to look: at the first log that is at least `every` steps after the last look."""

    def __init__(self, every: int):
        if every < 1:  # it would end training at its first step
            raise WorkbookError(f"every is {every}: give the steps between two looks, at least 1")
        self.every, self.last = every, 0

    def due(self, step: int) -> bool:
        """Whether to look now; if so, the next look is counted from this step."""
        if due := step - self.last >= self.every:
            self.last = step
        return due


class HealthCallback(Vitals):
    """Diagnoses the log every few steps, says each severe finding or warning once, can stop the run.

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
        super().__init__(watched, memory_limit)
        if unknown := sorted(set(stop_on) - set(CATALOGUE)):
            raise WorkbookError(
                f"stop_on: no finding is called {', '.join(unknown)}: choose from "
                f"{', '.join(CATALOGUE)}"
            )
        self.stop_on, self.say, self._pace = frozenset(stop_on), say or _beside_a_bar, _Pace(every)
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
        if "reward" not in (logs or {}) or not self._pace.due(state.global_step):
            return
        run = _read(args, state, self.watched)
        known = {f.name for f in self.found}
        for finding in diagnose(run):
            if finding.severity in (SEVERE, WARNING) and finding.name not in known:
                self.found.append(finding)
                self.say(as_text([finding], run))
                if finding.name in self.stop_on:
                    self.say(
                        f"  Stopping after step {state.global_step}: {finding.name} is in stop_on."
                    )
                    control.should_training_stop = True


class LivePanels(Callback):
    """Draws the run's six panels in a notebook, and again in the same place every `every` steps."""

    def __init__(self, every: int = 10):
        self._pace, self._shown = _Pace(every), None

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "reward" not in (logs or {}) or not self._pace.due(state.global_step):
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
    if functions:
        settings["reward_roles"] = roles_of(functions)
    return read_run({"log_history": state.log_history, "settings": settings})


@contextmanager
def log_the_end(trainer, path: Path):
    """When training ends with an exception, write the log to `path` with an entry that says so.

    The exception goes on. A log that is there already stays when no step was begun: one has been
    refused to go on from what it tells of.
    """

    class Begun(Callback):
        step = False

        def on_step_begin(self, args, state, control, **kwargs):
            self.step = True

    trainer.add_callback(begun := Begun())
    try:
        yield
    except Exception as error:
        if path.exists() and not begun.step:
            raise
        ended = {"step": trainer.state.global_step + 1, "error": f"{type(error).__name__}: {error}"}
        ended["where"] = "; ".join(getattr(error, "__notes__", []))
        with suppress(WorkbookError):  # on a full disk too, what ended the run is what is told
            write_json(path, [*trainer.state.log_history, ended])
        raise
    finally:
        trainer.remove_callback(begun)


def _beside_a_bar(text: str) -> None:
    from tqdm import tqdm

    tqdm.write(text)
