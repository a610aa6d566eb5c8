"""One call in generated source, of the shortest form that is right for its arguments; at the longest as closures call it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from scheduler.cel.calls import Invocation
from scheduler.cel.fast.boxed import moment, operation
from scheduler.cel.fast.direct import PER_TEN, direct
from scheduler.cel.fast.writer import BOOL, BYTES, DOUBLE, INT, MAP, STRING, UINT, Kind, Term, Writer
from scheduler.cel.libraries.classes import CLASSES
from scheduler.cel.strain import AHEAD, MUCH, SUM_NANOS, TEXT_SUM_NANOS
from scheduler.cel.types import Overload, Type
from scheduler.cel.unify import is_dyn, is_variable
from scheduler.cel.values import UInt

_MAX: Final = 2**63 - 1
_NUMBERS: Final = frozenset({INT, UINT, DOUBLE})
_ORDERS: Final = {"_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}
_ARITHMETIC: Final = {"_+_": "+", "_-_": "-", "_*_": "*"}
_DIVISIONS: Final = {"_/_": "//", "_%_": "%"}
_PREDICATES: Final = {"startsWith", "endsWith", "contains"}
_SIZED: Final = frozenset({"string", "bytes", "list", "map"})
_CLASSES: Final = {"bool": bool, "int": int, "uint": UInt, "double": float, "string": str, "bytes": bytes}
_OPAQUE: Final = frozenset(
    {"timestamp", "duration", "kubernetes.Quantity", "kubernetes.Semver", "kubernetes.URL", "net.IP", "net.CIDR"}
)
"""Types whose values have no length, and are of a class that no other type has."""


def is_guarded(name: str) -> bool:
    """Whether a call must be affordable in another way than by its cost."""
    return name == "_+_" or name in AHEAD


class Function:
    """What is called, and how the checker found it."""

    __slots__ = ("_invoke", "_is_resolved", "_known", "_name", "_write")

    def __init__(self, write: Writer, name: str, invoke: Invocation, known: tuple[Overload, ...]) -> None:
        self._write, self._name, self._invoke, self._known = write, name, invoke, known
        self._is_resolved = len(known) == 1

    def term(self, args: list[Term]) -> Term:
        """The value of the call."""
        kinds = [each.kind for each in args]
        if len(args) == 2:
            made = self._numbers(args, kinds) or self._texts(args, kinds) or self._in_map(args, kinds)
            made = made or self._joined(args, kinds) or operation(self._write, self._name, args)
            if made is not None:
                return made
        if self._name == "timestamp" and kinds == [INT]:
            return moment(self._write, args[0])
        if self._name == "size" and len(args) == 1 and kinds[0] is not None and kinds[0].name in _SIZED:
            self._write.charge(1)
            return Term(f"len({args[0].text})", INT)
        if self._name == "dyn":
            self._write.charge(1)
            return args[0]
        return self._chosen(args, kinds) or self._expected(args) or self._general(args)

    # --- operators ---

    def _numbers(self, args: list[Term], kinds: list[Kind | None]) -> Term | None:
        one, other = args
        if self._name in _DIVISIONS:
            return self._divided(one, other) if kinds == [INT, INT] else None
        if self._name not in _ORDERS and self._name not in _ARITHMETIC:
            return None
        if kinds == [INT, INT]:
            self._write.charge(1)
            return self._on_integers(one, other)
        if INT in kinds and None in kinds:
            return self._perhaps(args, kinds)
        if self._name in _ORDERS and DOUBLE in kinds and _NUMBERS.issuperset(kinds):
            return self._on_doubles(args, kinds)
        if self._name in _ORDERS and kinds in ([INT, UINT], [UINT, INT]):
            self._write.charge(1)
            return Term(f"({one.text} {_ORDERS[self._name]} {other.text})", BOOL)
        if kinds == [DOUBLE, DOUBLE] and self._name in _ARITHMETIC:
            self._write.charge(1)
            return Term(f"({one.text} {_ARITHMETIC[self._name]} {other.text})", DOUBLE)
        return None

    def _on_doubles(self, args: list[Term], kinds: list[Kind | None]) -> Term:
        """An integer is taken for the double nearest to it."""
        write = self._write
        named = [write.named(each).text for each in args]
        write.charge(1)
        checks = [f"{each} != {each}" for each, kind in zip(named, kinds) if kind == DOUBLE]
        write.fails(" or ".join(checks), "'NaN values cannot be ordered'")
        one, other = (each if kind == DOUBLE else f"{write.held(float)}({each})" for each, kind in zip(named, kinds))
        return Term(f"({one} {_ORDERS[self._name]} {other})", BOOL)

    def _on_integers(self, one: Term, other: Term) -> Term:
        if self._name in _ORDERS:
            return Term(f"({one.text} {_ORDERS[self._name]} {other.text})", BOOL)
        made = self._write.let(f"{one.text} {_ARITHMETIC[self._name]} {other.text}", INT)
        self._write.fails(f"not {-_MAX - 1} <= {made.text} <= {_MAX}", "'integer overflow'")
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

    def _divided(self, one: Term, other: Term) -> Term:
        """Towards zero."""
        write, word = self._write, _DIVISIONS[self._name]
        one, other = map(write.named, (one, other))
        write.charge(1)
        if other.is_constant and other.value > 0:
            text = f"({one.text} {word} {other.text} if {one.text} >= 0 else -(-{one.text} {word} {other.text}))"
            return Term(text, INT)
        write.fails(f"{other.text} == 0", repr("division by zero" if word == "//" else "modulus by zero"))
        write.fails(f"{other.text} == -1 and {one.text} == {-_MAX - 1}", "'integer overflow'")
        if word == "//":
            is_positive = f"({one.text} >= 0) == ({other.text} > 0)"
            text = f"{one.text} // {other.text} if {is_positive} else -(-{one.text} // {other.text})"
        else:
            text = f"{one.text} % abs({other.text}) if {one.text} >= 0 else -(-{one.text} % abs({other.text}))"
        return write.let(text, INT)

    def _texts(self, args: list[Term], kinds: list[Kind | None]) -> Term | None:
        is_text = kinds == [STRING, STRING]
        if self._name not in {"_+_", *_ORDERS, *_PREDICATES} or not (is_text or kinds == [BYTES, BYTES]):
            return None
        if not is_text and self._name in _PREDICATES:
            return None
        write = self._write
        one, other = map(write.named, args)
        if self._name == "_+_":
            return self._sum_of_texts(one, other)
        lengths = f"len({one.text})", f"len({other.text})"
        if self._name in _ORDERS:
            left, right = lengths
            self._pay(PER_TEN.format(f"({left} if {left} < {right} else {right})"))
            return Term(f"({one.text} {_ORDERS[self._name]} {other.text})", BOOL)
        if self._name == "contains":
            self._pay(" * ".join(map(PER_TEN.format, lengths)))
            return Term(f"({other.text} in {one.text})", BOOL)
        self._pay(PER_TEN.format(lengths[0]))
        return Term(f"{one.text}.{self._name.lower()}({other.text})", BOOL)

    def _sum_of_texts(self, one: Term, other: Term) -> Term:
        """It is paid first: sums of sums may be longer than the memory. `strain_of_sum` says what is not upstream's."""
        write = self._write
        length = f"len({one.text}) + len({other.text})"
        if self._is_resolved:
            length = write.let(length).text
            if write.counts:
                write.settle()
                write.line(f"if {length} > {MUCH} and c + {length} // 10 > limit: exceed()")  # as `strain_of_sum`
            write.charge_text(PER_TEN.format(length))
        else:
            write.charge_text("1")  # whose sum nobody knows, see `_joined`
            write.strain(f"{TEXT_SUM_NANOS} * ({length})")
        return write.let(f"{one.text} + {other.text}", one.kind)

    def _pay(self, cost: str) -> None:
        """Costs by length, where the checker was sure of the overload."""
        if self._is_resolved:
            self._write.charge_text(cost)
        else:
            self._write.charge(1)

    def _joined(self, args: list[Term], kinds: list[Kind | None]) -> Term | None:
        """Two lists."""
        one, other = kinds
        if self._name != "_+_" or one is None or other is None or one.name != "list" or other.name != "list":
            return None
        write = self._write
        left, right = map(write.named, args)
        count = write.let(f"len({left.text}) + len({right.text})").text
        if write.counts:
            write.settle()
            write.line(f"if c + {count} > limit: exceed()")
        write.strain(f"{SUM_NANOS} * {count}")
        write.charge_text("1")  # whose sum nobody knows: what is summed may be as long as it likes
        return write.let(f"{left.text} + {right.text}", one if one == other else Kind("list"))

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
        names = [each.name for each in kinds if each is not None]
        for overload, cost in self._invoke.overloads:
            if [each.name for each in overload.params] != names:
                if any(each.name not in _CLASSES for each in overload.params):
                    return None
                continue
            return self._direct(args, overload, cost)
        return None

    def _expected(self, args: list[Term]) -> Term | None:
        """Where the checker is sure of the overload, the arguments are most likely of its classes: a look is enough."""
        if not self._is_resolved or not args:
            return None
        overload, cost = self._invoke.overloads[0]
        if self._name == "_+_" and overload.params[0].name not in _OPAQUE:
            return None
        write = self._write
        args = list(map(write.named, args))
        checks: list[str] = []
        for each, param in zip(args, overload.params):
            check = self._check(each, param)
            if check is None:
                return None
            checks += [check] if check else []
        if not checks:
            return self._direct(args, overload, cost)
        made = write.new()
        with write.block(f"if {' and '.join(checks)}:"):
            write.line(f"{made} = {self._direct(args, overload, cost).text}")
        with write.block("else:"):
            write.line(f"{made} = {self._general(args).text}")
        return Term(made, _kind_of_result(overload.result), is_name=True)

    def _check(self, term: Term, param: Type) -> str | None:
        """What tells that the value is of the type; None if that is not said in a word."""
        kind = term.kind
        if is_dyn(param) or is_variable(param) or (not param.params and kind == Kind(param.name)):
            return ""
        if param.name == "map" and all(is_dyn(each) or is_variable(each) for each in param.params):
            return "" if kind == MAP else f"type({term.text}) is {self._write.held(dict)}"
        if param.name == "list":
            return self._check_list(term, param.params[0])
        class_ = _CLASSES.get(param.name) or CLASSES.get(param.name)
        return None if class_ is None else f"type({term.text}) is {self._write.held(class_)}"

    def _check_list(self, term: Term, element: Type) -> str | None:
        """As `_check`; of the elements the first one tells, if there is one."""
        kind = term.kind
        is_list = f"type({term.text}) is list"
        if is_dyn(element) or is_variable(element):
            return "" if kind is not None and kind.name == "list" else is_list
        if element.name not in _CLASSES or (kind is not None and kind.name != "list"):
            return None
        if kind == Kind("list", Kind(element.name)):
            return ""
        first = f"type({term.text}[0]) is {self._write.held(_CLASSES[element.name])}"
        return f"{is_list} and (not {term.text} or {first})"

    def _direct(self, args: list[Term], overload: Overload, cost: int | Callable[..., int]) -> Term:
        named = list(map(self._write.named, args))
        return direct(self._write, overload, named, cost=cost, kind=_kind_of_result(overload.result))

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
        write.attempt(f"{made} = {call}", charges=True)
        bound = max(1, highest) if all(isinstance(each, int) for each in costs) and not is_guarded(self._name) else None
        write.charged(bound)
        return Term(made, self._result(), is_name=True)

    def _result(self) -> Kind | None:
        kinds = {_kind_of_result(each.result) for each, _ in self._invoke.overloads}
        return kinds.pop() if len(kinds) == 1 else None


def _kind_of_result(type_: Type) -> Kind | None:
    """What a function surely gives if it is declared to."""
    if type_.name in _CLASSES or type_.name in _OPAQUE:
        return Kind(type_.name)
    if type_.name == "list":
        element = type_.params[0]
        return Kind("list", Kind(element.name) if element.name in {"int", "string"} else None)
    return None
