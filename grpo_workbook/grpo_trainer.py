"""A GRPO trainer to read from top to bottom: sample groups, reward them, take advantages, update. See grpo.py.

It trains the weights that require a gradient: all of a plain model, only the adapters of a PEFT model. For one device
and small models; the course's real runs use TRL's trainer, whose numbers this one's loss shares.
"""

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from grpo_workbook.data import render
from grpo_workbook.grpo import combine_rewards, group_advantages, grpo_loss, sequence_logprobs

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Reward = Callable[..., Sequence[float | None]]


@torch.no_grad()
def sample(
    model,
    prompt_ids: "Tensor",
    prompt_mask: "Tensor",
    max_new_tokens: int,
    eos: int,
    pad: int,
    temperature: float = 1.0,
) -> "Tensor":
    """One completion for each prompt, drawn token by token: (B, T), T <= max_new_tokens, `pad` after the end token.

    `prompt_ids` and `prompt_mask` (B, P) are padded on the left. Past keys and values are kept, so that each new token
    costs one position. Draws from torch's global random state.
    """
    mask, new, cache, completion = prompt_mask, prompt_ids, None, []
    done = torch.zeros(len(prompt_ids), dtype=torch.bool, device=prompt_ids.device)
    for _ in range(max_new_tokens):
        out = model(
            input_ids=new,
            attention_mask=mask,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        cache = out.past_key_values
        probabilities = (out.logits[:, -1].float() / temperature).softmax(dim=-1)
        new = torch.multinomial(probabilities, 1).masked_fill(done.unsqueeze(1), pad)
        completion.append(new)
        done |= new.squeeze(1) == eos
        if done.all():
            break
        mask = torch.cat([mask, torch.ones_like(new)], dim=1)
    return torch.cat(completion, dim=1)


def completion_masks(completion_ids: "Tensor", eos: int) -> tuple["Tensor", "Tensor"]:
    """(mask (B, T): 1 up to and with the end token, truncated (B,): no end token was drawn)."""
    ended = completion_ids == eos
    before_the_end = ended.cumsum(dim=1) - ended.int() == 0
    return before_the_end.long(), ~ended.any(dim=1)


@dataclass
class ScratchTrainer:
    """GRPO (DeepSeekMath, algorithm 1) for a model, its reference and a reward.

    `rewards`: one reward function in TRL's contract, or several; `reward_weights` then weighs each. `reference`: the
    frozen model that the KL divergence is measured from; None takes a copy of the model as it is now. `kl_coef` is
    beta: 0 measures the divergence without penalising it. `inner_epochs`: updates on each batch of completions; from
    the second on the ratio leaves 1 and clipping acts. `max_grad_norm`: longer gradients are shortened to it.
    `group_size`: completions for each prompt, TRL's num_generations. Raises ValueError for values that cannot be, and
    for a model of which nothing would be trained.
    """

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    rewards: Reward | Sequence[Reward]
    reward_weights: Sequence[float] | None = None
    reference: "PreTrainedModel | None" = None
    group_size: int = 8
    prompts_per_step: int = 8
    kl_coef: float = 0.0
    learning_rate: float = 1e-3
    max_new_tokens: int = 64
    temperature: float = 1.0
    max_grad_norm: float = 1.0
    inner_epochs: int = 1
    loss_type: str = "dapo"
    scale: str = "group"
    mask_truncated: bool = False
    seed: int = 0
    optimizer: torch.optim.Optimizer = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("prompts_per_step", "max_new_tokens", "inner_epochs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 1")
        if self.group_size < 2:
            raise ValueError(
                f"group_size is {self.group_size}: a group needs at least 2 completions to compare"
            )
        self.rewards = [self.rewards] if callable(self.rewards) else list(self.rewards)
        self.trained = [p for p in self.model.parameters() if p.requires_grad]
        if not self.trained:
            raise ValueError(
                "no weight of the model requires a gradient: there is nothing to train"
            )
        self.optimizer = torch.optim.AdamW(
            self.trained, self.learning_rate, betas=(0.9, 0.99), weight_decay=0.0
        )
        if self.reference is None:
            self.refresh_reference()
        self.reference.eval().requires_grad_(False)

    def refresh_reference(self) -> None:
        """Measure the distance from here on: the reference becomes a frozen copy of the model as it is now."""
        self.reference = copy.deepcopy(self.model).eval().requires_grad_(False)

    def train(self, prompts: Sequence[dict], epochs: int = 1) -> Iterator[dict[str, float]]:
        """Train, and yield the metrics of each step. A generator: nothing happens until it is walked through.

        `prompts`: rows with `prompt` (a conversation) and whatever columns the rewards read. In every epoch they are
        shuffled and taken `prompts_per_step` at a time; a rest that fills no step is left out. The learning rate falls
        linearly to 0 over the call.
        """
        rows, order = list(prompts), random.Random(self.seed)
        per_epoch = len(rows) // self.prompts_per_step
        if per_epoch == 0 or epochs < 1:
            raise ValueError(
                f"{len(rows)} prompts and {epochs} epochs give no step of {self.prompts_per_step} prompts"
            )
        torch.manual_seed(self.seed)
        step, steps = 0, per_epoch * epochs
        for epoch in range(epochs):
            order.shuffle(rows)
            for i in range(per_epoch):
                chosen = rows[i * self.prompts_per_step : (i + 1) * self.prompts_per_step]
                for group in self.optimizer.param_groups:
                    group["lr"] = self.learning_rate * (1 - step / steps)
                step += 1
                yield {"step": step, "epoch": epoch, **self.step(chosen)}

    def train_rounds(
        self, prompts: Sequence[dict], rounds: int, epochs: int = 1
    ) -> Iterator[dict[str, float]]:
        """Iterative GRPO: `rounds` times `train`, and after each the reference is refreshed."""
        for number in range(rounds):
            for metrics in self.train(prompts, epochs):
                yield {"round": number, **metrics}
            self.refresh_reference()

    def step(self, rows: Sequence[dict]) -> dict[str, float]:
        """One batch of completions, and the updates on it."""
        batch = self.rollout(rows)
        rewards = self.score(rows, batch["texts"])
        advantages = group_advantages(rewards, self.group_size, self.scale).to(batch["mask"].device)
        with torch.no_grad():
            ref_logp = self.logprobs(self.reference, batch)
            old_logp = self.logprobs(self.model, batch) if self.inner_epochs > 1 else None
        for _ in range(self.inner_epochs):
            loss, logged = grpo_loss(
                self.logprobs(self.model, batch),
                advantages,
                batch["mask"],
                old_logp=old_logp,
                ref_logp=ref_logp,
                truncated=batch["truncated"] if self.mask_truncated else None,
                beta=self.kl_coef,
                loss_type=self.loss_type,
                max_completion_length=self.max_new_tokens,
            )
            self.optimizer.zero_grad()
            loss.backward()
            grad_norm = torch.nn.utils.clip_grad_norm_(self.trained, self.max_grad_norm)
            self.optimizer.step()
        return {
            "loss": float(loss.detach()),
            "grad_norm": float(grad_norm),
            **logged,
            **self.measure(rewards, batch),
        }

    def measure(self, rewards: Sequence[float | None], batch: dict) -> dict[str, float]:
        """Mean reward, mean deviation within groups, share of groups without a gradient; length, share cut off."""
        groups = torch.tensor([float("nan") if r is None else r for r in rewards]).view(
            -1, self.group_size
        )
        advantages = group_advantages(rewards, self.group_size).view_as(groups)
        return {
            "reward": float(groups.nanmean()),
            "reward_std": _spread(groups),
            "silent_groups": float((advantages == 0).all(dim=1).float().mean()),
            "tokens": float(batch["mask"].sum(dim=1).float().mean()),
            "truncated": float(batch["truncated"].float().mean()),
        }

    def rollout(self, rows: Sequence[dict]) -> dict:
        """`group_size` completions for each row: ids, masks, and their texts."""
        tokenizer, repeated = (
            self.tokenizer,
            [row["prompt"] for row in rows for _ in range(self.group_size)],
        )
        side, tokenizer.padding_side = tokenizer.padding_side, "left"
        prompt = tokenizer(
            render(repeated, tokenizer), return_tensors="pt", padding=True, add_special_tokens=False
        )
        tokenizer.padding_side = side
        prompt = prompt.to(self.model.device)
        was_training = self.model.training
        self.model.eval()  # no dropout while sampling
        ids = sample(
            self.model,
            prompt["input_ids"],
            prompt["attention_mask"],
            self.max_new_tokens,
            tokenizer.eos_token_id,
            tokenizer.pad_token_id,
            self.temperature,
        )
        self.model.train(was_training)
        mask, truncated = completion_masks(ids, tokenizer.eos_token_id)
        return {
            "input_ids": torch.cat([prompt["input_ids"], ids], dim=1),
            "attention_mask": torch.cat([prompt["attention_mask"], mask], dim=1),
            "mask": mask,
            "truncated": truncated,
            "texts": tokenizer.batch_decode(ids, skip_special_tokens=True),
        }

    def score(self, rows: Sequence[dict], texts: Sequence[str]) -> list[float | None]:
        """One reward for each completion; the functions get prompts, completions and the rows' other columns."""
        columns = {
            name: [row[name] for row in rows for _ in range(self.group_size)] for name in rows[0]
        }
        prompts = columns.pop("prompt")
        completions = [[{"role": "assistant", "content": text}] for text in texts]
        given = [
            function(prompts=prompts, completions=completions, **columns)
            for function in self.rewards
        ]
        return combine_rewards(given, self.reward_weights)

    def logprobs(self, model: "PreTrainedModel", batch: dict) -> "Tensor":
        """The completions' log-probabilities under a model, at the temperature they were drawn with: (B, T)."""
        length = batch["mask"].shape[1]
        return sequence_logprobs(
            model, batch["input_ids"], batch["attention_mask"], length, self.temperature
        )


def _spread(groups: "Tensor") -> float:
    """The mean over groups of the standard deviation within each, of the completions that have a reward."""
    deviations = [g[~g.isnan()].std() for g in groups if (~g.isnan()).sum() > 1]
    return float(torch.stack(deviations).mean()) if deviations else 0.0
