"""`python -m grpo_workbook progress`: which exercises you have solved."""


def add_parser(commands) -> None:
    """Add progress to the command line."""
    words = "which exercises you have solved"
    commands.add_parser("progress", help=words, description=f"Shows {words}.")


def main(args) -> int:
    """Print the progress; 0."""
    from grpo_workbook.exercises import show_progress

    return show_progress()
