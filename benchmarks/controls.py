"""What the main run's gain is made of: the main run beside controls that change one thing each.

    python benchmarks/controls.py                            # Qwen3, seed 0: about 15 minutes
    python benchmarks/controls.py --seeds 0 1 2 --only main
    python benchmarks/controls.py --table                    # only print what is stored
    python benchmarks/controls.py --fresh                    # only print the fresh check

Every run starts from the same base with the same new adapters, and learns from 80 sequences in each
of the main run's 120 steps. It is measured on the held-out problems of the rare kinds. The results
are stored in controls.json, and a run that is stored is not repeated; chapter 04 reads them.

    base         no training
    main         the main run: GRPO on the training problems of the rare kinds
    random       the same, with a reward that is a coin toss
    more         more of the base's own supervised data, with as few rare examples
    rebalanced   the same data, with the rare examples in half of the places
    worked       supervised learning from worked answers to the problems that the main run trains on

The main run's settings were chosen on the held-out problems, so its result there may be too good.
Therefore "base" and "main" also answer fresh problems of the rare kinds (see `fresh_problems`), on
which nothing was ever chosen.
"""

import argparse
import json
import random
import sys
from collections import Counter
from pathlib import Path
from statistics import mean

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO), str(REPO / "data")]

RESULTS = Path(__file__).with_name("controls.json")
SUPERVISED = ("more", "rebalanced", "worked")
RUNS = ("base", "main", "random", *SUPERVISED)
MANY = 120  # problems that are answered several times
# Answers to each of them. One greedy answer of "main" is compared with 64 tries of "base".
SAMPLES = {"base": 64, "main": 16, "random": 16, "more": 16, "rebalanced": 16, "worked": 16}
FRESH_SEED, FRESH_SAMPLES = 41, 16


def run(name: str, family: str, seed: int) -> dict:
    """Train as this control does, and measure.

    Returns:
        "greedy" (which of the held-out problems are right), "sampled" (a rate) and
        "pass_at_k" ({k: a rate}). For "base" and "main" the same of the fresh problems as "fresh".
    """
    from grpo_workbook import choose_profile, load_policy, load_problems, to_dataset
    from grpo_workbook.data import WORD_PROBLEMS

    profile = choose_profile("smoke", model=family, seed=seed, grpo={"save_strategy": "no"})
    heldout = load_problems(WORD_PROBLEMS["heldout"]).filter(lambda row: row["rare"])
    model, tokenizer = load_policy(profile)
    if name in ("main", "random"):
        train_with_grpo(profile, model, tokenizer, name)
    elif name in SUPERVISED:
        train_supervised(profile, model, tokenizer, name)
    result = {
        "run": name,
        "family": family,
        "seed": seed,
        **measure(model, tokenizer, to_dataset(heldout), seed, SAMPLES[name]),
    }
    if name in ("base", "main"):
        fresh = load_problems([problem.row() for problem in fresh_problems()])
        result["fresh"] = measure(model, tokenizer, to_dataset(fresh), seed, FRESH_SAMPLES)
    return result


def fresh_problems() -> list:
    """Problems of the rare kinds that are in none of the course's data, two for each held-out one.

    Their operands occur neither in train.jsonl nor in heldout.jsonl nor in the worked examples that
    the base has learned from. Three kinds have enough such operands in the pool "heldout". Those of
    the other kinds come from the pool "tiny", whose questions the base may have read in
    pre-training, without an answer.

    Returns:
        Problem objects of build_word_problems.py, in random order.
    """
    from build_tiny_models import DRAW, rare_examples
    from build_word_problems import TEMPLATES, build, operands_in, write_problem

    heldout = build("heldout")
    used = set()
    for problem in [*heldout, *build("train"), *rare_examples(DRAW)]:
        used.add((problem.template, problem.operands))
    counts = Counter(problem.template for problem in heldout if problem.rare)
    rng = random.Random(FRESH_SEED)
    problems = []
    for template in TEMPLATES:
        count = 2 * counts[template.name]
        free = [v for v in operands_in(template, "heldout") if (template.name, v) not in used]
        if len(free) < count:
            free = [v for v in operands_in(template, "tiny") if (template.name, v) not in used]
        for operands in rng.sample(free, count):
            problems.append(write_problem(rng, template, operands))
    rng.shuffle(problems)
    return problems


def random_reward(completions, trainer_state, **columns) -> list[float]:
    """1 or 0 by the toss of a coin, whatever the completion says."""
    coin = random.Random(trainer_state.global_step)
    return [float(coin.random() < 0.5) for _ in completions]


def train_with_grpo(profile, model, tokenizer, name: str) -> None:
    """Train as the main run does, or with a random reward.

    The changes of speedrun.py save half of the time and change only the rounding.
    """
    from speedrun import TRICKS
    from transformers import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    from grpo_workbook import Float32Adapters, RewardBar, load_problems, parse_rewards, to_dataset
    from grpo_workbook.config import REWARDS
    from grpo_workbook.data import WORD_PROBLEMS

    functions, weights = parse_rewards(REWARDS)
    if name == "random":
        functions, weights = [random_reward], [1.0]
    rows = load_problems(WORD_PROBLEMS["train"]).filter(lambda row: row["rare"])
    args = GRPOConfig(
        output_dir=str(REPO / "outputs" / "controls"), reward_weights=weights, **profile.grpo
    )
    trainer = GRPOTrainer(
        model,
        functions,
        args,
        to_dataset(rows),
        processing_class=tokenizer,
        callbacks=[Float32Adapters(model), RewardBar()],
    )
    trainer.remove_callback(PrinterCallback)
    for trick in TRICKS.values():
        trick(trainer)
    trainer.train()


def train_supervised(profile, model, tokenizer, name: str) -> None:
    """Train the adapters on right answers, with the main run's steps, batch and learning rate."""
    import torch
    from build_tiny_models import DRAW, answer_batch, rare_examples, right_answer
    from build_word_problems import build
    from tiny_training import chat_batch

    from grpo_workbook import chat_prompt

    grpo = profile.grpo
    steps = grpo["max_steps"]
    size = grpo["per_device_train_batch_size"]
    rng = random.Random(profile.seed)
    examples = rare_examples(DRAW)
    problems = [problem for problem in build("train") if problem.rare]

    def make_batch() -> dict:
        if name == "more":
            return answer_batch(tokenizer, rng, size, examples)
        if name == "rebalanced":
            return answer_batch(tokenizer, rng, size, examples, share=0.5)
        chats = []
        for problem in rng.sample(problems, size):
            chats.append((chat_prompt(problem.question), right_answer(problem)))
        return chat_batch(tokenizer, chats)

    adapters = [weights for weights in model.parameters() if weights.requires_grad]
    for weights in adapters:
        weights.data = weights.data.float()
    optimizer = torch.optim.AdamW(
        adapters, betas=(grpo["adam_beta1"], grpo["adam_beta2"]), weight_decay=0.0
    )
    model.train()
    for step in range(steps):
        warm_up = min(1.0, (step + 1) / grpo["warmup_steps"])
        for group in optimizer.param_groups:
            group["lr"] = grpo["learning_rate"] * warm_up * (1 - step / steps)
        loss = model(**make_batch()).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(adapters, grpo["max_grad_norm"])
        optimizer.step()
        optimizer.zero_grad()


def measure(model, tokenizer, heldout, seed: int, samples: int) -> dict:
    """One greedy answer to every problem, and several to each of the first MANY."""
    from grpo_workbook import evaluate, pass_at_k

    settings = {"max_new_tokens": 64, "batch_size": 256, "seed": seed}
    greedy = evaluate(model, tokenizer, heldout, **settings)
    first = heldout.select(range(MANY))
    sampled = evaluate(model, tokenizer, first, sample=True, samples=samples, **settings)
    right = []  # how many answers to each problem
    for start in range(0, len(sampled.strict), samples):
        right.append(sum(sampled.strict[start : start + samples]))
    curve = {}
    k = 1
    while k <= samples:
        curve[str(k)] = round(mean(pass_at_k(samples, count, k) for count in right), 4)
        k *= 2
    return {
        "greedy": [int(is_right) for is_right in greedy.strict],
        "sampled": sampled.rate,
        "pass_at_k": curve,
    }


def table(rows: list[dict], columns: tuple[str, ...] = ("8", "16", "64")) -> str:
    """The runs as a table in Markdown: the mean of the seeds, and their range.

    Args:
        rows: as stored in controls.json, or with the values of their "fresh".
        columns: each k of pass@k.
    """
    names = ["run", "model", "seeds", "greedy", "sampled", *(f"pass@{k}" for k in columns)]
    lines = ["| " + " | ".join(names), "| " + " | ".join(["---"] * len(names))]
    for family in ("qwen", "gemma"):
        for name in RUNS:
            same = [row for row in rows if (row["run"], row["family"]) == (name, family)]
            if not same:
                continue
            same.sort(key=lambda row: row["seed"])
            seeds = ", ".join(str(row["seed"]) for row in same)
            cells = [name, family, seeds]
            cells.append(mean_and_range([mean(row["greedy"]) for row in same]))
            cells.append(mean_and_range([row["sampled"] for row in same]))
            for k in columns:
                measured = [row["pass_at_k"][k] for row in same if k in row["pass_at_k"]]
                cells.append(mean_and_range(measured))
            lines.append("| " + " | ".join(cells))
    return "\n".join(f"{line} |" for line in lines)


def mean_and_range(rates: list[float]) -> str:
    """Rates of several seeds as "81.5% (80.2 to 82.5)", or one as "81.5%"; "" for none."""
    if not rates:
        return ""
    text = f"{mean(rates):.1%}"
    if max(rates) > min(rates):
        text += f" ({100 * min(rates):.1f} to {100 * max(rates):.1f})"
    return text


def fresh_table(rows: list[dict]) -> str:
    """The table of the fresh problems."""
    measured = [{**row, **row["fresh"]} for row in rows if "fresh" in row]
    return table(measured, ("8", "16"))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--family", choices=("qwen", "gemma"), default="qwen")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--only", choices=RUNS, nargs="+", default=RUNS)
    parser.add_argument("--again", action="store_true", help="repeat runs that are stored")
    parser.add_argument("--table", action="store_true", help="only print what is stored")
    parser.add_argument("--fresh", action="store_true", help="only print the fresh check")
    args = parser.parse_args()
    rows = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    if args.fresh:
        print(fresh_table(rows))
        return 0
    wanted = [] if args.table else [(name, seed) for seed in args.seeds for name in args.only]
    if wanted:
        prepare()
    for name, seed in wanted:
        key = (name, args.family, seed)
        stored = [row for row in rows if (row["run"], row["family"], row["seed"]) == key]
        if stored and not args.again:
            continue
        result = run(name, args.family, seed)
        rows = [row for row in rows if row not in stored] + [result]
        lines = ",\n".join(json.dumps(row) for row in rows)
        RESULTS.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
        print(f"{name}, {args.family}, seed {seed}: greedy {mean(result['greedy']):.1%}")
    print(table(rows))
    return 0


def prepare() -> None:
    """One quiet thread, with Unsloth before the libraries that it patches."""
    import os

    os.environ["HF_HUB_OFFLINE"] = "1"
    from grpo_workbook import quiet, use_one_thread

    quiet()
    use_one_thread()
    import unsloth  # noqa: F401


if __name__ == "__main__":
    sys.exit(main())
