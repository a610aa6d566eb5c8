"""The parser's position in the tokens, and the expressions that are open there.

A frame is an open expression, between its first token and the one that ends it, with its pending operators.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NoReturn, TypeAlias

from scheduler.cel.errors import CompileError, Issue, report
from scheduler.cel.syntax.ast import Call, Literal, Node
from scheduler.cel.syntax.lexer import END, Token, tokens


class Stop(Exception):
    """A syntax error: the parser does not continue after it."""


class Cursor:
    """The position in the tokens of a source. Its issues start with those of the lexer."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._tokens, self.issues = tokens(source)
        self._position = 0

    @property
    def token(self) -> Token:
        """The current token; the last token is repeated permanently."""
        return self._tokens[self._position]

    def after(self, count: int = 1) -> Token:
        """Return the token `count` positions later."""
        return self._tokens[min(self._position + count, len(self._tokens) - 1)]

    def take(self) -> Token:
        """Return the current token and move to the next one."""
        token = self.token
        self._position += token.kind != END
        return token

    def stop(self, issue: Issue) -> NoReturn:
        """Report a syntax error and raise `Stop`."""
        self.issues.append(issue)
        raise Stop

    def blame(self, at: int, text: str) -> Node:
        """Report an error after which parsing can continue, and return a node for the invalid part."""
        self.issues.append(Issue(at, text))
        return Literal(None, at)

    def refusal(self) -> CompileError:
        """Return the error with all issues."""
        if not self.source:
            return CompileError(f"ERROR: <input>:1:0: {self.issues[0].text}")
        return CompileError(report(self.source, self.issues))


OPERATORS: Final = {
    "||": ("_||_", 1),
    "&&": ("_&&_", 2),
    "==": ("_==_", 3),
    "!=": ("_!=_", 3),
    "<": ("_<_", 3),
    "<=": ("_<=_", 3),
    ">": ("_>_", 3),
    ">=": ("_>=_", 3),
    "in": ("@in", 3),
    "+": ("_+_", 4),
    "-": ("_-_", 4),
    "*": ("_*_", 5),
    "/": ("_/_", 5),
    "%": ("_%_", 5),
}
"""Function and strength of each binary operator."""
_AND: Final = 2
_RELATION: Final = 3

Operand: TypeAlias = tuple[Node, int]
"""A node, and the maximum nesting of operators, selections, indexes and member calls in it."""


class FrameKind(enum.Enum):
    """The kind of a frame. In a map, `KEY` and `VALUE` alternate, and `THEN` turns into `ELSE`."""

    TOP = enum.auto()
    GROUP = enum.auto()
    CALL = enum.auto()
    MEMBER = enum.auto()
    INDEX = enum.auto()
    LIST = enum.auto()
    KEY = enum.auto()
    VALUE = enum.auto()
    FIELD = enum.auto()
    THEN = enum.auto()
    ELSE = enum.auto()


_ENDS: Final = {
    FrameKind.TOP: {END},
    FrameKind.GROUP: {")"},
    FrameKind.CALL: {")", ","},
    FrameKind.MEMBER: {")", ","},
    FrameKind.INDEX: {"]"},
    FrameKind.LIST: {"]", ","},
    FrameKind.KEY: {":"},
    FrameKind.VALUE: {"}", ","},
    FrameKind.FIELD: {"}", ","},
    FrameKind.THEN: {":"},
}


def ends(frames: list[Frame]) -> frozenset[str]:
    """Return the tokens that can end the expression of the innermost frame."""
    kinds = (frame.kind for frame in reversed(frames) if frame.kind is not FrameKind.ELSE)
    return frozenset(_ENDS[next(kinds)])


class _Operator(NamedTuple):
    function: str
    strength: int
    at: int


class Levels(NamedTuple):
    """The nesting depth of three rules of the grammar. cel-go counts each separately, and allows 250."""

    expressions: int = 0
    relations: int = 0
    sums: int = 0


@dataclass(slots=True, eq=False)
class Frame:
    """One open bracket, argument list or branch. Its operators are pending until a weaker one or the end follows."""

    kind: FrameKind
    opener: Token
    levels: Levels
    name: str = ""
    """The name of the function or type."""
    names: list[str] = field(default_factory=list)
    """The names of a struct's fields."""
    items: list[Node] = field(default_factory=list)
    """The complete parts: arguments, elements, alternating keys and values, or the middle of `? :`."""
    optional: list[int] = field(default_factory=list)
    """The positions of elements or entries with a question mark."""
    depth: int = 0
    """The greatest depth of the items."""
    operands: list[Operand] = field(default_factory=list)
    _operators: list[_Operator] = field(default_factory=list)
    _related: int = 0
    _summed: int = 0
    """The numbers of pending operators that compare (`_related`) and that are stronger (`_summed`)."""
    _prefix: tuple[_Operator, int] | None = None

    def inner(self) -> Levels:
        """Return the levels of the next operand."""
        expressions, relations, sums = self.levels
        return Levels(expressions + 1, relations + 1 + self._related, sums + 1 + self._summed)

    def add(self, operand: Operand) -> None:
        """Add a complete argument, element, key or value."""
        node, depth = operand
        self.items.append(node)
        self.depth = max(self.depth, depth)

    def prefix(self, function: str, count: int, at: int) -> None:
        """Record `count` `!` or `-` before the next operand; two of them cancel each other."""
        self._prefix = (_Operator(function, 0, at), count)

    def operator(self, token: Token) -> None:
        """Add an operator after the last operand."""
        function, strength = OPERATORS[token.kind]
        self._apply_prefix()
        # A chain of the same && or || stays pending until it is complete, see `_reduce`.
        self._reduce(strength + 1 if strength <= _AND else strength)
        self._operators.append(_Operator(function, strength, token.at))
        self._count(strength, 1)

    def finish(self) -> Operand:
        """Return the whole expression; the frame can then be used for another one."""
        self._apply_prefix()
        self._reduce(0)
        return self.operands.pop()

    def _apply_prefix(self) -> None:
        if self._prefix is not None:
            operator, count = self._prefix
            if count % 2:
                node, depth = self.operands[-1]
                self.operands[-1] = (Call(operator.function, (node,), at=operator.at), depth)
            self._prefix = None

    def _reduce(self, strength: int) -> None:
        """Apply the pending operators with at least this strength."""
        while self._operators and (last := self._operators[-1]).strength >= strength:
            count = 1
            if last.strength <= _AND:
                while count < len(self._operators) and self._operators[-1 - count].strength == last.strength:
                    count += 1
            self._count(last.strength, -count)
            operators, operands = self._operators[-count:], self.operands[-1 - count :]
            del self._operators[-count:], self.operands[-1 - count :]
            depth = max(depth for _, depth in operands) + (last.strength > _AND)
            self.operands.append((_balanced(operators, [node for node, _ in operands]), depth))

    def _count(self, strength: int, change: int) -> None:
        if strength > _RELATION:
            self._summed += change
        elif strength == _RELATION:
            self._related += change


def _balanced(operators: list[_Operator], terms: list[Node]) -> Node:
    """Return a chain of one operator as a balanced tree, split where cel-go splits it."""
    if not operators:
        return terms[0]
    middle = len(operators) // 2
    left = _balanced(operators[:middle], terms[: middle + 1])
    right = _balanced(operators[middle + 1 :], terms[middle + 1 :])
    return Call(operators[middle].function, (left, right), at=operators[middle].at)
