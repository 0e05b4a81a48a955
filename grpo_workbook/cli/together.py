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

    error, outcome = None, [None, False]
    if is_main():
        try:
            outcome[0] = work()
        except WorkbookError as raised:
            error, outcome[1] = raised, True
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
    from torch.distributed import DistError, destroy_process_group

    def end(why: str) -> None:  # at once: a normal exit may wait for the lost process
        kept, goes_on = checkpoint(), "There is no checkpoint yet: start again with --overwrite"
        if kept:
            again = "the same command with --resume goes on from there"
            goes_on = f"The last checkpoint is {readable(str(kept))}; {again}"
        who = f"process {env['RANK']} of {count()}"
        print(f"error: {who} cannot go on: {why}. {goes_on}.", file=sys.stderr, flush=True)
        os._exit(1)

    if device == "cpu":  # accelerate would say cpu:0 and cpu:1, which torch.load does not know
        env["ACCELERATE_TORCH_DEVICE"] = "cpu"
    PartialState(cpu=device == "cpu", timeout=PATIENCE)
    if not is_main():
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  until the process ends
    told = "the launcher ended it (SIGTERM): another process has ended, as its report says"
    before = signal.signal(signal.SIGTERM, lambda *_: end(told))
    try:
        yield
        destroy_process_group()
    except RuntimeError as error:  # gloo and NCCL have no exception of their own for a loss
        words = ("gloo/", "Connection closed by peer")
        if not isinstance(error, DistError) and not any(word in str(error) for word in words):
            raise
        end(f"another process is gone ({first_line(error)})")
    finally:
        signal.signal(signal.SIGTERM, before)
