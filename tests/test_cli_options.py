"""Options of `run`: the workbook's and every field of GRPOConfig, from file and command line."""

import subprocess
import sys
from dataclasses import fields

import pytest
from conftest import REPO, environment, raises_naming

from grpo_workbook.cli.options import SYNONYMS, ProfileOptions, RunOptions, load, parse, words_of
from grpo_workbook.config import PROFILES
from grpo_workbook.errors import WorkbookError


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    for name in ("PROFILE", "MODEL", "SEED", "OUTPUT"):
        monkeypatch.delenv(f"GRPO_WORKBOOK_{name}", raising=False)


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read(arguments):
    return load(parse(arguments))


def run_of(tmp_path, text="", rest=()):
    """The run of a YAML file with this text, and of the rest of a command line."""
    file = ["--config", str(write(tmp_path / "my.yaml", text))] if text else []
    return read([*file, *rest])


def test_without_options_the_profile_counts():
    run = read([])
    for name, value in PROFILES["smoke"]["grpo"].items():
        if name != "report_to":  # TRL makes a list of it
            assert getattr(run.args, name) == value, name
    assert run.args.output_dir == "outputs/run/checkpoints"
    assert run.args.reward_weights == [2.0, 0.5, 0.5]
    assert len(run.functions) == 3


def test_the_command_line_wins_over_the_file_and_the_file_over_the_profile(tmp_path):
    text = "max_steps: 7\nlearning_rate: 1e-4\nmax_grad_norm: 0.25\nadam_beta1: 0.8\n"
    run = run_of(tmp_path, text, ["--max-steps=9", "--max_grad_norm", "0.5", "--overwrite"])
    assert (run.args.max_steps, run.args.learning_rate) == (9, 1e-4)
    assert (run.args.max_grad_norm, run.args.adam_beta1) == (0.5, 0.8)
    assert run.args.num_generations == 8
    assert "training 9 steps of 80 completions" in str(run.profile)
    assert run.options.overwrite
    assert run.settings["max_steps"] == 9
    assert run.settings["adam_beta1"] == 0.8


def test_what_a_profile_depends_on_reaches_it(tmp_path):
    text = "output_dir: out\nseed: 3\nmax_completion_length: 40\nmax_prompt_length: 100\n"
    run = run_of(tmp_path, text, ["--lora_rank", "4", "--no_load_in_4bit", "--dtype", "float16"])
    profile = run.profile
    assert (profile.seed, profile.output) == (3, tmp_path / "out")
    assert run.args.output_dir == str(tmp_path / "out" / "checkpoints")
    assert (run.args.seed, run.args.data_seed) == (3, 3)
    assert profile.loader["max_seq_length"] == run.args.vllm_max_model_length == 140
    assert (profile.lora["r"], profile.loader["load_in_4bit"]) == (4, False)
    assert str(profile.loader["dtype"]) == "torch.float16"


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("skip_invalid: true", "skip_invalid", True),
        ("load_in_4bit: no", "load_in_4bit", False),
        ("system_prompt: ''", "system_prompt", ""),
        ("rewards: [correctness:2, overlong=9]", "rewards", "correctness:2,overlong=9"),
        ("heldout: 30  # words", "heldout", 30),
        ("data:\nheldout: null\nmodel: ~", "heldout", None),
    ],
)
def test_our_values_keep_their_types(tmp_path, text, name, value):
    option = getattr(run_of(tmp_path, text).options, name)
    assert option == value
    assert type(option) is type(value)


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("warmup_steps: 1e-1", "warmup_steps", 0.1),
        ("lr_scheduler_kwargs: {num_cycles: 1}", "lr_scheduler_kwargs", {"num_cycles": 1}),
        ("mask_truncated_completions: true", "mask_truncated_completions", True),
        ("gradient_checkpointing: true", "gradient_checkpointing", True),
        ("shuffle_dataset: false", "shuffle_dataset", False),
        ("report_to: [tensorboard]", "report_to", ["tensorboard"]),
        ("lr_scheduler_type: cosine", "lr_scheduler_type", "cosine"),
        ("importance_sampling_level: sequence", "importance_sampling_level", "sequence"),
        ("epsilon_high: 0.28", "epsilon_high", 0.28),
        ("save_strategy: 'no'", "save_strategy", "no"),
    ],
)
def test_fields_of_every_type_reach_trl(tmp_path, text, field, value):
    run = run_of(tmp_path, text)
    assert getattr(run.args, field) == value
    assert run.settings[field] == value


@pytest.mark.parametrize("words", [["--no-load-in-4bit"], ["--load_in_4bit", "false"]])
def test_yes_and_no_on_the_command_line(words):
    assert read(words).profile.loader["load_in_4bit"] is False
    for word, loader in (("--gradient-checkpointing", "unsloth"), ("--use_vllm=0", False)):
        run = read([word])
        assert run.args.gradient_checkpointing is bool(loader)
        assert run.profile.loader["use_gradient_checkpointing"] == loader


@pytest.mark.parametrize(
    ("text", "rest", "named"),
    [
        ("leraning_rate: 1", (), ["leraning_rate", "learning_rate"]),
        ("learning-rat: 1", (), ["learning_rate"]),
        ("", ("--max_grad_nrm", "1"), ["max_grad_nrm", "max_grad_norm"]),
        ("", ("--max-stpes=3",), ["max_steps"]),
        ("max_steps: many", (), ["max_steps", "'many'"]),
        ("max_steps: 2.5", (), ["max_steps", "'2.5'"]),
        ("load_in_4bit: maybe", (), ["maybe"]),
        ("", ("--max_grad_norm", "high"), ["max_grad_norm", "'high'"]),
        ("", ("stray",), ["'stray'"]),
        ("", ("--config",), ["--config"]),
        ("", ("--resume", "--overwrite"), ["resume", "overwrite"]),
        ("", ("--reward_weights", "1", "2"), ["reward_weights"]),
        ("", ("--rewards", "corectness:2"), ["'corectness'", "correctness"]),
        ("", ("--num_generations", "6"), ["num_generations (6)"]),
        ("", ("--output_dir", " "), ["output", "' '"]),
        ("", ("--output_dir", ""), ["output", "''"]),  # else --overwrite would replace this folder
    ],
)
def test_what_cannot_be_is_named_with_the_fix(tmp_path, text, rest, named):
    with raises_naming(WorkbookError, *named):
        run_of(tmp_path, text, rest)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("# nothing\n", "my.yaml"),
        ("- a\n- b\n", "my.yaml"),
        ("a: [1\nb: 2\n", "line 2"),
        ("seed: 2\n".encode("utf-16"), "my.yaml"),
        ("a: 1\n---\nb: 2\n", "my.yaml"),
        ("seed: !!python/object/apply:os.system ['true']\n", "os.system"),
    ],
)
def test_a_file_that_cannot_be_meant_is_named(tmp_path, text, named):
    with raises_naming(WorkbookError, named):
        run_of(tmp_path, text)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with raises_naming(WorkbookError, "mine.yaml"):
        read(["--config", str(tmp_path / "mine.yaml")])


def test_paths_in_a_file_start_from_its_folder(tmp_path, monkeypatch):
    folder = tmp_path / "mein Läuf"
    folder.mkdir()
    for name in ("rows.jsonl", "r.py"):
        write(folder / name, "")
    text = "data: rows.jsonl\nmodel: org/Qwen3-x\noutput_dir: out\njudge: r.py:f\n"
    write(folder / "my.yaml", text + "rewards: [r.py:f:2, overlong=9]\n")
    monkeypatch.chdir(tmp_path)
    assert words_of(folder / "my.yaml") == [
        f"--data={folder / 'rows.jsonl'}",
        "--model=org/Qwen3-x",
        f"--output_dir={folder / 'out'}",
        f"--judge={folder / 'r.py'}:f",
        f"--rewards={folder / 'r.py'}:f:2,overlong=9",
    ]


@pytest.mark.slow
def test_unsloth_is_not_loaded_before_it_is_said_that_vllm_sleeps():
    """Else Unsloth asks torch for expandable segments, with which vLLM cannot sleep."""
    code = (
        "import os; from grpo_workbook import config; from grpo_workbook.cli import options\n"
        "config.find_device = lambda: ('cuda', 22.1, 'torch sees an L4')\n"
        "config.find_spec = lambda name: object()\n"
        "words = ['--profile', '24gb', '--dtype', 'float32', *os.environ['GIVEN'].split()]\n"
        "try: options.load(options.parse(words))\n"
        "except Exception as error: print(error)\n"
        "print('expandable_segments' in os.environ.get('PYTORCH_ALLOC_CONF', ''))"
    )
    kept = environment()
    for name in ("PYTORCH_ALLOC_CONF", "UNSLOTH_VLLM_STANDBY"):
        kept.pop(name, None)
    for words, expandable in (("", "False"), ("--use_vllm false", "True")):
        how = {"env": kept | {"GIVEN": words}, "capture_output": True, "text": True}
        result = subprocess.run([sys.executable, "-c", code], cwd=REPO, **how)
        assert result.stdout.split()[-1] == expandable, result.stderr[-3000:]


def test_no_option_of_ours_is_one_of_trl():
    from trl import GRPOConfig

    theirs = {field.name for field in fields(GRPOConfig)}
    assert not theirs & {field.name for field in fields(RunOptions)}
    assert {field.name for field in fields(ProfileOptions)} <= theirs


WRONG = """run --profile
    run --data none.jsonl
    run --rewards corectness
    run --rewards nowhere.py:f
    run --heldout many
    merge none --output none
    evaluate mistral --data none.jsonl
    check-data none.jsonl""".splitlines()


def test_a_missing_file_and_a_wrong_value_are_found_before_anything_heavy_is_loaded(tmp_path):
    code = (
        "import sys; from grpo_workbook.cli import main\n"
        f"for words in {WRONG}:\n"
        "    status = main(words.split())\n"
        "    print(status, {'torch', 'unsloth', 'datasets', 'accelerate'} & {*sys.modules}, words)"
    )
    how = {"cwd": tmp_path, "env": environment(PYTHONPATH=str(REPO))}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, **how)
    assert result.stdout.splitlines() == [f"2 set() {words}" for words in WRONG], result.stderr
    assert result.stderr.count("error: ") == len(WRONG)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("model_name_or_path", "model"),
        ("torch_dtype", "dtype"),
        ("lora_r", "lora_rank"),
        ("lora_alpha", "lora_rank"),
        ("lr", "learning_rate"),
        ("epochs", "num_train_epochs"),
        ("use_peft", "LoRA"),
        ("dataset_name", "data"),
        ("reward_funcs", "rewards"),
        ("warmup_ratio", "warmup_steps"),
        ("max_seq_length", "max_completion_length"),
        ("lora-target-modules", "target_modules"),
    ],
)
def test_a_name_from_elsewhere_gets_ours_before_a_library_is_loaded(tmp_path, name, ours):
    with raises_naming(WorkbookError, name.replace("-", "_"), ours):
        parse(["--config", str(write(tmp_path / "my.yaml", f"{name}: 1"))])
    with raises_naming(WorkbookError, name.replace("-", "_"), ours):
        parse([f"--{name}", "1"])


def test_all_names_from_elsewhere_are_named_at_once(tmp_path):
    text = "torch_dtype: bfloat16\nuse_vllm: true\nlora_r: 8\nepochs: 1\n"
    with raises_naming(WorkbookError, "torch_dtype", "lora_rank", "num_train_epochs"):
        parse(["--config", str(write(tmp_path / "my.yaml", text))])


def test_the_names_from_elsewhere_are_none_of_ours_and_lead_to_ours():
    from trl import GRPOConfig
    from trl.scripts.grpo import GRPOScriptArguments
    from trl.trainer.model_config import ModelConfig

    ours = {field.name for field in (*fields(GRPOConfig), *fields(RunOptions))}
    renamed, replaced = SYNONYMS["renamed"], SYNONYMS["replaced"]
    assert set(renamed.values()) <= ours
    assert not ours & {*renamed, *replaced}
    theirs = {field.name for field in (*fields(ModelConfig), *fields(GRPOScriptArguments))}
    assert theirs - ours - {*renamed, *replaced} == {"ignore_bias_buffers"}


def test_an_option_that_resembles_none_does_not_list_all():
    with raises_naming(WorkbookError, "zebra", "--help") as caught:
        read(["--zebra", "1"])
    assert len(str(caught.value)) < 200


def test_the_layers_with_adapters_reach_the_profile(tmp_path):
    text = "target_modules: [q_proj, v_proj]\n"
    assert run_of(tmp_path, text).profile.lora["target_modules"] == ["q_proj", "v_proj"]
    run = read(["--target-modules", "q_proj, o_proj"])
    assert run.profile.lora["target_modules"] == ["q_proj", "o_proj"]
    assert run.settings["target_modules"] == "q_proj, o_proj"
    with raises_naming(WorkbookError, "target_modules"):
        read(["--target-modules", ","])


def test_a_batch_of_the_users_has_as_many_completions_with_thoughts_as_without(monkeypatch):
    """The smoke profile with the smaller batches that a GPU's profile has for thoughts."""
    monkeypatch.setitem(PROFILES["smoke"], "thinking", PROFILES["24gb"]["thinking"])
    for words, sizes in (
        (["--thinking"], (4, 16)),
        (["--thinking", "--per-device-train-batch-size", "16"], (16, 1)),
        (["--thinking", "--gradient_accumulation_steps=2"], (80, 2)),
    ):
        args = read(words).args
        assert (args.per_device_train_batch_size, args.gradient_accumulation_steps) == sizes


def test_thinking_reaches_trl_and_the_record_of_the_run(tmp_path):
    run = read(["--thinking"])
    assert run.args.chat_template_kwargs == {"enable_thinking": True}
    assert run.settings["chat_template_kwargs"] == {"enable_thinking": True}
    assert run.args.max_completion_length == PROFILES["smoke"]["thinking"]["max_completion_length"]
    same = run_of(tmp_path, "thinking: true\nchat_template_kwargs: {enable_thinking: true}\n")
    assert same.settings == run.settings
    assert read(["--thinking", "--max_completion_length=50"]).args.max_completion_length == 50
    by_hand = read(["--chat_template_kwargs", '{"enable_thinking": true}'])
    assert by_hand.settings["chat_template_kwargs"] == {"enable_thinking": True}
    with raises_naming(WorkbookError, "thinking is True", "enable_thinking"):
        read(["--thinking", "--chat_template_kwargs", '{"enable_thinking": false}'])
