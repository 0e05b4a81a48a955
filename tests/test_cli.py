"""What texts say of the command line is true: every command parses, every option exists."""

import argparse
import re
import shlex
import subprocess
import sys

import pytest
from conftest import REPO, assert_names, cli

from grpo_workbook.cli import COMMANDS, main, options, parser
from grpo_workbook.errors import WorkbookError

TEXTS = [
    REPO / "README.md",
    REPO / "CONTRIBUTING.md",
    *sorted((REPO / "docs").glob("*.md")),
    *sorted((REPO / "templates").rglob("*.md")),
    *sorted((REPO / "templates").rglob("*.yaml")),
    *sorted((REPO / "configs").glob("*.yaml")),
    *sorted((REPO / "notebooks" / "source").glob("*.py")),
]
# A call: up to the end of the line or of the quoted words, lines that end in a backslash joined.
CALL = re.compile(r"-m grpo_workbook ([a-z][a-z-]+(?:[^\n`\\]|\\\n)*)")
# What a text names in one breath with our options, and is another program's.
OTHERS = "--attacks --no-deps --standalone --nproc_per_node --num_processes --config_file --cpu"
# Of the hub's command `hf`, of vLLM, and of llama.cpp.
OTHERS = [*OTHERS.split(), "--private", "--flavor", "--timeout", "--dry-run", "--generation-config"]
OTHERS.append("--reasoning")


def commands() -> dict[str, argparse.ArgumentParser]:
    return next(a for a in parser()._actions if isinstance(a, argparse._SubParsersAction)).choices


def calls(text: str) -> list[list[str]]:
    """The arguments of every call of the command line in a text, without what a shell reads."""
    found_calls = []
    quoted = r"`python -m grpo_workbook[^`]*`"
    text = re.sub(quoted, lambda call: call[0].replace("\n# ", " "), text)
    for call in CALL.findall(text):
        one_line = re.sub(r"\\\n[# ]*", " ", call).split("   ")[0]
        arguments = []
        for word in shlex.split(one_line, comments=True):
            if word in ("<", ">", "|", "&&"):
                break
            arguments.append(word)
        if not {"...", "FILE", "FOLDER"} & set(arguments):
            found_calls.append(arguments)
    return found_calls


def examples() -> list:
    texts = {str(path.relative_to(REPO)): path.read_text(encoding="utf-8") for path in TEXTS}
    for name, command in commands().items():
        texts[f"{name} --help"] = command.epilog or ""
    texts["--help"] = parser().epilog
    by_name = {}
    for place, text in texts.items():
        for call in calls(text):
            by_name[f"{place}: {' '.join(call)}"] = call
    return [pytest.param(call, id=name) for name, call in by_name.items()]


def test_the_texts_hold_many_examples_and_every_command_is_there():
    assert len(examples()) > 40
    assert set(commands()) == {name.replace("_", "-") for name in COMMANDS}


@pytest.mark.parametrize("call", examples())
def test_a_command_in_a_text_is_one_that_the_command_line_takes(call, capsys, monkeypatch):
    assert call[0] in commands()
    if len(call) == 1 or call[-1] == "--help":  # only named
        return
    if call[0] == "run":
        monkeypatch.setattr(options, "words_of", lambda path: [])  # the file is the reader's
        from trl import GRPOConfig

        words = options.with_file(call[1:])
        rest = options.new_parser(options.RunOptions).parse_known_args(words)[1]
        options.refuse_unknown([word for word in rest if word.startswith("--")], GRPOConfig)
        return
    try:
        assert parser().parse_args(call).command == call[0]
    except SystemExit:
        pytest.fail(capsys.readouterr().err)


def test_every_option_that_a_text_names_exists():
    known = {*OTHERS, "--no-load-in-4bit"}
    for command in commands().values():
        for action in command._actions:
            known.update(action.option_strings)
            known.update(name.replace("_", "-") for name in action.option_strings)
    ours = "|".join(commands())
    for path in TEXTS:
        for quoted in re.findall(r"`([^`\n]+)`", path.read_text(encoding="utf-8")):
            if re.match(rf"--(?!report)|.*grpo_workbook|(?:{ours}) --", quoted):
                named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9_-]+", quoted))
                named = {name for name in named if "_" not in name}  # else GRPOConfig's
                assert named <= known, f"{path.name}: `{quoted}`"


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_option_says_what_it_does(name):
    for action in commands()[name]._actions:
        if action.option_strings and not action.metavar:
            assert action.help, f"{name} {action.option_strings} has no help"


HEAVY = "torch bitsandbytes trl transformers datasets unsloth matplotlib scipy.stats pandas".split()


def ended_and_loaded(*commands: str) -> str:
    """The exit statuses of commands in a process of their own, and which of HEAVY it has loaded."""
    code = (
        f"import sys; from grpo_workbook.cli import main\nended = []\nfor words in {commands}:\n"
        "    try: ended.append(main(words.split()))\n"
        "    except SystemExit as end: ended.append(end.code)\n"
        f"print(*ended, {set(HEAVY)} & {{*sys.modules}})"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPO)
    return (said.stdout or said.stderr).splitlines()[-1]


@pytest.mark.parametrize("words", ["--help", "run --help", "diagnose --help"])
def test_help_is_quick_because_it_loads_nothing_heavy(words):
    assert ended_and_loaded(words).endswith(" set()")


# ------------------------------------------------------------------ how a command ends


@pytest.mark.parametrize(
    ("error", "status", "named"),
    [
        (WorkbookError("bad\x1b[2J"), 2, ["error: bad\\x1b[2J"]),
        (ModuleNotFoundError("no", name="unsloth"), 2, ["error: ", "unsloth", "make setup"]),
        (FileNotFoundError(2, "No such file", "here"), 2, ["error: here", "No such file"]),
        (KeyboardInterrupt(), 130, ["Interrupted"]),
    ],
)
def test_every_error_of_a_user_is_one_line_and_a_status(monkeypatch, capsys, error, status, named):
    from grpo_workbook.cli import doctor

    def fail(args):
        raise error

    monkeypatch.setattr(doctor, "main", fail)
    assert main(["doctor"]) == status
    message = capsys.readouterr().err
    assert len(message.strip().splitlines()) == 1
    assert_names(message, *named)


def test_what_is_a_fault_of_ours_goes_on(monkeypatch):
    from grpo_workbook.cli import doctor

    def fail(args):
        raise ModuleNotFoundError("no", name="grpo_workbook.gone")

    monkeypatch.setattr(doctor, "main", fail)
    with pytest.raises(ModuleNotFoundError):
        main(["doctor"])


@pytest.mark.slow
def test_a_command_that_is_none_and_a_reader_that_has_left():
    result = cli("estimate")
    assert result.returncode == 2
    assert_names(result.stderr, "'estimate'")
    command = f"{sys.executable} -m grpo_workbook doctor | head -c 5"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=REPO)
    assert "Traceback" not in result.stderr
