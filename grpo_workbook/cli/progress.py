"""`python -m grpo_workbook progress`: which exercises you have solved."""

import json

from grpo_workbook.cli import add_command


def add_parser(commands) -> None:
    """Add progress to the command line."""
    add = add_command(commands, "progress", "which exercises you have solved")
    add("--json", action="store_true", help="a list with the day of each solution, to collect")


def main(args) -> int:
    """Print the progress; 0."""
    from grpo_workbook import exercises

    if not args.json:
        return exercises.show_progress()
    exercises.load_all()
    done, tasks = exercises.solved(), sorted(exercises.EXERCISES.items())
    rows = [
        {"number": number, "name": task.name, "notebook": task.notebook, "solved": done.get(number)}
        for number, task in tasks
    ]
    print(json.dumps(rows, indent=1))
    return 0
