"""Equal parts of bound pods as one object: the pods of a cluster are few templates, written many times.

What a template gives its pods (labels, containers, tolerations, owner) and what running pods report alike (conditions,
states) is kept once: three quarters of what a decoded pod takes. Only parts that are never changed after decoding are
shared, so nobody can tell.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import force_setattr

from scheduler.core.pod import Container, ContainerStatus, Pod

T = TypeVar("T")

_KNOWN_MAX: Final = 50_000
_known: dict[Any, Any] = {}
_known_labels: dict[Any, dict[str, str]] = {}
_known_containers: dict[bytes, tuple[Container, ...]] = {}
_known_statuses: dict[bytes, tuple[ContainerStatus, ...]] = {}
_nothing: dict[str, Any] = {}
_encode: Final = msgspec.msgpack.Encoder(enc_hook=lambda quantity: (quantity.value, quantity.milli)).encode


def share(pod: Pod) -> None:
    """Replace the parts of a pod that equal those of pods seen before by theirs. For a pod that nobody else has yet.

    Pods without a node are left alone: they are few, and the next event replaces them. Costs some 5 µs.
    """
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    if not spec.node_name:
        return
    labels = metadata.labels
    force_setattr(metadata, "namespace", _one(metadata.namespace))
    force_setattr(metadata, "labels", _of(_known_labels, tuple(labels.items()), labels))
    force_setattr(metadata, "owner_references", _one(metadata.owner_references))
    force_setattr(spec, "node_name", _one(spec.node_name))
    force_setattr(spec, "scheduler_name", _one(spec.scheduler_name))
    force_setattr(spec, "preemption_policy", _one(spec.preemption_policy))
    force_setattr(spec, "tolerations", _one(spec.tolerations))
    force_setattr(spec, "containers", _of(_known_containers, _encode(spec.containers), spec.containers))
    if spec.init_containers:
        force_setattr(
            spec, "init_containers", _of(_known_containers, _encode(spec.init_containers), spec.init_containers)
        )
    if not spec.overhead:
        force_setattr(spec, "overhead", _nothing)
    if not spec.node_selector:
        force_setattr(spec, "node_selector", _nothing)
    force_setattr(status, "phase", _one(status.phase))
    force_setattr(status, "conditions", _one(status.conditions))
    statuses = status.container_statuses
    force_setattr(status, "container_statuses", _of(_known_statuses, _encode(statuses), statuses))
    if status.init_container_statuses:
        statuses = status.init_container_statuses
        force_setattr(status, "init_container_statuses", _of(_known_statuses, _encode(statuses), statuses))


def _one(part: T) -> T:
    return _of(_known, part, part)


def _of(known: dict[Any, T], key: Any, part: T) -> T:
    """What is known by this key, from now on this part if nothing is. Begins anew when it has grown too large."""
    if len(known) >= _KNOWN_MAX:
        known.clear()
    return known.setdefault(key, part)
