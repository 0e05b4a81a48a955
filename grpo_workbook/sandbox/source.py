"""A test's source, Python or JSON: what it asks for, and what to call. Standard library only."""

import ast
import builtins
import decimal
import json
import math
import re

COUNTED = """_workbook.holds(%d)  # a case; it follows the assertion, which takes the place of:
try: pass
except _workbook.error as _workbook_e: _workbook.fail_one(_workbook_e)"""
# What a test may ask of a plain value: an object of the program's must not answer it.
_PLAIN = (str, bytes, int, float, complex, list, tuple, dict, set, range, decimal.Decimal)
PLAIN_NAMES = frozenset(name for kind in _PLAIN for name in dir(kind))
# What a test does in this process only: the program's is another.
_ELSEWHERE = """patch redirect_stdout redirect_stderr stdout warns assertWarns assertLogs signature
    getsource open exists isfile isdir is_file chdir environ stdin argv sqlite3 vars __dict__
    __slots__ __mro__ __bases__ __members__ __code__ isgeneratorfunction
    iscoroutinefunction asdict astuple is_dataclass wait_for create_task as_completed
    __cause__ __context__"""
# what changes an object in place
_CHANGES = "append extend insert add update setdefault remove discard pop clear sort".split()
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_DEFINITIONS = _FUNCTIONS | ast.ClassDef
_PLACES = ast.Name | ast.Attribute | ast.Subscript


def _called(call: ast.AST) -> str:
    """The last name of what a call calls."""
    function = getattr(call, "func", None)
    return getattr(function, "attr", getattr(function, "id", ""))


def _names_in(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _places_in(node: ast.AST) -> set[str]:
    """All variables, attributes and items in it."""
    return {ast.unparse(n) for n in ast.walk(node) if isinstance(n, _PLACES)}


def _changed(nodes: list) -> set[str]:
    """Which attributes it changes in place, or compares with `is`."""
    stores = [n for n in nodes if isinstance(n, ast.Subscript) and not isinstance(n.ctx, ast.Load)]
    calls = [n.func for n in nodes if isinstance(getattr(n, "func", None), ast.Attribute)]
    compared = [n for n in nodes if isinstance(n, ast.Compare) and len(n.ops) == 1]
    owners = [n.value for n in [*stores, *(f for f in calls if f.attr in _CHANGES)]]
    owners += [n.left for n in compared if isinstance(n.ops[0], ast.Is | ast.IsNot)]
    found = set()
    for owner in owners:
        while isinstance(owner, ast.Subscript):
            owner = owner.value
        found.add(getattr(owner, "attr", ""))
    return found


class _Types(ast.NodeTransformer):
    """Lets the test ask for `type(x)` and `x.__class__`, which say nothing of a Handle."""

    @staticmethod
    def _asked(node: ast.AST) -> ast.AST:
        return ast.Call(ast.parse("_workbook.type_of", mode="eval").body, [node], [])

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        one = len(node.args) == 1 and getattr(node.func, "id", "") == "type"
        return self._asked(node.args[0]) if one else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        loads = node.attr == "__class__" and isinstance(node.ctx, ast.Load)
        return self._asked(node.value) if loads else node


class Test:
    """A test, compiled to count its assertions and to continue after a failed one."""

    def __init__(self, source: str, setup: str, entry_point: str):
        tree, start = ast.parse(source), ast.parse(setup)
        is_main = lambda s: isinstance(s, ast.If) and "__name__" in _names_in(s.test)  # noqa: E731
        tree.body = [s for s in tree.body if not is_main(s)]
        self.source, self.root = source, re.split(r"[.(]", entry_point)[0]
        self.fits, self.keeps = False, []  # see _looks_back
        nodes, before = list(ast.walk(tree)), list(ast.walk(start))
        self._names([*nodes, *before])
        self._signs(nodes, entry_point, {n.name for n in before if isinstance(n, ast.ClassDef)})
        self.in_place = self._looks_back(nodes)
        self.changed = _changed(nodes)
        _Types().visit(tree)
        plain = [s for s in tree.body if not isinstance(s, _DEFINITIONS)]
        used = {name for s in plain for name in _names_in(s)}
        defined = [s.name for s in tree.body if isinstance(s, _FUNCTIONS)]
        used |= self.calls & {"check"}  # by a test of pytest
        self.functions = [x for x in defined if re.match("check$|test", x) and x not in used]
        self.asserts, self.defined = 0, {n.name for n in nodes if isinstance(n, _FUNCTIONS)}
        tree.body = self._block(tree.body, False)
        self.code = compile(ast.fix_missing_locations(tree), "<test>", "exec", dont_inherit=True)
        self.setup = compile(setup, "<setup>", "exec", dont_inherit=True)

    def _names(self, nodes: list) -> None:
        """The names that the test's own code binds, its classes and the modules it imports."""
        imports = [n for n in nodes if isinstance(n, ast.Import | ast.ImportFrom)]
        names = [n for n in nodes if isinstance(n, ast.Name)]
        self.loaded = {n.id for n in names if isinstance(n.ctx, ast.Load)}
        self.bound = {(x.asname or x.name).split(".")[0] for n in imports for x in n.names}
        self.bound |= {n.name for n in nodes if isinstance(n, _DEFINITIONS | ast.ExceptHandler)}
        self.bound |= {n.arg for n in nodes if isinstance(n, ast.arg)}
        self.assigned = {n.id for n in names if not isinstance(n.ctx, ast.Load)}
        self.bound |= self.assigned
        self.calls = {_called(n) for n in nodes}
        self.free = sorted(self.loaded - self.bound - set(dir(builtins)))
        imported = [getattr(n, "module", x.name) or "" for n in imports for x in n.names]
        self.modules = {name.split(".")[0] for name in imported}
        self.classes = {n.name for n in nodes if isinstance(n, ast.ClassDef)} - {self.root}

    def _signs(self, nodes: list, entry_point: str, classes: set[str]) -> None:
        """Which names are classes of the program, and what reaches only this process."""
        given = [x for n in nodes if getattr(n, "module", "") == "solution" for x in n.names]
        asked = {x.name for x in given}
        asked |= {x for x in self.free if "*" in asked or (x[:1].isupper() and x != self.root)}
        used = [n for n in nodes if isinstance(n, ast.Attribute)]
        imports = [x for n in nodes if isinstance(n, ast.Import) for x in n.names]
        modules = {x.asname or x.name for x in imports if x.name == "solution"}
        self.imported = {x.asname or x.name for x in imports} - modules
        asked |= {n.attr for n in used if getattr(n.value, "id", "") in modules}
        self.asked = asked | {x.asname or x.name for x in given}
        self.class_names = classes | {x for x in asked if x[:1].isupper()}
        # whether it asks objects for what no value has; else `F(2) == 5` may be of a function F
        asks = [n.attr for n in used if not {ast.unparse(n.value)} & {"self", *self.imported}]
        self.shows = bool(self.class_names or {*asks} - PLAIN_NAMES)
        if entry_point != self.root or self.root[:1].isupper():
            self.class_names.add(self.root)
        compared = [n for n in nodes if isinstance(n, ast.Compare)]
        compared = [n.comparators[0] for n in compared if isinstance(n.ops[0], ast.Is | ast.IsNot)]
        self.asks_is = not all(isinstance(n, ast.Constant) for n in compared)
        self.used = self.loaded | {n.attr for n in used} - {"open"}  # `door.open()` is no file
        records = {"fields", "replace"} if "dataclasses" in self.modules else set()
        self.elsewhere = sorted(self.used & {*_ELSEWHERE.split()} | self.loaded & records)
        # whether it may leave a module changed
        stores = [n.value for n in used if not isinstance(n.ctx, ast.Load)]
        stores += [x for n in nodes if _called(n) == "setattr" for x in n.args[:1]]
        self.touches = any(_names_in(x) & self.imported for x in stores)
        self.touches |= bool(self.used & {"getcontext", "filterwarnings"})
        self.touches |= {"patch", "start"} <= self.used
        self.texts = {n.value for n in nodes if type(getattr(n, "value", 0)) is str}
        if self.texts & {"__dict__", "__slots__"}:
            raise ValueError("no object has its __dict__ or __slots__ here")
        loads = [x for x in self.used if re.match("unsafe_|(?!C?Safe).*Loader$", x)]
        if "yaml" in self.modules and loads:
            raise ValueError("yaml would run what the program returns")

    def _looks_back(self, nodes: list) -> bool:
        """Whether it compares a variable that the program had, with what is not from the program.

        Without this, a program could empty a list and so fit it to its answer, in
        `assert f(items) == sorted(items)`.
        """
        ours = {self.root or "candidate", "candidate", *self.asked}
        ours |= {a.arg for n in nodes if isinstance(n, _FUNCTIONS) for a in n.args.args}
        # calls of the entry point, or of a method
        calls = [n for n in nodes if isinstance(n, ast.Call)]
        calls = [n for n in calls if not _called(n).startswith("assert")]
        calls = [n for n in calls if not _names_in(n.func) & self.imported]  # not np.array
        calls = {n for n in calls if isinstance(n.func, ast.Attribute) or _called(n) in ours}
        given = self._given(calls)
        continued = {ast.unparse(a) for n in nodes if _called(n) == "next" for a in n.args[:1]}
        self.continues = bool(continued & given)
        # an object may keep what it is made from, and a with block's change it later
        blocks = {x.context_expr for n in nodes if isinstance(n, ast.With) for x in n.items}
        keeps = self._given([n for n in calls if n in blocks or _called(n) in self.class_names])
        answers = [n for n in nodes if isinstance(n, ast.Assign) and calls & {*ast.walk(n)}]
        results = {x for n in answers for t in n.targets for x in _names_in(t)}
        for node in nodes:
            sides = node.args[:2] if _called(node).startswith("assert") else []
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
            names = [found for side in sides if (found := _places_in(side)) & (given | results)]
            asks = any(calls & {*ast.walk(side)} for side in sides)
            if not asks and len(names) == 1 and names[0] & given:
                self.keeps = sorted(names[0] & keeps & self.assigned)
                return True
            us = {x for x in sides if _names_in(x) & results or {*map(_called, ast.walk(x))} & ours}
            self.fits |= bool(us) and any(_places_in(x) & given for x in {*sides} - us)
        return False

    @staticmethod
    def _given(calls) -> set[str]:
        """The variables that are arguments of the calls."""
        given = [a for n in calls for a in [*n.args, *(k.value for k in n.keywords)]]
        given = [a.value if isinstance(a, ast.Starred) else a for a in given]
        return {ast.unparse(a) for a in given if isinstance(a, _PLACES)}

    def _block(self, statements: list, guarded: bool) -> list:
        """The same statements, counted; an assert whose failure may be caught still raises."""
        out = []
        for node in statements:
            # `assert ...`, `self.assertEqual(...)`, `np.testing.assert_allclose(...)`
            checks = isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant)
            name = _called(node.value) if isinstance(node, ast.Expr) else ""
            calls = name.startswith("assert") and name not in self.defined  # their own ones count
            if checks or calls:
                self.asserts += 1
                passed, attempt = ast.parse(COUNTED % self.asserts).body
                attempt.body, attempt.orelse = [node], [passed]
                out += [node, passed] if guarded else [attempt]
                continue
            handlers = getattr(node, "handlers", [])
            catches = handlers or isinstance(node, ast.With | ast.AsyncWith)
            for part in [node, *handlers, *getattr(node, "cases", [])]:
                for name in ("body", "orelse", "finalbody"):
                    if isinstance(inner := getattr(part, name, None), list):
                        inside = catches and part is node and name == "body"
                        setattr(part, name, self._block(inner, bool(guarded or inside)))
            out.append(node)
        return out


# JSON with inputs and outputs, as Python: of a test that calls a function, or runs a script
CALLS = """
for given, right in _workbook.pairs:
    found = candidate(*given)
    assert any(_workbook.same_value(found, x) for x in right)
"""
SCRIPT = """
for given, right in _workbook.pairs:
    assert _workbook.same_output(found := candidate(given), right), repr(found[:80])
"""


def is_json(test) -> bool:
    """Whether the test is input and output: a dict, a list, or JSON."""
    return isinstance(test, dict | list) or str(test).lstrip().startswith(("{", "["))


def _of_lines(given: str, right: str) -> tuple[list, list]:
    """LiveCodeBench's arguments, each in a line of its own, and result."""
    return [*map(json.loads, given.splitlines())], [json.loads(right)]


def read_json(test: str, name: str) -> tuple[list, str, str]:
    """The pairs of a JSON test, its Python, and the entry point, if it has none called `name`.

    A pair is input and output of a script, or arguments and the results that are right.
    """
    data = json.loads(test)
    if isinstance(data, list):
        pairs = [(row["input"], row["output"]) for row in data]
        function = data[0].get("fn_name") if data else None  # DeepCoder
        if function is None and any(row.get("testtype") == "functional" for row in data):
            if not name:
                raise ValueError("inputs for a function need its name as the entry point")
            return [_of_lines(a, b) for a, b in pairs], CALLS, name
    else:
        columns = [data.get(f"{x}s", data.get(x)) for x in ("input", "output")]
        pairs, function = list(zip(*columns, strict=True)), data.get("fn_name")
    if function is not None:
        # an output is sometimes in a list of its own
        single = lambda x: x if isinstance(x, list) and len(x) == 1 else []  # noqa: E731
        pairs = [_of_lines(a, b) if isinstance(a, str) else (a, [b, *single(b)]) for a, b in pairs]
        return pairs, CALLS, name or str(function)
    # APPS has some inputs as lists of lines
    text = lambda x: "\n".join(map(str, x)) if isinstance(x, list) else str(x)  # noqa: E731
    return [(text(a), text(b)) for a, b in pairs], SCRIPT, "script"


_FLOAT = re.compile(r"[+-]?(\d++\.?\d*+|\.\d++)([eE][+-]?\d{1,4})?", re.ASCII)


def same_value(found, wanted) -> bool:
    """Equal as JSON, numbers with a float to 1e-5 as on LeetCode."""
    if isinstance(found, list | tuple) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(same_value, found, wanted))
    if isinstance(found, dict) and isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(same_value(found[k], wanted[k]) for k in found)
    floats = {type(found), type(wanted)} in ({float}, {int, float})
    close = 1e-5 if isinstance(wanted, float) else 0.0  # a large integer has no tolerance
    floats = floats and (close or abs(wanted) < 2**53)
    return found == wanted or (floats and math.isclose(found, wanted, rel_tol=close, abs_tol=1e-5))


def same_output(found: str, wanted: str) -> bool:
    """Equal but for white space; a number with a point or an exponent to 1e-6."""

    def same(a: str, b: str) -> bool:
        numbers = re.search("[.eE]", b) and _FLOAT.fullmatch(a) and _FLOAT.fullmatch(b)
        close = numbers and math.isclose(float(a), float(b), rel_tol=1e-6, abs_tol=1e-6)
        return a == b or bool(close)

    words, right = found.split(), wanted.split()
    return len(words) == len(right) and all(map(same, words, right))
