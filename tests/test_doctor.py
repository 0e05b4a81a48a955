import re

from conftest import cli

from grpo_workbook.cli import doctor


def test_a_well_installed_machine_is_told_so():
    result = cli("doctor")
    assert result.returncode == 0, result.stdout
    for name in (
        "python",
        "unsloth",
        "torch",
        "cpu",
        "memory",
        "disk",
        "4-bit",
        "device",
        "profile",
        "model",
    ):
        assert re.search(rf"^ok  {name}\b", result.stdout, re.MULTILINE), name
    assert "All is well" in result.stdout
    assert "(no GPU" in result.stdout or "the GPU has" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_every_pin_is_compared():
    wanted = doctor.pins()
    assert {
        "unsloth",
        "unsloth_zoo",
        "torch",
        "trl",
        "transformers",
        "peft",
        "bitsandbytes",
        "nbmake",
    } <= set(wanted)
    assert all(not f.mend for f in doctor._versions(wanted))


def test_wrong_and_missing_versions_come_with_the_mend(capsys):
    findings = doctor._versions({"torch": "1.0.0", "no-such-package": "1.0"})
    assert [bool(f.mend) for f in findings] == [True, True]
    assert doctor.show(findings) == 1
    out = capsys.readouterr().out
    assert "tested with 1.0.0" in out
    assert "not installed" in out
    assert "make setup" in out
    assert "2 to mend" in out


def test_bad_settings_are_a_finding_and_not_a_crash():
    result = cli("doctor", GRPO_WORKBOOK_PROFILE="giant")
    assert result.returncode == 1
    assert "unknown profile 'giant'" in result.stdout
    assert "Traceback" not in result.stderr


def test_several_gpus_are_too_many():
    assert doctor._gpus(0) == doctor._gpus(1) == []
    assert "CUDA_VISIBLE_DEVICES=0" in doctor._gpus(2)[0].mend


def test_another_torch_does_not_end_the_report(monkeypatch):
    monkeypatch.setattr(doctor, "pins", lambda: {"torch": "1.0.0"})
    names = [f.name for f in doctor.examine()]
    assert {"memory", "4-bit", "profile"} <= set(names)


def test_no_secret_is_printed():
    result = cli("doctor", HF_TOKEN="hf_" + "s" * 20)
    assert "hf_ss" not in result.stdout + result.stderr
