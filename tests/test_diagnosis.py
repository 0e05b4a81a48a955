"""The diagnosis, on logs of real runs, as benchmarks/diagnosis.py recorded them."""

import itertools
import json
import math
import sys
from dataclasses import replace

import numpy as np
import pytest
from conftest import REPO, assert_names, cli, raises_naming

from grpo_workbook.cli import main
from grpo_workbook.diagnosis import as_text, diagnose, read_run
from grpo_workbook.diagnosis.findings import CATALOGUE, DATA, SEVERE, WARNING
from grpo_workbook.diagnosis.report import in_order, unjudged
from grpo_workbook.errors import WorkbookError
from grpo_workbook.exercises import CLINIC, judge
from grpo_workbook.rewards import correctness_reward

sys.path.insert(0, str(REPO / "benchmarks"))
from diagnosis import CASES, named, outcome

LOGS = REPO / "tests" / "diagnosis_logs"
SICK = [
    (n, s)
    for n, c in CASES.items()
    for s in c.seeds
    if c.expected and (LOGS / f"{n}_{s}.json").is_file()
]
HEALTHY = [
    (n, s)
    for n, c in CASES.items()
    for s in c.seeds
    if not c.expected and (LOGS / f"{n}_{s}.json").is_file()
]
# Held-out runs that the rules, set on seed 0, do not name rightly; kept as they are, for honesty.
MISSED = {}
OTHER_CAUSES = (
    "stopped",
    "empty",
    "no_reward",
    "kl_too_high",
    "reward_flat",
    "reference_differs",
    "never_pays",
    "always_pays",
    "sampler_differs",
    "lengths_grow",
    "generation_slow",
    "saturated",
    "thoughts_open",
    "too_short",
    "healthy",
)


def test_the_recorded_runs_are_many_and_small():
    assert len({n for n, _ in SICK}) >= 16
    assert len(HEALTHY) >= 10
    assert sum(p.stat().st_size for p in LOGS.iterdir()) < 600_000
    for path in LOGS.glob("*.json"):
        about = json.loads(path.read_text())
        assert path.stem in about["run"]
        assert about["why"]


@pytest.mark.parametrize(("name", "seed"), SICK)
def test_a_sick_run_is_named_by_its_disease(name, seed):
    assert named(LOGS / f"{name}_{seed}.json") == MISSED.get((name, seed), CASES[name].expected)


def test_at_least_95_in_100_are_named_on_held_out_seeds_too():
    for chosen in ([r for r in SICK if r[1] == 0], [r for r in SICK if r[1] != 0]):
        assert len(chosen) >= 16
        assert sum(r not in MISSED for r in chosen) >= 0.95 * len(chosen)


@pytest.mark.parametrize(("name", "seed"), HEALTHY)
def test_a_healthy_run_is_never_accused_at_any_step(name, seed):
    named_at = outcome(LOGS / f"{name}_{seed}.json")
    assert named_at["alarms"] == []
    assert named_at["named"] == "healthy"


def test_loss_near_0_is_explained_only_without_a_kl_penalty():
    plain, tied = (diagnose(LOGS / f"{n}.json")[0] for n in ("healthy_0", "healthy_beta_0"))
    assert "normal here, because beta is 0" in plain.means
    assert "includes the KL penalty" in tied.means


def test_healthy_is_proved_by_groups_that_differ_and_not_by_the_spread_of_the_batch():
    """TRL's reward_std is the whole batch's: it is large where no group differs."""
    (first,) = diagnose(history(reward_std=lambda s: 0.0))
    assert first.name == "healthy"
    assert "frac_reward_zero_std" in {e.metric for e in first.evidence}
    assert "reward_std" not in {e.metric for e in first.evidence}
    alone = diagnose([{"step": s, "reward": 0.1 * s, "grad_norm": 0.2} for s in range(1, 15)])[0]
    assert "grad_norm" in {e.metric for e in alone.evidence}
    flat = history(24, reward=lambda s: 0.5 + 0.01 * (s % 2), frac_reward_zero_std=lambda s: 1.0)
    assert diagnose([e | {"grad_norm": 0.0} for e in flat])[0].name == "no_gradient"


@pytest.mark.parametrize(
    ("mean", "std", "expected"),
    [
        (0.5, 0.4, "drowned"),  # half learned, and not heard
        (0.95, 0.2, "healthy"),  # mastered: its spread fell because it is satisfied
        (-0.05, 0.2, "healthy"),  # a penalty that is hardly ever due
        (-0.6, 0.4, "drowned"),  # one that is often due
        (-0.1, 1.0, "drowned"),  # pays -1 or 1, half each
    ],
)
def test_a_mastered_reward_is_not_drowned(mean, std, expected):
    """`correctness:2,strict_format:0.5` after a stage that taught the format is no disease."""
    form = {
        "rewards__form_reward__mean": lambda s: mean + 0.001 * (s % 2),
        "rewards__form_reward__std": lambda s: std,
    }
    weights = {"correctness_reward": 8 * std if expected == "drowned" else 2.0, "form_reward": 0.5}
    log = {"log": history(**form), "settings": {"reward_weights": weights}}
    assert diagnose(log)[0].name == expected


@pytest.mark.parametrize(("full", "expected"), [(1.0, "healthy"), (0.6, "drowned")])
def test_a_reward_that_was_mastered_later_was_not_drowned(full, expected):
    form = {
        "rewards__form_reward__mean": lambda s: min(full, 0.1 * s),
        "rewards__form_reward__std": lambda s: 0.3 if s < 10 else 0.1,
        "rewards__correctness_reward__std": lambda s: 6.0,
    }
    assert diagnose(history(24, **form))[0].name == expected


def test_findings_say_all_that_is_needed():
    for name, seed in SICK:
        first = diagnose(LOGS / f"{name}_{seed}.json")[0]
        assert first.step >= 1
        assert first.evidence
        assert {type(e.value) for e in first.evidence} <= {float, str}  # what a checkpoint keeps
        assert len(first.means) > 30
        assert len(first.do) > 30
    assert {c.expected for c in CASES.values()} - {None} == set(CATALOGUE) - set(OTHER_CAUSES)
    assert all(len(entry.symptom) > 10 for entry in CATALOGUE.values())
    assert all(len(bound["reason"]) > 20 for bound in DATA["thresholds"].values())


def test_no_two_findings_explain_each_other_away():
    explains = {a: set(entry.explains) for a, entry in CATALOGUE.items()}
    assert set().union(*explains.values()) <= set(CATALOGUE)
    assert [
        (a, b)
        for a, b in itertools.permutations(CATALOGUE, 2)
        if b in explains[a] and a in explains[b]
    ] == []
    findings = [
        f for log in ("rate_times_100_0", "wrong_sign_0") for f in diagnose(LOGS / f"{log}.json")
    ]
    assert in_order(findings)[0].name == "rate_too_high"


def test_a_rate_too_high_shows_in_the_gradient_where_the_adapters_change_is_not_logged():
    run = read_run(LOGS / "rate_times_100_0.json")
    (finding,) = diagnose(replace(run, table=run.table.drop(columns="adapter/change")))
    assert finding.name == "rate_too_high"
    assert finding.evidence[0].metric == "grad_norm"


def test_empty_completions_show_in_their_length_where_they_are_not_counted():
    run = read_run(LOGS / "healthy_0.json")
    table = run.table.drop(columns="completions/empty_fraction")
    table.loc[10:, "completions/mean_length"] = 1.0  # the end token alone
    (finding,) = diagnose(replace(run, table=table))
    assert (finding.name, finding.step) == ("empty", 10)


def history(steps=12, **metrics):
    """A log history as TRL writes it, of a run that rises; `more`: metric -> function of a step."""
    entries = []
    for step in range(1, steps + 1):
        right = 0.2 + 0.05 * step
        entry = {
            "step": step,
            "reward": right + 0.01 * (step % 2),
            "reward_std": 0.4,
            "loss": 0.01 * (step % 3),
        }
        entry |= {
            "rewards/correctness_reward/mean": right,
            "rewards/correctness_reward/std": 0.4,
            "grad_norm": 0.2,
        }
        entry |= {"frac_reward_zero_std": 0.1, "completions/mean_length": 30.0}
        entries.append(entry | {k.replace("__", "/"): f(step) for k, f in metrics.items()})
    return entries


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({"completions__empty_fraction": lambda s: 0.9}, "empty"),
        ({"grad_norm": lambda s: math.nan if s > 8 else 0.2}, "nan"),
        ({"memory__fraction": lambda s: 0.95 if s > 6 else 0.4}, "memory"),
        ({"kl": lambda s: 0.3 * s, "entropy": lambda s: 0.3}, "kl_too_high"),
        ({"rewards__correctness_reward__mean": lambda s: math.nan}, "reward_nan"),
    ],
)
def test_what_no_recorded_run_shows_is_found_too(metrics, expected):
    assert diagnose(history(**metrics))[0].name == expected


RATIO, DIFFERENCE = (
    "sampling__importance_sampling_ratio__mean",
    "sampling__sampling_logp_difference__mean",
)


@pytest.mark.parametrize(
    ("ratio", "difference", "differs"),
    [
        (0.04, 0.21, True),  # TRL issue 4772: nearly all completions are dropped
        (0.05, 0.02, True),
        (2.6, 0.02, True),
        (1.0, 0.3, True),
        (0.55, 0.01, False),  # long completions, programs that agree
        (1.0, 0.012, False),
        (0.0, 0.0, False),  # as Unsloth logs it where nothing was measured
    ],
)
def test_a_sampler_that_disagrees_with_the_trainer_is_named(ratio, difference, differs):
    names = {
        f.name
        for f in diagnose(history(24, **{RATIO: lambda s: ratio, DIFFERENCE: lambda s: difference}))
    }
    assert ("sampler_differs" in names) == differs


def test_a_function_that_is_constant_above_its_least_is_named():
    def named(value, deviation=0.0):
        parts = {"rewards__json_reward__mean": value}
        parts["rewards__json_reward__std"] = lambda s: deviation
        return {f.name: f.evidence[0].metric for f in diagnose(history(30, **parts))}

    assert named(lambda s: 1.0)["always_pays"] == "rewards/json_reward/mean"
    assert "always_pays" not in named(lambda s: 1.0 - 0.5 * (s == 3))
    assert "always_pays" not in named(lambda s: 0.0)
    # the same mean in every step, and yet some completions earned more than others
    assert "always_pays" not in named(lambda s: 0.76, deviation=0.43)


def test_lengths_that_grow_tenfold_are_named_and_are_a_note_while_the_reward_rises():
    def grown(**rewards):
        lengths = {"completions__mean_length": lambda s: 150 * 12.7 ** ((s - 1) / 119)}
        return {f.name: f.severity for f in diagnose(real(**lengths, **rewards))}

    assert grown()["lengths_grow"] == WARNING
    assert grown(reward=lambda s: 0.01 * s + math.sin(7.3 * s))["lengths_grow"] == "note"
    doubled = diagnose(real(completions__mean_length=lambda s: 150 + 2 * s))
    assert "lengths_grow" not in {f.name for f in doubled}


def test_thoughts_that_never_close_are_named_with_their_cause():
    level = {"reward": lambda s: 0.1, "rewards__correctness_reward__mean": lambda s: 0.1}
    limit = {"thoughts__unclosed": lambda s: 0.8, "completions__clipped_ratio": lambda s: 0.8}
    run = read_run(history(40, **level, **limit), settings={"max_completion_length": 36})
    (finding,) = diagnose(run)
    assert (finding.name, finding.severity) == ("thoughts_open", "severe")
    assert_names(finding.evidence[1].threshold, "limit")
    assert_names(finding.do, "max_completion_length is 36", "72")
    limit["completions__clipped_ratio"] = lambda s: 0.0
    ended = history(40, **level, **limit)
    assert_names(diagnose(ended)[0].evidence[1].threshold, "end")
    # Thoughts that were learned to be closed, and a run without thoughts.
    closing = history(40, thoughts__unclosed=lambda s: 0.9 - 0.02 * s)
    assert "thoughts_open" not in {finding.name for finding in diagnose(closing)}
    assert not [gap for gap in unjudged(read_run(history(40))) if "thoughts" in gap["metric"]]


def test_a_few_steps_without_a_gradient_are_no_fault_of_a_run_near_its_maximum():
    """Its first groups were all right, and so were most of the later ones."""
    norms = {"grad_norm": lambda s: 0.0 if s <= 3 else 0.1, "reward_std": lambda s: 0.1}
    near = {"reward": lambda s: 0.93 + 0.05 * (s % 2), "frac_reward_zero_std": lambda s: 0.9}
    parts = {"rewards__correctness_reward__mean": lambda s: 0.93 + 0.05 * (s % 2)}
    assert diagnose(history(60, **norms, **near, **parts))[0].name == "healthy"
    norms["grad_norm"] = lambda s: 0.0
    assert diagnose(history(60, **norms, **near, **parts))[0].name == "no_gradient"


def test_a_reference_that_differs_does_not_hide_that_the_reward_is_flat():
    names = {f.name for f in diagnose(real(kl=lambda s: 0.4))}
    assert {"reference_differs", "reward_flat"} <= names


def unscored(steps, missing):
    """A run as TRL 1.15 logs it if all functions return None in some steps."""
    names = ("reward", "reward_std", "rewards/correctness_reward/mean")
    lost = dict.fromkeys(names)
    return [e | lost if e["step"] in missing else e for e in history(steps)]


def test_steps_in_which_no_reward_applied_are_counted():
    run = read_run(unscored(24, {7, 8, 15}))
    first, finding = diagnose(run)
    assert (first.name, finding.name, finding.severity) == ("healthy", "no_reward", "note")
    assert (finding.step, finding.evidence[0].value) == (7, "3 of 24")
    assert "rows in which no reward applied 3 of 24" in as_text([finding])
    assert "no function judges" in finding.do
    assert diagnose(history(24))[-1].name != "no_reward"


@pytest.mark.parametrize("missing", [range(1, 25, 2), range(1, 25)])
def test_a_run_that_hardly_any_reward_judges_is_severe(missing):
    finding = diagnose(unscored(24, set(missing)))[0]
    assert (finding.name, finding.severity) == ("no_reward", SEVERE)


def test_slow_generation_is_a_note_beside_healthy():
    findings = diagnose(history(time__generation_fraction=lambda s: 0.95))
    assert [f.name for f in findings] == ["healthy", "generation_slow"]


def test_the_clinics_answers_are_what_the_diagnosis_says():
    def answer(letter):
        return diagnose(LOGS / f"{CLINIC[letter]}.json")[0].name

    assert len(CLINIC) == 6
    assert judge("05.2", answer).status == "solved"


def test_few_steps_are_not_called_healthy():
    assert diagnose(history(4))[0].name == "too_short"


def test_the_same_from_every_place(tmp_path):
    """A log history, trainer_state.json, a checkpoint, TRL's folder and one of ours read alike."""
    entries = history()
    state = {"log_history": [*entries, {"step": 12, "train_runtime": 9.0}], "max_steps": 12}
    checkpoint = tmp_path / "out" / "checkpoint-12"
    checkpoint.mkdir(parents=True)
    (checkpoint / "trainer_state.json").write_text(json.dumps(state))
    (older := tmp_path / "out" / "checkpoint-6").mkdir()
    (older / "trainer_state.json").write_text(json.dumps({"log_history": entries[:6]}))
    (ours := tmp_path / "ours").mkdir()
    (ours / "log.json").write_text(json.dumps(entries))
    (tmp_path / "mine.py").write_text(
        f"open({str(tmp_path / 'was run')!r}, 'w')\ndef f(**kwargs): ...\n"
    )
    settings = {"beta": 0.0, "rewards": f"{tmp_path / 'mine.py'}:f:2", "max_steps": 12}
    weights_and_roles = {
        "reward_weights": {"f": 2.0},
        "reward_roles": {"f": "correctness", "g": None},
    }
    (ours / "run.json").write_text(json.dumps({"settings": settings, **weights_and_roles}))
    expected = read_run(entries).table["reward"]
    for place in (state, checkpoint / "trainer_state.json", checkpoint, tmp_path / "out", ours):
        assert read_run(place).table["reward"].equals(expected), place
    assert read_run(ours).settings["reward_weights"] == {"f": 2.0}
    assert read_run(ours).settings["beta"] == 0.0
    assert read_run(ours).settings["reward_roles"] == {"f": "correctness", "g": None}
    assert not (tmp_path / "was run").exists(), (
        "to read a log must not run the file of rewards that it names"
    )


def test_names_of_the_gpu_log_are_understood():
    entries = [
        {("completion_length" if k == "completions/mean_length" else k): v for k, v in e.items()}
        for e in history()
    ]
    assert list(read_run(entries).table["completions/mean_length"]) == [30.0] * 12


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.json")), ids=lambda p: p.stem)
def test_a_run_is_called_the_same_where_unsloths_gpu_trainer_has_logged_it(path):
    """It logs no entropy, a KL of 0 where there is no penalty, and the length by its own name."""
    here = read_run(path)
    table = here.table.drop(columns=["entropy"], errors="ignore")
    table = table.rename(columns={"completions/mean_length": "completion_length"})
    table["kl"] = table.get("kl", 0.0)
    entries = [{"step": step} | dict(row.dropna()) for step, row in table.iterrows()]
    known = {"settings": here.settings, "log_history": entries}
    names = [f.name for f in diagnose(here)]
    if here.error is None and not here.broken:  # those end another way than by a log
        assert [f.name for f in diagnose(read_run(known))] == names


def diagnosed(capsys, *arguments):
    """(exit status, output, errors) of the command line, in this process."""
    status = main(["diagnose", *map(str, arguments)])
    return status, *capsys.readouterr()


def test_a_figure_is_written_with_its_text_alternative(tmp_path, capsys):
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": history(25)}))
    diagnosed(capsys, tmp_path, "--figure", tmp_path / "health.png")
    assert (tmp_path / "health.png").read_bytes()[:4] == b"\x89PNG"
    assert "total from" in (tmp_path / "health.txt").read_text()


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ('{"log_history": [{"step": 1, "rew', "log_history"),
        ('{"epochs": 3}', "trainer_state.json"),
        ("[1, 2]", "trainer_state.json"),
        ('[{"step": "third", "reward": 1.0}]', "'third'"),
        ("[]", "trainer_state.json"),
        ('[{"step": 1, "loss": 2.0, "mean_token_accuracy": 0.5}]', "mean_token_accuracy"),
        ('[{"step": 1, "objective/rlhf_reward": 2.0}]', "objective/rlhf_reward"),
    ],
)
def test_bad_logs_are_refused_with_a_reason(tmp_path, content, named):
    path = tmp_path / "trainer_state.json"
    path.write_text(content)
    with raises_naming(WorkbookError, named):
        read_run(path)


def test_a_folder_without_a_log_and_no_folder(tmp_path):
    with raises_naming(WorkbookError, tmp_path.name):
        read_run(tmp_path)
    with raises_naming(WorkbookError, "nowhere"):
        read_run(tmp_path / "nowhere")


def test_the_command_line(capsys):
    sick = cli("diagnose", LOGS / "four_tokens_0.json")
    assert sick.returncode == 1
    assert "SEVERE  truncated, steps 1 to 30" in sick.stdout
    assert max(map(len, sick.stdout.splitlines())) <= 80
    status, _, _ = diagnosed(capsys, LOGS / "healthy_0.json")
    assert status == 0
    status, _, errors = diagnosed(capsys, "nowhere")
    assert status == 2
    assert "nowhere" in errors


def test_what_a_log_says_of_an_error_cannot_clear_the_screen():
    run = read_run([{"step": 1, "reward": 0.5}, {"step": 2, "error": "Oops: \x1b[2J gone"}])
    text = as_text(diagnose(run), run)
    assert "\\x1b[2J gone" in text
    assert "\x1b" not in text


def test_runs_without_tools_are_not_asked_about_calls_and_one_without_watch_is():
    tools = {name for name, entry in CATALOGUE.items() if "tools/lost_results" in entry.needs}
    assert tools == {"results_lost", "turns_used_up"}
    plain = unjudged(read_run(history(30)))
    acting = unjudged(read_run(history(30, tools__call_frequency=lambda s: 1)))
    assert not [gap for gap in plain if "tools" in gap["metric"]]
    others, missing = [gap for gap in acting if "tools" in gap["metric"]]
    assert (others["metric"], others["findings"]) == ("tools/broken", ["tool_down"])
    assert set(missing["findings"]) == tools
    assert_names(missing["remedy"], "watch", "tools/lost_results")
    for path in LOGS.glob("*.json"):
        run = read_run(path)
        table = run.table.drop(columns=run.table.filter(like="tools/").columns)
        findings = {f.name for f in diagnose(replace(run, table=table))}
        assert not findings & (tools | {"tool_down", "calls_fail", "calls_die", "calls_explode"})


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        # what TRL logs is enough for these two
        ({"tools__failure_frequency": lambda s: 0.8, "reward": lambda s: 0.1}, "calls_fail"),
        ({"tools__call_frequency": lambda s: 1.0 if s < 20 else 0.1, "reward": lambda s: 0.1},
         "calls_die"),
        # more calls and a reward that rises, or few calls and all right: nothing is wrong
        ({"tools__call_frequency": lambda s: 0.2 * s}, None),
        ({"tools__call_frequency": lambda s: 1.0 if s < 20 else 0.1, "reward": lambda s: 0.95},
         None),
    ],
)  # fmt: skip
def test_calls_are_judged_by_what_trl_logs_and_by_right_answers(metrics, expected):
    names = [
        f.name for f in diagnose(history(30, **{"tools__call_frequency": lambda s: 1} | metrics))
    ]
    ours = {"tool_down", "calls_fail", "calls_die", "calls_explode", "results_lost"}
    assert [n for n in names if n in ours] == ([expected] if expected else [])


def test_calls_that_explode_are_seen_by_what_trl_logs_unless_more_answers_are_right():
    run = read_run(LOGS / "paid_calls_0.json")
    trls = ("tools/call_frequency", "tools/failure_frequency")
    ours = [name for name in run.table.filter(like="tools/") if name not in trls]
    alone = replace(run, table=run.table.drop(columns=ours))
    assert diagnose(alone)[0].name == "calls_explode"
    better = alone.table.assign(**{"rewards/answer_reward/mean": run.table.index / 24})
    assert "calls_explode" not in {f.name for f in diagnose(replace(alone, table=better))}


def names_hide_roles(kind):
    """A sick run whose reward functions' names say nothing, told with and without roles."""
    about = json.loads((LOGS / f"{kind}_0.json").read_text())
    renamed, roles = {}, {}
    for number, (name, role) in enumerate(about["settings"]["reward_roles"].items()):
        renamed[name], roles[f"f{number}"] = f"f{number}", role
    text = json.dumps(about["log"])
    for name, new in renamed.items():
        text = text.replace(f"rewards/{name}/", f"rewards/{new}/")
    weights = {renamed[n]: w for n, w in about["settings"].pop("reward_weights").items()}
    settings = about["settings"] | {"reward_weights": weights or None}
    log = {"log": json.loads(text), "settings": settings | {"reward_roles": roles}}
    return log, {**log, "settings": settings | {"reward_roles": {}}}


@pytest.mark.parametrize("kind", ["wrong_answers", "free_form"])
def test_roles_come_from_the_attribute_and_not_from_names(kind):
    log, without_roles = names_hide_roles(kind)
    assert diagnose(log)[0].name == CASES[kind].expected
    assert diagnose(without_roles)[0].name != CASES[kind].expected
    assert "correctness" in {gap["metric"] for gap in unjudged(read_run(without_roles))}
    assert "correctness" not in {gap["metric"] for gap in unjudged(read_run(log))}
    text = as_text(diagnose(without_roles), read_run(without_roles))
    assert "which reward judges the answer" in " ".join(text.split())


def test_functions_say_their_roles():
    run = read_run(history(), [correctness_reward])
    assert run.settings == {"reward_roles": {"correctness_reward": "correctness"}}
    assert read_run(history()).settings == {}


def test_severities_are_known():
    assert {entry.severity for entry in CATALOGUE.values()} == {SEVERE, WARNING, "note", "fine"}


def real(steps=120, settings=None, **metrics):
    """A log as a GPU run writes it: rewards of -2 to 3, noise, no rise; `more` as for history."""
    noise = [math.sin(7.3 * s) + math.sin(1.7 * s * s) for s in range(steps + 1)]
    entries = []
    for step in range(1, steps + 1):
        reward = 0.5 + 0.5 * noise[step]
        entry = {"step": step, "reward": reward, "reward_std": 0.8, "grad_norm": 0.3}
        for name, value_at in metrics.items():
            entry[name.replace("__", "/")] = value_at(step)
        entries.append(entry)
    return {"log_history": entries, "settings": settings or {}}


def first(log, **options):
    return diagnose(log, **options)[0].name


def test_a_level_reward_is_flat_after_half_of_the_planned_steps_and_a_slow_rise_is_not():
    assert first(real()) == "reward_flat"
    assert first(real(30)) == "too_short"
    assert first(real(60, {"max_steps": 1000}), live=True) == "too_short"
    rises = [{"step": s, "reward": 0.01 * s + math.sin(7.3 * s)} for s in range(1, 121)]
    assert first(rises) == "healthy"
    assert all(e.value == e.value for e in diagnose(rises)[0].evidence)


def test_a_rise_within_the_first_rows_that_stays_is_a_rise():
    """With logging_steps=50 a run may have learned all by row 3: no line shows that."""
    values = [-2.8, 2.0, 4.8, 5.1, 4.5, 4.3, 5.4, 5.6, 5.8, 6.0, 6.1, 5.0, 5.1]
    assert first([{"step": 50 * n, "reward": r} for n, r in enumerate(values, 1)]) == "healthy"
    assert first([{"step": 50 * n, "reward": r} for n, r in enumerate(values[3:], 1)]) != "healthy"


def test_a_collapse_that_half_recovers_is_seen():
    def reward(s):
        return (0.8 if s <= 50 else 0.2 if s < 80 else 0.5) + 0.1 * math.sin(7.3 * s)

    finding = diagnose(real(reward=reward))[0]
    assert finding.name == "reward_falls"
    assert 30 <= finding.step <= 52
    assert finding.until == 120


def test_a_fall_begins_at_the_best_window_before_it_and_not_at_a_higher_one_after_it():
    def reward(s):
        level = 0.7 if s <= 100 else 0.0 if s <= 130 else 0.75 if s <= 250 else 0.3
        return level + 0.05 * math.sin(7.3 * s)

    finding = diagnose(real(300, reward=reward))[0]
    assert finding.name == "reward_falls"
    assert finding.step <= 101


def test_a_dip_that_is_regained_is_no_fall_and_a_run_that_ended_before_a_row_can_be_read():
    def reward(s):
        return 0.01 * s - (1.0 if 50 < s < 70 else 0.0) + 0.1 * math.sin(7.3 * s)

    assert first(real(reward=reward)) == "healthy"
    assert first([{"step": 1, "error": "KeyError: 'x'", "where": ""}]) == "stopped"


def test_one_row_without_a_kl_is_no_lost_run_and_a_loss_that_stays_nan_is():
    def once(s):
        return math.nan if s == 60 else 0.01

    rising = {"reward": lambda s: 0.01 * s + math.sin(7.3 * s)}
    assert first(real(kl=once, **rising)) == "healthy"
    assert first(real(grad_norm=once, **rising)) == "healthy"
    assert first(real(loss=lambda s: math.nan if s >= 60 else 0.01, **rising)) == "nan"


def test_a_first_kl_above_0_means_another_reference_and_only_its_growth_is_far():
    rising = {"reward": lambda s: 0.01 * s + math.sin(7.3 * s)}
    findings = diagnose(real(kl=lambda s: 2.0, **rising))
    assert [f.name for f in findings] == ["healthy", "reference_differs"]
    assert "Leave beta as it is" in findings[1].do
    assert first(real(kl=lambda s: 0.03 * s, **rising)) == "kl_too_high"


@pytest.mark.parametrize(
    ("length", "settings", "expected"),
    [
        (lambda s: 195.0 + s % 5, {"max_completion_length": 200}, "truncated"),
        (lambda s: 1846.0, {"max_completion_length": "None"}, "truncated"),  # as trackers write it
        (lambda s: 1846.0, {}, "truncated"),  # a mean that is always the same is the limit
        (lambda s: 90.0 + s % 5, {"max_completion_length": 200}, "reward_flat"),
    ],
)
def test_without_a_clipped_ratio_the_mean_length_says_that_texts_are_cut_off(
    length, settings, expected
):
    assert first(real(settings=settings, completion_length=length)) == expected


def test_cut_off_by_length_alone_says_that_an_end_token_may_be_the_cause():
    cut = {"settings": {"max_completion_length": 200}, "completion_length": lambda s: 199.0}
    by_length = diagnose(real(**cut))[0]
    by_ratio = diagnose(real(**cut, completions__clipped_ratio=lambda s: 0.95))[0]
    assert (by_length.name, by_ratio.name) == ("truncated", "truncated")
    assert "an end token that is never sampled looks the same" in by_length.means
    some_end = diagnose(real(**cut | {"completion_length": lambda s: 160.0 + s % 5}))[0]
    assert some_end.name == "truncated"
    assert "never sampled" not in by_ratio.means + some_end.means


def test_rewards_without_their_total_are_read_and_called_neither_flat_nor_healthy():
    """A chart of one function, or logged completions alone, of many steps."""
    steps = [{"step": s, "rewards/f/mean": 0.5 + 0.1 * math.sin(7.3 * s)} for s in range(1, 121)]
    assert [f.name for f in diagnose(steps)] == ["too_short"]
    gaps = unjudged(read_run(steps))
    assert "reward_flat" in [name for gap in gaps for name in gap["findings"]]


def test_the_fraction_of_silent_groups_is_said_as_it_is():
    finding = diagnose(real(reward_std=lambda s: 0.5 * (s % 10 == 0)))[0]
    assert finding.name == "no_gradient"
    assert finding.evidence[0].value == pytest.approx(0.9)
    assert first(real(reward_std=lambda s: 0.5 * (s % 10 < 4))) == "reward_flat"


def test_equal_rewards_that_rounding_sets_apart_are_shown_by_the_gradient():
    """Rewards such as 0.93: half of the groups seem to differ, and yet nothing is learned."""
    finding = diagnose(read_run(REPO / "tests" / "diagnosis_logs" / "reward_by_prompt_0.json"))[0]
    assert finding.name == "no_gradient"
    assert [item.metric for item in finding.evidence] == ["grad_norm"]


def test_a_function_that_never_pays_is_named_and_one_that_judges_the_answer_is_the_cause():
    rising = {"reward": lambda s: 0.01 * s + math.sin(7.3 * s)}
    parts = {"rewards__xmlcount": lambda s: 0.01 * s + math.sin(7.3 * s)}
    findings = diagnose(real(rewards__strict_format=lambda s: 0.0, **parts, **rising))
    assert [f.name for f in findings] == ["healthy", "never_pays"]
    assert "strict_format" in findings[1].evidence[0].metric
    rising = {"reward": lambda s: 0.01 * s + math.sin(7.3 * s) - 2.0}
    assert first(real(rewards__check_answer=lambda s: -2.0, **parts, **rising)) == "wrong_answers"


def test_length_alone_is_no_hacking_and_held_out_problems_that_fall_are():
    rising = {"reward": lambda s: 0.01 * s + math.sin(7.3 * s)}
    assert first(real(completion_length=lambda s: 50.0 + s, **rising)) == "healthy"
    log = real(reward=lambda s: 0.5 + 0.5 * math.sin(7.3 * s))
    for entry in log["log_history"][9::10]:
        entry["heldout/strict"] = 0.55 - 0.003 * entry["step"]
    assert first(log) == "hacked"


def test_the_advice_names_the_setting_its_value_and_the_one_to_try():
    log = real(settings={"max_completion_length": 200}, completion_length=lambda s: 199.0)
    (finding, *_) = diagnose(log)
    assert "max_completion_length is 200 now: try 400." in finding.do
    assert "If that was the cause, the clipped ratio halves" in finding.do
    falls = diagnose(real(reward=lambda s: -0.1 * s, learning_rate=lambda s: 5e-6))[0]
    assert "learning_rate is 5e-06 now: try 1e-06." in falls.do  # from the log
    still = diagnose(real(settings={"learning_rate": 0.0}, reward=lambda s: -0.1 * s))[0]
    assert (still.name, "now: try" in still.do) == ("reward_falls", False)  # no factor changes 0


def test_rows_of_ten_steps_are_counted_in_optimizer_steps():
    log = real(30)
    for entry in log["log_history"]:
        entry["step"] *= 10
    finding = diagnose(log)[0]
    assert (finding.name, finding.step, finding.until) == ("reward_flat", 10, 300)
    assert "steps 10 to 300" in as_text([finding])


def test_what_could_not_be_judged_is_said_with_the_way_to_log_it(capsys, tmp_path):
    run = read_run(real())
    missing = {gap["metric"]: gap for gap in unjudged(run)}
    assert missing["heldout/strict"]["findings"] == ["hacked"]
    assert_names(missing["heldout/strict"]["remedy"], "HeldoutProbe", "heldout/strict")
    assert "frac_reward_zero_std" not in missing  # reward_std says enough
    _, _, gaps = as_text(diagnose(run), run).partition("Not judged")
    assert_names(gaps, "hacked", "HeldoutProbe", "heldout/strict", "kl", "beta")
    run = read_run(history(30))
    _, _, gaps = as_text(diagnose(run), run).partition("Not judged")
    assert len(gaps.splitlines()) <= 5
    here = {gap["metric"] for gap in unjudged(read_run(LOGS / "healthy_beta_0.json"))}
    assert here <= {"time/generation_fraction"}
    needed = {need for entry in CATALOGUE.values() for need in (*entry.needs[:1], entry.asks)}
    assert set(missing) <= needed


@pytest.mark.parametrize("level", [2.3, 3.0, 10.0])
def test_a_level_reward_above_1_is_flat_and_one_that_rose_there_is_not(level):
    """Its scale is not known, so that being near the highest seen proves nothing."""

    def paid(s, rise=0.0):
        noise = math.sin(7.3 * s) + math.sin(1.7 * s * s)
        return level * (1 + 0.02 * noise + rise * min(1.0, s / 100))

    assert first(real(300, reward=paid)) == "reward_flat"
    assert first(real(300, reward=lambda s: paid(s, 0.3))) == "healthy"
    weights = {"reward_weights": {"check_answer": 1.2 * level}}
    known = {"reward": paid, "rewards__check_answer__mean": lambda s: paid(s) / 1.2 / level}
    assert first(real(300, weights, **known)) == "healthy"  # 0.83 of what can be earned


@pytest.mark.parametrize(("mean", "spread"), [(20, 0.4), (20, 1.0), (60, 2.0), (200, 5.0)])
def test_steady_lengths_are_not_taken_for_a_limit(mean, spread):
    for seed in range(5):
        lengths = np.random.default_rng(seed).normal(mean, spread, 301)
        assert first(real(300, completion_length=lambda s, of=lengths: of[s])) == "reward_flat"


def test_a_log_that_ends_in_mid_run_gets_more_time_but_not_for_ever():
    planned = {"max_steps": 1000}
    assert first(real(120)) == "reward_flat"
    assert first(real(120, planned)) == "too_short"
    assert first(real(250, planned)) == "reward_flat"
    assert first(real(250, planned), live=True) == "too_short"


def test_a_kl_that_is_always_nan_was_logged():
    rising = {"reward": lambda s: 0.01 * s + math.sin(7.3 * s), "loss": lambda s: 0.01}
    run = read_run(real(kl=lambda s: math.nan, **rising))
    assert "because beta is 0" not in diagnose(run)[0].means
    (gap,) = [gap for gap in unjudged(run) if gap["metric"] == "kl"]
    assert_names(gap["remedy"], "kl", "never a number")


def test_settings_and_roles_that_a_rule_needs_are_asked_for():
    parts = {"rewards__func_0__mean": lambda s: 0.1}
    run = read_run(real(kl=lambda s: 0.01, **parts))
    ways = {gap["metric"]: gap for gap in unjudged(run)}
    assert ways["beta"]["findings"] == ["beta_too_high"]
    assert "--set beta=" in ways["beta"]["remedy"]
    assert "wrong_answers" in ways["correctness"]["findings"]
    settings = {"beta": 0.0, "reward_roles": {"func_0": "correctness"}}
    run = read_run(real(settings=settings, kl=lambda s: 0.01, **parts))
    assert not {"beta", "correctness"} & {gap["metric"] for gap in unjudged(run)}
    chart = read_run([{"step": s, "reward": 0.1 * s} for s in range(1, 60)])
    names = {name for gap in unjudged(chart) for name in gap["findings"]}
    assert {"rate_too_high", "saturated", "format_ignored", "wrong_answers"} <= names


def test_advice_names_a_number_where_the_setting_is_known_and_takes_the_limit_from_the_lengths():
    assert "num_generations is" not in diagnose(real())[0].do
    told = diagnose(real(settings={"num_generations": 4}))[0].do
    assert "num_generations is 4 now: try 8" in told
    cut = {"completions__clipped_ratio": lambda s: 0.95, "completions__max_length": lambda s: 256.0}
    (finding, *_) = diagnose(real(**cut))
    assert (finding.name, "is 256 now: try 512" in finding.do) == ("truncated", True)


def test_what_passed_says_its_own_steps():
    rising = {"reward": lambda s: 0.01 * s + math.sin(7.3 * s)}
    for metric, bad, others in (
        ("rewards__check_answer__mean", math.nan, 0.5),
        ("memory__fraction", 0.99, 0.1),
        ("rewards__invalid_fraction", 0.5, 0.0),
    ):
        seen = {metric: lambda s, bad=bad, others=others: bad if s in (12, 14) else others}
        findings = diagnose(real(60, **seen, **rising))
        assert (findings[0].step, findings[0].until) == (12, 14), metric
        assert "steps 12 to 14" in as_text(findings)


def test_a_reward_that_is_always_0_is_not_high():
    """A broken run read from its later steps: its best reward is its only one."""
    assert first(real(reward=lambda s: 0.0, frac_reward_zero_std=lambda s: 1.0)) == "no_gradient"
    assert first(real(reward=lambda s: 0.0)) == "wrong_answers"


def test_a_level_reward_where_most_groups_are_alike_or_hardly_any_is_right_has_its_cause():
    most = {"frac_reward_zero_std": lambda s: 0.5 + 0.1 * (s % 2)}
    findings = diagnose(real(**most))
    assert [f.name for f in findings] == ["no_gradient"]
    assert "frac_reward_zero_std 0.55 (under 0.5)" in as_text(findings)
    rising = {"reward": lambda s: 0.01 * s + math.sin(7.3 * s)}
    assert first(real(**most, **rising)) == "healthy"
    rare = [{"step": s, "reward": 0.0625 * (s % 5 == 0), "played": 0.95} for s in range(1, 146)]
    assert first(rare) == "wrong_answers"
    assert first([e | {"reward": 4 * e["reward"] + 0.1} for e in rare]) == "reward_flat"


def test_a_rise_on_held_out_problems_proves_learning_where_the_reward_is_level():
    log = real()
    for entry in log["log_history"][9::10]:
        entry["heldout/strict"] = 0.2 if entry["step"] == 10 else 0.45
    assert first(log) == "healthy"
