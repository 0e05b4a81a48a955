"""The rewards pay for the right answer and for nothing else: `make test`.

When your model gets paid for an answer that is not right, add that answer to CHEATS.
"""

import json
from pathlib import Path

import pytest
from rewards import right, well_formed

ROWS = [json.loads(line) for line in (Path(__file__).parent / "train.jsonl").open()]
ANSWER = '{"label": "billing", "urgent": true}'
CHEATS = {
    "nothing": "",
    "words around it": f"Here it is: {ANSWER}",
    "a code fence": f"```json\n{ANSWER}\n```",
    "two answers": f'{ANSWER} {{"label": "defect", "urgent": true}}',
    "a list of all answers": f"[{ANSWER}]",
    "a key twice": '{"label": "defect", "label": "billing", "urgent": true}',
    "both values": '{"label": ["billing", "defect"], "urgent": true}',
    "all labels in one text": '{"label": "billing, delivery, defect, account", "urgent": true}',
    "a number for true": '{"label": "billing", "urgent": 1}',
    "a text for true": '{"label": "billing", "urgent": "true"}',
    "a field too many": '{"label": "billing", "urgent": true, "also": "defect"}',
    "a field too few": '{"label": "billing"}',
    "single quotes": ANSWER.replace('"', "'"),
    "cut off": ANSWER.removesuffix("}"),
    "NaN": '{"label": "billing", "urgent": NaN}',
    "very deep": "[" * 100_000,
    "a very long number": "9" * 100_000,
}


def completion(text: str) -> list:
    return [{"role": "assistant", "content": text}]


def test_every_answer_of_the_data_earns_everything():
    answers = [row["answer"] for row in ROWS]
    texts = [completion(text) for text in answers]
    assert set(right(texts, answers)) == {1.0}
    assert set(well_formed(texts)) == {1.0}


def test_white_space_and_the_order_of_the_keys_are_free():
    assert right([completion('{"urgent":true,\n "label":"billing"}')], [ANSWER]) == [1.0]


@pytest.mark.parametrize("cheat", CHEATS)
def test_no_cheat_is_paid_as_right(cheat):
    assert right([completion(CHEATS[cheat])], [ANSWER]) == [0.0]
    assert well_formed([completion(CHEATS[cheat])])[0] <= 0.5


def test_a_wrong_answer_in_good_form_earns_the_form_alone():
    wrong = completion('{"label": "defect", "urgent": true}')
    assert (right([wrong], [ANSWER]), well_formed([wrong])) == ([0.0], [1.0])
