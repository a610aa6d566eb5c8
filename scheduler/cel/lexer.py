"""Text to tokens, as the grammar of cel-go v0.26 has them.

What is not a token is told and passed over, as ANTLR's lexers do, so that the parser can go on to what else is wrong.
One pass, in time linear in the text.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from scheduler.cel.report import Issue

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
    """`kind` is the text itself for marks and the four words of the grammar, one of the names above for the rest."""

    kind: str
    text: str
    at: int

    @property
    def end(self) -> int:
        """Where the next one may begin."""
        return self.at if self.kind == END else self.at + len(self.text)


_ESCAPE = r"\\(?:[abfnrtv\"'\\?`]|[0-3][0-7]{2}|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
# Quotes of three come first: of two that begin alike the longer one is meant, and `""` begins like `"""`.
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
# How far something may be read before it turns out not to be a token; the character after it is named as well.
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
    """All of them, the last one is `END`; and what was none."""
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
