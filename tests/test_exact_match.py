"""The same completions to lm-evaluation-harness and to us: the same verdict on each, and the same share."""

import random

import pytest
from conftest import REPO

from grpo_workbook.answers import TAGS, is_strictly_right, is_well_formed
from grpo_workbook.data import WORD_PROBLEMS, read_problems, to_dataset
from grpo_workbook.exact_match import flexible_extract, harness_scores, strict_match
from grpo_workbook.generation import generate

WHY = "lm-evaluation-harness is not installed: pip install --no-deps -r requirements-compare.txt"
# The task file of gsm8k, version 3, as lm_eval 0.4.13 has it.
IGNORED = [",", "\\$", "(?s).*#### ", "\\.$"]
FILTERS = {
    "strict-match": {"regex_pattern": "#### (\\-?[0-9\\.\\,]+)"},
    "flexible-extract": {"group_select": -1, "regex_pattern": "(-?[$0-9.,]{2,})|(-?[0-9]+)"},
}


@pytest.fixture(scope="module")
def harness():
    """(filter name, completions, references) -> the harness's verdict on each."""
    metrics = pytest.importorskip("lm_eval.api.metrics", reason=WHY)
    extraction = pytest.importorskip("lm_eval.filters.extraction", reason=WHY)
    selection = pytest.importorskip("lm_eval.filters.selection", reason=WHY)

    def judge(settings, completions, references):
        responses = extraction.RegexFilter(**settings).apply(
            [[c] for c in completions], [{}] * len(completions)
        )
        taken = list(selection.TakeFirstFilter().apply(responses, [{}] * len(completions)))
        return [
            bool(
                metrics.exact_match_fn(
                    predictions=[t],
                    references=[r],
                    regexes_to_ignore=IGNORED,
                    ignore_case=True,
                    ignore_punctuation=False,
                )["exact_match"]
            )
            for t, r in zip(taken, references, strict=True)
        ]

    return judge


@pytest.fixture(scope="module")
def written(tiny):
    """What the tiny model writes for 160 held-out problems, sampled; and GSM8K's kind of solution for each."""
    model, tokenizer = tiny["qwen"]
    rows = read_problems(WORD_PROBLEMS["heldout"])[:160]
    completions = generate(
        model, tokenizer, list(to_dataset(rows)["prompt"]), max_new_tokens=64, sample=True
    )
    return completions, [row["solution"] for row in rows], [row["answer"] for row in rows]


ODD = [
    "#### 1,234", "#### $72", "72.0", "#### 72.", "It is 72", "#### -5", "nothing", "", "#### ", "7 2",
    "#### 72\n#### 71", "$72.00", "72%", "7", ".", "#### ,", "1,2,3", "-", "answer: ７２", "72 or 73",
    "#### 72 apples", "<answer>72</answer>",
]  # fmt: skip


def test_ours_is_the_harness_on_what_a_model_writes(harness, written):
    completions, solutions, _ = written
    ours = harness_scores(completions, solutions)
    for name, settings in FILTERS.items():
        theirs = harness(settings, completions, solutions)
        judge = strict_match if name == "strict-match" else flexible_extract
        assert [judge(c, s) for c, s in zip(completions, solutions, strict=True)] == theirs
        assert ours[name] == pytest.approx(sum(theirs) / len(theirs))
    assert 0 < ours["strict-match"] < ours["flexible-extract"] < 1


def test_ours_is_the_harness_on_odd_texts(harness):
    rng = random.Random(1)
    made = [
        "".join(rng.choice("0127.,$#- \nax") for _ in range(rng.randint(0, 14))) for _ in range(400)
    ]
    made += [f"so #### {text}" for text in made[:200]]
    texts = [*ODD, *made]
    for solution in ("6 * 12 = <<6*12=72>>72\n#### 72", "1234", "#### -5"):
        for name, settings in FILTERS.items():
            judge = strict_match if name == "strict-match" else flexible_extract
            theirs = harness(settings, texts, [solution] * len(texts))
            assert [judge(text, solution) for text in texts] == theirs


def test_our_strict_accuracy_is_the_harness_with_our_form_as_its_filter(harness, written):
    """Whole numbers in our tags: a filter that demands them, the harness's exact match, and `strict` agree on each."""
    completions, solutions, answers = written
    a, b, c, d = TAGS
    form = {
        "regex_pattern": rf"(?s)\A\s*{a}(?=.*\S.*{b})(?:(?!{a}|{b}).)*{b}\s*{c}\s*(\d+)\s*{d}\s*\Z"
    }
    theirs = harness(form, completions, solutions)
    ours = [
        is_strictly_right(text, answer) for text, answer in zip(completions, answers, strict=True)
    ]
    assert ours == theirs
    assert 0 < sum(ours) < sum(map(is_well_formed, completions))


def test_the_verdicts_themselves():
    solution = "6 * 12 = <<6*12=72>>72\n#### 72"
    assert strict_match("6*12=72\n#### 72", solution)
    assert not strict_match("<answer>72</answer>", solution)
    assert flexible_extract("<answer>72</answer>", solution)
    assert flexible_extract("so $72.", solution)
    assert not flexible_extract("72.0", solution)
    assert not flexible_extract("none", solution)
    assert flexible_extract("72", "72")
    with pytest.raises(ValueError, match="no completions"):
        harness_scores([], [])


def test_the_comparison_is_pinned():
    assert "lm-eval==0.4.13" in (REPO / "requirements-compare.txt").read_text()
