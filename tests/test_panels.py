"""The panels: what is drawn is said in words, and what was not logged is said to be missing."""

from conftest import REPO, assert_names

from grpo_workbook.diagnosis import diagnose, read_run, run_panels, side_by_side

LOGS = REPO / "tests" / "diagnosis_logs"


def test_findings_are_marked_where_they_start():
    run = read_run(LOGS / "shows_work_0.json")
    findings = diagnose(run)
    figure, words = run_panels(run, findings, "a run")
    assert len(figure.axes) == 6
    assert_names(words, f"hacked from step {findings[0].step}", "strict from")
    for axes in figure.axes:
        upright = [line for line in axes.lines if len(set(line.get_xdata())) == 1]
        assert findings[0].step in [line.get_xdata()[0] for line in upright]


def test_a_metric_that_is_missing_is_not_invented():
    run = read_run([{"step": s, "reward": 0.1 * s} for s in range(1, 15)])
    figure, words = run_panels(run)
    assert [a.texts[0].get_text() for a in figure.axes if a.texts] == ["not logged"] * 5
    assert "total from 0.3 to 1.2" in words


def test_a_panel_is_named_after_what_was_logged():
    tied, free = (
        run_panels(read_run(LOGS / f"{n}_0.json"))[0] for n in ("healthy_beta", "healthy")
    )
    assert tied.axes[2].get_title("left") == "entropy, KL"
    assert free.axes[2].get_title("left") == "entropy"


def test_a_flat_curve_looks_flat():
    """The axis of a metric that is never negative starts at 0."""
    steady = [{"step": s, "reward": 0.5 + 0.01 * (s % 2)} for s in range(1, 31)]
    figure, _ = side_by_side({"steady": read_run(steady)})
    assert figure.axes[0].get_ylim()[0] == 0
    falling = [{"step": s, "reward": -0.5 + 0.01 * (s % 2)} for s in range(1, 31)]
    figure, _ = side_by_side({"falling": read_run(falling)})
    assert figure.axes[0].get_ylim()[0] < -0.5


def test_side_by_side_hides_the_empty_places():
    runs = {
        name: read_run(LOGS / f"{name}_0.json") for name in ("healthy", "beta_10", "cold_sampling")
    }
    figure, words = side_by_side(runs)
    assert sum(a.get_visible() for a in figure.axes) == 3
    assert words.startswith("3 line charts over optimizer steps. reward. healthy from")


def test_no_legend_lies_over_what_is_drawn():
    for name in ("healthy_1", "shows_work_0"):
        figure, _ = run_panels(read_run(LOGS / f"{name}.json"))
        figure.draw_without_rendering()
        for axes in figure.axes:
            box = axes.get_legend().get_window_extent()
            for line in axes.lines:
                points = axes.transData.transform(line.get_xydata())
                assert not [p for p in points if box.contains(*p)]
