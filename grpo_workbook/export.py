"""Save the adapter, merge it into 16-bit weights with a proof, and write the model's card.

The proof reads the same prompts and answers with base-plus-adapter and with the merged weights: how
far their logits lie apart, and at how many places both would write the same token. Then the merged
model answers held-out problems, where there are some: it must not do worse than the policy did.
"""

import copy
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_workbook.data import chat_prompt, fold_system, load_tokenizer, needs_folding, render
from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import check_disk, place_of, readable, swap_folder, whole_file, write_json
from grpo_workbook.models import (
    BASE_RECORD,
    check_base,
    find_adapter,
    find_model,
    fingerprint,
    load_model,
    read_config,
)

SAME_TOKENS = 0.98  # rounding to bfloat16 turns a few near-ties; a wrong merge turns more
RELATIVE = 0.02  # of the logits' spread: rounding gives 0.002 to 0.004, wrong merges 0.04 and more
QUESTION = "Ada has {} pens and buys {} more. How many pens does Ada have now?"


def save_adapter(model, tokenizer, folder: str | Path, weights: dict | None = None) -> None:
    """Write the adapter (safetensors), the tokenizer, and a hash of the base it was trained on.

    All at once: a kill leaves no half-written folder. `weights`: the model's state, where it was
    gathered from several processes; else the model's own.
    """
    base = next(iter(model.peft_config.values())).base_model_name_or_path

    def write(target: Path) -> None:
        model.save_pretrained(target, **({} if weights is None else {"state_dict": weights}))
        # PEFT's form to fill in, with this machine's path to the base
        (target / "README.md").unlink(missing_ok=True)
        tokenizer.save_pretrained(target)
        write_json(target / BASE_RECORD, {"base": readable(base), "hash": fingerprint(base)})

    swap_folder(Path(folder), write)


def merge(
    base: str | Path | None,
    adapter: str | Path,
    folder: str | Path,
    *,
    heldout: Any = None,
    policy: Any = None,
    judge: Callable[[str, str], bool] | None = None,
    max_new_tokens: int | None = None,
    batch_size: int = 32,
) -> dict:
    """Merge an adapter into its base's 16-bit weights, prove it, and write the model to `folder`.

    Args:
        base: the model that the adapter was trained on; None takes the one that it names.
        heldout: a Dataset, or rows, with `prompt` and `answer`; without answers only the logits
            count. Default: those of the run in whose folder the adapter lies, else a few sums.
        policy: the trained policy's greedy Scores on them; else base-plus-adapter is asked.
        judge: for answers that are no numbers, see `evaluation.score`.
        max_new_tokens: of an answer; default: the run's limit, or 256.
        batch_size: prompts that are answered at once.

    Returns the proof. Raises WorkbookError, with the numbers, for a merge that is another model:
    then, and after a kill, `folder` is what it was.
    """
    from grpo_workbook.evaluation import Sampling, complete, score
    from grpo_workbook.statistics import accuracy, wilson_interval

    adapter, _ = find_adapter(adapter)
    folder = Path(folder).expanduser()
    named = read_config(Path(adapter) / "adapter_config.json").get("base_model_name_or_path")
    base = find_model(base or str(named))
    if check_base(adapter, base) is False:
        raise WorkbookError(
            f"{readable(base)} is not the base that the adapter {readable(adapter)} was trained "
            "on, by its hash: name the right one with --base"
        )
    size = sum(f.stat().st_size for f in Path(base).glob("*.safetensors"))  # 0 on the hub
    _check_folder(folder, adapter, base, size)
    report, settings = run_of(adapter)
    if heldout is None:
        heldout, policy, judge = _heldout_of(adapter, settings, judge)
    limit = max_new_tokens or settings.get("max_completion_length", 256)
    device, dtype = _where(size)
    ours, tokenizer = load_model(base, adapter, dtype=dtype, device=device, any_base=True)
    if getattr(ours.config, "quantization_config", None):
        raise WorkbookError(
            f"{readable(base)} holds quantized weights, and a merge into them would be rounded: "
            "name the 16-bit model that it was made from with --base"
        )
    prompts = [row["prompt"] for row in heldout]
    # as the model was trained on them: without a system role its text opens the user's turn
    prompts = [fold_system(p) for p in prompts] if needs_folding(tokenizer) else prompts
    answers = [row["answer"] for row in heldout if "answer" in row]

    def ask(model, words, label: str) -> list[str]:
        how = Sampling(max_new_tokens=limit, batch_size=batch_size)
        bar = label if sys.stderr.isatty() else None
        return [c.text for c in complete(model, words, prompts, how, progress=bar, share=False)]

    texts = policy.completions if policy else ask(ours, tokenizer, "base plus adapter")
    if answers and not policy:
        policy = score(texts, answers, judge)
    proof: dict = {}

    def write(target: Path) -> None:
        # a copy, for the proof still needs ours
        merged: Any = copy.deepcopy(ours)
        merged = merged.merge_and_unload().bfloat16()
        merged.save_pretrained(target)
        tokenizer.save_pretrained(target)
        del merged
        merged, words = load_model(target, dtype=dtype, device=device)
        # whole logits are held for the comparison: a quarter of what generating holds
        size = max(1, batch_size // 4)
        proof.update(compare_logits(ours, merged, tokenizer, prompts, texts, size))
        _check(proof)
        if answers:
            said = ask(merged, words, "merged")
            proof.update(
                heldout_n=len(answers),
                merged_strict_greedy=accuracy(score(said, answers, judge).strict),
                policy_strict_greedy=accuracy(policy.strict),
                policy_ci95=list(wilson_interval(policy.strict)),
                merged_answers=said[:5],
            )
            _check(proof)
        write_card(target, {**report, "merge": proof}, settings, base=base)

    swap_folder(folder, write)
    return proof


def run_of(adapter: str | Path) -> tuple[dict, dict]:
    """(report, settings) of the run in whose folder the adapter lies; each empty where unknown.

    The settings hold the run's system prompt. A stage's folder lies in that of its run.
    """
    place = Path(adapter).resolve().parent
    run = _read(place / "run.json") or _read(place.parent / "run.json")
    return _read(place / "report.json"), run.get("settings", {})


def _heldout_of(adapter: str, settings: dict, judge):
    """(rows, policy or None, judge) from the run's after.json, else prompts alone."""
    from grpo_workbook.evaluation import score

    system = settings.get("system_prompt")
    after = _read(Path(adapter).parent / "after.json")
    judge = judge if after.get("kind") == "text" else None
    if "question" not in after or (after.get("kind") == "text" and judge is None):
        sums = [QUESTION.format(n, 17 - n) for n in range(2, 14)]
        return [{"prompt": chat_prompt(question, system)} for question in sums], None, None
    pairs = zip(after["question"], after["answer"], strict=True)
    rows = [{"prompt": chat_prompt(q, system), "answer": answer} for q, answer in pairs]
    greedy = after.get("greedy")
    return rows, score(greedy, after["answer"], judge) if greedy else None, judge


def _read(path: Path) -> dict:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _check_folder(folder: Path, adapter: str, base: str, size: int) -> None:
    """Raise WorkbookError where the merged model must not go, or the disk cannot hold it."""
    for what, place in (("adapter", adapter), ("base", base)):
        if Path(place).is_dir() and place_of(place).is_relative_to(place_of(folder)):
            raise WorkbookError(f"{folder} holds the {what}, which would be lost: name another")
    filled = folder.is_file() or (folder.is_dir() and any(folder.iterdir()))
    if filled and not (folder / "config.json").is_file():
        raise WorkbookError(f"{folder} holds no model, so it is not replaced: name another folder")
    check_disk(folder, size + 20 * 2**20, "the merged model")


def _where(size: int) -> tuple[str, str]:
    """Device and dtype of the proof: float32, but on a GPU that may not hold both models in it.

    `size`: bytes of the 16-bit base; 0 where it is not known.
    """
    import torch

    if not torch.cuda.is_available():
        return "cpu", "float32"
    half = "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float16"
    fits = size and 2 * 2 * size < 0.7 * torch.cuda.mem_get_info()[0]
    return "cuda", "float32" if fits else half


def compare_logits(
    ours,
    merged,
    tokenizer,
    prompts: Sequence[list[dict]],
    completions: Sequence[str],
    batch_size=32,
) -> dict[str, float]:
    """Largest logit difference, its root mean square relative to the logits' own spread, and the
    fraction of positions where both models would choose the same token.

    Both read the same chat prompts, each with its completion; every position of a completion (and
    the one before it) counts, padding does not. A logit that is NaN makes both differences NaN.
    """
    import torch

    def tokens(texts):
        return tokenizer(list(texts), add_special_tokens=False)["input_ids"]

    gaps, squares, spread, same, total = [], 0.0, 0.0, 0, 0
    pairs = list(zip(tokens(render(prompts, tokenizer)), tokens(completions), strict=True))
    for start in range(0, len(pairs), batch_size):
        batch = pairs[start : start + batch_size]
        width = max(len(row) + len(tail) for row, tail in batch)
        ids = torch.full((len(batch), width), tokenizer.pad_token_id)
        attention, counted = torch.zeros_like(ids), torch.zeros_like(ids, dtype=torch.bool)
        for i, (row, tail) in enumerate(batch):
            end = len(row) + len(tail)
            ids[i, :end] = torch.tensor(row + tail)
            attention[i, :end] = 1
            counted[i, len(row) - 1 : end] = True
        ids, attention, counted = (x.to(ours.device) for x in (ids, attention, counted))
        with torch.no_grad():
            a, b = (
                m(input_ids=ids, attention_mask=attention).logits[counted].float()
                for m in (ours, merged)
            )
        gaps.append((a - b).abs().max())
        squares += (a - b).square().mean(-1).sum().item()
        spread += a.var(-1).sum().item()
        same += (a.argmax(-1) == b.argmax(-1)).sum().item()
        total += len(a)
    return {
        # NaN if one is: Python's max() would lose it
        "max_abs_logit_difference": round(torch.stack(gaps).max().item(), 5),
        "relative_logit_difference": round((squares / spread) ** 0.5, 5),
        "same_greedy_tokens": round(same / total, 5),
    }


def is_proved(proof: Mapping) -> bool:
    """Whether base-plus-adapter and merged weights are the same policy but for rounding.

    The held-out accuracy, where it was measured, must not lie below the policy's 95 % interval.
    Above it is no fault: the policy answered on a 4-bit base, and 16 bits may answer better.
    """
    return (
        proof["same_greedy_tokens"] >= SAME_TOKENS
        and proof["relative_logit_difference"] <= RELATIVE
        and proof.get("merged_strict_greedy", 1.0) >= proof.get("policy_ci95", (0.0,))[0]
    )


def _check(proof: Mapping) -> None:
    if is_proved(proof):
        return
    held = (
        ", {merged_strict_greedy:.1%} of {heldout_n} held-out problems right, and the policy that "
        "was trained {policy_strict_greedy:.1%} (95 % interval {policy_ci95[0]:.1%} to "
        "{policy_ci95[1]:.1%})"
    )
    words = (
        "the merged model is another one: its logits differ by {relative_logit_difference:.1%} of "
        "their spread (at most {0:.0%}), the same token at {same_greedy_tokens:.2%} of the places "
        "(at least {1:.0%})" + held * ("heldout_n" in proof) + ". Nothing was written"
    )
    raise WorkbookError(words.format(RELATIVE, SAME_TOKENS, **proof))


# Two directories or more from the root; not </answer>, not a/b, not https://...
_PATH = re.compile(r"(?<![\w:/.<])(?:/|~/)(?:[^\s/,:;\"'|=]+/)+([^\s/,:;\"'|=]+)")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(?<!\.jsonl)(?<!\.json)(?<!\.csv)(?<!\.parquet)")


def hub_id(name: object) -> str | None:
    """The hub id that a model's or data set's name stands for; None for what is on this machine."""
    text = str(name).split(":")[0]
    return text if _HUB_ID.fullmatch(text) and not place_of(text).exists() else None


def write_card(
    folder: str | Path,
    report: Mapping,
    settings: Mapping,
    *,
    base: str | Path,
    kind: str = "merged",
    license: str | None = None,
) -> None:
    """Write the model card, README.md, into the folder of a merged model or an adapter.

    `report` is a run's report.json, or what is known of it; `settings` are the run's, its system
    prompt among them. `kind` is "merged" or "adapter"; `license` a name that the hub knows. A base
    or data set that is no hub id is named in the text alone, and no path of this machine at all.
    """
    from huggingface_hub import EvalResult, ModelCard, ModelCardData

    from grpo_workbook.statistics import wilson_interval

    def interval(rate: float) -> tuple[float, float]:
        return wilson_interval([i < round(rate * held["n"]) for i in range(held["n"])])

    held, data = report.get("heldout", {}), report.get("data", {})
    source = data.get("heldout_source") or data.get("source") or "word_problems"
    results = [
        EvalResult(
            task_type="text-generation",
            dataset_type=hub_id(source) or Path(source).stem,
            dataset_name=f"{Path(source).name}, {held['n']} held-out problems",
            metric_type="accuracy",
            metric_name=f"{name}, after training",
            metric_value=rate,
            metric_args={"interval_95": list(interval(rate))},
        )
        for name, rate in held.get("after", {}).items()
        if "n" in held and name.endswith(("_sampled", "_greedy"))
    ]
    name, merged = hub_id(base) or readable(base), kind == "merged"
    title = Path(name).name + ("-grpo" if results else "-merged") + "-adapter" * (not merged)
    named = [hub_id(data[key]) for key in ("source", "heldout_source") if data.get(key)]
    metadata = ModelCardData(
        base_model=hub_id(base),
        base_model_relation=hub_id(base) and ("finetune" if merged else "adapter"),
        library_name="transformers" if merged else "peft",
        license=license,
        pipeline_tag="text-generation",
        tags=["grpo", "trl"] if results else None,
        datasets=sorted({found for found in named if found}) or None,
        model_name=title if results else None,
        eval_results=results or None,
    )
    prompt = chat_prompt(QUESTION.format(7, 5), settings.get("system_prompt"))
    prompt = fold_system(prompt) if needs_folding(load_tokenizer(folder)) else prompt
    facts = {"title": title, "merged": merged, "base": name, "base_hash": fingerprint(base)}
    facts |= {"report": report, "measured": bool(results), "interval": interval}
    facts |= {"messages": json.dumps(prompt, indent=4, ensure_ascii=False)}
    facts |= {"settings": {k: v for k, v in settings.items() if k not in ("why", "output")}}
    template = Path(__file__).with_name("model_card.jinja")
    text = str(ModelCard.from_template(metadata, template_path=str(template), **facts))
    for root in (Path.home(), Path.cwd()):  # whose names may hold blanks
        text = text.replace(f"{root}/", "/-/")
    with whole_file(Path(folder) / "README.md") as path:
        path.write_text(_PATH.sub(r"\1", text), encoding="utf-8")
