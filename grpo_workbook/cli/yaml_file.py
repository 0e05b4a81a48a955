"""A YAML file of the user's, read strictly: what would be dropped, or blown up, without a word is an error here.

Values are YAML 1.2's, as other readers have them. PyYAML's own are of 1.1: there `vllm: off` is the value false, and
`learning_rate: 1e-3` a text.
"""

import difflib
import re
from functools import cache
from pathlib import Path

from grpo_workbook.errors import WorkbookError, first_line

LARGEST = 2**20  # bytes
MOST = 20_000  # values, with every alias written out: nine lines of aliases can stand for a billion


def read_yaml_file(path: Path | str, what: str) -> object:
    """The plain values of a YAML file; `what` the file is called in messages ("the config file").

    Raises WorkbookError where it is missing (with the nearest name in its folder), no YAML, has a name twice (YAML
    would take the last without a word), a tag, an alias within what it stands for, or too much.
    """
    import yaml

    path = Path(path)
    if not path.is_file():
        near = difflib.get_close_matches(
            path.name, [p.name for p in path.absolute().parent.glob("*.y*ml")], n=1
        )
        hint = f" (its folder has {near[0]})" if near else ""
        kind = "is a folder" if path.is_dir() else "does not exist"
        raise WorkbookError(f"{what} {str(path)!r} {kind}{hint}")
    if path.stat().st_size > LARGEST:
        raise WorkbookError(
            f"{what} {str(path)!r} has {path.stat().st_size} bytes: is it the right one?"
        )
    try:
        loader = _loader()(path.read_text(encoding="utf-8"))
        node = loader.get_single_node()
        if node is None:
            return None
        _count(node, path, {})
        return loader.construct_document(node)
    except WorkbookError:
        raise
    except (
        yaml.YAMLError,
        ValueError,
        TypeError,
        RecursionError,
    ) as error:  # a date such as 2026-13-01: ValueError
        mark = getattr(error, "problem_mark", None)
        line = f" at line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or first_line(error)
        raise WorkbookError(f"{path} is no YAML{line}: {problem}") from None
    except OSError as error:
        raise WorkbookError(f"{path} cannot be read: {error.strerror}") from None


@cache
def _loader():
    """PyYAML's safe loader, which makes plain values alone, with YAML 1.2's idea of what a plain word is."""
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = {}  # noqa: RUF012  (as PyYAML has it)

    number = r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
    for tag, pattern, first in (
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
        ("int", r"[-+]?(?:0|[1-9][0-9]*)", list("-+0123456789")),
        ("float", number, list("-+.0123456789")),
        ("merge", r"<<", ["<"]),
    ):
        Loader.add_implicit_resolver(
            f"tag:yaml.org,2002:{tag}", re.compile(f"(?:{pattern})\\Z"), first
        )
    return Loader


def _count(node, path: Path, known: dict[int, int]) -> int:
    """How many values the node stands for. `known` are those of the nodes that are done; 0 while one is at it."""
    import yaml

    if id(node) in known:
        if known[id(node)] == 0:
            raise WorkbookError(
                f"{path}, line {node.start_mark.line + 1}: an alias stands within what it stands for"
            )
        return known[id(node)]
    known[id(node)] = 0
    inside = []
    if isinstance(node, yaml.SequenceNode):
        inside = node.value
    elif isinstance(node, yaml.MappingNode):
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for place, (key, _) in enumerate(node.value):
            if (
                isinstance(key, yaml.ScalarNode)
                and key.value in names[:place]
                and key.value != "<<"
            ):
                raise WorkbookError(
                    f"{path}, line {key.start_mark.line + 1}: {key.value!r} stands there twice"
                )
        inside = [value for _, value in node.value]
    known[id(node)] = total = 1 + sum(_count(value, path, known) for value in inside)
    if total > MOST:
        raise WorkbookError(
            f"{path} stands for more than {MOST} values, its aliases written out: is it the right one?"
        )
    return total
