"""First contact of benchmarks/gpu.py with a GPU: the jobs beside speed and learning."""

import contextlib
import io
import json
import os
import runpy
import shutil
import sys
import types
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
TEXT_MODEL = REPO / "data" / "tiny-gemma3"
# 4 bits of normal numbers lose 0.09 of their size; a kernel may differ by its dtype's rounding.
NF4_LOSS, SAME = (0.06, 0.13), {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2}


def kernels(job: dict) -> dict:
    """Whether the 4-bit kernels and Unsloth's RMSNorm compute what PyTorch does, and what doctor
    says. An import that fails is this job's error."""
    import torch
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit
    from trl import GRPOTrainer

    from grpo_workbook.cli.doctor import examine

    torch.manual_seed(0)
    on_gpu, problems, norms = job["device"] == "cuda", [], {}
    half = getattr(torch, job["dtype"])
    x = torch.randn(512, 512, device=job["device"], dtype=half)
    packed = quantize_4bit(x, quant_type="nf4", compress_statistics=True)
    back = {"bitsandbytes": dequantize_4bit(*packed)}
    if on_gpu:
        from unsloth.kernels.utils import fast_dequantize

        back["unsloth"] = fast_dequantize(*packed)
        norms = {name: _norm_error(getattr(torch, name)) for name in _dtypes(job["dtype"])}
    loss = {name: _apart(y, x) for name, y in back.items()}
    low, high = NF4_LOSS
    problems += [f"NF4 by {n} loses {v:.3f}" for n, v in loss.items() if not low < v < high]
    problems += [f"RMSNorm in {n} is {v:.1e} off" for n, v in norms.items() if not v < SAME[n]]
    trainer = GRPOTrainer.__name__
    if on_gpu and "Unsloth" not in trainer:
        problems.append(f"Unsloth did not replace TRL's trainer: {trainer}")
    doctor = [f"{found.name}: {found.value} -> {found.fix}" for found in examine() if found.fix]
    told = {"nf4_loss": loss, "norm_error": norms, "trainer": trainer, "doctor": doctor}
    return told | {"problems": problems}


def _dtypes(half: str) -> tuple[str, ...]:
    return ("float32", "float16", "bfloat16") if half == "bfloat16" else ("float32", "float16")


def _apart(a, b) -> float:
    """The root mean square difference, relative to b."""
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def _norm_error(dtype) -> float:
    import torch
    from unsloth.kernels.rms_layernorm import Fast_RMS_Layernorm

    x, weight = torch.randn(64, 1024), torch.rand(1024)
    x, weight = (t.to("cuda", dtype) for t in (x, weight))
    right = x.double() * torch.rsqrt(x.double().square().mean(-1, keepdim=True) + 1e-6)
    return _apart(Fast_RMS_Layernorm.apply(x, weight, 1e-6, False), right * weight.double())


def main_run(job: dict) -> dict:
    """`python -m grpo_workbook run` in the smoke profile: learning, merge and proof, report."""
    from grpo_workbook.cli import main

    folder = Path(job["folder"])
    given = {"profile": "smoke", "model": job["family"], "dtype": job["dtype"]}
    given |= {"output_dir": folder, "max_steps": job["steps"], "heldout": job["heldout"]}
    if job["batch"]:
        given["per_device_train_batch_size"] = job["batch"]
    words = [str(word) for name, value in given.items() for word in (f"--{name}", value)]
    if status := main(["run", *words]):
        raise RuntimeError(f"the main run ended with {status}")
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    told = {}
    for when in ("before", "after"):
        held = report["subset"]  # the held-out problems of the rare kinds, on which the run trains
        told[when] = {f"strict_{way}": held[way]["strict"][when] for way in ("sampled", "greedy")}
    told["merge"] = {k: v for k, v in report["merge"].items() if isinstance(v, float)}
    told |= {name: report[name] for name in ("train_seconds", "total_seconds", "steps")}
    return told


def vision(job: dict) -> dict:
    """A Gemma 3 with vision: its text part trained as `load_policy` does it, loaded again, merged.

    The adapter must move the logits, be found again, and be in the merged weights.
    """
    import torch

    from grpo_workbook import choose_profile, load_model, load_policy, merge, save_adapter

    folder = Path(job["folder"])
    base = _write_vision(folder / "base")
    profile = choose_profile("smoke", model=base, dtype=job["dtype"], load_in_4bit=False)
    policy, tokenizer = load_policy(profile)
    learning = [name for name, p in policy.named_parameters() if p.requires_grad]
    for name, weight in policy.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.05)
    save_adapter(policy, tokenizer, folder / "adapter")
    ids = torch.arange(100, 132, device=profile.device)[None]

    def logits(model):
        with torch.no_grad():
            return model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.double()

    how = {"dtype": profile.dtype, "device": profile.device}
    wanted, plain = logits(policy), logits(load_model(base, **how)[0])
    again = logits(load_model(base, folder / "adapter", **how)[0])
    moved, lost = _apart(wanted, plain), _apart(again, wanted)
    merge(None, folder / "adapter", folder / "merged")
    problems = [f"{n} is trained" for n in learning if "vision" in n or "visual" in n][:1]
    if moved < 0.05 or lost > moved / 4:
        problems.append(f"of an adapter that moves the logits by {moved:.3f}, {lost:.3f} is lost")
    return {"trained": len(learning), "moved": moved, "lost": lost, "problems": problems}


def _write_vision(folder: Path) -> Path:
    """A checkpoint as the hub's are; its text part is the course's tiny Gemma."""
    from transformers import AutoModelForCausalLM, Gemma3Config, Gemma3ForConditionalGeneration

    text = AutoModelForCausalLM.from_pretrained(TEXT_MODEL, dtype="float32")
    sees = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}
    sees |= {"num_hidden_layers": 1, "image_size": 28, "patch_size": 14}
    tokens = {"boi_token_index": 3, "eoi_token_index": 4, "image_token_index": 5}
    sizes = {"text_config": text.config.to_dict(), "mm_tokens_per_image": 4, **tokens}
    model = Gemma3ForConditionalGeneration(Gemma3Config(vision_config=sees, **sizes))
    model.model.language_model.load_state_dict(text.model.state_dict())
    model.save_pretrained(folder)
    for file in TEXT_MODEL.iterdir():
        if "token" in file.name or file.suffix == ".jinja":
            shutil.copy(file, folder)
    return folder


def memory(job: dict) -> dict:
    """The estimate of `plan` beside torch's peaks, while sampling and while learning."""
    import gpu_speed
    from trl import GRPOTrainer

    from grpo_workbook import planning
    from grpo_workbook.training import load_policy

    profile = gpu_speed.make_profile(job)
    meter, peaks = gpu_speed.Memory(profile.device), {}
    model, tokenizer = load_policy(profile)
    sample = GRPOTrainer._generate

    def sampled(*given, **more):
        meter.reset()
        found = sample(*given, **more)
        peaks["sampling"] = _first(meter.peak())
        meter.reset()
        return found

    GRPOTrainer._generate = sampled
    gpu_speed._train(profile, model, tokenizer, meter)
    peaks["learning"] = _first(meter.peak())
    said = planning.plan(profile.model, profile).parts
    always = sum(said["always"].values()) - planning.RESERVE  # which torch does not count
    phases = ("sampling", "learning")
    computed = {p: round((always + sum(said[p].values())) / planning.GIB, 3) for p in phases}
    return {"measured": peaks, "computed": computed}


def _first(peak: dict[str, float]) -> float:
    return next(iter(peak.values()))


def chapter(job: dict) -> dict:
    """A chapter's source as a script, in the smoke profile; what it displays goes nowhere."""
    folder = Path(job["folder"])
    folder.mkdir(parents=True)
    os.chdir(folder)
    os.environ |= {"GRPO_WORKBOOK_PROFILE": "smoke", "MPLBACKEND": "Agg"}
    os.environ |= {"GRPO_WORKBOOK_PROGRESS": str(folder / "progress.json")}
    try:
        import IPython.display  # noqa: F401
    except ImportError:  # a machine without Jupyter
        sys.modules |= _no_notebook()
    with contextlib.redirect_stdout(io.StringIO()):
        runpy.run_path(str(REPO / "notebooks" / "source" / f"{job['chapter']}.py"))
    return {"passed": True}


def _no_notebook() -> dict[str, types.ModuleType]:
    """What the chapters and helpers use of IPython, doing nothing."""
    fake, shown = types.ModuleType("IPython"), types.ModuleType("IPython.display")

    class Thing:
        def __init__(self, data="", *given, **more):
            self.data = data

        def update(self, *given, **more):
            pass

    fake.display, fake.get_ipython = shown, lambda: None
    fake.version_info = (8, 24)  # Matplotlib asks every IPython that is loaded
    shown.display = lambda *given, **more: Thing()
    for name in ("Markdown", "HTML", "Code", "Image", "SVG"):
        setattr(shown, name, Thing)
    return {"IPython": fake, "IPython.display": shown}
