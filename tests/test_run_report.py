"""What a run says at its end."""

from pathlib import Path

from grpo_workbook.cli import run_report


def test_a_package_that_is_not_installed_is_left_out(monkeypatch):
    """The plain backend needs no Unsloth, and a run without it must not end for want of its version."""
    monkeypatch.setattr(run_report, "VERSIONS", ("trl", "no-such-package"))
    assert set(run_report.versions()) == {"python", "trl"}


def test_a_name_in_brackets_is_printed_as_it_is(capsys):
    """To rich, [/so] is the end of a style: the table of a run that had ended well must not fail on it."""
    shares = dict.fromkeys(
        ("strict_sampled", "strict_greedy", "lenient_sampled", "well_formed_sampled"), 0.5
    )
    held = {"n": 8, "before": {**shares, "ci95": [0, 1]}, "after": {**shares, "ci95": [0, 1]}}
    merge = {
        "max_abs_logit_difference": 0.1,
        "same_greedy_tokens": 1.0,
        "merged_strict_greedy": 0.5,
    }
    numbers = dict.fromkeys(("steps", "train_seconds", "total_seconds", "peak_rss_mb"), 1)
    report = {
        "heldout": held,
        "merge": merge,
        "model": "mine[/so]",
        "verdict": [],
        "examples": [],
        **numbers,
    }
    run_report.show_report(report, Path("out [bold] :smile:"))
    said = capsys.readouterr().out
    assert "8 held-out problems, mine[/so]" in said
    assert "out [bold] :smile:/adapter" in said
