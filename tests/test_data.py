import json

import pytest

from grpo_workbook.data import (
    WORD_PROBLEMS,
    added_system_text,
    chat_prompt,
    drop_long_prompts,
    fold_system,
    needs_folding,
    prompt_lengths,
    read_problems,
    render,
    sha256_of,
    system_role,
    to_dataset,
    token_boundaries,
)
from grpo_workbook.errors import WorkbookError
from grpo_workbook.problems import load

ROW = {"question": "How many?", "answer": "2 + 3 = 5\n#### 5"}


def test_a_small_file_as_a_list():
    rows = read_problems(WORD_PROBLEMS["heldout"])
    assert rows[0] == {
        "question": rows[0]["question"],
        "answer": "23",
        "solution": "29 - 6 = <<29-6=23>>23\n#### 23",
    }
    assert len(rows) == 480


def test_dataset_has_what_trl_and_the_rewards_read():
    from_list = to_dataset(read_problems(WORD_PROBLEMS["heldout"]))
    dataset = to_dataset(load(WORD_PROBLEMS["heldout"]).dataset)
    assert from_list.to_list() == dataset.to_list()
    assert dataset.column_names == ["prompt", "answer", "question", "solution"]
    assert dataset[0]["prompt"] == chat_prompt(dataset[0]["question"])
    assert [m["role"] for m in dataset[0]["prompt"]] == ["system", "user"]


def test_other_columns_come_along_behind():
    rows = [{"level": 3, **ROW, "topic": "sums"}]
    assert to_dataset(load(rows).dataset).column_names == [
        "prompt",
        "answer",
        "question",
        "solution",
        "level",
        "topic",
    ]


def test_examples_stand_between_system_prompt_and_question():
    one = [("1+1?", "<answer>2</answer>")]
    assert chat_prompt("2+2?", "Be brief.", one) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "<answer>2</answer>"},
        {"role": "user", "content": "2+2?"},
    ]
    assert [m["role"] for m in chat_prompt("2+2?", None, one * 2)] == ["user", "assistant"] * 2 + [
        "user"
    ]
    dataset = to_dataset([{"question": "2+2?", "answer": "4"}], "Be brief.", one, fold=True)
    assert [m["role"] for m in dataset[0]["prompt"]] == ["user", "assistant", "user"]
    assert dataset[0]["prompt"][0]["content"] == "Be brief.\n\n1+1?"
    assert fold_system(chat_prompt("2+2?", None)) == chat_prompt("2+2?", None)


SYSTEM_OF_ITS_OWN = "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\nYou are helpful.<|im_end|>\n' }}{% endif %}"
REFUSES = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"


def test_what_a_template_does_with_a_system_message(tiny):
    import copy

    assert system_role(tiny["qwen"][1]) == "own turn"
    assert system_role(tiny["gemma"][1]) == "in the user's turn"
    assert added_system_text(tiny["qwen"][1]) == added_system_text(tiny["gemma"][1]) == ""
    tokenizer = copy.deepcopy(tiny["qwen"][1])
    plain = tokenizer.chat_template
    tokenizer.chat_template = SYSTEM_OF_ITS_OWN + plain
    assert system_role(tokenizer) == "own turn"
    assert added_system_text(tokenizer) == "<|im_start|>system\nYou are helpful."
    tokenizer.chat_template = REFUSES + plain
    assert system_role(tokenizer) == "refused"
    assert needs_folding(tokenizer)
    assert not needs_folding(tiny["gemma"][1])
    text = render([fold_system(chat_prompt("How many?", "Be brief."))], tokenizer)[0]
    assert "user\nBe brief.\n\nHow many?" in text
    tokenizer.chat_template = plain.replace(
        "in messages", "in messages if message.role != 'system'"
    )
    assert system_role(tokenizer) == "ignored"


@pytest.mark.parametrize("family", ["qwen", "gemma"])
def test_token_boundaries_mark_every_token_and_lose_nothing(tiny, family):
    _, tokenizer = tiny[family]
    text = render([chat_prompt("Ana has 12 shells.")], tokenizer)[0]
    marked = token_boundaries(text, tokenizer)
    count = len(tokenizer(text, add_special_tokens=False)["input_ids"])
    assert len(token_boundaries(text, tokenizer, mark="\x01").split("\x01")) == count
    assert token_boundaries(text, tokenizer, mark="").replace("\\n\n", "\n") == text
    assert "|1|2|" in marked


@pytest.mark.parametrize("family", ["qwen", "gemma"])
def test_long_prompts_are_dropped_and_counted(tiny, family):
    _, tokenizer = tiny[family]
    rows = [
        *read_problems(WORD_PROBLEMS["heldout"])[:20],
        {"question": "word " * 500, "answer": "1", "solution": "1"},
    ]
    dataset = to_dataset(rows)
    lengths = prompt_lengths(dataset, tokenizer)
    assert list(lengths) == [
        len(tokenizer.apply_chat_template(p, add_generation_prompt=True)["input_ids"])
        for p in dataset["prompt"]
    ]
    kept, dropped = drop_long_prompts(dataset, tokenizer, 160)
    assert dropped == 1
    assert kept["question"][:] == dataset["question"][:20]
    with pytest.raises(WorkbookError, match="every prompt of the data is longer than 5 tokens"):
        drop_long_prompts(dataset, tokenizer, 5)


def test_rows_that_make_no_dataset_are_named(tiny):
    with pytest.raises(
        WorkbookError, match="no column 'question' and no 'answer' \\(columns: none\\)"
    ):
        to_dataset([])
    with pytest.raises(
        WorkbookError, match="no column 'answer' \\(columns: 'question', 'Answer'\\): rename"
    ):
        to_dataset([{"question": "2+3?", "Answer": "5"}])
    with pytest.raises(WorkbookError, match="the data has no rows"):
        drop_long_prompts(to_dataset([ROW]).select([]), tiny["qwen"][1], 160)


def test_hash_follows_the_content():
    assert sha256_of([ROW]) == sha256_of([dict(reversed(ROW.items()))]) != sha256_of([ROW, ROW])
    assert sha256_of([ROW], [ROW]) == sha256_of([ROW, ROW])
    rows = load(WORD_PROBLEMS["heldout"]).dataset
    import hashlib

    whole = json.dumps(rows.to_list(), sort_keys=True, ensure_ascii=False)
    assert sha256_of(rows) == hashlib.sha256(whole.encode()).hexdigest()


def test_reading_says_what_is_wrong(tmp_path):
    with pytest.raises(WorkbookError, match="does not exist"):
        read_problems(tmp_path / "none.jsonl")
