"""`python -m grpo_workbook ...`: see cli."""

import sys

from grpo_workbook.cli import main

if __name__ == "__main__":
    sys.exit(main())
