"""The exercises of notebook 02_dataset_prep."""

import random
from collections import Counter

from grpo_workbook.exercises.tasks import direction, exercise, experiment

# 02.1: the score without the leaked problems

honest_score = exercise("02.1", "honest_score")
honest_score.case(0.5, 0.0, gives=0.5)
honest_score.case(0.55, 0.1, gives=0.5)
honest_score.case(0.6, 0.5, gives=0.2)
honest_score.case(0.25, 0.25, gives=0.0)  # only the leaks were right
honest_score.case(1.0, 0.3, gives=1.0)
honest_score.case(1.0, 1.0, raises=ValueError)
honest_score.case(0.9, -0.1, raises=ValueError)


def check_rate(leaked_rate):
    """Raise ValueError for a rate of leaks that leaves no honest problem, or is none."""
    if not 0 <= leaked_rate < 1:
        raise ValueError(f"a leaked rate of {leaked_rate}")


@honest_score.mistake
def subtracts_only(measured, leaked_rate):
    """You only subtracted the leaked points: the remaining points come from fewer problems, so
    divide by the fraction of those.
    """
    check_rate(leaked_rate)
    return measured - leaked_rate


@honest_score.mistake
def scales_the_whole_score(measured, leaked_rate):
    """You scaled the whole score down: only the leaked problems' points are undeserved."""
    check_rate(leaked_rate)
    return measured * (1 - leaked_rate)


@honest_score.mistake
def lets_an_impossible_rate_through(measured, leaked_rate):
    """You accepted an impossible rate: below 0 there is none, and from 1 on no honest problem is
    left. Raise ValueError.
    """
    if leaked_rate == 1:
        return 0.0
    return (measured - leaked_rate) / (1 - leaked_rate)


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
        "about as often": "A small model misses a sentence that was always there in its training.",
        "less often": (
            "Look at some answers to both prompts: how far is the new one from those of training?"
        ),
        "hardly ever": "This change was not so far from what the model was trained on.",
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
    """You have too few rows: with fewer than 64 a model memorizes them."""
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
