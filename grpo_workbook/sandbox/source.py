"""A test's text: which way it is judged, and what it asks for.

`read_test` reads it once; rewriting.py then makes its assertions report. `Test.why` is empty where
plain values are enough, so that test and program can be in two processes; else it says what needs
one process. It depends on nothing that a program does. Standard library only.
"""

import ast
import builtins
import collections
import functools
import threading
import warnings
from dataclasses import dataclass, field

from grpo_workbook.sandbox.json_tests import is_json, read_json
from grpo_workbook.sandbox.rewriting import (
    FUNCTIONS,
    REPORTED,
    AssertionCounter,
    Comparisons,
    called,
)

LOOPS = ast.For | ast.AsyncFor | ast.comprehension
# Statements and expressions that no test by value has.
NEEDS_OBJECTS = (
    ast.ClassDef, ast.Try, ast.TryStar, ast.With, ast.AsyncFunctionDef, ast.Await, ast.Yield,
    ast.YieldFrom, ast.Global, ast.Nonlocal, ast.Match,
)  # fmt: skip
PLAIN_MODULES = frozenset(
    """solution math cmath typing itertools functools operator string re json copy heapq bisect
    statistics random collections numpy numpy.testing __future__""".split()
)
# What a test by value asks of NumPy: answers cross as lists.
NUMPY = frozenset(
    """testing allclose isclose assert_allclose ndarray float32 float64 integer floating dtype inf
    nan isnan""".split()
)
# What other modules have, and no plain value can be: states, an order beside the content.
NOT_PLAIN = frozenset(
    """OrderedDict namedtuple defaultdict ChainMap UserDict UserList UserString seed getstate
    setstate""".split()
)
BY_IDENTITY = "it compares by identity"
# Steps through an iterator. Only whole answers cross, and a generator may have no end.
STEPWISE = ("next", "islice", "takewhile")
PLAIN_BUILTINS = frozenset(
    """abs all any bin bool bytes chr complex dict divmod enumerate filter float format frozenset
    hex int isinstance iter len list map max min next oct ord pow print range repr reversed round
    set sorted str sum tuple type zip""".split()
)
TYPES = frozenset(name for name in PLAIN_BUILTINS if isinstance(vars(builtins)[name], type))
CONSTANTS = frozenset(("inf", "nan", "pi", "e", "tau", "None", "True", "False"))
BUILTINS = frozenset(name for name in dir(builtins) if not name.endswith("Error")) - CONSTANTS
# What a test may ask of a plain value.
PLAIN_METHODS: set[str] = set()
for _type in (str, bytes, int, float, complex, list, dict, set, range, collections.Counter):
    PLAIN_METHODS.update(dir(_type))
for _name in dir(object):
    PLAIN_METHODS.discard(_name)


def root_of(entry_point: str) -> str:
    """The first name in it: of a function, or of the class of a method."""
    return entry_point.split(".")[0].split("(")[0]


def names_in(node: ast.AST) -> set[str]:
    """All variables in it."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


@dataclass
class Test:
    """What is known of a test.

    - `text`: the test with its assertions counted; TOKEN and "3" stand for the third one's token
    - `cases`: how many assertions it has, at least 1; `required`: those that every run reaches
    - `why`: why it needs one process; "" where plain values are enough
    - `modules`: those that it imports; `functions`: those to call
    - `asked`: the names that it wants from the program; `free`: those that nothing in it binds
    - `function`: of a test of JSON, the one to call; `is_script`: it runs the program instead
    """

    text: str = ""
    cases: int = 1
    required: set[int] = field(default_factory=set)
    why: str = ""
    modules: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    free: list[str] = field(default_factory=list)
    function: str = ""
    is_script: bool = False


class Unusable(ValueError):
    """A test that can judge no program."""


_reading = threading.Lock()  # the filter of warnings belongs to all threads


@functools.lru_cache(maxsize=256)
def read_test(source: str, setup: str, entry_point: str) -> Test:
    """The test; Unusable, or another error, for what can judge no program."""
    if is_json(source):
        pairs = read_json(source, entry_point)
        if pairs is not None:
            return _read_pairs(*pairs)
    with _reading, warnings.catch_warnings(action="ignore"):
        return _read_python(ast.parse(source), ast.parse(setup), entry_point)


def _read_pairs(pairs: list[tuple], function: str) -> Test:
    """A test with an assertion for each input and output of a script, or of a function."""
    if not pairs:
        raise Unusable("there is no input: nothing can be judged")
    lines = ["from math import inf, nan"]  # as the numbers of that name are written below
    for number, (arguments, wanted) in enumerate(pairs, 1):
        call = f"candidate({arguments!r})"
        if function:
            call = f"candidate(*{arguments!r})"
        asserted = f"_same({call}, {wanted!r}), 'the answer for input {number} is wrong'"
        lines.append(REPORTED.format(f"assert {asserted}", number))
    numbers = set(range(1, len(pairs) + 1))
    test = Test("\n".join(lines), len(pairs), numbers, function=function)
    test.is_script = not function
    return test


def _read_python(tree: ast.Module, setup: ast.Module, entry_point: str) -> Test:
    tree.body = [statement for statement in tree.body if not _is_main(statement)]
    names = Names(tree, setup, entry_point)
    if names.program.isdisjoint(names_in(tree)):
        raise Unusable("the test never calls the candidate, so it would pass any program")
    if _runs_answer(tree, names):
        raise Unusable("the test would run what the program returns")
    modules = names.modules | names.modules_of_setup
    if any(map(_is_for_pytest, tree.body)):
        modules.add("pytest")
    functions = _functions_to_call(tree, names)
    # How it is judged: before the tree is rewritten, and so that nothing of a program matters.
    why = _why_in_one_process(tree, setup, names, entry_point)
    # By value only NumPy's functions need a look at both sides, for they take an empty list for
    # close to anything.
    if why or "numpy" in modules:
        # What no one looks at again may be a copy, which the program cannot fit to its answer.
        may_copy = not (_looks_back(tree, names) or _asks_identity(tree, names))
        tree = Comparisons(names.calls if may_copy else set()).visit(tree)
    counter = AssertionCounter(names.functions)
    tree.body = counter.count_in(tree.body)
    text = ast.unparse(ast.fix_missing_locations(tree))
    if "IsolatedAsyncioTestCase" in text:
        modules.add("unittest.async_case")  # unittest loads it late, and guard.py has to see it
    cases = max(counter.count, 1)
    test = Test(text, cases, counter.required, why, sorted(modules), functions)
    test.asked, test.free = sorted(names.asked), names.free
    return test


def _is_main(statement: ast.stmt) -> bool:
    """Whether it is `if __name__ == "__main__":`."""
    return isinstance(statement, ast.If) and "__name__" in names_in(statement.test)


def _functions_to_call(tree: ast.Module, names: "Names") -> list[str]:
    """The test's functions that it does not call itself."""
    functions = []
    for statement in tree.body:
        if not isinstance(statement, FUNCTIONS) or statement.name in names.loaded:
            continue
        if statement.name == "check" or statement.name.startswith("test"):
            functions.append(statement.name)
    return functions


def _is_for_pytest(statement: ast.stmt) -> bool:
    """Whether it is a test function or class that more happens to than a call."""
    if isinstance(statement, ast.ClassDef):
        return statement.name.startswith("Test") and not statement.bases
    if not isinstance(statement, FUNCTIONS):
        return False
    if statement.name.startswith(("setup_", "teardown_")):
        return True
    arguments = {argument.arg for argument in statement.args.args} - {"candidate"}
    return statement.name.startswith("test") and bool(arguments or statement.decorator_list)


def _runs_answer(tree: ast.Module, names: "Names") -> bool:
    for node in ast.walk(tree):
        if called(node) in ("eval", "exec", "compile") and names.is_answer(node):
            return True
    return False


class Names:
    """What the names in a test stand for.

    - `imported`: names from modules, and the module of each
    - `asked`: those that it wants from the program; `program`: all that may be the program's
    - `loaded`: those that it uses; `bound`: those that it gives a value; `free`: those that
      nothing in it binds
    - `calls`: the calls of the program; `results`: the variables that hold its answers
    - `handed_over`: the variables whose values, or parts of them, the program gets
    """

    def __init__(self, tree: ast.Module, setup: ast.Module, entry_point: str):
        self.modules: set[str] = set()
        self.imported: dict[str, str] = {}
        self.functions: set[str] = set()
        self.asked = {root_of(entry_point)} - {""}
        self.bound: set[str] = set()
        self.loaded: set[str] = set()
        self._arguments: set[str] = set()
        for node in ast.walk(setup):
            self._read(node)
        # the setup is trusted: what it defines is no name of the program's
        self.modules_of_setup, self.modules = self.modules, set()
        self.loaded.clear()
        nodes = list(ast.walk(tree))
        for node in nodes:
            self._read(node)
        self.bound.update(self._arguments, self.imported)
        self.free = sorted(self.loaded - self.bound - set(dir(builtins)))
        self.program = {"candidate", *self.asked, *self.free}
        self._read_calls(nodes)

    def _read(self, node: ast.AST) -> None:
        match node:
            case ast.Import():
                for alias in node.names:
                    self._read_import(alias.name, alias.asname or alias.name.split(".")[0])
            case ast.ImportFrom():
                for alias in node.names:
                    self._read_import(node.module or "", alias.asname or alias.name)
            case ast.Name(id=name, ctx=ast.Load()):
                self.loaded.add(name)
            case ast.Name(id=name) | ast.ExceptHandler(name=str(name)) | ast.ClassDef(name=name):
                self.bound.add(name)
            case ast.arg(arg=name):
                self._arguments.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                self.functions.add(name)
                self.bound.add(name)

    def _read_import(self, module: str, name: str) -> None:
        if module == "solution":
            self.asked.add(name)
        else:
            self.modules.add(module)
            self.imported[name] = module

    def _read_calls(self, nodes: list[ast.AST]) -> None:
        # a helper of the test may get the program's function as an argument
        callees = self.program | self._arguments
        self.calls: set[ast.AST] = set()
        self.handed_over: set[str] = set()
        self.results: set[str] = set()
        for node in nodes:
            if isinstance(node, ast.Call) and called(node) in callees:
                self.calls.add(node)
                for argument in arguments_of(node):
                    while isinstance(argument, ast.Starred | ast.Attribute | ast.Subscript):
                        argument = argument.value
                    self.handed_over.add(getattr(argument, "id", ""))
        # after all calls are known: which variables hold an answer, or a part of one
        for node in nodes:
            if isinstance(node, ast.Assign) and self.asks_program(node.value):
                for target in node.targets:
                    self.results.update(names_in(target))
            elif isinstance(node, LOOPS) and self.asks_program(node.iter):
                self.results.update(names_in(node.target))

    def asks_program(self, node: ast.AST) -> bool:
        """Whether it has a call of the program in it."""
        return not self.calls.isdisjoint(ast.walk(node))

    def is_answer(self, node: ast.AST) -> bool:
        """Whether it may be an answer of the program, or a part of one."""
        return self.asks_program(node) or not self.results.isdisjoint(names_in(node))


def arguments_of(call: ast.Call) -> list[ast.expr]:
    """All arguments of a call, without their names."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]


# ------------------------------------------------------------------ which way


def _why_in_one_process(tree: ast.Module, setup: ast.Module, names: Names, entry_point: str) -> str:
    """What in the test needs more than plain values; "" if nothing does."""
    foreign = names.modules - PLAIN_MODULES
    if foreign:
        return f"it imports {min(foreign)}"
    if any(map(_is_for_pytest, tree.body)):
        return "it is for pytest"
    root = root_of(entry_point)
    if root[:1].isupper() and root == entry_point:
        return f"{root} is a class"
    for node in setup.body:
        # the start of LeetCode's `class Solution` is only for the program
        if isinstance(node, ast.ClassDef) and node.name != root:
            return "the setup has a class"
    for statement in tree.body:
        for node in ast.walk(statement):
            why = _why_this_node(node, names)
            if why:
                return why
    if _looks_back(tree, names):
        return "it looks at an argument again"
    return ""


def _why_this_node(node: ast.AST, names: Names) -> str:
    """Why this part of the test needs the program's own objects; "" if it does not."""
    if isinstance(node, NEEDS_OBJECTS):
        return f"it has a {type(node).__name__}"
    if not isinstance(node, ast.Call | ast.keyword):
        # an argument of a helper of the test may be the program's function, to be called there
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Name) and child.id in names.program:
                return f"it does not only call {child.id}"
    match node:
        case ast.Assign(value=ast.Lambda()):
            return "it has a function in a variable"
        case ast.Compare():
            return _why_comparison(node, names)
        case ast.Call():
            return _why_call(node, names)
    return _why_name(node, names)


def _why_name(node: ast.AST, names: Names) -> str:
    """Why a name in the test needs one process; "" if it does not."""
    match node:
        case ast.ImportFrom():
            for alias in node.names:
                if not _is_plain(str(node.module), alias.name):
                    return f"it uses {alias.name}"
        case ast.Name(id=name):
            if name[:1].isupper() and name in names.program:
                return f"{name} is a class"
            if name in BUILTINS - PLAIN_BUILTINS - names.bound:
                return f"it uses {name}"
        case ast.Attribute(attr=attribute):
            # of what is no module NumPy's rule holds: it names what arrays have
            module = names.imported.get(getattr(node.value, "id", ""), "numpy")
            if attribute not in PLAIN_METHODS and not _is_plain(module, attribute):
                return f"it asks for .{attribute}"
    return ""


def _is_plain(module: str, name: str) -> bool:
    """Whether what a module has under this name takes and gives plain values."""
    if module.startswith("numpy"):
        return name in NUMPY
    return name not in NOT_PLAIN


def _why_comparison(node: ast.Compare, names: Names) -> str:
    for comparison, other in zip(node.ops, node.comparators, strict=True):
        if isinstance(comparison, ast.Is | ast.IsNot) and not isinstance(other, ast.Constant):
            return BY_IDENTITY
        if getattr(other, "id", "") in TYPES - names.bound:
            return "it compares with a type"
    return ""


def _why_call(node: ast.Call, names: Names) -> str:
    if node.func in names.calls or getattr(node.func, "id", "") in names.results:
        return "it calls what the program returns"
    if called(node) in STEPWISE and names.is_answer(node):
        return f"it uses {called(node)} on an answer"
    if node in names.calls:
        for argument in arguments_of(node):
            if _has_function(argument, names):
                return "it gives the program a function"
    return ""


def _has_function(argument: ast.expr, names: Names) -> bool:
    """Whether the argument is a function, or has one in it that it does not call."""
    parts = list(ast.walk(argument))
    inner = {getattr(part, "func", None) for part in parts}  # what is called
    functions = names.functions | names.program | PLAIN_BUILTINS
    for part in parts:
        match part:
            # a generator runs code of the test while the program goes through it
            case ast.Lambda() | ast.GeneratorExp():
                return True
            case ast.Name(id=name) if part not in inner and name in functions:
                return True
            case ast.Attribute(attr=name) if part not in inner and name not in CONSTANTS:
                return True
    return False


def _looks_back(tree: ast.Module, names: Names) -> bool:
    """Whether it compares what it gave the program with something that is not from the program.

    Then it wants to see what the program has done to it. In `assert f(items) == sorted(items)` it
    does not: there a program could empty the list and so fit it to its answer.
    """
    for node in ast.walk(tree):
        sides = _compared(node)
        if any(names.asks_program(side) for side in sides):
            continue  # the call comes first, and then what it is compared with
        of_program = []
        for side in sides:
            variables = names_in(side)
            if variables & (names.handed_over | names.results):
                of_program.append(variables)
        if len(of_program) == 1 and of_program[0] & names.handed_over:
            return True
    return False


def _compared(node: ast.AST) -> list[ast.expr]:
    """What a comparison or an assertion compares; nothing for any other node."""
    match node:
        case ast.Compare():
            return [node.left, *node.comparators]
        case ast.Assert(test=ast.Compare() | ast.BoolOp()):
            return []  # the comparisons in it come by themselves
        case ast.Assert():
            return [node.test]
        case ast.Call() if called(node).startswith("assert"):
            return node.args[:2]
    return []


def _asks_identity(tree: ast.Module, names: Names) -> bool:
    """Whether it asks for one object and not for its like."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and _why_comparison(node, names) == BY_IDENTITY:
            return True
        if called(node) in ("assertIs", "assertIsNot"):
            return True
    return False
