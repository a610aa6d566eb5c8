"""`deviceScoring: leastFragmentation`: which node a pod takes, and that it never decides whether a pod fits (docs/adr/0021)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from scheduler.api.podinfo import PodInfo, placed, pod_info
from scheduler.config.args import KubestowArgs
from scheduler.core.cooperative import answered, finish
from scheduler.framework.interface import CycleState
from scheduler.framework.status import Rejection
from scheduler.plugins.dra.fragmentation import PODS_MAX, NodeFragmentation, Shape, TypicalPods
from scheduler.plugins.dra.structured.node_devices import AllocatorFeatures
from scheduler.plugins.dra.structured.requests import ClaimParser, ClaimsToAllocate, SelectorSets
from simulator.builders.claims import ClaimBuilder, a_claim, a_result, an_option
from simulator.builders.core import Builder, node, pod
from simulator.builders.devices import SliceBuilder, a_device, a_slice
from tests.examples import SLOW_SHARE, examples
from tests.unit.plugins.dra.served import Served, using
from tests.unit.plugins.dra.world import FIRST_FIT, World

LEAST = KubestowArgs(device_scoring="leastFragmentation")
MODEL = 'device.attributes["a"].model == "{}"'


def gpus(node_name: str, count: int, model: str = "X") -> SliceBuilder:
    """Return GPUs that claims share, each with 1000 milli."""
    devices = [a_device(f"d{at}").attr("model", model).cap("milli", "1000").shared() for at in range(count)]
    return a_slice(node_name, "a", *devices)


def part(milli: int, *, count: int = 1, model: str = "") -> ClaimBuilder:
    """Return a claim for a part of each of some GPUs."""
    cel = (MODEL.format(model),) if model else ()
    return a_claim("c").request("r", "A", count=count, capacity={"milli": str(milli)}, cel=cel)


class Fragmented(World):
    """Nodes with these free CPUs and devices, and typical pods."""

    def __init__(self, cpus: Sequence[int], *things: Builder[object]) -> None:
        super().__init__(nodes=(), ours=LEAST)
        for at, cpu in enumerate(cpus, start=1):
            self.cluster.set_node(node(f"n{at}").cpu(str(cpu)).typed())
        self.show(*things)
        self.parser = ClaimParser(self.devices.classes, SelectorSets(self.devices.holding), self.gates)
        self.fragmentation = self.fresh()
        self.count = 0

    def fresh(self) -> NodeFragmentation:
        """Return another one that has evaluated nothing."""
        rules = AllocatorFeatures.of(self.gates)
        return NodeFragmentation(self.cluster.nodes, self.devices.on_nodes, self.devices.use, rules)

    def demand(self, claim: ClaimBuilder | None) -> ClaimsToAllocate | None:
        return self.parser.of((claim.typed(),)) if claim is not None else None

    def new_pod(self, cpus: int) -> PodInfo:
        """Return a new pod."""
        self.count += 1
        return pod_info(pod(f"p{self.count}").uid(f"uid-{self.count}").cpu(str(cpus)).typed())

    def has_seen(self, claim: ClaimBuilder, cpus: int, count: int = 1) -> None:
        """Count pods among the typical ones."""
        demand = self.demand(claim)
        assert demand is not None
        for _ in range(count):
            self.fragmentation.note(self.new_pod(cpus), demand)

    def growth(self, claim: ClaimBuilder | None, cpus: int) -> list[float]:
        """Return the growth of each node in devices."""
        present = self.cluster.nodes.present
        scores = finish(self.fragmentation.score(self.new_pod(cpus), self.demand(claim), present))
        return [-int(scores[self.slot(name)]) / 1000 for name in self.cluster.nodes.names(present)]

    def best(self, claim: ClaimBuilder | None, cpus: int) -> list[str]:
        """Return the nodes with the smallest growth."""
        growth = self.growth(claim, cpus)
        return [f"n{at}" for at, each in enumerate(growth, start=1) if each == min(growth)]


def test_the_worked_example() -> None:
    """The one in the module's docstring."""
    half = a_claim("h").allocated(a_result("r", "a/n1/d0", share="s", consumed={"milli": "500"}))
    world = Fragmented([6], gpus("n1", 2), half)
    world.has_seen(part(1000), cpus=4)
    world.has_seen(part(500), cpus=2)

    assert [-0.25] == world.growth(part(500), cpus=2)
    assert [1.0] == world.growth(None, cpus=4)


SHARED = (
    gpus("n1", 2),
    gpus("n2", 2),
    a_claim("h").allocated(a_result("r", "a/n1/d0", share="s", consumed={"milli": "500"})),
)
COUNTERS = {"memory": "40", "engines": "4"}
PARTS = [a_device(f"gpu-{at}").consumes(f"set-{at}", COUNTERS) for at in range(2)] + [
    a_device(f"half-{at}-{i}").consumes(f"set-{at}", {"memory": "20", "engines": "2"}).attr("half", True)
    for at in range(2)
    for i in range(2)
]
PARTITIONS = [
    each
    for name in ("n1", "n2")
    for each in (
        a_slice(name, "a", *PARTS).of(2),
        a_slice(name, "a").named(f"counters-{name}").counters("set-0", COUNTERS).counters("set-1", COUNTERS).of(2),
    )
]
HALF = a_claim("c").request("r", "A", cel=('has(device.attributes["a"].half)',))
WHOLE = a_claim("c").request("r", "A", cel=('!has(device.attributes["a"].half)',))

CHOICES = [
    pytest.param([8, 8], SHARED, [(part(1000), 4), (part(500), 2)], part(500), 2, ["n1"], id="half a GPU takes the half"),
    pytest.param([8, 8], SHARED, [(part(1000, count=2), 4)], part(1000), 2, ["n1"], id="one GPU leaves the free pair"),
    pytest.param([8, 8, 8], (gpus("n1", 2), gpus("n2", 2)), [(part(1000), 4)], None, 4, ["n3"], id="a pod without devices leaves the CPUs of the GPUs"),
    pytest.param([8, 64], (gpus("n1", 2), gpus("n2", 2)), [(part(1000), 4)], None, 4, ["n2"], id="or takes those that are to spare"),
    pytest.param([8, 16], (gpus("n1", 2), gpus("n2", 2)), [(part(1000), 4)], part(1000), 8, ["n2"], id="a pod with many CPUs takes a node with many"),
    pytest.param([64, 64], (gpus("n1", 2), gpus("n2", 2, "Y")), [(part(1000, model="X"), 1)], part(1000), 1, ["n2"], id="the model that no typical pod requests"),
    pytest.param([8, 8], (*PARTITIONS, a_claim("h").allocated(a_result("r", "a/n2/half-0-0"))), [(WHOLE, 1), (HALF, 1)], HALF, 1, ["n2"], id="a partition of the GPU that is cut already"),
    pytest.param([8, 8], (gpus("n1", 1), gpus("n2", 8)), [], part(500), 1, ["n1", "n2"], id="nothing is known yet"),
]  # fmt: skip


@pytest.mark.parametrize(("cpus", "things", "typical", "claim", "cpu", "expected"), CHOICES)
def test_the_best_nodes(
    cpus: Sequence[int],
    things: Sequence[Builder[object]],
    typical: Sequence[tuple[ClaimBuilder, int]],
    claim: ClaimBuilder | None,
    cpu: int,
    expected: list[str],
) -> None:
    world = Fragmented(cpus, *things)
    for each, cpus_of_each in typical:
        world.has_seen(each, cpus_of_each)

    assert expected == world.best(claim, cpu)


def test_each_pod_counts_once_and_old_pods_are_forgotten() -> None:
    typical, old, new = TypicalPods(), Shape(None, 1), Shape(None, 2)

    assert [0, 1, 3, 7] == [at for at in range(9) if typical.note(f"a{at}", old)]
    assert not typical.note("a0", new)
    assert ((old, 8),) == tuple(typical.shapes)

    counted = [9 + at for at in range(1, 2 * PODS_MAX) if typical.note(f"b{at}", new)]
    assert counted == [16, 32, 64, 128, 256, 512, PODS_MAX, 2 * PODS_MAX]
    assert ((new, PODS_MAX),) == tuple(typical.shapes)


def test_a_share_of_a_capacity_that_the_driver_no_longer_publishes() -> None:
    """The rest of the device is free."""
    half = a_claim("h").allocated(a_result("r", "a/n1/d0", share="s", consumed={"old": "500", "milli": "500"}))
    world = Fragmented([8], gpus("n1", 1), half)
    world.has_seen(part(500), cpus=1)

    assert [0.0] == world.growth(part(500), cpus=1)


# -- laws --------------------------------------------------------------------------------------------------------------

CLAIMS = st.sampled_from(
    [part(250), part(500), part(1000), part(1000, count=2), part(700, model="X"), part(600, model="Y")]
)
STEPS = st.lists(st.tuples(CLAIMS | st.none(), st.integers(0, 4)), min_size=1, max_size=12)


@settings(max_examples=examples(share=SLOW_SHARE), deadline=None)
@given(STEPS, st.integers(0, 99))
def test_what_is_kept_of_unchanged_nodes_is_what_a_fresh_evaluation_finds(
    steps: list[tuple[ClaimBuilder | None, int]], seed: int
) -> None:
    world, rng = Fragmented([8, 12, 16], gpus("n1", 2), gpus("n2", 3), gpus("n3", 2, "Y")), random.Random(seed)
    world.has_seen(part(1000), 4)
    world.has_seen(part(500), 2)
    for number, (claim, cpus) in enumerate(steps):
        kept = world.growth(claim, cpus)
        used, world.fragmentation = world.fragmentation, world.fresh()
        world.fragmentation._typical = type(used._typical)(used._pods.shapes)  # type: ignore[misc]
        assert kept == world.growth(claim, cpus)
        world.fragmentation = used

        name = rng.choice(["n1", "n2", "n3"])
        world.cluster.add_pod(placed(world.new_pod(cpus), name))
        if claim is not None:
            amount = {"milli": str(rng.choice([250, 500]))}
            result = a_result("r", f"a/{name}/d{rng.randrange(2)}", share=f"s{number}", consumed=amount)
            world.show(a_claim(f"c{number}").allocated(result))


@settings(max_examples=examples(share=SLOW_SHARE), deadline=None)
@given(st.lists(CLAIMS, max_size=8), CLAIMS, st.integers(0, 99))
def test_a_pod_fits_exactly_where_first_fit_places_it(
    before: list[ClaimBuilder], claim: ClaimBuilder, seed: int
) -> None:
    """The score orders nodes, and refuses none."""
    verdicts = []
    for ours in (FIRST_FIT, LEAST):
        rng, world = random.Random(seed), World(ours=ours)
        world.show(gpus("n1", 2), gpus("n2", 2, "Y"), claim)
        for number, _ in enumerate(before):
            amount = {"milli": str(rng.choice([250, 500]))}
            result = a_result("r", f"a/n{rng.randrange(1, 3)}/d{rng.randrange(2)}", share=f"s{number}", consumed=amount)
            world.show(a_claim(f"c{number}").allocated(result))
        verdicts.append(world.refusals(world.pod("c")))

    assert verdicts[0] == verdicts[1]


# -- the plugin --------------------------------------------------------------------------------------------------------


async def test_the_plugin_scores_once_a_pod_has_received_devices() -> None:
    """Pods without devices are scored as well; pods with prioritized lists keep the score of their alternatives."""
    listed = a_claim("l").first_available("r", an_option("s", "B"), an_option("t", "A"))
    world = Served(part(1000), part(1000).set({"metadata": {"name": "d"}}), listed, gpus("n1", 2), gpus("n2", 4), ours=LEAST, bare=True)  # fmt: skip
    plugin, present = world.plugin, world.cluster.nodes.present

    def scores(info: PodInfo) -> list[int] | None:
        state = CycleState()
        assert not isinstance(plugin.pre_filter(state, info, present), Rejection)
        if plugin.name in state.skip_score:
            return None
        found = finish(answered(plugin.score(state, info, present)))
        normalized: list[int] = plugin.normalize_score(state, info, found, np.array([0, 1]))[:2].tolist()
        return normalized

    assert scores(using()) is None
    assert not await world.bound(world.reserved(using("d", name="first")))

    assert scores(using()) == [0, 0]
    assert scores(using("c")) == [0, 0]
    assert scores(using("l")) == [100, 100]


@pytest.mark.parametrize("ours", [FIRST_FIT, KubestowArgs(), KubestowArgs(parity=True, device_scoring="firstFit")])
async def test_otherwise_nothing_is_scored(ours: KubestowArgs) -> None:
    world = Served(part(1000), gpus("n1", 2), ours=ours, bare=True)
    await world.bound(world.reserved(using("c")))

    state, _ = world.pre_filter(using())

    assert world.plugin.name in state.skip_score
