"""Whether the tiny models learn, merge and resume on Unsloth's GPU path as they do on a CPU
(benchmarks/gpu.py).

The bounds are those that tests/test_cli_run.py asks of the main run on a CPU. There the base
answers each problem 16 times, here once, so that its own rate may be a little higher.
"""

import json
import math
from pathlib import Path

from grpo_workbook.config import PROFILES, REWARDS, Profile, choose_profile
from grpo_workbook.data import load_split, to_dataset
from grpo_workbook.data.splitting import select_true
from grpo_workbook.files import write_json

FULL = PROFILES["smoke"]["grpo"]["max_steps"]
# What the chapters and the diagnosis read; a name with "|" may be logged by either name.
NEEDED = (
    "loss", "grad_norm", "learning_rate", "reward", "reward_std", "frac_reward_zero_std",
    "completions/clipped_ratio",
    "completions/mean_length|completion_length", "rewards/correctness_reward/mean", "num_tokens",
    "step_time",
)  # fmt: skip


def make_profile(job: dict) -> Profile:
    """The main run's settings on this device, in its own dtype."""
    arguments = {"max_steps": job["steps"]}
    if job.get("batch"):
        arguments["per_device_train_batch_size"] = job["batch"]
    return choose_profile(
        "smoke",
        model=job["family"],
        output=job["folder"],
        heldout=job["heldout"],
        dtype=job["dtype"],
        grpo=arguments,
    )


def _problems(profile: Profile):
    """The main run's training problems, and those of its held-out problems that are rare, too."""
    train, heldout, _ = load_split(
        heldout=profile.heldout, seed=profile.seed, profile_name=profile.name
    )
    return to_dataset(train), to_dataset(select_true(heldout, "rare"))


def _measure(profile: Profile, model, tokenizer, heldout) -> tuple[dict, list[str]]:
    """(strict accuracy sampled and greedy, the greedy completions)."""
    from grpo_workbook.evaluation import evaluate
    from grpo_workbook.statistics import accuracy

    how = {
        "max_new_tokens": profile.grpo["max_completion_length"],
        "batch_size": profile.eval_batch_size,
        "seed": profile.seed,
    }
    sampled, greedy = (evaluate(model, tokenizer, heldout, sample=s, **how) for s in (True, False))
    return {
        "strict_sampled": accuracy(sampled.strict),
        "strict_greedy": accuracy(greedy.strict),
    }, greedy.completions


def _trainer(profile: Profile, model, tokenizer, train):
    from transformers import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    from grpo_workbook.rewards import parse_rewards
    from grpo_workbook.training import Float32Adapters, RewardBar

    functions, weights = parse_rewards(REWARDS)
    folder = str(profile.output / "checkpoints")
    args = GRPOConfig(output_dir=folder, reward_weights=weights, **profile.grpo)
    callbacks = [Float32Adapters(model), RewardBar()]
    trainer = GRPOTrainer(
        model, functions, args, train, processing_class=tokenizer, callbacks=callbacks
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _log(trainer) -> list[dict]:
    return [entry for entry in trainer.state.log_history if "reward" in entry]


def learning(job: dict) -> dict:
    """The main run's training, measured before and after; which metrics were logged; what the
    diagnosis says."""
    profile = make_profile(job)
    from grpo_workbook.diagnosis import diagnose, read_run
    from grpo_workbook.training import count_4bit_layers, load_policy

    model, tokenizer = load_policy(profile)
    train, heldout = _problems(profile)
    before, _ = _measure(profile, model, tokenizer, heldout)
    trainer = _trainer(profile, model, tokenizer, train)
    trainer.train()
    after, _ = _measure(profile, model, tokenizer, heldout)
    log = _log(trainer)
    findings = diagnose(read_run(log, trainer.reward_funcs))
    adapters = {str(p.dtype) for p in model.parameters() if p.requires_grad}
    used = {"trainer": type(trainer).__name__, "adapters": ", ".join(sorted(adapters))}
    used |= {"bf16": trainer.args.bf16, "fp16": trainer.args.fp16}
    problems = metric_problems(log)
    if [entry["step"] for entry in log] != list(range(1, job["steps"] + 1)):
        problems.append(f"{len(log)} steps logged instead of {job['steps']}")
    if count_4bit_layers(model) != 7 * model.config.num_hidden_layers:
        problems.append(f"{count_4bit_layers(model)} layers in 4-bit")
    if judged := job["steps"] >= FULL and job["heldout"] >= 400:
        problems += accuracy_problems(before, after)
    return {
        "steps": len(log),
        "heldout": len(heldout),
        "before": before,
        "after": after,
        "bounds_judged": judged,
        "used": used,
        "metrics": sorted({name for entry in log for name in entry}),
        "diagnosis": [f.name for f in findings],
        "problems": problems,
    }


def metric_problems(log: list[dict]) -> list[str]:
    """Names that the course needs and that were never logged, and numbers that are none."""
    there = {name for entry in log for name in entry}
    missing = [name for name in NEEDED if not there & set(name.split("|"))]
    broken = sorted(
        {
            k
            for entry in log
            for k, v in entry.items()
            if isinstance(v, float) and not math.isfinite(v)
        }
    )
    return [f"not logged: {', '.join(missing)}"] * bool(missing) + [
        f"not finite: {', '.join(broken)}"
    ] * bool(broken)


def accuracy_problems(before: dict, after: dict) -> list[str]:
    """Which of the main run's bounds are broken."""
    sampled, greedy = "strict_sampled", "strict_greedy"
    bounds = (
        ("sampled before", before[sampled], "at most", 0.45, before[sampled] <= 0.45),
        ("sampled after", after[sampled], "at least", 0.65, after[sampled] >= 0.65),
        ("greedy after", after[greedy], "at least", 0.75, after[greedy] >= 0.75),
        (
            "greedy after",
            after[greedy],
            "at least",
            before[greedy],
            after[greedy] >= before[greedy],
        ),
    )
    return [f"{what} is {n:.3f}, {side} {bound:.3f} was expected"
            for what, n, side, bound, kept in bounds if not kept]  # fmt: skip


def train_and_merge(job: dict) -> dict:
    """Train on a 4-bit base, save the adapter, merge it in both ways: the live 4-bit model, and
    reloaded in 16-bit.

    Writes adapter/, merged-live/, merged-reloaded/ and completions.json into the job's folder;
    `prove` judges them.
    """
    profile, folder = make_profile(job), Path(job["folder"])
    from grpo_workbook.export import merge, save_adapter
    from grpo_workbook.training import count_4bit_layers, load_policy

    model, tokenizer = load_policy(profile)
    layers = count_4bit_layers(model)
    train, heldout = _problems(profile)
    _trainer(profile, model, tokenizer, train).train()
    save_adapter(model, tokenizer, folder / "adapter")
    accuracy, completions = _measure(profile, model, tokenizer, heldout)
    write_json(folder / "completions.json", completions)
    ways: dict[str, dict] = {"live": {}, "reloaded": {}}
    try:
        model.save_pretrained_merged(
            str(folder / "merged-live"), tokenizer, save_method="merged_16bit"
        )
    except NotImplementedError as error:  # Unsloth's CPU backend says so, and names the other way
        ways["live"] = {"refused": str(error).splitlines()[0]}
    except Exception as error:  # on a GPU this is tested: the other way goes on
        ways["live"] = {"error": f"{type(error).__name__}: {error}"[:300]}
    del model
    merge(profile.model, folder / "adapter", folder / "merged-reloaded")
    return {"trained": accuracy, "linear4bit_layers": layers, "ways": ways, "base": profile.model}


def prove(job: dict) -> dict:
    """Compare base-plus-adapter with merged weights in float32, by plain Transformers and PEFT: no
    Unsloth here."""
    profile, folder = make_profile(job), Path(job["folder"])
    from grpo_workbook.evaluation import evaluate
    from grpo_workbook.export import compare_logits, is_proved
    from grpo_workbook.models import load_model
    from grpo_workbook.statistics import accuracy

    ours, tokenizer = load_model(profile.model, folder / "adapter", device=profile.device)
    merged, words = load_model(folder / f"merged-{job['way']}", device=profile.device)
    _, heldout = _problems(profile)
    completions = json.loads((folder / "completions.json").read_text(encoding="utf-8"))
    proof = compare_logits(ours, merged, tokenizer, list(heldout["prompt"]), completions)
    how = {
        "max_new_tokens": profile.grpo["max_completion_length"],
        "batch_size": profile.eval_batch_size,
    }
    adapter, alone = (
        accuracy(evaluate(m, t, heldout, **how).strict)
        for m, t in ((ours, tokenizer), (merged, words))
    )
    problems = [] if is_proved(proof) else [f"the merged model is another one: {proof}"]
    if proof["max_abs_logit_difference"] == 0:
        problems.append("no difference at all: a model was compared with itself")
    if alone < adapter - 0.05:
        problems.append(f"greedy accuracy {alone:.3f} merged, {adapter:.3f} with the adapter")
    return {
        **proof,
        "strict_greedy_adapter": adapter,
        "strict_greedy_merged": alone,
        "problems": problems,
    }


def train_part(job: dict) -> dict:
    """One process of the resume proof: train from the start or the last checkpoint, and stop where
    the job says."""
    profile, folder = make_profile(job), Path(job["folder"])
    from transformers import TrainerCallback

    from grpo_workbook.export import save_adapter
    from grpo_workbook.resume import keep_exact, last_checkpoint
    from grpo_workbook.training import load_policy

    class Stop(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == job["stop_after"]:
                control.should_save = control.should_training_stop = True
            return control

    model, tokenizer = load_policy(profile)
    trainer = _trainer(profile, model, tokenizer, _problems(profile)[0])
    trainer.add_callback(Stop())
    keep_exact(trainer)
    checkpoint = last_checkpoint(folder / "checkpoints") if job["resume"] else None
    trainer.train(resume_from_checkpoint=checkpoint)
    save_adapter(model, tokenizer, folder / "adapter")
    write_json(folder / "log.json", _log(trainer))
    return {
        "from": Path(checkpoint).name if checkpoint else None,
        "steps": trainer.state.global_step,
    }


def compare_runs(job: dict) -> dict:
    """The resumed run beside the one that went through: steps, learning rates, rewards, the
    adapters' difference."""
    from safetensors.torch import load_file

    through, resumed = (Path(job["folder"]) / name for name in ("through", "resumed"))
    a, b = (json.loads((f / "log.json").read_text(encoding="utf-8")) for f in (through, resumed))
    x, y = (load_file(f / "adapter" / "adapter_model.safetensors") for f in (through, resumed))
    problems = []
    if [e["step"] for e in b] != list(range(1, job["steps"] + 1)):
        problems.append(f"the resumed run logged the steps {[e['step'] for e in b]}")
    if any(
        not math.isclose(e["learning_rate"], f["learning_rate"], rel_tol=1e-6)
        for e, f in zip(a, b, strict=False)
    ):
        problems.append("the learning rates are not those of the run that went through")
    differ = next(
        (e["step"] for e, f in zip(a, b, strict=False) if e["reward"] != f["reward"]), None
    )
    return {
        "steps": len(b),
        "first_step_with_another_reward": differ,
        "same_adapter": all((x[k] == y[k]).all().item() for k in x),
        "largest_adapter_difference": max(
            (x[k].float() - y[k].float()).abs().max().item() for k in x
        ),
        "largest_adapter_weight": max(v.float().abs().max().item() for v in x.values()),
        "problems": problems,
    }
