"""Save the adapter, merge it into 16-bit weights, and prove that the merged model is the same policy."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_workbook.config import RunConfig
from grpo_workbook.data import load_tokenizer, render
from grpo_workbook.files import readable, swap_folder, write_json
from grpo_workbook.loading import BASE_RECORD, check_base, find_adapter, fingerprint, read_config
from grpo_workbook.training import torch_dtype

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def save_adapter(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    folder: Path,
    weights: dict | None = None,
) -> None:
    """Write the adapter (safetensors), the tokenizer, and a hash of the base that it was trained on.

    All at once, so that a kill leaves no half-written folder. `weights`: the model's state, where it was gathered from
    several processes; else the model's own.
    """
    base = next(iter(model.peft_config.values())).base_model_name_or_path

    def write(target: Path) -> None:
        gathered = {} if weights is None else {"state_dict": weights}
        model.save_pretrained(target, safe_serialization=True, **gathered)
        (target / "README.md").unlink(
            missing_ok=True
        )  # PEFT's form to fill in, with this machine's path to the base
        tokenizer.save_pretrained(target)
        write_json(target / BASE_RECORD, {"base": readable(base), "hash": fingerprint(base)})

    swap_folder(folder, write)


def merge(
    run: RunConfig, adapter: Path, folder: Path, backend: str = "unsloth"
) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase"]:
    """Reload base and adapter in 16-bit, write the merged model, return base-plus-adapter for the proof.

    Adapters cannot be merged into 4-bit weights; the base's 16-bit weights are loaded again for it. `backend` is
    "unsloth" or "plain" (Transformers and PEFT). Raises WorkbookError where there is no adapter, or the base is no
    longer the one that it was trained on.
    """
    find_adapter(str(adapter), None)
    named = read_config(adapter / "adapter_config.json").get("base_model_name_or_path")
    check_base(
        adapter, run.model if backend == "plain" else named
    )  # Unsloth loads the base that the adapter names
    if backend == "plain":
        return _merge_plain(run, adapter, folder)
    from unsloth import FastLanguageModel  # isort: skip

    s = run
    model, tokenizer = FastLanguageModel.from_pretrained(
        str(adapter),
        max_seq_length=s.max_prompt_length + s.max_completion_length,
        dtype=torch_dtype(s.dtype),
        load_in_4bit=False,
        use_gradient_checkpointing=False,
    )
    tokenizer.padding_side = "left"
    swap_folder(
        folder,
        lambda target: model.save_pretrained_merged(
            str(target), tokenizer, save_method="merged_16bit"
        ),
    )
    return model, tokenizer


def _merge_plain(run: RunConfig, adapter: Path, folder: Path):
    """The same with PEFT alone."""
    from peft import PeftModel

    base, tokenizer = load_merged(run.model, run.dtype, run.device)
    model = PeftModel.from_pretrained(base, adapter).eval()
    swap_folder(folder, lambda target: write_merged(model, tokenizer, target))
    return model, tokenizer


def write_merged(model, tokenizer, folder: Path) -> None:
    """Base plus adapter as one model, in 16-bit, with its tokenizer. `model` stays as it is."""
    import copy

    import torch

    copy.deepcopy(model).merge_and_unload().to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def load_merged(folder: Path | str, dtype: str = "float32", device: str = "cpu"):
    """(model in evaluation mode, tokenizer) of the merged folder, as anyone without Unsloth would load it."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch_dtype(dtype), device_map=device
    )
    return model.eval(), load_tokenizer(folder)


def compare_logits(
    ours,
    merged,
    tokenizer,
    prompts: Sequence[list[dict]],
    completions: Sequence[str],
    batch_size: int = 32,
) -> dict[str, float]:
    """Largest logit difference, its root mean square relative to the logits' own spread, and the share of positions
    where both models would choose the same token.

    Both read the same chat prompts, at least one, each with its completion; every position of a completion (and the one
    before it) counts. Padding and `batch_size` do not. A logit that is NaN makes both differences NaN.
    """
    import torch

    texts = render(prompts, tokenizer)
    gaps, squares, spread, same, total = [], 0.0, 0.0, 0, 0
    for start in range(0, len(texts), batch_size):
        rows = [
            tokenizer(t, add_special_tokens=False)["input_ids"]
            for t in texts[start : start + batch_size]
        ]
        tails = [
            tokenizer(c, add_special_tokens=False)["input_ids"]
            for c in completions[start : start + batch_size]
        ]
        width = max(len(r) + len(t) for r, t in zip(rows, tails, strict=True))
        ids = torch.full((len(rows), width), tokenizer.pad_token_id)
        attention, counted = torch.zeros_like(ids), torch.zeros_like(ids, dtype=torch.bool)
        for i, (row, tail) in enumerate(zip(rows, tails, strict=True)):
            end = len(row) + len(tail)
            ids[i, :end] = torch.tensor(row + tail)
            attention[i, :end] = 1
            counted[i, len(row) - 1 : end] = True
        with torch.no_grad():
            ids, attention, counted = (x.to(ours.device) for x in (ids, attention, counted))
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
        "max_abs_logit_difference": round(
            torch.stack(gaps).max().item(), 5
        ),  # NaN if one is: max() would lose it
        "relative_logit_difference": round((squares / spread) ** 0.5, 5),
        "same_greedy_tokens": round(same / total, 5),
    }
