"""Pods with claims for devices on a real control plane: where they go, and what they get (docs/spec/dra.md §2–§4).

Every row is asked of kube-scheduler too, at the same time in a world of its own: what it answers is what is expected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from simulator.builders.claims import a_claim, a_claim_template, a_toleration, an_option
from simulator.builders.core import Builder
from simulator.builders.devices import DeviceBuilder, a_device
from tests.e2e.devices import DRIVER, DeviceWorld, gpus, is_protected, on, results_of, users_of
from tests.e2e.sandbox import together

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

CANNOT: Final = "cannot allocate all claims"
SHARED: Final = a_device("a").shared().cap("memory", "10Gi")
HALF: Final = {"memory": "4Gi"}
HALVES: Final = f"device.attributes['{DRIVER}'].part == 'half'"
WHOLES: Final = f"device.attributes['{DRIVER}'].part == 'whole'"


@dataclass(frozen=True)
class Row:
    """What is there on the nodes n1 and n2, the pod's claims, and where it goes with which devices or what it is told."""

    things: Sequence[Builder[Any]]
    claims: Sequence[str] = ("c",)
    templates: Sequence[str] = ()
    node: str = ""
    says: str = ""
    reason: str = "Unschedulable"
    pin: str = ""
    """A node that the pod insists on."""
    gets: dict[str, Sequence[str]] = field(default_factory=dict)
    """Claim or template → the devices it has in the end, in any order, each with its request: `r: a`."""


GPU: Final = gpus()
LIST: Final = a_claim("c").first_available(
    "r", an_option("large", "gpu", cel=WHOLES), an_option("small", "gpu", cel=HALVES)
)


def a_part(name: str, part: str, used: str) -> DeviceBuilder:
    """A whole GPU or a half of one, which cannot be had both."""
    return a_device(name).attr("part", part).consumes("gpu-0", {"slices": used})


def numa(name: str, node: int) -> DeviceBuilder:
    return a_device(name).attr("numa", node)


PARTED: Final = (
    on("n1").named("counters").counters("gpu-0", {"slices": "8"}).of(2),
    on("n1", a_part("whole", "whole", "8"), a_part("h1", "half", "4"), a_part("h2", "half", "4")).of(2),
)
EXISTS: Final = a_device("a").attr("healthy", value=True).attr("exists", value=True)
ONLY_IF_EXISTS: Final = a_claim_template("t").request("r", "gpu", cel=f"device.attributes['{DRIVER}'].exists")
"""As in upstream's own test "keeps pod pending because of CEL runtime errors"."""
TWO: Final = a_claim("c").request("r", "gpu", count=2)

ROWS: Final[dict[str, Row]] = {
    "a claim by its name and one from a template": Row(
        [
            GPU,
            on("n1", a_device("a").attr("part", "half")),
            on("n2", a_device("a").attr("part", "half"), a_device("b").attr("part", "whole")),
            a_claim("c").request("r", "gpu", cel=HALVES),
            a_claim_template("t").request("s", "gpu", cel=WHOLES),
        ],
        templates=("t",),
        node="n2",
        gets={"c": ["r: a"], "t": ["s: b"]},
    ),
    "no node has as many": Row([GPU, on("n1", a_device("a")), on("n2", a_device("a")), TWO], says=CANNOT),
    "all devices with the same attribute": Row(
        [
            GPU,
            on("n1", numa("a", 0), numa("b", 1)),
            on("n2", numa("a", 0), numa("b", 1), numa("e", 1)),
            TWO.match(f"{DRIVER}/numa"),
        ],
        node="n2",
        gets={"c": ["r: b", "r: e"]},
    ),
    "the second of a list": Row(
        [GPU, on("n1", a_device("a").attr("part", "half")), LIST], node="n1", gets={"c": ["r/small: a"]}
    ),
    "a taint that is tolerated": Row(
        [
            GPU,
            on("n1", a_device("a").taint("broken")),
            a_claim("c").request("r", "gpu", tolerations=[a_toleration("broken")]),
        ],
        node="n1",
        gets={"c": ["r: a"]},
    ),
    "parts of one device for two claims": Row(
        [GPU, on("n1", SHARED), *(a_claim(name).request("r", "gpu", capacity=HALF) for name in "cd")],
        claims=("c", "d"),
        node="n1",
        gets={"c": ["r: a"], "d": ["r: a"]},
    ),
    "two halves of a partitionable device": Row(
        [GPU, *PARTED, a_claim("c").request("r", "gpu", count=2, cel=HALVES)], node="n1", gets={"c": ["r: h1", "r: h2"]}
    ),
    "an expression that fails": Row(
        [
            GPU,
            on("n1", a_device("a")),
            on("n2", a_device("a")),
            a_claim("c").request("r", "gpu", cel=f"device.attributes['{DRIVER}'].nowhere == 'x'"),
        ],
        says="no such key: nowhere",
        reason="SchedulerError",
    ),
    "an expression that fails on the devices of the other node": Row(
        [GPU, on("n1", EXISTS), on("n2", a_device("b").attr("healthy", value=False)), ONLY_IF_EXISTS],
        templates=("t",),
        claims=(),
        says="CEL runtime error: no such key: exists",
        reason="SchedulerError",
    ),
    "an expression that fails on a device behind one that will do": Row(
        [GPU, on("n2", EXISTS, a_device("b").attr("healthy", value=False)), ONLY_IF_EXISTS],
        templates=("t",),
        claims=(),
        node="n2",
        gets={"t": ["r: a"]},
    ),
    "a class that does not exist": Row(
        [on("n1", a_device("a")), a_claim("c").request("r", "gpu")], says="request r: device class gpu"
    ),
    "a pool with a device twice": Row(
        [
            GPU,
            on("n1", a_device("a")).of(2),
            on("n1", a_device("a")).named("again").of(2),
            a_claim("c").request("r", "gpu"),
        ],
        says="invalid resource pools were encountered",
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
async def test_where_it_goes(devices: DeviceWorld, their_devices: DeviceWorld, row: Row) -> None:
    """Nothing more is taken than it asks for."""

    async def scenario(world: DeviceWorld) -> None:
        await world.make(world.node("n1"), world.node("n2"), *row.things)
        await world.make(world.pod("p", *row.claims, templates=row.templates, on=row.pin))
        if row.node:
            assert await world.bound("p") == [row.node]
        else:
            await world.refused("p", row.says, reason=row.reason)
        await check(world, row)

    await together(scenario, devices, their_devices)


async def check(world: DeviceWorld, row: Row) -> None:
    """In the end: which claim has which devices, and for whom."""
    names = {
        name: name
        for name in row.claims
        if name in {each["metadata"]["name"] for each in await world.all("ResourceClaim")}
    }
    names |= {template: await world.claim_of("p", template) for template in row.templates}
    for entry, name in names.items():
        claim = await world.claim(name)
        found = [f"{each['request']}: {each['device']}" for each in results_of(claim)]
        assert sorted(found) == sorted(row.gets.get(entry, ())), claim
        assert users_of(claim) == (["p"] if row.node else []), claim
        assert is_protected(claim) == (entry in row.gets), claim
    assert await world.broken_laws() == []
