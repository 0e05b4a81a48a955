"""What the main run measures: the held-out problems before and after, each reward on them, and the merged model."""

from pathlib import Path

from grpo_workbook.config import RunConfig
from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import read_json, readable, write_json
from grpo_workbook.processes import ALONE, Processes
from grpo_workbook.reward_files import call


def baseline(run: RunConfig, model, tokenizer, heldout, answers: str, processes: Processes, say):
    """(sampled, greedy) scores before training: measured once and kept in before.json, so that a resumed run compares
    with where it began.
    """
    path = run.output / "before.json"
    kept = processes.once(lambda: read_json(path) if path.is_file() else None)
    if kept:
        say("The baseline was measured before the interruption")
        return tuple(
            kept_scores(kept.get(how) if isinstance(kept, dict) else None, path, heldout, answers)
            for how in ("sampled", "greedy")
        )
    sampled, greedy = measure(
        run, model, tokenizer, heldout, answers, "measuring before", processes
    )
    if processes.main:
        write_json(path, {"sampled": sampled.completions, "greedy": greedy.completions})
    say(
        f"Before training: {sum(sampled.strict)} of {sampled.n} held-out problems strictly right when sampled"
    )
    return sampled, greedy


def kept_scores(
    texts: object, path: Path, heldout, answers: str, mend: str = "start again with --overwrite"
):
    """The scores of completions that `path` has kept. Raises WorkbookError when they are not those of `heldout`."""
    from grpo_workbook.evaluate import score

    if (
        not isinstance(texts, list)
        or len(texts) != len(heldout)
        or not all(isinstance(t, str) for t in texts)
    ):
        raise WorkbookError(
            f"{readable(path)} does not hold the completions of {len(heldout)} problems: {mend}"
        )
    return score(texts, list(heldout["answer"]), answers)


def measure(
    run: RunConfig, model, tokenizer, heldout, answers: str, label: str, processes: Processes = ALONE
):
    """(sampled, greedy) scores on the held-out problems; the processes share the work."""
    from grpo_workbook.evaluate import evaluate

    s = run
    how = {
        "max_new_tokens": s.max_completion_length,
        "seed": run.seed,
        "batch_size": s.eval_batch,
        "answers": answers,
    }
    how["processes"] = processes
    return (
        evaluate(model, tokenizer, heldout, sample=True, progress=f"{label}, sampled", **how),
        evaluate(model, tokenizer, heldout, progress=f"{label}, greedy", **how),
    )


def mean_reward(function, tokenizer, heldout, scores) -> float | None:
    """The mean of a reward over the held-out problems' sampled completions, to 4 places; None where it applies to none.

    `scores` are (sampled, greedy).
    """
    texts = scores[0].completions
    columns = {name: list(heldout[name]) for name in heldout.column_names}
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    values = call(function, columns.pop("prompt"), texts, ids, columns)
    kept = [v for v in values if v is not None]
    return round(sum(kept) / len(kept), 4) if kept else None


def trained_whole(run: RunConfig):
    """Base and saved adapter, loaded whole, as training had them."""
    from grpo_workbook.loading import load_for_measuring

    s = run
    how = {"dtype": s.dtype, "device": run.device, "load_in_4bit": s.load_in_4bit}
    return load_for_measuring(run.model, str(run.output / "adapter"), **how)[0]


def merge_proved(
    run: RunConfig, backend: str, heldout, answers: str, after_greedy, say
) -> tuple[dict, list[str]]:
    """(the merge's proof, the merged model's answers to the first 5 held-out questions); writes the folder merged.

    `after_greedy` are the trained policy's greedy scores, whose completions the logits are compared on.
    """
    from grpo_workbook.evaluate import accuracy, evaluate
    from grpo_workbook.export import compare_logits, load_merged, merge

    say("Merging the adapter into 16-bit weights and proving it")
    ours, tokenizer = merge(run, run.output / "adapter", run.output / "merged", backend)
    merged, merged_tokenizer = load_merged(run.output / "merged", run.dtype, run.device)
    s = run
    # whole logits are kept for the comparison: a quarter of what generating holds
    proof = compare_logits(
        ours,
        merged,
        tokenizer,
        list(heldout["prompt"]),
        after_greedy.completions,
        max(1, s.eval_batch // 4),
    )
    scores = evaluate(
        merged,
        merged_tokenizer,
        heldout,
        max_new_tokens=s.max_completion_length,
        batch_size=s.eval_batch,
        answers=answers,
    )
    return {**proof, "merged_strict_greedy": accuracy(scores.strict)}, scores.completions[:5]
