"""Calls of a plugin by node names instead of slots, on clusters with and without volumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scheduler.api.core_v1 import Node, Pod
from scheduler.api.decode import Broken, from_manifest
from scheduler.api.meta import Metadata
from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.api.storage_v1 import PersistentVolume, PersistentVolumeClaim, StorageClass
from scheduler.cache.cluster import Cluster
from scheduler.core import nodeset
from scheduler.core.cluster_events import ClusterEvent
from scheduler.core.cooperative import answered, finish
from scheduler.framework.interface import CycleState, EventHint, Hint
from scheduler.framework.status import Code, Groups
from simulator.builders.core import Builder
from tests.unit.objects import cluster

Refusals = dict[str, tuple[Code, tuple[str, ...]]]


def named(seen: Cluster, groups: Groups) -> Refusals:
    """Node name → code and reasons. Checks that no node is in two groups."""
    out: Refusals = {}
    for no, slots in groups.items():
        assert slots, "an empty group"
        for slot in nodeset.each(slots):
            assert seen.nodes.name(slot) not in out
            out[seen.nodes.name(slot)] = (no.code, no.reasons)
    return out


def refused(plugin: Any, seen: Cluster, pod: PodInfo) -> Refusals:
    """What Filter says of all present nodes."""
    return named(seen, finish(answered(plugin.filter(CycleState(), pod, seen.nodes.present))))


def scored(plugin: Any, seen: Cluster, pod: PodInfo) -> dict[str, int] | None:
    """PreScore, Score and NormalizeScore of all present nodes by name; None if the plugin skips."""
    state, present = CycleState(), seen.nodes.present
    if hasattr(plugin, "pre_score") and plugin.pre_score(state, pod, present) is not None:
        return None
    column = finish(answered(plugin.score(state, pod, present)))
    if hasattr(plugin, "normalize_score"):
        column = plugin.normalize_score(state, pod, column, nodeset.slots(present, seen.nodes.capacity))
    assert len(column) == seen.nodes.capacity
    return {seen.nodes.name(slot): int(column[slot]) for slot in nodeset.each(present)}


def hinted(plugin: Any, event: ClusterEvent, pod: PodInfo, *, old: object = None, new: object = None) -> Hint | None:
    """What the registrations that want the event say together; None if none does.

    Checks on the way that a registration with a shape gives a hashable one, and that its topics keep their law.
    """
    wanting: Sequence[EventHint] = [r for r in plugin.events_to_register() if r.event.wants(event)]
    if not wanting:
        return None
    for registration in wanting:
        if registration.shape is not None:
            hash(registration.shape(pod))
    answers = [Hint.QUEUE if r.hint is None else r.hint(pod, old, new) for r in wanting]
    for registration, answer in zip(wanting, answers):
        assert answer is Hint.SKIP or is_concerned(registration, pod, old=old, new=new)
    return Hint.QUEUE if Hint.QUEUE in answers else Hint.SKIP


def is_concerned(registration: EventHint, pod: PodInfo, *, old: object, new: object) -> bool:
    """Return whether the queue would call the hint: by the law of `hints.Topics` it must, if the hint says Queue."""
    if registration.topics is None:
        return True
    of_pod, of_event = registration.topics.of_pod(pod), registration.topics.of_event(old, new)
    return of_pod is None or of_event is None or not set(of_pod).isdisjoint(of_event)


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
            seen.volumes.set_class(storage_class.key, storage_class)
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
