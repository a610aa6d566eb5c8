"""UnsupportedFeatures: what this version cannot judge is refused in plain words, never bound (docs/spec/core.md §11).

Always on: no configuration switches it off. Each plugin that arrives takes its line away.
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

_ITSELF: Final = ClusterEvent(Resource.UNSCHEDULABLE_POD, UPDATE)


class UnsupportedFeatures:
    """PreFilter, before every other plugin."""

    name: Final = "UnsupportedFeatures"

    def __init__(self, args: object, handle: Handle) -> None:
        pass

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Rejection | Skip:
        """Names everything in the pod that cannot be judged, one reason each."""
        found = unsupported(pod.pod)
        if not found:
            return SKIP
        reasons = tuple(f"pod uses {what}, which kubestow cannot judge yet" for what in found)
        return Rejection(self.name, Code.UNRESOLVABLE, reasons)

    def post_filter(self, state: CycleState, pod: PodInfo, refused: Groups, what_if: DryRun) -> Rejection:
        """Nobody is evicted for such a pod, and nothing more is said of it. Others are let through."""
        if unsupported(pod.pod):
            return Rejection(self.name, Code.UNRESOLVABLE, ())
        return Rejection(self.name, Code.UNSCHEDULABLE, ())

    def events_to_register(self) -> Sequence[EventHint]:
        """The pod itself no longer asks for it."""
        return (EventHint(_ITSELF, _after_update),)


def unsupported(pod: Pod) -> list[str]:
    """What in this pod cannot be judged yet, in words; empty for a pod that can be placed."""
    spec = pod.spec
    found = []
    if spec.scheduling_group is not None:
        found.append("a scheduling group")
    return found


def _after_update(pod: PodInfo, _old: PodInfo | None, new: PodInfo | None) -> Hint:
    # A pod that is still refused stays where it is, however often its labels change.
    return Hint.QUEUE if new is not None and new.uid == pod.uid and not unsupported(new.pod) else Hint.SKIP
