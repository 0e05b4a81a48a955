"""The exercises of notebook 03_reward_design."""

import re

from grpo_workbook.exercises.tasks import direction, exercise, experiment
from grpo_workbook.rewards import call, text_of

# 03.1: completions that three weak rules accept for every reference

REFERENCES = [str(number) for number in range(100)]


def contains_the_number(text, reference):
    """The notebook's first rule."""
    return reference in text


def any_block_is_right(text, reference):
    """The notebook's second rule."""
    return reference in re.findall("<answer>(.*?)</answer>", text)


def last_block_is_near(text, reference):
    """The notebook's third rule."""
    inside = text.split("<answer>")[-1].split("</answer>")[0]
    try:
        error = abs(float(inside) - float(reference))
    except ValueError:
        return False
    return not error > 0.01


RULES = {
    "contains_the_number": contains_the_number,
    "any_block_is_right": any_block_is_right,
    "last_block_is_near": last_block_is_near,
}
EVERY = "a text accepted for 100 of 100 references"


def count_accepted(function, name):
    """For how many references the rule accepts the learner's completion."""
    text = function(name)
    if not isinstance(text, str):
        return f"no text, but {type(text).__name__}"
    rule = RULES[name]
    accepted = sum(rule(text, reference) for reference in REFERENCES)
    return f"a text accepted for {accepted} of 100 references"


blind_cheat = exercise("03.1", "blind_cheat", call=count_accepted)
blind_cheat.case("contains_the_number", gives=EVERY)
blind_cheat.case("any_block_is_right", gives=EVERY)
blind_cheat.case("last_block_is_near", gives=EVERY)


def blocks_of(numbers):
    """An answer block for each number."""
    return "".join(f"<answer>{number}</answer>" for number in numbers)


def solve_blind_cheat(rule):
    """The solution."""
    if rule == "contains_the_number":
        return " ".join(REFERENCES)
    if rule == "any_block_is_right":
        return blocks_of(REFERENCES)
    return "<answer>nan</answer>"


@blind_cheat.mistake
def answers_the_question(rule):
    """Your completions are accepted only where the answer is 42: a cheat that works for every
    reference must not depend on the question.
    """
    return "<answer>42</answer>"


@blind_cheat.mistake
def gives_empty_blocks(rule):
    """Your completions have no number, and none of the three rules accepts that."""
    return "<answer></answer>"


@blind_cheat.mistake
def lists_the_numbers_for_every_rule(rule):
    """The second and the third rule accept nothing of yours: the second reads only what stands
    between tags, and the third reads the last block as one number.
    """
    return " ".join(REFERENCES)


@blind_cheat.mistake
def lists_the_numbers_in_one_block(rule):
    """The second rule accepts none of your blocks: it compares whole blocks, so each number needs a
    block of its own, without white space.
    """
    if rule == "any_block_is_right":
        return f"<answer>{' '.join(REFERENCES)}</answer>"
    return solve_blind_cheat(rule)


@blind_cheat.mistake
def lists_blocks_for_the_third_rule(rule):
    """You gave the third rule many blocks, but it reads only the last of them. One number must do
    for all references: which one has an error that is never larger than 0.01?
    """
    if rule == "last_block_is_near":
        return blocks_of(REFERENCES)
    return solve_blind_cheat(rule)


@blind_cheat.mistake
def gives_infinity(rule):
    """You gave the third rule a number that is near none of the references, or infinity, whose
    error is infinite. Which value of float() is neither larger nor smaller than any number?
    """
    if rule == "last_block_is_near":
        return "<answer>inf</answer>"
    return solve_blind_cheat(rule)


@blind_cheat.mistake
def begins_with_1(rule):
    """You left out a number: the references begin with 0 and end with 99."""
    if rule == "any_block_is_right":
        return blocks_of(REFERENCES[1:])
    return solve_blind_cheat(rule)


# 03.2: a reward for the last line


def call_reward(function, texts, answer):
    """Call a reward as TRL does: chat completions, and more columns than it uses."""
    completions = [[{"role": "assistant", "content": text}] for text in texts]
    prompts = ["?"] * len(answer)
    return function(completions=completions, answer=answer, prompts=prompts, trainer_state=None)


last_line_reward = exercise("03.2", "last_line_reward", call=call_reward)
last_line_reward.case(
    ["6*7=42\n#### 42", "#### 41", "#### 42\n"], ["42", "42", "42"], gives=[1.0, 0.0, 1.0]
)
last_line_reward.case(["#### 7", "42", "#### 8"], ["7", "42", "9"], gives=[1.0, 0.0, 0.0])
last_line_reward.case(
    ["#### 142", "#### 41 or 42", "so #### 42"], ["42", "42", "42"], gives=[0.0, 0.0, 0.0]
)
last_line_reward.case(
    ["#### 420", "#### 42 or 43", "#### 42 apples"], ["42", "42", "42"], gives=[0.0, 0.0, 0.0]
)
last_line_reward.case(
    ["#### 42\nIt is 42.", "#### 41\n#### 42", ""], ["42", "42", "42"], gives=[0.0, 0.0, 0.0]
)
last_line_reward.case(
    ["####42", "so #### 41\n#### 42", "#### 42"], ["42", "42", "42"], gives=[0.0, 0.0, 1.0]
)


last_line_reward.case(["#### 7", "#### 8"], ["7", "8"], gives=[1.0, 1.0])
last_line_reward.case(["####41\n#### 42", "#### 42"], ["42", "42"], gives=[0.0, 1.0])


# blanks that do not belong there, and an answer that is no regular expression
last_line_reward.case(
    ["so it is:\n  #### 42", "####  42", "#### 3x5"], ["42", "42", "3.5"], gives=[0.0, 0.0, 0.0]
)
# the same number, written otherwise
last_line_reward.case(["#### 42.0", "#### 42"], ["42", "42"], gives=[0.0, 1.0])


def pay_where(is_right, completions, answer):
    """1.0 for each completion whose text is right, by `is_right(text, answer)`, else 0.0."""
    rewards = []
    for completion, gold in zip(completions, answer, strict=True):
        text = text_of(completion).strip()
        rewards.append(float(is_right(text, gold)))
    return rewards


def last_line_is_right(text, gold):
    """Whether the last line is right, and the only one with the mark."""
    return text.split("\n")[-1] == f"#### {gold}" and text.count("####") == 1


@last_line_reward.mistake
def compares_the_messages(completions, answer, **columns):
    """You compared the list of messages: the text is in [0]["content"]."""
    return [float(messages == gold) for messages, gold in zip(completions, answer, strict=True)]


@last_line_reward.mistake
def looks_anywhere(completions, answer, **columns):
    """You looked for the answer anywhere in the text: a text that lists all numbers would be paid,
    too.
    """

    def contains(text, gold):
        return gold in text

    return pay_where(contains, completions, answer)


@last_line_reward.mistake
def takes_no_columns(completions, answer):
    """TRL passes more arguments than your function takes, such as prompts: accept the rest with
    **columns.
    """
    return pay_where(last_line_is_right, completions, answer)


@last_line_reward.mistake
def gives_one_number(completions, answer, **columns):
    """You gave one number for the batch: TRL wants a list, a float for each completion."""
    return sum(pay_where(last_line_is_right, completions, answer)) / len(answer)


@last_line_reward.mistake
def compares_the_end(completions, answer, **columns):
    """You compared the end of the text: 142 ends in 42, so compare the whole last line."""
    return pay_where(str.endswith, completions, answer)


@last_line_reward.mistake
def compares_the_start(completions, answer, **columns):
    """You compared the start of the last line: 420 begins with 42, and "42 or 43" is a hedge, so
    compare the whole line.
    """

    def begins_right(text, gold):
        line = text.split("\n")[-1]
        return line.startswith(f"#### {gold}") and text.count("####") == 1

    return pay_where(begins_right, completions, answer)


@last_line_reward.mistake
def uses_the_first_answer(completions, answer, **columns):
    """You compared every completion with answer[0]: each has its own answer, at the same place in
    the list.
    """
    return pay_where(last_line_is_right, completions, [answer[0]] * len(completions))


@last_line_reward.mistake
def pays_within_a_line(completions, answer, **columns):
    """You rewarded "so #### 42": the mark must stand at the beginning of the last line."""

    def ends_with_it(text, gold):
        return text.endswith(f"#### {gold}") and text.count("####") == 1

    return pay_where(ends_with_it, completions, answer)


@last_line_reward.mistake
def pays_without_the_space(completions, answer, **columns):
    """You rewarded "####42": a space must stand between the mark and the number."""

    def has_mark_and_number(text, gold):
        line = text.split("\n")[-1]
        is_line = line in (f"####{gold}", f"#### {gold}")
        return is_line and text.count("####") == 1

    return pay_where(has_mark_and_number, completions, answer)


@last_line_reward.mistake
def pays_a_hedge(completions, answer, **columns):
    """You rewarded a hedge, #### 41 above #### 42: the mark may occur only once in the text."""

    def ends_right(text, gold):
        return text.split("\n")[-1] == f"#### {gold}"

    return pay_where(ends_right, completions, answer)


@last_line_reward.mistake
def pays_any_line(completions, answer, **columns):
    """You rewarded the line at any place: the program downstream reads only the last line."""

    def has_the_line(text, gold):
        return f"#### {gold}" in text.split("\n")

    return pay_where(has_the_line, completions, answer)


@last_line_reward.mistake
def compares_numbers(completions, answer, **columns):
    """You rewarded "#### 42.0" for 42: the last line must be the row's answer, letter by letter, so
    compare texts and not numbers.
    """

    def is_the_number(text, gold):
        parts = text.split("\n")[-1].split(" ")
        if len(parts) != 2 or parts[0] != "####" or text.count("####") != 1:
            return False
        try:
            return float(parts[1]) == float(gold)
        except ValueError:
            return False

    return pay_where(is_the_number, completions, answer)


# 03.3 and 03.4: a rate that moves while something else is paid for


def read_rates(subject, before, after):
    """From two (rate, number of completions) pairs; a change of two standard errors counts.

    The standard error is a little too small: completions of one prompt are not independent.
    """
    first, first_count = before
    last, last_count = after
    rates_are_possible = 0 <= first <= 1 and 0 <= last <= 1
    if not rates_are_possible or first_count < 1 or last_count < 1:
        raise ValueError(f"{subject} should be two rates from 0 to 1, but are {first} and {last}")
    variance = first * (1 - first) / first_count + last * (1 - last) / last_count
    noise = 2 * variance**0.5
    sentence = f"{subject} went from {first:.0%} to {last:.0%} (about {noise:.0%} can be chance)."
    return direction(last - first, noise), sentence


def read_no_scaling(run):
    """From the rates of the phrase at both ends of the run."""
    before, after = run["says_answer_is"]
    count = run["completions"]
    return read_rates("The rate of the phrase", (before, count), (after, count))


def read_last_line_alone(run):
    """From the rates of completions in the form, and of right ones, at both ends of the run."""
    rates = []
    for in_form, right in zip(run["has_form"], run["is_right"], strict=True):
        rates.append((right / max(in_form, 1e-9), run["completions"] * in_form))
    before, after = rates
    return read_rates("The fraction that is right of those in the form", before, after)


no_scaling = experiment(
    "03.3",
    "no_scaling",
    read=read_no_scaling,
    wrong={
        "rises": (
            "A larger reward holds a small one back, as long as its own values differ in the batch."
        ),
        "stays": "The gradient is small, but AdamW divides it by its own recent size.",
        "falls": "The phrase is paid, if only with 0.1, and nothing is paid for leaving it out.",
    },
)
no_scaling.example({"says_answer_is": [0.3833, 0.8958], "completions": 240}, gives="rises")

last_line_alone = experiment(
    "03.4",
    "last_line_alone",
    read=read_last_line_alone,
    wrong={
        "rises": "Nothing pays for a right number, only for the form around it.",
        "stays": (
            "Nothing keeps the work that made the sum right, and a guess in the form earns as much."
        ),
        "falls": (
            "What a reward ignores can drift in either direction: ask what this one did pay for."
        ),
    },
)
last_line_alone.example(
    {"has_form": [0.075, 0.4417], "is_right": [0.0625, 0.0167], "completions": 240}, gives="falls"
)

# 03.5: a reward for a task of the learner's own, with its cheats


def examine(function):
    """What must hold of the learner's reward, its honest completions and its cheats."""
    reward, row, other_row, honest, cheats = function()
    if isinstance(honest, str):
        honest = [honest]
    twice = [f"{text}\n{text}" for text in honest]
    if len(honest) > 1:  # the join of one is that one
        twice.append("\n".join(honest))
    texts = [*honest, *twice, *cheats, "", "x 1 \n" * 20_000]
    columns = {name: [value] * len(texts) for name, value in row.items()}
    prompts = [[{"role": "assistant", "content": "?"}]] * len(texts)
    values = call(reward, texts, prompt=prompts, **columns)
    backwards = call(reward, texts[::-1], prompt=prompts, **columns)  # the columns are constant
    other_columns = {name: [value] * len(honest) for name, value in other_row.items()}
    elsewhere = call(reward, list(honest), prompt=prompts[: len(honest)], **other_columns)
    # a completion without a number is one condition; for the others it counts as unpaid
    numbers = [value or 0.0 for value in values]
    honest_numbers = numbers[: len(honest)]
    twice_numbers = numbers[len(honest) : len(honest) + len(twice)]
    other_numbers = numbers[len(honest) + len(twice) :]
    numbers_elsewhere = [value or 0.0 for value in elsewhere]
    different_honest = set(honest)
    different_cheats = set(cheats) - different_honest
    all_have_numbers = None not in values
    order_is_irrelevant = backwards[::-1] == values
    within_bounds = all(-1 <= number <= 1 for number in numbers)
    least_honest = min(honest_numbers, default=0.0)
    most_twice = max(twice_numbers, default=0.0)
    most_of_others = max(other_numbers)
    most_elsewhere = max(numbers_elsewhere, default=0.0)
    return {
        "two different honest completions": len(different_honest) >= 2,
        "five different cheats": len(different_cheats) >= 5,
        "every completion gets a number": all_have_numbers,
        "the order of the batch makes no difference": order_is_irrelevant,
        "every value is between -1 and 1": within_bounds,
        "the honest completions earn": least_honest > 0,
        "the honest completions earn the same": len(set(honest_numbers)) == 1,
        "every other completion earns less": most_of_others < least_honest,
        "two honest completions in one text earn less": most_twice < least_honest,
        "on the other row the honest completions earn less": most_elsewhere < least_honest,
    }


my_reward = exercise("03.5", "my_reward", call=examine)
my_reward.case(
    gives={
        "two different honest completions": True,
        "five different cheats": True,
        "every completion gets a number": True,
        "the order of the batch makes no difference": True,
        "every value is between -1 and 1": True,
        "the honest completions earn": True,
        "the honest completions earn the same": True,
        "every other completion earns less": True,
        "two honest completions in one text earn less": True,
        "on the other row the honest completions earn less": True,
    }
)

HONEST = ["42", "6*7=42"]
CHEATS = ["1", "2", "3", "4", "5"]
ROW, OTHER_ROW = {"answer": "42"}, {"answer": "43"}


def pay_honest(completions, answer, **columns):
    """1.0 for the honest completions to ROW, 0.0 for all others."""
    rewards = []
    for completion, reference in zip(completions, answer, strict=True):
        is_honest = text_of(completion) in HONEST
        rewards.append(float(is_honest and reference == ROW["answer"]))
    return rewards


@my_reward.mistake
def pays_a_cheat():
    """A cheat earns as much as the honest completions: print what each of them earns."""

    def reward(completions, **columns):
        return [1.0] * len(completions)

    return reward, ROW, OTHER_ROW, HONEST, CHEATS


@my_reward.mistake
def pays_too_much():
    """Your reward is not unit-scaled: keep it between -1 and 1, and put its size in the weight."""

    def reward(completions, **columns):
        return [10.0 * value for value in pay_honest(completions, **columns)]

    return reward, ROW, OTHER_ROW, HONEST, CHEATS


@my_reward.mistake
def has_too_few_cheats():
    """These are fewer than five different cheats: think of hedges, copies, length, empty parts."""
    return pay_honest, ROW, OTHER_ROW, HONEST, ["1", "2"]


@my_reward.mistake
def has_one_honest_completion():
    """You have a single honest completion: a reward that compares with this one text passes then.
    Add a second one that is worded differently.
    """
    return pay_honest, ROW, OTHER_ROW, HONEST[:1], CHEATS


@my_reward.mistake
def pays_one_honest_completion():
    """One of your honest completions earns nothing: the reward accepts only one way to be right."""

    def reward(completions, **columns):
        amounts = pay_honest(completions, **columns)
        is_first = [text_of(completion) == HONEST[0] for completion in completions]
        return [amount * first for amount, first in zip(amounts, is_first, strict=True)]

    return reward, ROW, OTHER_ROW, HONEST, CHEATS


@my_reward.mistake
def prefers_one_honest_completion():
    """Your honest completions earn different amounts: the model would learn the one that earns
    more, although both are right.
    """

    def reward(completions, **columns):
        amounts = pay_honest(completions, **columns)
        sizes = [1.0 if text_of(completion) == HONEST[0] else 0.5 for completion in completions]
        return [amount * size for amount, size in zip(amounts, sizes, strict=True)]

    return reward, ROW, OTHER_ROW, HONEST, CHEATS


@my_reward.mistake
def leaves_the_others_out():
    """Your reward is None for some completions: TRL leaves them out of the sum, so they are not
    penalised. Give 0.0.
    """

    def reward(completions, **columns):
        amounts = pay_honest(completions, **columns)
        return [amount if amount > 0 else None for amount in amounts]

    return reward, ROW, OTHER_ROW, HONEST, CHEATS


@my_reward.mistake
def pays_nothing():
    """Your honest completions earn nothing: a completion is a list with a chat message."""

    def reward(completions, **columns):
        return [0.0] * len(completions)

    return reward, ROW, OTHER_ROW, HONEST, CHEATS


@my_reward.mistake
def breaks_the_contract():
    """Your reward broke the contract: it must return a list, with a finite float or None for each
    completion.
    """

    def reward(completions, **columns):
        return 1.0

    return reward, ROW, OTHER_ROW, HONEST, CHEATS


@my_reward.mistake
def pays_by_place():
    """Your reward pays by the place in the batch: give each completion what its own text earns."""

    def reward(completions, **columns):
        return [1.0, 1.0] + [0.0] * (len(completions) - 2)

    return reward, ROW, OTHER_ROW, HONEST, CHEATS


@my_reward.mistake
def pays_twice():
    """Your reward pays as much for a text that has an honest completion twice, or two of them: read
    the whole text, and not only a part of it.
    """

    def reward(completions, answer, **columns):
        rewards = []
        for completion, reference in zip(completions, answer, strict=True):
            is_inside = any(good in text_of(completion) for good in HONEST)
            rewards.append(float(is_inside and reference == ROW["answer"]))
        return rewards

    return reward, ROW, OTHER_ROW, HONEST, CHEATS


@my_reward.mistake
def does_not_read_the_row():
    """Your reward pays the same completions on the other row, for which they are wrong: compare
    each completion with the columns of its own row.
    """

    def reward(completions, **columns):
        return [float(text_of(completion) in HONEST) for completion in completions]

    return reward, ROW, OTHER_ROW, HONEST, CHEATS
