"""GangScheduling: a pod of a group is not tried before its group is complete (docs/spec/groups.md §3).

A worked example, with a group of `minCount: 3`:

    1. pod a is added                   1 of 3: a is gated
    2. the PodGroup is added            still 1 of 3: nothing moves
    3. pod b is added                   2 of 3: b is gated
    4. pod c is added                   complete: c enters the queue, and the event of c releases a and b

The three are then tried together (scheduler/groups/cycle.py). A refused group waits for the events of the plugins that rejected its
pods, and for what this plugin registers: one more pod, or a changed PodGroup. With a topology constraint it also waits for nodes that
change their domain, and for the end of a pod that decided about the domain.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Final

from scheduler.api.core_v1 import Node
from scheduler.api.pod_group import KINDS, AnyPodGroup, GroupKey, group_of
from scheduler.api.podinfo import PodInfo
from scheduler.core.cluster_events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    UNSCHEDULED_POD_ADD,
    UPDATE,
    Action,
    ClusterEvent,
    Resource,
)
from scheduler.core.feature_gates import GROUP_TEXTS
from scheduler.framework.handle import Handle
from scheduler.framework.interface import EventHint, Hint, Topics, by_node_labels, label
from scheduler.framework.status import Code, Rejection

INCOMPLETE: Final = "GroupIncomplete"


class GangScheduling:
    """PreEnqueue. Without it, pods of groups are placed one by one.

    Upstream: pkg/scheduler/framework/plugins/gangscheduling/gangscheduling.go GangScheduling
    """

    name: Final = "GangScheduling"
    reads: Final = KINDS

    def __init__(self, args: object, handle: Handle) -> None:
        self._groups = handle.cluster.pod_groups
        self._counts_all = GROUP_TEXTS in handle.feature_gates

    def pre_enqueue(self, pod: PodInfo) -> Rejection | None:
        """Reject the pod while its group lacks an object or pods. O(1)."""
        group = self._groups.of(pod.pod)
        if group is None or self._groups.is_complete(group):
            return None
        return Rejection(self.name, Code.UNRESOLVABLE, (self._reason(group),), cause=INCOMPLETE)

    def _reason(self, group: GroupKey) -> str:
        if self._groups.get(group) is None:
            if self._counts_all:
                return f'pod group "{group.name}" or one of its composite pod group ancestors has not been created yet'
            return f'waiting for pods\'s pod group "{group.name}" to appear in scheduling queue'
        if self._counts_all:
            return f"waiting for podgroup/{group.key} to meet its quorum"
        return "waiting for minCount pods from a gang to appear in scheduling queue"

    def events_to_register(self) -> Sequence[EventHint]:
        """Return the events of pods and objects of the group, and of nodes that change their domain."""
        topics = Topics(_topics_of_pod, self._topics_of_event)
        events = (UNSCHEDULED_POD_ADD, ASSIGNED_POD_ADD, ClusterEvent(Resource.POD_GROUP, Action.ADD | UPDATE))
        node = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)
        return (
            *(EventHint(event, self._after_change, _shape, topics) for event in events),
            EventHint(ASSIGNED_POD_DELETE, self._after_departure, _shape, topics),
            EventHint(node, self._after_node, _shape, Topics(self._topics_of_domain, by_node_labels)),
        )

    def _after_change(self, pod: PodInfo, _old: object, _new: object) -> Hint:
        """Queue the pods of a complete group, all of them at once: the topics have found the group."""
        group = self._groups.of(pod.pod)
        return Hint.QUEUE if group is None or self._groups.is_complete(group) else Hint.SKIP

    def _after_departure(self, pod: PodInfo, _old: object, _new: object) -> Hint:
        """Queue the pods of a group with a constraint: other domains may be open now."""
        return Hint.QUEUE if self._topology_key(pod) else Hint.SKIP

    def _after_node(self, pod: PodInfo, old: Node | None, new: Node | None) -> Hint:
        """Queue the pods of a group with a constraint if the node is in another domain than before."""
        key = self._topology_key(pod)
        before, now = (node.metadata.labels.get(key, "") if node is not None else "" for node in (old, new))
        return Hint.QUEUE if key and now and now != before else Hint.SKIP

    def _topology_key(self, pod: PodInfo) -> str:
        group = self._groups.of(pod.pod)
        wanted = self._groups.get(group) if group is not None else None
        return wanted.topology_key if wanted is not None else ""

    def _topics_of_domain(self, pod: PodInfo) -> Iterable[Hashable]:
        key = self._topology_key(pod)
        return (label(key),) if key else ()

    def _topics_of_event(
        self, old: PodInfo | AnyPodGroup | None, new: PodInfo | AnyPodGroup | None
    ) -> Iterable[Hashable] | None:
        """Return the group of the pod or object if it is complete, else none; None if the event is about all groups.

        So the arrival of each of a thousand pods costs nothing for those that wait already, until the last one comes.
        """
        changed = new if new is not None else old
        if changed is None:
            return None
        group = group_of(changed.pod) if isinstance(changed, PodInfo) else changed.group
        return (group,) if group is not None and self._groups.is_complete(group) else ()


def _shape(pod: PodInfo) -> Hashable:
    return group_of(pod.pod)


def _topics_of_pod(pod: PodInfo) -> Iterable[Hashable]:
    group = group_of(pod.pod)
    return () if group is None else (group,)
