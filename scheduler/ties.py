"""The nodes that the claims of a pending pod leave it, from the API objects alone (docs/adr/0012).

A claim without a volume is tied by its selected node, or by a volume whose claimRef names it; a bound claim by the node
affinity of its volume; a resource claim by the node selector of its allocation. Assumptions of ours do not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from scheduler.cache.cluster import Cluster
from scheduler.cache.extendedresources import may_be_devices
from scheduler.cache.nodegroups import Where
from scheduler.cache.selecting import matching_selector
from scheduler.cache.volumes import CLAIM, VOLUME, VOLUME_FOR
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.core.pod import NodeSelector, Pod, PodResourceClaim
from scheduler.core.podinfo import PodInfo
from scheduler.core.resourceclaims import ResourceClaim
from scheduler.core.volumes import PersistentVolume, PersistentVolumeClaim, is_for
from scheduler.plugins.dra.claims import Unresolved, claim_name
from scheduler.plugins.volumebinding.binder import VolumeError
from scheduler.plugins.volumebinding.reaching import Reach as VolumeReach

Topic: TypeAlias = tuple[str, str]
"""Kind and key, as `Volumes.tell` names a change."""
NODE: Final = "Node"
RESOURCE_CLAIM: Final = "ResourceClaim"


class Tie(NamedTuple):
    """One claim and the nodes that it leaves. `is_selection`: by its selected node only, so that it can be taken back."""

    claim: PersistentVolumeClaim | ResourceClaim
    nodes: NodeSet
    is_selection: bool = False

    @property
    def name(self) -> str:
        """Kind and name, for messages."""
        kind = "claim" if isinstance(self.claim, PersistentVolumeClaim) else "resource claim"
        return f'{kind} "{self.claim.metadata.name}"'


@dataclass(slots=True)
class Reach:
    """The ties of one pod, and the objects whose changes may change them."""

    ties: list[Tie] = field(default_factory=list)
    is_complete: bool = True
    """Whether all claims of the pod exist."""
    topics: dict[Topic, None] = field(default_factory=dict)
    """The claims, volumes, resource claims and nodes that it depends on."""
    volumes: dict[str, None] = field(default_factory=dict)
    """Names of volumes whose node affinity is a tie: it follows the labels of nodes."""
    selectors: list[Where] = field(default_factory=list)
    """Label rules of allocated devices: they follow the labels of nodes as well."""

    def nodes(self, present: NodeSet) -> NodeSet:
        """The nodes that all ties leave."""
        for tie in self.ties:
            present &= tie.nodes
        return present


def has_claims(pod: PodInfo) -> bool:
    """Whether any claim can ever tie the pod."""
    return bool(pod.claims or pod.pod.spec.resource_claims) or any(map(may_be_devices, pod.requests))


class Ties:
    """Reads the cache. A pod costs a few look-ups per claim, however many claims, volumes and nodes there are."""

    def __init__(self, cluster: Cluster) -> None:
        self._nodes = cluster.nodes
        self._volumes = cluster.volumes
        self._devices = cluster.devices
        self._volume_reach = VolumeReach(cluster.nodes, cluster.volumes)

    def of(self, pod: PodInfo) -> Reach:
        """The ties of a pod without a node."""
        reach = Reach()
        for key in dict.fromkeys(use.key for use in pod.claims):
            self._add_claim(reach, key)
        for entry in pod.pod.spec.resource_claims:
            self._add_entry(reach, pod.pod, entry)
        if any(map(may_be_devices, pod.requests)):
            reach.topics[RESOURCE_CLAIM, pod.uid] = None  # claims that a scheduler made for the pod are told by its uid
            for made in self._devices.claims.all_made_for(pod.pod):
                self._add_resource_claim(reach, made)
        return reach

    # -- volumes -------------------------------------------------------------------------------------------------------

    def _add_claim(self, reach: Reach, key: str) -> None:
        reach.topics[CLAIM, key] = None
        claim = self._volumes.claims.get_api(key)
        if claim is None:
            reach.is_complete = False
            return
        if claim.spec.volume_name:
            reach.topics[VOLUME, claim.spec.volume_name] = None
            volume = self._volumes.volumes.get_api(claim.spec.volume_name)
            if volume is None:
                reach.is_complete = False
            else:
                self._add_volumes(reach, claim, [volume])
            return
        reach.topics[VOLUME_FOR, key] = None
        meant = [
            volume
            for each in self._volumes.volumes.meant_for(key)
            if (volume := self._volumes.volumes.get_api(each.key)) is not None and is_for(volume, claim)
        ]
        if meant:
            reach.topics.update(((VOLUME, volume.key), None) for volume in meant)
            self._add_volumes(reach, claim, meant)
        elif claim.selected_node:
            reach.topics[NODE, claim.selected_node] = None
            slot = self._nodes.present_slot(claim.selected_node)
            reach.ties.append(Tie(claim, 1 << slot if slot is not None else EMPTY, is_selection=True))

    def _add_volumes(self, reach: Reach, claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume]) -> None:
        nodes = EMPTY
        for volume in volumes:
            if volume.required_nodes is None:
                return
            reach.volumes[volume.key] = None
            nodes |= self._usable_on(volume)
        reach.ties.append(Tie(claim, nodes))

    def _usable_on(self, volume: PersistentVolume) -> NodeSet:
        """All nodes for a volume that cannot be translated: Filter says so, and does not blame the nodes."""
        try:
            return self._volume_reach.nodes_of(volume, self._nodes.present)
        except VolumeError:
            return self._nodes.present

    # -- devices -------------------------------------------------------------------------------------------------------

    def _add_entry(self, reach: Reach, pod: Pod, entry: PodResourceClaim) -> None:
        try:
            name, _ = claim_name(pod, entry)
        except Unresolved:
            reach.is_complete = False
            return
        key = f"{pod.metadata.namespace}/{name}"
        if name is not None and (RESOURCE_CLAIM, key) not in reach.topics:
            reach.topics[RESOURCE_CLAIM, key] = None
            self._add_resource_claim(reach, self._devices.claims.get(key))

    def _add_resource_claim(self, reach: Reach, claim: ResourceClaim | None) -> None:
        if claim is None:
            reach.is_complete = False
            return
        selector = claim.status.allocation.node_selector if claim.status.allocation is not None else None
        if selector is None:
            return
        for name in _named(selector):
            reach.topics[NODE, name] = None
        where = tuple(term.match_expressions for term in selector.node_selector_terms if term.match_expressions)
        if where:
            reach.selectors.append(where)
        reach.ties.append(Tie(claim, matching_selector(self._nodes, selector)))


def _named(selector: NodeSelector) -> Iterable[str]:
    """Node names that the selector's field requirements list."""
    for term in selector.node_selector_terms:
        for requirement in term.match_fields:
            yield from requirement.values
