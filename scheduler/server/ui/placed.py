"""The volumes and devices of a pod with a node, as the scheduler's cache has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from scheduler.api.core_v1 import NodeSelectorTerm, Pod
from scheduler.api.quantity import text
from scheduler.api.resource_v1 import claim_keys
from scheduler.api.storage_v1 import PersistentVolume, claim_uses
from scheduler.cache.cluster import Cluster
from scheduler.server.ui.answers import PlacedDevice, PlacedVolume

_ZONES: Final[tuple[str, ...]] = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
"""Labels of volumes whose nodes are not restricted otherwise."""


def placed_volumes(cluster: Cluster, pod: Pod) -> Iterator[PlacedVolume]:
    """Yield the volumes of the claims of the pod, in its order."""
    volumes, slot = cluster.volumes, cluster.nodes.present_slot(pod.spec.node_name)
    for key in dict.fromkeys(use.key for use in claim_uses(pod)):
        claim = volumes.claims.get_api(key)
        volume = volumes.volumes.get_api(claim.spec.volume_name) if claim is not None else None
        if volume is None:
            continue
        pools = volumes.capacities.of(volume.spec.storage_class_name)
        found = pools.at(slot) if pools is not None and slot is not None else ()
        size = volume.spec.capacity.get("storage")
        yield PlacedVolume(
            claim=key,
            volume=volume.metadata.name,
            storage_class=volume.spec.storage_class_name,
            driver=volume.spec.csi.driver if volume.spec.csi is not None else "",
            capacity=text(size) if size is not None else "",
            segments=tuple(_segments(volume)),
            pool=found[0].key if found else "",
        )


def _segments(volume: PersistentVolume) -> Iterator[Mapping[str, tuple[str, ...]]]:
    affinity = volume.spec.node_affinity
    if affinity is not None and affinity.required is not None:
        yield from (_labels(term) for term in affinity.required.node_selector_terms)
    elif labels := {name: (volume.metadata.labels[name],) for name in _ZONES if name in volume.metadata.labels}:
        yield labels


def _labels(term: NodeSelectorTerm) -> Mapping[str, tuple[str, ...]]:
    return {
        each.key: tuple(each.values) for each in (*term.match_expressions, *term.match_fields) if each.operator == "In"
    }


def placed_devices(cluster: Cluster, pod: Pod) -> Iterator[PlacedDevice]:
    """Yield the allocated devices of the claims of the pod, in its order."""
    extended = pod.status.extended_resource_claim_status
    made = (f"{pod.metadata.namespace}/{extended.resource_claim_name}",) if extended is not None else ()
    for key in (*claim_keys(pod), *made):
        claim = cluster.devices.claims.get(key)
        allocation = claim.status.allocation if claim is not None else None
        for each in allocation.devices.results if allocation is not None else ():
            yield PlacedDevice(
                claim=key,
                request=each.request,
                driver=each.driver,
                pool=each.pool,
                device=each.device,
                consumed={name: text(amount) for name, amount in sorted((each.consumed_capacity or {}).items())},
                has_admin_access=bool(each.admin_access),
            )
