"""The training of benchmarks/goodhart.py: the race's loop, with rewards that can be wrong.

The reward models are trained by TRL's RewardTrainer, on pairs that the task's rule has ordered.
`gold` is that rule; what a run is paid for is its *proxy*. Both are measured on every batch.
"""

import copy
import json
import os
import random
import re
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import torch
from race_training import Critic, Racer, Settings, logprobs, policy_loss
from torch import Tensor

from grpo_workbook.data import load_tokenizer
from grpo_workbook.grpo import kl_estimate, reduce_tokens
from grpo_workbook.rewards.answers import extract_answer, is_correct
from grpo_workbook.statistics import pass_at_k

PROMPTS, HELD_OUT, SIZE = 384, 128, 4  # of the pool that pairs are made of: the last are held out
PROBE = slice(240, 304)  # held-out problems, none of them in the final measurement, for `keep`
MEASURED = 80  # held-out problems of the final measurement, 8 completions each


@dataclass
class Learned(Settings):
    """A method; the defaults are GRPO against one reward model, with no KL penalty."""

    paid: str = "model"  # or "rule"; "noisy rule", flipped at the rate `noise`; "majority"
    models: int = 1  # reward models, and how their rewards become one
    combine: str = "mean"  # or "minimum"
    flips: float = 0.0  # rate of pairs in the wrong order among those that the models learned
    noise: float = 0.0
    beta: float = 0.0  # of the KL penalty
    target: float = 0.0  # of the KL divergence, in nats per completion: beta follows it
    keep: bool = False  # in the end, go back to the weights with the best rule on other problems
    diverse: float = 0.0  # weight of a bonus for an answer that few of the group gave
    steps: str = ""  # pay "right" steps, or all "true" ones; "outcome": the answer alone


# ---------------------------------------------------------------- reward models


def chat_of(tokenizer, prompts: list, texts: list[str]) -> list[str]:
    """The texts that a reward model reads: as TRL's trainers render them."""
    told = [{"role": "assistant", "content": text} for text in texts]
    rows = [[*prompt, message] for prompt, message in zip(prompts, told, strict=True)]
    return tokenizer.apply_chat_template(rows, tokenize=False)


@torch.no_grad()
def judged(model, tokenizer, prompts: list, texts: list[str]) -> Tensor:
    """A reward model's rewards (B,), as TRL's GRPOTrainer computes them."""
    found, read = [], chat_of(tokenizer, prompts, texts)
    for i in range(0, len(read), 128):
        how = {"padding": True, "padding_side": "right", "add_special_tokens": False}
        given = tokenizer(read[i : i + 128], return_tensors="pt", **how)
        found.append(model(**given).logits[:, 0])
    return torch.cat(found)


def pool(task: dict, seed: int, folder: Path) -> list[dict]:
    """Completions of the base, `SIZE` in a row for each prompt, with the rule's gold reward."""
    path = folder / f"pool-{seed}.json"
    if not path.is_file():
        racer, found = Racer(task, Settings(group=SIZE), seed, 0), []
        for _ in range(0, PROMPTS, 64):
            batch = racer.sample(rows := racer.next_rows(64))
            gold = racer.score(rows, batch)
            for i, text in enumerate(batch["texts"]):
                told = {"prompt": rows[i // SIZE]["prompt"], "text": text}
                found.append(told | {"gold": gold[i] / sum(racer.weights)})
        whole(path, lambda new: new.write_text(json.dumps(found)))
    return json.loads(path.read_text(encoding="utf-8"))


def whole(path: Path, write) -> None:
    """Fill a new file or folder, then give it its name: a killed process leaves none by halves."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    write(new)
    if path.exists():
        shutil.rmtree(new) if new.is_dir() else new.unlink()  # somebody else was first
    else:
        os.replace(new, path)


def ordered_pairs(completions: list[dict], each: int, flips: float, seed: int) -> list[dict]:
    """Up to `each` pairs per prompt whose gold differs, a rate of `flips` in the wrong order."""
    rng, found = random.Random(seed), []
    for i in range(0, len(completions), SIZE):
        group = completions[i : i + SIZE]
        all_pairs = [(a, b) for a in group for b in group if a["gold"] > b["gold"]]
        for pair in rng.sample(all_pairs, min(each, len(all_pairs))):
            best, worst = pair if rng.random() >= flips else pair[::-1]
            sides = {"chosen": best, "rejected": worst}
            chats = {k: [{"role": "assistant", "content": v["text"]}] for k, v in sides.items()}
            found.append({"prompt": best["prompt"], **chats})
    return found


def reward_model(task: dict, seed: int, flips: float, member: int, folder: Path):
    """A reward model of this seed, trained unless `folder` has it."""
    from transformers import AutoModelForSequenceClassification

    place = folder / f"seed-{seed}-flips-{flips:g}-member-{member}"
    how = {"num_labels": 1, "dtype": torch.float32}
    if not place.is_dir():
        import datasets
        from transformers import AutoTokenizer, PrinterCallback
        from trl import RewardConfig, RewardTrainer

        learned = pool(task, seed, folder)[: -HELD_OUT * SIZE]
        rows = ordered_pairs(learned, 2, flips, 100 * seed + member)
        torch.manual_seed(100 * seed + member)
        model = AutoModelForSequenceClassification.from_pretrained(task["model"], **how)
        args = RewardConfig(
            output_dir=str(folder / "trl"), learning_rate=3e-4, num_train_epochs=1,
            per_device_train_batch_size=16, warmup_steps=4, save_strategy="no", seed=seed,
            report_to="none", use_cpu=True, bf16=False, gradient_checkpointing=False,
            disable_tqdm=True,
        )  # fmt: skip
        tokenizer = AutoTokenizer.from_pretrained(task["model"])
        dataset = datasets.Dataset.from_list(rows)
        trainer = RewardTrainer(model, args, train_dataset=dataset, processing_class=tokenizer)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        whole(place, model.save_pretrained)
    return AutoModelForSequenceClassification.from_pretrained(place, **how).eval()


def accuracies(task: dict, seed: int, flips: float, folder: Path) -> dict:
    """How often a reward model orders held-out pairs as the rule does: all of them, and those where
    both completions have the whole form, so that only the answers differ. `calibration`: for ten
    ranges of the predicted probability, pairs, their mean prediction, the rate that came true.
    """
    model = reward_model(task, seed, flips, 0, folder)
    rows = pool(task, seed, folder)[-HELD_OUT * SIZE :]
    texts = [row["text"] for row in rows]
    prompts = [row["prompt"] for row in rows]
    rewards = judged(model, load_tokenizer(task["model"]), prompts, texts).tolist()
    every, bins = [], [[0, 0.0, 0] for _ in range(10)]
    for i in range(0, len(rows), SIZE):
        group = range(i, i + SIZE)
        for a, b in ((a, b) for a in group for b in group if rows[a]["gold"] > rows[b]["gold"]):
            every.append(rewards[a] > rewards[b])
            for sign in (1, -1):  # either of the two may be asked for first
                p = float(torch.sigmoid(torch.tensor(sign * (rewards[a] - rewards[b]))))
                one = bins[min(9, int(10 * p))]
                one[0], one[1], one[2] = one[0] + 1, one[1] + p, one[2] + (sign > 0)
    good = [r for row, r in zip(rows, rewards, strict=True) if row["gold"] == 1]
    bad = [r for row, r in zip(rows, rewards, strict=True) if abs(row["gold"] - 1 / 3) < 1e-6]
    alike = [a > b for a in good for b in bad]
    return {
        "end": {"accuracy": round(mean(every), 4), "alike": round(mean(alike), 4)},
        "pairs": [len(every), len(alike)],
        "calibration": [[n, round(p / n, 4), round(up / n, 4)] if n else [] for n, p, up in bins],
    }  # fmt: skip


# ---------------------------------------------------------------- one run


class StepRewards:
    """Advantages from a reward for each step: in the place of a critic.

    DeepSeekMath (4.1.3): the rewards of all steps of a group are normalised together, and a token's
    advantage is the sum of those of its own step and all later ones. The answer is the last step.
    """

    def __init__(self, learner, kind: str):
        self.learner, self.kind = learner, kind

    def update(self, batch: dict) -> None:
        """There is nothing to learn."""

    def advantages(self, batch: dict, rewards: list) -> Tensor:
        found = torch.zeros(batch["ids"].shape)
        for i in range(0, len(rewards), batch["group"]):
            row = self.learner.current[i // batch["group"]]
            ends = [self.rewarded(batch, j, row, rewards[j]) for j in range(i, i + batch["group"])]
            values = torch.tensor([value for each in ends for _, value in each])
            scale = values.std() + 1e-4
            for j, each in enumerate(ends):
                for end, value in each:
                    found[i + j, : end + 1] += (value - values.mean()) / scale
        return found * batch["mask"]

    def rewarded(self, batch: dict, j: int, row: dict, right: float) -> list[tuple[int, float]]:
        """(last token, reward) of each step of completion j, and of its end."""
        count = int(batch["mask"][j].sum())
        wanted, found, text = re.findall("<<(.+?)>>", row["solution"]), [], ""
        decode = self.learner.tokenizer.decode
        for t, token in enumerate(batch["ids"][j, :count].tolist()):
            new = decode([token], skip_special_tokens=True)
            line = text.rsplit("\n", 1)[-1].rsplit(">", 1)[-1]
            ended = re.fullmatch(r"([\d+]+)=(\d+)", line) and not re.match(r"\d", new)
            if ended:
                if self.kind == "right":
                    value = float(len(found) < len(wanted) and line == wanted[len(found)])
                else:
                    left, result = line.split("=")
                    value = float(sum(int(n or 0) for n in left.split("+")) == int(result))
                found.append((t - 1, value))
            text += new
        return [*found, (count - 1, float(right > 0))]


def agreeing(answers: list[str | None], n: int) -> list[float]:
    """1.0 for the answer that most of its group of `n` gave: a reward without any label."""
    found = []
    for i in range(0, len(answers), n):
        votes = Counter(a for a in answers[i : i + n] if a is not None).most_common(1)
        found += [float(bool(votes) and a == votes[0][0]) for a in answers[i : i + n]]
    return found


class Learner(Racer):
    """One run of a method; see `Racer`."""

    s: Learned

    def __init__(self, task: dict, s: Learned, seed: int, budget: int, folder: Path, dev=False):
        models = s.models if s.paid == "model" else 0
        self.judges = [reward_model(task, seed, s.flips, i, folder) for i in range(models)]
        super().__init__(task, s, seed, budget, dev=dev)
        self.reference = copy.deepcopy(self.model).eval().requires_grad_(False)
        if s.steps in ("right", "true"):
            self.critic = StepRewards(self, s.steps)
        self.noise, self.beta = random.Random(1000 + seed), s.beta
        self.log: list[dict] = []
        self.best: tuple[float, int, dict] = (-1.0, 0, {})
        self.labels = 0  # gold labels that the method itself has used

    def proxy(self, rows: list, texts: list[str]) -> list[float]:
        """What is paid for: rows and texts, one of each."""
        if self.s.paid != "model":
            return []
        prompts = [row["prompt"] for row in rows]
        each = torch.stack([judged(m, self.tokenizer, prompts, texts) for m in self.judges])
        combined = each.mean(0) if self.s.combine == "mean" else each.min(0).values
        return combined.tolist()

    def score(self, rows: list, batch: dict) -> list[float]:
        s, n = self.s, self.s.group
        self.current, texts = rows, batch["texts"]
        gold = [value / sum(self.weights) for value in super().score(rows, batch)]
        right = [float(value > 0.999) for value in gold]
        if s.paid == "model":
            paid = self.proxy([row for row in rows for _ in range(n)], texts)
        elif s.paid == "noisy rule":
            paid = [1 - r if self.noise.random() < s.noise else r for r in right]
        elif s.paid == "majority":
            paid = agreeing([extract_answer(text) for text in texts], n)
        else:
            paid = gold
        self.seen = {"proxy": mean(paid), "gold": mean(gold), "right": mean(right)}
        if s.diverse:
            answers = [extract_answer(text) for text in texts]
            for i in range(0, len(texts), n):
                group = answers[i : i + n]
                for j in range(n):
                    others = group.count(group[j]) - 1 if group[j] is not None else n - 1
                    paid[i + j] += s.diverse * (1 - others / (n - 1))
        return paid

    def learn_policy(self) -> None:
        self.reference.load_state_dict(self.model.state_dict())  # after SFT, if there was one
        super().learn_policy()

    def loss(self, part: dict, old: Tensor | None, advantages: Tensor) -> Tensor:
        s, mask, logp = self.s, part["mask"], logprobs(self.model, part)
        with torch.no_grad():
            ref = logprobs(self.reference, part)
        old = logp.detach() if old is None else old
        loss = policy_loss(s, logp, old, advantages, mask, self.task["tokens"])
        self.seen["kl"] = float(((logp.detach() - ref) * mask).sum(1).mean())
        if self.beta:
            penalty = kl_estimate(logp, ref) * (logp - old).exp()  # as TRL's
            kind = "dapo" if s.loss == "ppo" else s.loss
            loss = loss + self.beta * reduce_tokens(penalty, mask, kind)
        return loss

    def probe(self) -> None:
        """After an update: log the batch, let beta follow its target, look at other problems."""
        if self.s.target:  # Ziegler et al. 2019, 2.2
            error = max(-0.2, min(0.2, self.seen["kl"] / self.s.target - 1))
            self.beta *= 1 + 0.5 * error
        seen = self.seen | {"used": self.used, "beta": self.beta}
        self.log.append({name: round(value, 5) for name, value in seen.items()})
        if self.s.keep and len(self.log) % 4 == 0:
            rate = mean(self.right(self.others, 1)[0])
            self.labels += len(self.others)
            if rate > self.best[0]:
                state = copy.deepcopy(self.model.state_dict())
                self.best = (rate, self.used, state)

    def run(self, points: int) -> dict:
        if self.s.keep:
            from grpo_workbook import load_problems, to_dataset

            problems = load_problems(f"{self.task['data']}/heldout.jsonl")
            self.others = list(to_dataset(problems, self.task["system"]))[PROBE]
        found = super().run(points)
        del found["curve"]
        return found | {"log": self.log, "labels": self.labels}

    def measure(self) -> dict:
        """Rates on held-out problems; and the MiB of all that training had to hold."""
        held = self.megabytes()
        if self.best[2]:
            self.model.load_state_dict(self.best[2])
        rows = self.heldout[:MEASURED]
        right, batches = self.right(rows, 8)
        texts = [text for batch in batches for text in batch["texts"]]
        groups = [sum(right[i : i + 8]) for i in range(0, len(right), 8)]
        golds = [row["answer"] for row in rows for _ in range(8)]
        given = [is_correct(extract_answer(t) or "", g) for t, g in zip(texts, golds, strict=True)]
        answered = [sum(given[i : i + 8]) for i in range(0, len(given), 8)]
        paid = self.proxy([row for row in rows for _ in range(8)], texts)
        found = {
            "sampled": mean(right),
            "pass8": mean(pass_at_k(8, count, 8) for count in groups),
            "answer8": mean(count > 0 for count in answered),
            "answer": mean(given),
            "entropy": mean(batch["entropy"] for batch in batches),
            "tokens": mean(float(n) for batch in batches for n in batch["mask"].sum(1)),
            "steps": mean(text.count("=") for text in texts),
            "megabytes": held,
        }
        if paid:
            found["proxy"] = mean(paid)
        if self.s.keep:
            found["kept"] = self.best[1]
        return {name: round(value, 4) for name, value in found.items()}

    def megabytes(self) -> float:
        """Weights, gradients and optimizer states of all models that training held, in MiB."""
        models, optimizers = [self.model, self.reference, *self.judges], [self.optimizer]
        if isinstance(self.critic, Critic):
            models += [self.critic.body, self.critic.head]
            optimizers.append(self.critic.optimizer)
        held = [p for model in models for p in model.parameters()]
        held += [p.grad for p in held if p.grad is not None]
        states = [state for optimizer in optimizers for state in optimizer.state.values()]
        held += [value for state in states for value in state.values()]
        return sum(t.numel() * t.element_size() for t in held) / 2**20
