"""Pods whose devices take long to find: what an attempt takes, and how long it keeps everything else waiting.

Partitions, each of which draws 50 to 150 on one to three of six counters, on a node of its own; the less each counter has, the
harder it is, up to where it is plain that they do not fit. The same where no two may be of one group, where an
administrator looks at some, and where alternatives ask for fewer. Partitions of eight GPUs in all sizes, as a driver cuts
them, that take all there is. Parts that fill shared devices to the brim. And a request with two alternatives on so many
nodes that no two of them are alike, which have to be searched one by one when the first such pod comes.
"""

import gc
import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
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
_ROOMS_OF_MANY = (300, 340)
_SEEDS, _REPEATS = 10, 3
_COUNTERS = "abcdef"
_UNLIKE_NODES = 2000
_IN_A_SLICE = 64
_PARTS = {1: (1, range(7)), 2: (2, range(0, 6, 2)), 3: (4, (0, 4)), 4: (4, (0,)), 7: (8, (0,))}
"""Size of a partition → how much of eight parts of memory it takes, and where it may start."""


class Taken(NamedTuple):
    """Milliseconds of CPU for an attempt, and of the longest time in which nothing else had a turn."""

    attempt_ms: float
    longest_ms: float
    is_placed: bool


def partitions(room: int, seed: int, *, count: int = 60, spec: dict[str, Any] | None = None) -> Taken:
    """The first attempt with ten of sixty partitions, or with another claim, where each counter has so much."""
    chance = random.Random(seed)
    devices = []
    for number in range(count):
        drawn = chance.sample(_COUNTERS, chance.randint(1, 3))
        takes = {name: {"value": str(chance.randint(50, 150))} for name in drawn}
        consumes = [{"counterSet": "board", "counters": takes}]
        says = {"uuid": {"int": number}, "group": {"int": number % 12}}
        devices.append({"name": f"part-{number}", "attributes": says, "consumesCounters": consumes})
    sets = [{"name": "board", "counters": {name: {"value": str(room)} for name in _COUNTERS}}]
    return _attempt(_house(devices, sets), spec or _spec({"exactly": _asking(10)}))


def sizes(seed: int) -> Taken:
    """Partitions of eight GPUs, that take all slices or a few more."""
    chance, requests, slices = random.Random(seed), list[dict[str, Any]](), 0
    while slices < 56 and len(requests) < 32:
        size = chance.choice((1, 1, 2, 2, 3, 3, 4, 7))
        selector = {"cel": {"expression": f'device.attributes["{DRIVER}"].size == {size}'}}
        requests.append({"exactly": _asking(1) | {"selectors": [selector]}})
        slices += size
    chance.shuffle(requests)
    devices, sets = [], []
    for gpu in range(8):
        for size, (memory, starts) in _PARTS.items():
            for start in starts:
                takes = ["slices", *(f"memory{at}" for at in range(start, start + memory))]
                amounts = {name: {"value": str(size if name == "slices" else 1)} for name in takes}
                consumes = [{"counterSet": f"gpu-{gpu}", "counters": amounts}]
                name = f"gpu-{gpu}-{size}g-{start}"
                devices.append({"name": name, "attributes": {"size": {"int": size}}, "consumesCounters": consumes})
        has = {"slices": {"value": "7"}} | {f"memory{at}": {"value": "1"} for at in range(8)}
        sets.append({"name": f"gpu-{gpu}", "counters": has})
    return _attempt(_house(devices, sets), _spec(*requests))


def parts(seed: int) -> Taken:
    """Three parts for each of five shared devices, that fill them."""
    chance, wanted = random.Random(seed), list[int]()
    for _ in range(5):
        first, second = chance.randint(20, 45), chance.randint(20, 45)
        wanted += [first, second, 100 - first - second]
    wanted.sort(reverse=bool(seed % 2))
    capacity = {"memory": {"value": "100"}}
    devices = [{"name": f"gpu-{at}", "allowMultipleAllocations": True, "capacity": capacity} for at in range(5)]
    requests = ({"exactly": _asking(1) | {"capacity": {"requests": {"memory": str(each)}}}} for each in wanted)
    return _attempt(_house(devices, []), _spec(*requests))


def alternatives(nodes: int) -> Taken:
    """The first attempt with a prioritized list, two devices or one, where each node has one of a kind of its own."""
    house = House(nodes, 1)
    house.tell("DeviceClass", Setting(ONE, 1, 1).devices.classes())
    for index in range(nodes):
        device = {"name": "gpu", "attributes": {"uuid": {"string": f"gpu-{index}"}}}
        house.tell("ResourceSlice", [_slice(index, 1, devices=[device])])
    options = [{"name": f"of-{count}"} | _asking(count) for count in (2, 1)]
    return _attempt(house, _spec({"firstAvailable": options}))


def lines() -> Iterator[str]:
    """What was measured."""
    for room in _ROOMS:
        yield _line(f"ten of 60 partitions, six counters of {room}", partial(partitions, room))
    for room in _ROOMS_OF_MANY:
        twenty = _spec({"exactly": _asking(20)})
        yield _line(
            f"twenty of 120 partitions, six counters of {room}", partial(partitions, room, count=120, spec=twenty)
        )
    unlike = _spec({"exactly": _asking(10)}, distinctAttribute=f"{DRIVER}/group")
    yield _line("ten of 60 partitions of unlike groups, six counters of 200", partial(partitions, 200, spec=unlike))
    beside = _spec({"exactly": _asking(8)}, {"exactly": _asking(2) | {"adminAccess": True}})
    yield _line("eight of 60 partitions and two for an administrator", partial(partitions, 200, spec=beside))
    fewer = [[{"name": f"of-{count}"} | _asking(count) for count in (10, 8, 6, 4)] for _ in range(2)]
    lists = _spec(*({"firstAvailable": options} for options in fewer))
    yield _line("twice ten, eight, six or four of 60 partitions", partial(partitions, 200, spec=lists))
    yield _line("partitions of all sizes of eight GPUs, all there is", sizes)
    yield _line("fifteen parts that fill five shared devices", parts)
    first = alternatives(_UNLIKE_NODES)
    yield (
        f"two alternatives on {_UNLIKE_NODES} nodes, no two alike, at first sight: {first.attempt_ms:.0f} ms; "
        f"others waited for {first.longest_ms:.1f} ms at most"
    )


def _line(name: str, measure: Callable[[int], Taken]) -> str:
    """Of each case the best of three: who else uses the machine is not what is measured."""
    taken = [min(measure(seed) for _ in range(_REPEATS)) for seed in range(_SEEDS)]
    mean = sum(each.attempt_ms for each in taken) / len(taken)
    most, longest = max(each.attempt_ms for each in taken), max(each.longest_ms for each in taken)
    placed = sum(each.is_placed for each in taken)
    return (
        f"{name}: {mean:.1f} ms, at most {most:.1f} ms; "
        f"{placed} of {_SEEDS} placed; others waited for {longest:.1f} ms at most"
    )


def _spec(*requests: dict[str, Any], **constraint: str) -> dict[str, Any]:
    """Of a claim."""
    named = [{"name": f"{REQUEST}-{at}"} | request for at, request in enumerate(requests)]
    return {"devices": {"requests": named, "constraints": [constraint] if constraint else []}}


def _asking(count: int) -> dict[str, Any]:
    return {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": count}


def _slice(index: int, slices: int, number: int = 0, **spec: Any) -> bytes:
    node = node_name(index)
    pool = {"name": node, "generation": 1, "resourceSliceCount": slices}
    body = {"driver": DRIVER, "nodeName": node, "pool": pool} | spec
    name = f"{node}-{number}"
    return msgspec.json.encode(
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": body}
    )


def _house(devices: Sequence[dict[str, Any]], sets: Sequence[dict[str, Any]]) -> House:
    """With one node that has these."""
    house = House(1, 1)
    house.tell("DeviceClass", Setting(ONE, 1, 1).devices.classes())
    of_devices = [devices[at : at + _IN_A_SLICE] for at in range(0, len(devices), _IN_A_SLICE)]
    specs = [{"devices": some} for some in of_devices] + [{"sharedCounters": sets}] * bool(sets)
    house.tell("ResourceSlice", [_slice(0, len(specs), at, **spec) for at, spec in enumerate(specs)])
    return house


def _attempt(house: House, spec: dict[str, Any]) -> Taken:
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
