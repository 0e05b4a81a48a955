"""Helpers for notebooks: show a function's source, silence libraries, compute with one thread."""

import atexit
import gc
import inspect
import logging
import os
import warnings
from collections.abc import Callable

# Set by `quiet` where the environment says nothing else.
QUIET_SETTINGS = {
    "DATASETS_VERBOSITY": "critical",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
}


def show(*objects: Callable) -> None:
    """Display the source of functions or classes, so that a lesson always shows the real code."""
    from IPython.display import Code, display

    sources = [inspect.getsource(item).rstrip() for item in objects]
    display(Code("\n\n".join(sources), language="python"))


def use_one_thread() -> None:
    """Compute with one thread, unless OMP_NUM_THREADS says otherwise: best for tiny models.

    Several threads would spin while they wait for one another, and slow down what runs beside.
    """
    import torch

    if os.environ.setdefault("OMP_NUM_THREADS", "1") == "1":
        torch.set_num_threads(1)


def quiet() -> None:
    """Load the libraries without bars and advice, and faster. Call it before `import unsloth`."""
    for name, value in QUIET_SETTINGS.items():
        os.environ.setdefault(name, value)
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it suggests a download for 4-bit
    warnings.filterwarnings("ignore", category=FutureWarning)
    warnings.filterwarnings("ignore", message="IProgress not found")  # plain bars are enough
    # The libraries make a million objects, which stay. To look for garbage among them takes two
    # seconds, while they load and once more when the process ends.
    gc.set_threshold(20_000)
    atexit.register(gc.freeze)
