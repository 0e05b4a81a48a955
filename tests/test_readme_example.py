"""The snippets of the README and of docs/helpers.md, for one's own TRL script, run in their order,
as they stand there."""

import contextlib
import re
import sqlite3
import sys

import pytest
from conftest import REPO, finished

import grpo_workbook
from grpo_workbook import diagnosis, planning, resume, sandbox

TEXT = "".join((REPO / n).read_text(encoding="utf-8") for n in ("README.md", "docs/helpers.md"))
SNIPPETS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
# What a reader does next with the reward for programs, and after an import
MORE = """
programs = []
for expression in ("x + 1", "x"):
    code = f"```python\\ndef f(x):\\n    return {expression}\\n```"
    programs.append([{"role": "assistant", "content": code}])
columns = {"setup": ["one = 1"] * 2, "test": ["def check(f):\\n    assert f(2) == 2 + one"] * 2}
print("tests", tests(programs, entry_point=["f"] * 2, **columns))
without_prompt = heldout.rename_column("prompt", "text")
for broken in (lambda: tests(programs, code=["a"] * 2), lambda: right(programs, gold=["a"] * 2),
               lambda: evaluate(None, None, without_prompt, rewards=[right])):
    try:
        broken()
    except ValueError as error:
        print("missing:", error)
import importlib, sys
for name in [n for n in sys.modules if n.startswith("grpo_workbook")]:
    importlib.reload(sys.modules[name])  # as a notebook's autoreload does
texts, columns = [r"\\boxed{4}", "<answer>4</answer>"], {"solution": ["4", "4"]}
import grpo_workbook.rewards as again
print("reloaded", right(texts, **columns), again.get_answer_reward("solution")(texts, **columns))
"""


def prove(folder, python, **env):
    """Run all snippets as one script in `folder`, and check what they print."""
    (folder / "data").symlink_to(REPO / "data")
    (folder / "example.py").write_text("\n".join([*SNIPPETS, MORE]), encoding="utf-8")
    result = finished([python, "example.py"], cwd=folder, **env)
    assert result.returncode == 0, result.stderr[-3000:]
    output = result.stdout
    rate = re.search(r"^(\d+)% right, 95 % interval \(0\.\d+, [01]\.\d+\)", output, re.M)
    assert 0 < float(rate[1]) < 100
    assert re.search(r"a gain of -?\d+\.\d points .* of 36 problems got better", output)
    assert float(re.search(r"same greedy token at ([\d.]+)%", output)[1]) >= 98
    assert "GiB are usable" in output
    assert "\n[1.0] [1.0]\n" in output  # what both rewards give, as the snippet says
    assert "tests [1.0, 0.0]" in output
    assert "reloaded [0.0, 1.0] [1.0, 0.0]" in output
    missing = re.findall(r"^missing: .*", output, re.M)
    needed = (
        "'test'; the data has only code",
        "'solution'; the data has only gold",
        "'prompt'; the data has only text, solution",
    )
    assert len(missing) == 3
    for line, words in zip(missing, needed, strict=True):
        assert words in line
    assert (folder / "mine" / "merged" / "model.safetensors").is_file()
    assert (folder / "mine" / "checkpoint-4" / "trainer_state.json").is_file()


def test_there_is_a_snippet_for_each_helper():
    helpers = "get_answer_reward HealthCallback keep_exact evaluate compare merge unit_tests"
    for name in [*helpers.split(), "correctness_reward", "strict_format_reward", "plan"]:
        assert any(re.search(rf"import .*\b{name}\b", snippet) for snippet in SNIPPETS), name
        doors = [grpo_workbook, diagnosis, resume, sandbox, planning]
        words = next(getattr(door, name).__doc__ for door in doors if hasattr(door, name))
        assert re.search(rf"^ {{4,}}\S*.*\b{name}\b", words, re.MULTILINE), f"{name}: its docstring"


@pytest.mark.trains
def test_the_snippets_run_as_they_stand(tmp_path):
    prove(tmp_path, sys.executable, PYTHONPATH=str(REPO))


# tracker: (how HealthCallback sends its findings on, the endings of the files that it leaves)
TRACKERS = {
    "trackio": (
        "lambda title, text, level: trackio.alert(title, text, trackio.AlertLevel[level])",
        "db",
    ),
    "wandb": ("lambda *given: wandb.alert(*given)", "wandb"),
}


@pytest.mark.extra
@pytest.mark.parametrize("name", TRACKERS)
def test_the_health_callback_works_beside_a_tracker_without_network(tmp_path, name):
    pytest.importorskip(name, reason=f"{name} is not installed : pip install {name}")
    alert, ending = TRACKERS[name]
    script = SNIPPETS[0].replace("bf16=False", f'bf16=False, report_to="{name}"')
    script = script.replace("HealthCallback()", f"HealthCallback(every=1, alert={alert})")
    script = script.replace("learning_rate=1e-3", "learning_rate=3.0").replace("steps=4", "steps=8")
    more = (
        "for callback in trainer.callback_handler.callbacks:\n"
        "    if isinstance(callback, HealthCallback):\n"
        "        print('found', [finding.name for finding in callback.findings])\n"
    )
    (tmp_path / "data").symlink_to(REPO / "data")
    whole = f"import {name}\n{script}\ntrainer.train()\n{more}"
    (tmp_path / "tracked.py").write_text(whole, encoding="utf-8")
    env = {"TRACKIO_DIR": str(tmp_path / "trackio"), "WANDB_MODE": "offline"}
    result = finished([sys.executable, "tracked.py"], cwd=tmp_path, PYTHONPATH=str(REPO), **env)
    assert result.returncode == 0, result.stderr[-3000:]
    found = re.search(r"found \['(\w+)'", result.stdout)
    assert found, result.stdout[-2000:]
    kept, *_ = tmp_path.rglob(f"*.{ending}")
    if name == "wandb":  # what `wandb sync` would send
        assert f"{found[1]} at step ".encode() in kept.read_bytes()
        return
    with contextlib.closing(sqlite3.connect(kept)) as database:
        sent = database.execute("SELECT title, level FROM alerts").fetchall()
    assert any(title.startswith(f"{found[1]} at step") for title, _ in sent), sent
    assert {level for _, level in sent} <= {"warn", "error"}
