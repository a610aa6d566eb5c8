"""Find the workload of each pod: for the order of pods, and for the rows of workloads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from simulator.apiserver import ApiServer
from simulator.controllers.controller import Key
from simulator.simulate.input.manifests import Manifest
from simulator.simulate.outcome import WorkloadRow
from simulator.workloads.controllers import RESOURCES, WorkloadTally
from simulator.workloads.pods import controller_of

Name: TypeAlias = tuple[str, str, str]
"""Kind, namespace and name."""
_FIXED: Final = ("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet")
"""Kinds whose `spec.replicas` is the wanted number of pods."""


class Lineage:
    """The owners after a simulation. `positions` are those of the objects in the input."""

    def __init__(self, server: ApiServer, positions: Mapping[Name, int]) -> None:
        self._positions = positions
        self._workloads: dict[Name, Manifest] = {}
        for kind, resource in RESOURCES.items():
            for each in server.objects(resource):
                self._workloads[kind, each["metadata"]["namespace"], each["metadata"]["name"]] = each

    def order(self, pod: Manifest) -> tuple[int, str, int, str]:
        """Return a key that sorts pods by the input: a created pod comes at the place of its workload."""
        namespace, name = pod["metadata"]["namespace"], str(pod["metadata"]["name"])
        ancestors = (("Pod", namespace, name), *self._ancestors(pod, namespace))
        position = next(
            (at for each in ancestors if (at := self._positions.get(each)) is not None), len(self._positions)
        )
        prefix, _, digits = name.rpartition("-")
        number = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 10 else -1
        return position, prefix if number >= 0 else name, number, name

    def _ancestors(self, obj: Manifest, namespace: str) -> Iterator[Name]:
        """Yield the controller, its controller, and so on; each once."""
        seen: set[Name] = set()
        while (owner := controller_of(obj)) is not None:
            name = (str(owner["kind"]), namespace, str(owner["name"]))
            if name in seen or name not in self._workloads:
                return
            seen.add(name)
            yield name
            obj = self._workloads[name]

    def rows(
        self, tallies: Mapping[Key, WorkloadTally], *, existing: Mapping[Name, int], leaving: Mapping[Name, int]
    ) -> tuple[WorkloadRow, ...]:
        """Return a row per workload that no other workload controls, in the order of the input."""
        members: dict[Name, list[Name]] = {}
        for name, obj in self._workloads.items():
            root = next(
                (each for each in reversed([name, *self._ancestors(obj, name[1])]) if each[0] != "CronJob"), name
            )
            members.setdefault(root, []).append(name)
        ordered = sorted(members, key=lambda name: (self._positions.get(name, len(self._positions)), name))
        return tuple(self._row(root, members[root], tallies, existing, leaving) for root in ordered)

    def _row(
        self,
        root: Name,
        members: list[Name],
        tallies: Mapping[Key, WorkloadTally],
        existing: Mapping[Name, int],
        leaving: Mapping[Name, int],
    ) -> WorkloadRow:
        found = [tallies.get((RESOURCES[kind], namespace, name), WorkloadTally()) for kind, namespace, name in members]
        spec = self._workloads[root].get("spec") or {}
        refused = [each.refused for each in found if each.refused]
        reasons = [each.reason for each in found if each.reason]
        return WorkloadRow(
            workload=f"{root[0]} {root[1]}/{root[2]}",
            replicas=int(spec.get("replicas", 1)) if root[0] in _FIXED else None,
            existing=sum(existing.get(each, 0) for each in members) + sum(each.adopted for each in found),
            created=sum(each.created for each in found),
            deleted=[name for each in found for name in each.deleted],
            ignored=sum(leaving.get(each, 0) for each in members),
            reason="; ".join(dict.fromkeys([*refused, *reasons])),
            refused="; ".join(dict.fromkeys(refused)),
        )
