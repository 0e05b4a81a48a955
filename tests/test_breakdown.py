from grpo_workbook.breakdown import groups, in_order
from grpo_workbook.data import WORD_PROBLEMS, read_problems


def rows(n=40, **columns):
    return [
        {"question": f"Ann has {i} pens and " + "more " * (i % 4) + "buys 3?", "answer": "3"}
        | {name: make(i) for name, make in columns.items()}
        for i in range(n)
    ]


def test_columns_with_few_values_are_groups_and_others_are_not():
    found = groups(
        rows(
            difficulty=lambda i: ["easy", "hard"][i % 2],
            level=lambda i: i % 3,
            id=lambda i: i,
            same=str,
        )
    )
    assert {"difficulty", "level"} <= set(found)
    assert not {"id", "same", "question", "answer"} & set(found)
    assert found["difficulty"][:2] == ["easy", "hard"]
    assert found["level"][:4] == ["0", "1", "2", "0"]


def test_lengths_come_in_parts_that_keep_equal_ones_together():
    found = groups(rows())["length"]
    assert set(found) == {"7 words", "8 words", "9 words", "10 words"}
    assert found[:5] == ["7 words", "8 words", "9 words", "10 words", "7 words"]
    real = read_problems(WORD_PROBLEMS["heldout"])
    lengths = [len(r["question"].split()) for r in real]
    labels = groups(real)["length"]
    assert len(set(labels)) == 4
    assert all(
        len({label for n, label in zip(lengths, labels, strict=True) if n == length}) == 1
        for length in lengths
    )


def test_steps_and_operations_come_from_gsm8k_solutions():
    real = read_problems(WORD_PROBLEMS["heldout"])
    found = groups(real)
    assert set(found["steps"]) == {"1", "2"}
    for row, steps, operations in zip(real, found["steps"], found["operations"], strict=True):
        assert row["solution"].count("<<") == int(steps) == len(operations.split(" then "))
    assert found["operations"][0] == "-"  # 29 - 6
    assert "steps" not in groups(rows(solution=lambda i: "#### 3"))


def test_few_sentences_are_groups():
    found = groups(rows())["sentence"]
    assert found[0] == "ann has # pens and buys #"
    assert len(set(found)) == 4


def test_groups_are_listed_by_number_then_by_size():
    assert in_order(["10 words", "9 words", "10 words"]) == ["9 words", "10 words"]
    assert in_order(["b", "a", "b"]) == ["b", "a"]
