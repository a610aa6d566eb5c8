"""Which class serves an extended resource (docs/spec/dra.md §3.12, scenario 332)."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from scheduler.api.resource_v1 import DeviceClass
from scheduler.cache.devices.manager import DeviceClasses
from simulator.builders.devices import a_device_class

GPU = "example.com/gpu"
IMPLICIT = "deviceclass.resource.kubernetes.io/"


def a_class(name: str, resource: str = "", created: str = "2026-01-01T00:00:00Z") -> DeviceClass:
    built = a_device_class(name).created(created)
    return (built.extended_resource(resource) if resource else built).typed()


def serving(classes: DeviceClasses, resource: str = GPU) -> str | None:
    """The name of the class."""
    found = classes.for_resource(resource)
    return None if found is None else found.metadata.name


def known(*classes: DeviceClass) -> DeviceClasses:
    cache = DeviceClasses()
    for each in classes:
        cache.put(each.key, each)
    return cache


OLD, NEW = a_class("z-old", GPU, "2025-01-01T00:00:00Z"), a_class("new", GPU, "2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("classes", "winner"),
    [
        pytest.param([], None, id="no class"),
        pytest.param([a_class("plain")], None, id="a class that names none"),
        pytest.param([a_class("gpu", "example.com/other")], None, id="another resource"),
        pytest.param([OLD], "z-old", id="one"),
        pytest.param([OLD, NEW], "new", id="the newer wins"),
        pytest.param([NEW, OLD], "new", id="the newer wins, though it came first"),
        pytest.param([a_class("b", GPU), a_class("a", GPU)], "a", id="of the same age the first by name"),
        pytest.param([a_class("a", GPU), a_class("b", GPU)], "a", id="in whatever order they came"),
    ],
)
def test_332_which_class_wins(classes: list[DeviceClass], winner: str | None) -> None:
    assert winner == serving(known(*classes))


def test_332_the_loser_goes() -> None:
    """Upstream forgets the winner's resource then."""
    classes = known(OLD, NEW)
    classes.put("z-old", None)

    assert ("new", "new") == (serving(classes), serving(classes, IMPLICIT + "new"))
    assert serving(classes, IMPLICIT + "z-old") is None


def test_every_class_has_a_name_of_its_own() -> None:
    """322: also the loser of a resource, and one that names none; a name that a class claims for itself goes first."""
    classes = known(OLD, NEW, a_class("plain"))
    for name in ("z-old", "new", "plain"):
        assert name == serving(classes, IMPLICIT + name)
    for missing in ("other", ""):
        assert serving(classes, IMPLICIT + missing) is None
    assert serving(classes, "plain") is None

    classes.put("thief", a_class("thief", IMPLICIT + "plain"))
    assert "thief" == serving(classes, IMPLICIT + "plain")


def test_each_change_is_seen() -> None:
    """By those who keep what they worked out."""
    classes = DeviceClasses()
    seen = [classes.generation]
    for change in (OLD, NEW, None):
        classes.put("c", change)
        seen.append(classes.generation)

    assert len(set(seen)) == 4


def test_resources_that_no_class_names_any_more_are_forgotten() -> None:
    """Whatever they were called in the course of time."""
    classes = DeviceClasses()
    for number in range(3):
        classes.put("c", a_class("c", f"example.com/x{number}"))
    classes.put("c", None)

    assert {} == classes._by_resource


CLASSES = st.builds(
    a_class,
    st.sampled_from("abc"),
    st.sampled_from(["", "example.com/x", "example.com/y"]),
    st.sampled_from(["2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z"]),
)


@given(st.lists(CLASSES | st.sampled_from("abc"), max_size=15))
def test_the_order_of_events_leaves_no_trace(events: list[DeviceClass | str]) -> None:
    """What counts is which classes there are."""
    classes = DeviceClasses()
    there: dict[str, DeviceClass] = {}
    for event in events:
        if isinstance(event, str):
            there.pop(event, None)
            classes.put(event, None)
        else:
            there[event.key] = event
            classes.put(event.key, event)

    for resource in ("example.com/x", "example.com/y"):
        naming = [each for each in there.values() if each.spec.extended_resource_name == resource]
        naming.sort(key=lambda each: each.key)
        naming.sort(key=lambda each: each.metadata.creation_timestamp or "", reverse=True)
        assert (naming[0] if naming else None) is classes.for_resource(resource)
