"""From a source of problems to the model's input.

`reading` reads and checks the rows of any file, `chats` knows the forms of conversations, `prompts`
makes the model's input of the rows and measures its length, `splitting` holds some rows out, and
`duplicates` finds questions that repeat each other.
"""

from grpo_workbook.data.duplicates import drop_leaked, leaked_rows
from grpo_workbook.data.prompts import (
    chat_prompt,
    drop_long_prompts,
    load_tokenizer,
    render,
    to_dataset,
)
from grpo_workbook.data.reading import WORD_PROBLEMS, check_problems, load_problems
from grpo_workbook.data.splitting import load_split, split

__all__ = [
    "WORD_PROBLEMS",
    "chat_prompt",
    "check_problems",
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
