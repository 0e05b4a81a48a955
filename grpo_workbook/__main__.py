"""`python -m grpo_workbook ...`: see cli."""

from grpo_workbook.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
