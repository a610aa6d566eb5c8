"""What attach limits call a claim's volume: a driver and a handle (docs/spec/volumes.md §9.1)."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final, NamedTuple

from scheduler.cache.assumed import AssumeCache
from scheduler.core.intree import MIGRATABLE, TRANSLATABLE, TranslationError, driver_of, kind_of, translate_volume
from scheduler.core.volumes import CSISource, PersistentVolume, PersistentVolumeClaim


class Named(NamedTuple):
    """`name` is None for what is not counted. Equal names are one volume."""

    name: CSISource | None
    is_in_tree: bool = False
    """Counted only where a CSINode is; nowhere else is there a limit, either."""
    storage_class: str = ""
    """The class that was asked because there is no volume; "" if none was."""


_NOT_COUNTED: Final = Named(None)


class VolumeNames:
    """For one process: claims without a volume have names that nobody else gives."""

    def __init__(self, volumes: AssumeCache[PersistentVolume], provisioner_of: Callable[[str], str]) -> None:
        """`provisioner_of` returns the provisioner of a storage class by name, "" for a class that is not known."""
        self._volumes = volumes
        self._provisioner_of = provisioner_of
        self._prefix = secrets.token_hex(16)

    def of(self, claim: PersistentVolumeClaim) -> Named:
        """By its volume; by its class while there is none."""
        wanted = claim.spec.volume_name
        volume = self._volumes.get_api(wanted) if wanted else None
        return self._by_class(claim) if volume is None else _by_volume(volume)

    def _by_class(self, claim: PersistentVolumeClaim) -> Named:
        wanted = claim.storage_class
        provisioner = self._provisioner_of(wanted) if wanted else ""
        is_in_tree = provisioner in TRANSLATABLE
        driver = driver_of(provisioner) if is_in_tree else provisioner
        if not driver or (is_in_tree and provisioner not in MIGRATABLE):
            return Named(None, storage_class=wanted)
        return Named(CSISource(driver, f"{self._prefix}-{claim.key}"), is_in_tree, wanted)


def _by_volume(volume: PersistentVolume) -> Named:
    csi, is_in_tree = volume.spec.csi, False
    if csi is None:
        kind = kind_of(volume)
        if kind is None or kind.plugin not in MIGRATABLE:
            return _NOT_COUNTED
        try:
            csi, is_in_tree = translate_volume(volume).spec.csi, True
        except TranslationError:
            return _NOT_COUNTED
    return Named(csi, is_in_tree) if csi is not None and csi.driver and csi.volume_handle else _NOT_COUNTED
