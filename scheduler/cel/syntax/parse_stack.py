"""The parser's position among the tokens, and the expressions that are open there.

What the parser has open: an expression between its first token and the one that ends it, and its operators.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple, NoReturn, TypeAlias

from scheduler.cel.errors import CompileError, Issue, report
from scheduler.cel.syntax.ast import Call, Literal, Node
from scheduler.cel.syntax.lexer import END, Token, tokens


class Stop(Exception):
    """A syntax error: nothing after it is looked at."""


class Cursor:
    """One way through the tokens of a source. What the lexer could not read is among the issues from the start."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._tokens, self.issues = tokens(source)
        self._position = 0

    @property
    def token(self) -> Token:
        """The one that comes now; the last one comes for ever."""
        return self._tokens[self._position]

    def after(self, count: int = 1) -> Token:
        """The one that comes so many later."""
        return self._tokens[min(self._position + count, len(self._tokens) - 1)]

    def take(self) -> Token:
        """The one that comes now, and on to the next."""
        token = self.token
        self._position += token.kind != END
        return token

    def stop(self, issue: Issue) -> NoReturn:
        """A syntax error."""
        self.issues.append(issue)
        raise Stop

    def blame(self, at: int, text: str) -> Node:
        """Something is wrong with what can be read well enough to go on. The node takes its place."""
        self.issues.append(Issue(at, text))
        return Literal(None, at)

    def refusal(self) -> CompileError:
        """All that was found."""
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
"""Function and strength of what stands between two operands."""
_AND: Final = 2
_RELATION: Final = 3

Operand: TypeAlias = tuple[Node, int]
"""A node, and how many operators, selections, indexes and calls of members are nested in it at most."""


class FrameKind(enum.Enum):
    """What a frame is the inside of. A map's is `KEY` and `VALUE` in turn, and `THEN` turns into `ELSE`."""

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
    """The tokens that can end the expression of the innermost frame."""
    kinds = (frame.kind for frame in reversed(frames) if frame.kind is not FrameKind.ELSE)
    return frozenset(_ENDS[next(kinds)])


class _Operator(NamedTuple):
    function: str
    strength: int
    at: int


class Levels(NamedTuple):
    """How deep three rules of the grammar are nested around something. cel-go counts each, and allows 250."""

    expressions: int = 0
    relations: int = 0
    sums: int = 0


class Frame:
    """One open bracket, argument list or branch. Operators wait in it until a weaker one or the end comes."""

    __slots__ = (
        "_operators",
        "_prefix",
        "_related",
        "_summed",
        "depth",
        "items",
        "kind",
        "levels",
        "name",
        "names",
        "opener",
        "operands",
        "optional",
    )

    def __init__(self, kind: FrameKind, opener: Token, levels: Levels, *, name: str = "") -> None:
        self.kind = kind
        self.opener = opener
        self.levels = levels
        self.name = name
        """Of the function or type."""
        self.names: list[str] = []
        """Of a struct's fields."""
        self.items: list[Node] = []
        """What is complete: arguments, elements, keys and values in turn, or the middle of `? :`."""
        self.optional: list[int] = []
        """Which elements or entries carry a question mark."""
        self.depth = 0
        """The greatest of the items'."""
        self.operands: list[Operand] = []
        self._operators: list[_Operator] = []
        self._related = 0
        self._summed = 0
        """How many of the waiting operators compare, and how many are stronger than that."""
        self._prefix: tuple[_Operator, int] | None = None

    def inner(self) -> Levels:
        """What holds for an operand that comes now."""
        expressions, relations, sums = self.levels
        return Levels(expressions + 1, relations + 1 + self._related, sums + 1 + self._summed)

    def add(self, operand: Operand) -> None:
        """Complete: an argument, an element, a key or a value."""
        node, depth = operand
        self.items.append(node)
        self.depth = max(self.depth, depth)

    def prefix(self, function: str, count: int, at: int) -> None:
        """So many `!` or `-` stand before the operand that comes now; two of them are none."""
        self._prefix = (_Operator(function, 0, at), count)

    def operator(self, token: Token) -> None:
        """It stands after the last operand."""
        function, strength = OPERATORS[token.kind]
        self._apply_prefix()
        # Chains of the same && or || wait until all of it is there, see `_reduce`.
        self._reduce(strength + 1 if strength <= _AND else strength)
        self._operators.append(_Operator(function, strength, token.at))
        self._count(strength, 1)

    def finish(self) -> Operand:
        """The whole expression; the frame is then ready for another one."""
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
        """Applies what is at least that strong."""
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
    """A chain of one operator as a tree of little height, split where cel-go splits it."""
    if not operators:
        return terms[0]
    middle = len(operators) // 2
    left = _balanced(operators[:middle], terms[: middle + 1])
    right = _balanced(operators[middle + 1 :], terms[middle + 1 :])
    return Call(operators[middle].function, (left, right), at=operators[middle].at)
