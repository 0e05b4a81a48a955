"""A journal after kills at every byte, with other settings, in use, damaged."""

import json
import os

import pytest

from grpo_workbook.errors import WorkbookError
from grpo_workbook.journal import Journal, read_lines

RECORDS = [{"key": str(i), "text": "é\n" * i} for i in range(4)]


@pytest.fixture
def journal(tmp_path):
    found = Journal(tmp_path / "work")
    found.open({"seed": 1})
    found.append(RECORDS)
    return found


def test_what_was_written_is_read_again(journal):
    again = Journal(journal.folder)
    again.open({"seed": 1})
    assert again.records == RECORDS == journal.records


def test_a_file_cut_at_any_byte_keeps_its_whole_lines_and_can_go_on(journal):
    data = journal.path.read_bytes()
    for cut in range(len(data) + 1):
        journal.path.write_bytes(data[:cut])
        again = Journal(journal.folder)
        again.open({"seed": 1})
        whole = data[:cut].count(b"\n")
        assert again.records == RECORDS[:whole]
        again.append(RECORDS[whole:])
        assert read_lines(journal.path) == RECORDS


def test_other_settings_are_refused_by_name_and_may_replace(journal):
    (journal.folder / "report.json").write_text("{}")
    other = Journal(journal.folder)
    with pytest.raises(
        WorkbookError, match=r"not the same: seed, k\): replace it with --overwrite"
    ):
        other.open({"seed": 2, "k": 4})
    assert read_lines(journal.path) == RECORDS
    other.open({"seed": 2}, overwrite=True, results=["report.json"])
    assert other.records == []
    assert sorted(p.name for p in journal.folder.iterdir()) == ["identity.json"]


def test_a_foreign_folder_is_not_touched(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(WorkbookError, match=r"holds other files and no identity\.json"):
            Journal(tmp_path).open({"seed": 1}, overwrite=overwrite)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(WorkbookError, match=r"thesis\.txt is a file"):
        Journal(tmp_path / "thesis.txt").open({"seed": 1})


@pytest.mark.parametrize("line", ["{broken", "[1]", "7", "\x00\x00"])
def test_a_damaged_line_is_named(journal, line):
    with journal.path.open("a") as file:
        file.write(line + "\n" + json.dumps(RECORDS[0]) + "\n")
    with pytest.raises(WorkbookError, match="line 5 is damaged: start again with --overwrite"):
        Journal(journal.folder).open({"seed": 1})


def test_a_damaged_identity_is_named_and_can_be_replaced(journal):
    (journal.folder / "identity.json").write_text("[")
    with pytest.raises(WorkbookError, match=r"identity\.json is damaged"):
        Journal(journal.folder).open({"seed": 1})
    Journal(journal.folder).open({"seed": 1}, overwrite=True)


@pytest.mark.skipif(
    not os.path.exists("/dev/full"), reason="no /dev/full here to stand for a full disk"
)
def test_a_full_disk_is_said(tmp_path):
    journal = Journal(tmp_path / "work")
    journal.open({"seed": 1})
    journal.path.symlink_to("/dev/full")
    with pytest.raises(
        WorkbookError, match=r"cannot be written \(No space left on device\).*the same command"
    ):
        journal.append(RECORDS)
    assert journal.records == []
