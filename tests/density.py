"""`make lint`: how dense the code is, by room, against the bounds in pyproject.toml.

    python tests/density.py            # the table; exit status 1 if a figure is above its bound
    python tests/density.py --write    # lower the bounds to today's figures; none is ever raised

A line can be pressed until nobody reads it, so lines are no measure. What is measured is what a
reader has to hold in mind at once: the syntax nodes of a statement, and what is nested in it.
"""

import ast
import io
import re
import statistics
import sys
import tokenize
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

from radon.complexity import cc_visit

REPO = Path(__file__).resolve().parent.parent
PROJECT = REPO / "pyproject.toml"
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# What holds other statements or brings in names is no simple statement.
NOT_SIMPLE = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.If, ast.For, ast.AsyncFor, ast.While,
    ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match, ast.Import, ast.ImportFrom,
)  # fmt: skip
# Names that say nothing of what a thing is.
EMPTY_NAMES = {"said", "found", "told", "given", "how", "one", "kind", "there", "more"}
COMPLEX = 10  # a function of a higher cyclomatic complexity has to be read twice


@dataclass
class Density:
    """The figures of a set of files. Bounds may only fall, except for that of comments."""

    nodes: int  # all syntax nodes: the size that no formatting changes
    nodes_per_statement: float  # mean of the simple statements
    comprehensions: float  # this and the next four: per 100 simple statements
    nested: float  # comprehensions with several loops, or inside another
    conditionals: float  # a if c else b
    walrus: float  # :=
    dict_updates: float  # x |= y
    complex_functions: float  # above a complexity of 10, per 1,000 lines
    worst_complexity: int  # of any function
    empty_names: int  # variables and parameters with a name of EMPTY_NAMES
    comments: float  # comment lines for each line of code


def is_simple(node: ast.AST) -> bool:
    """Whether a node is a statement that does one thing; docstrings are none."""
    if not isinstance(node, ast.stmt) or isinstance(node, NOT_SIMPLE):
        return False
    return not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def is_nested(node: ast.AST) -> bool:
    """Whether a comprehension has several loops, or another comprehension inside."""
    if len(node.generators) > 1:
        return True
    inner = [child for child in ast.walk(node) if isinstance(child, COMPREHENSIONS)]
    return len(inner) > 1


def has_empty_name(node: ast.AST) -> bool:
    """Whether a node stores a variable, or is a parameter, with a name that says nothing."""
    if isinstance(node, ast.arg):
        return node.arg in EMPTY_NAMES
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in EMPTY_NAMES


def measure(paths: list[Path]) -> Density:
    """The figures of these files together."""
    nodes = 0
    lines = 0
    code_lines = 0
    comments = 0
    statement_sizes = []
    counts = {"comprehension": 0, "nested": 0, "conditional": 0, "walrus": 0, "update": 0}
    complexities = []
    empty_names = 0
    for path in paths:
        source = path.read_text(encoding="utf-8")
        lines += source.count("\n")
        for line in source.splitlines():
            if line.strip() and not line.strip().startswith("#"):
                code_lines += 1
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                comments += 1
        for node in ast.walk(ast.parse(source)):
            nodes += 1
            empty_names += has_empty_name(node)
            if is_simple(node):
                statement_sizes.append(sum(1 for _ in ast.walk(node)))
            if isinstance(node, COMPREHENSIONS):
                counts["comprehension"] += 1
                counts["nested"] += is_nested(node)
            elif isinstance(node, ast.IfExp):
                counts["conditional"] += 1
            elif isinstance(node, ast.NamedExpr):
                counts["walrus"] += 1
            elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.BitOr):
                counts["update"] += 1
        for block in cc_visit(source):
            if block.letter != "C":  # a class has the sum of its methods
                complexities.append(block.complexity)
    per_hundred = 100 / max(1, len(statement_sizes))
    complex_functions = sum(1 for complexity in complexities if complexity > COMPLEX)
    return Density(
        nodes=nodes,
        nodes_per_statement=round(statistics.mean(statement_sizes or [0]), 1),
        comprehensions=round(counts["comprehension"] * per_hundred, 1),
        nested=round(counts["nested"] * per_hundred, 2),
        conditionals=round(counts["conditional"] * per_hundred, 1),
        walrus=round(counts["walrus"] * per_hundred, 1),
        dict_updates=round(counts["update"] * per_hundred, 1),
        complex_functions=round(1000 * complex_functions / max(1, lines), 1),
        worst_complexity=max(complexities, default=0),
        empty_names=empty_names,
        comments=round(comments / max(1, code_lines), 3),
    )


def sets_of_files() -> dict[str, list[Path]]:
    """The package without the exercises, each of its rooms, the exercises, the notebooks."""
    package = REPO / "grpo_workbook"
    rooms: dict[str, list[Path]] = {"package": [], "floor": sorted(package.glob("*.py"))}
    for folder in sorted(package.iterdir()):
        files = sorted(folder.rglob("*.py"))
        if files:
            rooms[folder.name] = files
    for name, files in rooms.items():
        if name != "exercises":
            rooms["package"] = [*rooms["package"], *files]
    rooms["notebooks"] = sorted((REPO / "notebooks" / "source").glob("*.py"))
    return rooms


def is_worse(name: str, value: float, bound: float) -> bool:
    """Whether a figure is on the wrong side of its bound: comments may not fall, all else rise."""
    if name == "comments":
        return value < bound
    return value > bound


def write_bounds(measured: dict[str, Density], bounds: dict[str, dict]) -> None:
    """Replace the bounds in pyproject.toml where today's figures are better."""
    text = PROJECT.read_text(encoding="utf-8")
    for room, figures in bounds.items():
        for name, bound in figures.items():
            value = getattr(measured[room], name)
            if value != bound and not is_worse(name, value, bound):
                table = (
                    rf"(?m)(^\[tool\.grpo_workbook\.density\.{room}\]\n(?:[^\[]*\n)?{name} = )\S+"
                )
                text = re.sub(table, rf"\g<1>{value}", text)
    PROJECT.write_text(text, encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Print the table; 1 if a figure is worse than its bound, 2 for unknown arguments."""
    if arguments not in ([], ["--write"]):
        print(__doc__)
        return 2
    measured = {}
    for room, files in sets_of_files().items():
        measured[room] = measure(files)
    names = [field.name for field in fields(Density)]
    heads = "nodes a_stmt compr nested a_if_b := |= complex worst names comments".split()
    print(f"{'':14}", *(f"{head:>8}" for head in heads))
    for room, density in measured.items():
        print(f"{room:<14}", *(f"{getattr(density, name):>8}" for name in names))
    settings = tomllib.loads(PROJECT.read_text(encoding="utf-8"))
    bounds = settings["tool"]["grpo_workbook"]["density"]
    if arguments == ["--write"]:
        write_bounds(measured, bounds)
        return 0
    worse = 0
    for room, figures in bounds.items():
        for name, bound in figures.items():
            value = getattr(measured[room], name)
            if is_worse(name, value, bound):
                print(f"{room}: {name} is {value}, its bound in pyproject.toml is {bound}")
                worse += 1
    return int(worse > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
