"""Whether the claims of a run are as they must be once its pods are bound, for any scheduler. Needs no server."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.deviceobjects import Devices, only_on
from benchmarks.devices import (
    CONSUMABLE,
    DRIVER,
    MODEL,
    PARTITIONABLE,
    claim_name,
    class_of,
    consumed_mib,
    model_of_node,
    share_mib,
)
from benchmarks.gangs import owner_of_claim
from benchmarks.workload import Workload, node_index
from scheduler.api.quantity import parse
from scheduler.api.resource_v1 import FINALIZER

_MIB = 1024**2
_Object = Mapping[str, Any]


class DeviceCheck:
    """Of all claims that there are."""

    def __init__(self, workload: Workload, claims: Sequence[_Object]) -> None:
        self._workload = workload
        self._kind = Devices(workload).kind
        self._devices = {device["name"]: device for device in Devices(workload).devices()}
        self._claims: dict[str, list[_Object]] = defaultdict(list)
        """By pod or group."""
        for claim in claims:
            self._claims[_owner_of(claim)].append(claim)
        self._given = [result for claim in claims for result in _results(claim)]

    def broken_rules(self, names: Sequence[str], node_of: Mapping[str, str]) -> list[str]:
        """What is wrong for the pods that were bound, `names` are those of all: one line each."""
        unknown = [
            f"there is no {_id(result)}"
            for result in self._given
            if result["driver"] != DRIVER or result["device"] not in self._devices
        ]
        if unknown:
            return unknown
        mates: dict[str, list[str]] = defaultdict(list)
        for index, pod in enumerate(names):
            if pod in node_of:
                mates[owner_of_claim(self._workload.name, pod, index)].append(pod)
        wrong = [
            f"pod {pod} on {node_of[pod]}: {problem}"
            for index, pod in enumerate(names)
            if pod in node_of
            and (owner := owner_of_claim(self._workload.name, pod, index))
            and (problem := self._problem(owner, index, node_of[pod], mates[owner]))
        ]
        return wrong + list(self._used_twice()) + list(self._overdrawn())

    def _problem(self, owner: str, index: int, node: str, mates: Sequence[str]) -> str:
        # When it falls behind, the controller makes a second claim for a pod: it remembers a hundred that its watch has
        # not shown yet. The one that the scheduler was shown first is as good.
        claims = self._claims.get(owner, ())
        allocated = [claim for claim in claims if _results(claim)]
        if len(allocated) != 1:
            return f"has devices by {len(allocated)} of {len(claims)} claims"
        (claim,) = allocated
        results = _results(claim)
        if len(results) != self._kind.count or any(result["pool"] != node for result in results):
            return f"has {_ids(results)}"
        selector = claim["status"]["allocation"].get("nodeSelector")
        if selector != only_on(node):
            return f"its devices are said to be elsewhere: {selector}"
        users = [user["name"] for user in claim["status"].get("reservedFor", ())]
        if sorted(users) != sorted(mates):
            return f"its claim is reserved for {users}"
        if FINALIZER not in claim["metadata"].get("finalizers", ()):
            return "its claim is not protected"
        return self._unlike(index, results)

    def _unlike(self, index: int, results: Sequence[_Object]) -> str:
        """Devices that were not requested."""
        workload, device = self._workload, results[0]
        if model_of_node(workload.name, node_index(device["pool"])) != MODEL:
            return f"has {_ids(results)} of another model"
        if len({self._devices[result["device"]]["attributes"]["numa"]["int"] for result in results}) > 1:
            return f"has {_ids(results)} of two NUMA nodes"
        if workload.name == PARTITIONABLE:
            wanted = class_of(workload.name, index, workload.shapes)
            if self._devices[device["device"]]["attributes"]["profile"]["string"] != wanted:
                return f"has {_id(device)} in place of a {wanted}"
        if workload.name == CONSUMABLE:
            asked = share_mib(index, workload.shapes)
            if "shareID" not in device or _memory(device) != consumed_mib(asked) * _MIB:
                return f"has {_memory(device)} bytes of {_id(device)} and requested {asked} MiB"
        return ""

    def _used_twice(self) -> Iterator[str]:
        users = Counter((_id(result), result.get("shareID", "")) for result in self._given)
        for (device, share), count in users.items():
            if count > 1:
                yield f"{count} claims have {device} {share}"

    def _overdrawn(self) -> Iterator[str]:
        """Shared devices and counters of which more is given than there is."""
        given, room = Counter[tuple[str, ...]](), dict[tuple[str, ...], int]()
        for result in self._given:
            if self._workload.name == CONSUMABLE:
                at: tuple[str, ...] = (result["pool"], result["device"])
                given[at] += _memory(result)
                room[at] = parse(self._devices[result["device"]]["capacity"]["memory"]["value"]).value
            for consumed in self._devices[result["device"]].get("consumesCounters", ()):
                for name, counter in consumed["counters"].items():
                    at = (result["pool"], consumed["counterSet"], name)
                    given[at] += parse(counter["value"]).value
                    room[at] = Devices(self._workload).counter(name)
        for at, amount in given.items():
            if amount > room[at]:
                yield f"{'/'.join(at)}: {amount} of {room[at]} is given"


def _owner_of(claim: _Object) -> str:
    """The pod or group that the claim was made for."""
    owners = claim["metadata"].get("ownerReferences")
    return str(owners[0]["name"]) if owners else str(claim["metadata"]["name"]).removesuffix(claim_name(""))


def _results(claim: _Object) -> Sequence[_Object]:
    allocation = claim.get("status", {}).get("allocation")
    return allocation["devices"]["results"] if allocation else ()


def _memory(result: _Object) -> int:
    return parse(result.get("consumedCapacity", {}).get("memory", "0")).value


def _id(result: _Object) -> str:
    return f"{result['pool']}/{result['device']}"


def _ids(results: Sequence[_Object]) -> str:
    return ", ".join(map(_id, results))
