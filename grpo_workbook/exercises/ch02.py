"""The exercises of notebook 02_dataset_prep."""

import random
import re
from collections import Counter

from grpo_workbook.exercises.tasks import direction, exercise, experiment

# 02.1: the training rows that are held out too


def read_question(question):
    """The numbers of a question in order, and the set of its words."""
    return re.findall(r"\d+", question), set(re.findall(r"[a-z]+", question.lower()))


def correct_rows_to_drop(train, heldout):
    """The solution."""
    return rows_of_pairs(train, heldout, same_numbers=True, similar_words=True)


def rows_of_pairs(train, heldout, *, same_numbers, similar_words):
    """The training rows that agree with a held-out row in the properties that are asked for."""
    rows = []
    for row, question in enumerate(train):
        numbers, words = read_question(question)
        for other in heldout:
            other_numbers, other_words = read_question(other)
            if same_numbers and numbers != other_numbers:
                continue
            if similar_words and len(words & other_words) < 0.8 * len(words | other_words):
                continue
            rows.append(row)
            break
    return rows


SHELLS = "Ana has 12 red shells and finds 5 more. How many red shells does Ana have now?"
BOOK = "A book costs 12 euros and a pen costs 5 euros. How much more does the book cost?"
QUIZ = f"Quiz for today: {SHELLS}"
LONGER = f"{SHELLS} Write down each of your steps in one short line."
HELDOUT = ["A bus carries 30 people and 4 get off. How many people are left?", SHELLS, BOOK]
NOT_HELD_OUT = [
    SHELLS.replace("12", "31"),  # the same sentence with another number
    "Max buys 12 pears and 5 plums. How much fruit is that?",  # the same numbers, another problem
    # the numbers of the book and the pen, exchanged
    "A book costs 5 euros and a pen costs 12 euros. How much more does the pen cost?",
]

rows_to_drop = exercise("02.1", "rows_to_drop", solution=correct_rows_to_drop)
rows_to_drop.case([NOT_HELD_OUT[0], SHELLS, BOOK], HELDOUT)
rows_to_drop.case([NOT_HELD_OUT[1], SHELLS.lower().replace(".", ",")], HELDOUT)
rows_to_drop.case([SHELLS.replace("Ana", "Ben"), NOT_HELD_OUT[0]], HELDOUT)  # another name
rows_to_drop.case(NOT_HELD_OUT, HELDOUT)
rows_to_drop.case([], HELDOUT)
rows_to_drop.case([QUIZ], HELDOUT)  # 80 % of the words in common
rows_to_drop.case([LONGER], HELDOUT)  # 55 %
rows_to_drop.case([SHELLS.replace("Ana", "Ben").replace("finds", "buys")], HELDOUT)  # 71 %


@rows_to_drop.mistake
def finds_unchanged_copies(train, heldout):
    """You found only copies that are equal letter by letter: compare numbers and words instead."""
    rows = []
    for row, question in enumerate(train):
        if question in heldout:
            rows.append(row)
    return rows


@rows_to_drop.mistake
def finds_copies_with_the_same_words(train, heldout):
    """You missed copies with another name: 80 % of the words in common are enough."""
    known = [read_question(question) for question in heldout]
    rows = []
    for row, question in enumerate(train):
        if read_question(question) in known:
            rows.append(row)
    return rows


@rows_to_drop.mistake
def compares_only_numbers(train, heldout):
    """You dropped other problems that happen to have the same numbers: compare the words too."""
    return rows_of_pairs(train, heldout, same_numbers=True, similar_words=False)


@rows_to_drop.mistake
def compares_only_words(train, heldout):
    """You dropped new problems from the same sentence: with other numbers it is another problem."""
    return rows_of_pairs(train, heldout, same_numbers=False, similar_words=True)


@rows_to_drop.mistake
def forgets_the_order_of_numbers(train, heldout):
    """You compared the numbers without their order: 12 - 5 and 5 - 12 are two problems."""
    rows = []
    for row, question in enumerate(train):
        numbers, words = read_question(question)
        for other in heldout:
            other_numbers, other_words = read_question(other)
            similar = len(words & other_words) >= 0.8 * len(words | other_words)
            if sorted(numbers) == sorted(other_numbers) and similar:
                rows.append(row)
                break
    return rows


@rows_to_drop.mistake
def divides_by_the_shorter_question(train, heldout):
    """You divided by the words of one question: divide by the number of words in either, so that
    a long question does not seem to repeat a short one.
    """
    rows = []
    for row, question in enumerate(train):
        numbers, words = read_question(question)
        for other in heldout:
            other_numbers, other_words = read_question(other)
            shorter = min(len(words), len(other_words))
            if numbers == other_numbers and len(words & other_words) >= 0.8 * shorter:
                rows.append(row)
                break
    return rows


@rows_to_drop.mistake
def returns_heldout_rows(train, heldout):
    """You returned rows of the held-out file: drop from the training file, so that the held-out
    file stays the same and scores remain comparable.
    """
    return correct_rows_to_drop(heldout, train)


# 02.2: the same problems with another prompt


def read_other_prompt(measured):
    """From the rates of right numbers, in any form, with the model's own and another prompt."""
    before = measured["before"]
    after = measured["after"]
    sentence = f"The number was right in {before:.0%} of the answers before and {after:.0%} after."
    kept = after / max(before, 1e-9)
    if kept > 0.8:  # of 160 answers, a change by a fifth may still be chance
        return "about as often", sentence
    if kept > 0.4:
        return "less often", sentence
    return "hardly ever", sentence


other_prompt = experiment(
    "02.2",
    "other_prompt",
    read=read_other_prompt,
    wrong={
        "about as often": "The prompt has changed too much: look at some answers to it.",
        "less often": "Compare the two prompts: which tokens are strange to the model?",
        "hardly ever": "The template of Qwen3 had strange tokens: which are strange here?",
    },
)
# the template of Qwen3, no system message, and the model's own template
other_prompt.example({"before": 0.7125, "after": 0.05625}, gives="hardly ever")
other_prompt.example({"before": 0.7125, "after": 0.5}, gives="less often")
other_prompt.example({"before": 0.7125, "after": 0.7125}, gives="about as often")

# 02.3: training on one problem


def read_one_problem(measured):
    """From the strict rates before and after, and each step's rate of zero-variance groups."""
    before = measured["before"]
    after = measured["after"]
    first_step, last_step = measured["zero"][0], measured["zero"][-1]
    noise = 0.11  # two standard errors of a difference of two rates of 160 problems, at most
    sentence = (
        f"Strictly right on other problems: {before:.0%} before, {after:.0%} after. In the last "
        f"step {last_step:.0%} of the groups had zero variance (in the first {first_step:.0%})."
    )
    return direction(after - before, noise), sentence


one_problem = experiment(
    "02.3",
    "one_problem",
    read=read_one_problem,
    wrong={
        "rises": "The model learned this one problem and nothing that helps with the rest.",
        "stays": "What one problem teaches need not be about that problem: look at the form.",
        "falls": (
            "The form is the same for all problems, and training stops once it is right everywhere."
        ),
    },
)
one_problem.example({"before": 0.1625, "after": 0.7, "zero": [0.0, 1.0]}, gives="rises")

# 02.4: rows for a task of the learner's own


def enough(rows):
    """Whether there are enough rows."""
    return len(rows) >= 64


def valid(rows):
    """Whether each row has a question and an answer that are texts."""
    from grpo_workbook.data import load_problems

    return len(load_problems(rows, answers="text")) == len(rows)


def distinct(rows):
    """Whether no row repeats another, or nearly so."""
    from grpo_workbook.data.duplicates import near_duplicates, same_questions

    questions = [row["question"] for row in rows]
    return not near_duplicates(questions) and not same_questions(questions)


def balanced(rows):
    """Whether no answer is right for more than a fifth of the rows."""
    counts = Counter(row["answer"] for row in rows)
    _, most = counts.most_common(1)[0]
    return 5 * most <= len(rows)


FACTS = {
    "64 rows or more": enough,
    "a question and an answer, both texts, in each row": valid,
    "no row repeats another, or nearly so": distinct,
    "no answer is right for more than a fifth": balanced,
}


def check_fact(function, fact):
    """Whether one of the facts holds of the learner's rows."""
    return FACTS[fact](function())


my_rows = exercise("02.4", "my_rows", call=check_fact)
for fact in FACTS:
    my_rows.case(fact, gives=True)


def additions(rows, numbers=1000):
    """So many additions of two different numbers below `numbers`, as (question, sum) pairs."""
    problems = []
    for seed in range(rows):
        a, b = random.Random(seed).sample(range(numbers), 2)
        problems.append((f"What is {a} plus {b}?", a + b))
    return problems


@my_rows.mistake
def makes_too_few_rows():
    """You have too few rows: a fifth of fewer than 64, held out, cannot measure a gain."""
    return [{"question": question, "answer": str(total)} for question, total in additions(20)]


@my_rows.mistake
def repeats_rows():
    """Rows repeat: sample without repetition, from a larger range of numbers or words."""
    problems = additions(64, numbers=6)
    return [{"question": question, "answer": str(total)} for question, total in problems]


@my_rows.mistake
def has_a_frequent_answer():
    """One answer is right too often: a model that always gives it earns a reward by luck."""
    rows = []
    for question, total in additions(64):
        answer = "yes" if total % 2 == 1 else "no"
        rows.append({"question": question, "answer": answer})
    return rows


@my_rows.mistake
def has_an_answer_that_is_no_text():
    """An answer is not a text: write numbers as texts too, as in a file."""
    return [{"question": question, "answer": ["yes"]} for question, _ in additions(64)]
