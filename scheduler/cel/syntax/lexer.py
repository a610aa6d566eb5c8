"""Tokens of a text by the grammar of cel-go v0.26, and the texts of syntax errors.

A text that is not a token is reported and skipped, as in ANTLR's lexers, so that the parser can find further errors.
The lexer makes one pass, in time linear in the text.

The texts of the first syntax error are ANTLR's. ANTLR tries to continue after an error: it skips a token if the next
one fits, or inserts a missing one. This choice determines the text; further errors that ANTLR finds are not reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from scheduler.cel.errors import Issue

END: Final = "<EOF>"
IDENTIFIER: Final = "IDENTIFIER"
ESCAPED: Final = "ESC_IDENTIFIER"
FLOAT: Final = "NUM_FLOAT"
INT: Final = "NUM_INT"
UINT: Final = "NUM_UINT"
STRING: Final = "STRING"
BYTES: Final = "BYTES"
_WORDS: Final = frozenset({"in", "true", "false", "null"})


class Token(NamedTuple):
    """A token. `kind` is the text itself for marks and the four words of the grammar, else one of the names above."""

    kind: str
    text: str
    at: int

    @property
    def end(self) -> int:
        """The offset after the token."""
        return self.at if self.kind == END else self.at + len(self.text)


_ESCAPE = r"\\(?:[abfnrtv\"'\\?`]|[0-3][0-7]{2}|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
# Triple quotes come first: the longer alternative must win, and `""` is a prefix of `"""`.
_QUOTED = rf"""
    \"\"\"(?:{_ESCAPE}|[^\\])*?\"\"\"
  | '''(?:{_ESCAPE}|[^\\])*?'''
  | \"(?:{_ESCAPE}|[^\\\"\n\r])*+\"
  | '(?:{_ESCAPE}|[^\\'\n\r])*+'
  | [rR](?:\"\"\"[\s\S]*?\"\"\"|'''[\s\S]*?'''|\"[^\"\n\r]*+\"|'[^'\n\r]*+')
"""
_TOKEN: Final = re.compile(
    rf"""
    (?P<hidden>[\t\ \r\n\f]++|//[^\n]*+)
  | (?P<{BYTES}>[bB](?:{_QUOTED}))
  | (?P<{STRING}>{_QUOTED})
  | (?P<{IDENTIFIER}>[A-Za-z_][A-Za-z0-9_]*+)
  | (?P<{FLOAT}>[0-9]++(?:\.[0-9]++(?:[eE][+-]?[0-9]++)?|[eE][+-]?[0-9]++)|\.[0-9]++(?:[eE][+-]?[0-9]++)?)
  | (?P<{UINT}>(?:0x[0-9a-fA-F]++|[0-9]++)[uU])
  | (?P<{INT}>0x[0-9a-fA-F]++|[0-9]++)
  | (?P<{ESCAPED}>`[A-Za-z0-9_.\-/\ ]++`)
  | (?P<mark>==|!=|<=|>=|&&|\|\||[<>\[\]{{}}().,\-!?:+*/%])
    """,
    re.VERBOSE,
)
# The longest prefix of a token at a place where there is no token; the message also contains the next character.
_PARTIAL: Final = re.compile(
    rf"""
    \"(?:{_ESCAPE}|[^\\\"\n\r])*+(?:\\(?:[xX][0-9a-fA-F]?|u[0-9a-fA-F]{{0,3}}|U[0-9a-fA-F]{{0,7}}|[0-3][0-7]?)?)?
  | '(?:{_ESCAPE}|[^\\'\n\r])*+(?:\\(?:[xX][0-9a-fA-F]?|u[0-9a-fA-F]{{0,3}}|U[0-9a-fA-F]{{0,7}}|[0-3][0-7]?)?)?
  | `[A-Za-z0-9_.\-/\ ]*+
  | [=&|]
    """,
    re.VERBOSE,
)


def tokens(source: str) -> tuple[list[Token], list[Issue]]:
    """Return all tokens, the last of which is `END`, and the errors."""
    found: list[Token] = []
    issues: list[Issue] = []
    at = 0
    while at < len(source):
        match = _TOKEN.match(source, at)
        if match is None:
            partial = _PARTIAL.match(source, at)
            after = (partial.end() if partial else at) + 1
            issues.append(Issue(at, f"Syntax error: token recognition error at: '{source[at:after]}'"))
            at = after
            continue
        kind, text = match.lastgroup, match.group()
        if kind != "hidden":
            is_named = kind is not None and kind != "mark" and text not in _WORDS
            found.append(Token(kind if is_named and kind else text, text, at))
        at = match.end()
    found.append(Token(END, END, len(source)))
    return found, issues


# The order is that of the grammar and of ANTLR's lists. Marks and words of the grammar are quoted.
_MARKS: Final = ("[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":", "true", "false", "null")
_KINDS: Final = (*_MARKS, FLOAT, INT, UINT, STRING, BYTES, IDENTIFIER, ESCAPED)
OPERAND: Final = frozenset(_KINDS) - {"]", "}", ")", ",", "?", ":", ESCAPED}
"""The tokens that can start an expression."""
FIELD: Final = frozenset({IDENTIFIER, ESCAPED})
AFTER_OPERAND: Final = frozenset(
    {"==", "!=", "in", "<", "<=", ">=", ">", "&&", "||", "[", ".", "-", "?", "+", "*", "/", "%"}
)
"""The tokens that can continue an expression; the tokens that end it depend on the frame."""
_RESERVED: Final = re.compile(r"no viable alternative at input '.(true|false|null)'")


def no_operand(before: tuple[Token | None, Token, Token], source: str, expected: frozenset[str]) -> Issue:
    """Return the error for a missing expression.

    `before` has the preceding `!` or `-`, if any, the wrong token, and the next one.
    """
    last, wrong, following = before
    if last is not None and last.kind == "-":
        return no_way(last, wrong, source)
    if last is not None:
        return _unfit(wrong, OPERAND, is_extra=True)
    return _unfit(wrong, expected, is_extra=following.kind in expected)


def no_way(first: Token, wrong: Token, source: str) -> Issue:
    """Return the error for two tokens that do not fit together."""
    text = f"no viable alternative at input '{_escaped(source[first.at : wrong.end])}'"
    return Issue(wrong.at, "Syntax error: " + _RESERVED.sub(r"mismatched input '\1' expecting IDENTIFIER", text))


def no_match(wrong: Token, following: Token, expected: frozenset[str], *, after: Iterable[str] | None = None) -> Issue:
    """Return the error for a wrong token.

    `after` can follow the expected token; None if ANTLR would not insert that token.
    """
    if following.kind in expected:
        return _unfit(wrong, expected, is_extra=True)
    if after is not None and wrong.kind in after:
        return Issue(wrong.at, f"Syntax error: missing {_listed(expected)} at '{_escaped(wrong.text)}'")
    return _unfit(wrong, expected, is_extra=False)


def _unfit(wrong: Token, expected: frozenset[str], *, is_extra: bool) -> Issue:
    how = "extraneous" if is_extra else "mismatched"
    return Issue(wrong.at, f"Syntax error: {how} input '{_escaped(wrong.text)}' expecting {_listed(expected)}")


def _escaped(text: str) -> str:
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


def _listed(expected: frozenset[str]) -> str:
    if expected == {END}:
        return END
    names = [f"'{each}'" if each in _MARKS else each for each in _KINDS if each in expected]
    return names[0] if len(names) == 1 else f"{{{', '.join(names)}}}"
