"""Parser: tokens to a tree, by the grammar of cel-go v0.26.

As in Kubernetes 1.36, the optional syntax is enabled, and backticks are not.

The parser is not recursive. An open bracket, argument list or branch of `? :` is a frame in a list, and inside a
frame, operators are pending on a stack. So nesting needs no Python stack, and an expression that is nested deeper
than cel-go allows is rejected with its text. The tree can still be several hundred nodes high.

A frame is opened at its first token, and becomes a node at its last one. Every method returns whether an operand must
come next.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar, Final

from scheduler.cel.errors import CompileError, Issue
from scheduler.cel.syntax import lexer, literals, macros
from scheduler.cel.syntax.ast import Call, Ident, ListExpr, Literal, MapExpr, Node, Select, StructExpr
from scheduler.cel.syntax.lexer import AFTER_OPERAND, FIELD, OPERAND, Token
from scheduler.cel.syntax.parse_stack import OPERATORS, Cursor, Frame, FrameKind, Levels, Operand, Stop, ends

MOST_CODE_POINTS: Final = 100_000
MOST_NESTED: Final = 250
_is_reserved: Final = re.compile(
    "as|break|const|continue|else|false|for|function|if|import|in|let|loop|namespace|null|package|return|true|var|void"
    "|while"
).fullmatch
_NUMBERS: Final = frozenset({lexer.INT, lexer.FLOAT})
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def parse(source: str) -> Node:
    """Return the tree with expanded macros; raise `CompileError` with cel-go's text, up to the first syntax error."""
    if len(source) > MOST_CODE_POINTS:
        raise _nowhere(f"expression code point size exceeds limit: size: {len(source)}, limit {MOST_CODE_POINTS}")
    return _Parser(Cursor(_SURROGATES.sub("\ufffd", source))).run()


def _nowhere(text: str) -> CompileError:
    return CompileError(f"ERROR: <input>:-1:0: {text}")


class _Parser:
    """Keeps the open frames, outermost first, and adds operands and operators to the innermost one."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.frames = [Frame(FrameKind.TOP, cursor.token, Levels())]
        self.expected = OPERAND
        """The tokens that may start the next operand or replace it."""

    # --- what opens -------------------------------------------------------------------------------------------------

    def _open(self, kind: FrameKind, opener: Token, *, name: str = "") -> bool:
        self.frames.append(Frame(kind, opener, self.frames[-1].inner(), name=name))
        return True

    def _open_index(self) -> bool:
        self._open(FrameKind.INDEX, self.cursor.take())
        return self._element(self.frames[-1], OPERAND)

    def _open_branches(self, frame: Frame) -> bool:
        """Open the branches of `? :`. The frame's expression is the condition.

        The branches have the same levels as the frame, see `_end_then`.
        """
        frame.operands.append(frame.finish())
        self.frames.append(Frame(FrameKind.THEN, self.cursor.take(), frame.levels))
        return True

    def _open_call(self, name: str, *, is_member: bool = False) -> bool:
        """Open a call. Its target, if any, is taken from the frame when the call is complete."""
        self._open(FrameKind.MEMBER if is_member else FrameKind.CALL, self.cursor.take(), name=name)
        if self.cursor.token.kind == ")":
            return self._end_call(self.frames[-1])
        self.expected = OPERAND | {")"}
        return True

    def _open_brackets(
        self, kind: FrameKind, opener: Token, end: str, *, first: frozenset[str] = OPERAND, name: str = ""
    ) -> bool:
        """Open a list, map or struct. An element, the end, or a comma and the end may follow."""
        self._open(kind, opener, name=name)
        frame, cursor = self.frames[-1], self.cursor
        if cursor.token.kind == ",":
            cursor.take()
            self._match(end)
        elif cursor.token.kind == end:
            cursor.take()
        else:
            return self._element(frame, first | {end, ","})
        return self._end_brackets(frame)

    def _element(self, frame: Frame, expected: frozenset[str]) -> bool:
        """Start an element of a list, a key, or a field with its colon, with an optional question mark."""
        cursor = self.cursor
        is_field = frame.kind is FrameKind.FIELD
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
            cursor.stop(lexer.no_match(cursor.token, cursor.after(), expected))
        field = cursor.take()
        if field.kind == lexer.ESCAPED:
            cursor.blame(field.at, "unsupported syntax: '`'")
        frame.names.append(field.text)
        self._match(":")
        return True

    # --- what ends: each is called with a token that cannot go on the expression of the frame -------------------------

    def _match(self, expected: str) -> Token:
        """Take the `expected` token, which ends the innermost frame; stop if there is another one."""
        cursor = self.cursor
        if cursor.token.kind != expected:
            after = OPERAND if expected == ":" else AFTER_OPERAND | ends(self.frames[:-1])
            cursor.stop(lexer.no_match(cursor.token, cursor.after(), frozenset((expected,)), after=after))
        return cursor.take()

    def _close(self, node: Node, depth: int) -> bool:
        """Close the innermost frame; its node becomes an operand of the enclosing frame."""
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
        """Start the second branch. It is one level deeper in expressions, but not in other rules, as in the grammar."""
        self._match(":")
        frame.add(frame.finish())
        frame.kind = FrameKind.ELSE
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
        if frame.kind is FrameKind.MEMBER:
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
        frame.kind = FrameKind.VALUE
        return True

    def _end_element(self, frame: Frame) -> bool:
        """End an element of a list, or the value of an entry or a field."""
        frame.add(frame.finish())
        cursor = self.cursor
        end, first = (
            ("]" if frame.kind is FrameKind.LIST else "}"),
            (FIELD if frame.kind is FrameKind.FIELD else OPERAND),
        )
        if cursor.token.kind not in {end, ","}:
            cursor.stop(lexer.no_match(cursor.token, cursor.after(), frozenset((end, ","))))
        if cursor.token.kind == "," and (cursor.after().kind in first or cursor.after().kind == "?"):
            cursor.take()
            if frame.kind is FrameKind.VALUE:
                frame.kind = FrameKind.KEY
            return self._element(frame, first)
        if cursor.token.kind == ",":
            cursor.take()
        self._match(end)
        return self._end_brackets(frame)

    def _end_brackets(self, frame: Frame) -> bool:
        at, items = frame.opener.at, tuple(frame.items)
        node: Node
        if frame.kind is FrameKind.LIST:
            node = ListExpr(items, frozenset(frame.optional), at)
        elif frame.kind is FrameKind.FIELD:
            node = StructExpr(frame.name, tuple(zip(frame.names, items)), at)
        else:
            optional = frozenset(position // 2 for position in frame.optional)
            node = MapExpr(tuple(zip(items[::2], items[1::2])), optional, at)
        return self._close(node, frame.depth)

    # --- the expression ----------------------------------------------------------------------------------------------

    def run(self) -> Node:
        try:
            root, depth = self._expression()
        except Stop:
            raise self.cursor.refusal() from None
        if depth > MOST_NESTED:
            raise _nowhere("max recursion depth exceeded")
        if self.cursor.issues:
            raise self.cursor.refusal()
        return root

    def _expression(self) -> Operand:
        """Parse operands and their continuations in turn; each step returns whether an operand must come next."""
        cursor = self.cursor
        wants_operand = True
        while True:
            frame, token = self.frames[-1], cursor.token
            if wants_operand:
                wants_operand = self._operand(frame)
            elif token.kind == ".":
                wants_operand = self._select(frame)
            elif token.kind == "[":
                wants_operand = self._open_index()
            elif token.kind in OPERATORS:
                frame.operator(cursor.take())
                wants_operand = True
            elif token.kind == "?" and frame.kind is not FrameKind.THEN:
                wants_operand = self._open_branches(frame)
            elif frame.kind is FrameKind.TOP:
                if token.kind != lexer.END:
                    cursor.stop(lexer.no_match(token, cursor.after(), frozenset((lexer.END,))))
                return frame.finish()
            else:
                wants_operand = self._ENDS[frame.kind](self, frame)

    # --- operands ---------------------------------------------------------------------------------------------------

    def _operand(self, frame: Frame) -> bool:
        if max(frame.inner()) > MOST_NESTED:
            raise _nowhere(f"expression recursion limit exceeded: {MOST_NESTED}")
        cursor = self.cursor
        expected, self.expected = self.expected, OPERAND
        before = self._prefixes(frame)
        token = cursor.token
        if token.kind not in OPERAND or token.kind == "!" or (token.kind == "-" and before and before.kind == "-"):
            cursor.stop(lexer.no_operand((before, token, cursor.after()), cursor.source, expected))
        cursor.take()
        match token.kind:
            case "-":
                if cursor.token.kind not in _NUMBERS:
                    cursor.stop(lexer.no_way(token, cursor.token, cursor.source))
                frame.operands.append((self._literal(cursor.take(), sign=token), 0))
            case "(":
                return self._open(FrameKind.GROUP, token)
            case "[":
                return self._open_brackets(FrameKind.LIST, token, "]")
            case "{":
                return self._open_brackets(FrameKind.KEY, token, "}")
            case "." | lexer.IDENTIFIER:
                return self._name(frame, token)
            case _:
                frame.operands.append((self._literal(token), 0))
        return False

    def _prefixes(self, frame: Frame) -> Token | None:
        """Take the `!` or `-` before an operand, any number of one of them. Return the last one.

        Return None for a minus that is the sign of a number.
        """
        cursor = self.cursor
        first = last = cursor.token
        if first.kind not in {"!", "-"}:
            return None
        if first.kind == "-" and cursor.after().kind in _NUMBERS:
            return None
        count = 0
        while cursor.token.kind == first.kind:
            last = cursor.take()
            count += 1
        frame.prefix(first.kind + "_", count, first.at)
        return last

    def _literal(self, token: Token, *, sign: Token | None = None) -> Node:
        at = token.at if sign is None else sign.at
        try:
            return Literal(literals.value(token.kind, token.text, is_negative=sign is not None), at)
        except ValueError as wrong:
            return self.cursor.blame(at, str(wrong))

    def _name(self, frame: Frame, first: Token) -> bool:
        cursor = self.cursor
        token, dot = first, ""
        if first.kind == ".":
            dot = "."
            if cursor.token.kind != lexer.IDENTIFIER:
                cursor.stop(lexer.no_way(first, cursor.token, cursor.source))
            token = cursor.take()
        if (rest := self._rest_of_type()) is not None:
            return self._open_brackets(FrameKind.FIELD, cursor.take(), "}", first=FIELD, name=dot + token.text + rest)
        is_call = cursor.token.kind == "("
        if _is_reserved(token.text):
            error = cursor.blame(first.at, f"reserved identifier: {token.text}")
            if not is_call:
                frame.operands.append((error, 0))
        elif not is_call:
            frame.operands.append((Ident(dot + token.text, token.at), 0))
        return is_call and self._open_call(dot + token.text)

    def _rest_of_type(self) -> str | None:
        """Take and return `.b.C` before a brace; None if there is no brace."""
        cursor = self.cursor
        count = 0
        while cursor.after(count).kind == "." and cursor.after(count + 1).kind == lexer.IDENTIFIER:
            count += 2
        if cursor.after(count).kind != "{":
            return None
        return "".join(cursor.take().text for _ in range(count))

    def _select(self, frame: Frame) -> bool:
        cursor = self.cursor
        dot = cursor.take()
        optional = cursor.token.kind == "?"
        if optional:
            cursor.take()
            if cursor.token.kind not in FIELD:
                cursor.issues.append(lexer.no_match(cursor.token, cursor.after(), FIELD))
                cursor.stop(Issue(cursor.token.at, "unsupported ident kind"))
        elif cursor.token.kind not in FIELD:
            cursor.stop(lexer.no_way(dot, cursor.token, cursor.source))
        field = cursor.take()
        if not optional and field.kind == lexer.IDENTIFIER and cursor.token.kind == "(":
            return self._open_call(field.text, is_member=True)
        if field.kind == lexer.ESCAPED:
            cursor.blame(field.at, "unsupported syntax: '`'")
        operand, depth = frame.operands.pop()
        frame.operands.append((Select(operand, field.text, optional=optional, at=dot.at), depth + 1))
        return False

    _ENDS: ClassVar[dict[FrameKind, Callable[[_Parser, Frame], bool]]] = {
        FrameKind.GROUP: _end_group,
        FrameKind.CALL: _end_argument,
        FrameKind.MEMBER: _end_argument,
        FrameKind.INDEX: _end_index,
        FrameKind.LIST: _end_element,
        FrameKind.KEY: _end_key,
        FrameKind.VALUE: _end_element,
        FrameKind.FIELD: _end_element,
        FrameKind.THEN: _end_then,
        FrameKind.ELSE: _end_else,
    }
