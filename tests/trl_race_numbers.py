"""TRL 1.15's own RLOO, SAPO and DPO, written to a safetensors file: `python trl_race_numbers.py
FILE`. A process of its own for the reason that trl_numbers.py gives.
"""

import sys
from pathlib import Path

import torch
import trl_numbers as grpo  # first: it silences TRL
from datasets import Dataset
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer, RLOOConfig, RLOOTrainer

COMMON = {
    "output_dir": str(Path(sys.argv[1]).parent), "use_cpu": True, "bf16": False,
    "report_to": "none", "gradient_checkpointing": False, "save_strategy": "no",
    "disable_tqdm": True, "max_steps": 1, "per_device_train_batch_size": 8,
}  # fmt: skip
PAIRS = [
    {"prompt": "2+3=", "chosen": "5, of course", "rejected": "6"},
    {"prompt": "What is 4 plus 4?", "chosen": "8", "rejected": "It is 9."},
]


class PlainLogProbs(grpo.PlainLogProbs):
    """With zeros for what DPO only logs."""

    @staticmethod
    def apply(*given):
        logps, entropy, *_ = grpo.PlainLogProbs.apply(*given)
        return logps, entropy, None, torch.zeros_like(logps), torch.zeros_like(logps).bool()


def model():
    return AutoModelForCausalLM.from_pretrained(grpo.MODEL, dtype="float32")


def keep(out: dict, name: str, batch: dict, loss: torch.Tensor) -> None:
    out |= {f"{name}/{k}": v for k, v in batch.items() if isinstance(v, torch.Tensor)}
    out[f"{name}/loss"] = loss.detach()


def rloo(out: dict) -> None:
    """One step of train(), with the loss of its batch if an older policy had sampled it."""

    def reward(completions, **columns):
        return [float(len(c) % 5) for c in completions]

    how = {"num_generations": 4, "max_completion_length": 12, "beta": 0.0, **COMMON}
    trainer = RLOOTrainer(
        model(), reward, RLOOConfig(**how), Dataset.from_list([{"prompt": "2+3="}] * 2),
        processing_class=AutoTokenizer.from_pretrained(grpo.MODEL),
    )  # fmt: skip
    compute = trainer._compute_loss

    def spy(model, batch):
        batch = batch | {"old_logps": batch["old_logps"] + torch.linspace(-0.5, 0.5, 8)}
        loss = compute(model, batch)
        keep(out, "rloo", batch, loss)
        return loss

    trainer._compute_loss = spy
    trainer.train()
    out["rloo/rewards"] = torch.tensor(trainer._logs["rewards"]["reward"])


def sapo(out: dict) -> None:
    trainer = grpo.make_trainer(model())
    trainer.loss_type = "sapo"
    batch = grpo.prepared(trainer)
    with torch.no_grad():
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
        length = batch["completion_ids"].shape[1]
        old = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, length)[0]
    shift = torch.randn(old.shape, generator=torch.Generator().manual_seed(2))
    batch["old_per_token_logps"] = old + 0.3 * shift
    keep(out, "sapo", batch, trainer._compute_loss(trainer.model, batch))


def dpo(out: dict) -> None:
    """The loss after a step, when the policy has left its reference."""
    trainer = DPOTrainer(
        model(), args=DPOConfig(**COMMON, learning_rate=1e-3, warmup_steps=0),
        train_dataset=Dataset.from_list(PAIRS),
        processing_class=AutoTokenizer.from_pretrained(grpo.MODEL),
    )  # fmt: skip
    trainer.train()
    batch = next(iter(trainer.get_train_dataloader()))
    keep(out, "dpo", batch, trainer.compute_loss(trainer.model, dict(batch)))
    out |= {f"dpo/weights/{k}": v.clone() for k, v in trainer.model.state_dict().items()}


if __name__ == "__main__":
    grpo.trl_utils._ChunkedLogProbFunction = PlainLogProbs
    found: dict[str, torch.Tensor] = {}
    for part in (rloo, sapo, dpo):
        part(found)
    save_file({name: value.contiguous() for name, value in found.items()}, sys.argv[1])
