"""Text to tree: the grammar of cel-go v0.26, with the optional syntax and without backticks, as Kubernetes 1.36 has it.

Nothing here calls itself: what is open (a bracket, an argument list, a branch of `? :`) is a frame on a list, and
inside one frame operators wait on a stack. So nesting costs no Python stack, and what is nested deeper than cel-go
allows is refused in its words. The tree can still be some hundred nodes high.
"""

from __future__ import annotations

import re
from typing import Final

from scheduler.cel import expectations, lexer, literals
from scheduler.cel.ast import Ident, Literal, Node, Select
from scheduler.cel.brackets import Brackets
from scheduler.cel.cursor import Cursor, Stop
from scheduler.cel.errors import CompileError
from scheduler.cel.expectations import FIELD, OPERAND
from scheduler.cel.frames import OPERATORS, Frame, Kind, Operand
from scheduler.cel.lexer import Token
from scheduler.cel.report import Issue

MOST_CODE_POINTS: Final = 100_000
MOST_NESTED: Final = 250
_RESERVED: Final = frozenset(
    {
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "namespace",
        "null",
        "package",
        "return",
        "true",
        "var",
        "void",
        "while",
    }
)
_NUMBERS: Final = frozenset({lexer.INT, lexer.FLOAT})
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def parse(source: str) -> Node:
    """The tree, macros expanded. Raises `CompileError` with cel-go's text, up to the first syntax error."""
    if len(source) > MOST_CODE_POINTS:
        raise _nowhere(f"expression code point size exceeds limit: size: {len(source)}, limit {MOST_CODE_POINTS}")
    return _Parser(Cursor(_SURROGATES.sub("\ufffd", source))).run()


def _nowhere(text: str) -> CompileError:
    return CompileError(f"ERROR: <input>:-1:0: {text}")


class _Parser(Brackets):
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
        """Operands and what comes after them in turn; each step says whether an operand comes next."""
        cursor = self.cursor
        wants_operand = True
        while True:
            frame, token = self.frames[-1], cursor.token
            if wants_operand:
                wants_operand = self._operand(frame)
            elif token.kind == ".":
                wants_operand = self._select(frame)
            elif token.kind == "[":
                wants_operand = self.open_index()
            elif token.kind in OPERATORS:
                frame.operator(cursor.take())
                wants_operand = True
            elif token.kind == "?" and frame.kind is not Kind.THEN:
                wants_operand = self.open_branches(frame)
            elif frame.kind is Kind.TOP:
                if token.kind != lexer.END:
                    cursor.stop(expectations.no_match(token, cursor.after(), frozenset((lexer.END,))))
                return frame.finish()
            else:
                wants_operand = self.end(frame)

    # --- operands ---------------------------------------------------------------------------------------------------

    def _operand(self, frame: Frame) -> bool:
        if max(frame.inner()) > MOST_NESTED:
            raise _nowhere(f"expression recursion limit exceeded: {MOST_NESTED}")
        cursor = self.cursor
        expected, self.expected = self.expected, OPERAND
        before = self._prefixes(frame)
        token = cursor.token
        if token.kind not in OPERAND or token.kind == "!" or (token.kind == "-" and before and before.kind == "-"):
            cursor.stop(expectations.no_operand((before, token, cursor.after()), cursor.source, expected))
        cursor.take()
        match token.kind:
            case "-":
                if cursor.token.kind not in _NUMBERS:
                    cursor.stop(expectations.no_way(token, cursor.token, cursor.source))
                frame.operands.append((self._literal(cursor.take(), sign=token), 0))
            case "(":
                return self.open_group(token)
            case "[":
                return self.open_list(token)
            case "{":
                return self.open_map(token)
            case "." | lexer.IDENTIFIER:
                return self._name(frame, token)
            case _:
                frame.operands.append((self._literal(token), 0))
        return False

    def _prefixes(self, frame: Frame) -> Token | None:
        """`!` or `-` before an operand, any number of one of them. The last; None for a minus that is a number's sign."""
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
                cursor.stop(expectations.no_way(first, cursor.token, cursor.source))
            token = cursor.take()
        if (rest := self._rest_of_type()) is not None:
            return self.open_struct(dot + token.text + rest)
        is_call = cursor.token.kind == "("
        if token.text in _RESERVED:
            error = cursor.blame(first.at, f"reserved identifier: {token.text}")
            if not is_call:
                frame.operands.append((error, 0))
        elif not is_call:
            frame.operands.append((Ident(dot + token.text, token.at), 0))
        return is_call and self.open_call(dot + token.text)

    def _rest_of_type(self) -> str | None:
        """`.b.C` before a brace, taken."""
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
                cursor.issues.append(expectations.no_match(cursor.token, cursor.after(), FIELD))
                cursor.stop(Issue(cursor.token.at, "unsupported ident kind"))
        elif cursor.token.kind not in FIELD:
            cursor.stop(expectations.no_way(dot, cursor.token, cursor.source))
        field = cursor.take()
        if not optional and field.kind == lexer.IDENTIFIER and cursor.token.kind == "(":
            return self.open_call(field.text, is_member=True)
        if field.kind == lexer.ESCAPED:
            cursor.blame(field.at, "unsupported syntax: '`'")
        operand, depth = frame.operands.pop()
        frame.operands.append((Select(operand, field.text, optional=optional, at=dot.at), depth + 1))
        return False
