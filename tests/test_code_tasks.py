"""The course's own code tasks, their reader, and the tiny coder that learns on them."""

import gzip
import json
import random
import sys
from dataclasses import replace

import pytest
from conftest import REPO, SHARED, raises_naming

sys.path.insert(0, str(REPO / "data"))
import build_code_tasks as build

from grpo_workbook.errors import WorkbookError
from grpo_workbook.sandbox import (
    CODE_TASKS,
    TINY_CODER,
    Job,
    Sandbox,
    pass_at_1,
    read_tasks,
    to_code_dataset,
    verdicts_of,
)
from grpo_workbook.sandbox.tasks import CODE_SYSTEM_PROMPT


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(workers=1, time_limit=5.0) as made:
        made.probe()
        yield made


@pytest.mark.parametrize("split", build.SIZES)
def test_the_files_are_what_the_script_makes(split):
    made = [task.row(f"code_tasks/{split}/{i}") for i, task in enumerate(build.build(split))]
    assert read_tasks(CODE_TASKS[split]) == made
    assert len(made) == build.SIZES[split] >= 200


def keys_of(tasks):
    return {(task.template, task.constant) for task in tasks}


def templates_of(keys):
    return {template for template, _ in keys}


def test_no_pool_shares_a_task():
    train, heldout = keys_of(build.build("train")), keys_of(build.build("heldout"))
    assert (len(train), len(heldout)) == (build.SIZES["train"], build.SIZES["heldout"])
    assert not train & heldout
    rng = random.Random(1)
    tiny = keys_of([build.draw_task(rng, "tiny") for _ in range(5000)])
    assert not tiny & (train | heldout)
    names = {template.name for template in build.TEMPLATES}
    assert templates_of(train) == templates_of(tiny) == names
    assert len(templates_of(heldout)) >= 40


@pytest.mark.slow
@pytest.mark.parametrize("split", build.SIZES)
def test_every_solution_passes_and_no_slip_does(sandbox, split):
    """The test's expected values come from another computation than the solution's text."""
    tasks = build.build(split)
    rows = read_tasks(CODE_TASKS[split])
    right = sandbox.check(
        [Job(r["prompt"] + r["canonical_solution"], r["test"], r["entry_point"]) for r in rows]
    )
    assert [v for v in right if not v.passed or v.cases != build.ASSERTIONS] == []
    slips = []
    for task, row in zip(tasks, rows, strict=True):
        more, less = (replace(task, constant=task.constant + by).expression for by in (1, -1))
        bodies = (
            f"return {more}",
            f"return {less}",
            f"print({task.expression})",
            "return 0",
            "return True",
            "return []",
        )
        slips += [
            Job(f"{task.head}    {body}\n", row["test"], row["entry_point"]) for body in bodies
        ]
    assert not any(v.passed for v in sandbox.check(slips))


def test_a_dataset_for_trl(sandbox):
    rows = read_tasks(CODE_TASKS["heldout"])[:3]
    dataset = to_code_dataset(rows)
    assert dataset.column_names[:4] == ["prompt", "prompt_code", "entry_point", "test"]
    assert dataset[0]["prompt"] == [
        {"role": "system", "content": CODE_SYSTEM_PROMPT},
        {"role": "user", "content": rows[0]["prompt"]},
    ]
    verdicts = verdicts_of(
        [rows[0]["canonical_solution"], "pass", "```python\nx\n```"], dataset, sandbox
    )
    assert [v.passed for v in verdicts] == [True, False, False]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('{"prompt": "def f(a):", "entry_point": "f"}', ["row 2", "'test'", "'None'"]),
        ('{"prompt": "def f(a):", "entry_point": "f", "test": " "}', ["row 2", "'test'", "' '"]),
        (
            '{"prompt": "def g(a):", "entry_point": "f", "test": "assert f(1)"}',
            ["row 2", "'f'"],
        ),
        (
            '{"prompt": "def ff(a):", "entry_point": "f", "test": "assert f(1)"}',
            ["row 2", "'f'"],
        ),
        ("{broken", ["line 2"]),
    ],
)
def test_a_bad_task_is_named(tmp_path, line, named):
    good = '{"prompt": "def f(a):\\n", "entry_point": "f", "test": "assert f(1)"}'
    (tmp_path / "my.jsonl").write_text(f"{good}\n{line}\n")
    with raises_naming(WorkbookError, "my.jsonl", *named):
        read_tasks(tmp_path / "my.jsonl")


def test_humaneval_reads_as_it_is(sandbox, tmp_path):
    path = SHARED / "data" / "humaneval" / "HumanEval.jsonl.gz"
    if not path.exists():
        pytest.skip("HumanEval is not there")
    tasks = read_tasks(path)
    assert len(tasks) == 164
    assert tasks == [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    verdicts = verdicts_of(
        [t["canonical_solution"] for t in tasks[:20]], to_code_dataset(tasks[:20]), sandbox
    )
    assert all(v.passed for v in verdicts)


# ------------------------------------------------------------------ the tiny coder


@pytest.fixture(scope="module")
def coder():
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(TINY_CODER, dtype="float32").eval()
    return model, AutoTokenizer.from_pretrained(TINY_CODER)


def test_the_folder_is_small_safe_and_has_a_card():
    files = [f for f in TINY_CODER.rglob("*") if f.is_file()]
    assert sum(f.stat().st_size for f in files) < 4_000_000
    assert {f.suffix for f in files} <= {".safetensors", ".json", ".jinja", ".md"}
    assert json.loads((TINY_CODER / "config.json").read_text())["model_type"] == "qwen3"


@pytest.mark.slow
def test_the_tiny_coder_solves_some_tasks_and_not_most(coder, sandbox):
    dataset = to_code_dataset(read_tasks(CODE_TASKS["heldout"]))
    verdicts, completions = pass_at_1(*coder, dataset, sandbox, max_new_tokens=48, sample=True)
    assert len(completions) == len(dataset)
    assert 0.2 <= sum(v.passed for v in verdicts) / len(verdicts) <= 0.45
    assert not any(v.fault in ("test", "sandbox") for v in verdicts)


@pytest.mark.parametrize(
    "text", ["plain", "naïve café", "数学 ٣", "\x00\x07 control", "a\tb\r\nc  d ", "x[::-1] ** 2"]
)
def test_any_text_survives_the_coders_tokenizer(coder, text):
    _, tokenizer = coder
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


@pytest.mark.slow
def test_the_tiny_coder_learned_from_the_tiny_pool_only(monkeypatch):
    import build_tiny_coder as coder

    drawn = []

    def draw_task(rng, pool):
        drawn.append(build.draw_task(rng, pool))
        return drawn[-1]

    monkeypatch.setattr(coder, "draw_task", draw_task)
    texts = list(coder.code_texts())
    assert len(drawn) == 3000
    assert len(texts) == 9000
    assert all(build.pool_of(t.template, t.constant) == "tiny" for t in drawn)
