"""Save the adapter, merge it into 16-bit weights with a proof, and write the model's card.

The base with its adapter and the merged weights read the same texts: their logits must agree.
Then the merged model answers held-out problems, and must not do worse than the policy.
"""

import copy
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from grpo_workbook import data, files, models
from grpo_workbook.errors import WorkbookError
from grpo_workbook.evaluation import generate, score
from grpo_workbook.files import readable
from grpo_workbook.statistics import accuracy, paired_p_value, wilson_interval

SAME_TOKENS = 0.98  # rounding to bfloat16 turns a few near-ties; a wrong merge turns more
RELATIVE = 0.02  # of the logits' spread: rounding gives 0.002 to 0.004, a wrong merge at least 0.04
QUESTION = "Ada has {} pens and buys {} more. How many pens does Ada have now?"
REFUSED = (
    "the merged model is not the same: its logits differ by {relative_logit_difference:.1%} of "
    "their spread (at most {0:.0%}), it chooses the same token at {same_greedy_tokens:.2%} of the "
    "positions (at least {1:.0%}){2}. Nothing was written"
)
WORSE = (
    ", and it solves {merged_strict_greedy:.1%} of {heldout_n} held-out problems, but the trained "
    "policy {policy_strict_greedy:.1%} (95 % interval {0:.1%} to {1:.1%})"
)


def save_adapter(model, tokenizer, folder: str | Path, weights: dict | None = None) -> None:
    """Write the adapter, the tokenizer, and a hash of the base model.

    `weights` are the adapter's weights if they were gathered from several processes.
    """
    base = next(iter(model.peft_config.values())).base_model_name_or_path

    def write(target: Path) -> None:
        model.save_pretrained(target, state_dict=weights)
        (target / "README.md").unlink(missing_ok=True)  # PEFT's template holds the base's path
        tokenizer.save_pretrained(target)
        record = {"base": readable(base), "hash": models.fingerprint(base)}
        files.write_json(target / models.BASE_RECORD, record)

    files.swap_folder(Path(folder), write)


def merge(base, adapter, folder, *, heldout=None, policy=None, judge=None, **how) -> dict:
    """Merge an adapter into its base's 16-bit weights, prove it, and write the model to `folder`.

    All three are paths; `base` may be a hub id, or None for the base that the adapter names.
    `heldout`: a Dataset or rows with `prompt` and `answer` (without answers only the logits count;
    default: the held-out set of the adapter's run, else a few sums). `policy`: the trained policy's
    greedy Scores on them (default: the base with the adapter answers). `judge`: see
    `evaluation.score`. `how`: max_new_tokens (default: the run's, or 256) and batch_size.

    Returns the proof. Raises WorkbookError, with the numbers, if the merged model is not the same;
    then, and after a kill, `folder` is unchanged.
    """
    adapter, _ = models.find_adapter(adapter)
    named = _read(Path(adapter) / "adapter_config.json")["base_model_name_or_path"]
    base, folder = models.find_model(base or str(named)), Path(folder).expanduser()
    if models.check_base(adapter, base) is False:
        said = f"{readable(base)} is not the base that {readable(adapter)} was trained on"
        raise WorkbookError(f"{said}, by its hash: name the right one with --base")
    size = sum(f.stat().st_size for f in Path(base).glob("*.safetensors"))  # 0 on the hub
    _check_folder(folder, adapter, base, size)
    report, settings = run_of(adapter)
    if heldout is None:
        heldout, policy, judge = _heldout_of(adapter, settings.get("system_prompt"), judge)
    where = _where(size)
    ours, tokenizer = models.load_model(base, adapter, any_base=True, **where)
    if getattr(ours.config, "quantization_config", None):
        said = f"{readable(base)} has quantized weights, which would round the merge"
        raise WorkbookError(f"{said}: give its 16-bit model with --base")
    # as in training: without a system role, the system text opens the user's turn
    fold = data.fold_system if data.needs_folding(tokenizer) else list
    prompts = [fold(row["prompt"]) for row in heldout]
    answers = [row["answer"] for row in heldout if "answer" in row]
    how = {"max_new_tokens": settings.get("max_completion_length", 256)} | how
    how |= {"share": False, "progress": "answering"}
    texts = policy.completions if policy else generate(ours, tokenizer, prompts, **how)
    proof: dict = {}

    def write(target: Path) -> None:
        # a copy, because the proof still needs ours
        copy.deepcopy(ours).merge_and_unload().bfloat16().save_pretrained(target)
        tokenizer.save_pretrained(target)
        merged, words = models.load_model(target, **where)
        proof.update(compare_logits(ours, merged, tokenizer, prompts, texts))
        if answers:
            said = generate(merged, words, prompts, **how)
            right = (policy or score(texts, answers, judge)).strict
            now = score(said, answers, judge).strict
            proof.update(heldout_n=len(answers), merged_answers=said[:5])
            proof.update(merged_strict_greedy=accuracy(now), policy_strict_greedy=accuracy(right))
            proof.update(p_value=paired_p_value(right, now), policy_ci95=[*wilson_interval(right)])
        if not is_proved(proof):
            held = WORSE.format(*proof["policy_ci95"], **proof) if answers else ""
            raise WorkbookError(REFUSED.format(RELATIVE, SAME_TOKENS, held, **proof))
        write_card(target, {**report, "merge": proof}, settings, base=base)

    files.swap_folder(folder, write)
    return proof


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
    sums = [QUESTION.format(n, 17 - n) for n in range(2, 14)]
    prompts = [data.chat_prompt(text, prompt) for text in after.get("question", sums)]
    if not after or (after.get("kind") == "text" and judge is None):
        return [{"prompt": prompt} for prompt in prompts], None, None
    rows = [{"prompt": p, "answer": a} for p, a in zip(prompts, after["answer"], strict=True)]
    return rows, after.get("greedy") and score(after["greedy"], after["answer"], judge), judge


def _check_folder(folder: Path, adapter: str, base: str, size: int) -> None:
    """Raise WorkbookError if the merged model must not go there, or does not fit on the disk."""
    place = files.place_of(folder)
    if any(files.place_of(kept).is_relative_to(place) for kept in (adapter, base)):
        raise WorkbookError(f"{folder} holds the adapter or its base: choose another folder")
    if (folder.is_file() or any(folder.glob("*"))) and not (folder / "config.json").is_file():
        raise WorkbookError(f"{folder} has files but no model: choose another folder")
    files.check_disk(folder, size + 20 * 2**20, "the merged model")


def _where(size: int) -> dict:
    """Device and dtype of the proof: float32; half precision if two models may not fit the GPU."""
    import torch

    if not torch.cuda.is_available():
        return {"device": "cpu", "dtype": "float32"}
    half = "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float16"
    fits = 0 < 2 * 2 * size < 0.7 * torch.cuda.mem_get_info()[0]
    return {"device": "cuda", "dtype": "float32" if fits else half}


def compare_logits(ours, merged, tokenizer, prompts: Sequence, completions: Sequence[str]) -> dict:
    """The largest logit difference, the root mean square difference relative to the logits' spread,
    and the fraction of positions where both models choose the same token.

    Both read the same chat prompts with their completions; all positions of a completion count, and
    the one before it. A NaN among the logits makes both differences NaN.
    """
    import torch

    found = []
    for pair in zip(
        data.render(prompts, tokenizer), completions, strict=True
    ):  # one by one: no padding
        prompt, answer = tokenizer(list(pair), add_special_tokens=False)["input_ids"]
        ids = torch.tensor([prompt + answer], device=ours.device)
        with torch.no_grad():
            a, b = (m(input_ids=ids).logits[0, len(prompt) - 1 :].float() for m in (ours, merged))
        gap, same = a - b, (a.argmax(-1) == b.argmax(-1)).float()
        found.append(torch.stack([gap.abs().amax(-1), gap.square().mean(-1), a.var(-1), same]))
    largest, square, spread, same = torch.cat(found, dim=1).double().cpu()  # by position
    return {
        "max_abs_logit_difference": round(largest.max().item(), 5),
        "relative_logit_difference": round((square.mean() / spread.mean()).sqrt().item(), 5),
        "same_greedy_tokens": round(same.mean().item(), 5),
    }


def is_proved(proof: Mapping) -> bool:
    """Whether the base with the adapter and the merged weights are the same policy up to rounding.

    The held-out accuracy, if measured, must not lie below the policy's 95 % interval, unless chance
    can explain it (paired test, p from 0.01 on). A higher accuracy is fine: the policy answered on
    a 4-bit base, and 16 bits may answer better.
    """
    same = proof["same_greedy_tokens"] >= SAME_TOKENS
    close = proof["relative_logit_difference"] <= RELATIVE
    worse = proof.get("merged_strict_greedy", 1.0) < proof.get("policy_ci95", (0.0,))[0]
    return same and close and not (worse and proof.get("p_value", 0.0) < 0.01)


# Two directories or more from the root; not </answer>, not a/b, not https://...
_PATH = re.compile(r"(?<![\w:/.<])(?:/|~/)(?:[^\s/,:;\"'|=]+/)+([^\s/,:;\"'|=]+)")


def _hub_id(name: object) -> str | None:
    """The hub id in the name of a model or data set; None for a local path."""
    text = str(name).split(":")[0]
    file = Path(text).suffix in data.FORMATS or files.place_of(text).exists()
    return text if re.fullmatch(r"\w[\w.-]*/[\w.-]+", text) and not file else None


def write_card(folder: str | Path, report: Mapping, settings: Mapping, *, base: str | Path) -> None:
    """Write the model card, README.md, into the folder of a merged model or an adapter.

    `report` is a run's report.json, or parts of it; `settings` are the run's, with its system
    prompt. Local names appear in the text only, and without their path.
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
    template = str(Path(__file__).with_name("model_card.jinja"))
    text = str(ModelCard.from_template(metadata, template_path=template, **facts))
    with files.whole_file(Path(folder) / "README.md") as path:
        path.write_text(_PATH.sub(r"\1", text), encoding="utf-8")
