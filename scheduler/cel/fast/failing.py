"""Errors in generated source: what costs something although, or because, a part of it has failed.

Where a writer tells errors, each place that can meet one leaves for the nearest place around that has a use for it, and
pays on the way what closures pay then: those forget the error as `&&` and loops may, or leave with it in their turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from scheduler.cel.ast import Node
from scheduler.cel.costs import size
from scheduler.cel.fast.writer import BOOL, Exit, Part, Term, Writer

if TYPE_CHECKING:
    from scheduler.cel.fast.nodes import Nodes

_Made = TypeVar("_Made")
_SIZED: Final = frozenset({"string", "bytes", "list", "map"})


class Apart(NamedTuple, Generic[_Made]):
    """What was put aside, and the name of its error, which is None unless it has failed; "" if it cannot."""

    part: Part
    made: _Made
    error: str

    def insert(self, write: Writer) -> None:
        """Here; what follows is reached even if it fails."""
        if not self.error:
            write.insert(self.part)
            return
        write.line(f"{self.error} = None")
        with write.block("while True:"):
            write.insert(self.part)
            write.settle()
            write.line("break")


def apart(nodes: Nodes, make: Callable[[], _Made]) -> Apart[_Made]:
    """What is made, with its lines put aside."""
    error = nodes.writer.new()
    exit_ = Exit(lambda text: (f"{error} = {text}", "break"))
    known = nodes.known
    with nodes.writer.aside() as part, nodes.writer.leaving_by(exit_):
        made = make()
    if not exit_.is_used:
        return Apart(part, made, "")
    nodes.known = known
    return Apart(part, made, error)


def both(nodes: Nodes, operands: Sequence[Node], *, is_equality: bool = False) -> list[Term]:
    """Two operands. Both are evaluated, and the call is paid, even if the first one fails."""
    write = nodes.writer
    if not write.tells:
        return nodes.all(operands)
    paid = partial(_paid, is_equality=is_equality)
    if nodes.is_at_hand(operands[1]):
        with write.aside() as part:
            right = nodes.term(operands[1])
        with write.owing(part.cost), write.owing(paid(right)):
            left = nodes.term(operands[0])
        write.insert(part)
        return [left, right]
    first = apart(nodes, lambda: nodes.term(operands[0]))
    first.insert(write)
    left = first.made
    if not first.error:
        with write.owing(paid(left)):
            return [left, nodes.term(operands[1])]
    second = apart(nodes, lambda: nodes.term(operands[1]))
    second.insert(write)
    right = second.made
    cost = f"({paid(right)} if {second.error} is None else 1)" if second.error else paid(right)
    with write.owing(cost):
        write.fails(f"{first.error} is not None", first.error)
    if second.error:
        with write.owing(paid(left)):
            write.fails(f"{second.error} is not None", second.error)
    return [left, right]


def _paid(term: Term, *, is_equality: bool) -> int | str:
    """What a call costs if this is its other operand. What is empty is equal or not for nothing."""
    if not is_equality or (term.kind is not None and term.kind.name not in _SIZED):
        return 1
    return int(size(term.value) > 0) if term.is_constant else f"(size({term.text}) > 0)"


def junction(nodes: Nodes, operands: Sequence[Node], words: tuple[str, str, str]) -> Term:
    """`&&` or `||`: an error in an operand counts only if no other operand decides."""
    word, decided, open_ = words
    write = nodes.writer
    parts = [apart(nodes, partial(_truth, nodes, operands[0]))]
    known = nodes.known
    parts += [apart(nodes, partial(_truth, nodes, each)) for each in operands[1:]]
    nodes.known = known  # nobody knows how far it will come
    if not parts[0].error and all(each.part.is_empty for each in parts[1:]):
        write.insert(parts[0].part)
        return joined(write, [each.made for each in parts], word, decided)
    made, flag = write.new(), write.new()
    is_risky = any(each.error for each in parts)
    write.line(f"{made} = {decided}")
    if is_risky:
        write.line(f"{flag} = None")
    with write.block("while True:"):
        for each in parts:
            each.insert(write)
            write.settle()
            leave = f"if {'not ' if word == 'and' else ''}{each.made.text}: break"
            if not each.error:
                write.line(leave)
                continue
            with write.block(f"if {each.error} is None:"):
                write.line(leave)
            write.line(f"elif {flag} is None: {flag} = {each.error}")
        write.line(f"{made} = {open_}")
        write.line("break")
    if is_risky:
        write.fails(f"{flag} is not None and {made} is {open_}", flag)
    return Term(made, BOOL, is_name=True)


def joined(write: Writer, terms: Sequence[Term], word: str, decided: str) -> Term:
    """Of operands that need no lines; what costs nothing must not take time either."""
    if any(each.is_constant and str(each.value) == decided for each in terms):
        return write.constant(decided == "True")
    live = [each.text for each in terms if not each.is_constant]
    if not live:
        return write.constant(decided == "False")
    return Term(f"({f' {word} '.join(live)})", BOOL)


def _truth(nodes: Nodes, operand: Node) -> Term:
    return nodes.truth(nodes.term(operand))
