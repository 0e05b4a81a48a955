"""`make lint`: the lines of the floor and of each room, against the budget in pyproject.toml."""

import sys
import tomllib
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
BUDGET = tomllib.loads((REPO / "pyproject.toml").read_text())["tool"]["grpo_workbook"]["budget"]
lines = {"floor": 0, "rooms": 0}
for path in sorted((REPO / "grpo_workbook").rglob("*.py")):
    room, *file = path.relative_to(REPO / "grpo_workbook").parts
    count = len(path.read_text(encoding="utf-8").splitlines())
    for name in ("floor",) if not file else (room,) if room == "exercises" else (room, "rooms"):
        lines[name] = lines.get(name, 0) + count
for name, count in lines.items():
    print(f"{name:<12} {count:>5} of {BUDGET.get(name, 0):>5} lines")
sys.exit(any(count > BUDGET.get(name, 0) for name, count in lines.items()))
