"""What the watch may not show yet of a claim (docs/spec/volumes.md §12.3 B-18, B-19)."""

from __future__ import annotations

from scheduler.core.decode import Broken
from scheduler.core.volumes import PersistentVolumeClaim


def problem_of(decided: PersistentVolumeClaim, now: PersistentVolumeClaim | Broken | None) -> str:
    """Why the claim that the server has is not the one that was decided on, or does not stay; "" if it is."""
    if isinstance(now, Broken):
        return f"{now.kind} {now.key} cannot be read: {now.why}"
    metadata = decided.metadata
    if now is None or now.metadata.uid != metadata.uid or now.metadata.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{metadata.name}" is not the one that was decided on any more'
    return ""
