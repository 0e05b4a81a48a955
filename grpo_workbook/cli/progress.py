"""Which exercises you have solved."""

import json

from grpo_workbook.cli import option

OPTIONS = [option("--json", action="store_true", help="a list with the day of each, to collect")]


def main(args) -> int:
    """Print the progress; 0."""
    from grpo_workbook import exercises

    if not args.json:
        return exercises.show_progress()
    exercises.load_all()
    done, rows = exercises.solved(), []
    for number, task in sorted(exercises.EXERCISES.items()):
        named = {"number": number, "name": task.name, "notebook": task.notebook}
        rows.append(named | {"solved": done.get(number)})
    print(json.dumps(rows, indent=1))
    return 0
