"""Charts, and the tiny model that reads them: pictures, rewards, the script, the stored model."""

import random
import sys

import pytest
import torch
from conftest import REPO

from grpo_workbook.exercises.charts import (
    PAPERS,
    QUESTION,
    Chart,
    list_reward,
    listed_bars,
    make_charts,
    picture,
    reading_rates,
    rows,
)

sys.path.insert(0, str(REPO / "data"))
import build_tiny_vision as script

FOLDER = REPO / "data" / "tiny-vision"
CHART = Chart((("red", 7), ("green", 2), ("blue", 4)))


def test_a_bar_is_as_high_as_its_number_says():
    for paper, background in PAPERS.items():
        image = picture(CHART, paper)
        assert (image.mode, image.size) == ("RGB", (32, 32))
        assert image.getpixel((31, 0)) == background
        for middle, (colour, height) in zip((9, 18, 27), CHART.bars, strict=True):
            column = [image.getpixel((middle, y)) for y in range(32)]
            assert len(column) - column.count(background) == 3 * height + 1, colour
    empty = picture(None, "grey")
    assert empty.getpixel((9, 31)) == PAPERS["grey"]
    with pytest.raises(ValueError, match="grey"):
        picture(CHART, "pink")


def test_held_out_charts_are_never_trained_on():
    heldout = make_charts(300, seed=1, heldout=True)
    training = make_charts(300, seed=1, heldout=False)
    assert len(set(heldout)) == len(set(training)) == 300
    assert not set(heldout) & set(training)
    assert make_charts(300, seed=1, heldout=True) == heldout
    assert make_charts(300, seed=2, heldout=True) != heldout


def test_a_row_is_what_trl_takes():
    row = rows([CHART], "grey")[0]
    assert row["prompt"][-1] == {"role": "user", "content": QUESTION}
    assert row["image"].tobytes() == picture(CHART, "grey").tobytes()
    assert (row["answer"], row["bars"]) == ("13", "red 7, green 2, blue 4")


def test_right_answers_earn_everything_and_lists_are_judged_bar_by_bar():
    from grpo_workbook import correctness_reward

    right = CHART.right_answer
    wrong = right.replace("green", "black")
    completions = [[{"role": "assistant", "content": text}] for text in (right, wrong, "")]
    columns = {"answer": ["13"] * 3, "bars": [CHART.description] * 3}
    assert correctness_reward(completions=completions, **columns) == [1.0, 1.0, 0.0]
    assert list_reward(completions=completions, **columns) == [1.0, 0.0, 0.0]
    assert listed_bars(right) == list(CHART.bars)
    rates = reading_rates([CHART, CHART], [right, wrong])
    assert rates == {"colours": pytest.approx(5 / 6), "heights": 1.0, "lists": 0.5}


def test_the_script_makes_the_stored_processor(tmp_path):
    script.make_processor().save_pretrained(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert "processor_config.json" in names
    for name in names:
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes(), name


@pytest.mark.parametrize("stage", ["bars", "sums"])
def test_only_the_completion_is_learned_and_no_chart_is_held_out(stage, monkeypatch):
    shown = []

    def remember(chart, paper="white"):
        shown.append((chart, paper))
        return picture(chart, paper)

    monkeypatch.setattr(script, "picture", remember)
    processor = script.make_processor()
    batch = script.chart_batch(processor, random.Random(1), 40, stage)
    assert len(shown) == 40
    assert not any(chart.is_heldout for chart, _ in shown)
    assert {paper for _, paper in shown} == {"white"}
    assert batch["token_type_ids"].sum(1).tolist() == [16] * 40
    image_token = processor.tokenizer.image_token_id
    assert torch.equal(batch["input_ids"] == image_token, batch["token_type_ids"] == 1)
    for row, (chart, _) in enumerate(shown):
        learned = batch["labels"][row][batch["labels"][row] != -100]
        text = processor.decode(learned, skip_special_tokens=True)
        assert text == (chart.description if stage == "bars" else chart.right_answer)
        assert learned[-1] == processor.tokenizer.eos_token_id


def test_the_stored_model_reads_white_charts_and_stumbles_on_grey_ones():
    from transformers import AutoModelForImageTextToText, AutoProcessor

    model = AutoModelForImageTextToText.from_pretrained(FOLDER, dtype=torch.float32)
    processor = AutoProcessor.from_pretrained(FOLDER)
    charts = make_charts(60, seed=5, heldout=True)
    right = {}
    for paper in PAPERS:
        chats = []
        for row in rows(charts, paper):
            system, user = row["prompt"]
            image = {"type": "image", "image": row["image"]}
            content = [image, {"type": "text", "text": user["content"]}]
            chats.append([system, {"role": "user", "content": content}])
        inputs = processor.apply_chat_template(
            chats,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
            processor_kwargs={"padding": True},
        )
        ids = model.generate(**inputs, max_new_tokens=48, do_sample=False)
        texts = processor.batch_decode(ids[:, inputs["input_ids"].shape[1] :], True)
        pairs = zip(texts, charts, strict=True)
        right[paper] = sum(text == chart.right_answer for text, chart in pairs)
    assert right["white"] >= 57
    assert 10 <= right["grey"] <= 40
