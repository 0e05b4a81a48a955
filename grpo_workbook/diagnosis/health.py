"""The diagnosis while training runs: HealthCallback says what it finds once, and can stop the run."""

from collections.abc import Callable, Collection, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from grpo_workbook.diagnosis.findings import CATALOGUE, SEVERE, WARNING, Evidence, Finding
from grpo_workbook.diagnosis.monitor import as_text, diagnose
from grpo_workbook.diagnosis.runlog import read_run
from grpo_workbook.diagnosis.vitals import Vitals, check_every
from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import write_json
from grpo_workbook.training import Callback


class HealthCallback(Vitals):
    """Diagnoses the log every few steps, prints each severe finding or warning once, and stops on those in `stop_on`.

        trainer = GRPOTrainer(..., reward_funcs=(watched := watch(functions)))
        trainer.add_callback(HealthCallback(watched, stop_on={"collapsed", "nan"}))

    `found` holds the findings said so far, in the order in which they showed. `every`: steps between two diagnoses,
    each of which takes some 15 ms. `say` prints; by default beside a tqdm bar. `memory_limit`: see Vitals. Raises
    WorkbookError for a name in `stop_on` that no finding has, and for `every` under 1.
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
        unknown = sorted(set(stop_on) - set(CATALOGUE))
        if unknown:
            raise WorkbookError(
                f"stop_on: no finding is called {', '.join(unknown)}: choose from {', '.join(CATALOGUE)}"
            )
        check_every(every)
        self.stop_on, self.every, self.say = frozenset(stop_on), every, say or _beside_a_bar
        self.found: list[Finding] = []

    def state_dict(self) -> dict:
        """For a checkpoint: what was said so far is not said again."""
        return super().state_dict() | {"found": [asdict(f) for f in self.found]}

    def load_state_dict(self, state: dict) -> None:
        """Go on from `state_dict()`."""
        super().load_state_dict(state)
        self.found = [
            Finding(**f | {"evidence": tuple(Evidence(**e) for e in f["evidence"])})
            for f in state["found"]
        ]

    def on_log(self, args, state, control, logs=None, **kwargs):
        super().on_log(args, state, control, logs=logs, **kwargs)
        if "reward" in (logs or {}) and state.global_step % self.every == 0:
            self._look(args, state, control)

    def _look(self, args, state, control):
        run = read_run({"log_history": state.log_history, "settings": settings_of(args)})
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
    """Draws the run's six panels in a notebook, and draws them again in the same place every `every` steps.

    Raises WorkbookError for `every` under 1.
    """

    def __init__(self, every: int = 10):
        check_every(every)
        self.every, self._shown = every, None

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "reward" not in (logs or {}) or state.global_step % self.every:
            return
        from grpo_workbook.diagnosis.panels import run_panels
        from grpo_workbook.figures import as_html

        run = read_run({"log_history": state.log_history, "settings": settings_of(args)})
        picture = as_html(*run_panels(run, diagnose(run), f"step {state.global_step}"))
        if self._shown is None:
            from IPython.display import display

            self._shown = display(picture, display_id=True)
        else:
            self._shown.update(picture)


@contextmanager
def log_the_end(trainer, path: Path):
    """When training ends with an exception, write the log to `path` with an entry that says so, and raise it on.

    A log that is there already stays when no step was begun: one has been refused to go on from what it tells of.
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


def settings_of(args) -> dict:
    """What the diagnosis asks of a GRPOConfig; a name that it lacks is left out."""
    names = (
        "num_generations",
        "beta",
        "learning_rate",
        "max_completion_length",
        "temperature",
        "loss_type",
        "max_steps",
    )
    known = {
        name: getattr(args, name)
        for name in (*names, "reward_weights")
        if getattr(args, name, None) is not None
    }
    return known


def _beside_a_bar(text: str) -> None:
    from tqdm import tqdm

    tqdm.write(text)
