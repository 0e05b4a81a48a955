"""A GRPO trainer to read from top to bottom: sample groups, reward them, take advantages, update.

It trains the weights that require a gradient: all weights of a plain model, the adapters of a PEFT
model. It is for one device and small models; TRL's trainer, for real runs, has the same loss.
The formulas are in `grpo.py`; here is what surrounds them. In the comments, `completions` is
`group_size` times the number of prompts in a step.
"""

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from grpo_workbook.data import render
from grpo_workbook.grpo import combine_rewards, group_advantages, grpo_loss, sequence_logprobs


@torch.no_grad()
def sample(
    model: Any,
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    max_new_tokens: int,
    eos: int,
    pad: int,
    temperature: float = 1.0,
) -> Tensor:
    """Sample one completion for each prompt.

    `prompt_ids` and `prompt_mask` (completions, prompt) are padded on the left. `eos` is the token
    that ends a completion, and `pad` fills the places after it. Returns (completions, tokens), with
    at most `max_new_tokens` tokens.
    """
    mask = prompt_mask
    new_ids = prompt_ids
    cache = None
    columns = []
    ended = torch.zeros(len(prompt_ids), dtype=torch.bool, device=prompt_ids.device)
    for _ in range(max_new_tokens):
        output = model(
            input_ids=new_ids,
            attention_mask=mask,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        cache = output.past_key_values
        logits = output.logits[:, -1].float() / temperature  # (completions, vocabulary)
        probabilities = logits.softmax(dim=-1)
        new_ids = torch.multinomial(probabilities, 1)  # (completions, 1)
        new_ids = new_ids.masked_fill(ended.unsqueeze(1), pad)
        columns.append(new_ids)
        ended = ended | (new_ids.squeeze(1) == eos)
        if ended.all():
            break
        mask = torch.cat([mask, torch.ones_like(new_ids)], dim=1)
    return torch.cat(columns, dim=1)


def completion_masks(completion_ids: Tensor, eos: int) -> tuple[Tensor, Tensor]:
    """Which tokens of `completion_ids` (completions, tokens) count, and which rows were cut off.

    Returns the mask (completions, tokens), 1 up to and with the end token, and a boolean for each
    completion: True if it has no end token.
    """
    is_end = completion_ids == eos
    ends_before = is_end.cumsum(dim=1) - is_end.int()  # how many end tokens stand before this one
    mask = (ends_before == 0).long()
    truncated = ~is_end.any(dim=1)
    return mask, truncated


@dataclass
class ScratchTrainer:
    """GRPO (DeepSeekMath, algorithm 1) for a model, its reference and one or several rewards."""

    model: Any
    tokenizer: Any
    rewards: Callable | Sequence[Callable]  # one function or several, by TRL's contract
    reward_weights: Sequence[float] | None = None
    reference: Any = None  # for the KL divergence; None copies the model as it is now
    group_size: int = 8  # TRL's num_generations
    prompts_per_step: int = 8
    beta: float = 0.0  # weight of the KL penalty; 0 measures the divergence without penalising it
    learning_rate: float = 1e-3
    max_new_tokens: int = 64
    temperature: float = 1.0
    inner_epochs: int = 1  # updates on a batch; from the second one on, the ratio leaves 1
    loss_type: str = "dapo"
    scale: str = "group"
    seed: int = 0

    def __post_init__(self) -> None:
        self.reward_functions = [self.rewards] if callable(self.rewards) else list(self.rewards)
        self.trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.trained, self.learning_rate, betas=(0.9, 0.99), weight_decay=0.0
        )
        if self.reference is None:
            self.refresh_reference()
        else:
            self.reference.eval().requires_grad_(False)

    def refresh_reference(self) -> None:
        """Make a frozen copy of the current model the reference, as iterative GRPO does."""
        self.reference = copy.deepcopy(self.model).eval().requires_grad_(False)

    def train(self, prompts: Sequence[dict], epochs: int = 1) -> Iterator[dict[str, float]]:
        """Train on rows with `prompt` and the rewards' columns; yields the metrics of each step.

        The learning rate falls linearly to 0. Rows that do not fill a step are left out of their
        epoch. Raises ValueError if there are too few rows for a single step.
        """
        rows = list(prompts)
        shuffler = random.Random(self.seed)
        torch.manual_seed(self.seed)
        steps_per_epoch = len(rows) // self.prompts_per_step
        steps = steps_per_epoch * epochs
        if steps < 1:
            raise ValueError(
                f"{len(rows)} prompts, {epochs} epochs: too few for a step of "
                f"{self.prompts_per_step}; give more prompts, or a smaller prompts_per_step"
            )
        for step in range(steps):
            epoch, position = divmod(step, steps_per_epoch)
            if position == 0:
                shuffler.shuffle(rows)
            for parameters in self.optimizer.param_groups:
                parameters["lr"] = self.learning_rate * (1 - step / steps)
            first = position * self.prompts_per_step
            metrics = self.step(rows[first : first + self.prompts_per_step])
            yield {"step": step + 1, "epoch": epoch, **metrics}

    def step(self, rows: Sequence[dict]) -> dict[str, float]:
        """Sample a batch of completions, update on it, and return metrics; TRL's have its names."""
        batch = self.rollout(rows)
        rewards = self.score(rows, batch["texts"])
        advantages = group_advantages(rewards, self.group_size, self.scale)  # (completions,)
        advantages = advantages.to(batch["mask"].device)
        old_logp = None
        with torch.no_grad():
            ref_logp = self.logprobs(self.reference, batch)
            if self.inner_epochs > 1:
                old_logp = self.logprobs(self.model, batch)
        metrics: dict[str, float] = {}
        for _ in range(self.inner_epochs):
            loss, logged = grpo_loss(
                self.logprobs(self.model, batch),
                advantages,
                batch["mask"],
                old_logp=old_logp,
                ref_logp=ref_logp,
                beta=self.beta,
                loss_type=self.loss_type,
                max_completion_length=self.max_new_tokens,
            )
            self.optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
            self.optimizer.step()
            metrics = {"loss": float(loss.detach()), "grad_norm": float(norm), **logged}
        metrics.update(self.batch_metrics(rewards, batch))
        return metrics

    def batch_metrics(self, rewards: Sequence[float | None], batch: dict) -> dict[str, float]:
        """The rewards and lengths of a batch; rewards of None are left out."""
        flat = np.array(rewards, dtype=float)  # (completions,), NaN for None
        groups = pd.DataFrame(flat.reshape(-1, self.group_size))  # (prompts, group_size)
        return {
            "reward": float(np.nanmean(flat)),
            "reward_std": float(np.nanstd(flat, ddof=1)),  # of the whole batch, as in TRL
            "group_std": float(groups.std(axis=1).mean()),  # within the groups; not in TRL
            "frac_reward_zero_std": float((groups.nunique(axis=1) <= 1).mean()),
            "tokens": float(batch["mask"].sum(dim=1).float().mean()),
            "truncated": float(batch["truncated"].float().mean()),
        }

    def rollout(self, rows: Sequence[dict]) -> dict:
        """`group_size` completions for each row: ids, masks, and their texts."""
        tokenizer = self.tokenizer
        chats = [row["prompt"] for row in rows for _ in range(self.group_size)]
        prompts = tokenizer(
            render(chats, tokenizer),
            return_tensors="pt",
            padding=True,
            padding_side="left",
            add_special_tokens=False,
        ).to(self.model.device)
        was_training = self.model.training
        self.model.eval()  # no dropout while sampling
        completion_ids = sample(
            self.model,
            prompts["input_ids"],
            prompts["attention_mask"],
            self.max_new_tokens,
            tokenizer.eos_token_id,
            tokenizer.pad_token_id,
            self.temperature,
        )
        self.model.train(was_training)
        mask, truncated = completion_masks(completion_ids, tokenizer.eos_token_id)
        return {
            # (completions, prompt + tokens)
            "input_ids": torch.cat([prompts["input_ids"], completion_ids], dim=1),
            "attention_mask": torch.cat([prompts["attention_mask"], mask], dim=1),
            "mask": mask,  # (completions, tokens)
            "truncated": truncated,  # (completions,)
            "texts": tokenizer.batch_decode(completion_ids, skip_special_tokens=True),
        }

    def score(self, rows: Sequence[dict], texts: Sequence[str]) -> list[float | None]:
        """A reward per completion; the functions get prompts, completions and the other columns."""
        columns = {}
        for name in rows[0]:
            columns[name] = [row[name] for row in rows for _ in range(self.group_size)]
        prompts = columns.pop("prompt")
        completions = [[{"role": "assistant", "content": text}] for text in texts]
        per_function = []
        for function in self.reward_functions:
            rewards = function(prompts=prompts, completions=completions, **columns)
            per_function.append(rewards)
        return combine_rewards(per_function, self.reward_weights)

    def logprobs(self, model: Any, batch: dict) -> Tensor:
        """The completions' log-probabilities at the temperature they were sampled with.

        Returns (completions, tokens).
        """
        return sequence_logprobs(
            model,
            batch["input_ids"],
            batch["attention_mask"],
            batch["mask"].shape[1],
            self.temperature,
        )
