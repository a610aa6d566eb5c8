"""Derive from a pod what scheduling needs, once: requests, ports, shape (docs/spec/core.md §A.1–§A.4).

The sums are cached by the pod's resource fields, so the second pod of a Deployment costs one look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from scheduler.api.core_v1 import (
    Container,
    ContainerStatus,
    Pod,
    ResourceMap,
    ResourceRequirements,
    Volume,
    one,
)
from scheduler.api.csi_translation import KINDS, InlineDisk, inline_disks
from scheduler.api.quantity import int64
from scheduler.api.storage_v1 import ClaimUse, claim_uses
from scheduler.core.caching import Interner

T = TypeVar("T")
Requests: TypeAlias = dict[str, int]
"""Resource name → amount: cpu in milli-CPU, everything else in whole units (bytes, devices)."""

_disk_sources = attrgetter(*(kind.field for kind in KINDS))
_NO_DISK: Final = (None,) * len(KINDS)
CPU: Final = "cpu"
MEMORY: Final = "memory"
_NANO: Final = 10**9
_NANO_PER_MILLI: Final = 10**6
_DEFAULTS: Final = {CPU: 100 * _NANO_PER_MILLI, MEMORY: 200 * 1024 * 1024 * _NANO}
ANY_IP: Final = "0.0.0.0"  # noqa: S104 (an address to compare, not one to bind)


class HostPort(msgspec.Struct, frozen=True, order=True):
    """A host port on a node; `ip` is `0.0.0.0` if the pod names none."""

    protocol: str
    port: int
    ip: str


class PodInfo(msgspec.Struct, frozen=True, eq=False):
    """A pod and the values derived from it. Compared by identity; the mappings are shared and never change.

    Upstream: pkg/scheduler/framework/types.go PodInfo
    """

    pod: Pod
    requests: Requests
    non_zero_milli_cpu: int
    """Requests for scoring: containers without a request count 100m and 200Mi (§A.2)."""
    non_zero_memory_bytes: int
    host_ports: tuple[HostPort, ...]
    placement_shape: bytes
    """Equal for pods with equal nodeSelector and affinity; empty without both."""
    spread_shape: bytes = b""
    """Equal for pods with equal topologySpreadConstraints; empty without any."""
    claims: tuple[ClaimUse, ...] = ()
    """Volumes of claims, in order."""
    disks: tuple[Volume, ...] = ()
    """Inline volumes that CSI drivers replace (docs/spec/volumes.md §A)."""
    exclusive_disks: tuple[InlineDisk, ...] = ()
    """Inline disks that conflict with other pods on a node (docs/spec/volumes.md §9.3)."""

    @property
    def key(self) -> str:
        return self.pod.metadata.key

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def node_name(self) -> str:
        """The node to which the pod is bound or assumed; "" if none."""
        return self.pod.spec.node_name

    @property
    def priority(self) -> int:
        """The pod's priority (§A.5)."""
        return self.pod.spec.priority or 0


_encode = msgspec.json.Encoder(enc_hook=lambda quantity: str(quantity.nano)).encode
_sums: Final[Interner[bytes, tuple[Requests, int, int]]] = Interner(20_000)
_SHARED_BYTES_MAX: Final = 10_000
"""Longer shapes and sums are not shared: a shared part stays in memory when its pods are gone."""


def pod_info(pod: Pod, *, resize_by_totals: bool = False) -> PodInfo:
    """Return the derived values of a pod. A known shape costs about 3 µs. For the switch see `requests_of`."""
    spec = pod.spec
    requests, milli_cpu, memory_bytes = _requests(pod, by_totals=resize_by_totals)
    shape = _encode((spec.node_selector, spec.affinity)) if spec.node_selector or spec.affinity else b""
    spread = _encode(spec.topology_spread_constraints) if spec.topology_spread_constraints else b""
    claims = claim_uses(pod) if spec.volumes else ()
    disks = tuple(volume for volume in spec.volumes if _is_disk(volume)) if spec.volumes else ()
    exclusive = inline_disks(pod) if spec.volumes else ()
    return PodInfo(
        pod, requests, milli_cpu, memory_bytes, host_ports(pod), _one(shape), _one(spread), claims, disks, exclusive
    )


def _one(shape: bytes) -> bytes:
    return one(shape) if len(shape) <= _SHARED_BYTES_MAX else shape


def placed(info: PodInfo, node_name: str) -> PodInfo:
    """Return the same pod as if bound to `node_name`, as an assumption stores it."""
    return replace(info, pod=replace(info.pod, spec=replace(info.pod.spec, node_name=node_name)))


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Return the host ports of regular containers and sidecars (§A.4)."""
    sidecars = (c for c in pod.spec.init_containers if c.restart_policy == "Always")
    return tuple(
        HostPort(port.protocol or "TCP", port.host_port, port.host_ip or ANY_IP)
        for container in (*pod.spec.containers, *sidecars)
        for port in container.ports
        if port.host_port > 0
    )


def _is_disk(volume: Volume) -> bool:
    if volume.persistent_volume_claim is not None or volume.ephemeral is not None:
        return False
    return _disk_sources(volume) != _NO_DISK


def requests_of(pod: Pod, *, resize_by_totals: bool = False) -> Requests:
    """Return the pod's effective requests, with in-place resize and pod-level resources (§A.1).

    During a resize the greatest of requested, allocated and actual amounts counts: of each container, as in 1.36, or of the
    totals of the pod, as from 1.37 on.

    Upstream: staging/src/k8s.io/component-helpers/resource/helpers.go PodRequests
    """
    return _requests(pod, by_totals=resize_by_totals)[0]


def spec_requests_of(pod: Pod) -> Requests:
    """Return the exact requests of the specification in billionths, whatever a resize has allocated."""
    total = container_amounts(pod, "requests")
    total |= pod_level(_exact(pod.spec.resources.requests))
    _add(total, _exact(pod.spec.overhead))
    return total


def container_amounts(pod: Pod, field: Literal["requests", "limits"]) -> Requests:
    """Return the sum of the containers' requests or limits, in billionths."""
    spec = pod.spec
    return _aggregate(
        spec.containers, spec.init_containers, lambda container: _exact(getattr(container.resources, field))
    )


def limits_of(pod: Pod, *, of_all_containers: bool = False) -> Requests:
    """Return the exact limits of the specification in billionths. Overhead counts where there is a limit.

    `of_all_containers`: the containers have a limit of cpu or memory only if each of them sets one, as from 1.38 on.

    Upstream: staging/src/k8s.io/component-helpers/resource/helpers.go PodLimits
    """
    spec = pod.spec
    total = container_amounts(pod, "limits")
    if of_all_containers:
        each = [_exact(one.resources.limits) for one in (*spec.init_containers, *spec.containers)]
        for name in (CPU, MEMORY):
            if not all(limits.get(name) for limits in each):
                total.pop(name, None)
    total |= pod_level(_exact(spec.resources.limits))
    _add(total, {name: nano for name, nano in _exact(spec.overhead).items() if total.get(name)})
    return total


def containers_alone(info: PodInfo) -> PodInfo:
    """Return the pod without its pod-level requests: those of its containers count. The pod runs nowhere, so no resize."""
    spec = replace(info.pod.spec, resources=ResourceRequirements())
    pod = replace(info.pod, spec=spec)
    requests, milli_cpu, memory_bytes = _requests(pod, by_totals=False)
    return replace(info, requests=requests, non_zero_milli_cpu=milli_cpu, non_zero_memory_bytes=memory_bytes)


def _requests(pod: Pod, *, by_totals: bool) -> tuple[Requests, int, int]:
    spec, status = pod.spec, pod.status
    resized = [
        (s.name, s.allocated_resources, s.resources)
        for s in (*status.container_statuses, *status.init_container_statuses)
        if s.resources is not None or s.allocated_resources is not None
    ]
    memo = _encode(
        (
            [(c.resources.requests, c.name if resized else "") for c in spec.containers],
            [(c.resources.requests, c.name if resized else "", c.restart_policy) for c in spec.init_containers],
            spec.resources.requests,
            spec.overhead,
            resized,
            status.resources,
            status.allocated_resources,
            _resize_is_infeasible(pod),
            by_totals,
        )
    )
    cached = _sums.get(memo)
    if cached is None and len(memo) > _SHARED_BYTES_MAX:
        return _compute(pod, _effective_by_totals if by_totals else _effective)
    if cached is None:
        cached = _sums.share(memo, _compute(pod, _effective_by_totals if by_totals else _effective))
    return cached


def _compute(pod: Pod, effective: Callable[[Pod, Requests], Requests]) -> tuple[Requests, int, int]:
    requests = effective(pod, {})
    # A container without a request counts the default. With pod-level requests it does so only if no part of the pod
    # names that resource (§A.2).
    is_whole = bool(pod_level(pod.spec.resources.requests))
    defaults = {name: amount for name, amount in _DEFAULTS.items() if not (is_whole and name in requests)}
    non_zero = _rounded(effective(pod, defaults))
    return _rounded(requests), non_zero.get(CPU, 0), non_zero.get(MEMORY, 0)


def _exact(requests: ResourceMap) -> Requests:
    """Return amounts in billionths: parts are added before they are rounded."""
    return {name: amount.nano for name, amount in requests.items()}


def _rounded(exact: Requests) -> Requests:
    """Round up to milli-CPU and whole units. Amounts are at least 0, and saturate at int64."""
    return {name: max(0, int64(amount, _NANO_PER_MILLI if name == CPU else _NANO)) for name, amount in exact.items()}


def pod_level(requests: Mapping[str, T]) -> dict[str, T]:
    """Return the resources that a pod can request as a whole."""
    return {n: q for n, q in requests.items() if n in {CPU, MEMORY} or n.startswith("hugepages-")}


def _effective(pod: Pod, defaults: Requests) -> Requests:
    spec, status = pod.spec, pod.status
    once = {c.name for c in spec.init_containers if c.restart_policy != "Always"}  # these are never resized
    statuses = {s.name: s for s in (*status.container_statuses, *status.init_container_statuses) if s.name not in once}
    infeasible = _resize_is_infeasible(pod)

    def amounts(container: Container) -> Requests:
        return defaults | _of_container(container, statuses.get(container.name), infeasible=infeasible)

    total = _aggregate(spec.containers, spec.init_containers, amounts)
    level = pod_level(spec.resources.requests)
    if level:
        held = _exact(level)
        if status.resources is not None:
            held = _held(held, status.resources.requests, status.allocated_resources, infeasible=infeasible)
        total |= {name: held.get(name, 0) for name in level}
    _add(total, _exact(spec.overhead))
    return total


def _effective_by_totals(pod: Pod, defaults: Requests) -> Requests:
    """Return the greatest of three totals of the pod. The API server leaves empty maps out, so they count as absent."""
    spec, status = pod.spec, pod.status
    statuses = {s.name: s for s in (*status.container_statuses, *status.init_container_statuses)}
    infeasible = _resize_is_infeasible(pod)
    actual = status.resources.requests if status.resources is not None else {}

    def total_of(amounts: Callable[[Container, ContainerStatus], ResourceMap]) -> Requests:
        def of(container: Container) -> Requests:
            return defaults | _exact(amounts(container, statuses.get(container.name, _NO_STATUS)))

        return _aggregate(spec.containers, spec.init_containers, of)

    def allocated_to(container: Container, seen: ContainerStatus) -> ResourceMap:
        return seen.allocated_resources or ({} if infeasible else container.resources.requests)

    def actual_of(container: Container, seen: ContainerStatus) -> ResourceMap:
        return (seen.resources.requests if seen.resources is not None else {}) or allocated_to(container, seen)

    if status.allocated_resources and actual:
        total = _greater(_exact(status.allocated_resources), _exact(actual))
    else:
        total = _greater(total_of(allocated_to), total_of(actual_of))
    if not infeasible:
        total = _greater(total_of(lambda container, _: container.resources.requests), total)
    if pod_level(spec.resources.requests):
        level = _exact(spec.resources.requests)
        if status.resources is not None:
            level = _held(level, actual, status.allocated_resources, infeasible=infeasible)
        total |= pod_level(level)
    _add(total, _exact(spec.overhead))
    return total


_NO_STATUS: Final = ContainerStatus()


def _of_container(container: Container, status: ContainerStatus | None, *, infeasible: bool) -> Requests:
    """Return the greatest of requested, allocated and actual amounts during in-place resize, per resource."""
    wanted = _exact(container.resources.requests)
    if status is None or status.resources is None:
        return wanted
    return _held(wanted, status.resources.requests, status.allocated_resources, infeasible=infeasible)


def _held(wanted: Requests, actuated: ResourceMap, allocated: ResourceMap | None, *, infeasible: bool) -> Requests:
    held = _greater(_exact(actuated), _exact(allocated or {}))
    return held if infeasible else _greater(wanted, held)


def _resize_is_infeasible(pod: Pod) -> bool:
    condition = pod.condition("PodResizePending")
    return condition is not None and condition.reason == "Infeasible"


def _aggregate(
    containers: Iterable[Container], init_containers: Iterable[Container], of: Callable[[Container], Requests]
) -> Requests:
    """Return the sum of containers, but at least the largest moment of start-up. Sidecars count in both."""
    total: Requests = {}
    for container in containers:
        _add(total, of(container))
    sidecars: Requests = {}
    largest: Requests = {}
    for container in init_containers:
        amount = of(container)
        if container.restart_policy == "Always":
            _add(total, amount)
            _add(sidecars, amount)
            continue
        for name, value in amount.items():  # of other resources the sidecars hold no more now than in the end
            largest[name] = max(largest.get(name, 0), sidecars.get(name, 0) + value)
    return _greater(total, largest)


def _add(into: Requests, amount: Requests) -> None:
    for name, value in amount.items():
        into[name] = into.get(name, 0) + value


def _greater(left: Requests, right: Requests) -> Requests:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in (*left, *(n for n in right if n not in left))}


def allocatable(resources: ResourceMap) -> Requests:
    """Return `status.allocatable` in the same units, as a new dict."""
    return {name: max(0, amount.milli if name == CPU else amount.value) for name, amount in resources.items()}
