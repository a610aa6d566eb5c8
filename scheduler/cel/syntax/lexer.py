"""Tokens of a text by the grammar of cel-go v0.26, in one pass, in time linear in the text."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from scheduler.cel.errors import CompileError, Issue, report

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


def tokens(source: str) -> list[Token]:
    """Return all tokens, the last of which is `END`; raise CompileError for a text that is no token."""
    found: list[Token] = []
    at = 0
    while at < len(source):
        match = _TOKEN.match(source, at)
        if match is None:
            raise CompileError(report(source, [Issue(at, f"Syntax error: no token begins with {source[at]!r}")]))
        kind, text = match.lastgroup, match.group()
        if kind != "hidden":
            is_named = kind is not None and kind != "mark" and text not in _WORDS
            found.append(Token(kind if is_named and kind else text, text, at))
        at = match.end()
    found.append(Token(END, END, len(source)))
    return found
