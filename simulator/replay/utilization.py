"""Use over time of each resource, device pool and storage class, as time-weighted means over equal intervals.

Follows the objects as they change, at constant cost per change. The same class measures a replay, from the writes of its
API server, and the recording itself, from its events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from scheduler.api.core_v1 import Node, Pod
from scheduler.api.decode import from_manifest
from scheduler.api.podinfo import CPU, allocatable, requests_of
from scheduler.api.quantity import parse
from simulator.controllers.controller import is_finished

Object: TypeAlias = dict[str, Any]
Group: TypeAlias = Literal["resource", "device", "storage"]

PODS: Final = "pods"
_NO_UNIT: Final = 1
_MILLI: Final = 1000


class SeriesKey(NamedTuple):
    """`pool` is the value of the pool label of nodes, the pool of devices, or "" for all together."""

    group: Group
    name: str
    """A resource, a driver of devices, or a storage class."""
    pool: str


@dataclass(slots=True)
class Steps:
    """An amount that changes at moments, and its mean in each of `sums` intervals."""

    width_s: float
    sums: list[float]
    value: float = 0.0
    since_s: float = 0.0

    def add(self, at_s: float, change: float) -> None:
        """Change the amount at a time, which never decreases."""
        self.advance(at_s)
        self.value += change

    def advance(self, at_s: float) -> None:
        """Let the time pass."""
        at_s = min(at_s, self.width_s * len(self.sums))
        while self.since_s < at_s:
            interval = min(int(self.since_s / self.width_s + 1e-9), len(self.sums) - 1)
            until_s = at_s if interval == len(self.sums) - 1 else min(at_s, (interval + 1) * self.width_s)
            self.sums[interval] += self.value * (until_s - self.since_s)
            self.since_s = until_s

    def means(self) -> list[float]:
        """Return the mean of each interval."""
        return [each / self.width_s for each in self.sums]


@dataclass(slots=True)
class UseSeries:
    """Use and capacity of one thing. `peak` is the largest share that was in use at any moment."""

    used: Steps
    capacity: Steps
    peak: float = 0.0

    def observe(self) -> None:
        """Record the share that is in use now."""
        if self.capacity.value > 0:
            self.peak = max(self.peak, self.used.value / self.capacity.value)


@dataclass(slots=True)
class _Placed:
    pool: str
    """The pool of its node when it was bound: the node may be gone when the pod ends."""
    amounts: dict[str, float]


@dataclass(slots=True)
class Utilization:
    """Call `observe` for each change, in order, then `finish` once. Amounts of CPU are in cores."""

    duration_s: float
    intervals: int
    pool_label: str = ""
    """The label of nodes whose values are pools; "" for none."""
    series: dict[SeriesKey, UseSeries] = field(default_factory=dict)
    _nodes: dict[str, tuple[str, dict[str, float]]] = field(default_factory=dict)
    """Node → pool and allocatable amounts."""
    _pods: dict[str, _Placed] = field(default_factory=dict)
    """By uid."""
    _slices: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Slice → driver and pool."""
    _pools: dict[tuple[str, str], dict[str, tuple[int, int]]] = field(default_factory=dict)
    """Driver and pool → generation and number of devices of each slice."""
    _claims: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """Claim → driver and pool of each allocated device."""
    _volumes: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Volume → storage class and bytes."""

    def observe(self, at_s: float, type_: str, resource: str, obj: Object) -> None:
        """Record one change. `obj` of a deletion needs its metadata only."""
        is_gone = type_ == "DELETED"
        match resource:
            case "pods":
                self._pod(at_s, obj, is_gone=is_gone)
            case "nodes":
                self._node(at_s, obj, is_gone=is_gone)
            case "resourceslices":
                self._slice(at_s, obj, is_gone=is_gone)
            case "resourceclaims":
                self._claim(at_s, obj, is_gone=is_gone)
            case "persistentvolumes":
                self._volume(at_s, obj, is_gone=is_gone)
            case _:
                pass

    def finish(self) -> None:
        """Let the time pass until the end."""
        for each in self.series.values():
            each.used.advance(self.duration_s)
            each.capacity.advance(self.duration_s)

    # -- changes -------------------------------------------------------------------------------------------------------

    def _pod(self, at_s: float, obj: Object, *, is_gone: bool) -> None:
        uid = obj["metadata"]["uid"]
        placed = self._pods.get(uid)
        if is_gone or is_finished(obj):
            if placed is not None:
                del self._pods[uid]
                self._use(at_s, placed, -1)
        elif placed is None and (node := obj["spec"].get("nodeName")):
            requests = requests_of(from_manifest(Pod, obj))
            self._pods[uid] = placed = _Placed(self._nodes.get(node, ("", {}))[0], _in_units(requests) | {PODS: 1.0})
            self._use(at_s, placed, 1)

    def _use(self, at_s: float, placed: _Placed, sign: int) -> None:
        for name, amount in placed.amounts.items():
            for each in self._keys("resource", name, placed.pool):
                series = self._series(each)
                series.used.add(at_s, sign * amount)
                series.observe()

    def _node(self, at_s: float, obj: Object, *, is_gone: bool) -> None:
        name = obj["metadata"]["name"]
        pool, amounts = self._nodes.get(name, ("", {}))
        if is_gone:
            self._nodes.pop(name, None)
            self._capacity(at_s, "resource", pool, amounts, {})
            return
        if not self._nodes.get(name):  # a node keeps the pool that it has at first
            pool = (obj["metadata"].get("labels") or {}).get(self.pool_label, "") if self.pool_label else ""
        new = _in_units(allocatable(from_manifest(Node, obj).status.allocatable))
        if new != amounts or name not in self._nodes:
            self._nodes[name] = pool, new
            self._capacity(at_s, "resource", pool, amounts, new)

    def _slice(self, at_s: float, obj: Object, *, is_gone: bool) -> None:
        name = obj["metadata"]["name"]
        if (before := self._slices.pop(name, None)) is not None:
            self._change_slices(at_s, before, name, None)
        if not is_gone:
            spec = obj.get("spec") or {}
            pool = spec.get("pool") or {}
            place = self._slices[name] = spec.get("driver", ""), pool.get("name", "")
            counts = int(pool.get("generation", 0)), len(spec.get("devices") or ())
            self._change_slices(at_s, place, name, counts)

    def _change_slices(self, at_s: float, place: tuple[str, str], name: str, counts: tuple[int, int] | None) -> None:
        driver, pool = place
        slices = self._pools.setdefault(place, {})
        before = _newest(slices)
        slices.pop(name, None)
        if counts is not None:
            slices[name] = counts
        if (devices := _newest(slices)) != before:
            self._capacity(at_s, "device", pool, {driver: float(before)}, {driver: float(devices)})

    def _claim(self, at_s: float, obj: Object, *, is_gone: bool) -> None:
        metadata = obj["metadata"]
        key = f"{metadata.get('namespace', '')}/{metadata['name']}"
        allocation = None if is_gone else (obj.get("status") or {}).get("allocation")
        results = ((allocation or {}).get("devices") or {}).get("results") or ()
        devices = [(each.get("driver", ""), each.get("pool", "")) for each in results if not each.get("adminAccess")]
        before = self._claims.pop(key, [])
        if devices:
            self._claims[key] = devices
        if devices != before:
            for sign, of_claim in ((-1.0, before), (1.0, devices)):
                for driver, pool in of_claim:
                    for each in self._keys("device", driver, pool):
                        self._series(each).used.add(at_s, sign)
            for driver, pool in devices:
                for each in self._keys("device", driver, pool):
                    self._series(each).observe()

    def _volume(self, at_s: float, obj: Object, *, is_gone: bool) -> None:
        name = obj["metadata"]["name"]
        before = self._volumes.pop(name, None)
        spec = obj.get("spec") or {}
        if not is_gone and spec.get("claimRef"):
            size = parse((spec.get("capacity") or {}).get("storage", "0")).value
            self._volumes[name] = str(spec.get("storageClassName") or ""), float(size)
        after = self._volumes.get(name)
        if after != before:
            for sign, volume in ((-1, before), (1, after)):
                if volume is not None:
                    self._series(SeriesKey("storage", volume[0], "")).used.add(at_s, sign * volume[1])

    # -- series --------------------------------------------------------------------------------------------------------

    def _capacity(self, at_s: float, group: Group, pool: str, before: Object, after: Object) -> None:
        for name in before.keys() | after.keys():
            for each in self._keys(group, name, pool):
                self._series(each).capacity.add(at_s, after.get(name, 0.0) - before.get(name, 0.0))

    def _keys(self, group: Group, name: str, pool: str) -> Iterable[SeriesKey]:
        yield SeriesKey(group, name, "")
        if pool:
            yield SeriesKey(group, name, pool)

    def _series(self, key: SeriesKey) -> UseSeries:
        series = self.series.get(key)
        if series is None:
            series = self.series[key] = UseSeries(self._steps(), self._steps())
        return series

    def _steps(self) -> Steps:
        return Steps(self.duration_s / self.intervals, [0.0] * self.intervals)


def _newest(slices: dict[str, tuple[int, int]]) -> int:
    """Return the devices of a pool: those of the slices with its newest generation."""
    newest = max((generation for generation, _ in slices.values()), default=0)
    return sum(devices for generation, devices in slices.values() if generation == newest)


def _in_units(amounts: dict[str, int]) -> dict[str, float]:
    """Return the amounts in cores, bytes or counts, without zeros."""
    return {name: amount / (_MILLI if name == CPU else _NO_UNIT) for name, amount in amounts.items() if amount}


def shown(series: dict[SeriesKey, UseSeries], pools_max: int) -> Iterator[tuple[SeriesKey, UseSeries]]:
    """Yield the series in order. Of a name with more than `pools_max` pools only the sum is shown."""
    pools: dict[tuple[str, str], int] = {}
    for key in series:
        if key.pool:
            pools[key[:2]] = pools.get(key[:2], 0) + 1
    order: dict[str, int] = {"resource": 0, "device": 1, "storage": 2}
    first = (CPU, "memory")
    for key in sorted(series, key=lambda k: (order[k.group], first.index(k.name) if k.name in first else 2, k)):
        if not key.pool or pools[key[:2]] <= pools_max:
            yield key, series[key]
