"""Events as they are written (events.k8s.io/v1)."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from scheduler.core.pod import Pod
from scheduler.core.volumes import PersistentVolumeClaim


class Reference(msgspec.Struct, rename="camel"):
    """The pod or claim that an Event is about."""

    name: str
    namespace: str
    uid: str
    resource_version: str
    kind: str = "Pod"
    api_version: str = "v1"


class EventMetadata(msgspec.Struct):
    """Where an Event lives: with what it is about."""

    name: str
    namespace: str


class EventSeries(msgspec.Struct, rename="camel"):
    """How often it has happened; the API accepts counts from 2 on."""

    count: int
    last_observed_time: str


class Event(msgspec.Struct, rename="camel"):
    """One Event."""

    metadata: EventMetadata
    event_time: str
    reporting_controller: str
    reporting_instance: str
    action: str
    reason: str
    regarding: Reference
    note: str
    type: str
    related: Reference | UnsetType = UNSET
    series: EventSeries | UnsetType = UNSET
    api_version: str = "events.k8s.io/v1"
    kind: str = "Event"


def reference(about: Pod | PersistentVolumeClaim) -> Reference:
    """What an Event says of its object; keeps nothing else of it alive."""
    seen = about.metadata
    kind = "Pod" if isinstance(about, Pod) else "PersistentVolumeClaim"
    return Reference(seen.name, seen.namespace, seen.uid, seen.resource_version, kind)
