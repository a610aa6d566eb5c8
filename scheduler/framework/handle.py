"""What decisions may ask of the world, as Protocols; `app` plugs in the real things (architecture, law 1)."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol, TypeVar, cast, runtime_checkable

from scheduler.api.core_v1 import ExtendedResourceClaimStatus, Pod, PodCondition
from scheduler.api.decode import Broken
from scheduler.api.podinfo import PodInfo
from scheduler.api.resource_v1 import AllocationResult, ConsumerReference, ResourceClaim
from scheduler.api.storage_v1 import PersistentVolume, PersistentVolumeClaim
from scheduler.cache.cluster import Cluster
from scheduler.config.args import KubestowArgs
from scheduler.core.clock import Clock
from scheduler.core.errors import Unavailable, UnforeseenErrors
from scheduler.framework.preemption_state import Preempting

T = TypeVar("T")


class ClaimWrites(Protocol):
    """Writes and reads of ResourceClaims."""

    async def protect_claim(self, claim: ResourceClaim) -> ResourceClaim | Broken:
        """Add the finalizer that claims with devices have. `Conflict` if anything was written since `claim`.

        This and the other writes wait for a token of their own, are not repeated after an error, and return the claim as
        it was written; after `Ambiguous` read it.
        """

    async def allocate_claim(
        self, claim: ResourceClaim, allocation: AllocationResult, user: ConsumerReference
    ) -> ResourceClaim | Broken:
        """Give the claim its devices and its first user. `Conflict` if anything was written since `claim`."""

    async def reserve_claim(self, claim: ResourceClaim, user: ConsumerReference) -> ResourceClaim | Broken:
        """One user more. `Conflict` if anything was written since `claim`."""

    async def unreserve_claim(self, claim: ResourceClaim, pod_uid: str) -> ResourceClaim | Broken:
        """One user less, whatever was written since; `Conflict` if it is another claim by now."""

    async def deallocate_claim(self, claim: ResourceClaim) -> ResourceClaim | Broken:
        """Take devices and users away. `Conflict` if anything was written since `claim`."""

    async def create_claim(self, claim: ResourceClaim, pod: Pod, name: str) -> ResourceClaim | Broken:
        """Make the claim for a pod's extended resources, owned by the pod. `Conflict` if there is one of this name."""

    async def delete_claim(self, claim: ResourceClaim) -> None:
        """Remove that claim for good: its finalizer, then itself. Nothing if it is gone, or another one by now."""

    async def set_extended_resource_status(self, pod: Pod, status: ExtendedResourceClaimStatus) -> None:
        """Say in the pod's status which claim serves which extended resource of which container."""

    async def read_resource_claim(self, namespace: str, name: str) -> ResourceClaim | Broken | None:
        """The newest state; None when it is gone."""

    async def read_resource_claim_at(self, namespace: str, name: str, version: int) -> ResourceClaim | Broken | None:
        """As it was at this resourceVersion; None if it was not there. `Gone` when the server has forgotten that."""


class Writer(Protocol):
    """The cluster's write side. Every call raises the types of `scheduler.core.errors`."""

    @property
    def device_claims(self) -> ClaimWrites:
        """The writes of ResourceClaims."""

    async def turn(self) -> None:
        """Wait until one more binding or deletion may be sent (clientConnection.qps). Nothing is written: may be cancelled."""

    async def bind(self, pod: Pod, node_name: str) -> None:
        """Bind with the pod's uid as precondition, after a `turn` of its own.

        `Ambiguous` means: read the pod before deciding anything. `TooManyRequests` is not waited out here, because what
        was decided grows old: take another turn and look again.
        """

    async def patch_pod_status(
        self, pod: Pod, *, condition: PodCondition | None, nominated_node_name: str | None
    ) -> None:
        """Set one condition and/or the nomination ("" clears, None leaves alone)."""

    async def delete_pod(self, pod: Pod) -> None:
        """Delete gracefully, this very pod and no namesake (`Conflict`), after a `turn` of its own.

        As `bind` it is never repeated: take another turn and look whether the pod still has to go. `NotFound` when it is
        gone, as it may be after `Ambiguous` too.
        """

    async def read_pod(self, namespace: str, name: str) -> Pod | Broken | None:
        """The newest state; None when the pod is gone."""

    async def prebind_volume(
        self, volume: PersistentVolume, claim: PersistentVolumeClaim, *, marks: bool
    ) -> PersistentVolume | Broken:
        """Set the volume's claimRef to the claim, and with `marks` its bound-by-controller annotation.

        `Conflict` if anything was written to the volume since `volume`. This and the two below wait for a token of their
        own, are never repeated, and answer the object as it was written; after `Ambiguous` read it.
        """

    async def select_node(self, claim: PersistentVolumeClaim, node_name: str) -> PersistentVolumeClaim | Broken:
        """Set the claim's selected-node annotation. `Conflict` if anything was written since `claim`."""

    async def clear_selected_node(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim | Broken:
        """Remove that annotation. `Conflict` if anything was written since `claim`."""

    async def read_volume(self, name: str) -> PersistentVolume | Broken | None:
        """The newest state; None when it is gone."""

    async def read_claim(self, namespace: str, name: str) -> PersistentVolumeClaim | Broken | None:
        """The newest state; None when it is gone."""

    async def claim_written_by(self, namespace: str, name: str) -> str | None:
        """Whose the claim's selected-node annotation is, read live: `kubestow` if it is ours and nobody else's.

        None without claim or annotation, and where nobody can tell.
        """

    async def last_event(
        self, claim: PersistentVolumeClaim, *, provisioner: str, besides: Collection[str]
    ) -> str | None:
        """What the claim's user was told last: of Warnings by anyone and of all that the provisioner says.

        What `besides` reported does not count. None without such an event. Optional: the permission may be missing.
        """


class Recorder(Protocol):
    """Events for users. Never blocks, never raises, may drop."""

    def event(  # noqa: PLR0913 (an event has that many parts)
        self,
        about: Pod | PersistentVolumeClaim,
        *,
        controller: str,
        type_: str,
        reason: str,
        action: str,
        note: str,
        related: Pod | None = None,
    ) -> None:
        """`controller` is the profile's schedulerName; `note` is cut to 1024 bytes."""


class VolumeMetrics(Protocol):
    """What VolumeBinding counts (docs/spec/volumes.md §10.2)."""

    def stage_error(self, operation: str) -> None:
        """`predicate`, `assume` or `bind` failed, as opposed to having said no."""

    def write_conflict(self, resource: str) -> None:
        """Somebody else wrote first, or the answer was lost."""

    def bind_wait(self, kind: str, seconds: float) -> None:
        """From the first write to the last bound claim, or to the failure; `static`, `dynamic` or `mixed`."""

    def long_wait(self, after_s: int) -> None:
        """The volumes of a pod are not bound after so long."""


class DeviceMetrics(Protocol):
    """What DynamicResources counts (docs/spec/dra.md §8.2)."""

    def conditions_allocation(self, profile: str, driver: str, status: str) -> None:
        """A device with binding conditions was waited for; `success`, `timeout`, `failure` or `error`."""

    def conditions_wait(self, profile: str, driver: str, status: str, seconds: float) -> None:
        """How long the pod waited, told once per device of the pod."""

    def claim_created(self, status: str) -> None:
        """A claim for extended resources was to be made; `success` or `failure`."""

    def claim_conflict(self) -> None:
        """Somebody else wrote a claim first, or the answer was lost."""

    def collision(self) -> None:
        """Somebody else had got a device that we had decided on."""

    def searched(self, steps: int) -> None:
        """One node was searched, and that many devices were tried."""

    def evaluated(self, is_known: bool) -> None:
        """A CEL expression was asked of a kind of device; whether the answer was remembered."""


class Uncounted(Any):  # type: ignore[misc]  # the loop below gives it every method of both ports
    """Metrics that nothing reads."""


def _count_nothing(*_: object, **__: object) -> None:
    """Every method of `Uncounted`."""


for _name in (*vars(VolumeMetrics), *vars(DeviceMetrics)):
    if not _name.startswith("_"):
        setattr(Uncounted, _name, _count_nothing)


class WaitingPod(Protocol):
    """A pod that Permit holds.

    Upstream: staging/src/k8s.io/kube-scheduler/framework/interface.go WaitingPod
    """

    @property
    def pod(self) -> PodInfo:
        """The pod with the node that it is to be bound to."""

    def pending_plugins(self) -> list[str]:
        """The plugins that have not allowed the pod yet."""

    def allow(self, plugin: str) -> None:
        """Let the pod go as far as this plugin is concerned; the last one to allow it releases it."""

    def reject(self, plugin: str, message: str) -> None:
        """Send the pod back to the queue; the first answer counts."""


class WaitingPods(Protocol):
    """The pods that Permit holds."""

    def __iter__(self) -> Iterator[WaitingPod]: ...

    def get(self, uid: str) -> WaitingPod | None:
        """The waiting pod; None if it is not held."""


def _no_queue(_: Iterable[PodInfo]) -> None:
    """Plugins that are made without a scheduler have no queue."""


@runtime_checkable
class Drains(Protocol):
    """What a plugin keeps, if it writes by itself."""

    async def drain(self) -> None:
        """Return when nothing is under way."""


@dataclass(frozen=True, slots=True)
class Handle:
    """Given to every plugin's constructor beside its arguments.

    Upstream: staging/src/k8s.io/kube-scheduler/framework/interface.go Handle
    """

    cluster: Cluster
    writer: Writer
    recorder: Recorder
    clock: Clock
    scheduler_name: str = ""
    scheduler_names: frozenset[str] = frozenset()
    """Of all profiles of this process."""
    ours: KubestowArgs = field(default_factory=KubestowArgs)
    """What the profile does otherwise than upstream."""
    feature_gates: frozenset[str] = frozenset()
    """Those of kube-scheduler's that are on (`config.types.FEATURE_GATES`)."""
    preempting: Preempting = field(default_factory=Preempting)
    chance: random.Random = field(default_factory=random.Random)
    volume_metrics: VolumeMetrics = field(default_factory=Uncounted)
    device_metrics: DeviceMetrics = field(default_factory=Uncounted)
    errors: UnforeseenErrors = field(default_factory=UnforeseenErrors)
    waiting_pods: WaitingPods | None = None
    to_activate: Callable[[Iterable[PodInfo]], None] = _no_queue
    _kept: dict[str, Any] = field(default_factory=dict)

    def get_waiting_pod(self, uid: str) -> WaitingPod | None:
        """Return a pod that Permit holds; None if it does not, or not any more."""
        return self.waiting_pods.get(uid) if self.waiting_pods is not None else None

    def iterate_over_waiting_pods(self) -> Iterator[WaitingPod]:
        """Iterate over the pods that Permit holds now; they may be allowed and rejected meanwhile."""
        return iter(self.waiting_pods if self.waiting_pods is not None else ())

    def reject_waiting_pod(self, uid: str) -> bool:
        """Reject a pod that Permit holds; False if it is not held. Upstream's message."""
        waiting = self.get_waiting_pod(uid)
        if waiting is not None:
            waiting.reject("", "removed")
        return waiting is not None

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Make pending pods of this scheduler ready before the next attempt; one that is being tried backs off instead.

        Pods that are not in the queue are ignored.
        """
        self.to_activate(tuple(pods))

    def kept(self, name: str, make: Callable[[], T]) -> T:
        """What is under way when a plugin is made anew, and its successor must know of: made once in a process.

        Plugins are made anew when a profile changes; what was begun ends with those that began it. `name` starts with
        the plugin's. Memos are not for keeping: they may depend on arguments.
        """
        if name not in self._kept:
            self._kept[name] = make()
        return cast("T", self._kept[name])

    async def drain(self) -> None:
        """Return when the writes have ended that are kept and that nobody waits for; whoever stops limits the wait."""
        for each in tuple(self._kept.values()):
            if isinstance(each, Drains):
                await each.drain()


class Unplugged(Any):  # type: ignore[misc]  # `__getattr__` has the methods of `Writer`
    """A writer and a recorder without a cluster, for plugins that are made for inspection only.

    Events are dropped, a turn is granted at once, and every other call of the writer raises `Unavailable`.
    """

    @property
    def device_claims(self) -> Unplugged:
        """The same object: it has the methods of `ClaimWrites`, too."""
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
