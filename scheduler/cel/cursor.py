"""Where the parser is among the tokens, and what it has found to be wrong."""

from __future__ import annotations

from typing import NoReturn

from scheduler.cel.ast import Literal, Node
from scheduler.cel.errors import CompileError
from scheduler.cel.lexer import END, Token, tokens
from scheduler.cel.report import Issue, report


class Stop(Exception):
    """A syntax error: nothing after it is looked at."""


class Cursor:
    """One way through the tokens of a source. What the lexer could not read is among the issues from the start."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._tokens, self.issues = tokens(source)
        self._position = 0

    @property
    def token(self) -> Token:
        """The one that comes now; the last one comes for ever."""
        return self._tokens[self._position]

    def after(self, count: int = 1) -> Token:
        """The one that comes so many later."""
        return self._tokens[min(self._position + count, len(self._tokens) - 1)]

    def take(self) -> Token:
        """The one that comes now, and on to the next."""
        token = self.token
        self._position += token.kind != END
        return token

    def stop(self, issue: Issue) -> NoReturn:
        """A syntax error."""
        self.issues.append(issue)
        raise Stop

    def blame(self, at: int, text: str) -> Node:
        """Something is wrong with what can be read well enough to go on. The node takes its place."""
        self.issues.append(Issue(at, text))
        return Literal(None, at)

    def refusal(self) -> CompileError:
        """All that was found."""
        if not self.source:
            return CompileError(f"ERROR: <input>:1:0: {self.issues[0].text}")
        return CompileError(report(self.source, self.issues))
