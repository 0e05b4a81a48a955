"""Stages: what they may be, that adapter and optimizer go on, that each is compared with the one before."""

import json
import shutil

import pytest
import yaml
from conftest import cli

from grpo_workbook.config import RunConfig
from grpo_workbook.errors import WorkbookError
from grpo_workbook.stages.stage import Stage, read_stages, rounds


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"name": "Format!"}, "stage 'Format!': a name"),
        ({"name": "../up"}, "names a folder"),
        ({"steps": 0}, "steps is 0"),
        ({"steps": 2.5}, "steps is 2.5"),
        ({"steps": True}, "steps is True"),
        ({"learning_rate": 0}, "learning_rate is 0"),
        ({"learning_rate": "fast"}, "learning_rate is 'fast'"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"beta": -0.1}, "beta is -0.1"),
        ({"reference": "last"}, "choose from start, base"),
        ({"pass_rate": (0.9, 0.1)}, "0 <= low < high <= 1"),
        ({"pass_rate": (0.1,)}, "0 <= low < high <= 1"),
        ({"pass_rate": 0.5}, "0 <= low < high <= 1"),
        ({"pass_rate": (0, 1), "samples": 1}, "samples is 1"),
        ({"pass_rate": (0, 1), "measured": 0}, "measured is 0"),
        ({"ordered": True}, "ordered is given without pass_rate"),
        ({"pass_rate": (0, 1), "ordered": "no"}, "ordered is 'no': give true or false"),
        ({"success": 3}, "success is 3: give a reward by its name"),
        ({"keep": "short"}, "keep is 'short': give a function"),
    ],
)
def test_a_stage_that_cannot_be_is_refused(values, said):
    with pytest.raises(WorkbookError) as error:
        Stage(**{"name": "one", "steps": 5} | values)
    assert said in str(error.value)


def test_a_stage_from_plain_values_and_back():
    given = {
        "name": "correct",
        "steps": 20,
        "rewards": "correctness:2",
        "pass_rate": [0.1, 0.9],
        "ordered": True,
    }
    stage = Stage.from_dict(given)
    assert stage.pass_rate == (0.1, 0.9)
    assert stage.learning_rate is None
    told = json.loads(json.dumps(stage.to_dict()))
    assert told.items() >= given.items()
    assert Stage.from_dict({k: v for k, v in told.items() if k != "keep"}) == stage


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"name": "a", "steps": 1, "learning_rat": 1e-4},
            "no 'learning_rat': did you mean learning_rate?",
        ),
        ({"name": "a", "steps": 1, "zzz": 1}, "no 'zzz': choose from name, steps"),
        ({"name": "a", "steps": 1, 7: 1}, "no 7"),
        ({"name": "a", "steps": 1, "keep": "x"}, "no 'keep'"),
        ({"name": "a"}, "lacks steps"),
        ({}, "lacks name and steps"),
        ({"name": "a", "steps": 1, "rewards": ["correctness"]}, "rewards is ['correctness']"),
        ("format", "a stage is 'format'"),
    ],
)
def test_plain_values_that_are_no_stage(given, said):
    with pytest.raises(WorkbookError) as error:
        Stage.from_dict(given)
    assert said in str(error.value)


def test_stages_from_yaml(tmp_path):
    file = tmp_path / "stages.yaml"
    wanted = [
        {"name": "format", "steps": 8, "rewards": "strict_format"},
        {"name": "correct", "steps": 2},
    ]
    file.write_text(yaml.safe_dump(wanted))
    assert [(s.name, s.steps, s.rewards) for s in read_stages(file)] == [
        ("format", 8, "strict_format"),
        ("correct", 2, None),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "no stages"),
        ("name: a", "give a list"),
        ("", "give a list"),
        ("- {name: a, steps: 1}\n- {name: a, steps: 2}", "two stages are called a"),
        ("- {name: a, steps", "is no YAML"),
        ("- {name: a, stepz: 1}", "did you mean steps"),
        ("- !!python/object/apply:os.getcwd []", "is no YAML"),
    ],
)
def test_yaml_that_holds_no_stages_is_named(tmp_path, text, said):
    file = tmp_path / "stages.yaml"
    file.write_text(text)
    with pytest.raises(WorkbookError) as error:
        read_stages(file)
    assert said in str(error.value)
    assert "stages.yaml" in str(error.value)
    with pytest.raises(WorkbookError, match="nowhere.yaml"):
        read_stages(tmp_path / "nowhere.yaml")


def test_rounds_are_the_stage_again_under_other_names():
    first, second = rounds(Stage("round", 3, beta=0.1), 2)
    assert (first.name, second.name) == ("round-1", "round-2")
    assert (first.steps, second.beta) == (3, 0.1)
    with pytest.raises(WorkbookError, match="0 rounds"):
        rounds(Stage("round", 3), 0)


def test_the_run_names_its_stages():
    run = RunConfig.from_env(profile="smoke", stages=[Stage("format", 8), Stage("correct", 20)])
    assert "training 28 steps" in str(run)
    assert "2 correct, 20 steps" in str(run)
    assert RunConfig.from_env(profile="smoke").stages == ()
    with pytest.raises(WorkbookError, match="two stages are called a"):
        RunConfig.from_env(profile="smoke", stages=[Stage("a", 1), Stage("a", 2)])


# ------------------------------------------------------------------ training

SMALL = {
    "batch_size": 16,
    "num_generations": 4,
    "max_completion_length": 32,
    "heldout": 8,
    "eval_batch": 8,
}
STAGES = (
    Stage("format", 3, rewards="strict_format,incremental_format", beta=0.1, learning_rate=2e-3),
    Stage("correct", 3, beta=0.1, keep=lambda row: len(row["question"]) < 80),
    Stage(
        "last",
        2,
        beta=0.1,
        reference="base",
        pass_rate=(0.0, 1.0),
        measured=16,
        samples=4,
        ordered=True,
    ),
)


class Seen:
    """A callback that looks at the optimizer as each stage begins."""

    def __init__(self):
        self.begun = []

    def __getattr__(self, name):
        if name.startswith("on_"):
            return lambda *args, **kwargs: None
        raise AttributeError(name)

    def on_train_begin(self, args, state, control, optimizer=None, **kwargs):
        held = optimizer.state_dict()
        self.begun.append(
            {i: {k: v.clone() for k, v in values.items()} for i, values in held["state"].items()}
        )


@pytest.fixture(scope="module")
def problems():
    from grpo_workbook.data import WORD_PROBLEMS, read_problems, to_dataset

    train, heldout = (
        to_dataset(read_problems(WORD_PROBLEMS[name])) for name in ("train", "heldout")
    )
    return train.select(range(200)), heldout.select(range(8))


def small_run(folder, **more):
    return RunConfig.from_env(profile="smoke", output=folder, **SMALL, **more)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, problems):
    """(folder, report, what it said, what the optimizers held): three short stages on the real tiny model."""
    from grpo_workbook.stages.training import train_stages
    from grpo_workbook.training import load_policy

    run = small_run(tmp_path_factory.mktemp("stages") / "run", stages=STAGES)
    said, seen = [], Seen()
    report = train_stages(
        run, *load_policy(run), *problems, probe_every=2, callbacks=[seen], say=said.append
    )
    return run.output, report, said, seen.begun


FOLDERS = ("stage-1-format", "stage-2-correct", "stage-3-last")


def test_the_optimizer_goes_on_where_the_stage_before_ended(trained):
    from safetensors.torch import load_file

    folder, _, _, begun = trained
    assert begun[0] == {}  # nothing to carry on yet
    for i in (0, 1):
        left = load_file(folder / FOLDERS[i] / "optimizer.safetensors")
        taken = {
            f"{k}.{name}": v for k, values in begun[i + 1].items() for name, v in values.items()
        }
        assert left.keys() == taken.keys()
        assert all((left[k] == taken[k]).all() for k in left)
        assert any(v.abs().sum() > 0 for k, v in left.items() if k.endswith("exp_avg"))
    steps = [
        {int(v) for k, v in load_file(folder / f / "optimizer.safetensors").items() if ".step" in k}
        for f in FOLDERS
    ]
    assert steps == [{3}, {6}, {8}]  # AdamW's own count goes on


def test_each_stage_has_its_own_learning_rate_and_rewards(trained):
    folder = trained[0]
    logs = [json.loads((folder / f / "log.json").read_text()) for f in FOLDERS]
    assert [len(log) for log in logs] == [3, 3, 2]
    peaks = [max(entry["learning_rate"] for entry in log) for log in logs]
    assert peaks[0] == pytest.approx(2 * peaks[1])
    assert "rewards/correctness_reward/mean" not in logs[0][0]
    assert "rewards/correctness_reward/mean" in logs[1][0]


def test_the_reference_is_refreshed_at_each_stage_unless_it_is_the_base(trained):
    """KL to the stage's own start begins at 0; to the base it does not, for the adapter has moved by then."""
    kl = [json.loads((trained[0] / f / "log.json").read_text())[0]["kl"] for f in FOLDERS]
    assert kl[0] == pytest.approx(0, abs=1e-6)
    assert kl[1] == pytest.approx(0, abs=1e-6)
    assert kl[2] > 1e-4


def test_the_adapter_is_saved_without_the_reference(trained):
    for name in FOLDERS:
        assert (trained[0] / name / "adapter" / "adapter_model.safetensors").is_file()
        assert not (trained[0] / name / "adapter" / "ref").exists()


def test_reports_compare_each_stage_with_the_one_before(trained, capsys):
    from grpo_workbook.stages.training import show_stages

    folder, report, said, _ = trained
    assert json.loads((folder / "stages.json").read_text()) == json.loads(json.dumps(report))
    first, second, third = report["stages"]
    assert first["heldout"]["after"] == second["heldout"]["before"]
    change = second["heldout"]["after"]["strict"] - second["heldout"]["before"]["strict"]
    assert (second["better"] - second["worse"]) / 8 == pytest.approx(change, abs=1e-3)
    assert first["rows"] == 200 > second["rows"] > third["rows"] > 0
    assert [point[0] for point in second["curve"]] == [3, 5]
    assert third["measured"] == 16 >= third["rows"] + sum(third["left_out"].values())
    assert (
        third["rows"] == 8
    )  # of those that can teach, in order, what two steps of four problems can use
    assert any("rows can teach" in line for line in said)
    show_stages(report)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert max(map(len, lines)) <= 80


def test_a_run_that_was_killed_skips_finished_stages_and_ends_the_same(trained, problems, tmp_path):
    """The last two stages are lost with the process; from disk they are trained again to the same adapter."""
    from safetensors.torch import load_file

    from grpo_workbook.stages.training import train_stages
    from grpo_workbook.training import load_policy

    folder, report, _, _ = trained
    again = tmp_path / "again"
    shutil.copytree(folder, again)
    for lost in FOLDERS[1:]:
        shutil.rmtree(again / lost)
    run, said = small_run(again), []
    model, tokenizer = load_policy(run)
    repeated = train_stages(
        run, model, tokenizer, *problems, stages=STAGES[:2], resume=True, say=said.append
    )
    assert any("format had been finished" in line for line in said)
    assert repeated["stages"][0] == report["stages"][0]
    whole, ours = (
        load_file(f / FOLDERS[1] / "adapter" / "adapter_model.safetensors") for f in (folder, again)
    )
    assert all((whole[k] == ours[k]).all() for k in whole)
    assert repeated["stages"][1]["heldout"] == report["stages"][1]["heldout"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "report.json",
            b'{"stage": {"name"',
            r"report\.json was written by the run and cannot be read: delete that stage",
        ),
        (
            "report.json",
            b"{}",
            r"the finished stage .*stage-1-format is damaged \('stage'\): delete that stage",
        ),
        (
            "adapter/adapter_model.safetensors",
            b"",
            "the finished stage .*stage-1-format is damaged .* delete that stage",
        ),
        (
            "adapter/adapter_model.safetensors",
            None,
            "the finished stage .*stage-1-format is damaged",
        ),
        (
            "after.json",
            b'["one"]',
            r"after\.json does not hold the completions of \d+ problems: delete that stage",
        ),
        ("optimizer.safetensors", b"\xff" * 20, "the finished stage .*stage-1-format is damaged"),
        ("../before.json", b"[", r"before\.json was written by the run and cannot be read"),
    ],
)
def test_a_finished_stage_that_was_damaged_is_named(
    trained, problems, tmp_path, name, content, message
):
    from grpo_workbook.stages.training import train_stages
    from grpo_workbook.training import load_policy

    again = tmp_path / "again"
    shutil.copytree(trained[0], again)
    shutil.rmtree(again / FOLDERS[1])
    damaged = again / FOLDERS[0] / name
    damaged.unlink() if content is None else damaged.write_bytes(content)
    run = small_run(again)
    with pytest.raises(WorkbookError, match=message):
        train_stages(
            run, *load_policy(run), *problems, stages=STAGES[:2], resume=True, say=lambda text: None
        )


def test_after_a_stage_that_is_trained_again_the_later_ones_are_too(trained, problems, tmp_path):
    """A finished stage began with the adapter of the one before: with another it is another stage."""
    from grpo_workbook.stages.training import train_stages
    from grpo_workbook.training import load_policy

    again, said = tmp_path / "again", []
    shutil.copytree(trained[0], again)
    shutil.rmtree(again / FOLDERS[0])
    run = small_run(again)
    train_stages(run, *load_policy(run), *problems, stages=STAGES[:2], resume=True, say=said.append)
    assert not any("had been finished" in line for line in said)
    assert sum(line.startswith("Stage ") for line in said) == 2


def test_a_skipped_stage_gives_its_rewards_their_state_back(problems, tmp_path):
    from grpo_workbook.ensembles import AdaptiveWeight
    from grpo_workbook.rewards import strict_format_reward
    from grpo_workbook.stages.training import train_stages
    from grpo_workbook.training import load_policy

    def stage():
        adaptive = AdaptiveWeight(strict_format_reward, strict_format_reward)
        return Stage("fading", 2, rewards=((adaptive, 1.0),)), adaptive

    run = small_run(tmp_path / "run")
    model, tokenizer = load_policy(run)
    first, trained_with = stage()
    train_stages(run, model, tokenizer, *problems, stages=[first], say=lambda text: None)
    again, given_back = stage()
    train_stages(
        run, model, tokenizer, *problems, stages=[again], resume=True, say=lambda text: None
    )
    assert trained_with.batches == 2
    assert given_back.state_dict() == trained_with.state_dict()
    log = json.loads((tmp_path / "run" / "stage-1-fading" / "log.json").read_text())
    assert log[0]["rewards/adaptive_strict_format_reward/weight"] == 1.0


def test_other_stages_in_the_same_folder_are_refused(trained, problems, tmp_path):
    from grpo_workbook.stages.training import read_report

    folder = trained[0] / FOLDERS[0]
    assert read_report(folder, STAGES[0])["stage"]["name"] == "format"
    with pytest.raises(WorkbookError, match="differs in steps, learning_rate"):
        read_report(
            folder, Stage("format", 4, rewards="strict_format,incremental_format", beta=0.1)
        )
    assert read_report(tmp_path, STAGES[0]) is None


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        (Stage("a", 2, rewards="korrektness"), "stage 'a': unknown reward 'korrektness'"),
        (Stage("a", 2, success="korrektness"), "stage 'a': unknown reward"),
        (Stage("a", 2, rewards=("correctness",)), "pairs (function, weight)"),
    ],
)
def test_stages_that_cannot_be_trained_stop_before_training(stage, said, problems, tiny, tmp_path):
    from grpo_workbook.stages.training import train_stages

    run = small_run(tmp_path / "run")
    with pytest.raises(WorkbookError) as error:
        train_stages(run, *tiny["qwen"], *problems, stages=[Stage("fine", 2), stage])
    assert said in str(error.value)
    assert not run.output.exists()


def test_a_stage_without_enough_rows_is_refused(problems, tiny, tmp_path):
    from grpo_workbook.stages.training import choose_rows

    none = Stage("a", 2, keep=lambda row: False)
    with pytest.raises(WorkbookError, match="'a' has 0 rows left and one step needs 4"):
        choose_rows(none, small_run(tmp_path / "run"), *tiny["qwen"], problems[0])


def test_moments_of_another_rank_are_refused(tmp_path):
    import torch

    from grpo_workbook.stages.carry import load_moments, save_moments

    def optimizer(rank):
        weight = torch.nn.Parameter(torch.ones(rank, 4))
        weight.grad = torch.ones(rank, 4)
        made = torch.optim.AdamW([weight], lr=0.1)
        made.step()
        return made

    save_moments(optimizer(2), tmp_path / "moments.safetensors")
    with pytest.raises(WorkbookError, match="rank must stay the same"):
        load_moments(optimizer(3), tmp_path / "moments.safetensors")
    taken = optimizer(2)
    load_moments(taken, tmp_path / "moments.safetensors")
    assert taken.param_groups[0]["lr"] == 0.1


# ------------------------------------------------------------------ the command


def write_stages(folder, *stages):
    file = folder / "stages.yaml"
    file.write_text(yaml.safe_dump(list(stages)))
    return file


def test_the_command_trains_and_goes_on_with_a_stage_more(tmp_path):
    """One process for the first run; a second with --resume finds both stages finished and trains nothing."""
    file = write_stages(
        tmp_path,
        {"name": "format", "steps": 2, "rewards": "strict_format"},
        {"name": "correct", "steps": 1, "learning_rate": 5e-4},
    )
    options = [
        "--output",
        tmp_path / "out",
        "--heldout",
        8,
        "--batch-size",
        16,
        "--num-generations",
        4,
    ]
    result = cli("stages", file, *options)
    assert result.returncode == 0, result.stderr[-3000:]
    assert "strict, held out" in result.stdout
    assert (
        tmp_path / "out" / "stage-2-correct" / "adapter" / "adapter_model.safetensors"
    ).is_file()
    wrong = cli("stages", file, *options)
    assert wrong.returncode == 2
    assert "--resume" in wrong.stderr
    assert cli("run", "--resume", "--output", tmp_path / "out").returncode == 2  # it is no such run
    again = cli("stages", file, *options, "--resume")
    assert again.returncode == 0, again.stderr[-3000:]
    assert again.stdout.count("had been finished") == 2
    assert "training:" not in again.stderr


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        ({"name": "a", "steps": 2, "rewards": "korrektness"}, "unknown reward 'korrektness'"),
        ({"name": "a", "stepz": 2}, "did you mean steps"),
        ({"name": "a", "steps": 2, "success": "korrektness"}, "unknown reward 'korrektness'"),
    ],
)
def test_the_command_refuses_a_bad_file(tmp_path, stage, said):
    result = cli("stages", write_stages(tmp_path, stage), "--output", tmp_path / "out")
    assert result.returncode == 2
    assert said in result.stderr
    assert not (tmp_path / "out").exists()


def test_own_rewards_lie_beside_the_file_and_are_tried_first(tmp_path):
    """Named from the file's folder, as `train` has it; what fails on a made-up completion writes nothing."""
    (tmp_path / "mine.py").write_text(
        "def mine(completions, **kwargs):\n    return [1 / len(completions[0])] * 3\n"
    )
    file = write_stages(tmp_path, {"name": "a", "steps": 1, "rewards": "mine.py:mine:1"})
    result = cli("stages", file, "--output", tmp_path / "out")
    assert result.returncode == 2
    assert "mine broke the contract: 4 completions in" in result.stderr
    assert not (tmp_path / "out").exists()


def test_the_folder_may_come_from_the_environment(tmp_path):
    (tmp_path / "taken").write_text("")
    file = write_stages(tmp_path, {"name": "a", "steps": 1})
    result = cli("stages", file, GRPO_WORKBOOK_OUTPUT=str(tmp_path / "taken"))
    assert result.returncode == 2
    assert "taken is a file: name a folder with --output" in result.stderr
