"""Columns, kinds of answers, and the table on disk."""

import json
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pytest
from conftest import REPO

from grpo_workbook.data import KNOWLEDGE_BASE, WORD_PROBLEMS
from grpo_workbook.errors import WorkbookError
from grpo_workbook.problems import load


def test_a_number_in_json_is_its_text():
    rows = [
        {"question": "q", "answer": a} for a in (5, -3, 0.1, 1e22, 2.50, 12345678901234567890123)
    ]
    found = load(rows).dataset["answer"][:]
    assert found == ["5", "-3", "0.1", "10000000000000000000000", "2.5", "12345678901234567890123"]


def test_a_number_of_another_library_is_its_text(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    values = [np.int64(5), np.float32(0.5), Decimal("7.10"), Decimal("1E+3")]
    assert load([{"question": "q", "answer": v} for v in values]).dataset["answer"][:] == [
        "5",
        "0.5",
        "7.10",
        "1000",
    ]
    assert (
        "not text"
        in load(
            [{"question": "q", "answer": "1"}, {"question": "q", "answer": np.bool_(True)}],
            skip_invalid=True,
        ).fault_counts
    )
    answers = pa.array([Decimal("5.00"), Decimal("-2.50")], pa.decimal128(10, 2))
    pq.write_table(pa.table({"question": ["a", "b"], "answer": answers}), tmp_path / "d.parquet")
    found = load(tmp_path / "d.parquet")
    assert (found.kind, found.dataset["answer"][:]) == ("number", ["5.00", "-2.50"])


def test_gsm8k_answers_are_split_and_the_whole_is_kept():
    row = load(WORD_PROBLEMS["train"]).dataset[0]
    assert row["answer"] == "10"
    assert row["solution"].endswith("#### 10")


def test_auto_takes_what_most_answers_are():
    numbers = [{"question": f"q{i}", "answer": str(i)} for i in range(10)]
    texts = [{"question": f"t{i}", "answer": "some words"} for i in range(10)]
    assert load(texts + numbers[:9]).kind == "text"
    found = load(texts + numbers, skip_invalid=True)
    assert (found.kind, found.fault_counts) == ("number", {"no number": 10})
    assert found.kind_reason == "10 of the first 20 answers are numbers or hold a ####"
    assert len(load(numbers + texts, answers="text").dataset) == 20
    with pytest.raises(WorkbookError, match=r"row 1: no number .*\(9 more rows are invalid"):
        load(texts + numbers, answers="number")
    with pytest.raises(WorkbookError, match="none of the 10 rows can be used"):
        load(texts, answers="number", skip_invalid=True)
    with pytest.raises(WorkbookError, match="unknown kind of answers 'maybe'"):
        load(texts, answers="maybe")


def test_the_knowledge_base_is_text():
    found = load(KNOWLEDGE_BASE, answer_column="expert_answer")
    assert found.kind == "text"
    assert found.dataset.column_names == ["question", "answer", "solution"]
    assert len(found.dataset) == 100


@pytest.mark.parametrize(
    ("header", "hint"),
    [("Frage,answer", "'Frage'"), ("Question,answer", "'Question'"), ("prompt,answer", "'prompt'")],
)
def test_a_header_in_other_words_is_mapped_by_an_option(tmp_path, header, hint):
    path = tmp_path / "a.csv"
    path.write_text(header + ",topic\nwhat?,5,sums\n", encoding="utf-8")
    with pytest.raises(
        WorkbookError, match=rf"a.csv: no 'question' among .*such as --question-column {hint}"
    ):
        load(path)
    row = load(path, question_column=header.split(",")[0]).dataset[0]
    assert row == {"question": "what?", "answer": "5", "solution": "5", "topic": "sums"}
    with pytest.raises(WorkbookError, match="no 'outcome' among"):
        load(path, question_column=header.split(",")[0], answer_column="outcome")


def test_columns_that_trl_fills_go_on_under_another_name():
    found = load(
        [{"question": "q", "answer": "1", "completions": "mine", "prompt": "p", "level": 3}]
    )
    assert found.dataset.column_names[3:] == ["completions_original", "prompt_original", "level"]
    assert "column 'completions' goes on as 'completions_original'" in found.notes[0]
    row = load([{"question": "q", "answer": "1", "prompt": "a", "prompt_original": "b"}]).dataset[0]
    assert (row["prompt_original_"], row["prompt_original"]) == ("a", "b")


def test_other_columns_stay_what_they_are_and_odd_ones_become_json():
    meta = {"steps": [1, 2], "source": {"book": "x"}}
    rows = [
        {"question": f"q{i}", "answer": "1", "level": i, "meta": meta, "mixed": 5}
        for i in range(1500)
    ]
    rows[700]["level"] = None
    rows[1400]["mixed"] = "five"
    rows[1200]["late"] = 2.5
    rows[1300]["late"] = 2**53 + 1  # no float is this number
    rows[3]["keys"] = {"a": 1}
    rows[4]["keys"] = {"b": 1}
    found = load(rows)
    table = found.dataset
    assert table["level"][:] == [row["level"] for row in rows]
    assert table[1499]["meta"] == meta
    assert [table[i]["mixed"] for i in (0, 1400)] == ["5", "five"]
    assert [table[i]["late"] for i in (0, 1200, 1300)] == [None, "2.5", str(2**53 + 1)]
    assert [json.loads(table[i]["keys"]) for i in (3, 4)] == [{"a": 1}, {"b": 1}]
    assert [note.split("'")[1] for note in found.notes] == ["keys", "late", "mixed"]


def test_types_of_a_parquet_file_are_kept(tmp_path):
    import datetime

    from datasets import Dataset

    rows = [
        {
            "question": "q",
            "answer": 1.5,
            "when": datetime.datetime(2026, 1, 2),
            "tags": ["a"],
            "no": None,
        }
    ]
    Dataset.from_list(rows).to_parquet(tmp_path / "a.parquet")
    row = load(tmp_path / "a.parquet").dataset[0]
    assert row == {"question": "q", "answer": "1.5", "solution": "1.5"} | {
        k: rows[0][k] for k in ("when", "tags", "no")
    }


def test_nested_types_of_a_parquet_file_are_kept_too(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "small": pa.array([{"a": 1}, None], pa.struct([("a", pa.int32())])),
        "large": pa.array([[1], [2, 3]], pa.large_list(pa.int64())),
        "pair": pa.array([[1.0, 2.0]] * 2, pa.list_(pa.float32(), 2)),
        "sparse": pa.array([{"a": 1, "b": None}, {"a": None, "b": "x"}]),
        "kind": pa.array(["x", "y"]).dictionary_encode(),
        "empty": pa.array([[], None], pa.list_(pa.int8())),
    }
    table = pa.table({"question": ["a", "b"], "answer": ["1", "2"], **columns})
    pq.write_table(table, tmp_path / "a.parquet")
    found = load(tmp_path / "a.parquet")
    assert found.notes == []
    for name, array in columns.items():
        assert found.dataset[name][:] == array.to_pylist(), name
        wanted = pa.string() if name == "kind" else array.type
        assert found.dataset.features.arrow_schema.field(name).type == wanted


def test_a_table_lies_on_disk_and_is_gone_with_its_process():
    code = (
        "from grpo_workbook.problems import load; from grpo_workbook.data import *;"
        "d = to_dataset(load(WORD_PROBLEMS['train']).dataset);"
        "print(*[f['filename'] for f in d.cache_files], sep='\\n')"
    )
    names = subprocess.run(
        [sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=True
    ).stdout
    from pathlib import Path

    assert names.strip()
    assert not any(Path(name).exists() for name in names.split())
