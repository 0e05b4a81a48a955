"""One job of benchmarks/gpu.py in a process of its own: python benchmarks/gpu_worker.py JOB.json
RESULT.json

A process for each side, so that peak memory is that side's own and Unsloth's patches reach no
other.
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]


def machine(job: dict) -> dict:
    """What this is measured on: the GPU, its memory, and the versions."""
    from importlib.metadata import PackageNotFoundError, version

    import torch

    names = (
        "torch triton transformers accelerate peft trl datasets bitsandbytes unsloth unsloth_zoo "
        "numpy"
    ).split()
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    about = {
        "python": ".".join(map(str, sys.version_info[:3])),
        "versions": found,
        "cuda": torch.version.cuda,
    }
    if not torch.cuda.is_available():
        return about | {"gpu": None, "dtype": "float32"}
    properties = torch.cuda.get_device_properties(0)
    return about | {
        "gpu": properties.name,
        "memory_gib": round(properties.total_memory / 2**30, 1),
        "capability": f"{properties.major}.{properties.minor}",
        "dtype": "bfloat16"
        if torch.cuda.is_bf16_supported(including_emulation=False)
        else "float16",
    }


def write(job: dict) -> dict:
    """Write a model with random weights."""
    from gpu_models import write_model

    return write_model(job["size"], Path(job["model"]), job["device"])


def main() -> int:
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if job["job"] not in ("machine", "write"):
        from grpo_workbook.notebook import quiet

        quiet()
        if job["job"] not in ("prove", "compare_runs", "chapter") and job.get("side") != "plain":
            import unsloth  # noqa: F401  before transformers and trl, which it patches
    import gpu_contact
    import gpu_learning
    import gpu_speed

    jobs = {
        "machine": machine,
        "write": write,
        "speed": gpu_speed.speed,
        "learning": gpu_learning.learning,
        "train_and_merge": gpu_learning.train_and_merge,
        "prove": gpu_learning.prove,
        "train_part": gpu_learning.train_part,
        "compare_runs": gpu_learning.compare_runs,
        "kernels": gpu_contact.kernels,
        "main_run": gpu_contact.main_run,
        "vision": gpu_contact.vision,
        "memory": gpu_contact.memory,
        "chapter": gpu_contact.chapter,
    }
    result = jobs[job["job"]](job)
    Path(sys.argv[2]).write_text(json.dumps(result), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
