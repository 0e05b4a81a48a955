"""TRL 1.15's own losses, gradients and advantages, written to a safetensors file: `python
trl_numbers.py FILE`.

A process of its own, because `import unsloth`, which other tests need, replaces TRL's trainer by
another. Everything below is the stock GRPOTrainer: `rollout_func` hands it fixed completions, it
makes masks, rewards, advantages and reference log-probabilities from them, and `_compute_loss` the
loss. One thing TRL 1.15 cannot do on a CPU: its fused log-probabilities are a Triton kernel. They
are filled in by TRL's own plain function for the same thing.
"""

import itertools
import os
import sys
from pathlib import Path

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

import torch
import trl.trainer.utils as trl_utils
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

MODEL = Path(__file__).resolve().parent.parent / "data" / "tiny-form"
GROUP, LIMIT, EOS = 4, 24, 1
# Two groups. Ragged; one completion is a single token, two stop at the limit without an end.
LENGTHS = [9, 1, LIMIT, 14, 3, LIMIT, 20, 6]
TRUNCATED = [length == LIMIT for length in LENGTHS]
PROMPT_LENGTHS = [12, 7]
LOSS_TYPES = ("grpo", "dr_grpo", "dapo", "bnpo", "cispo")
GRID = list(
    itertools.product(
        LOSS_TYPES, (0.0, 0.04), ("token", "sequence"), (False, True), ("group", "batch", "none")
    )
)
# (loss type, level, epsilon low, epsilon high): unequal sides
CLIPPING = [(t, level, 0.1, 0.28) for t in LOSS_TYPES[:4] for level in ("token", "sequence")]
EPSILON_HIGH = {"cispo": 1.3}  # elsewhere 0.2; a cap that a ratio here does reach
NAN = float("nan")
REWARDS = {
    "plain": (
        [[2.0, 0.0, 0.5, 0.125, 0.25, 0.0, 2.0, 1.0], [0.5, 0.0, 0.0, 0.5, 0.5, 0.5, 0.0, 0.0]],
        [1.0, 0.5],
    ),
    "equal": ([[0.1] * 4 + [3.3] * 4, [0.7] * 8], [1.0, 0.3]),
    "one group equal": ([[1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0]], [1.0]),
    "none": (
        [
            [1.0, None, 0.5, None, None, 2.0, 0.0, 1.0],
            [0.0, 1.0, None, None, None, 0.25, 1.0, None],
        ],
        [2.0, 0.5],
    ),
    "a group without": ([[None] * 4 + [0.0, 1.0, 1.0, 0.0]], [1.0]),
    "a single one": ([[None, None, 5.0, None, 0.0, 1.0, 1.0, 0.0]], [1.0]),
}


class PlainLogProbs:
    """TRL's plain function in the place of its Triton kernel: same arguments, same five answers."""

    @staticmethod
    def apply(
        hidden, weight, bias, targets, temperature, chunk_size, softcap, logit_scale, outputs
    ):
        assert bias is None
        assert softcap is None
        logits = hidden @ weight.T * logit_scale
        logps, entropy = trl_utils.selective_log_softmax_and_entropy(
            logits, targets, temperature=temperature
        )
        return logps, entropy, None, None, None


def policy():
    """The tiny model in float32 with adapters that do something: B starts at 0, and then A would
    get no gradient."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype="float32")
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(model, config)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.03)
    return model


def tokens():
    """(ids of the prompts, ids of the completions), one of each per completion."""
    generator = torch.Generator().manual_seed(1)
    draw = lambda n: torch.randint(5, 600, (n,), generator=generator).tolist()  # noqa: E731
    prompts = [draw(n) for n in PROMPT_LENGTHS]
    completions = [
        draw(n) if cut else [*draw(n - 1), EOS] for n, cut in zip(LENGTHS, TRUNCATED, strict=True)
    ]
    return [prompts[i // GROUP] for i in range(len(LENGTHS))], completions


def rollout(prompts, trainer):
    prompt_ids, completion_ids = tokens()
    return {"prompt_ids": prompt_ids, "completion_ids": completion_ids, "logprobs": None}


def make_trainer(model, functions=1, **arguments) -> GRPOTrainer:
    rewards = {"now": REWARDS["plain"][0]}

    def function(i):
        def reward(completions, **columns):
            return list(rewards["now"][i])

        reward.__name__ = f"reward_{i}"
        return reward

    trainer = GRPOTrainer(
        model=model,
        reward_funcs=[function(i) for i in range(functions)],
        args=GRPOConfig(
            output_dir=str(Path(sys.argv[1]).parent), use_cpu=True, bf16=False, report_to="none",
            gradient_checkpointing=False, num_generations=GROUP, max_completion_length=LIMIT,
            save_strategy="no", disable_tqdm=True,
            **{"per_device_train_batch_size": len(LENGTHS), "gradient_accumulation_steps": 1}
            | arguments,
        ),
        train_dataset=Dataset.from_list([{"prompt": "a"}, {"prompt": "b"}]),
        processing_class=AutoTokenizer.from_pretrained(MODEL),
        rollout_func=rollout,
    )  # fmt: skip
    assert "unsloth" not in sys.modules
    assert type(trainer)._compute_loss.__module__ == "trl.trainer.grpo_trainer"
    # With beta at the start TRL keeps a copy of the given adapters as reference: move it, or there
    # is no distance to penalise. Without, it disables the adapters for the reference, which is
    # distance enough.
    for i, (name, parameter) in enumerate(trainer.model.named_parameters()):
        if "lora_B.ref." in name:
            torch.nn.init.normal_(parameter, std=0.03, generator=torch.Generator().manual_seed(i))
    trainer.now = rewards
    trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps
    trainer.model.train()
    return trainer


def prepared(trainer) -> dict:
    """What TRL makes of the fixed completions."""
    return trainer._generate_and_score_completions(
        [{"prompt": "a"}] * GROUP + [{"prompt": "b"}] * GROUP
    )


def write_down(out: dict, name: str, trainer, batch: dict) -> None:
    trainer.model.zero_grad()
    loss = trainer._compute_loss(trainer.model, batch)
    loss.backward()
    out[f"{name}/loss"] = loss.detach()
    for parameter, value in trainer.model.named_parameters():
        if value.requires_grad:
            out[f"{name}/grad/{parameter}"] = value.grad.clone()


def main(path: str) -> None:
    trl_utils._ChunkedLogProbFunction = PlainLogProbs
    model, out = policy(), {}
    trainer = make_trainer(model)

    # advantages, each with its own number of reward functions
    for case, (values, weights) in REWARDS.items():
        scored = make_trainer(model, len(values), reward_weights=weights)
        scored.now["now"] = values
        for scale in ("group", "batch", "none"):
            scored.scale_rewards = scale
            out[f"advantages/{case}/{scale}"] = prepared(scored)["advantages"]

    old = None
    for loss_type, beta, level, masked, scale in GRID:
        trainer.loss_type, trainer.beta, trainer.importance_sampling_level = loss_type, beta, level
        trainer.mask_truncated_completions, trainer.scale_rewards = masked, scale
        trainer.epsilon_high = EPSILON_HIGH.get(loss_type, 0.2)
        batch = prepared(trainer)
        if old is None:  # as if an older policy had drawn them: some ratios beyond each side
            ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
            mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
            with torch.no_grad():
                old = trainer._get_per_token_logps_and_entropies(
                    model, ids, mask, batch["completion_ids"].shape[1]
                )[0]
            shift = torch.randn(old.shape, generator=torch.Generator().manual_seed(2))
            old = old + 0.3 * shift + torch.linspace(-0.4, 0.4, len(old)).unsqueeze(1)
            out |= {"inputs/old_logp": old, "inputs/ids": ids, "inputs/attention": mask}
        batch["old_per_token_logps"] = old
        name = f"{loss_type}/{beta}/{level}/{masked}/{scale}"
        write_down(out, name, trainer, batch)
        if "ref_per_token_logps" in batch and not masked:
            out["inputs/ref_logp"] = batch["ref_per_token_logps"]

    trainer.beta, trainer.mask_truncated_completions, trainer.scale_rewards = 0.04, False, "group"
    for loss_type, level, low, high in CLIPPING:
        trainer.loss_type, trainer.importance_sampling_level = loss_type, level
        trainer.epsilon_low, trainer.epsilon_high = low, high
        write_down(
            out,
            f"clipping/{loss_type}/{level}",
            trainer,
            {**prepared(trainer), "old_per_token_logps": old},
        )

    trainer.epsilon_low, trainer.epsilon_high = 0.2, 0.2
    trainer.args.use_bias_correction_kl, trainer.loss_type = False, "grpo"
    for trainer.importance_sampling_level in ("token", "sequence"):
        name = f"biased kl/{trainer.importance_sampling_level}"
        write_down(out, name, trainer, {**prepared(trainer), "old_per_token_logps": old})

    accumulate(out)
    save_file({name: value.contiguous() for name, value in out.items()}, path)


def accumulate(out: dict) -> None:
    """A real train() of one step in two batches of 4: the batches it saw, their losses, the summed
    gradient."""
    from transformers import TrainerCallback

    for loss_type in LOSS_TYPES:
        trainer = make_trainer(
            policy(), per_device_train_batch_size=4, gradient_accumulation_steps=2,
            steps_per_generation=2, max_steps=1, max_grad_norm=0.0, loss_type=loss_type,
            epsilon_high=EPSILON_HIGH.get(loss_type, 0.2), beta=0.04,
        )  # fmt: skip
        name, seen = f"accumulated/{loss_type}", []
        original = trainer._compute_loss

        def spy(model, batch, original=original, name=name, seen=seen):
            loss = original(model, batch)
            i = len(seen)
            seen.append(i)
            out[f"{name}/{i}/loss"] = loss.detach().clone()
            for key in (
                "prompt_ids",
                "prompt_mask",
                "completion_ids",
                "completion_mask",
                "advantages",
            ):
                out[f"{name}/{i}/{key}"] = batch[key].clone()
            out[f"{name}/{i}/ref_logp"] = batch["ref_per_token_logps"].clone()
            return loss

        class Gradients(TrainerCallback):
            def on_pre_optimizer_step(self, args, state, control, model=None, name=name, **kwargs):
                for parameter, value in model.named_parameters():
                    if value.requires_grad:
                        out[f"{name}/grad/{parameter}"] = value.grad.clone()

        trainer._compute_loss = spy
        trainer.add_callback(Gradients())
        trainer.train()
        assert len(seen) == 2


if __name__ == "__main__":
    main(sys.argv[1])
