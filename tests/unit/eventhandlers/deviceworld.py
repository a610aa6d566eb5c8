"""A cluster with devices, and the calls that event handlers make, with the state of the cache at each call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scheduler.api.decode import Broken, Delta
from scheduler.api.meta import Metadata
from scheduler.api.resource_v1 import DeviceId
from scheduler.cache.cluster import Cluster
from scheduler.core.cluster_events import Action, ClusterEvent
from scheduler.core.feature_gates import DEVICE_GATES_ON
from scheduler.eventhandlers.devices import DeviceHandlers
from scheduler.framework.preemption_state import Preempting
from simulator.builders.claims import ClaimBuilder, a_claim, a_result
from tests.support.clock import VirtualClock

ADD, CHANGED, DELETE = Action.ADD, Action.UPDATE_OTHER, Action.DELETE
D0 = DeviceId("drv", "n1", "d0")
CLAIM = a_claim("c").uid("c")
HELD = CLAIM.allocated(a_result("r", str(D0)))


class Hearing:
    """Takes the place of the queue and of subscribers. `shown` returns the state of the cache."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.shown: Callable[[], Any] = lambda: None

    def handlers(self) -> Mapping[str, Callable[[Delta[Any]], None]]:
        raise NotImplementedError

    def move(self, event: ClusterEvent, old: object, new: object) -> None:
        self.heard.append((event.resource.value.rpartition("/")[2], event.action, old, new, self.shown()))

    def notified(self) -> None:
        self.heard.append(("notified", self.shown()))

    def feed(self, kind: str, old: Any, new: Any) -> list[tuple[Any, ...]]:
        """Return the calls that this delta causes."""
        self.heard.clear()
        self.handlers()[kind](Delta(old, new))
        return list(self.heard)


class HandlersWorld(Hearing):
    """A cluster with devices, its event handlers, and the calls that they make."""

    def __init__(self, gates: frozenset[str] = DEVICE_GATES_ON) -> None:
        super().__init__()
        self.cluster = Cluster(VirtualClock(), gates)
        self.devices = self.cluster.devices
        self.event_handlers = DeviceHandlers(self.cluster, self.move, Preempting())

    def handlers(self) -> Mapping[str, Callable[[Delta[Any]], None]]:
        return self.event_handlers.handlers()

    def tick(self) -> list[tuple[Any, ...]]:
        """Return the calls that a turn of the loop causes."""
        self.heard.clear()
        self.event_handlers.tick()
        return list(self.heard)

    def taints(self, name: str) -> dict[str, list[str]]:
        """Return the keys of the taints of each device of a slice, rules included."""
        each = self.devices.slice(name)
        return {} if each is None else {d.name: [t.key for t in d.taints] for d in each.spec.devices}


def broken(kind: str, obj: Any, why: str = "no number") -> Broken:
    seen = obj.metadata
    return Broken(kind=kind, metadata=Metadata(name=seen.name, namespace=seen.namespace, uid=seen.uid), why=why)


def at(claim: ClaimBuilder, version: int) -> Any:
    return claim.resource_version(str(version)).typed()
