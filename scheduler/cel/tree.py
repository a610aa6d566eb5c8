"""Going through a tree, whatever its nodes are."""

from __future__ import annotations

from scheduler.cel.ast import Call, Comprehension, ListExpr, MapExpr, Node, Select, StructExpr


def children(node: Node) -> tuple[Node, ...]:
    """The nodes right under this one, in the order of the source as far as there is one."""
    match node:
        case Select():
            return (node.operand,)
        case Call():
            return node.args if node.target is None else (node.target, *node.args)
        case ListExpr():
            return node.elements
        case MapExpr():
            return tuple(each for entry in node.entries for each in entry)
        case StructExpr():
            return tuple(value for _, value in node.entries)
        case Comprehension():
            loop = (node.iter_range, node.accu_init, node.loop_condition, node.loop_step)
            return (*loop, node.result)
        case _:
            return ()


def depth(root: Node) -> int:
    """How many levels the tree has."""
    deepest = 0
    pending = [(root, 1)]
    while pending:
        node, level = pending.pop()
        deepest = max(deepest, level)
        pending += ((each, level + 1) for each in children(node))
    return deepest
