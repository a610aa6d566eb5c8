"""The random clusters with one group (tests/unit/groups/worlds.py) as objects of a real API server. Knows no server.

Many of them are in one cluster at a time: each has a namespace, and its pods select its nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from simulator.builders.claims import a_claim as a_device_claim
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.e2e.cluster import Json, node, pod
from tests.support.volumebuilders import HOSTNAME, a_claim, a_class, a_csi_driver, a_csi_node
from tests.unit.groups.worlds import DRIVER, MODELS, GroupMember, GroupWorld

GROUP: Final = "g"
_CLASS: Final = "fast"
_DEVICE_CLASS: Final = "gpu"
_DEVICE_DRIVER: Final = "drv"
_WORLD: Final = "world"
_GIB: Final = 1024**3


def shared_objects() -> list[Json]:
    """What all clusters have in common."""
    provisioned = a_class(_CLASS, DRIVER).obj()
    return [provisioned, a_csi_driver(DRIVER).tracks_capacity().obj(), a_device_class(_DEVICE_CLASS).obj()]


@dataclass(frozen=True, slots=True)
class PlacedWorld:
    """One cluster in a namespace."""

    world: GroupWorld
    namespace: str

    def capacities(self) -> Mapping[str, int]:
        """Bytes of storage, by node."""
        return {self._own(each.name): each.storage * _GIB for each in self.world.nodes}

    def cluster_objects(self) -> Iterator[Json]:
        """The nodes with their drivers and devices."""
        for each in self.world.nodes:
            name = self._own(each.name)
            labels = {_WORLD: self.namespace, "zone": each.zone}
            yield node(name, labels=labels, cpu=str(each.cpu), memory=f"{each.memory}Gi")
            yield a_csi_node(name).driver(DRIVER, topology_keys=(HOSTNAME,)).obj()
            devices = [(model, at) for model in MODELS for at in range(each.devices.get(model, 0))]
            if devices:
                built = (a_device(f"{model}{at}").attr(f"{_DEVICE_DRIVER}/model", model) for model, at in devices)
                yield a_slice(name, _DEVICE_DRIVER, *built).obj()

    def claims(self) -> Iterator[Json]:
        """Those of all members."""
        for member in self.world.members:
            if member.storage:
                yield a_claim(f"disk-{member.name}", f"{member.storage}Gi", _CLASS, ns=self.namespace).obj()
            if member.devices:
                yield self._device_claim(member)

    def pods(self, scheduler_name: str) -> Iterator[Json]:
        """The members in their order."""
        for member in self.world.members:
            made = pod(
                member.name, scheduler_name, self._pod_spec(member), cpu=str(member.cpu), memory=f"{member.memory}Gi"
            )
            made["metadata"]["namespace"] = self.namespace
            yield made

    def _own(self, node_name: str) -> str:
        return f"{node_name}-{self.namespace}"

    def _device_claim(self, member: GroupMember) -> Json:
        requests = a_device_claim(f"gpu-{member.name}", ns=self.namespace)
        for model, count in member.devices.items():
            cel = f"device.attributes['{_DEVICE_DRIVER}'].model == '{model}'" if model else ()
            requests = requests.request(f"r{model}", _DEVICE_CLASS, count=count, cel=cel)
        return requests.obj()

    def _pod_spec(self, member: GroupMember) -> Mapping[str, object]:
        spec: dict[str, Any] = {
            "terminationGracePeriodSeconds": 0,
            "schedulingGroup": {"podGroupName": GROUP},
            "nodeSelector": {_WORLD: self.namespace} | ({"zone": member.zone} if member.zone else {}),
        }
        if member.storage:
            spec["volumes"] = [{"name": "disk", "persistentVolumeClaim": {"claimName": f"disk-{member.name}"}}]
        if member.devices:
            spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": f"gpu-{member.name}"}]
        return spec
