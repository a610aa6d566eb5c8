"""Deltas of claims, slices, classes and taint rules: the cache has a change before any event.

Rules: docs/spec/dra.md §1.2, §4.11, §7, rows 239–248.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from scheduler.api.decode import Broken
from scheduler.api.meta import Metadata
from scheduler.api.resource_v1 import DeviceId
from scheduler.cache.devices import node_kinds as devicenodes
from scheduler.core.cluster_events import Action
from scheduler.core.feature_gates import DEVICE_GATES_ON, TAINT_RULES
from simulator.builders.claims import a_claim, a_result
from simulator.builders.devices import TaintRuleBuilder, a_device, a_device_class, a_slice, a_taint_rule
from tests.unit.eventhandlers.deviceworld import ADD, CHANGED, CLAIM, D0, DELETE, HELD, HandlersWorld, at, broken

# -- one change of one object ------------------------------------------------------------------------------------------


def _shown(world: HandlersWorld, kind: str, key: str) -> Any:
    devices = world.devices
    return {"ResourceClaim": devices.claims.get, "ResourceSlice": devices.slice, "DeviceClass": devices.classes.get}[
        kind
    ](key)


@pytest.mark.parametrize(("kind", "built"), [
    ("ResourceClaim", HELD),
    ("ResourceSlice", a_slice("n1", "drv", a_device("d0"))),
    ("DeviceClass", a_device_class("gpu").extended_resource("example.com/gpu")),
])  # fmt: skip
def test_the_cache_changes_before_subscribers_and_the_queue_are_called(kind: str, built: Any) -> None:
    world = HandlersWorld()
    first, second = built.resource_version("1").typed(), built.resource_version("2").label("a", "b").typed()
    key = first.key
    world.shown = lambda: _shown(world, kind, key)
    end = world.devices.subscribe([key, "default/another"], world.notified)
    bad = broken(kind, first)

    def heard(action: Action, old: Any, new: Any) -> list[tuple[Any, ...]]:
        waits = [("notified", new)] if kind == "ResourceClaim" else []
        return [*waits, (kind, action, old, new, new)]

    assert heard(ADD, None, first) == world.feed(kind, None, first)
    assert heard(CHANGED, first, second) == world.feed(kind, first, second)
    assert heard(DELETE, second, None) == world.feed(kind, second, bad)
    assert {(kind, key): bad} == world.devices.broken
    assert heard(ADD, None, second) == world.feed(kind, bad, second)
    assert {} == world.devices.broken
    assert heard(DELETE, second, None) == world.feed(kind, second, None)

    end()

    assert [(kind, ADD, None, first, first)] == world.feed(kind, None, first)
    world.feed(kind, first, None)
    assert ({}, [], []) == (world.devices._watchers, list(world.devices.use.devices()), list(world.devices.slices()))


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceSlice", "DeviceClass", "DeviceTaintRule"])
def test_an_object_that_was_never_readable_causes_no_event(kind: str) -> None:
    world, claim = HandlersWorld(DEVICE_GATES_ON | {TAINT_RULES}), CLAIM.typed()
    bad = broken(kind, claim)

    assert [] == world.feed(kind, None, bad)
    assert {(kind, "default/c"): bad} == world.devices.broken
    assert [] == world.feed(kind, bad, None)
    assert {} == world.devices.broken


# -- claims that we write ourselves ------------------------------------------------------------------------------------


def test_a_claim_that_was_written_causes_an_event_before_the_watch_shows_it() -> None:
    """§1.2: events come from the state that decisions see, so the watch event of the same write causes none."""
    world = HandlersWorld()
    seen, later, written = at(CLAIM, 1), at(CLAIM, 2), at(HELD, 3)
    world.feed("ResourceClaim", None, seen)
    world.devices.claims.assume(written)

    assert [("ResourceClaim", CHANGED, seen, written, None)] == world.tick()
    assert [] == world.tick()
    assert [] == world.feed("ResourceClaim", seen, later)
    assert [] == world.feed("ResourceClaim", later, at(HELD.label("by", "watch"), 3))
    assert world.devices.claims.get("default/c") is written


def test_subscribers_are_notified_when_the_watch_shows_a_written_claim() -> None:
    world = HandlersWorld()
    seen, later, written = at(CLAIM, 1), at(CLAIM, 2), at(HELD, 3)
    world.feed("ResourceClaim", None, seen)
    world.devices.claims.assume(written)
    world.tick()
    world.devices.subscribe(["default/c"], world.notified)
    world.shown = lambda: world.devices.claims.get_api("default/c")

    assert [("notified", seen)] == world.feed("ResourceClaim", seen, later)
    assert [("notified", written)] == world.feed("ResourceClaim", later, written)


def test_a_restored_claim_causes_events() -> None:
    """§1.2: a restored claim is a change. Its events precede those of the next delta."""
    world = HandlersWorld()
    seen, written = at(CLAIM, 1), at(HELD, 2)
    other = a_claim("other").uid("other").resource_version("3").typed()
    world.feed("ResourceClaim", None, seen)
    world.devices.claims.assume(written)
    world.devices.claims.restore("default/c")

    assert [
        ("ResourceClaim", CHANGED, seen, written, None),
        ("ResourceClaim", CHANGED, written, seen, None),
        ("ResourceClaim", ADD, None, other, None),
    ] == world.feed("ResourceClaim", None, other)


def test_a_claim_that_a_subscriber_writes_causes_its_event_in_the_same_turn() -> None:
    world = HandlersWorld()
    first, second, third = at(CLAIM, 1), at(CLAIM, 2), at(HELD, 3)
    world.feed("ResourceClaim", None, first)
    ends: list[Callable[[], None]] = []

    def writes() -> None:
        ends.pop()()
        world.devices.claims.assume(third)

    ends.append(world.devices.subscribe(["default/c"], writes))

    assert [
        ("ResourceClaim", CHANGED, first, second, None),
        ("ResourceClaim", CHANGED, second, third, None),
    ] == world.feed("ResourceClaim", first, second)


def test_a_subscriber_that_raises_affects_one_change() -> None:
    world = HandlersWorld()
    claims = [a_claim(name).uid(name) for name in "cd"]
    for claim in claims:
        world.feed("ResourceClaim", None, at(claim, 1))
    for claim in claims:
        world.devices.claims.assume(at(claim, 2))

    def fails() -> None:
        raise ArithmeticError

    world.devices.subscribe(["default/c"], fails)

    with pytest.raises(ArithmeticError):
        world.tick()
    assert ["default/d"] == [now.key for _, _, _, now, _ in world.tick()]


def with_devices(bad: Broken, *devices: str) -> Broken:
    """Return the object with the allocation that can be read."""
    allocated = CLAIM.allocated(*(a_result("r", device) for device in devices)).typed()
    return msgspec.structs.replace(bad, allocation=allocated.status.allocation)


def bad(version: int, *devices: str, why: str = "no number") -> Broken:
    """Return the unreadable claim. The allocation is readable if devices are named."""
    found = broken("ResourceClaim", at(CLAIM, version), why)
    return with_devices(found, *devices) if devices else found


def ours(world: HandlersWorld) -> None:
    """Our write of the allocation has succeeded."""
    world.devices.claims.assume(at(HELD, 2))


def begins(world: HandlersWorld) -> None:
    """A binding of ours will write the allocation next."""
    world.devices.claims.signal("c", at(HELD, 1))


def ends(world: HandlersWorld) -> None:
    """The binding of ours ends."""
    world.devices.claims.drop_pending("c")


PLAIN, EMPTY = at(CLAIM, 1), with_devices(bad(3))
SAME_NAME = broken("ResourceClaim", at(a_claim("c").uid("new"), 3))
KEPT = [(PLAIN, False), (ours, True), (bad(2), True), (bad(2, why="worse"), True)]


@pytest.mark.parametrize("history", [
    pytest.param([*KEPT, (None, False)], id="unreadable with the device, then deleted"),
    pytest.param([*KEPT, (at(CLAIM, 3), False), (None, False)], id="unreadable with the device, then readable without it"),
    pytest.param([*KEPT, (at(HELD, 3), True), (None, False)], id="unreadable with the device, then readable with it"),
    pytest.param([(at(HELD, 1), True), (SAME_NAME, False)], id="an unreadable claim of the same name replaces it"),
    pytest.param([(at(HELD, 1), True), (bad(2), True), (SAME_NAME, False)],
        id="unreadable with the device, then an unreadable claim of the same name replaces it"),
    pytest.param([(PLAIN, False), (bad(2, str(D0)), True), (bad(3, why="worse"), True), (at(CLAIM, 4), False)],
        id="the unreadable change allocates the device, and the next change shows no devices"),
    pytest.param([(at(HELD, 1), True), (bad(2, str(D0)), True), (EMPTY, False)], id="an unreadable change shows that it has no devices"),
    pytest.param([(PLAIN, False), (begins, True), (bad(1), True), (None, True), (ends, False)],
        id="a binding under way keeps the device"),
    pytest.param([(PLAIN, False), (begins, True), (EMPTY, True), (None, True), (ends, False)],
        id="a binding under way keeps the device of a claim that shows no devices"),
    pytest.param([(PLAIN, False), (begins, True), (bad(2, str(D0)), True), (ends, True), (None, False)],
        id="the binding ends after the watch has shown its write"),
])  # fmt: skip
def test_no_other_claim_gets_the_device_of_a_claim_that_cannot_be_read(history: list[tuple[Any, bool]]) -> None:
    """Each step is a watch event or a call, and whether the device is in use after it."""
    world, before = HandlersWorld(), None
    use = world.devices.use
    for step, is_used in history:
        if callable(step):
            step(world)
        else:
            world.feed("ResourceClaim", before, step)
            before = step
        assert (is_used, is_used) == (use.is_used(D0), use.is_exclusive(D0))


@pytest.mark.parametrize("uid", ["c", ""])
def test_the_readable_allocation_of_an_unreadable_claim_counts_after_a_start(uid: str) -> None:
    world = HandlersWorld()
    use = world.devices.use
    nameless = msgspec.structs.replace(broken("ResourceClaim", at(CLAIM, 1)), metadata=Metadata(name="c", uid=uid))
    bad, less = with_devices(nameless, str(D0), "drv/n1/d1"), with_devices(nameless, str(D0))
    world.feed("ResourceClaim", None, bad)
    assert use.is_exclusive(D0)
    world.tick()

    world.feed("ResourceClaim", bad, less)
    assert [use.is_used(DeviceId("drv", "n1", name)) for name in ("d0", "d1")] == [True, False]
    assert [action for _, action, *_ in world.tick()] == [CHANGED]

    world.feed("ResourceClaim", less, None)
    assert not use.is_used(D0)
    assert [action for _, action, *_ in world.tick()] == [CHANGED]


def test_changes_without_pods_that_request_devices_do_not_accumulate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devicenodes, "_BACKLOG_MAX", 20)
    world = HandlersWorld()
    most = 0
    for number in range(100):
        claim = at(a_claim("c").uid("c").allocated(a_result("r", f"drv/n{number}/d0")), number + 1)
        local = a_slice(f"n{number}", "drv", a_device("d0")).named("local").typed()
        shared = a_slice("n1", "drv", a_device("d0")).named("shared").pool(f"p{number}").everywhere().typed()
        for kind, each in (("ResourceClaim", claim), ("ResourceSlice", local), ("ResourceSlice", shared)):
            world.feed(kind, None, each)
            world.feed(kind, each, None)
        world.tick()
        most = max(most, world.devices.on_nodes.backlog)

    assert 0 < most <= 20


# -- rules that taint devices ------------------------------------------------------------------------------------------

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
    world = HandlersWorld(RULES_ON)
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
    world = HandlersWorld(RULES_ON)
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
    world = HandlersWorld(RULES_ON)
    world.feed("ResourceSlice", None, N1.typed())
    world.feed("DeviceTaintRule", None, RULE.typed())

    assert is_news == bool(world.feed("DeviceTaintRule", RULE.typed(), after.typed()))


def test_a_rule_that_cannot_be_read_any_more() -> None:
    world = HandlersWorld(RULES_ON)
    world.feed("ResourceSlice", None, N2.typed())
    world.feed("DeviceTaintRule", None, RULE.typed())
    bad = broken("DeviceTaintRule", RULE.typed())

    assert [(CHANGED, {"d0": ["broken"]}, {"d0": []})] == slice_events(world.feed("DeviceTaintRule", RULE.typed(), bad))
    assert [(CHANGED, {"d0": []}, {"d0": ["broken"]})] == slice_events(world.feed("DeviceTaintRule", bad, RULE.typed()))


def test_a_slice_that_cannot_be_read_any_more() -> None:
    world = HandlersWorld(RULES_ON)
    world.feed("DeviceTaintRule", None, RULE.typed())
    world.feed("ResourceSlice", None, N2.typed())
    bad = broken("ResourceSlice", N2.typed())

    assert [(DELETE, {"d0": ["broken"]}, {})] == slice_events(world.feed("ResourceSlice", N2.typed(), bad))
    assert [(ADD, {}, {"d0": ["broken"]})] == slice_events(world.feed("ResourceSlice", bad, N2.typed()))
