"""Play episodes as TRL's trainer does, without training: greedy or sampled, with transcripts."""

import asyncio
import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from grpo_workbook.config import CHAT_TEMPLATE_KWARGS
from grpo_workbook.environments.tools import BROKEN
from grpo_workbook.evaluation import SEEDS_APART, Sampling, end_tokens
from grpo_workbook.rewards import reward


@dataclass
class Episode:
    """What happened after a prompt: TRL's messages, the number of calls and of failed ones.

    `ids` are the tokens after those of the prompt; `mask` has 1 for the model's own and 0 for tool
    results and headers, as TRL's tool_mask.
    """

    messages: list[dict] = field(default_factory=list)
    calls: int = 0
    failures: int = 0
    environment: Any = None
    tools: dict[str, Callable] = field(default_factory=dict)
    prompt_ids: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)

    def right(self, row: dict) -> bool:
        """Whether the environment pays 1, or, if it pays nothing, the last message is `answer`."""
        if hasattr(self.environment, "get_reward"):
            return self.environment.get_reward() == 1
        return final_answer(self.messages) == row["answer"]

    def awaits(self, call: dict) -> bool:
        """Whether a call is of an async tool."""
        return inspect.iscoroutinefunction(self.tools.get(call["name"]))


def final_answer(completion: Sequence[dict]) -> str | None:
    """The text of the last message, if the model wrote it and calls nothing in it; else None.

    None is also the answer that a call swallowed: a conversation that ends with a call, or with a
    tool's result, has none.
    """
    last = completion[-1] if completion else {}
    return (
        last["content"] if last.get("role") == "assistant" and not last.get("tool_calls") else None
    )


def tool_results(completion: Sequence[dict]) -> list[str]:
    """What tools answered, in order. A text that only looks like a result is not among them."""
    return [str(m["content"]) for m in completion if m["role"] == "tool"]


def tool_broke(completion: Sequence[dict]) -> bool:
    """Whether a tool failed by its own fault: such a completion cannot be judged.

    TRL writes errors as a dict's text. Ours open with BROKEN, which nothing a model sends can do.
    """
    opening = ("{'error': '" + BROKEN, "{'error': \"" + BROKEN)
    return any(text.startswith(opening) for text in tool_results(completion))


def lost_result(completion: Sequence[dict]) -> bool:
    """Whether the conversation ends in a call: its result did not fit, or no turn was left.

    TRL runs the tool, drops a result that would exceed max_completion_length, and logs nothing.
    """
    return bool(completion and completion[-1].get("tool_calls"))


def answer_after_tools(price: float = 0.0) -> Callable:
    """A reward for TRL: 1.0 if the last message is exactly the column `answer`, else 0.0.

    Each call costs `price`. None where a tool failed by its own fault; logs the rate of such
    failures (tools/broken). What became of the calls, `diagnosis.watch` logs for any reward.
    """

    @reward(role="correctness", columns=("answer",))
    def answer_reward(completions, answer, log_metric=None, **columns) -> list[float | None]:
        rewards = []
        for messages, wanted in zip(completions, answer, strict=True):
            right = final_answer(messages) == wanted
            calls = sum(len(m.get("tool_calls") or ()) for m in messages)
            rewards.append(None if tool_broke(messages) else right - price * calls)
        if log_metric:
            log_metric("tools/broken", sum(map(tool_broke, completions)) / len(completions))
        return rewards

    return answer_reward


def tool_suffix(tokenizer, results: Sequence[dict]) -> list[int]:
    """The tokens between the end of a call and the model's next turn: the results, and headers.

    Rendered as part of a short conversation, of which the first two end tokens are cut off: the
    user's and the call's. (TRL takes a difference, for which it needs its training template.)
    """
    call = {"type": "function", "function": {"name": results[0]["name"], "arguments": {}}}
    start = [
        {"role": "user", "content": ""},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]
    ids = tokenizer.apply_chat_template(
        [*start, *results], add_generation_prompt=True, return_dict=False, **CHAT_TEMPLATE_KWARGS
    )
    ends = [i for i, token in enumerate(ids) if token == tokenizer.eos_token_id]
    return ids[ends[1] + 1 :]


def replay(
    model, tokenizer, rows: Sequence[dict], *, tools=(), environment=None, max_turns=5, **how
) -> list[Episode]:
    """Let the model act for each row (`prompt`, and what `environment.reset` needs).

    `max_turns`: at most so many calls, then one answer: TRL's max_tool_calling_iterations. `how`:
    sample, temperature, seed, batch_size, and max_new_tokens for everything after the prompt, tool
    results included: TRL's max_completion_length (see `evaluation.Sampling`).
    """
    import torch
    from trl.chat_template_utils import add_response_schema

    if getattr(tokenizer, "response_template", None) is None:
        add_response_schema(tokenizer)  # how calls are read: TRL knows templates by their text
    settings, was_training, episodes = Sampling(**how), model.training, []
    devices = [model.device] if model.device.type == "cuda" else []
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices):
            for start in range(0, len(rows), settings.batch_size):
                torch.manual_seed(settings.seed * SEEDS_APART + start)
                batch = [
                    _begin(tokenizer, row, list(tools), environment and environment())
                    for row in rows[start : start + settings.batch_size]
                ]
                _play(model, tokenizer, batch, settings, max_turns)
                episodes += batch
    finally:
        model.train(was_training)
    return episodes


def tools_of(environment) -> list[Callable]:
    """The methods of an environment that a model may call, in TRL's order."""
    names = [name for name, _ in inspect.getmembers(type(environment), inspect.isfunction)]
    own = [n for n in names if not n.startswith("_") and n not in ("reset", "get_reward")]
    return [getattr(environment, name) for name in own]


def _begin(tokenizer, row: dict, tools: list[Callable], environment) -> Episode:
    if environment:
        environment.reset(**row)
        tools = [*tools, *tools_of(environment)]  # TRL's order
    how = {"add_generation_prompt": True, "return_dict": False, **CHAT_TEMPLATE_KWARGS}
    prompt = tokenizer.apply_chat_template(row["prompt"], tools=tools or None, **how)
    known = {function.__name__: function for function in tools}
    return Episode(environment=environment, prompt_ids=prompt, tools=known)


def _play(model, tokenizer, episodes: list[Episode], how: Sampling, max_turns: int) -> None:
    from trl.chat_template_utils import parse_response

    active = episodes
    for turn in range(max_turns + 1):
        texts = _generate(model, tokenizer, [e.prompt_ids + e.ids for e in active], how)
        calling = []
        for episode, new in zip(active, texts, strict=True):
            new, before = new[: how.max_new_tokens - len(episode.ids)], episode.prompt_ids
            message = {"role": "assistant", "content": ""}
            if new:
                message = parse_response(tokenizer, new, prefix=before + episode.ids)
            episode.messages.append(message)
            episode.ids, episode.mask = episode.ids + new, episode.mask + [1] * len(new)
            if turn == max_turns or not (calls := message.get("tool_calls")):
                continue
            calls = sorted((c["function"] for c in calls), key=episode.awaits)  # last, as in TRL
            results = [_call(episode, call) for call in calls]
            new = tool_suffix(tokenizer, results)
            if len(episode.ids) + len(new) <= how.max_new_tokens:  # else it is lost, as in TRL
                episode.ids, episode.mask = episode.ids + new, episode.mask + [0] * len(new)
                episode.messages += results
                calling.append(episode)
        if not (active := calling):
            return


def _call(episode: Episode, call: dict) -> dict:
    episode.calls += 1
    try:
        if call["name"] not in episode.tools:
            raise ValueError(f"Tool {call['name']} not found.")
        content = episode.tools[call["name"]](**call["arguments"])
        if episode.awaits(call):
            content = asyncio.run_coroutine_threadsafe(content, _loop()).result()
        content = str(content)
    except Exception as error:  # TRL shows every error to the model
        episode.failures += 1
        content = str({"error": str(error)})
    return {"role": "tool", "name": call["name"], "content": content}


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """An event loop in a thread of its own, as TRL's: a notebook's main thread already has one."""
    from trl.trainer.utils import start_event_loop_in_daemon

    _, loop, ready = start_event_loop_in_daemon("replay")
    ready.wait()
    return loop


def _generate(model, tokenizer, contexts: list[list[int]], how: Sampling):
    """The new tokens after each context, up to and with the end token."""
    batch = tokenizer.pad({"input_ids": contexts}, padding_side="left", return_tensors="pt")
    ends = end_tokens(model, tokenizer)
    way = {"do_sample": how.sample, "max_new_tokens": how.max_new_tokens, "use_cache": True}
    way |= {"temperature": how.temperature, "top_p": 1.0, "top_k": 0} if how.sample else {}
    way |= {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": ends}
    out = model.generate(**batch.to(model.device), **way)
    for new in out[:, batch["input_ids"].shape[1] :].tolist():
        yield new[: next((i for i, token in enumerate(new, 1) if token in ends), len(new))]
