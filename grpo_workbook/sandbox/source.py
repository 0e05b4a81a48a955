"""A test's source: what it asks for, its cases, and the functions and classes to call.

A test is Python, or JSON with inputs and outputs as in APPS, CodeContests and LiveCodeBench.
Standard library only.
"""

import ast
import builtins
import decimal
import json
import re

COUNTED = """_workbook_passed()
try: pass
except _workbook_error as _workbook_e: _workbook_failed(_workbook_e)"""
# What a test may ask of a plain value: an object of the program's must not answer it.
_PLAIN = (str, bytes, int, float, complex, list, tuple, dict, set, range, decimal.Decimal)
PLAIN_NAMES = frozenset(name for kind in _PLAIN for name in dir(kind))


def name_of(call: ast.expr) -> str:
    """The last name of what is called."""
    return getattr(call, "attr", getattr(call, "id", ""))


def _is_assertion(node: ast.stmt) -> bool:
    """`assert ...`, `self.assertEqual(...)`, `np.testing.assert_allclose(...)`."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return name_of(node.value.func).startswith("assert")
    return isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant)


# What a test does in this process only: the program's is another.
_ELSEWHERE = {"patch", "redirect_stdout", "redirect_stderr", "stdout", "warns", "assertWarns"}
_ELSEWHERE |= {"assertLogs", "signature", "getsource"}


class Test:
    """A test, compiled to count its assertions and to continue after a failed one."""

    def __init__(self, source: str, setup: str, entry_point: str):
        tree, start = ast.parse(source), ast.parse(setup)
        tree.body = [s for s in tree.body if not _is_main(s)]
        self.source, self.root = source, re.split(r"[.(]", entry_point)[0]
        nodes, before = list(ast.walk(tree)), list(ast.walk(start))
        self._names([*nodes, *before])
        self._signs(nodes, entry_point, {n.name for n in before if isinstance(n, ast.ClassDef)})
        self.in_place = self._looks_back(nodes)
        plain = [s for s in tree.body if not isinstance(s, _DEFINITIONS)]
        used = {n.id for s in plain for n in ast.walk(s) if isinstance(n, ast.Name)}
        defined = [s.name for s in tree.body if isinstance(s, _FUNCTIONS)]
        self.functions = [x for x in defined if re.match("check$|test", x) and x not in used]
        self.asserts, self.cases = 0, None
        tree.body = self._block(tree.body, False)
        self.code = compile(ast.fix_missing_locations(tree), "<test>", "exec", dont_inherit=True)
        self.setup = compile(setup, "<setup>", "exec", dont_inherit=True)

    def _names(self, nodes: list) -> None:
        """The names that the test's own code binds, its classes and the modules it imports."""
        aliases = [x for n in nodes if isinstance(n, ast.Import | ast.ImportFrom) for x in n.names]
        self.bound = {(x.asname or x.name).split(".")[0] for x in aliases}
        self.bound |= {n.name for n in nodes if isinstance(n, _DEFINITIONS | ast.ExceptHandler)}
        self.bound |= {n.arg for n in nodes if isinstance(n, ast.arg)}
        loaded = [n for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
        self.bound |= {n.id for n in nodes if isinstance(n, ast.Name)} - {n.id for n in loaded}
        self.bound |= {n.id for n in nodes if isinstance(n, ast.Name) and n not in loaded}
        self.free = sorted({n.id for n in loaded} - self.bound - set(dir(builtins)))
        imported = [n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)]
        imported += [x.name for n in nodes if isinstance(n, ast.Import) for x in n.names]
        self.modules = {name.split(".")[0] for name in imported}
        self.classes = {n.name for n in nodes if isinstance(n, ast.ClassDef)} - {self.root}

    def _signs(self, nodes: list, entry_point: str, classes: set[str]) -> None:
        """Which names are classes of the program, and what reaches only this process."""
        asked = {x.name for n in nodes if getattr(n, "module", "") == "solution" for x in n.names}
        asked |= set(self.free) if "*" in asked else set()
        used = [n for n in nodes if isinstance(n, ast.Attribute)]
        imports = [x for n in nodes if isinstance(n, ast.Import) for x in n.names]
        modules = {x.asname or x.name for x in imports if x.name == "solution"}
        asked |= {n.attr for n in used if getattr(n.value, "id", "") in modules}
        self.class_names = classes | {x for x in asked if x[:1].isupper()}
        # objects: what the entry point returned, where the test asks it what it asks of no value
        makes = [n for n in nodes if isinstance(n, ast.Assign) and self._is_call(n.value)]
        objects = {ast.unparse(t) for n in makes for t in n.targets}
        acts = {id(n.value.func) for n in nodes if isinstance(n, ast.Expr) and _is_call(n.value)}
        shown = any(
            (self._is_call(n.value) and not (n.value.args or n.value.keywords))
            or (
                (n.attr not in PLAIN_NAMES or id(n) in acts)
                and (self._is_call(n.value) or ast.unparse(n.value) in objects)
            )
            for n in used
        )
        if entry_point != self.root or (shown and self.root[:1].isupper()):
            self.class_names.add(self.root)
        names = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        self.elsewhere = sorted(_ELSEWHERE & (names | {n.attr for n in used}))

    def wants_class(self, name: str) -> bool:
        """Whether the test treats this name of the program as a class."""
        return name in self.class_names

    def _is_call(self, node: ast.AST) -> bool:
        """A call of the entry point."""
        return _is_call(node) and name_of(node.func) in (self.root, "candidate")

    def _looks_back(self, nodes: list) -> bool:
        """Whether it compares a variable that the program had, with what is not from the program.

        Without this, a program could empty a list and so fit it to its answer, in
        `assert f(items) == sorted(items)`.
        """
        ours = {self.root, "candidate"}
        ours |= {a.arg for n in nodes if isinstance(n, _FUNCTIONS) for a in n.args.args}
        calls = [n for n in nodes if isinstance(n, ast.Call)]
        calls = [n for n in calls if _of_program(n.func, ours)]
        given = [a for n in calls for a in [*n.args, *(k.value for k in n.keywords)]]
        given = {a.id for a in given if isinstance(a, ast.Name)}
        answers = [n for n in nodes if isinstance(n, ast.Assign) and set(calls) & {*ast.walk(n)}]
        results = {x.id for n in answers for t in n.targets for x in ast.walk(t) if _is_name(x)}
        for node in nodes:
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
            elif isinstance(node, ast.Call) and name_of(node.func).startswith("assert"):
                sides = node.args[:2]
            else:
                continue
            inside = [[*ast.walk(side)] for side in sides]
            names = [{x.id for x in part if _is_name(x)} for part in inside]
            asks = any(x in calls for part in inside for x in part)
            touched = [bool(found & (given | results)) for found in names]
            if not asks and sum(touched) == 1 and names[touched.index(True)] & given:
                return True
        return False

    def _block(self, statements: list, guarded: bool) -> list:
        """The same statements, counted; an assert whose failure may be caught still raises."""
        out = []
        for node in statements:
            if _is_assertion(node):
                self.asserts += 1
                passed, attempt = ast.parse(COUNTED).body
                attempt.body, attempt.orelse = [node], [passed]
                out += [node, passed] if guarded else [attempt]
                continue
            catches = bool(getattr(node, "handlers", [])) or isinstance(node, _WITH)
            for part in [node, *getattr(node, "handlers", []), *getattr(node, "cases", [])]:
                for name in ("body", "orelse", "finalbody"):
                    if isinstance(inner := getattr(part, name, None), list):
                        inside = catches and part is node and name == "body"
                        setattr(part, name, self._block(inner, guarded or inside))
            out.append(node)
        return out


_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_DEFINITIONS = _FUNCTIONS | ast.ClassDef
_WITH = ast.With | ast.AsyncWith


def _is_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call)


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name)


def _is_main(node: ast.stmt) -> bool:
    """`if __name__ == "__main__":`"""
    return isinstance(node, ast.If) and "__name__" in {
        getattr(n, "id", "") for n in ast.walk(node.test)
    }


def _of_program(function: ast.expr, ours: set[str]) -> bool:
    """A call of the entry point, or of a method."""
    name = name_of(function)
    return name in ours or (isinstance(function, ast.Attribute) and not name.startswith("assert"))


# ---- JSON with inputs and outputs

FUNCTION_TEST = """
def _lists(x):
    if isinstance(x, dict):
        return {k: _lists(v) for k, v in x.items()}
    return [_lists(y) for y in x] if isinstance(x, list | tuple) else x
def _right(got, wanted):
    return any(_lists(got) == one for one in wanted)
def check(candidate):
"""


def cases_of(test: str) -> dict | None:
    """`inputs` and `outputs` (and a `function`, if it is called with the inputs) of a JSON test."""
    if not test.lstrip().startswith(("{", "[")):
        return None
    try:
        data = json.loads(test)
    except (ValueError, RecursionError):
        return None
    if isinstance(data, list):  # LiveCodeBench
        pairs = [(x["input"], x["output"]) for x in data]
        function = any(x.get("testtype") == "functional" for x in data) or None
    else:
        inputs, outputs = (
            data[k + "s"] if k + "s" in data else data[k] for k in ("input", "output")
        )
        pairs = list(zip(inputs, outputs, strict=True))
        function = data.get("fn_name")
    return {
        "pairs": [(_text(a), _text(b)) if not function else (a, b) for a, b in pairs],
        "function": function,
    }


def _text(value) -> str:
    """APPS has some inputs as lists of lines."""
    return value if isinstance(value, str) else "\n".join(map(str, value))


def function_test(cases: dict) -> str:
    """Python for a JSON test that calls a function."""
    lines = []
    for given, wanted in cases["pairs"]:
        if isinstance(given, str):  # LiveCodeBench: one line for each argument
            given, wanted = [json.loads(x) for x in given.splitlines()], json.loads(wanted)
            wanted = [wanted]
        else:  # APPS: an output is sometimes in a list of its own
            wanted = [
                wanted,
                *(wanted[:1] if isinstance(wanted, list) and len(wanted) == 1 else []),
            ]
        lines.append(f"    assert _right(candidate(*{given!r}), {wanted!r})\n")
    return FUNCTION_TEST + "".join(lines)


_FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)


def same_output(found: str, wanted: str) -> bool:
    """Equal but for white space; a number with a point or an exponent to 1e-6."""
    ours, theirs = wanted.split(), found.split()
    return len(ours) == len(theirs) and all(map(_same_token, theirs, ours))


def _same_token(found: str, wanted: str) -> bool:
    if found == wanted:
        return True
    if not re.search("[.eE]", wanted) or not (_FLOAT.fullmatch(found) and _FLOAT.fullmatch(wanted)):
        return False
    a, b = float(found), float(wanted)
    return abs(a - b) <= 1e-6 * max(1.0, abs(b))
