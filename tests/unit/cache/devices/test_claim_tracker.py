"""Claims as decisions see them, and devices in use: docs/spec/dra.md §1.2–§1.4, §2.4, §3.12, scenarios 249–261."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings, strategies as st

from scheduler.api.quantity import parse
from scheduler.api.resource_v1 import DeviceId, ResourceClaim
from scheduler.cache.assume_cache import NotKnown, OutOfSync
from scheduler.cache.devices.allocation_state import AllocationState
from scheduler.cache.devices.claim_tracker import ClaimTracker
from simulator.builders.claims import ClaimBuilder, a_claim, a_result
from simulator.builders.core import Manifest
from tests.examples import examples
from tests.unit.objects import pod

KEY = "default/c"
A, B = DeviceId("drv", "p", "a"), DeviceId("drv", "p", "b")
Changes: TypeAlias = list[tuple[str | None, str | None]]


class World:
    """A cache of claims over what is in use."""

    def __init__(self, *, shares_count: bool = True) -> None:
        self.use = AllocationState(shares_count=shares_count)
        self.claims = ClaimTracker(self.use)

    def changes_since(self) -> Changes:
        """The versions before and after, of each change since the last time."""
        changes, self.claims.changes = self.claims.changes, []
        return [(_version(change.before), _version(change.now)) for change in changes]

    def state(self) -> tuple[str | None, str | None]:
        """The version that decisions see, and the one that the watch has shown."""
        return _version(self.claims.get(KEY)), _version(self.claims.get_api(KEY))

    def used(self) -> set[str]:
        """Return the devices that are allocated as a whole."""
        return {device.device for device in self.use.devices()}


def _version(seen: ResourceClaim | None) -> str | None:
    return None if seen is None else seen.metadata.resource_version


def claim(version: int | str, *devices: DeviceId, name: str = "c", uid: str = "") -> ResourceClaim:
    """With these devices, or not allocated."""
    built = a_claim(name).uid(uid or f"{name}-uid").resource_version(str(version))
    results = [a_result("r", str(device)) for device in devices]
    return (built.allocated(*results) if devices else built).typed()


def results(*given: Manifest, version: int = 1) -> ResourceClaim:
    return a_claim("c").uid("c-uid").resource_version(str(version)).allocated(*given).typed()


# -- what the watch shows and what we assume (§1.2) --------------------------------------------------------------------


def test_249_older_than_what_we_assumed() -> None:
    world = World()
    world.claims.set(claim(1))
    world.claims.assume(claim(5, A))
    for version in (4, 2):
        world.claims.set(claim(version))

    assert ("5", "1") == world.state()
    assert [(None, "1"), ("1", "5")] == world.changes_since()


def test_versions_are_numbers() -> None:
    """10 is newer than 9."""
    world = World()
    world.claims.set(claim(9))
    world.claims.set(claim(10))
    world.claims.set(claim(9))

    assert ("10", "10") == world.state()


def test_250_an_assumption_that_is_older_than_what_is_known() -> None:
    world = World()
    world.claims.set(claim(5))
    world.changes_since()
    with pytest.raises(OutOfSync, match=r'"default/c" is out of sync \(stored: 5, assume: 4\)'):
        world.claims.assume(claim(4, A))

    assert ([], set()) == (world.changes_since(), world.used())
    world.claims.assume(claim(5, A))
    assert ([("5", "5")], {"a"}) == (world.changes_since(), world.used())


def test_an_assumption_about_a_namesake() -> None:
    world = World()
    world.claims.set(claim(5, uid="now"))
    with pytest.raises(OutOfSync):
        world.claims.assume(claim(9, A, uid="before"))


def test_251_what_is_not_known() -> None:
    """Neither needed nor assumed, in upstream's words; and nothing can be restored."""
    world = World()
    said = 'could not find ResourceClaim "default/c"'
    with pytest.raises(NotKnown, match=said):
        world.claims.need(KEY)
    with pytest.raises(NotKnown, match=said):
        world.claims.assume(claim(1))
    world.claims.restore(KEY)

    assert [] == world.changes_since()


def test_252_restore() -> None:
    world = World()
    world.claims.set(claim(1))
    world.claims.assume(claim(5, A))
    world.changes_since()
    for _ in range(2):
        world.claims.restore(KEY)

    assert [("5", "1")] == world.changes_since()
    assert ("1", "1") == world.state()
    assert set() == world.used()


def test_a_claim_that_comes_back_under_its_name() -> None:
    world = World()
    world.claims.set(claim(5, A, uid="before"))
    world.claims.set(claim(2, B, uid="now"))

    assert {"b"} == world.used()
    assert ["now"] == list(world.use.holders(B))


# -- in flight (§1.4) --------------------------------------------------------------------------------------------------


def test_253_another_claim_was_allocated_first() -> None:
    world = World()
    world.claims.set(claim(1, A))
    world.claims.signal("c-uid", claim(1, B))

    assert world.claims.pending("c-uid") is None
    assert {"a"} == world.used()


def test_254_a_claim_that_is_not_known() -> None:
    world = World()
    with pytest.raises(NotKnown):
        world.claims.signal("c-uid", claim(1, A))
    world.claims.signal("to-be-made", claim("", B, name="<extended-resources>", uid="another"))

    assert {"b"} == world.used()
    assert world.claims.drop_pending("to-be-made")
    assert set() == world.used()


def test_255_two_sharers() -> None:
    world = World()
    world.claims.set(claim(1))
    for _ in range(2):
        world.claims.signal("c-uid", claim(1, A))

    assert not world.claims.drop_pending("c-uid")
    assert claim(1, A).status.allocation == world.claims.pending("c-uid")
    assert {"a"} == world.used()
    assert world.claims.drop_pending("c-uid")
    assert (None, set()) == (world.claims.pending("c-uid"), world.used())
    assert not world.claims.drop_pending("c-uid")

    for _ in range(2):
        world.claims.signal("c-uid", claim(1, A))
    assert world.claims.drop_pending("c-uid", force=True)
    assert [] == list(world.claims.in_flight())
    assert set() == world.used()


def test_256_allocated_and_in_flight() -> None:
    world = World()
    world.claims.set(claim(1))
    world.claims.set(claim(1, B, name="d"))
    world.claims.signal("c-uid", claim(1, A))

    assert {"a", "b"} == world.used()
    assert [KEY] == [each.key for each in world.claims.in_flight()]
    assert (["c-uid"], ["d-uid"]) == (list(world.use.holders(A)), list(world.use.holders(B)))


@pytest.mark.parametrize(
    "way",
    [("assume", "drop", "watch"), ("assume", "watch", "drop"), ("watch", "drop"), ("watch", "drop", "assume")],
    ids=" then ".join,
)
def test_257_while_a_claim_moves_from_in_flight_to_the_cache(way: tuple[str, ...]) -> None:
    world = World()
    world.claims.set(claim(1))
    world.claims.signal("c-uid", claim(1, A))
    for act in way:
        _step(world, act, "c", 2, A)
        assert ({"a"}, ["c-uid"]) == (world.used(), list(world.use.holders(A)))

    world.claims.set(claim(3))

    assert set() == world.used()


# -- what is in use (§1.3) ---------------------------------------------------------------------------------------------


def test_259_admin_access_uses_nothing() -> None:
    world = World()
    world.claims.set(results(a_result("r", str(A), admin=True), a_result("s", str(B))))

    assert ({"b"}, False) == (world.used(), world.use.is_used(A))
    world.claims.remove(KEY)
    assert set() == world.used()


def test_260_shares_of_a_device() -> None:
    world = World()
    first = a_result("r", str(A), share="1", consumed={"memory": "1Gi", "slots": "1"})
    world.claims.set(results(first, a_result("s", str(A), share="2", consumed={"memory": "2Gi"})))

    assert (set(), 1, True) == (world.used(), world.use.counts()["shared"], world.use.is_used(A))
    assert ["1", "2"] == [share.share_id for share in world.use.shares(A)]
    assert {"memory": parse("3Gi").nano, "slots": parse("1").nano} == dict(world.use.consumed(A))

    world.claims.set(results(first, version=2))
    assert {"memory": parse("1Gi").nano, "slots": parse("1").nano} == dict(world.use.consumed(A))

    world.claims.remove(KEY)
    assert ({}, (), False) == (dict(world.use.consumed(A)), world.use.shares(A), world.use.is_used(A))


def test_260_without_consumable_capacity_a_share_is_the_whole_device() -> None:
    world = World(shares_count=False)
    world.claims.set(results(a_result("r", str(A), share="1", consumed={"memory": "1Gi"})))

    assert ({"a"}, 0, ()) == (world.used(), world.use.counts()["shared"], world.use.shares(A))
    world.claims.remove(KEY)
    assert set() == world.used()


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(lambda claims: claims.set(claim(2)), id="deallocated"),
        pytest.param(lambda claims: claims.remove(KEY), id="deleted"),
    ],
)
def test_261_deallocated_or_deleted(end: Callable[[ClaimTracker], None]) -> None:
    world = World()
    world.claims.set(claim(1, A))
    world.use.take_changed()
    revision = world.use.revision
    end(world.claims)

    assert set() == world.used()
    assert [A] == list(world.use.take_changed())
    assert world.use.revision > revision


# -- any history -------------------------------------------------------------------------------------------------------

NAMES, DEVICES = "cd", (A, B)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["watch", "gone", "assume", "restore", "signal", "drop", "force"]),
        st.sampled_from(NAMES),
        st.integers(1, 6),
        st.sampled_from([None, *DEVICES]),
    ),
    max_size=30,
)


def _step(world: World, act: str, name: str, version: int, device: DeviceId | None) -> None:
    claims, key, uid = world.claims, f"default/{name}", f"{name}-uid"
    given_ = claim(version, *([device] if device else []), name=name)
    match act:
        case "watch":
            claims.set(given_)
        case "gone":
            claims.remove(key)
        case "assume":
            claims.assume(given_)
        case "restore":
            claims.restore(key)
        case "signal":
            claims.signal(uid, given_)
        case "drop" | "force":
            claims.drop_pending(uid, force=act == "force")


@given(STEPS)
@settings(max_examples=examples(300), deadline=None)
def test_what_is_in_use_is_what_claims_have_or_are_about_to_get(
    steps: list[tuple[str, str, int, DeviceId | None]],
) -> None:
    world = World()
    seen: dict[str, ResourceClaim | None] = dict.fromkeys(f"default/{name}" for name in NAMES)
    for step in steps:
        try:
            _step(world, *step)
        except (NotKnown, OutOfSync):
            assert not world.claims.changes
        for before, now in world.claims.changes:
            key = (now or before).key  # type: ignore[union-attr]
            assert before is seen[key]
            seen[key] = now
        world.claims.changes.clear()
        expected: dict[DeviceId, set[str]] = {}
        for name in NAMES:
            latest = world.claims.get(f"default/{name}")
            assert latest is seen[f"default/{name}"]
            has = latest.status.allocation if latest is not None else None
            counts = has or world.claims.pending(f"{name}-uid")
            for result in counts.devices.results if counts else ():
                expected.setdefault(result.id, set()).add(f"{name}-uid")
        assert expected == {device: set(world.use.holders(device)) for device in world.use.devices()}


D0 = DeviceId("drv", "n1", "d0")


def made(name: str = "x", uid: str = "", version: int = 1) -> ClaimBuilder:
    return a_claim(name).uid(uid or name).resource_version(str(version)).for_extended_resources()


OWN = made().owned_by("p", "p")


_NAMES = st.sampled_from("xyz")
_STEPS = st.lists(
    st.tuples(st.sampled_from(["set", "set", "remove"]), _NAMES, st.sampled_from(["p", "q", ""]), st.booleans())
)


@given(_STEPS)
def test_the_index_is_what_a_look_at_all_claims_would_find(steps: list[tuple[str, str, str, bool]]) -> None:
    claims = ClaimTracker(AllocationState())
    for version, (what, name, owner, is_marked) in enumerate(steps, start=1):
        if what == "remove":
            claims.remove(f"default/{name}")
            continue
        claim: Any = a_claim(name).uid(name).resource_version(str(version))
        claim = claim.for_extended_resources() if is_marked else claim
        claims.set((claim.owned_by(owner, owner) if owner else claim).typed())
    for name in ("p", "q"):
        all_of_it = [
            each.key
            for each in claims
            if each.metadata.annotations and any(owner.uid == name for owner in each.metadata.owner_references)
        ]
        found = claims.made_for(pod(name))
        assert min(all_of_it, default=None) == (None if found is None else found.key)


# -- in flight before it is made ---------------------------------------------------------------------------------------


class Uses(AllocationState):
    """Checks at every change that the device is in use, once it was."""

    def __init__(self) -> None:
        super().__init__()
        self.free_again = 0

    def hold(self, claim_uid: str, allocation: Any) -> None:
        was_used = self.is_used(D0)
        super().hold(claim_uid, allocation)
        self.free_again += was_used and not self.is_used(D0)


def test_its_devices_are_in_use_throughout() -> None:
    use = Uses()
    claims = ClaimTracker(use)
    in_memory = a_claim("<extended-resources>").allocated(a_result("r", str(D0))).typed()
    claims.signal("temporary", in_memory)
    assert ["temporary"] == list(use.holders(D0))

    claims.adopt("temporary", made().owned_by("p", "p").typed())
    assert ["x"] == list(use.holders(D0))
    assert claims.pending("temporary") is None
    assert claims.pending("x") is not None

    claims.set(made(version=1).owned_by("p", "p").typed())
    assert ["x"] == list(use.holders(D0))
    claims.assume(made(version=2).owned_by("p", "p").allocated(a_result("r", str(D0))).typed())
    assert claims.drop_pending("x")
    assert (["x"], 0) == (list(use.holders(D0)), use.free_again)

    claims.remove("default/x")
    assert not use.is_used(D0)


def test_nothing_is_adopted_that_is_not_in_flight() -> None:
    use = Uses()
    claims = ClaimTracker(use)
    claims.adopt("temporary", OWN.typed())

    assert [] == list(claims.in_flight())
    assert not use.is_used(D0)


def test_it_is_dropped_before_the_watch_shows_it() -> None:
    use = Uses()
    claims = ClaimTracker(use)
    claims.signal("temporary", a_claim("<extended-resources>").allocated(a_result("r", str(D0))).typed())
    claims.adopt("temporary", OWN.typed())

    assert claims.drop_pending("x")
    assert not use.is_used(D0)
