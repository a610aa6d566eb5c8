"""Kinds of devices, and pools of devices as one node sees them (docs/spec/dra.md §4.2, §4.3).

A *kind* is everything of a device that a decision may read, without its name and the nodes that can use it. Equal
devices are one kind, so a result for one of them is computed once.

A *pool* is (driver, name). A view says which of its slices count, in which order, and whether it is complete. It is
created once per pool and set of visible slices, and dropped with the pool's next change.

`CounterUse` has the shared capacities and counters of a whole pool, over all its slices. Nodes see parts of a pool,
but allocations on all nodes count against the same amounts (docs/spec/dra.md §4.8, §4.9).

Upstream: staging/src/k8s.io/dynamic-resource-allocation/structured/internal/incubating/pools_incubating.go GatherPools
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeAlias
from weakref import WeakSet, WeakValueDictionary

import msgspec

from scheduler.api.quantity import Quantity
from scheduler.api.resource_v1 import (
    Device,
    DeviceId,
    DeviceTaint,
    DeviceTaintRule,
    ResourceSlice,
    by_bare_name,
    full_name,
)
from scheduler.core.nodeset import NodeSet

_NOTHING: Final[object] = object()


class Limit:
    """The limit of any number of memos: at most twice `size` entries in total. It keeps no memo alive.

    The last `size` used entries are not evicted.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._count = 0
        self._young: WeakSet[Memo] = WeakSet()
        self._old: WeakSet[Memo] = WeakSet()

    def __len__(self) -> int:
        """Return the number of entries. O(memos with entries)."""
        return sum(map(len, self._young | self._old))

    def noted(self, memo: Memo, *, is_first: bool) -> None:
        """Count a new entry; `is_first` if it is the first one of this memo in the current generation."""
        if is_first:
            self._young.add(memo)
        self._count += 1
        if self._count >= self._size:
            for each in self._old:
                each.forget_old()
            for each in self._young:
                each.grow_old()
            self._young, self._old, self._count = WeakSet(), self._young, 0


class Memo:
    """A map of key → result about one object. Entries go with the object, or when the limit evicts them."""

    __slots__ = ("__weakref__", "_limit", "_old", "_young")

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._young: dict[Hashable, Any] = {}
        self._old: dict[Hashable, Any] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, key: Hashable) -> Any:
        """Return the result; None if there is none."""
        found = self._young.get(key, _NOTHING)
        if found is not _NOTHING:
            return found
        found = self._old.pop(key, _NOTHING) if self._old else _NOTHING
        if found is _NOTHING:
            return None
        self[key] = found
        return found

    def __setitem__(self, key: Hashable, result: Any) -> None:
        is_first = not self._young
        is_new = key not in self._young
        self._young[key] = result
        if self._old:
            self._old.pop(key, None)
        if is_new:
            self._limit.noted(self, is_first=is_first)

    def clear(self) -> None:
        self._young.clear()
        self._old.clear()

    def forget_old(self) -> None:
        """Drop the entries that were not used in this generation."""
        self._old = {}

    def grow_old(self) -> None:
        """Start a new generation; an entry joins it when it is used."""
        self._old |= self._young
        self._young = {}


class DeviceKind:
    """A kind of devices, compared by identity. `device` is one of them, as its driver published it.

    `memo` caches results about the kind, keyed by the caller. They are dropped with the kind. `number` is unique and
    never reused. `draws` has the amount that a device takes of each (counter set, counter). `capacity` has the
    capacities by their names without the driver's own domain.
    """

    __slots__ = ("__weakref__", "capacity", "device", "draws", "driver", "memo", "number")

    def __init__(self, driver: str, device: Device) -> None:
        self.driver = driver
        self.device = device
        self.capacity = by_bare_name(driver, device.capacity)
        self.draws: dict[tuple[str, str], int] = {}
        for each in device.consumes_counters:
            for name, amount in each.counters.items():
                self.draws[each.counter_set, name] = self.draws.get((each.counter_set, name), 0) + amount.value.nano
        self.memo = Memo(_kind_answers)
        self.number = next(_numbers)

    def published_name(self, capacity: str) -> str:
        """Return the name under which the driver publishes a capacity; of two names, the one with the domain."""
        name = full_name(self.driver, capacity)
        return name if name in self.device.capacity else capacity


def _amount(value: object) -> tuple[int, int, int, bool]:
    """Return the amount with its format, because selectors can read whether a quantity is an integer ("1000m" is not)."""
    assert isinstance(value, Quantity)
    return (value.nano, *value.form)


_numbers: Final = itertools.count()
_KIND_ANSWERS_MAX: Final = 524_288
"""Limit of the cached results about all kinds together: kinds can be as many as devices."""
_kind_answers: Final = Limit(_KIND_ANSWERS_MAX)
_encode = msgspec.json.Encoder(enc_hook=_amount, order="deterministic").encode
_kinds: Final[WeakValueDictionary[bytes, DeviceKind]] = WeakValueDictionary()


def kind_of(driver: str, device: Device) -> DeviceKind:
    """Return the kind of this device. It takes about 5 µs and lives as long as a device of the kind is known."""
    bare = msgspec.structs.replace(
        device,
        name="",
        node_name=None,
        node_selector=None,
        all_nodes=None,
        taints=tuple(DeviceTaint(t.key, t.value, t.effect) for t in device.taints),
    )
    key = driver.encode() + b"\0" + _encode(bare)
    kind = _kinds.get(key)
    if kind is None:
        kind = _kinds[key] = DeviceKind(driver, bare)
    return kind


class PoolKey(NamedTuple):
    """Driver and name. The name alone is not unique, because two drivers may name their pools after the node."""

    driver: str
    name: str


class PoolState(enum.Enum):
    """Whether the devices of a pool can be allocated."""

    GOOD = "good"
    INCOMPLETE = "incomplete"
    """The driver has not published all slices yet."""
    INVALID = "invalid"
    """The published slices contradict each other."""


Counters = Mapping[str, Mapping[str, int]]
"""Counter set → counter → amount, in nano units."""


class NodeMatch(Protocol):
    """The nodes that can use an object, at the time of the call. Compared by identity.

    Upstream: staging/src/k8s.io/dynamic-resource-allocation/structured/allocator.go NodeMatches
    """

    @property
    def nodes(self) -> NodeSet: ...


class PublishedDevice(msgspec.Struct, frozen=True, eq=False):
    """A device of a slice. `where` is None if it can be used wherever its slice is visible."""

    id: DeviceId
    device: Device
    slice: ResourceSlice
    kind: DeviceKind
    where: NodeMatch | None = None


class Content:
    """The content of a view. It is equal for views that differ only in names and nodes, and compared by identity.

    Unusable pools keep their names, because messages to rejected pods contain them. `memo` caches results that follow
    from the content alone, keyed by the caller. `_ANSWERS_MAX` limits the results of all contents together (`Limit`).
    """

    __slots__ = ("__weakref__", "memo")

    def __init__(self) -> None:
        self.memo = Memo(_answers)


_ANSWERS_MAX: Final = 131_072
_answers: Final = Limit(_ANSWERS_MAX)
_contents: Final[WeakValueDictionary[tuple[object, ...], Content]] = WeakValueDictionary()


def content_of(parts: tuple[object, ...]) -> Content:
    """Return the unique content of these parts."""
    content = _contents.get(parts)
    if content is None:
        content = _contents[parts] = Content()
    return content


@dataclass(slots=True, eq=False)
class PoolView:
    """A pool as one node sees it.

    `devices` are in the order in which they are tried; there are none unless the state is good.
    """

    key: PoolKey
    state: PoolState
    devices: tuple[PublishedDevice, ...] = ()
    counters: Counters = field(default_factory=dict)
    elsewhere: tuple[PublishedDevice, ...] = ()
    """Devices of the pool that this node cannot use, but that consume the same counters."""
    has_binding_conditions: bool = False
    problem: str = ""
    content: Content = field(init=False)

    def __post_init__(self) -> None:
        counters = tuple((name, tuple(sorted(each.items()))) for name, each in sorted(self.counters.items()))
        self.content = content_of(
            (
                self.key.driver,
                self.state,
                "" if self.state is PoolState.GOOD else self.key.name,
                tuple((each.kind, each.where) for each in self.devices),
                counters,
                tuple(each.id for each in self.elsewhere),
            )
        )

    @property
    def order(self) -> tuple[bool, PoolKey]:
        """The sort key of pools (§4.3)."""
        return self.has_binding_conditions, self.key


def gather_pool(
    key: PoolKey,
    visible: Iterable[ResourceSlice],
    all_slices: Iterable[ResourceSlice],
    *,
    partitionable: bool,
    wheres: Mapping[tuple[str, int], NodeMatch] | None = None,
) -> PoolView | None:
    """Return the pool for a node that sees `visible` of `all_slices` (§4.3).

    Return None if the pool does not exist for that node. `wheres` has the nodes of devices with their own node
    selection, by slice name and position. Slices with compatibility groups are missing, as upstream without their gate.
    """
    group: list[ResourceSlice] = []
    for each in visible:
        if has_groups(each):
            continue
        newest = group[0].spec.pool.generation if group else each.spec.pool.generation
        if each.spec.pool.generation > newest:
            group = []
        if each.spec.pool.generation >= newest:
            group.append(each)
    if not group:
        return None
    elsewhere: list[ResourceSlice] = []
    count, generation = group[0].spec.pool.resource_slice_count, group[0].spec.pool.generation
    if len(group) != count:
        everything = list(all_slices)
        if any(each.spec.pool.generation > generation for each in everything):
            return None
        visible_keys = {each.key for each in group}
        equal = [each for each in everything if each.spec.pool.generation == generation and not has_groups(each)]
        if len(equal) != count:
            return PoolView(key, PoolState.INCOMPLETE)
        elsewhere = [each for each in equal if each.key not in visible_keys]
    group.sort(key=lambda each: each.key)
    elsewhere.sort(key=lambda each: each.key)
    return _complete(key, group, elsewhere, partitionable=partitionable, wheres=wheres or {})


def has_groups(each: ResourceSlice) -> bool:
    """Return whether a device of the slice has compatibility groups."""
    return any(consumed.compatibility_groups for device in each.spec.devices for consumed in device.consumes_counters)


def _complete(
    key: PoolKey,
    group: list[ResourceSlice],
    elsewhere: list[ResourceSlice],
    *,
    partitionable: bool,
    wheres: Mapping[tuple[str, int], NodeMatch],
) -> PoolView:
    devices = tuple(_published(group, key, wheres, partitionable=partitionable))
    others = tuple(_published(elsewhere, key, wheres, partitionable=partitionable))
    counters: dict[str, dict[str, int]] = {}
    problem = _duplicate(devices)
    if partitionable and not problem:
        problem = _gather_counters((*group, *elsewhere), counters) or _unknown_counters((*devices, *others), counters)
    if problem:
        return PoolView(key, PoolState.INVALID, problem=problem)
    return PoolView(
        key,
        PoolState.GOOD,
        devices,
        counters,
        others if counters else (),
        has_binding_conditions=any(each.device.binding_conditions for each in devices),
    )


def _published(
    slices: Iterable[ResourceSlice], key: PoolKey, wheres: Mapping[tuple[str, int], NodeMatch], *, partitionable: bool
) -> Iterable[PublishedDevice]:
    for each in slices:
        if partitionable and each.spec.shared_counters:
            continue
        for at, device in enumerate(each.spec.devices):
            yield PublishedDevice(
                DeviceId(key.driver, key.name, device.name),
                device,
                each,
                kind_of(key.driver, device),
                wheres.get((each.key, at)) if each.spec.per_device_node_selection else None,
            )


def _duplicate(devices: Iterable[PublishedDevice]) -> str:
    seen: set[str] = set()
    for each in devices:
        if each.device.name in seen:
            return f"duplicate device name {each.device.name}"
        seen.add(each.device.name)
    return ""


def _gather_counters(slices: Iterable[ResourceSlice], into: dict[str, dict[str, int]]) -> str:
    for each in slices:
        for counter_set in each.spec.shared_counters:
            if counter_set.name in into:
                return f"duplicate counter set name {counter_set.name}"
            into[counter_set.name] = {name: counter.value.nano for name, counter in counter_set.counters.items()}
    return ""


def _unknown_counters(devices: Iterable[PublishedDevice], counters: Counters) -> str:
    for each in devices:
        for consumption in each.device.consumes_counters:
            counter_set = counters.get(consumption.counter_set)
            if counter_set is None:
                return f"device {each.device.name}: unknown counter set {consumption.counter_set}"
            missing = next((name for name in consumption.counters if name not in counter_set), None)
            if missing is not None:
                return f"device {each.device.name}: unknown counter {missing} in counter set {consumption.counter_set}"
    return ""


Drawn: TypeAlias = Mapping[str, Mapping[str, int]]
"""Counter set → counter → amount, in nano units."""


@dataclass(frozen=True, slots=True, eq=False)
class CounterUse:
    """Shared capacities and counters of a pool. Devices without any are left out. Amounts are in nano units."""

    capacities: Mapping[DeviceId, Mapping[str, int]] = field(default_factory=dict)
    """Capacities of the devices that several claims may share."""
    counters: Counters = field(default_factory=dict)
    drawn: Mapping[DeviceId, Drawn] = field(default_factory=dict)
    """The counters that a device consumes while it is allocated."""
    drawers: Mapping[str, tuple[DeviceId, ...]] = field(default_factory=dict)
    """Counter set → the devices that consume its counters."""


_NO_DRAWS: Final = CounterUse()


def draws_of(key: PoolKey, slices: Iterable[ResourceSlice], *, partitionable: bool) -> CounterUse | None:
    """Return the shared capacities and counters; None if the pool is incomplete or invalid."""
    slices = tuple(slices)
    states = {each.spec.pool for each in slices}
    if len(states) != 1 or len(slices) != next(iter(states)).resource_slice_count:
        return None
    # a slice with counters has no devices (§4.3)
    with_devices = [each for each in slices if not (partitionable and each.spec.shared_counters)]
    devices = [device for each in with_devices for device in each.spec.devices]
    if not any(each.allow_multiple_allocations or each.consumes_counters for each in devices):
        return _NO_DRAWS
    counters: dict[str, dict[str, int]] = {}
    if partitionable and _gather_counters(slices, counters):
        return None
    if len({each.name for each in devices}) < len(devices):
        return None
    capacities: dict[DeviceId, Mapping[str, int]] = {}
    drawn: dict[DeviceId, Drawn] = {}
    drawers: dict[str, list[DeviceId]] = {}
    for each in devices:
        device = DeviceId(key.driver, key.name, each.name)
        if each.allow_multiple_allocations:
            capacities[device] = {name: it.value.nano for name, it in by_bare_name(key.driver, each.capacity).items()}
        if partitionable and each.consumes_counters:
            own = drawn[device] = _drawn(each)
            if any(counter not in counters.get(name, ()) for name, amounts in own.items() for counter in amounts):
                return None
            for name in own:
                drawers.setdefault(name, []).append(device)
    return CounterUse(capacities, counters, drawn, {name: tuple(some) for name, some in drawers.items()})


def _drawn(device: Device) -> Drawn:
    drawn: dict[str, dict[str, int]] = {}
    for each in device.consumes_counters:
        own = drawn.setdefault(each.counter_set, {})
        for name, counter in each.counters.items():
            own[name] = own.get(name, 0) + counter.value.nano
    return drawn


class TaintRules:
    """The device taint rules.

    Upstream: staging/src/k8s.io/dynamic-resource-allocation/resourceslice/tracker/tracker.go Tracker, applyPatches
    """

    def __init__(self) -> None:
        self.rules: dict[str, DeviceTaintRule] = {}

    def put(self, name: str, rule: DeviceTaintRule | None) -> None:
        """Add, update or remove a rule."""
        if rule is None:
            self.rules.pop(name, None)
        else:
            self.rules[name] = rule

    def lay(self, each: ResourceSlice) -> ResourceSlice:
        """Return the slice with the taints of all rules; the same object if there are none. O(rules × devices)."""
        spec = each.spec
        rules = [self.rules[name] for name in sorted(self.rules) if may_mean(self.rules[name], each)]
        if not rules:
            return each
        devices = tuple(self._tainted(spec.driver, spec.pool.name, device, rules) for device in spec.devices)
        if devices == spec.devices:
            return each
        return msgspec.structs.replace(each, spec=msgspec.structs.replace(spec, devices=devices))

    def _tainted(self, driver: str, pool: str, device: Device, rules: Iterable[DeviceTaintRule]) -> Device:
        more = tuple(
            rule.spec.taint
            for rule in rules
            if rule.spec.device_selector is not None and rule.spec.device_selector.selects(driver, pool, device.name)
        )
        return msgspec.structs.replace(device, taints=(*device.taints, *more)) if more else device


def may_mean(rule: DeviceTaintRule, each: ResourceSlice) -> bool:
    """Return whether the rule may select a device of the slice, by driver and pool; without a selector it does not."""
    selector = rule.spec.device_selector
    if selector is None:
        return False
    return selector.driver in {None, each.spec.driver} and selector.pool in {None, each.spec.pool.name}
