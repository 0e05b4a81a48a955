"""Figures say in words what they show, and no line is told from another by its colour alone."""

import io
import warnings

from conftest import assert_names, raises_naming

from grpo_workbook import figures
from grpo_workbook.statistics import wilson_interval

LOG = [
    {"step": i, "reward": i / 10, "rewards/a_reward/mean": i / 20, "rewards/a_reward/std": 0.1}
    for i in range(1, 31)
]


def change(before, after):
    """A measure of 480 problems as `evaluation.report_heldout` gives it."""
    counts = [round(480 * rate) for rate in (before, after)]
    intervals = [wilson_interval([True] * count + [False] * (480 - count)) for count in counts]
    return {
        "before": before,
        "before_interval": intervals[0],
        "after": after,
        "after_interval": intervals[1],
    }


HELDOUT = {
    "sampled": {"n": 480, "strict": change(0.14, 0.92), "lenient": change(0.6, 0.93)},
    "greedy": {"n": 480, "strict": change(0.7, 0.97)},
}


def thick(figure):
    return [line for line in figure.axes[0].lines if line.get_linewidth() == 2]


def test_reward_curves_are_smoothed_lines_above_faint_steps():
    figure, words = figures.reward_curves(LOG)
    assert_names(words, "mean reward", "step", "total: 0.25 at 1, 2.85 at 30")
    assert_names(words, "a: 0.125 at 1, 1.42 at 30")
    labels = [t.get_text() for t in figure.legends[0].get_texts()]
    assert labels == ["total", "a"]
    assert len(figure.axes[0].lines) == 4
    with raises_naming(ValueError, "logging_steps"):
        figures.reward_curves([])


def test_every_reward_gets_a_line_of_its_own_look_from_where_it_joins():
    log = [
        {"step": i, "reward": 1.0} | {f"rewards/r{k}/mean": k / 10 for k in range(9 - (i == 1))}
        for i in (1, 2, 3)
    ]
    figure, words = figures.reward_curves(log)
    lines = thick(figure)
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(lines) == 10
    assert "r8: 0.8 at 2, 0.8 at 3" in words


def test_bars_say_before_and_after_with_their_intervals():
    figure, words = figures.before_after(HELDOUT)
    assert_names(words, "92.0% (89.3% to 94.2%) for strict, sampled", "97.0% (95.2% to 98.2%)")
    whiskers = [line for drawn in figure.axes[0].collections for line in drawn.get_segments()]
    assert len(whiskers) == 6, "one for each bar"
    heights = sorted(bar.get_height() for bar in figure.axes[0].patches)
    assert heights == sorted([0.14, 0.7, 0.6, 0.92, 0.97, 0.93])


def test_the_same_figure_is_the_same_file_with_its_words(tmp_path):
    from PIL import Image

    for name in ("a", "b"):
        figures.save(*figures.before_after(HELDOUT), tmp_path / name / "x.png")
    assert (tmp_path / "a" / "x.png").read_bytes() == (tmp_path / "b" / "x.png").read_bytes()
    words = (tmp_path / "a" / "x.txt").read_text().strip()
    assert words.startswith("Bar chart of accuracy")
    assert Image.open(tmp_path / "a" / "x.png").text["Description"] == words


def test_a_notebook_image_carries_its_words(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    figures.show(*figures.before_after(HELDOUT))
    found, _ = shown[0]._repr_mimebundle_()
    assert 'alt="Bar chart of accuracy, with 95 % intervals.' in found["text/html"]
    assert f'src="data:image/png;base64,{found["image/png"]}"' in found["text/html"]
    assert found["text/plain"].startswith("Bar chart of accuracy, with")


def test_a_line_chart_and_its_words():
    figure, words = figures.line_chart(
        {"a": ([1, 2, 4], [0.5, 0.25, 0.125]), "b": ([1, 4], [1, 3])},
        x="group size", y="rate", title="Title", finding="It falls.",
    )  # fmt: skip
    assert_names(words, "rate over group size", "It falls.")
    assert_names(words, "a: 0.5 at 1, 0.125 at 4", "b: 1 at 1, 3 at 4")
    looks = {(n.get_color(), n.get_linestyle(), n.get_marker()) for n in figure.axes[0].lines}
    assert len(looks) == 2


def test_bar_panels_and_their_words():
    panels = {"a": [0.75, 0.25, 0], "b": [1, 0, 0]}
    figure, words = figures.bar_panels(panels, ["x", "y", "z"], y="chance", title="T", finding="F.")
    assert_names(words, "chance", "F.")
    assert_names(words, "a: 0.75 for x, 0.25 for y, 0 for z", "b: 1 for x, 0 for y, 0 for z")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["a", "b"]
    assert [len(axes.lines[0].get_xdata()) for axes in figure.axes] == [1, 2]  # the crosses
    figure, _ = figures.bar_panels({str(i): [1] for i in range(6)}, ["x"], y="", title="")
    with warnings.catch_warnings(action="error"):  # without crosses the layout holds as well
        figure.savefig(io.BytesIO())
    assert [axes.get_visible() for axes in figure.axes] == [True] * 6 + [False] * 2
