"""`run --tools` and `run --environment`: a model that acts, measured by its episodes."""

import json

from grpo_workbook import stages
from grpo_workbook.cli.rewards import load_own
from grpo_workbook.cli.together import is_main
from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.evaluation import Scores
from grpo_workbook.files import write_json


def acts_of(tools: str | None = None, environment: str | None = None) -> dict:
    """The arguments for GRPOTrainer of FILE.py:FUNCTION,... and FILE.py:CLASS; {} for neither."""
    from grpo_workbook.environments import tools_of

    own = [load_own(where) for where in (tools or "").split(",") if where]
    acts: dict = {"tools": own} if own else {}
    if environment:
        acts["environment_factory"] = episodes = load_own(environment, "class")
        if not hasattr(episodes, "reset"):
            fix = "derive it from grpo_workbook.environments.Environment"
            raise WorkbookError(f"{environment} has no method reset: {fix}")
        own = own + tools_of(episodes())
    for function in own:
        from transformers.utils import get_json_schema  # `options.read` has loaded Unsloth before

        try:
            get_json_schema(function)  # as TRL will, after the model is loaded
        except Exception as error:  # of its own kinds
            said = f"no schema can be made of the tool {function.__name__}: {first_line(error)}"
            raise WorkbookError(f"{said} Give it type hints, and a docstring with Args:") from error
    return acts


def same_seeds(train, heldout) -> set[int]:
    """The training rows whose seed is held out, as `leaked_rows`: another seed, another episode."""
    for rows in (train, heldout):
        if "seed" not in rows.column_names:
            there = ", ".join(rows.column_names)
            raise WorkbookError(f"an environment needs a column 'seed'; the data has {there}")
    held = set(heldout["seed"])
    return {i for i, seed in enumerate(train["seed"]) if seed in held}


def measure(*given, acts, ways, turns=None, kept=None, **how) -> list[Scores]:
    """As `stages.measure`; where the model acts, a completion is its episode, as JSON."""
    from grpo_workbook.environments import replay

    if not acts:
        return stages.measure(*given, ways=ways, kept=kept, **how)
    run, model, tokenizer, heldout, path = given
    more = {"tools": acts.get("tools", ()), "environment": acts.get("environment_factory")}
    more |= {"max_new_tokens": run.max_completion_length, "batch_size": run.eval_batch}
    more |= {"seed": how["seed"], "max_turns": turns or run.max_completion_length}
    found = kept or {name: list(heldout[name]) for name in ("question", "answer")}
    for way in ways if not kept else ():
        played = replay(model, tokenizer, list(heldout), sample=way == "sampled", **more)
        rows = zip(played, heldout, strict=True)
        found[way] = [json.dumps({"right": e.right(r), "messages": e.messages}) for e, r in rows]
    if path and not kept and is_main():
        write_json(path, found | {"kind": "episode"})
    rights = [[json.loads(text)["right"] for text in found[way]] for way in ways]
    return [Scores(found[way], r, r, r) for way, r in zip(ways, rights, strict=True)]
