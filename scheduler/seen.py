"""What one change of one object shows: an object that cannot be read is logged once, counts as absent, and can be named.

For the kinds that decisions are made by; told on by `storage` and `devices`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import structlog

from scheduler.core.decode import Broken
from scheduler.core.deltas import Delta
from scheduler.core.events import Action

_log: Final = structlog.get_logger(__name__)


class Seen(NamedTuple):
    """`old` and `new` are None where there is no object, or none that can be read."""

    key: str
    old: Any
    new: Any


def action_of(old: object, new: object) -> Action | None:
    """What happened, to those who know of nothing that cannot be read; None if nothing did."""
    if old is None:
        return None if new is None else Action.ADD
    return Action.DELETE if new is None else Action.UPDATE_OTHER


def seen(delta: Delta[Any], broken: dict[tuple[str, str], Broken]) -> Seen:
    """Keeps `broken`, by kind and key, up to date."""
    shown = delta.new if delta.new is not None else delta.old
    assert shown is not None
    for side in (delta.old, delta.new):
        if isinstance(side, Broken):
            broken.pop((side.kind, side.key), None)
    if isinstance(delta.new, Broken):
        broken[delta.new.kind, delta.new.key] = delta.new
        if not (isinstance(delta.old, Broken) and delta.old.why == delta.new.why):
            _log.error(
                "object could not be read and is left out",
                kind=delta.new.kind,
                object=delta.new.key,
                error=delta.new.why,
            )
    old, new = (None if isinstance(side, Broken) else side for side in (delta.old, delta.new))
    return Seen(shown.key, old, new)
