"""The model card of a trained adapter or merged model, and the run card beside it: what it is, how it was made, how good.

README.md       for people and for the hub: its metadata is the hub's, read and written by huggingface_hub
run_card.json   the same for programs: every number of the run and every setting

Neither names a path of the machine that it was written on.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_workbook.data import SYSTEM_PROMPT, WORD_PROBLEMS
from grpo_workbook.folder import write_json
from grpo_workbook.intervals import wilson_interval
from grpo_workbook.loading import BASE_RECORD, fingerprint
from grpo_workbook.run import REPO, readable
from grpo_workbook.writing import whole_file

if TYPE_CHECKING:
    from huggingface_hub import ModelCard

CARD, RUN_CARD = "README.md", "run_card.json"
FORMAT = "grpo-workbook run card, version 1"
TAGS = ("grpo", "trl", "unsloth")
MEASURES = {
    "strict_sampled": "strict, sampled",
    "strict_greedy": "strict, greedy",
    "lenient_sampled": "lenient, sampled",
    "well_formed_sampled": "well-formed, sampled",
}
# Two directories or more from the root; not </answer>, not a/b, not https://...
_PATH = re.compile(r"(?<![\w:/.<])(?:/|~/)(?:[^\s/,:;\"'|=]+/)+([^\s/,:;\"'|=]+)")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def public_name(name: str | Path) -> str:
    """How a card names a file, folder or hub id: relative to this folder or the project, else by its last part."""
    shown = readable(Path(name).expanduser()) if str(name).startswith(("/", "~", ".")) else str(name)
    return Path(shown).name if shown.startswith(("/", "~", "..")) else shown


def without_paths(value):
    """The value with every absolute path in its texts cut to its last part; dicts and lists inside as well."""
    if isinstance(value, Mapping):
        return {key: without_paths(inside) for key, inside in value.items()}
    if isinstance(value, list | tuple):
        return [without_paths(inside) for inside in value]
    return _PATH.sub(r"\1", value) if isinstance(value, str) else value


def hub_id(name: str | Path) -> str | None:
    """The id on the hub that a model's or data set's name stands for; None for a file or folder of this machine."""
    text = str(name).split(":")[0]
    there = Path(text).exists() or (REPO / text).exists()
    return text if _HUB_ID.fullmatch(text) and not there and not text.endswith((".jsonl", ".json", ".csv")) else None


def model_card(
    report: Mapping,
    *,
    base: str | Path,
    data: str | Path | None = None,
    heldout_data: str | Path | None = None,
    settings: Mapping | None = None,
    kind: str = "merged",
    base_hash: str | None = None,
    license: str | None = None,
    system_prompt: str = SYSTEM_PROMPT,
) -> "ModelCard":
    """The card of what a run made.

    `report` is the run's report.json; of a merge outside of a run it holds what is known: "merge" and "versions".
    `kind` is "merged" or "adapter". `data` None are the course's own problems. A base or data set that is no hub id is
    named in the text, and not in the metadata, where the hub would take it for one of its own.
    """
    from huggingface_hub import ModelCard, ModelCardData

    title = f"{Path(public_name(base)).name}-grpo" + ("-adapter" if kind == "adapter" else "")
    trained = "heldout" in report
    held_name = heldout_data or data
    metadata = ModelCardData(
        base_model=hub_id(base),
        library_name="peft" if kind == "adapter" else "transformers",
        license=license,
        pipeline_tag="text-generation",
        tags=list(TAGS),
        datasets=sorted({found for name in (data, heldout_data) if name and (found := hub_id(name))}) or None,
        model_name=title if trained else None,
        eval_results=_results(report["heldout"], held_name) if trained else None,
        base_model_relation=None if hub_id(base) is None else "adapter" if kind == "adapter" else "finetune",
    )
    parts = [
        f"# {title}",
        _what(report, base, base_hash, kind),
        *(
            (
                _numbers(report, kind),
                _data(report, data, heldout_data),
                _rewards(report),
                _settings(settings),
                _examples(report),
            )
            if trained
            else (_proof(report),)
        ),
        _loading(base, kind, system_prompt),
        _limits(report, base),
        _versions(report),
    ]
    return ModelCard("---\n" + metadata.to_yaml() + "\n---\n\n" + "\n\n".join(p for p in parts if p) + "\n")


def _results(heldout: Mapping, data) -> list:
    from huggingface_hub import EvalResult

    name = hub_id(data) if data else None
    found = []
    for when in ("after", "before"):
        for key in ("strict_sampled", "strict_greedy"):
            interval = list(_interval(heldout[when][key], heldout["n"]))
            found.append(
                EvalResult(
                    task_type="text-generation",
                    dataset_type=name or ("word_problems" if data is None else Path(public_name(data)).stem),
                    dataset_name=f"{heldout['n']} held-out problems of {_data_name(data)}",
                    metric_type="accuracy",
                    metric_name=f"{MEASURES[key]}, {when} training",
                    metric_value=heldout[when][key],
                    metric_args={"interval_95": interval},
                )
            )
    return found


def _interval(share: float, n: int) -> tuple[float, float]:
    right = round(share * n)
    return wilson_interval([True] * right + [False] * (n - right))


def _data_name(data) -> str:
    return "the GRPO Workbook's word problems" if data is None or data in WORD_PROBLEMS.values() else public_name(data)


def _what(report: Mapping, base, base_hash: str | None, kind: str) -> str:
    name = hub_id(base)
    where = f"[{name}](https://huggingface.co/{name})" if name else f"`{public_name(base)}`, a local folder"
    where += f" (hash `{base_hash}`)" if base_hash else ""
    what = "A LoRA adapter for" if kind == "adapter" else "Merged 16-bit weights: a LoRA adapter and its base,"
    how = ""
    if "steps" in report:
        bits = "in 4-bit (NF4)" if report.get("load_in_4bit") else "in 16-bit"
        how = (
            f" Trained with Group Relative Policy Optimization (TRL's `GRPOTrainer`"
            f"{' and Unsloth' if report.get('backend') == 'unsloth' else ''}) for {report['steps']} steps, the base "
            f"held {bits}, {report['lora_parameters']:,} parameters trained, seed {report['seed']}."
        )
    return f"{what} {where}.{how} Written by the GRPO Workbook; every number is in `{RUN_CARD}`."


def _numbers(report: Mapping, kind: str) -> str:
    held = report["heldout"]
    n = held["n"]

    def cell(when: str, key: str) -> str:
        share = held[when][key]
        return "{:.1%} ({:.1%} to {:.1%})".format(share, *_interval(share, n))

    rows = [f"| {name} | {cell('before', key)} | {cell('after', key)} |" for key, name in MEASURES.items()]
    lines = [
        "## Before and after",
        "",
        f"{n} held-out problems, with 95 % Wilson intervals. *Strict* is right and well-formed, *lenient* is right to "
        "a kind reader, *sampled* is drawn at temperature 1.",
        "",
        "| | before | after |",
        "| --- | --- | --- |",
        *rows,
        "",
        f"Strict, sampled: p = {held['p_value']:.2g} by McNemar's exact paired test on the same problems.",
        *(f"- {line}" for line in report.get("verdict", ())),
    ]
    return "\n".join(lines) + ("\n\n" + _proof(report) if report.get("merge") else "")


def _proof(report: Mapping) -> str:
    merge = report.get("merge")
    if not merge:
        return ""
    lines = [
        "## The merge, proved",
        "",
        "Base-plus-adapter and the merged weights read the same prompts and answers:",
        "",
        f"- largest logit difference {merge['max_abs_logit_difference']}",
    ]
    if "relative_logit_difference" in merge:
        lines.append(f"- {merge['relative_logit_difference']:.2%} of the logits' own spread")
    lines.append(f"- the same greedy token at {merge['same_greedy_tokens']:.2%} of the places")
    if "merged_strict_greedy" in merge:
        policy = f", the policy before merging {merge['policy_strict_greedy']:.1%}" if "policy_ci95" in merge else ""
        lines.append(f"- strict, greedy: merged {merge['merged_strict_greedy']:.1%}{policy}")
    return "\n".join(lines)


def _data(report: Mapping, data, heldout_data) -> str:
    found = report.get("data", {})
    held = f"; held out: {_data_name(heldout_data)}" if heldout_data else ""
    dropped = {
        "training prompts that were too long": found.get("dropped_too_long_train"),
        "held-out prompts that were too long": found.get("dropped_too_long_heldout"),
        "training problems that are in the held-out set": found.get("dropped_leaked"),
    }
    said = ", ".join(f"{count} {name}" for name, count in dropped.items() if count) or "none"
    return (
        f"## Data\n\n{_data_name(data)}{held}. {found.get('train')} problems to train on, {found.get('heldout')} held "
        f"out. Dropped: {said} (limit {found.get('max_prompt_tokens')} tokens).\n\n"
        f"SHA-256 of all rows: `{report.get('data_sha256')}`"
    )


def _rewards(report: Mapping) -> str:
    steps = report.get("rewards", {})
    lines = ["## Rewards", "", "| reward | weight | mean, first tenth | mean, last tenth |", "| --- | --- | --- | --- |"]
    for name, weight in report.get("reward_weights", {}).items():
        at = steps.get(name, {})
        lines.append(f"| `{name}` | {weight:g} | {at.get('first_tenth', '')} | {at.get('last_tenth', '')} |")
    return "\n".join(lines)


def _settings(settings: Mapping | None) -> str:
    if not settings:
        return ""
    rows = [f"| {name} | {_flat(value)} |" for name, value in without_paths(settings).items()]
    return "\n".join(["## Hyper-parameters", "", "| setting | value |", "| --- | --- |", *rows])


def _examples(report: Mapping) -> str:
    lines = ["## Held-out answers", ""]
    for example in report.get("examples", [])[:2]:
        lines += [f"{_flat(example['question'])} (right: {_flat(example['answer'])})", ""]
        lines += ["    " + line for line in str(example["after"]).splitlines()] + [""]
    return "\n".join(lines).rstrip() if len(lines) > 2 else ""


def _loading(base, kind: str, system_prompt: str) -> str:
    if kind == "adapter":
        name = hub_id(base) or public_name(base)
        load = (
            "from peft import PeftModel\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
            'folder = "."  # this folder, or its id on the hub\n'
            f"base = {json.dumps(name)}\n"
            "tokenizer = AutoTokenizer.from_pretrained(folder)\n"
            "model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), folder)\n"
        )
    else:
        load = (
            "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
            'folder = "."  # this folder, or its id on the hub\n'
            "tokenizer = AutoTokenizer.from_pretrained(folder)\n"
            "model = AutoModelForCausalLM.from_pretrained(folder)\n"
        )
    system = f'    {{"role": "system", "content": {json.dumps(system_prompt)}}},\n' if system_prompt else ""
    return (
        "## How to load it\n\nWith plain Transformers"
        + (" and PEFT" if kind == "adapter" else "")
        + "; the prompt is the one that it was trained with.\n\n```python\n"
        + load
        + "messages = [\n"
        + system
        + '    {"role": "user", "content": "Ada has 7 pens and buys 5 more. How many pens does Ada have now?"},\n]\n'
        "batch = tokenizer.apply_chat_template(\n"
        '    messages, add_generation_prompt=True, return_tensors="pt", return_dict=True\n)\n'
        "out = model.generate(**batch, max_new_tokens=64, do_sample=False)\n"
        'print(tokenizer.decode(out[0, batch["input_ids"].shape[1]:], skip_special_tokens=True))\n```'
    )


def _limits(report: Mapping, base) -> str:
    said = []
    if "data/tiny-" in str(base).replace("\\", "/"):
        said.append("The base is a toy of about a million parameters, made for a course: it shows how GRPO works.")
    if "heldout" in report:
        said.append("Measured on problems of the one kind named above; what it can do elsewhere, nobody has looked at.")
        said.append("One seed: another would end at somewhat other numbers.")
        if report["heldout"]["p_value"] >= 0.01:
            said.append("The difference in strict accuracy may be chance.")
    else:
        said.append("What it was trained on and how good it is was not known where it was merged.")
    if report.get("load_in_4bit"):
        said.append("Before and after were measured on the 4-bit base with adapter; merged weights are 16-bit.")
    return "\n".join(["## Limits", "", *(f"- {line}" for line in said)])


def _versions(report: Mapping) -> str:
    found = ", ".join(f"{name} {number}" for name, number in report.get("versions", {}).items())
    return f"## Versions\n\n{found}" if found else ""


def _flat(value) -> str:
    return " ".join(str(value).split()).replace("|", "/")


def run_card(
    report: Mapping, settings: Mapping | None = None, *, base: str | Path, folder: Path, kind: str = "merged"
) -> dict:
    """What run_card.json holds: the base and these weights by their hashes, every setting, and the run's report."""
    record = {}
    for place in (folder, folder.with_name("adapter")):
        if (place / BASE_RECORD).is_file():
            record = json.loads((place / BASE_RECORD).read_text(encoding="utf-8"))
            break
    kept = {k: v if k == "examples" else without_paths(v) for k, v in report.items()}
    return {
        "format": FORMAT,
        "kind": kind,
        "base": {"name": public_name(base), "hash": fingerprint(str(base)) or record.get("hash")},
        "weights_hash": fingerprint(str(folder)),
        "settings": without_paths(settings or {}),
        "report": kept | ({"model": public_name(report["model"])} if "model" in report else {}),
    }


def write_card(
    folder: Path, report: Mapping, settings: Mapping | None = None, *, base: str | Path, data=None, **more
) -> None:
    """Write README.md and run_card.json into the folder. `more` is model_card's: heldout_data, kind, license, ..."""
    machine = run_card(report, settings, base=base, folder=folder, kind=more.get("kind", "merged"))
    card = model_card(report, base=base, data=data, settings=settings, base_hash=machine["base"]["hash"], **more)
    with whole_file(folder / CARD) as path:
        path.write_text(str(card), encoding="utf-8")
    write_json(folder / RUN_CARD, machine)
