import math
from itertools import product

import pytest

from grpo_workbook.data import WORD_PROBLEMS, chat_prompt, read_problems, to_dataset
from grpo_workbook.errors import WorkbookError
from grpo_workbook.evaluate import (
    accuracy,
    evaluate,
    generate,
    paired_p_value,
    score,
    summary,
    wilson_interval,
)
from grpo_workbook.generation import end_tokens

GOOD = "<reasoning>\n6*7=42\n</reasoning>\n<answer>42</answer>"


def test_wilson_interval_is_the_closed_form():
    z = 1.959963984540054
    for right, n in ((0, 10), (7, 10), (480, 480), (72, 480)):
        p = right / n
        centre = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        outcomes = [True] * right + [False] * (n - right)
        assert wilson_interval(outcomes) == pytest.approx(
            (max(0, centre - half), min(1, centre + half)), abs=1e-4
        )


def test_paired_test_against_every_coin_toss():
    """p is the share of all fair-coin outcomes at least as far from even as the one that was seen."""
    better, worse = 6, 1
    tosses = [sum(t) for t in product((0, 1), repeat=better + worse)]
    far = abs(better - worse)
    expected = sum(
        abs(2 * heads - len(t_range)) >= far for heads in tosses for t_range in [range(7)]
    ) / len(tosses)
    before = [False] * better + [True] * worse + [True, False]
    after = [True] * better + [False] * worse + [True, False]
    assert paired_p_value(before, after) == pytest.approx(expected)


def test_paired_test_without_changes_is_one_and_needs_pairs():
    assert paired_p_value([True, False], [True, False]) == 1.0
    with pytest.raises(ValueError, match="zip"):
        paired_p_value([True], [True, False])


def test_scores_and_summary():
    scores = score([GOOD, "The answer is 42.", "41"], ["42", "42", "42"])
    assert (scores.strict, scores.lenient) == ([True, False, False], [True, True, False])
    assert scores.well_formed == [True, False, False]
    said = summary(scores, scores)
    assert said["strict_sampled"] == 0.3333
    assert said["lenient_sampled"] == 0.6667
    assert said["ci95"][0] < 0.3333 < said["ci95"][1]
    with pytest.raises(ValueError, match="nothing was measured"):
        accuracy([])


def test_another_kind_of_answers_is_refused_and_not_taken_for_texts():
    with pytest.raises(
        WorkbookError, match="unknown kind of answers 'numbers': choose number or text"
    ):
        score([GOOD], ["42"], answers="numbers")


def test_answers_that_are_texts_are_judged_as_texts_and_as_mathematics():
    form = "<reasoning>\nso\n</reasoning>\n<answer>{}</answer>"
    golds = [
        r"\frac{\sqrt{2}}{2}",
        "Paris",
        "Paris",
        r"\frac{\sqrt{2}}{2}",
        "#### 72",
        r"2\sqrt{3}",
    ]
    said = [
        form.format(r"\frac{1}{\sqrt{2}}"),
        form.format(" paris"),
        form.format("Rome"),
        r"\boxed{\sqrt{2}/2}",
    ]
    scores = score([*said, form.format("72"), ""], golds, answers="text")
    assert scores.strict == [True, True, False, False, True, False]
    assert scores.lenient == [True, True, False, True, True, False]
    assert scores.unjudged == 0
    late = score([form.format("9^{9^{9^{9}}}")], [r"\sqrt{2}"], answers="text")
    assert (late.strict, late.unjudged, summary(late, late)["unjudged"]) == ([False], 1, 1)


@pytest.mark.parametrize("family", ["qwen", "gemma"])
def test_generation_does_not_depend_on_batch_or_order(tiny, family):
    model, tokenizer = tiny[family]
    prompts = list(to_dataset(read_problems(WORD_PROBLEMS["train"])[:12])["prompt"])
    alone = generate(model, tokenizer, prompts, max_new_tokens=48, batch_size=1)
    together = generate(model, tokenizer, prompts, max_new_tokens=48, batch_size=12)
    backwards = generate(model, tokenizer, prompts[::-1], max_new_tokens=48, batch_size=5)[::-1]
    assert alone == together == backwards
    assert all("<|im_end|>" not in text and "<end_of_turn>" not in text for text in alone)


def test_sampling_is_seeded_and_leaves_the_random_state_alone(tiny):
    import torch

    model, tokenizer = tiny["qwen"]
    dataset = to_dataset(read_problems(WORD_PROBLEMS["train"])[:16])
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    first = evaluate(model, tokenizer, dataset, max_new_tokens=48, sample=True, seed=3)
    assert torch.rand(1) == expected
    assert evaluate(model, tokenizer, dataset, max_new_tokens=48, sample=True, seed=3) == first
    assert evaluate(model, tokenizer, dataset, max_new_tokens=48, sample=True, seed=4) != first


def test_a_completion_ends_at_every_end_token_that_trl_knows(tiny):
    """Gemma and Qwen end a turn with another token than a text: a model says so in its generation config."""
    model, tokenizer = tiny["qwen"]
    prompts = [chat_prompt("Anna has 3 apples and buys 4 more. How many apples has she?")]
    whole = generate(model, tokenizer, prompts, max_new_tokens=40)[0]
    third = tokenizer(whole, add_special_tokens=False)["input_ids"][2]
    before = model.generation_config.eos_token_id
    try:
        model.generation_config.eos_token_id = [tokenizer.eos_token_id, third]
        assert end_tokens(model, tokenizer) == sorted({tokenizer.eos_token_id, third})
        cut = generate(model, tokenizer, prompts, max_new_tokens=40)[0]
        assert whole.startswith(cut)
        assert len(cut) < len(whole)
        model.generation_config.eos_token_id = None
        assert end_tokens(model, tokenizer) == [tokenizer.eos_token_id]
    finally:
        model.generation_config.eos_token_id = before
