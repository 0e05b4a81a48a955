"""The exercises of notebook 11_tools_and_environments."""

from itertools import product

from grpo_workbook.exercises.tasks import exercise, experiment

# 11.1: which tokens the model wrote

END = "<|im_end|>"
HEADER = ["<|im_start|>", "assistant", "\n"]  # what the template writes before a turn of the model


def correct_tool_mask(tokens, end, header):
    """The solution."""
    mask = []
    model_writes = True
    for position, token in enumerate(tokens):
        mask.append(int(model_writes))
        if model_writes and token == end:
            model_writes = False
        elif not model_writes and ends_with(tokens[: position + 1], header):
            model_writes = True
    return mask


def ends_with(tokens, header):
    """Whether the last tokens are those of the header."""
    return tokens[-len(header) :] == header


def result_tokens(*texts):
    """The tokens from the end of a call to the beginning of the model's next turn."""
    opening = ["\n", "<|im_start|>", "user", "\n", "<tool_response>"]
    return [*opening, *texts, "</tool_response>", END, "\n", *HEADER]


CALL = ["<tool_call>", "3", "4", "</tool_call>", END]


def with_numbers(function, *arguments):
    """The learner's mask; True and False count as 1 and 0."""
    mask = function(*arguments)
    numbers = []
    for value in mask:
        if isinstance(value, bool):
            value = int(value)
        numbers.append(value)
    return numbers


tool_mask = exercise("11.1", "tool_mask", solution=correct_tool_mask, call=with_numbers)
tool_mask.case(["1", "2", END], END, HEADER)  # an answer by heart
tool_mask.case([*CALL, *result_tokens("12"), "12", END], END, HEADER)
tool_mask.case(
    [*CALL, *result_tokens("12"), *CALL, *result_tokens("12"), "12", END], END, HEADER
)  # two calls
tool_mask.case(CALL, END, HEADER)  # the result did not fit
tool_mask.case([*CALL, *result_tokens("12"), "1"], END, HEADER)  # the answer was cut off
# a result that holds a part of the header
tool_mask.case([*CALL, *result_tokens("assistant", "\n", "12"), "12", END], END, HEADER)
# the model writes such words itself, and another tokenizer has other marks
tool_mask.case([7, 5, 2, 9, 8, 2, 6, 5, 4, 3, 2], 2, [6, 5])


@tool_mask.mistake
def masks_nothing(tokens, end, header):
    """You gave every token a 1: the tool's result and the headers were not sampled by the policy,
    so they get a 0.
    """
    return [1] * len(tokens)


@tool_mask.mistake
def forgets_the_end_token(tokens, end, header):
    """You gave the end token of a turn a 0: the model writes it itself, and has to learn to stop
    there.
    """
    mask = correct_tool_mask(tokens, end, header)
    for position, token in enumerate(tokens):
        if token == end:
            mask[position] = 0
    return mask


@tool_mask.mistake
def takes_every_end_token(tokens, end, header):
    """You gave every end token a 1: the template wrote the one behind the tool's result."""
    mask = correct_tool_mask(tokens, end, header)
    for position, token in enumerate(tokens):
        if token == end:
            mask[position] = 1
    return mask


@tool_mask.mistake
def takes_the_headers(tokens, end, header):
    """You gave the header of the model's turn a 1: the template writes it, and the model's own
    tokens begin behind it.
    """
    mask = correct_tool_mask(tokens, end, header)
    for position in range(len(tokens)):
        if mask[position] == 0 and ends_with(tokens[: position + 1], header):
            for place in range(position + 1 - len(header), position + 1):
                mask[place] = 1
    return mask


@tool_mask.mistake
def masks_the_result_alone(tokens, end, header):
    """You masked the tool's result alone: the headers around it were not written by the model
    either.
    """
    mask = []
    is_result = False
    for token in tokens:
        if token == "<tool_response>":
            is_result = True
        mask.append(int(not is_result))
        if token == "</tool_response>":
            is_result = False
    return mask


@tool_mask.mistake
def changes_sides_at_each_end_token(tokens, end, header):
    """You changed sides at each end token: behind the one of the tool's result the template still
    writes the header, and the model begins only after it.
    """
    mask = []
    model_writes = True
    for token in tokens:
        mask.append(int(model_writes))
        if token == end:
            model_writes = not model_writes
    return mask


@tool_mask.mistake
def takes_the_last_turn(tokens, end, header):
    """You kept only the last turn: a call is written by the model as well, and it is what earns the
    reward.
    """
    mask = correct_tool_mask(tokens, end, header)
    last_zero = -1
    for position, value in enumerate(mask):
        if value == 0 and position + 1 < len(mask):
            last_zero = position
    return [0] * (last_zero + 1) + mask[last_zero + 1 :]


@tool_mask.mistake
def takes_the_first_turn(tokens, end, header):
    """You stopped at the first end token: after the result the model writes again."""
    mask = []
    model_writes = True
    for token in tokens:
        mask.append(int(model_writes))
        if token == end:
            model_writes = False
    return mask


@tool_mask.mistake
def looks_for_two_tokens(tokens, end, header):
    """You compared only the last two tokens of the header: a result may hold both, so compare all
    tokens of the header, in their order.
    """
    mask = []
    model_writes = True
    for token in tokens:
        mask.append(int(model_writes))
        if model_writes and token == end:
            model_writes = False
        elif not model_writes and token == header[-1] and len(mask) > 1:
            model_writes = tokens[len(mask) - 2] == header[-2]
    return mask


@tool_mask.mistake
def looks_for_the_last_token_alone(tokens, end, header):
    """You looked only for the last token of the header: the template writes the same token, a line
    break, right behind the end token. Compare all tokens of the header, in their order.
    """
    mask = []
    model_writes = True
    for token in tokens:
        mask.append(int(model_writes))
        if model_writes and token == end:
            model_writes = False
        elif not model_writes and token == header[-1]:
            model_writes = True
    return mask


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
    # two turns with a call each
    [calls_of(3), tool_result("6"), calls_of(4), tool_result("8"), model_text("8")],
    [calls_of(4), tool_result("8")],  # no answer
    [calls_of(4), tool_result("8"), model_text("88")],  # a result that was copied wrongly
]
RIGHT_ANSWERS = ["8"] * len(TRANSCRIPTS)

priced_reward = exercise("11.2", "priced_reward")
priced_reward.case(
    TRANSCRIPTS, RIGHT_ANSWERS, 0.25, gives=[1.0, 0.0, 0.75, 0.5, 0.75, 0.5, -0.25, -0.25]
)
# other answers and another price, so that no answer can be written into the reward
by_heart = [model_text("12")]
with_a_call = [calls_of(6), tool_result("12"), model_text("12")]
wrong = [model_text("8")]
priced_reward.case(
    [by_heart, with_a_call, wrong],
    ["12"] * 3,
    0.5,
    gives=[1.0, 0.5, 0.0],
)


def answer_of(completion):
    """The text of the last message, if the model wrote it and calls nothing in it."""
    last = completion[-1]
    if last["role"] != "assistant" or last.get("tool_calls"):
        return None
    return last["content"]


def count_calls(completion):
    """How many calls the model made."""
    calls = 0
    for message in completion:
        calls += len(message.get("tool_calls", []))
    return calls


# results that did not fit, an answer beside a call, an answer that is not exact
no_result = [calls_of(4)]
one_result = [calls_of(4, 5), tool_result("8")]
answer_beside_a_call = [{**calls_of(3), "content": "8"}, tool_result("6")]
not_exact = [model_text(" 8")]
priced_reward.case(
    [no_result, one_result, answer_beside_a_call, not_exact],
    ["8"] * 4,
    0.25,
    gives=[-0.25, -0.5, -0.25, 0.0],
)
# an answer beside a call whose result did not fit
priced_reward.case([[{**calls_of(4), "content": "8"}]], ["8"], 0.25, gives=[-0.25])


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
def charges_once(completions, answer, price):
    """You charged once for a transcript with calls: each further call costs the price again."""
    rewards = []
    for completion, gold in zip(completions, answer, strict=True):
        has_calls = count_calls(completion) > 0
        rewards.append(float(answer_of(completion) == gold) - price * has_calls)
    return rewards


@priced_reward.mistake
def charges_right_answers_alone(completions, answer, price):
    """You charged only where the answer is right: a call in vain costs the price as well, so such a
    reward is negative.
    """
    rewards = []
    for completion, gold in zip(completions, answer, strict=True):
        reward = 0.0
        if answer_of(completion) == gold:
            reward = 1 - price * count_calls(completion)
        rewards.append(reward)
    return rewards


@priced_reward.mistake
def searches_in_the_answer(completions, answer, price):
    """You searched for the answer in the last message: 88 holds an 8 and is wrong, so compare the
    whole content.
    """
    rewards = []
    for completion, gold in zip(completions, answer, strict=True):
        is_right = gold in str(answer_of(completion))
        rewards.append(float(is_right) - price * count_calls(completion))
    return rewards


@priced_reward.mistake
def charges_nothing(completions, answer, price):
    """Your reward charges nothing for calls: subtract the price times their number."""
    rewards = []
    for completion, gold in zip(completions, answer, strict=True):
        rewards.append(float(answer_of(completion) == gold))
    return rewards


@priced_reward.mistake
def counts_tool_messages(completions, answer, price):
    """You counted the tool's messages: a call whose result was dropped has none, and costs the
    price as well. Count the calls.
    """
    rewards = []
    for completion, gold in zip(completions, answer, strict=True):
        results = sum(message["role"] == "tool" for message in completion)
        rewards.append(float(answer_of(completion) == gold) - price * results)
    return rewards


@priced_reward.mistake
def takes_an_answer_beside_a_call(completions, answer, price):
    """You paid a last message that holds the answer and a call: the conversation has not ended
    there, so a right last message calls nothing.
    """
    rewards = []
    for completion, gold in zip(completions, answer, strict=True):
        last = completion[-1]
        is_right = last["role"] == "assistant" and last["content"] == gold
        rewards.append(float(is_right) - price * count_calls(completion))
    return rewards


@priced_reward.mistake
def strips_the_content(completions, answer, price):
    """You removed spaces from the content: only a content that is exactly the answer is right, as
    in the priced run.
    """
    rewards = []
    for completion, gold in zip(completions, answer, strict=True):
        content = answer_of(completion)
        is_right = content is not None and content.strip() == gold
        rewards.append(float(is_right) - price * count_calls(completion))
    return rewards


# 11.3: a tool of the learner's own


def judge_tool(function):
    """What is wrong with the learner's tool or call, or that a model can call it."""
    from transformers.utils import get_json_schema

    from grpo_workbook.environments import CallError

    made = function()
    if not isinstance(made, tuple) or len(made) != 2 or not isinstance(made[1], dict):
        return "no pair"
    tool, arguments = made
    if not callable(tool):
        return "no function"
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
    try:
        result = tool(**arguments)
    except CallError:
        return "refused"
    except Exception:  # ToolBroken from @tool
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

    return repeat, {"text": "a"}


@my_tool.mistake
def has_no_schema():
    """No schema can be made of your tool: it needs type hints, and a docstring with Args:."""
    from grpo_workbook.environments import tool

    @tool
    def repeat(text):
        return text

    return repeat, {"text": "a"}


@my_tool.mistake
def says_nothing_of_its_arguments():
    """The docstring of your tool needs a sentence, and Args: with a line for each argument: this is
    all that the model knows of it.
    """
    from grpo_workbook.environments import tool

    @tool
    def repeat(text: str) -> str:
        """Repeat a text."""
        return text

    return repeat, {"text": "a"}


@my_tool.mistake
def returns_no_function():
    """The first of the two is no function: return the tool itself, without calling it."""
    return "a text", {"text": "a"}


@my_tool.mistake
def takes_no_argument():
    """Your tool takes no argument, so the model cannot ask it anything: give it at least one."""
    from grpo_workbook.environments import tool

    @tool
    def now() -> str:
        """Tell the time."""
        return "noon"

    return now, {}


@my_tool.mistake
def fails_on_a_valid_call():
    """Your tool gives no result for your own call: it returns None, or it fails with an error."""
    from grpo_workbook.environments import tool

    @tool
    def repeat(text: str) -> str | None:
        """Repeat a text.

        Args:
            text: The text.
        """

    return repeat, {"text": "a"}


@my_tool.mistake
def returns_the_tool_alone():
    """Return two things, the tool and the arguments of one right call: return repeat, {"text":
    "a"}.
    """
    from grpo_workbook.environments import tool

    @tool
    def repeat(text: str) -> str:
        """Repeat a text.

        Args:
            text: The text.
        """
        return text * 2

    return repeat


@my_tool.mistake
def refuses_its_own_call():
    """Your tool refuses your own call with a CallError. Are the arguments named and typed as in the
    function, and does the tool ever give a result?
    """
    from grpo_workbook.environments import CallError, tool

    @tool
    def repeat(text: str) -> str:
        """Repeat a text.

        Args:
            text: The text.
        """
        raise CallError("not this text")

    return repeat, {"text": "a"}


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

# 11.6: a reward for the guesses of a game that is lost


def left_after(guesses, secret):
    """The lowest and the highest number that the answers to these guesses leave."""
    low = 1
    high = 7
    for guess in guesses:
        if guess < secret:
            low = max(low, guess + 1)
        else:
            high = min(high, guess - 1)
    return low, high


def consistent_guesses(guesses, secret):
    """For each guess, whether the answers before it allow it."""
    allowed = []
    for turn, guess in enumerate(guesses):
        low, high = left_after(guesses[:turn], secret)
        allowed.append(low <= guess <= high)
    return allowed


def lost_games():
    """(secret, guesses) of every lost game with up to three guesses from 0 to 8."""
    games = []
    for secret in range(1, 8):
        for turns in range(4):
            for guesses in product(range(9), repeat=turns):
                if secret not in guesses:
                    games.append((secret, list(guesses)))
    return games


def won_games():
    """(secret, guesses) of games that are won with the first, second or third guess."""
    games = []
    for secret in range(1, 8):
        games.append((secret, [secret]))
        for first in range(9):
            if first != secret:
                games.append((secret, [first, secret]))
                games.append((secret, [first, first, secret]))
    return games


def more_is_better(rewards_by_pattern):
    """Whether a further allowed guess always raises the reward of a game of the same length."""
    for pattern, rewards in rewards_by_pattern.items():
        for turn, is_allowed in enumerate(pattern):
            if is_allowed:
                continue
            better = (*pattern[:turn], True, *pattern[turn + 1 :])
            if better not in rewards_by_pattern:
                continue
            if not max(rewards) < min(rewards_by_pattern[better]):
                return False
    return True


def longer_is_better(rewards_by_pattern):
    """Whether a further guess that is allowed always raises the reward of a lost game."""
    for pattern, rewards in rewards_by_pattern.items():
        longer = (*pattern, True)
        if longer not in rewards_by_pattern:
            continue
        if not max(rewards) < min(rewards_by_pattern[longer]):
            return False
    return True


def contradictions_add_nothing(game_reward):
    """Whether a last guess that contradicts an earlier answer never adds to a lost game."""
    for secret, guesses in lost_games():
        if not guesses or consistent_guesses(guesses, secret)[-1]:
            continue
        without = game_reward(list(guesses[:-1]), secret)
        if game_reward(list(guesses), secret) > without + 1e-9:
            return False
    return True


def examine_game_reward(game_reward):
    """What must hold of the learner's reward, from all games of up to three guesses."""
    won = [game_reward(guesses, secret) for secret, guesses in won_games()]
    plain = {}  # which of the guesses were allowed -> rewards
    repeating = {}  # the same, with the games in which a guess is repeated
    outside = {}  # the same, with the games in which a guess is not from 1 to 7
    lost = []
    for secret, guesses in lost_games():
        reward = game_reward(list(guesses), secret)
        lost.append(reward)
        pattern = tuple(consistent_guesses(guesses, secret))
        is_inside = all(1 <= guess <= 7 for guess in guesses)
        is_repeating = len(set(guesses)) < len(guesses)
        if is_inside and not is_repeating:
            plain.setdefault(pattern, []).append(reward)
        if is_inside:
            repeating.setdefault(pattern, []).append(reward)
        if not is_repeating:
            outside.setdefault(pattern, []).append(reward)
    two_guesses = {pattern: plain[pattern] for pattern in plain if len(pattern) == 2}
    three_guesses = {pattern: plain[pattern] for pattern in plain if len(pattern) == 3}
    won_games_earn_1 = all(reward == 1 for reward in won)
    lost_games_earn_little = all(0 <= reward <= 0.5 for reward in lost)
    no_guess = set(plain[()])
    one_guess = set(plain[True,])
    return {
        "a won game earns 1": won_games_earn_1,
        "a lost game earns from 0 to 0.5": lost_games_earn_little,
        "a lost game without a guess earns 0": no_guess == {0},
        "some lost game earns more than 0": max(lost) > 0,
        "every first guess from 1 to 7 earns the same part": len(one_guess) == 1,
        "a second guess that contradicts nothing earns more": more_is_better(two_guesses),
        "a third guess that contradicts nothing earns more": more_is_better(three_guesses),
        "a further guess that contradicts nothing beats giving up": longer_is_better(plain),
        "a guess that was made before counts as a contradiction": more_is_better(repeating),
        "a guess outside 1 to 7 counts as a contradiction": more_is_better(outside),
        "a guess that contradicts adds nothing": contradictions_add_nothing(game_reward),
    }


def correct_game_reward(guesses, secret):
    """The solution."""
    if secret in guesses:
        return 1.0
    return 0.1 * sum(consistent_guesses(guesses, secret))


game_reward = exercise("11.6", "game_reward", call=examine_game_reward)
game_reward.case(
    gives={
        "a won game earns 1": True,
        "a lost game earns from 0 to 0.5": True,
        "a lost game without a guess earns 0": True,
        "some lost game earns more than 0": True,
        "every first guess from 1 to 7 earns the same part": True,
        "a second guess that contradicts nothing earns more": True,
        "a third guess that contradicts nothing earns more": True,
        "a further guess that contradicts nothing beats giving up": True,
        "a guess that was made before counts as a contradiction": True,
        "a guess outside 1 to 7 counts as a contradiction": True,
        "a guess that contradicts adds nothing": True,
    }
)


@game_reward.mistake
def pays_the_fraction(guesses, secret):
    """You pay the fraction of the guesses that contradict nothing: then one guess and no further
    call earns as much as three good ones, so the model learns to give up. Add a part for each.
    """
    if secret in guesses:
        return 1.0
    if len(guesses) == 0:
        return 0.0
    return 0.5 * sum(consistent_guesses(guesses, secret)) / len(guesses)


@game_reward.mistake
def adds_parts_to_a_win(guesses, secret):
    """You added parts to a won game as well: then a win with the third guess earns more than one
    with the first, and the model learns to put the win off. A win earns exactly 1.
    """
    return float(secret in guesses) + 0.1 * sum(consistent_guesses(guesses, secret))


@game_reward.mistake
def pays_losses_like_wins(guesses, secret):
    """A lost game can earn more than 0.5: with parts that large, losing without contradictions is
    nearly as good as winning.
    """
    if secret in guesses:
        return 1.0
    return sum(consistent_guesses(guesses, secret)) / 3


@game_reward.mistake
def pays_every_guess(guesses, secret):
    """You pay for each guess, whatever it is: that rewards guessing on, not thinking. Pay only for
    a guess that the earlier answers allow.
    """
    if secret in guesses:
        return 1.0
    return 0.1 * len(guesses)


@game_reward.mistake
def pays_wins_alone(guesses, secret):
    """A lost game earns nothing whatever its guesses: that is the reward of the chapter. Pay a part
    for each guess that contradicts no earlier answer.
    """
    return float(secret in guesses)


@game_reward.mistake
def forgets_the_range(guesses, secret):
    """Your bounds begin too wide: before the first guess the numbers from 1 to 7 are left, so a
    guess of 0 or 8 is a contradiction.
    """
    if secret in guesses:
        return 1.0
    low = float("-inf")
    high = float("inf")
    parts = 0
    for guess in guesses:
        parts += low <= guess <= high
        if guess < secret:
            low = max(low, guess + 1)
        else:
            high = min(high, guess - 1)
    return 0.1 * parts


@game_reward.mistake
def keeps_the_guess_itself(guesses, secret):
    """You left the guess itself among the numbers that are possible: "higher than 3" leaves 4 to 7,
    so a second guess of 3 is a contradiction.
    """
    if secret in guesses:
        return 1.0
    low = 1
    high = 7
    parts = 0
    for guess in guesses:
        parts += low <= guess <= high
        if guess < secret:
            low = max(low, guess)
        else:
            high = min(high, guess)
    return 0.1 * parts


@game_reward.mistake
def looks_at_the_last_answer_alone(guesses, secret):
    """You compared each guess with the answer before it alone: after "higher than 2" and "lower
    than 6", a guess of 1 contradicts the first of the two. Keep both bounds.
    """
    if secret in guesses:
        return 1.0
    parts = 0
    for turn, guess in enumerate(guesses):
        low, high = left_after(guesses[max(0, turn - 1) : turn], secret)
        parts += low <= guess <= high
    return 0.1 * parts


@game_reward.mistake
def pays_for_being_near(guesses, secret):
    """You pay for guesses near the secret: nearness is luck, and a good strategy begins in the
    middle. Pay for guesses that the earlier answers allow.
    """
    if secret in guesses:
        return 1.0
    nearness = 0.0
    for guess in guesses:
        nearness += max(0.0, 1 - abs(guess - secret) / 7)
    return 0.1 * nearness


@game_reward.mistake
def pays_a_little_for_contradictions(guesses, secret):
    """You pay a little for a guess that contradicts an earlier answer as well: then guessing on
    at random earns something. Such a guess adds nothing.
    """
    if secret in guesses:
        return 1.0
    allowed = sum(consistent_guesses(guesses, secret))
    return 0.1 * allowed + 0.05 * (len(guesses) - allowed)
