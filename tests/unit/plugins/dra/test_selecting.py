"""What selectors say of kinds of devices is found out once, as long as there is room to remember it."""

from __future__ import annotations

import gc
import weakref
from unittest import mock

import pytest

from scheduler.api.resource_v1 import Device
from scheduler.cache.devices import pools
from scheduler.cache.devices.memos import Limit
from scheduler.cache.devices.pools import DeviceKind
from scheduler.core.cooperative import Work, finish
from scheduler.plugins.dra.structured.selectors import SelectorFault, Selectors, SelectorSets
from simulator.builders.devices import a_device, a_slice
from tests.unit.plugins.dra.world import World

SIZE = 50


class Asked:
    """Selectors hold for devices that their number divides; 7 fails. It counts how often that is found out."""

    def __init__(self) -> None:
        self.count = 0
        self.kinds = tuple(DeviceKind("drv", Device(name=f"{number}")) for number in range(30))
        self.sets = SelectorSets(self)

    def __call__(self, expression: str, kind: DeviceKind) -> Work[bool | str]:
        yield from ()
        self.count += 1
        if expression == "7":
            return "CEL runtime error: seven"
        return int(kind.device.name) % int(expression) == 0

    def of(self, *expressions: int) -> Selectors:
        return self.sets.of(tuple((not at, at, str(each)) for at, each in enumerate(expressions)))


@pytest.fixture
def asked() -> Asked:
    with mock.patch.object(pools, "_kind_answers", Limit(SIZE)):
        return Asked()


def by_the_letter(expressions: tuple[int, ...], kind: DeviceKind) -> bool | SelectorFault:
    for at, each in enumerate(expressions):
        if each == 7:
            return SelectorFault(not at, at, "CEL runtime error: seven")
        if int(kind.device.name) % each:
            return False
    return True


def test_nothing_is_asked_twice_as_long_as_there_is_room(asked: Asked) -> None:
    """Nor of another set with the same expression."""
    for each in (asked.of(2, 3), asked.of(2, 3), asked.of(2, 5)):
        finish(each.evaluating(asked.kinds[1:2]))
        each.of(asked.kinds[1])

    assert asked.count == 1


def test_however_many_ask_about_however_many_so_much_is_remembered(asked: Asked) -> None:
    """And the answer is the same, forgotten or not."""
    every = [expressions for a in range(1, 12) for expressions in ((a,), (1, a), (a, 7))]
    for _ in range(2):
        for expressions in every:
            for kind in asked.kinds:
                assert asked.of(*expressions).of(kind) == by_the_letter(expressions, kind)

    assert sum(len(kind.memo) for kind in asked.kinds) <= 2 * SIZE


def test_an_answer_does_not_keep_the_kind_of_a_device_that_is_gone(asked: Asked) -> None:
    """In a cluster whose drivers publish unlike devices again and again, memory is bounded by the devices that exist."""
    kind = DeviceKind("drv", Device(name="6"))
    assert asked.of(2, 3).of(kind) is True
    alive = weakref.ref(kind)

    del kind
    gc.collect()

    assert alive() is None


def test_devices_that_were_published_again_are_dropped() -> None:
    """A node's kind without any node keeps its devices only until some more nodes have changed."""
    world = World()
    alive = weakref.WeakSet[DeviceKind]()
    for serial in range(300):
        world.show(a_slice("n1", "a", a_device("d").attr("a/serial", serial)))
        world.devices.on_nodes.catch_up()
        alive.update(device.kind for view in world.devices.on_nodes.pools(world.slot()) for device in view.devices)
    gc.collect()

    assert 1 <= len(alive) <= 70
