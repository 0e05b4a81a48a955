"""The base class of environments: episodes with a secret and a limit of turns.

TRL makes one environment for each completion of a batch, calls `reset(**row)`, offers every public
method to the model as a tool, and uses the instances again in the next batch: so nothing of one
row may be left when the next one starts, and no helper may be public.
"""

import functools
import inspect
import random
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from grpo_workbook.environments.tools import CallError
from grpo_workbook.errors import WorkbookError


class Environment:
    """An episode: a secret that the row's `seed` gives, a limit of turns, a transcript.

    Write a subclass with `_start(rng, row)`, which makes the secret of the row and may return a
    text for the user's message, and with public methods under `@tool`, which call `_turn` first.
    `get_reward`, if there is one, is the reward: 0.0 to 1.0. It is None where a tool failed by its
    own fault: TRL then leaves the completion out.
    """

    max_turns = 8

    def __init_subclass__(cls) -> None:
        # Only where this class defines it: an inherited one has been wrapped already.
        if "get_reward" in vars(cls):
            cls.get_reward = _none_if_broken(vars(cls)["get_reward"])

    def reset(self, **row: Any) -> str | None:
        """Start the episode of a row; called by TRL, and not a tool."""
        if "seed" not in row:
            raise WorkbookError(f"an environment needs a column seed; the data has {sorted(row)}")
        vars(self).clear()  # of the row before
        for name, value in inspect.getmembers(type(self)):
            if isinstance(value, list | dict | set):  # or all episodes would share the class's
                setattr(self, name, deepcopy(value))
        self._turns = 0
        self._ended = False
        self._transcript: list[tuple] = []
        self._broken = False
        # All completions of a group share the row, and so the secret.
        # A text as seed gives the same numbers in every process, and the class's name other numbers
        # than another environment has in the same row.
        rng = random.Random(f"{type(self).__name__} {row['seed']}")
        return self._start(rng, row)

    def _start(self, rng: random.Random, row: dict[str, Any]) -> str | None:
        raise NotImplementedError

    @property  # no method, which would be a tool
    def out_of_turns(self) -> bool:
        """Whether the last turn is over, and the episode has not ended by itself."""
        return self._turns >= self.max_turns and not self._ended

    def _turn(self, *action: Any) -> None:
        """Count a turn. Raises CallError after the last one, and when the episode has ended."""
        if self._ended:
            raise CallError("the game is over")
        if self._turns >= self.max_turns:
            raise CallError(f"no turn is left: there were {self.max_turns}")
        self._turns += 1
        self._transcript.append(action)


def _none_if_broken(get_reward: Callable) -> Callable:
    # `_broken` is set by a tool that has failed by its own fault (see tools.py).
    @functools.wraps(get_reward)
    def checked(self: Environment) -> float | None:
        if self._broken:
            return None
        return get_reward(self)

    return checked
