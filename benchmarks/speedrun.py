"""Seconds of training until a tiny model can solve the rare problems: a speedrun for two cores.

    python benchmarks/speedrun.py --seeds 0 1 2 --record main    # a row of docs/speedrun.md
    python benchmarks/speedrun.py --list                         # all records and their settings

The rules are in docs/speedrun.md. Every seed is a process of its own; finished ones are kept in
--folder and not repeated while settings, model and data stay the same. To try something, on 257
problems that are taken out of the training data, so that the held-out ones choose nothing:

    python benchmarks/speedrun.py --record main --seeds 10 --try '{"max_steps": 60}'
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from statistics import mean

REPO = Path(__file__).resolve().parent.parent
GOAL = 0.68  # of the sampled answers
SAMPLES = 8  # answers to each held-out problem
HELDOUT = 257  # problems that --try takes out of the training data
MODEL = REPO / "data" / "tiny-qwen3"
HASHES = {  # the model and the data are fixed
    "data/tiny-qwen3/config.json": "9458ed80fc234346b005706166c2cffa",
    "data/tiny-qwen3/model.safetensors": "dfdd1936e95cdcfa153b5867156c4bf9",
    "data/tiny-qwen3/tokenizer.json": "65d63ef644d11a329b5d7c0cedbc3e19",
    "data/word_problems/train.jsonl": "dd6bf7d71666ba1d679f9246e2c25360",
    "data/word_problems/heldout.jsonl": "baa2967aacc8722ba181a82b746591a4",
}
# The functions below that save time and change nothing else.
FASTER = {
    "skip_zero_advantages": True,
    "share_heads": True,
    "share_prompts": True,
    "update_unpacked": True,
}
# What differs from the main run: the functions below, the number of processes, or arguments of
# TRL's GRPOConfig.
RECORDS: dict[str, dict] = {
    "main": {},
    "faster code": FASTER,
    "two processes": {**FASTER, "processes": 2, "per_device_train_batch_size": 40},
    "larger steps": {**FASTER, "processes": 2, "max_steps": 60},
}


def check_hashes() -> None:
    """End the program if the model or the data is not the speedrun's."""
    for name, start in HASHES.items():
        digest = hashlib.sha256((REPO / name).read_bytes()).hexdigest()
        if not digest.startswith(start):
            sys.exit(f"{name} is not the speedrun's: its SHA-256 is {digest}")


def skip_zero_advantages(trainer) -> None:
    """Update only on completions whose advantage is not 0: with dapo's loss, the same gradient.

    Every process takes as many as the one with most, because TRL gathers a value for each.
    """
    compute_loss = trainer._compute_loss

    def loss_of_the_useful(model, inputs):
        advantages = inputs["advantages"]
        counts = trainer.accelerator.gather(advantages.count_nonzero().reshape(1))
        useful_first = (advantages != 0).int().argsort(descending=True, stable=True)
        rows = useful_first[: max(1, int(counts.max()))].sort().values
        selected = dict(inputs)
        for name, values in inputs.items():
            if getattr(values, "ndim", 0) > 0 and len(values) == len(advantages):
                selected[name] = values[rows]
        return compute_loss(model, selected)

    trainer._compute_loss = loss_of_the_useful


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

    def read_prompts(ids, mask, position_ids=None):
        """The cache of all prompts (B, P), one row for each completion."""
        prompts, rows = torch.unique_consecutive(ids, dim=0, return_inverse=True)
        # The first of the equal rows of each prompt.
        first = torch.cat([rows.new_ones(1), rows.diff()]).bool()
        if position_ids is not None:
            position_ids = position_ids[first]
        cache = DynamicCache(config=plain.config)
        plain(
            input_ids=prompts,
            attention_mask=mask[first],
            position_ids=position_ids,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        cache.batch_select_indices(rows)
        return cache

    def sample(input_ids, attention_mask, **arguments):
        ids, mask = input_ids[:, :-1], attention_mask[:, :-1]
        # As `generate` counts them: without the padding.
        position_ids = (mask.cumsum(1) - 1).clamp(min=0)
        cache = read_prompts(ids, mask, position_ids)
        arguments["past_key_values"] = cache
        return generate(input_ids=input_ids, attention_mask=attention_mask, **arguments)

    def logps(model, input_ids, attention_mask, logits_to_keep, *_, **__):
        before = input_ids.shape[1] - logits_to_keep - 1
        completion_ids = input_ids[:, -logits_to_keep:]
        is_padding = attention_mask[:, -logits_to_keep:] == 0
        output = model(
            input_ids=input_ids[:, before:-1],
            attention_mask=attention_mask[:, :-1],
            past_key_values=read_prompts(input_ids[:, :before], attention_mask[:, :before]),
            shift_labels=completion_ids.masked_fill(is_padding, -100),
            fused_lm_head=True,
        )
        return output.log_probs, output.entropy, None

    plain.generate = sample
    trainer._get_per_token_logps_and_entropies = logps


def update_unpacked(trainer) -> None:
    """In the update, too, each layer with its adapter is one matrix, through which A and B learn.

    The 4-bit weights are unpacked once for a step, and one product takes the place of three.
    """
    import torch
    from bitsandbytes.functional import dequantize_4bit
    from peft.tuners.lora.bnb import Linear4bit

    layers = [module for module in trainer.model.modules() if isinstance(module, Linear4bit)]
    logps = trainer._get_per_token_logps_and_entropies

    def logps_with_matrices(*arguments, **keywords):
        for layer in layers:
            packed = layer.base_layer.weight
            matrix = dequantize_4bit(packed.data, packed.quant_state)
            matrix = matrix + layer.get_delta_weight("default")
            layer.forward = partial(torch.nn.functional.linear, weight=matrix)
        try:
            return logps(*arguments, **keywords)
        finally:
            for layer in layers:
                del layer.forward

    trainer._get_per_token_logps_and_entropies = logps_with_matrices


# share_prompts before update_unpacked, which wraps it
_TRICKS = (skip_zero_advantages, share_heads, share_prompts, update_unpacked)
TRICKS = {f.__name__: f for f in _TRICKS}


def train(settings: dict, seed: int, trying: bool, folder: Path) -> dict:
    """One run: how many answers are right at its end, and the seconds that training took.

    Returns:
        "sampled" and "greedy" (rates of strictly right answers), "wall" and "processor" (seconds),
        "steps", "completions" and "log" (what TRL logged at each step).
    """
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
        parse_rewards,
    )
    from grpo_workbook.config import REWARDS
    from grpo_workbook.notebook import use_one_thread
    from grpo_workbook.training import count_4bit_layers

    use_one_thread()
    arguments = {"save_strategy": "no"}
    for name, value in settings.items():
        if name not in TRICKS and name != "processes":
            arguments[name] = value
    profile = choose_profile("smoke", model=str(MODEL), seed=seed, grpo=arguments)
    rows, heldout = load_rows(trying)
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

    wall = time.perf_counter()
    processor = time.process_time()
    trainer.train()
    wall = time.perf_counter() - wall
    processor = sum(gather_object([time.process_time() - processor]))

    sampling = {"max_new_tokens": 64, "batch_size": 256, "seed": seed}
    greedy = evaluate(model, tokenizer, heldout, **sampling)
    sampled = evaluate(model, tokenizer, heldout, sample=True, samples=SAMPLES, **sampling)
    return {
        "sampled": sampled.rate,
        "greedy": greedy.rate,
        "wall": round(wall, 1),
        "processor": round(processor, 1),
        "steps": trainer.state.global_step,
        "completions": args.generation_batch_size * trainer.state.global_step,
        "log": [entry for entry in trainer.state.log_history if "reward" in entry],
    }


def load_rows(trying: bool):
    """The problems of the rare kinds to train on and to measure on, as datasets.

    Args:
        trying: measure on problems that are taken out of the training data.
    """
    from grpo_workbook import load_problems, to_dataset
    from grpo_workbook.data import WORD_PROBLEMS

    rows = to_dataset(load_problems(WORD_PROBLEMS["train"]).filter(lambda row: row["rare"]))
    if trying:
        count = len(rows) - HELDOUT
        return rows.select(range(count)), rows.select(range(count, len(rows)))
    heldout = load_problems(WORD_PROBLEMS["heldout"]).filter(lambda row: row["rare"])
    return rows, to_dataset(heldout)


def run_alone(settings: dict, seed: int, result: Path) -> None:
    """Start this program again for one seed, in as many processes as the settings say."""
    launcher = []
    processes = settings.get("processes", 1)
    if processes > 1:
        launcher = ["-m", "torch.distributed.run", "--standalone"]
        launcher += ["--nproc_per_node", str(processes)]
    options = [*sys.argv[1:], "--seeds", str(seed), "--one", str(result)]
    paths = f"{REPO}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launcher, __file__, *options]
    subprocess.run(command, env=environment, check=True)


def table_row(record: str, results: list[dict]) -> str:
    """A row of docs/speedrun.md: the seconds are means, and the rates stand for each seed."""
    wall = mean(result["wall"] for result in results)
    processor = mean(result["processor"] for result in results)
    sampled = ", ".join(f"{result['sampled']:.3f}" for result in results)
    greedy = ", ".join(f"{result['greedy']:.3f}" for result in results)
    steps, completions = results[0]["steps"], results[0]["completions"]
    return (
        f"| {record} | {steps} | {completions} | {wall:.1f} | {processor:.1f} | {sampled} | "
        f"{greedy} | {'yes' if reached(results) else 'no'} |"
    )


def reached(results: list[dict]) -> bool:
    """Whether every seed has reached the target."""
    return all(result["sampled"] >= GOAL for result in results)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", choices=RECORDS, default="main")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--try", dest="other", type=json.loads, help="JSON: settings that differ")
    parser.add_argument("--folder", type=Path, default=REPO / "outputs" / "speedrun")
    parser.add_argument("--list", action="store_true", help="print all records and end")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.list:
        for name, settings in RECORDS.items():
            print(f"{name:20} {json.dumps(settings)}")
        return 0
    check_hashes()
    settings = {**RECORDS[args.record], **(args.other or {})}
    trying = args.other is not None
    if args.one:
        result = train(settings, args.seeds[0], trying, args.folder / "run")
        if os.environ.get("RANK", "0") == "0":
            result["settings"] = settings
            args.one.write_text(json.dumps(result), encoding="utf-8")
        return 0

    args.folder.mkdir(parents=True, exist_ok=True)
    results = []
    for seed in args.seeds:
        key = hashlib.sha256(json.dumps([settings, trying, HASHES], sort_keys=True).encode())
        path = args.folder / f"{args.record}-{key.hexdigest()[:8]}-{seed}.json"
        if not path.is_file():
            run_alone(settings, seed, path)
        result = json.loads(path.read_text(encoding="utf-8"))
        results.append(result)
        print(
            f"seed {seed}: {result['sampled']:.3f} sampled and {result['greedy']:.3f} greedy after "
            f"{result['steps']} steps, {result['wall']} s, {result['processor']} s of processor"
        )
    print("\n| record | steps | completions | wall s | processor s | sampled | greedy | reached |")
    print(table_row(args.record, results))
    return 0 if reached(results) else 1


if __name__ == "__main__":
    sys.exit(main())
