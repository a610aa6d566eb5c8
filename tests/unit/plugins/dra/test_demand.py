"""Equal claims share one demand, which stays cached when a class changes that the demand does not use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scheduler.cache.devices.manager import DeviceClasses
from scheduler.core.cooperative import Work
from scheduler.core.feature_gates import DEVICE_GATES_ON
from scheduler.plugins.dra.structured.requests import ClaimParser
from scheduler.plugins.dra.structured.selectors import SelectorSets
from simulator.builders.claims import a_claim, an_option
from simulator.builders.devices import a_device_class
from tests.unit.plugins.dra.standins import no_derived

CLAIM = a_claim("c").request("r", "gpu").first_available("f", an_option("s", "nic"), an_option("t", "missing")).typed()
GPU = a_device_class("gpu", "true").config("d.x", {"a": 1})
Change = Callable[[DeviceClasses], None]


def _never(*_: Any) -> Work[bool | str]:
    yield
    return False


def put(made: Any) -> Change:
    return lambda classes: classes.put(made.typed().key, made.typed())


def gone(name: str) -> Change:
    return lambda classes: classes.put(name, None)


@pytest.mark.parametrize(("changes", "is_kept"), [
    pytest.param([], True, id="nothing changes"),
    pytest.param([put(a_device_class("other")), gone("other")], True, id="another class is added and removed"),
    pytest.param([put(GPU.label("a", "b"))], True, id="a label of the class changes"),
    pytest.param([gone("gpu"), put(GPU)], True, id="the class is created again without a change"),
    pytest.param([put(a_device_class("gpu", "false"))], False, id="the selectors of the class change"),
    pytest.param([put(a_device_class("gpu", "true").config("d.x", {"a": 2}))], False, id="the parameters of the class change"),
    pytest.param([gone("gpu")], False, id="the class is removed"),
    pytest.param([gone("nic")], False, id="the class of an alternative is removed"),
    pytest.param([put(a_device_class("missing"))], False, id="a class that was missing is added"),
])  # fmt: skip
def test_which_changes_of_classes_discard_a_demand(changes: list[Change], is_kept: bool) -> None:
    """Only a change of a class that the demand uses discards it; the new demand has the new class."""
    classes = DeviceClasses()
    for each in (GPU, a_device_class("nic")):
        put(each)(classes)
    demands = ClaimParser(classes, SelectorSets(_never), DEVICE_GATES_ON, no_derived)
    before = demands.of([CLAIM])
    for change in changes:
        change(classes)
    after = demands.of([CLAIM])

    assert (after is before) == is_kept
    assert demands.of([CLAIM]) is after
    for *_, ask in after.request_data:
        now = classes.get(ask.spec.device_class_name)
        assert (ask.device_class and ask.device_class.spec) == (now and now.spec)
