"""Pods whose devices take long to find: what an attempt takes, and how long it keeps everything else waiting.

Ten partitions of sixty, each of which draws 50 to 150 on one to three of six counters, on a node of its own; the less each
counter has, the harder it is, up to where it is plain that they do not fit. And a request with two alternatives on so many
nodes that no two of them are alike, which have to be searched one by one when the first such pod comes.
"""

import gc
import random
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from benchmarks.devices import CLASS, DRIVER, ONE, REQUEST, claim_name, pod_claims
from benchmarks.house import House
from benchmarks.micro_devices import Setting
from benchmarks.workload import NAMESPACE, node_name
from scheduler.core.decode import ObjectDecoder
from scheduler.core.pod import Pod
from scheduler.core.podinfo import PodInfo, pod_info
from scheduler.cycle import Outcome, Placed, Unfit

_ROOMS = (120, 150, 180, 200, 240)
_SEEDS = 10
_COUNTERS = "abcdef"
_UNLIKE_NODES = 2000


class Taken(NamedTuple):
    """Milliseconds of CPU for an attempt, and of the longest time in which nothing else had a turn."""

    attempt_ms: float
    longest_ms: float
    is_placed: bool


def partitions(room: int, seed: int) -> Taken:
    """The first attempt with ten of sixty partitions, where each counter has so much."""
    chance = random.Random(seed)
    house = House(1, 1)
    house.tell("DeviceClass", Setting(ONE, 1, 1).devices.classes())
    devices = []
    for number in range(60):
        drawn = chance.sample(_COUNTERS, chance.randint(1, 3))
        takes = {name: {"value": str(chance.randint(50, 150))} for name in drawn}
        consumes = [{"counterSet": "board", "counters": takes}]
        devices.append(
            {"name": f"part-{number}", "attributes": {"uuid": {"int": number}}, "consumesCounters": consumes}
        )
    sets = [{"name": "board", "counters": {name: {"value": str(room)} for name in _COUNTERS}}]
    house.tell("ResourceSlice", [_slice(0, 2, devices=devices), _slice(0, 2, sharedCounters=sets)])
    return _attempt(house, {"exactly": _asking(10)})


def alternatives(nodes: int) -> Taken:
    """The first attempt with a prioritized list, two devices or one, where each node has one of a kind of its own."""
    house = House(nodes, 1)
    house.tell("DeviceClass", Setting(ONE, 1, 1).devices.classes())
    for index in range(nodes):
        device = {"name": "gpu", "attributes": {"uuid": {"string": f"gpu-{index}"}}}
        house.tell("ResourceSlice", [_slice(index, 1, devices=[device])])
    options = [{"name": f"of-{count}"} | _asking(count) for count in (2, 1)]
    return _attempt(house, {"firstAvailable": options})


def lines() -> Iterator[str]:
    """What was measured."""
    for room in _ROOMS:
        taken = [partitions(room, seed) for seed in range(_SEEDS)]
        mean = sum(each.attempt_ms for each in taken) / len(taken)
        most, longest = max(each.attempt_ms for each in taken), max(each.longest_ms for each in taken)
        placed = sum(each.is_placed for each in taken)
        yield (
            f"ten of 60 partitions, six counters of {room}: {mean:.1f} ms, at most {most:.1f} ms; "
            f"{placed} of {_SEEDS} placed; others waited for {longest:.1f} ms at most"
        )
    first = alternatives(_UNLIKE_NODES)
    yield (
        f"two alternatives on {_UNLIKE_NODES} nodes, no two alike, at first sight: {first.attempt_ms:.0f} ms; "
        f"others waited for {first.longest_ms:.1f} ms at most"
    )


def _asking(count: int) -> dict[str, Any]:
    return {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": count}


def _slice(index: int, slices: int, **spec: Any) -> bytes:
    node = node_name(index)
    pool = {"name": node, "generation": 1, "resourceSliceCount": slices}
    body = {"driver": DRIVER, "nodeName": node, "pool": pool} | spec
    name = f"{node}-{next(iter(spec)).lower()}"
    return msgspec.json.encode(
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": body}
    )


def _attempt(house: House, request: dict[str, Any]) -> Taken:
    spec = {"devices": {"requests": [{"name": REQUEST} | request]}}
    house.tell(
        "ResourceClaim",
        [msgspec.json.encode({"metadata": {"name": claim_name("hard-0"), "namespace": NAMESPACE}, "spec": spec})],
    )
    house.decisions.cluster.devices.on_nodes.catch_up()  # what is there is known already, but to this pod
    attempt = house.cycle().attempt(_pod(house), 1)
    gc.collect()
    gc.freeze()  # as the daemon does, and `microseconds`
    outcome: Outcome | None = None
    began = turn = time.process_time()
    longest = 0.0
    while outcome is None:
        try:
            next(attempt)
        except StopIteration as done:
            outcome = done.value
        now = time.process_time()
        longest, turn = max(longest, now - turn), now
    assert isinstance(outcome, Placed | Unfit), outcome
    return Taken((turn - began) * 1e3, longest * 1e3, isinstance(outcome, Placed))


def _pod(house: House) -> PodInfo:
    body = msgspec.json.decode(house.raw_pod("hard", 0))
    body["spec"] |= pod_claims(ONE, "hard-0", 0)
    pod = ObjectDecoder("Pod", Pod).decode(msgspec.json.encode(body))
    assert isinstance(pod, Pod)
    return pod_info(pod)
