"""Errors in generated source: what costs something although, or because, a part of it has failed.

Where a writer tells errors, all that can raise an EvalError notes in the Run what was paid up to there. Whoever is around
goes on from that: it pays what closures pay then, and raises again, or forgets the error as `&&` and loops may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from scheduler.cel.ast import Node
from scheduler.cel.fast.writer import BOOL, Part, Term, Writer

if TYPE_CHECKING:
    from scheduler.cel.fast.nodes import Nodes

_Made = TypeVar("_Made")
_SIZED: Final = frozenset({"string", "bytes", "list", "map"})


@contextmanager
def caught(write: Writer, part: Part) -> Iterator[None]:
    """The part; then, inside, what follows an error in it, which is `x`. The costs are up to date there."""
    with write.block("try:"):
        write.insert(part)
    with write.block("except EvalError as x:"):
        write.line("c = run.cost")
        yield


def kept(write: Writer, part: Part, flag: str) -> None:
    """The part; the text of its error is put where none is yet."""
    with caught(write, part):
        write.line(f"if {flag} is None: {flag} = x.args[0]")


def told(write: Writer, flag: str) -> None:
    """The error that was kept, if there is one."""
    with write.block(f"if {flag} is not None:"):
        write.line("run.cost = c")
        write.line(f"raise EvalError({flag})")


def paying(nodes: Nodes, make: Callable[[], _Made], cost: int) -> _Made:
    """What is made; an error in it costs so much more."""
    write = nodes.writer
    if not write.tells:
        return make()
    part, made, is_risky = nodes.apart(make)
    if not is_risky:
        write.insert(part)
        return made
    with caught(write, part):
        write.line(f"run.cost = c + {cost}")
        write.line("raise")
    return made


def both(nodes: Nodes, operands: Sequence[Node], *, is_equality: bool = False) -> list[Term]:
    """Two operands. Both are evaluated, and the call is paid, even if the first one fails."""
    write = nodes.writer
    if not write.tells:
        return nodes.all(operands)
    part, left, is_left_risky = nodes.apart(lambda: nodes.term(operands[0]))
    flag = write.new()
    if is_left_risky:
        write.line(f"{flag} = None")
        kept(write, part, flag)
    else:
        write.insert(part)
    part, right, is_right_risky = nodes.apart(lambda: nodes.term(operands[1]))
    if is_right_risky:
        with caught(write, part):
            if is_left_risky:
                write.line(f"if {flag} is not None: run.cost = c + 1; raise EvalError({flag})")
            write.line(f"run.cost = c + {_paid(left, is_equality=is_equality)}")
            write.line("raise")
    else:
        write.insert(part)
    if is_left_risky:
        with write.block(f"if {flag} is not None:"):
            write.line(f"run.cost = c + {_paid(right, is_equality=is_equality)}")
            write.line(f"raise EvalError({flag})")
    return [left, right]


def _paid(term: Term, *, is_equality: bool) -> str:
    """What a call costs if this is its other operand. What is empty is equal or not for nothing."""
    if not is_equality or (term.kind is not None and term.kind.name not in _SIZED):
        return "1"
    return f"(size({term.text}) > 0)"


def junction(nodes: Nodes, operands: Sequence[Node], words: tuple[str, str, str]) -> Term:
    """`&&` or `||`: an error in an operand counts only if no other operand decides."""
    word, decided, open_ = words
    write = nodes.writer
    parts = [nodes.apart(partial(_truth, nodes, each)) for each in operands]
    made, flag = write.new(), write.new()
    write.line(f"{made} = {decided}")
    write.line(f"{flag} = None")
    with write.block("while True:"):
        for part, term, is_risky in parts:
            if is_risky:
                with write.aside() as whole:
                    write.insert(part)
                    _leave(write, term, word)
                kept(write, whole, flag)
            else:
                write.insert(part)
                _leave(write, term, word)
        told(write, flag)
        write.line(f"{made} = {open_}")
        write.line("break")
    return Term(made, BOOL, is_name=True)


def _truth(nodes: Nodes, operand: Node) -> Term:
    return nodes.truth(nodes.term(operand))


def _leave(write: Writer, term: Term, word: str) -> None:
    write.settle()
    write.line(f"if {'not ' if word == 'and' else ''}{term.text}: break")


def unless_failed(write: Writer, part: Part) -> None:
    """A loop whose error would be its own value for the rest of its turns: the closures know what that costs."""
    with write.block("try:"):
        write.insert(part)
    with write.block("except EvalError:"):
        write.line("raise Unusual from None")
