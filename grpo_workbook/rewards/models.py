"""Reward models as rewards: sequence classification models, which TRL takes by name, too.

`RewardModel("folder or hub id")` is a reward function with the values that the model has in TRL's
GRPOTrainer. In a training TRL gets its `model`, and calls it by itself.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.files import readable
from grpo_workbook.rewards.contract import Completion, text_of

__all__ = ["RewardModel"]

BATCH = 16  # conversations that are read at once


class RewardModel:
    """The score that a reward model gives to each conversation: its logit, which has no bounds.

        before = evaluate(model, tokenizer, heldout, rewards=[RewardModel("mine/rm")], right_at=0.5)

    Args:
        model: a folder or a hub id of a sequence classification model with one label, or such a
            model. It is loaded when it is first needed.

    Raises:
        WorkbookError: when it is loaded, for a model that is missing, has no score or several, or
            has no chat template where the prompts are chats.
    """

    def __init__(self, model: Any):
        if isinstance(model, str | Path):
            self.source = str(model).rstrip("/")
        else:
            self.source = model.config.name_or_path
            self.model = model
        self.__name__ = Path(self.source).name  # as TRL names it in the log

    @cached_property
    def model(self) -> Any:
        """The model, with a token for padding, on the GPU if there is one."""
        import torch
        from transformers import AutoModelForSequenceClassification

        try:
            loaded: Any = AutoModelForSequenceClassification.from_pretrained(
                self.source, num_labels=1, use_safetensors=True, output_loading_info=True
            )
        except Exception as error:  # a damaged file can raise anything
            raise WorkbookError(
                f"the reward model {readable(self.source)} cannot be loaded ({first_line(error)}): "
                "give the folder or the hub id of a sequence classification model with one label"
            ) from error
        model, loading = loaded
        missing = loading["missing_keys"]
        # Transformers warns only, and fills it with random numbers.
        if missing:
            raise WorkbookError(
                f"{readable(self.source)} is no reward model: it lacks weights for {min(missing)}. "
                "Give one that was trained to score, such as by TRL's RewardTrainer"
            )
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return model.eval().to(device)

    @cached_property
    def tokenizer(self) -> Any:
        """The model's own tokenizer, which TRL uses for it, too."""
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(self.source)
        except Exception as error:  # a damaged file can raise anything
            raise WorkbookError(
                f"the reward model {readable(self.source)} has no tokenizer that can be loaded "
                f"({first_line(error)}): save its tokenizer beside it"
            ) from error
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        # The score is that of the last token that is not this one.
        self.model.config.get_text_config().pad_token_id = tokenizer.pad_token_id
        return tokenizer

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Completion], **columns: Any
    ) -> list[float | None]:
        """The score of each prompt with its completion, as in TRL."""
        import torch

        texts = self._texts(prompts, completions)
        scores: list[float | None] = []
        for first in range(0, len(texts), BATCH):
            batch = self.tokenizer(
                text=texts[first : first + BATCH],
                return_tensors="pt",
                padding=True,
                padding_side="right",
                add_special_tokens=False,
            )
            with torch.inference_mode():
                logits = self.model(**batch.to(self.model.device)).logits  # (batch, 1)
            scores.extend(logits[:, 0].tolist())
        return scores

    def _texts(self, prompts: Sequence[Any], completions: Sequence[Completion]) -> list[str]:
        """Each conversation as the reward model reads it."""
        texts = []
        for prompt, completion in zip(prompts, completions, strict=True):
            if isinstance(prompt, str):
                texts.append(prompt + text_of(completion))
                continue
            if not self.tokenizer.chat_template:
                raise WorkbookError(
                    f"the prompts are chats, and the reward model {readable(self.source)} has no "
                    "chat template: save one with its tokenizer"
                )
            chat = [*prompt, *completion]
            texts.append(self.tokenizer.apply_chat_template(chat, tokenize=False))
        return texts
