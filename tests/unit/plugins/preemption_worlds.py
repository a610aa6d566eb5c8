"""Random small clusters for the laws of preemption: nearly full, with a bit of everything that filters look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from scheduler.api.apps_and_policy import PodDisruptionBudget
from scheduler.api.core_v1 import Node
from scheduler.api.podinfo import PodInfo
from scheduler.config.args import KubestowArgs
from tests.unit import objects
from tests.unit.plugins.preempting import PreemptionHarness, away_from, budget, near_to, pod, spread
from tests.unit.plugins.reference_preemption import LiteralPreemption

NAMES = ("n1", "n2", "n3")
GPU = "example.com/gpu"
PRIORITIES = (-10, -10, 0, 0, 0, 5, 5, 10, None)

words = st.fixed_dictionaries({}, optional={"app": st.sampled_from("xy"), "tier": st.sampled_from("ab")})
namespaces = st.sampled_from(("default", "default", "default", "other"))
starts = st.sampled_from((None, "1", "2", "2", "3"))
amounts = st.fixed_dictionaries(
    {"cpu": st.sampled_from(("0", "500m", "1", "1", "2"))},
    optional={"memory": st.sampled_from(("1Gi", "3Gi")), GPU: st.sampled_from(("1", "2"))},
)
held_ports = st.sampled_from(((), (), (), ("TCP/80",), ("TCP/80/10.0.0.1",), ("UDP/80", "TCP/81")))
held_disks = st.sampled_from(
    (
        *([[]] * 5),
        [{"name": "d", "awsElasticBlockStore": {"volumeID": "vol-1"}}],
        [{"name": "d", "gcePersistentDisk": {"pdName": "d"}}],
        [{"name": "d", "gcePersistentDisk": {"pdName": "d", "readOnly": True}}],
    )
)
anti = st.sampled_from((None, None, None, away_from("x"), away_from("y", "host"), away_from("x", "rack")))
own_terms = st.sampled_from((None, None, None, None, away_from("x"), away_from("y", "host"), near_to("x")))
spreads = st.sampled_from(
    ([], [], [], [], spread("x"), spread("y", "host"), spread("x", minDomains=3), spread("x", maxSkew=2))
)
selectors = st.sampled_from(
    (
        {"app": "x"},
        {"app": "y", "tier": "a"},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "y", "x"]}]},
        {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["b"]}]},
        {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
        {},
        None,
    )
)

nodes = st.builds(
    lambda name, zone, rest, tainted, cordoned: objects.node(
        name,
        labels={"host": name, "zone": zone, **({"rack": "r"} if zone == "z1" else {})},
        taints=tainted,
        cordoned=cordoned,
        **rest,
    ),
    st.sampled_from(NAMES),
    st.sampled_from(("z1", "z2")),
    st.fixed_dictionaries(
        {"cpu": st.sampled_from(("1500m", "2", "3")), "pods": st.sampled_from(("2", "3", "9"))},
        optional={GPU: st.sampled_from(("1", "3")), "memory": st.just("4Gi")},
    ),
    st.sampled_from(((), (), (), (), ("t=:PreferNoSchedule",), ("t=:NoSchedule",))),
    st.integers(0, 9).map(lambda number: number == 7),
)


@st.composite
def bound(draw: st.DrawFn, name: str, on: str | None = None) -> PodInfo:
    return pod(
        name,
        draw(st.sampled_from(PRIORITIES)),
        labels=draw(words),
        ns=draw(namespaces),
        started=draw(starts),
        on=on or draw(st.sampled_from(NAMES)),
        requests=draw(amounts),
        ports=draw(held_ports),
        volumes=draw(held_disks),
        affinity=draw(anti),
        leaving=draw(st.sampled_from(("", "", "", "", "preemptor", "other"))),
        scheduler=draw(st.sampled_from(("kubestow", "kubestow", "default-scheduler"))),
    )


@st.composite
def budgets(draw: st.DrawFn, name: str) -> PodDisruptionBudget:
    return budget(
        name,
        draw(st.sampled_from((0, 0, 1, 2))),
        draw(selectors),
        ns=draw(namespaces),
        gone=draw(st.sampled_from(((), (), ("b1",), ("b2", "b3")))),
    )


@st.composite
def unbound(draw: st.DrawFn, name: str, *, plain: bool = False) -> PodInfo:
    """A pod that wants to come; a plain one has no rule about other pods."""
    return pod(
        name,
        draw(st.sampled_from((20, 10, 10, 5, -5))),
        labels=draw(words),
        requests=draw(amounts),
        ports=draw(held_ports),
        volumes=draw(held_disks),
        affinity=None if plain else draw(own_terms),
        topologySpreadConstraints=[] if plain else draw(spreads),
        tolerations=draw(st.sampled_from(([], [{"key": "t", "operator": "Exists"}]))),
        nodeSelector=draw(st.sampled_from(({}, {}, {}, {"zone": "z1"}))),
    )


@st.composite
def newcomers(draw: st.DrawFn, name: str) -> PodInfo:
    """A nominated pod of any scheduler, some with anti-affinity."""
    return pod(
        name,
        draw(st.sampled_from((-5, 5, 10, 10, 20))),
        labels=draw(words),
        requests=draw(amounts),
        ports=draw(held_ports),
        volumes=draw(held_disks),
        affinity=draw(anti),
        scheduler=draw(st.sampled_from(("kubestow", "default-scheduler"))),
    )


@dataclass
class PreemptionWorld:
    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, PodInfo] = field(default_factory=dict)
    budgets: dict[str, PodDisruptionBudget] = field(default_factory=dict)
    nominated: dict[str, tuple[PodInfo, ...]] = field(default_factory=dict)

    @property
    def things(self) -> list[Any]:
        return [*self.nodes.values(), *self.pods.values(), *self.budgets.values()]

    def harness(self, **more: Any) -> PreemptionHarness:
        """With the default plugins on it."""
        made = PreemptionHarness(*self.things, **more)
        for name, pods in self.nominated.items():
            made.nominate(name, *pods)
        return made

    def literal(self, ours: KubestowArgs, gates: frozenset[str] = frozenset()) -> LiteralPreemption:
        """As the reference reads it."""
        nodes, pods = list(self.nodes.values()), list(self.pods.values())
        return LiteralPreemption(nodes, pods, list(self.budgets.values()), self.nominated, ours, gates)


@st.composite
def worlds(draw: st.DrawFn) -> PreemptionWorld:
    """One to three nodes, up to nine pods."""
    made = PreemptionWorld()
    for each in draw(st.lists(nodes, min_size=1, max_size=3)):
        made.nodes[each.metadata.name] = each
    there = st.sampled_from(sorted(made.nodes))
    for at in range(draw(st.integers(1, 9))):
        one = draw(bound(f"b{at}", draw(there)))
        made.pods[one.uid] = one
    for at in range(draw(st.integers(0, 3))):
        made.budgets[str(at)] = draw(budgets(f"d{at}"))
    for at in range(draw(st.sampled_from((0, 0, 1, 2)))):
        name = draw(there)
        made.nominated[name] = (*made.nominated.get(name, ()), draw(newcomers(f"n{at}")))
    return made
