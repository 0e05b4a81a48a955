"""Several rewards as one: their mean, their minimum, their vote; and a weight that follows a success rate.

All take and give functions in TRL's contract. A member that answers None ("does not apply") is left out for that
completion; where none applies, the ensemble answers None too. Fewer than two members, and a member that breaks the
contract when it is called, are a WorkbookError.
"""

import math
from collections.abc import Callable, Sequence

from grpo_workbook.errors import WorkbookError
from grpo_workbook.rewards import RewardFunction, name_of, plain_values


def mean_of(*rewards: RewardFunction) -> RewardFunction:
    """The mean of the rewards that apply: good for several views of one thing, each a little wrong."""
    return _ensemble("mean", rewards, lambda values: sum(values) / len(values))


def minimum_of(*rewards: RewardFunction) -> RewardFunction:
    """The least of the rewards that apply: all must be satisfied, and cheating one of them gains nothing."""
    return _ensemble("minimum", rewards, min)


def vote_of(*rewards: RewardFunction) -> RewardFunction:
    """1.0 where more than half of the rewards that apply give more than 0.5, else 0.0. A tie is lost."""
    return _ensemble(
        "vote", rewards, lambda values: float(2 * sum(v > 0.5 for v in values) > len(values))
    )


def _ensemble(
    kind: str, rewards: Sequence[RewardFunction], join: Callable[[list[float]], float]
) -> RewardFunction:
    if len(rewards) < 2:
        raise WorkbookError(f"a {kind} of {len(rewards)} rewards: give at least 2")

    def ensemble_reward(completions, **columns):
        given = [
            (name_of(reward), reward(completions=completions, **columns)) for reward in rewards
        ]
        table = zip(
            *(plain_values(name, values, len(completions)) for name, values in given), strict=True
        )
        applying = [[v for v in values if v is not None] for values in table]
        return [join(values) if values else None for values in applying]

    ensemble_reward.members = rewards
    names = "_".join(name_of(reward).removesuffix("_reward") for reward in rewards)
    ensemble_reward.__name__ = f"{kind}_of_{names}_reward"
    ensemble_reward.__doc__ = f"The {kind} of {', '.join(name_of(reward) for reward in rewards)}."
    return ensemble_reward


class AdaptiveWeight:
    """A reward whose weight follows the success rate of another: format may pay less and less once it is mastered.

    Before each batch: weight = at_zero + (at_one - at_zero) * rate. The batch earns weight * reward. Then
    rate = memory * rate + (1 - memory) * (the share of the batch where `success` gives more than 0.5). It begins at 0.

    With at_zero=1, at_one=0.2 the reward fades as success grows; with at_zero=0, at_one=1 it grows with it. Both are
    between 0 and 1, so the range stays that of the reward. Deterministic, and each call is a batch: do not call it to
    look. Checkpoints keep its state (`state_dict`, `load_state_dict`; see resume.py), so training goes on exactly. In
    several processes each keeps the rate of its own batches. In TRL's log the weight of each step stands as
    rewards/NAME/weight.
    """

    def __init__(
        self,
        reward: RewardFunction,
        success: RewardFunction,
        *,
        at_zero: float = 1.0,
        at_one: float = 0.0,
        memory: float = 0.9,
    ):
        for name, value in (("at_zero", at_zero), ("at_one", at_one), ("memory", memory)):
            if not 0 <= value <= 1:
                raise WorkbookError(f"{name} is {value}: give 0 to 1")
        if memory == 1:
            raise WorkbookError("memory is 1, so the rate would never move: give less")
        self.reward, self.success = reward, success
        self.at_zero, self.at_one, self.memory = at_zero, at_one, memory
        self.rate, self.batches = 0.0, 0
        self.__name__ = f"adaptive_{name_of(reward)}"
        self.__doc__ = f"{name_of(reward)}, weighted by the success rate of {name_of(success)}."

    @property
    def weight(self) -> float:
        """The weight of the next batch."""
        return self.at_zero + (self.at_one - self.at_zero) * self.rate

    def __call__(self, completions, **columns) -> list[float | None]:
        weight = self.weight
        if columns.get("log_metric") is not None:
            columns["log_metric"](f"rewards/{self.__name__}/weight", weight)
        values, success = (
            plain_values(name_of(one), one(completions=completions, **columns), len(completions))
            for one in (self.reward, self.success)
        )
        judged = [v for v in success if v is not None]
        if judged:
            share = sum(v > 0.5 for v in judged) / len(judged)
            self.rate = self.memory * self.rate + (1 - self.memory) * share
            self.batches += 1
        return [None if v is None else weight * v for v in values]

    @property
    def members(self) -> tuple[RewardFunction, RewardFunction]:
        """The two rewards, which may have a state of their own."""
        return self.reward, self.success

    def state_dict(self) -> dict:
        """What a checkpoint keeps."""
        return {"rate": self.rate, "batches": self.batches}

    def load_state_dict(self, state: dict) -> None:
        """Go on from `state_dict()`. Raises WorkbookError when it is none."""
        rate, batches = state.get("rate"), state.get("batches")
        if not isinstance(rate, int | float) or not 0 <= rate <= 1 or not math.isfinite(rate):
            raise WorkbookError(
                f"the state of {self.__name__} has the rate {rate!r}: give what state_dict() gave"
            )
        if not isinstance(batches, int) or batches < 0:
            raise WorkbookError(
                f"the state of {self.__name__} has {batches!r} batches: give what state_dict() gave"
            )
        self.rate, self.batches = float(rate), batches
