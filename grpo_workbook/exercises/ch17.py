"""The exercises of notebook 17_capstone."""

from collections import Counter

from grpo_workbook.exercises.tasks import exercise, experiment, paired_direction
from grpo_workbook.rewards import answers, call, text_of

# 17.1: whole groups are held out

split_by_group = exercise("17.1", "split_by_group")
split_by_group.case(list("aabbbcc"), 2, gives=[5, 6])
split_by_group.case(list("aabbbcc"), 3, gives=[2, 3, 4, 5, 6])
# rows of a group that stand apart
split_by_group.case(list("abcabca"), 2, gives=[2, 5])
split_by_group.case(list("abcabca"), 3, gives=[1, 2, 4, 5])
split_by_group.case(list("abacad"), 2, gives=[3, 5])
# each row its own group
split_by_group.case(list("xyz"), 1, gives=[2])
# names that are not in their order
split_by_group.case(list("ccaab"), 1, gives=[4])
split_by_group.case(list("zazbaz"), 2, gives=[1, 3, 4])
# three groups
split_by_group.case(list("aabcdd"), 4, gives=[2, 3, 4, 5])


def in_order(groups):
    """Each group once, in the order of its first row."""
    return list(dict.fromkeys(groups))


def rows_of(group, groups):
    """The indices of the rows of a group."""
    return [row for row, name in enumerate(groups) if name == group]


def last_groups(order, groups, heldout):
    """The rows of the groups, from the last one of the order backwards, as they come."""
    rows = []
    for group in reversed(order):
        if len(rows) >= heldout:
            break
        rows.extend(rows_of(group, groups))
    return rows


@split_by_group.mistake
def holds_out_single_rows(groups, heldout):
    """You held out single rows: a group that stands on both sides leaks, so take all of it."""
    return list(range(len(groups) - heldout, len(groups)))


@split_by_group.mistake
def takes_neighbours_only(groups, heldout):
    """You took neighbours only: the rows of a group may stand apart, so compare the group of every
    row.
    """
    start = max(0, len(groups) - heldout)
    while start > 0 and groups[start - 1] == groups[start]:
        start -= 1
    return list(range(start, len(groups)))


@split_by_group.mistake
def takes_one_group_alone(groups, heldout):
    """You took the last group alone: go on until `heldout` rows are held out."""
    return sorted(last_groups(in_order(groups), groups, 1))


@split_by_group.mistake
def stops_too_early(groups, heldout):
    """You stopped before `heldout` rows were reached: that is the least number, so the last group
    comes in as a whole.
    """
    rows = []
    for group in reversed(in_order(groups)):
        group_rows = rows_of(group, groups)
        if len(rows) + len(group_rows) > heldout:
            break
        rows.extend(group_rows)
    return sorted(rows)


@split_by_group.mistake
def counts_groups(groups, heldout):
    """You counted groups: `heldout` is a number of rows."""
    last_groups = in_order(groups)[-heldout:]
    return [row for row, name in enumerate(groups) if name in last_groups]


@split_by_group.mistake
def begins_with_the_first_group(groups, heldout):
    """You began with the first group: the groups go from the last one backwards."""
    rows = []
    for group in in_order(groups):
        if len(rows) >= heldout:
            break
        rows.extend(rows_of(group, groups))
    return sorted(rows)


@split_by_group.mistake
def sorts_the_names(groups, heldout):
    """You sorted the groups by their names: their order is that of their first rows."""
    return sorted(last_groups(sorted(set(groups)), groups, heldout))


@split_by_group.mistake
def orders_by_the_last_row(groups, heldout):
    """You ordered the groups by their last row: take the order of their first rows."""
    order = list(dict.fromkeys(reversed(groups)))
    return sorted(last_groups(order[::-1], groups, heldout))


@split_by_group.mistake
def does_not_sort_the_rows(groups, heldout):
    """You returned the rows group by group: sort them, so that they ascend."""
    return last_groups(in_order(groups), groups, heldout)


@split_by_group.mistake
def returns_the_training_rows(groups, heldout):
    """You returned the rows that are left for training: return the others."""
    heldout_rows = last_groups(in_order(groups), groups, heldout)
    return [row for row in range(len(groups)) if row not in heldout_rows]


@split_by_group.mistake
def takes_one_group_too_many(groups, heldout):
    """You took one group too many: stop as soon as `heldout` rows are held out."""
    rows = []
    for group in reversed(in_order(groups)):
        if len(rows) > heldout:
            break
        rows.extend(rows_of(group, groups))
    return sorted(rows)


# 17.2: a reward of the learner's own, attacked with the learner's own rows


def values_of(reward, rows, texts):
    """What each text earns in its row, called as TRL calls a reward."""
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    prompts = [[{"role": "user", "content": row["question"]}] for row in rows]
    values = call(reward, texts, prompt=prompts, **columns)
    return [value or 0.0 for value in values]


def examine(function):
    """What must hold of the learner's project, from its reward, its rows and its honest texts."""
    reward, rows, honest_text = function()
    honest = [honest_text(row) for row in rows]
    honest_values = values_of(reward, rows, honest)
    all_values = list(honest_values)  # those of the attacks are added below

    def earn_less(cheats):
        """Whether each cheat that is not itself honest earns clearly less than the honest text."""
        cheat_values = values_of(reward, rows, cheats)
        all_values.extend(cheat_values)
        for row in range(len(rows)):
            most_allowed = 0.9 * honest_values[row]
            if cheats[row] != honest[row] and not cheat_values[row] <= most_allowed:
                return False
        return True

    others = honest[1:] + honest[:1]  # the honest text of another row
    all_answers = list(dict.fromkeys(str(row["answer"]) for row in rows))
    stands_there = True  # otherwise the hedges and blanks below would be the honest texts
    hedges = []  # all answers in the place of one, in the honest form
    blanks = []  # no answer in its place
    for row, text in zip(rows, honest, strict=True):
        answer = str(row["answer"])
        stands_there = stands_there and answer in text
        hedges.append(text.replace(answer, ", ".join(all_answers)))
        blanks.append(text.replace(answer, ""))
    # All attacks come before the results, because their values must be between -1 and 1 as well.
    other_row_earns_less = earn_less(others)
    list_earns_less = earn_less(["\n".join(all_answers)] * len(rows))
    hedge_earns_less = earn_less(hedges)
    blank_earns_less = earn_less(blanks)
    first_earns_less = True  # the honest text, and then another one
    last_earns_less = True
    for space in (" ", "\n"):
        first = [f"{text}{space}{other}" for text, other in zip(honest, others, strict=True)]
        last = [f"{other}{space}{text}" for text, other in zip(honest, others, strict=True)]
        first_earns_less = earn_less(first) and first_earns_less
        last_earns_less = earn_less(last) and last_earns_less
    repetition_earns_less = earn_less([f"{text}\n" * 5 for text in honest])
    question_earns_less = earn_less([row["question"] for row in rows])
    nothing_earns_less = earn_less([""] * len(rows))
    _, most = Counter(honest).most_common(1)[0]
    return {
        # the rows and the honest texts
        "at least eight rows": len(rows) >= 8,
        "every honest text earns": all(value > 0 for value in honest_values),
        "every value is between -1 and 1": all(-1 <= value <= 1 for value in all_values),
        "no text is right in more than half of the rows": 2 * most <= len(rows),
        "the answer stands in the honest text": stands_there,
        # the attacks
        "the honest text of another row earns less": other_row_earns_less,
        "all answers in a list earn less": list_earns_less,
        "all answers in the place of one earn less": hedge_earns_less,
        "the form without an answer earns less": blank_earns_less,
        "the honest text before another one earns less": first_earns_less,
        "the honest text behind another one earns less": last_earns_less,
        "the same text five times earns less": repetition_earns_less,
        "the question earns less": question_earns_less,
        "nothing earns less": nothing_earns_less,
    }


my_project = exercise("17.2", "my_project", call=examine)
my_project.case(
    gives={
        "at least eight rows": True,
        "every honest text earns": True,
        "every value is between -1 and 1": True,
        "no text is right in more than half of the rows": True,
        "the answer stands in the honest text": True,
        "the honest text of another row earns less": True,
        "all answers in a list earn less": True,
        "all answers in the place of one earn less": True,
        "the form without an answer earns less": True,
        "the honest text before another one earns less": True,
        "the honest text behind another one earns less": True,
        "the same text five times earns less": True,
        "the question earns less": True,
        "nothing earns less": True,
    }
)


def project(pays, golds, form="{}"):
    """A project with these answers in this form, whose reward is `pays(text, answer)` for each
    completion.
    """

    def reward(completions, answer, **columns):
        rewards = []
        for completion, gold in zip(completions, answer, strict=True):
            text = text_of(completion).strip()
            rewards.append(float(pays(text, gold)))
        return rewards

    def honest_text(row):
        return form.format(row["answer"])

    rows = []
    for number, gold in enumerate(golds, 1):
        rows.append({"question": f"Which is number {number}?", "answer": gold})
    return reward, rows, honest_text


NINE_ITEMS = [f"item {number}" for number in range(1, 10)]


def is_exact(text, gold):
    """Whether the text is the answer."""
    return text == gold


@my_project.mistake
def pays_a_list():
    """Your reward finds the answer anywhere in the text: a list of all answers earns as much, so
    read one marked place and refuse a text that has two.
    """

    def contains(text, gold):
        return gold in text

    return project(contains, NINE_ITEMS)


@my_project.mistake
def pays_the_end():
    """Your reward looks at the end of the text alone: two answers, one after the other, earn as
    much as one.
    """
    return project(str.endswith, NINE_ITEMS)


@my_project.mistake
def pays_the_form():
    """Your reward pays the form: the honest text of another row has the same form and another
    answer. Compare with the row's `answer`.
    """

    def looks_like_an_item(text, gold):
        return text.startswith("item") and len(text) < 8

    return project(looks_like_an_item, NINE_ITEMS)


@my_project.mistake
def pays_every_text():
    """Your reward pays every text alike, or nearly: print what an empty completion earns. An attack
    may earn at most nine tenths of the honest text's reward.
    """

    def always(text, gold):
        return True

    return project(always, NINE_ITEMS)


@my_project.mistake
def pays_nothing():
    """Your reward pays nothing for an honest text: with chat prompts a completion is a list with
    one message, and its text is in [0]["content"].
    """

    def never(text, gold):
        return False

    return project(never, NINE_ITEMS)


@my_project.mistake
def pays_too_much():
    """Your reward is not unit-scaled: keep it between -1 and 1 for every text, a wrong one as well,
    and put its size in the weight.
    """

    def five(text, gold):
        return 5.0 * (text == gold)

    return project(five, NINE_ITEMS)


@my_project.mistake
def has_one_frequent_answer():
    """One text is right in more than half of your rows: a policy that always says it needs no
    skill, so balance the rows.
    """
    return project(is_exact, ["no"] + ["yes"] * 8)


@my_project.mistake
def has_too_few_rows():
    """You have fewer than eight rows: take them from your file, as different as they come."""
    return project(is_exact, NINE_ITEMS[:5])


@my_project.mistake
def looks_inside_the_marked_place():
    """Your reward looks for the answer anywhere inside the marked place: all answers there, one
    after the other, earn as much as the right one. Compare the whole place with the answer.
    """

    def contains(text, gold):
        block = answers.tagged_answer(text)
        return block is not None and gold in block

    return project(contains, NINE_ITEMS, "<answer>{}</answer>")


@my_project.mistake
def pays_the_beginning():
    """Your reward looks at the beginning of the text alone: a right answer with others behind it
    earns as much, so refuse whatever follows.
    """
    return project(str.startswith, NINE_ITEMS)


@my_project.mistake
def pays_a_piece():
    """Your reward asks whether the text is a part of the answer: an empty answer is part of every
    one. Compare the whole text with the answer.
    """

    def is_a_piece(text, gold):
        return text.startswith("answer:") and text[7:].strip() in gold

    return project(is_a_piece, NINE_ITEMS, "answer: {}")


@my_project.mistake
def writes_the_answer_differently():
    """In your honest texts the answer is written in another way than in the rows, as 1,200 is for
    1200. The check cannot replace it there, so write both alike.
    """

    def has_a_comma(text, gold):
        return text == f"{gold:,}"

    return project(has_a_comma, range(1200, 1209), "{:,}")


# 17.3: which sentences the intervals of a gain carry


def judged(gains):
    """{number of the sentence: whether it holds}."""
    holds = {}
    low, _ = gains["together"]
    holds[1] = low > 0
    new_low, _ = gains["new"]
    holds[2] = new_low > 0
    _, form_high = gains["form"]
    holds[3] = form_high < 3
    _, sharpening_high = gains["sharpening"]
    holds[4] = new_low > sharpening_high
    return holds


def claims_of(holds):
    """The numbers of the sentences that hold."""
    return [number for number in holds if holds[number]]


def correct_may_claim(gains):
    """The solution."""
    return claims_of(judged(gains))


def intervals(form, sharpening, new, together):
    """The argument of `may_claim`."""
    return {"form": form, "sharpening": sharpening, "new": new, "together": together}


may_claim = exercise("17.3", "may_claim", solution=correct_may_claim)
# the parts overlap; none of 120 problems shows form
may_claim.case(intervals((-2.5, 2.5), (8.3, 17.8), (11.7, 23.4), (23.3, 36.1)), gives=[1, 2, 3])
# the same with none of 60 problems
may_claim.case(intervals((-4.9, 4.9), (6.4, 19.7), (9.3, 25.8), (20.8, 38.6)), gives=[1, 2])
# a gain in form is not shown, and neither is its absence
may_claim.case(intervals((-1.0, 8.0), (2.0, 9.0), (-2.0, 7.0), (4.0, 18.0)), gives=[1])
# the parts are far apart
may_claim.case(intervals((4.0, 9.0), (-1.0, 3.0), (6.0, 15.0), (11.0, 24.0)), gives=[1, 2, 4])
# nothing was shown
may_claim.case(intervals((-4.0, 6.0), (-3.0, 5.0), (-2.0, 4.0), (-3.0, 9.0)), gives=[])
# the accuracy fell
may_claim.case(intervals((-20.0, -9.0), (-4.0, 2.0), (-3.0, 1.0), (-22.0, -8.0)), gives=[3])
# the form fell by less than the rest rose; the middle of "together" is above 0
may_claim.case(intervals((-9.0, 2.0), (1.0, 6.0), (0.5, 5.0), (-1.0, 9.0)), gives=[2, 3])
# the accuracy changed in one direction, and an interval begins at 0
may_claim.case(intervals((3.0, 8.0), (0.0, 4.0), (0.0, 6.0), (5.0, 16.0)), gives=[1])


def middle(interval):
    """The middle of an interval."""
    low, high = interval
    return (low + high) / 2


# new is above 0 and sharpening is not; they still overlap
may_claim.case(intervals((0.0, 1.0), (-1.0, 9.0), (2.0, 20.0), (4.0, 28.0)), gives=[1, 2, 3])
# ends that are exactly at the border: 3 is not less than 3, and 4 is not more than 4
may_claim.case(intervals((-2.0, 3.0), (1.0, 4.0), (4.0, 9.0), (5.0, 14.0)), gives=[1, 2])


@may_claim.mistake
def takes_the_middles(gains):
    """You judged by the middle of each interval: a sentence on a card has to hold at the end that
    is worst for it.
    """
    new_middle = middle(gains["new"])
    holds = {1: middle(gains["together"]) > 0}
    holds[2] = new_middle > 0
    holds[3] = middle(gains["form"]) < 3
    holds[4] = new_middle > middle(gains["sharpening"])
    return claims_of(holds)


@may_claim.mistake
def takes_not_shown_for_none(gains):
    """You took "not shown" for "none" in sentence 3: an interval from -1 to 8 contains 0, and 8
    points of form as well. Its upper end has to be below 3.
    """
    holds = judged(gains)
    low, _ = gains["form"]
    holds[3] = low <= 0
    return claims_of(holds)


@may_claim.mistake
def compares_the_middles(gains):
    """In sentence 4 you compared the middles of two intervals that overlap: then the order of the
    true values is open.
    """
    holds = judged(gains)
    holds[4] = middle(gains["new"]) > middle(gains["sharpening"])
    return claims_of(holds)


@may_claim.mistake
def compares_the_low_ends(gains):
    """In sentence 4 you compared the lower ends: sharpening may still lie at its upper end, so
    compare the lower end of one with the upper end of the other.
    """
    holds = judged(gains)
    new_low, _ = gains["new"]
    sharpening_low, _ = gains["sharpening"]
    holds[4] = new_low > sharpening_low
    return claims_of(holds)


@may_claim.mistake
def takes_any_change_for_a_rise(gains):
    """You took any change for a rise: an interval that lies below 0 shows a fall."""
    holds = judged(gains)
    low, high = gains["together"]
    holds[1] = low > 0 or high < 0
    return claims_of(holds)


@may_claim.mistake
def reads_new_from_the_whole(gains):
    """You read sentence 2 from the whole gain: it can be form and sharpening alone."""
    holds = judged(gains)
    holds[2] = holds[1]
    return claims_of(holds)


@may_claim.mistake
def looks_for_a_size_of_form(gains):
    """In sentence 3 you took the size: a loss in form is less than 3 points of gain, too."""
    holds = judged(gains)
    low, high = gains["form"]
    holds[3] = max(abs(low), abs(high)) < 3
    return claims_of(holds)


@may_claim.mistake
def takes_the_upper_ends(gains):
    """You looked at the upper ends in sentences 1 and 2: they show how much is possible. What holds
    in the whole interval is decided at its lower end.
    """
    holds = judged(gains)
    for number, part in ((1, "together"), (2, "new")):
        _, high = gains[part]
        holds[number] = high > 0
    return claims_of(holds)


@may_claim.mistake
def lets_zero_pass(gains):
    """An interval that begins at 0 contains 0, "no gain": the lower end has to be above 0."""
    holds = judged(gains)
    for number, part in ((1, "together"), (2, "new")):
        low, _ = gains[part]
        holds[number] = low >= 0
    return claims_of(holds)


@may_claim.mistake
def takes_shown_against_not_shown(gains):
    """In sentence 4 you asked which part was shown: new is above 0 and sharpening perhaps is not,
    but sharpening may still lie at its upper end. That one is shown and the other is not does
    not show that they differ.
    """
    holds = judged(gains)
    new_low, _ = gains["new"]
    sharpening_low, _ = gains["sharpening"]
    holds[4] = new_low > 0 and sharpening_low <= 0
    return claims_of(holds)


# 17.4: two evaluations of the same problems


def read_few_rows(measured):
    """From what was strictly right in two runs: the change, if one was shown."""
    change, sentence = paired_direction(measured["before"], measured["after"])
    names = {"rises": "higher", "stays": "no difference", "falls": "lower"}
    return names[change], sentence


def evaluations(stayed, better, worse, never):
    """What was right before and after, with so many problems of each sort."""
    before = [True] * stayed + [False] * better + [True] * worse + [False] * never
    after = [True] * (stayed + better) + [False] * (worse + never)
    return {"before": before, "after": after}


few_rows = experiment(
    "17.4",
    "few_rows",
    read=read_few_rows,
    wrong={
        "lower": (
            "The few problems taught as much as all of them did, as they do where the gain is "
            "mostly form."
        ),
        "no difference": (
            "The few problems were learned by heart, or lack what the others have: see what the "
            "wrong answers have in common."
        ),
        "higher": (
            "A part of the problems teaches nothing that all of them do not: suspect chance or "
            "the seed."
        ),
    },
)
few_rows.example(evaluations(49, 3, 42, 26), gives="lower")
