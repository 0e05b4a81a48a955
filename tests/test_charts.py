"""Charts say in words what they show, and refuse what they cannot show."""

import pytest

from grpo_workbook.charts import bar_chart, bar_panels, line_chart


def test_a_line_chart_and_its_words():
    figure, words = line_chart(
        {"a": ([1, 2, 4], [0.5, 0.25, 0.125]), "b": ([1, 4], [1, 3])},
        x="group size", y="share", title="Title", finding="It falls.", log_x=True,
    )  # fmt: skip
    assert words == (
        "Line chart of share over group size. It falls. a: 0.5 at 1, 0.125 at 4; b: 1 at 1, 3 at 4."
    )
    (axes,) = figure.axes
    assert axes.get_title() == "Title"
    assert [line.get_ydata().tolist() for line in axes.lines] == [[0.5, 0.25, 0.125], [1, 3]]
    assert (
        len({(line.get_color(), line.get_linestyle(), line.get_marker()) for line in axes.lines})
        == 2
    )
    assert [t.get_text() for t in axes.get_xticklabels()] == ["1", "2", "4"]


def test_a_bar_chart_and_its_words():
    figure, words = bar_chart(
        {"short": [1, 2], "long": [3, 0.123456]}, ["x", "y"], y="norm", title="Title"
    )
    assert words == "Bar chart of norm. short: 1 for x, 2 for y; long: 3 for x, 0.123 for y."
    (axes,) = figure.axes
    assert [bar.get_height() for bar in axes.patches] == [1, 2, 3, 0.123456]
    assert {t.get_text() for t in axes.texts} == {"1", "2", "3", "0.123"}


def test_what_cannot_be_shown_is_refused():
    with pytest.raises(ValueError, match="'a' has 2 x values and 1 y"):
        line_chart({"a": ([1, 2], [1])}, x="", y="", title="")
    with pytest.raises(ValueError, match="'a' has 1 values for 2 labels"):
        bar_chart({"a": [1]}, ["x", "y"], y="", title="")
    for series in ({}, {str(i): ([1], [1]) for i in range(6)}):
        with pytest.raises(ValueError, match="shows 1 to 5"):
            line_chart(series, x="", y="", title="")


def test_bar_panels_and_their_words():
    figure, words = bar_panels(
        {"a": [0.75, 0.25, 0], "b": [1, 0, 0]},
        ["x", "y", "z"],
        y="chance",
        title="Title",
        finding="It cuts.",
    )
    assert (
        words
        == "2 small bar charts of chance. It cuts. a: 0.75 for x, 0.25 for y, 0 for z; b: 1 for x, 0 for y, 0 for z."
    )
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [[bar.get_height() for bar in axes.patches] for axes in shown] == [
        [0.75, 0.25, 0],
        [1, 0, 0],
    ]
    assert [axes.get_title(loc="left") for axes in shown] == ["a", "b"]
    assert [axes.lines[0].get_xdata().tolist() for axes in shown] == [[2], [1, 2]]  # the crosses
    with pytest.raises(ValueError, match="'a' has 1 values for 2 labels"):
        bar_panels({"a": [1]}, ["x", "y"], y="", title="")
    with pytest.raises(ValueError, match="no panels"):
        bar_panels({}, [], y="", title="")
