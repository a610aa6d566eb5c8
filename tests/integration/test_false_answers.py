"""Answers that are well-formed and wrong: an empty list, a wait of an hour, the objects of a backup; and watches that are cut.

Time is virtual.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from typing import Final

import pytest
import structlog

from simulator.apiserver import Fault, WatchFault
from tests.examples import examples
from tests.integration.clocks import SkippingClock
from tests.integration.daemon_laws import Object
from tests.integration.harness import Harness, running_cluster
from tests.integration.metering import reached
from tests.integration.placement_laws import cache_differences

SPARED_S: Final = 600.0
BUSY: Final = {
    "watches": Fault(verb="watch", status=429, retry_after_s=3600, times=20),
    "lists": Fault(verb="list", status=429, retry_after_s=3600, times=20),
    "bindings": Fault(verb="create", resource="pods", subresource="binding", status=429, retry_after_s=3600, times=3),
    "conditions": Fault(verb="patch", resource="pods", subresource="status", status=429, retry_after_s=3600, times=3),
    "events": Fault(verb="create", resource="events", status=429, retry_after_s=3600, times=3),
}


def filled(cluster: Harness, *pods: str) -> None:
    for name in ("n0", "n1"):
        cluster.add_node(name, 1000, "a")
    for name in pods:
        cluster.add_pod(name, 500)


async def until(cluster: Harness, holds: Callable[[], object], within_s: float) -> None:
    await reached(cluster.clock, holds, lambda: str(cluster.server.list("pods")), within_s)


def unbound(cluster: Harness) -> list[str]:
    return [obj["metadata"]["name"] for obj in cluster.server.objects("pods") if not obj["spec"].get("nodeName")]


@pytest.mark.parametrize("fault", BUSY.values(), ids=BUSY.keys())
async def test_a_retry_after_of_an_hour_is_shortened_to_a_minute(fault: Fault) -> None:
    with structlog.testing.capture_logs() as log:
        async with running_cluster(clock=SkippingClock, watch_list=False) as cluster:
            await cluster.stop_daemon()
            cluster.server.faults.add(fault)
            filled(cluster, "p0", "p1")
            cluster.add_pod("never", 100_000)
            await cluster.start_daemon()
            await until(cluster, lambda: unbound(cluster) == ["never"] and fault.hits, SPARED_S)
            fault.times = 0
            await cluster.settle()

            assert cluster.broken_laws() == []
    shortened = [line["asked_s"] for line in log if line["event"] == "Retry-After is shortened"]
    assert set(shortened) == {3600}


@pytest.mark.parametrize("body", [b"{}", b'{"kind":"NodeList","metadata":{},"items":[]}'], ids=["{}", "no version"])
async def test_an_answer_that_is_no_list_empties_nothing(body: bytes) -> None:
    """A proxy answers lists of nodes: known nodes stay, and /readyz and the log name the cause, once a minute."""
    with structlog.testing.capture_logs() as log:
        async with running_cluster(clock=SkippingClock, watch_list=False) as cluster:
            filled(cluster, "p0", "p1")
            await until(cluster, lambda: not unbound(cluster), 60)
            assert cluster.daemon is not None
            lists = cluster.server.faults.add(Fault(verb="list", resource="nodes", body=body, times=None))
            cluster.compact()
            cluster.storm("pods", 1)
            cluster.server.faults.add(Fault(verb="watch", resource="nodes", status=410, times=1))
            cluster.cut_watches("nodes", abruptly=True)
            await cluster.clock.sleep(150)  # two lines: the pause between two lists is up to half a minute
            assert lists.hits > 3
            assert len(list(cluster.daemon.informers.reflectors["Node"].store)) == 2
            lag = cluster.daemon.informers.lag("Node")
            assert lag is not None
            assert lag.matters
            assert "it has no metadata.resourceVersion" in lag.why
            cluster.add_pod("p2", 500)
            await until(cluster, lambda: not unbound(cluster), 60)
            cluster.end_faults()
            await cluster.settle()

            assert cluster.broken_laws() == []
            assert cluster.daemon.informers.lag("Node") is None
    said = [line for line in log if line["event"] == "no complete list and no watch" and line["kind"] == "Node"]
    assert len(said) >= 2
    assert min(later["seconds"] - sooner["seconds"] for sooner, later in itertools.pairwise(said)) >= 59  # rounded


@pytest.mark.parametrize(
    ("away_s", "writes_since", "noticed_s"),
    [
        pytest.param(20, 0, 60, id="after a long outage"),
        pytest.param(20, 1, 60, id="after a long outage, versions have come as far again"),
        pytest.param(20, 5, 60, id="after a long outage, versions have come further"),
        pytest.param(2, 0, 240, id="after a short outage, noticed by the silence of the watches alone"),
    ],
)
async def test_an_etcd_that_was_restored(away_s: float, writes_since: int, noticed_s: float) -> None:
    """Writes since the backup are gone and their versions are used again: equal version, other content."""
    async with running_cluster(clock=SkippingClock) as cluster:
        filled(cluster, "p0")
        await cluster.settle()
        backup = cluster.server.backup()
        cluster.server.delete("pods", "p0", grace_s=0)
        for label in ("was", "is-no-more"):
            cluster.server.patch("nodes", "n0", {"metadata": {"labels": {"written": label}}})
        cluster.add_node("n2", 1000, "a")
        await cluster.settle()
        await cluster.server.stop()
        cluster.server.restore(backup)
        for n in range(writes_since):
            cluster.server.patch("nodes", "n1", {"metadata": {"labels": {"written": f"again-{n}"}}})
        await cluster.clock.sleep(away_s)
        await cluster.server.start(int(cluster.server.url.rpartition(":")[2]))
        daemon = cluster.daemon
        assert daemon is not None
        await until(cluster, lambda: not cache_differences(cluster.server, daemon.scheduler.cluster), noticed_s)
        cluster.add_pod("p1", 500)
        cluster.add_pod("p2", 500)
        await until(cluster, lambda: not unbound(cluster), noticed_s)

        assert not cache_differences(cluster.server, daemon.scheduler.cluster)


# -- watches that last for seconds: they are cut, late and refused while pods arrive -----------------------------------


NODES: Final = 30
PODS: Final = 150
PER_SECOND: Final = 15
BOUND_WITHIN_S: Final = 30.0
"""Of two hundred seeds the slowest took 6 s."""
SHORT_LIVED: Final = WatchFault(lives_s=(0.5, 3.5), late=0.01)
SEEDS: Final = 200
"""`KUBESTOW_EXAMPLES=20` tries this many; a run without it tries ten."""


async def longest_wait_s(seed: int) -> float:
    """Return the longest wait for a Binding in virtual seconds; raise AssertionError if a pod waits too long."""
    async with running_cluster(clock=SkippingClock, seed=seed) as cluster:
        cluster.server.faults.add(Fault(verb="watch", status=410, probability=0.1, times=None))
        cluster.server.faults.add(Fault(verb="watch", watch=SHORT_LIVED, times=None))
        waits = Waits(cluster)
        for n in range(NODES):
            cluster.add_node(f"n{n}", PODS // NODES * 500, "a")
        for n in range(PODS):
            cluster.add_pod(f"p{n}", 500)
            await cluster.clock.sleep(1 / PER_SECOND)
        while waits.began:
            waits.check()
            await cluster.clock.sleep(0.1)
        assert cluster.broken_laws() == []
        return waits.longest_s


class Waits:
    def __init__(self, cluster: Harness) -> None:
        self.began: dict[str, float] = {}
        self.longest_s = 0.0
        self._clock = cluster.clock
        cluster.server.subscribe(self._on_write)

    def check(self) -> None:
        late = [name for name, began in self.began.items() if self._clock.now() - began >= BOUND_WITHIN_S]
        assert not late, f"not bound within {BOUND_WITHIN_S} s: {late}"

    def _on_write(self, type_: str, resource: str, obj: Object) -> None:
        if resource != "pods":
            return
        name = obj["metadata"]["name"]
        if type_ == "ADDED":
            self.began[name] = self._clock.now()
        elif obj["spec"].get("nodeName") and name in self.began:
            self.longest_s = max(self.longest_s, self._clock.now() - self.began.pop(name))


@pytest.mark.parametrize("number", range(examples(SEEDS) // 20))
def test_every_pod_is_bound_within_half_a_minute(number: int) -> None:
    seed = random.SystemRandom().randrange(2**32)
    try:
        asyncio.run(longest_wait_s(seed))
    except AssertionError as failed:
        raise AssertionError(f"seed {seed}: {failed}") from failed
