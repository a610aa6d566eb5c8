"""Claims that a scheduler makes for a pod's extended resources, as the cache keeps them: docs/spec/dra.md §2.4, §3.12."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from scheduler.api.resource_v1 import DeviceId
from scheduler.cache.devices.allocation_state import AllocationState
from scheduler.cache.devices.claim_tracker import ClaimTracker
from simulator.builders.claims import ClaimBuilder, a_claim, a_result
from tests.unit.objects import pod

POD = pod("p")
D0 = DeviceId("drv", "n1", "d0")


def made(name: str = "x", uid: str = "", version: int = 1) -> ClaimBuilder:
    return a_claim(name).uid(uid or name).resource_version(str(version)).for_extended_resources()


OWN = made().owned_by("p", "p")


@pytest.mark.parametrize(
    ("claim", "is_found"),
    [
        pytest.param(OWN, True, id="made for it"),
        pytest.param(made(), False, id="of nobody"),
        pytest.param(made().owned_by("p", "p", controller=False), False, id="not its controller"),
        pytest.param(made().owned_by("p", "q"), False, id="of a namesake before it"),
        pytest.param(made().owned_by("q", "p"), False, id="of another name"),
        pytest.param(a_claim("x").uid("x").resource_version("1").owned_by("p", "p"), False, id="from a template"),
        pytest.param(
            made().annotation("resource.kubernetes.io/extended-resource-claim", "false").owned_by("p", "p"),
            False,
            id="it says that it is not",
        ),
        pytest.param(
            a_claim("x", ns="other").uid("x").resource_version("1").for_extended_resources().owned_by("p", "p"),
            False,
            id="in another namespace",
        ),
        pytest.param(made().owned_by("q", "q", controller=False).owned_by("p", "p"), True, id="beside another owner"),
    ],
)
def test_found_by_annotation_and_controller(claim: ClaimBuilder, is_found: bool) -> None:
    claims = ClaimTracker(AllocationState())
    claims.set(claim.typed())

    found = claims.made_for(POD)
    assert is_found is (found is not None)
    assert found is None or found.key == "default/x"


def test_it_follows_what_becomes_of_the_claim() -> None:
    """The newest is answered; another that is there, once the first is gone."""
    claims = ClaimTracker(AllocationState())
    claims.set(made("b", version=2).owned_by("p", "p").typed())
    claims.set(OWN.typed())
    assert claims.made_for(POD) == claims.get("default/b")

    claims.remove("default/b")
    claims.set(OWN.resource_version("7").allocated(a_result("r", str(D0))).typed())
    found = claims.made_for(POD)
    assert found is not None
    assert ("7", True) == (found.metadata.resource_version, found.is_allocated)

    claims.set(
        made()
        .owned_by("p", "p")
        .annotation("resource.kubernetes.io/extended-resource-claim", "no")
        .resource_version("8")
        .typed()
    )
    assert claims.made_for(POD) is None


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
    """Under a uid of its own, as the claim that was made, as what the watch shows: never in between."""
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
    """The attempt has ended meanwhile."""
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
