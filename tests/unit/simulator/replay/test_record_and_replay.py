"""A history that `kubestow record` wrote is replayed: every pod is decided, no node is overfull, and it repeats."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from simulator.apiserver import ApiServer
from simulator.builders.core import node, pod
from simulator.eventloop import SimulatedClock
from simulator.replay.answer import PodTimesAnswer, as_json
from tests.unit.simulator.replay.histories import replay, run_a
from tests.unit.simulator.replay.test_recorder import recorded

CORES = 4
PODS = 40


def two_nodes(server: ApiServer) -> None:
    for name in ("n1", "n2"):
        server.create("nodes", node(name).cpu(str(CORES)).obj())


def spans(pods: Iterable[PodTimesAnswer]) -> Iterator[tuple[str, int, float, float]]:
    """Yield node, cores, begin and end of each pod. A pod's name ends with its cores."""
    for each in pods:
        assert None not in {each.arrived_s, each.waited_s, each.ended_s}, each
        begin_s = (each.arrived_s or 0.0) + (each.waited_s or 0.0)
        yield each.node, int(each.pod.rpartition("-")[2]), begin_s, each.ended_s or 0.0


@pytest.mark.parametrize("seed", range(5))
def test_a_recorded_history_is_replayed(tmp_path: Path, seed: int) -> None:
    """The recorded scheduler leaves a core of each node free, and pods wait longer than they have to."""
    rng = random.Random(seed)
    free = {"n1": CORES - 1, "n2": CORES - 1}

    async def steps(server: ApiServer, clock: SimulatedClock) -> None:
        waiting: list[tuple[str, int]] = []
        alive: list[tuple[str, int, str]] = []
        created = 0
        while created < PODS or waiting or alive:
            if created < PODS:
                name, cores = f"p{created}-{1 + created % 3}", 1 + created % 3
                server.create("pods", pod(name).cpu(str(cores)).scheduler("kubestow").obj())
                waiting.append((name, cores))
                created += 1
            for each in list(waiting):
                fitting = [on for on, cores in free.items() if cores >= each[1]]
                if fitting and rng.random() < 0.7:
                    on = rng.choice(fitting)
                    server.bind(each[0], on)
                    free[on] -= each[1]
                    waiting.remove(each)
                    alive.append((*each, on))
            for name, cores, on in [each for each in alive if rng.random() < 0.3]:
                server.delete("pods", name, grace_s=0)
                alive.remove((name, cores, on))
                free[on] += cores
            await clock.sleep(rng.choice((1, 5, 30)))

    file = tmp_path / "history.gz"
    recorded(file, steps, before=two_nodes)
    answer = replay(file)

    found = list(spans(run_a(answer).pods))
    assert len(found) == PODS
    for on, _, at_s, _ in found:
        assert sum(cores for name, cores, begin_s, end_s in found if name == on and begin_s <= at_s < end_s) <= CORES
    assert as_json(replay(file)) == as_json(answer)
