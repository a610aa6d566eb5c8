"""No module of the scheduler has a container that grows while it runs, except `Interner` and weak dictionaries."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2] / "scheduler"
MAKERS: Final = {"Counter", "OrderedDict", "WeakKeyDictionary", "defaultdict", "deque", "dict", "list", "set"}
LITERALS: Final = (ast.Dict, ast.DictComp, ast.List, ast.ListComp, ast.Set, ast.SetComp)
CHANGES: Final = {
    *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove"),
    *("setdefault", "update"),
}
FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def containers(module: ast.Module) -> set[str]:
    """Return the names of the module's mutable containers."""
    found = set[str]()
    for node in module.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else ()
        )
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        called = value.func if isinstance(value, ast.Call) else None
        called = called.value if isinstance(called, ast.Subscript) else called
        if isinstance(value, LITERALS) or (isinstance(called, ast.Name) and called.id in MAKERS):
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def changed(node: ast.AST) -> str | None:
    """Return the name that this expression or statement changes."""
    target: ast.AST | None = None
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        target = node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
        target = node.func.value
    elif isinstance(node, ast.AugAssign):
        target = node.target
    return target.id if isinstance(target, ast.Name) else None


def is_unbounded(function: ast.AST) -> bool:
    """Return whether the function has arguments and `functools` keeps the results for all of them."""
    if not isinstance(function, ast.FunctionDef) or not (function.args.args or function.args.posonlyargs):
        return False
    return any(ast.unparse(each).endswith(("cache", "lru_cache(maxsize=None)")) for each in function.decorator_list)


def violations(text: str) -> Iterator[str]:
    """Yield each change of a module's container at run time, each global variable, and each unbounded memo."""
    module = ast.parse(text)
    names = containers(module)
    for function in ast.walk(module):
        if is_unbounded(function):
            yield f"{getattr(function, 'lineno', 0)}: a memo without a limit"
        if not isinstance(function, FUNCTIONS):
            continue
        local = {
            each.id for each in ast.walk(function) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        }
        for node in ast.walk(function):
            if isinstance(node, ast.Global):
                yield f"{node.lineno}: global {', '.join(node.names)}"
            elif (name := changed(node)) in names - local:
                yield f"{getattr(node, 'lineno', 0)}: {name} is changed"


def test_no_module_has_a_container_that_grows() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{each}"
        for path in sorted(ROOT.rglob("*.py"))
        for each in violations(path.read_text())
    }

    assert found == set()


@pytest.mark.parametrize(("planted", "is_caught"), [
    pytest.param("_known = {}\ndef f(x):\n    _known[x] = 1", True, id="an item is set"),
    pytest.param("_known: dict[str, int] = dict()\ndef f(x):\n    _known.setdefault(x, 1)", True,
        id="a default is set"),
    pytest.param("_known = WeakKeyDictionary[str, int]()\ndef f(x):\n    del _known[x]", True, id="an item is deleted"),
    pytest.param("_known = []\nclass A:\n    def f(self, x):\n        _known.append(x)", True, id="in a method"),
    pytest.param("_last = None\ndef f(x):\n    global _last\n    _last = x", True, id="a global variable"),
    pytest.param("@cache\ndef f(x):\n    return x", True, id="a memo without a limit"),
    pytest.param("@lru_cache(maxsize=8)\ndef f(x):\n    return x", False, id="a memo with a limit"),
    pytest.param("@cache\ndef f():\n    return 1", False, id="one result"),
    pytest.param("_known = {}\n_known['a'] = 1", False, id="while the module is loaded"),
    pytest.param("_known = Interner(8)\ndef f(x):\n    _known[x] = 1", False, id="an interner"),
    pytest.param("_known = {}\ndef f(x):\n    _known = {}\n    _known[x] = 1", False, id="a local variable"),
])  # fmt: skip
def test_a_planted_container_is_caught(planted: str, *, is_caught: bool) -> None:
    assert bool(list(violations(planted))) == is_caught
