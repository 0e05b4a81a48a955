"""Save the adapter, merge it into 16-bit weights with a proof, and write the model's card.

Base-plus-adapter and the merged weights read the same prompts and answers: their logits must agree.
What the trained policy said when it was saved, the merged model must hold as likely. Then it
answers held-out problems: it must not do worse than the policy did.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from grpo_workbook import data, files, models
from grpo_workbook.errors import WorkbookError
from grpo_workbook.evaluation import generate, score
from grpo_workbook.files import readable
from grpo_workbook.statistics import accuracy, paired_p_value, wilson_interval

SAME_TOKENS = 0.98  # rounding to bfloat16 turns a few near-ties; a wrong merge turns more
RELATIVE = 0.02  # of the logits' spread: rounding gives 0.002 to 0.004, wrong merges 0.04 and more
KEPT = 0.5  # of what training changed: quantizing takes some of it, a lost adapter takes all
LOGIT_BYTES = 2**30  # of one model's logits, which wait in memory for the other's
POLICY_RECORD = "policy.json"  # beside an adapter: what the trained policy said, and how surely
QUESTION = "Ada has {} pens and buys {} more. How many pens does Ada have now?"
SUMS = [QUESTION.format(n, 17 - n) for n in range(2, 14)]
REFUSED = (
    "the merged model is another one: its logits differ by {relative_logit_difference:.1%} of "
    f"their spread (at most {RELATIVE:.0%}), the same token at {{same_greedy_tokens:.2%}} of the "
    f"places (at least {SAME_TOKENS:.0%})"
)
MORE = {
    "effect_kept": f", {{effect_kept:.0%}} of what training changed is in it (at least {KEPT:.0%})",
    "policy_ci95": ", {merged_strict_greedy:.1%} of {heldout_n} held-out problems right, and the "
    "policy that was trained {policy_strict_greedy:.1%} (95 % interval {policy_ci95[0]:.1%} to "
    "{policy_ci95[1]:.1%})",
}


def save_adapter(model, tokenizer, folder: str | Path, weights: dict | None = None) -> None:
    """Write the adapter (its `weights`, where they were gathered from several processes), the
    tokenizer, a hash of the base it was trained on, and the policy's answers to a few sums, with
    the log-probability of each token by the policy and by its base.
    """
    record: dict = {}
    if not weights:
        prompts = [data.chat_prompt(text, None) for text in SUMS]
        texts = generate(model.eval(), tokenizer, prompts, max_new_tokens=48, share=False)
        record = {"prompts": prompts, "texts": texts}
        record["policy"] = _surely(_read_logits(model, tokenizer, prompts, texts)).tolist()
        with model.disable_adapter():
            record["base"] = _surely(_read_logits(model, tokenizer, prompts, texts)).tolist()
    base = next(iter(model.peft_config.values())).base_model_name_or_path

    def write(target: Path) -> None:
        model.save_pretrained(target, state_dict=weights)
        (target / "README.md").unlink(missing_ok=True)  # PEFT's form, with the path of the base
        tokenizer.save_pretrained(target)
        named = {"base": readable(base), "hash": models.fingerprint(base)}
        files.write_json(target / models.BASE_RECORD, named)
        files.write_json(target / POLICY_RECORD, record)

    files.swap_folder(Path(folder), write)


def merge(base, adapter, folder, *, heldout=None, policy=None, judge=None, **how) -> dict:
    """Merge an adapter into its base's 16-bit weights, prove it, and write the model to `folder`.

    The three are paths, `base` may be a hub id, and None takes the one that the adapter names.
    `heldout` is a Dataset, or rows, with `prompt` and `answer` (without answers only the logits
    count; default: those of the run in whose folder the adapter lies, else a few sums), `policy`
    the trained policy's greedy Scores on them (else base-plus-adapter is asked), `judge` as in
    `evaluation.score`; `how` is max_new_tokens (default: the run's, or 256) and batch_size.

    Returns the proof, made with one model in memory at a time. Raises WorkbookError, with the
    numbers, for a merge that is another model: then, and after a kill, `folder` is what it was.
    """
    from accelerate.utils.memory import clear_device_cache

    adapter, _ = models.find_adapter(adapter)
    named = _read(Path(adapter) / "adapter_config.json")["base_model_name_or_path"]
    base, folder = models.find_model(base or str(named)), Path(folder).expanduser()
    if models.check_base(adapter, base) is False:
        said = f"{readable(base)} is not the base that {readable(adapter)} was trained on"
        raise WorkbookError(f"{said}, by its hash: name the right one with --base")
    _check_folder(folder, adapter, base)
    report, settings = run_of(adapter)
    if heldout is None:
        heldout, policy, judge = _heldout_of(adapter, settings.get("system_prompt"), judge)
    ours, tokenizer = models.load_model(base, adapter, dtype="auto", any_base=True)
    if getattr(ours.config, "quantization_config", None):
        said = f"{readable(base)} holds quantized weights, and a merge into them would be rounded"
        raise WorkbookError(f"{said}: name its 16-bit model with --base")
    where, record = _where(ours.num_parameters()), _read(Path(adapter) / POLICY_RECORD)
    # as the model was trained on them: without a system role its text opens the user's turn
    fold = data.fold_system if data.needs_folding(tokenizer) else list
    prompts = [fold(row["prompt"]) for row in heldout]
    answers = [row["answer"] for row in heldout if "answer" in row]
    how = {"share": False, "progress": "answering", **how}
    how.setdefault("max_new_tokens", settings.get("max_completion_length", 256))
    proof: dict = {}

    def write(target: Path) -> None:
        nonlocal ours
        ours = ours.to(**where)
        texts = policy.completions if policy else generate(ours, tokenizer, prompts, **how)
        read = [record.get(n, []) + more for n, more in (("prompts", prompts), ("texts", texts))]
        before = _read_logits(ours, tokenizer, *read)
        with ours.disable_adapter():
            without = record and _read_logits(ours, tokenizer, record["prompts"], record["texts"])
        ours = ours.merge_and_unload().bfloat16()
        ours.save_pretrained(target)
        tokenizer.save_pretrained(target)
        ours = None
        clear_device_cache(garbage_collection=True)  # one model at a time
        merged, words = models.load_model(target, **where)
        after = _read_logits(merged, words, *read)
        proof.update(compare_logits(before, after, words, *read))
        proof.update(record and _effect_kept(record, without, before, after))
        if answers:
            right = (policy or score(texts, answers, judge)).strict
            said = generate(merged, words, prompts, **how)
            now = score(said, answers, judge).strict
            proof.update(
                merged_strict_greedy=accuracy(now), policy_strict_greedy=accuracy(right),
                policy_ci95=[*wilson_interval(right)], p_value=paired_p_value(right, now),
                heldout_n=len(right), merged_answers=said[:5],
            )  # fmt: skip
        if not is_proved(proof):
            said = [text.format(**proof) for name, text in MORE.items() if name in proof]
            raise WorkbookError(f"{REFUSED.format(**proof)}{''.join(said)}. Nothing was written")
        write_card(target, {**report, "merge": proof}, settings, base=base)

    files.swap_folder(folder, write)
    return proof


def run_of(adapter: str | Path) -> tuple[dict, dict]:
    """(report, settings) of the run in whose folder, or a stage's, the adapter lies; else empty."""
    place = Path(adapter).resolve().parent
    run = _read(place / "run.json") or _read(place.parent / "run.json")
    return _read(place / "report.json"), run.get("settings", {})


def _read(path: Path) -> dict:
    return files.read_json(path, "remove it") if path.is_file() else {}


def _heldout_of(adapter: str, prompt: str | None, judge) -> tuple:
    """(rows, policy or None, judge) from the run's after.json, else prompts alone."""
    after = _read(Path(adapter).parent / "after.json")
    judge = judge if after.get("kind") == "text" else None
    prompts = [data.chat_prompt(text, prompt) for text in after.get("question", SUMS)]
    if not after or (after.get("kind") == "text" and judge is None):
        return [{"prompt": prompt} for prompt in prompts], None, None
    rows = [{"prompt": p, "answer": a} for p, a in zip(prompts, after["answer"], strict=True)]
    return rows, after.get("greedy") and score(after["greedy"], after["answer"], judge), judge


def _check_folder(folder: Path, adapter: str, base: str) -> None:
    """Raise WorkbookError where the merged model must not go, or the disk cannot hold it."""
    place = files.place_of(folder)
    if any(files.place_of(kept).is_relative_to(place) for kept in (adapter, base)):
        raise WorkbookError(f"{folder} holds the adapter or its base: name another folder")
    if (folder.is_file() or any(folder.glob("*"))) and not (folder / "config.json").is_file():
        raise WorkbookError(f"{folder} holds no model, so it is not replaced: name another folder")
    size = sum(f.stat().st_size for f in Path(base).glob("*.safetensors"))  # 0 on the hub
    files.check_disk(folder, size + 20 * 2**20, "the merged model")


def _where(weights: int) -> dict:
    """Device and dtype for so many weights: a GPU and float32 where they leave room to answer."""
    import torch
    from accelerate.utils import get_max_memory

    each = ((torch.float32, 8), (torch.bfloat16, 3))  # bytes for a weight, its part of the rest too
    room = get_max_memory().items()  # GPUs first
    fits = ((at, dtype) for at, free in room for dtype, size in each if size * weights < free)
    return dict(zip(("device", "dtype"), next(fits, ("cpu", torch.bfloat16)), strict=True))


def compare_logits(ours, merged, tokenizer, prompts: Sequence, completions: Sequence[str]) -> dict:
    """Largest logit difference, its root mean square relative to the logits' own spread, and the
    fraction of positions where both models would choose the same token.

    Both read the same chat prompts, each with its completion, whose every position counts (and the
    one before it), as far as LOGIT_BYTES go; of a model that is gone, what was kept of it. A logit
    that is NaN makes both differences NaN.
    """
    import torch

    found, asked = [], (tokenizer, prompts, completions)
    read = (x if isinstance(x, list) else _read_logits(x, *asked) for x in (ours, merged))
    for (_, a), (_, b) in zip(*read, strict=True):
        gap, same = a - b, (a.argmax(-1) == b.argmax(-1)).float()
        found.append(torch.stack([gap.abs().amax(-1), gap.square().mean(-1), a.var(-1), same]))
    largest, square, spread, same = torch.cat(found, dim=1).double()  # by position
    return {
        "max_abs_logit_difference": round(largest.max().item(), 5),
        "relative_logit_difference": round((square.mean() / spread.mean()).sqrt().item(), 5),
        "same_greedy_tokens": round(same.mean().item(), 5),
    }


def _read_logits(model, tokenizer, prompts: Sequence, completions: Sequence[str]) -> list:
    """[(the completion's tokens, the logits before each and after the last)], on the CPU."""
    import torch

    found, room = [], LOGIT_BYTES // (4 * model.config.vocab_size)
    most = max(64, room // len(prompts))
    for pair in zip(data.render(prompts, tokenizer), completions, strict=True):  # no padding
        prompt, answer = tokenizer(list(pair), add_special_tokens=False)["input_ids"]
        ids = torch.tensor([prompt + answer[:most]], device=model.device)
        places = ids.shape[1] - len(prompt) + 1
        if (room := room - places) < 0 and found:
            break
        with torch.no_grad():
            logits = model(input_ids=ids, logits_to_keep=places).logits[0, -places:]
        found.append((answer[:most], logits.float().cpu()))
    return found


def _surely(read: list):
    """The log-probability of every token that was read."""
    import numpy as np

    each = [x[:-1].log_softmax(-1)[range(len(ids)), ids].double().numpy() for ids, x in read]
    return np.concatenate(each).round(5)


def _effect_kept(record: Mapping, base: list, ours: list, merged: list) -> dict:
    """How much of what training changed, by the log-probabilities of the record, is in the merge.

    1 where the change is so small that it drowns in the rounding of the merged weights.
    """
    import numpy as np

    trained = np.array(record["policy"], float) - np.array(record["base"], float)
    plain, before, after = (_surely(read[: len(base)]) for read in (base, ours, merged))
    if trained @ trained <= 16 * np.square(after - before).sum():
        return {"effect_kept": 1.0}
    return {"effect_kept": round(float(trained @ (after - plain) / (trained @ trained)), 3)}


def is_proved(proof: Mapping) -> bool:
    """Whether base-plus-adapter and merged weights are the same policy but for rounding.

    The held-out accuracy, where it was measured, must not lie below the policy's 95 % interval,
    unless so few answers changed that it may be chance (paired test, p from 0.01 on). Above it is
    no fault: the policy answered on a 4-bit base, and 16 bits may answer better.
    """
    same = proof["same_greedy_tokens"] >= SAME_TOKENS
    close = proof["relative_logit_difference"] <= RELATIVE and proof.get("effect_kept", 1) >= KEPT
    worse = proof.get("merged_strict_greedy", 1.0) < proof.get("policy_ci95", (0.0,))[0]
    return same and close and not (worse and proof.get("p_value", 0.0) < 0.01)


# Two directories or more from the root; not </answer>, not a/b, not https://...
_PATH = re.compile(r"(?<![\w:/.<])(?:/|~/)(?:[^\s/,:;\"'|=]+/)+([^\s/,:;\"'|=]+)")


def _hub_id(name: object) -> str | None:
    """The hub id that a model's or data set's name stands for; None for what is on this machine."""
    text = str(name).split(":")[0]
    file = Path(text).suffix in data.FORMATS or files.place_of(text).exists()
    return text if re.fullmatch(r"\w[\w.-]*/[\w.-]+", text) and not file else None


def write_card(folder: str | Path, report: Mapping, settings: Mapping, *, base: str | Path) -> None:
    """Write the model card, README.md, into the folder of a merged model or an adapter.

    `report` is a run's report.json, or what is known of it; `settings` are the run's, its system
    prompt among them. What is no hub id is named in the text alone, and no path of this machine.
    """
    from huggingface_hub import ModelCard, ModelCardData

    held, hub = report.get("heldout", {}), _hub_id(base)
    named = [report.get("data", {}).get(name) for name in ("heldout_source", "source")]
    source = next(filter(None, named), "word_problems")
    adapter = (Path(folder) / "adapter_config.json").is_file()

    def interval(rate: float) -> list[float]:
        return list(wilson_interval([i < round(rate * held["n"]) for i in range(held["n"])]))

    sets = sorted({*filter(None, map(_hub_id, named))}) or None
    metadata = ModelCardData(base_model=hub, datasets=sets, pipeline_tag="text-generation")
    metadata.library_name = "peft" if adapter else "transformers"
    metadata.tags = ["grpo", "trl"] if held else None
    prompt = data.chat_prompt(QUESTION.format(7, 5), settings.get("system_prompt"))
    prompt = data.fold_system(prompt) if data.needs_folding(data.load_tokenizer(folder)) else prompt
    facts = {"report": report, "settings": settings, "adapter": adapter, "interval": interval}
    facts |= {"base": hub or readable(base), "base_hash": models.fingerprint(base)}
    facts |= {"source": Path(source).name, "dataset": _hub_id(source) or Path(source).stem}
    facts |= {"messages": json.dumps(prompt, indent=4, ensure_ascii=False)}
    with suppress(OSError):  # a base on the hub, and no network
        facts["text_part"] = models.text_part(str(base)).get("key_mapping")
    template = str(Path(__file__).with_name("model_card.jinja"))
    text = str(ModelCard.from_template(metadata, template_path=template, **facts))
    with files.whole_file(Path(folder) / "README.md") as path:
        path.write_text(_PATH.sub(r"\1", text), encoding="utf-8")
