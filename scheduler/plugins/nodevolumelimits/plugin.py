"""The plugin's points. Filter answers for all nodes with a few operations on columns and sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Final

from scheduler.api.podinfo import PodInfo
from scheduler.api.storage_v1 import CSISource
from scheduler.config.types import VOLUME_LIMIT_SCALING
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.interface import CycleState, EventHint, StateKey, Tally
from scheduler.framework.status import SKIP, Code, Groups, Rejection, Skip
from scheduler.plugins.nodevolumelimits.attached_volumes import (
    MAX_VOLUMES,
    PLUGIN,
    AttachCheck,
    RemainingAttachments,
    WantedVolumes,
    wanted_by,
)
from scheduler.plugins.nodevolumelimits.hints import NodeVolumeLimitsHints

_WANTED: Final[StateKey[tuple[int, WantedVolumes]]] = StateKey("nodevolumelimits.wanted")


class NodeVolumeLimits:
    """PreFilter, Filter.

    Upstream: pkg/scheduler/framework/plugins/nodevolumelimits/csi.go CSILimits
    """

    name: Final = PLUGIN
    reads: Final = frozenset(
        {"PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode", "CSIDriver", "VolumeAttachment"}
    )

    def __init__(self, args: object, handle: Handle) -> None:
        self._cluster = handle.cluster
        self._volumes = handle.cluster.volumes
        self._attached = handle.cluster.volumes.attached
        self._is_charged_twice = handle.ours.count_attached_twice
        self._required = frozenset(handle.ours.require_csi_node_drivers)
        self._is_scaling = VOLUME_LIMIT_SCALING in handle.feature_gates
        self._hints = NodeVolumeLimitsHints(is_scaling=self._is_scaling, as_upstream=handle.ours.parity)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Skip | None:
        """Skip for pods that have nothing attached."""
        return None if pod.claims or pod.disks else SKIP

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups:
        """Out are nodes without a driver that must be there, and those that cannot attach what is not there yet."""
        self._attached.catch_up()
        wanted = self._wanted(state, pod)
        groups = self._fixed(wanted, nodes)
        for out in groups.values():
            nodes &= ~out
        out = self._full(wanted, nodes)
        if out:
            groups[MAX_VOLUMES] = out
        return groups

    def tally(self, state: CycleState, pod: PodInfo, slot: int) -> Tally:
        """What pods on this node have attached."""
        self._attached.catch_up()
        wanted = self._wanted(state, pod)
        fixed = next(iter(self._fixed(wanted, 1 << slot)), None)
        names = wanted.names if fixed is None else ()
        room = RemainingAttachments(
            self._cluster, slot, names, shared=self._shared(wanted), twice=self._is_charged_twice
        )
        return AttachCheck(room, here=self._cluster.nodes.pods(slot).keys(), fixed=fixed)

    def tally_shape(self, pod: PodInfo) -> Hashable:
        """What it wants: by name where somebody shares it or may come to, else how many of which driver."""
        self._attached.catch_up()
        wanted = wanted_by(pod, self._volumes)
        shared = self._shared(wanted)
        others = Counter((name.driver, name in wanted.in_tree) for name in wanted.names if name not in shared)
        missing = tuple(self._must_be_there(wanted))
        return shared, frozenset(others.items()), missing, wanted.problem, wanted.problem_with_csi_node

    def events_to_register(self) -> Sequence[EventHint]:
        """Volumes are detached, limits grow, drivers and the pod's own claims turn up."""
        return self._hints.events()

    def _wanted(self, state: CycleState, pod: PodInfo) -> WantedVolumes:
        """As the caches are now: between an attempt and the second look before Bind a claim may be bound."""
        version = self._attached.version
        if state.has(_WANTED):
            seen, wanted = state.get(_WANTED)
            if seen == version:
                return wanted
        wanted = wanted_by(pod, self._volumes)
        state.set(_WANTED, (version, wanted))
        return wanted

    def _shared(self, wanted: WantedVolumes) -> frozenset[CSISource]:
        """Those that pods beside this one may use: in use or attached somewhere, or for many nodes.

        All others are alike, so that the pods of a StatefulSet share answers; that somebody nominated to the same node
        shares such a claim is not counted in the pod's favour.
        """
        users, holders = self._attached.users, self._attached.holders
        return frozenset(name for name in wanted.names if name not in wanted.own or users(name) or holders(name))

    def _fixed(self, wanted: WantedVolumes, nodes: NodeSet) -> Groups:
        """Refusals that no pod on a node makes or mends."""
        groups: Groups = {}
        if wanted.problem_with_csi_node is not None:
            out = nodes & self._attached.with_csi_node
            nodes &= ~out
            if out:
                groups[wanted.problem_with_csi_node] = out
        if wanted.problem is not None:
            if nodes:
                groups[wanted.problem] = groups.get(wanted.problem, EMPTY) | nodes
            return groups
        for driver, where in self._must_be_there(wanted):
            out = nodes & where & ~self._attached.installed(driver)
            nodes &= ~out
            if out:
                text = f"{driver} CSI driver is not installed on the node"
                groups[Rejection(PLUGIN, Code.UNSCHEDULABLE, (text,))] = out
        return groups

    def _must_be_there(self, wanted: WantedVolumes) -> Iterator[tuple[str, NodeSet]]:
        """Drivers without which a node does not do, and the nodes that this is asked of."""
        if not self._required and not self._is_scaling:
            return
        for driver, is_everywhere in wanted.drivers.items():
            known = self._volumes.drivers.get(driver)
            if driver in self._required:
                yield driver, ~EMPTY
            elif self._is_scaling and known is not None and known.spec.prevent_pod_scheduling_if_missing:
                yield driver, ~EMPTY if is_everywhere else self._attached.with_csi_node

    def _full(self, wanted: WantedVolumes, nodes: NodeSet) -> NodeSet:
        """Nodes where some driver cannot attach what it has not attached yet."""
        full = EMPTY
        for driver in wanted.drivers if nodes else ():
            names = [name for name in wanted.names if name.driver == driver]
            short = nodes & self._attached.over(driver, len(names))
            if short:
                full |= self._short(driver, names, short)
        return full

    def _short(self, driver: str, names: list[CSISource], nodes: NodeSet) -> NodeSet:
        """Of nodes too full for all of these, those too full for the ones that are not there yet."""
        at_least = [nodes, *(EMPTY for _ in names)]
        """Nodes that have at least so many of them."""
        for name in names:
            here = self._attached.users(name)
            if not self._is_charged_twice:
                here |= self._attached.holders(name)
            for count in range(len(names), 0, -1):
                at_least[count] |= at_least[count - 1] & here
        out = at_least[0] & ~at_least[1]
        for count in range(1, len(names)):
            exactly = at_least[count] & ~at_least[count + 1]
            if exactly:
                out |= exactly & self._attached.over(driver, len(names) - count)
        return out
