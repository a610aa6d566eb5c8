"""Laws of devices that hold whatever happens. Each function returns the broken ones as sentences; none is a good answer.

They need only the stored objects, so they work for an in-process server and for a dump. A device is defined by its slice of
the newest generation; a device that is in no slice any more is not checked. docs/spec/dra.md §4.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple, Protocol

from scheduler.api.core_v1 import NodeSelector
from scheduler.api.decode import from_manifest
from scheduler.api.node_affinity import selector_matches
from scheduler.api.resource_v1 import (
    Device,
    DeviceId,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceSlice,
    by_bare_name,
)
from scheduler.core.clock import Clock
from simulator.apiserver import ApiServer
from simulator.controllers.resource_claim import extended_claim, is_controlled_by, is_done, name_of

Object = dict[str, Any]
_CLAIMS: Final = "resourceclaims"
_NANO: Final = 10**9


class Stored(Protocol):
    """A source of objects, such as an `ApiServer`."""

    def objects(self, kind_or_resource: str, /) -> Sequence[Object]:
        """All of a kind; only read."""


class _Defined(NamedTuple):
    slice: ResourceSlice
    device: Device


class _Taken(NamedTuple):
    claim: str
    result: DeviceRequestAllocationResult


class ReservationWitness:
    """Remembers since when pods are gone. Start it before the first pod."""

    def __init__(self, server: ApiServer, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self._gone_since: dict[str, float] = {}
        self.close = server.subscribe(self._on_write)

    def lingering(self, longer_than_s: float) -> list[str]:
        """No claim stays reserved for a pod that has ended, or is not there, for longer than that."""
        now, broken = self._clock.now(), []
        for key, user in _pod_users(self._server):
            since = self._gone_since.get(user["uid"])
            if since is not None and now - since > longer_than_s:
                broken.append(f"claim {key} is reserved for pod {user['name']}, gone for {now - since:g} s")
        return broken

    def _on_write(self, type_: str, resource: str, obj: Object) -> None:
        if resource == "pods" and (type_ == "DELETED" or is_done(obj)):
            self._gone_since.setdefault(obj["metadata"]["uid"], self._clock.now())


def devices_taken_twice(server: Stored) -> list[str]:
    """A device is in one claim, admin access aside; one that is shared is in each under a separate id.

    No claim has a device twice, for admin access neither.
    """
    broken, users = [], defaultdict[DeviceId, list[_Taken]](list)
    for claim in _claims(server):
        seen: set[tuple[DeviceId, str | None]] = set()
        for result in _results(claim):
            if (result.id, result.share_id) in seen:
                broken.append(f"claim {claim.key} has device {result.id} twice")
            elif not result.admin_access:
                users[result.id].append(_Taken(claim.key, result))
            seen.add((result.id, result.share_id))
    for device, taken in users.items():
        shares = [each.result.share_id for each in taken]
        if len(taken) > 1 and (None in shares or len(set(shares)) < len(shares)):
            broken.append(f"device {device} is taken by {' and '.join(each.claim for each in taken)}")
    return broken


def capacity_overdrawn(server: Stored) -> list[str]:
    """What claims consume of a shared device is there, and only a device that may be shared is."""
    devices = _devices(server)
    used: dict[DeviceId, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    broken = []
    for claim in _claims(server):
        for result in _results(claim):
            defined = devices.get(result.id)
            if defined is None or result.share_id is None or result.admin_access:
                continue
            if not defined.device.allow_multiple_allocations:
                broken.append(f"claim {claim.key} shares device {result.id}, which is not to be shared")
            for name, amount in by_bare_name(result.driver, result.consumed_capacity or {}).items():
                used[result.id][name] += amount.nano
    for device, amounts in used.items():
        capacity = by_bare_name(device.driver, devices[device].device.capacity)
        there = {name: capacity[name].value.nano if name in capacity else 0 for name in amounts}
        broken += _overdrawn(f"device {device}", amounts, there)
    return broken


def counters_overdrawn(server: Stored) -> list[str]:
    """What the allocated devices of a pool consume, each once, is in the counter sets of the pool."""
    devices = _devices(server)
    taken = {result.id for claim in _claims(server) for result in _results(claim) if not result.admin_access}
    used: dict[tuple[str, str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for device in sorted(taken & devices.keys()):
        for consumed in devices[device].device.consumes_counters:
            for name, counter in consumed.counters.items():
                used[device.driver, device.pool, consumed.counter_set][name] += counter.value.nano
    there: dict[tuple[str, str, str], dict[str, int]] = defaultdict(dict)
    for each in _newest(server):
        for counters in each.spec.shared_counters:
            amounts = {name: counter.value.nano for name, counter in counters.counters.items()}
            there[each.spec.driver, each.spec.pool.name, counters.name] = amounts
    return [
        law
        for at, amounts in used.items()
        for law in _overdrawn(f"counters {'/'.join(at)}", amounts, {name: there[at].get(name, 0) for name in amounts})
    ]


def reserved_for_the_gone(server: Stored) -> list[str]:
    """No claim is reserved for a pod that has ended or is not there: call it when the claim controller is at rest."""
    pods = {pod["metadata"]["uid"]: pod for pod in server.objects("pods")}
    return [
        f"claim {key} is reserved for pod {user['name']}, which is gone"
        for key, user in _pod_users(server)
        if user["uid"] not in pods or is_done(pods[user["uid"]])
    ]


def reserved_unallocated(server: Stored) -> list[str]:
    """A reserved claim is allocated."""
    return [
        f"claim {claim.key} is reserved and not allocated"
        for claim in _claims(server)
        if claim.status.reserved_for and not claim.is_allocated
    ]


def claims_of_pods(server: Stored) -> list[str]:
    """All claims of an unfinished pod on a node are its own, allocated, usable there, and reserved for it."""
    claims = {f"{obj['metadata']['namespace']}/{obj['metadata']['name']}": obj for obj in server.objects(_CLAIMS)}
    labels = _labels(server)
    broken = []
    for pod in server.objects("pods"):
        metadata, node = pod["metadata"], pod["spec"].get("nodeName")
        if not node or is_done(pod):
            continue
        where = f"pod {metadata['namespace']}/{metadata['name']} is on {node}"
        for name, is_own in _named(pod):
            if not name:
                broken.append(f"{where}, and a claim of it was never made")
                continue
            key = f"{metadata['namespace']}/{name}"
            why = "is not there" if key not in claims else _unusable(claims[key], pod, labels, is_own=is_own)
            if why:
                broken.append(f"{where}, and claim {key} {why}")
    return broken


def out_of_reach(server: Stored) -> list[str]:
    """Wherever an allocation may be used, its devices are for that node."""
    devices, labels = _devices(server), _labels(server)
    broken = []
    for claim in _claims(server):
        for result in _results(claim):
            defined = devices.get(result.id)
            missed = [
                node
                for node in labels
                if defined is not None and _is_usable(claim, node, labels) and not _is_for(defined, node, labels[node])
            ]
            if missed:
                broken.append(f"claim {claim.key} may be used on {missed[0]}, and device {result.id} is not for it")
    return broken


def _unusable(obj: Object, pod: Object, labels: Mapping[str, dict[str, str]], *, is_own: bool) -> str:
    claim, node = from_manifest(ResourceClaim, obj), pod["spec"]["nodeName"]
    if is_own and not is_controlled_by(obj, pod):
        return "is not its own"
    if not claim.is_allocated:
        return "is not allocated"
    if node in labels and not _is_usable(claim, node, labels):
        return "cannot be used there"
    return "" if claim.is_reserved_for(pod["metadata"]["uid"]) else "is not reserved for it"


def _is_usable(claim: ResourceClaim, node: str, labels: Mapping[str, dict[str, str]]) -> bool:
    allocation = claim.status.allocation
    selector = None if allocation is None else allocation.node_selector
    return selector is None or selector_matches(selector, node, labels[node])


def _is_for(defined: _Defined, node: str, labels: dict[str, str]) -> bool:
    spec, device = defined.slice.spec, defined.device
    if spec.per_device_node_selection:
        return _selects(device.node_name, device.node_selector, node, labels) or bool(device.all_nodes)
    return _selects(spec.node_name, spec.node_selector, node, labels) or bool(spec.all_nodes)


def _selects(name: str | None, selector: NodeSelector | None, node: str, labels: dict[str, str]) -> bool:
    return name == node or (selector is not None and selector_matches(selector, node, labels))


def _named(pod: Object) -> Iterator[tuple[str, bool]]:
    """Names of its claims ("" if one was not made), and whether each has to be its own."""
    for entry in pod["spec"].get("resourceClaims") or ():
        name = name_of(pod, entry)
        if name is not None:
            yield name, bool(entry.get("resourceClaimTemplateName"))
    if extended_claim(pod):
        yield extended_claim(pod), True


def _pod_users(server: Stored) -> Iterator[tuple[str, Object]]:
    for claim in server.objects(_CLAIMS):
        for user in (claim.get("status") or {}).get("reservedFor") or ():
            if user["resource"] == "pods" and not user.get("apiGroup"):
                yield f"{claim['metadata']['namespace']}/{claim['metadata']['name']}", user


def _overdrawn(what: str, used: Mapping[str, int], there: Mapping[str, int]) -> list[str]:
    return [
        f"{what}: {name} {_whole(amount)} taken, {_whole(there[name])} there"
        for name, amount in used.items()
        if amount > there[name]
    ]


def _whole(nano: int) -> str:
    return f"{Decimal(nano) / _NANO:f}"


def _claims(server: Stored) -> list[ResourceClaim]:
    return [from_manifest(ResourceClaim, obj) for obj in server.objects(_CLAIMS)]


def _results(claim: ResourceClaim) -> tuple[DeviceRequestAllocationResult, ...]:
    allocation = claim.status.allocation
    return () if allocation is None else allocation.devices.results


def _newest(server: Stored) -> list[ResourceSlice]:
    """The slices of the newest generation of each pool."""
    slices = [from_manifest(ResourceSlice, obj) for obj in server.objects("resourceslices")]
    newest: dict[tuple[str, str], int] = {}
    for each in slices:
        pool = (each.spec.driver, each.spec.pool.name)
        newest[pool] = max(newest.get(pool, 0), each.spec.pool.generation)
    return [each for each in slices if each.spec.pool.generation == newest[each.spec.driver, each.spec.pool.name]]


def _devices(server: Stored) -> dict[DeviceId, _Defined]:
    return {
        DeviceId(each.spec.driver, each.spec.pool.name, device.name): _Defined(each, device)
        for each in _newest(server)
        for device in each.spec.devices
    }


def _labels(server: Stored) -> dict[str, dict[str, str]]:
    return {node["metadata"]["name"]: node["metadata"].get("labels") or {} for node in server.objects("nodes")}
