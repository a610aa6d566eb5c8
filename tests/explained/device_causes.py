"""Causes in devices and their claims. Each function completes the base, yields, and plants its cause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from simulator.builders.claims import a_claim
from simulator.builders.devices import DeviceBuilder, a_device, a_device_class, a_slice
from tests.explained.draft import Draft

DRIVER: Final = "gpu.example.com"
_CLASS: Final = "gpu"
_OLD: Final = f'device.attributes["{DRIVER}"].model == "old"'
_NEW: Final = f'device.attributes["{DRIVER}"].model == "new"'


def _gpus(c: Draft, least: int = 2, most: int = 4) -> dict[str, list[DeviceBuilder]]:
    """Give each node some devices; return them. They are published by `_publish`."""
    c.add(a_device_class(_CLASS, f'device.driver == "{DRIVER}"'))
    made = {}
    for at in c.names:
        count = c.dice.randint(least, most)
        made[at] = [a_device(f"d{i}").attr("model", "new").attr("numa", 0) for i in range(count)]
    _publish(c, made)
    return made


def _publish(c: Draft, devices: dict[str, list[DeviceBuilder]]) -> None:
    for at, some in devices.items():
        c.add(a_slice(at, DRIVER, *some))


def _claims(c: Draft, **options: Any) -> None:
    """Give the pod a claim of one request, and sometimes a second, unrelated request."""
    c.add(a_claim("gpus").request("r", _CLASS, **options))
    c.pod = c.pod.claim("gpus", "gpus")


def device_count(c: Draft) -> Iterator[None]:
    """All nodes have fewer devices than are requested."""
    made = _gpus(c)
    _claims(c, count=2)
    yield
    most = max(len(some) for some in made.values())
    c.add(a_claim("gpus").request("r", _CLASS, count=most + c.dice.randint(1, 3)))


def device_holders(c: Draft) -> Iterator[None]:
    """Other pods have all devices of all nodes, but perhaps one."""
    made = _gpus(c)
    _claims(c, count=2)
    yield
    for at, some in made.items():
        for device in some[c.dice.randint(0, 1) :]:
            c.hold(at, DRIVER, device.obj()["name"], _CLASS)


def device_selector(c: Draft) -> Iterator[None]:
    """No device matches a selector of the request."""
    made = _gpus(c)
    _claims(c, cel=_NEW)
    yield
    if c.dice.random() < 0.5:
        c.add(a_claim("gpus").request("r", _CLASS, cel=(_OLD, f'device.attributes["{DRIVER}"].numa == 0')))
    else:
        _publish(c, {at: [each.attr("model", "old") for each in some] for at, some in made.items()})


def counters(c: Draft) -> Iterator[None]:
    """The counters of each node's pool do not suffice for one more device."""
    c.add(a_device_class(_CLASS, f'device.driver == "{DRIVER}"'))
    for at in c.names:
        parts = [a_device(f"part{i}").consumes("memory", {"units": "10"}) for i in range(4)]
        whole = a_device("whole").consumes("memory", {"units": "40"}).attr("model", "whole")
        c.add(a_slice(at, DRIVER, *parts, whole).of(2))
        c.add(a_slice(at, DRIVER).named(f"{at}-counters").of(2).counters("memory", {"units": "40"}))
    _claims(c, count=c.dice.randint(1, 2))
    yield
    if c.dice.random() < 0.5:
        c.add(a_claim("gpus").request("r", _CLASS, count=5))
        return
    for at in c.names:
        c.hold(at, DRIVER, "whole", _CLASS)


def device_taint(c: Draft) -> Iterator[None]:
    """All devices have a taint that the request does not tolerate."""
    made = _gpus(c)
    _claims(c, count=c.dice.randint(1, 2))
    yield
    key = c.dice.choice(("broken", "reserved"))
    effect = c.dice.choice(("NoSchedule", "NoExecute"))
    _publish(c, {at: [each.taint(key, "x", effect) for each in some] for at, some in made.items()})


def match_attribute(c: Draft) -> Iterator[None]:
    """All devices of a node differ in the attribute that must be equal."""
    made = _gpus(c)
    c.add(a_claim("gpus").request("r", _CLASS, count=2).match(f"{DRIVER}/numa"))
    c.pod = c.pod.claim("gpus", "gpus")
    yield
    _publish(c, {at: [each.attr("numa", number) for number, each in enumerate(some)] for at, some in made.items()})


def shared_capacity(c: Draft) -> Iterator[None]:
    """The shared device of each node has too little capacity left, or never had enough."""
    _shared(c)
    _claims(c, capacity={"units": "10"})
    yield
    if c.dice.random() < 0.5:
        c.add(a_claim("gpus").request("r", _CLASS, capacity={"units": str(c.dice.randint(41, 60))}))
        return
    for at in c.names:
        c.hold(at, DRIVER, "d0", _CLASS, units=str(c.dice.randint(31, 39)))


def shared_count(c: Draft) -> Iterator[None]:
    """A request wants several shares of the one shared device of each node, and a request gets one share of a device."""
    _shared(c)
    _claims(c, capacity={"units": "10"})
    yield
    c.add(a_claim("gpus").request("r", _CLASS, count=c.dice.randint(2, 4), capacity={"units": "10"}))


def capacity_name(c: Draft) -> Iterator[None]:
    """The request names a capacity that no device has, by a mistyped name."""
    _shared(c)
    _claims(c, capacity={"units": "10"})
    yield
    c.add(a_claim("gpus").request("r", _CLASS, capacity={c.dice.choice(("unit", "untis", "Units")): "10"}))


def _shared(c: Draft) -> None:
    c.add(a_device_class(_CLASS, f'device.driver == "{DRIVER}"'))
    for at in c.names:
        c.add(a_slice(at, DRIVER, a_device("d0").shared().cap("units", "40")))


def device_class(c: Draft) -> Iterator[None]:
    """The requested class does not exist, and another class has devices."""
    _gpus(c)
    _claims(c)
    yield
    c.add(a_claim("gpus").request("r", "fpga"))
