"""`train` as a user calls it: from a file, with any field of GRPOConfig, with the template as it is given away."""

import json
import shutil

import pytest
from conftest import REPO, cli, report_of

from grpo_workbook.cli.train_command import prepare, read_yaml
from grpo_workbook.errors import WorkbookError

TEMPLATE = REPO / "templates" / "my_project"


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


# ------------------------------------------------------------------ names and values


def prepared(tmp_path, text="", given=None, rest=()):
    return prepare(
        read_yaml(write(tmp_path / "my.yaml", text)) if text else {},
        given or {},
        list(rest),
        "my.yaml",
    )


def test_the_command_line_wins_over_the_file_and_the_file_over_the_profile(tmp_path):
    text = "steps: 7\nlearning-rate: 1e-4\nmax_grad_norm: 0.25\nadam_beta1: 0.8\nbatch_size: 32\n"
    run, options, overrides, processes = prepared(
        tmp_path, text, {"batch_size": 16}, ["--max-grad-norm", "0.5"]
    )
    assert (run.max_steps, run.learning_rate, run.batch_size) == (
        7,
        1e-4,
        16,
    )
    assert run.num_generations == 8  # the profile's
    assert overrides == {"max_grad_norm": 0.5, "adam_beta1": 0.8}
    assert processes.count == 1
    assert options["reading"]["question_column"] == "question"


def test_off_is_off_and_not_false(tmp_path):
    assert prepared(tmp_path, "vllm: off\n")[0].settings.vllm == "off"


def test_names_of_grpo_config_become_the_runs_settings(tmp_path):
    text = "max_steps: 3\nper_device_train_batch_size: 8\ngradient_accumulation_steps: 4\nmax_completion_length: 48\n"
    run, _, overrides, _ = prepared(tmp_path, text)
    s = run
    assert (s.steps, s.batch_size, s.per_device_batch, s.max_completion_length) == (3, 32, 8, 48)
    assert overrides == {}
    assert (
        prepared(tmp_path, "max_steps: 3\n", {"steps": 5})[0].settings.steps == 5
    )  # the command line wins


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("warmup_steps: 1e-1", "warmup_steps", 0.1),
        ("save_total_limit: null", "save_total_limit", None),
        ("lr_scheduler_kwargs: {num_cycles: 1}", "lr_scheduler_kwargs", {"num_cycles": 1}),
        ("mask_truncated_completions: true", "mask_truncated_completions", True),
        ("shuffle_dataset: false", "shuffle_dataset", False),
        ("report_to: [tensorboard]", "report_to", ["tensorboard"]),
        ("lr_scheduler_type: cosine", "lr_scheduler_type", "cosine"),
        ("importance_sampling_level: sequence", "importance_sampling_level", "sequence"),
        ("epsilon_high: 0.28", "epsilon_high", 0.28),
        ("save_strategy: no", "save_strategy", "no"),
    ],
)
def test_fields_of_every_type_reach_trl(tmp_path, text, field, value):

    run, _, overrides, _ = prepared(tmp_path, text + f"\noutput: {tmp_path / 'out'}\n")
    assert set(overrides) == {field}
    assert getattr(run.to_grpo_config(None, overrides), field) == value


@pytest.mark.parametrize(
    ("text", "rest", "message"),
    [
        (
            "leraning_rate: 1",
            (),
            r"my\.yaml: no setting .* called leraning_rate: did you mean learning_rate\?",
        ),
        ("max_grad_nrm: 1", (), r"my\.yaml: .* did you mean max_grad_norm\?"),
        ("", ("--max_grad_nrm", "1"), r"called --max_grad_nrm: did you mean --max_grad_norm\?"),
        ("", ("--stpes=3",), r"did you mean --steps\?"),
        ("", ("--qqqqqq", "1"), "called --qqqqqq: train --list-fields shows them all"),
        ("steps: many", (), r"my\.yaml: steps is 'many': it must be a whole number"),
        ("steps: 2.5", (), r"my\.yaml: steps is 2\.5: it must be a whole number"),
        ("learning_rate: [1]", (), r"learning_rate is \[1\]: it must be a number"),
        ("load_in_4bit: 'yes'", (), "load_in_4bit is 'yes': it must be true or false"),
        ("max_grad_norm: high", (), r"my\.yaml: max_grad_norm is 'high': invalid float value"),
        ("top_k: 1.5", (), r"my\.yaml: top_k is 1\.5: invalid int value"),
        ("epsilon: [1, 2]", (), r"epsilon is \[1, 2\]: it takes one value"),
        ("", ("--max_grad_norm", "high"), "--max_grad_norm: invalid float value: 'high'"),
        ("", ("stray",), "'stray' belongs to no option"),
        (
            "output_dir: x",
            (),
            "output_dir cannot be set: checkpoints lie in the run's folder: say output",
        ),
        ("num_train_epochs: 2", (), "num_train_epochs cannot be set: a run's length is its steps"),
        (
            "logging_steps: 10\nsteps: 5",
            (),
            "logging_steps is 10 and the run has 5 steps: nothing would be logged",
        ),
        ("fsdp: full_shard", (), "fsdp cannot be set: the launcher says it: see configs/"),
        ("hub_token: abc", (), "hub_token cannot be set: it would be written into the run's files"),
        ("use_vllm: true", (), "use_vllm cannot be set: say vllm: off, colocate or server"),
        ("trust_remote_code: true", (), "no code that comes with a model is run"),
        ("steps: 3\nmax_steps: 4", (), "steps is given twice"),
        ("gradient_accumulation_steps: 4", (), "gradient_accumulation_steps is 4: give batch_size"),
        (
            "batch_size: 64\nper_device_batch: 8\ngradient_accumulation_steps: 4",
            (),
            "batch_size is 64, and per_device_batch 8 x gradient_accumulation_steps 4 x 1 processes make 32",
        ),
        ("resume: true\noverwrite: true", (), "resume and overwrite are both given"),
        ("expect_processes: 3", (), "1 process started and 3 expected"),
        ("profile: big", (), "unknown profile 'big'"),
        ("push_to_hub: true", (), "push_to_hub cannot be set: training sends nothing"),
        ("", ("--push_to_hub",), "push_to_hub cannot be set: training sends nothing"),
        ("hub_model_id: me/mine", (), "hub_model_id cannot be set: training sends nothing"),
        ("max_grad_norm: .nan", (), "max_grad_norm is nan: it must be a finite number"),
        ("", ("--epsilon", "1e400"), "epsilon is inf: it must be a finite number"),
        ("save_steps: 0", (), "save_steps is 0: it must be more than 0"),
        (
            f"save_total_limit: {10**400}",
            (),
            "save_total_limit is a number of more than 300 digits",
        ),
        ("num_iterations: 0", (), "num_iterations is 0: it must be at least 1"),
        ("adam_beta1: 1", (), "adam_beta1 is 1: it must be less than 1"),
        ("adam_beta1: 7", (), "adam_beta1 is 7: it must be at most 1"),
        ("dtype: floot", (), "dtype is 'floot': choose one of float32, float16, bfloat16"),
        ("loss_type: dapoo", (), "loss_type is 'dapoo': choose one of grpo, "),
        ("scale_rewards: some", (), "scale_rewards is 'some': choose one of group, batch, none"),
        ("eval_batch: 0", (), "eval_batch is 0: it must be at least 1"),
        ("lora_rank: 1000000000000", (), "lora_rank is 1000000000000: it must be at most 10000"),
        (
            "steps: 99999999999999999999",
            (),
            "steps is 99999999999999999999: it must be at most 1000000000",
        ),
        ("model: true", (), "model is True: it must be a text"),
        ("output: ''", {"output": " "}, "the output ' ' is no folder's name"),
    ],
)
def test_what_cannot_be_is_named_with_the_mend(tmp_path, text, rest, message):
    given, rest = (rest, ()) if isinstance(rest, dict) else ({}, rest)
    with pytest.raises(WorkbookError, match=message):
        prepared(tmp_path, text, given, rest)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty: write one `name: value` in a line"),
        ("- a\n- b\n", "is a list"),
        ("a: [1\nb: 2\n", "is no YAML at line 2"),
        ("stages:\n- steps: 3\n", "stages"),
        ("batch-size: 8\nbatch_size: 16\n", "'batch_size' stands there twice, with - and with _"),
        ("steps: 2\nsteps: 4\n", "line 2: 'steps' stands there twice"),
    ],
)
def test_a_file_that_is_no_mapping(tmp_path, text, message):
    with pytest.raises(WorkbookError, match=message):
        read_yaml(write(tmp_path / "my.yaml", text))
    with pytest.raises(
        WorkbookError, match=r"mine\.yaml' does not exist \(its folder has my\.yaml\)"
    ):
        read_yaml(tmp_path / "mine.yaml")


def test_paths_in_a_file_start_from_its_folder(tmp_path):
    for name in ("rows.jsonl", "r.py"):
        write(tmp_path / name, "")
    found = read_yaml(
        write(
            tmp_path / "my.yaml",
            "data: rows.jsonl\nmodel: org/Qwen3-x\noutput: out\nrewards: [r.py:f:2, length=9]\n",
        )
    )
    assert found["data"] == str(tmp_path / "rows.jsonl")
    assert found["output"] == str(tmp_path / "out")
    assert found["model"] == "org/Qwen3-x"
    assert found["rewards"] == f"{tmp_path / 'r.py'}:f:2,length=9"


def test_bad_input_ends_with_status_2_and_writes_nothing(tmp_path):
    project = tmp_path / "mine"
    shutil.copytree(TEMPLATE, project)
    text = (project / "my.yaml").read_text().replace("right_number", "right_numbre")
    write(project / "my.yaml", text)
    result = cli("train", "--config", "my.yaml", cwd=project, PYTHONPATH=str(REPO))
    assert result.returncode == 2
    assert "has no 'right_numbre': did you mean 'right_number'?" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (project / "outputs").exists()


def test_every_field_is_listed(tmp_path):
    from grpo_workbook.cli.grpo_fields import field_names

    result = cli("train", "--list-fields")
    assert result.returncode == 0, result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 80
    listed = {
        line.split(":")[0].strip() for line in result.stdout.splitlines() if line.startswith("  ")
    }
    assert set(field_names()) <= listed
    assert {"steps", "vllm", "system_prompt"} <= listed


# ------------------------------------------------------------------ the template


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the template elsewhere, run as its README says with few steps: (folder, result)."""
    folder = tmp_path_factory.mktemp("elsewhere") / "my_project"
    shutil.copytree(TEMPLATE, folder)
    result = cli(
        "train",
        "--config",
        "my.yaml",
        "--steps",
        "4",
        "--max_grad_norm=0.75",
        cwd=folder,
        PYTHONPATH=str(REPO),
    )
    return folder, result


@pytest.mark.long
def test_the_template_runs_where_it_is_copied_to(project):
    folder, result = project
    assert result.returncode == 0, result.stderr[-3000:]
    report, log = (
        report_of(folder / "outputs"),
        json.loads((folder / "outputs" / "log.json").read_text()),
    )
    assert report["profile"] == "smoke"
    assert report["steps"] == len(log) == 4  # the command line's, not the file's
    assert report["reward_weights"] == {
        "right_number": 2.0,
        "short_answer": 0.5,
        "strict_format_reward": 0.5,
    }
    assert report["overrides"] == {"max_grad_norm": 0.75, "lr_scheduler_type": "cosine"}
    assert report["data"]["train"] + report["data"]["heldout"] == 40
    assert set(report["heldout"]["rewards"]) == set(report["reward_weights"])
    assert 0 < report["heldout"]["rewards"]["short_answer"]["before"] <= 1
    assert any(entry["grad_norm"] > 0 for entry in log)
    assert log[-1]["rewards/right_number/mean"] >= 0
    assert (folder / "outputs" / "merged" / "model.safetensors").is_file()
    readme = (folder / "README.md").read_text()
    assert "train --config my.yaml" in readme


@pytest.mark.long
def test_changed_rewards_are_another_run(project):
    folder, result = project
    assert result.returncode == 0, result.stderr[-3000:]
    rewards = folder / "my_rewards.py"
    write(rewards, rewards.read_text() + "\n# changed\n")
    again = cli("train", "--config", "my.yaml", "--steps", "4", "--max_grad_norm=0.75", "--resume", cwd=folder,
                PYTHONPATH=str(REPO))  # fmt: skip
    assert again.returncode == 2
    assert "different run (not the same: reward_files)" in again.stderr


def test_a_folder_is_one_runs_at_a_time(tmp_path):
    from grpo_workbook.files import alone

    output = tmp_path / "ein Läuf"
    with alone(output):
        result = cli(
            "train",
            "--data",
            TEMPLATE / "data.jsonl",
            "--heldout",
            "4",
            "--steps",
            "1",
            "--output",
            output,
        )
    assert result.returncode == 2
    assert "another process is writing to" in result.stderr
    assert not output.exists()


def test_what_trl_finds_out_late_is_named_before_a_step(tmp_path):
    """Transformers looks at report_to when the trainer is made, after the baseline was measured."""
    given = (
        "--heldout",
        "1",
        "--steps",
        "1",
        "--max-completion-tokens",
        "4",
        "--report_to",
        "nope",
    )
    result = cli("train", "--data", TEMPLATE / "data.jsonl", *given, "--output", tmp_path / "out")
    assert result.returncode == 2, result.stderr[-2000:]
    assert "error: TRL does not take report_to='nope': nope is not supported" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_run_with_other_options_is_refused_by_their_names(tmp_path):
    from grpo_workbook.cli.folder import check_folder

    kept = {"seed": 0, "settings": {"steps": 30, "beta": 0.0}, "overrides": {"max_grad_norm": 0.5}}
    (tmp_path / "run.json").write_text(json.dumps(kept))
    check_folder(tmp_path, kept, overwrite=False, resume=True)
    other = kept | {"settings": {"steps": 31, "beta": 0.0}, "overrides": {}}
    with pytest.raises(WorkbookError, match=r"not the same: steps, max_grad_norm\)"):
        check_folder(tmp_path, other, overwrite=False, resume=True)
    for text in ("[]", "{", "null"):
        (tmp_path / "run.json").write_text(text)
        with pytest.raises(WorkbookError, match=r"no readable run\.json"):
            check_folder(tmp_path, kept, overwrite=False, resume=True)
