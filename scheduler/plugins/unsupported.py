"""UnsupportedFeatures: what this version cannot judge is refused in plain words, never bound (docs/spec/core.md §11).

Always on: no configuration switches it off. Each plugin that arrives takes its line away. Part of InterPodAffinity
stands here already: a plain pod does not go where the required anti-affinity of pods on nodes forbids it (§5.9).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

from scheduler.cache.antiaffinity import anti_affinity_terms
from scheduler.core.events import ASSIGNED_POD_DELETE, UPDATE, Action, ClusterEvent, Resource
from scheduler.core.node import Node
from scheduler.core.nodeset import NodeSet
from scheduler.core.pod import Pod, PodAffinity
from scheduler.core.podinfo import PodInfo
from scheduler.core.verdicts import Code, Groups, Rejection
from scheduler.framework.hints import EventHint, Hint
from scheduler.framework.memo import ByObjects
from scheduler.framework.ports import Handle
from scheduler.framework.state import CycleState

_ITSELF: Final = ClusterEvent(Resource.UNSCHEDULABLE_POD, UPDATE)
_NODE: Final = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)


class UnsupportedFeatures:
    """PreFilter and Filter, before every other plugin."""

    name: Final = "UnsupportedFeatures"
    _kept_away: Final = Rejection(
        name, Code.UNSCHEDULABLE, ("node(s) didn't satisfy existing pods anti-affinity rules",)
    )

    def __init__(self, args: object, handle: Handle) -> None:
        self._nodes = handle.cluster.nodes
        self._index = self._nodes.anti_affinity
        self._refused: ByObjects[NodeSet] = ByObjects(self._nodes)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Rejection | None:
        """Names everything in the pod that cannot be judged, one reason each.

        Never Skip: pods with anti-affinity may come in a trial, or before the second look of Filter.
        """
        found = unsupported(pod.pod)
        if not found:
            return None
        reasons = tuple(f"pod uses {what}, which kubestow cannot judge yet" for what in found)
        return Rejection(self.name, Code.UNRESOLVABLE, reasons)

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups:
        """Nodes in a topology that a pod on a node keeps this one out of. Free while no pod anywhere does so."""
        if not self._index:
            return {}
        shape = (self._index.generation, _who(pod))
        out = nodes & self._refused.get(shape, lambda: self._index.refusing(pod, self._nodes.labels))
        return {self._kept_away: out} if out else {}

    def events_to_register(self) -> Sequence[EventHint]:
        """The pod itself no longer asks for it; or a pod that kept it away went, or nodes and topologies changed."""
        return (
            EventHint(_ITSELF, _after_update),
            EventHint(ASSIGNED_POD_DELETE, _after_pod_gone, _who_is_judged),
            EventHint(_NODE, self._after_node, _who_is_judged),
        )

    def _after_node(self, pod: PodInfo, old: Node | None, new: Node | None) -> Hint:
        if new is None or unsupported(pod.pod):
            return Hint.SKIP
        if old is None:
            return Hint.QUEUE
        # Also a node that leaves a topology and takes with it the pod that closed it to the others.
        before, after = old.metadata.labels, new.metadata.labels
        moved = {key for key in (*before, *after) if before.get(key) != after.get(key)}
        opens = any(group.term.topology_key in moved and group.term.may_match(pod) for group in self._index.groups())
        return Hint.QUEUE if opens else Hint.SKIP


def unsupported(pod: Pod) -> list[str]:
    """What in this pod cannot be judged yet, in words; empty for a pod that can be placed."""
    spec = pod.spec
    found = []
    if any(volume.persistent_volume_claim is not None for volume in spec.volumes):
        found.append("persistentVolumeClaim volumes")
    if any(volume.ephemeral is not None for volume in spec.volumes):
        found.append("ephemeral volumes")
    if spec.resource_claims:
        found.append("resource claims")
    if spec.topology_spread_constraints:
        found.append("topology spread constraints")
    if spec.affinity is not None and _has_terms(spec.affinity.pod_affinity):
        found.append("pod affinity")
    if spec.affinity is not None and _has_terms(spec.affinity.pod_anti_affinity):
        found.append("pod anti-affinity")
    if spec.scheduling_group is not None:
        found.append("a scheduling group")
    return found


def _has_terms(rules: PodAffinity | None) -> bool:
    return rules is not None and bool(rules.required or rules.preferred)


def _who(pod: PodInfo) -> Hashable:
    # All that other pods' anti-affinity looks at.
    return pod.pod.metadata.namespace, tuple(sorted(pod.pod.metadata.labels.items()))


def _who_is_judged(pod: PodInfo) -> Hashable:
    return None if unsupported(pod.pod) else _who(pod)


def _after_update(pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> Hint:
    # A pod that is still refused stays where it is, however often its labels change.
    if new is None or new.uid != pod.uid or unsupported(new.pod):
        return Hint.SKIP
    is_news = old is None or unsupported(old.pod) or _who(old) != _who(new)
    return Hint.QUEUE if is_news else Hint.SKIP


def _after_pod_gone(pod: PodInfo, old: PodInfo | None, _new: PodInfo | None) -> Hint:
    if old is None or unsupported(pod.pod):
        return Hint.SKIP
    return Hint.QUEUE if any(term.may_match(pod) for term in anti_affinity_terms(old)) else Hint.SKIP
