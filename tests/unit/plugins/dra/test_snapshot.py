"""DynamicResources runs over a snapshot, as an autoscaler or a simulator uses it: docs/spec/dra.md §1.5.

There is no daemon, no event loop and no server. A cluster is filled from lists, and pods are tried in order.
The tests read each decision from the pending allocations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scheduler.api.podinfo import PodInfo
from scheduler.core import nodeset
from scheduler.core.feature_gates import DEVICE_GATES_ON, TAINT_RULES
from simulator.builders.claims import ClaimBuilder, a_claim
from simulator.builders.devices import a_device, a_slice, a_taint_rule
from tests.unit.plugins.dra.served import using
from tests.unit.plugins.dra.world import World


class Simulator(World):
    """A cluster from lists of nodes, slices and claims, which places one pod after the other."""

    def __init__(self, nodes: Sequence[str], slices: Sequence[Any], claims: Sequence[ClaimBuilder]) -> None:
        super().__init__(gates=DEVICE_GATES_ON | {TAINT_RULES}, nodes=nodes)
        self.show(*slices, *(claim.uid(claim.typed().metadata.name) for claim in claims))

    def place(self, info: PodInfo) -> str:
        """Reserve the first node, by name, that fits the pod and return its name; "" if no node fits."""
        state, groups = self.filter(info)
        if not isinstance(groups, dict):
            return ""
        left = self.cluster.nodes.present
        for out in groups.values():
            left &= ~out
        name = min((self.cluster.nodes.name(slot) for slot in nodeset.each(left)), default="")
        assert not name or self.plugin.reserve(state, info, name) is None
        return name

    def pending(self, claim: str) -> list[str]:
        """Return the pending devices of the claim, as `pool/device`."""
        found = self.devices.claims.pending(claim)
        return [f"{result.pool}/{result.device}" for result in found.devices.results] if found is not None else []


def slices(*nodes: str, each: int = 2) -> list[Any]:
    return [a_slice(name, "a", *(a_device(f"d{at}") for at in range(each))) for name in nodes]


def claim_for(name: str, count: int = 1) -> ClaimBuilder:
    return a_claim(name).request("r", "A", count=count)


def test_pods_are_placed_in_order() -> None:
    """Each pod sees the devices promised to earlier pods; the last pod finds no device."""
    claims = [claim_for("c0", 2), claim_for("c1"), claim_for("c2"), claim_for("c3")]
    simulator = Simulator(["n1", "n2"], slices("n1", "n2"), claims)

    placed = [simulator.place(using(f"c{at}", name=f"p{at}")) for at in range(4)]

    assert ["n1", "n2", "n2", ""] == placed
    assert [["n1/d0", "n1/d1"], ["n2/d0"], ["n2/d1"], []] == [simulator.pending(f"c{at}") for at in range(4)]
    assert 4 == simulator.devices.use.counts()["whole"]


def test_two_snapshots_are_independent() -> None:
    """§1.5 b: a decision in one snapshot does not change the other snapshot."""
    first = Simulator(["n1"], slices("n1", each=1), [claim_for("c"), claim_for("d")])
    second = Simulator(["n1"], slices("n1", each=2), [claim_for("c"), claim_for("d")])

    assert ["n1", "n1"] == [first.place(using("c")), second.place(using("c"))]
    assert ["", "n1"] == [first.place(using("d", name="q")), second.place(using("d", name="q"))]


def test_taints_of_rules_count() -> None:
    """§1.5 c: a simulator must not use slices as they are published."""
    tainted = Simulator(["n1"], slices("n1"), [claim_for("c")])
    tainted.devices.put_rule("t", None, a_taint_rule("t", "k").driver("a").typed())

    assert "" == tainted.place(using("c"))
    (shown,) = tainted.devices.slices()
    assert ["k"] == [taint.key for device in shown.spec.devices[:1] for taint in device.taints]
