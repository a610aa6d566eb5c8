"""Text to tokens, and the tokens that an error message expects.

Text to tokens, as the grammar of cel-go v0.26 has them.

What is not a token is told and passed over, as ANTLR's lexers do, so that the parser can go on to what else is wrong.
One pass, in time linear in the text.

What could have stood where something else stands: the words of ANTLR for the first syntax error.

ANTLR tries to go on after an error: it leaves a token out if the next one fits, or acts as if a missing one were
there. Which of these it would do decides the words; what it then finds further on is not told.
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


# In the order of the grammar, which is that of ANTLR's lists. Marks and words of the grammar are quoted.
_MARKS: Final = ("[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":", "true", "false", "null")
_KINDS: Final = (*_MARKS, FLOAT, INT, UINT, STRING, BYTES, IDENTIFIER, ESCAPED)
OPERAND: Final = frozenset(_KINDS) - {"]", "}", ")", ",", "?", ":", ESCAPED}
"""How an expression can begin."""
FIELD: Final = frozenset({IDENTIFIER, ESCAPED})
AFTER_OPERAND: Final = frozenset(
    {"==", "!=", "in", "<", "<=", ">=", ">", "&&", "||", "[", ".", "-", "?", "+", "*", "/", "%"}
)
"""How an expression can go on; what ends it depends on what it stands in."""
_RESERVED: Final = re.compile(r"no viable alternative at input '.(true|false|null)'")


def no_operand(before: tuple[Token | None, Token, Token], source: str, expected: frozenset[str]) -> Issue:
    """No expression begins here. Given the `!` or `-` before, if any, the token that is wrong, and the next."""
    last, wrong, following = before
    if last is not None and last.kind == "-":
        return no_way(last, wrong, source)
    if last is not None:
        return _unfit(wrong, OPERAND, is_extra=True)
    return _unfit(wrong, expected, is_extra=following.kind in expected)


def no_way(first: Token, wrong: Token, source: str) -> Issue:
    """These two do not go together."""
    text = f"no viable alternative at input '{_escaped(source[first.at : wrong.end])}'"
    return Issue(wrong.at, "Syntax error: " + _RESERVED.sub(r"mismatched input '\1' expecting IDENTIFIER", text))


def no_match(wrong: Token, following: Token, expected: frozenset[str], *, after: Iterable[str] | None = None) -> Issue:
    """Another token had to stand here. `after` is what may follow it; None if ANTLR would not act as if it stood."""
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
