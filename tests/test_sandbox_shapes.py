"""Honest forms of programs and tests, each with a wrong program: one passes, the other does not."""
# ruff: noqa: E501 (programs stand on one line)

import gzip
import json
import sys
import warnings
from typing import NamedTuple

import pytest
from conftest import REPO, SHARED

sys.path.insert(0, str(REPO / "benchmarks"))
import code_shapes

from grpo_workbook.sandbox import Job, Sandbox


class Form(NamedTuple):
    """A test, a right program for it, a wrong one (None: no test of ours can tell)."""

    right: str
    wrong: str
    test: str
    name: str = "f"
    setup: str = ""


@pytest.fixture(scope="module")
def sandbox():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Sandbox(workers=2, time_limit=10.0) as made:
            made.probe()
            yield made


NODE = "class Node:\n    def __init__(self, val=0, next=None):\n        self.val = val\n        self.next = next\n"
CHAIN = (
    NODE
    + "def chain(xs):\n    first = None\n    for x in reversed(xs): first = Node(x, first)\n    return first\n"
)
CHAIN += "def items(n):\n    out = []\n    while n: out.append(n.val); n = n.next\n    return out\n"
TREE = "class TreeNode:\n    def __init__(self, val=0, left=None, right=None):\n        self.val, self.left, self.right = val, left, right\n"
STACK = "class Stack:\n    def __init__(self): self.items = []\n    def push(self, x): self.items.append(x)\n    def pop(self): return self.items.pop()\n    def __len__(self): return len(self.items)\n    def __contains__(self, x): return x in self.items\n    def __iter__(self): return iter(self.items)\n    def __getitem__(self, i): return self.items[i]\n    def __bool__(self): return bool(self.items)\n    def __str__(self): return f'Stack({self.items})'\n"
VECTOR = "class Vector:\n    def __init__(self, x, y): self.x, self.y = x, y\n    def __add__(self, o): return Vector(self.x + o.x, self.y + o.y)\n    def __mul__(self, k): return Vector(self.x * k, self.y * k)\n    __rmul__ = __mul__\n    def __eq__(self, o): return isinstance(o, Vector) and (self.x, self.y) == (o.x, o.y)\n    def __abs__(self): return (self.x ** 2 + self.y ** 2) ** 0.5\n    def __lt__(self, o): return abs(self) < abs(o)\n    def __neg__(self): return Vector(-self.x, -self.y)\n    def __repr__(self): return f'Vector({self.x}, {self.y})'\n    def norm(self): return abs(self)\n    @classmethod\n    def zero(cls): return cls(0, 0)\n"

FORMS = {
    # in place
    "sorts in place": Form("def f(x): x.sort()", "def f(x): sorted(x)", "a = [3, 1, 2]\nf(a)\nassert a == [1, 2, 3]"),
    "a matrix in place": Form("def f(m):\n    for r in m: r.reverse()", "def f(m): pass", "m = [[1, 2], [3, 4]]\nr = m[0]\nf(m)\nassert m == [[2, 1], [4, 3]]\nassert r == [2, 1]"),
    "a dict in place": Form("def f(d): d['x'] = 1", "def f(d): d = {'x': 1}", "d = {}\nf(d)\nassert d == {'x': 1}"),
    "a set in place": Form("def f(s): s.discard(1)", "def f(s): s - {1}", "s = {1, 2}\nassert f(s) is None\nassert s == {2}"),
    "a bytearray in place": Form("def f(b): b[0] = 7", "def f(b): return b", "b = bytearray(2)\nf(b)\nassert b == bytearray(b'\\x07\\x00')"),
    "a deque in place": Form("def f(d): d.rotate(1)", "def f(d): pass", "from collections import deque\nd = deque([1, 2, 3], maxlen=5)\nf(d)\nassert d == deque([3, 1, 2]) and d.maxlen == 5"),
    "a number and the array": Form("def f(a):\n    k = len(set(a)); a[:] = sorted(set(a)); return k", "def f(a): return len(set(a))", "a = [1, 1, 2]\nk = f(a)\nassert k == 2\nassert a[:k] == [1, 2]"),
    "arguments stay": Form("def f(a): return sorted(a)", "def f(a): a.sort(); return a", "a = [2, 1]\nb = a[:]\nassert f(a) == [1, 2]\nr = f(a)\nassert a == b"),
    "an object twice": Form("def f(a): a[0].append(1)", "def f(a): pass", "x = []\na = [x, x]\nf(a)\nassert a == [[1], [1]] and a[0] is a[1]"),
    "the same list comes back": Form("def f(a): a.append(1); return a", "def f(a): return a + [2]", "assert f([]) == [1]"),
    # types
    "namedtuple": Form("from collections import namedtuple\nP = namedtuple('P', 'x y')\ndef f(): return P(1, 2)", "def f(): return (1, 3)", "p = f()\nassert p == (1, 2)"),
    "fields of a namedtuple": Form("from typing import NamedTuple\nclass P(NamedTuple):\n    x: int\n    y: int\ndef f(): return P(1, 2)", "def f(): return (1, 2)", "assert f().x == 1 and f()._asdict() == {'x': 1, 'y': 2}"),
    "Decimal": Form("from decimal import Decimal\ndef f(): return Decimal('0.10')", "def f(): return 0.11", "from decimal import Decimal\nassert f() == Decimal('0.1') and isinstance(f(), Decimal)"),
    "Fraction": Form("from fractions import Fraction\ndef f(x): return Fraction(x, 3)", "def f(x): return x / 4", "from fractions import Fraction\nassert f(Fraction(1, 2)) == Fraction(1, 6)"),
    "date": Form("import datetime as d\ndef f(x): return x + d.timedelta(days=1)", "def f(x): return x", "from datetime import date\nassert f(date(2024, 2, 28)) == date(2024, 2, 29)"),
    "datetime": Form("from datetime import *\ndef f(): return datetime(2024, 1, 2, 3, 4, 5, 6, timezone(timedelta(hours=2)))", "from datetime import *\ndef f(): return datetime(2024, 1, 2)", "from datetime import *\nassert f() == datetime(2024, 1, 2, 1, 4, 5, 6, timezone.utc)\nassert f().utcoffset() == timedelta(hours=2)"),
    "time": Form("from datetime import *\ndef f(): return time(1, 2), timedelta(seconds=5)", "def f(): return None", "from datetime import *\nassert f() == (time(1, 2), timedelta(seconds=5))"),
    "deque": Form("from collections import deque\ndef f(): return deque([1, 2])", "def f(): return [1, 2]", "from collections import deque\nassert f() == deque([1, 2])"),
    "OrderedDict": Form("from collections import OrderedDict\ndef f(): return OrderedDict(b=1, a=2)", "from collections import OrderedDict\ndef f(): return OrderedDict(a=2, b=1)", "from collections import OrderedDict\nassert f() == OrderedDict([('b', 1), ('a', 2)])"),
    "Counter": Form("from collections import Counter\ndef f(s): return Counter(s)", "def f(s): return {}", "assert f('aab').most_common(1) == [('a', 2)]"),
    "defaultdict": Form("from collections import defaultdict\ndef f(s):\n    d = defaultdict(list)\n    for c in s: d[c].append(1)\n    return d", "def f(s): return {}", "assert f('aa') == {'a': [1, 1]}"),
    "enum of the program": Form("from enum import Enum\nclass C(Enum):\n    RED = 1\n    BLUE = 2\ndef f(): return C.RED", "from enum import Enum\nclass C(Enum):\n    RED = 1\n    BLUE = 2\ndef f(): return C.BLUE", "from solution import C, f\nassert f() == C.RED and f() is C.RED\nassert f().value == 1"),
    "enum of the setup": Form("from enum import Enum\nclass C(Enum):\n    RED = 1\n    BLUE = 2\ndef f(c): return C.RED if c is C.BLUE else C.BLUE", "def f(c): return c", "assert f(C.BLUE) is C.RED and f(C.RED) == C.BLUE", "f", "from enum import Enum\nclass C(Enum):\n    RED = 1\n    BLUE = 2"),
    "IntEnum": Form("from enum import IntEnum\nclass C(IntEnum):\n    RED = 1\ndef f(): return C.RED", "def f(): return 2", "assert f() == 1"),
    "dataclass by its fields": Form("from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n    count: int\ndef f(): return P(1, 2)", "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n    count: int\ndef f(): return P(2, 2)", "assert f().x == 1 and f().count == 2"),
    "dataclass of the program": Form("from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\ndef f(p): return P(p.x + 1)", "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\ndef f(p): return p", "from solution import P, f\nassert f(P(1)) == P(2)"),
    "dataclass of the setup": Form("from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\ndef f(p): return P(p.x + 1)", "def f(p): return p", "assert f(P(1)) == P(2)", "f", "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int"),
    "frozen dataclass with slots": Form("from dataclasses import dataclass\n@dataclass(frozen=True, slots=True)\nclass P:\n    x: int\ndef f(p): return P(p.x + 1)", "def f(p): return p", "assert f(P(1)) == P(2) and len({f(P(1)), P(2)}) == 1", "f", "from dataclasses import dataclass\n@dataclass(frozen=True, slots=True)\nclass P:\n    x: int"),
    "range": Form("def f(n): return range(n)", "def f(n): return range(n + 1)", "assert f(3) == range(3) and len(f(3)) == 3"),
    "views": Form("def f(d): return d.keys(), d.values(), d.items()", "def f(d): return [], [], []", "k, v, i = f({'a': 1})\nassert k == {'a'} and list(v) == [1] and list(i) == [('a', 1)]"),
    "int subclass": Form("class N(int): pass\ndef f(x): return N(x + 1)", "class N(int): pass\ndef f(x): return N(x)", "assert f(3) == 4"),
    "dict subclass": Form("class D(dict): pass\ndef f(): return [D(a=[D()])]", "def f(): return [{}]", "assert f() == [{'a': [{}]}]"),
    "UserDict and ChainMap": Form("from collections import ChainMap, UserDict\ndef f(): return UserDict(a=1), ChainMap({'b': 2})", "def f(): return {}, {}", "assert f() == ({'a': 1}, {'b': 2})"),
    "types": Form("def f(x): return type(x)", "def f(x): return str", "assert f(3) is int and f([]) == list"),
    "a type as argument": Form("def f(xs, t): return [x for x in xs if isinstance(x, t)]", "def f(xs, t): return xs", "assert f([1, 'a'], int) == [1] and f([1, 'a'], (str, float)) == ['a']"),
    "an exception as value": Form("def f(): return ValueError('no', 3)", "def f(): return 0", "e = f()\nassert isinstance(e, ValueError) and e.args == ('no', 3)"),
    "complex, bytes and ellipsis": Form("def f(): return 1j, b'x', ...", "def f(): return 1", "assert f() == (1j, b'x', ...)"),
    "nan and inf": Form("def f(): return float('nan'), float('-inf')", "def f(): return 0.0, 0.0", "import math\na, b = f()\nassert math.isnan(a) and b == -math.inf"),
    "a cycle": Form("def f():\n    x = [1]; x.append(x); return x", "def f(): return [1, [1]]", "x = f()\nassert x[1] is x"),
    # exceptions
    "args of an exception": Form("def f(): raise ValueError('no', 3)", "def f(): raise ValueError('no')", "try:\n    f()\nexcept ValueError as e:\n    args = e.args\nassert args == ('no', 3)"),
    "own exception": Form("class Mine(Exception):\n    def __init__(self, code): super().__init__(f'code {code}'); self.code = code\ndef f(): raise Mine(7)", "class Mine(Exception): pass\ndef f(): raise ValueError", "from solution import Mine, f\nimport pytest\nwith pytest.raises(Mine, match='code 7') as e: f()\nassert e.value.code == 7"),
    "parent of an own exception": Form("class A(Exception): pass\nclass B(A): pass\ndef f(): raise B('x')", "class A(Exception): pass\nclass B(A): pass\ndef f(): raise Exception", "from solution import A, f\nok = False\ntry: f()\nexcept A: ok = True\nassert ok"),
    "an exception of the setup": Form("class Mine(Exception): pass\ndef f(): raise Mine('x')", "def f(): raise ValueError('x')", "ok = False\ntry: f()\nexcept Mine as e: ok = str(e) == 'x'\nassert ok", "f", "class Mine(Exception): pass"),
    "KeyError": Form("def f(d): return d['k']", "def f(d): return None", "import pytest\nwith pytest.raises(KeyError): f({})"),
    "ZeroDivisionError": Form("def f(x): return 1 / x", "def f(x): return 0", "import pytest\nwith pytest.raises(ZeroDivisionError): f(0)\nassert f(2) == 0.5"),
    "sys.exit": Form("import sys\ndef f(): sys.exit(3)", "def f(): pass", "import pytest\nwith pytest.raises(SystemExit) as e: f()\nassert e.value.code == 3"),
    # functions
    "a function as argument": Form("def f(g, x): return g(g(x))", "def f(g, x): return g(x)", "assert f(lambda x: x + 1, 3) == 5"),
    "a key": Form("def f(xs, key): return sorted(xs, key=key)", "def f(xs, key): return sorted(xs)", "assert f(['bb', 'a'], key=lambda s: -ord(s[0])) == ['bb', 'a']"),
    "built-in functions": Form("def f(g, xs): return g(xs)", "def f(g, xs): return xs", "import operator\nassert f(max, [1, 3]) == 3 and f(operator.neg, 2) == -2"),
    "a function that raises": Form("def f(g):\n    try: g()\n    except ValueError as e: return str(e)", "def f(g): return ''", "def g(): raise ValueError('x')\nassert f(g) == 'x'"),
    "calls are counted": Form("def f(g):\n    for i in range(3): g(i)", "def f(g): g(0)", "seen = []\nf(seen.append)\nassert seen == [0, 1, 2]"),
    "a function comes back": Form("def f(n): return lambda x: x + n", "def f(n): return lambda x: n", "g = f(3)\nassert callable(g) and g(4) == 7 and f(1)(1) == 2"),
    "a decorator": Form("def f(g):\n    def w(*a): return g(*a) * 2\n    return w", "def f(g): return g", "@f\ndef g(x): return x\nassert g(3) == 6"),
    "memory of a function": Form("import functools\ndef f(g): return functools.lru_cache(None)(g)", "def f(g): return g", "n = []\ndef g(x):\n    n.append(x)\n    return x\nh = f(g)\nassert h(1) == h(1) == 1 and n == [1]"),
    "the text of a function of the test": Form("import functools\ndef f(g):\n    @functools.wraps(g)\n    def w(*a): return g(*a)\n    return w", "def f(g): return lambda *a: g(*a)", "@f\ndef g(x):\n    'text'\n    return x\n@f\ndef h(x): return x\nassert g(1) == 1 and (g.__name__, g.__doc__, h.__doc__) == ('g', 'text', None)"),
    "a built-in type as the function": Form("f = list", "f = set", "assert f((1, 2)) == [1, 2]"),
    "its name and text": Form('def f():\n    """Docs."""', "def f(): pass", "assert f.__name__ == 'f' and f.__doc__ == 'Docs.' and f.__annotations__ == {}\nassert f() is None"),
    "recursion through a callback": Form("def f(g, n): return 0 if n == 0 else 1 + g(n - 1)", "def f(g, n): return n + 1", "assert f(lambda n: f(lambda m: m, n), 2) == 2"),
    # iterators
    "a generator without end": Form("def f():\n    n = 0\n    while True: yield n; n += 1", "def f():\n    while True: yield 0", "from itertools import islice\nassert list(islice(f(), 5)) == [0, 1, 2, 3, 4]"),
    "next": Form("def f():\n    yield 1\n    yield 2", "def f(): yield 1", "g = f()\nassert (next(g), next(g), next(g, None)) == (1, 2, None)"),
    "count": Form("import itertools\ndef f(): return itertools.count(5)", "import itertools\ndef f(): return itertools.count(4)", "assert next(f()) == 5"),
    "an error in a generator": Form("def f():\n    yield 1\n    raise ValueError('x')", "def f(): yield 1", "import pytest\ng = f()\nassert next(g) == 1\nwith pytest.raises(ValueError): next(g)"),
    "itertools": Form("import itertools\ndef f(x): return itertools.permutations(x)", "import itertools\ndef f(x): return itertools.combinations(x, 2)", "assert sorted(f([1, 2])) == [(1, 2), (2, 1)] and len(list(f('abc'))) == 6"),
    "an iterator as argument": Form("def f(it): return [next(it), list(it)]", "def f(it): return list(it)", "assert f(iter([1, 2, 3])) == [1, [2, 3]]"),
    # async
    "async": Form("import asyncio\nasync def f(x):\n    await asyncio.sleep(0)\n    return x + 1", "async def f(x): return x", "import asyncio\nassert asyncio.run(f(3)) == 4"),
    "async test": Form("async def f(x): return x + 1", "async def f(x): return x", "async def test_f():\n    assert await f(3) == 4"),
    "gather": Form("async def f(x): return x + 1", "async def f(x): return x", "import asyncio\nasync def main(): return await asyncio.gather(f(1), f(2))\nassert asyncio.run(main()) == [2, 3]"),
    "an error when awaited": Form("async def f(x): raise ValueError(x)", "async def f(x): return x", "import asyncio, pytest\nwith pytest.raises(ValueError): asyncio.run(f(3))"),
    # classes
    "a class": Form(STACK, STACK.replace("append(x)", "insert(0, x)"), "s = Stack()\ns.push(1)\ns.push(2)\nassert len(s) == 2 and 1 in s and 5 not in s\nassert list(s) == [1, 2] and s[0] == 1\nassert s.pop() == 2\nassert s and str(s) == 'Stack([1])' and s.items == [1]\ns.pop()\nassert not s", "Stack"),
    "an error of a method": Form(STACK, STACK.replace("self.items.pop()", "None"), "import pytest\ns = Stack()\nwith pytest.raises(IndexError): s.pop()", "Stack"),
    "check gets a class": Form(STACK, STACK.replace("append(x)", "insert(0, x)"), "def check(candidate):\n    s = candidate()\n    s.push(1)\n    s.push(2)\n    assert s.pop() == 2", "Stack"),
    "operators": Form(VECTOR, VECTOR.replace("self.y + o.y", "self.y"), "from solution import Vector\nv = Vector(1, 2) + Vector(3, 4)\nassert v == Vector(4, 6) and v != Vector(0, 0)\nassert (v.x, v.y) == (4, 6)", ""),
    "more operators": Form(VECTOR, VECTOR.replace("0.5", "1"), "from solution import Vector\nassert abs(Vector(3, 4)) == 5\nassert Vector(3, 4).norm() == 5.0\nassert (Vector(1, 2) * 3).x == 3 and (2 * Vector(1, 2)).y == 4\nassert Vector(1, 1) < Vector(2, 2)\nassert repr(-Vector(1, 2)) == 'Vector(-1, -2)'\nassert Vector.zero() == Vector(0, 0) and sorted([Vector(2, 2), Vector(1, 1)])[0].x == 1", ""),
    "isinstance": Form(VECTOR, VECTOR.replace("cls(0, 0)", "0"), "from solution import Vector\nassert isinstance(Vector(1, 2), Vector) and not isinstance(3, Vector)\nassert isinstance(Vector.zero(), Vector)", ""),
    "attributes are set": Form("class A:\n    x = 1\n    def get(self): return self.x", "class A:\n    x = 1\n    def get(self): return 1", "from solution import A\na = A()\na.x = 5\nassert a.get() == 5 and A.x == 1", ""),
    "a property": Form("class A:\n    def __init__(self, r): self.r = r\n    @property\n    def area(self): return self.r ** 2\n    @area.setter\n    def area(self, v): raise ValueError", "class A:\n    def __init__(self, r): self.r = r\n    area = 9", "import pytest\nfrom solution import A\na = A(3)\nassert a.area == 9\nwith pytest.raises(ValueError): a.area = 1", ""),
    "a context manager": Form("class A:\n    def __enter__(self): self.on = True; return self\n    def __exit__(self, *_): self.on = False", "class A:\n    on = True\n    def __enter__(self): return self\n    def __exit__(self, *_): pass", "from solution import A\nwith A() as a:\n    assert a.on\nassert a.on is False", ""),
    "the type of an object": Form("class A: pass\nclass B(A): pass\ndef f(x): return B()", "class A: pass\nclass B(A): pass\ndef f(x): return A()", "from solution import A, B, f\nassert type(f(1)) is B and type(A()) is A and f(1).__class__ is B\nassert type(f(1)).__name__ == 'B' and type(3) is int and type(f(1)) is type(f(2)) is not type(A())", ""),
    "what an error's class says": Form("class E(Exception):\n    code = 2\n    def hint(self): return self.args[0] + 1\nclass M(E, KeyError): pass\ndef f(x):\n    if x: raise E(x)\n    raise M(x)", "class E(Exception):\n    code = 3\n    def hint(self): return self.args[0] + 2\nclass M(E): pass\ndef f(x):\n    if x: raise E(x)\n    raise M(x)", "import pytest\nfrom solution import f, E\nwith pytest.raises(E) as e: f(1)\nassert e.value.code == 2 and e.value.hint() == 2\nwith pytest.raises(KeyError): f(0)\ntry: f(0)\nexcept Exception as e: assert type(e).__name__ == 'M' and isinstance(e, E)", ""),
    "an error of the test's through the program": Form("def f(visit):\n    for x in [1, 2]: visit(x)", "def f(visit): pass", "import pytest\nclass Stop(Exception): pass\ndef visit(x):\n    if x == 2: raise Stop(x)\nwith pytest.raises(Stop): f(visit)"),
    "setup_module": Form("def f(x): return x + 1", "def f(x): return x", "def setup_module(module): module.A = 4\ndef test_f(): assert f(3) == A"),
    "a case that is marked": Form("def f(x): return x + 1", "def f(x): return x", "import pytest\n@pytest.mark.parametrize('x, y', [(1, 2), pytest.param(1, 3, marks=pytest.mark.xfail)])\ndef test_f(x, y): assert f(x) == y"),
    "an iterator class": Form("class A:\n    def __init__(self, n): self.n = n\n    def __iter__(self): return self\n    def __next__(self):\n        if self.n == 0: raise StopIteration\n        self.n -= 1\n        return self.n", "class A:\n    def __init__(self, n): self.n = n\n    def __iter__(self): return iter(())", "from solution import A\nassert list(A(3)) == [2, 1, 0]\na = A(1)\nassert next(a) == 0\nassert next(a, None) is None", ""),
    "static and class methods": Form("class A:\n    n = 0\n    @staticmethod\n    def add(a, b): return a + b\n    @classmethod\n    def up(cls): cls.n += 1; return cls.n", "class A:\n    add = staticmethod(lambda a, b: a)\n    up = staticmethod(lambda: 1)", "from solution import A\nassert A.add(1, 2) == 3 and A.up() == 1 and A.up() == 2", ""),
    "a chain of calls": Form("class B:\n    def __init__(self): self.x = []\n    def add(self, y): self.x.append(y); return self\n    def build(self): return self.x", "class B:\n    def __init__(self): self.x = []\n    def add(self, y): return B()\n    def build(self): return self.x", "from solution import B\nassert B().add(1).add(2).build() == [1, 2]", ""),
    "objects as keys": Form("class K:\n    def __init__(self, x): self.x = x\n    def __hash__(self): return hash(self.x)\n    def __eq__(self, o): return self.x == o.x", "class K:\n    def __init__(self, x): self.x = x", "from solution import K\nassert len({K(1), K(1), K(2)}) == 2 and {K(1): 5}[K(1)] == 5", ""),
    "a list subclass": Form("class S(list):\n    def top(self): return self[-1]", "class S(list):\n    def top(self): return self[0]", "from solution import S\ns = S([1, 2])\nassert s.top() == 2 and len(s) == 2", ""),
    "an object as argument": Form("class A:\n    def __init__(self, x): self.x = x\ndef f(a): return a.x + 1", "class A:\n    def __init__(self, x): self.x = x\ndef f(a): return a.x", "from solution import A, f\nassert f(A(1)) == 2", ""),
    "inheritance": Form("class A:\n    def s(self): return 'a'\nclass B(A):\n    def s(self): return super().s() + 'b'", "class A:\n    def s(self): return 'a'\nclass B(A): pass", "from solution import A, B\nassert B().s() == 'ab' and issubclass(B, A) and isinstance(B(), A)", ""),
    "an object of a function": Form("class Tree:\n    def __init__(self, v): self.v = v; self.kids = []\ndef f(v):\n    t = Tree(v); t.kids.append(Tree(v + 1)); return t", "class Tree:\n    def __init__(self, v): self.v = v; self.kids = []\ndef f(v):\n    t = Tree(v); t.kids.append(Tree(v)); return t", "t = f(1)\nassert t.v == 1 and t.kids[0].v == 2 and len(t.kids) == 1"),
    # LeetCode
    "Solution": Form("class Solution:\n    def add(self, a: int, b: int) -> int:\n        return a + b", "class Solution:\n    def add(self, a, b): return a", "def check(candidate):\n    assert candidate(a=2, b=3) == 5\n    assert candidate(1, 1) == 2", "Solution().add"),
    "Solution with a plain name": Form("class Solution:\n    def count(self, s): return s.count('a')", "class Solution:\n    def count(self, s): return 0", "def check(candidate):\n    assert candidate(s='aab') == 2", "Solution().count"),
    "Solution called by the test": Form("class Solution:\n    def count(self, s): return s.count('a')", "class Solution:\n    def count(self, s): return 0", "assert Solution().count('aab') == 2", "Solution"),
    "a linked list": Form(NODE + "class Solution:\n    def rev(self, head):\n        new = None\n        while head: head.next, new, head = new, head, head.next\n        return new", NODE + "class Solution:\n    def rev(self, head): return head", "def check(candidate):\n    assert items(candidate(head=chain([1, 2, 3]))) == [3, 2, 1]\n    assert candidate(head=None) is None", "Solution().rev", CHAIN),
    "a long linked list": Form(NODE + "def f(n):\n    k = 0\n    while n: k += 1; n = n.next\n    return k", NODE + "def f(n): return 3", "assert f(chain(range(5000))) == 5000", "f", CHAIN),
    "a node of the list": Form(NODE + "def f(n):\n    s = q = n\n    while q and q.next: s, q = s.next, q.next.next\n    return s", NODE + "def f(n): return n", "a = chain([1, 2, 3])\nassert f(a) is a.next and f(a) == a.next", "f", CHAIN),
    "a tree": Form(TREE + "class Solution:\n    def flip(self, t):\n        if t: t.left, t.right = self.flip(t.right), self.flip(t.left)\n        return t", TREE + "class Solution:\n    def flip(self, t): return t", "def check(candidate):\n    t = candidate(TreeNode(1, TreeNode(2), None))\n    assert t.left is None and t.right.val == 2", "Solution().flip", TREE),
    "a class of the program without a setup": Form(TREE + "def f(x): return TreeNode(x, TreeNode(x + 1))", TREE + "def f(x): return TreeNode(x, TreeNode(x))", "t = f(1)\nassert t.val == 1 and t.left.val == 2 and t.left.left is None"),
    # modules and test frameworks
    "from solution import": Form("def f(x): return x + 1", "def f(x): return x", "from solution import f\ndef test_one():\n    assert f(1) == 2", ""),
    "import solution": Form("N = 5\ndef f(x): return x + N", "N = 5\ndef f(x): return x", "import solution as s\ndef test_one():\n    assert s.f(1) == 6 and s.N == 5", ""),
    "from solution import *": Form("def f(x): return x + 1", "def f(x): return x", "from solution import *\ndef test_one():\n    assert f(1) == 2", ""),
    "parametrize": Form("def f(x): return x + 1", "def f(x): return 2", "import pytest\nfrom solution import f\n@pytest.mark.parametrize('x, y', [(1, 2), pytest.param(2, 3, id='b')])\ndef test_one(x, y):\n    assert f(x) == y", ""),
    "a class of tests": Form("def f(x): return x + 1", "def f(x): return x", "class TestF:\n    def setup_method(self): self.x = 1\n    def test_one(self):\n        assert f(self.x) == 2"),
    "unittest": Form("def f(x):\n    if x < 0: raise ValueError('neg')\n    return x + 1", "def f(x): return x + 1", "import unittest\nclass TestCases(unittest.TestCase):\n    def setUp(self): self.x = 1\n    def test_one(self):\n        self.assertEqual(f(self.x), 2)\n    def test_two(self):\n        with self.assertRaises(ValueError): f(-1)\n        self.assertRaises(ValueError, f, -1)\n    def test_three(self):\n        for i in range(3):\n            with self.subTest(i=i): self.assertTrue(f(i) == i + 1)\nif __name__ == '__main__':\n    unittest.main()"),
    "async unittest": Form("async def f(x): return x + 1", "async def f(x): return x", "import unittest\nclass T(unittest.IsolatedAsyncioTestCase):\n    async def test_one(self):\n        self.assertEqual(await f(1), 2)"),
    "a main of the test": Form("def f(x): return x + 1", "def f(x): return x", "def test_one():\n    assert f(1) == 2\nif __name__ == '__main__':\n    test_one()"),
    "either a value or an error": Form("def f(x): raise ValueError", "def f(x): return 0", "try:\n    r = f(1)\n    assert r is None\nexcept ValueError:\n    pass"),
    "random but seeded": Form("def f(x): return sorted(x)", "def f(x): return x[::-1]", "import random\nrandom.seed(0)\nfor _ in range(20):\n    x = [random.randint(0, 9) for _ in range(9)]\n    assert f(x) == sorted(x)"),
    "random with the test's seed": Form("import random\ndef f(n): return [random.randint(0, 99) for _ in range(n)]", "import random\ndef f(n): return [random.randint(1, 99) for _ in range(n)]", "import random\nrandom.seed(7)\nwanted = [random.randint(0, 99) for _ in range(9)]\nrandom.seed(7)\nassert f(9) == wanted\nrandom.seed(7)\nassert f(9) == wanted"),
    "NumPy's random with the test's seed": Form("import numpy as np\ndef f(n): return np.random.rand(n)", "import numpy as np\ndef f(n): return np.random.rand(n) + 0.1", "import numpy as np\nnp.random.seed(7)\nwanted = np.random.rand(4)\nnp.random.seed(7)\nassert np.allclose(f(4), wanted)"),
    "what can be called or iterated": Form("class A:\n    def __call__(self): return 1\n    def __iter__(self): return iter([1])\ndef f(): return A()", "class A: pass\ndef f(): return A()", "from collections.abc import Iterable, Sized\nassert callable(f()) and isinstance(f(), Iterable) and not isinstance(f(), Sized)"),
    # NumPy
    "a test with NumPy": Form("def f(x): return [y / 3 for y in x]", "def f(x): return []", "import numpy as np\nassert np.allclose(f([1.0, 2.0]), np.array([1, 2]) / 3)"),
    "an array": Form("import numpy as np\ndef f(x): return np.asarray(x) * 2", "import numpy as np\ndef f(x): return np.asarray(x)", "import numpy as np\nr = f(np.array([[1, 2]]))\nassert isinstance(r, np.ndarray) and r.shape == (1, 2)\nassert (r == np.array([[2, 4]])).all()\nnp.testing.assert_array_equal(r, [[2, 4]])"),
    "scalars of NumPy": Form("import numpy as np\ndef f(x): return np.float64(x) / 2, np.bool_(True), np.int32(3)", "def f(x): return x, True, 3", "import numpy as np\na, b, c = f(1)\nassert a == 0.5 and b and c.dtype == np.int32"),
    "floats of NumPy without NumPy": Form("import numpy as np\ndef f(x): return np.mean(x)", "def f(x): return 0.0", "assert f([1, 2]) == 1.5 and isinstance(f([1, 2]), float)"),
    "empty arrays": Form("def f(a): return a[a > 5]", "def f(a): return a", "import numpy as np, pytest\na = f(np.array([1, 2]))\nassert isinstance(a, np.ndarray) and a.shape == (0,) and a.sum() == 0 and a.tolist() == []\nnp.testing.assert_array_equal(a, np.array([]))\nassert np.allclose(a, []) and (a == np.array([])).all() and a == pytest.approx(np.array([]))\nassert f(a).size == 0"),
    "HumanEval+": Form("def f(x): return x / 3", "def f(x): return []", "import numpy as np\ndef is_floats(x): return isinstance(x, float)\ndef assertion(out, exp, atol):\n    if atol == 0 and is_floats(exp): atol = 1e-6\n    if out != exp and atol != 0:\n        assert np.allclose(out, exp, rtol=1e-07, atol=atol)\n    else:\n        assert out == exp\ndef ref(x): return x * (1 / 3)\ndef check(candidate):\n    for inp in [[1.0], [2.5]]:\n        assertion(candidate(*inp), ref(*inp), 0)"),
    # what honest programs and tests have in datasets
    "a class that only the assertions name": Form("class Pair:\n    def __init__(self, a, b): self.a, self.b = a, b\ndef f(p): return p.a + p.b", "class Pair:\n    def __init__(self, a, b): self.a, self.b = a, b\ndef f(p): return p.a", "assert f(Pair(1, 2)) == 3"),
    "an exception that only the assertions name": Form("class Short(Exception): pass\ndef f(x): raise Short('x')", "class Short(Exception): pass\ndef f(x): return x", "try:\n    f(1)\n    ok = False\nexcept Short:\n    ok = True\nassert ok"),
    "operators and nothing else": Form(VECTOR, VECTOR.replace("self.y + o.y", "self.y"), "def check(candidate):\n    assert candidate(1, 2) + candidate(3, 4) == candidate(4, 6)", "Vector"),
    "items and nothing else": Form("class Grid:\n    def __init__(self, n): self.d = [0] * n\n    def __setitem__(self, k, v): self.d[k] = v\n    def __getitem__(self, k): return self.d[k]", "class Grid:\n    def __init__(self, n): self.d = [0] * n\n    def __setitem__(self, k, v): pass\n    def __getitem__(self, k): return self.d[k]", "g = Grid(3)\ng[1] = 5\nassert g[1] == 5", "Grid"),
    "setup_method with the method": Form("def f(x): return x + 1", "def f(x): return x", "from solution import f\nclass TestF:\n    def setup_method(self, method): self.x = 1\n    def test_one(self): assert f(self.x) == 2", ""),
    "setup_class": Form("def f(x): return x + 1", "def f(x): return x", "from solution import f\nclass TestF:\n    @classmethod\n    def setup_class(cls): cls.x = 1\n    def test_one(self): assert f(self.x) == 2", ""),
    "in place with an answer, imported": Form("def f(a):\n    a[:] = sorted(set(a)); return len(a)", "def f(a): return len(set(a))", "from solution import f\ndef test_one():\n    a = [1, 1, 2]\n    k = f(a)\n    assert k == 2\n    assert a == [1, 2]", ""),
    "an array in place": Form("def f(a): a[a < 0] = 0", "def f(a): a = a * (a > 0)", "import numpy as np\na = np.array([[-1, 2], [3, -4]])\nf(a[1:])\nassert (a == np.array([[-1, 2], [3, 0]])).all()"),
    "an array in place with an answer": Form("def f(a):\n    a.sort(); return len(a)", "def f(a): return len(a)", "import numpy as np\na = np.array([3, 1, 2])\nk = f(a)\nassert k == 3\nassert (a == np.array([1, 2, 3])).all()"),
    # what classes do in textbooks
    "an error in a with block": Form("class Quiet:\n    def __enter__(self): return self\n    def __exit__(self, kind, error, tb): return kind is ValueError and str(error) == 'x'", "class Quiet:\n    def __enter__(self): return self\n    def __exit__(self, *_): return False", "from solution import Quiet\nwith Quiet(): raise ValueError('x')\ndone = True\nassert done and Quiet()", ""),
    "a callback is found again": Form("class Bell:\n    def __init__(self): self.all = []\n    def on(self, f): self.all.append(f)\n    def off(self, f): self.all.remove(f)\n    def ring(self):\n        for f in self.all: f(1)", "class Bell:\n    def __init__(self): self.all = []\n    def on(self, f): self.all.append(f)\n    def off(self, f): pass\n    def ring(self):\n        for f in self.all: f(1)", "from solution import Bell\ndef test_it():\n    seen, more = [], []\n    b = Bell()\n    b.on(seen.append); b.on(more.append)\n    b.ring()\n    b.off(seen.append)\n    b.ring()\n    assert (seen, more) == ([1], [1, 1])", ""),
    "a method's object of the same class": Form("class Box:\n    def __init__(self, x): self.x = x\n    def map(self, g): return Box(g(self.x))\n    def get(self): return self.x", "class Box:\n    def __init__(self, x): self.x = x\n    def map(self, g): return Box(self.x)\n    def get(self): return self.x", "from solution import Box\nassert Box(3).map(lambda x: x + 1).get() == 4", ""),
    "a generic class": Form("from typing import Generic, TypeVar\nT = TypeVar('T')\nclass Box(Generic[T]):\n    def __init__(self, x: T): self.x = x", "from typing import Generic, TypeVar\nT = TypeVar('T')\nclass Box(Generic[T]):\n    def __init__(self, x: T): self.x = None", "from solution import Box\nassert Box[int](3).x == 3", ""),
    "a singleton": Form("class One:\n    it = None\n    def __new__(cls):\n        if cls.it is None: cls.it = super().__new__(cls); cls.it.d = {}\n        return cls.it\n    def set(self, k, v): self.d[k] = v\n    def get(self, k): return self.d.get(k)", "class One:\n    def __init__(self): self.d = {}\n    def set(self, k, v): self.d[k] = v\n    def get(self, k): return self.d.get(k)", "from solution import One\na, b = One(), One()\nassert a is b\na.set('x', 1)\nassert b.get('x') == 1", ""),
    "async for and async with": Form("class Steps:\n    def __init__(self, n): self.n, self.i = n, 0\n    def __aiter__(self): return self\n    async def __anext__(self):\n        if self.i >= self.n: raise StopAsyncIteration\n        self.i += 1\n        return self.i\n    async def __aenter__(self): return self\n    async def __aexit__(self, *_): self.i = -1", "class Steps:\n    def __init__(self, n): self.n, self.i = n, 0\n    def __aiter__(self): return self\n    async def __anext__(self):\n        if self.i > self.n: raise StopAsyncIteration\n        self.i += 1\n        return self.i\n    async def __aenter__(self): return self\n    async def __aexit__(self, *_): pass", "import asyncio\nfrom solution import Steps\nasync def main():\n    async with Steps(3) as s:\n        out = [x async for x in s]\n    return out, s.i\nassert asyncio.run(main()) == ([1, 2, 3], -1)", ""),
    "an async generator": Form("async def f(n):\n    for i in range(n): yield i", "async def f(n):\n    for i in range(n): yield 0", "import asyncio\nasync def main(): return [x async for x in f(3)]\nassert asyncio.run(main()) == [0, 1, 2]"),
    "a namedtuple of the test": Form("def f(people): return sorted(people, key=lambda p: p.age)", "def f(people): return people", "from collections import namedtuple\nP = namedtuple('P', 'name age')\nassert f([P('b', 2), P('a', 1)]) == [P('a', 1), P('b', 2)] and f([P('b', 2)])[0].name == 'b'"),
    "a class derived from dict": Form("class Bag(dict):\n    def add(self, k): self[k] = self.get(k, 0) + 1", "class Bag(dict):\n    def add(self, k): self[k] = 1", "from solution import Bag\nb = Bag()\nb.add('a')\nb.add('a')\nassert b == {'a': 2} and b['a'] == 2 and isinstance(b, dict) and len(b) == 1", ""),
    "an enum of texts": Form("from enum import Enum\nclass C(str, Enum):\n    RED = 'red'\n    BLUE = 'blue'\ndef f(): return C.RED", "from enum import Enum\nclass C(str, Enum):\n    RED = 'red'\n    BLUE = 'blue'\ndef f(): return C.BLUE", "from solution import C, f\nassert f() == 'red' and f() is C.RED and C('red') == C.RED", ""),
    "fixtures": Form("class Stack:\n    def __init__(self): self.d = []\n    def push(self, x): self.d.append(x)\n    def pop(self): return self.d.pop()", "class Stack:\n    def __init__(self): self.d = []\n    def push(self, x): self.d.append(x)\n    def pop(self): return self.d.pop(0)", "import pytest\nfrom solution import Stack\n@pytest.fixture\ndef two(): return 2\n@pytest.fixture\ndef stack(two):\n    s = Stack()\n    s.push(1); s.push(two)\n    yield s\ndef test_pop(stack): assert stack.pop() == 2\nclass TestIt:\n    @pytest.fixture\n    def three(self, stack):\n        stack.push(3)\n        return stack\n    def test_three(self, three, two): assert (three.pop(), three.pop()) == (3, two)", ""),
    "a builder that returns itself": Form("class Query:\n    def __init__(self): self.parts = []\n    def where(self, x):\n        self.parts.append(x)\n        return self\n    def text(self): return ' and '.join(self.parts)", "class Query:\n    def __init__(self): self.parts = []\n    def where(self, x):\n        self.parts = [x]\n        return self\n    def text(self): return ' and '.join(self.parts)", "from solution import Query\nq = Query()\nassert q.where('a') is q\nassert q.where('b').text() == 'a and b'", ""),
    "members of an enum": Form("from enum import Enum\nclass Light(Enum):\n    RED = 'red'\n    GREEN = 'green'\n    def next(self): return Light.GREEN if self is Light.RED else Light.RED", "from enum import Enum\nclass Light(Enum):\n    RED = 'red'\n    GREEN = 'green'\n    def next(self): return self", "from solution import Light\nassert Light.RED.next() is Light.GREEN and Light('green') is Light.GREEN\nassert [x.name for x in Light] == ['RED', 'GREEN']", ""),
    "reversed": Form("class Count:\n    def __init__(self, n): self.n = n\n    def __iter__(self): return iter(range(self.n))\n    def __reversed__(self): return iter(range(self.n - 1, -1, -1))", "class Count:\n    def __init__(self, n): self.n = n\n    def __iter__(self): return iter(range(self.n))\n    def __reversed__(self): return iter(range(self.n))", "from solution import Count\nassert list(Count(3)) == [0, 1, 2] and list(reversed(Count(3))) == [2, 1, 0]", ""),
    "a number of an object of the class": Form("class Length:\n    def __init__(self, x): self.x = x\n    def __truediv__(self, o): return self.x / o.x\n    def __float__(self): return self.x\n    def doubled(self): return Length(2 * self.x)", "class Length:\n    def __init__(self, x): self.x = x\n    def __truediv__(self, o): return self.x // o.x\n    def __float__(self): return self.x\n    def doubled(self): return Length(self.x)", "from solution import Length\nassert Length(3.0) / Length(2.0) == 1.5\nassert float(Length(2.0).doubled()) == 4.0", ""),
    "an observer of the test": Form("class Subject:\n    def __init__(self): self.all = []\n    def add(self, o): self.all.append(o)\n    def tell(self, x):\n        for o in self.all: o.update(x)", "class Subject:\n    def __init__(self): self.all = []\n    def add(self, o): self.all = [o]\n    def tell(self, x):\n        for o in self.all: o.update(x)", "from solution import Subject\nclass Log:\n    def __init__(self): self.seen = []\n    def update(self, x): self.seen.append(x)\na, b, s = Log(), Log(), Subject()\ns.add(a); s.add(b)\ns.tell(4)\nassert a.seen == b.seen == [4]", ""),
    "a clock of the test": Form("def f(clock):\n    a = clock()\n    return clock.now - a, clock.name", "def f(clock):\n    return clock(), clock.name", "class Clock:\n    name = 'c'\n    def __init__(self): self.now = 5\n    def __call__(self):\n        self.now += 2\n        return self.now\nassert f(Clock()) == (0, 'c')"),
    "a mock": Form("def f(send): return [send(1), send.log('x')]", "def f(send): return [send(2), send.log('x')]", "from unittest.mock import Mock\nm = Mock(return_value=7)\nm.log.return_value = 8\nassert f(m) == [7, 8]\nm.assert_called_once_with(1)"),
    "a generator without end comes back": Form("from itertools import count, islice\ndef endless():\n    yield from count(3)\ndef take(n, it): return list(islice(it, n))", "from itertools import count, islice\ndef endless():\n    yield from count(3)\ndef take(n, it): return list(islice(it, n + 1))", "from solution import endless, take\ng = endless()\nassert take(2, g) == [3, 4] and next(g) == 5", ""),
    "the parameters of a function of the test": Form("import inspect\ndef f(g):\n    n = len(inspect.signature(g).parameters)\n    def more(*a): return g(*a) if len(a) == n else lambda *b: more(*a, *b)\n    return more", "import inspect\ndef f(g):\n    n = len(inspect.signature(g).parameters) - 1\n    def more(*a): return g(*a, 0) if len(a) == n else lambda *b: more(*a, *b)\n    return more", "assert f(lambda a, b, c: a + b + c)(1)(2)(3) == 6"),
    "LeetCode's imports and nodes": Form("class Solution:\n    def f(self, head: Optional[ListNode], xs: List[int]) -> int:\n        return heappop(xs) + pow(2, 3, 5) + math.gcd(4, 6)", "class Solution:\n    def f(self, head: Optional[ListNode], xs: List[int]) -> int: return xs[0]", "def check(candidate):\n    assert candidate(None, [1, 2]) == 6", "Solution().f"),
    # found by realistic tasks of datasets' shapes
    "a class in a helper of check": Form("class T:\n    def __init__(self): self.d = {}\n    def set(self, k, v): self.d[k] = v\n    def get(self, k): return self.d.get(k)", "class T:\n    def set(self, k, v): pass\n    def get(self, k): return None", "def call(t):\n    t.set('a', 1)\n    return t.get('a')\ndef check(candidate): assert call(candidate()) == 1", "T"),
    "a class with operators alone": Form("class V:\n    def __init__(self, x): self.x = x\n    def __mul__(self, o): return self.x * o.x\n    def __abs__(self): return abs(self.x)\n    def __bool__(self): return self.x != 0", "class V:\n    def __init__(self, x): self.x = x\n    def __mul__(self, o): return self.x + o.x\n    def __abs__(self): return self.x\n    def __bool__(self): return True", "def check(candidate):\n    a, b = candidate(3), candidate(-4)\n    assert a * b == -12\n    assert abs(b) == 4\n    assert not candidate(0)", "V"),
    "a time zone": Form("def f(d, zone): return d.astimezone(zone)", "def f(d, zone): return d", "from datetime import *\nfrom zoneinfo import ZoneInfo\nwarsaw = ZoneInfo('Europe/Warsaw')\nfound = f(datetime(2024, 7, 1, tzinfo=timezone.utc), warsaw)\nassert found.tzinfo == warsaw and found.hour == 2"),
    "a helper called check": Form("def f(x): return x", "def f(x): return 2", "from solution import f\ndef check(function): assert function(1) == 1\ndef test_it(): check(f)", ""),
    "rounds and divides with a rest": Form("class M:\n    def __init__(self, x): self.x = x\n    def __round__(self, n): return round(self.x, n)\n    def __divmod__(self, o): return M(self.x // o.x), M(self.x % o.x)", "class M:\n    def __init__(self, x): self.x = x\n    def __round__(self, n): return self.x\n    def __divmod__(self, o): return self, o", "from solution import M\nassert round(M(2.345), 1) == 2.3\nq, r = divmod(M(7), M(2))\nassert (q.x, r.x) == (3, 1)", ""),
    "a property of a class": Form("class P:\n    @property\n    def x(self): return 1", "class P:\n    def x(self): return 1", "from solution import P\nassert isinstance(P.x, property)", ""),
    "a dataclass of the test with annotations as text": Form("def f(p): return p.x + 1", "def f(p): return p.x", "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\nassert f(P(1)) == 2"),
    "trees of objects are equal": Form("class N:\n    def __init__(self, a, b): self.a, self.b = a, b\n    def __eq__(self, o): return isinstance(o, N) and (self.a, self.b) == (o.a, o.b)\n    def swap(self): return N(self.b, self.a)", "class N:\n    def __init__(self, a, b): self.a, self.b = a, b\n    def __eq__(self, o): return isinstance(o, N) and (self.a, self.b) == (o.a, o.b)\n    def swap(self): return N(self.a, self.b)", "from solution import N\nassert N(N(1, 2), N(N(3, 4), N(5, 6))).swap() == N(N(N(3, 4), N(5, 6)), N(1, 2))", ""),
    "a plot": Form("import matplotlib.pyplot as plt\ndef f(title):\n    _, axes = plt.subplots()\n    axes.set_title(title)\n    return axes", "import matplotlib.pyplot as plt\ndef f(title): return plt.subplots()[1]", "assert f('T').get_title() == 'T'"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("shape", code_shapes.tasks())
def test_every_shape_is_judged_rightly(sandbox, shape):
    counts, wrong = code_shapes.judged(sandbox, code_shapes.tasks()[shape])
    assert counts["right"] >= 3
    assert counts["wrong"] >= 6
    assert wrong == []


SCRIPTS = {
    "input": "print(int(input()) + 1)",
    "readline": "import sys\nn = int(sys.stdin.readline())\nsys.stdout.write(f'{n + 1}\\n')",
    "bytes": "import sys\nsys.stdout.buffer.write(b'%d' % (int(sys.stdin.buffer.read()) + 1))",
    "a descriptor": "import os\nprint(int(os.read(0, 100)) + 1)",
    "a file": "print(int(open(0).read()) + 1)",
    "exit": "print(int(input()) + 1)\nexit()",
    "os._exit": "import os\nprint(int(input()) + 1, flush=True)\nos._exit(0)",
    "a thread": "import threading\ndef main(): print(int(input()) + 1)\nthreading.Thread(target=main).start()",
    "main": "def main():\n    print(int(input()) + 1)\nif __name__ == '__main__':\n    main()",
    "deep": "import sys\nsys.setrecursionlimit(10**6)\ndef f(n): return 0 if n == 0 else 1 + f(n - 1)\nprint(f(int(input())) + 1)",
    "fileinput": "import fileinput\nfor line in fileinput.input(): print(int(line) + 1)",
    "does not read to its end": "print(int(input()) + 1)\nimport sys\nsys.stdin.close()",
}  # fmt: skip
NO_SCRIPTS = {
    "another number": "print(int(input()))",
    "nothing": "pass",
    "too much": "n = int(input())\nprint(n + 1, n + 2)",
    "an error at the end": "print(int(input()) + 1)\nraise ValueError",
    "another exit": "import sys\nprint(int(input()) + 1)\nsys.exit(1)",
    "memory": "x = [0] * 10**10",
}
PAIRS = json.dumps({"inputs": ["1\n", "41\n"], "outputs": ["2\n", " 42 "]})


def test_programs_that_read_standard_input(sandbox):
    jobs = [Job(x, PAIRS, "") for x in (*SCRIPTS.values(), *NO_SCRIPTS.values())]
    verdicts = sandbox.check(jobs)
    passed = {n: str(v) for n, v in zip(SCRIPTS, verdicts, strict=False) if not v.passed}
    assert passed == {}
    failed = verdicts[len(SCRIPTS) :]
    assert not any(v.passed for v in failed)
    assert {v.fault for v in failed} == {"program"}


def test_input_and_output_larger_than_a_pipe(sandbox):
    lines = "\n".join(map(str, range(90_000)))
    test = json.dumps({"inputs": [lines], "outputs": [lines]})
    echo = "import sys\nfor line in sys.stdin: print(int(line))"
    first, all_of, none = sandbox.check([Job(x, test, "") for x in ("print(input())", echo, "")])
    assert [first.passed, all_of.passed, none.passed] == [False, True, False]


@pytest.mark.parametrize(
    ("printed", "wanted", "same"),
    [
        ("1\n2", "1 2 \n\n", True), ("0.3333333333", "0.33333333", True), ("0.5", ".5", True), ("1.0", "1", False),
        ("0.34", "0.33333", False), ("1e-7", "0.0", True), ("nan", "0.5", False), ("YES", "yes", False),
        ("1 2", "12", False), ("123456789.1", "123456789.2", True), ("1_0.0", "10.0", False), ("", "1", False), ("inf", "1e999", False),
    ],
)  # fmt: skip
def test_output_is_compared_word_by_word(sandbox, printed, wanted, same):
    test = json.dumps([{"input": "", "output": wanted, "testtype": "stdin"}])
    assert sandbox.check([Job(f"print({printed!r})", test, "")])[0].passed == same


def test_functions_called_with_inputs_from_json(sandbox):
    apps = json.dumps({"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [[3], 7]})
    lines = json.dumps({"fn_name": "add", "inputs": ["1\n2", "3\n4"], "outputs": ["3", "7"]})
    rows = [{"input": "[1, 2]\n3", "output": "[4, 5]", "testtype": "functional"}]
    thirds = json.dumps([{"input": "[4]", "output": "1.33333", "testtype": "functional"}])
    calls = [{"fn_name": "add", "input": [1, 2], "output": 3, "type": "function_call"}]
    calls = json.dumps(calls)
    solution = "class Solution:\n    def up(self, xs, k): return tuple(x + {} for x in xs)"
    jobs = [
        Job("def add(a, b): return a + b", apps, ""),
        Job("class Solution:\n    def add(self, a, b): return a + b", apps, ""),
        Job(solution.format("k"), json.dumps(rows), "up"),
        Job("class Solution:\n    def half(self, x: List[int]): return x[0] / 3", thirds, "half"),
        Job("def add(a, b): return a + b", lines, ""),
        Job("def add(a, b): return a + b", calls, ""),
        Job("def add(a, b): return a", calls, ""),
        Job("class Solution:\n    def half(self, x): return x[0] / 4", thirds, "half"),
        Job("def add(a, b): return a", apps, ""),
        Job("def add(a, b): return a", lines, ""),
        Job(solution.format("1"), json.dumps(rows), "up"),
    ]
    assert [v.passed for v in sandbox.check(jobs)] == [True] * 6 + [False] * 5
    unnamed = sandbox.check([Job(solution.format("k"), json.dumps(rows), "")])[0]
    assert (unnamed.outcome, unnamed.fault) == ("rejected", "test")


OBJECT = "class P:\n    def __init__(self, x): self.name = x\ndef f(x): return [P(x)]"


@pytest.mark.parametrize(
    ("result", "wanted", "same"),
    [("nan", "NaN", True), ("nan", "1.0", False), ("1.0", "NaN", False), ("nan", "1", False),
     ("inf", "Infinity", True), ("inf", "[Infinity]", True), ("-inf", "Infinity", False)],
)  # fmt: skip
def test_json_may_have_numbers_that_are_not_finite(sandbox, result, wanted, same):
    test = f'{{"fn_name": "f", "inputs": [[1]], "outputs": [{wanted}]}}'
    verdict = sandbox.check([Job(f"def f(x): return float('{result}')", test, "f")])[0]
    assert verdict.passed == same, str(verdict)
    assert verdict.fault == ("" if same else "program")


@pytest.mark.parametrize(
    ("program", "test", "passes"),
    [
        # as in Python: the same object equals itself in a list, and NaN alone equals nothing
        ("import math\ndef f(): return [math.nan]", "import math\nassert f() == [math.nan]", True),
        ("import math\ndef f(): return math.nan", "import math\nassert f() == math.nan", False),
        ("import math\ndef f(): return [math.inf]", "import math\nassert f() == [math.nan]", False),
    ],
)  # fmt: skip
def test_nan_crosses_as_pythons_own(sandbox, program, test, passes):
    assert sandbox.check([Job(program, test, "f")])[0].passed == passes


@pytest.mark.parametrize(
    "pool", ["multiprocessing.pool import ThreadPool", "multiprocessing.dummy import Pool as ThreadPool"]
)  # fmt: skip
@pytest.mark.parametrize("by_value", [True, False])
def test_pools_of_threads_run(sandbox, pool, by_value):
    program = f"from {pool}\nclass A: pass\ndef f(items):\n    with ThreadPool(4) as pool:\n        return pool.map(abs, items)"
    test = "assert f([1, -2, -3]) == [1, 2, 3]"
    if not by_value:
        test += "\nfrom solution import A\nassert isinstance(A(), A)"
    verdict = sandbox.check([Job(program, test, "f")])[0]
    assert verdict.passed, str(verdict)
    assert verdict.is_together != by_value


def test_a_program_is_imported_and_not_run_as_a_script(sandbox):
    """What stands below its `if __name__ == "__main__":` is not there, as when pytest imports it."""
    program = "def f(x): return g(x)\nif __name__ == '__main__':\n    def g(x): return x\n"
    verdict = sandbox.check([Job(program, "assert f(1) == 1", "f")])[0]
    assert (verdict.outcome, verdict.fault) == ("error", "program")
    assert "'g' is not defined" in verdict.reason


def test_no_verdict_depends_on_what_earlier_tests_imported(sandbox):
    job = Job(OBJECT, "assert f('a')[0].name == 'a'", "f")  # a Series has a name too
    first = sandbox.check([job])[0]
    sandbox.check(
        [Job("def f(): return 1", f"import pandas\nassert f() == {i}", "f") for i in "12"]
    )
    assert [first.passed, *(v.passed for v in sandbox.check([job] * 4))] == [True] * 5


def test_a_table_of_the_program_reaches_the_test(sandbox):
    test = "import pandas as pd\nassert isinstance(f(), pd.DataFrame) and f()['a'].tolist() == [1]"
    program = "import pandas\ndef f(): return pandas.DataFrame({'a': [1]})"
    right, wrong = sandbox.check([Job(p, test, "f") for p in (program, "def f(): return 1")])
    assert right.passed, str(right)
    assert (wrong.passed, wrong.fault) == (False, "program")


NEED_ONE_PROCESS = {
    "the test changes a list of an object": ("class A:\n    def __init__(self): self.items = []\n    def n(self): return len(self.items)", "from solution import A\na = A()\na.items.append(1)\nassert a.n() == 1"),
    "and an item of it": ("class A:\n    def __init__(self): self.g = [[0]]\n    def n(self): return self.g[0][0]", "from solution import A\na = A()\na.g[0][0] = 1\nassert a.n() == 1"),
    "functions of dataclasses": ("from dataclasses import dataclass\n@dataclass\nclass P: x: int", "from dataclasses import asdict\nfrom solution import P\nassert asdict(P(1)) == {'x': 1}"),
    "operators of the test's objects": ("def f(a, b): return a == b", "class K:\n    def __init__(self, x): self.x = x\n    def __eq__(self, o): return self.x == o.x\nassert f(K(1), K(1))"),
    "a class of errors that is given": ("def f(kind):\n    try: raise ValueError\n    except kind: return 1\n    except ValueError: return 2", "class E(Exception): pass\nassert f(E) == 3 - 1"),
    "another dataclass like it": ("from dataclasses import dataclass\n@dataclass\nclass P: x: int", "from dataclasses import replace\nfrom solution import P\nassert replace(P(1), x=2).x == 2"),
    "what the program leaves of an iterator": ("def f(items): return next(items)", "items = iter([1, 2])\nassert f(items) == 1\nassert next(items) == 2"),
    "a thread that waits": ("import threading\nclass Gate:\n    def __init__(self): self.e = threading.Event()\n    def open(self): self.e.set()\n    def wait(self): return self.e.wait(0.2)", "import threading\nfrom solution import Gate\ng, got = Gate(), []\nt = threading.Thread(target=lambda: got.append(g.wait()))\nt.start()\ng.open()\nt.join()\nassert got == [True]"),
    "a task beside the program's": ("import asyncio\nasync def f(): await asyncio.sleep(0.5)", "import asyncio, pytest\nasync def main(): await asyncio.wait_for(f(), 0.01)\nwith pytest.raises(asyncio.TimeoutError): asyncio.run(main())"),
}  # fmt: skip


def test_what_does_not_cross_is_judged_in_one_process(sandbox):
    jobs = [Job(p, t, "f" if "def f" in p else "") for p, t in NEED_ONE_PROCESS.values()]
    verdicts = dict(zip(NEED_ONE_PROCESS, sandbox.check(jobs), strict=True))
    assert {n: str(v) for n, v in verdicts.items() if not v.passed} == {}
    assert {v.how.split(":")[0] for v in verdicts.values()} == {"in one process"}


def test_every_honest_form_passes(sandbox):
    jobs = [Job(x.right, x.test, x.name, x.setup) for x in FORMS.values()]
    wrong = {n: str(v) for n, v in zip(FORMS, sandbox.check(jobs), strict=True) if not v.passed}
    assert wrong == {}
    assert len(FORMS) > 80


@pytest.mark.slow
def test_its_wrong_program_does_not_and_is_at_fault(sandbox):
    jobs = [Job(x.wrong, x.test, x.name, x.setup) for x in FORMS.values()]
    verdicts = dict(zip(FORMS, sandbox.check(jobs), strict=True))
    assert {n: str(v) for n, v in verdicts.items() if v.passed} == {}
    assert {n: str(v) for n, v in verdicts.items() if v.fault != "program"} == {}


@pytest.mark.slow
def test_humanevals_solutions_without_their_bodies_fail(sandbox):
    path = SHARED / "data" / "humaneval" / "HumanEval.jsonl.gz"
    if not path.exists():
        pytest.skip("HumanEval is not here")
    rows = [json.loads(x) for x in gzip.decompress(path.read_bytes()).splitlines()]
    jobs = [
        Job(f"{r['prompt']}    return None\n", r["test"], r["entry_point"], r["prompt"])
        for r in rows
    ]
    verdicts = sandbox.check(jobs)
    assert len(verdicts) == 164
    assert [r["task_id"] for r, v in zip(rows, verdicts, strict=True) if v.passed] == []
    assert {v.fault for v in verdicts} == {"program"}
