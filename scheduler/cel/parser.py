"""Text to tree: the grammar of cel-go v0.26, with the optional syntax and without backticks, as Kubernetes 1.36 has it.

Nothing here calls itself: what is open (a bracket, an argument list, a branch of `? :`) is a frame on a list, and
inside one frame operators wait on a stack. So nesting costs no Python stack, and what is nested deeper than cel-go
allows is refused in its words. The tree can still be some hundred nodes high.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NoReturn

from scheduler.cel import expectations, literals, macros
from scheduler.cel.ast import Call, Ident, ListExpr, Literal, MapExpr, Node, Select, StructExpr
from scheduler.cel.expectations import AFTER_OPERAND, FIELD, OPERAND
from scheduler.cel.frames import OPERATORS, Frame, Kind, Levels, Operand, ends
from scheduler.cel.lexer import BYTES, END, ESCAPED, FLOAT, IDENTIFIER, INT, STRING, UINT, Token, tokens
from scheduler.cel.report import Issue, report
from scheduler.cel.values import CompileError

MOST_CODE_POINTS: Final = 100_000
MOST_NESTED: Final = 250
_RESERVED: Final = frozenset(
    (
        "as break const continue else false for function if import in let loop package namespace null return true var"
        " void while"
    ).split()
)
_WORDS: Final = {"true": True, "false": False, "null": None}
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def parse(source: str) -> Node:
    """The tree of an expression, macros expanded. Raises `CompileError` with cel-go's text, up to the first syntax error."""
    if len(source) > MOST_CODE_POINTS:
        raise _nowhere(f"expression code point size exceeds limit: size: {len(source)}, limit {MOST_CODE_POINTS}")
    return _Parser(_SURROGATES.sub("\ufffd", source)).run()


def _nowhere(text: str) -> CompileError:
    return CompileError(f"ERROR: <input>:-1:0: {text}")


class _Stop(Exception):
    """A syntax error: nothing after it is looked at."""


class _Parser:
    def __init__(self, source: str) -> None:
        self._source = source
        self._tokens, self._issues = tokens(source)
        self._position = 0
        self._frames = [Frame(Kind.TOP, Token(END, END, 0), Levels())]
        self._expected = OPERAND
        """What the operand that comes now may begin with, or what may stand instead of it."""

    def run(self) -> Node:
        try:
            root, depth = self._expression()
        except _Stop:
            raise self._refusal() from None
        if depth > MOST_NESTED:
            raise _nowhere("max recursion depth exceeded")
        if self._issues:
            raise self._refusal()
        return root

    def _refusal(self) -> CompileError:
        if not self._source:
            return CompileError(f"ERROR: <input>:1:0: {self._issues[0].text}")
        return CompileError(report(self._source, self._issues))

    # --- tokens -----------------------------------------------------------------------------------------------------

    @property
    def _token(self) -> Token:
        return self._tokens[self._position]

    def _after(self, count: int = 1) -> Token:
        return self._tokens[min(self._position + count, len(self._tokens) - 1)]

    def _take(self) -> Token:
        token = self._token
        self._position += token.kind != END
        return token

    def _match(self, expected: str, after: frozenset[str]) -> Token:
        """That token has to stand here; `after` is what may follow it."""
        if self._token.kind != expected:
            self._stop(expectations.no_match(self._token, self._after(), frozenset((expected,)), after=after))
        return self._take()

    def _stop(self, issue: Issue) -> NoReturn:
        self._issues.append(issue)
        raise _Stop

    def _blame(self, at: int, text: str) -> Node:
        """Something is wrong with what can be read. The node takes its place."""
        self._issues.append(Issue(at, text))
        return Literal(None, at)

    # --- the loop ---------------------------------------------------------------------------------------------------

    def _expression(self) -> Operand:
        wants_operand = True
        while True:
            frame, token = self._frames[-1], self._token
            if wants_operand:
                wants_operand = self._operand(frame)
            elif token.kind == ".":
                wants_operand = self._select(frame)
            elif token.kind == "[":
                wants_operand = self._open_index()
            elif token.kind in OPERATORS:
                frame.operator(self._take())
                wants_operand = True
            elif token.kind == "?" and frame.kind is not Kind.THEN:
                wants_operand = self._open_branches(frame)
            elif frame.kind is Kind.TOP:
                if token.kind != END:
                    self._stop(expectations.no_match(token, self._after(), frozenset((END,))))
                return frame.finish()
            else:
                wants_operand = _CLOSE[frame.kind](self, frame)

    def _operand(self, frame: Frame) -> bool:
        """A literal, a name, or what opens a bracket; True if the inside of that comes now."""
        if max(frame.inner()) > MOST_NESTED:
            raise _nowhere(f"expression recursion limit exceeded: {MOST_NESTED}")
        expected, self._expected = self._expected, OPERAND
        before = self._prefixes(frame)
        token = self._take()
        match token.kind:
            case "-" if self._token.kind in {INT, FLOAT}:
                frame.operands.append((self._literal(self._take(), sign=token), 0))
            case "-":
                self._stop(expectations.no_way(token, self._token, self._source))
            case "(":
                return self._open(Kind.GROUP, token)
            case "[":
                return self._open_list(token)
            case "{":
                return self._open_map(token)
            case "." | "IDENTIFIER":
                return self._name(frame, token)
            case kind if kind in OPERAND:
                frame.operands.append((self._literal(token), 0))
            case _:
                following = self._token
                self._stop(expectations.no_operand((before, token, following), self._source, expected))
        return False

    def _prefixes(self, frame: Frame) -> Token | None:
        """`!` or `-` in front of an operand; a single minus before a number is left to that. The last of them."""
        first = self._token
        if first.kind not in {"!", "-"}:
            return None
        count = 0
        while self._after(count).kind == first.kind:
            count += 1
        if first.kind == "-" and count == 1 and self._after().kind in {INT, FLOAT}:
            return None
        frame.prefix(first.kind + "_", count, first.at)
        self._position += count
        return self._tokens[self._position - 1]

    def _literal(self, token: Token, *, sign: Token | None = None) -> Node:
        at = token.at if sign is None else sign.at
        try:
            match token.kind:
                case "NUM_INT":
                    return Literal(literals.to_int(token.text, is_negative=sign is not None), at)
                case "NUM_FLOAT":
                    return Literal(literals.to_double(token.text, is_negative=sign is not None), at)
                case "NUM_UINT":
                    return Literal(literals.to_uint(token.text), at)
                case "STRING":
                    return Literal(literals.to_string(token.text), at)
                case "BYTES":
                    return Literal(literals.to_bytes(token.text), at)
                case _:
                    return Literal(_WORDS[token.kind], at)
        except ValueError as wrong:
            return self._blame(at, str(wrong))

    # --- names and what follows a dot -------------------------------------------------------------------------------

    def _name(self, frame: Frame, token: Token) -> bool:
        dot, at = "", token.at
        if token.kind == ".":
            dot = "."
            if self._token.kind != IDENTIFIER:
                self._stop(expectations.no_way(token, self._token, self._source))
            token = self._take()
        if (type_name := self._type_name(token)) is not None:
            return self._open_struct(dot + type_name)
        is_reserved = token.text in _RESERVED
        if self._token.kind == "(":
            if is_reserved:
                self._blame(at, f"reserved identifier: {token.text}")
            return self._open_call(dot + token.text)
        name = (
            self._blame(at, f"reserved identifier: {token.text}") if is_reserved else Ident(dot + token.text, token.at)
        )
        frame.operands.append((name, 0))
        return False

    def _type_name(self, first: Token) -> str | None:
        """`a.b.C` if a brace follows; then all of it is taken."""
        count = 0
        while self._after(count).kind == "." and self._after(count + 1).kind == IDENTIFIER:
            count += 2
        if self._after(count).kind != "{":
            return None
        parts = [first.text, *(self._take().text for _ in range(count))]
        return "".join(parts)

    def _select(self, frame: Frame) -> bool:
        dot = self._take()
        optional = self._token.kind == "?"
        if optional:
            self._take()
            if self._token.kind not in FIELD:
                issue = expectations.no_match(self._token, self._after(), FIELD)
                self._issues.append(issue)
                self._stop(Issue(issue.at, "unsupported ident kind"))
        elif self._token.kind not in FIELD:
            self._stop(expectations.no_way(dot, self._token, self._source))
        field = self._take()
        if not optional and field.kind == IDENTIFIER and self._token.kind == "(":
            return self._open_call(field.text, is_member=True)
        operand, depth = frame.operands.pop()
        if field.kind == ESCAPED:
            self._blame(field.at, "unsupported syntax: '`'")
        frame.operands.append((Select(operand, field.text, optional=optional, at=dot.at), depth + 1))
        return False

    # --- opening ----------------------------------------------------------------------------------------------------
