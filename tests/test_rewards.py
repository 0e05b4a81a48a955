"""The rewards of the floor: what they pay, by name and weight, joined, from a user's own file."""

import asyncio
import re
import subprocess
import sys

import pytest
from conftest import REPO, environment, raises_naming

from grpo_workbook import config, rewards
from grpo_workbook.cli.rewards import beside, file_hashes, load_reward, try_rewards
from grpo_workbook.cli.rewards import parse_rewards as parse_with_files
from grpo_workbook.data import load_tokenizer, to_dataset
from grpo_workbook.errors import WorkbookError
from grpo_workbook.rewards import (
    correctness_reward,
    get_answer_reward,
    get_overlong_reward,
    incremental_format_reward,
    parse_rewards,
    strict_format_reward,
    text_of,
)
from grpo_workbook.rewards.contract import RewardInfo, about, call, name_of
from grpo_workbook.rewards.specs import REGISTRY

GOOD = "<reasoning>\n6*7=42\n</reasoning>\n<answer>42</answer>"
REWARDS, REWARD_WEIGHTS = parse_rewards(config.REWARDS)


def total(text):
    """What GRPO compares: TRL's weighted sum."""
    values = [f(completions=[text], answer=["42"])[0] for f in REWARDS]
    return sum(w * v for w, v in zip(REWARD_WEIGHTS, values, strict=True))


def chat(text):
    return [{"role": "assistant", "content": text}]


def test_both_forms_of_completions():
    assert text_of(GOOD) == text_of(chat(GOOD)) == GOOD
    assert (
        correctness_reward([GOOD], answer=["42"])
        == correctness_reward([chat(GOOD)], answer=["42"])
        == [1.0]
    )


def test_the_best_completion_earns_the_maximum():
    assert total(GOOD) == sum(REWARD_WEIGHTS) == 3.0


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        (GOOD, 1.0),
        ("<answer>42</answer>", 1.0),
        ("<answer>$42.00</answer>", 1.0),
        ("<answer>41</answer>", 0.0),
        ("42", 0.0),
        ("<answer>41</answer><answer>42</answer>", 0.0),
        ("<answer>41 or 42</answer>", 0.0),
        ("<answer>40+2</answer>", 0.0),
        ("<answer>42", 0.0),
        ("", 0.0),
    ],
)
def test_correctness_pays_for_one_right_answer_block(text, reward):
    assert correctness_reward([text], answer=["42"]) == [reward]


def test_a_broken_reference_is_an_error_and_not_a_zero():
    with raises_naming(WorkbookError, "'forty-two'"):
        correctness_reward([GOOD], answer=["forty-two"])


def test_strict_format_pays_for_the_form_alone():
    assert strict_format_reward([GOOD, GOOD + " bye", "42"]) == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        (GOOD, 1.0),
        (GOOD + " trailing words", 1.0),
        ("<reasoning>\nabc", 0.25),
        ("<reasoning>abc</reasoning> 42", 0.5),
        ("<reasoning>abc</reasoning><answer>42", 0.75),
        ("<reasoning>abc<answer>42</answer>", 0.25),
        ("<answer>42</answer>", 0.0),
        ("", 0.0),
        ("42", 0.0),
        # gaming it
        ("</answer><answer></reasoning><reasoning>", 0.25),
        ("<reasoning></reasoning><answer></answer>", 0.25),
        ("<reasoning>a</reasoning><answer> </answer>", 0.75),
        (GOOD * 3, 0.0),
        ("<reasoning>" * 50, 0.0),
        ("<answer>1</answer>" * 4, 0.0),
    ],
)
def test_incremental_format_pays_for_each_part(text, reward):
    assert incremental_format_reward([text]) == [reward]


def test_no_text_earns_less_than_nothing_or_more_than_everything():
    from itertools import product

    parts = ["<reasoning>", "</reasoning>", "<answer>", "</answer>", "42", " "]
    for size in range(6):
        for text in map("".join, product(parts, repeat=size)):
            values = [f(completions=[text], answer=["42"])[0] for f in REWARDS]
            assert all(0 <= v <= 1 for v in values)
            most = sum(REWARD_WEIGHTS)
            assert total(text) < most or (total(text) == most and text.count("<") == 4)


def test_a_unit_is_known_from_the_prompt():
    texts = ["<answer>42 widgets</answer>", "<answer>42 gizmos</answer>"]
    for prompt in ("How many widgets?", [{"role": "user", "content": "6 rows.\nWidgets?"}]):
        assert correctness_reward(texts, answer=["42"] * 2, prompts=[prompt] * 2) == [1.0, 0.0]
    assert correctness_reward(texts, answer=["42"] * 2) == [0.0, 0.0]


def test_every_form_of_a_completion_is_read_and_what_does_not_apply_is_none():
    good = "<reasoning>2+2=4</reasoning><answer>4</answer>"
    texts = [chat(good), good, good]
    assert correctness_reward(completions=texts, answer=["4", None, "5"]) == [1.0, None, 0.0]
    assert correctness_reward(completions=[], answer=[]) == []


# ------------------------------------------------------------------ how a text is written


@pytest.mark.parametrize(
    ("tokens", "penalty"), [(0, 0), (80, 0), (85, -0.25), (90, -0.5), (100, -1), (5000, -1)]
)
def test_overlong_is_dapos_equation_13(tokens, penalty):
    assert get_overlong_reward(100, 20)(["x"], completion_ids=[[7] * tokens]) == [penalty]
    assert get_overlong_reward(100)(["x"], completion_ids=[[7] * tokens]) == [penalty]


@pytest.mark.parametrize("bad", [0, "many", "-3"])
def test_bad_settings_are_refused(bad):
    with raises_naming(WorkbookError, repr(bad)):
        get_overlong_reward(bad)


# ------------------------------------------------------------------ what they say of themselves


def test_a_reward_says_what_it_judges_whatever_its_name():
    assert {name: about(made).role for name, made in REGISTRY.items()} == {
        "correctness": "correctness",
        "strict_format": "format",
        "incremental_format": "format",
        "overlong": None,  # a factory
    }
    assert about(correctness_reward) == RewardInfo("correctness", ("answer",), "number")
    assert about(get_overlong_reward(5)).role == "length"

    @rewards.reward(role="correctness", columns=("solution",))
    def format_of_my_xml_tags(completions, **columns):
        return [1.0] * len(completions)

    assert about(format_of_my_xml_tags).role == "correctness"
    assert about(lambda completions, **columns: [1.0]) == RewardInfo()


# ------------------------------------------------------------------ for a script of one's own


@pytest.mark.parametrize(
    ("marker", "text", "gold", "value"),
    [
        ("\\boxed{}", r"<think>\boxed{41}</think>\boxed{42}", "42", 1.0),  # a draft
        ("\\boxed{}", r"<think>\boxed{42}</think>\boxed{41}", "42", 0.0),
        ("\\boxed{}", r"so \boxed{42}", "42", 1.0),
        ("\\boxed{}", r"so \boxed{42.0}", "42", 1.0),
        ("\\boxed{}", r"so \boxed{41}", "42", 0.0),
        ("\\boxed{}", "the answer is 42", "42", 0.0),  # not marked
        ("\\boxed{}", r"\boxed{41} no, \boxed{42}", "42", 0.0),  # two that differ
        ("\\boxed{}", r"\boxed{42} that is \boxed{42.0}", "42", 1.0),
        ("\\boxed{}", r"\boxed{1} " * 65, "1", 0.0),  # spam
        ("\\boxed{}", r"\boxed{}", "42", 0.0),
        ("\\boxed{}", r"\boxed{\frac{1}{2}}", "0.5", 1.0),
        ("\\boxed{}", r"\boxed{\sqrt{x^{2}+1}}", r"\sqrt{x^{2}+1}", 1.0),  # braces within
        ("\\boxed{}", r"\boxed{\sqrt{x^{2}}}", r"\sqrt{x^{2}+1}", 0.0),
        ("\\boxed{}", r"\boxed{42}", r"6 * 7 = 42, so \boxed{42}", 1.0),  # a whole solution
        ("\\boxed{}", r"\boxed{42}", r"\boxed{6 * 7} is \boxed{42}", 1.0),  # its last one
        ("\\boxed{}", r"\boxed{42 widgets}", "42", 1.0),  # a word of the question
        ("\\boxed{}", r"\boxed{42 gizmos}", "42", 0.0),
        ("####", "6*7=42\n#### 42", "6 * 7 = <<6*7=42>>42\n#### 42", 1.0),
        ("####", "6*7=42\n#### 42 or 41", "#### 42", 0.0),
        ("####", "#### 1,042", "1042", 1.0),
        ("<answer>", "<answer> Paris </answer>", "paris", 1.0),
        ("<answer>", "<answer>Paris or Rome</answer>", "Paris", 0.0),
        ("<answer>", "Paris", "Paris", 0.0),
        (r"Answer: (\S+)", "Answer: 41\nAnswer: 42", "42", 0.0),
        (r"Answer: (\S+)", "Answer: 42.", "42", 1.0),
        (r'"answer":\s*"?([^",}]*)', '{"why": "6*7", "answer": 42}', "42", 1.0),
        (re.compile(r"answer is (.+)", re.I), "The ANSWER IS 42 widgets.", "42", 1.0),
    ],
)
def test_a_marked_answer_is_compared_with_any_column(marker, text, gold, value):
    reward = get_answer_reward("gold", marker)
    columns = {"prompts": ["How many widgets?"], "gold": [gold], "trainer_state": None}
    assert reward(completions=[text], **columns) == [value]
    columns["prompts"] = [[{"role": "user", "content": "How many widgets?"}]]
    assert reward(completions=[chat(text)], **columns) == [value]


def test_a_row_without_gold_is_left_out_and_numbers_are_texts_too():
    reward = get_answer_reward("solution")
    texts = [r"\boxed{5}"] * 5
    assert reward(texts, solution=[None, 5, 5.0, " ", "6"]) == [None, 1.0, 1.0, None, 0.0]


def test_a_reward_for_marked_answers_names_its_columns():
    reward = get_answer_reward("gold", "####")
    assert (about(reward).role, about(reward).columns) == ("correctness", ("gold",))
    assert reward.__name__ == "gold_answer_reward"
    assert get_answer_reward(name="right").__name__ == "right"
    columns = {"answer": ["42"], "level": [1], "completion_ids": [[1]], "trainer_state": None}
    with raises_naming(WorkbookError, "'gold'", "answer, level"):
        reward(completions=["#### 42"], prompts=["?"], **columns)
    with raises_naming(WorkbookError, "'Answer:'", "0 groups"):
        get_answer_reward(marker="Answer:")


def test_no_attack_on_a_marked_answer_is_paid():
    """Texts of a million characters, made of the marks themselves."""
    for marker, part in (
        ("\\boxed{}", "\\boxed{"),
        ("\\boxed{}", "{"),
        ("####", "#### 42\n"),
        ("<answer>", "<answer>"),
    ):
        assert get_answer_reward("gold", marker)([part * (10**6 // len(part))], gold=["42"]) == [
            0.0
        ]


# ------------------------------------------------------------------ by name


def test_the_default_is_what_the_main_run_uses():
    assert [correctness_reward, strict_format_reward, incremental_format_reward] == REWARDS
    assert REWARD_WEIGHTS == [2.0, 0.5, 0.5]


def test_names_arguments_and_weights():
    functions, weights = parse_rewards(
        " correctness : 2 , overlong=100:0.3,strict_format:1e-1,incremental_format:0"
    )
    assert weights == [2.0, 0.3, 0.1, 0.0]
    assert [f.__name__ for f in functions] == [
        "correctness_reward",
        "overlong_reward",
        "strict_format_reward",
        "incremental_format_reward",
    ]
    assert functions[1](completions=["x"], completion_ids=[[0] * 90]) == [-0.5]


def test_a_room_brings_its_own():
    extra = {"mine": correctness_reward, "made": get_overlong_reward}
    functions, _ = parse_rewards("mine,made=5", extra)
    assert [name_of(f) for f in functions] == ["correctness_reward", "overlong_reward"]
    assert "mine" not in REGISTRY


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ("corectness:2", ["'corectness'", "correctness"]),
        ("", ["''"]),
        ("correctness,", ["'correctness,'"]),
        ("correctness:2,correctness:1", ["correctness_reward, correctness_reward"]),
        ("correctness:lots", ["'correctness:lots'"]),
        ("correctness:", ["'correctness:'"]),
        ("correctness:nan", ["'correctness:nan'"]),
        ("correctness:inf", ["'correctness:inf'"]),
        ("correctness:-1", ["'correctness:-1'"]),
        ("strict_format:0,correctness:0", ["strict_format:0,correctness:0"]),
        ("overlong", ["overlong", "'max_length'"]),
        ("overlong=:2", ["overlong=", "''"]),
        ("correctness=3", ["'correctness'", "=3"]),
        ("overlong=many", ["overlong=many"]),
        ("overlong=0", ["overlong=0"]),
    ],
)
def test_a_bad_spec_is_named(spec, named):
    with raises_naming(WorkbookError, *named):
        parse_rewards(spec)


def test_importing_it_is_light():
    code = (
        "import sys, grpo_workbook.rewards.symbolic; print([m for m in "
        "('torch', 'trl', 'sympy', 'math_verify', 'matplotlib', 'pandas') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=REPO, env=environment(), capture_output=True, text=True
    )
    assert result.stdout.strip() == "[]", result.stderr


# ------------------------------------------------------------------ from a file of one's own

FILE = """
import helper_of_mine
from grpo_workbook import reward
LIMIT = 3

def my_reward(completions, answer, **kwargs):
    return [float(a in c[0]["content"]) for c, a in zip(completions, answer)]

@reward(role="difficulty", columns=("level",))
def wants_level(completions, level, **kwargs):
    return [1.0 for _ in level]

def closed(completions):
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
OTHER_FORMS = """
import functools

async def awaited(completions, **kwargs):
    return [1.0] * len(completions)

class Pays:
    def __init__(self, value):
        self.value = value

    def __call__(self, completions, **kwargs):
        return [self.value] * len(completions)

class PaysLater(Pays):
    async def __call__(self, completions, **kwargs):
        return [self.value] * len(completions)

def scaled(completions, scale, **kwargs):
    return [scale] * len(completions)

an_object = Pays(0.25)
a_slow_object = PaysLater(0.5)
half = functools.partial(scaled, scale=0.5)
tenth = functools.partial(scaled, scale=0.1)
short = lambda completion_ids, **kwargs: [float(len(ids) < 4) for ids in completion_ids]
has_step = lambda completions, trainer_state, **kwargs: [
    float(trainer_state.is_world_process_zero and trainer_state.global_step == 0)
] * len(completions)
"""
ROWS = [{"question": f"What is {n}+1?", "answer": str(n + 1), "levle": "easy"} for n in (2, 5)]


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(REPO / "data" / "tiny-qwen3")


@pytest.fixture
def rewards_py(tmp_path):
    (tmp_path / "helper_of_mine.py").write_text("X = 1\n")
    (tmp_path / "my_rewards.py").write_text(FILE)
    return tmp_path / "my_rewards.py"


def completions(*texts):
    return [[{"role": "assistant", "content": text}] for text in texts]


def test_a_function_of_ones_own_is_a_reward_like_any_other(rewards_py, tokenizer):
    functions, weights = parse_with_files(
        f"{rewards_py}:my_reward:2.5, strict_format, {rewards_py}:numpy_numbers"
    )
    assert weights == [2.5, 1.0, 1.0]
    assert [f.__name__ for f in functions] == ["my_reward", "strict_format_reward", "numpy_numbers"]
    assert [about(f).file for f in functions] == [rewards_py, None, rewards_py]
    texts = completions("it is 3", "no")
    assert functions[0](prompts=["", ""], completions=texts, answer=["3", "6"]) == [1.0, 0.0]
    assert [type(v) for v in functions[2](completions=completions("", ""))] == [float, float]
    assert about(load_reward(f"{rewards_py}:wants_level")).role == "difficulty"
    try_rewards(functions, list(to_dataset(ROWS)), tokenizer)


def test_async_functions_objects_and_partials_are_rewards_by_their_names(tmp_path, tokenizer):
    (tmp_path / "forms.py").write_text(OTHER_FORMS)
    pays = {
        "awaited": 1.0,
        "an_object": 0.25,
        "a_slow_object": 0.5,
        "half": 0.5,
        "tenth": 0.1,
        "short": 1.0,
        "has_step": 1.0,
    }
    functions, _ = parse_with_files(",".join(f"{tmp_path}/forms.py:{name}" for name in pays))
    assert [function.__name__ for function in functions] == list(pays)
    try_rewards(functions, list(to_dataset(ROWS)), tokenizer)
    for function, value in zip(functions, pays.values(), strict=True):
        assert call(function, ["7", ""], tokenizer=tokenizer) == [value, value]
    with raises_naming(WorkbookError, "Pays", "class"):
        load_reward(f"{tmp_path}/forms.py:Pays")


def test_an_async_reward_runs_where_a_loop_is_running_as_in_a_notebook():
    async def awaited(completions, **columns):
        await asyncio.sleep(0)
        return [1.0] * len(completions)

    async def cell():
        return call(awaited, ["a", "b"])

    assert asyncio.run(cell()) == [1.0, 1.0]


@pytest.mark.parametrize("name", ["my_rewrad", "LIMIT"])
def test_what_is_no_reward_is_named_with_the_fix(rewards_py, name):
    with raises_naming(WorkbookError, f"'{name}'", "my_reward"):
        load_reward(f"{rewards_py}:{name}")


def test_a_file_with_nothing_to_choose_from_says_so(tmp_path):
    (tmp_path / "mine.py").write_text("LIMIT = 1\n")
    with raises_naming(WorkbookError, "'Mine'"):
        load_reward(f"{tmp_path}/mine.py:Mine")


def test_a_file_that_is_not_there_or_does_not_run(tmp_path, rewards_py):
    with raises_naming(WorkbookError, "my_reward.py"):
        load_reward(f"{tmp_path}/my_reward.py:my_reward")
    for name, text, *cause in (
        ("broken", "def f(:\n    pass\n", "SyntaxError", "line 1"),
        ("zeros", "x = 1\0\n"),
        ("raises", "x = 1\ny = {}['missing']\n", "KeyError: 'missing'", "line 2"),
        ("ends", "import sys\nsys.exit()\n", "SystemExit", "line 2"),
    ):
        (tmp_path / f"{name}.py").write_text(text)
        with raises_naming(WorkbookError, f"{name}.py", *cause):
            load_reward(f"{tmp_path}/{name}.py:f")
    with raises_naming(WorkbookError, rewards_py.name, "FILE.py:FUNCTION"):
        parse_with_files(str(rewards_py))


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("wants_level", ["'level'", "levle"]),
        ("too_few", ["4 completions"]),
        ("breaks", ["step 1", "ZeroDivisionError", "line 20"]),
        ("closed", ["step 1", "TypeError", "**kwargs"]),
    ],
)
def test_a_slip_shows_before_training(rewards_py, tokenizer, name, named):
    functions, _ = parse_with_files(f"{rewards_py}:{name}")
    with raises_naming(WorkbookError, name, *named):
        try_rewards(functions, list(to_dataset(ROWS)), tokenizer)


def test_a_reward_of_the_course_wants_its_columns_before_training():
    rows = [{"prompt": "6*7?", "solution": "42"}]
    with raises_naming(WorkbookError, "correctness_reward", "'answer'", "solution"):
        try_rewards([correctness_reward], rows, None)


def test_two_rewards_of_one_name_would_share_a_metric(rewards_py):
    with raises_naming(WorkbookError, "correctness_reward, correctness_reward"):
        parse_with_files(f"correctness,{rewards_py}:correctness_reward")
    with raises_naming(WorkbookError, "my_reward:0"):
        parse_with_files(f"{rewards_py}:my_reward:0")
    with raises_naming(WorkbookError, "my_reward:x"):
        parse_with_files(f"{rewards_py}:my_reward:x")


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
"""


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("leaves", ["step 1", "SystemExit: 0", "line 11"]),
        ("as_dict", []),
        ("as_set", []),
        ("huge", []),
    ],
)
def test_what_a_hostile_function_does_is_an_error_and_never_a_number(
    tmp_path, tokenizer, name, named
):
    (tmp_path / "böse Datei.py").write_text(HOSTILE)
    functions = parse_with_files(f"{tmp_path / 'böse Datei.py'}:{name}")[0]
    with raises_naming(WorkbookError, name, *named):
        try_rewards(functions, list(to_dataset(ROWS)), tokenizer)


def test_a_function_that_fails_while_training_is_named_with_step_and_line(tmp_path):
    from transformers import TrainerState

    (tmp_path / "mine.py").write_text(HOSTILE)
    later = load_reward(f"{tmp_path}/mine.py:later")
    assert later(completions=completions("a"), trainer_state=TrainerState(global_step=1)) == [1.0]
    with raises_naming(WorkbookError, "mine.py", "later", "step 3", "KeyError: 'colour'", "line 7"):
        later(completions=completions("a"), trainer_state=TrainerState(global_step=2))


def test_a_file_that_was_changed_is_read_again(tmp_path):
    """As in a notebook: fix the file, run the cell again."""
    path = tmp_path / "mine.py"
    for value in ("0.5", "0.75"):
        body = f"    return [{value}] * len(completions)\n"
        path.write_text(f"def mine(completions, **kwargs):\n{body}")
        assert load_reward(f"{path}:mine")(completions=["a"]) == [float(value)]


def test_a_comma_in_the_path_is_told_as_what_it_is(tmp_path):
    folder = tmp_path / "Smith, John"
    folder.mkdir()
    (folder / "mine.py").write_text("def mine(completions, **kwargs):\n    return []\n")
    with raises_naming(WorkbookError, "Smith, John"):
        beside("correctness:2, mine.py:mine:1", folder)
    (tmp_path / "mine.py").write_text("def mine(completions, **kwargs):\n    return []\n")
    assert parse_with_files(beside("correctness:2, mine.py:mine:1", tmp_path))[1] == [2.0, 1.0]


def test_two_files_with_one_function_name_have_a_hash_each(tmp_path):
    functions = []
    for folder in ("a", "b"):
        path = tmp_path / folder / "mine.py"
        path.parent.mkdir()
        path.write_text(f"def score(completions, **kwargs):\n    return ['{folder}']\n")
        functions.append(load_reward(f"{path}:score"))
    before = file_hashes(functions)
    assert len(before) == len(set(before.values())) == 2
    about(functions[0]).file.write_text("def score(completions, **kwargs):\n    return [2.0]\n")
    assert file_hashes(functions) != before
