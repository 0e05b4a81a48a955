"""The report on completions whose worth is known: what it says of better, worse, forgotten, cut off, and its figure."""

import json

import pytest

from grpo_workbook.errors import WorkbookError
from grpo_workbook.evaluation_report import as_markdown, build_report, draw, write
from grpo_workbook.evaluation_run import Answered, Evaluation
from grpo_workbook.generation import Completion
from grpo_workbook.measures import judge, section

GOOD = "<reasoning>\n6*7=42\n</reasoning>\n<answer>42</answer>"
LOOSE, BAD = "The answer is 42.", "<reasoning>\n6*7=41\n</reasoning>\n<answer>41</answer>"


def answered(*samples, first=0, columns=()):
    """A problem for each list of texts; keys count from `first`."""
    rows = [
        {"key": f"k{first + i}", "question": f"Problem {'long ' * (i % 3)}{i}?", "answer": "42"}
        | dict(columns)
        for i in range(len(samples))
    ]
    return Answered(
        rows, [[Completion(text, len(text) // 4, True) for text in texts] for texts in samples]
    )


def evaluation(main, also=None, **more):
    identity = {
        "model": "m",
        "adapter": None,
        "model_hash": "1",
        "adapter_hash": None,
        "samples": 1,
        "temperature": 0.0,
    }
    identity |= {
        "top_p": 1.0,
        "max_new_tokens": 64,
        "system_prompt": "",
        "seed": 0,
        "data": {"main": "a", "also": "b"},
    }
    return Evaluation(identity | more, {"main": main} | ({"also": also} if also else {}))


def test_better_and_worse_are_counted_tested_and_listed():
    before = answered(*[[LOOSE]] * 30, [GOOD], [GOOD], [BAD])
    after = answered(*[[GOOD]] * 30, [BAD], [GOOD], [BAD])
    report, changes = build_report(evaluation(after), [1], evaluation(before))
    found = report["baseline"]["comparison"]["main"]
    assert (found["strict"]["better"], found["strict"]["worse"]) == (30, 1)
    assert (found["lenient"]["better"], found["lenient"]["worse"]) == (0, 1)
    assert found["strict"]["p_value"] == pytest.approx(2 * 32 / 2**31)
    assert found["strict"]["difference"] == pytest.approx(29 / 33, abs=1e-4)
    assert (
        report["verdict"][0]
        == "strict rose from 6.1% to 93.9% (p = 3e-08); 30 problems got better, 1 worse"
    )
    lengths = [len(t) // 4 for t in (LOOSE, GOOD, BAD)]
    told = (
        (30 * lengths[0] + 2 * lengths[1] + lengths[2]) / 33,
        (31 * lengths[1] + 2 * lengths[2]) / 33,
    )
    assert (
        "completions of {:g} tokens on average before, {:g} after".format(
            *(round(x, 2) for x in told)
        )
        in report["verdict"]
    )
    assert [c["change"] for c in changes] == ["worse"] + ["better"] * 30
    assert (changes[0]["before"], changes[0]["after"]) == (GOOD, BAD)
    text = as_markdown(report, changes)
    assert "## Got worse: 1" in text
    assert "## Got better: 30" in text
    assert "and 20 more in changes.jsonl" in text
    assert text.index("## Got worse") < text.index("## Got better")


def test_chance_is_called_chance():
    before, after = answered([GOOD], [BAD], [GOOD]), answered([GOOD], [GOOD], [GOOD])
    report, _ = build_report(evaluation(after), [1], evaluation(before))
    assert "a difference that may be chance (p = 1)" in report["verdict"][0]


@pytest.mark.parametrize(
    ("now", "words"),
    [(BAD, "was partly forgotten"), (LOOSE, "a loss of more than 0.0% is unlikely")],
)
def test_a_forgotten_skill_is_said_and_another_form_is_none(now, words):
    main = answered([GOOD], [BAD])
    before, after = answered(*[[GOOD]] * 40), answered(*[[GOOD]] * 20, *[[now]] * 20)
    report, _ = build_report(evaluation(main, after), [1], evaluation(main, before))
    assert words in report["verdict"][-1]


def test_only_common_problems_are_compared_and_other_settings_are_noted():
    before, after = answered([GOOD], [BAD], [BAD]), answered([GOOD], [GOOD], first=1)
    report, _ = build_report(evaluation(after, temperature=1.0), [1], evaluation(before))
    found = report["baseline"]["comparison"]["main"]
    assert (found["n"], found["only_before"], found["only_after"]) == (2, 1, 0)
    notes = " ".join(report["notes"])
    assert "the baseline was measured otherwise (not the same: temperature)" in notes
    assert "compared on the 2 problems that both answered" in notes
    with pytest.raises(WorkbookError, match="answered none of these problems"):
        build_report(evaluation(answered([GOOD], first=9)), [1], evaluation(before))


def test_cut_off_completions_are_noted():
    main = answered([GOOD], [BAD])
    main.completions[0][0] = Completion(GOOD, 64, False)
    report, _ = build_report(evaluation(main), [1])
    assert report["sets"]["main"]["cut_off"] == 0.5
    assert (
        "50% of the completions of 'main' were cut off at 64 tokens: raise --max-new-tokens"
        in report["notes"][0]
    )


def test_several_samples_by_hand():
    """Two problems, four samples: 2 and 1 strictly right; leniently 3 and 1."""
    main = answered([GOOD, GOOD, LOOSE, BAD], [GOOD, BAD, BAD, "no idea"])
    numbers = section(judge(main), [1, 2, 4])
    assert numbers["strict"]["share"] == pytest.approx(3 / 8)
    assert numbers["lenient"]["share"] == pytest.approx(4 / 8)
    assert numbers["pass_at_k"]["2"]["strict"]["share"] == pytest.approx(
        (5 / 6 + 1 / 2) / 2, abs=1e-4
    )
    assert numbers["majority_at_k"]["4"]["lenient"]["share"] == pytest.approx(
        1 / 2
    )  # 3 of 4; 1 against 2
    # strict votes: 42 42 - 41, and 42 41 41 -
    assert numbers["majority_at_k"]["4"]["strict"]["share"] == pytest.approx(1 / 2)
    assert numbers["majority_at_k"]["2"]["strict"]["share"] == pytest.approx(
        ((1 + 2 * 1 + 2 * 0.5 + 0) / 6 + (2 * 0.5 + 1 + 0) / 6) / 2, abs=1e-4
    )


@pytest.mark.parametrize("samples", [1, 4])
def test_the_figure_and_its_words(samples, tmp_path):
    rows = [[GOOD, LOOSE, BAD, GOOD][:samples] if i % 3 else [BAD] * samples for i in range(40)]
    main = answered(*rows)
    for i, row in enumerate(main.rows):
        row["difficulty"] = ["easy", "hard"][i % 2]
    baseline = evaluation(answered(*[[BAD] * samples] * 40), samples=samples)
    report, changes = build_report(
        evaluation(main, samples=samples), [1, 4][: 1 + samples // 4], baseline
    )
    assert ("by the first sample" in report["verdict"][0]) == (samples > 1)
    figure, words = draw(report)
    titles = [axes.get_title() for axes in figure.axes]
    assert ("Several attempts (lenient)" in titles) == (samples > 1)
    assert "Strict, by difficulty" in titles
    assert "easy" in words
    assert "baseline 0.0%" in words
    write(tmp_path, report, changes)
    assert json.loads((tmp_path / "report.json").read_text())["sets"] == report["sets"]
    assert (tmp_path / "report.txt").read_text().strip() == words
    assert len((tmp_path / "changes.jsonl").read_text().splitlines()) == len(changes) == 26
