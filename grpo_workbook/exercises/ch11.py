"""The exercises of notebook 11_tools_and_environments."""

from grpo_workbook.exercises import exercise, experiment

exercise("11.1", "tokens_needed",
    [((n, c, r, a), n * (c + r) + a) for n, c, r, a in ((1, 21, 21, 6), (4, 17, 24, 3))], {
    "that leaves no room for the results: they count into max_completion_length too":
        lambda calls, call, result, answer: calls * call + answer,
    "that is one call: each further one needs room for itself and for its result":
        lambda calls, call, result, answer: call + result + answer,
    "after the last result the model must still write its answer":
        lambda calls, call, result, answer: calls * (call + result),
})  # fmt: skip


def _calls(*numbers: int) -> dict:
    made = [{"name": "multiply", "arguments": {"a": n, "b": 2}} for n in numbers]
    calls = [{"type": "function", "function": call} for call in made]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def _result(text: str) -> dict:
    return {"role": "tool", "name": "multiply", "content": text}


def _said(text: str) -> dict:
    return {"role": "assistant", "content": text}


_TRANSCRIPTS = {  # transcript -> its reward where 8 is right and a call costs 0.25
    "by heart": ([_said("8")], 1.0),
    "wrong": ([_said("9")], 0.0),
    "one call": ([_calls(4), _result("8"), _said("8")], 0.75),
    "two calls in a turn": ([_calls(3, 4), _result("6"), _result("8"), _said("8")], 0.5),
    "a call that failed": ([_calls(4), _result("{'error': 'no'}"), _said("8")], 0.75),
    "no answer": ([_calls(4), _result("8")], -0.25),
    "copied wrongly": ([_calls(4), _result("8"), _said("88")], -0.25),
}


def _reward(read, count):
    return lambda completions, answer, price: [
        float(read(c) == a) - price * count(c) for c, a in zip(completions, answer, strict=True)
    ]


def _own(completion):
    return completion[-1]["content"] if completion[-1]["role"] == "assistant" else None


def _all_calls(completion):
    return sum(len(message.get("tool_calls", ())) for message in completion)


exercise("11.2", "priced_reward", [
    (
        ([t for t, _ in _TRANSCRIPTS.values()], ["8"] * len(_TRANSCRIPTS), 0.25),
        [reward for _, reward in _TRANSCRIPTS.values()],
    )
], {
    "the last message may be the tool's: only what the model says is its answer":
        _reward(lambda c: c[-1]["content"], _all_calls),
    "a turn can hold several calls: count the calls, not the turns that have some":
        _reward(_own, lambda c: sum("tool_calls" in message for message in c)),
    "a failed call costs as much as any other: count calls, not good results":
        _reward(
            _own,
            lambda c: sum(m["role"] == "tool" and "error" not in m["content"] for m in c),
        ),
    "calls cost nothing in your reward: take price times their number away":
        _reward(_own, lambda c: 0),
})  # fmt: skip


def _verdicts():
    from grpo_workbook.environments import multiply

    _judged(lambda: multiply)  # its slow imports, before the time of the check begins
    return [((), "a model can call it")]


def _judged(function):
    from transformers.utils import get_json_schema

    from grpo_workbook.environments import CallError

    made = function()
    try:
        described = get_json_schema(made)["function"]["parameters"]["properties"]
    except Exception:  # its own kinds, for each part that is missing
        return "no schema"
    if not described:
        return "no arguments"
    try:
        made(**dict.fromkeys(described, object()))
    except CallError:
        return "a model can call it"
    except Exception:
        pass
    return "unchecked"


def _bare(text: str) -> str:
    """Repeat a text.

    Args:
        text: The text.
    """
    return text * 2


def _undescribed():
    from grpo_workbook.environments import tool

    return tool(lambda text: text)


def _without_arguments():
    from grpo_workbook.environments import tool

    @tool
    def now() -> str:
        """Tell the time."""
        return "noon"

    return now


exercise("11.3", "my_tool", _verdicts, {
    "it takes arguments of any type: put @tool above the function, which checks them":
        lambda: _bare,
    "no schema can be made of it: it needs type hints, and a docstring with Args:": _undescribed,
    "it takes no argument, so the model cannot ask it anything: give it at least one":
        _without_arguments,
}, call=_judged)  # fmt: skip


def _wrong_tool(calls):
    """By the calls per conversation, on easy and on hard products."""
    easy, hard = calls["easy"], calls["hard"]
    said = f"{easy:.2f} calls for an easy product, {hard:.2f} for a hard one."
    return "for none" if hard < 0.5 else "for hard ones" if easy < 0.75 else "for all", said


experiment("11.4", "wrong_tool", _wrong_tool, {
    "for all": "Half of the easy answers by heart were right too, and needed no call.",
    "for hard ones": "By heart an easy product was not right often enough to beat the call.",
    "for none": "Half of the calls were right, and no hard product is known by heart.",
}, [({"easy": 0.5, "hard": 0.992, "all": 0.881}, "for hard ones")])  # fmt: skip


def _narrow(log):
    """By the rate of completions that call, in the first and the last three steps."""
    calling = log["calling"]
    first, last = sum(calling[:3]) / 3, sum(calling[-3:]) / 3
    said = f"{first:.1%} of the completions called at first, {last:.1%} at the end."
    return "die out" if last < first / 4 else "spread" if last > 4 * first else "stay", said


experiment("11.5", "too_narrow", _narrow, {
    "die out": "Most groups earned nothing at all, so nothing speaks against a call either.",
    "stay": "Some groups had a right answer by heart, and in these a call counted as worse.",
    "spread": "A call without a result never earns anything: nothing speaks for it.",
}, [({"calling": [0.125, 0.15, 0.188, 0.094, 0.125, 0.188]}, "stay")])  # fmt: skip


def _shopping(rates):
    """By the rates right on single prices and on totals."""
    price, total = rates["price"], rates["total"]
    said = f"{price:.1%} of the single prices were right, and {total:.1%} of the totals."
    right = "both" if total > 0.5 else "only single prices" if price > 0.5 else "neither"
    return right, said


experiment("11.6", "two_tools", _shopping, {
    "neither": "A price needs one call, and a right one still earned 0.35.",
    "only single prices": "Two calls cost more than a right total earns, or one call less.",
    "both": "A total needs two calls, which cost 1.3: more than the 1.0 of a right answer.",
}, [({"price": 0.64, "total": 0.27}, "only single prices")])  # fmt: skip
