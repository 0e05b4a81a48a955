"""A test's text: which way it is judged, and the same test with its assertions counted.

`Test` reads the text once. `Test.why` is empty where plain values are enough, so that test and
program can be in two processes; else it says what needs one process. It depends on nothing that a
program does. Standard library only.
"""

import ast
import builtins
import datetime
import decimal
import functools
import operator

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
DEFINITIONS = FUNCTIONS | ast.ClassDef
LOOPS = ast.For | ast.AsyncFor | ast.comprehension
# Modules whose functions a test can call on plain values.
BY_VALUE = frozenset(
    """solution math cmath typing collections itertools functools operator string re json random
    decimal fractions datetime statistics unittest pytest numpy numpy.testing time copy heapq
    bisect sys __future__ collections.abc""".split()
)
# Names that need the program's own process: its texts, streams, files, attributes, mocks.
ONE_PROCESS = frozenset(
    """eval exec compile __import__ globals locals open patch Mock MagicMock AsyncMock monkeypatch
    capsys capfd tmp_path tmpdir caplog recwarn stdout stdin stderr argv environ modules getsource
    signature warns assertWarns assertLogs setattr getattr hasattr delattr id vars dir gc send throw
    fixture seed getstate setstate callable setrecursionlimit""".split()
)
# What a test may ask of a plain value; the last ones of NumPy's arrays.
_PLAIN_TYPES = (str, bytes, int, float, complex, list, dict, set, range, datetime.datetime)
_PLAIN_TYPES += (datetime.timedelta, decimal.Decimal)
PLAIN_NAMES = frozenset(name for kind in _PLAIN_TYPES for name in dir(kind)) | frozenset(
    """most_common elements move_to_end rotate appendleft popleft maxlen shape dtype tolist size
    ndim all any sum mean min max std round flatten reshape T""".split()
)
PLAIN_METHODS = frozenset(
    name for kind in _PLAIN_TYPES for name in dir(kind) if callable(getattr(kind, name))
)
BUILTIN_TYPES = frozenset(
    name for name in dir(builtins) if isinstance(getattr(builtins, name), type)
)
BUILTIN_FUNCTIONS = frozenset(dir(builtins)) - BUILTIN_TYPES - {"None", "True", "False"}
CONSTANTS = frozenset(("inf", "nan", "pi", "e", "tau"))
RAISES = frozenset(("raises", "assertRaises", "assertRaisesRegex"))
# Calls whose first two arguments are compared.
COMPARING = frozenset(
    """assertEqual assertNotEqual assertAlmostEqual assertNotAlmostEqual assertGreater assertLess
    assertGreaterEqual assertLessEqual assertListEqual assertDictEqual assertSetEqual
    assertTupleEqual assertSequenceEqual assertCountEqual assertMultiLineEqual allclose isclose
    array_equal array_equiv assert_allclose assert_equal assert_almost_equal assert_array_equal
    assert_array_almost_equal assert_array_less assert_approx_equal""".split()
)
RUNNING = frozenset(("eval", "exec", "compile"))
# Calls that read an iterator step by step.
STEPWISE = frozenset(("next", "islice", "takewhile", "anext", "aiter"))
WORD = "word of assertion "
COMPARES = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn)
RUN_BY_NAME = ("check", "test", "setUp", "tearDown", "setup", "teardown")
MAY_NOT_RUN = ("skip", "xfail", "expectedFailure", "fixture")  # in the decorators of a function


def called(node: ast.AST) -> str:
    """The last name of what a call calls; "" for any other node."""
    function = getattr(node, "func", None)
    return getattr(function, "attr", getattr(function, "id", ""))


def root_of(entry_point: str) -> str:
    """The first name in it: of a function, or of the class of a method."""
    return entry_point.split(".")[0].split("(")[0]


def names_in(node: ast.AST) -> set[str]:
    """All variables in it."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def places_in(node: ast.AST) -> set[str]:
    """All variables, attributes and items in it, as text."""
    kinds = ast.Name | ast.Attribute | ast.Subscript
    return {ast.unparse(part) for part in ast.walk(node) if isinstance(part, kinds)}


class Test:
    """A test's text and setup, read for the program's `entry_point`.

    `modules` are those that it imports, `asks` whether it names the program, `functions` those to call, `asserts` the number of its
    assertions, `required` those that every run reaches, `runs_answer` whether it runs what the program
    returns, `text` the test that counts them, in which
    WORD and "3" stand for the third one's word.
    """

    def __init__(self, source: str, setup: str, entry_point: str):
        tree, setup_tree = ast.parse(source), ast.parse(setup)
        tree.body = [statement for statement in tree.body if not _is_main(statement)]
        self.source, self.setup, self.entry_point = source, setup, entry_point
        self.names = Names(tree, setup_tree, entry_point)
        modules = self.names.modules | self.names.modules_of_setup
        self.modules = sorted(modules - {"solution", ""})
        self.runs_answer = any(
            called(call) in RUNNING and self.names.is_answer(call)
            for call in ast.walk(tree)
            if isinstance(call, ast.Call)
        )
        self.asks = bool(self.names.calls) or not self.names.program.isdisjoint(names_in(tree))
        self.functions = _functions_to_call(tree)
        self.needs_pytest = _needs_pytest(tree)
        if self.needs_pytest:
            self.modules.append("pytest")
        self.why = _why_in_one_process(tree, self.names, entry_point)
        if not self.why and any(isinstance(node, ast.ClassDef) for node in setup_tree.body):
            self.why = "the setup has a class"
        compares = bool(self.why) or "numpy" in self.names.modules or "approx" in source
        counter = Counter(self.names.functions, compares, _replaced(tree))
        counter.visit(tree)
        self.asserts, self.required = counter.count, counter.required
        self.text = ast.unparse(ast.fix_missing_locations(tree))


def _is_main(statement: ast.stmt) -> bool:
    """Whether it is `if __name__ == "__main__":`."""
    return isinstance(statement, ast.If) and "__name__" in names_in(statement.test)


def _functions_to_call(tree: ast.Module) -> list[str]:
    """The test's functions that it does not call itself."""
    used = {called(node) for node in ast.walk(tree)} & {"check"}
    for statement in tree.body:
        if not isinstance(statement, DEFINITIONS):
            used.update(names_in(statement))
    functions = []
    for statement in tree.body:
        if not isinstance(statement, FUNCTIONS) or statement.name in used:
            continue
        if statement.name == "check" or statement.name.startswith("test"):
            functions.append(statement.name)
    return functions


def _replaced(tree: ast.Module) -> set[ast.stmt]:
    """Functions that another one of their name replaces, so that they never run."""
    replaced = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef):
            continue
        functions: dict[str, ast.stmt] = {}
        for statement in node.body:
            if isinstance(statement, FUNCTIONS):
                if statement.name in functions:
                    replaced.add(functions[statement.name])
                functions[statement.name] = statement
    return replaced


def _needs_pytest(tree: ast.Module) -> bool:
    """Whether a test function or class needs more than to be called."""
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef):
            if statement.name.startswith("Test") and not statement.bases:
                return True
        elif isinstance(statement, FUNCTIONS):
            if statement.name.startswith(("setup_", "teardown_")):
                return True
            if statement.name.startswith("test"):
                arguments = {argument.arg for argument in statement.args.args}
                if statement.decorator_list or arguments - {"candidate"}:
                    return True
    return False


class Names:
    """What the names in a test stand for.

    `asked` are those that it wants from the program, `program` all that may be, `calls` the calls of the program, `given` the places whose values
    it gets, `results` the variables that hold its answers.
    """

    def __init__(self, tree: ast.Module, setup: ast.Module, entry_point: str):
        nodes = list(ast.walk(tree))
        before = list(ast.walk(setup))
        self.modules: set[str] = set()
        self.imported: set[str] = set()
        self.asked = {root_of(entry_point)} - {""}
        for node in before:
            self._read_import(node)
        self.modules_of_setup, self.modules = self.modules, set()
        for node in nodes:
            self._read_import(node)
        own = [node for node in nodes + before if isinstance(node, DEFINITIONS)]
        self.functions = {node.name for node in own if isinstance(node, FUNCTIONS)}
        self.classes = {node.name for node in own if isinstance(node, ast.ClassDef)}
        self.generators = {node.name for node in own if _has_yield(node)}
        arguments = {node.arg for node in nodes if isinstance(node, ast.arg)}
        stored = {node.id for node in nodes if _is_name(node) and not _is_load(node)}
        # what `except` and `with` bind are the test's own errors and context managers
        self.errors = {node.name for node in nodes if isinstance(node, ast.ExceptHandler)}
        for node in nodes:
            if isinstance(node, ast.withitem) and called(node.context_expr) in RAISES:
                self.errors.update(names_in(node.optional_vars or node.context_expr))
        bound = self.functions | self.classes | arguments | stored | self.imported
        bound.update(filter(None, self.errors))
        loaded = {node.id for node in nodes if _is_name(node) and _is_load(node)}
        self.free = sorted(loaded - bound - set(dir(builtins)))
        self.program = {"candidate", *self.asked, *self.free}
        self._read_calls(nodes, arguments, entry_point)

    def _read_import(self, node: ast.AST) -> None:
        if isinstance(node, ast.ImportFrom):
            self.modules.add(node.module or "")
        elif isinstance(node, ast.Import):
            self.modules.update(alias.name for alias in node.names)
        else:
            return
        for alias in node.names:
            name = (alias.asname or alias.name).split(".")[0]
            if "solution" in (getattr(node, "module", ""), alias.name):
                self.asked.add(name)
            else:
                self.imported.add(name)

    def _read_calls(self, nodes: list, arguments: set[str], entry_point: str) -> None:
        # a helper of the test may get the program's function as an argument
        callees = self.program | (arguments - self.imported)
        method = entry_point.rpartition(".")[2]
        self.calls: set[ast.AST] = set()
        self.given: set[str] = set()
        self.results: set[str] = set()
        for node in nodes:
            if isinstance(node, ast.Call) and called(node) in {*callees, method}:
                self.calls.add(node)
                for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
                    self._add_given(argument)
        for node in nodes:
            if isinstance(node, ast.Assign) and self.asks_program(node.value):
                for target in node.targets:
                    self.results.update(names_in(target))
            elif isinstance(node, LOOPS) and self.asks_program(node.iter):
                self.results.update(names_in(node.target))

    def _add_given(self, argument: ast.expr) -> None:
        if isinstance(argument, ast.Starred):
            argument = argument.value
        if isinstance(argument, ast.Name | ast.Attribute | ast.Subscript):
            self.given.add(ast.unparse(argument))
        if isinstance(argument, ast.Subscript):  # a part of what is in a variable
            self.given.add(ast.unparse(argument.value))

    def asks_program(self, node: ast.AST) -> bool:
        """Whether it has a call of the program in it."""
        return not self.calls.isdisjoint(ast.walk(node))

    def is_answer(self, node: ast.AST) -> bool:
        """Whether it may be an answer of the program, or a part of one."""
        return self.asks_program(node) or not self.results.isdisjoint(names_in(node))


def _has_yield(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Yield | ast.YieldFrom) for part in ast.walk(node))


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name)


def _is_load(node) -> bool:
    return isinstance(node.ctx, ast.Load)


# ------------------------------------------------------------------ which way


def _why_in_one_process(tree: ast.Module, names: Names, entry_point: str) -> str:
    """What in the test needs more than plain values; "" if nothing does."""
    foreign = names.modules - BY_VALUE - {""}
    if foreign:
        return f"it imports {min(foreign)}"
    root = entry_point.split(".")[0]
    if root[:1].isupper() and root == entry_point:
        return f"{root} is a class"
    for node in ast.walk(tree):
        why = _needs_object(node, names, entry_point)
        if why:
            return why
    why = _uses_program_as_object(tree, names)
    if not why and _looks_back(tree, names):
        return "it looks at an argument again"
    return why


def _needs_object(node: ast.AST, names: Names, entry_point: str) -> str:
    """Why this part of the test needs the program's own objects; "" if it does not."""
    if isinstance(node, ast.Name | ast.arg | ast.alias | ast.Attribute):
        return _needs_name(node, names, entry_point)
    if isinstance(node, ast.Await | ast.AsyncFunctionDef):
        return "it is asynchronous"
    if isinstance(node, ast.ClassDef) and not _is_test_class(node):
        return f"it has a class of its own, {node.name}"
    if isinstance(node, ast.Compare):
        return _needs_identity(node)
    if isinstance(node, ast.Call):
        return _needs_call(node, names)
    return ""


def _needs_name(node, names: Names, entry_point: str) -> str:
    name = {ast.Name: "id", ast.arg: "arg", ast.alias: "name", ast.Attribute: "attr"}[type(node)]
    name = getattr(node, name)
    if name in ONE_PROCESS:
        return f"it uses {name}"
    if isinstance(node, ast.Name):
        # a class of the program, or of the setup, which both would have to know
        own = name in names.program or name in names.classes
        is_class = name[:1].isupper() and name != "Solution"
        return f"{name} is a class" if own and is_class and _is_load(node) else ""
    if not isinstance(node, ast.Attribute) or name in PLAIN_NAMES:
        return ""
    if name == entry_point.rpartition(".")[2] or called(node.value) == "Solution":
        return ""
    known = names.imported | {"self", "cls"} | names.classes | names.errors
    return "" if names_in(node.value) & known else f"it asks for .{name}"


def _is_test_class(node: ast.ClassDef) -> bool:
    return node.name.startswith("Test") or any("TestCase" in ast.unparse(x) for x in node.bases)


def _needs_identity(node: ast.Compare) -> str:
    for comparison, other in zip(node.ops, node.comparators, strict=True):
        simple = isinstance(other, ast.Constant) or getattr(other, "id", "") in BUILTIN_TYPES
        if isinstance(comparison, ast.Is | ast.IsNot) and not simple:
            return "it compares by identity"
    return ""


def _needs_call(node: ast.Call, names: Names) -> str:
    name = called(node)
    if name in RAISES and node.args and isinstance(node.args[0], ast.Attribute):
        return f"it expects {ast.unparse(node.args[0])}"
    if name in STEPWISE and names.is_answer(node):
        return f"it uses {name} on an answer"
    function = node.func
    if function in names.calls or getattr(function, "id", "") in names.results:
        return "it calls what the program returns"
    if name == "isinstance" and len(node.args) == 2:
        unknown = names_in(node.args[1]) - BUILTIN_TYPES - names.imported
        if unknown:
            return f"it asks for {min(unknown)}"
    if node in names.calls:
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            if _has_function(argument, names):
                return "it gives the program a function"
    return ""


def _has_function(argument: ast.expr, names: Names) -> bool:
    """Whether the argument is a function, or has one in it that it does not call."""
    functions = names.functions | names.classes | names.program | BUILTIN_FUNCTIONS
    used = {getattr(part, "func", None) for part in ast.walk(argument)}
    for part in ast.walk(argument):
        if isinstance(part, ast.Lambda | ast.GeneratorExp):
            return True
        if getattr(part, "id", "") in names.generators:
            return True
        if part in used:
            continue
        if isinstance(part, ast.Name) and part.id in functions:
            return True
        if isinstance(part, ast.Attribute) and part.attr not in CONSTANTS:
            of_module = getattr(part.value, "id", "") in names.imported
            if part.attr in PLAIN_METHODS or (of_module and not _is_owner(part, argument)):
                return True
    return False


def _is_owner(part: ast.Attribute, argument: ast.expr) -> bool:
    """Whether it is only the left side of another attribute, as `np.random` in `np.random.rand`."""
    owners = [node.value for node in ast.walk(argument) if isinstance(node, ast.Attribute)]
    return part in owners


def _uses_program_as_object(tree: ast.Module, names: Names) -> str:
    """Whether a function of the program is not only called, or handed to a helper."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node, parent in parents.items():
        if not isinstance(node, ast.Name) or not _is_load(node) or node.id not in names.program:
            continue
        if node.id == "Solution":
            method = parents.get(parents.get(parent))
            chain = isinstance(parents.get(parent), ast.Attribute) and isinstance(method, ast.Call)
            if not chain:
                return "it keeps an object of Solution"
        elif not isinstance(parent, ast.Call | ast.keyword):
            return f"it does not only call {node.id}"
    return ""


def _looks_back(tree: ast.Module, names: Names) -> bool:
    """Whether it compares what it gave the program with something that is not from the program.

    Then it wants to see what the program has done to it. In `assert f(items) == sorted(items)` it
    does not: there a program could empty the list and so fit it to its answer.
    """
    for node in ast.walk(tree):
        sides = []
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and called(node).startswith("assert"):
            sides = node.args[:2]
        elif isinstance(node, ast.Assert) and not isinstance(node.test, ast.Compare | ast.BoolOp):
            sides = [node.test]
        if any(names.asks_program(side) for side in sides):
            continue
        places = [places_in(side) for side in sides]
        of_program = [found for found in places if found & (names.given | names.results)]
        if len(of_program) == 1 and of_program[0] & names.given:
            return True
    return False


# ------------------------------------------------------------------ counting


class Counter(ast.NodeTransformer):
    """Rewrites a test: each assertion reports that it held, or what it lost to.

    An assertion that fails inside of `try` or `with` still raises; others let the test go on. With
    `compares`, `_workbook` also sees both sides of each comparison.
    """

    def __init__(self, own_functions: set[str], compares: bool, replaced: set[ast.stmt]):
        self.own_functions, self.compares = own_functions, compares
        self.replaced = replaced
        self.count = 0
        self.required: set[int] = set()
        self.optional = 0  # how many blocks around it may not run
        self.guarded = False  # whether something around it may catch a failure
        self.may_fail = False  # and is meant to

    def visit_Module(self, node: ast.Module) -> ast.AST:
        return self._visit_blocks(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._visit_blocks(node)

    def visit_FunctionDef(self, node) -> ast.AST:
        decorators = " ".join(map(ast.unparse, node.decorator_list))
        skips = any(word in decorators for word in MAY_NOT_RUN)
        outer = self.optional, self.guarded, self.may_fail
        runs = node.name.startswith(RUN_BY_NAME) and node not in self.replaced and not skips
        self.optional = 0 if runs else 1
        self.guarded = self.may_fail = "xfail" in decorators or "expectedFailure" in decorators
        self._visit_blocks(node)
        self.optional, self.guarded, self.may_fail = outer
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_For(self, node) -> ast.AST:
        return self._visit_blocks(node)

    visit_AsyncFor = visit_For

    def visit_If(self, node) -> ast.AST:
        self.optional += 1
        self._visit_blocks(node)
        self.optional -= 1
        return node

    visit_While = visit_Match = visit_If

    def visit_Try(self, node) -> ast.AST:
        self.optional += 1
        outer = self.guarded, self.may_fail
        if node.handlers:
            self.guarded = self.may_fail = True
        node.body = self._block(node.body)
        self.guarded, self.may_fail = outer
        node.orelse = self._block(node.orelse)
        node.finalbody = self._block(node.finalbody)
        for handler in node.handlers:
            handler.body = self._block(handler.body)
        self.optional -= 1
        return node

    visit_TryStar = visit_Try

    def visit_With(self, node) -> ast.AST:
        expects_error = _expects_error(node)
        outer = self.guarded, self.may_fail
        self.guarded = True
        self.may_fail = self.may_fail or expects_error
        self.optional += expects_error
        self._visit_blocks(node)
        self.optional -= expects_error
        self.guarded, self.may_fail = outer
        return node

    visit_AsyncWith = visit_With

    def _visit_blocks(self, node) -> ast.AST:
        for case in getattr(node, "cases", []):
            case.body = self._block(case.body)
        for name, value in ast.iter_fields(node):
            if name in ("body", "orelse", "finalbody"):
                setattr(node, name, self._block(value))
            elif isinstance(value, ast.expr):
                setattr(node, name, self.visit(value))
        return node

    def _block(self, statements: list) -> list:
        block = []
        for statement in statements:
            if self._is_assertion(statement):
                block.extend(self._counted(statement))
            else:
                block.append(self.visit(statement))
        return block

    def _is_assertion(self, statement: ast.stmt) -> bool:
        if isinstance(statement, ast.Assert):
            return not isinstance(statement.test, ast.Constant)
        if isinstance(statement, ast.With):
            return any(called(item.context_expr) in RAISES for item in statement.items)
        name = called(statement.value) if isinstance(statement, ast.Expr) else ""
        if name in self.own_functions:
            return False  # its own assertions are counted
        return name.startswith("assert") or name in RAISES

    def _counted(self, statement: ast.stmt) -> list:
        self.count += 1
        number = self.count
        if not self.optional:
            self.required.add(number)
        statement = self.visit(statement)
        held = f"_workbook.held('{WORD}{number}')"
        lost = f"_workbook.lost({number}, _workbook_error)"
        if self.may_fail:
            return [statement, *ast.parse(held).body]
        if self.guarded:  # the program's `__exit__` may swallow the failure, but not the report
            lost = f"{lost}; raise"
        text = f"try: pass\nexcept _workbook.errors as _workbook_error: {lost}\nelse: {held}"
        attempt = ast.parse(text).body[0]
        attempt.body = [statement]
        return [attempt]

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if not self.compares or not isinstance(node.ops[0], COMPARES):
            return node
        if len(node.ops) > 1:
            node.left = _call("alone", [node.left])
            node.comparators = [_call("alone", [side]) for side in node.comparators]
            return node
        name = ast.Constant(type(node.ops[0]).__name__)
        return _call("compare", [name, node.left, node.comparators[0]])

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if self.compares and isinstance(node.op, ast.Sub):
            return _call("compare", [ast.Constant("Sub"), node.left, node.right])
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        starred = any(isinstance(argument, ast.Starred) for argument in node.args)
        if self.compares and called(node) in COMPARING and len(node.args) > 1 and not starred:
            name = ast.Constant(called(node))
            pair = _call("pair", [name, *node.args[:2]])
            node.args[:2] = [ast.Starred(pair, ast.Load())]
        return node


def _expects_error(node) -> bool:
    """Whether it is `with pytest.raises(...)` or unittest's."""
    return any(called(item.context_expr) in {*RAISES, "suppress"} for item in node.items)


def _call(name: str, arguments: list) -> ast.Call:
    function = ast.Attribute(ast.Name("_workbook", ast.Load()), name, ast.Load())
    return ast.Call(function, arguments, [])


OPERATORS = {
    "Eq": operator.eq,
    "NotEq": operator.ne,
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
    "In": lambda member, container: member in container,
    "NotIn": lambda member, container: member not in container,
    "Sub": operator.sub,
}


@functools.lru_cache(maxsize=64)
def read_test(source: str, setup: str, entry_point: str) -> Test:
    """The test; SyntaxError and others for what is no Python."""
    return Test(source, setup, entry_point)
