"""The doctor lists what a machine is, tries what may not work, and says how to fix it."""

import os
import re
import sys
from importlib import metadata
from types import SimpleNamespace

import pytest
from conftest import cli, finished, raises_naming

from grpo_workbook.cli import doctor
from grpo_workbook.errors import WorkbookError

PACKAGES = {"unsloth", "torch", "trl", "transformers", "peft", "bitsandbytes"}
TRIED = {"packages", "gpu", "machine", "4-bit", "sandbox", "settings"}


@pytest.mark.slow
def test_a_well_installed_machine_is_told_so():
    result = cli("doctor", HF_TOKEN="hf_" + "s" * 20)
    assert result.returncode == 0, result.stdout
    names = {*re.findall(r"^ok  (\S+)", result.stdout, re.MULTILINE)}
    assert names >= {"platform", "python", *PACKAGES, *TRIED}
    assert "All is well" in result.stdout.splitlines()[-1]
    assert "hf_ss" not in result.stdout + result.stderr  # no secret is printed


def test_a_line_is_printed_before_the_next_check_begins():
    code = """
import sys
from grpo_workbook.cli import doctor
for line in doctor.examine():
    if line.name == "packages":
        sys.exit("torch" in sys.modules)
"""
    assert finished([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("version", ["1.14.0", None])
def test_a_wrong_or_missing_version_comes_with_its_range_and_the_fix(monkeypatch, capsys, version):
    installed = metadata.version

    def other(name):
        if name != "trl":
            return installed(name)
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", other)
    monkeypatch.setattr(doctor, "check_unsloth", lambda: "not looked at here")
    assert doctor.main(SimpleNamespace()) == 1
    output = capsys.readouterr().out
    assert ("trl is 1.14.0, not <1.16,>=1.15" if version else "package metadata") in output
    assert "-> run `make setup`" in output
    assert "ok  sandbox" in output  # the report goes on
    assert "All is well" not in output


@pytest.mark.parametrize("hidden", [False, True])
def test_a_driver_that_torch_cannot_use_is_named(tmp_path, monkeypatch, hidden):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    if hidden:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        assert doctor.check_gpu().startswith("none")
        return
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    import torch

    if torch.cuda.is_available():
        pytest.skip("torch can use the GPU of this machine")
    with raises_naming(WorkbookError, "nvidia-smi", "torch"):
        doctor.check_gpu()


def test_bad_settings_are_a_finding_and_not_a_crash(monkeypatch, capsys):
    monkeypatch.setenv("GRPO_WORKBOOK_PROFILE", "giant")
    monkeypatch.setattr(doctor, "check_unsloth", lambda: "not looked at here")
    assert doctor.main(SimpleNamespace()) == 1
    output = capsys.readouterr().out
    assert "unknown profile 'giant'" in output
    assert "-> correct the value" in output
