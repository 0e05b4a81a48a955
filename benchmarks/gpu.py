"""What this project wants to know of a CUDA GPU, in less than ten minutes and without a network.

    python benchmarks/gpu.py                         # all of it, or: make bench-gpu
    python benchmarks/gpu.py --jobs qwen gemma       # a part of it
    python benchmarks/gpu.py --tiny --device cpu     # the whole program without a GPU, in minutes

    qwen, gemma      the main run of a tiny model in bfloat16: held-out problems before and after,
                     then its merge with the proof; before the first, the 4-bit kernels
    pictures         chapter 15's run of a tiny model that reads charts: before, after, and blank
    0.6B, 4B         steps of Qwen3's shapes with random weights, in 4-bit with LoRA: seconds,
                     tokens a second, and the peaks of memory beside those of `plan`; with Unsloth
                     and without (TRL, PEFT and bitsandbytes), in turns

Each job is a process of its own, so that its peak of memory is its own, and so that Unsloth's
changes to TRL do not reach the side without Unsloth. A job that takes too long is stopped, and the
next one begins. Each result is a line of gpu.jsonl as soon as it is known. vLLM is not used. The
exit status is 1 if a job failed, and 2 for bad input.
"""

import argparse
import itertools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
DATA = REPO / "data"
GIB = 2**30

# Qwen3's published shapes. Speed and memory depend on the shapes of the weights, and not on their
# values, which are random here. The vocabulary counts: its logits need more than most layers.
QWEN3 = {
    "vocab_size": 151_936,
    "head_dim": 128,
    "num_key_value_heads": 8,
    "max_position_embeddings": 40_960,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    "tie_word_embeddings": True,
    "eos_token_id": 1,  # this and the next as in the tiny tokenizer
    "pad_token_id": 0,
}
SHAPES = {
    "0.6B": {
        "num_hidden_layers": 28,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_attention_heads": 16,
    },
    "4B": {
        "num_hidden_layers": 36,
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_attention_heads": 32,
    },
    "tiny": {
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "vocab_size": 1024,
    },
}


@dataclass(frozen=True)
class Settings:
    """The sizes of all jobs. `TINY` is for a test of this program on a CPU."""

    sizes: tuple[str, ...] = ("0.6B", "4B")  # of SHAPES
    warm_up: int = 1  # steps that are not timed: they compile
    timed: int = 3
    completions: int = 32  # in a step
    group: int = 8  # completions of one prompt
    completion_tokens: int = 128
    rank: int = 32
    learning_steps: int | None = None  # None: the profile's
    learning_batch: int | None = None
    heldout: int = 480  # problems, of which about half are of rare kinds
    picture_steps: int = 40
    heldout_charts: int = 200


TINY = Settings(
    sizes=("tiny",),
    timed=2,
    completions=8,
    group=4,
    completion_tokens=8,
    rank=8,
    learning_steps=4,
    learning_batch=16,
    heldout=16,
    picture_steps=2,
    heldout_charts=8,
)


@dataclass(frozen=True)
class Place:
    """Where a job runs, and where its results go."""

    device: str  # "cuda" or "cpu"
    out: Path  # gpu.jsonl, gpu.md, the logs and the output of the jobs
    work: Path  # models and adapters, on a disk with room for 10 GB

    def emit(self, row: str, result: dict) -> None:
        """Write a result to the disk. A later result of the same row replaces it in the tables."""
        line = json.dumps({"row": row, **result})
        with (self.out / "gpu.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")


# ------------------------------------------------------------------------------------- the jobs


def kernels(place: Place) -> None:
    """Compare the 4-bit kernels with PyTorch, and see whether Unsloth has put in its trainer."""
    import torch
    from bitsandbytes.functional import dequantize_4bit, get_4bit_type, quantize_4bit
    from trl import GRPOTrainer

    torch.manual_seed(0)
    weights = torch.randn(256, 256)
    # NF4 by its definition: blocks of 64 numbers, each divided by its largest, then rounded to the
    # nearest of 16 values.
    blocks = weights.reshape(-1, 64)
    largest = blocks.abs().amax(dim=1, keepdim=True)
    values = get_4bit_type("nf4", device="cpu")
    nearest = (blocks / largest)[..., None].sub(values).abs().argmin(dim=-1)
    expected = (values[nearest] * largest).reshape(256, 256)

    packed, state = quantize_4bit(weights.to(place.device), quant_type="nf4", blocksize=64)
    unpacked = {"bitsandbytes": dequantize_4bit(packed, state)}
    if place.device == "cuda":
        from unsloth.kernels.utils import fast_dequantize

        unpacked["Unsloth"] = fast_dequantize(packed, state)
    result = {"trainer": GRPOTrainer.__name__}  # UnslothGRPOTrainer on a GPU
    for name, tensor in unpacked.items():
        difference = tensor.cpu().float() - expected
        result[f"NF4 by {name}"] = (difference.norm() / expected.norm()).item()
        # A number between two of the 16 values may be rounded either way.
        if not result[f"NF4 by {name}"] < 0.01:
            raise ValueError(f"another NF4 than PyTorch's, nothing after it can be right: {result}")
    place.emit("kernels", result)


def tiny_run(place: Place, settings: Settings, family: str) -> None:
    """The main run of a tiny model in bfloat16, measured before and after, then merged."""
    import unsloth  # noqa: F401  before trl and transformers, which it patches

    if family == "qwen":
        kernels(place)
    from transformers import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    from grpo_workbook import (
        Float32Adapters,
        choose_profile,
        compare,
        evaluate,
        load_policy,
        merge,
        parse_rewards,
        save_adapter,
        to_dataset,
    )
    from grpo_workbook.config import REWARDS
    from grpo_workbook.data.splitting import load_split, select_true
    from grpo_workbook.diagnosis import diagnose, read_run
    from grpo_workbook.training import count_4bit_layers

    changes = {}
    if settings.learning_steps is not None:
        changes["max_steps"] = settings.learning_steps
        changes["per_device_train_batch_size"] = settings.learning_batch
    dtype = "bfloat16" if place.device == "cuda" else "float32"
    folder = place.work / family
    profile = choose_profile("smoke", model=family, output=folder, dtype=dtype, grpo=changes)
    train, heldout, _ = load_split(heldout=settings.heldout, seed=0, profile_name="smoke")
    rare = to_dataset(select_true(heldout, "rare"))
    model, tokenizer = load_policy(profile)

    def measure() -> dict:
        limits = {
            "max_new_tokens": profile.grpo["max_completion_length"],
            "batch_size": profile.eval_batch_size,
        }
        return {
            "greedy": evaluate(model, tokenizer, rare, **limits),
            "sampled": evaluate(model, tokenizer, rare, sample=True, samples=4, **limits),
        }

    before = measure()
    functions, weights = parse_rewards(REWARDS)
    args = GRPOConfig(str(folder / "checkpoints"), reward_weights=weights, **profile.grpo)
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=functions,
        args=args,
        train_dataset=to_dataset(train),
        processing_class=tokenizer,
        callbacks=[Float32Adapters(model)],
    )
    trainer.remove_callback(PrinterCallback)
    started = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - started
    after = measure()

    log = [entry for entry in trainer.state.log_history if "reward" in entry]
    (place.out / f"log-{family}.json").write_text(json.dumps(log), encoding="utf-8")
    adapters = next(p for p in model.parameters() if p.requires_grad)
    result = {
        "steps": len(log),
        "problems_asked": len(rare),
        "train_seconds": seconds,
        "trainer": type(trainer).__name__,
        "adapters": str(adapters.dtype),
        "layers_in_4bit": count_4bit_layers(model),
        "layers": 7 * model.config.num_hidden_layers,
        "diagnosis": [finding.name for finding in diagnose(read_run(log, functions))],
    }
    for name in ("greedy", "sampled"):
        result[name] = asdict(compare(before[name], after[name]).strict)
    place.emit(f"main run, {family}", result)

    save_adapter(model, tokenizer, folder / "adapter")
    proof = merge(None, folder / "adapter", folder / "merged", heldout=rare, policy=after["greedy"])
    del proof["heldout"], proof["merged_answers"]
    place.emit(f"merge, {family}", proof)


def picture_run(place: Place, settings: Settings) -> None:
    """Chapter 15's run, with Unsloth's vision loader on a GPU: charts before, after, and blank."""
    import unsloth  # noqa: F401  before trl and transformers, which it patches
    import vision
    from datasets import Dataset

    from grpo_workbook import compare, evaluate
    from grpo_workbook.exercises.charts import PAPERS, make_charts, rows
    from grpo_workbook.pictures import picture_controls

    charts = make_charts(settings.heldout_charts, seed=vision.HELDOUT_SEED, heldout=True)
    heldout = Dataset.from_list(rows(charts, "grey"))
    blank = picture_controls(heldout, colour=PAPERS["grey"])["blank"]
    model, processor = load_picture_model(place.device)
    limits = {"batch_size": 100, "max_new_tokens": 48}
    before = evaluate(model, processor, heldout, **limits)
    started = time.perf_counter()
    rewards = vision.train(
        model, processor, vision.METHODS["vision"], seed=0, steps=settings.picture_steps
    )
    seconds = time.perf_counter() - started
    after = evaluate(model, processor, heldout, **limits)
    result = {
        "steps": len(rewards),
        "rewards": rewards,
        "train_seconds": seconds,
        "greedy": asdict(compare(before, after).strict),
        "shown_blank": evaluate(model, processor, blank, **limits).rate,
        "learning": sum(weight.numel() for weight in model.parameters() if weight.requires_grad),
    }
    place.emit("pictures", result)


def load_picture_model(device: str) -> tuple:
    """The tiny model that reads charts in 4-bit, with adapters in its vision tower; its processor.

    On a CPU Unsloth's loader of vision models refuses to work, and Transformers loads the model.
    """
    import vision

    if device == "cpu":
        from peft import LoraConfig, get_peft_model

        from grpo_workbook import load_model
        from grpo_workbook.pictures import LAYERS

        model, processor = load_model(str(vision.MODEL), load_in_4bit=True, pictures=True)
        adapters = LoraConfig(r=16, lora_alpha=32, target_modules=LAYERS["vision"])
        return get_peft_model(model, adapters), processor

    from unsloth import FastVisionModel

    model, processor = FastVisionModel.from_pretrained(
        str(vision.MODEL), max_seq_length=512, load_in_4bit=True, fast_inference=False
    )
    model = FastVisionModel.get_peft_model(
        model,
        finetune_vision_layers=True,
        finetune_language_layers=False,
        finetune_attention_modules=True,
        finetune_mlp_modules=True,
        r=16,
        lora_alpha=32,
        lora_dropout=0,
        bias="none",
    )
    return model, processor


def speed(place: Place, settings: Settings, size: str, side: str) -> None:
    """Time GRPO steps of a fixed shape, and read the peaks of memory beside those of `plan`."""
    from grpo_workbook import compat

    reason = compat.why_not_plain(place.device)
    if side == "plain" and reason is not None:
        place.emit(f"{size}, {side}", {"refused": reason})
        return
    if side == "unsloth":
        import unsloth  # noqa: F401  before trl and transformers, which it patches
    from transformers import PrinterCallback, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from grpo_workbook import choose_profile, load_policy, load_problems, to_dataset
    from grpo_workbook.data import WORD_PROBLEMS
    from grpo_workbook.planning import RESERVE, plan
    from grpo_workbook.training import count_4bit_layers

    model_folder = place.work / size
    if not (model_folder / "tokenizer.json").is_file():  # which is written last
        write_model(size, model_folder, place.device)
    profile = choose_profile(
        "smoke",
        model=model_folder,
        output=place.work / f"{size}-{side}",
        dtype="bfloat16" if place.device == "cuda" else "float32",
        load_in_4bit=True,
        lora_rank=settings.rank,
        grpo={
            "max_steps": settings.warm_up + settings.timed,
            "num_generations": settings.group,
            "per_device_train_batch_size": settings.group,
            "gradient_accumulation_steps": settings.completions // settings.group,
            "learning_rate": 1e-5,
            "max_completion_length": settings.completion_tokens,
            "gradient_checkpointing": True,
            "save_strategy": "no",
        },
    )
    meter = Meter(place.device)
    meter.peak()
    model, tokenizer = load_policy(profile, side)
    peaks = {"loading": meter.peak()}
    ends: list[float] = []  # the clock at the start of training and after each step

    def spread(completion_ids: list[list[int]], **columns: object) -> list[float]:
        """A reward that differs within each group, so that each group has a gradient. It is called
        between sampling and learning, so it reads the peak of the sampling, too."""
        peaks["sampling"] = meter.peak()
        return [sum(ids) % 97 / 97 for ids in completion_ids]

    class Steps(TrainerCallback):
        def on_train_begin(self, args, state, control, **kwargs):
            ends.append(meter.clock())

        def on_step_end(self, args, state, control, **kwargs):
            ends.append(meter.clock())
            peaks["learning"] = meter.peak()

    args = GRPOConfig(str(profile.output), **profile.grpo)
    # The end token is forbidden, so that each completion has the same length on both sides.
    args.generation_kwargs = {"min_new_tokens": settings.completion_tokens}
    problems = load_problems(WORD_PROBLEMS["train"]).select(range(64))
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=[spread],
        args=args,
        train_dataset=to_dataset(problems),
        processing_class=tokenizer,
        callbacks=[Steps()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()

    steps = [after - before for before, after in itertools.pairwise(ends)]
    seconds = statistics.median(steps[settings.warm_up :])
    parts = plan(profile.model, profile).parts
    always = sum(parts["always"].values()) - RESERVE  # torch does not count what CUDA reserves
    planned = {"loading": always}
    for phase in ("sampling", "learning"):
        planned[phase] = always + sum(parts[phase].values())
    log = [entry for entry in trainer.state.log_history if "reward" in entry]
    result = {
        "seconds_per_step": seconds,
        "all_steps": steps,
        "tokens_per_second": settings.completions * settings.completion_tokens / seconds,
        "peak_gib": {phase: size / GIB for phase, size in peaks.items()},
        "planned_gib": {phase: size / GIB for phase, size in planned.items()},
        # The times are worth nothing if these are not as they should be.
        "tokens": [entry["num_tokens"] for entry in log],
        "gradient_norms": [entry["grad_norm"] for entry in log],
        "layers_in_4bit": count_4bit_layers(model),
    }
    place.emit(f"{size}, {side}", result)


class Meter:
    """The clock, and the peak of memory since it was last read."""

    def __init__(self, device: str):
        import torch

        self.cuda = torch.cuda if device == "cuda" else None

    def clock(self) -> float:
        """Seconds, when all that was begun on the device is done."""
        if self.cuda is not None:
            self.cuda.synchronize()
        return time.perf_counter()

    def peak(self) -> int:
        """Bytes that torch allocated at most since the last call; 0 on a CPU."""
        if self.cuda is None:
            return 0
        self.cuda.synchronize()
        size = self.cuda.max_memory_allocated()
        self.cuda.reset_peak_memory_stats()
        return size


def write_model(size: str, folder: Path, device: str) -> None:
    """Write a Qwen3 of random bfloat16 weights, with the tiny tokenizer filled up to its size."""
    import torch
    from transformers import AutoModelForCausalLM, Qwen3Config

    config = Qwen3Config(**{**QWEN3, **SHAPES[size]})
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.generation_config.update(eos_token_id=1, pad_token_id=0)
    model.save_pretrained(folder, max_shard_size="4GB")

    source = DATA / "tiny-qwen3"
    for name in ("tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(source / name, folder)
    tokenizer = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    taken = set(vocabulary.values())
    taken.update(token["id"] for token in tokenizer["added_tokens"])
    for token in range(config.vocab_size):
        if token not in taken:
            vocabulary[f"~{token}~"] = token
    text = json.dumps(tokenizer, ensure_ascii=False)
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")


# ------------------------------------------------------------------------ one job after the other


def all_jobs(settings: Settings) -> dict[str, tuple[int, Callable[[Place], None]]]:
    """The jobs in the order of their worth: (the seconds after which it is stopped, the job)."""
    jobs = {}
    for family in ("qwen", "gemma"):
        jobs[family] = (140, partial(tiny_run, settings=settings, family=family))
    for size in settings.sizes:
        for side in ("unsloth", "plain"):
            jobs[f"{size}-{side}"] = (100, partial(speed, settings=settings, size=size, side=side))
    jobs["pictures"] = (100, partial(picture_run, settings=settings))
    # The first size once more in the other order, because a warm machine may be faster.
    size = settings.sizes[0]
    jobs[f"{size}-plain-again"] = jobs[f"{size}-plain"]
    jobs[f"{size}-unsloth-again"] = jobs[f"{size}-unsloth"]
    return jobs


def describe_machine() -> dict:
    """The GPU, its memory, and the versions."""
    import torch

    machine = {"python": sys.version.split()[0], "cuda": torch.version.cuda, "gpu": None}
    for name in ("torch", "transformers", "peft", "trl", "bitsandbytes", "unsloth"):
        machine[name] = metadata.version(name)
    if torch.cuda.is_available():
        card = torch.cuda.get_device_properties(0)
        machine["gpu"] = card.name
        machine["memory_gib"] = round(card.total_memory / GIB, 1)
    return machine


def run_job(name: str, place: Place, arguments: list[str], seconds: float) -> str | None:
    """Run a job in a process of its own. Returns why it failed, or None."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(REPO), os.environ.get("PYTHONPATH", "")]),
        "HF_HUB_OFFLINE": "1",
        "UNSLOTH_DISABLE_STATISTICS": "1",
    }
    # One process trains on one GPU.
    environment["CUDA_VISIBLE_DEVICES"] = "0" if place.device == "cuda" else ""
    with (place.out / f"{name}.txt").open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            [sys.executable, __file__, *arguments, "--job", name, "--work", str(place.work)],
            cwd=place.work,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return f"stopped after {seconds:.0f} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # its compilers' processes, too
                process.wait()
    if process.returncode != 0:
        return f"exit status {process.returncode}: see {output.name}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", nargs="+", metavar="NAME", help="only these (default: all)")
    parser.add_argument("--budget", type=float, default=480, metavar="S", help="seconds (480)")
    parser.add_argument("--out", type=Path, default=REPO / "outputs" / "gpu", metavar="FOLDER")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes and few steps")
    # For the processes that this program starts:
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    jobs = all_jobs(TINY if args.tiny else Settings())
    if args.job:
        run = jobs[args.job][1]
        run(Place(args.device, args.out, args.work))
        return 0

    names = args.jobs or list(jobs)
    unknown = set(names) - set(jobs)
    if unknown:
        parser.error(f"there is no job {min(unknown)!r}: choose from {', '.join(jobs)}")
    if args.device == "cpu" and not args.tiny:
        parser.error("--device cpu is for --tiny: the real sizes need a GPU")
    machine = describe_machine()
    if args.device == "cuda" and machine["gpu"] is None:
        parser.error("torch sees no CUDA GPU. Without one: --tiny --device cpu")

    args.out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + args.budget
    arguments = ["--device", args.device, "--out", str(args.out.resolve())]
    if args.tiny:
        arguments.append("--tiny")
    failed = False
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
        place = Place(args.device, args.out, Path(work))
        place.emit("machine", machine)
        for name in names:
            seconds = min(jobs[name][0], end - time.monotonic())
            if seconds < 1:
                error = f"not begun: the {args.budget:.0f} s of --budget are over"
            else:
                print(f"{name} ...", flush=True)
                error = run_job(name, place, arguments, seconds)
            if error is not None:
                place.emit(name, {"error": error})
                failed = True
    print((args.out / "gpu.jsonl").read_text(encoding="utf-8"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
