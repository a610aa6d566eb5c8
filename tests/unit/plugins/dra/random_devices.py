"""Generate small clusters with devices and claims, in which every rule of the allocator matters often.

The laws use them. Selectors are words that `holds` interprets, so no expression has to be evaluated.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from scheduler.api.core_v1 import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from scheduler.api.meta import Metadata
from scheduler.api.quantity import parse
from scheduler.api.resource_v1 import (
    CapacityRange,
    CapacityRequestPolicy,
    CapacityRequirements,
    CelSelector,
    ClaimMetadata,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClaim,
    DeviceClass,
    DeviceClassSpec,
    DeviceConfiguration,
    DeviceConstraint,
    DeviceCounterConsumption,
    DeviceId,
    DeviceRequest,
    DeviceSelector,
    DeviceTaint,
    DeviceToleration,
    ExactDeviceRequest,
    OpaqueConfiguration,
    ResourceClaim,
    ResourceClaimSpec,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from scheduler.core.feature_gates import (
    ADMIN_ACCESS,
    BINDING_CONDITIONS,
    CONSUMABLE,
    DEVICE_CHANGES,
    DEVICE_CHANGES_1_38,
    DEVICE_GATES_ON,
    FRACTIONAL_RANGE,
    PARTITIONABLE,
    PRIORITIZED_LIST,
    TAINTS,
)
from tests.unit.plugins.dra.literal_devices import LiteralDevices

NODES: Final = {"n1": {"zone": "a"}, "n2": {"zone": "b"}}
_GATES: Final = (ADMIN_ACCESS, PRIORITIZED_LIST, PARTITIONABLE, TAINTS, CONSUMABLE, BINDING_CONDITIONS)
_ZONES: Final = {
    zone: NodeSelector((NodeSelectorTerm(match_expressions=(NodeSelectorRequirement("zone", "In", (zone,)),)),))
    for zone in "ab"
}
_HERE: Final = NodeSelector(
    (NodeSelectorTerm(match_fields=(NodeSelectorRequirement("metadata.name", "In", ("n1",)),)),)
)
_T = TypeVar("_T")


def holds(expression: str, driver: str, device: Device) -> bool | str:
    """Evaluate a selector: `any`, `of DRIVER`, `fast` or `slow` by attribute; `broken` fails on broken devices."""
    if expression == "broken":
        return "CEL runtime error: it is broken" if "broken" in device.attributes else True
    if expression.startswith("of "):
        return expression == f"of {driver}"
    fast = device.attributes.get("fast", DeviceAttribute()).bool_ is True
    return {"any": True, "fast": fast, "slow": not fast}[expression]


@dataclass
class AllocatorCase:
    """A cluster and the claims of one pod."""

    world: LiteralDevices
    claims: list[ResourceClaim]


class Maker:
    """Generate random cases from one random number generator.

    With `is_rich`, the devices are of more kinds, and each kind has fewer devices.
    """

    def __init__(self, rng: random.Random, *, is_rich: bool = False) -> None:
        self._rng = rng
        self._is_rich = is_rich
        self._is_plain = False

    def case(self) -> AllocatorCase:
        gates = set(DEVICE_GATES_ON)
        if self._in(6):
            gates.discard(self._one(_GATES))
        self._is_plain = self._in(4)
        world = LiteralDevices(NODES, self._slices(), self._classes(), frozenset(gates), holds)
        self._use(world)
        return AllocatorCase(world, [self._claim(f"c{at}") for at in range(self._often(1, 1, 1, 2, 2, 3))])

    def slice_named(self, name: str) -> ResourceSlice:
        """Return one slice, which shares a pool with another slice at random."""
        self._is_plain = self._in(2)
        driver, home = self._often("a", "a", "b"), self._often("n1", "n2", "n3")
        where = self._often(*["node"] * 5, "zone", "all", "all", "devices", "devices", "nothing")
        pool = home if where == "node" and not self._in(6) else self._often("net", name)
        placed: dict[str, Any] = {"node_name": home} if where == "node" else self._place(where, 0)
        if where == "nothing":
            placed = {}
        counts = self._in(3)
        if counts and self._in(3):
            placed["shared_counters"] = (CounterSet(self._often("s", "s", "s2"), {"x": Counter(parse("4"))}),)
        else:
            devices = [self._device(f"d{at}", driver, counts=counts, own=where == "devices") for at in range(3)]
            placed["devices"] = tuple(devices[self._often(0, 0, 1) : self._often(1, 2, 3)])
        about = ResourcePool(pool, self._often(1, 1, 1, 2), self._often(1, 1, 1, 2))
        return ResourceSlice(Metadata(name=name), ResourceSliceSpec(driver=driver, pool=about, **placed))

    def shared_slice_named(self, name: str) -> ResourceSlice:
        """Return a complete pool of one plain device for all nodes, or for the nodes of a zone."""
        placed = self._place(self._often("all", "zone"), 0)
        spec = ResourceSliceSpec(driver="a", pool=ResourcePool(name, 1, 1), devices=(Device(name="d0"),), **placed)
        return ResourceSlice(Metadata(name=name), spec)

    def claim_named(self, name: str) -> ResourceClaim:
        self._is_plain = self._in(2)
        return self._claim(name)

    def easy_claim_named(self, name: str) -> ResourceClaim:
        """Return a claim that one or two free devices satisfy."""
        exactly = ExactDeviceRequest("", "Any", allocation_mode="ExactCount", count=self._often(1, 1, 2))
        spec = DeviceClaim((DeviceRequest("r0", exactly=exactly),))
        return ResourceClaim(ClaimMetadata(name=name, namespace="default", uid=name), ResourceClaimSpec(spec))

    def classes(self) -> dict[str, DeviceClass]:
        """Return the classes that claims may name."""
        return self._classes()

    # -- random choices ------------------------------------------------------------------------------------------------

    def _in(self, times: int) -> bool:
        """Return True once in `times` calls, on average."""
        return self._rng.randrange(times) == times - 1

    def _rarely(self, times: int) -> bool:
        """Return the result of `_in` if the case is rich, else False."""
        return self._is_rich and self._in(times)

    def _one(self, of: Sequence[_T]) -> _T:
        return of[self._rng.randrange(len(of))]

    def _often(self, *of: _T) -> _T:
        return self._one(of)

    # -- the cluster ---------------------------------------------------------------------------------------------------

    def _slices(self) -> list[ResourceSlice]:
        out = []
        keys = [("a", "p1"), ("b", "p1"), ("a", "p2"), ("a", "p0")][: self._often(1, 1, 2, 2, 3, 4)]
        for driver, pool in keys:
            out += self._pool(driver, pool, most=5 if len(keys) > 1 else 7)
        self._rng.shuffle(out)
        return out

    def _pool(self, driver: str, pool: str, *, most: int) -> list[ResourceSlice]:
        counts = self._in(3)
        where = self._often("node", "node", "zone", "all", "devices", "nodes", "here")
        specs: list[dict[str, Any]] = []
        sets: tuple[CounterSet, ...] = (
            CounterSet("s", {"x": Counter(parse(self._often("4", "5", "8"))), "y": Counter(parse("3"))}),
        )
        if self._is_rich:
            slots = {"slot0": Counter(parse(self._often("1", "2"))), "slot1": Counter(parse("1500m"))}
            sets += (CounterSet("t", slots),)
        left = self._often(*range(most + 1), most, most, most, most)
        for at in range(self._often(1, 1, 2)):
            n = left if at else self._rng.randrange(left + 1)
            left -= n
            placed = self._place(where, at)
            own = "per_device_node_selection" in placed
            devices = tuple(self._device(f"d{at}{i}", driver, counts=counts, own=own) for i in range(n))
            specs.append({**placed, "devices": devices})
        if counts:
            specs.append({**self._place(where if where != "devices" else "all", 0), "shared_counters": sets})
        wrong = self._often(*[""] * 36, "incomplete", "twice", "older", "newer")
        if wrong == "twice":
            specs.append(dict(specs[0]))
        slices = []
        for at, spec in enumerate(specs):
            generation = {"older": 0, "newer": 2}.get(wrong, 1) if at == 0 else 1
            count = len(specs) + (wrong == "incomplete")
            if wrong in ("older", "newer") and self._in(2):
                count = 1 if at == 0 else len(specs) - 1
            name = f"{driver}-{pool}-{self._rng.randrange(10)}{at}"
            about = ResourcePool(pool, generation, count)
            slices.append(ResourceSlice(Metadata(name=name), ResourceSliceSpec(driver=driver, pool=about, **spec)))
        return slices

    def _place(self, where: str, at: int) -> dict[str, Any]:
        match where:
            case "node":
                return {"node_name": "n1"}
            case "nodes":
                return {"node_name": f"n{1 + at % 2}"}
            case "zone":
                return {"node_selector": _ZONES[self._often("a", "a", "a", "a", "b")]}
            case "here":
                return {"node_selector": _HERE}
            case "devices":
                return {"per_device_node_selection": True}
        return {"all_nodes": True}

    def _device(self, name: str, driver: str, *, counts: bool, own: bool) -> Device:
        rng = self._rng
        more: dict[str, Any] = {}
        if own:
            more = self._often(
                {"node_name": "n1"}, {"node_name": "n2"}, {"all_nodes": True}, {"node_selector": _ZONES["a"]}
            )
        if counts and not self._in(4):
            counters = {"x": Counter(parse(str(1 + rng.randrange(5))))}
            if self._in(2):
                counters["y"] = Counter(parse("1"))
            name_of = "s" if not self._in(25) else "nowhere"
            more["consumes_counters"] = (DeviceCounterConsumption(name_of, counters),)
            if self._rarely(3):
                more["consumes_counters"] = (*more["consumes_counters"][self._often(0, 1) :], self._slots())
        if not self._is_plain:
            if self._in(6):
                more["taints"] = (DeviceTaint("t", "v", self._often("NoSchedule", "NoExecute", "None")),)
                if self._rarely(3):
                    more["taints"] += (DeviceTaint("u", self._often("", "v"), self._often("NoSchedule", "New")),)
            if self._in(10):
                more |= {"binding_conditions": ("ready",), "binds_to_node": self._in(2)}
            if self._in(3):
                more["allow_multiple_allocations"] = True
            if "allow_multiple_allocations" in more or self._in(3):
                more["capacity"] = self._capacity()
        return Device(name=name, attributes=self._attributes(driver), **more)

    def _slots(self) -> DeviceCounterConsumption:
        names = self._often(["slot0"], ["slot1"], ["slot0", "slot1"])
        counters = {each: Counter(parse(self._often("1", "1", "500m", "0"))) for each in names}
        return DeviceCounterConsumption("t", counters)

    def _capacity(self) -> dict[str, DeviceCapacity]:
        if self._in(8):
            return {}
        policy = self._often(
            None,
            None,
            CapacityRequestPolicy(default=parse("1")),
            CapacityRequestPolicy(default=parse("0")),
            CapacityRequestPolicy(default=parse("1"), valid_values=(parse("1"), parse("3"))),
            CapacityRequestPolicy(
                default=parse("2"), valid_range=CapacityRange(min=parse("2"), max=parse("4"), step=parse("2"))
            ),
            CapacityRequestPolicy(valid_range=CapacityRange(min=parse("1"), max=parse("3"))),
        )
        out = {"mem": DeviceCapacity(parse(self._often("1", "2", "4", "4", "5")), policy)}
        if self._rarely(4):
            out["cores"] = DeviceCapacity(parse(self._often("1", "2", "3")), self._often(None, policy))
        return out

    def _attributes(self, driver: str) -> dict[str, DeviceAttribute]:
        out = {}
        if self._in(2):
            out["fast"] = DeviceAttribute(bool_=self._in(2))
        if not self._in(5):
            name = self._often("numa", "a/numa", f"{driver}/numa")
            value = self._often(0, 0, 0, 1, 1, 2)
            out[name] = self._often(
                *[DeviceAttribute(int_=value)] * 6,
                DeviceAttribute(string=str(value)),
                DeviceAttribute(ints=(value, 1 + value)),
                DeviceAttribute(ints=(value,)),
                DeviceAttribute(),
            )
        if self._rarely(6):
            at = self._often(0, 0, 1)
            out[f"{driver}/numa"] = self._often(
                DeviceAttribute(version=f"1.0.{at}"),
                DeviceAttribute(versions=(f"1.0.{at}", "1.0.1")),
                DeviceAttribute(strings=(str(at), "1")),
                DeviceAttribute(ints=()),
            )
        if self._in(25):
            out["broken"] = DeviceAttribute(bool_=True)
        return out

    def _classes(self) -> dict[str, DeviceClass]:
        said = {"A": ("of a",), "B": ("of b",), "Any": (), "Fast": ("fast",), "Broken": ("of a", "broken")}
        config = (DeviceConfiguration(opaque=OpaqueConfiguration("a", msgspec.Raw(b'"class"'))),)
        return {
            name: DeviceClass(
                Metadata(name=name),
                DeviceClassSpec(tuple(_cel(text) for text in words), config=config if name == "A" else ()),
            )
            for name, words in said.items()
        }

    def _use(self, world: LiteralDevices) -> None:
        most = self._often(0, 0, 1, 2)
        for each in world.slices:
            for device in each.spec.devices:
                name = DeviceId(each.spec.driver, each.spec.pool.name, device.name)
                if self._rng.randrange(4) >= most or name in world.exclusive or name in world.shares:
                    continue
                if CONSUMABLE in world.gates and device.allow_multiple_allocations and not self._in(5):
                    amounts = [{"mem": parse(self._often("0", "1", "2")).nano} for _ in range(self._often(1, 1, 2))]
                    world.shares[name] = amounts if device.capacity else [{}]
                elif self._in(2):
                    world.exclusive.add(name)
                elif CONSUMABLE in world.gates and self._in(6):
                    world.shares[name] = [{"mem": parse("1").nano}]

    # -- the claims ----------------------------------------------------------------------------------------------------

    def _claim(self, name: str) -> ResourceClaim:
        requests = tuple(self._request(f"r{at}") for at in range(self._often(1, 1, 1, 2, 2, 3)))
        names = [each.name for each in requests]
        names += [f"{each.name}/{one.name}" for each in requests for one in each.first_available]
        config: tuple[DeviceConfiguration, ...] = ()
        if self._in(6):
            config = (DeviceConfiguration((self._one(names),), OpaqueConfiguration("a", msgspec.Raw(b'"claim"'))),)
        constraints = tuple(self._constraint(names) for _ in range(self._often(0, 0, 0, 1, 1, 2)))
        spec = DeviceClaim(requests, constraints, config)
        return ResourceClaim(ClaimMetadata(name=name, namespace="default", uid=name), ResourceClaimSpec(spec))

    def _constraint(self, names: list[str]) -> DeviceConstraint:
        scope = () if self._in(2) else tuple({self._one(names), self._one(names)})
        attribute = self._often(*["a/numa"] * 8, "a/fast", "b/numa", "x.com/numa")
        if self._in(100):
            return DeviceConstraint(scope)
        if self._in(2):
            return DeviceConstraint(scope, match_attribute=attribute)
        return DeviceConstraint(scope, distinct_attribute=attribute)

    def _request(self, name: str) -> DeviceRequest:
        if self._in(4):
            return DeviceRequest(
                name, first_available=tuple(self._exact_request(f"s{at}") for at in range(self._often(1, 2, 2, 3)))
            )
        return DeviceRequest(name, exactly=self._exact_request(""))

    def _exact_request(self, name: str) -> ExactDeviceRequest:
        more: dict[str, Any] = {}
        if self._in(8):
            more = {"allocation_mode": "All"}
        else:
            more = {"allocation_mode": "ExactCount", "count": self._often(1, 1, 1, 1, 2, 2, 3)}
            if self._in(60):
                more["count"] = self._often(15, 17, 33)
        if not name and self._in(8):
            more["admin_access"] = not self._in(4)
        if self._in(5):
            more["selectors"] = tuple(
                _cel(self._often("fast", "slow", "slow", "any", "broken")) for _ in range(self._often(1, 2))
            )
        if self._in(3):
            more["tolerations"] = (DeviceToleration(self._often("t", ""), self._often("Exists", "Equal", ""), "v"),)
            if self._rarely(3):
                word, effect = self._often("Exists", "Equal", "Odd"), self._often("", "NoSchedule", "NoExecute")
                more["tolerations"] += (DeviceToleration("u", word, self._often("", "v"), effect, 60),)
        if not self._is_plain and self._in(3):
            asked = {
                self._often("mem", "mem", "mem", "mem", "mem", "a/mem"): parse(self._often("1", "1", "2", "3", "500m"))
            }
            if self._rarely(5):
                asked["cores"] = parse(self._often("0", "1", "2", "1500m"))
            more["capacity"] = CapacityRequirements(asked)
        if self._in(250):
            more["selectors"] = (DeviceSelector(),)
        names = ["A", "A", "A", "Any", "Any", "Any", "Any", "B", "Fast", *(["Broken"] if self._in(4) else [])]
        if self._in(250):
            names = ["", "Nothing"]
        return ExactDeviceRequest(name=name, device_class_name=self._one(names), **more)


def _cel(text: str) -> DeviceSelector:
    return DeviceSelector(CelSelector(text))


# -- what kube-scheduler 1.37 adds: fractions of capacities, and counters in slices of some nodes ----------------------

_RANGES: Final = (
    CapacityRange(min=parse("100m"), max=parse("900m"), step=parse("100m")),
    CapacityRange(min=parse("500m"), step=parse("750m")),
    CapacityRange(min=parse("1"), max=parse("3"), step=parse("1")),
    CapacityRange(min=parse("2"), step=parse("500u")),
)
_AMOUNTS: Final = ("150m", "250m", "700m", "1", "1001m", "1500m", "2")
_VALUES: Final = ("1", "1500m", "3", "4")


def newer_case(seed: int, *, is_rich: bool) -> AllocatorCase:
    rng = random.Random(seed)
    case = Maker(rng, is_rich=is_rich).case()
    gates = case.world.gates | DEVICE_CHANGES
    if rng.random() < 0.8:
        gates |= {FRACTIONAL_RANGE}
    slices = [_newer_slice(each, rng) for each in case.world.slices]
    claims = [_newer_claim(each, rng) for each in case.claims]
    return AllocatorCase(dataclasses.replace(case.world, gates=gates, slices=slices), claims)


def _newer_slice(each: ResourceSlice, rng: random.Random) -> ResourceSlice:
    spec = replace(each.spec, devices=tuple(_newer_device(device, rng) for device in each.spec.devices))
    if spec.shared_counters and rng.random() < 0.5:
        spec = replace(spec, node_name=rng.choice(sorted(NODES)), node_selector=None, all_nodes=None)
    return replace(each, spec=spec)


def _newer_device(device: Device, rng: random.Random) -> Device:
    if not device.capacity or rng.random() < 0.4:
        return device
    capacity = {
        name: DeviceCapacity(parse(rng.choice(_VALUES)), CapacityRequestPolicy(valid_range=rng.choice(_RANGES)))
        for name in device.capacity
    }
    return replace(device, capacity=capacity)


def _newer_claim(claim: ResourceClaim, rng: random.Random) -> ResourceClaim:
    requests = tuple(
        replace(
            request,
            exactly=_newer_request(request.exactly, rng) if request.exactly is not None else None,
            first_available=tuple(_newer_request(each, rng) for each in request.first_available),
        )
        for request in claim.spec.devices.requests
    )
    return replace(claim, spec=replace(claim.spec, devices=replace(claim.spec.devices, requests=requests)))


def _newer_request(spec: ExactDeviceRequest, rng: random.Random) -> ExactDeviceRequest:
    if spec.capacity is None:
        return spec
    unit: Sequence[Any] = _AMOUNTS if rng.random() < 0.8 else ("1000500u",)
    amounts = {name: parse(rng.choice(unit)) for name in spec.capacity.requests}
    return replace(spec, capacity=CapacityRequirements(amounts))


# -- what kube-scheduler 1.38 changes: two names of one capacity, negative requests, build metadata, unsupported values --


def newest_case(seed: int, *, is_rich: bool) -> AllocatorCase:
    rng = random.Random(seed)
    case = newer_case(seed, is_rich=is_rich)
    world = case.world
    gates = world.gates | (DEVICE_CHANGES_1_38 if rng.random() < 0.7 else frozenset())
    slices = [
        replace(
            each,
            spec=replace(
                each.spec, devices=tuple(_newest_device(each.spec.driver, one, rng) for one in each.spec.devices)
            ),
        )
        for each in world.slices
    ]
    shares = {device: [_renamed(device.driver, one, rng) for one in some] for device, some in world.shares.items()}
    claims = [_newest_claim(each, rng) for each in case.claims]
    return AllocatorCase(dataclasses.replace(world, gates=gates, slices=slices, shares=shares), claims)


def _renamed(driver: str, named: dict[str, _T], rng: random.Random) -> dict[str, _T]:
    """Return the values with the driver's domain in some names; a few have both names."""
    out = {}
    for name, value in named.items():
        which = rng.random()
        if "/" in name or which < 0.6:
            out[name] = value
        if "/" not in name and which > 0.55:
            out[f"{driver}/{name}"] = value
    return out


def _newest_device(driver: str, device: Device, rng: random.Random) -> Device:
    attributes = dict(device.attributes)
    if rng.random() < 0.3:
        version = rng.choice(["1.0.0", "1.0.0+a", "1.0.0+b", "1.0.0-rc+a", f"{2**64}.0.0"])
        attributes[f"{driver}/numa"] = DeviceAttribute(version=version)
    return replace(device, attributes=attributes, capacity=_renamed(driver, dict(device.capacity), rng))


def _newest_claim(claim: ResourceClaim, rng: random.Random) -> ResourceClaim:
    def newest(spec: ExactDeviceRequest) -> ExactDeviceRequest:
        if spec.capacity is None:
            return spec
        amounts = _renamed(rng.choice("ab"), spec.capacity.requests, rng)
        if rng.random() < 0.1:
            amounts = dict.fromkeys(amounts, parse("-1"))
        return replace(spec, capacity=CapacityRequirements(amounts))

    requests = tuple(
        replace(
            request,
            exactly=newest(request.exactly) if request.exactly is not None else None,
            first_available=tuple(map(newest, request.first_available)),
        )
        for request in claim.spec.devices.requests
    )
    return replace(claim, spec=replace(claim.spec, devices=replace(claim.spec.devices, requests=requests)))
