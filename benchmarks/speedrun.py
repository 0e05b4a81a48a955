"""Seconds of training until the tiny model is right: a GRPO speedrun for two CPU cores.

    python benchmarks/speedrun.py --seeds 0 1 2 --record main    # a row of docs/speedrun.md
    python benchmarks/speedrun.py --list                         # all records and their settings

The rules are in docs/speedrun.md. Every seed is a process of its own; finished ones are kept in
--folder and not repeated while settings, model and data stay the same. To try something, on 480
problems that are taken out of the training data, so that the held-out ones choose nothing:

    python benchmarks/speedrun.py --record main --seeds 10 --try '{"max_steps": 60}' --every 20
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import mean

REPO = Path(__file__).resolve().parent.parent
GOAL, HELDOUT = 0.9, 480
MODEL = REPO / "data" / "tiny-form"
HASHES = {  # the model and the data are fixed
    "data/tiny-form/config.json": "142d18ccaa10c171822c98183598a9d2",
    "data/tiny-form/model.safetensors": "39065b39ac9a390d1ef2ad241eb3cf60",
    "data/tiny-form/tokenizer.json": "aa787c38b00c7543ab42c179af1b43a3",
    "data/word_problems/train.jsonl": "dd6bf7d71666ba1d679f9246e2c25360",
    "data/word_problems/heldout.jsonl": "baa2967aacc8722ba181a82b746591a4",
}
ONLY_FASTER = dict.fromkeys(("skip_zero_advantages", "share_heads"), True)
SHARED = ONLY_FASTER | dict.fromkeys(("share_prompts", "update_unpacked"), True)
# What differs from the main run: the functions below, the number of processes, or arguments of
# TRL's GRPOConfig.
RECORDS: dict[str, dict] = {
    "packed": {"packed": True},
    "main": {},
    "main, same steps": dict(ONLY_FASTER),
    "80 steps": {"max_steps": 80, **ONLY_FASTER},
    "60 steps": {"max_steps": 60, **ONLY_FASTER},
    "prompts once": {"max_steps": 80, **SHARED},
    "two processes": {
        "max_steps": 80,
        "per_device_train_batch_size": 32,
        **SHARED,
        "processes": 2,
    },
    "128 a step": {"max_steps": 52, **SHARED, "processes": 2},
}


def check_hashes() -> None:
    for name, wanted in HASHES.items():
        found = hashlib.sha256((REPO / name).read_bytes()).hexdigest()
        if not found.startswith(wanted):
            sys.exit(f"{name} is not the speedrun's: its SHA-256 is {found}")


class Clock:
    """Wall and processor seconds since its start, without what is done in `stopped`."""

    def __init__(self):
        self.start = self.now()

    @staticmethod
    def now() -> list[float]:
        return [time.perf_counter(), time.process_time()]

    @property
    def passed(self) -> list[float]:
        return [now - start for now, start in zip(self.now(), self.start, strict=True)]

    @contextmanager
    def stopped(self):
        before = self.passed
        yield
        self.start = [now - done for now, done in zip(self.now(), before, strict=True)]


def packed(trainer) -> None:
    """Sample as at first: each token unpacks every 4-bit layer (see `training.load_policy`)."""
    del trainer.model.generate


def skip_zero_advantages(trainer) -> None:
    """Update only on completions whose advantage is not 0: with dapo's loss, the same gradient.

    Every process takes as many as the one with most, because TRL gathers a value for each.
    """
    compute_loss = trainer._compute_loss

    def kept_loss(model, inputs):
        n = len(advantages := inputs["advantages"])
        counts = trainer.accelerator.gather(advantages.count_nonzero().reshape(1))
        first = (advantages != 0).int().argsort(descending=True, stable=True)
        rows = first[: max(1, int(counts.max()))].sort().values
        one_each = {k: v for k, v in inputs.items() if getattr(v, "ndim", 0) and len(v) == n}
        return compute_loss(model, inputs | {k: v[rows] for k, v in one_each.items()})

    trainer._compute_loss = kept_loss


def share_heads(trainer) -> None:
    """Attention reads the keys and values that heads share, where Transformers copies them first.

    It does so wherever there is a mask, as on a GPU PyTorch would then take a slow kernel.
    """
    from transformers.integrations import sdpa_attention

    sdpa_attention.use_gqa_in_sdpa = lambda attention_mask, key, value: True


def share_prompts(trainer) -> None:
    """A group's prompt is read once, where TRL and Transformers read it for each completion.

    All but its last token go through the model once; their keys and values, with the gradient, are
    repeated for the completions of the group.
    """
    import torch
    from transformers import DynamicCache

    plain = trainer.accelerator.unwrap_model(trainer.model)
    generate = plain.generate

    def read(ids, mask, positions=False):
        """The cache of all prompts (B, P), one row for each completion."""
        prompts, rows = torch.unique_consecutive(ids, dim=0, return_inverse=True)
        first = torch.cat([rows.new_ones(1), rows.diff()]).bool()
        cache, where = DynamicCache(config=plain.config), {"attention_mask": mask[first]}
        if positions:  # as `generate` counts them: without the padding
            where["position_ids"] = (mask[first].cumsum(1) - 1).clamp(min=0)
        plain(input_ids=prompts, past_key_values=cache, use_cache=True, logits_to_keep=1, **where)
        cache.batch_select_indices(rows)
        return cache

    def sample(input_ids, attention_mask, **how):
        cache = read(input_ids[:, :-1], attention_mask[:, :-1], positions=True)
        how |= {"attention_mask": attention_mask, "past_key_values": cache}
        return generate(input_ids=input_ids, **how)

    def logps(model, input_ids, attention_mask, logits_to_keep, *given, **how):
        before = input_ids.shape[1] - logits_to_keep - 1
        out = model(
            input_ids=input_ids[:, before:-1],
            attention_mask=attention_mask[:, :-1],
            past_key_values=read(input_ids[:, :before], attention_mask[:, :before]),
            shift_labels=input_ids[:, -logits_to_keep:].masked_fill(
                attention_mask[:, -logits_to_keep:] == 0, -100
            ),
            fused_lm_head=True,
        )
        return out.log_probs, out.entropy, None

    plain.generate, trainer._get_per_token_logps_and_entropies = sample, logps


def update_unpacked(trainer) -> None:
    """In the update, too, each layer with its adapter is one matrix, through which A and B learn.

    The 4-bit weights are unpacked once for a step, and one product takes the place of three.
    """
    import torch
    from bitsandbytes.functional import dequantize_4bit
    from peft.tuners.lora.bnb import Linear4bit

    layers = [m for m in trainer.model.modules() if isinstance(m, Linear4bit)]
    logps = trainer._get_per_token_logps_and_entropies

    def with_matrices(*given, **how):
        for layer in layers:
            packed = layer.base_layer.weight
            matrix = dequantize_4bit(packed.data, packed.quant_state)
            matrix = matrix + layer.get_delta_weight("default")
            layer.forward = partial(torch.nn.functional.linear, weight=matrix)
        try:
            return logps(*given, **how)
        finally:
            for layer in layers:
                del layer.forward

    trainer._get_per_token_logps_and_entropies = with_matrices


# share_prompts before update_unpacked, which wraps it
_TRICKS = (packed, skip_zero_advantages, share_heads, share_prompts, update_unpacked)
TRICKS = {f.__name__: f for f in _TRICKS}


def train(settings: dict, seed: int, trying: bool, every: int, folder: Path) -> dict:
    """One run: the rate of strictly right at its end, and the seconds that training took."""
    from grpo_workbook.notebook import quiet

    os.environ["HF_HUB_OFFLINE"] = "1"
    quiet()
    import unsloth  # noqa: F401
    from accelerate.utils import gather_object
    from transformers import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    from grpo_workbook import (
        Float32Adapters,
        RewardBar,
        choose_profile,
        evaluate,
        load_policy,
        load_problems,
        parse_rewards,
        to_dataset,
    )
    from grpo_workbook.config import REWARDS
    from grpo_workbook.data import WORD_PROBLEMS
    from grpo_workbook.notebook import use_one_thread
    from grpo_workbook.training import Callback, count_4bit_layers

    use_one_thread()
    arguments = {
        "save_strategy": "no",
        "learning_rate": 1e-3,
        "per_device_train_batch_size": 64,
    }
    for name, value in settings.items():
        if name not in TRICKS and name != "processes":
            arguments[name] = value
    profile = choose_profile("smoke", model=MODEL, seed=seed, grpo=arguments)
    rows = to_dataset(load_problems(WORD_PROBLEMS["train"]))
    heldout = to_dataset(load_problems(WORD_PROBLEMS["heldout"]))
    if trying:
        heldout = rows.select(range(len(rows) - HELDOUT, len(rows)))
        rows = rows.select(range(len(rows) - HELDOUT))
    model, tokenizer = load_policy(profile)
    if count_4bit_layers(model) == 0:
        sys.exit("the base is not in 4-bit: the speedrun's is")
    functions, weights = parse_rewards(REWARDS)
    args = GRPOConfig(output_dir=str(folder), reward_weights=weights, **profile.grpo)
    callbacks = [Float32Adapters(model), RewardBar()]
    trainer = GRPOTrainer(
        model, functions, args, rows, processing_class=tokenizer, callbacks=callbacks
    )
    trainer.remove_callback(PrinterCallback)
    for name, trick in TRICKS.items():
        if name in settings:
            trick(trainer)

    def rate() -> float:
        how = {"max_new_tokens": 64, "batch_size": 128, "sample": True, "seed": seed}
        return evaluate(model, tokenizer, heldout, **how).rate

    curve = []

    class Curve(Callback):
        def on_step_end(self, args, state, control, **kwargs):
            if every and state.global_step % every == 0 and state.global_step < state.max_steps:
                with clock.stopped():
                    curve.append([state.global_step, rate(), *clock.passed])
                    print(curve[-1], flush=True)

    trainer.add_callback(Curve())
    clock = Clock()
    trainer.train()
    wall, processor = clock.passed
    processor = sum(gather_object([processor]))
    log = [entry for entry in trainer.state.log_history if "reward" in entry]
    return {
        "rate": rate(),
        "wall": round(wall, 1),
        "processor": round(processor, 1),
        "steps": trainer.state.global_step,
        "completions": args.generation_batch_size * trainer.state.global_step,
        "curve": curve,
        "log": log,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", choices=RECORDS, default="main")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--try", dest="other", type=json.loads, help="JSON: settings that differ")
    parser.add_argument("--every", type=int, default=0, help="with --try: measure every N steps")
    parser.add_argument("--folder", type=Path, default=REPO / "outputs" / "speedrun")
    parser.add_argument("--list", action="store_true", help="print all records and end")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.list:
        for name, settings in RECORDS.items():
            print(f"{name:20} {json.dumps(settings)}")
        return 0
    check_hashes()
    settings = RECORDS[args.record] | (args.other or {})
    trying = args.other is not None
    if args.one:
        found = train(settings, args.seeds[0], trying, args.every, args.folder / "run")
        if os.environ.get("RANK", "0") == "0":
            args.one.write_text(json.dumps(found | {"settings": settings}), encoding="utf-8")
        return 0
    args.folder.mkdir(parents=True, exist_ok=True)
    results = []
    for seed in args.seeds:
        key = hashlib.sha256(json.dumps([settings, trying, HASHES], sort_keys=True).encode())
        place = args.folder / f"{args.record}-{key.hexdigest()[:8]}-{seed}.json"
        if not place.is_file():
            own = ["--seeds", str(seed), "--one", str(place)]
            several = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node"]
            start = [*several, str(n)] if (n := settings.get("processes", 1)) > 1 else []
            command = [sys.executable, *start, __file__, *sys.argv[1:], *own]
            paths = f"{REPO}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
            env = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
            subprocess.run(command, env=env, check=True)
        results.append(json.loads(place.read_text(encoding="utf-8")))
        one = results[-1]
        print(
            f"seed {seed}: {one['rate']:.3f} right after {one['steps']} steps, "
            f"{one['wall']} s, {one['processor']} s of processor"
        )
    rates = ", ".join(f"{one['rate']:.3f}" for one in results)
    ok = all(one["rate"] >= GOAL for one in results)
    wall, processor = (mean(one[name] for one in results) for name in ("wall", "processor"))
    steps, completions = results[0]["steps"], results[0]["completions"]
    print("\n| record | steps | completions | wall s | processor s | right | reached |")
    print(
        f"| {args.record} | {steps} | {completions} | {wall:.1f} | {processor:.1f} | {rates} | "
        f"{'yes' if ok else 'no'} |"
    )
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
