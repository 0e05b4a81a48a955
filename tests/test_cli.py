"""What the texts say of the command line is true of it: every command parses, every option that is named exists."""

import argparse
import re
import shlex

import pytest
from conftest import REPO

from grpo_workbook.__main__ import parser, read

TEXTS = [
    REPO / "README.md",
    REPO / "CONTRIBUTING.md",
    *sorted((REPO / "docs").glob("*.md")),
    *sorted((REPO / "templates").rglob("*.md")),
    *sorted((REPO / "templates").rglob("*.yaml")),
    *sorted((REPO / "notebooks" / "source").glob("*.py")),
]
# A call: up to the end of the line or of the quoted words, lines that end in a backslash joined.
CALL = re.compile(r"-m grpo_workbook ([a-z][a-z-]+(?:[^\n`\\]|\\\n)*)")
# What a text names in one breath with our options, and is another program's.
OTHERS = {
    "--no-deps",
    "--standalone",
    "--nproc_per_node",
    "--num_processes",
    "--config_file",
    "--cpu",
}
SAME = "--backend --seed --question-column --answer-column --skip-invalid --rewards --steps --num-generations --heldout"


def commands() -> dict[str, argparse.ArgumentParser]:
    return next(a for a in parser()._actions if isinstance(a, argparse._SubParsersAction)).choices


def calls(text: str) -> list[list[str]]:
    """The arguments of every call of the command line in a text, without comments and what a shell does with them."""
    found = []
    text = re.sub(
        r"`python -m grpo_workbook[^`]*`", lambda quoted: quoted[0].replace("\n# ", " "), text
    )
    for call in CALL.findall(text):
        words = shlex.split(re.sub(r"\\\n[# ]*", " ", call).split("   ")[0], comments=True)
        end = next((i for i, word in enumerate(words) if word in ("<", ">", "|", "&&")), len(words))
        found.append(words[:end])
    return [call for call in found if not {"...", "FILE", "FOLDER"} & set(call)]


def examples() -> list:
    texts = {str(path.relative_to(REPO)): path.read_text(encoding="utf-8") for path in TEXTS}
    texts |= {f"{name} --help": command.epilog or "" for name, command in commands().items()}
    texts["--help"] = parser().epilog
    return [
        pytest.param(call, id=f"{place}: {' '.join(call)}")
        for place, t in texts.items()
        for call in calls(t)
    ]


def test_the_texts_hold_many_examples():
    assert len(examples()) > 60


@pytest.mark.parametrize("call", examples())
def test_a_command_in_a_text_is_one_that_the_command_line_takes(call, capsys):
    if len(call) == 1:  # only named
        assert call[0] in commands()
        return
    if call[-1] == "--help":
        with pytest.raises(SystemExit, match="0"):
            read(call)
        return
    try:
        args, rest = read(call)
    except SystemExit:
        pytest.fail(capsys.readouterr().err)
    assert args.command == call[0]
    assert rest == [] or call[0] == "train"  # whose rest are fields of GRPOConfig


def test_every_option_that_a_text_names_exists():
    known = {
        option
        for command in commands().values()
        for a in command._actions
        for option in a.option_strings
    }
    ours = "|".join(commands())
    for path in TEXTS:
        for quoted in re.findall(r"`([^`\n]+)`", path.read_text(encoding="utf-8")):
            if re.match(rf"--(?!report)|.*grpo_workbook|(?:{ours}) --", quoted):
                named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9_-]+", quoted))
                fields = {
                    name for name in named if "_" in name
                }  # of GRPOConfig, which `train` knows
                assert named <= known | OTHERS | fields, f"{path.name}: `{quoted}`"


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_option_says_what_it_does(name):
    for action in commands()[name]._actions:
        if action.option_strings:
            assert action.help, f"{name} {action.option_strings} has no help"


def test_an_option_has_the_same_words_in_every_command():
    said: dict[str, set[str]] = {}
    for command in commands().values():
        for action in command._actions:
            for option in action.option_strings:
                if action.help != argparse.SUPPRESS:
                    said.setdefault(option, set()).add(action.help)
    assert [(option, said[option]) for option in SAME.split() if len(said[option]) != 1] == []


def test_a_question_may_stand_behind_the_options():
    args, rest = read(["generate", "qwen", "--samples", "4", "What is 2+3?", "And 3+4?"])
    assert (args.questions, args.samples, rest) == (["What is 2+3?", "And 3+4?"], 4, [])
    with pytest.raises(SystemExit, match="2"):
        read(["generate", "qwen", "What is 2+3?", "--sampels", "4"])


@pytest.mark.parametrize(
    "words",
    [
        ["--samples", "2", "--", "-5 + 3?"],
        ["--temperature", "1", "-5 plus 3?"],
        ["--samples", "2", "-5 + 3?"],
    ],
)
def test_a_question_may_begin_with_a_minus(words):
    args, rest = read(["generate", "qwen", *words])
    assert (args.questions, rest) == ([words[-1]], [])


def test_an_option_that_generate_lacks_is_no_question(capsys):
    with pytest.raises(SystemExit, match="2"):
        read(["generate", "qwen", "--samples", "2", "--bogus", "What?"])
    assert "--bogus" in capsys.readouterr().err


def test_train_takes_every_option_of_ours_with_underscores():
    args, rest = read(["train", "--load_in_16bit", "--list_fields", "--batch_size=16"])
    assert (args.load_in_4bit, args.list_fields, args.batch_size, rest) == (False, True, 16, [])
