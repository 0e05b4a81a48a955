"""No attack earns as much as an honest right answer; every attack is judged, within its reward's range."""

import math

import pytest

from grpo_workbook.evaluate import score as measure
from grpo_workbook.reward_lab.attacks import attacks, honest
from grpo_workbook.rubric import DEFAULT_REWARDS, REGISTRY, parse_rewards

ATTACKS = attacks()
ARGUMENTS = {"length": "=20", "overlong": "=200", "reasoning_steps": "=2"}


def by_name(name, tmp_path):
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "integer", "minimum": 0, "maximum": 42}')
    argument = f"={schema}" if name == "json_schema" else ARGUMENTS.get(name, "")
    beside = (
        ",correctness" if name == "debug" else ""
    )  # alone it could teach nothing, and is refused
    functions, _ = parse_rewards(name + argument + beside)
    return functions[0]


def test_the_collection():
    assert len(ATTACKS) >= 40
    assert len({a.kind for a in ATTACKS}) >= 14
    assert len({(a.kind, a.name) for a in ATTACKS}) == len(ATTACKS)
    assert sum(len(a.text) >= 900_000 for a in ATTACKS) >= 10
    assert len({a.text for a in ATTACKS}) == len(ATTACKS)
    other = attacks("137", "136", "What?")
    assert [a.name for a in other] == [a.name for a in ATTACKS]
    assert any("137" in a.text for a in other)


@pytest.mark.parametrize(("right", "wrong"), [("42", "41"), ("1000", "7"), ("137", "136")])
def test_no_attack_earns_as_much_as_the_honest_answer(right, wrong):
    functions, weights = parse_rewards(DEFAULT_REWARDS)

    def total(text):
        return sum(
            w * f(completions=[text], answer=[right])[0]
            for f, w in zip(functions, weights, strict=True)
        )

    best = total(honest(right))
    assert best == sum(weights)
    earned = {(a.kind, a.name): total(a.text) for a in attacks(right, wrong)}
    assert {name: e for name, e in earned.items() if not 0 <= e <= 2.5} == {}


@pytest.mark.parametrize("name", REGISTRY)
def test_every_attack_is_judged_within_the_range(name, tmp_path):
    function, entry = by_name(name, tmp_path), REGISTRY[name]
    texts = [honest(), *(a.text for a in ATTACKS)]
    columns = {"answer": "42", "test": "assert add(2, 3) == 5", "entry_point": "add"}
    columns = {name: [value] * len(texts) for name, value in columns.items()}
    values = function(completions=texts, **columns)
    chat = function(completions=[[{"role": "assistant", "content": t}] for t in texts], **columns)
    assert values == chat
    assert len(values) == len(texts)
    assert all(
        type(v) is float and math.isfinite(v) and entry.low <= v <= entry.high for v in values
    )


def test_every_attack_is_measured_too():
    scores = measure([a.text for a in ATTACKS], ["42"] * len(ATTACKS))
    assert not any(scores.strict)
    assert sum(scores.lenient) < len(ATTACKS)


def test_bombs_are_killed_when_the_gold_is_symbolic():
    """Against a number they are never evaluated; against an expression the worker that meets them is killed."""
    from grpo_workbook.reward_lab.symbolic import SymbolicChecker

    bombs = [a.text for a in ATTACKS if a.kind == "expression bombs"]
    with SymbolicChecker(time_limit=0.5) as checker:
        outcomes = checker.check([(text, "x^2") for text in bombs])
        assert "timeout" in {o.verdict for o in outcomes}
        assert "right" not in {o.verdict for o in outcomes}
        assert {o.verdict for o in checker.check([(text, "42") for text in bombs])} == {"wrong"}
