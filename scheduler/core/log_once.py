"""Say a text once per subject, and again only when it changes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from scheduler.core.bounded_cache import BoundedCache

_SUBJECTS: Final = 20_000


class LogOnce:
    """Remembers the last text of each subject. The least recently mentioned subject is forgotten first."""

    def __init__(self, size: int = _SUBJECTS) -> None:
        self._said: BoundedCache[Hashable, str] = BoundedCache(size)

    def is_new(self, subject: Hashable, text: str = "") -> bool:
        """Return whether the text differs from the last one about the subject, and remember it. O(1)."""
        if self._said.get(subject) == text:
            return False
        self._said.put(subject, text)
        return True

    def forget(self, subject: Hashable) -> None:
        """The next text about the subject is new."""
        self._said.pop(subject)
