"""What was read from texts: the same few come again and again, device after device."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Final, TypeVar

_Read = TypeVar("_Read")
_KEPT: Final = 4096
_LONGEST: Final = 128
"""Of longer texts nothing is remembered, so that all that is stays small."""


def remembered(read: Callable[[str], _Read]) -> Callable[[str], _Read]:
    """The function, which must give what nobody changes; its errors must be values."""
    known = lru_cache(maxsize=_KEPT)(read)

    @wraps(read)
    def recall(text: str) -> _Read:
        return known(text) if len(text) <= _LONGEST else read(text)

    return recall
