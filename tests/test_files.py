"""Files are whole or as they were, wherever their name leads; one writer has a folder at a time."""

import contextlib
import json
import math
import os
from pathlib import Path

import pytest
from conftest import raises_naming

from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import alone, read_json, whole_file, write_json


def test_an_error_in_the_middle_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "report.json"
    write_json(path, {"ä": [1]})
    assert path.read_text(encoding="utf-8") == '{\n  "ä": [\n    1\n  ]\n}\n'
    with pytest.raises(TypeError):
        write_json(path, {"good": 1, "bad": object()})
    with contextlib.suppress(KeyError), whole_file(path) as new:
        new.write_text("half")
        raise KeyError
    assert json.loads(path.read_text(encoding="utf-8")) == {"ä": [1]}
    assert os.listdir(tmp_path) == ["report.json"]


def test_what_is_no_number_is_null_and_never_a_bare_nan(tmp_path):
    write_json(tmp_path / "log.json", [{"loss": math.nan, "kl": [math.inf, (1.5, -math.inf)]}])
    text = (tmp_path / "log.json").read_text()
    assert "NaN" not in text
    assert json.loads(text) == [{"loss": None, "kl": [None, [1.5, None]]}]


def test_a_link_stays_one(tmp_path):
    (tmp_path / "link.json").symlink_to(tmp_path / "far.json")
    write_json(tmp_path / "link.json", 1)
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "far.json").read_text() == "1\n"


@pytest.mark.parametrize("name", ["missing/report.json", "file/report.json", "."])
def test_a_place_that_cannot_be_written_is_named_with_the_reason(tmp_path, name):
    (tmp_path / "file").write_text("")
    with raises_naming(WorkbookError, tmp_path / name) as caught:
        write_json(tmp_path / name, 1)
    assert isinstance(caught.value.__cause__, OSError)  # exact resume tells a full disk by it


def test_a_file_that_is_not_there_is_not_called_damaged(tmp_path):
    with raises_naming(WorkbookError, tmp_path / "gone.json", "No such file", "run it") as caught:
        read_json(tmp_path / "gone.json", "run it")
    assert "damaged" not in str(caught.value)
    (tmp_path / "cut.json").write_text("{")
    with raises_naming(WorkbookError, tmp_path / "cut.json", "damaged", "run it"):
        read_json(tmp_path / "cut.json", "run it")


# ------------------------------------------------------------------ folders


def test_a_folder_that_cannot_be_locked_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / ".run.lock").mkdir()
    for name in ("file/work", "run"):
        with raises_naming(WorkbookError, tmp_path / name), alone(tmp_path / name):
            pass


@pytest.mark.parametrize("name", [".", "../work", "link"])
def test_every_name_of_a_folder_has_the_same_lock(tmp_path, monkeypatch, name):
    (work := tmp_path / "work").mkdir()
    (work / "link").symlink_to(work)
    monkeypatch.chdir(work)
    refused = pytest.raises(WorkbookError)
    with alone(work), refused, alone(Path(name)):
        pass
    assert set(os.listdir(tmp_path)) == {"work", ".work.lock"}
