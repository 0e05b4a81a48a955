"""The exercises of notebook 00_start_here."""

from grpo_workbook.exercises import exercise

NOTEBOOK = "00_start_here"


def _teaches(rewards):
    return max(rewards) > min(rewards)


exercise(
    "00.1",
    "teaches",
    NOTEBOOK,
    [
        (([1.0, 1.0, 0.0, 0.0],), True), (([0.0, 0.0, 0.0, 0.0],), False),
        (([3.0, 3.0, 3.0],), False), (([-1.0, -1.0, 1.0, 1.0],), True), (([0.25, 0.5],), True),
        (([-1.0, -0.5],), True), (([-0.5, -0.5],), False),
    ],
    {
        "it is the other way round: equal rewards are what teaches nothing":
            lambda rewards: not _teaches(rewards),
        "you asked whether any answer earned something: a group that is right throughout teaches "
        "nothing either": lambda rewards: any(r > 0 for r in rewards),
        "you looked at the sum: advantages are differences from the mean, and the sum says nothing "
        "about those": lambda rewards: sum(rewards) != 0,
        "you asked for all rewards to differ: one that differs from the others is enough":
            lambda rewards: len(set(rewards)) == len(rewards),
    },
)  # fmt: skip


def _choose(pass_rate, pairs, good_answers):
    if pass_rate == 1:
        return "nothing"
    if pass_rate:
        return "GRPO"
    if pairs:
        return "DPO"
    return "SFT" if good_answers else "nothing"


exercise(
    "00.2",
    "choose_method",
    NOTEBOOK,
    [
        ((0.3, False, True), "GRPO"), ((0.3, True, True), "GRPO"), ((0.0, False, True), "SFT"),
        ((0.0, True, True), "DPO"), ((1.0, False, True), "nothing"),
        ((1.0, True, False), "nothing"), ((None, True, False), "DPO"), ((None, False, True), "SFT"),
        ((None, False, False), "nothing"), ((0.0, False, False), "nothing"),
    ],
    {
        "you took GRPO for a model that never passes: all its rewards are equal, and equal rewards "
        "teach nothing":
            lambda p, pairs, good: "GRPO" if p is not None and p < 1 else _choose(p, pairs, good),
        "you took GRPO for a model that always passes: there is nothing left to compare":
            lambda p, pairs, good: "GRPO" if p else _choose(p, pairs, good),
        "a model that passes always needs nothing, whatever else you have":
            lambda p, pairs, good: _choose(None if p == 1 else p, pairs, good),
        "you took SFT although there are pairs":
            lambda p, pairs, good: "SFT" if good and not p else _choose(p, pairs, good),
    },
)  # fmt: skip


def _models(method, beta, reward_model):
    if method == "SFT":
        return 1, 0
    if method == "DPO":
        return 1, 1
    return (2 if method == "PPO" else 1), int(beta > 0) + int(reward_model)


def _but(method, change):
    """The right answer, changed for one method: change(trained, frozen, beta, reward_model)."""

    def answer(asked, beta, reward_model):
        right = _models(asked, beta, reward_model)
        return change(*right, beta, reward_model) if asked == method else right

    return answer


exercise(
    "00.3",
    "models_in_memory",
    NOTEBOOK,
    [
        (("SFT", 0.0, False), (1, 0)), (("SFT", 0.1, True), (1, 0)), (("DPO", 0.1, False), (1, 1)),
        (("DPO", 0.0, True), (1, 1)), (("GRPO", 0.0, False), (1, 0)),
        (("GRPO", 0.04, False), (1, 1)), (("GRPO", 0.04, True), (1, 2)),
        (("PPO", 0.0, False), (2, 0)), (("PPO", 0.04, False), (2, 1)),
        (("PPO", 0.04, True), (2, 2)),
    ],
    {
        "you gave GRPO a reference although beta is 0: without a KL penalty nothing reads it":
            _but("GRPO", lambda trained, frozen, beta, model: (1, 1 + int(model))),
        "you gave GRPO a critic: the mean of the group takes its place":
            _but("GRPO", lambda trained, frozen, beta, model: (2, frozen)),
        "you forgot PPO's critic: it is a second model, and it is trained":
            _but("PPO", lambda trained, frozen, beta, model: (1, frozen)),
        "DPO compares with its reference always: its loss has no other form":
            _but("DPO", lambda trained, frozen, beta, model: (1, int(beta > 0))),
        "SFT and DPO use no reward model, and SFT no reference: what they learn from is in the "
        "data":
            lambda method, beta, model: (2 if method == "PPO" else 1, int(beta > 0) + int(model)),
    },
)  # fmt: skip
