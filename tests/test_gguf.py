"""GGUF: what is refused and why; and, where `make gguf` has built llama.cpp, its own tokens against Transformers'."""

import json
import os
import shutil
import subprocess

import pytest
from conftest import REPO, cli, environment

from grpo_workbook.cli import gguf
from grpo_workbook.data import WORD_PROBLEMS, chat_prompt, load_problems, render
from grpo_workbook.errors import WorkbookError
from grpo_workbook.evaluation import complete, end_tokens, ready, sampling

TINY = {"qwen": REPO / "data" / "tiny-qwen3", "gemma": REPO / "data" / "tiny-gemma3"}
BUILT = REPO / ".venv-gguf"
built = pytest.mark.skipif(
    not (BUILT / ".installed").exists(),
    reason="llama.cpp is not built here (make gguf; it takes minutes, once)",
)


@pytest.fixture
def no_converter(monkeypatch, tmp_path):
    monkeypatch.setattr(gguf, "REPO", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("LLAMA_CPP", raising=False)


@pytest.fixture
def converter(tmp_path):
    """A program in the converter's place: it does what the test writes into it."""
    folder = tmp_path / "llama.cpp"
    folder.mkdir()

    def write(code):
        (folder / gguf.CONVERTER).write_text(code)
        return folder

    return write


@pytest.fixture
def plain(tmp_path):
    """A model whose pre-tokenizer has no name here, so that the converter is called as it is."""
    folder = shutil.copytree(TINY["qwen"], tmp_path / "plain")
    words = json.loads((folder / "tokenizer.json").read_text())
    words["normalizer"] = {"type": "NFC"}
    (folder / "tokenizer.json").write_text(json.dumps(words))
    return folder


def test_without_the_converter_the_command_that_gets_it_is_named(no_converter, tmp_path):
    with pytest.raises(
        WorkbookError, match=r"git clone --depth 1 https://github\.com/ggml-org/llama\.cpp"
    ):
        gguf.to_gguf(TINY["qwen"], tmp_path / "model.gguf")
    with pytest.raises(WorkbookError, match="holds no convert_hf_to_gguf.py"):
        gguf.to_gguf(TINY["qwen"], tmp_path / "model.gguf", llama_cpp=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_converter_is_found_by_option_variable_and_path(converter, monkeypatch, tmp_path):
    folder = converter("#!/usr/bin/env python3\n")
    script = folder / gguf.CONVERTER
    assert gguf.find_converter(folder) == gguf.find_converter(script) == script
    monkeypatch.setenv("LLAMA_CPP", str(folder))
    assert gguf.find_converter() == script
    monkeypatch.delenv("LLAMA_CPP")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    assert gguf.find_converter() == script


def test_bad_input_is_named_before_the_converter_is_asked(tmp_path):
    result = cli(
        "export-gguf",
        TINY["qwen"],
        "--output",
        tmp_path / "m",
        "--type",
        "q9",
        PATH=os.environ["PATH"],
    )
    assert result.returncode == 2
    assert "unknown type 'q9': choose one of f16" in result.stderr
    (tmp_path / "there.gguf").write_text("mine")
    result = cli("export-gguf", TINY["qwen"], "--output", tmp_path / "there.gguf")
    assert "is there already" in result.stderr
    home = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    result = cli(
        "export-gguf", TINY["qwen"], "--output=~/there.gguf", **home
    )  # which no shell reads
    assert "is there already" in result.stderr
    assert (tmp_path / "there.gguf").read_text() == "mine"
    for name, files, words in (
        ("adapter", {"adapter_config.json": "{}"}, "is an adapter: merge it first"),
        ("empty", {}, "holds no model"),
        ("list", {"config.json": "[]"}, "holds no model"),
        ("deep", {"config.json": "[" * 100_000}, "holds no model"),
        (
            "small",
            {"config.json": '{"quantization_config": {"load_in_4bit": true}}'},
            "holds quantized weights",
        ),
        (
            "pickled",
            {"config.json": "{}", "pytorch_model.bin": ""},
            "pickled weights are not converted",
        ),
    ):
        (tmp_path / name).mkdir()
        for file, text in files.items():
            (tmp_path / name / file).write_text(text)
        with pytest.raises(WorkbookError, match=words):
            gguf.to_gguf(tmp_path / name, tmp_path / "model.gguf")


def test_what_the_converter_refuses_leaves_no_file(converter, plain, tmp_path):
    folder = converter(
        "import sys; sys.exit('NotImplementedError: BPE pre-tokenizer was not recognized')"
    )
    with pytest.raises(WorkbookError, match="does not know how .* splits text"):
        gguf.to_gguf(plain, tmp_path / "model.gguf", llama_cpp=folder)
    folder = converter(
        "import sys; open(sys.argv[3], 'w').write('half'); sys.exit('no space left on device')"
    )
    with pytest.raises(WorkbookError, match="could not convert .*: no space left on device"):
        gguf.to_gguf(plain, tmp_path / "model.gguf", llama_cpp=folder)
    folder = converter("import sys; open(sys.argv[3], 'w').write('not what it should be')")
    with pytest.raises(WorkbookError, match="could not convert .*: no word"):
        gguf.to_gguf(plain, tmp_path / "model.gguf", llama_cpp=folder)
    assert not [p.name for p in tmp_path.iterdir() if "gguf" in p.name]


def test_a_rule_has_a_name_only_where_it_is_the_same_letter_for_letter(plain):
    assert [gguf.pre_tokenizer(folder) for folder in TINY.values()] == ["ufakzeka", "ufakzeka"]
    assert gguf.pre_tokenizer(plain) is None
    words = json.loads((TINY["qwen"] / "tokenizer.json").read_text())
    pattern = words["pre_tokenizer"]["pretokenizers"][0]["pattern"]
    for rule, name in (
        ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|" + pattern["Regex"], "qwen2"),
        (pattern["Regex"].replace(r"\p{N}|", r"\p{N}{1,3}|"), None),
    ):
        pattern["Regex"], before = rule, pattern["Regex"]
        (plain / "tokenizer.json").write_text(json.dumps(words))
        assert gguf.pre_tokenizer(plain) == name
        pattern["Regex"] = before


def test_the_layers_of_gemma_are_told_where_they_are_not_every_sixth(tmp_path):
    assert gguf.gemma_layers(TINY["qwen"]) is None
    assert gguf.gemma_layers(TINY["gemma"]) == [True, True, True, False]
    config = json.loads((TINY["gemma"] / "config.json").read_text())
    config["layer_types"] = (["sliding_attention"] * 5 + ["full_attention"]) * 2
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert gguf.gemma_layers(tmp_path) is None
    config["rope_parameters"]["sliding_attention"]["rope_theta"] = 5000.0
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(WorkbookError, match="turns its sliding layers at 5000"):
        gguf.gemma_layers(tmp_path)


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
    result = cli("export-gguf", TINY[family], "--output", tmp_path / "model.gguf", "--type", kind)
    assert result.returncode == 0, result.stderr
    rows = load_problems(WORD_PROBLEMS["heldout"]).select(range(24))
    texts = render([chat_prompt(row["question"]) for row in rows], tokenizer)
    job = {
        "model": str(tmp_path / "model.gguf"),
        "texts": texts,
        "ends": end_tokens(model, tokenizer),
        "limit": 64,
    }
    run = [BUILT / "bin" / "python", "-c", LLAMA]
    result = subprocess.run(
        run, input=json.dumps(job), capture_output=True, text=True, env=environment()
    )
    assert result.returncode == 0, result.stderr[-2000:]
    found = json.loads(result.stdout)
    assert [ids for ids, _ in found] == [
        tokenizer(t, add_special_tokens=False)["input_ids"] for t in texts
    ]
    with ready(model, tokenizer):
        ours = complete(model, tokenizer, texts, max_new_tokens=64, how=sampling(0))
    theirs = [tokenizer.decode(new, skip_special_tokens=True) for _, new in found]
    same = sum(a.text == b for a, b in zip(ours, theirs, strict=True))
    assert same >= len(texts) - (
        1 if kind == "f16" else 3
    )  # a near-tie may turn in 16 bits, several in 8
