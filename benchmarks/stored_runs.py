"""The stored runs of vision.py, thinking.py and curriculum.py: a JSON line each, in one file.

A run is known by its method, its seed and a key: a hash of what it depends on beside its seed. It
is made again when its key has changed. The runs are those of one core of a CPU.
"""

import hashlib
import json
import os
import platform
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

LIBRARIES = ("torch", "transformers", "trl", "peft", "bitsandbytes", "unsloth")


def digest(*parts: bytes) -> str:
    """Twelve digits of a SHA-256."""
    checksum = hashlib.sha256()
    for part in parts:
        checksum.update(part)
    return checksum.hexdigest()[:12]


def installed_versions() -> dict[str, str]:
    """The version of each library that a run's result depends on."""
    return {name: version(name) for name in LIBRARIES}


def circumstances(script: str, method: str, seed: int, key: str) -> dict:
    """The first part of a run's line: which run it is, how it is made again, and where it ran."""
    return {
        "method": method,
        "seed": seed,
        "command": f'python benchmarks/{script} --methods "{method}" --seeds {seed}',
        "key": key,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, one used",
        **installed_versions(),
    }


def use_one_core() -> None:
    """Load the libraries for runs on one core of a CPU.

    Raises:
        SystemExit: torch sees a GPU. A key does not name the device, so that a run on a GPU would
            take the place of the CPU's.
    """
    from grpo_workbook import quiet

    quiet()  # before Unsloth
    import torch

    if torch.cuda.is_available():
        raise SystemExit(
            "The stored runs are those of a CPU, and torch sees a GPU: hide it with "
            "CUDA_VISIBLE_DEVICES=. On a GPU benchmarks/gpu.py trains."
        )
    import unsloth  # noqa: F401  before TRL: it replaces TRL's Triton kernel on a CPU

    torch.set_num_threads(1)


class StoredRuns:
    """The file with the runs, in the order of the methods and then of the seeds.

    Args:
        path: the file. It need not exist yet.
        methods: the names of the methods. A run of another one stays, behind the others.
    """

    def __init__(self, path: Path, methods: Iterable[str]):
        self.path = path
        self.methods = list(methods)

    def rows(self) -> list[dict]:
        """The stored runs."""
        if not self.path.is_file():
            return []
        lines = self.path.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def has(self, method: str, seed: int, key: str) -> bool:
        """Whether this run is stored."""
        for row in self.rows():
            if (row["method"], row["seed"], row["key"]) == (method, seed, key):
                return True
        return False

    def add(self, row: dict) -> None:
        """Store a run, in the place of an older one with its method and seed."""
        from grpo_workbook.files import whole_file

        rows = [row]
        for other in self.rows():
            if (other["method"], other["seed"]) != (row["method"], row["seed"]):
                rows.append(other)
        rows.sort(key=self.position)
        lines = [json.dumps(row) + "\n" for row in rows]
        # Whole or not at all: a kill while it is written would lose the other runs.
        with whole_file(self.path) as new:
            new.write_text("".join(lines), encoding="utf-8")

    def position(self, row: dict) -> tuple[int, int]:
        """Where a run stands in the file."""
        if row["method"] in self.methods:
            return self.methods.index(row["method"]), row["seed"]
        return len(self.methods), row["seed"]
