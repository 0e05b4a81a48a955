"""`run --tools` and `run --environment`: one's own tools and episodes, trained and measured."""

import json
import sys

import pytest
from conftest import REPO, cli, finished, report_of

from grpo_workbook import RunConfig
from grpo_workbook.cli.rewards import acts_of
from grpo_workbook.cli.run import Job, same_seeds
from grpo_workbook.data import load_split
from grpo_workbook.errors import WorkbookError

TASKS = REPO / "data" / "tool_tasks"
MINE = """
from grpo_workbook.environments import GuessNumber, PriceList, multiply, tool

@tool
def add(a: int, b: int) -> int:
    '''Add two numbers.

    Args:
        a: The first.
        b: The second.
    '''
    return a + b

class Shop(PriceList):
    pass

class Game(GuessNumber):
    max_turns = 4
"""


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path / "mine.py"


def test_tools_and_environments_come_from_ones_own_file(mine):
    acts = acts_of(f"{mine}:add,{mine}:multiply", f"{mine}:Shop")
    assert [f(a=3, b=4) for f in acts["tools"]] == ["7", "12"]
    assert acts["environment_factory"]().max_turns == 8
    assert acts_of() == {}
    with pytest.raises(WorkbookError, match="no function 'ad': .*add"):
        acts_of(f"{mine}:ad")
    with pytest.raises(WorkbookError, match=r"'nowhere\.py' does not exist"):
        acts_of(environment="nowhere.py:Game")


FAULTY = (
    MINE
    + """
def bare(a):
    return a

def brief(a: int) -> int:
    '''Say it in one line.'''
    return a

class Bare(GuessNumber):
    def peek(self, place):
        return place

class Plain:
    pass
"""
)
MISTAKES = {  # --tools or --environment -> what the error says
    "no docstring": ("tools", ":bare", "no schema can be made of the tool bare: .*no docstring!"),
    "no Args": ("tools", ":brief", "the tool brief: .*description for the argument 'a'"),
    "a class as tool": ("tools", ":Shop", "has no function 'Shop': choose from add, bare, brief$"),
    "an unknown one": ("tools", ":nope", "has no function 'nope': choose from add, bare, brief$"),
    "only a file": ("tools", "", r"has no function '.*mine\.py': choose from add, bare, brief$"),
    "only a file, again": ("environment", "", r"has no class '.*mine\.py': choose from Bare, "),
    "a function to play in": ("environment", ":add", "no class 'add': choose from Bare, Game, "),
    "no reset": ("environment", ":Plain", "Plain has no method reset: derive it from .*Environm"),
    "an unknown tool in it": ("environment", ":Bare", "the tool peek: .* Give it type hints, and"),
}


@pytest.mark.parametrize(("option", "name", "said"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_ones_own_file_is_named_before_a_model_is_loaded(tmp_path, option, name, said):
    mine = tmp_path / "mine.py"
    mine.write_text(FAULTY)
    with pytest.raises(WorkbookError, match=said):
        Job(RunConfig.from_env(profile="smoke"), **{option: f"{mine}{name}"})


@pytest.mark.slow
def test_a_run_without_tools_leaves_it_to_unsloth_to_load_transformers_first():
    code = (
        "import sys; from grpo_workbook.cli.run import Job; from grpo_workbook import RunConfig\n"
    )
    code += "Job(RunConfig.from_env(profile='smoke')); print('transformers' in sys.modules)"
    assert finished([sys.executable, "-c", code]).stdout.endswith("False\n")


def test_a_comma_at_the_end_is_no_tool(mine):
    assert [f.__name__ for f in acts_of(f"{mine}:add, {mine}:multiply,")["tools"]] == [
        "add",
        "multiply",
    ]


def test_an_episode_is_leaked_by_its_seed_and_not_by_its_question(tmp_path):
    def write(name, seeds):
        rows = [{"question": "Find it.", "answer": "-", "seed": seed} for seed in seeds]
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return tmp_path / name

    run = RunConfig.from_env(profile="smoke", heldout=10)
    train, heldout = write("train.jsonl", range(40)), write("heldout.jsonl", range(35, 60))
    rows, held, leaked = load_split(run, train, heldout, same_seeds)
    assert (rows["seed"][:], held["seed"][:], leaked) == ([*range(35)], [*range(35, 45)], 5)
    rows, held, leaked = load_split(run, train, None, same_seeds)
    assert sorted(rows["seed"][:] + held["seed"][:]) == [*range(40)]
    assert (len(held), leaked) == (8, 0)
    with pytest.raises(WorkbookError, match="every training question is also held out"):
        load_split(run, write("ten.jsonl", range(35, 45)), heldout, same_seeds)
    with pytest.raises(WorkbookError, match="needs a column 'seed'; the data has question, answer"):
        load_split(run, leaks=same_seeds)


SMALL = (
    "--max-steps 2 --batch-size 16 --num-generations 4 --heldout 48 --learning-rate 1e-3".split()
)
SMALL += ["--model", REPO / "data" / "tiny-tools", "--system-prompt", ""]


def trained(folder, *arguments):
    result = cli("run", *SMALL, *arguments, "--output", folder)
    assert result.returncode == 0, result.stderr[-3000:]
    kept = {name: json.loads((folder / name).read_text()) for name in ("run.json", "before.json")}
    log = json.loads((folder / "log.json").read_text())
    assert [entry["step"] for entry in log] == [1, 2]
    return report_of(folder), log, kept["run.json"], kept["before.json"]


@pytest.mark.trains
def test_a_run_with_a_tool_calls_it_and_measures_episodes(tmp_path, mine):
    report, log, told, before = trained(
        tmp_path / "run", "--tools", f"{mine}:multiply", "--rewards", "answer_after_tools=0.1",
        "--data", TASKS / "products_train.jsonl", "--max_tool_calling_iterations", "2",
        "--heldout-data", TASKS / "products_heldout.jsonl", "--max-completion-length", "100",
    )  # fmt: skip
    episodes = [json.loads(text) for text in before["sampled"]]
    assert any("tool" in [m["role"] for m in e["messages"]] for e in episodes)
    rate = sum(e["right"] for e in episodes) / len(episodes)
    assert report["heldout"]["before"]["strict_sampled"] == pytest.approx(rate, abs=1e-4)
    assert all(entry["tools/calling"] > 0 for entry in log)
    assert any(name.startswith("mine.py:multiply") for name in told["reward_files"])
    assert report["merge"]


@pytest.mark.trains
def test_an_environment_owns_its_reward(tmp_path, mine):
    rows = [
        {"question": "Find my number from 1 to 7.", "answer": "-", "seed": i} for i in range(96)
    ]
    (tmp_path / "games.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, log, told, before = trained(
        tmp_path / "run", "--environment", f"{mine}:Game", "--data", tmp_path / "games.jsonl",
        "--max-completion-length", "200", "--max_tool_calling_iterations", "4",
    )  # fmt: skip
    assert {"rewards/Game/mean"} <= log[0].keys()
    assert {json.loads(text)["right"] for text in before["sampled"]} <= {True, False}
    assert any(name.startswith("mine.py:Game") for name in told["reward_files"])
