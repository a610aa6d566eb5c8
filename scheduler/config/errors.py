"""Mistakes in a configuration, with their paths: `profiles[0].schedulerName: is required`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set as AbstractSet
from contextlib import contextmanager
from typing import Final

_LAST_STEP: Final = re.compile(r"(\.[^.\[\]]+|\[[^\]]*\]|^[^.\[\]]+)$")
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_$][\w$-]*")


class ConfigError(ValueError):
    """One mistake. `path` is the field as the file spells it. `line` is its line from 1, or 0 if unknown."""

    def __init__(self, path: str, message: str, *, line: int = 0) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message
        self.line = line


class ConfigErrors(ConfigError):
    """All mistakes of a document, in its order. Its text has one line per mistake. Never empty."""

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        first = errors[0]
        super().__init__(first.path, first.message, line=first.line)
        self.errors = tuple(errors)

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)


@contextmanager
def collecting(errors: list[ConfigError]) -> Iterator[None]:
    """Append the mistakes that the block raises to `errors`, so that the mistakes of the next block are found too."""
    try:
        yield
    except ConfigErrors as wrong:
        errors.extend(wrong.errors)


class PluginLoadError(Exception):
    """An installed plugin cannot be used with any configuration. The message names the plugin and its distribution."""


class Findings:
    """Collect mistakes, and fields that are accepted without effect, while a document is read with these gates."""

    def __init__(
        self, lines: Mapping[str, int] | None = None, *, feature_gates: AbstractSet[str] = frozenset()
    ) -> None:
        self.feature_gates = feature_gates
        self.errors: list[ConfigError] = []
        self.ignored: list[str] = []
        self._lines = lines or {}

    def error(self, path: str, message: str) -> None:
        self.errors.append(ConfigError(path, message, line=self._line(path)))

    def raise_any(self) -> None:
        """Raise ConfigErrors if there was a mistake."""
        if self.errors:
            raise ConfigErrors(sorted(self.errors, key=lambda error: error.line))

    def _line(self, path: str) -> int:
        """Return the line of the field, or of the nearest enclosing field: a missing field has no line."""
        while path not in self._lines:
            shorter = _LAST_STEP.sub("", path)
            if shorter == path:  # the root, or a key with brackets in it
                return 0
            path = shorter
        return self._lines[path]


def below(path: str, step: str | int) -> str:
    """Return the path of a field, a list item, or a key with special characters: `a.b`, `a[0]`, `a[example.com/b]`."""
    if isinstance(step, int) or not _PLAIN_KEY.fullmatch(step):
        return f"{path}[{step}]"
    return f"{path}.{step}" if path else step
