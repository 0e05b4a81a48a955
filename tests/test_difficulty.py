"""Pass rates of rows, the curriculum made from them, and its pictures."""

import functools

import pytest

from grpo_workbook.errors import WorkbookError
from grpo_workbook.stages.difficulty import curriculum, pass_rates


def test_the_hopeless_and_the_mastered_are_left_out_and_the_easy_come_first():
    found = curriculum([0.0, 0.5, 1.0, 0.25, 0.875, 0.5])
    assert found.rows == [4, 1, 5, 3]
    assert (found.hopeless, found.mastered) == (1, 1)
    assert str(found) == "4 rows can teach; left out: 1 hopeless, 1 mastered"


def test_narrower_bounds_are_counted_by_kind():
    found = curriculum([0.0, 0.125, 0.5, 0.875, 1.0, 1.0], 0.125, 0.875)
    assert found.rows == [2]
    assert (found.hopeless, found.too_hard, found.too_easy, found.mastered) == (1, 1, 1, 2)


@pytest.mark.parametrize(
    ("rates", "bounds", "said"),
    [
        ([0.0, 1.0], (0, 1), "no row of 2 has a pass rate between 0 and 1"),
        ([], (0, 1), "no row of 0"),
        ([0.5, 1.5], (0, 1), "row 1 is 1.5"),
        ([0.5, float("nan")], (0, 1), "row 1 is nan"),
        ([0.5], (0.9, 0.1), "0 <= low < high <= 1"),
        ([0.5], (-1, 1), "0 <= low < high <= 1"),
    ],
)
def test_what_makes_no_curriculum_is_named(rates, bounds, said):
    with pytest.raises(WorkbookError) as error:
        curriculum(rates, *bounds)
    assert said in str(error.value)


@pytest.fixture(scope="module")
def rows():
    from grpo_workbook.data import WORD_PROBLEMS, read_problems, to_dataset

    return to_dataset(read_problems(WORD_PROBLEMS["train"])[:24])


def test_pass_rates_of_the_tiny_model(tiny, rows):
    model, tokenizer = tiny["qwen"]
    how = {"n": 4, "max_new_tokens": 48, "batch_size": 16, "progress": None}
    rates = pass_rates(model, tokenizer, rows, **how)
    assert len(rates) == 24
    assert all(4 * rate == int(4 * rate) for rate in rates)
    assert 0 < sum(rates) / 24 < 1  # it can do some of them, some of the time
    assert pass_rates(model, tokenizer, rows, **how) == rates
    assert pass_rates(model, tokenizer, rows, seed=1, **how) != rates


def test_columns_and_completions_stay_together(tiny, rows):
    """Batches are sorted by length inside; the reward must still see each row's own columns."""
    seen = []

    def fits_reward(prompts, completions, question, answer, **columns):
        seen.extend(zip(question, completions, strict=True))
        shown = [q in p[-1]["content"] for q, p in zip(question, prompts, strict=True)]
        return [float(i % 2 == 0) if fits else None for i, fits in enumerate(shown)]

    rates = pass_rates(
        *tiny["qwen"], rows, 2, max_new_tokens=4, success=fits_reward, batch_size=5, progress=None
    )
    assert rates == [0.5] * 24
    assert [q for q, _ in seen] == [q for q in rows["question"] for _ in range(2)]


def test_what_does_not_apply_is_never_right_and_bad_input_is_named(tiny, rows):
    def silent_reward(completions, **columns):
        return [None] * len(completions)

    few = rows.select(range(2))
    never = functools.partial(lambda value, completions, **columns: [value] * len(completions), 0.0)
    assert pass_rates(*tiny["qwen"], few, 2, max_new_tokens=2, success=never, progress=None) == [
        0.0,
        0.0,
    ]
    assert pass_rates(
        *tiny["qwen"], few, 2, max_new_tokens=2, success=silent_reward, progress=None
    ) == [0.0, 0.0]
    with pytest.raises(WorkbookError, match="pass rates of no rows"):
        pass_rates(*tiny["qwen"], rows.select([]), 2, max_new_tokens=2)
    with pytest.raises(WorkbookError, match="from 0 completions"):
        pass_rates(*tiny["qwen"], few, 0, max_new_tokens=2)
