"""Run llama.cpp's converter with a name for the pre-tokenizer where it knows none: gguf_driver.py CONVERTER NAME ...

A program of its own (see gguf.py), started with -P: the folder of this file must not be on the path, for its gguf.py
would hide llama.cpp's package of that name.
"""

import runpy
import sys
from pathlib import Path


def main() -> None:
    converter, name, *rest = sys.argv[1:]
    sys.path.insert(0, str(Path(converter).parent))
    sys.path.insert(1, str(Path(converter).parent / "gguf-py"))
    from conversion.base import TextModel

    known = TextModel.get_vocab_base_pre

    def get_vocab_base_pre(self, tokenizer) -> str:
        try:
            return known(self, tokenizer)
        except NotImplementedError:
            return name

    TextModel.get_vocab_base_pre = get_vocab_base_pre
    sys.argv = [converter, *rest]
    runpy.run_path(converter, run_name="__main__")


if __name__ == "__main__":
    main()
