"""What together.py gives, in two real gloo processes without a model (test_cli_together.py)."""

import json
import os
import sys

from accelerate import PartialState

from grpo_workbook.cli.together import is_main, once, together
from grpo_workbook.errors import WorkbookError

done = []


def work():
    done.append(os.getpid())
    return {"by": os.environ["RANK"], "text": "é"}


def fail():
    raise WorkbookError("the file 'x' is missing")


with together("cpu"):
    if sys.argv[1] == "loss":
        if not is_main():
            os._exit(9)  # as if it was killed
        once(work)
        once(work)
    found = {"once": once(work), "worked": len(done)}
    with PartialState().main_process_first():  # as a run loads its data
        work()
    found["worked in the end"] = len(done)
    try:
        once(fail)
    except (WorkbookError, SystemExit) as error:
        found["error"] = [type(error).__name__, str(error)]
    print("said by the main one")
    os.write(2, f"{json.dumps(found)}\n".encode())  # in one piece: the other writes there too
