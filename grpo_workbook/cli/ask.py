"""Ask a model: answers in a batch, or piece by piece as they are written; and `python -m grpo_workbook generate`."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence

from grpo_workbook.config import RunConfig
from grpo_workbook.data import SYSTEM_PROMPT, chat_prompt, fold_system, needs_folding, render
from grpo_workbook.errors import WorkbookError, visible
from grpo_workbook.generation import (
    check_sampling,
    complete,
    end_tokens,
    ready,
    sampling,
    temperature_for,
)
from grpo_workbook.loading import find_adapter, find_model, load_for_measuring

EXAMPLES = """examples:
  python -m grpo_workbook generate outputs/run/merged \\
      "Tom has 5 pens and buys 3 more. How many pens does Tom have now?"
  python -m grpo_workbook generate qwen --adapter outputs/run/adapter
  python -m grpo_workbook generate qwen --samples 4 --temperature 1 \\
      "Tom has 5 pens and buys 3 more. How many pens does Tom have now?"
  python -m grpo_workbook generate qwen --jsonl < questions.txt > answers.jsonl

Every question stands alone: nothing of an earlier one is remembered.
exit status: 0 well, 2 bad input, 130 interrupted
"""


def conversation(
    tokenizer, question: str, system_prompt: str = SYSTEM_PROMPT
) -> list[dict[str, str]]:
    """The chat prompt as the model was trained on it: where it has no system role, its text opens the user's turn."""
    prompt = chat_prompt(question, system_prompt)
    return fold_system(prompt) if needs_folding(tokenizer) else prompt


def answer(
    model,
    tokenizer,
    questions: Sequence[str],
    *,
    max_new_tokens: int,
    how: dict,
    system_prompt: str = SYSTEM_PROMPT,
    seed: int = 0,
) -> list[str]:
    """One answer for each question, all in one batch, as text without special tokens.

    `max_new_tokens` is the limit of each answer; `how` is from `generation.sampling`. The same seed gives the same
    answers.
    """
    import torch

    texts = render([conversation(tokenizer, q, system_prompt) for q in questions], tokenizer)
    with ready(model, tokenizer):
        torch.manual_seed(seed)
        return [
            c.text
            for c in complete(model, tokenizer, texts, max_new_tokens=max_new_tokens, how=how)
        ]


def stream(
    model,
    tokenizer,
    question: str,
    *,
    max_new_tokens: int,
    how: dict,
    system_prompt: str = SYSTEM_PROMPT,
    seed: int = 0,
) -> Iterator[str]:
    """The answer in pieces, as they are written; put together they are what `answer` gives for this question alone.

    Closing the iterator stops the model; its errors are raised here. The arguments are those of `answer`.
    """
    from threading import Event, Thread

    import torch
    from transformers import StoppingCriteriaList, TextIteratorStreamer

    text = render([conversation(tokenizer, question, system_prompt)], tokenizer)[0]
    batch = tokenizer(
        text, return_tensors="pt", add_special_tokens=False, return_token_type_ids=False
    )
    streamer = TextIteratorStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
    stopped, failed = Event(), []

    def write() -> None:
        try:
            with ready(
                model, tokenizer
            ):  # here: held open across a yield, it would turn off the reader's gradients
                torch.manual_seed(seed)
                model.generate(
                    **batch.to(model.device),
                    **how,
                    max_new_tokens=max_new_tokens,
                    pad_token_id=tokenizer.pad_token_id,
                    eos_token_id=end_tokens(model, tokenizer),
                    streamer=streamer,
                    stopping_criteria=StoppingCriteriaList(
                        [lambda ids, scores, **_: stopped.is_set()]
                    ),
                )
        except Exception as error:
            failed.append(error)
            streamer.end()

    writer = Thread(target=write, daemon=True)
    writer.start()
    try:
        yield from (piece for piece in streamer if piece)
    finally:
        stopped.set()
        writer.join()
    if failed:
        raise failed[0]


# ------------------------------------------------------------------ the command


def add_parser(commands) -> None:
    """Add generate to the command line."""
    parser = commands.add_parser(
        "generate",
        help="ask a model, with its answer as it is written",
        usage="%(prog)s MODEL [QUESTION ...] [options]",
        description="Ask a model. Without a question it asks you for them, one after the\nother; "
        "from a pipe it takes one question in each line.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "model", metavar="MODEL", help="a family (qwen, gemma), a folder or a hub id"
    )
    parser.add_argument("questions", nargs="*", metavar="QUESTION")
    parser.add_argument("--adapter", metavar="DIR", help="a LoRA adapter on top of MODEL")
    parser.add_argument(
        "--any-base", action="store_true", help="use an adapter on another base than its own"
    )
    parser.add_argument(
        "--samples", type=int, default=1, metavar="N", help="answers to each question (default 1)"
    )
    parser.add_argument(
        "--temperature", type=float, metavar="X", help="default 0 for one sample, else 1"
    )
    parser.add_argument("--top-p", type=float, default=1.0, metavar="X", help="default 1")
    parser.add_argument("--max-new-tokens", type=int, metavar="N", help="default: the profile's")
    parser.add_argument("--seed", type=int, metavar="N", help="default 0")
    parser.add_argument(
        "--system-prompt", metavar="TEXT", help="default: the course's; '' for none"
    )
    parser.add_argument(
        "--load-in-4bit", action="store_true", help="as it was trained; default 16-bit or 32-bit"
    )
    parser.add_argument("--profile", metavar="P", help="default: what fits the device")
    parser.add_argument("--jsonl", action="store_true", help="a line of JSON for each question")


def main(args: argparse.Namespace) -> int:
    """Answer what was asked. Raises WorkbookError for bad input, before any model is loaded."""
    run = RunConfig.from_env(profile=args.profile, model="qwen", seed=args.seed)
    temperature = temperature_for(args.samples, args.temperature)
    limit = (
        run.max_completion_length if args.max_new_tokens is None else args.max_new_tokens
    )
    check_sampling(args.samples, temperature, args.top_p, limit)
    asked: Iterator[str] = iter(args.questions) if args.questions else _from_input()
    model = find_model(args.model)
    adapter, note = (
        find_adapter(args.adapter, model, any_base=args.any_base) if args.adapter else (None, None)
    )
    if note:
        print(f"note: {note}", file=sys.stderr)
    from grpo_workbook.notebook import quiet

    quiet()
    loaded, tokenizer = load_for_measuring(
        model, adapter, dtype=run.dtype, device=run.device, load_in_4bit=args.load_in_4bit
    )
    how = {
        "max_new_tokens": limit,
        "how": sampling(temperature, args.top_p),
        "system_prompt": SYSTEM_PROMPT if args.system_prompt is None else args.system_prompt,
        "seed": run.seed,
    }
    show: Callable = _as_json if args.jsonl else _as_text
    for question in asked:
        show(loaded, tokenizer, question, args.samples, how)
    return 0


def _from_input() -> Iterator[str]:
    """Questions from the keyboard until Ctrl-D or an empty line, or the lines of a pipe."""
    try:
        if not sys.stdin.isatty():
            yield from (line.strip() for line in sys.stdin if line.strip())
            return
        print("Ask a question; an empty line ends.", file=sys.stderr)
        while question := input("? ").strip():
            yield question
    except EOFError:
        return
    except UnicodeDecodeError as error:
        raise WorkbookError(
            f"the questions are no {error.encoding} ({error.reason}): save them as UTF-8"
        ) from None


def _as_text(model, tokenizer, question: str, samples: int, how: dict) -> None:
    if samples == 1:
        for piece in stream(model, tokenizer, question, **how):
            print(visible(piece), end="", flush=True)
        print()
        return
    for i, text in enumerate(answer(model, tokenizer, [question] * samples, **how), 1):
        print(f"--- {i} of {samples}\n{visible(text)}", flush=True)


def _as_json(model, tokenizer, question: str, samples: int, how: dict) -> None:
    texts = answer(model, tokenizer, [question] * samples, **how)
    print(json.dumps({"question": question, "answers": texts}, ensure_ascii=False), flush=True)
