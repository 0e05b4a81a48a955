import pytest

from grpo_workbook import figures

LOG = [
    {"step": i, "reward": i / 10, "rewards/a_reward/mean": i / 20, "rewards/a_reward/std": 0.1}
    for i in range(1, 31)
]
BEFORE = {
    "strict_sampled": 0.14,
    "strict_greedy": 0.7,
    "lenient_sampled": 0.6,
    "ci95": [0.11, 0.18],
}
AFTER = {
    "strict_sampled": 0.92,
    "strict_greedy": 0.97,
    "lenient_sampled": 0.93,
    "ci95": [0.89, 0.94],
}


def test_the_words_say_what_the_curves_show():
    figure, words = figures.reward_curves(LOG)
    assert "30 optimizer steps" in words
    assert "total goes from 0.55 (first 10 steps) to 2.55 (last 10)" in words
    assert "a goes from" in words
    labels = [t.get_text() for t in figure.axes[0].get_legend().get_texts()]
    assert labels == ["total", "a"]
    assert figure.axes[0].get_xlabel() == "optimizer step"


def test_lines_differ_in_style_and_not_only_in_colour():
    figure, _ = figures.reward_curves(LOG)
    lines = [line for line in figure.axes[0].lines if line.get_linewidth() == 2]
    assert len({line.get_linestyle() for line in lines}) == len(lines) == 2


def test_every_reward_gets_a_line_of_its_own():
    log = [
        {"step": i, "reward": 1.0, **{f"rewards/r{k}/mean": k / 10 for k in range(9)}}
        for i in (1, 2, 3)
    ]
    figure, words = figures.reward_curves(log)
    lines = [line for line in figure.axes[0].lines if line.get_linewidth() == 2]
    assert len(lines) == 10
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 10
    assert "r8 goes from 0.80 (first 3 steps) to 0.80 (last 3)" in words


def test_a_reward_that_joins_later_is_drawn_from_there():
    """As in a log of two stages with other rewards."""
    log = [
        {"step": 1, "reward": 0.5, "rewards/a/mean": 0.5},
        {"step": 2, "reward": 1.0, "rewards/b/mean": 1.0},
    ]
    figure, words = figures.reward_curves(log)
    assert "a goes from 0.50" in words
    assert [list(line.get_xdata()) for line in figure.axes[0].lines[1::2]] == [[1, 2], [1], [2]]


def test_bars_say_before_and_after():
    figure, words = figures.before_after(BEFORE, AFTER, 480)
    assert "480 held-out problems" in words
    assert "strict, sampled from 14.0% to 92.0%" in words
    heights = sorted(bar.get_height() for bar in figure.axes[0].patches)
    assert heights == sorted([0.14, 0.7, 0.6, 0.92, 0.97, 0.93])


def test_an_empty_log_is_an_error():
    with pytest.raises(ValueError, match="no step with a reward"):
        figures.reward_curves([])


def test_the_same_figure_is_the_same_file(tmp_path):
    for name in ("a", "b"):
        figures.save(*figures.before_after(BEFORE, AFTER, 480), tmp_path / name / "x.png")
    assert (tmp_path / "a" / "x.png").read_bytes() == (tmp_path / "b" / "x.png").read_bytes()


def test_a_notebook_image_carries_its_words(capsys):
    from unittest import mock

    shown = []
    with mock.patch("IPython.display.display", shown.append):
        figures.show(*figures.before_after(BEFORE, AFTER, 480))
    assert 'alt="Bar chart of accuracy on 480' in shown[0].data
    assert 'src="data:image/png;base64,' in shown[0].data


def test_smoothing_never_looks_ahead():
    assert figures.smooth([1, 2, 3, 4], window=2) == [1, 1.5, 2.5, 3.5]


def test_the_length_histogram_marks_what_is_over_the_budget():
    counts = [50] * 10 + [120] * 5 + [300]
    figure, words = figures.length_histogram(counts, budget=160)
    assert "16 prompts: from 50 to 300 tokens, half of them at most 50" in words
    assert "1 lie over the budget of 160 tokens" in words
    bars = figure.axes[0].patches
    assert sum(bar.get_height() for bar in bars) == 16
    assert sum(bar.get_height() for bar in bars if bar.get_hatch()) == 1


def test_distributions_mark_the_groups_without_gradient():
    groups = {
        "right_reward": [[1.0, 0.0, None], [1.0, 1.0, 1.0]],
        "none_reward": [[None] * 3, [None] * 3],
    }
    figure, words = figures.reward_distributions(groups)
    assert words.startswith("Dot plot of rewards within 2 groups")
    assert "right_reward has a mean of 0.80, and all rewards are equal in 1" in words
    assert "none_reward applies to none" in words
    assert [len(c.get_offsets()) for c in figure.axes[0].collections] == [2, 3]
    assert figure.axes[0].get_title(loc="left") == "right: 1 of 2 groups all equal"


def test_attacks_are_drawn_beside_the_line_of_the_honest_answer():
    earned = {
        "naive": {"hedging": [1.0, 0.2], "spam": [-400.0]},
        "ours": {"hedging": [0.1, 0.2], "spam": [0.0]},
    }
    figure, words = figures.attack_shares(earned)
    assert "naive: 1 of 3 get through, the best earns 100%" in words
    assert "ours: 0 of 3 get through, the best earns 20%" in words
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == ["hedging", "spam"]
    assert [t.get_text() for t in figure.axes[0].texts] == [
        "1 of 2",
        "get through:",
    ]  # a count, and what it counts
    drawn = [x for c in figure.axes[0].collections for x, _ in c.get_offsets()]
    assert min(drawn) == -0.5
