"""The doctor says what a machine is, and what is wrong with it, with the fix."""

import re

import pytest
from conftest import cli

from grpo_workbook.cli import doctor


@pytest.mark.slow
def test_a_well_installed_machine_is_told_so():
    result = cli("doctor", HF_TOKEN="hf_" + "s" * 20)
    assert result.returncode == 0, result.stdout
    names = "python unsloth torch cpu memory disk 4-bit sandbox device profile model"
    for name in names.split():
        assert re.search(rf"^ok  {name}\b", result.stdout, re.MULTILINE), name
    assert "All is well" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100
    assert "hf_ss" not in result.stdout + result.stderr  # no secret is printed


def test_every_pin_is_compared():
    wanted = doctor.pins()
    assert {"unsloth", "torch", "trl", "transformers", "peft", "bitsandbytes"} <= set(wanted)
    assert not [f for f in doctor.packages(wanted) if f.fix]


def test_wrong_and_missing_versions_come_with_the_fix(capsys, monkeypatch):
    wanted = {"psutil": "1.0.0", "no-such-package": "1.0"}
    monkeypatch.setattr(doctor, "pins", lambda *files: wanted)
    assert doctor.main() == 1
    out = capsys.readouterr().out
    assert "tested with 1.0.0" in out
    assert "not installed" in out
    assert "make setup" in out
    assert "2 to fix" in out
    assert "4-bit" in out  # the report goes on


@pytest.mark.slow
def test_bad_settings_are_a_finding_and_not_a_crash():
    result = cli("doctor", GRPO_WORKBOOK_PROFILE="giant")
    assert result.returncode == 1
    assert "unknown profile 'giant'" in result.stdout
    assert "Traceback" not in result.stderr


def test_several_gpus_are_too_many(monkeypatch):
    import torch

    assert doctor.machine()[0] == ("gpus", "0 visible", "")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert "CUDA_VISIBLE_DEVICES=0" in doctor.machine()[0].fix
