"""Run llama.cpp's converter, and tell it what it cannot know: gguf_driver.py CONVERTER JSON ARGUMENTS...

JSON: {"pre_tokenizer": llama.cpp's name for it, where the converter knows none, "gemma_layers": see gguf.py}.
A program of its own, started with -P: the folder of this file must not be on the path, for its gguf.py would hide
llama.cpp's package of that name.
"""

import json
import runpy
import sys
from pathlib import Path


def main() -> None:
    """Run the converter of the command line in this process, with two of its methods told what is known."""
    converter, known, *rest = sys.argv[1:]
    known = json.loads(known)
    sys.path.insert(0, str(Path(converter).parent))
    sys.path.insert(1, str(Path(converter).parent / "gguf-py"))
    from conversion.base import TextModel
    from conversion.gemma import Gemma3Model

    their_pre, their_parameters = TextModel.get_vocab_base_pre, Gemma3Model.set_gguf_parameters

    def get_vocab_base_pre(self, tokenizer) -> str:
        try:
            return their_pre(self, tokenizer)
        except NotImplementedError:
            if known["pre_tokenizer"] is None:
                raise
            return known["pre_tokenizer"]

    def set_gguf_parameters(self) -> None:
        their_parameters(self)
        if known["gemma_layers"] is not None:
            self.gguf_writer.add_sliding_window_pattern(known["gemma_layers"])

    TextModel.get_vocab_base_pre = get_vocab_base_pre
    Gemma3Model.set_gguf_parameters = set_gguf_parameters
    sys.argv = [converter, *rest]
    runpy.run_path(converter, run_name="__main__")


if __name__ == "__main__":
    main()
