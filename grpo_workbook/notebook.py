"""What notebooks need beside the lesson: a helper's source on the page, and no flood of output."""

import inspect
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder


def show(*objects: Callable) -> None:
    """Display the source of functions or classes, so that a lesson's text can never drift from its code."""
    from IPython.display import Code, display

    display(Code("\n\n".join(inspect.getsource(o).rstrip() for o in objects), language="python"))


class _ShortBanner(MetaPathFinder):
    """Without a GPU `import unsloth` prints a line of 240 columns: what stands before its brackets is the news."""

    MODULE = "unsloth._cpu_init"

    def find_spec(self, name, path=None, target=None):
        spec = PathFinder.find_spec(name, path, target) if name == self.MODULE else None
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                # hides the built-in one from this module alone
                module.print = lambda *said, **how: print(*(str(text).partition(" (")[0] for text in said), **how)
                execute(module)
                del module.print

            spec.loader.exec_module = exec_module
        return spec


def quiet() -> None:
    """No loading bars, no advice, short banners: the course's own bars stay. Call it before `import unsloth`."""
    import logging
    import os
    import warnings

    for name, value in {
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TRANSFORMERS_VERBOSITY": "error",
    }.items():
        os.environ.setdefault(name, value)
    if not any(isinstance(finder, _ShortBanner) for finder in sys.meta_path):
        sys.meta_path.insert(0, _ShortBanner())
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it advises a download for 4-bit kernels
    warnings.filterwarnings("ignore", category=FutureWarning)
    warnings.filterwarnings("ignore", message="IProgress not found")  # tqdm's plain bars are what we want
