"""Every source, every row that cannot be used, and what the model reads of the rest."""

import codecs
import gzip
import json
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest
from conftest import REPO, SHARED, assert_names, raises_naming

from grpo_workbook.data import (
    WORD_PROBLEMS,
    chat_prompt,
    check_problems,
    drop_long_prompts,
    load_problems,
    load_split,
    load_tokenizer,
    render,
    split,
    to_dataset,
)
from grpo_workbook.data.prompts import fold_system, needs_folding, prompt_lengths
from grpo_workbook.data.reading import GSM8K, KNOWLEDGE_BASE
from grpo_workbook.data.splitting import course_data, select_true, sha256_of
from grpo_workbook.errors import WorkbookError

ROW = {"question": "How many?", "answer": "2 + 3 = 5\n#### 5"}
GOOD = [{"question": f"What is {i} + 1?", "answer": str(i + 1)} for i in range(6)]
LINES = "".join(json.dumps(row) + "\n" for row in GOOD)


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def message_of(source, **options):
    with pytest.raises(WorkbookError) as caught:
        load_problems(source, **options)
    return str(caught.value)


# ------------------------------------------------------------------ sources


def test_every_format_gives_the_same_rows(tmp_path):
    from datasets import Dataset

    dataset = Dataset.from_list(GOOD)
    dataset.to_parquet(tmp_path / "a.parquet")
    commas = "question,answer\n" + "".join(f"{r['question']},{r['answer']}\n" for r in GOOD)
    texts = {
        "a.jsonl": LINES,
        "bom.jsonl": codecs.BOM_UTF8 + LINES.encode(),
        "crlf.jsonl": LINES.replace("\n", "\r\n"),
        "a.json": json.dumps(GOOD, indent=1),
        "a.jsonl.gz": gzip.compress(LINES.encode()),
        "a.csv": commas,
        "semi.csv": commas.replace(",", ";").replace("\n", "\r\n"),
        "bom.csv": codecs.BOM_UTF8 + commas.encode(),
        "a.tsv": commas.replace(",", "\t"),
        "a.csv.gz": gzip.compress(commas.encode()),
        "UP.JSONL": LINES,
    }
    wanted = [row | {"solution": row["answer"]} for row in GOOD]
    found = [write(tmp_path / name, text) for name, text in texts.items()]
    for source in (*found, str(found[0]), tmp_path / "a.parquet", dataset, GOOD):
        assert load_problems(source).to_list() == wanted, source


def test_a_hub_id_offline_says_so():
    assert_names(message_of("openai/gsm8k:main:train"), "openai/gsm8k:main:train", "Offline")


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("none.jsonl", None, ""),
        ("e.jsonl", "", ""),
        ("header.csv", "question,answer\n", ""),
        ("text.txt", LINES, ".jsonl"),
        ("wide.jsonl", LINES.encode("utf-16"), "line 1"),
        ("latin.csv", "question,answer\na,1\ncafé,2\n".encode("latin-1"), "café,2"),
        ("latin.jsonl", (LINES + '{"question": "é"}').encode("latin-1"), "line 7"),
        ("cut.jsonl", LINES + '{"question": "wh', "line 7"),
        ("half.jsonl", '{"question": "a \\ud83d", "answer": "1"}\n', ""),
        ("twice.jsonl", '{"answer": "1", "question": "a", "answer": "2"}\n', ""),
        ("texts.jsonl", LINES + '"a"\n', "line 7"),
        ("blank.jsonl", "\n\n", ""),
        ("none.json", "[]", ""),
        ("cut.jsonl.gz", gzip.compress(LINES.encode())[:-10], ""),
        ("no.parquet", "PAR1 or so", ""),
        ("ragged.csv", "question,answer\na,1\nb,2,3\n", "line 3"),
        ("shifted.csv", "question,answer\na,1,x\n", ""),
        ("open.csv", 'question,answer\na,1\n"b,2\n', ""),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 14 else "",
)
def test_a_file_that_cannot_be_read_is_named_with_its_line(tmp_path, name, content, place):
    if content is not None:
        write(tmp_path / name, content)
    assert_names(message_of(tmp_path / name, skip_invalid=True), name, place)


def test_a_folder_several_splits_and_odd_objects_are_refused(tmp_path):
    from datasets import Dataset, DatasetDict

    assert_names(message_of(tmp_path), tmp_path)
    assert_names(message_of(7), "int")
    splits = DatasetDict(train=Dataset.from_list(GOOD))
    assert_names(message_of(splits), "DatasetDict")


def test_gsm8k_as_csv_and_parquet_is_gsm8k(tmp_path):
    gsm8k = SHARED / "data" / "gsm8k" / "train.jsonl"
    if not gsm8k.is_file():
        pytest.skip("GSM8K's train set is not beside the project (shared/data/gsm8k/train.jsonl)")
    rows = load_problems(gsm8k)
    assert len(rows) == 7473
    raw = rows.select_columns(["question", "solution"]).rename_column("solution", "answer")
    raw.to_csv(tmp_path / "g.csv", index=False)
    raw.to_parquet(tmp_path / "g.parquet")
    for name in ("g.csv", "g.parquet"):
        assert load_problems(tmp_path / name).to_list() == rows.to_list()


# ------------------------------------------------------------------ rows

BAD_ROWS = {
    "no answer": ({"question": "a"}, "'answer'", "None"),
    "blank": ({"question": " ", "answer": "1"}, "'question'", "' '"),
    "number": ({"question": 5, "answer": "1"}, "'question'", "5"),
    "truth": ({"question": "a", "answer": True}, "'answer'", "True"),
    "list": ({"question": "a", "answer": [1]}, "'answer'", "[1]"),
    "words": ({"question": "a", "answer": "lots"}, "'answer'", "'lots'"),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_an_invalid_row_is_named_by_number_field_and_value(tmp_path, name):
    row, column, value = BAD_ROWS[name]
    path = write(tmp_path / "some.jsonl", LINES + json.dumps(row) + "\n")
    for source, place in ((path, "some.jsonl"), ([*GOOD, row], "the data")):
        assert_names(message_of(source), place, "row 7", column, value, "--skip-invalid")
        assert len(load_problems(source, skip_invalid=True)) == len(GOOD)
        problems, invalid = check_problems(source)
        assert len(problems) == len(GOOD)
        assert list(invalid) == [7]
        assert_names(invalid[7], column, value)


def test_more_invalid_rows_are_counted_and_none_left_is_said():
    assert_names(message_of([*GOOD, *BAD_ROWS["words"][:1] * 2]), "row 7", "2 invalid")
    assert_names(message_of([{"question": "a", "answer": None}], skip_invalid=True), "row 1")


def test_a_number_is_its_text_and_one_that_lost_digits_is_refused(tmp_path):
    lines = [f'{{"question": "q", "answer": {a}}}' for a in ("5", "-3", "2.50", "0.1")]
    path = write(tmp_path / "a.jsonl", "\n".join(lines))
    assert load_problems(path)["answer"][:] == ["5", "-3", "2.5", "0.1"]
    write(path, "\n".join([*lines, '{"question": "q", "answer": 12345678901234567890123}']))
    assert_names(message_of(path), "row 5", "'answer'", "1.2345678901234568e+22")
    decimals = [{"question": "q", "answer": a} for a in (Decimal("7.10"), Decimal("5.00"))]
    assert load_problems(decimals)["answer"][:] == ["7.10", "5.00"]
    write(path, '{"question": "q", "answer": "1969-07-20"}')  # JSON's reader makes a date of it
    assert load_problems(path, answers="text")["answer"][:] == ["1969-07-20"]


def test_csv_cells_stay_texts(tmp_path):
    path = write(tmp_path / "a.csv", 'question,answer,note\n"a\nb",007,NA\nNone,1.50,\n')
    assert load_problems(path).to_list() == [
        {"question": "a\nb", "answer": "007", "solution": "007", "note": "NA"},
        {"question": "None", "answer": "1.50", "solution": "1.50", "note": ""},
    ]


def test_auto_takes_what_most_answers_are():
    numbers = [{"question": f"q{i}", "answer": str(i)} for i in range(10)]
    texts = [{"question": f"t{i}", "answer": "some words"} for i in range(10)]
    assert len(load_problems(texts + numbers[:9])) == 19
    assert len(load_problems(texts + numbers, skip_invalid=True)) == 10
    assert len(load_problems(numbers + texts, answers="text")) == 20
    assert_names(message_of(texts + numbers, answers="number"), "row 1", "'answer'")
    assert_names(message_of(texts, answers="maybe"), "'maybe'", "number", "text", "auto")


def test_columns_are_named_and_others_come_along():
    rows = [{"frage": "q", "antwort": "1", "level": 3, "prompt": "p", "meta": {"a": [1]}}]
    foreign = [{"frage": "q", "antwort": "1"}]
    assert_names(message_of(foreign), "'question'", "'frage', 'antwort'", "--question-column")
    named = {"question_column": "frage", "answer_column": "antwort"}
    assert_names(message_of(rows, question_column="frage"), "'answer'", "--answer-column")
    found = load_problems(rows, **named)
    assert found.column_names == [
        "question",
        "answer",
        "solution",
        "level",
        "prompt_original",
        "meta",
    ]
    assert found[0]["meta"] == {"a": [1]}
    both = load_problems([GOOD[0] | {"prompt": "p", "prompt_original": "o"}])
    assert (both[0]["prompt_original2"], both[0]["prompt_original"]) == ("p", "o")
    knowledge = load_problems(KNOWLEDGE_BASE, answer_column="expert_answer")
    assert (len(knowledge), knowledge.column_names) == (100, ["question", "answer", "solution"])


def test_mixed_values_and_types_of_parquet_are_kept(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [GOOD[0] | {"meta": {"a": 1}, "mixed": 5}, GOOD[1] | {"meta": {"b": 1}, "mixed": "five"}]
    write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    for source in (rows, tmp_path / "a.jsonl"):
        found = load_problems(source)
        assert found["mixed"][:] == [5, "five"]
        assert found["meta"][:] == [{"a": 1}, {"b": 1}]
    small = pa.array([{"a": 1}, None], pa.struct([("a", pa.int32())]))
    table = pa.table({"question": ["a", "b"], "answer": [1.5, 2.0], "small": small})
    pq.write_table(table, tmp_path / "a.parquet")
    found = load_problems(tmp_path / "a.parquet")
    assert found["answer"][:] == ["1.5", "2"]
    assert found.features.arrow_schema.field("small").type == small.type


def test_tables_lie_on_disk_and_are_gone_with_their_process():
    code = (
        "from grpo_workbook.data import *;"
        "d = to_dataset(load_problems(WORD_PROBLEMS['train']));"
        "print(*[f['filename'] for f in d.cache_files], sep='\\n')"
    )
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True).stdout
    assert said.strip()
    assert not any(Path(name).exists() for name in said.split())


# ------------------------------------------------------------------ prompts


def test_dataset_has_what_trl_and_the_rewards_read():
    problems = load_problems(WORD_PROBLEMS["heldout"])
    assert len(problems) == 480
    assert problems[0] == {
        "question": problems[0]["question"],
        "answer": "23",
        "solution": "29 - 6 = <<29-6=23>>23\n#### 23",
        "kind": "sold_by_noon",
        "rare": False,
    }
    dataset = to_dataset(problems)
    assert dataset.column_names == ["prompt", "answer", "question", "solution", "kind", "rare"]
    assert dataset[0]["prompt"] == chat_prompt(dataset[0]["question"])
    assert to_dataset(problems.to_list()).to_list() == dataset.to_list()
    with raises_naming(ValueError, "'answer'"):
        to_dataset([{"question": "2+3?", "Answer": "5"}])


def test_the_system_prompt_has_its_own_turn_or_opens_the_users():
    assert chat_prompt("2+2?", "Be brief.") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "2+2?"},
    ]
    dataset = to_dataset([{"question": "2+2?", "answer": "4"}], "Be brief.", fold=True)
    assert dataset[0]["prompt"] == [{"role": "user", "content": "Be brief.\n\n2+2?"}]
    assert fold_system(chat_prompt("2+2?", None)) == chat_prompt("2+2?", None)


REFUSES = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"


def test_what_a_template_does_with_a_system_message(tiny):
    import copy

    assert not needs_folding(tiny["qwen"][1])
    assert not needs_folding(tiny["gemma"][1])  # it stands in the user's turn there
    tokenizer = copy.deepcopy(tiny["qwen"][1])
    plain = tokenizer.chat_template
    tokenizer.chat_template = REFUSES + plain
    assert needs_folding(tokenizer)
    text = render([fold_system(chat_prompt("How many?", "Be brief."))], tokenizer)[0]
    assert "user\nBe brief.\n\nHow many?" in text
    tokenizer.chat_template = plain.replace(
        "in messages", "in messages if message.role != 'system'"
    )
    assert needs_folding(tokenizer)


@pytest.mark.parametrize("family", ["qwen", "gemma"])
def test_long_prompts_are_dropped_and_counted(tiny, family):
    _, tokenizer = tiny[family]
    rows = load_problems(WORD_PROBLEMS["heldout"]).to_list()[:20]
    dataset = to_dataset([*rows, {"question": "word " * 500, "answer": "1", "solution": "1"}])
    assert prompt_lengths(dataset, tokenizer) == [
        len(tokenizer.apply_chat_template(p, add_generation_prompt=True)["input_ids"])
        for p in dataset["prompt"]
    ]
    kept, dropped = drop_long_prompts(dataset, tokenizer, 160)
    assert dropped == 1
    assert kept["question"][:] == dataset["question"][:20]
    with raises_naming(WorkbookError, "5 tokens"):
        drop_long_prompts(dataset, tokenizer, 5)


def test_a_tokenizer_that_is_none_is_named(tmp_path, tiny):
    with raises_naming(WorkbookError, "'unsloth/Qwen3-none'"):
        load_tokenizer("unsloth/Qwen3-none")
    tiny["qwen"][1].save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with raises_naming(WorkbookError, "tokenizer"):
        load_tokenizer(tmp_path)


def test_hash_follows_the_content():
    assert sha256_of([ROW]) == sha256_of([dict(reversed(ROW.items()))]) != sha256_of([ROW, ROW])
    assert sha256_of([ROW], [ROW]) == sha256_of([ROW, ROW])


# ------------------------------------------------------------------ the split


@pytest.fixture(scope="module")
def table():
    return load_problems(
        [
            {"question": f"q{i} " + "x" * i, "answer": str(i), "level": f"L{i % 10 == 0}"}
            for i in range(100)
        ]
    )


@pytest.mark.parametrize("by", ["length", "level"])
def test_split_is_seeded_disjoint_and_stratified(table, by):
    train, heldout = split(table, 400, seed=3, by=by)
    assert (len(train), len(heldout)) == (80, 20)
    assert train.column_names == heldout.column_names == table.column_names
    again, other = split(table, 400, seed=3, by=by)[1], split(table, 400, seed=4, by=by)[1]
    assert again.to_list() == heldout.to_list() != other.to_list()
    assert sorted([*train["answer"], *heldout["answer"]], key=int) == table["answer"][:]
    assert len(split(table, 7, seed=3, by=by)[1]) == 7
    if by == "level":
        assert Counter(heldout["level"]) == {"LFalse": 18, "LTrue": 2}
    else:
        assert Counter(int(a) // 25 for a in heldout["answer"]) == {0: 5, 1: 5, 2: 5, 3: 5}


def test_a_split_that_cannot_be_made_says_why(table):
    with raises_naming(WorkbookError, "400 of 4 rows"):
        split(table.select(range(4)), 400, seed=3)
    with raises_naming(WorkbookError, "0 of 100 rows"):
        split(table, 0, seed=3)
    with raises_naming(WorkbookError, "'colour'"):
        split(table, 10, 0, by="colour")
    with raises_naming(WorkbookError, "'answer'"):
        split(table, 10, 0, by="answer")
    assert len(split(table.select(range(5)), 400, seed=3)[1]) == 1


@pytest.mark.parametrize("column", ["rare", "text", "mixed", "none", "missing"])
def test_a_subset_is_what_a_column_of_true_and_false_chooses(column):
    table = load_problems(
        [
            {
                "question": "1?",
                "answer": "1",
                "rare": True,
                "text": "TRUE",
                "mixed": "yes",
                "none": False,
            },
            {
                "question": "2?",
                "answer": "2",
                "rare": False,
                "text": "False",
                "mixed": "no",
                "none": False,
            },
        ]
    )
    if column in ("rare", "text"):  # a CSV file has texts
        assert select_true(table, column)["question"][:] == ["1?"]
        return
    with pytest.raises(WorkbookError, match=column):
        select_true(table, column)


ON_A_GPU = {"heldout": 40, "seed": 0, "profile_name": "t4"}


@pytest.fixture(autouse=True)
def course_data_is_looked_up_anew():
    course_data.cache_clear()
    yield
    course_data.cache_clear()


def test_a_gpu_profile_without_the_hub_takes_the_bundled_problems_and_says_so(capsys):
    """A real model solves most of the word problems from the start: GSM8K where it can be had."""
    train, heldout, _ = load_split(**ON_A_GPU)
    said = capsys.readouterr().out
    assert (len(train), len(heldout)) == (2400, 40)
    assert_names(said, "openai/gsm8k")
    load_split(**ON_A_GPU)
    assert capsys.readouterr().out == ""  # once


def test_a_gpu_profile_takes_gsm8k(tmp_path, monkeypatch):
    for part, asked in {"train": "Ann has 3 pens, buys 4.", "heldout": "Is 7 even?"}.items():
        row = {"question": asked, "answer": "3+4=7\n#### 7"}
        path = write(tmp_path / f"{part}.jsonl", json.dumps(row))
        monkeypatch.setitem(GSM8K, part, str(path))
    train, heldout, leaked = load_split(**ON_A_GPU)
    assert (len(train), len(heldout), leaked) == (1, 1, 0)
    assert (train["answer"][0], heldout["question"][0]) == ("7", "Is 7 even?")


def test_what_a_run_trains_on_and_is_measured_on(tmp_path):
    settings = {"heldout": 40, "seed": 0, "profile_name": "smoke"}
    train, heldout, leaked = load_split(**settings)
    assert (len(train), len(heldout), leaked) == (1319, 40, 0)
    # The tiny models have seen few examples of some kinds: these are trained, and all are measured.
    assert set(train["rare"]) == {True}
    assert set(heldout["rare"]) == {True, False}
    rows = [{"question": f"What is {i} plus {i * i}?", "answer": "1"} for i in range(50)]
    path = write(tmp_path / "my.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    train, heldout, leaked = load_split(path, **settings)
    assert (len(train), len(heldout), leaked) == (40, 10, 0)
    held = write(tmp_path / "held.jsonl", json.dumps(rows[7]))
    train, heldout, leaked = load_split(path, held, **settings)
    assert (len(train), len(heldout), leaked) == (49, 1, 1)


def test_the_columns_of_ones_own_data_do_not_count_for_the_courses(tmp_path):
    rows = [{"frage": f"What is {i} plus {i * i}?", "antwort": f"{i + i * i}"} for i in range(9)]
    path = write(tmp_path / "mine.jsonl", "".join(json.dumps(row) + "\n" for row in [*rows, {}]))
    train, heldout, _ = load_split(
        heldout_data=path,
        heldout=5,
        seed=0,
        profile_name="smoke",
        question_column="frage",
        answer_column="antwort",
        skip_invalid=True,
    )
    assert (len(train), len(heldout)) == (1319, 5)
    assert heldout["question"][0] == "What is 0 plus 0?"
