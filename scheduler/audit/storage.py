"""Check the indexes of claims and volumes, the node groups, and the assumptions of bindings."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from scheduler.audit.findings import BEHIND, Check, Comparison, Steps, by_key, faultless, grouped
from scheduler.cache.cluster import Cluster
from scheduler.cache.nodes.node_groups import NodeGroups
from scheduler.cache.storage.volumes import CLAIM, VOLUME


class StorageChecks:
    """The checks of one cluster's claims and volumes.

    `is_binding` says of a uid whether a binding of this pod runs.
    """

    def __init__(self, cluster: Cluster, is_binding: Callable[[str], bool]) -> None:
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._volumes = cluster.volumes
        self._is_binding = is_binding

    def checks(self) -> dict[str, Check]:
        """Return index → check. Node groups come first, because volumes and pools read them."""
        return {
            "node-groups": lambda: self.groups(self._volumes.groups),
            "claims": self._claims,
            "volumes": self._all_volumes,
            "free-volumes": self._fits,
            "assumed-volumes": self._assumptions,
        }

    # -- node groups -------------------------------------------------------------------------------------------------

    def groups(self, groups: NodeGroups) -> Steps:
        """Compare the nodes of each rule with the labels of the nodes."""
        if groups.behind > BEHIND:
            return
        yield from by_key(
            groups.in_use(),
            lambda group: f"node group {group.where}",
            groups.entries,
            groups.expected,
            lambda _: groups.refill(),
            ready=groups.catch_up,
        )
        yield from faultless("node groups", groups.faults(), groups.refill)

    # -- claims and volumes --------------------------------------------------------------------------------------------

    def _claims(self) -> Steps:
        """Compare the list of claims without a volume and a node with the claims."""
        claims = self._volumes.claims

        def namespace(key: str) -> Collection[str]:
            claim = claims.get(key)
            is_listed = claim is not None and not claim.spec.volume_name and claim.selected_node is None
            return (claim.metadata.namespace,) if claim is not None and is_listed else ()

        return grouped("claim", claims.keys(), namespace, claims.unselected)

    def _all_volumes(self) -> Steps:
        volumes = self._volumes.volumes

        def claim(name: str) -> Collection[str]:
            volume = volumes.get(name)
            ref = volume.spec.claim_ref if volume is not None else None
            return (ref.key,) if ref is not None else ()

        yield from grouped("volume", volumes.keys(), claim, volumes.by_claim)
        yield from by_key(
            volumes.names(),
            lambda name: f"volume {name}",
            volumes.entries,
            volumes.expected,
            lambda _: volumes.rebuild(),
        )

    def _fits(self) -> Steps:
        """Compare the counts of fitting volumes per node with a recount, for each known shape of claim."""
        for storage_class, class_volumes in self._volumes.volumes.classes():
            for counted, fresh in class_volumes.recounted():
                found = Comparison(f"claims of class {storage_class}")
                is_equal = np.array_equal(counted.counts, fresh.counts)
                found.differs("volumes by node are those of a recount", is_equal, True)
                found.differs("nodes", self._nodes.names(counted.nodes), self._nodes.names(fresh.nodes))
                found.differs("smallest volumes are those of a recount", counted.has_equal_sizes(fresh), True)
                yield found

    # -- assumptions -------------------------------------------------------------------------------------------------

    def _assumptions(self) -> Steps:
        """Compare assumed objects with the newest ones, and the pods that rely on them with the pods that are binding."""
        for cache in (self._volumes.claims, self._volumes.volumes):
            for key in cache.assumed_keys():
                found = Comparison(f"assumption {key}")
                if found.differs("assumed on the newest version", not cache.is_stale(key), True):
                    cache.drop(key)
                yield found
        for version in tuple(self._volumes.holders):
            found = Comparison(f"{version[0]} {version[1]}")
            gone = [uid for uid in self._volumes.holders.get(version, ()) if not self._relies(uid)]
            if found.differs("pods that assume it and are gone", gone, []):
                self._end(version, gone)
            yield found
        for kind, by_claim in (("plan", self._volumes.under_way), ("binding", self._volumes.binding)):
            for key in tuple(by_claim):
                found = Comparison(f"claim {key}")
                gone = [uid for uid in by_claim.get(key, ()) if not self._relies(uid)]
                if found.differs(f"{kind} of pods that are gone", gone, []):
                    for uid in gone:
                        _discard(by_claim, key, uid)
                    self._volumes.notify(CLAIM, key)
                yield found

    def _relies(self, uid: str) -> bool:
        return self._is_binding(uid) or self._cluster.is_assumed(uid)

    def _end(self, version: tuple[str, str, str], gone: list[str]) -> None:
        """Remove pods from the pods that assume an object; with the last one, the assumption ends."""
        for uid in gone:
            _discard(self._volumes.holders, version, uid)
        if version in self._volumes.holders:
            return
        kind, key, resource_version = version
        cache: Any = self._volumes.volumes if kind == VOLUME else self._volumes.claims
        assumed = cache.get(key)
        if cache.is_assumed(key) and assumed.metadata.resource_version == resource_version:
            cache.restore(assumed)
            self._volumes.given_back[kind, key] = None


def _discard(index: dict[Any, dict[str, None]], key: Any, item: str) -> None:
    members = index.get(key, {})
    members.pop(item, None)
    if not members:
        index.pop(key, None)
