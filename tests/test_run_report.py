"""What a run says at its end."""

from grpo_workbook import run_report


def test_a_package_that_is_not_installed_is_left_out(monkeypatch):
    """The plain backend needs no Unsloth, and a run without it must not end for want of its version."""
    monkeypatch.setattr(run_report, "VERSIONS", ("trl", "no-such-package"))
    assert set(run_report.versions()) == {"python", "trl"}
