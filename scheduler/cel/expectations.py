"""What could have stood where something else stands: the words of ANTLR for the first syntax error.

ANTLR tries to go on after an error: it leaves a token out if the next one fits, or acts as if a missing one were
there. Which of these it would do decides the words; what it then finds further on is not told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from scheduler.cel.lexer import BYTES, END, ESCAPED, FLOAT, IDENTIFIER, INT, STRING, UINT, Token
from scheduler.cel.report import Issue

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
