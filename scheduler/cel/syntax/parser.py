"""Parser: tokens to a tree, by the grammar of cel-go v0.26.

As in Kubernetes 1.36, the optional syntax is enabled, and backticks are not.

Each rule of the grammar is a method, and binary operators are parsed by their strength. For `a + b * c == d`, the
method for operators of any strength reads `a`, then finds `+`. It reads the right side as operators stronger than `+`,
which is `b * c`, and then finds `==`, whose left side is all that was read before.

A syntax error ends the parsing. Other errors, such as a reserved name, are collected, so that all are reported.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn, TypeAlias

from scheduler.cel.errors import CompileError, Issue, report
from scheduler.cel.syntax import lexer, literals, macros
from scheduler.cel.syntax.ast import Call, Ident, ListExpr, Literal, MapExpr, Node, Select, StructExpr, stack_for
from scheduler.cel.syntax.lexer import Token, tokens

MOST_CODE_POINTS: Final = 100_000
MOST_NESTED: Final = 250
"""How many expressions may be in each other, and how many operators, selections, indexes and member calls."""
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
_WEAKEST: Final = 1
_AND: Final = 2
_is_reserved: Final = re.compile(
    "as|break|const|continue|else|false|for|function|if|import|in|let|loop|namespace|null|package|return|true|var|void"
    "|while"
).fullmatch
_NUMBERS: Final = frozenset({lexer.INT, lexer.FLOAT})
_LITERALS: Final = _NUMBERS | {lexer.UINT, lexer.STRING, lexer.BYTES, "true", "false", "null"}
_FIELDS: Final = frozenset({lexer.IDENTIFIER, lexer.ESCAPED})
_SURROGATES: Final = re.compile("[\ud800-\udfff]")

_Operand: TypeAlias = tuple[Node, int]
"""A node, and the maximum nesting of operators, selections, indexes and member calls in it."""


def parse(source: str) -> Node:
    """Return the tree with expanded macros; raise CompileError with all errors up to the first syntax error."""
    if len(source) > MOST_CODE_POINTS:
        raise _nowhere(f"expression code point size exceeds limit: size: {len(source)}, limit {MOST_CODE_POINTS}")
    with stack_for(2 * MOST_NESTED):
        return _Parser(_SURROGATES.sub("\ufffd", source)).run()


def _nowhere(text: str) -> CompileError:
    return CompileError(f"ERROR: <input>:-1:0: {text}")


class _Parser:
    """The position in the tokens of a source, and the errors that were found before it."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._tokens = tokens(source)
        self._position = 0
        self._issues: list[Issue] = []
        self._nested = 0

    def run(self) -> Node:
        root, depth = self._expression()
        if self._token.kind != lexer.END:
            self._stop("an operator or the end")
        if depth > MOST_NESTED:
            raise _nowhere("max recursion depth exceeded")
        if self._issues:
            raise CompileError(report(self._source, self._issues))
        return root

    # --- tokens and errors --------------------------------------------------------------------------------------------

    @property
    def _token(self) -> Token:
        return self._tokens[self._position]

    def _after(self, count: int = 1) -> Token:
        """Return the token `count` positions later; the last token is repeated."""
        return self._tokens[min(self._position + count, len(self._tokens) - 1)]

    def _take(self) -> Token:
        token = self._token
        self._position += token.kind != lexer.END
        return token

    def _takes(self, kind: str) -> bool:
        """Take the token if it is of this kind."""
        return self._token.kind == kind and bool(self._take())

    def _match(self, kind: str) -> Token:
        if self._token.kind != kind:
            self._stop(f"'{kind}'")
        return self._take()

    def _stop(self, expected: str) -> NoReturn:
        """Raise CompileError for the current token."""
        found = "the end" if self._token.kind == lexer.END else f"'{self._token.text}'"
        self._issues.append(Issue(self._token.at, f"Syntax error: found {found}, expected {expected}"))
        raise CompileError(report(self._source, self._issues))

    def _blame(self, at: int, text: str) -> Node:
        """Record an error after which parsing can continue, and return a node for the invalid part."""
        self._issues.append(Issue(at, text))
        return Literal(None, at)

    # --- operators ----------------------------------------------------------------------------------------------------

    def _expression(self) -> _Operand:
        """Parse `condition ? then : otherwise`, or the condition alone."""
        self._nested += 1
        if self._nested > MOST_NESTED:
            raise _nowhere(f"expression recursion limit exceeded: {MOST_NESTED}")
        node, depth = self._binary(_WEAKEST)
        if self._token.kind == "?":
            at = self._take().at
            then, then_depth = self._binary(_WEAKEST)
            self._match(":")
            otherwise, depth_otherwise = self._expression()
            node, depth = Call("_?_:_", (node, then, otherwise), at=at), max(depth, then_depth, depth_otherwise) + 1
        self._nested -= 1
        return node, depth

    def _binary(self, weakest: int) -> _Operand:
        """Parse operands with operators of at least this strength. Equal ones apply from left to right."""
        left, depth = self._unary()
        while (operator := OPERATORS.get(self._token.kind)) is not None and operator[1] >= weakest:
            function, strength = operator
            if strength <= _AND:
                left, depth = self._logical(left, depth)
                continue
            at = self._take().at
            right, right_depth = self._binary(strength + 1)
            left, depth = Call(function, (left, right), at=at), max(depth, right_depth) + 1
        return left, depth

    def _logical(self, first: Node, depth: int) -> _Operand:
        """Parse a chain of the same `&&` or `||` after its first term. Its length does not count as nesting."""
        kind = self._token.kind
        function, strength = OPERATORS[kind]
        terms, places = [first], list[int]()
        while self._token.kind == kind:
            places.append(self._take().at)
            term, term_depth = self._binary(strength + 1)
            terms.append(term)
            depth = max(depth, term_depth)
        return _balanced(function, places, terms), depth

    def _unary(self) -> _Operand:
        """Parse any number of `!`, or of `-`, before an operand; two of them cancel each other."""
        first = self._token
        is_sign = first.kind == "-" and self._after().kind in _NUMBERS
        if first.kind not in {"!", "-"} or is_sign:
            return self._member()
        count = 0
        while self._takes(first.kind):
            count += 1
        node, depth = self._member()
        return (Call(f"{first.kind}_", (node,), at=first.at) if count % 2 else node), depth

    # --- operands -----------------------------------------------------------------------------------------------------

    def _member(self) -> _Operand:
        """Parse an operand and the selections, calls and indexes after it."""
        node, depth = self._primary()
        while True:
            match self._token.kind:
                case ".":
                    node, depth = self._selected(node, depth)
                case "[":
                    at = self._take().at
                    function = "_[?_]" if self._takes("?") else "_[_]"
                    index, index_depth = self._expression()
                    self._match("]")
                    node, depth = Call(function, (node, index), at=at), max(depth, index_depth) + 1
                case _:
                    return node, depth

    def _selected(self, operand: Node, depth: int) -> _Operand:
        at = self._take().at
        is_optional = self._takes("?")
        if not is_optional and self._token.kind == lexer.IDENTIFIER and self._after().kind == "(":
            call, args_depth = self._call(self._take().text, operand)
            return call, max(depth, args_depth) + 1
        return Select(operand, self._field(), optional=is_optional, at=at), depth + 1

    def _field(self) -> str:
        if self._token.kind not in _FIELDS:
            self._stop("a field name")
        field = self._take()
        if field.kind == lexer.ESCAPED:
            self._blame(field.at, "unsupported syntax: '`'")
        return field.text

    def _primary(self) -> _Operand:
        token = self._token
        if token.kind in _LITERALS or (token.kind == "-" and self._after().kind in _NUMBERS):
            return self._literal(), 0
        match token.kind:
            case "(":
                self._take()
                operand = self._expression()
                self._match(")")
            case "[":
                operand = self._list()
            case "{":
                operand = self._map()
            case "." | lexer.IDENTIFIER:
                operand = self._name()
            case _:
                self._stop("an expression")
        return operand

    def _literal(self) -> Node:
        sign, token = self._token.kind == "-", self._take()
        at = token.at
        if sign:
            token = self._take()
        try:
            return Literal(literals.value(token.kind, token.text, is_negative=sign), at)
        except ValueError as wrong:
            return self._blame(at, str(wrong))

    def _name(self) -> _Operand:
        """Parse a variable, a call of a function, or a struct."""
        first = self._token
        dot = "." if self._takes(".") else ""
        if self._token.kind != lexer.IDENTIFIER:
            self._stop("a name")
        token = self._take()
        name = dot + token.text
        if (rest := self._rest_of_type()) is not None:
            return self._struct(name + rest)
        error = self._blame(first.at, f"reserved identifier: {token.text}") if _is_reserved(token.text) else None
        if self._token.kind == "(":
            return self._call(name, None)
        return error or Ident(name, token.at), 0

    def _rest_of_type(self) -> str | None:
        """Take and return `.b.C` before a brace; None if there is no brace."""
        count = 0
        while self._after(count).kind == "." and self._after(count + 1).kind == lexer.IDENTIFIER:
            count += 2
        if self._after(count).kind != "{":
            return None
        return "".join(self._take().text for _ in range(count))

    # --- brackets -----------------------------------------------------------------------------------------------------

    def _call(self, name: str, target: Node | None) -> _Operand:
        at, args, depth = self._match("(").at, list[Node](), 0
        while args or self._token.kind != ")":
            node, node_depth = self._expression()
            args.append(node)
            depth = max(depth, node_depth)
            if not self._takes(","):
                break
        self._match(")")
        try:
            return macros.expand(name, target, tuple(args), at=at) or Call(name, tuple(args), target, at), depth
        except macros.Misused as wrong:
            return self._blame(wrong.at, str(wrong)), depth

    def _list(self) -> _Operand:
        at, elements, optional, depth = self._take().at, list[Node](), set[int](), 0
        while self._goes_on("]", is_first=not elements):
            if self._takes("?"):
                optional.add(len(elements))
            node, node_depth = self._expression()
            elements.append(node)
            depth = max(depth, node_depth)
        return ListExpr(tuple(elements), frozenset(optional), at), depth

    def _map(self) -> _Operand:
        at, entries, optional, depth = self._take().at, list[tuple[Node, Node]](), set[int](), 0
        while self._goes_on("}", is_first=not entries):
            if self._takes("?"):
                optional.add(len(entries))
            key, key_depth = self._expression()
            self._match(":")
            value, value_depth = self._expression()
            entries.append((key, value))
            depth = max(depth, key_depth, value_depth)
        return MapExpr(tuple(entries), frozenset(optional), at), depth

    def _struct(self, name: str) -> _Operand:
        at, entries, depth = self._take().at, list[tuple[str, Node]](), 0
        while self._goes_on("}", is_first=not entries):
            self._takes("?")
            field = self._field()
            self._match(":")
            value, value_depth = self._expression()
            entries.append((field, value))
            depth = max(depth, value_depth)
        return StructExpr(name, tuple(entries), at), depth

    def _goes_on(self, end: str, *, is_first: bool) -> bool:
        """Return whether an element follows; else take the end, before which a comma may be."""
        if self._takes(end):
            return False
        if is_first and self._token.kind != ",":
            return True
        if not self._takes(","):
            self._stop(f"',' or '{end}'")
        if self._takes(end):
            return False
        if is_first:
            self._stop(f"'{end}'")
        return True


def _balanced(function: str, places: list[int], terms: list[Node]) -> Node:
    """Return a chain of one operator as a balanced tree, split where cel-go splits it."""
    if not places:
        return terms[0]
    middle = len(places) // 2
    left = _balanced(function, places[:middle], terms[: middle + 1])
    right = _balanced(function, places[middle + 1 :], terms[middle + 1 :])
    return Call(function, (left, right), at=places[middle])
