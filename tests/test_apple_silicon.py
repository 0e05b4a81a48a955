"""What a Mac would do, as far as a machine of another kind can tell: its names are faked.

The real thing was not at hand (docs/apple_silicon.md): Metal, bitsandbytes' kernels and the
sandbox's limits on macOS are not tried here.
"""

import sys
from types import SimpleNamespace

import pytest
from conftest import REPO, finished

from grpo_workbook import compat
from grpo_workbook.cli import doctor
from grpo_workbook.errors import WorkbookError

# torch comes first, because it looks for its own libraries by the system's name
AS_A_MAC = """
import platform, torch, bitsandbytes, transformers
platform.system, platform.machine = lambda: "Darwin", lambda: "arm64"
torch.backends.mps.is_available = torch.accelerator.is_available = lambda: True
torch.accelerator.current_accelerator = lambda *_, **__: torch.device("mps")
import unsloth
from grpo_workbook import choose_profile, load_policy
from trl import GRPOConfig
profile = choose_profile("smoke")
model, _ = load_policy(profile)
args = GRPOConfig("outputs/never_written", **profile.grpo)
print("devices:", profile.device, model.device, args.device, args.bf16)
"""


@pytest.mark.slow
@pytest.mark.parametrize("has_mlx", [False, True])
def test_a_mac_trains_on_its_cpu(tmp_path, has_mlx):
    paths = [str(REPO)]
    settings = {}
    if has_mlx:  # then Unsloth would take MLX, whose models are not of PyTorch
        (tmp_path / "mlx").mkdir()
        (tmp_path / "mlx" / "__init__.py").touch()
        paths.append(str(tmp_path))
        settings["UNSLOTH_FORCE_GPU_PATH"] = "1"
    result = finished(
        [sys.executable, "-c", AS_A_MAC], PYTHONPATH=":".join(paths), HF_HUB_OFFLINE="1", **settings
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert "devices: cpu cpu cpu False" in result.stdout


def test_unsloths_models_for_mlx_are_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "unsloth", SimpleNamespace(DEVICE_TYPE="mlx"))
    with pytest.raises(WorkbookError, match="UNSLOTH_FORCE_GPU_PATH=1"):
        compat.refuse_mlx()
    with pytest.raises(WorkbookError, match="UNSLOTH_FORCE_GPU_PATH=1"):
        doctor.check_unsloth()


def test_doctor_says_that_apples_gpu_is_not_used(monkeypatch):
    import torch

    if torch.cuda.is_available():
        pytest.skip("torch can use the GPU of this machine")
    monkeypatch.setattr(doctor.shutil, "which", lambda _: None)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert "Apple's GPU is not used" in doctor.check_gpu()
    assert (REPO / "docs" / "apple_silicon.md").is_file()
