"""Tests of input and output, as JSON: APPS, CodeContests, LiveCodeBench, DeepCoder.

They name no function of Python's, so the sandbox compares by itself. Standard library only.
"""

import json
import math
import re
from typing import Any

Pairs = tuple[list[tuple], str]  # and the name of the function to call
_FLOAT = re.compile(r"[+-]?(\d++\.?\d*+|\.\d++)([eE][+-]?\d{1,4})?", re.ASCII)


def is_json(test) -> bool:
    """Whether the test is input and output: a dict, a list, or JSON."""
    return isinstance(test, dict | list) or str(test).lstrip().startswith(("{", "["))


def read_json(test: str, entry_point: str) -> Pairs | None:
    """The pairs of a JSON test, and the function to call; None for what is no JSON.

    Without a function ("") a pair is the input and the output of a script, as texts; else it is a
    list of arguments and a list of right results.
    """
    try:
        data = json.loads(test)
    except json.JSONDecodeError:
        return None
    if isinstance(data, list):
        return _read_rows(data, entry_point)
    inputs = data.get("inputs", data.get("input"))
    outputs = data.get("outputs", data.get("output"))
    if not (isinstance(inputs, list) and isinstance(outputs, list)):
        raise ValueError("the JSON has no lists of inputs and outputs")
    pairs = list(zip(inputs, outputs, strict=True))
    return _make_pairs(pairs, data.get("fn_name"), entry_point)


def _read_rows(rows: list, entry_point: str) -> Pairs:
    """LiveCodeBench's and DeepCoder's rows."""
    pairs = []
    function = None
    for row in rows:
        pairs.append((row["input"], row["output"]))
        function = function or row.get("fn_name")
        if row.get("testtype") == "functional":
            if not entry_point:
                raise ValueError("inputs for a function need its name as the entry point")
            function = entry_point
    return _make_pairs(pairs, function, entry_point)


def _make_pairs(pairs: list[tuple], function: str | None, entry_point: str) -> Pairs:
    if function is None:
        return [(_text(lines), _text(wanted)) for lines, wanted in pairs], ""
    calls = []
    for argument_text, wanted in pairs:
        if isinstance(argument_text, str):  # LiveCodeBench has each argument in a line of its own
            calls.append((list(map(json.loads, argument_text.splitlines())), [json.loads(wanted)]))
            continue
        results = [wanted]
        if isinstance(wanted, list) and len(wanted) == 1:  # sometimes in a list of its own
            results.append(wanted[0])
        calls.append((argument_text, results))
    return calls, entry_point or str(function)


def _text(value) -> str:
    """APPS has some inputs as lists of lines."""
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def same_value(result: Any, wanted: Any) -> bool:
    """Equal as JSON, NaN to NaN; numbers, of which one is a float, to 1e-5 as on LeetCode."""
    if isinstance(result, list | tuple) and isinstance(wanted, list):
        return len(result) == len(wanted) and all(map(same_value, result, wanted))
    if isinstance(result, dict) and isinstance(wanted, dict):
        if result.keys() != wanted.keys():
            return False
        return all(same_value(result[key], wanted[key]) for key in result)
    return result == wanted or _is_close(result, wanted)


def _is_close(result: Any, wanted: Any) -> bool:
    # never for truth values, which are numbers to Python
    if {type(result), type(wanted)} not in ({float}, {float, int}):
        return False
    if wanted != wanted:  # NaN
        return result != result
    if type(wanted) is float:
        return math.isclose(result, wanted, rel_tol=1e-5, abs_tol=1e-5)
    # a large integer has no tolerance
    return abs(wanted) < 2**53 and math.isclose(result, wanted, rel_tol=0.0, abs_tol=1e-5)


def same_output(printed: str, wanted: str) -> bool:
    """Equal but for white space; a number with a point or an exponent to 1e-6."""
    words, right = printed.split(), wanted.split()
    return len(words) == len(right) and all(map(_same_word, words, right))


def _same_word(word: str, right: str) -> bool:
    if word == right:
        return True
    if not re.search("[.eE]", right):
        return False
    if not (_FLOAT.fullmatch(word) and _FLOAT.fullmatch(right)):
        return False
    return math.isclose(float(word), float(right), rel_tol=1e-6, abs_tol=1e-6)
