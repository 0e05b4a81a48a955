"""Play episodes as TRL's trainer does, without training: greedy or sampled, with transcripts.

A turn of the model is generated for all episodes of a batch at once. Where it calls tools, they
run, their results are appended to the conversation's tokens, and the next turn follows, until the
model answers, no turn is left, or a result does not fit. This is what GRPOTrainer of TRL 1.15 does
in `_tool_call_loop`, token by token.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grpo_workbook.config import CHAT_TEMPLATE_KWARGS
from grpo_workbook.environments.transcripts import final_answer
from grpo_workbook.errors import WorkbookError
from grpo_workbook.evaluation import SEEDS_APART, Sampling, complete_batch, undisturbed


@dataclass
class Episode:
    """What happened after a prompt: TRL's messages, and the number of calls."""

    environment: Any  # its instance, or None
    tools: dict[str, Callable]  # by name, the environment's among them
    prompt_ids: list[int]  # the tokens of the prompt
    messages: list[dict] = field(default_factory=list)  # after the prompt
    calls: int = 0
    ids: list[int] = field(default_factory=list)  # the tokens after those of the prompt
    mask: list[int] = field(default_factory=list)  # 1 for the model's tokens, 0: results, headers

    def right(self, row: dict[str, Any]) -> bool:
        """Whether the environment pays 1, or, if it pays nothing, the last message is `answer`."""
        if hasattr(self.environment, "get_reward"):
            return self.environment.get_reward() == 1
        return final_answer(self.messages) == row["answer"]


def play_episodes(
    model: Any,
    tokenizer: Any,
    rows: Sequence[dict[str, Any]],
    *,
    tools: Sequence[Callable] = (),
    environment: Callable | None = None,
    max_turns: int = 5,
    max_new_tokens: int = 256,
    sample: bool = False,
    batch_size: int = 32,
    seed: int = 0,
    chat_template_kwargs: Mapping[str, Any] = CHAT_TEMPLATE_KWARGS,
) -> list[Episode]:
    """Let the model act for each row.

    Args:
        model: a causal language model.
        tokenizer: with a chat template that TRL knows, or a `response_template`.
        rows: dicts with `prompt` (a chat), and what `environment.reset` needs.
        tools: functions that the model may call.
        environment: makes an environment for each row, whose public methods are tools too.
        max_turns: at most so many turns with calls, then an answer: TRL's
            max_tool_calling_iterations.
        max_new_tokens: of everything after the prompt, tool results included: TRL's
            max_completion_length.
        sample: sample at temperature 1 instead of taking the most likely token.
        batch_size: rows that are played at once.
        seed: of the sampling.
        chat_template_kwargs: those of the training's GRPOConfig, or {} where it has none. Default:
            those of the profiles, which switch thinking off.

    Returns:
        An Episode for each row.
    """
    import torch
    from trl.chat_template_utils import add_response_schema

    if getattr(tokenizer, "response_template", None) is None:
        add_response_schema(tokenizer)  # how calls are read: TRL knows templates by their text
    sampling = Sampling(
        max_new_tokens=max_new_tokens,
        sample=sample,
        seed=seed,
        batch_size=batch_size,
        chat_template_kwargs=chat_template_kwargs,
    )
    episodes: list[Episode] = []
    with undisturbed(model):
        for start in range(0, len(rows), batch_size):
            # Each batch has a seed of its own, as in `evaluation.complete`.
            torch.manual_seed(seed * SEEDS_APART + start)
            batch = []
            for row in rows[start : start + batch_size]:
                batch.append(
                    _start_episode(tokenizer, row, tools, environment, chat_template_kwargs)
                )
            _play_batch(model, tokenizer, batch, sampling, max_turns)
            episodes.extend(batch)
    return episodes


def _start_episode(
    tokenizer: Any,
    row: dict[str, Any],
    tools: Sequence[Callable],
    environment: Callable | None,
    chat_template_kwargs: Mapping[str, Any],
) -> Episode:
    """The episode of a row before the model's first turn."""
    chat = list(row["prompt"])
    functions = list(tools)
    instance = None
    if environment is not None:
        instance = environment()
        addition = instance.reset(**row)
        if addition:
            # As in TRL, what `reset` returns ends the user's message. The row's own message stays.
            chat[-1] = {**chat[-1], "content": chat[-1]["content"] + addition}
        functions.extend(_methods(instance))
    prompt_ids = tokenizer.apply_chat_template(
        chat,
        tools=functions or None,
        add_generation_prompt=True,
        return_dict=False,
        **chat_template_kwargs,
    )
    return Episode(instance, {function.__name__: function for function in functions}, prompt_ids)


def _methods(environment: Any) -> list[Callable]:
    """The methods of an environment that a model may call, in TRL's order."""
    methods = []
    for name, _ in inspect.getmembers(type(environment), inspect.isfunction):
        if not name.startswith("_") and name not in ("reset", "get_reward"):
            methods.append(getattr(environment, name))
    return methods


def _play_batch(
    model: Any, tokenizer: Any, episodes: list[Episode], sampling: Sampling, max_turns: int
) -> None:
    """Play episodes side by side to their end."""
    template = _template_for_results(tokenizer)
    limit = sampling.max_new_tokens
    playing = _write_turns(model, tokenizer, episodes, sampling)  # those that call tools
    # In each round the calls of the last turn are run, and the next turn is written. An episode
    # whose turn calls nothing has ended.
    for _ in range(max_turns):
        have_results = []
        for episode in playing:
            results = _call_tools(episode)
            result_ids = _result_ids(
                tokenizer, template, results, sampling.chat_template_kwargs or {}
            )
            # A result that does not fit is dropped, and the episode ends with the call: as in TRL,
            # where the tool has run all the same.
            fits = len(episode.ids) + len(result_ids) <= limit
            total = len(episode.prompt_ids) + len(episode.ids) + len(result_ids)
            if fits and total < model.config.get_text_config().max_position_embeddings:
                episode.messages.extend(results)
                episode.ids.extend(result_ids)
                episode.mask.extend([0] * len(result_ids))
                have_results.append(episode)
        if not have_results:
            return
        playing = _write_turns(model, tokenizer, have_results, sampling)


def _write_turns(
    model: Any, tokenizer: Any, episodes: list[Episode], sampling: Sampling
) -> list[Episode]:
    """Generate the model's next turn in each episode; returns those in which it calls tools."""
    from trl.chat_template_utils import parse_response

    contexts = [episode.prompt_ids + episode.ids for episode in episodes]
    turns = complete_batch(model, tokenizer, contexts, sampling)
    calling = []
    for episode, context, turn in zip(episodes, contexts, turns, strict=True):
        # Every turn may be as long as the whole completion, and is then cut to what is left.
        ids = turn.tokens[: sampling.max_new_tokens - len(episode.ids)]
        # The results have filled the completion to its last token.
        if not ids:
            continue
        # The prefix tells the parser what the template itself has opened, such as a thought.
        message = parse_response(tokenizer, ids, prefix=context)
        episode.messages.append(message)
        episode.ids.extend(ids)
        episode.mask.extend([1] * len(ids))
        if message.get("tool_calls"):
            calling.append(episode)
    return calling


def _call_tools(episode: Episode) -> list[dict]:
    """Run the calls of the last message; returns the messages with their results."""
    results = []
    for call in episode.messages[-1]["tool_calls"]:
        name = call["function"]["name"]
        # TRL counts a call of an unknown tool, too, and answers it with these words.
        episode.calls += 1
        try:
            if name not in episode.tools:
                raise ValueError(f"Tool {name} not found.")
            result = episode.tools[name](**call["function"]["arguments"])
        except Exception as error:  # the model reads it, whatever it is
            result = {"error": str(error)}
        # A list is content with images, which TRL passes on as it is.
        content = result if isinstance(result, list) else str(result)
        results.append({"role": "tool", "name": name, "content": content})
    return results


def _template_for_results(tokenizer: Any) -> str | None:
    """The template of TRL's trainer for results; None is the tokenizer's own.

    A template may write a call otherwise when its result follows, and then TRL takes another.
    """
    from trl.chat_template_utils import (
        get_training_chat_template,
        is_chat_template_prefix_preserving,
    )

    if is_chat_template_prefix_preserving(tokenizer):
        return None
    return get_training_chat_template(tokenizer)


def _result_ids(
    tokenizer: Any,
    template: str | None,
    results: list[dict],
    chat_template_kwargs: Mapping[str, Any],
) -> list[int]:
    """The tokens of tool results, and of the header of the model's next turn.

    They are what a conversation with the results has more than one without them.
    """
    # The real conversation is not rendered again: a template may change earlier turns, and what the
    # model wrote must keep its tokens. The tool's name is real, because some templates repeat it
    # before the result.
    call = {"type": "function", "function": {"name": results[0]["name"], "arguments": {}}}
    conversation = [
        {"role": "user", "content": "dummy"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]

    def tokens(messages: list[dict], add_generation_prompt: bool) -> list[int]:
        return tokenizer.apply_chat_template(
            messages,
            add_generation_prompt=add_generation_prompt,
            tokenize=True,
            chat_template=template,
            return_dict=False,
            **chat_template_kwargs,
        )

    prefix = tokens(conversation, add_generation_prompt=False)
    whole = tokens([*conversation, *results], add_generation_prompt=True)
    # Qwen's template writes a line end after the end token, which the model does not.
    while tokenizer.eos_token_id in prefix and prefix[-1] != tokenizer.eos_token_id:
        prefix.pop()
    if whole[: len(prefix)] != prefix:
        raise WorkbookError("the chat template writes a call otherwise when its result follows")
    return whole[len(prefix) :]
