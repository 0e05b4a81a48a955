"""What a model card says, section by section, in Markdown; and how it names files, folders and hub ids.

`report` is a run's report.json (shares from 0 to 1), or of a merge outside of a run what is known of it. A section of
which the report says nothing is the empty text.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from grpo_workbook.data import WORD_PROBLEMS
from grpo_workbook.files import REPO, readable
from grpo_workbook.intervals import wilson_interval

RUN_CARD = "run_card.json"
COURSE = "the word problems of the GRPO Workbook"
MEASURES = {
    "strict_sampled": "strict, sampled",
    "strict_greedy": "strict, greedy",
    "lenient_sampled": "lenient, sampled",
    "well_formed_sampled": "well-formed, sampled",
}
# Two directories or more from the root; not </answer>, not a/b, not https://...
_PATH = re.compile(r"(?<![\w:/.<])(?:/|~/)(?:[^\s/,:;\"'|=]+/)+([^\s/,:;\"'|=]+)")
_DATA_FILES = (
    ".jsonl",
    ".json",
    ".csv",
    ".tsv",
    ".parquet",
    ".gz",
)  # which may have been moved since
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def public_name(name: str | Path) -> str:
    """How a card names a file, folder or hub id: relative to this folder or the project, else by its last part."""
    shown = (
        readable(Path(name).expanduser()) if str(name).startswith(("/", "~", ".")) else str(name)
    )
    return Path(shown).name if shown.startswith(("/", "~", "..")) else shown


def without_paths(value):
    """The value with every absolute path in its texts cut to its last part; dicts and lists inside as well."""
    if isinstance(value, Mapping):
        return {key: without_paths(inside) for key, inside in value.items()}
    if isinstance(value, list | tuple):
        return [without_paths(inside) for inside in value]
    return _cut(value) if isinstance(value, str) else value


def _cut(text: str) -> str:
    """A white space ends a path in a sentence; not one in the name of a folder that is known to be there."""
    if text.startswith(("/", "~/")) and os.path.exists(os.path.expanduser(text)):
        return Path(text).name
    for root in (str(REPO), os.getcwd(), os.path.expanduser("~")):
        if root.count("/") > 1:
            text = text.replace(f"{root}/", "/-/")
    return _PATH.sub(r"\1", text)


def hub_id(name: str | Path) -> str | None:
    """The id on the hub that a model's or data set's name stands for; None for a file or folder of this machine."""
    text = str(name).split(":")[0]
    there = Path(text).exists() or (REPO / text).exists()
    return (
        text
        if _HUB_ID.fullmatch(text) and not there and not text.lower().endswith(_DATA_FILES)
        else None
    )


def interval_of(share: float, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of n problems, which a report gives rounded."""
    right = round(share * n)
    return wilson_interval([True] * right + [False] * (n - right))


def data_name(data: str | Path | None) -> str:
    """How a card names the data; None and the course's own files are the course's problems."""
    return (
        COURSE if data is None or data in (COURSE, *WORD_PROBLEMS.values()) else public_name(data)
    )


def what_section(report: Mapping, base, base_hash: str | None, kind: str) -> str:
    """What this is and how it was made, in a paragraph; `kind` is "merged" or "adapter"."""
    name = hub_id(base)
    where = (
        f"[{name}](https://huggingface.co/{name})"
        if name
        else f"`{public_name(base)}`, a local folder"
    )
    where += f" (hash `{base_hash}`)" if base_hash else ""
    what = (
        "A LoRA adapter for"
        if kind == "adapter"
        else "Merged 16-bit weights: a LoRA adapter and its base,"
    )
    how = ""
    if "steps" in report:
        bits = "in 4-bit (NF4)" if report.get("load_in_4bit") else "in 16-bit"
        how = (
            f" Trained with Group Relative Policy Optimization (TRL's `GRPOTrainer`"
            f"{' and Unsloth' if report.get('backend') == 'unsloth' else ''}) for {report['steps']} steps, the base "
            f"held {bits}, {report['lora_parameters']:,} parameters trained, seed {report['seed']}."
        )
    return f"{what} {where}.{how} Written by the GRPO Workbook; every number is in `{RUN_CARD}`."


def numbers_section(report: Mapping) -> str:
    """Held-out accuracy before and after, with intervals and a paired test; and the proof of the merge, if any."""
    held = report["heldout"]
    n = held["n"]

    def cell(when: str, key: str) -> str:
        share = held[when][key]
        return "{:.1%} ({:.1%} to {:.1%})".format(share, *interval_of(share, n))

    rows = [
        f"| {name} | {cell('before', key)} | {cell('after', key)} |"
        for key, name in MEASURES.items()
    ]
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
        "",
        *(f"- {line}" for line in report.get("verdict", ())),
    ]
    return "\n".join(lines) + ("\n\n" + proof_section(report) if report.get("merge") else "")


def proof_section(report: Mapping) -> str:
    """By how much merged weights and base-plus-adapter differ, from export.compare_logits and merging.py."""
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
        policy = ""
        if "policy_ci95" in merge:
            policy = (
                f", the policy before merging {merge['policy_strict_greedy']:.1%} (95 % interval "
            )
            policy += "{:.1%} to {:.1%})".format(*merge["policy_ci95"])
        lines.append(f"- strict, greedy: merged {merge['merged_strict_greedy']:.1%}{policy}")
    return "\n".join(lines)


def data_section(report: Mapping, data, heldout_data) -> str:
    """What it was trained and measured on, what was dropped of it, and the hash of all rows."""
    found = report.get("data", {})
    held = f"; held out: {data_name(heldout_data)}" if heldout_data else ""
    dropped = {
        "training prompts that were too long": found.get("dropped_too_long_train"),
        "held-out prompts that were too long": found.get("dropped_too_long_heldout"),
        "training problems that are in the held-out set": found.get("dropped_leaked"),
    }
    said = ", ".join(f"{count} {name}" for name, count in dropped.items() if count) or "none"
    return (
        f"## Data\n\nTrained on {data_name(data)}{held}: {found.get('train')} problems to train on, "
        f"{found.get('heldout')} held out. Dropped: {said} (limit {found.get('max_prompt_length')} tokens).\n\n"
        f"SHA-256 of all rows: `{report.get('data_sha256')}`"
    )


def rewards_section(report: Mapping) -> str:
    """A table of the reward functions: weight, and mean in the first and last tenth of the steps."""
    steps = report.get("rewards", {})
    if not report.get("reward_weights"):
        return ""
    lines = [
        "## Rewards",
        "",
        "| reward | weight | mean, first tenth | mean, last tenth |",
        "| --- | --- | --- | --- |",
    ]
    for name, weight in report.get("reward_weights", {}).items():
        at = steps.get(name, {})
        lines.append(
            f"| `{name}` | {weight:g} | {at.get('first_tenth', '')} | {at.get('last_tenth', '')} |"
        )
    return "\n".join(lines)


def settings_section(settings: Mapping | None) -> str:
    """A table of every setting of the run."""
    if not settings:
        return ""
    rows = [f"| {name} | {_flat(value)} |" for name, value in without_paths(settings).items()]
    return "\n".join(["## Hyper-parameters", "", "| setting | value |", "| --- | --- |", *rows])


def examples_section(report: Mapping) -> str:
    """Two held-out questions with what the model wrote after training."""
    lines = ["## Held-out answers", ""]
    for example in report.get("examples", [])[:2]:
        lines += [f"{_flat(example['question'])} (right: {_flat(example['answer'])})", ""]
        lines += ["    " + line for line in str(example["after"]).splitlines()] + [""]
    return "\n".join(lines).rstrip() if len(lines) > 2 else ""


def loading_section(base, kind: str, system_prompt: str, limit: int) -> str:
    """Python that loads it and asks one question; `limit` is the number of new tokens."""
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
    system = (
        f'    {{"role": "system", "content": {json.dumps(system_prompt)}}},\n'
        if system_prompt
        else ""
    )
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
        f"out = model.generate(**batch, max_new_tokens={limit}, do_sample=False)\n"
        'print(tokenizer.decode(out[0, batch["input_ids"].shape[1]:], skip_special_tokens=True))\n```'
    )


def limits_section(report: Mapping, base) -> str:
    """What the numbers do not show."""
    said = []
    if "data/tiny-" in str(base).replace("\\", "/"):
        said.append(
            "The base is a toy of about a million parameters, made for a course: it shows how GRPO works."
        )
    if "heldout" in report:
        said.append(
            "Measured on problems of the one kind named above; what it can do elsewhere, nobody has looked at."
        )
        said.append("One seed: another would end at somewhat other numbers.")
        if report["heldout"]["p_value"] >= 0.01:
            said.append("The difference in strict accuracy may be chance.")
    else:
        said.append("What it was trained on and how good it is was not known where it was merged.")
    if report.get("load_in_4bit"):
        said.append(
            "Before and after were measured on the 4-bit base with adapter; merged weights are 16-bit."
        )
    return "\n".join(["## Limits", "", *(f"- {line}" for line in said)])


def versions_section(report: Mapping) -> str:
    """The versions of the packages that made it."""
    found = ", ".join(f"{name} {number}" for name, number in report.get("versions", {}).items())
    return f"## Versions\n\n{found}" if found else ""


def _flat(value) -> str:
    return " ".join(str(value).split()).replace("|", "/")
