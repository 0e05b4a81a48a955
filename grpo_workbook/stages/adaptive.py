"""A reward whose weight follows the success rate of another one."""

from statistics import fmean

from grpo_workbook.errors import WorkbookError
from grpo_workbook.rewards import checked, name_of
from grpo_workbook.rewards import reward as marked


class AdaptiveWeight:
    """A reward whose weight follows the success rate of another one: form can fade once mastered.

    A batch earns weight * reward, with weight = at_zero + (at_one - at_zero) * rate. After it,
    rate = memory * rate + (1 - memory) * (fraction of the batch with `success` over 0.5), starting
    from 0. Each process keeps the rate of its own batches.
    """

    def __init__(self, reward, success, *, at_zero=1.0, at_one=0.0, memory=0.9):
        if not (0 <= at_zero <= 1 and 0 <= at_one <= 1 and 0 <= memory < 1):
            raise WorkbookError(f"{at_zero=}, {at_one=}, {memory=}: give 0 to 1, memory below 1")
        self.at_zero, self.at_one, self.memory, self.rate = at_zero, at_one, memory, 0.0
        # Members may have a state of their own; the columns and the kind of answers are both's.
        self.__name__, self.members = f"adaptive_{name_of(reward)}", (reward, success)
        columns = dict.fromkeys(c for m in self.members for c in getattr(m, "columns", ()))
        answers = getattr(reward, "answers", None) or getattr(success, "answers", None)
        marked(getattr(reward, "role", None), tuple(columns), answers)(self)

    @property
    def weight(self) -> float:
        """The weight of the next batch."""
        return self.at_zero + (self.at_one - self.at_zero) * self.rate

    def __call__(self, completions, **columns) -> list[float | None]:
        weight = self.weight
        if "log_metric" in columns:
            columns["log_metric"](f"rewards/{self.__name__}/weight", weight)
        values, success = [checked(m, completions, **columns) for m in self.members]
        if given := [v > 0.5 for v in success if v is not None]:
            self.rate = self.memory * self.rate + (1 - self.memory) * fmean(given)
        return [None if v is None else weight * v for v in values]

    def state_dict(self) -> dict:
        """The state for a checkpoint."""
        return {"rate": self.rate}

    def load_state_dict(self, state: dict) -> None:
        """Continue from a `state_dict()`."""
        self.rate = float(state["rate"])
