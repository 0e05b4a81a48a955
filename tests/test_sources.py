"""Every source, and everything that can be wrong with a file: named with its row, and nothing else is lost."""

import codecs
import gzip
import json

import pytest
from conftest import SHARED

from grpo_workbook import sources
from grpo_workbook.errors import WorkbookError
from grpo_workbook.problems import load

GOOD = [{"question": f"What is {i} + 1?", "answer": str(i + 1)} for i in range(6)]
LINES = "".join(json.dumps(row) + "\n" for row in GOOD)


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def message_of(source, **options):
    with pytest.raises(WorkbookError) as caught:
        load(source, **options)
    return str(caught.value)


# ------------------------------------------------------------------ the same rows from every source


def test_every_format_gives_the_same_rows(tmp_path):
    from datasets import Dataset

    dataset = Dataset.from_list(GOOD)
    dataset.to_parquet(tmp_path / "a.parquet")
    texts = {
        "a.jsonl": LINES,
        "bom.jsonl": codecs.BOM_UTF8 + LINES.encode(),
        "crlf.jsonl": LINES.replace("\n", "\r\n"),
        "a.json": json.dumps(GOOD, indent=1),
        "a.jsonl.gz": gzip.compress(LINES.encode()),
        "a.csv": "question,answer\n" + "".join(f"{r['question']},{r['answer']}\n" for r in GOOD),
        "semi.csv": "question;answer\n\n" + "".join(f"{r['question']};{r['answer']}\r\n" for r in GOOD),
        "bom.csv": codecs.BOM_UTF8 + b'"question","answer"\n' + b"".join(
            f"{r['question']},{r['answer']}\n".encode() for r in GOOD
        ),
        "a.tsv": "question\tanswer\n" + "".join(f"{r['question']}\t{r['answer']}\n" for r in GOOD),
        "blanks.csv": "question,answer\n   \n" + "".join(f"{r['question']},{r['answer']}\n   \n" for r in GOOD),
        "UP.JSON": json.dumps(GOOD),
        "up.jsonl.GZ": gzip.compress(LINES.encode()),
        "array.json.gz": gzip.compress(codecs.BOM_UTF8 + json.dumps(GOOD).encode()),
    }  # fmt: skip
    wanted = [row | {"solution": row["answer"]} for row in GOOD]
    found = [write(tmp_path / name, text) for name, text in texts.items()]
    for source in (
        *found,
        str(found[0]),
        tmp_path / "a.parquet",
        dataset,
        GOOD,
        sources.open_source(GOOD),
    ):
        assert load(source).dataset.to_list() == wanted, source


def test_procedural_tasks_are_seeded_and_sized():
    one, again, other = (
        load(f"reasoning-gym:chain_sum,size=7,seed={s}").dataset.to_list() for s in (1, 1, 2)
    )
    assert one == again != other
    assert len(one) == 7
    assert load("reasoning-gym:chain_sum,size=7", seed=1).dataset.to_list() == one
    hard = load("reasoning-gym:chain_sum,size=3,seed=1,min_terms=6,max_terms=6").dataset
    assert all(row["metadata"]["num_terms"] == 6 for row in hard)
    words = load("reasoning-gym:family_relationships,size=20,seed=0")
    assert words.kind == "text"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("reasoning-gym:chain_sm", "did you mean chain_sum"),
        ("reasoning-gym:chain_sum,colour=1", "takes no such settings"),
        ("reasoning-gym:chain_sum,size=0", "size must be positive"),
        ("reasoning-gym:chain_sum,size=ten", "'size=ten'"),
        ("reasoning-gym:chain_sum,size=10.5", "size=10.5 in"),
        ("reasoning-gym:chain_sum,seed=1.5", "seed=1.5 in"),
        ("reasoning-gym:chain_sum,size=true", "size=True in"),
        ("reasoning-gym:chain_sum,size=99999999999", "at most 10,000,000"),
        ("~nobody-of-that-name/a.jsonl", "no user of that name"),
    ],
)
def test_a_wrong_task_is_named(name, said):
    assert said in message_of(name)


def test_a_hub_id_offline_says_so(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "HF_HUB_OFFLINE is set" in message_of("openai/gsm8k:main")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")  # a port on which nobody listens
    said = message_of("openai/gsm8k:main")
    assert "there is no file openai/gsm8k" in said
    assert "127.0.0.1 does not answer" in said


def test_several_splits_and_odd_objects_are_refused():
    from datasets import Dataset, DatasetDict

    splits = DatasetDict(train=Dataset.from_list(GOOD), test=Dataset.from_list(GOOD))
    assert "several splits (train, test)" in message_of(splits)
    assert "a int is no source" in message_of(7)


# ------------------------------------------------------------------ files that cannot be read at all


def test_a_missing_file_suggests_the_one_that_is_there(tmp_path):
    write(tmp_path / "train.jsonl", LINES)
    assert "does not exist (is it train.jsonl?)" in message_of(tmp_path / "tran.jsonl")


def test_a_folder_lists_what_is_in_it(tmp_path):
    write(tmp_path / "b.csv", "x")
    assert "is a folder: name one data file (it holds b.csv)" in message_of(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("e.jsonl", "", "is empty"),
        ("e.csv", "", "is empty"),
        ("e.parquet", "", "is empty"),
        ("blank.jsonl", "\n \n", "has no rows"),
        ("blank.csv", "\n\n", "has no rows"),
        ("header.csv", "question,answer\n", "has no rows"),
        ("text.txt", LINES, "unknown kind '.txt'"),
        ("wide.jsonl", LINES.encode("utf-16"), "is UTF-16"),
        ("le.jsonl", LINES.encode("utf-16-le"), "is UTF-16"),
        ("be.csv", "question,answer\na,1\n".encode("utf-16-be"), "is UTF-16"),
        ("key.json", '[{"question": "a", "question": "b"}]', "'question' stands there twice"),
        (
            "cut.json.gz",
            gzip.compress(b"[" + LINES.encode() * 99, mtime=0)[:-10],
            "is no whole gzip file",
        ),
        ("wide.csv", "question,answer\na,1\n".encode("utf-16"), "is UTF-16"),
        ("no.parquet", "PAR1 or so", "is no Parquet file"),
        ("cut.jsonl.gz", gzip.compress(LINES.encode(), mtime=0)[:-10], "is no whole gzip file"),
        ("no.jsonl.gz", "text", "is no whole gzip file"),
        ("array.json", '[{"question": "a",', "starts as a JSON array and is none"),
        ("twice.csv", "question,answer,question\na,1,b\n", "two columns are called 'question'"),
        ("mac.csv", "question,answer\ra,1\r", "\\r alone"),
        ("latin.csv", "fräge,answer\na,1\n".encode("latin-1"), "the header is not UTF-8"),
        (
            "open.csv",
            'question,answer\na,1\n"b,2\nc,3\n',
            "row 2 (line 3): a quoted field begins here",
        ),
        ("quote.csv", 'question,answer\n"a"b,2\n', "row 1 (line 2)"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, content, said):
    path = write(tmp_path / name, content)
    for skip in (False, True):  # nothing to skip: the file as a whole is wrong
        message = message_of(path, skip_invalid=skip)
        assert said in message
        assert name in message


@pytest.mark.parametrize("damage", [slice(0, -200), slice(0, 300)])
def test_a_cut_parquet_file_is_named(tmp_path, damage):
    from datasets import Dataset

    Dataset.from_list(GOOD * 100).to_parquet(tmp_path / "whole.parquet")
    path = write(tmp_path / "cut.parquet", (tmp_path / "whole.parquet").read_bytes()[damage])
    assert "cut.parquet is no Parquet file" in message_of(path)


# ------------------------------------------------------------------ rows that cannot be used

DEEP = "[" * 100_000
BAD_LINES = {
    "cut short": ('{"question": "wh', "not JSON", "may have been cut short"),
    "latin-1": (
        '{"question": "café", "answer": "1"}\n'.encode("latin-1"),
        "not UTF-8",
        "byte 0xe9 at place 18",
    ),
    "null bytes": (b"\0" * 500 + b"\n", "null bytes", "null bytes"),
    "null escape": (
        '{"question": "a\\u0000", "answer": "1"}\n',
        "null bytes",
        "'question' holds a null character",
    ),
    "half a character": (
        '{"question": "a \\uD83d", "answer": "1"}\n',
        "broken character",
        "half of a surrogate pair",
    ),
    "half of one inside": (
        '{"question": "a", "answer": "1", "m": ["\\udc00"]}\n',
        "broken character",
        "half",
    ),
    "deep": (DEEP + "\n", "too deep", "nested too deeply (more than 32 levels)"),
    "rather deep": (
        '{"question": "a", "answer": "1", "m": ' + "[" * 99 + "]" * 99 + "}\n",
        "too deep",
        "32",
    ),
    "NaN": ('{"question": "a", "answer": NaN}\n', "not JSON", "NaN is no JSON value"),
    "Infinity": ('{"question": "a", "answer": "1", "x": -Infinity}\n', "not JSON", "-Infinity"),
    "too large": (
        '{"question": "a", "answer": 1e999}\n',
        "too large",
        "1e999 is larger than a float",
    ),
    "a key twice": (
        '{"question": "a", "answer": "1", "answer": "2"}\n',
        "repeated key",
        "'answer' stands there twice",
    ),
    "a key twice inside": (
        '{"question": "a", "answer": "1", "m": {"b": 1, "b": 1}}\n',
        "repeated key",
        "'b' stands",
    ),
    "5,000 digits": (
        '{"question": "a", "answer": ' + "9" * 5000 + "}\n",
        "not JSON",
        "4300 digits",
    ),
    "a list": ("[1, 2]\n", "not an object", "a list, not a JSON object"),
    "truth": ('{"question": "a", "answer": true}\n', "not text", "'answer' is True"),
    "null": ('{"question": null, "answer": "1"}\n', "empty field", "'question' is None"),
    "blank": ('{"question": " ", "answer": "1"}\n', "empty field", "'question' is ' '"),
    "a number as question": ('{"question": 5, "answer": "1"}\n', "not text", "'question' is 5"),
    "no answer": ('{"question": "a"}\n', "missing field", "no 'answer' among ['question']"),
    "no number": (
        '{"question": "a", "answer": "lots"}\n',
        "no number",
        "no number in the answer 'lots'",
    ),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_bad_row_is_named_and_the_others_are_kept(tmp_path, name):
    line, kind, said = BAD_LINES[name]
    line = line if isinstance(line, bytes) else line.encode()
    path = write(tmp_path / "some.jsonl", b"\n" + LINES.encode() + line)
    message = message_of(path)
    assert message.startswith("some.jsonl, line 8: ")
    assert said in message
    assert message.endswith("(or drop it with --skip-invalid)")
    found = load(path, skip_invalid=True)
    assert found.fault_counts == {kind: 1}
    assert len(found.dataset) == len(GOOD)
    assert found.place(0) == "some.jsonl, line 2"


def test_a_ragged_row_is_counted_and_quoted_line_ends_do_not_shift_it(tmp_path):
    path = write(tmp_path / "r.csv", 'question,answer\n"a\nb\nc",1\nd,2,3\n\ne,4\n"f\ng",5\nh,é\n')
    assert message_of(path).startswith(
        "r.csv, row 2 (line 5): 3 fields where the header has 2 (separator: comma)"
    )
    found = load(path, skip_invalid=True)
    assert found.dataset["question"][:] == ["a\nb\nc", "e", "f\ng"]
    assert [place for place, _ in found.faults] == ["r.csv, row 2 (line 5)", "r.csv, row 5"]
    assert [found.place(i) for i in range(3)] == ["r.csv, row 1", "r.csv, row 3", "r.csv, row 4"]
    path = write(tmp_path / "l.csv", "question,answer\na,1\ncafé,2\n".encode("latin-1"))
    assert message_of(path).startswith("l.csv, row 2 (line 3): not UTF-8 (byte 0xe9 at place 4)")


def test_a_header_of_commas_does_not_cut_a_tsv(tmp_path):
    rows = "".join(f"one, two, {i}\t{i}\n" for i in range(5))
    found = load(
        write(tmp_path / "a.tsv", "question, as asked, in full\tanswer\n" + rows),
        question_column="question, as asked, in full",
    )
    assert found.dataset["question"][:] == [f"one, two, {i}" for i in range(5)]


def test_a_row_of_a_csv_that_is_damaged_leaves_the_others(tmp_path):
    path = write(tmp_path / "a.csv", "question,answer,note\na,1,x\nb\rc,2,x\nd,3,x\x00\ne,4,x\n")
    assert message_of(path).startswith("a.csv, row 2 (line 3): holds a \\r outside of quotes")
    found = load(path, skip_invalid=True)
    assert found.dataset["question"][:] == ["a", "e"]
    assert found.fault_counts == {"stray \\r": 1, "null bytes": 1}


def test_two_columns_of_one_name_in_parquet_are_refused(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_arrays(
        [pa.array([t]) for t in ("q", "1", "2")], names=["question", "answer", "answer"]
    )
    pq.write_table(table, tmp_path / "a.parquet")
    assert "two columns are called 'answer'" in message_of(tmp_path / "a.parquet")


def test_an_unknown_time_zone_is_named(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    when = pa.array([1], pa.timestamp("s", "Mars/Olympus"))
    pq.write_table(
        pa.table({"question": ["q"], "answer": ["1"], "when": when}), tmp_path / "a.parquet"
    )
    assert "unknown time zone 'Mars/Olympus'" in message_of(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({1: "x"}, "the name 1 is a int"),
        ({"answer": 10**5000}, "a number that cannot be written"),
        ({"note": 10**5000}, "a number that cannot be written"),
        ({"note": ["\ud800"]}, "half of a surrogate pair"),
    ],
)
def test_a_row_from_python_that_no_table_holds_is_named(row, said):
    assert said in message_of([*GOOD, GOOD[0] | row])
    assert len(load([*GOOD, GOOD[0] | row], skip_invalid=True).dataset) == len(GOOD)


def test_a_row_of_one_megabyte_is_read(tmp_path):
    long = "word " * 250_000
    for name, text in {
        "a.jsonl": LINES + json.dumps({"question": long, "answer": "1"}),
        "a.csv": f'question,answer\na,1\n"{long}",1\n',
    }.items():
        assert load(write(tmp_path / name, text)).dataset[-1]["question"] == long


def test_a_line_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("grpo_workbook.readers.MAX_ROW_BYTES", 2**20)
    path = write(tmp_path / "a.jsonl", b"x" * (2**20 + 1))
    assert "a.jsonl, line 1: longer than 1 MiB" in message_of(path)


def test_gsm8k_as_csv_and_parquet_is_gsm8k(tmp_path):
    gsm8k = SHARED / "data" / "gsm8k" / "train.jsonl"
    if not gsm8k.is_file():
        pytest.skip("GSM8K's train set is not beside the project (shared/data/gsm8k/train.jsonl)")
    rows = load(gsm8k).dataset
    raw = rows.select_columns(["question", "solution"]).rename_column("solution", "answer")
    raw.to_csv(tmp_path / "g.csv", index=False)
    raw.to_parquet(tmp_path / "g.parquet")
    for name in ("g.csv", "g.parquet"):
        assert load(tmp_path / name).dataset.to_list() == rows.to_list()
