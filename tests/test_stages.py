"""Stages: what they may be, that adapter and optimizer go on, that each is compared."""

import copy
import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from conftest import cli, trains

from grpo_workbook.config import RunConfig
from grpo_workbook.errors import WorkbookError
from grpo_workbook.stages import Carry, Stage, read_stages, train_stages


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"name": "Format!"}, "stage 'Format!': name is 'Format!': give up"),
        ({"name": "../up"}, "for a folder's name"),
        ({"reference": "last"}, "give start or base"),
        ({"pass_rate": (0.9, 0.1)}, "0 <= low < high <= 1"),
        ({"pass_rate": (0.1,)}, "0 <= low < high <= 1"),
        ({"pass_rate": 0.5}, "0 <= low < high <= 1"),
        ({"pass_rate": (0, 1), "samples": 1}, "samples is 1"),
        ({"pass_rate": (0, 1), "measured": 0}, "measured is 0"),
        ({"ordered": True}, "pass_rate is None: give bounds: ordered and measured"),
        ({"rewards": ["correctness"]}, "pairs (function, weight)"),
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
        ({"name": "a", "steps": 1, "zzz": 1}, "no 'zzz': choose from beta, learning_rate"),
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
    file.write_text(yaml.safe_dump(wanted) + "- {name: slow, steps: 3, learning_rate: 1e-4}\n")
    assert read_stages(file)[2].learning_rate == 1e-4  # which YAML 1.1 takes for a text
    assert [(s.name, s.steps, s.rewards) for s in read_stages(file)[:2]] == [
        ("format", 8, "strict_format"),
        ("correct", 2, None),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "give a list"),
        ("name: a", "give a list"),
        ("", "give a list"),
        ("- {name: a, steps", "cannot be read as stages"),
        ("- {name: a, stepz: 1}", "did you mean steps"),
        ("- !!python/object/apply:os.getcwd []", "cannot be read as stages"),
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
FOLDERS = ("stage-1-format", "stage-2-correct", "stage-3-last")


@pytest.fixture(scope="module")
def problems():
    from grpo_workbook.data import WORD_PROBLEMS, load_problems, to_dataset

    train, heldout = (
        to_dataset(load_problems(WORD_PROBLEMS[name])) for name in ("train", "heldout")
    )
    return train.select(range(200)), heldout.select(range(8))


def small_run(folder, **more):
    return RunConfig.from_env(profile="smoke", output=folder, **SMALL, **more)


@pytest.fixture(scope="module")
@trains
def trained(tmp_path_factory, problems):
    """(folder, report, what the optimizers held): three short stages on the real tiny model."""
    from grpo_workbook.training import Callback, HeldoutProbe, load_policy

    class Seen(Callback):
        """Looks at the optimizer as each stage begins."""

        def on_train_begin(self, args, state, control, optimizer=None, **kwargs):
            held = optimizer.state_dict()["state"]
            begun.append({i: {k: v.clone() for k, v in own.items()} for i, own in held.items()})

    begun: list[dict] = []
    run = small_run(tmp_path_factory.mktemp("stages") / "run")
    model, tokenizer = load_policy(run)
    probe = HeldoutProbe(model, tokenizer, problems[1], max_new_tokens=32, every=2)
    report = train_stages(run, model, tokenizer, *problems, STAGES, callbacks=[Seen(), probe])
    return run.output, report, begun


def read_moments(folder):
    """The optimizer's moments at the end of a stage: {parameter's number: {name: tensor}}."""
    from safetensors.torch import load_file

    moments: dict[int, dict] = {}
    for name, value in load_file(folder / "optimizer.safetensors").items():
        number, moment = name.split(".")
        moments.setdefault(int(number), {})[moment] = value
    return moments


def test_the_optimizer_goes_on_where_the_stage_before_ended(trained):
    folder, _, begun = trained
    left = [read_moments(folder / name) for name in FOLDERS]
    assert begun[0] == {}  # nothing to carry on yet
    for before, taken in zip(left, begun[1:], strict=False):
        assert before.keys() == taken.keys()
        for i, state in before.items():
            assert all((state[name] == taken[i][name]).all() for name in state)
        assert any(state["exp_avg"].abs().sum() > 0 for state in before.values())
    steps = [{int(state["step"]) for state in states.values()} for states in left]
    assert steps == [{3}, {6}, {8}]  # AdamW's own count goes on


def test_each_stage_has_its_own_learning_rate_and_rewards(trained):
    logs = [json.loads((trained[0] / f / "log.json").read_text()) for f in FOLDERS]
    assert [len(log) for log in logs] == [3, 3, 2]
    peaks = [max(entry["learning_rate"] for entry in log) for log in logs]
    assert peaks[0] == pytest.approx(2 * peaks[1])
    assert "rewards/correctness_reward/mean" not in logs[0][0]
    assert "rewards/correctness_reward/mean" in logs[1][0]


def test_the_reference_is_refreshed_at_each_stage_unless_it_is_the_base(trained):
    """KL to the stage's own start begins at 0; to the base not, for the adapter has moved."""
    kl = [json.loads((trained[0] / f / "log.json").read_text())[0]["kl"] for f in FOLDERS]
    assert kl[0] == pytest.approx(0, abs=1e-6)
    assert kl[1] == pytest.approx(0, abs=1e-6)
    assert kl[2] > 1e-4
    for name in FOLDERS:
        assert (trained[0] / name / "adapter" / "adapter_model.safetensors").is_file()
        assert not (trained[0] / name / "adapter" / "ref").exists()  # saved without it


def test_unsloth_removes_trls_copy_of_the_adapter():
    """What chapters 01 and 07 say of a GPU, read in the installed sources."""
    unsloth, trl = (
        Path(find_spec(name).submodule_search_locations[0]) for name in ("unsloth", "trl")
    )
    source = (unsloth / "models" / "rl.py").read_text(encoding="utf-8")
    assert "PEFT initialization logic removed" in source
    assert r"elif is_peft_model\(model\) and args\.beta != 0\.0:" in source
    stock = (trl / "trainer" / "grpo_trainer.py").read_text(encoding="utf-8")
    begin, end = (
        stock.index("elif is_peft_model(model) and args.beta != 0.0:"),
        stock.index("ref_param.data.copy_(param.data)"),
    )
    assert begin < stock.index('model.add_adapter("ref", default_config)') < end


def test_the_reference_is_copied_where_unsloth_removed_trls_copy(tiny, tmp_path):
    """On a GPU. The copy is the stage's start, also after a checkpoint of the stage is loaded."""
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(copy.deepcopy(tiny["qwen"][0]), LoraConfig(target_modules=["q_proj"]))
    start = {n: p.clone() for n, p in model.named_parameters() if p.requires_grad}
    own = [
        Carry(Stage("a", 2, beta=0.1, reference=which), None, tmp_path / "moments", model)
        for which in ("start", "base")
    ]
    for name in start:
        model.get_parameter(name).data += 1  # what the checkpoint does
    resumed = SimpleNamespace(global_step=1)
    own[0].on_train_begin(SimpleNamespace(beta=0.0), resumed, None, model)
    assert "ref" not in model.peft_config
    for _ in range(2):  # the second time the copy is there, as with TRL's own
        own[0].on_train_begin(SimpleNamespace(beta=0.1), resumed, None, model)
    for name, value in start.items():
        reference = model.get_parameter(name.replace(".default.", ".ref."))
        assert (reference == value).all()
        assert not reference.requires_grad
        assert model.get_parameter(name).requires_grad
    own[1].on_train_begin(SimpleNamespace(beta=0.1), resumed, None, model)
    assert "ref" not in model.peft_config


@pytest.mark.trains
def test_the_kl_begins_at_0_where_unsloth_removed_trls_copy(problems, tmp_path):
    from grpo_workbook.stages import drop_reference
    from grpo_workbook.training import load_policy, make_trainer

    def train(run, model, tokenizer, rows, rewards, weights, callbacks):
        trainer = make_trainer(run, model, tokenizer, rows, rewards, weights)
        drop_reference(model)  # TRL's copy, which Unsloth never makes on a GPU
        for callback in callbacks:
            trainer.add_callback(callback)
        trainer.train()
        return trainer.state.log_history

    run = small_run(tmp_path)
    model, tokenizer = load_policy(run)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            weight.data += 0.05  # the policy has left its base
    stages = [Stage(which, 1, beta=0.1, reference=which) for which in ("start", "base")]
    train_stages(run, model, tokenizer, *problems, stages, train=train)
    logs = sorted(tmp_path.glob("stage-*/log.json"))
    kl = [json.loads(path.read_text())[0]["kl"] for path in logs]
    assert kl[0] == pytest.approx(0, abs=1e-6)
    assert kl[1] > 1e-4


def test_reports_compare_each_stage_with_the_one_before(trained, capsys):
    from grpo_workbook.stages import show_stages

    folder, report, _ = trained
    assert json.loads((folder / "stages.json").read_text()) == json.loads(json.dumps(report))
    first, second, third = report["stages"]
    held = second["heldout"]
    assert first["heldout"]["after"] == held["before"]
    change = held["after"]["strict_sampled"] - held["before"]["strict_sampled"]
    assert (held["better"] - held["worse"]) / held["n"] == pytest.approx(change, abs=1e-3)
    assert first["rows"] == 200 > second["rows"] > third["rows"] > 0
    assert [point[0] for point in second["curve"]] == [3, 5]
    assert third["measured"] == 16 >= third["rows"] + sum(third["left_out"].values())
    assert third["rows"] == 8  # of those that can teach, in order, what two steps can use
    show_stages(report)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert max(map(len, lines)) <= 80


def test_the_adapter_of_a_stage_is_merged_and_proved_like_a_runs(trained, tmp_path):
    """Its report has the main run's names, and its held-out answers are compared too."""
    from grpo_workbook.export import is_proved, merge

    proof = merge(None, trained[0] / FOLDERS[1] / "adapter", tmp_path / "merged")
    assert is_proved(proof)
    assert proof["heldout_n"] == 8
    card = (tmp_path / "merged" / "README.md").read_text()
    assert "8 held-out problems" in card


def test_a_run_that_was_killed_skips_finished_stages_and_ends_the_same(
    trained, problems, tmp_path, capsys
):
    """The last two stages are lost; from disk the second is trained to the same adapter."""
    from safetensors.torch import load_file

    from grpo_workbook.training import load_policy

    folder, report, _ = trained
    again = tmp_path / "again"
    shutil.copytree(folder, again)
    for lost in FOLDERS[1:]:
        shutil.rmtree(again / lost)
    run = small_run(again)
    repeated = train_stages(run, *load_policy(run), *problems, STAGES[:2], resume=True)
    assert "Stage format is already finished" in capsys.readouterr().out
    assert repeated["stages"][0] == report["stages"][0]
    whole, ours = (
        load_file(f / FOLDERS[1] / "adapter" / "adapter_model.safetensors") for f in (folder, again)
    )
    assert all((whole[k] == ours[k]).all() for k in whole)
    assert repeated["stages"][1]["heldout"] == report["stages"][1]["heldout"]


def test_after_a_stage_that_is_trained_again_the_later_ones_are_too(
    trained, problems, tmp_path, capsys
):
    """A finished stage began with the adapter of the one before: with another it differs."""
    again = tmp_path / "again"
    shutil.copytree(trained[0], again)
    shutil.rmtree(again / FOLDERS[0])

    def train(run, model, tokenizer, rows, rewards, weights, callbacks):
        for callback in callbacks:
            callback.save_to.write_bytes(b"")
        return [{"reward": 0.0, "step": 1, "step_time": 1.0, "frac_reward_zero_std": 0.0}]

    from grpo_workbook.training import load_policy

    run = small_run(again)
    train_stages(run, *load_policy(run), *problems, STAGES[:2], resume=True, train=train)
    said = capsys.readouterr().out
    assert "is already finished" not in said
    assert said.count("Stage ") == 2


def test_other_stages_in_the_same_folder_are_refused(trained, tmp_path):
    from grpo_workbook.stages import read_report

    folder = trained[0] / FOLDERS[0]
    assert read_report(folder, STAGES[0])["stage"]["name"] == "format"
    other = Stage("format", 4, rewards="strict_format,incremental_format", beta=0.1)
    with pytest.raises(WorkbookError, match="different: steps, learning_rate"):
        read_report(folder, other)
    assert read_report(tmp_path, STAGES[0]) is None


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        (Stage("a", 2, rewards="korrektness"), "stage 'a': unknown reward 'korrektness'"),
        (Stage("a", 2, success="korrektness"), "stage 'a': unknown reward"),
        (Stage("fine", 2), "two stages are called fine"),
        (Stage("a", 0), "stage 'a': max_steps is 0"),
        (Stage("a", 2.5), "stage 'a': max_steps is 2.5"),
        (Stage("a", 2, learning_rate=0), "stage 'a': learning_rate is 0"),
        (Stage("a", 2, learning_rate="fast"), "stage 'a': learning_rate is 'fast'"),
        (Stage("a", 2, beta=-0.1), "stage 'a': beta is -0.1"),
    ],
)
def test_stages_that_cannot_be_trained_stop_before_training(stage, said, problems, tiny, tmp_path):
    run = small_run(tmp_path / "run")
    with pytest.raises(WorkbookError) as error:
        train_stages(run, *tiny["qwen"], *problems, [Stage("fine", 2), stage])
    assert said in str(error.value)
    assert not run.output.exists()


def test_a_stage_without_enough_rows_is_refused(problems, tiny, tmp_path):
    from grpo_workbook.stages import choose_rows

    none = Stage("a", 2, keep=lambda row: False)
    with pytest.raises(WorkbookError, match="'a' has 0 rows left, but one step needs 4"):
        choose_rows(none, small_run(tmp_path / "run"), *tiny["qwen"], problems[0], None)


# ------------------------------------------------------------------ the command


def write_stages(folder, *stages):
    file = folder / "stages.yaml"
    file.write_text(yaml.safe_dump(list(stages)))
    return file


@pytest.mark.trains
def test_the_command_trains_text_answers_and_goes_on_with_finished_stages(tmp_path):
    """Probed while it trains; the same command with --resume finds both stages finished."""
    rows = [
        {"question": f"What is {a} + {b}, in words?", "answer": f"number {a + b}"}
        for a in range(6)
        for b in range(6)
    ]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = write_stages(
        tmp_path,
        {"name": "format", "steps": 2, "rewards": "strict_format"},
        {"name": "form", "steps": 1, "rewards": "incremental_format", "learning_rate": 5e-4},
    )
    options = "--heldout 8 --batch-size 16 --num-generations 4 --max-completion-length 24".split()
    options += ["--data", tmp_path / "texts.jsonl", "--probe-every", "1"]
    options += ["--output", tmp_path / "out"]
    result = cli("stages", file, *options)
    assert result.returncode == 0, result.stderr[-3000:]
    assert "strict, held out" in result.stdout
    report = json.loads((tmp_path / "out" / "stages.json").read_text())
    assert [point[0] for point in report["stages"][0]["curve"]] == [0, 1, 2]
    adapter = tmp_path / "out" / "stage-2-form" / "adapter" / "adapter_model.safetensors"
    assert adapter.is_file()
    wrong = cli("stages", file, *options)
    assert wrong.returncode == 2
    assert "--resume" in wrong.stderr
    again = cli("stages", file, *options, "--resume")
    assert again.returncode == 0, again.stderr[-3000:]
    assert again.stdout.count("is already finished") == 2
    assert "training:" not in again.stderr


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        ({"name": "a", "steps": 2, "rewards": "korrektness"}, "unknown reward 'korrektness'"),
        ({"name": "a", "stepz": 2}, "did you mean steps"),
        ({"name": "a", "steps": 2, "rewards": "mine.py:mine:1"}, "mine"),
    ],
)
def test_the_command_refuses_a_bad_file(tmp_path, stage, said, capsys):
    """Own rewards lie beside the file, and are tried first on made-up completions."""
    from grpo_workbook.cli import main

    (tmp_path / "mine.py").write_text(
        "def mine(completions, **kwargs):\n    return [1 / len(completions[0])] * 3\n"
    )
    file = write_stages(tmp_path, stage)
    assert main(["stages", str(file), "--output", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert main(["stages", "--output", str(tmp_path / "out")]) == 2
    assert "there is no file of stages" in capsys.readouterr().err


def test_the_folder_may_come_from_the_environment(tmp_path, monkeypatch, capsys):
    from grpo_workbook.cli import main

    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("GRPO_WORKBOOK_OUTPUT", str(tmp_path / "taken"))
    assert main(["stages", str(write_stages(tmp_path, {"name": "a", "steps": 1}))]) == 2
    assert "taken" in capsys.readouterr().err
