"""Pods with volumes, devices and placement rules, under faults and fail-overs: each reservation ends in a Binding or is undone.

Histories; then a pod of which one volume or device fails while the other is held; then daemons that are killed."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
from collections.abc import Callable
from typing import Final
from unittest import mock

import pytest
import structlog
from hypothesis import given, strategies as st

from scheduler.kube import reflector
from simulator.apiserver import Fault
from tests.integration.daemon import until
from tests.integration.daemon_laws import unforeseen
from tests.integration.device_laws import results_of
from tests.integration.harness import Harness, running_cluster
from tests.integration.histories import BINDINGS, LONG, Step, fixed, live, random
from tests.integration.mixed_histories import ALLOCATE, histories
from tests.integration.pod_steps import SHARED, Rules
from tests.integration.restart_bursts import PODS, restarting
from tests.integration.volume_steps import Want


@pytest.mark.timeout(900)
@fixed(14)
@given(histories, st.booleans())
def test_what_was_reserved_is_bound_or_undone(history: list[Step], watch_list: bool) -> None:
    _keeps_the_laws(history, watch_list)


@pytest.mark.timeout(LONG * 30 or 900)
@random(9)
@given(histories, st.booleans())
def test_nor_is_anything_left_in_histories_of_this_run(history: list[Step], watch_list: bool) -> None:
    _keeps_the_laws(history, watch_list)


def _keeps_the_laws(history: list[Step], watch_list: bool) -> None:
    with structlog.testing.capture_logs() as log, mock.patch.object(reflector, "_PAGE", "3"):
        broken = asyncio.run(live(history, watch_list=watch_list, volumes=True, devices=True, replicas=2))

    assert [] == broken
    # An elector that cannot reach the server logs an error as well.
    assert [] == [line for line in unforeseen(log) if line["event"] != "lease neither renewed nor acquired"]


# -- one fails while the other is held: all reservations are undone, or the pod is bound in the end --------------------


POD: Final = "m01"
FAST: Final = (Want("fast", 2),)
SLOW: Final = ("slow-1", "memory-5")
Harm = Callable[[Harness], None]


def prepare(cluster: Harness) -> None:
    """Create two nodes with capacity for one such pod each."""
    cluster.add_node("n1", 4000, "a")
    cluster.add_node(SHARED, 4000, "b")


def places(cluster: Harness) -> dict[str, str]:
    """Return pods that the leader has assumed and that are not bound → their nodes."""
    return dict(pair for n in range(2) for pair in cluster.assumed(n))


async def assumed(cluster: Harness) -> None:
    """Wait until the leader has reserved volumes and devices for the pod, which is not bound."""
    await until(lambda: bool(cluster.assumed(0)), lambda: f"never assumed: {cluster.refusals}")
    assert cluster.reservations.calls >= 2


def allocated(cluster: Harness) -> list[str]:
    """Return the claims that have devices."""
    return [obj["metadata"]["name"] for obj in cluster.server.objects("resourceclaims") if results_of(obj)]


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(lambda cluster: cluster.answer("it is broken", 1), id="the first device that is prepared fails"),
        pytest.param(lambda cluster: cluster.fail_provisioning(1, False), id="the first volume cannot be made"),
        pytest.param(lambda cluster: cluster.fault(ALLOCATE, {"status": 403}, 1), id="the first allocation is refused"),
        pytest.param(lambda cluster: cluster.fault(BINDINGS, {"status": 500}, 1), id="the first Binding fails"),
    ],
)
async def test_what_is_undone_once_is_done_in_the_end(harm: Harm) -> None:
    async with running_cluster(volumes=True, devices=True, replicas=2) as cluster:
        prepare(cluster)
        harm(cluster)
        cluster.add_mixed(1, 100, FAST, SLOW, Rules())
        await until(lambda: bool(cluster.node_of(POD)), lambda: f"never bound: {cluster.refusals}")
        await cluster.settle()

        assert cluster.reservations.undone >= 2
        assert cluster.broken_laws() == []


@pytest.mark.parametrize("is_sent", [False, True], ids=["in PreBind", "when its Binding is on the way"])
@pytest.mark.parametrize("is_there", [True, False], ids=["bound elsewhere by another scheduler", "deleted"])
async def test_what_is_held_for_a_pod_that_is_taken_away(is_there: bool, is_sent: bool) -> None:
    async with running_cluster(volumes=True, devices=True, replicas=2) as cluster:
        cluster.add_node("n1", 4000, "a")
        sent = cluster.server.faults.add(Fault(**BINDINGS, delay_s=6, times=1))
        cluster.add_mixed(1, 100, FAST, SLOW, Rules())
        await assumed(cluster)
        cluster.add_node(SHARED, 4000, "b")
        if is_sent:
            await until(lambda: sent.hits > 0, lambda: f"no Binding was sent: {cluster.refusals}")
        if is_there:
            cluster.bind_assumed(0, elsewhere=True)
        else:
            cluster.delete_assumed(0, is_replaced=False)
        await cluster.settle()

        assert cluster.node_of(POD) == (SHARED if is_there else "")
        assert cluster.reservations.undone >= 2
        assert cluster.broken_laws() == []
        assert is_there or allocated(cluster) == []


async def test_a_pod_that_is_moved_onto_the_node_of_another() -> None:
    async with running_cluster(volumes=True, devices=True, replicas=2) as cluster:
        prepare(cluster)
        cluster.add_mixed(2, 2500, FAST, (), Rules())
        await until(lambda: len(places(cluster)) == 2, lambda: f"never assumed: {cluster.refusals}")
        assert sorted(places(cluster).values()) == ["n1", SHARED]
        (moved,) = (at for at, name in enumerate(sorted(places(cluster))) if places(cluster)[name] == "n1")
        cluster.bind_assumed(moved, elsewhere=True)
        await cluster.settle()

        assert {obj["metadata"]["name"]: obj["status"]["phase"] for obj in cluster.server.objects("pods")} == {
            "m01": "Running",
            "m02": "Running",
        }
        assert cluster.broken_laws() == []


# -- SIGKILL at twenty moments of a burst: no pod is stuck afterwards (docs/adr/0012) ----------------------------------


COUNT: Final = max(1, round(5 * float(os.environ.get("KUBESTOW_EXAMPLES") or 1)))
"""Fifty with `KUBESTOW_EXAMPLES=10`."""
TODAY: Final = dt.datetime.now(tz=dt.UTC).toordinal() * 100
"""The seeds change each day."""


@pytest.mark.parametrize("nth", range(COUNT))
async def test_no_pod_is_stuck_after_a_daemon_has_been_killed_again_and_again(nth: int) -> None:
    seed = TODAY + nth
    async with restarting(seed) as burst:
        await burst.run()
        left = await burst.unbound()
        assert (seed, left, burst.broken_laws()) == (seed, [], [])
        assert len(burst.cluster.server.list("pods")) == PODS
