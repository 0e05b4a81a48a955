"""The report counts what is there, and calls harmful what is."""

import json
import random

import pytest
from conftest import SHARED

from grpo_workbook.cli.data_report import as_text
from grpo_workbook.data import KNOWLEDGE_BASE, WORD_PROBLEMS, chat_prompt
from grpo_workbook.lengths import percentiles
from grpo_workbook.problems import load
from grpo_workbook.validation import validate

GSM8K = SHARED / "data" / "gsm8k" / "train.jsonl"


def rows(count=100, **changes):
    return [
        {"question": f"What is {i} plus {i * i}?", "answer": str(i + i * i)} | changes
        for i in range(count)
    ]


def report_on(source, heldout=None, **options):
    found = load(source, skip_invalid=True)
    return validate(found, heldout and load(heldout, skip_invalid=True), **options)


def test_good_data_is_called_good(tiny):
    found = load(WORD_PROBLEMS["train"])
    report = validate(
        found, load(WORD_PROBLEMS["heldout"]), tokenizer=tiny["qwen"][1], max_prompt_length=160
    )
    assert report.hurts == []
    assert (report.rows, report.invalid, report.answers) == (2400, {}, "number")
    assert report.duplicates | {"examples": []} == {
        "same_question": 0,
        "same_question_other_answer": 0,
        "near": report.duplicates["near"],
        "examples": [],
    }
    assert report.heldout["also_in_training"] == report.heldout["nearly_in_training"] == 0
    assert report.lengths["dropped"] == 0
    # 16 templates, but names stand in them too
    assert report.diversity["templates"] < report.rows
    assert "Nothing here would hurt training." in as_text(report)


@pytest.mark.parametrize("family", ["qwen", "gemma"])
def test_lengths_are_those_of_the_models_own_template(tiny, family):
    _, tokenizer = tiny[family]
    data = rows(70)
    report = report_on(data, tokenizer=tokenizer, max_prompt_length=60)
    wanted = [
        len(
            tokenizer.apply_chat_template(chat_prompt(r["question"]), add_generation_prompt=True)[
                "input_ids"
            ]
        )
        for r in data
    ]
    assert list(report.token_counts) == wanted
    assert report.lengths["dropped"] == sum(n > 60 for n in wanted)
    assert report.lengths["kept"] + report.lengths["dropped"] == 70
    assert report.lengths["percentiles"] == percentiles(wanted)


def test_each_harm_is_named():
    good = rows()
    cases = {
        "1 of 101 rows are invalid": ([*good, {"question": "q", "answer": "lots"}], None),
        "1 held-out questions are also training questions and 0 nearly so": (
            good,
            [good[7], *rows(80)[79:]][:1],
        ),
        "1 questions stand there with different answers": (
            [*good, good[3] | {"answer": "0"}],
            None,
        ),
        "10 rows repeat an earlier question": (good + good[:10], None),
        "63 rows are few": (rows(63), None),
    }
    assert report_on(good).hurts == []
    for finding, (data, heldout) in cases.items():
        report = report_on(data, heldout)
        assert len(report.hurts) == 1, report.hurts
        assert finding in report.hurts[0]
        assert finding in " ".join(as_text(report).split())
    assert validate(load([*good, {}], skip_invalid=True), skip_invalid=True).hurts == []


def test_near_leaks_are_counted_apart():
    train = [
        {
            "question": f"{name} had {i} red shells and sold {i + 1} of them in May. How many are left?",
            "answer": "1",
        }
        for i, name in enumerate(["Ana", "Ben"] * 50)
    ]
    held = [{"question": train[9]["question"].replace("Ben", "Mia"), "answer": "1"}]
    report = report_on(train, held)
    assert (report.heldout["also_in_training"], report.heldout["nearly_in_training"]) == (0, 1)
    assert report.heldout["examples"] == ["the list, row 1 ~ the list, row 10"]


def test_prompts_over_the_budget_hurt(tiny):
    long = rows(80) + [{"question": "word " * 300 + str(i), "answer": "1"} for i in range(30)]
    report = report_on(long, long[-1:], tokenizer=tiny["qwen"][1], max_prompt_length=160)
    said = " ".join(report.hurts)
    assert "30 of 110 prompts are longer than 160 tokens" in said
    assert "1 held-out prompts are longer" in said
    assert "over the budget" in as_text(report)


def test_diversity_tells_one_sentence_from_many():
    rng = random.Random(0)
    one = [
        {"question": f"Add {rng.randrange(900)} and {rng.randrange(900)} now", "answer": "1"}
        for _ in range(200)
    ]
    many = load(KNOWLEDGE_BASE, answer_column="expert_answer")
    monotone, varied = report_on(one).diversity, validate(many).diversity
    assert monotone["templates"] == 1
    assert varied["templates"] == 100
    assert monotone["commonest_answer"] == ["1", 1.0]
    assert varied["distinct_3"] > 0.9
    assert varied["openings"][0][0] == "what is the"


def test_the_report_as_json_is_complete(tiny):
    report = report_on(rows(), tokenizer=tiny["qwen"][1], max_prompt_length=160)
    kept = json.loads(json.dumps(report.to_dict()))
    assert kept["well"] is True
    assert {"rows", "invalid", "duplicates", "lengths", "diversity", "hurts", "notes"} <= set(kept)
    assert "token_counts" not in kept


def test_gsm8k_is_as_it_is_known(tiny):
    if not GSM8K.is_file():
        pytest.skip("GSM8K's train set is not beside the project (shared/data/gsm8k/train.jsonl)")
    report = report_on(GSM8K, tokenizer=tiny["qwen"][1], max_prompt_length=1024)
    assert (report.rows, report.invalid) == (7473, {})
    assert report.duplicates["same_question"] == 0
    assert report.duplicates["near"] == 1
    assert report.hurts == []
