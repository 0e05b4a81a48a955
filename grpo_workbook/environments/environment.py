"""The base of an environment, and the two of the course: a game of several turns, and a lookup.

TRL makes one instance for each completion of a batch, calls `reset(**row)`, offers every public
method to the model as a tool, and uses the instances again in the next batch: so nothing of one
row may be left when the next one starts, and no helper may be public.
"""

import random
import sqlite3
from copy import deepcopy
from functools import wraps

from grpo_workbook.environments.tools import CallError, tool
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
        if own := vars(cls).get("get_reward"):
            cls.get_reward = wraps(own)(lambda self: None if self._broken else own(self))

    def reset(self, **row) -> str | None:
        """Start the episode of a row; called by TRL, and not a tool."""
        if "seed" not in row:
            raise WorkbookError(f"an environment needs a column seed; the data has {sorted(row)}")
        for name in list(vars(self)):
            delattr(self, name)  # of the row before
        for cls in reversed(type(self).__mro__):  # whose lists all episodes would share
            mutable = {n: v for n, v in vars(cls).items() if isinstance(v, list | dict | set)}
            vars(self).update(deepcopy(mutable))
        self._turns, self._ended, self._transcript, self._broken = 0, False, [], False
        return self._start(random.Random(f"{type(self).__name__} {row['seed']}"), row)

    def _start(self, rng: random.Random, row: dict) -> str | None:
        raise NotImplementedError

    @property  # no method, which would be a tool
    def out_of_turns(self) -> bool:
        """Whether the last turn is over, and the episode has not ended by itself."""
        return self._turns >= self.max_turns and not self._ended

    def _turn(self, *what) -> None:
        """Count a turn. Raises CallError after the last one, and when the episode has ended."""
        if self._ended:
            raise CallError("the game is over")
        if self._turns >= self.max_turns:
            raise CallError(f"no turn is left: there were {self.max_turns}")
        self._turns += 1
        self._transcript.append(what)


class GuessNumber(Environment):
    """Find a number from 1 to 7 by higher and lower in three guesses.

    Binary search finds each of the seven; a player who guesses at random within what is left, about
    two in three.
    """

    highest, max_turns = 7, 3

    def _start(self, rng: random.Random, row: dict) -> None:
        self._secret, self._found = rng.randint(1, self.highest), False

    @tool
    def guess(self, number: int) -> str:
        """Guess the number.

        Args:
            number: Your guess.

        Returns:
            higher, lower or correct.
        """
        self._turn(number)
        self._found = self._ended = number == self._secret
        return "correct" if self._found else "higher" if number < self._secret else "lower"

    def get_reward(self) -> float:
        """1.0 if the number was found in time, else 0.0."""
        return float(self._found)


ITEMS = (
    "apple pear plum fig kiwi lemon melon grape onion leek bean carrot bread cake tea milk".split()
)


class PriceList(Environment):
    """A table of prices, sampled afresh for each row: they cannot be known by heart."""

    def _start(self, rng: random.Random, row: dict) -> None:
        self._prices = sqlite3.connect(":memory:")
        self._prices.execute("create table prices (item text primary key, price int)")
        rows = [(item, rng.randint(12, 99)) for item in ITEMS]
        self._prices.executemany("insert into prices values (?, ?)", rows)

    @tool
    def lookup(self, item: str) -> int:
        """Look up a price.

        Args:
            item: The item.

        Returns:
            Its price.
        """
        self._turn(item)
        found = self._prices.execute("select price from prices where item = ?", (item,)).fetchone()
        if found is None:
            raise CallError(f"no such item: {item}")
        return found[0]
