"""Several processes that train together, started by torchrun or accelerate; only one writes.

`together` connects them for a block, `once` lets the main process do something whose result all
need, and `is_main` says which one prints and writes.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NoReturn

from grpo_workbook.errors import WorkbookError, first_line


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
    """Connect the processes for the block; if one is lost, the others end with status 1.

    `device` is "cpu" or "cuda". Raises WorkbookError if a launcher was to start several processes
    and has started one.
    """
    # For several processes accelerate sets an address and a rank for each.
    of_accelerate = {"ACCELERATE_MIXED_PRECISION", "MASTER_ADDR"} <= os.environ.keys()
    if of_accelerate and "WORLD_SIZE" not in os.environ:
        raise WorkbookError(
            "accelerate launch started one process instead of several, as with --cpu and "
            "MULTI_CPU: use torchrun, or a file of configs/"
        )
    if count() == 1:
        yield
        return
    from accelerate import PartialState
    from torch.distributed import DistError, destroy_process_group

    if device == "cpu":  # accelerate would use cpu:0 and cpu:1, which torch.load does not know
        os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
    PartialState(cpu=device == "cpu", timeout=timedelta(minutes=30))
    if not is_main():
        # Else every line would be printed once for each process.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  until the process ends
    # When one process has ended, the launcher sends SIGTERM to the others.
    handler = signal.signal(signal.SIGTERM, _end_by_launcher)
    try:
        yield
        destroy_process_group()
    except RuntimeError as error:  # gloo and NCCL have no exception class for a lost process
        is_lost = isinstance(error, DistError)
        for words in ("gloo/", "Connection closed by peer"):
            if words in str(error):
                is_lost = True
        if not is_lost:
            raise
        _end(f"another process is gone ({first_line(error)})")
    finally:
        signal.signal(signal.SIGTERM, handler)


def _end_by_launcher(signum: int, frame: Any) -> None:
    _end("the launcher ended it, because another process has ended")


def _end(reason: str) -> NoReturn:
    """End this process at once: a normal exit may wait for the lost process."""
    print(
        f"error: process {os.environ['RANK']} of {count()} cannot go on: {reason}. "
        "The same command with --resume continues from the checkpoint.",
        file=sys.stderr,
        flush=True,
    )
    os._exit(1)
