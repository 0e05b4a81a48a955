"""The model card of an adapter or merged model, and the run card beside it: what it is, how it was made, how good.

README.md       for people and for the hub: its metadata is the hub's, read and written by huggingface_hub
run_card.json   the same for programs: every number of the run and every setting

Neither names a path of the machine that it was written on.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_workbook.card_sections import (
    COURSE,
    MEASURES,
    RUN_CARD,
    data_name,
    data_section,
    examples_section,
    hub_id,
    interval_of,
    limits_section,
    loading_section,
    numbers_section,
    proof_section,
    public_name,
    rewards_section,
    settings_section,
    versions_section,
    what_section,
    without_paths,
)
from grpo_workbook.data import SYSTEM_PROMPT
from grpo_workbook.files import whole_file, write_json
from grpo_workbook.loading import fingerprint

if TYPE_CHECKING:
    from huggingface_hub import ModelCard

CARD = "README.md"
FORMAT = "grpo-workbook run card, version 1"
TAGS = ("grpo", "trl", "unsloth")


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
    """The card of what a run made, with the metadata that the hub reads.

    `report` is the run's report.json; of a merge outside of a run it holds what is known: "merge" and "versions".
    `kind` is "merged" or "adapter". `data` None are the course's own problems. A base or data set that is no hub id is
    named in the text, and not in the metadata, where the hub would take it for one of its own. `base_hash` is from
    loading.fingerprint; `license` is a name that the hub knows, such as apache-2.0.
    """
    from huggingface_hub import ModelCard, ModelCardData

    trained = "heldout" in report
    title = (
        Path(public_name(base)).name
        + ("-grpo" if trained else "-merged")
        + "-adapter" * (kind == "adapter")
    )
    tags = (
        [tag for tag in TAGS if tag != "unsloth" or report.get("backend") == "unsloth"]
        if trained
        else None
    )
    held_name = heldout_data or data
    metadata = ModelCardData(
        base_model=hub_id(base),
        library_name="peft" if kind == "adapter" else "transformers",
        license=license,
        pipeline_tag="text-generation",
        tags=tags,
        datasets=sorted(
            {found for name in (data, heldout_data) if name and (found := hub_id(name))}
        )
        or None,
        model_name=title if trained else None,
        eval_results=_results(report["heldout"], held_name) if trained else None,
        base_model_relation=None
        if hub_id(base) is None
        else "adapter"
        if kind == "adapter"
        else "finetune",
    )
    parts = [
        f"# {title}",
        what_section(report, base, base_hash, kind),
        *(
            (
                numbers_section(report),
                data_section(report, data, heldout_data),
                rewards_section(report),
                settings_section(settings),
                examples_section(report),
            )
            if trained
            else (proof_section(report),)
        ),
        loading_section(
            base, kind, system_prompt, (settings or {}).get("max_completion_length", 64)
        ),
        limits_section(report, base),
        versions_section(report),
    ]
    return ModelCard(
        "---\n" + metadata.to_yaml() + "\n---\n\n" + "\n\n".join(p for p in parts if p) + "\n"
    )


def _results(heldout: Mapping, data) -> list:
    from huggingface_hub import EvalResult

    name = hub_id(data) if data else None
    found = []
    for when in ("after", "before"):
        for key in ("strict_sampled", "strict_greedy"):
            interval = list(interval_of(heldout[when][key], heldout["n"]))
            found.append(
                EvalResult(
                    task_type="text-generation",
                    dataset_type=name
                    or (
                        "word_problems"
                        if data_name(data) == COURSE
                        else Path(public_name(data)).stem
                    ),
                    dataset_name=f"{data_name(data)}, {heldout['n']} held-out problems",
                    metric_type="accuracy",
                    metric_name=f"{MEASURES[key]}, {when} training",
                    metric_value=heldout[when][key],
                    metric_args={"interval_95": interval},
                )
            )
    return found


def run_card(
    report: Mapping,
    settings: Mapping | None = None,
    *,
    base: str | Path,
    folder: Path,
    kind: str = "merged",
) -> dict:
    """What run_card.json holds: the base and these weights by their hashes, every setting, and the run's report."""
    kept = {k: v if k == "examples" else without_paths(v) for k, v in report.items()}
    return {
        "format": FORMAT,
        "kind": kind,
        "base": {"name": public_name(base), "hash": fingerprint(str(base))},
        "weights_hash": fingerprint(str(folder)),
        "settings": without_paths(settings or {}),
        "report": kept | ({"model": public_name(report["model"])} if "model" in report else {}),
    }


def write_card(
    folder: Path,
    report: Mapping,
    settings: Mapping | None = None,
    *,
    base: str | Path,
    data=None,
    **more,
) -> None:
    """Write README.md and run_card.json into the folder. `more` is model_card's: heldout_data, kind, license, ..."""
    machine = run_card(report, settings, base=base, folder=folder, kind=more.get("kind", "merged"))
    card = model_card(
        report, base=base, data=data, settings=settings, base_hash=machine["base"]["hash"], **more
    )
    with whole_file(folder / CARD) as path:
        path.write_text(str(card), encoding="utf-8")
    write_json(folder / RUN_CARD, machine)
