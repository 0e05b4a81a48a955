"""evaluate, score, generate, compare: batches, seeds, several processes."""

import copy
import json
import random
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import assert_names, finished, raises_naming
from datasets import Dataset

from grpo_workbook import evaluation
from grpo_workbook.config import DATA
from grpo_workbook.data import chat_prompt, load_tokenizer, render
from grpo_workbook.errors import WorkbookError
from grpo_workbook.evaluation import (
    Generated,
    Sampling,
    Scores,
    compare,
    complete,
    describe_gain,
    divide_gain,
    evaluate,
    generate,
    report_heldout,
    score,
)
from grpo_workbook.rewards import correctness_reward, get_overlong_reward, strict_format_reward
from grpo_workbook.rewards.answers import (
    TAGS,
    is_correct,
    is_well_formed,
    tagged_answer,
)

GOOD = "<reasoning>\n6*7=42\n</reasoning>\n<answer>42</answer>"
ROWS = [
    json.loads(line) for line in (DATA / "word_problems" / "heldout.jsonl").open(encoding="utf-8")
]


def problems(n, start=0):
    """A dataset of one's own: the columns `prompt` and `answer`, and one more."""
    rows = ROWS[start : start + n]
    return Dataset.from_list(
        [
            {
                "prompt": chat_prompt(r["question"]),
                "answer": r["answer"].rsplit("####", 1)[-1].strip(),
                "steps": r["answer"].count("<<"),
            }
            for r in rows
        ]
    )


def test_a_word_of_the_prompt_may_be_a_unit():
    texts = ["<reasoning>6*7</reasoning><answer>42 widgets</answer>"] * 2
    prompts = ["How many widgets?", [{"role": "user", "content": "How many?"}]]
    assert score(texts, ["42"] * 2, prompts=prompts).strict == [True, False]


def test_scores_and_what_a_report_keeps_of_them():
    scores = score([GOOD, "The answer is 42.", "41"], ["42", "42", "42"])
    assert (scores.strict, scores.lenient) == ([True, False, False], [True, True, False])
    assert scores.well_formed == [True, False, False]
    later = score([GOOD] * 3, ["42", "42", "41"])
    heldout = report_heldout({"sampled": scores}, {"sampled": later})["sampled"]
    assert (heldout["n"], heldout["samples"], heldout["unjudged"]) == (3, 1, 0)
    rates = {name: (heldout[name]["before"], heldout[name]["after"]) for name in scores.measures}
    assert rates == {
        "strict": (0.3333, 0.6667), "lenient": (0.6667, 0.6667), "well_formed": (0.3333, 1.0)
    }  # fmt: skip
    strict = heldout["strict"]
    assert (strict["better"], strict["worse"], strict["p_value"]) == (1, 0, 1.0)
    low, high = strict["before_interval"]
    assert low < 0.3333 < high
    assert json.loads(json.dumps(heldout))["strict"]["gain"] == 0.3333
    assert_names(str(scores), "3 problems", "strict 33.3%", "6.2% to 79.2%", "lenient 66.7%")
    with raises_naming(WorkbookError, "'Paris'"):
        score([GOOD], ["Paris"])


def scores_of(lenient, strict=None):
    """The scores of a word for each problem, with 1 for a right and 0 for a wrong answer."""
    right = [letter == "1" for word in lenient for letter in word]
    strictly = [letter == "1" for word in strict or lenient for letter in word]
    return Scores([""] * len(right), strictly, right, strictly, samples=len(lenient[0]))


def test_the_parts_of_a_gain_by_hand():
    """Four problems with four tries each, before and after training."""
    before = scores_of(["0000", "1000", "1100", "1111"], strict=["0000", "1000", "1000", "0000"])
    after = scores_of(["1110", "1100", "1111", "1111"])
    heldout = report_heldout({"sampled": before}, {"sampled": after})["sampled"]
    # Strict: (3 + 1 + 3 + 4) / 16. Lenient: (3 + 1 + 2) / 16. The rest were right before.
    assert heldout["strict"]["gain"] == 0.6875
    assert heldout["parts"]["form"]["gain"] == pytest.approx(5 / 16, abs=1e-4)
    # The first problem was never solved: its gain of 3/4 is new. The second was solved by one try,
    # for which the others say that it cannot be solved: from 1 to 1/2, a quarter of the tries.
    new = (3 / 4 + (1 / 2 - 1) / 4) / 4
    assert heldout["parts"]["new"]["gain"] == pytest.approx(new, abs=1e-4)
    sharpening = (1 + 2) / 16 - (1 / 2 - 1) / 4 / 4
    assert heldout["parts"]["sharpening"]["gain"] == pytest.approx(sharpening, abs=1e-4)
    passes = heldout["lenient_pass"], heldout["strict_pass"]
    assert [(change["before"], change["after"]) for change in passes] == [(0.75, 1), (0.5, 1)]
    lines = describe_gain({"sampled": heldout})
    assert lines[0].endswith("by +68.8 points: +31.2 form, +21.9 sharpening, +15.6 new.")
    assert any(line.startswith("| pass@4 | +25.0 (") for line in lines)
    assert max(map(len, lines[2:])) <= 80


def test_no_interval_is_without_width():
    """Nothing changed in three problems with five tries each, which is not certainty."""
    scores = scores_of(["10000", "01000", "00100"])
    comparison = compare(scores, scores)
    bound = 1 - 0.05 ** (1 / 3)  # what none of three problems shows may be true of so many
    for change in (comparison.strict, comparison.parts.form):
        assert change.gain_interval == pytest.approx((-bound, bound), abs=1e-3)
    low, high = comparison.strict.before_interval  # a fifth of the tries in each problem
    assert 0 < low < 0.2 < high < 1


def test_a_policy_compared_with_itself_gains_nothing_new():
    """Its unlucky problems are found again by their other tries, which are as lucky as before."""
    draw = random.Random(0)
    chances = [draw.random() ** 4 for _ in range(4000)]
    before, after = (
        scores_of(["".join("01"[draw.random() < p] for _ in range(8)) for p in chances])
        for _ in range(2)
    )
    parts = divide_gain(before, after)
    for part in (parts.sharpening, parts.new):
        low, high = part.gain_interval
        assert low < 0 < high
        assert abs(part.gain) < 0.006


def test_one_answer_to_each_problem_shows_form_alone():
    heldout = report_heldout(
        {"greedy": scores_of("0110", strict="0010")}, {"greedy": scores_of("1110")}
    )
    assert heldout["greedy"]["parts"]["new"] is None
    assert heldout["greedy"]["lenient_pass"] is None
    lines = describe_gain(heldout)
    assert lines[0].endswith(
        "(greedy) changed by +50.0 points: +25.0 form, +25.0 sharpening or new."
    )


def test_answers_that_are_texts_need_a_judge():
    """Equal texts are right; others are judged, once for each pair, where the judge can."""
    form, asked = "<reasoning>\nso\n</reasoning>\n<answer>{}</answer>", []

    def judge(given, answer):
        asked.append((given, answer))
        return None if given == "who knows" else given == answer[::-1]

    said = [" paris", "siraP", "Rome", "Rome", "who knows"]
    scores = score([*map(form.format, said), "", r"\boxed{siraP}"], ["Paris"] * 7, judge=judge)
    assert scores.strict == [True, True, False, False, False, False, False]
    assert scores.lenient == [True, True, False, False, False, False, True]
    assert (scores.unjudged, compare(scores, scores).unjudged) == (1, 2)
    assert asked == [(given, "Paris") for given in ("siraP", "Rome", "who knows")]


def test_a_plain_model_and_a_dataset_are_enough(tiny):
    model, tokenizer = tiny["qwen"]
    dataset = problems(20)
    scores = evaluate(model, tokenizer, dataset)
    assert scores.n == 20 == len(scores.tokens) == len(scores.completions)
    assert sum(scores.lenient) > 10
    table = scores.table(dataset)
    assert list(table["answer"]) == list(dataset["answer"])
    assert list(table["strict"]) == scores.strict
    assert table.groupby("steps")["lenient"].count().sum() == 20
    assert "prompt" not in table
    without_answer = dataset.select_columns(["prompt", "answer"]).rename_column("answer", "gold")
    with raises_naming(WorkbookError, "'answer'", "prompt, gold"):
        evaluate(model, tokenizer, without_answer)


def test_columns_that_are_called_as_those_of_the_table_are_kept():
    dataset = Dataset.from_list(
        [{"prompt": "?", "answer": "42", "problem": "p", "sample": 7, "tokens": "x", "strict": 5}]
    )
    table = replace(score([GOOD], ["42"]), tokens=[3], ended=[True]).table(dataset)
    row = table.loc[0].to_dict()
    assert (row["problem"], row["sample"], row["tokens"], row["strict"]) == (0, 0, 3, True)
    kept = [row[f"{name}_original"] for name in ("problem", "sample", "tokens", "strict")]
    assert kept == ["p", 7, "x", 5]
    assert row["answer"] == "42"


def test_a_reward_of_another_scale_says_from_where_on_an_answer_is_right(tiny):
    model, tokenizer = tiny["qwen"]
    dataset = problems(8)
    settings = {"max_new_tokens": 48}

    def correct(prompts, completions, answer, **columns):
        return correctness_reward(completions, answer=answer, prompts=prompts)

    def two_points(**columns):
        return [2 * value for value in correct(**columns)]

    def half_a_point(**columns):
        return [value / 2 for value in correct(**columns)]

    measured = evaluate(model, tokenizer, dataset, rewards=[correct], **settings)
    assert 0.5 < measured.rate <= 1
    with raises_naming(WorkbookError, "two_points", "from 0 to 2", "right_at=2"):
        evaluate(model, tokenizer, dataset, rewards=[two_points], **settings)
    scores = evaluate(model, tokenizer, dataset, rewards=[two_points], right_at=2, **settings)
    assert scores.strict == measured.strict
    with pytest.warns(UserWarning, match=r"half_a_point.*from 0 to 0.5.*right_at=0.5"):
        evaluate(model, tokenizer, dataset, rewards=[half_a_point], **settings)
    scores = evaluate(model, tokenizer, dataset, rewards=[half_a_point], right_at=0.5, **settings)
    assert scores.strict == measured.strict


def test_rewards_get_the_tokens_that_were_generated_and_a_state(tiny):
    model, tokenizer = tiny["qwen"]
    seen = {}

    async def looks(completions, completion_ids, **columns):
        seen.update(ids=completion_ids, state=columns["trainer_state"])
        return [1.0] * len(completions)

    overlong = get_overlong_reward(10)
    scores = evaluate(model, tokenizer, problems(4), rewards=[looks, overlong], max_new_tokens=40)
    assert [len(ids) for ids in seen["ids"]] == list(scores.tokens)
    assert tokenizer.batch_decode(seen["ids"], skip_special_tokens=True) == scores.completions
    assert seen["state"].is_world_process_zero
    # All completions have more than 10 tokens, though fewer than 10 words.
    assert scores.rewards["overlong_reward"] == [-1.0] * 4


def with_template(tiny, ending):
    """The tiny model with a chat template that ends each prompt in this, too."""
    model, tokenizer = tiny["qwen"]
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.chat_template += ending
    return model, tokenizer


def test_the_prompt_is_that_of_the_trainings_config(tiny):
    """As Qwen3's template: thinking is on unless it is switched off."""
    ending = (
        "{%- if enable_thinking is not defined or enable_thinking %}{{- '<think>' -}}{% endif %}"
    )
    _, tokenizer = with_template(tiny, ending)
    prompts = [chat_prompt("6*7?")]
    on, off = {"enable_thinking": True}, {"enable_thinking": False}
    assert render(prompts, tokenizer) == render(prompts, tokenizer, off)
    assert render(prompts, tokenizer, on) == render(prompts, tokenizer, {})
    for options, ends_in_tag in ((on, True), (off, False), ({}, True)):
        trained_on = tokenizer.apply_chat_template(
            prompts, tokenize=False, add_generation_prompt=True, **options
        )
        assert render(prompts, tokenizer, options) == trained_on
        assert trained_on[0].endswith("<think>") == ends_in_tag
    model = tiny["qwen"][0]
    texts = [
        generate(model, tokenizer, prompts, max_new_tokens=24, chat_template_kwargs=options)
        for options in (on, off)
    ]
    as_text = render(prompts, tokenizer, on)[0]
    ids = tokenizer(as_text, return_tensors="pt", add_special_tokens=False)
    out = model.generate(**ids, max_new_tokens=24, do_sample=False)
    answer = out[0, ids["input_ids"].shape[1] :]
    assert texts[0] == [tokenizer.decode(answer, skip_special_tokens=True)]
    assert texts[0] != texts[1]


def test_the_form_counts_from_a_tag_that_the_template_has_opened(tiny):
    model, tokenizer = with_template(tiny, "{{- '<reasoning>\\n' -}}")
    dataset = problems(12)
    scores = evaluate(model, tokenizer, dataset, max_new_tokens=48)
    assert not any(text.startswith("<reasoning>") for text in scores.completions)
    assert sum(scores.strict) == sum(scores.lenient) > 6
    again = score(scores.completions, dataset["answer"][:], prompt_tag="<reasoning>")
    assert again.measures == scores.measures
    # Rewards read the tag, too.
    by_reward = evaluate(
        model, tokenizer, dataset, rewards=[strict_format_reward], max_new_tokens=48
    )
    assert by_reward.completions == scores.completions
    assert by_reward.strict == scores.well_formed
    closed, cut_off = f"6*7, so 42</think>\n{GOOD}", GOOD
    behind = score([closed, cut_off], ["42", "42"], prompt_tag="<think>")
    assert behind.strict == behind.lenient == behind.well_formed == [True, False]
    assert score([closed, cut_off], ["42", "42"]).strict == [False, True]


THINKING = {"enable_thinking": True}


@pytest.fixture(scope="module")
def thinker():
    """The tiny model that thinks, its tokenizer, and sums for it."""
    from grpo_workbook import load_model, load_problems, to_dataset

    model, tokenizer = load_model(str(DATA / "tiny-thinker"))
    sums = load_problems(DATA / "step_tasks" / "heldout.jsonl").select(range(12))
    return model, tokenizer, to_dataset(sums, None)


def measured(thinker, **settings):
    model, tokenizer, sums = thinker
    options = {"chat_template_kwargs": THINKING, "max_new_tokens": 64, "sample": True, "seed": 1}
    return evaluate(model, tokenizer, sums, rewards=[correctness_reward], **options, **settings)


@pytest.mark.slow
def test_a_budget_closes_a_thought_and_changes_no_shorter_one(thinker):
    free, cut = measured(thinker), measured(thinker, thinking_budget=20)
    assert max(free.thoughts) > 24
    # One tag more than the budget.
    assert max(cut.thoughts) == 21
    for before, after, text in zip(free.thoughts, cut.thoughts, cut.completions, strict=True):
        assert after <= before
        assert text.count("<think>") == text.count("</think>") <= 1
        assert text.endswith("</answer>")
    for thought, text in zip(cut.thoughts, cut.completions, strict=True):
        if thought == 21:
            assert text.startswith("<think>\n")
    assert [len(ids) for ids in _tokens_of(thinker, cut)] == [n - 1 for n in cut.tokens]
    assert "thought" in cut.table(thinker[2])
    # A budget that no thought reaches, and the same one again.
    assert measured(thinker, thinking_budget=63).thoughts == free.thoughts
    assert measured(thinker, thinking_budget=20) == cut


def _tokens_of(thinker, scores):
    """The ids of the completions, without the end token."""
    return thinker[1](scores.completions, add_special_tokens=False)["input_ids"]


@pytest.mark.slow
def test_a_budget_of_0_is_the_empty_thought_of_the_template(thinker):
    model, tokenizer, sums = thinker
    settings = {"rewards": [correctness_reward], "max_new_tokens": 32}
    none = evaluate(
        model, tokenizer, sums, chat_template_kwargs=THINKING, thinking_budget=0, **settings
    )
    off = evaluate(
        model, tokenizer, sums, chat_template_kwargs={"enable_thinking": False}, **settings
    )
    block = "<think>\n\n</think>\n\n"
    assert none.completions == [block + text for text in off.completions]
    assert set(none.thoughts) == {2}
    assert set(off.thoughts) == {0}


@pytest.mark.slow
def test_a_thought_that_the_template_opens_is_counted_and_closed(thinker):
    model, tokenizer, sums = thinker
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.chat_template += "{{- '<think>\\n' -}}"
    settings = {"rewards": [correctness_reward], "max_new_tokens": 64}
    options = {"chat_template_kwargs": THINKING, "thinking_budget": 10}
    scores = evaluate(model, tokenizer, sums, **settings, **options)
    assert not any("<think>" in text for text in scores.completions)
    assert all(text.count("</think>") == 1 for text in scores.completions)
    assert max(scores.thoughts) == 11


@pytest.mark.parametrize("budget", [-1, 64, 100])
def test_a_budget_that_leaves_no_answer_is_refused(thinker, budget):
    with raises_naming(WorkbookError, f"thinking_budget is {budget}", "64"):
        measured(thinker, thinking_budget=budget)


@pytest.mark.slow
def test_several_samples_stand_problem_by_problem(tiny):
    model, tokenizer = tiny["qwen"]
    dataset = problems(6)
    scores = evaluate(model, tokenizer, dataset, samples=3, sample=True, max_new_tokens=48)
    repeated = dataset.select(np.repeat(range(6), 3))
    again = evaluate(model, tokenizer, repeated, sample=True, max_new_tokens=48)
    assert scores.completions == again.completions
    assert (scores.n, scores.samples, again.n) == (6, 3, 18)
    table = scores.table(dataset)
    assert list(table["problem"][:4]) == [0, 0, 0, 1]
    assert list(table["sample"][:4]) == [0, 1, 2, 0]
    assert list(table["answer"]) == list(repeated["answer"])
    with raises_naming(WorkbookError, "samples is 3", "sample=True"):
        evaluate(model, tokenizer, dataset, samples=3)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen", "gemma"])
def test_generation_does_not_depend_on_batch_or_order(tiny, family):
    model, tokenizer = tiny[family]
    prompts = list(problems(12)["prompt"])
    alone = generate(model, tokenizer, prompts, max_new_tokens=48, batch_size=1)
    together = generate(model, tokenizer, prompts, max_new_tokens=48, batch_size=12)
    backwards = generate(model, tokenizer, prompts[::-1], max_new_tokens=48, batch_size=5)[::-1]
    assert alone == together == backwards
    assert all("<|im_end|>" not in text and "<end_of_turn>" not in text for text in alone)


@pytest.mark.slow
def test_sampling_is_seeded_and_leaves_all_as_it_was(tiny):
    import torch

    model, tokenizer = tiny["qwen"]
    dataset, how = problems(16), {"max_new_tokens": 48, "sample": True}
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    model.train()
    first = evaluate(model, tokenizer, dataset, seed=3, **how)
    assert torch.rand(1) == expected
    assert model.training
    model.eval()
    assert evaluate(model, tokenizer, dataset, seed=3, **how) == first
    assert evaluate(model, tokenizer, dataset, seed=4, **how) != first


def test_a_batch_is_seeded_by_its_place_and_sorted_by_length(tiny):
    """It gives the course's recorded numbers: another scheme samples other completions."""
    import torch

    model, tokenizer = tiny["qwen"]
    prompts = list(problems(10)["prompt"])
    texts = evaluation.render(prompts, tokenizer)
    order = sorted(range(10), key=lambda i: len(texts[i]))
    found = generate(
        model, tokenizer, prompts, max_new_tokens=48, sample=True, seed=2, batch_size=4
    )
    for start in (0, 4, 8):
        torch.manual_seed(2 * 1_000_003 + start)
        chosen = order[start : start + 4]
        side = {"padding": True, "padding_side": "left", "return_token_type_ids": False}
        batch = tokenizer([texts[i] for i in chosen], return_tensors="pt", **side)
        how = {"do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 0}
        out = model.generate(**batch, **how, max_new_tokens=48, pad_token_id=tokenizer.pad_token_id)
        said = tokenizer.batch_decode(
            out[:, batch["input_ids"].shape[1] :], skip_special_tokens=True
        )
        assert said == [found[i] for i in chosen]


def test_a_completion_ends_at_every_end_token_that_trl_knows(tiny):
    """Gemma and Qwen end a turn with another token than a text: the generation config says so."""
    model, tokenizer = tiny["qwen"]
    prompts = [chat_prompt("Anna has 3 apples and buys 4 more. How many apples has she?")]

    def completed(max_new_tokens=40) -> Generated:
        return complete(model, tokenizer, prompts, Sampling(max_new_tokens))[0]

    whole = completed()
    third = whole.tokens[2]
    before = model.generation_config.eos_token_id
    try:
        model.generation_config.eos_token_id = [tokenizer.eos_token_id, third]
        cut = completed()
        assert whole.text.startswith(cut.text)
        assert (cut.tokens, cut.ended) == (whole.tokens[:3], True)
        model.generation_config.eos_token_id = None
        assert completed() == whole
    finally:
        model.generation_config.eos_token_id = before
    assert not completed(max_new_tokens=2).ended


def test_a_text_is_read_as_it_stands(tiny):
    model, tokenizer = tiny["qwen"]
    prompts = list(problems(3)["prompt"])
    texts = evaluation.render(prompts, tokenizer)
    assert generate(model, tokenizer, texts) == generate(model, tokenizer, prompts)


@pytest.mark.extra
def test_processes_share_the_work_and_get_the_same(tiny, tmp_path):
    """Two processes of torchrun get, together, the completions that one gets."""
    settings = "sample=True, samples=2, max_new_tokens=32, batch_size=3"
    script = tmp_path / "share.py"
    script.write_text(
        "import json, sys\n"
        "from accelerate import PartialState\n"
        "state = PartialState(cpu=True)\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_evaluation import evaluate, problems\n"
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n"
        f"folder = {str(DATA / 'tiny-qwen3')!r}\n"
        "model = AutoModelForCausalLM.from_pretrained(folder, dtype='float32')\n"
        "tokenizer = AutoTokenizer.from_pretrained(folder)\n"
        f"scores = evaluate(model, tokenizer, problems(10), {settings})\n"
        "path = f'{sys.argv[1]}/{state.process_index}.json'\n"
        "json.dump([state.num_processes, scores.completions], open(path, 'w'))\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    result = finished([*command, str(script), str(tmp_path)], OMP_NUM_THREADS="1")
    assert result.returncode == 0, result.stderr[-3000:]
    model, tokenizer = tiny["qwen"]
    alone = evaluate(
        model, tokenizer, problems(10), sample=True, samples=2, max_new_tokens=32, batch_size=3
    )
    for index in (0, 1):
        shared = json.loads((tmp_path / f"{index}.json").read_text())
        assert shared == [2, alone.completions]


# ----------------------------------------------------------------- beside lm-evaluation-harness


@pytest.fixture(scope="module")
def harness():
    """(regex, group, completions, references) -> lm-evaluation-harness's verdict on each.

    As its task gsm8k, version 3, extracts and compares.
    """
    why = "lm-eval is not installed: pip install --no-deps -r requirements/compare.txt"
    metrics = pytest.importorskip("lm_eval.api.metrics", reason=why)
    extraction = pytest.importorskip("lm_eval.filters.extraction", reason=why)
    how = {"regexes_to_ignore": [",", "\\$", "(?s).*#### ", "\\.$"], "ignore_case": True}

    def judge(regex, group, completions, references):
        find = extraction.RegexFilter(regex_pattern=regex, group_select=group)
        found = [f[0] for f in find.apply([[c] for c in completions], [{}] * len(completions))]
        pairs = zip(found, references, strict=True)
        matches = (
            metrics.exact_match_fn(predictions=[f], references=[r], ignore_punctuation=False, **how)
            for f, r in pairs
        )
        return [bool(match["exact_match"]) for match in matches]

    return judge


@pytest.mark.slow
def test_our_accuracy_is_the_harness_on_what_a_model_writes(harness, tiny):
    """With our form as its filter the harness says what `strict` says, of each completion.

    Its flexible-extract, the last number, is `lenient` here, where every number is a whole one.
    """
    dataset = problems(160)
    scores = evaluate(*tiny["qwen"], dataset, sample=True, max_new_tokens=64)
    solutions = [row["answer"] for row in ROWS[:160]]
    a, b, c, d = TAGS
    form = rf"(?s)\A\s*{a}(?=.*\S.*{b})(?:(?!{a}|{b}).)*{b}\s*{c}\s*(\d+)\s*{d}\s*\Z"
    assert harness(form, 0, scores.completions, solutions) == scores.strict
    assert 0 < sum(scores.strict) < sum(map(is_well_formed, scores.completions))
    last = r"(-?[$0-9.,]{2,})|(-?[0-9]+)"
    theirs = harness(last, -1, scores.completions, solutions)
    other = [i for i in range(160) if theirs[i] != scores.lenient[i]]
    assert len(other) <= 8, [scores.completions[i] for i in other]
    pairs = zip(scores.completions, dataset["answer"], strict=True)
    assert scores.strict == [
        is_well_formed(text) and is_correct(tagged_answer(text), answer) for text, answer in pairs
    ]


def test_a_budget_leaves_a_thought_alone_that_is_not_the_models():
    tokenizer = load_tokenizer(DATA / "tiny-thinker")
    answer = tokenizer("<answer>3</answer>", add_special_tokens=False)["input_ids"]
    # thinking is off: the template has opened and closed the thought
    closed = tokenizer("<think>\n\n</think>\n\n", add_special_tokens=False)["input_ids"]
    assert evaluation.with_closed_thought(tokenizer, closed, answer, 0) == answer
    # the question speaks of the tag, and something else ends the prompt
    question = tokenizer("<think>\n?", add_special_tokens=False)["input_ids"]
    assert evaluation.with_closed_thought(tokenizer, question, answer, 4) == answer
