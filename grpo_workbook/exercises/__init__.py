"""The exercises of the notebooks: `check("04.1", fn)` judges a function, `predict` a prediction.

The answer to a check is "not attempted", the name of the mistake, or "solved", which is recorded.
`tasks.py` has the form of an exercise, `ch00.py` to `ch17.py` have the exercises of each chapter,
`checking.py` judges, `progress.py` keeps what was solved, and `course.py` shows it.
"""

from grpo_workbook.exercises.ch05 import CLINIC
from grpo_workbook.exercises.checking import check, judge, predict
from grpo_workbook.exercises.course import course_map

__all__ = ["CLINIC", "check", "course_map", "judge", "predict"]
