"""Pass rates of rows, and the curriculum made from them."""

import pytest
from conftest import assert_names, raises_naming

from grpo_workbook.errors import WorkbookError
from grpo_workbook.training import curriculum, pass_rates


def test_the_hopeless_and_the_mastered_are_left_out_and_the_easy_come_first():
    found = curriculum([0.0, 0.5, 1.0, 0.25, 0.875, 0.5])
    assert found.rows == [4, 1, 5, 3]
    assert found.left_out == {"hopeless": 1, "too hard": 0, "too easy": 0, "mastered": 1}
    assert_names(str(found), "4 rows", "1 hopeless", "1 mastered")


def test_narrower_bounds_are_counted_by_kind():
    found = curriculum([0.0, 0.125, 0.5, 0.875, 1.0, 1.0], 0.125, 0.875)
    assert found.rows == [2]
    assert found.left_out == {"hopeless": 1, "too hard": 1, "too easy": 1, "mastered": 2}


@pytest.mark.parametrize(
    ("rates", "bounds", "named"),
    [
        ([0.0, 1.0], (0, 1), ["no row of 2", "1 hopeless", "1 mastered"]),
        ([], (0, 1), ["no row of 0"]),
        ([0.5], (0.9, 0.1), [0.9, 0.1]),
        ([0.5], (-1, 1), [-1]),
    ],
)
def test_what_makes_no_curriculum_is_named(rates, bounds, named):
    with raises_naming(WorkbookError, *named):
        curriculum(rates, *bounds)


@pytest.fixture(scope="module")
def rows():
    from grpo_workbook.data import WORD_PROBLEMS, load_problems, to_dataset

    return to_dataset(load_problems(WORD_PROBLEMS["train"]).select(range(24)))


@pytest.mark.slow
def test_pass_rates_of_the_tiny_model(tiny, rows):
    model, tokenizer = tiny["qwen"]
    how = {"samples": 4, "max_new_tokens": 48, "batch_size": 16, "progress": None}
    rates = pass_rates(model, tokenizer, rows, **how)
    assert len(rates) == 24
    assert all(4 * rate == int(4 * rate) for rate in rates)
    assert 0 < sum(rates) / 24 < 1  # it can do some of them, some of the time
    assert pass_rates(model, tokenizer, rows, **how) == rates
    assert pass_rates(model, tokenizer, rows, seed=1, **how) != rates


def test_success_gets_conversations_and_each_rows_own_columns(tiny, rows):
    """As TRL calls it. Batches are sorted by length; columns and completions stay together."""
    seen = []

    def fits_reward(prompts, completions, question, answer, **columns):
        seen.extend(zip(question, completions, strict=True))
        shown = [q in p[-1]["content"] for q, p in zip(question, prompts, strict=True)]
        return [float(i % 2 == 0) if fits else None for i, fits in enumerate(shown)]

    how = {"max_new_tokens": 4, "batch_size": 5, "progress": None, "success": fits_reward}
    assert pass_rates(*tiny["qwen"], rows, 2, **how) == [0.5] * 24
    assert [question for question, _ in seen[::2]] == rows["question"][:]
    assert [question for question, _ in seen[1::2]] == rows["question"][:]
    for _, completion in seen:
        assert completion[0]["role"] == "assistant"
        assert isinstance(completion[0]["content"], str)


def test_what_does_not_apply_is_never_right_and_bad_input_is_named(tiny, rows):
    def nothing_reward(completions, **columns):
        return [None] * len(completions)

    few = rows.select(range(2))
    how = {"max_new_tokens": 2, "progress": None}
    assert pass_rates(*tiny["qwen"], few, 2, success=nothing_reward, **how) == [0.0, 0.0]
    with raises_naming(WorkbookError, "0 rows"):
        pass_rates(*tiny["qwen"], rows.select([]), 2, **how)
    with raises_naming(WorkbookError, "0 completions"):
        pass_rates(*tiny["qwen"], few, 0, **how)
