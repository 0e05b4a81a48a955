"""With a real sandbox: what a completion's program is, and what it earns."""

import warnings

import pytest
from conftest import raises_naming

from grpo_workbook.cli.rewards import parse_rewards
from grpo_workbook.errors import WorkbookError
from grpo_workbook.rewards.contract import about
from grpo_workbook.sandbox import Sandbox, code_format_reward, unit_tests
from grpo_workbook.sandbox.rewards import fenced_code, program_of

TEST = "def check(candidate):\n    assert candidate(2, 3) == 5\n    assert candidate(0, 0) == 0"
PROMPT = 'import math\n\ndef helper(x):\n    return x\n\ndef add(a, b):\n    """The sum."""\n'
FENCED = "Here it is:\n```python\ndef add(a, b):\n    return a + b\n```\nDone."


@pytest.fixture(scope="module")
def sandbox():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Sandbox(workers=1, time_limit=1.0) as made:
            made.probe()
            yield made


def rewarded(function, completions, test=TEST, **columns):
    n = len(completions)
    return function(completions=completions, test=[test] * n, entry_point=["add"] * n, **columns)


@pytest.mark.parametrize(
    "completion",
    [
        FENCED,
        [{"role": "assistant", "content": FENCED}],
        "def add(a, b):\n    return a + b\n",
        "```\ndef add(a, b):\n    return 0\n```\nNo:\n```py\ndef add(a, b):\n    return a + b\n```",
        "```python\nadd = lambda a, b: a + b\n```\nUse it so:\n```python\nprint(add(1, 2))\n```",
        "```python\r\ndef add(a, b):\r\n    return a + b\r\n```",
        "1. So:\n\n   ```python\n   def add(a, b):\n       return a + b\n   ```",
        "```python title='add.py'\ndef add(a, b):\n    return a + b\n```",
    ],
)
def test_a_right_program_is_found_wherever_it_stands(sandbox, completion):
    assert rewarded(unit_tests(sandbox), [completion]) == [1.0]


def test_a_list_of_assertions_is_a_test(sandbox):
    """MBPP's column `test_list`, with its `test_setup_code`."""
    lines = ["assert add(2, 3) == 5", "assert add(ONE, 0) == 1"]
    reward = unit_tests(sandbox, setup_column="before")
    wrong = FENCED.replace("a + b", "a")
    assert rewarded(reward, [FENCED, wrong], lines, before=["ONE = 1"] * 2) == [1.0, 0.0]
    lines[1] = "assert add(1, 0) == 1"
    assert rewarded(unit_tests(sandbox), [FENCED, wrong], lines) == [1.0, 0.0]


def test_a_completion_can_continue_its_prompt(sandbox):
    reward = unit_tests(sandbox)
    body = "    return math.floor(helper(a) + b)\n"
    assert rewarded(reward, [body, "    return a - b\n"], prompt_code=[PROMPT] * 2) == [1.0, 0.0]
    assert rewarded(reward, [body], prompts=[PROMPT]) == [1.0]
    block = f"```python\ndef add(a, b):\n{body}```"
    assert rewarded(reward, [block], prompt_code=[PROMPT]) == [1.0]


def test_a_thousand_openings_take_no_longer_than_the_text_is_long():
    """A regular expression looked from each of them to the end: half a minute for one text."""
    assert fenced_code("```python\n" * 19_000) == []
    assert fenced_code("```python\nx\n" * 10_000 + "```") == ["x\n" + "```python\nx\n" * 9_999]
    assert fenced_code("```" + " " * 190_000 + "!") == []


def test_a_block_ends_at_a_bare_fence():
    assert fenced_code("```bash\nls\n```\nand\n``` py\nx\n```sh\ny\n  ``` \nz") == ["x\n```sh\ny\n"]
    assert fenced_code("```\n```\n```python\nx") == [""]


def test_no_completions_and_a_task_without_code_of_its_own(sandbox):
    logged = []
    reward = unit_tests(sandbox)
    assert (
        rewarded(reward, [], prompt_code=[], log_metric=lambda *given: logged.append(given)) == []
    )
    assert logged == []
    assert rewarded(reward, [FENCED, FENCED], prompt_code=[None, PROMPT]) == [1.0, 1.0]


def test_a_prompt_in_words_is_no_code(sandbox):
    words = [[{"role": "user", "content": "Write add(a, b)."}], "Write a function add."]
    assert rewarded(unit_tests(sandbox), [FENCED, FENCED], prompts=words) == [1.0, 1.0]


def test_the_prompts_helper_is_the_prompts_and_not_the_completions(sandbox):
    test = "def check(candidate):\n    assert helper(candidate(2, 3)) == 5"
    cheat = "    return 0\n\ndef helper(x):\n    return 5\n"
    assert rewarded(
        unit_tests(sandbox), [cheat, "    return a + b\n"], test, prompt_code=[PROMPT] * 2
    ) == [0.0, 1.0]


def test_binary_and_partial_on_the_same_programs(sandbox):
    programs = [
        "def add(a, b):\n    return a + b",
        "def add(a, b):\n    return 0",
        "def add(a, b):\n    return 1",
        "nonsense (",
    ]
    assert rewarded(unit_tests(sandbox), programs) == [1.0, 0.0, 0.0, 0.0]
    assert rewarded(unit_tests(sandbox, partial=True), programs) == [1.0, 0.25, 0.0, 0.0]


def test_where_the_test_is_at_fault_nothing_is_said(sandbox):
    reward = unit_tests(sandbox, max_failed=1.0)
    assert rewarded(reward, [FENCED], "assert True") == [None]
    assert rewarded(reward, [FENCED], "assert (") == [None]
    with raises_naming(WorkbookError, "1 of 1", "max_failed"):
        rewarded(unit_tests(sandbox, max_failed=0.5), [FENCED], "assert True")


def test_timeouts_are_counted_and_too_many_of_them_raise(sandbox):
    endless, logged = "def add(a, b):\n    while True: pass", {}
    values = rewarded(unit_tests(sandbox), [endless, FENCED], log_metric=logged.__setitem__)
    assert values == [0.0, 1.0]
    assert (logged["code/timeout"], logged["code/passed"], logged["code/sandbox error"]) == (
        0.5,
        0.5,
        0.0,
    )
    with raises_naming(WorkbookError, "0 of 2", "1 timed out", "max_failed"):
        rewarded(unit_tests(sandbox, max_failed=0.2), [endless, FENCED])


def test_bad_columns_and_settings(sandbox):
    with pytest.raises(ValueError, match="shorter"):
        unit_tests(sandbox)(completions=[FENCED] * 2, test=[TEST], entry_point=["add"] * 2)
    with raises_naming(WorkbookError, "max_failed", 2):
        unit_tests(sandbox, max_failed=2)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (FENCED, 1.0),
        ("```python\ndef add(a, b:\n```", 0.5),
        ("def add(a, b): return a + b", 0.0),
        (FENCED + "\n" + FENCED, 0.0),
        ("```python\n\n```", 0.0),
        ("```bash\nls\n```", 0.0),
        ("```python\ndef add(a, b):\n    return 1\n", 0.0),
        ("```python\nx = " + "(" * 9000 + "\n```", 0.5),
        ("```" * 50_000, 0.0),
    ],
)
def test_the_form_is_one_block_that_parses(text, value):
    assert code_format_reward(completions=[text]) == [value]


def test_the_text_between_two_programs_is_not_code():
    assert program_of(
        "```python\nx = 1\n```\ndef add(): no\n```python\ndef add(a, b):\n    return 1\n```", "add"
    ).startswith("def add(a, b)")


def test_one_row_without_a_usable_task_does_not_cost_the_step(sandbox):
    n, names = 4, ["add", "add ", "add", None]
    values = unit_tests(sandbox)(
        completions=[FENCED] * n, test=[TEST, TEST, TEST, TEST], entry_point=names
    )
    assert values == [1.0, None, 1.0, None]
    with raises_naming(WorkbookError, "1 of 1", "no test"):
        rewarded(unit_tests(sandbox), [FENCED], "")


def test_unit_tests_make_a_sandbox_of_their_own_and_name_their_columns():
    reward = unit_tests()
    assert rewarded(reward, [FENCED, "nonsense ("]) == [1.0, 0.0]
    assert (about(reward).role, about(reward).columns) == ("correctness", ("test", "entry_point"))
    assert about(code_format_reward).role == "format"


def test_both_rewards_are_found_by_their_names():
    functions, weights = parse_rewards("unit_tests:2,code_format:0.5")
    assert [f.__name__ for f in functions] == ["unit_test_reward", "code_format_reward"]
    assert weights == [2.0, 0.5]
