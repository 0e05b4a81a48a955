"""Rewards of one's own: a file on disk, loaded as a user's would be."""

import pytest

from grpo_workbook.data import to_dataset
from grpo_workbook.reward_files import load_reward, own, try_rewards
from grpo_workbook.rubric import parse_rewards
from grpo_workbook.run import WorkbookError

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
    functions, weights = parse_rewards(f"{rewards_py}:my_reward:2.5, strict_format, {rewards_py}:numpy_numbers")
    assert weights == [2.5, 1.0, 1.0]
    assert [f.__name__ for f in functions] == ["my_reward", "strict_format_reward", "numpy_numbers"]
    assert own(functions) == [functions[0], functions[2]]
    assert functions[0](prompts=["", ""], completions=completions("it is 3", "no"), answer=["3", "6"]) == [1.0, 0.0]
    assert [type(v) for v in functions[2](completions=completions("", ""))] == [float, float]
    try_rewards(functions, list(to_dataset(ROWS)))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my_rewrad", r"has no 'my_rewrad': did you mean 'my_reward'\?"),
        ("zzz", "has no 'zzz': it has my_reward, wants_level"),
        ("LIMIT", r"'LIMIT' of .* is no function but of type int: write `def LIMIT\(completions, \*\*kwargs\)`"),
        ("closed", r"closed\(completions\) of .* cannot take .*\*\*kwargs"),
        ("later", "'later' of .* is async"),
    ],
)
def test_what_is_no_reward_is_named_with_the_mend(rewards_py, name, message):
    with pytest.raises(WorkbookError, match=message):
        load_reward(rewards_py, name)


def test_a_file_that_is_not_there_or_does_not_run(tmp_path, rewards_py):
    with pytest.raises(WorkbookError, match=r"my_reward\.py' does not exist \(its folder has my_rewards\.py\)"):
        load_reward(tmp_path / "my_reward.py", "my_reward")
    (tmp_path / "broken.py").write_text("def f(:\n    pass\n")
    with pytest.raises(WorkbookError, match=r"broken\.py cannot be run: SyntaxError: .* \(line 1\)"):
        load_reward(tmp_path / "broken.py", "f")
    (tmp_path / "raises.py").write_text("x = 1\ny = {}['missing']\n")
    with pytest.raises(WorkbookError, match=r"raises\.py cannot be run: KeyError: 'missing' \(line 2\)"):
        load_reward(tmp_path / "raises.py", "f")
    with pytest.raises(WorkbookError, match="FILE.py:FUNCTION for your own"):
        parse_rewards(str(rewards_py))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wants_level", r"wants_level wants 'level', which the data has not: did you mean 'levle'\?"),
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
