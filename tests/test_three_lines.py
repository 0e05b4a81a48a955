"""The helpers for one's own TRL script, as far as they need no model (test_readme_example.py)."""

import inspect
import os

import pytest
from conftest import REPO, assert_names, environment, raises_naming

from grpo_workbook import WorkbookError, compare, correctness_reward, get_answer_reward, reward
from grpo_workbook.cli.rewards import judge_for
from grpo_workbook.diagnosis import watch
from grpo_workbook.environments import get_tool_answer_reward
from grpo_workbook.evaluation import Scores, score
from grpo_workbook.planning import KNOWN, plan
from grpo_workbook.rewards import get_overlong_reward
from grpo_workbook.rewards.contract import about
from grpo_workbook.rewards.judges import get_judge_reward
from grpo_workbook.rewards.symbolic import get_symbolic_reward
from grpo_workbook.sandbox import unit_tests


def scores(right: list[bool], samples: int = 1) -> Scores:
    return Scores(["said"] * len(right), right, right, right, samples)


def test_a_comparison_has_both_rates_the_gain_its_interval_and_a_paired_test():
    before, after = scores([True] * 10 + [False] * 30), scores([True] * 30 + [False] * 10)
    comparison = compare(before, after)
    strict = comparison.strict
    assert (strict.before, strict.after, strict.gain) == (0.25, 0.75, 0.5)
    assert (strict.better, strict.worse) == (20, 0)
    low, high = strict.gain_interval
    assert 0.3 < low < 0.5 < high < 0.7
    assert strict.p_value == pytest.approx(2 * 0.5**20)
    assert "rose from 25.0% to 75.0% (p = 2e-06): a gain of 50.0 points" in str(comparison)


def test_several_samples_count_by_problem():
    before, after = scores([True, False] * 20, 2), scores([True, True] * 20, 2)
    comparison = compare(before, after)
    strict = comparison.strict
    assert (comparison.n, comparison.samples, strict.gain) == (20, 2, 0.5)
    assert (strict.better, strict.worse) == (20, 0)  # each problem's rate rose
    assert strict.p_value == pytest.approx(2 * 0.5**20)  # the sign test
    low, high = before.interval
    # Each problem has one right of two: narrower than for 40 answers (0.35 to 0.65), and not 0.
    assert 0.4 < low < 0.5 < high < 0.6
    with raises_naming(WorkbookError, "2 samples", "1 after"):
        compare(before, scores([True] * 20))


def test_different_problems_are_not_compared():
    with raises_naming(WorkbookError, "2 problems", "3 after"):
        compare(scores([True] * 2), scores([True] * 3))


def test_a_plan_for_a_config_of_trl_counts_its_values():
    from trl import GRPOConfig

    how = {"bf16": False, "num_generations": 4, "per_device_train_batch_size": 8}
    small, large = (
        plan("Qwen/Qwen3-1.7B", GRPOConfig("out", gradient_accumulation_steps=n, **how), gib=24)
        for n in (1, 4)
    )
    assert (small.settings.completions_per_step, large.settings.completions_per_step) == (8, 32)
    assert large.parts["sampling"]["KV cache"] == 4 * small.parts["sampling"]["KV cache"]
    assert large.parts["learning"] == small.parts["learning"]
    assert "on your GPU" in str(small)
    assert plan("Qwen/Qwen3-1.7B", GRPOConfig("out", **how)).fits is None  # an unknown GPU


def test_a_plan_takes_a_hub_id_or_a_config_of_transformers():
    """The same model both ways; of a config with vision the text part counts."""
    from transformers import AutoConfig, Gemma3Config
    from trl import GRPOConfig

    args = GRPOConfig("out", bf16=False, per_device_train_batch_size=8)
    by_id = plan("google/gemma-3-4b-it", args, gib=24)
    config = AutoConfig.for_model(**KNOWN["gemma-3-4b"])
    for model in (config, Gemma3Config(text_config=config)):
        found = plan(model, args, gib=24)
        assert (found.parts, found.changes, found.fits) == (by_id.parts, by_id.changes, by_id.fits)
    assert by_id.changes  # in 32 bits it does not fit
    assert "gemma3 on your GPU" in str(found)
    config.num_hidden_layers //= 2  # a model of one's own
    assert plan(config, args).parts["always"]["weights"] < by_id.parts["always"]["weights"]


def test_a_missing_column_is_named_with_those_that_are_there():
    tests = unit_tests(setup_column="setup")
    with raises_naming(WorkbookError, "'setup'", "test, entry_point"):
        tests([[]], test=["assert True"], entry_point=["f"])


@pytest.mark.parametrize(
    ("made", "missing"),
    [
        (correctness_reward, "answer"),
        (get_answer_reward("solution", "####"), "solution"),
        (unit_tests(), "test"),
        (get_symbolic_reward(), "answer"),
        (get_tool_answer_reward(), "answer"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_every_reward_names_the_column_that_it_lacks_when_trl_calls_it(made, missing):
    """In a stock script nothing tries the rewards first: TRL passes the data's columns by name."""
    data = {"prompts": ["a?"], "completion_ids": [[1]], "gold": ["4"], "trainer_state": None}
    for function in (made, *watch([made])):
        with raises_naming(WorkbookError, f"'{missing}'", "gold"):
            function(completions=["4"], **data)
    del data["gold"]
    with raises_naming(WorkbookError, f"'{missing}'", "prompt"):
        made(completions=["4"], **data)


@pytest.mark.parametrize(
    "factory",
    [
        get_answer_reward,
        get_overlong_reward,
        get_symbolic_reward,
        get_judge_reward,
        get_tool_answer_reward,
        unit_tests,
    ],
)
def test_a_factory_that_a_trainer_gets_for_its_reward_says_so(factory):
    """Written without its parentheses, TRL calls it as a reward."""
    data = {"prompts": ["6*7?"], "completions": ["42"], "answer": ["42"]}
    for function in (factory, *watch([factory])):
        with raises_naming(WorkbookError, f"{factory.__name__}("):
            function(**data)


def test_a_reward_of_ones_own_is_marked_and_stays_what_it_is():
    @reward("correctness", columns=("gold", "level"))
    def mine(prompts, completions, gold, level, **kwargs):
        """Right."""
        return [float(a == b) for a, b in zip(completions, gold, strict=True)]

    @reward("style", columns=("gold",))
    async def later(completions, gold, **kwargs):
        return [1.0]

    with raises_naming(WorkbookError, "mine", "'level'", "gold"):
        mine(prompts=["?"], completions=["4"], gold=["4"])
    by_name = {"prompts": ["?"], "completions": ["4"], "gold": ["4"], "level": [1]}
    assert mine(**by_name) == mine(*by_name.values()) == [1.0]  # by hand, in their order
    assert (mine.__name__, mine.__doc__, about(mine).role) == ("mine", "Right.", "correctness")
    assert inspect.iscoroutinefunction(later)  # TRL awaits it
    assert about(later).columns == ("gold",)


def test_a_reward_of_ones_own_judges_the_whole_held_out_answer(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "def says(completions, answer, **kwargs):\n"
        "    said = [c[0]['content'] for c in completions]\n"
        "    return [float(text == f'[{a}]') for text, a in zip(said, answer, strict=True)]\n"
    )
    found = score(["[a]", "a", "x [a]"], ["a"] * 3, judge=judge_for("text", f"{file}:says"))
    assert found.strict == found.lenient == [True, False, False]
    file.write_text("def pays_two(completions, **kwargs):\n    return [2.0] * len(completions)\n")
    with raises_naming(WorkbookError, "pays_two", "gave 2"):
        score(["[a]"], ["a"], judge=judge_for("text", f"{file}:pays_two"))


OWN = """
from grpo_workbook import reward

@reward("correctness", columns=("answer",))
def right(completions, answer, **kwargs):
    return [VALUE for _ in completions]
"""
CELL = """
%load_ext autoreload
%autoreload 2
from my_own_rewards import right
paid = {"of a trainer": right}
"""


@pytest.mark.slow
def test_a_reward_file_that_is_edited_beside_a_notebook_counts_where_it_is_held(tmp_path):
    """IPython's autoreload changes functions in place: also the one that a trainer holds."""
    from jupyter_client.manager import start_new_kernel

    file, printed = tmp_path / "my_own_rewards.py", []
    file.write_text(OWN.replace("VALUE", "0.25"))
    manager, client = start_new_kernel(cwd=str(tmp_path), env=environment(PYTHONPATH=str(REPO)))
    show = "print([f(completions=['a'], answer=['b']) for f in (right, *paid.values())])"
    wrong = "paid['of a trainer'](completions=['a'], gold=['b'])"

    def keep(message):
        printed.append(str(message["content"]))

    try:
        client.execute_interactive(CELL + show, output_hook=keep)
        file.write_text(OWN.replace("VALUE", "0.75"))
        later = file.stat().st_mtime + 5
        os.utime(file, (later, later))  # autoreload goes by the time of the change
        client.execute_interactive(show, output_hook=keep)
        client.execute_interactive(wrong, output_hook=keep)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert_names(" ".join(printed), "[[0.25], [0.25]]", "[[0.75], [0.75]]", "'answer'", "gold")
