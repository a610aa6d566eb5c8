"""Which events help a pod whose claims found no node: docs/spec/volumes.md §7.1, rows H1–H9.

Where upstream wakes every pod, ours compares the event with the claims of the pod. The table of hints (tests/unit/hints) has
two rows for each event, and the law of wake-ups (tests/unit/wakeups) what must wake a pod; here are the rows between them.
"""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.podinfo import pod_info
from scheduler.core.cluster_events import ASSIGNED_POD_DELETE, Action, ClusterEvent, Resource
from scheduler.eventhandlers.storage import CAPACITY_FREED
from scheduler.framework.interface import Hint
from simulator.builders.core import pod
from tests.support.volumebuilders import a_capacity, a_claim, a_class, a_csi_driver, a_pv
from tests.unit.plugins.ask import hinted
from tests.unit.plugins.volumebinding.world import BND, D1, PB, U1, VolumeWorld, using

Q, S = Hint.QUEUE, Hint.SKIP
RESOURCES = {
    "claim": Resource.PERSISTENT_VOLUME_CLAIM,
    "volume": Resource.PERSISTENT_VOLUME,
    "class": Resource.STORAGE_CLASS,
    "csinode": Resource.CSI_NODE,
    "driver": Resource.CSI_DRIVER,
    "capacity": Resource.CSI_STORAGE_CAPACITY,
}


def answer(kind: str, info: Any, old: Any, new: Any) -> Hint | None:
    """Return the hint for a pod in this cluster, after the event shows in the caches."""
    world = VolumeWorld(U1, D1, BND, PB)
    if new is not None:
        world.show(new)
    action = Action.ADD if old is None else Action.DELETE if new is None else Action.UPDATE_OTHER
    sides = [None if side is None else side.typed() for side in (old, new)]
    return hinted(world.plugin, ClusterEvent(RESOURCES[kind], action), info, old=sides[0], new=sides[1])


@pytest.mark.parametrize(
    ("info", "claim", "expected"),
    [
        pytest.param(using("p", "u1"), a_claim("u1", ns="other"), S, id="H3 its namesake elsewhere"),
        pytest.param(using("p", ephemeral=["v"]), a_claim("p-w"), S, id="H3 of another ephemeral volume"),
        pytest.param(using("p", ephemeral=["v"]), a_claim("p-v"), Q, id="H3 of its ephemeral volume"),
    ],
)
@pytest.mark.parametrize("is_new", [True, False], ids=["comes", "changes"])
def test_h3_claims(info: Any, claim: Any, expected: Hint, is_new: bool) -> None:
    """Any change of a claim of the pod; upstream says the same."""
    assert expected is answer("claim", info, None if is_new else claim.label("x", "y"), claim)


def test_h4_no_topologies_in_other_words() -> None:
    """An empty list is as much as none."""
    plain = a_class("W")

    assert S is answer("class", using("p", "u1"), plain, plain.set({"allowedTopologies": []}))


def cap(room: str | None = None, largest: str | None = None, *, of: str = "D") -> Any:
    made = a_capacity("o", of, room).everywhere()
    return made if largest is None else made.maximum(largest)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(cap("1Gi"), cap("1024Mi"), S, id="H6 as much in other words"),
        pytest.param(cap("50Gi", "50Gi"), cap("50Gi"), S, id="H6 volumes were as large already"),
        pytest.param(cap("50Gi"), cap(), S, id="H6 the object has no amounts any more"),
        pytest.param(cap("100Gi", "100Gi"), cap("100Gi", "90Gi"), S, id="H6 volumes get smaller"),
    ],
)
def test_h5_h6_capacity(old: Any, new: Any, expected: Hint | None) -> None:
    """The capacity of a class of the pod's claims grows."""
    assert expected is answer("capacity", using("p", "d1"), old, new)


def test_capacity_does_not_matter_to_bound_claims() -> None:
    """Upstream wakes the pod in vain: an existing volume needs no capacity."""
    assert S is answer("capacity", using("p", "bnd"), None, cap("1Gi", of="W"))


P = a_csi_driver("P")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(P.tracks_capacity(False), P.tracks_capacity(False).label("x", "y"), id="H7 no and no"),
        pytest.param(P.tracks_capacity(), P.tracks_capacity().label("x", "y"), id="H7 yes and yes"),
        pytest.param(P, P.tracks_capacity(), id="it begins"),
    ],
)
def test_h7_drivers(old: Any, new: Any) -> None:
    """Only a driver that stops tracking capacity refuses fewer pods."""
    inline = pod_info(pod("p").uid("p").volume("v", csi={"driver": "P"}).pvc("d1").typed())

    assert S is answer("driver", inline, old, new)


FREE = a_pv("v", "1G", "W")


@pytest.mark.parametrize(("info", "old", "new", "expected"), [
    pytest.param(using("p", "u1"), FREE, FREE.claimed_by("x", uid="x"), S, id="another claim takes it"),
    pytest.param(using("p", "u1"), FREE.claimed_by("u1"), FREE.claimed_by("x"), Q,
        id="it is not reserved for the claim any more, which may match another volume"),
    pytest.param(using("p", "u1"), FREE.claimed_by("u1"), FREE.phase("Released"), Q,
        id="it is reserved for no claim, and not free"),
    pytest.param(using("p", "bnd"), PB, PB.label("k", "v"), Q, id="the claim's own changes"),
    pytest.param(using("p", "bnd"), None, FREE.legacy_class("X"), S, id="a free one, and the claim is bound"),
    pytest.param(using("p", "bnd"), PB.claimed_by("x"), None, S, id="the claim's own goes"),
])  # fmt: skip
def test_volumes(info: Any, old: Any, new: Any, expected: Hint | None) -> None:
    """Upstream wakes every pod for every volume. A volume that is not free, not bound to a claim of the pod and not reserved for it helps no pod."""
    assert expected is answer("volume", info, old, new)


def test_capacity_in_flight_does_not_matter_to_bound_claims() -> None:
    """B-1 When it is given back, the class alone says so; no object was written."""
    assert S is hinted(VolumeWorld(D1, BND, PB).plugin, CAPACITY_FREED, using("p", "bnd"), new="W")


@pytest.mark.parametrize(
    ("waits", "goes", "expected"),
    [
        pytest.param(["u1"], ["bnd"], S, id="with a volume that is its claim's"),
        pytest.param(["bnd"], ["u1"], Q, id="on its way to a volume of the class that the pod's own is of"),
    ],
)
def test_pods_that_go(waits: list[str], goes: list[str], expected: Hint) -> None:
    """What they had taken and not written is free again; upstream does not look."""
    world = VolumeWorld(U1, a_claim("u2", "1G", "W"), D1, BND, PB)

    assert expected is hinted(world.plugin, ASSIGNED_POD_DELETE, using("p", *waits), old=using("q", *goes))


@pytest.mark.parametrize("kind", RESOURCES)
def test_h1_objects_of_another_kind(kind: str) -> None:
    """H1 A hint that is given something else raises, and the queue takes that for a yes (core §1.10)."""
    world = VolumeWorld(U1)
    odd = object()
    wanting = [r for r in world.plugin.events_to_register() if r.event.resource is RESOURCES[kind]]

    for registration in wanting:
        assert registration.hint is not None
        with pytest.raises(AttributeError):
            registration.hint(using("p", "u1"), odd, odd)
