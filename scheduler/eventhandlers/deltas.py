"""Read one delta of a watched object: which sides can be read, and which action it is.

An object that could not be read is logged once and counts as absent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import structlog

from scheduler.api.decode import Broken, Delta
from scheduler.core.cluster_events import Action, ClusterEvent

_log = structlog.get_logger(__name__)

Move: TypeAlias = Callable[[ClusterEvent, object, object], None]
"""Wake the pods that an event can help; the arguments are the event, the old and the new object."""


def is_new_error(old: object, new: Broken) -> bool:
    """Return False if the object was unreadable for the same reason before."""
    return not (isinstance(old, Broken) and old.why == new.why)


class ObjectChange(NamedTuple):
    """One change. `old` and `new` are None where there is no object, or none that can be read."""

    key: str
    old: Any
    new: Any


def action_of(old: object, new: object) -> Action | None:
    """Return the action, with unreadable objects as None; None if there was no object before or after."""
    if old is None:
        return None if new is None else Action.ADD
    return Action.DELETE if new is None else Action.UPDATE_OTHER


def seen(delta: Delta[Any], broken: dict[tuple[str, str], Broken]) -> ObjectChange:
    """Return the change with unreadable sides as None; update `broken`, which is by kind and key."""
    shown = delta.new if delta.new is not None else delta.old
    assert shown is not None
    for side in (delta.old, delta.new):
        if isinstance(side, Broken):
            broken.pop((side.kind, side.key), None)
    if isinstance(delta.new, Broken):
        broken[delta.new.kind, delta.new.key] = delta.new
        if is_new_error(delta.old, delta.new):
            unread = delta.new
            _log.error(
                "object could not be read and is left out", kind=unread.kind, object=unread.key, error=unread.why
            )
    old, new = (None if isinstance(side, Broken) else side for side in (delta.old, delta.new))
    return ObjectChange(shown.key, old, new)
