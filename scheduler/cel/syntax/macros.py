"""Macros: calls that are rewritten during parsing, to the same trees as in cel-go v0.26.

`has` becomes a test. Macros over lists and maps, and `cel.bind`, become a `Comprehension`. A call with another name
or number of arguments stays a call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from scheduler.cel.syntax.ast import Call, Comprehension, Ident, ListExpr, Literal, MapExpr, Node, Select

ACCUMULATOR: Final = "@result"
"""A name that cannot be written in a source."""
UNUSED: Final = "#unused"
SORTED: Final = "@__sortBy_input__"
_TARGET: Final = "@optMap_target"
_OLD_ACCUMULATOR: Final = "__result__"
_NOT_SIMPLE: Final = "argument must be a simple name"
_NOT_IDENTIFIER: Final = "argument is not an identifier"

Arguments: TypeAlias = tuple[Node, ...]
_Expand: TypeAlias = Callable[[Node, Arguments, int], "Node | None"]


class Misused(Exception):
    """A macro with invalid arguments. `at` is the offset of the wrong part."""

    def __init__(self, at: int, text: str) -> None:
        super().__init__(text)
        self.at = at


def expand(function: str, target: Node | None, args: Arguments, *, at: int) -> Node | None:
    """Return the expansion of a call; None if it stays a call. Raise `Misused`."""
    if target is None:
        return _has(args[0], at) if function == "has" and len(args) == 1 else None
    macro = _MEMBERS.get((function, len(args)))
    return None if macro is None else macro(target, args, at)


def _has(field: Node, at: int) -> Node:
    if not isinstance(field, Select) or field.optional:
        raise Misused(field.at, "invalid argument to has() macro")
    return Select(field.operand, field.field, test=True, at=at)


# --- macros with one or two variables, followed by the same arguments -----------------------------------------------


def _variables(args: Arguments, count: int, text: str) -> tuple[str, str]:
    """Return the names of the first `count` arguments; the second is "" if there is only one."""
    names = [_identifier(each, text) for each in args[:count]]
    if count == 2 and names[0] == names[1]:
        raise Misused(args[1].at, f"duplicate variable name: {names[0]}")
    for name, node in zip(names, args):
        if name in {ACCUMULATOR, _OLD_ACCUMULATOR}:
            raise Misused(node.at, "iteration variable overwrites accumulator variable")
    return names[0], names[1] if count == 2 else ""


def _identifier(node: Node, text: str) -> str:
    if not isinstance(node, Ident):
        raise Misused(node.at, text)
    return node.name


def _all(target: Node, args: Arguments, at: int) -> Node:
    goes_on = Call("@not_strictly_false", (_accumulator(at),), at=at)
    step = Call("_&&_", (_accumulator(at), args[-1]), at=at)
    return _quantified("all", target, args, (Literal(value=True, at=at), goes_on, step, _accumulator(at)), at=at)


def _exists(target: Node, args: Arguments, at: int) -> Node:
    goes_on = Call("@not_strictly_false", (Call("!_", (_accumulator(at),), at=at),), at=at)
    step = Call("_||_", (_accumulator(at), args[-1]), at=at)
    return _quantified("exists", target, args, (Literal(value=False, at=at), goes_on, step, _accumulator(at)), at=at)


def _exists_one(target: Node, args: Arguments, at: int) -> Node:
    one_more = Call("_+_", (_accumulator(at), Literal(1, at)), at=at)
    step = Call("_?_:_", (args[-1], one_more, _accumulator(at)), at=at)
    is_one = Call("_==_", (_accumulator(at), Literal(1, at)), at=at)
    return _quantified("exists_one", target, args, (Literal(0, at), Literal(value=True, at=at), step, is_one), at=at)


def _map(target: Node, args: Arguments, at: int) -> Node:
    variables = _variables(args, 1, _NOT_IDENTIFIER)
    return _gather("map", target, variables, (_with_item(args[-1], at), args[1:-1]), at=at)


def _filter(target: Node, args: Arguments, at: int) -> Node:
    variables = _variables(args, 1, _NOT_IDENTIFIER)
    kept = Ident(variables[0], args[0].at)
    return _gather("filter", target, variables, (_with_item(kept, at), args[1:]), at=at)


def _transform_list(target: Node, args: Arguments, at: int) -> Node:
    variables = _variables(args, 2, _NOT_SIMPLE)
    return _gather("transformList", target, variables, (_with_item(args[-1], at), args[2:-1]), at=at)


def _transform_map(target: Node, args: Arguments, at: int) -> Node:
    variables = _variables(args, 2, _NOT_SIMPLE)
    step = Call("cel.@mapInsert", (_accumulator(at), Ident(variables[0], at), args[-1]), at=at)
    return _gather("transformMap", target, variables, (step, args[2:-1]), at=at)


def _transform_map_entry(target: Node, args: Arguments, at: int) -> Node:
    variables = _variables(args, 2, _NOT_SIMPLE)
    step = Call("cel.@mapInsert", (_accumulator(at), args[-1]), at=at)
    return _gather("transformMapEntry", target, variables, (step, args[2:-1]), at=at)


def _with_item(item: Node, at: int) -> Node:
    return Call("_+_", (_accumulator(at), ListExpr((item,), at=at)), at=at)


def _gather(macro: str, target: Node, variables: tuple[str, str], step: tuple[Node, Arguments], *, at: int) -> Node:
    """Return the fold that builds a list or map; `step` is its step, and the conditions for it, if any."""
    grown, conditions = step
    for condition in conditions:
        grown = Call("_?_:_", (condition, grown, _accumulator(at)), at=at)
    is_map = macro in {"transformMap", "transformMapEntry"}
    empty: Node = MapExpr((), at=at) if is_map else ListExpr((), at=at)
    return _fold(macro, target, variables, (empty, Literal(value=True, at=at), grown, _accumulator(at)), at=at)


def _accumulator(at: int) -> Ident:
    return Ident(ACCUMULATOR, at)


_Parts: TypeAlias = tuple[Node, Node, Node, Node]
"""The initial value of the accumulator, the condition, the step and the result."""


def _quantified(macro: str, target: Node, args: Arguments, parts: _Parts, *, at: int) -> Comprehension:
    return _fold(macro, target, _variables(args, len(args) - 1, _NOT_SIMPLE), parts, at=at)


def _fold(macro: str, target: Node, variables: tuple[str, str], parts: _Parts, *, at: int) -> Comprehension:
    init, condition, step, result = parts
    return Comprehension(target, *variables, ACCUMULATOR, init, condition, step, result, at=at, macro=macro)


# --- a name for a value ---------------------------------------------------------------------------------------------


def _bound(name: str, value: Node, body: Node, at: int) -> Comprehension:
    return Comprehension(
        iter_range=ListExpr((), at=at),
        iter_var=UNUSED,
        iter_var2="",
        accu_var=name,
        accu_init=value,
        loop_condition=Literal(value=False, at=at),
        loop_step=Ident(name, at),
        result=body,
        at=at,
        macro="bind",
    )


def _bind(target: Node, args: Arguments, at: int) -> Node | None:
    if not isinstance(target, Ident) or target.name != "cel":
        return None
    name = _identifier(args[0], "cel.bind() variable names must be simple identifiers")
    return _bound(name, args[1], args[2], at)


def _sort_by(target: Node, args: Arguments, at: int) -> Node:
    if not isinstance(target, ListExpr | Select | Ident | Comprehension | Call):
        text = "sortBy can only be applied to a list, identifier, comprehension, call or select expression"
        raise Misused(target.at, text)
    keys = _map(Ident(SORTED, at), args, at)
    return _bound(SORTED, target, Call("@sortByAssociatedKeys", (keys,), Ident(SORTED, at), at=at), at)


def _opt_map(target: Node, args: Arguments, at: int) -> Node:
    name = _identifier(args[0], "optMap() variable name must be a simple identifier")

    def present(value: Node) -> Node:
        return Call("optional.of", (_bound(name, value, args[1], at),), at=at)

    return _if_present(target, present, at)


def _opt_flat_map(target: Node, args: Arguments, at: int) -> Node:
    name = _identifier(args[0], "optFlatMap() variable name must be a simple identifier")
    return _if_present(target, lambda value: _bound(name, value, args[1], at), at)


def _if_present(target: Node, present: Callable[[Node], Node], at: int) -> Node:
    """Return the tree that evaluates the target once and tests whether it is present.

    cel-go duplicates the target, so that n nested calls grow to 2^n nodes; here the target gets a name.
    """
    name = target.name if isinstance(target, Ident) else _TARGET
    is_present = Call("hasValue", (), Ident(name, target.at), at=at)
    value = present(Call("value", (), Ident(name, target.at), at=at))
    chosen = Call("_?_:_", (is_present, value, Call("optional.none", (), at=at)), at=at)
    return chosen if isinstance(target, Ident) else _bound(_TARGET, target, chosen, at)


_MEMBERS: Final[dict[tuple[str, int], _Expand]] = {
    ("all", 2): _all,
    ("all", 3): _all,
    ("exists", 2): _exists,
    ("exists", 3): _exists,
    ("exists_one", 2): _exists_one,
    ("exists_one", 3): _exists_one,
    ("existsOne", 3): _exists_one,
    ("map", 2): _map,
    ("map", 3): _map,
    ("filter", 2): _filter,
    ("transformList", 3): _transform_list,
    ("transformList", 4): _transform_list,
    ("transformMap", 3): _transform_map,
    ("transformMap", 4): _transform_map,
    ("transformMapEntry", 3): _transform_map_entry,
    ("transformMapEntry", 4): _transform_map_entry,
    ("bind", 3): _bind,
    ("optMap", 2): _opt_map,
    ("optFlatMap", 2): _opt_flat_map,
    ("sortBy", 2): _sort_by,
}
