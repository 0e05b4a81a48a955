"""What processes.py gives, asked in two real gloo processes without a model: see test_processes.py."""

import json
import os
import sys
import time

from grpo_workbook.errors import WorkbookError
from grpo_workbook.processes import from_env, start

what = sys.argv[1]
done = []


def work():
    done.append(os.getpid())
    return {"by": os.environ["RANK"]}


def fail():
    raise WorkbookError("the file 'x' is missing")


with start(
    from_env(2), "cpu", timeout=5, checkpoint=lambda: "outputs/run/checkpoints/checkpoint-25"
) as processes:
    if what == "pieces":
        found = {
            "gathered": processes.gather([processes.index, "é" * processes.index, None]),
            "once": processes.once(work),
            "worked": len(done),
            "any": [processes.any(False), processes.any(processes.index == 1)],
        }
        processes.first(work)
        found["worked in the end"] = len(done)
        try:
            processes.once(fail)
        except WorkbookError as error:
            found["error"] = [type(error).__name__, str(error)]
        print("said by the main one")
        os.write(
            2, f"{json.dumps(found)}\n".encode()
        )  # in one piece: the other process writes there too
    if what == "hang":
        if processes.index == 1:
            time.sleep(300)
        processes.any(False)
    if what == "bad input":
        processes.once(fail)
