"""Trees as text, close to what cel-go's debug output shows."""

from __future__ import annotations

from typing import assert_never

from scheduler.cel.syntax.ast import Call, Comprehension, Ident, ListExpr, Literal, MapExpr, Node, Select, StructExpr
from scheduler.cel.values import UInt


def shown(node: Node) -> str:
    """Without places."""
    match node:
        case Literal(value=UInt() as value):
            return f"{value}u"
        case Literal(value=value):
            return repr(value)
        case Ident(name=name):
            return name
        case Select(operand=operand, field=field):
            return f"{shown(operand)}{'.?' if node.optional else '.'}{field}{'~test~' if node.test else ''}"
        case Call(function=function, args=args, target=target):
            return f"{'' if target is None else shown(target) + '.'}{function}({', '.join(map(shown, args))})"
        case ListExpr(elements=elements, optional=optional):
            return f"[{', '.join(_mark(index in optional) + shown(each) for index, each in enumerate(elements))}]"
        case MapExpr(entries=entries, optional=optional):
            pairs = (f"{shown(key)}: {shown(value)}" for key, value in entries)
            return f"{{{', '.join(_mark(index in optional) + each for index, each in enumerate(pairs))}}}"
        case StructExpr(type_name=name, entries=fields):
            return f"{name}{{{', '.join(f'{field}: {shown(value)}' for field, value in fields)}}}"
        case Comprehension():
            variables = f"{node.iter_var}, {node.iter_var2}" if node.iter_var2 else node.iter_var
            parts = ", ".join(map(shown, (node.accu_init, node.loop_condition, node.loop_step, node.result)))
            return f"fold({variables} in {shown(node.iter_range)}, {node.accu_var}: {parts})"
        case _:
            assert_never(node)


def _mark(is_optional: bool) -> str:
    return "?" if is_optional else ""
