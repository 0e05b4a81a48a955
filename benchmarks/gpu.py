"""What this project wants to know of a CUDA GPU, in less than ten minutes and without a network.

    python benchmarks/gpu.py                         # all of it, or: make bench-gpu
    python benchmarks/gpu.py --jobs qwen gemma       # a part of it
    python benchmarks/gpu.py --tiny --device cpu     # the whole program without a GPU, in minutes

    qwen, gemma      the main run of a tiny model in bfloat16: held-out problems before and after,
                     then its merge with the proof; before the first, the 4-bit kernels
    0.6B-unsloth, 0.6B-plain, 4B-unsloth, 4B-plain
                     steps of Qwen3's shapes with random weights, in 4-bit with LoRA: seconds,
                     tokens a second, and the peaks of memory beside those of `plan`; with Unsloth
                     and without (TRL, PEFT and bitsandbytes), in turns
    pictures         chapter 15's run of a tiny model that reads charts: before, after, and blank

Each job is a process of its own, so that its peak of memory is its own, and so that Unsloth's
changes to TRL do not reach the side without Unsloth. A job that takes too long is stopped, and the
next one begins. Each result is appended to gpu.jsonl as soon as it is known, behind those of
earlier runs: a run begins with its row "machine", and prints its own rows at its end. vLLM is not
used. The exit status is 1 if a job failed, and 2 for bad input.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO)]
os.environ["HF_HUB_OFFLINE"] = "1"
TINY_MODEL = REPO / "data" / "tiny-qwen3"
GIB = 2**30

# Of a step that is timed.
GROUP = 8  # completions of one prompt, and of one piece of the step
PIECES = 4


@dataclass(frozen=True)
class Sizes:
    """How large the jobs are."""

    shapes: tuple[str, ...]  # of the models whose steps are timed
    timed_steps: int  # after one that compiles
    completion_tokens: int  # in the timed steps
    learning_steps: int  # of the main run
    problems: int  # held-out ones, of which about half are of rare kinds
    picture_steps: int
    charts: int  # held-out ones


FULL = Sizes(
    shapes=("0.6B", "4B"),
    timed_steps=3,
    completion_tokens=128,
    learning_steps=120,
    problems=480,
    picture_steps=40,
    charts=200,
)
TINY = Sizes(  # for a test of this program on a CPU
    shapes=("tiny",),
    timed_steps=2,
    completion_tokens=8,
    learning_steps=4,
    problems=16,
    picture_steps=2,
    charts=8,
)


@dataclass(frozen=True)
class Place:
    """Where a job runs, how large it is, and where its results go."""

    device: str  # "cuda" or "cpu"
    sizes: Sizes
    out: Path  # gpu.jsonl, the logs and the output of the jobs
    work: Path  # models and adapters, on a disk with room for 10 GB

    @property
    def dtype(self) -> str:
        """The precision of the models."""
        if self.device == "cuda":
            return "bfloat16"
        return "float32"

    def emit(self, row: str, result: dict) -> None:
        """Write a result to the disk."""
        line = json.dumps({"row": row, **result})
        with (self.out / "gpu.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")


# ------------------------------------------------------------------------- the tiny models learn


def kernels(place: Place) -> None:
    """Compare the 4-bit kernels with PyTorch, and see whether Unsloth has put in its trainer."""
    import torch
    from bitsandbytes.functional import dequantize_4bit, get_4bit_type, quantize_4bit
    from trl import GRPOTrainer

    # NF4 by its definition: each block of 64 numbers is divided by its largest, and each number is
    # rounded to the nearest of 16 levels.
    torch.manual_seed(0)
    blocks = torch.randn(1024, 64)
    largest = blocks.abs().amax(dim=1, keepdim=True)
    levels = get_4bit_type("nf4", device="cpu")
    distances = (blocks / largest)[..., None] - levels  # (blocks, numbers, levels)
    expected = levels[distances.abs().argmin(dim=-1)] * largest

    packed, state = quantize_4bit(blocks.to(place.device), quant_type="nf4", blocksize=64)
    unpacked = {"bitsandbytes": dequantize_4bit(packed, state)}
    if place.device == "cuda":
        from unsloth.kernels.utils import fast_dequantize

        unpacked["Unsloth"] = fast_dequantize(packed, state)
    errors = {}
    for name, numbers in unpacked.items():
        difference = numbers.cpu().float() - expected
        errors[f"NF4 by {name}"] = (difference.norm() / expected.norm()).item()
    # On a GPU the trainer is Unsloth's, UnslothGRPOTrainer.
    place.emit("kernels", {"trainer": GRPOTrainer.__name__, **errors})
    # A number in the middle between two levels may be rounded either way.
    if not all(error < 0.01 for error in errors.values()):  # NaN is wrong, too
        raise ValueError(f"another NF4 than PyTorch's, nothing after it can be right: {errors}")


def main_run(place: Place, family: str) -> None:
    """The main run of a tiny model in bfloat16, measured before and after, then merged."""
    import unsloth  # noqa: F401  before trl and transformers, which it patches

    if family == "qwen":
        kernels(place)
    from trl import GRPOConfig, GRPOTrainer

    from grpo_workbook import (
        Float32Adapters,
        choose_profile,
        compare,
        load_policy,
        merge,
        parse_rewards,
        save_adapter,
        to_dataset,
    )
    from grpo_workbook.config import REWARDS
    from grpo_workbook.data.splitting import load_split, select_true
    from grpo_workbook.diagnosis import diagnose, read_run
    from grpo_workbook.evaluation import measure
    from grpo_workbook.training import count_4bit_layers

    folder = place.work / family
    profile = choose_profile(
        "smoke",
        model=family,
        output=folder,
        dtype=place.dtype,
        grpo={"max_steps": place.sizes.learning_steps},
    )
    train, heldout, _ = load_split(heldout=place.sizes.problems, seed=0, profile_name="smoke")
    rare = to_dataset(select_true(heldout, "rare"))
    model, tokenizer = load_policy(profile)

    measure_rare = partial(
        measure,
        model,
        tokenizer,
        rare,
        samples=4,
        max_new_tokens=profile.grpo["max_completion_length"],
        batch_size=profile.eval_batch_size,
    )
    before = measure_rare()
    functions, weights = parse_rewards(REWARDS)
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=functions,
        args=GRPOConfig(str(folder / "checkpoints"), reward_weights=weights, **profile.grpo),
        train_dataset=to_dataset(train),
        processing_class=tokenizer,
        callbacks=[Float32Adapters(model)],
    )
    started = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - started
    after = measure_rare()

    log = [entry for entry in trainer.state.log_history if "reward" in entry]
    (place.out / f"log-{family}.json").write_text(json.dumps(log), encoding="utf-8")
    adapters = next(weight for weight in model.parameters() if weight.requires_grad)
    result = {
        "steps": len(log),
        "train_seconds": seconds,
        "adapters": str(adapters.dtype),
        "layers_in_4bit": count_4bit_layers(model),
        "layers": 7 * model.config.num_hidden_layers,
        "diagnosis": [finding.name for finding in diagnose(read_run(log, functions))],
    }
    for way in ("greedy", "sampled"):
        result[way] = asdict(compare(before[way], after[way]).strict)
    place.emit(f"main run, {family}", result)

    save_adapter(model, tokenizer, folder / "adapter")
    proof = merge(None, folder / "adapter", folder / "merged", heldout=rare, policy=after["greedy"])
    place.emit(f"merge, {family}", proof)


def picture_run(place: Place) -> None:
    """Chapter 15's run, with Unsloth's vision loader on a GPU: charts before, after, and blank."""
    import unsloth  # noqa: F401  before trl and transformers, which it patches
    import vision
    from datasets import Dataset

    from grpo_workbook import compare
    from grpo_workbook.exercises.charts import PAPERS, make_charts, rows
    from grpo_workbook.pictures import picture_controls

    charts = make_charts(place.sizes.charts, seed=vision.HELDOUT_SEED, heldout=True)
    heldout = Dataset.from_list(rows(charts, "grey"))
    blank = picture_controls(heldout, colour=PAPERS["grey"])["blank"]
    model, processor = load_picture_policy(place.device)
    before = vision.read_charts(model, processor, heldout)
    started = time.perf_counter()
    method = vision.METHODS["vision"]
    rewards = vision.train(model, processor, method, seed=0, steps=place.sizes.picture_steps)
    seconds = time.perf_counter() - started
    after = vision.read_charts(model, processor, heldout)
    shown_blank = vision.read_charts(model, processor, blank)
    result = {
        "steps": len(rewards),
        "rewards": rewards,
        "train_seconds": seconds,
        "greedy": asdict(compare(before, after).strict),
        "shown_blank": shown_blank.rate,
        "learning": model.num_parameters(only_trainable=True),
    }
    place.emit("pictures", result)


def load_picture_policy(device: str) -> tuple[Any, Any]:
    """The tiny model that reads charts in 4-bit, with adapters in its vision tower; its processor.

    On a CPU Unsloth's loader of vision models refuses to work, and Transformers loads the model.
    """
    import vision

    if device == "cpu":
        return vision.load_policy(vision.METHODS["vision"])
    from unsloth import FastVisionModel

    model, processor = FastVisionModel.from_pretrained(
        str(vision.MODEL), max_seq_length=512, load_in_4bit=True, fast_inference=False
    )
    model = FastVisionModel.get_peft_model(
        model, finetune_language_layers=False, r=16, lora_alpha=32
    )
    return model, processor


# --------------------------------------------------------------------------- how fast a step is


def speed(place: Place, size: str, side: str) -> None:
    """Time GRPO steps of a fixed shape, and read the peaks of memory beside those of `plan`."""
    from grpo_workbook import compat

    reason = compat.why_not_plain(place.device)
    if side == "plain" and reason is not None:
        place.emit(f"{size}-{side}", {"refused": reason})
        return
    if side == "unsloth":
        import unsloth  # noqa: F401  before trl and transformers, which it patches
    from trl import GRPOConfig, GRPOTrainer

    from grpo_workbook import choose_profile, load_policy, load_problems, to_dataset
    from grpo_workbook.data import WORD_PROBLEMS
    from grpo_workbook.planning import RESERVE, plan
    from grpo_workbook.training import Callback, count_4bit_layers

    profile = choose_profile(
        "smoke",
        model=write_model(size, place),
        output=place.work / f"{size}-{side}",
        dtype=place.dtype,
        load_in_4bit=True,
        lora_rank=32,
        grpo={
            "max_steps": 1 + place.sizes.timed_steps,
            "num_generations": GROUP,
            "per_device_train_batch_size": GROUP,
            "gradient_accumulation_steps": PIECES,
            "learning_rate": 1e-5,
            "max_completion_length": place.sizes.completion_tokens,
            # Without an end token each completion has the same length on both sides.
            "generation_kwargs": {"min_new_tokens": place.sizes.completion_tokens},
            "gradient_checkpointing": True,
            "save_strategy": "no",
        },
    )
    peaks = {}  # GiB
    read_meter(place.device)
    model, tokenizer = load_policy(profile, side)
    ends = []  # the clock at the start of training and after each step

    def spread(completion_ids: list[list[int]], **columns: object) -> list[float]:
        """A reward that differs within each group, so that each group has a gradient. It is called
        between sampling and learning, so it reads the peak of the sampling, too."""
        _, peaks["sampling"] = read_meter(place.device)
        return [sum(ids) % 97 / 97 for ids in completion_ids]

    class Steps(Callback):
        def on_step_end(self, args, state, control, **kwargs):
            end, peaks["learning"] = read_meter(place.device)
            ends.append(end)

    trainer = GRPOTrainer(
        model=model,
        reward_funcs=[spread],
        args=GRPOConfig(str(profile.output), **profile.grpo),
        train_dataset=to_dataset(load_problems(WORD_PROBLEMS["train"]).select(range(64))),
        processing_class=tokenizer,
        callbacks=[Steps()],
    )
    start, peaks["loading"] = read_meter(place.device)
    ends.append(start)
    trainer.train()

    steps = [after - before for before, after in pairwise(ends)]
    seconds = statistics.median(steps[1:])  # the first one compiles
    parts = plan(profile.model, profile).parts
    always = sum(parts["always"].values()) - RESERVE  # torch does not count what CUDA reserves
    planned = {"loading": always / GIB}
    for phase in ("sampling", "learning"):
        planned[phase] = (always + sum(parts[phase].values())) / GIB
    log = [entry for entry in trainer.state.log_history if "reward" in entry]
    result = {
        "seconds_per_step": seconds,
        "all_steps": steps,
        "tokens_per_second": GROUP * PIECES * place.sizes.completion_tokens / seconds,
        "peak_gib": peaks,
        "planned_gib": planned,
        # The times are worth nothing if these are not as they should be.
        "tokens": [entry["num_tokens"] for entry in log],
        "gradient_norms": [entry["grad_norm"] for entry in log],
        "layers_in_4bit": count_4bit_layers(model),
    }
    place.emit(f"{size}-{side}", result)


def read_meter(device: str) -> tuple[float, float]:
    """(The clock in seconds, the GiB that torch allocated at most since the last call).

    All that was begun on the GPU is done first. The GiB are 0 on a CPU.
    """
    import torch

    peak = 0.0
    if device == "cuda":
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() / GIB
        torch.cuda.reset_peak_memory_stats()
    return time.perf_counter(), peak


def config_of(size: str) -> Any:
    """The config of a Qwen3 of a published size, or of the tiny one.

    Speed and memory depend on the shapes of the weights, and not on their values. The vocabulary
    counts: its logits need more than most layers.
    """
    from transformers import AutoConfig

    from grpo_workbook.planning import KNOWN

    if size == "tiny":
        return AutoConfig.from_pretrained(TINY_MODEL)
    shape = KNOWN[f"qwen3-{size.lower()}"]
    return AutoConfig.for_model(**shape, eos_token_id=1, pad_token_id=0)  # the tiny tokenizer's


def write_model(size: str, place: Place) -> Path:
    """The folder with a Qwen3 of random bfloat16 weights, which is written by the first job.

    Its tokenizer is the tiny one. It has fewer tokens than the model, as Qwen3's own has.
    """
    import torch
    from transformers import AutoModelForCausalLM

    from grpo_workbook.data import load_tokenizer

    folder = place.work / size
    if (folder / "tokenizer.json").is_file():  # which is written last
        return folder
    torch.manual_seed(0)
    with torch.device(place.device):
        model = AutoModelForCausalLM.from_config(config_of(size), dtype=torch.bfloat16)
    model.save_pretrained(folder, max_shard_size="4GB")
    load_tokenizer(TINY_MODEL).save_pretrained(folder)
    return folder


# ------------------------------------------------------------------------ one job after the other


def all_jobs(sizes: Sizes) -> dict[str, tuple[int, Callable[[Place], None]]]:
    """The jobs in the order of their worth: (the seconds after which it is stopped, the job)."""
    jobs = {}
    for family in ("qwen", "gemma"):
        jobs[family] = (140, partial(main_run, family=family))
    for size in sizes.shapes:
        for side in ("unsloth", "plain"):
            jobs[f"{size}-{side}"] = (100, partial(speed, size=size, side=side))
    jobs["pictures"] = (100, picture_run)
    return jobs


def work_on(job: Callable[[Place], None], place: Place, output: Path) -> None:
    """What the process of a job does: the job, with all that it prints in a file."""
    with output.open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)  # what is printed
        os.dup2(file.fileno(), 2)  # errors
    os.chdir(place.work)  # Unsloth writes its compiled trainer there
    job(place)


def run_job(job: Callable[[Place], None], place: Place, output: Path, seconds: float) -> str | None:
    """Run a job in a process of its own. Returns why it failed, or None."""
    if seconds < 1:
        return "not begun: the seconds of --budget are over"
    process = get_context("spawn").Process(target=work_on, args=(job, place, output))
    process.start()
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join()
        return f"stopped after {seconds:.0f} s"
    if process.exitcode != 0:
        return f"exit status {process.exitcode}: see {output}"
    return None


def describe_machine() -> dict:
    """The GPU and the versions."""
    import torch

    from grpo_workbook.cli.report import versions

    machine = {**versions(), "cuda": torch.version.cuda, "gpu": None}
    if torch.cuda.is_available():
        machine["gpu"] = torch.cuda.get_device_name(0)
    return machine


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", nargs="+", metavar="NAME", help="only these (default: all)")
    parser.add_argument("--budget", type=float, default=480, metavar="S", help="seconds (480)")
    parser.add_argument("--out", type=Path, default=REPO / "outputs" / "gpu", metavar="FOLDER")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes and few steps")
    args = parser.parse_args()
    sizes = TINY if args.tiny else FULL
    jobs = all_jobs(sizes)
    names = args.jobs or list(jobs)
    unknown = set(names) - set(jobs)
    if unknown:
        parser.error(f"there is no job {min(unknown)!r}: choose from {', '.join(jobs)}")
    if args.device == "cpu":
        if not args.tiny:
            parser.error("--device cpu is for --tiny: the real sizes need a GPU")
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")  # one process trains on one GPU
    machine = describe_machine()
    if args.device == "cuda" and machine["gpu"] is None:
        parser.error("torch sees no CUDA GPU. Without one: --tiny --device cpu")

    out = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    results = out / "gpu.jsonl"
    earlier = results.read_text(encoding="utf-8") if results.is_file() else ""
    end = time.monotonic() + args.budget
    failed = False
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
        place = Place(args.device, sizes, out, Path(work))
        place.emit("machine", machine)
        for name in names:
            limit, job = jobs[name]
            seconds = min(limit, end - time.monotonic())
            print(f"{name} ...", flush=True)
            error = run_job(job, place, out / f"{name}.txt", seconds)
            if error is not None:
                place.emit(name, {"error": error})
                failed = True
    print(results.read_text(encoding="utf-8").removeprefix(earlier))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
