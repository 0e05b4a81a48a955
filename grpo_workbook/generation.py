"""Completions from a model: batches of like length, left padding, seeded sampling, and where a completion ends."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from grpo_workbook.data import render
from grpo_workbook.errors import WorkbookError

SEEDS_APART = 1_000_003  # between two seeds' first batches: more problems than are ever measured


@dataclass(frozen=True)
class Completion:
    """What a model wrote: `tokens` counts the end token; `ended` is False where the limit cut it off."""

    text: str
    tokens: int
    ended: bool


def sampling(temperature: float, top_p: float = 1.0) -> dict:
    """Keyword arguments of Transformers' generate for a temperature: 0 is greedy.

    `top_p`: the share of probability, above 0 to 1, that is drawn from. No top-k: what is drawn is the model's own.
    """
    if temperature == 0:
        return {"do_sample": False}
    return {"do_sample": True, "temperature": temperature, "top_p": top_p, "top_k": 0}


def temperature_for(samples: int, given: float | None) -> float:
    """The temperature that was given, else 0 (greedy) for one completion of each prompt and 1 for several."""
    return (0.0 if samples == 1 else 1.0) if given is None else given


def check_sampling(samples: int, temperature: float, top_p: float, max_new_tokens: int) -> None:
    """Raise WorkbookError for a value that makes no sense, by the name of its option on the command line."""
    for name, value in (("samples", samples), ("max-new-tokens", max_new_tokens)):
        if value < 1:
            raise WorkbookError(f"--{name} is {value}: it must be at least 1")
    if not 0 <= temperature < float("inf"):
        raise WorkbookError(f"--temperature is {temperature}: it must be 0 (greedy) or more")
    if not 0 < top_p <= 1:
        raise WorkbookError(f"--top-p is {top_p}: it must be more than 0 and at most 1")
    if samples > 1 and temperature == 0:
        raise WorkbookError(
            f"--samples is {samples} and the temperature 0: greedy samples are all the same, so give a --temperature "
            "above 0, such as 1"
        )


@contextmanager
def ready(model, tokenizer) -> Iterator[None]:
    """A context: the model in evaluation mode without gradients, padding on the left; afterwards all is as it was.

    The random state inside is a copy: sampling leaves the one outside alone.
    """
    import torch

    was_training, side = model.training, tokenizer.padding_side
    model.eval()
    tokenizer.padding_side = "left"
    devices = [model.device] if model.device.type == "cuda" else []
    try:
        with torch.no_grad(), torch.random.fork_rng(devices):
            yield
    finally:
        tokenizer.padding_side = side
        model.train(was_training)


def complete(
    model, tokenizer, texts: Sequence[str], *, max_new_tokens: int, how: dict
) -> list[Completion]:
    """One completion for each rendered prompt (see data.render), all in one batch, in their order.

    Call it inside `ready`; `how` is from `sampling`. What torch raises, OutOfMemoryError above all, goes on.
    """
    batch = tokenizer(
        list(texts),
        return_tensors="pt",
        padding=True,
        add_special_tokens=False,
        return_token_type_ids=False,
    ).to(model.device)
    ends = end_tokens(model, tokenizer)
    out = model.generate(
        **batch,
        max_new_tokens=max_new_tokens,
        use_cache=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=ends,
        **how,
    )
    found = []
    for ids in out[:, batch["input_ids"].shape[1] :].tolist():
        end = next((i for i, token in enumerate(ids) if token in ends), None)
        kept = ids if end is None else ids[: end + 1]
        found.append(
            Completion(tokenizer.decode(kept, skip_special_tokens=True), len(kept), end is not None)
        )
    return found


def generate(
    model,
    tokenizer,
    prompts: Sequence[list[dict]],
    *,
    max_new_tokens: int,
    sample: bool = False,
    temperature: float = 1.0,
    seed: int = 0,
    batch_size: int = 128,
    progress: str | None = None,
) -> list[str]:
    """One completion per chat prompt (a list of role and content), as text without special tokens.

    Greedy, or with `sample` at `temperature`; `max_new_tokens` is the limit of each completion, and `batch_size` how
    many prompts go through the model at once.

    Batches hold prompts of like length, so that little is padding; results come in the order of the prompts. Sampling
    is seeded batch by batch, and leaves the random state outside as it was; so several processes, which share the
    batches, draw what one would, and each gets all of it. `progress` names the main one's bar; None shows none.
    """
    import torch
    from accelerate.utils import gather_object
    from tqdm import tqdm

    together = torch.distributed.is_available() and torch.distributed.is_initialized()
    index = torch.distributed.get_rank() if together else 0
    count = torch.distributed.get_world_size() if together else 1
    texts = render(prompts, tokenizer)
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    results = [""] * len(texts)
    batches = [
        (start, order[start : start + batch_size]) for start in range(0, len(order), batch_size)
    ]
    hidden = progress is None or index > 0
    bar = tqdm(
        total=len(texts), desc=progress, unit="problem", ncols=80, disable=hidden, leave=False
    )
    with ready(model, tokenizer), bar:
        for start, chosen in batches[index::count]:
            torch.manual_seed(seed * SEEDS_APART + start)
            how = sampling(temperature if sample else 0)
            batch = complete(
                model, tokenizer, [texts[i] for i in chosen], max_new_tokens=max_new_tokens, how=how
            )
            for i, completion in zip(chosen, batch, strict=True):
                results[i] = completion.text
            bar.update(len(chosen))
    for index, theirs in enumerate(gather_object([results]) if count > 1 else ()):
        for _, chosen in batches[index::count]:
            for i in chosen:
                results[i] = theirs[i]
    return results


def end_tokens(model, tokenizer) -> list[int]:
    """The tokens that end a completion, as TRL takes them: the tokenizer's, and those of the model's generation config.

    Gemma and Qwen end a turn with another token than a text.
    """
    config = model.generation_config.eos_token_id
    more = config if isinstance(config, list) else [] if config is None else [config]
    return sorted({tokenizer.eos_token_id, *more} - {None})
