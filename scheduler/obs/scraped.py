"""What others count, read when a scrape comes: queue lengths, cache sizes, streams, what is in flight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from prometheus_client.core import Metric

from scheduler.obs.instruments import counter_family, gauge_family

Counts: TypeAlias = Mapping[str, int]


class ReflectorStats(Protocol):
    """What the mirror of one kind counts about itself; counts only grow, `objects` and `silent_s` do not."""

    @property
    def objects(self) -> int: ...
    @property
    def events(self) -> Counts: ...
    @property
    def relists(self) -> Counts: ...
    @property
    def silent_s(self) -> float: ...
    @property
    def synthesised_deletes(self) -> int: ...
    @property
    def decode_errors(self) -> int: ...


@dataclass(slots=True)
class Sources:
    """Callbacks of `Metrics.bind_*`; those not bound give nothing."""

    pending: Callable[[], Counts] = dict
    inflight_events: Callable[[], Counts] = dict
    cache: Callable[[], Counts] = dict
    bindings_in_flight: Callable[[], int] | None = None
    reflectors: Callable[[], Mapping[str, ReflectorStats]] = dict
    recorder: Callable[[], Counts] = dict
    leading: Callable[[], Counts] = dict
    bytes_in_flight: Callable[[], Counts] = dict
    capacity_version: Callable[[], str | None] = lambda: None
    device_kinds: Callable[[], Counts] = dict


def families(sources: Sources) -> list[Metric]:
    """All of them."""
    return [*_gauges(sources), *_of_volumes(sources), *_of_devices(sources), *_of_reflectors(sources.reflectors())]


def _gauges(sources: Sources) -> list[Metric]:
    bindings = {} if sources.bindings_in_flight is None else {"binding": sources.bindings_in_flight()}
    return [
        gauge_family("scheduler_pending_pods", "Pods waiting, by part of the queue.", "queue", sources.pending()),
        gauge_family(
            "scheduler_inflight_events", "Events kept for pods being tried.", "event", sources.inflight_events()
        ),
        gauge_family("scheduler_cache_size", "Nodes, pods and assumed pods in the cache.", "type", sources.cache()),
        gauge_family("scheduler_goroutines", "Running tasks, by what they do.", "operation", bindings),
        gauge_family("leader_election_master_status", "1 while this process holds the lease.", "name", sources.leading()),
        counter_family(
            "kubestow_recorder_events", "Events about pods, by what became of them.", ["outcome"],
            {(outcome,): count for outcome, count in sources.recorder().items()},
        ),
    ]  # fmt: skip


def _of_reflectors(kinds: Mapping[str, ReflectorStats]) -> list[Metric]:
    events = {(kind, type_): n for kind, stats in kinds.items() for type_, n in stats.events.items()}
    relists = {(kind, cause): n for kind, stats in kinds.items() for cause, n in stats.relists.items()}
    deletes = {(kind,): stats.synthesised_deletes for kind, stats in kinds.items()}
    errors = {(kind,): stats.decode_errors for kind, stats in kinds.items()}
    return [
        gauge_family("kubestow_watch_objects", "Mirrored objects.", "kind", {k: s.objects for k, s in kinds.items()}),
        gauge_family(
            "kubestow_watch_silent_seconds", "Since the server last sent a byte.", "kind",
            {k: s.silent_s for k, s in kinds.items()},
        ),
        counter_family("kubestow_watch_events", "Watch events received.", ["kind", "type"], events),
        counter_family("kubestow_watch_relists", "Fresh lists, by cause.", ["kind", "cause"], relists),
        counter_family("kubestow_watch_synthesised_deletes", "Objects that a fresh list no longer had.", ["kind"], deletes),
        counter_family("kubestow_watch_decode_errors", "Objects that could not be read.", ["kind"], errors),
    ]  # fmt: skip


def _of_volumes(sources: Sources) -> list[Metric]:
    version = sources.capacity_version()
    return [
        gauge_family(
            "kubestow_volume_bytes_in_flight",
            "Bytes that are taken off published capacity, because volumes of that size are being made.",
            "storage_class",
            sources.bytes_in_flight(),
        ),
        gauge_family(
            "scheduler_volume_capacity_api_info",
            "Always 1; the label says in which version CSIStorageCapacity is read.",
            "version",
            {} if version is None else {version: 1},
        ),
    ]


def _of_devices(sources: Sources) -> list[Metric]:
    return [
        gauge_family(
            "kubestow_device_kind_served",
            "1 where the API server has a kind that devices are allocated by, 0 where it has not.",
            "kind",
            sources.device_kinds(),
        )
    ]
