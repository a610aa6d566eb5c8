"""What scheduling derives from a pod, once: requests, ports, shape (docs/spec/core.md §A.1–§A.4).

The sums are memoised by the pod's own resource fields, so the second pod of a Deployment costs a look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from scheduler.core.pod import Container, ContainerStatus, Pod, ResourceMap

Requests: TypeAlias = dict[str, int]
"""Resource name → amount: cpu in milli-CPU, everything else in whole units (bytes, devices)."""

DEFAULT_MILLI_CPU: Final = 100
DEFAULT_MEMORY_BYTES: Final = 200 * 1024 * 1024
CPU: Final = "cpu"
MEMORY: Final = "memory"
ANY_IP: Final = "0.0.0.0"  # noqa: S104 (an address to compare, not one to bind)


@dataclass(frozen=True, slots=True, order=True)
class HostPort:
    """A port claimed on a node; `ip` is `0.0.0.0` when the pod named none."""

    protocol: str
    port: int
    ip: str


@dataclass(frozen=True, slots=True, eq=False)
class PodInfo:
    """A pod and what follows from it. Compared by identity; the mappings are shared and never changed."""

    pod: Pod
    requests: Requests
    non_zero_milli_cpu: int
    """What the scoring strategies count: containers without a request count 100m and 200Mi (§A.2)."""
    non_zero_memory_bytes: int
    host_ports: tuple[HostPort, ...]
    placement_shape: bytes
    """Equal for pods with equal nodeSelector and affinity; empty when there is neither."""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return self.pod.metadata.key

    @property
    def uid(self) -> str:
        """The API server's id of this very pod."""
        return self.pod.metadata.uid

    @property
    def node_name(self) -> str:
        """Where the pod is bound or assumed; empty while it is not."""
        return self.pod.spec.node_name

    @property
    def priority(self) -> int:
        """§A.5."""
        return self.pod.spec.priority or 0


_encode = msgspec.json.Encoder(enc_hook=lambda quantity: quantity.milli).encode
_sums: dict[bytes, tuple[Requests, int, int]] = {}
_SUMS_MAX: Final = 20_000


def pod_info(pod: Pod) -> PodInfo:
    """Derive everything for one pod. A shape seen before costs some 3 µs."""
    spec = pod.spec
    requests, milli_cpu, memory_bytes = _requests(pod)
    shape = _encode((spec.node_selector, spec.affinity)) if spec.node_selector or spec.affinity else b""
    return PodInfo(pod, requests, milli_cpu, memory_bytes, host_ports(pod), shape)


def placed(info: PodInfo, node_name: str) -> PodInfo:
    """The same pod as if bound to `node_name`: what an assumption puts into the cache."""
    spec = msgspec.structs.replace(info.pod.spec, node_name=node_name)
    pod = msgspec.structs.replace(info.pod, spec=spec)
    return PodInfo(
        pod, info.requests, info.non_zero_milli_cpu, info.non_zero_memory_bytes, info.host_ports, info.placement_shape
    )


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Host ports of regular containers and sidecars (§A.4)."""
    sidecars = (c for c in pod.spec.init_containers if c.restart_policy == "Always")
    return tuple(
        HostPort(port.protocol or "TCP", port.host_port, port.host_ip or ANY_IP)
        for container in (*pod.spec.containers, *sidecars)
        for port in container.ports
        if port.host_port > 0
    )


def requests_of(pod: Pod) -> Requests:
    """The pod's effective requests, in-place resize and pod-level resources included (§A.1)."""
    return _requests(pod)[0]


def _requests(pod: Pod) -> tuple[Requests, int, int]:
    spec, status = pod.spec, pod.status
    if not status.container_statuses and status.resources is None:
        memo = _encode(
            (
                [c.resources for c in spec.containers],
                [(c.resources, c.restart_policy) for c in spec.init_containers],
                spec.resources,
                spec.overhead,
            )
        )
        known = _sums.get(memo)
        if known is None:
            known = _compute(pod)
            if len(_sums) < _SUMS_MAX:
                _sums[memo] = known
        return known
    return _compute(pod)


def _compute(pod: Pod) -> tuple[Requests, int, int]:
    requests = _effective(pod, _plain)
    non_zero = _effective(pod, _with_defaults(_pod_level(pod.spec.resources.requests)))
    return requests, non_zero.get(CPU, 0), non_zero.get(MEMORY, 0)


def _plain(requests: ResourceMap) -> Requests:
    return {name: amount.milli if name == CPU else amount.value for name, amount in requests.items()}


def _with_defaults(pod_level: Mapping[str, object]) -> Callable[[ResourceMap], Requests]:
    """Containers without a request count the defaults, unless the pod as a whole requests that resource (§A.2)."""

    def amounts(requests: ResourceMap) -> Requests:
        out = _plain(requests)
        if CPU not in out and CPU not in pod_level:
            out[CPU] = DEFAULT_MILLI_CPU
        if MEMORY not in out and MEMORY not in pod_level:
            out[MEMORY] = DEFAULT_MEMORY_BYTES
        return out

    return amounts


def _pod_level(requests: ResourceMap) -> ResourceMap:
    return {n: q for n, q in requests.items() if n in {CPU, MEMORY} or n.startswith("hugepages-")}


def _effective(pod: Pod, amounts: Callable[[ResourceMap], Requests]) -> Requests:
    total = _container_part(pod, amounts)
    spec, status = pod.spec, pod.status
    level = _pod_level(spec.resources.requests)
    if level:
        infeasible = _resize_is_infeasible(pod)
        wanted = {} if infeasible and (status.resources or status.allocated_resources) else _plain(level)
        seen = _pod_level(status.resources.requests) if status.resources else {}
        given = _pod_level(status.allocated_resources or {})
        both = _greater(_greater(wanted, _plain(seen)), _plain(given))
        total |= {name: both.get(name, 0) for name in level}
    for name, amount in spec.overhead.items():
        total[name] = total.get(name, 0) + (amount.milli if name == CPU else amount.value)
    return total


def _container_part(pod: Pod, amounts: Callable[[ResourceMap], Requests]) -> Requests:
    spec = _aggregate(pod, lambda c: amounts(c.resources.requests))
    statuses = {s.name: s for s in (*pod.status.container_statuses, *pod.status.init_container_statuses)}
    resized = any(s.allocated_resources is not None or s.resources is not None for s in statuses.values())
    if not resized:
        return spec
    infeasible = _resize_is_infeasible(pod)

    def allocated(container: Container) -> Requests:
        status = statuses.get(container.name, _NO_STATUS)
        if status.allocated_resources is not None:
            return amounts(status.allocated_resources)
        return {} if infeasible else amounts(container.resources.requests)

    def actuated(container: Container) -> Requests:
        status = statuses.get(container.name, _NO_STATUS)
        return amounts(status.resources.requests) if status.resources is not None else allocated(container)

    held = _greater(_aggregate(pod, actuated), _aggregate(pod, allocated))
    return held if infeasible else _greater(spec, held)


_NO_STATUS: Final = ContainerStatus()


def _resize_is_infeasible(pod: Pod) -> bool:
    condition = pod.condition("PodResizePending")
    return condition is not None and condition.reason == "Infeasible"


def _aggregate(pod: Pod, of: Callable[[Container], Requests]) -> Requests:
    """Containers together, but never less than the largest moment of start-up; sidecars run through both."""
    total: Requests = {}
    for container in pod.spec.containers:
        _add(total, of(container))
    sidecars: Requests = {}
    largest: Requests = {}
    for container in pod.spec.init_containers:
        amount = of(container)
        if container.restart_policy == "Always":
            _add(total, amount)
            _add(sidecars, amount)
            moment = dict(sidecars)
        else:
            moment = dict(sidecars)
            _add(moment, amount)
        largest = _greater(largest, moment)
    return _greater(total, largest)


def _add(into: Requests, amount: Requests) -> None:
    for name, value in amount.items():
        into[name] = into.get(name, 0) + value


def _greater(left: Requests, right: Requests) -> Requests:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in (*left, *(n for n in right if n not in left))}


def allocatable(resources: ResourceMap) -> Requests:
    """`status.allocatable` in the same units."""
    return _plain(resources)
