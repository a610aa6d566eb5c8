"""What stands between brackets or after `?`: opened here when its first token comes, made a node when its last one does.

Every method says whether an operand has to come next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from scheduler.cel import expectations, lexer, macros
from scheduler.cel.ast import Call, ListExpr, MapExpr, Node, StructExpr
from scheduler.cel.cursor import Cursor
from scheduler.cel.expectations import AFTER_OPERAND, FIELD, OPERAND
from scheduler.cel.frames import Frame, Kind, Levels, ends
from scheduler.cel.lexer import Token


class Brackets:
    """What is open now, outermost first; the parser fills the innermost with operands and operators."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.frames = [Frame(Kind.TOP, cursor.token, Levels())]
        self.expected = OPERAND
        """How the operand that comes now may begin, or what may stand instead of it."""

    def end(self, frame: Frame) -> bool:
        """A token came that cannot go on the expression in the innermost frame."""
        return self._ENDS[frame.kind](self, frame)

    # --- what opens -------------------------------------------------------------------------------------------------

    def _open(self, kind: Kind, opener: Token, *, name: str = "") -> bool:
        self.frames.append(Frame(kind, opener, self.frames[-1].inner(), name=name))
        return True

    def open_group(self, opener: Token) -> bool:
        """`(`."""
        return self._open(Kind.GROUP, opener)

    def open_index(self) -> bool:
        self._open(Kind.INDEX, self.cursor.take())
        return self._element(self.frames[-1], OPERAND)

    def open_branches(self, frame: Frame) -> bool:
        """The condition is what the frame holds so far. Its branches are no deeper than itself, see `_end_then`."""
        frame.operands.append(frame.finish())
        self.frames.append(Frame(Kind.THEN, self.cursor.take(), frame.levels))
        return True

    def open_call(self, name: str, *, is_member: bool = False) -> bool:
        """The target, if any, is taken from the frame when the call is complete."""
        self._open(Kind.MEMBER if is_member else Kind.CALL, self.cursor.take(), name=name)
        if self.cursor.token.kind == ")":
            return self._end_call(self.frames[-1])
        self.expected = OPERAND | {")"}
        return True

    def open_list(self, opener: Token) -> bool:
        self._open(Kind.LIST, opener)
        return self._begin_element(self.frames[-1], "]", OPERAND)

    def open_map(self, opener: Token) -> bool:
        self._open(Kind.KEY, opener)
        return self._begin_element(self.frames[-1], "}", OPERAND)

    def open_struct(self, name: str) -> bool:
        self._open(Kind.FIELD, self.cursor.take(), name=name)
        return self._begin_element(self.frames[-1], "}", FIELD)

    def _begin_element(self, frame: Frame, end: str, first: frozenset[str]) -> bool:
        """After the opening bracket: an element, nothing, or a comma and nothing."""
        cursor = self.cursor
        if cursor.token.kind == ",":
            cursor.take()
            self._match(end)
        elif cursor.token.kind == end:
            cursor.take()
        else:
            return self._element(frame, first | {end, ","})
        return self._end_brackets(frame)

    def _element(self, frame: Frame, expected: frozenset[str]) -> bool:
        """An element of a list, a key, or a field and its colon; maybe with a question mark."""
        cursor = self.cursor
        is_field = frame.kind is Kind.FIELD
        if cursor.token.kind == "?":
            cursor.take()
            frame.optional.append(len(frame.names if is_field else frame.items))
            expected = FIELD if is_field else OPERAND
        else:
            expected |= {"?"}
        if not is_field:
            self.expected = expected
            return True
        if cursor.token.kind not in FIELD:
            cursor.stop(expectations.no_match(cursor.token, cursor.after(), expected))
        field = cursor.take()
        if field.kind == lexer.ESCAPED:
            cursor.blame(field.at, "unsupported syntax: '`'")
        frame.names.append(field.text)
        self._match(":")
        return True

    # --- what ends: each is called with a token that cannot go on the expression of the frame -------------------------

    def _match(self, expected: str) -> Token:
        """`expected` ends the innermost frame, or what stands there is wrong."""
        cursor = self.cursor
        if cursor.token.kind != expected:
            after = OPERAND if expected == ":" else AFTER_OPERAND | ends(self.frames[:-1])
            cursor.stop(expectations.no_match(cursor.token, cursor.after(), frozenset((expected,)), after=after))
        return cursor.take()

    def _close(self, node: Node, depth: int) -> bool:
        """The innermost frame became this operand of the one around it."""
        self.frames.pop()
        self.frames[-1].operands.append((node, depth))
        return False

    def _end_group(self, frame: Frame) -> bool:
        self._match(")")
        return self._close(*frame.finish())

    def _end_index(self, frame: Frame) -> bool:
        self._match("]")
        index, index_depth = frame.finish()
        target, depth = self.frames[-2].operands.pop()
        function = "_[?_]" if frame.optional else "_[_]"
        return self._close(Call(function, (target, index), at=frame.opener.at), max(depth, index_depth) + 1)

    def _end_then(self, frame: Frame) -> bool:
        """What follows the colon is an expression inside the one of `? :`, whose other rules have ended there."""
        self._match(":")
        frame.add(frame.finish())
        frame.kind = Kind.ELSE
        frame.levels = frame.levels._replace(expressions=frame.levels.expressions + 1)
        return True

    def _end_else(self, frame: Frame) -> bool:
        frame.add(self.frames[-2].operands.pop())
        frame.add(frame.finish())
        then, condition, otherwise = frame.items
        return self._close(Call("_?_:_", (condition, then, otherwise), at=frame.opener.at), frame.depth + 1)

    def _end_argument(self, frame: Frame) -> bool:
        frame.add(frame.finish())
        if self.cursor.token.kind == ",":
            self.cursor.take()
            return True
        return self._end_call(frame)

    def _end_call(self, frame: Frame) -> bool:
        self._match(")")
        target, depth = None, frame.depth
        if frame.kind is Kind.MEMBER:
            target, target_depth = self.frames[-2].operands.pop()
            depth = max(depth, target_depth) + 1
        args, at = tuple(frame.items), frame.opener.at
        try:
            node = macros.expand(frame.name, target, args, at=at) or Call(frame.name, args, target, at)
        except macros.Misused as wrong:
            node = self.cursor.blame(wrong.at, str(wrong))
        return self._close(node, depth)

    def _end_key(self, frame: Frame) -> bool:
        self._match(":")
        frame.add(frame.finish())
        frame.kind = Kind.VALUE
        return True

    def _end_element(self, frame: Frame) -> bool:
        """Of a list, the value of an entry or of a field."""
        frame.add(frame.finish())
        cursor = self.cursor
        end, first = ("]" if frame.kind is Kind.LIST else "}"), (FIELD if frame.kind is Kind.FIELD else OPERAND)
        if cursor.token.kind not in {end, ","}:
            cursor.stop(expectations.no_match(cursor.token, cursor.after(), frozenset((end, ","))))
        if cursor.token.kind == "," and (cursor.after().kind in first or cursor.after().kind == "?"):
            cursor.take()
            if frame.kind is Kind.VALUE:
                frame.kind = Kind.KEY
            return self._element(frame, first)
        if cursor.token.kind == ",":
            cursor.take()
        self._match(end)
        return self._end_brackets(frame)

    def _end_brackets(self, frame: Frame) -> bool:
        at, items = frame.opener.at, tuple(frame.items)
        node: Node
        if frame.kind is Kind.LIST:
            node = ListExpr(items, frozenset(frame.optional), at)
        elif frame.kind is Kind.FIELD:
            node = StructExpr(frame.name, tuple(zip(frame.names, items)), at)
        else:
            optional = frozenset(position // 2 for position in frame.optional)
            node = MapExpr(tuple(zip(items[::2], items[1::2])), optional, at)
        return self._close(node, frame.depth)

    _ENDS: ClassVar[dict[Kind, Callable[[Brackets, Frame], bool]]] = {
        Kind.GROUP: _end_group,
        Kind.CALL: _end_argument,
        Kind.MEMBER: _end_argument,
        Kind.INDEX: _end_index,
        Kind.LIST: _end_element,
        Kind.KEY: _end_key,
        Kind.VALUE: _end_element,
        Kind.FIELD: _end_element,
        Kind.THEN: _end_then,
        Kind.ELSE: _end_else,
    }
