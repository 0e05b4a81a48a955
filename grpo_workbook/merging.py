"""`python -m grpo_workbook merge`: an adapter into its base's 16-bit weights, proved, or refused with the number.

The proof reads the same prompts and answers with base-plus-adapter and with the merged weights, both in float32: the
largest difference between their logits, and the share of places where both would write the same token.
"""

import argparse
import json
import shutil
from pathlib import Path

from grpo_workbook.export import compare_logits, load_merged, with_swap, write_merged
from grpo_workbook.loading import check_base, find_adapter, find_model, load_for_measuring, without_4bit
from grpo_workbook.run import Run, WorkbookError, readable

SAME_TOKENS = 0.98  # rounding to bfloat16 turns a few near-ties; a wrong merge turns more
RELATIVE = 0.02  # of the logits' spread: rounding was seen at 0.002 to 0.004, merges into tied embeddings from 0.04 on
PROMPTS = 400
EXAMPLES = """examples:
  python -m grpo_workbook merge outputs/run/adapter --output outputs/merged
  python -m grpo_workbook merge adapter --base my-base --output merged

exit status: 0 merged and proved, 2 bad input or a merge that is not the same
"""


def find_base(adapter: str | Path, base: str | None = None) -> str:
    """The base model of an adapter: `base`, or the one that it names. Nothing is loaded.

    Raises WorkbookError where it is gone, holds 4-bit weights, or is not the base that the adapter was trained on (its
    hash was recorded in base.json at training).
    """
    config = json.loads((Path(adapter) / "adapter_config.json").read_text(encoding="utf-8"))
    named = base or config.get("base_model_name_or_path") or ""
    try:
        model = find_model(named)
    except WorkbookError as error:
        raise WorkbookError(
            f"the base of {readable(adapter)} is not to be had ({error}): name it with --base"
        ) from None
    if not Path(model).is_dir():
        if model != without_4bit(model):
            raise WorkbookError(
                f"{model} is a 4-bit model by its name, and an adapter merged into it would be rounded: name the "
                f"16-bit one with --base, such as {without_4bit(model)}"
            )
        return model
    known = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
    if known.get("quantization_config"):
        raise WorkbookError(
            f"{readable(model)} holds quantized weights, and an adapter merged into them would be rounded: name the "
            "16-bit model that it was made from with --base"
        )
    try:
        check_base(adapter, model)
    except WorkbookError as error:
        raise WorkbookError(f"{error}: name the right one with --base") from None
    return model


def is_proved(proof: dict[str, float]) -> bool:
    """Whether base-plus-adapter and merged weights are the same policy but for rounding."""
    return proof["same_greedy_tokens"] >= SAME_TOKENS and proof["relative_logit_difference"] <= RELATIVE


def check_merge_room(base: str, output: Path) -> None:
    """Raise WorkbookError when the disk cannot hold the merged weights."""
    if not Path(base).is_dir():
        return  # how large a hub model is, its download will say
    needed = sum(f.stat().st_size for f in Path(base).glob("*.safetensors")) + 20 * 2**20
    existing = next(p for p in (output.absolute(), *output.absolute().parents) if p.is_dir())
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise WorkbookError(
            f"the disk of {readable(output)} has {free / 2**20:.0f} MiB free and the merged model needs about "
            f"{needed / 2**20:.0f} MiB: free some, or choose another disk with --output"
        )


def merge_and_prove(
    adapter: str,
    base: str,
    output: Path,
    prompts: list[list[dict]],
    *,
    device: str = "cpu",
    max_new_tokens: int = 64,
    batch_size: int = 32,
    allow_mismatch: bool = False,
) -> dict[str, float]:
    """Write the merged model in 16-bit to `output`, and return the proof. Raises WorkbookError when it fails.

    The folder gets its name only when everything is written and proved: an interrupted or failed merge leaves what was
    there before.
    """
    from grpo_workbook.generation import generate

    ours, tokenizer = load_for_measuring(base, adapter, device=device)
    answers = generate(ours, tokenizer, prompts, max_new_tokens=max_new_tokens, batch_size=batch_size, progress="proof")
    found: dict[str, float] = {}

    def write(target: Path) -> None:
        write_merged(ours, tokenizer, target)
        again, _ = load_merged(target, "float32", device)
        found.update(compare_logits(ours, again, tokenizer, prompts, answers, max(1, batch_size // 4)))
        if not is_proved(found) and not allow_mismatch:
            raise WorkbookError(
                f"the merged model is another one: its logits differ by {found['relative_logit_difference']:.1%} of "
                f"their spread (at most {RELATIVE:.0%}), and it would write the same token at "
                f"{found['same_greedy_tokens']:.2%} of the places (at least {SAME_TOKENS:.0%}). Nothing was written; "
                "--allow-mismatch keeps it anyway"
            )

    with_swap(output, write)
    return found


# ------------------------------------------------------------------ the command


def add_parser(commands) -> None:
    """Add merge to the command line."""
    parser = commands.add_parser(
        "merge",
        help="an adapter into its base's 16-bit weights, with a proof",
        usage="%(prog)s ADAPTER --output DIR [options]",
        description="Merge an adapter into 16-bit weights that plain Transformers loads,\n"
        "and prove that they are the same policy.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("adapter", metavar="ADAPTER", help="the folder of a saved LoRA adapter")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="where the merged model goes")
    parser.add_argument("--base", metavar="MODEL", help="its base (default: the one that it names)")
    parser.add_argument("--data", metavar="SOURCE", help="problems for the proof (default: the course's held-out)")
    parser.add_argument("--items", type=int, default=PROMPTS, metavar="N", help=f"how many (default {PROMPTS})")
    parser.add_argument("--allow-mismatch", action="store_true", help="keep a merge whose proof fails")
    parser.add_argument("--overwrite", action="store_true", help="replace what is there")
    parser.add_argument("--profile", metavar="P", help="default: what fits the device")


def main(args: argparse.Namespace) -> int:
    """Merge and print the proof. Raises WorkbookError for bad input, before anything is loaded."""
    from grpo_workbook.data import WORD_PROBLEMS, chat_prompt
    from grpo_workbook.notebook import quiet
    from grpo_workbook.problems import load

    run = Run.from_env(profile=args.profile, model="qwen")
    if args.items < 1:
        raise WorkbookError(f"--items is {args.items}: a proof needs at least 1 prompt")
    if args.output.exists() and not args.output.is_dir():
        raise WorkbookError(f"the output {args.output} is a file: name a folder")
    if args.output.is_dir() and any(args.output.iterdir()) and not args.overwrite:
        raise WorkbookError(f"{args.output} is not empty: choose another --output, or replace it with --overwrite")
    # the adapter's files are checked first: its config names the base
    adapter, _ = find_adapter(args.adapter, None)
    base = find_base(adapter, args.base)
    check_merge_room(base, args.output)
    rows = load(args.data or WORD_PROBLEMS["heldout"]).dataset
    prompts = [chat_prompt(q) for q in rows["question"][: args.items]]
    quiet()
    proof = merge_and_prove(
        adapter,
        base,
        args.output,
        prompts,
        device=run.device,
        max_new_tokens=run.settings.max_completion_tokens,
        batch_size=run.settings.eval_batch,
        allow_mismatch=args.allow_mismatch,
    )
    print(f"merged into {readable(args.output)}, 16-bit safetensors for plain Transformers")
    print(f"  largest logit difference  {proof['max_abs_logit_difference']}")
    print(f"  of the logits' spread     {proof['relative_logit_difference']:.2%}")
    print(f"  the same greedy token     {proof['same_greedy_tokens']:.2%} of the places, on {len(prompts)} prompts")
    if not is_proved(proof):
        print("  kept although it is another model (--allow-mismatch)")
    return 0
