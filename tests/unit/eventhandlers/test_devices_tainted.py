"""Events of slices, and of rules that taint their devices (docs/spec/dra.md §1.2, §4.11, rows 239–248)."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.cluster_events import Action
from scheduler.core.feature_gates import DEVICE_GATES_ON, TAINT_RULES
from simulator.builders.devices import SliceBuilder, TaintRuleBuilder, a_device, a_slice, a_taint_rule
from tests.unit.eventhandlers.deviceworld import ADD, CHANGED, DELETE, World, broken

N1 = a_slice("n1", "drv", a_device("d0"), a_device("d1"))
N2 = a_slice("n2", "other", a_device("d0"))
RULE = a_taint_rule("rule", "broken")
RULES_ON = DEVICE_GATES_ON | {TAINT_RULES}


def slice_events(heard: list[tuple[Any, ...]]) -> list[tuple[Action, dict[str, list[str]], dict[str, list[str]]]]:
    """Return the action of each event and the taints before and after, by device."""
    return [
        (action, *({d.name: [t.key for t in d.taints] for d in each.spec.devices} if each else {} for each in sides))
        for _, action, *sides, _ in heard
    ]


def test_239_without_rules() -> None:
    world = World(RULES_ON)
    first, second = N1.typed(), N1.device(a_device("d2")).typed()

    assert [("ResourceSlice", ADD, None, first, None)] == world.feed("ResourceSlice", None, first)
    assert [("ResourceSlice", CHANGED, first, second, None)] == world.feed("ResourceSlice", first, second)
    assert [("ResourceSlice", DELETE, second, None, None)] == world.feed("ResourceSlice", second, None)


@pytest.mark.parametrize(("rule", "changed"), [
    pytest.param(RULE, {"n1-drv": ["d0", "d1"], "n2-other": ["d0"]}, id="240 all"),
    pytest.param(RULE.none(), {}, id="no selector: no device, as from 1.37 on"),
    pytest.param(RULE.driver("drv"), {"n1-drv": ["d0", "d1"]}, id="243 by driver"),
    pytest.param(RULE.device("d1"), {"n1-drv": ["d1"]}, id="a slice without the device has no event"),
])  # fmt: skip
def test_a_rule_comes_and_goes(rule: TaintRuleBuilder, changed: dict[str, list[str]]) -> None:
    """240, 243, 244, 246: only the slices that the rule changes have events."""
    world = World(RULES_ON)
    for each in (N1, N2):
        world.feed("ResourceSlice", None, each.typed())
    plain = {name: world.taints(name) for name in ("n1-drv", "n2-other")}
    came = world.feed("DeviceTaintRule", None, rule.typed())

    tainted = {name: {d: ["broken"] if d in changed.get(name, ()) else [] for d in plain[name]} for name in plain}
    assert [(CHANGED, plain[name], tainted[name]) for name in changed] == slice_events(came)
    assert tainted == {name: world.taints(name) for name in plain}

    went = world.feed("DeviceTaintRule", rule.typed(), None)

    assert [(CHANGED, tainted[name], plain[name]) for name in changed] == slice_events(went)
    assert plain == {name: world.taints(name) for name in plain}


def test_241_a_rule_that_moved_before_slices_came() -> None:
    world = World(RULES_ON)
    first, second = RULE.pool("n1").typed(), RULE.pool("n2").typed()
    world.feed("DeviceTaintRule", None, first)
    world.feed("DeviceTaintRule", first, second)
    for each in (N1, N2):
        world.feed("ResourceSlice", None, each.typed())

    assert ({"d0": [], "d1": []}, {"d0": ["broken"]}) == (world.taints("n1-drv"), world.taints("n2-other"))
    assert [
        (CHANGED, {"d0": [], "d1": []}, {"d0": ["broken"], "d1": ["broken"]}),
        (CHANGED, {"d0": ["broken"]}, {"d0": []}),
    ] == slice_events(world.feed("DeviceTaintRule", second, first))


def test_245_a_slice_grows_and_shrinks_under_a_rule() -> None:
    world = World(RULES_ON)
    world.feed("DeviceTaintRule", None, RULE.typed())
    small, large = a_slice("n1", "drv", a_device("d0")).typed(), N1.typed()
    one, two = {"d0": ["broken"]}, {"d0": ["broken"], "d1": ["broken"]}

    assert [(ADD, {}, one)] == slice_events(world.feed("ResourceSlice", None, small))
    assert [(CHANGED, one, two)] == slice_events(world.feed("ResourceSlice", small, large))
    assert [(CHANGED, two, one)] == slice_events(world.feed("ResourceSlice", large, small))
    assert [(DELETE, one, {})] == slice_events(world.feed("ResourceSlice", small, None))


@pytest.mark.parametrize(("after", "is_news"), [
    pytest.param(RULE.label("a", "b"), False, id="247 a label"),
    pytest.param(RULE.device("d0"), True, id="fewer devices"),
    pytest.param(RULE.driver("drv").pool("n1"), False, id="the same devices in other words"),
    pytest.param(a_taint_rule("rule", "worse"), True, id="another key"),
    pytest.param(a_taint_rule("rule", "broken", "very"), True, id="another value"),
    pytest.param(a_taint_rule("rule", "broken", effect="NoExecute"), True, id="another effect"),
    pytest.param(RULE.since("2026-01-01T00:00:00Z"), True, id="another time"),
])  # fmt: skip
def test_a_rule_changes(after: TaintRuleBuilder, is_news: bool) -> None:
    """247: no event unless the taints of a device differ."""
    world = World(RULES_ON)
    world.feed("ResourceSlice", None, N1.typed())
    world.feed("DeviceTaintRule", None, RULE.typed())

    assert is_news == bool(world.feed("DeviceTaintRule", RULE.typed(), after.typed()))


def test_a_rule_that_cannot_be_read_any_more() -> None:
    world = World(RULES_ON)
    world.feed("ResourceSlice", None, N2.typed())
    world.feed("DeviceTaintRule", None, RULE.typed())
    bad = broken("DeviceTaintRule", RULE.typed())

    assert [(CHANGED, {"d0": ["broken"]}, {"d0": []})] == slice_events(world.feed("DeviceTaintRule", RULE.typed(), bad))
    assert [(CHANGED, {"d0": []}, {"d0": ["broken"]})] == slice_events(world.feed("DeviceTaintRule", bad, RULE.typed()))


def test_a_slice_that_cannot_be_read_any_more() -> None:
    world = World(RULES_ON)
    world.feed("DeviceTaintRule", None, RULE.typed())
    each: SliceBuilder = N2
    world.feed("ResourceSlice", None, each.typed())
    bad = broken("ResourceSlice", each.typed())

    assert [(DELETE, {"d0": ["broken"]}, {})] == slice_events(world.feed("ResourceSlice", each.typed(), bad))
    assert [(ADD, {}, {"d0": ["broken"]})] == slice_events(world.feed("ResourceSlice", bad, each.typed()))
