"""Rewards of one's own: a file on disk, loaded as a user's would be."""

import os
from pathlib import Path

import pytest

from grpo_workbook.data import to_dataset
from grpo_workbook.errors import WorkbookError
from grpo_workbook.reward_files import beside, file_hashes, load_reward, own, try_rewards
from grpo_workbook.rubric import parse_rewards

FILE = """
import helper_of_mine
LIMIT = 3

def my_reward(completions, answer, **kwargs):
    return [float(a in c[0]["content"]) for c, a in zip(completions, answer)]

def wants_level(completions, level, **kwargs):
    return [1.0 for _ in level]

def closed(completions):
    return [0.0] * len(completions)

async def later(completions, **kwargs):
    return [0.0] * len(completions)

def too_few(completions, **kwargs):
    return [1.0]

def breaks(completions, **kwargs):
    return [1 / len(c[0]["content"]) for c in completions]

def numpy_numbers(completions, **kwargs):
    import numpy as np
    return np.ones(len(completions))

def correctness_reward(completions, **kwargs):
    return [1.0] * len(completions)
"""
ROWS = [{"question": f"What is {n}+1?", "answer": str(n + 1), "levle": "easy"} for n in (2, 5)]


@pytest.fixture
def rewards_py(tmp_path):
    (tmp_path / "helper_of_mine.py").write_text("X = 1\n")
    (tmp_path / "my_rewards.py").write_text(FILE)
    return tmp_path / "my_rewards.py"


def completions(*texts):
    return [[{"role": "assistant", "content": text}] for text in texts]


def test_a_function_of_ones_own_is_a_reward_like_any_other(rewards_py):
    functions, weights = parse_rewards(
        f"{rewards_py}:my_reward:2.5, strict_format, {rewards_py}:numpy_numbers"
    )
    assert weights == [2.5, 1.0, 1.0]
    assert [f.__name__ for f in functions] == ["my_reward", "strict_format_reward", "numpy_numbers"]
    assert own(functions) == [functions[0], functions[2]]
    assert functions[0](
        prompts=["", ""], completions=completions("it is 3", "no"), answer=["3", "6"]
    ) == [1.0, 0.0]
    assert [type(v) for v in functions[2](completions=completions("", ""))] == [float, float]
    try_rewards(functions, list(to_dataset(ROWS)))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my_rewrad", r"has no 'my_rewrad': did you mean 'my_reward'\?"),
        ("zzz", "has no 'zzz': it has my_reward, wants_level"),
        (
            "LIMIT",
            r"'LIMIT' of .* is no function but of type int: write `def LIMIT\(completions, \*\*kwargs\)`",
        ),
        ("closed", r"closed\(completions\) of .* cannot take .*\*\*kwargs"),
        ("later", "'later' of .* is async"),
    ],
)
def test_what_is_no_reward_is_named_with_the_mend(rewards_py, name, message):
    with pytest.raises(WorkbookError, match=message):
        load_reward(rewards_py, name)


def test_a_file_that_is_not_there_or_does_not_run(tmp_path, rewards_py):
    with pytest.raises(
        WorkbookError, match=r"my_reward\.py' does not exist \(its folder has my_rewards\.py\)"
    ):
        load_reward(tmp_path / "my_reward.py", "my_reward")
    (tmp_path / "broken.py").write_text("def f(:\n    pass\n")
    with pytest.raises(
        WorkbookError, match=r"broken\.py cannot be run: SyntaxError: .* \(line 1\)"
    ):
        load_reward(tmp_path / "broken.py", "f")
    (tmp_path / "raises.py").write_text("x = 1\ny = {}['missing']\n")
    with pytest.raises(
        WorkbookError, match=r"raises\.py cannot be run: KeyError: 'missing' \(line 2\)"
    ):
        load_reward(tmp_path / "raises.py", "f")
    with pytest.raises(WorkbookError, match="FILE.py:FUNCTION for your own"):
        parse_rewards(str(rewards_py))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "wants_level",
            r"wants_level wants 'level', which the data has not: did you mean 'levle'\?",
        ),
        ("too_few", "too_few broke the contract: 4 completions in"),
        ("breaks", r"breaks failed on a made-up completion: ZeroDivisionError: .* \(line 21\)"),
    ],
)
def test_a_slip_shows_before_training(rewards_py, name, message):
    functions, _ = parse_rewards(f"{rewards_py}:{name}")
    with pytest.raises(WorkbookError, match=message):
        try_rewards(functions, list(to_dataset(ROWS)))


def test_two_rewards_of_one_name_would_share_a_metric(rewards_py):
    with pytest.raises(WorkbookError, match="two rewards in .* have the name 'correctness_reward'"):
        parse_rewards(f"correctness,{rewards_py}:correctness_reward")
    with pytest.raises(WorkbookError, match="every weight in .* is 0"):
        parse_rewards(f"{rewards_py}:my_reward:0")
    with pytest.raises(WorkbookError, match="the weight 'x' of 'my_reward' is not a number"):
        parse_rewards(f"{rewards_py}:my_reward:x")


HOSTILE = """
def good(completions, **kwargs):
    return [1.0] * len(completions)

def later(completions, trainer_state, **kwargs):
    if trainer_state.global_step == 2:
        raise KeyError("colour")
    return good(completions)

def leaves(completions, **kwargs):
    raise SystemExit(0)

def as_dict(completions, **kwargs):
    return {i: 1.0 for i in range(len(completions))}

def as_set(completions, **kwargs):
    return set(range(len(completions)))

def huge(completions, **kwargs):
    return [10**400] * len(completions)

def sorts(completions, answer, **kwargs):
    number = len(completions)
    completions.clear()
    answer.clear()
    return [1.0] * number

def one_by_one(completions, **kwargs):
    for c in completions:
        yield float(c[0]["content"])
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("leaves", r"leaves failed on a made-up completion: SystemExit: 0 \(line 11\)"),
        ("as_dict", "as_dict broke the contract"),
        ("as_set", "as_set broke the contract"),
        ("huge", "huge broke the contract"),
        (
            "one_by_one",
            r"one_by_one failed on a made-up completion: ValueError: could not convert .* \(line 30\)",
        ),
    ],
)
def test_what_a_hostile_function_does_is_an_error_and_never_a_number(tmp_path, name, message):
    (tmp_path / "böse Datei.py").write_text(HOSTILE)
    with pytest.raises(WorkbookError, match=message):
        try_rewards(
            parse_rewards(f"{tmp_path / 'böse Datei.py'}:{name}")[0], list(to_dataset(ROWS))
        )


def test_a_function_may_empty_its_lists_without_harm(tmp_path):
    (tmp_path / "mine.py").write_text(HOSTILE)
    texts, answers = completions("a", "b"), ["1", "2"]
    assert load_reward(tmp_path / "mine.py", "sorts")(completions=texts, answer=answers) == [
        1.0,
        1.0,
    ]
    assert (len(texts), answers) == (2, ["1", "2"])


def test_a_function_that_fails_while_training_is_named_with_step_and_line(tmp_path):
    from transformers import TrainerState

    (tmp_path / "mine.py").write_text(HOSTILE)
    later = load_reward(tmp_path / "mine.py", "later")
    assert later(completions=completions("a"), trainer_state=TrainerState(global_step=1)) == [1.0]
    with pytest.raises(
        WorkbookError, match=r"mine\.py: later failed in step 3: KeyError: 'colour' \(line 7\)"
    ):
        later(completions=completions("a"), trainer_state=TrainerState(global_step=2))


def test_a_file_that_ends_the_program_is_an_error(tmp_path):
    (tmp_path / "ends.py").write_text("import sys\nsys.exit()\n")
    with pytest.raises(WorkbookError, match=r"ends\.py cannot be run: SystemExit:  \(line 2\)"):
        load_reward(tmp_path / "ends.py", "f")


def test_a_file_that_was_changed_is_read_again(tmp_path):
    """As in a notebook: mend the file, run the cell again. Within a second and with as many bytes, too."""
    path = tmp_path / "mine.py"
    for value in ("0.5", "0.7", "0.5"):
        path.write_text(
            f"def mine(completions, **kwargs):\n    return [{value}] * len(completions)\n"
        )
        assert load_reward(path, "mine")(completions=["a"]) == [float(value)]
    assert os.listdir(tmp_path) == ["mine.py"]


def test_a_comma_in_the_path_is_told_as_what_it_is(tmp_path, monkeypatch):
    (folder := tmp_path / "Smith, John").mkdir()
    (folder / "mine.py").write_text(
        "def mine(completions, **kwargs):\n    return [0.5] * len(completions)\n"
    )
    with pytest.raises(WorkbookError, match="has a comma in its path, .* start from inside of it"):
        beside("correctness:2, mine.py:mine:1", folder)
    with pytest.raises(
        WorkbookError, match="FILE.py:FUNCTION for your own, its path without a comma"
    ):
        parse_rewards(f"{folder}/mine.py:mine")
    monkeypatch.chdir(folder)
    assert parse_rewards(beside("correctness:2, mine.py:mine:1", Path(".")))[1] == [2.0, 1.0]


def test_two_files_with_one_function_name_have_a_hash_each(tmp_path):
    specs = []
    for folder in ("a", "b"):
        path = tmp_path / folder / "mine.py"
        path.parent.mkdir()
        path.write_text(
            f"def score(completions, **columns):\n    return [{len(specs)}.0 for _ in completions]\n"
        )
        specs.append(f"{path}:score")
    functions = [parse_rewards(spec)[0][0] for spec in specs]
    before = file_hashes(functions)
    assert len(before) == len(set(before.values())) == 2
    assert file_hashes(functions[:1]).keys() == {"mine.py:score"}
    (tmp_path / "a" / "mine.py").write_text(
        "def score(completions, **columns):\n    return [2.0 for _ in completions]\n"
    )
    assert file_hashes([parse_rewards(spec)[0][0] for spec in specs]) != before
