"""The training of benchmarks/race.py: one loop for all its methods, so that only they differ.

All weights of a tiny model in float32, AdamW, a linear learning rate, 64 completions per update.
What TRL has too gives TRL's numbers (tests/test_race.py, tests/test_grpo.py).
"""

import copy
import hashlib
import os
import random
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from grpo_workbook import correctness_reward, load_problems, strict_format_reward, to_dataset
from grpo_workbook.data import load_tokenizer, render
from grpo_workbook.grpo import (
    clipped_losses,
    combine_rewards,
    group_advantages,
    grpo_loss,
    policy_ratio,
    reduce_tokens,
)
from grpo_workbook.grpo_trainer import completion_masks
from grpo_workbook.rewards import get_overlong_reward, parse_rewards
from grpo_workbook.statistics import pass_at_k

DEV = 240  # problems out of the training data, to choose settings
HELDOUT = 240  # problems of the curve and of greedy
MANY = 80  # of these, problems with SAMPLES completions at the end
DEV_MANY = 40  # the same for the development problems
CRITIC_RATE, GAMMA_LAMBDA, DPO_BETA = 1e-3, 0.95, 0.1
LAG, CAP = 8, 2.0
# The teacher of the distillation: the base after so many worked answers, the same for each seed.
TEACHER_TEXTS, TEACHER_RATE, TEACHER_SEED = 4096, 3e-4, 1000
SAMPLES = 16  # completions of each of MANY problems at the end


@dataclass
class Settings:
    """A method; the defaults are GRPO (DeepSeekMath) with one update per batch, without KL."""

    learn: str = "policy"  # or "sft", "dpo", "distill", "teacher", "nothing"
    texts: str = "answers"  # sft: the training "answers", or "right", "best", "random" samples
    rounds: int = 1  # sft, dpo: sample and learn so many times
    cold: int = 0  # completions that are training answers, imitated first
    baseline: str = "group"  # or "none", "batch", "rloo", "critic"
    scale: str = "group"
    loss: str = "grpo"  # those of grpo.LOSS_TYPES, "rloo", "sapo", "ppo"
    level: str = "token"
    low: float = 0.2  # bounds of the ratio: 1 - low and 1 + high
    high: float | None = None  # default low
    updates: int = 1  # per batch
    parts: int = 1  # of a batch, whose gradients are added up
    group: int = 8
    repeats: int = 1  # how often each problem comes: 8 gives the problems of a method with groups
    dynamic: bool = False  # DAPO: sample until all groups have variance
    overlong: bool = False  # DAPO's penalty
    reward: str = "task"  # or "random", "format"
    price: float = 0.0  # of 40 tokens
    habit: bool = False  # first learn never to write steps
    bonus: float = 0.0  # weight of the tokens' entropy in the objective
    top: float = 1.0  # fraction of a batch's tokens, those of the highest entropy, that learn
    sampler: str = (
        "policy"  # or "stale": its weights of up to LAG batches ago; "nf4": rounded to it
    )
    corrected: bool = False  # weigh each token by min(pi / pi of the sampler, CAP)
    whole: bool = True  # distill: the KL of all tokens of the vocabulary, or of the sampled ones
    rate: float = 3e-4  # the learning rate at the start


# ---------------------------------------------------------------- the model


@torch.no_grad()
def sample(model, tokenizer, prompts: list, group: int, limit: int, greedy=False) -> dict:
    """`group` completions for each prompt, which is read once."""
    batch = prompt_batch(tokenizer, prompts, group)
    out = model(input_ids=batch["prompt_ids"], attention_mask=batch["prompt_mask"], use_cache=True)
    cache, logits = out.past_key_values, out.logits[:, -1].repeat_interleave(group, 0)
    cache.batch_repeat_interleave(group)
    mask, eos = batch["prompt_mask"].repeat_interleave(group, 0), tokenizer.eos_token_id
    ids = torch.full((len(mask), limit), tokenizer.pad_token_id)
    entropy, rows, done = torch.zeros(ids.shape), torch.arange(len(ids)), torch.zeros(len(ids)) > 0
    for t in range(limit):
        logp = logits.log_softmax(-1)
        new = logp.argmax(-1) if greedy else torch.multinomial(logp.exp(), 1).squeeze(1)
        ids[rows, t], entropy[rows, t] = new, -(logp.exp() * logp).sum(-1)
        done |= new == eos
        if done.all() or t + 1 == limit:
            break
        if done.float().mean() > 0.25:  # go on without them: a third less time
            on = (~done).nonzero().squeeze(1)
            cache.batch_select_indices(on)
            rows, mask, new, done = rows[on], mask[on], new[on], done[on]
        mask = torch.cat([mask, torch.ones(len(mask), 1, dtype=torch.long)], 1)
        out = model(input_ids=new[:, None], attention_mask=mask, past_key_values=cache)
        logits = out.logits[:, -1]
    ids, entropy = ids[:, : t + 1], entropy[:, : t + 1]
    batch["mask"], _ = completion_masks(ids, eos)
    batch["ids"] = ids.masked_fill(batch["mask"] == 0, tokenizer.pad_token_id)
    batch["entropy"] = float((entropy * batch["mask"]).sum() / batch["mask"].sum())
    batch["texts"] = tokenizer.batch_decode(batch["ids"], skip_special_tokens=True)
    return batch


def prompt_batch(tokenizer, prompts: list, group: int) -> dict:
    how = {"padding": True, "padding_side": "left", "add_special_tokens": False}
    read = tokenizer(render(prompts, tokenizer), return_tensors="pt", **how)
    return {"prompt_ids": read["input_ids"], "prompt_mask": read["attention_mask"], "group": group}


def given_batch(tokenizer, prompts: list, texts: list[str]) -> dict:
    """Given completions, in the form of `sample`."""
    how = {"padding": True, "padding_side": "right", "add_special_tokens": False}
    read = tokenizer([t + tokenizer.eos_token for t in texts], return_tensors="pt", **how)
    made = {"ids": read["input_ids"], "mask": read["attention_mask"]}
    return prompt_batch(tokenizer, prompts, 1) | made


def states(model, batch: dict) -> Tensor:
    """The hidden states from which the completions' tokens are predicted: (B, T, hidden).

    The prompt of a group is read once, with its gradient: half of the time of an update.
    """
    n, body = batch["group"], model.model
    prompt_mask = batch["prompt_mask"]
    prompt = body(input_ids=batch["prompt_ids"], attention_mask=prompt_mask, use_cache=True)
    prompt.past_key_values.batch_repeat_interleave(n)
    mask = torch.cat([prompt_mask.repeat_interleave(n, 0), batch["mask"]], 1)[:, :-1]
    how = {"attention_mask": mask, "past_key_values": prompt.past_key_values}
    first = prompt.last_hidden_state[:, -1:].repeat_interleave(n, 0)
    if batch["ids"].shape[1] == 1:
        return first
    rest = body(input_ids=batch["ids"][:, :-1], **how).last_hidden_state
    return torch.cat([first, rest], 1)


def logprobs(model, batch: dict) -> Tensor:
    """log pi of each token of the completions: (B, T)."""
    return chosen_and_entropy(model, batch)[0]


def chosen_and_entropy(model, batch: dict) -> tuple[Tensor, Tensor]:
    """log pi of each token of the completions, and the entropy there: (B, T) each."""
    logp = model.lm_head(states(model, batch)).log_softmax(-1)
    chosen = logp.gather(-1, batch["ids"].unsqueeze(-1)).squeeze(-1)
    return chosen, -(logp.exp() * logp).sum(-1)


@torch.no_grad()
def round_to_nf4(model) -> None:
    """Give the linear layers of the blocks the values that loading in 4-bit would give them."""
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    for layer in model.model.modules():
        if isinstance(layer, torch.nn.Linear):
            rounded = dequantize_4bit(*quantize_4bit(layer.weight.data, quant_type="nf4"))
            layer.weight.data = rounded


def rows_of(batch: dict, start: int, count: int) -> dict:
    """A part of a batch: whole groups."""
    n, some = batch["group"], {"group": batch["group"]}
    for name in ("prompt_ids", "prompt_mask"):
        some[name] = batch[name][start // n : (start + count) // n]
    return some | {name: batch[name][start : start + count] for name in ("ids", "mask")}


# ---------------------------------------------------------------- the losses


def policy_loss(s: Settings, logp, old, advantages, mask, limit: int) -> Tensor:
    """The loss of a method; `advantages` is (B,), or with "ppo" (B, T) too."""
    if s.loss == "rloo":  # as TRL's: the whole completion's ratio, the product of its tokens'
        ratio = ((logp - old) * mask).sum(1).exp()
        return clipped_losses(ratio, advantages).mean()
    if s.loss == "sapo":  # arXiv 2511.20347: a soft gate where others clip
        A = advantages.unsqueeze(1)
        t = torch.where(A > 0, 1.0, 1.05)
        gate = torch.sigmoid(t * (policy_ratio(logp, old, mask) - 1)) * 4 / t
        return reduce_tokens(-gate * A, mask, "grpo")
    if s.loss == "ppo":
        A = advantages if advantages.ndim == 2 else advantages.unsqueeze(1)
        losses = clipped_losses(policy_ratio(logp, old, mask), A)
        return reduce_tokens(losses, mask, "dapo")
    how = {"level": s.level, "epsilon_low": s.low, "epsilon_high": s.high}
    how |= {"loss_type": s.loss, "old_logp": old, "accumulation_steps": s.parts}
    how |= {"max_completion_length": limit}
    return grpo_loss(logp, advantages, mask, **how)[0]


def dpo_loss(logp: Tensor, ref: Tensor, mask: Tensor) -> Tensor:
    """DPO (Rafailov et al. 2023, 7): the first half of the rows was better than the second."""
    better, worse = ((logp - ref) * mask).sum(1).chunk(2)
    return -logsigmoid(DPO_BETA * (better - worse)).mean()


def distillation_loss(student: Tensor, teacher: Tensor, batch: dict, *, whole: bool) -> Tensor:
    """The reverse KL of the student from the teacher, a mean over the completions' tokens.

    Args:
        student, teacher: log-probabilities of all tokens, (completions, tokens, vocabulary).
        whole: the KL itself; else its estimate from the sampled tokens, as a policy gradient whose
            advantage is how much more likely the teacher finds a token.
    """
    mask = batch["mask"]
    if whole:
        divergence = (student.exp() * (student - teacher)).sum(-1)
    else:
        sampled = batch["ids"].unsqueeze(-1)
        student, teacher = (logp.gather(-1, sampled).squeeze(-1) for logp in (student, teacher))
        divergence = -(teacher - student).detach() * student
    return (divergence * mask).sum() / mask.sum()


def advantages_of(s: Settings, rewards: list) -> Tensor:
    """One per completion, for every baseline but the critic."""
    r = torch.tensor(rewards, dtype=torch.float32)
    if s.baseline == "none":
        return r
    if s.baseline == "batch":
        return r - r.mean()
    if s.baseline == "rloo":  # the mean of the others: r - (n mean - r) / (n - 1)
        return group_advantages(r, s.group, "none") * s.group / (s.group - 1)
    return group_advantages(r, s.group, s.scale)


class Critic:
    """A copy of the policy with a value head, and its own optimizer."""

    def __init__(self, model):
        self.body = copy.deepcopy(model)
        self.head = torch.nn.Linear(model.config.hidden_size, 1)
        torch.nn.init.zeros_(self.head.weight)
        self.weights = [*self.body.model.parameters(), *self.head.parameters()]
        self.optimizer = torch.optim.AdamW(self.weights, CRITIC_RATE, weight_decay=0.0)

    def values(self, batch: dict) -> Tensor:
        return self.head(states(self.body, batch)).squeeze(-1) * batch["mask"]

    def advantages(self, batch: dict, rewards: list) -> Tensor:
        """GAE (Schulman et al. 2016) for each token, whitened; the reward comes at the end."""
        with torch.no_grad():
            values = self.values(batch)
        mask = batch["mask"].float()
        last = mask - torch.cat([mask[:, 1:], torch.zeros(len(mask), 1)], 1)
        after = torch.cat([values[:, 1:], torch.zeros(len(mask), 1)], 1)
        error = (last * torch.tensor(rewards).unsqueeze(1) + after - values) * mask
        for t in reversed(range(error.shape[1] - 1)):
            error[:, t] += GAMMA_LAMBDA * error[:, t + 1]
        self.returns = error + values
        there = error[mask.bool()]
        return (error - there.mean()) / (there.std() + 1e-4) * mask

    def update(self, batch: dict) -> None:
        error = (self.values(batch) - self.returns).square() * batch["mask"]
        descend(self.optimizer, self.weights, error.sum() / batch["mask"].sum())


def descend(optimizer, weights, *losses) -> None:
    optimizer.zero_grad()
    for loss in losses:
        loss.backward()
    torch.nn.utils.clip_grad_norm_(weights, 1.0)
    optimizer.step()


# ---------------------------------------------------------------- one run


def random_reward(completions, **columns) -> list[float]:
    return torch.rand(len(completions)).round().tolist()


def worked(solution: str) -> str:
    """The training answer in the form that is asked for: the equations between << and >>."""
    steps = "\n".join(re.findall("<<(.+?)>>", solution))
    return f"<reasoning>\n{steps}\n</reasoning>\n<answer>{solution.split('#### ')[1]}</answer>"


class Racer:
    """One run of a method on a task: `run()` gives its results."""

    def __init__(self, task: dict, s: Settings, seed: int, budget: int, step=64, dev=False):
        from transformers import AutoModelForCausalLM  # not above: importing it takes seconds

        self.task, self.s, self.seed, self.budget, self.size = task, s, seed, budget, step
        self.dev = dev
        self.model: Any = AutoModelForCausalLM.from_pretrained(task["model"], dtype="float32")
        self.tokenizer = load_tokenizer(task["model"])
        rows, heldout = (
            list(to_dataset(load_problems(f"{task['data']}/{name}.jsonl"), task["system"]))
            for name in ("train", "heldout")
        )
        if task.get("only"):
            rows = [row for row in rows if row[task["only"]]]
            heldout = [row for row in heldout if row[task["only"]]]
        self.many = DEV_MANY if dev else MANY
        self.heldout = rows[-DEV:] if dev else heldout[:HELDOUT]
        self.rows, self.place = rows[:-DEV] if dev else rows, 0
        self.random = random.Random(seed)
        self.random.shuffle(self.rows)
        if s.repeats > 1:
            self.rows = self.rows[: budget // s.repeats]  # those that come first for this seed
        torch.manual_seed(seed)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), s.rate, betas=(0.9, 0.99), weight_decay=0.0
        )
        self.critic = Critic(self.model) if s.baseline == "critic" else None
        self.rewards, self.weights = parse_rewards(task["rewards"])
        if s.reward != "task":
            named = {"random": random_reward, "format": strict_format_reward}
            self.rewards, self.weights = [named[s.reward]], [1.0]
        if s.overlong:
            self.rewards = [*self.rewards, get_overlong_reward(task["tokens"])]
            self.weights = [*self.weights, 1]
        self.sampler = self.model
        self.used = self.updated = self.sampled = 0  # completions, updates, batches
        self.curve: list[list[float]] = []
        self.seconds = 0.0

    def run(self, points: int) -> dict:
        """Train, and measure `points` times: on the way, and more thoroughly at the end."""
        s, self.marks = self.s, [self.budget * i // points for i in range(1, points + 1)]
        if s.habit:
            self.never_write_steps()
        self.started = time.process_time()
        if s.cold:
            rows = self.next_rows(s.cold)
            texts = [worked(row["solution"]) for row in rows]
            self.learn_texts(rows, texts, s.cold // self.size, 1.0, s.rate)
            self.used += s.cold
        if s.learn == "policy":
            self.learn_policy()
        elif s.learn in ("sft", "dpo"):
            self.learn_rounds()
        elif s.learn == "distill":
            self.learn_from_teacher()
        elif s.learn == "teacher":
            self.model = self.make_teacher()
        self.seconds += time.process_time() - self.started
        end = self.measure()
        self.curve.append([self.used, round(self.seconds, 1), end["sampled"]])
        return {
            "end": end,
            "curve": self.curve,
            "completions": self.used,
            "updates": self.updated,
            "seconds": round(self.seconds, 1),
        }

    # ---- learning

    def learn_policy(self) -> None:
        """Sample a batch, reward it, take advantages, update; until the budget is used."""
        s, kept = self.s, []
        while self.used < self.budget:
            rows = self.next_rows(self.size // s.group)
            batch = self.sample(rows)
            rewards = self.score(rows, batch)
            if s.dynamic:  # groups with variance wait until they are a whole batch
                n = s.group
                groups = range(0, len(rewards), n)
                kept += [
                    (rows[i // n], batch["texts"][i : i + n], rewards[i : i + n])
                    for i in groups
                    if max(rewards[i : i + n]) > min(rewards[i : i + n])
                ]
                if len(kept) * n < self.size:
                    continue
                now, kept = kept[: self.size // n], kept[self.size // n :]
                prompts = [row["prompt"] for row, _, _ in now]
                texts = [text for _, group, _ in now for text in group]
                batch = given_batch(self.tokenizer, prompts, texts) | {"group": n}
                rewards = [reward for _, _, group in now for reward in group]
            self.update_policy(batch, rewards)
            self.probe()

    def update_policy(self, batch: dict, rewards: list) -> None:
        s, count = self.s, len(rewards) // self.s.parts
        if self.critic:
            advantages = self.critic.advantages(batch, rewards)
        else:
            advantages = advantages_of(s, rewards)
        if s.sampler != "policy":
            advantages = advantages.unsqueeze(1) * self.importance(batch)
        parts = [rows_of(batch, i, count) for i in range(0, len(rewards), count)]
        with torch.no_grad():
            old = [logprobs(self.model, p) for p in parts] if s.updates > 1 else []
        self.set_rate(s.rate, 1 - (self.used - len(rewards)) / self.budget)
        for _ in range(s.updates):
            if self.critic:
                self.critic.update(batch)
            self.descend(
                *(
                    self.loss(part, old[i] if old else None, advantages[i * count :][:count])
                    for i, part in enumerate(parts)
                )
            )

    def loss(self, part: dict, old: Tensor | None, advantages: Tensor) -> Tensor:
        s, mask = self.s, part["mask"]
        logp, entropy = chosen_and_entropy(self.model, part)
        old = logp.detach() if old is None else old
        if s.top < 1:  # arXiv 2506.01939: the tokens where the policy could have gone another way
            least = entropy[mask.bool()].quantile(1 - s.top)
            mask = mask * (entropy >= least)
        loss = policy_loss(s, logp, old, advantages, mask, self.task["tokens"])
        return loss - s.bonus * (entropy * mask).sum() / mask.sum() if s.bonus else loss

    @torch.no_grad()
    def importance(self, batch: dict) -> Tensor:
        """The weight of each token (B, T); all are 1 if the sampler is taken for the policy."""
        if not self.s.corrected:
            return torch.ones(batch["ids"].shape)
        ratio = (logprobs(self.model, batch) - logprobs(self.sampler, batch)).exp()
        return ratio.clamp(max=CAP)

    def learn_from_teacher(self) -> None:
        """On-policy distillation (arXiv 2306.13649): the student samples, the teacher scores.

        No reward is used. The budget counts the student's completions, not the teacher's texts.
        """
        teacher = self.make_teacher()
        self.started = time.process_time()  # the teacher is there before
        while self.used < self.budget:
            batch = self.sample(self.next_rows(self.size // self.s.group))
            self.set_rate(self.s.rate, 1 - (self.used - self.size) / self.budget)
            with torch.no_grad():
                teacher_logp = teacher.lm_head(states(teacher, batch)).log_softmax(-1)
            student_logp = self.model.lm_head(states(self.model, batch)).log_softmax(-1)
            self.descend(distillation_loss(student_logp, teacher_logp, batch, whole=self.s.whole))
            self.probe()

    def make_teacher(self) -> Any:
        """The base after supervised learning from worked answers to the training problems.

        All seeds have the same teacher, so it is trained once and kept in `build/race`.
        """
        from transformers import AutoModelForCausalLM

        weights = Path(self.task["model"], "model.safetensors").read_bytes()
        data = Path(self.task["data"], "train.jsonl").read_bytes()
        made_by = [self.task.get("only"), self.task["system"], self.size]
        made_by += [TEACHER_TEXTS, TEACHER_RATE, TEACHER_SEED]
        digest = hashlib.sha256(weights + data + repr(made_by).encode()).hexdigest()
        name = f"teacher-{digest[:12]}"
        if self.dev:
            name += "-dev"  # it has not seen the development problems
        folder = Path("build/race") / name
        if folder.is_dir():
            return AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
        settings = Settings(learn="sft", rate=TEACHER_RATE)
        racer = Racer(self.task, settings, TEACHER_SEED, TEACHER_TEXTS, self.size, self.dev)
        racer.marks = [racer.budget]
        racer.started = time.process_time()
        racer.learn_rounds()
        torch.manual_seed(self.seed)  # the student samples as if there had been no teacher
        unfinished = folder.with_name(f"{name}.{os.getpid()}")
        racer.model.save_pretrained(unfinished)
        if folder.is_dir():  # another run has just made the same one
            shutil.rmtree(unfinished)
        else:
            unfinished.rename(folder)
        return racer.model

    def learn_rounds(self) -> None:
        """Offline, once or several times: sample, choose texts or pairs, imitate or prefer them."""
        s, size = self.s, self.budget // self.s.rounds
        for turn in range(s.rounds):
            rows, texts, rewards = self.next_rows(size), [], []
            if s.learn == "dpo" or s.texts != "answers":
                rows = rows[: size // s.group]
                for i in range(0, len(rows), self.size // s.group):
                    batch = self.sample(some := rows[i : i + self.size // s.group])
                    texts += batch["texts"]
                    rewards += self.score(some, batch)
            else:
                self.used += size
            left = 1 - turn / s.rounds, 1 / s.rounds
            updates = size // self.size
            if s.learn == "dpo":
                self.learn_pairs(*self.pairs(rows, texts, rewards), updates, *left)
            else:
                self.learn_texts(
                    *self.chosen(rows, texts, rewards), updates, left[0], s.rate, left[1]
                )
            self.probe()

    def chosen(self, rows: list, texts: list[str], rewards: list) -> tuple[list, list[str]]:
        """(rows, texts) to imitate."""
        s, n, most = self.s, self.s.group, sum(self.weights)
        if s.texts == "answers":
            return rows, [worked(row["solution"]) for row in rows]
        if s.texts == "right":
            good = [i for i, reward in enumerate(rewards) if reward >= most]
        elif s.texts == "best":
            groups = [range(i, i + n) for i in range(0, len(texts), n)]
            good = [max(g, key=lambda i: (rewards[i], self.random.random())) for g in groups]
        else:
            good = [i + self.random.randrange(n) for i in range(0, len(texts), n)]
        return [rows[i // n] for i in good], [texts[i] for i in good]

    def pairs(self, rows: list, texts: list[str], rewards: list) -> tuple[list, list, list]:
        """(rows, best texts, worst texts) of the groups whose rewards differ."""
        n, found = self.s.group, ([], [], [])
        for i in range(0, len(texts), n):
            order = sorted(range(i, i + n), key=lambda j: (rewards[j], self.random.random()))
            if rewards[order[0]] < rewards[order[-1]]:
                pair = (rows[i // n], texts[order[-1]], texts[order[0]])
                for column, value in zip(found, pair, strict=True):
                    column.append(value)
        return found

    def learn_texts(self, rows, texts, updates: int, left: float, rate: float, share=0.0) -> None:
        """SFT: the mean of -log pi over the tokens, in shuffled epochs. Without texts, nothing."""
        updates = updates if texts else 0
        for done, some in enumerate(self.epochs(len(texts), self.size, updates)):
            self.set_rate(rate, left - share * done / updates)
            prompts = [rows[i]["prompt"] for i in some]
            batch = given_batch(self.tokenizer, prompts, [texts[i] for i in some])
            logp = logprobs(self.model, batch)
            self.descend(-(logp * batch["mask"]).sum() / batch["mask"].sum())

    def learn_pairs(self, rows, best, worst, updates: int, left: float, share: float) -> None:
        """DPO on pairs, against the policy that sampled them. Without pairs, nothing."""
        reference, updates = copy.deepcopy(self.model), updates if rows else 0
        for done, some in enumerate(self.epochs(len(rows), self.size // 2, updates)):
            self.set_rate(self.s.rate, left - share * done / updates)
            texts = [best[i] for i in some] + [worst[i] for i in some]
            batch = given_batch(self.tokenizer, [rows[i]["prompt"] for i in some] * 2, texts)
            with torch.no_grad():
                ref = logprobs(reference, batch)
            self.descend(dpo_loss(logprobs(self.model, batch), ref, batch["mask"]))

    def never_write_steps(self) -> None:
        """Make a base that answers at once: imitate those of its own answers that do."""
        for _ in range(2):
            rows, n = self.next_rows(32), self.s.group
            texts = self.sample(rows)["texts"]
            some = [i for i, text in enumerate(texts) if "<reasoning>" not in text]
            asked, texts = [rows[i // n] for i in some], [texts[i] for i in some]
            self.learn_texts(asked, texts, 15, 1.0, 3e-4)
        self.used = self.updated = 0

    def epochs(self, count: int, size: int, batches: int):
        """Indices of `batches` batches; every epoch is shuffled anew."""
        queue: list[int] = []
        for _ in range(batches):
            while len(queue) < size:
                queue += self.random.sample(range(count), count)
            yield queue[:size]
            queue = queue[size:]

    def set_rate(self, rate: float, left: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate * left

    def descend(self, *losses) -> None:
        descend(self.optimizer, self.model.parameters(), *losses)
        self.updated += 1

    # ---- sampling and measuring

    def next_rows(self, count: int) -> list:
        """The next rows, in the seed's order, from the start again after the end."""
        places = [(self.place + i) % len(self.rows) for i in range(count)]
        self.place += count
        return [self.rows[i] for i in places]

    def sample(self, rows: list) -> dict:
        prompts = [row["prompt"] for row in rows]
        self.used += len(rows) * self.s.group
        if self.s.sampler == "nf4" or (self.s.sampler == "stale" and self.sampled % LAG == 0):
            self.sampler = copy.deepcopy(self.model)
            if self.s.sampler == "nf4":
                round_to_nf4(self.sampler)
        self.sampled += 1
        return sample(self.sampler, self.tokenizer, prompts, self.s.group, self.task["tokens"])

    def score(self, rows: list, batch: dict) -> list[float]:
        columns = {k: [row[k] for row in rows for _ in range(self.s.group)] for k in rows[0]}
        columns["prompts"] = columns.pop("prompt")
        columns["completions"] = [[{"role": "assistant", "content": t}] for t in batch["texts"]]
        lengths = batch["mask"].sum(1).tolist()
        columns["completion_ids"] = [[0] * length for length in lengths]
        combined = combine_rewards([f(**columns) for f in self.rewards], self.weights)
        return [r - self.s.price * n / 40 for r, n in zip(combined, lengths, strict=True)]

    def probe(self) -> None:
        """Add a point to the curve if one is due: completions, seconds of training, rate."""
        if self.used < self.marks[0] or self.used >= self.budget:
            return
        self.seconds += time.process_time() - self.started
        rate = mean(self.right(self.heldout, 1)[0])
        self.curve.append([self.used, round(self.seconds, 1), round(rate, 4)])
        self.marks = [mark for mark in self.marks if mark > self.used]
        self.started = time.process_time()

    def right(self, rows: list, group: int, greedy=False) -> tuple[list[bool], list[dict]]:
        """Which completions are right by the task's rule, `group` of each row; and the batches."""
        found, batches = [], []
        with torch.random.fork_rng([]):
            torch.manual_seed(1000 + self.seed)
            for i in range(0, len(rows), 960 // 4 // group):
                some = rows[i : i + 960 // 4 // group]
                prompts = [row["prompt"] for row in some]
                batch = sample(
                    self.model, self.tokenizer, prompts, group, self.task["tokens"], greedy
                )
                given = {"completions": batch["texts"]}
                given["prompts"] = [row["question"] for row in some for _ in range(group)]
                given["answer"] = [row["answer"] for row in some for _ in range(group)]
                judged = [correctness_reward(**given)]
                judged += [strict_format_reward(**given)] if self.task["strict"] else []
                found += [min(values) == 1 for values in zip(*judged, strict=True)]
                batches.append(batch)
        return found, batches

    def measure(self) -> dict:
        """All rates on the held-out problems."""
        many, batches = self.right(self.heldout[: self.many], SAMPLES)
        groups = [sum(many[i : i + SAMPLES]) for i in range(0, len(many), SAMPLES)]
        texts = [text for batch in batches for text in batch["texts"]]
        found = {
            "sampled": mean(many),
            "greedy": mean(self.right(self.heldout, 1, greedy=True)[0]),
            "pass8": mean(pass_at_k(SAMPLES, right, 8) for right in groups),
            "pass16": mean(pass_at_k(SAMPLES, right, 16) for right in groups),
            "entropy": mean(batch["entropy"] for batch in batches),
            "tokens": mean(float(n) for batch in batches for n in batch["mask"].sum(1)),
            "steps": mean(text.count("=") for text in texts),
        }
        return {name: round(value, 4) for name, value in found.items()}
