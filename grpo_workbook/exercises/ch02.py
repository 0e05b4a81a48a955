"""The exercises of notebook 02_dataset_prep."""

import random
import re
from collections import Counter
from math import comb

from grpo_workbook.exercises.tasks import direction, exercise, experiment

# 02.1: a row for TRL from a problem whose solution boxes the answer

SYSTEM = "Give the number inside <answer> tags."
BOX = "\\boxed{"


def as_row(problem, system, answer):
    """The row of a problem with this answer."""
    messages = [
        {"role": "system", "content": system},
        {"role": "user", "content": problem["problem"]},
    ]
    return {"prompt": messages, "answer": answer}


def content_of_box(text):
    """The content of the last box, or None if there is none or if it is empty or not closed."""
    start = text.rfind(BOX)
    if start < 0:
        return None
    depth = 0
    content = text[start + len(BOX) :]
    for place, character in enumerate(content):
        if character == "{":
            depth += 1
        if character == "}" and depth == 0:
            answer = content[:place].strip()
            return answer if answer else None
        if character == "}":
            depth -= 1
    return None


def correct_row_of(problem, system):
    """The solution."""
    answer = content_of_box(problem["solution"])
    if answer is None or not problem["problem"].strip():
        return None
    return as_row(problem, system, answer)


def noisy_problem(seed):
    """A problem whose solution has a box on the way, many numbers, and a remark with braces."""
    rng = random.Random(seed)
    first, second, third = rng.sample(range(10, 99), 3)
    solution = (
        f"First ${first} + {second} = \\boxed{{{first + second}}}$. Then $3^{{{third}}}$ is left, "
        f"so the answer is $\\boxed{{\\frac{{{first + second}}}{{3^{{{third}}}}}}}$, "
        f"as on page {third} of the set {{{first}, {second}}}."
    )
    return {"problem": f"Divide {first} + {second} by $3^{{{third}}}$.", "solution": solution}


def call_row_of(function, problem, system):
    """The learner's row; a prompt that has the solution in it is reported as such."""
    row = function(problem, system)
    if row is None or isinstance(row["prompt"], str):
        return row
    for message in row["prompt"]:
        if problem["solution"] in message["content"]:
            return "the prompt has the solution"
    return row


row_of = exercise("02.1", "row_of", solution=correct_row_of, call=call_row_of)
row_of.case({"problem": "What is 3 + 4?", "solution": "It is $\\boxed{7}$."}, SYSTEM)
row_of.case({"problem": "Half of 9?", "solution": "So \\boxed{ \\frac{9}{2} }, not 9."}, SYSTEM)
row_of.case(
    {"problem": "Twice 3, plus 4?", "solution": "\\boxed{6} is twice 3. Then \\boxed{10}."}, SYSTEM
)
row_of.case({"problem": "A prime?", "solution": "\\boxed{3} is one of {3, 5, 7}."}, SYSTEM)
row_of.case({"problem": "What is 5 - 9?", "solution": "It is -4."}, SYSTEM, gives=None)
row_of.case({"problem": "The sum?", "solution": "It is \\boxed{\\frac{1}{2}"}, SYSTEM, gives=None)
open_box = "\\boxed{6} first, then \\boxed{10"
row_of.case({"problem": "The sum?", "solution": open_box}, SYSTEM, gives=None)
row_of.case({"problem": " \n", "solution": "It is \\boxed{5}."}, SYSTEM, gives=None)
empty_box = "\\boxed{6} first, then \\boxed{ }."
row_of.case({"problem": "The sum?", "solution": empty_box}, SYSTEM, gives=None)
for seed in range(5):
    row_of.case(noisy_problem(seed), SYSTEM)


@row_of.mistake
def shows_the_solution(problem, system):
    """The solution stands in your prompt: the model would copy the answer and learn nothing."""
    row = correct_row_of(problem, system)
    if row is None:
        return None
    worked = f"{problem['problem']}\n{problem['solution']}"
    return as_row({"problem": worked}, system, row["answer"])


@row_of.mistake
def leaves_out_the_system_message(problem, system):
    """Your prompt has no system message, so nobody tells the model which form the reward wants."""
    row = correct_row_of(problem, system)
    if row is None:
        return None
    return {"prompt": row["prompt"][1:], "answer": row["answer"]}


@row_of.mistake
def keeps_rows_without_an_answer(problem, system):
    """You kept a row that has no answer, or no question: no reward can check it, so return None."""
    answer = content_of_box(problem["solution"])
    if answer is None:
        answer = ""
    return as_row(problem, system, answer)


@row_of.mistake
def takes_the_first_box(problem, system):
    """You took the first box: a solution may box a result on its way, so take the last one."""
    place = problem["solution"].find(BOX, problem["solution"].find(BOX) + 1)
    if place >= 0:
        problem = {**problem, "solution": problem["solution"][:place]}
    return correct_row_of(problem, system)


@row_of.mistake
def stops_at_the_first_brace(problem, system):
    """You stopped at the first closing brace: a fraction has braces of its own, so count them."""
    boxes = re.findall(r"\\boxed\{(.*?)\}", problem["solution"])
    if not boxes or not boxes[-1].strip() or not problem["problem"].strip():
        return None
    return as_row(problem, system, boxes[-1].strip())


@row_of.mistake
def runs_to_the_last_brace(problem, system):
    """You ran to the last closing brace of the text: stop at the one that closes the box."""
    boxes = re.findall(r".*\\boxed\{(.*)\}", problem["solution"])
    if not boxes or not boxes[-1].strip() or not problem["problem"].strip():
        return None
    return as_row(problem, system, boxes[-1].strip())


@row_of.mistake
def takes_the_last_number(problem, system):
    """You took the last number of the solution: text may follow the answer, so read the box."""
    numbers = re.findall(r"-?\d+", problem["solution"])
    if not numbers or not problem["problem"].strip():
        return None
    return as_row(problem, system, numbers[-1])


@row_of.mistake
def keeps_spaces_around_the_answer(problem, system):
    """The answer has spaces around it: strip them, or a comparison letter by letter fails."""
    row = correct_row_of(problem, system)
    if row is None:
        return None
    box = problem["solution"].rpartition(BOX)[2]
    leading = len(box) - len(box.lstrip())
    spaces = box[:leading]
    answer = row["answer"]
    return {"prompt": row["prompt"], "answer": f"{spaces}{answer}{spaces}"}


@row_of.mistake
def gives_a_text_as_prompt(problem, system):
    """Your prompt is a text: give a list of two messages, each with a role and a content."""
    row = correct_row_of(problem, system)
    if row is None:
        return None
    return {"prompt": problem["problem"], "answer": row["answer"]}


@row_of.mistake
def keeps_blank_problems(problem, system):
    """You kept a row whose problem is blank: the model would have nothing to answer."""
    answer = content_of_box(problem["solution"])
    if answer is None:
        return None
    return as_row(problem, system, answer)


@row_of.mistake
def puts_the_question_first(problem, system):
    """The messages are in the wrong order: the system message comes first."""
    row = correct_row_of(problem, system)
    if row is None:
        return None
    return {"prompt": row["prompt"][::-1], "answer": row["answer"]}


@row_of.mistake
def keeps_the_box(problem, system):
    """The box itself is in your answer: keep only its content."""
    row = correct_row_of(problem, system)
    if row is None:
        return None
    return {"prompt": row["prompt"], "answer": f"{BOX}{row['answer']}}}"}


@row_of.mistake
def takes_a_box_that_is_not_closed(problem, system):
    """You took an earlier box although the last one is never closed: such a solution was cut off,
    so its answer is unknown.
    """
    if not problem["problem"].strip():
        return None
    solution = problem["solution"]
    answer = content_of_box(solution)
    if answer is None:
        answer = content_of_box(solution.rpartition(BOX)[0])
    if answer is None:
        return None
    return as_row(problem, system, answer)


@row_of.mistake
def keeps_an_empty_box(problem, system):
    """You kept a row whose last box is empty: no reward can check it, so return None."""
    row = correct_row_of(problem, system)
    place = problem["solution"].rfind(BOX)
    if row is None and problem["problem"].strip() and place >= 0:
        content, closed, _ = problem["solution"][place + len(BOX) :].partition("}")
        if closed and not content.strip():
            return as_row(problem, system, "")
    return row


# 02.2: which groups of a given size can teach?


def correct_mixed_groups(right, tries, size):
    """The solution."""
    expected = 0.0
    for count in right:
        equal = comb(count, size) + comb(tries - count, size)
        expected += 1 - equal / comb(tries, size)
    return expected / len(right)


def noisy_counts(seed, problems, tries):
    """The right answers to problems of all rates of success, as chance gives them."""
    rng = random.Random(seed)
    counts = []
    for _ in range(problems):
        rate = rng.random()
        counts.append(sum(rng.random() < rate for _ in range(tries)))
    return counts


mixed_groups = exercise("02.2", "mixed_groups", solution=correct_mixed_groups)
mixed_groups.case([2], 4, 2, gives=4 / 6)  # 6 pairs of tries, 4 of them mixed
mixed_groups.case([8, 0], 8, 4, gives=0.0)  # a mean rate of one half, and nothing to learn
mixed_groups.case([1, 8, 8, 8], 8, 8, gives=0.25)
mixed_groups.case([7, 7], 8, 4, gives=0.5)
mixed_groups.case([1, 1], 8, 4, gives=0.5)
mixed_groups.case(noisy_counts(0, 60, 16), 16, 8)
mixed_groups.case(noisy_counts(1, 60, 8), 8, 3)


@mixed_groups.mistake
def averages_the_rates_first(right, tries, size):
    """You averaged the rates of the problems first. Problems that are never right and problems that
    are always right then look like problems of middling difficulty: average at the end.
    """
    rate = sum(right) / len(right) / tries
    return 1 - rate**size - (1 - rate) ** size


@mixed_groups.mistake
def draws_with_replacement(right, tries, size):
    """You took the measured rate for the true one, as if a try could be drawn twice: with few tries
    this finds too few mixed groups, so draw each try at most once.
    """
    expected = 0.0
    for count in right:
        rate = count / tries
        expected += 1 - rate**size - (1 - rate) ** size
    return expected / len(right)


@mixed_groups.mistake
def counts_mixed_problems(right, tries, size):
    """You counted the problems with a right and a wrong try: a group that is smaller than the
    number of tries misses some of these.
    """
    return sum(0 < count < tries for count in right) / len(right)


@mixed_groups.mistake
def forgets_groups_that_are_all_right(right, tries, size):
    """You left out the groups that are all right: they teach as little as groups that are all
    wrong.
    """
    expected = 0.0
    for count in right:
        expected += 1 - comb(tries - count, size) / comb(tries, size)
    return expected / len(right)


@mixed_groups.mistake
def forgets_groups_that_are_all_wrong(right, tries, size):
    """You left out the groups that are all wrong: they teach as little as groups that are all
    right.
    """
    expected = 0.0
    for count in right:
        expected += 1 - comb(count, size) / comb(tries, size)
    return expected / len(right)


@mixed_groups.mistake
def gives_the_groups_that_are_not_mixed(right, tries, size):
    """You gave the fraction of groups that are all right or all wrong: give that of the others."""
    return 1 - correct_mixed_groups(right, tries, size)


@mixed_groups.mistake
def adds_up_the_problems(right, tries, size):
    """You added up the problems: give the mean over them."""
    return correct_mixed_groups(right, tries, size) * len(right)


@mixed_groups.mistake
def gives_percent(right, tries, size):
    """You gave percent: give a fraction from 0 to 1."""
    return 100 * correct_mixed_groups(right, tries, size)


@mixed_groups.mistake
def asks_for_one_wrong_answer(right, tries, size):
    """You counted every problem with a wrong try: a group that is all wrong teaches nothing, and
    a small group may miss the wrong try.
    """
    return sum(count < tries for count in right) / len(right)


@mixed_groups.mistake
def divides_by_the_tries(right, tries, size):
    """You divided by the number of tries: the mean is over the problems."""
    return correct_mixed_groups(right, tries, size) * len(right) / tries


# 02.3: the training rows that are held out too


def read_question(question):
    """The numbers and signs of a question in order, and the set of its words."""
    return re.findall(r"\d+|[-+*/]", question), set(re.findall(r"[a-z]+", question.lower()))


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


SENTENCES = [
    "{name} has {a} red shells and finds {b} more. How many red shells are there now?",
    "A shop sold {a} tickets in the morning, and {name} bought {b} of them. How many are left?",
    "{name} reads {a} pages on each of {b} days of a holiday. How many pages is that in all?",
    "A ribbon of {a} metres is cut by {name} so that {b} metres remain. How long is the piece?",
    "There are {a} chairs here, but {name} counts {b} guests. How many more chairs than guests?",
    "{name} packs {a} pears into each box and fills {b} boxes today. How many pears are packed?",
]
NAMES = ["Ana", "Ben", "Cleo", "Dan", "Eva", "Finn"]


def disguise(question, name, rng):
    """A copy of a question with another name or a word more, and with other signs or capitals."""
    change = rng.choice(["name", "word", "neither"])
    if change == "name":
        question = question.replace(name, rng.choice([n for n in NAMES if n != name]))
    if change == "word":
        question = f"Quiz: {question}"
    look = rng.choice(["capitals", "no signs", "unchanged"])
    if look == "capitals":
        return question.upper()
    if look == "no signs":
        return re.sub(r"[.,:?]", "", question)
    return question


def noisy_files(seed):
    """(training questions, held-out questions, the rows of the disguised copies)."""
    rng = random.Random(seed)
    numbers = range(10, 100)
    heldout = []
    train = []  # (question, whether it is a copy)
    for _ in range(20):
        a, b, c, d = sorted(rng.sample(numbers, 4), reverse=True)
        name = rng.choice(NAMES)
        sentence = rng.randrange(len(SENTENCES))
        other = SENTENCES[(sentence + 1) % len(SENTENCES)]
        question = SENTENCES[sentence].format(name=name, a=a, b=b)
        heldout.append(question)
        another_problem = other.format(name=name, a=a, b=b)
        train.append((another_problem, False))
        other_numbers = SENTENCES[sentence].format(name=name, a=c, b=d)
        train.append((other_numbers, False))
        if rng.random() < 0.5:
            train.append((disguise(question, name, rng), True))
    rng.shuffle(train)
    rows = [row for row, (_, is_copy) in enumerate(train) if is_copy]
    return [question for question, _ in train], heldout, rows


SHELLS = "Ana has 12 red shells and finds 5 more. How many red shells does Ana have now?"
BOOK = "A book costs 12 euros and a pen costs 5 euros. How much more does the book cost?"
HELDOUT = ["A bus carries 30 people and 4 get off. How many people are left?", SHELLS, BOOK]
NOT_HELD_OUT = [
    SHELLS.replace("12", "31"),  # the same sentence with another number
    "Max buys 12 pears and 5 plums. How much fruit is that?",  # the same numbers, another problem
    # the numbers of the book and the pen, exchanged
    "A book costs 5 euros and a pen costs 12 euros. How much more does the pen cost?",
]

rows_to_drop = exercise("02.3", "rows_to_drop", solution=correct_rows_to_drop)
rows_to_drop.case([NOT_HELD_OUT[0], SHELLS, BOOK], HELDOUT, gives=[1, 2])
rows_to_drop.case([NOT_HELD_OUT[1], SHELLS.lower().replace(".", ",")], HELDOUT, gives=[1])
rows_to_drop.case([SHELLS.replace("Ana", "Ben"), NOT_HELD_OUT[0]], HELDOUT, gives=[0])
rows_to_drop.case([NOT_HELD_OUT[0], f"Quiz: {SHELLS}"], HELDOUT, gives=[1])
rows_to_drop.case(NOT_HELD_OUT, HELDOUT, gives=[])
rows_to_drop.case([], HELDOUT, gives=[])
rows_to_drop.case(["What is 4 + 1?"], ["What is 4 - 1?"], gives=[])
for seed in range(3):
    train_questions, heldout_questions, copies = noisy_files(seed)
    rows_to_drop.case(train_questions, heldout_questions, gives=copies)


@rows_to_drop.mistake
def finds_unchanged_copies(train, heldout):
    """You found only copies that are equal letter by letter: compare numbers and words instead."""
    rows = []
    for row, question in enumerate(train):
        if question in heldout:
            rows.append(row)
    return rows


@rows_to_drop.mistake
def ignores_only_capitals(train, heldout):
    """You ignored capitals but not the punctuation: compare words and numbers, not whole texts."""
    known = [question.lower() for question in heldout]
    rows = []
    for row, question in enumerate(train):
        if question.lower() in known:
            rows.append(row)
    return rows


@rows_to_drop.mistake
def finds_copies_with_the_same_words(train, heldout):
    """You missed copies with another name or with a word more: ask for most of the words, not for
    all of them.
    """
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
def returns_heldout_rows(train, heldout):
    """You returned rows of the held-out file: drop from the training file, so that the held-out
    file stays the same and scores remain comparable.
    """
    return correct_rows_to_drop(heldout, train)


@rows_to_drop.mistake
def returns_questions(train, heldout):
    """You returned questions: return their indices in the training file."""
    return [train[row] for row in correct_rows_to_drop(train, heldout)]


@rows_to_drop.mistake
def returns_rows_to_keep(train, heldout):
    """You returned the rows to keep: return those that are held out too."""
    leaked = correct_rows_to_drop(train, heldout)
    return [row for row in range(len(train)) if row not in leaked]


@rows_to_drop.mistake
def compares_capitals(train, heldout):
    """You compared capitals with small letters: make both questions lower case first."""
    rows = []
    for row in correct_rows_to_drop(train, heldout):
        words = re.findall(r"[a-z]+", train[row])
        for question in heldout:
            known = re.findall(r"[a-z]+", question)
            if len(set(words) & set(known)) >= 0.8 * len(set(words) | set(known)):
                rows.append(row)
                break
    return rows


@rows_to_drop.mistake
def counts_from_1(train, heldout):
    """You counted from 1: the first row has the index 0."""
    return [row + 1 for row in correct_rows_to_drop(train, heldout)]


@rows_to_drop.mistake
def ignores_signs(train, heldout):
    """You compared numbers and words only: 4 + 1 and 4 - 1 are two problems."""
    return correct_rows_to_drop(without_signs(train), without_signs(heldout))


def without_signs(questions):
    """The questions without their arithmetic signs."""
    return [re.sub(r"[-+*/]", " ", question) for question in questions]


# 02.4: training on one problem


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
    "02.4",
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

# 02.5: rows for a task of the learner's own, for training and held out


def enough(train, heldout):
    """Whether there are enough rows to train on and to measure with."""
    return min(len(train), len(heldout)) >= 64


def valid(train, heldout):
    """Whether each row has a question and an answer that are texts."""
    from grpo_workbook.data import load_problems

    rows = [*train, *heldout]
    return len(load_problems(rows, answers="text")) == len(rows)


def distinct(train, heldout):
    """Whether no row repeats another of its list, or nearly so."""
    from grpo_workbook.data.duplicates import near_duplicates, same_questions

    for rows in (train, heldout):
        questions = [row["question"] for row in rows]
        if near_duplicates(questions) or same_questions(questions):
            return False
    return True


def without_leaks(train, heldout):
    """Whether no training row is held out too, or nearly so."""
    from grpo_workbook.data.duplicates import near_duplicates, same_questions

    questions = [row["question"] for row in train]
    others = [row["question"] for row in heldout]
    return not near_duplicates(questions, others) and not same_questions(questions, others)


def balanced(train, heldout):
    """Whether no answer is right for more than a fifth of the rows of a list."""
    for rows in (train, heldout):
        counts = Counter(row["answer"] for row in rows)
        _, most = counts.most_common(1)[0]
        if 5 * most > len(rows):
            return False
    return True


def without_the_answer(train, heldout):
    """Whether at most half of the questions of a list end with their answers; a few may."""
    for rows in (train, heldout):
        given_away = 0
        for row in rows:
            question = row["question"].strip(" .!?")
            answer = str(row["answer"]).strip()
            if question.endswith(answer):
                given_away += 1
        if 2 * given_away > len(rows):
            return False
    return True


FACTS = {
    "64 rows or more to train on, and 64 or more held out": enough,
    "a question and an answer, both texts, in each row": valid,
    "no row repeats another of its list, or nearly so": distinct,
    "no training row is held out too, or nearly so": without_leaks,
    "no answer is right for more than a fifth of a list": balanced,
    "at most half of the questions of a list end with their answers": without_the_answer,
}
SAME = "the same rows each time"


def check_fact(function, fact):
    """Whether one of the facts holds of the learner's rows."""
    train, heldout = function()
    if fact == SAME:
        return function() == (train, heldout)
    return FACTS[fact](train, heldout)


my_rows = exercise("02.5", "my_rows", call=check_fact)
for fact in [*FACTS, SAME]:
    my_rows.case(fact, gives=True)


def sums_of(rng, rows, numbers=1000):
    """So many additions of two different numbers below `numbers`, as rows."""
    made = []
    for _ in range(rows):
        a, b = rng.sample(range(numbers), 2)
        made.append({"question": f"What is {a} plus {b}?", "answer": str(a + b)})
    return made


@my_rows.mistake
def makes_too_few_rows():
    """You have too few rows: fewer than 64 held out cannot measure a gain, and a few to train on
    are soon solved.
    """
    rows = sums_of(random.Random(0), 80)
    return rows[:64], rows[64:]


@my_rows.mistake
def repeats_rows():
    """Rows repeat within a list, or nearly so: sample without repetition, from a larger range.
    Rows without numbers that differ in one word of a long sentence count as repeats, too.
    """
    rng = random.Random(0)
    return sums_of(rng, 64, numbers=7), sums_of(rng, 64)


@my_rows.mistake
def holds_out_training_rows():
    """Some training rows are held out too: make all rows first, without repeats, and then divide
    them.
    """
    rows = sums_of(random.Random(0), 120)
    return rows[:64], rows[56:]


@my_rows.mistake
def has_a_frequent_answer():
    """One answer is right too often: a model that always gives it earns a reward by luck."""
    rows = []
    for row in sums_of(random.Random(0), 128):
        answer = "yes" if int(row["answer"]) % 2 == 1 else "no"
        rows.append({"question": row["question"], "answer": answer})
    return rows[:64], rows[64:]


@my_rows.mistake
def has_an_answer_that_is_no_text():
    """An answer is not a text: write numbers as texts too, as in a file."""
    rows = []
    for row in sums_of(random.Random(0), 128):
        rows.append({"question": row["question"], "answer": [row["answer"]]})
    return rows[:64], rows[64:]


@my_rows.mistake
def makes_other_rows_each_time():
    """Your rows are others each time, so nobody can repeat your measurement: use random.Random with
    a seed.
    """
    rows = sums_of(random.Random(), 128, numbers=100_000)
    return rows[:64], rows[64:]


@my_rows.mistake
def writes_the_answer_into_the_question():
    """Your questions end with their answers: the model only has to copy them."""
    rows = []
    for row in sums_of(random.Random(0), 128):
        question = f"{row['question']} It is {row['answer']}."
        rows.append({"question": question, "answer": row["answer"]})
    return rows[:64], rows[64:]
