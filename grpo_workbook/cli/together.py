"""Several processes that train together, started by torchrun or accelerate; only one writes.

`together` connects them for a block, `once` lets the main process do something whose result all
need, and `is_main` says which one prints and writes.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from grpo_workbook.errors import WorkbookError


def count() -> int:
    """The number of processes from the launcher."""
    # torchrun and accelerate set WORLD_SIZE and RANK. Without a launcher there is one process.
    return int(os.environ.get("WORLD_SIZE") or 1)


def is_main() -> bool:
    """Whether this is the process that prints and writes."""
    return int(os.environ.get("RANK") or 0) == 0


def once(work: Callable[[], Any]) -> Any:
    """The main process does the work; all get its result, or end with its WorkbookError."""
    if count() == 1:
        return work()
    from accelerate.utils import broadcast_object_list

    # (result, error): the error is sent as well, because the others wait for one of the two.
    outcome: list = [None, None]
    if is_main():
        try:
            outcome[0] = work()
        except WorkbookError as error:
            outcome[1] = error
    result, error = broadcast_object_list(outcome)
    if error is None:
        return result
    if is_main():
        raise error
    raise SystemExit(2)  # only the main process prints it


@contextmanager
def together(device: str) -> Iterator[None]:
    """Connect the processes for the block; `device` is "cpu" or "cuda".

    If one is lost, the launcher ends the others: --resume continues from the checkpoint.
    """
    if count() == 1:
        yield
        return
    from accelerate import PartialState
    from torch.distributed import destroy_process_group

    if device == "cpu":  # accelerate would use cpu:0 and cpu:1, which torch.load does not know
        os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
    PartialState(cpu=device == "cpu", timeout=timedelta(minutes=30))
    if not is_main():
        # Else every line would be printed once for each process.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  until the process ends
    yield
    destroy_process_group()
