"""Save the adapter, merge it into 16-bit weights with a proof, and write the model's card.

The logits of the base with its adapter and of the merged weights must agree. What the policy
answered must be as likely to the merged model, which must solve as many held-out problems.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from grpo_workbook import data, files, models
from grpo_workbook.errors import WorkbookError
from grpo_workbook.evaluation import Sampling, complete, score
from grpo_workbook.files import readable
from grpo_workbook.statistics import accuracy, paired_p_value, wilson_interval

SAME_TOKENS = 0.98  # rounding to bfloat16 turns a few near-ties; a wrong merge turns more
RELATIVE = 0.02  # of the logits' spread: rounding gives 0.002 to 0.004, a wrong merge at least 0.04
KEPT = 0.5  # of the effect of training: quantizing takes some of it, a lost adapter takes all
LOGIT_BYTES = 2**30  # of one model's logits, which stay in memory for the comparison
POLICY_RECORD = "policy.json"  # beside an adapter: the trained policy's answers, log-probabilities
QUESTION = "Ada has {} pens and buys {} more. How many pens does Ada have now?"
SUMS = [QUESTION.format(n, 17 - n) for n in range(2, 14)]
REFUSED = (
    "the merged model is not the same: its logits differ by {relative_logit_difference:.1%} of "
    f"their spread (at most {RELATIVE:.0%}), it chooses the same token at "
    f"{{same_greedy_tokens:.2%}} of the positions (at least {SAME_TOKENS:.0%})"
)
MORE = {
    "effect_kept": f", {{effect_kept:.0%}} of training's effect is in it (at least {KEPT:.0%})",
    "policy_ci95": ", and it solves {merged_strict_greedy:.1%} of {heldout_n} held-out problems, "
    "but the trained policy {policy_strict_greedy:.1%} (95 % interval {policy_ci95[0]:.1%} to "
    "{policy_ci95[1]:.1%})",
}


def save_adapter(model, tokenizer, folder: str | Path, weights=None, prompts=()) -> None:
    """Write the adapter (`weights`, if gathered from several processes), the tokenizer, a hash of
    the base, and a record of the policy: answers to `prompts`, a few of its task (default: sums),
    with the log-probability of each token by the policy and by its base.
    """
    record: dict = {}
    if not weights:
        learning = model.training
        prompts = list(prompts) or [data.chat_prompt(text, None) for text in SUMS]
        texts = _answers(model.eval(), tokenizer, prompts, max_new_tokens=48)
        read, record = (model, tokenizer, prompts, texts), {"prompts": prompts, "texts": texts}
        record["policy"] = _log_probabilities(_read_logits(*read)).tolist()
        with model.disable_adapter():
            record["base"] = _log_probabilities(_read_logits(*read)).tolist()
        model.train(learning)
    base = next(iter(model.peft_config.values())).base_model_name_or_path

    def write(target: Path) -> None:
        model.save_pretrained(target, state_dict=weights)
        (target / "README.md").unlink(missing_ok=True)  # PEFT's template holds the base's path
        tokenizer.save_pretrained(target)
        named = {"base": readable(base), "hash": models.fingerprint(base)}
        files.write_json(target / models.BASE_RECORD, named)
        files.write_json(target / POLICY_RECORD, record)

    files.swap_folder(Path(folder), write)


def merge(base: str | None, adapter: str | Path, folder: str | Path, *,
          heldout=None, policy=None, judge: Callable | None = None, **how) -> dict:  # fmt: skip
    """Merge an adapter into its base's 16-bit weights, prove it, and write the model to `folder`.

        proof = merge(None, "outputs/run/adapter", "outputs/run/merged")

    `base` may be a hub id, or None for the base that the adapter names. `heldout`: rows with
    `prompt` and `answer` (default: the held-out set of the adapter's run, else a few sums).
    `policy`: the trained policy's greedy Scores on them (default: the base with the adapter
    answers). `judge`: see `evaluation.score`. `how`: max_new_tokens and batch_size. Raises
    WorkbookError, with the numbers, if the merged model is not the same; `folder` then stays.
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
        said = f"{readable(base)} has quantized weights, which would round the merge"
        raise WorkbookError(f"{said}: give its 16-bit model with --base")
    where, record = _where(ours.num_parameters()), _read(Path(adapter) / POLICY_RECORD)
    # as in training: without a system role, the system text opens the user's turn
    fold = data.prompts.fold_system if data.prompts.needs_folding(tokenizer) else list
    prompts = [fold(row["prompt"]) for row in heldout]
    answers = [row["answer"] for row in heldout if "answer" in row]
    how = {"progress": "answering", **how}
    how.setdefault("max_new_tokens", settings.get("max_completion_length", 256))
    proof: dict = {}

    def write(target: Path) -> None:
        nonlocal ours
        ours = ours.to(**where)
        texts = policy.completions if policy else _answers(ours, tokenizer, prompts, **how)
        own = [record.get(name, []) for name in ("prompts", "texts")]
        read = own[0] + prompts, own[1] + texts
        before = _read_logits(ours, tokenizer, *read)
        with ours.disable_adapter():
            without = _read_logits(ours, tokenizer, *own) if record else []
        ours = ours.merge_and_unload().bfloat16()
        ours.save_pretrained(target)
        tokenizer.save_pretrained(target)
        ours = None
        clear_device_cache(garbage_collection=True)  # one model at a time
        merged, its_tokenizer = models.load_model(target, **where)
        after = _read_logits(merged, its_tokenizer, *read)
        proof.update(compare_logits(before, after, its_tokenizer, *read))
        proof.update(_effect_kept(record, without, before, after) if record else {})
        if answers:
            now = _answers(merged, its_tokenizer, prompts, **how)
            right = (policy or score(texts, answers, judge=judge, prompts=prompts)).strict
            proof.update(
                scored(right, score(now, answers, judge=judge, prompts=prompts).strict, now)
            )
        if not is_proved(proof):
            said = [text.format(**proof) for name, text in MORE.items() if name in proof]
            raise WorkbookError(f"{REFUSED.format(**proof)}{''.join(said)}. Nothing was written")
        write_card(target, {**report, "merge": proof}, settings, base=base)

    files.swap_folder(folder, write)
    return proof


def _answers(model, tokenizer, prompts, *, max_new_tokens, batch_size=32, progress=None):
    """Greedy answers by this process alone."""
    sampling = Sampling(max_new_tokens=max_new_tokens, batch_size=batch_size)
    done = complete(model, tokenizer, prompts, sampling, progress=progress, share=False)
    return [completion.text for completion in done]


def scored(right: Sequence[bool], now: Sequence[bool], said: Sequence[str]) -> dict:
    """The proof's rates from what the policy and the merged model (it `said`) got right."""
    rates = {"merged_strict_greedy": accuracy(now), "policy_strict_greedy": accuracy(right)}
    rates |= {"p_value": paired_p_value(right, now), "policy_ci95": [*wilson_interval(right)]}
    return {"heldout_n": len(right), "merged_answers": said[:5], **rates}


def run_of(adapter: str | Path) -> tuple[dict, dict]:
    """(report, settings) of the run or stage whose folder holds the adapter; else empty."""
    place = Path(adapter).resolve().parent
    run = _read(place / "run.json") or _read(place.parent / "run.json")
    return _read(place / "report.json"), run.get("settings", {})


def _read(path: Path) -> dict:
    return files.read_json(path, "remove it") if path.is_file() else {}


def _heldout_of(adapter: str, prompt: str | None, judge) -> tuple:
    """(rows, policy or None, judge) from the run's after.json; without it only prompts."""
    after = _read(Path(adapter).parent / "after.json")
    judge = judge if after.get("kind") == "text" else None
    prompts = [data.chat_prompt(text, prompt) for text in after.get("question", SUMS)]
    if not after or (after.get("kind") == "text" and judge is None):
        return [{"prompt": prompt} for prompt in prompts], None, None
    rows = [{"prompt": p, "answer": a} for p, a in zip(prompts, after["answer"], strict=True)]
    if greedy := after.get("greedy"):
        greedy = score(greedy, after["answer"], judge=judge, prompts=prompts)
    return rows, greedy, judge


def _check_folder(folder: Path, adapter: str, base: str) -> None:
    """Raise WorkbookError if the merged model must not go there, or does not fit on the disk."""
    if any(files.place_of(kept).is_relative_to(files.place_of(folder)) for kept in (adapter, base)):
        raise WorkbookError(f"{folder} holds the adapter or its base: choose another folder")
    if (folder.is_file() or any(folder.glob("*"))) and not (folder / "config.json").is_file():
        raise WorkbookError(f"{folder} has files but no model: choose another folder")
    size = sum(f.stat().st_size for f in Path(base).glob("*.safetensors"))  # 0 on the hub
    files.check_disk(folder, size + 20 * 2**20, "the merged model")


def _where(weights: int) -> dict:
    """Device and dtype for so many weights: the GPU and float32 if they leave room to answer."""
    import psutil
    import torch

    room = {"cpu": psutil.virtual_memory().available}
    if torch.cuda.is_available():
        room = {"cuda": torch.cuda.mem_get_info()[0], **room}
    each = ((torch.float32, 9), (torch.bfloat16, 3))  # bytes for a weight, its part of the rest too
    fits = [(at, dtype) for at in room for dtype, size in each if size * weights < room[at]]
    device, dtype = [*fits, ("cpu", torch.bfloat16)][0]
    return {"device": device, "dtype": dtype}


def compare_logits(ours, merged, tokenizer, prompts: Sequence, completions: Sequence[str]) -> dict:
    """The largest logit difference, the root mean square difference relative to the logits' spread,
    and the fraction of positions where both models choose the same token.
    Both (or the logits that were kept of a model that is gone) read the same prompts with their
    completions, as far as LOGIT_BYTES go. A NaN among the logits makes both differences NaN.
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


def _log_probabilities(read: list):
    """The log-probability of every token that was read."""
    each = [x[:-1].log_softmax(-1)[range(len(ids)), ids].double().numpy() for ids, x in read]
    return np.concatenate(each).round(5)


def _effect_kept(record: Mapping, base: list, ours: list, merged: list) -> dict:
    """How much of training's change of the record is in the merge; 1 if it drowns in rounding."""
    trained = np.array(record["policy"], float) - np.array(record["base"], float)
    plain, before, after = (_log_probabilities(read[: len(base)]) for read in (base, ours, merged))
    if trained @ trained <= 16 * np.square(after - before).sum():  # it drowns in the rounding
        return {"effect_kept": 1.0}
    return {"effect_kept": round(float(trained @ (after - plain) / (trained @ trained)), 3)}


def is_proved(proof: Mapping) -> bool:
    """Whether the base with the adapter and the merged weights are the same policy up to rounding.
    The held-out accuracy must not lie below the policy's 95 % interval, unless chance can explain
    it (paired test, p from 0.01 on). A higher one is fine: 16 bits may answer better than 4.
    """
    same = proof["same_greedy_tokens"] >= SAME_TOKENS
    close = proof["relative_logit_difference"] <= RELATIVE and proof.get("effect_kept", 1) >= KEPT
    worse = proof.get("merged_strict_greedy", 1.0) < proof.get("policy_ci95", (0.0,))[0]
    return same and close and not (worse and proof.get("p_value", 0.0) < 0.01)


# Two directories or more from the root; not </answer>, not a/b, not https://...
_PATH = re.compile(r"(?<![\w:/.<])(?:/|~/)(?:[^\s/,:;\"'|=]+/)+([^\s/,:;\"'|=]+)")


def _hub_id(name: object) -> str | None:
    """The hub id in the name of a model or data set; None for a local path."""
    text = str(name).split(":")[0]
    file = Path(text).suffix in data.reading.FORMATS or files.place_of(text).exists()
    return text if re.fullmatch(r"\w[\w.-]*/[\w.-]+", text) and not file else None


def write_card(folder: str | Path, report: Mapping, settings: Mapping, *, base: str | Path) -> None:
    """Write the model card, README.md, into the folder of a merged model or an adapter, from a
    run's report.json and settings. Local names appear in the text only, and without their path.
    """
    from huggingface_hub import ModelCard, ModelCardData

    held, hub = report.get("heldout", {}), _hub_id(base)
    named = [report.get("data", {}).get(name) for name in ("heldout_source", "source")]
    source = next(filter(None, named), "word_problems")
    adapter = (Path(folder) / "adapter_config.json").is_file()
    sets = sorted({*filter(None, map(_hub_id, named))}) or None
    metadata = ModelCardData(base_model=hub, datasets=sets, pipeline_tag="text-generation")
    metadata.library_name = "peft" if adapter else "transformers"
    metadata.tags = ["grpo", "trl"] if held else None
    prompt = data.chat_prompt(QUESTION.format(7, 5), settings.get("system_prompt"))
    if data.prompts.needs_folding(data.load_tokenizer(folder)):
        prompt = data.prompts.fold_system(prompt)
    facts = {"report": report, "settings": settings, "adapter": adapter}
    facts |= {"measures": ("strict", "lenient", "well_formed")}
    facts |= {"sampled": held.get("sampled", {}).get("strict")}
    facts |= {"base": hub or readable(base), "base_hash": models.fingerprint(base)}
    facts |= {"source": Path(source).name, "dataset": _hub_id(source) or Path(source).stem}
    facts |= {"messages": json.dumps(prompt, indent=4, ensure_ascii=False)}
    with suppress(OSError):  # a base on the hub, and no network
        facts["text_part"] = models.text_part(str(base)).get("key_mapping")
    template = str(Path(__file__).with_name("model_card.jinja"))
    text = str(ModelCard.from_template(metadata, template_path=template, **facts))
    with files.whole_file(Path(folder) / "README.md") as path:
        path.write_text(_PATH.sub(r"\1", text), encoding="utf-8")
