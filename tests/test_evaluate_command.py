"""The command evaluate as a user calls it: the files, a baseline, bad input."""

import itertools
import json
import shutil
from argparse import Namespace
from dataclasses import replace

import pytest
from conftest import REPO, assert_names, report_of, slow

from grpo_workbook.cli import main
from grpo_workbook.cli.evaluate import compare_with, differences_from_run, pass_at_k
from grpo_workbook.data import WORD_PROBLEMS
from grpo_workbook.evaluation import score
from grpo_workbook.export import save_adapter
from grpo_workbook.models import load_model
from grpo_workbook.rewards.answers import is_correct, is_well_formed, lenient_answer, tagged_answer

HELDOUT, TRAIN = (str(WORD_PROBLEMS[split]) for split in ("heldout", "train"))
FILES = ["report.json", "results.jsonl"]
GOOD = "<reasoning>\n6*7=42\n</reasoning>\n<answer>42</answer>"
LOOSE, BAD = "The answer is 42.", "<reasoning>\n6*7=41\n</reasoning>\n<answer>41</answer>"
OPTIONS = ["--samples", "4", "--items", "60", "--batch-size", "40", "--max-new-tokens", "64"]


def run(folder, *options, data=HELDOUT, model="qwen"):
    return main(["evaluate", model, "--data", data, "--output", str(folder), *map(str, options)])


@pytest.fixture(scope="module")
@slow
def sampled(tmp_path_factory):
    """The folder of 60 problems with 4 samples each."""
    folder = tmp_path_factory.mktemp("evaluation") / "sampled"
    assert run(folder, *OPTIONS) == 0
    return folder


@pytest.mark.slow
def test_everything_is_written_and_agrees(sampled):
    assert sorted(p.name for p in sampled.iterdir()) == FILES
    report = report_of(sampled)
    records = list(map(json.loads, (sampled / "results.jsonl").open(encoding="utf-8")))
    assert len(records) == 240
    places = [(record["problem"], record["sample"]) for record in records]
    assert sorted(places) == list(itertools.product(range(60), range(4)))
    for measure, read in (("strict", tagged_answer), ("lenient", lenient_answer)):
        formed = [r for r in records if measure == "lenient" or is_well_formed(r["completions"])]
        right = sum(is_correct(read(r["completions"]), r["answer"]) for r in formed) / 240
        assert report[measure]["rate"] == pytest.approx(right, abs=1e-4)
        low, high = report[measure]["interval"]
        assert low < right < high
    assert report["pass_at_k"]["1"]["rate"] == report["lenient"]["rate"]
    passed = [report["pass_at_k"][k]["rate"] for k in ("1", "2", "4")]
    assert passed[0] < passed[1] < passed[2]
    assert report["data_sha256"]
    assert report["model_hash"]


def test_an_earlier_evaluation_is_kept_unless_it_is_to_be_replaced(sampled, capsys):
    before = {name: (sampled / name).read_bytes() for name in FILES}
    assert run(sampled, *OPTIONS) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert {name: (sampled / name).read_bytes() for name in FILES} == before


def test_overwriting_removes_its_own_files_only(sampled, tmp_path):
    folder = tmp_path / "mine"
    shutil.copytree(sampled, folder)
    (folder / "thesis.txt").write_text("years of work")
    assert run(folder, "--items", 8, "--overwrite") == 0
    assert sorted(p.name for p in folder.iterdir()) == [*FILES, "thesis.txt"]
    assert report_of(folder)["n"] == 8


@pytest.mark.slow
def test_a_subset_alone_and_what_kind_of_gain(tmp_path, capsys):
    """Two evaluations of one model differ by chance alone, and the parts add up."""
    data = tmp_path / "some.csv"
    questions = [f"What is {i} + {i}?,{2 * i},{i < 15}" for i in range(11, 19)]
    data.write_text("\n".join(["question,answer,small", *questions]))
    options = ("--subset", "small", "--samples", 3, "--max-new-tokens", 48)
    assert run(tmp_path / "a", *options, data=str(data)) == 0
    more = ("--seed", 1, "--baseline", tmp_path / "a")
    assert run(tmp_path / "b", *options, *more, data=str(data)) == 0
    report = report_of(tmp_path / "b")
    assert (report["n"], report["subset"]) == (4, "small")
    sampled = report["heldout"]["sampled"]
    parts = [sampled["parts"][name]["gain"] for name in ("form", "sharpening", "new")]
    assert sum(parts) == pytest.approx(sampled["strict"]["gain"], abs=2e-4)
    assert "| pass@3 |" in capsys.readouterr().out


@pytest.mark.slow
def test_answers_that_are_texts_are_judged(tmp_path):
    """The symbolic judge: 42 is no text of the reference and the same number."""
    data = tmp_path / "texts.jsonl"
    rows = [
        {"question": f"What is 40+{i}?", "answer": rf"\\frac{{{2 * (40 + i)}}}{{2}}"}
        for i in (1, 2)
    ]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(tmp_path / "x", "--answers", "text", data=str(data)) == 0
    assert report_of(tmp_path / "x")["n"] == 2


@pytest.mark.slow
def test_a_baseline_is_compared_on_the_same_problems(sampled, tmp_path, capsys):
    assert run(tmp_path / "b", *OPTIONS, "--seed", 2, "--baseline", sampled) == 0
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines()[:-1])) <= 80
    assert "60 problems" in said
    assert "pass@4, lenient: " in said
    report, old = report_of(tmp_path / "b"), report_of(sampled)
    comparison = report["heldout"]["sampled"]
    assert (comparison["n"], comparison["samples"]) == (60, 4)
    for name in ("strict", "lenient", "well_formed"):
        change = comparison[name]
        assert change["before"] == old[name]["rate"]
        assert change["before_interval"] == old[name]["interval"]
        assert (change["after"], change["after_interval"]) == tuple(report[name].values())
        assert change["gain"] == pytest.approx(change["after"] - change["before"], abs=2e-4)
        assert change["gain_interval"][0] <= change["gain"] <= change["gain_interval"][1]
    assert all(line in " ".join(said.split()) for line in report["verdict"])
    for name in ("report.json", "results.jsonl"):
        unfinished = tmp_path / f"without-{name}"
        shutil.copytree(sampled, unfinished)
        (unfinished / name).unlink()
        assert run(tmp_path / "c", "--baseline", unfinished) == 2
        assert_names(capsys.readouterr().err, unfinished)


@pytest.mark.slow
def test_a_baseline_of_other_problems_is_refused_before_the_model_is_loaded(
    sampled, tmp_path, capsys
):
    for options, *named in (
        (["--items", 8, "--samples", 4], "other problems", "--items"),
        (["--items", 60], "4 answers", "--samples is 1"),
    ):
        # The hub has no such model: loading it would be another error.
        assert run(tmp_path / "b", *options, "--baseline", sampled, model="no/model") == 2
        assert_names(capsys.readouterr().err, sampled, *named)


def test_a_damaged_baseline_is_to_be_measured_again(tmp_path, capsys):
    for name in FILES:
        (tmp_path / name).write_text("[1]")
    assert run(tmp_path / "b", "--baseline", tmp_path, model="no/model") == 2
    message = capsys.readouterr().err
    assert_names(message, "report.json", "list", f"measure {tmp_path} again")
    assert "--overwrite" not in message


def test_before_and_after_training(main_runs, tmp_path):
    """The adapter of a real run against its base."""
    folder, _ = main_runs("qwen")
    options = ("--items", 100, "--max-new-tokens", 64)
    assert run(tmp_path / "before", *options, model="qwen") == 0
    more = ("--adapter", folder / "adapter", "--baseline", tmp_path / "before")
    assert run(tmp_path / "after", *options, *more, model="qwen") == 0
    report = report_of(tmp_path / "after")
    strict = report["heldout"]["greedy"]["strict"]
    assert strict["gain"] > 0.1  # of all kinds: the base solves most of the common ones
    assert strict["p_value"] < 0.01
    assert report["verdict"][0].startswith("strict accuracy rose from")
    assert report["adapter_hash"] != report["baseline"]["adapter_hash"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["nowhere"], "'nowhere'"),
        (["qwen", "--data", "no.jsonl"], "no.jsonl"),
        (["qwen", "--adapter", str(REPO / "data" / "tiny-qwen3")], "tiny-qwen3"),
        (["qwen", "--samples", "0"], "--samples: '0'"),
        (["qwen", "--items", "many"], "--items: 'many'"),
        (["qwen", "--baseline", str(REPO / "tests")], "tests"),
        (["qwen", "--baseline", "none"], "baseline none"),
        (["qwen", "--chat-template-kwargs", "5"], "--chat-template-kwargs: '5'"),
        (["qwen", "--chat-template-kwargs", "thinking"], "'thinking' is no JSON object"),
    ],
)
def test_bad_input_is_named_with_its_fix(arguments, named, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    more = [] if "--data" in arguments else ["--data", HELDOUT]
    more += ["--output", str(tmp_path / "out")]
    assert main(["evaluate", *arguments, *more]) == 2
    assert_names(capsys.readouterr().err, named)
    assert not (tmp_path / "out" / "report.json").exists()


# ------------------------------------------------------------------ thinking


@pytest.fixture
def of_a_run(tmp_path):
    """A merged model in the folder of a run that trained with thoughts."""
    shutil.copytree(REPO / "data" / "tiny-thinker", tmp_path / "run" / "merged")
    settings = {"chat_template_kwargs": {"enable_thinking": True}}
    (tmp_path / "run" / "run.json").write_text(json.dumps({"settings": settings}))
    return str(tmp_path / "run" / "merged")


SUMS = str(REPO / "data" / "step_tasks" / "heldout.jsonl")
FEW = ["--items", "6", "--max-new-tokens", "64", "--system-prompt", "", "--samples", "2"]


@pytest.mark.slow
def test_a_model_is_measured_with_the_options_of_its_run(of_a_run, tmp_path, capsys):
    on, off = tmp_path / "on", tmp_path / "off"
    assert run(on, *FEW, "--thinking-budget", "20", data=SUMS, model=of_a_run) == 0
    report = report_of(on)
    assert report["chat_template_kwargs"] == {"enable_thinking": True}
    assert report["thinking_budget"] == 20
    assert 0 < report["thought"] <= 21
    assert "notes" not in report
    more = ["--no-thinking", "--baseline", str(on)]
    assert run(off, *FEW, *more, data=SUMS, model=of_a_run) == 0
    report = report_of(off)
    assert report["chat_template_kwargs"] == {"enable_thinking": False}
    baseline, trained = report["notes"]
    assert_names(baseline, "chat_template_kwargs", "thinking_budget")
    assert_names(trained, "true", "false", "training")
    assert trained.split()[0] in capsys.readouterr().out


@pytest.mark.slow
def test_contradicting_options_of_the_template_are_refused(tmp_path, capsys):
    options = ["--thinking", "--chat-template-kwargs", '{"enable_thinking": false}']
    assert run(tmp_path / "out", *FEW, *options, data=SUMS) == 2
    assert_names(capsys.readouterr().err, "thinking is True", "false".title())


@pytest.mark.slow
def test_thinking_with_a_template_that_has_no_switch_is_refused(tmp_path, capsys):
    assert run(tmp_path / "out", *FEW, "--thinking", data=SUMS) == 2
    assert_names(capsys.readouterr().err, "enable_thinking", "tiny-qwen3")


def test_a_budget_that_leaves_no_answer_is_refused_before_the_model_is_loaded(tmp_path, capsys):
    options = ["--thinking-budget", "64", "--max-new-tokens", "64"]
    assert run(tmp_path / "out", *options, data=SUMS, model="no/model") == 2
    assert_names(capsys.readouterr().err, "thinking_budget is 64", "max_new_tokens 64")


def test_a_budget_without_thinking_is_refused(of_a_run, tmp_path, capsys):
    options = [*FEW, "--thinking-budget", "20", "--no-thinking"]
    assert run(tmp_path / "out", *options, data=SUMS, model=of_a_run) == 2
    assert_names(capsys.readouterr().err, "--thinking-budget is 20", "thinking is off")


@pytest.mark.slow
def test_a_model_without_a_switch_may_have_a_budget(tmp_path):
    """Such a model may think always, and --thinking would be refused."""
    assert run(tmp_path / "out", *FEW, "--thinking-budget", "20", data=SUMS) == 0
    assert report_of(tmp_path / "out")["thinking_budget"] == 20


@pytest.mark.slow
@pytest.mark.parametrize("has_switch", [True, False])
def test_the_switch_is_looked_for_in_the_template_of_the_adapter(has_switch, tmp_path, capsys):
    """A supervised fine-tuning has changed the template that the base has."""
    from peft import LoraConfig, get_peft_model

    base, other = (REPO / "data" / name for name in ("tiny-qwen3", "tiny-thinker"))
    if not has_switch:
        base, other = other, base
    model, tokenizer = load_model(base)
    tokenizer.chat_template = (other / "chat_template.jinja").read_text()
    config = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    save_adapter(get_peft_model(model, config), tokenizer, tmp_path / "sft")
    options = [*FEW, "--max-new-tokens", 4, "--thinking", "--adapter", tmp_path / "sft"]
    status = run(tmp_path / "out", *options, data=SUMS, model=str(base))
    assert status == (0 if has_switch else 2)
    if not has_switch:
        assert_names(capsys.readouterr().err, tmp_path / "sft", "enable_thinking")


def test_a_record_that_is_no_object_is_refused(of_a_run, tmp_path, capsys):
    (tmp_path / "run" / "run.json").write_text("[1]")
    assert run(tmp_path / "out", data=SUMS, model=of_a_run) == 2
    message = capsys.readouterr().err
    assert_names(message, "run.json", "list", "restore it")


@pytest.mark.slow
def test_another_programs_report_beside_the_model_is_not_read(of_a_run, tmp_path):
    (tmp_path / "run" / "report.json").write_text("[1]")
    assert run(tmp_path / "out", *FEW, data=SUMS, model=of_a_run) == 0


def test_another_prompt_than_in_training_is_noted():
    args = Namespace(chat_template_kwargs={}, system_prompt="Be brief.")
    (note,) = differences_from_run(args, {"chat_template_kwargs": None, "system_prompt": ""})
    assert_names(note, "system_prompt", '""', '"Be brief."')
    assert differences_from_run(args, {}) == []
    assert differences_from_run(args, {"system_prompt": "Be brief."}) == []


# ------------------------------------------------------- on completions whose worth is known


def scores_of(*samples):
    """The scores of a list of texts for each problem; 42 is right."""
    texts = list(itertools.chain(*samples))
    scores = score(texts, ["42"] * len(texts))
    lengths = [len(text) // 4 for text in texts]
    return replace(scores, samples=len(samples[0]), tokens=lengths, ended=[True] * len(texts))


def compared(before, after, **settings):
    report = {
        "samples": 1, "load_in_4bit": False, "max_new_tokens": 64, "dtype": "float32",
        "system_prompt": "", "data_sha256": "1", "model": "m", "adapter": None,
        "adapter_hash": None, "chat_template_kwargs": {},
    }  # fmt: skip
    return compare_with(report, before, {**report, **settings}, after)


def test_better_and_worse_are_counted_and_tested():
    before = scores_of(*[[LOOSE]] * 30, [GOOD], [GOOD], [BAD])
    after = scores_of(*[[GOOD]] * 30, [BAD], [GOOD], [BAD])
    added = compared(before, after)
    strict, lenient = (added["heldout"]["greedy"][name] for name in ("strict", "lenient"))
    assert (strict["better"], strict["worse"]) == (30, 1)
    assert (lenient["better"], lenient["worse"]) == (0, 1)
    assert strict["p_value"] == pytest.approx(2 * 32 / 2**31)
    assert strict["gain"] == pytest.approx(29 / 33, abs=1e-4)
    assert_names(added["verdict"][0], "strict", "rose", "6.1%", "93.9%", "3e-08", "30", "1 worse")


def test_chance_is_called_chance_and_other_settings_are_noted():
    before, after = scores_of([GOOD], [BAD], [GOOD]), scores_of([GOOD], [GOOD], [GOOD])
    added = compared(before, after, load_in_4bit=True)
    assert_names(added["verdict"][0], "chance", "p = 1")
    (note,) = added["notes"]
    assert_names(note, "load_in_4bit")


def test_several_samples_by_hand():
    """Two problems, four samples: leniently 3 and 1 right."""
    found = pass_at_k(scores_of([GOOD, GOOD, LOOSE, BAD], [GOOD, BAD, BAD, "no idea"]))
    assert found[1]["rate"] == pytest.approx(4 / 8)
    assert found[2]["rate"] == pytest.approx((1 + 1 / 2) / 2, abs=1e-4)
    assert list(found) == [1, 2, 4]
