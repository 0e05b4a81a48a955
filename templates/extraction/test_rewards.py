"""The rewards pay for the right answer and for nothing else: `make test`.

When your model gets paid for an answer that is not right, add that answer to CHEATS.
"""

import json
from pathlib import Path

import pytest
from rewards import right, well_formed

ROWS = [json.loads(line) for line in (Path(__file__).parent / "train.jsonl").open()]
ANSWER = '{"name": "Ada", "city": "Oslo", "item": "lamps", "count": 12, "day": null}'
CHEATS = {
    "nothing": "",
    "words around it": f"Here it is: {ANSWER}",
    "a code fence": f"```json\n{ANSWER}\n```",
    "two answers": f"{ANSWER} {ANSWER.replace('12', '13')}",
    "a list of all answers": f"[{ANSWER}]",
    "a key twice": ANSWER.replace('"count"', '"count": 3, "count"'),
    "several values": ANSWER.replace('"Oslo"', '["Oslo", "Rome"]'),
    "the whole text as a value": ANSWER.replace("Oslo", "Ada from Oslo orders 12 lamps."),
    "a text for a number": ANSWER.replace("12", '"12"'),
    "a number with a point": ANSWER.replace("12", "12.0"),
    "true for a number": ANSWER.replace("12", "true"),
    "a field too many": ANSWER.replace("}", ', "also": "Rome"}'),
    "a field too few": ANSWER.replace(', "day": null', ""),
    "single quotes": ANSWER.replace('"', "'"),
    "cut off": ANSWER.removesuffix("}"),
    "infinity": ANSWER.replace("12", "Infinity"),
    "very deep": "[" * 100_000,
    "a very long number": ANSWER.replace("12", "9" * 100_000),
}
WRONG = {
    "another number": ANSWER.replace("12", "13"),
    "another city": ANSWER.replace("Oslo", "Rome"),
    "a day that the text does not say": ANSWER.replace("null", '"Friday"'),
    "null as a text": ANSWER.replace("null", '"null"'),
    "two values in one text": ANSWER.replace("Oslo", "Oslo, Rome"),
}


def completion(text: str) -> list:
    return [{"role": "assistant", "content": text}]


def test_every_answer_of_the_data_earns_everything():
    answers = [row["answer"] for row in ROWS]
    texts = [completion(text) for text in answers]
    assert set(right(texts, answers)) == {1.0}
    assert set(well_formed(texts)) == {1.0}


def test_white_space_and_the_order_of_the_keys_are_free():
    other = '{"count":12,\n "day":null,"name":"Ada","item":"lamps","city":"Oslo"}'
    assert right([completion(other)], [ANSWER]) == [1.0]


@pytest.mark.parametrize("cheat", CHEATS)
def test_no_cheat_is_paid_as_right(cheat):
    assert right([completion(CHEATS[cheat])], [ANSWER]) == [0.0]
    assert well_formed([completion(CHEATS[cheat])])[0] <= 0.5


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_answer_in_good_form_earns_the_form_alone(wrong):
    wrong = completion(WRONG[wrong])
    assert (right([wrong], [ANSWER]), well_formed([wrong])) == ([0.0], [1.0])
