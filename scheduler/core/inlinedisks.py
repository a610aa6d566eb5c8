"""Disks that a pod names itself and that not everybody can mount at once (docs/spec/volumes.md §9.3)."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

from scheduler.core.pod import Pod, Volume

DiskId: TypeAlias = tuple[str, ...]

_sources = attrgetter("gce_persistent_disk", "aws_elastic_block_store", "iscsi", "rbd")
_NONE: Final = (None, None, None, None)


class InlineDisk(NamedTuple):
    """One way to tell a disk. An RBD image has one per monitor: two of the same image are one disk if they share any."""

    id: DiskId
    is_read_only: bool
    """Readers do not hinder each other. Of EBS volumes nobody is one."""


def inline_disks(pod: Pod) -> tuple[InlineDisk, ...]:
    """In the order of the volumes; a disk that two volumes name comes twice. Namespaces do not matter to disks."""
    found = [volume for volume in pod.spec.volumes if _sources(volume) != _NONE]
    return tuple(disk for volume in found for disk in _disks(volume)) if found else ()


def do_conflict(wanted: tuple[InlineDisk, ...], held: tuple[InlineDisk, ...]) -> bool:
    """Whether a pod with some of these cannot be where a pod with the others is."""
    return any(one.id == other.id and not (one.is_read_only and other.is_read_only) for one in wanted for other in held)


def _disks(volume: Volume) -> Iterator[InlineDisk]:
    gce, ebs, iscsi, rbd = _sources(volume)
    if gce is not None:
        yield InlineDisk(("gce", _text(gce, "pdName")), _is_read_only(gce))
    if ebs is not None:
        yield InlineDisk(("ebs", _text(ebs, "volumeID")), is_read_only=False)
    if iscsi is not None:
        yield InlineDisk(("iscsi", _text(iscsi, "iqn")), _is_read_only(iscsi))
    if rbd is not None:
        image = ("rbd", _text(rbd, "pool"), _text(rbd, "image"))
        for monitor in rbd.get("monitors") or ():
            yield InlineDisk((*image, str(monitor)), _is_read_only(rbd))


def _text(source: dict[str, Any], field: str) -> str:
    return str(source.get(field) or "")


def _is_read_only(source: dict[str, Any]) -> bool:
    return source.get("readOnly") is True
