"""What the claim for a pod's extended resources asks for, and which container gets what of it (docs/spec/dra.md §3.12).

Containers are numbered through, init containers first. Those that run as long as the pod does (sidecars and regular ones)
each have a request of their own; those that only run first borrow from containers behind them, and what is then still
missing the most is asked for once, for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from scheduler.core.pod import Container, ContainerExtendedResourceRequest as Mapped, Pod
from scheduler.core.resourceclaims import EXACT_COUNT, DeviceRequest, ExactDeviceRequest

_ONE: Final = 10**9
"""In nano units."""


class Asked(NamedTuple):
    """Both are empty if no container wants anything."""

    requests: tuple[DeviceRequest, ...] = ()
    mappings: tuple[Mapped, ...] = ()


class _Request(NamedTuple):
    name: str
    amount: int


@dataclass(slots=True)
class _Share:
    """What one container gets: whose requests it may use, and what it has to ask for itself."""

    own: _Request | None = None
    mappings: list[Mapped] = field(default_factory=list)


def asked(pod: Pod, classes: Mapping[str, str]) -> Asked:
    """`classes` has the names of the classes by the resources that they are to serve."""
    requests: list[DeviceRequest] = []
    mappings: list[Mapped] = []
    for resource in sorted(classes):
        found, mapped = _of_resource(pod, resource)
        requests += (DeviceRequest(each.name, _exactly(classes[resource], each.amount)) for each in found)
        mappings += mapped
    return Asked(tuple(sorted(requests, key=lambda request: request.name)), tuple(mappings))


def _exactly(device_class: str, count: int) -> ExactDeviceRequest:
    return ExactDeviceRequest(device_class_name=device_class, allocation_mode=EXACT_COUNT, count=count)


def _of_resource(pod: Pod, resource: str) -> tuple[list[_Request], list[Mapped]]:
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    first = len(pod.spec.init_containers)
    is_long = [at >= first or each.restart_policy == "Always" for at, each in enumerate(containers)]
    long = {at: _share(at, each, resource) for at, each in enumerate(containers) if is_long[at]}
    lasting = [long[at].own if is_long[at] else None for at in range(len(containers))]
    short = [
        _share(at, each, resource, reusable=[request for request in lasting[at:] if request is not None])
        for at, each in enumerate(containers)
        if not is_long[at]
    ]
    extra = _largest(share.own for share in short)
    mappings = [each for share in long.values() for each in share.mappings]
    mappings += _renamed(short, extra)
    requests = [request for request in (extra, *lasting) if request is not None]
    return requests, mappings


def _share(at: int, container: Container, resource: str, *, reusable: Sequence[_Request] = ()) -> _Share:
    """What is there is used in order until it is enough; the rest is asked for."""
    wanted = _whole(container, resource)
    share = _Share()
    if not wanted:
        return share
    for request in reusable:
        share.mappings.append(Mapped(container.name, resource, request.name))
        wanted -= request.amount
        if wanted <= 0:
            return share
    number = sorted(container.resources.requests).index(resource)
    share.own = _Request(f"container-{at}-request-{number}", wanted)
    share.mappings.append(Mapped(container.name, resource, share.own.name))
    return share


def _whole(container: Container, resource: str) -> int:
    """How many devices; none for what is no whole number, which a server refuses."""
    amount = container.resources.requests.get(resource)
    if amount is None or amount.nano % _ONE:
        return 0
    return max(amount.nano // _ONE, 0)


def _largest(requests: Iterable[_Request | None]) -> _Request | None:
    """The first of those that count most."""
    return max((each for each in requests if each is not None), key=lambda request: request.amount, default=None)


def _renamed(shares: Iterable[_Share], extra: _Request | None) -> Iterator[Mapped]:
    """Whoever asked for something more uses the one request that is made for all of them."""
    for share in shares:
        for mapped in share.mappings:
            if extra is not None and share.own is not None and mapped.request_name == share.own.name:
                yield msgspec.structs.replace(mapped, request_name=extra.name)
            else:
                yield mapped
