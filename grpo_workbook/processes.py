"""Several processes that train together: how many there are, which one this is, and what only one of them does.

A launcher (torchrun, or accelerate with a file of configs/) starts the same command several times and tells each its
number. All of them train; process 0, the main one, alone prints and writes. Two groups connect them: the library's
own, whose waits end after `ddp_timeout`, and a patient one, for waits while the main process works alone.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.files import readable

TIMEOUT = {"cpu": 120, "cuda": 600}  # seconds that one process waits for another while training
PATIENCE = timedelta(hours=2)  # while the main process works alone
SHARDED = ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED")  # what accelerate launch sets


class AlreadySaid(WorkbookError):
    """Bad input that the main process has found and prints: the others end without a word."""


@dataclass(frozen=True)
class Processes:
    """This process and the others: `index` from 0 to `count` - 1. One alone needs no group and waits for nobody."""

    index: int = 0
    count: int = 1
    group: object = None  # the patient one

    @property
    def main(self) -> bool:
        """Whether this is the process that prints and writes."""
        return self.index == 0

    @property
    def sharded(self) -> bool:
        """Whether the weights are divided among the processes (FSDP, DeepSpeed), so that none holds them whole."""
        return any(os.environ.get(name, "").lower() == "true" for name in SHARDED)

    def gather(self, thing) -> list:
        """What each process gives (values of JSON), in the processes' order; every process gets the list."""
        if self.count == 1:
            return [thing]
        import torch
        import torch.distributed as dist

        given = torch.frombuffer(bytearray(json.dumps(thing).encode()), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.long) for _ in range(self.count)]
        dist.all_gather(sizes, torch.tensor([len(given)]), group=self.group)
        padded = torch.zeros(max(int(size) for size in sizes), dtype=torch.uint8)
        padded[: len(given)] = given
        pieces = [torch.zeros_like(padded) for _ in range(self.count)]
        dist.all_gather(pieces, padded, group=self.group)
        return [
            json.loads(p[: int(size)].numpy().tobytes())
            for p, size in zip(pieces, sizes, strict=True)
        ]

    def once(self, work: Callable[[], object]):
        """The main process does the work; all get its result (values of JSON), or its WorkbookError."""
        if self.count == 1:
            return work()
        result = error = None
        if self.main:
            try:
                result = work()
            except WorkbookError as raised:
                error = raised
        said, result = self.gather([error and str(error), result])[0]
        if said is not None:
            raise error or AlreadySaid(said)
        return result

    def first(self, work: Callable[[], object]):
        """The main process does the work, then each of the others does it too: one download, one cache written."""
        done = []
        self.once(lambda: done.append(work()))
        return done[0] if done else work()

    def wait(self) -> None:
        """Until all have come here."""
        self.gather(None)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process. All must ask at the same place; waits as long as training does."""
        if self.count == 1:
            return flag
        import torch
        import torch.distributed as dist

        flags = torch.tensor([int(flag)])  # on the CPU: the library's group has gloo beside NCCL
        dist.all_reduce(flags)
        return bool(flags.item())


ALONE = Processes()


def from_env(expected: int | None = None) -> Processes:
    """How many processes the launcher started, by RANK and WORLD_SIZE; they are not connected yet (see `start`).

    Raises WorkbookError where the count is not what was `expected`, or where `accelerate launch` was asked for several
    and has quietly started one.
    """
    env = os.environ
    try:
        count, index = int(env.get("WORLD_SIZE") or 1), int(env.get("RANK") or 0)
        if not 0 <= index < count:
            raise ValueError
    except ValueError:
        raise WorkbookError(
            f"WORLD_SIZE is {env.get('WORLD_SIZE')!r} and RANK is {env.get('RANK')!r}: a launcher sets them to whole "
            "numbers, RANK from 0 to WORLD_SIZE - 1; unset both for one process"
        ) from None
    how = (
        "start with `torchrun --nproc_per_node N -m grpo_workbook train ...` or a file of configs/"
    )
    if expected is not None and count != expected:
        raise WorkbookError(
            f"{count} process{'es' if count > 1 else ''} started and {expected} expected: {how}"
        )
    # For several processes accelerate sets an address where they meet; only then has it numbered them as well.
    if "ACCELERATE_MIXED_PRECISION" in env and "MASTER_ADDR" in env and "WORLD_SIZE" not in env:
        raise WorkbookError(
            "accelerate launch was asked for several processes and started one, as it does with --cpu and "
            f"MULTI_CPU: {how}"
        )
    return Processes(index, count)


@contextmanager
def start(
    processes: Processes,
    device: str,
    timeout: float | None = None,
    checkpoint: Callable[[], str | None] = lambda: None,
):
    """Connect the processes: yields them with their group. One alone is yielded as it is.

    Inside, a process that is lost (killed, or silent for `timeout` seconds in training) ends this one with a message
    and status 1, and so does the launcher's SIGTERM after another's end. `checkpoint` finds the last checkpoint, which
    the message names. The others' standard output goes nowhere.
    """
    if processes.count == 1:
        yield processes
        return
    import torch
    import torch.distributed as dist

    timeout = TIMEOUT[device] if timeout is None else timeout
    if (
        device == "cpu"
    ):  # accelerate would say cpu:0 and cpu:1, and torch.load knows no such place: no resuming then
        os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
    else:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    try:
        dist.init_process_group(
            "gloo" if device == "cpu" else "cuda:nccl,cpu:gloo", timeout=timedelta(seconds=timeout)
        )
    except (RuntimeError, ValueError) as error:
        raise WorkbookError(
            f"process {processes.index} of {processes.count} could not meet the others ({first_line(error)}): see "
            "whether all were started, and whether MASTER_ADDR and MASTER_PORT are right"
        ) from error
    if not processes.main:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (until the process ends)

    def end(why: str) -> None:
        # At once: what is left in the libraries' threads may wait for the lost process at a normal exit.
        print(f"error: {loss(processes, why, checkpoint())}", file=sys.stderr, flush=True)
        os._exit(1)

    def terminated(signum, frame):
        end(
            "the launcher ended it (SIGTERM): another process has ended, as its report says, or it was told to stop"
        )

    before = signal.signal(signal.SIGTERM, terminated)
    try:
        yield Processes(
            processes.index, processes.count, dist.new_group(backend="gloo", timeout=PATIENCE)
        )
        dist.destroy_process_group()
    except RuntimeError as error:
        if not is_loss(error):
            raise
        end(f"another process is gone, or was silent for {timeout:g} s ({first_line(error)})")
    finally:
        signal.signal(signal.SIGTERM, before)


def is_loss(error: BaseException) -> bool:
    """Whether an exception says that another process cannot be reached: gloo and NCCL have no type of their own."""
    from torch.distributed import DistError

    text = str(error)
    return isinstance(error, DistError) or "gloo/" in text or "Connection closed by peer" in text


def loss(processes: Processes, why: str, kept: str | None) -> str:
    """What a process says that ends because of another; `kept` is the last checkpoint."""
    goes_on = (
        f"The last checkpoint is {readable(kept)}; the same command with --resume goes on from there"
        if kept
        else "There is no checkpoint yet: start again with --overwrite"
    )
    return f"process {processes.index} of {processes.count} cannot go on: {why}. {goes_on}."
