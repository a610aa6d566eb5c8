"""UnsupportedFeatures: pods with features that this version does not implement are rejected (docs/spec/core.md §11).

No configuration turns it off. A plugin that implements a feature removes its line here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.api.core_v1 import Pod
from scheduler.api.podinfo import PodInfo
from scheduler.core.cluster_events import UPDATE, ClusterEvent, Resource
from scheduler.core.nodeset import NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.interface import CycleState, DryRun, EventHint, Hint
from scheduler.framework.status import SKIP, Code, Groups, Rejection, Skip


class UnsupportedFeatures:
    """PreFilter, before every other plugin."""

    name: Final = "UnsupportedFeatures"

    def __init__(self, args: object, handle: Handle) -> None:
        pass

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Rejection | Skip:
        """Reject the pod with one reason per unsupported feature."""
        found = unsupported(pod.pod)
        if not found:
            return SKIP
        reasons = tuple(f"pod uses {what}, which kubestow cannot judge yet" for what in found)
        return Rejection(self.name, Code.UNRESOLVABLE, reasons)

    def post_filter(self, state: CycleState, pod: PodInfo, refused: Groups, what_if: DryRun) -> Rejection:
        """Preempt no pods for an unsupported pod, and add no reason; pass all other pods on."""
        if unsupported(pod.pod):
            return Rejection(self.name, Code.UNRESOLVABLE, ())
        return Rejection(self.name, Code.UNSCHEDULABLE, ())

    def events_to_register(self) -> Sequence[EventHint]:
        """Return the event of a pod that no longer uses an unsupported feature."""
        return (EventHint(ClusterEvent(Resource.TARGET_POD, UPDATE), _after_update),)


def unsupported(pod: Pod) -> list[str]:
    """Return the unsupported features of the pod as texts."""
    return [] if pod.spec.scheduling_group is None else ["a scheduling group"]


def _after_update(pod: PodInfo, _old: PodInfo | None, new: PodInfo | None) -> Hint:
    # A pod that would be rejected again is not queued, so frequent label changes cost nothing.
    return Hint.QUEUE if new is not None and new.uid == pod.uid and not unsupported(new.pod) else Hint.SKIP
