import json

import pytest

from grpo_workbook.data import (
    WORD_PROBLEMS,
    chat_prompt,
    drop_leaked,
    drop_long_prompts,
    prompt_lengths,
    read_problems,
    sha256_of,
    split_rows,
    to_dataset,
)
from grpo_workbook.run import WorkbookError

ROW = {"question": "How many?", "answer": "2 + 3 = 5\n#### 5"}


def write(path, *lines):
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "is empty"),
        (["", "  "], "is empty"),
        ([ROW, "{broken"], "line 2: not JSON"),
        ([ROW, ROW, "[1, 2]"], "line 3: a list, not a JSON object"),
        ([{"answer": "5"}], r"line 1: no 'question' among \['answer'\]"),
        ([{"question": "q"}], r"line 1: no 'answer' among \['question'\]"),
        ([ROW, {"question": "q", "answer": "a lot"}], "line 2: no number in the answer 'a lot'"),
        ([{"question": "q", "answer": 5}], "line 1: 'answer' is 5"),
        ([{"question": " ", "answer": "5"}], "line 1: 'question' is ' '"),
    ],
)
def test_bad_files_are_named_with_their_line(tmp_path, lines, message):
    with pytest.raises(WorkbookError, match=message):
        read_problems(write(tmp_path / "bad.jsonl", *lines))


def test_missing_file_and_wrong_encoding(tmp_path):
    with pytest.raises(WorkbookError, match="does not exist"):
        read_problems(tmp_path / "none.jsonl")
    (tmp_path / "latin.jsonl").write_bytes('{"question": "caf\u00e9"}'.encode("latin-1"))
    with pytest.raises(WorkbookError, match="not UTF-8"):
        read_problems(tmp_path / "latin.jsonl")


def test_good_rows_with_bom_blank_lines_and_line_separators_inside(tmp_path):
    path = tmp_path / "good.jsonl"
    odd = {"question": "one\u2028two", "answer": "7"}
    path.write_text("\ufeff" + json.dumps(ROW) + "\r\n\n" + json.dumps(odd, ensure_ascii=False), encoding="utf-8")
    assert [(r["question"], r["answer"]) for r in read_problems(path)] == [("How many?", "5"), ("one\u2028two", "7")]


def test_dataset_has_what_trl_and_the_rewards_read():
    dataset = to_dataset(read_problems(WORD_PROBLEMS["heldout"])[:3])
    assert dataset.column_names == ["prompt", "answer", "question"]
    assert dataset[0]["prompt"] == chat_prompt(dataset[0]["question"])
    assert [m["role"] for m in dataset[0]["prompt"]] == ["system", "user"]


@pytest.mark.parametrize("family", ["qwen", "gemma"])
def test_long_prompts_are_dropped_and_counted(tiny, family):
    _, tokenizer = tiny[family]
    rows = [*read_problems(WORD_PROBLEMS["heldout"])[:20], {"question": "word " * 500, "answer": "1", "solution": "1"}]
    dataset = to_dataset(rows)
    lengths = prompt_lengths(dataset, tokenizer)
    assert lengths == [
        len(tokenizer.apply_chat_template(p, add_generation_prompt=True)["input_ids"]) for p in dataset["prompt"]
    ]
    kept, dropped = drop_long_prompts(dataset, tokenizer, 160)
    assert dropped == 1
    assert kept["question"] == dataset["question"][:20]
    with pytest.raises(WorkbookError, match="every prompt of the data is longer than 5 tokens"):
        drop_long_prompts(dataset, tokenizer, 5)


def test_split_is_seeded_and_disjoint():
    rows = [{"question": f"q{i}", "answer": str(i)} for i in range(100)]
    train, heldout = split_rows(rows, 400, seed=3)
    assert (len(train), len(heldout)) == (80, 20)
    assert split_rows(rows, 400, seed=3) == (train, heldout) != split_rows(rows, 400, seed=4)
    assert not {r["question"] for r in train} & {r["question"] for r in heldout}
    assert len(split_rows(rows, 7, seed=3)[1]) == 7
    with pytest.raises(WorkbookError, match="too few"):
        split_rows(rows[:4], 400, seed=3)


def test_leaked_questions_leave_the_training_set():
    heldout = [{"question": "How  Many?", "answer": "1"}]
    train = [{"question": "how many?", "answer": "1"}, {"question": "another", "answer": "1"}]
    assert drop_leaked(train, heldout) == ([train[1]], 1)
    with pytest.raises(WorkbookError, match="also held out"):
        drop_leaked(train[:1], heldout)


def test_hash_follows_the_content():
    assert sha256_of([ROW]) == sha256_of([dict(reversed(ROW.items()))]) != sha256_of([ROW, ROW])
