"""A YAML file that a hand or a hostile mind has written: what it says counts, or it is refused with the place."""

import pytest

from grpo_workbook.cli.yaml_file import read_yaml_file
from grpo_workbook.errors import WorkbookError

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


def read(tmp_path, text):
    path = tmp_path / "mein Läuf.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_yaml_file(path, "the config file")


def test_anchors_and_merge_keys_are_read_as_yaml_has_them(tmp_path):
    text = "- &first {name: a, steps: 3}\n- {<<: *first, name: b}\n- {<<: [*first], name: c, steps: 1e1}\n"
    found = read(tmp_path, text)
    assert found == [
        {"name": "a", "steps": 3},
        {"name": "b", "steps": 3},
        {"name": "c", "steps": 10.0},
    ]
    assert read(tmp_path, "") is None
    assert read(tmp_path, "# nothing but words\n") is None


def test_words_and_numbers_are_what_they_look_like(tmp_path):
    """YAML 1.1 reads these as false, true, a text, 90, 8 and a date."""
    found = read(
        tmp_path,
        "[off, yes, 1e-3, 1:30, 010, 2026-11-21, true, null, ~, -3, .5, .inf, '1', 0, 1_000]\n",
    )
    assert found == [
        "off",
        "yes",
        0.001,
        "1:30",
        10.0,
        "2026-11-21",
        True,
        None,
        None,
        -3,
        0.5,
        float("inf"),
        "1",
        0,
        "1_000",
    ]
    assert [type(v) for v in found[9:11]] == [int, float]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps: 2\nseed: 1\nsteps: 4\n", r"mein Läuf\.yaml, line 3: 'steps' stands there twice"),
        ("- {name: a, name: b}\n", r"line 1: 'name' stands there twice"),
        (BOMB, "stands for more than 20000 values"),
        ("a: &a [*a]\n", "line 1: an alias stands within what it stands for"),
        ("&a {<<: *a}\n", "an alias stands within what it stands for"),
        ("[" * 5000, "is no YAML"),
        (f"steps: {'9' * 5000}\n", "is no YAML: Exceeds the limit"),
        ("? [a, b]\n: 3\n", "is no YAML"),
        (
            "steps: !!python/object/apply:os.system ['true']\n",
            "is no YAML at line 1: could not determine a constructor",
        ),
        ("a: 1\n---\nb: 2\n", "is no YAML"),
        ("steps: 2\n".encode("utf-16"), "is no YAML"),
        (b"steps: \x00\n", "is no YAML"),
        (b"#" * (2**20 + 1), "has 1048577 bytes: is it the right one"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path, text, message):
    with pytest.raises(WorkbookError, match=message):
        read(tmp_path, text)


def test_a_name_that_is_not_there_gets_the_nearest(tmp_path):
    (tmp_path / "stages.yaml").write_text("- 1\n")
    with pytest.raises(
        WorkbookError,
        match=r"the file of stages .*se\.yaml' does not exist \(.* has stages\.yaml\)",
    ):
        read_yaml_file(tmp_path / "stagse.yaml", "the file of stages")
    with pytest.raises(WorkbookError, match="is a folder"):
        read_yaml_file(tmp_path, "the config file")
