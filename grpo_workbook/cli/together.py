"""Several processes that train together, started by torchrun or accelerate; only one writes."""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import contextmanager
from datetime import timedelta

from grpo_workbook.errors import WorkbookError, first_line


def count() -> int:
    """The number of processes from the launcher."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def is_main() -> bool:
    """Whether this is the process that prints and writes."""
    return int(os.environ.get("RANK") or 0) == 0


def once(work: Callable[[], object]):
    """The main process does the work; all get its result, or end with its WorkbookError."""
    if count() == 1:
        return work()
    from accelerate.utils import broadcast_object_list

    outcome: list = [None, None]
    if is_main():
        try:
            outcome[0] = work()
        except WorkbookError as error:
            outcome[1] = error
    result, error = broadcast_object_list(outcome)
    if error:
        raise error if is_main() else SystemExit(2)  # only the main process prints it
    return result


@contextmanager
def together(device: str):
    """Connect the processes for the block; if one is lost, the others end with status 1."""
    env = os.environ
    # For several processes accelerate sets an address and a rank for each.
    if {"ACCELERATE_MIXED_PRECISION", "MASTER_ADDR"} <= env.keys() and "WORLD_SIZE" not in env:
        said = "accelerate launch started one process instead of several, as with --cpu"
        raise WorkbookError(f"{said} and MULTI_CPU: use torchrun, or a file of configs/")
    if count() == 1:
        yield
        return
    from accelerate import PartialState
    from torch.distributed import DistError, destroy_process_group

    def end(*_, why="the launcher ended it, because another process has ended") -> None:
        # at once: a normal exit may wait for the lost process
        said = f"process {env['RANK']} of {count()} cannot go on: {why}. The same command with"
        print(f"error: {said} --resume continues from the checkpoint.", file=sys.stderr, flush=True)
        os._exit(1)

    if device == "cpu":  # accelerate would use cpu:0 and cpu:1, which torch.load does not know
        env["ACCELERATE_TORCH_DEVICE"] = "cpu"
    PartialState(cpu=device == "cpu", timeout=timedelta(minutes=30))
    if not is_main():
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  until the process ends
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
        destroy_process_group()
    except RuntimeError as error:  # gloo and NCCL have no exception class for a lost process
        lost = any(word in str(error) for word in ("gloo/", "Connection closed by peer"))
        if not lost and not isinstance(error, DistError):
            raise
        end(why=f"another process is gone ({first_line(error)})")
    finally:
        signal.signal(signal.SIGTERM, before)
