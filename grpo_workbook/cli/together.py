"""Several processes that train together, as torchrun or accelerate start them.

All train and measure; the main one alone prints and writes. accelerate connects them; here stands
what it leaves open: one that is lost ends the others with a message, and a launcher that was asked
for several and started one is refused.
"""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import contextmanager
from datetime import timedelta

from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.files import readable

PATIENCE = timedelta(minutes=30)  # that a process waits for the others


def count() -> int:
    """How many processes the launcher has started."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def is_main() -> bool:
    """Whether this is the process that prints and writes."""
    return int(os.environ.get("RANK") or 0) == 0


def once(work: Callable[[], object]):
    """The main process does the work; all get its result, or end with its WorkbookError."""
    if count() == 1:
        return work()
    from accelerate.utils import broadcast_object_list

    outcome: list = [None, False]
    error = None
    if is_main():
        try:
            outcome = [work(), False]
        except WorkbookError as raised:
            error, outcome = raised, [None, True]
    broadcast_object_list(outcome)
    if outcome[1]:
        raise error or SystemExit(2)  # the main process says it
    return outcome[0]


def main_first():
    """A block that the main process goes through before the others: one download, one cache."""
    from accelerate import PartialState

    return PartialState().main_process_first()


@contextmanager
def together(device: str, checkpoint: Callable[[], object]):
    """Connect the processes while the block lasts; one alone needs nothing.

    A process that is lost ends the others with a message and status 1, and so does the launcher's
    SIGTERM after another's end. `checkpoint` finds the last checkpoint, which the message names.
    """
    env = os.environ
    # For several processes accelerate sets an address where they meet, and numbers them.
    if {"ACCELERATE_MIXED_PRECISION", "MASTER_ADDR"} <= env.keys() and "WORLD_SIZE" not in env:
        raise WorkbookError(
            "accelerate launch was asked for several processes and started one, as with --cpu and "
            "MULTI_CPU: start with `torchrun --nproc_per_node N -m grpo_workbook run ...` or a "
            "file of configs/"
        )
    if count() == 1:
        yield
        return
    from accelerate import PartialState
    from torch.distributed import destroy_process_group

    if device == "cpu":  # accelerate would say cpu:0 and cpu:1, which torch.load does not know
        env["ACCELERATE_TORCH_DEVICE"] = "cpu"
    try:
        PartialState(cpu=device == "cpu", timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise WorkbookError(
            f"the processes could not meet ({first_line(error)}): see whether all were started, "
            "and whether MASTER_ADDR and MASTER_PORT are right"
        ) from error
    if not is_main():
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  until the process ends
    told = "the launcher ended it (SIGTERM): another process has ended, as its report says"
    before = signal.signal(signal.SIGTERM, lambda *_: _end(told, checkpoint()))
    try:
        yield
        destroy_process_group()
    except RuntimeError as error:
        if not is_loss(error):
            raise
        _end(f"another process is gone ({first_line(error)})", checkpoint())
    finally:
        signal.signal(signal.SIGTERM, before)


def is_loss(error: BaseException) -> bool:
    """Whether another process cannot be reached: gloo and NCCL have no exception of their own."""
    from torch.distributed import DistError

    text = str(error)
    return isinstance(error, DistError) or "gloo/" in text or "Connection closed by peer" in text


def _end(why: str, kept) -> None:
    """End at once: threads of the libraries may wait for the lost process at a normal exit."""
    goes_on = "There is no checkpoint yet: start again with --overwrite"
    if kept:
        again = "the same command with --resume goes on from there"
        goes_on = f"The last checkpoint is {readable(kept)}; {again}"
    who = f"process {os.environ['RANK']} of {count()}"
    print(f"error: {who} cannot go on: {why}. {goes_on}.", file=sys.stderr, flush=True)
    os._exit(1)
