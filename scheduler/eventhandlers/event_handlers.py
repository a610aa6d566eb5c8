"""Apply batches of deltas to cache and queue, and raise the cluster events that wake waiting pods.

The inbox calls it between attempts. An object that could not be read is logged once and takes no part in decisions; the
rest of its batch is applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import Delta
from scheduler.api.meta import Key
from scheduler.api.podinfo import PodInfo
from scheduler.context import Shared
from scheduler.core.cluster_events import ClusterEvent
from scheduler.eventhandlers.devices import DeviceHandlers
from scheduler.eventhandlers.nodes import apply_node
from scheduler.eventhandlers.pod_groups import PodGroupHandlers
from scheduler.eventhandlers.pods import PodHandlers
from scheduler.eventhandlers.storage import StorageHandlers
from scheduler.eventhandlers.workloads import workload_handlers
from scheduler.failure import FailureHandler
from scheduler.framework.preemption_state import Preempting
from scheduler.framework.wait import WaitingPodsMap

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Missed:
    """A change that could not be applied: from the last applied state to the newest known state."""

    delta: Delta[Any]
    pause_s: float
    due: float


class EventHandlers:
    """Apply the changes that the reflectors report.

    The store delivers each change once. A change that fails unexpectedly is retried after a pause that doubles from one
    second to a minute. The next change of the same object is applied together with it.

    Upstream: pkg/scheduler/eventhandlers.go addAllEventHandlers
    """

    def __init__(
        self,
        shared: Shared,
        failures: FailureHandler,
        *,
        is_binding: Callable[[str], bool],
        waiting_pods: WaitingPodsMap,
        derive: Callable[[Pod], PodInfo],
        preempting: Preempting,
    ) -> None:
        """Create the handlers of all kinds; the arguments are those of `PodHandlers` and `DeviceHandlers`."""
        self._queue = shared.queue
        self._clock = shared.clock
        self._metrics = shared.metrics
        self._began: float | None = None
        """Start of the running change; None between changes, and after the first event of a change."""
        self._updating_s = 0.0
        """Time that the cache took for the running change."""
        self._errors = shared.errors
        self.missed: dict[tuple[str, Key], _Missed] = {}
        self.pods = PodHandlers(
            shared, failures, self._move, is_binding=is_binding, waiting_pods=waiting_pods, derive=derive
        )
        self.storage = StorageHandlers(shared.cluster, self._move)
        self.devices = DeviceHandlers(shared.cluster, self._move, preempting)
        self.pod_groups = PodGroupHandlers(shared.cluster.pod_groups, self._move)
        self._handlers: dict[str, Callable[[Delta[Any]], None]] = {
            "Pod": self.pods.apply,
            "Node": partial(apply_node, shared.cluster, self._move),
            **workload_handlers(shared.cluster, self._move),
            **self.storage.handlers(),
            **self.devices.handlers(),
            **self.pod_groups.handlers(),
        }

    def apply(self, kind: str, deltas: Iterable[Delta[Any]]) -> None:
        """Apply one batch of the reflector of this kind. Raises KeyError for a kind without a handler.

        The deltas are applied one by one: the store delivers nothing twice, so one failure must not lose the rest.
        """
        apply = self._handlers[kind]
        for delta in deltas:
            change = self._with_missed(kind, delta) if self.missed else delta
            self._began, self._updating_s = self._clock.now(), 0.0
            try:
                apply(change)
            except Exception as error:  # noqa: BLE001 (an unforeseen failure costs this one object)
                self._miss(kind, change, error, _FIRST_PAUSE_S)
        self._began, self._updating_s = None, 0.0

    def tick(self) -> None:
        """Retry the failed changes that are due."""
        now = self._clock.now()
        for (kind, _), missed in [item for item in self.missed.items() if item[1].due <= now]:
            del self.missed[kind, _key(missed.delta)]
            try:
                self._handlers[kind](missed.delta)
            except Exception as error:  # noqa: BLE001 (as above)
                self._miss(kind, missed.delta, error, min(2 * missed.pause_s, _LONGEST_PAUSE_S))

    def _with_missed(self, kind: str, delta: Delta[Any]) -> Delta[Any]:
        """Return the change merged with the failed change before it, if there is one, and forget that one."""
        missed = self.missed.pop((kind, _key(delta)), None)
        return delta if missed is None else Delta(missed.delta.old, delta.new)

    def _miss(self, kind: str, delta: Delta[Any], error: Exception, pause_s: float) -> None:
        key = _key(delta)
        self._errors.record("event-handler", error, "change could not be applied", kind=kind, key=key)
        self.missed[kind, key] = _Missed(delta, pause_s, self._clock.now() + pause_s)

    def _move(self, event: ClusterEvent, old: object, new: object) -> None:
        """Wake pods. The time that the cache took is part of the duration of each event of the change."""
        began = self._clock.now()
        if self._began is not None:
            self._updating_s = began - self._began
            self._began = None
        self._queue.move_all(event, old, new)
        self._metrics.event_handled(event.label, self._updating_s + self._clock.now() - began)


def _key(delta: Delta[Any]) -> Key:
    shown = delta.new if delta.new is not None else delta.old
    return shown.key if shown is not None else ""
