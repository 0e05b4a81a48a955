"""Save an adapter, merge it into 16-bit weights with a proof, and write the model's card.

The proof of a merge: on the same tokens the merged model must give the logits of the base with its
adapter (else the merge is bad), and it must solve as many held-out problems as the policy. A policy
that was trained on the base in 4-bit may solve fewer on the 16-bit base: that is the change of
base, which `merge(dequantize=True)` avoids. `merge` writes nothing that fails the proof.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_workbook import compat, files, models
from grpo_workbook.data import chat_prompt, load_tokenizer
from grpo_workbook.data.prompts import (
    fold_system,
    load_processor,
    needs_folding,
    prefilled_tag,
)
from grpo_workbook.data.reading import FORMATS
from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.evaluation import (
    CorrectnessJudge,
    Sampling,
    Scores,
    compare,
    complete,
    describe_gain,
    score,
    texts_of,
)
from grpo_workbook.files import readable
from grpo_workbook.pictures import (
    encode,
    image_column,
    is_processor,
    pictures_in,
    tokenizer_of,
)

if TYPE_CHECKING:
    from datasets import Dataset
    from torch import Tensor

SAME_TOKENS = 0.98  # rounding to bfloat16 turns a few near-ties; a wrong merge turns more
RELATIVE = 0.02  # of the logits' spread: rounding gives 0.002 to 0.004, a wrong merge at least 0.04
LOGIT_BYTES = 2**30  # of one model's logits, which stay in memory for the comparison
QUESTION = "Ada has {} pens and buys {} more. How many pens does Ada have now?"
SUMS = [QUESTION.format(n, 17 - n) for n in range(2, 14)]  # what a merge without a run is asked


@dataclass
class Problems:
    """What the policy and the merged model answer; without `answers` only logits are compared."""

    prompts: list[list[dict[str, str]]]
    answers: list[str] | None = None
    texts: list[str] | None = None  # the trained policy's greedy answers, if they are known
    policy: Scores | None = None  # their scores, if they are known
    judge: CorrectnessJudge | None = None
    images: Sequence[Any] | None = None  # the pictures of each prompt, for a model with vision


# ---------------------------------------------------------------------------- saving and merging


def save_adapter(model: Any, tokenizer: Any, folder: str | Path) -> None:
    """Write the adapter, the tokenizer and the fingerprint of its base.

    Args:
        model: a PeftModel.
        tokenizer: its tokenizer; of a model with vision the processor.
        folder: is replaced when everything is written.

    Raises:
        WorkbookError: for a tokenizer alone, if vision has adapters: they could not be used.
    """
    adapted = " ".join(name for name, _ in model.named_parameters() if "lora_" in name)
    if models.has_vision(adapted) and not is_processor(tokenizer):
        raise WorkbookError(
            f"the vision of the model has adapters, and a {type(tokenizer).__name__} reads no "
            "pictures: give the processor"
        )
    # With beta > 0 TRL has put a second adapter on the model, as its reference. Both have one base.
    base = next(iter(model.peft_config.values())).base_model_name_or_path

    def write(target: Path) -> None:
        model.save_pretrained(target)
        (target / "README.md").unlink(missing_ok=True)  # PEFT's template holds the base's path
        tokenizer.save_pretrained(target)
        record = {"base": readable(base), "hash": models.fingerprint(base)}
        files.write_json(target / models.BASE_RECORD, record)

    files.swap_folder(Path(folder), write)


def merge(
    base: str | None,
    adapter: str | Path,
    folder: str | Path,
    *,
    heldout: "Dataset | None" = None,
    policy: Scores | None = None,
    judge: CorrectnessJudge | None = None,
    dequantize: bool = False,
    max_new_tokens: int | None = None,
    batch_size: int = 32,
    chat_template_kwargs: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Merge an adapter into its base's 16-bit weights, prove it, and write the model to `folder`.

        proof = merge(None, "outputs/run/adapter", "outputs/run/merged")

    Args:
        base: a folder or a hub id; None for the base that the adapter names.
        adapter: the folder of a LoRA adapter.
        folder: is replaced when the merge is proved.
        heldout: rows with `prompt`, and `answer` if they shall be scored. Default: the held-out
            problems of the adapter's run, or a few sums. For an adapter of a whole model with
            vision, which is then merged as a whole, they must be given and have pictures.
        policy: the trained policy's greedy Scores on `heldout`. Default: the base with the adapter
            answers.
        judge: for answers that are not numbers, as in `evaluation.score`.
        dequantize: merge into the base as it is in 4-bit training: rounded to NF4, in 16-bit
            weights. Then the merged model is the policy up to the rounding of the sum.
        max_new_tokens: of an answer; default as in the adapter's run, or 256.
        batch_size: prompts at a time.
        chat_template_kwargs: those of the training's GRPOConfig, as in `data.render`; for an
            adapter of `run` they are in its record.

    Returns:
        The proof: how far the logits of the merged model differ from those of the base with its
        adapter (the merge error), and under "base_change" how far the latter differ from those of
        the base in 4-bit with the adapter; None if the run trained in 16 bits. Under "heldout" the
        `evaluation.Comparison` of the policy (before) and the merged model (after), with the first
        answers of the merged model.

    Raises:
        WorkbookError: for bad input; and, with the numbers, if the merged model is not the same: it
            says whether the merge or the change of base is the cause. `folder` stays as it was.
    """
    adapter = models.find_adapter(adapter)
    base = models.find_model(base or models.base_of(adapter))
    folder = Path(folder).expanduser()
    if models.check_base(adapter, base) is False:
        raise WorkbookError(
            f"{readable(base)} is not the base that {readable(adapter)} was trained on, by its "
            "hash: name the right one with --base"
        )
    _check_folder(folder, adapter, base)
    settings = settings_of_run(adapter)
    # A checkpoint has none beside it: the report of its run is about the last step.
    report = _read(Path(adapter).parent / "report.json")
    if models.is_of_whole_model(adapter) and (heldout is None or image_column(heldout) is None):
        raise WorkbookError(
            f"{adapter} was trained on a whole model with vision (its layers have names "
            "such as language_model), and a merge without pictures would prove nothing about what "
            "it sees: give heldout rows with a column 'image'"
        )
    if heldout is None:
        problems = _problems_of_run(adapter, settings.get("system_prompt"), judge)
    else:
        problems = Problems(list(heldout["prompt"]), policy=policy, judge=judge)
        column = image_column(heldout)
        if column is not None:
            problems.images = heldout[column]
        if "answer" in heldout.column_names:
            problems.answers = list(heldout["answer"])
        if policy is not None:
            problems.texts = policy.completions
    tokens: int = max_new_tokens or settings.get("max_completion_length", 256)
    template_options = chat_template_kwargs  # None: the course's
    if "chat_template_kwargs" in settings:
        template_options = settings["chat_template_kwargs"] or {}  # None: the run had no options
        if chat_template_kwargs not in (None, template_options):
            raise WorkbookError(
                f"the run of {readable(adapter)} has chat_template_kwargs {template_options}, and "
                f"{dict(chat_template_kwargs or {})} was given: leave it out"
            )
    sampling = Sampling(tokens, batch_size=batch_size, chat_template_kwargs=template_options)

    def write(target: Path) -> dict[str, Any]:
        in_4bit = settings.get("load_in_4bit", True)
        proof = _merge_into(target, base, adapter, problems, sampling, in_4bit, dequantize)
        if not is_proved(proof):
            raise WorkbookError(f"{_why_not(proof)}. Nothing was written")
        # The card names the prompt and the limit with which the merge was proved.
        card_settings = {"max_completion_length": tokens, **settings}
        if template_options is not None:
            card_settings["chat_template_kwargs"] = dict(template_options)
        write_card(target, {**report, "merge": proof}, card_settings, base=base)
        return proof

    return files.swap_folder(folder, write)


def _merge_into(
    target: Path,
    base: str,
    adapter: str,
    problems: Problems,
    sampling: Sampling,
    in_4bit: bool,  # whether the adapter was trained on the base in 4-bit
    dequantize: bool,
) -> dict[str, Any]:
    """Write the merged model, and return the proof. Only one model is in memory at a time."""
    from accelerate.utils.memory import clear_device_cache

    pictures = models.is_of_whole_model(adapter)
    model, tokenizer = _load_policy(base, adapter, dequantize, pictures)
    device, dtype = model.device.type, model.dtype
    prompts, images = problems.prompts, problems.images
    options = sampling.chat_template_kwargs
    if needs_folding(tokenizer):  # as in training: the system text opens the user's turn
        prompts = [fold_system(prompt) for prompt in prompts]

    texts = problems.texts
    if texts is None:
        texts = _greedy_answers(model, tokenizer, prompts, sampling, images)
    before = read_logits(model, tokenizer, prompts, texts, options, images)
    # Added up in the dtype of the comparison, float32 where it fits, and rounded once.
    try:
        model = model.merge_and_unload().bfloat16()
    except (RuntimeError, ValueError) as error:  # PEFT has forms of LoRA that it cannot merge
        raise WorkbookError(
            f"{readable(adapter)} cannot be merged ({first_line(error)}): use it beside its base, "
            "or train an adapter of plain LoRA"
        ) from error
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    del model
    clear_device_cache(garbage_collection=True)

    # Loaded again, so that the proof is about the files and not about what was in memory.
    merged, tokenizer = models.load_model(target, dtype=dtype, device=device, pictures=pictures)
    after = read_logits(merged, tokenizer, prompts, texts, options, images)
    merged_texts = []
    if problems.answers is not None:
        merged_texts = _greedy_answers(merged, tokenizer, prompts, sampling, images)
    proof = logit_differences(before, after)
    proof["dequantized"] = dequantize
    proof["base_change"] = None
    if in_4bit:
        del merged
        clear_device_cache(garbage_collection=True)
        packed, tokenizer = models.load_model(
            base,
            adapter,
            dtype=dtype,
            device=device,
            load_in_4bit=True,
            any_base=True,
            pictures=pictures,
        )
        compat.keep_packed_weights(packed)  # as in training
        in_training = read_logits(packed, tokenizer, prompts, texts, options, images)
        proof["base_change"] = logit_differences(in_training, before)
    if problems.answers is not None:
        answers, judge = problems.answers, problems.judge
        tag = prefilled_tag(tokenizer, options)
        policy = problems.policy
        if policy is None:
            policy = score(texts, answers, judge=judge, prompts=prompts, prompt_tag=tag)
        scores = score(merged_texts, answers, judge=judge, prompts=prompts, prompt_tag=tag)
        proof["heldout"] = asdict(compare(policy, scores))
        proof["merged_answers"] = merged_texts[:5]
    return proof


def _load_policy(base: str, adapter: str, dequantize: bool, pictures: bool) -> tuple[Any, Any]:
    """(the base with the adapter in layers that can be merged, tokenizer), where it fits.

    Raises WorkbookError if the base's files hold quantized weights.
    """
    # In the dtype of the files, until it is known how many weights there are. `merge` has compared
    # the base by its hash, so that another name for it is no error here.
    model, tokenizer = models.load_model(
        base, adapter, dtype="auto", dequantize=dequantize, any_base=True, pictures=pictures
    )
    if getattr(model.config, "quantization_config", None):
        raise WorkbookError(
            f"{readable(base)} has quantized weights, which would round the merge: give its 16-bit "
            "model with --base, or merge into its dequantized weights with --dequantize"
        )
    device, dtype = _device_and_dtype(model.num_parameters())
    return model.to(device=device, dtype=dtype), tokenizer


def _greedy_answers(
    model: Any,
    tokenizer: Any,
    prompts: Sequence,
    sampling: Sampling,
    images: Sequence[Any] | None,
) -> list[str]:
    """The model's answers, in this process alone."""
    completions = complete(
        model, tokenizer, prompts, sampling, images=images, progress="answering", share=False
    )
    return [completion.text for completion in completions]


def is_proved(proof: Mapping[str, Any]) -> bool:
    """Whether the base with the adapter and the merged weights are the same policy up to rounding.

    The held-out accuracy must not lie below the 95 % interval of the policy's, unless chance can
    explain it (p of 0.01 or more). A higher one is fine: 16 bits may answer better than 4.
    """
    if not _is_same(proof):
        return False
    if "heldout" not in proof:
        return True
    strict = proof["heldout"]["strict"]
    lowest, _ = strict["before_interval"]
    return strict["after"] >= lowest or strict["p_value"] >= 0.01


def _is_same(differences: Mapping[str, Any]) -> bool:
    """Whether two models are the same up to rounding, by their logits; False for NaN, too."""
    return (
        differences["same_greedy_tokens"] >= SAME_TOKENS
        and differences["relative_logit_difference"] <= RELATIVE
    )


def _why_not(proof: Mapping[str, Any]) -> str:
    """The cause and the numbers of a proof that failed, as a sentence without its full stop."""
    merge_error = (
        f"its logits differ by {proof['relative_logit_difference']:.1%} of their spread (at most "
        f"{RELATIVE:.0%}) from those of the base with the adapter, and it chooses the same token "
        f"at {proof['same_greedy_tokens']:.2%} of the positions (at least {SAME_TOKENS:.0%})"
    )
    if not _is_same(proof):
        return f"the merged model is not the same: {merge_error}"
    strict = proof["heldout"]["strict"]
    low, high = strict["before_interval"]
    answers = (
        f"it solves {strict['after']:.1%} of {proof['heldout']['n']} held-out problems, but the "
        f"trained policy {strict['before']:.1%} (95 % interval {low:.1%} to {high:.1%})"
    )
    base_change = proof["base_change"]
    if base_change is None or _is_same(base_change):
        return (
            f"the merge is right ({merge_error}), but the merged model is another policy: {answers}"
        )
    return (
        f"the merge is right ({merge_error}), but the change of base is not: with the 16-bit base "
        f"instead of the 4-bit base of the training, the logits differ by "
        f"{base_change['relative_logit_difference']:.1%} and the same token is chosen at "
        f"{base_change['same_greedy_tokens']:.2%} of the positions. So {answers}. Merge into the "
        "dequantized 4-bit base: dequantize=True, or --dequantize"
    )


# ---------------------------------------------------------------------------- comparing logits


def compare_logits(
    ours: Any,
    merged: Any,
    tokenizer: Any,
    prompts: Sequence,
    completions: Sequence[str],
    *,
    images: Sequence[Any] | None = None,
) -> dict[str, float]:
    """How far two models differ on the same tokens: prompts with their completions.

    Args:
        ours, merged: the models.
        tokenizer: of both; the processor, if there are images.
        prompts: chats.
        completions: a text for each prompt.
        images: the pictures of each prompt, as in `evaluation.generate`.

    Returns:
        The largest logit difference; the root mean square difference relative to the standard
        deviation of the logits; the fraction of positions where both choose the same token. A NaN
        among the logits makes both differences NaN.
    """
    before = read_logits(ours, tokenizer, prompts, completions, images=images)
    after = read_logits(merged, tokenizer, prompts, completions, images=images)
    return logit_differences(before, after)


def read_logits(
    model: Any,
    tokenizer: Any,
    prompts: Sequence,
    completions: Sequence[str],
    chat_template_kwargs: Mapping[str, Any] | None = None,
    images: Sequence[Any] | None = None,
) -> "list[Tensor]":
    """The logits of each completion, on the CPU, as far as LOGIT_BYTES go.

    One tensor (tokens of the completion + 1, vocabulary) for each: before every token and after the
    last. Each is read alone, because padding would change the rounding.
    """
    import torch

    result = []
    # Logits are kept in float32: 4 bytes for each entry of the vocabulary.
    vocabulary = model.config.get_text_config().vocab_size
    room = LOGIT_BYTES // (4 * vocabulary)  # positions
    # An equal share for each completion. If that is little, fewer completions are read instead.
    longest = max(64, room // len(prompts))
    rendered, _ = texts_of(prompts, images, tokenizer, chat_template_kwargs)
    for row, (prompt, completion) in enumerate(zip(rendered, completions, strict=True)):
        # Apart from each other, because no token of a completion reaches into its prompt.
        answer = tokenizer_of(tokenizer)(completion, add_special_tokens=False)["input_ids"]
        answer = answer[:longest]
        positions = len(answer) + 1
        room -= positions
        # One completion is compared whatever it takes.
        if room < 0 and result:
            break
        pictures = [] if images is None else pictures_in(images[row])
        inputs = _with_answer(tokenizer, prompt, pictures, answer)
        with torch.no_grad():
            # Those of the prompt are not compared, and would take memory.
            logits = model(**inputs.to(model.device), logits_to_keep=positions).logits
        result.append(logits[0, -positions:].float().cpu())
    return result


def _with_answer(tokenizer: Any, prompt: str, pictures: list, answer: list[int]) -> Any:
    """The model's input for a prompt with its pictures, and the tokens of an answer after it."""
    import torch

    inputs = encode(tokenizer, [prompt], [pictures], add_special_tokens=False)
    tokens = torch.tensor([answer], dtype=torch.long)  # named: an empty answer would be float
    length = inputs["input_ids"].shape[1]
    for name, value in inputs.items():
        if name == "input_ids":
            inputs[name] = torch.cat([value, tokens], dim=1)
        elif name == "attention_mask":
            inputs[name] = torch.cat([value, torch.ones_like(tokens)], dim=1)
        # What else has a value for each token, such as token_type_ids, marks the pictures by it.
        elif value.shape[:2] == (1, length):
            inputs[name] = torch.cat([value, torch.zeros_like(tokens)], dim=1)
    return inputs


def logit_differences(before: "list[Tensor]", after: "list[Tensor]") -> dict[str, Any]:
    """What `compare_logits` returns, from logits that were read."""
    import torch

    by_completion = []  # tensors of (4 measures, positions)
    for ours, theirs in zip(before, after, strict=True):  # (positions, vocabulary)
        difference = ours - theirs
        same_token = (ours.argmax(-1) == theirs.argmax(-1)).float()
        largest = difference.abs().amax(-1)
        by_completion.append(
            torch.stack([largest, difference.square().mean(-1), ours.var(-1), same_token])
        )
    by_position = torch.cat(by_completion, dim=1).double()
    largest, square, variance, same_token = by_position
    return {
        "max_abs_logit_difference": round(largest.max().item(), 5),
        "relative_logit_difference": round((square.mean() / variance.mean()).sqrt().item(), 5),
        "same_greedy_tokens": round(same_token.mean().item(), 5),
    }


# ---------------------------------------------------------------------------- the adapter's run


def settings_of_run(model: str | Path) -> dict[str, Any]:
    """The settings of the run that an adapter, a merged model or a checkpoint is from, or {}."""
    place = files.place_of(model)
    if not place.is_dir():  # a hub id, which has nothing beside it
        return {}
    folder = place.parent
    if place.match("checkpoints/checkpoint-*"):  # where a run lets its trainer save
        folder = folder.parent
    return _read(folder / "run.json").get("settings", {})


def _problems_of_run(
    adapter: str, system_prompt: str | None, judge: CorrectnessJudge | None
) -> Problems:
    """The held-out problems of the adapter's run with the policy's greedy answers; else sums."""
    # `run` writes this file when it measures the trained policy (see cli/run.py).
    after = _read(Path(adapter).parent / "after.json")
    prompts = after.get("prompt")
    if prompts is None:  # of an earlier version, or no run's
        questions = after.get("question", SUMS)
        prompts = [chat_prompt(question, system_prompt) for question in questions]
    answers_are_text = after.get("kind") == "text"
    # Texts cannot be scored without a judge. Then the logits alone are compared.
    if not after or (answers_are_text and judge is None):
        return Problems(prompts)
    # The caller does not know the run: its judge is for answers that are texts.
    if not answers_are_text:
        judge = None
    return Problems(prompts, after["answer"], after["heldout"]["greedy"], judge=judge)


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    return files.read_object(path, "restore it, or move the model to another folder")


def _check_folder(folder: Path, adapter: str, base: str) -> None:
    """Raise WorkbookError if the merged model must not go there."""
    place = files.place_of(folder)
    # The folder is replaced, and with it everything inside.
    for kept in (adapter, base):
        if files.place_of(kept).is_relative_to(place):
            raise WorkbookError(f"{folder} holds the adapter or its base: choose another folder")
    has_files = folder.is_file() or any(folder.glob("*"))
    # An earlier model may be replaced, but no other files.
    if has_files and not (folder / "config.json").is_file():
        raise WorkbookError(f"{folder} has files but no model: choose another folder")


def _device_and_dtype(weights: int) -> tuple[str, Any]:
    """(device, dtype) for so many weights: the GPU, and float32, if they leave room to answer."""
    import psutil
    import torch

    room = {}
    if torch.cuda.is_available():
        room["cuda"] = torch.cuda.mem_get_info()[0]
    room["cpu"] = psutil.virtual_memory().available
    for device, free in room.items():
        # bytes for a weight, and for its part of the keys, the values and the rest
        for dtype, size in ((torch.float32, 9), (torch.bfloat16, 3)):
            if size * weights < free:
                return device, dtype
    # Too large by this estimate everywhere: it is tried in the smallest form.
    return "cpu", torch.bfloat16


# ---------------------------------------------------------------------------- the card

# A path of two folders or more; not </answer>, not a/b, not https://...
_PATH = re.compile(r"(?<![\w:/.<])(?:/|~/)(?:[^\s/,:;\"'|=]+/)+([^\s/,:;\"'|=]+)")


def write_card(
    folder: str | Path,
    report: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    base: str | Path,
) -> None:
    """Write the model card, README.md, of a merged model or an adapter.

    Local names appear in the text only, and without their path.

    Args:
        folder: of the model.
        report: a run's report.json, or the part of it that is known.
        settings: a run's settings.
        base: the folder or hub id of the base.
    """
    from huggingface_hub import ModelCard, ModelCardData

    folder = Path(folder)
    is_adapter = (folder / "adapter_config.json").is_file()
    pictures = models.has_processor(folder)
    heldout = report.get("heldout", {})
    data = report.get("data", {})
    # The held-out data first: the numbers are of it.
    sources = [data[name] for name in ("heldout_source", "source") if data.get(name)]
    source = sources[0] if sources else "word_problems"
    # The hub reads the metadata, and knows nothing of local files.
    hub_ids = {hub_id for hub_id in map(_hub_id, sources) if hub_id is not None}

    metadata = ModelCardData(
        base_model=_hub_id(base),
        datasets=sorted(hub_ids) or None,
        pipeline_tag="image-text-to-text" if pictures else "text-generation",
        library_name="peft" if is_adapter else "transformers",
        tags=["grpo", "trl"] if heldout else None,
    )
    text_weights = None
    if not pictures:
        # Whether only the text part of a model with vision or sound was taken: the card says so.
        with suppress(OSError):  # a base on the hub, and no network
            text_weights = models.text_part(str(base)).get("key_mapping")
    card = ModelCard.from_template(
        metadata,
        template_path=str(Path(__file__).with_name("model_card.jinja")),
        report=report,
        settings=settings,
        adapter=is_adapter,
        measured=heldout if is_adapter else _measured_after_merge(report),
        measures=("strict", "lenient", "well_formed"),
        describe_gain=describe_gain,
        sampled=heldout.get("sampled", {}).get("strict"),
        base=_hub_id(base) or readable(base),
        base_hash=models.fingerprint(base),
        source=Path(source).name,
        dataset=_hub_id(source) or Path(source).stem,
        messages=json.dumps(_example(folder, data, settings), indent=4, ensure_ascii=False),
        text_part=text_weights,
        pictures=pictures,
    )
    with files.whole_file(folder / "README.md") as path:
        path.write_text(_PATH.sub(r"\1", str(card)), encoding="utf-8")


def _measured_after_merge(report: Mapping[str, Any]) -> dict[str, Any]:
    """What the merged weights answered themselves, by way of decoding; empty outside of a run.

    The rates in report["heldout"] are those of the base with the adapter beside it.
    """
    proof = report.get("merge", {})
    if "heldout" in report and "heldout" in proof:
        return {"greedy": proof["heldout"]}
    return {}


def _example(folder: Path, data: Mapping[str, Any], settings: Mapping[str, Any]) -> list[dict]:
    """A prompt such as the policy was trained on, with its instruction in its place."""
    # Conversations may have a system message of their own.
    own_messages = data.get("system_messages")
    system_prompt = own_messages[0] if own_messages else settings.get("system_prompt")
    prompt = chat_prompt(QUESTION.format(7, 5), system_prompt)
    # The template of a model with vision may stand in its processor alone.
    load_reader = load_processor if models.has_processor(folder) else load_tokenizer
    if needs_folding(load_reader(folder)):
        return fold_system(prompt)
    return prompt


def _hub_id(name: object) -> str | None:
    """The hub id in the name of a model or data set; None for a local path."""
    text = str(name).split(":")[0]
    is_file = Path(text).suffix in FORMATS or files.place_of(text).exists()
    if is_file or not re.fullmatch(r"\w[\w.-]*/[\w.-]+", text):
        return None
    return text
