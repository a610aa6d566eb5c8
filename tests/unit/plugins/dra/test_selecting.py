"""Each selector is evaluated once per kind of device while its result is cached."""

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


class CountedEvaluations:
    """Evaluates selectors: a number holds for devices whose name it divides, and 7 fails. It counts the evaluations."""

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
def counted() -> CountedEvaluations:
    with mock.patch.object(pools, "_kind_answers", Limit(SIZE)):
        return CountedEvaluations()


def by_the_letter(expressions: tuple[int, ...], kind: DeviceKind) -> bool | SelectorFault:
    for at, each in enumerate(expressions):
        if each == 7:
            return SelectorFault(not at, at, "CEL runtime error: seven")
        if int(kind.device.name) % each:
            return False
    return True


def test_nothing_is_evaluated_twice_while_the_cache_is_not_full(counted: CountedEvaluations) -> None:
    """Another set with the same expression uses the cached result."""
    for each in (counted.of(2, 3), counted.of(2, 3), counted.of(2, 5)):
        finish(each.evaluating(counted.kinds[1:2]))
        each.of(counted.kinds[1])

    assert counted.count == 1


def test_the_number_of_cached_results_is_limited(counted: CountedEvaluations) -> None:
    """The result is the same with and without a cached one."""
    every = [expressions for a in range(1, 12) for expressions in ((a,), (1, a), (a, 7))]
    for _ in range(2):
        for expressions in every:
            for kind in counted.kinds:
                assert counted.of(*expressions).of(kind) == by_the_letter(expressions, kind)

    assert sum(len(kind.memo) for kind in counted.kinds) <= 2 * SIZE


def test_an_answer_does_not_keep_the_kind_of_a_device_that_is_gone(counted: CountedEvaluations) -> None:
    """In a cluster whose drivers publish unlike devices again and again, memory is bounded by the devices that exist."""
    kind = DeviceKind("drv", Device(name="6"))
    assert counted.of(2, 3).of(kind) is True
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
