"""What others count, read when a scrape comes: queue lengths, cache sizes, streams, what is in flight.

Each callback is asked once per scrape, on the event loop: it must be quick, however large the cluster is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from scheduler.metrics.instruments import Family, counter_family, gauge_family, plain_gauge

Counts: TypeAlias = Mapping[str, int]
Ages: TypeAlias = Mapping[str, float]


class ReflectorCounts(Protocol):
    """What the mirror of one kind counts about itself; counts only grow; `objects` and durations do not."""

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
    """Something that the daemon's check of itself found missing."""

    @property
    def check(self) -> str: ...
    @property
    def is_needed(self) -> bool: ...


@dataclass(slots=True)
class ScrapedSources:
    """Callbacks, set once by whoever knows the parts; those not set give nothing."""

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
    """By state: `binding`, and `bound` for those that the watch has yet to show."""
    reflectors: Callable[[], Mapping[str, ReflectorCounts]] = dict
    synced: Callable[[], Counts] = dict
    """1 or 0 by kind, for the kinds that have to be mirrored."""
    missing: Callable[[], Iterable[MissingPermission] | None] = lambda: None
    """What the check of permissions and kinds found; None where nobody checks."""
    recorder: Callable[[], Counts] = dict
    """Events about pods by outcome: `sent`, `failed`, `dropped`."""
    recorder_queued: Callable[[], int | None] = lambda: None
    writes_waiting: Callable[[], int | None] = lambda: None
    """Writes that wait for the client-side limit."""
    unforeseen_errors: Callable[[], Counts] = dict
    """By part of the daemon."""
    may_write: Callable[[], bool] | None = None
    """Whether this process decides right now."""
    lease: str = ""
    """Empty where there is no election."""
    bytes_in_flight: Callable[[], Counts] = dict
    """By storage class."""
    in_flight_oldest_s: Callable[[], Ages] = dict
    in_flight_expired: Callable[[], Counts] = dict
    """Both by state of the volume: `flying`, `settling`, `stranded`."""
    ledger_drift: Callable[[], int | None] = lambda: None
    capacity_version: Callable[[], str | None] = lambda: None
    """Of capacity objects; None if not known."""
    device_kinds: Callable[[], Counts] = dict
    """1 or 0 by kind, for the kinds that devices are allocated by."""
    devices_in_use: Callable[[], Counts] = dict
    """`whole` and `shared`."""
    compiled_selector_bytes: Callable[[], int | None] = lambda: None


def families(sources: ScrapedSources) -> list[Family]:
    """All of them."""
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
            "1 where the picture of a kind is complete and followed, 0 where it is not. Not of kinds that the server does "
            "not serve.",
            "kind",
            sources.synced(),
        ),
    ]


def _of_pods(sources: ScrapedSources) -> list[Family]:
    running, healed = sources.bindings_in_flight(), sources.healed()
    bindings = {} if running is None else {"binding": running}
    return [
        gauge_family("scheduler_pending_pods", "Pods waiting, by part of the queue.", "queue", sources.pending()),
        gauge_family(
            "scheduler_inflight_events", "Events kept for pods being tried.", "event", sources.inflight_events()
        ),
        gauge_family("scheduler_cache_size", "Nodes, pods and assumed pods in the cache.", "type", sources.cache()),
        gauge_family("scheduler_goroutines", "Running tasks, by what they do.", "operation", bindings),
        gauge_family(
            "kubestow_assumed_oldest_seconds",
            "How long a pod has been on its way, the longest: binding, from being taken off the queue; "
            "bound, from the server's answer until the watch shows it. 0: there is none.",
            "state",
            sources.assumed_oldest_s(),
        ),
        counter_family(
            "kubestow_cache_healed",
            "Times that an event contradicted the cache, which was put right.",
            (),
            {} if healed is None else {(): healed},
        ),
    ]


def _of_leadership(sources: ScrapedSources) -> list[Family]:
    leads = None if sources.may_write is None else int(sources.may_write())
    return [
        plain_gauge("kubestow_leading", "1 while this process decides and may write, 0 while it stands by.", leads),
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
        "What the check of permissions and served kinds found missing; needed: without it no pod is bound.",
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
            "Bytes that are taken off published capacity, because volumes of that size are being made; of a volume that "
            "does not come, for ten minutes.",
            "storage_class",
            sources.bytes_in_flight(),
        ),
        gauge_family(
            "kubestow_volume_in_flight_oldest_seconds",
            "How long a volume has been in flight, the longest: flying, without a volume; settling, made and not seen "
            "in published capacity; stranded, its claim lost its node and its sibling cannot leave it. 0: there is none.",
            "state",
            sources.in_flight_oldest_s(),
        ),
        counter_family(
            "kubestow_volume_in_flight_expired",
            "Volumes that are taken off published capacity no more because it took too long: flying and stranded, no volume "
            "came in ten minutes; settling, the driver did not write its capacity in two.",
            ("state",),
            {(state,): count for state, count in sources.in_flight_expired().items()},
        ),
        plain_gauge(
            "kubestow_volume_ledger_drift_bytes",
            "How far what is taken off published capacity is from what is in flight: anything but 0 is a bug.",
            sources.ledger_drift(),
        ),
        gauge_family(
            "scheduler_volume_capacity_api_info",
            "Always 1; the label says in which version CSIStorageCapacity is read.",
            "version",
            {} if version is None else {version: 1},
        ),
    ]


def _of_devices(sources: ScrapedSources) -> list[Family]:
    return [
        gauge_family(
            "kubestow_device_kind_served",
            "1 where the API server has a kind that devices are allocated by, 0 where it has not.",
            "kind",
            sources.device_kinds(),
        ),
        gauge_family(
            "kubestow_devices_in_use",
            "Devices that claims have, whoever allocated them: whole ones, and those of which parts are taken.",
            "kind",
            sources.devices_in_use(),
        ),
        plain_gauge(
            "kubestow_device_cel_compiled_bytes",
            "Memory that compiled CEL selectors take. At 64 MiB the one that was used longest ago is dropped.",
            sources.compiled_selector_bytes(),
        ),
    ]


def _of_traffic(sources: ScrapedSources) -> list[Family]:
    return [
        counter_family(
            "kubestow_recorder_events",
            "Events about pods, by what became of them.",
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
        gauge_family("kubestow_watch_objects", "Mirrored objects.", "kind", {k: s.objects for k, s in kinds.items()}),
        gauge_family(
            "kubestow_watch_silent_seconds",
            "Since the server last sent a byte; bookmarks come once a minute. Not of kinds that it does not serve.",
            "kind",
            {k: s.silent_s for k, s in kinds.items() if not s.absent},
        ),
        gauge_family(
            "kubestow_watch_down_seconds",
            "Since the last complete list, or the end of the last watch; 0 while a watch is open. Not of kinds that the "
            "server does not serve.",
            "kind",
            {k: s.down_s for k, s in kinds.items() if not s.absent},
        ),
        counter_family(
            "kubestow_watch_failures", "Lists and watches that failed, and watches that were cut.", ("kind",), failures
        ),
        counter_family("kubestow_watch_events", "Watch events received.", ("kind", "type"), events),
        counter_family("kubestow_watch_relists", "Fresh lists, by cause.", ("kind", "cause"), relists),
        counter_family(
            "kubestow_watch_synthesised_deletes", "Objects that a fresh list no longer had.", ("kind",), deletes
        ),
        counter_family("kubestow_watch_decode_errors", "Objects that could not be read.", ("kind",), errors),
    ]
