"""Values that other parts count, read at a scrape: queue lengths, cache sizes, streams, work in flight.

Each callback is called once per scrape, on the event loop. It must be fast for any cluster size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from scheduler.metrics.instruments import Family, counter_family, gauge_family, plain_gauge

Counts: TypeAlias = Mapping[str, int]
Ages: TypeAlias = Mapping[str, float]


class ReflectorCounts(Protocol):
    """Counters of the reflector of one kind. They only grow, except `objects` and durations."""

    @property
    def objects(self) -> int: ...
    @property
    def events(self) -> Counts: ...
    @property
    def relists(self) -> Counts: ...
    @property
    def silent_s(self) -> float: ...
    @property
    def down_s(self) -> float: ...
    @property
    def failures_total(self) -> int: ...
    @property
    def absent(self) -> bool: ...
    @property
    def synthesised_deletes(self) -> int: ...
    @property
    def decode_errors(self) -> int: ...


class MissingPermission(Protocol):
    """A missing permission or kind that the self-check found."""

    @property
    def check(self) -> str: ...
    @property
    def is_needed(self) -> bool: ...


@dataclass(slots=True)
class ScrapedSources:
    """Callbacks. Each part sets its own once; a callback that is not set returns nothing."""

    has_entities: bool = False
    """Whether kube-scheduler has the series of entities, that is from 1.37 on."""
    event_label: Callable[[str], str] = str
    """Label of an event → the text that kube-scheduler's version has."""
    pending: Callable[[], Counts] = dict
    """Pods by part of the queue."""
    inflight_events: Callable[[], Counts] = dict
    """Events kept for pods being tried, by label."""
    cache: Callable[[], Counts] = dict
    """Cache sizes by type."""
    healed: Callable[[], int | None] = lambda: None
    bindings_in_flight: Callable[[], int | None] = lambda: None
    """Running binding tasks."""
    assumed_oldest_s: Callable[[], Ages] = dict
    """By state: `binding`, and `bound` for pods that the watch has not confirmed."""
    reflectors: Callable[[], Mapping[str, ReflectorCounts]] = dict
    synced: Callable[[], Counts] = dict
    """1 or 0 by kind, for the kinds that must be synced."""
    missing: Callable[[], Iterable[MissingPermission] | None] = lambda: None
    """Missing permissions and kinds; None without a self-check."""
    recorder: Callable[[], Counts] = dict
    """Events about pods by outcome: `sent`, `failed`, `dropped`."""
    recorder_queued: Callable[[], int | None] = lambda: None
    writes_waiting: Callable[[], int | None] = lambda: None
    """Writes that wait for the client-side limit."""
    unforeseen_errors: Callable[[], Counts] = dict
    """By part of the daemon."""
    may_write: Callable[[], bool] | None = None
    """Whether this process leads now."""
    lease: str = ""
    """Name of the lease; "" without leader election."""
    bytes_in_flight: Callable[[], Counts] = dict
    """By storage class."""
    in_flight_oldest_s: Callable[[], Ages] = dict
    in_flight_expired: Callable[[], Counts] = dict
    """By state of the volume: `flying`, `settling`, `stranded`."""
    ledger_drift: Callable[[], int | None] = lambda: None
    capacity_version: Callable[[], str | None] = lambda: None
    """API version of capacity objects; None if unknown."""
    device_kinds: Callable[[], Counts] = dict
    """1 or 0 by kind, for the kinds that device allocation needs."""
    devices_in_use: Callable[[], Counts] = dict
    """`whole` and `shared`."""
    compiled_selector_bytes: Callable[[], int | None] = lambda: None


def families(sources: ScrapedSources) -> list[Family]:
    """Return all families."""
    return [
        *_of_pods(sources),
        *_of_leadership(sources),
        *_of_volumes(sources),
        *_of_devices(sources),
        *_of_traffic(sources),
        *_of_reflectors(sources.reflectors()),
        counter_family(
            "kubestow_unforeseen_errors",
            "Errors that no code path expects, by the part of the daemon that failed.",
            ("part",),
            {(part,): count for part, count in sources.unforeseen_errors().items()},
        ),
        gauge_family(
            "kubestow_watch_synced",
            "1 if the informer of a kind is synced, otherwise 0. Without kinds that the server does not serve.",
            "kind",
            sources.synced(),
        ),
    ]


def _of_queue(sources: ScrapedSources) -> Iterator[Family]:
    """Yield the numbers of pods by part of the queue. There are no members of pod groups, so two parts are empty."""
    pending, text = sources.pending(), "Pods waiting, by part of the queue."
    groups = dict.fromkeys(("incomplete", "pending"), 0) if pending and sources.has_entities else {}
    yield gauge_family("scheduler_pending_pods", text, "queue", {**pending, **groups})
    if sources.has_entities:
        entities = Family("gauge", "scheduler_queued_entities", f"{text} From 1.37 on.", ["queue", "type"])
        for queue, count in pending.items():
            entities.show([queue, "pod"], count)
        yield entities


def _of_pods(sources: ScrapedSources) -> list[Family]:
    running, healed = sources.bindings_in_flight(), sources.healed()
    bindings = {} if running is None else {"binding": running}
    kept = Counter[str]()
    for label, count in sources.inflight_events().items():
        kept[sources.event_label(label)] += count
    return [
        *_of_queue(sources),
        gauge_family("scheduler_inflight_events", "Events kept for pods being tried.", "event", kept),
        gauge_family("scheduler_cache_size", "Nodes, pods and assumed pods in the cache.", "type", sources.cache()),
        gauge_family("scheduler_goroutines", "Running tasks, by operation.", "operation", bindings),
        gauge_family(
            "kubestow_assumed_oldest_seconds",
            "Longest time of an assumed pod: binding, since it left the queue; bound, since the server's answer, until the "
            "watch shows it. 0: there is none.",
            "state",
            sources.assumed_oldest_s(),
        ),
        counter_family(
            "kubestow_cache_healed",
            "Times that an event contradicted the cache, which was corrected.",
            (),
            {} if healed is None else {(): healed},
        ),
    ]


def _of_leadership(sources: ScrapedSources) -> list[Family]:
    leads = None if sources.may_write is None else int(sources.may_write())
    return [
        plain_gauge("kubestow_leading", "1 while this process leads and may write, 0 while it is a standby.", leads),
        gauge_family(
            "leader_election_master_status",
            "1 while this process holds the lease.",
            "name",
            {sources.lease: leads} if sources.lease and leads is not None else {},
        ),
        _findings(sources.missing()),
    ]


def _findings(missing: Iterable[MissingPermission] | None) -> Family:
    family = Family(
        "gauge",
        "kubestow_self_check_findings",
        "Missing permissions and kinds that the self-check found; needed: without it no pod is bound.",
        ["check", "needed"],
    )
    if missing is not None:
        counts = Counter((each.check, "true" if each.is_needed else "false") for each in missing)
        for check in ("permissions", "kinds-served"):
            for needed in ("true", "false"):
                family.show([check, needed], counts[check, needed])
    return family


def _of_volumes(sources: ScrapedSources) -> list[Family]:
    version = sources.capacity_version()
    return [
        gauge_family(
            "kubestow_volume_bytes_in_flight",
            "Bytes subtracted from published capacity for volumes that are being provisioned, at most ten minutes each.",
            "storage_class",
            sources.bytes_in_flight(),
        ),
        gauge_family(
            "kubestow_volume_in_flight_oldest_seconds",
            "Longest time of a claim in flight: flying, without a volume; settling, with a volume that is not part of the "
            "published capacity; stranded, without its node while another volume ties its pod. 0: there is none.",
            "state",
            sources.in_flight_oldest_s(),
        ),
        counter_family(
            "kubestow_volume_in_flight_expired",
            "Volumes that no longer reduce published capacity after a time limit: flying and stranded, no volume in ten "
            "minutes; settling, no new capacity object in two minutes.",
            ("state",),
            {(state,): count for state, count in sources.in_flight_expired().items()},
        ),
        plain_gauge(
            "kubestow_volume_ledger_drift_bytes",
            "Difference between the bytes subtracted from published capacity and the bytes in flight: anything but 0 is a bug.",
            sources.ledger_drift(),
        ),
        gauge_family(
            "scheduler_volume_capacity_api_info",
            "Always 1; the label is the version in which CSIStorageCapacity is read.",
            "version",
            {} if version is None else {version: 1},
        ),
    ]


def _of_devices(sources: ScrapedSources) -> list[Family]:
    return [
        gauge_family(
            "kubestow_device_kind_served",
            "1 if the API server has a kind that device allocation needs, otherwise 0.",
            "kind",
            sources.device_kinds(),
        ),
        gauge_family(
            "kubestow_devices_in_use",
            "Allocated devices, by all schedulers: whole ones, and shared ones.",
            "kind",
            sources.devices_in_use(),
        ),
        plain_gauge(
            "kubestow_device_cel_compiled_bytes",
            "Memory of compiled CEL selectors. At 64 MiB the least recently used one is dropped.",
            sources.compiled_selector_bytes(),
        ),
    ]


def _of_traffic(sources: ScrapedSources) -> list[Family]:
    return [
        counter_family(
            "kubestow_recorder_events",
            "Events about pods, by outcome.",
            ("outcome",),
            {(outcome,): count for outcome, count in sources.recorder().items()},
        ),
        plain_gauge(
            "kubestow_recorder_queued_events", "Events about pods that wait to be sent.", sources.recorder_queued()
        ),
        plain_gauge(
            "kubestow_api_writes_waiting",
            "Writes that wait for the limit of clientConnection (qps, burst).",
            sources.writes_waiting(),
        ),
    ]


def _of_reflectors(kinds: Mapping[str, ReflectorCounts]) -> list[Family]:
    events = {(kind, type_): n for kind, stats in kinds.items() for type_, n in stats.events.items()}
    relists = {(kind, cause): n for kind, stats in kinds.items() for cause, n in stats.relists.items()}
    deletes = {(kind,): stats.synthesised_deletes for kind, stats in kinds.items()}
    errors = {(kind,): stats.decode_errors for kind, stats in kinds.items()}
    failures = {(kind,): stats.failures_total for kind, stats in kinds.items()}
    return [
        gauge_family(
            "kubestow_watch_objects",
            "Objects in the informer's store.",
            "kind",
            {k: s.objects for k, s in kinds.items()},
        ),
        gauge_family(
            "kubestow_watch_silent_seconds",
            "Time since the server last sent a byte; bookmarks come once a minute. Without kinds that it does not serve.",
            "kind",
            {k: s.silent_s for k, s in kinds.items() if not s.absent},
        ),
        gauge_family(
            "kubestow_watch_down_seconds",
            "Time since the last complete list, or the end of the last watch; 0 while a watch is open. Without kinds that "
            "the server does not serve.",
            "kind",
            {k: s.down_s for k, s in kinds.items() if not s.absent},
        ),
        counter_family(
            "kubestow_watch_failures", "Lists and watches that failed, and watches that were cut.", ("kind",), failures
        ),
        counter_family("kubestow_watch_events", "Watch events received.", ("kind", "type"), events),
        counter_family("kubestow_watch_relists", "Relists, by cause.", ("kind", "cause"), relists),
        counter_family(
            "kubestow_watch_synthesised_deletes", "Objects that a relist no longer had.", ("kind",), deletes
        ),
        counter_family("kubestow_watch_decode_errors", "Objects that could not be read.", ("kind",), errors),
    ]
