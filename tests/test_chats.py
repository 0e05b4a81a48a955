"""Data as TRL's users have it: chats in any form become problems, or the reason is told."""

import json

import pytest
from conftest import SHARED, assert_names, raises_naming, report_of

from grpo_workbook.cli import main
from grpo_workbook.data import check_problems, load_problems, load_tokenizer, render, to_dataset
from grpo_workbook.data.chats import own_system_messages
from grpo_workbook.errors import WorkbookError

CASES = SHARED / "cases"
SYSTEM = {"role": "system", "content": "Think first."}
USER = {"role": "user", "content": "What is 3 plus 4?"}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"a": 3}}}],
}
RESULT = {"role": "tool", "name": "add", "content": "7"}
AGAIN = {"role": "user", "content": "Say it as a number."}
RIGHT = {"role": "assistant", "content": "3 + 4 = 7 #### 7"}
SHARE_GPT = [
    {"from": "system", "value": "Think first."},
    {"from": "human", "value": "What is 3 plus 4?"},
    {"from": "gpt", "value": "3 + 4 = 7 #### 7"},
]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def sums(make_row):
    """Enough rows for a run, each from two numbers."""
    return [make_row(a, b) for a in range(2, 12) for b in range(2, 12)]


FORMS = {
    "prompt": {"prompt": [SYSTEM, USER], "answer": "7"},
    "a number": {"prompt": [SYSTEM, USER], "answer": 7},
    "solution": {"prompt": [SYSTEM, USER], "solution": "It is 7 #### 7"},
    "ground truth": {"prompt": [SYSTEM, USER], "ground_truth": "7"},
    "answer first": {"prompt": [SYSTEM, USER], "answer": "7", "solution": "3 + 4"},
    "conversations": {"conversations": SHARE_GPT},
    "messages": {"messages": [SYSTEM, USER, RIGHT]},
    "messages and an answer": {"messages": [SYSTEM, USER, RIGHT], "answer": "7"},
    "parts": {
        "prompt": [
            SYSTEM,
            {"role": "user", "content": [{"type": "text", "text": USER["content"]}]},
        ],
        "answer": "7",
    },
    "no images": {"prompt": [SYSTEM, USER], "answer": "7", "images": []},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ending", ["jsonl", "parquet", "dicts"])
def test_every_form_gives_the_same_problem(tmp_path, form, ending):
    rows = [FORMS[form]] * 2
    source = rows
    if ending != "dicts":
        source = write(tmp_path / "rows.jsonl", rows)
    if ending == "parquet":
        from datasets import load_dataset

        table = load_dataset("json", data_files=str(source), cache_dir=tmp_path, split="train")
        source = tmp_path / "rows.parquet"
        table.to_parquet(source)
    problems = load_problems(source)
    assert problems["question"][:] == [USER["content"]] * 2
    assert problems["answer"][:] == ["7", "7"]
    dataset = to_dataset(problems)
    assert dataset["prompt"][0] == [SYSTEM, USER]
    assert "chat" not in dataset.column_names


def test_a_chat_without_a_system_message_gets_the_instruction():
    problems = load_problems([{"prompt": [USER], "answer": "7"}])
    assert to_dataset(problems, "Be brief.")["prompt"][0] == [
        {"role": "system", "content": "Be brief."},
        USER,
    ]
    assert to_dataset(problems, None)["prompt"][0] == [USER]
    assert to_dataset(problems, "Be brief.", fold=True)["prompt"][0] == [
        {"role": "user", "content": f"Be brief.\n\n{USER['content']}"}
    ]


def test_a_column_of_texts_that_is_called_chat_is_a_column_like_others():
    row = {"question": "What is 3 plus 4?", "answer": "7", "chat": "of Monday"}
    (made,) = to_dataset([row])
    assert made["chat"] == "of Monday"
    assert made["prompt"][-1]["content"] == row["question"]
    assert own_system_messages(load_problems([row])) == []


def test_a_run_knows_the_system_messages_of_its_conversations():
    rows = [{"prompt": [USER], "answer": "7"}, {"prompt": [SYSTEM, USER], "answer": "7"}]
    assert own_system_messages(load_problems(rows)) == [SYSTEM["content"]]
    assert own_system_messages(load_problems([{"question": "3 + 4?", "answer": "7"}])) == []


def test_several_turns_and_calls_of_tools_stay_as_they_are(tmp_path, tiny):
    """Arrow would give each call the arguments of all others."""
    other = json.loads(json.dumps(CALL))
    other["tool_calls"][0]["function"]["arguments"] = {"b": 4}
    rows = [{"prompt": [USER, call, RESULT, AGAIN], "answer": 7} for call in (CALL, other)]
    rows.append({"prompt": [USER], "answer": 7})
    problems = load_problems(write(tmp_path / "rows.jsonl", rows))
    prompts = to_dataset(problems, None)["prompt"][:]
    assert prompts[0] == [USER, {**CALL, "content": ""}, RESULT, AGAIN]
    assert prompts[1][1]["tool_calls"][0]["function"]["arguments"] == {"b": 4}
    assert prompts[2] == [USER]
    # What is equal in two conversations does not make them equal.
    assert len(set(problems["question"][:])) == 2
    assert AGAIN["content"] in render(prompts, tiny["qwen"][1])[0]


REASONS = {
    "no answer": ({"messages": [SYSTEM, USER]}, ["messages", "assistant"]),
    "a continued answer": ({"prompt": [USER, RIGHT], "answer": "7"}, ["prompt", "assistant"]),
    "an unknown role": ({"prompt": [{"role": "alien", "content": "?"}], "answer": 7}, ["'alien'"]),
    "no user": ({"prompt": [SYSTEM], "answer": "7"}, ["prompt", "user"]),
    "nothing": ({"prompt": [], "answer": "7"}, ["prompt", "[]"]),
    "an image": (
        {"prompt": [{"role": "user", "content": [{"type": "image"}]}], "answer": "7"},
        ["image"],
    ),
    "no number": ({"messages": [USER, {"role": "assistant", "content": "seven"}]}, ["seven"]),
}


@pytest.mark.parametrize("name", REASONS)
def test_a_row_that_is_no_problem_is_named_with_the_reason(name):
    bad, named = REASONS[name]
    good = {key: value for key, value in FORMS["messages"].items() if key in bad}
    if "prompt" in bad:
        good = FORMS["prompt"]
    _, invalid = check_problems([good, bad], answers="number")
    assert list(invalid) == [2]
    assert_names(invalid[2], *named)


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"prompt": [USER], "label": "7"}, ["row 1", "assistant"]),
        (
            {"prompt": [USER], "solution": "7", "ground_truth": "7"},
            ["'solution'", "'ground_truth'"],
        ),
        ({"text": "What?", "label": "7"}, ["'question'", "text", "label", "--question-column"]),
        ({"question": "What?", "label": "7"}, ["'answer'", "question", "label", "--answer-column"]),
    ],
)
def test_what_the_reference_is_must_be_clear(row, named):
    with raises_naming(WorkbookError, *named):
        load_problems([row])


# ------------------------------------------------------------------ the commands


@pytest.fixture
def with_images(tmp_path):
    """A Parquet file with a small image in each row, as TRL's users have it."""
    from datasets import Dataset, Features, Image, Value
    from PIL import Image as Picture

    rows = {"question": ["How many?"] * 80, "answer": ["3"] * 80}
    rows["image"] = [Picture.new("RGB", (4, 4))] * 80
    features = Features({"question": Value("string"), "answer": Value("string"), "image": Image()})
    Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "train.parquet")
    return tmp_path / "train.parquet"


@pytest.mark.parametrize("command", ["run", "evaluate"])
def test_images_are_refused_before_anything_is_measured(with_images, tmp_path, capsys, command):
    """A run trains no model with vision, and the course's model is none."""
    out = tmp_path / "out"
    arguments, names = {
        "run": (["run", "--data", with_images, "--output_dir", out], ["train.parquet", "'image'"]),
        "evaluate": (
            ["evaluate", "qwen", "--data", with_images, "--output", out],
            ["tiny-qwen3", "vision"],
        ),
    }[command]
    assert main([str(word) for word in arguments]) == 2
    assert_names(capsys.readouterr().err, *names)
    assert not out.exists()


def test_check_data_says_where_questions_and_answers_come_from(tmp_path, capsys):
    rows = sums(lambda a, b: {"conversations": _share_gpt(a, b)})
    assert main(["check-data", str(write(tmp_path / "rows.jsonl", rows))]) == 0
    assert_names(capsys.readouterr().out, "conversations", "the last turn of each chat")
    rows = sums(lambda a, b: {"prompt": _chat(a, b), "ground_truth": a + b, "tools": [{"f": 1}]})
    assert main(["check-data", str(write(tmp_path / "rows.jsonl", rows))]) == 1
    assert_names(capsys.readouterr().out, "ground_truth", "HURTS", "'tools'")


def _share_gpt(a, b):
    question = f"A baker makes {a} rolls and {b} buns. How many pieces is that?"
    answer = f"{a}+{b}. #### {a + b}"
    return [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]


def _chat(a, b):
    question = f"A baker makes {a} rolls and {b} buns. How many pieces is that?"
    return [SYSTEM, {"role": "user", "content": question}, CALL, RESULT, AGAIN]


@pytest.mark.trains
def test_a_run_trains_on_chats_and_its_merge_is_proved_again(tmp_path, capsys):
    """The command `merge` asks the run's own prompts again, which no question alone would give."""
    rows = sums(lambda a, b: {"prompt": _chat(a, b), "answer": a + b})
    data = write(tmp_path / "rows.jsonl", rows)
    folder = tmp_path / "run"
    sizes = ["--max-steps", "1", "--heldout", "8", "--per_device_train_batch_size", "8"]
    assert main(["run", "--data", str(data), *sizes, "--output_dir", str(folder)]) == 0
    assert_names(capsys.readouterr().out, "conversations keep a system message of their own")
    prompts = json.loads((folder / "after.json").read_text())["prompt"]
    assert [message["role"] for message in prompts[0]] == [m["role"] for m in _chat(2, 2)]
    proof = report_of(folder)["merge"]
    again = ["merge", str(folder / "adapter"), "--output", str(tmp_path / "merged")]
    assert main(again) == 0
    card = (tmp_path / "merged" / "README.md").read_text()
    assert f"largest logit difference {proof['max_abs_logit_difference']}" in card
    assert f'"content": "{SYSTEM["content"]}"' in card  # and not that of --system_prompt


@pytest.mark.parametrize(
    ("case", "rows"),
    [
        ("01-sharegpt/train.jsonl", 80),
        ("02-trl-prompt-tools/train.jsonl", 80),
        ("02-trl-prompt-tools/plain_prompt.jsonl", 80),
    ],
)
def test_files_of_other_people(case, rows):
    if not CASES.is_dir():
        pytest.skip("no files of other people beside the project (shared/cases)")
    problems = load_problems(CASES / case)
    assert len(problems) >= rows / 2
    tokenizer = load_tokenizer("data/tiny-qwen3")
    assert all(render(to_dataset(problems)["prompt"][:], tokenizer))
