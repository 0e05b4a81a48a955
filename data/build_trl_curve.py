"""The reward curve of a TRL run, for notebook 01 to draw beside its own.

It is the course's main run (`python -m grpo_workbook run`) with 40 steps and the settings of the
notebook's trainer: Unsloth and TRL's GRPOTrainer, the tiny Qwen3 in 16-bit loading (float32 on a
CPU), the same adapters, problems, rewards and batch. About a minute and a half on two cores.
Writes data/trl_curve.json: `python data/build_trl_curve.py`.
"""

import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

TARGET = Path(__file__).resolve().parent / "trl_curve.json"
ARGUMENTS = "--max-steps 40 --learning-rate 2e-3 --load-in-4bit false --model qwen --seed 0".split()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "grpo_workbook", "run", *ARGUMENTS]
        subprocess.run(
            [*command, "--output", f"{folder}/run"], check=True, cwd=TARGET.parent.parent
        )
        log = json.loads(Path(folder, "run", "log.json").read_text(encoding="utf-8"))
        report = json.loads(Path(folder, "run", "report.json").read_text(encoding="utf-8"))
    curve = {
        "command": " ".join(["python -m grpo_workbook run", *ARGUMENTS]),
        "made_by": "python data/build_trl_curve.py",
        "versions": {name: version(name) for name in ("trl", "unsloth", "torch")},
        "train_seconds": report["train_seconds"],
        "strict_sampled": [
            report["heldout"][when]["strict_sampled"] for when in ("before", "after")
        ],
        "reward": [round(entry["reward"], 4) for entry in log],
    }
    TARGET.write_text(json.dumps(curve, indent=1) + "\n", encoding="utf-8")
    print(f"{TARGET.name}: {len(curve['reward'])} steps")


if __name__ == "__main__":
    main()
