"""Options of `run`: every field of RunConfig and GRPOConfig, from file and command line."""

import dataclasses
import subprocess
import sys

import pytest
from conftest import REPO, cli, environment

from grpo_workbook.cli import main
from grpo_workbook.cli.options import REFUSED, from_yaml, listing, read, run_fields, trl_fields
from grpo_workbook.errors import WorkbookError
from grpo_workbook.run_config import RunConfig


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def given(tmp_path, text="", rest=()):
    file = ["--config", str(write(tmp_path / "my.yaml", text))] if text else []
    return read([*file, *rest])


def test_the_command_line_wins_over_the_file(tmp_path):
    text = "max_steps: 7\nlearning-rate: 1e-4\nmax_grad_norm: 0.25\nadam_beta1: 0.8\n"
    ours, theirs = given(tmp_path, text, ["--max-steps=9", "--max-grad-norm", "0.5", "--overwrite"])
    assert ours == {"max_steps": 9, "learning_rate": 1e-4, "overwrite": True}
    assert theirs == {"max_grad_norm": 0.5, "adam_beta1": 0.8}
    assert read([]) == ({}, {})


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("vllm: off", "vllm", "off"),
        ("learning_rate: 1e-3", "learning_rate", 1e-3),
        ("load_in_4bit: false", "load_in_4bit", False),
        ("shuffle-dataset: no", "shuffle_dataset", False),
        ("skip_invalid: true", "skip_invalid", True),
        ("system_prompt: ''", "system_prompt", ""),
        ("rewards: [correctness:2, overlong=9]", "rewards", "correctness:2,overlong=9"),
        ("seed: 3  # words", "seed", 3),
    ],
)
def test_our_values_keep_their_types(tmp_path, text, name, value):
    assert given(tmp_path, text) == ({name: value}, {})
    assert type(given(tmp_path, text)[0][name]) is type(value)


@pytest.mark.slow
def test_a_field_of_trl_does_not_load_unsloth_before_the_run_says_that_vllm_sleeps():
    """Else Unsloth asks torch for expandable segments, with which vLLM cannot sleep."""
    code = (
        "import os; from grpo_workbook import config; from grpo_workbook.cli import options\n"
        "config.find_device = lambda: ('cuda', 22.1, 'torch sees an L4')\n"
        "config.find_spec = lambda name: object()\n"
        "options.read(['--profile', '24gb', *os.environ['GIVEN'].split(), '--max_grad_norm=0.5'])\n"
        "print('expandable_segments' in os.environ.get('PYTORCH_ALLOC_CONF', ''))"
    )
    kept = environment()
    for name in ("PYTORCH_ALLOC_CONF", "UNSLOTH_VLLM_STANDBY"):
        kept.pop(name, None)
    for given, expandable in (("", "False"), ("--vllm off", "True")):
        how = {"env": kept | {"GIVEN": given}, "capture_output": True, "text": True}
        result = subprocess.run([sys.executable, "-c", code], cwd=REPO, **how)
        assert result.stdout.split()[-1] == expandable, result.stderr[-3000:]


def test_what_is_null_is_not_given(tmp_path):
    assert given(tmp_path, "model: ~\nmax_steps: null\ndata:\n") == ({}, {})


@pytest.mark.parametrize("words", [["--no-load-in-4bit"], ["--load_in_4bit", "false"]])
def test_yes_and_no_on_the_command_line(words):
    assert read(words) == ({"load_in_4bit": False}, {})
    assert read(["--gradient-checkpointing"]) == ({"gradient_checkpointing": True}, {})


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("warmup_steps: 1e-1", "warmup_steps", 0.1),
        ("lr_scheduler_kwargs: {num_cycles: 1}", "lr_scheduler_kwargs", {"num_cycles": 1}),
        ("mask_truncated_completions: true", "mask_truncated_completions", True),
        ("report_to: [tensorboard]", "report_to", ["tensorboard"]),
        ("lr_scheduler_type: cosine", "lr_scheduler_type", "cosine"),
        ("importance_sampling_level: sequence", "importance_sampling_level", "sequence"),
        ("epsilon_high: 0.28", "epsilon_high", 0.28),
        ("save_strategy: no", "save_strategy", "no"),
    ],
)
def test_fields_of_every_type_reach_trl(tmp_path, text, field, value):
    ours, theirs = given(tmp_path, text)
    assert (ours, set(theirs)) == ({}, {field})
    run = RunConfig.from_env(output=tmp_path)
    assert getattr(run.to_grpo_config(None, theirs), field) == value


@pytest.mark.parametrize(
    ("text", "rest", "message"),
    [
        ("leraning_rate: 1", (), r" leraning_rate: did you mean learning_rate\?"),
        ("max_grad_nrm: 1", (), r"did you mean max_grad_norm\?"),
        ("", ("--max_grad_nrm", "1"), r"called max_grad_nrm: did you mean max_grad_norm\?"),
        ("", ("--max-stpes=3",), r"did you mean max_steps\?"),
        ("", ("--qqqqqq", "1"), "called qqqqqq: choose from "),
        ("max_steps: many", (), r"--max_steps: invalid int value: 'many'"),
        ("max_steps: 2.5", (), r"--max_steps: invalid int value: '2\.5'"),
        ("learning_rate: [1, 2]", (), "'2' is not an option"),
        ("load_in_4bit: maybe", (), "--load_in_4bit: .*maybe"),
        ("max_grad_norm: high", (), r"--max_grad_norm: invalid float value: 'high'"),
        ("", ("--max_grad_norm", "high"), "^--max_grad_norm: invalid float value: 'high'"),
        ("", ("stray",), "'stray' is not an option"),
        ("output_dir: x", (), "output_dir cannot be set: use output"),
        ("num_train_epochs: 2", (), "num_train_epochs cannot be set: use max_steps"),
        ("fsdp: full_shard", (), "fsdp cannot be set: the launcher sets it: see configs/"),
        ("use_vllm: true", (), "use_vllm cannot be set: use vllm: off, colocate or server"),
        ("", ("--push_to_hub",), "push_to_hub cannot be set: training uploads nothing"),
    ],
)
def test_what_cannot_be_is_named_with_the_fix(tmp_path, text, rest, message):
    with pytest.raises(WorkbookError, match=message):
        given(tmp_path, text, rest)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# nothing\n", "write one `name: value` per line"),
        ("- a\n- b\n", "write one `name: value` per line"),
        ("a: [1\nb: 2\n", "cannot be read as YAML: .*line 2"),
        ("seed: 2\n".encode("utf-16"), "cannot be read as YAML"),
        ("a: 1\n---\nb: 2\n", "cannot be read as YAML"),
        (
            "seed: !!python/object/apply:os.system ['true']\n",
            "cannot be read as YAML: could not determine a",
        ),
    ],
)
def test_a_file_that_cannot_be_meant(tmp_path, text, message):
    with pytest.raises(WorkbookError, match=message):
        given(tmp_path, text)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(WorkbookError, match=r"mine\.yaml cannot be read as YAML: No such file"):
        read(["--config", str(tmp_path / "mine.yaml")])


def test_paths_in_a_file_start_from_its_folder(tmp_path, monkeypatch):
    (folder := tmp_path / "mein Läuf").mkdir()
    for name in ("rows.jsonl", "r.py"):
        write(folder / name, "")
    text = "data: rows.jsonl\nmodel: org/Qwen3-x\noutput: out\nrewards: [r.py:f:2, overlong=9]\n"
    write(folder / "my.yaml", text)
    monkeypatch.chdir(tmp_path)
    assert from_yaml(folder / "my.yaml") == [
        f"--data={folder / 'rows.jsonl'}",
        "--model=org/Qwen3-x",
        f"--output={folder / 'out'}",
        f"--rewards={folder / 'r.py'}:f:2,overlong=9",
    ]


def test_every_refused_field_is_one_of_trl_and_every_option_of_ours_is_listed():
    from trl import GRPOConfig

    assert set(REFUSED) <= {f.name for f in dataclasses.fields(GRPOConfig)}
    told = {names[0][2:].replace("-", "_"): how["help"] for names, how in listing()}
    assert all(told.values())  # each with words
    assert told.keys() >= {*run_fields(), "config", "data", "resume", "backend"}


def test_help_needs_no_trl_and_bad_input_ends_with_status_2(tmp_path):
    code = (
        "import sys; from grpo_workbook.cli import main\n"
        "try: main(['run', '--help'])\n"
        "except SystemExit: print({'trl', 'torch', 'transformers', 'datasets'} & {*sys.modules})"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPO)
    assert said.stdout.endswith("set()\n"), said.stderr
    assert "--max-prompt-length" in said.stdout
    result = cli("run", "--seed", "x", "--output", tmp_path / "out")
    assert (result.returncode, result.stderr) == (2, "error: --seed: invalid int value: 'x'\n")
    assert not (tmp_path / "out").exists()


def test_trls_fields_are_known_without_trl():
    from trl import GRPOConfig

    assert trl_fields() == {f.name for f in dataclasses.fields(GRPOConfig) if f.init}


WRONG = """run --max-stpes 3
    run --max_grad_nrm 3
    run --output_dir x
    run --profile giant
    run --model mistral
    run --seed -1
    run --learning-rate nan
    run --rewards corectness
    run --data none.jsonl
    run --batch-size 20 --num-generations 8
    plan --profile giant
    merge none --output none
    evaluate mistral --data none.jsonl
    check-data none.jsonl""".splitlines()


def test_arguments_are_judged_before_anything_heavy_is_loaded(tmp_path):
    code = (
        "import sys; from grpo_workbook.cli import main\n"
        f"for words in {WRONG}:\n"
        "    status = main(words.split())\n"
        "    print(status, {'torch', 'unsloth', 'datasets', 'accelerate'} & {*sys.modules}, words)"
    )
    how = {"cwd": tmp_path, "env": environment(PYTHONPATH=str(REPO))}
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, **how)
    assert said.stdout.splitlines() == [f"2 set() {words}" for words in WRONG], said.stderr
    assert said.stderr.count("error: ") == len(WRONG)


def test_a_batch_that_fits_another_profile_is_not_refused_early():
    """Which profile fits the GPU is known only when torch is there."""
    assert read(["--num-generations", "4", "--batch-size", "12"])[0]["batch_size"] == 12
    assert read(["--batch-size", "16"])[0] == {"batch_size": 16}


def test_a_run_speaks_before_it_loads(capsys):
    read(["--max-steps", "3"])
    assert capsys.readouterr().out == "Loading the libraries\n"


def test_an_output_that_is_empty_is_not_this_folder(capsys):
    """As in --output "$UNSET": the run would be written into whatever folder it is started from."""
    assert main(["run", "--output", ""]) == 2
    assert "the output '' is no folder's name: give one (--output)" in capsys.readouterr().err
