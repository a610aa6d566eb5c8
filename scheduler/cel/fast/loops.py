"""Loops in generated source: as `folds`, turn by turn with the same costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from scheduler.cel.ast import Call, Comprehension, Ident, ListExpr, Node
from scheduler.cel.costs import LIST_COST
from scheduler.cel.fast.writer import BOOL, INT, MAP, Exit, Kind, Term, Unsupported, Writer

if TYPE_CHECKING:
    from scheduler.cel.fast.nodes import Nodes

_TICK: Final = "if c > bound: bound = tick(c)"
_GATHERING: Final = frozenset({"map", "filter", "transformList"})
_INSERTING: Final = frozenset({"transformMap", "transformMapEntry"})


class Loops:
    """Writes comprehensions."""

    __slots__ = ("_nodes", "_write")

    def __init__(self, nodes: Nodes, writer: Writer) -> None:
        self._nodes, self._write = nodes, writer

    def loop(self, node: Comprehension) -> Term:
        """The term of a comprehension."""
        if node.macro == "bind":
            self._nodes.bind(self._nodes.checked.scopes[node][0], node.accu_init)
            return self._nodes.term(node.result)
        self._write.at_most = None
        if node.macro in {"all", "exists"}:
            return self._quantifier(node, decisive=node.macro == "exists")
        if node.macro == "exists_one":
            return self._exists_one(node)
        if node.macro in _GATHERING:
            return self._gathered(node)
        if node.macro in _INSERTING:
            return self._inserted(node)
        raise Unsupported

    @contextmanager
    def _turns(self, node: Comprehension, flag: str, *, over: str | None = None) -> Iterator[None]:
        """The body of the loop. An error in it is kept under `flag`, and the next turn comes.

        `over` is a name under which the loop can go on after it was left.
        """
        write, nodes = self._write, self._nodes
        _, *variables = nodes.checked.scopes[node]
        source = nodes.term(node.iter_range)
        element: Kind | None = None
        is_list = source.kind is not None and source.kind.name == "list"
        if len(variables) == 2:
            text = f"pairs({source.text})"
            kinds: list[Kind | None] = [INT if is_list else None, source.kind.element if source.kind else None]
        else:
            element = source.kind.element if source.kind is not None else None
            text = source.text if is_list else f"items({source.text})"
            kinds = [element]
        values = write.new() if over is None else over
        statement = f"{values} = {text if over is None else f'iter({text})'}"
        if is_list:
            write.line(statement)
        else:
            write.attempt(statement)
        names = [write.new() for _ in variables]
        for variable, name, kind in zip(variables, names, kinds):
            nodes.set_local(variable, Term(name, kind, is_name=True))
        exit_ = self._to_next_turn(flag)
        with write.aside() as part, nodes.under(f"for {', '.join(names)} in {values}:"), write.leaving_by(exit_):
            yield
            write.settle()
            self._tick()
        if write.tells:
            write.line(f"{flag} = None")
        write.insert(part)

    @staticmethod
    def _to_next_turn(flag: str, *, is_last: bool = False) -> Exit:
        """Keeps the first error, or the last."""
        kept = "{}" if is_last else f"if {flag} is None: {{}}"
        return Exit(lambda text: (kept.format(f"{flag} = {text}"), _TICK, "continue"))

    def _fails(self, flag: str) -> None:
        """After the loop: what failed in it, in the end."""
        if self._write.tells:
            self._write.fails(f"{flag} is not None", flag)

    def _tick(self) -> None:
        if self._write.counts:
            self._write.line(_TICK)

    def _quantifier(self, node: Comprehension, *, decisive: bool) -> Term:
        write, nodes = self._write, self._nodes
        if not isinstance(node.loop_step, Call):
            raise Unsupported
        condition_cost = 3 if decisive else 2
        over, made, flag = write.new(), write.new(), write.new()
        write.line(f"{made} = {not decisive}")
        with self._turns(node, flag, over=over):
            write.charge(condition_cost + 1)
            test = nodes.truth(nodes.term(node.loop_step.args[1]))
            with write.block(f"if {'' if decisive else 'not '}{test.text}:"):
                write.line(f"{made} = {decisive}")
                if write.tells:
                    write.line(f"{flag} = None")
                self._tick()
                if write.counts:
                    write.line(f"for _ in {over}: c += {condition_cost}; break")
                write.line("break")
        write.charge(1)
        self._fails(flag)
        return Term(made, BOOL, is_name=True)

    def _exists_one(self, node: Comprehension) -> Term:
        write, nodes = self._write, self._nodes
        if not isinstance(node.loop_step, Call):
            raise Unsupported
        count, flag = write.new(), write.new()
        write.line(f"{count} = 0")
        with self._turns(node, flag):
            with write.leaving_by(self._to_next_turn(flag, is_last=True)):
                test = nodes.truth(nodes.term(node.loop_step.args[0]))
            with write.block(f"if {test.text}:"):
                write.charge(2)
                write.line(f"{count} += 1")
        write.charge(2)
        self._fails(flag)
        return Term(f"({count} == 1)", BOOL)

    def _gathered(self, node: Comprehension) -> Term:
        write, nodes = self._write, self._nodes
        made = write.new()
        kinds: list[Kind | None] = []

        def add(step: Call) -> None:
            if not isinstance(step.args[1], ListExpr):
                raise Unsupported
            cost = 1 if nodes.plans[step.args[1]].is_constant else LIST_COST + 1
            write.charge(1)
            with write.owing(cost):
                item = nodes.term(step.args[1].elements[0])
            kinds.append(item.kind)
            write.charge(cost)
            write.line(f"{made}.append({item.text})")

        self._making(node, (made, write.new()), "[]", add)
        return Term(made, Kind("list", kinds[0]), is_name=True)

    def _inserted(self, node: Comprehension) -> Term:
        write, nodes = self._write, self._nodes
        made, flag = write.new(), write.new()

        def add(step: Call) -> None:
            write.charge(1)
            if write.tells:  # to what has failed nothing can be added
                write.fails(f"{flag} is not None", flag)
            if len(step.args) == 2:
                entries = nodes.term(step.args[1])
                write.charge(1)
                write.attempt(f"merge({made}, {entries.text})")
                return
            name, value = nodes.all(step.args[1:])
            is_plain = name.kind is not None and name.kind.name in {"string", "int"}
            hashed = write.named(name if is_plain else Term(f"hashed({name.text})"))
            write.charge(1)
            write.fails(f"{hashed.text} in {made}", f"taken({hashed.text})")
            write.line(f"{made}[{hashed.text}] = {value.text}")

        self._making(node, (made, flag), "{}", add)
        return Term(made, MAP, is_name=True)

    def _making(self, node: Comprehension, names: tuple[str, str], empty: str, add: Callable[[Call], None]) -> None:
        """A list or map, added to where the condition holds."""
        write, nodes = self._write, self._nodes
        made, flag = names
        step: Node = node.loop_step
        write.line(f"{made} = {empty}")
        with self._turns(node, flag):
            if isinstance(step, Call) and step.function == "_?_:_":
                with write.leaving_by(self._to_next_turn(flag, is_last=True)):
                    test = nodes.truth(nodes.term(step.args[0]))
                if not isinstance(step.args[1], Call) or not isinstance(step.args[2], Ident):
                    raise Unsupported
                with nodes.under(f"if {test.text}:"):
                    add(step.args[1])
            elif isinstance(step, Call):
                add(step)
        write.charge(1)
        self._fails(flag)
