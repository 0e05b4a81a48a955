"""From a source of problems to the model's input: rows, chat prompts, the split, duplicates."""

from grpo_workbook.data.duplicates import drop_leaked, leaked_rows
from grpo_workbook.data.prompts import (
    chat_prompt,
    drop_long_prompts,
    load_tokenizer,
    render,
    to_dataset,
)
from grpo_workbook.data.reading import KNOWLEDGE_BASE, WORD_PROBLEMS, load_problems
from grpo_workbook.data.splitting import load_split, split

__all__ = [
    "KNOWLEDGE_BASE",
    "WORD_PROBLEMS",
    "chat_prompt",
    "drop_leaked",
    "drop_long_prompts",
    "leaked_rows",
    "load_problems",
    "load_split",
    "load_tokenizer",
    "render",
    "split",
    "to_dataset",
]
