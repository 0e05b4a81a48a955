"""The doctor says what a machine is, and what is wrong with it, with the fix."""

import argparse
import os
import re
import sys

import pytest
from conftest import cli, finished
from test_colab import freeze, normal

from grpo_workbook.cli import doctor
from grpo_workbook.cli.versions import installed, pins, wanted

TRIED = {"4-bit", "sandbox", "device", "profile", "model"}


@pytest.mark.parametrize("full", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_well_installed_machine_is_told_so(full):
    result = cli("doctor", *["--full"] * full, HF_TOKEN="hf_" + "s" * 20)
    assert result.returncode == 0, result.stdout
    names = {*re.findall(r"^ok  (\S+)", result.stdout, re.MULTILINE)}
    assert names >= {"python", "unsloth", "torch", "gpus", "cpu", "memory", "disk"}
    assert names & TRIED == (TRIED if full else set())
    last = result.stdout.splitlines()[-1]
    assert "All is well" in last
    assert ("doctor --full" in last) is not full  # which says what was not tried
    assert max(map(len, result.stdout.splitlines())) <= 100
    assert "hf_ss" not in result.stdout + result.stderr  # no secret is printed


def test_a_line_is_printed_before_the_next_check_begins():
    code = """
import sys
from grpo_workbook.cli import doctor
for found in doctor.examine(full=True):
    if found.name == "disk":
        sys.exit("torch" in sys.modules)
"""
    assert finished([sys.executable, "-c", code]).returncode == 0


def test_every_pin_is_compared():
    names = {found.name for found in doctor.packages(installed()) if not found.fix}
    assert {"unsloth", "torch", "trl", "transformers", "peft", "bitsandbytes", "pytest"} <= names
    assert names == set(pins())


def test_wrong_and_missing_versions_come_with_the_fix(capsys, monkeypatch):
    there = {name: version for name, version in installed().items() if name != "tyro"}
    there |= {"psutil": "1.0.0", "trl": "1.14.0", "torchao": "0.10.0"}
    monkeypatch.setattr(doctor, "installed", lambda: there)
    assert doctor.main(argparse.Namespace(full=False)) == 1
    out = capsys.readouterr().out
    assert f"tested with {pins()['psutil']}: run `make setup`" in out
    assert "tested with 0.18.0" in out
    assert "not installed" in out
    assert "4 to fix" in out
    assert "disk" in out  # the report goes on


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


def machine_with(folder, takes: str, built: str | None, gpus: int = 1) -> dict[str, str]:
    """The variables that put a driver's tool and a build of torch, as their files are, in front."""
    tool = folder / "nvidia-smi"
    head = f"| NVIDIA-SMI 1.2     Driver Version: 1.2     CUDA Version: {takes}     |"
    row = "| N/A   36C    P8     9W /   70W |       0MiB /  15360MiB |      0%      Default |"
    tool.write_text("#!/bin/sh\ncat <<END\n" + "\n".join([head, *[row] * gpus]) + "\nEND\n")
    tool.chmod(0o755)
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text("raise SystemExit('torch is loaded')")
    (folder / "torch-2.13.0.dist-info").mkdir()
    about = folder / "torch-2.13.0.dist-info" / "METADATA"
    about.write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0\n")
    (folder / "torch" / "version.py").write_text(f"cuda: Optional[str] = {built!r}\n")
    return {
        "PATH": f"{folder}:/usr/bin:/bin",
        "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}",
    }


@pytest.mark.parametrize(
    ("takes", "built", "fix"),
    [
        ("12.4", "13.0", "torch==2.13.0 --index-url https://download.pytorch.org/whl/cu126"),
        ("12.8", None, "torch==2.13.0 --index-url https://download.pytorch.org/whl/cu126"),
        ("13.1", None, "torch==2.13.0 --index-url https://download.pytorch.org/whl/cu130"),
        ("13.1", "13.0", ""),
        ("13.1", "12.6", ""),
    ],
)
def test_a_driver_that_is_too_old_for_torchs_build_is_named(takes, built, fix, tmp_path):
    env = machine_with(tmp_path, takes, built)
    said = cli("doctor", CUDA_VISIBLE_DEVICES="0", **env)
    assert said.returncode == bool(fix), said.stdout + said.stderr
    assert re.search(rf"{'!!' if fix else 'ok'}  gpus +1 visible", said.stdout)
    assert fix in said.stdout
    hidden = cli("doctor", **env)  # this suite hides them
    assert (hidden.returncode, "ok  gpus           0 visible" in hidden.stdout) == (0, True)


@pytest.mark.slow
def test_bad_settings_are_a_finding_and_not_a_crash():
    result = cli("doctor", "--full", GRPO_WORKBOOK_PROFILE="giant")
    assert result.returncode == 1
    assert "unknown profile 'giant'" in result.stdout
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(("shown", "several"), [(None, True), ("0,1", True), ("1", False)])
def test_several_gpus_are_too_many(shown, several, tmp_path, monkeypatch):
    env = machine_with(tmp_path, "13.0", "13.0", gpus=3)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    said = cli("doctor", **env, **({"CUDA_VISIBLE_DEVICES": shown} if shown else {})).stdout
    assert f"gpus           {'3' if shown is None else '2' if several else '1'} visible" in said
    assert ("CUDA_VISIBLE_DEVICES=0" in said) is several
