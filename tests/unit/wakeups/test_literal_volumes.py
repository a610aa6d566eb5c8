"""The literal Filter says what docs/spec/volumes.md §11.4 to §11.6 say, or laws that trust it prove nothing."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.storage_v1 import SELECTED_NODE
from tests.support.volumebuilders import a_capacity, a_claim, a_class, a_csi_driver, a_pv
from tests.unit.wakeups.literal_volumes import (
    BIND_CONFLICT,
    NODE_CONFLICT,
    NOT_ENOUGH_SPACE,
    NOT_EXISTING,
    Failure,
    Outcome,
    World,
    find,
    matching_volume,
)

N1, N2 = {"k": "n1"}, {"k": "n2"}
CLASSES = [
    a_class("W"),
    a_class("D", "P").allowed("k", "n1", "ref"),
    a_class("T", "P").allowed("k", "ref"),
    a_class("E", ""),
]
A, B, C = (
    a_pv(n, size, "W").where("k", k) for n, size, k in (("a", "5G", "n1"), ("b", "10G", "n1"), ("c", "1G", "n2"))
)
PB = a_pv("pb", "1G", "W").where("k", "n1").claimed_by("bnd").phase("Bound")


def asks(name: str, size: str, storage_class: str) -> Any:
    return a_claim(name, size, storage_class).uid(name)


U1, U2, NP = asks("u1", "1G", "W"), asks("u2", "5G", "W"), asks("np", "1Gi", "W")
D1, D2, TM = asks("d1", "1Gi", "D"), asks("d2", "1Gi", "D"), asks("tm", "1Gi", "T")
BND, SEL = asks("bnd", "1G", "W").bound_to("pb"), asks("sel", "1Gi", "D").selected("n1")


def world(*volumes: Any, capacities: Any = None) -> World:
    """`capacities`: None if the driver says nothing of room."""
    driver = a_csi_driver("P").tracks_capacity(capacities is not None).typed()
    return World(
        volumes={volume.typed().key: volume.typed() for volume in volumes},
        classes={each.typed().key: each.typed() for each in CLASSES},
        drivers={"P": driver},
        capacities=[each.typed() for each in capacities or ()],
    )


def asked(known: World, claims: list[Any], on: str = "n1") -> Outcome:
    seen = [claim.typed() for claim in claims]
    bound = [claim for claim in seen if claim.is_fully_bound]
    delayed = [claim for claim in seen if not claim.is_fully_bound]
    return find(known, bound, delayed, node_name=on, labels={"k": on})


@pytest.mark.parametrize(
    ("volumes", "claims", "reasons", "static", "dynamic"),
    [
        pytest.param([PB], [BND], [], "", "", id="F1 bound, and its volume is here"),
        pytest.param([], [BND], [NOT_EXISTING], "", "", id="F2 bound to nothing"),
        pytest.param([C, A, B], [U1], [], "u1:a", "", id="F3 the smallest that is here"),
        pytest.param([C], [U1], [BIND_CONFLICT], "", "", id="F4 only elsewhere"),
        pytest.param([A, B], [U1, U2], [], "u1:a u2:b", "", id="F5 the small one first"),
        pytest.param([A, B], [U2, U1], [], "u1:a u2:b", "", id="F6 in whatever order"),
        pytest.param([A], [U1, U2], [BIND_CONFLICT], "", "", id="F7 one for two"),
        pytest.param([PB, A], [U1, BND], [], "u1:a", "", id="F8 one bound, one not"),
        pytest.param([PB, C], [U1, BND], [BIND_CONFLICT], "", "", id="F9 the other finds nothing"),
        pytest.param([PB.set({"spec": {"nodeAffinity": None}}).where("k", "n2")], [BND], [NODE_CONFLICT], "", "",
                     id="F10 bound elsewhere"),
        pytest.param([PB.set({"spec": {"nodeAffinity": None}}).where("k", "n2")], [BND, U1],
                     [NODE_CONFLICT, BIND_CONFLICT], "", "", id="F11 both, in this order"),
        pytest.param([], [BND, U1], [BIND_CONFLICT, NOT_EXISTING], "", "", id="not existing comes last"),
        pytest.param([], [D1], [], "", "d1", id="F12 provisioned"),
        pytest.param([A], [U1, D1], [], "u1:a", "d1", id="F13 one of each"),
        pytest.param([PB], [BND, D1], [], "", "d1", id="F14 bound and provisioned"),
        pytest.param([PB, a_pv("x", "1Gi", "D")], [BND, SEL], [], "", "sel", id="F15 selected: no volume is looked for"),
        pytest.param([], [SEL.selected("n2"), NP], [BIND_CONFLICT], "", "", id="F16 selected elsewhere"),
        pytest.param([A], [U1.annotation(SELECTED_NODE, "")], [BIND_CONFLICT], "", "", id="F17 selected nothing"),
        pytest.param([], [NP], [BIND_CONFLICT], "", "", id="F18 no provisioner"),
        pytest.param([], [asks("e", "1Gi", "E")], [BIND_CONFLICT], "", "", id="F18 an empty one"),
        pytest.param([], [TM], [BIND_CONFLICT], "", "", id="F19 not in its topology"),
        pytest.param([], [D1, SEL], [], "", "sel d1", id="those with a node come first"),
    ],
)  # fmt: skip
def test_filter(volumes: list[Any], claims: list[Any], reasons: list[str], static: str, dynamic: str) -> None:
    out = asked(world(*volumes), claims)

    assert tuple(reasons) == out.reasons
    assert static == " ".join(f"{claim.removeprefix('default/')}:{volume}" for claim, volume in out.static)
    assert dynamic == " ".join(claim.removeprefix("default/") for claim, _ in out.dynamic)


@pytest.mark.parametrize(
    ("claim", "text"),
    [
        pytest.param(asks("c", "1Gi", "gone"), 'failed to find storage class "gone"', id="F20 the class vanished"),
        pytest.param(asks("c", "1Gi", ""), 'no class for claim "default/c"', id="no class"),
        pytest.param(
            asks("c", "1Gi", "W").matching_expression("k", "Near"),
            "error creating internal label selector for claim: default/c",
            id="M19 a wrong selector",
        ),
    ],
)
def test_errors(claim: Any, text: str) -> None:
    with pytest.raises(Failure) as failed:
        asked(world(), [claim])

    assert text == str(failed.value)


MINE = a_pv("m", "1G", "W").where("k", "n1").claimed_by("u1")


@pytest.mark.parametrize(
    ("volumes", "labels", "expected"),
    [
        pytest.param([A, MINE], N1, "m", id="M8 meant for it, by name"),
        pytest.param([A.set({"spec": {"nodeAffinity": None}}), MINE], N2, None, id="M9 and out of reach: no other"),
        pytest.param([A, MINE.claimed_by("u1", uid="other")], N1, "a", id="M10 of another uid"),
        pytest.param([A, MINE.claimed_by("u2")], N1, "a", id="M11 meant for another"),
        pytest.param([A, MINE.phase("Released").modes("ReadOnlyMany")], N1, "m", id="M12 whatever its phase and modes"),
        pytest.param([A, a_pv("m", "1M", "W").claimed_by("u1")], N1, "a", id="M13 but not too small"),
        pytest.param([A, MINE.volume_mode("Block")], N1, "a", id="M13 nor of another mode"),
        pytest.param([A, MINE.deleting()], N1, "a", id="M13 nor on its way out"),
        pytest.param([A, MINE.attributes_class("g")], N1, "a", id="M14 nor of another VAC"),
        pytest.param([B, A], N1, "a", id="the smallest"),
        pytest.param([A.legacy_class("V"), B], N1, "b", id="of its class"),
        pytest.param([A.phase("Bound"), B], N1, "b", id="M7 and available"),
    ],
)
def test_matching(volumes: list[Any], labels: dict[str, str], expected: str | None) -> None:
    found = matching_volume(U1.typed(), [volume.typed() for volume in volumes], labels)

    assert expected == (found.key if found is not None else None)


ROOM = a_capacity("o", "D", "1Gi").everywhere()


@pytest.mark.parametrize(
    ("capacities", "claims", "reasons"),
    [
        pytest.param([ROOM], [D1], [], id="K1 room"),
        pytest.param([], [D1], [NOT_ENOUGH_SPACE], id="K3 no object"),
        pytest.param([a_capacity("o", "D", "1Gi").where("k", "n2")], [D1], [NOT_ENOUGH_SPACE], id="K4 elsewhere"),
        pytest.param([a_capacity("o", "T", "1Gi").everywhere()], [D1], [NOT_ENOUGH_SPACE], id="K5 another class"),
        pytest.param([a_capacity("o", "D", "1Gi")], [D1], [NOT_ENOUGH_SPACE], id="K10 nowhere"),
        pytest.param([ROOM.maximum("1Mi")], [D1], [NOT_ENOUGH_SPACE], id="K7 the maximum"),
        pytest.param(None, [D1], [], id="K12 the driver says nothing of room"),
        pytest.param([], [D1.request(None)], [], id="K13 nothing asked for"),
        pytest.param([ROOM], [D1, D2], [], id="K15 each alone"),
        pytest.param([], [U1, D1], [NOT_ENOUGH_SPACE], id="no space clears what was not matched before"),
        pytest.param([], [D1, U1], [NOT_ENOUGH_SPACE], id="the first in order of size decides"),
    ],
)
def test_capacity(capacities: Any, claims: list[Any], reasons: list[str]) -> None:
    claims = [claim.set({"spec": {"storageClassName": "D"}}) if claim is U1 else claim for claim in claims]

    assert tuple(reasons) == asked(world(capacities=capacities), claims).reasons
