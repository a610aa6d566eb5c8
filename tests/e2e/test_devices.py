"""Pods with claims for devices on a real control plane: nodes and devices (docs/spec/dra.md §2–§4).

kube-scheduler gets every row too, in a separate sandbox: its answer is the expected one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from scheduler.api.resource_v1 import FINALIZER
from simulator.builders.claims import a_claim, a_claim_template, an_option
from simulator.builders.core import Builder
from simulator.builders.devices import DeviceBuilder, a_device
from tests.e2e.devices import DRIVER, GPU, DeviceSandbox, on, results_of, users_of
from tests.e2e.sandbox import together

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

SHARED: Final = a_device("a").shared().cap("memory", "10Gi")
HALF: Final = {"memory": "4Gi"}
HALVES: Final = f"device.attributes['{DRIVER}'].part == 'half'"
WHOLES: Final = f"device.attributes['{DRIVER}'].part == 'whole'"


@dataclass(frozen=True)
class Row:
    """Objects on the nodes n1 and n2, the pod's claims, and the expected node and devices or message."""

    things: Sequence[Builder[Any]]
    claims: Sequence[str] = ("c",)
    templates: Sequence[str] = ()
    node: str = ""
    says: str = ""
    reason: str = "Unschedulable"
    gets: dict[str, Sequence[str]] = field(default_factory=dict)
    """Claim or template → the devices it has in the end, in any order, each with its request: `r: a`."""


LIST: Final = a_claim("c").first_available(
    "r", an_option("large", "gpu", cel=WHOLES), an_option("small", "gpu", cel=HALVES)
)


def a_part(name: str, part: str, used: str) -> DeviceBuilder:
    """A whole GPU or a half of one, which exclude each other."""
    return a_device(name).attr("part", part).consumes("gpu-0", {"slices": used})


PARTED: Final = (
    on("n1").named("counters").counters("gpu-0", {"slices": "8"}).of(2),
    on("n1", a_part("whole", "whole", "8"), a_part("h1", "half", "4"), a_part("h2", "half", "4")).of(2),
)

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
    "the second of a list": Row(
        [GPU, on("n1", a_device("a").attr("part", "half")), LIST], node="n1", gets={"c": ["r/small: a"]}
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
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
async def test_where_it_goes(devices: DeviceSandbox, their_devices: DeviceSandbox, row: Row) -> None:
    async def scenario(sandbox: DeviceSandbox) -> None:
        await sandbox.make(sandbox.node("n1"), sandbox.node("n2"), *row.things)
        await sandbox.make(sandbox.pod("p", *row.claims, templates=row.templates))
        if row.node:
            assert await sandbox.bound("p") == [row.node]
        else:
            await sandbox.refused("p", row.says, reason=row.reason)
        await check(sandbox, row)

    await together(scenario, devices, their_devices)


async def check(sandbox: DeviceSandbox, row: Row) -> None:
    """Which claim has which devices in the end, and which pods use it."""
    names = {
        name: name
        for name in row.claims
        if name in {each["metadata"]["name"] for each in await sandbox.all("ResourceClaim")}
    }
    names |= {template: await sandbox.claim_of("p", template) for template in row.templates}
    for entry, name in names.items():
        claim = await sandbox.claim(name)
        found = [f"{each['request']}: {each['device']}" for each in results_of(claim)]
        assert sorted(found) == sorted(row.gets.get(entry, ())), claim
        assert users_of(claim) == (["p"] if row.node else []), claim
        assert (FINALIZER in (claim["metadata"].get("finalizers") or ())) == (entry in row.gets), claim
    assert await sandbox.broken_laws() == []
