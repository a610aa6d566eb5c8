"""Watches that last for seconds: they are cut, late and refused while pods arrive. Each pod is bound within the limit."""

from __future__ import annotations

import asyncio
import random
from typing import Final

import pytest

from simulator.apiserver import Fault, WatchFault
from tests.examples import examples
from tests.integration.clocks import SkippingClock
from tests.integration.daemon_laws import Object
from tests.integration.harness import Harness, running_cluster

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
