"""Every write of pods, groups, volumes, events and leases: one function per write, each with its precondition.

`permissions` lists what each needs; a test compares the chart's roles with it. A write names only the fields that it
changes. Failures are the types of `core.errors`. Callers that may be cancelled shield a running write
(`framework.settle`): a write that was sent is awaited.

Times of leases (coordination.k8s.io/v1) stay texts: they are for people and never compared, because clocks differ.
Patches of volumes and claims are merge patches of a few fields, so that unknown fields stay. Each names the uid and
the seen resourceVersion, and the server refuses it after any other write. Rules: docs/spec/volumes.md §5.3, §6.3.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from scheduler.api.apps_and_policy import DISRUPTION_TARGET
from scheduler.api.core_v1 import Pod, PodCondition
from scheduler.api.decode import Broken, ObjectDecoder
from scheduler.api.meta import AnnotatedMetadata, Frozen, micros, seconds
from scheduler.api.pod_group import PodGroup
from scheduler.api.storage_v1 import BOUND_BY_CONTROLLER, SELECTED_NODE, PersistentVolume, PersistentVolumeClaim
from scheduler.core import api_json as apijson
from scheduler.core.clock import Clock
from scheduler.core.errors import Ambiguous, ApiError, NotFound, TooManyRequests, Unavailable
from scheduler.core.retry import BusyRetry, Retry
from scheduler.kube.rate_limit import Throttle
from scheduler.kube.wire import JSON, MERGE, STRATEGIC_MERGE, Method, Transport, as_it_is
from scheduler.kube.writes.base import FIELD_MANAGER, OURS, Sender, always, as_seen
from scheduler.kube.writes.resource_claims import NEWEST, ResourceClaimWrites

MESSAGE_LENGTH: Final = 256
"""Enough for the error of a driver; several claims must fit into one note."""
_BEGINS: Final = "Provisioning"
"""The reason with which provisioners announce a try: it must not hide the result of the last one."""
_NEVER: Final = datetime.min.replace(tzinfo=UTC)
_Time: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)] | None


class _Source(Frozen, frozen=True):
    component: str = ""


class _Series(Frozen, frozen=True):
    last_observed_time: _Time = None


class _Metadata(Frozen, frozen=True):
    creation_timestamp: _Time = None


class _Event(Frozen, frozen=True):
    metadata: _Metadata = _Metadata()
    type: str = ""
    reason: str = ""
    message: str = ""
    source: _Source = _Source()
    reporting_component: str = ""
    series: _Series | None = None
    last_timestamp: _Time = None
    event_time: _Time = None

    @property
    def reporter(self) -> str:
        return self.source.component or self.reporting_component

    @property
    def happened(self) -> datetime:
        """Return the last time: of the series, or lastTimestamp of the older API."""
        times = (self.series and self.series.last_observed_time, self.last_timestamp, self.event_time)
        return max((time for time in times if time), default=self.metadata.creation_timestamp or _NEVER)

    def is_by(self, provisioner: str) -> bool:
        """Return whether the provisioner reported it. external-provisioner reports as `name_host_uid`."""
        return bool(provisioner) and (self.reporter == provisioner or self.reporter.startswith(f"{provisioner}_"))


class _Events(Frozen, frozen=True):
    items: tuple[_Event, ...] | None = None


_EVENTS: Final = msgspec.json.Decoder(_Events)


def last_reported(raw: bytes, *, provisioner: str, besides: Collection[str]) -> str | None:
    """Return the newest Warning, or the provisioner's newest Event: `reason at time: message`. None without one.

    `besides` are reporters that do not count. An announced try counts only without another Event. Raises
    `Unavailable` if `raw` is no list of Events.
    """
    try:
        events = apijson.decode(_EVENTS, raw).items or ()
    except (msgspec.DecodeError, ValueError) as error:
        raise Unavailable(f"the answer is no list of Events: {error}") from error
    concerned = [
        event
        for event in events
        if event.reporter not in besides and (event.type == "Warning" or event.is_by(provisioner))
    ]
    if not concerned:
        return None
    last = max(concerned, key=lambda event: (event.reason != _BEGINS, event.happened, event.type == "Warning"))
    when = "" if last.happened == _NEVER else f" at {last.happened.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return f"{last.reason}{when}: {_short(last.message)}"


def _short(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= MESSAGE_LENGTH else f"{line[: MESSAGE_LENGTH - 4]} ..."


POD_GROUPS_VERSION: Final = "v1beta1"
_STATUS_TRIES: Final = 4
"""As client-go's default back-off: four steps from 10 ms, factor 5 (docs/spec/core.md §3.8)."""

_MANY_EVENTS: Final = "500"
"""More than a claim has within the hour that Events live; a tenant with more must not fill our memory."""


class _Ref(msgspec.Struct):
    name: str
    namespace: str
    uid: str


class _Target(msgspec.Struct):
    name: str
    kind: str = "Node"


class _Binding(msgspec.Struct, rename="camel"):
    metadata: _Ref
    target: _Target
    api_version: str = "v1"
    kind: str = "Binding"


_encode: Final = msgspec.json.Encoder().encode


class ApiWriter(Sender):
    """Implement the `Writer` port and serve the recorder, with parameters of `Sender` and `ResourceClaimWrites`."""

    def __init__(
        self,
        transport: Transport,
        throttle: Throttle,
        clock: Clock,
        *,
        may_write: Callable[[], bool] = always,
        claims_version: Callable[[], str] = lambda: NEWEST,
        groups_version: Callable[[], str] = lambda: POD_GROUPS_VERSION,
    ) -> None:
        super().__init__(transport, throttle, clock, may_write=may_write)
        self._groups_version = groups_version
        self.device_claims = ResourceClaimWrites(self, claims_version)
        self._pods: ObjectDecoder[Pod] = ObjectDecoder("Pod", Pod)
        self._volumes = ObjectDecoder("PersistentVolume", PersistentVolume)
        self._claims = ObjectDecoder("PersistentVolumeClaim", PersistentVolumeClaim)

    async def turn(self) -> None:
        """Wait for a token for one binding or deletion, with priority. Cancelling returns it."""
        await self._throttle.take(urgent=True)

    async def bind(self, pod: Pod, node_name: str) -> None:
        """Bind, after a `turn`. Precondition: the pod still has this uid, has no node and is not being deleted.

        Raises `Conflict` otherwise. Never repeated here: after `Ambiguous` only a read helps, and after
        `TooManyRequests` the caller checks the node again.
        """
        metadata = pod.metadata
        body = _encode(_Binding(_Ref(metadata.name, metadata.namespace, metadata.uid), _Target(node_name)))
        await self._send_urgent("POST", _pod_path(metadata.namespace, metadata.name) + "/binding", body)

    async def patch_pod_status(
        self, pod: Pod, *, condition: PodCondition | None, nominated_node_name: str | None
    ) -> None:
        """Set one condition and/or the nomination ("" clears, None keeps it). Precondition: the pod's uid.

        The transition time only changes if the condition's status differs from the pod's. The patch sets absolute
        values, so it is repeated after `Ambiguous` and after an unavailable server.
        """
        status: dict[str, object] = {}
        if condition is not None:
            status["conditions"] = [self._condition(pod.condition(condition.type), condition)]
        if nominated_node_name is not None:
            status["nominatedNodeName"] = nominated_node_name or None
        if not status:
            return
        body = _encode({"metadata": {"uid": pod.metadata.uid}, "status": status})
        path = _pod_path(pod.metadata.namespace, pod.metadata.name) + "/status"
        is_urgent = bool(nominated_node_name) or (condition is not None and condition.type == DISRUPTION_TARGET)
        with self._requests_in_flight.urgent() if is_urgent else contextlib.nullcontext():
            await self._patch_status(path, body)

    async def patch_pod_group_status(self, group: PodGroup, condition: PodCondition) -> None:
        """Set one condition. Precondition: the group's uid. Repeated as `patch_pod_status`, for the same reason."""
        metadata, version = group.metadata, self._groups_version()
        path = f"/apis/scheduling.k8s.io/{version}/namespaces/{metadata.namespace}/podgroups/{metadata.name}/status"
        status = {"conditions": [self._condition(group.condition(condition.type), condition)]}
        await self._patch_status(path, _encode({"metadata": {"uid": metadata.uid}, "status": status}))

    async def _patch_status(self, path: str, body: bytes) -> None:
        """Patch absolute values, and repeat the patch after a lost answer and while the server is unavailable."""
        retry = Retry(self._clock, first_s=0.01, factor=5.0, tries=_STATUS_TRIES)
        while True:
            try:
                await self._send_when_free("PATCH", path, body, STRATEGIC_MERGE)
                break
            except TooManyRequests:
                raise
            except (Ambiguous, Unavailable) as error:
                await retry.pause(error)

    async def delete_pod(self, pod: Pod) -> None:
        """Delete with the pod's grace period, after a `turn`.

        Precondition: its uid; `Conflict` for another pod of that name.

        Not repeated here: the caller first checks whether the deletion is still wanted.
        """
        body = _encode({"preconditions": {"uid": pod.metadata.uid}})
        await self._send_urgent("DELETE", _pod_path(pod.metadata.namespace, pod.metadata.name), body)

    async def read_pod(self, namespace: str, name: str) -> Pod | Broken | None:
        """Return the newest state, from the server's storage instead of its cache; None if the pod is gone."""
        raw = await self.read(_pod_path(namespace, name))
        return self._pods.decode(raw) if raw is not None else None

    async def prebind_volume(
        self, volume: PersistentVolume, claim: PersistentVolumeClaim, *, marks: bool
    ) -> PersistentVolume | Broken:
        """Reserve the volume for the claim, and with `marks` record that a controller did. Return the volume.

        Precondition: no write since `volume`; `Conflict` otherwise. As every write to a volume or claim it takes its
        own token and is never repeated: the caller reads and decides again.
        """
        metadata = as_seen(volume.metadata)
        if marks:
            metadata["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
        ref = {
            "kind": "PersistentVolumeClaim",
            "apiVersion": "v1",
            "namespace": claim.metadata.namespace,
            "name": claim.metadata.name,
            "uid": claim.metadata.uid,
            "resourceVersion": claim.metadata.resource_version,
        }
        body = _encode({"metadata": metadata, "spec": {"claimRef": ref}})
        return self._volumes.decode(await self.send_once("PATCH", _volume_path(volume.metadata.name), body, MERGE))

    async def select_node(self, claim: PersistentVolumeClaim, node_name: str | None) -> PersistentVolumeClaim | Broken:
        """Write the node for which the provisioner makes the volume; None removes it.

        Precondition: no write since `claim`.
        """
        path = _claim_path(claim.metadata.namespace, claim.metadata.name)
        body = _encode({"metadata": as_seen(claim.metadata) | {"annotations": {SELECTED_NODE: node_name}}})
        return self._claims.decode(await self.send_once("PATCH", path, body, MERGE))

    async def read_volume(self, name: str) -> PersistentVolume | Broken | None:
        """Return the newest state, from the server's storage; None if it is gone."""
        raw = await self.read(_volume_path(name))
        return self._volumes.decode(raw) if raw is not None else None

    async def read_claim(self, namespace: str, name: str) -> PersistentVolumeClaim | Broken | None:
        """Return the newest state, from the server's storage; None if it is gone."""
        raw = await self.read(_claim_path(namespace, name))
        return self._claims.decode(raw) if raw is not None else None

    async def claim_written_by(self, namespace: str, name: str) -> str | None:
        """Return the owner of the claim's selected node, from `metadata.managedFields`.

        It is `FIELD_MANAGER` if it is ours alone. None without claim or annotation, and on servers without managed
        fields.
        """
        raw = await self.read(_claim_path(namespace, name))
        owners = owners_of_selection(raw) if raw is not None else ()
        return next((owner for owner in owners if owner != OURS), owners[0] if owners else None)

    async def last_event(
        self, claim: PersistentVolumeClaim, *, provisioner: str, besides: Collection[str]
    ) -> str | None:
        """Return reason, message and time of the claim's newest Event that is a Warning, or the provisioner's.

        None without one. Takes its token after bindings, because nothing depends on it. May be cancelled.
        """
        metadata = claim.metadata
        if not metadata.uid:  # it would select the Events of all objects without uid
            return None
        await self._throttle.take()
        query = {"fieldSelector": f"involvedObject.uid={metadata.uid}", "limit": _MANY_EVENTS}
        raw = await self._transport.get(f"/api/v1/namespaces/{metadata.namespace}/events", query=query)
        return last_reported(raw, provisioner=provisioner, besides=besides)

    def hurry_events(self, is_hurried: bool) -> None:
        """Send Events also during a burst of bindings, or let them give way again."""
        self._requests_in_flight.hurry_events(is_hurried)

    async def create_event(self, namespace: str, body: bytes) -> None:
        """Create an Event from its JSON. Precondition: its name is free; `Conflict` means that it exists already."""
        async with self._requests_in_flight.event():
            await self._send_when_free("POST", _events_path(namespace), body, JSON)

    async def patch_event_series(self, namespace: str, name: str, *, count: int, last_observed_s: float) -> None:
        """Write how often an Event happened; safe to repeat. Precondition: it exists (`NotFound` once expired)."""
        body = _encode({"series": {"count": count, "lastObservedTime": micros(last_observed_s)}})
        await self._send_when_free("PATCH", f"{_events_path(namespace)}/{name}", body, STRATEGIC_MERGE)

    async def _send_when_free(self, method: Method, path: str, body: bytes, content_type: str) -> None:
        """Send with a token. Wait as long as a busy server requests, as client-go does."""
        busy = BusyRetry(self._clock)
        while True:
            await self._throttle.take()
            try:
                await self._send(method, path, body, content_type)
            except TooManyRequests as error:
                await busy.wait(error)
            else:
                return

    def _condition(self, before: PodCondition | None, condition: PodCondition) -> dict[str, object]:
        """Return the condition. `type` is the merge key. An empty reason or message clears the old one."""
        body: dict[str, object] = {
            "type": condition.type,
            "status": condition.status,
            "reason": condition.reason or None,
            "message": condition.message or None,
        }
        if condition.observed_generation:
            body["observedGeneration"] = condition.observed_generation
        if before is None or before.status != condition.status:
            body["lastTransitionTime"] = seconds(self._clock.wall())
        return body


@dataclass(eq=False)
class LeaseWriter:
    """Write one Lease.

    It has no fence, because it keeps the fence open, and no throttle: a burst must not cost the lead.

    Every call may be cancelled; the next read shows its effect.
    """

    transport: Transport
    namespace: str
    name: str
    serves: Collection[str] = ()
    """The scheduler names in the Lease's mark."""
    reconnect: Callable[[], None] = as_it_is
    """Makes the next request use a new connection; called after a late answer."""

    def __post_init__(self) -> None:
        names = {NAMES: ",".join(sorted(self.serves))}
        self._marks: dict[str, Any] = {"labels": {LABEL: "true"}, "annotations": names} if self.serves else {}
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"
        self._path = f"{self._collection}/{self.name}"
        self.key = f"{self.namespace}/{self.name}"

    async def read_lease(self) -> Lease | None:
        """Return the Lease from the server's storage; None if there is none."""
        try:
            raw = await self.transport.get(self._path)
        except NotFound:
            return None
        return _lease(raw, Unavailable)

    async def create_lease(self, spec: LeaseSpec) -> Lease:
        """Create the Lease. Precondition: there is none; `Conflict` otherwise, `NotFound` without its namespace."""
        metadata = {"name": self.name, "namespace": self.namespace} | self._marks
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        answer = await self.transport.write("POST", self._collection, _encode(body), query=FIELD_MANAGER)
        return _lease(answer, Ambiguous)

    async def patch_lease(self, seen: Lease, spec: LeaseSpec) -> Lease:
        """Replace record and marks only. Precondition: no write since `seen` (`Conflict`), no deletion (`NotFound`)."""
        before = {"uid": seen.metadata.uid, "resourceVersion": seen.metadata.resource_version}
        body = _encode({"metadata": before | self._marks, "spec": spec})
        answer = await self.transport.write("PATCH", self._path, body, content_type=MERGE, query=FIELD_MANAGER)
        return _lease(answer, Ambiguous)


def _pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def _volume_path(name: str) -> str:
    return f"/api/v1/persistentvolumes/{name}"


def _claim_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"


def _events_path(namespace: str) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"


LABEL: Final = "kubestow.dev/scheduler-lease"
"""Marks the Lease of a leading Kubestow."""
NAMES: Final = "kubestow.dev/scheduler-names"
"""The annotation with the scheduler names, separated by commas."""


class LeaseSpec(Frozen, frozen=True):
    """The holder and its times; equal ones are one renewal. An empty holder has released the lease."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None

    @property
    def holder(self) -> str:
        """The holder; "" if none."""
        return self.holder_identity or ""

    @property
    def transitions(self) -> int:
        """How often the holder changed."""
        return self.lease_transitions or 0


class Lease(Frozen, frozen=True):
    """The part of a Lease that leader election reads."""

    metadata: AnnotatedMetadata = AnnotatedMetadata()
    spec: LeaseSpec | None = None

    @property
    def record(self) -> LeaseSpec:
        """The spec; an empty one if the lease was created without."""
        return self.spec or _NOBODY


_NOBODY: Final = LeaseSpec()
_LEASE: Final = msgspec.json.Decoder(Lease)


def names_in(lease: Lease) -> set[str]:
    """Return the scheduler names in the annotation."""
    return set(filter(None, lease.metadata.annotations.get(NAMES, "").split(",")))


def one_of_many(raw: bytes | msgspec.Raw) -> Lease | None:
    """Return a Lease of a list; None for an unreadable one."""
    try:
        return apijson.decode(_LEASE, raw)
    except (msgspec.DecodeError, ValueError):
        return None


def _lease(raw: bytes, no_lease: type[ApiError]) -> Lease:
    """Return the answer; raise `no_lease` for anything else, for example from a proxy."""
    try:
        lease = apijson.decode(_LEASE, raw)
    except (msgspec.DecodeError, ValueError) as error:
        raise no_lease(f"the answer is no Lease: {error}") from error
    if not lease.metadata.resource_version:  # a change from it would have no precondition
        raise no_lease("the answer is no Lease: it has no resourceVersion")
    return lease


class _Owner(Frozen, frozen=True):
    manager: str = ""
    fields_v1: Any = msgspec.field(default=None, name="fieldsV1")


class _OwnedMetadata(Frozen, frozen=True):
    annotations: dict[str, str] | None = None
    managed_fields: tuple[_Owner, ...] | None = None


class _Owned(Frozen, frozen=True):
    metadata: _OwnedMetadata = _OwnedMetadata()


_owned: Final = msgspec.json.Decoder(_Owned).decode


def owners_of_selection(raw: bytes) -> tuple[str, ...]:
    """Return the field managers of the claim's selected-node annotation; empty without one, and if unknown."""
    try:
        metadata = _owned(raw).metadata
    except (msgspec.DecodeError, ValueError):
        return ()
    if SELECTED_NODE not in (metadata.annotations or {}):
        return ()
    return tuple(owner.manager for owner in metadata.managed_fields or () if _owns(owner))


def _owns(owner: _Owner) -> bool:
    """Return whether the owner has the field. `fieldsV1` mirrors the object, each field as `f:` and its name."""
    fields = owner.fields_v1
    for step in ("f:metadata", "f:annotations", f"f:{SELECTED_NODE}"):
        fields = fields.get(step) if isinstance(fields, dict) else None
    return fields is not None
