"""Classes of extended resources and taint rules over slices: docs/spec/dra.md §3.12, §4.11, scenarios 239–248, 332."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, strategies as st

from scheduler.api.resource_v1 import DeviceClass, ResourceSlice
from scheduler.cache.devices.manager import DeviceClasses, SharedDRAManager
from scheduler.cache.devices.pools import TaintRules, may_mean
from scheduler.cache.nodes.nodes import Nodes
from scheduler.core.feature_gates import DEVICE_GATES_ON, TAINT_RULES
from simulator.builders.devices import TaintRuleBuilder, a_device, a_device_class, a_slice, a_taint_rule

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


def test_332_the_loser_goes() -> None:
    """Upstream forgets the winner's resource then."""
    classes = known(OLD, NEW)
    classes.put("z-old", None)

    assert ("new", "new") == (serving(classes), serving(classes, IMPLICIT + "new"))
    assert serving(classes, IMPLICIT + "z-old") is None


def test_every_class_has_an_implicit_resource_name() -> None:
    """322: also the loser of a resource, and one that names none; a name that a class claims for itself goes first."""
    classes = known(OLD, NEW, a_class("plain"))
    for name in ("z-old", "new", "plain"):
        assert name == serving(classes, IMPLICIT + name)
    for missing in ("other", ""):
        assert serving(classes, IMPLICIT + missing) is None
    assert serving(classes, "plain") is None

    classes.put("thief", a_class("thief", IMPLICIT + "plain"))
    assert "thief" == serving(classes, IMPLICIT + "plain")


CLASSES = st.builds(
    a_class,
    st.sampled_from("abc"),
    st.sampled_from(["", "example.com/x", "example.com/y"]),
    st.sampled_from(["2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z"]),
)


@given(st.lists(CLASSES | st.sampled_from("abc"), max_size=15))
def test_the_order_of_events_leaves_no_trace(events: list[DeviceClass | str]) -> None:
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


SLICE = a_slice("p1", "drv", a_device("d0").taint("own"), a_device("d1")).typed()


def laid(each: ResourceSlice, *rules: TaintRuleBuilder) -> dict[str, list[str]]:
    """Device → the keys of its taints, under these rules."""
    known = TaintRules()
    for rule in rules:
        known.put(rule.typed().key, rule.typed())
    return keys(known.lay(each))


def keys(each: ResourceSlice) -> dict[str, list[str]]:
    return {device.name: [taint.key for taint in device.taints] for device in each.spec.devices}


def selecting(name: str, **selector: str) -> TaintRuleBuilder:
    return a_taint_rule(name, name).set({"spec": {"deviceSelector": selector}})


def test_a_slice_that_no_rule_means_is_itself() -> None:
    rules = TaintRules()
    assert rules.lay(SLICE) is SLICE

    rules.put("r", selecting("r", driver="drv", pool="p2").typed())
    rules.put("s", selecting("s", device="d9").typed())
    assert rules.lay(SLICE) is SLICE

    rules.put("all", selecting("all").typed())
    rules.put("all", None)
    assert rules.lay(SLICE) is SLICE
    assert 2 == len(rules.rules)


@pytest.mark.parametrize(
    ("selector", "meant"),
    [
        pytest.param({}, {"d0", "d1"}, id="240 all"),
        pytest.param({"driver": "drv"}, {"d0", "d1"}, id="243 its driver"),
        pytest.param({"driver": "other"}, set(), id="243 another driver"),
        pytest.param({"pool": "p1"}, {"d0", "d1"}, id="243 its pool"),
        pytest.param({"pool": "p2"}, set(), id="243 another pool"),
        pytest.param({"device": "d1"}, {"d1"}, id="243 a device"),
        pytest.param({"driver": "drv", "pool": "p1", "device": "d0"}, {"d0"}, id="244 all criteria"),
        pytest.param({"driver": "drv", "pool": "p2", "device": "d0"}, set(), id="244 one of them fails"),
        pytest.param({"driver": ""}, set(), id="an empty name is a name"),
    ],
)
def test_which_devices_a_rule_means(selector: dict[str, str], meant: set[str]) -> None:
    found = laid(SLICE, selecting("r", **selector))

    assert meant == {name for name, taints in found.items() if "r" in taints}


def test_242_the_drivers_taints_stand_first_then_rules_by_name() -> None:
    rules = [selecting("b"), selecting("a"), a_taint_rule("c", "own")]
    for order in permutations(rules):
        assert {"d0": ["own", "a", "b", "own"], "d1": ["a", "b", "own"]} == laid(SLICE, *order)


def test_the_taint_is_taken_whole() -> None:
    rule = a_taint_rule("r", "k", "v", "NoExecute").since("2026-01-01T00:00:00Z")
    rules = TaintRules()
    rules.put("r", rule.typed())
    taint = rules.lay(SLICE).spec.devices[1].taints[0]

    assert ("k", "v", "NoExecute", "2026-01-01T00:00:00Z") == (taint.key, taint.value, taint.effect, taint.time_added)


NAMES = st.sampled_from(["a", "b"])
SELECTORS = st.fixed_dictionaries({}, optional={"driver": NAMES, "pool": NAMES, "device": NAMES})
SLICES = st.builds(
    lambda name, driver, pool, devices: (
        a_slice(pool, driver, *(a_device(device) for device in devices)).named(name).typed()
    ),
    st.sampled_from(["s", "t", "u"]),
    NAMES,
    NAMES,
    st.sets(NAMES),
)


@given(
    st.lists(
        st.one_of(
            SLICES,
            st.sampled_from(["s", "t", "u"]).map(lambda name: (name,)),
            st.tuples(st.sampled_from("xyz"), st.none() | SELECTORS),
        ),
        max_size=20,
    )
)
def test_after_any_history_slices_have_the_taints_of_their_rules(
    steps: list[ResourceSlice | tuple[str, ...]],
) -> None:
    """241, 245: each slice that a rule changes is reported with its state before."""
    devices = SharedDRAManager(Nodes(), DEVICE_GATES_ON | {TAINT_RULES})
    slices: dict[str, ResourceSlice] = {}
    rules: dict[str, TaintRuleBuilder] = {}
    counted: dict[str, ResourceSlice] = {}
    for step in steps:
        match step:
            case ResourceSlice():
                slices[step.key] = step
                counted[step.key] = devices.set_slice(step)
            case (str(name),):
                slices.pop(name, None)
                assert counted.pop(name, None) == devices.remove_slice(name)
            case (name, selector):
                old = rules.pop(name, None)
                if selector is not None:
                    rules[name] = selecting(name, **selector)  # type: ignore[arg-type]
                new = rules.get(name)
                sides = [rule.typed() if rule is not None else None for rule in (old, new)]
                for before, now in devices.put_rule(name, *sides):
                    assert (counted[now.key], keys(before) != keys(now)) == (before, True)
                    counted[now.key] = now
        expected = {name: laid(each, *rules.values()) for name, each in slices.items()}
        assert expected == {each.key: keys(each) for each in devices.slices()}
        assert expected == {name: keys(each) for name, each in counted.items()}


def test_a_rule_is_looked_at_by_driver_and_pool() -> None:
    assert may_mean(selecting("r", device="d9").typed(), SLICE)
    assert not may_mean(selecting("r", driver="other", device="d0").typed(), SLICE)
    assert may_mean(selecting("r").typed(), SLICE)
    assert not may_mean(a_taint_rule("r", "k").none().typed(), SLICE)


def test_a_rule_that_says_the_same_costs_no_look_at_the_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its controller writes its status with every pod that it evicts."""
    devices = SharedDRAManager(Nodes(), DEVICE_GATES_ON | {TAINT_RULES})
    devices.set_slice(SLICE)
    rule = selecting("r").typed()
    devices.put_rule("r", None, rule)
    looked: list[ResourceSlice] = []

    def look(_: TaintRules, each: ResourceSlice) -> ResourceSlice:
        looked.append(each)
        return each

    monkeypatch.setattr(TaintRules, "lay", look)

    assert [] == devices.put_rule("r", rule, selecting("r").typed())
    assert not looked


def test_248_while_the_gate_is_off() -> None:
    devices = SharedDRAManager(Nodes(), DEVICE_GATES_ON)
    devices.set_slice(SLICE)

    assert [] == devices.put_rule("r", None, selecting("r").typed())
    assert SLICE is devices.slice(SLICE.key) is devices.set_slice(SLICE)
