"""TRL's DistillationTrainer without Triton: its divergence in PyTorch, and a training with it."""

import importlib.util
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import REPO, environment

from grpo_workbook import compat

TRITON = REPO / ".venv" / "triton"
# Two models with different widths, 2 completions of 3 tokens, of which one is padding.
SETTINGS = {
    "student_lm_head_bias": True,
    "teacher_logit_scale": 0.7,
    "student_final_logit_softcapping": 2.0,
    "temperature": 1.3,
}
# Runs in a process of its own, in which Triton's kernels are interpreted on the CPU.
WITH_THE_KERNEL = """
import sys
import torch
torch.cuda.is_available = lambda: False
from trl.trainer.distillation_trainer import _chunked_divergence_loss as loss_of_trl
sys.path.insert(0, "tests")
import test_distillation
print(test_distillation.loss_and_gradient(loss_of_trl, float(sys.argv[1])))
"""
# Unsloth is imported first, because TRL samples on a CPU only with its patches.
TRAINS = """
import json, sys
import unsloth
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DistillationConfig, DistillationTrainer
from grpo_workbook import compat, load_problems, to_dataset
from grpo_workbook.data import WORD_PROBLEMS

compat.distil_without_triton()
torch.set_num_threads(1)
torch.manual_seed(0)
tokenizer = AutoTokenizer.from_pretrained("data/tiny-qwen3")
student = AutoModelForCausalLM.from_pretrained("data/tiny-qwen3", dtype="float32")
teacher = AutoModelForCausalLM.from_pretrained("data/tiny-qwen3", dtype="float32")
for weight in student.model.layers[-1].parameters():
    weight.data += 0.1 * torch.randn_like(weight)
args = DistillationConfig(
    output_dir=sys.argv[1], max_steps=8, per_device_train_batch_size=32, learning_rate=1e-3,
    beta=1.0, max_completion_length=32, logging_steps=1, save_strategy="no", report_to="none",
    use_cpu=True, bf16=False, gradient_checkpointing=False, disable_tqdm=True,
)
rows = to_dataset(load_problems(WORD_PROBLEMS["train"]).select(range(256)))
trainer = DistillationTrainer(
    student, teacher_model=teacher, args=args, train_dataset=rows, processing_class=tokenizer
)
trainer.train()
print(json.dumps([row["loss"] for row in trainer.state.log_history if "loss" in row]))
"""


def arguments() -> dict:
    """Hidden states and heads of a student and a teacher, the same in every process."""
    torch.manual_seed(0)
    values = {
        "student_hidden_states": torch.randn(2, 3, 8, requires_grad=True),
        "teacher_hidden_states": torch.randn(2, 3, 4),
        "student_lm_head_weight": torch.randn(11, 8),
        "teacher_lm_head_weight": torch.randn(11, 4),
        "completion_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]),
    }
    settings = SETTINGS | {"student_lm_head_bias": torch.randn(11)}
    return values | settings


def loss_and_gradient(divergence, beta: float) -> str:
    """What a function says of these arguments, as JSON."""
    values = arguments()
    loss, entropy, count = divergence(**values, beta=beta)
    loss.backward()
    gradient = values["student_hidden_states"].grad
    return json.dumps([loss.item(), entropy.item(), count.item(), gradient.flatten().tolist()])


def by_definition(beta: float) -> float:
    """The mean over the tokens of the divergence, token by token, from its definition."""
    values = arguments()
    divergences = []
    for completion, token in values["completion_mask"].nonzero().tolist():
        student_state = values["student_hidden_states"][completion, token].detach().double()
        teacher_state = values["teacher_hidden_states"][completion, token].double()
        student_logits = values["student_lm_head_weight"].double() @ student_state
        student_logits = student_logits + values["student_lm_head_bias"].double()
        student_logits = 2 * np.tanh(student_logits.numpy() / 2)
        teacher_logits = 0.7 * (values["teacher_lm_head_weight"].double() @ teacher_state).numpy()
        p = np.exp(student_logits / 1.3)
        p = p / p.sum()
        q = np.exp(teacher_logits / 1.3)
        q = q / q.sum()
        mixture = (1 - beta) * p + beta * q
        if beta == 0:
            divergences.append((q * np.log(q / p)).sum())
        elif beta == 1:
            divergences.append((p * np.log(p / q)).sum())
        else:
            from_teacher = (q * np.log(q / mixture)).sum()
            from_student = (p * np.log(p / mixture)).sum()
            divergences.append(beta * from_teacher + (1 - beta) * from_student)
    return float(np.mean(divergences))


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_the_divergence_is_what_its_definition_says(beta):
    loss, _, count = compat.divergence_in_torch(**arguments(), beta=beta)
    assert count == 5
    assert loss.item() == pytest.approx(by_definition(beta), rel=1e-5)


def test_the_number_of_tokens_of_all_processes_divides_the_sum():
    alone, _, count = compat.divergence_in_torch(**arguments(), beta=1.0)
    shared, _, _ = compat.divergence_in_torch(**arguments(), beta=1.0, num_items_in_batch=20)
    assert shared.item() == pytest.approx(alone.item() * count.item() / 20)


def test_a_batch_without_tokens_has_no_loss():
    values = arguments()
    values["completion_mask"] = torch.zeros(2, 3)
    loss, entropy, count = compat.divergence_in_torch(**values, beta=1.0)
    assert (loss.item(), entropy.item(), count.item()) == (0, 0, 0)


def test_only_the_student_learns():
    values = arguments()
    head = values["teacher_lm_head_weight"].requires_grad_()
    loss, _, _ = compat.divergence_in_torch(**values, beta=1.0)
    loss.backward()
    assert head.grad is None
    assert values["student_hidden_states"].grad.abs().sum() > 0


@pytest.mark.trains
@pytest.mark.skipif(
    not (importlib.util.find_spec("triton") or TRITON.is_dir()),
    reason="the kernel needs Triton, which `make test-all` installs",
)
@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_the_divergence_and_its_gradient_are_those_of_the_kernel(beta):
    variables = environment() | {"TRITON_INTERPRET": "1"}
    if TRITON.is_dir():
        variables["PYTHONPATH"] = f"{REPO}:{TRITON}"
    command = [sys.executable, "-c", WITH_THE_KERNEL, str(beta)]
    process = subprocess.run(
        command, cwd=REPO, env=variables, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr[-2000:]
    kernel = json.loads(process.stdout.splitlines()[-1])
    here = json.loads(loss_and_gradient(compat.divergence_in_torch, beta))
    assert here[:3] == pytest.approx(kernel[:3], rel=1e-4)
    assert here[3] == pytest.approx(kernel[3], rel=1e-3, abs=1e-6)


@pytest.mark.trains
def test_the_trainer_of_trl_brings_the_student_nearer_to_its_teacher(tmp_path):
    """A student whose last layer was disturbed learns from the model as it was."""
    command = [sys.executable, "-c", TRAINS, str(tmp_path)]
    process = subprocess.run(
        command, cwd=REPO, env=environment(), capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr[-2000:]
    losses = json.loads(process.stdout.splitlines()[-1])
    assert losses[-1] < 0.5 * losses[0]
