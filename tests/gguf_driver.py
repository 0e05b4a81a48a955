"""llama.cpp's converter, told what it cannot know of the tiny models: gguf_driver.py CONVERTER ...

It names a pre-tokenizer by a hash of what the tokenizer makes of one text, vocabulary and all, so
it knows none of one's own. The tiny models split text by the rule that llama.cpp calls "ufakzeka",
letter for letter. And of Gemma 3 it does not write down which layers' attention slides: llama.cpp
then takes five of six, and a model with another pattern loads and answers wrongly.
"""

import runpy
import sys
from pathlib import Path


def main() -> None:
    """Run the converter of the command line in this process, with two of its methods told so."""
    converter = Path(sys.argv[1])
    sys.path[:1] = [str(converter.parent), str(converter.parent / "gguf-py")]
    from conversion.base import TextModel
    from conversion.gemma import Gemma3Model

    their_pre, their_parameters = TextModel.get_vocab_base_pre, Gemma3Model.set_gguf_parameters

    def get_vocab_base_pre(self, tokenizer) -> str:
        try:
            return their_pre(self, tokenizer)
        except NotImplementedError:
            return "ufakzeka"

    def set_gguf_parameters(self) -> None:
        their_parameters(self)
        slides = [kind == "sliding_attention" for kind in self.hparams["layer_types"]]
        self.gguf_writer.add_sliding_window_pattern(slides)

    TextModel.get_vocab_base_pre = get_vocab_base_pre
    Gemma3Model.set_gguf_parameters = set_gguf_parameters
    sys.argv = sys.argv[1:]
    runpy.run_path(str(converter), run_name="__main__")


main()
