"""The floor client's devices: which of a node's a claim gets, and the writes that say so.

Mirrors slices and claims with the project's own reflectors, as the scheduler does. It knows what this package's classes
and selectors mean and evaluates none of them: on a node it takes the first devices that are left, of one NUMA node where
two are requested, and keeps count of shares and counters.
"""

import asyncio
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from benchmarks.deviceobjects import only_on
from benchmarks.devices import DRIVER, MODEL, PROFILES
from scheduler.api.core_v1 import NodeSelector, Pod
from scheduler.api.decode import Delta, from_manifest
from scheduler.api.meta import seconds
from scheduler.api.quantity import Quantity, parse
from scheduler.api.resource_v1 import (
    AllocationResult,
    ConsumerReference,
    Device,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceSlice,
)
from scheduler.kube.writes.api_writer import ApiWriter
from scheduler.plugins.dra.binding.claim_writer import WRITES_IN_FLIGHT

_MEMORY = "memory"
_MIB = 1024**2
_Counter = tuple[str, str]
"""Counter set and counter."""


class Taken(NamedTuple):
    """The devices of a claim, as its status has them."""

    claim: ResourceClaim
    results: Sequence[DeviceRequestAllocationResult]


class _Part(NamedTuple):
    """A device, and all that it takes of its node's counters."""

    device: Device
    profile: str
    numa: int | None
    consumes: Mapping[_Counter, int]


class _Given(NamedTuple):
    """A device of a node, or a share of it."""

    device: str
    share_id: str | None = None
    consumed_capacity: dict[str, Quantity] | None = None


class _OnNode:
    """What one node has left."""

    def __init__(self) -> None:
        self._groups: dict[int | None, list[_Part]] = defaultdict(list)
        """By NUMA node, the free ones."""
        self._left: dict[str, int] = {}
        """Memory of each shared device."""
        self._counters: dict[_Counter, int] = {}

    def add(self, piece: ResourceSlice) -> None:
        for counters in piece.spec.shared_counters:
            self._counters |= {(counters.name, name): each.value.value for name, each in counters.counters.items()}
        for device in piece.spec.devices:
            if device.attributes["model"].string != MODEL:
                continue
            part = _part(device)
            self._groups[part.numa].append(part)
            if device.allow_multiple_allocations:
                self._left[device.name] = device.capacity[_MEMORY].value.value

    def take(self, request: ExactDeviceRequest) -> list[_Given] | None:
        """None if there is too little; nothing is taken then."""
        for group in self._groups.values():
            chosen = self._chosen(group, request)
            if chosen is not None:
                return [self._given(group, part, request) for part in chosen]
        return None

    def _chosen(self, group: Sequence[_Part], request: ExactDeviceRequest) -> list[_Part] | None:
        wanted = [part for part in group if not part.profile or part.profile == request.device_class_name]
        fitting = [part for part in wanted if self._fits(part, request)][: request.count]
        return fitting if len(fitting) == request.count else None

    def _fits(self, part: _Part, request: ExactDeviceRequest) -> bool:
        if part.device.allow_multiple_allocations:
            return self._left[part.device.name] >= _share(part.device, request)
        return all(self._counters[counter] >= amount for counter, amount in part.consumes.items())

    def _given(self, group: list[_Part], part: _Part, request: ExactDeviceRequest) -> _Given:
        name = part.device.name
        if part.device.allow_multiple_allocations:
            share = _share(part.device, request)
            self._left[name] -= share
            return _Given(name, str(uuid.uuid4()), {_MEMORY: parse(f"{share // _MIB}Mi")})
        group.remove(part)
        for counter, amount in part.consumes.items():
            self._counters[counter] -= amount
        return _Given(name)


class FloorDevices:
    """The state of one floor client."""

    def __init__(self, writer: ApiWriter) -> None:
        self._writer = writer
        self._claims: dict[str, ResourceClaim] = {}
        self._nodes: dict[str, _OnNode] = defaultdict(_OnNode)
        self._turns = asyncio.Semaphore(WRITES_IN_FLIGHT)
        self._waits: dict[str, asyncio.Event] = {}
        """By claim, the pod that waits for it to be made."""

    # -- events of watches -------------------------------------------------------------------------------------------

    def on_slices(self, deltas: Sequence[Delta[ResourceSlice]]) -> None:
        for delta in deltas:
            piece = delta.new
            if isinstance(piece, ResourceSlice) and delta.old is None and piece.spec.driver == DRIVER:
                self._nodes[piece.spec.node_name or ""].add(piece)

    def on_claims(self, deltas: Sequence[Delta[ResourceClaim]]) -> None:
        for delta in deltas:
            claim = delta.new
            if isinstance(claim, ResourceClaim):
                self._claims[claim.key] = claim
                if waits := self._waits.get(claim.key):
                    waits.set()

    # -- a pod -------------------------------------------------------------------------------------------------------

    async def known(self, pod: Pod) -> None:
        """Wait until the watch has shown the claims of a pod that `has_claims`."""
        for key in _claim_keys(pod):
            if key not in self._claims:
                waits = self._waits[key] = asyncio.Event()
                await waits.wait()
                del self._waits[key]

    def plan(self, pod: Pod, node_name: str) -> list[Taken] | None:
        """Take what the pod's claims need on this node; None if it has too little. Pods of this package have one."""
        taken = []
        for key in _claim_keys(pod):
            claim = self._claims[key]
            (request,) = claim.spec.devices.requests
            assert request.exactly is not None
            results = self._nodes[node_name].take(request.exactly)
            if results is None:
                return None
            taken.append(
                Taken(
                    claim,
                    [
                        DeviceRequestAllocationResult(
                            request=request.name, driver=DRIVER, pool=node_name, **result._asdict()
                        )
                        for result in results
                    ],
                )
            )
        return taken

    async def carry_out(self, pod: Pod, taken: Iterable[Taken], node_name: str) -> None:
        """Write what was taken."""
        for claim, results in taken:
            async with self._turns:
                protected = await self._writer.device_claims.protect_claim(claim)
                assert isinstance(protected, ResourceClaim)
                allocation = AllocationResult(
                    devices=DeviceAllocationResult(results=tuple(results)),
                    node_selector=from_manifest(NodeSelector, only_on(node_name)),
                    allocation_timestamp=seconds(time.time()),
                )
                user = ConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
                await self._writer.device_claims.allocate_claim(protected, allocation, user)


def has_claims(pod: Pod) -> bool:
    """Whether the claims that are made for this pod have names already."""
    named = {status.name for status in pod.status.resource_claim_statuses}
    return all(claim.resource_claim_name or claim.name in named for claim in pod.spec.resource_claims)


def _claim_keys(pod: Pod) -> Iterator[str]:
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    for claim in pod.spec.resource_claims:
        yield f"{pod.metadata.namespace}/{claim.resource_claim_name or made[claim.name]}"


def _part(device: Device) -> _Part:
    consumes = {
        (consumed.counter_set, name): counter.value.value
        for consumed in device.consumes_counters
        for name, counter in consumed.counters.items()
    }
    profile = device.attributes["profile"].string or "" if "profile" in device.attributes else ""
    assert not profile or profile in PROFILES
    return _Part(device, profile, device.attributes["numa"].int_, consumes)


def _share(device: Device, request: ExactDeviceRequest) -> int:
    """What a request takes of a shared device: the step is the least there is."""
    policy = device.capacity[_MEMORY].request_policy
    assert policy is not None
    assert policy.valid_range is not None
    assert policy.valid_range.step is not None
    assert request.capacity is not None
    step = policy.valid_range.step.value
    return -(-request.capacity.requests[_MEMORY].value // step) * step
