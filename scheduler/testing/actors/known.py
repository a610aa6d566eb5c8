"""What the PV controller keeps in mind: which claims and volumes name each other, and who may be waiting for whom.

An object that cannot be read is not known; the others are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from scheduler.core.volumes import PersistentVolume, PersistentVolumeClaim
from scheduler.testing.actors.acting import Key, Object, key_of, read


class _Place(NamedTuple):
    class_name: str
    volume: str


class Known:
    """Told of every write, in order."""

    def __init__(self) -> None:
        self.volumes: dict[str, PersistentVolume] = {}
        self._free: dict[str, set[str]] = defaultdict(set)
        """Class → volumes that name no claim."""
        self._naming: dict[Key, set[str]] = defaultdict(set)
        """Claim → volumes that name it."""
        self._places: dict[Key, _Place] = {}
        self._waiting: dict[str, set[Key]] = defaultdict(set)
        """Class → claims that name no volume."""
        self._asking: dict[str, set[Key]] = defaultdict(set)
        """Volume → claims that name it."""

    def claim_written(self, type_: str, obj: Object) -> None:
        """A claim came, changed or went."""
        key = key_of("persistentvolumeclaims", obj)
        before = self._places.pop(key, None)
        if before is not None:
            self._among(before).discard(key)
        claim = read(PersistentVolumeClaim, obj)
        if type_ != "DELETED" and claim is not None:
            self._places[key] = place = _Place(claim.storage_class, claim.spec.volume_name)
            self._among(place).add(key)

    def volume_written(self, type_: str, obj: Object) -> None:
        """A volume came, changed or went."""
        before = self.volumes.pop(obj["metadata"]["name"], None)
        if before is not None:
            self._where(before).discard(before.key)
        volume = read(PersistentVolume, obj)
        if type_ != "DELETED" and volume is not None:
            self.volumes[volume.key] = volume
            self._where(volume).add(volume.key)

    def waiting(self, class_name: str) -> tuple[Key, ...]:
        """Claims of the class that name no volume."""
        return tuple(self._waiting.get(class_name, ()))

    def asking(self, volume: str) -> tuple[Key, ...]:
        """Claims that name this volume."""
        return tuple(self._asking.get(volume, ()))

    def naming(self, claim: Key) -> tuple[str, ...]:
        """Volumes that name this claim."""
        return tuple(self._naming.get(claim, ()))

    def candidates(self, claim: Key, class_name: str) -> Iterator[PersistentVolume]:
        """Volumes that a claim may get: those that name it, and those of its class that name none."""
        names: Iterable[str] = (*self._naming.get(claim, ()), *self._free.get(class_name, ()))
        return (self.volumes[name] for name in names)

    def _among(self, place: _Place) -> set[Key]:
        return self._asking[place.volume] if place.volume else self._waiting[place.class_name]

    def _where(self, volume: PersistentVolume) -> set[str]:
        reference = volume.spec.claim_ref
        return self._free[volume.storage_class] if reference is None else self._naming[claim_key(volume)]


def claim_key(volume: PersistentVolume) -> Key:
    """The claim that a volume names."""
    reference = volume.spec.claim_ref
    return ("persistentvolumeclaims", reference.namespace, reference.name) if reference is not None else ("", "", "")
