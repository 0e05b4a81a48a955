"""The wheelhouse as it is used: collected from the index, carried to an environment that has torch,
transformers, accelerate, peft and OFTEN and nothing more, and benchmarks/gpu.py run with it, on the
CPU.

Minutes and gigabytes: `make test-wheelhouse`.
"""

import json
import os
import subprocess
import sys

import pytest
from conftest import REPO, environment

sys.path.insert(0, str(REPO / "benchmarks"))
import wheelhouse


@pytest.mark.extra
def test_the_wheelhouse_is_all_that_such_a_machine_lacks(tmp_path):
    wheels, python = tmp_path / "wheels", tmp_path / "venv" / "bin" / "python"
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    command = [
        sys.executable,
        "benchmarks/wheelhouse.py",
        "--python",
        version,
        "--out",
        str(wheels),
    ]
    made = subprocess.run(command, cwd=REPO, capture_output=True, text=True)
    if "could not download" in made.stderr:
        pytest.skip("the package index cannot be reached")
    assert made.returncode == 0, made.stderr[-2000:]
    assert sum(w.stat().st_size for w in wheels.iterdir()) <= wheelhouse.room() * 2**20
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    pins = [
        line.split()[0]
        for line in (REPO / "requirements.txt").read_text().splitlines()
        if "==" in line
    ]
    had = [p for p in pins if p.split("==")[0] in ("torch", "transformers", "accelerate", "peft")]
    assert len(had) == 4
    subprocess.run([python, "-m", "pip", "install", "-q", *had, *wheelhouse.OFTEN], check=True)
    command = [
        python,
        "benchmarks/gpu.py",
        "--tiny",
        "--device",
        "cpu",
        "--wheelhouse",
        wheels,
        "--out",
        tmp_path / "out",
    ]
    env = environment() | {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "2")}
    done = subprocess.run(command, cwd=REPO, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads((tmp_path / "out" / "gpu.json").read_text())
    assert found["failures"] == []
    assert found["machine"]["versions"]["trl"] == "1.15.0"
    assert found["speed"][0]["unsloth"]["seconds_per_step"] > 0
    assert "Triton" in found["speed"][0]["plain"]["refused"]
