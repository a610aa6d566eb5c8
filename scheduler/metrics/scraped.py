"""Values that other parts count, read at a scrape: queue lengths, cache sizes, streams, work in flight.

Each callback is called once per scrape, on the event loop. It must be fast for any cluster size.
"""

# ruff: noqa: RUF009 (the functions return fields)

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from prometheus_client.utils import floatToGoString

from scheduler.api.core_v1 import Pod
from scheduler.api.podinfo import Requests, limits_of, spec_requests_of
from scheduler.metrics.instruments import Family, counter_family, gauge_family, plain_gauge

Counts: TypeAlias = Mapping[str, int]
Ages: TypeAlias = Mapping[str, float]


class ReflectorCounts(Protocol):
    """Counters of the reflector of one kind. They only grow, except `objects` and durations."""

    objects: int
    failures_total: int
    absent: bool
    synthesised_deletes: int
    decode_errors: int

    @property
    def events(self) -> Counts: ...
    @property
    def relists(self) -> Counts: ...
    @property
    def silent_s(self) -> float: ...
    @property
    def down_s(self) -> float: ...


class MissingPermission(Protocol):
    """A missing permission or kind that the self-check found."""

    @property
    def check(self) -> str: ...
    @property
    def is_needed(self) -> bool: ...


def _gauges(name: str, text: str, label: str) -> Any:
    """Declare the source of a gauge with one label."""
    return field(default=dict, metadata={"show": lambda values: gauge_family(name, text, label, values)})


def _counters(name: str, text: str, label: str) -> Any:
    """Declare the source of a counter with one label; `name` is without `_total`."""

    def show(values: Counts) -> Family:
        return counter_family(name, text, (label,), {(key,): count for key, count in values.items()})

    return field(default=dict, metadata={"show": show})


def _gauge(name: str, text: str) -> Any:
    """Declare the source of a gauge without labels. None is not exported."""
    return field(default=lambda: None, metadata={"show": lambda value: plain_gauge(name, text, value)})


@dataclass(slots=True)
class ScrapedSources:
    """Callbacks. Each part sets its own once; a callback that is not set returns nothing.

    A field whose default names a metric is the source of this metric.
    """

    has_entities: bool = False
    """Whether kube-scheduler has the series of entities, that is from 1.37 on."""
    entity_label: str = "entity"
    """The label of the kind of an entity: `type` in 1.37."""
    event_label: Callable[[str], str] = str
    """Label of an event → the text that kube-scheduler's version has."""
    pending: Callable[[], Counts] = dict
    """Pods by part of the queue."""
    inflight_events: Callable[[], Counts] = dict
    """Events kept for pods being tried, by label."""
    cache: Callable[[], Counts] = _gauges("scheduler_cache_size", "Nodes, pods and assumed pods in the cache.", "type")
    healed: Callable[[], int | None] = lambda: None
    bindings_in_flight: Callable[[], int | None] = lambda: None
    """Running binding tasks."""
    assumed_oldest_s: Callable[[], Ages] = _gauges(
        "kubestow_assumed_oldest_seconds",
        "Longest time of an assumed pod: binding, since it left the queue; bound, since the server's answer, until the "
        "watch shows it. 0: there is none.",
        "state",
    )
    groups: Callable[[], Counts] = _gauges(
        "kubestow_groups",
        "Groups of pods. gated: the object or pods are missing; waiting: complete and not started; binding: its pods are "
        "prepared or bound; running: as many pods as it needs have a node; incomplete: fewer have one, and other pods wait.",
        "state",
    )
    reflectors: Callable[[], Mapping[str, ReflectorCounts]] = dict
    synced: Callable[[], Counts] = _gauges(
        "kubestow_watch_synced",
        "1 if the informer of a kind is synced, otherwise 0. Without kinds that the server does not serve.",
        "kind",
    )
    missing: Callable[[], Iterable[MissingPermission] | None] = lambda: None
    """Missing permissions and kinds; None without a self-check."""
    recorder: Callable[[], Counts] = _counters("kubestow_recorder_events", "Events about pods, by outcome.", "outcome")
    """By `sent`, `failed` and `dropped`."""
    recorder_queued: Callable[[], int | None] = _gauge(
        "kubestow_recorder_queued_events", "Events about pods that wait to be sent."
    )
    writes_waiting: Callable[[], int | None] = _gauge(
        "kubestow_api_writes_waiting", "Writes that wait for the limit of clientConnection (qps, burst)."
    )
    unforeseen_errors: Callable[[], Counts] = _counters(
        "kubestow_unforeseen_errors", "Errors that no code path expects, by the part of the daemon that failed.", "part"
    )
    audit_differences: Callable[[], Counts] = _counters(
        "kubestow_audit_differences",
        "Values of the cache that the self-audit found to differ from the stored objects, and corrected: anything but 0 is "
        "a bug.",
        "index",
    )
    may_write: Callable[[], bool] | None = None
    """Whether this process leads now."""
    lease: str = ""
    """Name of the lease; "" without leader election."""
    bytes_in_flight: Callable[[], Counts] = _gauges(
        "kubestow_volume_bytes_in_flight",
        "Bytes subtracted from published capacity for volumes that are being provisioned, at most ten minutes each.",
        "storage_class",
    )
    in_flight_oldest_s: Callable[[], Ages] = _gauges(
        "kubestow_volume_in_flight_oldest_seconds",
        "Longest time of a claim in flight: flying, without a volume; settling, with a volume that is not part of the "
        "published capacity; stranded, without its node while another volume ties its pod. 0: there is none.",
        "state",
    )
    in_flight_expired: Callable[[], Counts] = _counters(
        "kubestow_volume_in_flight_expired",
        "Volumes that no longer reduce published capacity after a time limit: flying and stranded, no volume in ten "
        "minutes; settling, no new capacity object in two minutes.",
        "state",
    )
    ledger_drift: Callable[[], int | None] = _gauge(
        "kubestow_volume_ledger_drift_bytes",
        "Difference between the bytes subtracted from published capacity and the bytes in flight: anything but 0 is a bug.",
    )
    capacity_version: Callable[[], str | None] = lambda: None
    """API version of capacity objects; None if unknown."""
    device_kinds: Callable[[], Counts] = _gauges(
        "kubestow_device_kind_served",
        "1 if the API server has a kind that device allocation needs, otherwise 0.",
        "kind",
    )
    devices_in_use: Callable[[], Counts] = _gauges(
        "kubestow_devices_in_use", "Allocated devices, by all schedulers: whole ones, and shared ones.", "kind"
    )
    compiled_selector_bytes: Callable[[], int | None] = _gauge(
        "kubestow_device_cel_compiled_bytes",
        "Memory of compiled CEL selectors. At 64 MiB the least recently used one is dropped.",
    )


def families(sources: ScrapedSources) -> list[Family]:
    declared = (each for each in fields(sources) if each.metadata)
    return [
        *(each.metadata["show"](getattr(sources, each.name)()) for each in declared),
        *_of_queue(sources),
        *_of_cycle(sources),
        *_of_leadership(sources),
        *_of_reflectors(sources.reflectors()),
    ]


def _of_queue(sources: ScrapedSources) -> Iterator[Family]:
    """Yield the numbers of pods by part of the queue. There are no members of pod groups, so two parts are empty."""
    pending, text = sources.pending(), "Pods waiting, by part of the queue."
    groups = dict.fromkeys(("incomplete", "pending"), 0) if pending and sources.has_entities else {}
    yield gauge_family("scheduler_pending_pods", text, "queue", {**pending, **groups})
    if sources.has_entities:
        entities = Family(
            "gauge",
            "scheduler_queued_entities",
            f"{text} From 1.37 on; the label `entity` is `type` there.",
            ["queue", sources.entity_label],
        )
        for queue, count in pending.items():
            entities.show([queue, "pod"], count)
        yield entities


def _of_cycle(sources: ScrapedSources) -> list[Family]:
    running, healed, version = sources.bindings_in_flight(), sources.healed(), sources.capacity_version()
    kept = Counter[str]()
    for label, count in sources.inflight_events().items():
        kept[sources.event_label(label)] += count
    text = "Times that an event contradicted the cache, which was corrected."
    of_capacity = "Always 1; the label is the version in which CSIStorageCapacity is read."
    return [
        gauge_family("scheduler_inflight_events", "Events kept for pods being tried.", "event", kept),
        gauge_family(
            "scheduler_goroutines",
            "Running tasks, by operation.",
            "operation",
            {} if running is None else {"binding": running},
        ),
        counter_family("kubestow_cache_healed", text, (), {} if healed is None else {(): healed}),
        gauge_family(
            "scheduler_volume_capacity_api_info", of_capacity, "version", {} if version is None else {version: 1}
        ),
    ]


def _of_leadership(sources: ScrapedSources) -> list[Family]:
    leads = None if sources.may_write is None else int(sources.may_write())
    holds = {sources.lease: leads} if sources.lease and leads is not None else {}
    return [
        plain_gauge("kubestow_leading", "1 while this process leads and may write, 0 while it is a standby.", leads),
        gauge_family("leader_election_master_status", "1 while this process holds the lease.", "name", holds),
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


def _of_reflectors(kinds: Mapping[str, ReflectorCounts]) -> list[Family]:
    objects = {kind: stats.objects for kind, stats in kinds.items()}
    events = {(kind, type_): n for kind, stats in kinds.items() for type_, n in stats.events.items()}
    relists = {(kind, cause): n for kind, stats in kinds.items() for cause, n in stats.relists.items()}
    deletes = {(kind,): stats.synthesised_deletes for kind, stats in kinds.items()}
    errors = {(kind,): stats.decode_errors for kind, stats in kinds.items()}
    failures = {(kind,): stats.failures_total for kind, stats in kinds.items()}
    return [
        gauge_family("kubestow_watch_objects", "Objects in the informer's store.", "kind", objects),
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


_UNITS: Final = {"cpu": "cores", "memory": "bytes", "storage": "bytes", "ephemeral-storage": "bytes"}
_PREFIX_UNITS: Final = {"hugepages-": "bytes", "attachable-volumes-": "integer"}
_PODS: Final = 100
"""Pods in one piece: some milliseconds of the event loop."""
_TEXT: Final = (
    "{} workloads on the cluster, broken down by pod. This shows the resource usage the scheduler and kubelet expect"
    " per pod for resources along with the unit for the resource if any."
)


def pod_resource_pages(pods: Sequence[Pod], *, whole_limits: bool = False) -> Iterator[bytes]:
    """Yield /metrics/resources in pieces, because 20,000 pods must not block the event loop.

    Pods that have ended on their node, and amounts of zero, have no series. Amounts are those of the specification.
    `whole_limits`: as `of_all_containers` of `limits_of`.

    Upstream: pkg/scheduler/metrics/resources/resources.go podResourceCollector
    """
    running = [pod for pod in pods if not (pod.spec.node_name and pod.status.phase in {"Succeeded", "Failed"})]
    families: tuple[tuple[str, str, Callable[[Pod], Requests]], ...] = (
        ("kube_pod_resource_limit", "Resources limit for", partial(limits_of, of_all_containers=whole_limits)),
        ("kube_pod_resource_request", "Resources requested by", spec_requests_of),
    )
    for name, beginning, amounts in families:
        text = _TEXT.format(beginning)
        yield f"# HELP {name} [STABLE] {text}\n# TYPE {name} gauge\n".encode()
        for at in range(0, len(running), _PODS):
            some = running[at : at + _PODS]
            yield "".join(line for pod in some for line in _series(name, pod, amounts(pod))).encode()


def _series(name: str, pod: Pod, amounts: Requests) -> Iterator[str]:
    priority = "" if pod.spec.priority is None else str(pod.spec.priority)
    metadata, scheduler = pod.metadata, _escaped(pod.spec.scheduler_name)
    whose = f'namespace="{metadata.namespace}",node="{pod.spec.node_name}",pod="{metadata.name}",priority="{priority}"'
    for resource, nano in sorted(amounts.items()):
        if nano:
            labels = f'{whose},resource="{_escaped(resource)}",scheduler="{scheduler}",unit="{_unit(resource)}"'
            number = floatToGoString(nano / 1e9)  # type: ignore[no-untyped-call]
            yield f"{name}{{{labels}}} {number}\n"


def _unit(resource: str) -> str:
    found = _UNITS.get(resource)
    return found or next((unit for prefix, unit in _PREFIX_UNITS.items() if resource.startswith(prefix)), "")


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
