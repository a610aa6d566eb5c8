"""What an object must still be like for a write to it to be carried out."""

from __future__ import annotations

from scheduler.core.errors import Conflict
from scheduler.core.meta import Metadata


def as_seen(metadata: Metadata) -> dict[str, object]:
    """Of a patch: nothing was written since.

    Raises Conflict where there is no version: an empty one in a patch would be no precondition at all.
    """
    if not metadata.resource_version or not metadata.uid:
        raise Conflict(f"{metadata.key} has no uid or no resourceVersion that could be compared")
    return {"uid": metadata.uid, "resourceVersion": metadata.resource_version}


def the_same(metadata: Metadata) -> dict[str, object]:
    """Of a patch, or of a deletion: it is still this very object, whatever was written since. Raises Conflict likewise."""
    if not metadata.uid:
        raise Conflict(f"{metadata.key} has no uid that could be compared")
    return {"uid": metadata.uid}
