"""DynamicResources over a snapshot, as an autoscaler or a simulator runs it: docs/spec/dra.md §1.5.

No daemon, no event loop, no server: a cluster is filled from lists, pods are tried one after the other, and what was
decided is read from what is pending.
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
    """Nodes, slices and claims as lists; pods in turn."""

    def __init__(self, nodes: Sequence[str], slices: Sequence[Any], claims: Sequence[ClaimBuilder]) -> None:
        super().__init__(gates=DEVICE_GATES_ON | {TAINT_RULES}, nodes=nodes)
        self.show(*slices, *(claim.uid(claim.typed().metadata.name) for claim in claims))

    def place(self, info: PodInfo) -> str:
        """The first node that takes the pod, by name, with everything reserved there; "" if there is none."""
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
        """What the claim would get, as `pool/device`."""
        found = self.devices.claims.pending(claim)
        return [f"{result.pool}/{result.device}" for result in found.devices.results] if found is not None else []


def slices(*nodes: str, each: int = 2) -> list[Any]:
    return [a_slice(name, "a", *(a_device(f"d{at}") for at in range(each))) for name in nodes]


def asking(name: str, count: int = 1) -> ClaimBuilder:
    return a_claim(name).request("r", "A", count=count)


def test_pods_in_turn() -> None:
    """Each sees what those before it were promised; the last finds nothing."""
    claims = [asking("c0", 2), asking("c1"), asking("c2"), asking("c3")]
    simulator = Simulator(["n1", "n2"], slices("n1", "n2"), claims)

    placed = [simulator.place(using(f"c{at}", name=f"p{at}")) for at in range(4)]

    assert ["n1", "n2", "n2", ""] == placed
    assert [["n1/d0", "n1/d1"], ["n2/d0"], ["n2/d1"], []] == [simulator.pending(f"c{at}") for at in range(4)]
    assert 4 == simulator.devices.use.counts()["whole"]


def test_two_snapshots_take_turns() -> None:
    """§1.5 b: neither knows anything of the other."""
    first = Simulator(["n1"], slices("n1", each=1), [asking("c"), asking("d")])
    second = Simulator(["n1"], slices("n1", each=2), [asking("c"), asking("d")])

    assert ["n1", "n1"] == [first.place(using("c")), second.place(using("c"))]
    assert ["", "n1"] == [first.place(using("d", name="q")), second.place(using("d", name="q"))]


def test_taints_of_rules_count() -> None:
    """§1.5 c: a simulator must not use slices as they are published."""
    tainted = Simulator(["n1"], slices("n1"), [asking("c")])
    tainted.devices.put_rule("t", None, a_taint_rule("t", "k").driver("a").typed())

    assert "" == tainted.place(using("c"))
    (shown,) = tainted.devices.slices()
    assert ["k"] == [taint.key for device in shown.spec.devices[:1] for taint in device.taints]
