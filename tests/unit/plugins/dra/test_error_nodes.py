"""An error that the allocator meets on any candidate node ends the attempt, and no other error does (docs/spec/dra.md §3.4, §5.5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.cache.devices.pools import DeviceKind
from scheduler.config.args import KubestowArgs
from scheduler.core.cooperative import Work, finish
from scheduler.core.nodeset import NodeSet, each
from scheduler.cycle import Scheduled, SchedulingFailed
from scheduler.framework.handle import Handle
from scheduler.framework.interface import CycleState
from scheduler.framework.status import Code, Groups, Rejection
from scheduler.plugins.dra.structured.allocator import CAREFUL_STEPS, AllocationError
from scheduler.plugins.dra.structured.error_nodes import ErrorNodes
from scheduler.plugins.dra.structured.node_devices import AllocatorFeatures
from scheduler.plugins.dra.structured.node_verdicts import NodeVerdicts
from scheduler.plugins.dra.structured.requests import SelectorFault, Selectors
from simulator.builders.claims import a_claim, a_result
from simulator.builders.core import Builder, pod
from simulator.builders.devices import a_device, a_slice
from tests.examples import SLOW_SHARE, examples
from tests.support.clock import VirtualClock
from tests.unit.plugins.dra.allocator_setup import AllocatorSetup, cases
from tests.unit.plugins.dra.literal_allocator import LiteralAllocator, LiteralError, TooSlow
from tests.unit.plugins.dra.random_devices import NODES, AllocatorCase
from tests.unit.plugins.dra.served import PARITY
from tests.unit.plugins.dra.trying import Trying
from tests.unit.plugins.dra.world import FIRST_FIT

EXISTS = 'device.attributes["a"].exists'
GOOD = a_device("good").attr("exists", value=True)
BROKEN = a_device("broken").attr("healthy", value=False)
ASKS = a_claim("c").request("r", "A", cel=EXISTS)
PACK = KubestowArgs()
N1, N2 = a_slice("n1", "a", GOOD), a_slice("n2", "a", BROKEN)
NO_KEY = "selector #0: CEL runtime error: no such key: exists"


def error(text: str) -> str:
    return f'running "DynamicResources" filter plugin: {text}'


OF_CLAIM = error(f"claim default/c: {NO_KEY}")


ERRORS = [
    pytest.param([N1, N2, ASKS], OF_CLAIM, id="one node has a good device, the other device has no attribute"),
    pytest.param([N1, a_slice("n2", "a", GOOD).of(2), a_claim("c").request("r", "A", every=True)],
        error("claim default/c, request r: asks for all devices, but resource pool a/n2 is currently being updated"),
        id="the claim requests all devices, and the other node's pool is being updated"),
    pytest.param([N1, N2, a_claim("h").request("r", "A").allocated(a_result("r", "a/n1/x"), on="n1"), ASKS], OF_CLAIM,
        id="the pod has another claim that keeps it off the node"),
]  # fmt: skip


@pytest.mark.parametrize("ours", [PACK, FIRST_FIT, PARITY], ids=["defaults", "first fit", "parity"])
@pytest.mark.parametrize(("things", "expected"), ERRORS)
def test_what_ends_an_attempt(
    things: Sequence[Builder[Any]], expected: str, ours: KubestowArgs, request: pytest.FixtureRequest
) -> None:
    """The result does not depend on the random choice of a node: five seeds, three attempts with each."""
    claims = ("h", "c") if "another claim" in request.node.name else ("c",)
    for seed in range(5):
        world = Trying(*things, nodes=("n1", "n2"), ours=ours, seed=seed)
        for _ in range(3):
            outcome = finish(world.attempt(*claims))
            if isinstance(outcome, Scheduled):
                assert outcome.assumed.node_name in expected.split(" or ")
                break
            assert isinstance(outcome, SchedulingFailed), outcome
            assert outcome.message.startswith(expected)


def _refusal(world: Trying) -> str:
    outcome = finish(world.attempt("c"))
    assert not isinstance(outcome, Scheduled)
    return outcome.message


def test_of_several_errors_the_first_nodes_is_raised() -> None:
    """The order of nodes is that of the cache; earlier searches do not change it."""
    nodes = [f"n{at}" for at in range(1, 41)]
    fails = [a_slice(name, "a", a_device("d").attr(f"x{at}", 1)) for at, name in enumerate(nodes, start=1)]
    cel = " || ".join(f'(has(device.attributes["a"].x{at}) && device.attributes["a"].y{at})' for at in range(1, 21))
    claim = a_claim("c").request("r", "A", cel=cel)
    world = Trying(*fails, claim, nodes=nodes)
    world.devices.on_nodes.catch_up()

    messages = {_refusal(world) for _ in range(3)}

    assert messages == {error("claim default/c: selector #0: CEL runtime error: no such key: y1")}


def test_it_is_followed_when_slices_change() -> None:
    world = Trying(N1, a_slice("n2", "a", GOOD), ASKS, a_claim("d").request("r", "A", cel=EXISTS), nodes=("n1", "n2"))
    assert isinstance(finish(world.attempt("c")), Scheduled)

    world.show(a_slice("n2", "a", BROKEN).generation(2))
    broken = finish(world.attempt("d", name="q"))
    world.show(a_slice("n2", "a", GOOD).generation(3))
    mended = finish(world.attempt("d", name="q"))

    assert (OF_CLAIM.replace("/c", "/d"), True) == (
        broken.message if isinstance(broken, SchedulingFailed) else "",
        isinstance(mended, Scheduled),
    )


def test_a_nominated_pod_looks_at_its_node_alone() -> None:
    """As upstream, the attempt does not meet the error of another node."""
    world = Trying(N1, N2, ASKS, nodes=("n1", "n2"))

    outcome = finish(world.attempt("c", nominated="n1"))

    assert isinstance(outcome, Scheduled)
    assert outcome.assumed.node_name == "n1"


@dataclass
class _Refuses:
    """A plugin that runs before DynamicResources and rejects n2, in Filter or only in Verify."""

    is_deferred: bool
    name: str = "Before"
    depends_on_pods: bool = False

    def __call__(self, args: Any, handle: Handle) -> Any:
        self.nodes = handle.cluster.nodes
        return _Deferred(self) if self.is_deferred else self

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups:
        return {self.no: nodes & self.nodes.by_name(("n2",))}

    no = Rejection("Before", Code.UNSCHEDULABLE, ("not here",))


class _Deferred:
    name = "Before"
    depends_on_pods = False

    def __init__(self, plugin: _Refuses) -> None:
        self._plugin = plugin

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups:
        return {}

    def verify(self, state: CycleState, pod: PodInfo, slot: int) -> Rejection | None:
        return self._plugin.no if self._plugin.nodes.name(slot) == "n2" else None


@pytest.mark.parametrize("is_deferred", [False, True], ids=["in Filter", "in Verify"])
@pytest.mark.parametrize("ours", [PACK, PARITY], ids=["defaults", "parity"])
def test_a_node_that_a_plugin_in_front_refuses_is_no_candidate(*, is_deferred: bool, ours: KubestowArgs) -> None:
    """Upstream does not call the allocator for that node."""
    world = Trying(N1, N2, ASKS, nodes=("n1", "n2"), ours=ours, before=_Refuses(is_deferred))

    outcome = finish(world.attempt("c"))

    assert isinstance(outcome, Scheduled)
    assert outcome.assumed.node_name == "n1"


def test_with_no_other_candidate_the_refusal_in_front_is_reported() -> None:
    """The reasons are those that upstream would give."""
    world = Trying(
        a_slice("n1", "a", a_device("d").attr("exists", value=False)),
        N2,
        ASKS,
        nodes=("n1", "n2"),
        before=_Refuses(is_deferred=True),
    )

    message = _refusal(world)

    assert message.startswith("0/2 nodes are available: 1 cannot allocate all claims, 1 not here. ")


def test_devices_kept_for_a_nominated_pod_make_no_error() -> None:
    """Upstream does not know that the devices are kept. The node is rejected, and the attempt continues."""
    good = a_slice("n1", "a", GOOD, a_device("z-broken"))
    world = Trying(good, a_slice("n2", "a", GOOD), ASKS, a_claim("k").request("r", "A"), nodes=("n1", "n2"), ours=PACK)
    other = pod_info(
        pod("other")
        .uid("uid-other")
        .set({"spec": {"schedulerName": "kubestow", "priority": 10}})
        .claim("e", claim="k")
        .typed()
    )
    world.nominated.by_node["n1"] = (other,)

    outcome = finish(world.attempt("c"))

    assert isinstance(outcome, Scheduled), outcome
    assert outcome.assumed.node_name == "n2"


def test_a_demand_without_faults_costs_no_search_of_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The selector is evaluated once per kind of device, and the demand is tracked once for all pods."""
    nodes = [f"n{at}" for at in range(1, 101)]
    evaluated: list[object] = []
    evaluating = Selectors._evaluating

    def counting(selectors: Selectors, kind: DeviceKind) -> Work[bool | SelectorFault]:
        evaluated.append(kind)
        return evaluating(selectors, kind)

    monkeypatch.setattr(Selectors, "_evaluating", counting)
    unlike = [a_slice(name, "a", a_device("d").attr("exists", value=True).attr("uuid", name)) for name in nodes]
    claims = [a_claim(f"c{at}").request("r", "A", cel=EXISTS) for at in range(5)]
    world = Trying(*unlike, *claims, nodes=nodes)
    error_nodes = world.plugin._error_nodes
    following, followed = ErrorNodes._following, list[object]()

    def counting_followed(nodes: ErrorNodes, tracked: Any) -> Any:
        followed.append(tracked)
        return following(nodes, tracked)

    monkeypatch.setattr(ErrorNodes, "_following", counting_followed)

    for at in range(5):
        assert isinstance(finish(world.attempt(f"c{at}", name=f"p{at}")), Scheduled)

    assert len(evaluated) == len(set(evaluated)) == len(nodes)
    assert len(followed) == len(error_nodes._tracked) == 1


# -- laws --------------------------------------------------------------------------------------------------------------

STEPS_MAX = 30_000


@settings(
    max_examples=examples(300, share=SLOW_SHARE),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(cases, st.data())
def test_the_error_of_the_first_node_on_which_the_literal_allocator_has_one_is_found(
    case: AllocatorCase, data: Any
) -> None:
    """The law holds for any set of nodes, and no search of another node is needed."""
    setup = AllocatorSetup(case)
    names = [claim.key for claim in case.claims]
    slots = {name: slot for name in NODES if (slot := setup.nodes.present_slot(name)) is not None}
    errors: dict[int, str] = {}
    for name, slot in slots.items():
        text = _literal_error(case, name)
        if text and not _is_deep(setup, name):
            errors[slot] = text
    rules = AllocatorFeatures.of(case.world.gates)
    error_nodes = ErrorNodes(setup.on_nodes, rules)
    boards = NodeVerdicts(setup.on_nodes, setup.use, VirtualClock(), rules)
    nodes = data.draw(
        st.sets(st.sampled_from(sorted(slots.values())), min_size=1).map(lambda some: sum(1 << s for s in some))
    )

    found = finish(boards.first_error(setup.demand, nodes & finish(error_nodes.of(setup.demand))))

    among = [slot for slot in each(nodes) if slot in errors]
    expected = (among[0], errors[among[0]]) if among else None
    assert expected == (found and (found[0], boards.text_on(found[0], found[1], names)))


def _literal_error(case: AllocatorCase, node: str) -> str:
    try:
        LiteralAllocator(case.world, node, case.claims, steps_max=STEPS_MAX).run()
    except TooSlow:
        assume(False)
    except LiteralError as refused:
        return "" if refused.on_node else str(refused)
    return ""


def _is_deep(setup: AllocatorSetup, node: str) -> bool:
    """Return whether the search may miss an error, because it lies behind very many devices."""
    search = setup.search(node)
    try:
        search.run()
    except AllocationError:
        return False
    except Exception:  # noqa: BLE001 (it fails on this node alone)
        return search.steps >= CAREFUL_STEPS
    return search.steps >= CAREFUL_STEPS
