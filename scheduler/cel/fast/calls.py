"""Calls in generated source: equality, membership, constants; `functions` has the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.cel.ast import Call, Node
from scheduler.cel.building import is_searchable, members
from scheduler.cel.calls import Invocation, invocation, is_binary
from scheduler.cel.fast.boxed import BOXED, number_of
from scheduler.cel.fast.failing import both
from scheduler.cel.fast.functions import Function
from scheduler.cel.fast.writer import BOOL, DOUBLE, INT, NULL, STRING, Kind, Term, Unsupported, Writer
from scheduler.cel.plan import is_compiled
from scheduler.cel.recollections import LONG
from scheduler.cel.running import Run
from scheduler.cel.strain import AHEAD
from scheduler.cel.types import Overload
from scheduler.cel.values import CostExceeded, EvalError

if TYPE_CHECKING:
    from scheduler.cel.fast.nodes import Nodes

_PLAIN: Final = (INT, STRING, BOOL, NULL)
_PYTHON: Final = {"int": "int", "string": "str", "bool": "bool", "double": "float"}
_FOLDABLE_COST: Final = 1000
_LONG: Final = 256


class Calls:
    """Writes calls."""

    __slots__ = ("_nodes", "_write")

    def __init__(self, nodes: Nodes, writer: Writer) -> None:
        self._nodes, self._write = nodes, writer

    def call(self, node: Call) -> Term:
        """The term of a call of a function."""
        nodes = self._nodes
        operands = list(node.args)
        is_member = node.target is not None and node not in nodes.checked.qualified
        if node.target is not None and is_member:
            operands.insert(0, node.target)
        known = nodes.checked.calls[node]
        name = known[0].name
        if node.function in {"or", "orValue"} and len(operands) == 2 and known[0].id.startswith("optional_or"):
            return self._first_present(operands, unwraps=node.function == "orValue")
        is_pattern = len(operands) > 1 and is_compiled(name, nodes.plans.get(operands[1]))
        args = self._operands(operands, known, name, is_pattern=is_pattern)
        if node.function == "@in" and self._is_member_of(operands, known):
            return self._member(*args)
        invoke = invocation(nodes.env.functions[name], known, len(args), is_nameless=is_pattern)
        if args and all(each.is_constant for each in args):
            folded = self._folded(name, invoke, args)
            if folded is not None:
                return folded
        return Function(self._write, name, invoke, known).term(args)

    def _operands(
        self, operands: list[Node], known: tuple[Overload, ...], name: str, *, is_pattern: bool
    ) -> list[Term]:
        """The arguments; what an error in one of them costs depends on how closures make such a call."""
        nodes = self._nodes
        if len(operands) == 1:
            with self._write.owing(1):
                return nodes.all(operands)
        if len(operands) == 2 and not is_pattern and not self._is_member_of(operands, known) and is_binary(known, name):
            return both(nodes, operands)
        return nodes.all(operands)

    def _is_member_of(self, operands: list[Node], known: tuple[Overload, ...]) -> bool:
        """Whether this is `x in [1, 2]`."""
        return [each.id for each in known] == ["in_list"] and self._nodes.plans[operands[1]].is_constant

    def _first_present(self, operands: list[Node], *, unwraps: bool) -> Term:
        write, nodes = self._write, self._nodes
        value = write.named(nodes.term(operands[0]))
        made = write.new()
        write.line(f"{made} = {value.text}")
        with write.block(f"if isinstance({made}, Optional):"):
            with write.block(f"if {made}.present:"):
                if unwraps:
                    write.line(f"{made} = {made}.value")
            with nodes.under("else:"):
                other = nodes.term(operands[1])
                write.line(f"{made} = {other.text}")
        return Term(made, is_name=True)

    def _member(self, value: Term, held: Term) -> Term:
        write = self._write
        if not held.value:
            return write.constant(value=False)
        if not is_searchable(held.value):
            raise Unsupported
        strings, is_member = members(held.value)
        if value.is_constant:
            return write.constant(is_member(value.value))
        if value.kind == STRING:
            return Term(f"({value.text} in {write.held(strings)})", BOOL)
        value = write.named(value)
        text = f"({value.text} in {write.held(strings)} if type({value.text}) is str else {write.held(is_member)}({value.text}))"
        return Term(text, BOOL)

    def _folded(self, name: str, invoke: Invocation, args: list[Term]) -> Term | None:
        """A call whose arguments are all constants is made now; what it costs is still paid every time."""
        values = [each.value for each in args]
        if name == "_+_" or any(isinstance(each, list | tuple | str) and len(each) > _LONG for each in values):
            return None  # whether it can be afforded is another question every time
        run = Run({}, 0, limit=_FOLDABLE_COST)
        try:
            value = invoke(run, *values)
            run.settle()
        except CostExceeded:
            return None
        except EvalError as error:
            if name in AHEAD:
                return None
            self._write.charge(run.cost)
            self._write.fails("True", repr(str(error)))
            return self._write.let("None")  # which nobody will see
        if name in AHEAD and AHEAD[name].is_costly:
            amount = AHEAD[name].measure(*values)
            if amount > _LONG:
                return None
            self._write.afford(amount)
        self._write.charge(run.cost)
        return self._write.constant(value)

    def equality(self, node: Call, *, is_plain: bool) -> Term:
        """`==`, or `!=` if it is not plain."""
        write = self._write
        left, right = both(self._nodes, node.args, is_equality=True)
        if {left.kind, right.kind} <= {*_PLAIN, DOUBLE} and left.kind == right.kind:
            return self._same_kind(left, right, is_plain=is_plain)
        if left.kind == right.kind and left.kind in BOXED:
            write.charge(1)
            numbers = number_of(write, left), number_of(write, right)
            return Term(f"({' == '.join(numbers) if is_plain else ' != '.join(numbers)})", BOOL)
        left, right = write.named(left), write.named(right)
        word, call = ("==", "compared") if is_plain else ("!=", "not alike")
        slow = f"{call}(run, {left.text}, {right.text})"
        if _is_plain_list(left) and left.kind == right.kind:
            write.charge_text(_text_cost(left, right))
            held = left if right.is_constant else right
            return Term(f"({left.text} {word} {right.text} if len({held.text}) < {LONG} else {slow})", BOOL)
        for one, other in ((left, right), (right, left)):
            if one.kind in _PLAIN and one.kind is not None and other.kind is None and one.kind != NULL:
                is_known = f"type({other.text}) is {_PYTHON[one.kind.name]}"
                return self._either(is_known, (left, right), f"{left.text} {word} {right.text}", slow, kind=one.kind)
        write.charge_text(_general_cost(left, right, is_plain=is_plain), self._bound(left, right))
        return write.fallible(f"({slow})", BOOL)

    def _same_kind(self, left: Term, right: Term, *, is_plain: bool) -> Term:
        if left.kind == STRING:
            left, right = self._write.named(left), self._write.named(right)
            self._write.charge_text(_text_cost(left, right), self._bound(left, right))
        else:
            self._write.charge(1)
        return Term(f"({left.text} {'==' if is_plain else '!='} {right.text})", BOOL)

    def _either(self, is_known: str, operands: tuple[Term, Term], fast: str, slow: str, *, kind: Kind) -> Term:
        """The quick way if the class is the expected one, else the general one."""
        write = self._write
        bound = self._bound(*operands)
        if not write.counts and bound is not None:
            write.charge_text("", bound)
            return Term(f"({fast} if {is_known} else {slow})", BOOL)
        made = write.new()
        with write.block(f"if {is_known}:"):
            if kind == STRING:
                write.charge_text(_text_cost(*operands), bound)
            else:
                write.charge(1)
            write.line(f"{made} = {fast}")
        with write.block("else:"):
            write.charge_text(_general_cost(*operands, is_plain=slow.startswith("compared")), bound)
            write.attempt(f"{made} = {slow}")
        return Term(made, BOOL, is_name=True)

    @staticmethod
    def _bound(left: Term, right: Term) -> int | None:
        """What comparing the two costs at most, for one of them is as long as it is."""
        lengths = []
        for each in (left, right):
            if each.kind is not None and each.kind != STRING and each.kind.name in _PYTHON:
                lengths.append(1)
            elif each.is_constant and isinstance(each.value, str):
                lengths.append(len(each.value))
        return -(-min(lengths) // 10) if lengths else None


def _is_plain_list(term: Term) -> bool:
    """Whether two such lists are equal if Python says so."""
    return term.kind is not None and term.kind.name == "list" and term.kind.element in _PLAIN[:3]


def _text_cost(left: Term, right: Term) -> str:
    for one, other in ((left, right), (right, left)):
        if one.is_constant and isinstance(one.value, str):
            longest = len(one.value)
            if longest <= 10:
                return f"(1 if {other.text} else 0)" if longest else "0"
    here, there = f"len({left.text})", f"len({right.text})"
    return f"(({here} if {here} < {there} else {there}) + 9) // 10"


def _general_cost(left: Term, right: Term, *, is_plain: bool) -> str:
    return f"cost_of_equality({left.text}, {right.text}, is_plain={is_plain})"
