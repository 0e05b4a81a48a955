"""Helpers for notebooks: show a function's source, silence libraries."""

import inspect
import logging
import os
import warnings
from collections.abc import Callable


def show(*objects: Callable) -> None:
    """Display the source of functions or classes, so that a lesson always shows the real code."""
    from IPython.display import Code, display

    display(Code("\n\n".join(inspect.getsource(o).rstrip() for o in objects), language="python"))


def quiet() -> None:
    """Turn off the libraries' loading bars and advice. Call it before `import unsloth`."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("DATASETS_VERBOSITY", "critical")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it suggests a download for 4-bit
    warnings.filterwarnings("ignore", category=FutureWarning)
    warnings.filterwarnings("ignore", message="IProgress not found")  # plain bars are enough
