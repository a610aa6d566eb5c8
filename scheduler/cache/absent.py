"""How to say that a volume, a claim or a class is not there; one that could not be read is named with what is wrong.

The plain texts are those of upstream's listers: the singular, and no namespace (docs/spec/volumes.md §0.3).
"""

from __future__ import annotations

from scheduler.cache.volumes import CLAIM, VOLUME, Volumes

_CLASS = "StorageClass"


def absent_claim(volumes: Volumes, key: str) -> str:
    """Of the claim `namespace/name`, which is not known."""
    return _absent(volumes, CLAIM, "persistentvolumeclaim", key)


def absent_volume(volumes: Volumes, name: str) -> str:
    """Of the volume of that name."""
    return _absent(volumes, VOLUME, "persistentvolume", name)


def absent_class(volumes: Volumes, name: str) -> str:
    """Of the class of that name."""
    return _absent(volumes, _CLASS, "storageclass.storage.k8s.io", name)


def _absent(volumes: Volumes, kind: str, called: str, key: str) -> str:
    name = key.rpartition("/")[2]
    broken = volumes.broken.get((kind, key))
    return f'{called} "{name}" not found' if broken is None else f'{called} "{name}" cannot be read: {broken.why}'
