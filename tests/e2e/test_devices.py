"""Pods with claims for devices on a real control plane: where they go, and what they get (docs/spec/dra.md §2–§4).

Every row is asked of kube-scheduler too, at the same time in a world of its own: what it answers is what is expected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from scheduler.testing.builders import Builder
from scheduler.testing.devicebuilders import a_device
from scheduler.testing.deviceclaimbuilders import a_claim, a_claim_template
from tests.e2e.devices import DRIVER, DeviceWorld, gpus, is_protected, on, users_of
from tests.e2e.sandbox import together

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

CANNOT: Final = "cannot allocate all claims"


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
    """Claim or template → the devices it has in the end, in any order."""


GPU: Final = gpus()
MODEL: Final = f"device.attributes['{DRIVER}'].model"


def of_model(name: str, model: str) -> Any:
    return a_device(name).attr("model", model)


ROWS: Final[dict[str, Row]] = {
    "a claim by its name": Row(
        [GPU, on("n2", a_device("a")), a_claim("c").request("r", "gpu")], node="n2", gets={"c": ["a"]}
    ),
    "a claim from a template": Row(
        [GPU, on("n2", a_device("a")), a_claim_template("t").request("r", "gpu")],
        claims=(),
        templates=("t",),
        node="n2",
        gets={"t": ["a"]},
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
        assert sorted(await world.devices_of(name)) == sorted(row.gets.get(entry, ())), claim
        assert users_of(claim) == (["p"] if row.node else []), claim
        assert is_protected(claim) == (entry in row.gets), claim
    assert await world.broken_laws() == []
