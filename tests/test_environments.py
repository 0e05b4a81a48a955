"""Tools and environments: checked calls, nothing left of the row before, TRL's own loop."""

import asyncio
import functools
import json
import re
import sys
import typing

import jupytext
import pytest

from grpo_workbook.config import DATA
from grpo_workbook.environments import (
    CallError,
    Environment,
    GuessNumber,
    PriceList,
    attacks,
    final_answer,
    get_tool_answer_reward,
    lost_result,
    multiply,
    play_episodes,
    tool,
)
from grpo_workbook.environments.tools import BROKEN, ToolBroken
from grpo_workbook.environments.transcripts import tool_broke
from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import REPO
from tests.conftest import raises_naming, slow

WRONG_CALLS = {
    "a text for a number": ({"a": "37", "b": 84}, ["a ", "int", "str"]),
    "true for a number": ({"a": True, "b": 84}, ["a ", "int", "bool"]),
    "a list for a number": ({"a": [37], "b": 84}, ["a ", "int", "list"]),
    "a number of a million digits": ({"a": 10**1_000_000, "b": 2}, ["a "]),
    "a missing argument": ({"a": 37}, ["'b'"]),
    "one too many": ({"a": 37, "b": 84, "c": 1}, ["'c'"]),
}


@pytest.mark.parametrize(("arguments", "named"), WRONG_CALLS.values(), ids=WRONG_CALLS)
def test_a_wrong_call_is_told_what_is_wrong(arguments, named):
    with raises_naming(CallError, *named):
        multiply(**arguments)


def test_a_right_call():
    assert multiply(a=513, b=37) == "18981"


def test_a_tool_that_hangs_or_raises_is_itself_to_blame_and_a_long_result_is_cut():
    @tool(seconds=0.2)
    def hang(n: int) -> int:
        """Hang."""
        while True:
            n += 1

    @tool
    def fail(n: int) -> int:
        """Fail."""
        return n // 0

    @tool
    def talk(n: int) -> str:
        """Talk."""
        return "x" * n

    with raises_naming(ToolBroken, "hang", "0.2 s"):
        hang(n=1)
    with raises_naming(ToolBroken, "fail", "division"):
        fail(n=1)
    assert talk(n=10**6) == "x" * 200 + " (cut)"
    longer = tool(characters=300)(talk.__wrapped__)
    assert longer(n=10**6) == "x" * 300 + " (cut)"


TYPES = {  # hint -> what fits, what does not
    "int | None": (int | None, [3, None], ["3", 3.0]),
    "a choice": (typing.Literal["C", "F"], ["C"], ["K", 1]),
    "a list": (list[int], [[], [1, 2]], [[1, "2"], [True], 1]),
    "a tuple": (tuple[str, int], [["x", 1]], [["x"], "x1"]),
    "a dict": (dict[str, int], [{"a": 1}], [{"a": "1"}, [["a", 1]]]),
    "a float": (float, [2.5, 2], ["2.5", True]),
    "yes or no": (bool, [True], [1, "yes"]),
}


@pytest.mark.parametrize(("hint", "right", "wrong"), TYPES.values(), ids=TYPES)
def test_a_tool_takes_what_json_can_hold_of_its_hint_and_nothing_else(hint, right, wrong):
    got = []

    @tool
    def keep(value: hint) -> str:
        """Keep."""
        got.append(value)
        return "kept"

    assert [keep(value=value) for value in right] == ["kept"] * len(right)
    for value in wrong:
        with raises_naming(CallError, "value", type(value).__name__):
            keep(value=value)
    assert len(got) == len(right)
    assert {type(value) for value in got} <= {typing.get_origin(hint), hint, int, str, type(None)}
    with raises_naming(CallError, "value", "1000000", "200"):
        keep(value="x" * 10**6)


def test_a_large_list_or_dict_is_no_argument_either():
    @tool
    def total(numbers: list[int], more: dict[str, int]) -> int:
        """Add."""
        return sum(numbers) + sum(more.values())

    assert total(numbers=[1, 2], more={"a": 4}) == "7"
    with raises_naming(CallError, "numbers", "200"):
        total(numbers=[1] * 10**6, more={})
    with raises_naming(CallError, "more", "200"):
        total(numbers=[], more={str(i): i for i in range(10**5)})


def test_a_tool_without_a_hint_is_refused_at_once():
    with raises_naming(WorkbookError, "find", "word"):

        @tool
        def find(word, many: int = 3) -> str:
            """Find."""


def test_an_async_function_is_no_tool():
    with raises_naming(WorkbookError, "wait", "async"):

        @tool
        async def wait(n: int) -> int:
            """Wait."""
            return n


def test_nothing_of_one_row_is_left_for_the_next():
    class Notes(GuessNumber):
        seen, known = [], {"secret": []}  # of the class, which all episodes share

    game = Notes()
    for seed in range(20):
        game.reset(seed=seed, prompt=[])
        assert game.get_reward() == 0.0
        game.guess(number=game._secret)
        assert game.get_reward() == 1.0
        game._left_over = "a cheat sheet"
        game.seen.append("a cheat sheet")
        game.known["secret"].append(seed)
    game.reset(seed=99, prompt=[])
    assert (game.seen, game.known) == ([], {"secret": []})
    assert not hasattr(game, "_left_over")
    assert game.get_reward() == 0.0


def test_all_of_a_group_play_for_the_same_secret_and_seeds_differ():
    def secret(seed):
        game = GuessNumber()
        game.reset(seed=seed)
        return game._secret

    assert secret(5) == secret(5)
    assert len({secret(seed) for seed in range(60)}) == GuessNumber.highest


def test_the_last_turn_and_the_end_of_a_game_hold():
    game = GuessNumber()
    game.reset(seed=1)
    wrong = next(n for n in range(1, 8) if n != game._secret)
    for _ in range(3):
        game.guess(number=wrong)
    with raises_naming(CallError, "3"):
        game.guess(number=game._secret)
    assert game.get_reward() == 0.0
    game.reset(seed=1)
    assert game.guess(number=game._secret) == "correct"
    with pytest.raises(CallError):
        game.guess(number=wrong)
    assert game.get_reward() == 1.0


def test_an_environment_without_a_seed_says_what_the_data_has():
    with raises_naming(WorkbookError, "seed", "'prompt'"):
        GuessNumber().reset(prompt=[])


def test_a_price_is_of_its_row_and_any_other_text_is_no_item():
    shop, other = PriceList(), PriceList()
    shop.reset(seed=1)
    other.reset(seed=2)
    prices = [(shop.lookup(item=i), other.lookup(item=i)) for i in ("kiwi", "tea", "leek", "fig")]
    assert any(a != b for a, b in prices)
    with pytest.raises(CallError):
        shop.lookup(item="x'; drop table prices; --")
    assert shop.lookup(item="kiwi") == prices[0][0]


@pytest.mark.parametrize("name", attacks("8342"))
def test_no_attack_earns_anything(name):
    completion = attacks("8342")[name]
    assert get_tool_answer_reward()([completion], ["8342"]) == [0.0]
    assert final_answer(completion) != "8342"
    assert not tool_broke(completion)


def test_what_the_reward_pays_and_logs():
    def talk(*messages):
        return [dict(zip(("role", "content"), m, strict=True)) for m in messages]

    call = {"type": "function", "function": {"name": "multiply", "arguments": {"a": 1, "b": 2}}}
    calling = {"role": "assistant", "content": "", "tool_calls": [call]}
    completions = [
        talk(("assistant", "6")),
        [calling, *talk(("tool", "6"), ("assistant", "6"))],
        [calling, *talk(("tool", "{'error': 'tool failure in multiply: no'}"), ("assistant", "5"))],
        [calling],
    ]
    logged = {}
    paid = get_tool_answer_reward(price=0.25)(completions, ["6"] * 4, log_metric=logged.__setitem__)
    assert paid == [1.0, 0.75, None, -0.25]
    assert logged == {"tools/broken": 0.25}  # the rest is what `watch` counts
    assert [lost_result(c) for c in completions] == [False, False, False, True]


def test_an_environment_of_ones_own_needs_only_a_start_and_a_tool():
    class Coin(Environment):
        max_turns = 1

        def _start(self, rng, row):
            self._side = rng.choice(("heads", "tails"))
            return "Heads or tails?"

        @tool
        def call(self, side: str) -> str:
            """Call a side."""
            self._turn(side)
            return str(side == self._side)

    coin = Coin()
    assert coin.reset(seed=3) == "Heads or tails?"
    assert coin.call(side=coin._side) == "True"


def test_the_tasks_are_made_by_their_script_and_the_tiny_model_never_saw_them(
    tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(str(DATA))
    import build_tiny_tools as tools

    for name in ("train", "heldout"):
        rows = [json.loads(line) for line in (DATA / f"tool_tasks/products_{name}.jsonl").open()]
        for row in rows:
            a, b = map(int, re.findall(r"\d+", row["question"]))
            assert row["answer"] == str(a * b)
            assert row["kind"] == "easy" or tools.pool(a, b) == name
    monkeypatch.setattr(tools, "FOLDER", tmp_path)
    tools.write_data()
    assert len(list(tmp_path.iterdir())) == 4
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (DATA / "tool_tasks" / path.name).read_bytes()


def test_a_broken_tool_is_no_lost_game():
    class Server(GuessNumber):
        @tool
        def ask(self, number: int) -> str:
            """Ask.

            Args:
                number: Any.
            """
            raise ConnectionError("no route")

    server = Server()
    server.reset(seed=1)
    assert server.get_reward() == 0.0
    with pytest.raises(CallError):
        server.ask(number="3")
    assert server.get_reward() == 0.0, "that was the model's fault"
    with raises_naming(ToolBroken, "ask", "no route"):
        server.ask(number=3)
    assert server.get_reward() is None
    server.reset(seed=2)
    assert server.get_reward() == 0.0


@pytest.fixture(scope="module")
@slow
def loaded():
    from grpo_workbook import load_model

    return load_model(str(DATA / "tiny-tools"))


def rows_of(name, n):
    lines = (DATA / "tool_tasks" / f"{name}_heldout.jsonl").read_text().splitlines()[:n]
    rows = [json.loads(line) for line in lines]
    return [row | {"prompt": [{"role": "user", "content": row["question"]}]} for row in rows]


def trls_trainer(loaded, rows, tmp_path, tools, environment=None, reward=None, **how):
    import unsloth  # noqa: F401
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    how = {"max_completion_length": 128, "max_tool_calling_iterations": 3, "bf16": False} | how
    how |= {"report_to": "none", "num_generations": 2, "per_device_train_batch_size": 2}
    how |= {"chat_template_kwargs": {"enable_thinking": False}}
    return GRPOTrainer(
        loaded[0],
        get_tool_answer_reward() if reward is None else reward,
        GRPOConfig(str(tmp_path), **how),
        Dataset.from_list(rows),
        processing_class=loaded[1],
        tools=tools,
        environment_factory=environment,
    )


@pytest.mark.slow
def test_the_replay_and_its_tokens_are_trls(loaded, tmp_path):
    """Greedy, TRL's trainer and the replay write the same messages, over several turns too."""
    model, tokenizer = loaded
    rows = rows_of("shopping", 24)
    greedy = {"generation_kwargs": {"do_sample": False}}
    trainer = trls_trainer(loaded, rows, tmp_path, [multiply], PriceList, **greedy)
    episodes = play_episodes(
        model,
        tokenizer,
        rows,
        tools=[multiply],
        environment=PriceList,
        max_turns=3,
        max_new_tokens=128,
    )
    assert sum(e.calls for e in episodes) > 0
    same_as_trls(trainer, episodes, rows)


def test_what_reset_returns_is_in_the_prompt_as_in_trls_trainer(loaded, tmp_path):
    class Hinted(GuessNumber):
        def _start(self, rng, row):
            super()._start(rng, row)
            return f" A hint: not {self._secret % 7 + 1}."

    row = {"prompt": [{"role": "user", "content": "Find it."}], "seed": 1}
    trainer = trls_trainer(loaded, [row] * 2, tmp_path, [], Hinted, reward=[])
    theirs = trainer._generate_and_score_completions([row] * 2)
    (episode,) = play_episodes(*loaded, [row], environment=Hinted, max_new_tokens=8)
    own = theirs["prompt_mask"][0].bool()
    assert theirs["prompt_ids"][0][own].tolist() == episode.prompt_ids
    assert row["prompt"][0]["content"] == "Find it."


def same_as_trls(trainer, episodes, rows):
    theirs = trainer._generate_and_score_completions(rows)
    for i, episode in enumerate(episodes):
        own = theirs["completion_mask"][i].bool()
        assert theirs["completion_ids"][i][own].tolist() == episode.ids
        assert theirs["tool_mask"][i][own].tolist() == episode.mask


@pytest.fixture
def always_calling(loaded):
    """The generation setting with which every turn of the model begins with a call."""
    call = loaded[1].convert_tokens_to_ids("<tool_call>")
    others = [token for token in range(loaded[0].config.vocab_size) if token != call]
    loaded[0].generation_config.begin_suppress_tokens = others
    yield {"do_sample": False, "begin_suppress_tokens": others}
    loaded[0].generation_config.begin_suppress_tokens = None


def test_calls_that_never_end_are_ended_and_paid_nothing(loaded, tmp_path, always_calling):
    rows = rows_of("products", 8)
    trainer = trls_trainer(loaded, rows, tmp_path, [multiply], generation_kwargs=always_calling)
    episodes = play_episodes(*loaded, rows, tools=[multiply], max_turns=3, max_new_tokens=128)
    assert {e.calls for e in episodes} <= {1, 2, 3}
    endless = [e for e in episodes if e.calls == 3]  # others end in a call with broken JSON
    assert len(endless) > 4
    assert all(lost_result(e.messages) for e in endless)
    assert not any(e.right(row) for e, row in zip(episodes, rows, strict=True))
    same_as_trls(trainer, episodes, rows)
    assert [paid for mode in ("train", "eval") for paid in trainer._metrics[mode]["reward"]] == [0]


def test_a_broken_tool_costs_a_completion_nothing_in_trls_trainer(loaded, tmp_path):
    import torch

    @tool
    @functools.wraps(multiply.__wrapped__)
    def broken(a, b):
        raise ConnectionError("no route")

    rows = [row for row in rows_of("products", 40) for _ in range(2)]
    trainer = trls_trainer(loaded, rows, tmp_path, [broken], seed=3)
    made = trainer._generate_and_score_completions(rows)
    texts = loaded[1].batch_decode(made["completion_ids"])
    spoiled = [f"{BROKEN}multiply" in text for text in texts]
    assert 0 < sum(spoiled) < len(rows)
    assert not made["advantages"][torch.tensor(spoiled)].any()


def chapters_cell(mark):
    cells = jupytext.read(REPO / "notebooks/source/11_tools_and_environments.py").cells
    return next(cell.source for cell in cells if mark in cell.source)


@pytest.mark.slow
def test_a_model_runs_its_program_in_the_chapters_environment_in_trls_trainer(tmp_path):
    """The tiny model learns one call of run_python by heart, and takes a step of GRPO with it."""
    import torch

    from grpo_workbook import load_model

    names = {"Environment": Environment, "tool": tool}
    exec(chapters_cell("class CodeTask(Environment)"), names)
    tasks = names["read_tasks"](names["CODE_TASKS"]["heldout"])
    task = min(tasks, key=lambda task: len(task["prompt"] + task["canonical_solution"]))
    row = {**task, "seed": 0, "prompt": [{"role": "user", "content": "Write it."}]}
    program = {"program": task["prompt"] + task["canonical_solution"]}
    call = {"type": "function", "function": {"name": "run_python", "arguments": program}}
    calling = {"role": "assistant", "content": "", "tool_calls": [call]}
    model, tokenizer = load_model(str(DATA / "tiny-tools"))
    how = {"tools": [names["CodeTask"]().run_python], "return_dict": False}
    how |= {"enable_thinking": False}
    asked = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, **how)
    whole = tokenizer.apply_chat_template([*row["prompt"], calling], **how)
    said = whole[
        len(whole) - whole[::-1].index(tokenizer.convert_tokens_to_ids("<tool_call>")) - 1 :
    ]
    ids = torch.tensor([[*asked, *said]])
    labels = torch.tensor([[-100] * len(asked) + said])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(80):
        model(input_ids=ids, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    trainer = trls_trainer(
        (model, tokenizer), [row] * 2, tmp_path, [], names["CodeTask"], reward=[], max_steps=1,
        max_completion_length=256, generation_kwargs={"do_sample": False}, logging_steps=1,
    )  # fmt: skip
    trainer.train()
    log = trainer.state.log_history[0]
    assert (log["tools/call_frequency"] >= 1, log["tools/failure_frequency"]) == (True, 0.0)
    assert log["reward"] == 1.0
    names["sandbox"].close()


def documented_code(package):
    """The block of docs/environments.md that imports a package."""
    page = (REPO / "docs" / "environments.md").read_text(encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        if re.search(rf"^(from|import) {package}\b", block, re.MULTILINE):
            return block
    raise ValueError(f"docs/environments.md has no block that imports {package}")


@pytest.mark.parametrize("package", ["openenv", "verifiers"])
def test_the_documented_code_for_another_librarys_environments_works(package, monkeypatch):
    code = documented_code(package)
    # after the course's own packages, which win
    monkeypatch.setattr(sys, "path", [*sys.path, str(REPO / ".venv" / "environments" / package)])
    pytest.importorskip(package)
    names = {"train_rows": [{"question": "What is 2 times 4?", "answer": "8"}]}
    exec(code, names)
    if package == "openenv":
        remote = names["Remote"]()
        remote.reset(seed=10)
        assert [(remote.guess(number=n), remote.get_reward()) for n in (3, 4)] == [
            ("wrong", 0.0),
            ("correct", 1.0),
        ]
    else:
        said = [[{"role": "assistant", "content": text}] for text in ("8", "9")]
        assert asyncio.run(names["their_reward"](said, [0, 0])) == [1.0, 0.0]
