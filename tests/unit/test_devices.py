"""Deltas of what devices are allocated by: the caches show a change before anybody hears of it (docs/spec/dra.md §1.2, §4.11, §7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from scheduler.cache import devicenodes
from scheduler.cache.cluster import Cluster
from scheduler.core.decode import Broken
from scheduler.core.deltas import Delta
from scheduler.core.devicegates import DEVICE_GATES_ON, TAINT_RULES
from scheduler.core.devices import DeviceId
from scheduler.core.events import Action, ClusterEvent
from scheduler.core.meta import Metadata
from scheduler.devices import DEVICES_GIVEN_BACK, DeviceIntake
from scheduler.testing.clock import VirtualClock
from scheduler.testing.devicebuilders import (
    SliceBuilder,
    TaintRuleBuilder,
    a_device,
    a_device_class,
    a_slice,
    a_taint_rule,
)
from scheduler.testing.deviceclaimbuilders import ClaimBuilder, a_claim, a_result
from tests.unit.hearing import Hearing

ADD, CHANGED, DELETE = Action.ADD, Action.UPDATE_OTHER, Action.DELETE
D0 = DeviceId("drv", "n1", "d0")
CLAIM = a_claim("c").uid("c")
HELD = CLAIM.allocated(a_result("r", str(D0)))


class World(Hearing):
    """A cluster, and what was heard of each change: who heard, of what, and what the cache showed at that moment."""

    def __init__(self, gates: frozenset[str] = DEVICE_GATES_ON) -> None:
        super().__init__()
        self.cluster = Cluster(VirtualClock(), gates)
        self.devices = self.cluster.devices
        self.intake = DeviceIntake(self.cluster, self.move)

    def handlers(self) -> Mapping[str, Callable[[Delta[Any]], None]]:
        return self.intake.handlers()

    def tick(self) -> list[tuple[Any, ...]]:
        """What was heard in that turn of the loop."""
        self.heard.clear()
        self.intake.tick()
        return list(self.heard)

    def taints(self, name: str) -> dict[str, list[str]]:
        """Device → the keys of its taints, of one slice as it counts."""
        each = self.devices.slice(name)
        return {} if each is None else {d.name: [t.key for t in d.taints] for d in each.spec.devices}


def broken(kind: str, obj: Any, why: str = "no number") -> Broken:
    seen = obj.metadata
    return Broken(kind=kind, metadata=Metadata(name=seen.name, namespace=seen.namespace, uid=seen.uid), why=why)


def at(claim: ClaimBuilder, version: int) -> Any:
    return claim.resource_version(str(version)).typed()


# -- one change of one object ------------------------------------------------------------------------------------------


def _shown(world: World, kind: str, key: str) -> Any:
    devices = world.devices
    return {"ResourceClaim": devices.claims.get, "ResourceSlice": devices.slice, "DeviceClass": devices.classes.get}[
        kind
    ](key)


@pytest.mark.parametrize(
    ("kind", "built"),
    [
        ("ResourceClaim", HELD),
        ("ResourceSlice", a_slice("n1", "drv", a_device("d0"))),
        ("DeviceClass", a_device_class("gpu").extended_resource("example.com/gpu")),
    ],
)
def test_the_cache_first_then_waits_then_pods(kind: str, built: Any) -> None:
    """Each kind comes, changes, cannot be read for a while, and goes; nothing stays behind. Only claims are waited for."""
    world = World()
    first, second = built.resource_version("1").typed(), built.resource_version("2").label("a", "b").typed()
    key = first.key
    world.shown = lambda: _shown(world, kind, key)
    end = world.devices.subscribe([key, "default/another"], world.told)
    bad = broken(kind, first)

    def heard(action: Action, old: Any, new: Any) -> list[tuple[Any, ...]]:
        waits = [("told", new)] if kind == "ResourceClaim" else []
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
def test_what_could_never_be_read_is_nobodys_news(kind: str) -> None:
    """It can be named, and then it is gone."""
    world, claim = World(DEVICE_GATES_ON | {TAINT_RULES}), CLAIM.typed()
    bad = broken(kind, claim)

    assert [] == world.feed(kind, None, bad)
    assert {(kind, "default/c"): bad} == world.devices.broken
    assert [] == world.feed(kind, bad, None)
    assert {} == world.devices.broken


# -- claims that we write ourselves ------------------------------------------------------------------------------------


def test_what_we_wrote_is_told_before_the_watch_shows_it() -> None:
    """§1.2: events come from what decisions see. The watch's own of it is no news, nor is what it shows too late."""
    world = World()
    seen, later, written = at(CLAIM, 1), at(CLAIM, 2), at(HELD, 3)
    world.feed("ResourceClaim", None, seen)
    world.devices.claims.assume(written)

    assert [("ResourceClaim", CHANGED, seen, written, None)] == world.tick()
    assert [] == world.tick()
    assert [] == world.feed("ResourceClaim", seen, later)
    assert [] == world.feed("ResourceClaim", later, at(HELD.label("by", "watch"), 3))
    assert world.devices.claims.get("default/c") is written


def test_who_waits_hears_that_the_watch_shows_what_we_wrote() -> None:
    """Pods are not woken by it: to them it is old."""
    world = World()
    seen, later, written = at(CLAIM, 1), at(CLAIM, 2), at(HELD, 3)
    world.feed("ResourceClaim", None, seen)
    world.devices.claims.assume(written)
    world.tick()
    world.devices.subscribe(["default/c"], world.told)
    world.shown = lambda: world.devices.claims.get_api("default/c")

    assert [("told", seen)] == world.feed("ResourceClaim", seen, later)
    assert [("told", written)] == world.feed("ResourceClaim", later, written)


def test_what_we_take_back_is_told_too() -> None:
    """§1.2: a restored claim is a change like any other; with the delta that comes first, in order."""
    world = World()
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


def test_what_is_written_because_of_news_is_told_in_the_same_turn() -> None:
    """Who waits may assume something in turn."""
    world = World()
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


def test_whoever_fails_costs_one_change() -> None:
    """The others are told in the next turn."""
    world = World()
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


@pytest.mark.parametrize(
    ("later", "is_free"),
    [
        pytest.param(None, True, id="it is gone"),
        pytest.param(at(CLAIM, 3), True, id="it can be read again, and has it no more"),
        pytest.param(at(HELD, 3), False, id="it can be read again, and still has it"),
    ],
)
def test_what_a_claim_had_nobody_else_gets_while_it_cannot_be_read(later: Any, is_free: bool) -> None:
    """Whatever is wrong with it, and though only we knew that it had it."""
    world = World()
    seen, bad, worse = (
        at(CLAIM, 1),
        broken("ResourceClaim", at(CLAIM, 2)),
        broken("ResourceClaim", at(CLAIM, 2), "worse"),
    )
    use = world.devices.use
    world.feed("ResourceClaim", None, seen)
    world.devices.claims.assume(at(HELD, 2))
    world.feed("ResourceClaim", seen, bad)
    assert use.is_exclusive(D0)
    world.feed("ResourceClaim", bad, worse)
    assert use.is_exclusive(D0)

    world.feed("ResourceClaim", worse, later)

    assert use.is_used(D0) != is_free
    if later is not None:
        world.feed("ResourceClaim", later, None)
    assert not use.is_used(D0)


@pytest.mark.parametrize("was_unreadable", [False, True])
def test_a_claim_that_cannot_be_read_has_nothing_of_one_that_was_called_the_same(*, was_unreadable: bool) -> None:
    """That was deleted between two lists."""
    world = World()
    seen, bad = at(HELD, 1), broken("ResourceClaim", at(HELD, 2))
    world.feed("ResourceClaim", None, seen)
    if was_unreadable:
        world.feed("ResourceClaim", seen, bad)

    world.feed(
        "ResourceClaim", bad if was_unreadable else seen, broken("ResourceClaim", at(a_claim("c").uid("new"), 3))
    )

    assert not world.devices.use.is_used(D0)


def with_devices(bad: Broken, *devices: str) -> Broken:
    """What could still be read of it."""
    allocated = CLAIM.allocated(*(a_result("r", device) for device in devices)).typed()
    return msgspec.structs.replace(bad, allocation=allocated.status.allocation)


@pytest.mark.parametrize("uid", ["c", ""])
def test_a_claim_that_was_never_read_has_what_can_be_seen_of_it(uid: str) -> None:
    """After a start. Its devices are free once it can be read without them, or is gone; then pods are told."""
    world = World()
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


def test_what_was_seen_last_counts_of_a_claim_that_cannot_be_read() -> None:
    """It got its device with the very change that broke it, and keeps it where the next one shows nothing at all."""
    world = World()
    seen, bad, worse = (
        at(CLAIM, 1),
        with_devices(broken("ResourceClaim", at(CLAIM, 2)), str(D0)),
        broken("ResourceClaim", at(CLAIM, 3), "worse"),
    )
    world.feed("ResourceClaim", None, seen)
    world.feed("ResourceClaim", seen, bad)
    assert world.devices.use.is_exclusive(D0)

    world.feed("ResourceClaim", bad, worse)
    assert world.devices.use.is_exclusive(D0)

    world.feed("ResourceClaim", worse, at(CLAIM, 4))
    assert not world.devices.use.is_used(D0)


def test_a_claim_that_cannot_be_read_and_is_seen_to_have_nothing_has_nothing() -> None:
    """Its last pod has ended, and whatever is wrong with it is as wrong as before."""
    world = World()
    seen, bad = at(HELD, 1), with_devices(broken("ResourceClaim", at(CLAIM, 2)), str(D0))
    world.feed("ResourceClaim", None, seen)
    world.feed("ResourceClaim", seen, bad)
    world.tick()

    world.feed("ResourceClaim", bad, with_devices(broken("ResourceClaim", at(CLAIM, 3))))

    assert not world.devices.use.is_used(D0)
    assert [action for _, action, *_ in world.tick()] == [CHANGED]


@pytest.mark.parametrize("has_nothing", [False, True])
def test_what_is_in_flight_stays_so_while_its_claim_cannot_be_read(*, has_nothing: bool) -> None:
    """Whoever decided has not given up yet."""
    world = World()
    seen, bad = at(CLAIM, 1), broken("ResourceClaim", at(CLAIM, 1))
    bad = with_devices(bad) if has_nothing else bad
    world.feed("ResourceClaim", None, seen)
    world.devices.claims.signal("c", at(HELD, 1))
    world.feed("ResourceClaim", seen, bad)
    assert world.devices.use.is_exclusive(D0)

    world.feed("ResourceClaim", bad, None)
    assert world.devices.use.is_exclusive(D0)

    world.devices.claims.drop_pending("c")
    assert not world.devices.use.is_used(D0)


def test_what_was_written_stays_when_its_claim_cannot_be_read() -> None:
    """The binding that wrote it ends after the watch has shown it."""
    world = World()
    seen, bad = at(CLAIM, 1), with_devices(broken("ResourceClaim", at(CLAIM, 2)), str(D0))
    world.feed("ResourceClaim", None, seen)
    world.devices.claims.signal("c", at(HELD, 1))
    world.feed("ResourceClaim", seen, bad)

    world.devices.claims.drop_pending("c")
    assert world.devices.use.is_exclusive(D0)

    world.feed("ResourceClaim", bad, None)
    assert not world.devices.use.is_used(D0)


def test_what_nobody_asks_for_does_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """All pods with devices are somebody else's, and nodes come and go with devices that are never called the same."""
    monkeypatch.setattr(devicenodes, "_BACKLOG_MAX", 20)
    world = World()
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


# -- what we had planned and did not do --------------------------------------------------------------------------------


def given_back(world: World) -> list[tuple[Any, Any]]:
    """Each that was told so in this turn: as it was planned, and as it is."""
    moved: list[tuple[ClusterEvent, Any, Any]] = []
    intake = DeviceIntake(world.cluster, lambda event, old, new: moved.append((event, old, new)))
    intake.tick()
    return [(old, new) for event, old, new in moved if event == DEVICES_GIVEN_BACK]


@pytest.mark.parametrize(
    ("becomes", "is_told"),
    [
        pytest.param(at(CLAIM, 1), True, id="it was never written"),
        pytest.param(at(HELD, 2), False, id="it was written"),
        pytest.param(at(HELD.allocated_at("2026-01-01T00:00:00Z").reserved_for("p"), 2), False, id="with more to it"),
        pytest.param(None, True, id="the claim is gone"),
        pytest.param(a_claim("c").uid("another").resource_version("2").typed(), True, id="another has its name"),
    ],
)
def test_what_is_in_flight_no_more_is_told_unless_it_was_written(becomes: Any, is_told: bool) -> None:
    """Once, when the last who shared it has given up."""
    world = World()
    first, plan = at(CLAIM, 1), at(HELD, 1)
    world.feed("ResourceClaim", None, first)
    world.devices.claims.signal("c", plan)
    world.devices.claims.signal("c", plan)
    if becomes != first:
        world.feed("ResourceClaim", first, becomes)

    world.devices.claims.drop_pending("c")
    assert [] == given_back(world)
    world.devices.claims.drop_pending("c")

    assert ([(plan, becomes)] if is_told else []) == given_back(world)
    assert [] == given_back(world)


def test_what_others_overtook_is_told_at_once() -> None:
    """They gave the claim another device: ours is not in use from then on. Told once."""
    world = World()
    first, plan, theirs = at(CLAIM, 1), at(HELD, 1), at(CLAIM.allocated(a_result("r", "drv/n1/d1")), 2)
    world.feed("ResourceClaim", None, first)
    world.devices.claims.signal("c", plan)
    world.feed("ResourceClaim", first, theirs)

    assert not world.devices.use.is_used(D0)
    assert [(plan, theirs)] == given_back(world)
    world.feed("ResourceClaim", theirs, at(CLAIM.allocated(a_result("r", "drv/n1/d1")).reserved_for("x"), 3))
    world.devices.claims.drop_pending("c")
    assert [] == given_back(world)


def test_what_others_overtook_before_we_knew_whose_it_was_is_told() -> None:
    """The claim is made in our name, and allocated by others before we hear that it was made."""
    world = World()
    first, plan, theirs = at(CLAIM, 1), at(HELD, 1), at(CLAIM.allocated(a_result("r", "drv/n1/d1")), 2)
    world.devices.claims.signal("one of its own", plan)
    world.feed("ResourceClaim", None, first)
    world.feed("ResourceClaim", first, theirs)
    assert [] == given_back(world)
    world.devices.claims.adopt("one of its own", first)

    assert not world.devices.use.is_used(D0)
    assert [theirs] == [now for _, now in given_back(world)]
    world.devices.claims.drop_pending("c")
    assert [] == given_back(world)


def test_a_plan_that_takes_no_device_is_told_too() -> None:
    """Whoever shares the claim may allocate it now."""
    world = World()
    plan = at(CLAIM.allocated(a_result("r", str(D0), admin=True)), 1)
    world.feed("ResourceClaim", None, at(CLAIM, 1))
    world.devices.claims.signal("c", plan)
    world.devices.claims.drop_pending("c")

    assert [(plan, at(CLAIM, 1))] == given_back(world)


def test_a_plan_that_goes_on_as_another_claim_is_not_told() -> None:
    """That of a claim which had to be made first (§3.12)."""
    world = World()
    world.devices.claims.signal("temporary", at(HELD.uid(""), 0))
    world.feed("ResourceClaim", None, made := at(CLAIM, 1))
    world.devices.claims.adopt("temporary", made)
    world.devices.claims.drop_pending("temporary")

    assert ([], True) == (given_back(world), world.devices.use.is_exclusive(D0))


@pytest.mark.parametrize(
    ("later", "is_told"),
    [
        pytest.param(None, True, id="it is gone"),
        pytest.param(at(CLAIM, 3), True, id="it has it no more"),
        pytest.param(at(HELD, 3), False, id="it still has it"),
    ],
)
def test_what_a_claim_kept_while_it_could_not_be_read(later: Any, is_told: bool) -> None:
    """Nobody else could get it until now."""
    world = World()
    seen, bad = at(HELD, 1), broken("ResourceClaim", at(HELD, 2))
    world.feed("ResourceClaim", None, seen)
    world.feed("ResourceClaim", seen, bad)
    assert [] == given_back(world)
    world.feed("ResourceClaim", bad, later)

    assert ([(seen, later)] if is_told else []) == given_back(world)


def test_a_claim_to_be_asked_about_again() -> None:
    """To whoever waits for it, it is as if it came; one that is gone is nobody's."""
    world = World()
    world.feed("ResourceClaim", None, claim := at(HELD, 1))
    world.devices.claims.ask_again("default/c")
    world.devices.claims.ask_again("default/gone")

    assert [(None, claim)] == given_back(world)


# -- slices and the rules that taint them ------------------------------------------------------------------------------

N1 = a_slice("n1", "drv", a_device("d0"), a_device("d1"))
N2 = a_slice("n2", "other", a_device("d0"))
RULE = a_taint_rule("rule", "broken")
RULES_ON = DEVICE_GATES_ON | {TAINT_RULES}


def slices_told(heard: list[tuple[Any, ...]]) -> list[tuple[Action, dict[str, list[str]], dict[str, list[str]]]]:
    """Of each event, the taints before and after, by device."""
    return [
        (action, *({d.name: [t.key for t in d.taints] for d in each.spec.devices} if each else {} for each in sides))
        for _, action, *sides, _ in heard
    ]


def test_239_without_rules() -> None:
    """One event each, with the very objects."""
    world = World(RULES_ON)
    first, second = N1.typed(), N1.device(a_device("d2")).typed()

    assert [("ResourceSlice", ADD, None, first, None)] == world.feed("ResourceSlice", None, first)
    assert [("ResourceSlice", CHANGED, first, second, None)] == world.feed("ResourceSlice", first, second)
    assert [("ResourceSlice", DELETE, second, None, None)] == world.feed("ResourceSlice", second, None)


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        pytest.param(RULE, {"n1-drv": ["d0", "d1"], "n2-other": ["d0"]}, id="240 all"),
        pytest.param(
            RULE.none(), {"n1-drv": ["d0", "d1"], "n2-other": ["d0"]}, id="no selector: all, as upstream's code"
        ),
        pytest.param(RULE.driver("drv"), {"n1-drv": ["d0", "d1"]}, id="243 by driver"),
        pytest.param(RULE.pool("n2"), {"n2-other": ["d0"]}, id="243 by pool"),
        pytest.param(RULE.device("d0"), {"n1-drv": ["d0"], "n2-other": ["d0"]}, id="243 by device"),
        pytest.param(RULE.device("d1"), {"n1-drv": ["d1"]}, id="a slice without it is not told of"),
        pytest.param(
            RULE.set({"spec": {"deviceSelector": {"driver": "drv", "pool": "n1", "device": "d1"}}}),
            {"n1-drv": ["d1"]},
            id="244 all criteria together",
        ),
        pytest.param(
            RULE.set({"spec": {"deviceSelector": {"driver": "other", "pool": "n1"}}}), {}, id="one criterion fails"
        ),
    ],
)
def test_a_rule_comes_and_goes(rule: TaintRuleBuilder, told: dict[str, list[str]]) -> None:
    """240, 243, 244, 246: told as the slices that it changes, and as these alone."""
    world = World(RULES_ON)
    for each in (N1, N2):
        world.feed("ResourceSlice", None, each.typed())
    plain = {name: world.taints(name) for name in ("n1-drv", "n2-other")}
    came = world.feed("DeviceTaintRule", None, rule.typed())

    tainted = {name: {d: ["broken"] if d in told.get(name, ()) else [] for d in plain[name]} for name in plain}
    assert [(CHANGED, plain[name], tainted[name]) for name in told] == slices_told(came)
    assert tainted == {name: world.taints(name) for name in plain}

    went = world.feed("DeviceTaintRule", rule.typed(), None)

    assert [(CHANGED, tainted[name], plain[name]) for name in told] == slices_told(went)
    assert plain == {name: world.taints(name) for name in plain}


def test_241_a_rule_that_moved_before_slices_came() -> None:
    """And one that moves afterwards is told for both pools."""
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
    ] == slices_told(world.feed("DeviceTaintRule", second, first))


def test_242_the_drivers_own_taint_stands_first() -> None:
    world = World(RULES_ON)
    world.feed("DeviceTaintRule", None, RULE.typed())
    world.feed("ResourceSlice", None, a_slice("n1", "drv", a_device("d0").taint("own")).typed())

    assert {"d0": ["own", "broken"]} == world.taints("n1-drv")


def test_245_a_slice_grows_and_shrinks_under_a_rule() -> None:
    """Events carry what counts, before and after."""
    world = World(RULES_ON)
    world.feed("DeviceTaintRule", None, RULE.typed())
    small, large = a_slice("n1", "drv", a_device("d0")).typed(), N1.typed()
    one, two = {"d0": ["broken"]}, {"d0": ["broken"], "d1": ["broken"]}

    assert [(ADD, {}, one)] == slices_told(world.feed("ResourceSlice", None, small))
    assert [(CHANGED, one, two)] == slices_told(world.feed("ResourceSlice", small, large))
    assert [(CHANGED, two, one)] == slices_told(world.feed("ResourceSlice", large, small))
    assert [(DELETE, one, {})] == slices_told(world.feed("ResourceSlice", small, None))


@pytest.mark.parametrize(
    ("after", "is_news"),
    [
        pytest.param(RULE.label("a", "b"), False, id="247 a label"),
        pytest.param(RULE.device("d0"), True, id="fewer devices"),
        pytest.param(RULE.driver("drv").pool("n1"), False, id="the same devices in other words"),
        pytest.param(a_taint_rule("rule", "worse"), True, id="another key"),
        pytest.param(a_taint_rule("rule", "broken", "very"), True, id="another value"),
        pytest.param(a_taint_rule("rule", "broken", effect="NoExecute"), True, id="another effect"),
        pytest.param(RULE.since("2026-01-01T00:00:00Z"), True, id="another time"),
    ],
)
def test_a_rule_changes(after: TaintRuleBuilder, is_news: bool) -> None:
    """247: no event unless some device's taints differ."""
    world = World(RULES_ON)
    world.feed("ResourceSlice", None, N1.typed())
    world.feed("DeviceTaintRule", None, RULE.typed())

    assert is_news == bool(world.feed("DeviceTaintRule", RULE.typed(), after.typed()))


def test_248_while_the_gate_is_off() -> None:
    """Rules change nothing, whichever comes first."""
    world = World()
    world.feed("DeviceTaintRule", None, RULE.typed())
    world.feed("ResourceSlice", None, N1.typed())

    assert [] == world.feed("DeviceTaintRule", RULE.typed(), RULE.driver("drv").typed())
    assert {"d0": [], "d1": []} == world.taints("n1-drv")


def test_a_rule_that_cannot_be_read_any_more() -> None:
    """It counts as gone until it can be read again."""
    world = World(RULES_ON)
    world.feed("ResourceSlice", None, N2.typed())
    world.feed("DeviceTaintRule", None, RULE.typed())
    bad = broken("DeviceTaintRule", RULE.typed())

    assert [(CHANGED, {"d0": ["broken"]}, {"d0": []})] == slices_told(world.feed("DeviceTaintRule", RULE.typed(), bad))
    assert [(CHANGED, {"d0": []}, {"d0": ["broken"]})] == slices_told(world.feed("DeviceTaintRule", bad, RULE.typed()))


def test_a_slice_that_cannot_be_read_any_more() -> None:
    """Its taints go with it and come back with it."""
    world = World(RULES_ON)
    world.feed("DeviceTaintRule", None, RULE.typed())
    each: SliceBuilder = N2
    world.feed("ResourceSlice", None, each.typed())
    bad = broken("ResourceSlice", each.typed())

    assert [(DELETE, {"d0": ["broken"]}, {})] == slices_told(world.feed("ResourceSlice", each.typed(), bad))
    assert [(ADD, {}, {"d0": ["broken"]})] == slices_told(world.feed("ResourceSlice", bad, each.typed()))
