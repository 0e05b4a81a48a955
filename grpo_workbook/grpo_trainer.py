"""A GRPO trainer to read from top to bottom: sample groups, reward them, take advantages, update.

It trains the weights that require a gradient: all weights of a plain model, the adapters of a PEFT
model. It is for one device and small models; TRL's trainer, for real runs, has the same loss.
"""

import copy
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from grpo_workbook.data import render
from grpo_workbook.grpo import combine_rewards, group_advantages, grpo_loss, sequence_logprobs


@torch.no_grad()
def sample(model, prompt_ids, prompt_mask, max_new_tokens, eos, pad, temperature=1.0):
    """One completion for each prompt (B, P; padded on the left): (B, T), `pad` after the end."""
    mask, new, cache, completion = prompt_mask, prompt_ids, None, []
    done = torch.zeros(len(prompt_ids), dtype=torch.bool, device=prompt_ids.device)
    for _ in range(max_new_tokens):
        how = {"attention_mask": mask, "past_key_values": cache, "use_cache": True}
        out = model(input_ids=new, logits_to_keep=1, **how)
        cache = out.past_key_values
        probabilities = (out.logits[:, -1].float() / temperature).softmax(dim=-1)
        new = torch.multinomial(probabilities, 1).masked_fill(done.unsqueeze(1), pad)
        completion.append(new)
        done |= new.squeeze(1) == eos
        if done.all():
            break
        mask = torch.cat([mask, torch.ones_like(new)], dim=1)
    return torch.cat(completion, dim=1)


def completion_masks(completion_ids: torch.Tensor, eos: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(mask (B, T): 1 up to and with the end token, truncated (B,): no end token was sampled)."""
    ended = completion_ids == eos
    before_the_end = ended.cumsum(dim=1) - ended.int() == 0
    return before_the_end.long(), ~ended.any(dim=1)


@dataclass
class ScratchTrainer:
    """GRPO (DeepSeekMath, algorithm 1) for a model, its reference and one or several rewards."""

    model: Any
    tokenizer: Any
    rewards: Any  # one function or several, by TRL's contract
    reward_weights: Sequence[float] | None = None
    reference: Any = None  # for the KL divergence; None copies the model as it is now
    group_size: int = 8  # TRL's num_generations
    prompts_per_step: int = 8
    kl_coef: float = 0.0  # beta; 0 measures the KL divergence without penalising it
    learning_rate: float = 1e-3
    max_new_tokens: int = 64
    temperature: float = 1.0
    inner_epochs: int = 1  # updates on a batch; from the second one on, the ratio leaves 1
    loss_type: str = "dapo"
    scale: str = "group"
    seed: int = 0

    def __post_init__(self) -> None:
        self.rewards = [self.rewards] if callable(self.rewards) else list(self.rewards)
        self.trained = [p for p in self.model.parameters() if p.requires_grad]
        how = {"betas": (0.9, 0.99), "weight_decay": 0.0}
        self.optimizer = torch.optim.AdamW(self.trained, self.learning_rate, **how)
        self.reference = self.reference or copy.deepcopy(self.model)
        self.reference.eval().requires_grad_(False)

    def refresh_reference(self) -> None:
        """Make a frozen copy of the current model the reference, as iterative GRPO does."""
        self.reference = copy.deepcopy(self.model).eval().requires_grad_(False)

    def train(self, prompts: Sequence[dict], epochs: int = 1) -> Iterator[dict[str, float]]:
        """Train on rows with `prompt` and the rewards' columns; yields the metrics of each step."""
        rows, order, size = list(prompts), random.Random(self.seed), self.prompts_per_step
        steps = len(rows) // size * epochs
        if steps < 1:
            raise ValueError(f"{len(rows)} prompts, {epochs} epochs: too few for a step of {size}")
        torch.manual_seed(self.seed)
        step = 0
        for epoch in range(epochs):
            order.shuffle(rows)
            for start in range(0, len(rows) - size + 1, size):
                for group in self.optimizer.param_groups:
                    group["lr"] = self.learning_rate * (1 - step / steps)
                step += 1
                yield {"step": step, "epoch": epoch, **self.step(rows[start : start + size])}

    def step(self, rows: Sequence[dict]) -> dict[str, float]:
        """Sample a batch of completions, update on it, and return metrics; TRL's have its names."""
        batch = self.rollout(rows)
        rewards = self.score(rows, batch["texts"])
        advantages = group_advantages(rewards, self.group_size, self.scale).to(batch["mask"].device)
        with torch.no_grad():
            ref_logp = self.logprobs(self.reference, batch)
            old_logp = self.logprobs(self.model, batch) if self.inner_epochs > 1 else None
        metrics: dict[str, float] = {}
        for _ in range(self.inner_epochs):
            loss, logged = grpo_loss(
                self.logprobs(self.model, batch), advantages, batch["mask"],
                old_logp=old_logp, ref_logp=ref_logp, beta=self.kl_coef,
                loss_type=self.loss_type, max_completion_length=self.max_new_tokens,
            )  # fmt: skip
            self.optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
            self.optimizer.step()
            metrics = {"loss": float(loss.detach()), "grad_norm": float(norm), **logged}
        groups = pd.DataFrame(np.array(rewards, dtype=float).reshape(-1, self.group_size))
        return metrics | {
            "reward": float(np.nanmean(groups)),
            "reward_std": float(np.nanstd(groups, ddof=1)),  # of the whole batch, as in TRL
            "group_std": float(groups.std(axis=1).mean()),  # within the groups; not in TRL
            "frac_reward_zero_std": float((groups.nunique(axis=1) <= 1).mean()),
            "tokens": float(batch["mask"].sum(dim=1).float().mean()),
            "truncated": float(batch["truncated"].float().mean()),
        }

    def rollout(self, rows: Sequence[dict]) -> dict:
        """`group_size` completions for each row: ids, masks, and their texts."""
        tokenizer, model = self.tokenizer, self.model
        texts = render([row["prompt"] for row in rows for _ in range(self.group_size)], tokenizer)
        how = {"padding": True, "padding_side": "left", "add_special_tokens": False}
        prompt = tokenizer(texts, return_tensors="pt", **how).to(model.device)
        ids, mask = prompt["input_ids"], prompt["attention_mask"]
        eos, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
        was_training = model.training
        model.eval()  # no dropout while sampling
        new = sample(model, ids, mask, self.max_new_tokens, eos, pad, self.temperature)
        model.train(was_training)
        new_mask, truncated = completion_masks(new, eos)
        return {
            "input_ids": torch.cat([ids, new], dim=1),
            "attention_mask": torch.cat([mask, new_mask], dim=1),
            "mask": new_mask,
            "truncated": truncated,
            "texts": tokenizer.batch_decode(new, skip_special_tokens=True),
        }

    def score(self, rows: Sequence[dict], texts: Sequence[str]) -> list[float | None]:
        """A reward per completion; the functions get prompts, completions and the other columns."""
        columns = {k: [row[k] for row in rows for _ in range(self.group_size)] for k in rows[0]}
        prompts = columns.pop("prompt")
        answers = [[{"role": "assistant", "content": text}] for text in texts]
        given = [r(prompts=prompts, completions=answers, **columns) for r in self.rewards]
        return combine_rewards(given, self.reward_weights)

    def logprobs(self, model, batch: dict) -> torch.Tensor:
        """The completions' log-probabilities at the temperature they were sampled with: (B, T)."""
        ids, attention, length = batch["input_ids"], batch["attention_mask"], batch["mask"].shape[1]
        return sequence_logprobs(model, ids, attention, length, self.temperature)
