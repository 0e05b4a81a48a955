"""The tiny models: small and safe folders, tokenizers that lose nothing, chats of their family."""

import json
import re
import sys
from pathlib import Path

import pytest
from conftest import REPO

from grpo_workbook.config import SYSTEM_PROMPT
from grpo_workbook.data import chat_prompt

sys.path.insert(0, str(REPO / "data"))
from build_tiny_models import make_tokenizer, tokenizer_texts

FOLDERS = {"qwen": REPO / "data" / "tiny-qwen3", "gemma": REPO / "data" / "tiny-gemma3"}
FORM = REPO / "data" / "tiny-form"
VISION = REPO / "data" / "tiny-vision"
THINKER, RAMBLER = REPO / "data" / "tiny-thinker", REPO / "data" / "tiny-rambler"


@pytest.mark.parametrize("folder", [*FOLDERS.values(), FORM, VISION, THINKER, RAMBLER])
def test_the_folder_is_small_and_safe_and_has_a_card(folder):
    files = [f for f in folder.rglob("*") if f.is_file()]
    assert sum(f.stat().st_size for f in files) < 4_000_000
    assert {f.suffix for f in files} <= {".safetensors", ".json", ".jinja", ".md"}
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlicense: apache-2.0")


@pytest.mark.parametrize("family", FOLDERS)
def test_the_script_makes_the_stored_tokenizer(tmp_path, family):
    make_tokenizer(family, tokenizer_texts()).save_pretrained(tmp_path)
    names = {made.name for made in tmp_path.iterdir()}
    assert names == {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}
    for name in names:
        assert (tmp_path / name).read_bytes() == (FOLDERS[family] / name).read_bytes(), name


@pytest.mark.parametrize(("family", "kind"), [("qwen", "qwen3"), ("gemma", "gemma3_text")])
def test_models_are_of_their_family(tiny, family, kind):
    model, _ = tiny[family]
    assert (
        model.config.model_type
        == kind
        == json.loads((FOLDERS[family] / "config.json").read_text())["model_type"]
    )
    assert model.config.hidden_size >= 64  # narrower layers cannot be quantized to 4 bits


@pytest.mark.parametrize("family", FOLDERS)
@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "naïve café",
        "数学 ٣",
        "🦥 emoji\u200d",
        "\x00\x07 control",
        "a\tb\r\nc  d ",
        "1,234.5",
    ],
)
def test_any_text_survives_the_tokenizer(tiny, family, text):
    _, tokenizer = tiny[family]
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("family", FOLDERS)
def test_digits_stand_apart(tiny, family):
    _, tokenizer = tiny[family]
    assert tokenizer.tokenize("2026") == ["2", "0", "2", "6"]
    assert [token for token in tokenizer.get_vocab() if re.search(r"\d.*\d", token)] == []


def test_chat_templates_are_like_the_family_s_own(tiny):
    messages = [
        *chat_prompt("How many?"),
        {"role": "assistant", "content": "5"},
        {"role": "user", "content": "Sure?"},
    ]

    def shown(family):
        return tiny[family][1].apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )

    assert shown("qwen") == (
        f"<|im_start|>system\n{SYSTEM_PROMPT}<|im_end|>\n<|im_start|>user\nHow many?<|im_end|>\n"
        "<|im_start|>assistant\n5<|im_end|>\n<|im_start|>user\nSure?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert shown("gemma") == (
        f"<bos><start_of_turn>user\n{SYSTEM_PROMPT}\n\nHow "
        "many?<end_of_turn>\n<start_of_turn>model\n5"
        "<end_of_turn>\n<start_of_turn>user\nSure?<end_of_turn>\n<start_of_turn>model\n"
    )


@pytest.mark.parametrize("family", FOLDERS)
def test_the_end_of_turn_ends_generation(tiny, family):
    model, tokenizer = tiny[family]
    assert tokenizer.eos_token == {"qwen": "<|im_end|>", "gemma": "<end_of_turn>"}[family]
    assert model.generation_config.eos_token_id in (
        tokenizer.eos_token_id,
        [tokenizer.eos_token_id],
    )
    assert tokenizer.pad_token_id not in (None, tokenizer.eos_token_id)


def test_what_the_tiny_models_learn_from_is_only_the_tiny_pool(monkeypatch):
    import random
    import sys

    sys.path.insert(0, str(REPO / "data"))
    import build_tiny_form as form
    import build_tiny_models as models
    import build_word_problems as words

    course = set()
    for split in words.SIZES:
        course.update((p.template, p.operands) for p in words.build(split))
    drawn = []

    def write_problem(rng, template, operands):
        drawn.append(words.Problem(template.name, operands, "", ()))
        return words_write_problem(rng, template, operands)

    words_write_problem = words.write_problem
    for module in (words, models):  # draw_problem is of `words`
        monkeypatch.setattr(module, "write_problem", write_problem)
    examples = models.rare_examples(models.DRAW)
    tokenizer = models.make_tokenizer("qwen", models.tokenizer_texts())
    rng = random.Random(1)
    models.answer_batch(tokenizer, rng, 200, examples)
    form.problem_batch(tokenizer, rng, 200, form.habit)
    assert len(drawn) > 3000
    for problem in drawn:
        assert words.pool_of(problem.template, problem.operands) == "tiny"
    assert not {(p.template, p.operands) for p in drawn} & course


def test_the_rare_kinds_have_four_examples_each_and_the_common_ones_new_problems():
    import random
    import sys
    from collections import Counter

    sys.path.insert(0, str(REPO / "data"))
    import build_tiny_models as models

    examples = models.rare_examples(models.DRAW)
    counts = Counter(problem.template for problem in examples)
    assert counts == dict.fromkeys(models.RARE_KINDS, 4)
    assert len({(p.template, p.operands) for p in examples}) == len(examples)
    rng = random.Random(1)
    common = [models.common_problem(rng) for _ in range(500)]
    assert not any(problem.rare for problem in common)
    assert len({problem.template for problem in common}) == 10
    # Nothing is weakened: every answer that is learned from is right, in the asked form.
    for problem in [*examples, *common]:
        assert models.right_answer(problem).endswith(f"<answer>{problem.result}</answer>")


def test_the_thinker_is_tiny_steps_with_the_template_of_qwen3(tmp_path, monkeypatch):
    import build_tiny_thinker
    import trl

    monkeypatch.setattr(build_tiny_thinker, "THINKER", tmp_path / "made")
    build_tiny_thinker.make_thinker()
    for made in (tmp_path / "made").iterdir():
        assert made.read_bytes() == (THINKER / made.name).read_bytes(), made.name
    steps = REPO / "data" / "tiny-steps" / "model.safetensors"
    assert (THINKER / "model.safetensors").read_bytes() == steps.read_bytes()
    template = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
    assert (THINKER / "chat_template.jinja").read_text() == template.read_text()


@pytest.mark.parametrize("folder", [THINKER, RAMBLER])
def test_a_thought_is_written_as_the_template_writes_it(folder):
    from build_tiny_thinker import written

    from grpo_workbook.data import load_tokenizer

    tokenizer = load_tokenizer(folder)
    question = {"role": "user", "content": "Add 57 and 68."}
    prompt = tokenizer.apply_chat_template([question], tokenize=False, add_generation_prompt=True)
    for times in (0, 1, 2):
        answer = written(57, 68, times)
        turn = {"role": "assistant", "content": answer}
        row = tokenizer.apply_chat_template([question, turn], tokenize=False)
        assert row == f"{prompt}{answer}<|im_end|>\n"
    tags = [
        tokenizer.decode([token]).strip()
        for token in tokenizer("<think>\n1\n</think>\n\n")["input_ids"]
    ]
    assert tags == ["<think>", "1", "</think>"]
