"""What notebooks need beside the lesson: a helper's source on the page, and no flood of output."""

import inspect
from collections.abc import Callable


def show(*objects: Callable) -> None:
    """Display the source of functions or classes, so that a lesson's text can never drift from its code."""
    from IPython.display import Code, display

    display(Code("\n\n".join(inspect.getsource(o).rstrip() for o in objects), language="python"))


def quiet() -> None:
    """No loading bars and no advice from the libraries: the course's own bars stay. Call it before `import unsloth`."""
    import logging
    import os
    import warnings

    for name, value in {
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TRANSFORMERS_VERBOSITY": "error",
    }.items():
        os.environ.setdefault(name, value)
    logging.getLogger("bitsandbytes").setLevel(
        logging.ERROR
    )  # it advises a download for 4-bit kernels
    warnings.filterwarnings("ignore", category=FutureWarning)
    warnings.filterwarnings(
        "ignore", message="IProgress not found"
    )  # tqdm's plain bars are what we want
