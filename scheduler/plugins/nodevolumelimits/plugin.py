"""NodeVolumeLimits at its extension points. Filter decides for all nodes with operations on columns and sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Final

from scheduler.api.podinfo import PodInfo
from scheduler.api.storage_v1 import CSISource
from scheduler.core.feature_gates import VOLUME_LIMIT_SCALING
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
        """Skip pods without volumes to attach."""
        return None if pod.claims or pod.disks else SKIP

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups:
        """Reject nodes without a required driver, and nodes that cannot attach the missing volumes."""
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
        """Count the volumes that pods on this node have attached."""
        self._attached.catch_up()
        wanted = self._wanted(state, pod)
        fixed = next(iter(self._fixed(wanted, 1 << slot)), None)
        names = wanted.names if fixed is None else ()
        free = RemainingAttachments(
            self._cluster, slot, names, shared=self._shared(wanted), twice=self._is_charged_twice
        )
        return AttachCheck(free, here=self._cluster.nodes.pods(slot).keys(), fixed=fixed)

    def tally_shape(self, pod: PodInfo) -> Hashable:
        """Return the names of volumes that other pods may share, and the number of other volumes per driver."""
        self._attached.catch_up()
        wanted = wanted_by(pod, self._volumes)
        shared = self._shared(wanted)
        others = Counter((name.driver, name in wanted.in_tree) for name in wanted.names if name not in shared)
        missing = tuple(self._must_be_there(wanted))
        return shared, frozenset(others.items()), missing, wanted.problem, wanted.problem_with_csi_node

    def events_to_register(self) -> Sequence[EventHint]:
        """Return the events of detached volumes, of changed limits and drivers, and of the pod's claims."""
        return self._hints.events()

    def _wanted(self, state: CycleState, pod: PodInfo) -> WantedVolumes:
        """Return the pod's volumes as of now: a claim may be bound between the attempt and the check before Bind."""
        version = self._attached.version
        if state.has(_WANTED):
            seen, wanted = state.get(_WANTED)
            if seen == version:
                return wanted
        wanted = wanted_by(pod, self._volumes)
        state.set(_WANTED, (version, wanted))
        return wanted

    def _shared(self, wanted: WantedVolumes) -> frozenset[CSISource]:
        """Return the volumes that other pods may use: in use or attached anywhere, or for many nodes.

        All other volumes are equivalent, so that the pods of a StatefulSet share results. If a pod nominated to the
        same node shares such a claim, this is not counted in the pod's favor.
        """
        users, holders = self._attached.users, self._attached.holders
        return frozenset(name for name in wanted.names if name not in wanted.own or users(name) or holders(name))

    def _fixed(self, wanted: WantedVolumes, nodes: NodeSet) -> Groups:
        """Return the rejections that do not depend on the pods of a node."""
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
        """Yield each driver that a node must have, and the nodes that must have it."""
        if not self._required and not self._is_scaling:
            return
        for driver, is_everywhere in wanted.drivers.items():
            known = self._volumes.drivers.get(driver)
            if driver in self._required:
                yield driver, ~EMPTY
            elif self._is_scaling and known is not None and known.spec.prevent_pod_scheduling_if_missing:
                yield driver, ~EMPTY if is_everywhere else self._attached.with_csi_node

    def _full(self, wanted: WantedVolumes, nodes: NodeSet) -> NodeSet:
        """Return nodes where a driver cannot attach the missing volumes."""
        full = EMPTY
        for driver in wanted.drivers if nodes else ():
            names = [name for name in wanted.names if name.driver == driver]
            short = nodes & self._attached.over(driver, len(names))
            if short:
                full |= self._short(driver, names, short)
        return full

    def _short(self, driver: str, names: list[CSISource], nodes: NodeSet) -> NodeSet:
        """Return those of the nodes, too full for all these volumes, that are too full for the missing ones."""
        at_least = [nodes, *(EMPTY for _ in names)]
        """Index → nodes that have at least this many of the volumes."""
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
