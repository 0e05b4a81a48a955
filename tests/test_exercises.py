"""Both ways: the solutions in the notebooks pass, and stubs and mistakes get their messages."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from difflib import SequenceMatcher

import jupytext
import pytest
from conftest import REPO, assert_names, raises_naming

from grpo_workbook import exercises
from grpo_workbook.exercises import checking, tasks
from grpo_workbook.exercises.progress import record, solved

HEADING = r"### Exercise (\d\d\.\d) · `(\w+)` · (easy|medium|hard) · \d+ minutes"
SOLUTION = r"<summary>Solution</summary>\n\n```python\n(.*?)```"
SOURCES = sorted((REPO / "notebooks" / "source").glob("[0-9]*.py"))
tasks.load_all()


def all_blocks():
    """(notebook, number, name, stub's code, solution's code) of every exercise in a notebook."""
    blocks = []
    for source in SOURCES:
        cells = jupytext.read(source, fmt="py:percent").cells
        for heading, stub, answer in zip(cells, cells[1:], cells[2:], strict=False):
            match = re.match(HEADING, heading.source)
            if match is None:
                continue
            number, name = match[1], match[2]
            solution = re.search(SOLUTION, answer.source, re.DOTALL)
            assert solution is not None, f"{number} has no solution"
            block = pytest.param(source.stem, number, name, stub.source, solution[1], id=number)
            blocks.append(block)
    return blocks


every_block = all_blocks()
FUNCTIONS = []
EXPERIMENTS = []
for task in tasks.EXERCISES.values():
    if isinstance(task, tasks.Exercise):
        FUNCTIONS.append(task.number)
    else:
        EXPERIMENTS.append(task.number)
blocks = [block for block in every_block if block.values[1] in FUNCTIONS]


def test_every_exercise_has_its_place_in_a_notebook():
    placed = [b.values[:3] for b in every_block]
    assert sorted(placed) == sorted(
        (task.notebook, task.number, task.name) for task in tasks.EXERCISES.values()
    )
    for source in SOURCES:
        numbers = [number for notebook, number, _ in placed if notebook == source.stem]
        assert numbers == [f"{source.stem[:2]}.{i + 1}" for i in range(len(numbers))]
        assert 3 <= len(numbers) <= 6


@pytest.fixture
def progress(tmp_path, monkeypatch):
    monkeypatch.setenv("GRPO_WORKBOOK_PROGRESS", str(tmp_path / "deep" / "progress.json"))
    return tmp_path / "deep" / "progress.json"


@pytest.mark.parametrize(("notebook", "number", "name", "stub", "solution"), blocks)
def test_solution_passes_and_is_recorded(notebook, number, name, stub, solution, progress, capsys):
    space = {"check": exercises.check}
    exec(solution, space)
    result = exercises.check(number, space[name])
    assert result.status == "solved", result
    assert "Solved" in capsys.readouterr().out
    assert set(solved()) == {number}


@pytest.mark.parametrize(("notebook", "number", "name", "stub", "solution"), blocks)
def test_stub_runs_through_and_is_not_attempted(
    notebook, number, name, stub, solution, progress, capsys
):
    exec(stub, {"check": exercises.check})
    assert f'check("{number}", {name});' in stub
    assert "Not attempted" in capsys.readouterr().out
    assert solved() == {}
    assert "raise NotImplementedError" in stub
    # the stub is typed, and the solution keeps its signature
    signature = re.search(rf"def {name}\((.*?)\) -> (.*?):\n", stub, re.DOTALL)
    assert signature
    assert signature[0] in solution


def why_not_named(task, mistake):
    """What an author must change so that a mistake gets its own message, or None."""
    message = tasks.message_of(mistake)
    if len(message) <= 30:
        return "its docstring is too short: say what was done, then what is right"
    result = exercises.judge(task.number, mistake)
    if result.status != "wrong":
        return f"no case finds it wrong ({result.status}): add one with another result"
    if result.message == message:
        return None
    for other in task.mistakes:
        if result.message == tasks.message_of(other):
            name = other.__name__
            return f"{name} fits it: add a case where {name} is wrong with another result than this"
    return f"its message is {result.message!r}"


@pytest.mark.parametrize("number", FUNCTIONS)
def test_typical_mistakes_fail_and_are_named(number):
    task = tasks.EXERCISES[number]
    assert len(task.mistakes) >= 2
    to_change = {}
    for mistake in task.mistakes:
        reason = why_not_named(task, mistake)
        if reason is not None:
            to_change[mistake.__name__] = reason
    assert to_change == {}


def test_one_noisy_step_decides_no_diagnosis():
    """Answers that look at single steps are wrong on a noisy log: 05.1 and 05.4."""

    def gamed(reward, heldout):
        return reward[-1] > reward[0] + 0.05 and heldout[-1] <= heldout[0] + 0.05

    def spent(entropy, reward, highest):
        for step in range(3, len(entropy) + 1):
            low = sum(entropy[step - 3 : step]) / 3 < 0.25 * entropy[0]
            if low and sum(reward[step - 3 : step]) / 3 < 0.8 * highest:
                return step
        return None

    from grpo_workbook.exercises import ch05

    message = tasks.message_of(ch05.compares_two_steps)
    assert exercises.judge("05.1", gamed).message == message
    message = tasks.message_of(ch05.starts_from_the_first_step_alone)
    assert exercises.judge("05.4", spent).message == message


def test_a_mistake_without_a_message_or_a_number_that_is_taken_is_an_error(monkeypatch):
    monkeypatch.setattr(tasks, "EXERCISES", {})
    task = tasks.exercise("04.9", "double")

    def adds_one(x):
        return x + 1

    with raises_naming(ValueError, "adds_one"):
        task.mistake(adds_one)
    with raises_naming(ValueError, "04.9"):
        task.case(2)  # neither gives= nor a solution
    with raises_naming(ValueError, "triple", "04.9"):
        tasks.exercise("04.9", "triple")


@pytest.mark.parametrize("number", EXPERIMENTS)
def test_an_experiment_is_read_and_every_wrong_prediction_is_named(number):
    task = tasks.EXERCISES[number]
    assert {right for _, right in task.examples} <= task.wrong.keys()
    assert len(task.wrong) >= 2
    for measured, right in task.examples:
        for prediction, sentence in task.wrong.items():
            result = checking.judge_prediction(task, prediction, measured)
            assert (result.status == "solved") is (prediction == right), result
            assert (sentence in result.message) is (prediction != right)
    assert checking.judge_prediction(task, next(iter(task.wrong)), None).status == "wrong"


@pytest.mark.parametrize(
    ("notebook", "number", "name", "stub", "solution"),
    [b for b in every_block if b.values[1] in EXPERIMENTS],
)
def test_an_experiments_stub_runs_nothing(notebook, number, name, stub, solution, progress, capsys):
    exec(stub, {"predict": exercises.predict})
    assert f'predict("{number}", ' in stub
    assert "Not attempted" in capsys.readouterr().out
    assert solved() == {}
    assert "prediction = ..." in stub
    chosen = re.search(r'prediction = "([^"]+)"', solution)
    assert chosen
    assert chosen[1] in tasks.EXERCISES[number].wrong


def test_another_rule_finds_the_leaks_too():
    """02.3 leaves the rule to the learner: here the order of the words counts, and no rate."""

    def rows_to_drop(train, heldout):
        known = []
        for question in heldout:
            known.append((words_of(question), re.findall(r"\d+", question)))
        rows = []
        for row, question in enumerate(train):
            numbers = re.findall(r"\d+", question)
            for words, other_numbers in known:
                matcher = SequenceMatcher(None, words, words_of(question))
                if numbers == other_numbers and matcher.ratio() > 0.85:
                    rows.append(row)
                    break
        return rows

    def words_of(question):
        return re.findall(r"[a-z]+|[-+*/]", question.lower())

    assert exercises.judge("02.3", rows_to_drop).status == "solved"


def test_nothing_runs_before_a_prediction_is_made(progress, monkeypatch, capsys):
    def read(measured):
        return "up" if measured > 0 else "down", f"It moved by {measured}."

    wrong = {"up": "It sank.", "down": "It rose."}
    task = tasks.Experiment("99.1", "x", read, wrong)
    monkeypatch.setitem(tasks.EXERCISES, "99.1", task)
    runs = []
    for prediction, status in ((..., "not attempted"), ("left", "wrong"), ("down", "wrong")):
        result = exercises.predict("99.1", prediction, lambda: runs.append(1) or 2)
        assert result.status == status
    assert len(runs) == 1
    assert_names(result.message, "'down'", "It moved by 2.", "It rose.")
    assert exercises.predict("99.1", "up", lambda: 2).status == "solved"
    assert "99.1" in progress.read_text()


CALL = "smallest_group(0.5, 0.8)"
EXPECTED = "give 4"


def test_an_unknown_mistake_is_shown_its_case():
    message = exercises.judge("07.1", lambda rate, wanted: 77).message
    assert_names(message, CALL, EXPECTED, "gave 77")


def test_a_learners_exception_is_shown_with_its_arguments_and_line(progress, capsys):
    def smallest_group(rate, wanted):
        return sum(a for a, b, c in [(rate, wanted)])

    result = exercises.check("07.1", smallest_group)
    assert result.status == "wrong"
    line = "return sum(a for a, b, c in [(rate, wanted)])"
    assert_names(capsys.readouterr().out, CALL, EXPECTED, "raised ValueError", line)


class _Wordless(Exception):
    def __str__(self):
        return 5


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        ZeroDivisionError("x" * 10_000),
        type("Odd", (Exception,), {})(),
        _Wordless(),
        type("Base", (BaseException,), {})("custom"),
        GeneratorExit(),
    ],
)
def test_whatever_a_learner_raises_check_does_not(error, progress):
    def smallest_group(rate, wanted):
        raise error

    result = exercises.check("07.1", smallest_group)
    assert result.status == "wrong"
    assert f"raised {type(error).__name__}" in result.message
    assert len(result.message) < 600


class _Broken(list):
    def __len__(self):
        raise RuntimeError("len")

    def tolist(self):
        raise RuntimeError("tolist")

    def __repr__(self):
        raise RuntimeError("repr")


@pytest.mark.parametrize("number", ["01.1", "03.1", "07.1"])
def test_a_result_that_cannot_be_compared_is_wrong(number):
    import torch

    for odd in (
        torch.Tensor,
        torch.empty(3, device="meta"),
        _Broken([1]),
        10**400,
        10**5000,
        [10**400] * 2,
    ):
        result = exercises.judge(number, lambda *arguments, odd=odd: odd)
        assert result.status == "wrong"
        assert len(result.message) < 900


def test_ctrl_c_is_no_wrong_answer():
    def smallest_group(rate, wanted):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        exercises.judge("07.1", smallest_group)


def test_what_is_no_function_is_named():
    result = exercises.judge("07.1", 4096)
    assert result.status == "wrong"
    assert_names(result.message, "smallest_group", 4096)


def test_a_function_that_changes_its_arguments_does_not_spoil_the_cases():
    from grpo_workbook.exercises import ch04

    def what_is_shown(before, after, control):
        gained = ch04.is_better(after, before)
        beyond = ch04.is_better(after, control)
        for right in (before, after, control):
            right.clear()
        return ch04.decide(gained, beyond)

    assert (
        exercises.judge("04.3", what_is_shown).status
        == exercises.judge("04.3", what_is_shown).status
        == "solved"
    )


def test_numbers_of_numpy_and_torch_are_numbers():
    import numpy as np
    import torch

    from grpo_workbook.exercises.ch07 import correct_smallest_group

    for number in (np.int64, torch.tensor):
        result = exercises.judge(
            "07.1", lambda *given, kind=number: kind(correct_smallest_group(*given))
        )
        assert result.status == "solved"
    result = exercises.judge("07.1", lambda *given: float(correct_smallest_group(*given)))
    assert result.status == "wrong"


def test_a_wrong_number_is_named():
    with raises_naming(ValueError, "'99.9'", "04.1"):
        exercises.judge("99.9", print)


def test_a_damaged_progress_file_is_kept_aside(progress, capsys):
    progress.parent.mkdir(parents=True)
    progress.write_text("{broken")
    assert record("04.3") is None
    assert set(solved()) == {"04.3"}
    assert progress.with_suffix(".damaged").read_text() == "{broken"


def test_a_folder_in_place_of_the_progress_file_is_reported(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GRPO_WORKBOOK_PROGRESS", str(tmp_path))
    assert solved() == {}
    assert_names(capsys.readouterr().out, tmp_path, "GRPO_WORKBOOK_PROGRESS")


def test_progress_that_cannot_be_written_does_not_unsolve(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GRPO_WORKBOOK_PROGRESS", str(tmp_path / "file" / "progress.json"))
    from grpo_workbook.exercises.ch07 import correct_smallest_group

    result = exercises.check("07.1", correct_smallest_group)
    assert result.status == "solved"
    assert_names(capsys.readouterr().out, "Solved", "GRPO_WORKBOOK_PROGRESS")


def test_progress_in_the_home_folder_and_behind_a_link(tmp_path, monkeypatch):
    """~ is the home folder also where no shell has read it, and a link to another disk stays a
    link.
    """
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GRPO_WORKBOOK_PROGRESS", "~/mine.json")
    (tmp_path / "mine.json").symlink_to(tmp_path / "far.json")
    assert record("04.3") is None
    assert set(json.loads((tmp_path / "far.json").read_text())["solved"]) == {"04.3"}
    assert (tmp_path / "mine.json").is_symlink()


@pytest.mark.slow
def test_two_notebooks_at_once_lose_nothing(progress):
    """Four processes record a hundred solutions each: none overwrites another's."""
    code = "import sys; from grpo_workbook.exercises.progress import record\n"
    code += "for i in range(100): assert record(f'{sys.argv[1]}.{i}') is None"
    processes = [subprocess.Popen([sys.executable, "-c", code, str(k)], cwd=REPO) for k in range(4)]
    assert [p.wait(timeout=300) for p in processes] == [0] * 4
    assert set(solved()) == {f"{k}.{i}" for k in range(4) for i in range(100)}


@pytest.mark.slow
def test_a_killed_write_leaves_a_whole_file(progress):
    code = "from grpo_workbook.exercises.progress import record\nimport itertools\n"
    code += "for i in itertools.count(): record(f'1.{i}'); print(i, flush=True)"
    for _ in range(5):
        process = subprocess.Popen(
            [sys.executable, "-c", code], cwd=REPO, stdout=subprocess.PIPE, text=True
        )
        written = [int(process.stdout.readline()) for _ in range(30)]
        process.kill()
        process.wait()
        assert set(solved()) >= {f"1.{i}" for i in written}
    assert not progress.with_suffix(".damaged").exists()


def test_the_answers_of_the_gpu_clinic_are_in_the_data():
    import pandas as pd

    from grpo_workbook.diagnosis import diagnose, read_run
    from grpo_workbook.exercises.ch05 import GPU_CLINIC

    table = pd.read_csv(REPO / "data" / "gpu_runs.csv")
    runs = {name: log.drop(columns="run") for name, log in table.groupby("run", sort=False)}
    assert list(runs) == list(GPU_CLINIC)
    length, limits = "completions/mean_length", {"phi4_14b": 200, "llama32_1b_fp8": 1849}
    for name, log in runs.items():
        rows = [row.dropna().to_dict() for _, row in log.iterrows()]
        settings = {"max_completion_length": limits[name]} if name in limits else {}
        found = {finding.name for finding in diagnose(replace(read_run(rows), settings=settings))}
        assert found - {"too_short"} <= GPU_CLINIC[name], name
    assert all((runs[name][length] > 0.8 * limit).all() for name, limit in limits.items())
    assert (runs["qwen3_0.6b_base"][length].head(6) < 0.6 * 1024).all()
