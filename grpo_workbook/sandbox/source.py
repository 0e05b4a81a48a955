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
# Those of them that have nothing that a call can change.
UNCHANGING = BY_VALUE - set("random decimal numpy numpy.testing unittest pytest time sys".split())
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
PLAIN_NAMES: set[str] = set(
    """most_common elements move_to_end rotate appendleft popleft maxlen shape dtype tolist size
    ndim all any sum mean min max std round flatten reshape T""".split()
)
PLAIN_METHODS: set[str] = set()
for _kind in _PLAIN_TYPES:
    for _name in dir(_kind):
        PLAIN_NAMES.add(_name)
        if callable(getattr(_kind, _name)):
            PLAIN_METHODS.add(_name)
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

    - `why`: why it needs one process; "" where plain values are enough
    - `modules`: those that it imports; `functions`: those to call
    - `asks`: whether it names the program; `runs_answer`: whether it runs what the program returns
    - `leaves_traces`: whether it may change the process that it runs in
    - `asserts`: the number of its assertions; `required`: those that every run reaches
    - `text`: the test that counts them, in which WORD and "3" stand for the third one's word
    - `code`, `setup_code`: compiled, for the judge
    """

    def __init__(self, source: str, setup: str, entry_point: str):
        tree, setup_tree = ast.parse(source), ast.parse(setup)
        tree.body = [statement for statement in tree.body if not _is_main(statement)]
        self.source, self.setup, self.entry_point = source, setup, entry_point
        self.names = Names(tree, setup_tree, entry_point)
        # what has to be imported, and what to be called
        modules = self.names.modules | self.names.modules_of_setup
        self.modules = sorted(modules - {"solution", ""})
        self.functions = _functions_to_call(tree)
        self.needs_pytest = any(map(_needs_pytest, tree.body))
        if self.needs_pytest:
            self.modules.append("pytest")
        self.asks = not self.names.program.isdisjoint(names_in(tree))
        self.runs_answer = _runs_answer(tree, self.names)
        # how it is judged: before the tree is rewritten
        self.why = _why_in_one_process(tree, self.names, entry_point)
        if not self.why and any(isinstance(node, ast.ClassDef) for node in setup_tree.body):
            self.why = "the setup has a class"
        self.leaves_traces = not modules <= {*UNCHANGING, ""} or self.names.stores
        if self.why or "numpy" in modules or "approx" in source:
            tree = Comparisons().visit(tree)
        # the same test, with its assertions counted
        counter = Counter(self.names.functions)
        tree.body = counter.count_in(tree.body)
        self.asserts, self.required = counter.count, counter.required
        self.text = ast.unparse(ast.fix_missing_locations(tree))
        self.code = compile(self.text, "<test>", "exec", dont_inherit=True)
        self.setup_code = compile(setup, "<setup>", "exec", dont_inherit=True)


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


def _needs_pytest(statement: ast.stmt) -> bool:
    """Whether it is a test function or class that needs more than to be called."""
    if isinstance(statement, ast.ClassDef):
        return statement.name.startswith("Test") and not statement.bases
    if not isinstance(statement, FUNCTIONS):
        return False
    if not statement.name.startswith("test"):
        return statement.name.startswith(("setup_", "teardown_"))
    arguments = {argument.arg for argument in statement.args.args}
    return bool(statement.decorator_list or arguments - {"candidate"})


def _runs_answer(tree: ast.Module, names: "Names") -> bool:
    for node in ast.walk(tree):
        if called(node) in ("eval", "exec", "compile") and names.is_answer(node):
            return True
    return False


class Names:
    """What the names in a test stand for.

    - `asked`: those that it wants from the program; `program`: all that may be the program's
    - `free`: those that nothing in the test binds
    - `calls`: the calls of the program; `given`: the places whose values it gets; `results`: the
      variables that hold its answers
    """

    def __init__(self, tree: ast.Module, setup: ast.Module, entry_point: str):
        self.modules: set[str] = set()
        self.imported: set[str] = set()
        self.functions: set[str] = set()
        self.classes: set[str] = set()
        self.generators: set[str] = set()
        self.errors: set[str] = set()  # of `except` and `pytest.raises`
        self.stores = False  # whether it changes an attribute or item of what it has imported
        self.asked = {root_of(entry_point)} - {""}
        self._bound: set[str] = set()
        self._loaded: set[str] = set()
        self._arguments: set[str] = set()
        for node in ast.walk(setup):
            self._read(node)
        self.modules_of_setup, self.modules = self.modules, set()
        self._loaded.clear()
        nodes = list(ast.walk(tree))
        for node in nodes:
            self._read(node)
        bound = self._bound | self._arguments | self.imported | self.errors
        self.free = sorted(self._loaded - bound - set(dir(builtins)))
        self.program = {"candidate", *self.asked, *self.free}
        self._read_calls(nodes)

    def _read(self, node: ast.AST) -> None:
        match node:
            case ast.Import() | ast.ImportFrom():
                self._read_import(node)
            case ast.Name(id=name, ctx=ast.Load()):
                self._loaded.add(name)
            case ast.Name(id=name):
                self._bound.add(name)
            case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store()):
                self.stores = self.stores or not self.imported.isdisjoint(names_in(node))
            case ast.arg(arg=name):
                self._arguments.add(name)
            case ast.ExceptHandler(name=str(name)):
                self.errors.add(name)
            case ast.withitem(context_expr=call, optional_vars=ast.Name(id=name)):
                if called(call) in RAISES:
                    self.errors.add(name)
            case ast.ClassDef(name=name):
                self.classes.add(name)
                self._bound.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                self.functions.add(name)
                self._bound.add(name)
                if any(isinstance(part, ast.Yield | ast.YieldFrom) for part in ast.walk(node)):
                    self.generators.add(name)

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

    def _read_calls(self, nodes: list[ast.AST]) -> None:
        # a helper of the test may get the program's function as an argument
        callees = self.program | self._arguments
        self.calls: set[ast.AST] = set()
        self.given: set[str] = set()
        self.results: set[str] = set()
        for node in nodes:
            if isinstance(node, ast.Call) and called(node) in callees:
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


def _is_load(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Load)


# ------------------------------------------------------------------ which way


def _why_in_one_process(tree: ast.Module, names: Names, entry_point: str) -> str:
    """What in the test needs more than plain values; "" if nothing does."""
    foreign = names.modules - BY_VALUE - {""}
    if foreign:
        return f"it imports {min(foreign)}"
    root = root_of(entry_point)
    if root[:1].isupper() and root == entry_point:
        return f"{root} is a class"
    for node in ast.walk(tree):
        why = _why_this_node(node, names)
        if why:
            return why
    if _looks_back(tree, names):
        return "it looks at an argument again"
    return ""


def _why_this_node(node: ast.AST, names: Names) -> str:
    """Why this part of the test needs the program's own objects; "" if it does not."""
    if not isinstance(node, ast.Call | ast.keyword):
        for child in ast.iter_child_nodes(node):
            if getattr(child, "id", "") in names.program and _is_load(child):
                return f"it does not only call {ast.unparse(child)}"
    match node:
        case ast.Name(id=name) | ast.arg(arg=name) | ast.alias(name=name) if name in ONE_PROCESS:
            return f"it uses {name}"
        case ast.Name(id=name, ctx=ast.Load()) if name[:1].isupper():
            # a class of the program, or of the setup, which both would have to know
            own = name in names.program or name in names.classes
            return f"{name} is a class" if own else ""
        case ast.Attribute(attr=name):
            return _why_attribute(node, names)
        case ast.Await() | ast.AsyncFunctionDef():
            return "it is asynchronous"
        case ast.ClassDef(name=name):
            bases = " ".join(map(ast.unparse, node.bases))
            is_test = name.startswith("Test") or "TestCase" in bases
            return "" if is_test else f"it has a class of its own, {name}"
        case ast.Compare():
            return _why_comparison(node)
        case ast.Call():
            return _why_call(node, names)
    return ""


def _why_attribute(node: ast.Attribute, names: Names) -> str:
    if node.attr in ONE_PROCESS:
        return f"it uses {node.attr}"
    known = names.imported | {"self", "cls"} | names.classes | names.errors
    if node.attr in PLAIN_NAMES or names_in(node.value) & known:
        return ""
    return f"it asks for .{node.attr}"


def _why_comparison(node: ast.Compare) -> str:
    for comparison, other in zip(node.ops, node.comparators, strict=True):
        simple = isinstance(other, ast.Constant) or getattr(other, "id", "") in BUILTIN_TYPES
        if isinstance(comparison, ast.Is | ast.IsNot) and not simple:
            return "it compares by identity"
    return ""


def _why_call(node: ast.Call, names: Names) -> str:
    name = called(node)
    if name in RAISES and node.args and isinstance(node.args[0], ast.Attribute):
        return f"it expects {ast.unparse(node.args[0])}"
    # an answer crosses as a whole, and a generator may have no end
    if name in STEPWISE and names.is_answer(node):
        return f"it uses {name} on an answer"
    if node.func in names.calls or getattr(node.func, "id", "") in names.results:
        return "it calls what the program returns"
    if name == "isinstance" and len(node.args) == 2:
        # what arrives has exactly the type of a plain value
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
    parts = list(ast.walk(argument))
    # what is called, and `np.random` in `np.random.rand`
    inner = {getattr(part, "func", None) for part in parts}
    inner.update(part.value for part in parts if isinstance(part, ast.Attribute))
    functions = names.functions | names.classes | names.program | BUILTIN_FUNCTIONS
    for part in parts:
        match part:
            case ast.Lambda() | ast.GeneratorExp():
                return True
            case ast.Name(id=name) if name in names.generators:
                return True
            case ast.Name(id=name) if part not in inner and name in functions:
                return True
            case ast.Attribute(attr=name) if part not in inner and name not in CONSTANTS:
                of_module = getattr(part.value, "id", "") in names.imported
                if of_module or name in PLAIN_METHODS:
                    return True
    return False


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
            continue  # the call comes first, and then what it is compared with
        places = [places_in(side) for side in sides]
        of_program = [place for place in places if place & (names.given | names.results)]
        if len(of_program) == 1 and of_program[0] & names.given:
            return True
    return False


# ------------------------------------------------------------------ counting


class Counter:
    """Rewrites a test: each assertion reports that it held, or what it lost to.

    An assertion that fails inside of `try` or `with` still raises; others let the test go on.
    """

    def __init__(self, own_functions: set[str]):
        self.own_functions = own_functions
        self.count = 0
        self.required: set[int] = set()

    def count_in(self, statements: list, optional: bool = False, guard: str = "") -> list:
        """The same statements, counted.

        `optional`: they may not run. `guard` is "with" inside of a `with` block, "caught" where a
        failure is caught or expected.
        """
        block = []
        for position, statement in enumerate(statements):
            if self._is_assertion(statement):
                block.extend(self._report(statement, optional, guard))
                continue
            # a function that another one of its name replaces does not run
            later = statements[position + 1 :]
            names_after = [other.name for other in later if isinstance(other, FUNCTIONS)]
            replaced = getattr(statement, "name", None) in names_after
            self._count_inside(statement, optional or replaced, guard)
            block.append(statement)
        return block

    def _count_inside(self, statement: ast.stmt, optional: bool, guard: str) -> None:
        if isinstance(statement, FUNCTIONS):
            decorators = " ".join(map(ast.unparse, statement.decorator_list))
            runs = statement.name.startswith(RUN_BY_NAME)
            runs = runs and not any(word in decorators for word in MAY_NOT_RUN)
            optional = optional or not runs
            fails = "xfail" in decorators or "expectedFailure" in decorators
            guard = "caught" if fails else ""
        elif isinstance(statement, ast.If | ast.While | ast.Match | ast.Try | ast.TryStar):
            optional = True
        elif isinstance(statement, ast.With | ast.AsyncWith):
            expects_error = _calls(statement, {*RAISES, "suppress"})
            optional = optional or expects_error
            guard = "caught" if expects_error else guard or "with"
        handlers = getattr(statement, "handlers", [])
        if handlers:
            guard = "caught"
        for part in [statement, *handlers, *getattr(statement, "cases", [])]:
            for name in ("body", "orelse", "finalbody"):
                if isinstance(getattr(part, name, None), list):
                    setattr(part, name, self.count_in(getattr(part, name), optional, guard))

    def _is_assertion(self, statement: ast.stmt) -> bool:
        if isinstance(statement, ast.Assert):
            return not isinstance(statement.test, ast.Constant)
        if isinstance(statement, ast.With):
            return _calls(statement, RAISES)
        name = called(statement.value) if isinstance(statement, ast.Expr) else ""
        if name in self.own_functions:
            return False  # its own assertions are counted
        return name.startswith("assert") or name in RAISES

    def _report(self, statement: ast.stmt, optional: bool, guard: str) -> list:
        self.count += 1
        number = self.count
        if not optional:
            self.required.add(number)
        if isinstance(statement, ast.With):
            self._count_inside(statement, optional, guard)
        held = f"_workbook.held('{WORD}{number}')"
        if guard == "caught":
            return [statement, *ast.parse(held).body]
        lost = f"_workbook.lost({number}, _workbook_error)"
        if guard == "with":  # the program's `__exit__` may swallow the failure, but not the report
            lost = f"{lost}; raise"
        text = f"try: pass\nexcept _workbook.errors as _workbook_error: {lost}\nelse: {held}"
        (attempt,) = ast.parse(text).body
        setattr(attempt, "body", [statement])  # noqa: B010
        return [attempt]


def _calls(node: ast.With | ast.AsyncWith, names) -> bool:
    """Whether it is `with` and one of these calls."""
    return any(called(item.context_expr) in names for item in node.items)


class Comparisons(ast.NodeTransformer):
    """Lets `_workbook` see both sides of each comparison and difference."""

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
        self.generic_visit(node)
        starred = any(isinstance(argument, ast.Starred) for argument in node.args)
        if called(node) in COMPARING and len(node.args) > 1 and not starred:
            pair = _call("pair", [ast.Constant(called(node)), *node.args[:2]])
            node.args[:2] = [ast.Starred(pair, ast.Load())]
        return node


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
