import pytest

from grpo_workbook.shaping import debug, length, overlong, reasoning_steps, repetition, style


def chat(text):
    return [{"role": "assistant", "content": text}]


def test_length_in_words_and_in_tokens():
    reward = length(4)
    assert reward(["a b c d", "a b", "", "a b c d e f", "a " * 8, "a " * 9]) == [
        1.0,
        0.5,
        0.0,
        0.5,
        0.0,
        0.0,
    ]
    assert reward([chat("a b c d")]) == [1.0]
    assert reward(["whatever"] * 3, completion_ids=[[1] * 4, [1], []]) == [1.0, 0.25, 0.0]


@pytest.mark.parametrize(
    ("tokens", "penalty"), [(0, 0), (80, 0), (85, -0.25), (90, -0.5), (100, -1), (5000, -1)]
)
def test_overlong_is_dapos_equation_13(tokens, penalty):
    assert overlong(100, 20)(["x"], completion_ids=[[7] * tokens]) == [penalty]
    assert overlong(100)(["x " * tokens]) == [penalty]


def test_overlong_agrees_with_trls_own():
    rewards = pytest.importorskip("trl.rewards")
    theirs = rewards.get_soft_overlong_punishment(max_completion_len=50, soft_punish_cache=10)
    ids = [[1] * n for n in range(0, 70)]
    assert overlong(50, 10)([""] * 70, completion_ids=ids) == pytest.approx(
        theirs(completion_ids=ids)
    )


def test_repetition():
    reward = repetition(2)
    assert reward(["a b c d", "", "one", "a b a b a b", "A b a B"]) == [
        0.0,
        0.0,
        0.0,
        pytest.approx(-3 / 5),
        pytest.approx(-1 / 3),
    ]
    assert -1.0 <= reward(["so " * 10_000])[0] < -0.99


def test_style():
    reward = style(["sure!", "as an ai"], cost=0.4)
    assert reward(["42", "Sure! 42", "Sure! As an AI ...", "sure! sure! sure!"]) == [
        0.0,
        -0.4,
        -0.8,
        -0.4,
    ]
    assert style(["a", "b", "c"])(["abc"]) == [-1.0]


@pytest.mark.parametrize(
    ("inside", "reward"),
    [
        ("6*7=42\n42 + 1 = 43", 1.0),
        ("6*7=42", 0.5),
        ("6*7=42, 6*7=42, 6*7=42", 0.5),  # the same one again
        ("6*7=41\n42+1=44", 0.0),
        ("6*7=421", 0.0),
        ("first, then, therefore, hence, because", 0.0),
        ("2+3*4=14\n10/4=2.5", 1.0),
        ("3+4+5=12", 0.5),
        ("1/0=0", 0.0),
        ("5 x 3 = 15 and 15 - 20 = -5", 1.0),
        ("42", 0.0),
        ("", 0.0),
    ],
)
def test_reasoning_steps_are_true_equations(inside, reward):
    assert reasoning_steps(2)([f"<reasoning>{inside}</reasoning><answer>42</answer>"]) == [reward]
    assert reasoning_steps(2)([inside]) == [0.0]  # outside of the block nothing counts


def test_debug_prints_a_sample_now_and_then_and_never_counts():
    said = []
    reward = debug(every=2, say=said.append)
    prompts = [[{"role": "user", "content": "6*7?"}]] * 2
    for _ in range(5):
        assert reward([chat("it is 42"), chat("41")], prompts=prompts, answer=["42", "42"]) == [
            0.0,
            0.0,
        ]
    assert reward([]) == []
    assert len(said) == 3
    assert all(word in said[1] for word in ("call 3", "6*7?", "it is 42", "right: 42"))
    debug(say=said.append)(["a text, with nothing beside it"])
    assert "right: not given" in said[-1]


@pytest.mark.parametrize(
    "make",
    [
        lambda: length(0),
        lambda: overlong(10, 11),
        lambda: overlong(10, 0),
        lambda: repetition(0),
        lambda: style([]),
        lambda: style(cost=2),
        lambda: reasoning_steps(0),
        lambda: debug(0),
    ],
)
def test_bad_settings_are_refused(make):
    with pytest.raises(ValueError, match="give"):
        make()


def test_the_same_step_in_other_writing_and_steps_without_work_earn_nothing():
    def share(steps):
        return reasoning_steps(4)(completions=[f"<reasoning>{steps}</reasoning>"])

    assert share("2+2=4 2 + 2 = 4 2+2=4.0 02+2=4") == [0.25]
    assert share("2*3=6 3*2=6 3x2=6 2*3*1=6 2*3+0=6") == [0.25]
    assert share("1*1=1 1/1=1 0+0=0 1-0=1 1+1=2 5+0=5 5*1=5 5/1=5 0*7=0") == [0.0]
    assert share("4-2=2 100-50=50 16/4=4 4*16=64") == [1.0]


def test_a_printed_sample_cannot_steer_the_terminal():
    said = []
    reward = debug(1, said.append)
    prompt = [{"role": "user", "content": [{"type": "text", "text": "how many?\x07"}]}]
    assert reward(completions=["\x1b[2Ja\nb\u202e"], prompts=[prompt]) == [0.0]
    assert said == ["--- call 1: how many?\\x07\n\\x1b[2Ja\nb\\u202e\n--- right: not given"]
