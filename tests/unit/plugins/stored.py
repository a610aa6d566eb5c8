"""A cluster with volumes in it, for the tests of plugins that look at them."""

from __future__ import annotations

from typing import Any

from scheduler.api.core_v1 import Node, Pod
from scheduler.api.decode import Broken, from_manifest
from scheduler.api.meta import Metadata
from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.api.storage_v1 import PersistentVolume, PersistentVolumeClaim, StorageClass
from scheduler.cache.cluster import Cluster
from simulator.builders.core import Builder
from tests.unit.objects import cluster


def stored(*things: Node | PodInfo | Builder[Any]) -> Cluster:
    """Nodes, pods, and whatever `testing.volumebuilders` makes of claims, volumes and classes."""
    seen = cluster(*(thing for thing in things if not isinstance(thing, Builder)))
    for thing in things:
        if isinstance(thing, Builder):
            put(seen, thing)
    return seen


def put(seen: Cluster, thing: Builder[Any]) -> None:
    """It came, or changed."""
    match thing.typed():
        case PersistentVolume() as volume:
            seen.volumes.set_volume(volume)
        case PersistentVolumeClaim() as claim:
            seen.volumes.claims.set(claim)
        case StorageClass() as storage_class:
            seen.volumes.set_class(storage_class)
        case other:
            raise TypeError(other)


def unreadable(seen: Cluster, kind: str, key: str, why: str) -> None:
    """An object came that cannot be decoded."""
    seen.volumes.broken[kind, key] = Broken(kind=kind, metadata=Metadata(name=key.rpartition("/")[2]), why=why)


def using(
    name: str = "p", *claims: str, on: str = "", ns: str = "default", ephemeral: tuple[str, ...] = (), **sources: Any
) -> PodInfo:
    """A pod with these claims, with ephemeral volumes of these names, and with volumes as a manifest has them."""
    volumes: list[dict[str, Any]] = [
        {"name": f"c{at}", "persistentVolumeClaim": {"claimName": claim}} for at, claim in enumerate(claims)
    ]
    volumes += [{"name": volume, "ephemeral": {}} for volume in ephemeral]
    volumes += [{"name": kind.lower(), kind: source} for kind, source in sources.items()]
    manifest = {
        "metadata": {"name": name, "namespace": ns, "uid": f"{ns}/{name}"},
        "spec": {"nodeName": on, "containers": [{"name": "c"}], "volumes": volumes},
    }
    return pod_info(from_manifest(Pod, manifest))
