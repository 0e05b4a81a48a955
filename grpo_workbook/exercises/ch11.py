"""The exercises of notebook 11_tools_and_environments."""

from grpo_workbook.exercises.tasks import exercise, experiment

# 11.1: how many tokens a conversation with tool calls needs


def correct_tokens_needed(calls, call, result, answer):
    """The solution."""
    return calls * (call + result) + answer


# the arguments: the number of calls, and the tokens of a call, of a result, of the answer
tokens_needed = exercise("11.1", "tokens_needed", solution=correct_tokens_needed)
tokens_needed.case(1, 21, 21, 6)
tokens_needed.case(4, 17, 24, 3)


@tokens_needed.mistake
def forgets_the_results(calls, call, result, answer):
    """You left no room for the results: they count towards max_completion_length, too."""
    return calls * call + answer


@tokens_needed.mistake
def counts_one_call(calls, call, result, answer):
    """You counted one call: each further call needs room for itself and for its result."""
    return call + result + answer


@tokens_needed.mistake
def forgets_the_answer(calls, call, result, answer):
    """You forgot the answer: after the last result the model must still write it."""
    return calls * (call + result)


# 11.2: a reward that charges for each call


def calls_of(*numbers):
    """The model's message that calls `multiply` once for each number."""
    calls = []
    for number in numbers:
        call = {"name": "multiply", "arguments": {"a": number, "b": 2}}
        calls.append({"type": "function", "function": call})
    return {"role": "assistant", "content": "", "tool_calls": calls}


def tool_result(text):
    """The message with the result of a call."""
    return {"role": "tool", "name": "multiply", "content": text}


def model_text(text):
    """A message of the model without calls."""
    return {"role": "assistant", "content": text}


TRANSCRIPTS = [
    [model_text("8")],  # right by heart
    [model_text("9")],  # wrong by heart
    [calls_of(4), tool_result("8"), model_text("8")],
    # two calls in a turn
    [calls_of(3, 4), tool_result("6"), tool_result("8"), model_text("8")],
    # a call that failed
    [calls_of(4), tool_result("{'error': 'no'}"), model_text("8")],
    [calls_of(4), tool_result("8")],  # no answer
    [calls_of(4), tool_result("8"), model_text("88")],  # a result that was copied wrongly
]
RIGHT_ANSWERS = ["8"] * len(TRANSCRIPTS)

priced_reward = exercise("11.2", "priced_reward")
priced_reward.case(
    TRANSCRIPTS, RIGHT_ANSWERS, 0.25, gives=[1.0, 0.0, 0.75, 0.5, 0.75, -0.25, -0.25]
)
# other answers and another price, so that no answer can be written into the reward
priced_reward.case(
    [
        [model_text("12")],
        [calls_of(6), tool_result("12"), model_text("12")],
        [model_text("8")],
    ],
    ["12"] * 3,
    0.5,
    gives=[1.0, 0.5, 0.0],
)


def answer_of(completion):
    """The text of the last message, if the model wrote it."""
    last = completion[-1]
    if last["role"] != "assistant":
        return None
    return last["content"]


def count_calls(completion):
    """How many calls the model made."""
    calls = 0
    for message in completion:
        calls += len(message.get("tool_calls", []))
    return calls


@priced_reward.mistake
def reads_the_tools_message(completions, answer, price):
    """You read the last message, which may be the tool's: only what the model says
    is its answer.
    """
    rewards = []
    for completion, gold in zip(completions, answer, strict=True):
        is_right = completion[-1]["content"] == gold
        rewards.append(float(is_right) - price * count_calls(completion))
    return rewards


@priced_reward.mistake
def counts_turns(completions, answer, price):
    """You counted the turns with calls: a turn can hold several calls, so count the calls."""
    rewards = []
    for completion, gold in zip(completions, answer, strict=True):
        turns = sum("tool_calls" in message for message in completion)
        rewards.append(float(answer_of(completion) == gold) - price * turns)
    return rewards


@priced_reward.mistake
def counts_good_results(completions, answer, price):
    """You counted good results: a call that fails costs as much as any other."""
    rewards = []
    for completion, gold in zip(completions, answer, strict=True):
        results = 0
        for message in completion:
            if message["role"] == "tool" and "error" not in message["content"]:
                results += 1
        rewards.append(float(answer_of(completion) == gold) - price * results)
    return rewards


@priced_reward.mistake
def charges_nothing(completions, answer, price):
    """Your reward charges nothing for calls: subtract the price times their number."""
    rewards = []
    for completion, gold in zip(completions, answer, strict=True):
        rewards.append(float(answer_of(completion) == gold))
    return rewards


# 11.3: a tool of the learner's own


def judge_tool(function):
    """What is wrong with the learner's tool, or that a model can call it."""
    from transformers.utils import get_json_schema

    from grpo_workbook.environments import CallError

    tool = function()
    try:
        schema = get_json_schema(tool)
    except Exception:  # it has an exception of its own for each part that is missing
        return "no schema"
    parameters = schema["function"]["parameters"]["properties"]
    if not parameters:
        return "no arguments"
    try:
        tool(**{name: object() for name in parameters})  # no tool takes an argument of this type
        return "unchecked"
    except CallError:
        pass
    except Exception:
        return "unchecked"
    return judge_valid_call(tool, parameters)


VALID_VALUES = {"string": "a", "integer": 1, "number": 1.0, "boolean": True}


def judge_valid_call(tool, parameters):
    """Whether the tool gives a result, or an error for the model, for valid arguments."""
    from grpo_workbook.environments import CallError

    types = {name: parameter.get("type") for name, parameter in parameters.items()}
    if not all(str(type_name) in VALID_VALUES for type_name in types.values()):
        return "a model can call it"  # a list, for example: no value of it is valid for every tool
    try:
        result = tool(**{name: VALID_VALUES[type_name] for name, type_name in types.items()})
    except CallError:
        return "a model can call it"  # such as a word that is not in the notes
    except Exception:  # ToolBroken from @tool, anything from other functions
        return "broken"
    if result is None or result == "None":  # @tool makes a text of each result
        return "broken"
    return "a model can call it"


my_tool = exercise("11.3", "my_tool", call=judge_tool)
my_tool.case(gives="a model can call it")


@my_tool.mistake
def takes_arguments_of_any_type():
    """Your tool takes arguments of any type: put @tool above the function, which checks them."""

    def repeat(text: str) -> str:
        """Repeat a text.

        Args:
            text: The text.
        """
        return text * 2

    return repeat


@my_tool.mistake
def has_no_schema():
    """No schema can be made of your tool: it needs type hints, and a docstring with Args:."""
    from grpo_workbook.environments import tool

    @tool
    def repeat(text):
        return text

    return repeat


@my_tool.mistake
def takes_no_argument():
    """Your tool takes no argument, so the model cannot ask it anything: give it at least one."""
    from grpo_workbook.environments import tool

    @tool
    def now() -> str:
        """Tell the time."""
        return "noon"

    return now


@my_tool.mistake
def fails_on_a_valid_call():
    """Your tool gives no result for valid arguments: it returns None, or it raises an error. Call
    it yourself with "a" for a text and 1 for a number. Raise CallError where the model must
    choose other arguments.
    """
    from grpo_workbook.environments import tool

    @tool
    def repeat(text: str) -> str | None:
        """Repeat a text.

        Args:
            text: The text.
        """

    return repeat


# 11.4: a tool that is wrong half of the time


def read_wrong_tool(calls):
    """From the calls per conversation, on easy and on hard products."""
    easy = calls["easy"]
    hard = calls["hard"]
    sentence = f"{easy:.2f} calls for an easy product, {hard:.2f} for a hard one."
    if hard < 0.5:
        return "for none", sentence
    if easy < 0.75:
        return "for hard ones", sentence
    return "for all", sentence


wrong_tool = experiment(
    "11.4",
    "wrong_tool",
    read=read_wrong_tool,
    wrong={
        "for all": "Half of the easy answers by heart were right too, and needed no call.",
        "for hard ones": "By heart an easy product was not right often enough to beat the call.",
        "for none": "Half of the calls were right, and no hard product is known by heart.",
    },
)
wrong_tool.example({"easy": 0.5, "hard": 0.992, "all": 0.881}, gives="for hard ones")

# 11.5: a limit too narrow for the result of a call


def read_too_narrow(log):
    """From each step's rate of completions that call a tool."""
    calling = log["calling"]
    first = sum(calling[:3]) / 3
    last = sum(calling[-3:]) / 3
    sentence = f"{first:.1%} of the completions called at first, {last:.1%} at the end."
    if last < first / 4:
        return "die out", sentence
    if last > 4 * first:
        return "spread", sentence
    return "stay", sentence


too_narrow = experiment(
    "11.5",
    "too_narrow",
    read=read_too_narrow,
    wrong={
        "die out": "Most groups earned nothing at all, so nothing speaks against a call either.",
        "stay": "Some groups had a right answer by heart, and in these a call counted as worse.",
        "spread": "A call without a result never earns anything: nothing speaks for it.",
    },
)
too_narrow.example({"calling": [0.125, 0.15, 0.188, 0.094, 0.125, 0.188]}, gives="stay")

# 11.6: single prices and totals


def read_two_tools(rates):
    """From the rates of right answers on single prices and on totals."""
    price = rates["price"]
    total = rates["total"]
    sentence = f"{price:.1%} of the single prices were right, and {total:.1%} of the totals."
    if total > 0.5:
        return "both", sentence
    if price > 0.5:
        return "only single prices", sentence
    return "neither", sentence


two_tools = experiment(
    "11.6",
    "two_tools",
    read=read_two_tools,
    wrong={
        "neither": "A price needs one call, and a right price with one call still earns 0.35.",
        "only single prices": (
            "A right price earns more than its call costs, and a right total earns less than its "
            "two calls: see which of these the run did not learn."
        ),
        "both": "A total needs two calls, which cost 1.3, and a right answer earns only 1.0.",
    },
)
two_tools.example({"price": 0.64, "total": 0.27}, gives="only single prices")
