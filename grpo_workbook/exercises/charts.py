"""Charts of three coloured bars, drawn by code: what data/tiny-vision reads, and chapter 15 shows.

`make_charts` draws charts by chance, `picture` paints one on white or grey paper, and `rows` writes
them as TRL takes them. A hash of its bars says whether a chart is held out. No picture is stored.
`reading_rates` and `list_reward` judge the bars that an answer lists before it adds them.
"""

import random
import re
import zlib
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageDraw

from grpo_workbook.config import SYSTEM_PROMPT

QUESTION = "How much are the bars together?"
COLOURS = {
    "red": (214, 39, 40),
    "blue": (31, 119, 180),
    "green": (44, 160, 44),
    "orange": (255, 127, 14),
    "purple": (148, 80, 200),
    "black": (30, 30, 30),
}
PAPERS = {"white": (255, 255, 255), "grey": (180, 180, 180)}
SIDE = 32  # pixels of a picture, in both directions
BARS = 3
TALLEST = 9  # units of height
UNIT = 3  # pixels of one unit of height
HELDOUT_SHARE = 10  # one chart in so many is held out


@dataclass(frozen=True)
class Chart:
    """Bars from the left, each with its colour and its height from 1 to 9."""

    bars: tuple[tuple[str, int], ...]

    @property
    def answer(self) -> int:
        """The sum of the heights."""
        return sum(height for _, height in self.bars)

    @property
    def description(self) -> str:
        """The first line of a right answer: red 7, green 2, blue 4."""
        return ", ".join(f"{colour} {height}" for colour, height in self.bars)

    @property
    def right_answer(self) -> str:
        """The bars, two additions and the sum, in the asked form."""
        first, second, third = (height for _, height in self.bars)
        pair = first + second
        one_addition = f"{first}+{second}={pair}"
        other_addition = f"{pair}+{third}={self.answer}"
        lines = [self.description, one_addition, other_addition]
        working = "\n".join(lines)
        return f"<reasoning>\n{working}\n</reasoning>\n<answer>{self.answer}</answer>"

    @property
    def is_heldout(self) -> bool:
        """Whether the chart is kept for measuring: it is then never trained on."""
        return zlib.crc32(repr(self.bars).encode()) % HELDOUT_SHARE == 0


def draw_chart(rng: random.Random) -> Chart:
    """One chart of three different colours."""
    bars = []
    for colour in rng.sample(list(COLOURS), BARS):
        height = rng.randint(1, TALLEST)
        bars.append((colour, height))
    return Chart(tuple(bars))


def make_charts(count: int, *, seed: int, heldout: bool) -> list[Chart]:
    """So many different charts, all held out or none.

    Args:
        count: the number of charts; about 8,700 are held out, 78,700 are not.
        seed: the same seed gives the same charts.
        heldout: which of the two sets they come from.
    """
    rng = random.Random(seed)
    charts: dict[Chart, None] = {}  # in order, each once
    while len(charts) < count:
        chart = draw_chart(rng)
        if chart.is_heldout == heldout:
            charts[chart] = None
    return list(charts)


def picture(chart: Chart | None, paper: str = "white") -> Image.Image:
    """The chart as an RGB picture of 32 x 32 pixels.

    Args:
        chart: its bars stand from the left; with None the picture has the axis and no bar.
        paper: a name in PAPERS.

    Raises:
        ValueError: if there is no such paper.
    """
    if paper not in PAPERS:
        raise ValueError(f"there is no paper {paper!r}: take one of {', '.join(PAPERS)}")
    image = Image.new("RGB", (SIDE, SIDE), PAPERS[paper])
    pen = ImageDraw.Draw(image)
    pen.line((2, 3, 2, SIDE - 1), fill=(0, 0, 0))
    for y in range(SIDE - 1 - UNIT, UNIT, -UNIT):  # a tick for each unit
        pen.line((0, y, 2, y), fill=(0, 0, 0))
    if chart is None:
        return image
    for place, (colour, height) in enumerate(chart.bars):
        left = 6 + 9 * place
        top = SIDE - 1 - UNIT * height
        pen.rectangle((left, top, left + 6, SIDE - 1), fill=COLOURS[colour])
    return image


def rows(charts: list[Chart], paper: str = "white") -> list[dict[str, Any]]:
    """The charts as TRL takes them: `prompt` (a conversation), `image`, `answer`, and `bars`.

    Args:
        charts: one row is made of each.
        paper: a name in PAPERS.

    Returns:
        `answer` is the sum and `bars` the list of the bars, both as texts for reward functions.
    """
    prompt = [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": QUESTION},
    ]
    made = []
    for chart in charts:
        image = picture(chart, paper)
        answer = str(chart.answer)
        row = {"prompt": prompt, "image": image, "answer": answer, "bars": chart.description}
        made.append(row)
    return made


def listed_bars(completion: str) -> list[tuple[str, int]]:
    """The bars that the first line of a completion's reasoning lists: (colour, height) each."""
    reasoning = completion.partition("<reasoning>")[2].strip()
    first_line = reasoning.partition("\n")[0]
    bars = []
    for colour, height in re.findall(r"([a-z]+) (\d+)", first_line):
        bars.append((colour, int(height)))
    return bars


def reading_rates(charts: list[Chart], completions: list[str]) -> dict[str, float]:
    """How well completions list the bars, place by place.

    Args:
        charts: what was shown.
        completions: the answer to each of them.

    Returns:
        The fractions of the bars whose "colours" and whose "heights" are right, and "lists", the
        fraction of the charts whose three bars are right in both.
    """
    colours = heights = lists = 0
    for chart, completion in zip(charts, completions, strict=True):
        listed = listed_bars(completion)
        lists += tuple(listed) == chart.bars
        for bar, named in zip(chart.bars, listed, strict=False):  # a list may be too short
            colours += named[0] == bar[0]
            heights += named[1] == bar[1]
    bars = BARS * len(charts)
    rates = {}
    rates["colours"] = colours / bars
    rates["heights"] = heights / bars
    rates["lists"] = lists / len(charts)
    return rates


def list_reward(completions: list[list[dict]], bars: list[str], **columns: Any) -> list[float]:
    """A reward for TRL: 1 if the completion lists all bars rightly, else 0.

    Args:
        completions: a list with one message each, as TRL passes them.
        bars: the column of `rows`.
        columns: the other columns, which are not used.
    """
    rewards = []
    for completion, description in zip(completions, bars, strict=True):
        text = completion[0]["content"]
        right = listed_bars(f"<reasoning>{description}")
        rewards.append(float(listed_bars(text) == right))
    return rewards
