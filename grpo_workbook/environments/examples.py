"""A tool and two environments, which the course's tiny model can play."""

import random
from typing import Any

from grpo_workbook.config import DATA
from grpo_workbook.environments.environment import Environment
from grpo_workbook.environments.tools import CallError, tool

TINY_TOOLS = DATA / "tiny-tools"
ITEMS = (
    "apple pear plum fig kiwi lemon melon grape onion leek bean carrot bread cake tea milk".split()
)


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two whole numbers.

    Args:
        a: The first number.
        b: The second number.

    Returns:
        The product.
    """
    return a * b


class GuessNumber(Environment):
    """Find a number from 1 to 7 by higher and lower in three guesses.

    Binary search finds each of the seven; a player who guesses at random within what is left, about
    two in three.
    """

    # 7 is 2 to the power of max_turns, minus 1: the most that so many guesses can tell apart.
    highest = 7
    max_turns = 3

    def _start(self, rng: random.Random, row: dict[str, Any]) -> str | None:
        self._secret = rng.randint(1, self.highest)
        self._found = False

    @tool
    def guess(self, number: int) -> str:
        """Guess the number.

        Args:
            number: Your guess.

        Returns:
            higher, lower or correct.
        """
        self._turn(number)
        if number == self._secret:
            self._found = True
            self._ended = True
            return "correct"
        return "higher" if number < self._secret else "lower"

    def get_reward(self) -> float:
        """1.0 if the number was found in time, else 0.0."""
        return 1.0 if self._found else 0.0


class PriceList(Environment):
    """A table of prices, sampled afresh for each row: they cannot be known by heart."""

    def _start(self, rng: random.Random, row: dict[str, Any]) -> str | None:
        # From 12, because the tiny model knows products of single digits by heart (see
        # data/build_tiny_tools.py), and shall call `multiply` here.
        self._prices = {item: rng.randint(12, 99) for item in ITEMS}

    @tool
    def lookup(self, item: str) -> int:
        """Look up a price.

        Args:
            item: The item.

        Returns:
            Its price.
        """
        self._turn(item)
        if item not in self._prices:
            raise CallError(f"no such item: {item}")
        return self._prices[item]
