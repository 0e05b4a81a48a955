"""Where `make gguf` has built llama.cpp: its converter, and its tokens against Transformers'."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPO, environment

from grpo_workbook.data import WORD_PROBLEMS, chat_prompt, load_problems, render
from grpo_workbook.evaluation import end_tokens, generate

TINY = {"qwen": REPO / "data" / "tiny-qwen3", "gemma": REPO / "data" / "tiny-gemma3"}
BUILT = REPO / ".venv-gguf"
SOURCES = [Path(os.environ.get("LLAMA_CPP", "/none")), *BUILT.glob("src/*/vendor/llama.cpp")]
CONVERTER = next((p for f in SOURCES if (p := f / "convert_hf_to_gguf.py").is_file()), None)
HINT = "llama.cpp is not here (make gguf compiles it, in minutes, once)"
source = pytest.mark.skipif(CONVERTER is None, reason=HINT)
built = pytest.mark.skipif(not (BUILT / ".installed").exists(), reason=HINT)


def convert(program, family, output, kind="f16"):
    options = [TINY[family], "--outfile", output, "--outtype", kind]
    command = [sys.executable, *map(str, [*program, *options])]
    return subprocess.run(command, env=environment(), capture_output=True, text=True)


@source
def test_the_converter_refuses_a_tokenizer_that_it_does_not_know(tmp_path):
    """As chapter 09 says: better no file than one whose tokens are other ones."""
    result = convert([CONVERTER], "qwen", tmp_path / "model.gguf")
    assert result.returncode != 0
    assert "BPE pre-tokenizer was not recognized" in result.stderr


@source
def test_the_tiny_models_split_text_by_the_rule_that_is_named():
    """ "ufakzeka", letter for letter: Qwen's rule without English contractions."""
    rules = {}
    for family, folder in TINY.items():
        found = json.loads((folder / "tokenizer.json").read_text())["pre_tokenizer"]
        rules[family] = found["pretokenizers"][0]["pattern"]["Regex"]
    vocabulary = (CONVERTER.parent / "src" / "llama-vocab.cpp").read_text()
    case = vocabulary.split("LLAMA_VOCAB_PRE_TYPE_UFAKZEKA:")[1].split("break;")[0]
    for rule in rules.values():
        assert json.dumps(rule) in case


@source
@pytest.mark.parametrize("family", ["qwen", "gemma"])
def test_it_converts_what_it_is_told(tmp_path, family):
    driver = REPO / "tests" / "gguf_driver.py"
    result = convert([driver, CONVERTER], family, tmp_path / "model.gguf")
    assert result.returncode == 0, result.stderr[-2000:]
    with (tmp_path / "model.gguf").open("rb") as file:
        assert file.read(4) == b"GGUF"


LLAMA = """
import json, sys
from llama_cpp import Llama
job = json.load(sys.stdin)
llm = Llama(job["model"], n_ctx=512, n_threads=1, verbose=False)
found = []
for text in job["texts"]:
    ids = llm.tokenize(text.encode(), add_bos=False, special=True)
    new = []
    llm.reset()
    for token in llm.generate(ids, temp=0.0, top_k=1, repeat_penalty=1.0):
        new.append(token)
        if token in job["ends"] or len(new) == job["limit"]:
            break
    found.append([ids, new])
json.dump(found, sys.stdout)
"""


@built
@pytest.mark.parametrize(("family", "kind"), [("qwen", "f16"), ("gemma", "f16"), ("qwen", "q8_0")])
def test_llama_cpp_reads_and_writes_the_same_tokens(tiny, family, kind, tmp_path):
    model, tokenizer = tiny[family]
    output = tmp_path / "model.gguf"
    result = convert([REPO / "tests" / "gguf_driver.py", CONVERTER], family, output, kind)
    assert result.returncode == 0, result.stderr[-2000:]
    rows = load_problems(WORD_PROBLEMS["heldout"]).select(range(24))
    prompts = [chat_prompt(question) for question in rows["question"]]
    texts, ends = render(prompts, tokenizer), end_tokens(model, tokenizer)
    job = json.dumps({"model": str(output), "texts": texts, "ends": ends, "limit": 64})
    run, how = [BUILT / "bin" / "python", "-c", LLAMA], {"capture_output": True, "text": True}
    result = subprocess.run(run, input=job, env=environment(), **how)
    assert result.returncode == 0, result.stderr[-2000:]
    found = json.loads(result.stdout)
    read = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    assert [ids for ids, _ in found] == read
    ours = generate(model, tokenizer, prompts, max_new_tokens=64)
    theirs = [tokenizer.decode(new, skip_special_tokens=True) for _, new in found]
    same = sum(a == b for a, b in zip(ours, theirs, strict=True))
    # a near-tie may turn in 16 bits, several in 8
    assert same >= len(texts) - (1 if kind == "f16" else 3)
