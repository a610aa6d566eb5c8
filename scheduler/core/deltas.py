"""What a reflector hands on: one batch per network chunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from scheduler.core.decode import Broken

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Delta(Generic[T]):
    """One change of one object: `old is None` added, `new is None` deleted, both: updated.

    An unreadable object appears as `Broken` in its place. A name that comes back with another uid arrives as
    a deletion followed by an addition.
    """

    old: T | Broken | None
    new: T | Broken | None
