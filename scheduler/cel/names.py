"""What names mean: the environment's variables and types, and the variables of the macros around a place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from scheduler.cel.ast import Ident, Node, Select
from scheduler.cel.types import Env, Type, type_of


class Variable:
    """What an identifier names. Two variables of one name, in two scopes, are two objects."""

    __slots__ = ("is_local", "name", "names_type", "type")

    def __init__(self, name: str, type_: Type, *, is_local: bool = False, names_type: bool = False) -> None:
        self.name, self.type, self.is_local, self.names_type = name, type_, is_local, names_type


class Names:
    """All that can be named at the place where the checker is."""

    __slots__ = ("_env", "_globals", "_locals")

    def __init__(self, env: Env) -> None:
        self._env = env
        self._globals: dict[str, Variable] = {}
        self._locals: list[dict[str, Variable]] = []

    @contextlib.contextmanager
    def inside(self, *variables: Variable) -> Iterator[None]:
        """Where these hide others of their names."""
        self._locals.append({each.name: each for each in variables})
        try:
            yield
        finally:
            self._locals.pop()

    def look_up(self, name: str) -> Variable | None:
        """What is meant by it, if anything."""
        # Upstream lets a leading dot see the variables of macros too; so do we.
        name = name.removeprefix(".")
        for scope in reversed(self._locals):
            if name in scope:
                return scope[name]
        if name not in self._globals:
            found = self._global(name)
            if found is None:
                return None
            self._globals[name] = found
        return self._globals[name]

    def _global(self, name: str) -> Variable | None:
        type_ = self._env.variables.get(name)
        if type_ is not None:
            return Variable(name, type_, names_type=type_.name == "type")
        if name in self._env.objects:
            return Variable(name, type_of(Type(name)), names_type=True)
        return None


def qualified_name(node: Node) -> str | None:
    """`a.b.c` if the node is no more than that."""
    names: list[str] = []
    while isinstance(node, Select) and not node.test and not node.optional:
        names.append(node.field)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    return ".".join([node.name, *reversed(names)])
