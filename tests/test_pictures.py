"""Pictures, on a tiny Gemma 3 with vision and random weights: measured, saved and merged."""

import json
import random
import re
import sys

import pytest
from conftest import REPO, assert_names, finished, raises_naming
from datasets import Dataset, Features, Image, List, Value, concatenate_datasets
from PIL import Image as Picture

from grpo_workbook.cli import main
from grpo_workbook.compat import picture_tokens
from grpo_workbook.data import (
    drop_leaked,
    drop_long_prompts,
    leaked_rows,
    load_tokenizer,
    to_dataset,
)
from grpo_workbook.data.prompts import prompt_lengths
from grpo_workbook.errors import WorkbookError
from grpo_workbook.evaluation import Sampling, complete, evaluate, generate
from grpo_workbook.export import logit_differences, merge, read_logits, save_adapter
from grpo_workbook.models import load_model
from grpo_workbook.pictures import (
    LAYERS,
    check_pictures,
    image_column,
    picture_controls,
    picture_numbers,
    place_pictures,
)
from grpo_workbook.planning import plan

SIDE = 16  # pixels
MARKS = {
    "boi_token": "<start_of_image>",
    "eoi_token": "<end_of_image>",
    "image_token": "<image_soft_token>",
}
TEMPLATE = """\
{{- bos_token -}}
{%- for message in messages -%}
    {{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\\n' -}}
    {%- for part in message.content -%}
        {{- '<start_of_image>' if part.type == 'image' else part.text | trim -}}
    {%- endfor -%}
    {{- '<end_of_turn>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\\n' -}}{%- endif -%}
"""


def make_processor():
    from transformers import Gemma3Processor, PreTrainedTokenizerFast
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

    plain = load_tokenizer(REPO / "data" / "tiny-gemma3")
    plain.add_special_tokens({"extra_special_tokens": list(MARKS.values())})
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=plain.backend_tokenizer,
        padding_side="left",
        pad_token=plain.pad_token,
        eos_token=plain.eos_token,
        bos_token=plain.bos_token,
        unk_token=plain.unk_token,
        extra_special_tokens=MARKS,
    )
    images = Gemma3ImageProcessorPil(size={"height": SIDE, "width": SIDE})
    return Gemma3Processor(images, tokenizer, chat_template=TEMPLATE, image_seq_length=4)


def make_model(tokenizer):
    import torch
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration

    torch.manual_seed(0)
    tokens = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    text = {
        "vocab_size": len(tokenizer), "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 32, "query_pre_attn_scalar": 32, "max_position_embeddings": 512,
        "sliding_window": 256, "layer_types": ["sliding_attention", "full_attention"],
        "initializer_range": 0.3,
    }  # fmt: skip
    vision = {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 2, "image_size": SIDE, "patch_size": 4, "vision_use_head": False,
        "initializer_range": 0.3,
    }  # fmt: skip
    config = Gemma3Config(
        text_config={**text, **tokens},
        vision_config=vision,
        mm_tokens_per_image=4,
        boi_token_index=tokenizer.boi_token_id,
        eoi_token_index=tokenizer.eoi_token_id,
        image_token_index=tokenizer.image_token_id,
        tie_word_embeddings=False,
        **tokens,
    )
    model = Gemma3ForConditionalGeneration(config)
    # Transformers starts it at zero, and the model would be blind.
    projector = model.model.multi_modal_projector
    torch.nn.init.normal_(projector.mm_input_projection_weight, std=0.3)
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model.bfloat16().float().eval()  # so that 16 bits hold its weights exactly


@pytest.fixture(scope="session")
def seeing(tmp_path_factory):
    """(folder, model in float32, processor)"""
    folder = tmp_path_factory.mktemp("seeing")
    processor = make_processor()
    model = make_model(processor.tokenizer)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder, model, processor


def picture(seed, size=SIDE):
    """Coloured noise."""
    return Picture.frombytes("RGB", (size, size), random.Random(seed).randbytes(3 * size * size))


def rows_with(pictures, questions=None, column="image", type_of_column=None):
    """Problems with pictures in a column."""
    questions = questions or ["How many pens are there?"] * len(pictures)
    features = {"question": Value("string"), "answer": Value("string")}
    features[column] = type_of_column or Image()
    rows = {"question": questions, "answer": ["7"] * len(pictures), column: pictures}
    return to_dataset(Dataset.from_dict(rows, features=Features(features)), system_prompt=None)


ROWS = rows_with([picture(seed) for seed in range(6)])


# ---------------------------------------------------------------------------- answering


def test_the_answer_depends_on_the_picture_and_not_on_the_batch(seeing):
    _, model, processor = seeing
    prompts = ROWS["prompt"][:]
    images = [picture(seed) for seed in range(6)]
    texts = generate(model, processor, prompts, images=images, max_new_tokens=8)
    assert len(set(texts)) > 1  # the questions are the same
    one_by_one = generate(model, processor, prompts, images=images, max_new_tokens=8, batch_size=1)
    assert one_by_one == texts
    again = generate(model, processor, prompts[:2], images=images[1::-1], max_new_tokens=8)
    assert again == texts[1::-1]


def test_generate_gives_what_transformers_gives(seeing):
    _, model, processor = seeing
    chat = [
        {
            "role": "user",
            "content": [
                {"type": "image", "image": picture(3)},
                {"type": "text", "text": ROWS[3]["question"]},
            ],
        }
    ]
    inputs = processor.apply_chat_template(
        chat, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )
    ids = model.generate(
        **inputs,
        max_new_tokens=8,
        do_sample=False,
        suppress_tokens=picture_tokens(processor),
    )
    expected = processor.decode(ids[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    prompts = [ROWS[3]["prompt"], ROWS[0]["prompt"]]
    texts = generate(model, processor, prompts, images=[picture(3), None], max_new_tokens=8)
    assert texts[0] == expected


def test_evaluate_reads_the_column_and_repeats_its_pictures(seeing):
    _, model, processor = seeing
    scores = evaluate(model, processor, ROWS, samples=2, sample=True, max_new_tokens=8)
    assert (scores.n, len(scores.completions)) == (6, 12)
    table = scores.table(ROWS)
    assert "image" not in table.columns
    lists = rows_with([[picture(0), picture(1)], [picture(2)]], None, "images", List(Image()))
    greedy = evaluate(model, processor, lists, max_new_tokens=8).completions
    single = evaluate(model, processor, ROWS, max_new_tokens=8).completions
    assert greedy[1] == single[2]
    assert greedy[0] != single[0]


def test_a_model_without_eyes_is_an_error_and_no_answer(seeing):
    _, model, processor = seeing
    with raises_naming(WorkbookError, "'image'", "processor"):
        evaluate(model, processor.tokenizer, ROWS)
    with raises_naming(WorkbookError, "processor"):
        generate(model, processor.tokenizer, ROWS["prompt"][:], images=ROWS["image"])
    inside = place_pictures(ROWS[0]["prompt"], [picture(0)])
    with raises_naming(WorkbookError, "message", "'image'"):
        generate(model, processor, [inside])
    elsewhere = rows_with([picture(0)], column="photo")
    with raises_naming(WorkbookError, "'photo'", "rename_column"):
        evaluate(model, processor, elsewhere)


def test_pictures_that_begin_late_are_seen(seeing):
    """However many rows without a picture stand before the first one with a picture."""
    _, model, processor = seeing
    rows = rows_with([None] * 2000 + [picture(0)])
    assert image_column(rows) == "image"
    rows = rows.select(range(1990, 2001))
    seen = evaluate(model, processor, rows, samples=2, sample=True, max_new_tokens=4)
    blind = rows.remove_columns("image")
    unseen = evaluate(model, processor, blind, samples=2, sample=True, max_new_tokens=4)
    assert seen.completions != unseen.completions


def test_a_typed_column_without_pictures_is_for_a_text_model():
    tokenizer = load_tokenizer(REPO / "data" / "tiny-gemma3")
    rows = rows_with([None, None])
    kept, dropped = drop_long_prompts(rows, tokenizer, 400)
    assert (len(kept), dropped) == (2, 0)


def test_a_path_is_neither_opened_nor_downloaded(seeing):
    _, model, processor = seeing
    rows = ROWS.select(range(1)).remove_columns("image").add_column("image", ["a.png"])
    with raises_naming(WorkbookError, "a.png", "cast_column"):
        evaluate(model, processor, rows, max_new_tokens=4)


def test_the_table_of_completions_has_no_pictures(seeing):
    _, model, processor = seeing
    masks = rows_with([picture(9)] * 6, column="mask").select_columns("mask")
    rows = concatenate_datasets([ROWS, masks], axis=1)
    table = evaluate(model, processor, rows, max_new_tokens=4).table(rows)
    assert not {"image", "mask"} & set(table.columns)
    assert len(json.loads(table.to_json(orient="records"))) == 6


def test_no_token_of_a_picture_is_written(seeing):
    """Such a token in a completion stops TRL's trainer."""
    import torch

    _, model, processor = seeing
    marks = picture_tokens(processor)
    assert processor.tokenizer.image_token_id in marks
    head = model.lm_head.weight
    before = head.detach().clone()
    try:
        with torch.no_grad():
            head[marks] *= 1000  # now they are far more likely than all others
        sampling = Sampling(max_new_tokens=8, sample=True)
        completions = complete(model, processor, ROWS["prompt"][:], sampling, images=ROWS["image"])
    finally:
        with torch.no_grad():
            head.copy_(before)
    written = {token for completion in completions for token in completion.tokens}
    assert written
    assert not written & set(marks)


# ---------------------------------------------------------------------------- controls


def test_controls_hide_the_picture_or_give_another_one(seeing):
    _, model, processor = seeing
    rows = rows_with([picture(seed // 2) for seed in range(6)])  # two questions to each picture
    controls = picture_controls(rows, colour=(190, 190, 190))
    assert set(controls) == {"blank", "shuffled"}
    for control in controls.values():
        assert control.remove_columns("image")[:] == rows.remove_columns("image")[:]
    blank = controls["blank"][0]["image"]
    assert blank.size == (SIDE, SIDE)
    assert blank.getcolors() == [(SIDE * SIDE, (190, 190, 190))]
    numbers = picture_numbers(rows)
    shuffled = picture_numbers(controls["shuffled"])
    assert set(shuffled) == set(numbers)
    assert all(a != b for a, b in zip(numbers, shuffled, strict=True))
    texts = evaluate(model, processor, controls["blank"], max_new_tokens=8).completions
    assert len(set(texts)) == 1  # nothing tells the rows apart any more


def test_controls_of_lists_keep_the_number_of_pictures():
    rows = rows_with([[picture(0), picture(1, 8)], [picture(2)]], None, "images", List(Image()))
    controls = picture_controls(rows)
    assert [image.size for image in controls["blank"][0]["images"]] == [(SIDE, SIDE), (8, 8)]
    assert len(controls["shuffled"][0]["images"]) == 1


def test_a_row_without_a_picture_stays_without_in_the_controls():
    controls = picture_controls(rows_with([picture(0), None, picture(1)]))
    assert controls["blank"][1]["image"] is None
    first, no_picture, last = picture_numbers(rows_with([picture(0), None, picture(1)]))
    assert picture_numbers(controls["shuffled"]) == [last, no_picture, first]
    assert controls["blank"][2]["image"].getcolors() == [(SIDE * SIDE, (255, 255, 255))]


def test_controls_need_different_pictures():
    with raises_naming(WorkbookError, "same picture", "two different"):
        picture_controls(rows_with([picture(0)] * 3))
    with raises_naming(WorkbookError, "same picture"):
        picture_controls(rows_with([picture(0), None]))
    with raises_naming(WorkbookError, "'image'"):
        picture_controls(ROWS.remove_columns("image"))


# ---------------------------------------------------------------------------- saving and merging


def with_adapters(folder, part, load_in_4bit=False):
    """(the whole model with adapters in a part of it that have learned something, processor)"""
    import torch
    from peft import LoraConfig, get_peft_model

    base, processor = load_model(folder, load_in_4bit=load_in_4bit, pictures=True)
    torch.manual_seed(1)
    model = get_peft_model(base, LoraConfig(r=4, target_modules=LAYERS[part]))
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(std=0.05)
    return model.eval(), processor


def places(model):
    """The parts of the model that have adapters."""
    names = [name for name, _ in model.named_parameters() if "lora_A" in name]
    return {name.split(".layers.")[0].split(".")[-1] for name in names}


def test_adapters_go_into_the_part_that_is_named(seeing):
    folder, _, _ = seeing
    vision = places(with_adapters(folder, "vision")[0])
    language = places(with_adapters(folder, "language")[0])
    assert language == {"language_model"}
    assert vision
    assert not vision & language
    assert places(with_adapters(folder, "both")[0]) == vision | language


def test_in_4_bit_vision_stays_wide(seeing):
    from bitsandbytes.nn.modules import Linear4bit

    model, _ = load_model(seeing[0], load_in_4bit=True, pictures=True)
    packed = [name for name, module in model.named_modules() if isinstance(module, Linear4bit)]
    assert packed
    assert all("language_model" in name for name in packed)


@pytest.mark.parametrize("part", ["vision", "language"])
def test_an_adapter_comes_back_with_its_processor(seeing, tmp_path, part):
    folder, base, _ = seeing
    model, processor = with_adapters(folder, part)
    answers = evaluate(model, processor, ROWS, max_new_tokens=8).completions
    save_adapter(model, processor, tmp_path / "adapter")
    again, its_processor = load_model(folder, tmp_path / "adapter", pictures=True)
    assert evaluate(again, its_processor, ROWS, max_new_tokens=8).completions == answers
    assert evaluate(base, processor, ROWS, max_new_tokens=8).completions != answers
    with raises_naming(WorkbookError, tmp_path / "adapter", "pictures=True"):
        load_model(folder, tmp_path / "adapter")


def test_adapters_of_vision_are_not_saved_with_a_bare_tokenizer(seeing, tmp_path):
    model, processor = with_adapters(seeing[0], "vision")
    with raises_naming(WorkbookError, "processor"):
        save_adapter(model, processor.tokenizer, tmp_path / "adapter")
    assert not (tmp_path / "adapter").exists()


def test_a_text_model_has_no_processor():
    with raises_naming(WorkbookError, "tiny-qwen3", "vision"):
        load_model(REPO / "data" / "tiny-qwen3", pictures=True)


@pytest.mark.parametrize("dequantize", [False, True])
@pytest.mark.slow
def test_the_whole_model_is_merged_and_proved_on_pictures(seeing, tmp_path, dequantize):
    folder, _, _ = seeing
    model, processor = with_adapters(folder, "both", load_in_4bit=True)
    save_adapter(model, processor, tmp_path / "adapter")
    with raises_naming(WorkbookError, "'image'"):
        merge(folder, tmp_path / "adapter", tmp_path / "merged")
    proof = merge(
        folder,
        tmp_path / "adapter",
        tmp_path / "merged",
        heldout=ROWS.remove_columns("answer"),
        dequantize=dequantize,
        max_new_tokens=8,
    )
    assert proof["relative_logit_difference"] < 0.02
    assert proof["base_change"] is not None
    merged, its_processor = load_model(tmp_path / "merged", pictures=True)
    assert type(merged).__name__ == "Gemma3ForConditionalGeneration"
    # The proof sees the pictures: with others the logits are not the same.
    texts = evaluate(merged, its_processor, ROWS, max_new_tokens=8).completions
    shuffled = picture_controls(ROWS)["shuffled"]
    prompts = ROWS["prompt"][:]
    seen = read_logits(merged, its_processor, prompts, texts, images=ROWS["image"])
    others = read_logits(merged, its_processor, prompts, texts, images=shuffled["image"])
    assert logit_differences(seen, others)["relative_logit_difference"] > 0.02
    card = (tmp_path / "merged" / "README.md").read_text(encoding="utf-8")
    assert "pipeline_tag: image-text-to-text" in card


def test_logits_of_an_answer_are_those_of_transformers(seeing):
    import torch

    _, model, processor = seeing
    chat = place_pictures(ROWS[1]["prompt"], [picture(1)])
    answer = [{"role": "assistant", "content": [{"type": "text", "text": "7 pens"}]}]
    whole = processor.apply_chat_template(
        [*chat, *answer], tokenize=True, return_dict=True, return_tensors="pt"
    )
    with torch.no_grad():
        expected = model(**whole).logits[0]
    (logits,) = read_logits(model, processor, [ROWS[1]["prompt"]], ["7 pens"], images=[picture(1)])
    end = len(processor.tokenizer("<end_of_turn>\n", add_special_tokens=False)["input_ids"])
    expected = expected[-end - len(logits) : -end]
    assert torch.allclose(logits, expected, atol=1e-3)


# ---------------------------------------------------------------------------- data


def test_what_would_train_blind_is_found_before(seeing):
    _, _, processor = seeing
    check_pictures(ROWS, processor)
    with raises_naming(WorkbookError, "'image'", "processor"):
        check_pictures(ROWS, processor.tokenizer)
    with raises_naming(WorkbookError, "'photo'"):
        check_pictures(rows_with([picture(0)], column="photo"), processor)
    with raises_naming(WorkbookError, "'image'"):
        check_pictures(ROWS.remove_columns("image"), processor)
    with raises_naming(WorkbookError, "'prompt'", "'question'"):
        check_pictures(ROWS.remove_columns("prompt"), processor)
    text = ROWS.remove_columns("prompt").add_column("prompt", ["<start_of_image> How many?"] * 6)
    with raises_naming(WorkbookError, "row 1", "chat template"):
        check_pictures(text, processor)
    content = [{"type": "image", "image": "a.png"}, {"type": "text", "text": "How many?"}]
    twice = ROWS.remove_columns("prompt").add_column(
        "prompt", [[{"role": "user", "content": content}]] * 6
    )
    with raises_naming(WorkbookError, "row 1", "second"):
        check_pictures(twice, processor)


def test_an_empty_column_that_trl_reads_first_is_found_before(seeing):
    _, _, processor = seeing
    with raises_naming(WorkbookError, "'images'", "remove_columns"):
        check_pictures(ROWS.add_column("images", [[]] * 6), processor)


def test_padding_on_the_right_is_found_before(seeing):
    folder, _, _ = seeing
    from transformers import AutoProcessor

    with raises_naming(WorkbookError, "right", "padding_side"):
        check_pictures(ROWS, AutoProcessor.from_pretrained(folder, padding_side="right"))


def test_a_missing_or_damaged_picture_is_found_before(seeing):
    _, _, processor = seeing
    with raises_naming(WorkbookError, "row 2", "empty"):
        check_pictures(rows_with([picture(0), None]), processor)
    damaged = rows_with([picture(0), {"bytes": b"no picture", "path": None}])
    with raises_naming(WorkbookError, "row 2", "read"):
        check_pictures(damaged, processor)


def test_the_same_question_leaks_only_with_the_same_picture():
    train = rows_with([picture(0), picture(1), picture(2)])
    heldout = rows_with([picture(5), picture(1)])
    assert leaked_rows(train, heldout) == {1: 1}
    kept, dropped = drop_leaked(train, heldout)
    assert (len(kept), dropped) == (2, 1)
    near = rows_with(
        [picture(1)], ["How many red pens are there in this picture, please, all in all?"]
    )
    other = rows_with(
        [picture(1)], ["How many blue pens are there in this picture, please, all in all?"]
    )
    assert leaked_rows(near, other) == {0: 0}
    assert leaked_rows(near, rows_with([picture(2)], other["question"][:])) == {}


def test_a_question_without_a_picture_leaks_into_rows_without_pictures():
    train = rows_with([None, picture(1)])
    assert leaked_rows(train, rows_with([None]).remove_columns("image")) == {0: 0}


def test_an_empty_column_is_no_column_of_pictures():
    rows = Dataset.from_dict({"question": ["a"], "images": [[]]})
    assert image_column(rows) is None


def test_the_length_of_a_prompt_counts_its_pictures(seeing):
    """As TRL's trainer makes the prompt: no picture of it may be cut off."""
    _, _, processor = seeing
    lists = rows_with([[picture(0)], [picture(1), picture(2)]], None, "images", List(Image()))
    one, two = prompt_lengths(lists, processor)
    marks = len(processor.tokenizer(processor.full_image_sequence, add_special_tokens=False)[0])
    assert two - one == marks
    assert prompt_lengths(lists.remove_columns("images"), processor)[0] == one - marks
    kept, dropped = drop_long_prompts(lists, processor, one)
    assert (len(kept), dropped) == (1, 1)
    with raises_naming(WorkbookError, "'images'", "processor"):
        drop_long_prompts(lists, processor.tokenizer, one)


# ---------------------------------------------------------------------------- the commands


def save_rows(path, pictures, column="image"):
    rows = rows_with(pictures, column=column).select_columns(["question", "answer", column])
    rows.to_parquet(path)
    return str(path)


def test_check_data_reads_the_pictures(tmp_path, capsys):
    pictures = [picture(seed) for seed in range(70)]
    good = save_rows(tmp_path / "good.parquet", pictures)
    assert main(["check-data", good]) == 0  # one question, but 70 pictures
    assert "image" in capsys.readouterr().out
    pictures[2] = {"bytes": b"no picture", "path": None}
    pictures[40] = pictures[50]
    bad = save_rows(tmp_path / "bad.parquet", pictures)
    assert main(["check-data", bad, "--heldout-data", good]) == 1
    out = capsys.readouterr().out
    assert_names(out, "row 3", "bad.parquet, row 51 ~ bad.parquet, row 41")
    assert re.search(r"heldout also in training +68", out)  # all but the two that are not in it


def test_check_data_finds_pictures_where_trl_does_not_look(tmp_path, capsys):
    pictures = [picture(seed) for seed in range(70)]
    assert main(["check-data", save_rows(tmp_path / "a.parquet", pictures, "photo")]) == 1
    assert_names(capsys.readouterr().out, "HURTS", "'photo'")


def test_check_data_refuses_paths_in_place_of_pictures(tmp_path, capsys):
    path = tmp_path / "paths.jsonl"
    path.write_text('{"question": "How many?", "answer": "7", "image": "a.png"}\n' * 70)
    assert main(["check-data", str(path)]) == 2
    assert_names(capsys.readouterr().err, "a.png", "cast_column")


@pytest.mark.slow
def test_the_command_evaluates_a_model_with_vision(seeing, tmp_path):
    data = save_rows(tmp_path / "test.parquet", [picture(seed) for seed in range(6)])
    words = ["evaluate", str(seeing[0]), "--data", data, "--system-prompt", ""]
    words += ["--max-new-tokens", "8", "--output", str(tmp_path / "out")]
    assert main(words) == 0
    lines = (tmp_path / "out" / "results.jsonl").read_text().splitlines()
    texts = [json.loads(line)["completions"] for line in lines]
    expected = evaluate(seeing[1], seeing[2], ROWS, max_new_tokens=8).completions
    assert texts == expected
    baseline = ["--baseline", str(tmp_path / "out"), "--output", str(tmp_path / "again")]
    assert main([*words[:-2], *baseline]) == 0  # the same pictures have the same hash


# ---------------------------------------------------------------------------- memory


def test_a_plan_counts_the_tower_and_the_tokens_of_the_pictures(seeing):
    folder, model, _ = seeing
    text = plan(str(folder), "smoke", load_in_4bit=False, dtype="float32")
    whole = plan(str(folder), "smoke", load_in_4bit=False, dtype="float32", image_tokens=256)
    before, after = text.parts["always"], whole.parts["always"]
    assert before["weights"] + after["vision"] == 4 * model.num_parameters()
    longer = text.settings.max_prompt_length + 256
    same = plan(str(folder), "smoke", load_in_4bit=False, dtype="float32", max_prompt_length=longer)
    assert whole.parts["learning"] == same.parts["learning"]
    assert whole.parts["sampling"] == same.parts["sampling"]


def test_a_plan_with_pictures_needs_a_model_with_vision():
    with raises_naming(WorkbookError, "vision"):
        plan(str(REPO / "data" / "tiny-qwen3"), "smoke", image_tokens=256)


# ---------------------------------------------------------------------------- TRL's trainer

# Unsloth is imported first, because TRL samples on a CPU only with its patches.
TRAINS = """
import json, sys
import unsloth
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import set_seed
from trl import GRPOConfig, GRPOTrainer
from grpo_workbook import evaluate, load_model, merge, save_adapter
from grpo_workbook.compat import picture_tokens
from grpo_workbook.exercises.charts import make_charts, rows
from grpo_workbook.pictures import LAYERS, check_pictures, picture_controls
from grpo_workbook.training import Float32Adapters, HeldoutProbe

torch.set_num_threads(1)
set_seed(0)
train = Dataset.from_list(rows(make_charts(64, seed=1, heldout=False), "grey"))
heldout = Dataset.from_list(rows(make_charts(20, seed=1, heldout=True), "grey"))
base, processor = load_model("data/tiny-vision", load_in_4bit=True, pictures=True)
model = get_peft_model(base, LoraConfig(r=16, lora_alpha=32, target_modules=LAYERS["vision"]))
check_pictures(train, processor)
rates = {"real": evaluate(model, processor, heldout, max_new_tokens=48).rate}
for name, control in picture_controls(heldout, (190, 190, 190)).items():
    rates[name] = evaluate(model, processor, control, max_new_tokens=48).rate

def right(completions, answer, **columns):
    pairs = zip(completions, answer)
    return [float(f"<answer>{number}</answer>" in chat[0]["content"]) for chat, number in pairs]

args = GRPOConfig(
    output_dir=sys.argv[1], max_steps=3, per_device_train_batch_size=32, num_generations=8,
    learning_rate=5e-4, max_completion_length=48, logging_steps=1, save_strategy="no",
    report_to="none", use_cpu=True, bf16=False, gradient_checkpointing=False, disable_tqdm=True,
    generation_kwargs={"suppress_tokens": picture_tokens(processor)},
)
probe = HeldoutProbe(model, processor, heldout, every=3, problems=4, max_new_tokens=48)
trainer = GRPOTrainer(
    model, right, args=args, train_dataset=train, processing_class=processor,
    callbacks=[Float32Adapters(model), probe],
)
trainer.train()
history = trainer.state.log_history
rewards = [row["reward"] for row in history if "reward" in row]
probes = [row["heldout/strict"] for row in history if "heldout/strict" in row]
save_adapter(model, processor, f"{sys.argv[1]}/adapter")
proof = merge(
    None, f"{sys.argv[1]}/adapter", f"{sys.argv[1]}/merged", heldout=heldout, max_new_tokens=48
)
after = proof["heldout"]["strict"]["after"]
print(json.dumps({"rates": rates, "rewards": rewards, "probes": probes, "merged": after}))
"""


@pytest.mark.trains
def test_trl_trains_the_vision_tower_and_the_merge_sees(tmp_path):
    result = finished([sys.executable, "-c", TRAINS, tmp_path / "run"], PYTHONPATH=str(REPO))
    assert result.returncode == 0, result.stderr[-3000:]
    numbers = json.loads(result.stdout.splitlines()[-1])
    rates = numbers["rates"]
    assert rates["real"] > max(rates["blank"], rates["shuffled"])
    assert len(numbers["rewards"]) == 3
    assert any(0 < reward < 1 for reward in numbers["rewards"])
    assert len(numbers["probes"]) == 2  # before the training, and after 3 steps
    assert numbers["merged"] > 0
