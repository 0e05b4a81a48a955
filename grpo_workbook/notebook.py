"""Helpers for notebooks: show a function's source, silence libraries."""

import atexit
import gc
import inspect
import logging
import os
import warnings
from collections.abc import Callable


def show(*objects: Callable) -> None:
    """Display the source of functions or classes, so that a lesson always shows the real code."""
    from IPython.display import Code, display

    display(Code("\n\n".join(inspect.getsource(o).rstrip() for o in objects), language="python"))


def use_one_thread() -> None:
    """Compute with one thread, unless OMP_NUM_THREADS says otherwise: best for tiny models.

    Several threads would spin while they wait for one another, and slow down what runs beside.
    """
    import torch

    if os.environ.setdefault("OMP_NUM_THREADS", "1") == "1":
        torch.set_num_threads(1)


def quiet() -> None:
    """Load the libraries without bars and advice, and faster. Call it before `import unsloth`."""
    values = {"TOKENIZERS_PARALLELISM": "false", "TRANSFORMERS_VERBOSITY": "error"}
    values |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    os.environ |= {"DATASETS_VERBOSITY": "critical"} | values | os.environ  # what is set stays
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it suggests a download for 4-bit
    warnings.filterwarnings("ignore", category=FutureWarning)
    warnings.filterwarnings("ignore", message="IProgress not found")  # plain bars are enough
    gc.set_threshold(20_000)  # the libraries' million objects stay: to look for garbage in them
    atexit.register(gc.freeze)  # while they load, and at the end, takes two seconds
