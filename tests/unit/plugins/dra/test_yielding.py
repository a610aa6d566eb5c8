"""Long searches yield to the event loop, return the same results as short ones, and end.

Time passes with the work, not with looks at the clock: a step of a search, an expression evaluated, a choice of partitions
weighed take a tenth of a millisecond each.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest

from scheduler.api.podinfo import placed, pod_info
from scheduler.api.resource_v1 import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from scheduler.cache.devices.allocation_state import AllocationState, HypotheticalState
from scheduler.config.args import DynamicResourcesArgs, KubestowArgs
from scheduler.core.cooperative import TURN_S, Work, finish
from scheduler.cycle import Outcome, Scheduled, SchedulingFailed
from scheduler.plugins.dra.structured.allocator import Allocator
from scheduler.plugins.dra.structured.error_nodes import TimedOut
from scheduler.plugins.dra.structured.feasibility import Feasibility
from scheduler.plugins.dra.structured.node_verdicts import BACKOFF_S, LONGEST_ATTEMPT_S, LONGEST_HOLD_S
from scheduler.plugins.dra.structured.requests import Selectors
from simulator.builders.claims import ClaimBuilder, a_claim, a_result, an_option
from simulator.builders.core import Builder, pod
from simulator.builders.devices import SliceBuilder, a_device, a_slice
from tests.unit.plugins.dra.served import PARITY
from tests.unit.plugins.dra.trying import Trying, result_of
from tests.unit.plugins.dra.world import FIRST_FIT

WORK_S = 0.0001
MANY = tuple(f"n{at}" for at in range(1, 101))
SOME = MANY[:40]


@pytest.fixture(autouse=True)
def _work_takes_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each step take time in the world of `slow`."""
    for owner, name in ((Allocator, "_take"), (Feasibility, "solve"), (Selectors, "_evaluating")):
        monkeypatch.setattr(owner, name, _slowly(getattr(owner, name)))


_now: list[Trying] = []


def _slowly(work: Callable[..., Any]) -> Callable[..., Any]:
    def slow(*args: Any) -> Any:
        for world in _now:
            world.worked(world.slow)
        return work(*args)

    return slow


def puzzle(node: str, *, room: int = 180, seed: int = 2) -> list[SliceBuilder]:
    """Return partitions of which many steps are needed to find ten that fit, or that none fit."""
    rng = random.Random(seed)
    devices = []
    for at in range(60):
        takes = {f"k{each}": str(rng.randint(50, 150)) for each in rng.sample("abcdef", rng.randint(1, 3))}
        devices.append(a_device(f"d{at:02}").attr("u", at).consumes("c", takes))
    counters = {f"k{each}": str(room) for each in "abcdef"}
    return [a_slice(node, "a", *devices).of(2), a_slice(node, "a").named(f"{node}-c").counters("c", counters).of(2)]


def unlike(nodes: Sequence[str]) -> list[Builder[Any]]:
    """Return one device per node, each of a different kind."""
    return [a_slice(name, "a", a_device("d").attr("uuid", f"uuid-{name}")) for name in nodes]


TEN = a_claim("c").request("r", "A", count=10)
LISTED = a_claim("c").first_available("r", an_option("two", "A", count=2), an_option("one", "A"))
HELD = a_claim("h").request("r", "A").allocated(a_result("r", "a/n9/d0")).usable_where("region", "r1", "r2", "r3")
ONE = a_claim("c").request("r", "A")


def _a_hard_node(room: int) -> Trying:
    return Trying(*puzzle("n1", room=room), TEN)


def _with_a_nominated_pod() -> Trying:
    """The attempt evaluates the node as if the nominated pod were on it."""
    world = _a_hard_node(200)
    world.nominated.by_node["n1"] = (pod_info(pod("other").uid("other").set({"spec": {"priority": 10}}).typed()),)
    return world


def _held_by_lesser_pods(room: int) -> Trying:
    """The search without the lower-priority pods is hard, and so is the search with each one that returns."""
    world = _a_hard_node(room)
    for at in range(3):
        held = a_claim(f"h{at}").request("r", "A").reserved_for(f"lesser{at}", f"lesser{at}")
        world.show(held.allocated(a_result("r", f"a/n1/d{at:02}")))
        lesser = pod(f"lesser{at}").uid(f"lesser{at}").claim("e", claim=f"h{at}")
        world.cluster.add_pod(placed(pod_info(lesser.typed()), "n1"))
    return world


def _full_of_lesser_pods() -> Trying:
    """On each node one lower-priority pod holds all devices, so preemption searches without it."""
    world = Trying(a_claim("c").request("r", "A", count=8), nodes=MANY)
    for name in MANY:
        devices = [a_device(f"d{at}").attr("uuid", f"uuid-{name}") for at in range(8)]
        held = a_claim(name).request("r", "A", count=8).reserved_for(name, name)
        world.show(a_slice(name, "a", *devices), held.allocated(*(a_result("r", f"a/{name}/d{at}") for at in range(8))))
        world.cluster.add_pod(placed(pod_info(pod(name).uid(name).claim("e", claim=name).typed()), name))
    return world


HARD = [
    pytest.param(_full_of_lesser_pods, ("c",), "", id="whether evictions would help, no two nodes are alike"),
    pytest.param(partial(_a_hard_node, 180), ("c",), "", id="Verify: ten partitions that do not fit"),
    pytest.param(partial(_a_hard_node, 200), ("c",), "", id="Verify: ten partitions that hardly fit"),
    pytest.param(partial(_a_hard_node, 200), ("c",), "n1", id="the node that the pod is nominated to"),
    pytest.param(_with_a_nominated_pod, ("c",), "", id="a node that another pod is nominated to"),
    pytest.param(partial(_held_by_lesser_pods, 180), ("c",), "", id="preemption that does not help"),
    pytest.param(partial(_held_by_lesser_pods, 200), ("c",), "", id="preemption that may help"),
    pytest.param(lambda: Trying(*puzzle("n1"), *puzzle("n2", room=200), TEN, nodes=("n1", "n2")), ("c",), "",
        id="two such nodes"),
    pytest.param(lambda: Trying(*[each.everywhere() for each in puzzle("n1", room=200)], TEN), ("c",), "",
        id="devices that several nodes see"),
    pytest.param(lambda: Trying(*unlike(MANY), LISTED, nodes=MANY), ("c",), "", id="lists, no two nodes are alike"),
    pytest.param(lambda: Trying(*unlike(MANY), HELD, ONE, nodes=MANY), ("h", "c"), "",
        id="with a claim that is usable on some nodes"),
    pytest.param(lambda: Trying(*unlike(MANY), ONE, nodes=MANY, ours=PARITY), ("c",), "",
        id="parity verifies every node"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _forget() -> Any:
    yield
    _now.clear()


def slow(make: Callable[[], Trying]) -> Trying:
    world = make()
    world.slow = WORK_S
    _now[:] = [world]
    return world


@pytest.mark.parametrize(("make", "claims", "nominated"), HARD)
def test_a_search_yields_every_few_milliseconds(
    make: Callable[[], Trying], claims: Sequence[str], nominated: str
) -> None:
    world = slow(make)
    gaps, last = [], world.clock.now()

    for _ in world.attempt(*claims, nominated=nominated):
        gaps.append(world.clock.now() - last)
        last = world.clock.now()

    assert len(gaps) > 1
    assert max(gaps) < 4 * TURN_S  # one choice is up to sixty tries, and the search ahead has a separate limit of 5 ms


@pytest.mark.parametrize(("make", "claims", "nominated"), HARD)
def test_turns_make_no_difference(make: Callable[[], Trying], claims: Sequence[str], nominated: str) -> None:
    undisturbed = result_of(finish(make().attempt(*claims, nominated=nominated)))

    assert result_of(finish(slow(make).attempt(*claims, nominated=nominated))) == undisturbed


@pytest.mark.parametrize(("make", "claims", "nominated"), HARD)
def test_an_attempt_that_is_given_up_in_a_turn_leaves_nothing_behind(
    make: Callable[[], Trying], claims: Sequence[str], nominated: str
) -> None:
    """The turn does not matter, and the next attempt has the same result as without the cancelled one."""
    undisturbed = result_of(finish(make().attempt(*claims, nominated=nominated)))
    turns = sum(1 for _ in slow(make).attempt(*claims, nominated=nominated))
    for turn in {1, turns // 2 or 1, turns}:
        world = slow(make)
        before = world.held()
        attempt = world.attempt(*claims, nominated=nominated)
        for _ in range(turn):
            next(attempt)
        attempt.close()

        assert world.held() == before
        world.cycle.rng = random.Random(3)
        assert result_of(finish(world.attempt(*claims, nominated=nominated))) == undisturbed


def test_nothing_takes_a_turn_when_nothing_is_hard() -> None:
    world = slow(lambda: Trying(*unlike(("n1", "n2")), ONE, nodes=("n1", "n2")))

    assert list(world.attempt("c")) == []


# -- writes during an attempt ---------------------------------------------------------------------------------------------


def four(node: str) -> SliceBuilder:
    """Return devices of which no two are alike, so that each costs an evaluation."""
    return a_slice(node, "a", *(a_device(f"d{at}").attr("u", at) for at in range(4)))


def all_four(claim: str, node: str) -> ClaimBuilder:
    results = (a_result("r", f"a/{node}/d{at}") for at in range(4))
    return a_claim(claim).request("r", "A", count=4).allocated(*results)


def given_back(claim: ResourceClaim) -> ResourceClaim:
    """Return the claim as the server returns it after a background write of ours has freed the devices."""
    metadata = msgspec.structs.replace(claim.metadata, resource_version=str(claim.version + 50))
    status = msgspec.structs.replace(claim.status, allocation=None)
    return msgspec.structs.replace(claim, metadata=metadata, status=status)


@pytest.mark.parametrize("turn", [1, 2, 3])
@pytest.mark.parametrize("freed", ["n1", "n2"])
def test_devices_that_are_freed_during_a_turn_do_not_count_as_those_of_another_node(freed: str, turn: int) -> None:
    """Both nodes were alike when the search began. A later result of one must not be cached for the other."""
    world = slow(
        lambda: Trying(four("n1"), four("n2"), all_four("h1", "n1"), all_four("h2", "n2"), ONE, nodes=("n1", "n2"))
    )
    world.show(a_claim("c2").request("r", "A", count=3), a_claim("c3").request("r", "A"))
    world.slow = TURN_S * 1.2
    attempt, outcomes = world.attempt("c"), list[Outcome]()
    for _ in range(turn):
        next(attempt)
    world.devices.claims.assume(given_back(world.devices.claims.get(f"default/h{freed[1]}")))
    outcomes.append(finish(attempt))
    world.slow = 0.0
    for at, name in enumerate(("c", "c2", "c3")):
        outcomes.append(finish(world.attempt(name, name=f"p{at}")))

    taken = [each.id for held in world.devices.claims.in_flight() for each in held.status.allocation.devices.results]
    assert len(taken) == len(set(taken)) == 4
    assert {each.pool for each in taken} == {freed}


def test_a_write_during_a_turn_counts_when_the_attempt_is_over() -> None:
    """A cancelled attempt applies the write, too."""
    world = slow(lambda: Trying(four("n1"), all_four("h", "n1"), ONE, nodes=("n1",)))
    world.slow = TURN_S * 1.2
    attempt = world.attempt("c")
    next(attempt)
    world.devices.claims.assume(given_back(world.devices.claims.get("default/h")))
    assert world.devices.use.counts()["whole"] == 4

    attempt.close()

    assert world.devices.use.counts()["whole"] == 0
    assert isinstance(finish(world.attempt("c")), Scheduled)


# -- time limits -------------------------------------------------------------------------------------------------


def timed_out(node: str) -> str:
    return f'running "DynamicResources" filter plugin: node {node}: timed out trying to allocate devices'


def test_filter_timeout_ends_the_search_of_a_node() -> None:
    """The message is upstream's. The search does not start again at once, because it would take as long again."""
    args = DynamicResourcesArgs(filter_timeout_s=1.0)
    world = slow(lambda: Trying(*puzzle("n1"), TEN, args=args))
    world.slow = 0.05
    began = world.clock.now()

    outcomes = []
    for wait_s in (0.0, 1.0, BACKOFF_S):
        world.worked(wait_s)
        outcomes.append((result_of(finish(world.attempt("c"))), round(world.clock.now() - began - wait_s, 1)))
        began = world.clock.now()

    (first, took_s), second, (third, took_again_s) = outcomes
    assert [first, second, third] == [timed_out("n1"), (timed_out("n1"), 0.0), timed_out("n1")]
    assert 1.0 < took_s < 10.0
    assert 1.0 < took_again_s < 10.0


def test_a_search_that_timed_out_with_kept_devices_may_be_quick_without_them() -> None:
    """Several nodes see the devices, so no change of a node shows that they are no longer kept."""
    world = slow(lambda: Trying(*[each.everywhere() for each in puzzle("n1", room=200)], TEN))
    world.devices.on_nodes.catch_up()
    boards, devices, slot = world.plugin._verdicts, world.devices, world.cluster.nodes.present.bit_length() - 1
    demand = world.plugin._parser.of((devices.claims.get("default/c"),))
    kept = AllocationState()
    kept.hold("kept", AllocationResult(DeviceAllocationResult((DeviceRequestAllocationResult("r", "a", "n1", "d00"),))))
    use = HypotheticalState(devices.use, frozenset(), kept)

    world.slow = LONGEST_HOLD_S
    for _ in range(2):
        with pytest.raises(TimedOut):
            finish(boards.picked(demand, slot, use, limit_s=LONGEST_HOLD_S))
    world.slow = 0.0

    assert not finish(boards.verdict(demand, slot)).refusal


def test_turns_are_not_counted_against_a_search() -> None:
    args = DynamicResourcesArgs(filter_timeout_s=1.0)
    world = slow(lambda: Trying(*puzzle("n1", room=200), TEN, args=args))

    def interrupted() -> Work[Outcome]:
        attempt = world.attempt("c")
        while True:
            try:
                next(attempt)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            world.worked(1.0)
            yield

    assert isinstance(finish(interrupted()), Scheduled)


@pytest.mark.parametrize("ours", [FIRST_FIT, PARITY], ids=["as a rule", "parity"])
def test_one_pod_blocks_other_pods_for_a_limited_time(ours: KubestowArgs) -> None:
    """The number of nodes does not matter. Results are cached, so a later attempt finishes. Parity waits."""
    world = slow(lambda: Trying(*unlike(SOME), LISTED, nodes=SOME, ours=ours))
    world.slow = 1.0
    outcomes: list[Outcome] = []
    while not outcomes or isinstance(outcomes[-1], SchedulingFailed):
        began = world.clock.now()
        outcomes.append(finish(world.attempt("c")))
        if ours is FIRST_FIT:
            assert world.clock.now() - began < LONGEST_ATTEMPT_S + 5

    *broken, last = outcomes
    assert isinstance(last, Scheduled)
    assert bool(broken) == (ours is FIRST_FIT)
    assert all(
        "timed out trying to allocate devices" in each.message for each in broken if isinstance(each, SchedulingFailed)
    )


def test_an_attempt_comes_to_an_end_also_over_many_nodes_that_all_take_too_long() -> None:
    """Twelve nodes differ: a minute is too short for all, and a search that timed out does not restart within it."""
    nodes = MANY[:12]
    hard = [each for at, name in enumerate(nodes) for each in puzzle(name, seed=at)]
    options = (an_option("ten", "A", count=10), an_option("nine", "A", count=9))
    world = slow(lambda: Trying(*hard, a_claim("c").first_available("r", *options), nodes=nodes))
    world.slow = 1.0
    for _ in range(100):
        message = result_of(finish(world.attempt("c")))
        if message in [timed_out(name) for name in nodes]:
            return
        assert message == timed_out("").replace("node : ", "")
        world.worked(10.0)
    pytest.fail("what took too long is begun again and again")
