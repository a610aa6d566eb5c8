"""Calls in generated source: operators on values whose classes are certain or quickly looked at; the rest as closures call it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from scheduler.cel.ast import Call, Node
from scheduler.cel.building import is_searchable, members
from scheduler.cel.calls import AHEAD, Invocation, invocation
from scheduler.cel.fast.writer import BOOL, DOUBLE, INT, NULL, STRING, Kind, Term, Unsupported, Writer
from scheduler.cel.running import Run
from scheduler.cel.types import Overload, Type
from scheduler.cel.values import CostExceeded, EvalError, UInt

if TYPE_CHECKING:
    from scheduler.cel.fast.nodes import Nodes

_MAX: Final = 2**63 - 1
_PER_TEN: Final = "ceil({} * 0.1)"
_ORDERS: Final = {"_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}
_ARITHMETIC: Final = {"_+_": "+", "_-_": "-", "_*_": "*"}
_DIVISIONS: Final = {"_/_": "//", "_%_": "%"}
_PREDICATES: Final = {"startsWith", "endsWith", "contains"}
_SIZED: Final = frozenset({"string", "bytes", "list", "map"})
_PLAIN: Final = (INT, STRING, BOOL, NULL)
_PYTHON: Final = {"int": "int", "string": "str", "bool": "bool", "double": "float"}
_CLASSES: Final = {"bool": bool, "int": int, "uint": UInt, "double": float, "string": str, "bytes": bytes}
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
        if node.function in {"or", "orValue"} and len(operands) == 2 and known[0].id.startswith("optional_or"):
            return self._first_present(operands, unwraps=node.function == "orValue")
        args = nodes.all(operands)
        is_literal = [nodes.plans[each].is_constant for each in operands]
        if node.function == "@in" and [each.id for each in known] == ["in_list"] and is_literal[1]:
            return self._member(*args)
        name = known[0].name
        is_pattern = name in {"find", "findAll", "matches"} and is_literal[1]
        invoke = invocation(nodes.env.functions[name], known, len(args), is_nameless=is_pattern)
        if args and all(each.is_constant for each in args):
            folded = self._folded(name, invoke, args)
            if folded is not None:
                return folded
        return _Call(self._write, name, invoke, known).term(args)

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
        if is_guarded(name) or any(isinstance(each, list | tuple | str) and len(each) > _LONG for each in values):
            return None  # whether it can be afforded is another question every time
        run = Run({}, 0, limit=_FOLDABLE_COST)
        try:
            value = invoke(run, *values)
            run.settle()
        except CostExceeded:
            return None
        except EvalError:
            self._write.line("raise Unusual")
            value = None
        self._write.charge(run.cost)
        return self._write.constant(value)

    def equality(self, node: Call, *, is_plain: bool) -> Term:
        """`==`, or `!=` if it is not plain."""
        write = self._write
        left, right = self._nodes.all(node.args)
        if {left.kind, right.kind} <= {*_PLAIN, DOUBLE} and left.kind == right.kind:
            return self._same_kind(left, right, is_plain=is_plain)
        left, right = write.named(left), write.named(right)
        word, call = ("==", "equal") if is_plain else ("!=", "not same")
        slow = f"{call}({left.text}, {right.text})"
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
            write.charge_text(_general_cost(*operands, is_plain=slow.startswith("equal")), bound)
            write.line(f"{made} = {slow}")
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


def is_guarded(name: str) -> bool:
    """Whether a call must be affordable in another way than by its cost."""
    return name == "_+_" or name in AHEAD


def _text_cost(left: Term, right: Term) -> str:
    for one, other in ((left, right), (right, left)):
        if one.is_constant and isinstance(one.value, str):
            longest = len(one.value)
            if longest <= 10:
                return f"(1 if {other.text} else 0)" if longest else "0"
    return f"-(-min(len({left.text}), len({right.text})) // 10)"


def _general_cost(left: Term, right: Term, *, is_plain: bool) -> str:
    return f"cost_of_equality({left.text}, {right.text}, is_plain={is_plain})"


class _Call:
    """One call, of the shortest form that is right for the arguments."""

    __slots__ = ("_invoke", "_is_resolved", "_known", "_name", "_write")

    def __init__(self, write: Writer, name: str, invoke: Invocation, known: tuple[Overload, ...]) -> None:
        self._write, self._name, self._invoke, self._known = write, name, invoke, known
        self._is_resolved = len(known) == 1

    def term(self, args: list[Term]) -> Term:
        """The value of the call."""
        kinds = [each.kind for each in args]
        if len(args) == 2:
            made = self._numbers(args, kinds) or self._texts(args, kinds) or self._in_map(args, kinds)
            if made is not None:
                return made
        if self._name == "size" and len(args) == 1 and kinds[0] is not None and kinds[0].name in _SIZED:
            self._write.charge(1)
            return Term(f"len({args[0].text})", INT)
        if self._name == "dyn":
            self._write.charge(1)
            return args[0]
        return self._chosen(args, kinds) or self._general(args)

    # --- operators ---

    def _numbers(self, args: list[Term], kinds: list[Kind | None]) -> Term | None:
        one, other = args
        if self._name in _DIVISIONS:
            return self._divided(one, other) if kinds[0] == INT else None
        if self._name not in _ORDERS and self._name not in _ARITHMETIC:
            return None
        if kinds == [INT, INT]:
            self._write.charge(1)
            return self._on_integers(one, other)
        if INT in kinds and None in kinds:
            return self._perhaps(args, kinds)
        if kinds == [DOUBLE, DOUBLE] and self._name in _ARITHMETIC:
            self._write.charge(1)
            return Term(f"({one.text} {_ARITHMETIC[self._name]} {other.text})", DOUBLE)
        return None

    def _on_integers(self, one: Term, other: Term) -> Term:
        if self._name in _ORDERS:
            return Term(f"({one.text} {_ORDERS[self._name]} {other.text})", BOOL)
        made = self._write.let(f"{one.text} {_ARITHMETIC[self._name]} {other.text}", INT)
        self._write.doubt(f"not {-_MAX - 1} <= {made.text} <= {_MAX}")
        return made

    def _perhaps(self, args: list[Term], kinds: list[Kind | None]) -> Term:
        """One is an integer, and the other may be."""
        write = self._write
        one, other = map(write.named, args)
        unsure = one if kinds[0] is None else other
        made = write.new()
        with write.block(f"if type({unsure.text}) is int:"):
            write.charge(1)
            write.line(f"{made} = {self._on_integers(one, other).text}")
        with write.block("else:"):
            write.line(f"{made} = {self._general([one, other]).text}")
        return Term(made, BOOL if self._name in _ORDERS else None, is_name=True)

    def _divided(self, one: Term, other: Term) -> Term | None:
        """Towards zero, by what is positive."""
        if not other.is_constant or other.kind != INT or other.value <= 0:
            return None
        word = _DIVISIONS[self._name]
        one = self._write.named(one)
        self._write.charge(1)
        text = f"({one.text} {word} {other.text} if {one.text} >= 0 else -(-{one.text} {word} {other.text}))"
        return Term(text, INT)

    def _texts(self, args: list[Term], kinds: list[Kind | None]) -> Term | None:
        if kinds != [STRING, STRING] or self._name not in {"_+_", *_ORDERS, *_PREDICATES}:
            return None
        write = self._write
        one, other = map(write.named, args)
        if self._name == "_+_":
            made = write.let(f"{one.text} + {other.text}", STRING)
            self._pay(_PER_TEN.format(f"len({made.text})"))
            return made
        lengths = f"len({one.text})", f"len({other.text})"
        if self._name in _ORDERS:
            self._pay(_PER_TEN.format(f"min({', '.join(lengths)})"))
            return Term(f"({one.text} {_ORDERS[self._name]} {other.text})", BOOL)
        if self._name == "contains":
            self._pay(" * ".join(map(_PER_TEN.format, lengths)))
            return Term(f"({other.text} in {one.text})", BOOL)
        self._pay(_PER_TEN.format(lengths[0]))
        return Term(f"{one.text}.{self._name.lower()}({other.text})", BOOL)

    def _pay(self, cost: str) -> None:
        """Costs by length, where the checker was sure of the overload."""
        if self._is_resolved:
            self._write.charge_text(cost)
        else:
            self._write.charge(1)

    def _in_map(self, args: list[Term], kinds: list[Kind | None]) -> Term | None:
        if self._name != "@in" or kinds[0] != STRING or kinds[1] is not None:
            return None
        write = self._write
        one, other = map(write.named, args)
        if [each.id for each in self._known] != ["in_map"]:
            return None
        write.charge(1)
        write.doubt(f"not isinstance({other.text}, dict)")
        return Term(f"({one.text} in {other.text})", BOOL)

    # --- functions ---

    def _chosen(self, args: list[Term], kinds: list[Kind | None]) -> Term | None:
        """Where the classes of the arguments are certain, so is the overload."""
        if not kinds or not all(each is not None and each.name in _CLASSES for each in kinds):
            return None
        if self._name in AHEAD:
            return None
        names = [each.name for each in kinds if each is not None]
        for overload, cost in self._invoke.overloads:
            if [each.name for each in overload.params] != names:
                if any(each.name not in _CLASSES for each in overload.params):
                    return None
                continue
            return self._direct(args, overload, cost)
        return None

    def _direct(self, args: list[Term], overload: Overload, cost: int | Callable[..., int]) -> Term:
        write = self._write
        args = list(map(write.named, args))
        texts = ", ".join(each.text for each in args)
        function = "str" if overload.call is str else write.held(overload.call)
        text = f"{function}({texts})"
        if isinstance(cost, int):
            write.charge(cost)
            return write.fallible(text, _kind_of_result(overload.result))
        if args[0].kind == STRING and write.counts:
            self._afford(args[0], f"{write.held(cost)}({texts}, None)")
        made = write.let(text, _kind_of_result(overload.result))
        write.charge_text(f"{write.held(cost)}({texts}, {made.text})")
        return made

    def _afford(self, first: Term, cost: str) -> None:
        write = self._write
        write.settle()
        with write.block(f"if len({first.text}) > {_LONG}:"):
            write.line("run.cost = c")
            write.line(f"run.afford({cost})")

    def _general(self, args: list[Term]) -> Term:
        """As closures call it."""
        write = self._write
        texts = ", ".join(each.text for each in args)
        invoke = write.held(self._invoke)
        costs = [cost for _, cost in self._invoke.overloads]
        highest = max((each for each in costs if isinstance(each, int)), default=1)
        is_sum = self._name == "_+_"
        call = f"summed(run, {invoke}, {texts})" if is_sum else f"{invoke}(run, {texts})"
        if not args:
            call = f"{invoke}(run)"
        made = write.new()
        if write.counts:
            write.settle()
            write.line("run.cost = c")
        write.line(f"{made} = {call}")
        bound = max(1, highest) if all(isinstance(each, int) for each in costs) and not is_guarded(self._name) else None
        write.charged(bound)
        return Term(made, self._result(), is_name=True)

    def _result(self) -> Kind | None:
        kinds = {_kind_of_result(each.result) for each, _ in self._invoke.overloads}
        return kinds.pop() if len(kinds) == 1 else None


def _kind_of_result(type_: Type) -> Kind | None:
    """What a function surely gives if it is declared to."""
    if type_.name in _CLASSES:
        return Kind(type_.name)
    if type_.name == "list":
        element = type_.params[0]
        return Kind("list", Kind(element.name) if element.name in {"int", "string"} else None)
    return None
