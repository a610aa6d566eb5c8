"""Scenarios with groups of pods (groups.yaml): the first answer of a scheduler about all pods, their PodGroup and the victims.

All objects exist before the scheduler starts, and no pod is tried twice. `python -m tests.parity.record_groups` records kube-scheduler with
the gates for groups; `test_group_recordings` replays Kubestow.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol

import yaml

from tests.e2e.cluster import node, pod
from tests.parity.answers import HERE, RecordedAnswers
from tests.parity.words import Json

ANSWERS: Final = RecordedAnswers("group")
SCHEDULER_NAME: Final = "together"
GATES: Final = "--feature-gates=GenericWorkload=true"
TOPOLOGY: Final = "TopologyAwareWorkloadScheduling=true"
"""The gate that only a scenario with racks needs: with it all groups have other texts."""
PATIENT: Final = {"podInitialBackoffSeconds": 60, "podMaxBackoffSeconds": 60}
_DOMAINS: Final = "more than 1 domain found for pod group: "
_PROBE: Final = "probe"
_PATIENCE_S: Final = 90.0
_STEADY_S: Final = 1.0
_POD: Final = re.compile(
    r"(?P<cpu>\S+)(?: @ (?P<at>\S+))?(?: \^(?P<priority>\S+))?(?P<never> never)?(?P<of> of the group)?"
)


class GroupApi(Protocol):
    """What a scenario needs of an API server."""

    async def create(self, item: Json) -> None: ...

    async def items(self, kind: str) -> list[Json]: ...


@dataclass(frozen=True)
class GroupScene:
    """One scenario, as it is written."""

    id: str
    nodes: dict[str, str]
    members: dict[str, str]
    lows: dict[str, str]
    group: Json | None
    differs: dict[str, list[str]]
    """Fields in which Kubestow answers otherwise, by version."""

    @property
    def has_racks(self) -> bool:
        """Whether the group must be in one rack."""
        return bool(self.group and self.group.get("rack"))

    def objects(self) -> list[Json]:
        """Return all objects in the order of their creation. The probe is the last pod that a scheduler tries."""
        found = [self._node(name, given) for name, given in self.nodes.items()]
        if self.group is not None:
            found.append(self._group(dict(self.group)))
        found += [_pod(name, given) for name, given in {**self.lows, **self.members}.items()]
        return [*found, _pod(_PROBE, "0 ^-1000")]

    def _node(self, name: str, given: str) -> Json:
        cpu, _, rack = str(given).partition("/")
        return node(name, labels={"rack": rack} if rack else None, cpu=cpu)

    def _group(self, spec: Json) -> Json:
        least, rack = spec.pop("least", None), spec.pop("rack", False)
        spec["schedulingPolicy"] = {"basic": {}} if least is None else {"gang": {"minCount": least}}
        if rack:
            spec["schedulingConstraints"] = {"topology": [{"key": "rack"}]}
        priorities = [_POD.fullmatch(str(given)) for given in self.members.values()]
        spec["priority"] = max(int((found and found["priority"]) or 0) for found in priorities)
        version = "scheduling.k8s.io/v1beta1"
        return {
            "apiVersion": version,
            "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": "default"},
            "spec": spec,
        }


def _pod(name: str, given: str) -> Json:
    found = _POD.fullmatch(str(given))
    assert found, given
    spec: Json = {"priority": int(found["priority"] or 0)}
    if found["never"]:
        spec["preemptionPolicy"] = "Never"
    if found["at"]:
        spec["nodeName"] = found["at"]
    if name != _PROBE and (found["of"] or not found["at"]):
        spec["schedulingGroup"] = {"podGroupName": "g"}
    made = pod(name, SCHEDULER_NAME, spec, cpu=found["cpu"])
    made["metadata"]["labels"] = {"role": "low" if found["at"] else "member"}
    return made


def scenes() -> list[GroupScene]:
    read = yaml.safe_load((HERE / "groups.yaml").read_text(encoding="utf-8"))
    return [
        GroupScene(
            each["id"],
            each["nodes"],
            each["members"],
            each.get("lows", {}),
            each.get("group"),
            each.get("differs", {}),
        )
        for each in read
    ]


async def verdict(scene: GroupScene, api: GroupApi, start: Callable[[], AbstractAsyncContextManager[None]]) -> Json:
    """Return the answer of the scheduler that `start` runs. The API server is empty before."""
    for item in scene.objects():
        await api.create(item)
    async with start():
        found, since = await _answer(scene, api), time.monotonic()
        deadline = since + _PATIENCE_S
        while time.monotonic() < min(since + _STEADY_S, deadline) or not found["probe"]:
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.1)
            now = await _answer(scene, api)
            if now != found:
                found, since = now, time.monotonic()
    del found["probe"]
    return found


async def _answer(scene: GroupScene, api: GroupApi) -> Json:
    pods = {each["metadata"]["name"]: each for each in await api.items("Pod")}
    members = [pods[name] for name in scene.members]
    gone = [name for name in scene.lows if name not in pods or pods[name]["metadata"].get("deletionTimestamp")]
    racks = {name: given.partition("/")[2] for name, given in scene.nodes.items() if "/" in str(given)}
    places = [each["spec"]["nodeName"] for each in members if each["spec"].get("nodeName")]
    answer: Json = {
        "probe": pods[_PROBE]["spec"].get("nodeName", ""),
        "bound": len(places),
        "racks": sorted({racks[place] for place in places if place in racks}),
        "messages": sorted(_messages(members)),
        "nominated": sum(bool(each.get("status", {}).get("nominatedNodeName")) for each in members),
        "victims": sorted(gone),
    }
    for group in await api.items("PodGroup") if scene.group is not None else ():
        conditions = group.get("status", {}).get("conditions", [])
        answer["group"] = [[each["status"], each["reason"], _steady(each.get("message", ""))] for each in conditions]
    return answer


def _messages(members: Iterable[Json]) -> Iterable[str]:
    for each in members:
        for condition in each.get("status", {}).get("conditions", []):
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                yield f"{condition['reason']}: {_steady(condition.get('message', ''))}"


def _steady(message: str) -> str:
    """Return the message with the domains in order: kube-scheduler names them in any order."""
    head, found, domains = message.partition(_DOMAINS)
    return head + found + ", ".join(sorted(domains.split(", ")))


def differences(scene: GroupScene, version: str, theirs: Json, ours: Json) -> dict[str, tuple[Any, Any]]:
    """Return the fields that differ and should not. Our message of a PodGroup may go on where theirs ends."""
    told = {field: (theirs.get(field), ours.get(field)) for field in theirs if theirs.get(field) != ours.get(field)}
    if "group" in told and len(theirs["group"]) == len(ours["group"]):
        pairs = zip(theirs["group"], ours["group"], strict=True)
        if all(their[:2] == our[:2] and our[2].startswith(their[2]) for their, our in pairs):
            del told["group"]
    return {field: pair for field, pair in told.items() if field not in scene.differs.get(version, [])}
