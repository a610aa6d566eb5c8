"""Event objects: stored as events.k8s.io has them, shown under core/v1 with the old names."""

from __future__ import annotations

from typing import Any, Final

_NEW_TO_OLD: Final = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_OLD_TO_NEW: Final = {old: new for new, old in _NEW_TO_OLD.items()}


def to_core(event: dict[str, Any]) -> dict[str, Any]:
    """Return the same event as core/v1 shows it."""
    return {_NEW_TO_OLD.get(key, key): value for key, value in event.items()} | {"apiVersion": "v1"}


def from_core(event: dict[str, Any]) -> dict[str, Any]:
    """Return the same event as it is stored."""
    return {_OLD_TO_NEW.get(key, key): value for key, value in event.items()} | {"apiVersion": "events.k8s.io/v1"}
