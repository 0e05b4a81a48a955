"""What a run says at its end."""

from conftest import assert_names

from grpo_workbook.cli import report


def test_a_package_that_is_not_installed_is_left_out(monkeypatch):
    """The plain backend needs no Unsloth: a run must not end for want of its version."""
    monkeypatch.setattr(report, "PACKAGES", ["trl", "no-such-package"])
    assert set(report.versions()) == {"python", "trl"}


def test_the_logs_sums():
    names = ("reward", "rewards/f/mean", "completions/mean_length")
    log = [{"step": i, **dict.fromkeys(names, float(i))} for i in range(1, 21)]
    found = report.from_log(log, 64)
    assert found["completions"] == {"total": 20 * 64, "mean_length": 10.5}
    tenths = {"first_tenth": 1.5, "last_tenth": 19.5}
    assert found["rewards"] == {"reward": tenths, "f": tenths}


def test_the_verdict_calls_chance_chance():
    def change(before, after, p_value):
        spans = {"before_interval": (0, 1), "after_interval": (0, 1), "gain_interval": (-1, 1)}
        counts = {"gain": after - before, "better": 5, "worse": 2, "p_value": p_value}
        return {"before": before, "after": after, **spans, **counts}

    strict, lenient, well_formed, unjudged = report.verdict(
        {
            "strict": change(0.2, 0.8, 1e-9),
            "lenient": change(0.5, 0.5, 1.0),
            "well_formed": change(0.9, 0.8, 0.2),
            "unjudged": 6,
        }
    )
    assert_names(strict, "strict", "rose", "20.0%", "80.0%", "p = 1e-09")
    assert "chance" not in strict
    assert_names(lenient, "lenient", "stayed", "50.0%")
    assert_names(well_formed, "fell", "90.0%", "80.0%", "chance", "p = 0.2")
    assert_names(unjudged, "6 completions")


def test_names_and_texts_are_printed_as_they_are(tmp_path, capsys):
    """The numbers are the card's; no text of the data reaches the terminal raw."""
    folder = tmp_path / "out [bold] :smile:"
    (folder / "merged").mkdir(parents=True)
    card = "# mine\n\n## Before and after\n\n8 problems, mine[/so]\x1b[2J\n\n## Data\n\nhidden\n"
    (folder / "merged" / "README.md").write_text(card)
    facts = dict.fromkeys(("steps", "train_seconds", "total_seconds", "peak_rss_mb"), 1)
    facts["model"] = "data/tiny-qwen3"
    facts["examples"] = [{"question": "a\x1b[2J", "answer": "5", "after": "five\x07"}]
    report.show_report(facts, folder)
    printed = capsys.readouterr().out
    assert_names(printed, "8 problems, mine[/so]\\x1b[2J", "data/tiny-qwen3", "five\\x07")
    assert_names(printed, "out [bold] :smile:: report.json")
    assert "hidden" not in printed
    assert "\x1b" not in printed
