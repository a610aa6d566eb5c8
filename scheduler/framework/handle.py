"""The interfaces through which decisions use the rest of the daemon; `daemon.app` passes the implementations.

Rule: docs/architecture.md, law 1.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol, TypeVar, cast, runtime_checkable

from scheduler.api.core_v1 import ExtendedResourceClaimStatus, Pod, PodCondition
from scheduler.api.decode import Broken
from scheduler.api.pod_group import AnyPodGroup, PodGroup
from scheduler.api.podinfo import PodInfo
from scheduler.api.resource_v1 import AllocationResult, ConsumerReference, ResourceClaim
from scheduler.api.storage_v1 import PersistentVolume, PersistentVolumeClaim
from scheduler.cache.cluster import Cluster
from scheduler.config.args import KubestowArgs
from scheduler.core.clock import Clock
from scheduler.core.errors import Unavailable, UnforeseenErrors
from scheduler.framework.preemption_state import Preempting
from scheduler.framework.wait import WaitingPod, WaitingPodsMap

T = TypeVar("T")


class ClaimWrites(Protocol):
    """Writes and reads of ResourceClaims."""

    async def protect_claim(self, claim: ResourceClaim) -> ResourceClaim | Broken:
        """Add the finalizer of allocated claims. `Conflict` if anything was written since `claim`.

        This and the other writes take one rate-limit token each and are not repeated after an error. They return the
        claim as it was written; after `Ambiguous`, read it.
        """

    async def allocate_claim(
        self, claim: ResourceClaim, allocation: AllocationResult, user: ConsumerReference
    ) -> ResourceClaim | Broken:
        """Write the claim's allocation and its first user. `Conflict` if anything was written since `claim`."""

    async def reserve_claim(self, claim: ResourceClaim, user: ConsumerReference) -> ResourceClaim | Broken:
        """Add a user. `Conflict` if anything was written since `claim`."""

    async def unreserve_claim(self, claim: ResourceClaim, pod_uid: str) -> ResourceClaim | Broken:
        """Remove a user, also if the claim has changed; `Conflict` if it was replaced by another claim."""

    async def deallocate_claim(self, claim: ResourceClaim) -> ResourceClaim | Broken:
        """Remove allocation and users. `Conflict` if anything was written since `claim`."""

    async def create_claim(self, claim: ResourceClaim, pod: Pod, name: str) -> ResourceClaim | Broken:
        """Create the claim for a pod's extended resources, owned by the pod. `Conflict` if there is one of this name."""

    async def delete_claim(self, claim: ResourceClaim) -> None:
        """Remove the claim's finalizer and delete it. Do nothing if it is gone or was replaced by another claim."""

    async def set_extended_resource_status(self, pod: Pod, status: ExtendedResourceClaimStatus) -> None:
        """Write into the pod's status which claim serves which extended resource of which container."""

    async def read_resource_claim(self, namespace: str, name: str) -> ResourceClaim | Broken | None:
        """Return the newest state; None if it is gone."""

    async def read_resource_claim_at(self, namespace: str, name: str, version: int) -> ResourceClaim | Broken | None:
        """Return the state at this resourceVersion; None if there was none. `Gone` if the server no longer has it."""


class Writer(Protocol):
    """The write interface of the cluster. Every call raises the types of `scheduler.core.errors`."""

    @property
    def device_claims(self) -> ClaimWrites:
        """The writes of ResourceClaims."""

    async def turn(self) -> None:
        """Wait until one more binding or deletion may be sent (clientConnection.qps).

        Nothing is written, so the call may be cancelled.
        """

    async def bind(self, pod: Pod, node_name: str) -> None:
        """Bind with the pod's uid as precondition, after a `turn`.

        After `Ambiguous`, read the pod before any decision. `TooManyRequests` is not retried here, because the
        decision becomes outdated: call `turn` and check again.
        """

    async def patch_pod_status(
        self, pod: Pod, *, condition: PodCondition | None, nominated_node_name: str | None
    ) -> None:
        """Set one condition and/or the nomination ("" clears it, None leaves it unchanged)."""

    async def patch_pod_group_status(self, group: PodGroup, condition: PodCondition) -> None:
        """Set one condition of a group of scheduling.k8s.io."""

    async def delete_pod(self, pod: Pod) -> None:
        """Delete the pod gracefully by its uid (`Conflict` for another pod of this name), after a `turn`.

        Like `bind`, the call is never repeated: call `turn` and check whether the pod must still be deleted.
        `NotFound` if it is gone, which can also happen after `Ambiguous`.
        """

    async def read_pod(self, namespace: str, name: str) -> Pod | Broken | None:
        """Return the newest state; None if the pod is gone."""

    async def prebind_volume(
        self, volume: PersistentVolume, claim: PersistentVolumeClaim, *, marks: bool
    ) -> PersistentVolume | Broken:
        """Set the volume's claimRef to the claim, and with `marks` its bound-by-controller annotation.

        `Conflict` if anything was written to the volume since `volume`. This and the next call take one
        rate-limit token each and are never repeated. They return the object as it was written; after `Ambiguous`,
        read it.
        """

    async def select_node(self, claim: PersistentVolumeClaim, node_name: str | None) -> PersistentVolumeClaim | Broken:
        """Set the claim's selected-node annotation; None removes it. `Conflict` if anything was written since `claim`."""

    async def read_volume(self, name: str) -> PersistentVolume | Broken | None:
        """Return the newest state; None if it is gone."""

    async def read_claim(self, namespace: str, name: str) -> PersistentVolumeClaim | Broken | None:
        """Return the newest state; None if it is gone."""

    async def claim_written_by(self, namespace: str, name: str) -> str | None:
        """Return a field manager of the claim's selected-node annotation, by a live read.

        Return `kubestow` only if there is no other one. Return None without claim or annotation, or if the manager
        cannot be determined.
        """

    async def last_event(
        self, claim: PersistentVolumeClaim, *, provisioner: str, besides: Collection[str]
    ) -> str | None:
        """Return the last event about the claim: a Warning by any component, or any event of the provisioner.

        Events reported by `besides` are ignored. None without such an event. Optional: the permission may be missing.
        """


class Recorder(Protocol):
    """Records events for users. It never blocks, never raises, and may drop events."""

    def event(  # noqa: PLR0913 (an event has that many parts)
        self,
        about: Pod | PersistentVolumeClaim | AnyPodGroup,
        *,
        controller: str,
        type_: str,
        reason: str,
        action: str,
        note: str,
        related: Pod | None = None,
    ) -> None:
        """Record an event; `controller` is the profile's schedulerName, and `note` is cut to 1024 bytes."""


class VolumeMetrics(Protocol):
    """Metrics of VolumeBinding (docs/spec/volumes.md §10.2)."""

    def stage_error(self, operation: str) -> None:
        """Count an error, not a rejection, of `predicate`, `assume` or `bind`."""

    def write_conflict(self, resource: str) -> None:
        """Count a write that conflicted, or whose response was lost."""

    def bind_wait(self, kind: str, seconds: float) -> None:
        """Record the time from the first write to the last bound claim or the failure; `static`, `dynamic` or `mixed`."""

    def long_wait(self, after_s: int) -> None:
        """Count a pod whose volumes are not bound after this time."""


class DeviceMetrics(Protocol):
    """Metrics of DynamicResources (docs/spec/dra.md §8.2)."""

    def conditions_allocation(self, profile: str, driver: str, status: str) -> None:
        """Count the wait for a device with binding conditions; `success`, `timeout`, `failure` or `error`."""

    def conditions_wait(self, profile: str, driver: str, status: str, seconds: float) -> None:
        """Record how long the pod waited, once per device of the pod."""

    def claim_created(self, status: str) -> None:
        """Count the creation of a claim for extended resources; `success` or `failure`."""

    def claim_conflict(self) -> None:
        """Count a write of a claim that conflicted, or whose response was lost."""

    def collision(self) -> None:
        """Count a device that another scheduler allocated after this scheduler had chosen it."""

    def searched(self, steps: int) -> None:
        """Record the number of devices that the search of one node tried."""

    def evaluated(self, is_known: bool) -> None:
        """Count the evaluation of a CEL expression for a device; `is_known` means that the result was cached."""


class Uncounted(Any):  # type: ignore[misc]  # `__getattr__` has the methods of both interfaces
    """Metrics that are not recorded."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_") or (name not in vars(VolumeMetrics) and name not in vars(DeviceMetrics)):
            raise AttributeError(name)
        return lambda *_, **__: None


@runtime_checkable
class Drains(Protocol):
    """State of a plugin with background writes."""

    async def drain(self) -> None:
        """Return when no write is running."""


@dataclass(frozen=True, slots=True)
class Handle:
    """The first argument of every plugin's constructor, next to the plugin's arguments.

    Upstream: staging/src/k8s.io/kube-scheduler/framework/interface.go Handle
    """

    cluster: Cluster
    writer: Writer
    recorder: Recorder
    clock: Clock
    scheduler_name: str = ""
    scheduler_names: frozenset[str] = frozenset()
    """The scheduler names of all profiles of this process."""
    ours: KubestowArgs = field(default_factory=KubestowArgs)
    """Deliberate differences from upstream in this profile."""
    feature_gates: frozenset[str] = frozenset()
    """The enabled feature gates of kube-scheduler (`core.feature_gates.GATES`)."""
    preempting: Preempting = field(default_factory=Preempting)
    rng: random.Random = field(default_factory=random.Random)
    volume_metrics: VolumeMetrics = field(default_factory=Uncounted)
    device_metrics: DeviceMetrics = field(default_factory=Uncounted)
    errors: UnforeseenErrors = field(default_factory=UnforeseenErrors)
    waiting_pods: WaitingPodsMap | None = None
    to_activate: Callable[[Iterable[PodInfo]], object] = bool
    _kept: dict[str, Any] = field(default_factory=dict)

    def get_waiting_pod(self, uid: str) -> WaitingPod | None:
        """Return a pod that a Permit plugin holds; None if it is not held."""
        return self.waiting_pods.get(uid) if self.waiting_pods is not None else None

    def iterate_over_waiting_pods(self) -> Iterator[WaitingPod]:
        """Iterate over the pods that Permit plugins hold now; pods may be allowed and rejected during the iteration."""
        return iter(self.waiting_pods if self.waiting_pods is not None else ())

    def reject_waiting_pod(self, uid: str) -> bool:
        """Reject a held pod with upstream's message; return False if it is not held."""
        waiting = self.get_waiting_pod(uid)
        if waiting is not None:
            waiting.reject("", "removed")
        return waiting is not None

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Make pending pods of this scheduler ready before the next attempt.

        A pod that is being tried backs off instead. Pods that are not in the queue are ignored.
        """
        self.to_activate(tuple(pods))

    def kept(self, name: str, make: Callable[[], T]) -> T:
        """Return state that outlives the plugin; the first call in a process creates it.

        Plugins are created again when a profile changes. The new plugin must know the work that the old one started.
        `name` starts with the plugin's name. Do not store memos here, because they may depend on arguments.
        """
        if name not in self._kept:
            self._kept[name] = make()
        return cast("T", self._kept[name])

    async def drain(self) -> None:
        """Return when the background writes of all plugins have ended. The caller limits the wait."""
        for each in tuple(self._kept.values()):
            if isinstance(each, Drains):
                await each.drain()


class Unplugged(Any):  # type: ignore[misc]  # `__getattr__` has the methods of `Writer`
    """A writer and a recorder without a cluster, for plugins that are created for inspection only.

    Events are dropped, `turn` returns at once, and every other call of the writer raises `Unavailable`.
    """

    @property
    def device_claims(self) -> Unplugged:
        """The same object, which also has the methods of `ClaimWrites`."""
        return self

    async def turn(self) -> None:
        """Return at once."""

    def event(self, *_: object, **__: object) -> None:
        """Drop the event."""

    def __getattr__(self, name: str) -> Callable[..., Awaitable[NoReturn]]:
        if name.startswith("_") or (name not in vars(Writer) and name not in vars(ClaimWrites)):
            raise AttributeError(name)

        async def unavailable(*_: object, **__: object) -> NoReturn:
            raise Unavailable(f"no cluster for {name}")

        return unavailable
