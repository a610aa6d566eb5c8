"""Disks that pods name themselves: docs/spec/volumes.md §9.3."""

from __future__ import annotations

from scheduler.api.csi_translation import InlineDisk
from scheduler.cache.storage.volume_users import DiskConflicts

READER, WRITER = InlineDisk(("gce", "d"), is_read_only=True), InlineDisk(("gce", "d"), is_read_only=False)
OTHER = InlineDisk(("ebs", "d"), is_read_only=False)


def test_readers_and_writers() -> None:
    """A reader keeps writers away, a writer everybody; on each node that one is on."""
    index = DiskConflicts()
    index.add(1, (READER,))
    index.add(2, (WRITER, OTHER))

    assert (index.of((READER,)), index.of((WRITER,)), index.of((OTHER, READER)), index.of(())) == (4, 6, 4, 0)


def test_a_disk_is_free_with_its_last_user() -> None:
    """Any number of pods of a node may have it, one of them several times."""
    index = DiskConflicts()
    added = [(READER,), (READER, READER), (READER, WRITER)]
    for disks in added:
        index.add(0, disks)
    seen = []
    for disks in added:
        index.remove(0, disks)
        seen.append((index.of((WRITER,)), index.of((READER,))))

    assert seen == [(1, 1), (1, 1), (0, 0)]
    assert not len(index.used)
