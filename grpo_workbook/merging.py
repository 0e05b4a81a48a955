"""`python -m grpo_workbook merge`: an adapter into its base's 16-bit weights, proved, or refused with the number.

The proof reads the same prompts and answers with base-plus-adapter and with the merged weights, both in float32: the
largest difference between their logits, and the share of places where both would write the same token. Then the merged
model answers held-out problems: its accuracy must not lie below the 95 % interval of the policy's, as it was trained.
Above it is no fault of a merge whose logits agree: the policy answered on a 4-bit base, and 16 bits may answer better.
It is said, for it is not the number that was measured while training.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

from grpo_workbook.cards import write_card
from grpo_workbook.cli.run_report import versions
from grpo_workbook.config import RunConfig
from grpo_workbook.data import chat_prompt, fold_system, needs_folding
from grpo_workbook.errors import WorkbookError
from grpo_workbook.evaluate import score
from grpo_workbook.export import compare_logits, load_merged, write_merged
from grpo_workbook.files import check_disk, readable, swap_folder
from grpo_workbook.generation import generate
from grpo_workbook.intervals import accuracy, wilson_interval
from grpo_workbook.loading import (
    check_base,
    find_adapter,
    find_model,
    load_for_measuring,
    read_config,
    without_4bit,
)

SAME_TOKENS = 0.98  # rounding to bfloat16 turns a few near-ties; a wrong merge turns more
RELATIVE = 0.02  # of the logits' spread: rounding was seen at 0.002 to 0.004, merges into tied embeddings from 0.04 on
PROMPTS = 400
KEEP = "Nothing was written; --allow-mismatch keeps it anyway"
EXAMPLES = """examples:
  python -m grpo_workbook merge outputs/run/adapter --output outputs/merged
  python -m grpo_workbook merge adapter --base my-base --output merged

exit status: 0 merged and proved, 2 bad input or a merge that is not the same
"""


@dataclass(frozen=True)
class HeldOut:
    """Problems that the merged model must answer as the policy did. `right` is None where that was not measured."""

    questions: list[str]
    answers: list[str]
    kind: str = "number"  # or "text": see evaluate.score
    right: list[bool] | None = None  # whether the policy's greedy answer to each was strictly right

    def first(self, n: int) -> "HeldOut":
        """The first n of them, or all when there are fewer."""
        right = None if self.right is None else self.right[:n]
        return HeldOut(self.questions[:n], self.answers[:n], self.kind, right)


def find_base(adapter: str | Path, base: str | None = None) -> str:
    """The base model of an adapter: `base`, or the one that it names. Nothing is loaded.

    Raises WorkbookError where it is gone, holds 4-bit weights, or is not the base that the adapter was trained on (its
    hash was recorded in base.json at training).
    """
    config = read_config(Path(adapter) / "adapter_config.json")
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
    if read_config(Path(model) / "config.json").get("quantization_config"):
        raise WorkbookError(
            f"{readable(model)} holds quantized weights, and an adapter merged into them would be rounded: name the "
            "16-bit model that it was made from with --base"
        )
    try:
        check_base(adapter, model)
    except WorkbookError as error:
        raise WorkbookError(f"{error}: name the right one with --base") from None
    return model


def run_of(adapter: str | Path) -> tuple[dict, dict, HeldOut | None]:
    """(report, settings, held-out problems) of the run whose folder the adapter lies in; each empty where unknown."""
    folder = Path(adapter).parent
    found = []
    for name in ("report.json", "run.json", "after.json"):
        try:
            value = json.loads((folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            value = {}
        found.append(value if isinstance(value, dict) else {})
    report, run, after = found
    if not {"question", "answer", "kind", "greedy"} <= after.keys():
        return report, run.get("settings", {}), None
    right = score(after["greedy"], after["answer"], after["kind"]).strict
    return (
        report,
        run.get("settings", {}),
        HeldOut(after["question"], after["answer"], after["kind"], right),
    )


def is_proved(proof: dict[str, float]) -> bool:
    """Whether base-plus-adapter and merged weights are the same policy but for rounding."""
    same = (
        proof["same_greedy_tokens"] >= SAME_TOKENS
        and proof["relative_logit_difference"] <= RELATIVE
    )
    if "policy_ci95" not in proof:
        return same
    return same and place_in_interval(proof) != "below"


def place_in_interval(proof: dict) -> str:
    """Where the merged model's held-out accuracy lies to the policy's 95 % interval: "below", "inside" or "above"."""
    low, high = proof["policy_ci95"]
    accuracy = proof["merged_strict_greedy"]
    return "below" if accuracy < low else "above" if accuracy > high else "inside"


def check_merge_room(base: str, output: Path) -> None:
    """Raise WorkbookError when the disk cannot hold the merged weights."""
    if not Path(base).is_dir():
        return  # how large a hub model is, its download will say
    needed = sum(f.stat().st_size for f in Path(base).glob("*.safetensors")) + 20 * 2**20
    check_disk(output, needed, "the merged model")


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
    heldout: HeldOut | None = None,
    load_in_4bit: bool = True,
    data: str | None = None,
) -> dict:
    """Write the merged model in 16-bit to `output`, with its card, and return the proof. WorkbookError when it fails.

    The folder gets its name only when everything is written and proved: an interrupted or failed merge leaves what was
    there before. `heldout` are the problems of the prompts; where the policy has not answered them yet, it does so
    here, on a 4-bit base unless told otherwise. `data` is what the card calls the run's training data.
    """
    how = {"max_new_tokens": max_new_tokens, "batch_size": batch_size}
    right = None
    if heldout is not None:
        right = heldout.right
        if right is None:
            policy, tokenizer = load_for_measuring(
                base, adapter, device=device, load_in_4bit=load_in_4bit
            )
            texts = generate(
                policy, tokenizer, _folded(prompts, tokenizer), progress="the policy", **how
            )
            right = score(texts, heldout.answers, heldout.kind).strict
            del policy
    ours, tokenizer = load_for_measuring(base, adapter, device=device)
    prompts = _folded(prompts, tokenizer)
    texts = generate(ours, tokenizer, prompts, progress="proof", **how)
    found: dict = {}

    def write(target: Path) -> None:
        write_merged(ours, tokenizer, target)
        again, words = load_merged(target, "float32", device)
        found.update(
            compare_logits(ours, again, tokenizer, prompts, texts, max(1, batch_size // 4))
        )
        if not is_proved(found) and not allow_mismatch:
            raise WorkbookError(
                f"the merged model is another one: its logits differ by {found['relative_logit_difference']:.1%} of "
                f"their spread (at most {RELATIVE:.0%}), and it would write the same token at "
                f"{found['same_greedy_tokens']:.2%} of the places (at least {SAME_TOKENS:.0%}). {KEEP}"
            )
        if heldout is not None and right is not None:
            written = generate(again, words, prompts, progress="held-out", **how)
            found.update(
                heldout_n=len(right),
                merged_strict_greedy=accuracy(score(written, heldout.answers, heldout.kind).strict),
                policy_strict_greedy=accuracy(right),
                policy_ci95=list(wilson_interval(right)),
            )
            if not is_proved(found) and not allow_mismatch:
                raise WorkbookError(
                    f"the merged model is another one: it answers {found['merged_strict_greedy']:.1%} of "
                    f"{len(right)} held-out problems right, and the policy that was trained {accuracy(right):.1%} "
                    "(95 % interval {:.1%} to {:.1%}). {}".format(*found["policy_ci95"], KEEP)
                )
        report, settings, _ = run_of(adapter)
        report = report if "heldout" in report else {"versions": versions()}
        write_card(target, {**report, "merge": found}, settings, base=base, data=data)

    swap_folder(output, write)
    return found


def _folded(prompts: list[list[dict]], tokenizer) -> list[list[dict]]:
    """As the model was trained on them: where it has no system role, its text opens the user's turn."""
    return [fold_system(p) for p in prompts] if needs_folding(tokenizer) else prompts


# ------------------------------------------------------------------ the command


def add_parser(commands) -> None:
    """Add merge to the command line."""
    parser = commands.add_parser(
        "merge",
        help="an adapter into its base's 16-bit weights, with a proof",
        usage="%(prog)s ADAPTER --output DIR [options]",
        description="Merge an adapter into 16-bit weights that plain Transformers loads,\n"
        "and prove that they are the same policy: by their logits, and by their\n"
        "answers to held-out problems.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("adapter", metavar="ADAPTER", help="the folder of a saved LoRA adapter")
    parser.add_argument(
        "--output", type=Path, required=True, metavar="DIR", help="where the merged model goes"
    )
    parser.add_argument("--base", metavar="MODEL", help="its base (default: the one that it names)")
    parser.add_argument(
        "--data", metavar="SOURCE", help="held-out problems (default: the run's, else the course's)"
    )
    parser.add_argument(
        "--items", type=int, default=PROMPTS, metavar="N", help=f"how many (default {PROMPTS})"
    )
    parser.add_argument(
        "--load-in-16bit",
        action="store_true",
        help="the policy was trained on a 16-bit base (default: as its run)",
    )
    parser.add_argument(
        "--allow-mismatch", action="store_true", help="keep a merge whose proof fails"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the model that is there")
    parser.add_argument("--profile", metavar="P", help="default: what fits the device")


def main(args: argparse.Namespace) -> int:
    """Merge and print the proof. Raises WorkbookError for bad input, before anything is loaded."""
    from grpo_workbook.notebook import quiet

    run = RunConfig.from_env(profile=args.profile, model="qwen")
    if args.items < 1:
        raise WorkbookError(f"--items is {args.items}: a proof needs at least 1 prompt")
    # the adapter's files are checked first: its config names the base
    adapter, _ = find_adapter(args.adapter, None)
    base = find_base(adapter, args.base)
    _check_output(args.output, adapter, base, args.overwrite)
    check_merge_room(base, args.output)
    report, settings, own = run_of(adapter)
    heldout = _problems(args.data, own).first(args.items)
    quiet()
    proof = merge_and_prove(
        adapter,
        base,
        args.output,
        [chat_prompt(q) for q in heldout.questions],
        device=run.device,
        max_new_tokens=settings.get("max_completion_length", run.max_completion_length),
        batch_size=run.eval_batch,
        allow_mismatch=args.allow_mismatch,
        heldout=heldout,
        load_in_4bit=not args.load_in_16bit and settings.get("load_in_4bit", True),
        data=report.get("data", {}).get("source"),
    )
    n = proof["heldout_n"]
    print(f"merged into {readable(args.output)}, 16-bit safetensors for plain Transformers")
    print(f"  largest logit difference  {proof['max_abs_logit_difference']}")
    print(f"  of the logits' spread     {proof['relative_logit_difference']:.2%}")
    print(
        f"  the same greedy token     {proof['same_greedy_tokens']:.2%} of the places, on {n} prompts"
    )
    print(f"  held-out, strictly right  {proof['merged_strict_greedy']:.1%}, of {n} problems")
    interval = "{:.1%} to {:.1%}".format(*proof["policy_ci95"])
    print(
        f"  the policy before         {proof['policy_strict_greedy']:.1%} (95 % interval {interval})"
    )
    if place_in_interval(proof) == "above":
        print("  The merged model lies above that interval: better in 16 bits than as trained.")
    if not is_proved(proof):
        print("  kept although it is another model (--allow-mismatch)")
    return 0


def _problems(source: str | None, own: HeldOut | None) -> HeldOut:
    """What is given, else the run's own held-out problems, else the course's."""
    from grpo_workbook.data import WORD_PROBLEMS
    from grpo_workbook.problems import load

    if source is None and own is not None:
        return own
    kind = own.kind if own is not None else "number"
    rows = load(source or WORD_PROBLEMS["heldout"], answers=kind).dataset
    return HeldOut(list(rows["question"]), list(rows["answer"]), kind)


def _check_output(output: Path, adapter: str, base: str, overwrite: bool) -> None:
    """Raise WorkbookError where the merged model must not go."""
    if output.exists() and not output.is_dir():
        raise WorkbookError(f"the output {output} is a file: name a folder")
    for what, place in (("adapter", adapter), ("base", base)):
        if Path(place).is_dir() and Path(place).resolve().is_relative_to(output.resolve()):
            raise WorkbookError(
                f"the output {output} holds the {what}, which would be lost: choose another --output"
            )
    if not output.is_dir() or not any(output.iterdir()):
        return
    if not overwrite:
        raise WorkbookError(
            f"{output} is not empty: choose another --output, or replace it with --overwrite"
        )
    if not (output / "config.json").is_file():
        raise WorkbookError(
            f"{output} is not empty and holds no model, so it is not replaced: choose another --output"
        )
