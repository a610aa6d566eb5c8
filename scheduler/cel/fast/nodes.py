"""From a checked tree to Python source: values, selections, logic, literals.

Everything is evaluated, and charged, in the order in which the closures do it, as far as anybody could tell: where
costs are looked at. What the closures have a special answer for raises here, and they are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from scheduler.cel.ast import Call, Comprehension, ListExpr, MapExpr, Node, Select
from scheduler.cel.checker import Checked
from scheduler.cel.costs import LIST_COST, MAP_COST
from scheduler.cel.fast.calls import Calls
from scheduler.cel.fast.failing import junction
from scheduler.cel.fast.loops import Loops
from scheduler.cel.fast.selecting import item, perhaps
from scheduler.cel.fast.writer import BOOL, MAP, Exit, Kind, Part, Term, Unsupported, Writer, list_of
from scheduler.cel.logic import NO_SUCH_OVERLOAD
from scheduler.cel.names import Variable
from scheduler.cel.plan import Plan
from scheduler.cel.types import Env

_JUNCTIONS = {"_&&_": ("and", "False", "True"), "_||_": ("or", "True", "False")}


@dataclass(slots=True)
class Local:
    """A variable of a macro. `init`: what computes the value when somebody looks, and nobody has before."""

    term: Term
    init: Callable[[], Term] | None = None


@dataclass(slots=True)
class Nodes:
    """Writes terms for nodes."""

    checked: Checked
    env: Env
    plans: Mapping[Node, Plan]
    writer: Writer
    locals: dict[Variable, Local] = field(default_factory=dict)
    globals: dict[str, str] = field(default_factory=dict)
    known: frozenset[Variable] = frozenset()
    """Bound variables that have their values where the writer is."""

    def term(self, node: Node, *, is_part: bool = False) -> Term:
        """The value of the node. `is_part`: a chain of selections does not pay for itself."""
        planned = self.plans.get(node)
        if planned is None:
            raise Unsupported
        if planned.is_constant:
            return self.writer.constant(planned.value)
        if planned.attribute is not None:
            return self._chain(node, is_part=is_part)
        match node:
            case Call():
                special = self._operator(node)
                return Calls(self, self.writer).call(node) if special is None else special
            case ListExpr():
                return self._list(node)
            case MapExpr():
                return self._map(node)
            case Comprehension():
                return Loops(self, self.writer).loop(node)
        raise Unsupported

    @contextmanager
    def maybe(self) -> Iterator[Part]:
        """For what may not be evaluated: it is put aside."""
        known = self.known
        with self.writer.aside() as part:
            yield part
        self.known = known

    @contextmanager
    def under(self, header: str) -> Iterator[None]:
        """A block that may not be entered, or more than once."""
        known = self.known
        with self.writer.block(header):
            yield
        self.known = known

    def is_at_hand(self, node: Node) -> bool:
        """Whether the value is there without another line of source."""
        if node in self.checked.variables:
            local = self.locals.get(self.checked.variables[node])
            return local is None or local.init is None
        return self.plans[node].is_constant

    # --- variables and selections ---

    def _chain(self, node: Node, *, is_part: bool) -> Term:
        start, selections = self._selections(node)
        if not selections and isinstance(node, Call):  # a choice, which costs nothing itself
            return self._conditional(node)
        base = self.plans[start].attribute
        charge = 1 if base is None else base.charge
        charge -= sum(isinstance(each, Select) and each.test for each in selections)
        if charge and not is_part:
            self.writer.charge(charge)
        if base is None or isinstance(start, Call):
            term = self.term(start)
        else:
            term = self._variable(self.checked.variables[start])
        for each in selections:
            term = self._selected(term, each, is_last=each is selections[-1])
        return term

    def _selections(self, node: Node) -> tuple[Node, list[Select | Call]]:
        """Where a chain starts, and what is selected."""
        selections: list[Select | Call] = []
        while node not in self.checked.variables:
            if isinstance(node, Select):
                selections.append(node)
                node = node.operand
            elif isinstance(node, Call) and node.function in {"_[_]", "_[?_]"}:
                selections.append(node)
                node = node.args[0]
            else:
                break
        return node, selections[::-1]

    def _variable(self, variable: Variable) -> Term:
        if not variable.is_local:
            name = self.globals.setdefault(variable.name, f"g{len(self.globals)}")
            return Term(name, is_name=True)
        local = self.locals[variable]
        if local.init is not None and variable not in self.known:
            kind, is_risky = self._initialised(local.term.text, local.init)
            local.term = Term(local.term.text, kind, is_name=True)
            if is_risky:
                held = local.term.text
                self.writer.fails(f"type({held}) is Failed", f"{held}.text")
            self.known |= {variable}
        return local.term

    def _initialised(self, name: str, init: Callable[[], Term]) -> tuple[Kind | None, bool]:
        """An error is kept as the value."""
        write = self.writer
        exit_ = Exit(lambda text: (f"{name} = Failed({text})", "break"))
        with self.under(f"if {name} is MISSING:"):
            with write.aside() as part, write.leaving_by(exit_):
                value = init()
                write.settle()
                write.line(f"{name} = {value.text}")
            if exit_.is_used:
                with write.block("while True:"):
                    write.insert(part)
                    write.line("break")
            else:
                write.insert(part)
        return value.kind, exit_.is_used

    def set_local(self, variable: Variable, term: Term) -> None:
        """A variable that has its value."""
        self.locals[variable] = Local(term)

    def bind(self, variable: Variable, init: Node) -> None:
        """A variable whose value is computed where it is first looked at."""
        name = self.writer.new()
        self.writer.line(f"{name} = MISSING")
        self.locals[variable] = Local(Term(name, is_name=True), lambda: self.term(init))

    def _selected(self, holder: Term, node: Select | Call, *, is_last: bool) -> Term:
        write = self.writer
        if isinstance(node, Select):
            is_optional = node.optional
            key = write.constant(node.field)
        else:
            is_optional = node.function == "_[?_]"
            write.charge(0 if is_optional else 1)
            key = self.term(node.args[1], is_part=True)
        if is_optional:
            if not is_last:  # everything behind it would be optional too
                raise Unsupported
            return perhaps(write, holder, key)
        if isinstance(node, Select):
            write.charge(1)
        if isinstance(node, Select) and node.test:
            if not is_last:
                raise Unsupported
            held = write.named(holder).text
            return write.fallible(
                f"({key.text} in {held} if type({held}) is dict else is_found({held}, {key.text}))", BOOL
            )
        return item(write, holder, key)

    # --- logic ---

    def _operator(self, node: Call) -> Term | None:
        match node.function:
            case "_&&_" | "_||_":
                return junction(self, node.args, _JUNCTIONS[node.function])
            case "_==_" | "_!=_":
                return Calls(self, self.writer).equality(node, is_plain=node.function == "_==_")
            case "!_":
                self.writer.charge(1)
                return Term(f"(not {self.truth(self.term(node.args[0])).text})", BOOL)
            case "@not_strictly_false":
                raise Unsupported
        return None

    def truth(self, term: Term) -> Term:
        """The term, if it is a bool."""
        if term.kind == BOOL:
            return term
        term = self.writer.named(term)
        self.writer.fails(f"{term.text} is not True and {term.text} is not False", repr(NO_SUCH_OVERLOAD))
        return Term(term.text, BOOL, is_name=True)

    def _conditional(self, node: Call) -> Term:
        condition = self.truth(self.term(node.args[0]))
        if condition.is_constant:
            return self.term(node.args[1 if condition.value else 2], is_part=True)
        return self.choice(condition, *(lambda each=each: self.term(each, is_part=True) for each in node.args[1:]))

    def choice(self, condition: Term, yes: Callable[[], Term], no: Callable[[], Term]) -> Term:
        """One of two."""
        write = self.writer
        with self.maybe() as if_true:
            truthy = yes()
        with self.maybe() as if_false:
            falsy = no()
        kind = truthy.kind if truthy.kind == falsy.kind else None
        if if_true.is_empty and if_false.is_empty:
            return Term(f"({truthy.text} if {condition.text} else {falsy.text})", kind)
        made = write.new()
        for header, part, chosen in ((f"if {condition.text}:", if_true, truthy), ("else:", if_false, falsy)):
            with write.block(header):
                write.insert(part)
                write.line(f"{made} = {chosen.text}")
        return Term(made, kind, is_name=True)

    # --- literals ---

    def _list(self, node: ListExpr) -> Term:
        if node.optional:
            raise Unsupported
        with self.writer.owing(LIST_COST):
            elements = self.all(node.elements)
        self.writer.charge(LIST_COST)
        kinds: list[Kind | None] = [each.kind for each in elements]
        return Term(f"[{', '.join(each.text for each in elements)}]", list_of(kinds))

    def _map(self, node: MapExpr) -> Term:
        if node.optional:
            raise Unsupported
        with self.writer.owing(MAP_COST):
            flat = self.all([each for entry in node.entries for each in entry])
        entries = []
        for name, value in zip(flat[::2], flat[1::2]):
            is_plain = name.kind is not None and name.kind.name in {"string", "int"}
            entries.append(f"{name.text if is_plain else f'hashed({name.text})'}: {value.text}")
        self.writer.charge(MAP_COST)
        text = f"{{{', '.join(entries)}}}"
        is_pure = not self.writer.counts or all(each.kind is not None for each in flat[::2])
        return Term(text, MAP) if is_pure else self.writer.let(text, MAP)

    def all(self, nodes: Sequence[Node]) -> list[Term]:
        """Their terms."""
        return [self.term(each) for each in nodes]
