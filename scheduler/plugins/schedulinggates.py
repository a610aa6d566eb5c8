"""SchedulingGates: a pod with gates does not enter the queue (docs/spec/core.md §5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.core.events import Action, ClusterEvent, Resource
from scheduler.core.podinfo import PodInfo
from scheduler.core.verdicts import Code, Rejection
from scheduler.framework.hints import EventHint
from scheduler.framework.ports import Handle
from scheduler.framework.shapes import queue_itself

_GATES_GONE: Final = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)


class SchedulingGates:
    """PreEnqueue."""

    name: Final = "SchedulingGates"

    def __init__(self, args: object, handle: Handle) -> None:
        pass

    def pre_enqueue(self, pod: PodInfo) -> Rejection | None:
        """Refused while any gate is there; the text lists them in the pod's order."""
        gates = pod.pod.spec.scheduling_gates
        if not gates:
            return None
        names = " ".join(gate.name for gate in gates)
        return Rejection(self.name, Code.UNRESOLVABLE, (f"waiting for scheduling gates: [{names}]",))

    def events_to_register(self) -> Sequence[EventHint]:
        """The pod itself lost its last gate."""
        return (EventHint(_GATES_GONE, queue_itself),)
