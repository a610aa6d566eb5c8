"""SchedulingGates: a pod with gates does not enter the queue (docs/spec/core.md §5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.api.podinfo import PodInfo
from scheduler.core.cluster_events import Action, ClusterEvent, Resource
from scheduler.framework.handle import Handle
from scheduler.framework.interface import EventHint
from scheduler.framework.memo import queue_itself
from scheduler.framework.status import Code, Rejection


class SchedulingGates:
    """PreEnqueue.

    Upstream: pkg/scheduler/framework/plugins/schedulinggates/scheduling_gates.go SchedulingGates
    """

    name: Final = "SchedulingGates"

    def __init__(self, args: object, handle: Handle) -> None:
        pass

    def pre_enqueue(self, pod: PodInfo) -> Rejection | None:
        """Reject the pod while it has gates; the text lists them in the pod's order."""
        gates = pod.pod.spec.scheduling_gates
        if not gates:
            return None
        names = " ".join(gate.name for gate in gates)
        return Rejection(self.name, Code.UNRESOLVABLE, (f"waiting for scheduling gates: [{names}]",))

    def events_to_register(self) -> Sequence[EventHint]:
        """Return the event of a pod that lost its last gate."""
        gates_gone = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
        return (EventHint(gates_gone, queue_itself),)
