"""The doctor says what a machine is, and what is wrong with it, with the fix."""

import re

import pytest
from conftest import cli
from test_colab import freeze, normal

from grpo_workbook.cli import doctor
from grpo_workbook.cli.versions import installed, pins, wanted


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
    names = {found.name for found in doctor.packages(installed()) if not found.fix}
    assert {"unsloth", "torch", "trl", "transformers", "peft", "bitsandbytes", "pytest"} <= names
    assert names == set(pins())


def test_wrong_and_missing_versions_come_with_the_fix(capsys, monkeypatch):
    there = {name: version for name, version in installed().items() if name != "tyro"}
    there |= {"psutil": "1.0.0", "trl": "1.14.0", "torchao": "0.10.0"}
    monkeypatch.setattr(doctor, "installed", lambda: there)
    assert doctor.main() == 1
    out = capsys.readouterr().out
    assert f"tested with {pins()['psutil']}: run `make setup`" in out
    assert "tested with 0.18.0" in out
    assert "not installed" in out
    assert "4 to fix" in out
    assert "4-bit" in out  # the report goes on


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_on_colab_what_colab_keeps_is_no_fault(kind, monkeypatch):
    """`make setup` would take Colab's own torch away."""
    monkeypatch.setenv("COLAB_RELEASE_TAG", "release")
    fresh = freeze(kind)
    missing = {normal(name): version for name, version in wanted(fresh).items()}
    assert {f.name for f in doctor.packages(fresh) if f.fix} == set(wanted(fresh))
    assert all(
        "first cell" in f.fix or "torchao" in f.name for f in doctor.packages(fresh) if f.fix
    )
    assert not [f for f in doctor.packages(fresh | missing) if f.fix]
    assert "2.11.0" in dict(f[:2] for f in doctor.packages(fresh))["torch"]


@pytest.mark.parametrize(
    ("takes", "built", "fix"),
    [
        ("12.4", "13.0", "torch==2.13.0 --index-url https://download.pytorch.org/whl/cu126"),
        ("12.8", None, "torch==2.13.0 --index-url https://download.pytorch.org/whl/cu126"),
        ("13.1", None, "torch==2.13.0 --index-url https://download.pytorch.org/whl/cu130"),
    ],
)
def test_a_driver_that_is_too_old_for_torchs_build_is_named(
    takes, built, fix, tmp_path, monkeypatch
):
    import torch

    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\necho '| Driver Version: 1.2     CUDA Version: {takes}     |'\n")
    tool.chmod(0o755)
    assert doctor.other_build() == ""  # hidden from this suite
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(torch.version, "cuda", built)
    assert fix in doctor.machine()[0].fix
    monkeypatch.setattr(torch.version, "cuda", takes)  # such a build is right
    assert doctor.other_build() == ""
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert doctor.other_build() == ""


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
