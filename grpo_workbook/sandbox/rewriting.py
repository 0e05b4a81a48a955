"""A test's text, rewritten: its assertions report, and its comparisons ask whether to believe.

`_workbook` is the name of an `assertions.Report` in the new text. Standard library only.
"""

import ast
from typing import Any

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
TOKEN = "token of assertion "
RAISES = frozenset(("raises", "assertRaises", "assertRaisesRegex"))
# Calls whose first two arguments are compared.
COMPARING = frozenset(
    """assertEqual assertNotEqual assertAlmostEqual assertNotAlmostEqual assertGreater assertLess
    assertGreaterEqual assertLessEqual assertListEqual assertDictEqual assertSetEqual
    assertTupleEqual assertSequenceEqual assertCountEqual assertMultiLineEqual allclose isclose
    array_equal array_equiv assert_allclose assert_equal assert_almost_equal assert_array_equal
    assert_array_almost_equal assert_array_less assert_approx_equal""".split()
)
# An assertion that reports how it ends.
REPORTED = f"""
try: {{0}}
except _workbook.errors as _workbook_error: _workbook.lost({{1}}, _workbook_error)
else: _workbook.held('{TOKEN}{{1}}')
"""
# Operators that ask an object what it is equal to. `is` asks none.
COMPARES = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn)
# How the names of functions begin that pytest, unittest or the sandbox call by themselves.
RUN_BY_NAME = ("check", "test", "setUp", "tearDown", "setup", "teardown")
MAY_NOT_RUN = ("skip", "xfail", "expectedFailure", "fixture")  # in the decorators of a function


def called(node: ast.AST) -> str:
    """The last name of what a call calls; "" for any other node."""
    function = getattr(node, "func", None)
    return getattr(function, "attr", getattr(function, "id", ""))


# ------------------------------------------------------------------ assertions


class AssertionCounter:
    """Rewrites a test: each assertion reports that it held, or what it lost to.

    A failed one lets the test go on, except where the test itself expects or catches the failure.
    """

    def __init__(self, own_functions: set[str]):
        self.own_functions = own_functions
        self.count = 0
        self.required: set[int] = set()

    def count_in(self, statements: list, optional: bool = False, caught: bool = False) -> list:
        """The same statements, counted.

        `optional`: they may not run. `caught`: a failure of theirs is caught or expected.
        """
        block = []
        names = [getattr(statement, "name", None) for statement in statements]
        for position, statement in enumerate(statements):
            if self._is_assertion(statement):
                block.extend(self._report(statement, optional, caught))
                continue
            # a function that another one of its name replaces does not run
            replaced = names[position] is not None and names[position] in names[position + 1 :]
            self._count_inside(statement, optional or replaced, caught)
            block.append(statement)
        return block

    def _count_inside(self, statement: ast.stmt, optional: bool, caught: bool) -> None:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                # its failures are caught where it is called, not where it stands
                decorators = " ".join(map(ast.unparse, statement.decorator_list))
                caught = any(word in decorators for word in MAY_NOT_RUN)
                optional = optional or caught or not statement.name.startswith(RUN_BY_NAME)
            case ast.If() | ast.While() | ast.Match():
                optional = True
            case ast.Try() | ast.TryStar():
                optional = True
                caught = caught or bool(statement.handlers)
            case ast.With() | ast.AsyncWith() if _calls(statement, {*RAISES, "suppress"}):
                optional = caught = True
        for block in _blocks(statement):
            block[:] = self.count_in(block, optional, caught)

    def _is_assertion(self, statement: ast.stmt) -> bool:
        if isinstance(statement, ast.Assert):
            return not isinstance(statement.test, ast.Constant)
        if isinstance(statement, ast.With):
            return _calls(statement, RAISES)
        name = called(statement.value) if isinstance(statement, ast.Expr) else ""
        if name in self.own_functions:
            return False  # its own assertions are counted
        return name.startswith("assert") or name in RAISES

    def _report(self, statement: ast.stmt, optional: bool, caught: bool) -> list:
        self.count += 1
        if not optional:
            self.required.add(self.count)
        # made before its inside is counted: the numbers rise from the first line to the last
        attempt: Any = ast.parse(REPORTED.format("pass", self.count)).body[0]
        if isinstance(statement, ast.With):
            self._count_inside(statement, optional, caught)
        if caught:
            return [statement, *attempt.orelse]
        attempt.body = [statement]
        return [attempt]


def _blocks(statement: ast.stmt) -> list[list]:
    """The lists of statements inside of a statement."""
    blocks = []
    for part in [statement, *getattr(statement, "handlers", []), *getattr(statement, "cases", [])]:
        for name in ("body", "orelse", "finalbody"):
            blocks.append(getattr(part, name, []))
    return blocks


def _calls(node: ast.With | ast.AsyncWith, names) -> bool:
    """Whether it is `with` and one of these calls."""
    return any(called(item.context_expr) in names for item in node.items)


# ------------------------------------------------------------------ comparisons


class Comparisons(ast.NodeTransformer):
    """Lets `_workbook` see both sides of each comparison and difference.

    `calls`: those whose arguments are copied, so that no program fits one to its answer.
    """

    def __init__(self, calls: set[ast.AST]):
        self.calls = calls

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """`a == b` asks `_workbook.compare`; each side of a chain `alone`."""
        self.generic_visit(node)
        if not isinstance(node.ops[0], COMPARES):
            return node
        if len(node.ops) > 1:
            node.left = _call("alone", [node.left])
            node.comparators = [_call("alone", [side]) for side in node.comparators]
            return node
        name = ast.Constant(type(node.ops[0]).__name__)
        return _call("compare", [name, node.left, node.comparators[0]])

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """A difference asks `_workbook.compare`, too."""
        self.generic_visit(node)
        if isinstance(node.op, ast.Sub):
            return _call("compare", [ast.Constant("Sub"), node.left, node.right])
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """What compares its first two arguments gets them from `_workbook.pair`."""
        is_of_program = node in self.calls
        self.generic_visit(node)
        if is_of_program:
            node.args = [_copied(argument) for argument in node.args]
        starred = any(isinstance(argument, ast.Starred) for argument in node.args)
        if called(node) in COMPARING and len(node.args) > 1 and not starred:
            pair = _call("pair", [ast.Constant(called(node)), *node.args[:2]])
            node.args[:2] = [ast.Starred(pair, ast.Load())]
        return node


def _copied(argument: ast.expr) -> ast.expr:
    if isinstance(argument, ast.Starred):
        return ast.Starred(_call("copy", [argument.value]), ast.Load())
    return _call("copy", [argument])


def _call(name: str, arguments: list) -> ast.Call:
    function = ast.Attribute(ast.Name("_workbook", ast.Load()), name, ast.Load())
    return ast.Call(function, arguments, [])
