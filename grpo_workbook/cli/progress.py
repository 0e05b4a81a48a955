"""`python -m grpo_workbook progress`: which exercises you have solved."""


def add_parser(commands) -> None:
    """Add progress to the command line."""
    commands.add_parser("progress", help="which exercises you have solved")


def main(args) -> int:
    """Print the progress; 0."""
    from grpo_workbook.exercises import show_progress

    return show_progress()
