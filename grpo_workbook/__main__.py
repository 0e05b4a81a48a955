"""`python -m grpo_workbook ...`: see cli."""

import gc

from grpo_workbook import cli


def main() -> int:
    """The command of this process; its exit status."""
    # The libraries make a million objects that stay. To look through them for garbage, again and
    # again while they load and once more at the end, takes a third of the time of a short command.
    gc.set_threshold(20_000)
    status = cli.main()
    gc.freeze()
    return status


if __name__ == "__main__":
    raise SystemExit(main())
