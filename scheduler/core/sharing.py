"""Equal parts of bound pods as one object: the pods of a cluster are few templates, written many times.

What a template gives its pods (labels, containers, affinity, owner) and what running pods report alike (conditions,
states) is kept once: three quarters of what a decoded pod takes. Only parts that are never changed after decoding are
shared, so nobody can tell.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import force_setattr

from scheduler.core.interner import Interner
from scheduler.core.pod import Affinity, Container, ContainerStatus, Pod, TopologySpreadConstraint

T = TypeVar("T")

_SIZE: Final = 50_000
_known: Final[Interner[Any, Any]] = Interner(_SIZE)
_known_labels: Final[Interner[Any, dict[str, str]]] = Interner(_SIZE)
_known_containers: Final[Interner[bytes, tuple[Container, ...]]] = Interner(_SIZE)
_known_affinities: Final[Interner[bytes, Affinity]] = Interner(_SIZE)
_known_spreads: Final[Interner[bytes, tuple[TopologySpreadConstraint, ...]]] = Interner(_SIZE)
_known_statuses: Final[Interner[bytes, tuple[ContainerStatus, ...]]] = Interner(_SIZE)
_nothing: dict[str, Any] = {}
_encode: Final = msgspec.msgpack.Encoder(enc_hook=lambda quantity: str(quantity.nano)).encode


def share(pod: Pod) -> None:
    """Replace the parts of a pod that equal those of pods seen before by theirs. For a pod that nobody else has yet.

    Pods without a node are left alone: they are few, and the next event replaces them. Costs some 5 µs.
    """
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    if not spec.node_name:
        return
    labels = metadata.labels
    force_setattr(metadata, "namespace", one(metadata.namespace))
    force_setattr(metadata, "labels", _known_labels.share(tuple(labels.items()), labels))
    force_setattr(metadata, "owner_references", one(metadata.owner_references))
    force_setattr(spec, "node_name", one(spec.node_name))
    force_setattr(spec, "scheduler_name", one(spec.scheduler_name))
    force_setattr(spec, "preemption_policy", one(spec.preemption_policy))
    force_setattr(spec, "tolerations", one(spec.tolerations))
    force_setattr(spec, "containers", _known_containers.share(_encode(spec.containers), spec.containers))
    if spec.init_containers:
        force_setattr(
            spec, "init_containers", _known_containers.share(_encode(spec.init_containers), spec.init_containers)
        )
    if spec.affinity is not None:
        force_setattr(spec, "affinity", _known_affinities.share(_encode(spec.affinity), spec.affinity))
    spread = spec.topology_spread_constraints
    if spread:
        force_setattr(spec, "topology_spread_constraints", _known_spreads.share(_encode(spread), spread))
    if not spec.overhead:
        force_setattr(spec, "overhead", _nothing)
    if not spec.node_selector:
        force_setattr(spec, "node_selector", _nothing)
    force_setattr(status, "phase", one(status.phase))
    force_setattr(status, "conditions", one(status.conditions))
    statuses = status.container_statuses
    force_setattr(status, "container_statuses", _known_statuses.share(_encode(statuses), statuses))
    if status.init_container_statuses:
        statuses = status.init_container_statuses
        force_setattr(status, "init_container_statuses", _known_statuses.share(_encode(statuses), statuses))


def one(part: T) -> T:
    """What equals this and was seen before, from now on this if nothing was."""
    known: Interner[Any, T] = _known
    return known.share(part, part)
