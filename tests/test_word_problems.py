"""The course's word problems: their files, their pools, and the answers that their steps give."""

import json
import random
import sys

import pytest
from conftest import REPO

sys.path.insert(0, str(REPO / "data"))
import build_word_problems as words

from grpo_workbook.data import WORD_PROBLEMS, load_problems


@pytest.mark.parametrize("split", words.SIZES)
def test_the_files_are_what_the_script_makes(split):
    made = [p.row() for p in words.build(split)]
    there = [
        json.loads(line) for line in WORD_PROBLEMS[split].read_text(encoding="utf-8").splitlines()
    ]
    assert there == made
    assert len(there) >= {"train": 2000, "heldout": 400}[split]


def keys_of(problems):
    return {(problem.template, problem.operands) for problem in problems}


def test_no_pool_shares_a_template_with_the_same_operands():
    train, heldout = keys_of(words.build("train")), keys_of(words.build("heldout"))
    assert (len(train), len(heldout)) == (words.SIZES["train"], words.SIZES["heldout"])
    assert not train & heldout
    rng = random.Random(1)
    tiny = keys_of([words.draw_problem(rng, "tiny") for _ in range(20_000)])
    assert not tiny & (train | heldout)


def test_every_answer_follows_from_its_steps():
    for problem in words.build("heldout"):
        for a, sign, b, result in problem.steps:
            assert {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[sign] == result >= 0
        assert problem.result == problem.steps[-1][3]
        assert 1 <= len(problem.steps) <= 2
        assert problem.row()["answer"].endswith(f"#### {problem.result}")


def test_every_template_is_measured_and_both_lengths_occur():
    heldout = words.build("heldout")
    assert {p.template for p in heldout} == {t.name for t in words.TEMPLATES}
    assert {len(p.steps) for p in heldout} == {1, 2}


def test_the_files_read_as_the_course_reads_them():
    rows = load_problems(WORD_PROBLEMS["heldout"])
    assert [r["answer"] for r in rows] == [str(p.result) for p in words.build("heldout")]
